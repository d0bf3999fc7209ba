"""The exploration X-ray: what a run logs against its own replay, and its numbers against a scripted run."""

import csv
import json
from typing import Any

import numpy as np
import pytest

import bootdqn
from bootdqn.analysis.head_report import EXPLORATION_COLUMNS
from bootdqn.analysis.xray import NO_HEAD, BestEpisode, Discovery, read_xray
from bootdqn.core.config import AgentConfig
from bootdqn.envs.chain import Chain
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.errors import UserError
from bootdqn.loops.compiled import make_compiled_loop
from bootdqn.plots.xray import xray_figure
from bootdqn.runs.directory import read_table

SMALL: dict[str, Any] = {"num_heads": 3, "hidden": (4,), "batch_size": 4, "learning_start_steps": 8}


@pytest.mark.integration
@pytest.mark.parametrize("env", [Chain(length=6, scrambled=True), DeepSea(size=4)], ids=["chain", "deep_sea"])
@pytest.mark.parametrize("group_size", [1, 2])
def test_what_is_logged_is_what_replay_holds(env, group_size):
    episodes = 9
    training = make_compiled_loop(
        env, AgentConfig(**SMALL), seeds=(0, 1), episodes=episodes, group_size=group_size
    )
    chunks = list(training.chunks())
    heads = np.concatenate([chunk.metrics.head for chunk in chunks], axis=1)
    observed = np.concatenate(
        [np.asarray(state.replay.data.obs) for state in training._states if state is not None]
    )
    for index, (seed, found) in enumerate(training.by_seed(lambda state: state.exploration).items()):
        states = observed[index].reshape(episodes, env.horizon)
        assert seed == index
        for state in range(env.encoding.num_states):
            visited = (states == state).any(axis=1)
            assert found.visits[state] == (states == state).sum()
            first = int(visited.argmax()) if visited.any() else None
            assert found.first_episode[state] == (0 if first is None else first + 1)
            if first is not None:
                assert found.first_head[state] == heads[index, first]


