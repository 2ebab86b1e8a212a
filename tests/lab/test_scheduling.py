"""Tests of what the sandbox's schedulers and controllers do to pods, nodes and queues."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Request

QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: top
            resources:
              max: {vcore: 20, memory: 100G}
            queues:
              - name: a
                resources: {max: {vcore: 10}}
              - name: b
              - name: closed
                resources: {max: {vcore: 0, memory: 0}}
              - name: no-cpu
                resources: {max: {vcore: 0, memory: 1G}}
"""


@pytest.fixture
def site(sandbox: Sandbox) -> Sandbox:
    sandbox.set_queues(QUEUES)
    sandbox.add_node("k1", cpu="64", memory="256G")
    return sandbox


def bound(sandbox: Sandbox, namespace: str = "dev") -> dict[str, int]:
    """Returns node -> number of the namespace's pods there; "" stands for pending pods."""
    counts: dict[str, int] = {}
    for pod in sandbox.objects("pods", namespace):
        node = pod["spec"].get("nodeName", "")
        counts[node] = counts.get(node, 0) + 1
    return counts


QUOTAS = [
    pytest.param("root.top.a", 10, id="its own limit"),
    pytest.param("root.top.b", 20, id="the limit above it"),
    pytest.param("root.Top.B", 20, id="paths in any case"),
    pytest.param("root.top.closed", 20, id="zero throughout is no limit"),
    pytest.param("root.top.no-cpu", 0, id="a zero beside another value is one"),
]


@pytest.mark.parametrize(("queue", "running"), QUOTAS)
def test_sandbox_queue_respects_the_limits_of_all_ancestors(
    site: Sandbox, queue: str, running: int
) -> None:
    site.add_pods(30, "dev", queue=queue, cpu="1", memory="1M")
    site.tick()
    assert bound(site).get("k1", 0) == running


def test_raised_limit_starts_waiting_pods(site: Sandbox) -> None:
    site.add_pods(15, "dev", queue="root.top.a")
    site.tick()
    site.set_queues(QUEUES.replace("vcore: 10", "vcore: 12"))
    site.tick()
    assert bound(site) == {"k1": 12, "": 3}
    site.set_queues(QUEUES.replace("vcore: 10", "vcore: 1"))
    site.tick()
    assert bound(site) == {"k1": 12, "": 3}


def test_pod_without_quota_is_not_marked_unschedulable(site: Sandbox) -> None:
    site.add_pods(1, "dev", queue="root.top.a", cpu="11")
    site.tick()
    assert "conditions" not in site.objects("pods", "dev")[0]["status"]


def test_higher_priority_is_scheduled_first(site: Sandbox) -> None:
    site.add_pods(10, "dev", queue="root.top.a", name="low")
    site.add_pods(2, "dev", queue="root.top.a", name="high", spec={"priority": 5})
    site.tick()
    waiting = [p["metadata"]["name"] for p in site.objects("pods") if "nodeName" not in p["spec"]]
    assert waiting == ["low-8", "low-9"]


def test_sandbox_uses_the_queue_of_the_first_pod_of_an_application(site: Sandbox) -> None:
    site.add_pods(1, "dev", queue="root.top.a", name="first")
    site.tick()
    site.add_pods(15, "dev", queue="root.top.b", name="later")
    site.tick()
    assert bound(site) == {"k1": 10, "": 6}


def test_application_is_removed_after_its_last_pod(site: Sandbox) -> None:
    first = site.add_pods(1, "dev", queue="root.top.a")
    site.tick()
    site.finish_pods(first, "dev")
    site.tick(29)
    assert list(site.scheduler.applications) == ["dev-app"]
    site.tick(1)
    assert list(site.scheduler.applications) == []


