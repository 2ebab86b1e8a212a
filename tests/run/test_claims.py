"""Tests of the real command after a converter died midway, or was not started by a run: what
status, plan and check report, and what the next runs do."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from dnm.converter.processes import is_alive
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from tests.site import Site, a_workshop_site

LEND = ["--set", "k8s", "--node-name", "a003", "--namespace", "dev"]
PROD = {"DNM_INSTANCE": "prod"}


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    return a_workshop_site(sandbox, tmp_path)


def claim(sandbox: Sandbox, *, finish: bool = False, **environment: str) -> None:
    """Plays a converter for a003 that no run has started, and that dies or succeeds."""
    with sandbox.lock:
        begun = sandbox.conversion.begin(LEND, {**PROD, **environment})
    assert begun.operation is not None
    if finish:
        sandbox.finish_conversion(begun.operation)
    else:
        sandbox.conversion._operations.clear()


def run(site: Site, *codes: int) -> str:
    site.sandbox.tick(60)
    ended = site.command("run")
    assert ended.returncode in (codes or (0,)), (ended.stdout, ended.stderr)
    return ended.stdout + ended.stderr


def claims_of_check(site: Site) -> tuple[int, list[dict[str, str]]]:
    ended = site.command("check", "-o", "json")
    result = json.loads(ended.stdout)["checks"]
    return ended.returncode, [item for item in result if item["check"] == "claims"]


def test_interrupted_lend_is_reported_by_each_command_and_continued_on_demand(
    sandbox: Sandbox, site: Site
) -> None:
    claim(sandbox)
    code, (finding,) = claims_of_check(site)
    assert code == 1 and finding["result"] == "failed"
    assert finding["text"].startswith(
        "a003 is claimed for namespace dev, and no converter continues"
    )
    assert "--set batch --node-name a003" in finding["remedy"]
    planned = site.command("plan")
    assert "resumes as request" in planned.stdout and "a003" in planned.stdout
    run(site)
    calls = [" ".join(call.arguments) for call in sandbox.conversion.calls]
    assert calls.count("--set k8s --node-name a003 --namespace dev") == 2  # one was manual
    for _ in range(6):
        run(site)
    assert "a003" in site.lent() and not site.registry.claimed and not sandbox.violations
    assert site.registry.nodes["a003"].phase is Phase.SERVING
    assert claims_of_check(site)[1][0]["result"] == "ok"


def test_check_does_not_advise_deleting_the_reservation_of_an_adopted_node(
    sandbox: Sandbox, site: Site
) -> None:
    claim(sandbox, finish=True, DNM_INSTANCE="")
    assert site.command("pause").returncode == 0  # so no other conversion starts
    ((finding,), sent) = claims_of_check(site)[1], "Kubernetes has no such Node, delete"
    assert (
        finding["text"].startswith("a003 has a converter's reservation")
        and sent in finding["remedy"]
    )
    sandbox.tick(60)
    adopted = site.command("adopt", "a003", "--namespace", "dev")
    assert adopted.returncode == 0, adopted.stderr
    assert claims_of_check(site)[1][0]["result"] == "ok"


def test_nodes_of_a_converter_without_claims_are_reported(sandbox: Sandbox, site: Site) -> None:
    """A site's own converter, which lists no claims, dies with its host during a lend."""
    sandbox.conversion.reports_claims = False
    converter = site.directory / "node-convert"
    converter.write_text(
        f'#!/bin/sh\n[ "$1" = --list ] && exec {sandbox.node_convert_path} "$@"\n'
        f'{sandbox.node_convert_path} "$@" >/dev/null\n'
        f"while ! [ -e {site.directory}/down ]; do sleep 0.05; done\nkill -9 0\n"
    )
    converter.chmod(0o755)
    text = site.path.read_text().replace(str(sandbox.node_convert_path), str(converter))
    text = text.replace("check_interval_seconds = 60", "check_interval_seconds = 1")
    site.write(site.path, text + "join_timeout_seconds = 1\n")
    sandbox.behave(direction="k8s", stuck=True)
    run(site, 0, 1)
    (request,) = site.registry.requests
    (site.directory / "down").touch()
    while is_alive(request.converter):
        time.sleep(0.05)
    message = run(site, 1)
    assert "died before it had ended" in message and "a001" in message and "--set batch" in message
    assert site.command("pause").returncode == 0  # so no other conversion starts
    time.sleep(1.1)
    run(site, 0, 1)
    run(site, 0, 1)
    claimed = site.registry.claimed
    assert claimed, site.registry
    name = min(claimed)
    assert f"--set batch --node-name {name}" in claimed[name].why
    code, findings = claims_of_check(site)
    assert code == 1 and any(name in finding["text"] for finding in findings)
    assert name in site.command("status").stdout
    forgotten = site.command("forget", name, "--yes")
    assert forgotten.returncode == 0, forgotten.stderr
    assert name not in site.registry.claimed
