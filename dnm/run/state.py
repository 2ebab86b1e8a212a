"""Where the registry of an instance stands: a file of this host, or an object in Kubernetes.

One document, and one code above both: bytes in, bytes out. A place says too whether this run may
act from it: with a file the lock beside it says so already, in Kubernetes the instance's Lease does
(`kube_state.py`).
"""

from __future__ import annotations

from typing import Protocol

VERSION = 1  # of the document
MOVED, ARRIVING = "moved", "arriving"  # in its place: it is elsewhere, or not yet in force


class State(Protocol):
    """A place of the registry."""

    @property
    def kind(self) -> str:
        """What the configuration calls it: file, kubernetes."""
        ...

    @property
    def where(self) -> str:
        """Its name, for people."""
        ...

    @property
    def previous(self) -> str:
        """Where the document before the last change is kept, for people."""
        ...

    @property
    def until(self) -> float | None:
        """Until when nobody else acts, in seconds of CLOCK_BOOTTIME; None: as long as this run
        holds its lock."""
        ...

    def read(self) -> bytes | None:
        """Returns the document as this run knows it; None: there is none. Raises RegistryError for
        what can't be trusted, KubeError where nobody answers."""
        ...

    def why_missing(self) -> str | None:
        """Returns why there must have been a document, where `read` found none; None: there may
        never have been one."""
        ...

    def write(self, content: bytes) -> bool:
        """Replaces the document if it would change; says whether it did. Raises RegistryError; the
        old one is then still whole. LockedError: another run is at work."""
        ...

    @property
    def follows(self) -> bool:
        """Whether the run that was at work last did not end: it may be asleep, and wake up."""
        ...

    def stand_by(self) -> None:
        """Raises LockedError while another run is at work: at once, but where only a longer look
        can tell that it has died."""
        ...

    def begin(self) -> None:
        """Makes this run the one that acts. Raises LockedError where another does."""
        ...

    @property
    def holder(self) -> str:
        """Which run of another host is at work, and since when, for people; empty: none."""
        ...

    def seize(self) -> None:
        """Takes the right to act from that run, which a person knows to be gone."""
        ...

    def keep(self, anew: bool = False) -> None:
        """Makes sure that this run still acts, before each step; `anew`: not by its clock alone.
        Raises LeaseLostError where another does by now, KubeError where nobody can tell."""
        ...

    def end(self) -> None:
        """Lets others act."""
        ...


def unreadable(state: State, why: str) -> str:
    return (
        f"the registry {state.where} can't be trusted, nothing was touched: {why}. Compare it with "
        f"{state.previous} and with `kubectl get nodes`, then restore it"
    )
