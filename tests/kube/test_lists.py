"""A long list in one answer: the same, however it is cut; where it fails it comes in pages."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.kube.errors import ApiRefused
from dnm.kube.lists import List
from dnm.kube.requests import ApiRequests
from dnm.kube.whole_list import cut_list
from tests.scripted_server import (
    HANG_UP,
    Last,
    ScriptedServer,
    an_access,
    answer,
    status_answer,
)

PATH = "/api/v1/pods"
LONG = List(PATH, "PodList", {"fieldSelector": "a=b"}, is_long=True)
NASTY = '},{"metadata":{ "items":[ \\" ]}\n'

texts = st.text(st.sampled_from([*NASTY, "x", "\\", "é"]), max_size=40)
items = st.lists(
    st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries({"name": texts, "labels": st.just({})}),
            "spec": st.recursive(
                texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner),
                max_leaves=6,
            ),
        }
    ),
    max_size=12,
)  # fmt: skip


def a_list(found: list[Any], token: str = "") -> bytes:
    """As an API server prints it: without spaces, `metadata` first, a line end behind it."""
    metadata = {"resourceVersion": "7"} | ({"continue": token} if token else {})
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": found}
    return msgspec.json.encode(head) + b"\n"


class Bytes:
    """A body that is in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def fill(self, view: memoryview) -> int:
        part, self.content = self.content[: len(view)], self.content[len(view) :]
        view[: len(part)] = part
        return len(part)


@settings(deadline=None, max_examples=300)
@given(items, st.integers(16, 400))
def test_the_pages_of_a_list_have_its_items(found: list[Any], page: int) -> None:
    content, cut = a_list(found), []
    for number, part in enumerate(cut_list(Bytes(content), page)):
        document = msgspec.json.decode(part)
        assert number == 0 or set(document) == {"items"}
        cut += document["items"]
    assert cut == found


def test_an_item_larger_than_a_page_is_whole() -> None:
    found = [{"metadata": {"name": "x" * size}} for size in (10, 5000, *[20] * 900)]
    pages = [msgspec.json.decode(page)["items"] for page in cut_list(Bytes(a_list(found)), 64)]
    assert [item for page in pages for item in page] == found
    assert len(pages) > 10


def pods(count: int) -> list[Any]:
    return [{"metadata": {"name": f"p{number}", "note": NASTY * 9000}} for number in range(count)]


VERSION = answer({"gitVersion": "v1.34.4"})
PODS = pods(40)  # 11 MB


@cache
def pages() -> list[bytes]:
    return [answer(a_list(PODS[:20], "more")), answer(a_list(PODS[20:]))]


@cache
def whole() -> bytes:
    return a_list(PODS)


def packed(chunked: int = 0, end: int | None = None) -> bytes:
    headers = ("Content-Encoding: gzip",)
    return answer(gzip.compress(whole(), 1)[:end], headers=headers, chunked=chunked)


def read(
    said: list[Any], what: List = LONG, closes: bool = False
) -> tuple[list[Any], str, list[str]]:
    """The items, the version, and what was asked for."""
    seen: list[Any] = []

    def restart() -> Any:
        seen.clear()
        return lambda page: seen.extend(msgspec.json.decode(page)["items"])

    with ScriptedServer([*said]) as server:
        access = an_access(server.url)
        requests = ApiRequests(access, timedelta(seconds=5))
        version = requests.list_pages(what, restart)
        requests.close()
    return seen, version, [path.partition("?")[2] for path in server.paths]


STREAMS = {
    "in chunks": lambda: answer(whole(), chunked=100_000),
    "of a known length": lambda: answer(whole()),
    "packed": lambda: packed(chunked=9_999),
}


@pytest.mark.parametrize("said", STREAMS.values(), ids=STREAMS)
def test_a_server_that_streams_is_asked_once(said: Callable[[], bytes]) -> None:
    found, version, asked = read([VERSION, said()])
    assert (found, version) == (PODS, "7")
    assert asked == ["", "fieldSelector=a%3Db"]


IN_PAGES = ["fieldSelector=a%3Db&limit=500", "fieldSelector=a%3Db&limit=500&continue=more"]


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(answer({"gitVersion": "v1.33.9"}), id="older"),
        pytest.param(answer({"gitVersion": "0.34"}), id="no release"),
        pytest.param(answer({"gitVersion": 134}), id="no text"),
        pytest.param(status_answer(403, "Forbidden", "no"), id="forbidden"),
    ],
)
def test_another_server_is_asked_for_pages(version: bytes) -> None:
    found, _, asked = read([version, *pages()])
    assert found == PODS
    assert asked == ["", *IN_PAGES]


def test_a_short_list_is_asked_for_in_pages() -> None:
    found, _, asked = read(pages(), List(PATH, "PodList", {"fieldSelector": "a=b"}))
    assert (found, asked) == (PODS, IN_PAGES)


FAILING = {
    "cut off": lambda: answer(whole(), chunked=100_000)[:-3_000_000],
    "hung up": lambda: HANG_UP,
    "throttled": lambda: status_answer(429, "TooManyRequests", "later"),
    "timed out": lambda: status_answer(504, "Timeout", "too long"),
    "not all": lambda: answer(a_list(PODS, "more")),
    "no list": lambda: answer({"kind": "Status", "status": "Success"}),
    "broken in the middle": lambda: answer(whole().replace(b"p30", b"p3\n")),
    "half packed": lambda: packed(end=-9),
}


@pytest.mark.parametrize("said", FAILING.values(), ids=FAILING)
def test_one_answer_that_fails_is_asked_for_in_pages(said: Callable[[], bytes]) -> None:
    found, version, asked = read([VERSION, Last(said()), *pages()])
    assert (found, version) == (PODS, "7")
    assert asked == ["", "fieldSelector=a%3Db", *IN_PAGES]


def test_what_is_forbidden_is_asked_for_once() -> None:
    with pytest.raises(ApiRefused, match="403"):
        read([VERSION, status_answer(403, "Forbidden", "no"), *pages()])
