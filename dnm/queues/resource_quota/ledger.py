"""The ledger in an annotation of a ResourceQuota: the lent nodes of each dnm instance that the
limits contain, and each limit without these nodes.

dnm writes limits and ledger in one request, after it has recorded the same ledger in the registry.
A ledger is current if the quota still has the limits that were written with it. The ledger in the
quota has precedence over the registry's. If neither is current, another client has changed the
limits. Limits from an applied manifest contain no lent nodes. Limits that an administrator edited
contain them. If dnm cannot distinguish the two, it asks the administrator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from dnm.model.errors import QueueError
from dnm.model.printable import printable
from dnm.model.quantity import add_to
from dnm.model.quota import ResourceQuota, amount_of, are_equal, is_of_limits, resource_of, text_of
from dnm.model.value import Resources, Value

LEDGER = "dynamic-node-manager/ledger"
ANSWER = "dynamic-node-manager/limits-are"  # baseline or total
VERSION = 1


class QuotaLedger(Value, omit_defaults=True):
    """The ledger of a ResourceQuota. `place` is its namespace and name. `instances`: instance ->
    node -> amounts. `limits`: key of `spec.hard` -> (text without lent nodes, text as written).
    `earlier`, only in the registry: the ledger before a write that has perhaps not happened."""

    version: int = VERSION
    place: str = ""
    instances: Mapping[str, Mapping[str, Resources]] = {}
    limits: Mapping[str, tuple[str, str]] = {}
    earlier: QuotaLedger | None = None

    @property
    def raises_limits(self) -> bool:
        """Returns whether a limit differs from its baseline."""
        return any(base != text for base, text in self.limits.values())


class QuotaContent(NamedTuple):
    """The limits of a quota without lent nodes, and the ledger from which they follow. `note`: why
    it is not the quota's own ledger. `is_reset`: an applied manifest has removed the lent nodes."""

    ledger: QuotaLedger
    baselines: Mapping[str, str]
    note: str = ""
    is_reset: bool = False


def lent_of(instances: Iterable[Mapping[str, Resources]]) -> dict[str, int]:
    """Returns the sum of the resources of all nodes that these instances lend."""
    total: dict[str, int] = {}
    for size in (size for nodes in instances for size in nodes.values()):
        add_to(total, size)
    return total


def share_of(key: str, lent: Resources, baselines: Mapping[str, str]) -> int:
    """Returns what lent nodes add to the limit `key`. A limit on `limits` of pods grows in
    proportion to that on their `requests`. A quota that allows 0 pods keeps this limit."""
    amount, base = lent.get(resource_of(key), 0), amount_of(key, baselines[key])
    if resource_of(key) == "pods" and base == 0:
        return 0
    name = key.removeprefix("limits.")
    requests = amount_of(key, baselines.get(f"requests.{name}") or baselines.get(name, "0"))
    return amount * base // requests if is_of_limits(key) and requests else amount


def decode_ledger(text: str) -> QuotaLedger | None:
    """Returns the ledger that `text` encodes, or None if the text is not a valid ledger."""
    try:
        ledger = msgspec.json.decode(text, type=QuotaLedger)
        for key, texts in ledger.limits.items():
            for limit in texts:
                amount_of(key, limit)
    except (msgspec.MsgspecError, QueueError, RecursionError):
        return None
    return ledger if ledger.version == VERSION else None


def ledger_of(quota: ResourceQuota) -> QuotaLedger | None:
    """Returns the ledger in the quota's annotation; None if it is invalid or of another quota."""
    text = quota.annotations.get(LEDGER)
    ledger = decode_ledger(text) if text else QuotaLedger(place=quota.place)
    return ledger if ledger and ledger.place == quota.place else None


