"""The storage of the registry: a file of this host, or a Secret in Kubernetes (`kube_state.py`).

The document and the code for it are the same in both. A run acts only while it holds the Lease of
its instance (`lease_lock.py`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dnm.host.fault_points import fault_point
from dnm.host.trust import access_in, fix_access, read_regular, read_trusted, replace_file
from dnm.model.config import Config
from dnm.model.errors import RegistryError
from dnm.model.stored_registry import LARGEST
from dnm.run.lease_lock import LeaseLock
from dnm.run.lease_view import since_boot

if TYPE_CHECKING:
    from dnm.run.kube_state import KubeState

State: TypeAlias = "FileState | KubeState"


def previous_path(path: Path) -> Path:
    """Returns the path of the copy that holds the registry before its last change."""
    return path.with_name(path.name + ".previous")


class FileState(LeaseLock):
    """The registry in a file of this host, and its Lease if the run is connected to Kubernetes.
    Messages name the file as `where` and the copy before its last change as `previous`."""

    kind = "file"

    def __init__(self, config: Config, clock: Callable[[], float] = since_boot) -> None:
        super().__init__(config, clock)
        self.path = config.converted_nodes_path
        self.where, self.previous = str(self.path), str(previous_path(self.path))

    def read(self) -> bytes | None:
        """Returns the registry's document, or None if there is none. Raises RegistryError if it is
        not trusted. `KubeState.read` also raises KubeError if the API server does not answer."""
        path = self.path
        try:
            os.lstat(path)  # an unreadable path is not a missing file
            with fault_point("registry.read"):
                return read_trusted(path, LARGEST, RegistryError)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise RegistryError(
                f"the registry {path} is not readable for this user: run dnm as its owner, or let "
                f"the owner run 'chgrp GROUP {path.parent} && chmod g+rxs {path.parent}'"
            ) from error
        except OSError as error:
            raise RegistryError(
                f"the registry {path} can't be read ({error.strerror}): fix its permissions"
            ) from error

    def missing_error(self) -> str | None:
        """Returns the error to raise if the registry file is missing but a copy shows that it
        existed. Returns None if there may never have been one."""
        if not previous_path(self.path).exists():
            return None
        return (
            f"the registry {self.path} is missing but {self.previous} exists: restore it with "
            f"'cp -p {self.previous} {self.path}', or remove both if no node is lent"
        )

    def write(self, content: bytes) -> bool:
        """Replaces the registry file if its content differs. Returns whether it did. Raises
        RegistryError; the old file is intact then. `KubeState.write` also raises LockedError."""
        path = self.path
        try:
            access = access_in(path.parent)
            for file in (path, previous_path(path)):
                fix_access(file, access)
            with suppress(FileNotFoundError):
                if read_regular(path, LARGEST) == content:
                    return False
            replace_file(path, [content], "registry", access, keep=self._keep_previous)
        except OSError as error:
            raise RegistryError(
                f"the registry {path} can't be written ({error.strerror or error}): "
                "free space or fix the permissions of its directory; nothing further is done"
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

    def begin(self) -> None:
        """Takes the Lease. Does nothing for an administrator's command, which needs only the lock
        of the file and works without the API server. Raises the errors of `LeaseLock.take`."""
        if self._objects is not None:
            self.take()
