"""What jobs wait for by a site's own command, and every answer that says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnm.converter.node_convert import NodeConvert
from dnm.converter.node_list import parse_list
from dnm.converter.pressure_command import ask_for_pressure
from dnm.model.cluster import BatchList, WaitingJobs
from dnm.model.value import Unreadable
from tests.builders import NOW, a_config
from tests.converter.programs import an_environment, script

ROW = (
    '{"partition": "main", "node_type": "a", "jobs": 3, "nodes": 12, '
    '"since": "2026-03-02T12:00:00Z"}'
)
FOUND = (WaitingJobs("main", "a", 3, 12, NOW),)


def test_a_command_says_what_the_list_does_not(tmp_path: Path) -> None:
    command = tmp_path / "pressure"
    command.write_text(f"#!/bin/sh\necho '{{\"waiting_jobs\": [{ROW}]}}'\n")
    command.chmod(0o755)
    converter = script(tmp_path, """[ "$2" ] && exit 2; echo 'NODE STATE IDLE VERDICT REASON'""")
    given = {"node_convert_path": converter, "batch_pressure_command": command}
    listed = NodeConvert(a_config(tmp_path, **given), {}).list_nodes()
    assert listed == BatchList(nodes={}, waiting=FOUND)
    one = NodeConvert(a_config(tmp_path, **given), {}).list_nodes("a001")
    assert isinstance(one, BatchList | Unreadable) and getattr(one, "waiting", None) is None


def test_without_a_command_nobody_says() -> None:
    assert ask_for_pressure(a_config(), an_environment()) is None


def test_a_list_that_says_it_is_believed(tmp_path: Path) -> None:
    body = f'echo \'{{"nodes": [], "waiting_jobs": [{ROW}]}}\''
    config = a_config(tmp_path, node_convert_path=script(tmp_path, body),
                      batch_pressure_command=tmp_path / "never asked")  # fmt: skip
    assert NodeConvert(config, {}).list_nodes() == BatchList(nodes={}, waiting=FOUND)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param("echo nothing", "exit 0, and its output is no list", id="no-json"),
        pytest.param("echo '{\"waiting_jobs\": [{}]}'; exit 3", "exit 3, and its", id="no-rows"),
        pytest.param("echo '{\"waiting_jobs\": []}'; exit 3", "exit 3", id="failed"),
        pytest.param(
            'echo \'{"waiting_jobs": [{"partition": "m", "node_type": "a", "jobs": -1, '
            '"nodes": 1}]}\'',
            "output is no list",
            id="less-than-none",
        ),
    ],
)
def test_an_answer_that_says_nothing(tmp_path: Path, body: str, says: str) -> None:
    answer = ask_for_pressure(
        a_config(batch_pressure_command=script(tmp_path, body)), an_environment()
    )
    assert isinstance(answer, Unreadable) and says in answer.error
    assert str(tmp_path) in answer.error


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    config = a_config(batch_pressure_command=tmp_path / "missing")
    answer = ask_for_pressure(config, an_environment())
    assert isinstance(answer, Unreadable) and "can't be run: No such file" in answer.error


def test_rows_are_bounded_and_printable() -> None:
    text = '{"nodes": [], "waiting_jobs": [%s]}'
    row = '{"partition": "\\u001b[31mm", "node_type": "a", "jobs": 1, "nodes": 1}'
    none = '{"partition": "m", "node_type": "a", "jobs": 0, "nodes": 0}'
    listed = parse_list((text % ",".join([none, *[row] * 2_000])).encode())
    assert listed is not None and listed.waiting is not None
    assert len(listed.waiting) == 999 and listed.waiting[0].partition.isprintable()
