"""Gymnasium environments: both loops learn alike, runs survive a kill to the bit, models predict."""

import csv
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import bootdqn
from bootdqn import BootstrappedDQN, UserError, training
from bootdqn.agent import AGENTS, GYM_AGENTS
from bootdqn.cli.main import main
from bootdqn.envs.catalog import make_env
from bootdqn.envs.host import make_envs
from bootdqn.experiments.runner import is_same
from bootdqn.gym_run import GymConfig, GymRun
from bootdqn.loops.compiled import CompiledTraining
from bootdqn.loops.host import HostTraining
from bootdqn.model import ABSTAIN
from bootdqn.progress import StepProgress
from bootdqn.replay.device import Ring
from bootdqn.runs import checkpoint as checkpoint_module
from bootdqn.runs.checkpoint import Checkpoints
from helpers import trees_equal

TINY = {"num_heads": 3, "hidden": (8,), "trunk_hidden": (), "batch_size": 8, "learning_start_steps": 20}
TINY_FLAGS = [
    *("--heads", "3", "--hidden", "8", "--trunk-hidden"),
    *("--batch-size", "8", "--learning-start-steps", "20"),
]


def tiny(env, **options):
    return BootstrappedDQN(env, **{**TINY, **options})


# The host loop.


def test_a_chain_through_both_loops_learns_the_same():
    config = dataclasses.replace(AGENTS["boot"], num_heads=4, hidden=(16,), learning_start_steps=30)
    env, episodes = make_env("chain:5"), 12
    compiled = CompiledTraining(env, config, seeds=(7,), episodes=episodes)
    returns = np.concatenate([chunk.metrics.episode_return[0] for chunk in compiled.chunks()])
    heads = []
    steps = episodes * env.horizon
    host = HostTraining(make_envs("chain:5"), config, seed=7, steps=steps, overlap=False)
    host.begin()
    found = []
    while host.counters.step < steps:
        found += host.tick()
    heads = [episode.head for episode in found]
    assert [episode.episode_return for episode in found] == pytest.approx(returns.tolist(), abs=1e-5)
    assert len(set(heads)) > 1
    assert host.counters.updates == steps - 29
    state = compiled.states()[0]
    np.testing.assert_allclose(ring(host).data.reward, state.replay.data.reward[0], atol=1e-7)
    np.testing.assert_array_equal(ring(host).data.action, state.replay.data.action[0])
    np.testing.assert_array_equal(ring(host).data.mask, state.replay.data.mask[0])
    np.testing.assert_array_equal(ring(host).data.discount, state.replay.data.discount[0])
    for ours, theirs in zip(
        jax.tree.leaves(host.learned.learner.params), jax.tree.leaves(state.learner.params), strict=True
    ):
        np.testing.assert_allclose(ours, theirs[0], atol=2e-3)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("period", [1, 4])
def test_updates_are_made_as_often_as_asked_for(num_envs, period):
    config = dataclasses.replace(GYM_AGENTS["boot"], **TINY, learning_period_steps=period)
    run = HostTraining(make_envs("CartPole-v1", num_envs), config, seed=0, steps=200)
    run.begin()
    while run.counters.step < 100:
        run.tick()
    run.flush()
    step = run.counters.step
    # One for every multiple of the period from the start of learning on.
    assert int(run.learned.learner.updates) == step // period - 19 // period == run.counters.updates
    assert int(ring(run).added) == step


def test_every_slot_follows_its_own_head_for_an_episode():
    config = dataclasses.replace(GYM_AGENTS["boot"], **{**TINY, "num_heads": 50})
    run = HostTraining(make_envs("CartPole-v1", 4), config, seed=1, steps=400)
    run.begin()
    heads = []
    ended = np.ones(4, bool)
    for _ in range(80):
        before = run.heads.copy()
        episodes = run.tick()
        heads.append(run.heads.copy())
        assert (run.heads == before)[~ended].all()
        ended = np.zeros(4, bool)
        for episode in episodes:
            assert episode.head == heads[-1][episode.slot]
            ended[episode.slot] = True
    assert len(np.unique(heads)) > 8
    assert all(len(set(row)) > 1 for row in heads)
    # The masks that are stored differ between slots when they are drawn.
    half = dataclasses.replace(config, mask_probability=0.5)
    run = HostTraining(make_envs("CartPole-v1", 2), half, seed=1, steps=400)
    run.begin()
    run.tick()
    run.flush()
    masks = np.asarray(ring(run).data.mask[:2])
    assert 0.3 < masks.mean() < 0.7
    assert (masks[0] != masks[1]).any()


