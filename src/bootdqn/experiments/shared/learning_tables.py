"""Turns rows of times to learn into series, tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from bootdqn.analysis.stats import OPTIMAL_EPISODES, fit_exponential, fit_polynomial
from bootdqn.experiments.engine.experiment import CsvRow
from bootdqn.plots.style import AGENT_COLOURS, COLOURS
from bootdqn.plots.times import Series

_FLOOR = OPTIMAL_EPISODES - 1
"""The number of episodes that learning takes at least before the one that counts."""
Times = Mapping[float, Sequence[float | None]]
"""For every value of the varied quantity, the time to learn of each seed, or None if it did not learn."""


def number(text: str) -> float | None:
    """Read a cell of the CSV file as a number, or as None if it is empty."""
    return float(text) if text else None


def episode_limit(rows: Iterable[CsvRow]) -> int:
    """Return the largest number of episodes that a training could last."""
    return max(int(row["max_episodes"]) for row in rows)


def learned_at(row: CsvRow) -> float | None:
    """Return the paper's time to learn: the 100th optimal episode, or evaluation if the agent dithers."""
    return number(row["greedy_episodes_to_learn" if int(row["dithers"]) else "episodes_to_learn"])


def _consecutive_at(row: CsvRow) -> float | None:
    """Return the stricter time to learn: the end of 100 consecutive optimal evaluations."""
    return number(row["consecutive_greedy_episodes"])


Definition = Callable[[CsvRow], float | None]
"""A meaning of "learned": a function from a row to the time to learn, or to None."""
DEFINITIONS: dict[str, Definition] = {
    "100th optimal episode": learned_at,
    "100 optimal evaluations in a row": _consecutive_at,
}
"""Both meanings of "learned", by their headings."""


def definition_heading(name: str) -> str:
    """Return the sentence above a table of times by one of `DEFINITIONS`."""
    return f"Learned: {name}. Median of seeds (seeds that learned, where not all did)."


def _times_by(rows: Iterable[CsvRow], value: Callable[[CsvRow], float], when: Definition) -> Times:
    """Group times to learn by the value of the varied quantity, in ascending order."""
    times: dict[float, list[float | None]] = {}
    for row in rows:
        times.setdefault(value(row), []).append(when(row))
    return dict(sorted(times.items()))


def agent_series(rows: Sequence[CsvRow], value: Callable[[CsvRow], float], when: Definition) -> list[Series]:
    """Make one series per agent, in the order in which agents appear."""
    names = dict.fromkeys(row["agent"] for row in rows)
    return [
        Series(name, AGENT_COLOURS[name], _times_by([r for r in rows if r["agent"] == name], value, when))
        for name in names
    ]


def labelled_series(
    groups: Mapping[str, Sequence[CsvRow]], value: Callable[[CsvRow], float], when: Definition
) -> list[Series]:
    """Make one series per group of rows, under its label."""
    return [
        Series(label, colour, _times_by(rows, value, when))
        for (label, rows), colour in zip(groups.items(), COLOURS, strict=False)
    ]


def times_table(heading: str, columns: Sequence[Series]) -> str:
    """Make a Markdown table of medians and counts of seeds that learned: a row per value, a column per series."""
    values = sorted({value for series in columns for value in series.times})
    lines = [f"| {heading} | " + " | ".join(s.label for s in columns) + " |", "|---:|" + "---:|" * len(columns)]
    lines += [
        f"| {value:g} | " + " | ".join(_cell(s.times.get(value)) for s in columns) + " |" for value in values
    ]
    return "\n".join(lines)


def largest_solved(series: Series) -> str:
    """Name the largest value up to which all seeds learned, and the largest of all that all seeds learned."""
    solved = [value for value, times in series.times.items() if None not in times]
    unbroken = [value for value in solved if all(v in solved for v in series.times if v <= value)]
    if not solved:
        return "none"
    text = f"{unbroken[-1]:g}" if unbroken else "none"
    return text if unbroken and unbroken[-1] == solved[-1] else f"{text} without a gap, {solved[-1]:g} with"


def describe_scaling(times: Times, floor: int = _FLOOR) -> str:
    """Fit a power and an exponential law to the episodes that learning took beyond the least possible.

    Sizes from the first one that a seed did not learn are left out, because the seeds that were quick enough to
    learn there are no fair sample.

    Args:
        times: the times to learn, by size.
        floor: the least possible time, which is what the paper's definition has.
    """
    failed = [size for size, seeds in times.items() if None in seeds]
    points = [
        (size, time - floor)
        for size, seeds in times.items()
        for time in seeds
        if time is not None and size < min(failed, default=np.inf)
    ]
    sizes = sorted({size for size, _ in points})
    if len(sizes) < 3:
        return "learned by every seed at too few sizes to fit a law of growth."
    upper = [point for point in points if point[0] >= sizes[len(sizes) // 2]]
    parts = [f"episodes{f' beyond {floor}' if floor else ''} for {_laws(points)}"]
    if len({size for size, _ in upper}) >= 3:
        parts.append(f"for the upper half, {_laws(upper)}")
    return "; ".join(parts) + "."


def _laws(points: Sequence[tuple[float, float]]) -> str:
    """Describe the fits of both laws to sizes and times, and which one fits better."""
    sizes, episodes = np.transpose(points)
    degree, base = fit_polynomial(sizes, episodes), fit_exponential(sizes, episodes)
    # Both laws have two parameters, so this is also the difference of Akaike's criterion.
    gain = 2 * len(points) * np.log(max(degree.residual, 1e-9) / max(base.residual, 1e-9))
    verdict = f"the {'exponential' if gain > 0 else 'power'} fits better by {abs(gain):.1f} in AIC"
    return (
        f"N = {sizes.min():g} to {sizes.max():g} grow as N^b with b = {degree.estimate:.2f} (95% interval "
        f"{degree.low:.2f} to {degree.high:.2f}) or as c^N with c = {base.estimate:.4f} ({base.low:.4f} to "
        f"{base.high:.4f}), and {verdict}"
    )


def _cell(times: Sequence[float | None] | None) -> str:
    if times is None:
        return ""
    learned = [t for t in times if t is not None]
    median = np.median([np.inf if t is None else t for t in times])
    text = f"{median:.0f}" if np.isfinite(median) else "-"
    return text if len(learned) == len(times) else f"{text} ({len(learned)}/{len(times)})"
