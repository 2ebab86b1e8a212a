"""Tests of the wait for converters: several at once, hanging ones, and ones left running."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dnm.converter.node_convert import NodeConvert
from dnm.converter.processes import is_alive, process_of
from dnm.converter.start import ConverterCall, ConverterPatience, run_converters
from dnm.model.lent import Ended
from tests.builders import a_config
from tests.converter.programs import LONG, an_environment, never, script
from tests.processes import wait_until


def test_hanging_process_is_ended_with_its_children(tmp_path: Path) -> None:
    path = script(
        tmp_path, f"cd {tmp_path}; echo a001; sleep 300 & echo $! > new; mv new child; wait"
    )
    call = ConverterCall("k", [str(path)], an_environment(), tmp_path / "output")
    wait_until((tmp_path / "child").exists)
    waits = ConverterPatience(timeout=timedelta(seconds=0.1), patience=LONG, grace=LONG)
    ended = run_converters({"k": call}, waits, lambda *_: None, never)["k"]
    assert ended.timed_out and ended.names == ("a001",)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: process_of(child) is None)


def test_signal_leaves_the_converter_running_after_the_grace(tmp_path: Path) -> None:
    path = script(
        tmp_path, f"cd {tmp_path}; until test -e go; do sleep 0.1; done; echo a001; touch result"
    )  # fmt: skip
    call = ConverterCall("k", [str(path)], an_environment(), tmp_path / "output")
    waits = ConverterPatience(timeout=LONG, patience=LONG, grace=timedelta(seconds=0.1))
    ended = run_converters({"k": call}, waits, lambda *_: None, lambda: True)["k"]
    assert ended.left_running and is_alive(call.process)
    (tmp_path / "go").touch()
    call.child.wait(timeout=300)
    assert (tmp_path / "result").exists()
    assert not is_alive(call.process)
    # Output after the run left it is not lost: the next run reads it.
    convert = NodeConvert(a_config(tmp_path), {})
    convert.directory = tmp_path / "output"
    assert convert.read_end("k") == Ended(exit_code=0, names=("a001",), last_lines=("a001",))
    assert convert.read_end("other") == Ended()
    assert convert.find("k") == call.process and convert.find("other") is None
    new = convert.directory / "k.exit.new"  # what the keeper is writing now
    new.touch()
    convert.forget_output({"k"})
    assert new.exists() and convert.read_end("k").exit_code == 0
    convert.forget_output({"other"})
    assert list(convert.directory.iterdir()) == []


def test_reads_output_of_several_converters_at_once(tmp_path: Path) -> None:
    calls: dict[str, ConverterCall] = {}
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        path = script(tmp_path / name, f"sleep 0.4; echo {name}001; exit {len(calls)}")
        calls[name] = ConverterCall(name, [str(path)], an_environment(), tmp_path / "output")
    waits = ConverterPatience(timeout=LONG, patience=LONG, grace=LONG)
    ended = run_converters(calls, waits, lambda *_: None, never)
    assert {key: (end.names, end.exit_code) for key, end in ended.items()} == {
        "a": (("a001",), 0), "b": (("b001",), 1), "c": (("c001",), 2)
    }  # fmt: skip
