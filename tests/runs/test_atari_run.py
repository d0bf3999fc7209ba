"""Runs of Atari games that fail or are stopped."""

import dataclasses

import jax
import numpy as np
import pytest

from bootdqn.cli.main import main
from bootdqn.errors import UserError
from bootdqn.loops.host import HostLoop
from bootdqn.runs.config import default_config
from bootdqn.runs.run import Run
from small_runs import QUIET, TINY_PICTURES, resumed


def test_too_little_memory_is_said_before_it_is_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bootdqn.replay.host_memory.available_memory", lambda: 8 * 10**9)
    out = tmp_path / "run"
    # More than could be allocated, whatever the machine.
    assert main(["train", "atari:pong", "--replay-capacity", "2000000000", "--out", str(out)]) == 2
    assert "GB and 8.0 GB of memory is free" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.integration
def test_a_computation_that_fails_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    default = default_config("atari:pong", "boot")
    config = dataclasses.replace(
        default,
        agent=dataclasses.replace(default.agent, **TINY_PICTURES, learning_start_steps=12),
        steps=60,
        evaluate_every_steps=0,
        checkpoint_every_steps=20,
    )
    run = Run(config, out=tmp_path / "run", inputs=QUIET)
    assert isinstance(run.loop, HostLoop)
    update, calls = run.loop.learner._update, []

    def fails(*arguments):
        calls.append(None)
        if len(calls) == 7:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")
        return update(*arguments)

    monkeypatch.setattr(run.loop.learner, "_update", fails)
    with pytest.raises(
        UserError, match=r"stopped after \d+ steps: RESOURCE_EXHAUSTED: no memory; .*bootdqn resume"
    ):
        run.train()
    again = resumed(tmp_path / "run")
    assert again.loop.position == 20
    assert again.train()


@pytest.mark.integration
@pytest.mark.parametrize("options", [{}, {"priority_exponent": 0.6, "reward_noise": 0.1, "n_steps": 2}], ids=str)
def test_a_run_that_is_stopped_between_updates_goes_on_to_the_same_bits(tmp_path, options):
    default = default_config("atari:pong", "boot")
    config = dataclasses.replace(
        default,
        # Nothing random, and every update changes what is done.
        agent=dataclasses.replace(
            default.agent,
            **TINY_PICTURES,
            learning_start_steps=12,
            epsilon_start=0,
            epsilon_end=0,
            learning_rate=0.01,
            **options,
        ),
        steps=48,
        evaluate_every_steps=0,
        checkpoint_every_steps=30,
    )

    def params_of(out, stops):
        run = Run(config, out=out, inputs=QUIET)
        for stop in stops:
            assert not run.train(told_to_stop=lambda: run.loop.position >= stop)  # noqa: B023
            run = resumed(out)
        run.train()
        return run.loop.params()[0]

    undisturbed = params_of(tmp_path / "undisturbed", [])
    stopped = params_of(tmp_path / "stopped", [17, 22, 27, 34, 41])
    jax.tree.map(np.testing.assert_array_equal, stopped, undisturbed)
