"""Our reservation of a node once it stands: charged to an account and a claim again, released, and
taken out of the shared one of the site's script before.

Charged, the claim is a reservation that Slurm's accounting books as planned. What holds the node in
each moment: the reservation, which Slurm grants once; then the drain with our mark, which is read
back twice. Only then is the reservation changed, for over an accounting one Slurm grants others:
until it is undone drain and mark are the lock, since every claim looks for a drain. It is undone
before the drain is lifted, so that the reservation holds the node again until it is deleted. Each
change is looked up, never remembered; none of it stops a lend.

Conversions of any host take turns at the shared reservation: Slurm gives the name of a turn once,
whoever asks for it, and ends it by itself, should whoever has it be killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from dnm.converters.conversion import SLURM_PATIENCE, NodeConversion
from dnm.converters.select import is_own_reservation
from dnm.converters.slurm.commands import IN_ANOTHER, SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import ABOVE_ALL, NOBODY, Reservation
from dnm.model.errors import SlurmError

ACCOUNT = "account"  # key of the journal's facts: whom what is lent is charged to
# Each change of a reservation has slurmdbd write how all reserved nodes are, and of what it hears
# in one second it keeps the first. So it is said again in the next, when it stands already.
_NEXT_ROW = timedelta(seconds=1)


def charge(conversion: NodeConversion) -> str:
    """Charges a claim that stands, where an account is asked for; returns what the journal is to
    say of it. What can't be charged is lent all the same."""
    account = conversion.journal.facts.get(ACCOUNT, "").lower()  # as Slurm writes them
    if not account:
        return ""
    try:
        why = _charge(conversion, account)
    except SlurmError as error:
        why = error.answer if isinstance(error, SlurmRefused) else str(error)
    if not why:
        return f"; charged to {account}"
    conversion.say(f"not charged to {account}: {why}")
    return f"; not charged to {account}: {why}"


def _charge(conversion: NodeConversion, account: str) -> str:
    """Why it can't be; empty where it is charged."""
    if not conversion.patiently(conversion.slurm.keeps_accounts):
        return "this Slurm has no slurmdbd (AccountingStorageType)"
    if other := _reserved_besides(conversion):
        return f"the reservation {other} holds it too, and its time would count twice"
    name, to = conversion.reservation, ABOVE_ALL if account == NOBODY else account

    def is_so() -> bool:
        found = _own(conversion, name)
        return found is not None and found.charged_to == account

    conversion.change_slurm(lambda: conversion.slurm.charge_reservation(name, to), is_so)
    conversion.wait(_NEXT_ROW)
    conversion.patiently(lambda: conversion.slurm.charge_reservation(name, to))
    return ""


def _reserved_besides(conversion: NodeConversion) -> str:
    """The booking of an event, say, that the node was taken from under."""
    now = datetime.now(UTC)
    others = (one for one in reservations_of(conversion) if one.name != conversion.reservation)
    return next((one.name for one in others if one.holds_at(now)), "")


def _own(conversion: NodeConversion, name: str) -> Reservation | None:
    found = _named(conversion, name)
    return found if found and found.nodes == (conversion.node,) else None


def uncharge(conversion: NodeConversion) -> None:
    """Makes our reservation the claim again that it was. Where somebody else has reserved the node
    meanwhile it can't be one; it lets no job of the account in then, and the node is his next."""
    try:
        _uncharge(conversion, keeps_flag=False)
    except SlurmRefused as error:
        conversion.say(f"stays an accounting reservation until it is deleted: {error.answer}")
        _uncharge(conversion, keeps_flag=True)


def _uncharge(conversion: NodeConversion, keeps_flag: bool) -> None:
    name = conversion.reservation

    def is_so() -> bool:
        found = _own(conversion, name)
        return found is None or not (found.accounts or (found.is_charged and not keeps_flag))

    conversion.change_slurm(
        lambda: conversion.slurm.uncharge_reservation(name, keeps_flag=keeps_flag), is_so
    )


def reservations_of(conversion: NodeConversion) -> tuple[Reservation, ...]:
    """Returns those that the node is in, whoever's they are."""
    found = conversion.patiently(conversion.slurm.read_reservations)
    return tuple(one for one in found if conversion.node in one.nodes)


