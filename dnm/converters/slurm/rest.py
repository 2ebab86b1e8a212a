"""The Slurm edge over slurmrestd: one request after another, each with a deadline and a size limit.

It is for hosts without munge and Slurm's commands. A request over TCP has a token (JWT). Over a
unix socket, slurmrestd identifies the client by its user id. Only root or dnm's user may be able to
write the token's file. dnm reads it for each request, since a token lasts half an hour by default.
Messages name the file and never the token. dnm closes each connection after one request, because
slurmrestd allows few. A change without an answer raises `SlurmOutcomeUnknown`, as with commands."""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import msgspec

from dnm.converters.slurm import rest_body
from dnm.converters.slurm.commands import (
    COMMAND_TIMEOUT,
    IN_ANOTHER,
    End,
    SlurmOutcomeUnknown,
    SlurmRefused,
    checked_job,
    checked_name,
    means_away,
)
from dnm.converters.slurm.rest_body import Offer, RestError
from dnm.converters.slurm.text import JobRecord, Reservation, SlurmJob, SlurmNode
from dnm.host.fault_points import fault_point
from dnm.host.trust import read_trusted
from dnm.http.plain import PlainAnswer, PlainClient
from dnm.model.errors import SlurmError

_LARGEST = 256 * 1024 * 1024  # bytes; a node takes 1.5 to 2.5 kB, a job 4 to 9 kB
_SOCKET = "unix:"
_READ = "GET"  # any other method changes something
_LOCKED = timedelta(minutes=1)  # Slurm's shortest reservation
_NO_TOKEN = 1007  # SLURM_PROTOCOL_AUTHENTICATION_ERROR
_UNSPECIFIED = -1  # 22.05's code both for a bad token and for a slurmctld that is away


def _unable(action: str) -> Callable[..., NoReturn]:
    """Returns a method that raises SlurmError, since slurmrestd has no request for the action."""

    def refuse(self: SlurmRestClient, *_: object, **__: object) -> NoReturn:
        raise self._cannot(action)

    return refuse


