import json
from types import SimpleNamespace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bootdqn.envs.host import Envs, HostEnvs, make_envs
from bootdqn.envs.observations import Observations, action_count, space_layout
from bootdqn.errors import UserError
from bootdqn.loops.evaluate import VOTE, evaluate
from bootdqn.replay.device import add_some, make_ring, ring_size
from bootdqn.types import Transition

LENGTHS = (3, 1, 4, 1, 1, 2, 5)
FIRST_ACTION = 2
ARRAY = spaces.Box(0, 1000, (3,), np.float32)
FORMS = {
    "array": ARRAY,
    "dict": spaces.Dict({"at": ARRAY, "odd": spaces.Discrete(2, start=5)}),
    "index": spaces.Discrete(10_000, start=-7),
}
MODES = list(AutoresetMode)


class Scripted(gymnasium.Env[Any, Any]):
    """Observes (script, episode, step); the seed chooses the script, which says how long every episode is."""

    def __init__(self, form: str = "array"):
        self.form = form
        self.observation_space = FORMS[form]
        self.action_space = spaces.Discrete(3, start=FIRST_ACTION)
        self.script, self.episode, self.left = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if seed is None:
            self.episode += 1
        else:
            self.script, self.episode = seed % len(LENGTHS), 0
        self.at, self.left = 0, script_length(self.script, self.episode)
        return self.observe(), {}

    def step(self, action: Any):
        assert self.left, "a step after the end of an episode"
        assert self.action_space.contains(action)
        self.at, self.left = self.at + 1, self.left - 1
        over = self.left == 0
        terminated, truncated = over and self.episode % 3 != 1, over and self.episode % 3 != 0
        return self.observe(), 100.0 * self.episode + self.at + action / 8, terminated, truncated, {}

    def observe(self) -> Any:
        if self.form == "index":
            return (self.script * 100 + self.episode) * 10 + self.at - 7
        at = np.array([self.script, self.episode, self.at], np.float32)
        return at if self.form == "array" else {"at": at, "odd": 5 + self.at % 2}


def script_length(script: int, episode: int) -> int:
    return LENGTHS[(script + episode) % len(LENGTHS)]


def step_of(row: Any) -> int:
    """How far into its episode an observation is."""
    return int(row[2]) if np.ndim(row) else int(row) % 10


def policy(row: Any) -> int:
    return int(7 * np.sum(row)) % 3


def naive_transitions(form: str, seed: int, count: int) -> list[tuple[Any, ...]]:
    """The first transitions of one environment, the plain way."""
    env, found = Scripted(form), []
    row = Observations(space_layout(env.observation_space)).row
    obs = row(env.reset(seed=seed)[0])
    for _ in range(count):
        action = policy(obs)
        after, reward, terminated, truncated, _ = env.step(action + FIRST_ACTION)
        next_obs = row(after)
        found.append((obs.tolist(), action, reward, terminated, truncated, next_obs.tolist()))
        obs = row(env.reset()[0]) if terminated or truncated else next_obs
    return found


