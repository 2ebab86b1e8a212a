"""Tests of the client of slurmrestd: its values equal those parsed from Slurm's commands of the
same moment, and each failure has a message. The answers were recorded from real servers
(tests/rest_samples.py)."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.converters.select import ListVerdict, SlurmFacts, judge_nodes
from dnm.converters.settings import Settings
from dnm.converters.slurm import rest_body as rest
from dnm.converters.slurm import text
from dnm.converters.slurm.commands import IN_ANOTHER, SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.rest import SlurmRestClient, read_token
from dnm.converters.slurm.rest_body import choose_version
from dnm.model.errors import SlurmError
from tests.scripted_server import HANG_UP, Drip, ScriptedServer, answer

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "slurm_rest").iterdir())
READ_ONLY = {"nodes/": ["get"], "reservations/": ["get"], "node/{node_name}": ["get"]}
ALL = {
    "nodes/": ["get"],
    "node/{node_name}": ["get", "post"],
    "reservation": ["post"],
    "reservations/": ["get", "post"],
    "reservation/{reservation_name}": ["get", "delete"],
    "job/{job_id}": ["get", "delete"],
}


def specification(paths: dict[str, list[str]], *versions: int, release: str = "24.11.5") -> bytes:
    """Returns an answer to /openapi/v3 that offers these API versions and paths."""
    return answer(
        {
            "info": {"version": f"Slurm-{release}&openapi/slurmctld"},
            "paths": {
                f"/slurm/v0.0.{version}/{path}": {method: {} for method in methods}
                for version in versions
                for path, methods in paths.items()
            },
        }
    )


def errors(status: str = "200 OK", **error: object) -> bytes:
    return answer({"errors": [error]}, status)


def reservations(*entries: dict[str, Any]) -> bytes:
    return answer({"errors": [], "reservations": list(entries)})


def reservation(name: str, nodes: str) -> dict[str, Any]:
    return {
        "name": name,
        "start_time": {"set": True, "infinite": False, "number": 100},
        "end_time": {"set": True, "infinite": False, "number": 200},
        "node_list": nodes,
        "users": "root",
        "flags": [],
    }


# --- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_rest_answers_agree_with_commands(sample: Path) -> None:
    def of(name: str) -> str:
        return (sample / name).read_text()

    nodes = rest.parse_nodes(of("nodes.json").encode())
    lines = of("nodes.txt").splitlines()  # of several times
    assert len(nodes) >= 25 and nodes == tuple(text.parse_nodes(line)[0] for line in lines)
    assert all(node.state.is_understood for node in nodes)
    jobs = rest.parse_jobs(of("jobs.json").encode())
    slurm_jobs = text.parse_jobs(of("jobs.txt"))
    if sample.name == "22.05":  # this version has no planned nodes
        slurm_jobs = tuple(msgspec.structs.replace(job, planned_nodes=()) for job in slurm_jobs)
    assert jobs == slurm_jobs and {"RUNNING", "PENDING", "SUSPENDED"} <= {job.state for job in jobs}
    records = [
        rest.parse_job_record(json.dumps({"jobs": [job]}).encode())
        for job in json.loads(of("jobs.json"))["jobs"]
    ]
    assert records == [text.parse_job_record(line) for line in of("records.txt").splitlines()]
    assert {True, False} == {record.is_requeueable for record in records}
    result = rest.parse_reservations(of("reservations.json").encode())
    assert len(result) == 4 and result == text.parse_reservations(of("reservations.txt"))
    facts = SlurmFacts(nodes=nodes, jobs=jobs, reservations=result, read_at=datetime.now(UTC))
    free = {node["name"] for node in json.loads(of("nodes.json"))["nodes"] if is_free(node)}
    judged = judge_nodes(facts, Settings(min_idle_seconds=timedelta(0)))
    assert {node.node.name for node in judged if node.verdict is ListVerdict.OK} == free


def is_free(node: dict[str, Any]) -> bool:
    """Returns whether Slurm has the node idle, without flags and without work."""
    words = [node["state"]] if isinstance(node["state"], str) else node["state"]
    words = [*words, *node.get("state_flags", ())]
    return [item.upper() for item in words] == ["IDLE"] and not (
        node["alloc_cpus"] or node["alloc_memory"]
    )


def change(document: str, sample: Path, **fields: object) -> bytes:
    """Returns a recorded answer with changed fields in its first entry; None removes a field."""
    answered = json.loads((sample / f"{document}.json").read_text())
    entry = answered[document][0]
    for name, value in fields.items():
        entry.pop(name) if value is None else entry.update({name: value})
    return json.dumps(answered).encode()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("document", "parse", "fields"),
    [
        ("nodes", rest.parse_nodes, {"state": ["DRAIN"]}),
        ("nodes", rest.parse_nodes, {"state": ["IDLE", "DOWN"]}),
        ("nodes", rest.parse_nodes, {"state": None}),
        ("nodes", rest.parse_nodes, {"alloc_cpus": None}),
        ("nodes", rest.parse_nodes, {"alloc_memory": "1"}),
        ("nodes", rest.parse_nodes, {"last_busy": None}),
        ("jobs", rest.parse_jobs, {"job_state": None}),
        ("jobs", rest.parse_jobs, {"job_state": []}),
        ("jobs", rest.parse_jobs, {"nodes": None}),
        ("jobs", rest.parse_jobs, {"nodes": "a[1-", "job_state": "RUNNING"}),
        ("jobs", rest.parse_jobs, {"node_count": {"set": False, "number": 0}, "job_state": []}),
        ("reservations", rest.parse_reservations, {"node_list": None}),
        ("reservations", rest.parse_reservations, {"node_list": "a]"}),
    ],
)
def test_unknown_shape_is_an_error(
    document: str, parse: Callable[[bytes], object], fields: dict[str, object], sample: Path
) -> None:
    with pytest.raises(SlurmError):
        parse(change(document, sample, **fields))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"errors": []}', b"\xff", b"[" * 100_000])
def test_missing_list_is_not_an_empty_list(body: bytes) -> None:
    for parse in (rest.parse_nodes, rest.parse_jobs, rest.parse_reservations):
        with pytest.raises(SlurmError, match="can't be read"):
            parse(body)


JOB = {
    "job_id": 1, "job_state": ["RUNNING"], "user_name": "fill", "account": "spare",
    "partition": "main", "node_count": 1, "priority": 100, "start_time": 1795318591,
    "resv_name": "", "nodes": "a001", "requeue": True, "batch_flag": True,
    "submit_time": 1795318590, "state_reason": "None",
}  # fmt: skip


def test_array_task_is_named_by_array_and_task() -> None:
    job = {**JOB, "array_job_id": 1, "array_task_id": {"set": True, "number": 4}}
    (slurm_job,) = rest.parse_jobs(json.dumps({"jobs": [job]}).encode())
    assert slurm_job.id == "1_4"


def test_many_jobs_that_require_many_nodes_are_read_fast() -> None:
    job = {**JOB, "job_state": ["PENDING"], "nodes": "", "required_nodes": "a[0001-5000]"}
    body = json.dumps({"jobs": [job] * 2_000}).encode()
    began = time.process_time()
    assert {job.node_count for job in rest.parse_jobs(body)} == {5_000}
    assert time.process_time() - began < 2


def test_answer_about_another_node_is_refused() -> None:
    with (
        ScriptedServer(
            [specification(ALL, 42), answer({"errors": [], "nodes": [OTHER]})]
        ) as server,
        pytest.raises(SlurmError),
    ):
        SlurmRestClient(server.url).read_node("a001")


def test_unreadable_answer_to_a_change_has_an_unknown_outcome() -> None:
    body = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"err'
    with (
        ScriptedServer([specification(ALL, 42), body]) as server,
        pytest.raises(SlurmOutcomeUnknown),
    ):
        SlurmRestClient(server.url).drain("a001", "why", {})


OTHER = {
    "name": "a002", "state": ["IDLE"], "alloc_cpus": 0, "alloc_memory": 0, "slurmd_start_time": 5,
    "last_busy": 5,
}  # fmt: skip


def test_unset_number_is_no_time() -> None:
    def end_of(number: object) -> datetime | None:
        entry = reservation("r", "a1") | {"end_time": number}
        body = json.dumps({"reservations": [entry]}).encode()
        return rest.parse_reservations(body)[0].end

    assert end_of(7) == end_of({"set": True, "number": 7}) == datetime.fromtimestamp(7, UTC)
    for none in (0, None, 2**32 - 2, {"set": False, "number": 7}, {"set": True, "number": 0},
                 {"set": True, "infinite": True, "number": 7}):  # fmt: skip
        assert end_of(none) is None, none
    for impossible in (-(10**15), -(2**63)):
        with pytest.raises(SlurmError, match="Slurm's time"):
            end_of(impossible)


# --- which version ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [((36, 37, 38), 38), ((40, 41, 42), 42), ((42, 43, 44, 45), 45), ((45, 46, 47), 45)],
)
def test_uses_the_newest_common_api_version(offered: tuple[int, ...], chosen: int) -> None:
    with ScriptedServer([specification(ALL, *offered), reservations()]) as server:
        assert SlurmRestClient(server.url).read_reservations() == ()
    assert [asked.path for asked in server.asked] == [
        "/openapi/v3", f"/slurm/v0.0.{chosen}/reservations",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("offered", "said"), [((35, 37), "v0.0.35, v0.0.37"), ((46,), "v0.0.46"), ((), "no version")]
)
def test_unsupported_api_version_is_refused(offered: tuple[int, ...], said: str) -> None:
    sentence = f"offers {said} of.*leave slurmrestd_url out"
    server = ScriptedServer([specification(ALL, *offered)])
    with server, pytest.raises(SlurmError, match=sentence):
        SlurmRestClient(server.url).read_nodes()


@pytest.mark.parametrize("release", ["25.05.3", "26.05.5", "next"])
def test_api_version_that_hides_external_nodes_is_refused(release: str) -> None:
    """On Slurm 26.05, v0.0.43 did not list nodes of state EXTERNAL, so dnm needs a later one."""
    (body,) = specification(ALL, 42, 43, release=release).split(b"\r\n\r\n")[1:]
    with pytest.raises(
        SlurmError, match=r"v0\.0\.43 of .*hide EXTERNAL nodes.* leave slurmrestd_url out"
    ):
        choose_version(body)
    (body,) = specification(ALL, 43, 44, release=release).split(b"\r\n\r\n")[1:]
    assert choose_version(body).version == "v0.0.44"


def test_unsupported_change_is_refused() -> None:
    with ScriptedServer([specification(READ_ONLY, 38)]) as server:
        client = SlurmRestClient(server.url)
        for call, subject in (
            (client.check_changes, "change nodes"),
            (lambda: client.drain("a1", "r", {}), "change nodes"),
            (lambda: client.create_reservation("k8s-a1", "a1"), "make reservations"),
            (lambda: client.delete_reservation("k8s-a1"), "delete reservations"),
            (lambda: client.remove_from_reservation("k8s", "a1"), "take a1 out of"),
            (
                lambda: client.create_reservation("k8s_turn", "a1", flags=IN_ANOTHER),
                "share reservations out",
            ),
            (
                lambda: client.create_reservation("b-a1", "a1", start=datetime.now(UTC)),
                "reserve nodes for events",
            ),
            (lambda: client.requeue_job("1"), "requeue job 1"),
        ):
            with pytest.raises(
                SlurmError, match=rf"\(API v0\.0\.38\) can't {subject}.* leave slurmrestd_url out"
            ):
                call()
    assert len(server.asked) == 1


# --- bad days -----------------------------------------------------------------------------------

AWAY = "Unable to contact slurm controller (connect failure)"
BAD_DAYS = [
    # messages of 22.05, 24.11 and 26.05 on the lab
    pytest.param(
        errors("500 INTERNAL ERROR", error="Unspecified error", errno=-1),
        SlurmError, "is down, or it rejects the user .*22.05 does not say which", id="22.05",
    ),
    pytest.param(
        errors("502 x", description="Failure to query nodes", error_number=1800, error=AWAY),
        SlurmError, "controller does not answer .*connect failure", id="no-slurmctld",
    ),
    pytest.param(
        errors("511 Network Authentication Required", description="Failure to query nodes",
               error_number=1007, error="Protocol authentication error"),
        SlurmError, "rejects .*Protocol authentication error", id="bad-token",
    ),
    pytest.param(
        errors(description="Failure to query node n99", error_number=0, error="No error"),
        SlurmRefused, "refuses GET node/a001: Failure to query node n99", id="24.11-unknown",
    ),
    pytest.param(
        errors("500 INTERNAL ERROR", error="Invalid node name specified", errno=2018),
        SlurmRefused, "Invalid node name specified", id="22.05-unknown",
    ),
    pytest.param(answer({"errors": [], "nodes": []}), SlurmRefused, "no node a001", id="empty"),
    pytest.param(answer({"errors": []}), SlurmError, "it has no `nodes`", id="no-key"),
    pytest.param(
        answer(b"Authentication failure", "401 UNAUTHORIZED"), SlurmError,
        "requires a token: set slurmrestd_token_file", id="401",
    ),
    pytest.param(answer(b"gone", "404 NOT FOUND"), SlurmError, r"answers 404 .*\(gone\)", id="404"),
    pytest.param(answer(b"<html>", "200 OK"), SlurmError, "check slurmrestd_url", id="html"),
    pytest.param(answer(b"", "304 Not Modified"), SlurmError, "answers 304", id="304"),
    pytest.param(HANG_UP, SlurmError, "does not answer", id="cut"),
    pytest.param(
        Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", b"x" * 50, 0.1),
        SlurmError, "does not answer .*(exceeded its time|timed out)", id="drip",
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        SlurmError, "larger than 268435456 bytes", id="too-large",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("said", "kind", "sentence"), BAD_DAYS)
def test_each_failure_has_its_message(said: Any, kind: type[SlurmError], sentence: str) -> None:
    with ScriptedServer([specification(ALL, 42), said], closes=True) as server:
        seconds = 0.5 if isinstance(said, Drip) else 10
        client = SlurmRestClient(server.url, None, timedelta(seconds=seconds))
        with pytest.raises(SlurmError, match=sentence) as caught:
            client.read_node("a001")
    assert type(caught.value) is kind and "\n" not in str(caught.value)


def test_unreachable_slurmrestd_is_named() -> None:
    for url in ("http://127.0.0.1:9", "unix:/nonexistent/rest.sock"):
        with pytest.raises(SlurmError, match=f"{url} does not answer .*slurmrestd_url"):
            SlurmRestClient(url).read_nodes()


def test_all_addresses_of_a_host_name_share_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name may have several unreachable addresses. Once, each address could use the whole
    time limit, or the first one used all of it."""
    addresses = [f"127.0.0.{number}" for number in range(1, 7)]
    asked: list[tuple[str, float]] = []

    def silent(place: tuple[str, int], seconds: float, **more: object) -> socket.socket:
        asked.append((place[0], seconds))
        raise TimeoutError("timed out")

    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *more, **options: rows)
    monkeypatch.setattr("dnm.http.reader.create_connection", silent)
    with pytest.raises(SlurmError, match="timed out"):
        SlurmRestClient("http://slurm.example.org", None, timedelta(seconds=600)).read_nodes()
    assert [name for name, _ in asked] == addresses
    assert all(seconds <= 600 / (6 - number) for number, (_, seconds) in enumerate(asked))


