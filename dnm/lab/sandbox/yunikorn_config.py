"""Keeps the queue configuration that the sandbox's scheduler runs: taken up, kept, or refused.

As in YuniKorn: a document that is not valid is denied by the admission webhook where there is one;
one that got in all the same is logged and ignored, and the old queues stay.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import zlib
from typing import Any

import msgspec

from dnm.lab.sandbox.amounts import configured_amounts
from dnm.lab.sandbox.placement_rules import ROOT
from dnm.lab.sandbox.queues_rules import check_activation, read_document
from dnm.lab.sandbox.queues_yaml import ConfigRefused, Fields
from dnm.lab.sandbox.store import ApiError, Object, Store
from dnm.lab.sandbox.timing import Timing

NAMESPACE = "yunikorn"
CONFIGS_NAME = "yunikorn-configs"
DEFAULTS_NAME = "yunikorn-defaults"
NEWEST = "1.9.0"
_BUILT_IN = """
partitions:
  - name: default
    placementrules: [{name: tag, value: namespace, create: true}]
    queues: [{name: root, submitacl: "*"}]
"""
_PROVIDED: Fields = {"name": "provided", "create": False, "value": "", "parent": None,
                     "filter": {"type": "", "users": None, "groups": None}}  # fmt: skip


class ConfiguredQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of the document as it is in force; a limit without a value above 0 is none."""

    path: str  # in lower case
    parent: str | None  # None for root
    is_leaf: bool
    max: dict[str, int]
    guaranteed: dict[str, int]
    template_max: dict[str, int]  # for dynamic leaves below it
    takes_gangs: bool
    access: tuple[str, ...] = ()  # its submitacl and adminacl