def test_overlap_only_delays_the_parameters():
    def play(overlap):
        config = dataclasses.replace(GYM_AGENTS["boot"], **{**TINY, "learning_start_steps": 10**6})
        run = HostTraining(make_envs("CartPole-v1", 2), config, seed=3, steps=100, overlap=overlap)
        run.begin()
        for _ in range(40):
            run.tick()
        run.flush()
        return run.learned

    assert trees_equal(play(True), play(False))  # without updates there is no difference


def test_time_limits_keep_their_discount():
    class Short(gymnasium.Env):
        observation_space, action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps, self.count = 0, getattr(self, "count", 0) + 1
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.steps += 1
            last, even = self.steps == 3, self.count % 2 == 0
            return np.full(1, self.steps, np.float32), 1.0, last and even, last and not even, {}

    config = dataclasses.replace(GYM_AGENTS["boot"], **TINY)
    run = HostTraining(make_envs(Short), config, seed=0, steps=100)
    run.begin()
    for _ in range(12):
        run.tick()
    run.flush()
    data = ring(run).data
    np.testing.assert_allclose(data.discount[:12], [0.99] * 5 + [0.0] + [0.99] * 5 + [0.0])
    np.testing.assert_array_equal(data.next_obs[:12, 0], [1, 2, 3] * 4)
    np.testing.assert_array_equal(data.obs[:12, 0], [0, 1, 2] * 4)


# Spaces.


class Echo(gymnasium.Env):
    """Observes samples of any space; ends after five steps."""

    def __init__(self, space, actions=None):
        self.observation_space = space
        self.action_space = actions or spaces.Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


SPACES = [
    spaces.Box(-1, 1, (3,)),
    spaces.Box(-1, 1, (2, 3), np.float64),
    spaces.Box(0, 255, (4, 4, 1), np.uint8),
    spaces.Discrete(6, start=-2),
    spaces.MultiBinary(4),
    spaces.MultiDiscrete([2, 3]),
    spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.MultiBinary((2, 2))})}),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_every_supported_space_is_learned_predicted_saved_and_loaded(space, tmp_path):
    model = tiny(lambda: Echo(space)).learn(60)
    obs = [space.sample() for _ in range(4)]
    actions, beliefs = zip(*(model.predict(o) for o in obs), strict=True)
    assert set(actions) <= {2, 3, 4}
    assert beliefs[0].q.shape == (3, 3)
    model.save(tmp_path / "m.safetensors")
    loaded = BootstrappedDQN.load(tmp_path / "m.safetensors")
    for o, action, belief in zip(obs, actions, beliefs, strict=True):
        again, other = loaded.predict(o)
        assert again == action
        assert trees_equal(belief, other)
    batch = gymnasium.vector.utils.concatenate(space, obs, gymnasium.vector.utils.create_empty_array(space, n=4))
    many, belief = model.predict(batch)
    assert many.tolist() == list(actions)
    for row in range(4):
        np.testing.assert_allclose(belief.q[row], beliefs[row].q, atol=1e-5)
        np.testing.assert_allclose(belief.votes[row], beliefs[row].votes, atol=1e-5)


@pytest.mark.parametrize("name", ["Acrobot-v1", "FrozenLake-v1", "Blackjack-v1"])  # Box, Discrete, Tuple
def test_gymnasiums_own_environments(name):
    model = tiny(name, num_envs=2).learn(60, evaluate_every_steps=0)
    env = gymnasium.make(name)
    obs, _ = env.reset(seed=0)
    for _ in range(5):
        action, belief = model.predict(obs)
        assert env.action_space.contains(action)
        assert np.isfinite(belief.q).all()
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Echo(spaces.Text(5)), "observations of Text are not supported; supported are Box, Discrete"),
        (
            lambda: Echo(SPACES[0], spaces.Box(-1, 1, (1,))),
            "actions of Box are not supported; supported is Discrete",
        ),
        ("CartPole-v7", "Gymnasium cannot make 'CartPole-v7'"),
        (lambda: "no environment", "the maker should return a gymnasium.Env, got str"),
    ],
)
def test_what_cannot_be_learned_is_said(env, message):
    with pytest.raises(UserError, match=message):
        BootstrappedDQN(env)


