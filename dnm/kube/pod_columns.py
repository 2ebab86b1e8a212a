"""Pods in columns, the form in which dnm stores them for the next run.

Pods of one application differ in five fields only. The other fields of a pod are its "kind", of
which there are a few thousand. So dnm reads 150,000 pods in a tenth of a second, and changes one
pod without decoding the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from dnm.model.pod import Pod, PodShape

_OWN = ("name", "uid", "created", "node")  # and its version: fields that differ for each pod
_SHARED = tuple(
    field for field in msgspec.structs.fields(Pod) if field.name not in (*_OWN, "shape")
)
_shared_of = attrgetter(*(field_info.name for field_info in _SHARED))
if TYPE_CHECKING:
    Kind = Any
else:
    # The fields that equal pods share: `shape` is an index of the list of shapes, others as in Pod.
    Kind = msgspec.defstruct(
        "Kind", [("shape", int), *((item.name, item.type) for item in _SHARED)],
        frozen=True, array_like=True, forbid_unknown_fields=True,
    )  # fmt: skip


class PodColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A table of pods: each column is a list, each row a pod. `versions` are their
    resourceVersions.

    `nodes` and `kinds` have indices of the lists `node_names` and `all_kinds`."""

    names: list[str]
    uids: list[str]
    created: list[str]
    versions: list[int]
    nodes: list[int]
    kinds: list[int]
    node_names: list[str]
    all_kinds: list[Kind]
    shapes: list[PodShape]

    def check(self) -> None:
        """Raises ValueError if columns differ in length, or if an index refers to nothing."""
        columns = (self.names, self.uids, self.created, self.versions, self.nodes, self.kinds)
        if len({len(column) for column in columns}) != 1:
            raise ValueError("its columns have different lengths")
        _check_places(self.nodes, self.node_names)
        _check_places(self.kinds, self.all_kinds)
        _check_places([kind.shape for kind in self.all_kinds], self.shapes)

    def namespace_of(self, row: int) -> str:
        """Returns the namespace of the pod in a row."""
        return str(self.all_kinds[self.kinds[row]].namespace)

    def to_pods(self) -> tuple[Pod, ...]:
        """Returns the pods in the order of the rows. Equal shapes are one object."""
        kinds = self.all_kinds
        columns: dict[str, Iterable[Any]] = {
            field_info.name: map(
                [getattr(kind, field_info.name) for kind in kinds].__getitem__, self.kinds
            )
            for field_info in _SHARED
        }
        shape_of = [self.shapes[kind.shape] for kind in kinds]
        columns |= {
            "name": self.names,
            "uid": self.uids,
            "created": self.created,
            "node": map(self.node_names.__getitem__, self.nodes),
            "shape": map(shape_of.__getitem__, self.kinds),
        }
        return tuple(map(Pod, *(columns[field] for field in Pod.__struct_fields__)))


def _check_places(places: Sequence[int], of: Sequence[object]) -> None:
    if places and not 0 <= min(places) <= max(places) < len(of):
        raise ValueError("one of its columns points at nothing")


def make_columns(pods: Iterable[Pod], versions: Iterable[int]) -> PodColumns:
    """Returns the columns with these pods and their versions."""
    writer = ColumnWriter(PodColumns([], [], [], [], [], [], [], [], []))
    for pod, version in zip(pods, versions, strict=True):
        writer.add(pod, version)
    return writer.columns


class ColumnWriter:
    """A writer that adds, replaces and removes pods in columns. No other code may change them."""

    def __init__(self, columns: PodColumns) -> None:
        self.columns = columns
        self._nodes = {name: place for place, name in enumerate(columns.node_names)}
        self._shapes = {_text(shape): place for place, shape in enumerate(columns.shapes)}
        self._place_of_shape: dict[int, tuple[PodShape, int]] = {}
        self._kinds = {_key_of(kind): place for place, kind in enumerate(columns.all_kinds)}

    def add(self, pod: Pod, version: int) -> None:
        """Appends a row with a pod and its resourceVersion."""
        columns = self.columns
        columns.names.append(pod.name)
        columns.uids.append(pod.uid)
        columns.created.append(pod.created)
        columns.versions.append(version)
        columns.nodes.append(self._node(pod.node))
        columns.kinds.append(self._kind(pod))

    def put(self, row: int, pod: Pod, version: int) -> None:
        """Replaces a row by a later version of the same pod."""
        columns = self.columns
        columns.created[row] = pod.created
        columns.versions[row] = version
        columns.nodes[row] = self._node(pod.node)
        columns.kinds[row] = self._kind(pod)

    def drop(self, rows: Iterable[int]) -> None:
        """Removes the rows with these numbers in one step."""
        dropped = set(rows)
        if not dropped:
            return
        kept = [row not in dropped for row in range(len(self.columns.names))]
        for field in ("names", "uids", "created", "versions", "nodes", "kinds"):
            column = getattr(self.columns, field)
            setattr(self.columns, field, list(compress(column, kept)))

    def _node(self, name: str) -> int:
        place = self._nodes.setdefault(name, len(self.columns.node_names))
        if place == len(self.columns.node_names):
            self.columns.node_names.append(name)
        return place

    def _kind(self, pod: Pod) -> int:
        kind = Kind(self._shape(pod.shape), *_shared_of(pod))
        key = _key_of(kind)
        place = self._kinds.setdefault(key, len(self.columns.all_kinds))
        if place == len(self.columns.all_kinds):
            self.columns.all_kinds.append(kind)
        return place

    def _shape(self, shape: PodShape) -> int:
        entry = self._place_of_shape.get(id(shape))
        if entry is None:
            place = self._shapes.setdefault(_text(shape), len(self.columns.shapes))
            if place == len(self.columns.shapes):
                self.columns.shapes.append(shape)
            entry = self._place_of_shape[id(shape)] = shape, place  # stored, so the id stays unique
        return entry[1]


_encode = msgspec.msgpack.Encoder(order="sorted").encode


def _text(shape: PodShape) -> bytes:
    """Returns bytes by which a dictionary finds equal shapes, since a shape is not hashable."""
    return _encode(shape)


def _key_of(kind: Kind) -> object:
    return _encode(kind) if kind.task_groups else kind
