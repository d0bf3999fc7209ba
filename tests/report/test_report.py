"""`bootdqn report`: what is found, averaged and shown, whatever state the files are in."""

import base64
import hashlib
import html
import http.client
import json
import os
import re
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer

import numpy as np
import pytest

from bootdqn.analysis.head_report import EXPLORATION_COLUMNS
from bootdqn.cli.report import main
from bootdqn.core.config import AGENTS
from bootdqn.errors import UserError
from bootdqn.loops.compiled import COLUMNS
from bootdqn.plots.style import AGENT_COLOURS
from bootdqn.report import details, markdown, serve
from bootdqn.report.charts import chart_html, heat, heat_map, numbers, safe_json, tick_text, ticks
from bootdqn.report.collect import find, read_experiment, read_run
from bootdqn.report.curves import MAX_POINTS, average, make_charts
from bootdqn.report.page import Report
from bootdqn.report.records import SeedCurve
from bootdqn.runs.evaluations import EVALUATIONS

AGENT = {"num_heads": 2, "epsilon_end": 0.0, "learning_rate": 0.001}
RECORD = {
    "command": "bootdqn train chain:5",
    "status": "finished",
    "started": "2026-01-02T03:04:05+00:00",
    "finished": "2026-01-02T03:06:05+00:00",
    "git_revision": "0123456789abcdef-dirty",
    "python": "3.11.7",
    "versions": {"bootdqn": "0.1.0"},
}


