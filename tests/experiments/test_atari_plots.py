"""Figures and summaries of the Atari experiments, from rows made up by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from bootdqn.experiments.atari_49 import plot as plot_49
from bootdqn.experiments.atari_auc import plot as plot_auc
from bootdqn.experiments.atari_curves import plot as plot_curves
from bootdqn.experiments.atari_heads import plot as plot_heads
from bootdqn.experiments.atari_normalization import plot as plot_normalization
from bootdqn.experiments.atari_sharing import plot as plot_sharing
from bootdqn.experiments.engine.experiment import CsvRow
from bootdqn.experiments.shared.atari_tables import count_sentence, gather_runs, length_sentence
from bootdqn.experiments.shared.paper_scores import PAPER_AREAS, PAPER_SCORES
from bootdqn.plots import scores as score_figures
from bootdqn.plots.scores import Curve, CurvePanel, Level, mean_line

STEPS = 25_000
"""Between evaluations; 100,000 frames."""


def make_rows(
    game: str,
    agent: str,
    scores: Sequence[float],
    *,
    seed: int = 0,
    heads: int = 2,
    mask_probability: float = 1.0,
    head_scores: Sequence[float] = (),
    steps: int = STEPS,
) -> list[CsvRow]:
    """The rows of one run; its heads are evaluated at the end."""
    about = {
        "trial": f"{game}-{agent}-{heads}-{mask_probability:g}",
        "game": game,
        "agent": agent,
        "heads": str(heads),
        "mask_probability": str(mask_probability),
        "seed": str(seed),
        "steps": str(steps * len(scores)),
        "protocol": "minimal actions, evaluated without noise",
    }
    evaluations = [(i + 1, "vote", score) for i, score in enumerate(scores)]
    evaluations += [(i + 1, "mean", -1e6) for i in range(len(scores))]  # never looked at
    evaluations += [(len(scores), f"head {k}", score) for k, score in enumerate(head_scores)]
    return [
        {
            **about,
            "step": str(number * steps),
            "frames": str(4 * number * steps),
            "policy": policy,
            "episodes": "1",
            "mean_return": str(score),
            "least_return": str(score),
            "largest_return": str(score),
            "entropy": "",
            "data_share": "",
        }
        for number, policy, score in evaluations
    ]


def table_rows(summary: str) -> dict[str, list[str]]:
    """Cells by the first, and in tables with two columns of words by both."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in summary.splitlines() if line[:2] == "| "
    ]
    return {" ".join(cells[:2]): cells for cells in lines} | {cells[0]: cells for cells in lines}


def assert_drawn(stem: Path) -> None:
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert stem.with_suffix(".svg").stat().st_size > 10_000


@pytest.fixture
def stem(tmp_path):
    return tmp_path / "figure"


# From rows to runs.


def test_runs_hold_votes_in_order_and_the_last_heads():
    rows = make_rows("space_invaders", "boot", [1, 5, 3], head_scores=[2, 4])
    other = make_rows("space_invaders", "boot", [7, 8], seed=1)
    run, second = gather_runs([*reversed(rows), *other])
    assert (run.game, run.agent, run.heads, run.seed, second.seed) == ("Space Invaders", "boot", 2, 0, 1)
    assert run.frames.tolist() == [100_000, 200_000, 300_000]
    assert run.scores.tolist() == [1, 5, 3]
    assert (run.best, run.final) == (5, 3)
    assert sorted(run.head_scores) == [2, 4]
    assert run.cumulative().tolist() == [1e5, 6e5, 9e5]
    assert run.cumulative(above_random=True)[-1] == pytest.approx(9e5 - 148 * 3e5)
    assert len(second.head_scores) == 0


def test_area_over_the_length_of_the_run_or_over_a_hundred_epochs():
    short, long = gather_runs(
        [*make_rows("breakout", "boot", [40.12] * 4), *make_rows("pong", "boot", [1.89] * 3, steps=2_500_000)]
    )
    assert short.auc_epochs == 2
    assert short.auc == pytest.approx(0.1)
    assert long.auc_epochs == 100  # of 150
    assert long.auc == pytest.approx(0.1)


