"""One run: an agent trained on an environment, for several seeds, recorded in a run directory."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from bootdqn.agent import AGENTS, AgentConfig
from bootdqn.cards import EXPLORATION_COLUMNS, Trained, survey_heads
from bootdqn.envs.catalog import env_spec, make_env
from bootdqn.envs.host import is_on_host
from bootdqn.errors import UserError, require, require_known, require_types
from bootdqn.figures import AGENT_COLOURS, Below, running_mean, save_learning_curve
from bootdqn.loops.compiled import CompiledTraining, EpisodeMetrics, Exploration
from bootdqn.loops.groups import Chunk, available_cores
from bootdqn.loops.tabular import TabularMetrics, TabularTraining
from bootdqn.memory import require_memory
from bootdqn.progress import Progress, stop_on_signal
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoint, Checkpoints, Replay
from bootdqn.runs.directory import (
    RunDirectory,
    csv_text,
    read_json,
    require_unfinished,
    write_atomically,
    write_json,
)
from bootdqn.runs.models import save_model
from bootdqn.stats import episodes_to_learn
from bootdqn.tabular.agents import TABULAR_AGENTS, TabularAgent
from bootdqn.types import Agent, Belief, Env, Params, Transition, UpdateMetrics
from bootdqn.xray_figure import save_xray

NAMED_AGENTS: dict[str, AgentConfig | TabularAgent] = {**AGENTS, **TABULAR_AGENTS}
"""All that can be trained by name: configurations of the deep agent, and agents that see the state."""
COLUMNS = (
    "seed",
    "episode",
    "steps",
    "return",
    "regret",
    "greedy_return",
    "head",
    "epsilon",
    "updates",
    "loss",
    "q_mean",
    "q_spread",
)
"""Of `metrics.csv`; docs/architecture.md says what each means."""
TABULAR_COLUMNS = COLUMNS[: COLUMNS.index("regret") + 1]
"""The same for agents that see the state."""

_CHUNKS_BETWEEN_CHECKPOINTS = 60
"""Of a core: about half a minute."""
AnyChunk = Chunk[EpisodeMetrics] | Chunk[TabularMetrics]


class Onlooker(NamedTuple):
    """Who watches a training, and may end it: see `run_training`."""

    progress: bool
    told_to_stop: Callable[[], bool]
    report: Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What a run does."""

    env: str
    """The environment's name, such as `chain:50`."""
    agent_name: str = "boot"
    """The named configuration that `agent` started from."""
    agent: AgentConfig | TabularAgent = AGENTS["boot"]
    """The agent's full configuration."""
    episodes: int = 500
    """Training episodes a seed."""
    num_seeds: int = 1
    """How many independent trainings."""
    seed: int = 0
    """Seed of the first; the others count up from it."""

    def __post_init__(self):
        require_types(self)
        require(self.episodes >= 1, f"episodes must be at least 1, got {self.episodes}")
        require(self.episodes < 2**31, f"episodes must be below 2**31, got {self.episodes}")
        require(self.num_seeds >= 1, f"seeds must be at least 1, got {self.num_seeds}")
        require(self.seed >= 0, f"seed must not be negative, got {self.seed}")
        require(self.seed + self.num_seeds <= 2**32, f"seeds must be below 2**32, got {self.seed}")
        require_known("agent", self.agent_name, NAMED_AGENTS)

    @property
    def deep(self) -> AgentConfig:
        """The agent's configuration, where it is known to be a deep one."""
        assert isinstance(self.agent, AgentConfig)
        return self.agent

    @property
    def dithers(self) -> bool:
        """Whether random actions never cease: such an agent is judged without them."""
        return self.agent.dithers if isinstance(self.agent, AgentConfig) else self.agent.epsilon > 0

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the run."""
        return tuple(range(self.seed, self.seed + self.num_seeds))


@dataclass(frozen=True)
class TrainResult:
    """What a run left in memory."""

    config: TrainConfig
    env: Env
    agent: Agent | TabularAgent
    metrics: dict[int, EpisodeMetrics | TabularMetrics]
    """By seed; every field [episodes]."""
    params: dict[int, Params]
    """Online parameters by seed; none for an agent that sees the state."""
    interrupted: bool
    """Whether the run was stopped before its last episode."""
    path: Path | None
    """The run directory."""
    exploration: dict[int, Exploration]
    """By seed, where training has been; none for an agent that sees the state."""

    def optimal(self, *, greedy: bool | None = None) -> dict[int, np.ndarray]:
        """By seed, whether each episode was optimal; for agents that see the state, whether its policy was.

        Args:
            greedy: the evaluations by vote, without dithering, in place of the training episodes. By default
                only where the agent dithers: as the paper has it (appendix C), it is not judged by that.
        """
        greedy = self.config.dithers if greedy is None else greedy
        return {seed: np.asarray(m.greedy_optimal if greedy else m.optimal) for seed, m in self.metrics.items()}

    def episodes_to_learn(self, *, greedy: bool | None = None) -> dict[int, int | None]:
        """By seed, the episode that was the 100th optimal one; None where there were fewer.

        Args:
            greedy: which episodes count, as for `optimal`.
        """
        return {seed: episodes_to_learn(flags) for seed, flags in self.optimal(greedy=greedy).items()}

    def regret(self) -> dict[int, np.ndarray]:
        """By seed, what the actions of each episode lost in expectation."""
        return {seed: np.asarray(m.regret) for seed, m in self.metrics.items()}

    def belief(self, obs: Any, seed: int | None = None) -> Belief:
        """What the heads of one seed (the first by default) now say about an observation.

        Args:
            obs: the number of a state, as the environment gives it.
            seed: whose heads.
        """
        if not isinstance(self.agent, Agent):
            raise UserError(f"{self.config.agent_name} has no heads that could believe anything; boot has")
        seed = self.config.seed if seed is None else seed
        require(seed in self.params, f"seed must be one of {', '.join(map(str, self.params))}, got {seed!r}")
        encoding = self.env.encoding
        last = encoding.num_states - (encoding.kind != "one_hot")  # one more, in which DeepSea ends, has no input
        states = f"an observation is the number of a state, 0 to {last}, got {obs!r}"
        require(np.ndim(obs) == 0 and np.asarray(obs).dtype.kind in "iu" and 0 <= obs <= last, states)
        params = self.params[seed]
        learner = jax.eval_shape(self.agent.init, jax.random.key(0))._replace(params=params)
        return self.agent.belief(learner, jax.numpy.asarray(obs))


def train(
    env: str | Env,
    agent: str = "boot",
    *,
    episodes: int = 500,
    num_seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool = False,
    trunk: Callable[[Array], Any] | None = None,
    **options: Any,
) -> TrainResult:
    """Train an agent on an environment; on Ctrl-C, record what was done and raise `KeyboardInterrupt`.

    Args:
        env: a name such as `chain:50`, or a `Chain`, `DeepSea`, `StochasticChain` or `RiverSwim`.
        agent: one of `dqn`, `ensemble`, `thompson`, `boot`, `boot+`; or one that sees the state, such as `psrl`.
        episodes: training episodes a seed.
        num_seeds: how many independent trainings, side by side.
        seed: of the first; the others count up from it.
        out: a run directory to write; none by default.
        progress: show it.
        trunk: (key) -> an Equinox module that heads share, from the encoded observation to features.
        options: fields that differ from the named agent's: of `AgentConfig`, such as `num_heads=20`, or of its
            class in `bootdqn.tabular.agents`.
    """
    require_known("agent", agent, NAMED_AGENTS)
    if isinstance(env, str):
        require(not is_on_host(env), f"{env} is not one of ours: BootstrappedDQN({env!r}).learn() trains on it")
    default = NAMED_AGENTS[agent]
    for name in options:
        known = [*(f.name for f in dataclasses.fields(default)), *inspect.signature(train).parameters]
        require_known(f"option of {agent}", name, known)
    config = TrainConfig(
        env=env if isinstance(env, str) else env_spec(env),
        agent_name=agent,
        agent=dataclasses.replace(default, **options),
        episodes=episodes,
        num_seeds=num_seeds,
        seed=seed,
    )
    command = f"bootdqn.train({config.env!r}, {agent!r}, {episodes=}, {num_seeds=}, {seed=}"
    command += "".join(f", {name}={value!r}" for name, value in options.items()) + ")"
    result = run_training(
        config, command=command, out=None if out is None else Path(out), progress=progress, trunk=trunk
    )
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def run_training(
    config: TrainConfig,
    *,
    command: str,
    out: Path | None,
    progress: bool = True,
    told_to_stop: Callable[[], bool] = lambda: False,
    report: Callable[[float], None] = lambda share: None,
    trunk: Callable[[Array], Any] | None = None,
) -> TrainResult:
    """Carry out `config`; the first Ctrl-C ends it early and in good order.

    Args:
        config: what to do.
        command: that asked for it, for the record.
        out: the run directory, or None to leave nothing on disk.
        progress: show it.
        told_to_stop: whether to stop, as a signal does.
        report: is told which share is done.
        trunk: as for `train`.
    """
    env = make_env(config.env)
    config = dataclasses.replace(config, env=env_spec(env))
    training = make_training(env, config, trunk)
    advice = "use fewer --seeds or, with a deep agent, a smaller --replay-capacity"
    require_memory(training.memory_bytes(), advice)
    onlooker = Onlooker(progress, told_to_stop, report)
    if out is None:
        return _train(training, config, None, onlooker)
    columns = COLUMNS if isinstance(training, CompiledTraining) else TABULAR_COLUMNS
    record = dataclasses.asdict(config)
    directory = RunDirectory(out, config=record, command=command, tables={"metrics.csv": columns})
    checkpoints = Checkpoints(out) if trunk is None else None  # no file could bring back a user's trunk
    return _train_and_record(training, config, directory, checkpoints, onlooker)


def resume_training(
    path: Path,
    *,
    progress: bool = True,
    told_to_stop: Callable[[], bool] = lambda: False,
    report: Callable[[float], None] = lambda share: None,
) -> TrainResult:
    """Go on with a run from its last good checkpoint, to the bits that it would have had without the stop.

    Args:
        path: the run directory.
        progress: show it.
        told_to_stop: whether to stop, as a signal does.
        report: is told which share is done.
    """
    require_unfinished(path)
    config = parse_train_config(read_json(path / "config.json"), path / "config.json")
    training = make_training(make_env(config.env), config)
    require_memory(training.memory_bytes(), "close something else")
    checkpoints = Checkpoints(path)
    checkpoint = checkpoints.load(print)
    if checkpoint is None:
        raise UserError(f"{path} holds no checkpoint that is whole; start the run again")
    directory = RunDirectory.reopen(path, checkpoint.info["ends"])
    for name in ("exploration.csv", "heads.json"):  # of when it was stopped
        (path / name).unlink(missing_ok=True)
    return _train_and_record(
        training, config, directory, checkpoints, Onlooker(progress, told_to_stop, report), checkpoint
    )


def parse_train_config(record: dict[str, Any], path: Path) -> TrainConfig:
    """The configuration that a run's `config.json` holds."""
    try:
        kind: Any = type(NAMED_AGENTS[record["agent_name"]])
        return TrainConfig(**{**record, "agent": kind(**parse_fields(record["agent"]))})
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is not of this version: {error}") from None


