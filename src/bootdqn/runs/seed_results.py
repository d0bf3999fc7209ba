"""Results of a run over several seeds, on environments whose states and best returns are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from bootdqn.analysis.head_report import EXPLORATION_COLUMNS, Trained, survey_heads
from bootdqn.analysis.stats import episodes_to_learn
from bootdqn.envs.registry import make_env
from bootdqn.errors import UserError, require
from bootdqn.loops.compiled import EpisodeMetrics, Exploration, TrainState, make_compiled_loop
from bootdqn.loops.seeds import SeedLoop
from bootdqn.loops.tabular import TabularMetrics, TabularTrainState, make_tabular_loop
from bootdqn.runs.config import RunConfig
from bootdqn.runs.directory import csv_text, write_atomically, write_json
from bootdqn.runs.model_file import model_header, save_model
from bootdqn.types import Agent, Belief, Env, Params

CompiledLoop = SeedLoop[TrainState, EpisodeMetrics]
"""The loop of a deep agent."""
TabularLoop = SeedLoop[TabularTrainState, TabularMetrics]
"""The loop of a tabular baseline."""


def make_seed_loop(config: RunConfig) -> SeedLoop[Any, Any]:
    """Make the loop of a run over several seeds, for those that need no run directory."""
    env, common = make_env(str(config.env)), {"seeds": config.seeds, "episodes": config.episodes}
    if config.loop == "tabular":
        return make_tabular_loop(env, config.tabular, **common)
    return make_compiled_loop(env, config.deep, **common)


@dataclass(frozen=True)
class TrainResult:
    """What a run over several seeds left in memory."""

    config: RunConfig
    """What the run did."""
    env: Env
    """The environment."""
    agent: Agent | None
    """The agent's functions; None for a tabular baseline."""
    metrics: dict[int, EpisodeMetrics] | dict[int, TabularMetrics]
    """What episodes reported, per seed; every field [episodes]."""
    params: dict[int, Params]
    """Online parameters per seed; none for a tabular baseline."""
    interrupted: bool
    """Whether the run was stopped before its last episode."""
    path: Path | None
    """The run directory."""
    exploration: dict[int, Exploration]
    """Where training has been, per seed; none for a tabular baseline."""

    def optimal(self, *, greedy: bool | None = None) -> dict[int, np.ndarray]:
        """Whether each episode was optimal, per seed; for tabular baselines, whether its policy was.

        Args:
            greedy: count the evaluations by vote, without random actions, in place of the training episodes. By
                default only where the agent dithers, which is not judged by that (paper, appendix C).
        """
        greedy = self.config.dithers if greedy is None else greedy
        return {seed: np.asarray(m.greedy_optimal if greedy else m.optimal) for seed, m in self.metrics.items()}

    def episodes_to_learn(self, *, greedy: bool | None = None) -> dict[int, int | None]:
        """The number of the 100th optimal episode, per seed; None where there were fewer.

        Args:
            greedy: which episodes count, as for `optimal`.
        """
        return {seed: episodes_to_learn(flags) for seed, flags in self.optimal(greedy=greedy).items()}

    def regret(self) -> dict[int, np.ndarray]:
        """What the actions of each episode lost in expectation, per seed."""
        return {seed: np.asarray(m.regret) for seed, m in self.metrics.items()}

    def belief(self, obs: Any, seed: int | None = None) -> Belief:
        """What the heads of one seed now say about an observation.

        Args:
            obs: the number of a state, as the environment gives it.
            seed: whose heads to ask; by default those of the first seed.
        """
        if self.agent is None:
            raise UserError(f"{self.config.agent_name} has no heads that could believe anything; boot has")
        seed = self.config.seed if seed is None else seed
        require(seed in self.params, f"seed must be one of {', '.join(map(str, self.params))}, got {seed!r}")
        encoding = self.env.encoding
        last = encoding.num_states - (encoding.kind != "one_hot")  # one more, in which DeepSea ends, has no input
        states = f"an observation is the number of a state, 0 to {last}, got {obs!r}"
        require(np.ndim(obs) == 0 and np.asarray(obs).dtype.kind in "iu" and 0 <= obs <= last, states)
        return self.agent.belief(self.params[seed], jnp.asarray(obs))