def write_run(path, config, record=None, rows=(), header=COLUMNS):
    """A run directory with rows (seed, episode, return), or by steps (step, episode, return)."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "run.json").write_text(json.dumps(RECORD | (record or {})))
    lines = [",".join(header)]
    for first, episode, value in rows:
        cells = dict.fromkeys(header, "0") | {header[0]: first, "episode": episode, "return": value}
        lines.append(",".join(str(cells[name]) for name in header))
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return path


def compiled(path, returns, agent=AGENT, record=None, **config):
    """A run on a compiled environment: the returns of every seed."""
    rows = [(seed, i + 1, value) for seed, values in returns.items() for i, value in enumerate(values)]
    config = {"env": "chain:5", "agent_name": "boot", "agent": agent, "episodes": 3, "seed": 0} | config
    return write_run(path, {**config, "num_seeds": len(returns)}, record, rows)


def by_steps(path, episodes, seed=0, agent=AGENT, record=None, **config):
    """A run on a Gymnasium environment: (step, return) of every episode."""
    rows = [(step, i + 1, value) for i, (step, value) in enumerate(episodes)]
    config = {"env": "CartPole-v1", "agent_name": "boot", "agent": agent, "steps": 4, "num_envs": 1} | config
    header = ("step", "episode", "slot", "return", "length", "head", "q_spread")
    return write_run(path, {**config, "seed": seed}, record, rows, header)


def read(*paths):
    return [read_run(found) for found in find(paths) if found.is_run]


def the_run(path):
    return read(path)[0]


def page_of(path):
    return Report([path]).page()


# What is found


def test_runs_and_experiments_are_found_anywhere_but_in_trials_and_hidden_directories(tmp_path):
    for name in ("a/seed10", "a/seed2", "experiment/trials/run", ".hidden/run", "experiment/other/run"):
        compiled(tmp_path / name, {0: [1.0]})
    (tmp_path / "experiment/sweep.json").write_text("{}")
    (tmp_path / "a/seed2/models/deeper").mkdir(parents=True)
    names = [(found.name, found.is_run) for found in find([tmp_path])]
    assert names == [("a/seed2", True), ("a/seed10", True), ("experiment", False), ("experiment/other/run", True)]


def test_names_start_below_what_was_asked_for(tmp_path):
    for name in ("x/a", "x/b", "y/c"):
        compiled(tmp_path / name, {0: [1.0]})

    def names(*roots):
        return [found.name for found in find([tmp_path / root for root in roots])]

    assert names("x") == ["a", "b"]
    assert names("x/a") == ["a"]
    assert names("x/a", "x/b") == ["a", "b"]
    assert names("x", "y/c") == ["x/a", "x/b", "y/c"]
    assert names("x", "x/a") == ["a", "b"]  # once each


def test_mistakes_are_answered_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"no directory .*missing; give a run directory"):
        main([str(tmp_path / "missing")])
    with pytest.raises(UserError, match=r"no runs in .*: a run directory holds"):
        main([str(tmp_path)])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file; give a run directory"):
        main([str(tmp_path / "file")])
    with pytest.raises(UserError, match="at least one"):
        main([])
    compiled(tmp_path / "run", {0: [1.0]})
    with pytest.raises(UserError, match="is a directory; give the name of a file"):
        main([str(tmp_path / "run"), "--out", str(tmp_path)])
    with pytest.raises(UserError, match="a port is a number"):
        main([str(tmp_path / "run"), "--serve", "--port", "65536"])


# Numbers of a run


def test_a_compiled_run_in_numbers(tmp_path):
    returns = {0: [100.0] * 50 + [1.0] * 100, 1: [3.0] * 150}
    learned = {"episodes_to_learn": {"0": 20, "1": 40, "2": None}, "greedy_episodes_to_learn": {"0": 7, "1": 8}}
    run = the_run(compiled(tmp_path / "run", returns, record=learned, episodes=200))
    assert (run.unit, run.planned, run.done, run.num_heads) == ("episodes", 200, 150, 2)
    assert run.late_return == 2.0  # the mean of 1 and 3: of each seed the last hundred
    assert run.learned == (40.0, 2, 3)  # of 20, 40 and never
    assert run.best_evaluation is None
    assert run.started == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert run.seconds == 120.0
    assert run.notes == []


def test_an_agent_that_dithers_is_judged_without_that(tmp_path):
    learned = {"episodes_to_learn": {"0": None}, "greedy_episodes_to_learn": {"0": 7}}
    agent = AGENT | {"epsilon_end": 0.1}
    assert the_run(compiled(tmp_path / "run", {0: [1.0]}, agent, learned)).learned == (7.0, 1, 1)


def test_a_run_by_steps_in_numbers(tmp_path):
    path = by_steps(tmp_path / "run", [(1, 10), (3, 20)], record={"steps": 4, "best_return": 12.5})
    rows = ["4,vote,5,11.5,10,13,0.1,", "4,head 0,5,14,10,15,0.1,0.25"]
    (path / "evaluations.csv").write_text("\n".join([",".join(EVALUATIONS), *rows]) + "\n")
    run = the_run(path)
    assert (run.unit, run.planned, run.done, run.late_return) == ("steps", 4, 4, 15.0)
    assert run.best_evaluation == 12.5
    (card,) = run.cards
    assert card.title == "Evaluation at step 4"
    assert [(p.name, p.episodes, p.mean, p.least, p.largest, p.share) for p in card.policies] == [
        ("vote", 5, 11.5, 10, 13, None),
        ("head 0", 5, 14, 10, 15, 0.25),
    ]


NEW_COLUMNS = ("seed", "episode", "step", "slot", "return", "length", "head", "q_spread")


def test_runs_with_an_explicit_loop_and_one_kind_of_table_are_read(tmp_path):
    agent = {"env": "chain:5", "agent_name": "boot", "agent": AGENT, "seed": 3}
    both = {"episodes": 2, "steps": 40}
    per_seed = tmp_path / "compiled"
    write_run(per_seed, agent | both | {"loop": "compiled"}, rows=[(3, 1, 1.0), (4, 1, 2.0)], header=NEW_COLUMNS)
    by_step = tmp_path / "host"
    write_run(by_step, agent | both | {"loop": "host"}, {"steps": 17}, rows=[(3, 1, 1.0)], header=NEW_COLUMNS)
    run = the_run(per_seed)
    assert (run.unit, run.planned, run.done, [curve.seed for curve in run.curves]) == ("episodes", 2, 1, [3, 4])
    run = the_run(by_step)
    assert (run.unit, run.planned, run.done, [curve.seed for curve in run.curves]) == ("steps", 40, 17, [3])
    assert run.notes == []


def test_a_configuration_of_no_known_loop_is_noted(tmp_path):
    run = the_run(write_run(tmp_path / "run", {"loop": "quantum"}, rows=[(0, 1, 1.0)], header=NEW_COLUMNS))
    assert run.notes == ["config.json is not of this version: unknown loop 'quantum'"]
    assert (run.loop, run.unit, run.done) == ("", "steps", 0)
    assert "Incomplete: config.json is not of this version" in page_of(tmp_path)


def test_a_run_that_goes_on_took_the_time_up_to_its_last_episode(tmp_path):
    started = datetime.now(UTC).isoformat(timespec="seconds")
    path = compiled(tmp_path / "run", {0: [1.0]}, record={"status": "running", "started": started})
    (path / "run.json").write_text(json.dumps({"status": "running", "started": started}))
    seconds = the_run(path).seconds
    assert seconds is not None
    assert 0 <= seconds < 60


# Averages


def test_seeds_are_averaged_with_an_interval(tmp_path):
    run = the_run(compiled(tmp_path / "run", {0: [0.0, 2.0, 4.0], 1: [2.0, 4.0, 6.0]}))
    (chart,) = make_charts([run])
    (line,) = chart.lines
    assert (chart.title, chart.xlabel, line.label, line.colour) == (
        "chain:5",
        "episode",
        "boot",
        AGENT_COLOURS["boot"],
    )
    np.testing.assert_array_equal(line.x, [1, 2, 3])
    np.testing.assert_array_equal(line.y, [1, 2, 3])  # running means 0 1 2 and 2 3 4
    np.testing.assert_array_equal(line.low, [0, 1, 2])  # a quarter of all draws is twice the lower seed
    np.testing.assert_array_equal(line.high, [2, 3, 4])
    np.testing.assert_array_equal(line.counts, [2, 2, 2])


def test_runs_by_steps_are_the_seeds_of_one_line_on_common_steps(tmp_path):
    by_steps(tmp_path / "a", [(1, 10), (3, 20)], seed=0, record={"steps": 4})
    by_steps(tmp_path / "b", [(2, 0), (4, 10)], seed=1, record={"steps": 4})
    (chart,) = make_charts(read(tmp_path))
    (line,) = chart.lines
    assert chart.xlabel == "environment step"
    np.testing.assert_array_equal(line.x, [1, 2, 3, 4])
    np.testing.assert_array_equal(line.y, [10, 5, 7.5, 10])  # 10 10 15 15 and - 0 0 5
    np.testing.assert_array_equal(line.low, [np.nan, 0, 0, 5])
    np.testing.assert_array_equal(line.high, [np.nan, 10, 15, 15])
    np.testing.assert_array_equal(line.counts, [1, 2, 2, 2])


def test_a_seed_counts_as_far_as_it_got():
    long = SeedCurve(0, np.array([1.0, 2, 3]), np.array([1.0, 1, 1]), 3)
    short = SeedCurve(1, np.array([1.0, 2]), np.array([3.0, 3]), 2)
    line = average([long, short], "boot", "#000000")
    np.testing.assert_array_equal(line.y, [2, 2, 1])
    np.testing.assert_array_equal(line.counts, [2, 2, 1])
    np.testing.assert_array_equal(line.low, [1, 1, np.nan])


def test_long_curves_are_thinned_from_the_first_to_the_last_point():
    x = np.arange(1.0, 1001)
    line = average([SeedCurve(0, x, x, 1000)], "boot", "#000000")
    assert len(line.x) == MAX_POINTS
    assert (line.x[0], line.x[-1]) == (1, 1000)
    assert line.y[-1] == 995.5  # of 991 to 1000


def test_configurations_that_differ_are_lines_of_their_own_named_by_the_difference(tmp_path):
    compiled(tmp_path / "a", {0: [1.0]})
    compiled(tmp_path / "b", {1: [3.0]})
    compiled(tmp_path / "c", {0: [5.0]}, agent=AGENT | {"learning_rate": 0.1, "hidden": [8, 8]})
    compiled(tmp_path / "d", {0: [5.0]}, agent={"epsilon": 0.1}, agent_name="psrl")
    (chart,) = make_charts(read(tmp_path))
    assert [(line.label, line.y.tolist()) for line in chart.lines] == [
        (
            "boot (hidden [50, 50], learning rate 0.001)",
            [2.0],
        ),  # AgentConfig's hidden layers, where nothing is said
        ("boot (hidden [8, 8], learning rate 0.1)", [5.0]),
        ("psrl", [5.0]),
    ]
    assert [(line.colour, line.dash) for line in chart.lines] == [
        (AGENT_COLOURS["boot"], 0),
        (AGENT_COLOURS["boot"], 1),
        (AGENT_COLOURS["psrl"], 0),
    ]
    assert AGENTS["boot"].hidden == (50, 50)


def test_a_seed_that_was_trained_twice_counts_once(tmp_path):
    compiled(tmp_path / "a", {0: [1.0]})
    compiled(tmp_path / "b", {0: [3.0, 3.0]})
    (chart,) = make_charts(read(tmp_path))
    np.testing.assert_array_equal(chart.lines[0].y, [3, 3])
    np.testing.assert_array_equal(chart.lines[0].counts, [1, 1])


def test_other_environments_are_other_charts(tmp_path):
    compiled(tmp_path / "a", {0: [1.0]})
    by_steps(tmp_path / "b", [(1, 1)])
    write_run(tmp_path / "c", {"env": "chain:9", "episodes": 1})  # without episodes
    assert [chart.title for chart in make_charts(read(tmp_path))] == ["chain:5", "CartPole-v1"]


# Charts


def test_ticks_are_round_and_hold_everything():
    assert ticks(0, 1000) == [0, 200, 400, 600, 800, 1000]
    assert ticks(-500, -63) == [-500, -400, -300, -200, -100, 0]
    assert ticks(0, 0.003) == [0, 0.001, 0.002, 0.003]
    assert ticks(3, 3)[0] < 3 < ticks(3, 3)[-1]
    for low, high in ((1e20, 1e20 + 2e4), (0, 5e-324), (-1e30, 1e30), (0, 0)):
        found = ticks(low, high)
        assert len(found) < 20
        assert found[0] < found[-1]
    assert [tick_text(value) for value in (0, 0.5, -200, 1500, 2e6, 3e9)] == [
        "0",
        "0.5",
        "-200",
        "1.5k",
        "2M",
        "3G",
    ]


def test_numbers_for_the_script_are_short_and_cannot_leave_their_element():
    assert numbers([1 / 3, float("nan"), 123456789.0]) == [0.333333, None, 123457000.0]
    assert safe_json(["</script>"]) == '["\\u003c/script>"]'


def test_a_chart_holds_its_numbers(tmp_path):
    (chart,) = make_charts([the_run(compiled(tmp_path / "run", {0: [0.0, 2.0, 4.0], 1: [2.0, 4.0, 6.0]}))])
    drawn = chart_html(chart._replace(title="<b>"))
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', drawn)
    (line,) = json.loads(data)["lines"]
    assert line == {"x": [1, 2, 3], "y": [1, 2, 3], "low": [0, 1, 2], "high": [2, 3, 4], "counts": [2, 2, 2]}
    assert drawn.count("<polygon") == 1
    assert "<b>" not in drawn
    assert "&lt;b&gt;" in drawn


def test_correlations_have_a_colour_each():
    assert heat(-0.5) == heat(0.0) != heat(0.5) != heat(1.0)
    drawn = heat_map([[1.0, 0.25], [None, 1.0]])
    assert drawn.count("<rect") == 4
    assert "<title>heads 0 and 1: 0.25</title>" in drawn
    assert "<title>heads 1 and 0: unknown</title>" in drawn


# The page


def test_markdown_becomes_escaped_html():
    source = "# A & B\n\nTwo\nlines.\n\n| name | n |\n|---|---:|\n| <i> | 1 |\n| a \\| b |\n\n##### C\n"
    made = markdown.to_html(source)
    assert re.sub(r"(?<=>)\n|\n$", "", made).replace("\n", " ") == (
        "<h4>A &amp; B</h4><p>Two lines.</p>"
        '<div class="scroll" tabindex="0"><table><thead><tr><th>name</th><th class="num">n</th></tr></thead>'
        '<tbody><tr><td>&lt;i&gt;</td><td class="num">1</td></tr><tr><td>a | b</td><td class="num"></td></tr>'
        "</tbody></table></div><h6>C</h6>"
    )


@pytest.mark.parametrize(
    "source",
    [
        "<script>alert(1)</script>",
        "a <b onclick=x>b</b>",
        "| <img src=x> |\n|---|\n| <table> |",
        "[link](https://example.com)",
        "![image](https://example.com/a.png)",
        "<https://example.com>",
    ],
)
def test_markdown_can_neither_bring_markup_nor_links_into_the_page(source):
    tags = set(re.findall(r"<(\w+)", markdown.to_html(source)))
    assert tags <= {"p", "div", "table", "thead", "tbody", "tr", "th", "td"}


def test_the_command_writes_one_file_and_says_so(tmp_path, capsys):
    compiled(tmp_path / "runs/a", {0: [1.0, 2.0]})
    (tmp_path / "runs/e").mkdir()
    (tmp_path / "runs/e/sweep.json").write_text("{}")
    out = tmp_path / "new/page.html"
    assert main([str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"report: {out} (1 run, 1 experiment, {out.stat().st_size / 1e6:.1f} MB)\n"
    page = out.read_text()
    assert "1 run and 1 experiment, as of" in page
    assert "data-version" not in page
    assert "connect-src" not in page


def test_the_policy_allows_this_script_and_nothing_else(tmp_path):
    page = page_of(compiled(tmp_path / "run", {0: [1.0]}))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert html.unescape(policy) == (
        "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert set(re.findall(r"""(?:src|href)=["'](\w*:?)""", page)) <= {"data:", ""}


