"""Tests of a JupyterHub with a workshop of 75 people, by the commands of docs/resource-quota.md,
and of the same hub without a quota."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.real import jupyterhub
from tests.real.jupyterhub import PAGE, PEOPLE, PLACEHOLDER_PRIORITY, USER_PRIORITY
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.slurm_site import SlurmSite
from tests.real.unmanaged import NODE_TYPE, UNMANAGED, apply_policies, make_guest
from tests.real_slurm import SlurmLab

QUOTA = "/api/v1/namespaces/dev/resourcequotas/hub"
RANGE = "/api/v1/namespaces/dev/limitranges/hub"
PERMANENT = {"k1", "k2"}
PLACEHOLDERS = "user-placeholder"


@pytest.fixture
def hub_rig(plain_rig: Rig) -> Iterator[Rig]:
    """Yields a real cluster with the policies and the hub's scheduler, but without the hub."""
    rig = plain_rig
    make_guest(rig)
    apply_policies(rig)
    jupyterhub.add_priorities(rig)
    jupyterhub.start_user_scheduler(rig)
    play(rig, "kubectl delete --ignore-not-found -f rbac-resource-quota.yaml")
    yield rig
    rig.servers.pop(jupyterhub.USER_SCHEDULER).stop()
    for path in (QUOTA, RANGE):
        rig.api.delete(path)
    for name in jupyterhub.PRIORITIES:
        rig.api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    rig.shell(f"kubectl label node k1 k2 {jupyterhub.PURPOSE}-")
    rig.remove_guards()


def play(rig: Rig, text: str) -> str:
    return rig.shell(f"cd {REPOSITORY}/etc\n{text}")


def settings() -> dict[str, Any]:
    """Returns the keys of the configuration that the page adds to those of docs/none.md."""
    parser = ConfigParser()
    parser.read_string("[settings]\n" + jupyterhub.blocks("ini")[0])
    return dict(parser["settings"])


def site_of(
    rig: Rig, directory: Path, kubeconfig: Path, lab: SlurmLab, **more: Any
) -> SlurmSite:  # fmt: skip
    own = {**UNMANAGED, "monitored_namespaces": "dev", "batch_floor": "50%", **more}
    rig.note_versions({"Slurm": lab.release})
    return SlurmSite(rig, directory, kubeconfig, lab, node_type=NODE_TYPE, **own)


def stored(rig: Rig) -> dict[str, str]:
    """Returns limits and annotations of the quota, except the one that names the host."""
    quota = rig.api.get(QUOTA)
    notes = quota["metadata"].get("annotations") or {}
    return {**quota["spec"]["hard"], **{k: v for k, v in notes.items() if "/fence" not in k}}


def places(rig: Rig, component: str) -> set[str | None]:
    return {pod["spec"].get("nodeName") for pod in jupyterhub.pods_with(rig, component)}


def install(rig: Rig) -> str:
    """Runs the page's commands for the cluster, and installs the hub. Returns the output."""
    role, quota, label, _ = jupyterhub.blocks("sh")
    printed = play(rig, role) + play(rig, quota) + play(rig, label)
    jupyterhub.install_hub(rig)
    rig.wait_for(lambda: rig.running("dev") == 4, "hub, proxy and two image pullers run")
    return printed


def test_page_leads_a_hub_to_a_workshop_and_back(
    hub_rig: Rig, kubeconfig_without_yunikorn: Path, lab: SlurmLab, tmp_path: Path
) -> None:
    """An event lends the nodes before the workshop begins, so that no user is refused."""
    rig = hub_rig
    printed = install(rig)
    for line in ("resourcequota/hub created", "limitrange/hub created", "node/k1 labeled"):
        assert f"`{line}`" in PAGE and line in printed
    assert "six lines with `created`" in " ".join(PAGE.split())
    roles = [line for line in printed.splitlines() if line.startswith(("role", "clusterrole"))]
    assert len([line for line in roles if line.endswith(" created")]) == 6, printed
    before = stored(rig)
    site = site_of(rig, tmp_path / "site", kubeconfig_without_yunikorn, lab, **settings())
    site.dnm("run")
    checked = site.dnm("check", "--wide").stdout
    assert "ResourceQuota dev/hub: requests.cpu 80" in checked
    begins = datetime.now(UTC) + timedelta(minutes=20)
    (*command,) = shlex.split(jupyterhub.blocks("sh")[-1])
    command[command.index("--from") + 1] = f"{begins:%Y-%m-%d %H:%M}"
    command[command.index("--until") + 1] = f"{begins + timedelta(hours=8):%Y-%m-%d %H:%M}"
    assert "event workshop is added: 75 pods of 4 cpu" in site.dnm(*command[1:]).stdout
    assert "queue dev: lend" in site.dnm("plan", "--at", f"{begins:%Y-%m-%d %H:%M}").stdout
    runs = site.run_until(lambda: stored(rig)["requests.cpu"] == "592",
                          "the nodes of the event serve", 120)  # fmt: skip
    shown = "".join(run.stdout for run in runs)
    assert "requested 4 nodes for dev" in shown and "limit 80 -> 592 requests.cpu" in shown, shown
    assert [jupyterhub.spawn(rig, number) for number in range(PEOPLE)] == [""] * PEOPLE
    site.run_until(lambda: jupyterhub.running(rig) == PEOPLE, "every server runs", 120)
    assert len(site.lent) == 4
    assert places(rig, "hub") | places(rig, "proxy") <= PERMANENT
    assert places(rig, "singleuser-server") <= PERMANENT | set(site.lent)
    jupyterhub.end_servers(rig)
    site.dnm("event", "remove", "workshop")
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert stored(rig) == before and rig.nodes() == PERMANENT
    site.assert_slurm_is_clean()


