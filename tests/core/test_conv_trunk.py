"""The network that sees: against XLA's own convolutions, sizes by layer, and what flows back into the trunk."""

import dataclasses
import os
import re
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.agent import make_agent, make_network
from bootdqn.core.config import ATARI_AGENTS, GYM_AGENTS
from bootdqn.core.conv_trunk import PictureTrunk, make_picture_trunk, product
from bootdqn.core.kernels import OuterProducts, why_not
from bootdqn.core.update import make_gradient, make_optimizer
from bootdqn.envs.vector import make_envs
from bootdqn.errors import UserError
from bootdqn.types import Encoding, Transition
from small_runs import host_loop

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
    return trunk(stacks)


def by_vmap(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.vmap(trunk)(stacks)


def by_vmap_of_vmap(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.vmap(jax.vmap(trunk), out_axes=1)(stacks[:, None]).reshape(len(stacks), -1)


def by_vmap_of_batches(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.vmap(trunk)(jnp.stack([stacks, 255 - stacks]))[0]


def in_a_loop(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda _, stack: (None, batched(trunk, stack[None])[0]), None, stacks)[1]


def with_weights_each(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    numbers, rest = eqx.partition(trunk, eqx.is_array)
    each = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(stacks), *leaf.shape)), numbers)
    return jax.vmap(lambda numbers, stack: eqx.combine(numbers, rest)(stack))(each, stacks)


def with_weights_each_on_all(trunk: PictureTrunk, stacks: jax.Array) -> jax.Array:
    numbers, rest = eqx.partition(trunk, eqx.is_array)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), numbers)
    return jax.vmap(lambda numbers: eqx.combine(numbers, rest)(stacks))(both)[0]


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-4) -> None:
    for a, b in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        scale = float(jnp.abs(b).max())
        assert scale > 0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


@pytest.fixture(params=[True, False], ids=["kernel", "xla"])
def kernels(request):
    """With our kernels, and without."""
    if request.param and why_not() is not None and "CI" not in os.environ:
        pytest.skip(f"no kernels here: {why_not()}")
    return request.param


@pytest.mark.parametrize(
    ("features", "count"),
    [
        *((one_by_one, 1), (batched, 3)),
        *(
            pytest.param(*case, marks=pytest.mark.integration)
            for case in (
                *((batched, 1), (batched, 32), (by_vmap, 3), (by_vmap_of_vmap, 3), (by_vmap_of_batches, 3)),
                *((in_a_loop, 3), (with_weights_each, 3), (with_weights_each_on_all, 3)),
            )
        ),
    ],
)
def test_the_trunk_is_dqns(features, count, kernels):
    """Values, and gradients for all weights and biases."""
    trunk = make_picture_trunk(jax.random.key(0), kernels=kernels)
    stacks = jnp.asarray(pictures(0, count))
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


def test_a_batch_is_one_product_per_layer_without_the_kernel_and_so_is_its_gradient():
    layers, stacks = make_picture_trunk(jax.random.key(0)).layers, jnp.asarray(pictures(0, 3))

    def features(layers):
        return PictureTrunk(layers, kernels=False)(stacks)

    def products(function):
        text = jax.jit(function).lower(layers).as_text()
        return set(re.findall(r"dot_general .* : \(tensor<(\d+x\d+)xf32>, tensor<(\d+x\d+)xf32>\)", text))

    forward = {("1200x256", "256x32"), ("243x512", "512x64"), ("147x576", "576x64")}
    assert products(features) == forward
    backward = products(jax.grad(lambda layers: features(layers).sum())) - forward
    of_weights = {("32x1200", "1200x256"), ("64x243", "243x512"), ("64x147", "147x576")}
    of_pixels = {("147x64", "64x576"), ("243x64", "64x512")}
    assert of_weights | of_pixels <= backward <= of_weights | of_pixels | {("1200x32", "32x256")}


@pytest.mark.integration
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
        # Of the gradients of each of a batch, too.
        each = jax.vmap(jax.grad(lambda x, w: jnp.sin(multiply(x, w)).sum(), argnums=(0, 1)), in_axes=axes)
        return outputs, back(jnp.sin(outputs)), each(*operands)

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
    sizes = [leaf.size for leaf in jax.tree.leaves((dqn.trunk.layers, dqn.layers))]
    assert sum(sizes) == 1_693_362  # Nature DQN with 18 actions


def make_batch(num_heads: int) -> Transition:
    rng = np.random.default_rng(3)
    return Transition(
        *(jnp.asarray(pictures(1, 4)), jnp.array([0, 1, 2, 3])),
        *(jnp.asarray(rng.normal(size=4), jnp.float32), jnp.full(4, 0.99)),
        *(jnp.asarray(pictures(2, 4)), jnp.ones((4, num_heads))),
    )


