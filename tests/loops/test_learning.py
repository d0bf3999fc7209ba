"""Learn or fail: deep exploration must succeed in a budget in which dithering mostly does not."""

import pytest

import bootdqn
from bootdqn import BootstrappedDQN

pytestmark = pytest.mark.learn


def seeds_that_learn(env, agent, episodes=500, num_seeds=5, **options):
    """How many seeds learn in so many episodes; an agent that dithers is judged without."""
    learned = bootdqn.train(env, agent, episodes=episodes, num_seeds=num_seeds, **options).episodes_to_learn()
    return sum(episode is not None for episode in learned.values())


@pytest.mark.parametrize("env", ["chain:20", "chain:20,scrambled"])
def test_boot_learns_the_chain_in_every_seed(env):
    assert seeds_that_learn(env, "boot") == 5


def test_priors_solve_a_deep_sea_that_wide_biases_do_not():
    """DeepSea-20, where every step right costs and only the last one of 2^20 paths is worth it."""
    assert seeds_that_learn("deep_sea:20", "boot-prior", 600, num_seeds=2) == 2
    assert seeds_that_learn("deep_sea:20", "boot", 600, num_seeds=2) == 0


def test_dqn_learns_a_short_chain_and_not_a_longer_one():
    """The baseline works, and fails for want of exploration; a seed or two start out optimistic enough."""
    assert seeds_that_learn("chain:6", "dqn") == 5
    assert seeds_that_learn("chain:30,scrambled", "dqn") <= 2


def test_heads_that_are_followed_explore_and_their_vote_does_not():
    """DeepSea-14, with the same priors for all; what differs is who acts."""
    heads = {"num_heads": 10, "batch_size": 64}
    assert seeds_that_learn("deep_sea:14", "boot-prior", 600, num_seeds=3, **heads) == 3
    assert seeds_that_learn("deep_sea:14", "boot-prior", 600, num_seeds=3, **heads, acting="vote") == 0


def test_the_default_agent_reaches_a_goal_that_random_actions_do_not():
    def goals(agent):
        episodes = []
        BootstrappedDQN("MountainCar-v0", agent, seed=1).learn(15_000, on_episode=episodes.append)
        return sum(episode.terminated for episode in episodes)

    assert goals(None) > 10
    assert goals("dqn") == 0
