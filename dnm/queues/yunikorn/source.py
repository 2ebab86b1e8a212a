"""The source of YuniKorn's queue document: a key of one of two ConfigMaps, as text or as gzip."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.model.value import Value
from dnm.queues.system import ConfigMaps
from dnm.queues.yunikorn import packed
from dnm.queues.yunikorn.document_edit import DocumentVersion

LEDGER_ANNOTATION = "dynamic-node-manager/ledger"
DEFAULTS_NAME = "yunikorn-defaults"
DEFAULT_PLACE = ("yunikorn", "yunikorn-configs")

_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))  # of Go's strconv.ParseBool
_BUILT_IN = """
partitions:
  - name: default
    placementrules:
      - name: tag
        value: namespace
        create: true
    queues:
      - name: root
        submitacl: '*'
"""


class SourceDocument(Value):
    """The text of a queue document, its ConfigMap (None: YuniKorn's built-in queues), and the key.

    `refusal`: why dnm must not edit the text at this place, with the next step."""

    text: str
    config_map: ConfigMap | None = None
    key: str = ""
    is_gzip: bool = False
    refusal: str | None = None
    is_hot_refreshed: bool = True

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns a warning if YuniKorn does not reload a changed ConfigMap by itself."""
        return () if self.is_hot_refreshed else (_NO_HOT_REFRESH,)

    @property
    def ledger_text(self) -> str:
        """Returns the ledger from the annotation of the ConfigMap; empty if there is none."""
        return self.config_map.annotations.get(LEDGER_ANNOTATION, "") if self.config_map else ""

    @property
    def is_built_in(self) -> bool:
        """Returns whether no ConfigMap has queues, so that YuniKorn uses its built-in ones."""
        return self.refusal is not None and self.text == _BUILT_IN

    @property
    def version(self) -> DocumentVersion | None:
        """Returns the document's version, which each write changes. None: it is unknown."""
        config_map = self.config_map
        if config_map is None or not config_map.resource_version:
            return None
        return DocumentVersion(
            config_map.namespace, config_map.name, self.key, config_map.resource_version
        )


def read_config_maps(
    read: Callable[[str, str], ConfigMap | None], place: tuple[str, str]
) -> tuple[ConfigMap | None, ConfigMap | None]:
    """Reads the two ConfigMaps in which YuniKorn looks for queues: the one at `place` (namespace,
    name) and YuniKorn's defaults. dnm reads the defaults too, because their `service.policyGroup`
    may name another document."""
    return read(*place), read(place[0], DEFAULTS_NAME)


def read_source(kube: ConfigMaps, place: tuple[str, str]) -> SourceDocument:
    """Reads the current queue document. Raises KubeError, or QueueError if its gzip is invalid."""
    maps = read_config_maps(kube.read_config_map, place)
    return resolve_document(*maps, place)


def resolve_document(
    configs: ConfigMap | None,
    defaults: ConfigMap | None,
    place: tuple[str, str] = DEFAULT_PLACE,
) -> SourceDocument:
    """Finds the queue document in both ConfigMaps as YuniKorn does. `configs` has precedence over
    `defaults`, and `binaryData` over `data`; `service.policyGroup` names the key. `place` is the
    namespace and name of `configs`.

    Raises QueueError for a compressed document that can't be unpacked. YuniKorn would silently use
    another document."""
    maps = [config_map for config_map in (configs, defaults) if config_map is not None]
    missing = "" if configs else _NO_CONFIG_MAP.format(*place)
    settings = {key: text for config_map in reversed(maps) for key, text in config_map.data.items()}
    group = settings.get("service.policyGroup", "").strip() or "queues"
    is_hot = settings.get("service.enableConfigHotRefresh", "").strip() not in _FALSE
    for config_map in maps:
        if stored := _find(config_map, f"{group}.yaml"):
            key, text, is_gzip = stored
            why = _why_not_there(config_map, key, text, "" if config_map is configs else place[1])
            return SourceDocument(
                text=text or _BUILT_IN,
                config_map=config_map,
                key=key,
                is_gzip=is_gzip,
                refusal=why and missing + why,
                is_hot_refreshed=is_hot,
            )
    where = (
        " or ".join(f"{config_map.namespace}/{config_map.name}" for config_map in maps)
        or "the cluster"
    )
    return SourceDocument(
        text=_BUILT_IN,
        refusal=f"{missing}there is no {group}.yaml in {where}: YuniKorn uses its built-in queues, "
        f"which have no limits. Write a {group}.yaml into the ConfigMap first",
        is_hot_refreshed=is_hot,
    )


_NO_CONFIG_MAP = (
    "there is no ConfigMap {}/{}: correct yunikorn_cm_namespace and yunikorn_cm_name, "
    "or create it; "
)
_NO_HOT_REFRESH = (
    "service.enableConfigHotRefresh is false: YuniKorn reads changed queues only when it starts; "
    "set it to true and restart the scheduler"
)


def _find(config_map: ConfigMap, key: str) -> tuple[str, str, bool] | None:
    for name, content in config_map.binary_data.items():
        if name.lower() == f"{key}.gz".lower() and name.startswith(key):
            return name, packed.unpack(config_map, name, content), True
    text = config_map.data.get(key)
    return None if text is None else (key, text, False)


def _why_not_there(config_map: ConfigMap, key: str, text: str, instead: str) -> str | None:
    """Returns why dnm must not edit the document under `key`; None if it may. `instead`: another
    ConfigMap, into which the administrator can copy it."""
    where = f"{key} of ConfigMap {config_map.namespace}/{config_map.name}"
    if not text:
        return f"{where} is empty, so YuniKorn uses its built-in queues; write the queues into it"
    if instead:
        return (
            f"the queues are only in {where}, which Helm owns and rewrites; copy {key} into "
            f"{instead}, where it takes precedence, and dnm will edit it there"
        )
    if config_map.immutable:
        return (
            f"{where} can't be changed: the ConfigMap is immutable; replace it by one that is not"
        )
    return None


def with_document(source: SourceDocument, text: str, ledger: str) -> ConfigMap:
    """Returns the ConfigMap with a new queue document and ledger, for a write under the same
    resourceVersion. A compressed document is compressed again under the same key."""
    config_map = source.config_map
    if config_map is None:
        raise QueueError(str(source.refusal))
    data, binary_data = dict(config_map.data), dict(config_map.binary_data)
    if source.is_gzip and text != source.text:
        binary_data[source.key] = packed.pack(text)
    elif not source.is_gzip:
        data[source.key] = text
    annotations = dict(config_map.annotations)
    if ledger:
        annotations[LEDGER_ANNOTATION] = ledger
    else:
        annotations.pop(LEDGER_ANNOTATION, None)
    changed: ConfigMap = msgspec.structs.replace(
        config_map, data=data, binary_data=binary_data, annotations=annotations
    )
    return changed


# --- the API server's limits for a ConfigMap, in bytes -----------------------------------------

ANNOTATIONS_LIMIT = 256 * 1024  # keys and values of all annotations of an object
DATA_LIMIT = 1024 * 1024  # values of data and, unpacked from base64, of binaryData


def check_size(source: SourceDocument, text: str, ledger: str) -> None:
    """Raises QueueError if the ConfigMap with this text and ledger would exceed what Kubernetes
    accepts. A ConfigMap that exceeds it already may shrink."""
    config_map = source.config_map
    if config_map is None:
        return
    annotations = {**config_map.annotations, LEDGER_ANNOTATION: ledger}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT and len(ledger) > len(source.ledger_text):
        raise QueueError(
            f"the ledger would need {len(ledger)} bytes and the annotations of the ConfigMap "
            f"{size}, Kubernetes allows {ANNOTATIONS_LIMIT}: no more nodes are counted until some "
            "are returned. `kubectl apply --server-side` keeps no copy of the manifest there"
        )
    new = with_document(source, text, ledger)
    size = sum(len(value.encode()) for value in new.data.values())
    size += sum(packed.size_of(value) for value in new.binary_data.values())
    if size > DATA_LIMIT and len(text) > len(source.text):
        next_step = (
            "remove unneeded data"
            if source.is_gzip
            else "move the queues into binaryData as queues.yaml.gz"
        )
        raise QueueError(
            f"the ConfigMap would hold {size} bytes, Kubernetes allows {DATA_LIMIT}; {next_step}"
        )
