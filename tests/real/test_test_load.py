"""`dnm test-load`, applied and deleted by kubectl, as README says."""

from __future__ import annotations

from tests.real.conftest import MakeSite
from tests.real.rig import Rig


def test_a_validation_load_runs_and_is_deleted_by_its_label(rig: Rig, make_site: MakeSite) -> None:
    printed = make_site().dnm("test-load", "dev", "--replicas", "5").stdout
    rig.shell('kubectl apply -f - <<< "$LOAD"', LOAD=printed)
    rig.wait_for(lambda: rig.running("dev") == 5, "the load runs")
    rig.shell("kubectl delete deployments -A -l dynamic-node-manager/test-load")
    rig.wait_for(lambda: not rig.pods("dev"), "the load is gone")
