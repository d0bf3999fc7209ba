"""`bootdqn evaluate`: what it shows and writes, and what it refuses."""

import json

import numpy as np
import pytest

from bootdqn import BootstrappedDQN, UserError
from bootdqn.cli.main import main
from small_runs import RUN, tiny


def test_what_evaluate_refuses(tmp_path, capsys):
    model = tiny("CartPole-v1")
    model.save(tmp_path / "m.safetensors")
    for flags, message in (
        (["--policy", "head", "--head", "7"], "head must be 0 to 2, got 7"),
        (["--seed", "-1"], "seed must not be negative, got -1"),
        (["--episodes", "0"], "episodes must be at least 1, got 0"),
        (["--report-card", "--episodes", "0"], "episodes must be at least 1, got 0"),
    ):
        assert main(["evaluate", str(tmp_path / "m.safetensors"), *flags]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match="unknown policy 'majority'"):
        model.evaluate(1, "majority")  # type: ignore
    with pytest.raises(UserError, match=r"steps must be a whole number, got 50\.0"):
        model.learn(5e1)  # type: ignore


@pytest.mark.integration
def test_the_command_line_from_train_to_evaluate(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", *RUN, "--tensorboard", "--out", out]) == 0
    shown = capsys.readouterr().out
    assert "head report card, after 900 steps" in shown
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert 0 < record["checkpoint_seconds"] < record["seconds"]
    assert "a replay of 900 steps take" in shown
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert (tmp_path / "run" / "learning_curve.png").stat().st_size > 5000
    assert main(["evaluate", out, "--episodes", "4", "--json", str(tmp_path / "e.json")]) == 0
    returns = json.loads((tmp_path / "e.json").read_text())["returns"]["vote"]
    assert f"CartPole-v1, 4 episodes by vote: mean {np.mean(returns):.2f}" in capsys.readouterr().out
    assert main(["evaluate", out, "--model", "best", "--episodes", "1", "--report-card"]) == 0
    assert "head 2" in capsys.readouterr().out
    for arguments, message in (
        ([str(tmp_path / "nothing")], "no model file"),
        ([str(tmp_path)], "the directory of a run that has ended?"),
        ([out, "--json", out], "is a directory; give the name of a file"),
        ([out, "--head", "1"], "--head belongs to --policy head"),
    ):
        assert main(["evaluate", *arguments]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match="is a directory; give a model file"):
        BootstrappedDQN.load(out)
    with pytest.raises(UserError, match="is a directory; give the name of a file"):
        BootstrappedDQN.load(tmp_path / "run" / "models" / "last.safetensors").save(out)
