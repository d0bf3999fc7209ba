"""The network that sees: against XLA's own convolutions, sizes by layer, and what flows back into the trunk."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.agent import ATARI_AGENTS, make_agent, make_network, make_optimizer
from bootdqn.errors import UserError
from bootdqn.networks import make_picture_trunk
from bootdqn.types import Encoding, Transition

PICTURES = Encoding("pictures", 4 * 84 * 84)
NUM_ACTIONS = 4


def pictures(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 84, 84)).astype(np.uint8)


def kernel(weight: jax.Array, stride: int, size: int, num_in: int, *, pictures_first: bool) -> jax.Array:
    """A convolution's kernel [height, width, in, out] from our weights on blocks of pixels."""
    blocks = size // stride
    order = (
        (blocks, blocks, num_in, stride, stride) if pictures_first else (blocks, blocks, stride, stride, num_in)
    )
    weight = weight.reshape(*order, -1)
    axes = (0, 3, 1, 4, 2, 5) if pictures_first else (0, 2, 1, 3, 4, 5)
    return weight.transpose(axes).reshape(size, size, num_in, -1)


def test_the_trunk_is_dqns():
    trunk = make_picture_trunk(jax.random.key(0))
    stack = pictures(0, 1)[0]
    x = jnp.asarray(stack).transpose(1, 2, 0)[None].astype(jnp.float32) / 255
    for layer, (size, stride, num_in) in zip(trunk.layers, ((8, 4, 4), (4, 2, 32), (3, 1, 64)), strict=True):
        weights = kernel(layer.weight, stride, size, num_in, pictures_first=num_in == 4)
        x = jax.lax.conv_general_dilated(
            x, weights, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer.bias[None, None, None])
    assert x.shape == (1, 7, 7, 64)
    np.testing.assert_allclose(trunk(jnp.asarray(stack)), x.reshape(-1), rtol=1e-4, atol=1e-5)
    assert float(x.std()) > 0.01


def test_both_ways_to_convolve_are_the_same_function():
    trunk = make_picture_trunk(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (9, 9, 64))
    for layer in trunk.layers[2:]:
        other = dataclasses.replace(layer, patches=not layer.patches)
        np.testing.assert_allclose(layer(x), other(x), rtol=1e-4, atol=1e-5)
        gradients = [eqx.filter_grad(lambda c: jnp.square(c(x)).sum())(c) for c in (layer, other)]
        for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-2)


def test_parameters_by_layer():
    agent = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=10)
    network = eqx.filter_eval_shape(make_network(agent, PICTURES, NUM_ACTIONS), jax.random.key(0))
    sizes = [
        sum(leaf.size for leaf in jax.tree.leaves(layer)) for layer in (*network.trunk.layers, *network.layers)
    ]
    assert sizes == [8_224, 32_832, 36_928, 10 * 1_606_144, 10 * 2_052]
    dqn = eqx.filter_eval_shape(make_network(ATARI_AGENTS["dqn"], PICTURES, 18), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(dqn)) == 1_693_362  # Nature DQN with 18 actions


def make_batch(num_heads: int) -> Transition:
    rng = np.random.default_rng(3)
    return Transition(
        *(jnp.asarray(pictures(1, 4)), jnp.array([0, 1, 2, 3])),
        *(jnp.asarray(rng.normal(size=4), jnp.float32), jnp.full(4, 0.99)),
        *(jnp.asarray(pictures(2, 4)), jnp.ones((4, num_heads))),
    )


def gradients(num_heads: int, mask: jax.Array | float = 1.0, **options):
    """The gradient of the first update: the running mean that the optimizer keeps is 0.05 of it."""
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=num_heads, hidden=(8,), **options)
    agent = make_agent(config, make_network(config, PICTURES, NUM_ACTIONS), NUM_ACTIONS)
    learner = agent.init(jax.random.key(0))
    after, _ = jax.jit(agent.update)(
        learner, make_batch(num_heads)._replace(mask=jnp.broadcast_to(mask, (4, num_heads)))
    )
    # The first step of centred RMSProp is an odd, monotonic function of the gradient; its mean is 0.05 g.
    return jax.tree.map(lambda mean: mean / 0.05, after.opt_state[0].mu)


def test_masks_and_trunk_scaling_reach_the_convolutions():
    none = gradients(3, 0.0)
    assert all(not jnp.any(leaf) for leaf in jax.tree.leaves(none))
    alone = [gradients(3, jnp.eye(3)[k], scale_trunk_gradient=False) for k in range(3)]
    together = gradients(3)
    for *parts, whole in zip(*[jax.tree.leaves(g.trunk) for g in [*alone, together]], strict=True):
        # The trunk gets the mean over heads.
        np.testing.assert_allclose(whole, sum(parts) / 3, rtol=2e-3, atol=1e-7)
        assert jnp.any(whole)
    for k in range(3):
        for one, whole in zip(*[jax.tree.leaves(g.layers) for g in (alone[k], together)], strict=True):
            np.testing.assert_allclose(one[k], whole[k], rtol=2e-3, atol=1e-7)  # a head's own gradient is its own
            assert not jnp.any(jnp.delete(one, k, axis=0))


def test_centred_rmsprop_is_the_originals():
    """By hand, two steps of the original: sums over the batch, 0.01 under the root."""
    config = dataclasses.replace(ATARI_AGENTS["boot"], batch_size=32)
    optimizer = make_optimizer(config)
    params = jnp.array([1.0, -2.0, 0.0])
    state = optimizer.init(params)
    mean, square, expected = np.zeros(3), np.zeros(3), np.array([1.0, -2.0, 0.0])
    for total in ([3.0, -0.2, 0.0], [-1.0, -0.4, 0.5]):  # summed over the batch
        total = np.array(total)
        mean = 0.95 * mean + 0.05 * total
        square = 0.95 * square + 0.05 * total**2
        expected = expected - 2.5e-4 * total / np.sqrt(square - mean**2 + 0.01)
        change: Any
        change, state = optimizer.update(jnp.asarray(total / 32, jnp.float32), state, params)
        params = params + change
    np.testing.assert_allclose(params, expected, rtol=1e-6, atol=1e-9)
    first = 2.5e-4 * 3.0 / np.sqrt(0.05 * 9 - 0.0025 * 9 + 0.01)
    assert first == pytest.approx(0.00113389, rel=1e-5)  # the first step of the first number


def test_rewards_are_clipped_in_learning_alone():
    batch = make_batch(2)
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2, hidden=(8,))
    agent = make_agent(config, make_network(config, PICTURES, NUM_ACTIONS), NUM_ACTIONS)
    learner, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    losses = {
        scale: float(update(learner, batch._replace(reward=jnp.array([scale, -scale, 0.5, 0.0])))[1].loss)
        for scale in (1.0, 50.0)
    }
    assert losses[1.0] == losses[50.0]
    assert losses[1.0] > 0.1


def test_errors():
    config = dataclasses.replace(ATARI_AGENTS["boot"], trunk_hidden=(64,))
    with pytest.raises(UserError, match="pictures have a trunk of convolutions"):
        make_network(config, PICTURES, NUM_ACTIONS)
