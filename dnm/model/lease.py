"""The Lease of an instance, the registry as Kubernetes stores it, and the place of this dnm."""

from __future__ import annotations

import re
from collections.abc import Mapping
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


VERSION = 1  # of the registry's document
MOVED, ARRIVING = "moved", "arriving"  # in its place: it is elsewhere, or not yet in force
LARGEST = 64 * 1024 * 1024  # bytes; a thousand lent nodes take 0.5 MiB
KEYS = ("registry.json", "registry.json.gz", "previous.json", "previous.json.gz")
"""Of the Secret's data, those that are dnm's: what else stands there is others'."""
LONGEST_KEPT = 128 * 1024
"""Characters of `Lease.kept`; Kubernetes allows 256 KiB of annotations."""
IN_CLUSTER = "Secret "
"""Of `Lease.registry`: the registry is the Secret that is named behind it."""
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
    def is_in_cluster(self) -> bool:
        """Whether the registry that acts is a Secret."""
        return self.registry.startswith(IN_CLUSTER)

    @property
    def stamp(self) -> str:
        """What is another one after each renewal, and after nothing else: a label that others put
        on changes the version too. However long they are, it is short."""
        import hashlib  # two milliseconds that `dnm status` would wait for

        text = f"{self.number} {self.run} {self.renewed}"
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


class StoredRegistry(Value):
    """The object with the registry. `version`: its resourceVersion; empty: it does not exist yet.
    `number`: of the run that wrote it last; -1: it was made by hand. `data`: of `KEYS`, as the API
    has it, in base64."""

    version: str = ""
    number: int = 0
    data: Mapping[str, str] = {}


_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")


def object_name(instance: str) -> str:
    """Returns the name of the Secret and of the Lease of an instance: a DNS subdomain."""
    if _PLAIN_NAME.fullmatch(instance):
        return f"dnm-{instance}"
    import hashlib  # as above

    plain = re.sub(r"[^a-z0-9-]", "-", instance.lower())[:40].strip("-")
    return f"dnm-{plain}-{hashlib.sha256(instance.encode()).hexdigest()[:10]}"


def unreadable(where: str, previous: str, why: str) -> str:
    """Returns why a document is not obeyed, and what to do."""
    return (
        f"the registry {where} can't be trusted, nothing was touched: {why}. Compare it with "
        f"{previous} and with `kubectl get nodes`, then restore it"
    )
