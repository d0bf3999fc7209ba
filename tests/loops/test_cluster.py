"""Actors elsewhere: what they play, with which parameters, and what happens when one dies."""

import dataclasses
import itertools
import signal
import subprocess
import sys
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from bootdqn.cli.main import main
from bootdqn.core.config import ATARI_AGENTS, GYM_AGENTS, AgentConfig
from bootdqn.envs.atari import AtariEnvs
from bootdqn.errors import UserError
from bootdqn.loops.cluster import THROUGHPUT, ActorPool, ActorSpec, ClusterLoop, Throughput
from bootdqn.loops.learner import Counters
from bootdqn.replay.frames import FrameReplay
from bootdqn.runs.config import default_host_config
from bootdqn.runs.directory import read_json, read_table
from bootdqn.runs.parts import Inputs
from bootdqn.runs.run import Run
from helpers import until

AGENT = dataclasses.replace(
    GYM_AGENTS["boot"],
    **{"num_heads": 5, "hidden": (8,), "trunk_hidden": (8,), "replay_capacity": 5000, "learning_rate": 0.01},
    **{"learning_start_steps": 50, "learning_period_steps": 2, "mask_probability": 0.5},
)


@pytest.fixture
def make_training(cluster):
    """Makes a training of two actors with two environments each on the test's cluster."""
    made: list[ActorPool] = []

    def make(source: Any, agent: AgentConfig, *, max_staleness: int, begin: bool = True) -> ClusterLoop:
        actors = ActorPool(cluster.address, 2, ActorSpec(source, 2, "sync", agent, None, 7))
        made.append(actors)
        training = ClusterLoop(actors, agent, steps=5000, checkpoint_every=2**31, max_staleness=max_staleness)
        if begin:
            training.begin()
        return training

    yield make
    for actors in made:
        actors.close()


def note_rounds(training: ClusterLoop) -> list[tuple[Any, int, list]]:
    """Of every round: the parameters it was played with, how many updates they had seen, and what was played."""
    rounds: list[Any] = []
    send, receive = training.envs.send, training.envs.receive

    def noting_send(leaves, step, ticks):
        params = jax.tree.unflatten(jax.tree.structure(training.learner.learned.learner.params), leaves)
        rounds.append([jax.tree.map(np.array, params), training.learner.counters.updates, None])
        send(leaves, step, ticks)

    def noting_receive():
        rounds[-1][2], replaced = receive()
        return rounds[-1][2], replaced

    training.envs.send, training.envs.receive = noting_send, noting_receive
    return rounds


def require_physics(training: ClusterLoop) -> int:
    """Every transition in replay leads where CartPole leads from there; returns how many there are."""
    assert training.learner.learned.replay is not None
    count = int(training.learner.learned.replay.added)
    data = jax.tree.map(lambda field: np.asarray(field)[:count], training.learner.learned.replay.data)
    env = CartPoleEnv()
    env.reset()
    for obs, action, next_obs in zip(data.obs, data.action, data.next_obs, strict=True):
        env.state, env.steps_beyond_terminated = obs, None
        expected, *_ = env.step(int(action))
        np.testing.assert_allclose(next_obs, expected, rtol=1e-4, atol=1e-5)
    return count


