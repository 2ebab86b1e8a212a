"""Random kubelet settings, with dnm's verdict on them, for a comparison with a real kubelet's.

dnm refuses some settings that a kubelet accepts. The function `stricter` computes which, without
code of dnm."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import msgspec

from dnm.config.keys import KUBELET_KEYS
from dnm.config.node_types import kubelet_settings
from dnm.config.values import quantity
from dnm.kubelet.check import check_node_type
from dnm.kubelet.render import Format, render
from dnm.kubelet.reservation import computed_allocatable, memory_sides
from dnm.model.kubelet import KubeletSettings
from dnm.model.node_type import NodeType

Settings = dict[str, str]  # keys of the ini; an amount of kube_reserved or of huge pages by itself
Machine = dict[str, Any]  # the judge's input: memory, numa

MI = 2**20
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
UNITS |= {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
UNITS |= {"m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}  # type: ignore[dict-item]


class Said:
    """dnm's verdict on settings: whether a kubelet would start with them, and the sums of
    memory."""

    def __init__(self, settings: Settings) -> None:
        self.why: list[str] = []
        parsed = {}
        pages: dict[str, int] = {}
        for key, text in as_written(settings).items():
            try:
                if key.startswith("hugepages-"):
                    pages[key.lower().replace("-", "_")] = quantity(key)(text)
                else:
                    parsed[key] = KUBELET_KEYS[key][1](text)
            except ValueError as error:
                self.why.append(f"{key} = {text}: {error}")
        named = kubelet_settings(parsed) or KubeletSettings()
        self.kubelet: KubeletSettings = msgspec.structs.replace(named, **pages)
        self.is_form = bool(self.why)  # the text of a key is refused
        if self.is_form:
            return
        node_type = NodeType(name="g", size={}, kubelet=self.kubelet)
        self.problems = check_node_type(node_type)
        self.why = [problem.sentence for problem in self.problems if problem.is_error]
        self.sides = memory_sides(self.kubelet)
        if self.kubelet.is_static and not self.sides.is_equal:
            self.why.append("the sums are not equal")
        self.allocatable = computed_allocatable(self.kubelet)

    @property
    def refuses(self) -> bool:
        return bool(self.why)

    @property
    def config(self) -> str:
        return render(self.kubelet, Format.kubelet) or (
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        )


def as_written(settings: Settings) -> Settings:
    """Returns the settings in the form of the ini, where CPU and memory share one key."""
    results = {key: text for key, text in settings.items() if key in KUBELET_KEYS}
    for part in ("kube", "system"):
        amounts = [
            f"{resource}={settings[key]}"
            for resource in ("cpu", "memory")
            if (key := f"{part}_reserved_{resource}") in settings
        ]
        results |= {f"{part}_reserved": ", ".join(amounts)} if amounts else {}
    pages = {
        f"hugepages-{size}": settings.get(f"hugepages_{size.lower()}") for size in ("2Mi", "1Gi")
    }
    return results | {key: text for key, text in pages.items() if text}


def amount(text: str) -> Fraction:
    """Parses a Kubernetes quantity exactly, without code of dnm."""
    for number in range(len(text), 0, -1):
        head, suffix = text[:number], text[number:]
        if head[-1] in "0123456789." and suffix in UNITS:
            return Fraction(head) * UNITS[suffix]
    mantissa, _, exponent = text.lower().partition("e")
    return Fraction(mantissa) * Fraction(10) ** int(exponent)


def stricter(settings: Settings, machine: Machine) -> str:
    """Returns why dnm should refuse settings that a kubelet accepts, or an empty string."""
    entries = [
        (part.partition(":")[0].strip(), part.partition(":")[2].strip().rpartition("=")[2])
        for part in settings.get("reserved_memory", "").split(",")
        if part.strip()
    ]
    if any(amount(text) < 0 for _, text in entries):
        return "negative"
    if settings.get("memory_manager_policy") == "Static":
        for node, text in entries:
            if amount(text) > machine["numa"][int(node)]["memory"]:
                return "more than its NUMA node has"
    elif entries:
        return "reserved by NUMA node without Static"
    kept = sum(
        amount(settings[key])
        for key in ("kube_reserved_memory", "system_reserved_memory")
        if key in settings
    )
    eviction = settings.get("eviction_hard_memory_available", "100Mi")
    kept += (
        Fraction(eviction[:-1]) / 100 * machine["memory"] if "%" in eviction else amount(eviction)
    )
    pages = sum(amount(settings.get(key, "0")) for key in ("hugepages_2mi", "hugepages_1gi"))
    if kept + pages >= machine["memory"] - 1:
        return "no memory is left for pods"
    fractions = [
        settings.get(key, "0") for key in ("kube_reserved_memory", "system_reserved_memory")
    ]
    if "%" not in eviction:
        fractions.append(eviction)
    if any(amount(text).denominator != 1 for text in fractions):
        return "a fraction of a byte"
    return ""


# --- at random ---------------------------------------------------------------------------------


def a_machine(draw: random.Random) -> Machine:
    count = draw.choice([1, 1, 2, 2, 2, 2, 4, 4, 8, 9, 16])
    each = draw.choice([16, 32, 64, 128, 256]) * 1024 * MI
    malformed = [draw.choice([0, 0, 0, -draw.randrange(1, 2**24) * 1024]) for _ in range(count)]
    nodes = [
        {"memory": each + less, "cpus": [number * 8 + cpu for cpu in range(8)], "hugepages": {}}
        for number, less in enumerate(malformed)
    ]
    return {"memory": sum(node["memory"] for node in nodes), "numa": nodes}


def spelled(draw: random.Random, number: int) -> str:
    """Draws a spelling of a number of bytes; rarely one with which a kubelet does not start."""
    ways = [str(number)]
    for unit in ("Ki", "Mi", "Gi", "Ti", "k", "M", "G"):
        share = Fraction(number, UNITS[unit])
        if share.denominator == 1:
            ways += [f"{share}{unit}"] * 3
        elif share.denominator in (2, 4, 5, 8) and draw.random() < 0.3:
            ways.append(f"{float(share)}{unit}")
    if draw.random() < 0.03:
        ways = [
            f"{number}e0",
            f"+{number}",
            f"{number}.0",
            f"{number}000m",
            f"0{number}",
            f"{number}.",
        ]
    return draw.choice(ways)


def an_amount(draw: random.Random, most: int = 24) -> int:
    unit = draw.choice([2**30, 2**20, 2**20, 2**10, 10**9, 10**6, 1])
    return draw.randrange(0, max(1, most * 2**30 // unit)) * unit if draw.random() < 0.9 else 0


def some_settings(draw: random.Random, machine: Machine) -> Settings:
    """Draws random kubelet settings, of which about half are valid."""
    settings: Settings = {}
    settings["numa_memory"] = ", ".join(
        f"{number}: {node['memory']}" for number, node in enumerate(machine["numa"])
    )
    if draw.random() < 0.9:
        settings["memory_manager_policy"] = "Static" if draw.random() < 0.85 else "None"
    kept = 0
    for key in ("kube_reserved_memory", "system_reserved_memory"):
        if draw.random() < 0.8:
            number = an_amount(draw, 4 if draw.random() < 0.95 else 4000)
            settings[key], kept = spelled(draw, number), kept + number
    kept += an_eviction(draw, settings, machine)
    if draw.random() < 0.92:
        settings["reserved_memory"] = some_reserved(draw, machine, kept)
    some_of_the_rest(draw, settings, machine)
    return settings


def an_eviction(draw: random.Random, settings: Settings, machine: Machine) -> int:
    """Draws the eviction threshold of memory as bytes or percent. Returns it in bytes."""
    key, dice = "eviction_hard_memory_available", draw.random()
    if dice < 0.3:
        return 100 * MI
    if dice < 0.75:
        number = draw.choice([100 * MI, 500 * MI, 2**30, 750_000_000, 1])
        settings[key] = spelled(draw, number)
        return number
    text = draw.choice(
        ["0%", "100%", "5%", "2.5%", "1%", "0.5%", "0.0%", "99.99%", "10%", "12.25%"]
    )
    settings[key] = text
    if text in ("0%", "100%"):
        return 0
    if draw.random() < 0.7:  # the kubelet's own arithmetic, in single precision
        import struct

        def single(number: float) -> float:
            return float(struct.unpack("f", struct.pack("f", number))[0])

        return int(float(machine["memory"]) * single(single(float(text[:-1])) / 100))
    return int(machine["memory"] * Fraction(text[:-1]) / 100)


def some_reserved(draw: random.Random, machine: Machine, total: int) -> str:
    """Draws reserved_memory: splits `total` over NUMA nodes, often with a common error."""
    count = len(machine["numa"])
    nodes = sorted(draw.sample(range(count), draw.randrange(1, min(count, 3) + 1)))
    cuts = sorted(draw.randrange(0, total // 2**20 + 1) * 2**20 for _ in nodes[1:])
    amounts = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
    dice = draw.random()
    if dice < 0.15:
        amounts[-1] += draw.choice([1, -1, MI, -MI, 100 * MI, 2**30])
    entries = [
        (node, spelled(draw, abs(number)), number < 0)
        for node, number in zip(nodes, amounts, strict=True)
    ]
    if len(entries) > 1 and draw.random() < 0.9:
        entries = [entry for entry in entries if entry[1] != "0"] or entries
    texts = [
        f"{node}: {'-' * sign}{text.lstrip('+') if sign else text}" for node, text, sign in entries
    ]
    if dice > 0.97:
        texts.append(f"{nodes[0]}: {draw.choice(['1Mi', '7', '0'])}")
    elif dice > 0.94:
        texts.append(f"{draw.randrange(count)}: hugepages-{draw.choice(['2Mi', '1Gi'])}=1Gi")
    elif dice > 0.92:
        texts.append(f"{draw.randrange(count)}: {draw.choice(['cpu', 'Memory', 'hugepages'])}=1Gi")
    return ", ".join(dict.fromkeys(texts))


def some_of_the_rest(draw: random.Random, settings: Settings, machine: Machine) -> None:
    if draw.random() < 0.3:
        settings["cpu_manager_policy"] = draw.choice(["none", "static", "static"])
    if draw.random() < 0.3:
        settings["kube_reserved_cpu"] = draw.choice(["500m", "1", "0", "1.5", "250m", "1e0"])
    if draw.random() < 0.2:
        settings["system_reserved_cpu"] = draw.choice(["500m", "2", "0"])
    if draw.random() < 0.6:
        policies = ["none", "best-effort", "restricted", "single-numa-node"]
        settings["topology_manager_policy"] = draw.choice(policies)
    if draw.random() < 0.3:
        settings["topology_manager_scope"] = draw.choice(["container", "pod"])
    if draw.random() < 0.2:
        pages = draw.randrange(1, 5)
        settings["hugepages_1gi"] = f"{pages}Gi"
        for number in range(pages):  # as many as the machine has, laid out in sequence
            node = machine["numa"][number % len(machine["numa"])]
            node["hugepages"]["1048576"] = node["hugepages"].get("1048576", 0) + 1
