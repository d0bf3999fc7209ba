"""From the rows of a learning sweep to series, tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from bootdqn.experiments.runner import CsvRow
from bootdqn.figures import AGENT_COLOURS, COLOURS, Series
from bootdqn.stats import OPTIMAL_EPISODES, fit_exponential, fit_polynomial

_FLOOR = OPTIMAL_EPISODES - 1
Times = Mapping[float, Sequence[float | None]]
"""By the value that is varied, the episodes that every seed took; None where it did not learn."""


def number(text: str) -> float | None:
    """A cell of the CSV; None where it is empty."""
    return float(text) if text else None


def episode_limit(rows: Iterable[CsvRow]) -> int:
    """How many episodes a training could last."""
    return max(int(row["max_episodes"]) for row in rows)


def learned_at(row: CsvRow) -> float | None:
    """The paper's time to learn: the 100th optimal episode, or evaluation where the agent dithers."""
    return number(row["greedy_episodes_to_learn" if int(row["dithers"]) else "episodes_to_learn"])


def consecutive_at(row: CsvRow) -> float | None:
    """The stricter time to learn: the end of 100 optimal evaluations in a row."""
    return number(row["consecutive_greedy_episodes"])


Definition = Callable[[CsvRow], float | None]
DEFINITIONS: dict[str, Definition] = {
    "100th optimal episode": learned_at,
    "100 optimal evaluations in a row": consecutive_at,
}
"""Both meanings of "learned"."""


def definition_heading(name: str) -> str:
    """What stands above a table of times by one of `DEFINITIONS`."""
    return f"Learned: {name}. Median of seeds (seeds that learned, where not all did)."


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


def labelled_series(
    groups: Mapping[str, Sequence[CsvRow]], value: Callable[[CsvRow], float], when: Definition
) -> list[Series]:
    """One series a group of rows, under its label."""
    return [
        Series(label, colour, times_by(rows, value, when))
        for (label, rows), colour in zip(groups.items(), COLOURS, strict=False)
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
    """Both laws of growth, fitted to the episodes that learning cost beyond the 99 it takes at least.

    Sizes from the first one that a seed did not learn are left out: those quick enough to learn there are no fair
    sample.
    """
    failed = [size for size, seeds in times.items() if None in seeds]
    points = [
        (size, time - _FLOOR)
        for size, seeds in times.items()
        for time in seeds
        if time is not None and size < min(failed, default=np.inf)
    ]
    sizes = sorted({size for size, _ in points})
    if len(sizes) < 3:
        return "learned by every seed at too few sizes to fit a law of growth."
    upper = [point for point in points if point[0] >= sizes[len(sizes) // 2]]
    parts = [f"episodes beyond {_FLOOR} for {_laws(points)}"]
    if len({size for size, _ in upper}) >= 3:
        parts.append(f"for the upper half, {_laws(upper)}")
    return "; ".join(parts) + "."


def _laws(points: Sequence[tuple[float, float]]) -> str:
    """The two fits to sizes and times, and which is the more likely."""
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