def assert_plays_like_one(envs: Envs, form: str, seeds: list[int], ticks: int, *, skips: bool) -> None:
    """From a reset, every slot has the transitions of an environment alone; `skips`: resets take a tick."""
    obs = envs.reset(seeds)
    assert [step_of(row) for row in obs] == [0] * len(seeds)
    found: list[list[tuple[Any, ...]]] = [[] for _ in seeds]
    num_fresh = np.zeros(len(seeds), int)
    ended_before = np.zeros(len(seeds), bool)
    for _ in range(ticks):
        actions = np.array([policy(row) for row in obs], np.int32)
        step = envs.step(actions)
        ended = step.terminated | step.truncated
        assert step.reward.dtype == np.float32
        assert step.obs.dtype == step.next_obs.dtype == obs.dtype
        np.testing.assert_array_equal(step.fresh, [step_of(row) == 0 for row in step.obs])
        np.testing.assert_array_equal(step.fresh, ended_before if skips else ended)
        np.testing.assert_array_equal(step.valid, ~ended_before if skips else np.ones(len(seeds), bool))
        assert not (ended & ~step.valid).any()
        for slot in np.flatnonzero(step.valid):
            flags = bool(step.terminated[slot]), bool(step.truncated[slot])
            found[slot].append(
                (obs[slot].tolist(), actions[slot], step.reward[slot], *flags, step.next_obs[slot].tolist())
            )
        num_fresh += step.fresh
        obs, ended_before = step.obs, ended
    for slot, seed in enumerate(seeds):
        assert len(found[slot]) == ticks - (num_fresh[slot] if skips else 0)
        assert found[slot] == naive_transitions(form, seed, len(found[slot]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_envs", [1, 2, 5])
@pytest.mark.parametrize("mode", MODES)
def test_slots_play_like_one_environment(mode, num_envs, form):
    envs = HostEnvs(SyncVectorEnv([lambda: Scripted(form)] * num_envs, autoreset_mode=mode))
    assert (envs.num_envs, envs.num_actions, envs.first_action) == (num_envs, 3, FIRST_ACTION)
    skips = mode == AutoresetMode.NEXT_STEP
    assert_plays_like_one(envs, form, list(range(num_envs)), 40, skips=skips)
    # A reset at any moment begins cleanly: in the middle of an episode, at its end, and just after.
    for ticks in range(13):
        assert_plays_like_one(envs, form, [ticks + 3 * slot for slot in range(num_envs)], ticks, skips=skips)
    envs.close()


def test_a_reset_just_after_an_episode_has_ended():
    for mode in MODES:
        envs = HostEnvs(SyncVectorEnv([Scripted] * 2, autoreset_mode=mode))
        envs.reset([0, 1])  # of 3 steps and of 1
        assert envs.step(np.zeros(2, np.int32)).terminated.tolist() == [False, True]
        np.testing.assert_array_equal(envs.reset([4, 5]), [[4, 0, 0], [5, 0, 0]])
        step = envs.step(np.zeros(2, np.int32))
        assert step.valid.tolist() == [True, True]
        np.testing.assert_array_equal(step.next_obs, [[4, 0, 1], [5, 0, 1]])
        envs.close()


def test_slots_in_processes_play_like_one_environment():
    envs = HostEnvs(
        AsyncVectorEnv([Scripted] * 2, autoreset_mode=AutoresetMode.SAME_STEP, context="forkserver", daemon=True)
    )
    try:
        for ticks in (25, 3, 8):
            assert_plays_like_one(envs, "array", [ticks, ticks + 2], ticks, skips=False)
    finally:
        envs.close()


def test_slots_in_processes_are_not_forked():
    """A fork of a process in which JAX has started its threads may hang; JAX warns, and a warning is an error."""
    jax.block_until_ready(jnp.zeros(3) + 1)
    envs = make_envs(Scripted, 2, "async")
    try:
        assert_plays_like_one(envs, "array", [1, 5], 9, skips=False)
    finally:
        envs.close()


def test_a_given_environment_is_used_itself():
    env = Scripted()
    envs = make_envs(env)
    assert_plays_like_one(envs, "array", [2], 9, skips=False)
    assert env.script == 2


def play_at_random(envs: Envs, seed: int, ticks: int) -> list[Any]:
    """All there is to see of random actions; the actions depend on `ticks` alone."""
    rng = np.random.default_rng(ticks)
    seen: list[Any] = [envs.reset([seed + slot for slot in range(envs.num_envs)])]
    actions = rng.integers(0, envs.num_actions, (ticks, envs.num_envs)).astype(np.int32)
    return seen + [envs.step(row) for row in actions]


def test_the_own_vector_version_of_an_environment():
    envs = make_envs("CartPole-v1", 3, "own")
    assert not isinstance(envs.envs.unwrapped, SyncVectorEnv)
    first, *steps = play_at_random(envs, 11, 200)
    assert first.shape == (3, 4)
    assert (np.abs(first) <= 0.05).all()
    obs, may_end = first, np.zeros(3, bool)
    ends = 0
    for step in steps:
        ended = step.terminated | step.truncated
        np.testing.assert_array_equal(step.valid, ~may_end)
        np.testing.assert_array_equal(step.fresh, may_end)
        np.testing.assert_array_equal(step.next_obs[~ended & step.valid], step.obs[~ended & step.valid])
        assert (np.abs(step.obs[step.fresh]) <= 0.05).all()
        # The dynamics: the position moves by what the velocity was.
        moved = step.next_obs[:, 0] - obs[:, 0] - 0.02 * obs[:, 1]
        np.testing.assert_allclose(moved[step.valid], 0, atol=1e-5)
        assert (step.reward[step.valid] == 1).all()
        # Out of bounds exactly where it ended.
        outside = (np.abs(step.next_obs[:, 2]) > 0.2095) | (np.abs(step.next_obs[:, 0]) > 2.4)
        np.testing.assert_array_equal(step.terminated, outside & step.valid)
        obs, may_end = step.obs, ended
        ends += ended.sum()
    assert ends > 10
    again, other = play_at_random(envs, 11, 200), play_at_random(envs, 12, 200)
    for a, b in zip(jax.tree.leaves([first, *steps]), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first, other[0])
    envs.close()


class Reusing(VectorEnv[Any, Any, Any]):
    """Counts, and returns the same arrays every time."""

    def __init__(self, space: spaces.Space[Any], mode: AutoresetMode):
        self.num_envs = 2
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = space, spaces.Discrete(2)
        self.observation_space, self.action_space = batch_space(space, 2), batch_space(spaces.Discrete(2), 2)
        assert space.shape is not None
        self.obs, self.reward = np.zeros((2, *space.shape), space.dtype), np.zeros(2, np.float32)
        self.terminated, self.truncated = np.zeros(2, bool), np.zeros(2, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None):
        self.obs[...] = 0
        return self.obs, {}

    def step(self, actions: Any):
        self.obs += 1
        self.reward += 1
        self.terminated ^= True
        final = self.obs.copy()
        return self.obs, self.reward, self.terminated, self.truncated, {"final_obs": final}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "space", [spaces.Box(0, 99, (3,)), spaces.Box(0, 255, (3,), np.uint8), spaces.Discrete(99, dtype=np.int32)]
)
def test_what_was_returned_stays_though_environments_reuse_their_arrays(space, mode):
    """Learning from a tick goes on while environments carry out the next."""
    envs = HostEnvs(Reusing(space, mode))
    first = envs.reset([0, 1])
    before = first.copy()
    step = envs.step(np.zeros(2, np.int32))
    copies = [field.copy() for field in step]
    envs.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(first, before)
    for name, field, copy in zip(step._fields, step, copies, strict=True):
        np.testing.assert_array_equal(field, copy, name)


# Observations.

SPACES: dict[str, spaces.Space[Any]] = {
    "float32": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "float64": spaces.Box(-2, 2, (2, 3), np.float64),
    "int": spaces.Box(-5, 9, (2,), np.int64),
    "image": spaces.Box(0, 255, (4, 3, 2), np.uint8),
    "small bytes": spaces.Box(0, 3, (5,), np.uint8),
    "number": spaces.Box(-1, 1, (), np.float32),
    "discrete": spaces.Discrete(5),
    "discrete from -2": spaces.Discrete(4, start=-2),
    "discrete bytes": spaces.Discrete(4, start=250, dtype=np.uint8),
    "discrete far away": spaces.Discrete(4, start=2**40),
    "binary": spaces.MultiBinary(5),
    "binary 2-D": spaces.MultiBinary([2, 3]),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-discrete from": spaces.MultiDiscrete([3, 2], start=[7, -1]),
    "multi-discrete bytes": spaces.MultiDiscrete([3, 2], dtype=np.uint8, start=[7, 253]),
    "multi-discrete 2-D": spaces.MultiDiscrete(np.array([[3, 2], [1, 4]]), start=np.array([[0, 1], [2, 3]])),
    "tuple": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1, 1, (2, 2)))),
    "tuple of one": spaces.Tuple((spaces.Discrete(3, start=1),)),
    "dict": spaces.Dict({"z": spaces.Discrete(3), "a": spaces.Box(0, 255, (2,), np.uint8)}),
    "dict in its own order": spaces.Dict([("z", spaces.Discrete(3)), ("a", spaces.Box(-1, 1, ()))]),
    "nested": spaces.Dict(
        {
            "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[1, 1]), spaces.MultiBinary([2, 2]))),
            "inner": spaces.Dict({"deep": spaces.Tuple((spaces.Box(-1, 1, (1, 2), np.float64),))}),
            "last": spaces.Discrete(2, start=-1),
        }
    ),
    "tuple of tuples": spaces.Tuple(
        (spaces.Tuple((spaces.MultiBinary(2),)), spaces.Dict({"b": spaces.Discrete(2)}))
    ),
}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))


