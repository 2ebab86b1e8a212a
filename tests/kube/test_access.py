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
from kubernetes.client import ApiClient

from dnm.converters.kube_side import KubeSide
from dnm.converters.settings import Settings
from dnm.kube import access as kube_access
from dnm.kube.access import Access, load_access
from dnm.model.errors import KubeError
from tests.builders import a_config

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
FILES_TOKEN = {"tokenFile": "token"}
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
        {"username": "me", "password": "s:cret"},
        {"authorization": f"Basic {encoded('me:s:cret')}"},
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


def authorization(access: Access) -> str:
    """What the next request would say of who asks."""
    setting = access.configuration.auth_settings().get("BearerToken")
    return setting["value"] if setting else ""


def content(path: str | None) -> str:
    return Path(path).read_text() if path else ""


def seen(access: Access) -> dict[str, Any]:
    """What an access says, without what says nothing."""
    found = access.configuration
    whole = {
        "authorization": authorization(access),
        "ca": content(found.ssl_ca_cert),
        "cert": content(found.cert_file),
        "key": content(found.key_file),
        "server_name": found.tls_server_name or "",
        "proxy": found.proxy or "",
        **({} if found.verify_ssl else {"verify": False}),
    }
    server = access.server.removeprefix("https://api.example.org:6443")
    return {key: value for key, value in {**whole, "server": server}.items() if value != ""}


@pytest.mark.parametrize(("cluster", "user", "expected"), USABLE)
def test_a_kubeconfig_says_who_asks_whom(
    tmp_path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    path = a_kubeconfig(tmp_path, cluster, user)
    assert seen(load_access(a_config(kubeconfig_path=path))) == dict(expected)


def oidc(hours: float | None) -> dict[str, Any]:
    """A user whose id-token ends in so many hours."""
    claims = {} if hours is None else {"exp": int(time.time() + 3600 * hours)}
    token = f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"
    config = {"id-token": token, "idp-issuer-url": "https://idp.example.org", "client-id": "x"}
    return {"auth-provider": {"name": "oidc", "config": config}}


def test_an_id_token_is_used_while_it_holds(tmp_path: Path) -> None:
    user = oidc(2)
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user=user)))
    assert authorization(access) == f"Bearer {user['auth-provider']['config']['id-token']}"


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
    pytest.param({"extensions": {"a": 1}}, {}, {}, "Expected `array", id="extensions are no list"),
    pytest.param({}, {"token": 7}, {}, "Expected `str | null`", id="a number for a token"),
    pytest.param({}, {"auth-provider": {"name": "gcp"}}, {}, "exec plug-in", id="provider"),
    pytest.param({}, {}, {"current-context": "y"}, "'y' is not among", id="no such context"),
    pytest.param({}, {}, {"clusters": {"a": 1}}, "clusters of .* is no list", id="no list"),
    pytest.param({}, {}, {"contexts": [7]}, "has no name", id="contexts are numbers"),
    pytest.param({}, {}, {"users": [{"name": "u"}] * 2}, "two entries 'u'", id="a name twice"),
    pytest.param({}, {}, {"kind": "Secret"}, "kind of .* is Secret, not Config", id="another kind"),
    pytest.param({}, {}, {"apiVersion": "v2"}, "is v2, not v1", id="another version"),
    pytest.param(
        {},
        {"exec": {"apiVersion": V1, "command": "x"}, "auth-provider": {"name": "oidc"}},
        {},
        "keep the plug-in",
        id="a plug-in and a provider",
    ),
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
    pytest.param({"server": "x"}, {}, {}, "that is no URL", id="no URL"),
    pytest.param({}, {"token": "ab c"}, {}, "has spaces", id="a space in a token"),
    pytest.param({}, {"token": "a\nX-Other: b"}, {}, "has spaces", id="a header in a token"),
    pytest.param({}, oidc(-1), {}, "has ended", id="an id-token that has ended"),
    pytest.param({}, oidc(None), {}, "tells when it ends", id="an id-token of no end"),
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
    (tmp_path / "empty").write_text("# nothing yet\n")
    monkeypatch.setenv("KUBECONFIG", f"/nonexistent:{tmp_path / 'empty'}:{path}:")
    access = load_access(a_config())
    assert (access.server, authorization(access)) == ("http://merged", "Bearer abc")


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
    monkeypatch.setattr(kube_access, "_POD_HAS", tmp_path)
    return tmp_path / "token"


