"""Priorities: sums against naive ones, draws in proportion, weights and errors by hand."""

import dataclasses
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.core.config import ATARI_AGENTS
from bootdqn.envs.atari import AtariEnvs
from bootdqn.loops.updates import update_from_ring, with_added
from bootdqn.replay.priorities import (
    Priorities,
    draw_rows,
    importance_weights,
    make_priorities,
    with_errors,
    with_new,
)
from bootdqn.replay.ring import add_some, make_ring
from bootdqn.types import Encoding, Transition
from helpers import compiled_agent, small_agent
from small_runs import TINY_PICTURES, host_loop

KEY = jax.random.key(0)
NEW, WEIGHTS = jax.jit(with_new), jax.jit(importance_weights)
DRAW = jax.jit(draw_rows, static_argnums=2)
ERROR = jax.jit(partial(with_errors, exponent=0.5))
EXACT = jax.jit(lambda rows, values: with_errors(make_priorities(len(values)), rows, values, 1.0))


def exact(values) -> Priorities:
    """Priorities of so many rows that are the given numbers."""
    values = np.asarray(values, np.float32)
    return EXACT(np.arange(len(values)), values - np.float32(1e-6))


def assert_sums(priorities: Priorities, leaves) -> None:
    """Every level holds the sums of sixteen of the level below, and the first the given leaves."""
    levels = [np.asarray(level) for level in priorities.levels]
    np.testing.assert_allclose(levels[0][: len(leaves)], leaves, rtol=1e-5)
    assert not levels[0][len(leaves) :].any()
    for below, above in pairwise(levels):
        sums = below.reshape(-1, 16).sum(axis=1)
        np.testing.assert_allclose(above[: len(sums)], sums, rtol=1e-4, atol=1e-6)
        assert not above[len(sums) :].any()
    assert len(levels[-1]) == 16 or len(levels) == 1


def changes_of(kind: str, values: st.SearchStrategy) -> st.SearchStrategy:
    """Four rows and what becomes of them."""
    return st.tuples(st.just(kind), st.lists(st.tuples(st.integers(0, 399), values), min_size=4, max_size=4))


@settings(max_examples=30, deadline=None)
@given(
    changes=st.lists(
        changes_of("new", st.booleans()) | changes_of("errors", st.floats(0, 100, width=32)), max_size=8
    ),
    capacity=st.sampled_from([17, 300]),
)
def test_sums_and_priorities_are_those_of_a_naive_list(changes, capacity):
    priorities, naive, largest = make_priorities(capacity), np.zeros(capacity), 1.0
    for kind, pairs in changes:
        pairs = {row % capacity: value for row, value in pairs}  # rows that are equal have equal values
        rows = [*pairs, *[10**6] * (4 - len(pairs))]  # beyond all rows: left out
        values = [*pairs.values(), *[0] * (4 - len(pairs))]
        if kind == "new":
            priorities = NEW(priorities, jnp.array(rows), jnp.array(values, bool))
            for row, usable in pairs.items():
                naive[row] = largest if usable else 0
        else:
            priorities = ERROR(priorities, jnp.array(rows), jnp.array(values, jnp.float32))
            for row, error in pairs.items():
                naive[row] = (error + 1e-6) ** 0.5
                largest = max(largest, naive[row])
    assert_sums(priorities, naive)
    assert float(priorities.largest) == pytest.approx(largest, rel=1e-5)
    if naive.any():
        drawn = np.asarray(DRAW(KEY, priorities, 64))
        assert naive[drawn].all()


@pytest.mark.parametrize("capacity", [7, 300])
def test_rows_are_drawn_in_proportion(capacity):
    values = np.random.default_rng(capacity).random(capacity) ** 3
    values[::3] = 0
    unused = np.arange(0, capacity, 3)
    priorities = NEW(exact(values), unused, np.zeros(len(unused), bool))
    draw = jax.jit(jax.vmap(lambda key: draw_rows(key, priorities, 32)))
    drawn = np.asarray(draw(jax.random.split(KEY, 2000))).ravel()
    share = values / values.sum()
    found = np.bincount(drawn, minlength=capacity) / len(drawn)
    # The variance of independent draws is more than that of one draw from each of equal parts.
    assert (np.abs(found - share) <= 5 * np.sqrt(share / len(drawn))).all()


def test_a_batch_has_one_row_of_each_equal_part():
    drawn = np.asarray(DRAW(KEY, exact(np.ones(64)), 64))
    np.testing.assert_array_equal(drawn, np.arange(64))


def test_importance_weights_by_hand():
    priorities = exact([1.0, 4.0, 16.0, 9.0])
    # Inverse to the power of how often a row is drawn, and at most 1 in the batch.
    weights = WEIGHTS(priorities, np.array([1, 2, 1, 3]), 0.5)
    np.testing.assert_allclose(weights, [1, 1 / 2, 1, 2 / 3], rtol=1e-5)
    np.testing.assert_allclose(WEIGHTS(priorities, np.array([0, 2]), 1.0), [1, 1 / 16], rtol=1e-5)
    np.testing.assert_allclose(WEIGHTS(priorities, np.array([0, 2]), 0.0), [1, 1])


def filled(transitions: Transition):
    """A ring and priorities to which transitions were added."""

    def fill(transitions: Transition):
        ring = make_ring(jax.tree.map(lambda x: x[0], transitions), 20)  # more than are added, no multiple of 16
        valid = jnp.ones(len(transitions.reward), bool)
        return add_some(ring, transitions, valid), with_added(make_priorities(20), ring, valid)

    return jax.jit(fill)(transitions)


