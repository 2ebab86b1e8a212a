"""Test that dnm and each version of YuniKorn sum up the same requests for pods of every kind."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.documented import documented
from tests.real.http_api import Json
from tests.real.pod_kinds import GIB, KINDS, Kind, make_runtime_class
from tests.real.rig import Rig
from tests.real.site import Site
from tests.real.versions import YUNIKORNS

CHILDREN = "\n".join(f"              - name: {kind.name}" for kind in KINDS)
NAMES = [kind.name for kind in KINDS]
SIDECARS = ["sidecar", "init-and-sidecar"]  # 1.6 to 1.8 count these twice
OF_YUNIKORN, OF_DNM = ("vcore", "memory"), ("cpu", "memory")
Sums = dict[str, dict[str, tuple[int, int]]]  # kind -> used, pending -> (CPU, memory)


@pytest.fixture(params=YUNIKORNS)
def busy_rig(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Rig]:
    """Adds pods of each kind, in a queue and a namespace for the kind, and waits until they run."""
    rig.use_scheduler(request.param)
    text = QUEUES.rstrip().splitlines()
    assert text[-1].lstrip().startswith("- name: sums")
    rig.write_queues("\n".join([*text, "            queues:", CHILDREN, ""]))
    rig.wait_for(lambda: rig.queue("root.sums.plain"), "YuniKorn knows the queues")
    make_runtime_class(rig)
    for kind in KINDS:
        rig.create("/api/v1/namespaces", {"metadata": {"name": kind.name}})
        for manifest in kind.pods(f"root.sums.{kind.name}"):
            rig.api.post(f"/api/v1/namespaces/{kind.name}/pods", manifest)
    for kind in KINDS:
        rig.wait_for(partial(is_bound, rig, kind), f"the pods of {kind.name} are bound")
    try:
        # The DaemonSet's pods run first; then the kubelets end no more pods.
        for kind in sorted(KINDS, key=lambda kind: kind.name != "daemonset"):
            kind.act(rig, kind.name)
            rig.servers["kwok"].send(signal.SIGSTOP)
        yield rig
    finally:
        rig.servers["kwok"].send(signal.SIGCONT)


def is_bound(rig: Rig, kind: Kind) -> bool:
    running = [pod for pod in rig.pods(kind.name) if pod["status"].get("phase") == "Running"]
    return len(running) == kind.bound


def scheduler_sums(rig: Rig) -> Sums:
    results = {}
    for kind in KINDS:
        queue = rig.queue(f"root.sums.{kind.name}")
        results[kind.name] = {
            "used": amounts(queue.get("allocatedResource") or {}, OF_YUNIKORN),
            "pending": amounts(queue.get("pendingResource") or {}, OF_YUNIKORN),
        }
    return results


def amounts(resources: Json, names: tuple[str, str]) -> tuple[int, int]:
    return tuple(int(resources.get(name, 0)) for name in names)  # type: ignore[return-value]


def dnm_sums(site: Site) -> Sums:
    queues = {q["queue"]: q for q in site.json("status", "--live")["queues"]}
    return {
        kind.name: {
            which: amounts(queues[f"root.sums.{kind.name}"][which], OF_DNM)
            for which in ("used", "pending")
        }
        for kind in KINDS
    }


def settled(rig: Rig) -> Sums:
    """Returns the scheduler's sums once they have not changed for a second."""
    last: list[Sums] = []

    def is_still() -> bool:
        last.append(scheduler_sums(rig))
        time.sleep(1)
        return len(last) > 1 and last[-1] == last[-2]

    rig.wait_for(is_still, "YuniKorn's sums rest")
    return last[-1]


def shown(amounts: tuple[int, int]) -> str:
    """Formats amounts as `6 vcore, 11 GiB`, or as a dash if they are zero."""
    vcore, memory = amounts
    return f"{vcore / 1000:g} vcore, {memory / GIB:.4g} GiB" if vcore or memory else "-"


@pytest.mark.parametrize("asked", ["asks the scheduler", "reads the pods"])
def test_dnm_and_the_scheduler_count_the_same_amounts(
    busy_rig: Rig, make_site: MakeSite, asked: str
) -> None:
    """Without yunikorn_url, dnm does not know the release, and counts sidecars as 1.9 does."""
    is_asked = asked == "asks the scheduler"
    queue_map = {kind.name: f"root.sums.{kind.name}" for kind in KINDS}
    more = {} if is_asked else {"yunikorn_url": None}
    site = make_site(queue_map=queue_map, max_converted_nodes=0, **more)
    theirs, own_instance = settled(busy_rig), dnm_sums(site)
    version = busy_rig.versions()["YuniKorn"]
    print(f"\nYuniKorn {version}, dnm {asked}")
    for kind in KINDS:
        his, own = theirs[kind.name], own_instance[kind.name]
        line = f"| {kind.name} | {shown(his['used'])} | {shown(his['pending'])} |"
        print(line if his == own else f"{line} but dnm {own}")
    wrong = [kind.name for kind in KINDS if theirs[kind.name] != own_instance[kind.name]]
    assert wrong == ([] if is_asked or not version.startswith("1.8") else SIDECARS)
    results = {name: (shown(sums["used"]), shown(sums["pending"])) for name, sums in theirs.items()}
    assert results == documented("kind of pod", version)
    rows = [check["remedy"] for check in site.json("check", code=None)["checks"]]
    remedy = "set yunikorn_url" if not is_asked else "upgrade YuniKorn to 1.9"
    is_needed = not is_asked or version.startswith("1.8")
    assert any(item.startswith(remedy) for item in rows) == is_needed, rows
