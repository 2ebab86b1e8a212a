"""The embedded cluster: its parts put together, its handles, and the loop that moves it.

`Sandbox(directory)` is a whole cluster in this process; `start()` puts it behind HTTP on loopback.
With a manual clock nothing moves but by `tick()`, so that a test sleeps never and sees the same
each time; with real time a thread moves it. Handles do what people and machines do to a cluster:
they take the lock, act at once, and are seen by clients as any other change.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dnm.sandbox import manifests
from dnm.sandbox.access import Access
from dnm.sandbox.admission import Admission
from dnm.sandbox.api import Api
from dnm.sandbox.clock import Clock
from dnm.sandbox.faults import Fault, Faults
from dnm.sandbox.http_server import HttpServer
from dnm.sandbox.http_values import Answer, Request, error_answer
from dnm.sandbox.kinds import KINDS, kind_of
from dnm.sandbox.requests_log import RequestLog
from dnm.sandbox.store import ApiError, Object, Store

YUNIKORN_NAMESPACE = "yunikorn"
YUNIKORN_CONFIGS = "yunikorn-configs"


class Sandbox:
    """A cluster; see `tests/conftest.py` for the fixture and the README for the command."""

    def __init__(
        self,
        directory: Path,
        *,
        manual: bool = True,
        speed: float = 1.0,
        seed: int = 0,
        port: int = 0,
    ) -> None:
        self.directory = directory
        self.clock = Clock(manual=manual, speed=speed)
        self.store = Store(self.clock, seed)
        self.lock = self.store.lock
        self.access = Access()
        self.admission = Admission(self.store)
        self.api = Api(self.store, self.access, self.admission)
        self.faults = Faults(seed)
        self.requests = RequestLog()
        self.server = HttpServer(self.handle, self.faults, self.clock, port)
        for namespace in ("default", "kube-system", YUNIKORN_NAMESPACE):
            self.add_namespace(namespace)

    # --- HTTP --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def start(self) -> Sandbox:
        """Listens on loopback and writes the kubeconfig; raises SandboxError for a taken port."""
        self.server.start()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_bytes(msgspec.json.encode(manifests.kubeconfig(self.url)))
        return self

    def stop(self) -> None:
        self.server.stop()

    def handle(self, request: Request) -> Answer:
        try:
            with self.lock:
                answer = self.api.handle(request)
        except ApiError as error:
            answer = error_answer(error)
        self.requests.note(request, answer.code)
        return answer

    def fault(self, kind: str, **details: Any) -> Fault:
        """Switches a fault on: `fault("status", path="configmaps", methods=("PATCH",), code=409)`."""
        return self.faults.add(msgspec.convert({"kind": kind, **details}, Fault))

    # --- time --------------------------------------------------------------------------------

    def tick(self, seconds: float = 0.0) -> None:
        """Moves a manual clock on, event by event, and lets everything settle."""

    # --- objects -----------------------------------------------------------------------------

    def create(self, manifest: Object) -> Object:
        """Any manifest with `apiVersion` and `kind`, checked as the API does. Raises ApiError."""
        kind = kind_of(manifest)
        if kind is None:
            raise ApiError(404, f"no kind {manifest.get('apiVersion')}/{manifest.get('kind')}")
        with self.lock:
            own = msgspec.json.decode(msgspec.json.encode(manifest))
            own["metadata"].setdefault("namespace", "default") if kind.namespaced else None
            self.admission.admit_creation(kind, own)
            return self.store.create(kind.plural, own)

    def get(self, plural: str, name: str, namespace: str = "") -> Object | None:
        """A copy, or None."""
        with self.lock:
            entry = self.store.entry(plural, namespace, name)
            return entry.copy() if entry else None

    def list(self, plural: str, namespace: str = "") -> list[Object]:
        """Copies, sorted by namespace and name."""
        with self.lock:
            return [entry.copy() for entry in self.store.entries(plural, namespace)]

    def edit(
        self, plural: str, name: str, change: Callable[[Object], Any], namespace: str = ""
    ) -> Object:
        """`change` gets the object and modifies it in place."""
        with self.lock:
            return self.store.edit(plural, namespace, name, change)

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        """At once, without grace and without asking; a missing object is not an error."""
        with self.lock, contextlib.suppress(ApiError):
            self.store.remove(plural, namespace, name)

    def add_namespace(self, name: str) -> None:
        with self.lock:
            if self.store.get("namespaces", "", name) is None:
                manifest = {"metadata": {"name": name}}
                self.admission.admit_creation(KINDS["namespaces"], manifest)
                self.store.create("namespaces", manifest)

    def add_node(
        self,
        name: str,
        cpu: str = "128",
        memory: str = "256G",
        *,
        more: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        ready: bool = True,
    ) -> Object:
        """A Node that is Kubernetes' own, at once; `more` are further allocatable resources."""
        allocatable = {"cpu": cpu, "memory": memory, **(more or {})}
        return self.create(
            manifests.node_manifest(name, allocatable, labels=labels, taints=taints, ready=ready)
        )

    def add_pods(
        self,
        count: int,
        namespace: str = "default",
        *,
        queue: str = "",
        cpu: str = "1",
        memory: str = "1Gi",
        name: str = "pod",
        more: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        run_seconds: float | None = None,
    ) -> list[str]:
        """Bare pods `name-0` ...; of YuniKorn where a queue is given. Returns their names."""
        self.add_namespace(namespace)
        notes = dict(annotations or {})
        if run_seconds is not None:
            notes[manifests.RUN_SECONDS] = str(run_seconds)
        requests = {"cpu": cpu, "memory": memory, **(more or {})}
        taken = {pod["metadata"]["name"] for pod in self.store.objects("pods", namespace)}
        free = (f"{name}-{number}" for number in range(len(taken) + count))
        names = [candidate for candidate in free if candidate not in taken][:count]
        for chosen in names:
            self.create(manifests.pod_manifest(
                chosen, namespace, requests, queue=queue, spec=spec, annotations=notes,
                labels=labels,
            ))  # fmt: skip
        return names

    def finish_pods(
        self, names: Iterable[str], namespace: str = "default", phase: str = "Succeeded"
    ) -> None:
        """Their containers end by themselves."""
        for name in names:
            self.edit("pods", name, lambda pod: pod["status"].update(phase=phase), namespace)

    def bind(self, name: str, node: str, namespace: str = "default", phase: str = "Running") -> None:
        """Puts a pod onto a node by force, whatever the scheduler would say."""

        def change(pod: Object) -> None:
            pod["spec"]["nodeName"] = node
            pod["status"]["phase"] = phase

        self.edit("pods", name, change, namespace)

    def cordon(self, node: str, on: bool = True) -> None:
        def change(item: Object) -> None:
            item["spec"]["unschedulable"] = True
            if not on:
                del item["spec"]["unschedulable"]

        self.edit("nodes", node, change)

    def set_ready(self, node: str, ready: bool) -> None:
        def change(item: Object) -> None:
            item["status"]["conditions"] = manifests.ready_conditions(ready)

        self.edit("nodes", node, change)

    # --- the queue document --------------------------------------------------------------------

    def set_queues(
        self, text: str, *, name: str = YUNIKORN_CONFIGS, key: str = "queues.yaml"
    ) -> None:
        """Writes the document as an administrator with `kubectl apply` would, unchecked."""
        with self.lock:
            if self.store.get("configmaps", YUNIKORN_NAMESPACE, name) is None:
                manifest = manifests.config_map_manifest(name, YUNIKORN_NAMESPACE, {key: text})
                self.store.create("configmaps", manifest)
                return

            def change(item: Object) -> None:
                item.setdefault("data", {})[key] = text

            self.store.edit("configmaps", YUNIKORN_NAMESPACE, name, change)

    def queues_text(self, *, name: str = YUNIKORN_CONFIGS, key: str = "queues.yaml") -> str:
        config_map = self.get("configmaps", name, YUNIKORN_NAMESPACE) or {}
        return str((config_map.get("data") or {}).get(key, ""))
