"""Tests of `dnm check` beside Slinky: settings that would undo a lend, and unreadable objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dnm.checks.findings import CheckResult, Finding
from dnm.checks.slinky import judge_lent, judge_names, judge_node_sets
from dnm.kube.slinky import SlurmdSet, read_node_set_page
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.http_values import Fault
from dnm.model.node_type import Taint
from dnm.model.registry import Registry
from tests.builders import a_batch_node, a_config, a_lent_node, a_node
from tests.cli.check_site import CheckedSite
from tests.kube.test_slinky import page, template

ROOT = Path(__file__).parents[2]
OK, WARNING, FAILED, SKIPPED = (
    CheckResult.OK, CheckResult.WARNING, CheckResult.FAILED, CheckResult.SKIPPED,
)  # fmt: skip
MANAGED = Taint(key="slinky.slurm.net/managed-node", effect="NoExecute", value="slurm-bridge")
LENT = Registry(nodes={"a001": a_lent_node()})
GROUP = {"kind": "APIGroup", "versions": [{"version": "v1beta1"}]}


def node_set(mode: str = "DaemonSet", **spec: Any) -> SlurmdSet:
    return read_node_set_page(page({**template(**spec), "scalingMode": mode}))[0]


def shown(findings: Any) -> list[tuple[CheckResult, str]]:
    return [(finding.result, finding.text) for finding in findings]


@pytest.mark.parametrize(
    ("slurmd_set", "result", "part"),
    [
        pytest.param(node_set(), FAILED, "starts a slurmd on a001, nodes of type a", id="all"),
        pytest.param(
            node_set(nodeSelector={"dev": "true"}), FAILED, "a001, nodes of type a lent to dev: a",
            id="of-the-namespace",
        ),
        pytest.param(
            node_set(nodeSelector={"slurm": "yes"}), OK, "none of 1 NodeSet takes a lent node",
            id="another-label",
        ),
        pytest.param(node_set("StatefulSet"), WARNING, "may start a slurmd on a001", id="sts"),
    ],
)  # fmt: skip
def test_node_set_that_would_use_a_lent_node_is_reported(
    slurmd_set: SlurmdSet, result: CheckResult, part: str
) -> None:
    ((shown_result, text),) = shown(judge_node_sets(a_config(), LENT, (a_node(),), (slurmd_set,)))
    assert shown_result is result
    assert part in text


def test_deleted_node_set_uses_no_lent_node() -> None:
    going = read_node_set_page(page(template(), deletionTimestamp="2026-11-20T12:00:00Z"))[0]
    ((result, _),) = shown(judge_node_sets(a_config(), LENT, (a_node(),), (going,)))
    assert result is OK


def test_lent_node_with_the_slinky_taint_is_a_failure() -> None:
    nodes = (a_node(taints=(MANAGED,)), a_node("b1", taints=(MANAGED,)))
    ((result, text),) = shown(judge_lent(LENT, nodes))
    assert result is FAILED
    assert text.startswith("a001 is lent and carries the taint slinky.slurm.net/managed-node=slurm")


@pytest.mark.parametrize(
    ("names", "result", "part"),
    [
        pytest.param(None, SKIPPED, "Slurm's list is", id="not-asked"),
        pytest.param(("a050",), OK, "manages no Node that this Slurm knows", id="another-Slurm"),
        pytest.param(("a050", "b1"), FAILED, "would taint a050 as soon as it is lent", id="shared"),
    ],
)
def test_names_shared_by_slurm_and_kubernetes_are_reported(
    names: tuple[str, ...] | None, result: CheckResult, part: str
) -> None:
    batch = None if names is None else {name: a_batch_node(name) for name in names}
    nodes = (a_node("b1", mark=None, taints=(MANAGED,)),)
    ((shown_result, text),) = shown(judge_names(a_config(), Registry(), nodes, batch))
    assert shown_result is result
    assert part in text


@pytest.fixture
def site(tmp_path: Path, sandbox: Sandbox) -> CheckedSite:
    return CheckedSite(tmp_path, sandbox)


def serve(site: CheckedSite, path: str, document: Any) -> None:
    """Lets the sandbox answer requests for Slinky's objects as an API server with Slinky would."""
    text = document if isinstance(document, str) else json.dumps(document)
    site.sandbox.faults.add(Fault(kind="garbage", path=path, body=text))


def slinky_of(site: CheckedSite) -> list[Finding]:
    return [finding for finding in site.findings() if finding.check == "Slinky"]


