"""Repeats the training of a run on a compiled environment, bit-identically, and records what the heads believe."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bootdqn.core.agent import make_agent
from bootdqn.envs.registry import CatalogEnv, make_env
from bootdqn.errors import UserError, require
from bootdqn.loops.compiled import EpisodeMetrics, TrainState, make_compiled_program
from bootdqn.loops.rollout import make_surveyor
from bootdqn.loops.seeds import Chunk, SeedLoop
from bootdqn.plots.style import AGENT_COLOURS, head_colour
from bootdqn.runs.arrays import restore
from bootdqn.runs.config import RunConfig
from bootdqn.runs.directory import read_json, read_table
from bootdqn.runs.model_file import read_model
from bootdqn.runs.progress import Progress

MAX_FRAMES = 300
"""The largest number of frames of a video, not counting pauses."""
_AFTER_LEARNING = 10
"""Number of episodes that are shown after a run has learned."""


class Recording(NamedTuple):
    """The first E episodes of one seed's training, in F frames."""

    env: CatalogEnv
    config: RunConfig
    seed: int
    returns: NDArray[np.float32]
    """Return of every episode [E]."""
    heads: NDArray[np.int32]
    """The head that was followed in every episode [E]."""
    spreads: NDArray[np.float32]
    """Standard deviation of Q over heads in the updates of every episode [E]; 0 for episodes without updates."""
    epsilons: NDArray[np.float32]
    """Probability of a random action at the end of every episode [E]."""
    visited: NDArray[np.bool_]
    """Which states every episode has visited [E, S]."""
    ends: NDArray[np.int64]
    """Number of episodes that are over in every frame [F]; 0 in the first."""
    goes_right: NDArray[np.bool_]
    """Whether every head would go right in every state [F, K, S]."""
    values: NDArray[np.float32]
    """The value that every head gives to its greedy action in every state [F, K, S]."""

    @property
    def has_committed_heads(self) -> bool:
        """Whether one of several heads is followed for a whole episode."""
        return self.config.deep.acting == "committed_head" and self.config.deep.num_heads > 1

    @property
    def found(self) -> int | None:
        """The first episode, from 0, that reached the rewarding state; None if none did."""
        reached = np.flatnonzero(self.visited[:, -1])
        return int(reached[0]) if len(reached) else None

    @property
    def found_frame(self) -> int | None:
        """The frame that shows the episode `found`."""
        return None if self.found is None else int(np.searchsorted(self.ends, self.found, side="right"))

    def episodes(self, frame: int) -> range:
        """The episodes of a frame, from 0; the first frame has none."""
        return range(int(self.ends[frame - 1]), int(self.ends[frame])) if frame else range(0)

    def complete(self, frame: int) -> NDArray[np.bool_]:
        """Which heads would go right all the way to the reward [K]."""
        return self.goes_right[frame][:, self.env.way_to_reward].all(axis=1)

    def acting(self, frame: int) -> int | None:
        """The head that was followed in the last episode of a frame, if there was one."""
        over = int(self.ends[frame])
        return int(self.heads[over - 1]) if over and self.has_committed_heads else None

    def colour(self, episode: int) -> str:
        """The colour of an episode: that of the head that was followed, or that of the agent."""
        if self.has_committed_heads:
            return head_colour(int(self.heads[episode]))
        return AGENT_COLOURS[self.config.agent_name]


def episodes_shown(run: Path, config: RunConfig, seed: int, wanted: int | None) -> int:
    """The number of episodes that a video shows: as many as wanted, or a few more than it took to learn."""
    require(config.loop == "compiled", f"{config.agent_name} has no heads to watch; boot has")
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
    """The number of episodes that are over in every frame, evenly spaced from none to all."""
    stride = -(-episodes // MAX_FRAMES)
    return np.append(np.arange(0, episodes, stride), episodes)


def repeat_training(config: RunConfig, seed: int, episodes: int) -> Recording:
    """Repeat the first episodes of a seed's training, and record the beliefs of all heads at every frame."""
    env = make_env(str(config.env))
    program = make_compiled_program(env, config.deep, episodes=config.episodes, chunk_episodes=1)
    loop = SeedLoop(program, seeds=(seed,), episodes=config.episodes)
    survey = make_surveyor(program.agent)
    right_actions = np.asarray(env.right_actions).ravel()

    def look(state: TrainState) -> tuple[np.ndarray, np.ndarray]:
        params = jax.tree.map(lambda x: x[0], state.learner.params)
        q = np.asarray(survey(params, jnp.arange(len(right_actions))).q).swapaxes(0, 1)
        return q.argmax(axis=2) == right_actions, q.max(axis=2)

    bar = Progress(f"{config.env} {config.agent_name}", total=episodes, unit="episodes")
    ends = frame_ends(episodes)
    state = program.init(jnp.stack([jax.random.key(seed)]))
    looks = [look(state)]
    metrics: list[EpisodeMetrics] = []
    visits, visited = np.array(state.exploration.visits[0]), []
    with bar:
        run = program.run.lower(state, 1).compile()
        for episode in range(episodes):
            state, found = run(state, 1)
            metrics.append(jax.tree.map(lambda x: np.array(x)[0], found))
            before, visits = visits, np.array(state.exploration.visits[0])  # a copy: the state is consumed
            visited.append(visits > before)
            chunk = Chunk(episode, (seed,), jax.tree.map(lambda x: x[None], metrics[-1]))
            loop.require_finite_chunk(chunk, seed)
            bar.update((episode + 1, (episode + 1) * env.horizon), metrics[-1].episode_return.tolist())
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


def require_same_network(run: Path, config: RunConfig, seed: int) -> None:
    """Raise `UserError` if a run's model does not fit the network that its configuration describes."""
    path = run / "models" / f"seed{seed}.safetensors"
    if not path.exists():  # the run is still going on, or its models were not kept
        return
    env = make_env(str(config.env))
    agent = make_agent(config.deep, env.encoding, env.num_actions)
    like = jax.eval_shape(agent.init, jax.random.key(0)).params
    arrays, _ = read_model(path)
    try:
        restore(like, arrays, path)
    except UserError:
        raise UserError(
            f"{path} is of another network than {run / 'config.json'} makes; a run with a trunk of its own cannot "
            "be repeated, as no file brings the trunk back"
        ) from None


class Comparison(NamedTuple):
    """The result of comparing a repeated training with the `metrics.csv` of its run."""

    episodes: int
    """Number of episodes that both have."""
    first_difference: int | None
    """The first episode, from 1, with another return or disagreement of heads; None if all are the same."""


def compare(run: Path, recording: Recording) -> Comparison:
    """Compare a repeated training with the recorded one."""
    recorded = _recorded(run, recording.seed)[: len(recording.returns)]
    repeated = np.stack([recording.returns, recording.spreads], axis=1)[: len(recorded)]
    different = np.flatnonzero((recorded != repeated).any(axis=1))
    return Comparison(len(recorded), int(different[0]) + 1 if len(different) else None)


def _recorded(run: Path, seed: int) -> NDArray[np.float32]:
    """Return of every recorded episode and the disagreement of heads in its updates, 0 without updates [E, 2]."""
    path = run / "metrics.csv"
    try:
        rows = [row for row in read_table(path) if row["seed"] == str(seed)]
        numbers = [(float(row["return"]), float(row["q_spread"] or 0)) for row in rows]
        return np.array(numbers, np.float32).reshape(-1, 2)
    except FileNotFoundError:
        raise UserError(f"no file {path}; is {run} a run directory?") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__} {error}") from None
