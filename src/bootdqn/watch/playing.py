"""Heads at play: one or several slots, each played by a policy that is made from the same heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.agent import make_agent, make_network
from bootdqn.gym_run import GymConfig
from bootdqn.loops.evaluate import make_chooser
from bootdqn.runs.arrays import restore
from bootdqn.types import Belief, Params
from bootdqn.watch.models import Snapshot
from bootdqn.watch.stages import Scene, Stage


class Player(NamedTuple):
    """One set of heads on a stage."""

    stage: Stage
    config: GymConfig
    chooser: Callable[..., tuple[Array, Belief]]
    params: Params
    title: str
    seed: int

    def play(self, policies: Sequence[int], steps: int) -> Iterator[tuple[Scene, Belief, NDArray[Any]]]:
        """What is seen, believed of it and done about it in all slots, step by step; then, what is seen at last.

        Slots differ in their policies alone: they start alike, and ties and random actions are drawn alike.
        """
        words = np.random.SeedSequence([self.config.seed, self.seed]).generate_state(2)
        keys = jnp.broadcast_to(jax.random.key(int(words[1])), (len(policies),))
        scene = self.stage.reset(int(words[0]) >> 1)
        for tick in range(steps + 1):
            chosen = self.chooser(
                self.params, keys, scene.obs, np.asarray(policies, np.int32), tick, self.config.evaluation_epsilon
            )
            actions, belief = jax.tree.map(np.asarray, chosen)
            yield scene, belief, actions
            if tick == steps or scene.over.all():
                return
            scene = self.stage.step(actions)


def make_players(stage: Stage, config: GymConfig, snapshots: Sequence[Snapshot], seed: int) -> list[Player]:
    """A player for each of several sets of parameters, by one compiled program."""
    network = make_network(config.agent, stage.observations.encoding, stage.num_actions)
    agent = make_agent(config.agent, network, stage.num_actions)
    like = jax.eval_shape(agent.init, jax.random.key(0)).params
    chooser = make_chooser(agent)
    return [
        Player(stage, config, chooser, restore(like, snapshot.arrays, snapshot.path), snapshot.title, seed)
        for snapshot in snapshots
    ]
