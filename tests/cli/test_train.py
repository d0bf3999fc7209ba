"""`bootdqn train` as a person uses it: what it writes, what it says, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import bootdqn
from bootdqn.cli.main import main
from bootdqn.core.agent import make_agent
from bootdqn.envs.registry import make_env
from bootdqn.loops import tabular
from bootdqn.runs.progress import Progress
from helpers import load_model
from small_runs import CHAIN_FLAGS, read_rows


def test_train_leaves_a_run_directory(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", "chain:5", "--episodes", "4", "--seeds", "3", "--seed", "7", *CHAIN_FLAGS]
    assert main([*arguments, "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert {entry.name for entry in out.iterdir()} == {
        "config.json", "run.json", "metrics.csv", "models", "learning_curve.png", "learning_curve.svg",
        "exploration.csv", "exploration.png", "exploration.svg", "heads.json", "checkpoints"
    }  # fmt: skip
    config = json.loads((out / "config.json").read_text())
    assert (config["env"], config["episodes"], config["num_seeds"], config["seed"]) == ("chain:5", 4, 3, 7)
    assert config["agent"]["num_heads"] == 2
    assert config["agent"]["discount"] == bootdqn.AGENTS["boot"].discount  # resolved: defaults are there too
    assert json.loads((out / "run.json").read_text())["status"] == "finished"
    rows = read_rows(out)
    assert [(int(r["episode"]), int(r["seed"])) for r in rows] == [(e, s) for e in range(1, 5) for s in (7, 8, 9)]
    assert all(int(r["step"]) == 13 * int(r["episode"]) for r in rows)
    assert all(0 <= float(r["return"]) <= 10 for r in rows)
    assert {int(r["head"]) for r in rows} <= {0, 1}
    assert rows[-1]["loss"] != ""
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.integration
def test_the_model_file_is_the_trained_network(tmp_path):
    result = bootdqn.train("chain:5", episodes=3, out=tmp_path / "run", num_heads=2, hidden=(4,))
    env = make_env("chain:5")
    agent = make_agent(result.config.deep, env.encoding, 2)
    learner = agent.init(jax.random.key(99))
    params, header = load_model(tmp_path / "run" / "models" / "seed0.safetensors", learner.params)
    assert header["config"]["env"] == "chain:5"
    q = agent.belief(params, jax.numpy.int32(2)).q
    np.testing.assert_array_equal(q, result.belief(2).q)
    assert result.belief(2).votes.sum() == 2
    for state in (-1, result.env.encoding.num_states, 1.5, [1]):
        with pytest.raises(bootdqn.UserError, match="an observation is the number of a state, 0 to"):
            result.belief(state)
    with pytest.raises(bootdqn.UserError, match=r"seed must be one of .*, got 77"):
        result.belief(2, seed=77)


@pytest.mark.integration
def test_same_command_same_files(tmp_path):
    for name in ("a", "b"):
        out = str(tmp_path / name)
        assert main(["train", "chain:5", "--episodes", "5", "--seeds", "2", "--out", out, *CHAIN_FLAGS]) == 0
    for file in ("metrics.csv", "models/seed0.safetensors", "models/seed1.safetensors", "config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.integration
def test_agents_without_a_committed_head_leave_the_column_empty(tmp_path):
    for name in ("thompson", "ensemble"):
        arguments = ["train", "chain:5", "--agent", name, "--episodes", "1"]
        assert main([*arguments, "--out", str(tmp_path / name), *CHAIN_FLAGS]) == 0
        assert [row["head"] for row in read_rows(tmp_path / name)] == [""]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chian:10"], "unknown environment 'chian'; did you mean chain?"),
        (["chain:10", "--agent", "bot"], "unknown agent 'bot'; did you mean boot?"),
        (["chain:3"], "a chain needs at least 4 states, got 3"),
        (["chain:10", "--heads", "0"], "heads must be 1 to 2**20, got 0"),
        (["chain:10", "--mask-probability", "0"], "mask_probability must be in (0, 1], got 0.0"),
        (["chain:10", "--batch-size", "-1"], "batch_size must be at least 1, got -1"),
        (["chain:10", "--replay-capacity", "8"], "batch_size (32) must not exceed replay_capacity (8)"),
        (["chain:10", "--episodes", "0"], "episodes must be at least 1, got 0"),
        (["chain:10", "--seeds", "-2"], "seeds must be at least 1, got -2"),
        (["chain:10", "--seed", "4294967296"], "seeds must be below 2**32, got 4294967296"),
        (["chain:10", "--episodes", "99999999999"], "episodes must be below 2**31"),
        (["chain:10", "--epsilon-start", "1"], "give epsilon_anneal_steps"),
        (["chain:10", "--seeds", "1000", "--episodes", "1000"], "GB and 1.0 GB of memory is free"),
        (["CartPole", "--steps", "100"], "unknown environment 'CartPole'; did you mean CartPole-v1?"),
        (
            ["xyz", "--steps", "100"],
            "unknown environment 'xyz'; known: chain, deep_sea, stochastic_chain, river_swim",
        ),
        (["CartPole-v1", "--episodes", "3"], "--episodes is for our own environments (chain,"),
        (["CartPole-v1", "--seeds=3"], "--seeds is for our own environments (chain,"),
        (["chain:10", "--steps", "3"], "--steps is for Gymnasium environments and Atari games; on chain,"),
        (["--envs", "2", "chain:10"], "--envs is for Gymnasium environments and Atari games; on chain,"),
        (["CartPole-v1", "--agent", "psrl"], "psrl sees the state, so it is for chain,"),
        (["nowhere_at_all:make"], "cannot import 'nowhere_at_all'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr("bootdqn.replay.host_memory.available_memory", lambda: 10**9)
    out = tmp_path / "run"
    assert main(["train", *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("bootdqn: error: ")
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.integration
def test_where_a_run_goes_does_not_decide_what_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--heads", "1", "--hidden", "4"]
    assert main(["train", "chain:5", "--episodes", "1", "--out=a/CartPole-v1", *tiny]) == 0
    steps = ["--steps", "20", "--evaluate-every-steps", "0"]
    assert main(["train", "CartPole-v1", *steps, "--out", "CartPole-v1", *tiny]) == 0
    envs = [json.loads(Path(run, "config.json").read_text())["env"] for run in ("a/CartPole-v1", "CartPole-v1")]
    assert envs == ["chain:5", "CartPole-v1"]


def test_flags_that_do_not_parse(capsys):
    for flags in (["--hedas", "3"], ["--heads", "x"], ["--mask", "bernouli"]):
        with pytest.raises(SystemExit) as stop:
            main(["train", "chain:10", *flags])
        assert stop.value.code == 2
    assert "--heads" in capsys.readouterr().err


@pytest.mark.integration
def test_places_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "run", "/proc/nowhere/run"):
        assert main(["train", "chain:10", "--out", str(out)]) == 2
        assert "choose another --out" in capsys.readouterr().err
    assert main(["bench", "chain", "--json", str(tmp_path / "file" / "x.json")]) == 2  # at once, not after minutes


@pytest.mark.integration
def test_another_run_in_the_way(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", "chain:5", "--episodes", "1", "--out", str(out), *CHAIN_FLAGS]
    assert main(arguments) == 0
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert main(arguments) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert before == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}


@pytest.mark.integration
def test_divergence_is_reported_with_its_place(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", "chain:5", "--episodes", "400", "--learning-rate", "1e30"]
    assert main([*arguments, "--out", str(out), *CHAIN_FLAGS]) == 2
    assert "training diverged: the loss of seed 0 is no longer finite in episode" in capsys.readouterr().err
    assert json.loads((out / "run.json").read_text())["status"] == "failed"


@pytest.mark.integration
def test_a_failure_at_the_very_end_is_recorded(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("bootdqn.plots.runs.save_learning_curve", fail)
    assert main(["train", "chain:5", "--episodes", "1", "--out", str(tmp_path / "run"), *CHAIN_FLAGS]) == 2
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["status"], record["error"]) == ("failed", "no space left")


@pytest.mark.integration
def test_an_agent_that_sees_the_state(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["train", "stochastic-chain", "--agent", "psrl", "--episodes", "30", "--seeds", "2"]
    assert main([*arguments, "--prior-transitions", "0.5", "--out", str(out)]) == 0
    rows = read_rows(out)
    assert tuple(rows[0]) == tabular.COLUMNS
    assert [(row["seed"], row["episode"], row["step"]) for row in rows[:3]] == [
        ("0", "1", "15"), ("1", "1", "15"), ("0", "2", "30")
    ]  # fmt: skip
    assert len(rows) == 60
    config = json.loads((out / "config.json").read_text())
    assert (config["env"], config["agent_name"]) == ("stochastic_chain", "psrl")
    assert config["agent"]["prior_transitions"] == 0.5
    total = sum(float(row["regret"]) for row in rows if row["seed"] == "1")
    record = json.loads((out / "run.json").read_text())
    assert record["regret"]["1"] == pytest.approx(total, abs=1e-3)
    assert "episodes_to_learn" not in record  # which means something else there
    assert f"{total:.4g}" in capsys.readouterr().out
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert not (out / "models").exists()


@pytest.mark.integration
def test_agents_that_see_the_state_in_python():
    result = bootdqn.train("river-swim", "epsilon-greedy", episodes=20, epsilon=0.5)
    again = bootdqn.train("river-swim", "epsilon-greedy", episodes=20, epsilon=0.5)
    assert (result.regret()[0] == again.regret()[0]).all()
    assert (result.regret()[0] > 0).all()
    assert not result.optimal(greedy=False)[0].any()
    with pytest.raises(bootdqn.UserError, match="epsilon-greedy has no heads"):
        result.belief(0)
    with pytest.raises(bootdqn.UserError, match="unknown option of psrl 'num_heads'"):
        bootdqn.train("river-swim", "psrl", num_heads=3)
    with pytest.raises(bootdqn.UserError, match="psrl has no network"):
        bootdqn.train("river-swim", "psrl", trunk=lambda key: key)
    with pytest.raises(bootdqn.UserError, match="too many for a tabular baseline"):
        bootdqn.train("deep_sea:100", "psrl")


@pytest.mark.integration
def test_ctrl_c_in_a_program_is_an_interrupt_there(tmp_path, monkeypatch):
    """`bootdqn.train` records what was done and does not swallow the interrupt."""
    sent = []

    def interrupt_once(*_):
        if not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    monkeypatch.setattr(Progress, "update", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        bootdqn.train("chain:5", episodes=10**6, out=tmp_path / "run", num_heads=2, hidden=(4,))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    assert len(read_rows(tmp_path / "run")) > 0


@pytest.mark.integration
def test_ctrl_c_leaves_a_valid_run(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "bootdqn", "train", "chain:20", "--episodes", "100000", "--seeds", "2"]
    process = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (out / "metrics.csv").exists() or (out / "metrics.csv").stat().st_size < 5000:
        assert time.monotonic() < deadline, "no progress"
        assert process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    rows = read_rows(out)
    for seed in ("0", "1"):
        episodes = [int(row["episode"]) for row in rows if row["seed"] == seed]
        assert episodes == list(range(1, len(episodes) + 1))
        assert (out / "models" / f"seed{seed}.safetensors").exists()
    assert (out / "learning_curve.png").exists()


@pytest.mark.integration
def test_a_trunk_of_ones_own_is_trained():
    def train(episodes):
        def trunk(key):
            return eqx.nn.MLP(5, 6, 7, 1, key=key)

        return bootdqn.train(
            "chain:5", trunk=trunk, episodes=episodes, num_heads=2, hidden=(4,), learning_start_steps=8
        ).params[0].trunk.layers[0].weight  # fmt: skip

    first, later = train(3), train(4)
    assert first.shape == (7, 5)
    assert (first != later).any()


def test_python_api_refuses_unknown_names():
    with pytest.raises(bootdqn.UserError, match="did you mean num_heads"):
        bootdqn.train("chain:5", heads=3)
    with pytest.raises(bootdqn.UserError, match="did you mean thompson"):
        bootdqn.train("chain:5", agent="thomson")