def test_mistakes_in_python():
    with pytest.raises(UserError, match="unknown agent 'bot'; did you mean boot"):
        BootstrappedDQN("CartPole-v1", agent="bot")
    with pytest.raises(UserError, match="unknown option of boot 'heads'"):
        BootstrappedDQN("CartPole-v1", heads=3)
    with pytest.raises(UserError, match="one environment fills one slot"):
        BootstrappedDQN(gymnasium.make("CartPole-v1"), num_envs=2)
    model = tiny("CartPole-v1")
    with pytest.raises(UserError, match=r"expected an observation of shape \(4,\)"):
        model.predict([1.0, 2.0])
    with pytest.raises(UserError, match="head must be 0 to 2, got 3"):
        model.predict(np.zeros(4), "head", head=3)
    with pytest.raises(UserError, match="unknown policy 'majority'"):
        model.predict(np.zeros(4), "majority")  # type: ignore
    with pytest.raises(UserError, match="steps must be at least 1, got 0"):
        model.learn(0)


# Predicting.


def test_policies_by_hand():
    model = tiny("CartPole-v1")
    last = model.params.layers[-1]
    # Whatever is seen: heads 0 and 1 prefer action 0 by little, head 2 action 1 by much.
    bias = np.array([[1.0, 0.9], [1.0, 0.9], [0.0, 5.0]], np.float32)
    layers = (*model.params.layers[:-1], dataclasses.replace(last, weight=np.zeros_like(last.weight), bias=bias))
    model.params = dataclasses.replace(model.params, layers=layers)
    obs = np.zeros(4)
    assert model.predict(obs)[0] == 0
    assert model.predict(obs, "mean")[0] == 1
    assert [model.predict(obs, "head", head=k)[0] for k in range(3)] == [0, 0, 1]
    belief = model.predict(obs)[1]
    np.testing.assert_array_equal(belief.q, bias)
    np.testing.assert_array_equal(belief.votes, [2, 1])
    np.testing.assert_allclose(belief.mean, [2 / 3, 6.8 / 3], rtol=1e-6)
    assert model.predict(obs, abstain_below=0.6)[0] == 0
    assert model.predict(obs, abstain_below=0.7)[0] == ABSTAIN == -1
    assert model.predict(np.zeros((2, 4)), abstain_below=0.7)[0].tolist() == [-1, -1]


def test_an_environment_that_is_given_is_the_one_that_is_played():
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    model = tiny(env).learn(100)
    assert len(env.return_queue) > 0
    assert len(model.evaluate(4)) == 4  # in others like it


def test_callbacks_see_every_episode_and_evaluation():
    episodes, evaluations = [], []
    model = tiny("CartPole-v1", num_envs=2)
    callbacks: dict[str, Any] = {"on_episode": episodes.append, "on_evaluation": evaluations.append}
    model.learn(300, evaluate_every_steps=100, evaluation_episodes=2, **callbacks)
    assert [e.episode for e in episodes] == list(range(1, len(episodes) + 1))
    assert all(e.episode_return == e.length for e in episodes)  # CartPole pays one a step
    assert sum(e.length for e in episodes) <= 300
    assert len(evaluations) == 3
    assert [e.policy for e in evaluations[0]] == [-1, -2, 0, 1, 2]
    assert all(len(e.returns) == 2 for e in evaluations[0])


def test_the_best_and_the_last_model_are_kept(tmp_path):
    model = tiny("CartPole-v1")
    model.learn(400, out=tmp_path / "run", evaluate_every_steps=100, evaluation_episodes=1)
    rows = list(csv.DictReader((tmp_path / "run" / "evaluations.csv").read_text().splitlines()))
    votes = [float(row["mean_return"]) for row in rows if row["policy"] == "vote"]
    assert len(votes) == 4
    assert json.loads((tmp_path / "run" / "run.json").read_text())["best_return"] == max(votes)
    last = BootstrappedDQN.load(tmp_path / "run" / "models" / "last.safetensors")
    assert trees_equal(last.params, model.params)
    assert model.run is not None
    best = BootstrappedDQN.load(tmp_path / "run" / "models" / "best.safetensors")
    assert trees_equal(best.params, model.run.best_params)
    shares = [float(row["data_share"]) for row in rows[-3:]]
    assert sum(shares) == pytest.approx(1, abs=1e-5)


