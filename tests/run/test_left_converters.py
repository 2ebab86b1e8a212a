"""Tests of a converter that takes longer than a run waits: the run leaves it running, and later
runs serve other queues, log its output, and record its result. They use real processes."""

from __future__ import annotations

import io
import logging
import os
import signal
from pathlib import Path

import pytest

from dnm.converter.processes import process_of
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from tests.processes import wait_until
from tests.site import QUEUE, Site, a_workshop_site, set_up_workshop

OTHER_QUEUE = "root.anvil.services.notebook"

# Waits for a file of its direction before it works, and again before it ends.
SCRIPT = """#!/bin/sh
[ "$1" = --list ] && exec @REAL@ "$@"
echo "begins $2"
for _ in $(seq 1500); do [ -e @DIR@/go-$2 ] && break; sleep 0.02; done
@REAL@ "$@" || exit
echo "ends $2"
"""


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(1, "dev", queue=QUEUE, cpu="100", memory="200G", run_seconds=400)
    made = Site(
        sandbox, tmp_path / "site", monitored_namespaces="dev, notebook",
        node_convert_path=tmp_path / "site" / "node-convert", check_interval_seconds=1,
        convert_timeout_seconds=600, reversion_idle_seconds=1,
    )  # fmt: skip
    made.write(
        made.directory / "queues.json", f'{{"dev": "{QUEUE}", "notebook": "{OTHER_QUEUE}"}}\n'
    )
    sandbox.add_namespace("notebook")
    text = SCRIPT.replace("@REAL@", str(sandbox.node_convert_path))
    path = made.directory / "node-convert"
    path.write_text(text.replace("@DIR@", str(made.directory)))
    path.chmod(0o755)
    return made


def release_converter(site: Site, direction: str) -> None:
    """Lets the running converters end, and waits for that."""
    keepers = [process for process in site.registry.open_calls.values() if process]
    (site.directory / f"go-{direction}").touch()
    wait_until(lambda: not any(process_of(process.pid) == process for process in keepers))


def run(site: Site, code: int | None = 0) -> str:
    """Plays a run, a minute after the last. Returns its log."""
    site.sandbox.tick(60)
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logger = logging.getLogger("dnm")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        result = site.run()
    finally:
        logger.removeHandler(handler)
    assert code is None or result.exit_code == code, (result.plan.errors, log.getvalue())
    return "\n".join((log.getvalue(), *result.plan.errors))


def run_until_returning(site: Site) -> str:
    while True:
        for name, entry in site.registry.nodes.items():
            if entry.phase is Phase.RETURNING and name in site.registry.open_calls:
                return name
        run(site)


def calls(site: Site) -> list[str]:
    return [" ".join(call.arguments) for call in site.sandbox.conversion.calls]


def test_long_running_converter_is_left_observed_and_completed(
    sandbox: Sandbox, site: Site
) -> None:
    lines = [run(site)]
    assert "action=leave" in lines[0] and "still at work" in lines[0]
    (request,) = site.registry.requests
    assert request.converter and not request.end
    shown = site.command("status").stdout
    assert "requested" in shown

    # Another queue is served meanwhile, and this queue gets no second request.
    sandbox.add_pods(
        1, "notebook", queue=OTHER_QUEUE, cpu="100", memory="200G", name="other", run_seconds=900
    )
    lines.append(run(site))
    assert "namespace=notebook" in lines[1] and "namespace=dev" not in lines[1]
    assert len(site.registry.requests) == 2
    lines.append(run(site))
    assert "action=" not in lines[2] and "line=" not in lines[2]

    release_converter(site, "k8s")
    for _ in range(3):
        lines.append(run(site))
    assert {entry.phase for entry in site.registry.nodes.values()} == {Phase.SERVING}
    assert len(site.registry.nodes) == 2 and not site.registry.requests
    text = "".join(lines)
    for word, times in (("begins k8s", 2), ("ends k8s", 2), ("a001'", 1), ("a002'", 1)):
        assert text.count(f"line='{word}") == times, (word, text)  # each line once

    # The return works in the same way.
    lines = []
    while not site.registry.open_calls:
        lines.append(run(site))
    (name,) = [n for n, e in site.registry.nodes.items() if e.phase is Phase.RETURNING]
    assert "".join(lines).count(f"action=return node={name}") == 1
    assert f"action=leave converter={name}" in "".join(lines)
    release_converter(site, "batch")
    run(site)
    assert name not in site.registry.nodes and len(site.registry.nodes) == 1
    assert not list((site.directory / "state" / "converter").glob(f"{name}.*"))
    assert not sandbox.violations


def test_hanging_converter_is_ended_by_a_later_run(sandbox: Sandbox, site: Site) -> None:
    text = site.path.read_text().replace(
        "convert_timeout_seconds = 600", "convert_timeout_seconds = 90"
    )
    site.write(site.path, text)
    run(site)
    (keeper,) = site.registry.open_calls.values()
    assert keeper is not None and process_of(keeper.pid) == keeper
    began = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
    wait_until(began.read_text)
    children = began.read_text().split()
    assert "action=" not in run(site)
    text = run(site, code=1)
    assert "action=end-converter" in text and "ran out of its time" in text
    assert process_of(keeper.pid) != keeper
    assert all(process_of(int(child)) is None for child in children)
    assert site.registry.requests[0].is_abandoned and "a" in site.registry.backoffs


def test_failed_call_is_not_credited_with_the_nodes_of_the_next_call(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Plays the real command: a call fails, and the next one lends a node. Then dnm reports no
    incoming node and no error."""
    site = a_workshop_site(sandbox, tmp_path)
    sandbox.behave(direction="k8s", act=False, exit_code=1, stdout="")
    failed = site.command("run")
    assert failed.returncode == 1 and "exit code 1" in failed.stderr
    (request,) = site.registry.requests
    assert site.command("reset", "a").returncode == 0
    again = site.command("run")
    assert again.returncode == 0, again.stderr
    asked = [f"{request.id}" for request in site.registry.requests]
    assert request.id not in asked and len(asked) == 1
    for _ in range(10):
        sandbox.tick(60)
        last = site.command("run")
        assert last.returncode == 0, last.stderr
        if not site.registry.requests:
            break
    assert site.lent() == ["a001", "a002"] and not site.registry.requests
    assert "coming" not in last.stdout and "requested" not in site.command("status").stdout
    assert not sandbox.violations


def test_end_of_a_keeper_starts_no_second_converter(sandbox: Sandbox, site: Site) -> None:
    """The converter's parent died. A second `--set batch` would power-cycle the node again."""
    (site.directory / "go-k8s").touch()
    name = run_until_returning(site)
    keeper = site.registry.open_calls[name]
    assert keeper is not None
    os.kill(keeper.pid, signal.SIGKILL)
    run(site)
    sandbox.tick(site.config.join_timeout.total_seconds())
    assert "action=return" not in run(site)
    # At its time limit dnm ends the converter, and only then calls it again for the return.
    sandbox.tick(site.config.convert_timeout.total_seconds())
    text = run(site, code=1)
    assert "action=end-converter" in text and "ran out of its time" in text
    release_converter(site, "batch")
    for _ in range(50):
        run(site, code=None)
        if name not in site.registry.nodes:
            break
    assert name not in site.registry.nodes and not sandbox.violations
