import json
import os
import stat

import jax
import numpy as np
import pytest

from bootdqn.errors import UserError
from bootdqn.runs.directory import RunDirectory, write_atomically


def open_run(path):
    return RunDirectory.create(
        path, config={"a": 1}, command="bootdqn x", tables={"metrics.csv": ("seed", "return")}
    )


def test_a_run_from_start_to_finish(tmp_path):
    run = open_run(tmp_path / "deep" / "run")
    assert json.loads((run.path / "run.json").read_text())["status"] == "running"
    run.append("metrics.csv", [(0, np.float32(0.1)), (1, "")])
    run.finish("finished", answer=42)
    assert (run.path / "metrics.csv").read_text() == "seed,return\n0,0.1\n1,\n"
    assert json.loads((run.path / "config.json").read_text()) == {"a": 1}
    record = json.loads((run.path / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["answer"] == 42
    assert record["versions"]["jax"] == jax.__version__
    assert record["command"] == "bootdqn x"


def test_rows_are_on_disk_before_the_run_ends(tmp_path):
    run = open_run(tmp_path)
    run.append("metrics.csv", [(0, 1.5)])
    assert (tmp_path / "metrics.csv").read_text().endswith("0,1.5\n")
    run.finish("finished")


def test_occupied_directories_are_refused_and_left_alone(tmp_path):
    open_run(tmp_path / "run").finish("finished")
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        open_run(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"not empty \(it holds thesis.tex\)"):
        open_run(tmp_path / "other")
    with pytest.raises(UserError, match="a file is in the way"):
        open_run(tmp_path / "other" / "thesis.tex")
    with pytest.raises(UserError, match="a file is in the way"):
        open_run(tmp_path / "other" / "thesis.tex" / "run")


def test_no_permission(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # permissions do not bind root
    try:
        with pytest.raises(UserError, match="no permission to write"):
            open_run(tmp_path / "run")
    finally:
        os.seteuid(user)
        tmp_path.chmod(stat.S_IRWXU)
    assert not (tmp_path / "run").exists()


def test_atomic_writes_leave_no_trace_and_replace_whole_files(tmp_path):
    write_atomically(tmp_path / "x", b"first")
    write_atomically(tmp_path / "x", b"second")
    assert (tmp_path / "x").read_bytes() == b"second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]
