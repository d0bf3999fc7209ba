"""Committed results of Gymnasium environments."""

import json
from pathlib import Path

import numpy as np
import pytest

from bootdqn.core.config import GYM_AGENTS
from bootdqn.experiments.engine.runner import is_same

GYM_RESULTS = Path(__file__).parents[1] / "results" / "gymnasium"


@pytest.mark.parametrize(("name", "steps", "goal"), [("cartpole", 50_000, 475), ("acrobot", 100_000, -100)])
def test_committed_results_reach_their_goal_and_are_what_the_page_says(name, steps, goal):
    page = (GYM_RESULTS.parents[1] / "docs" / "gymnasium.md").read_text()
    for seed in range(3):
        run = GYM_RESULTS / f"{name}-seed{seed}"
        means = {}
        for model in ("best", "last"):
            returns = json.loads((run / f"evaluate-{model}.json").read_text())["returns"]["vote"]
            assert len(returns) == 100
            means[model] = np.mean(returns)
        assert means["best"] >= goal
        config = json.loads((run / "config.json").read_text())
        assert (config["steps"], config["seed"]) == (steps, seed)
        # The default configuration.
        assert is_same(GYM_AGENTS["boot"], config["agent"])
        assert f"| {config['env']} | {steps:,} | {seed} | {means['best']:.1f} | {means['last']:.1f} |" in page
        record = json.loads((run / "run.json").read_text())
        assert record["status"] == "finished"
        assert not record["git_revision"].endswith("-dirty")
        assert (run / "metrics.csv").stat().st_size > 1000
