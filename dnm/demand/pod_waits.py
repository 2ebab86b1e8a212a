"""Pods that claim devices, and pods of PodGroups. dnm counts their requests like any other, or
reports why it cannot. Pure.

Devices are counted as resources, under Kubernetes' own name for those of a class. A new node is
expected to have the devices that lent nodes of its type have published. dnm counts them only after
the scheduler has started a pod with a device: some schedulers bind such pods without any device, or
end with a panic. A group with a known minimum of pods is a gang (`gangs.py`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from dnm.demand.demand import NO_USE, Demand
from dnm.model.pod import Pod, PodShape, TaskGroup
from dnm.model.pod_waits import GROUPS, Device, DeviceFacts, GroupFacts, PodWaits
from dnm.model.printable import printable
from dnm.model.value import Resources, Unreadable

PREFIX = "deviceclass.resource.kubernetes.io/"
_ANY_OTHER = "dnm has not seen the scheduler start a pod with an allocated device yet"
_NAME = r"[A-Za-z0-9._/-]+"
_QUOTED = rf"""(?:"{_NAME}"|'{_NAME}')"""
_DRIVER = re.compile(rf"device\.driver\s*==\s*({_QUOTED})")
_ATTRIBUTE = re.compile(
    rf"device\.attributes\[({_QUOTED})\]\.([A-Za-z0-9_]+)\s*==\s*({_QUOTED}|true|false|\d{{1,18}})"
)
Matches = Callable[[Device], bool]


# --- devices ---------------------------------------------------------------------------------


def with_devices(demand: Demand, waits: PodWaits) -> Demand:
    """Returns the demand in which allocated devices count as used resources of their nodes."""
    nodes = dict(demand.nodes)
    for name, taken in waits.taken.items():
        use = nodes.get(name, NO_USE)
        nodes[name] = msgspec.structs.replace(use, used={**use.used, **taken})
    return msgspec.structs.replace(demand, nodes=nodes)


def resolve_devices(
    pods: Sequence[Pod],
    facts: DeviceFacts | Unreadable,
    lent: Mapping[str, str],
    types: Mapping[str, Collection[str]],
) -> tuple[dict[int, Pod], PodWaits]:
    """Returns the pending pods, by pod id, with their device claims turned into requests, and why
    other claims are not understood. `lent`: node -> type. `types`: namespace -> its node types."""
    waiting = [pod for pod in pods if pod.devices and is_awaiting_placement(pod, types)]
    if isinstance(facts, Unreadable):
        return {}, PodWaits(unclear={_title(pod): facts.error for pod in waiting})
    shared = Counter((pod.namespace, name) for pod in waiting for name in set(pod.devices))
    asks = [(pod, *_needs(pod, facts, shared)) for pod in waiting]
    asked = {name for _, needs, _ in asks for name in needs} & facts.classes.keys()
    classes = {name: _matcher(facts.classes[name]) for name in asked}
    offered = _count(facts.devices, classes)
    allocates = any(pod.uid in facts.holders for pod in pods if pod.node and pod.is_managed)
    shapes: dict[tuple[int, tuple[tuple[str, int], ...]], PodShape] = {}
    resolved: dict[int, Pod] = {}
    unclear: dict[str, str] = {}
    for pod, needs, why in asks:
        why = why or next(filter(None, (_missing_class(need, classes) for need in needs)), "")
        why = why or _describe_unknown_devices(needs, offered, lent, types[pod.namespace])
        if why or not allocates:
            unclear[_title(pod)] = why or _ANY_OTHER
            continue
        key = (id(pod.shape), tuple(sorted(needs.items())))
        shape = shapes.setdefault(key, _with_devices(pod.shape, needs))
        resolved[id(pod)] = msgspec.structs.replace(pod, shape=shape, devices=())
    taken = _count(facts.devices, classes, facts.allocated)
    return resolved, PodWaits(unclear=unclear, offered=offered, taken=taken)


def is_awaiting_placement(pod: Pod, namespaces: Collection[str]) -> bool:
    """Returns whether a pod of these namespaces waits for the scheduler to place it on a node."""
    is_held = pod.node or pod.is_gated or pod.is_undecided
    return not is_held and pod.is_managed and pod.namespace in namespaces


def _title(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _needs(
    pod: Pod, facts: DeviceFacts, shared: Mapping[tuple[str, str], int]
) -> tuple[Counter[str], str]:
    """Returns how many devices of each class all claims of a pod request together, and an empty
    text. If that is unknown, the text has the reason."""
    needs: Counter[str] = Counter()
    if pod.group.startswith(f"{GROUPS[0]}/"):
        return needs, "it belongs to a PodGroup, and its pods may share a claim"
    for device in pod.devices:
        kind, _, name = device.partition(" ")
        is_claim = kind == "ResourceClaim"
        ask = (facts.claims if is_claim else facts.templates).get((pod.namespace, name))
        if ask is None:
            return needs, f"there is no {kind} {name} in namespace {pod.namespace}"
        if ask.why:
            return needs, f"{device} {ask.why}"
        if is_claim and (ask.is_taken or shared[pod.namespace, device] > 1):
            return needs, f"{device} has its devices already, or several pods share it"
        needs.update(dict(ask.counts))
    return needs, ""


def _missing_class(name: str, classes: Mapping[str, Matches | None]) -> str:
    if name not in classes:
        return f"there is no DeviceClass {name}"
    if classes[name] is None:
        return f"DeviceClass {name} selects by an expression that dnm does not evaluate"
    return ""


def _describe_unknown_devices(
    needs: Mapping[str, int],
    offered: Mapping[str, Resources],
    lent: Mapping[str, str],
    types: Collection[str],
) -> str:
    """Returns why dnm does not know whether a new node has these devices; empty if it has them."""
    for node, node_type in lent.items():
        if node_type in types and all(PREFIX + name in offered.get(node, {}) for name in needs):
            return ""
    return (
        f"no lent node of type {' or '.join(sorted(types))} has published devices of "
        f"{' and '.join(sorted(needs))} in a ResourceSlice"
    )


def _with_devices(shape: PodShape, needs: Mapping[str, int]) -> PodShape:
    more = {PREFIX + name: count for name, count in needs.items()}
    before = shape.request_sidecars_twice
    return msgspec.structs.replace(
        shape,
        request={**shape.request, **more},
        request_sidecars_twice={**before, **more} if before else before,
    )


def _matcher(expressions: Iterable[str]) -> Matches | None:
    """Returns a function that tests whether a device belongs to a class, or None if the class has
    an expression that does more than compare driver and attributes."""
    tests: list[Matches] = []
    for term in (term.strip() for text in expressions for term in text.split("&&")):
        driver, attribute = _DRIVER.fullmatch(term), _ATTRIBUTE.fullmatch(term)
        if driver:
            tests.append(lambda item, name=driver[1][1:-1]: item.driver == name)  # type: ignore[misc]
        elif attribute:
            domain, name, value = attribute[1][1:-1], attribute[2], _literal(attribute[3])
            tests.append(
                lambda item, domain=domain, name=name, value=value: (  # type: ignore[misc]
                    _attribute(item, domain, name) == (type(value), value)
                )
            )
        else:
            return None
    return lambda device: all(test(device) for test in tests)


def _literal(text: str) -> str | bool | int:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text[1:-1]


def _attribute(device: Device, domain: str, name: str) -> tuple[type, object]:
    """Returns the type and value of a device's attribute. Without a domain, it is the driver's."""
    plain = device.attributes.get(name) if domain == device.driver else None
    value = device.attributes.get(f"{domain}/{name}", plain)
    return type(value), value


def _count(
    devices: Mapping[str, Sequence[Device]],
    classes: Mapping[str, Matches | None],
    among: Collection[tuple[str, str, str]] | None = None,
) -> dict[str, dict[str, int]]:
    """Counts the devices of each class on each node; with `among`, only the devices in it."""
    by_node: dict[str, dict[str, int]] = {}
    for node, listed in devices.items():
        counted = [device for device in listed if among is None or device.key in among]
        for name, matches in classes.items():
            if matches is not None and (count := sum(map(matches, counted))):
                by_node.setdefault(node, {})[PREFIX + name] = count
    return by_node


# --- groups ----------------------------------------------------------------------------------


def resolve_groups(
    pods: Iterable[Pod], facts: GroupFacts, namespaces: Collection[str]
) -> tuple[dict[int, Pod], dict[str, str]]:
    """Returns the pods of PodGroups with a known minimum, by pod id, as members of a gang. The
    second result explains why only existing pods of other groups count. A pod that announces a gang
    itself is left out, since its scheduler follows that annotation."""
    members: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods:
        if pod.group and pod.is_managed and not (pod.task_group or pod.task_groups):
            members.setdefault((pod.namespace, pod.group), []).append(pod)
    resolved: dict[int, Pod] = {}
    unclear: dict[str, str] = {}
    for (namespace, group), many in members.items():
        waiting = [pod for pod in many if is_awaiting_placement(pod, namespaces)]
        api_group, _, name = group.partition("/")
        listed = facts.get(api_group, {})
        if not waiting:
            continue
        if isinstance(listed, Unreadable) or (namespace, name) not in listed:
            why = f"there is no PodGroup {printable(name)} in namespace {namespace}"
            why = listed.error if isinstance(listed, Unreadable) else why
            unclear |= {_title(pod): f"{why}: of its group only existing pods count"
                       for pod in waiting}  # fmt: skip
        elif (least := listed[namespace, name]) > 1:
            first = min(waiting, key=lambda pod: (pod.created, pod.name))
            asks = TaskGroup(name=group, min_member=least, min_resource=first.shape.request)
            resolved |= {
                id(pod): msgspec.structs.replace(pod, task_group=group, task_groups=(asks,))
                for pod in many
            }
    return resolved, unclear
