"""The converter edge with real processes: what it hears, how it ends them, what it refuses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.converter.calls import (
    ConverterCall,
    NodeConvert,
    Waits,
    convert_command,
    converter_environment,
    list_batch_nodes,
    parse_list,
    process_of,
    return_command,
    run_converters,
    still_running,
)
from dnm.model.cluster import BatchNode
from dnm.model.errors import ConverterError
from dnm.model.registry import ConverterProcess, Ended
from dnm.model.value import Unreadable
from tests.builders import a_config

LONG = timedelta(seconds=30)


def script(directory: Path, body: str) -> Path:
    path = directory / "node-convert"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def never() -> bool:
    return False


def run_one(
    path: Path,
    timeout: timedelta = LONG,
    should_leave: Callable[[], bool] = never,
    grace: timedelta = LONG,
) -> tuple[Ended, list[str]]:
    lines: list[str] = []
    call = ConverterCall("k", [str(path)], dict(os.environ), path.parent / "output")
    waits = Waits(timeout=timeout, patience=LONG, grace=grace)
    ended = run_converters({"k": call}, waits, lambda _, line: lines.append(line), should_leave)
    return ended["k"], lines


def test_names_are_lines_of_stdout_and_nothing_else_is(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "echo 'PING OK (short): a001'; echo a001; echo a002; echo a001; echo a003 >&2; printf a004",
    )
    ended, lines = run_one(path)
    assert ended.names == ("a001", "a002", "a004")
    assert ended.exit_code == 0 and "PING OK (short): a001" in lines


def test_control_characters_never_reach_the_log(tmp_path: Path) -> None:
    _, lines = run_one(script(tmp_path, r"printf 'red \033[31m\007\r\n\377\n'"))
    assert lines and all(line.isprintable() for line in lines)


def test_an_endless_line_takes_bounded_memory(tmp_path: Path) -> None:
    _, lines = run_one(script(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo a001"))
    assert max(map(len, lines)) <= 16 * 1024 and lines[-1] == "a001"


def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 300 & echo $! > {tmp_path}/child; echo a001; wait")
    ended, _ = run_one(path, timeout=timedelta(seconds=0.5))
    assert ended.timed_out and ended.names == ("a001",)
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if process_of(child) is None:
            break
        time.sleep(0.02)
    assert process_of(child) is None


def test_a_signal_leaves_it_to_finish_after_the_grace(tmp_path: Path) -> None:
    path = script(tmp_path, f"set -e; sleep 1; echo a001; echo done > {tmp_path}/result")
    call = ConverterCall("k", [str(path)], dict(os.environ), tmp_path / "output")
    waits = Waits(timeout=LONG, patience=LONG, grace=timedelta(seconds=0.1))
    ended = run_converters({"k": call}, waits, lambda *_: None, lambda: True)["k"]
    assert ended.left_running and still_running([call.process]) == {call.process}
    call.child.wait(timeout=10)
    assert (tmp_path / "result").read_text() == "done\n"
    assert not still_running([call.process])
    # What it said after it was left alone is not lost: the next run reads it.
    convert = NodeConvert(a_config(tmp_path), {})
    convert.directory = tmp_path / "output"
    assert convert.read_end("k") == Ended(exit_code=0, names=("a001",), last_lines=("a001",))
    assert convert.read_end("other") == Ended()
    assert convert.find("k") == call.process and convert.find("other") is None
    convert.forget_output({"other"})
    assert list(convert.directory.iterdir()) == []


def test_one_that_babbles_fills_no_disk(tmp_path: Path) -> None:
    path = script(tmp_path, "head -c 80000000 /dev/zero | tr '\\0' '\\n'; echo a001")
    ended, _ = run_one(path)
    assert ended.names == ("a001",)
    assert sum(file.stat().st_size for file in (tmp_path / "output").iterdir()) < 70_000_000


def test_a_later_process_of_the_same_number_is_not_ours() -> None:
    own = process_of(os.getpid())
    assert own is not None and still_running([own]) == {own}
    assert not still_running([ConverterProcess(pid=own.pid, start_ticks=own.start_ticks - 1)])


def test_several_run_at_once_and_each_is_heard(tmp_path: Path) -> None:
    calls = {}
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        path = script(tmp_path / name, f"sleep 0.4; echo {name}001; exit {len(calls)}")
        calls[name] = ConverterCall(name, [str(path)], dict(os.environ), tmp_path / "output")
    began = time.monotonic()
    waits = Waits(timeout=LONG, patience=LONG, grace=LONG)
    ended = run_converters(calls, waits, lambda *_: None, never)
    assert {key: (end.names, end.exit_code) for key, end in ended.items()} == {
        "a": (("a001",), 0), "b": (("b001",), 1), "c": (("c001",), 2)
    }  # fmt: skip
    assert time.monotonic() - began < 3 * 0.4 + 10  # not a measure: only that it ends


@pytest.mark.parametrize("name", ["", "-x", "a b", "A001", "a/../b", "a001\n", "a" * 300, "$(x)"])
def test_no_other_name_reaches_a_command_line(name: str) -> None:
    with pytest.raises(ConverterError, match="RFC 1123"):
        return_command(a_config(), name)
    with pytest.raises(ConverterError, match="RFC 1123"):
        convert_command(a_config(), "a", 1, name)


def test_the_command_and_its_environment_keep_the_contract(tmp_path: Path) -> None:
    config = a_config(
        tmp_path,
        node_convert_path=Path("/x/node-convert"),
        allow_preempt=True,
        slurm_reservation_name="k8s-test",
        kubeconfig_path=tmp_path / "kubeconfig",
    )
    assert convert_command(config, "a", 3, "dev") == [
        "/x/node-convert", "--set", "k8s", "--node-type", "a", "--num-nodes", "3",
        "--namespace", "dev", "--allow-preempt",
    ]  # fmt: skip
    assert return_command(config, "a001") == [
        "/x/node-convert", "--set", "batch", "--node-name", "a001"
    ]  # fmt: skip
    environment = converter_environment(config, {"PATH": "/bin", "PASSWORD": "secret"})
    assert environment["RES_NAME"] == "k8s-test" and environment["PASSWORD"] == "secret"
    assert environment["KUBECONFIG"] == str(tmp_path / "kubeconfig")


def test_a_missing_or_unexecutable_converter_is_a_sentence(tmp_path: Path) -> None:
    path = script(tmp_path, "true")
    path.chmod(0o644)
    for missing in (path, tmp_path / "nothing"):
        with pytest.raises(ConverterError, match="node_convert_path"):
            ConverterCall("k", [str(missing)], {}, tmp_path / "output")
        assert isinstance(list_batch_nodes(a_config(node_convert_path=missing), {}), Unreadable)


TABLE = """\
NODE             STATE                            IDLE  VERDICT REASON
a001             IDLE                              2d3h  OK      idle 2d3h
a002             IDLE+DRAIN                          0s  SKIP    state flag DRAIN
a003             ALLOCATED                           0s  PREEMPT job 17 of x
a004             GIBBERISH                           0s  SKIP    what

