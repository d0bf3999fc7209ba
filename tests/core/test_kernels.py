"""Kernels of our own: against the formulas and against XLA, and what happens where they cannot be had."""

import dataclasses
import os
import stat
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.core import kernels
from bootdqn.core.agent import make_agent
from bootdqn.core.config import ATARI_AGENTS
from bootdqn.core.conv_trunk import Convolution, PictureTrunk, make_picture_trunk
from bootdqn.core.kernels import OuterProducts, centred_rmsprop
from bootdqn.types import Encoding
from test_conv_trunk import make_batch, pictures

pytestmark = pytest.mark.skipif(
    kernels.why_not() is not None and "CI" not in os.environ, reason=f"no kernels here: {kernels.why_not()}"
)
step = jax.jit(centred_rmsprop, static_argnames=("rate", "decay", "epsilon"))


def draw(rng: np.random.Generator, *shape: int) -> jax.Array:
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def test_a_step_by_hand():
    gradient = OuterProducts(jnp.array([[[1.0]], [[2.0]]]), jnp.array([[3.0], [-1.0]]))  # 1 * 3 + 2 * -1 = 1
    weight, mean, square = step(
        *(jnp.full((1, 1, 1), x) for x in (5.0, 0.5, 2.0)), gradient, rate=0.1, decay=0.75, epsilon=0.25
    )
    # mean 0.75 * 0.5 + 0.25 = 0.625, square 0.75 * 2 + 0.25 = 1.75, under the root 1.75 - 0.390625 + 0.25.
    np.testing.assert_allclose([mean[0, 0, 0], square[0, 0, 0]], [0.625, 1.75], rtol=1e-6)
    np.testing.assert_allclose(weight[0, 0, 0], 5 - 0.1 / np.sqrt(1.609375), rtol=1e-6)


@pytest.mark.integration
@settings(max_examples=40, deadline=None)
@given(heads=st.integers(1, 3), outputs=st.integers(1, 70), inputs=st.integers(1, 67), batch=st.integers(1, 9))
def test_steps_of_all_sizes(heads, outputs, inputs, batch):
    """Whatever does not fill a vector, a tile or a task."""
    rng = np.random.default_rng(heads + 10 * outputs + 1000 * inputs)
    weight, mean = draw(rng, heads, outputs, inputs), draw(rng, heads, outputs, inputs)
    square = mean**2 + rng.random((heads, outputs, inputs), np.float32)
    left, right = draw(rng, batch, heads, outputs), draw(rng, batch, inputs)
    ours = step(weight, mean, square, OuterProducts(left, right), rate=0.01, decay=0.9, epsilon=0.1)
    gradient = np.einsum("nko,ni->koi", left, right, dtype=np.float64)
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.9 * square + 0.1 * gradient**2
    weight = weight - 0.01 * gradient / np.sqrt(square - mean**2 + 0.1)
    for mine, expected in zip(ours, (weight, mean, square), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4)


def test_a_step_leaves_alone_what_is_still_needed():
    weight, mean, square = (jnp.full((2, 3, 20), x) for x in (1.0, 0.0, 1.0))
    gradient = OuterProducts(jnp.ones((4, 2, 3)), jnp.ones((4, 20)))
    after, *_ = step(weight, mean, square, gradient, rate=0.1, decay=0.5, epsilon=0.1)
    assert np.all(np.asarray(weight) == 1)
    assert np.all(np.asarray(after) < 1)


def test_a_batch_of_steps_is_each_of_them():
    rng = np.random.default_rng(0)
    weight, mean, square = draw(rng, 2, 1, 5, 20), np.zeros((2, 1, 5, 20)), np.ones((2, 1, 5, 20))
    gradient = OuterProducts(draw(rng, 2, 3, 1, 5), draw(rng, 2, 3, 20))
    numbers = {"rate": 0.1, "decay": 0.5, "epsilon": 0.1}
    together = jax.vmap(lambda *x: step(*x, **numbers))(weight, mean, square, gradient)
    for i in range(2):
        alone = step(weight[i], mean[i], square[i], OuterProducts(*(x[i] for x in gradient)), **numbers)
        jax.tree.map(np.testing.assert_array_equal, [x[i] for x in together], list(alone))


