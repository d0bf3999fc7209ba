"""Figures of the posteriors on the first data set, and tables of scores over all data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bootdqn.analysis.stats import mean_interval
from bootdqn.experiments.engine.experiment import CsvRow
from bootdqn.experiments.regression.trials import CURVES, LOOK, MAIN, REGIONS
from bootdqn.plots.posterior import PosteriorPanel, save_posteriors

_TITLES = {
    "truth": "Generating distribution",
    "gp": "Gaussian process posterior",
    "bootstrap": "Bootstrapped networks",
    "dropout": "Dropout",
}
_HELD_OUT = {
    "coverage_50": "50% interval covers",
    "coverage_90": "90% interval covers",
    "log_likelihood": "log-likelihood",
    "crps": "CRPS",
}
_NOISES = {"true": "the true noise", "own": "the method's own noise"}


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw a figure per main method and one of all; return tables of scores, variants and claims."""
    by_trial: dict[str, list[CsvRow]] = {}
    for row in rows:
        by_trial.setdefault(row["trial"], []).append(row)
    main = {name: by_trial[name] for name in MAIN if name in by_trial}
    posteriors = {name: _posterior(name, trial) for name, trial in main.items()}
    for name, posterior in posteriors.items():
        save_posteriors(stem.with_name(f"{stem.name}-{name}"), "", [posterior])
    save_posteriors(stem, "Twenty points, and what may be between them", list(posteriors.values()))
    seeds = len({row["seed"] for row in rows})
    return "\n\n".join(
        [
            f"Mean of {seeds} data sets, its 95% interval, and the median. Std is that of the function; new "
            "points add the variance of noise.",
            _scores_table(main),
            "Every variant; forecasts with the true noise.",
            _variants_table(by_trial),
            "The same data sets, paired: what others have more than the bootstrap, and in how many they are "
            "better.",
            _pairs_table(by_trial),
            "The paper's claims.",
            _claims_table(by_trial),
        ]
    )


def _posterior(name: str, rows: Sequence[CsvRow]) -> PosteriorPanel:
    curve = [row for row in rows if row["kind"] == "curve"]
    samples = [f"sample_{i + 1}" for i in range(CURVES)]
    shown = name != "truth"
    return PosteriorPanel(
        title=_TITLES[name],
        x=_column(curve, "x"),
        mean=_column(curve, "y"),
        std=_column(curve, "std"),
        samples=[_column(curve, sample) for sample in samples] if shown else [],
        truth=_column(curve, "truth"),
        data=_points(rows, "data"),
        others=None if shown else _points(rows, "draw"),
    )


