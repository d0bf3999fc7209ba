"""Training on Atari games: lives, heads, what replay holds, and runs that experiments share."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bootdqn import BootstrappedDQN
from bootdqn.agent import AGENTS, ATARI_AGENTS, AgentConfig, make_agent, make_network
from bootdqn.cli.main import main
from bootdqn.envs.atari import PAPER, AtariEnvs
from bootdqn.errors import UserError
from bootdqn.experiments.atari import run as atari
from bootdqn.experiments.catalog import EXPERIMENTS
from bootdqn.experiments.runner import Context, read_results
from bootdqn.gym_run import GymRun, default_config
from bootdqn.kernels import why_not
from bootdqn.loops.evaluate import VOTE, evaluate, make_chooser
from bootdqn.loops.host import HostTraining
from bootdqn.loops.slots import make_acting, make_slots
from bootdqn.types import Belief, Encoding, Transition

TINY = {"num_heads": 3, "hidden": (8,), "batch_size": 4, "replay_capacity": 3000, "mask_probability": 0.5}


def play(name: str, steps: int, **options) -> tuple[HostTraining, list, list[np.ndarray]]:
    """A training that acts at random and does not learn, its episodes, and every observation acted on."""
    config = dataclasses.replace(
        ATARI_AGENTS["boot"], **{**TINY, "learning_start_steps": 10**6, "epsilon_end": 1.0, **options}
    )
    training = HostTraining(AtariEnvs(name, 2), config, seed=1, steps=steps)
    training.begin()
    episodes, seen = [], []
    while training.counters.step < steps:
        seen.append(training._obs.copy())
        episodes += training.tick()
    training.flush()
    return training, episodes, seen


def test_lost_lives_end_the_future_but_neither_the_episode_nor_the_head():
    training, episodes, _ = play("atari:breakout", 2000)
    frames = training.frames
    assert frames is not None
    rows = {name: field[: frames.added].reshape(-1, 2, *field.shape[1:]) for name, field in frames.rows.items()}
    assert episodes
    for slot in (0, 1):
        ended = [episode for episode in episodes if episode.slot == slot]
        no_future = (rows["discount"][:, slot] == 0) & rows["acted"][:, slot]
        # Five lives a game; the fifth is lost with the game.
        complete = sum(episode.length for episode in ended) + len(ended)  # a row more for every last observation
        assert no_future[:complete].sum() == 5 * len(ended)
        assert (~rows["acted"][:, slot]).sum() == len(ended)
        # One mask, so one head, from the start of an episode to its end.
        starts = np.flatnonzero(rows["depth"][:, slot] == 0)
        assert len(starts) in (len(ended), len(ended) + 1)
        for first, end in zip(starts, [*starts[1:], None], strict=True):
            masks = rows["mask"][first:end, slot][rows["acted"][first:end, slot]]
            assert (masks == masks[0]).all()
    assert {episode.terminated for episode in episodes} == {True}
    np.testing.assert_allclose(np.unique(rows["discount"]), [0, 0.99], rtol=1e-6)
    lives = [e.episode_return for e in episodes]
    assert max(lives) <= rows["reward"].sum()  # raw scores


def test_replay_gives_back_what_was_seen():
    training, _, seen = play("atari:seaquest", 600)
    frames = training.frames
    assert frames is not None
    for row in [0, 1, 2, 7, 100, 301, 400]:
        tick, slot = divmod(row, 2)
        batch = frames._gather(np.array([row]))
        np.testing.assert_array_equal(batch.frames[0, :4], seen[tick][slot])
        np.testing.assert_array_equal(batch.frames[0, 1:], seen[tick + 1][slot])


def test_the_papers_settings():
    for name, agent in ATARI_AGENTS.items():
        assert agent.acting == AGENTS[name].acting
        assert (agent.learning_period_steps, agent.learning_start_steps, agent.replay_capacity) == (
            4,
            50_000,
            10**6,
        )
        assert agent.target_period_updates * agent.learning_period_steps == 10_000
        assert (agent.epsilon_start, agent.epsilon_end, agent.epsilon_anneal_steps) == (1.0, 0.01, 10**6)
        assert (agent.optimizer, agent.learning_rate, agent.discount) == ("rmsprop", 2.5e-4, 0.99)
        assert (agent.hidden, agent.loss, agent.double_q, agent.clip_rewards) == ((512,), "huber", True, True)
        assert agent.num_heads == (1 if name == "dqn" else 10)
        assert agent.mask_probability == 1.0
        assert agent.scale_trunk_gradient == (name != "boot+")
    config = default_config("atari:pong", "boot")
    frames = [4 * n for n in (config.steps, config.evaluate_every_steps, config.evaluation_steps)]
    assert frames == [200_000_000, 1_000_000, 500_000]
    sizes = {name: len(EXPERIMENTS[name].sweep("paper")) for name in EXPERIMENTS if name.startswith("atari-")}
    assert sizes["atari-49"] == 49 * 2 * 3
    assert sizes["atari-auc"] == 14 * 3 * 3
    assert {t.config.steps for t in EXPERIMENTS["atari-auc"].sweep("paper")} == {5_000_000}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The results of one experiment, whose runs another can use."""
    out = tmp_path_factory.mktemp("atari")
    assert main(["reproduce", "atari-curves", "--preset", "smoke", "--out", str(out / "atari-curves")]) == 0
    return out


