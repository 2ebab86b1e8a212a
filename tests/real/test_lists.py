"""Tests of lists from a real API server: pages, expired tokens, gzip, refusals, and hangs."""

from __future__ import annotations

import base64
import json
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.real.account import KUBECONFIG
from tests.real.conftest import MakeSite
from tests.real.http_api import Api, Json
from tests.real.namespaces import OWN_ADDRESS
from tests.real.programs import RigError
from tests.real.proxy import Proxy, Seen, proxied, write_kubeconfig
from tests.real.rig import ETCD, PORT, Rig
from tests.real.site import DEV, PODS, pod

MANY = 600  # two pages
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"


@pytest.fixture
def full_rig(rig: Rig) -> Rig:
    """Adds 600 pending pods of one application."""
    manifest = pod("p", DEV, "100", "1Gi", schedulingGates=[{"name": "example.org/later"}])

    def make(number: int) -> None:
        named = json.loads(json.dumps(manifest))
        named["metadata"]["name"] = f"p{number:04}"
        rig.api.post(PODS, named)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(MANY)))
    return rig


@pytest.fixture
def proxy(rig: Rig, tmp_path: Path) -> Iterator[Proxy]:
    with proxied(rig, KUBECONFIG, tmp_path) as made:
        yield made


def pod_pages(proxy: Proxy) -> list[Seen]:
    return [seen for seen in proxy.seen if seen.path.startswith("/api/v1/pods?")]


def compact_etcd() -> None:
    """Makes etcd discard all earlier revisions, so that continue tokens expire."""
    etcd = Api(ETCD)
    key = base64.b64encode(b"rig").decode()
    put = etcd.post("/v3/kv/put", {"key": key, "value": key})
    etcd.post("/v3/kv/compaction", {"revision": put["header"]["revision"], "physical": True})


def test_list_pages_over_changing_data_have_the_same_version(
    full_rig: Rig, make_site: MakeSite, proxy: Proxy
) -> None:
    site = make_site(kubeconfig_path=proxy.kubeconfig)

    def change(seen: Seen) -> None:
        if "continue=" in seen.path:
            number = len(pod_pages(proxy))
            full_rig.api.delete(f"/api/v1/namespaces/dev/pods/p{number:04}")
            named = pod(f"a{number}", DEV, "1", "1Gi", schedulingGates=[{"name": "x.org/y"}])
            full_rig.api.post(PODS, named)

    proxy.before = change
    site.dnm("run")
    assert [seen.code for seen in pod_pages(proxy)] == [200, 200]
    assert not [call for call in site.calls if "--set" in call]


def test_expired_continue_token_restarts_the_list(
    full_rig: Rig, make_site: MakeSite, proxy: Proxy
) -> None:
    """The API server restarts between two pages, and etcd has discarded the old revision."""
    site = make_site(kubeconfig_path=proxy.kubeconfig)
    done: list[Seen] = []

    def expire(seen: Seen) -> None:
        if "continue=" in seen.path and not done:
            done.append(seen)
            server = full_rig.servers["kube-apiserver"]
            server.stop(signal.SIGKILL)
            compact_etcd()
            server.start()

    proxy.before = expire
    answer = site.dnm("run")
    codes = [seen.code for seen in pod_pages(proxy)]
    assert 410 in codes and codes[-2:] == [200, 200], codes
    assert "410" not in answer.stderr


def test_gzip_is_requested_from_a_remote_server(
    full_rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    """dnm requests gzip unless the server is on loopback, and reads the same objects."""
    url = f"https://{OWN_ADDRESS}:{PORT}"
    far = make_site(
        "far", kubeconfig_path=write_kubeconfig(KUBECONFIG, tmp_path / "far.kubeconfig", url)
    )
    near = make_site("near")
    token = yaml.safe_load(KUBECONFIG.read_text())["users"][0]["user"]["token"]
    command = [
        "curl", "-sS", "--cacert", f"{full_rig.keys}/ca.crt",
        "-H", f"Authorization: Bearer {token}", "-H", "Accept-Encoding: gzip",
        "-o", "/dev/null", "-w", "%header{content-encoding}",
        f"{url}/api/v1/pods?limit=500",
    ]  # fmt: skip
    assert subprocess.run(command, capture_output=True, text=True).stdout == "gzip"
    assert far.json("status", "--live")["queues"] == near.json("status", "--live")["queues"]


def limit_dnm_to_one_seat(rig: Rig) -> None:
    """Gives dnm's account a priority level with the fewest possible seats and no queue."""
    level = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    rig.api.post(
        f"{FLOWS}/prioritylevelconfigurations",
        {"metadata": {"name": "rig"}, "spec": {"type": "Limited", "limited": level}},
    )
    account = {"namespace": "yunikorn", "name": "dynamic-node-manager"}
    everything = {
        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
        "clusterScope": True,
    }  # fmt: skip
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [everything],
    }
    spec = {
        "priorityLevelConfiguration": {"name": "rig"},
        "matchingPrecedence": 2,  # 1 is reserved for the schema `exempt`
        "rules": [rule],
    }
    rig.api.post(f"{FLOWS}/flowschemas", {"metadata": {"name": "rig"}, "spec": spec})