def gradients(kernels: bool, num_heads: int, mask: jax.Array | float = 1.0, **options):
    """The gradient of the first update: the running mean that the optimizer keeps is 0.05 of it."""
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=num_heads, hidden=(8,), **options)
    agent = make_agent(config, PICTURES, NUM_ACTIONS, kernels=kernels)
    learner = agent.init(jax.random.key(0))
    after, _, _ = jax.jit(agent.update)(
        learner, make_batch(num_heads)._replace(mask=jnp.broadcast_to(mask, (4, num_heads)))
    )
    # The first step of centred RMSProp is an odd, monotonic function of the gradient; its mean is 0.05 g.
    return jax.tree.map(lambda mean: mean / 0.05, after.opt_state[0].mu)


@pytest.mark.integration
def test_masks_and_trunk_scaling_reach_the_convolutions(kernels):
    none = gradients(kernels, 3, 0.0)
    assert all(not jnp.any(leaf) for leaf in jax.tree.leaves(none))
    alone = [gradients(kernels, 3, jnp.eye(3)[k], scale_trunk_gradient=False) for k in range(3)]
    together = gradients(kernels, 3)
    for *parts, whole in zip(*[jax.tree.leaves(g.trunk) for g in [*alone, together]], strict=True):
        # The trunk gets the mean over heads.
        np.testing.assert_allclose(whole, sum(parts) / 3, rtol=2e-3, atol=1e-7)
        assert jnp.any(whole)
    for k in range(3):
        for one, whole in zip(*[jax.tree.leaves(g.layers) for g in (alone[k], together)], strict=True):
            np.testing.assert_allclose(one[k], whole[k], rtol=2e-3, atol=1e-7)  # a head's own gradient is its own
            assert not jnp.any(jnp.delete(one, k, axis=0))


class Numbers(NamedTuple):
    """Parameters of a network that is a trunk alone."""

    trunk: jax.Array


def test_centred_rmsprop_is_the_originals():
    """By hand, two steps of the original: sums over the batch, 0.01 under the root."""
    config = dataclasses.replace(ATARI_AGENTS["boot"], batch_size=32)
    optimizer = make_optimizer(config)
    params = Numbers(jnp.array([1.0, -2.0, 0.0]))
    state = optimizer.init(params)
    mean, square, expected = np.zeros(3), np.zeros(3), np.array([1.0, -2.0, 0.0])
    for total in ([3.0, -0.2, 0.0], [-1.0, -0.4, 0.5]):  # summed over the batch
        total = np.array(total)
        mean = 0.95 * mean + 0.05 * total
        square = 0.95 * square + 0.05 * total**2
        expected = expected - 2.5e-4 * total / np.sqrt(square - mean**2 + 0.01)
        params, state = optimizer.step(params, state, Numbers(jnp.asarray(total / 32, jnp.float32)))
    np.testing.assert_allclose(params.trunk, expected, rtol=1e-6, atol=1e-9)
    first = 2.5e-4 * 3.0 / np.sqrt(0.05 * 9 - 0.0025 * 9 + 0.01)
    assert first == pytest.approx(0.00113389, rel=1e-5)  # the first step of the first number


def test_rewards_are_clipped_in_learning_alone():
    batch = make_batch(2)
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2, hidden=(8,))
    agent = make_agent(config, PICTURES, NUM_ACTIONS)
    learner, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    losses = {
        scale: float(update(learner, batch._replace(reward=jnp.array([scale, -scale, 0.5, 0.0])))[1].loss)
        for scale in (1.0, 50.0)
    }
    assert losses[1.0] == losses[50.0]
    assert losses[1.0] > 0.1


def by_definition(config, static, params, target_params, batch):
    """The gradient of the heads' losses, written as the definition has it, for every transition on its own."""

    def loss(params):
        online, target = (eqx.combine(p, static) for p in (params, target_params))

        def of_one(transition):
            next_q = online(transition.next_obs)
            next_target_q = target(transition.next_obs)
            chosen = (next_q if config.double_q else next_target_q).argmax(axis=-1)
            goal = jnp.clip(transition.reward, -1, 1) + transition.discount * next_target_q[jnp.arange(3), chosen]
            target_q = target(transition.obs)
            goal -= config.action_gap * (target_q.max(axis=-1) - target_q[:, transition.action])
            error = jax.lax.stop_gradient(goal) - online(transition.obs)[:, transition.action]
            return transition.mask * jnp.where(jnp.abs(error) <= 1, error**2 / 2, jnp.abs(error) - 0.5)

        return jax.vmap(of_one)(batch).mean(axis=0).sum()

    return jax.grad(loss)(params)


