"""Benchmarks of training on a chain, of tabular baselines and beside other packages.

Everything is measured side by side in one run: ratios carry over to other machines, absolute figures do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bootdqn.core.config import AGENTS, GYM_AGENTS, AgentConfig
from bootdqn.envs.chain import Chain
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.envs.tabular_chains import StochasticChain
from bootdqn.envs.vector import Envs, make_envs
from bootdqn.errors import UserError
from bootdqn.experiments.engine.cost import update_flops
from bootdqn.loops.compiled import make_compiled_loop, make_compiled_program
from bootdqn.loops.host import HostLoop
from bootdqn.loops.seeds import available_cores
from bootdqn.loops.tabular import make_tabular_loop
from bootdqn.runs.directory import provenance
from bootdqn.tabular.agents import TABULAR_AGENTS
from bootdqn.types import Env

CHAIN_CONFIG = replace(
    AGENTS["boot"], num_heads=10, hidden=(50, 50), trunk_hidden=(), batch_size=32, learning_period_steps=1
)
"""The agent of the benchmark, which stays the same when the default agents change."""
_STEPS = 2000
"""The number of environment steps per seed that are timed together."""
PEERS_CONFIG = AgentConfig(
    num_heads=20,
    hidden=(50, 50),
    initial_spread=0.0,
    prior_scale=5.0,
    unit_fan_in=True,
    mask_probability=0.5,
    mask_per="step",
    discount=0.99,
    double_q=False,
    learning_rate=1e-3,
    sparse_step=True,
    batch_size=128,
    replay_capacity=10_000,
    learning_start_steps=128,
    learning_period_steps=1,
    target_period_updates=4,
)
"""The defaults of bsuite's `boot_dqn`, with its prior networks, but with masks; and our sparse step."""
PEERS_SIZES = {20: True, 50: True, 100: False}
"""Sizes of DeepSea, and whether bsuite's agent is timed there."""
TABULAR_SEEDS = 10
TABULAR_EPISODES = 2000
TABULAR_LONG_EPISODES = 100_000
_WARM_UP_STEPS = 200
"""The number of steps of DeepSea after which both learn and have compiled."""
_ROUNDS = 5
"""The number of turns of every peer."""
GYM_CONFIG = replace(GYM_AGENTS["boot"], trunk_hidden=(64,), hidden=(64,), batch_size=32, learning_start_steps=100)
GYM_SETTINGS = ((1, 4), (1, 1), (8, 4), (8, 1))
"""Numbers of environments and of environment steps per update; the default of stable-baselines3 is first."""
GYM_STEPS = 4000
"""The number of environment steps of a turn."""


def gemm_gflops(size: int = 1024, repeats: int = 10) -> float:
    """Measure the best rate of this machine for one large float32 matrix product, in GFLOP/s."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(jnp.matmul)
    return 2 * size**3 / _best_seconds(lambda: multiply(a, a), repeats) / 1e9


def time_training(
    length: int, config: AgentConfig, *, num_seeds: int, group_size: int | None = None, repeats: int = 3
) -> dict[str, Any]:
    """Time training on a chain, with an update at every step.

    Returns:
        The setting, `ms_per_step_and_seed` (the best wall time of `repeats` divided by the environment steps of
        all seeds), the arithmetic rate that follows from it, and the seconds that compilation took.
    """
    env = Chain(length=length)
    episodes = max(1, _STEPS // env.horizon)
    training = make_compiled_loop(env, config, seeds=range(num_seeds), episodes=episodes, group_size=group_size)
    start = time.perf_counter()
    training.compile()
    compile_seconds = time.perf_counter() - start

    def train() -> None:
        for _ in training.chunks():  # continues where the last pass ended
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
    """Time a reference setting on the chain, its growth with N, K and seeds, and the peak rate of this machine.

    Args:
        report: takes every figure as soon as it is measured.
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
        "setting": "N=50, K=10 separate 2x50 networks, batch 32, one update per step, 8 seeds",
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
    """Time tabular baselines on the stochastic chain, many seeds at once.

    Args:
        report: takes every figure as soon as it is measured.

    Returns:
        The seconds of 2000 episodes with 10 seeds by agent (`seconds`), those of 100,000 episodes of UCRL2
        (`ucrl2_long_seconds`), and how much longer 10 seeds take if they are vmapped into one program than with
        one program each (`vmapped_ratio`).
    """
    env = StochasticChain()

    def seconds(name: str, episodes: int, group_size: int | None = None, repeats: int = 3) -> float:
        seeds = range(TABULAR_SEEDS)
        training = make_tabular_loop(
            env, TABULAR_AGENTS[name], seeds=seeds, episodes=episodes, group_size=group_size
        )

        def run() -> None:
            for _ in training.chunks():  # continues where the last pass ended
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
    """Time the same agent on the same DeepSea by bsuite's own JAX implementation and by ours, in turns.

    Our times include evaluation episodes.

    Args:
        report: takes every figure as soon as it is measured.
    """
    results = [_time_deep_sea(size, report, with_bsuite=both) for size, both in PEERS_SIZES.items()]
    ours = [row["steps_per_second"]["bootdqn"] for row in results]
    return {
        "benchmark": "peers",
        "setting": "DeepSea, K=20 separate 2x50 networks with priors, batch 128, one update per step, one seed",
        "cores": available_cores(),
        "backend": jax.default_backend(),
        **provenance(),
        "bsuite": metadata.version("bsuite"),
        "results": results,
        "growth": ours[0] / ours[-1],
    }