def parse_fields(record: dict[str, Any]) -> dict[str, Any]:
    """Fields of a configuration, from JSON: lists become the tuples that they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}


def _train_and_record(
    training: CompiledTraining | TabularTraining,
    config: TrainConfig,
    directory: RunDirectory,
    checkpoints: Checkpoints | None,
    onlooker: Onlooker,
    checkpoint: Checkpoint | None = None,
) -> TrainResult:
    """Train, from a checkpoint or from the beginning, and say in the run directory how it ended."""
    try:
        result = _train(training, config, directory, onlooker, checkpoints, checkpoint)
        _record(directory, result)
        if checkpoints is not None and not result.interrupted:
            checkpoints.remove()
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        directory.finish(status, error=str(error) or type(error).__name__)
        raise
    return result


def make_training(
    env: Env, config: TrainConfig, trunk: Callable[[Array], Any] | None = None
) -> CompiledTraining | TabularTraining:
    """The loop that suits the agent; `trunk` is as for `train`."""
    if isinstance(config.agent, AgentConfig):
        return CompiledTraining(env, config.agent, seeds=config.seeds, episodes=config.episodes, trunk=trunk)
    require(trunk is None, f"{config.agent_name} has no network, and so no trunk")
    return TabularTraining(env, config.agent, seeds=config.seeds, episodes=config.episodes)


def _train(
    training: CompiledTraining | TabularTraining,
    config: TrainConfig,
    directory: RunDirectory | None,
    onlooker: Onlooker,
    checkpoints: Checkpoints | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainResult:
    """Run the loop, with its progress shown, its metrics written and its state kept."""
    bar = Progress(
        f"{config.env} {config.agent_name}",
        episodes=config.episodes,
        num_seeds=config.num_seeds,
        horizon=training.env.horizon,
        visible=onlooker.progress,
    )
    metrics: dict[int, EpisodeMetrics | TabularMetrics] = {}
    first = 0
    if checkpoint is not None:
        first = checkpoint.step
        metrics = _restore(training, checkpoint, config)
    busy_cores = min(available_cores(), config.num_seeds)
    between = max(1, _CHUNKS_BETWEEN_CHECKPOINTS * busy_cores // config.num_seeds)
    with stop_on_signal() as signalled, bar:

        def should_stop() -> bool:
            return signalled() or onlooker.told_to_stop()

        def observe(chunk: AnyChunk) -> None:
            bar.update(chunk)
            onlooker.report((chunk.first_episode + chunk.metrics.episode_return.shape[1]) / config.episodes)

        training.compile()
        bar.start()
        if checkpoints is not None and directory is not None and checkpoint is None:
            _save_checkpoint(checkpoints, directory, training, 0, metrics)
        while first < training.num_chunks and not should_stop():
            end = min(training.num_chunks, first + between) if checkpoints else training.num_chunks
            chunks = training.chunks(should_stop, first=first, end=end, even=checkpoints is not None)
            new = gather_by_seed(_recorded(chunks, directory, config, training.env.horizon), observe)
            metrics = _joined(metrics, new)
            if not new or checkpoints is None or directory is None:
                break
            done = len(next(iter(new.values())).episode_return)
            first += -(-done // training.chunk_episodes)
            _save_checkpoint(checkpoints, directory, training, first, metrics)
    done = sum(len(m.episode_return) for m in metrics.values())
    return TrainResult(
        config,
        training.env,
        training.agent,
        metrics,
        training.params() if isinstance(training, CompiledTraining) else {},
        interrupted=done < config.episodes * config.num_seeds,
        path=None if directory is None else directory.path,
        exploration=training.exploration() if isinstance(training, CompiledTraining) else {},
    )


def _joined(
    before: dict[int, EpisodeMetrics | TabularMetrics], after: dict[int, EpisodeMetrics | TabularMetrics]
) -> dict[int, EpisodeMetrics | TabularMetrics]:
    """Metrics of every seed, one after the other."""
    if not before:
        return after
    return {
        seed: jax.tree.map(lambda *xs: np.concatenate(xs), old, after[seed]) if seed in after else old
        for seed, old in before.items()
    }


def _save_checkpoint(
    checkpoints: Checkpoints,
    directory: RunDirectory,
    training: CompiledTraining | TabularTraining,
    num_chunks: int,
    metrics: dict[int, EpisodeMetrics | TabularMetrics],
) -> None:
    """Keep the states of all seeds, which have had so many chunks, and their metrics so far."""
    states: list[Any] = list(training.states())
    replays: list[Replay] = []
    if isinstance(training, CompiledTraining):
        rings = [state.replay for state in states]
        replays = [Replay(int(ring.added), training.capacity, _replay_rows(ring.data)) for ring in rings]
        states = [state._replace(replay=state.replay._replace(data=None)) for state in states]
    arrays = named_arrays({"states": states, "metrics": {str(seed): m for seed, m in metrics.items()}})
    checkpoints.save(num_chunks, info={"ends": directory.ends()}, arrays=arrays, replays=replays)


def _replay_rows(data: Transition) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Rows of a replay of several seeds [S, capacity, ...], positions first."""

    def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
        return {name: np.asarray(field[:, positions]).swapaxes(0, 1) for name, field in data._asdict().items()}

    return rows