class Flat(eqx.Module):
    """A trunk of a user's own."""

    linear: eqx.nn.Linear

    def __call__(self, stack):
        return self.linear(stack[:, ::21, ::21].reshape(-1).astype(jnp.float32) / 255)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "trunk"),
    [
        *(({}, None), ({"double_q": False}, None), ({"hidden": ()}, None), ({"optimizer": "adam"}, None)),
        *(({}, lambda key: Flat(eqx.nn.Linear(64, 20, key=key))), ({"dueling": True}, None)),
        ({"action_gap": 0.8}, None),
    ],
    ids=["boot", "no double-Q", "linear", "adam", "own trunk", "dueling", "action gap"],
)
def test_the_gradient_of_a_batch_is_that_of_the_definition(options, trunk, kernels):
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=3, **{"hidden": (8,), **options})
    network = make_network(config, PICTURES, NUM_ACTIONS, trunk, kernels=kernels)
    params, static = eqx.partition(network(jax.random.key(0)), eqx.is_inexact_array)
    target_params = eqx.filter(network(jax.random.key(1)), eqx.is_inexact_array)
    batch = make_batch(3)._replace(mask=jnp.asarray(np.random.default_rng(0).integers(0, 2, (4, 3)), jnp.float32))
    gradient, _ = jax.jit(make_gradient(config, static, kernels=kernels))(params, target_params, batch)
    outer = gradient.layers[0].weight
    assert isinstance(outer, OuterProducts) == (kernels and config.optimizer == "rmsprop")
    if isinstance(outer, OuterProducts):
        written = jnp.einsum("nko,ni->koi", *outer)
        gradient = eqx.tree_at(lambda g: g.layers[0].weight, gradient, written)
    expected = jax.jit(partial(by_definition, config, static))(params, target_params, batch)
    assert_close(gradient, expected, 1e-3)


def test_acting_in_several_slots_is_acting_in_each(kernels):
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=3, hidden=(8,), initial_spread=0.0)
    agent = make_agent(config, PICTURES, NUM_ACTIONS, kernels=kernels)
    params = agent.init(jax.random.key(0)).params
    keys, heads, obs = jax.random.split(jax.random.key(1), 6), jnp.arange(6) % 3, jnp.asarray(pictures(0, 6))
    together = jax.jit(jax.vmap(agent.act, in_axes=(0, None, 0, 0, None)))(keys, params, heads, obs, None)
    beliefs = jax.jit(jax.vmap(agent.belief, in_axes=(None, 0)))(params, obs)
    assert len(set(together.tolist())) > 1
    act, belief = jax.jit(agent.act), jax.jit(agent.belief)
    for i in range(6):
        assert act(keys[i], params, heads[i], obs[i], None) == together[i]
        np.testing.assert_allclose(belief(params, obs[i]).q, beliefs.q[i], rtol=1e-4, atol=1e-6)


def test_parameters_of_an_agent_with_kernels_serve_one_without():
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2, hidden=(8,))
    ours, theirs = (
        eqx.filter(make_network(config, PICTURES, NUM_ACTIONS, kernels=kernels)(jax.random.key(0)), eqx.is_array)
        for kernels in (True, False)
    )
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)


def test_who_learns_is_decided_when_the_agent_is_made(monkeypatch):
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2, hidden=(8,))
    make = partial(make_agent, config, PICTURES, NUM_ACTIONS)
    assert make().kernels == (why_not() or "compiled")
    assert make(kernels=False).kernels == "not asked for"
    monkeypatch.setenv("BOOTDQN_KERNELS", "0")
    assert make().kernels == "BOOTDQN_KERNELS is 0"
    agent = make()
    monkeypatch.setenv("BOOTDQN_KERNELS", "1")
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    assert "Bootdqn" not in jax.jit(agent.update).lower(learner, make_batch(2)).as_text()
    with jax.enable_x64(True):
        assert make().kernels == "they are for 32-bit numbers"


def test_a_learner_from_pictures_keeps_large_blocks_and_an_environment_alone_does_not(monkeypatch):
    calls = []
    monkeypatch.setattr("bootdqn.loops.learner.keep_large_blocks", lambda: calls.append("learner"))
    monkeypatch.setattr("bootdqn.replay.host_memory.keep_large_blocks", lambda: calls.append("environment"))
    envs = make_envs("atari:pong")
    assert calls == []
    host_loop(envs, dataclasses.replace(ATARI_AGENTS["boot"], hidden=(8,)), seed=0, steps=100)
    assert calls == ["learner"]
    host_loop(make_envs("CartPole-v1"), GYM_AGENTS["boot"], seed=0, steps=100)
    assert calls == ["learner"]


def test_errors():
    config = dataclasses.replace(ATARI_AGENTS["boot"], trunk_hidden=(64,))
    with pytest.raises(UserError, match="pictures have a trunk of convolutions"):
        make_network(config, PICTURES, NUM_ACTIONS)
