"""Several hosts with one registry on a real API server, with the roles of etc/rbac.yaml: they start
together, one acts, and the registry is moved into the cluster and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import Site, pod

DEV = "root.research.services.dev"
ROUNDS = int(os.environ.get("DNM_PROOF_ROUNDS", "12"))
OBJECTS = (
    "/api/v1/namespaces/dnm/secrets/dnm-prod",
    "/apis/coordination.k8s.io/v1/namespaces/dnm/leases/dnm-prod",
)


@pytest.fixture(autouse=True)
def nothing_kept(rig: Rig) -> Iterator[None]:
    yield
    for path in OBJECTS:
        rig.api.delete(path)


def shared(make_site: MakeSite, name: str, **settings: object) -> Site:
    """A host: a name and a state directory of its own."""
    site = make_site(name, instance_id="prod", state="kubernetes", **settings)
    site.command = ["unshare", "--uts", "sh", "-c", f'hostname {name}; exec dnm "$@"', "dnm"]
    return site


def test_of_hosts_that_start_together_one_acts(rig: Rig, make_site: MakeSite) -> None:
    """Three of them, round after round; nodes are lent and returned as one host does it."""
    sites = [shared(make_site, name, max_converted_nodes=2) for name in ("east", "west", "north")]
    for one in sites[1:]:  # one converter, of one site
        one.config.write_text(
            one.config.read_text().replace(
                f"{one.directory}/node-convert", f"{sites[0].directory}/node-convert"
            )
        )
    for number in range(24):
        rig.api.post("/api/v1/namespaces/dev/pods", pod(f"p{number:02}", DEV, "16", "8Gi"))
    stood_by = 0
    for _ in range(ROUNDS):
        runs = [site.start("run") for site in sites]
        for run in runs:
            said, errors = run.communicate(timeout=180)
            assert run.returncode in (0, 75), said + errors
            stood_by += run.returncode == 75
        assert len(sites[0].lent) <= 2
    assert len(sites[0].lent) == 2 and stood_by
    assert [site.lent for site in sites[1:]] == [sites[0].lent] * 2
    lease = rig.api.get(OBJECTS[1])
    assert "holderIdentity" not in lease["spec"] and lease["spec"]["leaseTransitions"] >= 1
    print(f"rounds={ROUNDS} stood_by={stood_by} number={lease['spec']['leaseTransitions']}")


def test_there_and_back_with_nodes_lent(rig: Rig, make_site: MakeSite, tmp_path: Path) -> None:
    site = make_site(instance_id="prod", max_converted_nodes=2)
    for number in range(24):
        rig.api.post("/api/v1/namespaces/dev/pods", pod(f"p{number:02}", DEV, "16", "8Gi"))
    site.run_until(lambda: len(site.lent) == 2, "two nodes are lent")
    before = site.json("status")["nodes"]
    for kind in ("kubernetes", "file"):
        assert "with 2 lent nodes" in site.dnm("state", "move", "--to", kind).stdout
        refused = site.dnm("run", code=2)
        assert f"set state = {kind}" in refused.stderr
        text = site.config.read_text().replace("\nstate = kubernetes", "")
        in_force = "\nstate = kubernetes" if kind == "kubernetes" else ""
        site.config.write_text(text.replace("[settings]", f"[settings]{in_force}"))
        names = [node["node"] for node in site.json("status")["nodes"]]
        assert names == [node["node"] for node in before]
        site.dnm("check", code=None)
        site.dnm("run")
