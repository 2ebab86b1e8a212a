"""A registry that is missing, or that this release of dnm did not write.

dnm reads a document of the predecessor. If the document is damaged, was moved, or is of another
release, it reports the next step. If no document but a history exists, dnm begins a new registry,
with the pause, holds and exclusions of the history. The reason of its pause names the lost orders
and events. Nothing is lent until an administrator has acknowledged the loss with `dnm resume`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.history import HistoryLine, recorded_moment
from dnm.model.lent import LentNode
from dnm.model.lent_state import Serving
from dnm.model.orders import Keeping, Pause, Way
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.model.stored_registry import ARRIVING, MOVED, VERSION, unreadable
from dnm.record.history_file import History, read_history
from dnm.run.state import State

_MOST = 10  # names in a sentence
_LONGEST = 200  # characters of each
_VERBS = b'"verb"'  # kind of line


def read_unusual(content: bytes | None, config: Config, state: State, now: datetime) -> Registry:
    """Returns the registry from a document that is not in the present form of dnm, or a new
    registry if the document is missing. Raises RegistryError."""
    if content is None:
        if missing := state.missing_error():
            raise RegistryError(missing)
        return _remake(config, state.where, now)
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = f"it is not JSON ({error})" if content.strip() else "the file is empty"
        raise RegistryError(_unreadable(state, why)) from error
    if not isinstance(document, dict):
        raise RegistryError(_unreadable(state, "it is not a JSON object"))
    if not document:  # it may be the predecessor's without nodes, or a cut one
        raise RegistryError(_unreadable(state, "it is empty (remove it if no node was ever lent)"))
    if "version" not in document:
        return _take_over(document, config, state, now)
    version = document["version"]
    if version in (MOVED, ARRIVING):
        raise RegistryError(_on_the_way(document, state))
    if version != VERSION:
        raise RegistryError(
            f"the registry {state.where} has version {version!r}, but this dnm reads only "
            f"version {VERSION}: install the release that wrote it, or restore an older copy"
        )
    if "nodes" not in document:
        raise RegistryError(_unreadable(state, "it has no list of nodes"))
    try:
        return msgspec.convert(document, Registry)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        why = _malformed_node(document["nodes"]) or str(error)
        raise RegistryError(_unreadable(state, why)) from error


def _malformed_node(nodes: Any) -> str:
    """Returns the first malformed node and its error, for example a field that the node's phase
    does not have. Returns an empty text if no node is malformed."""
    for name, entry in nodes.items() if isinstance(nodes, dict) else ():
        try:
            msgspec.convert(entry, LentNode)
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            state = entry.get("state") if isinstance(entry, dict) else None
            phase = state.get("phase") if isinstance(state, dict) else None
            where = f" in phase {printable(str(phase), _LONGEST)}" if phase else ""
            return f"node {printable(str(name), _LONGEST)}{where}: {error}"
    return ""


def _take_over(document: dict[str, Any], config: Config, state: State, now: datetime) -> Registry:
    """Converts the registry of dnm's predecessor: node -> {namespace, last_pod_end, owner}. Its
    nodes serve and count with the configured size of their type. `last_pod_end` is ignored: it is
    the time of the conversion, and idle time starts when dnm first sees the node idle."""
    nodes: dict[str, LentNode] = {}
    for name, entry in document.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("namespace"), str):
            raise RegistryError(_unreadable(state, f"entry {name!r} has no namespace"))
        namespace = entry["namespace"]
        owner = entry.get("owner") or config.instance_id
        policy = config.namespaces.get(namespace)
        if policy is None and owner == config.instance_id:
            raise RegistryError(
                f"the registry {state.where} has node {name!r}, lent to namespace "
                f"{namespace!r}, which monitored_namespaces lacks: add it there until the "
                "node is returned"
            )
        node_type = config.type_of(name) or (policy.node_types[0] if policy else "")
        configured = config.node_types.get(node_type)
        nodes[name] = LentNode(
            node_type=node_type,
            namespace=namespace,
            queue=policy.queue if policy else "",
            owner=str(owner),
            state=Serving(since=now),
            counted=dict(configured.size) if configured else {},
            was_used=True,
        )
    return Registry(nodes=nodes)


def _unreadable(state: State, why: str) -> str:
    return unreadable(state.where, state.previous, why)


def _on_the_way(document: dict[str, Any], state: State) -> str:
    """Returns an error with the next step for a registry that was moved away or is being moved."""
    if document["version"] == ARRIVING:
        return (
            f"the registry is on its path to {state.where}, but the move is incomplete: run "
            f"`dnm registry move --to {state.kind}` again"
        )
    moved = (
        f"the registry was moved from {state.where} to {printable(str(document.get('where')), 300)}"
    )
    if state.kind == "kubernetes":
        return (
            f"{moved}, and only that host acts: set registry = file in its [settings], or run "
            "there `dnm registry move --to kubernetes`"
        )
    here = f"{moved}: set registry = kubernetes in [settings] here"
    return f"{here}, or run `dnm registry move --to file`"


# --- without a registry --------------------------------------------------------------------------


def _remake(config: Config, where: str, now: datetime) -> Registry:
    """Returns a new registry for a lost one, with the pause, holds and exclusions of the history,
    or an empty one if there is no readable history."""
    history = History(config.converted_nodes_path, config.history_keep)
    try:
        if next(read_history(history), None) is None:
            return Registry()
        lines = [line for line in read_history(history, holding=(_VERBS,)) if line.kind == "verb"]
    except OSError:
        return Registry()
    return _replay([line for line in lines if line.instance == config.instance_id], where, now)


def _replay(lines: Iterable[HistoryLine], where: str, now: datetime) -> Registry:
    pause: Pause | None = None
    held: dict[str, Keeping] = {}
    excluded: dict[str, Keeping] = {}
    named: dict[str, str] = {}
    for line in lines:
        until, half = recorded_moment(line.numbers.get("until")), line.numbers.get("half")
        by = f"{line.requester} on {line.host}"
        keeping = Keeping(since=line.time, until=until, reason=line.reason, requester=by)
        match line.event:
            case "pause":
                way = Way(half) if half in ("lending", "returning") else None
                pause = Pause(
                    since=line.time, until=until, reason=line.reason, requester=by, half=way
                )
            case "resume":
                pause = None
            case "hold":
                held[line.object] = keeping
            case "unhold":
                held.pop(line.object, None)
            case "exclude":
                excluded[line.object] = keeping
            case "unexclude":
                excluded.pop(line.object, None)
            case "event remove":
                named.pop(line.object, None)
            case "lend" | "extend" | "event add" if until is None or until > now:
                named[line.object] = printable(f"{line.event} {line.object} by {by}", _LONGEST)
    held = {node: keeping for node, keeping in held.items() if keeping.is_in_force(now)}
    excluded = {node: keeping for node, keeping in excluded.items() if keeping.is_in_force(now)}
    return Registry(
        pause=_pause(pause if pause and pause.stops(None, now) else None, named, where, now),
        held=tuple(sorted(held)),
        holds=held,
        excluded=excluded,
    )


def _pause(before: Pause | None, named: dict[str, str], where: str, now: datetime) -> Pause:
    """Returns a pause of lending after a loss. Returning pauses too if `before` paused it."""
    stops_both = before is not None and before.half is not Way.LENDING
    was = f"; it was paused by {before.requester} ({before.reason})" if before else ""
    lost = "; ".join(list(named.values())[-_MOST:])
    more = f" and {len(named) - _MOST} more" if len(named) > _MOST else ""
    to_repeat = f"; repeat those that you still need: {lost}{more}" if named else ""
    reason = (
        f"the registry {where} and its previous version are lost. A new one begins: pause, "
        f"holds and exclusions are taken from the history{was}{to_repeat}. Nothing is lent until "
        "you have checked `dnm history --kind verb` and run `dnm resume`"
    )
    half = None if stops_both else Way.LENDING
    return Pause(since=now, reason=reason, half=half, is_after_loss=True, earlier=before)