def observations_of(space: spaces.Space[Any]) -> Observations:
    return Observations(space_layout(space))


def batch_of(space: spaces.Space[Any], singles: list[Any]) -> Any:
    return concatenate(space, singles, create_empty_array(space, len(singles)))


def samples(space: spaces.Space[Any], seed: int, count: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def flatten(space: spaces.Space[Any], obs: Any) -> NDArray[Any]:
    return np.asarray(spaces.flatten(space, obs))


def read(observations: Observations, obs: Any) -> Any:
    """The rows of what somebody hands over, be it one or a batch."""
    return observations.rows(obs) if observations.is_batch(obs) else observations.row(obs)


@each_space
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 4))
def test_rows_are_those_of_the_single_observations(space, seed, count):
    observations, singles = observations_of(space), samples(space, seed, count)
    batch = batch_of(space, singles)
    rows = observations.rows(batch)
    assert rows.dtype == observations.dtype
    assert rows.shape == (count, *observations.shape)
    for index, single in enumerate(singles):
        row = observations.row(single)
        assert row.dtype == observations.dtype
        np.testing.assert_array_equal(row, rows[index])
        flat = flatten(space, single)
        if isinstance(space, spaces.Discrete):
            assert row == single - int(space.start)
            assert flat[int(row)] == 1
        else:
            np.testing.assert_array_equal(row, flat.astype(observations.dtype))
        assert not observations.is_batch(single)
        np.testing.assert_array_equal(read(observations, single), row)
    assert observations.is_batch(batch)
    np.testing.assert_array_equal(read(observations, batch), rows)


