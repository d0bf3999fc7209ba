"""One large training: actors in a Ray cluster play, and one learner here learns from what they send.

In rounds: all actors play the same number of ticks with the same parameters, while the learner learns from the
round before. So their parameters lack at most the updates of one round.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.agent import AgentConfig, make_agent, make_network
from bootdqn.cluster import (
    MOST_DEATHS,
    WORKER_BYTES,
    WORKER_ENVIRONMENT,
    describe_machine,
    join_cluster,
    reason,
    require_same_versions,
)
from bootdqn.envs.host import EnvSource, Vectorization, make_envs
from bootdqn.errors import UserError, require
from bootdqn.loops.host import Counters, Episode, HostTraining
from bootdqn.loops.slots import Draws, Slots, make_acting, make_slots
from bootdqn.types import HostStep

THROUGHPUT = (
    *("step", "seconds", "steps_per_second", "updates_per_second"),
    *("staleness_mean", "staleness_max", "waiting", "lost"),
)
"""Columns of `actors.csv`; docs/clusters.md says what each means."""
_SECONDS_A_ROW = 5.0
"""That a row of it covers, at least."""
_MOST_TICKS = 100
"""Of a round, however old parameters may be."""


class Played(NamedTuple):
    """One tick of some slots, as numbers of the host; arrays [S, ...]."""

    obs: NDArray[Any]
    """What was acted on; of pictures, the newest."""
    fresh: NDArray[np.bool_]
    """Whether it begins an episode."""
    heads: NDArray[np.int32]
    mask: NDArray[np.float32]
    actions: NDArray[np.int32]
    step: HostStep


class Setting(NamedTuple):
    """What every actor is told at its birth."""

    source: EnvSource
    num_envs: int
    """Slots of one actor."""
    vectorization: Vectorization
    agent: AgentConfig
    trunk: Callable[[Array], Any] | None
    seed: int


class Player:
    """What an actor is: plays in slots of its own, with parameters that it is given."""

    def __init__(self, setting: Setting, index: int, born: int):
        """Make environments.

        Args:
            setting: that of all actors.
            index: its number among them.
            born: steps of the training so far; an actor that takes the place of another plays other episodes.
        """
        # JAX has been imported but has not begun to compute, which is when it and XLA read most of these.
        os.environ.update(WORKER_ENVIRONMENT)
        self._envs = make_envs(setting.source, setting.num_envs, setting.vectorization)
        observations = self._envs.observations
        network = make_network(setting.agent, observations.encoding, self._envs.num_actions, setting.trunk)
        agent = make_agent(setting.agent, network, self._envs.num_actions)
        acting = make_acting(agent, setting.agent, setting.num_envs)

        def act(*arguments: Any) -> tuple[Array, Array, Slots]:
            actions, slots = acting.act(*arguments)
            return actions, acting.draw(slots).mask, slots

        self._act = jax.jit(act)
        self._params = jax.tree.structure(jax.eval_shape(agent.init, jax.random.key(0)).params)
        self._newest_only = observations.encoding.kind == "pictures"
        key = jax.random.fold_in(jax.random.key(setting.seed), born)
        self._slots = make_slots(key, setting.agent, setting.num_envs, first=index * setting.num_envs)
        words = np.random.SeedSequence([setting.seed, born, index]).generate_state(setting.num_envs)
        self._obs = self._envs.reset([int(word) >> 1 for word in words])
        self._fresh = np.ones(setting.num_envs, bool)

    def hello(self) -> tuple[str, dict[str, str]]:
        """The machine's name, and versions of packages."""
        return describe_machine()

    def play(self, leaves: list[NDArray[Any]], step: int, ticks: int) -> list[Played]:
        """Play some ticks.

        Args:
            leaves: of the parameters.
            step: of the training, which decides epsilon.
            ticks: how many.
        """
        params = jax.device_put(jax.tree.unflatten(self._params, leaves))
        played = []
        for _ in range(ticks):
            action, mask, self._slots = self._act(params, self._slots, self._fresh, self._obs, step)
            actions = np.asarray(action)
            came = self._envs.step(actions)
            played.append(
                Played(
                    self._seen(self._obs),
                    self._fresh,
                    np.asarray(self._slots.head),
                    np.asarray(mask),
                    actions,
                    came._replace(obs=self._seen(came.obs), next_obs=self._seen(came.next_obs)),
                )
            )
            self._obs, self._fresh = came.obs, came.fresh
        return played

    def _seen(self, obs: NDArray[Any]) -> NDArray[Any]:
        """What the learner needs of observations."""
        return obs[:, -1:] if self._newest_only else obs


