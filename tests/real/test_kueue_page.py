"""Test of the page docs/kueue.md, by its own commands, manifest and ini."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.real.kueue import IN_DEV, OBJECTS, named
from tests.real.kueue_site import (
    OWN_LABELS,
    QUEUE,
    SETTINGS,
    add_job,
    end_job,
    is_active,
    return_all,
)
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import Site
from tests.real.unmanaged import places, taint_nodes

PAGE = (REPOSITORY / "docs" / "kueue.md").read_text()
NONE = (REPOSITORY / "docs" / "none.md").read_text()


def blocks(language: str, page: str = PAGE) -> list[str]:
    """Returns the code blocks of a page in a language, without indent."""
    texts = re.findall(rf"^   ```{language}\n(.*?)^   ```$", page, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", str(text), flags=re.MULTILINE) for text in texts]


def make_queue(rig: Rig) -> None:
    """Creates the ClusterQueue with the fields that the page shows, and a LocalQueue in dev."""
    (text,) = blocks("yaml")
    spec = {**yaml.safe_load(text)["spec"], "namespaceSelector": {}}
    for group in spec["resourceGroups"]:
        for flavor in group["flavors"]:
            for row in flavor["resources"]:
                row["nominalQuota"] = str(row["nominalQuota"])
    for name in ("k1", "k2"):
        rig.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": OWN_LABELS}})
    flavor = named("ResourceFlavor", "permanent", {"nodeLabels": OWN_LABELS})
    rig.api.post(f"{OBJECTS}/resourceflavors", flavor)
    rig.api.post(f"{OBJECTS}/clusterqueues", named("ClusterQueue", QUEUE, spec))
    queue = {"clusterQueue": QUEUE}
    rig.api.post(f"{IN_DEV}/localqueues", named("LocalQueue", "course", queue, namespace="dev"))
    rig.wait_for(lambda: is_active(rig), "the ClusterQueue is active")


def write_ini(site: Site, kubeconfig: Path) -> None:
    """Writes the ini of docs/none.md with the lines of the page; only paths differ."""
    (text,) = blocks("ini", NONE)
    (own,) = blocks("ini")
    paths = f"kubeconfig_path = {kubeconfig}\nstate_dir = {site.directory / 'state'}\n"
    for line in (own + paths).splitlines():
        key = line.partition(" = ")[0]
        text, count = re.subn(rf"^{key} = .*$", line, text, flags=re.MULTILINE)
        assert count == 1, key
    text = text.replace("[settings]\n", f"[settings]\nnode_convert_path = {site.converter}\n")
    site.config.write_text(f"{text}\n[lab]\npending_grace_seconds = 0\n")


def test_page_leads_from_the_role_to_returned_nodes(
    kueue_rig: Rig, kubeconfig_without_yunikorn: Path, tmp_path: Path
) -> None:
    rig = kueue_rig
    role, flavor = blocks("sh")
    created = rig.shell(
        f"cd {REPOSITORY}/etc\nkubectl delete --ignore-not-found -f rbac-kueue.yaml\n{role}"
    )
    assert len(re.findall(r" created$", created, re.MULTILINE)) == 2, created
    created = rig.shell(flavor).strip()
    assert created and f"It prints `{created}`" in PAGE
    make_queue(rig)
    site = Site(rig, tmp_path / "site", kubeconfig_without_yunikorn, **SETTINGS)
    taint_nodes(site)
    write_ini(site, kubeconfig_without_yunikorn)

    site.dnm("run")
    site.dnm("check")
    add_job(rig, "workshop", 60)
    rig.wait_for(lambda: "queue dev: lend" in site.dnm("plan").stdout, "the Job needs nodes")

    assert "4 of type a" in site.dnm("explain", "dev/workshop").stdout
    assert "requested 4 nodes for dev" in site.dnm("run").stdout
    site.run_until(lambda: rig.running("dev") == 60, "every pod runs", 120)
    assert places(rig, "dev") == set(site.lent) and len(site.lent) == 4
    end_job(rig, "workshop")
    site.dnm("return", *site.lent)
    return_all(rig, site)
    assert all(f"`{text}`" in PAGE for text in ("queue dev: lend", "requested 4 nodes for dev"))
