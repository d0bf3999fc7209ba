"""The package in Python: `BootstrappedDQN` on any environment, and `train` on several seeds of our own."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.core.agent import make_agent
from bootdqn.envs.registry import env_spec
from bootdqn.envs.spaces import Observations
from bootdqn.envs.vector import EnvSource, Vectorization, env_name, is_on_host, make_envs, make_more
from bootdqn.errors import UserError, require, require_known
from bootdqn.loops.rollout import MEAN, VOTE, Evaluation, evaluate, make_chooser
from bootdqn.runs.arrays import restore
from bootdqn.runs.config import (
    NAMED_AGENTS,
    RunConfig,
    default_agent,
    default_config,
    default_host_config,
    parse_config,
    with_options,
)
from bootdqn.runs.directory import require_writable
from bootdqn.runs.model_file import model_header, read_model, save_model
from bootdqn.runs.parts import Inputs
from bootdqn.runs.records import PER_SEED
from bootdqn.runs.run import Run, resume_run
from bootdqn.runs.seed_results import TrainResult
from bootdqn.types import Agent, Belief, Encoding, Env, Params

Policy = Literal["vote", "mean", "head"]
ABSTAIN = -1
"""The action of a belief that is too divided to act on."""


class _Network(NamedTuple):
    """The observations, actions and compiled function that prediction needs."""

    agent: Agent
    observations: Observations
    num_actions: int
    first_action: int
    chooser: Callable[..., tuple[Array, Belief]]


class BootstrappedDQN:
    """Bootstrapped DQN, or one of its relatives, on any Gymnasium environment with discrete actions.

    Args:
        env: its name, an environment, or a function that makes one.
        agent: `boot-prior`, `boot`, `boot+`, `thompson`, `ensemble` or `dqn`; by default `boot-prior`, and `boot`
            on Atari games.
        seed: of everything.
        num_envs: copies of the environment that are played side by side, each by its own head.
        vectorization: copies in this process (`sync`), in a process each (`async`), or the environment's `own`
            vector version.
        trunk: (key) -> an Equinox module that heads share, from the flat observation to features; on Atari games,
            from bytes [4, 84, 84].
        options: fields of `AgentConfig` that differ from the named agent's, such as `num_heads=20`.
    """

    def __init__(
        self,
        env: EnvSource,
        agent: str | None = None,
        *,
        seed: int = 0,
        num_envs: int = 1,
        vectorization: Vectorization = "sync",
        trunk: Callable[[Array], Any] | None = None,
        **options: Any,
    ):
        name = env_name(env)
        default = default_host_config(name, default_agent(name) if agent is None else agent)
        self.config = with_options(default, options, seed=seed, num_envs=num_envs, vectorization=vectorization)
        self._source: EnvSource | None = env
        self._trunk = trunk
        self._envs = make_envs(env, num_envs, vectorization)
        self._network = self._make_network(
            self._envs.observations, self._envs.num_actions, self._envs.first_action
        )
        learner = jax.jit(self._network.agent.init)(jax.random.split(jax.random.key(seed), 3)[1])
        self.params: Params = jax.tree.map(np.asarray, learner.params)
        """The online parameters: initial, as learned last, or as loaded."""
        self.run: Run | None = None
        """The last training."""

    def learn(
        self,
        steps: int,
        *,
        out: str | Path | None = None,
        progress: bool = False,
        evaluate_every_steps: int = 0,
        evaluation_episodes: int = RunConfig.evaluation_episodes,
        evaluation_steps: int = 0,
        checkpoint_every_steps: int = RunConfig.checkpoint_every_steps,
        tensorboard: bool = False,
        on_episode: Callable[[Any], None] | None = None,
        on_evaluation: Callable[[Any], None] | None = None,
    ) -> Self:
        """Train from the beginning for so many environment steps; on Ctrl-C, stop in good order and say so.

        Args:
            steps: over all copies of the environment.
            out: a run directory to write, with metrics, models and checkpoints; none by default.
            progress: show it.
            evaluate_every_steps: steps from one evaluation to the next; 0 for none.
            evaluation_episodes: of every policy, in environments of its own.
            evaluation_steps: that the vote plays in place of episodes; others play in the last evaluation only.
            checkpoint_every_steps: after so many steps all copies start fresh episodes, and a checkpoint is
                written.
            tensorboard: also write TensorBoard's files.
            on_episode: is given every training episode (`loops.protocol.Episode`) that ends.
            on_evaluation: is given the list of every evaluation (`loops.rollout.Evaluation`).
        """
        config = replace(
            self.config,
            steps=steps,
            evaluate_every_steps=evaluate_every_steps,
            evaluation_episodes=evaluation_episodes,
            evaluation_steps=evaluation_steps,
            checkpoint_every_steps=checkpoint_every_steps,
        )
        if self._source is None:
            raise UserError(
                "this model was loaded without an environment; give one: BootstrappedDQN.load(path, env)"
            )
        self.config = config
        command = f"BootstrappedDQN({config.env!r}, {config.agent_name!r}, seed={config.seed}).learn({steps})"
        show = print if progress else _say_nothing
        inputs = Inputs(self._source, self._envs, self._trunk, show=show)
        self.run = Run(config, out=None if out is None else Path(out), command=command, inputs=inputs)
        complete = self.run.train(
            progress=progress, tensorboard=tensorboard, on_episode=on_episode, on_evaluation=on_evaluation
        )
        self.params = self.run.loop.params()[config.seed]
        if not complete:
            raise KeyboardInterrupt
        return self

    def predict(
        self, obs: Any, policy: Policy = "vote", *, head: int = 0, abstain_below: float = 0.0, seed: int = 0
    ) -> tuple[Any, Belief]:
        """The action for an observation, or for each of a batch, and what the heads believe.

        Args:
            obs: as the environment returns it, or a batch as vector environments return it.
            policy: what most heads that vote prefer, what is best on average over heads, or what one head prefers.
            head: which one, for `policy="head"`.
            abstain_below: give the action -1 where fewer than this share of the votes are for the favourite.
            seed: of how ties are broken.

        Returns:
            The action, an integer or an array [N] of them; and the belief, with a leading axis [N] for a batch.
        """
        number = self._policy_number(policy, head)
        require(0 <= abstain_below <= 1, f"abstain_below must be 0 to 1, got {abstain_below}")
        network = self._network
        is_batch = network.observations.is_batch(obs)
        rows = network.observations.rows(obs) if is_batch else network.observations.row(obs)[None]
        # One key for all: what is chosen does not depend on what it is beside.
        keys = jnp.broadcast_to(jax.random.key(seed), (len(rows),))
        numbers = np.full(len(rows), number, np.int32)
        chosen, belief = network.chooser(self.params, keys, rows, numbers, 0, 0.0)
        belief = jax.tree.map(np.asarray, belief)
        divided = belief.votes.max(axis=1) / self.config.deep.num_voters < abstain_below
        actions = np.where(divided, ABSTAIN, np.asarray(chosen) + network.first_action)
        if is_batch:
            return actions, belief
        return int(actions[0]), jax.tree.map(lambda x: x[0], belief)

    def evaluate(
        self, episodes: int = 100, policy: Policy = "vote", *, head: int = 0, seed: int = 0
    ) -> NDArray[np.float64]:
        """Returns [episodes] of a policy, in environments of its own."""
        number = self._policy_number(policy, head)
        require(episodes >= 1, f"episodes must be at least 1, got {episodes}")
        slots = next(n for n in range(min(episodes, 10), 0, -1) if episodes % n == 0)
        return self._play([number] * slots, episodes // slots, seed)[0].returns

    def report_card(self, episodes: int = 10, *, seed: int = 0) -> list[Evaluation]:
        """What the vote, the mean and every head alone collect: `episodes` each."""
        return self._play([VOTE, MEAN, *range(self.config.deep.num_heads)], episodes, seed)

    def close(self) -> None:
        """Let go of the environments, and of their processes where they have any."""
        for owner in (self._envs, self.run):
            if owner is not None:
                owner.close()
        self._envs = None

    def save(self, path: str | Path) -> None:
        """Write a model file: parameters, and all that is needed to predict."""
        require_writable(Path(path))
        network = self._network
        observations = network.observations
        about = model_header(
            self.config.record(),
            observations.layout,
            observations.encoding,
            network.num_actions,
            network.first_action,
        )
        save_model(Path(path), self.params, about)

    @classmethod
    def resume(
        cls,
        run: str | Path,
        env: EnvSource | None = None,
        *,
        trunk: Callable[[Array], Any] | None = None,
        progress: bool = False,
    ) -> BootstrappedDQN:
        """Go on with a run that was stopped or killed, to the end it would have had.

        Args:
            run: its directory.
            env: what it was trained on, where that has no name.
            trunk: the maker of its trunk, if it was made with one.
            progress: show it.
        """
        resumed = resume_run(Path(run), Inputs(env, trunk=trunk, show=print if progress else _say_nothing))
        require(
            resumed.config.loop not in PER_SEED,
            f"{run} is a run on one of our own environments: `bootdqn resume {run}`",
        )
        complete = resumed.train(progress=progress)
        if not complete:
            raise KeyboardInterrupt
        model = cls.load(Path(run) / "models" / "last.safetensors", env, trunk=trunk)
        model.run = resumed
        return model

    @classmethod
    def load(
        cls, path: str | Path, env: EnvSource | None = None, *, trunk: Callable[[Array], Any] | None = None
    ) -> BootstrappedDQN:
        """A model from its file.

        Args:
            path: of the file.
            env: to evaluate in, or to learn in from the beginning; by default that it was trained on, if named.
            trunk: the maker of its trunk, for a model that was made with one.
        """
        path = Path(path)
        arrays, header = read_model(path)
        self = cls.__new__(cls)
        self.config = _host_config(parse_config(header.get("config", {}), path))
        self._source = self.config.env if env is None else env
        self._trunk = trunk
        self._envs = None
        self.run = None
        try:
            encoding = Encoding(**header["encoding"])
            require(
                isinstance(encoding.size, int) and encoding.size > 0,
                f"{path}: an encoding of size {encoding.size!r}",
            )
            observations = Observations(header["observations"], encoding)
            actions = int(header["num_actions"]), int(header["first_action"])
            require(0 < actions[0] < 2**20, f"{path}: a model with {actions[0]} actions")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path} does not say what its model observes: {type(error).__name__} {error}"
            ) from None
        self._network = self._make_network(observations, *actions)
        like = jax.eval_shape(self._network.agent.init, jax.random.key(0)).params
        self.params = restore(like, arrays, path)
        if env is not None:
            self._envs = make_envs(env, self.config.num_envs, self.config.vectorization)
            require(
                self._envs.observations.layout == observations.layout and self._envs.num_actions == actions[0],
                f"{path} holds a model for {self.config.env or 'another environment'}, whose observations or "
                f"actions are not those of {env_name(env) or 'this one'}",
            )
        return self

    def _make_network(self, observations: Observations, num_actions: int, first_action: int) -> _Network:
        agent = make_agent(self.config.deep, observations.encoding, num_actions, self._trunk)
        return _Network(agent, observations, num_actions, first_action, make_chooser(agent))

    def _policy_number(self, policy: str, head: int) -> int:
        require_known("policy", policy, get_args(Policy))
        num_heads = self.config.deep.num_heads
        require(0 <= head < num_heads, f"head must be 0 to {num_heads - 1}, got {head}")
        return {"vote": VOTE, "mean": MEAN, "head": head}[policy]

    def _play(self, policies: Sequence[int], episodes: int, seed: int) -> list[Evaluation]:
        require(episodes >= 1, f"episodes must be at least 1, got {episodes}")
        require(seed >= 0, f"seed must not be negative, got {seed}")
        source = self._source
        if source is None:
            raise UserError(
                "this model was loaded without an environment; give one: BootstrappedDQN.load(path, env)"
            )
        envs = make_more(source, len(policies))
        try:
            return evaluate(
                envs,
                self._network.chooser,
                self.params,
                policies,
                episodes=episodes,
                epsilon=self.config.evaluation_epsilon,
                seed=[self.config.seed, seed],
            )
        finally:
            envs.close()


def train(
    env: str | Env,
    agent: str = "boot",
    *,
    episodes: int = RunConfig.episodes,
    num_seeds: int = RunConfig.num_seeds,
    seed: int = RunConfig.seed,
    out: str | Path | None = None,
    progress: bool = False,
    trunk: Callable[[Array], Any] | None = None,
    **options: Any,
) -> TrainResult:
    """Train an agent on one of our own environments; on Ctrl-C, record what was done, raise `KeyboardInterrupt`.

    Args:
        env: a name such as `chain:50`, or a `Chain`, `DeepSea`, `StochasticChain` or `RiverSwim`.
        agent: `boot`, `boot-prior`, `boot+`, `thompson`, `ensemble` or `dqn`; or a tabular baseline, such as
            `psrl`.
        episodes: training episodes per seed.
        num_seeds: how many independent trainings, side by side.
        seed: the first seed, from which the others count up.
        out: a run directory to write; none by default.
        progress: show a progress bar.
        trunk: (key) -> an Equinox module that heads share, from the encoded observation to features.
        options: fields that differ from the named agent's: of `AgentConfig`, such as `num_heads=20`, or of its
            class in `bootdqn.tabular.agents`.
    """
    name = env if isinstance(env, str) else env_spec(env)
    require(not is_on_host(name), f"{name} is not one of ours: BootstrappedDQN({name!r}).learn() trains on it")
    require_known("agent", agent, NAMED_AGENTS)
    known = [
        *(field.name for field in dataclasses.fields(NAMED_AGENTS[agent])),
        *inspect.signature(train).parameters,
    ]
    for option in options:
        require_known(f"option of {agent}", option, known)
    default = default_config(name, agent)
    config = with_options(default, options, episodes=episodes, num_seeds=num_seeds, seed=seed)
    command = f"bootdqn.train({config.env!r}, {agent!r}, {episodes=}, {num_seeds=}, {seed=}"
    command += "".join(f", {option}={value!r}" for option, value in options.items()) + ")"
    run = Run(config, out=None if out is None else Path(out), command=command, inputs=Inputs(trunk=trunk))
    if not run.train(progress=progress):
        raise KeyboardInterrupt
    return run.result


def _host_config(config: RunConfig) -> RunConfig:
    """The configuration by which a model learns and plays in Python, whatever it was trained by."""
    if config.loop == "host":
        return config
    return RunConfig(
        loop="host", env=config.env, agent_name=config.agent_name, agent=config.agent, seed=config.seed
    )


def _say_nothing(text: str) -> None:
    """Take a message and show it to nobody."""
