"""The Lease by which only one dnm acts for an instance, and the values that identify this dnm."""

from __future__ import annotations

from datetime import timedelta

from dnm.model.value import Moment, Value


class ActingElsewhere(Value):
    """A dnm with another registry that acts for the same instance. `at` is the time of its last
    action, by the API server's clock."""

    holder: str
    at: Moment


class Place(Value):
    """The identity of the dnm on this host. `home` is its host and registry path, or empty if these
    may not be unique. `boot` is the id of the host's boot, and `up_for` the time since then."""

    holder: str = ""
    home: str = ""
    boot: str = ""
    up_for: timedelta = timedelta(0)


LEASE_NAMESPACE = "dnm"
"""The namespace of each Lease. No key changes it, so that hosts with different configurations find
the same Lease; etc/rbac.yaml creates it."""
LONGEST_KEPT = 128 * 1024
"""Characters of `Lease.kept`; Kubernetes allows 256 KiB of annotations."""
HIGHEST = 2**31 - 1
"""The highest number of a run: leaseTransitions has 32 bits in the API."""


class Lease(Value):
    """The Lease object of an instance, held by the acting run. `version` is its resourceVersion, or
    empty without a Lease. `holder` shows people the host and registry of the active run; only that
    run knows `run`. `home` and `boot` are as in `Place`. Every run that takes the Lease increases
    `number` (leaseTransitions). `seconds` is the validity after a renewal, for people. `registry`
    is the unique name of the acting registry, `last` its last holder, for people. `kept` is the
    part of the registry that survives a loss (`dnm/plan/lost_registry.py`)."""

    version: str = ""
    holder: str = ""
    run: str = ""
    home: str = ""
    boot: str = ""
    number: int = 0
    seconds: int = 0
    acquired: str = ""  # RFC 3339, by the holder's clock: for people
    renewed: str = ""  # the same
    registry: str = ""
    last: str = ""
    acted: Moment | None = None  # when a run took it last, by the API server's clock
    kept: str = ""
    read_at: Moment | None = None  # by the API server's clock; None: the answer has no time

    @property
    def stamp(self) -> str:
        """Returns a short text that changes only when a run takes or renews the Lease. `version`
        would not do, since other clients change it too, e.g. with a label."""
        import hashlib  # it takes two milliseconds, which `dnm status` would notice

        text = f"{self.number} {self.run} {self.renewed}"
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
