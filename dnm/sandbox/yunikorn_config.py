"""The queue configuration that the sandbox's scheduler runs: taken up, kept, or refused.

As in YuniKorn: a document that is not valid is denied by the admission webhook where there is one;
one that got in all the same is logged and ignored, and the old queues stay.
"""

from __future__ import annotations

import hashlib

import msgspec

from dnm.model.cluster import ConfigMap, QueueLimits
from dnm.model.errors import QueueError
from dnm.queues.schema import PlacementRule
from dnm.queues.source import DEFAULTS_NAME, SourceDocument, resolve_document
from dnm.queues.tree import DocumentTree, check_text, parse_tree
from dnm.sandbox.store import ApiError, Object, Store
from dnm.sandbox.timing import Timing

NAMESPACE = "yunikorn"
CONFIGS_NAME = "yunikorn-configs"


class YunikornConfig:
    """`has_webhook`: the admission controller is installed. `takes_up`: the scheduler is well."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self.store = store
        self.timing = timing
        self.has_webhook = True
        self.takes_up = True
        self.errors: list[str] = []  # what the scheduler's log would say
        self.document = self._start()
        self._waiting: tuple[str, float] | None = None

    # --- taking up --------------------------------------------------------------------------

    def step(self) -> None:
        source = self._source()
        if source is None or source.text == self.document.text:
            self._waiting = None
            return
        if not (self.takes_up and source.is_hot_refreshed):
            return
        if self._waiting is None or self._waiting[0] != source.text:
            self._waiting = (source.text, self.store.clock.after(self.timing.take_up))
        if self.store.clock.now() >= self._waiting[1]:
            self._activate(source.text)

    def restart(self) -> None:
        """The scheduler is started anew, and reads what is there."""
        self.document = self._start()

    def _start(self) -> DocumentTree:
        built_in = resolve_document(None, None).text
        source = self._source()
        return parse_tree(source.text if source and not check_text(source.text) else built_in)

    def _activate(self, text: str) -> None:
        problems = check_text(text)
        if problems:
            message = f"reload configuration failed: {problems[0].message}"
            if message not in self.errors:
                self.errors.append(message)
            return
        self.document = parse_tree(text)
        self._waiting = None

    def _source(self) -> SourceDocument | None:
        try:
            return resolve_document(self._config_map(CONFIGS_NAME), self._config_map(DEFAULTS_NAME))
        except QueueError as error:
            message = f"decompressing configuration failed: {error}"
            if message not in self.errors:
                self.errors.append(message)
            return None

    def _config_map(self, name: str) -> ConfigMap | None:
        data = self.store.get("configmaps", NAMESPACE, name)
        return None if data is None else _as_value(data)

    # --- asking -----------------------------------------------------------------------------

    @property
    def checksum(self) -> str:
        """Of the exact text, in upper-case hexadecimal SHA-256 (`GET /ws/v1/config`)."""
        return hashlib.sha256(self.document.text.encode()).hexdigest().upper()

    @property
    def queues(self) -> dict[str, QueueLimits]:
        return self.document.queues

    @property
    def placement_rules(self) -> list[PlacementRule]:
        """As configured, or the one that YuniKorn has where none is."""
        partition = self.document.partition
        rules = list(partition.placementrules or []) if partition else []
        if not rules:
            provided = PlacementRule()
            provided.name = "provided"
            rules = [provided]
        return rules

    @property
    def packs_nodes(self) -> bool:
        partition = self.document.partition
        return partition is not None and partition.nodesortpolicy.type.lower() == "binpacking"

    def deny_invalid(self, changed: Object, old: Object | None) -> None:
        """The validating webhook for ConfigMaps; raises 400 with the scheduler's reason."""
        meta = changed["metadata"]
        names = (CONFIGS_NAME, DEFAULTS_NAME)
        if not self.has_webhook or meta.get("namespace") != NAMESPACE or meta["name"] not in names:
            return
        maps = [
            _as_value(changed) if name == meta["name"] else self._config_map(name) for name in names
        ]
        try:
            problems = check_text(resolve_document(maps[0], maps[1]).text)
        except QueueError:
            return  # an unreadable archive is dropped by YuniKorn, not denied
        if problems:
            raise ApiError(
                400,
                'admission webhook "admission-webhook.yunikorn.validate-conf" denied the request: '
                f"{problems[0].message}",
                reason="BadRequest",
            )


def _as_value(data: Object) -> ConfigMap:
    meta = data["metadata"]
    return msgspec.convert(
        {
            "namespace": meta.get("namespace", ""),
            "name": meta["name"],
            "resource_version": meta.get("resourceVersion") or "",
            "data": data.get("data") or {},
            "binary_data": data.get("binaryData") or {},
            "annotations": meta.get("annotations") or {},
            "immutable": bool(data.get("immutable")),
        },
        ConfigMap,
    )
