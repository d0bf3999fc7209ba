"""The command `bootdqn`; every verb has its own module in this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

import bootdqn
from bootdqn.errors import UserError, require_known

VERBS: dict[str, str] = {
    "train": "train an agent on an environment",
    "resume": "resume a run that was stopped or killed",
    "evaluate": "evaluate the model of a run",
    "watch": "a video of how a run learned, or of what its heads believe while they play",
    "report": "one page about runs and experiments: curves, X-rays, report cards, videos",
    "demo": "four agents on a chain that needs deep exploration, in a few minutes",
    "sweep": "many runs at once, on this machine or on a cluster",
    "reproduce": "run an experiment of the paper, or one beyond it, and draw its figure",
    "bench": "measure speed on this machine",
    "doctor": "check an environment before a long run",
    "list": "environments, agents and experiments",
}
_USAGE = """usage: bootdqn VERB ...

Deep exploration with bootstrapped value functions.

verbs:
{verbs}

examples:
  bootdqn demo
  bootdqn train chain:50 --agent boot --heads 10 --episodes 500 --seeds 5
  bootdqn reproduce chain-scaling --preset quick
  bootdqn VERB --help"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code: 0 success, 1 failure, 2 a mistake of the user, 130 interrupted."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        print(f"bootdqn: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has exited, as in `bootdqn list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush at exit
        return 1
    except OSError as error:
        print(f"bootdqn: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bootdqn: interrupted", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE.format(verbs="\n".join(f"  {name:<11}{text}" for name, text in VERBS.items())), flush=True)
        return 0
    if arguments[0] == "--version":
        print(f"bootdqn {bootdqn.__version__}")
        return 0
    require_known("verb", arguments[0], VERBS)
    verb: Callable[[list[str]], int] = import_module(f"bootdqn.cli.{arguments[0]}").main
    return verb(arguments[1:])
