"""YuniKorn's quantities, and its names of resources.

The queue document and the ledger name CPU `vcore` and count it in millicores. Other resources have
Kubernetes' names. The grammar is `parse` of pkg/common/resources/quantity.go (equal since 1.0)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec.structs import replace

from dnm.model import quantity
from dnm.model.cluster import QueueLimits
from dnm.model.quantity import INT64_MAX, UNITS, QuantityError
from dnm.model.queue_edit import QueueNumbers, QueueWants
from dnm.model.value import Resources
from dnm.queues.yunikorn.document_edit import DocumentEdit

_OF_VCORE = {"m": 1} | {suffix: 1000 * unit for suffix, unit in UNITS.items()}
_GO_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    chr(point) for point in range(0x2000, 0x200B)
)
_QUANTITY = re.compile(r"([0-9]+)([ \t\n\f\r]*)((?:[mkKMGTPE]i?)?)\Z")


@lru_cache(maxsize=65536)
def parse_yunikorn(resource: str, text: str) -> int:
    """Returns the amount of a value in queues.yaml. Raises QuantityError with YuniKorn's own
    message.

    Only `vcore` may have the suffix `m`; without a suffix, `vcore` is in cores."""
    match = _QUANTITY.match(text.strip(_GO_SPACE))
    if match is None:
        raise QuantityError("invalid quantity")
    number, _, suffix = match.groups()
    if len(number.lstrip("0")) > 19 or int(number) > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    unit = _unit(resource, suffix)
    if unit is None:
        raise QuantityError("invalid suffix")
    amount = int(number) * unit
    if amount > INT64_MAX:
        raise QuantityError("invalid quantity: overflow")
    return amount


def _unit(resource: str, suffix: str) -> int | None:
    """Returns the factor of a suffix, or None if values of this resource cannot have the suffix."""
    return (_OF_VCORE if resource == "vcore" else UNITS).get(suffix)


def format_yunikorn(resource: str, amount: int, like: str) -> str:
    """Returns `amount` in the unit and spacing of `like` if exact, else in the largest exact unit.

    `like` is a valid value of the same resource. Equal amounts with an equal `like` give equal
    texts. Raises QuantityError for amounts that YuniKorn cannot hold."""
    if not 0 <= amount <= INT64_MAX:
        raise QuantityError(f"{amount} of {resource} is outside what YuniKorn can count")
    core = like.strip(_GO_SPACE)
    match = _QUANTITY.match(core)
    unit = _unit(resource, match.group(3)) if match else None
    if match is None or unit is None:
        raise QuantityError(f"{like!r} is not a quantity of {resource}")
    if amount % unit == 0:
        before, after = like.split(core, 1)
        return f"{before}{amount // unit}{match.group(2)}{match.group(3)}{after}"
    return format_amount(resource, amount)


def format_amount(resource: str, amount: int) -> str:
    """Returns the amount in the largest exact unit; `vcore` in cores or millicores."""
    return quantity.format_amount("cpu" if resource == "vcore" else "", amount)


def yunikorn_name(resource: str) -> str:
    """Returns YuniKorn's name of a resource of Kubernetes."""
    return "vcore" if resource == "cpu" else resource


def yunikorn_amounts(amounts: Resources) -> dict[str, int]:
    """Returns amounts by YuniKorn's names of the resources."""
    return {yunikorn_name(name): amount for name, amount in amounts.items()}


def yunikorn_wants(wants: QueueWants) -> QueueWants:
    """Returns `wants`, the nodes that queues are to have, with YuniKorn's names of resources."""
    nodes = {
        queue: {node: yunikorn_amounts(size) for node, size in of_queue.items()}
        for queue, of_queue in wants.nodes.items()
    }
    floors = {queue: yunikorn_amounts(floor) for queue, floor in wants.floors.items()}
    return replace(wants, nodes=nodes, floors=floors)


def kubernetes_amounts(amounts: Resources) -> dict[str, int]:
    """Returns amounts by Kubernetes' names of the resources. A resource that the document calls
    `cpu` is left out, since YuniKorn compares it with no pod."""
    kept = ((name, amount) for name, amount in amounts.items() if name != "cpu")
    return {"cpu" if name == "vcore" else name: amount for name, amount in kept}


def kubernetes_limits(limits: Mapping[str, QueueLimits]) -> dict[str, QueueLimits]:
    """Returns the limits of queues with Kubernetes' names of the resources."""
    return {
        path: replace(
            queue,
            max=kubernetes_amounts(queue.max),
            guaranteed=kubernetes_amounts(queue.guaranteed),
            fixed=frozenset(kubernetes_amounts(dict.fromkeys(queue.fixed, 0))),
        )
        for path, queue in limits.items()
    }


def kubernetes_numbers(numbers: Mapping[str, QueueNumbers]) -> dict[str, QueueNumbers]:
    """Returns limit, baseline and lent amounts of queues, by Kubernetes' names of resources."""
    return {
        path: QueueNumbers(
            limit=kubernetes_amounts(queue.limit),
            baseline=kubernetes_amounts(queue.baseline),
            lent=kubernetes_amounts(queue.lent),
        )
        for path, queue in numbers.items()
    }


def kubernetes_edit(edit: DocumentEdit) -> DocumentEdit:
    """Returns the edit with Kubernetes' resource names in limits and numbers. Its texts and changes
    keep YuniKorn's names."""
    limits, numbers = kubernetes_limits(edit.limits), kubernetes_numbers(edit.numbers)
    return replace(edit, limits=limits, numbers=numbers)
