"""Where the API is and who asks: every form of kubeconfig, with and without the official client."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.convert.kube_side import KubeConnection
from dnm.convert.settings import Settings
from dnm.kube.access import Access
from dnm.kube.credentials import _load_official, load_access
from dnm.kube.kubeconfig import read_plain
from dnm.model.errors import KubeError
from tests.builders import a_config
from tests.scripted_server import ScriptedServer, answer

PEM = "-----BEGIN CERTIFICATE-----\nbm90IHJlYWxseQ==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nbm90IHJlYWxseQ==\n-----END PRIVATE KEY-----\n"
PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PROXY_NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def a_kubeconfig(
    directory: Path,
    cluster: Mapping[str, Any] = {},
    user: Mapping[str, Any] = {},
    context: Mapping[str, Any] = {},
    **top: Any,
) -> Path:
    """A complete one, beside the files that its entries may name."""
    (directory / "ca.pem").write_text(PEM)
    (directory / "client.pem").write_text(PEM)
    (directory / "client.key").write_text(KEY)
    (directory / "token").write_text("from-a-file")
    other = {"server": "https://other.example.org"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [
            {"name": "other", "cluster": other},
            {"name": "c", "cluster": {"server": "https://api.example.org:6443", **cluster}},
        ],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "x",
        **top,
    }
    path = directory / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


PLAIN = [
    pytest.param({}, {"token": "abc"}, id="token"),
    pytest.param({}, {"tokenFile": "token"}, id="token file"),
    pytest.param({}, {"token": "abc", "tokenFile": "token"}, id="token before its file"),
    pytest.param({}, {"username": "me", "password": "s:cret"}, id="password"),
    pytest.param(
        {}, {"token": "abc", "username": "me", "password": "x"}, id="token before password"
    ),
    pytest.param(
        {"certificate-authority": "ca.pem"},
        {"client-certificate": "client.pem", "client-key": "client.key"},
        id="files",
    ),
    pytest.param(
        {"certificate-authority-data": encoded(PEM)},
        {"client-certificate-data": encoded(PEM), "client-key-data": encoded(KEY)},
        id="data",
    ),
    pytest.param(
        {"certificate-authority-data": encoded(PEM), "certificate-authority": "missing.pem"},
        {
            "client-certificate-data": encoded(PEM),
            "client-certificate": "missing.pem",
            "client-key-data": encoded(KEY),
            "client-key": "missing.key",
            "token": "abc",
        },
        id="data before files",
    ),
    pytest.param(
        {"insecure-skip-tls-verify": True, "tls-server-name": "inner.example.org"},
        {"token": "abc"},
        id="verification off, another name",
    ),
    pytest.param({"insecure-skip-tls-verify": False}, {"token": "abc"}, id="verification on"),
    pytest.param(
        {"server": "http://127.0.0.1:8001/prefix/", "certificate-authority": "ca.pem"},
        {"client-certificate": "client.pem", "client-key": "client.key"},
        id="no TLS, no certificates",
    ),
    pytest.param({"extensions": []}, {"token": "abc", "extensions": []}, id="extensions"),
]


def comparable(access: Access) -> dict[str, object]:
    fields = {name: getattr(access, name) for name in access.__struct_fields__}
    return {**fields, "authorization": access.authorization(), "source": ""}


@pytest.mark.parametrize(("cluster", "user"), PLAIN)
def test_a_plain_kubeconfig_is_read_as_the_official_client_reads_it(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any]
) -> None:
    path = a_kubeconfig(tmp_path, cluster, user)
    plain = read_plain(path)
    assert plain is not None
    assert comparable(plain) == comparable(_load_official(str(path), 5.0))


@pytest.mark.parametrize(
    ("cluster", "user", "more"),
    [
        pytest.param({}, {"exec": {"command": "x"}}, {}, id="plug-in"),
        pytest.param({}, {"auth-provider": {"name": "oidc"}}, {}, id="provider"),
        pytest.param({}, {"token": "abc", "as": "root"}, {}, id="impersonation"),
        pytest.param({"proxy-url": "http://p:1"}, {"token": "abc"}, {}, id="proxy"),
        pytest.param({"new-key": 1}, {"token": "abc"}, {}, id="a key of tomorrow"),
        pytest.param({"insecure-skip-tls-verify": "yes"}, {}, {}, id="another type"),
        pytest.param({"certificate-authority": "none.pem"}, {}, {}, id="a missing file"),
        pytest.param({"certificate-authority-data": "###"}, {}, {}, id="no base64"),
        pytest.param({}, {"client-certificate": "client.pem"}, {}, id="no key"),
        pytest.param({}, {"username": "me", "password": "crét"}, {}, id="a foreign letter"),
        pytest.param({}, {"token": ""}, {}, id="empty token"),
        pytest.param({}, {"token": 7}, {}, id="a number for a token"),
        pytest.param({}, {}, {"current-context": "y"}, id="no such context"),
        pytest.param({}, {}, {"current-context": ""}, id="no context"),
        pytest.param({}, {}, {"users": []}, id="no user"),
        pytest.param({}, {}, {"clusters": {}}, id="clusters are no list"),
        pytest.param({}, {}, {"contexts": [7, None]}, id="contexts are numbers"),
        pytest.param({"server": ""}, {}, {}, id="no server"),
    ],
)
def test_whatever_is_not_plain_is_left_to_the_official_client(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], more: dict[str, Any]
) -> None:
    assert read_plain(a_kubeconfig(tmp_path, cluster, user, **more)) is None


@pytest.mark.parametrize("text", ["", "[]", "a: [", "7", "\x00", "a: &a [*a]", "- - - -"])
def test_a_file_that_is_no_kubeconfig_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(KubeError, match=f"can't use the kubeconfig {path}: .*: mend it"):
        load_access(a_config(kubeconfig_path=path))


@pytest.mark.parametrize(
    ("cluster", "user", "more"),
    [
        pytest.param({"certificate-authority": "none.pem"}, {}, {}, id="a missing file"),
        pytest.param({}, {}, {"current-context": "y"}, id="no such context"),
        pytest.param({}, {"exec": {"command": "/none"}}, {}, id="a malformed plug-in"),
    ],
)
def test_a_kubeconfig_that_nobody_can_use_is_an_error(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], more: dict[str, Any]
) -> None:
    path = a_kubeconfig(tmp_path, cluster, user, **more)
    with pytest.raises(KubeError, match=f"can't use the kubeconfig {path}: "):
        load_access(a_config(kubeconfig_path=path))


# --- which file ------------------------------------------------------------------------------


def test_the_configured_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    path = a_kubeconfig(tmp_path, {"server": "http://first"})
    assert load_access(a_config(kubeconfig_path=path)).server == "http://first"


def test_the_environment_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_kubeconfig(tmp_path, {"server": "http://second"})
    monkeypatch.setenv("KUBECONFIG", f"{path}")
    assert load_access(a_config()).server == "http://second"


def test_several_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_kubeconfig(tmp_path, {"server": "http://merged"}, {"token": "abc"})
    monkeypatch.setenv("KUBECONFIG", f"/nonexistent:{path}:")
    access = load_access(a_config())
    assert (access.server, access.authorization()) == ("http://merged", "Bearer abc")


def test_the_home_directory_comes_last(tmp_path: Path) -> None:
    home = tmp_path / "home" / ".kube"
    home.mkdir(parents=True)
    a_kubeconfig(home, {"server": "http://home"}).rename(home / "config")
    assert load_access(a_config()).server == "http://home"


@pytest.mark.parametrize(
    ("kubeconfig", "named", "sentence"),
    [
        pytest.param(Path("/none"), "", "kubeconfig_path = /none: there is no such file", id="key"),
        pytest.param(None, "/none:/x", "KUBECONFIG=/none:/x: there is no such file", id="variable"),
        pytest.param(None, "", "no kubeconfig is found: set kubeconfig_path", id="nothing at all"),
    ],
)
def test_a_missing_file_is_an_error_with_the_next_step(
    kubeconfig: Path | None, named: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", named)
    with pytest.raises(KubeError, match=sentence):
        load_access(a_config(kubeconfig_path=kubeconfig))


@pytest.fixture
def in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its token; the official client looks for it in one fixed place."""
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text(PEM)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return tmp_path / "token"


