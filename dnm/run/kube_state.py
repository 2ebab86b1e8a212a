"""The registry of an instance in Kubernetes: one Secret, under optimistic locking and a Lease.

A Secret, not a ConfigMap: what converters printed stands in it, and who gave which verb; as a file
it is closed to others too. It is read once in a run, and written under the version that was read or
written last, with the run's number beside it. So a run that has planned on what is old by now, or
that was asleep while another acted, can't write: the first write of a run that takes the Lease is
its number, and from then on every version that an earlier run knows is an old one.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import zlib
from collections.abc import Mapping

from msgspec.structs import replace

from dnm.kube.errors import ApiRefused
from dnm.model.errors import KubeConflict, KubeError, LockedError, RegistryError, StateError
from dnm.model.lease import LARGEST, StoredRegistry, unreadable
from dnm.run.lease_lock import LeaseLock

_NOW, _BEFORE = "registry.json", "previous.json"
_PACKED_FROM = 256 * 1024  # bytes
_LARGEST_DATA = 1024 * 1024  # bytes of all that a Secret holds, as the API server counts them
_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")


def object_name(instance: str) -> str:
    """Returns what the Secret and the Lease of an instance are called: a DNS subdomain."""
    if _PLAIN_NAME.fullmatch(instance):
        return f"dnm-{instance}"
    plain = re.sub(r"[^a-z0-9-]", "-", instance.lower())[:40].strip("-")
    return f"dnm-{plain}-{hashlib.sha256(instance.encode()).hexdigest()[:10]}"


class KubeState(LeaseLock):
    """The Secret of an instance as one run knows it, and the run's right to write it."""

    kind = "kubernetes"
    _stored: StoredRegistry | None = None
    _is_read = False

    @property
    def where(self) -> str:
        return f"Secret {self._objects.full_name}"

    @property
    def previous(self) -> str:
        return f"{_BEFORE} in {self.where}"

    def read(self) -> bytes | None:
        known = self._find()
        if known is None or known == _unwritten(known):
            return None
        try:
            return unpack(known.data, _NOW)
        except ValueError as error:
            raise RegistryError(unreadable(self.where, self.previous, str(error))) from error

    def why_missing(self) -> str | None:
        if self._find() is not None or not self.highest:
            return None
        return (
            f"the registry {self.where} is missing, but Lease {self._objects.full_name} says that "
            f"{self.highest} runs have acted: restore it from a backup, or delete the "
            "Lease too if no node is lent"
        )

    def begin(self) -> None:
        """The object comes before the Lease: where there is a Lease it has been there."""
        if missing := self.why_missing():
            raise RegistryError(missing)
        if self._find() is None:
            self._stored = self._create()
        self.take(above=self._stored.number if self._stored else 0)

    def write(self, content: bytes) -> bool:
        """Under the version that this run knows. A run that does not act yet begins to."""
        before, known = self.read(), self._stored
        stands = before == content
        if known is not None and stands and self.number in (0, known.number):
            return False
        self.begin()
        self.keep()
        assert self._stored is not None
        data = self._stored.data if stands else self._pack(content, before or b"")
        stored = replace(self._stored, number=self.number, data=data)
        try:
            self._stored = self._objects.write_registry(stored)
        except KubeConflict as error:
            raise self.lose() from error
        except KubeError as error:
            self._stored = self._after_lost_answer(stored, error)
        return not stands

    # --- the object ---------------------------------------------------------------------------

    def _find(self) -> StoredRegistry | None:
        """The Lease is read first: whoever takes it after that is met by its version."""
        if not self._is_read:
            _ = self.highest
            self._stored, self._is_read = self._objects.read_registry(), True
        return self._stored

    def _create(self) -> StoredRegistry:
        try:
            return self._objects.write_registry(StoredRegistry())
        except ApiRefused as error:
            if error.status != 404:
                raise
            namespace = self._objects.full_name.partition("/")[0]
            raise StateError(
                f"{error}: make the namespace once, `kubectl create namespace {namespace}`, or "
                "apply etc/rbac.yaml"
            ) from error
        except KubeConflict as error:
            found = self._objects.read_registry()
            if found is not None and found == _unwritten(found):
                return found  # whoever made it: nothing stands there yet
            raise LockedError(f"another run has just written {self.where}; it acts") from error

    def _after_lost_answer(self, stored: StoredRegistry, error: KubeError) -> StoredRegistry:
        try:
            found = self._objects.read_registry()
        except KubeError:
            found = None
        if found is not None and (found.number, dict(found.data)) == (
            stored.number, dict(stored.data)
        ):  # fmt: skip
            return found
        raise StateError(f"{error}; nothing further is done") from error

    def _pack(self, content: bytes, before: bytes) -> dict[str, str]:
        """With the one before, where there is room for both."""
        data = pack(content, _NOW)
        if (size := _size(data)) > _LARGEST_DATA:
            raise RegistryError(
                f"the registry has {len(content)} bytes, {size} as they are packed, and "
                f"{self.where} holds {_LARGEST_DATA}: nothing further is done; a file has room, "
                "`dnm state move --to file`"
            )
        both = {**data, **(pack(before, _BEFORE) if before else {})}
        return both if _size(both) <= _LARGEST_DATA else data


def _unwritten(stored: StoredRegistry) -> StoredRegistry:
    """As it is made, before anybody has written a registry there."""
    return StoredRegistry(version=stored.version)


def _size(data: Mapping[str, str]) -> int:
    return sum(len(base64.b64decode(text)) for text in data.values())


def pack(content: bytes, name: str) -> dict[str, str]:
    """Returns the entry of a Secret's data that holds it, packed where it is large."""
    if len(content) <= _PACKED_FROM:
        return {name: base64.b64encode(content).decode()}
    packed = gzip.compress(content, mtime=0)
    return {f"{name}.gz": base64.b64encode(packed).decode()}


def unpack(data: Mapping[str, str], name: str) -> bytes:
    """Returns what `pack` was given. Raises ValueError where it is not there, or no such thing."""
    if name in data:
        return base64.b64decode(data[name], validate=True)
    if f"{name}.gz" not in data:
        raise ValueError(f"it has no {name}")
    unpacker = zlib.decompressobj(wbits=31)  # gzip
    try:
        packed = base64.b64decode(data[f"{name}.gz"], validate=True)
        content = unpacker.decompress(packed, LARGEST + 1)
    except zlib.error as error:
        raise ValueError(f"{name}.gz is no gzip ({error})") from error
    if len(content) > LARGEST or not unpacker.eof:
        raise ValueError(f"{name}.gz is cut off, or has more than {LARGEST} bytes")
    return content
