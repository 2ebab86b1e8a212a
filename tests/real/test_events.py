"""Test of Events on a real API server, with the role of etc/rbac.yaml: kubectl shows them for a
lent node and for a pod that waits in vain."""

from __future__ import annotations

from tests.real.conftest import MakeSite
from tests.real.rig import Rig
from tests.real.site import add_pods

BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/dynamic-node-manager-events"


def test_kubectl_describe_shows_node_events_and_the_wait_reason_of_a_pod(
    rig: Rig, make_site: MakeSite
) -> None:
    """Only one node may be lent, so that 41 of 60 pods of 16 GiB fit into the queue."""
    site = make_site(max_converted_nodes=1)
    add_pods(rig, 60)
    site.run_until(lambda: site.lent and rig.running("dev") == 41, "one node is lent")
    site.dnm("run")
    (lent,) = site.lent
    node = rig.shell(f"kubectl describe node {lent}")
    for reason in ("NodeLent", "NodeServing"):
        assert reason in node and "dynamic-node-manager/dnm" in node, node
    own = {pod["metadata"]["uid"] for pod in rig.pods("dev")}  # and none of an earlier story's
    waiting = [
        item["regarding"]["name"]
        for item in rig.api.get("/apis/events.k8s.io/v1/namespaces/dev/events")["items"]
        if item["reason"] == "NoNodeLent" and item["regarding"]["uid"] in own
    ]
    output = rig.shell(f"kubectl describe pod -n dev {waiting[0]}")
    assert "NoNodeLent" in output and "a cap is reached" in output, output
    assert len(waiting) <= 3, waiting


def test_run_without_event_permission_succeeds_and_check_reports_it(
    rig: Rig, make_site: MakeSite
) -> None:
    binding = rig.api.get(BINDING)
    rig.api.delete(BINDING)
    try:
        site = make_site()
        add_pods(rig, 30)
        runs = site.run_until(lambda: rig.running("dev") == 30, "all run")
        assert not [line for run in runs for line in run.stdout.splitlines() if "Event" in line]
        assert all(run.returncode == 0 for run in runs)
        (output,) = [line for line in site.dnm("check", "--wide", code=None).stdout.splitlines()
                   if "create events" in line]  # fmt: skip
        assert output.startswith(("!", "-")), output
    finally:
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            binding["metadata"].pop(field, None)
        rig.create(BINDING.rpartition("/")[0], binding)
