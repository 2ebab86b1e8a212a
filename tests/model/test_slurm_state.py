"""Tests of how dnm reads the state of a Slurm node, in the spellings of five years of releases."""

from __future__ import annotations

import pytest

from dnm.model.slurm_state import NodeState, in_service_of, parse_state
from tests.builders import a_batch_node


@pytest.mark.parametrize(
    ("text", "state", "in_service"),
    [
        pytest.param("IDLE", "IDLE", True, id="free"),
        pytest.param("IDLE+PLANNED", "IDLE+PLANNED", True, id="planned"),
        pytest.param("ALLOCATED", "ALLOCATED", True, id="working"),
        pytest.param("MIXED+DRAIN", "MIXED+DRAIN", True, id="draining has work"),
        pytest.param("IDLE+COMPLETING", "IDLE+COMPLETING", True, id="completing has work"),
        pytest.param("IDLE+DRAIN", "IDLE+DRAIN", False, id="drained"),
        pytest.param("IDLE+DRAIN+RESERVED", "IDLE+DRAIN+RESERVED", False, id="lent"),
        pytest.param("DOWN+DRAIN+NOT_RESPONDING", "DOWN+DRAIN+NOT_RESPONDING", False, id="away"),
        pytest.param("IDLE+DRAIN+NOT_RESPONDING", "IDLE+DRAIN+NOT_RESPONDING", False, id="leaving"),
        pytest.param("DOWN", "DOWN", False, id="down"),
        pytest.param("DOWN+COMPLETING", "DOWN+COMPLETING", None, id="down with a job's remains"),
        pytest.param("IDLE+FAIL", "FAIL+IDLE", False, id="failed"),
        pytest.param("IDLE+NOT_RESPONDING", "IDLE+NOT_RESPONDING", None, id="just resumed"),
        pytest.param("UNKNOWN", "UNKNOWN", None, id="slurmctld just started"),
        pytest.param("IDLE+NOVELTY", "IDLE+NOVELTY", None, id="a flag of a later Slurm"),
        pytest.param("IDLE*+DRAIN", "IDLE+DRAIN+NOT_RESPONDING", False, id="20.11 suffix"),
        pytest.param("MIXED@+DRAIN", "MIXED+DRAIN+REBOOT_REQUESTED", True, id="20.11 reboot asked"),
        pytest.param("REBOOT+DRAIN", "DOWN+DRAIN+REBOOT", False, id="20.11 reboots"),
        pytest.param("DRAINED", "DRAIN+IDLE", False, id="sinfo's word"),
        pytest.param("", "UNKNOWN", None, id="nothing"),
    ],
)  # fmt: skip
def test_slurm_state_is_parsed_and_classified(
    text: str, state: str, in_service: bool | None
) -> None:
    parsed = parse_state(text)
    assert set(parsed.text.split("+")) == set(state.split("+"))
    assert in_service_of(parsed) is in_service


@pytest.mark.parametrize(
    ("cpus", "base"), [(None, ""), (0, "IDLE"), (3, "ALLOCATED")], ids=["hidden", "idle", "busy"]
)
def test_state_base_hidden_by_slurm_20_11_follows_from_the_allocation(
    cpus: int | None, base: str
) -> None:
    assert parse_state("RESERVED+DRAIN", cpus) == NodeState(
        base=base, flags=frozenset(("RESERVED", "DRAIN"))
    )
    assert parse_state("MAINT", cpus).base == base


@pytest.mark.parametrize(
    ("state", "is_drained", "is_reserved"),
    [
        pytest.param("IDLE", False, False, id="free"),
        pytest.param("IDLE+DRAIN", True, False, id="drained"),
        pytest.param("DRAINED", True, False, id="sinfo's word"),
        pytest.param("DRAINING", False, False, id="still works"),
        pytest.param("IDLE+DRAIN+NOT_RESPONDING", False, False, id="boots"),
        pytest.param("IDLE*+DRAIN", False, False, id="boots, 20.11"),
        pytest.param("DOWN+DRAIN", False, False, id="away"),
        pytest.param("IDLE+RESERVED", False, True, id="reserved"),
        pytest.param("IDLE+DRAIN+RESERVED", True, True, id="lent"),
        pytest.param("RESERVED", False, True, id="reserved, 20.11"),
        pytest.param("", False, False, id="nothing"),
    ],
)
def test_drained_and_reserved_states_are_recognized(
    state: str, is_drained: bool, is_reserved: bool
) -> None:
    node = a_batch_node(state=state)
    assert (node.is_drained, node.is_reserved) == (is_drained, is_reserved)
