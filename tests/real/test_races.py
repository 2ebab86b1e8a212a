"""Tests of two hosts on one API server, and of a kill at any write of a lend and a return."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.account import KUBECONFIG
from tests.real.cluster import QUEUES
from tests.real.conftest import MakeSite
from tests.real.hosts import COUNT, host
from tests.real.http_api import Json
from tests.real.kills import Kind, killed_run
from tests.real.programs import HUNG, RigError
from tests.real.proxy import write_kubeconfig
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, Site, add_pods, request_one_node, with_nodes


def limit(rig: Rig) -> Json:
    return dict(rig.queue(DEV)["maxResource"])


def test_two_hosts_share_a_queue_and_a_document(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    """Two instances, each with its own host and nodes, repeatedly start runs at the same time. Each
    amount is in the document exactly once."""
    with ExitStack() as stack:
        sites: list[Site] = []
        for number in range(COUNT):
            enter, server = stack.enter_context(host(number))
            path = write_kubeconfig(KUBECONFIG, tmp_path / f"host{number}", server)
            letter = "ab"[number]
            site = make_site(
                f"site{number}", kubeconfig_path=path, instance_id=f"host{number}",
                machines=[f"{letter}{number:03}" for number in range(1, 5)], node_type=letter,
                max_converted_nodes=2, yunikorn_url=None, server=server,
            )  # fmt: skip
            site.command = [*enter, "dnm"]
            sites.append(site)
        add_pods(rig, 36, "16", "8Gi")

        def run_together() -> None:
            for process in [site.start("run") for site in sites]:
                message, errors = process.communicate(timeout=HUNG)
                print(message, errors)
                assert process.returncode in (0, 1), message + errors
                assert "Traceback" not in errors, errors

        def is_served() -> bool:
            run_together()
            lent = sum(len(site.lent) for site in sites)
            assert lent <= 4
            return rig.running("dev") == 36

        rig.wait_for(is_served, "every pod runs", 120)
        assert [len(site.lent) for site in sites] == [2, 2]
        assert limit(rig) == with_nodes(4)
        rig.api.ask("DELETE", PODS)

        def is_back() -> bool:
            run_together()
            return all(site.has_returned_nodes() for site in sites)

        rig.wait_for(is_back, "every node is returned", 120)
        assert rig.queues_text() == QUEUES


def run_until(
    rig: Rig, site: Site, is_so: Callable[[], bool], run: Callable[[], None], condition: str
) -> None:
    def is_there() -> bool:
        if is_so():
            return True
        run()
        # After any kill: one node at most, and it counts once or not at all.
        assert len(rig.nodes()) <= 3
        assert limit(rig) in (with_nodes(0), with_nodes(1))
        return False

    try:
        rig.wait_for(is_there, condition, 180)
    except RigError as error:
        raise RigError(f"{error}\n{site.dnm('status', code=None).stdout}") from error


def is_served(rig: Rig, site: Site) -> bool:
    return rig.running("dev") == 12 and limit(rig) == with_nodes(1) and len(site.lent) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_at_any_write_of_a_lend_and_a_return_is_repaired(
    rig: Rig, make_site: MakeSite, tmp_path: Path, when: str
) -> None:
    """`before`: the API server never gets the write. `after`: dnm never gets the answer."""
    site = make_site()
    lend: set[Kind] = set()
    request_one_node(rig)
    run_until(
        rig, site, lambda: is_served(rig, site),
        lambda: killed_run(site, KUBECONFIG, tmp_path, when, lend), "the pods run",
    )  # fmt: skip
    (node,) = site.lent
    return_nodes: set[Kind] = set()
    rig.api.ask("DELETE", PODS)
    run_until(
        rig, site, site.has_returned_nodes,
        lambda: killed_run(site, KUBECONFIG, tmp_path, when, return_nodes), "the node is returned",
    )  # fmt: skip
    assert rig.queues_text() == QUEUES and not rig.has_ledger()
    print(when, lend, return_nodes)
    # The node's mark and its fence, the acting run's Lease, the limits, and the Events. Only the
    # first run creates the Lease.
    both = {
        ("PATCH", node), ("PATCH", "dnm-real"), ("PUT", "yunikorn-configs"), ("POST", "events"),
    }  # fmt: skip
    assert lend == both | {("POST", "leases")} and return_nodes == both
