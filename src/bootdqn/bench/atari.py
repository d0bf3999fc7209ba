"""Speed on Atari: the learner's step, the whole loop, and what limits them."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bootdqn.bench.chain import gemm_gflops, host_player, make_host_loop
from bootdqn.core.agent import make_agent, make_network
from bootdqn.core.config import ATARI_AGENTS, AgentConfig
from bootdqn.core.conv_trunk import PICTURES
from bootdqn.core.update import make_gradient, make_optimizer
from bootdqn.envs.vector import make_envs
from bootdqn.errors import UserError
from bootdqn.experiments.engine.cost import picture_update_flops
from bootdqn.loops.seeds import available_cores
from bootdqn.replay.host_memory import keep_large_blocks
from bootdqn.runs.directory import provenance
from bootdqn.types import Encoding, Transition

CONFIG = replace(
    ATARI_AGENTS["boot"],
    epsilon_start=0.01,
    epsilon_anneal_steps=0,
    replay_capacity=4000,
    learning_start_steps=2000,
)
"""The paper's agent once epsilon is annealed, with less to remember."""
HEADS = (1, 10)
"""K, of the learner's step and of the loop."""
SLOTS = (1, 8, 32)
"""Environments side by side, with the most heads."""
LEARNER_TURNS = (8, 4)
"""Rounds, and calls of each function in a round."""
LOOP_ROUNDS = 7
LOOP_STEPS = 320
"""Environment steps per turn."""
ENV_STEPS = 2000
"""Environment steps that are timed together where nobody learns."""
BANDWIDTH_MEGABYTES = 256
"""Size of the array that is read and written, which is more than caches hold."""
_NUM_ACTIONS = 4
"""The number of actions in Breakout."""
_ENCODING = Encoding("pictures", math.prod(PICTURES))
_NUM_FEATURES = 3136
"""The number of features that the convolutions return."""


def bandwidth(repeats: int = 10) -> float:
    """Gigabytes a second that are read and written while an array is updated in place: the best of several."""
    increment = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = increment(jnp.zeros(BANDWIDTH_MEGABYTES * 2**18, jnp.float32))
    best = math.inf
    for _ in range(repeats):
        jax.block_until_ready(x)
        start = time.perf_counter()
        x = jax.block_until_ready(increment(x))
        best = min(best, time.perf_counter() - start)
    return 2 * x.nbytes / best / 1e9


def bench_atari(report: Callable[[str], None]) -> dict[str, Any]:
    """The Atari benchmark: the learner's step beside PyTorch's, and the whole loop beside stable-baselines3's DQN.

    Whole trainings are in processes of their own, ours as the peers', as users have them: what we ask of the
    system's memory would make the peers faster, too, and several of ours would share it.

    Args:
        report: is told every figure as soon as it is there.
    """
    keep_large_blocks()
    peers = {  # before anything is measured, as they may not be installed
        f"stable-baselines3, {threads} thread{'s' * (threads > 1)}": isolated(
            _stable_baselines_player, CONFIG, threads
        )
        for threads in _thread_numbers()
    }

    def machine() -> tuple[float, float]:
        gemm, memory = gemm_gflops(), bandwidth()
        report(f"machine: float32 GEMM {gemm:.0f} GFLOP/s, memory {memory:.1f} GB/s")
        return gemm, memory

    kernels = make_agent(CONFIG, _ENCODING, _NUM_ACTIONS).kernels
    before = machine()
    seconds = _take_turns(
        {(heads, name): call for heads in HEADS for name, call in _learner_parts(heads).items()}, *LEARNER_TURNS
    )
    peak, memory = map(max, before, machine())
    learner = []
    for heads in HEADS:
        own = {name: seconds[k, name] for k, name in seconds if k == heads}
        row = _learner_row(heads, own, peak, memory, by_kernels=kernels == "compiled")
        learner.append(row)
        report(
            f"learner's step, K={heads}: {row['ms']:.1f} ms (gradient {row['gradient_ms']:.1f}, optimizer "
            f"{row['optimizer_ms']:.1f}), by XLA {row['xla_ms']:.1f} ms, PyTorch {row['pytorch_ms']:.1f} ms"
        )
    turns = _time_loops(peers, report)
    rates, medians = ({name: of(rates) for name, rates in turns.items()} for of in (max, median))
    slots = []
    for num_envs in SLOTS:
        alone = _environment_rate(num_envs)
        report(f"{num_envs} environments alone: {alone:.0f} steps/s")
        ours = rates[_loop_name(HEADS[-1], num_envs)]
        slots.append({"envs": num_envs, "steps_per_second": ours, "environment_steps_per_second": alone})

    def ratios(rates: dict[str, float]) -> dict[str, float]:
        """Rates of trainings in one environment, relative to the fastest peer."""
        peer_rate = max(rates[name] for name in peers)
        names = [_loop_name(heads, 1, double_q) for double_q in (True, False) for heads in HEADS]
        return {name.removeprefix("bootdqn, "): rates[name] / peer_rate for name in names}

    return {
        "benchmark": "atari",
        "setting": f"Breakout, double-Q, centred RMSProp, batch {CONFIG.batch_size}, an update every 4 steps",
        "cores": available_cores(),
        "backend": jax.default_backend(),
        "kernels": kernels,
        **provenance(),
        **{name: metadata.version(name) for name in ("torch", "stable-baselines3")},
        "gemm_gflops": peak,
        "bandwidth_gb_per_second": memory,
        "learner": learner,
        "growth_with_heads": {
            name: learner[-1][name] / learner[0][name]
            for name in ("ms", "xla_ms", "gflop", "optimizer_gb", "pytorch_ms")
        },
        "loop_steps_per_second": rates,
        "loop_median_steps_per_second": medians,
        "loop_ratio": ratios(rates),
        "loop_ratio_of_medians": ratios(medians),
        "slots": slots,
    }


