"""Tests of each rule about kubelet settings: the refused ones, the unverified ones, the message."""

from __future__ import annotations

import pytest

from dnm.kubelet.check import check_node_type, lending_error
from dnm.model.node_type import NodeType
from tests.kubelet.judging import Said, Settings

RIGHT: Settings = {
    "memory_manager_policy": "Static",
    "topology_manager_policy": "single-numa-node",
    "kube_reserved_memory": "8500Mi",
    "system_reserved_memory": "0",
    "eviction_hard_memory_available": "100Mi",
    "reserved_memory": "0: 4300Mi, 1: 4300Mi",
    "numa_memory": "0: 128Gi, 1: 128Gi",
}


def problems(settings: Settings, memory: int = 0) -> dict[str, bool]:
    """Returns message -> whether it is an error, for these settings."""
    kubelet = Said(settings).kubelet
    node_type = NodeType(name="g", size={"memory": memory}, kubelet=kubelet)
    return {problem.sentence: problem.is_error for problem in check_node_type(node_type)}


def test_valid_kubelet_settings_have_no_problem() -> None:
    assert problems(RIGHT) == {}
    assert check_node_type(NodeType(name="a", size={})) == ()


def without(key: str) -> Settings:
    return {name: text for name, text in RIGHT.items() if name != key}


ERRORS = {
    "both sides in one unit, and what would fit": (
        {**RIGHT, "reserved_memory": "0: 4300Mi, 1: 4400Mi"},
        "reserved_memory: adds up to 8700Mi, 100Mi more than kube_reserved + system_reserved + "
        "eviction_hard_memory_available = 8600Mi: the kubelet would not start; e.g. 0: 4200Mi "
        "there"),
    "a difference of one byte": ({**RIGHT, "reserved_memory": "0: 4300Mi, 1: 4508876799"},
        "reserved_memory: adds up to 9017753599, 1 less than kube_reserved + system_reserved + "
        "eviction_hard_memory_available = 9017753600: the kubelet would not start; e.g. 0: "
        "4508876801 there"),
    "reserved memory without Static": ({"reserved_memory": "0: 1Gi"},
        "reserved_memory: has no effect unless memory_manager_policy = Static: set that, or "
        "omit this key"),
    "no reserved memory": (without("reserved_memory"),
        "memory_manager_policy: Static needs reserved_memory: without it the kubelet does not "
        "start"),
    "a fraction": ({**RIGHT, "reserved_memory": "0: 4300Mi, 1: 4.19921875Gi"},
        "reserved_memory: 1: 4.19921875Gi: the kubelet can't use this spelling as a whole "
        "number; write 4300Mi"),
    "huge pages": ({**RIGHT, "reserved_memory": "0: 4300Mi, 1: 4300Mi, 0: hugepages-1Gi=1Gi"},
        "reserved_memory: 0: hugepages-1Gi=1Gi: with Static the kubelet compares huge pages "
        "with 0; omit it"),
    "a NUMA node that is too small": ({**RIGHT, "numa_memory": "0: 4Gi, 1: 128Gi"},
        "reserved_memory: 0: 4300Mi: the NUMA node has 4Gi; the kubelet does not check, and "
        "would offer a huge amount"),
    "a NUMA node that is not there": ({**RIGHT, "numa_memory": "0: 128Gi"},
        "reserved_memory: 1: 4300Mi: numa_memory has no NUMA node 1"),
    "nine NUMA nodes": (
        {**RIGHT, "numa_memory": ", ".join(f"{number}: 16Gi" for number in range(9))},
        "topology_manager_policy: the topology manager of a kubelet refuses 9 NUMA nodes, at most "
        "8; write none"),
    "static CPUs without any kept back": ({"cpu_manager_policy": "static"},
        "cpu_manager_policy: static needs reserved CPUs: write cpu in kube_reserved or "
        "system_reserved; without any the kubelet does not start"),
    "twice the same": ({"reserved_memory": "0: 1Gi, 0: 2Gi"},
        "reserved_memory: names memory of NUMA node 0 2 times; give one amount"),
    "zero": ({"reserved_memory": "0: 0"},
        "reserved_memory: 0: 0: the kubelet refuses zero; leave the NUMA node out"),
    "negative": ({"reserved_memory": "0: -1Mi"},
        "reserved_memory: 0: -1Mi is negative: the kubelet accepts it, without any effect"),
    "of another kind": ({"reserved_memory": "0: cpu=1"},
        "reserved_memory: 0: cpu=1 is neither memory nor hugepages-SIZE"),
    "nothing kept back": ({**RIGHT, "kube_reserved_memory": "0",
         "eviction_hard_memory_available": "0%", "reserved_memory": "0: 1Mi, 1: -1Mi"},
        "reserved_memory: adds up to zero: with Static the kubelet requires some reserved "
        "memory"),
    "nothing left": ({"kube_reserved_memory": "4Gi", "numa_memory": "0: 4Gi"},
        "numa_memory: the reservation and huge pages take 4196Mi of 4Gi: no memory is left for "
        "pods"),
}  # fmt: skip

