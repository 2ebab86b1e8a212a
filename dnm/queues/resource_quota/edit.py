"""Functions that compute new limits of ResourceQuotas. A limit is its baseline (without lent nodes)
plus the resources of the nodes that serve the namespace, and at least what its pods use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from dnm.model.cluster import QueueLimits
from dnm.model.errors import QueueError
from dnm.model.printable import count_of
from dnm.model.quantity import INT64_MAX
from dnm.model.queue_edit import LimitChange, LimitNews, QueueEdit, QueueNumbers, QueueWants
from dnm.model.quota import (
    ResourceQuota,
    amount_of,
    is_of_limits,
    resource_of,
    smallest_limits,
    text_of,
)
from dnm.model.value import Resources, Value
from dnm.queues.resource_quota.ledger import (
    ANSWER,
    LEDGER,
    QuotaLedger,
    find_content,
    ledger_of,
    lent_of,
    share_of,
)
from dnm.queues.resource_quota.objects import QuotaFacts


class PlannedQuota(Value):
    """A ResourceQuota with its next limits and ledger. `earlier`: the ledger of its present limits.
    `held`: why limits in use do not shrink."""

    quota: ResourceQuota
    hard: Mapping[str, str]
    ledger: QuotaLedger
    earlier: QuotaLedger | None = None
    changes: tuple[LimitChange, ...] = ()
    held: tuple[str, ...] = ()
    news: LimitNews | None = None

    @property
    def baselines(self) -> Mapping[str, str]:
        return {key: self.ledger.limits.get(key, (text,))[0] for key, text in self.hard.items()}

    @property
    def annotation(self) -> str:
        """Returns the ledger as the text of an annotation; empty if the ledger is empty."""
        is_empty = not (self.ledger.instances or self.ledger.raises_limits)
        return "" if is_empty else msgspec.json.encode(self.ledger, order="sorted").decode()

    @property
    def annotations(self) -> dict[str, str | None]:
        """Returns the annotations to change; the value None removes one from the ResourceQuota."""
        old, text = self.quota.annotations, self.annotation
        changed = {LEDGER: text or None} if text != old.get(LEDGER, "") else {}
        return {**changed, **({ANSWER: None} if ANSWER in old else {})}

    @property
    def is_changed(self) -> bool:
        return bool(self.changes or self.annotations)

    @property
    def record(self) -> QuotaLedger:
        """Returns the ledger for the registry, which a run saves before it writes the quota."""
        return replace(self.ledger, earlier=self.earlier) if self.is_changed else self.ledger


def current_quota(quota: ResourceQuota) -> PlannedQuota:
    """Returns the quota with its present limits and the ledger in its annotation, unchanged."""
    return PlannedQuota(quota=quota, hard=quota.hard, ledger=ledger_of(quota) or QuotaLedger())


def plan_quota(
    quota: ResourceQuota, recorded: QuotaLedger | None, wants: QueueWants
) -> PlannedQuota:
    """Returns the next limits and ledger of a quota, for the serving nodes in `wants`. Raises
    QueueError if only an administrator knows whether its current limits contain the lent nodes."""
    raised = {resource_of(key) for key in quota.hard}
    own = {
        node: {name: size[name] for name in sorted(raised & size.keys()) if size[name] > 0}
        for node, size in sorted(wants.nodes.get(quota.namespace, {}).items())
    }
    content = find_content(quota, recorded, wants.instance_id, own)
    instances = {**content.ledger.instances, wants.instance_id: own}
    instances = {name: nodes for name, nodes in sorted(instances.items()) if nodes}
    lent = lent_of(instances.values())
    hard, held, changes = dict(quota.hard), [], []
    for key, text in sorted(quota.hard.items()):
        base, current = content.baselines[key], amount_of(key, text)
        target = min(amount_of(key, base) + share_of(key, lent, content.baselines), INT64_MAX)
        used = _used(quota, key, wants)
        amount = max(target, min(current, used))
        if amount > target:
            stays, instead = text_of(key, amount), text_of(key, target)
            held.append(f"{key} stays at {stays} instead of {instead}: it is in use")
        if amount != current:
            hard[key] = base if amount == amount_of(key, base) else text_of(key, amount)
            why = content.note or f"{count_of(len(own), 'node')} lent"
            changes.append(LimitChange(queue=quota.namespace, kind=quota.name, resource=key,
                                       before=text, after=hard[key], why=why))  # fmt: skip
    limits, earlier = (
        {key: (content.baselines[key], texts[key]) for key in sorted(hard)}
        for texts in (hard, quota.hard)
    )
    news = f"ResourceQuota {quota.name}: {content.note}"
    return PlannedQuota(
        quota=quota,
        hard=hard,
        ledger=QuotaLedger(place=quota.place, instances=instances, limits=limits),
        earlier=QuotaLedger(place=quota.place, instances=content.ledger.instances, limits=earlier),
        changes=tuple(changes),
        held=tuple(held),
        news=LimitNews(queue=quota.namespace, text=news, is_reset=content.is_reset)
        if content.note
        else None,
    )


def _used(quota: ResourceQuota, key: str, wants: QueueWants) -> int:
    """Returns the pods' use of a resource: the larger of the quota's status and dnm's own count."""
    floors = {} if is_of_limits(key) else wants.floors.get(quota.namespace, {})
    return max(amount_of(key, quota.used.get(key, "0")), floors.get(resource_of(key), 0))


