"""Carries out short trials in this process, which is faster than to start worker processes for them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from bootdqn.experiments.engine.experiment import Cost, Outcome, Work
from bootdqn.experiments.engine.scheduler import carry_out


class InProcessExecutor:
    """Runs one trial after the other in this process."""

    cores = 1

    def fit(self, costs: Sequence[Cost]) -> int:
        """Return 1, as trials never run side by side."""
        del costs
        return 1

    def execute(
        self, work: Work, should_stop: Callable[[], bool], report: Callable[[str, float], None]
    ) -> Generator[Outcome]:
        """Carry out the trials in their order, as `Executor` describes it."""
        for trial in work.trials:
            if should_stop():
                return
            report(trial.name, 0.0)
            outcome = carry_out(
                work.run,
                trial,
                work.out,
                should_stop=should_stop,
                report=lambda share, name=trial.name: report(name, share),
            )
            if not outcome.is_cut:
                yield outcome