def _learner_parts(num_heads: int) -> dict[str, Callable[[], Any]]:
    """What is timed of a learner: its step, the parts of that alone, acting, and the step by others."""
    config = replace(CONFIG, num_heads=num_heads)
    key = jax.random.key(0)
    agent = make_agent(config, _ENCODING, _NUM_ACTIONS)
    by_xla = make_agent(config, _ENCODING, _NUM_ACTIONS, kernels=False)
    batch = _random_batch(num_heads, config.batch_size)
    learner = agent.init(key)
    by_kernels = agent.kernels == "compiled"
    network = make_network(config, _ENCODING, _NUM_ACTIONS, kernels=by_kernels)
    _, static = eqx.partition(network(key), eqx.is_inexact_array)
    find_gradient = jax.jit(make_gradient(config, static, kernels=by_kernels))
    gradient, _ = find_gradient(learner.params, learner.target_params, batch)
    act = jax.jit(agent.act)
    copies = [jax.tree.map(jnp.copy, learner) for _ in range(3)]
    return {
        "step": _chained(jax.jit(agent.update, donate_argnums=0), (copies[0],), batch),
        "step by XLA": _chained(jax.jit(by_xla.update, donate_argnums=0), (copies[1],), batch),
        "gradient": lambda: find_gradient(learner.params, learner.target_params, batch),
        "optimizer": _chained(
            jax.jit(make_optimizer(config).step, donate_argnums=(0, 1)),
            (copies[2].params, copies[2].opt_state),
            gradient,
        ),
        "act": lambda: act(key, learner.params, jnp.int32(0), batch.obs[0], jnp.float32(0.01)),
    } | {
        f"pytorch, {threads}": isolated(_pytorch_step, config, jax.tree.map(np.asarray, batch), threads)
        for threads in _thread_numbers()
    }