def test_models_of_compiled_runs_predict_too(tmp_path):
    result = bootdqn.train("chain:6", episodes=3, num_heads=2, hidden=(8,), out=tmp_path / "run")
    model = BootstrappedDQN.load(tmp_path / "run" / "models" / "seed0.safetensors")
    np.testing.assert_array_equal(model.predict(3)[1].q, result.belief(3).q)
    assert len(model.evaluate(2)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h["config"]["agent"].update(num_heads=10**9), "heads must be 1 to"),
        (lambda h: h["config"]["agent"].update(num_heads=7), "should be float32 of shape"),
        (lambda h: h["config"]["agent"].update(virus=1), "is not of this version"),
        (lambda h: h["config"].pop("agent"), "is not of this version"),
        (lambda h: h.pop("encoding"), "does not say what its model observes"),
        (lambda h: h["encoding"].update(size=5), "should be float32 of shape"),
        (lambda h: h.update(num_actions="many"), "does not say what its model observes"),
        (lambda h: h.update(num_actions=10**12), "a model with"),
        (lambda h: h.update(observations=[1]), "does not say what its model observes"),
        (lambda h: h.update(format="bootdqn-model-9"), "was it written by another version"),
    ],
)
def test_hostile_model_files_are_refused(change, message, tmp_path):
    import safetensors.numpy

    path = tmp_path / "m.safetensors"
    tiny("CartPole-v1").save(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["bootdqn"])
    change(header)
    arrays = safetensors.numpy.load_file(path)
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"bootdqn": json.dumps(header)}))
    with pytest.raises(UserError, match=message):
        BootstrappedDQN.load(path)


def test_a_model_for_another_environment_is_refused(tmp_path):
    tiny("CartPole-v1").save(tmp_path / "m.safetensors")
    with pytest.raises(UserError, match=r"holds a model for CartPole-v1.* not those of Acrobot-v1"):
        BootstrappedDQN.load(tmp_path / "m.safetensors", "Acrobot-v1")


# Runs that survive.

RUN = ["CartPole-v1", "--steps", "900", "--checkpoint-every-steps", "200", "--evaluate-every-steps", "300"]
RUN += ["--evaluation-episodes", "1", *TINY_FLAGS]
SAME = ("metrics.csv", "evaluations.csv", "models/last.safetensors", "models/best.safetensors", "config.json")