def test_the_table_has_what_to_sort_by(tmp_path):
    compiled(tmp_path / "runs/a", {0: [1.0] * 3, 1: [2.0] * 3}, record={"episodes_to_learn": {"0": 1, "1": None}})
    by_steps(
        tmp_path / "runs/b", [(1200, 2345.6)], steps=5000, record={"status": "interrupted", "best_return": 0.0}
    )
    page = page_of(tmp_path / "runs")
    (body,) = re.findall(r'<table id="summary">.*?<tbody>(.*?)</tbody>', page)
    first, second = ([*re.findall(r"<t[dh][^>]*>.*?</t[dh]>", row)] for row in body.split("</tr>")[:2])

    def shown(cell):
        return re.findall(r'data-sort="(.*?)"', cell), re.sub("<.*?>", "", cell)

    assert [shown(cell) for cell in first] == [
        (["a"], "a"),
        (["finished"], "finished"),
        (["chain:5"], "chain:5"),
        (["boot"], "boot"),
        (["2.0"], "2"),
        (["2"], "0–1"),
        (["3.0"], "3 episodes"),
        (["1.5"], "1.5"),
        ([], ""),
        ([], "&gt; 3 (1/2)"),  # one of two, so that the median is later than all there were
        (["2026-01-02T03:04:05+00:00"], "2026-01-02 03:04"),
        (["120.0"], "2 min"),
        (["0123456789abcdef"], "0123456-dirty"),
    ]
    assert [shown(cell) for cell in second][5:10] == [
        (["1"], "0"),
        (["1200.0"], "1,200 of 5,000 steps"),
        (["2345.6"], "2,346"),
        (["0.0"], "0"),
        ([], ""),
    ]


