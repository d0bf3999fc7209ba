"""Sweeps: what is finished is kept, what was stopped goes on, and neither changes what comes out."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bootdqn.errors import UserError
from bootdqn.experiments.engine.experiment import Cost, Experiment, Trial
from bootdqn.experiments.engine.in_process import InProcessExecutor
from bootdqn.experiments.engine.runner import (
    SweepEnd,
    find_results,
    is_same,
    read_results,
    run_sweep,
)

ABOUT = {"experiment": "squares", "preset": "smoke"}


@dataclass(frozen=True)
class Square:
    """What a trial of these tests computes."""

    number: int
    options: tuple[int, ...] = (1, 2)


def experiment(numbers: Iterable[int] = range(6), before: Callable[[int], object] = lambda number: None):
    """Squares numbers, calling `before` first."""

    def run(config, context):
        before(config.number)
        context.report(0.5)
        if context.should_stop():
            return None
        return [{"square": config.number**2, "root": None}]

    fields = {
        "name": "squares",
        "summary": "",
        "sweep": lambda preset: [Trial(f"n{n}", Square(n)) for n in numbers],
        "run": run,
        "describe": lambda config: {"number": config.number},
        "cost": lambda config: Cost(60.0 * config.number, 50.0 * config.number, 10**9),
        "plot": lambda rows, stem: "",
    }
    return Experiment(**fields)


class WithTwoCores(InProcessExecutor):
    """Announces what two workers would need; executors that have some are in test_sweeps.py."""

    cores = 2

    def fit(self, costs):
        return min(self.cores, len(costs))


def sweep_to_its_end(out, exp, **options) -> SweepEnd:
    options = {"about": ABOUT, "command": "test", "executor": InProcessExecutor(), **options}
    return run_sweep(exp, exp.sweep("smoke"), out, **options)


def sweep(out, exp, **options) -> bool:
    return sweep_to_its_end(out, exp, **options).complete


def test_results_are_in_the_order_of_the_sweep(tmp_path):
    assert sweep(tmp_path / "out", experiment(numbers=[3, 1, 2]))
    assert read_results(tmp_path / "out") == [
        {"trial": f"n{n}", "number": str(n), "square": str(n * n), "root": ""} for n in (3, 1, 2)
    ]
    record = json.loads((tmp_path / "out" / "trials" / "n3.json").read_text())
    assert record["config"] == {"number": 3, "options": [1, 2]}
    assert {"seconds", "git_revision", "versions"} < record.keys()
    about = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert (about["experiment"], about["preset"], about["command"]) == ("squares", "smoke", "test")


def test_finished_trials_are_skipped(tmp_path):
    calls = []
    exp = experiment(before=calls.append)
    sweep(tmp_path / "out", exp)
    (tmp_path / "out" / "trials" / "n4.json").unlink()
    assert sweep(tmp_path / "out", exp)
    assert sorted(calls) == [0, 1, 2, 3, 4, 4, 5]


def test_an_interrupted_sweep_goes_on_to_the_same_results(tmp_path):
    sweep(tmp_path / "whole", experiment())
    usual = signal.getsignal(signal.SIGINT)

    def interrupt(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            while signal.getsignal(signal.SIGINT) is not usual:
                time.sleep(0.01)  # until the main thread has seen it

    assert not sweep(tmp_path / "out", experiment(before=interrupt))
    assert 0 < len(read_results(tmp_path / "out")) < 6
    assert not (tmp_path / "out" / "trials" / "n3.json").exists()
    assert sweep(tmp_path / "out", experiment())
    assert (tmp_path / "out" / "results.csv").read_bytes() == (tmp_path / "whole" / "results.csv").read_bytes()


def test_a_trial_that_fails_costs_no_other_its_result(tmp_path):
    def fail(number):
        if number == 0:
            raise UserError("training diverged")

    end = sweep_to_its_end(tmp_path / "out", experiment(before=fail))
    assert end == SweepEnd(complete=False, failed={"n0": "training diverged"})
    assert [row["trial"] for row in read_results(tmp_path / "out")] == ["n1", "n2", "n3", "n4", "n5"]
    record = json.loads((tmp_path / "out" / "failed" / "n0.json").read_text())
    assert (record["config"]["number"], record["error"]) == (0, "training diverged")
    assert "details" not in record
    # Mended, it is tried again, and the failure forgotten.
    assert sweep(tmp_path / "out", experiment())
    assert not list((tmp_path / "out" / "failed").iterdir())


def test_one_whose_cost_cannot_be_told_costs_no_other_its_result(tmp_path):
    def cost(config):
        if config.number == 1:
            raise UserError("no such environment")
        return Cost(1.0, 1.0, 1)

    end = sweep_to_its_end(tmp_path / "out", replace(experiment(numbers=[1, 2]), cost=cost))
    assert end.failed == {"n1": "no such environment"}
    assert [row["trial"] for row in read_results(tmp_path / "out")] == ["n2"]


def test_a_crash_is_recorded_with_where_it_was(tmp_path):
    def crash(number):
        if number == 4:
            raise ZeroDivisionError("by four")

    end = sweep_to_its_end(tmp_path / "out", experiment(before=crash))
    assert end.failed == {"n4": "ZeroDivisionError: by four"}
    assert len(read_results(tmp_path / "out")) == 5
    assert "in crash" in json.loads((tmp_path / "out" / "failed" / "n4.json").read_text())["details"]


def test_what_was_finished_before_the_sweep_broke_is_kept(tmp_path):
    class Breaks(InProcessExecutor):
        def execute(self, work, should_stop, report):
            yield from super().execute(work._replace(trials=work.trials[:3]), should_stop, report)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sweep(tmp_path / "out", experiment(), executor=Breaks())
    assert len(read_results(tmp_path / "out")) == 3
    assert sweep(tmp_path / "out", experiment())


def test_any_order_gives_the_same_results(tmp_path):
    class LastFirst(InProcessExecutor):
        def execute(self, work, should_stop, report):
            return super().execute(work._replace(trials=work.trials[::-1]), should_stop, report)

    sweep(tmp_path / "here", experiment())
    sweep(tmp_path / "there", experiment(), executor=LastFirst())
    assert (tmp_path / "here" / "results.csv").read_bytes() == (tmp_path / "there" / "results.csv").read_bytes()


def test_the_estimate_counts_what_is_missing(tmp_path):
    said = []
    exp = experiment(numbers=[1, 2, 3])
    options = {"show": said.append, "executor": WithTwoCores()}
    sweep(tmp_path / "out", exp, **options)
    rest = "the rest takes about 3.0 min at most, and 2,000 MB of memory"
    assert said[-1] == f"3 trials, 0 of them finished; {rest}"
    (tmp_path / "out" / "trials" / "n2.json").unlink()
    sweep(tmp_path / "out", exp, **options)
    # One trial is left, and it cannot use both cores to the full.
    rest = "the rest takes about 1.7 min at most, and 1,000 MB of memory"
    assert said[-1] == f"3 trials, 2 of them finished; {rest}"
    sweep(tmp_path / "out", exp, **options)
    assert said[-1] == "3 trials, 3 of them finished"


def test_the_estimate_of_long_ones_says_days_disk_and_what_it_rests_on(tmp_path):
    def cost(config):
        return Cost(1.0, 86400.0 * config.number, 10**6, 10**9, "so measured")

    said = []
    exp = replace(experiment(numbers=[1, 2]), cost=cost)
    sweep(tmp_path / "out", exp, show=said.append, executor=WithTwoCores())
    rest = "the rest takes about 2.0 days at most, and 2 MB of memory and 2.0 GB of disk"
    assert said == [f"2 trials, 0 of them finished; {rest}\nso measured"]


def test_what_another_sweep_left_is_not_run_again(tmp_path):
    ran = []
    found = {2: [{"square": 4, "root": None}]}
    exp = replace(
        experiment(numbers=[1, 2, 3], before=ran.append), find=lambda config, out: found.get(config.number)
    )
    said = []

    def find():
        return find_results(exp, exp.sweep("smoke"), tmp_path / "out", about=ABOUT, command="", show=said.append)

    assert not find()
    assert said == ["3 trials, 1 of them finished"]
    assert [row["trial"] for row in read_results(tmp_path / "out")] == ["n2"]
    assert sweep(tmp_path / "out", exp)
    assert sorted(ran) == [1, 3]
    assert [row["square"] for row in read_results(tmp_path / "out")] == ["1", "4", "9"]
    assert find()


def test_a_field_that_a_record_does_not_have_counts_as_its_default():
    assert is_same(Square(3), {"number": 3})
    assert is_same(Square(3), {"number": 3, "options": [1, 2]})
    assert not is_same(Square(3, (1,)), {"number": 3})
    assert not is_same(Square(3), {"number": 4})
    assert not is_same(Square(3), {"number": 3, "other": 1})
    assert not is_same(Square(3), {})


def damage(out: Path) -> None:
    (out / "trials" / "n1.json").write_text('{"config": ')


def no_rows(out: Path) -> None:
    path = out / "trials" / "n1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": [1]}))


def other_columns(out: Path) -> None:
    path = out / "trials" / "n1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": [{"cube": 1}]}))


def no_record(out: Path) -> None:
    (out / "sweep.json").write_text("[]")


def other_configuration(out: Path) -> None:
    path = out / "trials" / "n1.json"
    path.write_text(path.read_text().replace('"number": 1', '"number": 7'))


def other_experiment(out: Path) -> None:
    record = json.loads((out / "sweep.json").read_text())
    (out / "sweep.json").write_text(json.dumps(record | {"preset": "paper"}))


def no_sweep(out: Path) -> None:
    (out / "sweep.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damage, "n1.json is damaged; remove it to run that trial again"),
        (no_rows, "n1.json is damaged; remove it to run that trial again"),
        (other_columns, "n1 in .*trials has other columns than n0"),
        (no_record, "sweep.json cannot be read; choose another --out"),
        (other_configuration, "n1.json was made with another configuration"),
        (other_experiment, "holds squares with preset paper, not squares with preset smoke"),
        (no_sweep, r"is not empty \(it holds results.csv, status.json, trials\); choose another --out"),
    ],
)
def test_a_directory_that_does_not_fit_is_refused(tmp_path, spoil, message):
    out = tmp_path / "out"
    sweep(out, experiment())
    before = (out / "results.csv").read_bytes()
    spoil(out)
    calls = []
    with pytest.raises(UserError, match=message):
        sweep(out, experiment(before=calls.append))
    assert not calls
    assert (out / "results.csv").read_bytes() == before


def test_a_write_that_was_killed_is_no_obstacle(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".sweep.json.123").write_text("{")
    assert sweep(tmp_path / "out", experiment())


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(UserError, match="choose another --out"):
        sweep(tmp_path / "out", experiment())


def test_progress_goes_to_standard_error_as_plain_lines(tmp_path, capsys):
    sweep(tmp_path / "out", experiment(numbers=[1, 2]))
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].split() == ["squares", "100%", "2/2", "trials", "ETA", "0:00"]
    assert "\r" not in captured.err
    assert captured.out.startswith("2 trials")
