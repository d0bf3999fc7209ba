"""Runs of Atari games: the paper's settings, and what experiments share."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bootdqn import BootstrappedDQN
from bootdqn.cli.main import main
from bootdqn.core.config import AGENTS, ATARI_AGENTS
from bootdqn.core.kernels import why_not
from bootdqn.envs.atari import AtariEnvs
from bootdqn.errors import UserError
from bootdqn.experiments.engine.experiment import Context
from bootdqn.experiments.engine.runner import read_results
from bootdqn.experiments.registry import EXPERIMENTS
from bootdqn.experiments.shared.atari_runs import find_evaluations, run_atari
from bootdqn.runs.config import default_config
from small_runs import resumed


def test_the_papers_settings():
    for name, agent in ATARI_AGENTS.items():
        assert agent.acting == AGENTS[name].acting
        assert (agent.learning_period_steps, agent.learning_start_steps, agent.replay_capacity) == (
            4,
            50_000,
            10**6,
        )
        assert agent.target_period_updates * agent.learning_period_steps == 10_000
        assert (agent.epsilon_start, agent.epsilon_end, agent.epsilon_anneal_steps) == (1.0, 0.01, 10**6)
        assert (agent.optimizer, agent.learning_rate, agent.discount) == ("rmsprop", 2.5e-4, 0.99)
        assert (agent.hidden, agent.loss, agent.double_q, agent.clip_rewards) == ((512,), "huber", True, True)
        assert agent.num_heads == (1 if name == "dqn" else 10)
        assert agent.mask_probability == 1.0
        assert agent.scale_trunk_gradient == (name != "boot+")
    config = default_config("atari:pong", "boot")
    frames = [4 * n for n in (config.steps, config.evaluate_every_steps, config.evaluation_steps)]
    assert frames == [200_000_000, 1_000_000, 500_000]
    sizes = {name: len(EXPERIMENTS[name].sweep("paper")) for name in EXPERIMENTS if name.startswith("atari-")}
    assert sizes["atari-49"] == 49 * 2 * 3
    assert sizes["atari-auc"] == 14 * 3 * 3
    assert {t.config.steps for t in EXPERIMENTS["atari-auc"].sweep("paper")} == {5_000_000}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The results of one experiment, whose runs another can use."""
    out = tmp_path_factory.mktemp("atari")
    assert main(["reproduce", "atari-curves", "--preset", "smoke", "--out", str(out / "atari-curves")]) == 0
    return out


@pytest.mark.integration
def test_experiments_share_runs(smoke, capsys):
    arguments = ["reproduce", "atari-49", "--preset", "smoke", "--only-draw", "--out", str(smoke / "atari-49")]
    assert main(arguments) == 0
    assert "2 trials, 2 of them finished" in capsys.readouterr().out
    mine, theirs = (read_results(smoke / name) for name in ("atari-49", "atari-curves"))
    assert mine == theirs
    assert (smoke / "atari-49" / "atari-49.png").stat().st_size > 5000
    runs = sorted(path.name for path in (smoke / "atari-runs").iterdir())
    assert runs == ["breakout-boot-k2-160steps-seed0", "breakout-dqn-k1-160steps-seed0"]
    record = json.loads((smoke / "atari-runs" / runs[0] / "protocol.json").read_text())
    assert (record["game"], record["sticky_probability"], record["max_episode_frames"]) == (
        "breakout",
        0.0,
        108_000,
    )
    record = json.loads((smoke / "atari-runs" / runs[0] / "run.json").read_text())
    assert record["kernels"] == (why_not() or "compiled")
    # Evaluated at half time by vote, in the end by everybody.
    policies = [row["policy"] for row in mine if row["agent"] == "boot"]
    assert policies == ["vote", "vote", "mean", "head 0", "head 1"]


@pytest.mark.integration
def test_a_shared_run_of_another_configuration_is_refused(smoke, tmp_path):
    shutil.copytree(smoke / "atari-runs", tmp_path / "atari-runs")
    path = tmp_path / "atari-runs" / "breakout-dqn-k1-160steps-seed0" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "evaluate_every_steps": 7}))
    (trial,) = (t for t in EXPERIMENTS["atari-curves"].sweep("smoke") if t.config.agent_name == "dqn")
    with pytest.raises(UserError, match="holds a run with another configuration"):
        find_evaluations(trial.config, tmp_path / "atari-curves")


@pytest.mark.integration
def test_a_run_that_was_killed_at_its_very_start_begins_anew(tmp_path):
    (trial,) = (t for t in EXPERIMENTS["atari-curves"].sweep("smoke") if t.config.agent_name == "dqn")
    path = tmp_path / "atari-runs" / trial.name
    path.mkdir(parents=True)
    for name in ("config.json", "run.json", "metrics.csv"):
        (path / name).write_text("{}")
    context = Context(lambda: False, lambda share: None, ThreadPoolExecutor(1), tmp_path / "atari-curves")
    rows = run_atari(trial.config, context)
    assert rows is not None
    assert [row["step"] for row in rows] == ["80", "160"]
    assert "evaluated with epsilon 0.05" in rows[0]["protocol"]
    assert [row["episodes"] for row in rows] == ["0", "0"]  # none ends in 20 steps


@pytest.mark.integration
def test_a_run_of_another_protocol_does_not_go_on(smoke, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(smoke / "atari-runs" / "breakout-dqn-k1-160steps-seed0", path)
    card = json.loads((path / "protocol.json").read_text())
    (path / "protocol.json").write_text(json.dumps({**card, "ale_py": "0.1"}))
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**record, "status": "interrupted"}))
    with pytest.raises(UserError, match=r"began with another protocol: ale_py was 0.1 and is \d"):
        resumed(path)


@pytest.mark.integration
def test_the_friendly_face_plays_too(smoke):
    path = smoke / "atari-runs" / "breakout-boot-k2-160steps-seed0" / "models" / "last.safetensors"
    model = BootstrappedDQN.load(path, "atari:breakout")
    envs = AtariEnvs("atari:breakout")
    obs = envs.reset([3])
    action, belief = model.predict(obs[0])
    assert 0 <= action < 4
    assert belief.q.shape == (2, 4)
    actions, _ = model.predict(np.concatenate([obs, obs]))
    assert actions.tolist() == [action, action]
    with pytest.raises(UserError, match=r"expected an observation of shape \(4, 84, 84\)"):
        model.predict(obs[0][:3])
