"""A training on one of our own environments, repeated to the same bits and looked at as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bootdqn.agent import AgentConfig
from bootdqn.envs.catalog import make_env
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.errors import UserError, require
from bootdqn.figures import AGENT_COLOURS, head_colour
from bootdqn.loops.compiled import CompiledTraining, EpisodeMetrics, TrainState, make_program
from bootdqn.loops.evaluate import make_surveyor
from bootdqn.loops.groups import Chunk
from bootdqn.progress import Progress
from bootdqn.runs.arrays import restore
from bootdqn.runs.directory import read_json, read_table
from bootdqn.runs.models import read_model
from bootdqn.training import TrainConfig, require_finite

MAX_FRAMES = 300
"""Of a training, before pauses."""
_AFTER_LEARNING = 10
"""Episodes that are shown once a run has learned."""


class Recording(NamedTuple):
    """One seed's training, E episodes of it in F frames."""

    env: Any
    config: TrainConfig
    seed: int
    returns: NDArray[np.float32]
    """[E]"""
    heads: NDArray[np.int32]
    """That was committed, in every episode [E]."""
    spreads: NDArray[np.float32]
    """Standard deviation of Q over heads, in what every episode learned from [E]; 0 where there was nothing."""
    epsilons: NDArray[np.float32]
    """At the end of every episode [E]."""
    visited: NDArray[np.bool_]
    """Which states every episode acted in [E, S]."""
    ends: NDArray[np.int64]
    """How many episodes are over in every frame [F]; none in the first."""
    goes_right: NDArray[np.bool_]
    """Whether every head then prefers to go right in every state [F, K, S]."""
    values: NDArray[np.float32]
    """What it then expects of the action that it prefers [F, K, S]."""

    @property
    def has_committed_heads(self) -> bool:
        """Whether one of several heads acts for a whole episode."""
        return self.config.deep.acting == "committed_head" and self.config.deep.num_heads > 1

    @property
    def way(self) -> NDArray[np.int64]:
        """States on the way from the start to the reward."""
        return way_to_reward(self.env)

    @property
    def found(self) -> int | None:
        """The first episode, from 0, that reached the state of the reward."""
        reached = np.flatnonzero(self.visited[:, -1])
        return int(reached[0]) if len(reached) else None

    @property
    def found_frame(self) -> int | None:
        """The frame in which that episode is."""
        return None if self.found is None else int(np.searchsorted(self.ends, self.found, side="right"))

    def episodes(self, frame: int) -> range:
        """The episodes of a frame, from 0; of the first, none."""
        return range(int(self.ends[frame - 1]), int(self.ends[frame])) if frame else range(0)

    def complete(self, frame: int) -> NDArray[np.bool_]:
        """Which heads prefer to go right all the way [K]."""
        return self.goes_right[frame][:, self.way].all(axis=1)

    def acting(self, frame: int) -> int | None:
        """The head that was committed in the last episode of a frame, if there was one."""
        over = int(self.ends[frame])
        return int(self.heads[over - 1]) if over and self.has_committed_heads else None

    def colour(self, episode: int) -> str:
        """Of who acted in an episode: the head, or the agent if it has none to commit to."""
        if self.has_committed_heads:
            return head_colour(int(self.heads[episode]))
        return AGENT_COLOURS[self.config.agent_name]


def way_to_reward(env: Any) -> NDArray[np.int64]:
    """The states through which an agent comes that always goes right, if no move fails."""
    if isinstance(env, DeepSea):
        return np.arange(env.size) * (env.size + 1)
    start = int(env.reset(jax.random.key(0))[1])
    return np.arange(start, env.encoding.num_states)


def episodes_shown(run: Path, config: TrainConfig, seed: int, wanted: int | None) -> int:
    """How many episodes a video of a run's seed shows: as many as are wanted, or a few more than it learned in."""
    require(isinstance(config.agent, AgentConfig), f"{config.agent_name} has no heads to watch; boot has")
    require(seed in config.seeds, f"{run} has seeds {', '.join(map(str, config.seeds))}, not {seed}")
    done = len(_recorded(run, seed))
    require(done > 0, f"{run} has no episode of seed {seed} yet; wait for the first, or choose another --seed")
    if wanted is not None:
        require(
            1 <= wanted <= config.episodes, f"{run} has episodes 1 to {config.episodes}; --episodes was {wanted}"
        )
        return wanted
    record = read_json(run / "run.json")
    learned = record.get("greedy_episodes_to_learn" if config.dithers else "episodes_to_learn") or {}
    at = learned.get(str(seed))
    return min(done, config.episodes if at is None else at + _AFTER_LEARNING)


