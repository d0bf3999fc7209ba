"""The head report card: likeness by hand, and cards of runs against what their models do."""

import csv
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bootdqn
from bootdqn.analysis.agreement import Likeness, PolicyReturns, report_card
from bootdqn.cli.main import main
from bootdqn.core.agent import make_agent
from bootdqn.core.config import AGENTS
from bootdqn.envs.chain import Chain
from bootdqn.loops.compiled import EpisodeMetrics
from bootdqn.loops.rollout import MEAN, VOTE, make_player, make_surveyor


def test_likeness_by_hand():
    # Two observations, three heads, two actions; preferences are (-d, d) with d half of the difference.
    q = np.array([[[0, 2], [5, 9], [3, 1]], [[4, 0], [8, 0], [0, 4]]], float)
    found = Likeness.of(q)
    halves = np.array([[1, 2, -1], [-2, -4, 2]], float)  # [observation, head]
    np.testing.assert_allclose(found.products, 2 * halves.T @ halves)
    np.testing.assert_allclose(found.correlation, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])
    np.testing.assert_array_equal(found.agreements, [[2, 2, 0], [2, 2, 0], [0, 0, 2]])
    assert found.agreement == pytest.approx(1 / 3)  # one pair of three
    assert found.effective_heads == pytest.approx(9 / 5)  # two the same, and one opposite: 1 + 1 + 1 + 2 * 1
    assert found.warning is None


@pytest.mark.parametrize("num_heads", [2, 5])
def test_heads_between_one_and_all(num_heads):
    # Unrelated: every head has preferences on an observation of its own.
    apart = np.zeros((num_heads, num_heads, 2))
    apart[range(num_heads), range(num_heads), 1] = 1
    assert Likeness.of(apart).effective_heads == pytest.approx(num_heads)
    assert Likeness.of(apart).warning is None
    # The same but for a factor and a constant.
    base = np.array([[0.0, 1.0], [2.0, 0.0]])
    same = np.stack([(head + 1) * base + head for head in range(num_heads)], axis=1)
    assert Likeness.of(same).effective_heads == pytest.approx(1)
    assert f"{num_heads} are worth 1.00" in str(Likeness.of(same).warning)


def test_likeness_adds_up_over_observations():
    q = np.random.default_rng(0).normal(size=(7, 3, 4))
    parts = [Likeness.of(q[:2]), Likeness.of(q[2:2]), Likeness.of(q[2:])]
    whole, total = Likeness.of(q), Likeness.sum(parts)
    for a, b in zip(whole, total, strict=True):
        np.testing.assert_allclose(a, b)


def test_heads_without_preferences_are_like_each_other_alone_and_one_head_is_no_crowd():
    q = np.array([[[0.0, 1.0], [2.0, 2.0], [3.0, 3.0]]])
    np.testing.assert_allclose(Likeness.of(q).correlation, [[1, 0, 0], [0, 1, 1], [0, 1, 1]])
    one = Likeness.of(q[:, :1])
    assert (one.agreement, one.effective_heads, one.warning) == (1.0, 1.0, None)
    assert Likeness.sum([]).warning is None


def test_a_card_says_what_policies_collect():
    likeness = Likeness.of(np.zeros((1, 2, 2)))
    card = report_card([PolicyReturns("head 1", [1.0, 4.0], 0.5, 0.25)], likeness, "one state")
    assert card["policies"] == [
        {
            "policy": "head 1",
            "episodes": 2,
            "mean_return": 2.5,
            "least_return": 1.0,
            "largest_return": 4.0,
            "entropy": 0.5,
            "data_share": 0.25,
        }
    ]
    assert card["correlation"] == [[1, 1], [1, 1]]


def scripted(env, prefers_right):
    """An agent and parameters whose heads go right, or left, everywhere: the biases of the output decide."""
    config = bootdqn.AgentConfig(num_heads=len(prefers_right), hidden=(4,))
    agent = make_agent(config, env.encoding, 2)
    params = jax.tree.map(np.zeros_like, agent.init(jax.random.key(0)).params)
    leaves, tree = jax.tree.flatten(params)
    biases = [i for i, leaf in enumerate(leaves) if leaf.shape == (len(prefers_right), 2)]
    assert len(biases) == 1
    leaves[biases[0]] = np.array([[0.0, 1.0] if right else [1.0, 0.0] for right in prefers_right], np.float32)
    return agent, jax.tree.unflatten(tree, leaves)


def test_policies_of_scripted_heads_collect_what_they_must():
    env = Chain(length=6)
    agent, params = scripted(env, [True, True, False])
    policies = jnp.array([VOTE, MEAN, 0, 1, 2])
    keys = jax.random.split(jax.random.key(0), (5, 2))
    returns, entropy = map(np.asarray, make_player(env, agent)(params, keys, policies))
    left = 0.001 * (env.horizon - 1)  # from s_2, one step to the wall
    np.testing.assert_allclose(returns, np.repeat([[10], [10], [10], [10], [left]], 2, axis=1), rtol=1e-5)
    share = np.array([2 / 3, 1 / 3])
    np.testing.assert_allclose(entropy, -(share * np.log(share)).sum(), rtol=1e-5)
    beliefs = make_surveyor(agent)(params, jnp.arange(6))
    np.testing.assert_allclose(beliefs.votes, np.tile([1, 2], (6, 1)))
    assert np.asarray(beliefs.q).shape == (6, 3, 2)


