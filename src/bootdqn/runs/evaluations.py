"""Evaluations of a run with slots: policies made from the heads play in environments of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bootdqn.analysis.head_report import card_of, data_share
from bootdqn.envs.vector import Envs, EnvSource, make_more
from bootdqn.loops.learner import HostLearner
from bootdqn.loops.rollout import MEAN, VOTE, Evaluation, evaluate, make_chooser, policy_name
from bootdqn.runs.config import RunConfig
from bootdqn.runs.directory import RunDirectory, write_json
from bootdqn.runs.model_file import save_model
from bootdqn.types import Params

EVALUATIONS = (
    *("step", "policy", "episodes", "mean_return", "least_return", "largest_return"),
    *("entropy", "data_share"),
)
"""Columns of `evaluations.csv`, which has one row per evaluation and policy."""
_VOTE_SLOTS = 4
"""Environments side by side in which the vote plays its steps of an evaluation."""


class Evaluations:
    """Evaluates what a learner has learned, and keeps the best of it."""

    def __init__(self, config: RunConfig, source: EnvSource, learner: HostLearner, about: Mapping[str, Any]):
        """Make environments, if there will be evaluations: what cannot be evaluated shows now.

        Args:
            config: the run's configuration.
            source: the environment to evaluate in.
            learner: whose heads are evaluated.
            about: the header of model files.
        """
        self.every = config.evaluate_every_steps
        self.best: float | None = None
        """The best mean return of the vote so far."""
        self.best_params: Params = None
        """The parameters that it was reached with, if that was in this process."""
        self.last: tuple[int, list[Evaluation]] | None = None
        """The step of the last evaluation in this process, and its results."""
        self._config = config
        self._source = source
        self._learner = learner
        self._about = about
        self._chooser = make_chooser(learner.agent)
        self._envs: dict[int, Envs] = {}
        if self.every:
            self._make_envs(_VOTE_SLOTS if config.evaluation_steps else len(self._policies()))

    @property
    def head_steps(self) -> tuple[int, ...]:
        """Environment steps per head, where heads act alone."""
        committed = self._config.deep.acting == "committed_head"
        return self._learner.counters.head_steps if committed else ()

    def play(self, should_stop: Callable[[], bool] = lambda: False) -> list[Evaluation]:
        """Let the vote, the mean and every head play in environments of their own; the vote comes first."""
        step, config = self._learner.counters.step, self._config
        rounds, steps = [self._policies()], None
        if config.evaluation_steps:
            steps = -(-config.evaluation_steps // _VOTE_SLOTS)
            rounds = [[VOTE] * _VOTE_SLOTS]
            if step >= config.steps and len(self._policies()) > 1:
                rounds.append(self._policies()[1:])
        found = []
        for number, policies in enumerate(rounds):
            found += evaluate(
                self._make_envs(len(policies)),
                self._chooser,
                self._learner.learned.learner.params,
                policies,
                episodes=config.evaluation_episodes,
                steps=steps,
                epsilon=config.evaluation_epsilon,
                seed=[config.seed, step, 1 + number],
                should_stop=should_stop,
            )
        return found

    def take_in(self, found: list[Evaluation], directory: RunDirectory | None) -> None:
        """Keep an evaluation, and the parameters if the vote did better than ever; record both in a directory."""
        step = self._learner.counters.step
        self.last = step, found
        by_vote = float(found[0].returns.mean())
        if self.best is None or by_vote > self.best:
            self.best, self.best_params = by_vote, self._learner.params
            if directory is not None:
                save_model(directory.path / "models" / "best.safetensors", self.best_params, self._about)
        if directory is not None:
            directory.append("evaluations.csv", evaluation_rows(step, found, self.head_steps))
            if len(found) > 1:
                card = {"seed": self._config.seed, "step": step, **card_of(found, self.head_steps)}
                write_json(directory.path / "heads.json", {"cards": [card]})

    def close(self) -> None:
        """Close the environments."""
        for envs in self._envs.values():
            envs.close()
        self._envs = {}

    def _policies(self) -> list[int]:
        """The policies that play in an evaluation, at most."""
        num_heads = self._config.deep.num_heads
        return [VOTE] if num_heads == 1 else [VOTE, MEAN, *range(num_heads)]

    def _make_envs(self, num_envs: int) -> Envs:
        if num_envs not in self._envs:
            self._envs[num_envs] = make_more(self._source, num_envs)
        return self._envs[num_envs]


def evaluation_rows(step: int, found: Sequence[Evaluation], head_steps: Sequence[int]) -> list[tuple[Any, ...]]:
    """Rows of `evaluations.csv`: what each policy collects, and which share of the data a head has collected."""
    return [
        (
            *(step, policy_name(e.policy), e.ended, e.returns.mean(), e.returns.min(), e.returns.max()),
            *(round(e.entropy, 6), "" if (share := data_share(e.policy, head_steps)) is None else share),
        )
        for e in found
    ]
