"""Tests of reading lists: real ones; answers that only look like empty lists; pages that are too
large; a long list in one answer, split anywhere, and in pages if that fails."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.kube.client import KubeClient
from dnm.kube.deep_page import without_depths
from dnm.kube.errors import ApiRefused
from dnm.kube.questions import can_i, read_version
from dnm.kube.requests import ApiRequests, List, read_list_head
from dnm.kube.whole_list import cut_list
from dnm.model.errors import KubeError
from dnm.model.pod import PodList
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.fakes import AnswerFake
from tests.scripted_server import (
    HANG_UP,
    Drip,
    Last,
    ScriptedServer,
    an_access,
    answer,
    status_answer,
)

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 500}
ITEMS = '"items":['
POD_LIST, SEVEN = {"kind": "PodList"}, {"resourceVersion": "7"}
NONE: dict[str, list[Any]] = {"items": []}
HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "before": ({**POD_LIST, "metadata": {**SEVEN, "continue": "t"}, **NONE}, "t"),
    "behind": ({**POD_LIST, **NONE, "metadata": {**SEVEN, "continue": "t"}}, "t"),
    "the last page": ({**POD_LIST, "metadata": SEVEN, **NONE}, ""),
    "called items": ({**POD_LIST, "metadata": {**SEVEN, "continue": ITEMS}, **NONE}, ITEMS),
    "of an item": (
        {**POD_LIST, "items": [{"metadata": {"continue": "no"}}], "metadata": SEVEN},
        "",
    ),
}


@pytest.mark.parametrize("indent", [None, 1], ids=["plain", "spaced"])
@pytest.mark.parametrize("name", HEADS)
def test_list_head_is_read_wherever_it_is_in_the_page(name: str, indent: int | None) -> None:
    page, token = HEADS[name]
    head = read_list_head(memoryview(json.dumps(page, indent=indent).encode()), "PodList")
    assert (head.version, head.token) == ("7", token)


def a_list(of: str = "PodList", **changes: Any) -> dict[str, Any]:
    full = {"kind": of, "metadata": {"resourceVersion": "7"}, "items": [], **changes}
    return {key: value for key, value in full.items() if value is not ...}


NO_LISTS: dict[str, Any] = {
    "nothing": {},
    "a gateway's error": {"error": "gateway"},
    "a Status with 200": STATUS,
    "a Status with items": {**STATUS, "items": []},
    "a portal's page": b"<html>log in</html>",
    "no bytes": b"",
    "null": b"null",
    "a bare array": [],
    "no kind": a_list(kind=...),
    "another kind": a_list("SecretList"),
    "no items": a_list(items=...),
    "items are null": a_list(items=None),
    "items are an object": a_list(items={}),
    "no metadata": a_list(metadata=...),
    "no version": a_list(metadata={}),
    "empty version": a_list(metadata={"resourceVersion": ""}),
    "items twice": json.dumps(a_list()).encode()[:-1] + b',"items":null}',
}


def a_client(server: ScriptedServer) -> KubeClient:
    return KubeClient(an_access(server.url), a_config(request_timeout=timedelta(seconds=300)))


def pods_are_unreadable(client: KubeClient) -> None:
    """Asserts that no read of pods takes the answer for an empty list, also those of converters."""
    unreadable = client.read_pods(("dev",))
    assert isinstance(unreadable, Unreadable) and "can't be understood" in unreadable.error
    reads = (client.read_pods_on, client.read_pods_to_evict)
    for read in reads:
        with pytest.raises(KubeError, match="can't be understood"):
            read("a001")


@pytest.mark.parametrize("sent", NO_LISTS.values(), ids=NO_LISTS)
def test_answer_that_is_no_list_is_not_an_empty_list(sent: Any) -> None:
    with ScriptedServer([answer(sent)] * 4) as server:
        pods_are_unreadable(a_client(server))
        nodes = a_client(server).read_nodes()
    assert isinstance(nodes, Unreadable) and "can't be understood" in nodes.error


def owned(name: str, depth: int) -> bytes:
    """Returns an object with `managedFields` nested `depth` levels deep. A real API server (1.34)
    accepts that from any client that may change the object."""
    fields = b'{"f:]\\"":' * depth + b"{}" + b"}" * depth
    owners = b'[{"manager":"tenant","fieldsV1":%b}]' % fields
    return b'{"metadata":{"managedFields":%b,"name":"%b"},"spec":{}}' % (owners, name.encode())


@pytest.mark.parametrize("depth", [50, 9_990])
def test_deeply_nested_fields_do_not_hide_other_items(depth: int) -> None:
    items = b",".join(owned(name, depth) for name in ("k1", "k2"))
    page = json.dumps(a_list("NodeList", items="-")).encode().replace(b'"-"', b"[%b]" % items)
    times = 1 if depth == 50 else 2  # once more, with the nested objects
    message: list[bytes | Drip] = [
        *[answer(page)] * times,
        *[answer(page.replace(b"Node", b"Pod"))] * times,
    ]
    with ScriptedServer(message) as server:
        client = a_client(server)
        nodes, pods = client.read_nodes(), client.read_pods(("dev",))
    assert not isinstance(nodes, Unreadable) and [node.name for node in nodes] == ["k1", "k2"]
    assert isinstance(pods, PodList) and [pod.name for pod in pods.pods] == ["k1", "k2"]


def test_nesting_of_any_depth_duplicates_or_hides_no_pod() -> None:
    """How deep a decoder can nest depends on the call stack, so many depths are tried."""
    first = b'{"metadata":{"name":"p0","namespace":"dev"},"spec":{"affinity":{}},"status":{}}'
    strange = b'{"metadata":{"name":"p2","namespace":"x","labels":7},"spec":{}}'
    page = json.dumps(a_list(items="-")).encode().replace(b'"-"', b"[%b,%b%b]")
    for other, names in ((b"", ["p0", "p1"]), (b"," + strange, ["p0", "p1", "p2"])):
        depths = range(850, 1000)
        of_tenant = (owned("p1", depth).replace(b'"name"', b'"namespace":"a","name"')
                     for depth in depths)  # fmt: skip
        for depth, chunk in zip(depths, of_tenant, strict=True):
            with ScriptedServer([answer(page % (first, chunk, other))] * 2) as server:
                client = a_client(server)
                pod_list = client.read_pods(("dev",))
                assert isinstance(pod_list, PodList) and "dev" not in pod_list.unreadable, depth
                assert [pod.name for pod in pod_list.pods] == names, depth


def test_deeply_nested_object_is_read_and_written() -> None:
    """Otherwise the kubelet of a node could prevent that dnm cordons the node."""
    node = owned("x", 9_990)[:-1] + b',"status":{},"kind":"Node"}'
    named = b'"namespace":"yunikorn","resourceVersion":"7","name"'
    queues = owned("x", 9_990)[:-1] + b',"kind":"ConfigMap","data":{"a":"b"}}'
    queues = queues.replace(b'"name"', named)
    with ScriptedServer([answer(chunk) for chunk in (node, node, queues, queues)]) as server:
        client = a_client(server)
        result = client.read_node("x")
        client.patch_node("x", cordon=True)
        config_map = client.read_config_map("yunikorn", "x")
        assert result is not None and config_map is not None and config_map.data == {"a": "b"}
        assert client.write_config_map(config_map).data == {"a": "b"}


JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_shallow_documents_are_unchanged_by_the_depth_filter(document: object) -> None:
    page = json.dumps({"items": [document]}).encode()
    assert bytes(without_depths(memoryview(page))) == page


def test_pages_of_a_list_must_have_the_same_version() -> None:
    first = a_list("NodeList", metadata={"resourceVersion": "7", "continue": "t"})
    second = a_list("NodeList", metadata={"resourceVersion": "8"})
    with ScriptedServer([answer(first), answer(second)]) as server:
        unreadable = a_client(server).read_nodes()
    assert isinstance(unreadable, Unreadable) and "two moments, 7 and 8" in unreadable.error


SECRET = {"kind": "Secret", "metadata": {"name": "x"}}


@pytest.mark.parametrize("sent", [{}, STATUS, SECRET], ids=["nothing", "a Status", "another kind"])
def test_object_of_another_kind_is_rejected(sent: object) -> None:
    reads: list[Callable[[KubeClient], object]] = [
        lambda client: client.read_node("x"),
        lambda client: client.read_config_map("yunikorn", "x"),
        lambda client: can_i(client.requests, "list", "pods", ""),
        lambda client: read_version(client.requests),
        lambda client: client.patch_node("x", cordon=True),
    ]
    for read in reads:
        with ScriptedServer([answer(sent)]) as server, pytest.raises(KubeError):
            read(a_client(server))


def test_object_with_another_name_is_rejected() -> None:
    node = {"kind": "Node", "metadata": {"name": "k2", "resourceVersion": "7"}}
    with ScriptedServer([answer(node)]) as server, pytest.raises(KubeError, match="Node 'k2'"):
        a_client(server).read_node("k1")
    other = {
        "kind": "ConfigMap",
        "metadata": {"name": "other", "namespace": "yunikorn", "resourceVersion": "7"},
    }
    with (
        ScriptedServer([answer(other)]) as server,
        pytest.raises(KubeError, match="yunikorn/other"),
    ):
        a_client(server).read_config_map("yunikorn", "yunikorn-configs")


def test_write_answered_by_a_proxy_has_an_unknown_result() -> None:
    with (
        ScriptedServer([answer({"kind": "Welcome"})]) as server,
        pytest.raises(KubeError, match="it is not known whether"),
    ):
        a_client(server).patch_node("k1", cordon=True)


# --- pages that are too large ----------------------------------------------------------------


class PagingServer(ScriptedServer):
    """A server of Pods with these `sizes` in bytes, in pages of the requested `limit`."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__([])
        self.sizes = sizes
        self.limits: list[int] = []

    def _serve(self, connection: Any, stream: Any, number: int) -> bool:
        line = stream.readline()
        if not line:
            return False
        while stream.readline() not in (b"\r\n", b""):
            pass
        query = parse_qs(urlsplit(line.split()[1].decode()).query)
        start = int(query.get("continue", ["0"])[0])
        limit = int(query["limit"][0])
        self.limits.append(limit)
        end = min(start + limit, len(self.sizes))
        more = {"continue": str(end)} if end < len(self.sizes) else {}
        items = [
            {
                "metadata": {"name": f"p{index}", "namespace": "dev", "uid": f"u{index}"},
                "spec": {"containers": [{"name": "c", "args": ["x" * self.sizes[index]]}]},
                "status": {"phase": "Running"},
            }
            for index in range(start, end)
        ]
        connection.sendall(answer(a_list(metadata={"resourceVersion": "7", **more}, items=items)))
        return True


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        pytest.param([100] * 1200, 500, id="ordinary pods"),
        pytest.param([20_000] * 200, 31, id="large pods"),
        pytest.param([100] * 600 + [200_000] * 40 + [100] * 600, 7, id="large pods among others"),
    ],
)
def test_page_size_is_reduced_until_pages_fit(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], least: int
) -> None:
    """The bound of 64 MiB is 2 MB in this test, and all other sizes are in proportion."""
    for place in ("http.reader", "kube.requests"):
        monkeypatch.setattr(f"dnm.{place}.LARGEST_BODY", 2_000_000)
    with PagingServer(sizes) as server:
        unreadable = a_client(server).read_pods(("dev",))
    assert not isinstance(unreadable, Unreadable), unreadable.error
    assert [pod.name for pod in unreadable.pods] == [f"p{index}" for index in range(len(sizes))]
    assert min(server.limits) == least
    assert len(server.limits) < 2 * len(sizes) / least + 10


