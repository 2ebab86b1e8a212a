"""The right of one run to act: the Lease of its instance.

An acting run writes itself into the Lease under the version that it has read, renews it between its
steps, and releases it at the end. Each run that takes the Lease gets a higher number. It writes
the number to a registry in Kubernetes first. After that no earlier run can write there.

With `registry = file`, commands of an administrator need only the lock of the file (`lock.py`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from dnm.model.errors import (
    KubeConflict,
    KubeError,
    LeaseLostError,
    LockedError,
    RegistryError,
    StoppedError,
)
from dnm.model.lease import HIGHEST, Lease
from dnm.run.lease_view import LeaseView

_RENEWED_AFTER = 0.25  # of its duration


class LeaseLock(LeaseView):
    """The right of one run to act. Until `until`, in seconds since boot, no other run acts.
    `needs_exclusion`: the previous run may be asleep and could still write limits (`unexcluded` has
    the reason by queue). `begins_anew`: an administrator replaces a lost Secret, or a registry in
    another place. `moves`: the registry is being moved to the Secret, or from it."""

    begins_anew = moves = False
    needs_exclusion = _is_lost = False
    until = 0.0
    unexcluded: Mapping[str, str] = {}
    _run = _acquired = ""

    def seize(self, registry: str) -> None:
        """Gives the Lease to this registry: an administrator knows that the run or registry with
        the Lease is gone. If it still lives, its next write is refused. Raises KubeError."""
        lease = self._look()
        self.registry, self._run = registry, ""
        self._lease = self._edge.write_lease(self._free(lease, self._next_number(0)))

    def take(self, above: int = 0) -> None:
        """Takes the Lease for this run, with a run number above all earlier ones. Raises
        LockedError, LeaseLostError and KubeError."""
        if self._is_lost:
            raise self.lose()
        if self.number and self.number >= above:
            return
        self.check()
        lease, number = self._look(), self._next_number(above)
        self.needs_exclusion = self.needs_exclusion or bool(lease.holder and not self.number)
        self.registry, self.kept = self.registry or lease.registry, lease.kept
        self._run = self._run or os.urandom(8).hex()
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
        """Renews the Lease if a quarter of its time is over. With `anew`, renews it in any case,
        since this host's clock may have stopped with its virtual machine. Raises LeaseLostError if
        another run has the Lease, and KubeError if it cannot be read."""
        if self._is_lost:
            raise self.lose()
        is_fresh = self._clock() < self.until - self._seconds * (1 - _RENEWED_AFTER)
        if not self.number or (is_fresh and not anew):
            return
        if not self._write_or_find(self.number):
            raise self.lose()

    def lose(self) -> LeaseLostError:
        """Ends this run's right to act, because another run acts. Returns an error to raise."""
        number, self._is_lost, self.number = self.number, True, 0
        return LeaseLostError(
            f"this run was asleep or cut off for so long that another run acts for instance "
            f"{self._instance}"
            + (f"; its number {number} is no longer valid" if number else "")
            + ": it writes nothing further"
        )

    def end(self) -> None:
        """Releases the Lease, so that other runs act at once. Does not release it if a late write
        of an earlier run is still possible: other runs then wait until the Lease has expired."""
        lease, number = self._lease, self.number
        self.number, self._lease = 0, None
        if lease is not None and number and not (self._is_lost or self.needs_exclusion):
            with suppress(KubeError, StoppedError):
                self._edge.write_lease(self._free(lease, number))

    # --- the Lease ----------------------------------------------------------------------------

    def _free(self, lease: Lease, number: int) -> Lease:
        """Returns the Lease as it is when this registry has it but no run is active."""
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

    def _next_number(self, above: int) -> int:
        number = max(self._look().number, above) + 1
        if number >= HIGHEST:
            raise RegistryError(
                f"the Lease of instance {self._instance} shows that {self._look().number} runs "
                "have acted, and there is no higher number: delete the Lease"
            )
        return number

    def _write_or_find(self, number: int) -> bool:
        """Writes the Lease. Writes it again after a conflict with its own first write, if the
        answer to that was lost. Returns False if another run has the Lease."""
        try:
            self._write(number)
        except KubeConflict:
            self._lease = self._edge.read_lease()
            if self._lease.run != self._run:
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
        self._lease = self._edge.write_lease(held)
        self.until = asked_at + self._seconds


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