@pytest.mark.parametrize("parameter", [4, 5], ids=["weight", "bias"])
def test_what_is_not_a_number_stays_so(parameter):
    trunk = make_picture_trunk(jax.random.key(0))
    parameters = [np.asarray(leaf).copy() for leaf in jax.tree.leaves(trunk.layers)]
    parameters[parameter][..., 7] = np.nan  # of the last layer
    features = kernels.trunk_layers(jnp.zeros((1, 4, 84, 84), np.uint8) + 100, *map(jnp.asarray, parameters))[-1]
    assert np.isnan(np.asarray(features).reshape(49, 64)[:, 7]).all()
    assert np.isfinite(np.delete(np.asarray(features).reshape(49, 64), 7, axis=1)).all()


def test_a_batch_is_one_call_of_the_kernel_and_so_is_its_gradient():
    trunk, stacks = make_picture_trunk(jax.random.key(0), kernels=True), jnp.asarray(pictures(0, 3))

    def calls(function):
        program = jax.jit(function).lower(trunk.layers).compile().as_text() or ""
        assert program.count(" while(") == 0
        return [program.count(f'custom_call_target="BootdqnTrunk{name}"') for name in ("Forward", "Backward")]

    def with_layers(layers):
        return eqx.tree_at(lambda trunk: trunk.layers, trunk, layers)

    assert calls(jax.grad(lambda layers: with_layers(layers)(stacks).sum())) == [1, 1]
    assert calls(lambda layers: jax.vmap(with_layers(layers))(stacks)) == [1, 0]  # as in acting in several slots


@pytest.mark.parametrize("by_kernels", [True, False])
def test_other_pictures_are_refused(by_kernels):
    trunk, stack = make_picture_trunk(jax.random.key(0), kernels=by_kernels), jnp.asarray(pictures(0, 1)[0])
    for wrong in (stack[:, :80, :80], stack[:3], stack[0], stack.astype(np.float32)):
        with pytest.raises(TypeError, match="pictures must be bytes"):
            trunk(wrong)


def test_sizes_that_do_not_fit_are_refused():
    first, second, third = make_picture_trunk(jax.random.key(0)).layers
    narrow = PictureTrunk((first, second, Convolution(third.weight[:, :32], third.bias[:32])), kernels=True)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the kernel is for pictures"):
        jax.block_until_ready(narrow(jnp.asarray(pictures(0, 1))))
    parameters = jax.tree.leaves((first, second, third))
    small = jnp.zeros((1, 4, 80, 80), np.uint8)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the kernel is for pictures"):
        jax.block_until_ready(kernels.trunk_layers(small, *parameters))
    layers = kernels.trunk_layers(jnp.zeros((1, 4, 84, 84), np.uint8), *parameters)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the kernel is for pictures"):
        jax.block_until_ready(kernels.trunk_gradients(small, parameters, layers, layers[-1]))
    weight, gradient = jnp.ones((1, 2, 3)), OuterProducts(jnp.ones((4, 1, 2)), jnp.ones((4, 5)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="do not make an array like the weights"):
        jax.block_until_ready(centred_rmsprop(weight, weight, weight, gradient, rate=0.1, decay=0.5, epsilon=0.1))


def updated(monkeypatch, switch: str, **options):
    """A learner after three updates, their losses, and how many calls of kernels an update has."""
    monkeypatch.setenv("BOOTDQN_KERNELS", switch)
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=3, **options)
    agent = make_agent(config, Encoding("pictures", 4 * 84 * 84), 4)
    update, learner = jax.jit(agent.update), agent.init(jax.random.key(0))
    names = (update.lower(learner, make_batch(3)).compile().as_text() or "").count('custom_call_target="Bootdqn')
    losses = []
    for _ in range(3):
        learner, metrics, _ = update(learner, make_batch(3))
        losses.append(metrics.loss)
    return learner, losses, names


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "num_kernels"),
    [({}, 5), ({"double_q": False}, 4), ({"optimizer": "adam"}, 4), ({"hidden": ()}, 5)],
    ids=["boot", "no double-Q", "adam", "linear"],
)
def test_an_update_by_kernels_is_that_of_xla(options, num_kernels, monkeypatch):
    ours, losses, names = updated(monkeypatch, "1", **{"hidden": (8,), **options})
    theirs, expected, none = updated(monkeypatch, "0", **{"hidden": (8,), **options})
    assert (names, none) == (num_kernels, 0)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for mine, its in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
        # A rectifier at its kink may go either way, with all that hangs on it.
        assert jnp.mean(jnp.abs(mine - its)) <= 2e-3 * jnp.mean(jnp.abs(its))
    for after, before in zip(*map(jax.tree.leaves, (ours.params, ours.target_params)), strict=True):
        assert jnp.any(after != before)


