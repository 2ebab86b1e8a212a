"""What stands in Kubernetes of an instance whose registry is kept there: the object that holds it,
and the Lease of the run that is at work."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.value import Value

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
