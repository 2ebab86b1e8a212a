"""Where the registry of an instance stands: a file of this host, or an object in Kubernetes.

One document, and one code above both: bytes in, bytes out. A place says too whether this run may
act from it: with a file the lock beside it says so already, in Kubernetes the instance's Lease does
(`kube_state.py`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dnm.host.bounded import read_regular
from dnm.host.fault_points import fault_point
from dnm.host.trust import Access, access_of, give_access, mend_access, read_trusted
from dnm.model.errors import RegistryError
from dnm.model.state import RunLease, StoredRegistry

LARGEST = 64 * 1024 * 1024  # bytes; a thousand lent nodes take 0.5 MiB


class StateObjects(Protocol):
    """The Secret and the Lease of an instance; all raises KubeError, and KubeConflict on a
    write."""

    def read_registry(self) -> StoredRegistry | None: ...
    def write_registry(self, stored: StoredRegistry) -> StoredRegistry: ...
    def read_lease(self) -> RunLease: ...
    def write_lease(self, lease: RunLease) -> RunLease: ...


class HasStateObjects(Protocol):
    """What a Kubernetes client must have, for a registry that is kept there."""

    def state_objects(self, namespace: str, name: str) -> StateObjects: ...


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

    def why_missing(self) -> str:
        """Returns why there must have been a document, where `read` found none; empty: there may
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


def previous_path(path: Path) -> Path:
    """Where the document before the last change is kept."""
    return path.with_name(path.name + ".previous")


class FileState:
    """A file of this host, which its lock guards. Its owner may read it, and `group` where one is
    named: also what an earlier dnm left open to all."""

    kind = "file"
    until = None
    holder = ""
    follows = False  # while it lives it holds the lock

    def __init__(self, path: Path, group: str = "") -> None:
        self.path, self.group = path, group
        self.where, self.previous = str(path), str(previous_path(path))

    def read(self) -> bytes | None:
        path = self.path
        try:
            os.lstat(path)  # where it is out of sight, it is not missing
            with fault_point("registry.read"):
                return read_trusted(path, LARGEST, RegistryError)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise RegistryError(
                f"the registry {path} is not yours to read: ask its owner, or whoever writes the "
                "configuration to let your group read it (state_group in [settings])"
            ) from error
        except OSError as error:
            raise RegistryError(
                f"the registry {path} can't be read ({error.strerror}): mend its permissions"
            ) from error

    def why_missing(self) -> str:
        if not previous_path(self.path).exists():
            return ""
        return (
            f"the registry {self.path} is missing but {self.previous} exists: restore it with "
            f"'cp -p {self.previous} {self.path}', or remove both if no node is lent"
        )

    def write(self, content: bytes) -> bool:
        """Temporary file in the same directory, fsync, the old one kept, rename, fsync of the
        directory."""
        path = self.path
        try:
            access = access_of(self.group)
            for file in (path, previous_path(path)):
                mend_access(file, access)
            if _stands(path, content):
                return False
            _replace(path, content, access)
        except OSError as error:
            raise RegistryError(
                f"the registry {path} can't be written ({error.strerror or error}): "
                "free space or mend the permissions of its directory; nothing further is done"
            ) from error
        return True

    def stand_by(self) -> None:
        """Whoever else runs here waits for the lock."""

    def begin(self) -> None:
        """The lock is held already."""

    def seize(self) -> None:
        """No other host is at work."""

    def keep(self, anew: bool = False) -> None:
        """So it is until the end."""

    def end(self) -> None:
        """The lock goes with the run."""


def _stands(path: Path, content: bytes) -> bool:
    with suppress(FileNotFoundError):
        return read_regular(path, LARGEST) == content
    return False


def _replace(path: Path, content: bytes, access: Access) -> None:
    temporary = path.with_name(path.name + ".new")
    with fault_point("registry.write"):
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            give_access(descriptor, access)
            file.write(content)
            file.flush()
            with fault_point("registry.fsync"):
                os.fsync(file.fileno())
    if path.exists():
        spare = path.with_name(path.name + ".previous.new")
        with fault_point("registry.keep_previous"):
            spare.unlink(missing_ok=True)
            os.link(path, spare)
        with fault_point("registry.rename_previous"):
            os.replace(spare, previous_path(path))
    with fault_point("registry.rename"):
        os.replace(temporary, path)
    with fault_point("registry.fsync_directory"):
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
