"""The ledger as it stands in the annotation: what each instance lends to which queue, and for each
limit that moves because of it the text without that (baseline) and the text last written.

One JSON document shared by all instances; each writes its own section and leaves the others alone.
Equal node sizes are stored once. Kubernetes allows 256 KiB for all annotations of an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from dnm.errors import QueueError
from dnm.model import Resources, Value
from dnm.quantity import QuantityError, parse_yunikorn
from dnm.queues import KINDS, LEDGER_ANNOTATION, LimitPlace

VERSION = 1


class Section(Value):
    """One instance's part: queue path -> node -> amounts. `guaranteed`: it moves guaranteed too."""

    queues: Mapping[str, Mapping[str, Resources]] = {}
    guaranteed: bool = True


class Entry(NamedTuple):
    """Two texts in YuniKorn's grammar."""

    baseline: str
    written: str


class Ledger(Value):
    """`frozen`: limits that a person set below what is lent; dnm leaves them as they are until
    nothing is lent or the person says what was meant."""

    sections: Mapping[str, Section] = {}
    entries: Mapping[LimitPlace, Entry] = {}
    frozen: frozenset[LimitPlace] = frozenset()


class _StoredSection(Value):
    queues: Mapping[str, dict[str, int]] = {}  # queue -> node -> index into sizes
    guaranteed: bool = True


class _Stored(Value):
    version: int
    sizes: tuple[dict[str, int], ...] = ()
    instances: Mapping[str, _StoredSection] = {}
    limits: Mapping[str, dict[str, dict[str, tuple[str, str]]]] = {}
    frozen: tuple[tuple[str, str, str], ...] = ()


_decoder = msgspec.json.Decoder(_Stored)


def decode_ledger(text: str) -> Ledger:
    """Raises QueueError for what this version can't read; an absent ledger is an empty one."""
    if not text:
        return Ledger()
    try:
        stored = _decoder.decode(text)
        if stored.version != VERSION:
            raise ValueError(f"it is of version {stored.version}, this dnm knows {VERSION}")
        return _from_stored(stored)
    except (ValueError, IndexError, RecursionError, QuantityError) as error:
        raise QueueError(
            f"the annotation {LEDGER_ANNOTATION} can't be read: {error}; if no newer dnm uses this "
            "ConfigMap, look at the limits and say with `dnm queues rebase --as total` or "
            "`--as baseline` whether they contain what is lent"
        ) from error


def _from_stored(stored: _Stored) -> Ledger:
    sections = {}
    for instance, section in stored.instances.items():
        queues = {
            queue: {node: stored.sizes[_checked(index)] for node, index in nodes.items()}
            for queue, nodes in section.queues.items()
        }
        sections[instance] = Section(queues=queues, guaranteed=section.guaranteed)
    entries = {}
    for queue, kinds in stored.limits.items():
        for kind, resources in kinds.items():
            if kind not in KINDS:
                raise ValueError(f"{kind!r} of {queue} is neither max nor guaranteed")
            for resource, (baseline, written) in resources.items():
                parse_yunikorn(resource, baseline)
                parse_yunikorn(resource, written)
                entries[LimitPlace(queue, kind, resource)] = Entry(baseline, written)
    frozen = frozenset(LimitPlace(*place) for place in stored.frozen)
    return Ledger(sections=sections, entries=entries, frozen=frozen)


def _checked(index: int) -> int:
    if index < 0:
        raise IndexError(f"there is no size {index}")
    return index


def encode_ledger(ledger: Ledger) -> str:
    """Equal ledgers give equal texts."""
    sizes: list[dict[str, int]] = []
    index_of: dict[tuple[tuple[str, int], ...], int] = {}
    instances: dict[str, object] = {}
    for instance, section in sorted(ledger.sections.items()):
        queues: dict[str, dict[str, int]] = {}
        for queue, nodes in sorted(section.queues.items()):
            for node, amounts in sorted(nodes.items()):
                key = tuple(sorted(amounts.items()))
                if key not in index_of:
                    index_of[key] = len(sizes)
                    sizes.append(dict(key))
                queues.setdefault(queue, {})[node] = index_of[key]
        instances[instance] = {"queues": queues, "guaranteed": section.guaranteed}
    limits: dict[str, dict[str, dict[str, Entry]]] = {}
    for place, entry in sorted(ledger.entries.items()):
        limits.setdefault(place.queue, {}).setdefault(place.kind, {})[place.resource] = entry
    stored: dict[str, object] = {
        "version": VERSION,
        "sizes": sizes,
        "instances": instances,
        "limits": limits,
    }
    if ledger.frozen:
        stored["frozen"] = sorted(ledger.frozen)
    return json.dumps(stored, separators=(",", ":"), ensure_ascii=False)


def lent_amounts(sections: Iterable[Section]) -> dict[LimitPlace, int]:
    """What the nodes of these sections add to each limit, if it is there: to their queue and to all
    queues above it but root."""
    total: dict[LimitPlace, int] = {}
    for section in sections:
        for queue, nodes in section.queues.items():
            amounts = sum_resources(nodes.values())
            for path in lineage(queue):
                for resource, amount in amounts.items():
                    for kind in KINDS if section.guaranteed else KINDS[:1]:
                        place = LimitPlace(path, kind, resource)
                        total[place] = total.get(place, 0) + amount
    return total


def lineage(queue: str) -> list[str]:
    """The queue and all above it, without root."""
    parts = queue.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 1, -1)]


def sum_resources(sizes: Iterable[Resources]) -> dict[str, int]:
    """Per resource; what is not positive adds nothing."""
    total: dict[str, int] = {}
    for size in sizes:
        for resource, amount in size.items():
            if amount > 0:
                total[resource] = total.get(resource, 0) + amount
    return total