def state_at_the_end(run: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Parameters, optimizer, keys and counters, and the replay, of the last checkpoint, as bytes."""
    found = Checkpoints(run).load(print)
    assert found is not None
    return tuple(
        {name: array.tobytes() for name, array in arrays.items()} for arrays in (found.arrays, *found.replays)
    )  # type: ignore


def ring(training: HostTraining) -> Ring:
    assert training.learned.replay is not None
    return training.learned.replay


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    # Not the cache of the other tests: JAX does not write entries atomically, and these processes get killed.
    cache = Path(str(jax.config.jax_compilation_cache_dir)).with_name("compiled-to-be-killed")  # type: ignore
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return subprocess.Popen(
        [sys.executable, "-m", "bootdqn", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment, **options,
    )  # fmt: skip


def kill_when(process: subprocess.Popen[str], condition, number: int) -> None:
    deadline = time.monotonic() + 120
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)


GAME = "atari:breakout --steps 2000 --envs 2 --heads 2 --hidden 16 --batch-size 8 --learning-start-steps 100 "
GAME += "--replay-capacity 700 --mask-probability 0.5 --checkpoint-every-steps 450 --evaluate-every-steps 1000 "
GAME += "--evaluation-steps 200"


@pytest.mark.parametrize(
    ("arguments", "ended"),
    [
        ([*RUN, "--envs", "2"], (0, 3, 12, 25)),
        ([*RUN, "--envs", "3", "--vectorization", "own"], (0, 3, 12, 25)),
        (GAME.split(), (0, 2, 5, 8)),
    ],
    ids=["sync", "own", "atari"],
)
def test_killed_at_random_and_resumed_is_as_if_nothing_had_happened(arguments, ended, tmp_path, capfd):
    """Killed when about so many episodes have `ended`."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["train", *arguments, "--out", str(whole)]) == 0
    rng = random.Random(0)
    arguments = ["train", *arguments, "--out", str(cut)]
    for attempt in range(4):
        process = start(arguments)
        wanted = ended[attempt] + rng.randrange(2)

        def rows(wanted=wanted) -> bool:
            path = cut / "metrics.csv"
            begun = path.exists() and any(cut.glob("checkpoints/*.json"))
            return begun and len(path.read_text().splitlines()) > wanted

        kill_when(process, rows, signal.SIGTERM if attempt == 2 else signal.SIGKILL)
        process.communicate()
        arguments = ["resume", str(cut)]
    if json.loads((cut / "run.json").read_text())["status"] != "finished":
        assert main(arguments) == 0
    for name in SAME:
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    assert state_at_the_end(cut) == state_at_the_end(whole)
    capfd.readouterr()


def test_a_killed_compiled_run_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("bootdqn.training._CHUNKS_BETWEEN_CHECKPOINTS", 1)
    for agent in ("boot", "psrl"):
        flags = ["train", "chain:5", "--agent", agent, "--episodes", "700", "--seeds", "2"]
        flags += ["--heads", "2", "--hidden", "8"] if agent == "boot" else []
        whole, cut = tmp_path / f"{agent}-whole", tmp_path / f"{agent}-cut"
        assert main([*flags, "--out", str(whole)]) == 0
        process = start([*flags, "--out", str(cut)])
        kill_when(process, lambda cut=cut: any(cut.glob("checkpoints/*.json")), signal.SIGKILL)
        process.communicate()
        if json.loads((cut / "run.json").read_text())["status"] == "running":
            assert main(["resume", str(cut)]) == 0
        files = ["metrics.csv"]
        if agent == "boot":
            files += ["models/seed0.safetensors", "models/seed1.safetensors", "exploration.csv", "heads.json"]
        for name in files:
            assert (cut / name).read_bytes() == (whole / name).read_bytes()
        records = [json.loads((run / "run.json").read_text()) for run in (whole, cut)]
        assert records[0]["regret"] == records[1]["regret"]
        assert records[1]["status"] == "finished"


def test_compiled_checkpoints_in_the_middle(tmp_path, monkeypatch):
    """Stopped after some chunks by a signal, all seeds have got equally far and go on from there."""
    monkeypatch.setattr("bootdqn.training._CHUNKS_BETWEEN_CHECKPOINTS", 1)
    monkeypatch.setattr("bootdqn.loops.compiled.MAX_STEPS_PER_CHUNK", 120)  # ten episodes
    monkeypatch.setattr("bootdqn.training.available_cores", lambda: 4)
    agent = dataclasses.replace(AGENTS["boot"], num_heads=2, hidden=(8,))
    config = bootdqn.TrainConfig(env="chain:4", episodes=95, num_seeds=3, agent=agent)
    whole = training.run_training(config, command="", out=tmp_path / "whole", progress=False)
    saved = training._save_checkpoint

    def interrupt(checkpoints, directory, training, num_chunks, metrics):
        saved(checkpoints, directory, training, num_chunks, metrics)
        if num_chunks == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("bootdqn.training._save_checkpoint", interrupt)
    cut = training.run_training(config, command="", out=tmp_path / "cut", progress=False)
    assert cut.interrupted
    assert {len(m.episode_return) for m in cut.metrics.values()} == {40}
    monkeypatch.setattr("bootdqn.training._save_checkpoint", saved)
    resumed = training.resume_training(tmp_path / "cut", progress=False)
    assert not resumed.interrupted
    assert trees_equal(resumed.metrics, whole.metrics)
    assert trees_equal(resumed.params, whole.params)
    assert (tmp_path / "cut" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
    assert not (tmp_path / "cut" / "checkpoints").exists()  # nothing left to go on with


def small_run(path: Path, **fields) -> GymRun:
    agent = dataclasses.replace(GYM_AGENTS["boot"], **TINY)
    config = {"env": "CartPole-v1", "agent": agent, "steps": 300, "checkpoint_every_steps": 100, **fields}
    return GymRun(GymConfig(**config), out=path, show=lambda text: None)


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    written = []

    def full(path, data):
        written.append(path)
        if len(written) > 4:
            raise OSError(28, "No space left on device")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr(checkpoint_module, "write_atomically", full)
    with pytest.raises(UserError, match=r"No space left on device.*bootdqn resume"):
        run.run()
    monkeypatch.undo()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    resumed = GymRun.resume(tmp_path / "run", show=lambda text: None)
    assert resumed.training.counters.step == 100
    assert resumed.run()
    whole = small_run(tmp_path / "whole", evaluate_every_steps=0)
    assert whole.run()
    assert state_at_the_end(tmp_path / "run") == state_at_the_end(tmp_path / "whole")


def test_a_damaged_checkpoint_is_passed_over_to_the_same_end(tmp_path):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    for _ in range(230):
        run._advance(StepProgress("", steps=1, begun_with=0, visible=False), None, None, None, lambda: False)
    assert run.directory is not None
    run.directory.finish("failed")
    (damaged,) = (tmp_path / "run" / "checkpoints").glob("000000000200*.safetensors")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    said: list[str] = []
    resumed = GymRun.resume(tmp_path / "run", show=said.append)
    assert any("the checkpoint of step 200 is damaged" in text for text in said)
    assert resumed.training.counters.step == 100
    assert resumed.run()
    whole = small_run(tmp_path / "whole", evaluate_every_steps=0)
    assert whole.run()
    assert state_at_the_end(tmp_path / "run") == state_at_the_end(tmp_path / "whole")
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()


class Poisoned(gymnasium.Env):
    """A reward, or an observation, that is not a number after some steps."""

    observation_space, action_space = spaces.Box(-9, 9, (2,)), spaces.Discrete(2)

    def __init__(self, what):
        self.what = what

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        bad = self.steps == 17
        obs = np.array([1.0, np.inf if bad and self.what == "observation" else 0.0], np.float32)
        return obs, float("nan") if bad and self.what == "reward" else 0.0, False, False, {}


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_what_is_not_a_number_stops_the_run_and_is_never_stored(what, tmp_path):
    model = tiny(lambda: Poisoned(what), num_envs=2)
    with pytest.raises(UserError, match=rf"slot 0 returned an? {what} that is not finite after step 32"):
        model.learn(500, out=tmp_path / "run")
    assert model.run is not None
    assert np.isfinite(ring(model.run.training).data.reward).all()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "failed"
    assert "not finite" in record["error"]


def test_parameters_that_are_not_numbers_stop_the_run():
    with pytest.raises(UserError, match="training diverged: the loss is no longer finite at step"):
        tiny("CartPole-v1", learning_rate=1e30).learn(500)


def test_too_little_memory_is_said_before_anything_is_allocated(tmp_path, monkeypatch):
    monkeypatch.setattr("bootdqn.memory.available_memory", lambda: 10**6)
    with pytest.raises(UserError, match=r"the run needs .* GB and 0.0 GB of memory is free"):
        tiny("CartPole-v1", replay_capacity=10**6).learn(10**6, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_divergence_is_noticed_without_the_end_of_an_episode(tmp_path):
    class Endless(Poisoned):
        def step(self, action):
            return np.ones(2, np.float32), 1.0, False, False, {}

    model = tiny(lambda: Endless(""), learning_rate=1e30)
    with pytest.raises(UserError, match="training diverged"):
        model.learn(60, out=tmp_path / "run", checkpoint_every_steps=40)
    found = Checkpoints(tmp_path / "run").load(print)
    assert found is not None
    assert found.step == 0  # the last that was good
    assert all(np.isfinite(array).all() for array in found.arrays.values())


def test_a_stop_during_an_evaluation_leaves_it_due(tmp_path):
    options = {"evaluate_every_steps": 100, "evaluation_episodes": 2}
    whole = small_run(tmp_path / "whole", **options)
    assert whole.run()
    cut = small_run(tmp_path / "cut", **options)
    chooser, calls = cut.chooser, []

    def interrupting(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return chooser(*arguments)

    cut.chooser = interrupting
    assert not cut.run()
    assert 100 <= cut.training.counters.step < 110
    resumed = GymRun.resume(tmp_path / "cut", show=lambda text: None)
    assert resumed.run()
    for name in ("metrics.csv", "evaluations.csv", "models/last.safetensors", "models/best.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert state_at_the_end(tmp_path / "cut") == state_at_the_end(tmp_path / "whole")


def test_ctrl_c_with_a_process_for_each_slot(tmp_path):
    """A terminal sends it to all processes of the group."""
    out = tmp_path / "run"
    flags = ["train", *RUN, "--steps", "100000", "--envs", "2", "--vectorization", "async", "--out", str(out)]
    process = start(flags, start_new_session=True)
    path = out / "metrics.csv"
    deadline = time.monotonic() + 120
    while not (path.exists() and len(path.read_text().splitlines()) > 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    found = Checkpoints(out).load(print)
    assert found is not None
    assert found.step % 200 != 0 or found.step > 0


def test_a_run_that_still_goes_on_is_left_alone(tmp_path):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    with pytest.raises(UserError, match="is still going on, in another process"):
        GymRun.resume(tmp_path / "run", show=lambda text: None)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before
    assert run.run()


def test_an_environment_with_options_of_its_own_has_no_name(tmp_path):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    model = tiny(env).learn(60, out=tmp_path / "run")
    assert model.config.env is None
    assert tiny(gymnasium.make("FrozenLake-v1")).config.env == "FrozenLake-v1"
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**record, "status": "failed", "error": "x"}))
    with pytest.raises(UserError, match="has no name"):
        BootstrappedDQN.resume(tmp_path / "run")
    resumed = BootstrappedDQN.resume(tmp_path / "run", gymnasium.make("FrozenLake-v1", is_slippery=False))
    assert trees_equal(resumed.params, model.params)
    assert "error" not in json.loads((tmp_path / "run" / "run.json").read_text())


def test_ties_are_broken_alike_in_a_batch_and_alone():
    model = tiny("CartPole-v1", num_heads=2)
    obs = np.random.default_rng(0).normal(0, 1, (60, 4)).astype(np.float32)
    many, belief = model.predict(obs)
    assert (belief.votes == 1).all(axis=1).sum() > 3  # there are some
    assert many.tolist() == [model.predict(row)[0] for row in obs]


def test_what_evaluate_refuses(tmp_path, capsys):
    model = tiny("CartPole-v1")
    model.save(tmp_path / "m.safetensors")
    for flags, message in (
        (["--policy", "head", "--head", "7"], "head must be 0 to 2, got 7"),
        (["--seed", "-1"], "seed must not be negative, got -1"),
        (["--episodes", "0"], "episodes must be at least 1, got 0"),
        (["--report-card", "--episodes", "0"], "episodes must be at least 1, got 0"),
    ):
        assert main(["evaluate", str(tmp_path / "m.safetensors"), *flags]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match="unknown policy 'majority'"):
        model.evaluate(1, "majority")  # type: ignore
    with pytest.raises(UserError, match=r"steps must be a whole number, got 50\.0"):
        model.learn(5e1)  # type: ignore


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 64}, "hidden must be whole numbers, such as (64,) or (50, 50), got 64"),
        ({"hidden": (1.5,)}, "hidden must be whole numbers"),
        ({"num_heads": 2.5}, "num_heads must be a whole number, got 2.5"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, got 'fast'"),
    ],
)
def test_options_of_another_type(options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        BootstrappedDQN("CartPole-v1", **options)
    with pytest.raises(UserError, match=re.escape(message)):
        bootdqn.train("chain:5", **options)


def test_what_the_functions_for_other_environments_say():
    with pytest.raises(UserError, match=r"CartPole-v1 is not one of ours: BootstrappedDQN\('CartPole-v1'\)"):
        bootdqn.train("CartPole-v1")
    with pytest.raises(UserError, match=r"episodes must be a whole number, got 1\.5"):
        bootdqn.train("chain:5", episodes=1.5)  # type: ignore
    with pytest.raises(UserError, match="unknown option of boot 'epsiodes'; did you mean episodes"):
        bootdqn.train("chain:5", epsiodes=2)


def test_a_run_directory_named_like_an_environment(tmp_path):
    out = tmp_path / "chain-v2"
    assert main(["train", "chain:5", "--episodes", "2", "--heads", "2", "--hidden", "4", "--out", str(out)]) == 0
    assert json.loads((out / "config.json").read_text())["episodes"] == 2


def test_a_run_whose_replay_was_resized_is_not_resumed(tmp_path):
    run = small_run(tmp_path / "run", evaluate_every_steps=0)
    for _ in range(110):
        run._advance(StepProgress("", steps=1, begun_with=0, visible=False), None, None, None, lambda: False)
    assert run.directory is not None
    run.directory.finish("failed")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": 900}))
    with pytest.raises(UserError, match="was changed: replay held 300 steps and would now hold 900"):
        GymRun.resume(tmp_path / "run", show=lambda text: None)


def test_runs_that_cannot_be_resumed_say_why(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 2
    assert "is" in capsys.readouterr().err
    tiny("CartPole-v1").learn(60, out=tmp_path / "done")
    assert main(["resume", str(tmp_path / "done")]) == 2
    assert "is finished; there is nothing to go on with" in capsys.readouterr().err
    before = (tmp_path / "done" / "run.json").read_bytes()
    with pytest.raises(UserError, match="is finished; there is nothing"):
        BootstrappedDQN.resume(tmp_path / "done")
    assert (tmp_path / "done" / "run.json").read_bytes() == before
    assert main(["resume", str(tmp_path / "done" / "metrics.csv")]) == 2
    assert "metrics.csv a run directory?" in capsys.readouterr().err
    tiny(lambda: gymnasium.make("CartPole-v1").unwrapped).learn(60, out=tmp_path / "nameless")
    record = json.loads((tmp_path / "nameless" / "run.json").read_text())
    (tmp_path / "nameless" / "run.json").write_text(json.dumps({**record, "status": "running"}))
    assert main(["resume", str(tmp_path / "nameless")]) == 2
    assert "has no name; give the environment" in capsys.readouterr().err
    (tmp_path / "done" / "run.json").write_text("{")
    assert main(["resume", str(tmp_path / "done")]) == 2
    assert "is damaged: it is not JSON" in capsys.readouterr().err


def test_a_run_does_not_depend_on_whether_it_is_recorded(tmp_path):
    options: dict[str, Any] = {"checkpoint_every_steps": 100, "evaluate_every_steps": 0}
    recorded = tiny("CartPole-v1").learn(250, out=tmp_path / "run", **options)
    assert trees_equal(recorded.params, tiny("CartPole-v1").learn(250, **options).params)
    evaluated = tiny("CartPole-v1").learn(250, **{**options, "evaluate_every_steps": 50, "evaluation_episodes": 1})
    assert trees_equal(recorded.params, evaluated.params)


def test_the_command_line_from_train_to_evaluate(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", *RUN, "--tensorboard", "--out", out]) == 0
    shown = capsys.readouterr().out
    assert "head report card, after 900 steps" in shown
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert 0 < record["checkpoint_seconds"] < record["seconds"]
    assert "a replay of 900 steps take" in shown
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert (tmp_path / "run" / "learning_curve.png").stat().st_size > 5000
    assert main(["evaluate", out, "--episodes", "4", "--json", str(tmp_path / "e.json")]) == 0
    returns = json.loads((tmp_path / "e.json").read_text())["returns"]["vote"]
    assert f"CartPole-v1, 4 episodes by vote: mean {np.mean(returns):.2f}" in capsys.readouterr().out
    assert main(["evaluate", out, "--model", "best", "--episodes", "1", "--report-card"]) == 0
    assert "head 2" in capsys.readouterr().out
    for arguments, message in (
        ([str(tmp_path / "nothing")], "no model file"),
        ([str(tmp_path)], "the directory of a run that has ended?"),
        ([out, "--json", out], "is a directory; give the name of a file"),
        ([out, "--head", "1"], "--head belongs to --policy head"),
    ):
        assert main(["evaluate", *arguments]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UserError, match="is a directory; give a model file"):
        BootstrappedDQN.load(out)
    with pytest.raises(UserError, match="is a directory; give the name of a file"):
        BootstrappedDQN.load(tmp_path / "run" / "models" / "last.safetensors").save(out)


GYM_RESULTS = Path(__file__).parents[1] / "results" / "gymnasium"


@pytest.mark.parametrize(("name", "steps", "goal"), [("cartpole", 50_000, 475), ("acrobot", 100_000, -100)])
def test_committed_results_reach_their_goal_and_are_what_the_page_says(name, steps, goal):
    page = (GYM_RESULTS.parents[1] / "docs" / "gymnasium.md").read_text()
    for seed in range(3):
        run = GYM_RESULTS / f"{name}-seed{seed}"
        means = {}
        for model in ("best", "last"):
            returns = json.loads((run / f"evaluate-{model}.json").read_text())["returns"]["vote"]
            assert len(returns) == 100
            means[model] = np.mean(returns)
        assert means["best"] >= goal
        config = json.loads((run / "config.json").read_text())
        assert (config["steps"], config["seed"]) == (steps, seed)
        # The default configuration.
        assert is_same(GYM_AGENTS["boot"], config["agent"])
        assert f"| {config['env']} | {steps:,} | {seed} | {means['best']:.1f} | {means['last']:.1f} |" in page
        record = json.loads((run / "run.json").read_text())
        assert record["status"] == "finished"
        assert not record["git_revision"].endswith("-dirty")
        assert (run / "metrics.csv").stat().st_size > 1000


def test_beliefs_are_numpy_arrays():
    action, belief = tiny("CartPole-v1").predict([0.0, 0.1, 0.0, -0.1])
    assert isinstance(action, int)
    assert isinstance(belief.q, np.ndarray)
    assert not isinstance(belief.mean, jnp.ndarray)
