"""From the rows of a learning sweep to series, tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from bootdqn.agent import AGENTS
from bootdqn.figures import AGENT_COLOURS, Series
from bootdqn.stats import OPTIMAL_EPISODES, fit_exponential, fit_polynomial

CsvRow = Mapping[str, str]
Times = Mapping[float, Sequence[float | None]]
"""By the value that is varied, the episodes that every seed took; None where it did not learn."""


def learned_at(row: CsvRow) -> float | None:
    """The paper's time to learn: the 100th optimal episode, or evaluation where the agent dithers."""
    dithers = AGENTS[row["agent"]].dithers
    return _number(row["greedy_episodes_to_learn" if dithers else "episodes_to_learn"])


def consecutive_at(row: CsvRow) -> float | None:
    """The stricter time to learn: the end of 100 optimal evaluations in a row."""
    return _number(row["consecutive_greedy_episodes"])


Definition = Callable[[CsvRow], float | None]
DEFINITIONS: dict[str, Definition] = {
    "100th optimal episode": learned_at,
    "100 optimal evaluations in a row": consecutive_at,
}
"""Both meanings of "learned"."""


def times_by(rows: Iterable[CsvRow], value: Callable[[CsvRow], float], when: Definition) -> Times:
    """Times to learn, grouped by a value that is varied, in ascending order."""
    times: dict[float, list[float | None]] = {}
    for row in rows:
        times.setdefault(value(row), []).append(when(row))
    return dict(sorted(times.items()))


def agent_series(rows: Sequence[CsvRow], value: Callable[[CsvRow], float], when: Definition) -> list[Series]:
    """One series an agent, in the order they appear."""
    names = dict.fromkeys(row["agent"] for row in rows)
    return [
        Series(name, AGENT_COLOURS[name], times_by([r for r in rows if r["agent"] == name], value, when))
        for name in names
    ]


def times_table(heading: str, columns: Sequence[Series]) -> str:
    """A Markdown table: a row a value, a column a series, medians and how many seeds learned."""
    values = sorted({value for series in columns for value in series.times})
    lines = [f"| {heading} | " + " | ".join(s.label for s in columns) + " |", "|---:|" + "---:|" * len(columns)]
    lines += [
        f"| {value:g} | " + " | ".join(_cell(s.times.get(value)) for s in columns) + " |" for value in values
    ]
    return "\n".join(lines)


def largest_solved(series: Series) -> str:
    """The largest value that all seeds learned, and up to which nothing smaller failed."""
    solved = [value for value, times in series.times.items() if None not in times]
    unbroken = [value for value in solved if all(v in solved for v in series.times if v <= value)]
    if not solved:
        return "none"
    text = f"{unbroken[-1]:g}" if unbroken else "none"
    return text if unbroken and unbroken[-1] == solved[-1] else f"{text} without a gap, {solved[-1]:g} with"


def describe_scaling(times: Times) -> str:
    """Both laws of growth, fitted to the episodes that learning cost beyond the 99 it takes at least."""
    floor = OPTIMAL_EPISODES - 1
    points = [(size, time - floor) for size, seeds in times.items() for time in seeds if time is not None]
    failed = sum(seeds.count(None) for seeds in times.values())
    if len({size for size, _ in points}) < 3:
        return f"{len(points)} seeds learned, at too few sizes to fit a law of growth."
    sizes, episodes = np.transpose(points)
    degree, base = fit_polynomial(sizes, episodes), fit_exponential(sizes, episodes)
    better = "polynomial" if degree.residual < base.residual else "exponential"
    return (
        f"Fitted to the {len(points)} seeds that learned ({failed} did not): episodes beyond {floor} grow as N^b "
        "with "
        f"b = {degree.estimate:.2f} (95% interval {degree.low:.2f} to {degree.high:.2f}), or as c^N with "
        f"c = {base.estimate:.4f} ({base.low:.4f} to {base.high:.4f}); the {better} law fits better "
        f"(residual of log episodes {degree.residual:.3f} and {base.residual:.3f})."
    )


def _cell(times: Sequence[float | None] | None) -> str:
    if times is None:
        return ""
    learned = [t for t in times if t is not None]
    median = np.median([np.inf if t is None else t for t in times])
    text = f"{median:.0f}" if np.isfinite(median) else "-"
    return text if len(learned) == len(times) else f"{text} ({len(learned)}/{len(times)})"


def _number(text: str) -> float | None:
    return float(text) if text else None