def test_experiments_share_runs(smoke, capsys):
    arguments = ["reproduce", "atari-49", "--preset", "smoke", "--only-draw", "--out", str(smoke / "atari-49")]
    assert main(arguments) == 0
    assert "2 trials, 2 have their result" in capsys.readouterr().out
    mine, theirs = (read_results(smoke / name) for name in ("atari-49", "atari-curves"))
    assert mine == theirs
    assert (smoke / "atari-49" / "atari-49.png").stat().st_size > 5000
    runs = sorted(path.name for path in (smoke / "atari-runs").iterdir())
    assert runs == ["breakout-boot-k2-160steps-seed0", "breakout-dqn-k1-160steps-seed0"]
    record = json.loads((smoke / "atari-runs" / runs[0] / "protocol.json").read_text())
    assert (record["game"], record["sticky_probability"], record["max_episode_frames"]) == (
        "breakout",
        0.0,
        108_000,
    )
    record = json.loads((smoke / "atari-runs" / runs[0] / "run.json").read_text())
    assert record["kernels"] == (why_not() or "compiled")
    # Evaluated at half time by vote, in the end by everybody.
    policies = [row["policy"] for row in mine if row["agent"] == "boot"]
    assert policies == ["vote", "vote", "mean", "head 0", "head 1"]


def test_a_shared_run_of_another_configuration_is_refused(smoke, tmp_path):
    shutil.copytree(smoke / "atari-runs", tmp_path / "atari-runs")
    path = tmp_path / "atari-runs" / "breakout-dqn-k1-160steps-seed0" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "evaluate_every_steps": 7}))
    (trial,) = (t for t in EXPERIMENTS["atari-curves"].sweep("smoke") if t.config.agent_name == "dqn")
    with pytest.raises(UserError, match="holds a run with another configuration"):
        atari.find(trial.config, tmp_path / "atari-curves")


def test_a_run_that_was_killed_at_its_very_start_begins_anew(tmp_path):
    (trial,) = (t for t in EXPERIMENTS["atari-curves"].sweep("smoke") if t.config.agent_name == "dqn")
    path = tmp_path / "atari-runs" / trial.name
    path.mkdir(parents=True)
    for name in ("config.json", "run.json", "metrics.csv"):
        (path / name).write_text("{}")
    context = Context(lambda: False, lambda share: None, ThreadPoolExecutor(1), tmp_path / "atari-curves")
    rows = atari.run(trial.config, context)
    assert rows is not None
    assert [row["step"] for row in rows] == ["80", "160"]
    assert "evaluated with epsilon 0.05" in rows[0]["protocol"]
    assert [row["episodes"] for row in rows] == ["0", "0"]  # none ends in 20 steps


def test_a_run_of_another_protocol_does_not_go_on(smoke, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(smoke / "atari-runs" / "breakout-dqn-k1-160steps-seed0", path)
    card = json.loads((path / "protocol.json").read_text())
    (path / "protocol.json").write_text(json.dumps({**card, "ale_py": "0.1"}))
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**record, "status": "interrupted"}))
    with pytest.raises(UserError, match=r"began with another protocol: ale_py was 0.1 and is \d"):
        GymRun.resume(path, show=lambda text: None)


