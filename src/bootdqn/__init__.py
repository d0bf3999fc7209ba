"""Deep exploration with bootstrapped value functions."""

from importlib.metadata import version as _version

from bootdqn.agent import AGENTS, AgentConfig, make_agent, make_network
from bootdqn.envs.chain import Chain
from bootdqn.envs.gym import register as _register
from bootdqn.errors import UserError
from bootdqn.model import BootstrappedDQN
from bootdqn.training import TrainConfig, TrainResult, train
from bootdqn.types import Belief, Transition

__all__ = [
    "AGENTS",
    "AgentConfig",
    "Belief",
    "BootstrappedDQN",
    "Chain",
    "TrainConfig",
    "TrainResult",
    "Transition",
    "UserError",
    "make_agent",
    "make_network",
    "train",
]

__version__ = _version("bootdqn")

_register()
