"""Returns over several steps: what a loop over whole episodes finds, whatever their ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.core.config import AgentConfig
from bootdqn.loops.slots import Draws
from bootdqn.loops.updates import make_initial, make_learn
from bootdqn.replay.n_step import make_window, push
from bootdqn.types import Agent, Encoding, Transition, UpdateMetrics

GAMMA = 0.5
EXAMPLE = Transition(*map(jnp.asarray, (0, 0, 0.0, 0.0, 0, jnp.zeros(2))))


def transition(number: int, discount: float = GAMMA) -> Transition:
    """A transition whose every field tells its number."""
    n, x = np.int32, np.float32
    mask = np.array([number, -number], np.float32)
    return Transition(n(number), n(number % 3), x(number), x(discount), n(number + 1), mask)  # type: ignore[arg-type]


def summed(episode: list[Transition], first: int, n_steps: int) -> tuple:
    """What the transition from `first` on should be, by a loop."""
    reward, discount, last = 0.0, 1.0, first
    for step in episode[first : first + n_steps]:
        reward += discount * float(step.reward)
        discount *= float(step.discount)
        last = int(step.next_obs)
        if discount == 0:
            break
    begin = episode[first]
    # Where there is no future, what would be observed next does not matter.
    return int(begin.obs), int(begin.action), reward, discount, float(begin.mask[1]), last if discount else None


def told(row: Transition) -> tuple:
    discount = float(row.discount)
    last = int(row.next_obs) if discount else None
    return int(row.obs), int(row.action), float(row.reward), discount, float(row.mask[1]), last


def test_three_steps_by_hand():
    window, push_one = make_window(EXAMPLE, 3), jax.jit(push)
    found = []
    for number, ended in ((1, False), (2, False), (3, False), (4, True)):
        window, rows, complete = push_one(window, transition(number), np.bool_(ended))
        rows = jax.tree.map(np.asarray, rows)
        found.append([told(jax.tree.map(lambda x, i=i: x[i], rows)) for i in np.flatnonzero(complete)])
    assert found == [
        [],
        [],
        [(1, 1, 1 + 2 / 2 + 3 / 4, 1 / 8, -1.0, 4)],
        [
            (2, 2, 2 + 3 / 2 + 4 / 4, 1 / 8, -2.0, 5),
            (3, 0, 3 + 4 / 2, 1 / 4, -3.0, 5),
            (4, 1, 4.0, 1 / 2, -4.0, 5),
        ],
    ]
    assert int(window.size) == 0


# What happens to a slot in a tick. A life that is lost ends the future but not the episode; an episode that is
# broken off is followed by the start of another without an end; in a reset tick nothing is stored.
EVENTS = st.sampled_from(["on", "on", "on", "terminated", "life_lost", "truncated", "broken_off", "reset"])
NO_AGENT = Agent(*[lambda *_: None] * (len(Agent._fields) - 1), None)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(st.lists(EVENTS, min_size=2, max_size=2), min_size=1, max_size=24),
    n_steps=st.sampled_from([2, 5]),
    capacity=st.sampled_from([10, 64]),
)
def test_slots_store_what_a_loop_over_their_episodes_finds(events, n_steps, capacity):
    learn, learned = LEARN[n_steps], INITIAL[n_steps, capacity](jax.random.key(0))
    episodes: list[list[Transition]] = [[], []]
    fresh, number, expected = [True, True], 0, []
    for row in events:
        fields, complete = [], [[], []]
        for slot, event in enumerate(row):
            number += 1
            valid = event != "reset" or not fresh[slot]
            gone = event in ("terminated", "life_lost")
            new = transition(number, 0.0 if gone else GAMMA)
            ended = event in ("terminated", "truncated")
            fields.append((new, fresh[slot], gone, valid and ended, valid))
            if not valid:
                continue
            episode = episodes[slot]
            episode.append(new)
            count = len(episode)
            firsts = (
                range(max(0, count - n_steps), count) if ended else [count - n_steps] if count >= n_steps else []
            )
            complete[slot] = [summed(episode, first, n_steps) for first in firsts]
            fresh[slot] = ended or event == "broken_off"
            if fresh[slot]:
                episodes[slot] = []
        expected += complete[0] + complete[1]
        steps, begins, gone, ended, valid = (list(column) for column in zip(*fields, strict=True))
        many = jax.tree.map(lambda *x: np.stack(x), *steps)
        draws = Draws(many.mask, jax.random.key(0))
        flags = [np.asarray(flag) for flag in (gone, ended)]
        learned = learn(
            *(learned, draws, many.obs, np.asarray(begins), many.action, many.reward, *flags),
            *(many.next_obs, np.asarray(valid), 0),
        )
    assert learned.replay is not None
    assert int(learned.replay.added) == len(expected)
    held = jax.tree.map(np.asarray, learned.replay.data)
    for index, wanted in list(enumerate(expected))[-capacity:]:
        row = jax.tree.map(lambda x, i=index: x[i % capacity], held)
        assert told(row) == pytest.approx(wanted)


class _Observations:
    """What slots observe: numbers."""

    shape, dtype = (), np.dtype(np.int32)
    encoding = Encoding("one_hot", 100)


def _config(n_steps: int) -> AgentConfig:
    return AgentConfig(num_heads=2, n_steps=n_steps, discount=GAMMA)


_AGENT = NO_AGENT._replace(
    init=lambda key: jnp.zeros(()),  # type: ignore[arg-type]
    update=lambda learner, batch: (learner, UpdateMetrics(*[jnp.float32(0)] * 3), None),
)
LEARN = {n: jax.jit(make_learn(_AGENT, _config(n))) for n in (2, 5)}
INITIAL = {
    (n, capacity): make_initial(_AGENT, _config(n), _Observations, capacity, 2)  # type: ignore[arg-type]
    for n in (2, 5)
    for capacity in (10, 64)
}
