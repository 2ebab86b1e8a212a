"""Tests of quotas that count only some pods, and of placeholder pods, over HTTP: which refused pods
request nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.site import LENT
from dnm.model.cluster import RefusedPods
from dnm.model.config import Config, NamespacePolicy
from dnm.model.workload import PLACEHOLDER_PRIORITY, WOKEN
from dnm.queues.resource_quota.objects import QuotaFacts, read_facts
from tests.builders import a_config
from tests.queues.resource_quota.controllers import OWNER, Controllers, stateful_set
from tests.site import Site

POLICY = Path(__file__).parents[3] / "etc" / "admission-policy.yaml"
NODE_TYPE = f"""
[node_type:a]
labels = {LENT}={{namespace}}
taints = {LENT}={{namespace}}:NoSchedule
"""
CLASSES = {"batch": 0, "urgent": 100, "placeholder": -10, "low": -9}


def add_classes(sandbox: Sandbox, default: str = "") -> None:
    for name, value in CLASSES.items():
        sandbox.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                        "metadata": {"name": name}, "value": value,
                        "globalDefault": name == default})  # fmt: skip


def add_quota(
    sandbox: Sandbox, name: str, free_pods: int, scopes: Any = (), terms: Any = ()
) -> None:
    """Adds a quota with free capacity for some more pods of the StatefulSet."""
    hard, used = {"pods": str(10 + free_pods)}, {"pods": "10"}
    spec: dict[str, Any] = {"hard": hard}
    if scopes:
        spec["scopes"] = list(scopes)
    if terms:
        spec["scopeSelector"] = {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}
            for operator, *values in terms
        ]}  # fmt: skip
    sandbox.create({"apiVersion": "v1", "kind": "ResourceQuota",
                    "metadata": {"name": name, "namespace": "dev"}, "spec": spec,
                    "status": {"hard": hard, "used": used}})  # fmt: skip


def add_owner(sandbox: Sandbox, replicas: int, **spec: Any) -> None:
    """Adds a StatefulSet that lacks all its pods. `spec` are fields of its pods."""
    owner = stateful_set(replicas)
    owner["spec"]["template"]["spec"].update(spec)
    sandbox.create(owner)


def read(sandbox: Sandbox) -> QuotaFacts:
    policy = NamespacePolicy(
        name="dev", queue="dev", node_types=("a",), queue_system="resource_quota"
    )
    config: Config = a_config(namespaces={"dev": policy}, kubeconfig_path=sandbox.kubeconfig)
    return read_facts(config, KubeClient.connect(config).typed_objects)


def served(refused: tuple[RefusedPods, ...]) -> int:
    return sum(pods.count for pods in refused if not (pods.is_unhelped or pods.is_invalid))


@pytest.fixture
def cluster(sandbox: Sandbox) -> Sandbox:
    sandbox.add_namespace("dev")
    return sandbox


# --- scopes ------------------------------------------------------------------------------------

# The scopes of a quota with free capacity for two pods, the fields of pods, the default class
# -> the number of pods, of eight, that a larger main quota admits.
COVERED: dict[str, tuple[dict[str, Any], dict[str, Any], str, int]] = {
    "class-in": ({"terms": [("In", "urgent", "low")]}, {"priorityClassName": "low"}, "", 2),
    "class-not-in-the-list": ({"terms": [("In", "low")]}, {"priorityClassName": "batch"}, "", 8),
    "no-class-in-the-list": ({"terms": [("In", "low")]}, {}, "", 8),
    "default-class-in-the-list": ({"terms": [("In", "low")]}, {}, "low", 2),
    "not-in": ({"terms": [("NotIn", "low")]}, {"priorityClassName": "batch"}, "", 2),
    "not-in-without-a-class": ({"terms": [("NotIn", "low")]}, {}, "", 2),
    "excluded-by-not-in": ({"terms": [("NotIn", "low")]}, {"priorityClassName": "low"}, "", 8),
    "class-exists": ({"terms": [("Exists",)]}, {"priorityClassName": "low"}, "", 2),
    "class-does-not-exist": ({"terms": [("DoesNotExist",)]}, {"priorityClassName": "low"}, "", 8),
    "no-class": ({"terms": [("DoesNotExist",)]}, {}, "", 2),
    "scope-of-a-class": ({"scopes": ["PriorityClass"]}, {"priorityClassName": "low"}, "", 2),
    "both-terms": (
        {"terms": [("Exists",), ("NotIn", "low")]}, {"priorityClassName": "low"}, "", 8,
    ),
    "terminating": ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, "", 2),
    "terminating-of-others": ({"scopes": ["Terminating"]}, {}, "", 8),
    "best-effort": ({"scopes": ["BestEffort"]}, {}, "", 8),
    "another-scope": ({"scopes": ["CrossNamespacePodAffinity"]}, {}, "", 8),
}  # fmt: skip


@pytest.mark.parametrize("name", COVERED)
def test_pods_beyond_a_quota_that_no_node_raises_request_no_node(
    cluster: Sandbox, name: str
) -> None:
    scopes, fields, default, expected = COVERED[name]
    add_classes(cluster, default)
    add_quota(cluster, "main", 0)
    add_quota(cluster, "scoped", 2, **scopes)
    add_owner(cluster, 8, **fields)
    assert served(read(cluster).refused) == expected


def test_best_effort_pods_beyond_their_quota_request_no_node(cluster: Sandbox) -> None:
    add_quota(cluster, "main", 0)
    add_quota(cluster, "scoped", 2, scopes=["BestEffort"])
    add_owner(cluster, 8, containers=[{"name": "main", "image": "x"}])
    assert served(read(cluster).refused) == 2


def test_pods_outside_of_the_scope_of_the_main_quota_are_not_charged_to_it(
    cluster: Sandbox,
) -> None:
    """The quota has no free capacity, but counts no pods with a deadline."""
    add_quota(cluster, "main", 0, scopes=["NotTerminating"])
    add_owner(cluster, 8, activeDeadlineSeconds=60)
    (pods,) = read(cluster).refused
    assert pods.count == 8 and pods.retry_until


def test_workloads_share_the_free_capacity_of_a_quota_that_no_node_raises(
    cluster: Sandbox,
) -> None:
    add_classes(cluster)
    add_quota(cluster, "main", 0)
    add_quota(cluster, "scoped", 5, terms=[("Exists",)])
    for number in range(2):
        owner = stateful_set(4)
        owner["metadata"]["name"] = f"job-{number}"
        owner["spec"]["template"]["spec"]["priorityClassName"] = "batch"
        cluster.create(owner)
    assert served(read(cluster).refused) == 5


def test_run_lends_no_node_for_pods_of_a_full_scoped_quota(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    course, site = a_course(sandbox, tmp_path, "urgent")
    add_quota(sandbox, "scoped", 0, terms=[("In", "urgent")])
    assert play(course, site, 3) == []
    assert site.lent() == [] and course.quota["spec"]["hard"] == course.hard
    shown = site.command("explain", "dev").stdout
    assert "30 not counted, of a workload that lent nodes do not help" in " ".join(shown.split())
    shown = site.command("explain", f"dev/{OWNER}").stdout
    assert "30 are refused by a ResourceQuota that counts only some pods" in shown, shown


# --- placeholders ------------------------------------------------------------------------------


def a_course(sandbox: Sandbox, directory: Path, name: str) -> tuple[Controllers, Site]:
    """Returns a StatefulSet of 40 pods of a PriorityClass, with a quota for 10, and its site."""
    for namespace in ("dev", "dnm"):
        sandbox.add_namespace(namespace)
    sandbox.add_machine_type("a", labels={LENT: "dev"}, taints=[
        {"key": LENT, "value": "dev", "effect": "NoSchedule"}])  # fmt: skip
    sandbox.add_machines(4)
    sandbox.add_node("k1", cpu="64", memory="256Gi")
    add_classes(sandbox)
    course = Controllers(sandbox, 40, 10)
    set_class(course, name)
    course.added = {"tolerations": [{"key": LENT, "value": "dev", "effect": "NoSchedule"}]}
    site = Site(sandbox, directory / "site", sections=NODE_TYPE, queue_system="resource_quota",
                wake_workloads="true")  # fmt: skip
    return course, site


def set_class(course: Controllers, name: str) -> None:
    def change(item: Any) -> None:
        item["spec"]["template"]["spec"]["priorityClassName"] = name
        item["metadata"].pop("annotations", None)

    course.sandbox.edit("statefulsets", OWNER, change, "dev")


def play(course: Controllers, site: Site, runs: int) -> list[str]:
    """Plays runs. Returns every error that they report."""
    errors: list[str] = []
    for _ in range(runs):
        result = site.run()
        errors += result.plan.errors
        errors += result.outcome.errors if result.outcome else ()
        site.sandbox.tick(60)
        course.sync()
    return errors


@pytest.mark.parametrize(("name", "is_served"), [("placeholder", False), ("low", True)])
def test_refused_placeholders_request_no_node(
    sandbox: Sandbox, tmp_path: Path, name: str, is_served: bool
) -> None:
    course, site = a_course(sandbox, tmp_path, name)
    assert play(course, site, 5) == []
    assert bool(site.lent()) is is_served
    assert (course.quota["spec"]["hard"] != course.hard) is is_served


def test_admitted_placeholders_keep_no_node(sandbox: Sandbox, tmp_path: Path) -> None:
    """They would take the quota of lent nodes from users' pods."""
    course, site = a_course(sandbox, tmp_path, "low")
    course.is_asleep = True
    sandbox.tick(600)
    for _ in range(10):
        if course.quota["spec"]["hard"] != course.hard:
            break
        assert play(course, site, 1) == []
    assert course.quota["spec"]["hard"] != course.hard
    set_class(course, "placeholder")
    assert play(course, site, 4) == []
    assert WOKEN not in (course.owner["metadata"].get("annotations") or {})
    assert site.lent() == []


