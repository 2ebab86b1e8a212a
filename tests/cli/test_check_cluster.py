"""Tests of `dnm check`: it reports each missing permission, and clocks that differ."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.checks.findings import CheckResult
from dnm.checks.permissions import permissions
from dnm.config.load import load_config
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.store import ApiError
from dnm.model.config import NamespacePolicy
from tests.builders import a_config
from tests.cli.check_site import INI, SIDECAR, CheckedSite, ask_the_scheduler, results_of

ROOT = Path(__file__).parents[2]
TEST_LOAD = ("create", "list", "patch", "delete")


@pytest.fixture
def site(tmp_path: Path, sandbox: Sandbox) -> CheckedSite:
    return CheckedSite(tmp_path, sandbox)


def test_published_role_passes_all_checks(site: CheckedSite) -> None:
    documents = list(yaml.safe_load_all((ROOT / "etc" / "rbac.yaml").read_text()))
    site.sandbox.access.restrict_to_manifests(documents)
    assert site.bad() == []


@pytest.mark.parametrize("number", range(len(permissions(a_config()))))
def test_each_missing_permission_is_reported(site: CheckedSite, number: int) -> None:
    wanted = permissions(load_config(site.ini, {}))
    missing = wanted[number]
    granted = [permission for permission in wanted if permission != missing]
    rules = [
        {"kind": "Role" if needed.namespace else "ClusterRole",
         "metadata": {"name": "r", "namespace": needed.namespace or "*"},
         "rules": [{"apiGroups": [needed.group], "resources": [needed.resource],
                    "verbs": [needed.verb],
                    "resourceNames": [needed.name] if needed.name else []}]}
        for needed in granted
    ]  # fmt: skip
    site.sandbox.access.restrict_to_manifests(rules)
    shown = results_of(site.findings())
    refused = [text for text, result in shown.items() if text.startswith("may not ")]
    assert f"may not {missing.verb} {missing.resource}" in refused[0]
    assert missing.without in refused[0]
    expected = CheckResult.FAILED if missing.is_needed else CheckResult.WARNING
    assert shown[refused[0]] is expected


@pytest.mark.parametrize("system", ["yunikorn", "none", "kueue", "resource_quota"])
def test_each_permission_names_the_role_file_that_grants_it(system: str) -> None:
    policy = NamespacePolicy(name="dev", queue="a8", node_types=("a",), queue_system=system)
    for permission in permissions(a_config(namespaces={"dev": policy}, annotate_workloads=True)):
        documents = yaml.safe_load_all((ROOT / "etc" / permission.role).read_text())
        rules = [rule for document in documents for rule in document.get("rules", ())]
        assert any(
            permission.verb in rule["verbs"]
            and permission.resource in rule["resources"]
            and permission.group in rule["apiGroups"]
            for rule in rules
        ), permission


def test_pods_are_checked_by_namespace_without_cluster_permission(site: CheckedSite) -> None:
    site.write("map.json", '{"dev": "root.dev", "test": "root.dev"}')
    site.write("dnm.ini", INI.replace("= dev\n", "= dev, test\n"))
    wanted = permissions(load_config(site.ini, {}))
    rights = {
        (permission.verb, permission.resource, permission.namespace or "*") for permission in wanted
    }
    site.sandbox.access.restrict(rights - {("list", "pods", "*")} | {("list", "pods", "dev")})
    shown = results_of(site.findings())
    assert shown["list pods in dev"] is CheckResult.OK
    (alone,) = [text for text in shown if text.startswith("may not list pods: ")]
    assert shown[alone] is CheckResult.FAILED and "no node is ever returned" in alone
    assert shown["may not list pods in test: it gets no nodes"] is CheckResult.FAILED
    pods = results_of(site.findings(), "pods")
    assert pods["0 unfinished ones of the monitored namespaces"] is CheckResult.OK
    assert any(text.startswith("those of test can't be read") for text in pods)


@pytest.mark.parametrize(
    ("granted", "result", "text"),
    [
        pytest.param((), CheckResult.SKIPPED, "is not allowed in dev; it is optional; to allow it, "
                     "run 'kubectl create rolebinding dnm-test-load --namespace dev", id="unbound"),
        pytest.param(("list",), CheckResult.SKIPPED, "it is optional", id="list-of-another-role"),
        pytest.param(TEST_LOAD, CheckResult.OK, "dnm test-load in dev", id="bound"),
        pytest.param(("create", "patch"), CheckResult.WARNING, "may not delete, list deployments "
                     "in dev: dnm test-load fails there", id="a-part-of-the-role"),
    ],
)  # fmt: skip
def test_role_of_the_test_load_is_optional(
    site: CheckedSite, granted: tuple[str, ...], result: CheckResult, text: str
) -> None:
    wanted = permissions(load_config(site.ini, {}))
    rights = {
        (permission.verb, permission.resource, permission.namespace or "*") for permission in wanted
    }
    site.sandbox.access.restrict(rights | {(verb, "deployments", "dev") for verb in granted})
    (finding,) = [finding for finding in site.findings() if "test-load" in finding.text]
    assert finding.result is result and text in finding.text


@pytest.mark.parametrize(
    ("code", "message", "expected", "text"),
    [
        (403, 'admission webhook "frozen" denied the request: frozen until Monday',
         CheckResult.FAILED, "frozen until Monday"),
        (400, 'admission webhook "slow" does not support dry run because the webhook configuration '
         "did not specify sideEffects in the webhook config", CheckResult.SKIPPED, "dry run"),
        (409, "the object has been modified", CheckResult.SKIPPED, "another client is writing it"),
    ],
)  # fmt: skip
def test_check_detects_rejected_changes_of_the_queue_document(
    site: CheckedSite, code: int, message: str, expected: CheckResult, text: str
) -> None:
    def refuse(changed: dict[str, Any], old: dict[str, Any] | None) -> None:
        raise ApiError(code, message)

    site.sandbox.admission.webhooks["configmaps"] = refuse
    (reported,) = [finding for finding in site.findings() if text in finding.text]
    assert (reported.check, reported.result) == ("queue document", expected)
    assert bool(reported.remedy) is (expected is CheckResult.FAILED)


def test_each_kind_of_unhelpable_pod_is_named(site: CheckedSite) -> None:
    for number in range(8):
        site.sandbox.add_pods(1, "dev", queue="root.dev", cpu=str(200 + number))
    lines = [finding.text for finding in site.bad() if finding.check == "node types"]
    named = [name for text in lines for name in re.findall(r"\((pod-\d+)\)", text)]
    assert sorted(named) == [f"pod-{number}" for number in range(8)], lines


@pytest.fixture
def scheduled(site: CheckedSite) -> CheckedSite:
    return ask_the_scheduler(site)


def test_check_compares_queues_with_yunikorn(scheduled: CheckedSite) -> None:
    assert scheduled.bad() == []
    assert [finding.text for finding in scheduled.findings() if finding.check == "YuniKorn"] == [
        f"{scheduled.sandbox.url} uses the current document",
        "root.dev: in use, pending and limit are what dnm makes of them",
    ]


def test_check_reports_a_difference_from_yunikorn_counts(scheduled: CheckedSite) -> None:
    """YuniKorn keeps an application in its first queue, although its pods' labels changed later."""
    for pod in ("pod-0", "pod-1", "pod-2"):
        scheduled.sandbox.edit("pods", pod, _name_another_queue, "dev")
    assert [finding.text for finding in scheduled.bad()] == [
        "root.dev: it has in use 12 cpu, 48G memory, dnm counts nothing"
    ]


