"""Tests that show why dnm does not use certain functions of the official Kubernetes client.

Each test gives the client's function and dnm's the same file, plug-in or server. It shows that the
client fails where dnm does not. If a test fails with a later client, that client does it right:
delete dnm's function and the test."""

from __future__ import annotations

import gzip
import json
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client  # CoreV1Api is loaded where it is used: that takes a second
from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import ConfigException, load_config, load_kube_config
from kubernetes.leaderelection import electionconfig, leaderelection
from urllib3.exceptions import HTTPError

from dnm.kube.access import load_access
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeError
from dnm.model.value import Unreadable
from dnm.run.registry import attach_lease, file_state
from dnm.run.state import FileState
from tests.builders import a_config
from tests.kube.test_access import (
    FILES,
    KEY,
    PEM,
    REFUSED,
    a_kubeconfig,
    a_plugin,
    credential,
    encoded,
    oidc,
    plain_environment,
)
from tests.kube.test_session import NODE, a_client, authority, pem, server_side, trust_in
from tests.processes import wait_until
from tests.scripted_server import HANG_UP, Drip, ScriptedServer, an_access, answer, status_answer
from tests.site import QUEUE, Site, set_up_workshop

try:
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock as ClientsLock
except ImportError:  # before release 37 the client has no lock in a Lease
    from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock as ClientsLock

__all__ = ["authority", "plain_environment"]  # fixtures
pytestmark = pytest.mark.filterwarnings("ignore")  # of the client itself


def own_access(path: Path | str) -> Configuration:
    """Loads kubeconfigs with the client's own function, without changing the files."""
    configuration = Configuration()
    load_kube_config(str(path), client_configuration=configuration, persist_config=False)
    return configuration


def own_authorization(path: Path | str) -> str:
    setting = own_access(path).auth_settings().get("BearerToken")
    return setting["value"] if setting else ""


def own_api(server: str) -> client.CoreV1Api:
    configuration = Configuration()
    configuration.host = server
    return client.CoreV1Api(ApiClient(configuration))


def attached_state(site: Site) -> FileState:
    state = file_state(site.config)
    attach_lease(site.config, state, KubeClient.connect(site.config))
    return state


def authorization(path: Path, **changes: Any) -> str:
    """Returns the Authorization header that dnm makes of a kubeconfig. Raises KubeError."""
    access = load_access(a_config(kubeconfig_path=path, **changes))
    return access.authorization().get("authorization", "")


# --- kubeconfig ------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", ["kubeconfig", "token", "client.key"])
def test_client_accepts_world_writable_files(tmp_path: Path, thing: str) -> None:
    path = a_kubeconfig(tmp_path, user={"tokenFile": "token", **FILES})
    (tmp_path / thing).chmod(0o666)
    assert own_authorization(path) == "Bearer from-a-file"
    with pytest.raises(KubeError, match=f"{thing} can be written by every user"):
        authorization(path)


def test_client_reads_files_of_any_size(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, user={"tokenFile": "token"})
    (tmp_path / "token").write_text("x" * (5 << 20))
    assert len(own_authorization(path)) > 5 << 20
    with pytest.raises(KubeError, match="larger than"):
        authorization(path)


# With some of these the client connects as another account, without verification, or to another
# server. With the others it fails at the first request, with a message that names no file.
ALSO_REFUSED = {
    "missing file", "provider", "no such context", "no list", "contexts are numbers",
    "a name twice", "no context", "server http://[x", "an id-token that has ended",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - ALSO_REFUSED))
def test_client_accepts_settings_that_kubectl_refuses(tmp_path: Path, name: str) -> None:
    cluster, user, top, _ = REFUSED[name]
    path = a_kubeconfig(tmp_path, cluster, user, **top)
    assert own_access(path)
    with pytest.raises(KubeError, match=f"can't use the kubeconfig {path}"):
        authorization(path)


def test_client_reads_the_text_false_as_true(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, {"insecure-skip-tls-verify": "false"})
    assert own_access(path).verify_ssl is False
    with pytest.raises(KubeError, match="Expected `bool"):
        authorization(path)


def test_client_uses_the_first_of_two_entries_with_the_same_name(tmp_path: Path) -> None:
    """kubectl and dnm refuse such a file."""
    users = [{"name": "u", "user": {"token": token}} for token in ("one", "two")]
    path = a_kubeconfig(tmp_path, users=users)
    assert own_authorization(path) == "Bearer one"
    with pytest.raises(KubeError, match="two entries 'u'"):
        authorization(path)