def _column(rows: Sequence[CsvRow], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _points(rows: Sequence[CsvRow], kind: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = [row for row in rows if row["kind"] == kind]
    return _column(chosen, "x"), _column(chosen, "y")


def _fits(rows: Sequence[CsvRow], column: str) -> np.ndarray:
    """Return a column of the rows of kind `fit`, one value per data set."""
    return _column([row for row in rows if row["kind"] == "fit"], column)


def _forecasts(rows: Sequence[CsvRow], region: str, noise: str, column: str) -> np.ndarray:
    """Return a score of held-out points, one value per data set."""
    chosen = [
        row for row in rows if row["kind"] == "held_out" and (row["region"], row["noise"]) == (region, noise)
    ]
    return _column(chosen, column)


def _scores_table(main: dict[str, list[CsvRow]]) -> str:
    lines = ["| | " + " | ".join(main) + " |", "|---|" + "---:|" * len(main)]
    measures = {
        "std in the gap": "std_gap",
        "std on the data": "std_data",
        f"error of the mean at x = {LOOK}": "look_error",
        "roughness of samples": "roughness",
    }
    for label, column in measures.items():
        lines.append(_line(label, [_fits(rows, column) for rows in main.values()]))
    for noise, of_noise in _NOISES.items():
        for region in REGIONS:
            where = "where data was" if region == "support" else "in the gap"
            for column, label in _HELD_OUT.items():
                values = [_forecasts(rows, region, noise, column) for rows in main.values()]
                lines.append(_line(f"{label}, {where}, {of_noise}", values))
    return "\n".join(lines)


def _variants_table(by_trial: dict[str, list[CsvRow]]) -> str:
    headings = ("std in the gap", "std on the data", "90% covers", "in the gap", "RMSE of the mean", "in the gap")
    lines = ["| method | " + " | ".join(headings) + " |", "|---|" + "---:|" * len(headings)]
    for name, rows in by_trial.items():
        if name != "truth":
            values = [_fits(rows, "std_gap"), _fits(rows, "std_data")]
            values += [
                _forecasts(rows, region, "true", column)
                for column in ("coverage_90", "rmse")
                for region in REGIONS
            ]
            lines.append(_line(name, values))
    return "\n".join(lines)


def _pairs_table(by_trial: dict[str, list[CsvRow]]) -> str:
    """Make a table of how other methods differ from the bootstrap on the same data sets."""
    headings = ("log-likelihood", "in the gap", "CRPS", "in the gap", "RMSE of the mean", "in the gap")
    lines = ["| method | " + " | ".join(headings) + " |", "|---|" + "---:|" * len(headings)]
    for name, rows in by_trial.items():
        if name not in ("truth", "bootstrap") and "bootstrap" in by_trial:
            cells = []
            for column in ("log_likelihood", "crps", "rmse"):
                for region in REGIONS:
                    ours, theirs = (_forecasts(r, region, "true", column) for r in (by_trial["bootstrap"], rows))
                    difference = theirs - ours
                    better = (difference if column == "log_likelihood" else -difference) > 0
                    mean, half_width = mean_interval(difference)
                    cells.append(f"{mean:+.2f} ± {half_width:.2f} ({better.sum()} better)")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _line(label: str, values: Sequence[np.ndarray]) -> str:
    return f"| {label} | " + " | ".join(_cell(v) for v in values) + " |"


def _cell(values: np.ndarray) -> str:
    mean, half_width = mean_interval(values)
    digits = 0 if abs(mean) >= 100 else 1 if abs(mean) >= 10 else 2
    if np.isnan(half_width):
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {half_width:.{digits}f} ({np.median(values):.{digits}f})"


def _claims_table(by_trial: dict[str, list[CsvRow]]) -> str:
    """Make a table of the paper's four claims and our results."""
    fits = {name: rows for name, rows in by_trial.items() if name in ("gp", "bootstrap", "dropout")}
    ratios = {name: _ratio(rows, "std") for name, rows in fits.items()}
    means = {name: _ratio(rows, "mean_std") for name, rows in fits.items()}
    outside = [
        f"{name} {_fits(rows, 'look_outside').sum():.0f} of {len(_fits(rows, 'look_outside'))}"
        for name, rows in fits.items()
    ]
    results = {
        "the bootstrap is uncertain where there is no data": "std in the gap over that on the data: "
        + _listed({name: _geometric(values) for name, values in ratios.items()})
        + "; by means over x in place of medians: "
        + _listed({name: _geometric(values) for name, values in means.items()}),
        f"dropout's mean is far outside the range of the data at x = {LOOK}": "outside in "
        + ", ".join(outside)
        + "; error "
        + _listed({name: _cell(_fits(rows, "look_error")) for name, rows in fits.items()}),
        "dropout's samples are spiky": "roughness, in multiples of the true function's: "
        + _listed({name: _cell(_fits(rows, "roughness")) for name, rows in fits.items()})
        + "; with units dropped anew at every point: "
        + _listed({n: _cell(_fits(rows, "roughness_by_point")) for n, rows in fits.items() if n == "dropout"}),
        "dropout is all but certain where there is data": "std on the data "
        + _listed({name: _cell(_fits(rows, "std_data")) for name, rows in fits.items()}),
    }
    lines = ["| claim | result |", "|---|---|"]
    return "\n".join(lines + [f"| {claim} | {result} |" for claim, result in results.items()])


def _ratio(rows: Sequence[CsvRow], prefix: str) -> np.ndarray:
    return _fits(rows, f"{prefix}_gap") / _fits(rows, f"{prefix}_data")


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "not yet known"


def _geometric(values: np.ndarray) -> str:
    """Format the geometric mean, its 95% interval, and the range."""
    mean, half_width = mean_interval(np.log(values))
    ends = np.exp([mean, mean - half_width, mean + half_width])
    return f"{ends[0]:.1f} ({ends[1]:.1f} to {ends[2]:.1f}; all from {values.min():.1f} to {values.max():.1f})"
