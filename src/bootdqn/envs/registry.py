"""Environments by name: `chain:50`, `chain:50,scrambled,features=one_hot`, `stochastic_chain,noiseless`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bootdqn.envs.chain import Chain
from bootdqn.envs.deep_sea import DeepSea
from bootdqn.envs.tabular_chains import RiverSwim, StochasticChain
from bootdqn.errors import UserError, require, require_known
from bootdqn.types import Env


class CatalogEnv(Env, Protocol):
    """An environment of the catalog: a row or a grid of states, where going right leads to the reward."""

    @property
    def state_shape(self) -> tuple[int, ...]:
        """The shape of the state space, [N] or [rows, columns]; observations index it row by row."""
        ...

    @property
    def reachable(self) -> NDArray[np.bool_]:
        """Whether an agent can reach each state [*state_shape]."""
        ...

    @property
    def right_actions(self) -> ArrayLike:
        """Which action means right in each state [*state_shape]."""
        ...

    @property
    def way_to_reward(self) -> NDArray[np.int64]:
        """The states on the way of an agent that always goes right, if no move fails."""
        ...

    @property
    def description(self) -> str:
        """The task in a few sentences for people."""
        ...


@dataclass(frozen=True)
class Entry:
    """The entry of the catalog for one family of environments."""

    make: type
    """The dataclass of the environment, whose fields are the options."""
    size_field: str
    """The field that the number after the colon sets; a family with a default size needs no number."""
    example: str
    """The shortest name of an environment of the family."""
    example_options: str
    """Options that can follow the example."""
    summary: str
    """One line for `bootdqn list`."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Names for several options at once, which single options override."""


ENVS: dict[str, Entry] = {
    "chain": Entry(
        Chain,
        "length",
        "chain:50",
        "scrambled,features=one_hot",
        "the N-chain: a small reward near the start, a large one at the end",
    ),
    "deep_sea": Entry(
        DeepSea,
        "size",
        "deep_sea:20",
        "stochastic,mapping_seed=7",
        "bsuite's DeepSea: an N x N grid whose reward only N right moves in a row reach",
    ),
    "stochastic_chain": Entry(
        StochasticChain,
        "length",
        "stochastic_chain",
        "noiseless,scrambled",
        "the paper's stochastic chain of 6 states: right fails half of the time",
        {
            "tabularl": {"left_reward": 0.01, "reward_std": 1.0},
            "noiseless": {"left_reward": 0.001, "reward_std": 0.0},
        },
    ),
    "river_swim": Entry(
        RiverSwim,
        "length",
        "river_swim",
        "reward_std=1",
        "RiverSwim: 6 states against a current",
    ),
}


def make_env(spec: str) -> CatalogEnv:
    """The environment that `spec` names.

    Args:
        spec: `family:size`, or `family` if it has a default size, followed by options after commas: `name=value`,
            a bare name for true, or the name of a preset.
    """
    head, *options = spec.split(",")
    given, has_size, size = head.partition(":")
    family = given.replace("-", "_")
    if family not in ENVS:
        require_known("environment", given, ENVS)
    entry = ENVS[family]
    needs_size = _defaults(entry)[entry.size_field] is dataclasses.MISSING
    require(
        size != "" or not (has_size or needs_size), f"environment {spec!r} needs a size, as in {entry.example}"
    )
    fields = {entry.size_field: _parse(entry, entry.size_field, size)} if size else {}
    preset: Mapping[str, Any] = {}
    for option in options:
        name, has_value, text = option.partition("=")
        require_known(f"option of {family}", name, [*_option_names(entry), *entry.presets])
        if name in entry.presets:
            require(not (preset or has_value), f"{spec!r} may name one preset, without a value")
            preset = entry.presets[name]
            continue
        require(name not in fields, f"option {name!r} is given twice in {spec!r}")
        fields[name] = _parse(entry, name, text if has_value else "true")
    return entry.make(**{**preset, **fields})


def env_spec(env: Env) -> str:
    """Return the shortest spec that names `env`, which is the inverse of `make_env`."""
    for family, entry in ENVS.items():
        if type(env) is entry.make:
            defaults = _defaults(entry)
            options = [(name, getattr(env, name)) for name in _option_names(entry)]
            changed = [
                name if value is True else f"{name}={str(value).lower() if value is False else value}"
                for name, value in options
                if value != defaults[name]
            ]
            size = getattr(env, entry.size_field)
            head = family if size == defaults[entry.size_field] else f"{family}:{size}"
            return ",".join([head, *changed])
    raise UserError(f"{type(env).__name__} is not in the catalog; known: {', '.join(ENVS)}")


def _defaults(entry: Entry) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(entry.make)}


def _option_names(entry: Entry) -> list[str]:
    return [f.name for f in dataclasses.fields(entry.make) if f.name != entry.size_field]


def _parse(entry: Entry, name: str, text: str) -> Any:
    """Convert a text to the type of the dataclass field `name`."""
    kind = get_type_hints(entry.make)[name]
    if kind is bool:
        require(text.lower() in ("true", "false"), f"{name} must be true or false, got {text!r}")
        return text.lower() == "true"
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            article = "a whole number" if kind is int else "a number"
            raise UserError(f"{name} must be {article}, got {text!r}") from None
    return text
