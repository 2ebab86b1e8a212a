"""Trust in files: dnm does not obey a file or directory that other users can change.

The writers of dnm's configuration, its state, its converter or a hook decide which machines are
power-cycled. So each file must belong to root or to dnm's user, and no other user or group may
write it. The same rule applies to every folder and link on its path (as sshd's StrictModes).
Otherwise another file could replace it between check and use. A folder with the sticky bit, as
/tmp, is allowed, since users can't rename files there that are not theirs.

Only the owner can read the registry and its history, since they contain converters' output and
lends. If their directory has the setgid bit, as after `chmod g+s`, its group can read them too.

Every read has a bound in bytes: a device or a named pipe instead of a file must neither fill the
memory of a run nor hold its lock."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dnm.host.distrust import Distrust, foreign, writable
from dnm.host.fault_points import fault_point
from dnm.model.errors import ConfigError, DnmError
from dnm.model.value import Value

_SHARED_WRITE = stat.S_IWGRP | stat.S_IWOTH
_PIECE = 256 * 1024  # bytes of one read
_MOST_LINKS = 40  # the kernel's limit


def find_distrust(path: Path, info: os.stat_result) -> Distrust | None:
    """Returns the reason not to trust `path`, or None.

    `info` is the result of `os.stat`, or of `os.fstat` of the opened file, which excludes a race.
    Raises OSError if a part of the path can't be examined."""
    for step, on_the_way in _way_to(path):
        if distrust := _distrust_of_step(path, step, on_the_way):
            return distrust
    kind = "directory" if stat.S_ISDIR(info.st_mode) else "file"
    if not _is_own(info):
        return foreign(f"the {kind} {path}", str(path), info, "could change what dnm does")
    if info.st_mode & _SHARED_WRITE:
        return writable(f"the {kind} {path}", str(path), info)
    return None


def check_trust(path: Path, error: type[DnmError] = ConfigError) -> None:
    """Raises `error` if other users can change `path`, and OSError if that can't be examined."""
    if distrust := find_distrust(path, os.stat(path)):
        raise error(str(distrust))


def _way_to(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields every folder and link on the path to `path`, from the root. Follows links."""
    todo = _parts(os.path.abspath(path))
    place, links = "/", 0
    yield place, os.lstat(place)
    while todo:
        part = todo.pop()
        if part == "..":
            place = os.path.dirname(place)
            continue
        step = os.path.join(place, part)
        info = os.lstat(step)
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            yield step, info
            target = os.readlink(step)
            place = "/" if target.startswith("/") else place
            todo += _parts(target)
            continue
        place = step
        if todo:
            yield step, info


def _parts(path: str) -> list[str]:
    """Returns the names in a path in reverse order, without empty ones and dots."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _distrust_of_step(path: Path, step: str, info: os.stat_result) -> Distrust | None:
    is_link = stat.S_ISLNK(info.st_mode)
    description = f"the {'link' if is_link else 'directory'} {step} on the path to {path}"
    if not _is_own(info):
        return foreign(description, step, info, "could replace it", "-h ")
    if not is_link and info.st_mode & _SHARED_WRITE and not info.st_mode & stat.S_ISVTX:
        return writable(description, step, info, ", who could replace its files")
    return None


def _is_own(info: os.stat_result) -> bool:
    return info.st_uid in (0, os.geteuid())


def read_trusted(path: Path, largest: int, error: type[DnmError] = ConfigError) -> bytes:
    """Returns the content of a file that only root and dnm's user can write.

    dnm checks the file after it has opened it, so that no user can exchange it in between. Raises
    `error` if the file cannot be trusted, is not regular or is larger than `largest` bytes, and
    OSError if it cannot be read."""

    def judge(info: os.stat_result) -> None:
        if distrust := find_distrust(path, info):
            raise error(str(distrust))

    try:
        return read_regular(path, largest, judge)
    except OSError as irregular:
        if irregular.errno == errno.EFBIG:
            raise error(
                f"{path} is larger than {largest} bytes: check that it is the right file"
            ) from irregular
        if irregular.errno != errno.EINVAL:
            raise
        why = (irregular.strerror or "").removeprefix("it ")
        raise error(f"{path} {why}: put a regular file there, or correct the path") from irregular


def read_regular(
    path: Path, largest: int, judge: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """Returns the content of a regular file of at most `largest` bytes. Opening does not wait, so a
    named pipe cannot block dnm. `judge` may raise an error to refuse the file. Raises OSError, also
    for a file that is not regular."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            kind = "a directory" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise OSError(errno.EINVAL, f"it is {kind}", str(path))
        if judge is not None:
            judge(info)
        with open(descriptor, "rb", closefd=False) as file:
            content = bytearray()  # a read of `largest` bytes would take that much memory
            while len(content) <= largest and (piece := file.read(_PIECE)):
                content += piece
    finally:
        os.close(descriptor)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it is larger than {largest} bytes", str(path))
    return bytes(content)


class FileMode(Value):
    """The mode, group id and owner id that a file should have. An id of -1 leaves it unchanged."""

    mode: int = 0o600
    group: int = -1
    owner: int = -1


def access_in(directory: Path) -> FileMode:
    """Returns the mode and group for dnm's files in a directory: the owner can read them, and if
    the directory has the setgid bit, its group too. Raises OSError."""
    try:
        info = os.stat(directory)
    except FileNotFoundError:  # the write reports it
        return FileMode()
    return FileMode(mode=0o640, group=info.st_gid) if info.st_mode & stat.S_ISGID else FileMode()


def give_access(descriptor: int, access: FileMode) -> None:
    """Sets group and mode of a file that so far only its owner can access. Raises OSError."""
    os.fchown(descriptor, -1, access.group)
    os.fchmod(descriptor, access.mode)


def fix_access(path: Path, access: FileMode) -> None:
    """Restores mode, group and owner of a file that an administrator has changed. No other user
    gets access in between. Ignores a missing file. Raises OSError."""
    with suppress(FileNotFoundError):
        info = os.lstat(path)
        is_right = (
            stat.S_IMODE(info.st_mode) == access.mode
            and access.group in (-1, info.st_gid)
            and access.owner in (-1, info.st_uid)
        )
        if stat.S_ISREG(info.st_mode) and not is_right:
            with fault_point("registry.access"):
                os.chmod(path, 0o600)
                os.chown(path, access.owner, access.group)
                os.chmod(path, access.mode)


def replace_file(
    path: Path,
    content: Iterable[bytes],
    point: str,
    access: FileMode | None = None,
    is_durable: bool = True,
    keep: Callable[[], None] | None = None,
    ending: str = "new",
) -> None:
    """Replaces the content of a file. Raises OSError; the old file is intact then. `point` is the
    prefix of its fault points, at which tests make a call fail. `keep` is called just before the
    rename. With `is_durable`, file and directory are synced before the function returns. `ending`
    is the suffix of the temporary file, and must differ for concurrent writers."""
    temporary = path.parent / f"{path.name}.{ending}"  # a directory may have no name
    try:
        with fault_point(point + ".write"):
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                give_access(descriptor, access or FileMode())
                file.writelines(content)
                if is_durable:
                    file.flush()
                    with fault_point(point + ".fsync"):
                        os.fsync(descriptor)
        if keep is not None:
            keep()
        with fault_point(point + ".rename"):
            os.replace(temporary, path)
    except OSError:
        # A useless temporary file must not fill a full disk.
        with suppress(OSError), fault_point(point + ".write"):
            temporary.unlink(missing_ok=True)
        raise
    if is_durable:
        with fault_point(point + ".fsync_directory"):
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
