"""One large training: actors in a Ray cluster play, and one learner here learns from what they send.

It works in rounds: all actors play the same number of ticks with the same parameters, while the learner learns
from the round before. So their parameters lack at most the updates of one round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AgentConfig
from bootdqn.envs.vector import EnvSource, Vectorization, make_envs, play_randomly
from bootdqn.errors import UserError, require
from bootdqn.loops.learner import COLUMNS, Counters, HostLearner, Tick
from bootdqn.loops.protocol import Episode, Snapshot
from bootdqn.loops.slots import Draws, make_slot_policy, make_slots
from bootdqn.loops.workers import (
    MOST_DEATHS,
    WORKER_BYTES,
    WORKER_ENVIRONMENT,
    describe_machine,
    join_cluster,
    reason,
    require_same_versions,
)
from bootdqn.runs.checkpoint import Checkpoint
from bootdqn.types import HostStep, Params

THROUGHPUT = (
    *("step", "seconds", "steps_per_second", "updates_per_second"),
    *("staleness_mean", "staleness_max", "waiting", "lost"),
)
"""Columns of `actors.csv`; docs/clusters.md explains each."""
_SECONDS_PER_ROW = 5.0
"""The least time that a row of `actors.csv` covers."""
_MOST_TICKS = 100
"""Ticks per round at most, however old parameters may be."""


class Played(NamedTuple):
    """One tick of some slots, as numpy arrays [S, ...] that can be sent."""

    obs: NDArray[Any]
    """Observations that were acted on; of pictures, the newest frame."""
    fresh: NDArray[np.bool_]
    """Whether an observation begins an episode."""
    heads: NDArray[np.int32]
    """The heads that were followed."""
    mask: NDArray[np.float32]
    """Bootstrap weights [S, K]."""
    actions: NDArray[np.int32]
    """The actions that were taken."""
    step: HostStep
    """What environments answered."""


class ActorSpec(NamedTuple):
    """What every actor process is told when it starts."""

    source: EnvSource
    """The environment that it plays."""
    num_envs: int
    """The number of slots of one actor."""
    vectorization: Vectorization
    """How the environments of its slots are run."""
    agent: AgentConfig
    """The agent's configuration."""
    trunk: Callable[[Array], Any] | None
    """As for `make_agent`."""
    seed: int
    """The number from which all randomness derives."""


class ActorProcess:
    """One actor of a cluster: plays in slots of its own, with parameters that it is sent."""

    def __init__(self, spec: ActorSpec, index: int, born: int):
        """Make the environments of this actor, and begin an episode in each.

        Args:
            spec: the specification that all actors share.
            index: the number of this actor among them.
            born: steps of the training so far; an actor that takes the place of another plays other episodes.
        """
        # JAX has been imported but has not begun to compute, which is when it and XLA read most of these.
        os.environ.update(WORKER_ENVIRONMENT)
        self._envs = make_envs(spec.source, spec.num_envs, spec.vectorization)
        observations = self._envs.observations
        agent = make_agent(spec.agent, observations.encoding, self._envs.num_actions, spec.trunk)
        self._act = jax.jit(make_slot_policy(agent, spec.agent, spec.num_envs).act)
        self._params = jax.tree.structure(jax.eval_shape(agent.init, jax.random.key(0)).params)
        self._newest_only = observations.encoding.kind == "pictures"
        key = jax.random.fold_in(jax.random.key(spec.seed), born)
        self._slots = make_slots(key, spec.agent, spec.num_envs, first=index * spec.num_envs)
        words = np.random.SeedSequence([spec.seed, born, index]).generate_state(spec.num_envs)
        self._obs = self._envs.reset([int(word) >> 1 for word in words])
        self._fresh = np.ones(spec.num_envs, bool)

    def hello(self) -> tuple[str, dict[str, str]]:
        """Say the name of the machine, and the versions of its packages."""
        return describe_machine()

    def play(self, leaves: list[NDArray[Any]], step: int, ticks: int) -> list[Played]:
        """Play a round with the parameters that were sent, and return what happened in it.

        Args:
            leaves: the leaves of the parameters' tree.
            step: environment steps of the training so far, which decide epsilon.
            ticks: how many to play.
        """
        params = jax.device_put(jax.tree.unflatten(self._params, leaves))
        played = []
        for _ in range(ticks):
            action, draws, self._slots = self._act(params, self._slots, self._fresh, self._obs, step)
            actions = np.asarray(action)
            came = self._envs.step(actions)
            played.append(
                Played(
                    self._seen(self._obs),
                    self._fresh,
                    np.asarray(self._slots.head),
                    np.asarray(draws.mask),
                    actions,
                    came._replace(obs=self._seen(came.obs), next_obs=self._seen(came.next_obs)),
                )
            )
            self._obs, self._fresh = came.obs, came.fresh
        return played

    def _seen(self, obs: NDArray[Any]) -> NDArray[Any]:
        """The part of observations that the learner needs."""
        return obs[:, -1:] if self._newest_only else obs


