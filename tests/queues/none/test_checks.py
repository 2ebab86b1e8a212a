"""`dnm check` for namespaces without a queue system."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from dnm.checks.findings import CheckResult, Finding
from dnm.checks.host import find_everything
from dnm.checks.queue_checks import check_other_systems
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.site import LENT, add_workshop, build_site
from tests.site import WORKSHOP_QUEUES, Site

TAINTS = f"taints = {LENT}={{namespace}}:NoSchedule\n"
LABELS = f"labels = {LENT}={{namespace}}\n"
FIXED = f"labels = {LENT}=workshop\ntaints = {LENT}=workshop:NoExecute\n"


def findings(sandbox: Sandbox, directory: Path, node_type: str, **settings: str) -> list[Finding]:
    build_site(sandbox, 3, "none")
    site = Site(
        sandbox, directory / "site", sections=f"[node_type:a]\n{node_type}",
        queue_system="none", **settings,
    )  # fmt: skip
    site.run()
    return list(find_everything(site.path, dict(os.environ)))


def of_queues(shown: list[Finding]) -> list[Finding]:
    return [finding for finding in shown if finding.check.startswith("queue")]


@pytest.mark.parametrize(
    ("node_type", "namespaces"),
    [
        pytest.param(LABELS + TAINTS, "dev, notebook", id="of-each-namespace"),
        pytest.param(FIXED, "dev", id="of-the-only-namespace"),
    ],
)
def test_node_type_that_keeps_other_pods_away_passes(
    sandbox: Sandbox, tmp_path: Path, node_type: str, namespaces: str
) -> None:
    shown = of_queues(findings(sandbox, tmp_path, node_type, monitored_namespaces=namespaces))
    assert len(shown) == 1 + len(namespaces.split(","))
    assert {finding.result for finding in shown} == {CheckResult.OK}


@pytest.mark.parametrize(
    ("node_type", "namespaces", "missing"),
    [
        pytest.param(LABELS, "dev", ["taint"], id="no-taint"),
        pytest.param(TAINTS, "dev", ["label"], id="no-label"),
        pytest.param("", "dev", ["taint", "label"], id="neither"),
        pytest.param(FIXED, "dev, notebook", ["taint", "label"] * 2, id="same-for-two-namespaces"),
        pytest.param(LABELS + TAINTS.replace("NoSchedule", "PreferNoSchedule"), "dev", ["taint"],
                     id="taint-that-only-prefers"),
    ],
)  # fmt: skip
def test_node_type_that_lets_other_pods_in_fails(
    sandbox: Sandbox, tmp_path: Path, node_type: str, namespaces: str, missing: list[str]
) -> None:
    shown = findings(sandbox, tmp_path, node_type, monitored_namespaces=namespaces)
    failed = [item for item in of_queues(shown) if item.result is CheckResult.FAILED]
    assert [item.text.split(" has no ")[1].split()[0] for item in failed] == missing
    assert all(item.remedy.startswith("write ") for item in failed)


def test_yunikorn_beside_namespaces_without_queue_system_is_noticed(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.set_queues(WORKSHOP_QUEUES)
    shown = findings(sandbox, tmp_path, LABELS + TAINTS)
    warned = [item for item in of_queues(shown) if item.result is CheckResult.WARNING]
    assert [item.check for item in warned] == ["queue system"]
    assert "set queue_system" in warned[0].remedy


@pytest.mark.parametrize(
    ("configured", "has_document", "has_quota", "remedies"),
    [
        ("none", False, False, []),
        ("none", True, False, ["set queue_system = yunikorn"]),
        ("none", False, True, ["set queue_system = resource_quota"]),
        ("yunikorn", True, True, []),
        ("yunikorn", False, True, ["set queue_system = resource_quota"]),
        ("yunikorn", False, False, ["set queue_system = none"]),
        ("resource_quota", True, False, ["set queue_system = yunikorn"]),
    ],
)
def test_check_compares_the_queue_system_with_the_cluster(
    sandbox: Sandbox,
    tmp_path: Path,
    configured: str,
    has_document: bool,
    has_quota: bool,
    remedies: list[str],
) -> None:
    sandbox.add_namespace("dev")
    if has_document:
        sandbox.set_queues(WORKSHOP_QUEUES)
    if has_quota:
        quota = {"metadata": {"name": "main", "namespace": "dev"},
                 "spec": {"hard": {"requests.cpu": "10"}}}  # fmt: skip
        sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    site = Site(sandbox, tmp_path / "site", queue_system=configured)
    with closing(KubeClient.connect(site.config)) as kube:
        shown = list(check_other_systems(site.config, kube))
    assert [item.result for item in shown] == [CheckResult.WARNING] * len(remedies)
    for finding, remedy in zip(shown, remedies, strict=True):
        assert remedy in finding.remedy


def test_unreadable_queue_systems_are_not_reported_as_absent(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.add_namespace("dev")
    site = Site(sandbox, tmp_path / "site", queue_system="yunikorn")
    sandbox.access.restrict(set())
    with closing(KubeClient.connect(site.config)) as kube:
        remedies = [item.remedy for item in check_other_systems(site.config, kube)]
    assert not [remedy for remedy in remedies if "queue_system = none" in remedy]


def test_no_permission_for_limits_is_needed(sandbox: Sandbox, tmp_path: Path) -> None:
    shown = findings(sandbox, tmp_path, LABELS + TAINTS)
    asked = [finding.text for finding in shown if finding.check == "permission"]
    assert asked and not [text for text in asked if "configmaps" in text]


def test_missing_namespace_of_the_lease_is_named_with_the_next_step(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    build_site(sandbox, 3, "none")
    sandbox.delete("namespaces", "dnm", namespace="")
    site = Site(
        sandbox, tmp_path / "site", sections=f"[node_type:a]\n{LABELS}{TAINTS}", queue_system="none"
    )
    add_workshop(sandbox, queue_system="none")
    sandbox.tick(1)
    outcome = site.process("run")
    assert outcome.returncode == 1
    assert "create it: kubectl create namespace dnm" in outcome.stderr


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(WORKSHOP_QUEUES, id="readable"),
        pytest.param("partitions: 7\n", id="invalid"),
        pytest.param("", id="empty"),
    ],
)
def test_pods_without_a_queue_system_are_checked_beside_unreadable_limits(
    sandbox: Sandbox, tmp_path: Path, document: str
) -> None:
    """Once, unreadable limits of YuniKorn hid findings about pods of other namespaces."""
    build_site(sandbox, 3, "none")
    sandbox.set_queues(document)
    site = Site(
        sandbox, tmp_path / "site", monitored_namespaces="dev, notebook",
        sections=f"[node_type:a]\n{LABELS}{TAINTS}\n[namespace:notebook]\nqueue_system = none\n",
    )  # fmt: skip
    sandbox.add_pods(1, "notebook", cpu="4", memory="16G")
    sandbox.tick(60)
    shown = list(find_everything(site.path, dict(os.environ)))
    is_unreadable = any(
        item.check == "queue document" and item.result is CheckResult.FAILED for item in shown
    )
    assert is_unreadable is (document != WORKSHOP_QUEUES)
    pods = [item.text for item in shown if "pending pod of notebook" in item.text]
    assert len(pods) == 1 and "does not tolerate the taint" in pods[0]


def test_commands_of_the_queue_document_name_the_queue_system(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    build_site(sandbox, 3, "none")
    site = Site(sandbox, tmp_path / "site", queue_system="none")
    outcome = site.command("queues", "show")
    assert outcome.returncode == 1
    assert "no monitored namespace has a queue in YuniKorn (queue_system = none)" in outcome.stderr