def test_unreadable_priority_class_is_no_answer(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dnm does not know whether the refused pods are placeholders. It lends and returns nothing."""
    monkeypatch.setattr("dnm.kube.session._FIRST_PAUSE", 0.01)
    course, site = a_course(sandbox, tmp_path, "low")
    course.scale(10)
    course.sync()
    assert play(course, site, 1) == []
    course.scale(40)
    course.sync()
    sandbox.fault("status", path="priorityclasses", methods=("GET",), code=503)
    errors = play(course, site, 3)
    assert errors and all("priorityclasses" in error and "503" in error for error in errors)
    assert site.lent() == []
    sandbox.faults.clear()
    assert play(course, site, 5) == []
    lent = site.lent()
    assert lent and all(site.pods().values())
    sandbox.fault("status", path="priorityclasses", methods=("GET",), code=503)
    course.is_asleep = True
    course.scale(1)
    set_class(course, "placeholder")
    course.scale(40)
    course.sync()
    assert play(course, site, 10)
    assert site.lent() == lent
    sandbox.faults.clear()
    assert play(course, site, 10) == []
    assert site.lent() == []


def test_pods_of_a_missing_priority_class_are_refused_by_any_quota(cluster: Sandbox) -> None:
    add_quota(cluster, "main", 0)
    add_owner(cluster, 8, priorityClassName="missing")
    (pods,) = read(cluster).refused
    assert pods.is_invalid


@pytest.mark.parametrize(
    ("fields", "terms", "expected"),
    [({}, (), 0), ({}, [("Exists",)], 1), ({"priorityClassName": "low"}, (), 1)],
    ids=["no-class", "quota-of-a-class", "template-with-a-class"],
)
def test_priority_classes_are_read_only_if_they_matter(
    cluster: Sandbox, fields: dict[str, Any], terms: Any, expected: int
) -> None:
    add_classes(cluster)
    add_quota(cluster, "main", 0)
    if terms:
        add_quota(cluster, "scoped", 0, terms=terms)
    add_owner(cluster, 8, **fields)
    cluster.requests.clear()
    read(cluster)
    assert len(cluster.requests.lists("priorityclasses")) == expected


def test_lowest_default_class_counts(cluster: Sandbox) -> None:
    """As in the API server, if two classes are the default."""
    for name, value in (("high", 5), ("least", -10)):
        cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                        "metadata": {"name": name}, "value": value,
                        "globalDefault": True})  # fmt: skip
    add_quota(cluster, "main", 0)
    add_quota(cluster, "scoped", 0, terms=[("In", "high")])
    add_owner(cluster, 8)
    assert served(read(cluster).refused) == 8


def test_policy_and_dnm_have_the_same_limit_of_placeholders() -> None:
    (text,) = re.findall(r"object\.spec\.\?priority\.orValue\(0\) > (-?\d+)", POLICY.read_text())
    assert int(text) == PLACEHOLDER_PRIORITY
