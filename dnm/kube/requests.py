"""The requests to one API server that all of dnm's edges share: "not there", a sentence for
whatever goes wrong, and lists, in the pages that a server makes, or cut from one answer.

One answer is asked for where the server prints a list item by item (KEP-5116, from 1.34) and there
are thousands: priority and fairness charge a page of it as much as all of it (Kubernetes'
list_work_estimator.go). An older server makes the whole answer in its memory first, several times
over; there pages are kinder.

The rule: a list is only a list with its `kind`, a `metadata.resourceVersion` and an array `items`,
and all its pages show one moment. A proxy's page, a `v1.Status` with 200 or `{}` is no list, and
least of all an empty one: a node would be taken for idle.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from dnm.http.reader import LARGEST_BODY, AnswerTooLarge
from dnm.kube.access import Access
from dnm.kube.errors import ApiRefused, ListTooLarge, asking, repeat_on_conflict
from dnm.kube.objects import ListPage, check_kind, read_version
from dnm.kube.session import JSON, ApiAnswer, Session
from dnm.kube.whole_list import cut_list

_RESTARTS = 3  # of a LIST whose continue token has expired
T = TypeVar("T")
_FAILURES = (ApiRefused, OSError, ValueError, msgspec.MsgspecError, RecursionError)
_PAGE_ITEMS = 500
_LIST_TIMEOUTS = 10  # a LIST may take this many request time-outs
_SHRINK = 4  # a page that is too large is asked for again with so many times fewer items
_STREAMS_FROM = (1, 34)
_HEAD_BYTES = 4096  # of a page: an API server writes kind and metadata before the items
_ITEMS = re.compile(rb'"items"\s*:\s*\[')
_RELEASE = re.compile(r"v(\d{1,4})\.(\d{1,4})\b")


class List(msgspec.Struct, frozen=True):
    """Which list is asked for: the path, the selectors, and the `kind` that the answer must be.
    `is_long`: in one answer, where the server streams it. `is_deep`: a decoder went too deep."""

    path: str
    kind: str
    query: Mapping[str, str] = {}
    is_long: bool = False
    is_deep: bool = False


class ListHead(msgspec.Struct, frozen=True):
    """`version` is the moment that all pages of the list show; the last has no `token`."""

    version: str = msgspec.field(name="resourceVersion", default="")
    token: str | None = msgspec.field(name="continue", default="")


class _Head(msgspec.Struct, frozen=True):
    kind: str = ""
    metadata: ListHead | None = None


class _WholeList(_Head, frozen=True):
    items: list[msgspec.Raw] | None = None


class _Item(msgspec.Struct, frozen=True):
    metadata: ListHead


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_versions = msgspec.json.Decoder(ListPage[_Item]).decode
_decode_whole = msgspec.json.Decoder(_WholeList).decode


def read_list(session: Session, what: List, take: Callable[[memoryview], None]) -> str:
    """Gives the pages of a LIST to `take`, each valid until the next.

    A page that is too large is asked for again with fewer items, so
    that large objects cost time and no memory. Raises ApiRefused with status 410 where the list
    must be started anew, ListTooLarge where it takes too long, and ValueError where a page is no
    list of that kind, or shows another moment than the first. Returns that moment: the version of
    the list.
    """
    if what.is_long and _streams_lists(session):
        return _read_in_one(session, what, take)
    return _read_in_pages(session, what, take)


def _read_in_pages(session: Session, what: List, take: Callable[[memoryview], None]) -> str:
    give_up = time.monotonic() + _LIST_TIMEOUTS * session.timeout
    token, version, items = "", "", _PAGE_ITEMS
    while True:
        page, items = _read_page(session, what, token, items)
        head = read_list_head(page, what.kind)
        if version not in ("", head.version):
            raise ValueError(f"its pages show two moments, {version} and {head.version}")
        if head.token and head.token == token:
            raise ValueError("the server gives the same page again and again")
        token, version = head.token or "", head.version
        take(page)
        if not token:
            return version
        _check_time(give_up)


def _check_time(give_up: float) -> None:
    if time.monotonic() > give_up:
        raise ListTooLarge(f"the list took longer than {_LIST_TIMEOUTS} request time-outs")


def _read_page(session: Session, what: List, token: str, items: int) -> tuple[memoryview, int]:
    """The page, and how many items the next one may have."""
    while True:
        try:
            more = {"continue": token} if token else {}
            query = urlencode({**what.query, "limit": str(items), **more})
            page = session.read(f"{what.path}?{query}", is_page=not what.is_deep).body
        except AnswerTooLarge as error:
            if items == 1:
                raise ListTooLarge(str(error)) from error
            items = max(1, items // _SHRINK)
        else:
            is_small = len(page) < LARGEST_BODY // (4 * _SHRINK)
            return page, min(_PAGE_ITEMS, items * _SHRINK) if is_small else items


def _streams_lists(session: Session) -> bool:
    """Whether the server's release says so; one that does not tell it is asked for pages."""
    try:
        found = _RELEASE.match(read_version(session.read("/version").body))
    except (ApiRefused, OSError, ValueError, msgspec.MsgspecError):
        return False
    return found is not None and (int(found[1]), int(found[2])) >= _STREAMS_FROM