def test_a_head_report_card_is_shown_with_its_warning(tmp_path):
    path = compiled(tmp_path / "run", {0: [1.0]})
    policies = [
        {"policy": "vote", "episodes": 10, "mean_return": 4.0, "least_return": 3.0, "largest_return": 5.0},
        {"policy": "head 0", "episodes": 10, "mean_return": -1.0, "least_return": -1.0, "largest_return": -1.0}
        | {"data_share": 0.25},
    ]
    card = {
        "seed": 0,
        "observations": "all 5 states",
        "policies": policies,
        "correlation": [[1.0, 0.5], [0.5, 1.0]],
    }
    card |= {"agreement": 0.93, "effective_heads": 1.6, "warning": "the heads <have> collapsed"}
    (path / "heads.json").write_text(json.dumps({"cards": [card, card | {"seed": 1, "warning": None}]}))
    page = page_of(path)
    assert "<strong>The 2 heads are worth 1.6 unrelated ones.</strong>" in page
    assert "the same favourite action in 93% of observations" in page
    assert '<p class="warning">The heads &lt;have&gt; collapsed.</p>' in page
    assert 'style="margin-left:20.0%;width:80.0%"' in page  # from 0 to 4, of -1 to 4
    assert 'style="margin-left:0.0%;width:20.0%"' in page
    assert '<td class="num">25%</td>' in page
    assert "heads 0 and 1: 0.50" in page
    assert "Report cards of 1 more seed" in page


