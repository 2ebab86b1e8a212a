"""Tests of the stored form of a lent node: each phase has its own fields, and no others."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dnm.model.departure import Departure, Eviction
from dnm.model.errors import RegistryError
from dnm.model.lent import ConversionRequest, LentNode, Phase, RequestEnd
from dnm.model.lent_state import ConverterProcess, LentState, MovePause
from dnm.model.registry import Registry
from dnm.run.registry import encode_registry, load_registry, save_registry
from tests.builders import NOW, a_config, a_lent_node

TEXTS, COUNTS, FLAGS = st.text(min_size=1, max_size=20), st.integers(0, 9), st.booleans()
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
PROCESSES = st.builds(ConverterProcess, pid=COUNTS, start_ticks=COUNTS, host=TEXTS)
FACTS: dict[str, st.SearchStrategy[Any]] = {
    "since": MOMENTS,
    "error": TEXTS,
    "converter": st.none() | PROCESSES,
    "move_pause": st.none() | st.builds(MovePause, attempts=COUNTS, until=MOMENTS),
    "attempts": COUNTS,
    "is_handed_over": FLAGS,
    "retry_after": st.none() | MOMENTS,
    "to": TEXTS,
    "is_back": FLAGS,
}
EVICTIONS = st.none() | st.builds(Eviction, since=MOMENTS, evicted=COUNTS)
DEPARTURES = st.builds(Departure, reason=TEXTS, eviction=EVICTIONS)
KINDS = {state.__struct_config__.tag: state for state in get_args(LentState)}
STATES = st.one_of(
    *(
        st.builds(kind, **{name: FACTS[name] for name in kind.__struct_fields__})
        for kind in KINDS.values()
    )
)
NODES = st.builds(
    LentNode, node_type=TEXTS, namespace=TEXTS, queue=TEXTS, owner=TEXTS, state=STATES,
    counted=st.dictionaries(TEXTS, COUNTS, max_size=2), idle_since=st.none() | MOMENTS,
    was_used=FLAGS, departure=st.none() | DEPARTURES, failed_move=TEXTS, fault=TEXTS,
)  # fmt: skip
REQUESTS = st.builds(
    ConversionRequest, id=TEXTS, node_type=TEXTS, namespace=TEXTS, queue=TEXTS, owner=TEXTS,
    count=COUNTS, since=MOMENTS, nodes_before=st.just(()), converter=st.none() | PROCESSES,
    end=st.none() | st.builds(RequestEnd, error=TEXTS, is_abandoned=FLAGS),
)  # fmt: skip
FOREIGN = [
    pytest.param(phase, fact, id=f"{fact} of a {phase} node")
    for phase, kind in KINDS.items()
    for fact in sorted(FACTS.keys() - set(kind.__struct_fields__))
]


def load(document: dict[str, Any]) -> Registry:
    with tempfile.TemporaryDirectory() as directory:
        config = a_config(Path(directory))
        config.converted_nodes_path.write_text(json.dumps(document))
        return load_registry(config, NOW)


def stored(phase: str) -> dict[str, Any]:
    registry = Registry(nodes={"a001": a_lent_node(Phase(phase))})
    document: dict[str, Any] = json.loads(encode_registry(registry))
    return document


def test_each_phase_has_a_state() -> None:
    assert list(KINDS) == [phase.value for phase in Phase]
    assert {name for kind in KINDS.values() for name in kind.__struct_fields__} == set(FACTS)


@given(st.dictionaries(TEXTS, NODES, max_size=3), st.lists(REQUESTS, max_size=2))
def test_written_nodes_and_requests_are_read_back_equal(
    nodes: dict[str, LentNode], requests: list[ConversionRequest]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config, registry = a_config(Path(directory)), Registry(nodes=nodes, requests=(*requests,))
        save_registry(config, registry)
        assert load_registry(config, NOW) == registry


@pytest.mark.parametrize(("phase", "fact"), FOREIGN)
def test_registry_with_a_fact_of_another_phase_is_refused(phase: str, fact: str) -> None:
    document = stored(phase)
    assert load(document).nodes["a001"].phase is Phase(phase)
    document["nodes"]["a001"]["state"][fact] = None
    with pytest.raises(RegistryError, match=f"node a001 in phase {phase}: .*`{fact}`"):
        load(document)


@given(NODES, st.sampled_from(list(KINDS)))
def test_facts_under_the_name_of_another_phase_are_refused(node: LentNode, other: str) -> None:
    assume(set(node.state.__struct_fields__) - set(KINDS[other].__struct_fields__))
    document = json.loads(encode_registry(Registry(nodes={"a001": node})))
    document["nodes"]["a001"]["state"]["phase"] = other
    with pytest.raises(RegistryError, match=f"node a001 in phase {other}"):
        load(document)


@pytest.mark.parametrize(
    ("phase", "fact"), [("failed", "error"), ("moving", "to"), ("serving", "since")]
)
def test_registry_without_a_fact_that_the_phase_needs_is_refused(phase: str, fact: str) -> None:
    document = stored(phase)
    del document["nodes"]["a001"]["state"][fact]
    with pytest.raises(RegistryError, match=f"node a001 in phase {phase}: .*`{fact}`"):
        load(document)