@each_space
def test_rows_are_the_input_that_the_encoding_expects(space):
    observations = observations_of(space)
    single = samples(space, 0, 1)[0]
    features = observations.encoding(jnp.asarray(observations.row(single)))
    scale = 255 if observations.encoding.kind == "bytes" else 1
    assert observations.encoding.size == spaces.flatdim(space)
    np.testing.assert_allclose(features, flatten(space, single) / scale, rtol=1e-6)


def test_only_whole_bytes_stay_bytes():
    kinds = {name: observations_of(space).encoding.kind for name, space in SPACES.items()}
    assert {name for name, kind in kinds.items() if kind == "bytes"} == {"image"}
    indices = {name for name, space in SPACES.items() if isinstance(space, spaces.Discrete)}
    assert {name for name, kind in kinds.items() if kind == "one_hot"} == indices


@each_space
def test_layouts_survive_json(space):
    layout = space_layout(space)
    again = json.loads(json.dumps(layout))
    assert again == layout
    obs = samples(space, 3, 1)[0]
    np.testing.assert_array_equal(Observations(again).row(obs), Observations(layout).row(obs))


def test_a_batch_may_be_empty():
    for space in SPACES.values():
        observations = observations_of(space)
        assert observations.rows(create_empty_array(space, 0)).shape == (0, *observations.shape)


@each_space
def test_rows_do_not_change_with_what_they_came_from(space):
    observations = observations_of(space)
    batch = batch_of(space, samples(space, 1, 3))
    rows = observations.rows(batch)
    before = rows.copy()
    for leaf in jax.tree.leaves(batch):
        leaf[...] = 0
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(spaces.Box(-1, 1, (2,)), None),
        spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))),
        spaces.Dict({"fine": spaces.Discrete(2), "name": spaces.Text(5)}),
        spaces.Tuple((spaces.Tuple((spaces.Sequence(spaces.Discrete(3)),)),)),
    ],
    ids=str,
)
def test_observations_of_no_fixed_size_are_refused(space):
    with pytest.raises(UserError, match=r"not supported; supported are Box, Discrete, .* Tuple and Dict"):
        space_layout(space)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (1,)), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)])
