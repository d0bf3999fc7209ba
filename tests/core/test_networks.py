import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.agent import make_network
from bootdqn.core.config import AgentConfig
from bootdqn.core.networks import StackedLinear, StackedTable, scale_gradient
from bootdqn.types import Encoding

OBS = jnp.array([0.3, -0.7])


def network(seed=0, trunk=None, **options):
    config = AgentConfig(**{"num_heads": 4, "hidden": (5, 6), **options})
    return make_network(config, Encoding("vector", 2), 3, trunk)(jax.random.key(seed))


@pytest.mark.parametrize("trunk_hidden", [(), (7,)], ids=["separate", "shared"])
def test_each_head_alone_says_what_it_says_among_all(trunk_hidden):
    net = network(trunk_hidden=trunk_hidden)
    together = net(OBS)
    assert together.shape == (4, 3)
    for head in range(4):
        np.testing.assert_allclose(net.head(jnp.int32(head), OBS), together[head], rtol=1e-5)


def test_values_by_hand():
    net = network(num_heads=2, hidden=(1,))
    first = StackedLinear(jnp.array([[[1.0, 2.0]], [[-1.0, 0.0]]]), jnp.array([[0.5], [0.0]]))
    last = StackedLinear(
        jnp.array([[[1.0], [2.0], [-1.0]], [[1.0], [1.0], [1.0]]]),
        jnp.array([[0.0, 0.0, 1.0], [0.0, 1.0, 2.0]]),
    )
    net = eqx.tree_at(lambda n: n.layers, net, (first, last))
    # Head 0: relu(1 + 4 + .5) = 5.5; head 1: relu(-1) = 0.
    np.testing.assert_allclose(net(jnp.array([1.0, 2.0])), [[5.5, 11.0, -4.5], [0.0, 1.0, 2.0]])


def test_heads_start_different():
    values = np.asarray(network()(OBS))
    assert len(np.unique(values[:, 0])) == 4


def test_initial_spread_bounds_the_output_biases_only():
    for spread in (0.0, 3.0):
        net = network(num_heads=500, initial_spread=spread)
        *hidden, last = net.layers
        assert np.abs(last.bias).max() == pytest.approx(spread, rel=0.02)
        assert all(np.abs(layer.bias).max() <= layer.weight.shape[-1] ** -0.5 for layer in hidden)
        assert np.abs(last.weight).max() == pytest.approx(6**-0.5, rel=0.02)
        for layer in net.layers:  # no number serves twice
            values = np.concatenate([np.ravel(x) for x in jax.tree.leaves(layer)])
            assert spread == 0 or len(np.unique(values)) > 0.99 * len(values)


def test_any_equinox_module_serves_as_trunk():
    net = network(trunk=lambda key: eqx.nn.MLP(2, 9, 8, 1, key=key))
    assert net.layers[0].weight.shape == (4, 5, 9)
    assert net(OBS).shape == (4, 3)


def test_scale_gradient_scales_only_the_gradient():
    x = jax.random.normal(jax.random.key(0), (1000,))
    np.testing.assert_array_equal(scale_gradient(x, 1 / 3), x)
    assert jax.grad(lambda x: scale_gradient(x, 0.25) ** 2)(3.0) == pytest.approx(1.5)


@pytest.mark.parametrize(("kind", "expected"), [("one_hot", [0, 0, 1, 0]), ("thermometer", [1, 1, 1, 0])])
def test_encodings(kind, expected):
    np.testing.assert_array_equal(Encoding(kind, 4)(jnp.int32(2)), expected)


