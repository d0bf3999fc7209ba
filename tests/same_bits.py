"""Prints checksums of a fixed set of short runs, to compare two versions of the source on one machine.

    make same-bits                                    # this tree, as lines "name  checksum"
    python tests/same_bits.py --source OTHER/src > other.txt

A checksum covers the numbers of `metrics.csv` and the arrays of every model file, but no headers: a version that
writes other ones can still be compared. Everything goes through the command line, which is the interface that
versions share.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import safetensors

COLUMNS = (
    "episode",
    "return",
    "regret",
    "greedy_return",
    "head",
    "epsilon",
    "updates",
    "loss",
    "q_mean",
    "q_spread",
)
"""Columns of `metrics.csv` that count, as far as a run has them."""
_CHAIN = ("--episodes", "60", "--seeds", "2", "--learning-start-steps", "32", "--hidden", "16")
_CARTPOLE = (
    *("CartPole-v1", "--agent", "boot", "--steps", "1600", "--learning-start-steps", "200", "--heads", "3"),
    *("--trunk-hidden", "16", "--hidden", "8", "--evaluate-every-steps", "800", "--evaluation-episodes", "1"),
    *("--checkpoint-every-steps", "400"),
)
_ATARI = (
    *("atari:pong", "--steps", "240", "--heads", "2", "--hidden", "16", "--batch-size", "8"),
    *("--replay-capacity", "1000", "--learning-start-steps", "60", "--evaluate-every-steps", "120"),
    *("--evaluation-steps", "60", "--checkpoint-every-steps", "80"),
)
TRAININGS: dict[str, Sequence[str]] = {
    **{
        f"chain-{agent}": ("chain:8", "--agent", agent, *_CHAIN)
        for agent in ("boot", "thompson", "ensemble", "dqn")
    },
    "deep-sea": ("deep_sea:6", *_CHAIN),
    "deep-sea-stochastic": ("deep_sea:6,stochastic", *_CHAIN),
    **{
        agent: ("stochastic-chain", "--agent", agent, "--episodes", "200", "--seeds", "2")
        for agent in ("psrl", "ucrl2")
    },
    "cartpole-1": _CARTPOLE,
    "cartpole-4": (*_CARTPOLE, "--envs", "4"),
    "cartpole-actors": (*_CARTPOLE, "--actors", "2"),
    "atari-kernels": _ATARI,
    "atari-xla": _ATARI,
}
"""Arguments of `bootdqn train` by the name of the run."""
RESUMED: dict[str, tuple[Sequence[str], int]] = {
    "chain": (("chain:20", "--episodes", "3000", "--seeds", "2", "--hidden", "16"), signal.SIGTERM),
    "psrl": (("stochastic-chain", "--agent", "psrl", "--episodes", "100000", "--seeds", "2"), signal.SIGTERM),
    "cartpole": ((*_CARTPOLE, "--envs", "4"), signal.SIGKILL),
    "atari": (_ATARI, signal.SIGKILL),
}
"""Runs that are also interrupted and resumed: their arguments, and the signal that ends the first part."""
SWEEPS: dict[str, Sequence[str]] = {
    f"{executor}-{name}": (
        *(env, "--agents", "boot", "--seeds", "2", "--set", "num_heads=2", "--set", "hidden=8", "--set", budget),
        *("--set", "learning_start_steps=64", "--executor", executor),
    )
    for executor in ("local", "ray")
    for name, env, budget in (("chain", "chain:6", "episodes=60"), ("cartpole", "CartPole-v1", "steps=600"))
}
"""Arguments of `bootdqn sweep` by the name of the sweep."""


def checksum(run: Path) -> str:
    """Of a finished run: the numbers of its metrics, and the arrays of its models."""
    digest = hashlib.sha256()
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for column in COLUMNS:
        if rows and column in rows[0]:
            digest.update("\n".join([column, *(row[column] for row in rows)]).encode())
    for path in sorted((run / "models").glob("*.safetensors")):
        with safetensors.safe_open(path, framework="numpy") as file:
            for name in sorted(file.keys()):
                array = file.get_tensor(name)
                digest.update(f"{path.name} {name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


class Commands:
    """Runs the command line of one source tree."""

    def __init__(self, source: Path, folder: Path):
        self.folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(source)}

    def start(self, *arguments: str, kernels: bool = True) -> subprocess.Popen[bytes]:
        """Start `bootdqn` with arguments; its output goes to a log in the folder."""
        environment = {**self._environment, "BOOTDQN_KERNELS": "1" if kernels else "0"}
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "bootdqn", *arguments],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def run(self, *arguments: str, kernels: bool = True) -> None:
        """Run `bootdqn` to its end, and fail if it fails."""
        process = self.start(*arguments, kernels=kernels)
        if process.wait():
            log = (self.folder / "log.txt").read_text(errors="replace")
            raise SystemExit(f"bootdqn {' '.join(arguments)} failed:\n{log[-2000:]}")

    def resumed(self, name: str, arguments: Sequence[str], number: int) -> Path:
        """A run that was ended by a signal after its second checkpoint or some episodes, and resumed."""
        out = self.folder / f"resumed-{name}"
        process = self.start("train", *arguments, "--out", str(out))
        while process.poll() is None and not self._is_under_way(out):
            time.sleep(0.02)
        if process.poll() is not None:
            raise SystemExit(f"the run {name} ended before it could be interrupted; make it longer")
        process.send_signal(number)
        process.wait()
        self.run("resume", str(out))
        return out

    @staticmethod
    def _is_under_way(out: Path) -> bool:
        checkpoints = [path for path in out.glob("checkpoints/*.json") if path.stem.strip("0")]
        table = out / "metrics.csv"
        return bool(checkpoints) or (table.exists() and len(table.read_bytes().splitlines()) > 500)


def main() -> None:
    """Train everything that was asked for, and print a line per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--source", type=Path, default=Path(__file__).parents[1] / "src", help="tree to import from"
    )
    parser.add_argument("--only", default="", help="only runs whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(options.source.absolute(), Path(folder))

        def show(name: str, run: Path) -> None:
            print(f"{name:<24} {checksum(run)}", flush=True)

        for name, arguments in TRAININGS.items():
            if options.only in name:
                commands.run("train", *arguments, "--out", name, kernels=name != "atari-xla")
                show(name, commands.folder / name)
        for name, (arguments, number) in RESUMED.items():
            if options.only in f"resumed-{name}":
                show(f"resumed-{name}", commands.resumed(name, arguments, number))
        for name, arguments in SWEEPS.items():
            if options.only in f"sweep-{name}":
                out = commands.folder / f"sweep-{name}"
                commands.run("sweep", *arguments, "--out", str(out))
                for run in sorted((out / "runs").iterdir()):
                    show(f"sweep-{name}/{run.name}", run)


if __name__ == "__main__":
    main()