def test_pod_larger_than_a_page_leaves_other_namespaces_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for place in ("http.reader", "kube.requests"):
        monkeypatch.setattr(f"dnm.{place}.LARGEST_BODY", 10_000)
    with PagingServer([20_000]) as server:
        pod_list = a_client(server).read_pods(("dev",))
    assert not isinstance(pod_list, Unreadable)
    assert not pod_list.cluster_wide and "larger than" in pod_list.unreadable["dev"]


# --- one long answer -----------------------------------------------------------------------------

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


def printed(pods_of: list[Any], token: str = "") -> bytes:
    """Returns a list as an API server prints it: no spaces, `metadata` first, a final line end."""
    metadata = {"resourceVersion": "7"} | ({"continue": token} if token else {})
    head = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods_of}
    return msgspec.json.encode(head) + b"\n"


class Bytes(AnswerFake):
    """An HTTP body that is read from memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def fill(self, view: memoryview) -> int:
        part, self.content = self.content[: len(view)], self.content[len(view) :]
        view[: len(part)] = part
        return len(part)


@settings(deadline=None, max_examples=300)
@given(items, st.integers(16, 400))
def test_cut_pages_contain_all_items_of_a_list(found: list[Any], page: int) -> None:
    content, cut = printed(found), []
    for number, part in enumerate(cut_list(Bytes(content), page)):
        document = msgspec.json.decode(part)
        assert number == 0 or set(document) == {"items"}
        cut += document["items"]
    assert cut == found


def test_item_larger_than_a_page_is_complete() -> None:
    rows = [{"metadata": {"name": "x" * size}} for size in (10, 5000, *[20] * 900)]
    pages = [msgspec.json.decode(page)["items"] for page in cut_list(Bytes(printed(rows)), 64)]
    assert [item for page in pages for item in page] == rows
    assert len(pages) > 10


def pods(count: int) -> list[Any]:
    return [{"metadata": {"name": f"p{number}", "note": NASTY * 9000}} for number in range(count)]


VERSION = answer({"gitVersion": "v1.34.4"})
PODS = pods(40)  # 11 MB


@cache
def pages() -> list[bytes]:
    return [answer(printed(PODS[:20], "m r&")), answer(printed(PODS[20:]))]


@cache
def all_pods_printed() -> bytes:
    return printed(PODS)


def packed(chunked: int = 0, end: int | None = None) -> bytes:
    headers = ("Content-Encoding: gzip",)
    return answer(gzip.compress(all_pods_printed(), 1)[:end], headers=headers, chunked=chunked)


def read(
    sent: list[Any], what: List = LONG, closes: bool = False
) -> tuple[list[Any], str, list[str]]:
    """Reads a list from a server with these answers. Returns items, version and requests."""
    seen: list[Any] = []

    def take(page: memoryview) -> None:
        seen.extend(msgspec.json.decode(page)["items"])

    with ScriptedServer([*sent]) as server:
        access = an_access(server.url)
        requests = ApiRequests(access, timedelta(seconds=300))
        version = requests.list_pages(what, take, seen.clear)
        requests.close()
    return seen, version, [path.partition("?")[2] for path in server.paths]


STREAMS = {
    "in chunks": lambda: answer(all_pods_printed(), chunked=100_000),
    "of a known length": lambda: answer(all_pods_printed()),
    "packed": lambda: packed(chunked=9_999),
}


@pytest.mark.parametrize("sent", STREAMS.values(), ids=STREAMS)
def test_streaming_server_gets_a_single_list_request(sent: Callable[[], bytes]) -> None:
    rows, version, asked = read([VERSION, sent()])
    assert (rows, version) == (PODS, "7")
    assert asked == ["", "fieldSelector=a%3Db"]


IN_PAGES = ["fieldSelector=a%3Db&limit=500", "fieldSelector=a%3Db&limit=500&continue=m+r%26"]


FOREIGN = {
    "older": answer({"gitVersion": "v1.33.9"}),
    "no release": answer({"gitVersion": "0.34"}),
    "no text": answer({"gitVersion": 134}),
    "forbidden": status_answer(403, "Forbidden", "no"),
}


@pytest.mark.parametrize("version", FOREIGN.values(), ids=FOREIGN)
def test_older_server_is_read_in_pages(version: bytes) -> None:
    rows, _, asked = read([version, *pages()])
    assert rows == PODS
    assert asked == ["", *IN_PAGES]


def test_short_list_is_read_in_pages() -> None:
    rows, _, asked = read(pages(), List(PATH, "PodList", {"fieldSelector": "a=b"}))
    assert (rows, asked) == (PODS, IN_PAGES)


FAILING = {
    "cut off": lambda: answer(all_pods_printed(), chunked=100_000)[:-3_000_000],
    "hung up": lambda: HANG_UP,
    "throttled": lambda: status_answer(429, "TooManyRequests", "later"),
    "timed out": lambda: status_answer(504, "Timeout", "too long"),
    "not all": lambda: answer(printed(PODS, "more")),
    "no list": lambda: answer({"kind": "Status", "status": "Success"}),
    "broken in the middle": lambda: answer(all_pods_printed().replace(b"p30", b"p3\n")),
    "half packed": lambda: packed(end=-9),
}


@pytest.mark.parametrize("sent", FAILING.values(), ids=FAILING)
def test_failed_single_answer_is_repeated_in_pages(sent: Callable[[], bytes]) -> None:
    rows, version, asked = read([VERSION, Last(sent()), *pages()])
    assert (rows, version) == (PODS, "7")
    assert asked == ["", "fieldSelector=a%3Db", *IN_PAGES]


def test_forbidden_list_is_requested_once() -> None:
    with pytest.raises(ApiRefused, match="403"):
        read([VERSION, status_answer(403, "Forbidden", "no"), *pages()])
