"""The sweep over methods, and the run of one method on several data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bootdqn.analysis.stats import gaussian_covers, gaussian_crps, gaussian_log_likelihood
from bootdqn.experiments.engine.experiment import Context, Cost, Preset, ResultRow, Trial
from bootdqn.experiments.regression.methods import (
    Bootstrap,
    Dropout,
    FunctionPosterior,
    GaussianProcess,
    Method,
    Truth,
)
from bootdqn.regression.data import GAP, draw_inputs, draw_outputs, true_mean, true_std
from bootdqn.regression.estimators import Floats

REGIONS = ("support", "gap")
_NOISES = ("true", "own")
"""The noise that is added to the function: the true one, or the one that the method estimates."""
CURVES = 8
"""The number of sampled functions that are kept for the figure."""
LOOK = 0.75
"""The input at which the paper looks at the mean."""
_GRID = np.linspace(-0.1, 1.1, 121)
_FINE = np.linspace(0, 1, 201)
_SAMPLES = 50
_HELD_OUT = 400
_DRAWS = 300
_COLUMNS = (
    *("kind", "seed", "std_gap", "std_data", "mean_std_gap", "mean_std_data", "look_error", "look_outside"),
    *(
        "roughness",
        "roughness_by_point",
        "region",
        "noise",
        "coverage_50",
        "coverage_90",
        "log_likelihood",
        "crps",
    ),
    *("rmse", "x", "y", "std", "truth", *(f"sample_{i + 1}" for i in range(CURVES))),
)
MAIN: dict[str, Method] = {
    "truth": Truth(),
    "gp": GaussianProcess(),
    "bootstrap": Bootstrap(),
    "dropout": Dropout(),
}
"""The methods that the figures show."""
_VARIANTS: dict[str, Method] = {
    "bootstrap-poisson": Bootstrap(weights="poisson"),
    "bootstrap-exponential": Bootstrap(weights="exponential"),
    "bootstrap-ones": Bootstrap(weights="ones"),
    "bootstrap-trunk-1": Bootstrap(trunk_hidden=(50,), hidden=(50,)),
    "bootstrap-trunk-2": Bootstrap(trunk_hidden=(50, 50), hidden=()),
    "dropout-0.05": Dropout(rate=0.05),
    "dropout-0.2": Dropout(rate=0.2),
    "dropout-no-decay": Dropout(weight_decay=0.0),
}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 5, "paper": 20}


@dataclass(frozen=True, kw_only=True)
class RegressionConfig:
    """The configuration of one method on several data sets."""

    method: Method
    num_seeds: int
    """The number of data sets, whose seeds count up from 0."""
    curves: bool
    """Whether to keep the curves of the first data set for the figures."""


def sweep(preset: Preset) -> list[Trial]:
    """Make a trial per method; the smoke preset has the main methods only, with short training."""
    methods = MAIN if preset == "smoke" else MAIN | _VARIANTS
    return [
        Trial(
            name,
            RegressionConfig(
                method=_short(method) if preset == "smoke" else method,
                num_seeds=_SEEDS[preset],
                curves=name in MAIN,
            ),
        )
        for name, method in methods.items()
    ]


def _short(method: Method) -> Method:
    return replace(method, num_steps=50) if isinstance(method, Bootstrap | Dropout) else method


def run(config: RegressionConfig, context: Context) -> list[ResultRow] | None:
    """Fit every data set, and measure how uncertain the function is where, and how good its forecasts are.

    Columns (empty if they do not apply):
        kind: the kind of the row: `fit`, one per data set; `held_out`, one per data set, region and noise; and for
            the figures of the first data set `curve`, one per point of a grid, `data`, one per point, and for the
            truth `draw`, further points of the same distribution.
        seed: the seed of the data set.
        std_gap, std_data: the median standard deviation of the function in the gap, and at the inputs of the data.
        mean_std_gap, mean_std_data: the mean in place of the median.
        look_error: the absolute error of the mean at x = 0.75.
        look_outside: whether the mean there is outside the range of the data.
        roughness: the integral of the absolute second derivative of a sampled function over (0, 1), as a multiple
            of that of the true mean; the mean of 50 samples.
        roughness_by_point: the same with another sample at every one of 201 points.
        region: the region of the 400 held-out points: where there was data, or the gap.
        noise: the noise that is added to the variance of the function, the true one or the method's own.
        coverage_50, coverage_90: the share of points in the central intervals of a normal forecast.
        log_likelihood, crps: means over points.
        rmse: the root mean squared error of the mean, against the true mean.
        x, y: a point of a curve, or of data.
        std, truth: the standard deviation at a point of a curve, and the true mean there.
        sample_1, ...: sampled functions.
    """
    rows: list[ResultRow] = []
    for seed in range(config.num_seeds):
        if context.should_stop():
            return None
        rng, held_out_rng, mixing_rng = np.random.default_rng(seed).spawn(3)  # the same for every method
        x = draw_inputs(rng)
        y = draw_outputs(rng, x)
        posterior = config.method.fit(x, y, seed)
        rows.append({"kind": "fit", "seed": seed, **_fit_scores(posterior, x, y, mixing_rng)})
        rows += [
            {"kind": "held_out", "seed": seed, **scores} for scores in _held_out_scores(posterior, held_out_rng)
        ]
        if seed == 0 and config.curves:
            rows += [*_curve_rows(posterior), *_point_rows("data", x, y)]
            if isinstance(config.method, Truth):
                others = rng.uniform(_GRID[0], _GRID[-1], _DRAWS)
                rows += _point_rows("draw", others, draw_outputs(rng, others))
        context.report((seed + 1) / config.num_seeds)
    return [{column: _rounded(row.get(column)) for column in _COLUMNS} for row in rows]


def describe(config: RegressionConfig) -> ResultRow:
    """Return the name of the method's class."""
    return {"method": type(config.method).__name__}


