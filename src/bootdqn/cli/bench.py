"""`bootdqn bench` measures speed on this machine, and shows it as a table and as JSON."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from bootdqn.bench.atari import bench_atari
from bootdqn.bench.chain import bench_chain, bench_gym, bench_peers, bench_tabular
from bootdqn.bench.sweep import bench_sweep
from bootdqn.errors import require_known
from bootdqn.runs.directory import require_writable, write_json

_DESCRIPTION = """Measure speed on this machine, side by side in one run so that ratios are meaningful.

examples:
  bootdqn bench chain
  bootdqn bench chain --json bench.json
  bootdqn bench tabular
  bootdqn bench gym
  bootdqn bench atari --json atari.json
  bootdqn bench sweep
  bootdqn bench peers"""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """The command line of `bootdqn bench`."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = "chain"
    """chain; tabular (tabular baselines); gym and atari (compared with stable-baselines3); sweep (worker processes
    compared with Ray); peers (compared with bsuite)."""
    json: Path | None = None
    """File to which the figures are also written."""


def main(arguments: list[str]) -> int:
    """Run a benchmark and show its figures."""
    options = tyro.cli(BenchOptions, prog="bootdqn bench", description=_DESCRIPTION, args=arguments)
    require_known("benchmark", options.name, _BENCHMARKS)
    if options.json is not None:  # refuse a path that cannot be written before minutes of work
        require_writable(options.json)
    run, show = _BENCHMARKS[options.name]
    results = run(lambda line: print(line, file=sys.stderr, flush=True))
    console = Console()
    console.print(f"{results['setting']}; {results['cores']} cores, {results['backend']}")
    show(console, results)
    if options.json is not None:
        write_json(options.json, results)
        print(f"figures: {options.json}")
    return 0


def _show_chain(console: Console, results: dict[str, Any]) -> None:
    console.print(
        f"float32 GEMM peak of this machine {results['gemm_gflops']:.0f} GFLOP/s; "
        f"training reaches {results['share_of_gemm_peak']:.0%} of it"
    )
    table = Table()
    for heading in ("", "N", "K", "seeds", "vmapped", "ms per step and seed", "GFLOP/s", "compile s"):
        table.add_column(heading, justify="right")
    rows = [("reference", results["reference"]), ("vmapped", results["seeds_vmapped_in_one_program"])]
    rows += [(f"grow {name}", row) for name, group in results["growth"].items() for row in group]
    for label, row in rows:
        table.add_row(
            label,
            *(str(row[name]) for name in ("length", "heads", "seeds", "seeds_per_program")),
            f"{row['ms_per_step_and_seed']:.3f}",
            f"{row['gflops']:.0f}",
            f"{row['compile_seconds']:.1f}",
        )
    console.print(table)


def _show_peers(console: Console, results: dict[str, Any]) -> None:
    table = Table()
    for heading in ("size", "", "steps/s", "ms per step", "ratio"):
        table.add_column(heading, justify="right")
    for row in results["results"]:
        for name, rate in row["steps_per_second"].items():
            ratio = f"{row['ratio']:.1f}" if name == "bootdqn" and "ratio" in row else ""
            table.add_row(str(row["size"]), name, f"{rate:.1f}", f"{1e3 / rate:.2f}", ratio)
    console.print(table)
    sizes = [row["size"] for row in results["results"]]
    console.print(
        f"ratio: how many times as fast as bsuite {results['bsuite']}; a step of bootdqn takes "
        f"{results['growth']:.2f} times as long at size {sizes[-1]} as at {sizes[0]}"
    )


def _show_gym(console: Console, results: dict[str, Any]) -> None:
    table = Table()
    names = list(results["results"][0]["steps_per_second"])
    for heading in ("environments", "steps per update", *(f"{name}, steps/s" for name in names), "ratio"):
        table.add_column(heading, justify="right")
    for row in results["results"]:
        rates = [f"{row['steps_per_second'][name]:.0f}" for name in names]
        table.add_row(str(row["envs"]), str(row["steps_per_update"]), *rates, f"{row['ratio']:.1f}")
    console.print(table)


