"""Where the registry of an instance stands: a file of this host, or an object in Kubernetes
(`kube_state.py`). One document, and one code above both: bytes in, bytes out.

A place says too whether this run may act from it: with a file the lock beside it says so already,
in Kubernetes the instance's Lease does.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dnm.host.fault_points import fault_point
from dnm.host.trust import access_of, mend_access, read_regular, read_trusted, replace_file
from dnm.model.errors import RegistryError
from dnm.model.lease import LARGEST

if TYPE_CHECKING:
    from dnm.run.kube_state import KubeState

State: TypeAlias = "FileState | KubeState"


def previous_path(path: Path) -> Path:
    """Where the document before the last change is kept."""
    return path.with_name(path.name + ".previous")


class FileState:
    """A file of this host, which its lock guards. Its owner may read it, and `group` where one is
    named. `where`, `previous`: the document and the one
    before its last change, for people; `until`: when others may act, in seconds of CLOCK_BOOTTIME;
    `holder`: which other run is at work; `follows`: whether the run before may be asleep."""

    kind = "file"
    until: float | None = None  # as long as this run holds its lock
    holder = ""
    follows = False

    def __init__(self, path: Path, group: str = "") -> None:
        self.path, self.group = path, group
        self.where, self.previous = str(path), str(previous_path(path))

    def read(self) -> bytes | None:
        """Returns the document as this run knows it; None: there is none. Raises RegistryError for
        what can't be trusted, and in Kubernetes KubeError where nobody answers."""
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

    def why_missing(self) -> str | None:
        """Returns why there must have been a document, where `read` found none; None: there may
        never have been one."""
        if not previous_path(self.path).exists():
            return None
        return (
            f"the registry {self.path} is missing but {self.previous} exists: restore it with "
            f"'cp -p {self.previous} {self.path}', or remove both if no node is lent"
        )

    def write(self, content: bytes) -> bool:
        """Replaces the document if it would change; says whether it did. Raises RegistryError; the
        old one is then still whole. In Kubernetes LockedError: another run is at work."""
        path = self.path
        try:
            access = access_of(self.group)
            for file in (path, previous_path(path)):
                mend_access(file, access)
            with suppress(FileNotFoundError):
                if read_regular(path, LARGEST) == content:
                    return False
            replace_file(path, [content], "registry", access, keep=self._keep_previous)
        except OSError as error:
            raise RegistryError(
                f"the registry {path} can't be written ({error.strerror or error}): "
                "free space or mend the permissions of its directory; nothing further is done"
            ) from error
        return True

    def _keep_previous(self) -> None:
        if self.path.exists():
            spare = self.path.with_name(self.path.name + ".previous.new")
            with fault_point("registry.keep_previous"):
                spare.unlink(missing_ok=True)
                os.link(self.path, spare)
            with fault_point("registry.rename_previous"):
                os.replace(spare, previous_path(self.path))

    def keep(self, anew: bool = False) -> None:
        """Makes sure that this run still acts, before each step: so it is until the end."""

    def stand_by(self) -> None:
        """The lock does this, and all of these: it is held already, and goes with the run."""

    begin = seize = end = stand_by
