"""Test of `dnm test-load` with dnm's own account and the role that docs/production.md gives it."""

from __future__ import annotations

from tests.real.account import commands
from tests.real.conftest import MakeSite
from tests.real.rig import Rig

BINDING = "/apis/rbac.authorization.k8s.io/v1/namespaces/dev/rolebindings/dnm-test-load"


def test_validation_load_is_created_changed_and_deleted(rig: Rig, make_site: MakeSite) -> None:
    site = make_site()
    refused = site.dnm("test-load", "dev", "--replicas", "5", code=1)
    assert "403" in refused.stderr and "permission to create deployments" in refused.stderr
    rig.shell(commands("8. One node").partition("\ndnm test-load")[0])
    try:
        for replicas in ("5", "3"):
            created = site.dnm("test-load", "dev", "--replicas", replicas)
            assert f"running: {replicas} of {replicas} pods" in created.stdout, created
        missing = site.dnm("test-load", "dve", "--queue", "root.default", "--delete", code=2)
        assert "did you mean 'dev'?" in missing.stderr, missing
        deleted = site.dnm("test-load", "dev", "--delete")
        assert deleted.stdout == "deleted Deployment dev/dnm-test-load and its pods\n"
        rig.wait_for(lambda: not rig.pods("dev"), "the load is gone")
    finally:
        rig.api.delete(BINDING)
