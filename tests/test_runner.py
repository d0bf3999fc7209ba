"""Sweeps: what is finished is kept, what was stopped goes on, and neither changes what comes out."""

import json
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootdqn.errors import UserError
from bootdqn.experiments.runner import Cost, Experiment, Trial, on_this_machine, read_results, run_sweep


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
        return [{"number": config.number, "square": config.number**2, "root": None}]

    fields = {
        "name": "squares",
        "summary": "",
        "sweep": lambda preset: [Trial(f"n{n}", Square(n)) for n in numbers],
        "run": run,
        "cost": lambda config: Cost(60.0 * config.number, 10**6),
        "plot": lambda rows, stem: "",
    }
    return Experiment(**fields)


def sweep(out, exp, **options):
    return run_sweep(exp, "smoke", out, command="test", **options)


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

    def interrupt(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)
            while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
                pass  # until the main thread has seen it

    assert not sweep(tmp_path / "out", experiment(before=interrupt))
    assert 0 < len(read_results(tmp_path / "out")) < 6
    assert not (tmp_path / "out" / "trials" / "n3.json").exists()
    assert sweep(tmp_path / "out", experiment())
    assert (tmp_path / "out" / "results.csv").read_bytes() == (tmp_path / "whole" / "results.csv").read_bytes()


def test_what_was_finished_before_an_error_is_kept(tmp_path):
    def fail(number):
        if number == 4:
            raise UserError("training diverged")

    with pytest.raises(UserError, match="training diverged"):
        sweep(tmp_path / "out", experiment(before=fail))
    names = {path.stem for path in (tmp_path / "out" / "trials").iterdir()}
    assert {"n0", "n1", "n2"} <= names
    assert "n4" not in names


def test_any_executor_gives_the_same_results(tmp_path):
    def last_first(run, trials, should_stop, report):
        for trial in reversed(trials):
            yield from on_this_machine(run, [trial], should_stop, report)

    sweep(tmp_path / "here", experiment())
    sweep(tmp_path / "there", experiment(), executor=last_first)
    assert (tmp_path / "here" / "results.csv").read_bytes() == (tmp_path / "there" / "results.csv").read_bytes()


def test_the_estimate_counts_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("bootdqn.experiments.runner.available_cores", lambda: 2)
    said = []
    exp = experiment(numbers=[1, 2, 3])
    sweep(tmp_path / "out", exp, show=said.append)
    assert said[-1] == "3 trials, 0 have their result; the rest takes at most about 3.0 min and 2 MB"
    (tmp_path / "out" / "trials" / "n2.json").unlink()
    sweep(tmp_path / "out", exp, show=said.append)
    assert said[-1] == "3 trials, 2 have their result; the rest takes at most about 1.0 min and 1 MB"
    sweep(tmp_path / "out", exp, show=said.append)
    assert said[-1] == "3 trials, 3 have their result"


def test_a_sweep_that_cannot_fit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bootdqn.experiments.runner.available_cores", lambda: 2)
    monkeypatch.setattr("bootdqn.experiments.runner.available_memory", lambda: 2 * 10**6)
    calls = []
    with pytest.raises(UserError, match=r"needs 0.0 GB and 0.0 GB of memory is free"):
        sweep(tmp_path / "out", experiment(before=calls.append))
    assert not calls


def damage(out: Path) -> None:
    (out / "trials" / "n1.json").write_text('{"config": ')


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
        (other_configuration, "n1.json was made with another configuration"),
        (other_experiment, "holds squares with preset paper, not squares with preset smoke"),
        (no_sweep, "holds results.csv, trials, and no sweep; choose another --out"),
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
