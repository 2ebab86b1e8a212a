"""Tests of HTTP connections over real sockets: framing, pages, retries, time limits, TLS."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import socket
import ssl
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import EmptyPoolError, ReadTimeoutError

from dnm.http.causes import cause_of
from dnm.kube.client import KubeClient
from dnm.kube.errors import ApiRefused, clean, describe
from dnm.kube.next_step import next_step
from dnm.kube.questions import can_i, read_server_time, read_version
from dnm.kube.slinky import find_bridges
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeError
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


def gzip_bomb() -> bytes:
    """Returns a few thousand bytes of gzip that unpack to 128 MB of the same block."""
    packer = zlib.compressobj(wbits=31)
    head, block = (
        packer.compress(b" " * size) + packer.flush(zlib.Z_FULL_FLUSH) for size in (1, 1 << 20)
    )
    return head + block * 128


BOMB = gzip_bomb()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnm.kube.session._FIRST_PAUSE", 0.01)


def a_client(server: str, seconds: float = 300.0, **changes: Any) -> KubeClient:
    config = a_config(request_timeout=timedelta(seconds=seconds))
    return KubeClient(an_access(server, **changes), config)


def through(proxy: str) -> dict[str, Any]:
    return {"proxy-url": proxy}


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


PLAIN = answer(NODE).split(b"\r\n\r\n", 1)[1]
IN_EIGHTS = answer(NODE, chunked=8)
GZIP = ["Content-Encoding: gzip"]
FRAMES = {
    "with a length": answer(NODE),
    "a byte a chunk": answer(NODE, chunked=1),
    "seven bytes a chunk": answer(NODE, chunked=7),
    "one chunk": answer(NODE, chunked=10**6),
    "with a trailer": IN_EIGHTS.replace(b"\r\n0\r\n\r\n", b"\r\n0\r\nA-Trailer: x\r\n\r\n"),
    "until the end": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + PLAIN,
    "compressed": answer(gzip.compress(PLAIN), headers=GZIP),
}


@pytest.mark.parametrize("sent", FRAMES.values(), ids=FRAMES)
def test_body_is_read_with_any_framing(sent: bytes) -> None:
    with serving(sent, closes=True) as server:
        assert a_client(server.url).read_node("k1") == Node(
            name="k1", allocatable={}, resource_version="7", is_ready=False
        )


BROKEN = {
    "no answer": HANG_UP,
    "half a head": b"HTTP/1.1 200 OK\r\n",
    "no HTTP": b"\x00\xff\x00 no HTTP at all\r\n\r\n",
    "cut off": answer(NODE)[:-5],
    "cut off in a chunk": IN_EIGHTS[:-12],
    "no size": IN_EIGHTS.replace(b"\r\n8\r\n", b"\r\nzz\r\n", 1),
    "minus": IN_EIGHTS.replace(b"\r\n8\r\n", b"\r\n-8\r\n", 1),
    "too short": IN_EIGHTS.replace(b"\r\n8\r\n", b"\r\n7\r\n", 1),
    "too large": IN_EIGHTS.replace(b"\r\n8\r\n", b"\r\nffffffffff\r\n", 1),
    "claims 100 gigabytes": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    "no gzip": answer(b"{}", headers=GZIP),
    "half a gzip": answer(gzip.compress(b"{}" * 99)[:-9], headers=GZIP),
    "HTML": answer(b"<html>"),
    "half a document": answer(b'{"metadata":{"name":'),
    "another document": answer([]),
    "a deep document": answer(b"[" * 100_000),
    "200 headers": answer(NODE, headers=[f"X-{n}: y" for n in range(200)]),
    "a long header": answer(NODE, headers=["X: " + "y" * 100_000]),
    "a bomb": answer(BOMB, headers=GZIP),
    "a bomb in a refusal": answer(BOMB, "403 No", GZIP),
    "a refusal that is no UTF-8": answer(b"\xff\xfe", "403 No"),
    "nothing but Continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
    "no UTF-8": answer(b'{"metadata":{"name":"\xff\xfe"}}'),
    "another type": answer({"metadata": {"name": 7}}),
    "no quantity": answer({**NODE, "status": {"allocatable": {"cpu": "much"}}}),
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
def test_malformed_answer_is_an_error_with_a_sentence(sent: bytes) -> None:
    repeats = [sent] * 4
    with serving(*repeats, closes=True) as server, pytest.raises(KubeError) as caught:
        a_client(server.url).read_node("k1")
    assert str(caught.value).startswith("can't read node k1: ")


def test_connection_closed_without_an_answer_is_named() -> None:
    with serving(*[HANG_UP] * 4) as server, pytest.raises(KubeError) as caught:
        a_client(server.url).read_node("k1")
    assert "the server closed the connection without an answer" in str(caught.value)
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
    "read the server's version": lambda kube: read_version(kube.requests),
    "read the server's time": lambda kube: read_server_time(kube.requests),
    "find a bridge": lambda kube: find_bridges(kube.requests),
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
def test_arbitrary_body_is_a_value_or_an_error(
    verb: Callable[[KubeClient], object], body: bytes, code: int
) -> None:
    message = answer(body, f"{code} Whatever")
    with serving(*[message] * 9) as server:
        client = a_client(server.url)
        try:
            verb(client)
        except KubeError as error:
            assert str(error).isprintable()
        finally:
            client.close()


# --- one connection --------------------------------------------------------------------------


def test_closed_connection_is_reopened_before_a_write() -> None:
    with serving(answer(NODE), answer(NODE), closes=True) as server:
        client = a_client(server.url)
        client.read_node("k1")
        time.sleep(0.1)  # until the close has crossed the loopback
        client.patch_node("k1", cordon=True)
        assert [asked.connection for asked in server.asked] == [0, 1]


@pytest.mark.parametrize(
    ("below", "name", "path"),
    [
        pytest.param("", "k1", "/api/v1/nodes/k1", id="a name"),
        pytest.param("/clusters/c1", "k1", "/clusters/c1/api/v1/nodes/k1", id="the server's path"),
        pytest.param("", "a/../b?c#d", "/api/v1/nodes/a%2F..%2Fb%3Fc%23d", id="a strange name"),
    ],
)
def test_request_has_path_token_and_host(below: str, name: str, path: str) -> None:
    """dnm requests no compression on loopback."""
    with serving(answer({**NODE, "metadata": {"name": name}})) as server:
        a_client(f"{server.url}{below}", token="abc").read_node(name)
        (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", path)
    wanted = {"authorization": "Bearer abc", "accept-encoding": "identity"}
    assert asked.headers.items() >= {**wanted, "host": f"127.0.0.1:{server.port}"}.items()


# --- pages -----------------------------------------------------------------------------------


LOST = status_answer(410, "Expired", "too old")
PAGE = answer(nodes_page("a", token="t1"))
PAGED: dict[str, tuple[list[bytes], list[str] | str, int]] = {
    # the answers, the nodes or the error, the number of requests
    "a token that expires": (
        [answer(nodes_page("old", token="t1")), LOST, PAGE, answer(nodes_page("b"))], ["a", "b"], 4
    ),
    "tokens that always expire": ([PAGE, LOST] * 9, "too old (410 Expired)", 6),
    "the same page for ever": ([PAGE] * 9, "the same page again", 2),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "outcome", "asked"), PAGED.values(), ids=PAGED)
def test_list_restarts_after_an_expired_token_a_bounded_number_of_times(
    sent: list[bytes], outcome: list[str] | str, asked: int
) -> None:
    with serving(*sent) as server:
        nodes = a_client(server.url).read_nodes()
        assert len(server.asked) == asked
    if isinstance(nodes, Unreadable):
        assert isinstance(outcome, str) and outcome in nodes.error
    else:
        assert [node.name for node in nodes] == outcome


# --- retries ---------------------------------------------------------------------------------


BUSY = status_answer(429, "TooManyRequests", "slow down")
PASSING = {
    "hung up": HANG_UP,
    "cut off": answer(NODE)[:-3],
    "throttled": BUSY,
    "retry now": status_answer(429, "TooManyRequests", "slow down", ["Retry-After: 0"]),
    "unavailable": answer(b"busy", "503 Service Unavailable"),
    "internal": status_answer(500, "InternalError", "etcd"),
    "no UTF-8": answer(b'{"message":"zu sp\xe4t"}', "503 Service Unavailable"),
    "deep": answer(b'{"x":' + b"[" * 9_999, "503 Service Unavailable"),
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
def test_read_is_retried_after_a_passing_failure(trouble: bytes) -> None:
    closes = not trouble.startswith(b"HTTP/1.1 4") and not trouble.startswith(b"HTTP/1.1 5")
    with serving(trouble, answer(NODE), closes=closes) as server:
        assert a_client(server.url).read_node("k1") is not None
        assert len(server.asked) == 2


LATER = status_answer(429, "TooManyRequests", "slow down", ["Retry-After: 3600"])


@pytest.mark.parametrize(
    ("sent", "seconds", "asked"), [([HANG_UP] * 9, 300, 4), ([LATER, answer(NODE)], 5, 1)],
    ids=["never", "after a pause longer than the time-out"],
)  # fmt: skip
def test_number_of_read_retries_is_bounded(sent: list[bytes], seconds: float, asked: int) -> None:
    with serving(*sent) as server:
        with pytest.raises(KubeError):
            a_client(server.url, seconds=seconds).read_node("k1")
        assert len(server.asked) == asked


UNKNOWN = {
    "hung up": HANG_UP,
    "cut off": answer(NODE)[:-3],
    "unavailable": answer(b"busy", "503 Service Unavailable"),
    "timeout": status_answer(504, "Timeout", "may have happened"),
    "no HTTP": b"no HTTP\r\n\r\n",
}


@pytest.mark.parametrize("trouble", UNKNOWN.values(), ids=UNKNOWN)
def test_write_with_an_unclear_answer_is_not_repeated(trouble: bytes) -> None:
    with serving(trouble, answer(NODE), closes=True) as server:
        with pytest.raises(KubeError, match=r"^it is not known whether dnm could patch node k1: "):
            a_client(server.url).patch_node("k1", cordon=True)
        assert len(server.asked) == 1


AFTER_THE_TIME_OUT = status_answer(429, "TooManyRequests", "slow down", ["Retry-After: 3"])


@pytest.mark.parametrize("busy", [BUSY, AFTER_THE_TIME_OUT], ids=["soon", "after its time-out"])
def test_write_that_was_refused_unread_is_repeated(busy: bytes) -> None:
    with serving(busy, answer(NODE)) as server:
        a_client(server.url, seconds=2.9).patch_node("k1", cordon=True)
        assert server.paths == ["PATCH /api/v1/nodes/k1"] * 2


def test_refusal_keeps_the_connection_open() -> None:
    missing = status_answer(404, "NotFound", "no such node")
    with serving(missing, answer(b"x" * 5000, "403 No", chunked=100), answer(NODE)) as server:
        client = a_client(server.url)
        assert client.read_node("k1") is None
        with pytest.raises(ApiRefused):
            client.read_node("k1")
        assert client.read_node("k1") is not None
        assert server.connections == 1


# --- time limits -----------------------------------------------------------------------------


DRIPS = {
    "head drips": Drip(b"", b"HTTP/1.1 200 OK", 0.05),
    "body drips": Drip(answer(NODE)[:-20], b" " * 20, 0.05),
    "chunks drip": Drip(answer(b"", chunked=1)[:-5], b"20\r\n" + b" " * 20, 0.05),
}


@pytest.mark.parametrize("sent", DRIPS.values(), ids=DRIPS)
def test_slow_answer_is_abandoned_at_the_time_limit(sent: Drip) -> None:
    with serving(sent) as server, pytest.raises(KubeError, match="no complete answer in its time"):
        a_client(server.url, seconds=0.3).read_node("k1")


def silent_server(ends: ExitStack, is_full: bool) -> str:
    """Starts a server that never answers: it only accepts connections, or its queue is full, so
    that connecting never ends. Returns the URL."""
    listener = ends.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
    address = listener.getsockname()
    if not is_full:
        return "https://{}:{}".format(*address)
    listener.listen(0)
    for _ in range(4):
        waiting = ends.enter_context(closing(socket.socket()))
        waiting.setblocking(False)
        waiting.connect_ex(address)
    return "http://{}:{}".format(*address)


LATE = "no complete answer in its time"
IS_IT_UP = "check that the server in the kubeconfig of the test is the right one, and that it is up"
AT_PROXY = "check proxy-url of the kubeconfig of the test"
FAR, NOBODY = "https://api.example.org:6443", "http://127.0.0.1:9"
TROUBLES: dict[str, tuple[Callable[[ExitStack], str], dict[str, str], str]] = {
    "no such name": (
        lambda ends: "https://api.invalid:6443", {}, f"Name or service not known: {IS_IT_UP}"
    ),
    "nobody listens": (lambda ends: NOBODY, {}, f"Connection refused: {IS_IT_UP}"),
    "no time to connect": (lambda ends: silent_server(ends, True), {}, f"{LATE}: {IS_IT_UP}"),
    "no time for TLS": (lambda ends: silent_server(ends, False), {}, f"{LATE}: {IS_IT_UP}"),
    "no proxy": (lambda ends: FAR, {"proxy-url": NOBODY}, f"Connection refused: {AT_PROXY}"),
}  # fmt: skip


@pytest.mark.parametrize("name", TROUBLES)
def test_connection_problem_is_named_with_the_next_step(name: str) -> None:
    make, changes, output = TROUBLES[name]
    with ExitStack() as ends:
        server = make(ends)
        seconds = 1.5 if output.startswith(LATE) else 300
        with pytest.raises(KubeError) as caught:
            a_client(server, seconds=seconds, token="hush", **changes).read_node("k1")
    assert str(caught.value).startswith(f"can't read node k1: {server}: {output}")


def test_server_without_tls_is_named_with_the_next_step() -> None:
    received, context = ssl.MemoryBIO(), ssl.create_default_context()
    received.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ssl.SSLError) as caught:
        context.wrap_bio(received, ssl.MemoryBIO(), server_hostname="api").do_handshake()
    access = a_client(NOBODY).requests.access
    expected = "the server does not use TLS there: correct server in the kubeconfig of the test"
    assert next_step(access, caught.value) == expected


# --- what is told ----------------------------------------------------------------------------


ANSWERED = {
    "no Status and control characters": (
        answer(b"<p>\x1b[31mgo\r\naway\x00", "418 Teapot"),
        "can't read node k1: <p>?[31mgo away? (418 Teapot)",
    ),
    "sent elsewhere": (
        answer(b"", "302 Found", ["Location: http://elsewhere"]),
        "can't read node k1: no message (302 Found)",
    ),
    "forbidden": (
        status_answer(403, "Forbidden", 'nodes is forbidden: User "u" cannot get'),
        'can\'t read node k1: nodes is forbidden: User "u" cannot get (403 Forbidden): give the '
        "account of the kubeconfig of the test the permission to get nodes",
    ),
    "overloaded": (
        BUSY,
        "can't read node k1: slow down (429 TooManyRequests): wait until the API server has "
        "less load",
    ),
    "failed": (
        status_answer(501, "NotImplemented", "no etcd"),
        "can't read node k1: no etcd (501 NotImplemented): see the log of the API server, then try "
        "again",
    ),
    "unauthorized": (
        status_answer(401, "Unauthorized", "Unauthorized"),
        "can't read node k1: Unauthorized (401 Unauthorized): renew the credentials of the "
        "kubeconfig of the test",
    ),
}


@pytest.mark.parametrize(("sent", "sentence"), ANSWERED.values(), ids=ANSWERED)
def test_refusal_is_a_sentence(sent: bytes, sentence: str) -> None:
    with serving(*[sent] * 4) as server, pytest.raises(ApiRefused) as caught:
        a_client(server.url).read_node("k1")
    assert str(caught.value) == sentence


def test_redirect_receives_no_token() -> None:
    """dnm treats a redirect as an error, so that the other server receives no request."""
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
def test_empty_object_name_does_not_address_the_collection(name: str) -> None:
    with serving(answer(NODE)) as server:
        with pytest.raises(KubeError, match="names no object"):
            a_client(server.url).delete_node(name)
        with pytest.raises(KubeError, match="names no object"):
            a_client(server.url).read_config_map(name, "m")
        assert server.asked == []


@given(st.text(max_size=3000))
def test_cluster_texts_become_a_single_printable_line(text: str) -> None:
    output = clean(text)
    assert output.isprintable() and len(output) <= 600


# --- proxies ---------------------------------------------------------------------------------


def test_plain_request_through_a_proxy_names_the_server() -> None:
    with serving(answer(NODE)) as proxy:
        server = "http://api.example.org:6443/c1"
        a_client(server, **through(f"http://me:s%40crt@127.0.0.1:{proxy.port}")).read_node("k1")
        asked = proxy.asked[0]
    assert asked.path == "http://api.example.org:6443/c1/api/v1/nodes/k1"
    assert asked.headers["host"] == "api.example.org:6443"
    assert asked.headers["proxy-authorization"] == "Basic bWU6c0BjcnQ="


def test_tls_request_asks_the_proxy_for_a_tunnel() -> None:
    with serving(answer(b"no", "407 Proxy Authentication Required")) as proxy:
        client = a_client(
            "https://api.example.org:6443",
            token="secret",
            **through(f"http://127.0.0.1:{proxy.port}"),
        )
        with pytest.raises(KubeError, match=rf"Tunnel connection failed: 407 .*: {AT_PROXY}"):
            client.read_node("k1")
        assert proxy.paths == ["CONNECT api.example.org:6443"]
        assert "authorization" not in proxy.asked[0].headers


def test_proxy_of_an_unsupported_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(KubeError, match=r"the proxy socks5://127\.0\.0\.1:1080 is no"):
        a_client("https://api.example.org")


# --- TLS -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates files of certificates for 127.0.0.1 and api.example.org: self-signed, expired, issued
    by the first one; and a file without a certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    directory = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:api.example.org"]
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    ended = (
        "openssl x509 -in cert.pem -signkey key.pem -days -1 -copy_extensions copyall -out old.pem"
    )
    issued = "openssl req -x509 -key key.pem -CA cert.pem -CAkey key.pem -days 2 -out issued.pem"
    named = ["-subj", "/CN=issued", *subject[2:]]
    for words in ([*command.split(), *subject, *files], ended.split(), [*issued.split(), *named]):
        subprocess.run(words, check=True, capture_output=True, cwd=directory)
    (directory / "none.pem").write_text("no PEM")
    return directory


def server_side(
    authority: Path, certificate: str = "cert", asks_for_certificate: bool = False
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / f"{certificate}.pem", authority / "key.pem")
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority / "cert.pem")
    return context


def pem(authority: Path, name: str) -> bytes:
    return (authority / f"{name}.pem").read_bytes()


def trust_in(authority: bytes) -> dict[str, Any]:
    return {"certificate-authority-data": base64.b64encode(authority).decode()}


def client_identity(certificate: bytes, key: bytes) -> dict[str, Any]:
    return {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }


@pytest.mark.parametrize(
    ("certificate", "changes"),
    [("cert", {}), ("cert", {"insecure-skip-tls-verify": True}),
     ("cert", {"tls-server-name": "api.example.org"}), ("issued", {})],
    ids=["known authority", "verification switched off", "server name", "itself, not its issuer"],
)  # fmt: skip
def test_trusted_server_is_accepted(
    authority: Path, certificate: str, changes: dict[str, Any]
) -> None:
    believed = (
        {} if "insecure-skip-tls-verify" in changes else trust_in(pem(authority, certificate))
    )
    message = [answer(nodes_page("a", token="t"), chunked=11), answer(nodes_page("b"))]
    with serving(*message, tls=server_side(authority, certificate)) as server:
        nodes = a_client(server.url, **believed, **changes).read_nodes()
    assert not isinstance(nodes, Unreadable) and len(nodes) == 2
    assert server.connections == 1


@pytest.mark.parametrize(
    ("believed", "changes", "why"),
    [
        pytest.param("", {}, r"https://.*: self-signed certificate: add the certificate-authority "
                     "of this server to the kubeconfig of the test", id="unknown authority"),
        pytest.param("cert", {"tls-server-name": "other.example.org"}, "Hostname mismatch.*: set "
                     "server or tls-server-name in the kubeconfig", id="another server's"),
        pytest.param("old", {}, "certificate has expired: renew the server's certificate, or",
                     id="of yesterday"),
        pytest.param("none", {}, "can't read", id="broken authority"),
    ],
)  # fmt: skip
def test_untrusted_server_receives_no_request(
    authority: Path, believed: str, changes: dict[str, Any], why: str
) -> None:
    trusted = trust_in(pem(authority, believed)) if believed else {}
    tls = server_side(authority, "old" if believed == "old" else "cert")
    with serving(answer(NODE), tls=tls) as server:
        client = a_client(server.url, token="hush", **trusted, **changes)
        with pytest.raises(KubeError, match=why) as caught:
            client.read_node("k1")
        assert server.asked == [] and "hush" not in str(caught.value)


def test_client_certificate_is_presented(authority: Path) -> None:
    tls = server_side(authority, asks_for_certificate=True)
    with serving(answer(NODE), tls=tls) as server:
        shown = client_identity(pem(authority, "cert"), pem(authority, "key"))
        client = a_client(server.url, **trust_in(pem(authority, "cert")), **shown)
        assert client.read_node("k1") is not None


def test_encrypted_key_does_not_prompt_on_the_terminal(authority: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    command = ["openssl", "ec", "-aes256", "-passout", "pass:secret"]
    files = ["-in", str(authority / "key.pem"), "-out", str(locked)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    with serving(answer(NODE), tls=server_side(authority)) as server:
        shown = client_identity(pem(authority, "cert"), locked.read_bytes())
        client = a_client(server.url, **trust_in(pem(authority, "cert")), **shown)
        with pytest.raises(KubeError, match=r"can't read node k1: .*encrypted"):
            client.read_node("k1")


def test_tunnel_carries_tls_to_the_server(authority: Path) -> None:
    """The proxy answers CONNECT and then acts as the server. TLS verifies the server's name."""
    established = b"HTTP/1.1 200 Connection established\r\n\r\n"
    with serving(established, answer(NODE)) as proxy:
        proxy.upgrade = server_side(authority)
        client = a_client(
            "https://api.example.org:6443",
            **through(f"http://127.0.0.1:{proxy.port}"),
            **trust_in(pem(authority, "cert")),
        )
        assert client.read_node("k1") is not None
        assert proxy.paths == ["CONNECT api.example.org:6443", "GET /api/v1/nodes/k1"]


def test_urllib3_error_without_a_cause_is_described() -> None:
    """If the process was suspended, urllib3 raises a time-out of 0 s without a cause."""
    pool = HTTPConnectionPool("k1", 6443)
    late = cause_of(ReadTimeoutError(pool, "/", "Read timed out. (read timeout=0)"))
    assert isinstance(late, TimeoutError) and describe(late) == "no complete answer in its time"
    assert str(cause_of(EmptyPoolError(pool, "full"))) == "the request failed (EmptyPoolError)"
