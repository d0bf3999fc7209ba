"""Runs in processes of their own that are killed: they go on to the same bits."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from bootdqn.cli.main import main
from bootdqn.runs.checkpoint import Checkpoints
from small_runs import RUN, kill_when, read_rows, start, state_at_the_end

pytestmark = pytest.mark.integration

SAME = ("metrics.csv", "evaluations.csv", "models/last.safetensors", "models/best.safetensors", "config.json")
GAME = "atari:breakout --steps 2000 --envs 2 --heads 2 --hidden 16 --batch-size 8 --learning-start-steps 100 "
GAME += "--replay-capacity 700 --mask-probability 0.5 --checkpoint-every-steps 450 --evaluate-every-steps 1000 "
GAME += "--evaluation-steps 200"


@pytest.fixture(scope="module")
def compiled_to_be_killed(tmp_path_factory) -> Path:
    """A cache of compiled programs for processes that get killed, which may leave damaged entries."""
    return tmp_path_factory.mktemp("compiled-to-be-killed")


@pytest.mark.parametrize(
    ("arguments", "ended"),
    [
        ([*RUN, "--envs", "2"], (0, 3, 12, 25)),
        ([*RUN, "--envs", "3", "--vectorization", "own"], (0, 3, 12, 25)),
        (GAME.split(), (0, 2, 5, 8)),
    ],
    ids=["sync", "own", "atari"],
)
def test_killed_at_random_and_resumed_is_as_if_nothing_had_happened(
    arguments, ended, tmp_path, capfd, compiled_to_be_killed
):
    """Killed when about so many episodes have `ended`."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["train", *arguments, "--out", str(whole)]) == 0
    rng = random.Random(0)
    arguments = ["train", *arguments, "--out", str(cut)]
    for attempt in range(4):
        process = start(arguments, compiled_to_be_killed)
        wanted = ended[attempt] + rng.randrange(2)

        def rows(wanted=wanted) -> bool:
            path = cut / "metrics.csv"
            begun = path.exists() and any(cut.glob("checkpoints/*.json"))
            return begun and len(path.read_text().splitlines()) > wanted

        kill_when(process, rows, signal.SIGTERM if attempt == 2 else signal.SIGKILL)
        process.communicate()
        arguments = ["resume", str(cut)]
    if json.loads((cut / "run.json").read_text())["status"] != "finished":
        assert main(arguments) == 0
    for name in SAME:
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    assert state_at_the_end(cut) == state_at_the_end(whole)
    capfd.readouterr()


CHUNKS = {"loops.compiled.MAX_STEPS_PER_CHUNK": 56, "loops.tabular._OPERATIONS_PER_CHUNK": 1}
"""Constants with which a chunk of a compiled run on `chain:5` is four episodes, and one of a tabular run."""
WITH_MANY_CHECKPOINTS = "\n".join(
    f"import bootdqn.{name.rpartition('.')[0]}; bootdqn.{name} = {value}"
    for name, value in {**CHUNKS, "loops.seeds.CHUNKS_BETWEEN_CHECKPOINTS": 1}.items()
)


@pytest.mark.optimized
@pytest.mark.parametrize("agent", ["boot", "psrl"])
def test_a_compiled_run_that_was_killed_in_its_middle_goes_on_to_the_same_bits(
    agent, tmp_path, monkeypatch, compiled_to_be_killed
):
    for name, value in CHUNKS.items():
        monkeypatch.setattr(f"bootdqn.{name}", value)
    flags = ["train", "chain:5", "--agent", agent, "--episodes", "700", "--seeds", "2"]
    flags += ["--heads", "2", "--hidden", "8"] if agent == "boot" else []
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main([*flags, "--out", str(whole)]) == 0
    process = start([*flags, "--out", str(cut)], compiled_to_be_killed, script=WITH_MANY_CHECKPOINTS)
    seen: set[int] = set()

    def in_the_middle() -> bool:
        seen.update(int(manifest.stem) for manifest in cut.glob("checkpoints/*.json"))
        return len(seen) > 5

    kill_when(process, in_the_middle, signal.SIGKILL)
    shown, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, shown
    found = Checkpoints(cut).load(print)
    assert found is not None
    assert found.step > min(seen)
    assert len(read_rows(cut)) < len(read_rows(whole))
    assert main(["resume", str(cut)]) == 0
    files = ["metrics.csv"]
    if agent == "boot":
        files += ["models/seed0.safetensors", "models/seed1.safetensors", "exploration.csv", "heads.json"]
    for name in files:
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    records = [json.loads((run / "run.json").read_text()) for run in (whole, cut)]
    assert records[0]["regret"] == records[1]["regret"]
    assert records[1]["status"] == "finished"


def test_ctrl_c_with_a_process_for_each_slot(tmp_path, compiled_to_be_killed):
    """A terminal sends it to all processes of the group."""
    out = tmp_path / "run"
    flags = ["train", *RUN, "--steps", "100000", "--envs", "2", "--vectorization", "async", "--out", str(out)]
    process = start(flags, compiled_to_be_killed, start_new_session=True)
    path = out / "metrics.csv"
    deadline = time.monotonic() + 120
    while not (path.exists() and len(path.read_text().splitlines()) > 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    found = Checkpoints(out).load(print)
    assert found is not None
    assert found.step % 200 != 0 or found.step > 0