def find_content(
    quota: ResourceQuota, recorded: QuotaLedger | None, instance: str, own: Mapping[str, Resources]
) -> QuotaContent:
    """Returns a quota's limits without lent nodes. `recorded`: its ledger in the registry (None: no
    run has recorded one). `own`: the nodes of this instance that serve the namespace. Raises
    QueueError if only an administrator knows whether the limits contain lent nodes."""
    stored, hard = ledger_of(quota), quota.hard
    earlier = recorded and recorded.earlier
    previous = recorded or QuotaLedger()
    if stored and stored.limits:
        previous = stored
    elif earlier and earlier.raises_limits and not _is_applied(earlier, quota):
        previous = earlier  # a run was killed before its write, and the annotation is lost
    if answer := quota.annotations.get(ANSWER):
        if answer == "total":
            ledger = replace(previous, instances={instance: own, **previous.instances})
            return _as_total(quota, ledger, "an administrator answered: with lent nodes", True)
        if answer != "baseline":
            raise _question(quota, f"the answer {printable(answer, 40)!r} does not fit")
        return QuotaContent(previous, hard, "an administrator answered: without lent nodes")
    if stored and _is_current(stored, hard):
        if any(item and _is_baseline_of(stored, item, instance) for item in (recorded, earlier)):
            raise _question(quota, "another instance has replaced the lost ledger")
        return _unchanged(stored, hard)
    for kept in (recorded, previous):
        if kept and _is_current(kept, hard):
            if kept.raises_limits:
                return _unchanged(kept, hard, "dnm writes its lost or older ledger again")
            return QuotaContent(QuotaLedger(), hard)  # another instance may have removed its nodes
    moved = [key for key, (base, text) in previous.limits.items()
             if key in hard and not are_equal(key, base, text)]  # fmt: skip
    written = [key for key in moved if are_equal(key, hard[key], previous.limits[key][1])]
    reset = [key for key in moved if are_equal(key, hard[key], previous.limits[key][0])]
    changed = [key for key in moved if key not in written]
    applied = {key for key in moved if are_equal(key, hard[key], quota.manifest.get(key, ""))}
    rest = {key: previous.limits[key][0] for key in written if key not in applied}
    if moved and not changed:
        return QuotaContent(previous, {**hard, **rest})
    if (reset and not written) or (changed and applied.issuperset(changed)):
        # Without an annotation, other instances have removed their nodes, or add them again.
        ledger = stored if stored and stored.limits else QuotaLedger()
        return QuotaContent(ledger, {**hard, **rest}, "a manifest was applied", is_reset=True)
    if stored is None:
        raise _question(quota, "its ledger is unreadable, or of another object")
    if not moved:
        if recorded is None and own and instance not in previous.instances:
            raise _question(quota, "no run has recorded its limits")
        return QuotaContent(stored, hard)
    if not stored.limits or (recorded and replace(recorded, earlier=None) != stored):
        raise _question(quota, "its ledger is lost or older, and its limits were changed")
    return _as_total(quota, stored, "an administrator has changed it")


def _is_current(ledger: QuotaLedger, hard: Mapping[str, str]) -> bool:
    written = {key: text for key, (_, text) in ledger.limits.items() if key in hard}
    return bool(written) and all(are_equal(key, hard[key], written[key]) for key in written)


def _is_applied(ledger: QuotaLedger, quota: ResourceQuota) -> bool:
    """Returns whether a manifest has set every limit that the ledger raises."""
    raised = [key for key, (base, text) in ledger.limits.items() if base != text]
    return all(
        key not in quota.hard or are_equal(key, quota.hard[key], quota.manifest.get(key, ""))
        for key in raised
    )


def _is_baseline_of(stored: QuotaLedger, recorded: QuotaLedger, instance: str) -> bool:
    """Returns whether another instance may have taken limits with this instance's nodes, which it
    did not know, for limits without lent nodes."""
    if instance in stored.instances or not recorded.instances.get(instance):
        return False
    return any(
        key in recorded.limits
        and are_equal(key, base, recorded.limits[key][1])
        and not are_equal(key, base, recorded.limits[key][0])
        for key, (base, _) in stored.limits.items()
    )


def _unchanged(ledger: QuotaLedger, hard: Mapping[str, str], note: str = "") -> QuotaContent:
    old = {key: base for key, (base, _) in ledger.limits.items() if key in hard}
    return QuotaContent(ledger, {**hard, **old}, note)


def _as_total(
    quota: ResourceQuota, ledger: QuotaLedger, note: str, is_for_all: bool = False
) -> QuotaContent:
    """Returns the baselines on the assumption that limits contain the lent nodes. It applies to
    limits that another client has changed or, with `is_for_all`, to all limits of the ledger (of
    the quota, if the ledger has none)."""
    previous = _unchanged(ledger, quota.hard, note)
    lent, baselines = lent_of(ledger.instances.values()), dict(previous.baselines)
    limits = ledger.limits or {key: (text, text) for key, text in quota.hard.items()}
    for key, (_, written) in limits.items():
        text = quota.hard.get(key, written)
        if key in quota.hard and (is_for_all or not are_equal(key, text, written)):
            rest = amount_of(key, text) - share_of(key, lent, previous.baselines)
            if rest < 0:
                raise _question(quota, f"{key} is less than the lent nodes have")
            baselines[key] = text_of(key, rest)
    return previous._replace(baselines=baselines)


def _question(quota: ResourceQuota, why: str) -> QueueError:
    return QueueError(
        f"ResourceQuota {quota.place}: {why}, so it is unclear whether its limits contain the "
        f"lent nodes. If they do, run `kubectl annotate resourcequota -n {quota.namespace} "
        f"{quota.name} {ANSWER}=total`; if they contain none of them, `{ANSWER}=baseline`"
    )
