"""Small agents whose numbers can be checked by hand, and processes that are watched."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bootdqn.core.agent import make_agent
from bootdqn.core.config import AgentConfig
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.runs.arrays import restore
from bootdqn.runs.model_file import read_model
from bootdqn.types import Agent, Encoding, Learner, Transition

ROOT = Path(__file__).parents[1]
"""Where the repository is."""
VECTOR = Encoding("vector", 2)


def small_agent(**options: Any) -> tuple[AgentConfig, Agent]:
    """An agent on two-dimensional observations with two actions."""
    config = AgentConfig(**{"num_heads": 3, "hidden": (4,), "batch_size": 5, **options})
    return config, compiled_agent(config, VECTOR, 2)


def compiled_agent(*arguments: Any, **options: Any) -> Agent:
    """What `make_agent` makes, compiled: operation by operation, every one of them would be compiled alone."""
    agent = make_agent(*arguments, **options)
    names = ("init", "fit", "act", "greedy", "update", "belief")
    return agent._replace(**{name: jax.jit(getattr(agent, name)) for name in names})


def linear_learner(agent: Agent, weight: Any, target_weight: Any) -> Learner:
    """A learner whose Q-values are `weight` [K, A, 2] @ obs, and whose target's are `target_weight` @ obs."""
    learner = agent.init(jax.random.key(0))

    def with_weight(params: Any, value: Any) -> Any:
        value = jnp.asarray(value, jnp.float32)
        layer = params.layers[0]
        return eqx.tree_at(
            lambda p: (p.layers[0].weight, p.layers[0].bias), params, (value, jnp.zeros_like(layer.bias))
        )

    return learner._replace(
        params=with_weight(learner.params, weight),
        target_params=with_weight(learner.target_params, target_weight),
    )


def batch(num_heads: int, size: int = 5, seed: int = 0, **fields: Any) -> Transition:
    """Random transitions, all masks one unless given."""
    rng = np.random.default_rng(seed)
    values = {
        "obs": rng.normal(size=(size, 2)),
        "action": rng.integers(0, 2, size),
        "reward": rng.normal(size=size),
        "discount": np.full(size, 0.9),
        "next_obs": rng.normal(size=(size, 2)),
        "mask": np.ones((size, num_heads)),
        **fields,
    }
    return Transition(
        **{
            name: jnp.asarray(value, jnp.int32 if name == "action" else jnp.float32)
            for name, value in values.items()
        }
    )


def load_model(path: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    """Parameters of a model file in the structure of `like`, and its header."""
    arrays, header = read_model(path)
    return restore(like, arrays, path), header


def trees_equal(a: Any, b: Any) -> bool:
    """Whether two trees hold the same bits."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def assert_deep_sea_repeats(trace: dict[str, Any]) -> None:
    """Our DeepSea does what a trace recorded by `tests/peers/test_bsuite.py` says, given the same random draws."""
    env = DeepSea(**{name: trace[name] for name in ("size", "stochastic", "mapping_seed")})
    key = jax.random.key(0)

    def step(state: Any, given: tuple[jax.Array, jax.Array, jax.Array]):
        action, wind, noise = given
        with mock.patch.multiple(jax.random, uniform=lambda _: wind, normal=lambda _: noise):
            return env.step(key, state, action)

    @jax.jit
    def play(actions: jax.Array, wind: jax.Array, noise: jax.Array):
        return jax.lax.scan(step, env.reset(key)[0], (actions, wind, noise))

    for episode in trace["episodes"]:
        given = (jnp.asarray(episode[name]) for name in ("actions", "wind", "noise"))
        state, steps = play(*given)
        np.testing.assert_array_equal(steps.obs, episode["observations"])
        np.testing.assert_array_equal(steps.terminated, [False] * (env.size - 1) + [True])
        assert not steps.truncated.any()
        assert bool(state.bad) == episode["bad"]
        if trace["stochastic"]:
            np.testing.assert_allclose(steps.reward, episode["rewards"], atol=1e-6)
        else:
            np.testing.assert_array_equal(steps.reward, np.asarray(episode["rewards"], np.float32))


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until a condition returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
    return found


def children(pid: int) -> list[int]:
    """Processes that a process has started and that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(path.parent.name))
    return found


def silent(text: str) -> None:
    raise AssertionError(f"nothing to tell, but was told {text}")


def assert_same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
        np.testing.assert_array_equal(found[name], value, name)
