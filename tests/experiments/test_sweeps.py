"""Sweeps in many processes: whatever dies or fails, nothing is lost or doubled, and the bits are the same."""

import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootdqn.cli.main import main
from bootdqn.core.config import AgentConfig
from bootdqn.errors import UserError
from bootdqn.experiments.engine.cost import estimate_cost
from bootdqn.experiments.engine.experiment import Cost, Outcome, Trial
from bootdqn.experiments.engine.grid import grid_experiment, make_grid
from bootdqn.experiments.engine.in_process import InProcessExecutor
from bootdqn.experiments.engine.local import LocalExecutor
from bootdqn.experiments.engine.ray import Needs, RayExecutor
from bootdqn.experiments.engine.resumable_runs import command_of
from bootdqn.experiments.engine.runner import read_results, run_sweep
from bootdqn.experiments.engine.scheduler import Alive, Lost, Ready, carry_out, schedule
from bootdqn.experiments.registry import EXPERIMENTS
from bootdqn.loops.host import HostLoop
from bootdqn.loops.seeds import SeedLoop
from bootdqn.loops.workers import forking_for_a_moment
from bootdqn.runs.directory import lock_directory, locked_directory, wait_for_lock
from helpers import children, until
from trials import Deed, deeds

TINY = ["steps=1500", "checkpoint_every_steps=300", "evaluate_every_steps=0", "learning_start_steps=50"]
TINY += ["hidden=8", "trunk_hidden=8", "num_heads=3"]
CARTPOLE = ["CartPole-v1", "--agents", "boot", *(word for setting in TINY for word in ("--set", setting))]
LONG = make_grid(["CartPole-v1"], ["boot"], [0], TINY)
"""A trial long enough that something can happen to it."""
DEEP = make_grid(["chain:4"], ["boot"], [0], ["episodes=10", "num_heads=2", "hidden=8"])
SHORT = make_grid(["chain:4"], ["psrl", "q-learning"], range(11), ["episodes=10"])
ALL = [*LONG, *DEEP, *SHORT]


