"""The roles in etc/rbac.yaml permit a whole lend and return, and none of their verbs is
superfluous: without it, the API server refuses some action of dnm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import DnmError
from tests.night import sample_by_day
from tests.site import QUEUE, WORKSHOP_QUEUES, Site, set_up_workshop

RBAC = Path(__file__).parents[2] / "etc" / "rbac.yaml"
NAME = "dynamic-node-manager"


def roles(*parts: str) -> list[dict[str, Any]]:
    """Returns dnm's main roles of etc/rbac.yaml, and its optional ones, such as `-evict`."""
    names = [NAME, f"{NAME}-lease", *(f"{NAME}{part}" for part in parts)]
    return [
        item
        for item in yaml.safe_load_all(RBAC.read_text(encoding="utf-8"))
        if item["kind"] in ("Role", "ClusterRole") and item["metadata"]["name"] in names
    ]


def roles_without_yunikorn() -> list[dict[str, Any]]:
    """Returns the main roles without that for YuniKorn's ConfigMap, as deploy/none has them."""
    return [role for role in roles() if role["metadata"].get("namespace") != "yunikorn"]


def verbs(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[int, int, str]]]:
    for role_number, role in enumerate(manifests):
        for rule_number, rule in enumerate(role["rules"]):
            for verb in rule["verbs"]:
                names = ",".join(rule.get("resourceNames", []))
                label = f"{verb} {','.join(rule['resources'])} {names}".strip()
                yield label, (role_number, rule_number, verb)


ALL_VERBS = dict(verbs(roles()))
FOR_CHANGES = ("watch nodes", "watch pods", "get namespaces kube-system")
VERBS = {name: place for name, place in ALL_VERBS.items() if name not in FOR_CHANGES}
VERBS_WITHOUT_YUNIKORN = {
    name: place for name, place in verbs(roles_without_yunikorn()) if name not in FOR_CHANGES
}


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    set_up_workshop(sandbox, 2)
    add_pods(sandbox, QUEUE)
    return Site(sandbox, tmp_path / "site")


