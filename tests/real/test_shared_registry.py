"""Tests of moving the registry into a real API server and back, with the roles of etc/rbac.yaml."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from tests.real.cluster import LEASE, SECRET
from tests.real.conftest import MakeSite
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import add_pods


def test_registry_move_there_and_back_keeps_lent_nodes(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    site = make_site(instance_id="prod", max_converted_nodes=2)
    add_pods(rig, 24, "16", "8Gi")
    site.run_until(lambda: len(site.lent) == 2, "two nodes are lent")
    before = site.json("status")["nodes"]
    for kind in ("kubernetes", "file"):
        assert "with 2 lent nodes" in site.dnm("registry", "move", "--to", kind).stdout
        refused = site.dnm("run", code=2)
        assert f"set registry = {kind}" in refused.stderr
        text = site.config.read_text().replace("\nregistry = kubernetes", "")
        in_force = "\nregistry = kubernetes" if kind == "kubernetes" else ""
        site.config.write_text(text.replace("[settings]", f"[settings]{in_force}"))
        names = [node["node"] for node in site.json("status")["nodes"]]
        assert names == [node["node"] for node in before]
        site.dnm("check", code=None)
        site.dnm("run")


def test_deleted_secret_and_lease_are_restored_manually(
    rig: Rig, make_site: MakeSite, tmp_path: Path
) -> None:
    """An administrator restores both by the commands of docs/hosts.md."""
    page = (REPOSITORY / "docs" / "hosts.md").read_text()
    keep, put_back = (
        f"cd {tmp_path}; {line}" for line in re.findall(r"^.*dnm-prod\.yaml$|^sed .*$", page, re.M)
    )
    (make,) = re.findall(r"`(kubectl create secret .*)`", page)

    site = make_site(instance_id="prod", registry="kubernetes")
    site.dnm("pause", "--reason", "it burns")
    rig.shell(keep)
    rig.api.delete(LEASE)
    site.dnm("hold", "a001")
    number = rig.api.get(SECRET)["metadata"]["annotations"]["dynamic-node-manager/number"]
    assert int(number) == rig.api.get(LEASE)["spec"]["leaseTransitions"] == 2

    rig.api.delete(SECRET)
    assert "Restore it from a backup" in site.dnm("run", code=2).stderr
    rig.shell("kubectl create secret generic --namespace dnm dnm-prod")
    assert "it has no registry.json" in site.dnm("run", code=2).stderr
    rig.shell(put_back)
    assert "it burns" in site.dnm("status").stdout
    site.dnm("hold", "a002")

    document = rig.api.get(SECRET)["data"]["registry.json"]
    (tmp_path / "registry.json").write_bytes(base64.b64decode(document))
    rig.api.delete(SECRET)
    rig.shell(f"cd {tmp_path}; {make}")
    site.dnm("hold", "a003")
    assert site.json("status")["restrictions"]["held"] == ["a002", "a003"]
