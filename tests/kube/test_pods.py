"""Tests of parsing pods as the API prints them, and of the fields that dnm keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.demand.pod_request import count_rules
from dnm.kube.pods import PodReducer
from dnm.kube.shapes import MOST_CONTAINERS
from dnm.model.pod import (
    LONGEST_GROUP,
    LONGEST_PATH,
    MOST_RESOURCES,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodShape,
    Requirement,
    TaskGroup,
    Toleration,
)
from dnm.queues.namespaces import PodsByNamespace
from dnm.queues.yunikorn.pods import YunikornPods

MI = 2**20
JUPYTER = "hub.jupyter.org/username"


def a_pod(
    metadata: Mapping[str, Any] = {}, spec: Mapping[str, Any] = {}, status: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Returns a pending pod in namespace dev, with one container that requests one CPU."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {"name": "p", "namespace": "dev", "uid": "u1", **metadata},
        "spec": {"containers": containers, **spec},
        "status": {"phase": "Pending", **status},
    }


def owner(kind: str, version: str = "apps/v1", controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": controller}


def reduce_all(*pods: dict[str, Any]) -> PodReducer:
    reducer = PodReducer(YunikornPods())
    reducer.add(json.dumps({"kind": "PodList", "items": list(pods)}).encode())
    return reducer


def reduce_pod(*parts: dict[str, Any]) -> Pod:
    reducer = reduce_all(a_pod(*parts))
    assert reducer.unreadable == {}
    return reducer.pods[0]


# --- fields ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(({"creationTimestamp": "2026-05-01T00:00:00Z"},),
                     {"created": "2026-05-01T00:00:00Z"}, id="created"),
        pytest.param(({"creationTimestamp": None, "labels": None, "annotations": None},
                      {"nodeSelector": None, "tolerations": None, "affinity": None}),
                     {"created": ""}, id="nulls"),
        pytest.param(({"deletionTimestamp": "2026-05-01T00:00:00Z"},),
                     {"is_terminating": True}, id="terminating"),
        pytest.param(({}, {"nodeName": "k1"}), {"node": "k1"}, id="bound"),
        pytest.param(({}, {"schedulerName": "yunikorn"}),
                     {"is_managed": True, "app_id": "yunikorn-dev-autogen"}, id="yunikorn's"),
        pytest.param(({}, {"schedulerName": "Yunikorn"}),
                     {"is_managed": False, "app_id": ""}, id="not yunikorn's"),
        pytest.param(({"ownerReferences": [owner("ReplicaSet", controller=False),
                                           owner("DaemonSet")]},),
                     {"is_daemonset": True}, id="daemon set"),
        pytest.param(({"ownerReferences": [owner("Node", "v1")]},),
                     {"is_daemonset": True}, id="static"),
        pytest.param(({"ownerReferences": [owner("ReplicaSet")]},),
                     {"is_daemonset": False}, id="replica set"),
        pytest.param(({"ownerReferences": [owner("DaemonSet", "apps.example.org/v1")]},),
                     {"is_daemonset": False}, id="of a tenant's own kind"),
        pytest.param(({"ownerReferences": [owner("DaemonSet", controller=False)]},),
                     {"is_daemonset": False}, id="of no controller"),
        pytest.param(({"annotations": {"kubernetes.io/config.mirror": "9f"}},),
                     {"is_mirror": True}, id="mirror pod"),
        pytest.param(({}, {"schedulingGates": [{"name": "g"}]}), {"is_gated": True}, id="gated"),
        pytest.param(
            ({}, {"resourceClaims": [{"name": "g"}]}), {"devices": ("ResourceClaimTemplate ",)},
            id="devices"
        ),
        pytest.param(({}, {"resourceClaims": [{"name": "g", "resourceClaimName": "c"}] * 33}),
                     {"devices": ("ResourceClaimTemplate ",)}, id="more claims than are read"),
        pytest.param(({}, {"resourceClaims": "newer"}), {"devices": ("ResourceClaimTemplate ",)},
                     id="claims of another form"),
        pytest.param(({"labels": {"scheduling.x-k8s.io/pod-group": "g"}},),
                     {"group": "scheduling.x-k8s.io/g"}, id="group of scheduler-plugins"),
        pytest.param(({"annotations": {"scheduling.k8s.io/group-name": "g"}}, {"nodeName": "k1"}),
                     {"group": "scheduling.volcano.sh/g"}, id="group of Volcano"),
        pytest.param(({"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
                      {"schedulingGroup": {"podGroupName": "own"}, "nodeName": "k1"}),
                     {"group": "scheduling.k8s.io/own"}, id="group of Kubernetes' own"),
        pytest.param(({}, {"schedulingGroup": ["newer"]}), {"group": "scheduling.k8s.io/"},
                     id="group of another form"),
        pytest.param(({}, {"schedulingGates": []}), {"is_gated": False}, id="no gate left"),
        pytest.param(({}, {}, {"reason": "ApplicationRejected"}), {"is_rejected": True},
                     id="rejected"),
        pytest.param(({"annotations": {"internal.yunikorn.apache.org/placeholder": "true"}},),
                     {"is_placeholder": True}, id="placeholder"),
        pytest.param(({"annotations": {"yunikorn.apache.org/placeholder": "true"}},),
                     {"is_placeholder": True}, id="placeholder before 1.6"),
        pytest.param(({"labels": {"placeholder": "true"}},),
                     {"is_placeholder": True}, id="placeholder by label"),
        pytest.param(({"annotations": {"yunikorn.apache.org/task-group-name": "g"}},),
                     {"task_group": "g"}, id="member of a gang"),
        pytest.param(({"annotations": {"yunikorn.apache.org/task-groups": json.dumps(
                        [{"name": "g", "minMember": 3, "minResource": {"cpu": "2"}}])}},),
                     {"task_groups": (TaskGroup(name="g", min_member=3,
                                                min_resource={"cpu": 2000, "pods": 1}),)},
                     id="leader of a gang"),
        pytest.param(({}, {"volumes": [
                        {"name": "b", "persistentVolumeClaim": {"claimName": "z"}},
                        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                        {"name": "c", "configMap": {"name": "x"}}]}),
                     {"claims": ("p-scratch", "z")}, id="claims"),
        pytest.param(({}, {"nodeName": "k1", "volumes": [
                        {"name": "b", "persistentVolumeClaim": {"claimName": "z"}}]}),
                     {"claims": ()}, id="claims of a bound pod do not matter"),
    ],
)  # fmt: skip
def test_pod_fields_are_read(parts: tuple[dict[str, Any], ...], expected: dict[str, Any]) -> None:
    pod = reduce_pod(*parts)
    assert {name: getattr(pod, name) for name in expected} == expected


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.mark.parametrize(
    ("parts", "expected"),  # undecided, nominated
    [
        pytest.param(({}, {}, {}), (True, False), id="no verdict yet"),
        pytest.param(({}, {}, {"conditions": [UNSCHEDULABLE]}), (False, False), id="unschedulable"),
        pytest.param(({}, {}, {"conditions": [{**UNSCHEDULABLE, "reason": "SchedulingGated"}]}),
                     (True, False), id="gated"),
        pytest.param(({}, {}, {"conditions": [{**UNSCHEDULABLE, "status": "True"}]}),
                     (True, False), id="scheduled"),
        pytest.param(({}, {}, {"conditions": [UNSCHEDULABLE], "nominatedNodeName": "k1"}),
                     (True, True), id="waits for pods that are evicted for it"),
        pytest.param(({}, {"nodeName": "k1"}, {}), (False, False), id="bound"),
    ],
)  # fmt: skip
def test_pod_without_a_queue_system_waits_for_the_verdict_of_its_scheduler(
    parts: tuple[dict[str, Any], ...], expected: tuple[bool, bool]
) -> None:
    reducer = PodReducer(PodsByNamespace(frozenset({"dev"}), YunikornPods()))
    reducer.add(json.dumps({"items": [a_pod(*parts)]}).encode())
    (pod,) = reducer.pods
    assert (pod.is_undecided, pod.is_nominated) == expected


def test_labels_of_yunikorn_mean_nothing_without_a_queue_system() -> None:
    keys = {
        "queue": "root.b",
        "yunikorn.apache.org/queue": "root.c",
        "yunikorn.apache.org/app-id": "a",
        "placeholder": "true",
        "scheduling.x-k8s.io/pod-group": "g",
    }
    task_groups = json.dumps([{"name": "g", "minMember": 3, "minResource": {"cpu": "2"}}])
    notes = {
        "yunikorn.apache.org/task-groups": task_groups,
        "yunikorn.apache.org/task-group-name": "g",
    }
    pods = [
        a_pod({"labels": keys, "annotations": notes, "name": name, "namespace": namespace})
        for name, namespace in (("own", "dev"), ("other", "test"))
    ]
    reducer = PodReducer(PodsByNamespace(frozenset({"dev"}), YunikornPods()))
    reducer.add(json.dumps({"items": pods}).encode())
    own, other = reducer.pods
    assert (own.is_managed, own.app_id, own.queue) == (True, "dev", "")
    assert (own.group, own.task_groups, own.is_placeholder) == ("scheduling.x-k8s.io/g", (), False)
    assert (other.is_managed, other.queue, other.is_placeholder) == (False, "root.c", True)


@pytest.mark.parametrize(
    ("labels", "annotations", "queue"),
    [
        pytest.param({"yunikorn.apache.org/queue": "root.a", "queue": "root.b"},
                     {"yunikorn.apache.org/queue": "root.c"}, "root.a", id="canonical label"),
        pytest.param({"queue": "root.b"}, {"yunikorn.apache.org/queue": "root.c"}, "root.c",
                     id="annotation"),
        pytest.param({"queue": "root.b"}, {}, "root.b", id="old label"),
        pytest.param({}, {}, "", id="none"),
        *(pytest.param({key: "root.x"}, {key: "root.x"}, "", id=f"another name, {key}")
          for key in ("/", "queue_path", "site/queue")),
    ],
)  # fmt: skip
def test_queue_of_a_pod_is_read_from_labels_and_annotations(
    labels: dict[str, str], annotations: dict[str, str], queue: str
) -> None:
    metadata = {"labels": labels, "annotations": annotations}
    spec = {"schedulerName": "yunikorn"}
    assert reduce_pod(metadata, spec).queue == queue


def test_pods_without_an_application_share_an_application_per_namespace() -> None:
    own = {"yunikorn.apache.org/app-id": "x-uniqueautogen"}
    metadatas: list[dict[str, Any]] = [
        {"name": "a"}, {"name": "b", "namespace": "other"}, {"name": "c", "labels": own},
        {"name": "d", "uid": "u2", "labels": own},
    ]  # fmt: skip
    pods = reduce_all(
        *(a_pod(metadata, {"schedulerName": "yunikorn"}) for metadata in metadatas)
    ).pods
    autogen = ["yunikorn-dev-autogen", "yunikorn-other-autogen"]
    assert [pod.app_id for pod in pods] == [*autogen, "x-u1", "x-u2"]


# --- requests --------------------------------------------------------------------------------


def a_container(name: str = "main", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def a_state(allocated: dict[str, str], requests: dict[str, str], name: str = "main") -> Any:
    return {"name": name, "allocatedResources": allocated, "resources": {"requests": requests}}


RESIZE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("spec", "status", "request_"),
    [
        pytest.param({"containers": [{"name": "main"}]}, {}, {}, id="nothing"),
        pytest.param({"containers": [a_container(cpu="500m", memory="1Mi")]}, {},
                     {"cpu": 500, "memory": MI}, id="one container"),
        pytest.param({"containers": [a_container(cpu="1")],
                      "initContainers": [a_container("i", cpu="4")]}, {},
                     {"cpu": 4000}, id="init container"),
        pytest.param({"containers": [a_container(cpu="1")],
                      "initContainers": [{**a_container("s", cpu="4"), "restartPolicy": "Always"}]},
                     {}, {"cpu": 5000}, id="sidecar"),
        pytest.param({"containers": [a_container(cpu="1")], "overhead": {"cpu": "250m"}}, {},
                     {"cpu": 1250}, id="overhead"),
        pytest.param({"containers": [a_container(cpu="1")],
                      "resources": {"requests": {"cpu": "7"}}}, {}, {"cpu": 7000},
                     id="pod level"),
        pytest.param({"containers": [a_container(cpu="1")]},
                     {"containerStatuses": [a_state({"cpu": "3"}, {"cpu": "2"})]},
                     {"cpu": 3000}, id="more is allocated"),
        pytest.param({"containers": [a_container(cpu="8")]},
                     {"containerStatuses": [a_state({"cpu": "2"}, {"cpu": "2"})],
                      "resize": "Infeasible"}, {"cpu": 2000}, id="more can't be had"),
        pytest.param({"containers": [a_container(cpu="8")]},
                     {"containerStatuses": [a_state({"cpu": "2"}, {"cpu": "2"})],
                      "conditions": RESIZE}, {"cpu": 2000}, id="more can't be had since 1.33"),
        pytest.param({"containers": [a_container(cpu="1")]},
                     {"containerStatuses": [a_state({"cpu": "9"}, {"cpu": "9"}, "other")]},
                     {"cpu": 1000}, id="status of something else"),
        pytest.param({"containers": [a_container(**{"nvidia.com/gpu": "2"})]}, {},
                     {"nvidia.com/gpu": 2}, id="any resource"),
        pytest.param({"containers": []}, {}, {}, id="no container"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("node", ["", "k1"], ids=["pending", "bound"])
def test_pod_request_is_its_effective_request(
    spec: dict[str, Any], status: dict[str, Any], request_: dict[str, int], node: str
) -> None:
    bound = {"nodeName": node} if node else {}
    assert reduce_pod({}, {**spec, **bound}, status).shape.request == {"pods": 1, **request_}


def test_infeasible_resize_of_a_pod_does_not_affect_equal_pods() -> None:
    spec = {"containers": [a_container(cpu="8")]}
    states = [a_state({"cpu": "2"}, {"cpu": "2"})]
    pods = reduce_all(
        a_pod({}, spec, {"containerStatuses": states}),
        a_pod({}, spec, {"containerStatuses": states, "resize": "Infeasible"}),
        a_pod({}, spec, {"containerStatuses": states}),
    ).pods
    assert [pod.shape.request["cpu"] for pod in pods] == [8000, 2000, 8000]


# --- constraints -----------------------------------------------------------------------------

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SELECTOR = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}
CONSTRAINED: dict[str, Any] = {
    "nodeSelector": {"b": "2", "a": "1"},
    "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "z", "operator": "In", "values": ["1", "2"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                    {},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        },
        "podAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": SELECTOR}]},
        "podAntiAffinity": {
            REQUIRED: [
                {"topologyKey": "host", "labelSelector": {}, "namespaces": ["dev"]},
                {"topologyKey": "nobody"},
            ]
        },
    },
    "topologySpreadConstraints": [
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
        {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
    ],
    "containers": [
        {"name": "main", "ports": [{"containerPort": 1, "hostPort": 8080}, {"containerPort": 2}]}
    ],
}


def test_constraints_are_read_of_unbound_pods_only() -> None:
    shape = reduce_pod({"labels": {"x": "1", "app": "a"}}, CONSTRAINED).shape
    assert shape.node_selector == (("a", "1"), ("b", "2"))
    assert shape.tolerations == (
        Toleration(operator="Exists"),
        Toleration(key="k", value="v", effect="NoSchedule"),
    )
    assert shape.node_affinity == (
        NodeSelectorTerm(expressions=(Requirement(key="z", operator="In", values=("1", "2")),)),
        NodeSelectorTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n",)),)),
        NodeSelectorTerm(),
    )
    wanted = (
        Requirement(key="app", operator="In", values=("a",)),
        Requirement(key="k", operator="Exists"),
    )
    assert shape.pod_affinity == (
        PodAffinityTerm(topology_key="zone", anti=False, expressions=wanted),
        PodAffinityTerm(topology_key="host", anti=True, namespaces=("dev",)),
    )
    assert shape.spread_keys == ("zone",)
    assert shape.host_ports == (8080,)
    assert shape.labels == (("app", "a"), ("x", "1"))
    bound = reduce_pod({"labels": {"x": "1"}}, {**CONSTRAINED, "nodeName": "k1"}).shape
    assert bound == PodShape(request={"pods": 1}), "it needs none"


def test_labels_do_not_separate_shapes_without_pod_affinity() -> None:
    preferred: dict[str, Any] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
    }
    pods = reduce_all(
        a_pod({"name": "a", "labels": {"index": "1"}}),
        a_pod({"name": "b", "labels": {"index": "2"}}),
        a_pod({"name": "c", "labels": {"index": "3"}}, {"affinity": preferred}),
    ).pods
    assert len({id(pod.shape) for pod in pods}) == 1


def test_equal_shapes_share_an_object() -> None:
    first = a_pod({}, {"containers": [a_container(cpu="1", memory="1Gi")]})
    second = a_pod({}, {"containers": [a_container(memory="1024Mi", cpu="1000m")]})
    reducer = reduce_all(first)
    reducer.add(json.dumps({"items": [second]}).encode())
    assert reducer.pods[0].shape is reducer.pods[1].shape


def test_page_buffer_may_be_overwritten_after_it_was_added() -> None:
    page = bytearray(json.dumps({"items": [a_pod({"labels": {"queue": "root.a"}})]}).encode())
    reducer = PodReducer(YunikornPods())
    reducer.add(memoryview(page))
    before = str(reducer.pods)
    page[:] = b"x" * len(page)
    assert str(reducer.pods) == before


# --- bad bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"containers": [a_container(cpu="much")]}, "'much' is not", id="no quantity"),
        pytest.param({"containers": [a_container(cpu="-1")]}, "asks for -1000 of cpu",
                     id="minus"),
        pytest.param({"containers": [{"resources": {"requests": [1]}}]}, "Expected", id="a list"),
        pytest.param({"tolerations": [7]}, "Expected", id="a number for a toleration"),
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, "topologyKey",
                     id="no topology"),
        pytest.param({"volumes": [{"persistentVolumeClaim": 1}]}, "Expected", id="no claim"),
        pytest.param({"containers": [a_container(**{"cpu": "\u001b[31m"})]}, "not a Kubernetes",
                     id="escape"),
    ],
)  # fmt: skip
def test_unreadable_pod_makes_its_namespace_unreadable_and_stays(
    spec: dict[str, Any], why: str
) -> None:
    reducer = reduce_all(a_pod({"name": "bad"}, spec), a_pod({"name": "ok", "namespace": "other"}))
    assert [pod.name for pod in reducer.pods] == ["bad", "ok"]
    assert list(reducer.unreadable) == ["dev"]
    assert reducer.unreadable["dev"].startswith("pod bad can't be read: ")
    assert why in reducer.unreadable["dev"]
    assert reducer.unreadable["dev"].isprintable()
    assert reducer.pods[0].shape.request == {"pods": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"nodeName": "a001", "schedulerName": 7}},
        {"status": 7, "spec": {"nodeName": "a001"}},
    ],
    ids=["a field", "its status"],
)
def test_malformed_pod_keeps_its_node_and_leaves_other_namespaces(
    changes: dict[str, Any],
) -> None:
    good = a_pod({"name": "ok", "namespace": "other"}, {"nodeName": "a002"})
    page = json.dumps({"items": [good, {**a_pod({"name": "bad"}), **changes}, good]}).encode()
    reducer = PodReducer(YunikornPods())
    reducer.add(page)
    assert [(pod.name, pod.node) for pod in reducer.pods] == [
        ("ok", "a002"), ("bad", "a001"), ("ok", "a002")
    ]  # fmt: skip
    assert list(reducer.unreadable) == ["dev"] and reducer.pods[1].counts_as_work
    with pytest.raises(msgspec.ValidationError):
        reducer.add(json.dumps({"items": [{"metadata": {"name": "who knows"}}, 5]}).encode())


@pytest.mark.parametrize(
    "text", ['[{"x":' + "[" * 2000, '[{"minresource":' + '{"a":' * 2000], ids=["lists", "maps"]
)
def test_deeply_nested_task_groups_are_ignored(text: str) -> None:
    """A tenant can write such an annotation in a few KiB."""
    bad = a_pod({"name": "bad", "annotations": {"yunikorn.apache.org/task-groups": text}})
    reducer = reduce_all(bad, a_pod({"name": "ok", "namespace": "other"}))
    assert [(pod.name, pod.task_groups) for pod in reducer.pods] == [("bad", ()), ("ok", ())]
    assert not reducer.unreadable


WORDS = st.sampled_from(
    ["metadata", "name", "spec", "status", "containers", "resources", "requests", "cpu", "labels",
     "annotations", "nodeName", "tolerations", "affinity", "volumes", "schedulerName", "yunikorn",
     "containerStatuses", "allocatedResources", "conditions", "1", "", "items", "500m", "queue",
     "yunikorn.apache.org/task-groups", "ownerReferences", "kind", "resize"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(metadata=st.dictionaries(WORDS, JSON), spec=st.dictionaries(WORDS, JSON), status=JSON)
def test_arbitrary_pod_is_a_value_or_a_decode_error(
    metadata: dict[str, Any], spec: dict[str, Any], status: Any
) -> None:
    pod = {"metadata": {"name": "p", **metadata}, "spec": spec, "status": status}
    reducer = PodReducer(YunikornPods())
    try:
        reducer.add(json.dumps({"items": [pod]}).encode())
    except (msgspec.MsgspecError, UnicodeDecodeError):
        assert reducer.pods == []
    else:
        assert len(reducer.pods) == 1


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_page_is_a_value_or_a_decode_error(data: st.DataObject) -> None:
    page = bytearray(json.dumps({"items": [a_pod({}, CONSTRAINED)]}).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        page[data.draw(st.integers(0, len(page) - 1))] = data.draw(st.integers(0, 255))
    reducer = PodReducer(YunikornPods())
    try:
        reducer.add(bytes(page))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        assert reducer.pods == []
    assert all(text.isprintable() for text in reducer.unreadable.values())


# --- what a tenant can make long, many or wide ------------------------------------------------


def asking_for(count: int, **spec: Any) -> dict[str, Any]:
    """Returns a pod spec with `count` invented resources, besides those of Kubernetes."""
    invented = {f"a{number:05}.io/x": "1" for number in range(count)}
    native = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    return {"containers": [{"name": "main", "resources": {"requests": invented | native}}], **spec}


@pytest.mark.parametrize("where", [{}, {"nodeName": "k1"}], ids=["unbound", "bound"])
def test_pod_with_many_resources_is_truncated_when_read(where: dict[str, str]) -> None:
    pod = reduce_pod({}, asking_for(1500, **where))
    assert pod.shape.is_cut and len(pod.shape.request) == MOST_RESOURCES + 1
    assert (pod.shape.request["cpu"], pod.shape.request["memory"]) == (1000, 1024 * MI)
    assert not reduce_pod({}, asking_for(MOST_RESOURCES - 3, **where)).shape.is_cut


def test_ten_thousand_sidecar_resources_are_truncated_before_the_sum() -> None:
    sidecars = [
        {"name": f"s{number}", "restartPolicy": "Always",
         "resources": {"requests": {f"a{number:05}.io/x": "1", "memory": "1Mi"}}}
        for number in range(10_000)
    ]  # fmt: skip
    pod = reduce_pod({}, {"initContainers": sidecars, "nodeName": "k1"})
    assert pod.shape.is_cut and len(pod.shape.request) == MOST_RESOURCES + 1
    assert pod.shape.request["memory"] == 10_000 * MI
    pod = reduce_pod({}, {"initContainers": sidecars})
    assert pod.shape.is_cut and pod.shape.request == {"pods": 1}


def test_pending_pod_with_many_containers_is_not_counted() -> None:
    def of(count: int, **spec: str) -> PodShape:
        request = {"resources": {"requests": {"cpu": "1"}}}
        some = [{"name": f"c{number}", **request} for number in range(count)]
        return reduce_pod({}, {"containers": some, **spec}).shape

    assert of(MOST_CONTAINERS).request["cpu"] == MOST_CONTAINERS * 1000
    assert of(MOST_CONTAINERS + 1).is_cut
    assert of(2000, nodeName="k1").request["cpu"] == 2_000_000


def test_long_pod_annotations_are_not_kept() -> None:
    """Kubernetes accepts 256 KiB of annotations in a pod, and as much of tolerations."""

    def of(number: int) -> dict[str, Any]:
        long = f"{number} " + "z" * 10_000
        notes = {
            "yunikorn.apache.org/app-id": f"a{long}",
            "yunikorn.apache.org/queue": f"root.{long}",
            "yunikorn.apache.org/task-group-name": long,
            "yunikorn.apache.org/task-groups": json.dumps(
                [{"name": long, "minMember": 1, "minResource": {"cpu": "1"}}]
            ),
        }
        tolerations = [{"key": f"k{number}.{key}/{'t' * 100}"} for key in range(90)]
        return a_pod({"annotations": notes}, {
            "schedulerName": "yunikorn", "tolerations": tolerations,
            "containers": [{"name": f"c{item}", "resources": {"requests": {"cpu": f"{number}m"}}}
                           for item in range(90)],
        })  # fmt: skip

    reducer = reduce_all(*(of(number) for number in range(1, 6)), of(3))
    shapes = reducer._shape_cache
    keys = [*reducer._identities, *shapes._requested, *shapes._constrained, *shapes._shapes]
    assert max(len(repr(key)) for key in keys) < 4096
    assert len({id(pod.shape) for pod in reducer.pods}) == 5 and len(reducer._identities) == 5
    assert len(json.dumps(reducer.unreadable)) < 100
    for pod in reducer.pods:
        assert len(pod.queue) == len(pod.app_id) == LONGEST_PATH
        assert pod.task_group == pod.task_groups[0].name
        assert len(pod.task_group) == LONGEST_GROUP


def _affinity(**kind: Any) -> dict[str, Any]:
    return {"affinity": kind}


def _node_terms(count: int, values: int = 1) -> dict[str, Any]:
    entry = {"key": "zone", "operator": "In", "values": [f"v{n}" for n in range(values)]}
    terms = [{"matchExpressions": [entry]}] * count
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return _affinity(nodeAffinity=required)


@pytest.mark.parametrize(
    ("spec", "is_cut"),
    [
        pytest.param({"nodeSelector": {f"k{n}": "v" for n in range(101)}}, True, id="selector"),
        pytest.param({"nodeSelector": {f"k{n}": "v" for n in range(99)}}, False, id="some"),
        pytest.param({"tolerations": [{"key": f"k{n}"} for n in range(101)]}, True,
                     id="tolerations"),
        pytest.param(_node_terms(60), True, id="alternatives"),
        pytest.param(_node_terms(1, 500), False, id="a list of five hundred nodes"),
        pytest.param(_node_terms(1, 5000), True, id="a list of five thousand"),
        pytest.param({"containers": [{"name": "main", "ports": [
                        {"hostPort": n, "containerPort": n} for n in range(1, 102)]}]}, True,
                     id="host ports"),
        pytest.param({"topologySpreadConstraints": [
                        {"topologyKey": f"k{n}", "whenUnsatisfiable": "DoNotSchedule"}
                        for n in range(101)]}, True, id="spread"),
        pytest.param(_affinity(podAntiAffinity={"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": str(n)}}}
                        for n in range(60)]}), True, id="pod affinity"),
        pytest.param({"volumes": [
                        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}}
                        for n in range(101)]}, True, id="claims"),
        pytest.param({"volumes": [
                        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": "home"}}
                        for n in range(500)]}, False, id="one claim in many volumes"),
        pytest.param({"nodeSelector": {"k": "v" * 70_000}}, True, id="bytes"),
    ],
)  # fmt: skip
def test_pod_with_many_rules_is_truncated_when_read(spec: dict[str, Any], is_cut: bool) -> None:
    pod = reduce_pod({}, spec)
    assert pod.shape.is_cut is is_cut
    if is_cut:
        assert count_rules(pod.shape) == 0 and pod.claims == ()
    bound = reduce_pod({}, {**spec, "nodeName": "k1"})
    assert not bound.shape.is_cut, "what is bound is compared with nothing"
