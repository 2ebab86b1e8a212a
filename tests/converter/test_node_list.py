"""Tests of a converter's answer to `--list`: a table, JSON, and everything else."""

from __future__ import annotations

import json
import os
import sys
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.converter.node_list import list_batch_nodes, parse_list
from dnm.model.batch import BatchList, BatchNode
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.converter.programs import an_environment, script
from tests.processes import wait_until

TABLE = """\
NODE             STATE                            IDLE  VERDICT REASON
a001             IDLE                              2d3h  OK      idle 2d3h
a002             IDLE+DRAIN                          0s  SKIP    state flag DRAIN
a003             ALLOCATED                           0s  PREEMPT job 17 of x
b001             IDLE                             1 day  OK      an odd row hides no other
a004             GIBBERISH                           0s  SKIP    what

Viable now: 1 of 4 node(s)
"""


def test_parses_list_as_json_and_as_table(tmp_path: Path) -> None:
    document = {
        "schema": "node-convert.list/1",
        "nodes": [{"node": "a001", "state": "IDLE", "verdict": "OK", "in_service": True}],
    }
    (tmp_path / "list.json").write_text(json.dumps(document))
    modern = script(tmp_path, f"cat {tmp_path}/list.json")
    only = BatchNode(name="a001", state="IDLE", verdict="OK", in_service=True)
    listed = list_batch_nodes(a_config(node_convert_path=modern), an_environment())
    assert listed == BatchList(nodes={"a001": only})
    (tmp_path / "table").write_text(TABLE)
    legacy = script(
        tmp_path, f'[ "$2" = --output ] && {{ echo usage >&2; exit 1; }}; cat {tmp_path}/table'
    )
    listed = list_batch_nodes(a_config(node_convert_path=legacy), an_environment())
    assert isinstance(listed, BatchList)
    nodes = listed.nodes
    assert {name: node.in_service for name, node in nodes.items()} == {
        "a001": True, "a002": False, "a003": True, "a004": None
    }  # fmt: skip
    assert nodes["a003"].verdict == "PREEMPT" and nodes["a002"].reason == "state flag DRAIN"


@pytest.mark.parametrize(
    ("row", "features", "reservations"),
    [
        pytest.param({}, None, None, id="not-reported"),
        pytest.param({"features": [], "reservations": []}, (), (), id="none"),
        pytest.param({"features": ["amd"], "reservations": ["r"]}, ("amd",), ("r",), id="reported"),
        pytest.param({"features": ["x"] * 1_001}, None, None, id="too-many-to-be-all"),
    ],
)
def test_missing_node_facts_are_unknown(
    row: dict[str, list[str]], features: object, reservations: object
) -> None:
    node = {"node": "a001", "state": "IDLE", "verdict": "OK", **row}
    listed = parse_list(json.dumps({"nodes": [node]}).encode())
    assert listed is not None and not listed.leaves_out
    batch_node = listed.nodes["a001"]
    assert (batch_node.features, batch_node.reservations) == (features, reservations)


@pytest.mark.parametrize(
    ("options", "leaves_out"),
    [(["--exclude"], True), (["--other", "--exclude"], True), (["exclude"], False), ([], False)],
)
def test_list_names_supported_options(options: list[str], leaves_out: bool) -> None:
    listed = parse_list(json.dumps({"nodes": [], "options": options}).encode())
    assert listed is not None and listed.leaves_out is leaves_out


