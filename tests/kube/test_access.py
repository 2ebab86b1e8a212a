"""Where the API is and who asks: every form of kubeconfig, judged by kubectl where it can be."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dnm.converters.kube_side import KubeSide
from dnm.converters.settings import Settings
from dnm.http.access import Access
from dnm.kube import credentials
from dnm.kube.credentials import load_access
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


DATA = {
    "client-certificate-data": encoded(PEM),
    "client-key-data": encoded(KEY),
}
FILES = {"client-certificate": "client.pem", "client-key": "client.key"}

USABLE = [  # cluster, user, what differs from an access that names nothing
    pytest.param({}, {}, {}, id="nobody"),
    pytest.param({}, {"token": "abc"}, {"authorization": "Bearer abc"}, id="token"),
    pytest.param(
        {}, {"tokenFile": "token"}, {"authorization": "Bearer from-a-file"}, id="token file"
    ),
    pytest.param(
        {},
        {"token": "abc", "tokenFile": "token"},
        {"authorization": "Bearer from-a-file"},
        id="a token's file before the token",
    ),
    pytest.param(
        {},
        {"token": "abc", "tokenFile": "none"},
        {"authorization": "Bearer abc"},
        id="the token where its file is gone",
    ),
    pytest.param(
        {},
        {"username": "me", "password": "s:crét"},
        {"authorization": f"Basic {encoded('me:s:crét')}"},
        id="password",
    ),
    pytest.param(
        {"certificate-authority": "ca.pem"}, FILES, {"ca": PEM, "cert": PEM, "key": KEY}, id="files"
    ),
    pytest.param(
        {"certificate-authority-data": encoded(PEM)},
        DATA,
        {"ca": PEM, "cert": PEM, "key": KEY},
        id="data",
    ),
    pytest.param(
        {"insecure-skip-tls-verify": True, "tls-server-name": "inside"},
        {},
        {"verify": False, "server_name": "inside"},
        id="verification off, another name",
    ),
    pytest.param({"insecure-skip-tls-verify": False}, {}, {}, id="verification on"),
    pytest.param({"insecure-skip-tls-verify": None}, {}, {}, id="null is nothing"),
    pytest.param(
        {"server": "http://plain.example.org:8080/"},
        FILES,
        {"server": "http://plain.example.org:8080"},
        id="no TLS",
    ),
    pytest.param(
        {"extensions": []},
        {"token": "abc", "extensions": []},
        {"authorization": "Bearer abc"},
        id="extensions",
    ),
    pytest.param({"disable-compression": True}, {}, {}, id="compression"),
    pytest.param({"proxy-url": "http://p:1"}, {}, {"proxy": "http://p:1"}, id="proxy"),
]


def seen(access: Access) -> dict[str, Any]:
    """What an access says, without what says nothing."""
    whole = {
        "authorization": access.authorization(),
        "ca": access.ca_pem.decode(),
        "cert": access.cert_pem.decode(),
        "key": access.key_pem.decode(),
        "server_name": access.server_name,
        "proxy": access.proxy,
        **({} if access.verify else {"verify": False}),
    }
    server = access.server.removeprefix("https://api.example.org:6443")
    return {key: value for key, value in {**whole, "server": server}.items() if value != ""}


@pytest.mark.parametrize(("cluster", "user", "expected"), USABLE)
def test_a_kubeconfig_says_who_asks_whom(
    tmp_path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    path = a_kubeconfig(tmp_path, cluster, user)
    assert seen(load_access(a_config(kubeconfig_path=path))) == dict(expected)


V1 = "client.authentication.k8s.io/v1"
BOTH_CA = {"certificate-authority": "ca.pem", "certificate-authority-data": encoded(PEM)}
INSECURE = {"insecure-skip-tls-verify": True}
REFUSED = [
    pytest.param({"insecure-skip-tls-verify": "false"}, {}, {}, "Expected `bool", id="false text"),
    pytest.param({"insecure-skip-tls-verify": "yes"}, {}, {}, "Expected `bool", id="yes"),
    pytest.param({"insecure-skip-tls-verify": 1}, {}, {}, "Expected `bool", id="one"),
    pytest.param(
        {**INSECURE, "certificate-authority": "ca.pem"},
        {},
        {},
        "insecure-skip-tls-verify is true and a certificate authority",
        id="insecure with an authority",
    ),
    pytest.param(
        {**INSECURE, "certificate-authority-data": encoded(PEM)},
        {},
        {},
        "insecure-skip-tls-verify is true and a certificate authority",
        id="insecure with an authority's data",
    ),
    pytest.param(BOTH_CA, {}, {}, "both given", id="two authorities"),
    pytest.param({"certificate-authority": "none.pem"}, {}, {}, "No such file", id="missing file"),
    pytest.param({"certificate-authority-data": "###"}, {}, {}, "no base64", id="no base64"),
    pytest.param({}, {"client-certificate": "client.pem"}, {}, "only one is given", id="no key"),
    pytest.param({}, {**FILES, **DATA}, {}, "keep one", id="files and data"),
    pytest.param({}, {"token": "a", "username": "b"}, {}, "keep one", id="two ways"),
    pytest.param({}, {"token": 7}, {}, "Expected `str | null`", id="a number for a token"),
    pytest.param({}, {"auth-provider": {"name": "oidc"}}, {}, "exec plug-in", id="provider"),
    pytest.param({}, {}, {"current-context": "y"}, "'y' is not among", id="no such context"),
    pytest.param({}, {}, {"clusters": {"a": 1}}, "clusters of .* is no list", id="no list"),
    pytest.param({}, {}, {"contexts": [7]}, "has no name", id="contexts are numbers"),
    pytest.param({}, {"exec": {"command": "x"}}, {}, "apiVersion", id="a plug-in of no version"),
    pytest.param(
        {},
        {"exec": {"apiVersion": V1, "command": "x"}},
        {},
        "no interactiveMode",
        id="a plug-in of no mode",
    ),
]
# Of these kubectl makes something, and dnm says that it does not.
NOT_UNDERSTOOD = [
    pytest.param({}, {"token": "abc", "as": "root"}, {}, "its own account only", id="as"),
    pytest.param({}, {"token": "abc", "as-groups": ["x"]}, {}, "its own account only", id="groups"),
    pytest.param({"new-key": 1}, {}, {}, "unknown field `new-key`", id="a key of tomorrow"),
    pytest.param({}, {"Token": "x"}, {}, "unknown field `Token`", id="another case"),
    pytest.param({"proxy-url": "socks5h://p:1"}, {}, {}, "only http://", id="another proxy"),
    pytest.param({}, {}, {"current-context": ""}, "no current-context", id="no context"),
    pytest.param({}, {}, {"users": []}, "'u' is not among", id="no user"),
    pytest.param({"server": ""}, {}, {}, "has no server", id="no server"),
]


@pytest.mark.parametrize(("cluster", "user", "top", "why"), REFUSED + NOT_UNDERSTOOD)
def test_what_can_not_be_obeyed_is_refused(
    tmp_path: Path,
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    top: Mapping[str, Any],
    why: str,
) -> None:
    path = a_kubeconfig(tmp_path, cluster, user, **top)
    with pytest.raises(KubeError, match=why) as refusal:
        load_access(a_config(kubeconfig_path=path))
    assert f"can't use the kubeconfig {path}" in str(refusal.value)


def kubectl_takes(path: Path) -> bool:
    """Whether kubectl gets as far as looking for the server: nobody answers at these names."""
    run = subprocess.run(
        ["kubectl", "--kubeconfig", str(path), "get", "--raw", "/version", "--request-timeout=1s"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(path.parent)},
        check=False,
    )
    assert run.returncode != 0
    looked = ("no such host", "lookup ", "was refused", "proxyconnect", "context deadline exceeded")
    return any(word in run.stderr for word in looked)


@pytest.mark.parametrize(
    ("cluster", "user", "expected"),
    # Their PEM holds no certificate: kubectl stops at that, dnm when it connects.
    [param for param in USABLE if param.id not in ("files", "data")],
)
def test_kubectl_takes_what_dnm_takes(
    tmp_path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    # Without any credentials kubectl asks a person for a name.
    assert kubectl_takes(a_kubeconfig(tmp_path, cluster, user or {"token": "abc"}))


@pytest.mark.parametrize(("cluster", "user", "top", "why"), REFUSED)
def test_kubectl_refuses_what_dnm_refuses(
    tmp_path: Path,
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    top: Mapping[str, Any],
    why: str,
) -> None:
    assert not kubectl_takes(a_kubeconfig(tmp_path, cluster, user, **top))


@pytest.mark.parametrize("text", ["", "[]", "a: [", "7", "\x00", "a: &a [*a]", "- - - -"])
def test_a_file_that_is_no_kubeconfig_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeError, match=f"can't use the kubeconfig {path}"):
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
    """Its token, in another place than the one that every pod has."""
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text(PEM)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(credentials, "_SERVICE_ACCOUNT", tmp_path)
    return tmp_path / "token"


def test_a_pod_uses_its_service_account(in_a_pod: Path) -> None:
    access = load_access(a_config())
    assert access.server == "https://10.0.0.1:443"
    assert access.authorization() == "Bearer of-the-pod"
    assert access.ca_pem == PEM.encode()
    in_a_pod.write_text("exchanged")
    assert access.authorization() == "Bearer exchanged"


def test_a_token_that_vanishes_is_an_error(in_a_pod: Path) -> None:
    access = load_access(a_config())
    in_a_pod.unlink()
    with pytest.raises(KubeError, match=r"the token .* can't be read"):
        access.authorization()


# --- plug-ins --------------------------------------------------------------------------------


def a_plugin(directory: Path, script: str) -> dict[str, Any]:
    path = directory / "plugin"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return {"apiVersion": V1, "command": str(path), "interactiveMode": "Never"}


def credential(token: str, expires: datetime | None = None) -> str:
    status = {"token": token}
    if expires is not None:
        status["expirationTimestamp"] = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


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
        pytest.param("print('hello')", "did not print an ExecCredential", id="says something else"),
        pytest.param("print('{}')", "missing required field", id="says nothing"),
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
            return KubeSide(Settings(kubeconfig_path=configured)).requests.access
        return load_access(a_config(kubeconfig_path=configured))

    path.chmod(0o666)
    with pytest.raises(KubeError, match=f"{path} can be written by everybody .*'chmod go-w {path}"):
        load()
    assert not (tmp_path / "ran").exists()
    path.chmod(0o600)
    assert load().server


def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(tmp_path / 'pids')!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    config = a_config(kubeconfig_path=path, request_timeout=timedelta(seconds=5))
    with pytest.raises(KubeError, match=r"took longer than request_timeout_seconds .* was ended"):
        load_access(config)
    for pid in (tmp_path / "pids").read_text().split():
        until = time.monotonic() + 300
        while is_alive(pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert not is_alive(pid)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_plugin_is_told_what_client_go_tells_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = (
        "import os, pathlib, sys\n"
        f"pathlib.Path({str(told)!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'] + chr(10)"
        " + os.environ['SITE'] + chr(10) + ' '.join(sys.argv[1:]))\n"
        f"print('''{credential('x')}''')"
    )
    plugin = {
        **a_plugin(tmp_path, script),
        "command": "./plugin",
        "args": ["login", "--now"],
        "env": [{"name": "SITE", "value": "hpc"}],
        "provideClusterInfo": True,
    }
    path = a_kubeconfig(tmp_path, {"certificate-authority": "ca.pem"}, {"exec": plugin})
    assert load_access(a_config(kubeconfig_path=path)).authorization() == "Bearer x"
    info, site, arguments = told.read_text().split("\n")
    assert (site, arguments) == ("hpc", "login --now")
    cluster = {
        "server": "https://api.example.org:6443",
        "certificate-authority-data": encoded(PEM),
    }
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": cluster},
    }


def test_a_plugin_gives_a_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": PEM, "clientKeyData": KEY}
    said = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    plugin = a_plugin(tmp_path, f"print({json.dumps(said)!r})")
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user={"exec": plugin})))
    assert (access.cert_pem, access.key_pem) == (PEM.encode(), KEY.encode())
    assert access.authorization() == ""


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


@pytest.mark.parametrize("kind", ["pipe", "endless"])
@pytest.mark.parametrize("key", ["tokenFile", "client-key", "certificate-authority"])
def test_a_file_that_is_none_or_has_no_end_is_a_sentence_and_holds_nobody_up(
    tmp_path: Path, key: str, kind: str
) -> None:
    thing = tmp_path / "thing"
    if kind == "pipe":
        os.mkfifo(thing)
    else:
        with thing.open("wb") as file:
            file.truncate(1 << 40)  # takes no room on the disk
    cluster = {key: "thing"} if key == "certificate-authority" else {}
    user: dict[str, Any] = {} if cluster else {key: "thing"}
    if key == "client-key":
        user["client-certificate"] = "client.pem"
    path = a_kubeconfig(tmp_path, cluster, user)
    with pytest.raises(KubeError, match=r"no regular file|larger than"):
        load_access(a_config(tmp_path, kubeconfig_path=path))
