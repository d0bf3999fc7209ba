import errno
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bootdqn.errors import UserError
from bootdqn.runs import checkpoint
from bootdqn.runs.checkpoint import Checkpoint, Checkpoints, ReplayRows
from helpers import assert_same_arrays, silent


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

    def replay(self) -> ReplayRows:
        def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
            self.asked.append(positions.tolist())
            return {"obs": self.obs[positions], "reward": self.reward[positions]}

        return ReplayRows(self.added, self.capacity, rows)

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


def test_another_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", "bootdqn-checkpoint-0")
        save(Checkpoints(tmp_path), 3)
    before = {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}
    with pytest.raises(UserError, match="was written by bootdqn of another version: resume it with that"):
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


@pytest.mark.integration
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
