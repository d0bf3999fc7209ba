import errno
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.errors import UserError
from bootdqn.runs import checkpoint, models
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoint, Checkpoints, Replay
from bootdqn.runs.models import read_model, save_model
from helpers import load_model, small_agent, trees_equal


class NaiveRing:
    """A ring in the plainest way, which also notes which rows a checkpoint asks for."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.added = 0
        self.obs = np.zeros((capacity, 2), np.uint8)
        self.reward = np.zeros(capacity, np.float32)
        self.asked: list[list[int]] = []

    def add(self, count: int) -> None:
        for _ in range(count):
            at = self.added % self.capacity
            self.added += 1
            self.obs[at], self.reward[at] = (self.added % 251, self.added % 13), self.added / 8

    def replay(self) -> Replay:
        def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
            self.asked.append(positions.tolist())
            return {"obs": self.obs[positions], "reward": self.reward[positions]}

        return Replay(self.added, self.capacity, rows)

    def fields(self) -> dict[str, np.ndarray]:
        return {"obs": self.obs.copy(), "reward": self.reward.copy()} if self.added else {}


def arrays_of(step: int) -> dict[str, np.ndarray]:
    return {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3) + step,
        "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T + step,
        "count": np.array(step, np.int32),
        "flags": np.array([True, False, step % 2 == 0]),
        "none": np.zeros((0, 4), np.uint32),
    }


def info_of(step: int) -> dict[str, Any]:
    return {"env": "a", "counters": {"step": step, "head_steps": [step, 7]}, "best": None, "share": 0.5 + step}


def save(checkpoints: Checkpoints, step: int, *rings: NaiveRing) -> None:
    checkpoints.save(step, info=info_of(step), arrays=arrays_of(step), replays=[ring.replay() for ring in rings])


def silent(text: str) -> None:
    raise AssertionError(f"nothing to tell, but was told {text}")


def assert_same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
        np.testing.assert_array_equal(found[name], value, name)


def assert_holds(found: Checkpoint | None, step: int, replays: list[dict[str, np.ndarray]]) -> None:
    """A checkpoint is the one that `save` made at `step`, with these replays."""
    assert found is not None
    assert type(found.step) is int
    assert found.step == step
    assert found.info == info_of(step)
    assert_same_arrays(found.arrays, arrays_of(step))
    assert len(found.replays) == len(replays)
    for fields, expected in zip(found.replays, replays, strict=True):
        assert_same_arrays(fields, expected)


def holds(found: Checkpoint | None, step: int, replays: list[dict[str, np.ndarray]]) -> bool:
    try:
        assert_holds(found, step, replays)
    except AssertionError:
        return False
    return True


def segments(folder: Path, which: int = 0) -> list[tuple[int, int]]:
    """First row and end of every file of a replay."""
    names = [re.match(rf"replay-{which}-(\d+)-(\d+)", path.name) for path in sorted(folder.iterdir())]
    return [(int(match[1]), int(match[2])) for match in names if match]


def manifest_of(folder: Path, step: int) -> Path:
    return folder / f"{step:012}.json"


# Whole checkpoints.


def test_nothing_is_found_where_nothing_was_saved(tmp_path):
    assert Checkpoints(tmp_path).load(silent) is None
    assert not list(tmp_path.iterdir())


def test_round_trip(tmp_path):
    rings = NaiveRing(5), NaiveRing(3), NaiveRing(4)
    rings[0].add(3)
    rings[1].add(7)
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 0)
    assert_holds(Checkpoints(tmp_path).load(silent), 0, [])
    save(checkpoints, 20_000, *rings)
    for loader in (checkpoints, Checkpoints(tmp_path)):
        assert_holds(loader.load(silent), 20_000, [ring.fields() for ring in rings])


def test_scalars_keep_their_shape(tmp_path):
    Checkpoints(tmp_path).save(1, info={}, arrays={"count": np.array(3, np.int32)})
    found = Checkpoints(tmp_path).load(silent)
    assert found is not None
    assert found.arrays["count"].shape == ()


def test_what_was_loaded_does_not_hang_on_the_files(tmp_path):
    ring = NaiveRing(4)
    ring.add(6)
    save(Checkpoints(tmp_path), 5, ring)
    found = Checkpoints(tmp_path).load(silent)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"")
        path.unlink()
    assert_holds(found, 5, [ring.fields()])


def test_a_checkpoint_costs_what_is_new(tmp_path):
    folder, ring, checkpoints = tmp_path / "checkpoints", NaiveRing(1000), Checkpoints(tmp_path)
    ring.add(600)
    save(checkpoints, 600, ring)
    assert segments(folder) == [(0, 600)]
    before = {path.name: path.stat() for path in folder.iterdir()}
    ring.add(10)
    save(checkpoints, 610, ring)
    assert segments(folder) == [(0, 600), (600, 610)]
    assert ring.asked == [list(range(600)), list(range(600, 610))]
    new = [path for path in folder.iterdir() if path.name not in before]
    assert sum(path.stat().st_size for path in new) < 4000 < sum(stat.st_size for stat in before.values())
    for name, stat in before.items():
        assert (folder / name).stat().st_mtime_ns == stat.st_mtime_ns
    save(checkpoints, 611, ring)  # nothing was added
    assert segments(folder) == [(0, 600), (600, 610)]
    # One that resumes goes on in the same way.
    checkpoints = Checkpoints(tmp_path)
    assert_holds(checkpoints.load(silent), 611, [ring.fields()])
    ring.add(400)
    save(checkpoints, 1011, ring)
    assert segments(folder) == [(0, 600), (600, 610), (610, 1010)]
    assert ring.asked[2:] == [[*range(610, 1000), *range(10)]]
    # What fell out of the ring goes, once no kept checkpoint needs it.
    ring.add(600)
    save(checkpoints, 1611, ring)
    save(checkpoints, 1612, ring)
    assert segments(folder) == [(610, 1010), (1010, 1610)]
    # More than a capacity since the last: all of the ring, and no more.
    ring.add(2500)
    save(checkpoints, 4112, ring)
    save(checkpoints, 4113, ring)
    assert segments(folder) == [(3110, 4110)]
    assert_holds(Checkpoints(tmp_path).load(silent), 4113, [ring.fields()])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4), st.booleans()), min_size=1, max_size=7),
)
def test_rings_are_rebuilt_as_they_were(capacities, rounds):
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        checkpoints, rings = Checkpoints(path), [NaiveRing(capacity) for capacity in capacities]
        states: list[list[dict[str, np.ndarray]]] = []
        before = [0] * len(rings)
        for step, (first, second, resumes) in enumerate(rounds):
            for ring, count in zip(rings, (first, second), strict=False):
                ring.add(count)
            save(checkpoints, step, *rings)
            states.append([ring.fields() for ring in rings])
            assert_holds(Checkpoints(path).load(silent), step, states[-1])
            if resumes:
                checkpoints = Checkpoints(path)
                checkpoints.load(silent)
            for index, ring in enumerate(rings):
                parts = segments(path / "checkpoints", index)
                assert all(stop - start <= ring.capacity for start, stop in parts)
                assert len(set(parts)) == len(parts)
                assert all(stop > before[index] - ring.capacity for _, stop in parts)
            before = [ring.added for ring in rings]
            # The one before is as good.
            if step:
                newest = manifest_of(path / "checkpoints", step)
                hidden = newest.rename(path / "hidden")
                assert_holds(Checkpoints(path).load(silent), step - 1, states[-2])
                hidden.rename(newest)


def test_only_two_checkpoints_and_what_they_need_remain(tmp_path):
    folder, ring, checkpoints = tmp_path / "checkpoints", NaiveRing(10), Checkpoints(tmp_path)
    for step in range(0, 60, 3):
        ring.add(3)
        save(checkpoints, step, ring)
        steps = sorted(int(path.stem) for path in folder.glob("*.json"))
        assert steps == [step - 3, step][-len(steps) :]
        assert len(steps) == min(2, step // 3 + 1)
        names = {path.name for path in folder.iterdir()}
        needed = {name for s in steps for name in json.loads(manifest_of(folder, s).read_bytes())["files"]}
        assert names == needed | {manifest_of(folder, s).name for s in steps}
        assert sum(stop - start for start, stop in segments(folder)) <= 18


def test_what_a_cut_short_write_left_is_removed(tmp_path):
    folder, ring, checkpoints = tmp_path / "checkpoints", NaiveRing(10), Checkpoints(tmp_path)
    ring.add(4)
    save(checkpoints, 4, ring)
    left = [
        ".000000000004.json.123",
        ".replay-0-000000000004-000000000006.safetensors.99",
        "replay-0-000000000004-000000000006.safetensors",
        "replay-1-000000000000-000000000006.safetensors",
        "000000000006.safetensors",
    ]
    for name in left:
        (folder / name).write_bytes(b"half a fi")
    checkpoints = Checkpoints(tmp_path)
    assert_holds(checkpoints.load(silent), 4, [ring.fields()])
    ring.add(3)
    save(checkpoints, 7, ring)
    assert not {path.name for path in folder.iterdir()} & set(left)
    assert_holds(Checkpoints(tmp_path).load(silent), 7, [ring.fields()])


def test_all_may_be_removed(tmp_path):
    ring, checkpoints = NaiveRing(4), Checkpoints(tmp_path)
    ring.add(6)
    save(checkpoints, 6, ring)
    checkpoints.remove()
    assert not list(tmp_path.iterdir())
    assert Checkpoints(tmp_path).load(silent) is None


def test_another_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", "bootdqn-checkpoint-0")
        save(Checkpoints(tmp_path), 3)
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    with pytest.raises(UserError, match=f"has format 'bootdqn-checkpoint-0', expected '{checkpoint.FORMAT}'"):
        Checkpoints(tmp_path).load(silent)
    assert {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()} == before


# Damaged checkpoints.


class Saved(NamedTuple):
    """Two checkpoints, of step 10 and of step 20999, as files."""

    files: dict[str, bytes]
    older: list[dict[str, np.ndarray]]
    newer: list[dict[str, np.ndarray]]
    both: set[str]
    """Names of the files that both need."""
    own: set[str]
    """Names of the files that only the newer needs."""


OLD, NEW = 10, 20_999


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Saved:
    path = tmp_path_factory.mktemp("saved")
    ring, checkpoints = NaiveRing(8), Checkpoints(path)
    ring.add(6)
    save(checkpoints, OLD, ring)
    older = [ring.fields()]
    names = {file.name for file in checkpoints.folder.iterdir()}
    ring.add(5)
    save(checkpoints, NEW, ring)
    files = {file.name: file.read_bytes() for file in checkpoints.folder.iterdir()}
    both = {name for name in names if name.startswith("replay-")}
    assert len(both) == 1
    assert len(files.keys() - names) == 3
    return Saved(files, older, [ring.fields()], both, files.keys() - names)


def load_damaged(path: Path, saved: Saved, **changed: bytes | None) -> tuple[Checkpoint | None, list[str]]:
    """What is found, and told, where some files are changed, or removed."""
    folder = path / "checkpoints"
    folder.mkdir(exist_ok=True)
    for name, data in {**saved.files, **changed}.items():
        (folder / name).unlink(missing_ok=True)
        if data is not None:
            (folder / name).write_bytes(data)
    told: list[str] = []
    return Checkpoints(path).load(told.append), told


def assert_noticed(found: Checkpoint | None, told: list[str], name: str, saved: Saved) -> None:
    """Damage to a file the newer one needs was seen, or did not matter."""
    if not told:
        assert_holds(found, NEW, saved.newer)
        return
    assert f"step {NEW} " in told[0]
    if name in saved.both:
        assert found is None
        assert len(told) == 2
        assert f"step {OLD} " in told[1]
    else:
        assert_holds(found, OLD, saved.older)
        assert len(told) == 1


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_noticed(saved, data):
    name = data.draw(st.sampled_from(sorted(saved.own | saved.both)))
    content = bytearray(saved.files[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as path:
        found, told = load_damaged(Path(path), saved, **{name: bytes(content)})
        assert_noticed(found, told, name, saved)
        if not name.endswith(".json"):
            assert told


def test_every_changed_bit_of_a_manifest_is_noticed(saved, tmp_path):
    name = f"{NEW:012}.json"
    unnoticed, raised = [], []
    for at, byte in enumerate(saved.files[name]):
        for bit in range(8):
            content = bytearray(saved.files[name])
            content[at] = byte ^ 1 << bit
            around = bytes(content[max(0, at - 25) : at + 10]).decode(errors="replace")
            try:
                found, told = load_damaged(tmp_path, saved, **{name: bytes(content)})
            except Exception as error:
                raised.append(f"{type(error).__name__}: {around}")
                continue
            if not holds(found, OLD, saved.older) and not (holds(found, NEW, saved.newer) and not told):
                unnoticed.append(around)
    assert not raised, f"{len(raised)} changes raise an error, such as {raised[:: len(raised) // 5 + 1]}"
    assert not unnoticed, f"{len(unnoticed)} go unnoticed, such as {unnoticed[:: len(unnoticed) // 5 + 1]}"


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (rb'"head_steps": \[\s*20999', b'"head_steps": [\n 20998'),
        (rb'"best": null', b'"best": 1234'),
        (rb'"env": "a"', b'"env": "b"'),
        (rb'"added": \[\s*11', b'"added": [\n   10'),
        (rb'"added": \[\s*11', b'"added": [\n   99'),
        (rb'"added": \[\s*11', b'"added": [\n  "1"'),
        (rb'"added": \[\s*11\s*\]', b'"added": [\n]'),
        (rb'"capacity": \[\s*8', b'"capacity": [\n   9'),
        (rb'"capacity": \[\s*8', b'"capacity": [\n   0'),
        (rb'"capacity": \[\s*8', b'"capacity": [\n  -1'),
        (rb'"step": 20999', b'"step": 20998'),
        (rb'"step": 20999', b'"step": 2e999'),
        (rb'"step": 20999', b'"step": -0999'),
        (rb"bootdqn-checkpoint-\d", b"bootdqn-checkpoint-0"),
        (rb"replay-0-0+6", b"replay-1-000000000006"),
        (rb".*(?s:.)*", b"[]"),
        (rb".*(?s:.)*", b"[" * 100_000),
        (rb".*(?s:.)*", b"{}"),
        (rb".*(?s:.)*", b"\xff\xfe"),
    ],
)
def test_a_changed_manifest_is_noticed(saved, tmp_path, pattern, replacement):
    name = f"{NEW:012}.json"
    content, count = re.subn(pattern, replacement, saved.files[name], count=1)
    assert count == 1
    found, told = load_damaged(tmp_path, saved, **{name: content})
    assert_holds(found, OLD, saved.older)
    assert len(told) == 1
    assert f"step {NEW} " in told[0]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_file_cut_short_is_noticed(saved, data):
    name = data.draw(st.sampled_from(sorted(saved.own | saved.both)))
    content = saved.files[name]
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    with tempfile.TemporaryDirectory() as path:
        found, told = load_damaged(Path(path), saved, **{name: cut})
        assert told
        assert_noticed(found, told, name, saved)


def test_a_missing_file_is_noticed(saved, tmp_path):
    for name in saved.own | saved.both:
        if not name.endswith(".json"):
            found, told = load_damaged(tmp_path, saved, **{name: None})
            assert told
            assert_noticed(found, told, name, saved)


def test_a_file_that_cannot_be_read_is_noticed(saved, tmp_path):
    for name in saved.own:
        load_damaged(tmp_path, saved)
        (tmp_path / "checkpoints" / name).unlink()
        (tmp_path / "checkpoints" / name).mkdir()
        told: list[str] = []
        assert_holds(Checkpoints(tmp_path).load(told.append), OLD, saved.older)
        assert f"step {NEW} " in told[0]
        if (tmp_path / "checkpoints" / name).exists():
            (tmp_path / "checkpoints" / name).rmdir()


def test_nothing_is_found_where_both_are_damaged(saved, tmp_path):
    names = [[name for name in saved.files if name.startswith(f"{step:012}")] for step in (OLD, NEW)]
    for old in names[0]:
        for new in names[1]:
            changed: dict[str, bytes | None] = {old: saved.files[old][:-9], new: saved.files[new][:-9]}
            found, told = load_damaged(tmp_path, saved, **changed)
            assert found is None
            assert [f"step {step} " in text for step, text in zip((NEW, OLD), told, strict=True)] == [True, True]
            # And that is so when asked again.
            assert Checkpoints(tmp_path).load(lambda text: None) is None


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_run_goes_on_from_the_checkpoint_before(saved, data):
    name = data.draw(st.sampled_from(sorted(saved.own)))
    content = saved.files[name][: data.draw(st.integers(0, len(saved.files[name]) - 1))]
    step, extra = data.draw(st.sampled_from([15, NEW, 30_000])), data.draw(st.sampled_from([0, 2, 5, 30]))
    ring = NaiveRing(8)
    ring.add(6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        load_damaged(path, saved, **{name: content})
        checkpoints = Checkpoints(path)
        assert_holds(checkpoints.load(lambda text: None), OLD, saved.older)
        ring.add(extra)
        save(checkpoints, step, ring)
        assert_holds(Checkpoints(path).load(silent), step, [ring.fields()])
        manifest_of(path / "checkpoints", step).unlink()
        assert_holds(Checkpoints(path).load(silent), OLD, saved.older)


def test_a_run_begins_again_where_all_was_damaged(saved, tmp_path):
    load_damaged(tmp_path, saved)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.load(silent)
    for name in saved.both:
        (tmp_path / "checkpoints" / name).write_bytes(b"")
    assert checkpoints.load(lambda text: None) is None
    ring = NaiveRing(8)
    ring.add(6)
    save(checkpoints, OLD, ring)
    assert_holds(Checkpoints(tmp_path).load(silent), OLD, [ring.fields()])


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"files": 3}'])
def test_a_damaged_manifest_does_not_keep_a_run_from_saving(saved, tmp_path, content):
    checkpoints, ring = Checkpoints(tmp_path), NaiveRing(8)
    ring.add(6)
    save(checkpoints, OLD, ring)
    manifest_of(checkpoints.folder, OLD).write_bytes(content)
    ring.add(5)
    save(checkpoints, NEW, ring)
    assert_holds(Checkpoints(tmp_path).load(silent), NEW, saved.newer)


# Full disks.


class FullDisk:
    """Lets so many operations through, fails in the next one, and then lets all through."""

    def __init__(self, patch: pytest.MonkeyPatch, where: str):
        self.left = -1
        if where == "write":
            real_open = Path.open
            patch.setattr(Path, "open", lambda *args, **options: Filling(self, real_open(*args, **options)))
        else:
            owner: Any = os if where == "fsync" else Path
            real = getattr(owner, where)
            patch.setattr(owner, where, lambda *args: (self.use(), real(*args))[1])

    def use(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.ENOSPC, "No space left on device")


class Filling:
    """A file of which half is written when the disk is full."""

    def __init__(self, disk: FullDisk, file: Any):
        self.disk, self.file = disk, file

    def write(self, data: bytes) -> int:
        self.file.write(data[: len(data) // 2])
        self.disk.use()
        return self.file.write(data[len(data) // 2 :])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *details: Any):
        self.file.close()


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
@pytest.mark.parametrize("step", [8, 12], ids=["same step again", "next step"])
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, monkeypatch, where, step):
    checkpoints, ring = Checkpoints(tmp_path), NaiveRing(6)
    for before in (4, 8):
        ring.add(4)
        save(checkpoints, before, ring)
    previous = [ring.fields()]
    ring.add(4)
    new = {**arrays_of(step), "weights": np.ones(3, np.float32)}
    disk = FullDisk(monkeypatch, where)
    # A part of the replay, the arrays, and the manifest.
    for failure in range(3):
        disk.left = failure
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(step, info={"new": True}, arrays=new, replays=[ring.replay()])
        assert not [path.name for path in checkpoints.folder.iterdir() if path.name.startswith(".")]
        assert_holds(Checkpoints(tmp_path).load(silent), 8, previous)
    disk.left = 3
    checkpoints.save(step, info={"new": True}, arrays=new, replays=[ring.replay()])
    assert disk.left == 0
    found = Checkpoints(tmp_path).load(silent)
    assert found is not None
    assert (found.step, found.info) == (step, {"new": True})
    assert_same_arrays(found.arrays, new)
    assert_same_arrays(found.replays[0], ring.fields())


# Named arrays.


def a_tree() -> dict[str, Any]:
    return {
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), (2, 3)),
        "nested": [np.arange(3, dtype=np.int16), (jnp.float32(2.5), np.zeros((2, 0), bool))],
        "turned": np.arange(6.0).reshape(2, 3).T,
    }


def assert_same_trees(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    found, expected = named_arrays(found), named_arrays(expected)
    assert_same_arrays(found, expected)


def test_named_arrays_come_back():
    tree = a_tree()
    arrays = named_arrays(tree)
    assert set(arrays) == {"key", "keys", "nested.0", "nested.1.0", "nested.1.1", "turned"}
    assert all(type(array) is np.ndarray for array in arrays.values())
    assert arrays["keys"].shape == (2, 3, 2)
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, {**tree, "turned": 0.0}))
    shapes["turned"] = jax.ShapeDtypeStruct((3, 2), np.dtype(np.float64))
    for like in (tree, shapes):
        found = restore(like, {**arrays, "more": np.zeros(2)}, "there")
        assert_same_trees(found, tree)
        assert found["key"].dtype == found["keys"].dtype == tree["key"].dtype
        assert jax.random.bits(found["key"]) == jax.random.bits(tree["key"])
        assert jax.random.bits(found["keys"][1, 2]) == jax.random.bits(tree["keys"][1, 2])


def test_named_arrays_come_back_from_a_checkpoint(tmp_path):
    tree = a_tree()
    Checkpoints(tmp_path).save(1, info={}, arrays=named_arrays(tree))
    found = Checkpoints(tmp_path).load(silent)
    assert found is not None
    assert_same_trees(restore(tree, found.arrays, tmp_path), tree)


def test_a_learner_comes_back_from_a_checkpoint(tmp_path):
    _, agent = small_agent()
    learner = agent.init(jax.random.key(0))
    Checkpoints(tmp_path).save(1, info={}, arrays=named_arrays(learner))
    found = Checkpoints(tmp_path).load(silent)
    assert found is not None
    assert trees_equal(restore(jax.eval_shape(lambda: learner), found.arrays, tmp_path), learner)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "nested.0",
            np.zeros(4, np.int16),
            r"nested\.0 should be int16 of shape \(3,\), got int16 of shape \(4,\)",
        ),
        (
            "nested.0",
            np.zeros(3, np.int32),
            r"nested\.0 should be int16 of shape \(3,\), got int32 of shape \(3,\)",
        ),
        ("nested.1.0", np.zeros(1, np.float32), r"nested\.1\.0 should be float32 of shape \(\), got float32 of"),
        ("turned", None, r"turned should be float64 of shape \(3, 2\), got nothing"),
        ("key", np.zeros(3, np.uint32), r"key should be uint32 of shape \(2,\), got uint32 of shape \(3,\)"),
        ("key", np.zeros(2, np.int32), r"key should be uint32 of shape \(2,\), got int32 of shape \(2,\)"),
        ("keys", None, r"keys should be uint32 of shape \(2, 3, 2\), got nothing"),
    ],
)
def test_arrays_that_do_not_fit_are_named(name, value, message):
    arrays = {key: array for key, array in named_arrays(a_tree()).items() if key != name}
    if value is not None:
        arrays[name] = value
    with pytest.raises(UserError, match=f"^there: {message}"):
        restore(a_tree(), arrays, "there")


# Model files.


def test_models_of_arrays_that_are_not_contiguous(tmp_path):
    params = {
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "some": np.arange(8)[::2],
        "one": np.array(2),
    }
    save_model(tmp_path / "m.safetensors", params, {})
    loaded, _ = load_model(tmp_path / "m.safetensors", params)
    assert_same_arrays(loaded, params)


def hostile(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with any header, and any length that it is said to have."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def about(text: str) -> dict[str, Any]:
    return {"__metadata__": {"bootdqn": text}}


def tensor(dtype: str, shape: list[int], size: int) -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    return hostile({**about(json.dumps({"format": models.FORMAT})), "w": entry}, b"\1" * size)


GOOD = safetensors.numpy.save(
    {"w": np.arange(4.0)}, metadata={"bootdqn": json.dumps({"format": models.FORMAT, "env": "x"})}
)
HOSTILE = {
    "empty": b"",
    "one byte": b"\1",
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "text": b"this is no file of tensors at all",
    "cut in the header": GOOD[:20],
    "cut in the data": GOOD[:-1],
    "too long": GOOD + b"\0",
    "long header": hostile(b"{}", length=10**8),
    "huge header": hostile(b"{}", length=2**62),
    "largest header": hostile(b"{}", length=2**64 - 1),
    "header is a list": hostile([]),
    "header is nested": hostile(b"[" * 100_000),
    "header is a nested object": hostile(b'{"a":' * 100_000),
    "header is no text": hostile(b"\xff\xfe{}"),
    "no information": hostile({}),
    "information is a number": hostile({"__metadata__": {"bootdqn": 3}}),
    "information is a list": hostile({"__metadata__": [1]}),
    "about is empty": hostile(about("")),
    "about is cut": hostile(about('{"format": ')),
    "about is a list": hostile(about("[]")),
    "about is null": hostile(about("null")),
    "about is a nested list": hostile(about("[" * 200_000)),
    "about is a nested object": hostile(about('{"a":' * 200_000)),
    "about is a long number": hostile(about("1" * 10_000)),
    "another format": hostile(about('{"format": "bootdqn-model-1"}')),
    "format is a list": hostile(about('{"format": ["x"]}')),
    "unknown dtype": tensor("X7", [1], 4),
    "shape that does not fit": tensor("F32", [2], 4),
    "huge shape": tensor("F32", [2**62, 2**62], 4),
    "huge empty shape": tensor("F32", [2**62, 0], 0),
    "many axes": tensor("F32", [1] * 100, 4),
    "negative shape": tensor("F32", [-1], 4),
    "offsets beyond the end": hostile({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"1234"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_model_files_are_refused(name, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(UserError, match=re.escape(str(path))):
        read_model(path)


@pytest.mark.parametrize(("dtype", "count"), [("BF16", 1), ("F8_E4M3", 2), ("F8_E5M2", 2), ("F4", 4), ("C64", 0)])
def test_numbers_of_other_kinds_are_refused(dtype, count, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(tensor(dtype, [count], 2 if count else 0))
    with pytest.raises(UserError, match=re.escape(str(path))):
        load_model(path, {"w": np.zeros(count, np.float32)})


def test_what_is_no_file_is_no_model(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "none", tmp_path / "none" / "none", tmp_path / "file" / "none"):
        with pytest.raises(UserError, match=re.escape(str(path))):
            read_model(path)
    with pytest.raises(UserError):
        read_model(Path(os.devnull))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255), st.booleans())
def test_a_changed_byte_of_a_model_raises_nothing_else(at, change, cut):
    content = bytearray(GOOD)
    content[at] ^= change
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.safetensors")
        path.write_bytes(GOOD[:at] if cut else content)
        try:
            arrays, header = read_model(path)
        except UserError:
            return
        assert not cut
        assert header["format"] == models.FORMAT
        assert all(isinstance(array, np.ndarray) for array in arrays.values())
