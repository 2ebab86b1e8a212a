"""Tests of API address and credentials in every form of kubeconfig. tests/real compares kubectl."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.config import incluster_config

from dnm.converters.kube_side import KubeSide
from dnm.converters.settings import Settings
from dnm.kube.access import Access, load_access
from dnm.model.errors import KubeError
from tests.builders import a_config
from tests.processes import state_of, wait_until

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
    """Writes a complete kubeconfig with these changes, and the files that its entries may name."""
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


def oidc(hours: float | None) -> dict[str, Any]:
    """Returns a kubeconfig user with an OIDC id-token that expires in so many hours."""
    claims = {} if hours is None else {"exp": int(time.time() + 3600 * hours)}
    token = f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"
    config = {"id-token": token, "idp-issuer-url": "https://idp.example.org", "client-id": "x"}
    return {"auth-provider": {"name": "oidc", "config": config}}


DATA = {
    "client-certificate-data": encoded(PEM),
    "client-key-data": encoded(KEY),
}
INSECURE = {"insecure-skip-tls-verify": True}
FILES_TOKEN = {"tokenFile": "token"}
FILES = {"client-certificate": "client.pem", "client-key": "client.key"}

HOLDS = oidc(2)
ID_TOKEN = HOLDS["auth-provider"]["config"]["id-token"]
PAIR = {"cert": PEM, "key": KEY}
USABLE: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    # cluster, user, difference from the defaults
    "nobody": ({}, {}, {}),
    "token": ({}, {"token": "abc"}, {"authorization": "Bearer abc"}),
    "token file": ({}, FILES_TOKEN, {"authorization": "Bearer from-a-file"}),
    "a token's file before the token": (
        {}, {"token": "abc", **FILES_TOKEN}, {"authorization": "Bearer from-a-file"}
    ),
    "the token where its file is gone": (
        {}, {"token": "abc", "tokenFile": "none"}, {"authorization": "Bearer abc"}
    ),
    "password": (
        {}, {"username": "me", "password": "s:cret"},
        {"authorization": f"Basic {encoded('me:s:cret')}"},
    ),
    "files": ({"certificate-authority": "ca.pem"}, FILES, {"ca": PEM, **PAIR}),
    "data": ({"certificate-authority-data": encoded(PEM)}, DATA, {"ca": PEM, **PAIR}),
    "verification off, another name": (
        {**INSECURE, "tls-server-name": "inside"}, {}, {"verify": False, "server_name": "inside"}
    ),
    "verification on": ({"insecure-skip-tls-verify": False}, {}, {}),
    "null is nothing": ({"insecure-skip-tls-verify": None}, {}, {}),
    "no TLS": (
        {"server": "http://plain.example.org:8080/"}, FILES,
        {"server": "http://plain.example.org:8080"},
    ),
    "extensions": (
        {"extensions": []}, {"token": "abc", "extensions": []}, {"authorization": "Bearer abc"}
    ),
    "compression": ({"disable-compression": True}, {}, {}),
    "an id-token that holds": ({}, HOLDS, {"authorization": f"Bearer {ID_TOKEN}"}),
    "proxy": ({"proxy-url": "http://p:1"}, {}, {"proxy": "http://p:1"}),
}  # fmt: skip


def authorization(access: Access) -> str:
    """Returns the Authorization header of the next request. Raises KubeError."""
    return access.authorization().get("authorization", "")


def content(path: str | None) -> str:
    return Path(path).read_text() if path else ""


def seen(access: Access) -> dict[str, Any]:
    """Returns those values that dnm read from a kubeconfig and that differ from the defaults."""
    result = access.configuration
    full = {
        "authorization": authorization(access),
        "ca": content(result.ssl_ca_cert),
        "cert": content(result.cert_file),
        "key": content(result.key_file),
        "server_name": result.tls_server_name or "",
        "proxy": result.proxy or "",
        **({} if result.verify_ssl else {"verify": False}),
    }
    server = access.server.removeprefix("https://api.example.org:6443")
    return {key: value for key, value in {**full, "server": server}.items() if value != ""}


@pytest.mark.parametrize("name", USABLE)
def test_kubeconfig_sets_server_credentials_and_certificates(tmp_path: Path, name: str) -> None:
    cluster, user, expected = USABLE[name]
    path = a_kubeconfig(tmp_path, cluster, user)
    assert seen(load_access(a_config(kubeconfig_path=path))) == dict(expected)


V1 = "client.authentication.k8s.io/v1"
BOTH_CA = {"certificate-authority": "ca.pem", "certificate-authority-data": encoded(PEM)}
PLUGIN = {"exec": {"apiVersion": V1, "command": "x"}}
VERIFY, TWICE = "insecure-skip-tls-verify", "insecure-skip-tls-verify is true and a certificate"
REFUSED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], str]] = {
    # cluster, user, other keys of the file, reason
    "false text": ({VERIFY: "false"}, {}, {}, "Expected `bool"),
    "yes": ({VERIFY: "yes"}, {}, {}, "Expected `bool"),
    "one": ({VERIFY: 1}, {}, {}, "Expected `bool"),
    "insecure with an authority": (
        {**INSECURE, "certificate-authority": "ca.pem"}, {}, {}, TWICE
    ),
    "insecure with an authority's data": (
        {**INSECURE, "certificate-authority-data": encoded(PEM)}, {}, {}, TWICE
    ),
    "two authorities": (BOTH_CA, {}, {}, "both given"),
    "missing file": ({"certificate-authority": "none.pem"}, {}, {}, "No such file"),
    "not base64": ({"certificate-authority-data": "###"}, {}, {}, "not base64"),
    "no key": ({}, {"client-certificate": "client.pem"}, {}, "only one is given"),
    "files and data": ({}, {**FILES, **DATA}, {}, "keep one"),
    "two ways": ({}, {"token": "a", "username": "b"}, {}, "keep one"),
    "extensions are no list": ({"extensions": {"a": 1}}, {}, {}, "Expected `array"),
    "a number for a token": ({}, {"token": 7}, {}, "Expected `str | null`"),
    "provider": ({}, {"auth-provider": {"name": "gcp"}}, {}, "exec plug-in"),
    "no such context": ({}, {}, {"current-context": "y"}, "'y' is not among"),
    "no list": ({}, {}, {"clusters": {"a": 1}}, r"Expected `array .*clusters"),
    "contexts are numbers": ({}, {}, {"contexts": [7]}, "Expected `object`, got `int`"),
    "a name twice": ({}, {}, {"users": [{"name": "u"}] * 2}, "two entries 'u'"),
    "another kind": ({}, {}, {"kind": "Secret"},  "Invalid enum value 'Secret'"),
    "another version": ({}, {}, {"apiVersion": "v2"},  "Invalid enum value 'v2'"),
    "a plug-in and a provider": (
        {}, {**PLUGIN, "auth-provider": {"name": "oidc"}}, {}, "keep the plug-in"
    ),
    "a plug-in of no version": ({}, {"exec": {"command": "x"}}, {}, "apiVersion"),
    "a plug-in of no mode": ({}, PLUGIN, {}, "no interactiveMode"),
    # kubectl uses the other keys; dnm reports that it does not.
    "as": ({}, {"token": "abc", "as": "root"}, {}, "its own account only"),
    "groups": ({}, {"token": "abc", "as-groups": ["x"]}, {}, "its own account only"),
    "a key of tomorrow": ({"new-key": 1}, {}, {}, "unknown field `new-key`"),
    "another case": ({}, {"Token": "x"}, {}, "unknown field `Token`"),
    "another proxy": (
        {"proxy-url": "socks5h://kim:hunter2@p:1"}, {}, {}, "begins with 'socks5h': only http://"),
    "no context": ({}, {}, {"current-context": ""}, "no current-context"),
    "no user": ({}, {}, {"users": []}, "'u' is not among"),
    "no server": ({"server": ""}, {}, {}, "has no server"),
    **{f"server {url}": ({"server": url}, {}, {}, "that is not a URL")
       for url in ("x", "ftp://x", "http://", "http://[x")},
    "a space in a token": ({}, {"token": "ab c"}, {}, "has spaces"),
    "a header in a token": ({}, {"token": "a\nX-Other: b"}, {}, "has spaces"),
    "an id-token that has ended": ({}, oidc(-1), {}, "has ended"),
    "an id-token of no end": ({}, oidc(None), {}, "with a time of its end"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_kubeconfig_setting_is_refused(tmp_path: Path, name: str) -> None:
    cluster, user, top, why = REFUSED[name]
    path = a_kubeconfig(tmp_path, cluster, user, **top)
    with pytest.raises(KubeError, match=why) as refusal:
        authorization(load_access(a_config(kubeconfig_path=path)))
    output = str(refusal.value)
    assert f"can't use the kubeconfig {path}" in output
    assert "has spaces" in why or "correct it until 'kubectl version' works" in output


@pytest.mark.parametrize("text", ["", "[]", "a: [", "7", "\x00", "a: &a [*a]", "- - - -"])
def test_file_that_is_no_kubeconfig_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeError, match=f"can't use the kubeconfig {path}"):
        load_access(a_config(kubeconfig_path=path))


# --- which file ------------------------------------------------------------------------------


def test_kubeconfig_is_searched_in_configuration_environment_and_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dnm reads the file of kubeconfig_path, else those of $KUBECONFIG, else ~/.kube/config."""
    home = tmp_path / "home" / ".kube"
    home.mkdir(parents=True)
    a_kubeconfig(home, {"server": "http://home"}).rename(home / "config")
    assert load_access(a_config()).server == "http://home"
    path = a_kubeconfig(tmp_path, {"server": "http://named"}, {"token": "abc"})
    (tmp_path / "empty").write_text("# nothing yet\n")
    for named in (f"{path}", f"/nonexistent:{tmp_path / 'empty'}:{path}:"):
        monkeypatch.setenv("KUBECONFIG", named)
        access = load_access(a_config())
        assert (access.server, authorization(access)) == ("http://named", "Bearer abc")
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert load_access(a_config(kubeconfig_path=path)).server == "http://named"


