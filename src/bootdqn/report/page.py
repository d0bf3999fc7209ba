"""The report page: one self-contained HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from bootdqn.analysis.stats import OPTIMAL_EPISODES
from bootdqn.experiments.registry import EXPERIMENTS
from bootdqn.report import markdown
from bootdqn.report.charts import chart_html
from bootdqn.report.collect import Found, find, read_experiment, read_run
from bootdqn.report.curves import make_charts
from bootdqn.report.details import run_html
from bootdqn.report.pieces import (
    count,
    facts_html,
    figure,
    fold,
    notes_html,
    num,
    number_text,
    scroll,
    sentence,
    status_html,
    versions_html,
)
from bootdqn.report.records import LATE_EPISODES, ExperimentRecord, RunRecord, number, text

_OPEN_RUNS = 2
"""Number of runs whose details are expanded from the start."""
_ABOUT = (
    "A run trains one agent on one environment. The agents of bootdqn have several heads: value functions that "
    "are trained in parallel, and whose disagreement shows what the agent has yet to explore."
)
_ABOUT_CURVES = (
    "Returns of training episodes, averaged over seeds (independent repetitions). A band is the 95% bootstrap "
    "interval of the mean. Point at a curve, touch it, or use the arrow keys to read the numbers."
)
_ABOUT_RUNS = (
    f"Late return: mean return of the last {LATE_EPISODES} training episodes of every seed. Best evaluation: the "
    f"highest mean return of the heads' majority vote. Episodes to learn: up to the {OPTIMAL_EPISODES}th optimal "
    "episode, as the median over seeds (seeds that never learn count as latest), with "
    "the number of seeds that learned. Click on a column's name to sort the table by it."
)
_ABOUT_EXPERIMENTS = "An experiment compares many runs, and summarises them in a figure and tables."


class Report:
    """The page about some directories; a new version rebuilds only the parts whose files have changed."""

    def __init__(self, paths: Sequence[Path]):
        self._paths = paths
        self._runs: dict[Found, tuple[RunRecord, str]] = {}
        self._experiments: dict[Found, tuple[ExperimentRecord, str]] = {}

    @property
    def num_runs(self) -> int:
        """Number of runs on the last page."""
        return len(self._runs)

    @property
    def num_experiments(self) -> int:
        """Number of experiments on the last page."""
        return len(self._experiments)

    def version(self) -> str:
        """A string that changes whenever one of the files changes that the page is made from."""
        return hashlib.sha256(repr(find(self._paths)).encode()).hexdigest()[:16]

    def page(self, *, live: str | None = None) -> str:
        """The HTML of the page; a served page has its version in `live`, and polls for a newer one."""
        everything = find(self._paths)
        self._runs = {found: self._runs.get(found) or _read_run(found) for found in everything if found.is_run}
        self._experiments = {
            found: self._experiments.get(found) or _read_experiment(found)
            for found in everything
            if not found.is_run
        }
        runs, experiments = [*self._runs.values()], [*self._experiments.values()]
        charts = make_charts([run for run, _ in runs])
        sections = [
            ("runs", "Runs", _summary([run for run, _ in runs]), runs),
            ("curves", "Learning curves", f'<div class="charts">{"".join(map(chart_html, charts))}</div>', charts),
            ("experiments", "Experiments", _experiments(experiments), experiments),
            ("details", "Runs in detail", "".join(_folded(i, *run) for i, run in enumerate(runs)), runs),
        ]
        hints = {"curves": _ABOUT_CURVES, "experiments": _ABOUT_EXPERIMENTS}
        shown = [
            (key, title, f'<p class="hint">{hints[key]}</p>{html}' if key in hints else html)
            for key, title, html, content in sections
            if content
        ]
        counts = [
            *([count(len(runs), "run")] if runs else []),
            *([count(len(experiments), "experiment")] if experiments else []),
        ]
        names = ", ".join(dict.fromkeys(path.resolve().name for path in self._paths))
        return _document(f"Training report: {names}", " and ".join(counts), shown, live)


def _read_run(found: Found) -> tuple[RunRecord, str]:
    run = read_run(found)
    return run, run_html(run)


def _read_experiment(found: Found) -> tuple[ExperimentRecord, str]:
    experiment = read_experiment(found)
    return experiment, _experiment_html(experiment)


def _document(title: str, counts: str, sections: Sequence[tuple[str, str, str]], live: str | None) -> str:
    css, script = (
        (files("bootdqn.report") / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    nav = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{name}</h2>{html}</section>' for key, name, html in sections)
    status = "" if live is None else '<p id="live" role="status">Live: this page follows the files.</p>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(_policy(script, live=live is not None))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{css}</style>
</head>
<body{"" if live is None else f' data-version="{live}"'}>
<header>
<p class="made">bootdqn {version("bootdqn")}</p>
<h1>{escape(title)}</h1>
<p>{counts}, as of {datetime.now(UTC):%d %B %Y, %H:%M} UTC. {_ABOUT}</p>
<nav aria-label="sections">{nav}</nav>{status}
</header>
<main>{body}</main>
<script>{script}</script>
</body>
</html>
"""