@pytest.mark.parametrize("hidden", [pytest.param((5, 6), id="hidden", marks=pytest.mark.integration), ()])
def test_a_lookup_says_and_learns_what_the_matrix_product_does(hidden):
    config = AgentConfig(num_heads=3, hidden=hidden)
    size = 7
    table = make_network(config, Encoding("one_hot", size), 2)(jax.random.key(1))
    dense = make_network(config, Encoding("vector", size), 2)(jax.random.key(1))
    assert isinstance(table.layers[0], StackedTable)
    assert isinstance(dense.layers[0], StackedLinear)
    indices = jnp.array([0, 3, 3, 6, 7, 2, 3, 7])  # repeated ones, and 7, which is outside and means zeros
    features = jax.vmap(table.encoding)(indices)
    weights = jax.random.normal(jax.random.key(2), (len(indices), 3, 2))

    def loss(network, inputs):
        values = jax.vmap(network)(inputs)
        return (weights * values**2).sum(), values

    (_, values), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(table, indices)
    (_, expected), expected_gradient = eqx.filter_value_and_grad(loss, has_aux=True)(dense, features)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    rows = gradient.layers[0].weight
    np.testing.assert_allclose(
        rows, jnp.transpose(expected_gradient.layers[0].weight, (2, 0, 1)), rtol=1e-4, atol=1e-6
    )
    assert not rows[jnp.array([1, 4, 5])].any()  # what was not seen is not changed
    assert rows[3].any()
    others, expected_others = [
        jax.tree.leaves((g.layers[0].bias, g.layers[1:])) for g in (gradient, expected_gradient)
    ]
    for ours, theirs in zip(others, expected_others, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    for head in range(3):
        alone = jax.vmap(table.head, in_axes=(None, 0))(jnp.int32(head), indices)
        np.testing.assert_allclose(alone, expected[:, head], rtol=1e-5, atol=1e-6)


def test_outside_the_table_is_the_bias_alone():
    table = StackedTable(jnp.ones((4, 2, 3)), jnp.arange(6.0).reshape(2, 3))
    for index in (4, 5, 100):
        np.testing.assert_array_equal(table(jnp.int32(index)), table.bias)
        np.testing.assert_array_equal(table.one(jnp.int32(1), jnp.int32(index)), table.bias[1])
    gradient = jax.grad(lambda weight: eqx.tree_at(lambda t: t.weight, table, weight)(jnp.int32(4)).sum())
    assert not gradient(table.weight).any()


def test_only_separate_networks_on_one_hot_inputs_look_up():
    def first_layer(kind, **options):
        config = AgentConfig(num_heads=2, **options)
        return type(make_network(config, Encoding(kind, 4), 2)(jax.random.key(0)).layers[0])

    assert first_layer("one_hot") is StackedTable
    assert first_layer("one_hot", trunk_hidden=(3,)) is StackedLinear
    assert first_layer("thermometer") is StackedLinear


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        (Encoding("pictures", 4 * 84 * 84), {"hidden": (8,)}),
        (Encoding("pictures", 4 * 84 * 84), {"hidden": ()}),
        (Encoding("vector", 2), {"hidden": (5, 6), "trunk_hidden": (7,)}),
    ],
    ids=["pictures", "pictures without hidden layers", "vector"],
)
def test_a_batch_is_its_observations_one_by_one(encoding, options):
    net = make_network(AgentConfig(num_heads=3, **options), encoding, 4)(jax.random.key(0))
    rng = np.random.default_rng(0)
    if encoding.kind == "pictures":
        obs = jnp.asarray(rng.integers(0, 256, (5, 4, 84, 84), np.uint8))
    else:
        obs = jnp.asarray(rng.normal(size=(5, 2)), jnp.float32)

    @eqx.filter_jit
    def of_batch(net, obs):
        features = net.features_of_batch(obs)
        return features, jax.vmap(net.values_above)(net.layers[0].of_batch(features))

    @eqx.filter_jit
    def of_one(net, obs):
        return net.features(obs), net(obs)

    features, values = of_batch(net, obs)
    assert features.std() > 0
    for i in range(5):
        alone = of_one(net, obs[i])
        np.testing.assert_allclose(features[i], alone[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values[i], alone[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoding", [Encoding("vector", 2), Encoding("one_hot", 2)], ids=["product", "lookup"])
def test_some_heads_alone(encoding):
    net = make_network(AgentConfig(num_heads=4, hidden=(5,)), encoding, 3)(jax.random.key(0))
    obs = jnp.int32(1) if encoding.kind == "one_hot" else OBS
    np.testing.assert_allclose(net.only(jnp.array([2, 0]))(obs), net(obs)[jnp.array([2, 0])], rtol=1e-5)
