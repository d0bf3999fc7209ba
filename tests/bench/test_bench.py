import functools
import json
import math
import operator
import os
import sys
from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np
import pytest

from bootdqn.bench import atari as bench_atari
from bootdqn.bench import chain as bench
from bootdqn.cli.main import main
from bootdqn.core.kernels import why_not
from bootdqn.errors import UserError
from bootdqn.experiments.engine.cost import picture_update_flops, update_flops
from bootdqn.tabular.agents import TABULAR_AGENTS


def test_flops_by_hand():
    config = replace(bench.CHAIN_CONFIG, num_heads=3, hidden=(7,), batch_size=5)
    # Layers 4x7 and 7x2. Forward three times; backward to both weights, and to the input of the last layer only.
    per_sample = 2 * (3 * (28 + 14) + (28 + 14) + 14)
    assert update_flops(config, 4, 2) == 3 * 5 * per_sample
    one_forward_less = 2 * (2 * (28 + 14) + (28 + 14) + 14)
    assert update_flops(replace(config, double_q=False), 4, 2) == 3 * 5 * one_forward_less


def test_flops_of_pictures_by_hand():
    # Multiply-adds of 20x20 pixels of 32 8x8x4 kernels, 9x9 of 64 4x4x32, 7x7 of 64 3x3x64, and a head's layers.
    first, second, third = 3_276_800, 2_654_208, 1_806_336
    head = 3136 * 512 + 512 * 4
    forward = first + second + third + head
    backward = 2 * forward - first
    config = replace(bench_atari.CONFIG, num_heads=1)
    assert picture_update_flops(config, 4) == 2 * 32 * (3 * forward + backward) == 2_780_692_480
    assert picture_update_flops(replace(config, num_heads=10), 4) == 2_780_692_480 + 2 * 32 * 5 * 9 * head
    assert picture_update_flops(replace(config, double_q=False), 4) == 2 * 32 * (2 * forward + backward)


@pytest.mark.integration
@pytest.mark.parametrize("kernels", ["1", "0"])
def test_the_parts_that_are_timed_are_those_of_an_update(kernels, monkeypatch):
    monkeypatch.setenv("BOOTDQN_KERNELS", kernels)
    monkeypatch.setattr(bench_atari, "isolated", lambda *arguments: None)
    monkeypatch.setattr(bench_atari, "CONFIG", replace(bench_atari.CONFIG, hidden=(8,), batch_size=4))
    parts = bench_atari._learner_parts(3)
    whole, *_ = parts["step"]()
    params, state = parts["optimizer"]()
    by_xla, *_ = parts["step by XLA"]()
    assert os.environ["BOOTDQN_KERNELS"] == kernels
    for ours in ((params, state), (by_xla.params, by_xla.opt_state)):
        for mine, theirs in zip(*map(jax.tree.leaves, (ours, (whole.params, whole.opt_state))), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-7)


@pytest.mark.integration
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
        update_flops(replace(bench.CHAIN_CONFIG, num_heads=2, hidden=(4,)), 5, 2)
        / reference["ms_per_step_and_seed"]
        / 1e6
    )
    assert results["share_of_gemm_peak"] == pytest.approx(reference["gflops"] / results["gemm_gflops"])
    assert math.isfinite(results["gemm_gflops"])
    text = capsys.readouterr().out
    assert f"{reference['ms_per_step_and_seed']:.3f}" in text
    assert results["setting"] in text.replace("\n", " ")


@pytest.mark.integration
def test_peers_are_shown_with_their_ratio(tmp_path, monkeypatch, capsys):
    """Without the other packages: something else plays bsuite's part."""
    played = []
    monkeypatch.setattr(bench, "PEERS_CONFIG", replace(bench.PEERS_CONFIG, num_heads=2, hidden=(4,), batch_size=4))
    monkeypatch.setattr(bench, "PEERS_SIZES", {5: True, 10: False})
    monkeypatch.setattr(bench, "_bsuite_player", lambda env, config: played.append)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
    assert main(["bench", "peers", "--json", str(tmp_path / "bench.json")]) == 0
    assert played[0] * 5 > bench.PEERS_CONFIG.learning_start_steps  # both learn before they are timed
    assert len(played) == 6
    results = json.loads((tmp_path / "bench.json").read_text())
    small, large = results["results"]
    rates = small["steps_per_second"]
    assert small["ratio"] == pytest.approx(rates["bootdqn"] / rates["bsuite"])
    assert large["steps_per_second"].keys() == {"bootdqn"}
    assert results["growth"] == pytest.approx(rates["bootdqn"] / large["steps_per_second"]["bootdqn"])
    text = capsys.readouterr().out
    assert f"{rates['bootdqn']:.1f}" in text
    assert f"{small['ratio']:.1f}" in text
    assert "times as fast as bsuite 0.0" in text.replace("\n", " ")


@pytest.mark.integration
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


def in_this_process(make, *arguments):
    return make(*arguments)