def test_unix_socket_is_supported(tmp_path: Path) -> None:
    path = tmp_path / "rest.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for message in (specification(ALL, 42), reservations(reservation("r", "a[1-2]"))):
                connection, _ = listener.accept()
                with connection:
                    asked = connection.recv(65536)
                    assert b"Connection: close" in asked and b"TOKEN" not in asked
                    connection.sendall(message)

        thread = threading.Thread(target=serve)
        thread.start()
        (result,) = SlurmRestClient(f"unix:{path}").read_reservations()
        thread.join()
    assert result.nodes == ("a1", "a2")


# --- the token ----------------------------------------------------------------------------------


def token(user: str = "root", expires: float | None = None) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"exp": int(time.time() + 60) if expires is None else expires, "sun": user}
    return ".".join((part({"alg": "HS256"}), part(claims), "c2lnbmF0dXJl"))


def token_file(directory: Path, content: str) -> Path:
    path = directory / "token"
    path.touch(0o600)
    path.write_text(content)
    return path


@pytest.mark.parametrize("form", ["{}", "{}\n", "SLURM_JWT={}\n"])
def test_token_is_sent_with_its_user_and_shown_nowhere(form: str, tmp_path: Path) -> None:
    secret = token("operator")
    file = token_file(tmp_path, form.format(secret))
    message = errors("511 x", error_number=1007, error="Protocol authentication error")
    server = ScriptedServer([specification(ALL, 42), message], closes=True)
    with server, pytest.raises(SlurmError, match=f"rejects the token of {file}") as caught:
        SlurmRestClient(server.url, file).read_nodes()
    for asked in server.asked:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        assert headers["x-slurm-user-token"] == secret
        assert headers["x-slurm-user-name"] == "operator"
        assert secret not in asked.path
    assert secret not in str(caught.value) and secret not in repr(read_token(file))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no token of Slurm in it.*scontrol token"),
        ("a.b", "has no token"),
        ("a.b.c\r\nX-Other: 1", "has no token"),
        (token("a b"), "has no token"),
        (token(expires=1), "expired at 1970-01-01 00:00:01 UTC.*scontrol token"),
        (token(expires=-(10**300)), "expired at 1970-01-01 00:00:00 UTC"),
        ("a." + base64.urlsafe_b64encode(b'{"x":' + b"[" * 9_001).decode() + ".c", "has no token"),
        ("x" * 20_000, "larger than 16384 bytes"),
    ],
    ids=["empty", "two-parts", "more-lines", "no-user", "expired", "long-ago", "deep", "large"],
)
def test_invalid_token_is_not_sent(content: str, sentence: str, tmp_path: Path) -> None:
    server = ScriptedServer([])
    with server, pytest.raises(SlurmError, match=sentence) as caught:
        SlurmRestClient(server.url, token_file(tmp_path, content)).read_nodes()
    assert not server.asked
    assert not content or content not in str(caught.value)


