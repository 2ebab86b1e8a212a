"""The validation load: what is printed, and what kubectl makes of it on the embedded cluster."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from dnm.cli.test_load import LABEL, Load, make_manifest, print_load
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.manifests import deployment_manifest, pod_manifest
from dnm.model.config import Config
from dnm.model.errors import ConfigError
from tests.lab.test_kubectl import kubectl
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

SECTIONS = """
[namespace:dev]
node_type = a, g
[node_type:g]
cpu = 64
taints = dedicated={namespace}:NoSchedule, nvidia.com/gpu:NoExecute
[node_type:a]
taints = dedicated={namespace}:NoSchedule
"""


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    return Site(sandbox, tmp_path / "site", sections=SECTIONS)


@pytest.fixture
def config(site: Site) -> Config:
    return site.config


def test_the_manifest(config: Config) -> None:
    manifest = make_manifest(config, Load(namespace="dev", cpu="500m", replicas=7))
    name = manifest["metadata"]["name"]
    assert re.fullmatch(r"dnm-test-load-[0-9a-f]{8}", name)
    assert manifest["spec"]["selector"] == {"matchLabels": {"dynamic-node-manager/test-load": name}}
    template = manifest["spec"]["template"]
    assert template["metadata"]["labels"] == {
        "dynamic-node-manager/test-load": name,
        "yunikorn.apache.org/app-id": name,
        "applicationId": name,
        "yunikorn.apache.org/queue": QUEUE,
        "queue": QUEUE,
    }
    assert template["metadata"]["annotations"] == {"yunikorn.apache.org/queue": QUEUE}
    assert template["spec"]["schedulerName"] == "yunikorn"
    assert "nodeSelector" not in template["spec"]
    assert template["spec"]["tolerations"] == [
        {"key": "dedicated", "effect": "NoSchedule", "operator": "Equal", "value": "dev"},
        {"key": "nvidia.com/gpu", "effect": "NoExecute", "operator": "Exists"},
    ]
    assert template["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "2Gi",
    }
    assert manifest["spec"]["replicas"] == 7


def test_a_queue_that_is_no_label_value_stands_in_the_annotation_alone(config: Config) -> None:
    queue = "root.a@b." + "x" * 64
    metadata = make_manifest(config, Load(namespace="other", queue=queue))["spec"]["template"][
        "metadata"
    ]
    assert "queue" not in metadata["labels"]
    assert metadata["annotations"] == {
        "yunikorn.apache.org/queue": queue,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"namespace": "dve"}, "did you mean 'dev'?", id="namespace"),
        pytest.param({"namespace": "other"}, "name its queue with --queue", id="no-queue"),
        pytest.param({"namespace": "no_name"}, "RFC 1123", id="namespace-alphabet"),
        pytest.param({"name": "-x"}, "--name '-x' is not", id="name"),
        pytest.param({"namespace": "X", "name": "x"}, "NAMESPACE 'X' is not", id="not-the-name"),
        pytest.param({"queue": "root.a b"}, "is not a queue path", id="queue"),
        pytest.param({"cpu": "many"}, "--cpu many is not an amount", id="cpu"),
        pytest.param({"memory": "0"}, "--memory 0 is not an amount", id="memory"),
        pytest.param({"image": ""}, "--image '' is no image; write", id="image"),
        pytest.param({"replicas": -1}, "write 0 to", id="replicas"),
    ],
)
def test_what_can_not_be_is_refused(
    config: Config, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        make_manifest(config, Load(**{"namespace": "dev", **changes}))  # type: ignore[arg-type]


def test_pods_that_could_never_land_are_announced(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    print_load(config, Load(namespace="dev", cpu="129"))
    assert "fits no empty node of the type a, g" in capsys.readouterr().err
    print_load(config, Load(namespace="other", queue="root.dev"))
    assert "dnm lends it no node" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_applies_scales_and_deletes_what_the_command_prints(
    sandbox: Sandbox, site: Site
) -> None:
    """Two loads share no pod, and a Deployment of somebody else stays."""
    taint = {"key": "dedicated", "value": "dev", "effect": "NoSchedule"}
    sandbox.add_node("g1", "64", "256G", taints=[taint], labels={"dev": "true"})
    sandbox.add_namespace("dev")
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.create(deployment_manifest("theirs", "dev", 0, pod_manifest("t", "dev", {"cpu": "1"})))
    for words in (("--only-lent-nodes",), ("--name", "trial", "--replicas", "2")):
        printed = site.command("test-load", "dev", *words)
        assert (printed.returncode, printed.stderr) == (0, "")
        kubectl(sandbox, "apply", "-f", "-", given=printed.stdout)
    assert set(pods_by_load(sandbox).values()) == {50, 2}
    kubectl(sandbox, "scale", "deployment", "trial", "-n", "dev", "--replicas", "5")
    assert pods_by_load(sandbox)["trial"] == 5
    kubectl(sandbox, "delete", "deployments", "-A", "-l", LABEL)
    assert not pods_by_load(sandbox)
    assert [one["metadata"]["name"] for one in sandbox.objects("deployments")] == ["theirs"]


def pods_by_load(sandbox: Sandbox) -> Counter[str]:
    """How many run of each, after a minute."""
    sandbox.tick(60)
    pods = sandbox.objects("pods", "dev")
    return Counter(pod["metadata"]["labels"][LABEL] for pod in pods if pod["spec"].get("nodeName"))


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param("create -n dev --replicas 3", "NAMESPACE | kubectl apply", id="create"),
        pytest.param("list -o json", "kubectl get deployments", id="list"),
        pytest.param("scale one 3", "kubectl scale deployment NAME", id="scale"),
        pytest.param("delete", "kubectl delete deployments", id="delete"),
        pytest.param("create --help", "kubectl apply", id="help"),
    ],
)
def test_what_was_a_verb_names_the_command_that_does_it(
    site: Site, words: str, command: str
) -> None:
    said = site.command("test-load", *words.split())
    assert (said.returncode, said.stdout) == (2, "")
    assert command in said.stderr and said.stderr.count("\n") == 1