def test_sentences_count_runs_seeds_and_frames():
    one = make_rows("pong", "boot", [1] * 4)
    assert length_sentence(gather_runs(one)) == "Our runs have 0.4M of the paper's 200M frames (0.2%)."
    assert count_sentence(gather_runs(one)) == "1 run, 1 seed a configuration."
    some = gather_runs([*one, *make_rows("pong", "dqn", [1]), *make_rows("pong", "dqn", [1, 2], seed=1)])
    assert length_sentence(some) == "Our runs have 0.1M to 0.4M of the paper's 200M frames (0.05% to 0.2%)."
    assert count_sentence(some) == "3 runs, 1 to 2 seeds a configuration."
    whole = gather_runs(make_rows("pong", "boot", [1, 2], steps=25_000_000))
    assert length_sentence(whole) == "Our runs have 200M of the paper's 200M frames (100%)."


# Curves.


def test_mean_of_seeds_with_other_evaluations_and_lengths():
    lines = [(np.array([1, 2, 3]), np.array([0.0, 2.0, 4.0])), (np.array([2, 4]), np.array([10.0, 20.0]))]
    frames, values = mean_line(lines)
    assert frames.tolist() == [2, 3]
    assert values.tolist() == [6, 9.5]


def test_far_levels_are_named_and_near_ones_drawn():
    curve = Curve("boot", "#000000", [(np.array([1, 2]), np.array([10.0, 20.0]))])
    levels = [Level(name, value, "#000000", ":") for name, value in (("a", 30), ("b", 31), ("c", 0), ("d", -1))]
    panel = CurvePanel("", "", [curve], levels)
    assert [level.label for level in score_figures._near_levels(panel)] == ["a", "c"]
    assert score_figures._far_levels(panel, 3.5) == ["↑ b\N{NO-BREAK SPACE}31", "↓ d\N{NO-BREAK SPACE}-1"]


def test_heads_by_number(stem):
    rows = [
        *make_rows("breakout", "boot", [10, 30], heads=10),
        *make_rows("breakout", "boot", [20, 10], heads=10, seed=1),
        *make_rows("breakout", "boot", [2, 4], heads=2),
    ]
    summary = plot_heads(rows, stem)
    assert_drawn(stem)
    table = table_rows(summary)
    # At 10 up to 0.1M frames, then a line to 30: (10 + 20) / 2 over Nature DQN's 401.2; 17.5 for the other.
    assert table["Breakout 10"] == [
        "Breakout",
        "10",
        "2",
        "25.0 (20.0 to 30.0)",
        "20.0 (10.0 to 30.0)",
        f"{16.25 / 401.2:.3f} ({15 / 401.2:.3f} to {17.5 / 401.2:.3f})",
    ]
    assert table["Breakout 2"] == ["Breakout", "2", "1", "4.0", "4.0", f"{2.5 / 401.2:.3f}"]
    assert list(table)[1:3] == ["Breakout 2", "Breakout 10"]
    assert "0.2M of the paper's 200M frames (0.1%)" in summary
    assert "over 1 epochs of 200,000 frames: not the 100 of AUC-100" in summary
    assert "Breakout 855 with boot (K = 10, p = 1) and 437 with DDQN" in summary


def test_sharing_by_probability_and_dqn_last(stem):
    rows = [
        *make_rows("breakout", "dqn", [1, 3], heads=1),
        *make_rows("breakout", "boot", [2, 4], mask_probability=1.0),
        *make_rows("breakout", "boot", [5, 4], mask_probability=0.5),
    ]
    table = table_rows(plot_sharing(rows, stem))
    assert_drawn(stem)
    assert list(table)[1:4] == ["Breakout 0.5", "Breakout 1", "Breakout dqn"]
    assert [table[f"Breakout {name}"][3] for name in ("0.5", "1", "dqn")] == ["5.0", "4.0", "3.0"]


def test_curves_by_game_with_heads_alone(stem):
    rows = [
        *make_rows("breakout", "boot", [10, 8], head_scores=[4, 6]),
        *make_rows("breakout", "boot", [20, 30], seed=1, head_scores=[9, 11]),
        *make_rows("breakout", "dqn", [5, 6], heads=1),
        *make_rows("pong", "ensemble", [-21, -20]),
    ]
    summary = plot_curves(rows, stem)
    assert_drawn(stem)
    table = table_rows(summary)
    assert table["Breakout boot"][2:] == [
        "2",
        "20.0 (10.0 to 30.0)",
        "19.0 (8.0 to 30.0)",
        "7.5 (5.0 to 10.0)",
        "855.0",
        "30.5",
        "1.7",
    ]
    assert table["Breakout dqn"][2:] == ["1", "6.0", "6.0", "", "437.0", "30.5", "1.7"]
    assert table["Pong ensemble"][2:] == ["1", "-20.0", "-20.0", "", "", "14.6", "-20.7"]
    svg = stem.with_suffix(".svg").read_text()
    assert "minimal actions, evaluated without noise" in svg
    assert "4 runs, 1 to 2 seeds a configuration." in svg


