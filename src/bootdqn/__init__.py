"""Deep exploration with bootstrapped value functions."""

from importlib.metadata import version as _version

from bootdqn.api import BootstrappedDQN, train
from bootdqn.core.agent import make_agent
from bootdqn.core.config import AGENTS, AgentConfig
from bootdqn.envs.chain import Chain
from bootdqn.envs.gym_export import register as _register
from bootdqn.errors import UserError
from bootdqn.runs.config import RunConfig
from bootdqn.runs.seed_results import TrainResult
from bootdqn.types import Belief, Transition

__all__ = [
    "AGENTS",
    "AgentConfig",
    "Belief",
    "BootstrappedDQN",
    "Chain",
    "RunConfig",
    "TrainResult",
    "Transition",
    "UserError",
    "make_agent",
    "train",
]

__version__ = _version("bootdqn")

_register()