def write(path, name, rows):
    path.mkdir(exist_ok=True)
    with (path / name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def scripted_run(path, *, env="chain:4", num_heads=3, heads=("2", "0", "2", "1"), exploration=True):
    """Four episodes on a chain of four states, and another seed that must not show."""
    path.mkdir()
    config = {"env": env, "agent_name": "boot", "agent": {"num_heads": num_heads}, "episodes": 4, "seed": 5}
    (path / "config.json").write_text(json.dumps(config))
    returns, spreads = (0.5, 0.25, 2.0, 2.0), ("", "1.0", "3.0", "2.0")
    rows: list[tuple[Any, ...]] = [("seed", "episode", "return", "head", "q_spread")]
    for index in range(4):
        rows.append((5, index + 1, returns[index], heads[index], spreads[index]))
        rows.append((6, index + 1, 99.0, 0, 9.0))
    write(path, "metrics.csv", rows)
    if exploration:
        head = [heads[0], heads[0], heads[2], ""]
        table: list[tuple[Any, ...]] = [EXPLORATION_COLUMNS]
        table += [(5, 0, 7, 1, head[0], 0, 0.1), (5, 1, 9, 1, head[1], 0.5, 0.2), (5, 2, 4, 3, head[2], 0.25, 0.3)]
        table += [(5, 3, 0, "", "", 1.0, 5.0), *((6, state, 1, 1, 0, 0, 0) for state in range(4))]
        write(path, "exploration.csv", table)
    return path


def test_numbers_of_a_scripted_run(tmp_path):
    xray = read_xray(scripted_run(tmp_path / "run"))
    assert xray is not None
    assert xray.states is not None
    assert xray.title == "boot on chain:4, seed 5"
    assert xray.best_episodes == [BestEpisode(1, 2, 0.5), BestEpisode(3, 2, 2.0)]
    assert xray.states.discoveries == [Discovery(1, 2, 2), Discovery(3, 2, 1)]
    np.testing.assert_allclose(xray.shares, [0.25, 0.25, 0.5])
    np.testing.assert_array_equal(xray.states.visits, [7, 9, 4, 0])
    assert xray.findings == [
        "Training has visited 3 of 4 reachable states; the last new one was found in episode 3.",
        "After the first episode, the most new states at once were discovered in episode 3, by head 2: 1.",
        "1 of 3 heads were the first to visit some state, head 2 the most: 3.",
        "The best return, 2, was first reached in episode 3, by head 2, and in 2 of 4 episodes in total; the mean "
        "return of the last 4 episodes is 1.188.",
        "Heads acted in 25.0% to 50.0% of all steps.",
        "At the end the heads disagreed about the best action in 67% of the visited states, most in state 1 (vote "
        "entropy 0.50 nats).",
        "The standard deviation of Q over heads, on the data of their updates, went from 1 to 2.",
    ]


def test_another_seed_is_another_xray(tmp_path):
    run = scripted_run(tmp_path / "run")
    xray = read_xray(run, seed=6)
    assert xray is not None
    assert (xray.returns == 99).all()
    assert xray.states is not None
    assert xray.states.discoveries == [Discovery(1, 0, 4)]
    assert read_xray(run, seed=7) is None


def test_without_committed_heads_nobody_found_it(tmp_path):
    xray = read_xray(scripted_run(tmp_path / "run", heads=("", "", "", "")))
    assert xray is not None
    assert not xray.committed
    assert xray.best_episodes[-1].head == NO_HEAD
    assert not xray.shares.any()
    assert not any("by head" in line or "Heads acted" in line for line in xray.findings)


def test_a_run_that_goes_on_is_seen_by_episodes(tmp_path):
    run = scripted_run(tmp_path / "run", exploration=False)
    with (run / "metrics.csv").open("a") as file:
        file.write("5,5,70")  # cut while it is written
    xray = read_xray(run)
    assert xray is not None
    assert xray.states is None
    assert len(xray.returns) == 4


def test_the_grid_of_a_deep_sea(tmp_path):
    xray = read_xray(scripted_run(tmp_path / "run", env="deep_sea:2"))
    assert xray is not None
    assert xray.states is not None
    assert xray.states.shape == (2, 2)
    np.testing.assert_array_equal(xray.states.reachable, [True, False, True, True])
    assert xray.states.name(3) == "row 1, column 1"


def test_a_run_on_gymnasium_is_seen_by_episodes(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    config = {"env": "CartPole-v1", "agent_name": "boot", "agent": {"num_heads": 2}, "steps": 60, "seed": 1}
    (run / "config.json").write_text(json.dumps(config))
    rows = [("return", "length", "head", "q_spread"), (9, 10, 0, ""), (20, 20, 1, 1.5), (8, 30, 1, 0.5)]
    write(run, "metrics.csv", rows)
    xray = read_xray(run)
    assert xray is not None
    assert xray.states is None
    np.testing.assert_allclose(xray.shares, [1 / 6, 5 / 6])
    assert xray.best_episodes == [BestEpisode(1, 0, 9.0), BestEpisode(2, 1, 20.0)]


def test_lengths_and_seeds_are_taken_from_the_columns_that_are_there(tmp_path):
    run = scripted_run(tmp_path / "run")
    columns = ("seed", "episode", "step", "return", "length", "head", "q_spread")
    episodes = [(5, 1, 2, 1.0, 2, 0, ""), (6, 1, 9, 99.0, 9, 0, ""), (5, 2, 8, 3.0, 6, 1, 0.5)]
    write(run, "metrics.csv", [columns, *episodes])
    xray = read_xray(run)
    assert xray is not None
    np.testing.assert_array_equal(xray.returns, [1, 3])
    np.testing.assert_array_equal(xray.lengths, [2, 6])
    assert xray.states is not None


@pytest.mark.integration
def test_what_has_no_heads_or_no_episodes_has_no_xray(tmp_path):
    psrl = tmp_path / "psrl"
    bootdqn.train("chain:4", "psrl", episodes=2, out=psrl)
    assert read_xray(psrl) is None
    empty = scripted_run(tmp_path / "empty")
    (empty / "metrics.csv").unlink()
    assert read_xray(empty) is None


def test_damaged_tables_are_named(tmp_path):
    run = scripted_run(tmp_path / "run")
    write(run, "metrics.csv", [("seed", "return", "head", "q_spread"), (5, "much", 0, 1)])
    with pytest.raises(UserError, match=r"run holds tables that are damaged: .*'much'"):
        read_xray(run)


def test_rows_that_do_not_fit_their_table_are_left_out(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3\n4,5,6\n7,8\n9,")
    assert read_table(path) == [{"a": "1", "b": "2"}, {"a": "7", "b": "8"}]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ("chain:4", "boot"),
        ("deep_sea:2", "boot"),
        ("chain:4", "thompson"),
        ("river_swim", "dqn"),
    ],
)
def test_figures_of_real_runs_show_what_they_say(env, agent, tmp_path):
    options: dict[str, Any] = {} if agent == "dqn" else {"num_heads": 3}
    bootdqn.train(env, agent, episodes=12, out=tmp_path / "run", hidden=(4,), **options)
    xray = read_xray(tmp_path / "run")
    assert xray is not None
    assert xray.states is not None
    assert (tmp_path / "run" / "exploration.png").read_bytes().startswith(b"\x89PNG")
    figure = xray_figure(xray)
    first, growth, disagreement, *rest = figure.axes
    shares = [axes for axes in rest if axes.get_title(loc="left").startswith("Steps and discoveries")]
    assert len(shares) == 1
    if not xray.states.is_grid:
        assert len(first.patches) == (xray.states.visits > 0).sum()
        heights = [patch.get_height() for patch in first.patches]  # pyright: ignore[reportAttributeAccessIssue]
        assert heights == xray.states.first_episode[xray.states.visits > 0].tolist()
    else:
        assert len(first.images) == len(disagreement.images) == 1
    assert growth.get_title(loc="left") == f"Coverage: {(xray.states.visits > 0).sum()} of " + (
        f"{xray.states.reachable.sum()} states"
    )
    assert len(shares[0].patches) == (6 if agent == "boot" else 0)
