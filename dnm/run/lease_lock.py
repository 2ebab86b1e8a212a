"""The Lease of an instance as one run sees it: the right to act.

A run that finds nothing to do only reads the Lease. A run that acts writes itself into it under the
version that it has read, renews it between its steps, and gives it up at the end. Each run that
takes the Lease gets a higher number. With `state = kubernetes` its first write to the registry is
that number (`kube_state.py`): from then on no earlier run can write there.

If a holder died, another host follows after it has *seen* the Lease unchanged for as long as a
Lease is good. Only the clock of that host since its boot counts, and no time that another host has
written. On one host and path there is one lock, which this run holds: a Lease of this very place
belongs to a run that has died. A pod has no such place, and what it has seen ends with it: its run
watches the Lease for that time itself.

Which registry acts, and when a registry is refused, is in `dnm/plan/lease.py`. Commands of an
administrator with `state = file` work without the API server, under the lock of the file alone.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import read_regular, replace_file
from dnm.model.config import Config
from dnm.model.errors import (
    KubeConflict,
    KubeError,
    LeaseLostError,
    LockedError,
    RegistryError,
    StoppedError,
)
from dnm.model.lease import HIGHEST, Lease, Place
from dnm.model.printable import printable
from dnm.model.value import Unreadable, Value
from dnm.plan.lease import is_written_here

if TYPE_CHECKING:
    from dnm.kube.state import StateObjects

log = logging.getLogger("dnm")

_TIMEOUTS = 8  # a step between two renewals is one read and one write, with their second tries
_RENEWED_AFTER = 0.25  # of its duration
_SERVER_ERROR = 500  # from there on, a status says that the server fails
_LOOK_EVERY = 5.0  # seconds
_LARGEST = 1024  # bytes
_LONGEST_HOLDER = 300  # characters
_LONGEST_TIME = 40  # the same


class Sighting(Value):
    """A Lease as it was first seen: what its holder wrote, and when, in seconds since that boot."""

    stamp: str
    boot: str
    at: float


def since_boot() -> float:
    """Returns the seconds since this host was started, those asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_seconds(config: Config) -> int:
    """Returns how long a Lease is good after a renewal."""
    return math.ceil(_TIMEOUTS * config.request_timeout.total_seconds())


def find_holder(lease: Lease, place: Place, unchanged_for: float, seconds: int) -> str:
    """Returns who is at work, as far as `place` can tell, where a Lease is good for so many
    seconds; empty: nobody. Pure."""
    is_over = is_written_here(lease, place) or unchanged_for >= seconds
    return "" if is_over else lease.holder


