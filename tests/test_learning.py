"""Learn or fail: deep exploration must succeed in a budget in which dithering must not."""

import pytest

import bootdqn


def episodes_to_learn(env, agent, *, greedy=False):
    """By seed, within the budget that all tests share."""
    return bootdqn.train(env, agent, episodes=500, num_seeds=5).episodes_to_learn(greedy=greedy)


def test_boot_learns_the_chain_in_every_seed():
    learned = episodes_to_learn("chain:20", "boot")
    assert all(episode is not None for episode in learned.values()), learned


def test_dqn_does_not_learn_a_longer_chain_in_any_seed():
    learned = episodes_to_learn("chain:30", "dqn")
    assert all(episode is None for episode in learned.values()), learned


def test_dqn_learns_a_short_chain():
    """The baseline fails for want of exploration, not because it is broken."""
    learned = episodes_to_learn("chain:6", "dqn", greedy=True)
    assert all(episode is not None for episode in learned.values()), learned


@pytest.mark.slow
def test_only_a_committed_head_learns_the_scrambled_chain():
    """What `make demo` shows: the same networks and budget, and only the way of exploring differs."""
    learned = {
        agent: sum(e is not None for e in episodes_to_learn("chain:40,scrambled", agent).values())
        for agent in ("boot", "thompson", "ensemble", "dqn")
    }
    assert learned["boot"] >= 4, learned
    assert max(learned["thompson"], learned["ensemble"], learned["dqn"]) <= 1, learned