def isolated(make: Callable[..., Callable[..., Any]], *arguments: Any) -> Callable[..., Any]:
    """What `make` returns for its arguments, in a process of its own, which ends with this one."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=_serve, args=(there, make, arguments), daemon=True).start()
    there.close()  # so that its end shows here

    def answer() -> Any:
        try:
            result = here.recv()
        except EOFError:
            raise UserError("a process of the benchmark ended early; what it wrote above says why") from None
        if isinstance(result, UserError):
            raise result
        return result

    answer()

    def call(*arguments: Any) -> Any:
        here.send(arguments)
        return answer()

    return call


def _serve(connection: Connection, make: Callable[..., Callable[..., Any]], arguments: tuple[Any, ...]) -> None:
    """Make a function, say that it is there, and call it whenever arguments come."""
    try:
        function = make(*arguments)
    except UserError as error:
        connection.send(error)
        return
    connection.send(None)
    while True:
        try:
            received = connection.recv()
        except EOFError:
            return
        connection.send(function(*received))


def _chained(function: Callable[..., Any], state: tuple[Any, ...], *rest: Any) -> Callable[[], Any]:
    """Calls of a function that takes over its state, the first of what it returns, from one to the next."""

    def call() -> Any:
        nonlocal state
        results = function(*state, *rest)
        state = results[: len(state)]
        return results

    return call


def _learner_row(
    num_heads: int, seconds: dict[str, list[float]], peak: float, memory: float, *, by_kernels: bool
) -> dict[str, Any]:
    """Compute the figures of one learner from the seconds of its parts and what the machine can do."""
    ms = {name: min(values) * 1e3 for name, values in seconds.items()}
    pytorch = min((name for name in seconds if name.startswith("pytorch")), key=ms.__getitem__)
    gflop = picture_update_flops(replace(CONFIG, num_heads=num_heads), _NUM_ACTIONS) / 1e9
    # By kernels, the gradient of the heads' weights is part of the optimizer, and is not in memory.
    optimizer_gflop = by_kernels * 2 * CONFIG.batch_size * num_heads * _NUM_FEATURES * CONFIG.hidden[0] / 1e9
    # Read and write the parameters and two moments; read the gradient.
    optimizer_gb = (6 + (not by_kernels)) * 4 * _num_parameters(num_heads) / 1e9
    return {
        "heads": num_heads,
        "ms": ms["step"],
        "median_ms": median(seconds["step"]) * 1e3,
        "gflop": gflop,
        "gflops": gflop / ms["step"] * 1e3,
        "share_of_gemm_peak": gflop / ms["step"] * 1e3 / peak,
        "xla_ms": ms["step by XLA"],
        "gradient_ms": ms["gradient"],
        "gradient_share_of_gemm_peak": (gflop - optimizer_gflop) / ms["gradient"] * 1e3 / peak,
        "optimizer_ms": ms["optimizer"],
        "optimizer_gflop": optimizer_gflop,
        "optimizer_gb": optimizer_gb,
        "optimizer_share_of_bandwidth": optimizer_gb / ms["optimizer"] * 1e3 / memory,
        "act_ms": ms["act"],
        "pytorch_ms": ms[pytorch],
        "pytorch_median_ms": median(seconds[pytorch]) * 1e3,
    }


def _num_parameters(num_heads: int) -> int:
    agent = make_agent(replace(CONFIG, num_heads=num_heads), _ENCODING, _NUM_ACTIONS)
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _random_batch(num_heads: int, size: int) -> Transition:
    rng = np.random.default_rng(0)
    obs, next_obs = (jnp.asarray(rng.integers(0, 256, (size, *PICTURES), np.uint8)) for _ in range(2))
    action = jnp.asarray(rng.integers(0, _NUM_ACTIONS, size, np.int32))
    reward = jnp.asarray(rng.normal(size=size), jnp.float32)
    return Transition(obs, action, reward, jnp.full(size, 0.99), next_obs, jnp.ones((size, num_heads)))


def _time_loops(peers: dict[str, Callable[[int], int]], report: Callable[[str], None]) -> dict[str, list[float]]:
    """Steps a second, in every turn, of whole trainings: the peers', and ours with heads and with slots.

    The peers have no double-Q targets, which take a third forward pass; so ours are timed without it, too.
    """
    settings = [(heads, 1, double_q) for double_q in (True, False) for heads in HEADS]
    settings += [(HEADS[-1], num_envs, True) for num_envs in SLOTS if num_envs > 1]
    players = peers | {
        _loop_name(heads, num_envs, double_q): isolated(
            _our_player, replace(CONFIG, num_heads=heads, double_q=double_q), num_envs
        )
        for heads, num_envs, double_q in settings
    }
    for play in players.values():  # until all learn, and have compiled
        play(CONFIG.learning_start_steps + SLOTS[-1])
    rates: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(LOOP_ROUNDS):
        for name, play in players.items():
            start = time.perf_counter()
            steps = play(LOOP_STEPS)
            rates[name].append(steps / (time.perf_counter() - start))
            report(f"{name}: {rates[name][-1]:.1f} steps/s")
    return rates


def _our_player(config: AgentConfig, num_envs: int) -> Callable[[int], int]:
    """(number of steps) -> trains our agent at least so long, and says how long."""
    envs = make_envs("atari:breakout", num_envs)
    return host_player(make_host_loop(envs, config))


def _loop_name(num_heads: int, num_envs: int, double_q: bool = True) -> str:
    return f"bootdqn, K={num_heads}" + ", no double-Q" * (not double_q) + f", {num_envs} slots" * (num_envs > 1)


def _stable_baselines_player(config: AgentConfig, threads: int) -> Callable[[int], int]:
    """(number of steps) -> trains stable-baselines3's DQN so long, on one environment, and says how long.

    It has its own optimizer, Adam; pictures, rewards and the ends of episodes are as ours.
    """
    try:
        import ale_py  # pyright: ignore[reportMissingImports]
        import cv2  # noqa: F401  # pyright: ignore[reportMissingImports]
        import gymnasium
        import torch  # pyright: ignore[reportMissingImports]
        from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common.env_util import make_atari_env  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common.vec_env import VecFrameStack  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(f"this benchmark needs other packages ({error}): pip install 'bootdqn[peers]'") from None
    gymnasium.register_envs(ale_py)
    model = DQN(
        "CnnPolicy",
        VecFrameStack(make_atari_env("BreakoutNoFrameskip-v4"), 4),
        learning_rate=config.learning_rate,
        buffer_size=config.replay_capacity,
        learning_starts=config.learning_start_steps,
        batch_size=config.batch_size,
        gamma=config.discount,
        train_freq=config.learning_period_steps,
        gradient_steps=1,
        target_update_interval=config.target_period_updates * config.learning_period_steps,
        exploration_initial_eps=config.epsilon_start,
        exploration_final_eps=config.epsilon_end,
        optimize_memory_usage=False,
        device="cpu",
        seed=0,
    )

    def play(steps: int) -> int:
        torch.set_num_threads(threads)
        start = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        return model.num_timesteps - start

    return play


def _thread_numbers() -> list[int]:
    """Numbers of threads to try with PyTorch: which is faster depends on what else the machine does."""
    return sorted({1, available_cores()})


def _pytorch_step(config: AgentConfig, batch: Transition, threads: int) -> Callable[[], None]:
    """The learner's step as it would be written in PyTorch: a module a head, run eagerly."""
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
                *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()),
            )
            self.heads = nn.ModuleList(
                nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, _NUM_ACTIONS))
                for _ in range(config.num_heads)
            )

        def forward(self, pictures: Any) -> Any:
            features = self.trunk(pictures.float() / 255)
            if features.requires_grad:
                features.register_hook(lambda gradient: gradient / config.num_heads)
            return torch.stack([head(features) for head in self.heads], 1)

    online, target = Network(), Network()
    target.load_state_dict(online.state_dict())
    epsilon = 0.1 / config.batch_size
    optimizer = torch.optim.RMSprop(online.parameters(), config.learning_rate, 0.95, epsilon, centered=True)
    obs, action, reward, discount, next_obs, mask = (torch.from_numpy(np.array(field)) for field in batch)
    chosen = action.long()[:, None, None].expand(-1, config.num_heads, 1)

    def step() -> None:
        torch.set_num_threads(threads)
        with torch.no_grad():
            best = online(next_obs).argmax(2, keepdim=True)
            following = target(next_obs).gather(2, best)[..., 0]
            goal = reward.clamp(-1, 1)[:, None] + discount[:, None] * following
        predicted = online(obs).gather(2, chosen)[..., 0]
        loss = (mask * nn.functional.smooth_l1_loss(predicted, goal, reduction="none")).mean(0).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _environment_rate(num_envs: int, repeats: int = 3) -> float:
    """Steps a second of environments alone, under random actions: the best of several."""
    envs = make_envs("atari:breakout", num_envs)
    envs.reset(range(num_envs))
    rng = np.random.default_rng(0)

    def step() -> None:
        envs.step(rng.integers(0, envs.num_actions, num_envs))

    ticks = max(1, ENV_STEPS // num_envs)
    best = min(_mean_seconds(step, ticks) for _ in range(repeats))
    envs.close()
    return num_envs / best


def _take_turns(functions: dict[Any, Callable[[], Any]], rounds: int, calls: int) -> dict[Any, list[float]]:
    """Seconds of every call of functions that take turns, after one of each to warm up."""
    for function in functions.values():
        jax.block_until_ready(function())
    seconds: dict[Any, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            for _ in range(calls):
                start = time.perf_counter()
                jax.block_until_ready(function())
                seconds[name].append(time.perf_counter() - start)
    return seconds


def _mean_seconds(function: Callable[[], object], count: int) -> float:
    """Mean seconds per call, after one call to warm up."""
    function()
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count
