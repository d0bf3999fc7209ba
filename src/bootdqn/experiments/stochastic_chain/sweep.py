"""Deep agents and agents that see the state, on three versions of the six-state chain."""

from __future__ import annotations

from dataclasses import replace

from bootdqn.agent import AGENTS, AgentConfig
from bootdqn.envs.catalog import env_spec, make_env
from bootdqn.experiments.runner import Preset, Trial
from bootdqn.tabular.agents import PSRL, TABULAR_AGENTS, TabularAgent
from bootdqn.training import NAMED_AGENTS, TrainConfig

VERSIONS: dict[str, str] = {
    "noisy": "stochastic_chain,tabularl",
    "noiseless": "stochastic_chain,noiseless",
    "scrambled": "stochastic_chain,tabularl,scrambled,scramble_seed=6",
}
"""Names of environments; the last draws 0, 1, 1, 0, 1, 0 for right."""
_AGENTS: dict[str, tuple[str, AgentConfig | TabularAgent]] = {
    **{name: (name, agent) for name, agent in NAMED_AGENTS.items()},
    "boot-p=0.5": ("boot", replace(AGENTS["boot"], mask_probability=0.5)),
    "psrl-precise": ("psrl", PSRL(noise_precision=100.0)),
}
"""By label, name and configuration; the last is told that rewards have next to no noise."""
_LABELS: dict[str, tuple[str, ...]] = {
    "noisy": ("boot", "boot-p=0.5", "dqn", *TABULAR_AGENTS),
    "noiseless": ("boot", "dqn", *TABULAR_AGENTS, "psrl-precise"),
    "scrambled": ("boot", "boot-p=0.5", "dqn", "psrl"),
}
"""Who is run on which version; to agents that see the state, the scrambled chain is the noisy one again."""
_SMOKE = ("boot", "psrl", "ucrl2", "psrl-precise")
_EPISODES: dict[Preset, int] = {"smoke": 20, "quick": 500, "paper": 2000}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 4, "paper": 10}


def sweep(preset: Preset) -> list[Trial]:
    """Every agent on every version."""
    return [
        Trial(
            f"{version}-{label}",
            TrainConfig(
                env=env_spec(make_env(env)),
                agent_name=_AGENTS[label][0],
                agent=_AGENTS[label][1],
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for version, env in VERSIONS.items()
        for label in _LABELS[version]
        if preset != "smoke" or label in _SMOKE
    ]
