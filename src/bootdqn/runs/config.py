"""What a run does: `RunConfig`, its defaults per environment, and how files hold it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from bootdqn.core.config import AGENTS, ATARI_AGENTS, GYM_AGENTS, AgentConfig
from bootdqn.envs.atari import is_atari
from bootdqn.envs.registry import ENVS, env_spec, make_env
from bootdqn.envs.vector import Vectorization, is_on_host
from bootdqn.errors import UserError, require, require_known, require_types
from bootdqn.runs.records import loop_of
from bootdqn.tabular.agents import TABULAR_AGENTS, TabularAgent

LoopName = Literal["compiled", "tabular", "host", "cluster"]
NAMED_AGENTS: dict[str, AgentConfig | TabularAgent] = {**AGENTS, **TABULAR_AGENTS}
"""All that can be trained by name: configurations of the deep agent, and tabular baselines."""
_BY_EPISODES = ("episodes", "num_seeds")
_BY_STEPS = (
    *("steps", "num_envs", "vectorization", "evaluate_every_steps", "evaluation_episodes", "evaluation_steps"),
    *("evaluation_epsilon", "checkpoint_every_steps"),
)
FIELDS: dict[LoopName, tuple[str, ...]] = {
    "compiled": _BY_EPISODES,
    "tabular": _BY_EPISODES,
    "host": _BY_STEPS,
    "cluster": (*_BY_STEPS, "num_actors", "max_staleness_updates"),
}
"""Fields of `RunConfig` that a loop uses, beside those that all use."""
SHARED_FIELDS = ("loop", "env", "agent_name", "agent", "seed")
"""Fields of `RunConfig` that all loops use."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run does; fields that its loop does not use keep their defaults."""

    loop: LoopName
    """What carries out the run: one compiled program, tabular baselines in one, Gymnasium environments in this
    process, or actors in a Ray cluster."""
    env: str | None
    """The environment's name, such as `chain:50`; None for one without a name, which a file cannot bring back."""
    agent_name: str = "boot"
    """The named configuration that `agent` started from."""
    agent: AgentConfig | TabularAgent = AGENTS["boot"]
    """The agent's full configuration."""
    seed: int = 0
    """The seed; where there are several, that of the first, from which the others count up."""
    episodes: int = 500
    """Training episodes per seed."""
    num_seeds: int = 1
    """How many independent trainings."""
    steps: int = 50_000
    """Environment steps, over all copies of the environment."""
    num_envs: int = 1
    """Copies of the environment, each played by its own head."""
    vectorization: Vectorization = "sync"
    """Copies in this process, in a process each, or as the environment's own vector version."""
    evaluate_every_steps: int = 10_000
    """Steps from one evaluation to the next; 0 for none."""
    evaluation_episodes: int = 5
    """Episodes per evaluation: of the vote, of the mean, and of every head."""
    evaluation_steps: int = 0
    """Steps that the vote plays in an evaluation in place of episodes, in four environments; the mean and the
    heads then play in the last evaluation only, a quarter of that each. 0 for episodes."""
    evaluation_epsilon: float = 0.0
    """Probability of a uniformly random action in evaluations."""
    checkpoint_every_steps: int = 20_000
    """Steps from one checkpoint to the next; all copies then start new episodes."""
    num_actors: int = 0
    """Processes in a Ray cluster that play, each with `num_envs` copies of its own; 0 to play here."""
    max_staleness_updates: int = 200
    """Updates that the parameters of such actors may lack."""

    def __post_init__(self):
        require_known("loop", self.loop, get_args(LoopName))
        require_types(self)
        require_known("agent", self.agent_name, NAMED_AGENTS)
        require_known("vectorization", self.vectorization, get_args(Vectorization))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            word = name.removeprefix("num_") if name == "num_seeds" else name
            require(value >= least, f"{word} must be at least {least}, got {value}")
            require(value < 2**31 or name == "seed", f"{word} must be below 2**31, got {value}")
        require(self.seed + self.num_seeds <= 2**32, f"seeds must be below 2**32, got {self.seed}")
        epsilon = self.evaluation_epsilon
        require(0 <= epsilon <= 1, f"evaluation_epsilon must be in [0, 1], got {epsilon}")
        used = {*SHARED_FIELDS, *FIELDS[self.loop]}
        for field in dataclasses.fields(self):
            if field.name not in used and getattr(self, field.name) != field.default:
                raise UserError(
                    f"{field.name} is not for a {self.loop} run, which has {', '.join(FIELDS[self.loop])}"
                )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the run."""
        return tuple(range(self.seed, self.seed + self.num_seeds))

    @property
    def deep(self) -> AgentConfig:
        """The agent's configuration, for loops whose agent has a network."""
        assert self.loop != "tabular"
        return self.agent  # pyright: ignore[reportReturnType]

    @property
    def tabular(self) -> TabularAgent:
        """The agent, for the loop of tabular baselines."""
        assert self.loop == "tabular"
        return self.agent  # pyright: ignore[reportReturnType]

    @property
    def dithers(self) -> bool:
        """Whether random actions never cease: such an agent is judged by episodes without them."""
        return self.tabular.epsilon > 0 if self.loop == "tabular" else self.deep.dithers

    def record(self) -> dict[str, Any]:
        """What `config.json` and the headers of model files hold: the fields that the loop uses."""
        fields = dataclasses.asdict(self)
        return {name: fields[name] for name in (*SHARED_FIELDS, *FIELDS[self.loop])}