def test_client_uses_the_last_of_several_current_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubectl and dnm use the first one."""
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        server = {"name": "c", "cluster": {"server": f"https://{name}"}}
        context = {"name": name, "context": {"cluster": name, "user": "u"}}
        paths.append(a_kubeconfig(
            tmp_path / name, {}, {}, {}, clusters=[{**server, "name": name}], contexts=[context],
            **{"current-context": name},
        ))  # fmt: skip
    joined = os.pathsep.join(map(str, paths))
    assert own_access(joined).host == "https://two"
    monkeypatch.setenv("KUBECONFIG", joined)
    assert load_access(a_config()).server == "https://one"


def test_client_refuses_an_empty_file_among_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kubectl and dnm ignore it."""
    (tmp_path / "empty").write_text("# nothing yet\n")
    joined = f"{tmp_path / 'empty'}:{a_kubeconfig(tmp_path)}"
    with pytest.raises(Exception, match="is empty"):
        own_access(joined)
    monkeypatch.setenv("KUBECONFIG", joined)
    assert load_access(a_config()).server == "https://api.example.org:6443"


def test_client_prefers_a_token_to_the_token_file(tmp_path: Path) -> None:
    """kubectl and dnm prefer the file, because another program renews the token in it."""
    path = a_kubeconfig(tmp_path, user={"token": "old", "tokenFile": "token"})
    assert own_authorization(path) == "Bearer old"
    assert authorization(path) == "Bearer from-a-file"


def test_client_reads_a_token_file_once(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, user={"tokenFile": "token"})
    own, own_instance = own_access(path), load_access(a_config(kubeconfig_path=path))
    (tmp_path / "token").write_text("renewed")
    assert own.auth_settings()["BearerToken"]["value"] == "Bearer from-a-file"
    assert own_instance.authorization() == {"authorization": "Bearer renewed"}


def test_client_writes_keys_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client writes private keys to temporary files, which stay if the run is killed."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    key = f"{KEY}{tmp_path}"  # the client caches its files
    user = {"client-certificate-data": encoded(PEM), "client-key-data": encoded(key)}
    path = a_kubeconfig(tmp_path, user=user)
    own = load_access(a_config(kubeconfig_path=path))
    assert Path(own.configuration.key_file).read_text() == key
    assert not list((tmp_path / "temporary").iterdir())
    own_access(path)
    written = [file.read_text() for file in (tmp_path / "temporary").iterdir()]
    assert key in written


