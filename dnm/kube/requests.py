"""The requests to one API server that all clients of dnm share.

They handle missing objects, make a sentence of each failure, and read lists. dnm reads pages of the
server, or thousands of objects as one answer that it cuts into pages. Priority and fairness charge
a page as much as the entire list (Kubernetes' list_work_estimator.go). Servers before 1.34
(KEP-5116) build the entire answer in memory, several times, so dnm requests pages from them.

A list must have its `kind`, a `metadata.resourceVersion` and an array `items`, and all its pages
must be of one version. dnm refuses any other answer, e.g. a proxy's page or `{}`. If such an answer
counted as an empty list, a busy node would count as idle."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dnm.http.reader import LARGEST_BODY, AnswerTooLarge
from dnm.kube.access import Access
from dnm.kube.errors import ApiRefused, ListTooLarge, asking, repeat_on_conflict
from dnm.kube.objects import ListPage, check_kind, read_version
from dnm.kube.session import JSON, ApiAnswer, Session
from dnm.kube.whole_list import cut_list

_RESTARTS = 3  # of a LIST after its continue token has expired
T = TypeVar("T")
_FAILURES = (ApiRefused, OSError, ValueError, msgspec.MsgspecError, RecursionError)
_PAGE_ITEMS = 500
_LIST_TIMEOUTS = 10  # a LIST may take so many request time-outs
_SHRINK = 4  # a page that is too large is read again with a fraction of the items
_STREAMS_FROM = (1, 34)
_HEAD_BYTES = 4096  # of a page: an API server writes kind and metadata before the items
_ITEMS = re.compile(rb'"items"\s*:\s*\[')
_RELEASE = re.compile(r"v(\d{1,4})\.(\d{1,4})\b")


def path_of(
    plural: str, name: str | None = None, namespace: str | None = None, api: str = "/api/v1"
) -> str:
    """Returns the URL path of an object, or of all objects of its kind. The name is quoted, so that
    it stays one part of the path. `Session` refuses an empty part."""
    within = "" if namespace is None else f"namespaces/{quote(namespace, safe='')}/"
    return f"{api}/{within}{plural}" + ("" if name is None else f"/{quote(name, safe='')}")


class List(msgspec.Struct, frozen=True):
    """A list to read: path, selectors, and the `kind` of the answer. `is_long` asks for one answer
    if the server streams it. `is_deep` is set if the JSON was too deeply nested for a decoder."""

    path: str
    kind: str
    query: Mapping[str, str] = {}
    is_long: bool = False
    is_deep: bool = False


class ListHead(msgspec.Struct, frozen=True):
    """A page's metadata. `version` is the version of the list. The last page has no `token`."""

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
_decode_full = msgspec.json.Decoder(_WholeList).decode


def read_list(session: Session, listing: List, take: Callable[[memoryview], None]) -> str:
    """Calls `take` with each page of a LIST, which is valid until the next page.

    Reads a page that is too large again with fewer items, so that large objects cost time and no
    memory. Returns the version of the list. Raises ApiRefused with status 410 if the list must be
    started again, and ListTooLarge if it takes too long. Raises ValueError if a page is not a list
    of that kind, or shows another version than the first."""
    if listing.is_long and _streams_lists(session):
        return _read_at_once(session, listing, take)
    return _read_in_pages(session, listing, take)


def _read_in_pages(session: Session, listing: List, take: Callable[[memoryview], None]) -> str:
    give_up = time.monotonic() + _LIST_TIMEOUTS * session.timeout
    token, version, items = "", "", _PAGE_ITEMS
    while True:
        page, items = _read_page(session, listing, token, items)
        head = read_list_head(page, listing.kind)
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


