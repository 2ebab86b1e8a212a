"""`dnm test-load` with dnm's own account, and the role that docs/production.md gives it."""

from __future__ import annotations

from tests.real.account import commands
from tests.real.conftest import MakeSite
from tests.real.rig import Rig

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/dev/rolebindings"


def test_a_validation_load_where_the_account_may_and_where_not(
    rig: Rig, make_site: MakeSite
) -> None:
    """dev has the role, notebook has not: it is named in each answer, and the rest is done."""
    site = make_site()
    refused = site.dnm("test-load", "create", "--namespace", "dev", "--replicas", "5", code=1)
    assert "403" in refused.stderr and "deployments" in refused.stderr, refused
    rig.shell(commands("8. One node"))
    try:
        name = site.dnm("test-load", "create", "--namespace", "dev", "--replicas", "5")
        rig.wait_for(lambda: rig.running("dev") == 5, "the load runs")
        listed = site.dnm("test-load", "list", code=1)
        assert name.stdout.strip() in listed.stdout, listed
        assert "Deployments of namespace notebook" in listed.stderr, listed
        deleted = site.dnm("test-load", "delete", code=1)
        assert f"deleted {name.stdout.strip()} in dev" in deleted.stdout, deleted
        rig.wait_for(lambda: not rig.pods("dev"), "the load is gone")
    finally:
        rig.api.delete(f"{BINDINGS}/dnm-test-load")
