"""YuniKorn's own endpoints that dnm reads, `/ws/v1/...` (yunikorn-core, pkg/webservice)."""

from __future__ import annotations

from collections.abc import Callable

from dnm.lab.sandbox.deletion import FINISHED
from dnm.lab.sandbox.http_values import Request, ServerAnswer, json_answer
from dnm.lab.sandbox.pod_reading import (
    application_of,
    is_placeholder,
    task_group_of,
    total,
    yunikorn_units,
)
from dnm.lab.sandbox.queue_tree import ancestors
from dnm.lab.sandbox.scheduler import Scheduler
from dnm.lab.sandbox.store import Object, Objects
from dnm.lab.sandbox.yunikorn_config import YunikornConfig


class YunikornApi:
    """The handler of requests to YuniKorn's REST API. Callers hold the store's lock."""

    def __init__(self, store: Objects, scheduler: Scheduler, config: YunikornConfig) -> None:
        self.store = store
        self.scheduler = scheduler
        self.config = config

    def handle(self, request: Request) -> ServerAnswer:
        route = request.path.removeprefix("/ws/v1").strip("/")
        if route == "validate-conf" and request.method == "POST":
            return self._validate(request)
        if request.method != "GET":
            return _error(405, "Method Not Allowed")
        routes: dict[str, Callable[[], Object | list[Object]]] = {
            "config": self._config,
            "clusters": self._clusters,
            "partition/default/queues": lambda: self._queue("root"),
            "partition/default/applications/active": self._applications,
        }
        return json_answer(routes[route]()) if route in routes else _error(404, "Not Found")

    def _validate(self, request: Request) -> ServerAnswer:
        reason = self.config.refusal(request.body.decode("utf-8", "surrogateescape"))
        return json_answer({"allowed": not reason, "reason": reason})

    def _config(self) -> Object:
        """Returns the answer of `/ws/v1/config`, with the checksum of the current configuration."""
        partitions = [{"Name": "default"}] if self.config.partition else []
        return {"Partitions": partitions, "Checksum": self.config.checksum, "Extra": {}}

    # --- queues -----------------------------------------------------------------------------

    def _dynamic(self) -> set[str]:
        """Returns queues of applications (and ancestors) that the document does not define."""
        paths = {
            path for app in self.scheduler.applications.values() for path in ancestors(app.queue)
        }
        return paths - set(self.config.queues)

    def _queue(self, path: str) -> Object:
        tree, configured = self.scheduler.tree, self.config.queues.get(path)
        children = sorted(
            place
            for place in {*self.config.queues, *self._dynamic()}
            if place.rpartition(".")[0] == path
        )
        cluster = _sizes(self.store)
        apps = [a for a in self.scheduler.applications.values() if a.queue == path]
        entry = {
            "queuename": path, "status": "Active", "partition": "default",
            "isLeaf": configured.is_leaf if configured else not children,
            "isManaged": configured is not None,
            "parent": path.rpartition(".")[0], "runningApps": len(apps),
            "maxResource": cluster if path == "root" else dict(tree.limit(path)),
            "guaranteedResource": dict(configured.guaranteed) if configured else {},
            "allocatedResource": self.scheduler.used.get(path, {}),
            "pendingResource": self.scheduler.pending.get(path, {}),
            "headroom": tree.headroom(path, self.scheduler.used, cluster),
            "properties": {}, "children": [self._queue(child) for child in children],
        }  # fmt: skip
        return {key: value for key, value in entry.items() if value != {} and value != []}

    # --- applications -----------------------------------------------------------------------

    def _applications(self) -> list[Object]:
        members: dict[str, list[Object]] = {}
        for pod in self.store.objects("pods"):
            if pod["status"].get("phase") not in FINISHED:
                members.setdefault(application_of(pod), []).append(pod)
        rows = []
        for application in self.scheduler.applications.values():
            pods = members.get(application.id, [])
            bound = [
                pod for pod in pods if self.store.get("nodes", "", pod["spec"].get("nodeName", ""))
            ]
            waiting = [p for p in pods if not p["spec"].get("nodeName") and not _is_hidden(p)]
            rows.append({
                "applicationID": application.id, "queueName": application.queue,
                "partition": "default", "applicationState": "Running" if pods else "Completing",
                "usedResource": self._total(bound), "pendingResource": self._total(waiting),
                "requests": [self._ask(pod) for pod in waiting],
                "allocations": [{**self._ask(p), "nodeId": p["spec"]["nodeName"]} for p in bound],
            })  # fmt: skip
        return rows

    def _ask(self, pod: Object) -> Object:
        return {
            "allocationKey": pod["metadata"]["uid"], "resource": self.scheduler.request(pod),
            "priority": str(pod["spec"].get("priority", 0)),
            "placeholder": is_placeholder(pod),
            "taskGroupName": task_group_of(pod),
        }  # fmt: skip

    def _total(self, pods: list[Object]) -> dict[str, int]:
        return total(self.scheduler.request(pod) for pod in pods)

    # --- the rest ---------------------------------------------------------------------------

    def _clusters(self) -> list[Object]:
        return [{
            "clusterName": "kubernetes", "partition": "default",
            "rmBuildInformation": [{"buildVersion": self.config.version, "rmId": "sandbox"}],
        }]  # fmt: skip


def _is_hidden(pod: Object) -> bool:
    return bool(pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp"))


def _sizes(store: Objects) -> dict[str, int]:
    return total(yunikorn_units(node["status"]["allocatable"]) for node in store.objects("nodes"))


def _error(code: int, message: str) -> ServerAnswer:
    return json_answer({"status_code": code, "message": message, "description": message}, code)
