"""Test of the table in docs/node-pools.md about the effect of readiness checks on a workshop. The
sandbox plays it with kubelets that pull images."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.kubelet import Kubelet, creating_status
from dnm.lab.sandbox.store import Object
from dnm.model.opening import OPENING_TAINT
from tests.docs.pages import table_of
from tests.night import sample_by_day
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

PAGE, PEOPLE, PULL, STEP = "docs/node-pools.md", 75, 60, 5  # seconds
BROKEN = frozenset({"a002"})
LIST = "[node_type:a]\ncpu = 128\nmemory = 256G\nreadiness_checks = images within 5m\n"


class Pulling(Kubelet):
    """Kubelets that pull an image for the first pod of it on a node; on broken nodes, never."""

    broken: frozenset[str] = frozenset()

    def _advance(self, pod: Object) -> None:
        node = self.store.get("nodes", "", pod["spec"]["nodeName"])
        assert node is not None
        name, status = node["metadata"]["name"], node["status"]
        there = {name for image in status.get("images") or () for name in image["names"]}
        wanted = {container["image"] for container in pod["spec"]["containers"]} - there
        if pod["metadata"].get("deletionTimestamp") or not wanted:
            super()._advance(pod)
            return
        if "startTime" not in pod["status"]:
            self._write(pod, creating_status(self.clock.stamp()))
        is_due = [self._is_due(node["metadata"]["uid"], image, PULL) for image in sorted(wanted)]
        if all(is_due) and name not in self.broken:
            pulled = [{"names": [image]} for image in sorted({*there, *wanted})]
            self.store.edit("nodes", "", name, lambda item: item["status"].update(images=pulled))


class Seen(NamedTuple):
    """The results of one workshop: how long pods waited, and how many were never started."""

    first: int  # until a pod runs on a lent node
    last: int | None  # until all run; None: some never do
    stood: int  # bound to a lent node without running
    longest: int  # seconds of the longest of these that ran
    lost: int  # bound to one at the end

    @property
    def row(self) -> list[str]:
        last = "never" if self.last is None else minutes_and_seconds(self.last)
        previous = f"{self.stood} for {minutes_and_seconds(self.longest)}" if self.stood else "none"
        return [
            minutes_and_seconds(self.first),
            last,
            previous + (f", {self.lost} for ever" if self.lost else ""),
        ]


def minutes_and_seconds(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"


def play(site: Site, broken: frozenset[str]) -> Seen:
    """Plays a run each minute, until all pods run, or for twenty minutes."""
    sandbox = site.sandbox
    Pulling.broken = broken
    sandbox.add_pods(PEOPLE, "dev", queue=QUEUE, cpu="4", memory="16G")
    bound: dict[str, int] = {}
    running: dict[str, int] = {}
    for second in range(0, 20 * 60, STEP):
        if second % 60 == 0:
            site.run()
        if len(running) == PEOPLE:
            break
        sandbox.tick(STEP)
        for entry in sandbox.objects("pods"):
            name, node = entry["metadata"]["name"], entry["spec"].get("nodeName", "")
            if node.startswith("a") and not name.startswith("dnm-"):
                bound.setdefault(name, second)
                if entry["status"].get("phase") == "Running":
                    running.setdefault(name, second)
                assert entry["status"].get("phase") != "Failed"
    assert not sandbox.violations
    previous = [running[name] - begun for name, begun in bound.items() if name in running]
    lost = {*bound} - {*running}
    return Seen(
        first=min(running.values()),
        last=max(running.values()) if len(running) == PEOPLE else None,
        stood=sum(map(bool, previous)), longest=max(previous), lost=len(lost),
    )  # fmt: skip


CASES = [(steps, broken) for broken in (frozenset[str](), BROKEN) for steps in ("", LIST)]


@pytest.mark.parametrize(
    "number", sample_by_day(2, range(4)), ids=["plain", "list", "broken", "broken-list"]
)
def test_image_table_of_the_page_is_reproduced(
    sandbox: Sandbox, tmp_path: Path, number: int
) -> None:
    steps, broken = CASES[number]
    sandbox.kubelet = Pulling(sandbox.store, sandbox.timing)
    sandbox.timing.join, sandbox.timing.ready = 120, 30
    sandbox.set_queues(WORKSHOP_QUEUES)
    if steps:  # as node-convert configures the kubelet
        taint = {"key": OPENING_TAINT, "effect": "NoSchedule"}
        sandbox.add_machine_type("a", taints=[taint])
    sandbox.add_node("k001", cpu="1", memory="1G")
    sandbox.add_machines(8)
    sandbox.tick(1)
    result = play(Site(sandbox, tmp_path / "site", sections=steps), broken)
    assert result.row == table_of(PAGE, "Readiness checks", "75 people")[number][1:]
