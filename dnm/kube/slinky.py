"""The reading of Slinky's objects for `dnm check`: its NodeSets, and the settings of slurm-bridge.

No run reads them. Discovery, which every user may read, shows whether the API group is served. If a
permission is missing, that is an error and never means that there are no objects."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import yaml

from dnm.host.fault_points import fault_point
from dnm.kube.objects import Described, ListPage, Metadata
from dnm.kube.pod_reading import LabelSelector, NodeRules
from dnm.kube.requests import ApiRequests, List, path_of
from dnm.model.pod import PodShape, Requirement
from dnm.model.value import Value

GROUP = "slinky.slurm.net"
VERSION = "v1beta1"
BRIDGE_NAMES = "slurm-bridge-controllers,slurm-bridge-scheduler,slurm-bridge-admission"
_BRIDGE = f"app.kubernetes.io/name in ({BRIDGE_NAMES})"
_BRIDGE_CONFIG = "slurm-bridge-config"


class SlurmdSet(Value):
    """A NodeSet of Slinky with its slurmd pods. `shape` decides on which Nodes they may run."""

    namespace: str
    name: str
    is_daemon_set: bool  # one pod on each matching Node, regardless of `replicas`
    shape: PodShape
    is_deleting: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class BridgeSettings(Value):
    """The namespaces that slurm-bridge manages, by name or by labels."""

    key: str  # namespace/name of its ConfigMap
    namespaces: tuple[str, ...] = ()
    selector: tuple[Requirement, ...] | None = None  # None: by name


class _Group(msgspec.Struct):
    versions: list[_Version]


class _Version(msgspec.Struct):
    version: str


class _Template(msgspec.Struct):
    spec: NodeRules = NodeRules()


class _NodeSetSpec(msgspec.Struct, rename="camel"):
    scaling_mode: str = "StatefulSet"
    template: _Template = msgspec.field(default_factory=_Template)


class _NodeSet(msgspec.Struct):
    metadata: Metadata
    spec: _NodeSetSpec


class _Data(msgspec.Struct):
    data: dict[str, str] | None = None


class _Settings(msgspec.Struct, rename="camel"):
    managed_namespaces: list[str] | None = None
    managed_namespace_selector: LabelSelector | None = None


def read_versions(api: ApiRequests) -> tuple[str, ...]:
    """Returns the API versions of Slinky that the server serves, or none without Slinky. Raises
    KubeError."""
    with api.asking(f"look up the API group {GROUP}", "get /apis"), fault_point("kube.slinky"):
        answer = api.read_or_none(f"/apis/{GROUP}")
        if answer is None:
            return ()
        group = msgspec.json.decode(answer.body, type=_Group)
        return tuple(version.version for version in group.versions)


def list_node_sets(api: ApiRequests) -> tuple[SlurmdSet, ...]:
    """Returns the NodeSets of all namespaces. Raises KubeError."""
    listing = List(f"/apis/{GROUP}/{VERSION}/nodesets", "NodeSetList")
    asking = api.asking("list the NodeSets", f"list nodesets.{GROUP}")
    with asking, fault_point("kube.slinky"):
        return tuple(api.collect(listing, read_node_set_page))


def read_node_set_page(page: memoryview | bytes) -> list[SlurmdSet]:
    """Returns the NodeSets of a page. Raises msgspec.MsgspecError if the page is something else."""
    return [
        SlurmdSet(
            namespace=item.metadata.namespace,
            name=item.metadata.name,
            is_daemon_set=item.spec.scaling_mode == "DaemonSet",
            is_deleting=item.metadata.deletion_timestamp is not None,
            shape=item.spec.template.spec.shape(),
        )
        for item in msgspec.json.decode(page, type=ListPage[_NodeSet]).items
    ]


def find_bridges(api: ApiRequests) -> tuple[str, ...]:
    """Returns the namespaces with an installed slurm-bridge, by the labels of its Helm chart.
    Raises KubeError."""
    deployments = List("/apis/apps/v1/deployments", "DeploymentList", {"labelSelector": _BRIDGE})
    with (
        api.asking("list the Deployments of all namespaces", "list deployments.apps"),
        fault_point("kube.slinky"),
    ):
        bridges = api.list_items(deployments, Described)
        return tuple(sorted({bridge.metadata.namespace for bridge in bridges}))


def read_bridge(api: ApiRequests, namespace: str) -> BridgeSettings:
    """Returns the settings of the slurm-bridge in that namespace. Raises KubeError."""
    key = f"{namespace}/{_BRIDGE_CONFIG}"
    path = path_of("configmaps", _BRIDGE_CONFIG, namespace)
    asking = api.asking(f"read the ConfigMap {key}", f"get configmaps {key}")
    with asking, fault_point("kube.slinky"):
        body = api.session.read(path).body
        text = (msgspec.json.decode(body, type=_Data).data or {}).get("config.yaml", "")
        return parse_bridge(key, text)


def parse_bridge(key: str, text: str) -> BridgeSettings:
    """Returns the settings in a config.yaml. Raises ValueError or msgspec.MsgspecError."""
    try:
        settings = msgspec.convert(yaml.safe_load(text), _Settings)
    except yaml.YAMLError as error:
        raise ValueError(f"its config.yaml is not YAML: {str(error).splitlines()[0]}") from error
    selector = settings.managed_namespace_selector
    return BridgeSettings(
        key=key,
        namespaces=tuple(settings.managed_namespaces or ()),
        selector=selector.requirements() if selector is not None else None,
    )


def read_namespace_labels(api: ApiRequests, name: str) -> Mapping[str, str]:
    """Returns the labels of a namespace. Raises KubeError."""
    asking = api.asking(f"read the namespace {name}", "get namespaces")
    with asking, fault_point("kube.slinky"):
        body = api.session.read(path_of("namespaces", name)).body
        return msgspec.json.decode(body, type=Described).metadata.labels or {}