class Means(eqx.Module):
    """A trunk with other features for every head: the mean of each picture, times a factor of the head."""

    factors: jax.Array

    def __call__(self, stack):
        return self.factors[:, None] * stack.astype(jnp.float32).mean(axis=(1, 2))[None] / 255


def test_a_trunk_with_features_for_every_head_is_left_to_xla(monkeypatch):
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=3, hidden=(8,), double_q=False)
    encoding = Encoding("pictures", 4 * 84 * 84)
    learners = []
    for switch in ("1", "0"):
        monkeypatch.setenv("BOOTDQN_KERNELS", switch)
        agent = make_agent(config, encoding, 4, lambda _: Means(jnp.arange(3.0)))
        learners.append(jax.jit(agent.update)(agent.init(jax.random.key(0)), make_batch(3))[0])
    jax.tree.map(np.testing.assert_array_equal, *learners)


IN_A_PROCESS = """
import hashlib
import jax, jax.numpy as jnp, numpy as np
from bootdqn.core import kernels
print(kernels.why_not())
if kernels.why_not() is None:
    from bootdqn.core.conv_trunk import make_picture_trunk
    rng = np.random.default_rng(0)
    trunk, pictures = make_picture_trunk(jax.random.key(0)), rng.integers(0, 256, (13, 4, 84, 84), np.uint8)
    parameters = jax.tree.leaves(trunk.layers)
    layers = jax.jit(kernels.trunk_layers)(pictures, *parameters)
    numbers = [*layers, *jax.jit(kernels.trunk_gradients)(pictures, parameters, layers, layers[-1])]
    x = jnp.asarray(rng.normal(size=(2, 3, 50, 60)), jnp.float32)
    outer = kernels.OuterProducts(x[0, :, :, None, 0], x[1, :, 0])
    step = jax.jit(lambda *x: kernels.centred_rmsprop(*x, outer, rate=0.1, decay=0.9, epsilon=1.0))
    numbers += step(x[0, 0, :, None], jnp.zeros((50, 1, 60)), jnp.ones((50, 1, 60)))
    print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in numbers)).hexdigest())
"""


def in_a_process(**environment: str) -> list[str]:
    """Why there are no kernels in a new process, or what they compute."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.integration
def test_any_number_of_threads_gives_the_same_bits(tmp_path):
    one = in_a_process(NPROC="1", XDG_CACHE_HOME=str(tmp_path))
    proof, library = sorted((tmp_path / "bootdqn").iterdir(), key=lambda path: path.suffix)
    assert (proof.suffix, library.suffix) == (".sha256", ".so")  # and nothing else is left of compiling
    made = library.stat().st_mtime_ns
    assert one == in_a_process(NPROC="5", XDG_CACHE_HOME=str(tmp_path))
    assert one[0] == "None"
    assert library.stat().st_mtime_ns == made  # compiled once
    with library.open("r+b") as file:  # as after a crash: to load this would end the process
        file.truncate(20_000)
    assert one == in_a_process(XDG_CACHE_HOME=str(tmp_path))


@pytest.mark.integration
def test_a_compiler_with_arguments():
    assert in_a_process(CXX="env c++")[0] == "None"


@pytest.mark.integration
def test_where_there_are_no_kernels(tmp_path):
    assert in_a_process(BOOTDQN_KERNELS="0") == ["BOOTDQN_KERNELS is 0"]
    assert in_a_process(PATH="/nowhere", CXX="") == ["there is no C++ compiler (c++, g++ or clang++)"]
    (missing,) = in_a_process(CXX="/nowhere/c++")
    assert "/nowhere/c++" in missing
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "kernels.cc: error: too old" >&2; exit 1; }\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    cached = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    (refused,) = in_a_process(CXX=str(compiler), **cached)
    assert refused == f"{compiler} does not compile them: kernels.cc: error: too old"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] || { printf "\\351" >&2; exit 1; }\n')
    (silent,) = in_a_process(CXX=str(compiler), **cached)
    assert "returned non-zero exit status 1" in silent
    (tmp_path / "file").write_text("")
    (unwritable,) = in_a_process(XDG_CACHE_HOME=str(tmp_path / "file"))
    assert "file" in unwritable