def test_an_exploration_x_ray_is_drawn_with_its_findings(tmp_path):
    path = compiled(tmp_path / "run", {0: [0.0, 10.0]})
    rows = ["0,0,2,1,0,0.1,0.2", "0,1,2,2,0,0.1,0.2", *(f"0,{state},0,,,0,0" for state in (2, 3, 4))]
    (path / "exploration.csv").write_text("\n".join([",".join(EXPLORATION_COLUMNS), *rows]) + "\n")
    page = page_of(path)
    assert "<li>Training has visited 2 of 5 reachable states" in page
    assert 'alt="exploration X-ray"' in page
    (path / "exploration.csv").write_text("\n".join([",".join(EXPLORATION_COLUMNS), "0,0,x,1,0,0,0"]) + "\n")
    assert "Incomplete: the exploration X-ray could not be drawn" in page_of(path)


def test_an_experiment_is_shown_with_figure_and_tables(tmp_path):
    path = tmp_path / "sweep"
    path.mkdir()
    record = {
        "experiment": "chain-heads",
        "preset": "quick",
        "command": "bootdqn reproduce",
        "git_revision": "abc",
    }
    (path / "sweep.json").write_text(json.dumps(record))
    (path / "summary.md").write_text("Median.\n\n| K | N |\n|---|---|\n| 1 | 2 |\n")
    (path / "chain-heads.svg").write_bytes(b"<svg/>")
    (path / "chain-heads.png").write_bytes(b"png")
    page = page_of(path)
    assert f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}" in page
    assert "How many heads, and how much data they share." in page
    assert "<td>2</td>" in page
    assert "<dt>preset</dt><dd><code>quick</code></dd>" in page
    (path / "chain-heads.svg").write_bytes(b" " * 1_000_001)
    assert f"data:image/png;base64,{base64.b64encode(b'png').decode()}" in page_of(path)