def _read_in_one(session: Session, what: List, take: Callable[[memoryview], None]) -> str:
    give_up = time.monotonic() + _LIST_TIMEOUTS * session.timeout
    version = ""
    with session.open(f"{what.path}?{urlencode(what.query)}") as body:
        for page in cut_list(body):
            if not version:
                head = read_list_head(page, what.kind)
                if head.token:
                    raise ValueError("it is not all of the list")
                version = head.version
            take(page)
            _check_time(give_up)
            session.go_on()
    return version


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
    if not (head.metadata and head.metadata.version):
        raise ValueError(f"it is a {kind} without a resourceVersion")
    return head.metadata


def read_item_versions(page: memoryview | bytes) -> list[str]:
    """Returns the resourceVersions of a list's items. Raises msgspec.MsgspecError."""
    return [item.metadata.version for item in _decode_versions(page).items]


def _read_ahead_of_items(start: bytes) -> _Head | None:
    """What stands before the items; None where they are not the last part of the page."""
    with suppress(msgspec.MsgspecError):  # "items" was part of something else
        if found := _ITEMS.search(start):
            return _decode_head(start[: found.start()].rstrip(b", \t\r\n") + b"}")
    return None


def _describe(kind: str) -> str:
    return f"a {kind[:60]}" if kind else "a document of no kind"


class ApiRequests:
    """One API server, one connection, one request at a time. Everything but `asking` and `changing`
    raises what `Session` raises, and is to be called within one of these two."""

    def __init__(self, access: Access, timeout: timedelta) -> None:
        self.access = access
        self.session = Session(access, timeout)

    def close(self) -> None:
        self.session.close()

    def asking(self, what: str, rule: str) -> AbstractContextManager[None]:
        """Turns the failures of a read into KubeErrors: `what` completes "can't", `rule`
        "permission to"."""
        return asking(self.access, what, rule)

    def changing(self, what: str, rule: str) -> AbstractContextManager[None]:
        """The same for a write, whose outcome is unknown where its answer was lost."""
        return asking(self.access, what, rule, is_write=True)

    def change_node(self, change: Callable[[], T]) -> T:
        """Makes a change of a Node that does not depend on the Node's version. The API server
        refuses such a change too (409) if other clients write the Node often: it is repeated for
        as long as a request may take."""
        return repeat_on_conflict(change, timedelta(seconds=self.session.timeout))

    def list_pages(
        self, what: List, take: Callable[[memoryview], None], forget: Callable[[], None]
    ) -> str:
        """Gives all pages of a LIST to `take`, and again from the first where its token expires
        (410), in pages where one answer fails, or with a look at each where a decoder has gone too
        deep; before each time `forget` drops what was collected. Returns the list's version."""
        for attempt in range(_RESTARTS):
            forget()
            try:
                return read_list(self.session, what, take)
            except _FAILURES as error:
                status = error.status if isinstance(error, ApiRefused) else 0
                may_help = status == 410 or (what.is_long and status != 403)
                if attempt == _RESTARTS - 1 or not (may_help or isinstance(error, RecursionError)):
                    raise
                what = msgspec.structs.replace(what, is_long=False, is_deep=True)
        raise AssertionError("the last attempt returns or raises")

    def collect(
        self, what: List, read: Callable[[memoryview], Iterable[T]], most: int | None = None
    ) -> list[T]:
        """Returns what `read` makes of all pages of a LIST. Raises ValueError where there are more
        than `most`."""
        found: list[T] = []

        def take(page: memoryview) -> None:
            found.extend(read(page))
            if most is not None and len(found) > most:
                raise ValueError(f"it has more than {most}")

        self.list_pages(what, take, found.clear)
        return found

    def list_items(
        self,
        what: List,
        of: type[T],
        keep: Callable[[T], bool] | None = None,
        most: int | None = None,
    ) -> list[T]:
        """Returns the items of a LIST, decoded as `of`; those that `keep` says, where it is given.
        Raises as `collect` does."""
        decode = msgspec.json.Decoder(ListPage[of]).decode  # type: ignore[valid-type]
        return self.collect(what, lambda page: filter(keep, decode(page).items), most)

    def read_or_none(self, path: str) -> ApiAnswer | None:
        """The answer; None: there is no such object (404)."""
        try:
            return self.session.read(path)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise

    def delete(self, path: str, kind: str) -> bool:
        """Deletes an object of that kind and what it owns; False: there was none."""
        return self.change("DELETE", path, {"propagationPolicy": "Background"}, ("Status", kind))

    def change(
        self, method: str, path: str, body: object, kinds: Sequence[str], content_type: str = JSON
    ) -> bool:
        """Writes to an object, where the answer is of one of these kinds; False: there is no such
        object (404)."""
        try:
            check_kind(self.session.write(method, path, body, content_type).body, *kinds)
        except ApiRefused as error:
            if error.status == 404:
                return False
            raise
        return True
