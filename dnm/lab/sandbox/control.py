"""The sandbox's own routes, `/sandbox/...`, for administrators and the external demo.

Each route calls a method of `Sandbox` and adds no behaviour.

The sandbox's `node-convert` sends its process, the number of arguments, the arguments and its
environment, separated by NUL. The server answers with a line of numbers and the output."""

from __future__ import annotations

from typing import Any

import msgspec

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.conversion import Behaviour, Result
from dnm.lab.sandbox.deletion import FINISHED, is_daemon
from dnm.lab.sandbox.embedded import EmbeddedCluster
from dnm.lab.sandbox.http_values import Fault, Request, ServerAnswer, json_answer
from dnm.lab.sandbox.store import ApiError, Object


def read_call(body: bytes) -> tuple[list[str], dict[str, str], int]:
    """Returns arguments, environment and process of a converter's call. Raises ValueError."""
    process, count, *words = body.decode("utf-8", "surrogateescape").split("\0")
    arguments, environment = words[: int(count)], words[int(count) :]
    return arguments, dict(pair.split("=", 1) for pair in environment), int(process)


def write_result(result: Result) -> ServerAnswer:
    """Encodes the server's answer to a converter's process. A line has exit code, operation (0:
    none), seconds to wait, hang and size of stdout; then follow stdout and stderr."""
    stdout, stderr = result.stdout.encode(), result.stderr.encode()
    head = (
        f"{result.exit_code} {result.operation or 0} {result.wait} {int(result.hang)} "
        f"{len(stdout)}\n"
    )
    return ServerAnswer(body=head.encode() + stdout + stderr, content_type="text/plain")


class Control:
    """The handler of requests to `/sandbox/...`. It changes the cluster only under the lock."""

    def __init__(self, sandbox: EmbeddedCluster) -> None:
        self.sandbox = sandbox

    def handle(self, request: Request) -> ServerAnswer:
        """Returns the answer. Raises ApiError: 404 for an unknown route, 400 for a wrong body."""
        route = request.path.removeprefix("/sandbox").strip("/")
        try:
            return self._handle(request, route)
        except KeyError as error:
            raise ApiError(404, f"{route}: there is no {error}") from error
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ApiError(400, f"{route}: {error}") from error

    def _handle(self, request: Request, route: str) -> ServerAnswer:
        sandbox = self.sandbox
        if request.method == "GET":
            return json_answer(self._read(route))
        if route == "node-convert/begin":
            with sandbox.lock:
                begun = sandbox.conversion.begin(*read_call(request.body))
                sandbox.store.changed.notify_all()
            return write_result(begun)
        if route == "node-convert/finish":
            return write_result(sandbox.finish_conversion(int(request.body)))
        asked = request.json()
        if route == "faults":
            if request.method == "DELETE":
                sandbox.faults.clear()
                return json_answer([])
            return json_answer(sandbox.faults.add(msgspec.convert(asked, Fault)))
        if route == "behaviours":
            with sandbox.lock:
                if request.method == "DELETE":
                    sandbox.conversion.behaviours.clear()
                    return json_answer([])
                sandbox.conversion.behaviours.append(msgspec.convert(asked, Behaviour))
            return json_answer({})
        if route == "timing":
            return json_answer(self._set_timing(asked))
        if route == "return-manually":
            with sandbox.lock:
                sandbox.return_manually(asked["node"])
                sandbox.step()
            return json_answer({"done": True})
        raise KeyError(route)

    def _set_timing(self, asked: Object) -> Timing:
        """Sets the named durations. Raises ValueError for an unknown name."""
        timing = self.sandbox.timing
        changed = msgspec.convert({**msgspec.structs.asdict(timing), **asked}, Timing)
        for name in asked:
            if not hasattr(timing, name):
                raise ValueError(f"there is no duration {name}")
            setattr(timing, name, getattr(changed, name))
        return timing

    # --- reading ----------------------------------------------------------------------------

    def _read(self, route: str) -> Any:
        sandbox = self.sandbox
        if route == "violations":
            return sandbox.violations
        if route == "state":
            with sandbox.lock:
                return self.state()
        raise KeyError(route)

    def state(self) -> Object:
        """Returns a summary for the command and the demo: nodes, pods, machines, queues."""
        sandbox = self.sandbox
        store, scheduler = sandbox.store, sandbox.scheduler
        pods = list(store.objects("pods"))
        here: dict[str, int] = {}
        for pod in pods:
            if pod["status"].get("phase") not in FINISHED and not is_daemon(pod):
                node = pod["spec"].get("nodeName", "")
                here[node] = here.get(node, 0) + 1
        return {
            "schema": "dnm.sandbox.state/1",
            "now": sandbox.clock.now(),
            "nodes": {
                node["metadata"]["name"]: {
                    "ready": manifests.is_ready(node),
                    "cordoned": bool(node["spec"].get("unschedulable")),
                    "pods": here.get(node["metadata"]["name"], 0),
                }
                for node in store.objects("nodes")
            },
            "pods": _count_pods(pods),
            "ended": dict(sandbox.kubelet.ended),
            "machines": {
                machine.name: {
                    "state": sandbox.batch.state_of(machine), "place": machine.place,
                    "jobs": len(sandbox.batch.jobs_on(machine)),
                }
                for machine in sandbox.batch.machines.values()
            },
            "queues": {
                path: {"max": dict(scheduler.tree.limit(path)),
                       "used": scheduler.used.get(path, {})}
                for path in sandbox.yunikorn.queues
            },
            "violations": len(sandbox.violations),
        }  # fmt: skip


def _count_pods(pods: list[Object]) -> dict[str, dict[str, int]]:
    """Returns the number of pending, starting, running and finished pods of each namespace."""
    counts: dict[str, dict[str, int]] = {}
    for pod in pods:
        own = counts.setdefault(
            pod["metadata"]["namespace"],
            {"pending": 0, "starting": 0, "running": 0, "finished": 0},
        )
        phase = pod["status"].get("phase")
        if phase in FINISHED:
            own["finished"] += 1
        elif phase == "Running":
            own["running"] += 1
        else:
            own["starting" if pod["spec"].get("nodeName") else "pending"] += 1
    return counts