def test_pods_without_a_queue_are_rejected(site: Sandbox) -> None:
    site.add_pods(1, "dev", queue="root.top.unknown")
    site.tick()
    status = site.objects("pods", "dev")[0]["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "ApplicationRejected")


def test_gang_that_can_never_fit_is_rejected(site: Sandbox) -> None:
    def gang(members: int) -> dict[str, str]:
        groups = [{"name": "w", "minMember": members, "minResource": {"cpu": "2"}}]
        return {"yunikorn.apache.org/task-groups": json.dumps(groups)}

    for name, members in (("fits", 5), ("too-big", 6)):
        site.add_pods(1, name, queue="root.top.a", annotations=gang(members))
    site.tick()
    phases = {pod["metadata"]["namespace"]: pod["status"]["phase"] for pod in site.objects("pods")}
    assert phases == {"fits": "Running", "too-big": "Failed"}
    failed = site.objects("pods", "too-big")[0]["status"]
    assert failed["reason"] == "ApplicationRejected"
    assert "task group request map[pods:6 vcore:12000] larger than max" in failed["message"]


def test_sidecar_counts_twice_before_yunikorn_1_9(site: Sandbox) -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "6"}}}
    site.add_pods(1, "dev", queue="root.top.a", cpu="1", spec={"initContainers": [sidecar]})
    site.yunikorn.version = "1.8.0"
    site.tick()
    assert bound(site) == {"": 1}
    site.yunikorn.version = "1.9.0"
    site.tick()
    assert bound(site) == {"k1": 1}


# --- which node ------------------------------------------------------------------------------


def tolerations(**toleration: str) -> dict[str, Any]:
    return {"tolerations": [toleration]}


# Two nodes: `plain`, and `pool` with label pool=x and taint t=v:NoSchedule. Four pods.
WHERE = [
    pytest.param({}, {"plain": 4}, id="a taint repels"),
    pytest.param(tolerations(key="t", value="v"), {"plain": 2, "pool": 2}, id="tolerated"),
    pytest.param(tolerations(key="t", value="w"), {"plain": 4}, id="another value"),
    pytest.param(tolerations(operator="Exists"), {"plain": 2, "pool": 2}, id="tolerates all"),
    pytest.param(tolerations(key="t", operator="Exists", effect="NoExecute"), {"plain": 4},
                 id="another effect"),
    pytest.param({"nodeSelector": {"pool": "x"}}, {"": 4}, id="selected but not tolerated"),
    pytest.param({"nodeSelector": {"pool": "x"}, **tolerations(key="t", operator="Exists")},
                 {"pool": 4}, id="selected and tolerated"),
    pytest.param({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "no"}}]},
                 {"": 4}, id="a claim that is not there"),
    pytest.param({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                  **tolerations(operator="Exists")}, {"plain": 2, "pool": 2}, id="a bound claim"),
    pytest.param({"schedulingGates": [{"name": "g"}]}, {"": 4}, id="gated"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "where"), WHERE)
@pytest.mark.parametrize("queue", ["root.top.b", ""], ids=["yunikorn", "default-scheduler"])
def test_pods_are_placed_by_their_constraints(
    sandbox: Sandbox, queue: str, spec: dict[str, Any], where: dict[str, int]
) -> None:
    sandbox.set_queues(QUEUES)
    sandbox.add_node("plain")
    taint = {"key": "t", "value": "v", "effect": "NoSchedule"}
    sandbox.add_node("pool", labels={"pool": "x"}, taints=[taint])
    _add_claim(sandbox)
    sandbox.add_pods(4, "dev", queue=queue, spec=spec, labels={"app": "x"})
    sandbox.tick()
    assert bound(sandbox) == where


def _add_claim(sandbox: Sandbox) -> None:
    sandbox.add_namespace("dev")
    sandbox.create({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "dev"}, "spec": {"volumeName": "disk"},
        "status": {"phase": "Bound"},
    })  # fmt: skip


@pytest.mark.parametrize("sort", ["fair", "binpacking"])
def test_nodes_are_filled_by_the_node_sort_policy(sandbox: Sandbox, sort: str) -> None:
    sandbox.set_queues(QUEUES.replace("    queues:", (
        f"    nodesortpolicy: {{type: {sort}}}\n    queues:"), 1))  # fmt: skip
    sandbox.add_node("k1")
    sandbox.add_node("k2")
    sandbox.add_pods(4, "dev", queue="root.top.b")
    sandbox.tick()
    assert bound(sandbox) == ({"k1": 2, "k2": 2} if sort == "fair" else {"k1": 4})