def test_a_pod_uses_its_service_account(in_a_pod: Path) -> None:
    access = load_access(a_config())
    assert access.server == "https://10.0.0.1:443"
    assert authorization(access) == "Bearer of-the-pod"
    assert content(access.configuration.ssl_ca_cert) == PEM
    in_a_pod.write_text("exchanged")
    assert authorization(access) == "Bearer exchanged"


def test_a_token_that_vanishes_is_an_error(in_a_pod: Path) -> None:
    access = load_access(a_config())
    in_a_pod.unlink()
    with pytest.raises(KubeError, match=r"the token .* can't be read"):
        authorization(access)


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
    assert authorization(access) == "Bearer from-a-plugin"


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
    assert authorization(access) != authorization(access)


OLD = json.dumps({"apiVersion": f"{V1}beta1", "kind": "ExecCredential", "status": {"token": "x"}})
NO_KIND = json.dumps({"apiVersion": V1, "kind": "Pod", "status": {}})
FOREVER = "import sys; x = 'x' * 9999\nwhile True: "
TOO_MUCH = "printed more than 1048576 bytes and was ended: run it by hand"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param("raise SystemExit('no ticket')", "no ticket", id="fails"),
        pytest.param(
            "print('hello')", "print an ExecCredential: JSON is malformed", id="says something else"
        ),
        pytest.param(
            "sys = __import__('sys'); sys.stdout.buffer.write(b'\\xff')",
            "did not print",
            id="no text",
        ),
        pytest.param("print('[' * 99999)", "did not print", id="brackets"),
        pytest.param("print('{}')", "missing required field `apiVersion`", id="says nothing"),
        pytest.param(
            f"print('{OLD}')", "an ExecCredential of .*v1beta1, and", id="another version"
        ),
        pytest.param(f"print('{NO_KIND}')", "Invalid enum value 'Pod'", id="another kind"),
        pytest.param(f"{FOREVER}sys.stdout.write(x)", TOO_MUCH, id="prints for ever"),
        pytest.param(f"{FOREVER}sys.stderr.write(x)", TOO_MUCH, id="complains for ever"),
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


@pytest.mark.parametrize("thing", ["plugin", "token", "ca.pem", "client.pem", "client.key"])
def test_what_a_kubeconfig_names_is_of_nobody_else(tmp_path: Path, thing: str) -> None:
    """Who writes it decides who dnm is, whom it believes, or what it runs."""
    plugin = a_plugin(tmp_path, f"print('''{credential('x')}''')")
    who = {"exec": plugin} if thing == "plugin" else {"tokenFile": "token"}
    path = a_kubeconfig(tmp_path, {"certificate-authority": "ca.pem"}, {**FILES, **who})
    assert load_access(a_config(kubeconfig_path=path)).server
    (tmp_path / thing).chmod(0o777)
    with pytest.raises(KubeError, match=f"{thing} can be written by everybody"):
        load_access(a_config(kubeconfig_path=path))


def test_a_plugin_is_looked_for_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = a_plugin(tmp_path, f"print('''{credential('found')}''')")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = a_kubeconfig(tmp_path, user={"exec": {**plugin, "command": "plugin"}})
    assert authorization(load_access(a_config(kubeconfig_path=path))) == "Bearer found"
    path = a_kubeconfig(tmp_path, user={"exec": {**plugin, "command": "no-such-plugin"}})
    with pytest.raises(KubeError, match=r"plug-in no-such-plugin can't be started: No such file"):
        load_access(a_config(kubeconfig_path=path))


