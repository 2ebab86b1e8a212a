"""The Lease of an instance as a run reads it: once, and without writing.

A run that acts takes the Lease (`lease_lock.py`). `lease_holder.py` decides how long a run waits
for another one. `dnm/plan/lease.py` decides which registry acts."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dnm.model.config import Config
from dnm.model.errors import KubeError, LockedError
from dnm.model.lease import Lease, Place
from dnm.model.value import Unreadable

if TYPE_CHECKING:
    from dnm.kube.leases import LeaseObject

log = logging.getLogger("dnm")

_TIMEOUTS = 8  # a step between two renewals is one read and one write, with their second tries
_SERVER_ERROR = 500  # the lowest status for a failure of the server
_LOOK_EVERY = 5.0  # seconds


def since_boot() -> float:
    """Returns the seconds since this host was started, including the time in suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_seconds(config: Config) -> int:
    """Returns the duration of a Lease after a renewal."""
    return math.ceil(_TIMEOUTS * config.request_timeout.total_seconds())


class LeaseView:
    """The Lease as one run sees it. `number` is the number of this run, or 0 while it does not hold
    the Lease. A write of the Lease stores `registry` and `kept` in its fields with these names."""

    number = 0
    registry = kept = ""
    place = Place()
    _objects: LeaseObject | None = None
    _lease: Lease | None = None

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float] = since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._instance, self._seconds = config.instance_id, lease_seconds(config)
        self._sighting = config.lock_path.with_suffix(".seen")

    def attach(self, objects: LeaseObject, place: Place) -> None:
        """Sets the Lease of this run, and its place: its host and the path of its registry."""
        self._objects, self.place = objects, place

    def observe(self) -> Lease | Unreadable:
        """Returns the Lease as this run first read or last wrote it, or Unreadable if the API
        server refuses the read. Raises KubeError if the API server does not answer."""
        try:
            return self._look()
        except KubeError as error:
            from dnm.kube.errors import ApiRefused  # `dnm status` needs no client

            if not isinstance(error, ApiRefused) or error.status >= _SERVER_ERROR:
                raise
            return Unreadable(subject="the Lease", error=str(error))

    @property
    def highest(self) -> int:
        """Returns the number of the run that took the Lease last, or 0 if none ever did."""
        return self._look().number

    def stand_by(self) -> None:
        """Raises LockedError while another run is active. A run in a pod leaves no file for the
        next run, so it watches the Lease itself, until the Lease changes or has expired."""
        is_logged = False
        while True:
            try:
                return self.check()
            except LockedError as error:
                if self.place.home:
                    raise
                if not is_logged:
                    log.info("note='it watches, since nothing here outlives it: %s'", error)
                    is_logged = True
                seen = self._look().stamp
                self._sleep(_LOOK_EVERY)
                self._lease = None
                if self._look().stamp != seen:
                    raise

    def check(self) -> None:
        """Raises LockedError while another run is active. If the registry is a file, a run calls it
        after it has connected to the API server."""
        if holder := self._find_holder(notes=True):
            raise LockedError(
                f"{holder}; if it has died, another run acts when its Lease was unchanged for "
                f"{self._seconds} s, or by `dnm takeover`"
            )

    @property
    def holder(self) -> str:
        """Returns the other active run, its start by its clock, and for how long this host has seen
        the Lease unchanged; empty if this host sees no other run. Writes nothing."""
        return self._find_holder(notes=False)

    def _find_holder(self, notes: bool) -> str:
        if self._objects is None or self.number or not self._look().holder:
            return ""
        from dnm.run.lease_holder import Observer, describe_holder  # few runs meet another one

        here = Observer(self._instance, self.place, self._clock(), self._seconds, self._sighting)
        return describe_holder(self._look(), here, notes)

    def _look(self) -> Lease:
        if self._lease is None:
            self._lease = self._edge.read_lease()
        return self._lease

    @property
    def _edge(self) -> LeaseObject:
        assert self._objects is not None  # a run attaches it before it acts
        return self._objects