def test_actors_follow_heads_of_their_own_with_parameters_of_the_stated_age(make_training):
    training = make_training("CartPole-v1", AGENT, max_staleness=20, begin=False)
    assert training.ticks == 10  # of 4 steps, 2 updates
    rounds = note_rounds(training)
    training.begin()
    episodes = list(itertools.chain(*(training.play_round() for _ in range(12))))
    training.envs.receive()
    assert require_physics(training) == training.learner.counters.step == 480
    heads = {}
    for params, _, actors in rounds:
        network = jax.vmap(jax.vmap(_network(training, params)))
        obs, fresh, head, action = (
            np.array([np.concatenate(parts) for parts in zip(*fields, strict=True)])
            for fields in zip(*([[getattr(t, n) for t in a] for n in NAMES] for a in actors), strict=True)
        )
        q = np.asarray(network(obs))
        chosen = np.take_along_axis(q, head[..., None, None], axis=2)[:, :, 0]
        assert (chosen.argmax(axis=-1) == action).all()
        for slot in range(4):
            for begins, follows in zip(fresh[:, slot], head[:, slot], strict=True):
                assert begins or heads[slot] == follows
                heads[slot] = follows
    # When a round has been played, the learner has learned from the one before.
    ages = [later - at for (_, at, _), (_, later, _) in itertools.pairwise(rounds)]
    assert max(ages) == 20
    assert len({episode.head for episode in episodes}) > 1
    assert {episode.slot for episode in episodes} == {0, 1, 2, 3}


NAMES = ("obs", "fresh", "heads", "actions")


def _network(training: ClusterLoop, params: Any) -> Any:
    """Values [K, A] of one observation."""
    return lambda obs: training.learner.agent.belief(params, obs).q


def test_an_actor_that_dies_is_replaced_and_nothing_false_is_learned(make_training):
    training = make_training("CartPole-v1", AGENT, max_staleness=20)
    for _ in range(3):
        training.play_round()
    ray = training.envs._ray
    ray.kill(training.envs._actors[1])  # which may have played a round more
    for _ in range(4):
        training.play_round()
    assert training.envs.lost == 1
    assert training.learner.counters.step == 7 * 40
    assert require_physics(training) == 280
    assert (training.learner._lengths[2:] <= 40).all()  # since its successor began


def test_one_that_dies_again_and_again_is_given_up(make_training):
    training = make_training("CartPole-v1", AGENT, max_staleness=20)
    training.play_round()
    ray, make = training.envs._ray, training.envs._make

    class Dying:
        @staticmethod
        def remote(*arguments):
            actor = make.remote(*arguments)
            ray.kill(actor)
            return actor

    training.envs._make = Dying
    ray.kill(training.envs._actors[0])
    with pytest.raises(UserError, match=r"actor 0 died 3 times in a row: .+"):
        [training.play_round() for _ in range(2)]  # it may have played a round more


def test_pictures_reach_replay_as_they_were_seen(make_training):
    tiny = {"num_heads": 2, "hidden": (8,), "batch_size": 4, "replay_capacity": 2000, "learning_start_steps": 40}
    agent = dataclasses.replace(ATARI_AGENTS["boot"], **tiny)
    training = make_training("atari:breakout", agent, max_staleness=10)
    for _ in range(5):
        training.play_round()
    frames = training.learner.frames
    assert frames is not None
    assert training.ticks == 10
    assert frames.added == 200
    rows = {name: field[:200].reshape(50, 4, *field.shape[1:]) for name, field in frames.rows.items()}
    for actor in (0, 1):
        slots = slice(2 * actor, 2 * actor + 2)
        envs = AtariEnvs("atari:breakout", 2)
        words = np.random.SeedSequence([7, 0, actor]).generate_state(2)
        obs = envs.reset([int(word) >> 1 for word in words])
        for tick in range(50):
            assert np.array_equal(rows["frame"][tick, slots], obs[:, -1])
            step = envs.step(rows["action"][tick, slots])
            assert np.array_equal(rows["reward"][tick, slots], step.reward)
            obs = step.obs
        envs.close()
    assert training.learner.counters.updates == 41
    assert np.isfinite(training.learner.params.layers[-1].bias).all()


