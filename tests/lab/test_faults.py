"""Tests of the faults that the sandbox's API can inject, as clients see them."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.cluster import Sandbox

PATH = "/api/v1/namespaces/yunikorn/configmaps/site"
PATCH = json.dumps({"data": {"k": "2"}})


@pytest.fixture
def site(sandbox: Sandbox) -> Sandbox:
    sandbox.create(manifests.config_map_manifest("site", "yunikorn", {"k": "1"}))
    return sandbox


def send(sandbox: Sandbox, method: str = "PATCH", path: str = PATH) -> tuple[int, Any, bytes]:
    """Sends a request. Returns (status, Retry-After, body); status 0 without a whole answer."""
    connection = http.client.HTTPConnection(urlsplit(sandbox.url).netloc, timeout=300)
    body = PATCH if method == "PATCH" else None
    try:
        connection.request(method, path, body, {"Content-Type": "application/merge-patch+json"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Retry-After"), answer.read()
    except (OSError, http.client.HTTPException):
        return 0, None, b""
    finally:
        connection.close()


def value(sandbox: Sandbox) -> str:
    results = sandbox.get("configmaps", "site", "yunikorn")
    return str(results and results["data"]["k"])


FAULTS = [
    pytest.param({"kind": "status", "code": 409}, 409, "1", id="409 without effect"),
    pytest.param({"kind": "status", "code": 500}, 500, "1", id="500 without effect"),
    pytest.param({"kind": "status", "code": 403}, 403, "1", id="403 without effect"),
    pytest.param({"kind": "cut"}, 0, "2", id="cut off in mid-answer, with effect"),
    pytest.param({"kind": "lost"}, 0, "2", id="lost answer, with effect"),
    pytest.param({"kind": "down"}, 0, "1", id="down, without effect"),
    pytest.param({"kind": "garbage"}, 200, "2", id="garbage, with effect"),
    pytest.param({"kind": "slow", "seconds": 0.05}, 200, "2", id="slow"),
    pytest.param({"kind": "trickle", "seconds": 0.0001}, 200, "2", id="byte by byte"),
]


@pytest.mark.parametrize(("fault", "status", "left"), FAULTS)
def test_injected_fault_occurs_once(
    site: Sandbox, fault: dict[str, Any], status: int, left: str
) -> None:
    site.fault(**fault, times=1)
    begun = time.monotonic()
    answered, _, body = send(site)
    assert (answered, value(site)) == (status, left)
    assert fault["kind"] != "slow" or time.monotonic() - begun >= 0.05
    assert fault["kind"] != "garbage" or body.startswith(b"<html>")
    assert send(site)[0] == 200


def test_empty_list_fault_removes_only_the_items(site: Sandbox) -> None:
    full = json.loads(send(site, "GET", "/api/v1/configmaps")[2])
    site.fault("empty", times=2)
    answered = json.loads(send(site, "GET", "/api/v1/configmaps")[2])
    assert full["items"] and answered == {**full, "items": []}
    assert json.loads(send(site, "GET", PATH)[2])["kind"] == "ConfigMap"  # not a list


def test_status_429_contains_its_retry_time(site: Sandbox) -> None:
    site.fault("status", code=429, retry_after=7)
    status, retry_after, body = send(site)
    assert (status, retry_after) == (429, "7")
    assert json.loads(body)["details"] == {"retryAfterSeconds": 7}


def test_flow_control_fault_increases_its_retry_time(site: Sandbox) -> None:
    site.fault("busy", times=6)
    answers = [send(site) for _ in range(7)]
    assert [retry for _, retry, _ in answers] == ["1", "2", "4", "8", "16", "16", None]
    assert answers[0] == (429, "1", b"Too many requests, please try again later.\n")
    assert answers[6][0] == 200


def test_injected_fault_matches_selected_requests_only(site: Sandbox) -> None:
    site.fault("status", path="/configmaps/", methods=("PATCH",), skip=1, times=2)
    codes = [send(site)[0], send(site, "GET")[0], send(site)[0], send(site)[0], send(site)[0]]
    assert codes == [200, 200, 500, 500, 200]
    assert send(site, "GET", "/api/v1/nodes")[0] == 200
