"""Who acts for an instance: what stands in the cluster of it, its registry too where that is kept
there, and where this dnm is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from dnm.model.value import Moment, Value


class RecordLease(Value, forbid_unknown_fields=False):
    """An instance's name as its last actor has it. `holder` names his host and registry to people;
    `token` is known to his registry alone; `home` and `boot` are as in `Place`."""

    holder: str
    token: str
    at: Moment  # by the API server's clock
    home: str = ""
    boot: str = ""


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
HIGHEST = 2**31 - 1
"""Of the numbers of runs: the API has leaseTransitions in 32 bits."""


class RunLease(Value):
    """The Lease of an instance. `version`: its resourceVersion; empty: it does not exist. `holder`:
    the host and the registry at work, for people; empty: nobody is. `run` is known to that run
    alone; `home` and `boot` are as in `Place`. `number` (leaseTransitions) grows with every run
    that takes it; `seconds`: for how long it is good, as its holder says, to people alone."""

    version: str = ""
    holder: str = ""
    run: str = ""
    home: str = ""
    boot: str = ""
    number: int = 0
    seconds: int = 0
    acquired: str = ""  # RFC 3339, by the holder's clock: for people
    renewed: str = ""  # the same

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


def unreadable(where: str, previous: str, why: str) -> str:
    """Returns why a document is not obeyed, and what to do."""
    return (
        f"the registry {where} can't be trusted, nothing was touched: {why}. Compare it with "
        f"{previous} and with `kubectl get nodes`, then restore it"
    )