def test_a_token_of_a_file_is_read_for_each_request(tmp_path: Path) -> None:
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user=FILES_TOKEN)))
    (tmp_path / "token").write_text("exchanged\n")
    assert authorization(access) == "Bearer exchanged"
    (tmp_path / "token").write_text("two\nlines")
    with pytest.raises(KubeError, match="its token has spaces") as refusal:
        authorization(access)
    assert "two" not in str(refusal.value)


def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(tmp_path / 'pids')!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    config = a_config(kubeconfig_path=path, request_timeout=timedelta(seconds=5))
    with pytest.raises(KubeError, match=r"took longer than a request may .* was ended"):
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
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "hpc"}}
    known = {"certificate-authority": "ca.pem", "extensions": [extension]}
    path = a_kubeconfig(tmp_path, known, {"exec": plugin})
    assert authorization(load_access(a_config(kubeconfig_path=path))) == "Bearer x"
    info, site, arguments = told.read_text().split("\n")
    assert (site, arguments) == ("hpc", "login --now")
    cluster = {
        "server": "https://api.example.org:6443",
        "certificate-authority-data": encoded(PEM),
        "config": {"audience": "hpc"},
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
    assert (seen(access)["cert"], seen(access)["key"]) == (PEM, KEY)
    assert authorization(access) == ""


PROXIES = [  # server, environment, proxy-url, the proxy in force
    ("https://a.example.org", {"HTTPS_PROXY": "http://p:2"}, "", "http://p:2"),
    ("https://a.example.org", {"https_proxy": "p:2"}, "", "http://p:2"),
    ("https://a.example.org", {"HTTP_PROXY": "http://p:2"}, "", ""),
    ("http://a.example.org", {"HTTP_PROXY": "http://p:2"}, "", "http://p:2"),
    ("https://a.example.org", {"HTTPS_PROXY": "http://p:2"}, "http://own:1", "http://own:1"),
    ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:2"}, "", ""),
    ("https://localhost", {"HTTPS_PROXY": "http://p:2"}, "", ""),
    ("https://[::1]", {"HTTPS_PROXY": "http://p:2"}, "", ""),
    ("https://a.example.org", {"HTTPS_PROXY": "http://p:2", "NO_PROXY": "*"}, "", ""),
    ("https://a.example.org", {"HTTPS_PROXY": "http://p:2", "NO_PROXY": "example.org"}, "", ""),
    ("https://a.example.org", {"HTTPS_PROXY": "http://p:2", "NO_PROXY": ".example.org"}, "", ""),
    ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:2", "NO_PROXY": "x, 10.0.0.0/8"}, "", ""),
    ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:2", "NO_PROXY": "11.0.0.0/8"}, "", "http://p:2"),
    ("https://a.example.org", {"NO_PROXY": "example.org"}, "http://own:1", "http://own:1"),
    ("https://a.example.org", {"HTTPS_PROXY": "socks5://p:2", "NO_PROXY": "example.org"}, "", ""),
]


@pytest.mark.parametrize(("server", "environment", "own", "used"), PROXIES)
def test_a_proxy_of_the_kubeconfig_or_the_environment_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    environment: Mapping[str, str],
    own: str,
    used: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cluster = {"server": server, **({"proxy-url": own} if own else {})}
    path = a_kubeconfig(tmp_path, cluster, {"token": "abc"})
    access = load_access(a_config(kubeconfig_path=path))
    proxy = getattr(ApiClient(access.configuration).rest_client.pool_manager, "proxy", None)
    assert (str(proxy) if proxy else "") == used


def test_no_secret_is_shown(tmp_path: Path) -> None:
    user = {"token": "hush", "client-certificate": "client.pem", "client-key": "client.key"}
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user=user)))
    assert seen(access)["key"] == KEY and authorization(access) == "Bearer hush"
    assert "hush" not in repr(access) and KEY not in repr(access)


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