def test_client_prints_when_it_chooses_the_service_account(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The client prints a line, for which cron would send a mail after each run."""
    with pytest.raises(ConfigException, match="Service host/port is not set"):
        load_config(client_configuration=Configuration())
    assert capsys.readouterr().out
    with pytest.raises(KubeError, match="dnm found no kubeconfig: set kubeconfig_path"):
        load_access(a_config())
    assert not capsys.readouterr().out


# --- plug-ins --------------------------------------------------------------------------------


PADDED = f"json.dumps({{**json.loads({credential('abc')!r}), 'x': 'x' * (2 << 20)}})"
PLUGINS = {  # behaviour of the plug-in, the client's reading, dnm's message
    "fails": ("raise SystemExit('no ticket')", "", "exit code 1: no ticket"),
    "prints text": ("print('hello')", "", "did not print an ExecCredential"),
    "prints 2 MiB": (
        f"import json; print({PADDED})", "Bearer abc", "printed more than 1048576 bytes",
    ),
    "of another kind": (
        f"print({credential('abc').replace('ExecCredential', 'Pod')!r})", "Bearer abc",
        "Invalid enum value 'Pod'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLUGINS)
def test_client_continues_after_a_failed_plugin(tmp_path: Path, name: str) -> None:
    """The client sends a request without credentials. Its error then does not name the plug-in."""
    script, expected, why = PLUGINS[name]
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    assert own_authorization(path) == expected
    with pytest.raises(KubeError, match=f"its plug-in {tmp_path}/plugin .*{why}"):
        authorization(path)


def test_client_runs_a_world_writable_plugin(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, f"print({credential('x')!r})")})
    (tmp_path / "plugin").chmod(0o777)
    assert own_authorization(path) == "Bearer x"
    with pytest.raises(KubeError, match="plugin can be written by every user"):
        authorization(path)


def test_client_waits_for_a_plugin_without_a_limit(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        f"import os, signal\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\nsignal.pause()"
    )
    path = a_kubeconfig(tmp_path, user={"exec": a_plugin(tmp_path, script)})
    own = threading.Thread(target=own_access, args=[path], daemon=True)
    own.start()
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    with pytest.raises(KubeError, match="took longer than a request may"):
        authorization(path, request_timeout=timedelta(seconds=1))
    assert own.is_alive()
    os.kill(int(pids.read_text().split()[0]), signal.SIGTERM)
    own.join()


def test_client_passes_a_path_instead_of_certificates_to_a_plugin(tmp_path: Path) -> None:
    """client-go gives a plug-in the certificates as data, and `config`; the client does not."""
    seen = tmp_path / "seen"
    script = (
        f"import os\nopen({str(seen)!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print({credential('x')!r})"
    )
    plugin = {**a_plugin(tmp_path, script), "provideClusterInfo": True}
    path = a_kubeconfig(tmp_path, {"certificate-authority": "ca.pem"}, {"exec": plugin})

    def cluster() -> Mapping[str, Any]:
        results: Mapping[str, Any] = json.loads(seen.read_text())["spec"]["cluster"]
        return results

    own_access(path)
    assert "certificate-authority-data" not in cluster()
    authorization(path)
    assert "certificate-authority-data" in cluster()


def test_client_sends_the_refresh_token_to_an_unverified_server(
    tmp_path: Path, authority: Path
) -> None:
    """The client does not verify the issuer's certificate if the kubeconfig names no authority for
    it. dnm never renews a token itself, but names kubectl or a plug-in."""
    with ScriptedServer([answer({})], tls=server_side(authority)) as issuer:
        user = oidc(-1)
        settings = user["auth-provider"]["config"]
        settings |= {"idp-issuer-url": issuer.url, "refresh-token": "r", "client-secret": "s"}
        path = a_kubeconfig(tmp_path, user=user)
        with pytest.raises(KubeError, match="has ended"):
            authorization(path)
        assert issuer.paths == []
        with pytest.raises(KeyError, match="token_endpoint"):
            own_access(path)
        assert issuer.paths == ["GET /.well-known/openid-configuration"]


# --- proxies ---------------------------------------------------------------------------------


def test_client_uses_a_proxy_for_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    path = a_kubeconfig(tmp_path, {"server": "https://localhost:6443"})
    assert own_access(path).proxy == "http://127.0.0.1:9"
    assert load_access(a_config(kubeconfig_path=path)).configuration.proxy is None


def test_client_sends_no_password_to_a_proxy() -> None:
    server = "http://api.example.org:6443"
    with ScriptedServer([answer(NODE)] * 2) as proxy:
        url = f"http://me:secret@127.0.0.1:{proxy.port}"
        own = own_api(server).api_client.configuration
        own.proxy = url
        client.CoreV1Api(ApiClient(own)).read_node("k1")
        a_client(server, 300.0, **{"proxy-url": url}).read_node("k1")
        assert ["proxy-authorization" in asked.headers for asked in proxy.asked] == [False, True]


# --- requests --------------------------------------------------------------------------------


@contextmanager
def serving(*answers: bytes | Drip, **options: Any) -> Iterator[ScriptedServer]:
    with ScriptedServer(list(answers), **options) as server:
        yield server


def test_client_repeats_a_write_that_may_have_taken_effect() -> None:
    body = {"metadata": {"name": "m", "namespace": "dev", "resourceVersion": "1"}}
    with serving(HANG_UP, HANG_UP, HANG_UP, HANG_UP) as server:
        with pytest.raises(HTTPError):
            own_api(server.url).replace_namespaced_config_map("m", "dev", body)
        assert server.paths == ["PUT /api/v1/namespaces/dev/configmaps/m"] * 4
    read = answer({"kind": "ConfigMap", **body})
    with serving(read, HANG_UP, HANG_UP) as server:
        with pytest.raises(KubeError, match="it is not known whether"):
            a_client(server.url).write_config_map(
                ConfigMap(namespace="dev", name="m", resource_version="1")
            )
        assert [path.split()[0] for path in server.paths] == ["GET", "PUT"]


def test_client_waits_as_long_as_retry_after_requests() -> None:
    """The client waits even longer than the time-out of the request."""
    later = status_answer(429, "TooManyRequests", "slow down", ["Retry-After: 2"])
    with serving(later, answer(NODE)) as server:
        assert own_api(server.url).read_node("k1", _request_timeout=1) is not None
    with serving(later, answer(NODE)) as server, pytest.raises(KubeError, match="slow down"):
        a_client(server.url, seconds=1).read_node("k1")


def test_client_has_no_time_limit_for_a_complete_answer() -> None:
    """The client's time-out is for each read, so a server that sends single bytes blocks a run."""
    drips = Drip(answer(NODE)[:-20], answer(NODE)[-20:], 0.05)
    with serving(drips) as server:
        assert own_api(server.url).read_node("k1", _request_timeout=0.3) is not None
    with serving(drips) as server, pytest.raises(KubeError, match="no complete answer in its time"):
        a_client(server.url, seconds=0.3).read_node("k1")


def test_client_has_no_size_limit_for_an_answer() -> None:
    large = answer(gzip.compress(json.dumps(NODE).encode() + b" " * (70 << 20), 1),
                   headers=["Content-Encoding: gzip"])  # fmt: skip
    with serving(large) as server:
        assert own_api(server.url).read_node("k1") is not None
    with serving(large) as server, pytest.raises(KubeError, match="larger than 67108864 bytes"):
        a_client(server.url).read_node("k1")


def test_client_follows_a_redirect() -> None:
    """The client sends the redirected request to a server that is not in the kubeconfig."""
    with serving(answer(NODE)) as elsewhere:
        moved = answer(b"", "307 Temporary Redirect", [f"Location: {elsewhere.url}/x"])
        with serving(moved, moved) as server:
            with pytest.raises(KubeError, match="307"):
                a_client(server.url).read_node("k1")
            assert elsewhere.paths == []
            assert own_api(server.url).read_node("k1") is not None
            assert elsewhere.paths == ["GET /x"]


def test_client_prints_raw_server_text_in_its_error() -> None:
    refusal = answer(b"<p>\x1b[31m" + b"x" * 9_999, "403 No")
    with serving(refusal) as server, pytest.raises(ApiException) as own:
        own_api(server.url).read_node("k1")
    assert "\x1b" in str(own.value) and len(str(own.value)) > 9_999
    with serving(refusal) as server, pytest.raises(KubeError) as own_instance:
        a_client(server.url).read_node("k1")
    assert str(own_instance.value).isprintable() and len(str(own_instance.value)) < 1_000


def test_client_accepts_a_document_without_kind_as_an_empty_list() -> None:
    """A proxy may send such JSON. If the list of pods seems empty, a node with pods looks idle."""
    page = answer({"items": []})
    with serving(page) as server:
        assert own_api(server.url).list_node().items == []
    with serving(page) as server:
        assert isinstance(a_client(server.url).read_nodes(), Unreadable)


def test_client_verifies_certificates_unlike_kubectl(authority: Path) -> None:
    """kubectl trusts each certificate in certificate-authority, also one that is no authority."""
    tls = server_side(authority, "issued")
    with serving(answer(NODE), tls=tls) as server:
        access = an_access(server.url, **trust_in(pem(authority, "issued")))
        access.configuration.retries = False
        with pytest.raises((HTTPError, ApiException, AttributeError)):  # the last in release 36
            client.CoreV1Api(ApiClient(access.configuration)).read_node("k1")
        assert server.asked == []
        assert KubeClient(access, a_config()).read_node("k1") is not None


# --- Leases ----------------------------------------------------------------------------------


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site on which a run has acted, so that its Lease has one transition."""
    set_up_workshop(sandbox, 1)
    site = Site(sandbox, tmp_path / "site")
    site.sandbox.add_pods(2, "dev", queue=QUEUE, cpu="100", memory="200G")
    site.run_until_rest(timedelta(minutes=1))
    return site


def elect(site: Site) -> None:
    """Acquires the Lease with the client's leader election, as each run would have to."""
    lock = ClientsLock("dnm-prod", "yunikorn", "a host")
    lock.api_instance = type(lock.api_instance)(ApiClient(own_access(site.sandbox.kubeconfig)))
    settings = electionconfig.Config(lock, 17, 15, 5, lambda: None, None)
    assert leaderelection.LeaderElection(settings).acquire()


def test_client_writes_its_leader_lock_in_an_idle_run(site: Site) -> None:
    log = site.sandbox.requests
    log.clear()
    assert site.run().exit_code == 0
    assert log.writes() == []
    assert len([pair for pair in log.all() if pair.resource == "leases"]) == 1
    elect(site)
    assert len(log.writes()) == 1


def transitions(site: Site) -> int:
    lease = site.sandbox.get("leases", "dnm-prod", "dnm")
    assert lease is not None
    number: int = lease["spec"]["leaseTransitions"]
    return number


def test_client_does_not_count_transitions_of_its_leader_lock(site: Site) -> None:
    """dnm counts a transition for each run, to refuse late writes of a run that was suspended."""
    before = transitions(site)
    elect(site)
    assert transitions(site) == before
    state = attached_state(site)
    state.take()
    assert transitions(site) == before + 1
