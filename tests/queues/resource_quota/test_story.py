"""A workshop in a namespace with a ResourceQuota, on the sandbox: refused pods get nodes, the quota
grows with these, and is restored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.workload import WOKEN
from tests.cli.test_permissions import roles_without_yunikorn, verbs
from tests.night import sample_by_day
from tests.queues.resource_quota.controllers import OWNER, Controllers
from tests.site import Site

RBAC = Path(__file__).parents[3] / "etc" / "rbac-resource-quota.yaml"


def own_roles() -> list[dict[str, Any]]:
    """Returns the roles of etc/rbac-resource-quota.yaml that each site needs."""
    manifests = yaml.safe_load_all(RBAC.read_text())
    roles = [item for item in manifests if item["kind"] in ("Role", "ClusterRole")]
    return [role for role in roles if not role["metadata"]["name"].endswith("-wake")]


@pytest.fixture
def course(sandbox: Sandbox) -> Controllers:
    """Builds a StatefulSet of 40 pods with a quota for 10, and a permanent node for 16."""
    for name in ("dev", "dnm"):
        sandbox.add_namespace(name)
    sandbox.add_machines(4)
    sandbox.add_node("k1", cpu="64", memory="256Gi")
    sandbox.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": "course"}, "value": 0})  # fmt: skip
    course = Controllers(sandbox, 40, 10)

    def change(item: Any) -> None:
        item["spec"]["template"]["spec"]["priorityClassName"] = "course"

    sandbox.edit("statefulsets", OWNER, change, "dev")
    course.sync()
    return course


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    return make_site(sandbox, tmp_path)


def make_site(sandbox: Sandbox, directory: Path, **more: str) -> Site:
    return Site(sandbox, directory / "site", queue_system="resource_quota", **more)


def play(course: Controllers, site: Site, runs: int) -> Iterator[str]:
    """Plays runs, and yields every error that they report."""
    for _ in range(runs):
        result = site.run()
        yield from result.plan.errors
        yield from result.outcome.errors if result.outcome else ()
        site.sandbox.tick(60)
        course.sync()


def play_until_raised(course: Controllers, site: Site) -> None:
    """Plays runs until dnm has raised the quota by a node. The controller's last try was refused,
    and its next one is ten minutes away."""
    course.is_asleep = True
    site.sandbox.tick(600)
    for _ in range(20):
        assert [*play(course, site, 1)] == []
        if course.quota["spec"]["hard"] != course.hard:
            return
    pytest.fail("dnm did not raise the quota in 20 runs")


def lends(site: Site) -> list[Any]:
    """Returns the calls of the converter that moved nodes to Kubernetes."""
    calls = site.sandbox.conversion.calls
    return [call for call in calls if "--set" in call.arguments and "k8s" in call.arguments]


def test_refused_pods_get_nodes_and_the_quota_is_restored(course: Controllers, site: Site) -> None:
    before = course.quota["spec"], course.quota["metadata"].get("annotations")
    assert [*play(course, site, 6)] == []
    assert len(course.pods()) == 40 and all(site.pods().values())
    assert site.lent() and not site.sandbox.violations
    assert site.plan().plan.actions == ()
    course.scale(0)
    course.sync()
    assert [*play(course, site, 12)] == []
    assert site.lent() == []
    assert (course.quota["spec"], course.quota["metadata"].get("annotations") or None) == before


def test_unused_node_is_kept_until_the_controller_tries_again(
    course: Controllers, site: Site
) -> None:
    """The quota admits the pods, but the controller waits for its next try. Without this rule, dnm
    would return the node after a minute."""
    play_until_raised(course, site)
    assert [*play(course, site, 3)] == []
    assert site.lent() and len(course.pods()) == 10
    answer = site.command("explain", "dev").stdout
    assert "refused before the quota grew" in answer and "next try until" in answer
    assert "30 fit the quota now" in site.command("explain", f"dev/{OWNER}").stdout
    course.is_asleep = False
    assert [*play(course, site, 6)] == []
    assert len(course.pods()) == 40


def test_node_is_returned_if_the_controller_never_creates_the_pods(
    course: Controllers, site: Site
) -> None:
    course.is_asleep = True
    assert [*play(course, site, 60)] == []
    assert site.lent() == []
    before = len(lends(site))
    assert [*play(course, site, 60)] == []
    assert site.lent() == [] and len(lends(site)) == before


def test_manifest_applied_before_every_run_keeps_no_unused_node(
    course: Controllers, site: Site
) -> None:
    """A GitOps controller restores the limits before each run. Once, the quota then looked as if
    pods used all of it, which kept the node."""
    assert [*play(course, site, 5)] == []
    assert site.lent()
    course.scale(0)
    for _ in range(8):
        course.apply()
        course.sync()
        assert [*play(course, site, 1)] == []
    assert site.lent() == []


def test_pods_that_no_quota_admits_request_no_node(course: Controllers, site: Site) -> None:
    """The quota limits memory, so the API server refuses pods without a request for memory."""

    def change(item: Any) -> None:
        item["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].pop("memory")

    course.is_asleep = True
    course.scale(0)
    course.scale(40)
    site.sandbox.edit("statefulsets", OWNER, change, "dev")
    course.sync()
    assert [*play(course, site, 5)] == []
    assert lends(site) == []
    answer = site.command("explain", "dev").stdout
    assert "refused whatever the quota allows" in answer, answer
    answer = site.command("explain", f"dev/{OWNER}").stdout
    assert "40 would be refused by any quota" in answer, answer


def test_workload_without_pods_is_explained(course: Controllers, site: Site) -> None:
    course.is_asleep = True
    answer = site.command("explain", f"dev/{OWNER}")
    assert answer.returncode == 0, answer.stderr
    assert f"workload dev/{OWNER} lacks 30 pods, which the API server has refused" in answer.stdout
    assert "30 exceed the free part of the quota" in answer.stdout
    assert "queue dev:" in answer.stdout
    document = json.loads(site.command("explain", f"dev/{OWNER}", "-o", "json").stdout)
    assert document["kind"] == "workload" and len(document["obstacles"]) == 1
    assert site.command("explain", "dev/nothing").returncode == 2


@pytest.mark.parametrize("wakes", [True, False])
def test_waiting_workload_is_annotated_once(
    course: Controllers, sandbox: Sandbox, tmp_path: Path, wakes: bool
) -> None:
    site = make_site(sandbox, tmp_path, wake_workloads=str(wakes).lower())
    play_until_raised(course, site)
    assert [*play(course, site, 1)] == []
    notes = course.owner["metadata"].get("annotations") or {}
    changed = max(entry["time"] for entry in course.quota["metadata"]["managedFields"])
    assert notes.get(WOKEN) == (changed if wakes else None)
    version = course.owner["metadata"]["generation"], notes
    assert [*play(course, site, 1)] == []
    again = course.owner["metadata"]
    assert (again["generation"], again.get("annotations") or {}) == version
    assert site.lent()


def test_published_roles_are_sufficient(course: Controllers, site: Site) -> None:
    site.sandbox.access.restrict_to_manifests([*roles_without_yunikorn(), *own_roles()])
    assert [*play(course, site, 6)] == []
    course.scale(0)
    course.sync()
    assert [*play(course, site, 10)] == []
    assert site.lent() == []


OWN_VERBS = dict(verbs(own_roles()))


@pytest.mark.parametrize("name", sample_by_day(2, OWN_VERBS))
def test_each_verb_of_the_role_is_needed(course: Controllers, site: Site, name: str) -> None:
    role_number, rule_number, verb = OWN_VERBS[name]
    own = own_roles()
    own[role_number]["rules"][rule_number]["verbs"].remove(verb)
    site.sandbox.access.restrict_to_manifests([*roles_without_yunikorn(), *own])
    errors = [*play(course, site, 5)]
    resource = name.split()[1].split(",")[0]
    assert any("403" in error and resource in error for error in errors), errors


def test_missing_role_for_waking_is_no_error(
    course: Controllers, sandbox: Sandbox, tmp_path: Path
) -> None:
    """Without the permission, dnm cannot make the controller retry at once; it retries later."""
    site = make_site(sandbox, tmp_path, wake_workloads="true")
    sandbox.access.restrict_to_manifests([*roles_without_yunikorn(), *own_roles()])
    play_until_raised(course, site)
    assert WOKEN not in (course.owner["metadata"].get("annotations") or {})
    course.is_asleep = False
    assert [*play(course, site, 5)] == []
    assert len(course.pods()) == 40