def test_world_writable_token_is_not_sent(tmp_path: Path) -> None:
    file = token_file(tmp_path, token())
    file.chmod(0o622)
    with pytest.raises(SlurmError, match="can be written by every user"):
        read_token(file)
    with pytest.raises(SlurmError, match=r"can't be read .*scontrol token"):
        read_token(tmp_path / "none")


# --- changes ------------------------------------------------------------------------------------


def bodies(server: ScriptedServer) -> list[tuple[str, str, Any]]:
    """Returns the requests that change something: method, path below the version, body."""
    return [
        (asked.method, asked.path.partition("v0.0.45/")[2], json.loads(asked.body or b"null"))
        for asked in server.asked
        if asked.method != "GET"
    ]


DONE = answer({"errors": []})


def test_node_is_changed_in_a_single_slurmrestd_request() -> None:
    with ScriptedServer([specification(ALL, 45), DONE, DONE, DONE]) as server:
        client = SlurmRestClient(server.url)
        client.drain("a001", "dnm:x why", {"comment": "dnm:x 1"})
        client.resume("a001", {"comment": ""})
        client.mark("a001", {"extra": ""})
    assert bodies(server) == [
        ("POST", "node/a001", {"state": ["DRAIN"], "reason": "dnm:x why", "comment": "dnm:x 1"}),
        ("POST", "node/a001", {"state": ["RESUME"], "comment": ""}),
        ("POST", "node/a001", {"extra": ""}),
    ]