def _restore(
    training: CompiledTraining | TabularTraining, checkpoint: Checkpoint, config: TrainConfig
) -> dict[int, EpisodeMetrics | TabularMetrics]:
    """Bring all seeds to where a checkpoint says they were; returns their metrics so far."""
    shapes: list[Any] = list(training.state_shapes())
    like = shapes
    if isinstance(training, CompiledTraining):
        like = [state._replace(replay=state.replay._replace(data=None)) for state in shapes]
    states = restore({"states": like}, checkpoint.arrays, "the checkpoint")["states"]
    if isinstance(training, CompiledTraining):
        states = [
            state._replace(replay=state.replay._replace(data=_replay_data(fields, shape.replay.data)))
            for state, fields, shape in zip(states, checkpoint.replays, shapes, strict=True)
        ]
    training.set_states(states)
    found: dict[int, EpisodeMetrics | TabularMetrics] = {}
    for seed in config.seeds if checkpoint.step else ():
        prefix = f"metrics.{seed}."
        parts: dict[str, Any] = {
            name.removeprefix(prefix): array
            for name, array in checkpoint.arrays.items()
            if name.startswith(prefix)
        }
        if isinstance(training, CompiledTraining):
            updates = {name: parts.pop(f"updates.{name}") for name in UpdateMetrics._fields}
            found[seed] = EpisodeMetrics(**parts, updates=UpdateMetrics(**updates))
        else:
            found[seed] = TabularMetrics(**parts)
    return found


