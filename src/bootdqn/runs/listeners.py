"""Who is told what happens in a run: functions of the caller, and TensorBoard."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bootdqn.errors import UserError
from bootdqn.loops.protocol import Episode
from bootdqn.loops.rollout import Evaluation, policy_name
from bootdqn.types import UpdateMetrics


class Listeners(NamedTuple):
    """Who is told what happens in a run."""

    on_episode: Callable[[Any], None] | None
    """Is given every `Episode` that ends."""
    on_evaluation: Callable[[Any], None] | None
    """Is given the list of every `Evaluation`."""
    report: Callable[[float], None]
    """Is told which share of the training is done."""


def with_tensorboard(listeners: Listeners, directory: Path | None, position: Callable[[], int]) -> Listeners:
    """Also write TensorBoard's files.

    Args:
        listeners: who else is told.
        directory: the run directory, which the files go into.
        position: how far the run is, for evaluations.
    """
    if directory is None:
        raise UserError("TensorBoard's files go into the run directory; give one with out=")
    try:
        module = importlib.import_module("tensorboardX")
    except ModuleNotFoundError:
        raise UserError("TensorBoard's files need tensorboardX: pip install 'bootdqn[tensorboard]'") from None
    writer = module.SummaryWriter(str(directory / "tensorboard"))

    def on_episode(episode: Episode) -> None:
        scalars = {
            "episode/return": episode.episode_return,
            "episode/length": episode.length,
            "episode/epsilon": episode.epsilon,
            **{f"learning/{name}": getattr(episode, name) for name in UpdateMetrics._fields},
        }
        for name, value in scalars.items():
            if value is not None:
                writer.add_scalar(name, value, episode.step)
        if listeners.on_episode is not None:
            listeners.on_episode(episode)

    def on_evaluation(found: list[Evaluation]) -> None:
        for evaluation in found:
            name = f"evaluation/{policy_name(evaluation.policy)}"
            writer.add_scalar(name, evaluation.returns.mean(), position())
        writer.add_scalar("evaluation/entropy", found[0].entropy, position())
        if listeners.on_evaluation is not None:
            listeners.on_evaluation(found)

    return Listeners(on_episode, on_evaluation, listeners.report)
