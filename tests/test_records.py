"""Which training loop a recorded configuration belongs to."""

import pytest

from bootdqn.errors import UserError
from bootdqn.runs.records import LOOPS, PER_SEED, loop_of


@pytest.mark.parametrize("loop", LOOPS)
def test_an_explicit_loop_wins_over_all_other_fields(loop):
    assert loop_of({"loop": loop, "episodes": 5, "steps": 5, "agent_name": "psrl", "num_actors": 2}) == loop


@pytest.mark.parametrize(
    ("record", "loop"),
    [
        ({"episodes": 5, "agent_name": "boot"}, "compiled"),
        ({"episodes": 5, "agent_name": "psrl"}, "tabular"),
        ({"episodes": 5}, "compiled"),
        ({"episodes": 5, "agent_name": ["psrl"]}, "compiled"),
        ({"steps": 5, "agent_name": "boot"}, "host"),
        ({"steps": 5, "agent_name": "boot", "num_actors": 0}, "host"),
        ({"steps": 5, "agent_name": "boot", "num_actors": 2}, "cluster"),
    ],
)
def test_old_records_are_told_apart_by_their_fields(record, loop):
    assert loop_of(record) == loop
    assert (loop in PER_SEED) == ("episodes" in record)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({}, "it has neither steps nor episodes"),
        ({"agent_name": "boot"}, "it has neither steps nor episodes"),
        ({"loop": "quantum", "steps": 5}, "unknown loop 'quantum'"),
        ({"loop": ["host"], "steps": 5}, "unknown loop"),
        ({"loop": None, "steps": 5}, "unknown loop None"),
    ],
)
def test_other_records_are_refused(record, why):
    with pytest.raises(UserError, match=f"run/config.json is not of this version: {why}"):
        loop_of(record, "run/config.json")
