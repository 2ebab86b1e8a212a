"""The file with all pods and nodes, reduced and with their versions, that a run leaves to the next.

    magic, 32 bytes of BLAKE2b over the rest, MessagePack of the head, the pods, the nodes

Each part is decoded when it is needed, the head first. A damaged file is refused completely. It is
beside the registry, and only its owner may read it. It is a copy, so dnm does not sync it to disk;
if a power failure damages it, the checksum is wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import read_regular, read_trusted, replace_file
from dnm.kube.pod_columns import PodColumns
from dnm.kube.watching import NotProved, Why, Witness
from dnm.model.errors import DnmError
from dnm.model.node import Node

_MAGIC = b"dnm cluster store 1\n"
_DIGEST = 32
_LARGEST = 1 << 30  # bytes; 150,000 pods take 15 MB
_LARGEST_NOTE = 1 << 16
_ARRAY_OF_3 = b"\x93"  # of MessagePack: a `_File`, before its fields


class StoreHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head of the store. `lens` has all settings that affect what dnm reads. `pods_version` and
    `nodes_version` are those of the last change, `..._listed` those of the last full list, at
    `listed_at`. `pods` is the number of pods. `unproved` counts consecutive watches that proved
    nothing. `rests` is the reason why dnm tries no watch until the next full list; then the store
    has no objects."""

    lens: tuple[str, ...]
    cluster: str  # uid of the namespace kube-system
    listed_at: datetime
    pods_version: int
    nodes_version: int
    pods_listed: int
    nodes_listed: int
    last_pod: Witness
    last_node: Witness
    pods: int
    unproved: int = 0
    rests: str = ""


class _File(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    head: StoreHead
    pods: msgspec.Raw
    nodes: msgspec.Raw


class Store(msgspec.Struct):
    """The decoded store. Only the code that has decoded it may change `pods`."""

    head: StoreHead
    pods: PodColumns
    nodes: tuple[Node, ...]


_decode_file = msgspec.msgpack.Decoder(_File).decode
_decode_pods = msgspec.msgpack.Decoder(PodColumns).decode
_decode_nodes = msgspec.msgpack.Decoder(tuple[Node, ...]).decode
_encode = msgspec.msgpack.Encoder().encode
_BROKEN = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


class StoreFile:
    """The store as read from its file. Pods and nodes are not decoded yet."""

    def __init__(self, content: bytes) -> None:
        """Raises NotProved if the file is damaged or of another version of dnm."""
        start = len(_MAGIC) + _DIGEST
        if not content.startswith(_MAGIC):
            raise NotProved(Why.FOREIGN, "it is of another version")
        payload = memoryview(content)[start:]
        if blake2b(payload, digest_size=_DIGEST).digest() != content[len(_MAGIC) : start]:
            raise NotProved(Why.DAMAGED, "its checksum is wrong")
        try:
            self._file = _decode_file(payload)
        except _BROKEN as error:
            raise NotProved(Why.DAMAGED, str(error)) from error
        self.head = self._file.head

    def decode(self) -> Store:
        """Decodes the pods and nodes too. Each call returns new objects. Raises NotProved."""
        try:
            pods = _decode_pods(self._file.pods)
            pods.check()
            return Store(self.head, pods, _decode_nodes(self._file.nodes))
        except _BROKEN as error:
            raise NotProved(Why.DAMAGED, str(error)) from error


def encode_store(store: Store) -> Sequence[bytes]:
    """Returns the bytes of the store's file in pieces: joining them would copy 13 MB twice."""
    return _seal(store.head, _encode(store.pods), _encode(store.nodes))


def encode_rest(head: StoreHead) -> Sequence[bytes]:
    """Returns the bytes of a store without objects, with the reason for that in `head.rests`."""
    empty = _encode(PodColumns([], [], [], [], [], [], [], [], []))
    return _seal(head, empty, _encode(()))


def _seal(head: StoreHead, pods: bytes, nodes: bytes) -> Sequence[bytes]:
    parts = (_ARRAY_OF_3, _encode(head), pods, nodes)
    digest = blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return (_MAGIC, digest.digest(), *parts)


# --- on disk -------------------------------------------------------------------------------------


def read_store(path: Path) -> bytes:
    """Returns the content of the store's file. Raises NotProved if it is missing or another user
    can write it."""
    try:
        os.lstat(path)  # without a file, nothing is read
        with fault_point("store.read"):
            return read_trusted(path, _LARGEST, DnmError)
    except FileNotFoundError as error:
        raise NotProved(Why.FIRST, f"there is no {path} yet") from error
    except OSError as error:
        raise NotProved(Why.DAMAGED, f"{path} can't be read ({error.strerror})") from error
    except DnmError as error:
        raise NotProved(Why.DAMAGED, str(error)) from error


def write_store(path: Path, content: Sequence[bytes]) -> None:
    """Replaces the store's file by these bytes. Raises OSError; the old file is intact then."""
    replace_file(path, content, "store", is_durable=False)


def remove_store(path: Path) -> None:
    """Removes the store's file, if there is one. Raises OSError."""
    if path.exists():
        with fault_point("store.remove"), suppress(FileNotFoundError):
            path.unlink()


def distrust_path(store: Path) -> Path:
    """Returns the path of a note that a watch has omitted an event. While the note exists, every
    run of this release reads the full lists. An administrator removes it."""
    return store.with_name(store.name + "-distrusted")


def note_distrust(store: Path, sentence: str) -> None:
    """Writes the note that a watch has omitted an event. Raises OSError."""
    write_store(distrust_path(store), [f"{version('dnm')}\n{sentence}\n".encode()])


def read_distrust(store: Path) -> str:
    """Returns the note that a run of this release has written, or an empty text."""
    path = distrust_path(store)
    try:
        release, _, sentence = (
            read_regular(path, _LARGEST_NOTE).decode(errors="replace").partition("\n")
        )
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path} can't be read ({error.strerror})"
    return f"{sentence.strip()} (remove {path} to try again)" if release == version("dnm") else ""
