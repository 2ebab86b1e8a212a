"""Tests of runs that get SIGTERM or SIGINT. A run stops waiting after its grace time, whatever it
waits for, and records its actions. The next run continues from there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dnm.cli.act.run import StopSignals
from dnm.converter.ending import end_by_signals
from dnm.converter.processes import process_of
from dnm.converter.start import ConverterCall, ConverterPatience, run_converters
from dnm.host.fault_points import fault_point
from dnm.host.programs import run_bounded
from dnm.kube.events import send_events
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Fault
from dnm.model.cluster import KubeEvent
from dnm.model.errors import StoppedError
from dnm.model.lent import Phase
from dnm.queues.yunikorn.rest import checksum_of
from tests.builders import NOW
from tests.converter.programs import an_environment, never, script
from tests.processes import Child, wait_until, warm_processes
from tests.site import Site, a_workshop_site

GRACE = "a grace period of "
HOUR = timedelta(hours=1)
HANGS: dict[str, Any] = {"kind": "slow", "seconds": 25.0}
ANOTHER = {"kind": "garbage", "body": f'{{"Checksum": "{checksum_of("another")}"}}'}

EVENT = KubeEvent(
    kind="Node", namespace="", name="a001", uid="1", is_warning=False, reason="NodeLent",
    action="Lend", note="lent", time=NOW,
)  # fmt: skip

WAITS: dict[str, tuple[dict[str, Any], int, str]] = {
    "YuniKorn does not take the limits up": ({**ANOTHER, "path": "/ws/v1/config$"}, 0, "note="),
    "YuniKorn does not say": ({**HANGS, "path": "/ws/v1/config$"}, 0, "note="),
    "YuniKorn does not judge": ({**HANGS, "path": "validate-conf"}, 1, "SetQueueLimits"),
    "a write of the ConfigMap hangs": (
        {**HANGS, "path": "configmaps", "methods": ["PUT"]}, 1, "SetQueueLimits",
    ),
    "a patch of a Node hangs": ({**HANGS, "path": "nodes/", "methods": ["PATCH"]}, 1, "MarkNode"),
    "the server throttles it": (
        {"kind": "status", "code": 429, "retry_after": 9, "path": "nodes/", "methods": ["PATCH"]},
        1, "MarkNode",
    ),
}  # fmt: skip


def start_run(site: Site) -> Child:
    environment = {**os.environ, "DNM_CONFIG": str(site.path), "DNM_LOG_CONSOLE": "1"}
    (run,) = warm_processes().start({"arguments": ["run"], "environment": environment})
    return run


@pytest.mark.parametrize("name", WAITS)
def test_stopped_run_waits_no_longer_than_its_grace(
    sandbox: Sandbox, tmp_path: Path, name: str
) -> None:
    """After the signal, only shutdown_grace_seconds count, not the longer time-out of each wait."""
    details, code, output = WAITS[name]
    site = a_workshop_site(sandbox, tmp_path)
    site.change(shutdown_grace_seconds="1", yunikorn_url=sandbox.url)
    site.run()
    sandbox.tick(5)
    fault: Fault = sandbox.fault(**details)
    run = start_run(site)
    wait_until(lambda: fault.struck)
    run.send(signal.SIGTERM)
    ended = run.wait()
    message = ended.err
    assert ended.code == code, message
    assert any(output in line and GRACE in line for line in message.splitlines()), message
    if code == 0:  # recorded, reported, and not undone
        assert "vcore: 336" in sandbox.queues_text()
        assert site.registry.nodes["a001"].phase is Phase.SERVING
    sandbox.faults.clear()
    site.change(yunikorn_url="")  # uses the sandbox's clock
    assert site.run().exit_code == 0
    assert "vcore: 336" in sandbox.queues_text()
    assert not sandbox.violations


def test_signal_during_a_conversion_ends_the_run_within_its_grace(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = a_workshop_site(sandbox, tmp_path)
    may_convert, real = tmp_path / "may-convert", sandbox.node_convert_path
    waits = f'case "$*" in *--set*) while [ ! -e {may_convert} ]; do sleep 0.05; done;; esac'
    slow = script(tmp_path, f'{waits}; exec {real} "$@"')
    site.change(shutdown_grace_seconds="1", node_convert_path=str(slow))
    registry, run = site.config.converted_nodes_path, start_run(site)
    wait_until(
        lambda: registry.exists() and any(request.converter for request in site.registry.requests)
    )
    at_work = site.command("status").stdout
    assert "a run is at work since " in at_work and "exit code" not in at_work
    run.send(signal.SIGTERM)
    assert run.wait().code == 1
    assert "exit code 1" in site.command("status").stdout
    (request,) = site.registry.requests
    assert request.converter is not None and not request.end
    may_convert.touch()
    keeper = Path("/proc", str(request.converter.pid))
    wait_until(lambda: not keeper.exists())
    sandbox.tick(1)
    assert site.command("run").returncode == 0
    assert site.registry.nodes["a001"].phase is Phase.SERVING


def test_run_stopped_while_reading_is_not_reported_as_successful(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """The registry still has the exit code 0 of the previous run, which `status` must not show."""
    site = a_workshop_site(sandbox, tmp_path)
    site.run()
    fault: Fault = sandbox.fault(**HANGS, path="/nodes")
    run = start_run(site)
    wait_until(lambda: fault.struck)
    run.send(signal.SIGINT)
    assert run.wait().code == 1
    output = site.command("status").stdout
    assert "has not ended" in output and "exit code" not in output
    assert "warning: the run that began" in output and "a signal, a kill or an error" in output


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    """Yields dnm's handling of stop signals with a grace time of 0.1 s."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}
    signals = StopSignals(timedelta(seconds=0.1))
    yield signals
    signals.close()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signal_ends_computation_at_once_and_prevents_the_next_step(
    signals: StopSignals,
) -> None:
    with pytest.raises(StoppedError, match="before any action"), signals.at_once():
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it went on")
    assert signals.came
    signal.raise_signal(signal.SIGTERM)  # nothing is interrupted outside
    with pytest.raises(StoppedError), signals.at_once():
        pytest.fail("it began although a signal had come")


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("point", "ends"),
    [
        ("kube.evict", True), ("kube.patch_node", True), ("kube.read_config_map", True),
        ("queues.read_config", True), ("converter.reserve", True), ("converter.list", True),
        ("kube.write_state", False), ("kube.write_lease", False), ("registry.fsync", False),
        ("history.append", False), ("converter.start", False),
    ],
)  # fmt: skip
def test_stop_signal_ends_requests_but_not_records(point: str, ends: bool) -> None:
    """The signal breaks off a request at its fault point. A write of a record continues."""
    signal.raise_signal(signal.SIGTERM)
    try:
        with fault_point(point):
            _sleep_until_checked(signal.SIGALRM, times=3)
        assert not ends
    except StoppedError as error:
        assert ends and GRACE in str(error)