def compiled_result(config: RunConfig, env: Env, loop: CompiledLoop, path: Path | None) -> TrainResult:
    """The result so far of a run of a deep agent."""
    done = loop.position >= loop.end
    where = loop.by_seed(lambda state: state.exploration)
    return TrainResult(
        config, env, loop.program.agent, loop.metrics, loop.params(), not done, path, exploration=where
    )


def tabular_result(config: RunConfig, env: Env, loop: TabularLoop, path: Path | None) -> TrainResult:
    """The result so far of a run of a tabular baseline."""
    return TrainResult(config, env, None, loop.metrics, {}, loop.position < loop.end, path, exploration={})


def conclude_compiled(config: RunConfig, env: Env, loop: CompiledLoop, path: Path) -> dict[str, Any]:
    """Write models, the learning curve and the head report cards of a deep agent; returns regret and times."""
    result = compiled_result(config, env, loop, path)
    layout = {"discrete": env.encoding.size, "start": 0}
    about = model_header(config.record(), layout, env.encoding, env.num_actions, 0)
    for seed, params in result.params.items():
        save_model(path / "models" / f"seed{seed}.safetensors", params, about)
    metrics = loop.metrics
    if metrics:
        _draw_compiled(path, result, list(metrics.values()))
        _record_heads(path, result, metrics)
    return {
        "regret": _total_regret(result),
        "episodes_to_learn": result.episodes_to_learn(greedy=False),
        "greedy_episodes_to_learn": result.episodes_to_learn(greedy=True),
    }


def conclude_tabular(config: RunConfig, env: Env, loop: TabularLoop, path: Path) -> dict[str, Any]:
    """Draw the learning curve of a tabular baseline; returns its regret."""
    from bootdqn.plots.runs import Below

    result = tabular_result(config, env, loop, path)
    if result.metrics:
        below = Below("regret so far", [np.cumsum(m.regret) for m in result.metrics.values()])
        _draw(path, result, greedy=[], below=below)
    return {"regret": _total_regret(result)}


def _total_regret(result: TrainResult) -> dict[int, float]:
    return {seed: float(regrets.sum(dtype=float)) for seed, regrets in result.regret().items()}


def _record_heads(path: Path, result: TrainResult, metrics: dict[int, EpisodeMetrics]) -> None:
    """Record where training has been, what heads now believe there, and what each is worth."""
    from bootdqn.plots.xray import save_xray

    assert result.agent is not None
    trained = {
        seed: Trained(result.params[seed], np.asarray(m.head), result.exploration[seed])
        for seed, m in metrics.items()
    }
    cards, rows = survey_heads(result.env, result.agent, result.config.deep, trained)
    write_atomically(path / "exploration.csv", csv_text([EXPLORATION_COLUMNS, *rows]).encode())
    if result.config.deep.num_heads > 1:
        write_json(path / "heads.json", {"cards": cards})
    save_xray(path)


def _draw_compiled(path: Path, result: TrainResult, by_seed: list[EpisodeMetrics]) -> None:
    """Draw returns and, below, how far heads disagree, where there are several."""
    from bootdqn.plots.runs import Below
    from bootdqn.plots.style import running_mean

    below = None
    if result.config.deep.num_heads > 1:
        spread = [np.where(m.num_updates > 0, m.updates.q_spread, np.nan) for m in by_seed]
        # A head that diverges would hide all others.
        below = Below("std of Q over heads", [running_mean(values) for values in spread], log_y=True)
    _draw(path, result, greedy=[m.greedy_return for m in by_seed], below=below)


def _draw(path: Path, result: TrainResult, *, greedy: Any, below: Any) -> None:
    # Matplotlib takes longer to import than all else together, and not every run draws.
    from bootdqn.plots.runs import save_learning_curve
    from bootdqn.plots.style import AGENT_COLOURS

    save_learning_curve(
        path / "learning_curve",
        f"{result.config.agent_name} on {result.config.env}",
        returns=[m.episode_return for m in result.metrics.values()],
        greedy=greedy,
        below=below,
        best=result.env.solved_return,
        colour=AGENT_COLOURS[result.config.agent_name],
    )
