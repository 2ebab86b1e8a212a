"""The requests to one API server that all of dnm's edges share: pages, "not there", and a sentence
for whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Generic, TypeVar

import msgspec

from dnm.kube.access import Access
from dnm.kube.errors import ApiRefused, asking
from dnm.kube.lists import List, read_list
from dnm.kube.objects import check_kind
from dnm.kube.session import ApiAnswer, Session

_RESTARTS = 3  # of a LIST whose continue token has expired
T = TypeVar("T")
_FAILURES = (ApiRefused, OSError, ValueError, msgspec.MsgspecError, RecursionError)


class _Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]


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

    def list_pages(
        self, what: List, take: Callable[[memoryview], None], forget: Callable[[], None]
    ) -> str:
        """Gives all pages of a LIST to `take`, and again from the first where its token expires
        (410), or in pages where one answer fails; before each time `forget` drops what was
        collected. Returns the version of the list."""
        for attempt in range(_RESTARTS):
            forget()
            try:
                return read_list(self.session, what, take)
            except _FAILURES as error:
                status = error.status if isinstance(error, ApiRefused) else 0
                may_help = status == 410 or (what.is_long and status != 403)
                if not may_help or attempt == _RESTARTS - 1:
                    raise
                what = msgspec.structs.replace(what, is_long=False)
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
        decode = msgspec.json.Decoder(_Page[of]).decode  # type: ignore[valid-type]
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
        try:
            answer = self.session.write("DELETE", path, {"propagationPolicy": "Background"})
            check_kind(answer.body, "Status", kind)
        except ApiRefused as error:
            if error.status == 404:
                return False
            raise
        return True
