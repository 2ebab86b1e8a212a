"""What stands in Kubernetes of an instance whose registry is kept there: the object that holds it,
and the Lease of the run that is at work."""

from __future__ import annotations

from collections.abc import Mapping

from dnm.model.value import Value


class RunLease(Value):
    """The Lease of an instance. `version`: its resourceVersion; empty: it does not exist. `holder`:
    the host and the registry at work, for people; empty: nobody is. `run` is known to that run
    alone; `home` and `boot` are as in `Place`. `number` (leaseTransitions) grows with every run
    that takes it; `seconds`: so long after its last renewal nobody else takes it."""

    version: str = ""
    holder: str = ""
    run: str = ""
    home: str = ""
    boot: str = ""
    number: int = 0
    seconds: int = 0
    renewed: str = ""  # RFC 3339, by the holder's clock: for people

    @property
    def stamp(self) -> str:
        """What is another one after each renewal, and after nothing else: a label that others put
        on changes the version too."""
        return f"{self.number} {self.run} {self.renewed}"


class StoredRegistry(Value):
    """The object with the registry. `version`: its resourceVersion; empty: it does not exist yet.
    `number`: of the run that wrote it last; -1: it was made by hand. `data`: as the API has it, in
    base64. `type`: can't be changed once it is made."""

    version: str = ""
    number: int = 0
    data: Mapping[str, str] = {}
    type: str = "dynamic-node-manager/registry"