class ActorPool:
    """Actors somewhere in a Ray cluster, and what the slots of all of them have in common."""

    def __init__(self, address: str | None, num_actors: int, spec: ActorSpec):
        """Join the cluster; actors are not yet started.

        Args:
            address: as for `join_cluster`.
            num_actors: the number of actors.
            spec: the specification of each actor.
        """
        self.num_actors = num_actors
        self.spec = spec
        self.num_envs = num_actors * spec.num_envs
        """The number of slots over all actors."""
        one = make_envs(spec.source, 1)  # what cannot be made shows here
        self.observations = one.observations
        self.num_actions, self.first_action = one.num_actions, one.first_action
        one.close()
        self.lost = 0
        """How many actors have died."""
        self._ray = join_cluster(address)
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < num_actors:
            self.close()
            raise UserError(f"{num_actors} actors need a core each, and the Ray cluster has {cores}")
        self._make = self._ray.remote(ActorProcess).options(num_cpus=1, memory=WORKER_BYTES, max_restarts=0)
        self._actors: list[Any] = []
        self._rounds: list[Any] = []

    def play_randomly(self) -> NDArray[Any]:
        """Return observations of random play in an environment of this process."""
        one = make_envs(self.spec.source, 1)
        observations = play_randomly(one, self.spec.seed)
        one.close()
        return observations

    def start(self, born: int) -> None:
        """Start all actors, in place of those that there were."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = [self._make.remote(self.spec, index, born) for index in range(self.num_actors)]
        try:
            for hello in [actor.hello.remote() for actor in self._actors]:
                require_same_versions(*self._answer(hello))
        except self._ray.exceptions.RayActorError as error:
            raise UserError(f"an actor does not start: {reason(error)}") from None

    def send(self, leaves: list[NDArray[Any]], step: int, ticks: int) -> None:
        """Ask all actors to play a round."""
        self._asked = self._ray.put(leaves), step, ticks
        self._rounds = [actor.play.remote(*self._asked) for actor in self._actors]

    def receive(self) -> tuple[list[list[Played]], list[int]]:
        """Wait for what each actor played, and say which of them had died and were replaced."""
        rounds, replaced = [], []
        for index in range(self.num_actors):
            for death in range(1, MOST_DEATHS + 1):
                try:
                    rounds.append(self._answer(self._rounds[index]))
                    break
                except self._ray.exceptions.RayActorError as error:
                    if death == MOST_DEATHS:
                        raise UserError(f"actor {index} died {death} times in a row: {reason(error)}") from None
                    self.lost += 1
                    replaced.append(index)
                    self._actors[index] = self._make.remote(self.spec, index, self._asked[1])
                    self._rounds[index] = self._actors[index].play.remote(*self._asked)
        return rounds, replaced

    def _answer(self, call: Any) -> Any:
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise UserError(str(error.cause)) from None
            raise

    def close(self) -> None:
        """Leave the cluster; actors end with that."""
        self._ray.shutdown()


class ClusterLoop:
    """Trains one agent on what actors play.

    A resumed training is not bit-identical to one that was not stopped: environments cannot be asked for their
    state, so actors begin new episodes, as they do when one of them is lost.
    """

    unit = "steps"
    columns = COLUMNS
    tables: Mapping[str, tuple[str, ...]] = {"actors.csv": THROUGHPUT}

    def __init__(
        self,
        actors: ActorPool,
        config: AgentConfig,
        *,
        steps: int,
        checkpoint_every: int,
        max_staleness: int,
    ):
        """Prepare a training without allocating anything yet.

        Args:
            actors: who plays.
            config: the agent's configuration.
            steps: environment steps of the training, over all actors.
            checkpoint_every: environment steps from one checkpoint to the next.
            max_staleness: updates that the parameters of actors may lack.
        """
        self.envs = actors
        self.end = steps
        self.checkpoint_every = checkpoint_every
        spec = actors.spec
        self.learner = HostLearner(
            config,
            actors.observations,
            actors.num_actions,
            num_envs=actors.num_envs,
            seed=spec.seed,
            steps=steps,
            trunk=spec.trunk,
        )
        self.ticks = min(_MOST_TICKS, max_staleness * config.learning_period_steps // actors.num_envs)
        """Ticks per round."""
        require(
            self.ticks > 0,
            f"one step in all {actors.num_envs} environments is "
            f"{-(-actors.num_envs // config.learning_period_steps)} updates, and actors may lack no more than "
            f"{max_staleness}; raise max_staleness_updates, or have fewer",
        )
        self._sent_at = 0
        self._throughput = Throughput()

    @property
    def position(self) -> int:
        """Environment steps so far, over all actors."""
        return self.learner.counters.step

    @property
    def progress(self) -> tuple[float, int]:
        """Environment steps so far, twice: they are what is counted."""
        return self.position, self.position

    def memory_bytes(self) -> int:
        """Bytes that parameters, optimizer and replay occupy."""
        return self.learner.memory_bytes()

    def begin(self) -> None:
        """Make initial parameters and an empty replay, and start actors."""
        key = jax.random.split(jax.random.key(self.learner.seed), 3)[1]
        self.learner.begin(key, self.envs.play_randomly)
        self._start()

    def advance(self, to: int, should_stop: Callable[[], bool]) -> Iterator[Sequence[Episode]]:
        """Learn from rounds up to a number of environment steps, and yield after every round."""
        while self.position < to and not should_stop():
            yield self.play_round()

    def play_round(self) -> list[Episode]:
        """Receive a round, ask for the next, and learn from it; returns the episodes that ended."""
        learner, start = self.learner, time.perf_counter()
        rounds, replaced = self.envs.receive()
        waited = time.perf_counter() - start
        for index in replaced:
            size = self.envs.spec.num_envs
            learner.forget_slots(slice(index * size, (index + 1) * size))
        staleness = learner.counters.updates - self._sent_at
        self._send()
        episodes = []
        for played in map(_side_by_side, zip(*rounds, strict=True)):
            key = jax.random.fold_in(jax.random.key(learner.seed), learner.counters.step)
            draws = Draws(jnp.asarray(played.mask), key)
            episodes += learner.take_in(
                Tick(played.obs, played.fresh, played.heads, draws, played.actions, played.step)
            )
            learner.flush()
        learner.wait()  # what comes next needs the last update in any case
        self._throughput.add(learner.counters, staleness, waited, self.envs.lost)
        return episodes

    def _start(self) -> None:
        self.envs.start(self.position)
        self._send()

    def _send(self) -> None:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.learner.learned.learner.params)]
        self._sent_at = self.learner.counters.updates
        self.envs.send(leaves, self.position, self.ticks)

    def new_rows(self) -> Mapping[str, list[tuple[Any, ...]]]:
        """Rows of `actors.csv` since they were last asked for."""
        return {"actors.csv": self._throughput.read()}

    def settle(self) -> None:
        """Do nothing: a round ends with its last update."""

    def restart(self) -> None:
        """Do nothing: a resumed training begins new episodes in any case."""

    def params(self) -> dict[int, Params]:
        """Online parameters of the one seed, as numpy arrays."""
        return {self.learner.seed: self.learner.params}

    def require_finite(self) -> None:
        """Raise `UserError` if parameters are no longer finite."""
        self.learner.require_finite()

    def snapshot(self) -> Snapshot:
        """Return the state of the learner; actors are not asked for theirs."""
        return self.learner.snapshot()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a snapshot, with actors that begin new episodes."""
        self.learner.restore(checkpoint)
        self._start()

    def close(self) -> None:
        """Leave the cluster; actors end with that."""
        self.envs.close()


class Throughput:
    """Sums up rounds into rows of `actors.csv`."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._since: tuple[float, Counters] | None = None
        self._staleness: list[int] = []
        self._waited = 0.0

    def add(self, counters: Counters, staleness: int, waited: float, lost: int) -> None:
        """Note a round that has been learned from."""
        now = time.perf_counter()
        if self._since is None:  # the first one compiles
            self._since = now, counters
            return
        self._staleness.append(staleness)
        self._waited += waited
        start, before = self._since
        seconds = now - start
        if seconds < _SECONDS_PER_ROW:
            return
        rates = (counters.step - before.step) / seconds, (counters.updates - before.updates) / seconds
        self._rows.append(
            (
                *(counters.step, round(seconds, 2), *(round(rate, 1) for rate in rates)),
                *(round(float(np.mean(self._staleness)), 1), max(self._staleness)),
                *(round(self._waited / seconds, 3), lost),
            )
        )
        self._since, self._staleness, self._waited = (now, counters), [], 0.0

    def read(self) -> list[tuple[Any, ...]]:
        """Rows since they were last asked for."""
        rows, self._rows = self._rows, []
        return rows


def _side_by_side(played: Sequence[Played]) -> Played:
    """Join the same tick of all actors into one of all their slots."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *played)
