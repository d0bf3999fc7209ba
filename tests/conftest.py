"""Strictness for all tests, programs that are compiled once, and Ray clusters."""

import contextlib
import gc
import importlib
import os
import sys
import time
from pathlib import Path

import jax
import pytest

from bootdqn.loops.workers import forking_for_a_moment
from helpers import ROOT, children

jax.config.update("jax_numpy_rank_promotion", "raise")


LONGEST = (
    "test_learning",
    "test_docs",
    "cluster",
    "test_experiments",
    "test_agent",
    "test_regression",
    "test_priors",
    "test_tabular_chains",
    "test_tabular_agents",
    "test_atari",
    "test_networks",
    "test_conv_trunk",
    "test_watch",
)
"""Groups of tests that take longest: they are begun first, so that no process waits long for another."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the cluster, and keep together what shares fixtures when tests run in parallel."""
    groups: dict[pytest.Item, str] = {}
    for item in items:
        on_cluster = "cluster" in getattr(item, "fixturenames", ())
        if on_cluster:
            item.add_marker(pytest.mark.cluster)
        groups[item] = "cluster" if on_cluster else item.path.stem
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(groups[item]))
    items.sort(key=lambda item: LONGEST.index(groups[item]) if groups[item] in LONGEST else len(LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Do without XLA's costly passes, here and in processes that a test starts, unless a mark asks for them.

    Compiling is most of the time of most tests.
    """
    without = not any(item.get_closest_marker(mark) for mark in ("learn", "optimized"))
    if jax.config.read("jax_disable_most_optimizations") != without:
        jax.config.update("jax_disable_most_optimizations", without)
        jax.clear_caches()
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(without))


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory):
    """Share compiled programs between tests and with later sessions; processes that tests start have their own.

    JAX does not write an entry in one piece. An entry that is read before it is whole fails to decompress, and the
    program is compiled instead; but a process that is killed would leave such an entry for ever.
    """
    jax.config.update("jax_compilation_cache_dir", str(ROOT / ".jax_cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of three nodes on this machine: a head without cores, and two with one each.

    Modules have one each: some tests kill nodes, and actors are not placed reliably on what is left.
    """
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
