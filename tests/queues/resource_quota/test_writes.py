"""Tests of writing ResourceQuotas in several namespaces, if the API server refuses some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.queue_edit import QueueOutcome, QueueWants
from dnm.model.workload import WOKEN
from dnm.queues.resource_quota.system import ResourceQuotas
from tests.builders import a_config

NODE = {"cpu": 64_000, "memory": 256 * 2**30, "pods": 110}
NAMES = ("art", "biology", "chemistry")
LABELS = {"app": "x"}
READ = ("resourcequotas", "limitranges", "replicasets", "statefulsets", "jobs")


class Courses:
    """Three namespaces, each with a full quota and a StatefulSet that it refuses. In each, dnm's
    account may patch only the kinds of objects in `patches`."""

    ALL: ClassVar[tuple[str, ...]] = ("resourcequotas", "statefulsets", "jobs")

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.config: Config = a_config(
            namespaces={
                name: NamespacePolicy(
                    name=name, queue=name, node_types=("a",), queue_system="resource_quota"
                )
                for name in NAMES
            },
            kubeconfig_path=sandbox.kubeconfig,
        )
        for name in NAMES:
            sandbox.add_namespace(name)
            # By a request, so that the API server records when a client has written the limits.
            session = KubeClient.connect(self.config).requests.session
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                     "spec": {"hard": {"requests.cpu": "8"}}}  # fmt: skip
            session.write("POST", f"/api/v1/namespaces/{name}/resourcequotas", quota)
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "4"}}}
            template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
            spec = {"replicas": 4, "selector": {"matchLabels": LABELS}, "template": template}
            metadata = {"name": "q", "namespace": name}
            sandbox.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata,
                            "spec": spec, "status": {"replicas": 2}})  # fmt: skip
        self.follow()
        self.allow(dict.fromkeys(NAMES, self.ALL))

    def allow(self, patches: dict[str, tuple[str, ...]]) -> None:
        rules = [("list", resource, "*") for resource in READ]
        rules += [("patch", kind, name) for name, kinds in patches.items() for kind in kinds]
        self.sandbox.access.restrict(rules)

    def cores(self) -> list[str]:
        quotas: list[Any] = [self.sandbox.get("resourcequotas", "q", name) for name in NAMES]
        return [quota["spec"]["hard"]["requests.cpu"] for quota in quotas]

    def have_annotations(self) -> list[bool]:
        owners: list[Any] = [self.sandbox.get("statefulsets", "q", name) for name in NAMES]
        return [WOKEN in (owner["metadata"].get("annotations") or {}) for owner in owners]

    def follow(self) -> None:
        """Plays the quota controller: copies the new limits into the status of each quota."""
        for name in NAMES:
            self.sandbox.edit("resourcequotas", "q", _take_over, name)

    def write(
        self, kube: Any = None, before_write: Callable[[], None] = lambda: None
    ) -> QueueOutcome:
        wants = QueueWants(
            instance_id="prod", nodes={name: {f"{name}-1": NODE} for name in NAMES}, remembered=""
        )
        kube = kube or KubeClient.connect(self.config)
        return ResourceQuotas().write(self.config, kube, wants, None, before_write)


def _take_over(item: Any) -> None:
    item["status"] = {"hard": dict(item["spec"]["hard"]), "used": {"requests.cpu": "8"}}


@pytest.fixture
def courses(sandbox: Sandbox) -> Courses:
    return Courses(sandbox)


def test_refused_write_of_a_quota_does_not_stop_writes(courses: Courses) -> None:
    courses.allow({"biology": courses.ALL, "chemistry": courses.ALL})
    outcome = courses.write()
    assert [*outcome.failed] == ["art"] and "403" in outcome.failed["art"]
    assert {change.queue for change in outcome.edit.changes} == {"biology", "chemistry"}
    assert courses.cores() == ["8", "72", "72"]


class Conflicts:
    """dnm's client, with another client that writes a quota just before dnm's first tries."""

    def __init__(self, client: KubeClient, namespace: str, times: int) -> None:
        self._objects = client.typed_objects
        self.typed_objects = self
        self._namespace, self._times = namespace, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def patch_object(self, kind: str, namespace: str, name: str, patch: Any) -> None:
        if namespace == self._namespace and self._times:
            self._times -= 1
            raise KubeConflict("another client wrote in between")
        self._objects.patch_object(kind, namespace, name, patch)


@pytest.mark.parametrize(("times", "expected"), [(3, ["72"] * 3), (9, ["8", "72", "72"])])
def test_conflicting_writes_of_a_quota_do_not_stop_writes(
    courses: Courses, times: int, expected: list[str]
) -> None:
    kube = Conflicts(KubeClient.connect(courses.config), "art", times)
    outcome = courses.write(kube)
    assert outcome.is_written and [*outcome.failed] == (["art"] if times == 9 else [])
    assert courses.cores() == expected


def test_lease_that_can_not_be_renewed_keeps_the_record_of_earlier_writes(
    courses: Courses,
) -> None:
    calls: list[str] = []

    def renew() -> None:
        calls.append("")
        if len(calls) > 1:
            raise KubeError("can't read the Lease")

    outcome = courses.write(Conflicts(KubeClient.connect(courses.config), "art", 1), renew)
    assert {change.queue for change in outcome.edit.changes} == {"biology", "chemistry"}
    assert [*outcome.failed] == ["art"] and "Lease" in outcome.failed["art"]
    assert courses.cores() == ["8", "72", "72"]


@pytest.fixture
def waiting_courses(courses: Courses) -> Courses:
    courses.write()
    courses.follow()
    courses.config = replace(courses.config, annotate_workloads=True)
    return courses


def test_refused_annotation_in_a_namespace_does_not_stop_annotations(
    waiting_courses: Courses,
) -> None:
    waiting_courses.allow(
        {
            "art": ("resourcequotas",),
            "biology": waiting_courses.ALL,
            "chemistry": waiting_courses.ALL,
        }
    )
    outcome = waiting_courses.write()
    assert waiting_courses.have_annotations() == [False, True, True]
    (note,) = outcome.notes
    assert "cannot wake all StatefulSets of namespace art" in note and "403" in note


def test_workloads_are_read_once_while_a_quota_is_not_ready(waiting_courses: Courses) -> None:
    waiting_courses.sandbox.edit(
        "resourcequotas", "q", lambda item: item["status"].pop("hard"), "art"
    )
    waiting_courses.sandbox.requests.clear()
    waiting_courses.write()
    assert len(waiting_courses.sandbox.requests.lists("statefulsets")) == len(NAMES)


def test_refused_write_with_an_unreadable_result_is_no_change(courses: Courses) -> None:
    courses.allow({"biology": courses.ALL, "chemistry": courses.ALL})
    kube = Unseen(KubeClient.connect(courses.config), "art")
    outcome = courses.write(kube)
    assert {change.queue for change in outcome.edit.changes} == {"biology", "chemistry"}
    assert [*outcome.failed] == ["art"] and not outcome.notes
    assert "art/q" not in str(outcome.edit.record)


class Unseen(Conflicts):
    """dnm's client, to which a quota is unreadable after its first attempt to write it."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        super().__init__(client, namespace, 0)
        self._is_gone = False

    def read_quotas(self, namespace: str) -> Any:
        if namespace == self._namespace and self._is_gone:
            raise KubeError("can't list ResourceQuotas")
        return self._objects.read_quotas(namespace)

    def patch_object(self, kind: str, namespace: str, name: str, patch: Any) -> None:
        self._is_gone |= namespace == self._namespace
        super().patch_object(kind, namespace, name, patch)


def test_quota_that_was_not_tried_is_no_conflict(
    courses: Courses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnm.queues.resource_quota.system._LONGEST_FAILURE", -1.0)
    monkeypatch.setattr("dnm.queues.resource_quota.system._TRIES", 1)
    courses.allow({"biology": courses.ALL, "chemistry": courses.ALL})
    failed = courses.write().failed
    assert [*failed] == list(NAMES) and "403" in failed["art"]
    assert "took too long" in failed["biology"] and "took too long" in failed["chemistry"]