@pytest.mark.parametrize(
    ("key", "field", "expected"),
    [
        pytest.param("partitions", [f"p{n}" for n in range(101)], 101, id="many-partitions"),
        pytest.param("partitions", ["p"] * 1001, 0, id="too-many"),
        pytest.param("partitions", None, 0, id="no-partitions"),
        pytest.param("features", "a,b", None, id="one-text"),
        pytest.param("features", ["a", 7], None, id="numbers"),
        pytest.param("reservations", {"a": 1}, None, id="an-object"),
    ],
)
def test_malformed_optional_fields_do_not_spoil_the_list(
    key: str, field: object, expected: int | None
) -> None:
    row = {"node": "a001", "state": "IDLE", "verdict": "OK", key: field}
    values: tuple[Any, ...] = (None, {}, "--exclude")
    for options in values:
        listed = parse_list(json.dumps({"nodes": [row], "options": options}).encode())
        assert listed is not None and not listed.leaves_out
        words = getattr(listed.nodes["a001"], key)
        assert expected == (None if words is None else len(words))


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param({"r": "2026-03-02T12:00:00+01:00"}, {"r": (2026, 3, 2, 11)}, id="reported"),
        pytest.param({"r": "2026-03-02T12:00:00", "s": None, "t": 7, "u": "soon",
                      "v": "0001-01-01T00:00:00+14:00"}, {}, id="no-moments"),
        pytest.param(["r"], {}, id="a-list"),
        pytest.param(None, {}, id="nothing"),
    ],
)  # fmt: skip
def test_missing_reservation_begin_is_unknown(
    field: object, expected: dict[str, tuple[int, ...]]
) -> None:
    row = {"node": "a001", "state": "IDLE", "verdict": "OK", "reservations_begin": field}
    listed = parse_list(json.dumps({"nodes": [row]}).encode())
    assert listed is not None
    results = listed.nodes["a001"].reservations_begin
    assert results == {name: datetime(*at, tzinfo=UTC) for name, at in expected.items()}  # type: ignore[misc,arg-type]


def test_long_partition_name_is_not_cut() -> None:
    row = {"node": "a001", "state": "IDLE", "verdict": "OK", "partitions": ["p" * 120]}
    listed = parse_list(json.dumps({"nodes": [row]}).encode())
    assert listed is not None and listed.nodes["a001"].partitions == ("p" * 120,)


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-12:00"])
def test_time_outside_utc_range_is_ignored(since: str) -> None:
    row = {"node": "a001", "state": "IDLE+DRAIN", "verdict": "SKIP", "claim": {"since": since}}
    jobs = {"partition": "p", "node_type": "a", "jobs": 1, "nodes": 1, "since": since}
    listed = parse_list(json.dumps({"nodes": [row], "waiting_jobs": [jobs]}).encode())
    assert listed is not None and isinstance(listed.waiting, tuple)
    node = listed.nodes["a001"]
    assert node.claim is not None
    assert (node.claim.since, listed.waiting[0].since) == (None, None)


@pytest.mark.parametrize("program", ["node-convert", "nodeset-convert", "bridge-convert"])
def test_failed_list_reports_the_converters_own_message(tmp_path: Path, program: str) -> None:
    own = f"{program}: no slurmctld: look at it"
    body = f"echo warming up >&2; echo '{own}' >&2; echo scontrol: fatal: source >&2; exit 1"
    config = a_config(node_convert_path=script(tmp_path, body))
    listed = list_batch_nodes(config, an_environment())
    assert isinstance(listed, Unreadable) and listed.error.endswith(f"--list: exit code 1, {own}")


@pytest.mark.parametrize(
    ("first_line", "mode", "step"),
    [
        pytest.param("#!/bin/sh", 0o644, "run chmod +x", id="not executable"),
        pytest.param("#!/no/sh", 0o755, "correct its first line (#!)", id="no interpreter"),
    ],
)
def test_converter_that_cannot_start_is_named_with_the_next_step(
    tmp_path: Path, first_line: str, mode: int, step: str
) -> None:
    program = tmp_path / "convert"
    program.write_text(f"{first_line}\nexit 0\n")
    program.chmod(mode)
    listed = list_batch_nodes(a_config(node_convert_path=program), an_environment())
    assert isinstance(listed, Unreadable) and "can't be started: " in listed.error
    assert step in listed.error


def test_failed_list_of_a_shipped_converter_names_no_missing_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DNM_CONFIG", "/nonexistent")
    program = Path(sys.executable).parent / "node-convert"
    listed = list_batch_nodes(a_config(node_convert_path=program), an_environment())
    assert isinstance(listed, Unreadable) and "/nonexistent" in listed.error
    assert "add --list" not in listed.error


