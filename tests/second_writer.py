"""Another client of the sandbox's API server that writes Nodes, as kubelets and operators do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dnm.lab.sandbox.cluster import Sandbox


@contextmanager
def second_writer(sandbox: Sandbox) -> Iterator[None]:
    """Writes each Node ten times a second. Also makes the sandbox refuse three of four patches of
    Nodes, as if this client had been faster, since real conflicts depend on the machine."""
    stop = threading.Event()
    writes = 0

    def write(node: dict[str, Any]) -> None:
        node["metadata"].setdefault("annotations", {})["tests.example.org/written"] = str(writes)

    def run() -> None:
        nonlocal writes
        while not stop.wait(0.1):
            writes += 1
            with sandbox.lock:
                for node in sandbox.objects("nodes"):
                    sandbox.edit("nodes", node["metadata"]["name"], write)

    fault = {"path": "/nodes/", "methods": ("PATCH",), "code": 409, "chance": 0.75}
    sandbox.fault("status", **fault)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sandbox.faults.clear()