Ledgers: TypeAlias = Mapping[str, QuotaLedger | None]
"""The ledger of each quota by its namespace and name. None: no run has recorded this ledger, since
it asked an administrator a question. The name of a namespace with None: its quotas were unread."""


class _Record(Value):
    resource_quotas: Ledgers


def decode_record(text: str | None) -> Ledgers | None:
    """Returns the quotas' ledgers from the text that the registry has of them. Returns None if no
    run with this queue system has written that text."""
    try:
        return msgspec.json.decode(text or "", type=_Record).resource_quotas
    except msgspec.MsgspecError:
        return {} if text == "" else None


def encode_record(ledgers: Ledgers) -> str:
    record = _Record(resource_quotas=ledgers)
    return msgspec.json.encode(record, order="sorted").decode()


def limits_of(namespaces: Iterable[str], items: Sequence[PlannedQuota]) -> dict[str, QueueLimits]:
    """Returns the limits of each namespace: for each resource, the smallest limit of its quotas."""
    limits = {}
    for name in namespaces:
        most = smallest_limits(item.hard for item in items if item.quota.namespace == name)
        fixed = frozenset({"pods"} if most.get("pods") == 0 else ())
        limits[name] = QueueLimits(path=name, parent=None, is_leaf=True, max=most, fixed=fixed)
    return limits


def numbers_of(
    namespaces: Iterable[str], items: Sequence[PlannedQuota], instance: str
) -> dict[str, QueueNumbers]:
    """Returns limit and baseline of each namespace, and how much nodes of `instance` add to it."""
    numbers = {}
    for name in namespaces:
        own = [item for item in items if item.quota.namespace == name]
        nodes: dict[str, Resources] = {}
        for item in own:  # each quota names only the resources that it limits
            for node, size in item.ledger.instances.get(instance, {}).items():
                nodes[node] = {**nodes.get(node, {}), **size}
        numbers[name] = QueueNumbers(
            limit=smallest_limits(item.hard for item in own),
            baseline=smallest_limits(item.baselines for item in own),
            lent=lent_of([nodes]),
        )
    return numbers


def show(items: Iterable[PlannedQuota]) -> str:
    """Returns limits and ledgers of quotas as lines of text, so that diff can compare them."""
    lines = []
    for item in items:
        lines += [f"{item.quota.place} {key}: {text}\n" for key, text in sorted(item.hard.items())]
        lines += [f"{item.quota.place} {LEDGER}: {item.annotation}\n"] * bool(item.annotation)
    return "".join(lines)


def noted_without(edit: QueueEdit, before: str | None, unwritten: Iterable[str]) -> str:
    """Returns the ledgers of an edit as the registry stores them. Quotas that could not be written
    (`unwritten`: namespace and name) keep their ledgers in `before`."""
    noted, old = dict(decode_record(edit.record) or {}), decode_record(before) or {}
    for place in unwritten:
        noted.pop(place, None)
        if place in old:
            noted[place] = old[place]
    return encode_record(noted)


class QuotaEdit(QueueEdit):
    """An edit of ResourceQuotas. `planned` has all quotas, also those that cannot be changed."""

    planned: tuple[PlannedQuota, ...] = ()


def plan_edit(facts: QuotaFacts, namespaces: Iterable[str], wants: QueueWants) -> QuotaEdit:
    """Returns the edit of all quotas. If it is unclear whether the limits of a quota contain the
    lent nodes, that quota stays unchanged, and its namespace alone gets no further node."""
    records = decode_record(wants.remembered)
    noted: dict[str, QuotaLedger | None] = dict(records or {})
    planned, blocked = [], {}
    if records is None:
        noted = dict.fromkeys(facts.unread_queues)
    unrecorded = {name for name in noted if name not in facts.unread_queues and "/" not in name}
    for quota in facts.quotas:
        is_unrecorded = records is None or quota.namespace in unrecorded
        recorded = noted.get(quota.place, None if is_unrecorded else QuotaLedger())
        try:
            item = plan_quota(quota, recorded, wants)
            noted[quota.place] = item.record
        except QueueError as error:
            item, blocked[quota.namespace] = current_quota(quota), str(error)
            if recorded is None:  # the next run asks again
                noted[quota.place] = None
        planned.append(item)
    news = tuple(item.news for item in planned if item.news)
    held = {item.quota.namespace: "; ".join(item.held) for item in planned if item.held}
    return QuotaEdit(
        record=encode_record({key: noted[key] for key in noted if key not in unrecorded}),
        is_changed=any(item.is_changed for item in planned) or bool(facts.waiting),
        changes=tuple(change for item in planned for change in item.changes),
        limit_news=news,
        reset_by="a manifest" if any(item.is_reset for item in news) else "",
        refused=blocked,
        held={**held, **blocked},
        blocked=blocked,
        uncounted={name: why for name, why in blocked.items() if wants.nodes.get(name)},
        numbers=numbers_of(namespaces, planned, wants.instance_id),
        limits=limits_of(namespaces, planned),
        planned=tuple(planned),
    )