@pytest.mark.parametrize(
    ("kubeconfig", "named", "sentence"),
    [
        pytest.param(
            Path("/none"),
            "",
            "kubeconfig_path = /none: there is no such file; create it, or correct the key",
            id="key",
        ),
        pytest.param(
            None,
            "/none:/x",
            "KUBECONFIG=/none:/x: there is no such file. Correct the variable",
            id="variable",
        ),
        pytest.param(None, "", "dnm found no kubeconfig: set kubeconfig_path", id="nothing at all"),
    ],
)
def test_missing_kubeconfig_is_an_error_with_the_next_step(
    kubeconfig: Path | None, named: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", named)
    with pytest.raises(KubeError, match=sentence):
        load_access(a_config(kubeconfig_path=kubeconfig))


@pytest.mark.parametrize(
    ("named", "sentence"),
    [("x" * 5000, "File name too long: .* kubeconfig_path to a file that this user may read$"),
     ("~no-user-here/x", "KUBECONFIG=~no-user-here/x: there is no such file. Correct the variable"),
     ("", "dnm found no kubeconfig: set kubeconfig_path")],
    ids=["nothing that can be seen", "no such user", "no home"],
)  # fmt: skip
def test_unreachable_kubeconfig_is_an_error_with_the_next_step(
    named: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dnm treats a home directory that it may not read like a missing kubeconfig."""
    monkeypatch.setenv("KUBECONFIG", named)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(KubeError, match=sentence):
        load_access(a_config())


@pytest.fixture
def in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plays a pod: writes its service account token, and sets the variables of a pod."""
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text(PEM)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return tmp_path / "token"


def test_pod_uses_its_service_account(in_a_pod: Path) -> None:
    access = load_access(a_config())
    assert access.server == "https://10.0.0.1:443"
    assert authorization(access) == "bearer of-the-pod"
    assert content(access.configuration.ssl_ca_cert) == PEM


@pytest.mark.parametrize(
    ("token", "why"), [(None, "token file does not exist"), ("", "Token file exists but empty")]
)
def test_pod_without_a_token_is_an_error(in_a_pod: Path, token: str | None, why: str) -> None:
    in_a_pod.unlink()
    if token is not None:
        in_a_pod.write_text(token)
    with pytest.raises(KubeError, match=f"can't use the service account of this pod: .*{why}"):
        load_access(a_config())


def test_malformed_token_is_not_shown(in_a_pod: Path) -> None:
    in_a_pod.write_text("secret\nX-Other: b")
    with pytest.raises(KubeError, match="its token has spaces") as refusal:
        authorization(load_access(a_config()))
    assert "secret" not in str(refusal.value)


def test_malformed_proxy_of_the_environment_is_reported(
    in_a_pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://[proxy")
    with pytest.raises(KubeError, match=r"the service account of this pod.* Invalid IPv6"):
        load_access(a_config())


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


@pytest.mark.parametrize("ends", ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00"])
def test_token_with_an_extreme_expiry_is_accepted(tmp_path: Path, ends: str) -> None:
    output = credential("abc").replace('"abc"', f'"abc", "expirationTimestamp": "{ends}"')
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, f"print('{output}')")})
    assert authorization(load_access(a_config(kubeconfig_path=path))) == "Bearer abc"


def test_expired_token_is_requested_again(tmp_path: Path) -> None:
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
TOO_MUCH = "printed more than 1048576 bytes and was ended: run it manually"


SILENT = {
    "fails": (
        "raise SystemExit('no ticket')",
        "exit code 1: no ticket: run it manually",
    ),
    "says something else": ("print('hello')", "print an ExecCredential: JSON is malformed"),
    "no text": ("sys = __import__('sys'); sys.stdout.buffer.write(b'\\xff')", "did not print"),
    "brackets": ("print('[' * 99999)", "did not print"),
    "says nothing": ("print('{}')", "missing required field `apiVersion`"),
    "another version": (f"print('{OLD}')", "an ExecCredential of .*v1beta1, but"),
    "another kind": (f"print('{NO_KIND}')", "Invalid enum value 'Pod'"),
    "prints for ever": (f"{FOREVER}sys.stdout.write(x)", TOO_MUCH),
    "complains for ever": (f"{FOREVER}sys.stderr.write(x)", TOO_MUCH),
}


@pytest.mark.parametrize("name", SILENT)
def test_plugin_without_credentials_is_an_error(tmp_path: Path, name: str) -> None:
    script, why = SILENT[name]
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    with pytest.raises(KubeError, match=f"the kubeconfig {path}: its plug-in .*{why}"):
        load_access(a_config(kubeconfig_path=path))


FOREIGN = ("kubeconfig_path", "KUBECONFIG", "KUBECONFIG of several", "home", "node-convert")


@pytest.mark.parametrize("named", FOREIGN)
def test_world_writable_kubeconfig_runs_no_plugin(
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
    with pytest.raises(
        KubeError, match=f"{path} can be written by every user .*'chmod go-w {path}"
    ):
        load()
    assert not (tmp_path / "ran").exists()
    path.chmod(0o600)
    assert load().server


@pytest.mark.parametrize("thing", ["plugin", "token", "ca.pem", "client.pem", "client.key"])
def test_world_writable_file_named_by_a_kubeconfig_is_refused(tmp_path: Path, thing: str) -> None:
    """A user who can write such a file decides on dnm's identity, server or plug-ins."""
    plugin = a_plugin(tmp_path, f"print('''{credential('x')}''')")
    owner = {"exec": plugin} if thing == "plugin" else {"tokenFile": "token"}
    path = a_kubeconfig(tmp_path, {"certificate-authority": "ca.pem"}, {**FILES, **owner})
    assert load_access(a_config(kubeconfig_path=path)).server
    (tmp_path / thing).chmod(0o777)
    with pytest.raises(KubeError, match=f"{thing} can be written by every user"):
        load_access(a_config(kubeconfig_path=path))


def test_plugin_is_searched_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = a_plugin(tmp_path, f"print('''{credential('found')}''')")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = a_kubeconfig(tmp_path, user={"exec": {**plugin, "command": "plugin"}})
    assert authorization(load_access(a_config(kubeconfig_path=path))) == "Bearer found"
    path = a_kubeconfig(tmp_path, user={"exec": {**plugin, "command": "no-such-plugin"}})
    with pytest.raises(KubeError, match=r"plug-in no-such-plugin can't be started: No such file"):
        load_access(a_config(kubeconfig_path=path))


def test_token_file_is_read_for_each_request(tmp_path: Path) -> None:
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user=FILES_TOKEN)))
    (tmp_path / "token").write_text("exchanged\n")
    assert authorization(access) == "Bearer exchanged"
    (tmp_path / "token").write_text("two\nlines")
    with pytest.raises(KubeError, match="its token has spaces") as refusal:
        authorization(access)
    assert "two" not in str(refusal.value)


