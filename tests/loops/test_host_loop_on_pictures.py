"""The host loop on pictures: lives, heads, what replay holds, and which parameters act."""

import dataclasses
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn.core.agent import make_agent
from bootdqn.core.config import ATARI_AGENTS, AgentConfig
from bootdqn.envs.atari import PAPER, AtariEnvs
from bootdqn.loops.host import HostLoop
from bootdqn.loops.rollout import VOTE, evaluate, make_chooser
from bootdqn.loops.slots import make_slot_policy, make_slots
from bootdqn.types import Belief, Encoding, Transition
from small_runs import TINY_PICTURES, host_loop


def play(name: str, steps: int, **options) -> tuple[HostLoop, list, list[np.ndarray]]:
    """A training that acts at random and does not learn, its episodes, and every observation acted on."""
    config = dataclasses.replace(
        ATARI_AGENTS["boot"], **{**TINY_PICTURES, "learning_start_steps": 10**6, "epsilon_end": 1.0, **options}
    )
    training = host_loop(AtariEnvs(name, 2), config, seed=1, steps=steps)
    training.begin()
    episodes, seen = [], []
    while training.position < steps:
        seen.append(training._obs.copy())
        episodes += training.tick()
    training.learner.flush()
    return training, episodes, seen


@pytest.mark.integration
def test_lost_lives_end_the_future_but_neither_the_episode_nor_the_head():
    training, episodes, _ = play("atari:breakout", 2000)
    frames = training.learner.frames
    assert frames is not None
    rows = {name: field[: frames.added].reshape(-1, 2, *field.shape[1:]) for name, field in frames.rows.items()}
    assert episodes
    for slot in (0, 1):
        ended = [episode for episode in episodes if episode.slot == slot]
        no_future = (rows["discount"][:, slot] == 0) & rows["acted"][:, slot]
        # Five lives a game; the fifth is lost with the game.
        complete = sum(episode.length for episode in ended) + len(ended)  # a row more for every last observation
        assert no_future[:complete].sum() == 5 * len(ended)
        assert (~rows["acted"][:, slot]).sum() == len(ended)
        # One mask, so one head, from the start of an episode to its end.
        starts = np.flatnonzero(rows["depth"][:, slot] == 0)
        assert len(starts) in (len(ended), len(ended) + 1)
        for first, end in zip(starts, [*starts[1:], None], strict=True):
            masks = rows["mask"][first:end, slot][rows["acted"][first:end, slot]]
            assert (masks == masks[0]).all()
    assert {episode.terminated for episode in episodes} == {True}
    np.testing.assert_allclose(np.unique(rows["discount"]), [0, 0.99], rtol=1e-6)
    lives = [e.episode_return for e in episodes]
    assert max(lives) <= rows["reward"].sum()  # raw scores


def test_replay_gives_back_what_was_seen():
    training, _, seen = play("atari:seaquest", 600)
    frames = training.learner.frames
    assert frames is not None
    for row in [0, 1, 2, 7, 100, 301, 400]:
        tick, slot = divmod(row, 2)
        batch = frames._gather(np.array([row]))
        np.testing.assert_array_equal(batch.frames[0, :4], seen[tick][slot])
        np.testing.assert_array_equal(batch.frames[0, 1:], seen[tick + 1][slot])


def test_evaluation_by_steps_counts_what_ended_and_else_what_there_is():
    envs = AtariEnvs("atari:freeway", 2, dataclasses.replace(PAPER, max_episode_frames=40))

    def up(params, keys, obs, policies, tick, epsilon) -> Any:
        assert epsilon == 0.25
        return np.ones(2, np.int32), Belief(jnp.zeros((2, 1, 3)), *[jnp.zeros(2)] * 4)

    (found,) = evaluate(envs, up, None, [VOTE, VOTE], episodes=1, steps=33, epsilon=0.25, seed=[1])
    assert (found.ended, len(found.returns)) == (6, 6)  # of ten steps, and one to begin anew
    (found,) = evaluate(envs, up, None, [VOTE, VOTE], episodes=1, steps=9, epsilon=0.25, seed=[1])
    assert (found.ended, len(found.returns)) == (0, 2)


def test_random_actions_in_evaluations():
    """With epsilon 1 all actions are as likely; with 0 always the same is chosen."""
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2, hidden=(8,))
    agent = make_agent(config, Encoding("pictures", 28224), 4)
    params = agent.init(jax.random.key(0)).params
    obs = np.zeros((4, 4, 84, 84), np.uint8)
    chooser, keys = make_chooser(agent), jax.random.split(jax.random.key(1), 4)
    chosen = {
        epsilon: np.concatenate([chooser(params, keys, obs, np.full(4, -2), t, epsilon)[0] for t in range(100)])
        for epsilon in (0.0, 0.5, 1.0)
    }
    assert len(np.unique(chosen[0.0])) == 1
    assert np.bincount(chosen[1.0], minlength=4).min() > 70
    assert 200 < (chosen[0.5] == chosen[0.0]).sum() < 300  # a half, and a quarter of the other