def test_a_figure_comes_from_its_own_directory_only(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "secret.svg").write_bytes(b"secret")
    (tmp_path / "sweep/sweep.json").write_text(json.dumps({"experiment": "../secret"}))
    assert base64.b64encode(b"secret").decode() not in page_of(tmp_path / "sweep")


def test_videos_are_in_the_page_up_to_a_size(tmp_path, monkeypatch):
    path = compiled(tmp_path / "run", {0: [1.0]})
    (path / "one.mp4").write_bytes(b"mp4")
    (path / "two.gif").write_bytes(b"gif")
    (path / "three.mp4").write_bytes(b"12345")
    monkeypatch.setattr(details, "MAX_VIDEO_BYTES", 4)
    page = page_of(path)
    assert '<video controls muted playsinline loop src="data:video/mp4;base64,bXA0" aria-label="one.mp4">' in page
    assert '<img src="data:image/gif;base64,Z2lm"' in page
    assert "run/three.mp4 is not shown here" in page


def test_an_error_and_a_protocol_are_shown(tmp_path):
    path = compiled(tmp_path / "run", {0: [1.0]}, record={"status": "failed", "error": "out of <memory>"})
    (path / "protocol.json").write_text(json.dumps({"sticky_actions": 0.25}))
    page = page_of(path)
    assert "The run ended with an error: out of &lt;memory&gt;" in page
    assert "<dt>sticky actions</dt><dd><code>0.25</code></dd>" in page


HOSTILE = "\"><img src=x onerror=alert(1)></script><script>alert('1')</script>&amp;"