def test_what_was_not_seen_to_its_end_is_never_sampled():
    frames = FrameReplay(40, num_slots=2, num_heads=1, shape=(1, 1))
    # The second slot begins a new episode after five rows, the end of the one before it was lost with its actor.
    for number in range(1, 8):
        both = np.full(2, number)
        frames.add(
            both[:, None, None].astype(np.uint8),
            fresh=np.array([number == 1, number in (1, 6)]),
            action=np.array([number, 10 + number]),
            reward=both.astype(float),
            discount=np.ones(2),
            mask=np.ones((2, 1)),
            acted=np.ones(2, bool),
        )
    batch = frames.sample(np.random.default_rng(0), 2000)
    assert set(batch.action.tolist()) == {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 16}
    assert (batch.frames[:, 4, 0, 0] == batch.action % 10 + 1).all()
    assert set(batch.frames[batch.action == 16][:, :4].reshape(-1, 4).ravel().tolist()) == {0, 6}


def test_rounds_that_would_be_too_old_are_refused(make_training):
    with pytest.raises(UserError, match="4 environments is 2 updates, and actors may lack no more than 1; raise"):
        make_training("CartPole-v1", AGENT, max_staleness=1)


def test_what_actors_cannot_do_is_said(cluster, tmp_path, capsys):
    train = ["train", "CartPole-v1", "--address", cluster.address, "--out", str(tmp_path / "run")]
    assert main([*train, "--actors", "50"]) == 2
    assert "50 actors need a core each, and the Ray cluster has " in capsys.readouterr().err
    config = default_host_config("CartPole-v1", "boot", num_actors=1)
    with pytest.raises(UserError, match="actors make environments of their own; give a name, or a function"):
        Run(config, inputs=Inputs(gymnasium.make("CartPole-v1")))
    assert main(["sweep", "CartPole-v1", "--set", "num_actors=2"]) == 2
    assert "num_actors" in capsys.readouterr().err


def test_a_row_covers_seconds_and_rounds(monkeypatch):
    clock = iter([0.0, 2.0, 4.0, 6.0, 12.0])
    monkeypatch.setattr("bootdqn.loops.cluster.time.perf_counter", lambda: next(clock))
    rows = Throughput()
    for step, staleness, lost in ((100, 0, 0), (200, 10, 0), (300, 20, 1), (400, 30, 1), (500, 5, 2)):
        rows.add(Counters(step, 0, step // 2, 0, ()), staleness, 0.6, lost)
    found = [dict(zip(THROUGHPUT, row, strict=True)) for row in rows.read()]
    assert [row["step"] for row in found] == [400, 500]
    assert found[0] == {
        **{"step": 400, "seconds": 6.0, "steps_per_second": 50.0, "updates_per_second": 25.0},
        **{"staleness_mean": 20.0, "staleness_max": 30, "waiting": 0.3, "lost": 1},
    }
    assert rows.read() == []


def test_a_run_with_actors_is_stopped_and_goes_on(cluster, tmp_path):
    out = tmp_path / "run"
    options = ["--actors", "2", "--envs", "2", "--address", cluster.address, "--evaluate-every-steps", "0"]
    options += ["--steps", "6000", "--heads", "3", "--trunk-hidden", "8", "--hidden", "8"]
    options += ["--max-staleness-updates", "40"]
    command = [sys.executable, "-m", "bootdqn", "train", "CartPole-v1", *options, "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: (out / "metrics.csv").exists() and len(read_table(out / "metrics.csv")) > 20, seconds=400)
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=400)
    assert process.returncode == 130, errors
    assert "2 actors with 2 environments each, in rounds of 10 steps: their parameters lack at most 40" in shown
    stopped_at = read_json(out / "run.json")["steps"]
    assert main(["resume", str(out), "--address", cluster.address]) == 0
    rows = read_table(out / "metrics.csv")
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(steps)
    assert stopped_at < 6000 <= read_json(out / "run.json")["steps"]
    assert steps[-1] > stopped_at
    assert [int(row["episode"]) for row in rows] == list(range(1, len(rows) + 1))
    throughput = read_table(out / "actors.csv")
    assert all(int(row["staleness_max"]) <= 40 for row in throughput)
    assert all(float(row["steps_per_second"]) > 0 for row in throughput)
