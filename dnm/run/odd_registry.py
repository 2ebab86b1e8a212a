"""A registry that is not as this dnm has written it: of another release, of the predecessor, moved,
cut off or damaged. What can be read is; for the rest it is said what to do."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.lease import ARRIVING, MOVED, VERSION, unreadable
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.run.state import State

_GONE = ("needs", "unbuffered", "deficits")  # of an older dnm, and nobody reads them any more


def read_odd(content: bytes, config: Config, state: State, now: datetime) -> Registry:
    """Returns the registry of such a document. Raises RegistryError."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(_unreadable(state, f"it is not JSON ({error})")) from error
    if not isinstance(document, dict):
        raise RegistryError(_unreadable(state, "it is not a JSON object"))
    if not document:  # also the predecessor's with no node: nobody can tell it from one that is cut
        raise RegistryError(_unreadable(state, "it is empty (remove it if no node was ever lent)"))
    if "version" not in document:
        from dnm.run.lost import take_over

        return take_over(document, config, state, now)
    version = document["version"]
    if version in (MOVED, ARRIVING):
        raise RegistryError(_on_the_way(document, state))
    if version != VERSION:
        raise RegistryError(
            f"the registry {state.where} has version {version!r}, this dnm knows version "
            f"{VERSION}: run the dnm that wrote it, or restore an older copy"
        )
    if "nodes" not in document:
        raise RegistryError(_unreadable(state, "it has no list of nodes"))
    for name in _GONE:
        document.pop(name, None)
    try:
        return msgspec.convert(document, Registry)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise RegistryError(_unreadable(state, str(error))) from error


def _unreadable(state: State, why: str) -> str:
    return unreadable(state.where, state.previous, why)


def _on_the_way(document: dict[str, Any], state: State) -> str:
    """What to do about a registry that is not in force here (`move.py`)."""
    if document["version"] == ARRIVING:
        return (
            f"the registry is on its way to {state.where}, and the move was not ended: say "
            f"`dnm state move --to {state.kind}` once more"
        )
    moved = (
        f"the registry was moved from {state.where} to {printable(str(document.get('where')), 300)}"
    )
    if state.kind == "kubernetes":
        return (
            f"{moved}, and that host alone acts: set state = file in its [settings], or say there "
            "`dnm state move --to kubernetes`"
        )
    return f"{moved}: set state = kubernetes in [settings] here, or say `dnm state move --to file`"
