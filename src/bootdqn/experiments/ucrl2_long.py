"""The regret of UCRL2 over so many episodes that it no longer grows linearly (paper, appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bootdqn.envs.registry import make_env
from bootdqn.experiments.engine.experiment import CsvRow, Preset, Trial
from bootdqn.experiments.shared.regret import regret_curves, regret_experiment
from bootdqn.plots.regret import RegretCurve, RegretPanel, save_regret
from bootdqn.runs.config import RunConfig, loop_of_agent
from bootdqn.tabular.agents import PSRL, UCBVI, UCRL2, Counts, TabularAgent, optimistic_transitions
from bootdqn.tabular.mdp import Shape

_EPISODES: dict[Preset, int] = {"smoke": 200, "quick": 20_000, "paper": 300_000}
_SEEDS: dict[Preset, int] = {"smoke": 2, "quick": 4, "paper": 10}
_DECADES = [10**power for power in range(1, 8)]


@dataclass(frozen=True, kw_only=True)
class AliasedUCRL2(UCRL2):
    """UCRL2 with a mistake of TabulaRL: optimism accumulates from step to step of the planning.

    TabulaRL edits its estimate of the transitions in place in the belief that it is a copy, except where optimism
    makes a next state certain, for which it makes a new array. Nothing else differs from `UCRL2`.
    """

    aliased: bool = True
    """Distinguishes the configuration from that of `UCRL2` in records."""

    def plan(self, key: Array, shape: Shape, memory: Counts, episode: Array) -> Array:
        """Return the values of a problem that gets better with every step before the end."""
        del key
        posterior = self.posterior(memory)
        reward_width, transition_width = self.widths(shape, memory, episode)
        rewards = jnp.minimum(posterior.reward_mean + reward_width, self.max_reward)

        def step(carry: tuple[Array, Array], _: None):
            values, transitions = carry
            optimistic = optimistic_transitions(transitions, transition_width, values)
            q = rewards + optimistic @ values
            is_certain = optimistic.max(axis=-1, keepdims=True) == 1
            return (q.max(axis=-1), jnp.where(is_certain, transitions, optimistic)), q

        start = jnp.zeros(shape.num_states), posterior.mean_transitions
        return jax.lax.scan(step, start, None, length=shape.horizon, reverse=True)[1]


_AGENTS: dict[str, tuple[str, TabularAgent]] = {
    "ucrl2": ("ucrl2", UCRL2()),
    "ucrl2-wide": ("ucrl2", UCRL2(reward_constant=3.5, transition_constant=14.0)),
    "ucrl2-aliased": ("ucrl2", AliasedUCRL2()),
    "ucbvi": ("ucbvi", UCBVI()),
    "psrl": ("psrl", PSRL()),
}
"""The name and configuration of an agent by its label.

UCRL2 has the constants of TabulaRL, those of its own paper, or a mistake of TabulaRL.
"""


def sweep(preset: Preset) -> list[Trial]:
    """Make the trials of optimistic agents, and of posterior sampling beside them, on the noisy chain."""
    return [
        Trial(
            label,
            RunConfig(
                loop=loop_of_agent(name),
                env="stochastic_chain",
                agent_name=name,
                agent=agent,
                episodes=_EPISODES[preset],
                num_seeds=_SEEDS[preset],
            ),
        )
        for label, (name, agent) in _AGENTS.items()
    ]


def plot(rows: list[CsvRow], stem: Path) -> str:
    """Draw regret and the bound of UCRL2; return a table of regret and its growth at every power of ten."""
    trials: dict[str, list[CsvRow]] = {}
    for row in rows:
        trials.setdefault(row["trial"], []).append(row)
    curves = regret_curves(trials, "pseudo_regret")
    states, actions, horizon = make_env(rows[0]["env"]).mdp.shape

    def bound(episodes: NDArray[np.floating]) -> NDArray[np.floating]:
        return states * np.sqrt(actions * horizon * episodes)

    panel = RegretPanel("", curves, bound=bound, bound_label="S √(A T), T steps")
    save_regret(
        stem,
        "The six-state stochastic chain, in the long run",
        [[panel]],
        ylabels=["regret in expectation"],
        log=True,
    )
    seeds = len({row["seed"] for row in rows})
    last = max(int(curve.episodes[-1]) for curve in curves)
    shown = [*(decade for decade in _DECADES if decade < last), last]
    header = [
        "| episodes | " + " | ".join(c.label for c in curves) + " | S √(A T) |",
        "|---:|" + "---:|" * (len(curves) + 1),
    ]
    body = [
        f"| {episodes:,} | "
        + " | ".join(_cell(curve, episodes) for curve in curves)
        + f" | {float(bound(np.array(episodes))):,.0f} |"
        for episodes in shown
    ]
    return "\n\n".join(
        [
            f"Regret in expectation, mean of {seeds} seeds; in brackets b of the growth as (episodes)^b over the "
            "tenfold before: 1 is linear, 0.5 the bound's.",
            "\n".join(header + body),
        ]
    )


def _cell(curve: RegretCurve, episodes: int) -> str:
    if episodes > curve.episodes[-1]:
        return ""
    values = np.interp(np.log([episodes / 10, episodes]), np.log(curve.episodes), np.log(curve.means))
    text = f"{np.exp(values[1]):,.0f}"
    # There is no value a factor of ten before the first one.
    return text if episodes / 10 < curve.episodes[0] else f"{text} ({(values[1] - values[0]) / np.log(10):.2f})"


EXPERIMENT = regret_experiment(
    name="ucrl2-long",
    summary="regret of UCRL2 on the stochastic chain until it leaves its linear phase, with the bound's growth",
    sweep=sweep,
    plot=plot,
)