def _policy(script: str, *, live: bool) -> str:
    """Content security policy: no script but the page's own, and no network but the page's own server."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = [
        *("default-src 'none'", "img-src data:", "media-src data:", "style-src 'unsafe-inline'"),
        *(f"script-src 'sha256-{digest}'", "base-uri 'none'", "form-action 'none'"),
        *(["connect-src 'self'"] if live else []),
    ]
    return "; ".join(rules)


class _Column(NamedTuple):
    """A column of the table of runs."""

    title: str
    cell: Callable[[RunRecord], tuple[str, float | str | None]]
    """From a run to the text to show and the value to sort by."""
    is_number: bool = True


def _done(run: RunRecord) -> tuple[str, float]:
    planned = "" if run.planned in (None, run.done) else f" of {run.planned:,.0f}"
    return f"{run.done:,.0f}{planned} {run.unit}", run.done


def _learned(run: RunRecord) -> tuple[str, float | None]:
    if run.learned is None:
        return "", None
    median, learned, seeds = run.learned
    later = f"> {number_text(run.done)}" if learned else "never"
    return f"{later if median is None else number_text(median)} ({learned}/{seeds})", median


def _seeds(run: RunRecord) -> tuple[str, float]:
    seeds = [curve.seed for curve in run.curves]
    shown = f"{min(seeds)}–{max(seeds)}" if len(seeds) > 1 else number_text(number(run.config.get("seed")))
    return shown, len(seeds)


def _started(run: RunRecord) -> tuple[str, str | None]:
    return ("", None) if run.started is None else (f"{run.started:%Y-%m-%d %H:%M}", run.started.isoformat())


def _took(run: RunRecord) -> tuple[str, float | None]:
    """The duration of a run, such as 54 s, 9 min, 3 h 20 min or 4 days."""
    if run.seconds is None:
        return "", None
    minutes = round(run.seconds / 60)
    if minutes < 60:
        return f"{run.seconds:.0f} s" if minutes < 2 else f"{minutes} min", run.seconds
    hours = f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes / 1440:.1f} days"
    return hours, run.seconds


def _revision(run: RunRecord) -> tuple[str, str]:
    """Seven digits of the git revision, with `-dirty` if the source had been changed."""
    revision, *dirty = text(run.record.get("git_revision")).split("-", 1)
    return "-".join([revision[:7], *dirty]), revision


_COLUMNS = (
    _Column("Environment", lambda run: (run.env, run.env), is_number=False),
    _Column("Agent", lambda run: (run.agent_name, run.agent_name), is_number=False),
    _Column("Heads", lambda run: (number_text(run.num_heads), run.num_heads)),
    _Column("Seeds", _seeds),
    _Column("Trained for", _done),
    _Column("Late return", lambda run: (number_text(run.late_return), run.late_return)),
    _Column("Best evaluation", lambda run: (number_text(run.best_evaluation), run.best_evaluation)),
    _Column("Episodes to learn", _learned),
    _Column("Started (UTC)", _started),
    _Column("Took", _took),
    _Column("Revision", _revision, is_number=False),
)


def _summary(runs: Sequence[RunRecord]) -> str:
    columns = [column for column in _COLUMNS if any(column.cell(run)[0] for run in runs)]
    titles = [("Run", False), ("Status", False), *((column.title, column.is_number) for column in columns)]
    head = "".join(
        f'<th scope="col" aria-sort="none"{num(is_number)}><button type="button">{title}</button></th>'
        for title, is_number in titles
    )
    rows = []
    for index, run in enumerate(runs):
        cells = [
            f'<th scope="row"{_sort(run.name)}><a href="#run-{index}">{escape(run.name)}</a></th>',
            f"<td{_sort(text(run.record.get('status')))}>{status_html(run.record)}</td>",
        ]
        for column in columns:
            shown, key = column.cell(run)
            cells.append(f"<td{num(column.is_number)}{_sort(key)}>{escape(shown)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = f'<table id="summary"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'{scroll(table, "runs")}<p class="hint">{escape(_ABOUT_RUNS)}</p>'


def _sort(key: float | str | None) -> str:
    return "" if key is None or key == "" else f' data-sort="{escape(str(key))}"'


def _folded(index: int, run: RunRecord, html: str) -> str:
    is_open = " open" if index < _OPEN_RUNS else ""
    return (
        f'<details class="run" id="run-{index}" data-key="{escape(run.name)}"{is_open}><summary>'
        f"<strong>{escape(run.name)}</strong> <span>{escape(run.agent_name)} on {escape(run.env)}</span> "
        f"{status_html(run.record)}</summary>{html}</details>"
    )


def _experiments(experiments: Sequence[tuple[ExperimentRecord, str]]) -> str:
    links = "".join(f'<a href="#experiment-{i}">{escape(e.name)}</a>' for i, (e, _) in enumerate(experiments))
    articles = "".join(
        f'<article id="experiment-{i}"><h3>{escape(e.name)}</h3>{html}</article>'
        for i, (e, html) in enumerate(experiments)
    )
    return f'<nav aria-label="experiments">{links}</nav>{articles}'


def _experiment_html(experiment: ExperimentRecord) -> str:
    known = EXPERIMENTS.get(experiment.experiment)
    notes = list(experiment.notes)
    drawn = figure(experiment.path, experiment.experiment, notes)
    tables = markdown.to_html(experiment.summary)
    made = {name.replace("_", " "): experiment.record.get(name) for name in ("command", "preset", "git_revision")}
    return "".join(
        [
            "" if known is None else f'<p class="about">{escape(sentence(known.summary))}</p>',
            notes_html(notes),
            drawn,
            fold("Tables", tables, experiment.name) if tables else "",
            fold("How it was made", facts_html(made) + versions_html(experiment.record), experiment.name),
        ]
    )
