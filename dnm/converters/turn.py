"""Turns of conversions of any host: who takes the shared reservation apart, one after the other.

Slurm gives a reservation's name once, whoever asks for it, and ends the reservation by itself,
should whoever has it be killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dnm.converters.conversion import NodeConversion
from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.model.errors import SlurmError


def _turn(conversion: NodeConversion) -> str:
    """The name of a reservation that only whoever's turn it is has; no node's name has a `_`."""
    return f"{conversion.settings.res_name}_turn"


def has_turn(conversion: NodeConversion) -> bool:
    """Returns whether it still is this node's: a turn is over after a minute."""
    name, node = _turn(conversion), conversion.node
    found = conversion.slurm.read_reservations()
    return any(one.name == name and one.nodes == (node,) for one in found)


@contextmanager
def our_turn(conversion: NodeConversion) -> Iterator[None]:
    """Waits for the turn, and ends it. Raises SlurmError where others keep it for too long."""
    name = _turn(conversion)
    deadline = time.monotonic() + conversion.settings.slurm_patience_seconds.total_seconds()
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
    try:
        conversion.slurm.take_turn(name, conversion.node)
    except SlurmRefused as error:
        if "Duplicate" not in error.answer:
            raise
        return False
    except SlurmOutcomeUnknown:  # if it was made for us, it is over in a minute
        return False
    return True
