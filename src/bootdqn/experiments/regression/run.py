"""One method on several data sets: how uncertain it is where, and how good its forecasts are."""

from __future__ import annotations

import numpy as np

from bootdqn.experiments.regression.methods import Bootstrap, Dropout, Floats, Posterior, Truth
from bootdqn.experiments.regression.sweep import RegressionConfig
from bootdqn.experiments.runner import Context, Cost, Row
from bootdqn.regression.data import GAP, draw_inputs, draw_outputs, true_mean, true_std
from bootdqn.stats import gaussian_covers, gaussian_crps, gaussian_log_likelihood

REGIONS = ("support", "gap")
NOISES = ("true", "own")
"""What is added to the variance of the function: the true variance of noise, or what the method estimates."""
CURVES = 8
"""Sampled functions that are kept for the figure."""
LOOK = 0.75
"""Where the paper looks at the mean."""
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


def run(config: RegressionConfig, context: Context) -> list[Row] | None:
    """Fit every data set.

    Columns, empty where they do not apply:
        kind: of the row: `fit`, one a data set; `held_out`, one a data set, region and noise; for the figures, of
            the first data set, `curve`, one a point of a grid, `data`, and with the truth `draw`, other such data.
        seed: of the data set.
        std_gap, std_data: median standard deviation of the function in the gap, and at the data's inputs.
        mean_std_gap, mean_std_data: the mean in place of the median.
        look_error: absolute error of the mean at x = 0.75.
        look_outside: whether the mean there is outside the range of the data.
        roughness: integral of |second derivative| of a sampled function over (0, 1), mean of 50 samples, as a
            multiple of that of the true mean.
        roughness_by_point: the same with another sample at every one of 201 points.
        region: of held-out data, 400 points: where there was data, or the gap.
        noise: whose is added to the function's variance.
        coverage_50, coverage_90: share of points in the central intervals of a normal forecast.
        log_likelihood, crps: mean over points.
        rmse: root of the mean squared error of the mean, against the true mean.
        x, y: a point of a curve, or of data.
        std, truth: of a curve, its standard deviation, and the true mean.
        sample_1, ...: sampled functions.
    """
    rows: list[Row] = []
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


def describe(config: RegressionConfig) -> Row:
    """Which method."""
    return {"method": type(config.method).__name__}


def cost(config: RegressionConfig) -> Cost:
    """What a trial takes."""
    each = {Bootstrap: 0.8, Dropout: 0.3}.get(type(config.method), 0.1)
    seconds = 3.0 + config.num_seeds * each
    return Cost(core_seconds=seconds, least_seconds=seconds, bytes=10**8)


def _fit_scores(posterior: Posterior, x: Floats, y: Floats, rng: np.random.Generator) -> Row:
    """How uncertain the function is, how wrong and how rough."""
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
    """Variation of the slope of curves [n, points], as a multiple of the true mean's."""

    def variation(curves: Floats) -> Floats:
        return np.abs(np.diff(curves, 2, axis=-1)).sum(axis=-1)

    return float(np.mean(variation(samples) / variation(true_mean(_FINE))))


def _held_out_scores(posterior: Posterior, rng: np.random.Generator) -> list[Row]:
    """Forecasts of new data, in both regions and with either noise."""
    inputs = {"support": draw_inputs(rng, _HELD_OUT), "gap": rng.uniform(*GAP, _HELD_OUT)}
    rows: list[Row] = []
    for region in REGIONS:
        x = inputs[region]
        y = draw_outputs(rng, x)
        mean, function_std = posterior.moments(x)
        for noise, noise_std in zip(NOISES, (true_std(x), posterior.noise_std(x)), strict=True):
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


def _curve_rows(posterior: Posterior) -> list[Row]:
    """Mean, standard deviation and some sampled functions on a grid."""
    mean, std = posterior.moments(_GRID)
    samples = posterior.sample(_GRID, CURVES)
    names = [f"sample_{i + 1}" for i in range(CURVES)]
    return [
        {"kind": "curve", "seed": 0, "x": x, "y": m, "std": s, "truth": t, **dict(zip(names, values, strict=True))}
        for x, m, s, t, values in zip(_GRID, mean, std, true_mean(_GRID), samples.T, strict=True)
    ]


def _point_rows(kind: str, x: Floats, y: Floats) -> list[Row]:
    return [{"kind": kind, "seed": 0, "x": px, "y": py} for px, py in zip(x, y, strict=True)]


def _rounded(value: object) -> object:
    """Five significant digits are enough for tables and figures."""
    return float(f"{value:.5g}") if isinstance(value, float | np.floating) else value