ENDLESS = {
    "stdout": "yes a001",
    "stderr": "yes >&2",
    "stdout, with a child that is deaf": "trap '' TERM; yes a001 & wait",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_list_is_ended_within_bounded_memory(tmp_path: Path, body: str) -> None:
    config = a_config(node_convert_path=script(tmp_path, f"echo $$ >{tmp_path}/group; {body}"))
    tracemalloc.start()
    listed = list_batch_nodes(config, an_environment())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(listed, Unreadable) and "printed more than" in listed.error
    assert most < 200 * 1024**2
    group = int((tmp_path / "group").read_text())
    with pytest.raises(ProcessLookupError):  # none of its children is left
        wait_until(lambda: os.killpg(group, 0))


def test_secrets_in_a_list_are_hidden_and_never_node_names(tmp_path: Path) -> None:
    table = TABLE.replace("job 17 of x", "job 17 of hunter2")
    (tmp_path / "table").write_text(table)
    config = a_config(node_convert_path=script(tmp_path, f"cat {tmp_path}/table"))
    listed = list_batch_nodes(config, an_environment("hunter2"))
    assert isinstance(listed, BatchList) and listed.nodes["a003"].reason == "job 17 of ***"
    named = list_batch_nodes(config, an_environment("a003"))
    assert isinstance(named, Unreadable) and "a003" not in named.error
    failing = a_config(node_convert_path=script(tmp_path, "echo hunter2 >&2; exit 1"))
    refused = list_batch_nodes(failing, an_environment("hunter2"))
    assert isinstance(refused, Unreadable) and refused.error.endswith("exit code 1, ***")


def test_secrets_in_a_claim_are_hidden_and_names_unchanged(tmp_path: Path) -> None:
    later = {"what a later converter adds": 1}
    claim = {"instance": "prod", "namespace": "dev", "error": "its journal holds hunter2", **later}
    row = {"node": "a001", "state": "IDLE", "verdict": "SKIP", "claim": claim}
    (tmp_path / "list").write_text(json.dumps({"nodes": [row]}))
    config = a_config(node_convert_path=script(tmp_path, f"cat {tmp_path}/list"))
    listed = list_batch_nodes(config, an_environment("hunter2"))
    assert isinstance(listed, BatchList)
    batch_claim = listed.nodes["a001"].claim
    assert batch_claim is not None and batch_claim.error == "its journal holds ***"
    assert (batch_claim.instance, batch_claim.namespace) == ("prod", "dev")
    named = list_batch_nodes(config, an_environment("prod"))
    assert isinstance(named, Unreadable) and "holds a secret" in named.error


@pytest.mark.parametrize("body", ["exit 3", "echo hello", "echo '[]'", "echo '{\"nodes\": 3}'"])
def test_invalid_list_is_unreadable_not_empty(tmp_path: Path, body: str) -> None:
    config = a_config(node_convert_path=script(tmp_path, body))
    assert isinstance(list_batch_nodes(config, an_environment()), Unreadable)


@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda t: (TABLE + t).encode()))
def test_arbitrary_list_bytes_never_raise(content: bytes) -> None:
    listed = parse_list(content)
    assert listed is None or all(node.reason.isprintable() for node in listed.nodes.values())


LONG = "x" * 30_000
LONG_LISTS = {
    "document": json.dumps({
        "nodes": [
            {"node": "a001", "state": LONG, "verdict": LONG, "reason": LONG,
             "claim": {"error": LONG, "namespace": LONG}},
            {"node": LONG, "state": "", "verdict": ""},
        ]
    }),
    "table": f"NODE STATE IDLE VERDICT\na001 {LONG} 1 OK {LONG}\n{LONG} idle 1 OK",
}  # fmt: skip


@pytest.mark.parametrize("form", LONG_LISTS)
def test_long_texts_of_a_list_are_cut(form: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(LONG_LISTS[form])
    config = a_config(tmp_path, node_convert_path=script(tmp_path, f"cat {tmp_path / 'list'}"))
    listed = list_batch_nodes(config, an_environment())
    assert isinstance(listed, BatchList) and list(listed.nodes) == ["a001"]
    assert len(msgspec.json.encode(listed)) < 2_000