def test_too_little_memory_is_said_before_it_is_taken(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bootdqn.memory.available_memory", lambda: 8 * 10**9)
    out = tmp_path / "run"
    # More than could be allocated, whatever the machine.
    assert main(["train", "atari:pong", "--replay-capacity", "2000000000", "--out", str(out)]) == 2
    assert "GB and 8.0 GB of memory is free" in capsys.readouterr().err
    assert not out.exists()


def test_evaluation_by_steps_counts_what_ended_and_else_what_there_is():
    envs = AtariEnvs("atari:freeway", 2, dataclasses.replace(PAPER, max_episode_frames=40))

    def up(params, keys, obs, policies, tick, epsilon) -> Any:
        assert epsilon == 0.25
        return np.ones(2, np.int32), Belief(jnp.zeros((2, 1, 3)), *[jnp.zeros(2)] * 4)

    (found,) = evaluate(envs, up, None, [VOTE, VOTE], episodes=1, steps=33, epsilon=0.25, seed=[1])
    assert (found.ended, len(found.returns)) == (6, 6)  # of ten steps, and one to begin anew
    (found,) = evaluate(envs, up, None, [VOTE, VOTE], episodes=1, steps=9, epsilon=0.25, seed=[1])
    assert (found.ended, len(found.returns)) == (0, 2)


def test_random_actions_in_evaluations():
    """With epsilon 1 all actions are as likely; with 0 always the same is chosen."""
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2, hidden=(8,))
    agent = make_agent(config, make_network(config, Encoding("pictures", 28224), 4), 4)
    params = agent.init(jax.random.key(0)).params
    obs = np.zeros((4, 4, 84, 84), np.uint8)
    chooser, keys = make_chooser(agent), jax.random.split(jax.random.key(1), 4)
    chosen = {
        epsilon: np.concatenate([chooser(params, keys, obs, np.full(4, -2), t, epsilon)[0] for t in range(100)])
        for epsilon in (0.0, 0.5, 1.0)
    }
    assert len(np.unique(chosen[0.0])) == 1
    assert np.bincount(chosen[1.0], minlength=4).min() > 70
    assert 200 < (chosen[0.5] == chosen[0.0]).sum() < 300  # a half, and a quarter of the other


def test_the_friendly_face_plays_too(smoke):
    path = smoke / "atari-runs" / "breakout-boot-k2-160steps-seed0" / "models" / "last.safetensors"
    model = BootstrappedDQN.load(path, "atari:breakout")
    envs = AtariEnvs("atari:breakout")
    obs = envs.reset([3])
    action, belief = model.predict(obs[0])
    assert 0 <= action < 4
    assert belief.q.shape == (2, 4)
    actions, _ = model.predict(np.concatenate([obs, obs]))
    assert actions.tolist() == [action, action]
    with pytest.raises(UserError, match=r"expected an observation of shape \(4, 84, 84\)"):
        model.predict(obs[0][:3])


@pytest.mark.parametrize("overlap", [True, False])
def test_actions_come_from_parameters_that_lack_one_update_at_most(overlap):
    config = dataclasses.replace(ATARI_AGENTS["boot"], **TINY, learning_start_steps=12, epsilon_end=1.0)
    training = HostTraining(AtariEnvs("atari:pong"), config, seed=1, steps=40, overlap=overlap)
    training.begin()
    act, update, begin = training._program.act_held, training._program.update, training.update_from_frames
    begun, used = [], []
    after = [training.params.layers[-1].bias]  # by number of updates

    def noting_act(held, slots, *rest):
        used.append((np.asarray(held.layers[-1].bias[0]), int(slots.head[0]), len(begun)))
        return act(held, slots, *rest)

    def noting_begin(frames, index):
        begun.append(index)
        begin(frames, index)

    def noting_update(learned, batch):
        learned = update(learned, batch)
        after.append(np.array(learned.learner.params.layers[-1].bias))
        return learned

    training._program = training._program._replace(act_held=noting_act, update=noting_update)
    training.update_from_frames = noting_begin
    while training.counters.step < 40:
        training.tick()
    assert begun == list(range(7 + (not overlap)))
    assert len(training.params.layers[-1].bias) == 3  # waits
    assert all((a != b).any() for a, b in pairwise(after))
    for bias, head, updates in used:
        assert np.array_equal(bias, after[max(0, updates - overlap)][head])
    assert {updates for *_, updates in used} == set(range(8))


@pytest.mark.parametrize(
    ("acting", "num_envs", "num_held"),
    [("committed_head", 2, 2), ("committed_head", 4, 3), ("vote", 2, 3), ("head_per_step", 1, 3)],
)
def test_what_is_held_acts_as_all_parameters_do(acting, num_envs, num_held):
    config = dataclasses.replace(AgentConfig(), num_heads=3, acting=acting, epsilon_start=0.5, epsilon_end=0.5)
    agent = make_agent(config, make_network(config, Encoding("vector", 2), 6), 6)
    params = agent.init(jax.random.key(1)).params
    slots = make_slots(jax.random.key(2), config, num_envs)
    act, begin, hold, act_held, _ = map(jax.jit, make_acting(agent, config, num_envs))
    rng = np.random.default_rng(0)
    seen = set()
    for step in range(12):
        obs = rng.normal(size=(num_envs, 2)).astype(np.float32)
        fresh = np.full(num_envs, step == 0) | (rng.random(num_envs) < 0.2)
        begun = begin(slots, fresh)
        held = hold(params, begun)
        actions, after = act_held(held, begun, obs, step)
        expected, slots = act(params, slots, fresh, obs, step)
        assert held.layers[0].bias.shape[0] == num_held
        assert actions.tolist() == expected.tolist()
        jax.tree.map(np.testing.assert_array_equal, *(jax.tree.map(_numbers, x) for x in (after, slots)))
        seen |= set(actions.tolist())
    assert len(seen) > 2


