"""A simulated cluster with a queue document, for `dnm simulate`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from dnm.model.cluster import ConfigMap
from dnm.model.config import Config
from dnm.model.queue_path import lineage
from dnm.model.value import Resources
from dnm.queues.yunikorn.quantities import yunikorn_name


class SimulatedMaps:
    """A simulated cluster. Its only ConfigMap is the queue document."""

    def __init__(self, config: Config, limits: Mapping[str, Resources]) -> None:
        namespace, name = config.queue_document
        data = {"queues.yaml": queues_text(limits)}
        self._document = ConfigMap(namespace=namespace, name=name, resource_version="1", data=data)

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        is_document = (namespace, name) == (self._document.namespace, self._document.name)
        return self._document if is_document else None

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap:
        version = str(int(self._document.resource_version) + 1)
        self._document = replace(config_map, resource_version=version)
        return self._document


def queues_text(limits: Mapping[str, Resources]) -> str:
    """Returns a queues.yaml with these limits. Ancestors that are not in `limits` get no limit."""
    lines = ["partitions:", "  - name: default", "    queues:", "      - name: root"]
    paths = {path for queue in limits for path in lineage(queue)}
    return "\n".join([*lines, *_below("root", paths, limits, "        ")]) + "\n"


def _below(
    parent: str, paths: Collection[str], limits: Mapping[str, Resources], indent: str
) -> Iterator[str]:
    children = sorted(path for path in paths if path.rpartition(".")[0] == parent)
    if children:
        yield f"{indent}queues:"
    for path in children:
        yield f"{indent}  - name: {path.rpartition('.')[2]}"
        limit = limits.get(path, {})
        if limit:
            yield from (f"{indent}    resources:", f"{indent}      max:")
        for name, amount in limit.items():
            text = f"{amount}m" if name == "cpu" else str(amount)
            yield f'{indent}        {yunikorn_name(name)}: "{text}"'
        yield from _below(path, paths, limits, f"{indent}    ")
