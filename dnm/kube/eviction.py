"""The eviction of pods from a node by the Eviction API, which respects disruption budgets.

dnm never deletes a pod, and each pod keeps its grace period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused, LostAnswer
from dnm.kube.objects import Metadata, check_kind
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.model.cluster import PodOnNode
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.pod import Pod

_TWO_BUDGETS = "more than one PodDisruptionBudget"  # pkg/registry/core/pod/storage/eviction.go
_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")
_DAEMON_SET = ("apps", "DaemonSet")
_OF_NODE = ("", "Node")  # a static pod, or dnm's pod for a readiness check
_NODE_SET = ("slinky.slurm.net", "NodeSet")  # with the pod of a slurmd its jobs would end


class _LocalVolume(msgspec.Struct, rename="camel"):
    empty_dir: dict[str, object] | None = None


class _PodSpec(msgspec.Struct):
    volumes: list[_LocalVolume] | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: Metadata
    spec: _PodSpec
    status: _PodStatus


def read_pods_to_evict(requests: ApiRequests, node: str) -> Sequence[PodOnNode]:
    """Returns the unfinished pods on a node, of all namespaces. Raises KubeError."""
    asking = requests.asking(f"list the pods on node {node}", "list pods")
    with asking, fault_point("kube.list_pods"):
        pods = List("/api/v1/pods", "PodList", {"fieldSelector": f"spec.nodeName={node}"})
        unfinished = requests.list_items(pods, _Pod, lambda pod: pod.status.phase not in _FINISHED)
    return [_reduce(pod) for pod in unfinished]


def _reduce(pod: _Pod) -> PodOnNode:
    # A tenant may give a kind of his own any name. Only the API group distinguishes it.
    owners = {
        (owner.api_version.rpartition("/")[0], owner.kind)
        for owner in pod.metadata.owner_references or ()
        if owner.controller and owner.kind
    }
    is_mirror = _MIRROR in (pod.metadata.annotations or {})
    has_local_data = any(volume.empty_dir is not None for volume in pod.spec.volumes or ())
    loss = "it has no controller that would replace it" if not owners else ""
    if not loss and has_local_data:
        loss = "its emptyDir volume would be lost"
    return PodOnNode(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        stays=is_mirror or not owners.isdisjoint((_DAEMON_SET, _OF_NODE, _NODE_SET)),
        is_terminating=pod.metadata.deletion_timestamp is not None,
        loss=loss,
        is_work=not (is_mirror or owners & {_DAEMON_SET, _OF_NODE}),
    )


def evict(requests: ApiRequests, pod: Pod | PodOnNode, *, is_dry_run: bool = False) -> str:
    """Requests the eviction of a pod. Returns an empty text if it is granted or the pod is gone; an
    evicted pod may still use its grace period. Otherwise returns why a disruption budget forbids
    it. With `is_dry_run`, the server only checks the request. Raises KubeError."""
    path = path_of("pods", pod.name, pod.namespace)
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
    }
    if pod.uid:
        eviction["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
    task = f"evict pod {pod.namespace}/{pod.name}"
    try:
        with requests.changing(task, "create pods/eviction"), fault_point("kube.evict"):
            query = "?dryRun=All" if is_dry_run else ""
            return _ask_for_eviction(requests, f"{path}/eviction{query}", eviction)
    except KubeConflict:
        return ""  # another pod has the name now: this one is gone
    except ApiRefused as error:
        if error.status == 404:
            return ""
        if error.status == 429:
            return error.message or "a disruption budget does not allow it now"
        raise


def _ask_for_eviction(requests: ApiRequests, path: str, body: object) -> str:
    try:
        answer = requests.session.write("POST", path, body, is_throttled=False)
        check_kind(answer.body, "Status", "Eviction")
    except LostAnswer as error:
        # The status is 500, but the server works and did nothing: it never evicts this pod.
        refusal = error.__cause__
        if isinstance(refusal, ApiRefused) and _TWO_BUDGETS in refusal.message:
            return "it has more than one PodDisruptionBudget: remove one of them"
        raise
    return ""


def refuses_dry_run(error: KubeError) -> bool:
    """Returns whether the server refused only the dry run, because a webhook has side effects."""
    return isinstance(error, ApiRefused) and "does not support dry run" in error.message