def _replay_data(fields: dict[str, Any], shapes: Transition) -> Transition:
    """The replay of several seeds [S, capacity, ...] from rows with positions first; zeros where there is none."""
    data: dict[str, Any] = {
        name: np.ascontiguousarray(fields[name].swapaxes(0, 1)) if fields else np.zeros(shape.shape, shape.dtype)
        for name, shape in shapes._asdict().items()
    }
    return Transition(**data)


def gather_by_seed(
    chunks: Iterator[AnyChunk], observe: Callable[[AnyChunk], None]
) -> dict[int, EpisodeMetrics | TabularMetrics]:
    """All chunks joined, by seed; `observe` is shown each."""
    parts: dict[int, list[EpisodeMetrics | TabularMetrics]] = {}
    for chunk in chunks:
        for index, seed in enumerate(chunk.seeds):
            parts.setdefault(seed, []).append(jax.tree.map(lambda x, i=index: x[i], chunk.metrics))
        observe(chunk)
    return {seed: jax.tree.map(lambda *xs: np.concatenate(xs), *parts[seed]) for seed in sorted(parts)}


def _recorded(
    chunks: Iterator[AnyChunk], directory: RunDirectory | None, config: TrainConfig, horizon: int
) -> Iterator[AnyChunk]:
    """Pass chunks on once they are on disk and found finite."""
    for chunk in chunks:
        if directory is not None:
            directory.append("metrics.csv", _rows(chunk, config, horizon))
        for seed in chunk.seeds:
            require_finite(chunk, config, seed=seed)
        yield chunk


