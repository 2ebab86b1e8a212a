"""Tests of dnm's credentials on the real API server: a change in the middle of a run, a plug-in's
short-lived token, a pod's service account, and a proxy in between."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.real.account import KUBECONFIG
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.proxy import Seen, proxied
from tests.real.rig import PORT, Rig
from tests.real.test_lists import signed_token
from tests.real.tunnels import tunnels

FAR = 3600


def a_kubeconfig(source: Path, target: Path, user: Json, **cluster: str) -> Path:
    """Writes a kubeconfig for dnm's account with these credentials."""
    document = yaml.safe_load(source.read_text())
    document["users"][0]["user"] = user
    document["clusters"][0]["cluster"] |= cluster
    target.write_text(json.dumps(document))
    target.chmod(0o600)
    return target


def test_token_replaced_during_a_run_is_used_at_once(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    """The server refuses the old token from then on, so a run that kept it would fail."""
    file = tmp_path / "token"
    file.write_text(signed_token(rig, FAR))
    lines: list[str] = []

    def exchange(seen: Seen) -> None:
        lines.append(file.read_text())
        if len(lines) == 1:
            file.write_text(signed_token(rig, FAR + 1) + "\n")

    with proxied(rig, KUBECONFIG, tmp_path) as proxy:
        proxy.after = exchange
        a_kubeconfig(proxy.kubeconfig, proxy.kubeconfig, {"tokenFile": str(file)})
        make_site(kubeconfig_path=proxy.kubeconfig).dnm("run")
    sent = [seen.sent["Authorization"] for seen in proxy.seen]
    assert len(sent) > 2 and sent[0] == f"Bearer {lines[0]}"
    assert set(sent[1:]) == {f"Bearer {file.read_text().strip()}"}
    assert {seen.code for seen in proxy.seen} <= {200, 404}


PLUGIN = """#!{python}
import datetime, json, pathlib
folder = pathlib.Path({folder!r})
asked = folder / "asked"
number = len(asked.read_text()) if asked.exists() else 0
asked.write_text("x" * (number + 1))
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
token = (folder / f"token-{{number % 2}}").read_text()
print(json.dumps({{
    "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
    "status": {{"token": token, "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}},
}}))
"""


def test_plugin_token_that_expires_between_two_requests_is_renewed(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    for number in range(2):
        (tmp_path / f"token-{number}").write_text(signed_token(rig, FAR + number))
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN.format(python=sys.executable, folder=str(tmp_path)))
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin",
                     "interactiveMode": "Never"}}  # fmt: skip
    with proxied(rig, KUBECONFIG, tmp_path) as proxy:
        a_kubeconfig(proxy.kubeconfig, proxy.kubeconfig, user)
        make_site(kubeconfig_path=proxy.kubeconfig).dnm("run")
    sent = [seen.sent["Authorization"] for seen in proxy.seen]
    assert len(set(sent)) == 2 and len((tmp_path / "asked").read_text()) >= len(sent)
    assert {seen.code for seen in proxy.seen} <= {200, 404}


IN_A_POD = """
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io
cp -r {given} /run/secrets/kubernetes.io/serviceaccount
exec env KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT={port} dnm "$@"
"""


def test_service_account_of_a_pod_is_sufficient(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    settings = tmp_path / "serviceaccount"
    settings.mkdir()
    (settings / "token").write_text(signed_token(rig, FAR))
    shutil.copy(f"{rig.keys}/ca.crt", settings / "ca.crt")
    site = make_site(kubeconfig_path=None)
    script = IN_A_POD.format(given=settings, port=PORT)
    site.command = ["unshare", "--mount", "bash", "-euc", script, "dnm"]
    home = tmp_path / "home"
    home.mkdir()
    site.dnm("run", HOME=str(home))
    assert (
        "the service account of this pod"
        in site.dnm("check", "--wide", code=None, HOME=str(home)).stdout
    )
    (settings / "token").write_text("no-token-of-anybody")
    done = site.dnm("plan", code=1, HOME=str(home))
    output = done.stdout + done.stderr
    assert "401" in output and "renew the credentials of the service account of this pod" in output


def test_run_through_a_proxy_succeeds(rig: Rig, make_site: MakeSite, tmp_path: Path) -> None:
    user = {"token": signed_token(rig, FAR)}
    with tunnels() as asked:
        path = a_kubeconfig(KUBECONFIG, tmp_path / "k", user, **{"proxy-url": asked[0]})
        make_site(kubeconfig_path=path).dnm("run")
    assert asked[1:] and {line.rpartition(" ")[0] for line in asked[1:]} == {
        f"CONNECT 127.0.0.1:{PORT}"
    }


@pytest.mark.parametrize("code", ["407 Proxy Authentication Required", "403 Forbidden"])
def test_refusing_proxy_is_named(rig: Rig, make_site: MakeSite, tmp_path: Path, code: str) -> None:
    user = {"token": signed_token(rig, FAR)}
    with tunnels(f"HTTP/1.1 {code}\r\n\r\n".encode()) as asked:
        path = a_kubeconfig(KUBECONFIG, tmp_path / "k", user, **{"proxy-url": asked[0]})
        done = make_site(kubeconfig_path=path).dnm("run", code=1)
    assert f"Tunnel connection failed: {code}" in done.stderr, done.stderr
    assert user["token"] not in done.stderr
