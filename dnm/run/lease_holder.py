"""The run that holds the Lease, as another run sees it.

If a holder died, another host takes over after it has *seen* the Lease unchanged for its full
duration. It measures that with its own clock since boot and uses no time of another host. On one
host and path there is one lock, which this run holds. So a Lease that was written with this host
and path belongs to a dead run. A pod has no lasting host and path, and its files are lost when it
ends. So a run in a pod watches the Lease for the full duration itself."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import read_regular, replace_file
from dnm.model.errors import RegistryError
from dnm.model.lease import Lease, Place
from dnm.model.printable import printable
from dnm.model.value import Value
from dnm.plan.lease import is_written_here

_LARGEST = 1024  # bytes
_LONGEST_HOLDER = 300  # characters
_LONGEST_TIME = 40  # the same


class Sighting(Value):
    """A state of the Lease, and when a host first saw it: `at` seconds after the boot `boot`."""

    stamp: str
    boot: str
    at: float


class Observer(NamedTuple):
    """The run that reads the Lease. `now` is in seconds since the boot of its host, `seconds` is
    the duration of a Lease after a renewal, `path` is the file with the Sighting of this host."""

    instance: str
    place: Place
    now: float
    seconds: int
    path: Path


def find_holder(lease: Lease, place: Place, unchanged_for: float, seconds: int) -> str:
    """Returns the run that holds the Lease, or an empty text if the Lease is free. It is free if it
    has not changed for `seconds`, or was taken at `place`, where this run has the lock."""
    is_over = is_written_here(lease, place) or unchanged_for >= seconds
    return "" if is_over else lease.holder


def describe_holder(lease: Lease, here: Observer, notes: bool) -> str:
    """Returns the active run with its start and number, as a text; empty if no run is active. If
    `notes`, also stores when this host first saw this state of the Lease. Raises RegistryError."""
    unchanged_for = _unchanged_for(lease, here, notes)
    if not (holder := find_holder(lease, here.place, unchanged_for, here.seconds)):
        return ""
    since = f" since {printable(lease.acquired, _LONGEST_TIME)}" if lease.acquired else ""
    renewed = f", last sign of it {printable(lease.renewed, _LONGEST_TIME)}" * bool(lease.renewed)
    return (
        f"{printable(holder, _LONGEST_HOLDER)} is at work for instance {here.instance}{since} "
        f"(number {lease.number}{renewed} by its clock, unchanged here for {unchanged_for:.0f} s)"
    )


def _unchanged_for(lease: Lease, here: Observer, notes: bool) -> float:
    """Returns for how many seconds this host has seen the Lease unchanged."""
    if is_written_here(lease, here.place):
        return 0.0
    before = _read_sighting(here.path)
    if before is not None and (before.stamp, before.boot) == (lease.stamp, here.place.boot):
        return here.now - before.at
    if notes:
        seen = Sighting(stamp=lease.stamp, boot=here.place.boot, at=here.now)
        _write_sighting(here.path, seen)
    return 0.0


def _read_sighting(path: Path) -> Sighting | None:
    with suppress(OSError, ValueError, msgspec.MsgspecError), fault_point("lease.read_seen"):
        return msgspec.json.decode(read_regular(path, _LARGEST), type=Sighting)
    return None


def _write_sighting(path: Path, sighting: Sighting) -> None:
    try:
        replace_file(path, [msgspec.json.encode(sighting)], "lease", is_durable=False)
    except OSError as error:
        raise RegistryError(
            f"{path} can't be written ({error.strerror}), so that this host would not notice when "
            "the run at work elsewhere has died: let this user write there"
        ) from error