def require_finite(chunk: AnyChunk, config: TrainConfig, *, seed: int, end: int | None = None) -> None:
    """Raise `UserError` if something is not finite, in one seed and before the episode number `end`."""
    metrics, row = chunk.metrics, chunk.seeds.index(seed)
    is_deep = isinstance(metrics, EpisodeMetrics)
    finite = np.isfinite(metrics.updates.loss[row]) if is_deep else np.asarray(metrics.finite[row])
    bad = np.flatnonzero(~finite[: None if end is None else end - chunk.first_episode])
    if len(bad):
        what, advice = (
            ("the loss", f"a smaller learning rate (now {config.deep.learning_rate:g}) or the huber loss may help")
            if is_deep
            else ("a value", "some parameter of the agent is too large or too small for single precision")
        )
        raise UserError(
            f"training diverged: {what} of seed {seed} is no longer finite in episode "
            f"{chunk.first_episode + bad[0] + 1}; {advice}"
        )


def _rows(chunk: AnyChunk, config: TrainConfig, horizon: int) -> Iterator[tuple[Any, ...]]:
    """Rows of `metrics.csv`, by episode and then by seed."""
    m = chunk.metrics
    for index in range(m.episode_return.shape[1]):
        episode = chunk.first_episode + index + 1
        for row, seed in enumerate(chunk.seeds):
            at = row, index
            cells = (seed, episode, episode * horizon, m.episode_return[at], m.regret[at])
            yield (*cells, *_deep_cells(m, at, config.deep)) if isinstance(m, EpisodeMetrics) else cells