def refuse() -> Callable[[], None]:
    raise UserError("not here")


@pytest.mark.integration
def test_functions_in_processes_of_their_own():
    second = bench_atari.isolated(operator.itemgetter, 1)
    assert second((5, 6)) == 6
    assert second("ab") == "b"
    identify = bench_atari.isolated(functools.partial, os.getpid)
    assert identify() == identify() != os.getpid()
    with pytest.raises(UserError, match="not here"):
        bench_atari.isolated(refuse)
    with pytest.raises(UserError, match="ended early"):
        bench_atari.isolated(os._exit, 1)


@pytest.mark.integration
def test_atari_is_shown_beside_its_peers(tmp_path, monkeypatch, capsys):
    """Without the other packages: something else plays their part."""
    threads, played = [], []

    def player(config, num_threads):
        threads.append(num_threads)
        return lambda steps: played.append(steps) or steps

    monkeypatch.setattr(bench_atari, "isolated", in_this_process)
    monkeypatch.setattr(bench_atari, "_stable_baselines_player", player)
    monkeypatch.setattr(bench_atari, "_pytorch_step", lambda config, batch, threads: lambda: None)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0")
    monkeypatch.setattr(bench_atari, "keep_large_blocks", lambda: None)
    monkeypatch.setattr(bench_atari, "available_cores", lambda: 2)
    small = replace(bench_atari.CONFIG, hidden=(4,), batch_size=4, replay_capacity=100, learning_start_steps=16)
    for name, value in (
        ("CONFIG", small),
        ("HEADS", (1, 2)),
        ("SLOTS", (1, 3)),
        ("LEARNER_TURNS", (1, 2)),
        ("LOOP_ROUNDS", 3),
        ("LOOP_STEPS", 12),
        ("ENV_STEPS", 12),
        ("BANDWIDTH_MEGABYTES", 1),
    ):
        monkeypatch.setattr(bench_atari, name, value)
    assert main(["bench", "atari", "--json", str(tmp_path / "bench.json")]) == 0
    assert threads == [1, 2]
    assert played == [19, 19, *[12] * 6]  # both learn before they are timed
    results = json.loads((tmp_path / "bench.json").read_text())
    one, two = results["learner"]
    assert one["gflops"] == pytest.approx(picture_update_flops(replace(small, num_heads=1), 4) / one["ms"] / 1e6)
    assert one["share_of_gemm_peak"] == pytest.approx(one["gflops"] / results["gemm_gflops"])
    # Bytes of passes over weights and biases of the convolutions and of two heads, and a product with a batch.
    by_kernels = why_not() is None
    assert two["optimizer_gb"] == pytest.approx((7 - by_kernels) * 4 * (77_984 + 2 * (3137 * 4 + 5 * 4)) / 1e9)
    assert two["optimizer_gflop"] == pytest.approx(by_kernels * 2 * 4 * 2 * 3136 * 4 / 1e9)
    assert results["kernels"] == (why_not() or "compiled")
    assert results["growth_with_heads"]["ms"] == pytest.approx(two["ms"] / one["ms"])
    rates = results["loop_steps_per_second"]
    medians = results["loop_median_steps_per_second"]
    plain = ["K=1", "K=2", "K=1, no double-Q", "K=2, no double-Q"]
    assert (
        list(rates)[2:] == [*(f"bootdqn, {name}" for name in plain), "bootdqn, K=2, 3 slots"] == list(medians)[2:]
    )
    assert all(medians[name] <= rates[name] for name in rates)
    assert any(medians[name] < rates[name] for name in rates)
    for ratios, turns in ((results["loop_ratio"], rates), (results["loop_ratio_of_medians"], medians)):
        peer = max(rate for name, rate in turns.items() if name.startswith("stable-baselines3"))
        assert ratios == pytest.approx({name: turns[f"bootdqn, {name}"] / peer for name in plain})
    of_slots = [rates["bootdqn, K=2"], rates["bootdqn, K=2, 3 slots"]]
    assert [row["steps_per_second"] for row in results["slots"]] == of_slots
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert f"{rates['bootdqn, K=2, 3 slots']:.1f}" in text
    assert f"{two['gradient_ms']:.1f}" in text
    assert f"{two['xla_ms']:.1f}" in text


@pytest.mark.parametrize(("name", "missing"), [("peers", "haiku"), ("atari", "torch")])
def test_peers_that_are_not_installed(name, missing, monkeypatch, capsys):
    class Without:
        @staticmethod
        def find_spec(module, path=None, target=None):
            if module == missing:
                raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    # Not None in place of the module: other packages take it for one that is there.
    monkeypatch.delitem(sys.modules, missing, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Without, *sys.meta_path])
    monkeypatch.setattr(bench_atari, "isolated", in_this_process)
    assert main(["bench", name]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bootdqn: error: ")
    assert "pip install 'bootdqn[peers]'" in error
    assert error.count("\n") == 1


@pytest.mark.integration
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