class YunikornConfig:
    """`has_webhook`: the admission controller is installed. `takes_up`: the scheduler is well.
    `version`: which release is played; 1.6 to 1.8 count a sidecar twice (see `pod_reading`)."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self.store = store
        self.timing = timing
        self.version = NEWEST
        self.has_webhook = True
        self.takes_up = True
        self.errors: list[str] = []  # what the scheduler's log would say
        self._waiting: tuple[str, float] | None = None
        self.restart()

    # --- taking up --------------------------------------------------------------------------

    def step(self) -> None:
        """Puts a changed document in force as soon as it is due."""
        settings = self._settings()
        text = self._text_of(settings)
        if text == self.text:
            self._waiting = None
            return
        is_refreshed = settings.get("service.enableConfigHotRefresh", "true").lower() != "false"
        if not (self.takes_up and is_refreshed):
            return
        if self._waiting is None or self._waiting[0] != text:
            self._waiting = (text, self.store.clock.after(self.timing.take_up))
        if self.store.clock.now() >= self._waiting[1]:
            try:
                self._use(text)
            except ConfigRefused as refused:
                self._log(f"reload configuration failed: {refused}")

    def restart(self) -> None:
        """Starts the scheduler anew: it reads what is there. (The real one ends at a document
        that is not valid; this one goes on with the built-in document.)"""
        settings = self._settings()
        self._key = f"{settings.get('service.policyGroup') or 'queues'}.yaml"
        try:
            self._use(self._text_of(settings))
        except ConfigRefused as refused:
            self._log(f"Unable to start scheduler: {refused}")
            self._use(_BUILT_IN)

    def _use(self, text: str) -> None:
        document = read_document(text)
        check_activation(document)
        self.text = text
        self._waiting = None
        partitions = document["partitions"] or ()
        self.partition = next((one for one in partitions if one["name"] == "default"), None)
        top = self.partition["queues"][0] if self.partition else None
        self.queues = {} if top is None else {q.path: q for q in queues_in_force(top)}

    def _settings(self, changed: Object | None = None) -> dict[str, str]:
        """Both ConfigMaps as one: key by key the later one holds, and of each its binary data."""
        found: dict[str, str] = {}
        for name in (DEFAULTS_NAME, CONFIGS_NAME):
            data = self.store.get("configmaps", NAMESPACE, name)
            if changed is not None and changed["metadata"]["name"] == name:
                data = changed
            if data is None:
                continue
            found |= data.get("data") or {}
            for key, value in (data.get("binaryData") or {}).items():
                stem, _, ending = key.rpartition(".")
                unpacked = self._unpacked(value) if ending.lower() == "gz" else ""
                if unpacked is not None:
                    found[stem] = unpacked
        return found

    def _text_of(self, settings: dict[str, str]) -> str:
        return settings.get(self._key) or _BUILT_IN

    def _unpacked(self, value: str) -> str | None:
        """None for an archive that can't be read: its key is as if it were not there."""
        try:
            return gzip.decompress(base64.b64decode(value)).decode("utf-8", "replace")
        except (OSError, EOFError, zlib.error, binascii.Error) as error:
            self._log(f"failed to decompress decoded schedulerConfig entry: {error}")
            return None

    def _log(self, message: str) -> None:
        if message not in self.errors:
            self.errors.append(message)

    # --- asking -----------------------------------------------------------------------------

    @property
    def checksum(self) -> str:
        """Of the exact text, in upper-case hexadecimal SHA-256 (`GET /ws/v1/config`)."""
        return hashlib.sha256(self.text.encode()).hexdigest().upper()

    @property
    def placement_rules(self) -> list[Fields]:
        """As configured, or the one that YuniKorn has where none is."""
        rules = self.partition["placementrules"] if self.partition else None
        return rules or [_PROVIDED]

    @property
    def packs_nodes(self) -> bool:
        return self.partition is not None and (
            self.partition["nodesortpolicy"]["type"] == "binpacking"
        )

    @property
    def counts_sidecars_twice(self) -> bool:
        """Whether this release does (YUNIKORN-3206, mended in 1.9)."""
        major, minor = self.version.split(".")[:2]
        return (1, 6) <= (int(major), int(minor)) <= (1, 8)

    def deny_invalid(self, changed: Object, old: Object | None) -> None:
        """The validating webhook for ConfigMaps; raises 400 with the scheduler's reason."""
        meta = changed["metadata"]
        is_ours = meta.get("namespace") == NAMESPACE
        if not (self.has_webhook and is_ours and meta["name"] in (CONFIGS_NAME, DEFAULTS_NAME)):
            return
        reason = refusal(self._text_of(self._settings(changed)))
        if reason:
            raise ApiError(
                400,
                'admission webhook "admission-webhook.yunikorn.validate-conf" denied the request: '
                f"{reason}",
                reason="BadRequest",
            )


def refusal(text: str) -> str:
    """Says why `/ws/v1/validate-conf` does not allow the document; empty where it does."""
    try:
        read_document(text)
    except ConfigRefused as refused:
        return str(refused)
    return ""


def queues_in_force(fields: Fields, parent: str | None = None) -> list[ConfiguredQueue]:
    """Returns the queue and everything below it, as a reload sets them. Whatever is called root
    has no limits of its own."""
    name = fields["name"].lower()
    path = name if parent is None else f"{parent}.{name}"
    is_leaf = not (fields["parent"] or fields["queues"])
    limits = {} if name == ROOT else fields["resources"]
    own = ConfiguredQueue(
        path=path,
        parent=parent,
        is_leaf=is_leaf,
        max=_in_force(limits.get("max")),
        guaranteed=_in_force(limits.get("guaranteed")),
        template_max={} if is_leaf else _in_force(fields["childtemplate"]["resources"]["max"]),
        takes_gangs=(fields["properties"] or {}).get("application.sort.policy") != "fair",
        access=(fields["submitacl"], fields["adminacl"]),
    )
    below = [queue for child in fields["queues"] or () for queue in queues_in_force(child, path)]
    return [own, *below]


def _in_force(texts: Any) -> dict[str, int]:
    """Nothing where no amount is above 0 (since 1.5.0)."""
    amounts = configured_amounts(texts)
    return amounts if any(amounts.values()) else {}
