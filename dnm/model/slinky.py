"""The labels, taints and comments of Slinky: slurm-operator runs slurmd in pods, slurm-bridge lets
Slurm schedule pods on Kubernetes' nodes. Names are those of slurm-operator 1.2, slurm-bridge 1.2.

An object with one of these marks never belongs to dnm. A Comment or AdminComment in another format,
e.g. of an administrator, is ignored."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

OPERATOR_REASON = "slurm-operator:"  # the beginning of each of its Reasons
BRIDGE_REASON = "slurm-bridge:"
MAINTENANCE = "SlurmOperatorMaint-"  # and the NodeSet's name: a reservation for its updates
MANAGED_TAINT = "slinky.slurm.net/managed-node"  # on each Node that Slurm knows by the same name
WORKER_TAINT = "nodeset.slinky.slurm.net/worker"  # of an operator before 1.2, if configured
EXTERNAL_NODE = "scheduler.slinky.slurm.net/external-node"  # a label: put the Node into Slurm
BRIDGE_NODE = "scheduler.slinky.slurm.net/slurm-bridge-external-node"  # another name of that label
PARTITIONS = f"{EXTERNAL_NODE}-partitions"  # an annotation: a comma list, its features in Slurm
SLURM_NAME = "slinky.slurm.net/slurm-nodename"  # a label: the name of the Node in Slurm


def bridge_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns those labels of a Node by which slurm-bridge adds the Node to Slurm."""
    return {key: labels[key] for key in (EXTERNAL_NODE, BRIDGE_NODE) if key in labels}


class _PodInfo(msgspec.Struct, rename="camel"):
    namespace: str
    pod_name: str
    node: str = ""


class _Placeholder(msgspec.Struct):
    pods: list[str]


_decode_pod_info = msgspec.json.Decoder(_PodInfo).decode
_decode_placeholder = msgspec.json.Decoder(_Placeholder).decode
_NOT_THEIRS = (msgspec.MsgspecError, UnicodeError, RecursionError)


def writer_of(reason: str) -> str:
    """Returns `slurm-operator` or `slurm-bridge` if it wrote this Reason in Slurm, else ""."""
    for prefix in (OPERATOR_REASON, BRIDGE_REASON):
        if reason.startswith(prefix):
            return prefix.rstrip(":")
    return ""


def pod_of(comment: str) -> str:
    """Returns the pod (namespace/name) in which a node's slurmd runs. slurm-operator writes it into
    the node's Comment. The result is empty if the Comment names none."""
    try:
        info = _decode_pod_info(comment)
    except _NOT_THEIRS:
        return ""
    return f"{info.namespace}/{info.pod_name}" if info.namespace and info.pod_name else ""


def pods_of_job(admin_comment: str) -> tuple[str, ...]:
    """Returns the pods that a Slurm job represents, which slurm-bridge writes into its
    AdminComment; none for an ordinary job. These pods are deleted if the job ends. An unreadable
    AdminComment of slurm-bridge counts as a pod with an unknown name."""
    try:
        return tuple(_decode_placeholder(admin_comment).pods)
    except _NOT_THEIRS:
        is_like_theirs = admin_comment.startswith("{") and '"pods"' in admin_comment
        return ("with an unreadable name",) if is_like_theirs else ()
