"""One training on a Gymnasium environment, evaluated, recorded, and able to go on after a kill."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import gymnasium
import jax
import numpy as np
from jax import Array

from bootdqn.actors import THROUGHPUT, ActorTraining, Cluster, Setting
from bootdqn.agent import AGENTS, ATARI_AGENTS, GYM_AGENTS, AgentConfig
from bootdqn.cards import card_of, data_share
from bootdqn.envs.atari import is_atari, protocol_card, protocol_line
from bootdqn.envs.host import Envs, EnvSource, Vectorization, env_name, make_envs, make_more
from bootdqn.envs.observations import Observations
from bootdqn.errors import UserError, require, require_known, require_types
from bootdqn.figures import AGENT_COLOURS, save_run_curve
from bootdqn.kernels import why_not
from bootdqn.loops.evaluate import MEAN, VOTE, Evaluation, evaluate, make_chooser, policy_name
from bootdqn.loops.host import Counters, Episode, HostTraining, Learned
from bootdqn.memory import require_memory
from bootdqn.progress import StepProgress, stop_on_signal
from bootdqn.replay.device import Ring
from bootdqn.runs.arrays import named_arrays, restore
from bootdqn.runs.checkpoint import Checkpoint, Checkpoints, Replay
from bootdqn.runs.directory import RunDirectory, read_json, require_unfinished, write_json
from bootdqn.runs.models import save_model
from bootdqn.training import parse_fields
from bootdqn.types import Params, Transition
from bootdqn.xray_figure import save_xray

METRICS = (
    *("step", "episode", "slot", "return", "length", "terminated", "head", "epsilon", "updates"),
    *("loss", "q_mean", "q_spread"),
)
"""Columns of `metrics.csv`: one row an episode; docs/architecture.md says what each means."""
EVALUATIONS = (
    "step",
    "policy",
    "episodes",
    "mean_return",
    "least_return",
    "largest_return",
    "entropy",
    "data_share",
)
"""Columns of `evaluations.csv`: one row an evaluation and policy."""


@dataclass(frozen=True, kw_only=True)
class GymConfig:
    """What a run on a Gymnasium environment does."""

    env: str | None
    """The environment's name; None for one that has none, which cannot be resumed by name."""
    agent_name: str = "boot"
    """The named configuration that `agent` started from."""
    agent: AgentConfig = GYM_AGENTS["boot"]
    """The agent's full configuration."""
    steps: int = 50_000
    """Environment steps, over all slots."""
    seed: int = 0
    """Of everything."""
    num_envs: int = 1
    """Slots: copies of the environment, each with its own head."""
    vectorization: Vectorization = "sync"
    """Slots in this process, in a process each, or as the environment's own vector version."""
    evaluate_every_steps: int = 10_000
    """Steps from one evaluation to the next; 0 for none."""
    evaluation_episodes: int = 5
    """Episodes an evaluation and policy."""
    evaluation_steps: int = 0
    """Steps that the vote plays in an evaluation, in place of episodes, in four environments; the mean and the
    heads play in the last evaluation only, a quarter of that each. 0 for episodes."""
    evaluation_epsilon: float = 0.0
    """Probability of a uniformly random action in evaluations."""
    checkpoint_every_steps: int = 20_000
    """Steps from one checkpoint to the next; all slots then start fresh episodes."""
    num_actors: int = 0
    """Processes in a Ray cluster that play, each with `num_envs` slots of its own; 0 to play here."""
    max_staleness_updates: int = 200
    """Updates that the parameters of such actors may lack."""

    def __post_init__(self):
        require_types(self)
        require_known("agent", self.agent_name, AGENTS)
        require_known("vectorization", self.vectorization, get_args(Vectorization))
        for name in (
            "seed",
            "steps",
            "num_envs",
            "evaluate_every_steps",
            "evaluation_episodes",
            "evaluation_steps",
            "checkpoint_every_steps",
            "num_actors",
            "max_staleness_updates",
        ):
            value = getattr(self, name)
            least = 0 if name in ("seed", "evaluate_every_steps", "evaluation_steps", "num_actors") else 1
            require(value >= least, f"{name} must be at least {least}, got {value}")
        epsilon = self.evaluation_epsilon
        require(0 <= epsilon <= 1, f"evaluation_epsilon must be in [0, 1], got {epsilon}")
        require(self.steps < 2**31, f"steps must be below 2**31, got {self.steps}")
        require(self.seed < 2**32, f"seed must be below 2**32, got {self.seed}")