def cost(config: RegressionConfig) -> Cost:
    """Estimate the cost of a trial."""
    each = {Bootstrap: 0.8, Dropout: 0.3}.get(type(config.method), 0.1)
    seconds = 3.0 + config.num_seeds * each
    return Cost(core_seconds=seconds, least_seconds=seconds, bytes=10**8)


def _fit_scores(posterior: FunctionPosterior, x: Floats, y: Floats, rng: np.random.Generator) -> ResultRow:
    """Measure how uncertain the function is, how wrong and how rough."""
    _, gap = posterior.moments(np.linspace(*GAP, 41))
    _, data = posterior.moments(x)
    look = posterior.moments(np.array([LOOK]))[0][0]
    samples = posterior.sample(_FINE, _SAMPLES)
    mixed = samples[rng.integers(len(samples), size=samples.shape), np.arange(len(_FINE))]
    return {
        "std_gap": np.median(gap),
        "std_data": np.median(data),
        "mean_std_gap": gap.mean(),
        "mean_std_data": data.mean(),
        "look_error": abs(look - true_mean(LOOK)),
        "look_outside": int(not y.min() <= look <= y.max()),
        "roughness": _roughness(samples),
        "roughness_by_point": _roughness(mixed),
    }


def _roughness(samples: Floats) -> float:
    """Return the variation of the slope of curves [n, points], as a multiple of that of the true mean."""

    def variation(curves: Floats) -> Floats:
        return np.abs(np.diff(curves, 2, axis=-1)).sum(axis=-1)

    return float(np.mean(variation(samples) / variation(true_mean(_FINE))))


def _held_out_scores(posterior: FunctionPosterior, rng: np.random.Generator) -> list[ResultRow]:
    """Score forecasts of new data, in both regions and with either noise."""
    inputs = {"support": draw_inputs(rng, _HELD_OUT), "gap": rng.uniform(*GAP, _HELD_OUT)}
    rows: list[ResultRow] = []
    for region in REGIONS:
        x = inputs[region]
        y = draw_outputs(rng, x)
        mean, function_std = posterior.moments(x)
        for noise, noise_std in zip(_NOISES, (true_std(x), posterior.noise_std(x)), strict=True):
            forecast = y, mean, np.hypot(function_std, noise_std)
            rows.append(
                {
                    "region": region,
                    "noise": noise,
                    "coverage_50": gaussian_covers(*forecast, 0.5).mean(),
                    "coverage_90": gaussian_covers(*forecast, 0.9).mean(),
                    "log_likelihood": gaussian_log_likelihood(*forecast).mean(),
                    "crps": gaussian_crps(*forecast).mean(),
                    "rmse": np.sqrt(np.mean(np.square(mean - true_mean(x)))),
                }
            )
    return rows


def _curve_rows(posterior: FunctionPosterior) -> list[ResultRow]:
    """Return the mean, the standard deviation and some sampled functions on a grid."""
    mean, std = posterior.moments(_GRID)
    samples = posterior.sample(_GRID, CURVES)
    names = [f"sample_{i + 1}" for i in range(CURVES)]
    return [
        {"kind": "curve", "seed": 0, "x": x, "y": m, "std": s, "truth": t, **dict(zip(names, values, strict=True))}
        for x, m, s, t, values in zip(_GRID, mean, std, true_mean(_GRID), samples.T, strict=True)
    ]


def _point_rows(kind: str, x: Floats, y: Floats) -> list[ResultRow]:
    return [{"kind": kind, "seed": 0, "x": px, "y": py} for px, py in zip(x, y, strict=True)]


def _rounded(value: object) -> object:
    """Round to five significant digits, which are enough for tables and figures."""
    return float(f"{value:.5g}") if isinstance(value, float | np.floating) else value
