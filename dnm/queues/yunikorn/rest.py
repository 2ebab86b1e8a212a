"""Client for YuniKorn's REST API (port 9080 of its service, 1.5 and later).

Amounts are returned under the names of Kubernetes. The client decides nothing. Callers must work
without it, since dnm's host may not reach the scheduler."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dnm.host.fault_points import fault_point
from dnm.http.plain import PlainClient
from dnm.model.cluster import SchedulerView
from dnm.model.queue_path import is_under
from dnm.queues.yunikorn.errors import YunikornError
from dnm.queues.yunikorn.quantities import kubernetes_amounts

_LARGEST_ANSWER = 1 << 24  # bytes; /queues of 2,000 queues has some 2 MB
_LARGEST_LIST = 1 << 27  # bytes; /applications of 100,000 pods has some 50 MB
_USER_QUOTA = "Not enough user quota"  # yunikorn-core, objects/application.go
_PARTITION = "/ws/v1/partition/default"


class _Verdict(msgspec.Struct):
    allowed: bool
    reason: str = ""


class _ActiveConfig(msgspec.Struct):
    checksum: str = msgspec.field(name="Checksum")


class _Queue(msgspec.Struct):
    queuename: str
    allocated: Mapping[str, int] = msgspec.field(name="allocatedResource", default={})
    pending: Mapping[str, int] = msgspec.field(name="pendingResource", default={})
    max: Mapping[str, int] = msgspec.field(name="maxResource", default={})
    max_applications: int = msgspec.field(name="maxRunningApps", default=0)  # 0: no limit
    applications: int = msgspec.field(name="runningApps", default=0)
    children: list[_Queue] | None = None


class _Build(msgspec.Struct):
    version: str = msgspec.field(name="buildVersion", default="")


class _Cluster(msgspec.Struct):
    builds: list[_Build] = msgspec.field(name="rmBuildInformation", default=[])


class _LogEntry(msgspec.Struct):
    message: str = ""
    at: int = msgspec.field(name="lastOccurrence", default=0)  # nanoseconds


class _Allocation(msgspec.Struct):
    key: str = msgspec.field(name="allocationKey", default="")
    log: list[_LogEntry] | None = msgspec.field(name="allocationLog", default=None)

    @property
    def last_failure(self) -> str:
        """Returns why the last attempt to schedule the pod failed; empty if none has failed."""
        return max(self.log, key=lambda entry: entry.at).message if self.log else ""


class _Application(msgspec.Struct):
    queue: str = msgspec.field(name="queueName", default="")
    state: str = msgspec.field(name="applicationState", default="")
    requests: list[_Allocation] | None = None
    allocations: list[_Allocation] | None = None


class YunikornClient:
    """A client of one scheduler at `url`, e.g. http://yunikorn-service.yunikorn:9080.

    Every method raises YunikornError with the address and the next step in its message."""

    def __init__(self, url: str, timeout: timedelta = timedelta(seconds=10)) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise YunikornError(f"yunikorn_url {url!r} is not an http:// or https:// address")
        self.url = url.rstrip("/")
        self._http = PlainClient(self.url, timeout.total_seconds(), _LARGEST_ANSWER)

    def validate(self, text: str) -> str | None:
        """Returns why the scheduler would refuse this queue document, or None if it accepts it."""
        with self._translated(), fault_point("queues.validate_conf"):
            verdict = self._ask("POST", "/ws/v1/validate-conf", _Verdict, text.encode())
        return None if verdict.allowed else verdict.reason or "it gives no reason"

    def read_checksum(self) -> str:
        """Returns the checksum of the scheduler's document, as `checksum_of` computes it."""
        with self._translated(), fault_point("queues.read_config"):
            active: _ActiveConfig = self._ask("GET", "/ws/v1/config", _ActiveConfig)
        return active.checksum

    def read_view(self) -> SchedulerView:
        """Returns the scheduler's use, pending demand and limits by queue, and each pod's queue."""
        with self._translated(), fault_point("queues.read_queues"):
            queues = list(_flatten(self._ask("GET", f"{_PARTITION}/queues", _Queue)))
        with self._translated(), fault_point("queues.read_applications"):
            path = f"{_PARTITION}/applications/active"
            applications = self._ask("GET", path, list[_Application] | None, most=_LARGEST_LIST)
            applications = applications or []
        queue_of_pod = {
            ask.key: application.queue.lower()
            for application in applications
            for asks in (application.requests, application.allocations)
            for ask in asks or ()
        }
        release = self._read_release()
        return SchedulerView(
            queue_of_pod=queue_of_pod,
            user_limited=frozenset(
                ask.key
                for application in applications
                for ask in application.requests or ()
                if ask.last_failure == _USER_QUOTA
            ),
            not_started=frozenset(_not_started(queues, applications)),
            allocated={q.queuename.lower(): kubernetes_amounts(q.allocated) for q in queues},
            pending={q.queuename.lower(): kubernetes_amounts(q.pending) for q in queues},
            max={q.queuename.lower(): kubernetes_amounts(q.max) for q in queues},
            release=release,
            # checkInitContainerRequest in resource.go of yunikorn-k8shim 1.6 to 1.8
            counts_sidecars_twice=release is not None and release < (1, 9),
        )

    def _read_release(self) -> tuple[int, int] | None:
        """Returns the scheduler's release, e.g. (1, 8), or None if it reports none."""
        try:
            with self._translated(), fault_point("queues.read_version"):
                clusters = self._ask("GET", "/ws/v1/clusters", list[_Cluster])
        except YunikornError:
            return None
        for build in (build for cluster in clusters for build in cluster.builds):
            if match := re.match(r"v?(\d{1,4})\.(\d{1,4})\b", build.version):
                return int(match[1]), int(match[2])
        return None

    def _ask(
        self,
        method: str,
        path: str,
        of: Any,
        body: bytes | None = None,
        most: int = _LARGEST_ANSWER,
    ) -> Any:
        """Returns the answer, decoded as `of`. Bounds its time, and its size by `most` bytes."""
        answer = self._http.ask(method, path, body, {"Accept": "application/json"}, most)
        if answer.status != 200:
            text = " ".join(answer.body[:300].decode("utf-8", "replace").split())
            hint = "; dnm needs YuniKorn 1.5 or later" if answer.status == 404 else ""
            hint = hint or "; check the scheduler's pod" * (answer.status >= 500)
            message = f"{answer.status}: {text}{hint}"
            raise YunikornError(f"YuniKorn at {self.url}{path} answers {message}")
        try:
            return msgspec.json.decode(answer.body, type=of)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise YunikornError(
                f"cannot decode the answer of YuniKorn at {self.url}{path} ({error}). Check that "
                "yunikorn_url is the scheduler's own address (port 9080)"
            ) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            cause = getattr(error, "strerror", "") or error or type(error).__name__
            raise YunikornError(
                f"YuniKorn at {self.url} does not answer ({cause}). Check "
                "yunikorn_url, or leave it empty to work without YuniKorn's answers"
            ) from error


def _not_started(queues: list[_Queue], applications: list[_Application]) -> Iterator[str]:
    """Yields the pods of applications that the scheduler has not started: they are in state
    Accepted, because their queue, or one above it, runs its maximum number of applications."""
    full = {
        queue.queuename.lower()
        for queue in queues
        if 0 < queue.max_applications <= queue.applications
    }
    for application in applications if full else ():
        path = application.queue.lower()
        if application.state == "Accepted" and any(is_under(path, queue) for queue in full):
            yield from (ask.key for ask in application.requests or ())


def _flatten(root: _Queue) -> Iterator[_Queue]:
    stack = [root]
    while stack:
        queue = stack.pop()
        yield queue
        stack.extend(queue.children or ())


def checksum_of(text: str) -> str:
    """Returns the checksum that the scheduler shows for a document: upper-case hexadecimal SHA-256
    of the text without a line `checksum: ` (GetConfigurationString of yunikorn-core's
    config.go)."""
    content, mark = text.encode(), b"checksum: "
    if mark in content:
        line = (mark + content.split(mark)[1]).rstrip(b"\n")
        content = content.replace(line[: 64 + len(mark)], b"")
    return hashlib.sha256(content).hexdigest().upper()