def test_actions_that_are_no_choice_of_one_are_refused(space):
    with pytest.raises(UserError, match=f"actions of {type(space).__name__} are not supported; supported is Disc"):
        action_count(space)
    assert action_count(spaces.Discrete(4, start=-2)) == (4, -2)


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (0,)), spaces.Tuple(()), spaces.Dict({})], ids=str)
def test_observations_must_hold_something(space):
    with pytest.raises(UserError, match="must not be empty"):
        observations_of(space)


PAIR = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
WRONG: list[tuple[spaces.Space[Any], Any]] = [
    *[(ARRAY, np.zeros(shape)) for shape in ((), (2,), (4,), (3, 1), (1, 1, 3), (3, 4), (0,))],
    (ARRAY, [[1, 2, 3], [4, 5]]),
    (ARRAY, None),
    (ARRAY, {"a": 1}),
    (SPACES["number"], np.zeros((2, 1))),
    (SPACES["image"], np.zeros((3, 4, 2))),
    (SPACES["image"], np.zeros((1, 4, 3, 3))),
    (spaces.Discrete(3), np.zeros((2, 2), int)),
    (spaces.Discrete(3), [[0], [1, 2]]),
    (SPACES["binary 2-D"], np.zeros(6)),
    (SPACES["multi-discrete"], np.zeros(2, int)),
    (SPACES["multi-discrete"], np.zeros((3, 2), int)),
    (SPACES["multi-discrete 2-D"], np.zeros((3, 2), int)),
    (PAIR, {"a": np.zeros(3), "b": 1}),
    (PAIR, {"a": np.zeros(2), "b": [1, 2]}),
    (PAIR, {"a": np.zeros((2, 2)), "b": [1, 2, 0]}),
    (PAIR, {"a": np.zeros((2, 2)), "b": 1}),
    (PAIR, {"a": np.zeros(2)}),
    (PAIR, {"b": 1}),
    (PAIR, (np.zeros(2), 1)),
    (PAIR, np.zeros(3)),
    (PAIR, None),
    (SPACES["tuple"], (1,)),
    (SPACES["tuple"], (1, np.zeros((2, 2)), 0)),
    (SPACES["tuple"], (1, np.zeros((2, 3)))),
    (SPACES["tuple"], ([1, 2], np.zeros((1, 2, 2)))),
    (SPACES["tuple"], {"a": 1}),
    (SPACES["nested"], {"pair": 1, "inner": 2, "last": 0}),
    (SPACES["tuple of tuples"], ((np.zeros(2),), {"c": 1})),
]


@pytest.mark.parametrize(("space", "obs"), WRONG, ids=lambda value: repr(value).replace("\n", ""))
def test_observations_of_the_wrong_shape_are_refused(space, obs):
    with pytest.raises(UserError, match="expected"):
        read(observations_of(space), obs)


# The ring.


def numbered(numbers: Any) -> Transition:
    """Transitions whose every field tells their number."""
    n = np.asarray(numbers, np.int32)
    x = n.astype(np.float32)
    pair = np.stack([n, -n], axis=-1).astype(np.uint8)
    return Transition(pair, n, x, x / 2, pair + np.uint8(1), np.stack([x, x + 1, x + 2], axis=-1))  # type: ignore[arg-type]


add_some_jitted = jax.jit(add_some)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([1, 2, 5, 7]), st.sampled_from([1, 3, 6]), st.data())
def test_adding_some_does_what_a_list_does(capacity, width, data):
    masks = data.draw(st.lists(st.lists(st.booleans(), min_size=width, max_size=width), max_size=9))
    empty = numbered(0)
    ring = make_ring(empty, capacity)
    naive: list[Transition] = [jax.tree.map(np.zeros_like, empty)] * capacity
    added = 0
    for tick, mask in enumerate(masks):
        numbers = np.arange(width) + tick * width + 1
        ring = add_some_jitted(ring, numbered(numbers), jnp.asarray(mask))
        for number, valid in zip(numbers, mask, strict=True):
            if valid:
                naive[added % capacity] = numbered(number)
                added += 1
        assert ring.added.dtype == jnp.int32
        assert int(ring.added) == added
        assert int(ring_size(ring)) == min(added, capacity)
        for name, found, *expected in zip(Transition._fields, ring.data, *naive, strict=True):
            np.testing.assert_array_equal(found, np.stack(expected), name)
            assert found.dtype == expected[0].dtype


