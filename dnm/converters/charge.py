"""Charging what is lent: the claim becomes a reservation that Slurm's accounting books as planned,
for an account.

What holds the node in each moment: the reservation, which Slurm grants once; then the drain with
our mark, which is read back twice. Only then is the reservation changed, for over an accounting one
Slurm grants others: until it is undone drain and mark are the lock, since every claim looks for a
drain. It is undone before the drain is lifted, so that the reservation holds the node again until
it is deleted. Each change is looked up, never remembered; none of it stops a lend.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dnm.converters.conversion import NodeConversion
from dnm.converters.slurm.commands import SlurmRefused
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
        found = _own(conversion)
        return found is not None and found.charged_to == account

    conversion.change_slurm(lambda: conversion.slurm.charge_reservation(name, to), is_so)
    conversion.wait(_NEXT_ROW)
    conversion.patiently(lambda: conversion.slurm.charge_reservation(name, to))
    return ""


def _reserved_besides(conversion: NodeConversion) -> str:
    """The booking of an event, say, that the node was taken from under."""
    now = datetime.now(UTC)
    return next(
        (
            one.name
            for one in conversion.patiently(conversion.slurm.read_reservations)
            if conversion.node in one.nodes and one.name != conversion.reservation
            if one.start is not None and one.start <= now and (one.end is None or now < one.end)
        ),
        "",
    )


def _own(conversion: NodeConversion) -> Reservation | None:
    name, node = conversion.reservation, conversion.node
    found = conversion.slurm.read_reservations()
    return next((one for one in found if one.name == name and one.nodes == (node,)), None)


def uncharge(conversion: NodeConversion) -> None:
    """Makes our reservation the claim again that it was. Where somebody else has reserved the node
    meanwhile it can't be one; it lets no job of the account in then, and the node is his next."""
    try:
        _uncharge(conversion, keeps_flag=False)
    except SlurmRefused as error:
        conversion.say(f"stays an accounting reservation until it is deleted: {error.answer}")
        _uncharge(conversion, keeps_flag=True)


def _uncharge(conversion: NodeConversion, keeps_flag: bool) -> None:
    def is_so() -> bool:
        found = _own(conversion)
        return found is None or not (found.accounts or (found.is_charged and not keeps_flag))

    name = conversion.reservation
    conversion.change_slurm(
        lambda: conversion.slurm.uncharge_reservation(name, keeps_flag=keeps_flag), is_so
    )