def _show_tabular(console: Console, results: dict[str, Any]) -> None:
    table = Table()
    for heading in ("", "seconds"):
        table.add_column(heading, justify="right")
    for name, seconds in results["seconds"].items():
        table.add_row(name, f"{seconds:.2f}")
    table.add_row(f"ucrl2, {results['long_episodes']:,} episodes", f"{results['ucrl2_long_seconds']:.2f}")
    console.print(table)
    console.print(
        f"ucrl2 with all seeds vmapped into one program takes {results['vmapped_ratio']:.2f} times as long"
    )


def _show_atari(console: Console, results: dict[str, Any]) -> None:
    console.print(
        f"this machine: float32 GEMM peak {results['gemm_gflops']:.0f} GFLOP/s, "
        f"memory {results['bandwidth_gb_per_second']:.1f} GB/s"
    )
    table = Table(title="one step of the learner: best of several, ms")
    for heading in ("K", "step", "median", "gradient", "optimizer", "act", "step by XLA", "PyTorch"):
        table.add_column(heading, justify="right")
    columns = ("ms", "median_ms", "gradient_ms", "optimizer_ms", "act_ms", "xla_ms", "pytorch_ms")
    for row in results["learner"]:
        table.add_row(str(row["heads"]), *(f"{row[name]:.1f}" for name in columns))
    growth = results["growth_with_heads"]
    growths = (f"{growth[name]:.2f}" for name in ("xla_ms", "pytorch_ms"))
    table.add_row("ratio", f"{growth['ms']:.2f}", *[""] * 4, *growths)
    console.print(table)
    console.print(f"kernels: {results['kernels']}")
    for row in results["learner"]:
        console.print(
            f"K={row['heads']}: {row['gflop']:.2f} GFLOP per step, {row['gflops']:.0f} GFLOP/s, "
            f"{row['share_of_gemm_peak']:.0%} of the peak (gradient alone "
            f"{row['gradient_share_of_gemm_peak']:.0%}); the optimizer moves {row['optimizer_gb']:.2f} GB, "
            f"at {row['optimizer_share_of_bandwidth']:.0%} of the memory's rate"
        )
    console.print(
        f"with K arithmetic grows {growth['gflop']:.2f} times, the optimizer's {growth['optimizer_gb']:.1f}"
    )
    table = Table(title="whole training, steps per second: best and median of several turns")
    for heading in ("", "best", "median"):
        table.add_column(heading, justify="right")
    for name, rate in results["loop_steps_per_second"].items():
        table.add_row(name, f"{rate:.1f}", f"{results['loop_median_steps_per_second'][name]:.1f}")
    for name, ratio in results["loop_ratio"].items():
        times = (f"{value:.2f} times" for value in (ratio, results["loop_ratio_of_medians"][name]))
        table.add_row(f"{name}, against stable-baselines3", *times)
    for row in results["slots"]:
        table.add_row(f"{row['envs']} environments alone", f"{row['environment_steps_per_second']:.0f}")
    console.print(table)


def _show_sweep(console: Console, results: dict[str, Any]) -> None:
    table = Table()
    for heading in (
        "",
        "workers",
        "before the first trial, s",
        "between trials, s",
        "overhead",
        "total, s",
    ):
        table.add_column(heading, justify="right")
    for name, row in results["executors"].items():
        table.add_row(
            name,
            str(row["workers"]),
            f"{row['before_first_trial']:.1f}",
            f"{row['between_trials']:.3f}",
            f"{row['overhead']:.2%}",
            f"{row['wall_seconds']:.1f}",
        )
    console.print(table)


_BENCHMARKS = {
    "chain": (bench_chain, _show_chain),
    "tabular": (bench_tabular, _show_tabular),
    "gym": (bench_gym, _show_gym),
    "atari": (bench_atari, _show_atari),
    "sweep": (bench_sweep, _show_sweep),
    "peers": (bench_peers, _show_peers),
}
