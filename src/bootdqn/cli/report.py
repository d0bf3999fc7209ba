"""The command `bootdqn report`: runs and experiments on one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bootdqn.errors import require
from bootdqn.report.page import Report
from bootdqn.report.pieces import count
from bootdqn.report.serve import serve
from bootdqn.runs.directory import require_writable, write_atomically

_DESCRIPTION = """Make one HTML page of runs and experiments: tables, curves, X-rays, head report cards and videos.

examples:
  bootdqn report results
  bootdqn report runs/cartpole runs/acrobot --out comparison.html
  bootdqn report runs --serve

The page is self-contained and needs no network; with --serve it follows runs that are still going on."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The command line of `bootdqn report`."""

    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PATH...")]
    """Directories of runs or experiments, or directories that contain some."""
    out: Path = Path("report.html")
    """File to write the page to."""
    serve: bool = False
    """Serve the page on this machine instead of writing it, and keep it up to date, until Ctrl-C."""
    port: int = 0
    """Port to serve the page at; 0 for any free one."""


def main(arguments: list[str]) -> int:
    """Write the page, or serve it."""
    options = tyro.cli(ReportOptions, prog="bootdqn report", description=_DESCRIPTION, args=arguments)
    require(bool(options.paths), "give at least one run directory, or one that holds runs, such as results")
    report = Report(options.paths)
    if options.serve:
        serve(report, options.port)
        return 0
    require_writable(options.out)
    page = report.page().encode(errors="replace")  # a file's name may be no valid text
    write_atomically(options.out, page)
    made = f"{count(report.num_runs, 'run')}, {count(report.num_experiments, 'experiment')}"
    print(f"report: {options.out} ({made}, {len(page) / 1e6:.1f} MB)")
    return 0