def test_a_pod_uses_its_service_account(in_a_pod: Path) -> None:
    access = load_access(a_config())
    assert access.server == "https://10.0.0.1:443"
    assert access.authorization() == "bearer of-the-pod"
    assert access.ca_pem == PEM.encode()


def test_a_token_that_vanishes_is_an_error(in_a_pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    loaders: list[Any] = []
    load = InClusterConfigLoader.load_and_set

    def note(loader: Any, *rest: Any) -> None:
        loaders.append(loader)
        load(loader, *rest)

    monkeypatch.setattr(InClusterConfigLoader, "load_and_set", note)
    access = load_access(a_config())
    in_a_pod.unlink()
    loaders[0].token_expires_at = datetime(2000, 1, 1)
    with pytest.raises(KubeError, match="can't use the service account of this pod"):
        access.authorization()


# --- what only the official client can do ----------------------------------------------------


def a_plugin(directory: Path, script: str) -> dict[str, Any]:
    path = directory / "plugin"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}


def credential(token: str, expires: datetime | None = None) -> str:
    status = {"token": token}
    if expires is not None:
        status["expirationTimestamp"] = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    version = "client.authentication.k8s.io/v1"
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def test_a_plugin_gives_the_token(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path, f"print('''{credential('from-a-plugin')}''')")
    path = a_kubeconfig(tmp_path, user={"exec": plugin})
    access = load_access(a_config(kubeconfig_path=path))
    assert access.authorization() == "Bearer from-a-plugin"