def _numbers(x):
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def test_an_update_copies_no_weights():
    config = dataclasses.replace(ATARI_AGENTS["boot"], num_heads=2)
    agent = make_agent(config, make_network(config, Encoding("pictures", 4 * 84 * 84), 4), 4)
    obs, number = jnp.zeros((32, 4, 84, 84), np.uint8), jnp.zeros(32)
    batch = Transition(obs, jnp.zeros(32, np.int32), number, number, obs, jnp.ones((32, 2)))
    learner = jax.eval_shape(agent.init, jax.random.key(0))
    program = jax.jit(agent.update, donate_argnums=0).lower(learner, batch).compile().as_text() or ""
    copies = r"= f32\[(?:2,512,3136|1024,3136)\]\S* copy\("
    assert len(re.findall(copies, program)) == 1  # of new parameters to the target's, in a branch
    assert not re.findall(copies, program[program.index("ENTRY") :])


IN_LARGE_PAGES = """
import ctypes, re
from pathlib import Path
from bootdqn.memory import keep_large_blocks
from bootdqn.replay.frames import FrameReplay
def resident():
    return int(re.search("VmRSS:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1]) // 1024
keep_large_blocks()
before = resident()
rows = FrameReplay(400_000, num_slots=1, num_heads=1).rows  # 2.8 GB
assert not rows["frame"][::100_000].any()
print(resident() - before < 100)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
block = libc.malloc(2**26)
for text in re.split("\\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
    start, end = (int(x, 16) for x in text.split()[0].split("-"))
    if start <= block + 2**25 < end:
        print("hg" in text.split("VmFlags:")[1].split())
"""


def test_a_learner_gets_large_pages_where_linux_has_them_and_replay_none():
    shown = subprocess.run([sys.executable, "-c", IN_LARGE_PAGES], capture_output=True, text=True, check=True)
    replay_takes_nothing, in_large_pages = shown.stdout.split()
    assert replay_takes_nothing == "True"
    assert in_large_pages == str(Path("/sys/kernel/mm/transparent_hugepage").exists())


def test_a_computation_that_fails_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    default = default_config("atari:pong", "boot")
    config = dataclasses.replace(
        default,
        agent=dataclasses.replace(default.agent, **TINY, learning_start_steps=12),
        steps=60,
        evaluate_every_steps=0,
        checkpoint_every_steps=20,
    )
    run = GymRun(config, out=tmp_path / "run", show=lambda text: None)
    update, calls = run.training._program.update, []

    def fails(*arguments):
        calls.append(None)
        if len(calls) == 7:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no memory")
        return update(*arguments)

    monkeypatch.setattr(run.training, "_program", run.training._program._replace(update=fails))
    with pytest.raises(UserError, match=r"stopped at step \d+: RESOURCE_EXHAUSTED: no memory; .*bootdqn resume"):
        run.run()
    resumed = GymRun.resume(tmp_path / "run", show=lambda text: None)
    assert resumed.training.counters.step == 20
    assert resumed.run()


def test_a_run_that_is_stopped_between_updates_goes_on_to_the_same_bits(tmp_path):
    default = default_config("atari:pong", "boot")
    config = dataclasses.replace(
        default,
        # Nothing random, and every update changes what is done.
        agent=dataclasses.replace(
            default.agent, **TINY, learning_start_steps=12, epsilon_start=0, epsilon_end=0, learning_rate=0.01
        ),
        steps=48,
        evaluate_every_steps=0,
        checkpoint_every_steps=30,
    )

    def params_of(out, stops):
        run = GymRun(config, out=out, show=lambda text: None)
        for stop in stops:
            assert not run.run(told_to_stop=lambda: run.training.counters.step >= stop)  # noqa: B023
            run = GymRun.resume(out, show=lambda text: None)
        run.run()
        return run.training.params

    undisturbed = params_of(tmp_path / "undisturbed", [])
    stopped = params_of(tmp_path / "stopped", [17, 22, 27, 34, 41])
    jax.tree.map(np.testing.assert_array_equal, stopped, undisturbed)