WARNINGS = {
    "a term that is not named": (without("system_reserved_memory"),
        "reserved_memory: system_reserved is not set, so the kubelet's other files decide "
        "whether it starts; with its defaults: 8600Mi = 8600Mi, and it starts"),
    "two terms, and the sums differ": ({key: text for key,
         text in RIGHT.items() if key[:4] not in ("kube", "evic")},
        "reserved_memory: kube_reserved and eviction_hard_memory_available are not set, so "
        "the kubelet's other files decide whether it starts; with its defaults: 8600Mi is not "
        "100Mi"),
    "Static, and nothing aligned": (without("topology_manager_policy"),
        "memory_manager_policy: Static without topology_manager_policy = single-numa-node "
        "reserves by NUMA node and aligns nothing: likely a mistake"),
    "the NUMA nodes are not named": (without("numa_memory"),
        "numa_memory: is not set: whether each NUMA node has the reserved memory is "
        "unknown"),
    "a percentage": ({**RIGHT, "eviction_hard_memory_available": "5%",
         "reserved_memory": "0: 22657053286"},
        "eviction_hard_memory_available: a percentage makes 12.80Gi here, but some KiB more "
        "or less elsewhere, where the kubelet does not start; write an amount"),
    "a percentage of an unknown amount": ({**without("numa_memory"),
         "eviction_hard_memory_available": "5%"},
        "eviction_hard_memory_available: a percentage is of a machine's own memory, and "
        "numa_memory is missing: whether the sums agree is unknown; write an amount"),
    "all of a NUMA node": (
        {**RIGHT, "reserved_memory": "0: 8600Mi", "numa_memory": "0: 8600Mi, 1: 128Gi"},
        "reserved_memory: 0: 8600Mi: with huge pages no memory of this NUMA node is left for pods"),
}  # fmt: skip


@pytest.mark.parametrize("why", [*ERRORS, *WARNINGS])
def test_fatal_setting_is_an_error_and_suspicious_setting_a_warning(
    why: str,
) -> None:
    settings, sentence = {**ERRORS, **WARNINGS}[why]
    assert problems(settings).get(sentence) is (why in ERRORS), problems(settings)


def test_declared_size_above_the_allocatable_size_is_a_warning() -> None:
    results = problems(RIGHT, memory=256 * 2**30)
    assert results == {
        "memory: 256Gi is declared, but pods will get about 253544Mi: for a pod between the two, "
        "dnm lends a node that does not help": False
    }
    assert problems(RIGHT, memory=253544 * 2**20) == {}


def test_all_problems_are_listed_errors_first() -> None:
    settings = {
        **RIGHT, "reserved_memory": "0: 1Gi, 0: 1024Mi, 7: 1.5Gi", "cpu_manager_policy": "static",
        "topology_manager_policy": "none",
    }  # fmt: skip
    kubelet = Said(settings).kubelet
    node_type = NodeType(name="g", size={}, kubelet=kubelet)
    kubelet_problems = check_node_type(node_type)
    assert [problem.is_error for problem in kubelet_problems] == [True] * 5 + [False]
    assert lending_error(node_type) == f"[node_type:g] {kubelet_problems[0].sentence} (and 4 more)"
