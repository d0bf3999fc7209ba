import json
import math
import sys
from dataclasses import replace

import pytest

from bootdqn import bench
from bootdqn.cli.main import main
from bootdqn.tabular.agents import TABULAR_AGENTS


def test_flops_by_hand():
    config = replace(bench.CHAIN_CONFIG, num_heads=3, hidden=(7,), batch_size=5)
    # Layers 4x7 and 7x2. Forward three times; backward to both weights, and to the input of the last layer only.
    per_sample = 2 * (3 * (28 + 14) + (28 + 14) + 14)
    assert bench.update_flops(config, 4, 2) == 3 * 5 * per_sample
    one_forward_less = 2 * (2 * (28 + 14) + (28 + 14) + 14)
    assert bench.update_flops(replace(config, double_q=False), 4, 2) == 3 * 5 * one_forward_less


def test_bench_shows_and_writes_the_same_figures(tmp_path, monkeypatch, capsys):
    # The real measurement takes minutes; here the same path with small programs and few repeats.
    real, sizes = bench.time_training, []

    def small(length, config, *, num_seeds, group_size=None, repeats=3):
        sizes.append((length, config.num_heads, num_seeds, group_size))
        return real(
            5, replace(config, num_heads=2, hidden=(4,)), num_seeds=2, group_size=group_size and 2, repeats=1
        )

    monkeypatch.setattr(bench, "time_training", small)
    assert main(["bench", "chain", "--json", str(tmp_path / "bench.json")]) == 0
    assert sizes[0] == (50, 10, 8, None)  # the reference comes first
    results = json.loads((tmp_path / "bench.json").read_text())
    reference = results["reference"]
    assert reference["gflops"] == pytest.approx(
        bench.update_flops(replace(bench.CHAIN_CONFIG, num_heads=2, hidden=(4,)), 5, 2)
        / reference["ms_per_step_and_seed"]
        / 1e6
    )
    assert results["share_of_gemm_peak"] == pytest.approx(reference["gflops"] / results["gemm_gflops"])
    assert math.isfinite(results["gemm_gflops"])
    text = capsys.readouterr().out
    assert f"{reference['ms_per_step_and_seed']:.3f}" in text
    assert results["setting"] in text.replace("\n", " ")


def test_peers_are_shown_with_their_ratio(tmp_path, monkeypatch, capsys):
    """Without the other packages: something else plays bsuite's part."""
    played = []
    monkeypatch.setattr(bench, "PEERS_CONFIG", replace(bench.PEERS_CONFIG, num_heads=2, hidden=(4,), batch_size=4))
    monkeypatch.setattr(bench, "_bsuite_player", lambda env, config: played.append)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
    assert main(["bench", "peers", "--json", str(tmp_path / "bench.json")]) == 0
    assert played[0] * 20 > bench.PEERS_CONFIG.learning_start_steps  # both learn before they are timed
    assert len(played) == 6
    results = json.loads((tmp_path / "bench.json").read_text())
    rates = results["steps_per_second"]
    assert results["ratio"] == pytest.approx(rates["bootdqn"] / rates["bsuite"])
    text = capsys.readouterr().out
    assert f"{rates['bootdqn']:.1f}" in text
    assert f"{results['ratio']:.1f} times as fast as bsuite 0.0" in text.replace("\n", " ")


def test_tabular_agents_are_timed(tmp_path, monkeypatch, capsys):
    for name, value in (("SEEDS", 2), ("EPISODES", 5), ("LONG_EPISODES", 7)):
        monkeypatch.setattr(bench, f"TABULAR_{name}", value)
    assert main(["bench", "tabular", "--json", str(tmp_path / "bench.json")]) == 0
    results = json.loads((tmp_path / "bench.json").read_text())
    assert results["seconds"].keys() == TABULAR_AGENTS.keys()
    captured = capsys.readouterr()
    assert f"ucrl2: 2 seeds, 7 episodes in {results['ucrl2_long_seconds']:.2f} s" in captured.err
    text = captured.out
    assert f"{results['seconds']['psrl']:.2f}" in text
    assert "ucrl2, 7 episodes" in text
    assert f"takes {results['vmapped_ratio']:.2f} times as long" in text.replace("\n", " ")


def test_peers_that_are_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "haiku", None)
    assert main(["bench", "peers"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bootdqn: error: ")
    assert "pip install 'bootdqn[peers]'" in error
    assert error.count("\n") == 1


def test_stable_baselines_is_shown_beside_ours(tmp_path, monkeypatch, capsys):
    """Without the other package: something else plays its part."""
    played = []
    monkeypatch.setattr(bench, "GYM_SETTINGS", ((1, 4), (3, 1)))
    monkeypatch.setattr(bench, "GYM_STEPS", 60)
    small = replace(
        bench.GYM_CONFIG, num_heads=2, hidden=(4,), trunk_hidden=(4,), batch_size=4, learning_start_steps=8
    )
    monkeypatch.setattr(bench, "GYM_CONFIG", small)
    monkeypatch.setattr(bench, "_stable_baselines_player", lambda config, num_envs: played.append)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
    assert main(["bench", "gym", "--json", str(tmp_path / "bench.json")]) == 0
    assert played == 2 * [30, *[60] * 5]
    results = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert [(row["envs"], row["steps_per_update"]) for row in results] == [(1, 4), (3, 1)]
    for row in results:
        rates = row["steps_per_second"]
        assert row["ratio"] == pytest.approx(rates["bootdqn"] / rates["stable-baselines3"])
    assert f"{results[1]['steps_per_second']['bootdqn']:.0f}" in capsys.readouterr().out


@pytest.mark.peers
@pytest.mark.parametrize(("num_envs", "period"), [(1, 4), (8, 4), (8, 1), (2, 4)])
def test_stable_baselines_makes_as_many_updates(num_envs, period):
    config = replace(bench.GYM_CONFIG, learning_period_steps=period)
    play = bench._stable_baselines_player(config, num_envs)
    play(400)
    model = play.__closure__[0].cell_contents  # type: ignore
    # Learning begins after the first 100 steps.
    assert model._n_updates == pytest.approx(300 / period, abs=2 * max(1, num_envs / period))
