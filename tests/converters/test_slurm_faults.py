"""Tests of a faulty node on a real Slurm. After its return it is drained without a mark, until an
administrator resumes it. A node that a health check drains while it is claimed is never lent."""

from __future__ import annotations

import signal

from tests.slurm_lab import SlurmSite, needs_slurm

pytestmark = needs_slurm

FAULT = "Healthy:False"


def test_faulty_node_stays_drained_in_a_real_slurm_until_resumed(site: SlurmSite) -> None:
    name = "a001"
    assert site.run("--set", "k8s", "--node-name", name, "--namespace", "dev").returncode == 0
    returned = site.run("--set", "batch", "--node-name", name, "--leave-drained", FAULT)
    assert returned.returncode == 0, returned.stderr
    node = site.lab.client.read_node(name)
    assert "DRAIN" in node.state.flags and node.state.base == "IDLE"
    assert node.reason == f"faulty in Kubernetes: {FAULT}"
    assert not (node.comment.startswith("dnm:") or (node.extra or "").startswith("dnm:"))
    assert not site.lab.client.read_reservations()
    refused = site.run("--set", "k8s", "--node-name", name, "--namespace", "dev")
    assert refused.returncode == 1 and "faulty in Kubernetes" in refused.stderr
    again = site.run("--set", "batch", "--node-name", name, "--leave-drained", FAULT)
    assert again.returncode == 0, again.stderr  # there is nothing left to do
    site.lab.run("scontrol", "update", f"nodename={name}", "state=resume")
    site.assert_in_service(name)


def test_claimed_node_drained_by_a_health_check_is_not_lent(site: SlurmSite) -> None:
    """Drains as NHC's node-mark-offline does, which works although dnm has reserved the node."""
    name = "a001"
    assert site.run("--set", "k8s", "--node-name", name, "--namespace", "dev").returncode == 0
    assert site.lab.client.read_reservations()
    nhc = "NHC: check_hw_ib: no link"
    site.lab.run("scontrol", "update", "State=DRAIN", f"NodeName={name}", f"Reason={nhc}")
    assert site.lab.client.read_node(name).reason.startswith(nhc)
    returned = site.run("--set", "batch", "--node-name", name, "--leave-drained", FAULT)
    assert returned.returncode == 0 and "left drained" in returned.stderr, returned.stderr
    node = site.lab.client.read_node(name)
    assert "DRAIN" in node.state.flags and node.reason.startswith(nhc), "it was there first"
    assert not site.lab.client.read_reservations()
    refused = site.run("--set", "k8s", "--node-name", name, "--namespace", "dev")
    assert refused.returncode == 1 and "NHC" in refused.stderr


DOWN = """#!/bin/sh
# As a boot leaves it: DOWN, with the drain and the Reason that it had.
reason=$(scontrol show node "$1" | sed -n 's/^ *Reason=\\(.*\\) \\[.*/\\1/p')
exec scontrol update nodename="$1" state=down reason="$reason"
"""


def test_faulty_node_never_serves_after_a_kill(site: SlurmSite) -> None:
    """dnm resumes a DOWN node before it drains it again. A kill between both leaves no drain."""
    health = site.hooks / "health"
    health.write_text(DOWN)
    health.chmod(0o755)
    for name, point in {"a001": "resume:after", "a002": "drain:before"}.items():
        assert site.run("--set", "k8s", "--node-name", name, "--namespace", "dev").returncode == 0
        arguments = ("--set", "batch", "--node-name", name, "--leave-drained", FAULT)
        killed = site.run(*arguments, DNM_FAULT=f"slurm.{point}:kill")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        assert "DRAIN" not in site.lab.client.read_node(name).state.flags
        assert site.run(*arguments).returncode == 0
        node = site.lab.client.read_node(name)
        assert "DRAIN" in node.state.flags and node.reason == f"faulty in Kubernetes: {FAULT}", (
            point
        )
        assert not site.lab.client.read_reservations()