def add_pods(sandbox: Sandbox, queue: str) -> None:
    """Adds eleven pods, one of them with a volume. If `queue` is empty, YuniKorn ignores them."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    sandbox.add_pods(
        1, "dev", queue=queue, cpu="4", memory="16G", name="with-claim", spec={"volumes": [claim]},
        run_seconds=30,
    )  # fmt: skip
    sandbox.add_pods(10, "dev", queue=queue, cpu="4", memory="16G", run_seconds=30)
    for kind, manifest in (("PersistentVolume", {}), ("PersistentVolumeClaim", {"ns": "dev"})):
        sandbox.create(volume_manifest(kind, manifest.get("ns", "")))


def volume_manifest(kind: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": "data", **({"namespace": namespace} if namespace else {})}
    if kind == "PersistentVolume":
        spec: dict[str, Any] = {"claimRef": {"namespace": "dev", "name": "data"}}
    else:
        spec = {"volumeName": "data"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec,
            "status": {"phase": "Bound"}}  # fmt: skip


def errors_of_the_story(sandbox: Sandbox, site: Site, runs: int = 9) -> list[str]:
    """Plays a lend and a return. Returns every error that a run reported."""
    errors: list[str] = []
    for _ in range(runs):
        result = site.run()
        errors += result.plan.errors
        errors += result.outcome.errors if result.outcome else ()
        sandbox.tick(60)
    return errors


def test_published_roles_are_sufficient(sandbox: Sandbox, site: Site) -> None:
    before = sandbox.queues_text()
    sandbox.access.restrict_to_manifests(roles())
    assert errors_of_the_story(sandbox, site) == []
    assert any(action.startswith("action=return") for action in site.registry.last_run.actions)
    assert site.lent() == [] and sandbox.queues_text() == before and not sandbox.violations


@pytest.mark.parametrize("name", sample_by_day(2, VERBS))
def test_each_verb_of_the_roles_is_needed(sandbox: Sandbox, site: Site, name: str) -> None:
    role_number, rule_number, verb = VERBS[name]
    bound = roles()
    bound[role_number]["rules"][rule_number]["verbs"].remove(verb)
    if "yunikorn-defaults" in name:
        sandbox.delete("configmaps", "yunikorn-configs", "yunikorn")
        sandbox.set_queues(WORKSHOP_QUEUES, name="yunikorn-defaults")
    sandbox.access.restrict_to_manifests(bound)
    errors = errors_of_the_story(sandbox, site)
    resource = name.split()[1]
    assert any("403" in error or "forbidden" in error.lower() for error in errors), errors
    assert any(resource in error for error in errors), errors
    assert not sandbox.violations


@pytest.mark.parametrize("name", FOR_CHANGES)
def test_runs_read_lists_without_the_watch_verb_and_report_it(
    sandbox: Sandbox, tmp_path: Path, name: str
) -> None:
    metrics = tmp_path / "dnm.prom"
    settings: dict[str, Any] = {"relist_minutes": 60, "watch_from_pods": 0, "metrics_file": metrics}
    site = Site(sandbox, tmp_path / "site", **settings)
    sandbox.set_queues(WORKSHOP_QUEUES)
    role_number, rule_number, verb = ALL_VERBS[name]
    bound = roles()
    sandbox.access.restrict_to_manifests(bound)

    def reason_of_a_run() -> str:
        sandbox.add_pods(1, "dev", queue=QUEUE, name="more")
        sandbox.add_node(f"n{len(sandbox.objects('nodes'))}")
        site.run()
        result = re.search(r'reading_info{.*reason="([^"]*)"', metrics.read_text())
        assert result is not None
        return result[1]

    assert [reason_of_a_run() for _ in range(3)] == ["first", "", ""]
    bound[role_number]["rules"][rule_number]["verbs"].remove(verb)
    sandbox.access.restrict_to_manifests(bound)
    assert [reason_of_a_run() for _ in range(2)] == ["forbidden", "forbidden"]


STATE_VERBS = {
    f"{verb} {rule['resources'][0]}": (number, verb)
    for number, rule in enumerate(roles("-state")[-1]["rules"])
    for verb in rule["verbs"]
}


@pytest.fixture
def in_kubernetes(sandbox: Sandbox, site: Site, tmp_path: Path) -> Site:
    sandbox.add_namespace("dnm")
    return Site(sandbox, tmp_path / "shared", registry="kubernetes")


def test_published_roles_are_sufficient_for_a_registry_in_kubernetes(
    sandbox: Sandbox, in_kubernetes: Site
) -> None:
    sandbox.access.restrict_to_manifests(roles("-state"))
    assert errors_of_the_story(sandbox, in_kubernetes) == []
    assert in_kubernetes.lent() == [] and not sandbox.violations


@pytest.mark.parametrize("name", STATE_VERBS)
def test_each_verb_for_a_registry_in_kubernetes_is_needed(
    sandbox: Sandbox, in_kubernetes: Site, name: str
) -> None:
    """Without the verb, a run stops before it changes or starts anything."""
    number, verb = STATE_VERBS[name]
    bound = roles("-state")
    bound[-1]["rules"][number]["verbs"].remove(verb)
    sandbox.access.restrict_to_manifests(bound)
    before = len(sandbox.conversion.calls)
    with pytest.raises(DnmError, match=rf"403 .*permission to {name}"):
        for _ in range(4):
            in_kubernetes.run()
            sandbox.tick(60)
    begun = [call for call in sandbox.conversion.calls[before:] if "--set" in call.arguments]
    assert begun == [] and not sandbox.violations


# --- without a queue system --------------------------------------------------------------------


@pytest.fixture
def unmanaged(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Returns a site without a queue system."""
    sandbox.add_namespace("dnm")
    sandbox.add_machines(2)
    add_pods(sandbox, "")
    return Site(sandbox, tmp_path / "unmanaged", queue_system="none")


def errors_without_queue_system(sandbox: Sandbox, site: Site) -> list[str]:
    """Plays a lend and a return; kube-scheduler marks unschedulable pods. Returns all errors."""
    errors: list[str] = []
    for _ in range(9):
        for pod in sandbox.objects("pods", "dev"):
            if not pod["spec"].get("nodeName"):
                sandbox.edit("pods", pod["metadata"]["name"], report_unschedulable, "dev")
        errors += errors_of_the_story(sandbox, site, 1)
    return errors


def report_unschedulable(pod: dict[str, Any]) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"]["conditions"] = [condition]


def test_published_roles_are_sufficient_without_a_queue_system(
    sandbox: Sandbox, unmanaged: Site
) -> None:
    sandbox.access.restrict_to_manifests(roles_without_yunikorn())
    assert errors_without_queue_system(sandbox, unmanaged) == []
    assert any(action.startswith("action=return") for action in unmanaged.registry.last_run.actions)
    assert unmanaged.lent() == [] and not sandbox.violations


@pytest.mark.parametrize("name", sample_by_day(2, VERBS_WITHOUT_YUNIKORN))
def test_each_verb_of_the_roles_is_needed_without_a_queue_system(
    sandbox: Sandbox, unmanaged: Site, name: str
) -> None:
    role_number, rule_number, verb = VERBS_WITHOUT_YUNIKORN[name]
    bound = roles_without_yunikorn()
    bound[role_number]["rules"][rule_number]["verbs"].remove(verb)
    sandbox.access.restrict_to_manifests(bound)
    errors = errors_without_queue_system(sandbox, unmanaged)
    resource = name.split()[1]
    assert any("403" in error and resource in error for error in errors), errors
    assert not sandbox.violations
