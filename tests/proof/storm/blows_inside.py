"""The faults that come from inside the cluster: from pods of tenants, and from kubelets."""

from __future__ import annotations

import http.client
import json
import random
from typing import Any
from urllib.parse import urlsplit

from tests.proof.storm.blows import fault, pick
from tests.proof.storm.world import DEV, LAB, PERMANENT, World

MARK = "dynamic-node-manager/"
GANG = "yunikorn.apache.org/task-groups"

# --- tenants -----------------------------------------------------------------------------------


@fault(20)
def add_ordinary_pods(world: World, rng: random.Random) -> str:
    """Adds pods of a usual size; some end by themselves."""
    namespace, count = rng.choice(("dev", "dev", "lab")), rng.choice((1, 2, 4, 8))
    cpu, memory = rng.choice((("4", "16G"), ("16", "32G"), ("100", "200G"), ("0.5", "1G")))
    seconds = rng.choice((1.0, 2.0, 4.0, 8.0, None))
    world.add_pods(rng, namespace, count, cpu=cpu, memory=memory, run_seconds=seconds)
    return f"{count} of {cpu} in {namespace} for {seconds} s"


@fault(6)
def pods_go(world: World, rng: random.Random) -> str:
    share = rng.choice((0.3, 0.7, 1.0))
    removed = 0
    for pod in world.tenant_pods():
        if rng.random() < share:
            world.sandbox.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
            removed += 1
    return str(removed)


@fault(3)
def malformed_pods(world: World, rng: random.Random) -> str:
    """Adds pods with amounts, annotations, labels and names that a tenant may write."""
    group = {"name": "g", "minMember": 2_000_000_000, "minResource": {"cpu": "1", "memory": "1G"}}
    malformed: dict[str, Any] = rng.choice((
        {"annotations": {GANG: json.dumps([group])}},
        {"annotations": {GANG: json.dumps([{**group, "minMember": -5}])}},
        {"annotations": {GANG: json.dumps([{**group, "minResource": {"cpu": "9" * 4000}}])}},
        {"annotations": {GANG: "[[[[" * 2000}}, {"annotations": {GANG: "null"}},
        {"annotations": {GANG: json.dumps([{**group, "name": f"g{n}", "minMember": 3}
                                           for n in range(500)])}},
        {"annotations": {"x": "\u202e\x1b[31m" * 500, "yunikorn.apache.org/queue": LAB}},
        {"labels": {"yunikorn.apache.org/queue": "root.site.nosuch"}},
        {"labels": {"queue": "root.site.lab", "applicationId": "a" * 63}},
        {"cpu": "9999"}, {"cpu": "9223372036854775807"}, {"memory": "9E"}, {"cpu": "1n"},
        {"spec": {"nodeSelector": {"nosuch": "true"}}}, {"spec": {"priority": 2_000_000_000}},
        {"spec": {"schedulingGates": [{"name": "wait"}]}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"nodeName": "k001"}}, {"spec": {"overhead": {"cpu": "50", "memory": "1G"}}},
        {"more": {"nvidia.com/gpu": "8"}}, {"more": {"example.org/x": "1"}},
    ))  # fmt: skip
    count = rng.choice((1, 1, 3, 10))
    world.add_pods(rng, rng.choice(("dev", "lab")), count, **malformed)
    return f"{count} of {json.dumps(malformed)[:80]}"


@fault(1)
def large_pods(world: World, rng: random.Random) -> str:
    size, count = rng.choice((10_000, 300_000, 1_400_000)), rng.choice((1, 2, 6))
    args = {"name": "main", "image": "busybox", "args": ["x" * size],
            "resources": {"requests": {"cpu": "1", "memory": "1G"}}}  # fmt: skip
    namespace = rng.choice(("dev", "default"))
    world.add_pods(rng, namespace, count, spec={"containers": [args]}, run_seconds=2.0)
    return f"{count} of {size} bytes in {namespace}"


@fault(3)
def pods_rejected_and_retried(world: World, rng: random.Random) -> str:
    """Adds a controller that replaces each failed pod under another name."""
    pods = world.tenant_pods()[:8]
    for pod in pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if not pod["spec"].get("nodeName"):
            world.sandbox.delete("pods", name, namespace)
            world.add_pods(rng, namespace, 1, cpu="30", memory="60G")
    return str(len(pods))


# --- kubelets, with their own credentials ------------------------------------------------------


def ask_as_kubelet(world: World, node: str, path: str, patch: Any) -> int:
    """Sends a merge patch with the credentials of one node; returns the status."""
    address = urlsplit(world.sandbox.url).netloc
    connection = http.client.HTTPConnection(address, timeout=300)
    headers = {"Content-Type": "application/merge-patch+json",
               "Authorization": f"Bearer system:node:{node}"}  # fmt: skip
    try:
        connection.request("PATCH", path, json.dumps(patch), headers)
        return connection.getresponse().status
    except OSError:  # an injected fault of the API
        return 0
    finally:
        connection.close()


@fault(6)
def falsify_kubelet(world: World, rng: random.Random) -> str:
    """Lets the kubelet of any node report something false about its Node."""
    is_permanent, share = rng.random() < 0.3, rng.random()
    amounts = rng.choice((
        {"cpu": "9000000000000000"}, {"memory": "9007199254740992Ki"}, {"cpu": "0"},
        {"cpu": "200", "memory": "400G"}, {"pods": "100000"}, {"example.org/x": "999"},
        {"cpu": "1"},
    ))  # fmt: skip
    mark = rng.choice((
        {"instance": "storm", "node-type": "a", "namespace": "lab", "queue": LAB},
        {"instance": "storm", "node-type": "a", "namespace": "dev", "queue": DEV},
        {"instance": "other", "node-type": "a", "namespace": "dev", "queue": DEV},
        {"instance": "storm", "node-type": "nosuch", "namespace": "dev", "queue": "root"},
        dict.fromkeys(("instance", "node-type", "namespace", "queue", "fenced")),
        {"fenced": "storm"}, {"fenced": None}, {"instance": "\x1b[2J", "queue": "x" * 5000},
    ))  # fmt: skip
    marks = {"metadata": {"annotations": {MARK + key: text for key, text in mark.items()}}}
    subject, patch = rng.choice((
        ("/status", {"status": {"allocatable": amounts, "capacity": amounts}}),
        ("", marks), ("", marks),
        ("", {"metadata": {"labels": {"dev": None, "lab": "true", "kubernetes.io/os": "plan9"}}}),
        ("", {"spec": {"unschedulable": rng.random() < 0.5}}),
        ("", {"spec": {"taints": []}}), ("/status", {"status": {"conditions": []}}),
    ))  # fmt: skip
    nodes = [name for name in world.node_names() if (name in PERMANENT) == is_permanent]
    node = nodes[int(share * len(nodes))] if nodes else None
    if node is None:
        return "none"
    world.lied.add(node)
    status = ask_as_kubelet(world, node, f"/api/v1/nodes/{node}{subject}", patch)
    return f"{node}{subject} {json.dumps(patch)[:120]}: {status}"


@fault(2)
def kubelet_is_away(world: World, rng: random.Random) -> str:
    name, is_ready = pick(rng, world.node_names()), rng.random() < 0.4
    if name is not None and name not in PERMANENT:
        world.sandbox.set_ready(name, is_ready)
        world.unready.add(name)
    return f"{name} {is_ready}"