def test_normalization_early_and_late(stem):
    scores = [100.0] * 10 + [200.0] * 10
    rows = [*make_rows("beam_rider", "boot", scores), *make_rows("beam_rider", "boot+", [300.0] * 20)]
    summary = plot_normalization(rows, stem)
    assert_drawn(stem)
    table = table_rows(summary)
    # 2M frames, of which the first tenth are 0.2M.
    assert table["Beam Rider boot"][2:] == ["1", "200.0", "200.0", "20.0", "300.0"]
    assert table["Beam Rider boot+"][2:] == ["1", "300.0", "300.0", "60.0", "600.0"]
    assert "(0.2M in Beam Rider)" in summary


# Table 1.


def test_49_against_hand_computed_numbers(stem):
    rows = []
    for seed, (boot, dqn) in enumerate([([11.7, 41.7], [21.7, 11.7]), ([31.7, 21.7], [1.7, 11.7])]):
        rows += make_rows("breakout", "boot", boot, seed=seed) + make_rows("breakout", "dqn", dqn, seed=seed)
        rows += make_rows("montezuma_revenge", "boot", [0, 100], seed=seed)
        rows += make_rows("montezuma_revenge", "dqn", [0, 0], seed=seed)
        rows += make_rows("pong", "boot", [-21, -20.7], seed=seed)
    summary = plot_49(rows, stem)
    assert_drawn(stem)
    scores, ratios, aggregates = (table_rows(part) for part in summary.split("\n\n") if part.startswith("|"))
    assert len(scores) == len(ratios) == 2 * 50
    assert scores["Breakout"] == [
        "Breakout",
        "1.7",
        "30.5",
        "36.7 (31.7 to 41.7)",
        "16.7 (11.7 to 21.7)",
        "855.0",
        "437.0",
    ]
    assert scores["Alien"][3:5] == ["", ""]
    # Best scores: 35 over 15 above random play. Cumulative: (10, 40, 30, 20) over (20, 10, 0, 10).
    assert ratios["Breakout"][1:] == ["2.33", "1.96", "2.50", "0.15M", "never"]
    assert ratios["Montezuma Revenge"][1:] == ["∞", "∞", "∞", "never", "never"]
    assert ratios["Pong"][1:] == ["-", "1.00", "-", "never", ""]
    assert ratios["Asteroids"][1:] == ["-", "0.25", "-", "", ""]
    # Human-normalised: 35 / 28.8 and 100 / 4753.3 on average; only in games that both have.
    halves = (35 / 28.8 + 100 / 4753.3) / 2
    assert aggregates["boot"][1:3] == ["2", f"{halves:.3f} ({(30 / 28.8 + 0.021) / 2:.3f} to {0.705:.3f})"]
    assert aggregates["boot"][5] == "50%"
    assert aggregates["the paper's boot, all games"][1:] == ["49", "1.535", "1.956", "6.113", "67%"]
    assert aggregates["the paper's DDQN, all games"][2] == "1.642"
    assert "No runs of 46 of the 49 games: Alien, Amidar," in summary
    assert "above DDQN in 24 games, below in 24 and equal in 1; the median of its ratios" in summary
    assert "where finite, is 0.996." in summary
    assert "Our runs have 0.2M of the paper's 200M frames (0.1%). 10 runs, 2 seeds a configuration." in summary


@pytest.fixture
def games_49(monkeypatch):
    """What would be drawn, by game."""
    games = {}

    def keep(_stem, _title, drawn, **_):
        games.update({game.title: game for game in drawn})

    monkeypatch.setattr("bootdqn.experiments.atari_49.save_games", keep)
    return games