def test_hanging_plugin_is_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(tmp_path / 'pids')!r}).write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)"
    )
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    config = a_config(kubeconfig_path=path, request_timeout=timedelta(seconds=10))
    with pytest.raises(KubeError, match=r"than a request may .* was ended: run it manually"):
        load_access(config)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    wait_until(lambda: all(state_of(pid) in "ZX" for pid in pids))


def test_plugin_gets_the_environment_of_client_go(tmp_path: Path) -> None:
    reported = tmp_path / "told"
    script = (
        "import os, pathlib, sys\n"
        f"pathlib.Path({str(reported)!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'] + chr(10)"
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
    facts = {"certificate-authority": "ca.pem", "extensions": [extension]}
    path = a_kubeconfig(tmp_path, facts, {"exec": plugin})
    assert authorization(load_access(a_config(kubeconfig_path=path))) == "Bearer x"
    info, site, arguments = reported.read_text().split("\n")
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


def test_plugin_may_return_a_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": PEM, "clientKeyData": KEY}
    document = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    plugin = a_plugin(tmp_path, f"print({json.dumps(document)!r})")
    access = load_access(a_config(kubeconfig_path=a_kubeconfig(tmp_path, user={"exec": plugin})))
    assert (seen(access)["cert"], seen(access)["key"]) == (PEM, KEY)
    assert authorization(access) == ""


PROXIES = [  # server, environment, proxy-url, the effective proxy
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
def test_proxy_of_the_kubeconfig_or_the_environment_is_used(
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
def test_pipe_or_endless_credential_file_is_refused_without_blocking(
    tmp_path: Path, key: str, kind: str
) -> None:
    thing = tmp_path / "thing"
    if kind == "pipe":
        os.mkfifo(thing)
    else:
        with thing.open("wb") as file:
            file.truncate(1 << 40)  # a sparse file
    cluster = {key: "thing"} if key == "certificate-authority" else {}
    user: dict[str, Any] = {} if cluster else {key: "thing"}
    if key == "client-key":
        user["client-certificate"] = "client.pem"
    path = a_kubeconfig(tmp_path, cluster, user)
    with pytest.raises(KubeError, match=r"not a regular file|larger than"):
        load_access(a_config(tmp_path, kubeconfig_path=path))
