"""The validation load: the objects that `dnm test-load` creates, shows and deletes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.cli.set_up.test_load import (
    INSTANCE_LABEL,
    LABEL,
    Load,
    delete_loads,
    make_manifest,
    print_load,
    run_load,
)
from dnm.lab.sandbox.access import RbacRule
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.manifests import deployment_manifest, pod_manifest
from dnm.lab.sandbox.store import ApiError
from dnm.model.config import Config
from dnm.model.errors import ConfigError, KubeError
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
ROLE = "dynamic-node-manager-test-load"


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    return Site(sandbox, tmp_path / "site", sections=SECTIONS)


@pytest.fixture
def config(site: Site) -> Config:
    return site.config


@pytest.fixture
def cluster(sandbox: Sandbox) -> Sandbox:
    """Builds a sandbox with a Node that looks lent, the namespace dev and the workshop's queues."""
    taint = {"key": "dedicated", "value": "dev", "effect": "NoSchedule"}
    sandbox.add_node("g1", "64", "256G", taints=[taint], labels={"dev": "true"})
    sandbox.add_namespace("dev")
    sandbox.set_queues(WORKSHOP_QUEUES)
    return sandbox


def test_manifest_names_no_scheduler_without_a_queue_system(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    site = Site(sandbox, tmp_path / "none", sections=SECTIONS, queue_system="none")
    template = make_manifest(site.config, Load(namespace="dev"))["spec"]["template"]
    assert set(template["metadata"]["labels"]) == {LABEL, INSTANCE_LABEL}
    assert template["metadata"]["annotations"] == {}
    assert "schedulerName" not in template["spec"] and template["spec"]["tolerations"]
    with pytest.raises(ConfigError, match="dev is its only queue; leave it out"):
        make_manifest(site.config, Load(namespace="dev", queue="root.x"))


def test_manifest_contains_requests_tolerations_and_replicas(config: Config) -> None:
    manifest = make_manifest(config, Load(namespace="dev", cpu="500m", replicas=7))
    assert manifest["metadata"]["name"] == "dnm-test-load"
    assert manifest["spec"]["selector"] == {"matchLabels": {LABEL: "dnm-test-load"}}
    template = manifest["spec"]["template"]
    assert template["metadata"]["labels"] == {
        "dynamic-node-manager/test-load": "dnm-test-load",
        "dynamic-node-manager/test-load-of": "prod",
        "yunikorn.apache.org/app-id": "dnm-test-load",
        "applicationId": "dnm-test-load",
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


def test_queue_that_is_no_label_value_is_in_the_annotation_only(config: Config) -> None:
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
        pytest.param({"namespace": "other"}, "or its queue with --queue", id="no-queue"),
        pytest.param({"namespace": "no_name"}, "RFC 1123", id="namespace-alphabet"),
        pytest.param({"name": "-x"}, "--name '-x' is not", id="name"),
        pytest.param({"namespace": "X", "name": "x"}, "NAMESPACE 'X' is not", id="not-the-name"),
        pytest.param({"queue": "root.a b"}, "is not a queue path", id="queue"),
        pytest.param({"cpu": "many"}, "--cpu many is not an amount", id="cpu"),
        pytest.param({"memory": "0"}, "--memory 0 is not an amount", id="memory"),
        pytest.param({"image": ""}, "--image '' is not an image; write", id="image"),
        pytest.param({"replicas": -1}, "from 0 to", id="replicas"),
    ],
)
def test_wrong_load_options_are_refused(
    config: Config, changes: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        make_manifest(config, Load(**{"namespace": "dev", **changes}))  # type: ignore[arg-type]


def test_warning_names_pods_that_fit_no_node(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    print_load(config, Load(namespace="dev", cpu="129"), "yaml")
    assert "fits no empty node of the type a, g" in capsys.readouterr().err
    print_load(config, Load(namespace="other", queue="root.dev"), "yaml")
    assert "dnm lends no nodes to it" in capsys.readouterr().err


def let_time_pass(sandbox: Sandbox) -> Callable[[float], None]:
    return lambda _: sandbox.tick(60)


def loads(sandbox: Sandbox) -> dict[str, int]:
    """Returns the replicas of each Deployment, by name."""
    rows = sandbox.objects("deployments")
    return {entry["metadata"]["name"]: entry["spec"]["replicas"] for entry in rows}


def run(config: Config, sandbox: Sandbox, wait: int = 60, **options: Any) -> int:
    load = Load(**{"namespace": "dev", **options})
    return run_load(config, load, timedelta(seconds=wait), let_time_pass(sandbox))


def test_test_load_command_ends_when_all_pods_run(
    cluster: Sandbox, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, cluster, replicas=5) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"created Deployment dev/dnm-test-load: 5 pods for queue {QUEUE}",
        "running: 0 of 5 pods",
        "running: 5 of 5 pods",
        "all pods run; delete them with `dnm test-load dev --delete`",
    ]


def test_test_load_command_reports_why_pods_wait(
    cluster: Sandbox, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.tick(60)
    assert run(config, cluster, wait=0, replicas=5, cpu="60") == 1
    capsys.readouterr()
    cluster.tick(60)
    assert run(config, cluster, wait=0, replicas=5, cpu="60") == 1
    printed = capsys.readouterr().out
    assert "running: 1 of 5 pods\nnot running after 0 s: 4 pods\n  4 pods: " in printed
    assert f"queue {QUEUE}: " in printed  # dnm's decision
    assert printed.splitlines()[-1].endswith("or delete them with `dnm test-load dev --delete`")


def test_pods_rejected_by_the_server_are_explained(
    cluster: Sandbox, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    run(config, cluster, replicas=2)
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods=2"}
    cluster.edit("deployments", "dnm-test-load",
                 lambda entry: entry["status"].update(conditions=[failed]), "dev")  # fmt: skip
    capsys.readouterr()
    assert run(config, cluster, wait=0, replicas=3) == 1
    assert "more cannot be created: exceeded quota: pods=2" in capsys.readouterr().out


def test_second_test_load_command_changes_the_load(cluster: Sandbox, config: Config) -> None:
    assert run(config, cluster, replicas=2) == 0
    assert run(config, cluster, replicas=4, cpu="2") == 0
    (load,) = cluster.objects("deployments")
    assert load["spec"]["replicas"] == 4
    pod = load["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == "2"


def test_delete_removes_the_loads_of_this_instance_only(
    cluster: Sandbox, config: Config, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = deployment_manifest("foreign", "dev", 0, pod_manifest("t", "dev", {"cpu": "1"}))
    cluster.create(foreign)
    for name in ("one", "two"):
        assert run(config, cluster, name=name, replicas=1) == 0
    site.change(instance_id="blue")
    assert run(site.config, cluster, name="three", replicas=1) == 0
    with pytest.raises(ConfigError, match="dev/two is not a test load of instance blue: choose an"):
        run(site.config, cluster, name="two", replicas=9)
    capsys.readouterr()
    delete_loads(config, "dev", "one")
    assert loads(cluster) == {"foreign": 0, "two": 1, "three": 1}
    delete_loads(config, "dev")
    assert loads(cluster) == {"foreign": 0, "three": 1}
    delete_loads(config, "dev")
    assert capsys.readouterr().out.splitlines() == [
        "deleted Deployment dev/one and its pods",
        "deleted Deployment dev/two and its pods",
        "there is no test load of instance prod in dev",
    ]


def test_deployment_name_in_use_is_not_changed(cluster: Sandbox, config: Config) -> None:
    foreign = deployment_manifest("web", "dev", 0, pod_manifest("t", "dev", {"cpu": "1"}))
    cluster.create(foreign)
    with pytest.raises(ConfigError, match="dev/web is not a test load of instance prod"):
        run(config, cluster, name="web", replicas=3)
    assert loads(cluster) == {"web": 0}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("dve", "did you mean 'dev'?", id="namespace"),
        pytest.param("dve --queue root.anvil.services.dev", "there is no namespace dve, did you "
                     "mean 'dev'?", id="namespace-with-queue"),
        pytest.param("dev --queue root.anvil.services.deb", "there is no queue "
                     "root.anvil.services.deb, did you mean 'root.anvil.services.dev'?",
                     id="queue"),
        pytest.param("dev --queue root.anvil.services", "is a parent queue and takes no pods; "
                     "choose one below it: root.anvil.services.notebook", id="parent-queue"),
        pytest.param("dve --delete", "did you mean 'dev'?", id="delete"),
        pytest.param("dev --wait 5", "--wait: '5' has no unit; write e.g. 90s", id="wait"),
        pytest.param("dev --delete --dry-run", "it prints no manifest", id="delete-dry-run"),
    ],
)  # fmt: skip
def test_unknown_object_gets_the_closest_match(
    cluster: Sandbox, site: Site, words: str, expected: str
) -> None:
    result = site.command("test-load", *words.split())
    assert (result.returncode, result.stdout) == (2, "")
    assert expected in " ".join(result.stderr.split())
    assert not loads(cluster)


@pytest.mark.parametrize("option", ["--dry-run", "-oyaml"])
def test_manifest_is_printed_without_a_cluster(site: Site, option: str) -> None:
    site.change(kubeconfig_path="/nonexistent/kubeconfig")
    result = site.command("test-load", "dev", "--replicas", "2", option)
    assert (result.returncode, result.stderr) == (0, "")
    printed = yaml.safe_load(result.stdout)
    assert (printed["kind"], printed["spec"]["replicas"]) == ("Deployment", 2)


def test_kubectl_accepts_the_manifest_and_delete_removes_it(cluster: Sandbox, site: Site) -> None:
    kubectl(cluster, "apply", "-f", "-", given=site.command("test-load", "dev", "-oyaml").stdout)
    assert loads(cluster) == {"dnm-test-load": 50}
    assert site.command("test-load", "dev", "--delete").returncode == 0
    assert not loads(cluster)


def test_test_load_role_permits_only_its_deployments(cluster: Sandbox, config: Config) -> None:
    manifests = list(yaml.safe_load_all((Path(__file__).parents[2] / "etc/rbac.yaml").read_text()))
    role = [manifest for manifest in manifests if manifest["metadata"]["name"] == ROLE]
    names = ("dynamic-node-manager", ROLE)
    cluster.access.restrict_to_manifests(
        manifest for manifest in manifests if manifest["metadata"]["name"] in names
    )
    assert len(role) == 1
    assert run(config, cluster, replicas=1) == 0
    assert run(config, cluster, replicas=2) == 0
    delete_loads(config, "dev")
    used = {pair.verb for pair in cluster.access.used if pair.resource == "deployments"}
    assert used == set(role[0]["rules"][0]["verbs"])
    cluster.access.rules = (RbacRule(("get", "list"), ("*",)),)
    with pytest.raises(KubeError, match="the permission to create deployments"):
        run(config, cluster, replicas=1)


@pytest.mark.parametrize("option", ["--queue=root.anvil.services.dev", "--delete"])
def test_namespace_without_permission_gets_the_closest_match(
    cluster: Sandbox, site: Site, option: str
) -> None:
    cluster.access.rules = (
        RbacRule(("*",), ("*",), "dev"),
        RbacRule(("get",), ("configmaps",)),
    )
    result = site.command("test-load", "dve", option)
    assert result.returncode == 2 and "dve is not monitored, did you mean 'dev'?" in result.stderr


def test_load_deleted_meanwhile_ends_the_command(cluster: Sandbox, config: Config) -> None:
    def delete(_: float) -> None:
        cluster.delete("deployments", "dnm-test-load", "dev")

    with pytest.raises(KubeError, match="Deployment dev/dnm-test-load was deleted"):
        run_load(config, Load(namespace="dev", replicas=2), timedelta(minutes=1), delete)


def test_ctrl_c_reports_that_the_load_remains(
    cluster: Sandbox, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_load(config, Load(namespace="dev", replicas=2), timedelta(minutes=1), interrupt)
    assert capsys.readouterr().err == (
        "dnm: the pods stay; delete them with `dnm test-load dev --delete`\n"
    )
    assert loads(cluster) == {"dnm-test-load": 2}


def test_admission_webhook_message_is_quoted(cluster: Sandbox, config: Config) -> None:
    def refuse(changed: dict[str, Any], old: dict[str, Any] | None) -> None:
        raise ApiError(403, 'admission webhook "frozen" denied the request: until Monday')

    cluster.admission.webhooks["deployments"] = refuse
    with pytest.raises(KubeError, match="until Monday") as refused:
        run(config, cluster)
    assert refused.value.__cause__ is not refused.value
