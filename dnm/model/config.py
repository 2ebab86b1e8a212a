"""The configuration of dnm as typed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from dnm.model.calendar import CalendarEvent
from dnm.model.lease import LEASE_NAMESPACE
from dnm.model.node_type import NodeType
from dnm.model.opening import Check
from dnm.model.share import Floor, Share
from dnm.model.value import Resources, Value

PASSED_BY_DEFAULT = ("PASSWORD",)
_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?")


class NamespacePolicy(Value):
    """The settings of a monitored namespace. `node_types` are in order of preference."""

    name: str
    queue: str  # full path from root, lower case; without a queue system, the namespace
    node_types: tuple[str, ...]
    max_nodes: int | Share | None = None
    min_nodes: int = 0
    min_of_type: Mapping[str, int] = {}  # current minimum of each type, within the minimum; no key
    min_nodes_by: str = ""  # what raised it now, for people; empty: the key itself
    priority: int = 0  # the order of namespaces if nodes are scarce
    reversion_idle: timedelta | None = None  # None: the default, longer where nodes were lent again
    queue_system: str = "yunikorn"  # yunikorn, resource_quota, none
    charge_account: str = ""  # of Slurm, for its lent nodes; empty: they are not charged
    options: Mapping[str, Any] = {}  # keys of rules that are set


class Config(Value):
    """The entire configuration of dnm. A default is that of the key; load.py computes others."""

    path: Path
    namespaces: Mapping[str, NamespacePolicy]
    node_types: Mapping[str, NodeType]
    exclude_nodes: frozenset[str] = frozenset()  # never lent, like those of the next three
    exclude_partitions: tuple[str, ...] = ()
    exclude_features: tuple[str, ...] = ()
    exclude_reservations: tuple[str, ...] = ()
    kubeconfig_path: Path | None = None
    calendar_events: tuple[CalendarEvent, ...] = ()  # [event:NAME]
    unread_events: Mapping[str, tuple[str, ...]] = {}  # unreadable ones: name -> errors
    events_dir: Path | None = None  # files *.ini with such sections
    reserve_ahead: timedelta = timedelta()  # how early Slurm reserves nodes of events; zero: never
    events_zone: str = "UTC"  # of events without a zone
    lead: timedelta = timedelta(minutes=30)  # before an event, until dnm has measured conversions
    check_interval: timedelta = timedelta(seconds=60)
    batch_floor: Floor | None = None  # of each node type without its own
    type_floors: Mapping[str, Floor] = {}
    partition_floors: Mapping[str, Floor] = {}
    max_converted_nodes: int | Share = 30
    max_conversions_per_run: int = 30
    max_reversions_per_run: int = 30
    headroom: float = 1.0  # below: a warm share of each limit
    pending_grace: timedelta = timedelta(seconds=20)
    global_cooldown: timedelta = timedelta(seconds=30)
    join_timeout: timedelta = timedelta(seconds=900)
    convert_timeout: timedelta = timedelta(seconds=1800)
    shutdown_grace: timedelta = timedelta(seconds=600)
    request_timeout: timedelta = timedelta(seconds=30)
    relist_interval: timedelta = timedelta(minutes=60)  # between two full lists
    watch_from_pods: int = 5_000  # in a smaller cluster a list costs less than a wait
    breaker_strikes: int = 3
    adjust_guaranteed: bool = True
    fault_conditions: tuple[Check, ...] = ()  # conditions and taints that make a lent node faulty
    consolidate: bool = True  # half-empty lent nodes get no new pods
    move_in_place: bool = False  # nodes change their namespace without a reboot
    allow_preempt: bool = False
    annotate_workloads: bool = False  # that a quota has refused
    yunikorn_cm_namespace: str = "yunikorn"
    yunikorn_cm_name: str = "yunikorn-configs"
    yunikorn_queue_annotation: str = "yunikorn.apache.org/queue"
    yunikorn_url: str = ""
    default_request: Resources = msgspec.field(
        default_factory=lambda: {"cpu": 1000, "memory": 2 * 1024**3}
    )
    registry_storage: str = "file"  # where the registry is: file, kubernetes
    registry_namespace: str = "dnm"
    state_dir: Path = Path("/etc/dynamic-node")
    converted_nodes_path: Path = Path("/etc/dynamic-node/converted_nodes.json")
    node_convert_path: Path = Path("node-convert")
    instance_id: str = "prod"
    metrics_file: Path | None = None
    history_keep: timedelta = timedelta(days=400)  # zero: no history
    demand_keep: timedelta = timedelta()  # zero: the demand of pods is not recorded
    pass_environment: tuple[str, ...] = PASSED_BY_DEFAULT  # variables for the converter
    options: Mapping[str, Any] = {}  # keys of rules that are set

    @property
    def queue_systems(self) -> frozenset[str]:
        """Returns the queue systems of the monitored namespaces, or YuniKorn if there are none."""
        systems = frozenset(policy.queue_system for policy in self.namespaces.values())
        return systems or frozenset({"yunikorn"})

    @property
    def quota_system(self) -> str:
        """Returns the only configured queue system with limits; empty if there is none."""
        return next(iter(self.queue_systems - {"none"}), "")

    @property
    def namespace_queues(self) -> frozenset[str]:
        """Returns the monitored namespaces without a YuniKorn queue. For these, dnm counts the pods
        of every scheduler."""
        return frozenset(self.namespaces) - self.namespaces_with("yunikorn")

    def namespaces_with(self, system: str) -> frozenset[str]:
        """Returns the monitored namespaces that have this queue system."""
        policies = self.namespaces.items()
        return frozenset(name for name, policy in policies if policy.queue_system == system)

    def without_services(self) -> Config:
        """Returns a copy of the configuration without the URL of YuniKorn's REST service."""
        changed: Config = msgspec.structs.replace(self, yunikorn_url="")
        return changed

    @property
    def queue_document(self) -> tuple[str, str]:
        """Returns the namespace and name of the ConfigMap that configures YuniKorn's queues."""
        return self.yunikorn_cm_namespace, self.yunikorn_cm_name

    @property
    def account_namespace(self) -> str:
        """Returns the namespace of dnm's ServiceAccount: that of YuniKorn's ConfigMap, or dnm."""
        has_yunikorn = "yunikorn" in self.queue_systems
        return self.yunikorn_cm_namespace if has_yunikorn else LEASE_NAMESPACE

    @property
    def object_name(self) -> str:
        """Returns the name of this instance's Lease and Secret, made a valid DNS subdomain."""
        if _PLAIN_NAME.fullmatch(self.instance_id):
            return f"dnm-{self.instance_id}"
        import hashlib  # two milliseconds that other names do not need

        plain = re.sub(r"[^a-z0-9-]", "-", self.instance_id.lower())[:40].strip("-")
        return f"dnm-{plain}-{hashlib.sha256(self.instance_id.encode()).hexdigest()[:10]}"

    @property
    def lock_path(self) -> Path:
        """Returns the path of the lock file beside the registry: each registry has its own lock."""
        return self.converted_nodes_path.with_suffix(".lock")

    @property
    def began_path(self) -> Path:
        """Returns the path of a file with the start of this host's last run as modification time.
        The lock file has another time, since commands that change the registry lock it too."""
        return self.lock_path.with_suffix(".began")

    @property
    def ended_path(self) -> Path:
        """Returns the path of a file with the end of this host's last run as modification time."""
        return self.lock_path.with_suffix(".ended")

    @property
    def trigger_path(self) -> Path:
        """Returns the path of a file that exists if a conversion ended after the last run began."""
        return self.converted_nodes_path.with_suffix(".wake")

    @property
    def store_path(self) -> Path:
        """Returns the path, beside the registry, of the file with dnm's copy of cluster objects."""
        return self.converted_nodes_path.with_suffix(".cluster")

    def type_of(self, node: str) -> str | None:
        """Returns the node type of a node, recognized by its prefix followed by digits, or None."""
        for node_type in self.node_types.values():
            prefix = node_type.name_prefix or node_type.name
            number = node.removeprefix(prefix)
            if node.startswith(prefix) and number.isascii() and number.isdigit():
                return node_type.name
        return None

    def floor_of(self, node_type: str) -> Floor | None:
        """Returns the number or percentage of a type's nodes that must stay with Slurm, or None."""
        return self.type_floors.get(node_type) or self.batch_floor

    @property
    def has_shares(self) -> bool:
        """Returns whether any configured cap is a percentage of the nodes that Slurm has."""
        most = [namespace.max_nodes for namespace in self.namespaces.values()]
        most += [node_type.max_nodes for node_type in self.node_types.values()]
        return any(isinstance(item, Share) for item in (self.max_converted_nodes, *most))

    @property
    def has_kubelets(self) -> bool:
        """Returns whether any node type has settings for its kubelets."""
        return any(node_type.kubelet is not None for node_type in self.node_types.values())

    @property
    def has_aligned_pods(self) -> bool:
        """Returns whether the kubelets of any node type reject pods that exceed one NUMA node."""
        return any(node_type.kubelet is not None and node_type.kubelet.aligns_pods
                   for node_type in self.node_types.values())  # fmt: skip

    @property
    def queues(self) -> tuple[str, ...]:
        """Returns the paths of the monitored namespaces' queues, sorted and without duplicates."""
        return tuple(sorted({policy.queue for policy in self.namespaces.values()}))