def _deep_cells(m: EpisodeMetrics, at: tuple[int, int], config: AgentConfig) -> tuple[Any, ...]:
    """The columns that only deep agents have."""
    learned = m.num_updates[at] > 0
    return (
        m.greedy_return[at],
        m.head[at] if config.acting == "committed_head" else "",
        m.epsilon[at],
        m.num_updates[at],
        *(values[at] if learned else "" for values in m.updates),
    )


def _record(directory: RunDirectory, result: TrainResult) -> None:
    """Models, the figure and how it ended."""
    encoding = result.env.encoding
    about = {
        "config": dataclasses.asdict(result.config),
        "observations": {"discrete": encoding.size, "start": 0},
        "encoding": dataclasses.asdict(encoding),
        "num_actions": result.env.num_actions,
        "first_action": 0,
    }
    for seed, params in result.params.items():
        save_model(directory.path / "models" / f"seed{seed}.safetensors", params, about)
    if result.metrics:
        _draw(directory.path / "learning_curve", result)
        _record_heads(directory.path, result)
    learned = {}
    if isinstance(result.config.agent, AgentConfig):
        learned = {
            "episodes_to_learn": result.episodes_to_learn(greedy=False),
            "greedy_episodes_to_learn": result.episodes_to_learn(greedy=True),
        }
    directory.finish(
        "interrupted" if result.interrupted else "finished",
        regret={seed: float(regrets.sum(dtype=float)) for seed, regrets in result.regret().items()},
        **learned,
    )


def _record_heads(path: Path, result: TrainResult) -> None:
    """Where training has been, what heads now believe there, and what each is worth."""
    if not isinstance(result.agent, Agent):
        return
    trained = {
        seed: Trained(result.params[seed], np.asarray(metrics.head), result.exploration[seed])
        for seed, metrics in result.metrics.items()
        if isinstance(metrics, EpisodeMetrics)
    }
    cards, rows = survey_heads(result.env, result.agent, result.config.deep, trained)
    write_atomically(path / "exploration.csv", csv_text([EXPLORATION_COLUMNS, *rows]).encode())
    if result.config.deep.num_heads > 1:
        write_json(path / "heads.json", {"cards": cards})
    save_xray(path)


def _draw(stem: Path, result: TrainResult) -> None:
    """Returns, and below how far heads disagree or, for an agent that has none, the regret."""
    by_seed = list(result.metrics.values())
    deep = [m for m in by_seed if isinstance(m, EpisodeMetrics)]
    if not deep:
        below = Below("regret so far", [np.cumsum(m.regret) for m in by_seed])
    elif result.config.deep.num_heads > 1:
        spread = [np.where(m.num_updates > 0, m.updates.q_spread, np.nan) for m in deep]
        # A head that diverges would hide all others.
        below = Below("std of Q over heads", [running_mean(values) for values in spread], log_y=True)
    else:
        below = None
    save_learning_curve(
        stem,
        f"{result.config.agent_name} on {result.config.env}",
        returns=[m.episode_return for m in by_seed],
        greedy=[m.greedy_return for m in deep],
        below=below,
        best=result.env.solved_return,
        colour=AGENT_COLOURS[result.config.agent_name],
    )
