"""Learn or fail: deep exploration must succeed in a budget in which dithering must not."""

import pytest

import bootdqn


def seeds_that_learn(env, agent):
    """How many of 5 seeds learn in 500 episodes; an agent that dithers is judged without."""
    learned = bootdqn.train(env, agent, episodes=500, num_seeds=5).episodes_to_learn()
    return sum(episode is not None for episode in learned.values())


def test_boot_learns_the_chain_in_every_seed():
    assert seeds_that_learn("chain:20", "boot") == 5


def test_dqn_learns_a_short_chain_and_not_a_longer_one():
    """The baseline works, and fails for want of exploration.

    On the plain chain a lucky network generalises "always right" with no reward found: one seed in five does.
    """
    assert seeds_that_learn("chain:6", "dqn") == 5
    assert seeds_that_learn("chain:30", "dqn") <= 2
    assert seeds_that_learn("chain:30,scrambled", "dqn") == 0


@pytest.mark.slow
def test_only_a_committed_head_learns_the_scrambled_chain():
    """What `make demo` shows: the same heads and budget, and only the way of exploring differs."""
    assert seeds_that_learn("chain:30,scrambled", "boot") >= 4
    assert seeds_that_learn("chain:30,scrambled", "thompson") <= 1
    assert seeds_that_learn("chain:30,scrambled", "ensemble") <= 1
