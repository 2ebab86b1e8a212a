"""The sandbox's Kubernetes API, queried by the official client over HTTP."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.cluster import Sandbox

CONFIG = {"namespace": "yunikorn", "name": "site"}


class Clients:
    """The official client's API groups, for one sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        api = config.new_client_from_config(config_file=str(sandbox.kubeconfig))
        self.api = api
        self.core = client.CoreV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.policy = client.PolicyV1Api(api)
        self.authorization = client.AuthorizationV1Api(api)


@pytest.fixture
def kube(sandbox: Sandbox) -> Clients:
    return Clients(sandbox)


def code_of(call: Callable[[], Any]) -> tuple[int, str]:
    """Makes an API call. Returns status code and message of its refusal, or (0, "")."""
    try:
        call()
    except ApiException as error:
        return error.status, json.loads(error.body)["message"]
    return 0, ""


def raw(sandbox: Sandbox, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Sends one HTTP request. Returns (status, headers, decoded body)."""
    connection = http.client.HTTPConnection(urlsplit(sandbox.url).netloc, timeout=300)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), json.loads(text) if text else None


@pytest.fixture
def site_map(sandbox: Sandbox) -> dict[str, Any]:
    return sandbox.create(manifests.config_map_manifest("site", "yunikorn", {"k": "1"}))


# --- writes ----------------------------------------------------------------------------------


STALE: dict[str, Callable[[Clients, str], Any]] = {
    "PUT": lambda kube, version: kube.core.replace_namespaced_config_map(
        **CONFIG,
        body={"metadata": {"name": "site", "resourceVersion": version}, "data": {"k": "2"}},
    ),
    "strategic PATCH": lambda kube, version: kube.core.patch_namespaced_config_map(
        **CONFIG, body={"metadata": {"resourceVersion": version}, "data": {"k": "2"}}
    ),
    "merge PATCH": lambda kube, version: kube.core.patch_namespaced_config_map(
        **CONFIG,
        body={"metadata": {"resourceVersion": version}, "data": {"k": "2"}},
        _content_type="application/merge-patch+json",
    ),
    "DELETE with a precondition": lambda kube, version: kube.core.delete_namespaced_config_map(
        **CONFIG, body={"preconditions": {"resourceVersion": version}}
    ),
}


@pytest.mark.parametrize("write", STALE.values(), ids=STALE.keys())
def test_outdated_write_is_refused_and_a_current_write_is_not(
    sandbox: Sandbox, kube: Clients, site_map: Any, write: Callable[[Clients, str], Any]
) -> None:
    read = site_map["metadata"]["resourceVersion"]
    sandbox.edit("configmaps", "site", lambda item: item["data"].update(other="x"), "yunikorn")
    code, message = code_of(lambda: write(kube, read))
    assert code == 409
    assert "the object has been modified" in message
    current = sandbox.get("configmaps", "site", "yunikorn")
    assert current is not None and current["data"] == {"k": "1", "other": "x"}
    write(kube, current["metadata"]["resourceVersion"])
    changed = sandbox.get("configmaps", "site", "yunikorn")
    assert changed is None or changed["data"]["k"] == "2"


def test_write_without_a_change_keeps_the_version(kube: Clients, site_map: Any) -> None:
    again = kube.core.patch_namespaced_config_map(**CONFIG, body={"data": {"k": "1"}})
    assert again.metadata.resource_version == site_map["metadata"]["resourceVersion"]


def test_dry_run_changes_nothing_in_the_sandbox(
    sandbox: Sandbox, kube: Clients, site_map: Any
) -> None:
    tried = kube.core.patch_namespaced_config_map(
        **CONFIG, body={"data": {"k": "2"}}, dry_run="All"
    )
    assert tried.data == {"k": "2"}
    assert sandbox.get("configmaps", "site", "yunikorn") == site_map


def test_status_is_written_only_through_its_subresource(sandbox: Sandbox, kube: Clients) -> None:
    sandbox.add_node("k1")
    body = {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "1"}}}
    kube.core.patch_node("k1", body)
    node = kube.core.read_node("k1")
    assert (node.spec.unschedulable, node.status.capacity["cpu"]) == (True, "128")
    marked = {"metadata": {"annotations": {"a": "1"}}}  # which a status update includes
    kube.core.patch_node_status("k1", {**body, **marked, "spec": {"unschedulable": False}})
    assert kube.core.read_node("k1").metadata.annotations == {"a": "1"}
    node = kube.core.read_node("k1")
    assert (node.spec.unschedulable, node.status.capacity["cpu"]) == (True, "1")


REFUSALS = [
    pytest.param("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}}, 404,
                 'namespaces "nowhere" not found', id="missing namespace"),
    pytest.param("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "A_b"}},
                 422, "RFC 1123", id="bad name"),
    pytest.param("POST", "/api/v1/namespaces/yunikorn/configmaps", {"metadata": {"name": "site"}},
                 409, "already exists", id="already there"),
    pytest.param("POST", "/api/v1/namespaces/default/configmaps",
                 {"kind": "Pod", "metadata": {"name": "a"}}, 400, "Pod", id="another kind"),
    pytest.param("POST", "/api/v1/namespaces/default/configmaps",
                 {"metadata": {"name": "a", "namespace": "dev"}}, 400, "namespace",
                 id="another namespace"),
    pytest.param("PATCH", "/api/v1/namespaces/yunikorn/configmaps/site",
                 {"metadata": {"annotations": {"a": "x" * 262_144}}}, 422, "262144",
                 id="annotations above their limit"),
    pytest.param("PUT", "/api/v1/namespaces/yunikorn/configmaps/site",
                 {"metadata": {"name": "site"}, "data": {"k": "x" * 1_048_577}}, 422, "Too long",
                 id="data above its limit"),
    pytest.param("GET", "/api/v1/namespaces/yunikorn/configmaps/other", None, 404, "not found",
                 id="not there"),
    pytest.param("GET", "/apis/batch/v1/cronjobs", None, 404, "could not find", id="not served"),
    pytest.param("GET", "/api/v1/pods?limit=x", None, 400, "invalid", id="bad limit"),
    pytest.param("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "a"}}, 422,
                 "containers", id="pod without containers"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "code", "words"), REFUSALS)
def test_invalid_api_request_is_refused_with_a_status(
    sandbox: Sandbox, site_map: Any, method: str, path: str, body: Any, code: int, words: str
) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answered, _, status = raw(sandbox, method, path, body, **{"Content-Type": kind})
    assert (answered, status["kind"], status["code"]) == (code, "Status", code)
    assert words in status["message"]


def test_immutable_config_map_is_unchanged(sandbox: Sandbox, kube: Clients, site_map: Any) -> None:
    kube.core.patch_namespaced_config_map(**CONFIG, body={"immutable": True})
    code, message = code_of(
        lambda: kube.core.patch_namespaced_config_map(**CONFIG, body={"data": {"k": "2"}})
    )
    assert code == 422 and "immutable" in message
    annotated = {"metadata": {"annotations": {"a": "b"}}}
    kube.core.patch_namespaced_config_map(**CONFIG, body=annotated)


# --- lists and watches -----------------------------------------------------------------------


def test_list_pages_show_the_same_version(sandbox: Sandbox, kube: Clients) -> None:
    names = sandbox.add_pods(25, "dev")
    first = kube.core.list_pod_for_all_namespaces(limit=10)
    sandbox.delete("pods", names[20], "dev")
    sandbox.add_pods(1, "dev", name="new")
    rows, token = [pod.metadata.name for pod in first.items], first.metadata._continue
    assert first.metadata.remaining_item_count == 15
    while token:
        page = kube.core.list_pod_for_all_namespaces(limit=10, _continue=token)
        rows += [pod.metadata.name for pod in page.items]
        token = page.metadata._continue
    assert sorted(rows) == sorted(names)
    assert len(sandbox.requests.lists("pods")) == 1


def test_unknown_page_token_is_expired(sandbox: Sandbox) -> None:
    code, _, status = raw(sandbox, "GET", "/api/v1/pods?limit=1&continue=snapshot9.1")
    assert (code, status["reason"]) == (410, "Expired") and "too old" in status["message"]
    assert raw(sandbox, "GET", "/api/v1/pods?limit=1&continue=odd")[0] == 400


def test_long_list_is_chunked_and_compressed_on_request(sandbox: Sandbox) -> None:
    def read(**headers: str) -> tuple[dict[str, str], bytes]:
        connection = http.client.HTTPConnection(urlsplit(sandbox.url).netloc, timeout=300)
        connection.request("GET", "/api/v1/pods", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return dict(answer.getheaders()), body

    names, body = read()
    assert names["Content-Length"] == str(len(body))
    sandbox.add_pods(5, "dev")
    names, body = read(**{"Accept-Encoding": "gzip"})
    assert names["Transfer-Encoding"] == "chunked" and "Content-Length" not in names
    assert "Content-Encoding" not in names and len(json.loads(body)["items"]) == 5
    sandbox.add_pods(400, "dev")
    plain, packed = read()[1], read(**{"Accept-Encoding": "gzip"})
    assert packed[0]["Content-Encoding"] == "gzip" and gzip.decompress(packed[1]) == plain


def test_watch_reports_every_change(live_sandbox: Sandbox) -> None:
    kube = Clients(live_sandbox)
    live_sandbox.add_pods(1, "dev")
    seen = []

    def change() -> None:
        live_sandbox.edit("pods", "pod-0", lambda p: p["metadata"].update(labels={"a": "b"}), "dev")
        live_sandbox.delete("pods", "pod-0", "dev")

    for event in watch.Watch().stream(kube.core.list_namespaced_pod, "dev", timeout_seconds=300):
        seen.append(event["type"])
        if len(seen) == 1:
            change()
        if event["type"] == "DELETED":
            break
    assert seen[0] == "ADDED" and seen[-1] == "DELETED" and "MODIFIED" in seen


# --- deleting --------------------------------------------------------------------------------


def test_bound_pod_ends_gracefully_and_other_pods_at_once(sandbox: Sandbox, kube: Clients) -> None:
    sandbox.add_node("k1")
    sandbox.timing.pod_stop = 5
    sandbox.add_pods(2, "dev", cpu="128")
    sandbox.tick()
    assert kube.core.delete_namespaced_pod("pod-0", "dev").metadata.deletion_timestamp
    kube.core.delete_namespaced_pod("pod-1", "dev")
    sandbox.tick(4)
    assert [pod["metadata"]["name"] for pod in sandbox.objects("pods")] == ["pod-0"]
    sandbox.tick(1)
    assert sandbox.objects("pods") == []


@pytest.mark.parametrize(("least", "allowed"), [(3, 0), (2, 1)])
def test_evictions_respect_disruption_budgets(
    sandbox: Sandbox, kube: Clients, least: int, allowed: int
) -> None:
    sandbox.add_node("k1")
    sandbox.add_pods(3, "dev", labels={"app": "a"})
    sandbox.tick()
    spec = {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": least}
    kube.policy.create_namespaced_pod_disruption_budget(
        "dev", {"metadata": {"name": "b"}, "spec": spec}
    )
    codes = []
    for number in range(2):
        name = f"pod-{number}"
        body = {"metadata": {"name": name, "namespace": "dev"}}
        codes.append(code_of(
            partial(kube.core.create_namespaced_pod_eviction, name, "dev", body)
        )[0])  # fmt: skip
    assert codes == [0] * allowed + [429] * (2 - allowed)


def evict(kube: Clients, name: str, **conditions: str) -> int:
    body = {"metadata": {"name": name, "namespace": "dev"},
            "deleteOptions": {"preconditions": conditions}}  # fmt: skip
    return code_of(lambda: kube.core.create_namespaced_pod_eviction(name, "dev", body))[0]


def test_eviction_requires_the_uid_of_the_pod(sandbox: Sandbox, kube: Clients) -> None:
    sandbox.add_node("k1")
    sandbox.add_pods(1, "dev")
    sandbox.tick()
    pod = sandbox.get("pods", "pod-0", "dev")
    assert pod is not None
    assert evict(kube, "pod-0", uid="another") == 409
    assert evict(kube, "pod-0", uid=pod["metadata"]["uid"]) == 0


# --- access ----------------------------------------------------------------------------------


NODE: dict[str, Any] = {"metadata": {"name": "k9"}}
MALFORMED = [
    pytest.param("nodes", {**NODE, "status": {"capacity": {"cpu": "4"}}}, 201, id="few fields"),
    pytest.param("nodes", NODE, 201, id="a node without anything"),
    pytest.param(
        "nodes", {**NODE, "status": {"allocatable": {"cpu": "4 cores"}}}, 400, id="amount"
    ),
    pytest.param("nodes", {**NODE, "status": {"capacity": {"cpu": True}}}, 400, id="no number"),
    pytest.param("nodes", {**NODE, "status": {"capacity": {"cpu": [4]}}}, 400, id="a list"),
    pytest.param("nodes", {"metadata": []}, 400, id="metadata of another shape"),
    pytest.param("nodes", {"metadata": {"name": "k9", "labels": {"a": 1}}}, 400, id="label"),
    pytest.param("nodes", [1], 400, id="no object"),
]


@pytest.mark.parametrize(("plural", "body", "code"), MALFORMED)
def test_malformed_objects_do_not_stop_the_sandbox(
    sandbox: Sandbox, plural: str, body: Any, code: int
) -> None:
    assert raw(sandbox, "POST", f"/api/v1/{plural}", body)[0] == code
    sandbox.add_pods(1, "dev", annotations={manifests.RUN_SECONDS: "soon"})
    pod = manifests.pod_manifest("web", "dev", {"cpu": "-1"})
    sandbox.create(manifests.deployment_manifest("web", "dev", 2, pod))
    sandbox.tick()
    assert [pod["metadata"]["name"] for pod in sandbox.objects("pods")] == ["pod-0"]
