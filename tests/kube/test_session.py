"""The connection: framing, pages, retries, time limits, TLS and proxies, over real sockets."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import ssl
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dnm.kube import deployments
from dnm.kube.client import KubeClient
from dnm.kube.errors import ApiRefused, clean
from dnm.kube.questions import can_i, read_server_time, read_version
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.node import Node
from dnm.model.pod import Pod, PodShape
from dnm.model.value import Unreadable
from tests.builders import a_config
from tests.scripted_server import (
    HANG_UP,
    Drip,
    ScriptedServer,
    an_access,
    answer,
    status_answer,
)

NODE = {"kind": "Node", "metadata": {"name": "k1", "resourceVersion": "7"}}
NODES = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}


def a_bomb() -> bytes:
    """A few thousand bytes that unpack to 128 MB: one block again and again."""
    packer = zlib.compressobj(wbits=31)
    head, block = (
        packer.compress(b" " * size) + packer.flush(zlib.Z_FULL_FLUSH) for size in (1, 1 << 20)
    )
    return head + block * 128


BOMB = a_bomb()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnm.kube.session._FIRST_PAUSE", 0.01)


def a_client(server: str, seconds: float = 5.0, **changes: Any) -> KubeClient:
    config = a_config(request_timeout=timedelta(seconds=seconds))
    return KubeClient(an_access(server, **changes), config)


@contextmanager
def serving(*answers: bytes | Drip, **options: Any) -> Iterator[ScriptedServer]:
    with ScriptedServer(list(answers), **options) as server:
        yield server


def nodes_page(*names: str, token: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": "7", **({"continue": token} if token else {})}
    return {
        **NODES,
        "metadata": metadata,
        "items": [{"metadata": {"name": name}} for name in names],
    }


# --- framing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(answer(NODE), id="with a length"),
        pytest.param(answer(NODE, chunked=1), id="a byte a chunk"),
        pytest.param(answer(NODE, chunked=7), id="seven bytes a chunk"),
        pytest.param(answer(NODE, chunked=10**6), id="one chunk"),
        pytest.param(
            answer(NODE, chunked=9).replace(b"\r\n0\r\n\r\n", b"\r\n0\r\nA-Trailer: x\r\n\r\n"),
            id="with a trailer",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + answer(NODE).split(b"\r\n\r\n", 1)[1],
            id="until the end",
        ),
        pytest.param(
            answer(
                gzip.compress(answer(NODE).split(b"\r\n\r\n", 1)[1]),
                headers=["Content-Encoding: gzip"],
            ),
            id="compressed",
        ),
    ],
)
def test_a_body_is_read_however_it_is_framed(said: bytes) -> None:
    with serving(said, closes=True) as server:
        assert a_client(server.url).read_node("k1") == Node(
            name="k1", allocatable={}, resource_version="7", is_ready=False
        )


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(HANG_UP, id="no answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", id="half a head"),
        pytest.param(b"\x00\xff\x00 no HTTP at all\r\n\r\n", id="no HTTP"),
        pytest.param(answer(NODE)[:-5], id="cut off"),
        pytest.param(answer(NODE, chunked=8)[:-12], id="cut off in a chunk"),
        pytest.param(answer(NODE, chunked=8).replace(b"\r\n8\r\n", b"\r\nzz\r\n", 1), id="no size"),
        pytest.param(answer(NODE, chunked=8).replace(b"\r\n8\r\n", b"\r\n-8\r\n", 1), id="minus"),
        pytest.param(
            answer(NODE, chunked=8).replace(b"\r\n8\r\n", b"\r\n7\r\n", 1), id="too short"
        ),
        pytest.param(
            answer(NODE, chunked=8).replace(b"\r\n8\r\n", b"\r\nffffffffff\r\n", 1), id="too large"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", id="claims 100 gigabytes"
        ),
        pytest.param(answer(b"{}", headers=["Content-Encoding: gzip"]), id="no gzip"),
        pytest.param(
            answer(gzip.compress(b"{}" * 99)[:-9], headers=["Content-Encoding: gzip"]),
            id="half a gzip",
        ),
        pytest.param(answer(b"<html>"), id="HTML"),
        pytest.param(answer(b'{"metadata":{"name":'), id="half a document"),
        pytest.param(answer([]), id="another document"),
        pytest.param(answer(b"[" * 100_000), id="a deep document"),
        pytest.param(answer(NODE, headers=[f"X-{n}: y" for n in range(200)]), id="200 headers"),
        pytest.param(answer(NODE, headers=["X: " + "y" * 100_000]), id="a long header"),
        pytest.param(answer(BOMB, headers=["Content-Encoding: gzip"]), id="a bomb"),
        pytest.param(answer(BOMB, "403 No", ["Content-Encoding: gzip"]), id="a bomb in a refusal"),
        pytest.param(answer(b"\xff\xfe", "403 No"), id="a refusal that is no UTF-8"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 3, id="nothing but Continue"),
        pytest.param(answer(b'{"metadata":{"name":"\xff\xfe"}}'), id="no UTF-8"),
        pytest.param(answer({"metadata": {"name": 7}}), id="another type"),
        pytest.param(
            answer({**NODE, "status": {"allocatable": {"cpu": "much"}}}), id="no quantity"
        ),
    ],
)
def test_a_broken_answer_is_an_error_with_a_sentence(said: bytes) -> None:
    said_again = [said] * 4
    with serving(*said_again, closes=True) as server, pytest.raises(KubeError) as caught:
        a_client(server.url).read_node("k1")
    assert str(caught.value).startswith("can't read node k1: ")
    assert str(caught.value).isprintable()


SHAPE = PodShape(request={})
POD = Pod(namespace="dev", name="p", uid="u", shape=SHAPE, claims=("c",))
VERBS: dict[str, Callable[[KubeClient], object]] = {
    "list nodes": lambda kube: kube.read_nodes(),
    "list pods": lambda kube: kube.read_pods(("dev",)),
    "list pods on a node": lambda kube: kube.read_pods_on("k1"),
    "list claims": lambda kube: kube.read_claims((POD,)),
    "read a node": lambda kube: kube.read_node("k1"),
    "read a ConfigMap": lambda kube: kube.read_config_map("dev", "m"),
    "write a ConfigMap": lambda kube: kube.write_config_map(
        ConfigMap(namespace="dev", name="m", resource_version="1")
    ),
    "patch a node": lambda kube: kube.patch_node("k1", cordon=True),
    "delete a node": lambda kube: kube.delete_node("k1"),
    "evict a pod": lambda kube: kube.evict(POD),
    "ask for a permission": lambda kube: can_i(kube.requests, "list", "pods", "dev"),
    "ask for the version": lambda kube: read_version(kube.requests),
    "ask for the time": lambda kube: read_server_time(kube.requests),
    "list Deployments": lambda kube: deployments.list_deployments(kube.requests, "dev", "a=b"),
    "create a Deployment": lambda kube: deployments.create_deployment(kube.requests, "dev", {}),
    "scale a Deployment": lambda kube: deployments.scale_deployment(kube.requests, "dev", "d", 2),
}
PIECES = st.sampled_from(
    ["metadata", "name", "items", "spec", "status", "data", "continue", "resourceVersion", "m",
     "allowed", "gitVersion", "replicas", "volumeName", "nodeAffinity", "required", "1", "dev"]
)  # fmt: skip
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | PIECES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(PIECES, inner, max_size=4),
    max_leaves=12,
)
BODIES = st.binary(max_size=60) | DOCUMENTS.map(lambda document: json.dumps(document).encode())


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@settings(max_examples=30, deadline=None)
@given(body=BODIES, code=st.sampled_from([200, 200, 200, 400, 404, 409, 422]))
def test_any_body_is_a_value_or_an_error(
    verb: Callable[[KubeClient], object], body: bytes, code: int
) -> None:
    said = answer(body, f"{code} Whatever")
    with serving(*[said] * 9) as server:
        client = a_client(server.url)
        try:
            verb(client)
        except KubeError as error:
            assert str(error).isprintable()
        finally:
            client.close()


# --- one connection --------------------------------------------------------------------------


def test_one_connection_serves_all_requests() -> None:
    with serving(answer(NODE), answer(NODE, chunked=5), answer(NODE)) as server:
        client = a_client(server.url)
        for _ in range(3):
            client.read_node("k1")
        assert server.connections == 1


def test_a_connection_that_the_server_closed_is_opened_again_before_a_write() -> None:
    with serving(answer(NODE), answer(NODE), closes=True) as server:
        client = a_client(server.url)
        client.read_node("k1")
        time.sleep(0.1)  # until the end of the connection has crossed the loopback
        client.patch_node("k1", cordon=True)
        assert [asked.connection for asked in server.asked] == [0, 1]


def test_requests_carry_the_credentials_and_ask_for_no_compression_on_loopback() -> None:
    with serving(answer(NODE)) as server:
        a_client(server.url, token="abc").read_node("k1")
        headers = server.asked[0].headers
    assert headers["authorization"] == "Bearer abc"
    assert headers["accept-encoding"] == "identity"
    assert headers["host"] == f"127.0.0.1:{server.port}"


def test_a_path_in_the_server_url_stands_before_every_path() -> None:
    with serving(answer(NODE)) as server:
        a_client(f"{server.url}/clusters/c1").read_node("k1")
        assert server.paths == ["GET /clusters/c1/api/v1/nodes/k1"]


def test_a_strange_name_stays_one_part_of_the_path() -> None:
    name = "a/../b?c#d"
    with serving(answer({**NODE, "metadata": {"name": name}})) as server:
        a_client(server.url).read_node(name)
        assert server.paths == ["GET /api/v1/nodes/a%2F..%2Fb%3Fc%23d"]


# --- pages -----------------------------------------------------------------------------------


def test_pages_follow_one_another_to_the_last() -> None:
    said = [answer(nodes_page("a", token="t 1&")), answer(nodes_page("b", token="t2"), chunked=3)]
    with serving(*said, answer(nodes_page("c"))) as server:
        nodes = a_client(server.url).read_nodes()
    assert not isinstance(nodes, Unreadable)
    assert [node.name for node in nodes] == ["a", "b", "c"]
    assert server.paths == [
        "GET /api/v1/nodes?limit=500",
        "GET /api/v1/nodes?limit=500&continue=t+1%26",
        "GET /api/v1/nodes?limit=500&continue=t2",
    ]


def test_an_expired_token_starts_the_list_over() -> None:
    gone = status_answer(410, "Expired", "the provided continue parameter is too old")
    said = [answer(nodes_page("old", token="t1")), gone]
    with serving(*said, answer(nodes_page("a", token="t2")), answer(nodes_page("b"))) as server:
        nodes = a_client(server.url).read_nodes()
    assert not isinstance(nodes, Unreadable)
    assert [node.name for node in nodes] == ["a", "b"]


def test_tokens_that_always_expire_are_given_up() -> None:
    gone = status_answer(410, "Expired", "too old")
    said = [answer(nodes_page("a", token="t1")), gone] * 9
    with serving(*said) as server:
        nodes = a_client(server.url).read_nodes()
        assert isinstance(nodes, Unreadable)
        assert "too old (410 Expired)" in nodes.error
        assert len(server.asked) == 6


def test_a_page_without_end_is_given_up() -> None:
    with serving(*[answer(nodes_page("a", token="t1"))] * 9) as server:
        nodes = a_client(server.url).read_nodes()
        assert isinstance(nodes, Unreadable)
        assert "the same page again" in nodes.error


# --- retries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(HANG_UP, id="hung up"),
        pytest.param(answer(NODE)[:-3], id="cut off"),
        pytest.param(status_answer(429, "TooManyRequests", "slow down"), id="throttled"),
        pytest.param(
            status_answer(429, "TooManyRequests", "slow down", ["Retry-After: 0"]), id="retry now"
        ),
        pytest.param(answer(b"busy", "503 Service Unavailable"), id="unavailable"),
        pytest.param(status_answer(500, "InternalError", "etcd"), id="internal"),
    ],
)
def test_a_read_is_tried_again(trouble: bytes) -> None:
    closes = not trouble.startswith(b"HTTP/1.1 4") and not trouble.startswith(b"HTTP/1.1 5")
    with serving(trouble, answer(NODE), closes=closes) as server:
        assert a_client(server.url).read_node("k1") is not None
        assert len(server.asked) == 2


def test_a_read_is_not_tried_for_ever() -> None:
    with serving(*[HANG_UP] * 9) as server:
        with pytest.raises(KubeError):
            a_client(server.url).read_node("k1")
        assert len(server.asked) == 4


def test_a_pause_longer_than_the_time_out_is_not_waited_for() -> None:
    busy = status_answer(429, "TooManyRequests", "slow down", ["Retry-After: 3600"])
    with serving(busy, answer(NODE)) as server:
        with pytest.raises(KubeError, match="slow down"):
            a_client(server.url, seconds=0.2).read_node("k1")
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(HANG_UP, id="hung up"),
        pytest.param(answer(NODE)[:-3], id="cut off"),
        pytest.param(answer(b"busy", "503 Service Unavailable"), id="unavailable"),
        pytest.param(status_answer(504, "Timeout", "may have happened"), id="timeout"),
        pytest.param(b"no HTTP\r\n\r\n", id="no HTTP"),
    ],
)
def test_a_write_without_a_clear_answer_is_not_repeated(trouble: bytes) -> None:
    with serving(trouble, answer(NODE), closes=True) as server:
        with pytest.raises(KubeError, match=r"^it is not known whether dnm could patch node k1: "):
            a_client(server.url).patch_node("k1", cordon=True)
        assert len(server.asked) == 1


def test_a_write_that_was_refused_unread_is_repeated() -> None:
    busy = status_answer(429, "TooManyRequests", "slow down")
    with serving(busy, answer(NODE)) as server:
        a_client(server.url).patch_node("k1", cordon=True)
        assert server.paths == ["PATCH /api/v1/nodes/k1"] * 2


def test_a_conflict_is_told_apart() -> None:
    conflict = status_answer(409, "Conflict", "the object has been modified")
    with serving(conflict) as server, pytest.raises(KubeConflict, match="has been modified"):
        a_client(server.url).patch_node("k1", resource_version="3", cordon=True)


def test_a_refusal_leaves_the_connection_open() -> None:
    missing = status_answer(404, "NotFound", "no such node")
    with serving(missing, answer(b"x" * 5000, "403 No", chunked=100), answer(NODE)) as server:
        client = a_client(server.url)
        assert client.read_node("k1") is None
        with pytest.raises(ApiRefused):
            client.read_node("k1")
        assert client.read_node("k1") is not None
        assert server.connections == 1


# --- time limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(Drip(b"", b"HTTP/1.1 200 OK", 0.05), id="head drips"),
        pytest.param(Drip(answer(NODE)[:-20], b" " * 20, 0.05), id="body drips"),
        pytest.param(
            Drip(answer(b"", chunked=1)[:-5], b"20\r\n" + b" " * 20, 0.05), id="chunks drip"
        ),
    ],
)
def test_an_answer_that_drips_is_given_up(said: Drip) -> None:
    with serving(said) as server, pytest.raises(KubeError, match="no complete answer in its time"):
        a_client(server.url, seconds=0.3).read_node("k1")


def test_nobody_at_home(unused_port: int) -> None:
    with pytest.raises(KubeError) as caught:
        a_client(f"http://127.0.0.1:{unused_port}").read_node("k1")
    assert str(caught.value) == (
        f"can't read node k1: http://127.0.0.1:{unused_port}: Connection refused: is the server "
        "right that the kubeconfig of the test names, and is it up?"
    )


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("server", ["ftp://x", "x", "http://", "http://[x"])
def test_a_server_that_is_no_url(server: str) -> None:
    with pytest.raises(KubeError, match="no URL"):
        a_client(server)


# --- what is told ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        pytest.param(
            status_answer(403, "Forbidden", 'nodes is forbidden: User "u" cannot get'),
            'can\'t read node k1: nodes is forbidden: User "u" cannot get (403 Forbidden): give '
            "the account of the kubeconfig of the test the permission to get nodes",
            id="forbidden",
        ),
        pytest.param(
            status_answer(401, "Unauthorized", "Unauthorized"),
            "can't read node k1: Unauthorized (401 Unauthorized): renew the credentials of the "
            "kubeconfig of the test",
            id="unauthorized",
        ),
        pytest.param(
            answer(b"<p>\x1b[31mgo\r\naway\x00", "418 Teapot"),
            "can't read node k1: <p>?[31mgo away? (418 Teapot)",
            id="no Status and control characters",
        ),
        pytest.param(
            answer(b"", "302 Found", ["Location: http://elsewhere"]),
            "can't read node k1: no message (302 Found)",
            id="sent elsewhere",
        ),
    ],
)
def test_a_refusal_is_a_sentence(said: bytes, sentence: str) -> None:
    with serving(said) as server, pytest.raises(ApiRefused) as caught:
        a_client(server.url).read_node("k1")
    assert str(caught.value) == sentence


def test_nobody_is_told_a_token_who_was_not_asked() -> None:
    """A redirect is a refusal, and the other side hears nothing."""
    with serving(answer(NODE)) as elsewhere:
        moved = answer(b"", "307 Temporary Redirect", [f"Location: {elsewhere.url}/x"])
        with serving(*[moved] * 4) as server:
            client = a_client(server.url, token="secret")
            with pytest.raises(KubeError, match="307"):
                client.read_node("k1")
            with pytest.raises(KubeError, match="307"):
                client.patch_node("k1", cordon=True)
        assert elsewhere.asked == []


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_none_does_not_reach_all_of_them(name: str) -> None:
    with serving(answer(NODE)) as server:
        with pytest.raises(KubeError, match="names no object"):
            a_client(server.url).delete_node(name)
        assert server.asked == []


@given(st.text(max_size=3000))
def test_texts_of_the_cluster_are_one_printable_line(text: str) -> None:
    told = clean(text)
    assert told.isprintable() and len(told) <= 600


# --- proxies ---------------------------------------------------------------------------------


def test_a_plain_request_through_a_proxy_names_the_server() -> None:
    with serving(answer(NODE)) as proxy:
        server = "http://api.example.org:6443/c1"
        a_client(server, **{"proxy-url": f"http://me:s%40crt@127.0.0.1:{proxy.port}"}).read_node(
            "k1"
        )
        asked = proxy.asked[0]
    assert asked.path == "http://api.example.org:6443/c1/api/v1/nodes/k1"
    assert asked.headers["host"] == "api.example.org:6443"
    assert asked.headers["proxy-authorization"] == "Basic bWU6c0BjcnQ="


def test_a_secret_request_asks_the_proxy_for_a_tunnel() -> None:
    with serving(answer(b"no", "407 Proxy Authentication Required")) as proxy:
        client = a_client(
            "https://api.example.org:6443",
            token="secret",
            **{"proxy-url": f"http://127.0.0.1:{proxy.port}"},
        )
        with pytest.raises(KubeError, match="407"):
            client.read_node("k1")
        assert proxy.paths == ["CONNECT api.example.org:6443"]
        assert "authorization" not in proxy.asked[0].headers


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(KubeError, match=r"unsupported scheme socks5.*only HTTP proxies"):
        a_client("https://api.example.org")


# --- TLS -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 and api.example.org that vouches for itself."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    directory = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:api.example.org"]
    files = ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")]
    subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
    return directory


def server_side(authority: Path, asks_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority / "cert.pem")
    return context


def pem(authority: Path, name: str) -> bytes:
    return (authority / f"{name}.pem").read_bytes()


def known(authority: bytes) -> dict[str, Any]:
    return {"certificate-authority-data": base64.b64encode(authority).decode()}


def own(certificate: bytes, key: bytes) -> dict[str, Any]:
    return {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(lambda pem: known(pem("cert")), id="known authority"),
        pytest.param(
            lambda pem: {"insecure-skip-tls-verify": True}, id="verification switched off"
        ),
        pytest.param(
            lambda pem: {**known(pem("cert")), "tls-server-name": "api.example.org"},
            id="server name",
        ),
    ],
)
def test_a_trusted_server_is_talked_to(
    authority: Path, changes: Callable[[Callable[[str], bytes]], dict[str, Any]]
) -> None:
    said = [answer(nodes_page("a", token="t"), chunked=11), answer(nodes_page("b"))]
    with serving(*said, tls=server_side(authority)) as server:
        nodes = a_client(server.url, **changes(lambda name: pem(authority, name))).read_nodes()
    assert not isinstance(nodes, Unreadable) and len(nodes) == 2
    assert server.connections == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param(
            lambda pem: {},
            r"https://.*: self-signed certificate: does .* have the certificate-authority",
            id="unknown authority",
        ),
        pytest.param(
            lambda pem: {**known(pem("cert")), "tls-server-name": "other.example.org"},
            "Hostname mismatch",
            id="another server's",
        ),
        pytest.param(lambda pem: known(b"no PEM"), "can't read", id="broken authority"),
    ],
)
def test_an_untrusted_server_is_told_nothing(
    authority: Path, changes: Callable[[Callable[[str], bytes]], dict[str, Any]], why: str
) -> None:
    with serving(answer(NODE), tls=server_side(authority)) as server:
        client = a_client(server.url, **changes(lambda name: pem(authority, name)))
        with pytest.raises(KubeError, match=why):
            client.read_node("k1")
        assert server.asked == []


def test_a_client_certificate_is_shown(authority: Path) -> None:
    tls = server_side(authority, asks_for_certificate=True)
    with serving(answer(NODE), tls=tls) as server:
        shown = own(pem(authority, "cert"), pem(authority, "key"))
        client = a_client(server.url, **known(pem(authority, "cert")), **shown)
        assert client.read_node("k1") is not None


def test_a_key_with_a_password_does_not_ask_the_terminal(authority: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret"]
    files = ["-in", str(authority / "key.pem"), "-out", str(locked)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    with serving(answer(NODE), tls=server_side(authority)) as server:
        shown = own(pem(authority, "cert"), locked.read_bytes())
        client = a_client(server.url, **known(pem(authority, "cert")), **shown)
        with pytest.raises(KubeError, match=r"can't read node k1: .*encrypted"):
            client.read_node("k1")


def test_a_tunnel_carries_tls_to_the_server(authority: Path) -> None:
    """The proxy answers CONNECT and is then the server itself: TLS is verified against its name."""
    established = b"HTTP/1.1 200 Connection established\r\n\r\n"
    with serving(established, answer(NODE)) as proxy:
        proxy.upgrade = server_side(authority)
        client = a_client(
            "https://api.example.org:6443",
            **{"proxy-url": f"http://127.0.0.1:{proxy.port}"},
            **known(pem(authority, "cert")),
        )
        assert client.read_node("k1") is not None
        assert proxy.paths == ["CONNECT api.example.org:6443", "GET /api/v1/nodes/k1"]
