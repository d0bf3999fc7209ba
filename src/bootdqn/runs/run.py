"""One run: an agent trained on an environment by some loop, evaluated, recorded, and resumed after a kill."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from bootdqn.envs.registry import env_spec, make_env
from bootdqn.errors import UserError, require
from bootdqn.loops.protocol import metrics_rows
from bootdqn.replay.host_memory import require_memory
from bootdqn.runs.checkpoint import Checkpoints
from bootdqn.runs.config import RunConfig, parse_config
from bootdqn.runs.directory import RunDirectory, read_json, require_unfinished, write_json
from bootdqn.runs.evaluations import EVALUATIONS
from bootdqn.runs.listeners import Listeners, with_tensorboard
from bootdqn.runs.parts import MAKERS, Inputs
from bootdqn.runs.progress import Progress, stop_on_signal
from bootdqn.runs.records import PER_SEED
from bootdqn.runs.seed_results import TrainResult

_STEPS_BETWEEN_UPDATES = 1000
"""Environment steps after which the progress is shown anew, though no episode has ended."""


class Run:
    """One training: from its beginning, or from where a run directory says that it stands."""

    def __init__(
        self,
        config: RunConfig,
        *,
        out: Path | None = None,
        command: str = "",
        inputs: Inputs | None = None,
        resume: bool = False,
    ):
        """Claim the run directory and allocate, or continue from its last good checkpoint.

        Args:
            config: what to do.
            out: the run directory; None to leave nothing on disk.
            command: the command that asked for the run, for the record.
            inputs: what no file holds.
            resume: continue with the run in `out`; see `resume_run`.
        """
        inputs = inputs or Inputs()
        if config.loop in PER_SEED:  # the same environment is recorded under one name
            config = replace(config, env=env_spec(make_env(str(config.env))))
        self.config = config
        self._parts = MAKERS[config.loop](config, inputs)
        self.loop = self._parts.loop
        self.evaluations = self._parts.evaluations
        self.directory: RunDirectory | None = None
        self._checkpoint_seconds = 0.0
        self._done_at = 0
        """The position up to which evaluations and checkpoints that were due have been done."""
        self._saved_at: int | None = None
        """The position of the last checkpoint."""
        require_memory(self.loop.memory_bytes(), self._parts.memory_advice)
        if resume:
            assert out is not None
            self._resume(out, inputs.show)
            return
        self.loop.begin()
        if out is not None:
            self._create(out, command)

    def _create(self, out: Path, command: str) -> None:
        tables = {"metrics.csv": self.loop.columns, **self.loop.tables}
        if self.evaluations is not None:
            tables["evaluations.csv"] = EVALUATIONS
        self.directory = RunDirectory.create(out, config=self.config.record(), command=command, tables=tables)
        self._checkpoints = Checkpoints(out)
        with self._failing():
            if self._parts.protocol is not None:
                write_json(out / "protocol.json", self._parts.protocol)
            self._save_checkpoint()

    def _resume(self, path: Path, show: Callable[[str], None]) -> None:
        if self._parts.protocol is not None:
            _require_same_protocol(self._parts.protocol, path / "protocol.json")
        self._checkpoints = Checkpoints(path)
        checkpoint = self._checkpoints.load(show)
        if checkpoint is None:
            raise UserError(f"{path} holds no checkpoint that is whole; start the run again")
        info = checkpoint.info
        require(
            info["env"] == self.config.env, f"{path} holds a checkpoint of {info['env']}, not of {self.config.env}"
        )
        self.directory = RunDirectory.reopen(path, info["ends"])
        with self._failing():
            for name in ("exploration.csv", "heads.json"):  # of when it was stopped
                (path / name).unlink(missing_ok=True)
            self.loop.restore(checkpoint)
            self._done_at, self._saved_at = info["done_at"], self.loop.position
            if self.evaluations is not None:
                self.evaluations.best = info["best"]

    @property
    def result(self) -> TrainResult:
        """The results per seed so far, of a run on an environment whose states are known."""
        if self._parts.result is None:
            raise UserError(f"a run on {self.config.env or 'this environment'} has one seed; see its models")
        return self._parts.result(None if self.directory is None else self.directory.path)

    @property
    def protocol(self) -> Mapping[str, Any] | None:
        """What decides what the scores of an Atari game mean; None elsewhere."""
        return self._parts.protocol

    def train(
        self,
        *,
        progress: bool = False,
        tensorboard: bool = False,
        on_episode: Callable[[Any], None] | None = None,
        on_evaluation: Callable[[Any], None] | None = None,
        told_to_stop: Callable[[], bool] = lambda: False,
        report: Callable[[float], None] = lambda share: None,
    ) -> bool:
        """Train to the end; returns whether it got there, and was not stopped by a signal.

        Args:
            progress: show a progress bar.
            tensorboard: also write event files into the run directory.
            on_episode: is given every `Episode` that ends.
            on_evaluation: is given the list of every `Evaluation`.
            told_to_stop: whether to stop, as a signal does.
            report: is told which share of the training is done.
        """
        start = time.perf_counter()
        listeners = Listeners(on_episode, on_evaluation, report)
        with ExitStack() as stack, self._failing():
            if self.evaluations is not None:
                stack.callback(self.evaluations.close)
            if tensorboard:
                path = None if self.directory is None else self.directory.path
                listeners = with_tensorboard(listeners, path, lambda: self.loop.position)
            total = self.config.episodes if self.loop.unit == "episodes" else self.config.steps
            title = f"{self.config.env or 'environment'} {self.config.agent_name}"
            bar = Progress(title, total=total, unit=self.loop.unit, done=self.loop.progress, visible=progress)
            with stop_on_signal() as signalled, bar:

                def should_stop() -> bool:
                    return signalled() or told_to_stop()

                self._do_what_is_due(listeners, should_stop)
                while self.loop.position < self.loop.end and not should_stop():
                    self._advance(bar, listeners, should_stop)
                    self._do_what_is_due(listeners, should_stop)
                complete = self._done_at >= self.loop.end
                self.loop.require_finite()
                if self.directory is not None and self._saved_at != self.loop.position:
                    self._save_checkpoint()
            if self.directory is not None:
                self._finish(complete, seconds=time.perf_counter() - start)
        return complete

    def _advance(self, bar: Progress, listeners: Listeners, should_stop: Callable[[], bool]) -> None:
        """Train until something is due, and record what ends on the way."""
        shown = self.loop.progress[1]
        for episodes in self.loop.advance(self._next_stop(), should_stop):
            if self.directory is not None:
                if episodes:
                    self.directory.append("metrics.csv", metrics_rows(self.loop.columns, episodes))
                for table, rows in self.loop.new_rows().items():
                    self.directory.append(table, rows)
            done, steps = self.loop.progress
            if episodes or steps // _STEPS_BETWEEN_UPDATES > shown // _STEPS_BETWEEN_UPDATES:
                shown = steps
                bar.update((done, steps), [episode.episode_return for episode in episodes])
                listeners.report(self.loop.position / self.loop.end)
            if listeners.on_episode is not None:
                for episode in episodes:
                    listeners.on_episode(episode)

    def _next_stop(self) -> int:
        """The next position at which an evaluation or a checkpoint is due."""
        stops = [(self.loop.position // every + 1) * every for every in self._intervals() if every]
        return min(self.loop.end, *stops)

    def _intervals(self) -> tuple[int, int]:
        return 0 if self.evaluations is None else self.evaluations.every, self.loop.checkpoint_every

    def _do_what_is_due(self, listeners: Listeners, should_stop: Callable[[], bool]) -> None:
        """Evaluate, begin new episodes and save a checkpoint, if that is due; told to stop, it stays due."""
        position, before = self.loop.position, self._done_at
        last = position >= self.loop.end
        evaluate_every, checkpoint_every = self._intervals()

        def is_due(every: int) -> bool:
            return position > before and bool(every) and (last or position // every > before // every)

        if is_due(evaluate_every) and self.evaluations is not None:
            self.loop.settle()  # as it may be told to stop within, and must then be whole
            found = self.evaluations.play(should_stop)
            if should_stop():
                return
            self.evaluations.take_in(found, self.directory)
            if listeners.on_evaluation is not None:
                listeners.on_evaluation(found)
        start = time.perf_counter()
        if is_due(checkpoint_every):
            self._done_at = position
            if not last:
                # Also where nothing is written: a run does not depend on whether it is recorded.
                self.loop.restart()
            if self.directory is not None:
                self._save_checkpoint()
        elif is_due(evaluate_every):
            self._done_at = position
        self._checkpoint_seconds += time.perf_counter() - start

    def _save_checkpoint(self) -> None:
        """Save all that is needed to continue from here with the same bits."""
        assert self.directory is not None
        self.loop.require_finite()
        snapshot = self.loop.snapshot()
        info = {
            "env": self.config.env,
            "done_at": self._done_at,
            "best": None if self.evaluations is None else self.evaluations.best,
            "ends": self.directory.ends(),
            **snapshot.info,
        }
        self._checkpoints.save(self.loop.position, info=info, arrays=snapshot.arrays, replays=snapshot.replays)
        self._saved_at = self.loop.position

    def _finish(self, complete: bool, *, seconds: float) -> None:
        """Write models and figures, and say how the run ended."""
        assert self.directory is not None
        self.directory.ends()  # figures are drawn from tables
        results = self._parts.conclude(self.directory.path)
        self.directory.finish(
            "finished" if complete else "interrupted",
            **results,
            seconds=round(seconds, 2),
            checkpoint_seconds=round(self._checkpoint_seconds, 2),
        )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Say in the run directory why a run did not get to its end; its last checkpoint stays as it is."""
        try:
            yield
        except BaseException as error:
            if self.directory is not None:
                self._fail(self.directory, error)
            raise

    def _fail(self, directory: RunDirectory, error: BaseException) -> None:
        path = directory.path
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        advice = f"{path} keeps its last good checkpoint, from which `bootdqn resume {path}` continues"
        try:
            directory.finish(status, error=str(error) or type(error).__name__)
        except OSError as second:
            free = shutil.disk_usage(path).free
            raise UserError(
                f"cannot write to {path}: {second.strerror} ({free / 1e6:.0f} MB free); {advice}"
            ) from None
        if isinstance(error, OSError | MemoryError | jax.errors.JaxRuntimeError):  # not of our making
            done, _ = self.loop.progress
            raise UserError(f"the run stopped after {done:.0f} {self.loop.unit}: {error}; {advice}") from None

    def close(self) -> None:
        """Release all environments and processes."""
        self.loop.close()
        if self.evaluations is not None:
            self.evaluations.close()


def resume_run(path: Path, inputs: Inputs | None = None) -> Run:
    """Continue with the run in a directory, from its last good checkpoint, to the bits that it would have had.

    Args:
        path: the run directory.
        inputs: what no file holds; the environment is needed where it has no name.
    """
    require_unfinished(path)
    config = parse_config(read_json(path / "config.json"), path / "config.json")
    return Run(config, out=path, inputs=inputs, resume=True)


def _require_same_protocol(card: Mapping[str, Any], path: Path) -> None:
    """Raise `UserError` if a game is not what it was when the run began."""
    begun = read_json(path)
    changed = [
        f"{name} was {begun.get(name)} and is {card.get(name)}"
        for name in {**card, **begun}
        if begun.get(name) != card.get(name)
    ]
    require(not changed, f"the run in {path.parent} began with another protocol: {'; '.join(changed)}")
