"""The ledger in an annotation of the queue document: the nodes that each instance lends to each
queue, and the checksum of the document. For each limit that these nodes change, it has the baseline
and the text that dnm last wrote.

All instances share one JSON document, and each writes only its own section. Kubernetes allows 256
KiB for all annotations of an object, so the format is terse. Each distinct size of a node is stored
once in `sizes`. The entry of a limit is its baseline if dnm wrote baseline plus lent amount, else
`[baseline, written]`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

import msgspec

from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError, add_to
from dnm.model.queue_path import lineage
from dnm.model.value import Resources, Value
from dnm.queues.yunikorn.quantities import format_yunikorn, parse_yunikorn
from dnm.queues.yunikorn.source import LEDGER_ANNOTATION
from dnm.queues.yunikorn.tree import KINDS, LimitPlace

VERSION = 1
_HASH = 8  # hexadecimal digits of a recorded total
MOST_TOTALS = 2000  # some months of a busy site; the oldest are dropped


class Section(Value):
    """The lends of an instance: queue -> node -> amounts. `guaranteed`: its guarantees grow too."""

    queues: Mapping[str, Mapping[str, Resources]] = {}
    guaranteed: bool = True


class LedgerEntry(NamedTuple):
    """A limit in a ledger: its baseline and dnm's last text of it, in YuniKorn's grammar."""

    baseline: str
    written: str

    def is_moved(self, resource: str) -> bool:
        """Returns whether the amount that dnm last wrote differs from the baseline."""
        return parse_yunikorn(resource, self.baseline) != parse_yunikorn(resource, self.written)


class Ledger(Value):
    """The decoded ledger. `frozen`: limits that an administrator set below the lent amount. dnm
    leaves them until nothing is lent or the administrator explains them. `text`: the checksum of
    the document that the ledger was written with. `origin`: the checksum of the document before the
    first lend. `totals`: hashes of earlier amounts that contained lent nodes and that the document
    no longer has."""

    sections: Mapping[str, Section] = {}
    entries: Mapping[LimitPlace, LedgerEntry] = {}
    frozen: frozenset[LimitPlace] = frozenset()
    text: str = ""
    origin: str = ""
    totals: tuple[str, ...] = ()

    def of(self, instance: str) -> Section:
        """Returns the section of the ledger about this instance; empty if there is none."""
        return self.sections.get(instance, Section())

    @property
    def is_empty(self) -> bool:
        """Returns whether no node is lent and each limit equals its baseline, by this ledger."""
        return not (self.sections or self.entries or self.frozen)


def checksum(text: str) -> str:
    """Returns the checksum by which a ledger names the text of its queue document."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def total_hash(place: LimitPlace, amount: int) -> str:
    """Returns the hash by which a ledger remembers that a limit had this amount with lent nodes."""
    text = "\0".join((*place, str(amount)))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH]


def current_totals(entries: Mapping[LimitPlace, LedgerEntry]) -> dict[str, None]:
    """Returns the hashes of the limits that dnm wrote last, if lent nodes are in them."""
    return {
        total_hash(place, parse_yunikorn(place.resource, entry.written)): None
        for place, entry in sorted(entries.items())
        if entry.is_moved(place.resource)
    }


def all_totals(ledger: Ledger) -> dict[str, None]:
    """Returns the hashes of all limits that dnm ever wrote with lent nodes in them, in order."""
    return dict.fromkeys(ledger.totals) | current_totals(ledger.entries)


_Path = Annotated[str, msgspec.Meta(max_length=1024)]  # the amounts of each ancestor are summed up
_Row = Annotated[int, msgspec.Meta(ge=0)]


class _StoredSection(Value):
    queues: Mapping[_Path, dict[str, _Row]] = {}  # queue -> node -> row of sizes
    guaranteed: bool = True


class _Stored(Value, omit_defaults=True):
    version: int
    resources: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    instances: Mapping[str, _StoredSection] = {}
    limits: Mapping[str, dict[str, dict[str, str | tuple[str, str]]]] = {}
    frozen: tuple[tuple[str, str, str], ...] = ()
    text: str = ""
    origin: str = ""
    totals: str = ""


_decoder = msgspec.json.Decoder(_Stored)


def decode_ledger(text: str) -> Ledger:
    """Decodes a ledger; an empty text gives an empty ledger. Raises QueueError if it can't be
    read."""
    if not text:
        return Ledger()
    try:
        stored = _decoder.decode(text)
        if stored.version != VERSION:
            raise ValueError(f"its version is {stored.version}, this dnm reads version {VERSION}")
        return _from_stored(stored)
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError, QuantityError) as error:
        raise QueueError(
            f"cannot read the annotation {LEDGER_ANNOTATION}: {error}. If no newer dnm uses this "
            "ConfigMap, look at the limits. If they contain the lent nodes, run "
            "`dnm queues rebase --as total`, else `dnm queues rebase --as baseline`"
        ) from error