class SlurmRestClient:
    """A client of Slurm through slurmrestd, with the errors of SlurmClient. `url` begins with
    http://HOST:PORT, https:// or unix:/PATH. Without a `token_file`, slurmrestd identifies the user
    by the socket."""

    def __init__(
        self, url: str, token_file: Path | None = None, timeout: timedelta = COMMAND_TIMEOUT
    ) -> None:
        self.url = url
        self.timeout = timeout
        self._token_file = token_file
        path = url.removeprefix(_SOCKET) if url.startswith(_SOCKET) else ""
        server = "http://localhost" if path else url
        self._http = PlainClient(server, timeout.total_seconds(), _LARGEST, path)

    def check_controller(self) -> None:
        """Raises SlurmError if slurmrestd, the token or slurmctld fails. It reads reservations,
        because `ping` of 24.11 reports DOWN if slurmctld only refuses the token."""
        self.read_reservations()

    def read_nodes(self) -> tuple[SlurmNode, ...]:
        return rest_body.parse_nodes(self._read("nodes"))

    def read_node(self, name: str) -> SlurmNode:
        """Returns the node. Its partitions are unreliable: 25.05 and 25.11 report wrong ones if the
        request names one node."""
        nodes = rest_body.parse_nodes(self._read(f"node/{quote(checked_name(name))}"))
        if [node.name for node in nodes] != [name]:
            raise SlurmRefused(f"slurmrestd knows no node {name}", "no such node")
        return nodes[0]

    def read_jobs(self) -> tuple[SlurmJob, ...]:
        """Returns the unfinished jobs that PrivateData lets the token's user see."""
        return rest_body.parse_jobs(self._read("jobs"))

    def read_jobs_on(self, node: str) -> tuple[SlurmJob, ...]:
        checked_name(node)
        return tuple(job for job in self.read_jobs() if node in job.nodes)

    def read_reservations(self) -> tuple[Reservation, ...]:
        return rest_body.parse_reservations(self._read("reservations"))

    def read_partitions(self) -> tuple[str, ...]:
        return rest_body.parse_partitions(self._read("partitions"))

    def read_job(self, job: str) -> JobRecord:
        return rest_body.parse_job_record(self._read(f"job/{checked_job(job)}"))

    def check_changes(self) -> None:
        """Raises SlurmError if this Slurm can't change nodes and reservations by requests. Nodes
        need v0.0.39 (23.02). Reservations need v0.0.43 (25.05), but dnm uses only later ones."""
        self._require("POST", "node/", "change nodes")
        self._require("POST", "reservation", "make reservations")
        self._require("DELETE", "reservation/", "delete reservations")

    def drain(self, node: str, reason: str, marks: Mapping[str, str]) -> None:
        self._change_node("slurm.drain", node, rest_body.encode_node_change(marks, "DRAIN", reason))

    def resume(self, node: str, marks: Mapping[str, str]) -> None:
        self._change_node("slurm.resume", node, rest_body.encode_node_change(marks, "RESUME"))

    def mark(self, node: str, marks: Mapping[str, str]) -> None:
        self._change_node("slurm.mark", node, rest_body.encode_node_change(marks))

    def create_reservation(
        self, name: str, node: str, end: End = None, flags: str = "", start: datetime | None = None
    ) -> None:
        """Reserves a node like the command: only one of several converters gets it, and none if a
        job runs. slurmrestd would change an existing reservation with this name, even another
        owner's. So dnm first makes a reservation of one minute with a unique name, which Slurm
        refuses if it overlaps another one. This is the test-and-set. dnm then checks that the name
        is free, and makes the reservation."""
        if start or flags == IN_ANOTHER:
            raise self._cannot("reserve nodes for events" if start else "share reservations out")
        checked_name(name), checked_name(node)
        words = flags.split(",") if flags else []
        lock = f"{name}_{secrets.token_hex(4)}"
        self._reserve(lock, node, _LOCKED, words)
        try:
            existing = {reservation.name for reservation in self.read_reservations()}
            if name in existing:
                sentence = f"Duplicate reservation name {name}: another conversion was first"
                raise SlurmRefused(f"{node} is not reserved: {sentence}", sentence)
            if lock not in existing:  # it has ended, by a wrong clock or a pause
                sentence = f"the lock {lock} is over already: do the clocks agree?"
                raise SlurmRefused(f"{node} is not reserved: {sentence}", sentence)
            self._reserve(name, node, end, [*words, "OVERLAP"])
        finally:
            with suppress(SlurmError):  # it ends after a minute
                self.delete_reservation(lock)
        if not any(
            resv.name == name and resv.nodes == (node,) for resv in self.read_reservations()
        ):
            raise SlurmOutcomeUnknown(f"the reservation {name} does not hold {node} alone")

    move_reservation = _unable("reserve nodes for events")
    keeps_accounts = charge_reservation = _unable("charge nodes to accounts")

    def uncharge_reservation(self, name: str, *, keeps_flag: bool) -> None:
        """Does nothing: after that, callers delete the reservation, which ends the charge too."""

    def remove_from_reservation(self, name: str, node: str) -> None:
        raise self._cannot(f"take {node} out of the reservation {name}, which others are in")

    def delete_reservation(self, name: str) -> None:
        self._require("DELETE", "reservation/", "delete reservations")
        path = f"reservation/{quote(checked_name(name))}"
        self._call("slurm.delete_reservation", "DELETE", path)

    def terminate_job(self, job: str) -> None:
        path = f"job/{checked_job(job)}?signal=TERM&flags=FULL_JOB"
        self._call("slurm.terminate_job", "DELETE", path)

    def requeue_job(self, job: str) -> None:
        raise self._cannot(f"requeue job {job}; preempt_mode = cancel can end it")

    def cancel_job(self, job: str) -> None:
        self._call("slurm.cancel_job", "DELETE", f"job/{checked_job(job)}")

    def _change_node(self, point: str, node: str, body: bytes) -> None:
        self._require("POST", "node/", "change nodes")
        self._call(point, "POST", f"node/{quote(checked_name(node))}", body)

    def _reserve(self, name: str, node: str, end: End, flags: Sequence[str]) -> None:
        self._require("POST", "reservation", "make reservations")
        body = rest_body.encode_reservation(name, node, datetime.now(UTC), end, flags)
        self._call("slurm.create_reservation", "POST", "reservation", body)

    def _require(self, method: str, path: str, action: str) -> None:
        if not self.offer.can(method, path):
            raise self._cannot(action)

    def _cannot(self, action: str) -> SlurmError:
        return SlurmError(
            f"slurmrestd at {self.url} (API {self.offer.version}) can't {action}; nothing is done: "
            "leave slurmrestd_url out on a host with Slurm's commands"
        )

    @cached_property
    def offer(self) -> Offer:
        """Returns the API version and the requests that slurmrestd offers, read once."""
        answer = self._ask("slurm.read", _READ, "/openapi/v3")
        if answer.status != 200:
            raise self._refusal(_READ, "/openapi/v3", answer)
        return rest_body.choose_version(answer.body)

    def _read(self, path: str) -> bytes:
        return self._call("slurm.read", _READ, path)

    def _call(self, point: str, method: str, path: str, body: bytes = b"") -> bytes:
        """Sends one request and returns the body of the answer. Raises SlurmError for a refusal."""
        answer = self._ask(point, method, f"/slurm/{self.offer.version}/{path}", body)
        if answer.status != 200 or rest_body.read_errors(answer.body) != []:
            raise self._refusal(method, path, answer)
        return answer.body

    def _ask(self, point: str, method: str, path: str, body: bytes = b"") -> PlainAnswer:
        """Returns the answer to a request, also an error. If there is none, raises SlurmError, or
        SlurmOutcomeUnknown if Slurm may have carried out a change."""
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._token_file:
            headers |= read_token(self._token_file).headers
        if body:
            headers["Content-Type"] = "application/json"
        try:
            with fault_point(point):
                return self._http.ask(method, path, body or None, headers)
        except (OSError, ValueError) as error:
            cause = str(error) or type(error).__name__
            sentence = f"slurmrestd at {self.url} does not answer ({cause})"
            if method != _READ and self._http.was_sent:
                raise SlurmOutcomeUnknown(sentence) from error
            raise SlurmError(
                f"{sentence}; nothing is done: check slurmrestd, or fix slurmrestd_url"
            ) from error

    def _refusal(self, method: str, path: str, answer: PlainAnswer) -> SlurmError:
        """Returns the error to raise for an unsuccessful answer."""
        request, is_change = f"{method} {path}", method != _READ
        if errors := rest_body.read_errors(answer.body):
            return self._judge(request, errors[0], is_change)
        excerpt = " ".join(answer.body[:200].decode("utf-8", "replace").split())
        if answer.status == 401:
            return SlurmError(f"slurmrestd at {self.url} requires {self._way_in()}")
        sentence = f"slurmrestd at {self.url} answers {answer.status} to {request} ({excerpt})"
        if is_change and (answer.status == 200 or answer.status >= 500):
            return SlurmOutcomeUnknown(sentence)
        return SlurmError(f"{sentence}; nothing is done: check slurmrestd_url")

    def _judge(self, call: str, error: RestError, is_change: bool) -> SlurmError:
        away = SlurmOutcomeUnknown if is_change else SlurmError
        if error.number == _NO_TOKEN:
            return SlurmError(
                f"slurmctld rejects {self._proof()} ({error.text}); nothing is done: "
                "write a new token, and check that the clocks agree"
            )
        if error.number == _UNSPECIFIED:
            return away(
                f"slurmrestd at {self.url} has no answer of slurmctld to {call}: it is down, or it "
                f"rejects {self._proof()} (Slurm 22.05 does not say which); nothing is "
                "done: check slurmctld, then write a new token"
            )
        if means_away(error.text):
            return away(
                f"Slurm's controller does not answer (slurmrestd at {self.url}: {error.text}): "
                "check slurmctld and try again"
            )
        return SlurmRefused(f"slurmrestd refuses {call}: {error.text}", error.text)

    def _proof(self) -> str:
        if self._token_file:
            return f"the token of {self._token_file}"
        return f"the user that slurmrestd at {self.url} runs as"

    def _way_in(self) -> str:
        if self._token_file:
            return f"a token that it takes: write a new one to {self._token_file}"
        return "a token: set slurmrestd_token_file, or run as root or slurmrestd's own user"


