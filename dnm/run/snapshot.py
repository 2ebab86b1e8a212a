"""Takes the snapshot: everything a run looks at, read once, before anything is decided.

A read that fails becomes an `Unreadable` in its place. The batch side is only asked when something
depends on it: a conversion may be wanted, or a lent node is not simply serving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from dnm.model.cluster import (
    BatchNode,
    Claim,
    ConfigMap,
    Node,
    Pod,
    PodList,
    PodShape,
    YunikornView,
)
from dnm.model.config import Config
from dnm.model.errors import KubeError, YunikornError
from dnm.model.plan import Snapshot
from dnm.model.registry import ConverterProcess, Ended, Registry
from dnm.model.value import Unreadable
from dnm.plan.batch_side import needs_batch_side

DEFAULTS_NAME = "yunikorn-defaults"


class KubeReader(Protocol):
    """What the snapshot needs of the Kubernetes edge."""

    def read_pods(self, namespaces: tuple[str, ...]) -> PodList | Unreadable: ...
    def read_nodes(self) -> tuple[Node, ...] | Unreadable: ...
    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None: ...
    def read_claims(self, pods: tuple[Pod, ...]) -> tuple[Claim, ...] | Unreadable: ...


class ConverterReader(Protocol):
    """What the snapshot needs of the converter edge."""

    def list_nodes(self, node: str = "") -> Mapping[str, BatchNode] | Unreadable: ...
    def still_running(
        self, processes: Iterable[ConverterProcess]
    ) -> frozenset[ConverterProcess]: ...
    def find(self, key: str) -> ConverterProcess | None: ...
    def read_end(self, key: str) -> Ended: ...


def take_snapshot(
    config: Config,
    registry: Registry,
    kube: KubeReader,
    converter: ConverterReader,
    taken_at: datetime,
) -> Snapshot:
    """Reads nodes, pods, the queue document and, where needed, claims, the batch side, YuniKorn."""
    running = converter.still_running(_converters(registry))
    nodes = kube.read_nodes()
    if isinstance(nodes, Unreadable):
        # Nothing is decided without the nodes: an API that is down is asked once a run.
        return nothing_readable(nodes, taken_at)
    pods = kube.read_pods(tuple(sorted(config.namespaces)))
    queue_maps = _read_queue_maps(config, kube)
    batch: Mapping[str, BatchNode] | Unreadable | None = None
    if needs_batch_side(config, registry, nodes, pods):
        batch = converter.list_nodes()
    yunikorn = _read_yunikorn(config)
    return Snapshot(
        taken_at=taken_at,
        pods=_as_counted(config, pods, yunikorn),
        nodes=nodes,
        queue_maps=queue_maps,
        batch=batch,
        claims=_read_claims(kube, pods),
        yunikorn=yunikorn,
        running_converters=running,
        ended={key: converter.read_end(key) for key in registry.open_calls},
    )


def nothing_readable(why: Unreadable, taken_at: datetime) -> Snapshot:
    """The snapshot of a cluster that does not answer."""
    return Snapshot(taken_at=taken_at, pods=why, nodes=why, queue_maps=why)


def _converters(registry: Registry) -> list[ConverterProcess]:
    started = [entry.converter for entry in registry.nodes.values()]
    started += [request.converter for request in registry.requests]
    return [process for process in started if process is not None]


def _read_queue_maps(
    config: Config, kube: KubeReader
) -> tuple[ConfigMap | None, ConfigMap | None] | Unreadable:
    namespace, name = config.yunikorn_cm_namespace, config.yunikorn_cm_name
    try:
        configs = kube.read_config_map(namespace, name)
        # YuniKorn falls back on its defaults only where the site's map has no document.
        keys = () if configs is None else (*configs.data, *configs.binary_data)
        has_document = any(key.endswith((".yaml", ".yaml.gz")) for key in keys)
        defaults = None if has_document else kube.read_config_map(namespace, DEFAULTS_NAME)
    except KubeError as error:
        return Unreadable(what=f"ConfigMap {namespace}/{name}", error=str(error))
    return configs, defaults


def _read_claims(kube: KubeReader, pods: PodList | Unreadable) -> tuple[Claim, ...] | Unreadable:
    if isinstance(pods, Unreadable):
        return ()
    with_claims = tuple(pod for pod in pods.pods if pod.claims and not pod.node)
    return kube.read_claims(with_claims) if with_claims else ()


def _read_yunikorn(config: Config) -> YunikornView | Unreadable | None:
    if not config.yunikorn_url:
        return None
    from dnm.queues.yunikorn_rest import YunikornClient  # only where a site has named its scheduler

    try:
        return YunikornClient(config.yunikorn_url).read_view()
    except YunikornError as error:
        return Unreadable(what=f"YuniKorn at {config.yunikorn_url}", error=str(error))


def _as_counted(
    config: Config, pods: PodList | Unreadable, yunikorn: YunikornView | Unreadable | None
) -> PodList | Unreadable:
    """The pods with their requests as this scheduler's release sums them up. It is only asked where
    there are pods that releases differ about; where it can't be asked, they count as for 1.9."""
    if isinstance(pods, Unreadable) or not isinstance(yunikorn, YunikornView):
        return pods
    if not any(pod.shape.request_before_1_9 for pod in pods.pods):
        return pods
    from dnm.queues.yunikorn_rest import YunikornClient

    try:
        is_before_1_9 = YunikornClient(config.yunikorn_url).read_version() < (1, 9)
    except YunikornError:
        return pods
    return replace(pods, pods=tuple(_as_before_1_9(pods.pods))) if is_before_1_9 else pods


def _as_before_1_9(pods: Sequence[Pod]) -> Iterator[Pod]:
    """Equal shapes stay one object."""
    shapes: dict[int, PodShape] = {}
    for pod in pods:
        if before := pod.shape.request_before_1_9:
            known = shapes.get(id(pod.shape)) or replace(pod.shape, request=before)
            pod = replace(pod, shape=shapes.setdefault(id(pod.shape), known))
        yield pod