@pytest.mark.integration
def test_actions_come_from_parameters_that_lack_one_update_at_most(monkeypatch):
    config = dataclasses.replace(ATARI_AGENTS["boot"], **TINY_PICTURES, learning_start_steps=12, epsilon_end=1.0)
    training = host_loop(AtariEnvs("atari:pong"), config, seed=1, steps=40)
    training.begin()
    learner = training.learner
    act, update, begin = training._act_held, learner._update, learner.update_from_frames
    begun, used = [], []
    after = [learner.params.layers[-1].bias]  # by number of updates

    def noting_act(held, slots, *rest):
        used.append((np.asarray(held.layers[-1].bias[0]), int(slots.head[0]), len(begun)))
        return act(held, slots, *rest)

    def noting_begin(frames, index):
        begun.append(index)
        begin(frames, index)

    def noting_update(learned, batch):
        learned = update(learned, batch)
        after.append(np.array(learned.learner.params.layers[-1].bias))
        return learned

    monkeypatch.setattr(training, "_act_held", noting_act)
    monkeypatch.setattr(learner, "_update", noting_update)
    monkeypatch.setattr(learner, "update_from_frames", noting_begin)
    while training.position < 40:
        training.tick()
    assert begun == list(range(7))
    assert len(learner.params.layers[-1].bias) == 3  # waits
    assert all((a != b).any() for a, b in pairwise(after))
    for bias, head, updates in used:
        assert np.array_equal(bias, after[max(0, updates - 1)][head])
    assert {updates for *_, updates in used} == set(range(8))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("acting", "num_envs", "num_held"),
    [("committed_head", 2, 2), ("committed_head", 4, 3), ("vote", 2, 3), ("head_per_step", 1, 3)],
)
def test_what_is_held_acts_as_all_parameters_do(acting, num_envs, num_held):
    config = dataclasses.replace(AgentConfig(), num_heads=3, acting=acting, epsilon_start=0.5, epsilon_end=0.5)
    agent = make_agent(config, Encoding("vector", 2), 6)
    params = agent.init(jax.random.key(1)).params
    slots = make_slots(jax.random.key(2), config, num_envs)
    act, begin, hold, act_held, _ = map(jax.jit, make_slot_policy(agent, config, num_envs))
    rng = np.random.default_rng(0)
    seen = set()
    for step in range(12):
        obs = rng.normal(size=(num_envs, 2)).astype(np.float32)
        fresh = np.full(num_envs, step == 0) | (rng.random(num_envs) < 0.2)
        begun = begin(params, slots, fresh)
        held = hold(params, begun)
        actions, draws, after = act_held(held, begun, obs, step)
        expected, drawn, slots = act(params, slots, fresh, obs, step)
        assert held.layers[0].bias.shape[0] == num_held
        assert actions.tolist() == expected.tolist()
        jax.tree.map(
            np.testing.assert_array_equal, *(jax.tree.map(_numbers, x) for x in ((after, draws), (slots, drawn)))
        )
        seen |= set(actions.tolist())
    assert len(seen) > 2


def _numbers(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


@pytest.mark.integration
def test_an_update_copies_no_weights():
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2)
    agent = make_agent(config, Encoding("pictures", 4 * 84 * 84), 4)
    obs, number = jnp.zeros((32, 4, 84, 84), np.uint8), jnp.zeros(32)
    batch = Transition(obs, jnp.zeros(32, np.int32), number, number, obs, jnp.ones((32, 2)))
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    program = jax.jit(agent.update, donate_argnums=0).lower(learner, batch).compile().as_text() or ""
    copies = r"= f32\[(?:2,512,3136|1024,3136)\]\S* copy\("
    assert len(re.findall(copies, program)) == 1  # of new parameters to the target's, in a branch
    assert not re.findall(copies, program[program.index("ENTRY") :])


IN_LARGE_PAGES = """
import ctypes, re
from pathlib import Path
from bootdqn.replay.host_memory import keep_large_blocks
from bootdqn.replay.frames import FrameReplay
def resident():
    return int(re.search("VmRSS:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1]) // 1024
keep_large_blocks()
before = resident()
rows = FrameReplay(400_000, num_slots=1, num_heads=1).rows  # 2.8 GB
assert not rows["frame"][::100_000].any()
print(resident() - before < 100)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
block = libc.malloc(2**26)
for text in re.split("\\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
    start, end = (int(x, 16) for x in text.split()[0].split("-"))
    if start <= block + 2**25 < end:
        print("hg" in text.split("VmFlags:")[1].split())
"""


@pytest.mark.integration
def test_a_learner_gets_large_pages_where_linux_has_them_and_replay_none():
    shown = subprocess.run([sys.executable, "-c", IN_LARGE_PAGES], capture_output=True, text=True, check=True)
    replay_takes_nothing, in_large_pages = shown.stdout.split()
    assert replay_takes_nothing == "True"
    assert in_large_pages == str(Path("/sys/kernel/mm/transparent_hugepage").exists())
