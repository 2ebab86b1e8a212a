"""`dnm check`: a healthy site gets ticks, each thing that is broken its own cross and remedy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from dnm.cli.check import find_everything, run_checks
from dnm.cli.check_cluster import permissions
from dnm.cli.findings import CheckResult, Finding
from dnm.config.load import load_config
from dnm.model.registry import LentNode, Phase, Registry, RunRecord
from dnm.run.registry import save_registry
from dnm.sandbox.cluster import Sandbox
from tests.builders import a_config

ROOT = Path(__file__).parents[2]
INI = """[settings]
monitored_namespaces = dev
namespace_queue_paths = map.json
kubeconfig_path = sandbox/kubeconfig
state_dir = state
node_convert_path = sandbox/node-convert
"""
QUEUES = """partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: dev
            resources: {max: {vcore: 80, memory: 320G}}
          - name: parent
            queues:
              - name: leaf
"""


class Site:
    """A directory with everything in order, and what tests break in it."""

    def __init__(self, directory: Path, sandbox: Sandbox) -> None:
        self.directory = directory
        self.sandbox = sandbox
        self.ini = directory / "dnm.ini"
        self.write("dnm.ini", INI)
        self.write("map.json", '{"dev": "root.dev"}')
        self.state = directory / "state"
        self.state.mkdir(mode=0o755)
        sandbox.add_namespace("dev")
        sandbox.add_node("k1")
        sandbox.add_machines(3)
        sandbox.set_queues(QUEUES)
        self.record(Registry())

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(0o644)

    def record(self, registry: Registry) -> None:
        """As a run leaves it that began and ended just now."""
        config = load_config(self.ini, {})
        config.lock_path.touch()
        save_registry(config.converted_nodes_path, registry)
        os.utime(config.converted_nodes_path)

    def findings(self) -> list[Finding]:
        return list(find_everything(self.ini, dict(os.environ)))

    def bad(self) -> list[Finding]:
        """But for the host's own syslog, which a container may not have."""
        return [finding for finding in self.findings()
                if finding.result is not CheckResult.OK and finding.check != "syslog"]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, sandbox: Sandbox) -> Site:
    return Site(tmp_path, sandbox)


def test_a_host_without_syslog_is_well_where_stderr_has_the_log(site: Site) -> None:
    site.write("dnm.ini", INI.replace("[settings]\n", "[settings]\nlog_console = true\n", 1))
    (syslog,) = [finding for finding in site.findings() if finding.check == "syslog"]
    assert syslog.result is CheckResult.OK


