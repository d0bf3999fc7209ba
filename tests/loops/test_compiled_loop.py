"""The compiled loop: what it stores, who acts, and that the same seed gives the same bits in any company."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.config import AgentConfig
from bootdqn.envs.chain import Chain
from bootdqn.loops import compiled
from bootdqn.loops.compiled import make_compiled_loop, make_compiled_program
from helpers import trees_equal

ENV = Chain(length=4)
SMALL = {"num_heads": 3, "hidden": (4,), "batch_size": 4, "learning_start_steps": 8}


def config(**options):
    return AgentConfig(**{**SMALL, **options})


def run(env=ENV, episodes=5, seed=0, **options):
    """Final state and metrics of one seed."""
    cfg = config(**options)
    program = make_compiled_program(env, cfg, episodes=episodes, chunk_episodes=episodes)
    start = program.init(jnp.stack([jax.random.key(seed)]))
    first_params = jax.tree.map(np.asarray, start.learner.params)
    state, metrics = program.run(start, episodes)
    data = jax.tree.map(lambda x: np.asarray(x[0]).reshape(episodes, env.horizon, *x.shape[2:]), state.replay.data)
    return program.agent, first_params, state, metrics, data


def training(episodes=6, seeds=(0, 1, 2), group_size=None, **options):
    return make_compiled_loop(ENV, config(**options), seeds=seeds, episodes=episodes, group_size=group_size)


def finish(program):
    """Metrics by seed and parameters by seed."""
    parts = list(program.chunks())
    metrics = {
        seed: [jax.tree.map(lambda x, i=i: x[i], part.metrics) for part in parts]
        for i, seed in enumerate(parts[0].seeds)
    }
    joined = {seed: jax.tree.map(lambda *xs: np.concatenate(xs), *ms) for seed, ms in metrics.items()}
    return joined, program.params()


@pytest.mark.parametrize("time_limit", ["truncated", pytest.param("terminated", marks=pytest.mark.integration)])
def test_replay_holds_true_transitions(time_limit):
    env = Chain(length=5, time_limit=time_limit, scrambled=True)
    *_, data = run(env, discount=0.9, epsilon_start=1.0, epsilon_end=1.0)
    right = np.asarray(env.right_actions)
    assert (data.obs[:, 0] == 1).all()  # every episode starts at s_2
    np.testing.assert_array_equal(data.next_obs[:, :-1], data.obs[:, 1:])
    goes_right = data.action == right[data.obs]
    np.testing.assert_array_equal(data.next_obs, np.clip(data.obs + np.where(goes_right, 1, -1), 0, 4))
    reward = np.where(goes_right & (data.obs == 4), 1.0, np.where(~goes_right & (data.obs == 0), 0.001, 0.0))
    np.testing.assert_allclose(data.reward, reward)
    # A time limit is no termination unless asked for.
    np.testing.assert_allclose(data.discount[:, :-1], 0.9)
    np.testing.assert_allclose(data.discount[:, -1], 0.0 if time_limit == "terminated" else 0.9)


@pytest.mark.integration
def test_mask_per_episode_or_per_step():
    *_, data = run(mask="exponential", mask_per="episode")
    assert (data.mask == data.mask[:, :1]).all()
    assert len(np.unique(data.mask[:, 0, 0])) == 5
    *_, data = run(mask="exponential", mask_per="step")
    assert len(np.unique(data.mask[..., 0])) == 5 * ENV.horizon


def greedy_actions(agent, params, obs):
    """What every head would do [K]."""
    params = jax.tree.map(lambda x: x[0], params)
    return np.asarray(agent.belief(params, jnp.int32(obs)).q.argmax(axis=-1))


@pytest.mark.integration
def test_one_head_acts_for_a_whole_episode():
    # Without learning the networks stay what they were, so that every action can be checked.
    agent, params, _state, metrics, data = run(episodes=8, learning_start_steps=10**6)
    heads = np.asarray(metrics.head[0])
    assert len(set(heads.tolist())) > 1
    table = np.stack([greedy_actions(agent, params, obs) for obs in range(ENV.length)])
    for episode, head in enumerate(heads):
        np.testing.assert_array_equal(data.action[episode], table[data.obs[episode], head])


@pytest.mark.integration
def test_thompson_follows_no_single_head():
    agent, params, _state, _, data = run(seed=1, episodes=8, learning_start_steps=10**6, acting="head_per_step")
    table = np.stack([greedy_actions(agent, params, obs) for obs in range(ENV.length)])
    assert any(len(set(row.tolist())) > 1 for row in table)  # there is something to disagree about
    follows = table[data.obs] == data.action[..., None]  # [episodes, steps, heads]
    assert follows.any(axis=-1).all()
    assert not follows.all(axis=1).any(axis=-1).all()


@pytest.mark.integration
@pytest.mark.parametrize(("start", "period"), [(1, 1), (13, 1), (10, 4), (10**6, 1)])
def test_learning_starts_and_repeats_as_configured(start, period):
    _, params, state, metrics, _ = run(learning_start_steps=start, learning_period_steps=period)
    steps = range(1, 5 * ENV.horizon + 1)
    expected = sum(step >= start and step % period == 0 for step in steps)
    assert int(state.learner.updates) == expected
    assert int(state.step) == 5 * ENV.horizon
    assert trees_equal(params, state.learner.params) == (expected == 0)
    assert metrics.num_updates.sum() == expected
    assert ((np.asarray(metrics.updates.loss) > 0) == (np.asarray(metrics.num_updates) > 0)).all()


@pytest.mark.integration
def test_epsilon_follows_its_schedule():
    _, _, _, metrics, _ = run(epsilon_start=1.0, epsilon_end=0.2, epsilon_anneal_steps=3 * ENV.horizon)
    np.testing.assert_allclose(metrics.epsilon[0], [1 - 0.8 / 3, 1 - 1.6 / 3, 0.2, 0.2, 0.2], rtol=1e-5)


def test_same_seed_same_bits_other_seed_other_parameters():
    metrics, params = finish(training())
    again_metrics, again_params = finish(training())
    assert trees_equal(metrics, again_metrics)
    assert trees_equal(params, again_params)
    for a, b in itertools.combinations(params.values(), 2):
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            assert not np.array_equal(x, y)
    heads = {tuple(m.head.tolist()) for m in metrics.values()}
    assert len(heads) == 3


@pytest.mark.integration
def test_a_seed_does_not_depend_on_its_company():
    metrics, params = finish(training(seeds=(0, 1, 2)))
    alone_metrics, alone_params = finish(training(seeds=(1,)))
    assert trees_equal(metrics[1], alone_metrics[1])
    assert trees_equal(params[1], alone_params[1])


@pytest.mark.integration
def test_vmapped_seeds_train_like_single_ones():
    # Vectorised sums may round differently; randomness must not differ at all.
    metrics, params = finish(training(episodes=2))
    group_metrics, group_params = finish(training(episodes=2, group_size=3))
    for seed in (0, 1, 2):
        np.testing.assert_array_equal(metrics[seed].head, group_metrics[seed].head)
        for x, y in zip(jax.tree.leaves(params[seed]), jax.tree.leaves(group_params[seed]), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)


@pytest.mark.integration
def test_chunks_do_not_change_the_run(monkeypatch):
    metrics, params = finish(training())
    monkeypatch.setattr(compiled, "MAX_STEPS_PER_CHUNK", 4 * ENV.horizon)
    program = training()
    assert program.program.chunk_episodes == 4  # and 2 in the last chunk
    split_metrics, split_params = finish(program)
    assert trees_equal(metrics, split_metrics)
    assert trees_equal(params, split_params)


@pytest.mark.integration
def test_stopping_early_leaves_a_prefix(monkeypatch):
    whole, _ = finish(training(episodes=12))
    monkeypatch.setattr(compiled, "MAX_STEPS_PER_CHUNK", ENV.horizon)
    program = training(episodes=12)
    seen = []
    for chunk in program.chunks(should_stop=lambda: len(seen) >= 3):
        seen.append(chunk)  # noqa: PERF402 - the stop looks at it meanwhile
    done = dict.fromkeys((0, 1, 2), 0)
    for chunk in seen:
        for i, seed in enumerate(chunk.seeds):
            assert chunk.first_episode == done[seed]
            np.testing.assert_array_equal(
                chunk.metrics.episode_return[i], whole[seed].episode_return[done[seed] : done[seed] + 1]
            )
            done[seed] += 1
    assert all(3 <= count < 12 for count in done.values())


@pytest.mark.integration
def test_groups_end_one_by_one_when_decided(monkeypatch):
    whole, _ = finish(training(episodes=12))
    monkeypatch.setattr(compiled, "MAX_STEPS_PER_CHUNK", ENV.horizon)
    ends = {0: 3, 1: 7, 2: 12}
    chunks = list(training(episodes=12).chunks(is_decided=lambda c: c.first_episode + 1 >= ends[c.seeds[0]]))
    assert [chunk.first_episode for chunk in chunks] == list(range(12))
    for chunk in chunks:
        assert chunk.seeds == tuple(seed for seed, end in ends.items() if chunk.first_episode < end)
        for i, seed in enumerate(chunk.seeds):
            assert chunk.metrics.episode_return[i, 0] == whole[seed].episode_return[chunk.first_episode]


@pytest.mark.integration
def test_trainings_can_share_threads():
    alone, _ = finish(training())
    with ThreadPoolExecutor(1) as pool:
        chunks = list(training().chunks(pool=pool))
        assert pool.submit(len, "open").result() == 4  # not ours to shut
    np.testing.assert_array_equal(chunks[0].metrics.episode_return[2], alone[2].episode_return)


def test_ring_is_never_larger_than_the_run():
    program = training(episodes=3, replay_capacity=10**6)
    assert [replay.capacity for replay in program.snapshot().replays] == [3 * ENV.horizon] * 3
    assert training(episodes=300, replay_capacity=50).snapshot().replays[0].capacity == 50
    ring_bytes = 3 * 3 * ENV.horizon * (4 * 5 + 4 * 3)
    assert ring_bytes < program.memory_bytes() < ring_bytes + 10_000


@pytest.mark.integration
def test_a_small_ring_keeps_the_newest():
    # Without learning, what is sampled cannot change what happens.
    *_, data = run(learning_start_steps=10**6)
    cfg = config(replay_capacity=7, learning_start_steps=10**6)
    program = make_compiled_program(ENV, cfg, episodes=5, chunk_episodes=5)
    state, _ = program.run(program.init(jnp.stack([jax.random.key(0)])), 5)
    total = 5 * ENV.horizon
    assert int(state.replay.added) == total
    for newest in range(total - 7, total):
        for small, large in zip(state.replay.data, data, strict=True):
            np.testing.assert_array_equal(small[0, newest % 7], large.reshape(total, *large.shape[2:])[newest])


@pytest.mark.integration
def test_masks_come_from_the_seed():
    first, again, other = (run(seed=seed, mask="exponential")[-1].mask for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


@pytest.mark.integration
def test_what_is_learned_acts_within_the_episode():
    # One head, no dithering: while nothing is learned it does the same at every visit of a state.
    env = Chain(length=30, scrambled=True)
    options = {"num_heads": 1, "learning_rate": 0.1, "initial_spread": 0.1}
    agent, params, _state, _, still = run(env, episodes=1, learning_start_steps=10**6, **options)
    table = np.array([greedy_actions(agent, params, obs)[0] for obs in range(env.length)])
    np.testing.assert_array_equal(still.action[0], table[still.obs[0]])
    *_, learning = run(env, episodes=1, learning_start_steps=4, **options)
    assert (learning.action[0] != table[learning.obs[0]]).any()