def _read_page(session: Session, listing: List, token: str, items: int) -> tuple[memoryview, int]:
    """Returns the page that `token` names, and the number of items to request in the next page."""
    while True:
        try:
            more = {"continue": token} if token else {}
            query = urlencode({**listing.query, "limit": str(items), **more})
            page = session.read(f"{listing.path}?{query}", is_page=not listing.is_deep).body
        except AnswerTooLarge as error:
            if items == 1:
                raise ListTooLarge(str(error)) from error
            items = max(1, items // _SHRINK)
        else:
            is_small = len(page) < LARGEST_BODY // (4 * _SHRINK)
            return page, min(_PAGE_ITEMS, items * _SHRINK) if is_small else items


def _streams_lists(session: Session) -> bool:
    """Returns whether the server's release streams lists; False if the release is unknown."""
    try:
        match = _RELEASE.match(read_version(session.read("/version").body))
    except (ApiRefused, OSError, ValueError, msgspec.MsgspecError):
        return False
    return match is not None and (int(match[1]), int(match[2])) >= _STREAMS_FROM


def _read_at_once(session: Session, listing: List, take: Callable[[memoryview], None]) -> str:
    give_up = time.monotonic() + _LIST_TIMEOUTS * session.timeout
    version = ""
    with session.open(f"{listing.path}?{urlencode(listing.query)}") as body:
        for page in cut_list(body):
            if not version:
                head = read_list_head(page, listing.kind)
                if head.token:
                    raise ValueError("it is not all of the list")
                version = head.version
            take(page)
            _check_time(give_up)
            session.go_on()
    return version


def read_list_head(page: memoryview | bytes, kind: str) -> ListHead:
    """Returns the metadata of a list's page. Skips the items if they are the page's last part.

    Raises ValueError or msgspec.MsgspecError if the page is not a list of that kind."""
    head = _read_ahead_of_items(bytes(page[:_HEAD_BYTES]))
    if head is None or not (head.kind and head.metadata):
        document = _decode_full(page)
        if document.items is None:
            raise ValueError(f"it is no {kind} but {_describe(document.kind)} without items")
        head = document
    if head.kind != kind:
        raise ValueError(f"it is no {kind} but {_describe(head.kind)}")
    if not (head.metadata and head.metadata.version):
        raise ValueError(f"it is a {kind} without a resourceVersion")
    return head.metadata


def read_item_versions(page: memoryview | bytes) -> list[str]:
    """Returns the resourceVersions of a list's items. Raises msgspec.MsgspecError."""
    return [item.metadata.version for item in _decode_versions(page).items]


def _read_ahead_of_items(start: bytes) -> _Head | None:
    """Returns kind and metadata of a page, or None if they do not precede its items."""
    with suppress(msgspec.MsgspecError):  # "items" was part of something else
        if match := _ITEMS.search(start):
            return _decode_head(start[: match.start()].rstrip(b", \t\r\n") + b"}")
    return None


def _describe(kind: str) -> str:
    return f"a {kind[:60]}" if kind else "a document of no kind"


class ApiRequests:
    """Requests to one API server, on one connection, one at a time. All methods except `asking` and
    `changing` raise the errors of `Session` and must be called within one of these two."""

    def __init__(self, access: Access, timeout: timedelta) -> None:
        self.access = access
        self.session = Session(access, timeout)
        self.answered: set[str] = set()  # namespaces of single reads
        self.slow: dict[str, str] = {}  # namespaces that did not answer in time, with the error

    def close(self) -> None:
        self.session.close()

    def asking(self, task: str, rule: str) -> AbstractContextManager[None]:
        """Turns failures of a read into KubeErrors that begin "can't `task`". After a 403 they name
        `rule`, the missing permission."""
        return asking(self.access, task, rule)

    def changing(self, task: str, rule: str) -> AbstractContextManager[None]:
        """Turns failures of a write into KubeErrors. A lost answer means an unknown outcome."""
        return asking(self.access, task, rule, is_write=True)

    def change_node(self, change: Callable[[], T]) -> T:
        """Calls `change`, which changes a Node regardless of its version. Repeats it for a while
        after a 409, which the API server sends if other clients write the Node often."""
        return repeat_on_conflict(change, timedelta(seconds=self.session.timeout))

    def list_pages(
        self, listing: List, take: Callable[[memoryview], None], forget: Callable[[], None]
    ) -> str:
        """Calls `take` with all pages of a LIST. Starts again if the token expires (410), in pages
        if a single answer fails, and with a check of each page if its JSON is nested too deeply.
        `forget` drops the collected items before each start. Returns the list's version."""
        for attempt in range(_RESTARTS):
            forget()
            try:
                return read_list(self.session, listing, take)
            except _FAILURES as error:
                status = error.status if isinstance(error, ApiRefused) else 0
                may_help = status == 410 or (listing.is_long and status != 403)
                if attempt == _RESTARTS - 1 or not (may_help or isinstance(error, RecursionError)):
                    raise
                listing = msgspec.structs.replace(listing, is_long=False, is_deep=True)
        raise AssertionError("the last attempt returns or raises")

    def collect(
        self, listing: List, read: Callable[[memoryview], Iterable[T]], most: int | None = None
    ) -> list[T]:
        """Returns the values that `read` makes of the pages of a LIST, in one list. Raises
        ValueError if there are more than `most` values."""
        items: list[T] = []

        def take(page: memoryview) -> None:
            items.extend(read(page))
            if most is not None and len(items) > most:
                raise ValueError(f"it has more than {most}")

        self.list_pages(listing, take, items.clear)
        return items

    def list_items(
        self,
        listing: List,
        of: type[T],
        keep: Callable[[T], bool] | None = None,
        most: int | None = None,
    ) -> list[T]:
        """Returns the items of a LIST that `keep` accepts, each decoded as `of`. Raises ValueError
        if there are more than `most`."""
        decode = msgspec.json.Decoder(ListPage[of]).decode  # type: ignore[valid-type]
        return self.collect(listing, lambda page: filter(keep, decode(page).items), most)

    def read_or_none(self, path: str) -> ApiAnswer | None:
        """Returns the answer to a GET, or None if the object does not exist (404)."""
        try:
            return self.session.read(path)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise

    def delete(self, path: str, kind: str) -> bool:
        """Deletes an object of this kind and its dependents. Returns False if there was none."""
        return self.change("DELETE", path, {"propagationPolicy": "Background"}, ("Status", kind))

    def change(
        self, method: str, path: str, body: object, kinds: Sequence[str], content_type: str = JSON
    ) -> bool:
        """Sends a write for one object, and checks that the answer is of one of these kinds.
        Returns False if the object does not exist (404)."""
        try:
            check_kind(self.session.write(method, path, body, content_type).body, *kinds)
        except ApiRefused as error:
            if error.status == 404:
                return False
            raise
        return True