# Evaluation.


class Chooser:
    """Always takes the second action; the entropy of its belief tells the step."""

    def __init__(self):
        self.scripts: list[int] = []
        self.ticks: list[int] = []

    def __call__(self, params: Any, key: Any, obs: Any, policies: Any, tick: int, epsilon: float) -> Any:
        assert (params, epsilon) == ("parameters", 0.0)
        if not self.ticks:
            self.scripts = obs[:, 0].astype(int).tolist()
        self.ticks.append(tick)
        # The first head is certain by as much as the step says, the second is of the opposite opinion.
        certain = (obs[:, 2] + 1)[:, None]
        q = np.stack([np.hstack([-certain, certain]), np.hstack([certain, -certain])], axis=1)
        return np.ones(len(obs), np.int32), SimpleNamespace(entropy=obs[:, 2] + 1, q=q)


def return_by_hand(script: int, episode: int) -> float:
    length = script_length(script, episode)
    return 100 * episode * length + length * (length + 1) / 2 + length * (FIRST_ACTION + 1) / 8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("episodes", [1, 2, 5])
def test_evaluation_by_hand(mode, episodes):
    policies = [VOTE, 1, 0, VOTE, 1]
    envs = HostEnvs(SyncVectorEnv([Scripted] * len(policies), autoreset_mode=mode))
    for seed in range(4):
        chooser = Chooser()
        found = evaluate(envs, chooser, "parameters", policies, episodes=episodes, seed=[7, seed])
        assert len(set(chooser.scripts)) > 1
        assert chooser.ticks == list(range(len(chooser.ticks)))
        assert [evaluation.policy for evaluation in found] == [VOTE, 1, 0]
        for evaluation, slots in zip(found, ([0, 3], [1, 4], [2]), strict=True):
            played = [(chooser.scripts[slot], episode) for slot in slots for episode in range(episodes)]
            assert evaluation.returns.tolist() == [return_by_hand(*which) for which in played]
            lengths = [script_length(*which) for which in played]
            assert evaluation.entropy == pytest.approx(sum(n * (n + 1) / 2 for n in lengths) / sum(lengths))
            assert evaluation.likeness.observations == sum(lengths)
            squares = sum(2 * step**2 for n in lengths for step in range(1, n + 1))
            np.testing.assert_allclose(evaluation.likeness.products, [[squares, -squares], [-squares, squares]])
            assert evaluation.likeness.agreement == 0
        # No longer than the slowest slot needs.
        longest = max(sum(script_length(s, e) for e in range(episodes)) for s in chooser.scripts)
        assert len(chooser.ticks) <= longest + (episodes - 1 if mode == AutoresetMode.NEXT_STEP else 0)
        again = evaluate(envs, Chooser(), "parameters", policies, episodes=episodes, seed=[7, seed])
        for a, b in zip(found, again, strict=True):
            np.testing.assert_array_equal(a.returns, b.returns)
    envs.close()


def test_evaluation_stops_with_the_episodes_there_are():
    envs = HostEnvs(SyncVectorEnv([Scripted] * 3))
    chooser = Chooser()
    found = evaluate(
        envs,
        chooser,
        "parameters",
        [0, 1, 2],
        episodes=9,
        seed=[1],
        should_stop=lambda: len(chooser.ticks) == 6,
    )
    assert len(chooser.ticks) == 6
    for slot, evaluation in enumerate(found):
        script, time, expected = chooser.scripts[slot], 0, []
        # In this mode an episode's reset takes a tick of its own.
        for episode in range(9):
            time += script_length(script, episode)
            if time <= 6:
                expected.append(return_by_hand(script, episode))
            time += 1
        assert evaluation.returns.tolist() == expected
    none = evaluate(envs, Chooser(), "parameters", [0, 1, 2], episodes=2, seed=[1], should_stop=lambda: True)
    assert [len(evaluation.returns) for evaluation in none] == [0, 0, 0]
    assert [evaluation.entropy for evaluation in none] == [0, 0, 0]
    envs.close()
