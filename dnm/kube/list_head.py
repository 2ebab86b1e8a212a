"""The head of a LIST's page: what it is, which moment it shows, and whether more pages follow.

The rule: a list is only a list with its `kind`, a `metadata.resourceVersion` and an array `items`,
and all its pages show one moment. A proxy's page, a `v1.Status` with 200 or `{}` is no list, and
least of all an empty one: a node would be taken for idle.
"""

from __future__ import annotations

import re

import msgspec

_HEAD_BYTES = 4096  # of a page: an API server writes kind and metadata before the items
_ITEMS = re.compile(rb'"items"\s*:\s*\[')


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    token: str | None = msgspec.field(name="continue", default=None)


class _Head(msgspec.Struct, frozen=True):
    kind: str = ""
    metadata: _ListMetadata | None = None


class _WholeList(_Head, frozen=True):
    items: list[msgspec.Raw] | None = None


class _Item(msgspec.Struct, frozen=True):
    metadata: _ListMetadata


class _ItemVersions(msgspec.Struct, frozen=True):
    items: list[_Item]


class ListHead(msgspec.Struct, frozen=True):
    """`version` is the moment that all pages of the list show; `token` is empty on the last."""

    version: str
    token: str


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_versions = msgspec.json.Decoder(_ItemVersions).decode
_decode_whole = msgspec.json.Decoder(_WholeList).decode


def read_list_head(page: memoryview | bytes, kind: str) -> ListHead:
    """Reads the head without looking at the items where they come last.

    Raises ValueError or msgspec.MsgspecError where the page is no list of that kind.
    """
    head = _read_ahead_of_items(bytes(page[:_HEAD_BYTES]))
    if head is None or not (head.kind and head.metadata):
        whole = _decode_whole(page)
        if whole.items is None:
            raise ValueError(f"it is no {kind} but {_describe(whole.kind)} without items")
        head = whole
    if head.kind != kind:
        raise ValueError(f"it is no {kind} but {_describe(head.kind)}")
    metadata = head.metadata or _ListMetadata()
    if not metadata.resource_version:
        raise ValueError(f"it is a {kind} without a resourceVersion")
    return ListHead(version=metadata.resource_version, token=metadata.token or "")


def read_item_versions(page: memoryview | bytes) -> list[str]:
    """Returns the resourceVersions of a list's items. Raises msgspec.MsgspecError."""
    return [item.metadata.resource_version for item in _decode_versions(page).items]


def _read_ahead_of_items(start: bytes) -> _Head | None:
    """What stands before the items; None where they are not the last part of the page."""
    found = _ITEMS.search(start)
    if found is None:
        return None
    try:
        return _decode_head(start[: found.start()].rstrip(b", \t\r\n") + b"}")
    except msgspec.MsgspecError:
        return None  # "items" was part of something else


def _describe(kind: str) -> str:
    return f"a {kind[:60]}" if kind else "a document of no kind"