def _time_deep_sea(size: int, report: Callable[[str], None], *, with_bsuite: bool) -> dict[str, Any]:
    """Time our agent on DeepSea of one size, and in turns with it bsuite's, where that is asked for."""
    env = DeepSea(size=size)
    # A player, and the number of episodes of its turns, which take a second or two.
    players = {"bsuite": (_bsuite_player(env, PEERS_CONFIG), max(1, 100 // size))} if with_bsuite else {}
    episodes = 1000 // size
    players["bootdqn"] = (_compiled_player(env, PEERS_CONFIG, max_episodes=episodes), episodes)
    for play, _ in players.values():
        play(max(2, _WARM_UP_STEPS // size))
    best = dict.fromkeys(players, 0.0)
    for _ in range(_ROUNDS):
        for name, (play, episodes) in players.items():
            start = time.perf_counter()
            play(episodes)
            rate = episodes * env.horizon / (time.perf_counter() - start)
            best[name] = max(best[name], rate)
            report(f"size {size}, {name}: {rate:.1f} steps/s")
    ratio = {"ratio": best["bootdqn"] / best["bsuite"]} if with_bsuite else {}
    return {"size": size, "steps_per_second": best, **ratio}


def bench_gym(report: Callable[[str], None]) -> dict[str, Any]:
    """Time our agent with K heads and the DQN of stable-baselines3 with one head on CartPole, in turns.

    Layers, batch and updates per step are the same; stable-baselines3 has one thread, which is fastest here.

    Args:
        report: takes every figure as soon as it is measured.
    """
    results: list[dict[str, Any]] = []
    for num_envs, period in GYM_SETTINGS:
        config = replace(GYM_CONFIG, learning_period_steps=period)
        players = {
            "stable-baselines3": _stable_baselines_player(config, num_envs),
            "bootdqn": host_player(make_host_loop(make_envs("CartPole-v1", num_envs), config)),
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


def make_host_loop(envs: Envs, config: AgentConfig) -> HostLoop:
    """Make a host loop whose replay is as large as configured, and that is never interrupted by a checkpoint."""
    return HostLoop(envs, config, seed=0, steps=config.replay_capacity, checkpoint_every=config.replay_capacity)


def host_player(training: HostLoop) -> Callable[[int], int]:
    """Make a function that trains our agent for at least a number of steps more and returns how many it made."""
    training.begin()

    def play(steps: int) -> int:
        start = training.position
        while training.position < start + steps:
            training.tick()
        training.learner.flush()
        training.learner.wait()
        return training.position - start

    return play


def _stable_baselines_player(config: AgentConfig, num_envs: int) -> Callable[[int], None]:
    """Make a function that trains the DQN of stable-baselines3 for a number of steps, with as many updates."""
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
    """Make a function that trains our agent for a number of episodes more."""
    episodes = -(-config.replay_capacity // env.horizon)  # so that replay is as large as configured
    program = make_compiled_program(env, config, episodes=episodes, chunk_episodes=max_episodes)
    state = program.init(jax.random.key(0)[None])

    def play(episodes: int) -> None:
        nonlocal state
        state, _ = jax.block_until_ready(program.run(state, episodes))

    return play


def _bsuite_player(env: DeepSea, config: AgentConfig) -> Callable[[int], None]:
    """Make a function that trains bsuite's agent for a number of episodes more, in bsuite's own loop."""
    try:
        import haiku as hk  # pyright: ignore[reportMissingImports]
        from bsuite.baselines import experiment  # pyright: ignore[reportMissingImports]
        from bsuite.baselines.jax.boot_dqn import BootstrappedDqn  # pyright: ignore[reportMissingImports]
        from bsuite.environments import deep_sea  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(f"this benchmark needs other packages ({error}): pip install 'bootdqn[peers]'") from None
    peer = deep_sea.DeepSea(env.size, mapping_seed=env.mapping_seed)

    def network(x: Any) -> Any:
        x, sizes = hk.Flatten()(x), [*config.hidden, env.num_actions]
        values, prior = hk.nets.MLP(sizes)(x), hk.nets.MLP(sizes)(x)
        return values + config.prior_scale * jax.lax.stop_gradient(prior)

    agent = BootstrappedDqn(
        obs_spec=peer.observation_spec(),
        action_spec=peer.action_spec(),
        network=network,
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
    """Return the shortest time of `repeats` calls, after one call to warm up."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return min(seconds)
