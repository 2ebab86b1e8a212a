"""The amounts, application and gang of a pod, as YuniKorn's shim reads them.

Sources: yunikorn-k8shim 1.9, pkg/common/resource.go, pkg/common/utils/utils.go, pkg/cache/utils.go.
It does not use dnm's code, so that tests can compare both. Quantities of Kubernetes follow
resource.Quantity of apimachinery; those of YuniKorn are whole numbers
(pkg/common/resources/quantity.go). Results have YuniKorn's units: `vcore` in thousandths, all other
resources in bytes or pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

from dnm.lab.sandbox.store import Object

LARGEST = 2**63 - 1
_SMALLEST = Fraction(1, 10**9)
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SUFFIXES = {
    **{name: Fraction(1000**power) for name, power in _POWERS.items()},
    **{f"{name.upper()}i": Fraction(1024**power) for name, power in _POWERS.items() if power},
    **{"n": _SMALLEST, "u": Fraction(1, 10**6), "m": Fraction(1, 10**3)},
}
_OF_KUBERNETES = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?[0-9]+))"
)
_OF_YUNIKORN = re.compile(r"([0-9]+)[ \t\n\f\r]*((?:[mkKMGTPE]i?)?)")
_GO_SPACE = (  # strings.TrimSpace: Unicode's White_Space, which Python's strip() adds to
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_FAR = 60  # powers of ten: beyond it an exponent is only large or only small


class AmountError(ValueError):
    """The error for a text that is no amount. The message is that of the real server."""


def kubernetes_amount(text: str) -> Fraction:
    """Returns the exact amount of a resource.Quantity, rounded away from zero to billionths and at
    most the largest int64. Raises AmountError."""
    match = _OF_KUBERNETES.fullmatch(text)
    if match is None:
        raise AmountError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, integer, decimals, suffix, exponent = match.groups(default="")
    amount = Fraction(int(f"{integer}{decimals}" or "0"), 10 ** len(decimals))
    power = max(-_FAR, min(_FAR, int(exponent or "0")))
    amount *= Fraction(10) ** power * _SUFFIXES[suffix]
    amount = min(ceil(amount / _SMALLEST) * _SMALLEST, Fraction(LARGEST))
    return -amount if sign == "-" else amount


def canonical_amount(text: str) -> str:
    """Returns a resource.Quantity as the API server prints it: in the largest unit without a
    fraction, binary for binary texts from 1024 on, otherwise decimal. Raises AmountError."""
    amount, base = kubernetes_amount(text), 1000
    if text.endswith("i") and abs(amount) >= 1024 and amount.denominator == 1:
        units, base = ["", *(name for name in _SUFFIXES if name.endswith("i"))], 1024
    elif re.search("[eE][+-]?[0-9]", text):
        units = [f"e{power}" if power else "" for power in range(-9, 19, 3)]
    else:
        units = ["n", "u", "m", *_POWERS]
    pieces = int(amount if base == 1024 else amount / _SMALLEST)
    while pieces and pieces % base == 0 and len(units) > 1:
        pieces, units = pieces // base, units[1:]
    return f"{pieces}{units[0]}" if pieces else "0"


def yunikorn_units(requests: Mapping[str, Any]) -> dict[str, int]:
    """Converts a ResourceList to YuniKorn's names and whole numbers, rounded away from zero:
    MilliValue() of cpu, Value() of all others."""
    total = {}
    for name, text in requests.items():
        amount = kubernetes_amount(str(text))
        is_cpu = name == "cpu"
        pieces = min(ceil(abs(amount) * (1000 if is_cpu else 1)), LARGEST)
        total["vcore" if is_cpu else name] = -pieces if amount < 0 else pieces
    return total


def configured_amount(name: str, text: str) -> int:
    """Parses one amount of a `max`, `guaranteed` or `maxresources`. Raises AmountError."""
    match = _OF_YUNIKORN.fullmatch(text.strip(_GO_SPACE))
    if match is None:
        raise AmountError("invalid quantity")
    number, suffix = int(match[1]), match[2]
    if number > LARGEST:
        raise AmountError("invalid quantity: overflow")
    is_cpu = name == "vcore"
    if suffix not in _SUFFIXES or (suffix == "m" and not is_cpu):
        raise AmountError("invalid suffix")
    amount = number * _SUFFIXES[suffix] * (1000 if is_cpu else 1)
    if amount > LARGEST:
        raise AmountError("invalid quantity: overflow")
    return int(amount)


def configured_amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    """Parses all amounts of a `max`, `guaranteed` or `maxresources`. Raises AmountError."""
    return {name: configured_amount(name, text) for name, text in (texts or {}).items()}


def total(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Returns the sum of amounts for each resource, at most the largest int64, as in YuniKorn."""
    sums: dict[str, int] = {}
    for entry in amounts:
        for name, amount in entry.items():
            sums[name] = min(sums.get(name, 0) + amount, LARGEST)
    return sums


_DOMAIN = "yunikorn.apache.org/"
_AUTOGENERATED = "-uniqueautogen"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # strconv.ParseBool


# --- amounts -------------------------------------------------------------------------------


