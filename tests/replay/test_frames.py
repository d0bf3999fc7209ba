"""Frame replay: the same transitions as a list of whole ones would hold, whatever the slots, ends and capacity."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.errors import UserError
from bootdqn.replay.frames import STACK, FrameReplay

SHAPE = (2, 3)
NUM_HEADS = 2


class Naive:
    """Whole transitions of one slot, with the ticks whose frames they need."""

    def __init__(self):
        self.transitions: list[tuple[int, tuple]] = []
        self.stack: list[tuple[int, int]] = []

    def observe(self, tick: int, value: int, fresh: bool) -> tuple[int, tuple[int, ...]]:
        """The stack now: the first tick that it needs, and its frames' values."""
        self.stack = [] if fresh else self.stack
        self.stack = [*self.stack, (tick, value)][-STACK:]
        values = [value for _, value in self.stack]
        return self.stack[0][0], (*[0] * (STACK - len(values)), *values)


# What happens to a slot in a tick: it goes on, ends in a state with no future, loses a life, or is truncated.
EVENTS = st.sampled_from(["on", "on", "on", "terminated", "life_lost", "truncated"])


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(st.lists(EVENTS, min_size=3, max_size=3), min_size=2, max_size=40),
    num_slots=st.integers(1, 3),
    ticks_of_room=st.integers(7, 50),
    restarts=st.sets(st.integers(1, 39), max_size=3),
)
def test_equals_a_list_of_whole_transitions(events, num_slots, ticks_of_room, restarts):
    replay = FrameReplay(ticks_of_room * num_slots, num_slots=num_slots, num_heads=NUM_HEADS, shape=SHAPE)
    naive = [Naive() for _ in range(num_slots)]
    over, fresh = [False] * num_slots, [True] * num_slots
    open_ones: list[tuple | None] = [None] * num_slots
    number, tick = 0, 0

    def observe_all(acted: list[bool], what: list[str], *, close: bool) -> None:
        nonlocal number, tick
        frames, rewards, discounts = [], [], []
        for slot in range(num_slots):
            number += 1
            value = number % 250 + 1
            first, stack = naive[slot].observe(tick, value, fresh[slot] and not close)
            waiting = open_ones[slot]
            if waiting is not None:
                needed, begin = waiting
                naive[slot].transitions.append((needed, (*begin, stack)))
            gone = what[slot] in ("terminated", "life_lost")
            discount = 0.0 if gone else 0.5
            begin = (stack, number % 7, float(number), discount, number / 1000)
            open_ones[slot] = (first, begin) if acted[slot] else None
            frames.append(np.full(SHAPE, value, np.uint8))
            rewards.append(float(number))
            discounts.append(discount)
        if close:
            replay.close(np.stack(frames))
        else:
            numbers = np.array(rewards)
            replay.add(
                np.stack(frames),
                fresh=np.array(fresh),
                action=(numbers % 7).astype(np.int32),
                reward=numbers,
                discount=np.array(discounts),
                mask=np.repeat(numbers[:, None] / 1000, NUM_HEADS, axis=1),
                acted=np.array(acted),
            )
        tick += 1

    for index, row in enumerate(events):
        if index in restarts:  # all episodes are broken off where they are
            observe_all([False] * num_slots, ["on"] * num_slots, close=True)
            open_ones, over, fresh = [None] * num_slots, [False] * num_slots, [True] * num_slots
        acted = [not ended for ended in over]
        observe_all(acted, row[:num_slots], close=False)
        fresh = over
        over = [a and event in ("terminated", "truncated") for a, event in zip(acted, row, strict=False)]

    oldest = max(0, tick - ticks_of_room)
    expected = {
        whole for slot in naive for needed, whole in slot.transitions if needed >= oldest
    }  # numbers make them unique
    if not expected:
        return
    found = Counter()
    rng = np.random.default_rng(0)
    for _ in range(40):
        batch = replay.sample(rng, 16)
        for frames, action, reward, discount, mask, place in zip(*batch, strict=True):
            assert replay.rows["frame"][place, 0, 0] == frames[STACK - 1, 0, 0]
            assert (frames == frames[:, :1, :1]).all()
            values = tuple(int(v) for v in frames[:, 0, 0])
            assert mask[0] == mask[1]
            begin = (values[:STACK], int(action), float(reward), float(discount), reward / 1000)
            found[(*begin, values[1:])] += 1
    assert {w[:4] + w[5:] for w in found} <= {w[:4] + w[5:] for w in expected}
    if len(expected) <= 20:
        assert len(found) == len(expected)  # 640 draws miss none


