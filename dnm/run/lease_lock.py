"""The right of one run to act for an instance whose registry others may write too: its Lease.

A run that finds nothing to do only reads it. One that will act writes itself into it under the
version that it has read, renews it between its steps, and gives it up at the end; what comes second
is told who is at work. Each run that takes it gets a higher number, which it writes into the
registry first of all (`kube_state.py`): from then on no earlier one can write there.

A holder that died is followed when its Lease was *seen* unchanged for as long as this host's own
would be good: only its clock since its boot counts, and no time or span that another has written.
On one host and path there is one lock, which this run holds: a Lease of this very place is of a run
that has died. A pod has no such place, and what it has seen ends with it: its run looks on for that
time itself.
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

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import read_regular, replace_file
from dnm.kube.state import StateObjects
from dnm.model.config import Config
from dnm.model.errors import (
    KubeConflict,
    KubeError,
    LeaseLostError,
    LockedError,
    RegistryError,
    StoppedError,
)
from dnm.model.lease import HIGHEST, Place, RunLease
from dnm.model.printable import printable
from dnm.model.value import Value
from dnm.plan.record_lease import is_written_here

log = logging.getLogger("dnm")

_TIMEOUTS = 8  # a step between two renewals is one read and one write, with their second tries
_RENEWED_AFTER = 0.25  # of its duration
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


def find_holder(lease: RunLease, place: Place, unchanged_for: float, seconds: int) -> str:
    """Returns who is at work, as far as `place` can tell, where a Lease is good for so many
    seconds; empty: nobody. Pure."""
    is_over = is_written_here(lease, place) or unchanged_for >= seconds
    return "" if is_over else lease.holder


class LeaseLock:
    """One run's right to act. `number`: 0 while it has none; `until`: nobody else acts before, in
    seconds since the boot."""

    def __init__(
        self,
        config: Config,
        objects: StateObjects,
        place: Place,
        clock: Callable[[], float] = since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._objects, self._place, self._clock, self._sleep = objects, place, clock, sleep
        self._instance = config.instance_id
        self._seconds = lease_seconds(config)
        self._sighting = config.lock_path.with_suffix(".seen")
        self._run, self._acquired = os.urandom(8).hex(), ""
        self._known: RunLease | None = None
        self._is_lost = self._follows = False
        self.number = 0
        self.until = 0.0

    @property
    def highest(self) -> int:
        """The number of the last run that took it; 0: none ever did."""
        return self._look().number

    @property
    def follows(self) -> bool:
        """Whether it was, or would be, taken from another run that did not give it up."""
        return self._follows or bool(not self.number and self._look().holder)

    def stand_by(self) -> None:
        """Raises LockedError while another run is at work. A run that can leave no sighting to the
        next one looks on, until the Lease changes or its time is over."""
        is_told = False
        while True:
            try:
                return self.check()
            except LockedError as error:
                if self._place.home:
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
        """Raises LockedError while another run is at work."""
        if self.number:
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
        return "" if self.number else self._find_holder(notes=False)

    def seize(self) -> None:
        """Takes another run's right from it, which a person knows to be gone. Should it live, it
        loses its right where a sleeper would. Raises KubeError."""
        found, number = self._look(), self._next_number(0)
        free = {"holder": "", "run": "", "home": "", "boot": ""}
        self._known = self._objects.write_lease(
            msgspec.structs.replace(found, number=number, **free)
        )

    def take(self, above: int = 0) -> None:
        """Makes this run the one at work, with a number above all that were. Raises LockedError,
        LeaseLostError and KubeError."""
        if self._is_lost:
            raise self.lose()
        if self.number and self.number > above:
            return
        self.check()
        self._follows = self.follows
        number = self._next_number(above)
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
        """Lets others act at once; where that can't be said, they wait for its time to be over."""
        known, number = self._known, self.number
        self.number, self._known = 0, None
        if known is not None and number and not self._is_lost:
            free = msgspec.structs.replace(known, holder="", run="", home="", boot="")
            with suppress(KubeError, StoppedError):
                self._objects.write_lease(free)

    # --- the Lease ----------------------------------------------------------------------------

    def _find_holder(self, notes: bool) -> str:
        lease = self._look()
        unchanged_for = self._unchanged_for(lease, notes)
        if not (who := find_holder(lease, self._place, unchanged_for, self._seconds)):
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

    def _look(self) -> RunLease:
        if self._known is None:
            self._known = self._objects.read_lease()
        return self._known

    def _write_or_find(self, number: int) -> bool:
        """Whether the Lease is this run's: also where only the answer to its last write was lost,
        so that another version stands there than it knows."""
        try:
            self._write(number)
        except KubeConflict:
            self._known = self._objects.read_lease()
            if self._known.run != self._run:
                return False
            self._write(number)
        return True

    def _write(self, number: int) -> None:
        asked_at = self._clock()
        self._known = self._objects.write_lease(
            RunLease(
                version=self._look().version,
                holder=self._place.holder,
                run=self._run,
                home=self._place.home,
                boot=self._place.boot,
                number=number,
                seconds=self._seconds,
                acquired=self._acquired,
                renewed=_now(),
            )
        )
        self.until = asked_at + self._seconds

    def _unchanged_for(self, lease: RunLease, notes: bool) -> float:
        """For how many seconds this host has seen it as it is now; `notes`: from now on, if it is
        new."""
        if not lease.holder or is_written_here(lease, self._place):
            return 0.0
        now, boot = self._clock(), self._place.boot
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
