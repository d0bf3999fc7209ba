"""The network that sees: against XLA's own convolutions, sizes by layer, and what flows back into the trunk."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.agent import ATARI_AGENTS, make_agent, make_network
from bootdqn.errors import UserError
from bootdqn.pictures import PictureTrunk, make_picture_trunk, product
from bootdqn.types import Encoding, Transition
from bootdqn.updates import make_optimizer

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


def convolve(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    """Features [B, 3136] by XLA's own convolutions."""
    x = stacks.transpose(0, 2, 3, 1).astype(jnp.float32) / 255
    for layer, (size, stride, num_in) in zip(trunk.layers, ((8, 4, 4), (4, 2, 32), (3, 1, 64)), strict=True):
        weights = kernel(layer.weight, stride, size, num_in, pictures_first=num_in == 4)
        x = jax.lax.conv_general_dilated(
            x, weights, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer.bias[None, None, None])
    assert x.shape[1:] == (7, 7, 64)
    return x.reshape(len(stacks), -1)


def one_by_one(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jnp.stack([trunk(stack) for stack in stacks])


def batched(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.vmap(trunk)(stacks)


def batched_twice(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.vmap(jax.vmap(trunk), out_axes=1)(stacks[:, None]).reshape(len(stacks), -1)


def in_a_loop(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda _, stack: (None, batched(trunk, stack[None])[0]), None, stacks)[1]


def with_weights_each(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    each = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(stacks), *leaf.shape)), trunk)
    return jax.vmap(lambda trunk, stack: trunk(stack))(each, stacks)


def with_weights_each_on_all(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), trunk)
    return jax.vmap(lambda trunk: jax.vmap(trunk)(stacks))(both)[0]


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-4) -> None:
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        scale = float(jnp.abs(b).max())
        assert scale > 0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("kernels", ["1", "0"], ids=["kernel", "xla"])
@pytest.mark.parametrize(
    ("features", "count"),
    [
        *((one_by_one, 1), (batched, 1), (batched, 3), (batched, 32), (batched_twice, 3), (in_a_loop, 3)),
        *((with_weights_each, 3), (with_weights_each_on_all, 3)),
    ],
)
def test_the_trunk_is_dqns(features, count, kernels, monkeypatch):
    """Values, and gradients for all weights and biases."""
    monkeypatch.setenv("BOOTDQN_KERNELS", kernels)
    trunk, stacks = make_picture_trunk(jax.random.key(0)), jnp.asarray(pictures(0, count))
    weights = jax.random.normal(jax.random.key(1), (count, 3136))

    def value_and_gradient(function):
        @eqx.filter_jit
        @partial(eqx.filter_value_and_grad, has_aux=True)
        def loss(trunk):
            outputs = function(trunk, stacks)
            return jnp.vdot(weights, jnp.sin(9 * outputs)), outputs

        (_, outputs), gradient = loss(trunk)
        return outputs, gradient

    ours, theirs = value_and_gradient(features), value_and_gradient(convolve)
    assert_close(ours, theirs)
    assert float(theirs[0].std()) > 0.01


def test_a_batch_is_one_product_a_layer_without_the_kernel():
    trunk, stacks = make_picture_trunk(jax.random.key(0)), jnp.asarray(pictures(0, 3))
    jaxpr = jax.make_jaxpr(jax.vmap(trunk.by_xla))(stacks)
    shapes = [eqn.invars[0].aval.shape for eqn in jaxpr.eqns if eqn.primitive.name == "product"]
    assert shapes == [(3 * 400, 256), (3 * 81, 512), (3 * 49, 576)]


@pytest.mark.parametrize("axes", [(0, None), (2, None), (None, 0), (None, 1), (0, 0), (1, 2)])
def test_products_of_batches(axes):
    shapes = [(4, 5), (5, 3)]
    operands = [
        jax.random.normal(jax.random.key(i), shape if axis is None else (*shape[:axis], 7, *shape[axis:]))
        for i, (shape, axis) in enumerate(zip(shapes, axes, strict=True))
    ]

    def results(multiply):
        function = jax.vmap(multiply, in_axes=axes)
        outputs, back = jax.vjp(function, *operands)
        forward = jax.jvp(function, operands, [jnp.cos(operand) for operand in operands])
        # Of the gradients of each of a batch, too.
        each = jax.vmap(jax.grad(lambda x, w: jnp.sin(multiply(x, w)).sum(), argnums=(0, 1)), in_axes=axes)
        return outputs, back(jnp.sin(outputs)), forward, each(*operands)

    assert_close(results(product), results(jnp.matmul), 1e-5)
    np.testing.assert_allclose(product(jnp.eye(2), jnp.array([[1.0, 2], [3, 4]])), [[1, 2], [3, 4]])


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


@pytest.fixture(params=["1", "0"], ids=["kernel", "xla"])
def kernels(request, monkeypatch):
    """With our kernels, and without."""
    monkeypatch.setenv("BOOTDQN_KERNELS", request.param)


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


@pytest.mark.usefixtures("kernels")
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