def node_sets(*specs: Any) -> dict[str, Any]:
    items = [item for spec in specs for item in json.loads(page(spec))["items"]]
    return {"kind": "NodeSetList", "apiVersion": "slinky.slurm.net/v1beta1",
            "metadata": {"resourceVersion": "1"}, "items": items}  # fmt: skip


def test_site_without_slinky_passes_its_checks(site: CheckedSite) -> None:
    """With only the role of etc/rbac-slinky.yaml, dnm finds that there is no Slinky."""
    paths = (ROOT / "etc" / "rbac.yaml", ROOT / "etc" / "rbac-slinky.yaml")
    documents = [item for path in paths for item in yaml.safe_load_all(path.read_text())]
    site.sandbox.access.restrict_to_manifests(documents)
    (finding,) = slinky_of(site)
    assert (finding.result, finding.text) == (
        OK, "no sign of it: no API group slinky.slurm.net, no managed Node",
    )  # fmt: skip


def test_unreadable_slinky_objects_are_not_treated_as_absent(site: CheckedSite) -> None:
    forbidden = Fault(kind="status", path="deployments$|nodesets$", code=403, message="no right")
    site.sandbox.faults.add(forbidden)
    (finding,) = slinky_of(site)
    assert finding.result is OK and "whether slurm-bridge is installed is unknown" in finding.text
    serve(site, "^/apis/slinky.slurm.net$", GROUP)
    findings = slinky_of(site)
    assert [item.result for item in findings] == [WARNING, WARNING]
    assert findings[0].text.startswith("whether a NodeSet takes lent nodes")
    assert findings[1].text.startswith("which namespaces slurm-bridge manages")
    assert {item.remedy for item in findings} == {"grant it as etc/rbac-slinky.yaml does"}


def test_node_set_is_matched_by_its_selector(site: CheckedSite) -> None:
    serve(site, "^/apis/slinky.slurm.net$", GROUP)
    serve(site, "nodesets$", node_sets(template(nodeSelector={"slurm": "yes"})))
    assert [item.result for item in slinky_of(site)] == [OK]
    site.sandbox.faults.clear()
    serve(site, "^/apis/slinky.slurm.net$", GROUP)
    serve(site, "nodesets$", node_sets(template()))
    (finding,) = slinky_of(site)
    assert finding.result is FAILED and "the NodeSet slurm/batch starts a slurmd on" in finding.text


def test_unknown_slinky_api_version_is_a_warning(site: CheckedSite) -> None:
    serve(site, "^/apis/slinky.slurm.net$", {**GROUP, "versions": [{"version": "v1alpha1"}]})
    (finding,) = slinky_of(site)
    assert finding.result is WARNING and "served as v1alpha1, which dnm cannot read" in finding.text


BRIDGE = {
    "kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": {"resourceVersion": "1"},
    "items": [{"metadata": {"name": "slurm-bridge-controllers", "namespace": "slinky"},
               "spec": {"replicas": 1}, "status": {}}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "result", "part"),
    [
        ("managedNamespaces: [dev]", FAILED, "manages the monitored namespace dev (slinky/slurm-"),
        ("managedNamespaces: [other]", OK, "manages no monitored namespace (slinky/slurm-bridge"),
        (
            "managedNamespaceSelector: {matchExpressions: [{key: slurm, operator: DoesNotExist}]}",
            FAILED, "manages the monitored namespace dev",
        ),
        (
            "managedNamespaceSelector: {matchLabels: {slurm: 'yes'}}",
            OK, "manages no monitored namespace",
        ),
        ("7", WARNING, "can't read the ConfigMap slinky/slurm-bridge-config"),
    ],
)  # fmt: skip
def test_monitored_namespace_managed_by_slurm_bridge_is_a_failure(
    site: CheckedSite, settings: str, result: CheckResult, part: str
) -> None:
    serve(site, "^/apis/apps/v1/deployments$", BRIDGE)
    serve(site, "slurm-bridge-config$", {"kind": "ConfigMap", "data": {"config.yaml": settings}})
    (finding,) = slinky_of(site)
    assert finding.result is result and part in finding.text


def test_slurm_names_are_read_beside_an_active_slurm_bridge(site: CheckedSite) -> None:
    taint = {"key": MANAGED.key, "effect": "NoExecute"}
    site.sandbox.add_node("x1")
    node = site.sandbox.store.get("nodes", "", "x1")
    assert node is not None
    node["spec"]["taints"] = [taint]
    (finding,) = slinky_of(site)
    assert finding.result is OK and "manages no Node that this Slurm knows by name" in finding.text