def claim(
    monkeypatch: pytest.MonkeyPatch, *answers: bytes | Drip
) -> tuple[list[tuple[str, str, Any]], SlurmError | None]:
    """Reserves a001 while the server gives these answers. Returns the requests and the error."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "0123abcd")
    with ScriptedServer([specification(ALL, 45), *answers], closes=True) as server:
        try:
            SlurmRestClient(server.url).create_reservation("k8s-a001", "a001")
        except SlurmError as error:
            return bodies(server), error
    return bodies(server), None


LOCK = reservation("k8s-a001_0123abcd", "a001")
OWN = reservation("k8s-a001", "a001")


def test_claim_is_locked_made_and_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = DONE, reservations(LOCK), DONE, DONE, reservations(OWN)
    sent, error = claim(monkeypatch, *answers)
    (_, _, lock), (_, path, made), (method, released, _) = sent
    assert error is None and path == "reservation"
    assert lock["name"] == LOCK["name"] and "flags" not in lock
    assert lock["duration"] == {"set": True, "infinite": False, "number": 1}
    assert (made["name"], made["node_list"], made["users"]) == ("k8s-a001", ["a001"], ["root"])
    assert made["flags"] == ["OVERLAP"]
    assert made["duration"] == {"set": False, "infinite": True, "number": 0}
    assert (method, released) == ("DELETE", f"reservation/{lock['name']}")


OVERLAP = errors("422 x", error_number=2084, error="Requested reservation overlaps")


@pytest.mark.parametrize(
    ("answers", "kind", "said", "sent"),
    [
        pytest.param([OVERLAP], SlurmRefused, "overlaps", ["POST"], id="locked"),
        pytest.param(
            [DONE, reservations(OWN, LOCK), DONE],
            SlurmRefused, "Duplicate", ["POST", "DELETE"], id="named",
        ),
        pytest.param(
            [DONE, reservations(), DONE], SlurmRefused, "is over", ["POST", "DELETE"], id="late"
        ),
        pytest.param(
            [DONE, reservations(LOCK), DONE, DONE, reservations()],
            SlurmOutcomeUnknown, "does not hold", ["POST", "POST", "DELETE"], id="unknown-node",
        ),
        pytest.param(
            [DONE, reservations(LOCK), DONE, DONE, reservations(OWN | {"node_list": "a[1-2]"})],
            SlurmOutcomeUnknown, "does not hold", ["POST", "POST", "DELETE"], id="other-users-too",
        ),
    ],
)  # fmt: skip
def test_second_claim_is_refused(
    answers: list[bytes], kind: type[SlurmError], said: str, sent: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The losing client removes the reservation that serves as its lock, and nothing else."""
    rows, error = claim(monkeypatch, *answers)
    assert type(error) is kind and said in str(error)
    assert [method for method, _, _ in rows] == sent
    assert rows[-1][1] == ("reservation" if sent == ["POST"] else f"reservation/{LOCK['name']}")


