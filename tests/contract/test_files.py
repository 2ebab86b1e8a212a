"""The promises about files and the command that dnm keeps from its predecessor: one test for each.
Another test has the predecessor's ini on its path, with each key at a value that differs from its
default. No change of dnm may remove a promise."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dnm.lab.sandbox.cluster import Sandbox
from tests.contract.host import ETC, ROOT, Run, set_up_host
from tests.site import QUEUE, WORKSHOP_QUEUES, Site, set_up_workshop

INI = """\
[settings]
kubeconfig_path = {kubeconfig}
monitored_namespaces = dev, notebook
reversion_idle_seconds = 1
check_interval_seconds = 20
max_converted_nodes = 2
yunikorn_cm_namespace = sched
yunikorn_cm_name = site-queues
yunikorn_queue_annotation = site.example/queue
node_cpu_capacity = 64
node_memory_capacity = 128G
global_cooldown_seconds = 1
default_cpu_request_m = 4000
default_mem_request = 4Gi
"""


@pytest.fixture
def host(sandbox: Sandbox, tmp_path: Path) -> Run:
    """Returns a function that runs `dnm` on a host with the predecessor's files."""
    sandbox.clock.set(time.time() - 60)  # pods that wait for so long are counted
    return set_up_host(sandbox, tmp_path, INI.format(kubeconfig=sandbox.kubeconfig)).run


def limit(sandbox: Sandbox) -> str:
    results = sandbox.get("configmaps", "site-queues", "sched")
    assert results is not None
    root = yaml.safe_load(results["data"]["queues.yaml"])["partitions"][0]["queues"][0]
    (dev,) = [queue for queue in root["queues"][0]["queues"] if queue["name"] == "dev"]
    return str(dev["resources"]["max"]["vcore"])


def test_every_key_of_the_predecessor_takes_effect_on_its_own_paths(
    sandbox: Sandbox, host: Run, tmp_path: Path
) -> None:
    """dnm reads ini and queue map in /etc/dynamic-node, and calls the site's converter. It finds
    pods by the site's key and counts them by the default requests. It edits only the ConfigMap
    sched/site-queues, by 64 cores. Its registry is in /etc/dynamic-node. At most two nodes are
    lent, and returned when they are idle."""
    set_up_workshop(sandbox, 0)
    sandbox.add_machine_type("a", cpu="64", memory="128G")
    sandbox.add_machines(4)
    for namespace in ("sched", "dev"):
        sandbox.add_namespace(namespace)
    sandbox.create({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "site-queues", "namespace": "sched"},
        "data": {"queues.yaml": WORKSHOP_QUEUES},
    })  # fmt: skip
    untouched = sandbox.queues_text()
    for number in range(15):  # of 4 cores each by the default: one node of 64
        sandbox.create({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": "dev",
                         "annotations": {"site.example/queue": QUEUE}},
            "spec": {"schedulerName": "yunikorn", "containers": [{"name": "c", "image": "x"}]},
        })  # fmt: skip
    record = tmp_path / "host" / ETC / "converted_nodes.json"
    seen = json.loads(host("plan", "-o", "json").stdout)
    assert [queue["queue"] for queue in seen["queues"]] == sorted(
        ["root.anvil.services.dev", "root.anvil.services.notebook"]
    )
    grown, lent = [], []
    for _ in range(6):
        grown.append(run_once(sandbox, host, limit))
        lent.append(json.loads(record.read_text())["nodes"])
    assert "144" in grown and set(grown) <= {"80", "144", "208"}
    assert 1 <= max(map(len, lent)) <= 2
    assert {node["namespace"] for nodes in lent for node in nodes.values()} == {"dev"}
    calls = (tmp_path / "calls").read_text()
    assert "--set k8s" in calls and "--namespace dev" in calls
    for number in range(15):
        sandbox.delete("pods", f"p{number}", "dev")
    for _ in range(12):
        is_restored = run_once(sandbox, host, limit) == "80"
        if is_restored and not json.loads(record.read_text())["nodes"]:
            break
    assert json.loads(record.read_text())["nodes"] == {} and limit(sandbox) == "80"
    assert "--set batch --node-name" in (tmp_path / "calls").read_text()
    assert sandbox.queues_text() == untouched and sandbox.violations == []


def run_once(sandbox: Sandbox, host: Run, look: Callable[[Sandbox], str]) -> str:
    """Plays `dnm run`, then two seconds of the cluster. Returns what `look` reads of it."""
    done = host("run")
    assert done.returncode == 0, done.stderr
    sandbox.clock.set(time.time())
    sandbox.tick(2)
    return look(sandbox)


