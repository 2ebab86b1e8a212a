"""Two hosts against one API server, and a kill between any two touches of a lend."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.account import KUBECONFIG
from tests.real.conftest import MakeSite
from tests.real.hosts import COUNT, host
from tests.real.proxy import Seen, proxied, write_kubeconfig
from tests.real.rig import QUEUES, Rig
from tests.real.site import Site, pod

DEV = "root.research.services.dev"
BASE, NODE = (100_000, 400 * 2**30), (128_000, 256 * 2**30)


def limit(rig: Rig) -> tuple[int, int]:
    found = rig.queue(DEV)["maxResource"]
    return found["vcore"], found["memory"]


def with_nodes(count: int) -> tuple[int, int]:
    return BASE[0] + count * NODE[0], BASE[1] + count * NODE[1]


def test_two_hosts_share_a_queue_and_a_document(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    """Two instances, each on a host of its own with nodes of its own, started together again and
    again: each amount stands in the document once."""
    with ExitStack() as stack:
        sites: list[Site] = []
        for number in range(COUNT):
            enter, server = stack.enter_context(host(number))
            path = write_kubeconfig(KUBECONFIG, tmp_path / f"host{number}", server)
            letter = "ab"[number]
            site = make_site(
                f"site{number}", kubeconfig_path=path, instance_id=f"host{number}",
                machines=[f"{letter}{one:03}" for one in range(1, 5)], node_type=letter,
                max_converted_nodes=2, yunikorn_url=None, server=server,
            )  # fmt: skip
            site.command = [*enter, "dnm"]
            sites.append(site)
        for number in range(36):
            rig.api.post("/api/v1/namespaces/dev/pods", pod(f"p{number:02}", DEV, "16", "8Gi"))

        def run_together() -> None:
            for process in [site.start("run") for site in sites]:
                said, errors = process.communicate(timeout=120)
                print(said, errors)
                assert process.returncode in (0, 1), said + errors
                assert "Traceback" not in errors, errors

        def is_served() -> bool:
            run_together()
            lent = sum(len(site.lent) for site in sites)
            assert lent <= 4
            return rig.running("dev") == 36

        rig.wait_for(is_served, "every pod runs", 120)
        assert [len(site.lent) for site in sites] == [2, 2]
        assert limit(rig) == with_nodes(4)
        rig.api.ask("DELETE", "/api/v1/namespaces/dev/pods")

        def is_back() -> bool:
            run_together()
            return all(site.has_given_back() for site in sites)

        rig.wait_for(is_back, "every node is back", 120)
        assert rig.queues_text() == QUEUES


def killed_run(site: Site, rig: Rig, tmp_path: Path, number: int, when: str) -> Seen | None:
    """One run through a proxy that kills it at its write of that number; what was written."""
    struck: list[Seen] = []
    with proxied(rig, KUBECONFIG, tmp_path) as proxy:
        site_kubeconfig(site, proxy.kubeconfig)
        process: list[subprocess.Popen[str]] = []

        def strike(seen: Seen) -> None:
            if seen.is_write and not struck and len(proxy.writes) == number:
                struck.append(seen)
                process[0].send_signal(signal.SIGKILL)
                process[0].wait()

        setattr(proxy, when, strike)
        process.append(site.start("run"))
        process[0].communicate(timeout=60)
    site_kubeconfig(site, KUBECONFIG)
    return struck[0] if struck else None


def site_kubeconfig(site: Site, path: Path) -> None:
    lines = site.config.read_text().splitlines()
    changed = [
        f"kubeconfig_path = {path}" if line.startswith("kubeconfig_path") else line
        for line in lines
    ]
    site.config.write_text("\n".join(changed) + "\n")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_write_of_a_lend_and_a_return_is_repaired(
    rig: Rig, make_site: MakeSite, tmp_path: Path, when: str
) -> None:
    """Before: the API server never hears of the write. After: dnm never hears of the answer. A
    lend and a return have five writes; each run below is killed at its first or its second."""
    site = make_site()
    struck: list[str] = []

    def run_killed() -> None:
        for number in (1, 2) if when == "before" else (1,):
            seen = killed_run(site, rig, tmp_path, number, when)
            if seen is not None:
                struck.append(f"{seen.method} {seen.path.rpartition('/')[2]}")
            assert len(rig.nodes()) <= 3
            assert limit(rig) in (BASE, with_nodes(1))

    for number in range(12):
        rig.api.post("/api/v1/namespaces/dev/pods", pod(f"p{number}", DEV, "16", "8Gi"))
    for _ in range(5):
        run_killed()
    site.run_until(lambda: rig.running("dev") == 12, "the pods run")
    assert limit(rig) == with_nodes(1) and len(site.lent) == 1
    rig.api.ask("DELETE", "/api/v1/namespaces/dev/pods")
    for _ in range(5):
        run_killed()
    site.run_until(site.has_given_back, "the node is back")
    assert rig.queues_text() == QUEUES and not rig.has_ledger()
    print(when, struck)
    assert any("configs" in one for one in struck) and any("a00" in one for one in struck), struck