def _from_stored(stored: _Stored) -> Ledger:
    rows = [zip(stored.resources, row, strict=False) for row in stored.sizes]
    sizes = [{name: amount for name, amount in row if amount > 0} for row in rows]
    sections = {
        instance: Section(
            queues={
                queue: {node: sizes[row] for node, row in nodes.items()}
                for queue, nodes in section.queues.items()
            },
            guaranteed=section.guaranteed,
        )
        for instance, section in stored.instances.items()
    }
    lent = lent_amounts(sections.values())
    entries = {}
    for queue, kinds in stored.limits.items():
        for kind, resources in kinds.items():
            if kind not in KINDS:
                raise ValueError(f"{kind!r} of {queue} is neither max nor guaranteed")
            for resource, limit in resources.items():
                place = LimitPlace(queue, kind, resource)
                if isinstance(limit, str):
                    limit = (limit, _written(place, limit, lent))
                for text in limit:
                    parse_yunikorn(resource, text)
                entries[place] = LedgerEntry(*limit)
    return Ledger(
        sections=sections,
        entries=entries,
        frozen=frozenset(LimitPlace(*place) for place in stored.frozen),
        text=stored.text,
        origin=stored.origin,
        totals=tuple(stored.totals[at : at + _HASH] for at in range(0, len(stored.totals), _HASH)),
    )


def _written(place: LimitPlace, baseline: str, lent: LentAmounts) -> str:
    amount = parse_yunikorn(place.resource, baseline) + lent.at(place)
    return format_yunikorn(place.resource, amount, baseline)


def encode_ledger(ledger: Ledger) -> str:
    """Returns the text of the annotation. Equal ledgers give equal texts."""
    if ledger == Ledger():
        return ""
    parts = [nodes for part in ledger.sections.values() for nodes in part.queues.values()]
    sizes = [size for nodes in parts for size in nodes.values()]
    resources = sorted({resource for size in sizes for resource in size})

    def row_of(size: Resources) -> tuple[int, ...]:
        return tuple(size.get(name, 0) for name in resources)

    rows = sorted(set(map(row_of, sizes)))
    number_of = {row: number for number, row in enumerate(rows)}
    instances = {
        instance: {
            "queues": {
                queue: {node: number_of[row_of(size)] for node, size in sorted(nodes.items())}
                for queue, nodes in sorted(section.queues.items())
            },
            "guaranteed": section.guaranteed,
        }
        for instance, section in sorted(ledger.sections.items())
    }
    lent = lent_amounts(ledger.sections.values())
    limits: dict[str, dict[str, dict[str, object]]] = {}
    for place, entry in sorted(ledger.entries.items()):
        is_plain = entry.written == _written(place, entry.baseline, lent)
        limits.setdefault(place.queue, {}).setdefault(place.kind, {})[place.resource] = (
            entry.baseline if is_plain else entry
        )
    stored: dict[str, object] = {
        "version": VERSION,
        "resources": resources,
        "sizes": rows,
        "instances": instances,
        "limits": limits,
    }
    if ledger.frozen:
        stored["frozen"] = sorted(ledger.frozen)
    if ledger.text:
        stored |= {"text": ledger.text, "origin": ledger.origin}
        stored["totals"] = "".join(ledger.totals[-MOST_TOTALS:])
    return json.dumps(stored, separators=(",", ":"), ensure_ascii=False)


class LentAmounts(NamedTuple):
    """The sum that lent nodes add to each limit (max and guaranteed), by queue and resource."""

    max: Mapping[str, Resources]
    guaranteed: Mapping[str, Resources]

    def at(self, place: LimitPlace) -> int:
        """Returns the amount that lent nodes add to a limit, in YuniKorn's units."""
        amounts = self.max if place.kind == "max" else self.guaranteed
        return amounts.get(place.queue, {}).get(place.resource, 0)


def lent_amounts(sections: Iterable[Section]) -> LentAmounts:
    """Returns the amounts that lent nodes add to the limits of their queues and of all ancestors
    except root. A section of the ledger lists the nodes of one instance of dnm."""
    sections = list(sections)
    maximum = _sum_up_the_tree(sections)
    if all(section.guaranteed for section in sections):
        return LentAmounts(maximum, maximum)
    guaranteed = [section for section in sections if section.guaranteed]
    return LentAmounts(maximum, _sum_up_the_tree(guaranteed))


def _sum_up_the_tree(sections: Iterable[Section]) -> dict[str, dict[str, int]]:
    total: dict[str, dict[str, int]] = {}
    for section in sections:
        for queue, nodes in section.queues.items():
            amounts = sum_resources(nodes.values())
            for path in lineage(queue):
                add_to(total.setdefault(path, {}), amounts)
    return total


def sum_resources(sizes: Iterable[Resources]) -> dict[str, int]:
    """Returns the sum of sizes for each resource. Amounts that are not positive add nothing."""
    total: dict[str, int] = {}
    for size in sizes:
        for resource, amount in size.items():
            if amount > 0:
                total[resource] = total.get(resource, 0) + amount
    return total
