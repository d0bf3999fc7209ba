"""Strictness for all tests, and one cache so that no program is compiled twice."""

import os

import jax
import pytest

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
