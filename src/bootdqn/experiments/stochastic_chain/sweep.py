"""Deep agents and agents that see the state, on three versions of the six-state chain."""

from __future__ import annotations

from bootdqn.agent import AGENTS
from bootdqn.envs.catalog import env_spec, make_env
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.tabular.agents import TABULAR_AGENTS
from bootdqn.training import NAMED_AGENTS, TrainConfig

VERSIONS: dict[str, str] = {
    "noisy": "stochastic_chain,tabularl",
    "noiseless": "stochastic_chain,noiseless",
    "scrambled": "stochastic_chain,tabularl,scrambled",
}
"""Names of environments."""
_ALL = ("boot", "dqn", *TABULAR_AGENTS)
_AGENTS: dict[Preset, tuple[str, ...]] = {
    "smoke": ("boot", "psrl", "ucrl2", "epsilon-greedy"),
    "quick": _ALL,
    "paper": _ALL,
}
_EPISODES: dict[Preset, int] = {"smoke": 20, "quick": 500, "paper": 2000}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 4, "paper": 10}


def sweep(preset: Preset) -> list[Trial]:
    """Every agent on every version; to those that see the state, a scrambled chain is the noisy one again."""
    return [
        Trial(
            f"{version}-{name}",
            TrainConfig(
                env=env_spec(make_env(env)),
                agent_name=name,
                agent=NAMED_AGENTS[name],
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for version, env in VERSIONS.items()
        for name in _AGENTS[preset]
        if version != "scrambled" or name in (*AGENTS, "psrl")
    ]