def frame_ends(episodes: int) -> NDArray[np.int64]:
    """How many episodes are over in every frame: none in the first, all in the last, and as many more in each."""
    stride = -(-episodes // MAX_FRAMES)
    return np.append(np.arange(0, episodes, stride), episodes)


def repeat_training(config: TrainConfig, seed: int, episodes: int) -> Recording:
    """Do the first episodes of a seed's training again, and look at all heads after every frame."""
    env: Any = make_env(config.env)
    training = CompiledTraining(env, config.deep, seeds=(seed,), episodes=config.episodes)
    init, run = make_program(env, training.agent, config.deep, capacity=training.capacity, chunk_episodes=1)
    survey = make_surveyor(training.agent)
    right_actions = np.asarray(env.right_actions).ravel()

    def look(state: TrainState) -> tuple[np.ndarray, np.ndarray]:
        params = jax.tree.map(lambda x: x[0], state.learner.params)
        q = np.asarray(survey(params, jnp.arange(len(right_actions))).q).swapaxes(0, 1)
        return q.argmax(axis=2) == right_actions, q.max(axis=2)

    bar = Progress(f"{config.env} {config.agent_name}", episodes=episodes, num_seeds=1, horizon=env.horizon)
    ends = frame_ends(episodes)
    state = init(jnp.stack([jax.random.key(seed)]))
    looks = [look(state)]
    metrics: list[EpisodeMetrics] = []
    visits, visited = np.array(state.exploration.visits[0]), []
    with bar:
        program = run.lower(state, 1).compile()
        bar.start()
        for episode in range(episodes):
            state, found = program(state, 1)
            metrics.append(jax.tree.map(lambda x: np.array(x)[0], found))
            before, visits = visits, np.array(state.exploration.visits[0])  # a copy: the state is consumed
            visited.append(visits > before)
            chunk = Chunk(episode, (seed,), jax.tree.map(lambda x: x[None], metrics[-1]))
            require_finite(chunk, config, seed=seed)
            bar.update(chunk)
            if episode + 1 in ends:
                looks.append(look(state))
    joined: EpisodeMetrics = jax.tree.map(lambda *xs: np.concatenate(xs), *metrics)
    return Recording(
        env,
        config,
        seed,
        np.asarray(joined.episode_return),
        np.asarray(joined.head),
        np.asarray(joined.updates.q_spread),
        np.asarray(joined.epsilon),
        np.stack(visited),
        ends,
        np.stack([right for right, _ in looks]),
        np.stack([value for _, value in looks]),
    )


def require_same_network(run: Path, config: TrainConfig, seed: int) -> None:
    """Raise `UserError` if a run's model is not of the network that its configuration makes."""
    path = run / "models" / f"seed{seed}.safetensors"
    if not path.exists():  # the run is going on, or its models were left out
        return
    training = CompiledTraining(make_env(config.env), config.deep, seeds=(seed,), episodes=config.episodes)
    like = jax.eval_shape(training.agent.init, jax.random.key(0)).params
    arrays, _ = read_model(path)
    try:
        restore(like, arrays, path)
    except UserError:
        raise UserError(
            f"{path} is of another network than {run / 'config.json'} makes; a run with a trunk of its own cannot "
            "be repeated, as no file brings the trunk back"
        ) from None


class Comparison(NamedTuple):
    """Of a repeated training with what `metrics.csv` has of it."""

    episodes: int
    """That both have."""
    first_difference: int | None
    """The first of them, from 1, in which the return or the disagreement of heads differs."""


def compare(run: Path, recording: Recording) -> Comparison:
    """Whether the repeated training is that of the run."""
    recorded = _recorded(run, recording.seed)[: len(recording.returns)]
    repeated = np.stack([recording.returns, recording.spreads], axis=1)[: len(recorded)]
    different = np.flatnonzero((recorded != repeated).any(axis=1))
    return Comparison(len(recorded), int(different[0]) + 1 if len(different) else None)


def _recorded(run: Path, seed: int) -> NDArray[np.float32]:
    """Return of every episode, and how far heads disagreed in it, 0 where nothing was learned [E, 2]."""
    path = run / "metrics.csv"
    try:
        rows = [row for row in read_table(path) if row["seed"] == str(seed)]
        numbers = [(float(row["return"]), float(row["q_spread"] or 0)) for row in rows]
        return np.array(numbers, np.float32).reshape(-1, 2)
    except FileNotFoundError:
        raise UserError(f"no file {path}; is {run} a run directory?") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__} {error}") from None
