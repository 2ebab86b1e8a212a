"""Tests of the client of YuniKorn's REST API, with a scripted server and with the sandbox."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Callable
from datetime import timedelta

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.queues.yunikorn.errors import YunikornError
from dnm.queues.yunikorn.rest import YunikornClient, checksum_of
from tests.queue_kit import TREE, A, change
from tests.scripted_server import HANG_UP, Drip, ScriptedServer, answer

QUEUES = {
    "queuename": "root",
    "maxResource": {"vcore": 1000},
    "allocatedResource": {"vcore": 10},
    "children": [
        {
            "queuename": "root.Science",
            "isManaged": True,
            "pendingResource": {"memory": 5},
            "children": None,
        },
        {"queuename": "root.science.dynamic"},
    ],
}
APPLICATIONS = [
    {
        "applicationID": "a",
        "queueName": "root.science.Dynamic",
        "requests": [{"allocationKey": "pod-1", "placeholder": True}],
        "allocations": [{"allocationKey": "pod-2", "nodeId": "n"}],
    },
    {"applicationID": "b", "queueName": "root.science", "requests": None},
]


def test_yunikorn_view_contains_queues_and_applications() -> None:
    with ScriptedServer([answer(QUEUES), answer(APPLICATIONS)], closes=True) as server:
        view = YunikornClient(server.url + "/").read_view()
    assert view.max["root"] == {"cpu": 1000} and view.allocated["root"] == {"cpu": 10}
    assert view.pending["root.science"] == {"memory": 5}
    assert view.allocated["root.science.dynamic"] == {}
    assert view.queue_of_pod == {"pod-1": "root.science.dynamic", "pod-2": "root.science.dynamic"}
    assert server.paths == [
        "GET /ws/v1/partition/default/queues",
        "GET /ws/v1/partition/default/applications/active",
        "GET /ws/v1/clusters",
    ]


def test_pods_held_back_by_user_limits_are_recognized() -> None:
    """YuniKorn lists each message about a pod once, with its last time. The latest one decides."""
    quota = {"message": "Not enough queue quota", "lastOccurrence": 7, "count": 1}
    user = {"message": "Not enough user quota", "lastOccurrence": 8, "count": 40}
    asks = [
        {"allocationKey": "user", "allocationLog": [user, quota]},
        {"allocationKey": "queue", "allocationLog": [user, {**quota, "lastOccurrence": 9}]},
        {"allocationKey": "new"},
    ]
    output = answer([{"queueName": "root.science", "requests": asks}])
    with ScriptedServer([answer(QUEUES), output], closes=True) as server:
        view = YunikornClient(server.url).read_view()
    assert view.user_limited == {"user"} and set(view.queue_of_pod) == {"user", "queue", "new"}


def test_pods_of_unstarted_applications_are_recognized() -> None:
    """Applications do not start if their queue or an ancestor runs as many as it may."""
    queues = {
        "queuename": "root",
        "children": [
            {
                "queuename": "root.Science",
                "maxRunningApps": 1,
                "runningApps": 1,
                "children": [{"queuename": "root.science.dynamic"}],
            },
            {"queuename": "root.other", "maxRunningApps": 2, "runningApps": 1},
        ],
    }
    rows = [
        {"queueName": queue, "applicationState": state, "requests": [{"allocationKey": key}]}
        for key, queue, state in (
            ("waits", "root.science.dynamic", "Accepted"),
            ("runs", "root.science.dynamic", "Running"),
            ("may start", "root.other", "Accepted"),
        )
    ]
    with ScriptedServer([answer(queues), answer(rows)], closes=True) as server:
        assert YunikornClient(server.url).read_view().not_started == {"waits"}


def test_missing_applications_give_an_empty_view() -> None:
    with ScriptedServer([answer({"queuename": "root"}), answer(b"null")], closes=True) as server:
        assert YunikornClient(server.url).read_view().queue_of_pod == {}


VERDICTS = [
    pytest.param({"allowed": True}, None, id="allowed"),
    pytest.param({"allowed": False, "reason": "no"}, "no", id="refused"),
    pytest.param({"allowed": False}, "it gives no reason", id="refused without a reason"),
    pytest.param({"allowed": True, "reason": "", "checksum": "X"}, None, id="a newer scheduler"),
]


@pytest.mark.parametrize(("verdict", "reason"), VERDICTS)
def test_validation_returns_the_reason_of_yunikorn(
    verdict: dict[str, object], reason: str | None
) -> None:
    with ScriptedServer([answer(verdict)], closes=True) as server:
        assert YunikornClient(server.url).validate(TREE) == reason
    assert server.asked[0].body.decode() == TREE
    assert server.paths == ["POST /ws/v1/validate-conf"]


BROKEN = {
    "404": (answer({"message": "gone"}, "404 Not Found"), "needs YuniKorn 1.5"),
    "500": (answer(b"boom\x00", "500 Error"), "answers 500: boom"),
    "no JSON": (answer(b"<html>"), "cannot decode the answer"),
    "another shape": (answer([1]), "cannot decode the answer"),
    "no HTTP": (b"nonsense\r\n\r\n", "does not answer"),
    "hangs up": (HANG_UP, "does not answer"),
    "an empty object": (answer({}), "cannot decode the answer"),
    "too slow": (Drip(b"", b"HTTP/1.1 200", 5), "does not answer"),
    "a body that trickles": (
        Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"{" * 1000, 0.05),
        "does not answer"),
    "continue for ever": (
        Drip(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0.002),
        "does not answer"),
    "a length beyond all bounds": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{",
        "larger than"),
}  # fmt: skip


@pytest.mark.parametrize(("answered", "reason"), BROKEN.values(), ids=BROKEN)
def test_each_yunikorn_failure_is_a_sentence(answered: bytes | Drip, reason: str) -> None:
    with ScriptedServer([answered], closes=True) as server:
        seconds = 0.3 if isinstance(answered, Drip) else 300  # only dripping data ends by its time
        client = YunikornClient(server.url, timeout=timedelta(seconds=seconds))
        with pytest.raises(YunikornError, match=reason) as caught:
            client.read_checksum()
    assert server.url in str(caught.value)


@pytest.mark.parametrize(
    ("read", "most"),
    [(YunikornClient.read_checksum, 1 << 24), (YunikornClient.read_view, 1 << 24)],
)
def test_endless_yunikorn_answer_uses_bounded_memory(
    read: Callable[[YunikornClient], object], most: int
) -> None:
    """Once, dnm used 842 MB: its bound was 256 MiB, and the buffer was copied as it grew."""
    body = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1 << 25)
    with ScriptedServer([body], closes=True) as server:
        client = YunikornClient(server.url, timeout=timedelta(seconds=300))
        tracemalloc.start()
        try:
            with pytest.raises(YunikornError, match=f"larger than {most} bytes"):
                read(client)
            assert tracemalloc.get_traced_memory()[1] < 1.75 * most
            assert tracemalloc.get_traced_memory()[0] < most / 8  # no error keeps the body
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("url", ["", "yunikorn:9080", "ftp://x", "http://"])
def test_malformed_yunikorn_url_is_refused(url: str) -> None:
    with pytest.raises(YunikornError, match="is not an http"):
        YunikornClient(url)


def test_unreachable_yunikorn_names_the_key_to_check() -> None:
    with ScriptedServer([]) as server:
        url = server.url
    with pytest.raises(YunikornError, match="Check yunikorn_url, or leave it empty"):
        YunikornClient(url, timeout=timedelta(seconds=300)).read_view()


def test_checksum_is_computed_like_in_yunikorn() -> None:
    assert checksum_of("") == hashlib.sha256(b"").hexdigest().upper()
    assert checksum_of("é\r\n") == hashlib.sha256("é\r\n".encode()).hexdigest().upper()
    # GetConfigurationString removes the first `checksum: ` that at most 64 characters follow.
    with_line = f"{TREE}checksum: {'A' * 64}\n"
    assert checksum_of(with_line) == checksum_of(f"{TREE}\n")
    assert checksum_of(f"a: 1\nchecksum: {'B' * 70}\n") == checksum_of("a: 1\nBBBBBB\n")
    assert checksum_of("checksum: \n") == checksum_of("\n")


def test_sandbox_yunikorn_gives_the_same_answers(sandbox: Sandbox) -> None:
    text = f"{TREE}        submitacl: '*'\n"
    sandbox.set_queues(text)
    sandbox.add_node("k1", cpu="128", memory="256G")
    sandbox.add_namespace("dev")
    (pod,) = sandbox.add_pods(1, "dev", queue=A, cpu="4", memory="1G")
    sandbox.tick()
    client = YunikornClient(sandbox.url)
    view = client.read_view()
    uid = (sandbox.get("pods", pod, "dev") or {})["metadata"]["uid"]
    assert view.queue_of_pod[uid] == A
    assert view.allocated[A]["cpu"] == 4000
    assert view.max[A] == {"cpu": 80_000, "memory": 320 * 10**9}
    assert client.validate(text) is None
    reason = client.validate(change(text, "vcore: 80", "vcore: 80x"))  # unreadable
    assert reason == "invalid quantity"
    assert client.read_checksum() == checksum_of(text)
    assert json.dumps(view.max["root"])


def _built(release: str) -> list[object]:
    return [{"rmBuildInformation": [{"buildVersion": release}]}]


@pytest.mark.parametrize(
    ("metrics", "release"),
    [
        pytest.param(answer(_built("1.8.0")), (1, 8), id="1.8"),
        pytest.param(answer(_built("v1.9.0-rc1")), (1, 9), id="v1.9"),
        pytest.param(answer(_built("1.10.2")), (1, 10), id="1.10"),
        pytest.param(answer([]), None, id="no cluster"),
        pytest.param(answer([{}]), None, id="no build"),
        pytest.param(answer(_built("latest")), None, id="no number"),
        pytest.param(answer({}, "404 Not Found"), None, id="no such question"),
    ],
)
def test_release_of_yunikorn_is_read(metrics: bytes, release: tuple[int, int] | None) -> None:
    facts = [answer({"queuename": "root"}), answer([])]
    with ScriptedServer([*facts, metrics], closes=True) as server:
        assert YunikornClient(server.url).read_view().release == release
