"""Plays episodes with the heads of a model, in one or several slots with one policy each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.core.agent import make_agent
from bootdqn.loops.rollout import make_chooser
from bootdqn.runs.arrays import restore
from bootdqn.runs.config import RunConfig
from bootdqn.types import Belief, Params
from bootdqn.watch.models import HeadsSnapshot
from bootdqn.watch.stages import Scene, Stage


class Performer(NamedTuple):
    """The heads of one model on a stage."""

    stage: Stage
    config: RunConfig
    chooser: Callable[..., tuple[Array, Belief]]
    params: Params
    title: str
    seed: int

    def play(self, policies: Sequence[int], steps: int) -> Iterator[tuple[Scene, Belief, NDArray[Any]]]:
        """Play an episode, and yield the scene, the beliefs and the actions of all slots at every step.

        The last yield is the final scene. Slots differ in their policies only: they start from the same state, and
        ties and random actions are drawn in the same way.

        Args:
            policies: the policy of every slot, a head's index or one of `VOTE` and `MEAN`.
            steps: the largest number of steps.
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


def make_performers(
    stage: Stage, config: RunConfig, snapshots: Sequence[HeadsSnapshot], seed: int
) -> list[Performer]:
    """A performer for every snapshot; they share one compiled program."""
    agent = make_agent(config.deep, stage.observations.encoding, stage.num_actions)
    like = jax.eval_shape(agent.init, jax.random.key(0)).params
    chooser = make_chooser(agent)
    return [
        Performer(stage, config, chooser, restore(like, snapshot.arrays, snapshot.path), snapshot.title, seed)
        for snapshot in snapshots
    ]