def test_a_token_that_has_expired_is_asked_for_again(tmp_path: Path) -> None:
    soon = credential("TOKEN", datetime.now(UTC) + timedelta(seconds=60))
    count = tmp_path / "count"
    script = (
        f"import pathlib\ncount = pathlib.Path({str(count)!r})\n"
        "number = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('x' * (number + 1))\n"
        f"print('''{soon}'''.replace('TOKEN', str(number)))"
    )
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    access = load_access(a_config(kubeconfig_path=path))
    assert access.authorization() != access.authorization()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param("raise SystemExit('no ticket')", "no ticket", id="fails"),
        pytest.param("print('hello')", "failed to decode", id="says something else"),
        pytest.param("print('{}')", "malformed", id="says nothing"),
    ],
)
def test_a_plugin_that_gives_nothing_is_an_error(tmp_path: Path, script: str, why: str) -> None:
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    with pytest.raises(KubeError, match=why):
        load_access(a_config(kubeconfig_path=path))


OF_OTHERS = ("kubeconfig_path", "KUBECONFIG", "KUBECONFIG of several", "home", "node-convert")


@pytest.mark.parametrize("named", OF_OTHERS)
def test_a_kubeconfig_that_others_can_write_runs_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    home = tmp_path / "home" / ".kube"
    home.mkdir(parents=True)
    script = f"open({str(tmp_path / 'ran')!r}, 'w'); print('''{credential('x')}''')"
    path = a_kubeconfig(home, user={"exec": a_plugin(tmp_path, script)}).rename(home / "config")
    own = a_kubeconfig(tmp_path, {"server": "http://own"})
    if named.startswith("KUBECONFIG"):
        monkeypatch.setenv("KUBECONFIG", f"{own}:{path}" if "several" in named else str(path))
    configured = path if named in ("kubeconfig_path", "node-convert") else None

    def load() -> Access:
        if named == "node-convert":
            return KubeConnection(Settings(kubeconfig_path=configured)).requests.access
        return load_access(a_config(kubeconfig_path=configured))

    path.chmod(0o666)
    with pytest.raises(KubeError, match=f"{path} can be written by everybody .*'chmod go-w {path}"):
        load()
    assert not (tmp_path / "ran").exists()
    path.chmod(0o600)
    assert load().server


def test_a_plugin_that_hangs_is_given_up(tmp_path: Path) -> None:
    plugin = a_plugin(tmp_path, "import time; time.sleep(5)")
    path = a_kubeconfig(tmp_path, user={"exec": plugin})
    config = a_config(kubeconfig_path=path, request_timeout=timedelta(seconds=1))
    with pytest.raises(
        KubeError, match="took longer than request_timeout_seconds to give credentials"
    ):
        load_access(config)


def test_a_proxy_of_the_kubeconfig_or_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_kubeconfig(tmp_path, {"proxy-url": "http://proxy:1"}, {"token": "abc"})
    assert load_access(a_config(kubeconfig_path=path)).proxy == "http://proxy:1"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:2")
    monkeypatch.setenv("NO_PROXY", "example.com")
    path = a_kubeconfig(tmp_path, user={"token": "abc"})
    access = load_access(a_config(kubeconfig_path=path))
    assert (access.proxy, access.no_proxy) == ("http://proxy:2", "example.com")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    user = {"token": "hush", "client-certificate": "client.pem", "client-key": "client.key"}
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user=user)))
    assert access.key_pem == KEY.encode() and access.authorization() == "Bearer hush"
    assert repr(access) == f"Access('https://api.example.org:6443', '{access.source}')"


# --- what is loaded --------------------------------------------------------------------------

LOADS = """
import sys
from datetime import timedelta
from pathlib import Path
from dnm.kube.client import KubeClient
from dnm.model.config import Config
config = Config(path=Path("x"), namespaces={}, node_types={}, kubeconfig_path=Path(sys.argv[1]))
KubeClient.connect(config).read_node("k1")
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""
SURPRISES = {
    "kubernetes",
    "pydantic",
    "requests",
    "urllib3",
    "oauthlib",
    "typer",
    "rich",
    "asyncio",
}


def test_a_plain_kubeconfig_loads_no_library_but_the_parsers(tmp_path: Path) -> None:
    with ScriptedServer([answer({"kind": "Node", "metadata": {"name": "k1"}})]) as server:
        path = a_kubeconfig(tmp_path, {"server": server.url}, {"token": "abc"})
        run = subprocess.run(
            [sys.executable, "-c", LOADS, str(path)], capture_output=True, text=True, check=True
        )
    assert not SURPRISES & set(run.stdout.split())
