"""Tests of the start of a converter, and of finding it again even if its parent is killed."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from dnm.converter.contract import WAKE
from dnm.converter.node_convert import NodeConvert
from dnm.converter.node_list import list_batch_nodes
from dnm.converter.output import ConverterOutput
from dnm.converter.processes import Started, process_of, started_at
from dnm.converter.start import ConverterCall, ConverterPatience, run_converters
from dnm.model.blackout import Secrets
from dnm.model.errors import ConverterError
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.converter.programs import LONG, an_environment, never, script
from tests.processes import wait_until


def test_reports_missing_or_unexecutable_converter(tmp_path: Path) -> None:
    path = script(tmp_path, "true")
    path.chmod(0o644)
    for missing in (path, tmp_path / "nothing"):
        with pytest.raises(ConverterError, match="node_convert_path"):
            ConverterCall("k", [str(missing)], an_environment(), tmp_path / "output")
        assert isinstance(
            list_batch_nodes(a_config(node_convert_path=missing), an_environment()), Unreadable
        )


SOON = timedelta(seconds=0.2)


@pytest.fixture
def convert(tmp_path: Path) -> NodeConvert:
    path = script(tmp_path, "sleep 60")
    config = a_config(tmp_path, node_convert_path=path, converted_nodes_path=tmp_path / "r.json")
    return NodeConvert(config, os.environ)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'"\xff"', b'{"pid":1,"start_ticks":2,"boot":"\xff"}']
)
def test_damaged_record_of_a_call_is_unknown(convert: NodeConvert, content: bytes) -> None:
    convert.directory.mkdir()
    for end in ("process", "converter", "heard", "out", "err"):
        (convert.directory / f"a002.{end}").write_bytes(content)
    assert started_at(convert.directory / "a002") == Started()
    output = ConverterOutput(convert.directory / "a002", Secrets())
    output.load_position()
    assert [tail.at for tail in output.tails] == [0, 0]


def start_without_keeper(convert: NodeConvert) -> Started:
    """Starts a converter and kills its parent (the keeper). Returns both recorded processes."""
    keeper = convert.start("a002", [str(convert.config.node_convert_path)])
    wait_until(lambda: started_at(convert.directory / "a002").converter)
    started = started_at(convert.directory / "a002")
    assert started.keeper == keeper and started.converter != keeper
    os.kill(keeper.pid, signal.SIGKILL)
    convert.calls["a002"].child.wait()
    assert process_of(keeper.pid) is None
    return started


def test_converter_without_keeper_is_detected_and_ended(convert: NodeConvert) -> None:
    started = start_without_keeper(convert)
    assert started.keeper and started.converter
    assert process_of(started.converter.pid) == started.converter
    later = NodeConvert(convert.config, os.environ)  # the next run
    assert later.still_running([started.keeper]) == {started.keeper}
    with pytest.raises(ConverterError, match="still runs as process"):
        later.start("a002", [str(convert.config.node_convert_path)])
    assert later.end(started.keeper)
    assert process_of(started.converter.pid) is None
    assert not later.still_running([started.keeper])


@pytest.mark.parametrize("is_late", [False, True], ids=["left-at-work", "ended-after-its-time"])
def test_killed_keeper_does_not_end_the_wait(convert: NodeConvert, is_late: bool) -> None:
    started = start_without_keeper(convert)
    assert started.keeper and started.converter
    waits = ConverterPatience(timeout=SOON if is_late else LONG, patience=SOON, grace=LONG)
    end = run_converters(convert.calls, waits, lambda *_: None, never)["a002"]
    assert (end.left_running, end.timed_out, end.exit_code) == (not is_late, is_late, None)
    assert (process_of(started.converter.pid) is None) is is_late
    assert convert.end(started.keeper)


def test_process_with_a_reused_number_is_not_ended(convert: NodeConvert) -> None:
    """After a reboot, another process may have the recorded id and even the same start time."""
    own = process_of(os.getpid())
    assert own is not None
    convert.directory.mkdir()
    text = f'{{"pid":{own.pid},"start_ticks":{own.start_ticks - 1}}}'
    (convert.directory / "a002.process").write_text(text)
    boot = f'{{"pid":{own.pid},"start_ticks":{own.start_ticks},"boot":"another"}}'
    (convert.directory / "a002.converter").write_text(boot)
    keeper = convert.find("a002")
    assert keeper is not None and not convert.still_running([keeper]) and convert.end(keeper)


@pytest.mark.parametrize("code", [0, 1], ids=["good", "failed"])
def test_end_of_a_call_starts_a_run(tmp_path: Path, code: int) -> None:
    """The file that starts a run is created only when the run can read the exit code."""
    path = script(tmp_path, f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit {code}")
    config = a_config(tmp_path, node_convert_path=path)
    convert = NodeConvert(config, dict(os.environ))
    convert.start("k", [str(path)])
    assert not config.trigger_path.exists()
    (tmp_path / "go").touch()
    convert.calls["k"].child.wait(timeout=300)
    assert config.trigger_path.exists() and convert.read_end("k").exit_code == code


def test_call_ends_normally_if_no_run_can_be_started(tmp_path: Path) -> None:
    path = script(tmp_path, "echo a001")
    environment = an_environment()
    environment = msgspec.structs.replace(
        environment, environment={**environment.environment, WAKE: "/nowhere/at/all"}
    )
    call = ConverterCall("k", [str(path)], environment, tmp_path / "output")
    assert call.child.wait(timeout=300) == 0
