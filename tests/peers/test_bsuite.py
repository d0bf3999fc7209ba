"""Against bsuite itself; needs the extra `peers` (`make test-peers`).

`python tests/peers/test_bsuite.py` records anew what `test_deep_sea.py` replays without the package.
"""

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import pytest

from bootdqn.analysis.stats import BSUITE_EPISODES, BSUITE_LOGGED, deep_sea_score, deep_sea_solved
from bootdqn.bench import chain as bench
from bootdqn.envs.deep_sea import DeepSea
from helpers import assert_deep_sea_repeats

pytestmark = pytest.mark.peers


class Draws:
    """A random generator that remembers the last draw of either kind."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.clear()

    def clear(self):
        self.uniform, self.normal = 0.5, 0.0

    def rand(self):
        self.uniform = self.rng.rand()
        return self.uniform

    def randn(self):
        self.normal = self.rng.randn()
        return self.normal


def record_deep_sea(size, *, stochastic, episodes, mapping_seed=42, seed=0):
    """What bsuite's DeepSea does under random actions and, every other episode, under mostly right ones."""
    from bsuite.environments import deep_sea  # pyright: ignore[reportMissingImports]

    env = deep_sea.DeepSea(size, deterministic=not stochastic, mapping_seed=mapping_seed)
    env._rng = draws = Draws(seed)
    rng = np.random.default_rng(seed)
    recorded = []
    for index in range(episodes):
        time_step, bad_before = env.reset(), env.bsuite_info()["total_bad_episodes"]
        episode = {name: [] for name in ("actions", "wind", "noise", "observations", "rewards")}
        while not time_step.last():
            goes_right = rng.random() < (0.5, 1 - 0.5 / size)[index % 2]
            right = int(env._action_mapping[env._row, env._column])
            draws.clear()
            time_step = env.step(right if goes_right else 1 - right)
            assert time_step.discount == (0.0 if time_step.last() else 1.0)
            cells = time_step.observation.ravel()
            episode["actions"].append(right if goes_right else 1 - right)
            episode["wind"].append(draws.uniform)
            episode["noise"].append(draws.normal)
            episode["observations"].append(int(cells.argmax()) if cells.any() else size**2)
            episode["rewards"].append(time_step.reward)
        recorded.append({**episode, "bad": env.bsuite_info()["total_bad_episodes"] > bad_before})
    return {"size": size, "stochastic": stochastic, "mapping_seed": mapping_seed, "episodes": recorded}


def write_recording(path):
    """Record what the default tests replay."""
    traces = [record_deep_sea(size, stochastic=False, episodes=8) for size in (2, 5, 10, 20)]
    traces += [record_deep_sea(size, stochastic=True, episodes=16) for size in (3, 10)]
    by = "write_recording in tests/peers/test_bsuite.py"
    path.write_text(json.dumps({"bsuite": version("bsuite"), "by": by, "traces": traces}) + "\n")


@pytest.mark.parametrize("mapping_seed", [42, 7])
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("size", [2, 3, 10, 25, 50])
def test_deep_sea_side_by_side(size, stochastic, mapping_seed):
    trace = record_deep_sea(
        size, stochastic=stochastic, episodes=5000 // size, mapping_seed=mapping_seed, seed=size
    )
    assert_deep_sea_repeats(trace)


@pytest.mark.parametrize("stochastic", [False, True])
def test_solved_return_is_bsuites(stochastic):
    from bsuite.environments import deep_sea  # pyright: ignore[reportMissingImports]

    for size in (2, 10, 50):
        theirs = deep_sea.DeepSea(size, deterministic=not stochastic)._optimal_return
        assert DeepSea(size=size, stochastic=stochastic).solved_return == pytest.approx(theirs)


def test_same_episodes_are_logged():
    from bsuite.utils.wrappers import _logarithmic_logging  # pyright: ignore[reportMissingImports]

    theirs = [episode for episode in range(1, BSUITE_EPISODES + 1) if _logarithmic_logging(episode)]
    assert BSUITE_LOGGED[BSUITE_LOGGED <= BSUITE_EPISODES].tolist() == theirs


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # bsuite's calls of pandas
@pytest.mark.parametrize("stochastic", [False, True])
def test_scores_are_bsuites(stochastic, monkeypatch):
    import pandas as pd  # pyright: ignore[reportMissingImports]
    from bsuite.experiments.deep_sea import analysis as deterministic  # pyright: ignore[reportMissingImports]
    from bsuite.experiments.deep_sea_stochastic import analysis as windy  # pyright: ignore[reportMissingImports]

    # bsuite calls it, and pandas 2 dropped it.
    monkeypatch.setattr(pd.Series, "append", lambda a, b: pd.concat([a, b]), raising=False)
    analysis = windy if stochastic else deterministic
    rng = np.random.default_rng(int(stochastic))
    outcomes = set()
    for _ in range(30):
        runs = {}
        for size in (4, 6, 7, 8, 9, 20):
            # Bad at first, then ever better, as learning goes.
            episodes = int(rng.integers(100, 12_000))
            chance = np.clip(np.linspace(1.0, rng.uniform(-1, 1.1), episodes), 0, 1)
            chance[: int(10 ** rng.uniform(0, 3))] = 1
            runs[size] = rng.random(episodes) < chance
        rows = [
            {"size": size, "episode": e, "total_bad_episodes": int(bad[:e].sum())}
            for size, bad in runs.items()
            for e in BSUITE_LOGGED
            if e <= len(bad)
        ]
        frame = pd.DataFrame(rows)
        solutions = {size: deep_sea_solved(bad, stochastic=stochastic) for size, bad in runs.items()}
        found = analysis.find_solution(frame)
        theirs = {row["size"]: (bool(row["solved"]), row["episode"]) for row in found.to_dict("records")}
        assert solutions == theirs
        assert deep_sea_score(solutions) == pytest.approx(analysis.score(frame))
        outcomes.add(deep_sea_score(solutions))
    assert len(outcomes) > 2


@pytest.mark.filterwarnings("ignore:jax.core:DeprecationWarning")  # haiku's imports
def test_bench_trains_bsuites_agent(monkeypatch):
    from bsuite.baselines.jax.boot_dqn import BootstrappedDqn  # pyright: ignore[reportMissingImports]

    made = []
    initialise = BootstrappedDqn.__init__

    def remember(self, **options):
        initialise(self, **options)
        made.append(self)

    monkeypatch.setattr(BootstrappedDqn, "__init__", remember)
    config = replace(bench.PEERS_CONFIG, num_heads=3, hidden=(6,), batch_size=4, learning_start_steps=8)
    play = bench._bsuite_player(DeepSea(size=5), config)
    play(4)
    (agent,) = made
    # 20 steps, and an update at each from the eighth on; every head its own network of 25 inputs and 2 outputs.
    assert [member.step for member in agent._ensemble] == [13] * 3
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(agent._ensemble[0].params))
    assert shapes == [(2,), (6,), (6, 2), (25, 6)]


if __name__ == "__main__":
    write_recording(Path(__file__).parents[1] / "data" / "bsuite_deep_sea.json")
