"""Random pods at a kubelet with the policy single-numa-node, and whether dnm expects admission.

A question is a machine, its policies and a pod, as tests/real/kubelet_judge/admit reads them."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from dnm.demand.constraints import NodeTraits, describe_misfit
from dnm.kube.aligned import aligned_amounts
from dnm.kube.pod_fields import Spec
from dnm.kubelet.reservation import numa_capacity
from dnm.model.kubelet import KubeletSettings, ReservedMemory
from dnm.model.pod import PodShape

Question = dict[str, Any]

MACHINE = {"CPUs": 192, "Zones": 2, "GPUs": 8, "Reserved": 2, "Memory": 512 * 2**30}
POLICIES = {"CPUPolicy": "static", "MemoryPolicy": "Static", "Scope": "pod"}


def container(is_guaranteed: bool = True, **amounts: int | str) -> Question:
    """Returns a container with these limits and equal requests, or device requests only."""
    limits = {
        name.replace("gpu", "example.com/gpu"): str(amount) for name, amount in amounts.items()
    }
    requests = {key: each for key, each in limits.items() if is_guaranteed or "/" in key}
    return {"resources": {"limits": limits, "requests": requests}}


def question(
    name: str, *containers: Question, before: tuple[Question, ...] = (), **other: Any
) -> Question:
    """Returns a question. `before` are init containers, `other` changes of machine or policies."""
    pod = {"containers": list(containers), "initContainers": list(before)}
    return {"id": name, "Guaranteed": True, **MACHINE, **POLICIES, **other, "Pod": pod}


def worked_examples() -> list[Question]:
    def of(**amounts: int | str) -> Question:
        return container(True, **{"cpu": 8, "memory": "1Gi", **amounts})

    unbound = {"limits": {"cpu": "130"}, "requests": {"cpu": "120", "memory": "600Gi"}}
    by_container: dict[str, Any] = {"Scope": "container"}
    return [
        question("half of the GPUs", of(gpu=4)),
        question("6 of 8 GPUs", of(gpu=6)),
        question("3 and 3 GPUs, by pod", of(gpu=3), of(gpu=3)),
        question("3 and 3 GPUs, by container", of(gpu=3), of(gpu=3), **by_container),
        question("GPUs, not Guaranteed", container(False, gpu=6, cpu=8), Guaranteed=False),
        question("120 of 190 CPUs", of(cpu=120)),
        question("96 CPUs", of(cpu=96)),
        question("97 CPUs", of(cpu=97)),
        question("120 CPUs, none static", of(cpu=120), CPUPolicy="none"),
        question("120.5 CPUs are shared", of(cpu="120500m")),
        question("60 and 60 CPUs, by pod", of(cpu=60), of(cpu=60)),
        question("60 and 60 CPUs, by container", of(cpu=60), of(cpu=60), **by_container),
        question("60 whole and 60.5 shared CPUs", of(cpu=60), of(cpu="60500m")),
        question("120 CPUs at first", of(cpu=1), before=(of(cpu=120),)),
        question("60 CPUs at first, then 60", of(cpu=60), before=(of(cpu=60),)),
        question("memory of the smaller NUMA node", of(memory="511Gi")),
        question("memory of the larger NUMA node", of(memory="512Gi")),
        question("more memory", of(memory="513Gi")),
        question("more memory, none static", of(memory="513Gi"), MemoryPolicy="None"),
        question("all at once", of(gpu=4, cpu=96, memory="500Gi")),
        question("CPUs and memory, not Guaranteed", {"resources": unbound}, Guaranteed=False),
    ]


def by_chance(draw: random.Random, number: int) -> Question:
    """Draws a random question. It omits what dnm does not model: with scope container, later
    containers must be on the NUMA node of the first one's CPUs."""
    cpus: list[int | str] = [1, 8, 48, 90, 96, 100, "500m", "48500m"]
    containers = [
        container(
            gpu=draw.choice([1, 2, 3, 4, 5, 8]),
            cpu=draw.choice(cpus),
            memory=f"{draw.choice([1, 100, 250, 400, 511, 512, 513])}Gi",
        )
        for _ in range(draw.choice([1, 1, 2, 3]))
    ]
    first = container(
        gpu=draw.choice([1, 5]),
        cpu=draw.choice([1, 60, 97]),
        memory=f"{draw.choice([1, 300, 512])}Gi",
    )
    scope = draw.choice(["pod", "container"])
    return question(
        f"by chance {number}", *containers, before=(first,) if scope == "pod" else (),
        Zones=draw.choice([2, 4]), CPUPolicy=draw.choice(["static", "none"]),
        MemoryPolicy=draw.choice(["Static", "None"]), Scope=scope,
    )  # fmt: skip


def why_dnm_refuses(asked: Question) -> str:
    """Returns why dnm expects the kubelet to refuse the pod; empty if it expects admission."""
    memory: int = asked["Memory"]
    kubelet = KubeletSettings(
        topology_manager_policy="single-numa-node",
        topology_manager_scope=asked["Scope"],
        cpu_manager_policy=asked["CPUPolicy"],
        memory_manager_policy=asked["MemoryPolicy"],
        kube_reserved_cpu=str(asked["Reserved"]),
        reserved_memory=(ReservedMemory(numa_node=0, amount="1Gi"),),
        numa_memory=dict.fromkeys(range(asked["Zones"]), memory),
    )
    size = {"cpu": 1000 * (asked["CPUs"] - asked["Reserved"]), "example.com/gpu": asked["GPUs"]}
    spec = msgspec.json.decode(json.dumps(asked["Pod"]), type=Spec)
    shape = PodShape(request={}, aligned=aligned_amounts(spec, asked["Guaranteed"]))
    traits = NodeTraits(labels={}, numa=numa_capacity(kubelet, size))
    return describe_misfit(shape, (), traits) or ""
