import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.agent import AgentConfig, make_network
from bootdqn.networks import StackedLinear, scale_gradient
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
    first = StackedLinear(jax.random.key(0), 2, 2, 1)
    first = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        first,
        (jnp.array([[[1.0, 2.0]], [[-1.0, 0.0]]]), jnp.array([[0.5], [0.0]])),
    )
    last = StackedLinear(jax.random.key(0), 2, 1, 3)
    last = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        last,
        (
            jnp.array([[[1.0], [2.0], [-1.0]], [[1.0], [1.0], [1.0]]]),
            jnp.array([[0.0, 0.0, 1.0], [0.0, 1.0, 2.0]]),
        ),
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
