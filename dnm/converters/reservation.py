"""Changes of dnm's reservation of a node: charge an account, end the charge, delete the
reservation, and split it from the predecessor's reservation, which has all nodes.

If an account is charged, it pays for the reservation's time, which Slurm counts as planned.
Something holds the node at each moment: first the reservation, which Slurm grants once; then also
the drain with dnm's mark, read back twice. dnm charges after that, because other reservations may
overlap a charged one: drain and mark are then the lock, since every claim checks for a drain.
Before dnm lifts the drain, it ends the charge, so that the reservation holds the node again. dnm
reads each change back. A lend succeeds even if it can't be charged.

Conversions on any host take turns at the shared reservation. The lock is a reservation with a fixed
name: Slurm grants it once, and it ends by itself if its owner is killed."""

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

ACCOUNT = "account"  # key of the journal's facts: the Slurm account of the lend
# After each change of a reservation slurmdbd records the state of its nodes. It keeps only the
# first record of a second, so dnm repeats the finished change a second later.
_NEXT_ROW = timedelta(seconds=1)


def charge(conversion: NodeConversion) -> str:
    """Charges the time of dnm's reservation to the lend's account, if it has one. Returns the
    result for the journal. A node that can't be charged is lent nevertheless."""
    account = conversion.journal.facts.get(ACCOUNT, "").lower()  # Slurm's spelling
    if not account:
        return ""
    try:
        refusal = _charge(conversion, account)
    except SlurmError as error:
        refusal = error.answer if isinstance(error, SlurmRefused) else str(error)
    if not refusal:
        return f"; charged to {account}"
    conversion.log(f"not charged to {account}: {refusal}")
    return f"; not charged to {account}: {refusal}"


def _charge(conversion: NodeConversion, account: str) -> str:
    """Lets an account pay for the reservation. Returns why it can't pay; empty if it pays."""
    if not conversion.patiently(conversion.slurm.keeps_accounts):
        return "this Slurm has no slurmdbd (AccountingStorageType)"
    if other := _reserved_besides(conversion):
        return f"the reservation {other} holds it too, and its time would count twice"
    name, to = conversion.reservation, ABOVE_ALL if account == NOBODY else account

    def is_so() -> bool:
        own = _own(conversion, name)
        return own is not None and own.charged_to == account

    conversion.change_slurm(lambda: conversion.slurm.charge_reservation(name, to), is_so)
    conversion.wait(_NEXT_ROW)
    conversion.patiently(lambda: conversion.slurm.charge_reservation(name, to))
    return ""


def _reserved_besides(conversion: NodeConversion) -> str:
    """Returns another reservation that now holds the node, e.g. an event's; empty if none does."""
    now = datetime.now(UTC)
    besides = (resv for resv in reservations_of(conversion) if resv.name != conversion.reservation)
    return next((reservation.name for reservation in besides if reservation.holds_at(now)), "")


def _own(conversion: NodeConversion, name: str) -> Reservation | None:
    named = _named(conversion, name)
    return named if named and named.nodes == (conversion.node,) else None


def uncharge(conversion: NodeConversion) -> None:
    """Ends the charge, so that no reservation may overlap dnm's. Slurm refuses that if one does by
    now. Then dnm's reservation only keeps jobs off the node until it is deleted."""
    try:
        _uncharge(conversion, keeps_flag=False)
    except SlurmRefused as error:
        conversion.log(f"stays an accounting reservation until it is deleted: {error.answer}")
        _uncharge(conversion, keeps_flag=True)


def _uncharge(conversion: NodeConversion, keeps_flag: bool) -> None:
    name = conversion.reservation

    def is_so() -> bool:
        own = _own(conversion, name)
        return own is None or not (own.accounts or (own.is_charged and not keeps_flag))

    conversion.change_slurm(
        lambda: conversion.slurm.uncharge_reservation(name, keeps_flag=keeps_flag), is_so
    )


def reservations_of(conversion: NodeConversion) -> tuple[Reservation, ...]:
    """Returns all reservations that name the node."""
    every = conversion.patiently(conversion.slurm.read_reservations)
    return tuple(reservation for reservation in every if conversion.node in reservation.nodes)


def own_reservations(conversion: NodeConversion) -> tuple[Reservation, ...]:
    """Returns this node's dnm reservation, and the predecessor's shared one if it has the node."""
    node, prefix = conversion.node, conversion.settings.res_name
    of_node = reservations_of(conversion)
    return tuple(resv for resv in of_node if is_own_reservation(resv, node, prefix))


def _named(conversion: NodeConversion, name: str) -> Reservation | None:
    return next(
        (resv for resv in conversion.slurm.read_reservations() if resv.name == name),
        None,
    )


def _turn(conversion: NodeConversion) -> str:
    """Returns the name of the reservation that is the lock. Its `_` can't be in a node's name."""
    return f"{conversion.settings.res_name}_turn"


def has_turn(conversion: NodeConversion) -> bool:
    """Returns whether this node has the lock of the shared reservation, which ends in a minute."""
    return _own(conversion, _turn(conversion)) is not None


@contextmanager
def our_turn(conversion: NodeConversion) -> Iterator[None]:
    """Holds the lock of the shared reservation in the block. Raises SlurmError after a time-out."""
    name = _turn(conversion)
    deadline = time.monotonic() + SLURM_PATIENCE.total_seconds()
    while not _takes_turn(conversion, name):
        if time.monotonic() > deadline:
            raise SlurmError(
                f"another conversion is still splitting the shared reservation of "
                f"{conversion.node} (reservation {name}). Repeat the call"
            )
        conversion.wait(conversion.settings.poll_seconds)
    try:
        yield
    finally:
        with suppress(SlurmError):  # it ends after a minute
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
    except SlurmOutcomeUnknown:  # if Slurm made it, it ends after a minute
        return False
    return True


def release(conversion: NodeConversion) -> None:
    """Deletes dnm's reservation and removes the node from the predecessor's shared one. Conversions
    of all hosts change the shared one in turns, and each reads it again."""
    if all(len(reservation.nodes) == 1 for reservation in own_reservations(conversion)):
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
    """Removes the node from the predecessor's reservation of all nodes. Slurm before 23.02 can only
    replace its whole list of nodes and would lose concurrent changes, so dnm splits it instead."""

    def has_left() -> bool:
        current = _named(conversion, shared.name)
        return current is None or conversion.node not in current.nodes

    try:
        conversion.change_slurm(
            lambda: conversion.slurm.remove_from_reservation(shared.name, conversion.node), has_left
        )
    except SlurmRefused as error:
        if "not supported" not in error.answer:
            raise
        _split(conversion, shared)


def _split(conversion: NodeConversion, shared: Reservation) -> None:
    """Reserves each other node of the shared reservation separately (with OVERLAP), then deletes
    the shared one. If this is interrupted, the next call finishes it."""
    members = [node for node in shared.nodes if node != conversion.node]
    conversion.log(f"splits the reservation {shared.name} into one a node: {', '.join(members)}")
    for node in members:
        name = f"{conversion.settings.res_name}-{node}"

        conversion.change_slurm(
            partial(conversion.slurm.create_reservation, name, node, None, IN_ANOTHER),
            partial(_named, conversion, name),
        )
    now = conversion.patiently(lambda: _named(conversion, shared.name))
    if now and set(now.nodes) - set(shared.nodes):
        raise SlurmError(
            f"the reservation {shared.name} got more nodes meanwhile: stop the script that uses "
            "it, then repeat"
        )
    if not has_turn(conversion):
        raise SlurmError(f"splitting the reservation {shared.name} took too long. Repeat the call")
    _delete(conversion, shared.name)