@pytest.mark.parametrize("seed", range(3))
def test_untrained_heads_with_two_actions_are_worth_about_two(seed):
    """Each prefers one action nearly everywhere, by its bias: docs/seeing.md says so."""
    env = Chain(length=20, scrambled=True)
    config = AGENTS["boot"]
    agent = make_agent(config, env.encoding, 2)
    values = make_surveyor(agent)(agent.init(jax.random.key(seed)).params, jnp.arange(20)).q
    assert 1.5 < Likeness.of(values).effective_heads < 2.5


def test_a_survey_is_what_the_agent_believes_however_many_states(monkeypatch):
    monkeypatch.setattr("bootdqn.loops.rollout._STATES_AT_ONCE", 4)
    env = Chain(length=10)
    config = bootdqn.AgentConfig(num_heads=2, hidden=(4,))
    agent = make_agent(config, env.encoding, 2)
    params = agent.init(jax.random.key(1)).params
    found = make_surveyor(agent)(params, jnp.arange(10))
    for state in range(10):
        one = agent.belief(params, jnp.int32(state))
        np.testing.assert_allclose(found.q[state], one.q, rtol=1e-5)


@pytest.mark.integration
def test_a_run_on_a_chain_leaves_a_card_for_every_seed(tmp_path):
    out = tmp_path / "run"
    result = bootdqn.train(
        "chain:5", episodes=30, num_seeds=2, seed=3, out=out, num_heads=3, hidden=(8,), learning_start_steps=10
    )
    cards = json.loads((out / "heads.json").read_text())["cards"]
    assert [card["seed"] for card in cards] == [3, 4]
    for card in cards:
        names = [row["policy"] for row in card["policies"]]
        assert names == ["vote", "mean", "head 0", "head 1", "head 2"]
        metrics = result.metrics[card["seed"]]
        assert isinstance(metrics, EpisodeMetrics)
        heads = metrics.head
        shares = [row["data_share"] for row in card["policies"]]
        assert shares[:2] == [None, None]
        assert shares[2:] == pytest.approx([np.mean(heads == head) for head in range(3)])
        values = np.stack([result.belief(state, card["seed"]).q for state in range(5)])
        seen = np.asarray(result.exploration[card["seed"]].visits) > 0
        assert card["observations"] == f"the {seen.sum()} states visited"
        values = values[seen]
        np.testing.assert_allclose(card["correlation"], Likeness.of(values).correlation, atol=1e-3)
        # A head that now prefers right in every state collects the optimum.
        right = (values[:, :, 1] > values[:, :, 0]).all(axis=0)
        for head in np.flatnonzero(right) if seen.all() else ():
            assert card["policies"][2 + head]["least_return"] == pytest.approx(10)


@pytest.mark.integration
def test_a_run_without_committed_heads_has_no_shares_and_one_head_has_no_card(tmp_path):
    small: dict[str, Any] = {"episodes": 3, "hidden": (4,)}
    bootdqn.train("chain:4", "ensemble", out=tmp_path / "ensemble", num_heads=2, **small)
    card = json.loads((tmp_path / "ensemble" / "heads.json").read_text())["cards"][0]
    assert all(row["data_share"] is None for row in card["policies"])
    bootdqn.train("chain:4", "dqn", out=tmp_path / "dqn", **small)
    assert not (tmp_path / "dqn" / "heads.json").exists()
    bootdqn.train("chain:4", "psrl", out=tmp_path / "psrl", episodes=3)
    assert not (tmp_path / "psrl" / "exploration.csv").exists()


@pytest.mark.integration
def test_a_run_on_gymnasium_leaves_the_card_of_its_last_evaluation(tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--steps", "300", "--heads", "2", "--hidden", "8", "--evaluate-every-steps", "150"]
    assert main(["train", "CartPole-v1", *flags, "--evaluation-episodes", "3", "--out", str(out)]) == 0
    card = json.loads((out / "heads.json").read_text())["cards"][0]
    assert (card["seed"], card["step"]) == (0, 300)
    with (out / "evaluations.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["step"] == "300"]
    assert [row["policy"] for row in card["policies"]] == [row["policy"] for row in rows]
    for found, row in zip(card["policies"], rows, strict=True):
        assert found["mean_return"] == pytest.approx(float(row["mean_return"]))
        assert found["episodes"] == 3
        assert found["data_share"] == (float(row["data_share"]) if row["data_share"] else None)
    # As many observations as steps were played: on CartPole, what was collected.
    played = round(sum(3 * row["mean_return"] for row in card["policies"]))
    assert card["observations"] == f"{played:,} observations of the episodes played"
    assert "2 heads are worth" in capsys.readouterr().out


@pytest.mark.integration
def test_evaluate_shows_a_card_and_writes_it(tmp_path, capsys):
    out, record = tmp_path / "run", tmp_path / "card.json"
    assert main(["train", "chain:4", "--heads", "2", "--hidden", "4", "--episodes", "3", "--out", str(out)]) == 0
    model = str(out / "models" / "seed0.safetensors")
    assert main(["evaluate", model, "--report-card", "--episodes", "2", "--json", str(record)]) == 0
    assert "unrelated ones" in capsys.readouterr().out
    card = json.loads(record.read_text())
    assert len(card["correlation"]) == 2
    assert card["policies"][0]["policy"] == "vote"