def test_defaults_added_to_requests_are_no_difference(scheduled: CheckedSite) -> None:
    scheduled.sandbox.cordon("k1")
    scheduled.sandbox.add_pods(1, "dev", queue="root.dev", cpu="4", memory="0")
    scheduled.sandbox.tick()
    assert [finding.text for finding in scheduled.bad()] == []


def test_uncounted_pods_are_suggested_as_the_cause_of_a_difference(scheduled: CheckedSite) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "nothing"}}
    scheduled.sandbox.add_pods(1, "dev", queue="root.dev", cpu="4", spec={"volumes": [volume]})
    scheduled.sandbox.tick()
    results = {finding.check: finding for finding in scheduled.bad()}
    assert "dnm counts nothing" in results["YuniKorn"].text
    assert results["YuniKorn"].remedy.startswith("perhaps 1 pod of those that don't count")
    assert "missing" in results["pods"].text


def _name_another_queue(pod: dict[str, dict[str, dict[str, str]]]) -> None:
    for place in ("labels", "annotations"):
        for key in pod["metadata"].get(place, {}):
            if key.endswith("queue"):
                pod["metadata"][place][key] = "root.parent.leaf"


@pytest.mark.parametrize(
    ("version", "begin"),
    [("1.8.0", "3 pods with sidecars that YuniKorn before 1.9 counts twice"), ("1.9.0", "")],
)
def test_sidecars_that_yunikorn_counts_twice_are_reported(
    scheduled: CheckedSite, version: str, begin: str
) -> None:
    """Checks too that no other finding exists: dnm's sums equal the scheduler's."""
    scheduled.sandbox.yunikorn.version = version
    spec = {"initContainers": [SIDECAR]}
    scheduled.sandbox.add_pods(3, "dev", queue="root.dev", cpu="2", memory="1G", spec=spec)
    scheduled.sandbox.tick()
    lines = [finding.text for finding in scheduled.bad()]
    assert len(lines) == bool(begin) and all(text.startswith(begin) for text in lines), lines
