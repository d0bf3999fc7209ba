"""`bootdqn demo`, in small."""

import json

import pytest

from bootdqn.cli.demo import demo_agents
from bootdqn.cli.main import main
from small_runs import CHAIN_FLAGS, read_rows


@pytest.mark.integration
def test_demo_in_small(tmp_path, capsys):
    out = tmp_path / "demo"
    earlier = out / "boot-prior" / "models"  # of an earlier demo, which is replaced
    earlier.mkdir(parents=True)
    (out / "boot-prior" / "run.json").write_text(json.dumps({"command": "bootdqn demo --out demo"}))
    (out / "demo.png").write_bytes(b"old")
    arguments = ["demo", "--env", "deep_sea:4", "--episodes", "3", "--seeds", "2", "--out", str(out)]
    assert main(arguments) == 0
    assert (out / "boot-prior" / "run.json").stat().st_size > 100
    text = capsys.readouterr().out
    assert all(name in text for name in ("boot-prior", "thompson", "ensemble", "dqn", "0/2", "> 3"))
    assert str(out / "demo.png") in text.replace("\n", "")
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert f"report: {out / 'report.html'} (4 runs" in text.replace("\n", "")
    page = (out / "report.html").read_text()
    assert page.count("<video") == 1
    assert all(name in page for name in ("thompson", "ensemble", "dqn", "Exploration X-ray", "deep_sea:4"))
    assert len(read_rows(out / "boot-prior")) == 6


@pytest.mark.integration
def test_demo_replaces_nothing_but_demos(tmp_path, capsys):
    out = tmp_path / "runs"
    assert main(["train", "chain:5", "--episodes", "1", "--out", str(out / "boot"), *CHAIN_FLAGS]) == 0
    assert main(["demo", "--out", str(out)]) == 2
    assert "not an earlier demo's" in capsys.readouterr().err
    record = json.loads((out / "boot" / "run.json").read_text())
    for damaged in ("it's", 5):
        (out / "boot" / "run.json").write_text(json.dumps(record | {"command": damaged}))
        assert main(["demo", "--out", str(out)]) == 2
        assert "not an earlier demo's" in capsys.readouterr().err
    (out / "boot" / "run.json").write_text(json.dumps(record | {"command": "bootdqn demo"}))
    assert main(["demo", "--out", str(out), "--env", "chian:4"]) == 2
    assert main(["demo", "--out", str(out), "--episodes", "0"]) == 2
    assert (out / "boot" / "metrics.csv").exists()


def test_agents_of_the_demo_differ_in_who_acts_alone():
    deep, *shallow = demo_agents().values()
    assert deep.acting == "committed_head"
    dithering = {"num_heads", "epsilon_start", "epsilon_end", "epsilon_anneal_steps"}
    for agent, allowed in zip(shallow, ({"acting", "prior_scale"}, {"acting"}, dithering), strict=True):
        assert {name for name, value in vars(agent).items() if value != getattr(deep, name)} == allowed
