"""The replacement of the predecessor by dnm, as one story: dnm takes over a host with exactly the
predecessor's files, on their own paths. No change of dnm may remove it."""

from __future__ import annotations

import configparser
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dnm.lab.sandbox.cluster import Sandbox
from tests.contract.host import Host, set_up_host
from tests.contract.test_keys import WRONG
from tests.site import QUEUE, WORKSHOP_QUEUES, set_up_workshop

INI = """\
[settings]
kubeconfig_path = {kubeconfig}
monitored_namespaces = dev, notebook
reversion_idle_seconds = 1
check_interval_seconds = 20
max_converted_nodes = 2
yunikorn_cm_namespace = yunikorn
yunikorn_cm_name = yunikorn-configs
yunikorn_queue_annotation = yunikorn.apache.org/queue
node_cpu_capacity = 128
node_memory_capacity = 256G
global_cooldown_seconds = 1
default_cpu_request_m = 4000
default_mem_request = 4Gi
"""
# The predecessor's state: a001 is lent to dev, and its size is in the limits of dev.
RECORD = {"a001": {"namespace": "dev", "last_pod_end": "2026-03-01T10:00:00.1", "owner": "prod"}}
WITH_ONE_NODE = (
    WORKSHOP_QUEUES.replace("memory: 32G", "memory: 288G")
    .replace("vcore: 8\n", "vcore: 136\n")
    .replace("memory: 320G", "memory: 576G")
    .replace("vcore: 80\n", "vcore: 208\n")
)
BASELINE = {"max": {"vcore": 80, "memory": "320G"}, "guaranteed": {"vcore": 8, "memory": "32G"}}
TWO_NODES = {
    "max": {"vcore": 336, "memory": "832G"},
    "guaranteed": {"vcore": 264, "memory": "544G"},
}


@pytest.fixture
def host(sandbox: Sandbox, tmp_path: Path) -> Iterator[Host]:
    sandbox.clock.set(time.time() - 60)  # pods that wait for so long are counted
    set_up_workshop(sandbox, 4)
    lent = sandbox.node_convert("--set", "k8s", "--node-name", "a001", "--namespace", "dev")
    assert lent.exit_code == 0, lent.stderr
    sandbox.tick()
    sandbox.set_queues(WITH_ONE_NODE)
    ini = INI.format(kubeconfig=sandbox.kubeconfig)
    made = set_up_host(sandbox, tmp_path, ini, json.dumps(RECORD))
    yield made
    made.syslog.close()


def limits(sandbox: Sandbox) -> dict[str, dict[str, object]]:
    root = yaml.safe_load(sandbox.queues_text())["partitions"][0]["queues"][0]
    (result,) = [queue for queue in root["queues"][0]["queues"] if queue["name"] == "dev"]
    return dict(result["resources"])


def nodes(host: Host) -> dict[str, str]:
    """Returns the phase of each lent node in converted_nodes.json."""
    recorded = json.loads(host.record.read_text())["nodes"]
    return {name: node["state"]["phase"] for name, node in recorded.items()}


def run(sandbox: Sandbox, host: Host) -> None:
    """Plays a run as the timer starts it, then two seconds of the cluster."""
    done = host.run("run")
    assert done.returncode == 0, done.stderr
    sandbox.clock.set(time.time())
    sandbox.tick(2)


def run_until(sandbox: Sandbox, host: Host, expected: dict[str, str]) -> None:
    """Plays runs until converted_nodes.json has these nodes in these phases, in real time."""
    for _ in range(150):
        run(sandbox, host)
        if nodes(host) == expected:
            return
    raise AssertionError(f"the record has {nodes(host)}")


def test_predecessor_ini_has_exactly_its_keys() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(INI)
    assert parser["settings"].keys() == WRONG.keys() and len(WRONG) == 13


def test_takeover_of_a_predecessor_host_works_from_lend_to_return(
    sandbox: Sandbox, host: Host
) -> None:
    # The old limits contain a001. dnm cannot know that, so it asks, and changes nothing.
    pods = sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="4Gi")
    sandbox.tick(60)
    before = sandbox.queues_text()
    asked = host.run("run")
    assert asked.returncode == 2 and "dnm queues rebase --as total" in asked.stderr
    answered = host.run("queues", "rebase", "--as", "total", "--yes")
    assert answered.returncode == 0, answered.stderr
    run(sandbox, host)
    assert sandbox.queues_text() == before and nodes(host) == {"a001": "serving"}

    # The total demand of 240 cores exceeds the limit of 208. The limits grow after the second
    # node has joined, and not before.
    sandbox.clock.set(time.time() - 60)  # they are counted at once, too
    pods += sandbox.add_pods(40, "dev", queue=QUEUE, cpu="4", memory="4Gi")
    sandbox.tick(60)
    assert host.run("run").returncode == 0
    assert sandbox.queues_text() == before
    run_until(sandbox, host, {"a001": "serving", "a002": "serving"})
    assert limits(sandbox) == TWO_NODES
    assert {pod["status"]["phase"] for pod in sandbox.objects("pods", "dev")} == {"Running"}
    status = host.run("status").stdout
    for part in ("Lent nodes", "a001", "a002", "serving", QUEUE, "336"):
        assert part in status, status

    # Without active pods both nodes are returned, and the limits are those of the site again.
    for name in pods:
        sandbox.delete("pods", name, "dev")
    run_until(sandbox, host, {})
    assert limits(sandbox) == BASELINE and sandbox.queues_text() == WORKSHOP_QUEUES
    assert sandbox.objects("nodes") == [] and sandbox.violations == []
    calls = host.calls.read_text()
    assert "--set k8s" in calls and "--namespace dev" in calls
    assert "--set batch --node-name a001" in calls and "--set batch --node-name a002" in calls
    assert "no node is lent" in host.run("status").stdout

    # syslog has the decisions, the conversions, and each change of MAX and GUAR.
    text = "\n".join(host.syslog.read())
    for part in (
        "verdict=convert", "action=convert", "action=return",
        "max.vcore=336 was=208", "guaranteed.vcore=264 was=136", "max.memory=832G was=576G",
        "max.vcore=80 was=", "guaranteed.vcore=8 was=",
    ):  # fmt: skip
        assert part in text, text