def own_reservations(conversion: NodeConversion) -> tuple[Reservation, ...]:
    """Returns our reservation of this node, and the predecessor's shared one if the node is in
    it."""
    node, prefix = conversion.node, conversion.settings.res_name
    found = reservations_of(conversion)
    return tuple(one for one in found if is_own_reservation(one, node, prefix))


def _named(conversion: NodeConversion, name: str) -> Reservation | None:
    return next((one for one in conversion.slurm.read_reservations() if one.name == name), None)


def _turn(conversion: NodeConversion) -> str:
    """The name of a reservation that only whoever's turn it is has; no node's name has a `_`."""
    return f"{conversion.settings.res_name}_turn"


def has_turn(conversion: NodeConversion) -> bool:
    """Returns whether it still is this node's: a turn is over after a minute."""
    return _own(conversion, _turn(conversion)) is not None


@contextmanager
def our_turn(conversion: NodeConversion) -> Iterator[None]:
    """Waits for the turn, and ends it. Raises SlurmError where others keep it for too long."""
    name = _turn(conversion)
    deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
    while not _takes_turn(conversion, name):
        if time.monotonic() > deadline:
            raise SlurmError(
                f"another conversion is still taking the shared reservation of {conversion.node} "
                f"apart (reservation {name}): repeat"
            )
        conversion.wait(conversion.settings.poll_seconds)
    try:
        yield
    finally:
        with suppress(SlurmError):  # it is over in a minute
            if has_turn(conversion):
                conversion.slurm.delete_reservation(name)


def _takes_turn(conversion: NodeConversion, name: str) -> bool:
    create, minute = conversion.slurm.create_reservation, timedelta(minutes=1)
    try:
        create(name, conversion.node, minute, IN_ANOTHER)
    except SlurmRefused as error:
        if "Duplicate" not in error.answer:
            raise
        return False
    except SlurmOutcomeUnknown:  # if it was made for us, it is over in a minute
        return False
    return True


def release(conversion: NodeConversion) -> None:
    """Takes the node out of our reservation and out of the predecessor's shared one, which
    conversions of any host take apart one after the other: each looks anew what is left of it."""
    if all(len(one.nodes) == 1 for one in own_reservations(conversion)):
        return _release(conversion)
    with our_turn(conversion):
        _release(conversion)


def _release(conversion: NodeConversion) -> None:
    for reservation in own_reservations(conversion):
        if reservation.name == conversion.reservation or len(reservation.nodes) == 1:
            _delete(conversion, reservation.name)
        else:
            _leave_shared(conversion, reservation)


def _delete(conversion: NodeConversion, name: str) -> None:
    conversion.change_slurm(
        lambda: conversion.slurm.delete_reservation(name), lambda: not _named(conversion, name)
    )


def _leave_shared(conversion: NodeConversion, shared: Reservation) -> None:
    """Atomic with Slurm 23.02 and later. Earlier ones can only replace the whole list, which loses
    what somebody adds meanwhile; there the shared reservation is split into one a node."""

    def has_left() -> bool:
        found = _named(conversion, shared.name)
        return found is None or conversion.node not in found.nodes

    try:
        conversion.change_slurm(
            lambda: conversion.slurm.remove_from_reservation(shared.name, conversion.node), has_left
        )
    except SlurmRefused as error:
        if "not supported" not in error.answer:
            raise
        _split(conversion, shared)


def _split(conversion: NodeConversion, shared: Reservation) -> None:
    """The other members get reservations of their own first (OVERLAP, since they are reserved yet),
    then the shared one goes; a kill in between is mended by doing it again."""
    others = [node for node in shared.nodes if node != conversion.node]
    conversion.say(f"splits the reservation {shared.name} into one a node: {', '.join(others)}")
    for node in others:
        name = f"{conversion.settings.res_name}-{node}"

        conversion.change_slurm(
            partial(conversion.slurm.create_reservation, name, node, None, IN_ANOTHER),
            partial(_named, conversion, name),
        )
    now = conversion.patiently(lambda: _named(conversion, shared.name))
    if now and set(now.nodes) - set(shared.nodes):
        raise SlurmError(
            f"somebody added to the reservation {shared.name} meanwhile: stop the script that uses "
            "it, then repeat"
        )
    if not has_turn(conversion):
        raise SlurmError(f"taking the reservation {shared.name} apart took too long: repeat")
    _delete(conversion, shared.name)
