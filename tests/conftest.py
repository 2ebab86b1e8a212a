"""Fixtures for every test.

`sandbox` is an embedded cluster behind HTTP on a free loopback port, in this process, with its own
directory. Its clock is stopped: nothing changes until `sandbox.tick(seconds)`, after which
everything that was due has happened in order. All durations are zero unless a test sets them
(`sandbox.timing.pod_start = 30`). In short:

    sandbox.kubeconfig, sandbox.url                the settings of a client
    sandbox.add_node("k1", cpu="128")              Kubernetes' own nodes
    sandbox.add_pods(75, "dev", queue="root.dev", cpu="4", memory="16G", run_seconds=600)
    sandbox.set_queues(text); sandbox.queues_text()
    sandbox.create(manifest); .get(plural, name, ns); .objects(plural); .edit(...); .delete(...)
    sandbox.cordon("k1"); .set_ready("k1", False); .finish_pods([...], "dev"); .bind(pod, node)
    sandbox.tick(); sandbox.tick(60)               bind, start, finish, join, leave

The batch side (`sandbox.batch` has its machines and jobs):

    sandbox.add_machines(8)                        a001 ... a008, idle
    sandbox.batch.start_job(["a001"]); .submit(2); .finish_job(number); .drain("a001", "fan")
    sandbox.node_convert_path                      an executable that keeps the converter's contract
    sandbox.node_convert("--set", "k8s", ...)      the same without a process
    sandbox.behave(direction="k8s", exit_code=1)   and everything else in conversion.Behaviour
    sandbox.return_manually("a001"); .join_manually("a001", "dev")
    sandbox.conversion.calls                       the converter's calls, with environment

Faults and records:

    sandbox.fault("status", path="configmaps", methods=("PATCH",), code=409, times=1)
    sandbox.access.restrict({("list", "pods", "dev"), ...}); .restrict_to_manifests(docs)
    sandbox.requests.lists("pods"); .writes(); .clear()
    sandbox.violations                             forbidden events of nodes

`live_sandbox` is the same in real time: a thread advances it, `tick` is not needed.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from dnm.lab.sandbox.cluster import Sandbox
from tests.reaper import pytest_cmdline_main, pytest_configure

__all__ = ["pytest_cmdline_main", "pytest_configure"]  # hooks

os.environ.pop("KUBERNETES_SERVICE_HOST", None)  # tests run as on a host, unless they set it

# A loaded machine is no failure, and a fixed seed judges the change and not chance. `make
# test-night` draws other examples, and prints failing ones for a replay.
settings.register_profile("anew", deadline=None, print_blob=True)
settings.register_profile("dnm", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("dnm")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    cluster = Sandbox(tmp_path / "sandbox").start()
    yield cluster
    cluster.stop()


@pytest.fixture
def live_sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    cluster = Sandbox(tmp_path / "sandbox", manual=False).start()
    yield cluster
    cluster.stop()


_LONG = ("tests/test_reaper.py", "tests/proof/", "tests/lab/test_workshop.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts tests that wait for Slurm first, then long ones: late ones would delay the end."""
    items.sort(key=lambda item: (
        item.get_closest_marker("slurm") is None, not item.nodeid.startswith(_LONG)
    ))  # fmt: skip


def pytest_collection_finish() -> None:
    """Checks that no imported module has cut dnm's logger off from caplog. Freezes the collected
    objects, since garbage collection over them cost a tenth of the suite."""
    assert logging.getLogger("dnm").propagate, "a test module set propagate = False at its import"
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the figures that tests record with `record_property("figures", ...)`."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, text in report.user_properties:
                if name == "figures" and report.when == "call":
                    terminalreporter.write_line(text)
