"""Fixtures for every test.

`sandbox` is an embedded cluster behind HTTP on a free loopback port, in this process, with its own
directory. Its clock stands still: nothing moves until `sandbox.tick(seconds)`, after which
everything that was due has happened in order. All durations are zero unless a test sets them
(`sandbox.timing.pod_start = 30`). In short:

    sandbox.kubeconfig, sandbox.url            what a client needs
    sandbox.add_node("k1", cpu="128")          Kubernetes' own nodes
    sandbox.add_pods(75, "dev", queue="root.dev", cpu="4", memory="16G")
    sandbox.set_queues(text); sandbox.queues_text()
    sandbox.create(manifest); .get(plural, name, ns); .objects(plural); .edit(...); .delete(...)
    sandbox.cordon("k1"); .set_ready("k1", False); .finish_pods([...], "dev"); .bind(pod, node)
    sandbox.tick(); sandbox.tick(60)           bind, start, finish, join, leave
    sandbox.fault("status", path="configmaps", methods=("PATCH",), code=409, times=1)
    sandbox.access.restrict({("list", "pods", "dev"), ...}); .restrict_to_manifests(docs)
    sandbox.requests.lists("pods"); .writes(); .clear()
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dnm.sandbox.cluster import Sandbox


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    cluster = Sandbox(tmp_path / "sandbox").start()
    yield cluster
    cluster.stop()
