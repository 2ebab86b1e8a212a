"""The keys about kubelets, one at a time: valid values, and the sentence for invalid ones."""

from __future__ import annotations

import pytest

from dnm.config.keys import KUBELET_KEYS
from dnm.model.kubelet import ReservedMemory


def parsed(key: str, text: str) -> object:
    """Parses a value. The key `kube_reserved_cpu` means the amount of CPU in kube_reserved."""
    part, _, resource = key.partition("_reserved_")
    if resource in ("cpu", "memory"):
        return KUBELET_KEYS[f"{part}_reserved"][1](f"{resource}={text}")[key]
    return KUBELET_KEYS[key][1](text)


TAKEN = [
    ("memory_manager_policy", "Static", "Static"),
    ("kube_reserved_memory", "1.5Gi", "1.5Gi"),
    ("kube_reserved_memory", "1e9", "1e9"),
    ("kube_reserved_memory", "+4Gi", "+4Gi"),
    ("system_reserved_memory", "0", "0"),
    ("eviction_hard_memory_available", "2.5%", "2.5%"),
    ("eviction_hard_memory_available", "0%", "0%"),
    (
        "reserved_memory",
        "0: 4300Mi,1:-1Mi , 0: hugepages-2Mi = 512Mi",
        (
            ReservedMemory(numa_node=0, amount="4300Mi"),
            ReservedMemory(numa_node=1, amount="-1Mi"),
            ReservedMemory(numa_node=0, amount="512Mi", resource="hugepages-2Mi"),
        ),
    ),
    ("numa_memory", "0: 512Gi, 1: 0", {0: 2**39, 1: 0}),
    ("kube_reserved_cpu", "500m", "500m"),
]


@pytest.mark.parametrize(("key", "text", "value"), TAKEN)
def test_kubelet_setting_is_read_as_it_is_written(key: str, text: str, value: object) -> None:
    assert parsed(key, text) == value


REFUSED = [
    ("memory_manager_policy", "static", "did you mean 'Static'?"),
    ("memory_manager_policy", "BestEffort", "write None or Static, in this spelling"),
    ("cpu_manager_policy", "Static", "did you mean 'static'?"),
    ("topology_manager_policy", "single-numa", "did you mean 'single-numa-node'?"),
    ("kube_reserved_memory", "-1Gi", "is not a whole number of bytes"),
    ("kube_reserved_memory", "1K", "Kubernetes spells it k"),
    ("kube_reserved_memory", "1GiB", "is not a whole number of bytes"),
    ("kube_reserved_memory", "1e3Mi", "is not a whole number of bytes"),
    ("kube_reserved_memory", "1m", "is not a whole number of bytes"),
    ("kube_reserved_memory", "٣Gi", "is not a whole number of bytes"),
    ("kube_reserved_memory", "1e400", "is more memory than a machine has"),
    ("kube_reserved_memory", "9" * 5000, "is not a whole number of bytes"),
    ("kube_reserved_memory", "1e" + "9" * 200, "is more memory than a machine has"),
    ("eviction_hard_memory_available", "0", "write 0% for no threshold"),
    ("eviction_hard_memory_available", "101%", "is not a percentage"),
    ("eviction_hard_memory_available", "5 %", "is not a percentage"),
    ("eviction_hard_memory_available", "NaN%", "is not a percentage"),
    ("reserved_memory", "4300Mi", "is not an entry"),
    ("reserved_memory", "0; 4300Mi", "is not an entry"),
    ("reserved_memory", "0: 1Gi, 0: 1Gi", "more than once"),
    ("reserved_memory", "-1: 1Gi", "is not an entry"),
    ("reserved_memory", "²: 1Gi", "is not an entry"),
    ("reserved_memory", "99999: 1Gi", "is not an entry"),
    ("reserved_memory", "0: lots", "'lots' is not an amount of memory"),
    ("reserved_memory", "0: =1Gi", "is not an entry"),
    ("reserved_memory", "0:", "is not an amount of memory"),
    ("reserved_memory", ",", "is empty"),
    ("numa_memory", "0: 512Gi, 00: 512Gi", "gives NUMA node 0 twice"),
    ("numa_memory", "0: 0", "has no memory"),
    ("numa_memory", "0: -512Gi", "is not a whole number of bytes"),
    ("numa_memory", "0", "is not an entry"),
    ("kube_reserved", "memory=1Gi, memory=8Gi", "gives memory twice"),
    ("kube_reserved_cpu", "-1", "is not an amount of CPU"),
    ("kube_reserved_cpu", "1e30", "is not an amount of CPU"),
]


@pytest.mark.parametrize(("key", "text", "sentence"), REFUSED)
def test_malformed_kubelet_setting_is_answered_with_a_valid_form(
    key: str, text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match=r"write|once|twice|backwards|empty") as refusal:
        parsed(key, text)
    assert sentence in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_longest_kubelet_list_is_read_fast() -> None:
    entries = ", ".join(f"{number}: {number + 1}" for number in range(1000))
    assert len(parsed("reserved_memory", entries)) == 1000  # type: ignore[arg-type]
    assert len(parsed("numa_memory", entries)) == 1000  # type: ignore[arg-type]
