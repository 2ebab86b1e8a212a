"""What can stand between dnm and the API, all of it: each is told with the file, the key or the
address that it is about, and with the next step. A kubeconfig is written, and obeyed as a run does.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dnm.kube.client import KubeClient
from dnm.model.errors import KubeError
from tests.builders import a_config
from tests.kube.test_session import authority as authority  # a fixture
from tests.kube.test_session import known, pem, server_side
from tests.scripted_server import Drip, ScriptedServer, answer, status_answer

V1 = "client.authentication.k8s.io/v1"
NODE = {"kind": "Node", "metadata": {"name": "k1", "resourceVersion": "7"}}


class Place:
    """Where a case builds what is in the way; everything ends with the test."""

    def __init__(self, directory: Path, authority: Path, ends: ExitStack) -> None:
        self.directory, self.authority, self._ends = directory, authority, ends

    def serve(self, *answers: Any, **options: Any) -> str:
        return self._ends.enter_context(ScriptedServer(list(answers), **options)).url

    def serve_tls(self, folder: Path | None = None) -> str:
        return self.serve(answer(NODE), tls=server_side(folder or self.authority))

    def listen(self) -> socket.socket:
        return self._ends.enter_context(closing(socket.create_server(("127.0.0.1", 0))))

    def plugin(self, script: str) -> dict[str, Any]:
        path = self.directory / "plugin"
        path.write_text(f"#!{sys.executable}\n{script}\n")
        path.chmod(0o755)
        return {"exec": {"apiVersion": V1, "command": str(path), "interactiveMode": "Never"}}


Given = dict[str, Any]  # cluster, user and current-context of the kubeconfig


def says_nothing(place: Place) -> Given:
    """It takes connections, and no more."""
    url = "https://{}:{}".format(*place.listen().getsockname())
    return {"cluster": {"server": url, **known(pem(place.authority, "cert"))}}


def is_full(place: Place) -> Given:
    """Its queue of connections has no room: to connect takes for ever."""
    listener = place.listen()
    listener.listen(0)
    address = listener.getsockname()
    for _ in range(4):
        waiting = place._ends.enter_context(closing(socket.socket()))
        waiting.setblocking(False)
        waiting.connect_ex(address)
    return {"cluster": {"server": "http://{}:{}".format(*address)}}


def has_ended(place: Place) -> Given:
    """A certificate of yesterday."""
    folder = place.directory / "old"
    folder.mkdir()
    new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out asked"
    subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    signed = "x509 -req -in asked -signkey key.pem -days -1 -copy_extensions copyall -out cert.pem"
    for command in ([*new.split(), *subject], signed.split()):
        subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=folder)
    return {"cluster": {"server": place.serve_tls(folder), **known(pem(folder, "cert"))}}


def behind_a_proxy(said: bytes) -> Callable[[Place], Given]:
    def given(place: Place) -> Given:
        proxy = place.serve(said)
        return {"cluster": {"server": "https://api.example.org:6443", "proxy-url": proxy}}

    return given


def answering(*said: bytes | Drip) -> Callable[[Place], Given]:
    return lambda place: {"cluster": {"server": place.serve(*said)}}


def asking_a_plugin(script: str) -> Callable[[Place], Given]:
    return lambda place: {"user": place.plugin(script)}


class Trouble(NamedTuple):
    """`told` are parts of the one sentence: about what, what is wrong, the next step. KUBECONFIG
    and SERVER stand for the two."""

    name: str
    given: Callable[[Place], Given]
    told: tuple[str, ...]


MEND = "mend it until 'kubectl version' works"
LATE = "no complete answer in its time"
IS_IT_UP = "is the server right that the kubeconfig KUBECONFIG names, and is it up?"
TROUBLES = [
    Trouble(
        "no file", lambda place: {"path": "/none"}, ("kubeconfig_path = /none", "no such file")
    ),
    Trouble(
        "no context", lambda place: {"current-context": "y"},
        ("kubeconfig KUBECONFIG", "current-context 'y' is not among its contexts", MEND),
    ),
    Trouble(
        "another authority",
        lambda place: {"cluster": {"server": place.serve_tls()}},
        ("SERVER", "self-signed certificate", "does the kubeconfig KUBECONFIG have the "
         "certificate-authority"),
    ),
    Trouble(
        "a certificate that has ended", has_ended,
        ("SERVER", "certificate has expired", "renew the server's certificate"),
    ),
    Trouble(
        "another server's certificate",
        lambda place: {"cluster": {
            "server": place.serve_tls(), "tls-server-name": "other.example.org",
            **known(pem(place.authority, "cert")),
        }},
        ("SERVER", "Hostname mismatch", "let the kubeconfig KUBECONFIG have", "tls-server-name"),
    ),
    Trouble(
        "401", answering(status_answer(401, "Unauthorized", "Unauthorized")),
        ("401", "renew the credentials of the kubeconfig KUBECONFIG"),
    ),
    Trouble(
        "403", answering(status_answer(403, "Forbidden", "no")),
        ("403", "give the account of the kubeconfig KUBECONFIG the permission to get nodes"),
    ),
    Trouble(
        "a plug-in fails", asking_a_plugin("raise SystemExit('no ticket: kinit')"),
        ("kubeconfig KUBECONFIG", "its plug-in", "exit code 1: no ticket: kinit"),
    ),
    Trouble(
        "a plug-in hangs", asking_a_plugin("import time; time.sleep(600)"),
        ("kubeconfig KUBECONFIG", "its plug-in", "longer than a request may", "run it by hand"),
    ),
    Trouble(
        "a plug-in prints rubbish", asking_a_plugin("print('hello')"),
        ("kubeconfig KUBECONFIG", "its plug-in", "did not print an ExecCredential"),
    ),
    Trouble(
        "a plug-in prints for ever", asking_a_plugin("while True: print('x' * 9999)"),
        ("kubeconfig KUBECONFIG", "its plug-in", "more than 1048576 bytes", "run it by hand"),
    ),
    Trouble(
        "a proxy refuses", behind_a_proxy(answer(b"", "403 Forbidden")),
        ("https://api.example.org:6443", "Tunnel connection failed: 403 Forbidden",
         "look at proxy-url of the kubeconfig KUBECONFIG"),
    ),
    Trouble(
        "no proxy",
        lambda place: {"cluster": {
            "server": "https://api.example.org:6443", "proxy-url": "http://127.0.0.1:9"}},
        ("https://api.example.org:6443", "Connection refused", "look at proxy-url of"),
    ),
    Trouble(
        "no such name", lambda place: {"cluster": {"server": "https://api.invalid:6443"}},
        ("https://api.invalid:6443", "Name or service not known", IS_IT_UP),
    ),
    Trouble(
        "nobody listens", lambda place: {"cluster": {"server": "https://127.0.0.1:9"}},
        ("https://127.0.0.1:9", "Connection refused", IS_IT_UP),
    ),
    Trouble("no time to connect", is_full, ("SERVER", LATE, IS_IT_UP)),
    Trouble("no time for TLS", says_nothing, ("SERVER", LATE, IS_IT_UP)),
    Trouble("no answer in time", answering(Drip(b"", b"H", 600.0)), ("SERVER", LATE, IS_IT_UP)),
    Trouble(
        "half an answer in time", answering(Drip(answer(NODE)[:-20], b" " * 20, 0.2)),
        ("SERVER", LATE, IS_IT_UP),
    ),
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, authority: Path) -> Iterator[Place]:
    with ExitStack() as ends:
        yield Place(tmp_path, authority, ends)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
def test_every_trouble_names_its_place_and_the_next_step(place: Place, trouble: Trouble) -> None:
    given = trouble.given(place)
    cluster = {"server": "https://127.0.0.1:9", **given.get("cluster", {})}
    path = place.directory / "kubeconfig"
    path.write_text(json.dumps({
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "hush", **given.get("user", {})}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": given.get("current-context", "x"),
    }))  # fmt: skip
    path.chmod(0o600)
    config = a_config(
        kubeconfig_path=Path(given.get("path", path)), request_timeout=timedelta(seconds=1.5)
    )
    with pytest.raises(KubeError) as caught:
        KubeClient.connect(config).read_node("k1")
    said = str(caught.value)
    for part in trouble.told:
        part = part.replace("KUBECONFIG", str(path)).replace("SERVER", cluster["server"])
        assert part in said, said
    assert "hush" not in said and said.isprintable()