class Cluster:
    """Actors somewhere in a Ray cluster, and what the slots of all of them have in common."""

    def __init__(self, address: str | None, num_actors: int, setting: Setting):
        """Join the cluster; actors are not yet started.

        Args:
            address: as for `join_cluster`.
            num_actors: how many.
            setting: of each.
        """
        self.num_actors = num_actors
        self.setting = setting
        self.num_envs = num_actors * setting.num_envs
        """Slots of all actors."""
        one = make_envs(setting.source, 1)  # what cannot be made shows here
        self.observations = one.observations
        self.num_actions, self.first_action = one.num_actions, one.first_action
        one.close()
        self.lost = 0
        """Actors that died."""
        self._ray = join_cluster(address)
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if cores < num_actors:
            self.close()
            raise UserError(f"{num_actors} actors need a core each, and the Ray cluster has {cores}")
        self._make = self._ray.remote(Player).options(num_cpus=1, memory=WORKER_BYTES, max_restarts=0)
        self._actors: list[Any] = []
        self._rounds: list[Any] = []

    def start(self, born: int) -> None:
        """Start all actors anew."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = [self._make.remote(self.setting, index, born) for index in range(self.num_actors)]
        try:
            for hello in [actor.hello.remote() for actor in self._actors]:
                require_same_versions(*self._answer(hello))
        except self._ray.exceptions.RayActorError as error:
            raise UserError(f"an actor does not start: {reason(error)}") from None

    def send(self, leaves: list[NDArray[Any]], step: int, ticks: int) -> None:
        """Let all actors play a round."""
        self._asked = self._ray.put(leaves), step, ticks
        self._rounds = [actor.play.remote(*self._asked) for actor in self._actors]

    def receive(self) -> tuple[list[list[Played]], list[int]]:
        """What each actor played, and which of them had died and were replaced."""
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
                    self._actors[index] = self._make.remote(self.setting, index, self._asked[1])
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


class ActorTraining(HostTraining):
    """Trains one agent on what actors play.

    It cannot be resumed to the same bits: environments cannot be asked for their state, so a training that goes on
    has actors that begin new episodes, as has one that lost an actor.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: AgentConfig,
        *,
        seed: int,
        steps: int,
        max_staleness: int,
        trunk: Callable[[Array], Any] | None = None,
    ):
        """Allocate nothing yet.

        Args:
            cluster: where actors play.
            config: the agent's.
            seed: of everything.
            steps: environment steps that are planned.
            max_staleness: updates that the parameters of actors may lack.
            trunk: as for `make_network`.
        """
        super().__init__(cluster, config, seed=seed, steps=steps, trunk=trunk)  # pyright: ignore[reportArgumentType]
        self.cluster = cluster
        self.ticks = min(_MOST_TICKS, max_staleness * config.learning_period_steps // cluster.num_envs)
        """Of a round."""
        require(
            self.ticks > 0,
            f"one step in all {cluster.num_envs} environments is "
            f"{-(-cluster.num_envs // config.learning_period_steps)} updates, and actors may lack no more than "
            f"{max_staleness}; raise max_staleness_updates, or have fewer",
        )
        self._sent_at = 0
        self.throughput = Throughput()

    def restart(self) -> None:
        """Nothing: going on is with new episodes in any case."""

    def settle(self) -> None:
        """Wait for the last update: nobody acts here, and actors are sent what they act with."""
        jax.block_until_ready(self.learned)
        self._lags = False

    def _start_episodes(self) -> None:
        self.cluster.start(self.counters.step)
        self._send()

    def _send(self) -> None:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.learned.learner.params)]
        self._sent_at = self.counters.updates
        self.cluster.send(leaves, self.counters.step, self.ticks)

    def tick(self) -> list[Episode]:
        """A round, and the updates that are due; returns the episodes that ended."""
        start = time.perf_counter()
        rounds, replaced = self.cluster.receive()
        waited = time.perf_counter() - start
        for index in replaced:
            size = self.cluster.setting.num_envs
            slots = slice(index * size, (index + 1) * size)
            self._returns[slots], self._lengths[slots] = 0, 0
        staleness = self.counters.updates - self._sent_at
        self._send()
        episodes = []
        for played in map(_side_by_side, zip(*rounds, strict=True)):
            self._obs, self._fresh, self.heads = played.obs, played.fresh, played.heads
            key = jax.random.fold_in(jax.random.key(self.seed), self.counters.step)
            episodes += self._take_in(Draws(jnp.asarray(played.mask), key), played.actions, played.step)
            self.flush()
        self.settle()  # the last update ends here: what comes next needs it in any case
        self.throughput.add(self.counters, staleness, waited, self.cluster.lost)
        return episodes


class Throughput:
    """Makes rows of `actors.csv` from rounds."""

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
        if seconds < _SECONDS_A_ROW:
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
        """Rows since the last reading."""
        rows, self._rows = self._rows, []
        return rows


def _side_by_side(played: Sequence[Played]) -> Played:
    """The same tick of all actors, as one of all their slots."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *played)