@pytest.mark.parametrize("num_slots", [1, 2])
@pytest.mark.parametrize("n_steps", [2, 3, 6])
def test_sums_over_steps_are_those_of_a_loop(num_slots, n_steps):
    """Rows of every slot, as a list; the frame of a row tells its tick."""
    rng = np.random.default_rng(n_steps)
    replay = FrameReplay(40 * num_slots, num_slots=num_slots, num_heads=1, shape=SHAPE)
    rows: list[list[tuple[bool, bool, float, float]]] = [[] for _ in range(num_slots)]
    fresh, over = np.ones(num_slots, bool), np.zeros(num_slots, bool)
    for tick in range(120):
        frame = np.full((num_slots, *SHAPE), tick + 1, np.uint8)
        if tick in (50, 90) and not over.any():  # all episodes are broken off where they are
            replay.close(frame)
            for slot in rows:
                slot.append((False, False, 0.0, 0.0))
            fresh, over = np.ones(num_slots, bool), np.zeros(num_slots, bool)
            continue
        reward, gone = rng.integers(1, 9, num_slots).astype(float), rng.random(num_slots) < 0.1
        discount = np.where(gone, 0.0, 0.5)
        replay.add(
            frame,
            fresh=fresh,
            action=np.zeros(num_slots, np.int32),
            reward=reward,
            discount=discount,
            mask=np.ones((num_slots, 1)),
            acted=~over,
        )
        for index, slot in enumerate(rows):
            slot.append((bool(fresh[index]), not over[index], reward[index], discount[index]))
        # Episodes end by a time limit, or with half of what is gone; the other half are lives.
        ends = rng.random(num_slots) < np.where(gone, 0.5, 0.05)
        fresh, over = over, ~over & ends

    def expected(slot: list[tuple[bool, bool, float, float]], first: int) -> tuple[float, float, int]:
        total, product, row = 0.0, 1.0, first
        while row < first + n_steps:
            total, product, row = total + product * slot[row][2], product * slot[row][3], row + 1
            is_made = row + 1 < len(slot) and slot[row][1] and not slot[row + 1][0]
            if not product or not is_made:
                break
        return total, product, row

    found = set()
    for _ in range(60):
        batch = replay.sample(rng, 16, n_steps)
        assert batch.frames.shape[1] == 2 * STACK
        for frames, reward, discount in zip(batch.frames, batch.reward, batch.discount, strict=True):
            first, last = int(frames[STACK - 1, 0, 0]) - 1, int(frames[-1, 0, 0]) - 1
            assert (reward, discount, last) in {expected(slot, first) for slot in rows}
            # Both stacks hold consecutive frames, behind black ones of before the episode.
            for stack in (frames[:STACK, 0, 0], frames[STACK:, 0, 0]):
                kept = stack[stack > 0].astype(int)
                assert (np.diff(kept) == 1).all()
            found.add(first)
    assert len(found) > 20


def test_sampling_is_uniform_over_what_can_be_sampled():
    replay = FrameReplay(64, num_slots=1, num_heads=1, shape=SHAPE)
    for step in range(100):
        replay.add(
            np.full((1, *SHAPE), step, np.uint8),
            fresh=np.array([step % 10 == 0]),
            action=np.array([0]),
            reward=np.array([float(step)]),
            discount=np.array([1.0]),
            mask=np.ones((1, 1)),
            acted=np.array([step % 10 != 9]),
        )
    rewards = np.concatenate([replay.sample(np.random.default_rng(i), 50).reward for i in range(400)])
    counts = Counter(rewards.tolist())
    # Steps 36 to 99 are there; 36 to 38 lack frames of their stacks, 99 has no successor, ends were not acted on.
    assert set(counts) == {float(s) for s in range(39, 99) if s % 10 != 9}
    mean = len(rewards) / len(counts)
    assert all(abs(count - mean) < 6 * np.sqrt(mean) for count in counts.values())


def test_memory_and_room():
    replay = FrameReplay(1_000_000, num_slots=1, num_heads=10)
    assert replay.memory_bytes < 7.6e9
    assert FrameReplay(100, num_slots=8, num_heads=1, shape=SHAPE).capacity == 96
    with pytest.raises(UserError, match="replay_capacity must be at least 56 with 8 environments, got 55"):
        FrameReplay(55, num_slots=8, num_heads=1)
    huge = FrameReplay(10**9, num_slots=1, num_heads=1)  # what cannot be allocated can be asked for its size
    assert huge.memory_bytes > 7e12


@pytest.mark.parametrize("num_slots", [1, 2])
def test_the_smallest_replay_always_has_something_to_sample(num_slots):
    replay = FrameReplay(7 * num_slots, num_slots=num_slots, num_heads=1, shape=SHAPE)
    rng = np.random.default_rng(0)
    fresh, over = np.ones(num_slots, bool), np.zeros(num_slots, bool)
    for tick in range(300):
        replay.add(
            np.zeros((num_slots, *SHAPE), np.uint8),
            fresh=fresh,
            action=np.zeros(num_slots),
            reward=np.zeros(num_slots),
            discount=np.zeros(num_slots),
            mask=np.zeros((num_slots, 1)),
            acted=~over,
        )
        if tick:
            assert len(replay.sample(rng, 3).action) == 3
        fresh, over = over, ~over & (rng.random(num_slots) < 0.3)
        if rng.random() < 0.2 and not over.any():
            replay.close(np.zeros((num_slots, *SHAPE), np.uint8))
            assert len(replay.sample(rng, 3).action) == 3
            fresh, over = np.ones(num_slots, bool), np.zeros(num_slots, bool)