def run(out, exp, executor=None):
    about, trials = {"experiment": exp.name}, exp.sweep("smoke")
    return run_sweep(exp, trials, out, about=about, command="", executor=executor or LocalExecutor())


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def has_open(parent: int, file: Path) -> bool:
    """Whether one of the processes that a process has started has opened a file."""
    links = [link for pid in children(parent) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return any(link.readlink() == file for link in links)


def has_checkpoint(path: Path) -> bool:
    """Whether a run has one that is not of its very start."""
    return any(int(manifest.stem) > 0 for manifest in path.glob("checkpoints/*.json"))


def result_files(run: Path) -> dict[str, bytes]:
    """What a run left, but for checkpoints, which depend on where it was stopped, and times."""
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "finished"
    times = ("started", "finished", "resumed", "seconds", "checkpoint_seconds")
    timeless = {key: value for key, value in record.items() if key not in times}
    paths = [path.relative_to(run) for path in run.rglob("*") if path.is_file() and path.name != "run.json"]
    found = {str(path): (run / path).read_bytes() for path in paths if path.parts[0] != "checkpoints"}
    return found | {"run.json": json.dumps(timeless).encode()}


def assert_same_bits(mine: Path, theirs: Path, trials: Sequence[Trial]) -> None:
    """All that trials left is the same in the directories of two sweeps, and `mine` holds no others."""
    names = [trial.name for trial in trials]
    assert sorted(names) == sorted(path.name for path in (mine / "runs").iterdir())
    for name in names:
        ours, reference = (result_files(out / "runs" / name) for out in (mine, theirs))
        assert {"config.json", "metrics.csv", "learning_curve.png"} <= ours.keys() == reference.keys()
        assert [file for file in ours if ours[file] != reference[file]] == [], name
        records = [json.loads((out / "trials" / f"{name}.json").read_text()) for out in (mine, theirs)]
        assert records[0]["rows"] == records[1]["rows"]
    assert [row["trial"] for row in read_results(mine)] == names


# What is to be done.


def test_where_no_agent_is_named_every_environment_has_its_default():
    trials = make_grid(["chain:4", "CartPole-v1"], None, [0], ["learning_rate=0.01"])
    assert [trial.name for trial in trials] == ["chain4-boot-seed0", "CartPole-v1-boot-prior-seed0"]


def test_a_grid_has_every_combination_seeds_last():
    settings = ["num_heads=2,3", "hidden=8x4", "episodes=7", "mask=poisson"]
    trials = make_grid(["chain:4", "deep_sea:5"], ["boot", "dqn"], range(1, 3), settings)
    assert len(trials) == len({trial.name for trial in trials}) == 2 * 2 * 2 * 2
    assert [trial.name for trial in trials[:3]] == [
        "chain4-boot-num_heads=2-seed1",
        "chain4-boot-num_heads=2-seed2",
        "chain4-boot-num_heads=3-seed1",
    ]
    config = trials[3].config
    assert config.loop == "compiled"
    assert (config.seed, config.num_seeds, config.episodes) == (2, 1, 7)
    assert (config.deep.num_heads, config.deep.hidden, config.deep.mask) == (3, (8, 4), "poisson")
    (trial,) = make_grid(["CartPole-v1"], ["boot"], [0], ["steps=70", "double_q=false", "trunk_hidden=none"])
    assert trial.config.loop == "host"
    assert (trial.config.steps, trial.config.agent.double_q, trial.config.agent.trunk_hidden) == (70, False, ())
    row = grid_experiment([trial], ["steps=70", "trunk_hidden=none"]).describe(trial.config)
    assert row == {"env": "CartPole-v1", "agent": "boot", "steps": "70", "trunk_hidden": "none", "seed": 0}


@pytest.mark.parametrize("env", ["chain:4,scrambled", "CartPole-v1", "atari:breakout"])
def test_a_run_says_which_command_makes_it_again(env):
    settings = ["hidden=8x4", "trunk_hidden=none", "double_q=false", "learning_rate=1e-05", "mask=poisson"]
    (trial,) = make_grid([env], ["boot+"], [3], settings)
    words = shlex.split(command_of(trial.config))
    assert words[:7] == ["bootdqn", "sweep", env, "--agents", "boot+", "--seed", "3"]
    assert set(words[7::2]) == {"--set"}
    assert make_grid([env], ["boot+"], [3], words[8::2])[0].config == trial.config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["chain:4", "--set", "nmu_heads=3"],
            "unknown field of boot on chain:4 'nmu_heads'; did you mean num_heads?",
        ),
        (["chain:4", "--set", "seed=3"], "unknown field of boot on chain:4 'seed'"),
        (["chain:4", "--set", "num_heads"], "--set needs a field and its values, as in num_heads=5,10"),
        (["chain:4", "--set", "num_heads=two"], "num_heads must be a whole number, got 'two'"),
        (["chain:4", "--set", "hidden=8xx"], "hidden must be numbers, as in 64x64, got '8xx'"),
        (["chain:4", "--set", "double_q=yes"], "double_q must be true or false, got 'yes'"),
        (["chain:4", "--set", "num_heads=1", "--set", "num_heads=2"], "--set num_heads is given twice"),
        (["chain:4", "--set", "num_heads=0"], "heads must be 1 to 2**20, got 0"),
        (["chain:4", "chain:4"], "two trials are called chain4-boot-seed0"),
        (["chain:4", "--agents"], "name an agent"),
        (["chain:4", "--set", f"learning_rate=0.{'0' * 180}1,0.1"], "at most 180 characters"),
        (["chain:4", "--agents", "bot"], "unknown agent 'bot'; did you mean boot?"),
        (["chian:4"], "unknown environment 'chian'; did you mean chain?"),
        (["chain:4", "--seeds", "0"], "seeds must be at least 1"),
        (["chain:4", "--address", "auto"], "--address belongs to --executor ray"),
        (["--status", "nowhere"], "nowhere holds no status.json"),
        ([], "name an environment"),
    ],
)
def test_mistakes_are_said_before_anything_starts(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# What it will cost.


def cost_of(env: str, *settings: str, agent: str = "boot") -> Cost:
    (trial,) = make_grid([env], [agent], [0], settings)
    return estimate_cost(trial.config)


def test_costs_are_estimated_without_running_anything(monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("an estimate must not run anything")

    monkeypatch.setattr(SeedLoop, "compile", forbidden)
    monkeypatch.setattr(SeedLoop, "chunks", forbidden)
    monkeypatch.setattr(HostLoop, "begin", forbidden)
    monkeypatch.setattr("bootdqn.envs.atari.AtariEnvs.__init__", forbidden)
    for experiment in EXPERIMENTS.values():
        costs = [experiment.cost(trial.config) for trial in experiment.sweep("quick")[:2]]
        assert all(0 < cost.least_seconds <= cost.core_seconds and cost.bytes > 0 for cost in costs)


def test_costs_grow_with_the_work():
    short, long = (cost_of("chain:50", f"episodes={number}") for number in (1000, 3000))
    per_step = (long.core_seconds - short.core_seconds) / (2000 * 58)
    assert 0.34e-3 < per_step < 0.68e-3  # bench chain measured 0.17 ms on two cores
    assert cost_of("chain:50", "episodes=3000", "num_heads=40").core_seconds > 3 * long.core_seconds
    table = cost_of("chain:900,features=one_hot", "hidden=none")
    assert table.core_seconds > cost_of("chain:900,features=one_hot", "hidden=none", "num_heads=1").core_seconds
    assert cost_of("chain:50", agent="psrl").bytes < short.bytes
    assert cost_of("CartPole-v1", "steps=4000").least_seconds == 10


def test_costs_on_atari_are_those_of_the_benchmark():
    days = cost_of("atari:breakout").least_seconds / 86400
    assert 8 < days < 12  # 10.1 days of training at 57 steps/s, and evaluations
    ten, one = (cost_of("atari:breakout", "steps=1000", f"num_heads={k}") for k in (10, 1))
    # Parameters, targets and two moments in single precision.
    assert ten.device_bytes == pytest.approx(2 * 16 * (77_984 + 10 * (3137 * 512 + 513 * 18)), rel=1e-3)
    assert one.bytes < ten.bytes
    assert one.least_seconds < ten.least_seconds
    without = cost_of("atari:breakout", "steps=1000", "evaluate_every_steps=0")
    assert without.least_seconds <= ten.least_seconds
    assert "with 10 heads about 57 ms per update and 61 steps/s on 2 cores, so 0.00 days for 1,000" in ten.note


# Who does what.


class Scripted:
    """Workers that do what a script says: for every trial, how its workers end, one after the other."""

    def __init__(self, **script: list[Outcome | Lost]):
        self.script = script
        self.pending: list[tuple[int, Any]] = []
        self.log: list[str] = []
        self.workers = 0

    def start(self):
        born = self.script.get("born", [Ready()])
        self.pending.append((self.workers, born.pop(0) if len(born) > 1 else born[0]))
        self.workers += 1

    def give(self, worker, trial):
        self.log.append(f"{trial.name} to {worker}")
        self.pending += [(worker, Alive(0.5)), (worker, self.script[trial.name].pop(0))]

    def events(self, timeout):
        now, self.pending = self.pending, []
        yield from now

    def stop(self):
        self.log.append("stop")

    def dismiss(self, worker):
        self.log.append(f"dismiss {worker}")

    def close(self):
        self.log.append("close")


def outcomes(workers, names="ab", num_workers=1, should_stop=lambda: False):
    trials = [Trial(name, None) for name in names]
    found = schedule(workers, trials, num_workers, should_stop, lambda name, share: None)
    return {outcome.trial: outcome.rows or outcome.error for outcome in found}


def test_a_trial_of_a_worker_that_died_goes_to_another():
    workers = Scripted(a=[Lost("gone"), Outcome("a", [{"x": 1}])], b=[Outcome("b", [{"x": 2}])])
    assert outcomes(workers) == {"a": [{"x": 1}], "b": [{"x": 2}]}
    assert workers.log == ["a to 0", "a to 1", "b to 1", "dismiss 1", "close"]


def test_what_kills_three_workers_has_failed():
    workers = Scripted(a=[Lost("first"), Lost("second"), Lost("third")], b=[Outcome("b", [{"x": 2}])])
    assert outcomes(workers) == {"a": "3 workers died of it: third", "b": [{"x": 2}]}


def test_workers_that_cannot_start_end_the_sweep():
    workers = Scripted(born=[Lost("no module named bootdqn")])
    with pytest.raises(UserError, match="workers die before they are ready: no module named bootdqn"):
        outcomes(workers)
    assert workers.log == ["close"]


def test_told_to_stop_nothing_new_begins():
    told = iter([False])
    workers = Scripted(a=[Outcome("a", None)], b=[Outcome("b", [{"x": 2}])])
    assert outcomes(workers, should_stop=lambda: next(told, True)) == {}
    assert workers.log == ["a to 0", "stop", "dismiss 0", "close"]


def test_a_trial_that_stops_unasked_has_failed(tmp_path):
    def end_of_trial(stop: bool) -> Outcome:
        trial = Trial("a", None)
        return carry_out(
            lambda config, context: None, trial, tmp_path, should_stop=lambda: stop, report=lambda share: None
        )

    assert end_of_trial(False)[:3] == ("a", None, "it stopped without being told to")
    assert end_of_trial(True)[:3] == ("a", None, "")


def test_as_many_workers_as_cores_and_memory_allow(monkeypatch):
    monkeypatch.setattr("bootdqn.experiments.engine.local.available_cores", lambda: 4)
    costs = [Cost(1.0, 1.0, gigabytes * 10**9) for gigabytes in (1, 2, 3, 4, 5)]
    for free, number in ((100, 4), (16.1, 4), (14, 3), (11, 2), (5.6, 1)):
        monkeypatch.setattr("bootdqn.experiments.engine.local.available_memory", lambda free=free: int(free * 1e9))
        assert LocalExecutor().fit(costs) == number
    assert LocalExecutor().fit(costs[:2]) == 2
    monkeypatch.setattr("bootdqn.experiments.engine.local.available_memory", lambda: 5 * 10**9)
    with pytest.raises(UserError, match=r"a trial needs 5.0 GB, its process 0.5 GB, and 5.0 GB of memory is free"):
        LocalExecutor().fit(costs)


def test_what_ray_is_told_a_trial_needs():
    costs = [Cost(1.0, 1.0, 10**9), Cost(1.0, 1.0, 8 * 10**9, device_bytes=3 * 10**9)]
    on_cpu = Needs.of(costs, 0)
    assert on_cpu == Needs(8_500_000_000, 0.0)
    assert on_cpu.environment["NPROC"] == "1"
    assert on_cpu.fit({"CPU": 4.0, "memory": 20e9}) == 2
    assert on_cpu.fit({"CPU": 1.0, "memory": 20e9}) == 1
    on_gpu = Needs.of(costs, 16 * 10**9)  # 3.8 GB each
    assert on_gpu == Needs(8_500_000_000, 0.25)
    assert on_gpu.environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.225"
    assert on_gpu.environment["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert on_gpu.fit({"CPU": 64.0, "memory": 500e9, "GPU": 2.0}) == 8
    assert on_gpu.fit({"CPU": 64.0, "memory": 500e9}) == 0
    with pytest.raises(UserError, match=r"needs 3.8 GB of a GPU that has 2.0 GB"):
        Needs.of(costs, 2 * 10**9)


def test_a_lock_is_waited_for_and_never_shared(tmp_path):
    first = lock_directory(tmp_path)
    with pytest.raises(UserError, match="still going on, in another process"):
        wait_for_lock(tmp_path, lambda: False, seconds=0.3)
    wait_for_lock(tmp_path, lambda: True, seconds=60)
    threading.Timer(0.3, first.close).start()
    wait_for_lock(tmp_path, lambda: False, seconds=60)
    with locked_directory(tmp_path, "sweep"), pytest.raises(UserError, match=r"the sweep in .* is still going on"):
        lock_directory(tmp_path, "sweep")
    assert not list(tmp_path.iterdir())


# In this process.


@pytest.mark.integration
def test_the_bits_are_the_same_in_this_process(undisturbed, tmp_path):
    trials = [*DEEP, *SHORT[:3]]
    assert run(tmp_path / "out", grid_experiment(trials, []), InProcessExecutor()).complete
    assert_same_bits(tmp_path / "out", undisturbed, trials)


def test_smoke_presets_start_no_processes_unless_told_to(tmp_path, monkeypatch):
    def forbidden(*_):
        raise AssertionError("no worker processes")

    monkeypatch.setattr(LocalExecutor, "execute", forbidden)
    arguments = ["reproduce", "planning-trees", "--preset"]
    assert main([*arguments, "smoke", "--out", str(tmp_path / "smoke")]) == 0
    assert main([*arguments, "quick", "--executor", "in-process", "--out", str(tmp_path / "quick")]) == 0
    for words in (["smoke", "--executor", "local"], ["quick"]):
        with pytest.raises(AssertionError, match="no worker processes"):
            main([*arguments, *words, "--out", str(tmp_path / "-".join(words))])


# On this machine.


@pytest.mark.integration
def test_what_fails_or_dies_costs_no_other_its_result(tmp_path, capsys):
    trials = [Deed("die"), Deed("fail"), Deed("crash"), Deed("die once", 3), Deed("square", 4), Deed("square", 5)]
    end = run(tmp_path / "out", deeds(*trials))
    assert end.failed == {
        "t0": "3 workers died of it: it was ended by SIGKILL, as when memory runs out",
        "t1": "cannot do that",
        "t2": "ZeroDivisionError: oh",
    }
    rows = read_results(tmp_path / "out")
    assert [(row["trial"], row["square"]) for row in rows] == [("t3", "9"), ("t4", "16"), ("t5", "25")]
    assert {row["environment"] for row in rows} == {"1,1,1,1,false,1"}
    attempts = [len((tmp_path / "out" / f"t{i}.attempts").read_text().splitlines()) for i in range(6)]
    assert attempts == [3, 1, 1, 2, 1, 1]
    assert "3 failed" in capsys.readouterr().err
    assert not multiprocessing.active_children()
    assert "NPROC" not in os.environ
    assert main(["sweep", "--status", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "cannot do that" in shown
    assert "the sweep has ended" in shown


@pytest.mark.integration
def test_cores_that_would_idle_are_for_seeds_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr("bootdqn.experiments.engine.local.available_cores", lambda: 5)
    exp = replace(deeds(Deed()), cost=lambda config: Cost(1.0, 1.0, 10**6, threads=3))
    assert run(tmp_path / "out", exp).complete
    assert read_results(tmp_path / "out")[0]["environment"] == "3,1,1,1,false,1"


@pytest.mark.integration
def test_a_sweep_takes_no_results_from_another(tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--set", "episodes=1", "--set", "hidden=4", "--set", "num_heads=1", "--out", str(out)]
    assert main(["sweep", "chain:5", *options]) == 0
    before = (out / "results.csv").read_bytes()
    assert main(["sweep", "chain:6", *options]) == 2
    assert "holds results of another sweep, such as chain5-boot-seed0, which" in capsys.readouterr().err
    assert (out / "results.csv").read_bytes() == before
    assert main(["sweep", "chain:5", *options, "--seeds", "2"]) == 0  # more of the same
    assert len(read_results(out)) == 2


@pytest.mark.integration
def test_workers_keep_large_blocks(tmp_path):
    assert run(tmp_path / "out", deeds(Deed("allocate"))).complete
    assert int(read_results(tmp_path / "out")[0]["pages"]) < 1000  # else tens of thousands


@pytest.mark.integration
def test_a_sweep_shows_how_far_it_is_and_keeps_others_off(tmp_path, capsys):
    out, seen = tmp_path / "out", []

    def look():
        status = out / "status.json"
        until(lambda: status.exists() and 0.5 in json.loads(status.read_text())["running"].values())
        main(["sweep", "--status", str(out)])
        seen.append(capsys.readouterr().out)
        seen.append(main(["sweep", "chain:4", "--out", str(out)]))
        seen.append(capsys.readouterr().err)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=look)
    thread.start()
    end = run(out, replace(deeds(Deed("wait"), Deed("wait")), name="sweep"))
    thread.join()
    assert not end.complete
    assert not end.failed
    assert "t0" in seen[0]
    assert "50%" in seen[0]
    assert seen[1] == 2
    assert f"the sweep in {out} is still going on, in another process" in seen[2]
    assert main(["sweep", "--status", str(out)]) == 0
    assert "the sweep was stopped" in capsys.readouterr().out


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A sweep of 24 trials in processes of this machine, which nothing happens to."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert run(out, grid_experiment(ALL, [])).complete
    return out


@pytest.mark.integration
def test_a_run_goes_on_after_its_worker_was_killed(undisturbed, tmp_path):
    out = tmp_path / "out"

    def kill():
        until(lambda: has_checkpoint(out / "runs" / "CartPole-v1-boot-seed0"))
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid or 0, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    assert main(["sweep", *CARTPOLE, "--out", str(out)]) == 0
    thread.join()
    assert_same_bits(out, undisturbed, LONG)
    assert main(["sweep", *CARTPOLE, "--out", str(out)]) == 0  # there is nothing left to do
    record = json.loads((out / "runs" / "CartPole-v1-boot-seed0" / "run.json").read_text())
    assert len(record["resumed"]) == 1


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_goes_on_after_its_driver_was_killed_or_stopped(undisturbed, tmp_path, number):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bootdqn", "sweep", *CARTPOLE, "--out", str(out)]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    until(lambda: has_checkpoint(out / "runs" / "CartPole-v1-boot-seed0"))
    workers = children(driver.pid)
    assert workers
    if number == signal.SIGINT:
        os.killpg(driver.pid, number)  # as a terminal does
    else:
        driver.send_signal(number)
    said = driver.communicate()[0].decode()
    assert "Traceback" not in said
    if number == signal.SIGINT:
        assert driver.returncode == 130
        assert "repeat the command to resume" in said
    until(lambda: not any(map(lives, workers)), 20)
    assert main(["sweep", *CARTPOLE, "--out", str(out)]) == 0
    assert_same_bits(out, undisturbed, LONG)


@pytest.mark.integration
def test_a_run_that_diverges_is_in_the_table_of_what_failed(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["sweep", "chain:4", "--set", "episodes=40", "--set", "num_heads=2", "--set", "hidden=8"]
    assert main([*arguments, "--set", "learning_rate=0.001,1e30", "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "training diverged" in said
    assert "details are in" in said
    (row,) = read_results(out)
    assert row["learning_rate"] == "0.001"
    failed = "chain4-boot-learning_rate=1e30-seed0"
    assert "training diverged" in json.loads((out / "failed" / f"{failed}.json").read_text())["error"]
    assert json.loads((out / "runs" / failed / "run.json").read_text())["status"] == "failed"


# On Ray.


@pytest.mark.filterwarnings("ignore")
def test_24_trials_have_the_same_bits_on_ray(cluster, undisturbed, tmp_path):
    assert len(ALL) == 24
    with RayExecutor(cluster.address) as executor:
        assert executor.cores == 2
        assert run(tmp_path / "out", grid_experiment(ALL, []), executor).complete
    assert_same_bits(tmp_path / "out", undisturbed, ALL)
    assert (tmp_path / "out" / "results.csv").read_bytes() == (undisturbed / "results.csv").read_bytes()
    files = result_files(tmp_path / "out" / "runs" / DEEP[0].name)
    assert {"exploration.csv", "exploration.png", "heads.json", "models/seed0.safetensors"} <= files.keys()


@pytest.mark.filterwarnings("ignore")
def test_workers_on_ray_keep_large_blocks(cluster, tmp_path):
    with RayExecutor(cluster.address) as executor:
        assert run(tmp_path / "out", deeds(Deed("allocate")), executor).complete
    assert int(read_results(tmp_path / "out")[0]["pages"]) < 1000


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_loses_a_node_ends_with_the_bits_of_one_machine(cluster, undisturbed, tmp_path):
    out, trials = tmp_path / "out", [*LONG, *SHORT[-7:]]
    path = out / "runs" / LONG[0].name

    def kill():
        until(lambda: has_checkpoint(path))
        (node,) = [node for node in cluster.worker_nodes if has_open(raylet(node), path / "metrics.csv")]
        cluster.remove_node(node, allow_graceful=False)

    def raylet(node):
        return node.all_processes["raylet"][0].process.pid

    thread = threading.Thread(target=kill)
    thread.start()
    with RayExecutor(cluster.address) as executor:
        assert run(out, grid_experiment(trials, []), executor).complete
    thread.join()
    with forking_for_a_moment():
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    assert_same_bits(out, undisturbed, trials)
    records = [json.loads((out / "runs" / trial.name / "run.json").read_text()) for trial in trials]
    assert sum(len(record.get("resumed", [])) for record in records) == 1


@pytest.mark.filterwarnings("ignore")
def test_the_command_line_joins_a_cluster(cluster, tmp_path, capsys):
    out = tmp_path / "out"
    with RayExecutor(cluster.address) as executor:
        end = run(out, deeds(Deed("die once", 2), Deed("fail"), Deed("square", 3)), executor)
        assert end.failed == {"t1": "cannot do that"}
        assert [row["square"] for row in read_results(out)] == ["4", "9"]
        assert {row["environment"] for row in read_results(out)} == {"1,1,1,1,false,1"}
        huge = [Cost(1.0, 1.0, 10**15)]
        with pytest.raises(
            UserError, match=r"no node of the Ray cluster has room for a trial: a core, 1000000.5 GB"
        ):
            executor.fit(huge)
    on_gpus = RayExecutor(cluster.address, gpu_bytes=4 * 10**9)
    with on_gpus, pytest.raises(UserError, match=r"no node .* 0.5 of a GPU"):
        on_gpus.fit([Cost(1.0, 1.0, 10**9)])
    arguments = ["--executor", "ray", "--address", cluster.address, "--out", str(tmp_path / "cli")]
    assert main(["reproduce", "planning-trees", "--preset", "smoke", *arguments]) == 0
    assert main(["reproduce", "planning-trees", "--preset", "smoke", "--out", str(tmp_path / "local")]) == 0
    assert (tmp_path / "cli" / "results.csv").read_bytes() == (tmp_path / "local" / "results.csv").read_bytes()


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_the_benchmark_shows_both_executors(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr("bootdqn.bench.sweep.CHAIN_CONFIG", AgentConfig(num_heads=1, hidden=(8,)))
    monkeypatch.setattr("bootdqn.bench.sweep.TRIAL_SECONDS", 0.5)
    monkeypatch.setattr("bootdqn.bench.sweep.TRIALS_PER_CORE", 2)
    assert main(["bench", "sweep", "--json", str(tmp_path / "sweep.json")]) == 0
    found = json.loads((tmp_path / "sweep.json").read_text())["executors"]
    assert list(found) == ["local", "ray"]
    for row in found.values():
        assert row["before_first_trial"] > 0
        assert row["overhead"] == row["between_trials"] / 0.5
    assert f"{found['ray']['overhead']:.2%}" in capsys.readouterr().out


def test_no_cluster_and_no_ray_are_said(monkeypatch, capsys):
    assert main(["sweep", "chain:4", "--executor", "ray", "--address", "127.0.0.1:1"]) == 2
    assert (
        "cannot join a Ray cluster at 127.0.0.1:1 ([Errno 111] Connection refused); start one"
        in capsys.readouterr().err
    )

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("bootdqn.loops.workers.importlib.import_module", missing)
    assert main(["sweep", "chain:4", "--executor", "ray"]) == 2
    assert "pip install 'bootdqn[ray]'" in capsys.readouterr().err