@contextmanager
def competing_clients(rig: Rig) -> Iterator[None]:
    """Runs eight more clients with dnm's account, which list all pods repeatedly."""
    token = yaml.safe_load(KUBECONFIG.read_text())["users"][0]["user"]["token"]
    other, stop = Api(rig.api.url, rig.keys), threading.Event()
    other.context = ssl.create_default_context(cafile=f"{rig.keys}/ca.crt")

    def ask() -> None:
        while not stop.is_set():
            other.answers("/api/v1/pods", Authorization=f"Bearer {token}")

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_refusal_by_priority_and_fairness_leads_to_no_decision(
    full_rig: Rig, make_site: MakeSite, proxy: Proxy
) -> None:
    """The server answers 429 with Retry-After. The run retries, then reports it and stops."""
    site = make_site(kubeconfig_path=proxy.kubeconfig, request_timeout_seconds=5)
    limit_dnm_to_one_seat(full_rig)
    with competing_clients(full_rig):

        def is_refused() -> bool:
            answer = site.dnm("run", code=None)
            assert answer.returncode == 1 or (answer.returncode, answer.stderr) == (0, "")
            return any(seen.code == 429 for seen in proxy.seen)

        full_rig.wait_for(is_refused, "flow control refuses dnm", 180)
    assert all("Retry-After" in seen.headers for seen in proxy.seen if seen.code == 429)
    assert not [call for call in site.calls if "--set" in call]
    full_rig.remove_guards()
    full_rig.wait_for(lambda: site.dnm("run", code=None).returncode == 0, "dnm goes on", 90)


def signed_token(rig: Rig, seconds: int) -> str:
    """Returns a token of dnm's account for so many seconds, signed with the cluster's key."""
    account = "/api/v1/namespaces/yunikorn/serviceaccounts/dynamic-node-manager"
    uid = rig.api.get(account)["metadata"]["uid"]
    now = int(time.time())
    issuer = "https://kubernetes.default.svc"
    claims = {
        "iss": issuer, "aud": [issuer], "iat": now - 600, "nbf": now - 600, "exp": now + seconds,
        "sub": "system:serviceaccount:yunikorn:dynamic-node-manager",
        "kubernetes.io": {
            "namespace": "yunikorn",
            "serviceaccount": {"name": "dynamic-node-manager", "uid": uid},
        },
    }  # fmt: skip

    def encoded(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    head = encoded(json.dumps({"alg": "RS256", "typ": "JWT"}).encode())
    text = f"{head}.{encoded(json.dumps(claims).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", f"{rig.keys}/sa.key"]
    signature = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
    return f"{text}.{encoded(signature)}"


def test_expired_credentials_are_a_401_error_with_a_remedy(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    document: Json = yaml.safe_load(KUBECONFIG.read_text())
    path = tmp_path / "short.kubeconfig"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    site = make_site(kubeconfig_path=path)
    began = time.monotonic()
    site.dnm("run")
    left = 5 + 4 * (time.monotonic() - began)  # seconds in which one more run completes, also here
    # The API server accepts a token for another minute after its expiry.
    document["users"][0]["user"]["token"] = signed_token(rig, int(left) - 60)
    path.write_text(json.dumps(document))
    site.dnm("run")

    refused: list[str] = []  # the refusals in the first run's output; the next ones repeat nothing

    def has_run_out() -> bool:
        answer = site.dnm("run", code=None)
        if answer.returncode == 1:
            refused.append(answer.stderr)
        return bool(refused)

    rig.wait_for(has_run_out, "the token has run out", 60 + left)
    for message in (refused[0], site.dnm("check", code=1).stdout):
        assert "401" in message and f"renew the credentials of the kubeconfig {path}" in message, (
            message
        )


def test_server_stopped_during_a_list_ends_the_run_in_time(
    full_rig: Rig, make_site: MakeSite, proxy: Proxy
) -> None:
    """The server gets SIGSTOP between two pages. The run ends in time and changes nothing."""
    full_rig.api.post(PODS, pod("big", DEV, "120", "8Gi"))
    site = make_site(kubeconfig_path=proxy.kubeconfig, request_timeout_seconds=6)
    server = full_rig.servers["kube-apiserver"]
    done: list[threading.Timer] = []

    def stop(seen: Seen) -> None:
        if "continue=" in seen.path and not done:
            server.send(signal.SIGSTOP)

    proxy.before = stop
    try:
        answer = site.dnm("run", code=1)
    finally:
        server.send(signal.SIGCONT)
    assert "no complete answer" in answer.stderr or "can't" in answer.stderr, answer.stderr
    assert not [call for call in site.calls if "--set" in call]
    proxy.before = lambda seen: None
    full_rig.wait_for(lambda: full_rig.api.answers("/readyz"), "the API server answers again")
    site.run_until(lambda: full_rig.running("dev") == 1, "the pod runs on a lent node")


def test_server_restarted_while_a_node_is_lent_loses_nothing(rig: Rig, make_site: MakeSite) -> None:
    site = make_site()
    rig.api.post(PODS, pod("big", DEV, "120", "8Gi"))
    site.dnm("run")
    server = rig.servers["kube-apiserver"]
    server.stop(signal.SIGKILL)
    answer = site.dnm("run", code=1)
    assert "that it is up" in answer.stderr, answer.stderr
    server.start()
    # After an outage YuniKorn's caches are slow to follow the API server again; new ones are not.
    rig.servers["yunikorn"].stop()
    rig.servers["yunikorn"].start()
    site.run_until(lambda: rig.running("dev") == 1, "the pod runs on a lent node")
    assert len(site.lent) == 1


def test_failed_start_of_the_rig_names_the_program_and_its_output(rig: Rig, tmp_path: Path) -> None:
    """Starts the real cluster with a flag that a server does not know."""
    rig.add("wrong", [*rig.etcd_command(), "--no-such-flag"], lambda: False)
    try:
        with pytest.raises(RigError, match=r"(?s)wrong ended with \d+. Its output:.*no-such-flag"):
            rig.servers["wrong"].start()
    finally:
        del rig.servers["wrong"]