Viable now: 1 of 4 node(s)
"""


def test_both_forms_of_a_list_are_read(tmp_path: Path) -> None:
    document = {
        "schema": "node-convert.list/1",
        "nodes": [{"node": "a001", "state": "IDLE", "verdict": "OK", "in_service": True}],
    }
    (tmp_path / "list.json").write_text(json.dumps(document))
    modern = script(tmp_path, f"cat {tmp_path}/list.json")
    assert list_batch_nodes(a_config(node_convert_path=modern), dict(os.environ)) == {
        "a001": BatchNode(name="a001", state="IDLE", verdict="OK", in_service=True)
    }
    (tmp_path / "table").write_text(TABLE)
    legacy = script(
        tmp_path, f'[ "$2" = --output ] && {{ echo usage >&2; exit 1; }}; cat {tmp_path}/table'
    )
    nodes = list_batch_nodes(a_config(node_convert_path=legacy), dict(os.environ))
    assert isinstance(nodes, dict)
    assert {name: node.in_service for name, node in nodes.items()} == {
        "a001": True, "a002": False, "a003": True, "a004": None
    }  # fmt: skip
    assert nodes["a003"].verdict == "PREEMPT" and nodes["a002"].reason == "state flag DRAIN"


def test_of_a_list_that_fails_the_converter_s_own_sentence_is_kept(tmp_path: Path) -> None:
    own = "node-convert: no slurmctld: look at it"
    body = f"echo warming up >&2; echo '{own}' >&2; echo scontrol: fatal: source >&2; exit 1"
    config = a_config(node_convert_path=script(tmp_path, body))
    listed = list_batch_nodes(config, dict(os.environ))
    assert isinstance(listed, Unreadable) and listed.error.endswith(f"--list: exit 1 {own}")


@pytest.mark.parametrize("body", ["exit 3", "echo hello", "echo '[]'", "echo '{\"nodes\": 3}'"])
def test_any_other_answer_is_unreadable_not_empty(tmp_path: Path, body: str) -> None:
    config = a_config(node_convert_path=script(tmp_path, body))
    assert isinstance(list_batch_nodes(config, dict(os.environ)), Unreadable)


@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda t: (TABLE + t).encode()))
def test_any_bytes_of_a_list_are_read_or_refused(content: bytes) -> None:
    nodes = parse_list(content)
    assert nodes is None or all(node.reason.isprintable() for node in nodes.values())
