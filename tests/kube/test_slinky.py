"""Tests of parsing Slinky's objects: NodeSets, and the settings of slurm-bridge."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dnm.demand.constraints import NodeTraits, describe_misfit
from dnm.kube.slinky import BridgeSettings, parse_bridge, read_node_set_page
from dnm.model.node_type import Taint
from dnm.model.pod import Requirement


def page(spec: dict[str, Any], **metadata: Any) -> bytes:
    item = {"metadata": {"namespace": "slurm", "name": "batch", **metadata}, "spec": spec}
    return json.dumps({"kind": "NodeSetList", "items": [item]}).encode()


def template(**spec: Any) -> dict[str, Any]:
    return {"scalingMode": "DaemonSet", "template": {"metadata": {}, "spec": spec}}


IN_RACK = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("spec", "labels", "taints", "takes"),
    [
        pytest.param({}, {}, (), True, id="no-selector-takes-all"),
        pytest.param({"nodeSelector": {"slurm": "yes"}}, {"slurm": "yes"}, (), True, id="label"),
        pytest.param({"nodeSelector": {"slurm": "yes"}}, {"dev": "true"}, (), False, id="no-label"),
        pytest.param({"affinity": IN_RACK}, {"rack": "r1"}, (), True, id="affinity"),
        pytest.param({"affinity": IN_RACK}, {"rack": "r2"}, (), False, id="another-rack"),
        pytest.param({}, {}, (Taint(key="lent", effect="NoSchedule"),), False, id="a-taint"),
        pytest.param(
            {"tolerations": [{"key": "lent", "operator": "Exists"}]},
            {},
            (Taint(key="lent", effect="NoSchedule"),),
            True,
            id="that-it-tolerates",
        ),
    ],
)
def test_node_selector_of_a_node_set_selects_nodes(
    spec: dict[str, Any], labels: dict[str, str], taints: tuple[Taint, ...], takes: bool
) -> None:
    (node_set,) = read_node_set_page(page(template(**spec)))
    assert (
        not describe_misfit(node_set.shape, (), NodeTraits(labels=labels, taints=taints))
    ) is takes


def test_node_set_fields_are_read() -> None:
    (node_set_page,) = read_node_set_page(page(template()))
    assert (node_set_page.key, node_set_page.is_daemon_set, node_set_page.is_deleting) == (
        "slurm/batch",
        True,
        False,
    )
    (other,) = read_node_set_page(page({}, deletionTimestamp="2026-11-20T12:00:00Z"))
    assert (other.is_daemon_set, other.is_deleting) == (False, True)


@pytest.mark.parametrize(
    ("text", "namespaces", "selector"),
    [
        ("managedNamespaces:\n  - dev\n  - test\n", ("dev", "test"), None),
        ("schedulerName: s\nmanagedNamespaces:\n", (), None),
        (
            "managedNamespaceSelector:\n  matchLabels: {slurm: 'yes'}\n",
            (),
            (Requirement(key="slurm", operator="In", values=("yes",)),),
        ),
        (
            "managedNamespaceSelector:\n  matchExpressions: [{key: k, operator: Exists}]\n",
            (),
            (Requirement(key="k", operator="Exists"),),
        ),
    ],
)
def test_slurm_bridge_settings_are_parsed(text: str, namespaces: Any, selector: Any) -> None:
    bridge_settings = parse_bridge("s/c", text)
    assert bridge_settings == BridgeSettings(key="s/c", namespaces=namespaces, selector=selector)


@pytest.mark.parametrize("text", ["", "- a list", "managedNamespaces: 7", "{", "&a [*a]"])
def test_malformed_slurm_bridge_settings_are_an_error(text: str) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        parse_bridge("s/c", text)
