"""Tests of which pods dnm takes for DaemonSet pods, since tenants may write any owner reference."""

from __future__ import annotations

from typing import Any

import pytest

from dnm.demand.daemon_pods import nodes_to_verify, verify_pods
from dnm.model.node_type import Taint
from dnm.model.pod import DaemonSet, Pod, PodList, PodShape, Toleration
from dnm.model.registry import Registry
from tests.builders import a_lent_node, a_node

NODE = a_node("a001", labels={"pool": "dev"})


def daemon_set(**shape: Any) -> DaemonSet:
    return DaemonSet(namespace="dev", name="agent", uid="u1", shape=PodShape(request={}, **shape))


def claiming(**changes: Any) -> Pod:
    values = {"namespace": "dev", "name": "x", "node": "a001", "owner": "u1", "is_daemonset": True}
    return Pod(**{**values, "shape": PodShape(request={"pods": 1}), **changes})


def tainted(effect: str, key: str = "broken") -> Any:
    return a_node("a001", taints=(Taint(key=key, effect=effect),))


@pytest.mark.parametrize(
    ("pod", "of", "node", "is_believed"),
    [
        pytest.param(claiming(), daemon_set(), NODE, True, id="a DaemonSet that selects the node"),
        pytest.param(claiming(owner="u2"), daemon_set(), NODE, False, id="another uid"),
        pytest.param(claiming(owner=""), daemon_set(), NODE, False, id="no uid"),
        pytest.param(claiming(namespace="lab"), daemon_set(), NODE, False, id="another namespace"),
        pytest.param(claiming(), daemon_set(node_selector=(("pool", "x"),)), NODE, False,
                     id="a DaemonSet that does not select the node"),
        pytest.param(claiming(), daemon_set(), tainted("NoExecute"), False,
                     id="a taint that evicts its pods"),
        pytest.param(claiming(), daemon_set(tolerations=(Toleration(operator="Exists"),)),
                     tainted("NoExecute"), True, id="and that it tolerates"),
        pytest.param(claiming(), daemon_set(), tainted("NoSchedule"), True,
                     id="a later taint that evicts no pod"),
        pytest.param(claiming(), daemon_set(),
                     tainted("NoExecute", "node.kubernetes.io/unreachable"), True,
                     id="a taint that each DaemonSet tolerates"),
        pytest.param(claiming(node=""), daemon_set(), NODE, True, id="a pod that waits"),
        pytest.param(claiming(owner="", name="dnm-images-a001"), daemon_set(), NODE, True,
                     id="a pod by which dnm makes a node ready"),
    ],
)  # fmt: skip
def test_daemon_set_owner_is_verified_by_uid_and_node_selector(
    pod: Pod, of: DaemonSet, node: Any, is_believed: bool
) -> None:
    (result,) = verify_pods((pod,), (of,), (node,), {"dev/dnm-images-a001"})
    assert result.is_daemonset is is_believed and result.counts_as_work is not is_believed


def test_only_lent_nodes_without_other_pods_are_verified() -> None:
    registry = Registry(nodes={"a001": a_lent_node(), "a002": a_lent_node()})
    work = claiming(node="a002", is_daemonset=False)
    some = PodList(pods=(claiming(), claiming(node="a002"), work, claiming(node="k1")))
    plain = (a_node("k1", mark=None),)
    assert nodes_to_verify(registry, plain, some) == {"a001"}
    assert nodes_to_verify(Registry(), plain, some) == frozenset()
