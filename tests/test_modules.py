"""Every module of the package can be imported, and says what it is for."""

import importlib
import pkgutil

import pytest

import bootdqn

MODULES = [module.name for module in pkgutil.walk_packages(bootdqn.__path__, "bootdqn.")]


@pytest.mark.parametrize("name", [name for name in MODULES if name != "bootdqn.__main__"])
def test_every_module_says_what_it_is_for(name):
    assert importlib.import_module(name).__doc__
