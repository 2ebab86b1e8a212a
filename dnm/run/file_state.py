"""The registry in a file of this host, which its lock guards."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from dnm.host.fault_points import fault_point
from dnm.host.trust import Access, access_of, give_access, mend_access, read_regular, read_trusted
from dnm.model.errors import RegistryError

LARGEST = 64 * 1024 * 1024  # bytes; a thousand lent nodes take 0.5 MiB


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

    def why_missing(self) -> str | None:
        if not previous_path(self.path).exists():
            return None
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

    def keep(self, anew: bool = False) -> None:
        """So it is until the end."""

    def stand_by(self) -> None:
        """The lock does this, and all of these: it is held already, and goes with the run."""

    begin = seize = end = stand_by


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
