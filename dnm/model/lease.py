"""The Lease of an instance, and the place of this dnm."""

from __future__ import annotations

from datetime import timedelta

from dnm.model.value import Moment, Value


class ActingElsewhere(Value):
    """Another registry that acts for the instance. `at`: its last act, by the API server's
    clock."""

    holder: str
    at: Moment


class Place(Value):
    """Where a dnm is. `home`: this host and the path of its registry in one word; empty: there may
    be others like this one. `boot`: of the host, which is up for `up_for`."""

    holder: str = ""
    home: str = ""
    boot: str = ""
    up_for: timedelta = timedelta(0)


LONGEST_KEPT = 128 * 1024
"""Characters of `Lease.kept`; Kubernetes allows 256 KiB of annotations."""
HIGHEST = 2**31 - 1
"""Of the numbers of runs: the API has leaseTransitions in 32 bits."""


class Lease(Value):
    """The Lease of an instance. `version`: its resourceVersion; empty: it does not exist. `holder`:
    the host and the registry of the run at work, for people; empty: no run is at work. `run` is
    known to that run alone; `home` and `boot` are as in `Place`. `number` (leaseTransitions) grows
    with every run that takes it; `seconds`: the time for which it is good after a renewal, for
    people. `registry`: the registry that acts, by a word that only this registry has; `last`: its
    last holder, for people. `kept`: what only the registry knows (`dnm/plan/lost_registry.py`)."""

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
        """What is another one after each renewal, and after nothing else: a label that others put
        on changes the version too. However long they are, it is short."""
        import hashlib  # two milliseconds that `dnm status` would wait for

        text = f"{self.number} {self.run} {self.renewed}"
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