class LeaseLock:
    """The right of one run to act. `number`: 0 while the run does not hold the Lease; `until`: no
    other run acts before, in seconds since the boot. `registry`, `kept`: written into the Lease
    (`Lease.registry`, `Lease.kept`). `is_unfenced`: the run before may be asleep, and its write to
    the queue document is not excluded yet. `begins_anew`: an administrator has decided that a new
    registry takes the place of a lost Secret, or of a registry elsewhere. `moves`: the registry is
    being moved to the Secret, or away from it."""

    begins_anew = moves = False

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float] = since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._objects: StateObjects | None = None
        self.place = Place()
        self._instance = config.instance_id
        self._seconds = lease_seconds(config)
        self._sighting = config.lock_path.with_suffix(".seen")
        self._run, self._acquired = os.urandom(8).hex(), ""
        self._known: Lease | None = None
        self._is_lost = self.is_unfenced = False
        self.registry = self.kept = ""
        self.number = 0
        self.until = 0.0

    def attach(self, objects: StateObjects, place: Place) -> None:
        """Connects this run to the Lease, as a run at `place`."""
        self._objects, self.place = objects, place

    def observe(self) -> Lease | Unreadable:
        """Returns the Lease as this run has read it first, or as it has written it; Unreadable if
        the API server refuses it. Raises KubeError if the API server does not answer."""
        try:
            return self._look()
        except KubeError as error:
            from dnm.kube.errors import ApiRefused  # `dnm status` needs no client

            if not isinstance(error, ApiRefused) or error.status >= _SERVER_ERROR:
                raise
            return Unreadable(what="the Lease", error=str(error))

    @property
    def highest(self) -> int:
        """The number of the last run that took it; 0: none ever did."""
        return self._look().number

    def stand_by(self) -> None:
        """Raises LockedError while another run is at work. A run that can leave no sighting to the
        next one looks on, until the Lease changes or its time is over."""
        is_told = False
        while True:
            try:
                return self.check()
            except LockedError as error:
                if self.place.home:
                    raise
                if not is_told:
                    log.info("note='it looks on, since nothing here outlives it: %s'", error)
                    is_told = True
                seen = self._look().stamp
                self._sleep(_LOOK_EVERY)
                self._known = None
                if self._look().stamp != seen:
                    raise

    def check(self) -> None:
        """Raises LockedError while another run is at work. A run with a file asks once it is
        connected."""
        if self.number or self._objects is None:
            return
        if who := self._find_holder(notes=True):
            raise LockedError(
                f"{who}; should it have died, it is followed when its Lease was seen unchanged for "
                f"{self._seconds} s, or by `dnm takeover`"
            )

    @property
    def holder(self) -> str:
        """Which other run is at work, since when by its clock, and for how long this host has seen
        no sign of it; empty: none, as far as this host knows. Nothing is written."""
        is_asked = self._objects is not None and not self.number
        return self._find_holder(notes=False) if is_asked else ""

    def seize(self, registry: str) -> None:
        """Gives the Lease to this registry, because an administrator knows that the run or the
        registry that has it is gone. If that run still lives, it loses its right as a run that was
        asleep does. Raises KubeError."""
        found = self._look()
        self.registry, self._run = registry, ""
        self._known = self._edge.write_lease(self._free(found, self._next_number(0)))

    def take(self, above: int = 0) -> None:
        """Makes this run the one at work, with a number above all that were. Raises LockedError,
        LeaseLostError and KubeError."""
        if self._is_lost:
            raise self.lose()
        if self.number and self.number >= above:
            return
        self.check()
        found, number = self._look(), self._next_number(above)
        self.is_unfenced = self.is_unfenced or bool(found.holder and not self.number)
        self.registry, self.kept = self.registry or found.registry, found.kept
        self._acquired = _now()
        if self._write_or_find(number):
            self.number = number
        elif self.number:
            raise self.lose()
        else:
            raise LockedError(
                f"another run has just begun to act for instance {self._instance}; it is left to "
                "finish"
            )

    def keep(self, anew: bool = False) -> None:
        """Renews it where a part of its time is over; `anew`: whatever this host's clock says,
        which stands still with a virtual machine. Raises LeaseLostError where it is another's by
        now, KubeError where nobody can tell."""
        if self._is_lost:
            raise self.lose()
        is_fresh = self._clock() < self.until - self._seconds * (1 - _RENEWED_AFTER)
        if not self.number or (is_fresh and not anew):
            return
        if not self._write_or_find(self.number):
            raise self.lose()

    def lose(self) -> LeaseLostError:
        """Ends it, since another run acts; returns what to say."""
        number, self._is_lost, self.number = self.number, True, 0
        return LeaseLostError(
            f"this run was asleep or cut off for so long that another one acts for instance "
            f"{self._instance}"
            + (f"; its number {number} counts no more" if number else "")
            + ": it writes nothing any more"
        )

    def end(self) -> None:
        """Gives the Lease up, so that other runs act at once. If that fails, they wait until its
        time is over, and so does a run that must still exclude a write of the run before."""
        known, number = self._known, self.number
        self.number, self._known = 0, None
        if known is not None and number and not (self._is_lost or self.is_unfenced):
            with suppress(KubeError, StoppedError):
                self._edge.write_lease(self._free(known, number))

    # --- the Lease ----------------------------------------------------------------------------

    @property
    def _edge(self) -> StateObjects:
        assert self._objects is not None  # a run attaches it before it acts
        return self._objects

    def _free(self, lease: Lease, number: int) -> Lease:
        """The Lease without a run at work."""
        return msgspec.structs.replace(
            lease,
            number=number,
            holder="",
            run=self._run,
            home=self.place.home,
            boot=self.place.boot,
            registry=self.registry,
            last=self.place.holder,
            acted=lease.read_at,
            kept=self.kept,
        )

    def _find_holder(self, notes: bool) -> str:
        lease = self._look()
        unchanged_for = self._unchanged_for(lease, notes)
        if not (who := find_holder(lease, self.place, unchanged_for, self._seconds)):
            return ""
        since = f" since {printable(lease.acquired, _LONGEST_TIME)}" if lease.acquired else ""
        renewed = f", last sign of it {printable(lease.renewed, _LONGEST_TIME)}" * bool(
            lease.renewed
        )
        return (
            f"{printable(who, _LONGEST_HOLDER)} is at work for instance {self._instance}{since} "
            f"(number {lease.number}{renewed} by its clock, unchanged here for "
            f"{unchanged_for:.0f} s)"
        )

    def _next_number(self, above: int) -> int:
        number = max(self._look().number, above) + 1
        if number >= HIGHEST:
            raise RegistryError(
                f"the Lease of instance {self._instance} says that {self._look().number} runs have "
                "acted, and there is no higher number: delete the Lease"
            )
        return number

    def _look(self) -> Lease:
        if self._known is None:
            self._known = self._edge.read_lease()
        return self._known

    def _write_or_find(self, number: int) -> bool:
        """Whether the Lease is this run's: also where only the answer to its last write was lost,
        so that another version stands there than it knows."""
        try:
            self._write(number)
        except KubeConflict:
            self._known = self._edge.read_lease()
            if self._known.run != self._run:
                return False
            self._write(number)
        return True

    def _write(self, number: int) -> None:
        asked_at = self._clock()
        held = msgspec.structs.replace(
            self._free(self._look(), number),
            holder=self.place.holder,
            seconds=self._seconds,
            acquired=self._acquired,
            renewed=_now(),
        )
        self._known = self._edge.write_lease(held)
        self.until = asked_at + self._seconds

    def _unchanged_for(self, lease: Lease, notes: bool) -> float:
        """For how many seconds this host has seen it as it is now; `notes`: from now on, if it is
        new."""
        if not lease.holder or is_written_here(lease, self.place):
            return 0.0
        now, boot = self._clock(), self.place.boot
        before = _read_sighting(self._sighting)
        if before is not None and (before.stamp, before.boot) == (lease.stamp, boot):
            return now - before.at
        if notes:
            _write_sighting(self._sighting, Sighting(stamp=lease.stamp, boot=boot, at=now))
        return 0.0


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _read_sighting(path: Path) -> Sighting | None:
    with suppress(OSError, ValueError, msgspec.MsgspecError), fault_point("lease.read_seen"):
        return msgspec.json.decode(read_regular(path, _LARGEST), type=Sighting)
    return None


def _write_sighting(path: Path, sighting: Sighting) -> None:
    try:
        replace_file(path, [msgspec.json.encode(sighting)], "lease", is_durable=False)
    except OSError as error:
        raise RegistryError(
            f"{path} can't be written ({error.strerror}), so that nobody here would notice when "
            "the run at work elsewhere has died: let this user write there"
        ) from error