def test_a_healthy_site(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.sandbox.add_pods(3, "dev", queue="root.dev", cpu="4", memory="16G")
    assert site.bad() == []
    before = {path: path.stat().st_mtime_ns for path in site.directory.rglob("*")}
    site.sandbox.requests.clear()
    assert run_checks(site.ini, os.environ) == 0
    assert {path: path.stat().st_mtime_ns for path in site.directory.rglob("*")} == before
    writes = {path for _, path in map(_method_and_path, site.sandbox.requests.writes())}
    assert writes <= {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
    lines = capsys.readouterr().out.splitlines()
    assert "fine" in lines[-1]
    assert sum(line.startswith("✓ permission: ") for line in lines) == 11
    assert "✓ batch nodes: 3 of 3 nodes of the type a can be lent now" in lines
    assert "✓ node types: each of the 3 pending pods that count would fit a node" in lines


def _method_and_path(request: object) -> tuple[str, str]:
    return request.method, request.path  # type: ignore[attr-defined]


def test_each_problem_is_one_that_is_wrong(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.write("dnm.ini", INI + "chek_interval_seconds = 1\nmax_converted_nodes = x\n")
    assert run_checks(site.ini, os.environ) == 2
    *_, last_but_one, last = capsys.readouterr().out.splitlines()
    assert last == "2 wrong, 1 not looked at" and str(site.ini) in last_but_one
    site.write("dnm.ini", INI + "[node_convert]\nroll_bck = no\n")
    assert run_checks(site.ini, os.environ) == 1
    assert ", 1 wrong" in capsys.readouterr().out.splitlines()[-1]


def test_json(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    (site.directory / "sandbox" / "node-convert").unlink()
    assert run_checks(site.ini, os.environ, "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"]) == ("dnm.check/1", False)
    assert {
        "check": "converter",
        "result": "failed",
        "text": f"{site.directory}/sandbox/node-convert is missing",
        "remedy": "install it, or set node_convert_path",
    } in document["checks"]


# --- what is broken --------------------------------------------------------------------------


def _say(site: Site, text: str) -> None:
    site.write("dnm.ini", INI + text)


def _lend(site: Site, **changes: object) -> None:
    values: dict[str, object] = {
        "node_type": "a", "namespace": "dev", "queue": "root.dev", "owner": "prod",
        "phase": Phase.SERVING, "since": datetime.now(UTC),
    }  # fmt: skip
    site.record(Registry(nodes={"a001": LentNode(**{**values, **changes})}))  # type: ignore[arg-type]


def _mark_small_node(site: Site) -> None:
    site.sandbox.add_node("a001", cpu="96")
    marks = {"instance": "prod", "node-type": "a", "namespace": "dev", "queue": "root.dev"}
    site.sandbox.edit(
        "nodes", "a001",
        lambda node: node["metadata"].setdefault("annotations", {}).update(
            {f"dynamic-node-manager/{key}": value for key, value in marks.items()}
        ),
    )  # fmt: skip


def _old_lock(site: Site) -> None:
    lock = load_config(site.ini, {}).lock_path
    os.utime(lock, (0, 0))


def _replace_converter(site: Site, script: str) -> None:
    path = site.directory / "sandbox" / "node-convert"
    path.unlink()
    path.write_text(script)
    path.chmod(0o755)


def _gone(path: Path) -> None:
    for child in path.iterdir():
        child.unlink()
    path.rmdir()


BROKEN: list[object] = [
    pytest.param(lambda s: _say(s, "headrom = 1\n"), "configuration", "failed",
                 "did you mean 'headroom'?", 2, id="unknown-key"),
    pytest.param(lambda s: s.ini.chmod(0o666), "configuration", "failed", "chmod go-w", 2,
                 id="ini-of-everybody"),
    pytest.param(lambda s: _gone(s.state), "state directory", "failed", "mkdir -p -m 755", 2,
                 id="no-state-directory"),
    pytest.param(lambda s: s.state.chmod(0o777), "state directory", "failed", "chmod go-w", 2,
                 id="state-of-everybody"),
    pytest.param(lambda s: (s.state / "converted_nodes.json").write_text("{"), "registry", "failed",
                 "can't be trusted", 2, id="registry-cut-off"),
    pytest.param(lambda s: _lend(s, phase=Phase.FAILED, error="it burns"), "registry", "warning",
                 "a001 has failed: it burns", 0, id="failed-node"),
    pytest.param(lambda s: _lend(s, namespace="old"), "registry", "warning",
                 "serves old, which is not monitored", 0, id="namespace-left"),
    pytest.param(lambda s: _lend(s, owner="before"), "registry", "warning",
                 "was lent by the instance before", 0, id="instance-renamed"),
    pytest.param(_old_lock, "last run", "warning", "is the timer on?", 0, id="no-run-for-long"),
    pytest.param(lambda s: s.record(Registry(last_run=RunRecord(exit_code=1, errors=("late",)))),
                 "last run", "warning", "ended with code 1: late", 0, id="last-run-failed"),
    pytest.param(lambda s: (s.directory / "sandbox/node-convert").chmod(0o644), "converter",
                 "failed", "chmod +x", 1, id="converter-not-executable"),
    pytest.param(lambda s: (s.directory / "sandbox/node-convert").chmod(0o777), "converter",
                 "failed", "chmod go-w", 1, id="converter-of-everybody"),
    pytest.param(lambda s: _say(s, "[node_convert]\nroll_bck = no\n"), "converter", "failed",
                 "did you mean 'roll_back'?", 1, id="converter-section"),
    pytest.param(lambda s: _say(s, "[node_convert]\nroll_back = no\n"), "converter", "ok",
                 "[node_convert]", 0, id="converter-section-right"),
    pytest.param(lambda s: _replace_converter(s, "#!/bin/sh\necho no >&2; exit 3\n"),
                 "batch nodes", "failed", "exit 3 no", 1, id="list-fails"),
    pytest.param(lambda s: _say(s, "node_type = q\n"), "batch nodes", "warning",
                 "lists no node of the type q", 0, id="type-without-nodes"),
    pytest.param(lambda s: (s.directory / "sandbox/kubeconfig").unlink(), "kubeconfig", "failed",
                 "there is no such file", 1, id="no-kubeconfig"),
    pytest.param(lambda s: (s.directory / "sandbox/kubeconfig").chmod(0o644), "kubeconfig",
                 "warning", "chmod 600", 0, id="kubeconfig-readable"),
    pytest.param(lambda s: (s.directory / "sandbox/kubeconfig").chmod(0o666), "kubeconfig",
                 "failed", "chmod go-w", 1, id="kubeconfig-of-everybody"),
    pytest.param(lambda s: s.sandbox.server.stop(), "Kubernetes", "failed", "is it up?", 1,
                 id="api-down"),
    pytest.param(lambda s: s.sandbox.set_queues("partitions: ["), "queue document", "failed",
                 "can't be read", 1, id="document-unreadable"),
    pytest.param(lambda s: s.sandbox.set_queues(QUEUES.replace("320G", "320GB")),
                 "queue document", "failed", "line 7", 1, id="quantity-refused"),
    pytest.param(lambda s: s.sandbox.set_queues(
        QUEUES.replace("{max: {", "{guaranteed: {vcore: 90}, max: {")), "queue document", "failed",
                 "YuniKorn would not start with it", 1, id="rule-broken"),
    pytest.param(lambda s: s.sandbox.delete("configmaps", "yunikorn-configs", "yunikorn"),
                 "queue document", "failed", "there is no queues.yaml", 1, id="no-document"),
    pytest.param(lambda s: s.sandbox.set_queues(QUEUES + "---\nmore: true\n"), "queue document",
                 "failed", "several YAML documents", 1, id="document-not-editable"),
    pytest.param(lambda s: s.sandbox.set_queues(QUEUES.replace("vcore: 80", "cpu: 80")),
                 "queue document", "warning", "YuniKorn's name is 'vcore'", 0, id="cpu-for-vcore"),
    pytest.param(lambda s: s.write("map.json", '{"dev": "root.dew"}'), "queue of dev", "failed",
                 "there is no root.dew in the queue document, did you mean 'root.dev'?", 1,
                 id="queue-not-there"),
    pytest.param(lambda s: s.write("map.json", '{"dev": "root.parent"}'), "queue of dev",
                 "warning", "has 1 queues below it", 0, id="queue-is-a-parent"),
    pytest.param(lambda s: s.write("map.json", '{"dev": "root.parent.leaf"}'), "queue of dev",
                 "ok", "without a limit of its own", 0, id="queue-without-limit"),
    pytest.param(_mark_small_node, "nodes", "warning", "brings 96 vcore, not 128 vcore", 0,
                 id="smaller-than-promised"),
    pytest.param(lambda s: s.sandbox.add_pods(2, "dev", queue="root.dev", cpu="200"),
                 "node types", "warning", "2 pending pods of dev (pod-0, pod-1)", 0,
                 id="pods-too-big"),
    pytest.param(lambda s: s.sandbox.add_pods(1, "dev", queue="root.dev",
                                              spec={"nodeSelector": {"disk": "ssd"}}),
                 "node types", "warning", "disk=ssd", 0, id="pods-that-select"),
    pytest.param(lambda s: s.sandbox.add_pods(1, "dev", queue="root.dev",
                                              spec={"schedulingGates": [{"name": "x"}]}),
                 "pods", "warning", "don't count: held back by a scheduling gate", 0, id="gated"),
]  # fmt: skip


@pytest.mark.parametrize(("break_it", "check", "result", "text", "exit_code"), BROKEN)
def test_broken(
    site: Site, break_it: Callable[[Site], object], check: str, result: str, text: str,
    exit_code: int, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    break_it(site)
    assert run_checks(site.ini, os.environ, "json") == exit_code
    document = json.loads(capsys.readouterr().out)
    shown = [" ".join(found.values()) for found in document["checks"]]
    matching = [line for line in shown if line.startswith(f"{check} {result} ") and text in line]
    assert matching, "\n".join(shown)


def test_every_kind_of_pod_that_no_node_helps_is_named(site: Site) -> None:
    for number in range(8):
        site.sandbox.add_pods(1, "dev", queue="root.dev", cpu=str(200 + number))
    found = [finding.text for finding in site.bad() if finding.check == "node types"]
    named = [name for text in found for name in re.findall(r"\((pod-\d+)\)", text)]
    assert sorted(named) == [f"pod-{number}" for number in range(8)], found


def test_what_comes_from_elsewhere_can_not_paint_the_terminal(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    _lend(site, phase=Phase.FAILED, error="it \x1b[31mburns\x07")
    assert run_checks(site.ini, os.environ) == 0
    output = capsys.readouterr().out
    assert "it ?[31mburns?" in output
    assert all(char.isprintable() for char in output.replace("\n", ""))


def test_one_failure_does_not_hide_the_others(site: Site) -> None:
    site.state.chmod(0o777)
    (site.directory / "sandbox" / "node-convert").unlink()
    site.sandbox.set_queues("partitions: [")
    assert {finding.check for finding in site.bad()} >= {
        "state directory", "converter", "batch nodes", "queue document"
    }  # fmt: skip
    assert any(finding.check == "nodes" for finding in site.findings())


# --- permissions -----------------------------------------------------------------------------


def _shown(findings: list[Finding], check: str = "permission") -> dict[str, CheckResult]:
    return {finding.text: finding.result for finding in findings if finding.check == check}


def test_the_role_that_a_site_copies_is_enough(site: Site) -> None:
    documents = list(yaml.safe_load_all((ROOT / "etc" / "rbac.yaml").read_text()))
    site.sandbox.access.restrict_to_manifests(documents)
    assert site.bad() == []


@pytest.mark.parametrize("number", range(len(permissions(a_config()))))
def test_each_permission_is_missed(site: Site, number: int) -> None:
    wanted = permissions(load_config(site.ini, {}))
    granted = {(p.verb, p.resource, p.namespace or "*", p.name) for p in wanted}
    missing = wanted[number]
    granted.discard((missing.verb, missing.resource, missing.namespace or "*", missing.name))
    rules = [
        {"kind": "Role" if namespace != "*" else "ClusterRole",
         "metadata": {"name": "r", "namespace": namespace},
         "rules": [{"apiGroups": [""], "resources": [resource], "verbs": [verb],
                    "resourceNames": [name] if name else []}]}
        for verb, resource, namespace, name in granted
    ]  # fmt: skip
    site.sandbox.access.restrict_to_manifests(rules)
    shown = _shown(site.findings())
    refused = [text for text, result in shown.items() if text.startswith("may not ")]
    assert f"may not {missing.verb} {missing.resource}" in refused[0]
    assert missing.without in refused[0]
    expected = CheckResult.FAILED if missing.is_needed else CheckResult.WARNING
    assert shown[refused[0]] is expected


def test_pods_by_namespace_where_the_cluster_is_forbidden(site: Site) -> None:
    site.write("map.json", '{"dev": "root.dev", "test": "root.dev"}')
    site.write("dnm.ini", INI.replace("= dev\n", "= dev, test\n"))
    wanted = permissions(load_config(site.ini, {}))
    rights = {(one.verb, one.resource, one.namespace or "*") for one in wanted}
    site.sandbox.access.restrict(rights - {("list", "pods", "*")} | {("list", "pods", "dev")})
    shown = _shown(site.findings())
    assert shown["list pods in dev"] is CheckResult.OK
    (alone,) = [text for text in shown if text.startswith("may not list pods: ")]
    assert shown[alone] is CheckResult.FAILED and "no node is ever given back" in alone
    assert shown["may not list pods in test: it gets no nodes"] is CheckResult.FAILED
    pods = _shown(site.findings(), "pods")
    assert pods["0 unfinished ones of the monitored namespaces"] is CheckResult.OK
    assert any(text.startswith("those of test can't be read") for text in pods)


# --- the scheduler's own word ----------------------------------------------------------------


@pytest.fixture
def scheduled(site: Site) -> Site:
    _say(site, f"yunikorn_url = {site.sandbox.url}\n")
    site.sandbox.add_pods(3, "dev", queue="root.dev", cpu="4", memory="16G")
    site.sandbox.tick()
    return site


def test_the_scheduler_agrees(scheduled: Site) -> None:
    assert scheduled.bad() == []
    assert [finding.text for finding in scheduled.findings() if finding.check == "YuniKorn"] == [
        f"{scheduled.sandbox.url} has the document in force",
        "root.dev: in use, pending and limit are what dnm makes of them",
    ]


def test_the_scheduler_counts_otherwise(scheduled: Site) -> None:
    """It keeps the queue that an application began with; the pods' labels name another since."""
    for pod in ("pod-0", "pod-1", "pod-2"):
        scheduled.sandbox.edit("pods", pod, _name_another_queue, "dev")
    assert [finding.text for finding in scheduled.bad()] == [
        "root.dev: it has in use 12 vcore, 48G memory, dnm counts nothing"
    ]


def test_what_dnm_adds_to_a_request_is_no_difference(scheduled: Site) -> None:
    scheduled.sandbox.cordon("k1")
    scheduled.sandbox.add_pods(1, "dev", queue="root.dev", cpu="4", memory="0")
    scheduled.sandbox.tick()
    assert [finding.text for finding in scheduled.bad()] == []


def test_pods_that_are_not_counted_are_the_first_guess(scheduled: Site) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "nothing"}}
    scheduled.sandbox.add_pods(1, "dev", queue="root.dev", cpu="4", spec={"volumes": [volume]})
    scheduled.sandbox.tick()
    found = {finding.check: finding for finding in scheduled.bad()}
    assert "dnm counts nothing" in found["YuniKorn"].text
    assert found["YuniKorn"].remedy.startswith("perhaps 1 pod of those that don't count")
    assert "missing" in found["pods"].text


def _name_another_queue(pod: dict[str, dict[str, dict[str, str]]]) -> None:
    for place in ("labels", "annotations"):
        for key in pod["metadata"].get(place, {}):
            if key.endswith("queue"):
                pod["metadata"][place][key] = "root.parent.leaf"


def test_the_scheduler_has_another_document(scheduled: Site) -> None:
    scheduled.sandbox.set_queues(QUEUES.replace("vcore: 80", "vcore: 90"))
    shown = _shown(scheduled.findings(), "YuniKorn")
    assert any("another document in force" in text for text in shown)
    assert any("its limit is 80 vcore, 320G memory, the document's 90 vcore" in text
               for text in shown)  # fmt: skip


def test_the_scheduler_does_not_answer(site: Site) -> None:
    _say(site, "yunikorn_url = http://127.0.0.1:9\n")
    assert [finding.check for finding in site.bad()] == ["YuniKorn"]
    assert run_checks(site.ini, os.environ, "json") == 1


def test_clock_skew(site: Site) -> None:
    site.sandbox.clock.set(site.sandbox.clock.now() + 3600)
    clock = [finding for finding in site.findings() if finding.check == "clock"]
    assert [finding.result for finding in clock] == [CheckResult.FAILED]
    assert "chronyc" in clock[0].remedy


def test_words_where_the_terminal_has_no_ticks(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open(tmp_path / "out", "w+", encoding="ascii") as out:
        monkeypatch.setattr("sys.stdout", out)
        (site.directory / "sandbox" / "node-convert").unlink()
        assert run_checks(site.ini, os.environ) == 1
        out.seek(0)
        text = out.read()
    assert "FAIL converter: " in text
    assert " -> install it" in text


def test_quota_preemption_is_warned_of(site: Site) -> None:
    """A lowered limit would kill pods that started meanwhile."""
    partition = "  - name: default\n    preemption: {quotapreemptionenabled: true}\n"
    text = QUEUES.replace("  - name: default\n", partition)
    text = text.replace(
        "- name: dev\n", "- name: dev\n            properties: {quota.preemption.delay: 5m}\n"
    )
    site.sandbox.set_queues(text)
    assert any("quota preemption is on" in finding.text for finding in site.bad())