_LARGEST_TOKEN = 16 * 1024  # bytes
_JWT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}")
_NEW_TOKEN = "write a new one there with 'scontrol token username=USER lifespan=SECONDS'"


class _Claims(msgspec.Struct):
    exp: float | None = None
    sun: str = ""  # Slurm's user name


class Token(msgspec.Struct, frozen=True):
    """A Slurm token that has not expired by this host's clock."""

    text: str
    user: str  # empty if it names none

    def __repr__(self) -> str:
        """Returns a text without the token itself, since the text may be logged."""
        return f"Token(user={self.user!r})"

    @property
    def headers(self) -> dict[str, str]:
        """Returns the HTTP headers. Slurm 22.05 requires the user's name besides the token."""
        user = {"X-SLURM-USER-NAME": self.user} if self.user else {}
        return {**user, "X-SLURM-USER-TOKEN": self.text}


def read_token(file: Path) -> Token:
    """Returns the token in a file: alone, or as `scontrol token` prints it. Raises SlurmError."""
    try:
        content = read_trusted(file, _LARGEST_TOKEN, SlurmError)
    except OSError as error:
        raise SlurmError(
            f"slurmrestd_token_file {file} can't be read ({error.strerror}): {_NEW_TOKEN}"
        ) from error
    text = content.decode("ascii", "replace").strip().removeprefix("SLURM_JWT=")
    claims = _read_claims(text)
    if claims is None:
        raise SlurmError(f"slurmrestd_token_file {file} has no token of Slurm in it: {_NEW_TOKEN}")
    if claims.exp is not None and claims.exp <= time.time():
        ended = datetime.fromtimestamp(max(claims.exp, 0), UTC)
        raise SlurmError(
            f"the token of slurmrestd_token_file {file} expired at {ended:%Y-%m-%d %H:%M:%S} UTC: "
            f"{_NEW_TOKEN}"
        )
    return Token(text=text, user=claims.sun)


def _read_claims(text: str) -> _Claims | None:
    """Returns the token's claims, unverified: only slurmctld can check the signature."""
    if not _JWT.fullmatch(text):
        return None
    middle = text.split(".")[1]
    try:
        raw = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4))
        claims = msgspec.json.decode(raw, type=_Claims)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
    return claims if not claims.sun or _USER.fullmatch(claims.sun) else None