def test_cordoned_and_notready_nodes_get_no_pods(sandbox: Sandbox) -> None:
    for name in ("cordoned", "broken"):
        sandbox.add_node(name)
    sandbox.cordon("cordoned")
    sandbox.set_ready("broken", False)
    sandbox.add_pods(2, "dev")
    sandbox.tick()
    assert bound(sandbox) == {"": 2}
    sandbox.cordon("cordoned", False)
    sandbox.tick()
    assert bound(sandbox) == {"cordoned": 2}
    taints = {n["metadata"]["name"]: n["spec"].get("taints") for n in sandbox.objects("nodes")}
    assert taints["cordoned"] is None
    assert {taint["key"] for taint in taints["broken"]} == {"node.kubernetes.io/not-ready"}


# --- lives of pods ---------------------------------------------------------------------------


def test_pod_starts_runs_and_ends_on_time(site: Sandbox) -> None:
    site.timing.pod_start = 10
    site.add_pods(1, "dev", run_seconds=60)

    def phase() -> tuple[str, str]:
        pod = site.objects("pods", "dev")[0]
        return pod["status"]["phase"], pod["spec"].get("nodeName", "")

    seen = [phase()]
    for seconds in (0, 9, 1, 59, 1):
        site.tick(seconds)
        seen.append(phase())
    assert seen == [
        ("Pending", ""), ("Pending", "k1"), ("Pending", "k1"), ("Running", "k1"), ("Running", "k1"),
        ("Succeeded", "k1"),
    ]  # fmt: skip


def test_pods_outlive_their_node_and_are_not_counted(site: Sandbox) -> None:
    site.timing.orphans = 40
    site.add_pods(2, "dev", queue="root.top.a")
    site.tick()
    assert site.scheduler.used["root.top.a"]["vcore"] == 2000
    site.delete("nodes", "k1")
    site.tick(39)
    assert len(site.objects("pods")) == 2 and site.scheduler.used == {}
    site.tick(1)
    assert site.objects("pods") == []


def test_cordon_taint_appears_with_a_delay(site: Sandbox) -> None:
    site.timing.taint = 2
    site.cordon("k1")
    site.add_pods(1, "dev")
    seen = []
    for seconds in (0, 1, 1):
        site.tick(seconds)
        seen.append("taints" in site.objects("nodes")[0]["spec"])
    assert seen == [False, False, True] and bound(site) == {"": 1}


def test_pods_of_a_dead_node_are_marked_for_deletion_and_stay(site: Sandbox) -> None:
    site.add_pods(1, "dev")
    site.tick()
    site.set_ready("k1", False)
    site.edit("nodes", "k1", lambda node: node["status"]["conditions"][0].update(
        lastTransitionTime=site.clock.stamp()))  # fmt: skip
    site.tick(298)
    assert "deletionTimestamp" not in site.objects("pods")[0]["metadata"]
    site.tick(100)
    assert site.objects("pods")[0]["metadata"]["deletionTimestamp"]


def test_deployment_creates_and_deletes_its_pods(site: Sandbox) -> None:
    pod = manifests.pod_manifest("web", "dev", {"cpu": "1"}, queue="root.top.a")
    site.add_namespace("dev")
    site.create(manifests.deployment_manifest("web", "dev", 12, pod))
    site.tick()
    assert bound(site) == {"k1": 10, "": 2}
    owner = site.objects("pods", "dev")[0]["metadata"]["ownerReferences"][0]
    assert owner["kind"] == "ReplicaSet"
    site.edit("deployments", "web", lambda item: item["spec"].update(replicas=4), "dev")
    site.tick()
    assert bound(site) == {"k1": 4}
    status = site.objects("deployments", "dev")[0]["status"]
    assert (status["replicas"], status["readyReplicas"]) == (4, 4)

    def change_image(item: dict[str, Any]) -> None:
        item["spec"]["template"]["spec"]["containers"][0]["image"] = "other"

    site.edit("deployments", "web", change_image, "dev")
    site.tick()
    images = {p["spec"]["containers"][0]["image"] for p in site.objects("pods", "dev")}
    assert (images, bound(site)) == ({"other"}, {"k1": 4})
    site.delete("deployments", "web", "dev")
    site.tick()
    assert site.objects("pods") == [] and site.objects("replicasets") == []


