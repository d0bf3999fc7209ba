"""Runs that were stopped, damaged or changed: they go on to the same end, or say why they cannot."""

import dataclasses
import json
import os
import signal

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn import BootstrappedDQN, RunConfig, UserError
from bootdqn.cli.main import main
from bootdqn.core.agent import make_agent
from bootdqn.core.config import AGENTS, GYM_AGENTS
from bootdqn.runs import checkpoint as checkpoint_module
from bootdqn.runs.checkpoint import Checkpoints
from bootdqn.runs.parts import Inputs
from bootdqn.runs.run import Run, resume_run
from bootdqn.types import Encoding
from helpers import trees_equal
from small_runs import TINY, advance, resumed, small_run, state_at_the_end, tiny

WITH_PRIORS = {"prior_scale": 1.0, "sparse_step": True, "unit_fan_in": True, "redraw_probability": 0.1}


@pytest.mark.integration
@pytest.mark.parametrize(("env", "options"), [("chain:4", {}), ("deep_sea:12", WITH_PRIORS)])
def test_compiled_checkpoints_in_the_middle(env, options, tmp_path, monkeypatch):
    """Stopped after some chunks by a signal, all seeds have got equally far and go on from there."""
    monkeypatch.setattr("bootdqn.loops.seeds.CHUNKS_BETWEEN_CHECKPOINTS", 1)
    monkeypatch.setattr("bootdqn.loops.compiled.MAX_STEPS_PER_CHUNK", 120)  # ten episodes
    monkeypatch.setattr("bootdqn.loops.seeds.available_cores", lambda: 4)
    agent = dataclasses.replace(AGENTS["boot"], num_heads=2, hidden=(8,), **options)
    config = RunConfig(loop="compiled", env=env, episodes=95, num_seeds=3, agent=agent)
    whole = Run(config, out=tmp_path / "whole")
    assert whole.train()
    saved = Checkpoints.save

    def interrupt(self, step, **parts):
        saved(self, step, **parts)
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Checkpoints, "save", interrupt)
    cut = Run(config, out=tmp_path / "cut")
    assert not cut.train()
    assert cut.result.interrupted
    assert {len(m.episode_return) for m in cut.result.metrics.values()} == {40}
    monkeypatch.setattr(Checkpoints, "save", saved)
    again = resumed(tmp_path / "cut")
    assert again.train()
    assert not again.result.interrupted
    assert trees_equal(again.result.metrics, whole.result.metrics)
    assert trees_equal(again.result.params, whole.result.params)
    assert (tmp_path / "cut" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
    assert state_at_the_end(tmp_path / "cut") == state_at_the_end(tmp_path / "whole")


@pytest.mark.integration
def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    written = []

    def full(path, data):
        written.append(path)
        if len(written) > 4:
            raise OSError(28, "No space left on device")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr(checkpoint_module, "write_atomically", full)
    with pytest.raises(UserError, match=r"No space left on device.*bootdqn resume"):
        run.train()
    monkeypatch.undo()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    again = resumed(tmp_path / "run")
    assert again.loop.position == 100
    assert again.train()
    whole = small_run(tmp_path / "whole", evaluate_every_steps=0)
    assert whole.train()
    assert state_at_the_end(tmp_path / "run") == state_at_the_end(tmp_path / "whole")


@pytest.mark.integration
def test_a_damaged_checkpoint_is_passed_over_to_the_same_end(tmp_path):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    advance(run, 230)
    (damaged,) = (tmp_path / "run" / "checkpoints").glob("000000000200*.safetensors")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    said: list[str] = []
    again = resume_run(tmp_path / "run", Inputs(show=said.append))
    assert any("the checkpoint of step 200 is damaged" in text for text in said)
    assert again.loop.position == 100
    assert again.train()
    whole = small_run(tmp_path / "whole", evaluate_every_steps=0)
    assert whole.train()
    assert state_at_the_end(tmp_path / "run") == state_at_the_end(tmp_path / "whole")
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()


@pytest.mark.integration
def test_priors_scales_returns_and_priorities_survive_a_kill(tmp_path):
    options = {"head_candidates": 2, "scale_inputs": True, "n_steps": 4, "reward_noise": 0.1}
    options |= {"priority_exponent": 0.5, "dueling": True, "prior_range": 10.0, "bound_values": True}
    agent = dataclasses.replace(GYM_AGENTS["boot-prior"], **TINY, **options)
    options = {"agent": agent, "agent_name": "boot-prior", "evaluate_every_steps": 0}
    whole = small_run(tmp_path / "whole", **options)
    fitted = whole.loop.params()[0].prior, whole.loop.params()[0].inputs
    assert whole.train()
    assert trees_equal((whole.loop.params()[0].prior, whole.loop.params()[0].inputs), fitted)
    cut = small_run(tmp_path / "cut", **options)
    advance(cut, 230)
    again = resumed(tmp_path / "cut")
    assert trees_equal((again.loop.params()[0].prior, again.loop.params()[0].inputs), fitted)
    assert again.train()
    assert state_at_the_end(tmp_path / "cut") == state_at_the_end(tmp_path / "whole")
    for name in ("metrics.csv", "models/last.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    model = BootstrappedDQN.load(tmp_path / "whole" / "models" / "last.safetensors")
    obs = jnp.array([0.1, -0.2, 0.03, 0.4])
    expected = make_agent(agent, Encoding("vector", 4), 2).belief(whole.loop.params()[0], obs).q
    np.testing.assert_allclose(model.predict(np.asarray(obs))[1].q, expected, rtol=1e-5)


@pytest.mark.integration
def test_a_stop_during_an_evaluation_leaves_it_due(tmp_path):
    options = {"evaluate_every_steps": 100, "evaluation_episodes": 2}
    whole = small_run(tmp_path / "whole", **options)
    assert whole.train()
    cut = small_run(tmp_path / "cut", **options)
    assert cut.evaluations is not None
    chooser, calls = cut.evaluations._chooser, []

    def interrupting(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return chooser(*arguments)

    cut.evaluations._chooser = interrupting
    assert not cut.train()
    assert 100 <= cut.loop.position < 110
    assert resumed(tmp_path / "cut").train()
    for name in ("metrics.csv", "evaluations.csv", "models/last.safetensors", "models/best.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert state_at_the_end(tmp_path / "cut") == state_at_the_end(tmp_path / "whole")


@pytest.mark.integration
def test_a_run_that_still_goes_on_is_left_alone(tmp_path):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match="is still going on, in another process"):
        resumed(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before
    assert run.train()


@pytest.mark.integration
def test_a_run_whose_replay_was_resized_is_not_resumed(tmp_path):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    advance(run, 110)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": 900}))
    with pytest.raises(UserError, match="was changed: replay held 300 steps and would now hold 900"):
        resumed(tmp_path / "run")


@pytest.mark.integration
def test_runs_that_cannot_be_resumed_say_why(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 2
    assert "is" in capsys.readouterr().err
    tiny("CartPole-v1").learn(60, out=tmp_path / "done")
    assert main(["resume", str(tmp_path / "done")]) == 2
    assert "is finished; there is nothing to resume" in capsys.readouterr().err
    before = (tmp_path / "done" / "run.json").read_bytes()
    with pytest.raises(UserError, match="is finished; there is nothing"):
        BootstrappedDQN.resume(tmp_path / "done")
    assert (tmp_path / "done" / "run.json").read_bytes() == before
    assert main(["resume", str(tmp_path / "done" / "metrics.csv")]) == 2
    assert "metrics.csv a run directory?" in capsys.readouterr().err
    tiny(lambda: gymnasium.make("CartPole-v1").unwrapped).learn(60, out=tmp_path / "nameless")
    record = json.loads((tmp_path / "nameless" / "run.json").read_text())
    (tmp_path / "nameless" / "run.json").write_text(json.dumps({**record, "status": "running"}))
    assert main(["resume", str(tmp_path / "nameless")]) == 2
    assert "has no name; give the environment" in capsys.readouterr().err
    (tmp_path / "done" / "run.json").write_text("{")
    assert main(["resume", str(tmp_path / "done")]) == 2
    assert "is damaged: it is not JSON" in capsys.readouterr().err