def test_nothing_from_a_run_is_markup(tmp_path):
    everything = {"env": HOSTILE, "agent_name": HOSTILE, "agent": {HOSTILE: HOSTILE}}
    record = dict.fromkeys(("status", "command", "error", "git_revision", "python"), HOSTILE)
    path = compiled(
        tmp_path / 'a"><script>1', {0: [1.0]}, **everything, record={**record, "versions": {HOSTILE: HOSTILE}}
    )
    compiled(tmp_path / "b", {0: [1.0]}, agent={HOSTILE: 2}, env=HOSTILE, agent_name=HOSTILE)
    (path / "protocol.json").write_text(json.dumps({HOSTILE: [HOSTILE]}))
    card = {"seed": HOSTILE, "observations": HOSTILE, "policies": [{"policy": HOSTILE}], "warning": HOSTILE}
    (path / "heads.json").write_text(json.dumps({"cards": [card]}))
    (path / "metrics.csv").write_text((path / "metrics.csv").read_text() + f"{HOSTILE},{HOSTILE}\n")
    (path / '"><script>.mp4').write_bytes(b"")
    (tmp_path / "e").mkdir()
    (tmp_path / "e/sweep.json").write_text(
        json.dumps({"experiment": HOSTILE, "command": HOSTILE, "preset": [HOSTILE]})
    )
    (tmp_path / "e/summary.md").write_text(f"# {HOSTILE}\n\n{HOSTILE}\n\n| {HOSTILE} |\n|---|\n| {HOSTILE} |\n")
    page = page_of(tmp_path)
    assert "<img src=x" not in page
    assert "alert(1)&gt;" in page
    assert [*re.findall("<script.*?>", page)] == ['<script type="application/json">', "<script>"]
    assert page.count("</script>") == 2


# Damage


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path):
    path = compiled(tmp_path / "run", {0: [1.0, 2.0, 3.0]})
    with (path / "metrics.csv").open("a") as file:
        file.write("0,4,0,nan,0,0,0,0,0,0,0,0\nx\n0,5,0,7")
    run = the_run(path)
    assert run.done == 3
    assert run.notes == [
        "metrics.csv ends within a line, which was left out",
        "rows of metrics.csv that cannot be read: 2",
    ]
    assert "Incomplete: rows of metrics.csv that cannot be read: 2." in page_of(path)
    (path / "metrics.csv").unlink()
    (path / "run.json").write_text("{")
    (path / "heads.json").write_text('{"cards": [{"seed": 0}]}')
    assert the_run(path).notes == [
        "run.json is damaged",
        "metrics.csv cannot be read: No such file or directory",
        "heads.json is damaged",
    ]
    assert "unknown" in page_of(path)


@pytest.mark.parametrize("name", ["config.json", "run.json", "metrics.csv", "evaluations.csv", "heads.json"])
def test_a_page_comes_out_wherever_a_file_is_cut(tmp_path, monkeypatch, name):
    monkeypatch.setattr(details, "read_xray", lambda path: None)
    path = by_steps(tmp_path / "run", [(1, 10), (2, 10)])
    (path / "evaluations.csv").write_text(
        f"{','.join(EVALUATIONS)}\n4,vote,5,11.5,10,13,0.1,\n4,head 0,5,1,1,1,0,0.2\n"
    )
    card = {
        "seed": 0,
        "observations": "all",
        "policies": [{"policy": "vote", "mean_return": 1.0}],
        "correlation": [[1]],
    }
    (path / "heads.json").write_text(json.dumps({"cards": [card]}))
    whole = (path / name).read_bytes()
    for end in range(0, len(whole), 7):
        (path / name).write_bytes(whole[:end])
        assert "</html>" in page_of(path)


@pytest.mark.parametrize("value", [None, 0, 1e400, -1e308, "text", [], {}, [[None]], True, "9" * 400])
def test_a_page_comes_out_whatever_the_values_are(tmp_path, value):
    names = ("env", "agent_name", "agent", "episodes", "num_seeds", "seed", "num_envs")
    path = compiled(tmp_path / "run", {0: [1.0]}, **dict.fromkeys(names[:4] + names[5:], value))
    record = (
        "status",
        "started",
        "finished",
        "versions",
        "regret",
        "episodes_to_learn",
        "best_return",
        "steps",
        "error",
    )
    (path / "run.json").write_text(json.dumps(dict.fromkeys(record, value)))
    (path / "heads.json").write_text(json.dumps({"cards": value}))
    (path / "protocol.json").write_text(json.dumps({"a": value}))
    (path / "sub").mkdir()
    for agent in ({"num_heads": value}, {"num_heads": 2, "epsilon_end": value}):
        (path / "config.json").write_text(json.dumps({"agent": agent, "episodes": value, "env": value}))
        assert "</html>" in page_of(path)