# --- the queue document ----------------------------------------------------------------------


def put_document(sandbox: Sandbox, text: str) -> tuple[int, str]:
    sandbox.set_queues(QUEUES)
    path = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"
    body = json.dumps({"data": {"queues.yaml": text}}).encode()
    headers = {"content-type": "application/merge-patch+json"}
    answer = sandbox.handle(Request(method="PATCH", path=path, body=body, headers=headers))
    return answer.code, json.loads(answer.body).get("message", "")


INVALID = QUEUES.replace("vcore: 10", "vcore: 21")


def refuse_invalid(sandbox: Sandbox) -> None:
    sandbox.yunikorn.refuses = lambda text: "max resource of parent" if text == INVALID else ""


@pytest.mark.parametrize("text", [INVALID, "a: [", "- a", QUEUES.replace("vcore: 10", "vcore: x")])
def test_validation_webhook_rejects_an_invalid_document(sandbox: Sandbox, text: str) -> None:
    refuse_invalid(sandbox)
    code, message = put_document(sandbox, text)
    assert code == 400
    assert message.startswith('admission webhook "admission-webhook.yunikorn.validate-conf" denied')
    assert sandbox.queues_text() == QUEUES
    assert put_document(sandbox, QUEUES.replace("vcore: 10", "vcore: 20"))[0] == 200


def test_invalid_document_without_the_webhook_is_stored_but_not_used(sandbox: Sandbox) -> None:
    refuse_invalid(sandbox)
    sandbox.set_queues(QUEUES)
    sandbox.yunikorn.has_webhook = False
    sandbox.tick()
    checksum = sandbox.yunikorn.checksum
    assert put_document(sandbox, INVALID)[0] == 200
    sandbox.tick()
    assert sandbox.yunikorn.checksum == checksum


@pytest.mark.parametrize("how", ["slow", "not at all"])
def test_document_may_be_loaded_late_or_never(sandbox: Sandbox, how: str) -> None:
    sandbox.set_queues(QUEUES)
    sandbox.tick()
    before = sandbox.yunikorn.checksum
    if how == "slow":
        sandbox.timing.take_up = 30
    else:
        sandbox.yunikorn.takes_up = False
    sandbox.set_queues(QUEUES.replace("vcore: 10", "vcore: 11"))
    sandbox.tick(29)
    assert sandbox.yunikorn.checksum == before
    sandbox.tick(1)
    assert (sandbox.yunikorn.checksum != before) is (how == "slow")
    sandbox.yunikorn.restart()
    assert sandbox.yunikorn.checksum != before


def rest(sandbox: Sandbox, path: str, **headers: str) -> Any:
    answer = sandbox.handle(Request(method="GET", path=f"/ws/v1/{path}", headers=headers))
    assert answer.code == 200
    return json.loads(answer.body)


def test_sandbox_yunikorn_reports_queues_applications_and_checksum(site: Sandbox) -> None:
    site.add_pods(12, "dev", queue="root.top.a", cpu="1", memory="1G")
    site.tick()
    root = rest(site, "partition/default/queues")
    assert root["maxResource"] == {"vcore": 64_000, "memory": 256 * 10**9, "pods": 110}
    leaf = root["children"][0]["children"][0]
    assert leaf["allocatedResource"] == {"vcore": 10_000, "memory": 10**10, "pods": 10}
    assert leaf["pendingResource"] == {"vcore": 2_000, "memory": 2 * 10**9, "pods": 2}
    assert leaf["maxResource"] == {"vcore": 10_000}
    assert leaf["headroom"]["vcore"] == 0
    (application,) = rest(site, "partition/default/applications/active")
    assert application["queueName"] == "root.top.a"
    uids = {entry["allocationKey"] for entry in application["requests"]}
    waiting = {
        pod["metadata"]["uid"] for pod in site.objects("pods") if "nodeName" not in pod["spec"]
    }
    assert uids == waiting
    result = rest(site, "config", accept="application/json")
    assert result["Checksum"] == site.yunikorn.checksum
