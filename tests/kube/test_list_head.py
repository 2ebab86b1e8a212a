"""What is a list, and what only looks like an empty one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.kube.client import KubeClient
from dnm.kube.deployments import scale_deployment
from dnm.kube.lists import read_list_head
from dnm.kube.questions import can_i, read_version
from dnm.model.errors import KubeError
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.scripted_server import ScriptedServer, an_access, answer

KIND = b'"kind":"PodList",'
STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 500}


@pytest.mark.parametrize(
    ("page", "token"),
    [
        pytest.param(
            b'{%b"metadata":{"resourceVersion":"7","continue":"t"},"items":[]}', "t", id="before"
        ),
        pytest.param(
            b'{%b"items":[],"metadata":{"resourceVersion":"7","continue":"t"}}', "t", id="behind"
        ),
        pytest.param(b'{%b"metadata":{"resourceVersion":"7"},"items":[]}', "", id="the last page"),
        pytest.param(
            b'{%b"metadata":{"resourceVersion":"7","continue":"\\"items\\":["},"items":[]}',
            '"items":[',
            id="called items",
        ),
        pytest.param(
            b'{%b"items":[{"metadata":{"continue":"no"}}],"metadata":{"resourceVersion":"7"}}',
            "",
            id="of an item",
        ),
        pytest.param(
            b'{ %b "metadata" : { "resourceVersion":"7", "continue" : "t" } ,\n "items" : [ ] }',
            "t",
            id="spaced",
        ),
    ],
)
def test_the_head_is_found_wherever_it_stands(page: bytes, token: str) -> None:
    head = read_list_head(memoryview(page % KIND), "PodList")
    assert (head.version, head.token) == ("7", token)


def a_list(of: str = "PodList", **changes: Any) -> dict[str, Any]:
    whole = {"kind": of, "metadata": {"resourceVersion": "7"}, "items": [], **changes}
    return {key: value for key, value in whole.items() if value is not ...}


NO_LISTS = [
    pytest.param(lambda kind: {}, id="nothing"),
    pytest.param(lambda kind: {"error": "gateway"}, id="a gateway's error"),
    pytest.param(lambda kind: STATUS, id="a Status with 200"),
    pytest.param(lambda kind: {**STATUS, "items": []}, id="a Status with items"),
    pytest.param(lambda kind: b"<html>log in</html>", id="a portal's page"),
    pytest.param(lambda kind: b"", id="no bytes"),
    pytest.param(lambda kind: b"null", id="null"),
    pytest.param(lambda kind: b"[]", id="a bare array"),
    pytest.param(lambda kind: a_list(kind, kind=...), id="no kind"),
    pytest.param(lambda kind: a_list("SecretList"), id="another kind"),
    pytest.param(lambda kind: a_list(kind, items=...), id="no items"),
    pytest.param(lambda kind: a_list(kind, items=None), id="items are null"),
    pytest.param(lambda kind: a_list(kind, items={}), id="items are an object"),
    pytest.param(lambda kind: a_list(kind, metadata=...), id="no metadata"),
    pytest.param(lambda kind: a_list(kind, metadata={}), id="no version"),
    pytest.param(lambda kind: a_list(kind, metadata={"resourceVersion": ""}), id="empty version"),
    pytest.param(
        lambda kind: json.dumps(a_list(kind)).encode()[:-1] + b',"items":null}', id="items twice"
    ),
]


def a_client(server: ScriptedServer) -> KubeClient:
    access = an_access(server.url)
    return KubeClient(access, a_config(request_timeout=timedelta(seconds=5)))


def raw(document: Any) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


@pytest.mark.parametrize("make", NO_LISTS)
def test_what_is_no_list_is_no_empty_list(make: Callable[[str], Any]) -> None:
    for kind, read in (
        ("PodList", lambda client: client.read_pods(("dev",))),
        ("NodeList", lambda client: client.read_nodes()),
    ):
        with ScriptedServer([answer(raw(make(kind)))]) as server:
            found = read(a_client(server))
        assert isinstance(found, Unreadable), found
        assert "can't be understood" in found.error


@pytest.mark.parametrize("make", NO_LISTS)
def test_what_is_no_list_of_pods_on_a_node_is_no_empty_node(make: Callable[[str], Any]) -> None:
    """By the second node-convert tells whether a machine may be reset."""
    reads: list[Callable[[KubeClient], object]] = [
        lambda client: client.read_pods_on("a001"),
        lambda client: client.read_pods_to_evict("a001"),
    ]
    for read in reads:
        with (
            ScriptedServer([answer(raw(make("PodList")))]) as server,
            pytest.raises(KubeError, match="can't be understood"),
        ):
            read(a_client(server))


def test_all_pages_show_one_moment() -> None:
    first = a_list("NodeList", metadata={"resourceVersion": "7", "continue": "t"})
    second = a_list("NodeList", metadata={"resourceVersion": "8"})
    with ScriptedServer([answer(first), answer(second)]) as server:
        found = a_client(server).read_nodes()
    assert isinstance(found, Unreadable) and "two moments, 7 and 8" in found.error


FOREIGN = [
    pytest.param({}, id="nothing"),
    pytest.param(STATUS, id="a Status with 200"),
    pytest.param({"kind": "Secret", "metadata": {"name": "x"}}, id="another kind"),
]


@pytest.mark.parametrize("said", FOREIGN)
def test_an_object_of_another_kind_is_none(said: object) -> None:
    reads: list[Callable[[KubeClient], object]] = [
        lambda client: client.read_node("x"),
        lambda client: client.read_config_map("yunikorn", "x"),
        lambda client: can_i(client.requests, "list", "pods", ""),
        lambda client: read_version(client.requests),
        lambda client: client.patch_node("x", cordon=True),
        lambda client: scale_deployment(client.requests, "dev", "x", 3),
    ]
    for read in reads:
        with ScriptedServer([answer(said)]) as server, pytest.raises(KubeError):
            read(a_client(server))


def test_another_object_of_the_kind_is_not_taken_for_the_one_that_was_asked_for() -> None:
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


def test_a_write_that_a_proxy_answered_is_not_known_to_have_happened() -> None:
    with (
        ScriptedServer([answer({"kind": "Welcome"})]) as server,
        pytest.raises(KubeError, match="it is not known whether"),
    ):
        a_client(server).patch_node("k1", cordon=True)


# --- pages that are too large ----------------------------------------------------------------


class PagingServer(ScriptedServer):
    """Serves `sizes` as Pods of so many bytes each, in pages as `limit` asks for."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__([])
        self.sizes = sizes
        self.limits: list[int] = []

    def _serve(self, connection: Any, stream: Any, number: int) -> bool:
        from urllib.parse import parse_qs, urlsplit

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
        metadata = {
            "resourceVersion": "7",
            **({"continue": str(end)} if end < len(self.sizes) else {}),
        }
        items = [
            {
                "metadata": {"name": f"p{index}", "namespace": "dev", "uid": f"u{index}"},
                "spec": {"containers": [{"name": "c", "args": ["x" * self.sizes[index]]}]},
                "status": {"phase": "Running"},
            }
            for index in range(start, end)
        ]
        connection.sendall(answer(a_list(metadata=metadata, items=items)))
        return True


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        pytest.param([100] * 1200, 500, id="ordinary pods"),
        pytest.param([20_000] * 200, 31, id="large pods"),
        pytest.param([100] * 600 + [200_000] * 40 + [100] * 600, 7, id="large pods among others"),
    ],
)
def test_pages_shrink_until_they_fit(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], least: int
) -> None:
    """In the measure of a thousandth: what is 64 MiB otherwise is 2 MB here."""
    for place in ("http.reader", "kube.lists"):
        monkeypatch.setattr(f"dnm.{place}.LARGEST_BODY", 2_000_000)
    with PagingServer(sizes) as server:
        found = a_client(server).read_pods(("dev",))
    assert not isinstance(found, Unreadable), found.error
    assert [pod.name for pod in found.pods] == [f"p{index}" for index in range(len(sizes))]
    assert min(server.limits) == least
    assert len(server.limits) < 2 * len(sizes) / least + 10


def test_a_pod_that_fits_no_page_leaves_the_monitored_namespaces_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for place in ("http.reader", "kube.lists"):
        monkeypatch.setattr(f"dnm.{place}.LARGEST_BODY", 10_000)
    with PagingServer([20_000]) as server:
        found = a_client(server).read_pods(("dev",))
    assert not isinstance(found, Unreadable)
    assert not found.cluster_wide and "larger than" in found.unreadable["dev"]


def test_the_reader_says_which_kind_it_found() -> None:
    with pytest.raises(ValueError, match="it is no PodList but a Status"):
        read_list_head(json.dumps({**STATUS, "items": []}).encode(), "PodList")
    with pytest.raises(msgspec.MsgspecError):
        read_list_head(b"<html>", "PodList")