def test_refused_server_leaves_nothing_so_headroom_lends_before(
    hub_rig: Rig, kubeconfig_without_yunikorn: Path, lab: SlurmLab, tmp_path: Path
) -> None:
    """The quota refuses users' pods, and leaves nothing that waits. So `headroom` lends nodes
    before it is full, and users try again."""
    rig, kubeconfig = hub_rig, kubeconfig_without_yunikorn
    install(rig)
    before = stored(rig)
    placeholders = jupyterhub.add_placeholders(rig, 19, PLACEHOLDER_PRIORITY)
    rig.wait_for(lambda: jupyterhub.running(rig, PLACEHOLDERS) == 19, "they fill the quota")
    assert "exceeded quota" in jupyterhub.spawn(rig, 0, USER_PRIORITY)
    assert jupyterhub.running(rig, PLACEHOLDERS) == 19
    rig.api.delete(placeholders)
    rig.wait_for(lambda: not jupyterhub.pods_with(rig, PLACEHOLDERS), "the quota is free again")
    waiting = list(range(100, 100 + PEOPLE))  # other names than in the first story
    while not (message := jupyterhub.spawn(rig, waiting[0])):
        del waiting[0]
    assert len(waiting) == PEOPLE - 19
    assert "exceeded quota: hub, requested: requests.cpu=4," in message
    objects = rig.pods("dev") + rig.api.get("/api/v1/namespaces/dev/events")["items"]
    assert not [item for item in objects if f"user{waiting[0]}" in item["metadata"]["name"]]
    full = site_of(rig, tmp_path / "full", kubeconfig, lab, **{**settings(), "headroom": "1.0"})
    assert "queue dev: nothing" in full.dnm("plan").stdout

    site = site_of(rig, tmp_path / "site", kubeconfig, lab, **settings())

    def is_served() -> bool:
        for person in waiting[:5]:
            if not jupyterhub.spawn(rig, person):
                waiting.remove(person)
        return jupyterhub.running(rig) == PEOPLE

    site.run_until(is_served, "every server runs", 120)
    assert len(site.lent) == 5
    jupyterhub.end_servers(rig)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    assert stored(rig) == before and rig.nodes() == PERMANENT
    site.assert_slurm_is_clean()


def test_placeholders_without_a_quota_request_no_node(
    hub_rig: Rig, kubeconfig_without_yunikorn: Path, lab: SlurmLab, tmp_path: Path
) -> None:
    """32 of 40 placeholders fill the permanent nodes. Users' pods evict these and get nodes."""
    rig, kubeconfig = hub_rig, kubeconfig_without_yunikorn
    play(rig, jupyterhub.blocks("sh")[2])
    jupyterhub.install_hub(rig)
    jupyterhub.add_placeholders(rig, 40, PLACEHOLDER_PRIORITY)
    rig.wait_for(lambda: jupyterhub.running(rig, PLACEHOLDERS) == 32, "placeholders fill the nodes")
    site = site_of(rig, tmp_path / "site", kubeconfig, lab)
    for _ in range(3):
        site.dnm("run")
    answer = site.json("check")
    assert answer["ok"], answer
    assert site.lent == [] and "queue dev: nothing" in site.dnm("plan").stdout
    for number in range(PEOPLE):
        assert not jupyterhub.spawn(rig, number, USER_PRIORITY)
    site.run_until(lambda: jupyterhub.running(rig) == PEOPLE and site.lent, "all run", 120)
    assert len(site.lent) == 3
    assert places(rig, PLACEHOLDERS) <= {*PERMANENT, None}
    jupyterhub.end_servers(rig)
    site.run_until(site.has_returned_nodes, "every node is returned", 120)
    rig.wait_for(lambda: jupyterhub.running(rig, PLACEHOLDERS) == 32, "they fill the nodes again")
    assert site.dnm("run").stdout == "" and rig.nodes() == PERMANENT
    site.assert_slurm_is_clean()
