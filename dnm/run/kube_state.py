"""The registry of an instance in Kubernetes: one Secret, under optimistic locking and a Lease.

It is a Secret, not a ConfigMap, because the output of converters and the names of operators in it
are protected, as in a registry file. A run reads it once. It writes the Secret with its own run
number, under the resourceVersion that it read or wrote last. If another run takes the Lease, it
writes its number first, which changes the resourceVersion. After that, the API server refuses a
write of the earlier run, for example if that run was asleep meanwhile."""

from __future__ import annotations

import base64
import gzip
import os
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dnm.host.trust import read_trusted
from dnm.kube.errors import ApiRefused
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, KubeError, LockedError, RegistryError, StateError
from dnm.model.lease import Place
from dnm.model.printable import printable
from dnm.model.stored_registry import LARGEST, MOVED, StoredRegistry, unreadable
from dnm.plan.lease import secret_word
from dnm.run.lease_lock import LeaseLock
from dnm.run.lease_view import since_boot

if TYPE_CHECKING:
    from dnm.kube.state import StateObjects

_NOW, _BEFORE = "registry.json", "previous.json"
_PACKED_FROM = 256 * 1024  # bytes
_LARGEST_DATA = 1024 * 1024  # bytes of all data of a Secret, as the API server counts


class KubeState(LeaseLock):
    """The Secret with the registry of an instance, and the right of one run to write it."""

    kind = "kubernetes"
    _stored: StoredRegistry | None = None
    _is_read = False

    def __init__(
        self,
        config: Config,
        objects: StateObjects,
        place: Place,
        clock: Callable[[], float] = since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(config, clock, sleep)
        self.attach(objects, place)
        self._secret = objects
        self._file = config.converted_nodes_path
        self.registry = secret_word(config)

    @property
    def where(self) -> str:
        return f"Secret {self._secret.secret_name}"

    @property
    def previous(self) -> str:
        return f"{_BEFORE} in {self.where}"

    def read(self) -> bytes | None:
        stored = self._find()
        if stored is None or stored == _unwritten(stored):
            return None
        try:
            return unpack(stored.data, _NOW)
        except ValueError as error:
            raise RegistryError(unreadable(self.where, self.previous, str(error))) from error

    def missing_error(self) -> str | None:
        stored = self._find()
        if self.moves or (stored is not None and stored != _unwritten(stored)):
            return None
        if _is_registry_in_force(self._file):
            return (
                f"the registry of this host is still {self._file}, and registry = kubernetes names "
                f"{self.where}: run `dnm registry move --to kubernetes` here first"
            )
        if stored is not None or self.begins_anew or not self.highest:
            return None
        lease = self._look()
        if lease.registry != self.registry:
            return (
                f"there is no registry in {self.where}. Lease {self._edge.lease_name} names "
                f"another one: {printable(lease.last, 300)} acted last. Run `dnm registry move "
                "--to kubernetes` there, or `dnm takeover` here if that host is gone"
            )
        return (
            f"the registry {self.where} is missing, but Lease {self._edge.lease_name} shows that "
            f"{self.highest} runs have acted. Restore it from a backup. If there is none, run `dnm "
            "resume`: a new registry begins with the pause, holds and exclusions that the Lease "
            "keeps"
        )

    def begin(self) -> None:
        """Takes the Lease. Creates a missing Secret first, so that each Lease has a Secret."""
        if missing := self.missing_error():
            raise RegistryError(missing)
        if self._find() is None:
            self._stored = self._create()
        self.take(above=self._stored.number if self._stored else 0)

    def write(self, content: bytes) -> bool:
        """Takes the Lease. Writes a changed registry if the Secret has the version as read."""
        before, recorded = self.read(), self._stored
        is_equal = before == content
        if recorded is not None and is_equal and self.number in (0, recorded.number):
            return False
        self.begin()
        self.keep()
        assert self._stored is not None
        data = self._stored.data if is_equal else self._pack(content, before or b"")
        stored = replace(self._stored, number=self.number, data=data)
        try:
            self._stored = self._secret.write_registry(stored)
        except KubeConflict as error:
            raise self.lose() from error
        except KubeError as error:
            self._stored = self._after_lost_answer(stored, error)
        return not is_equal

    # --- the object ---------------------------------------------------------------------------

    def _find(self) -> StoredRegistry | None:
        """Returns the Secret. Reads the Lease before it, to notice a run that acts in between."""
        if not self._is_read:
            _ = self.highest
            self._stored, self._is_read = self._secret.read_registry(), True
        return self._stored

    def _create(self) -> StoredRegistry:
        try:
            return self._secret.write_registry(StoredRegistry())
        except ApiRefused as error:
            if error.status != 404:
                raise
            namespace = self._secret.secret_name.partition("/")[0]
            raise StateError(
                f"{error}: make the namespace once, `kubectl create namespace {namespace}`, or "
                "apply etc/rbac.yaml"
            ) from error
        except KubeConflict as error:
            existing = self._secret.read_registry()
            if existing is not None and existing == _unwritten(existing):
                return existing  # another run made it, and it is empty
            raise LockedError(f"another run has just written {self.where} and acts") from error

    def _after_lost_answer(self, stored: StoredRegistry, error: KubeError) -> StoredRegistry:
        try:
            existing = self._secret.read_registry()
        except KubeError:
            existing = None
        if existing is not None and (existing.number, dict(existing.data)) == (
            stored.number, dict(stored.data)
        ):  # fmt: skip
            return existing
        raise StateError(f"{error}; nothing further is done") from error

    def _pack(self, content: bytes, before: bytes) -> dict[str, str]:
        """Returns the Secret's data: the registry and, if both fit, the one before this change."""
        data = pack(content, _NOW)
        if (size := _size(data)) > _LARGEST_DATA:
            raise RegistryError(
                f"the registry has {len(content)} bytes, {size} after compression, but "
                f"{self.where} holds {_LARGEST_DATA}: nothing further is done; a file has no such "
                "limit: `dnm registry move --to file`"
            )
        both = {**data, **(pack(before, _BEFORE) if before else {})}
        return both if _size(both) <= _LARGEST_DATA else data


def _is_registry_in_force(path: Path) -> bool:
    """Returns whether the file is the valid registry of this host and was not moved to Kubernetes.
    Raises RegistryError if it cannot be read."""
    try:
        os.lstat(path)
        content = read_trusted(path, LARGEST, RegistryError)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RegistryError(
            f"{path} cannot be read ({error.strerror}), and it may be the registry of this host: "
            "fix its permissions"
        ) from error
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(content, type=_Version).version != MOVED
    return True


class _Version(msgspec.Struct):
    version: int | str = ""


def _unwritten(stored: StoredRegistry) -> StoredRegistry:
    """Returns the Secret as it is right after its creation, before dnm writes a registry to it."""
    return StoredRegistry(version=stored.version)


def _size(data: Mapping[str, str]) -> int:
    return sum(len(base64.b64decode(text)) for text in data.values())


def pack(content: bytes, name: str) -> dict[str, str]:
    """Returns a Secret's data with this document under `name`, compressed if it is large."""
    if len(content) <= _PACKED_FROM:
        return {name: base64.b64encode(content).decode()}
    packed = gzip.compress(content, mtime=0)
    return {f"{name}.gz": base64.b64encode(packed).decode()}


def unpack(data: Mapping[str, str], name: str) -> bytes:
    """Returns the document that `pack` stored. Raises ValueError if it is missing or damaged."""
    if name in data:
        return base64.b64decode(data[name], validate=True)
    if f"{name}.gz" not in data:
        raise ValueError(f"it has no {name}")
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    try:
        packed = base64.b64decode(data[f"{name}.gz"], validate=True)
        content = unpacker.decompress(packed, LARGEST + 1)
    except zlib.error as error:
        raise ValueError(f"{name}.gz is not gzip ({error})") from error
    if len(content) > LARGEST or not unpacker.eof:
        raise ValueError(f"{name}.gz is cut off, or has more than {LARGEST} bytes")
    return content
