"""Strictness for all tests, and one cache so that no program is compiled twice."""

import contextlib
import gc
import importlib
import os
import sys
import time
from pathlib import Path

import jax
import pytest

from bootdqn.cluster import forking_for_a_moment

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    """Share compiled programs between the tests of a session, and with the processes that they start."""
    folder = str(tmp_path_factory.mktemp("compiled"))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"


def children(pid: int) -> list[int]:
    """Processes that a process has started and that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(path.parent.name))
    return found


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of three nodes on this machine: a head without cores, and two with one each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        before = {*children(os.getpid())}
        utils = importlib.import_module("ray.cluster_utils")
        with forking_for_a_moment():
            cluster = utils.Cluster(
                initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
            )
            for _ in range(2):
                cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
        yield cluster
        cluster.shutdown()
        gc.collect()
        deadline = time.monotonic() + 20
        while left := [
            _command(pid) for pid in {*children(os.getpid())} - before if "tracker" not in _command(pid)
        ]:
            assert time.monotonic() < deadline, f"processes of Ray that are left: {left}"
            time.sleep(0.05)


def _command(pid: int) -> str:
    """What a process was started with; multiprocessing's tracker of resources lives as long as its parent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return "tracker of nothing: it has just ended"