_LEAST = {
    **dict.fromkeys(("seed", "evaluate_every_steps", "evaluation_steps", "num_actors"), 0),
    **dict.fromkeys(("episodes", "num_seeds", "steps", "num_envs", "evaluation_episodes"), 1),
    **dict.fromkeys(("checkpoint_every_steps", "max_staleness_updates"), 1),
}
"""The least value of every field that counts something."""


def parse_config(record: Mapping[str, Any], path: Path) -> RunConfig:
    """The configuration that a run's `config.json`, or the header of a model, holds."""
    try:
        loop = loop_of(record, path)
        kind: Any = type(NAMED_AGENTS[record["agent_name"]])
        agent = kind(**_with_tuples(record["agent"]))
        return RunConfig(**{**record, "loop": loop, "agent": agent})
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is not of this version: {error}") from None


def _with_tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a configuration from JSON, whose lists were tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


def loop_of_agent(agent: str) -> LoopName:
    """The loop that trains a named agent on a compiled environment."""
    return "tabular" if agent in TABULAR_AGENTS else "compiled"


def default_agent(env: str | None) -> str:
    """The agent that is trained where none is named: on Gymnasium environments the one with priors, else `boot`.

    Args:
        env: the environment's name, or None for one without a name.
    """
    gymnasium = env is None or (is_on_host(env) and not is_atari(env))
    return "boot-prior" if gymnasium else "boot"


def default_config(env: str, agent: str, *, num_actors: int = 0) -> RunConfig:
    """The run of a named agent on an environment, with the default of every field.

    Args:
        env: the environment's name, which decides the loop.
        agent: the agent's name.
        num_actors: as for `default_host_config`.
    """
    if is_on_host(env):
        return default_host_config(env, agent, num_actors=num_actors)
    require_known("agent", agent, NAMED_AGENTS)
    loop = loop_of_agent(agent)
    return RunConfig(loop=loop, env=env_spec(make_env(env)), agent_name=agent, agent=NAMED_AGENTS[agent])


def default_host_config(env: str | None, agent: str, *, num_actors: int = 0) -> RunConfig:
    """The run of a named agent on an environment that steps in Python; for Atari, with the paper's settings.

    Args:
        env: the environment's name, or None for one without a name.
        agent: the agent's name.
        num_actors: processes in a Ray cluster that play; 0 to play in this process.
    """
    require(
        agent not in TABULAR_AGENTS,
        f"{agent} sees the state, so it is for {', '.join(ENVS)}; here are {', '.join(GYM_AGENTS)}",
    )
    require_known("agent", agent, GYM_AGENTS)
    loop: LoopName = "cluster" if num_actors else "host"
    config = RunConfig(loop=loop, env=env, agent_name=agent, agent=GYM_AGENTS[agent], num_actors=num_actors)
    if env is None or not is_atari(env):
        return config
    return replace(
        config,
        agent=ATARI_AGENTS[agent],
        steps=50_000_000,
        evaluate_every_steps=250_000,
        evaluation_steps=125_000,
        evaluation_epsilon=0.05,
        checkpoint_every_steps=100_000,
    )


def with_options(default: RunConfig, options: Mapping[str, Any], **fields: Any) -> RunConfig:
    """A configuration that differs from another in options of the agent and fields of the run.

    Args:
        default: the configuration to start from.
        options: fields of the agent's configuration.
        fields: fields of the run's configuration.
    """
    known = [field.name for field in dataclasses.fields(default.agent)]
    for name in options:
        require_known(f"option of {default.agent_name}", name, known)
    return replace(default, agent=replace(default.agent, **options), **fields)