def test_an_experiment_without_results_says_so(tmp_path):
    (tmp_path / "sweep.json").write_text("[]")
    (found,) = find([tmp_path])
    experiment = read_experiment(found)
    assert experiment.experiment == tmp_path.name
    assert experiment.notes[0] == "sweep.json is damaged"
    assert "no summary yet" in experiment.notes[1]
    assert "Incomplete: sweep.json is damaged." in page_of(tmp_path)


# Serving


@contextmanager
def serving(path):
    server = serve.make_server(Report([path]), 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(port, path="/", host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_the_server_follows_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "_REST", 0)
    path = compiled(tmp_path / "run", {0: [1.0]})
    with serving(tmp_path) as port:
        status, page = ask(port)
        first = ask(port, "/version")[1]
        assert status == 200
        assert f'data-version="{first}"' in page
        assert "connect-src 'self'" in html.unescape(page)
        assert "1 of 3 episodes" in page
        with (path / "metrics.csv").open("a") as file:
            file.write("0,2,0,5,0,0,0,0,0,0,0,0\n")
        assert ask(port, "/version")[1] != first
        assert "2 of 3 episodes" in ask(port)[1]
        for name in ("run.json", "config.json"):
            (path / name).unlink()
        assert "2 of 3 episodes" in ask(port)[1]  # nothing is left; the last page stays


def test_what_has_not_changed_is_not_made_again(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(details, "read_xray", lambda path: drawn.append(path.name))
    compiled(tmp_path / "a", {0: [1.0]})
    path = compiled(tmp_path / "b", {0: [1.0]})
    report = Report([tmp_path])
    assert report.page(live="1").count("</html>") == 1
    (path / "run.json").write_text(json.dumps(RECORD | {"status": "failed"}))
    report.page(live="2")
    assert drawn == ["a", "b", "b"]


def test_a_page_that_took_long_is_kept_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "_REST", 1e6)
    path = compiled(tmp_path / "run", {0: [1.0]})
    with serving(tmp_path) as port:
        for episode in (2, 3):
            with (path / "metrics.csv").open("a") as file:
                file.write(f"0,{episode},0,5,0,0,0,0,0,0,0,0\n")
            assert "2 of 3 episodes" in ask(port)[1]


def test_the_server_is_for_this_machine_and_two_addresses_only(tmp_path):
    compiled(tmp_path / "run", {0: [1.0]})
    with serving(tmp_path) as port:
        for host in ("localhost", f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
            assert ask(port, host=host)[0] == 200
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example"):
            assert ask(port, host=host) == (403, "this page is for this machine only")
        for path in ("/x", "/../etc/passwd", "/version/", "/run/run.json"):
            assert ask(port, path)[0] == 404
        assert ask(port, method="POST")[0] == 501
        with pytest.raises(UserError, match=r"cannot serve at port .*; choose another --port"):
            serve.make_server(Report([tmp_path]), port)


def test_ctrl_c_ends_the_server_well(tmp_path, monkeypatch, capsys):
    def interrupt(self):
        raise KeyboardInterrupt

    compiled(tmp_path / "run", {0: [1.0]})
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupt)
    assert main([str(tmp_path), "--serve"]) == 0
    assert re.match(
        r"report: http://127\.0\.0\.1:\d+/ follows the files; Ctrl-C ends it\n", capsys.readouterr().out
    )
    with pytest.raises(UserError, match="no directory"):
        main([str(tmp_path / "missing"), "--serve"])


def test_a_name_that_is_no_text_is_shown_as_far_as_it_is(tmp_path):
    compiled(tmp_path / "runs" / os.fsdecode(b"odd-\xff"), {0: [1.0]})
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    assert "odd-?" in (tmp_path / "page.html").read_text()
