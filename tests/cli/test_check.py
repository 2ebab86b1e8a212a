"""Tests of `dnm check`: a correct site passes; each fault is a failed check with a remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dnm.checks.findings import CheckResult, doubtful, fine, wrong
from dnm.checks.host import check_syslog, judge_space
from dnm.cli.set_up.check import check, print_findings
from dnm.config.load import load_config
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.model.orders import Keeping
from dnm.model.registry import Registry, RunRecord
from tests.builders import lent_of
from tests.cli.check_site import INI, QUEUES, SIDECAR, CheckedSite, add_settings, ask_the_scheduler
from tests.converter import programs


@pytest.fixture
def site(tmp_path: Path, sandbox: Sandbox) -> CheckedSite:
    return CheckedSite(tmp_path, sandbox)


def test_host_without_syslog_is_fine_if_stderr_has_the_log() -> None:
    (syslog,) = check_syslog({"DNM_LOG_CONSOLE": "1"})
    assert syslog.result is CheckResult.OK


def test_healthy_site_passes_all_checks(
    site: CheckedSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.sandbox.add_pods(3, "dev", queue="root.dev", cpu="4", memory="16G")
    assert site.bad() == []
    before = {path: path.stat().st_mtime_ns for path in site.directory.rglob("*")}
    config_map = site.sandbox.get("configmaps", "yunikorn-configs", "yunikorn")
    site.sandbox.requests.clear()
    assert check(site.ini, wide=True) == 0
    assert {path: path.stat().st_mtime_ns for path in site.directory.rglob("*")} == before
    dry_runs = [("POST", "/apis/coordination.k8s.io/v1/namespaces/dnm/leases"),
                ("PUT", "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs")]  # fmt: skip
    assert sorted(map(_method_and_path, site.sandbox.requests.writes())) == dry_runs
    assert site.sandbox.objects("leases", "dnm") == []
    assert site.sandbox.get("configmaps", "yunikorn-configs", "yunikorn") == config_map
    lines = capsys.readouterr().out.splitlines()
    assert "ok" in lines[-1]
    assert sum(line.startswith("✓ permission: ") for line in lines) == 20
    assert "✓ batch nodes: 3 of 3 nodes of the type a can be lent now" in lines
    assert "✓ node types: 3 pending pods counted, and each would fit a node" in lines
    assert check(site.ini) == 0
    folded = " ".join(capsys.readouterr().out.split())
    assert "✓ ok: configuration, " in folded and "permission (20), " in folded


def test_check_lists_failures_first(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [fine("a", "one"), doubtful("b", check="two"), wrong("c", check="three")]
    print_findings(findings, is_wide=False)
    assert capsys.readouterr().out.splitlines() == [
        "✗ three: c", "! two: b", "✓ ok: one; --wide shows each", "1 ok, 1 with warnings, 1 failed",
    ]  # fmt: skip


def _method_and_path(request: object) -> tuple[str, str]:
    return request.method, request.path  # type: ignore[attr-defined]


def test_each_problem_is_counted_as_a_failure(
    site: CheckedSite, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write("dnm.ini", INI + "chek_interval_seconds = 1\nmax_converted_nodes = x\n")
    assert check(site.ini) == 2
    *_, last_but_one, last = capsys.readouterr().out.splitlines()
    assert last == "2 failed, 1 skipped" and str(site.ini) in last_but_one
    site.write("dnm.ini", INI + "[node_convert]\nmin_idle_second = 4\n")
    assert check(site.ini) == 1
    assert ", 1 failed" in capsys.readouterr().out.splitlines()[-1]


def test_check_prints_json(site: CheckedSite, capsys: pytest.CaptureFixture[str]) -> None:
    (site.directory / "sandbox" / "node-convert").unlink()
    assert check(site.ini, "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["ok"]) == ("dnm.check/1", False)
    assert {
        "check": "converter",
        "result": "failed",
        "text": f"{site.directory}/sandbox/node-convert is missing",
        "remedy": "install it, or set node_convert_path",
    } in document["checks"]


# --- what is broken --------------------------------------------------------------------------

KEPT = Keeping(since=datetime(2026, 3, 2, tzinfo=UTC))


def _lend(site: CheckedSite, **changes: object) -> None:
    values: dict[str, object] = {
        "node_type": "a", "namespace": "dev", "queue": "root.dev", "owner": "prod",
        "phase": Phase.SERVING, "since": datetime.now(UTC),
    }  # fmt: skip
    site.record(Registry(nodes={"a001": lent_of({**values, **changes})}))


def _mark_small_node(site: CheckedSite) -> None:
    site.sandbox.add_node("a001", cpu="96")
    marks = {"instance": "prod", "node-type": "a", "namespace": "dev", "queue": "root.dev"}
    site.sandbox.edit(
        "nodes", "a001",
        lambda node: node["metadata"].setdefault("annotations", {}).update(
            {f"dynamic-node-manager/{key}": value for key, value in marks.items()}
        ),
    )  # fmt: skip


def _old_lock(site: CheckedSite) -> None:
    began = load_config(site.ini, {}).began_path
    os.utime(began, (0, 0))


def _replace_converter(site: CheckedSite, script: str) -> None:
    (site.directory / "sandbox" / "node-convert").unlink()
    programs.script(site.directory / "sandbox", script)


def _remove_tree(path: Path) -> None:
    for child in path.iterdir():
        child.unlink()
    path.rmdir()


def _use_plain_table_converter(site: CheckedSite) -> None:
    """Replaces the site's converter by a script that only prints the table of nodes."""
    add_settings(site, "exclude_nodes = feature never-lend, a001\n")
    rows = "\n".join(f"a00{n} IDLE 5s OK -" for n in (1, 2, 3))
    table = f"NODE STATE IDLE VERDICT REASON\n{rows}\n"
    _replace_converter(site, f"[ \"$2\" ] && exit 2\ncat <<'.'\n{table}.")