def test_an_update_weights_its_batch_and_keeps_the_errors_of_heads_that_learn():
    config, agent = small_agent(priority_exponent=0.7, importance_exponent=0.4, batch_size=4, discount=0.9)
    learner, rng = agent.init(KEY), np.random.default_rng(0)
    mask = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]], np.float32)
    obs, next_obs = (rng.normal(size=(5, 2)).astype(np.float32) for _ in range(2))
    action, reward = np.array([0, 1, 1, 0, 1], np.int32), rng.normal(size=5).astype(np.float32)
    discount = np.full(5, 0.9, np.float32)
    transitions = Transition(obs, action, reward, discount, next_obs, mask)  # type: ignore[arg-type]
    ring, priorities = filled(transitions)
    keep_errors = jax.jit(partial(with_errors, exponent=0.7))
    priorities = keep_errors(priorities, np.arange(5), np.array([1.0, 5.0, 2.0, 0.5, 8.0], np.float32))
    before = np.asarray(priorities.levels[0])[:5]
    update = jax.jit(partial(update_from_ring, agent, config))
    after, metrics, changed = update(KEY, learner, ring, priorities)
    rows = np.asarray(DRAW(KEY, priorities, 4))
    assert len(set(rows.tolist())) > 1
    errors = np.zeros((5, 3))
    for i in range(5):
        q, next_q = (np.asarray(agent.belief(learner.params, x[i]).q) for x in (obs, next_obs))
        errors[i] = reward[i] + 0.9 * next_q.max(axis=1) - q[:, action[i]]  # the target network is the online one
    expected = before.copy()
    for row in rows:
        learns = mask[row] > 0
        mean = np.abs(errors[row][learns]).mean() if learns.any() else 0.0
        expected[row] = (mean + 1e-6) ** 0.7
    assert changed is not None
    np.testing.assert_allclose(np.asarray(changed.levels[0])[:5], expected, rtol=1e-4)
    weights = (before[rows].min() / before[rows]) ** 0.4
    losses = weights[:, None] * mask[rows] * 0.5 * errors[rows] ** 2
    np.testing.assert_allclose(metrics.loss, losses.mean(), rtol=1e-4)
    assert int(after.updates) == 1


def test_without_priorities_nothing_is_kept():
    config, agent = small_agent()
    transitions = Transition(*[jnp.zeros((5, *shape)) for shape in ((2,), (), (), (), (2,), (3,))])
    transitions = transitions._replace(action=jnp.zeros(5, int))
    ring, _ = filled(transitions)
    update = partial(update_from_ring, agent, config, priorities=None)
    assert jax.eval_shape(update, KEY, agent.init(KEY), ring)[2] is None
    assert with_added(None, ring, jnp.ones(1, bool)) is None


@pytest.mark.integration
def test_pictures_are_drawn_by_the_errors_of_their_last_update(monkeypatch):
    config = dataclasses.replace(
        ATARI_AGENTS["boot"], **TINY_PICTURES, learning_start_steps=30, priority_exponent=1.0, reward_noise=0.5
    )
    training = host_loop(AtariEnvs("atari:pong", 2), config, seed=1, steps=400)
    training.begin()
    learner = training.learner
    frames, update, batches = learner.frames, learner._update, []
    assert frames is not None
    monkeypatch.setattr(learner, "_update", lambda learned, batch: batches.append(batch) or update(learned, batch))
    while training.position < 60:
        training.tick()
    assert len(batches) > 3
    assert frames.rows["reward"].shape == (frames.capacity, config.num_heads)
    assert np.std(frames.rows["reward"][:40]) == pytest.approx(0.5, rel=0.3)
    priorities = learner.learned.priorities
    assert priorities is not None
    leaves = np.asarray(priorities.levels[0])
    assert_sums(priorities, leaves[: frames.capacity])
    seen = {int(place) for batch in batches for place in batch.places}
    for row in range(frames.added):
        expected = row in seen or frames.rows["acted"][row]
        assert (leaves[row] > 0) == expected
        if row not in seen and expected:
            assert leaves[row] in {1.0, float(priorities.largest)}  # as when it was added
    # A row that has nearly all of the sum is nearly all of the next batch.
    learner.wait()
    favourite = min(row for row in seen)
    learner.learned = learner.learned._replace(
        priorities=with_errors(priorities, jnp.array([favourite]), jnp.array([1e6]), 1.0)
    )
    learner.update_from_frames(frames, learner.counters.updates)
    learner.wait()
    assert np.mean(np.asarray(batches[-1].places) == favourite) > 0.9


def test_priorities_reach_the_agent_of_every_encoding():
    """Errors come out of both ways to the gradient: by transition, and by the batch."""
    for encoding, obs in (
        (Encoding("one_hot", 6), np.arange(4, dtype=np.int32)),
        (Encoding("vector", 3), np.ones((4, 3), np.float32)),
    ):
        config, _ = small_agent(priority_exponent=0.5, sparse_step=True, batch_size=4)
        agent = compiled_agent(config, encoding, 2)
        action, reward = np.zeros(4, np.int32), np.arange(4, dtype=np.float32)
        mask, discount = np.ones((4, 3), np.float32), np.zeros(4, np.float32)
        learner = agent.init(KEY)
        errors = agent.update(learner, Transition(obs, action, reward, discount, obs, mask))[2]  # type: ignore[arg-type]
        assert errors is not None
        q = np.stack([np.asarray(agent.belief(learner.params, one).q)[:, 0] for one in obs])  # type: ignore[arg-type]
        np.testing.assert_allclose(errors, np.abs(np.arange(4)[:, None] - q).mean(axis=1), rtol=1e-4)