def parse_config(record: dict[str, Any], path: Path) -> GymConfig:
    """The configuration that a run's `config.json`, or a model's header, holds."""
    try:
        if "episodes" in record:  # of a run on one of our own environments: what a model needs of it
            record = {name: record[name] for name in ("env", "agent_name", "agent", "seed")}
        return GymConfig(**{**record, "agent": AgentConfig(**parse_fields(record["agent"]))})
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is not of this version: {error}") from None


def default_config(env: str | None, agent: str) -> GymConfig:
    """The configuration of a named agent for an environment; for Atari, the paper's."""
    require_known("agent", agent, GYM_AGENTS)
    if env is None or not is_atari(env):
        return GymConfig(env=env, agent_name=agent, agent=GYM_AGENTS[agent])
    return GymConfig(
        env=env,
        agent_name=agent,
        agent=ATARI_AGENTS[agent],
        steps=50_000_000,
        evaluate_every_steps=250_000,
        evaluation_steps=125_000,
        evaluation_epsilon=0.05,
        checkpoint_every_steps=100_000,
    )


Callback = Callable[[Any], None]
_VOTE_SLOTS = 4
"""Environments side by side in which the vote plays its steps of an evaluation."""


class GymRun:
    """One training: from its beginning, or from where a run directory says that it stands."""

    def __init__(
        self,
        config: GymConfig,
        source: EnvSource | None = None,
        *,
        envs: Envs | None = None,
        out: Path | None = None,
        command: str = "",
        trunk: Callable[[Array], Any] | None = None,
        address: str | None = None,
        show: Callable[[str], None] = print,
    ):
        """Claim `out`, and allocate; say how much.

        Args:
            config: what to do.
            source: the environment, where it is not just that which `config` names.
            envs: its slots, if they are already made.
            out: the run directory; none by default.
            command: that asked for it, for the record.
            trunk: as for `make_network`.
            address: of the Ray cluster where actors play, as for `join_cluster`.
            show: is told what is about to be done.
        """
        self._set_up(config, source, envs, trunk, address, show)
        self.directory = None
        self.training.begin()
        if out is not None:
            record = dataclasses.asdict(config)
            tables = {"metrics.csv": METRICS, "evaluations.csv": EVALUATIONS}
            if config.num_actors:
                tables["actors.csv"] = THROUGHPUT
            self.directory = RunDirectory(out, config=record, command=command, tables=tables)
            self._checkpoints = Checkpoints(out)
            try:
                if self.protocol is not None:
                    write_json(out / "protocol.json", self.protocol)
                self._save_checkpoint()
            except BaseException as error:
                self._fail(error)
                raise

    @classmethod
    def resume(
        cls,
        path: Path,
        source: EnvSource | None = None,
        *,
        trunk: Callable[[Array], Any] | None = None,
        address: str | None = None,
        show: Callable[[str], None] = print,
    ) -> GymRun:
        """Go on with the run in `path`, from its last good checkpoint; `source` is needed where it has no name."""
        require_unfinished(path)
        record = read_json(path / "config.json")
        require(
            "episodes" not in record, f"{path} is a run on one of our own environments: `bootdqn resume {path}`"
        )
        self = cls.__new__(cls)
        config = parse_config(record, path / "config.json")
        self._set_up(config, source, None, trunk, address, show)
        if self.protocol is not None:
            _require_same_protocol(self.protocol, path / "protocol.json")
        self._checkpoints = Checkpoints(path)
        checkpoint = self._checkpoints.load(show)
        if checkpoint is None:
            raise UserError(f"{path} holds no checkpoint that is whole; start the run again")
        self.directory = RunDirectory.reopen(path, checkpoint.info["ends"])
        try:
            self._restore(checkpoint, path)
        except BaseException as error:
            self._fail(error)
            raise
        return self

    def _set_up(
        self,
        config: GymConfig,
        source: EnvSource | None,
        envs: Envs | None,
        trunk: Callable[[Array], Any] | None,
        address: str | None,
        show: Callable[[str], None],
    ) -> None:
        given = source if source is not None else config.env
        if given is None:
            raise UserError(
                "the environment of this run has no name; give the environment, or a function that makes it"
            )
        self.config = config
        self.source = given
        self.protocol: dict[str, Any] | None = None
        """Of an Atari game: what decides what its scores mean."""
        if config.env is not None and is_atari(config.env):
            self.protocol = protocol_card(
                config.env,
                clip_rewards=config.agent.clip_rewards,
                evaluation_epsilon=config.evaluation_epsilon,
            )
        common: dict[str, Any] = {"seed": config.seed, "steps": config.steps, "trunk": trunk}
        if config.num_actors:
            require(
                envs is None and not isinstance(given, gymnasium.Env),
                "actors make environments of their own; give a name, or a function that makes one",
            )
            setting = Setting(given, config.num_envs, config.vectorization, config.agent, trunk, config.seed)
            cluster = Cluster(address, config.num_actors, setting)
            self.envs: Envs | Cluster = cluster
            staleness = config.max_staleness_updates
            self.training = ActorTraining(cluster, config.agent, max_staleness=staleness, **common)
            show(
                f"{config.num_actors} actors with {config.num_envs} environments each, in rounds of "
                f"{self.training.ticks} steps: their parameters lack at most {staleness} updates"
            )
        else:
            self.envs = envs or make_envs(given, config.num_envs, config.vectorization)
            self.training = HostTraining(self.envs, config.agent, **common)
        needed = self.training.memory_bytes()
        require_memory(needed, "a smaller replay_capacity may do")
        show(f"parameters, optimizer and a replay of {self.training.capacity:,} steps take {needed / 1e6:.1f} MB")
        self.chooser = make_chooser(self.training.agent)
        self._evaluation_envs: dict[int, Envs] = {}
        if config.evaluate_every_steps:  # what cannot be evaluated shows now
            self._envs_for_evaluation(_VOTE_SLOTS if config.evaluation_steps else len(self._policies()))
        self.best = -np.inf
        self.best_params: Params = None
        self.last_evaluation: tuple[int, list[Evaluation]] | None = None
        self._checkpoint_seconds = 0.0
        self._due_from: int | None = None
        """The step before the last tick, if what is due after that has not been done."""

    def run(
        self,
        *,
        progress: bool = False,
        tensorboard: bool = False,
        on_episode: Callback | None = None,
        on_evaluation: Callback | None = None,
        told_to_stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train to the last step; returns whether it got there, and was not stopped.

        Args:
            progress: show it.
            tensorboard: also write event files into the run directory.
            on_episode: is given every `Episode` that ends.
            on_evaluation: is given the list of every `Evaluation`.
            told_to_stop: whether to stop, as a signal does.
        """
        title = f"{self.config.env or 'environment'} {self.config.agent_name}"
        bar = StepProgress(
            title, steps=self.config.steps, begun_with=self.training.counters.step, visible=progress
        )
        start = time.perf_counter()
        try:
            writer = _tensorboard_writer(self.directory) if tensorboard else None
            with stop_on_signal() as signalled, bar:

                def should_stop() -> bool:
                    return signalled() or told_to_stop()

                compiled = False
                self._do_what_is_due(writer, on_evaluation, should_stop)
                while self.training.counters.step < self.config.steps and not (
                    should_stop() and self.training.settled
                ):
                    self._advance(bar, writer, on_episode, on_evaluation, should_stop)
                    if self.training.counters.updates and not compiled:
                        bar.start(self.training.counters.step)
                        compiled = True
                complete = self.training.counters.step >= self.config.steps and self._due_from is None
                self.training.require_finite_parameters()
                if self.directory is not None and not complete:
                    self._save_checkpoint()
            if self.directory is not None:
                self._finish("finished" if complete else "interrupted", seconds=time.perf_counter() - start)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._close_evaluation_envs()
        return complete

    def _advance(
        self,
        bar: StepProgress,
        writer: Any,
        on_episode: Callback | None,
        on_evaluation: Callback | None,
        should_stop: Callable[[], bool],
    ) -> None:
        """One tick, and what is due after it."""
        before = self.training.counters.step
        episodes = self.training.tick()
        step = self.training.counters.step
        if isinstance(self.training, ActorTraining) and self.directory is not None:
            self.directory.append("actors.csv", self.training.throughput.read())
        if episodes:
            self._record_episodes(episodes, writer)
            for episode in episodes:
                if on_episode is not None:
                    on_episode(episode)
        if episodes or step // 1000 > before // 1000:
            bar.update(step, [episode.episode_return for episode in episodes])
        self._due_from = before
        self._do_what_is_due(writer, on_evaluation, should_stop)

    def _do_what_is_due(
        self, writer: Any, on_evaluation: Callback | None, should_stop: Callable[[], bool]
    ) -> None:
        """Evaluation, fresh episodes and checkpoint, if a tick made them due; told to stop, they stay due."""
        if self._due_from is None:
            return
        before, step, every = self._due_from, self.training.counters.step, self.config.evaluate_every_steps
        last = step >= self.config.steps
        if last:
            self.training.flush()
        if every and (last or step // every > before // every):
            self.training.settle()  # as it may be told to stop within, and must then be whole
            found = self.evaluate(should_stop=should_stop)
            if should_stop():
                return
            self._record_evaluation(found, writer)
            if on_evaluation is not None:
                on_evaluation(found)
        self._due_from = None
        start = time.perf_counter()
        due = last or step // self.config.checkpoint_every_steps > before // self.config.checkpoint_every_steps
        if due and not last:
            # Also where nothing is written: a run does not depend on whether it is recorded.
            self.training.restart()
        if due and self.directory is not None:
            self._save_checkpoint()
        self._checkpoint_seconds += time.perf_counter() - start

    def _policies(self) -> list[int]:
        """Who plays in an evaluation, at most."""
        num_heads = self.config.agent.num_heads
        return [VOTE] if num_heads == 1 else [VOTE, MEAN, *range(num_heads)]

    def _envs_for_evaluation(self, num_envs: int) -> Envs:
        if num_envs not in self._evaluation_envs:
            self._evaluation_envs[num_envs] = make_more(self.source, num_envs)
        return self._evaluation_envs[num_envs]

    def _close_evaluation_envs(self) -> None:
        for envs in self._evaluation_envs.values():
            envs.close()
        self._evaluation_envs = {}

    def evaluate(self, should_stop: Callable[[], bool] = lambda: False) -> list[Evaluation]:
        """Let the vote, the mean and every head play in environments of their own; the vote comes first."""
        step, config = self.training.counters.step, self.config
        rounds, steps = [self._policies()], None
        if config.evaluation_steps:
            steps = -(-config.evaluation_steps // _VOTE_SLOTS)
            rounds = [[VOTE] * _VOTE_SLOTS]
            if step >= config.steps and len(self._policies()) > 1:
                rounds.append(self._policies()[1:])
        found = []
        for number, policies in enumerate(rounds):
            found += evaluate(
                self._envs_for_evaluation(len(policies)),
                self.chooser,
                self.training.learned.learner.params,
                policies,
                episodes=config.evaluation_episodes,
                steps=steps,
                epsilon=config.evaluation_epsilon,
                seed=[config.seed, step, 1 + number],
                should_stop=should_stop,
            )
        return found

    def close(self) -> None:
        """Let go of all environments."""
        self.envs.close()
        self._close_evaluation_envs()

    def about(self) -> dict[str, Any]:
        """What a model file says of its parameters."""
        envs = self.envs
        return model_header(self.config, envs.observations, envs.num_actions, envs.first_action)

    def _record_episodes(self, episodes: list[Episode], writer: Any) -> None:
        if self.directory is not None:
            committed = self.config.agent.acting == "committed_head"
            self.directory.append(
                "metrics.csv",
                [
                    (
                        *(e.step, e.episode, e.slot, e.episode_return, e.length, int(e.terminated)),
                        *(e.head if committed else "", e.epsilon, e.num_updates),
                        *((e.loss, e.q_mean, e.q_spread) if e.num_updates else ("", "", "")),
                    )
                    for e in episodes
                ],
            )
        if writer is not None:
            for e in episodes:
                for name, value in (("return", e.episode_return), ("length", e.length), ("epsilon", e.epsilon)):
                    writer.add_scalar(f"episode/{name}", value, e.step)
                if e.num_updates:
                    for name in ("loss", "q_mean", "q_spread"):
                        writer.add_scalar(f"learning/{name}", getattr(e, name), e.step)

    def _record_evaluation(self, found: list[Evaluation], writer: Any) -> None:
        """Note an evaluation, and keep the parameters if the vote did better than ever."""
        step = self.training.counters.step
        self.last_evaluation = step, found
        by_vote = float(found[0].returns.mean())
        if by_vote > self.best:
            self.best, self.best_params = by_vote, self.training.params
            if self.directory is not None:
                save_model(self.directory.path / "models" / "best.safetensors", self.best_params, self.about())
        if self.directory is not None:
            committed = self.config.agent.acting == "committed_head"
            head_steps = self.training.counters.head_steps if committed else ()
            self.directory.append("evaluations.csv", evaluation_rows(step, found, head_steps))
            if len(found) > 1:
                card = {"seed": self.config.seed, "step": step, **card_of(found, head_steps)}
                write_json(self.directory.path / "heads.json", {"cards": [card]})
        if writer is not None:
            for evaluation in found:
                writer.add_scalar(f"evaluation/{policy_name(evaluation.policy)}", evaluation.returns.mean(), step)
            writer.add_scalar("evaluation/entropy", found[0].entropy, step)

    def _save_checkpoint(self) -> None:
        """All that is needed to go on from here to the same bits."""
        assert self.directory is not None
        training = self.training
        training.require_finite_parameters()
        learned = training.learned
        arrays = named_arrays({"learner": learned.learner, "sums": learned.sums, "slots": training.slots})
        arrays["actions"] = np.array(training.actions, np.int32).reshape(-1, self.envs.num_envs)
        info = {
            "env": self.config.env,
            "counters": training.counters._asdict(),
            "pending": training.pending_updates,
            "due_from": self._due_from,
            "best": None if np.isinf(self.best) else self.best,
            "ends": self.directory.ends(),
        }
        self._checkpoints.save(training.counters.step, info=info, arrays=arrays, replays=[self._replay()])

    def _replay(self) -> Replay:
        """What a checkpoint holds of the replay."""
        frames, ring = self.training.frames, self.training.learned.replay
        if frames is not None:
            fields, added = frames.rows, frames.added
        else:
            assert ring is not None
            fields, added = ring.data._asdict(), int(ring.added)

        def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
            return {name: np.asarray(field[positions]) for name, field in fields.items()}

        return Replay(added, self.training.capacity, rows, compress=frames is not None)

    def _restore(self, checkpoint: Checkpoint, path: Path) -> None:
        training, info = self.training, checkpoint.info
        require(
            info["env"] == self.config.env, f"{path} holds a checkpoint of {info['env']}, not of {self.config.env}"
        )
        learned, slots = jax.eval_shape(training.make_initial, jax.random.key(0))
        like = {"learner": learned.learner, "sums": learned.sums, "slots": slots}
        found = restore(like, checkpoint.arrays, path)
        ring = self._restored_replay(learned, checkpoint.replays[0], checkpoint.added[0], path)
        training.restore(
            jax.device_put(Learned(found["learner"], ring, found["sums"])),
            found["slots"],
            Counters(**{**info["counters"], "head_steps": tuple(info["counters"]["head_steps"])}),
            checkpoint.arrays["actions"],
            info["pending"],
        )
        self.best = -np.inf if info["best"] is None else info["best"]
        self._due_from = info["due_from"]

    def _restored_replay(
        self, learned: Learned, fields: dict[str, np.ndarray], added: int, path: Path
    ) -> Ring | None:
        """Put what a checkpoint holds back into replay; returns it if it belongs into the compiled program."""
        training = self.training
        held = len(next(iter(fields.values()))) if fields else training.capacity
        require(
            held == training.capacity,
            f"{path / 'config.json'} was changed: replay held {held} steps and would now hold {training.capacity}",
        )
        if training.frames is not None:
            if fields:
                training.frames.rows = restore(training.frames.rows, fields, path)
            training.frames.added = added
            return None
        assert learned.replay is not None
        empty = {name: np.zeros(shape.shape, shape.dtype) for name, shape in learned.replay.data._asdict().items()}
        data: dict[str, Any] = {**(fields or empty)}
        return Ring(Transition(**data), np.int32(added))  # pyright: ignore[reportArgumentType]

    def _finish(self, status: str, *, seconds: float) -> None:
        """Models, figure and how it ended."""
        assert self.directory is not None
        path = self.directory.path
        save_model(path / "models" / "last.safetensors", self.training.params, self.about())
        self.directory.ends()
        save_run_curve(
            path / "learning_curve",
            f"{self.config.agent_name} on {self.config.env}",
            metrics=path / "metrics.csv",
            evaluations=path / "evaluations.csv",
            colour=AGENT_COLOURS[self.config.agent_name],
            note="" if self.protocol is None else protocol_line(self.protocol),
        )
        save_xray(path)
        best = None if np.isinf(self.best) else self.best
        self.directory.finish(
            status,
            steps=self.training.counters.step,
            best_return=best,
            seconds=round(seconds, 2),
            checkpoint_seconds=round(self._checkpoint_seconds, 2),
            **({"kernels": why_not() or "compiled"} if self.training.frames else {}),
        )

    def _fail(self, error: BaseException) -> None:
        """Say how a run ended that did not get to its end; its last checkpoint stays as it is."""
        if self.directory is None:
            return
        path = self.directory.path
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        advice = f"{path} keeps its last good checkpoint: `bootdqn resume {path}` goes on from there"
        try:
            self.directory.finish(status, error=str(error) or type(error).__name__)
        except OSError as second:
            free = shutil.disk_usage(path).free
            raise UserError(
                f"cannot write to {path}: {second.strerror} ({free / 1e6:.0f} MB free); {advice}"
            ) from None
        if isinstance(error, OSError | MemoryError | jax.errors.JaxRuntimeError):  # not of our making
            raise UserError(f"the run stopped at step {self.training.counters.step}: {error}; {advice}") from None


def _require_same_protocol(card: dict[str, Any], path: Path) -> None:
    """Refuse to go on with a game that is not what it was."""
    begun = read_json(path)
    changed = [
        f"{name} was {begun.get(name)} and is {card.get(name)}"
        for name in card | begun
        if begun.get(name) != card.get(name)
    ]
    require(not changed, f"the run in {path.parent} began with another protocol: {'; '.join(changed)}")


def evaluation_rows(step: int, found: Sequence[Evaluation], head_steps: Sequence[int]) -> list[tuple[Any, ...]]:
    """Rows of `evaluations.csv`: what each policy collects, and which share of the data is a head's, if any."""
    return [
        (
            *(step, policy_name(e.policy), e.ended, e.returns.mean(), e.returns.min(), e.returns.max()),
            *(round(e.entropy, 6), "" if (share := data_share(e.policy, head_steps)) is None else share),
        )
        for e in found
    ]


def model_header(
    config: GymConfig, observations: Observations, num_actions: int, first_action: int
) -> dict[str, Any]:
    """All that is needed to predict, beside the parameters."""
    return {
        "config": dataclasses.asdict(config),
        "observations": observations.layout,
        "encoding": dataclasses.asdict(observations.encoding),
        "num_actions": num_actions,
        "first_action": first_action,
    }


def _tensorboard_writer(directory: RunDirectory | None) -> Any:
    if directory is None:
        raise UserError("TensorBoard's files go into the run directory; give one with out=")
    try:
        module = importlib.import_module("tensorboardX")
    except ModuleNotFoundError:
        raise UserError("TensorBoard's files need tensorboardX: pip install 'bootdqn[tensorboard]'") from None
    return module.SummaryWriter(str(directory.path / "tensorboard"))


def make_config(source: EnvSource, agent: str, options: dict[str, Any], **fields: Any) -> GymConfig:
    """A configuration from the name of an agent and what shall differ from it."""
    default = default_config(env_name(source), agent)
    for name in options:
        require_known(f"option of {agent}", name, [f.name for f in dataclasses.fields(AgentConfig)])
    return replace(default, agent=replace(default.agent, **options), **fields)