BINPACKING = "{type: binpacking}"
PREEMPTING = QUEUES.replace(
    "  - name: default\n",
    "  - name: default\n    preemption: {quotapreemptionenabled: true}\n",
).replace("- name: dev\n", "- name: dev\n            properties: {quota.preemption.delay: 5m}\n")


def _another_document(site: CheckedSite) -> None:
    ask_the_scheduler(site).sandbox.set_queues(QUEUES.replace("vcore: 80", "vcore: 90"))


def _pods(site: CheckedSite, **spec: object) -> None:
    site.sandbox.add_pods(1, "dev", queue="root.dev", cpu="2", memory="1G", spec=spec)


BROKEN: dict[str, tuple[Callable[[CheckedSite], object], str, str, int]] = {
    "unknown key": (lambda s: add_settings(s, "headrom = 1\n"),
        "configuration failed", "did you mean 'headroom'?", 2),
    "ini of everybody": (lambda s: s.ini.chmod(0o666), "configuration failed", "chmod go-w", 2),
    "no state directory": (lambda s: _remove_tree(s.state),
        "state directory failed", "mkdir -p -m 755", 2),
    "state of everybody": (lambda s: s.state.chmod(0o777),
        "state directory failed", "chmod go-w", 2),
    "registry cut off": (lambda s: (s.state / "converted_nodes.json").write_text("{"),
        "registry failed", "can't be used", 2),
    "failed node": (lambda s: _lend(s, phase=Phase.FAILED, error="it burns"),
        "registry warning", "a001 has failed: it burns", 0),
    "namespace left": (lambda s: _lend(s, namespace="old"),
        "registry warning", "serves old, which is not monitored", 0),
    "instance renamed": (lambda s: _lend(s, owner="before"),
        "registry warning", "was lent by the instance before", 0),
    "moved manually": (lambda s: s.record(Registry(manual=("a003",))),
        "manual nodes warning", "a003 was moved to Kubernetes manually and is not recorded", 0),
    "no run for long": (_old_lock, "last run warning", "is the timer on?", 0),
    "last run failed": (
        lambda s: s.record(Registry(last_run=RunRecord(exit_code=1, errors=("late",)))),
        "last run warning", "ended with code 1: late", 0,
    ),
    "converter not executable": (lambda s: (s.directory / "sandbox/node-convert").chmod(0o644),
        "converter failed", "chmod +x", 1),
    "converter of everybody": (lambda s: (s.directory / "sandbox/node-convert").chmod(0o777),
        "converter failed", "chmod go-w", 1),
    "converter section": (lambda s: add_settings(s, "[node_convert]\nmin_idle_second = 4\n"),
        "converter failed", "did you mean 'min_idle_seconds'?", 1),
    "converter section right": (lambda s: add_settings(s, "[node_convert]\nmin_idle_seconds = 4\n"),
        "converter ok", "[node_convert]", 0),
    "list fails": (lambda s: _replace_converter(s, "echo no >&2; exit 3"),
        "batch nodes failed", "exit code 3, no", 1),
    "type without nodes": (lambda s: add_settings(s, "node_type = q\n"),
        "batch nodes warning", "lists no node of the type q", 0),
    "excluded": (lambda s: add_settings(s, "exclude_nodes = a[001-002]\n"),
        "exclusions ok", "2 nodes: a[001-002]", 0),
    "excluded mistyped": (lambda s: add_settings(s, "exclude_nodes = a0001\n"),
        "exclusions warning", "exclude_nodes names a0001, which the converter does not list", 0),
    "excluded mistypes": (lambda s: s.record(Registry(excluded=dict.fromkeys(("a1", "a2"), KEPT))),
        "exclusions warning", "`dnm exclude` names a[1-2], which the converter does not list", 0),
    "held mistyped": (lambda s: s.record(Registry(held=("a0001",), holds={"a0001": KEPT})),
        "exclusions warning", "`dnm exclude` names a0001, which the converter does not list", 0),
    "partition mistyped": (lambda s: add_settings(s, "exclude_nodes = partition bach\n"),
        "exclusions warning", "exclude_nodes names partition bach, which no node has", 0),
    "excluded, and the converter has no option": (_use_plain_table_converter,
        "exclusions warning", "the converter has no option to exclude 3 nodes: dnm calls it", 0),
    "features untold": (_use_plain_table_converter,
        "exclusions warning", "of 3 nodes: these are not lent", 0),
    "no kubeconfig": (lambda s: (s.directory / "sandbox/kubeconfig").unlink(),
        "kubeconfig failed", "there is no such file", 1),
    "kubeconfig readable": (lambda s: (s.directory / "sandbox/kubeconfig").chmod(0o644),
        "kubeconfig warning", "chmod 600", 0),
    "kubeconfig of everybody": (lambda s: (s.directory / "sandbox/kubeconfig").chmod(0o666),
        "kubeconfig failed", "chmod go-w", 1),
    "api down": (lambda s: s.sandbox.server.stop(), "Kubernetes failed", "that it is up", 1),
    "document unreadable": (lambda s: s.sandbox.set_queues("partitions: ["),
        "queue document failed", "can't be read", 1),
    "quantity refused": (lambda s: s.sandbox.set_queues(QUEUES.replace("320G", "320GB")),
        "queue document failed", "line 7", 1),
    "rule broken": (
        lambda s: s.sandbox.set_queues(QUEUES.replace("{max", "{guaranteed: {vcore: 90}, max")),
        "queue document failed", "guaranteed vcore 90 is larger than its max, 80", 1,
    ),
    "no document": (lambda s: s.sandbox.delete("configmaps", "yunikorn-configs", "yunikorn"),
        "queue document failed", "there is no queues.yaml", 1),
    "no namespace for the Lease": (lambda s: s.sandbox.delete("namespaces", "dnm"),
        "lease failed", "create it: kubectl create namespace dnm", 1),
    "document not editable": (lambda s: s.sandbox.set_queues(QUEUES + "---\nmore: true\n"),
        "queue document failed", "several YAML documents", 1),
    "cpu for vcore": (lambda s: s.sandbox.set_queues(QUEUES.replace("vcore: 80", "cpu: 80")),
        "queue document warning", "YuniKorn's name is 'vcore'", 0),
    "queue not there": (lambda s: s.write("map.json", '{"dev": "root.dew"}'),
        "queue of dev failed", "no root.dew in the queue document, did you mean 'root.dev'?", 1),
    "limit not writable": (
        lambda s: s.sandbox.set_queues(QUEUES.replace("vcore: 80", 'vcore: "\\x38\\x30"')),
        "queue of dev failed", "gets no node, since its limit can't grow: line", 1,
    ),
    "queue is a parent": (lambda s: s.write("map.json", '{"dev": "root.parent"}'),
        "queue of dev warning", "has 1 queue below it", 0),
    "queue without limit": (lambda s: s.write("map.json", '{"dev": "root.parent.leaf"}'),
        "queue of dev ok", "without its own limit", 0),
    "smaller than promised": (_mark_small_node,
        "nodes warning", "it has 96 cpu, where type a has 128 cpu", 0),
    "pods too big": (lambda s: s.sandbox.add_pods(2, "dev", queue="root.dev", cpu="200"),
        "node types warning", "2 pending pods of dev (pod-0, pod-1)", 0),
    "pods that select": (
        lambda s: _pods(s, nodeSelector={"disk": "ssd"}),
        "node types warning", "disk=ssd", 0,
    ),
    "gated": (
        lambda s: _pods(s, schedulingGates=[{"name": "x"}]),
        "pods warning", "not counted: held back by a scheduling gate", 0,
    ),
    "the scheduler has another document": (_another_document,
        "YuniKorn failed", "uses another document", 1),
    "its limit is another": (_another_document,
        "YuniKorn warning", "its limit is 80 cpu, 320G memory, the document's 90 cpu", 1),
    "the scheduler does not answer": (
        lambda s: add_settings(s, "yunikorn_url = http://127.0.0.1:9\n"), "YuniKorn failed", "", 1,
    ),
    "quota preemption": (lambda s: s.sandbox.set_queues(PREEMPTING),
        "queue document warning", "quota preemption is on", 0),
    "pods are spread": (lambda s: s.sandbox.set_queues(QUEUES.replace(BINPACKING, "{type: fair}")),
        "queue document warning", "nodesortpolicy is fair", 0),
    "pods are spread by default": (
        lambda s: s.sandbox.set_queues(QUEUES.replace(f"    nodesortpolicy: {BINPACKING}\n", "")),
        "queue document warning", "set nodesortpolicy: {type: binpacking}", 0,
    ),
    "sidecars, and no scheduler asked": (lambda s: _pods(s, initContainers=[SIDECAR]),
        "pods warning", "cannot read the release, and counts them once set yunikorn_url", 0),
    "the clock": (lambda s: s.sandbox.clock.set(s.sandbox.clock.now() + 3600),
        "clock failed", "chronyc", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_site_part_has_its_own_finding_and_remedy(
    site: CheckedSite, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it, content, text, exit_code = BROKEN[name]
    break_it(site)
    assert check(site.ini, "json") == exit_code
    shown = [" ".join(item.values()) for item in json.loads(capsys.readouterr().out)["checks"]]
    matching = [line for line in shown if line.startswith(f"{content} ") and text in line]
    assert matching, "\n".join(shown)


def test_check_output_escapes_foreign_control_characters(
    site: CheckedSite, capsys: pytest.CaptureFixture[str]
) -> None:
    _lend(site, phase=Phase.FAILED, error="it \x1b[31mburns\x07")
    assert check(site.ini) == 0
    output = capsys.readouterr().out
    assert "it ?[31mburns?" in output
    assert all(char.isprintable() for char in output.replace("\n", ""))


def test_failed_check_does_not_hide_other_failures(site: CheckedSite) -> None:
    site.state.chmod(0o777)
    (site.directory / "sandbox" / "node-convert").unlink()
    site.sandbox.set_queues("partitions: [")
    assert {finding.check for finding in site.bad()} >= {
        "state directory", "converter", "batch nodes", "queue document"
    }  # fmt: skip
    assert any(finding.check == "nodes" for finding in site.findings())


def test_check_prints_words_on_a_terminal_without_unicode(
    site: CheckedSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open(tmp_path / "out", "w+", encoding="ascii") as out:
        monkeypatch.setattr("sys.stdout", out)
        (site.directory / "sandbox" / "node-convert").unlink()
        assert check(site.ini) == 1
        out.seek(0)
        text = out.read()
    assert "FAIL converter: " in text
    assert " -> install it" in text


LIMITS = "- {limit: all, users: ['*'], maxresources: {vcore: 8}}"
LIMITED = {
    "users of the queue": ("- name: dev\n", f"- name: dev\n            limits: [{LIMITS[2:]}]\n"),
    "applications": ("- name: dev\n", "- name: dev\n            maxapplications: 2\n"),
    "users of root": ("- name: root\n", f"- name: root\n        limits: [{LIMITS[2:]}]\n"),
    "of the partition": ("- name: default\n", f"- name: default\n    limits: [{LIMITS[2:]}]\n"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_limits_counted_only_by_yunikorn_are_named(site: CheckedSite, name: str) -> None:
    """With yunikorn_url there is no finding: YuniKorn then reports the pods that they hold back."""
    before, after = LIMITED[name]
    site.sandbox.set_queues(QUEUES.replace(before, after, 1))
    shown = [finding for finding in site.findings() if "can't see these limits" in finding.text]
    assert [finding.remedy for finding in shown] == ["set yunikorn_url"], site.findings()
    ask_the_scheduler(site)
    assert not [finding for finding in site.findings() if "can't see these limits" in finding.text]


MIB = 1024 * 1024
DISKS = [  # bytes free, of these for users other than root; all files, free, for other users
    pytest.param((900 * MIB, 900 * MIB, 100, 50, 50), True, CheckResult.OK, id="space"),
    pytest.param((900 * MIB, 900 * MIB, 0, 0, 0), True, CheckResult.OK, id="no-limit-of-files"),
    pytest.param((60 * MIB, 60 * MIB, 100, 50, 50), True, CheckResult.WARNING, id="little"),
    pytest.param((0, 0, 100, 50, 50), True, CheckResult.FAILED, id="full"),
    pytest.param((900 * MIB, 0, 100, 50, 50), False, CheckResult.FAILED, id="reserved-for-root"),
    pytest.param((900 * MIB, 0, 100, 50, 50), True, CheckResult.OK, id="root-has-the-reserve"),
    pytest.param((900 * MIB, 900 * MIB, 100, 0, 0), True, CheckResult.FAILED, id="no-file-left"),
]


@pytest.mark.parametrize(("disk", "is_root", "result"), DISKS)
def test_full_disk_is_a_failed_check(
    disk: tuple[int, int, int, int, int], is_root: bool, result: CheckResult
) -> None:
    free, for_users, *files = disk
    numbers = (4096, 4096, 10**9, free // 4096, for_users // 4096, *files, 0, 255)
    finding = judge_space(Path("/var/lib/x"), os.statvfs_result(numbers), is_root)
    assert finding.result is result
    assert bool(finding.remedy) is (result is not CheckResult.OK)
