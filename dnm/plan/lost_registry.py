"""The replacement of a lost registry, and the names that the Lease keeps of it for this.

Only the registry has the pause and the nodes that are held or excluded. So each run keeps their
names in the Lease, without reasons and operators. If there is no registry, but the cluster shows
that this instance has acted, lending stops until `dnm resume`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from dnm.model.errors import SlurmError
from dnm.model.hostlist import fold_hostlist
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.lease import LONGEST_KEPT, Lease
from dnm.model.orders import Keeping, Pause, Way
from dnm.model.plan import Snapshot
from dnm.model.registry import Registry
from dnm.model.value import Moment, Value

_FROM_LEASE = "the Lease of the instance"
_REPLACED = "begun anew"  # identifies the registry if the Lease is missing too


class _Names(Value, forbid_unknown_fields=False, omit_defaults=True):
    """The pause, held and excluded nodes that a Lease keeps. `held` and `excluded` map an end time
    (empty: none) to a hostlist. `is_cut`: the names were too many for the Lease."""

    pause: dict[str, str] | None = None
    held: dict[str, str] = {}
    excluded: dict[str, str] = {}
    is_cut: bool = False


def keep_names(registry: Registry) -> str:
    """Returns the registry's pause, holds and exclusions as a text for the Lease; empty if none."""
    pause = registry.pause
    if pause is not None and pause.is_after_loss:
        pause = pause.earlier
    if not (pause or registry.held or registry.excluded):
        return ""
    fields = None
    if pause is not None:
        half = pause.half.value if pause.half else ""
        fields = {"until": _end(pause.until), "half": half}
    names = _Names(
        pause=fields,
        held=_fold({node: registry.holds.get(node) for node in registry.held}),
        excluded=_fold(registry.excluded),
    )
    text = msgspec.json.encode(names, order="sorted").decode()
    if len(text) <= LONGEST_KEPT:
        return text
    return msgspec.json.encode(_Names(pause=names.pause, is_cut=True), order="sorted").decode()


def _fold(keepings: Mapping[str, Keeping | None]) -> dict[str, str]:
    ends: dict[str, list[str]] = {}
    for node, keeping in keepings.items():
        ends.setdefault(_end(keeping.until if keeping else None), []).append(node)
    return {end: fold_hostlist(nodes) for end, nodes in ends.items()}


def _end(until: datetime | None) -> str:
    return until.astimezone(UTC).isoformat() if until else ""


def restore_names(registry: Registry, kept: str, now: datetime) -> Registry:
    """Returns the registry with those pauses, holds and exclusions of the text `kept`, from a
    Lease, that have not expired. If the text is unreadable or cut, dnm is paused."""
    try:
        names = msgspec.json.decode(kept, type=_Names) if kept else _Names()
        pause = _read_pause(names, now)
        held, excluded = _read(names.held, now), _read(names.excluded, now)
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError, SlurmError):
        names, held, excluded = _Names(is_cut=True), {}, {}
        pause = None
    if names.is_cut and pause is None:
        reason = "more nodes were held or excluded than the Lease can name: repeat these commands"
        pause = Pause(since=now, reason=reason, requester=_FROM_LEASE)
    holds = {**held, **registry.holds}
    return replace(
        registry,
        pause=registry.pause or pause,
        held=tuple(sorted({*held, *registry.held})),
        holds=holds,
        excluded={**excluded, **registry.excluded},
    )


def _read_pause(names: _Names, now: datetime) -> Pause | None:
    if names.pause is None:
        return None
    half = names.pause["half"]
    pause = Pause(
        since=now,
        until=_moment(names.pause["until"]),
        reason="it was paused before its registry was lost",
        requester=_FROM_LEASE,
        half=Way(half) if half else None,
    )
    return pause if pause.stops(None, now) else None


def _read(folded: Mapping[str, str], now: datetime) -> dict[str, Keeping]:
    keepings: dict[str, Keeping] = {}
    for end, nodes in folded.items():
        keeping = Keeping(since=now, until=_moment(end), requester=_FROM_LEASE)
        if keeping.is_in_force(now):
            keepings.update(dict.fromkeys(expand_hostlist(nodes), keeping))
    return keepings


def _moment(text: str) -> datetime | None:
    return msgspec.convert(text, Moment) if text else None


# --- the loss ---------------------------------------------------------------------------------


def replace_lost(registry: Registry, snapshot: Snapshot, traces: Iterable[str]) -> Registry:
    """Returns the registry that replaces a lost one. `traces` are clauses that show the loss. The
    loss is reported only once."""
    lease = snapshot.lease if isinstance(snapshot.lease, Lease) else Lease()
    word = lease.registry or _REPLACED
    if registry.pause is None or not registry.pause.is_after_loss:  # the history reports it already
        registry = recreate(registry, lease.kept, " and ".join(traces), snapshot.taken_at)
    return replace(registry, lease_words=(word,))


def recreate(registry: Registry, kept: str, traces: str, now: datetime) -> Registry:
    """Returns the registry with the names kept in the Lease. Until `dnm resume`, lending is paused,
    and returns if the earlier pause stopped them; then the earlier pause applies again."""
    restored = restore_names(registry, kept, now)
    earlier = restored.pause
    stops_both = earlier is not None and earlier.half is not Way.LENDING
    reason = (
        f"the registry was lost and is created again: there is none, but {traces} that this "
        "instance has acted before. Its pause, holds and exclusions come from its Lease; orders, "
        "events and restrictions are lost. No node is lent until you have checked `dnm status` and "
        "run `dnm resume`"
    )
    half = None if stops_both else Way.LENDING
    pause = Pause(since=now, reason=reason, half=half, is_after_loss=True, earlier=earlier)
    return replace(restored, pause=pause)