def test_flat_registry_of_the_predecessor_is_converted(sandbox: Sandbox, tmp_path: Path) -> None:
    """converted_nodes.json of the predecessor has node -> namespace, last_pod_end, owner."""
    set_up_workshop(sandbox, 3)
    site = Site(sandbox, tmp_path / "site")
    sandbox.add_pods(25, "dev", queue=QUEUE, cpu="4", memory="4G")
    site.run_until_rest()
    (name,) = site.lent()
    entry = {"namespace": "dev", "last_pod_end": "2026-03-01T10:00:00.123456", "owner": "prod"}
    site.write(site.config.converted_nodes_path, json.dumps({name: entry}))
    assert site.lent() == [name]
    assert site.run().exit_code == 0
    assert json.loads(site.config.converted_nodes_path.read_text())["nodes"].keys() == {name}


def test_queue_map_and_configuration_may_have_other_paths(sandbox: Sandbox, tmp_path: Path) -> None:
    """`--config` names another ini, and the key namespace_queue_paths another queue map."""
    set_up_workshop(sandbox, 1)
    site = Site(sandbox, tmp_path / "site")
    other = tmp_path / "other.ini"
    site.write(tmp_path / "map.json", f'{{"dev": "{QUEUE}"}}')
    text = site.path.read_text().replace(str(site.directory / "queues.json"), "map.json")
    site.write(other, text)
    done = site.command("plan", "--config", str(other), DNM_CONFIG="/nonexistent")
    assert done.returncode == 0, done.stderr


def test_converter_is_called_like_by_the_predecessor(sandbox: Sandbox, tmp_path: Path) -> None:
    """The calls are `--set k8s ... --namespace NS` and `--set batch --node-name NODE`."""
    set_up_workshop(sandbox, 3)
    calls, program = tmp_path / "calls", tmp_path / "node-convert"
    site = Site(sandbox, tmp_path / "site", node_convert_path=program)
    real = sandbox.node_convert_path
    site.write(program, f'#!/bin/sh\necho "$*" >>{calls}\nexec {real} "$@"\n')
    program.chmod(0o755)
    pods = sandbox.add_pods(25, "dev", queue=QUEUE, cpu="4", memory="4G")
    site.run_until_rest()
    sandbox.finish_pods(pods, "dev")
    site.run()
    sandbox.tick(61)
    site.run_until_rest()
    lines = calls.read_text().splitlines()
    assert any(line.startswith("--set k8s ") and "--namespace dev" in line for line in lines)
    assert any("--set batch --node-name a001" in line for line in lines)


# --- the shape that was asked for ---------------------------------------------------------------


def test_packages_and_directories_of_the_contract_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = " ".join(project["dependencies"]).lower()
    for name in ("typer", "kubernetes", "pyyaml", "filelock", "rich"):
        assert name in needed
    assert "pytest" in " ".join(project["optional-dependencies"]["test"])
    for name in ("dnm", "tests", "cron", "etc", "pyproject.toml", "README.md"):
        assert (ROOT / name).exists()


def test_run_is_a_single_idempotent_pass(sandbox: Sandbox, tmp_path: Path) -> None:
    """A run lends at most max_conversions_per_run nodes, writes the registry and ends. Without new
    demand the next run changes nothing. A run beside another one ends with exit code 75."""
    set_up_workshop(sandbox, 6)
    site = Site(sandbox, tmp_path / "site", max_conversions_per_run=1)
    sandbox.add_pods(80, "dev", queue=QUEUE, cpu="4", memory="4G")
    site.run()
    first = site.registry
    assert len(first.nodes) + sum(request.count for request in first.requests) == 1
    site.change(max_converted_nodes="1")
    site.run_until_rest()
    before = sandbox.queues_text()
    result = site.run()
    assert result.outcome and not result.outcome.actions and sandbox.queues_text() == before
    with site.config.lock_path.open("w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        assert site.command("run").returncode == 75


def test_status_is_a_readable_table(sandbox: Sandbox, tmp_path: Path) -> None:
    set_up_workshop(sandbox, 1)
    site = Site(sandbox, tmp_path / "site")
    sandbox.add_pods(25, "dev", queue=QUEUE, cpu="4", memory="4G")
    site.run_until_rest()
    shown = site.command("status").stdout
    assert "Lent nodes" in shown and "a001" in shown and QUEUE in shown


def test_cron_and_timer_start_a_run_every_minute() -> None:
    files = [path.read_text() for path in (ROOT / "cron").iterdir() if path.is_file()]
    assert any("* * * * *" in text for text in files)
    assert any("OnCalendar=" in text or "OnUnitActiveSec=" in text for text in files)