def test_49_with_every_game_and_one_seed(stem, games_49):
    rows = []
    for game, known in PAPER_SCORES.items():
        rom = game.lower().replace(" ", "_")
        rows += make_rows(rom, "boot", [known.random, known.boot])
        rows += make_rows(rom, "dqn", [known.ddqn, known.random])
    summary = plot_49(rows, stem)
    assert "There are runs of all 49 games." in summary
    assert len(games_49) == 49
    for game in games_49.values():
        np.testing.assert_allclose(game.best, game.paper_best)
    aggregates = table_rows(summary.split("\n\n")[-1])
    assert aggregates["boot"][1:] == aggregates["the paper's boot"][1:] == ["49", "1.535", "1.956", "6.113", "67%"]
    assert "the paper's boot, all games" not in aggregates


def test_49_has_no_ratio_of_scores_below_random_play(stem, games_49):
    plot_49([*make_rows("bowling", "boot", [10.0]), *make_rows("bowling", "dqn", [20.0])], stem)
    assert np.isnan([games_49["Bowling"].best, games_49["Bowling"].cumulative]).all()
    plot_49([*make_rows("bowling", "boot", [10.0]), *make_rows("bowling", "dqn", [33.1])], stem)
    assert [games_49["Bowling"].best, games_49["Bowling"].cumulative] == pytest.approx([-1.31, -1.31])


def test_49_without_dqn_or_without_either(stem, games_49):
    summary = plot_49(make_rows("pong", "boot", [-20]), stem)
    assert np.isnan(games_49["Pong"].best)
    assert table_rows(summary.split("\n\n")[3])["Pong"][3:5] == ["-20.0", ""]
    assert "over the 1 games that all our agents have" in summary
    assert "Human-normalised" not in plot_49(make_rows("pong", "ensemble", [-21]), stem)


# Table 2.


def test_auc_of_short_runs_beside_the_paper(stem):
    rows = [
        *make_rows("breakout", "boot", [40.12] * 2),
        *make_rows("breakout", "boot", [80.24] * 2, seed=1),
        *make_rows("breakout", "dqn", [20.06] * 2),
        *make_rows("montezuma_revenge", "dqn", [0, 0]),
        *make_rows("amidar", "dqn", [1, 1]),
    ]
    summary = plot_auc(rows, stem)
    assert_drawn(stem)
    table = table_rows(summary)
    assert table["game"][6:] == ["boot, ours", "dqn, ours"]
    assert table["Breakout"][1:] == ["0.19", "0.20", "0.06", "0.16", "0.52", "0.150 (0.100 to 0.200)", "0.050"]
    assert table["Montezuma Revenge"][6:] == ["", "0.000"]
    assert table["average of all rows"][1:] == ["0.2907", "0.3729", "0.3429", "0.4393", "0.6193", "", ""]
    assert table["average of the 1 with all our agents"][4:] == ["0.1600", "0.5200", "0.1500", "0.0500"]
    assert table["average as printed"][1:6] == ["0.29", "0.37", "0.35", "0.41", "0.62"]
    assert "Amidar" not in table
    assert "dqn 0.35 where its rows have 0.3429, boot 0.41 where its rows have 0.4393." in summary
    assert "over 1 epochs of 200,000 frames: not the 100 of AUC-100" in summary
    assert "No runs of 12 of the 14 games: Alien," in summary
    assert "not AUC-100" in stem.with_suffix(".svg").read_text()


def test_auc_of_full_length(stem):
    rows = []
    for game in PAPER_AREAS:
        nature = PAPER_SCORES[game].nature
        rows += make_rows(game.lower().replace(" ", "_"), "boot+", [nature / 2] * 4, steps=1_250_000)
    summary = plot_auc(rows, stem)
    table = table_rows(summary)
    assert table["average of all rows"][5:] == ["0.6193", f"{13 / 28:.4f}"]  # a half, but 0 of Montezuma's 0
    assert "AUC-100, over the first 20M frames." in summary
    assert "There are runs of all 14 games." in summary


Plot = Callable[[list[CsvRow], Path], str]


@pytest.mark.parametrize(
    "plot", [plot_heads, plot_sharing, plot_curves, plot_normalization, plot_auc], ids=lambda plot: plot.__module__
)
def test_a_single_evaluation_can_be_drawn(plot: Plot, stem):
    assert "| " in plot(make_rows("montezuma_revenge", "boot", [0.0]), stem)
    assert_drawn(stem)


def test_figures_are_the_same_every_time(tmp_path):
    rows = make_rows("pong", "boot", [-21, -20]) + make_rows("pong", "boot", [-20, -20], seed=1)
    for name in "ab":
        plot_curves(rows, tmp_path / name)
    for suffix in ("png", "svg"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
