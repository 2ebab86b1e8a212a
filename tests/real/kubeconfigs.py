"""The cases of `test_kubeconfigs.py`: kubeconfigs of every kind, with the expected results."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.real.http_api import Json
from tests.real.proxy import proxied
from tests.real.rig import PORT, Rig
from tests.real.tunnels import socks, tunnels

V1 = "client.authentication.k8s.io/v1"
TAKEN, REFUSED, WAITS = "taken", "refused", "waits"
IN_A_POD = """
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io
cp -r {given} /run/secrets/kubernetes.io/serviceaccount
exec "$@"
"""


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Asked(NamedTuple):
    """The start of a command: its environment, and a prefix of its command line (`before`)."""

    environment: Mapping[str, str]
    before: Sequence[str] = ()


class Kit:
    """The parts from which a case makes its kubeconfig, and the folder for it."""

    def __init__(self, rig: Rig, directory: Path, token: str) -> None:
        self.rig, self.directory, self.token = rig, directory, token
        self.ca = Path(f"{rig.keys}/ca.crt").read_text()
        self.cert = Path(f"{rig.keys}/admin.crt").read_text()
        self.key = Path(f"{rig.keys}/admin.key").read_text()
        files = {"ca.pem": self.ca, "cert.pem": self.cert, "key.pem": self.key, "token": token}
        for name, content in files.items():
            (directory / name).write_text(content)
        self.token_user: Json = {"token": token}
        self.cert_user: Json = {
            "client-certificate-data": encoded(self.cert), "client-key-data": encoded(self.key),
        }  # fmt: skip

    def document(
        self,
        user: Json | None = None,
        cluster: Mapping[str, Any] = {},
        context: Mapping[str, Any] = {},
        **top: Any,
    ) -> Json:
        """Returns a kubeconfig for a user with a token. `cluster` adds keys; None removes one."""
        facts = {
            "server": f"https://127.0.0.1:{PORT}", "certificate-authority-data": encoded(self.ca),
            **cluster,
        }  # fmt: skip
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {k: v for k, v in facts.items() if v is not None}}
            ],
            "users": [{"name": "u", "user": self.token_user if user is None else user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
            "current-context": "x",
            **top,
        }

    def write(self, document: Json | str, name: str = "kubeconfig") -> Path:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        path.chmod(0o600)
        return path

    def plugin(self, script: str, name: str = "plugin") -> str:
        path = self.directory / name
        path.write_text(f"#!{sys.executable}\n{script}\n")
        path.chmod(0o755)
        return str(path)

    def printed(self, version: str = V1, **status: str) -> str:
        """Returns the script of a credential plug-in that prints this status."""
        status = status or {"token": self.token}
        document = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        return f"print({json.dumps(document)!r})"


Make = Callable[[Kit], Any]  # the complete document, or its text


class Case(NamedTuple):
    """A case. `make` returns its kubeconfig, or `asking` all about the start of the commands.
    `kubectl` and `dnm` are their expected results. If these differ, `row` is the first cell of the
    row in docs/kubernetes.md, or a text above the table."""

    name: str
    kubectl: str
    make: Make | None = None
    asking: Callable[[Kit], Any] | None = None
    dnm: str = ""
    row: str = ""

    @contextmanager
    def asked(self, kit: Kit) -> Iterator[Asked]:
        if self.make is not None:
            yield of_files(kit.write(self.make(kit)))
            return
        assert self.asking is not None
        result = self.asking(kit)
        if isinstance(result, Asked):
            yield result
            return
        with result as asked:
            yield asked


def of_files(*paths: Path) -> Asked:
    return Asked({"KUBECONFIG": ":".join(map(str, paths))})


def taken(name: str, make: Make) -> Case:
    return Case(name, TAKEN, make)


def refused(name: str, make: Make) -> Case:
    return Case(name, REFUSED, make)


def differs(name: str, make: Make, row: str, kubectl: str = TAKEN) -> Case:
    return Case(name, kubectl, make, dnm=REFUSED, row=row)


def a_user(user: Json) -> Make:
    return lambda kit: kit.document(user)


def with_cert(more: Json) -> Make:
    return lambda kit: kit.document(kit.cert_user | more)


def with_token(more: Json) -> Make:
    return lambda kit: kit.document(kit.token_user | more)


def a_cluster(cluster: Json) -> Make:
    return lambda kit: kit.document(cluster=cluster)


def with_plugin(kit: Kit, script: str, **settings: object) -> Json:
    facts = {"apiVersion": V1, "command": kit.plugin(script), "interactiveMode": "Never"}
    return {"exec": {k: v for k, v in {**facts, **settings}.items() if v is not None}}


def a_plugin(script: str = "", version: str = V1, **settings: object) -> Make:
    """Returns a user with a plug-in that prints the token in an API version, or runs `script`."""
    return lambda kit: kit.document(with_plugin(kit, script or kit.printed(version), **settings))


def oidc(kit: Kit) -> Json:
    config = {"id-token": kit.token, "idp-issuer-url": "https://127.0.0.1:9", "client-id": "x"}
    return {"auth-provider": {"name": "oidc", "config": config}}


def another_key(kit: Kit) -> Json:
    key = encoded(Path(f"{kit.rig.keys}/apiserver.key").read_text())
    return kit.document(kit.cert_user | {"client-key-data": key})


UNKNOWN = "a key that nobody knows, `as`, `as-groups`"
PASSWORD = {"username": "u", "password": "p"}
OF_FILES = {"client-certificate": "cert.pem", "client-key": "key.pem"}
WHO = [
    taken("a token", Kit.document),
    taken("a certificate as data", with_cert({})),
    taken("a certificate in files beside it", a_user(OF_FILES)),
    taken("certificate and token", lambda kit: kit.document(kit.cert_user | kit.token_user)),
    taken("a token's file", a_user({"tokenFile": "token"})),
    taken(
        "a token's file and a token of nobody", a_user({"tokenFile": "token", "token": "nobody"})
    ),
    taken("a token and no such file", with_token({"tokenFile": "none"})),
    refused("no such token's file", a_user({"tokenFile": "none"})),
    refused("a token of nobody", a_user({"token": "nobody"})),
    refused("a line end in a token", lambda kit: kit.document({"token": f"{kit.token}\n"})),
    refused("a number for a token", a_user({"token": 7})),
    refused("a name and a password", a_user(PASSWORD)),
    refused("a token and a name", with_token(PASSWORD)),
    refused("a certificate without its key", a_user({"client-certificate": "cert.pem"})),
    refused("a certificate in a file and as data", with_cert({"client-certificate": "cert.pem"})),
    refused("a certificate that is not base64", with_cert({"client-certificate-data": "###"})),
    refused("a key of another certificate", another_key),
    refused("nobody", a_user({})),
    taken("an id-token", lambda kit: kit.document(oidc(kit))),
    refused("a provider that is gone", a_user({"auth-provider": {"name": "gcp"}})),
    differs(
        "as somebody else", with_cert({"as": "admin", "as-groups": ["system:masters"]}), UNKNOWN
    ),
]


def a_certificate(kit: Kit) -> str:
    return kit.printed(clientCertificateData=kit.cert, clientKeyData=kit.key)


def with_arguments(kit: Kit) -> Json:
    asks = "import os, sys\nassert (sys.argv[1], os.environ['SITE']) == ('now', 'hpc')\n"
    env = [{"name": "SITE", "value": "hpc"}]
    return kit.document(with_plugin(kit, asks + kit.printed(), args=["now"], env=env))


BETA, ALPHA = f"{V1}beta1", f"{V1}alpha1"
PLUGINS = [
    taken("a plug-in", a_plugin()),
    taken("a plug-in of v1beta1", a_plugin("", BETA, apiVersion=BETA, interactiveMode=None)),
    taken("a plug-in beside the kubeconfig", a_plugin(command="./plugin")),
    taken(
        "a plug-in that gives a certificate",
        lambda kit: kit.document(with_plugin(kit, a_certificate(kit))),
    ),
    taken("a plug-in with arguments and variables", with_arguments),
    refused("a plug-in of v1alpha1", a_plugin("", ALPHA, apiVersion=ALPHA)),
    refused("a plug-in of no mode", a_plugin(interactiveMode=None)),
    refused("a plug-in for a person", a_plugin(interactiveMode="Always")),
    refused("a plug-in that fails", a_plugin("raise SystemExit('no ticket')")),
    refused("a plug-in that says something else", a_plugin("print('hello')")),
    refused(
        "a plug-in that gives nothing",
        lambda kit: kit.document(with_plugin(kit, kit.printed(expirationTimestamp=""))),
    ),
    refused("a plug-in that answers in another version", a_plugin("", BETA)),
    refused("a plug-in that is not there", a_plugin(command="no-such-plugin")),
    refused(
        "a plug-in and a provider",
        lambda kit: kit.document(with_plugin(kit, kit.printed()) | oidc(kit)),
    ),
    differs(
        "a plug-in that hangs",
        a_plugin("import time; time.sleep(600)"),
        "a plug-in that hangs, asks a person, prints for ever",
        WAITS,
    ),
]
AUTHORITY = "certificate-authority-data"
UNVERIFIED = "insecure-skip-tls-verify"
IN_A_FILE: Json = {"certificate-authority": "ca.pem"}
INSECURE: Json = {UNVERIFIED: True, AUTHORITY: None}
SERVER = [
    taken("an authority in a file", a_cluster(IN_A_FILE | {AUTHORITY: None})),
    refused("an authority in a file and as data", a_cluster(IN_A_FILE)),
    refused("another authority", lambda kit: kit.document(cluster={AUTHORITY: encoded(kit.cert)})),
    refused("an authority that is none", a_cluster({AUTHORITY: encoded("hello")})),
    refused("no authority", a_cluster({AUTHORITY: None})),
    taken("no verification", a_cluster(INSECURE)),
    refused("no verification, and an authority", a_cluster({UNVERIFIED: True})),
    refused("no verification, as a text", a_cluster(INSECURE | {UNVERIFIED: "true"})),
    refused("verification, as a text", a_cluster({UNVERIFIED: "false"})),
    taken("another name of the server", a_cluster({"tls-server-name": "kubernetes.default.svc"})),
    refused("a name that is not the server's", a_cluster({"tls-server-name": "example.org"})),
    taken("a slash behind the server", a_cluster({"server": f"https://127.0.0.1:{PORT}/"})),
    refused("a path that is not there", a_cluster({"server": f"https://127.0.0.1:{PORT}/none"})),
    refused("no TLS where there is some", a_cluster({"server": f"http://127.0.0.1:{PORT}"})),
    refused("nobody listens", a_cluster({"server": "https://127.0.0.1:9"})),
    refused("no server", a_cluster({"server": None})),
    refused("a server that is no address", a_cluster({"server": f"127.0.0.1:{PORT}"})),
    taken(
        "compression is off, and extensions",
        a_cluster({"disable-compression": True, "extensions": []}),
    ),
    refused("extensions are no list", a_cluster({"extensions": {"a": 1}})),
    differs("a key of tomorrow", a_cluster({"new-key": 1}), UNKNOWN),
]


def below_a_path(kit: Kit) -> Any:
    @contextmanager
    def serving() -> Iterator[Asked]:
        with proxied(kit.rig, Path(kit.rig.kubeconfig()), kit.directory) as proxy:
            proxy.below = "/clusters/c-1"
            server = json.loads(proxy.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
            full = kit.document(cluster={"server": server + proxy.below})
            yield of_files(kit.write(full))

    return serving()


def through(kind: Callable[[], Any], answer: bytes | None = None) -> Callable[[Kit], Any]:
    def asking(kit: Kit) -> Any:
        @contextmanager
        def serving() -> Iterator[Asked]:
            with tunnels(answer) if answer else kind() as text:
                address = text if isinstance(text, str) else text[0]
                yield of_files(kit.write(kit.document(cluster={"proxy-url": address})))

        return serving()

    return asking


def beside_a_proxy(kit: Kit) -> Asked:
    asked = of_files(kit.write(kit.document()))
    return Asked({**asked.environment, "HTTPS_PROXY": "http://127.0.0.1:9"})


WAYS = [
    Case("a server below a path", TAKEN, asking=below_a_path),
    Case("a proxy", TAKEN, asking=through(tunnels)),
    Case(
        "a proxy that refuses",
        REFUSED,
        asking=through(tunnels, b"HTTP/1.1 403 Forbidden\r\n\r\n"),
    ),
    Case("a proxy of SOCKS", TAKEN, asking=through(socks), dnm=REFUSED, row="a proxy `socks5://`"),
    Case("a proxy of the environment, for loopback", TAKEN, asking=beside_a_proxy),
    refused("a proxy of another kind", a_cluster({"proxy-url": "ftp://127.0.0.1:9"})),
]


def several(*made: Callable[[Kit], Json | str]) -> Callable[[Kit], Asked]:
    """Returns a case of several kubeconfigs, each in its own folder, as $KUBECONFIG names them."""
    return lambda kit: of_files(
        *(kit.write(function(kit), f"{number}/kubeconfig") for number, function in enumerate(made))
    )


def only(kinds: str) -> Callable[[Kit], Json]:
    """Returns a function that makes a kubeconfig with only these sections."""

    def part(kit: Kit) -> Json:
        kept = ("apiVersion", "kind", *kinds.split())
        return {key: value for key, value in kit.document().items() if key in kept}

    return part


def in_home_directory(kit: Kit) -> Asked:
    kit.write(kit.document(), ".kube/config")
    return Asked({})


def with_a_missing_file(kit: Kit) -> Asked:
    return of_files(kit.directory / "none", kit.write(kit.document()))


def writable_by_all(kit: Kit) -> Asked:
    path = kit.write(kit.document())
    path.chmod(0o666)
    return of_files(path)


def in_a_pod(token: str = "") -> Callable[[Kit], Asked]:
    def asking(kit: Kit) -> Asked:
        settings = kit.directory / "serviceaccount"
        settings.mkdir()
        (settings / "token").write_text(token or kit.token)
        shutil.copy(f"{kit.rig.keys}/ca.crt", settings / "ca.crt")
        script = IN_A_POD.format(given=settings)
        return Asked(
            {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(PORT)},
            ["unshare", "--mount", "bash", "-euc", script, "bash"],
        )

    return asking


def in_context(name: str) -> Make:
    return lambda kit: kit.document(None, {}, {}, **{"current-context": name})


def duplicated(kind: str) -> Make:
    def make(kit: Kit) -> Json:
        full = kit.document()
        return full | {kind: full[kind] * 2}

    return make


FILES = [
    Case(
        "merged of three", TAKEN,
        asking=several(only("clusters"), only("users"), only("contexts current-context")),
    ),
    Case(
        "of two clusters the first", TAKEN,
        asking=several(Kit.document, a_cluster({"server": "https://x"})),
    ),
    Case(
        "of two clusters the first, which is wrong", REFUSED,
        asking=several(a_cluster({"server": "https://127.0.0.1:9"}), Kit.document),
    ),
    Case(
        "of two contexts in force the first", TAKEN,
        asking=several(Kit.document, in_context("none")),
    ),
    Case(
        "half of a cluster, and the other half", REFUSED,
        asking=several(a_cluster({AUTHORITY: None}), Kit.document),
    ),
    Case("one that is missing", TAKEN, asking=with_a_missing_file),
    Case("none of them is there", REFUSED, asking=lambda kit: of_files(kit.directory / "none")),
    Case("an empty file and one", TAKEN, asking=several(lambda kit: "", Kit.document)),
    Case("a comment and one", TAKEN, asking=several(lambda kit: "# empty\n", Kit.document)),
    Case("a broken file and one", REFUSED, asking=several(lambda kit: "a: [", Kit.document)),
    Case("a folder and one", REFUSED, asking=lambda kit: of_files(
        kit.directory, kit.write(kit.document()))),
    refused("an empty file", lambda kit: ""),
    refused("a list", lambda kit: "[]"),
    refused("another kind", lambda kit: kit.document() | {"kind": "Secret"}),
    refused("another version", lambda kit: kit.document() | {"apiVersion": "v2"}),
    taken("neither kind nor version", lambda kit: {
        k: v for k, v in kit.document().items() if k not in ("kind", "apiVersion")}),
    taken("more at the top", lambda kit: kit.document(preferences={}, colors=True)),
    refused("no such context", in_context("none")),
    refused("no context in force", in_context("")),
    refused("no such user", lambda kit: kit.document(users=[])),
    refused("no such cluster", lambda kit: kit.document(clusters=[])),
    refused("a context without a cluster", lambda kit: kit.document(context={"cluster": ""})),
    taken("a namespace", lambda kit: kit.document(context={"namespace": "default"})),
    refused("a name twice among the clusters", duplicated("clusters")),
    refused("a name twice among the users", duplicated("users")),
    refused("a name twice among the contexts", duplicated("contexts")),
    refused("an entry without a name", lambda kit: kit.document(
        users=[{"user": kit.token_user}])),
    Case("at home", TAKEN, asking=in_home_directory),
    Case("nowhere", REFUSED, asking=lambda kit: Asked({})),
    Case("in a pod", TAKEN, asking=in_a_pod()),
    Case("in a pod, of nobody", REFUSED, asking=in_a_pod("nobody")),
    Case(
        "others may write it", TAKEN, asking=writable_by_all, dnm=REFUSED,
        row="must belong to root or to dnm's user",
    ),
]  # fmt: skip
CASES = [*WHO, *PLUGINS, *SERVER, *WAYS, *FILES]
