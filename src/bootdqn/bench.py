"""Speed, measured side by side in one run: ratios carry from machine to machine, absolutes do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bootdqn.agent import AGENTS, GYM_AGENTS, AgentConfig, make_agent, make_network
from bootdqn.envs.chain import Chain
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.envs.host import make_envs
from bootdqn.envs.tabular import StochasticChain
from bootdqn.errors import UserError
from bootdqn.loops.compiled import CompiledTraining, make_program
from bootdqn.loops.groups import available_cores
from bootdqn.loops.host import HostTraining
from bootdqn.loops.tabular import TabularTraining
from bootdqn.runs.directory import provenance
from bootdqn.tabular.agents import TABULAR_AGENTS
from bootdqn.types import Env

CHAIN_CONFIG = replace(
    AGENTS["boot"], num_heads=10, hidden=(50, 50), trunk_hidden=(), batch_size=32, learning_period_steps=1
)
"""The setting of the benchmark, whatever the agents' defaults become."""
_STEPS = 2000
"""Environment steps of a seed that are timed together."""
PEERS_CONFIG = AgentConfig(
    num_heads=20,
    hidden=(50, 50),
    mask_probability=0.5,
    mask_per="step",
    discount=0.99,
    double_q=False,
    learning_rate=1e-3,
    batch_size=128,
    replay_capacity=10_000,
    learning_start_steps=128,
    learning_period_steps=1,
    target_period_updates=4,
)
"""What bsuite's `boot_dqn` does by default, but with masks, and without its prior networks."""
TABULAR_SEEDS = 10
TABULAR_EPISODES = 2000
TABULAR_LONG_EPISODES = 100_000
_WARM_UP_EPISODES = 10
"""Episodes of DeepSea-20 after which both learn, and have compiled."""
_ROUNDS = 5
"""How often the peers take turns."""
GYM_CONFIG = replace(GYM_AGENTS["boot"], trunk_hidden=(64,), hidden=(64,), batch_size=32, learning_start_steps=100)
GYM_SETTINGS = ((1, 4), (1, 1), (8, 4), (8, 1))
"""Environments side by side, and environment steps an update; stable-baselines3's own default first."""
GYM_STEPS = 4000
"""That a turn lasts."""


