"""The keys of [settings] that dnm keeps from its predecessor: one test for each key, of its default
and its documented effect. No change of dnm may remove one.

`test_files.py` tests the files and all keys together, `test_behaviour.py` the behaviour."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.checks.permissions import permissions
from dnm.config.load import load_config
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from tests.site import QUEUE, WORKSHOP_QUEUES, Site, set_up_workshop

SITE_KEY = "site.example/queue"
YUNIKORN = {"schedulerName": "yunikorn"}
# Defaults of the predecessor's documentation, as dnm's values. None: the key is required there.
DEFAULTS: dict[str, Any] = {
    "kubeconfig_path": None,
    "max_converted_nodes": 30,
    "yunikorn_cm_namespace": "yunikorn",
    "yunikorn_cm_name": "yunikorn-configs",
    "yunikorn_queue_annotation": "yunikorn.apache.org/queue",
    "global_cooldown": timedelta(seconds=30),
    "default_request": {"cpu": 1000, "memory": 2 * 2**30},
}
WRONG = {
    "kubeconfig_path": "/a\n  /b",
    "monitored_namespaces": "dev, Dev_2",
    "reversion_idle_seconds": "soon",
    "check_interval_seconds": "0",
    "max_converted_nodes": "-1",
    "yunikorn_cm_namespace": "a.b",
    "yunikorn_cm_name": "Site_Queues",
    "yunikorn_queue_annotation": "a b",
    "node_cpu_capacity": "none",
    "node_memory_capacity": "256GB",
    "global_cooldown_seconds": "-5",
    "default_cpu_request_m": "1.5",
    "default_mem_request": "2GiB",
}


@pytest.fixture
def workshop(sandbox: Sandbox, tmp_path: Path) -> Site:
    """Builds a site with a queue of 80 cores, six idle machines, and no pods."""
    set_up_workshop(sandbox, 6)
    return Site(sandbox, tmp_path / "site")


def wait_in(sandbox: Sandbox, count: int, **more: Any) -> list[str]:
    return sandbox.add_pods(count, "dev", **{"queue": QUEUE, "cpu": "4", "memory": "4G", **more})


def limit(text: str) -> dict[str, str]:
    """Returns `max` of the queue of dev in a queue document."""
    root = yaml.safe_load(text)["partitions"][0]["queues"][0]
    (result,) = [queue for queue in root["queues"][0]["queues"] if queue["name"] == "dev"]
    return {name: str(amount) for name, amount in result["resources"]["max"].items()}


def pending(site: Site) -> dict[str, int]:
    return dict(site.plan().plan.seen[QUEUE].pending)


def conversions(site: Site) -> int:
    registry = site.registry
    return len(registry.nodes) + sum(request.count for request in registry.requests)


def minimal(directory: Path) -> Config:
    path = directory / "dnm.ini"
    text = "[settings]\nmonitored_namespaces = dev\nnamespace_queue_paths = queues.json\n"
    Site.write(path, text)
    Site.write(directory / "queues.json", '{"dev": "root.services.dev"}')
    return load_config(path, {})


def test_defaults_equal_the_documented_defaults_of_the_predecessor(tmp_path: Path) -> None:
    config = minimal(tmp_path)
    assert {field: getattr(config, field) for field in DEFAULTS} == DEFAULTS
    assert config.node_types["a"].size == {"cpu": 128_000, "memory": 256 * 10**9}


@pytest.mark.parametrize(("key", "value"), WRONG.items())
def test_invalid_value_ends_a_run_with_exit_code_2(workshop: Site, key: str, value: str) -> None:
    """The message names the key and the value."""
    workshop.change(**{key: value})
    done = workshop.command("run")
    assert done.returncode == 2
    assert f"[settings] {key} = {value.split()[0]}" in done.stderr


def test_kubeconfig_path_defaults_to_client_loading(
    sandbox: Sandbox, workshop: Site, tmp_path: Path
) -> None:
    """Without the key, the Kubernetes client reads $KUBECONFIG, then ~/.kube/config."""
    wait_in(sandbox, 1)
    assert workshop.plan().exit_code == 0
    workshop.change(kubeconfig_path="")
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True, mode=0o755)
    Site.write(home / ".kube" / "config", sandbox.kubeconfig.read_text())
    unset = {"KUBECONFIG": "", "HOME": str(tmp_path / "nobody")}
    assert workshop.command("plan", **unset).returncode != 0
    assert workshop.command("plan", **{**unset, "HOME": str(home)}).returncode == 0
    named = {**unset, "KUBECONFIG": str(sandbox.kubeconfig)}
    assert workshop.command("plan", **named).returncode == 0


def test_monitored_namespaces_limits_the_served_namespaces(
    sandbox: Sandbox, workshop: Site
) -> None:
    """The key is a comma-separated list. dnm serves exactly these namespaces."""
    Site.write(
        workshop.directory / "queues.json",
        f'{{"dev": "{QUEUE}", "notebook": "root.anvil.services.notebook"}}',
    )
    wait_in(sandbox, 25)
    notebook = "root.anvil.services.notebook"
    sandbox.add_pods(70, "notebook", queue=notebook, cpu="4", memory="4G")
    assert set(workshop.plan().plan.seen) == {QUEUE}
    workshop.change(monitored_namespaces="dev, notebook")
    assert set(workshop.plan().plan.seen) == {QUEUE, notebook}
    workshop.run_until_rest()
    lent = workshop.registry.nodes.values()
    assert {node.namespace for node in lent} == {"dev", "notebook"}


def test_reversion_idle_seconds_delays_a_return(sandbox: Sandbox, workshop: Site) -> None:
    """dnm returns a lent node once it has had no active pods for this long, and not before."""
    workshop.change(reversion_idle_seconds="600")
    pods = wait_in(sandbox, 25)
    workshop.run_until_rest()
    (name,) = workshop.lent()
    sandbox.tick(3600)
    workshop.run()
    assert workshop.lent() == [name]  # its pods are active
    sandbox.finish_pods(pods, "dev")
    workshop.run()
    sandbox.tick(590)
    workshop.run()
    assert workshop.lent() == [name]
    sandbox.tick(20)
    workshop.run_until_rest()
    assert workshop.lent() == []


def test_check_interval_seconds_defines_a_late_run(sandbox: Sandbox, workshop: Site) -> None:
    """The key is the interval between runs. dnm reports a run that is three intervals late."""
    workshop.change(check_interval_seconds="86400")
    workshop.command("run")
    assert workshop.command("status", "--health").returncode == 0
    workshop.change(check_interval_seconds="0.001")
    assert workshop.command("run").returncode == 2  # below a second: an error, not a note


@pytest.mark.parametrize("most", [0, 1, 2])
def test_max_converted_nodes_limits_all_namespaces_together(
    sandbox: Sandbox, workshop: Site, most: int
) -> None:
    """The cap holds at any time, for the nodes of all namespaces together."""
    workshop.change(max_converted_nodes=str(most))
    wait_in(sandbox, 100)
    workshop.run_until_rest()
    assert len(workshop.lent()) == most


@pytest.mark.parametrize("name", ["yunikorn-configs", "site-queues"])
def test_yunikorn_cm_name_selects_the_edited_config_map(
    sandbox: Sandbox, workshop: Site, name: str
) -> None:
    """dnm edits the ConfigMap of that name, and no other."""
    sandbox.set_queues(WORKSHOP_QUEUES, name="site-queues")
    workshop.change(yunikorn_cm_name="" if name == "yunikorn-configs" else name)
    wait_in(sandbox, 25)
    workshop.run_until_rest()
    limits = {
        item: limit(sandbox.queues_text(name=item))["vcore"]
        for item in ("yunikorn-configs", "site-queues")
    }
    assert limits == {**dict.fromkeys(limits, "80"), name: "208"}
    shown = workshop.command("queues", "show", "-o", "json").stdout
    assert f"configmap/yunikorn/{name}/queues.yaml" in shown
    asked = {
        permission.name
        for permission in permissions(workshop.config)
        if permission.verb == "update"
    }
    assert asked == {name}


def test_yunikorn_cm_namespace_selects_the_edited_config_map(
    sandbox: Sandbox, workshop: Site
) -> None:
    sandbox.add_namespace("sched")
    sandbox.create({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "yunikorn-configs", "namespace": "sched"},
        "data": {"queues.yaml": WORKSHOP_QUEUES},
    })  # fmt: skip
    workshop.change(yunikorn_cm_namespace="sched")
    wait_in(sandbox, 25)
    workshop.run_until_rest()
    results = sandbox.get("configmaps", "yunikorn-configs", "sched")
    assert results is not None and limit(results["data"]["queues.yaml"])["vcore"] == "208"
    assert limit(sandbox.queues_text())["vcore"] == "80"


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize("key", ["yunikorn.apache.org/queue", SITE_KEY])
def test_yunikorn_queue_annotation_assigns_a_pod_to_a_queue(
    sandbox: Sandbox, workshop: Site, key: str, place: str
) -> None:
    """A pod names its queue by this key, as an annotation or as a label."""
    if key == SITE_KEY:
        workshop.change(yunikorn_queue_annotation=SITE_KEY)
    metadata: dict[str, Any] = {place: {key: QUEUE}}
    sandbox.add_pods(25, "dev", cpu="4", memory="4G", spec=YUNIKORN, **metadata)
    assert pending(workshop)["cpu"] == 100_000


@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_configured_queue_annotation_precedes_that_of_yunikorn(
    sandbox: Sandbox, workshop: Site, place: str
) -> None:
    workshop.change(yunikorn_queue_annotation=SITE_KEY)
    other = "root.anvil.services.notebook"
    sandbox.add_namespace("dev")
    for number, (own, site_s) in enumerate([(other, QUEUE), (QUEUE, other)]):
        app = {"yunikorn.apache.org/app-id": f"app-{number}"}
        metadata: dict[str, Any] = {"labels": {"yunikorn.apache.org/queue": own, **app}}
        metadata[place] = {**metadata.get(place, {}), SITE_KEY: site_s}
        sandbox.add_pods(5, "dev", cpu="4", name=f"p{number}", spec=YUNIKORN, **metadata)
    assert pending(workshop)["cpu"] == 20_000


def test_node_capacity_sets_the_amount_that_a_lent_node_adds(
    sandbox: Sandbox, workshop: Site
) -> None:
    """node_cpu_capacity and node_memory_capacity are what a lent node adds to a limit."""
    sandbox.add_machine_type("c", cpu="64", memory="128G")
    sandbox.add_machines(3, "c")
    workshop.change(node_type="c", node_cpu_capacity="64", node_memory_capacity="128G")
    pods = wait_in(sandbox, 15)
    workshop.run_until_rest()
    assert limit(sandbox.queues_text()) == {"vcore": "144", "memory": "448G"}
    sandbox.finish_pods(pods, "dev")
    workshop.run()
    sandbox.tick(61)
    workshop.run_until_rest()
    assert limit(sandbox.queues_text()) == {"vcore": "80", "memory": "320G"}


@pytest.mark.parametrize(("cooldown", "waits"), [("", 30), ("300", 300), ("0", 0)])
def test_global_cooldown_seconds_separates_two_conversions(
    sandbox: Sandbox, workshop: Site, cooldown: str, waits: int
) -> None:
    """The cooldown is the time between two conversions, by a timestamp in the registry."""
    workshop.change(global_cooldown_seconds=cooldown, max_conversions_per_run="1")
    wait_in(sandbox, 80)
    workshop.run()
    if waits:
        sandbox.tick(waits - 5)
        workshop.run()
        assert conversions(workshop) == 1
    sandbox.tick(10)
    workshop.run()
    assert conversions(workshop) == 2


def test_default_requests_apply_to_pods_without_requests(sandbox: Sandbox, workshop: Site) -> None:
    """default_cpu_request_m and default_mem_request count for a pod that requests nothing."""
    sandbox.add_namespace("dev")
    for number in range(3):
        sandbox.create({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"bare-{number}", "namespace": "dev",
                         "labels": {"yunikorn.apache.org/queue": QUEUE}},
            "spec": {"schedulerName": "yunikorn", "containers": [{"name": "c", "image": "x"}]},
        })  # fmt: skip
    assert pending(workshop) == {"cpu": 3000, "memory": 6 * 2**30, "pods": 3}
    workshop.change(default_cpu_request_m="2500", default_mem_request="4Gi")
    assert pending(workshop) == {"cpu": 7500, "memory": 12 * 2**30, "pods": 3}
    wait_in(sandbox, 1)  # what declares something is counted as it declares
    assert pending(workshop) == {
        "cpu": 11_500, "memory": 12 * 2**30 + 4 * 10**9, "pods": 4
    }  # fmt: skip
