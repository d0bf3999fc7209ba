"""What is particular to every loop of a run: how it is made, evaluated and concluded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
from jax import Array

from bootdqn.envs.atari import is_atari, protocol_card, protocol_line
from bootdqn.envs.registry import make_env
from bootdqn.envs.vector import Envs, EnvSource, make_envs
from bootdqn.errors import UserError, require
from bootdqn.loops.cluster import ActorPool, ActorSpec, ClusterLoop
from bootdqn.loops.compiled import make_compiled_loop
from bootdqn.loops.host import HostLoop
from bootdqn.loops.protocol import Loop
from bootdqn.loops.tabular import make_tabular_loop
from bootdqn.runs.config import LoopName, RunConfig
from bootdqn.runs.evaluations import Evaluations
from bootdqn.runs.model_file import model_header, save_model
from bootdqn.runs.seed_results import (
    TrainResult,
    compiled_result,
    conclude_compiled,
    conclude_tabular,
    tabular_result,
)


class Inputs(NamedTuple):
    """What a run is made from beside its configuration, which no file holds."""

    source: EnvSource | None = None
    """The environment, where it is not just the one that the configuration names."""
    envs: Envs | None = None
    """Its slots, if they are already made."""
    trunk: Callable[[Array], Any] | None = None
    """As for `make_agent`."""
    address: str | None = None
    """Address of the Ray cluster where actors play, as for `join_cluster`."""
    show: Callable[[str], None] = print
    """Is told in a line what is about to be done."""


class Parts(NamedTuple):
    """What is particular to the loop of a run."""

    loop: Loop
    """What trains."""
    conclude: Callable[[Path], dict[str, Any]]
    """(run directory) -> writes models and figures there, and returns the results for `run.json`."""
    memory_advice: str
    """What to do where there is not enough memory."""
    result: Callable[[Path | None], TrainResult] | None = None
    """(run directory, if any) -> the results per seed; None where a run has one seed and counts steps."""
    evaluations: Evaluations | None = None
    """Plays now and then; None where evaluation is part of the compiled program."""
    protocol: Mapping[str, Any] | None = None
    """What decides what the scores of an Atari game mean; None elsewhere."""


def _make_compiled(config: RunConfig, inputs: Inputs) -> Parts:
    env = make_env(str(config.env))
    loop = make_compiled_loop(env, config.deep, seeds=config.seeds, episodes=config.episodes, trunk=inputs.trunk)
    return Parts(
        loop,
        conclude=partial(conclude_compiled, config, env, loop),
        result=partial(compiled_result, config, env, loop),
        memory_advice="use fewer --seeds or a smaller --replay-capacity",
    )


def _make_tabular(config: RunConfig, inputs: Inputs) -> Parts:
    require(inputs.trunk is None, f"{config.agent_name} has no network, and so no trunk")
    env = make_env(str(config.env))
    loop = make_tabular_loop(env, config.tabular, seeds=config.seeds, episodes=config.episodes)
    return Parts(
        loop,
        conclude=partial(conclude_tabular, config, env, loop),
        result=partial(tabular_result, config, env, loop),
        memory_advice="use fewer --seeds",
    )


def _make_host(config: RunConfig, inputs: Inputs) -> Parts:
    source = _source(config, inputs)
    loop = HostLoop(
        inputs.envs or make_envs(source, config.num_envs, config.vectorization),
        config.deep,
        seed=config.seed,
        steps=config.steps,
        checkpoint_every=config.checkpoint_every_steps,
        trunk=inputs.trunk,
    )
    return _with_slots(config, source, loop, inputs.show)


def _make_cluster(config: RunConfig, inputs: Inputs) -> Parts:
    source = _source(config, inputs)
    require(
        inputs.envs is None and not isinstance(source, gymnasium.Env),
        "actors make environments of their own; give a name, or a function that makes one",
    )
    spec = ActorSpec(source, config.num_envs, config.vectorization, config.deep, inputs.trunk, config.seed)
    loop = ClusterLoop(
        ActorPool(inputs.address, config.num_actors, spec),
        config.deep,
        steps=config.steps,
        checkpoint_every=config.checkpoint_every_steps,
        max_staleness=config.max_staleness_updates,
    )
    inputs.show(
        f"{config.num_actors} actors with {config.num_envs} environments each, in rounds of {loop.ticks} steps: "
        f"their parameters lack at most {config.max_staleness_updates} updates"
    )
    return _with_slots(config, source, loop, inputs.show)


def _source(config: RunConfig, inputs: Inputs) -> EnvSource:
    source = config.env if inputs.source is None else inputs.source
    if source is None:
        raise UserError(
            "the environment of this run has no name; give the environment, or a function that makes it"
        )
    return source


def _with_slots(
    config: RunConfig, source: EnvSource, loop: HostLoop | ClusterLoop, show: Callable[[str], None]
) -> Parts:
    """The parts of a run with slots, wherever they are played."""
    protocol = None
    if config.env is not None and is_atari(config.env):
        protocol = protocol_card(
            config.env, clip_rewards=config.deep.clip_rewards, evaluation_epsilon=config.evaluation_epsilon
        )
    needed, capacity = loop.memory_bytes(), loop.learner.capacity
    show(f"parameters, optimizer and a replay of {capacity:,} steps take {needed / 1e6:.1f} MB")
    envs = loop.envs
    observations = envs.observations
    about = model_header(
        config.record(), observations.layout, observations.encoding, envs.num_actions, envs.first_action
    )
    evaluations = Evaluations(config, source, loop.learner, about)

    def conclude(path: Path) -> dict[str, Any]:
        from bootdqn.plots.runs import save_run_curve
        from bootdqn.plots.style import AGENT_COLOURS
        from bootdqn.plots.xray import save_xray

        save_model(path / "models" / "last.safetensors", loop.learner.params, about)
        save_run_curve(
            path / "learning_curve",
            f"{config.agent_name} on {config.env}",
            metrics=path / "metrics.csv",
            evaluations=path / "evaluations.csv",
            colour=AGENT_COLOURS[config.agent_name],
            note="" if protocol is None else protocol_line(protocol),
        )
        save_xray(path)
        kernels = {} if loop.learner.agent.kernels is None else {"kernels": loop.learner.agent.kernels}
        return {"steps": loop.position, "best_return": evaluations.best, **kernels}

    return Parts(loop, conclude, "a smaller replay_capacity may do", evaluations=evaluations, protocol=protocol)


MAKERS: dict[LoopName, Callable[[RunConfig, Inputs], Parts]] = {
    "compiled": _make_compiled,
    "tabular": _make_tabular,
    "host": _make_host,
    "cluster": _make_cluster,
}
"""(configuration, inputs) -> the parts of a run, by the name of its loop."""