def gemm_gflops(size: int = 1024, repeats: int = 10) -> float:
    """The machine's rate for one large float32 matrix product, in GFLOP/s: the best of several."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(jnp.matmul)
    return 2 * size**3 / _best_seconds(lambda: multiply(a, a), repeats) / 1e9


def update_flops(config: AgentConfig, num_inputs: int, num_actions: int) -> int:
    """Multiply-adds times two in the matrix products of one update of separate networks, as the maths has them.

    Three forward passes (online at both observations, target at the next), and two products a layer backward:
    one for the weights, one for the layer's input, which the first layer does not need.
    """
    sizes = (num_inputs, *config.hidden, num_actions)
    layers = [2 * a * b for a, b in pairwise(sizes)]
    passes = 3 if config.double_q else 2
    per_sample = passes * sum(layers) + sum(layers) + sum(layers[1:])
    return config.num_heads * config.batch_size * per_sample


def time_training(
    length: int, config: AgentConfig, *, num_seeds: int, group_size: int | None = None, repeats: int = 3
) -> dict[str, Any]:
    """Time training on a chain, learning at every step.

    Returns:
        The setting, `ms_per_step_and_seed` (wall time over environment steps of all seeds; the best of
        `repeats`), the arithmetic rate it implies and the seconds that compiling took.
    """
    env = Chain(length=length)
    episodes = max(1, _STEPS // env.horizon)
    training = CompiledTraining(env, config, seeds=range(num_seeds), episodes=episodes, group_size=group_size)
    start = time.perf_counter()
    training.compile()
    compile_seconds = time.perf_counter() - start

    def train() -> None:
        for _ in training.chunks():  # goes on from where the last pass ended
            pass

    best = _best_seconds(train, repeats) / (num_seeds * episodes * env.horizon)
    flops = update_flops(config, length, env.num_actions)
    return {
        "length": length,
        "heads": config.num_heads,
        "seeds": num_seeds,
        "seeds_per_program": training.group_size,
        "ms_per_step_and_seed": best * 1e3,
        "gflops": flops / best / 1e9,
        "compile_seconds": compile_seconds,
    }


def bench_chain(report: Callable[[str], None]) -> dict[str, Any]:
    """The chain benchmark: the reference setting, how it grows with N, K and seeds, and the machine's own peak.

    Args:
        report: is told every figure as soon as it is there.
    """

    def measure(length: int, num_heads: int, num_seeds: int, **options: int) -> dict[str, Any]:
        config = replace(CHAIN_CONFIG, num_heads=num_heads)
        row = time_training(length, config, num_seeds=num_seeds, **options)
        report(
            f"N={length} K={num_heads} seeds={num_seeds}: {row['ms_per_step_and_seed']:.3f} ms per step and seed"
        )
        return row

    peak = gemm_gflops()
    report(f"float32 GEMM: {peak:.0f} GFLOP/s")
    reference = measure(50, 10, 8, repeats=5)
    vmapped = measure(50, 10, 8, group_size=8)
    growth = {
        "length": [measure(n, 10, 2) for n in (25, 50, 100, 200)],
        "heads": [measure(50, k, 2) for k in (1, 5, 10, 20, 40)],
        "seeds": [measure(50, 10, s) for s in (1, 2, 4, 8, 16)],
    }
    return {
        "benchmark": "chain",
        "setting": "N=50, K=10 separate 2x50 networks, batch 32, one update a step, 8 seeds",
        "cores": available_cores(),
        "backend": jax.default_backend(),
        **provenance(),
        "gemm_gflops": peak,
        "share_of_gemm_peak": reference["gflops"] / peak,
        "reference": reference,
        "seeds_vmapped_in_one_program": vmapped,
        "growth": growth,
    }


def bench_tabular(report: Callable[[str], None]) -> dict[str, Any]:
    """Time agents that see the state on the stochastic chain, many seeds at once.

    Args:
        report: is told every figure as it comes.

    Returns:
        `seconds` of 2000 episodes in 10 seeds by agent, `ucrl2_long_seconds` of 100,000 episodes, and how much
        longer 10 seeds take when vmapped into one program, in place of one program each (`vmapped_ratio`).
    """
    env = StochasticChain()

    def seconds(name: str, episodes: int, group_size: int | None = None, repeats: int = 3) -> float:
        seeds = range(TABULAR_SEEDS)
        training = TabularTraining(
            env, TABULAR_AGENTS[name], seeds=seeds, episodes=episodes, group_size=group_size
        )

        def run() -> None:
            for _ in training.chunks():  # goes on from where the last pass ended
                pass

        best = _best_seconds(run, repeats)
        vmapped = "" if group_size is None else ", vmapped"
        report(f"{name}{vmapped}: {TABULAR_SEEDS} seeds, {episodes:,} episodes in {best:.2f} s")
        return best

    by_agent = {name: seconds(name, TABULAR_EPISODES) for name in TABULAR_AGENTS}
    vmapped = seconds("ucrl2", TABULAR_EPISODES, group_size=TABULAR_SEEDS)
    return {
        "benchmark": "tabular",
        "setting": f"stochastic chain, {TABULAR_SEEDS} seeds, {TABULAR_EPISODES} episodes",
        "cores": available_cores(),
        "backend": jax.default_backend(),
        "seconds": by_agent,
        "vmapped_ratio": vmapped / by_agent["ucrl2"],
        "long_episodes": TABULAR_LONG_EPISODES,
        "ucrl2_long_seconds": seconds("ucrl2", TABULAR_LONG_EPISODES, repeats=1),
        **provenance(),
    }


def bench_peers(report: Callable[[str], None]) -> dict[str, Any]:
    """The same agent on the same DeepSea by bsuite's own JAX implementation and by ours, taking turns.

    Ours also plays its evaluation episodes.

    Args:
        report: is told every figure as soon as it is there.
    """
    env = DeepSea(size=20)
    # A player and how many episodes it plays in a turn: a second or two.
    players = {
        "bsuite": (_bsuite_player(env, PEERS_CONFIG), 5),
        "bootdqn": (_compiled_player(env, PEERS_CONFIG, max_episodes=50), 50),
    }
    for play, _ in players.values():
        play(_WARM_UP_EPISODES)
    best = dict.fromkeys(players, 0.0)
    for _ in range(_ROUNDS):
        for name, (play, episodes) in players.items():
            start = time.perf_counter()
            play(episodes)
            rate = episodes * env.horizon / (time.perf_counter() - start)
            best[name] = max(best[name], rate)
            report(f"{name}: {rate:.1f} steps/s")
    return {
        "benchmark": "peers",
        "setting": "DeepSea-20, K=20 separate 2x50 networks, batch 128, one update a step, one seed",
        "cores": available_cores(),
        "backend": jax.default_backend(),
        **provenance(),
        "bsuite": metadata.version("bsuite"),
        "steps_per_second": best,
        "ratio": best["bootdqn"] / best["bsuite"],
    }


def bench_gym(report: Callable[[str], None]) -> dict[str, Any]:
    """Our agent with K heads and stable-baselines3's DQN, which has one, on CartPole, taking turns.

    Layers, batch and updates a step are the same; stable-baselines3 has one thread, with which it is fastest here.

    Args:
        report: is told every figure as soon as it is there.
    """
    results: list[dict[str, Any]] = []
    for num_envs, period in GYM_SETTINGS:
        config = replace(GYM_CONFIG, learning_period_steps=period)
        players = {
            "stable-baselines3": _stable_baselines_player(config, num_envs),
            "bootdqn": host_player(
                HostTraining(make_envs("CartPole-v1", num_envs), config, seed=0, steps=config.replay_capacity)
            ),
        }
        for play in players.values():
            play(GYM_STEPS // 2)
        best = dict.fromkeys(players, 0.0)
        for _ in range(_ROUNDS):
            for name, play in players.items():
                start = time.perf_counter()
                play(GYM_STEPS)
                best[name] = max(best[name], GYM_STEPS / (time.perf_counter() - start))
        row = {"envs": num_envs, "steps_per_update": period, "steps_per_second": best}
        results.append(row | {"ratio": best["bootdqn"] / best["stable-baselines3"]})
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in best.items())
        report(f"{num_envs} environments, an update every {period} steps: {rates} steps/s")
    return {
        "benchmark": "gym",
        "setting": f"CartPole-v1, K={GYM_CONFIG.num_heads} against one head, two layers of 64, batch 32",
        "cores": available_cores(),
        "backend": jax.default_backend(),
        **provenance(),
        "stable-baselines3": metadata.version("stable-baselines3"),
        "results": results,
    }


def host_player(training: HostTraining) -> Callable[[int], int]:
    """(number of steps) -> trains our agent at least so long, going on from where it was, and says how long."""
    training.begin()

    def play(steps: int) -> int:
        start = training.counters.step
        while training.counters.step < start + steps:
            training.tick()
        training.flush()
        jax.block_until_ready(training.learned)
        return training.counters.step - start

    return play


def _stable_baselines_player(config: AgentConfig, num_envs: int) -> Callable[[int], None]:
    """(number of steps) -> trains stable-baselines3's DQN so long, on as many environments and updates."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
        from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common.env_util import make_vec_env  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(f"this benchmark needs other packages ({error}): pip install 'bootdqn[peers]'") from None
    torch.set_num_threads(1)
    ticks = max(1, config.learning_period_steps // num_envs)
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", num_envs),
        learning_rate=config.learning_rate,
        buffer_size=config.replay_capacity,
        learning_starts=config.learning_start_steps,
        batch_size=config.batch_size,
        gamma=config.discount,
        train_freq=ticks,
        gradient_steps=max(1, num_envs * ticks // config.learning_period_steps),
        target_update_interval=config.target_period_updates * config.learning_period_steps,
        policy_kwargs={"net_arch": [*config.trunk_hidden, *config.hidden]},
        device="cpu",
        seed=0,
    )

    def play(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return play


def _compiled_player(env: Env, config: AgentConfig, *, max_episodes: int) -> Callable[[int], None]:
    """(number of episodes) -> trains our agent so long, going on from where it was."""
    agent = make_agent(config, make_network(config, env.encoding, env.num_actions), env.num_actions)
    init, run = make_program(env, agent, config, capacity=config.replay_capacity, chunk_episodes=max_episodes)
    state = init(jax.random.key(0)[None])

    def play(episodes: int) -> None:
        nonlocal state
        state, _ = jax.block_until_ready(run(state, episodes))

    return play


def _bsuite_player(env: DeepSea, config: AgentConfig) -> Callable[[int], None]:
    """(number of episodes) -> trains bsuite's agent so long, on its environment and by its loop."""
    try:
        import haiku as hk  # pyright: ignore[reportMissingImports]
        from bsuite.baselines import experiment  # pyright: ignore[reportMissingImports]
        from bsuite.baselines.jax.boot_dqn import BootstrappedDqn  # pyright: ignore[reportMissingImports]
        from bsuite.environments import deep_sea  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(f"this benchmark needs other packages ({error}): pip install 'bootdqn[peers]'") from None
    peer = deep_sea.DeepSea(env.size, mapping_seed=env.mapping_seed)
    agent = BootstrappedDqn(
        obs_spec=peer.observation_spec(),
        action_spec=peer.action_spec(),
        network=lambda x: hk.nets.MLP([*config.hidden, env.num_actions])(hk.Flatten()(x)),
        num_ensemble=config.num_heads,
        batch_size=config.batch_size,
        discount=config.discount,
        replay_capacity=config.replay_capacity,
        min_replay_size=config.learning_start_steps,
        sgd_period=config.learning_period_steps,
        target_update_period=config.target_period_updates,
        optimizer=optax.adam(config.learning_rate),
        mask_prob=config.mask_probability,
        noise_scale=0.0,
    )
    return lambda episodes: experiment.run(agent, peer, episodes)


def _best_seconds(function: Callable[[], Any], repeats: int) -> float:
    """The shortest of `repeats` calls, after one to warm up."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return min(seconds)
