"""Speed, measured side by side in one run: ratios carry from machine to machine, absolutes do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from bootdqn.agent import AGENTS, AgentConfig
from bootdqn.envs.chain import Chain
from bootdqn.loops.compiled import CompiledTraining, available_cores
from bootdqn.runs.directory import provenance

CHAIN_CONFIG = replace(
    AGENTS["boot"], num_heads=10, hidden=(50, 50), trunk_hidden=(), batch_size=32, learning_period_steps=1
)
"""The setting of the benchmark, whatever the agents' defaults become."""
_STEPS = 2000
"""Environment steps of a seed that are timed together."""


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


def _best_seconds(function: Callable[[], Any], repeats: int) -> float:
    """The shortest of `repeats` calls, after one to warm up."""
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return min(seconds)
