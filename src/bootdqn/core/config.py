"""What makes one agent differ from another: `AgentConfig`, and the named agents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from bootdqn.core.losses import LOSS_KINDS, LossKind
from bootdqn.core.masks import MASK_KINDS, MaskKind
from bootdqn.errors import require, require_known, require_types

Acting = Literal["committed_head", "head_per_step", "vote", "ucb", "ids"]
Optimizer = Literal["adam", "rmsprop"]
MaskPer = Literal["episode", "step"]


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """Everything that makes one agent differ from another."""

    num_heads: int = 10
    """The number K of heads, which are value functions."""
    hidden: tuple[int, ...] = (50, 50)
    """Widths of the hidden layers of a head."""
    trunk_hidden: tuple[int, ...] = ()
    """Widths of the layers that heads share; none means K separate networks."""
    initial_spread: float = 10.0
    """Bound of the uniform initial output biases: how far heads differ about values they have no data on."""
    prior_scale: float = 0.0
    """Standard deviation over observations, in units of value, of the fixed random function that is added to the
    values of every head; 0 for none."""
    prior_range: float = 1.0
    """Ratio of that standard deviation in the first head to that in the last that has a prior; those between
    differ by equal factors. Heads with little prior learn what rewards say while others still look for more."""
    explorer_share: float = 1.0
    """Share of heads that explore, the first ones. They alone have priors, and random actions at the rate of
    epsilon_end. The others believe what rewards say: where one of them is followed, they act by majority, with
    random actions that fade, and they alone vote in evaluations and beliefs."""
    scale_inputs: bool = False
    """Whether vectors and bytes are scaled, by the bounds of their space or by random play before training."""
    unit_fan_in: bool = False
    """Whether initial weights of a one-hot observation are as large as if it had one entry, so that heads tell
    states apart from the start; it has one that is not 0."""
    dueling: bool = False
    """Whether a head has two streams of hidden layers, one for the value of the observation and one for what
    actions are worth beyond their mean."""
    scale_trunk_gradient: bool = True
    """Whether to divide the gradient that enters the shared trunk by K."""
    mask: MaskKind = "bernoulli"
    """Distribution of the bootstrap weights."""
    mask_probability: float = 1.0
    """Probability of a 1 in a bernoulli mask; with 1.0 all heads share all data."""
    mask_per: MaskPer = "episode"
    """Whether one mask is drawn for a whole episode, or one for every step."""
    acting: Acting = "committed_head"
    """Whether to follow one head for an episode, another head every step, or all heads: their majority, the
    largest upper confidence bound (ucb), or the least squared regret per information (ids)."""
    bound_width: float = 1.0
    """Standard deviations over heads from the mean value to a confidence bound, for ucb and ids."""
    return_noise: float = 1.0
    """Standard deviation of the noise in returns that ids assumes: from heads that disagree by less than that,
    there is little to learn."""
    head_candidates: int = 1
    """Heads that are drawn when an episode starts, at most all; the one with the best recent returns acts."""
    redraw_probability: float = 0.0
    """Probability per step of following another head from then on, where one is followed for an episode: episodes
    that only a time limit ends are not spent in the loops of one head."""
    epsilon_start: float = 0.0
    """Probability of a uniformly random action at the first step."""
    epsilon_end: float = 0.0
    """Probability of a uniformly random action once epsilon is annealed."""
    epsilon_anneal_steps: int = 0
    """Environment steps over which epsilon moves linearly from start to end."""
    discount: float = 0.98
    """Discount factor gamma of future rewards."""
    double_q: bool = True
    """Whether the online network chooses the next action, which the target network values."""
    bound_values: bool = False
    """Whether targets take no next value to be more than what was at best collected so far from a step to the end
    of its episode, discounted and at least 0, and two standard deviations of the head's prior. Without, what heads
    hope for adds up over steps, and in loops without end."""
    action_gap: float = 0.0
    """Share, below 1, of how far an action falls behind the best one that is taken off its target (advantage
    learning). Actions then differ by up to 1 / (1 - share) times as much, and the best stays the best: where most
    actions hardly matter, as in chains and loops, heads still follow what is far away."""
    n_steps: int = 1
    """Steps of an episode whose rewards are summed before the value of the next observation takes over. More of
    them spread rewards faster, but count what was done after the first action as if it were the policy."""
    reward_noise: float = 0.0
    """Standard deviation of the noise that is added to the reward of a transition, another for every head, drawn
    once and stored. Heads stay as different as so noisy rewards would allow."""
    clip_rewards: bool = False
    """Whether to learn from rewards clipped to [-1, 1]; reported returns are not clipped."""
    loss: LossKind = "squared"
    """Loss of a temporal-difference error; huber has unit slope for errors beyond 1."""
    optimizer: Optimizer = "adam"
    """Optimizer: Adam, or the centred RMSProp of the original DQN."""
    learning_rate: float = 1e-3
    """Step size of the optimizer."""
    sparse_step: bool = False
    """Whether Adam changes only what a batch read of the weights of one-hot observations, without momentum: the
    cost of an update does not grow with the number of states. No effect on other observations."""
    batch_size: int = 32
    """Transitions per update."""
    replay_capacity: int = 100_000
    """Transitions that replay keeps."""
    priority_exponent: float = 0.0
    """Power of its last error to which a transition is replayed; 0 for all alike, 1 in proportion."""
    importance_exponent: float = 0.5
    """How far the weights of transitions make up for being replayed more often: 0 not at all, 1 for all of it."""
    learning_start_steps: int = 128
    """Environment steps before the first update."""
    learning_period_steps: int = 1
    """Environment steps between two updates."""
    target_period_updates: int = 20
    """Updates between two copies of the parameters into the target network."""

    def __post_init__(self):
        require_types(self)
        require(1 <= self.num_heads <= 2**20, f"heads must be 1 to 2**20, got {self.num_heads}")
        for name in ("hidden", "trunk_hidden"):
            sizes = getattr(self, name)
            require(
                all(1 <= size <= 2**20 for size in sizes), f"{name} sizes must be 1 to 2**20, got {list(sizes)}"
            )
        require_known("mask", self.mask, MASK_KINDS)
        require_known("mask_per", self.mask_per, get_args(MaskPer))
        require_known("acting", self.acting, get_args(Acting))
        require_known("loss", self.loss, LOSS_KINDS)
        require_known("optimizer", self.optimizer, get_args(Optimizer))
        p = self.mask_probability
        require(0 < p <= 1, f"mask_probability must be in (0, 1], got {p}")
        share = self.explorer_share
        require(0 < share <= 1, f"explorer_share must be in (0, 1], got {share}")
        require(
            share == 1 or self.acting == "committed_head",
            f"explorer_share is for the acting committed_head, not {self.acting}",
        )
        require(
            self.acting == "committed_head" or self.redraw_probability == 0,
            f"redraw_probability is for the acting committed_head, not {self.acting}",
        )
        require(
            self.head_candidates == 1 or (self.acting == "committed_head" and self.redraw_probability == 0),
            "head_candidates is for heads that are followed for whole episodes",
        )
        require(1 <= self.prior_range < math.inf, f"prior_range must be at least 1, got {self.prior_range}")
        shares = ("epsilon_start", "epsilon_end", "discount", "redraw_probability")
        for name in (*shares, "priority_exponent", "importance_exponent"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must be in [0, 1], got {value}")
        for name in ("learning_rate", "initial_spread", "prior_scale", "bound_width", "reward_noise"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name} must be finite and not negative, got {value}")
        require(0 <= self.action_gap < 1, f"action_gap must be in [0, 1), got {self.action_gap}")
        noise = self.return_noise
        require(0 < noise < math.inf, f"return_noise must be finite and positive, got {noise}")
        at_least_one = (
            "batch_size",
            "replay_capacity",
            "learning_period_steps",
            "target_period_updates",
            "n_steps",
            "head_candidates",
        )
        for name in (*at_least_one, "epsilon_anneal_steps", "learning_start_steps"):
            value, least = getattr(self, name), int(name in at_least_one)
            require(value >= least, f"{name} must be at least {least}, got {value}")
            require(value < 2**31, f"{name} must be below 2**31, got {value}")
        require(not self.sparse_step or self.optimizer == "adam", "sparse_step is for the adam optimizer")
        for name in ("batch_size", "n_steps"):
            value, most = getattr(self, name), self.replay_capacity
            require(value <= most, f"{name} ({value}) must not exceed replay_capacity ({most})")
        require(
            self.epsilon_start == self.epsilon_end or self.epsilon_anneal_steps > 0,
            f"epsilon goes from {self.epsilon_start} to {self.epsilon_end}: give epsilon_anneal_steps",
        )

    @property
    def sums_rewards(self) -> bool:
        """Whether rewards are summed over several steps."""
        return self.n_steps > 1

    @property
    def prioritised(self) -> bool:
        """Whether transitions with large errors are replayed more often."""
        return self.priority_exponent > 0

    @property
    def clips_before_storing(self) -> bool:
        """Whether rewards are clipped before they are summed or get noise, and not when they are learned from."""
        return self.clip_rewards and (self.sums_rewards or self.reward_noise > 0)

    def learned_reward(self, reward: Any) -> Any:
        """Return rewards, an array of any kind, as heads learn from them, but for noise."""
        return reward.clip(-1, 1) if self.clip_rewards else reward

    def stored_reward(self, reward: Any, noise: Any = None) -> Any:
        """Return rewards, arrays of any kind, as replay holds them.

        Args:
            reward: the rewards [...].
            noise: what is added to them for every head [..., K]; None for nothing.
        """
        reward = self.learned_reward(reward) if self.clips_before_storing else reward
        return reward if noise is None else reward[..., None] + noise

    @property
    def num_explorers(self) -> int:
        """The number of heads that explore, which are the first ones."""
        return math.ceil(self.explorer_share * self.num_heads)

    @property
    def num_voters(self) -> int:
        """The number of heads that vote, the last ones: those that do not explore, or all where all of them do."""
        return self.num_heads - self.num_explorers or self.num_heads

    @property
    def prior_scales(self) -> tuple[float, ...]:
        """Standard deviations of the priors of all heads [K]."""
        count = self.num_explorers
        steps = max(1, count - 1)
        scales = (self.prior_scale * self.prior_range ** (-head / steps) for head in range(count))
        return (*scales, *[0.0] * (self.num_heads - count))

    @property
    def dithers(self) -> bool:
        """Whether random actions never cease, so that only evaluations without them show what was learned."""
        return self.epsilon_end > 0


_BOOT = AgentConfig()
AGENTS: dict[str, AgentConfig] = {
    "boot": _BOOT,
    "boot+": replace(_BOOT, scale_trunk_gradient=False),
    "thompson": replace(_BOOT, acting="head_per_step", initial_spread=3.0),
    "ensemble": replace(_BOOT, acting="vote", learning_rate=3e-3),
    "dqn": replace(_BOOT, num_heads=1, epsilon_start=1.0, epsilon_end=0.1, epsilon_anneal_steps=10_000),
    "boot-prior": replace(
        _BOOT,
        num_heads=20,
        initial_spread=0.0,
        prior_scale=2.0,
        unit_fan_in=True,
        discount=0.99,
        sparse_step=True,
        batch_size=128,
        priority_exponent=0.8,
        target_period_updates=4,
    ),
}
"""Named configurations of the agent. Those of the paper have the best settings of the grid that `chain-tuning`
tries for all. `boot-prior` has random functions in place of wide output biases, and learns soon from what is new;
its settings were chosen on DeepSea."""

_FOR_GYMNASIUM: dict[str, Any] = {  # found on CartPole
    "trunk_hidden": (256,),
    "hidden": (64,),
    "initial_spread": 1.0,
    "discount": 0.99,
    "learning_rate": 2e-3,
    "batch_size": 64,
    "learning_start_steps": 1000,
    "learning_period_steps": 1,
    "target_period_updates": 100,
}
GYM_AGENTS: dict[str, AgentConfig] = {name: replace(agent, **_FOR_GYMNASIUM) for name, agent in AGENTS.items()}
GYM_AGENTS["boot-prior"] = replace(
    GYM_AGENTS["boot"],
    initial_spread=0.0,
    trunk_hidden=(),
    hidden=(64, 64),
    prior_scale=1.0,
    prior_range=30.0,
    explorer_share=0.5,
    bound_values=True,
    scale_inputs=True,
    head_candidates=3,
    epsilon_start=1.0,
    epsilon_end=0.02,
    epsilon_anneal_steps=20_000,
    discount=0.985,
    learning_rate=1.5e-3,
    priority_exponent=0.6,
    target_period_updates=50,
)
"""Named configurations for Gymnasium environments, where values are larger. Heads share features, but those of
`boot-prior` do not: half of them explore, which would spoil what the others learn. It follows heads with good
returns more often, and its other heads act by vote."""

_FOR_ATARI: dict[str, Any] = {
    "trunk_hidden": (),
    "hidden": (512,),
    "initial_spread": 0.04,
    "epsilon_start": 1.0,
    "epsilon_end": 0.01,
    "epsilon_anneal_steps": 1_000_000,
    "discount": 0.99,
    "clip_rewards": True,
    "loss": "huber",
    "optimizer": "rmsprop",
    "learning_rate": 2.5e-4,
    "batch_size": 32,
    "replay_capacity": 1_000_000,
    "learning_start_steps": 50_000,
    "learning_period_steps": 4,
    "target_period_updates": 2_500,  # so that the target network is at most 10,000 steps old
}
ATARI_AGENTS: dict[str, AgentConfig] = {
    name: replace(agent, **_FOR_ATARI) for name, agent in AGENTS.items() if name != "boot-prior"
}
ATARI_AGENTS["boot-prior"] = replace(ATARI_AGENTS["boot"], initial_spread=0.0, prior_scale=0.1)
"""Named configurations with the paper's settings for Atari (appendix D)."""