def request_of(pod: Object, *, sidecars_count_twice: bool = False) -> dict[str, int]:
    """Returns the request of a pod: the sum of containers and sidecars, or the largest init step if
    that is larger. Pod-level amounts replace it, and the overhead is added. `sidecars_count_twice`:
    as in YuniKorn 1.6 to 1.8, a sidecar counts twice in its own init step (YUNIKORN-3206)."""
    spec = pod["spec"]
    sums = total([{"pods": 1}, *(_of_container(pod, item) for item in spec["containers"])])
    running: dict[str, int] = {}  # sidecars that have been started
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own, before = _of_container(pod, container), running
        if container.get("restartPolicy") == "Always":
            running = total([running, own])
        peak = _larger(peak, total([own, running if sidecars_count_twice else before]))
    sums = _larger(total([sums, running]), peak)
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    sums |= yunikorn_units({name: pod_level[name] for name in pod_level if _is_pod_level(name)})
    return total([sums, yunikorn_units(spec.get("overhead") or {})])


def _of_container(pod: Object, container: Object) -> dict[str, int]:
    """Returns the largest of a container's requested, allocated and applied amounts. A resize in
    place counts as soon as it is requested (KEP-1287), unless the kubelet finds it infeasible."""
    asked = yunikorn_units((container.get("resources") or {}).get("requests") or {})
    status = pod.get("status") or {}
    states = [*(status.get("containerStatuses") or ()),
              *(status.get("initContainerStatuses") or ())]  # fmt: skip
    state: Object = next(
        (state for state in reversed(states) if state["name"] == container["name"]), {}
    )
    applied = state.get("resources")
    in_force = yunikorn_units((applied or {}).get("requests") or {})
    if applied is not None and _was_refused(status):
        return in_force
    return _larger(asked, yunikorn_units(state.get("allocatedResources") or {}), in_force)


def _was_refused(status: Object) -> bool:
    return status.get("resize") == "Infeasible" or any(
        item.get("type") == "PodResizePending" and item.get("reason") == "Infeasible"
        for item in status.get("conditions") or ()
    )


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _larger(*amounts: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in amounts:
        for name, amount in entry.items():
            total[name] = max(amount, total.get(name, amount))
    return total


# --- who it is -----------------------------------------------------------------------------


def application_of(pod: Object) -> str:
    """Returns the id of the pod's application; empty for a pod that is not YuniKorn's."""
    if pod["spec"].get("schedulerName") != "yunikorn":
        return ""
    meta = pod["metadata"]
    chosen = (
        _label(pod, f"{_DOMAIN}app-id")
        or _annotation(pod, f"{_DOMAIN}app-id")
        or _label(pod, "applicationId")
        or _label(pod, "spark-app-selector")
    )
    if chosen.endswith(_AUTOGENERATED):
        return f"{chosen.removesuffix(_AUTOGENERATED)}-{meta.get('uid', '')}"
    return chosen or f"yunikorn-{meta['namespace']}-autogen"[:63]


def queue_asked_by(pod: Object) -> str:
    """Returns the queue that the pod's label or annotation names; empty if none does."""
    key = f"{_DOMAIN}queue"
    return _label(pod, key) or _annotation(pod, key) or _label(pod, "queue")


def is_placeholder(pod: Object) -> bool:
    """Returns whether the pod is a placeholder of a gang, which YuniKorn marks so since 1.6."""
    return _annotation(pod, f"internal.{_DOMAIN}placeholder") in _TRUE


def task_group_of(pod: Object) -> str:
    return _annotation(pod, f"{_DOMAIN}task-group-name")


def gang_of(pod: Object) -> dict[str, int]:
    """Returns the summed requests of all members of the pod's task groups; `pods` is their number.
    Empty for malformed task groups, since the shim then schedules the pod without a gang."""
    text = _annotation(pod, f"{_DOMAIN}task-groups")
    try:
        groups = msgspec.json.decode(text) if text else []
        return total([_of_group(group) for group in groups or ()])
    except (msgspec.MsgspecError, AmountError, AttributeError, TypeError, ValueError):
        return {}


def _of_group(group: Any) -> dict[str, int]:
    """Returns a task group. Raises ValueError if `GetTaskGroupsFromAnnotation` refuses it. Like Go,
    ignores the case of field names."""
    fields = {name.lower(): value for name, value in group.items()}
    members, resources = fields.get("minmember", 0), fields.get("minresource")
    if not isinstance(fields.get("name"), str) or not fields["name"] or resources is None:
        raise ValueError("a task group needs a name and minResource")
    if not isinstance(members, int) or isinstance(members, bool) or not 0 < members < 2**31:
        raise ValueError("minMember must be a number above 0")
    each = {"pods": 1}
    for name, text in resources.items():
        amount = kubernetes_amount(str(text))
        own = "vcore" if name == "cpu" else name
        scale = 1000 if name == "cpu" else 1
        if amount < 0 or own in each or amount > LARGEST // (members * scale):
            raise ValueError(f"minResource {name} is negative, doubled or too large")
        each |= yunikorn_units({name: text})
    return {name: amount * members for name, amount in each.items()}


def _label(pod: Object, key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


def _annotation(pod: Object, key: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(key, ""))
