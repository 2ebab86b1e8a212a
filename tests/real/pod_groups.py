"""PodGroups of two other schedulers on the real API server, each for at least four pods."""

from __future__ import annotations

from tests.real.rig import Rig

LABEL = "scheduling.x-k8s.io/pod-group"
ROLE = "dynamic-node-manager-pod-waits"  # of etc/rbac.yaml: it may list them
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUPS = {"scheduling.x-k8s.io": "v1alpha1", "scheduling.volcano.sh": "v1beta1"}


def make_pod_groups(rig: Rig) -> None:
    """Adds the two kinds named PodGroup, and an object `four` of each in dev."""
    for group, version in _GROUPS.items():
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {"plural": "podgroups", "kind": "PodGroup", "singular": "podgroup"}
        crd = {
            "metadata": {"name": f"podgroups.{group}",
                         "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"}},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [
                {"name": version, "served": True, "storage": True,
                 "schema": {"openAPIV3Schema": anything}}]},
        }  # fmt: skip
        rig.create(_CRDS, crd)
        path = f"/apis/{group}/{version}/namespaces/dev/podgroups"
        rig.wait_for(lambda path=path: rig.api.answers(path), f"{group} is served")  # type: ignore[misc]
        four = {"metadata": {"name": "four"}, "spec": {"minMember": 4}}
        rig.create(path, {"apiVersion": f"{group}/{version}", "kind": "PodGroup", **four})
