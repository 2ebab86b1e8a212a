"""The validation load, over the API of the embedded cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dnm.cli.test_load import Load, create_load, delete_loads, list_loads, make_manifest, scale_load
from dnm.config.load import load_config
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.errors import ConfigError, DnmError, KubeError

INI = """[settings]
monitored_namespaces = dev, test
namespace_queue_paths = map.json
kubeconfig_path = sandbox/kubeconfig
state_dir = .
[namespace:dev]
node_type = a, g
[node_type:g]
cpu = 64
taints = dedicated={namespace}:NoSchedule, nvidia.com/gpu:NoExecute
[node_type:a]
taints = dedicated={namespace}:NoSchedule
"""
QUEUES = """partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: dev
            resources: {max: {vcore: 1000, memory: 4000G}}
          - name: test
        submitacl: "*"
"""


def read_config(directory: Path) -> Config:
    (directory / "map.json").write_text('{"dev": "root.dev", "test": "root.test"}')
    (directory / "dnm.ini").write_text(INI)
    for name in ("map.json", "dnm.ini"):
        (directory / name).chmod(0o644)
    return load_config(directory / "dnm.ini", {})


@pytest.fixture
def config(sandbox: Sandbox, tmp_path: Path) -> Config:
    for namespace in ("dev", "test", "other"):
        sandbox.add_namespace(namespace)
    sandbox.set_queues(QUEUES)
    return read_config(tmp_path)


@pytest.fixture
def created(config: Config, capsys: pytest.CaptureFixture[str]) -> Callable[[Load], str]:
    def create(load: Load) -> str:
        assert create_load(config, load) == 0
        return capsys.readouterr().out.strip()

    return create


def test_fifty_pods_land_on_tainted_lent_nodes(
    sandbox: Sandbox, created: Callable[[Load], str]
) -> None:
    taints = [
        {"key": "dedicated", "value": "dev", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "value": "yes", "effect": "NoExecute"},
    ]
    sandbox.add_node("g1", "64", "256G", taints=taints, labels={"dev": "true"})
    name = created(Load(namespace="dev", only_lent_nodes=True))
    sandbox.tick(60)
    pods = [pod for pod in sandbox.objects("pods", "dev") if name in pod["metadata"]["name"]]
    assert len(pods) == 50
    assert {pod["spec"].get("nodeName") for pod in pods} == {"g1"}
    assert {pod["metadata"]["labels"]["queue"] for pod in pods} == {"root.dev"}


def test_two_loads_share_nothing_and_one_is_scaled_and_deleted(
    sandbox: Sandbox, config: Config, created: Callable[[Load], str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    one, two = (created(Load(namespace="dev", replicas=2)) for _ in range(2))
    third = created(Load(namespace="test", replicas=1, name="mine"))
    assert one != two and third == "mine"
    sandbox.tick(60)
    apps = {pod["metadata"]["labels"]["applicationId"] for pod in sandbox.objects("pods", "dev")}
    assert apps == {one, two}
    assert scale_load(config, one, 5) == 0
    sandbox.tick(60)
    assert len(sandbox.objects("pods", "dev")) == 7
    assert delete_loads(config, two) == 0
    sandbox.tick(60)
    assert {pod["metadata"]["labels"]["applicationId"] for pod in sandbox.objects("pods", "dev")
            } == {one}  # fmt: skip
    capsys.readouterr()
    assert list_loads(config, "dev") == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAMESPACE", "NAME", "QUEUE", "PODS", "READY", "CREATED"]
    assert line.split()[:4] == ["dev", one, "root.dev", "5"]
    assert list_loads(config, output="json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "dnm.test-load/1"
    assert [(d["namespace"], d["name"], d["queue"], d["replicas"]) for d in document["loads"]] == [
        ("dev", one, "root.dev", 5),
        ("test", "mine", "root.test", 1),
    ]
    assert delete_loads(config) == 0
    assert list_loads(config) == 0
    assert capsys.readouterr().out.endswith("there is no test load\n")
    assert sandbox.objects("deployments") == []


def test_deployments_of_others_are_never_touched(
    sandbox: Sandbox, config: Config, created: Callable[[Load], str]
) -> None:
    mine = created(Load(namespace="dev", replicas=0))
    manifest = make_manifest(config, Load(namespace="dev", name="theirs"))
    manifest["metadata"]["labels"] = {"app": "theirs"}
    sandbox.create(manifest)
    with pytest.raises(ConfigError, match="there is no theirs in the monitored namespaces"):
        delete_loads(config, "theirs")
    assert delete_loads(config, namespace="dev") == 0
    assert [item["metadata"]["name"] for item in sandbox.objects("deployments")] == ["theirs"]
    assert mine != "theirs"


def test_a_load_in_a_namespace_that_is_not_monitored_is_seen_and_deleted(
    sandbox: Sandbox, config: Config, created: Callable[[Load], str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    created(Load(namespace="other", queue="root.dev", replicas=0, name="mine"))
    of_another = msgspec.structs.replace(config, instance_id="trial")
    manifest = make_manifest(of_another, Load(namespace="other", queue="root.dev", name="theirs"))
    sandbox.create(manifest)
    assert list_loads(config) == 0
    shown = capsys.readouterr().out
    assert "mine" in shown and "theirs" not in shown
    assert delete_loads(config) == 0
    assert [item["metadata"]["name"] for item in sandbox.objects("deployments")] == ["theirs"]


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
        "yunikorn.apache.org/queue": "root.dev",
        "queue": "root.dev",
    }
    assert template["metadata"]["annotations"] == {"yunikorn.apache.org/queue": "root.dev"}
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
        pytest.param({"name": "-x"}, "RFC 1123", id="name"),
        pytest.param({"queue": "root.a b"}, "is not a queue path", id="queue"),
        pytest.param({"cpu": "many"}, "--cpu many is not an amount", id="cpu"),
        pytest.param({"memory": "0"}, "--memory 0 is not an amount", id="memory"),
        pytest.param({"replicas": -1}, "write 0 to", id="replicas"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_is_asked(
    sandbox: Sandbox, config: Config, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
        create_load(config, Load(**{"namespace": "dev", **changes}))
    assert caught.value.exit_code == 2
    assert sandbox.requests.writes() == []


def test_pods_that_could_never_land_are_announced(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create_load(config, Load(namespace="dev", cpu="129", replicas=1)) == 0
    assert "fits no empty node of the type a, g" in capsys.readouterr().err
    assert create_load(config, Load(namespace="other", queue="root.dev", replicas=1)) == 0
    assert "dnm lends it no node" in capsys.readouterr().err


def test_an_ambiguous_or_misspelt_name(config: Config, created: Callable[[Load], str]) -> None:
    created(Load(namespace="dev", replicas=0, name="twin"))
    created(Load(namespace="test", replicas=0, name="twin"))
    with pytest.raises(ConfigError, match="is in dev, test: say which"):
        scale_load(config, "twin", 1)
    with pytest.raises(ConfigError, match="did you mean 'twin'"):
        scale_load(config, "twim", 1)
    assert scale_load(config, "twin", 1, "test") == 0


def test_refusals_of_the_api_are_sentences(sandbox: Sandbox, config: Config,
                                           created: Callable[[Load], str],
                                           capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    created(Load(namespace="dev", replicas=0, name="one"))
    with pytest.raises(DnmError, match="409"):
        create_load(config, Load(namespace="dev", replicas=0, name="one"))
    sandbox.access.restrict({("list", "deployments", "dev"), ("list", "deployments", "test")})
    assert delete_loads(config) == 1
    assert "permission to delete deployments" in capsys.readouterr().err
    sandbox.stop()
    with pytest.raises(KubeError, match="is it up"):
        list_loads(config)


def test_a_namespace_that_may_not_be_read_stops_no_other(
    sandbox: Sandbox, config: Config, created: Callable[[Load], str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    created(Load(namespace="test", replicas=0, name="two"))
    allowed = {("list", "deployments", "test"), ("delete", "deployments", "test")}
    sandbox.access.restrict(allowed)
    assert list_loads(config) == 1
    said = capsys.readouterr()
    assert "two" in said.out and "Deployments of namespace dev" in said.err
    assert delete_loads(config) == 1
    said = capsys.readouterr()
    assert "deleted two in test" in said.out and "namespace dev" in said.err
    assert list_loads(config) == 1
    assert "there is no test load" not in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no two in the monitored namespaces that could be read"):
        scale_load(config, "two", 1)