def _sleep_until_checked(number: signal.Signals, times: int) -> None:
    """Sleeps until the signal's handler has run `times` times, however slow the machine is."""
    handler, seen = signal.getsignal(number), 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        assert callable(handler)
        handler(number, frame)

    signal.signal(number, count)
    try:
        while seen < times:
            time.sleep(0.01)
    finally:
        signal.signal(number, handler)


def test_grace_time_counts_from_the_signal(tmp_path: Path, signals: StopSignals) -> None:
    """A converter that was started before the signal gets no grace time of its own after it."""
    signal.raise_signal(signal.SIGTERM)
    call = ConverterCall(
        "k", [str(script(tmp_path, "exec sleep 300"))], an_environment(), tmp_path / "output"
    )
    waits = ConverterPatience(timeout=HOUR, patience=HOUR, grace=HOUR)
    try:
        ended = run_converters({"k": call}, waits, lambda *_: None, lambda: True)["k"]
        assert ended.left_running and not ended.timed_out
    except StoppedError as error:  # the signal came before dnm handled it
        assert GRACE in str(error)
    finally:
        signals.close()  # otherwise it ends this wait too
        call.end()


@pytest.mark.usefixtures("signals")
def test_stop_signal_ends_a_called_program(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 300")
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(StoppedError, match=GRACE), fault_point("converter.reserve"):
        run_bounded([str(path)], dict(os.environ), HOUR.total_seconds(), 1000)
    pid = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    assert not pid or process_of(int(pid)) is None


@pytest.mark.usefixtures("signals")
def test_wait_for_a_process_end_is_bounded_by_the_grace() -> None:
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(StoppedError, match=GRACE):
        end_by_signals(lambda sent: None, never)


@pytest.mark.usefixtures("signals")
def test_stopped_run_sends_no_further_events_and_notes_it() -> None:
    def never_answered(event: KubeEvent) -> None:
        with fault_point("kube.create_event"):
            time.sleep(300)

    signal.raise_signal(signal.SIGTERM)
    (note,) = send_events(never_answered, [EVENT])
    assert note.startswith("1 Event not sent") and GRACE in note