@pytest.mark.parametrize(
    "said",
    [
        HANG_UP,
        answer(b"gateway", "504 x"),
        errors("502 x", error_number=1800, error=AWAY),
        errors("500 x", errno=-1, error="Unspecified error"),
    ],
)
def test_unanswered_change_has_an_unknown_outcome(said: bytes) -> None:
    server = ScriptedServer([specification(ALL, 45), said], closes=True)
    with server, pytest.raises(SlurmOutcomeUnknown):
        SlurmRestClient(server.url).drain("a001", "r", {})
    assert len(bodies(server)) == 1


@pytest.mark.parametrize("name", ["", "-x", "a,b", "a b", "a/b", "a?b", "a\nb", "../a"])
def test_refuses_names_that_could_change_the_path(name: str) -> None:
    with ScriptedServer([]) as server:
        client = SlurmRestClient(server.url)
        client.offer = choose_version(specification(ALL, 45).partition(b"\r\n\r\n")[2])
        for call in (
            lambda: client.read_node(name),
            lambda: client.read_jobs_on(name),
            lambda: client.read_job(name),
            lambda: client.drain(name, "r", {}),
            lambda: client.create_reservation(name, "a"),
            lambda: client.create_reservation("a", name),
            lambda: client.delete_reservation(name),
            lambda: client.cancel_job(name),
        ):
            with pytest.raises(SlurmError, match=r"not a (valid name|job)"):
                call()
    assert not server.asked
