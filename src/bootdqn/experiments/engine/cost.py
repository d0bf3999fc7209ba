"""Estimates what runs will need, without running anything.

The rates below were measured by `bootdqn bench` on two cores of an x86-64 machine; results/bench has all figures.
They only serve to announce a sweep and to weight its progress bar: other machines need no rates of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import jax

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AgentConfig
from bootdqn.core.conv_trunk import PICTURES
from bootdqn.envs.atari import is_atari
from bootdqn.envs.registry import make_env
from bootdqn.envs.vector import make_envs
from bootdqn.experiments.engine.experiment import Cost
from bootdqn.loops.learner import HostLearner
from bootdqn.runs.config import RunConfig
from bootdqn.runs.records import PER_SEED
from bootdqn.runs.seed_results import make_seed_loop
from bootdqn.types import Encoding

_COMPILE_SECONDS = 8.0
"""Seconds to compile a training on a compiled environment."""
_SECONDS_PER_STEP = 5e-5
"""Seconds of a step on a compiled environment, however small the networks."""
_FLOPS_PER_SECOND = 32e9
"""Arithmetic rate of small networks on one core, at least: 43e9 in the reference setting of `bench chain`."""
_FLOPS_PER_TABLE_WEIGHT = 30
"""Time of the optimizer's pass over a one-hot table, which memory limits, in floating-point operations."""
_SECONDS_PER_TABULAR_ENTRY = 1e-7
"""Seconds per entry of the H transition tables that a tabular baseline takes for an episode (`bench tabular`)."""
_GYM_SECONDS_PER_STEP = 2.5e-3
"""Seconds of a step on a Gymnasium environment with the default agent on one core (docs/gymnasium.md)."""
_ATARI_CORES = 2
"""The number of cores that the rates on Atari were measured with."""
_ATARI_SECONDS_PER_STEP = 2e-3
"""Seconds to act, to step an Atari game and to store the frame (`bench atari`)."""
_ATARI_FLOPS_PER_SECOND = 130e9
"""Arithmetic rate of an update on pictures (median of `bench atari`)."""
_ATARI_ACTIONS = 18
"""The largest number of actions of an Atari game."""
_FRAME_BYTES = 84 * 84
_CHECKPOINT_COMPRESSION = 10
"""How much smaller frames are in a checkpoint."""
_CONVOLUTIONS = (20 * 20 * 32 * 8 * 8 * 4, 9 * 9 * 64 * 4 * 4 * 32, 7 * 7 * 64 * 3 * 3 * 64)
"""Multiply-adds of the convolutions: output pixels times output channels times inputs of each."""
_NUM_FEATURES = 7 * 7 * 64
"""The number of features that the convolutions return."""


def update_flops(config: AgentConfig, num_inputs: int, num_actions: int) -> int:
    """Count the floating-point operations in the matrix products of one update of separate networks."""
    return _update_flops(config, _head_layers(config, num_inputs, num_actions))


def picture_update_flops(config: AgentConfig, num_actions: int) -> int:
    """Count the floating-point operations in the products of one update on Atari pictures."""
    return _update_flops(config, [*_CONVOLUTIONS, *_head_layers(config, _NUM_FEATURES, num_actions)])


def _head_layers(config: AgentConfig, num_inputs: int, num_actions: int) -> list[int]:
    """Count the multiply-adds of every layer of all heads, for one observation."""
    return [config.num_heads * a * b for a, b in pairwise((num_inputs, *config.hidden, num_actions))]


def _update_flops(config: AgentConfig, layers: Sequence[int]) -> int:
    """Count the floating-point operations of one update, from the multiply-adds of the layers.

    There is a forward pass of the online network at the observation, one of the target network at the next one,
    with the double-Q target one of the online network there, and with an action gap one of the target network at
    the observation. Backward there are two products per layer, one for the weights and one for the layer's input,
    which the first layer does not need.
    """
    forward = 2 + config.double_q + (config.action_gap > 0)
    return 2 * config.batch_size * ((forward + 2) * sum(layers) - layers[0])


def estimate_cost(config: RunConfig) -> Cost:
    """Estimate what a run needs if it lasts to its last episode or step."""
    if config.loop not in PER_SEED:
        return _atari_cost(config) if is_atari(str(config.env)) else _gym_cost(config)
    env = make_env(str(config.env))
    if config.loop == "compiled":
        agent = config.deep
        size, flops = env.encoding.size, 0
        if env.encoding.kind == "one_hot":  # looked up and not multiplied, but the optimizer visits all weights
            first_layer = agent.num_heads * size * (*agent.hidden, env.num_actions)[0]
            size, flops = 0, _FLOPS_PER_TABLE_WEIGHT * first_layer
        flops += update_flops(agent, size, env.num_actions)
        per_step = _SECONDS_PER_STEP + flops / agent.learning_period_steps / _FLOPS_PER_SECOND
        seconds = config.episodes * env.horizon * per_step
    else:
        states, actions, horizon = env.mdp.shape
        seconds = config.episodes * horizon * states * actions * states * _SECONDS_PER_TABULAR_ENTRY
    return Cost(
        core_seconds=_COMPILE_SECONDS + config.num_seeds * seconds,
        least_seconds=_COMPILE_SECONDS + seconds,
        bytes=make_seed_loop(config).memory_bytes(),
        threads=config.num_seeds,
    )


def _gym_cost(config: RunConfig) -> Cost:
    """Estimate what a run on a Gymnasium environment needs, which is made to see its spaces."""
    envs = make_envs(str(config.env), config.num_envs, "sync")
    learner = HostLearner(
        config.deep,
        envs.observations,
        envs.num_actions,
        num_envs=envs.num_envs,
        seed=config.seed,
        steps=config.steps,
    )
    needed = learner.memory_bytes()
    envs.close()
    seconds = config.steps * _GYM_SECONDS_PER_STEP
    return Cost(core_seconds=seconds, least_seconds=seconds, bytes=needed)


def _atari_cost(config: RunConfig) -> Cost:
    """Estimate what a run on an Atari game needs."""
    agent = config.deep
    update_seconds = picture_update_flops(agent, _ATARI_ACTIONS) / _ATARI_FLOPS_PER_SECOND
    per_step = _ATARI_SECONDS_PER_STEP + update_seconds / agent.learning_period_steps
    every = config.evaluate_every_steps
    evaluated = config.steps // every * config.evaluation_steps if every else 0
    seconds = config.steps * per_step + evaluated * _ATARI_SECONDS_PER_STEP
    frames = min(agent.replay_capacity, config.steps)
    init = make_agent(agent, Encoding("pictures", math.prod(PICTURES)), _ATARI_ACTIONS).init
    leaves = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    learner_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return Cost(
        core_seconds=seconds * _ATARI_CORES,
        least_seconds=seconds,
        bytes=learner_bytes + frames * (_FRAME_BYTES + 4 * agent.num_heads + 14),
        # Checkpoints hold up to three learners, and the frames.
        disk_bytes=3 * learner_bytes + frames * _FRAME_BYTES // _CHECKPOINT_COMPRESSION,
        device_bytes=2 * learner_bytes,  # with the gradient and what it is made from
        note=f"with {agent.num_heads} heads about {1e3 * update_seconds:.0f} ms per update and "
        f"{1 / per_step:.0f} steps/s on {_ATARI_CORES} cores, so {seconds / 86400:,.2f} days for "
        f"{config.steps:,} steps",
    )
