"""Tests of `dnm check` on real clusters with a fault: it names the fault and the next step."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import DEV


def kill_scheduler(rig: Rig) -> None:
    rig.servers["yunikorn"].stop(signal.SIGKILL)


def scheduler_hangs(rig: Rig) -> None:
    rig.servers["yunikorn"].send(signal.SIGSTOP)


def kill_api_server(rig: Rig) -> None:
    rig.servers["kube-apiserver"].stop(signal.SIGKILL)


def api_hangs(rig: Rig) -> None:
    rig.servers["kube-apiserver"].send(signal.SIGSTOP)


def child_above_its_parent(rig: Rig) -> None:
    """Sets a queue's limit above its parent's, which no admission controller refuses here."""
    rig.write_queues(QUEUES.replace("vcore: 100\n", "vcore: 1000\n"))


def remove_queue(rig: Rig) -> None:
    rig.write_queues(QUEUES.replace("- name: dev ", "- name: devel "))


def no_document(rig: Rig) -> None:
    rig.api.patch(rig.config_map, {"data": {"queues.yaml": None}})


# fault -> the check that fails, and words of its text or remedy
UNWELL: dict[str, tuple[Callable[[Rig], None], str, str]] = {
    "the scheduler is gone": (kill_scheduler, "YuniKorn", "does not answer"),
    "the scheduler hangs": (scheduler_hangs, "YuniKorn", "does not answer"),
    "the API server is gone": (kill_api_server, "Kubernetes", "that it is up"),
    "the API server hangs": (api_hangs, "Kubernetes", "no complete answer in its time"),
    "a child above its parent": (child_above_its_parent, "queue document", "max vcore 1000 is"),
    "a queue is gone": (remove_queue, "queue of dev", f"there is no {DEV}"),
    "there is no document": (no_document, "queue of dev", f"there is no {DEV}"),
}


@pytest.mark.parametrize("name", UNWELL)
def test_check_names_each_problem_of_a_real_cluster(
    rig: Rig, make_site: MakeSite, name: str
) -> None:
    break_it, check, words = UNWELL[name]
    site = make_site(request_timeout_seconds=5)
    site.dnm("run")
    break_it(rig)
    try:
        answer = site.json("check", code=1)
    finally:
        for server in rig.servers.values():
            server.send_if_up(signal.SIGCONT)
    assert not answer["ok"]
    failed = [check for check in answer["checks"] if check["result"] == "failed"]
    rows = [item for item in failed if item["check"] == check and words in f"{item}"]
    assert rows, failed
