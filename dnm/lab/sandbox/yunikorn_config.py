"""The queue configuration of the sandbox's scheduler.

It is parsed, but not validated: the sandbox refuses unreadable documents and those that a test
chooses (`refuses`). `tests/real/queue_documents.py` asks YuniKorn's own code. With an admission
webhook, a refused document is denied. Without one it is stored, and the scheduler keeps the old
queues. Packed documents, other policy groups and `service.enableConfigHotRefresh` are not
implemented."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.pod_reading import AmountError, configured_amounts
from dnm.lab.sandbox.store import ApiError, Object, Objects

Fields = dict[str, Any]
NAMESPACE = "yunikorn"
CONFIGS_NAME = "yunikorn-configs"
DEFAULTS_NAME = "yunikorn-defaults"
NEWEST = "1.9.0"
ROOT = "root"
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every scalar is its text
_BUILT_IN = """
partitions:
  - name: default
    queues: [{name: root, submitacl: "*"}]
"""


class ConfigRefused(Exception):
    """The error if YuniKorn refuses a queue document. The message is the reason."""


class ConfiguredQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of the current document. A limit without an amount above 0 is empty."""

    path: str  # in lower case
    is_leaf: bool
    max: dict[str, int]
    guaranteed: dict[str, int]


class YunikornConfig:
    """The queue document that the scheduler uses. `has_webhook`: an admission webhook checks
    changes. `takes_up`: the scheduler reloads changes. `version`: the scheduler's release; 1.6 to
    1.8 count a sidecar twice (see `pod_reading`)."""

    def __init__(self, store: Objects, timing: Timing) -> None:
        self.store = store
        self.timing = timing
        self.version = NEWEST
        self.has_webhook = True
        self.takes_up = True
        self.refuses: Callable[[str], str] = lambda text: ""  # a test's: why not; empty: it may be
        self._waiting: tuple[str, float] | None = None
        self.restart()

    # --- taking up --------------------------------------------------------------------------

    def step(self) -> None:
        """Reloads a changed document once `take_up` has passed since the change."""
        text = self._text_of(self._settings())
        if text == self.text:
            self._waiting = None
            return
        if not self.takes_up:
            return
        if self._waiting is None or self._waiting[0] != text:
            self._waiting = (text, self.store.clock.after(self.timing.take_up))
        if self.store.clock.now() >= self._waiting[1]:
            with contextlib.suppress(ConfigRefused):
                self._use(text)

    def restart(self) -> None:
        """Restarts the scheduler, which reads the current document. If that is invalid, the sandbox
        uses the built-in document, whereas the real scheduler ends."""
        try:
            self._use(self._text_of(self._settings()))
        except ConfigRefused:
            self._use(_BUILT_IN)

    def _use(self, text: str) -> None:
        self.partition, self.queues = self._read(text)
        self.text = text
        self._waiting = None

    def _read(self, text: str) -> tuple[Fields, dict[str, ConfiguredQueue]]:
        if reason := self.refuses(text):
            raise ConfigRefused(reason)
        return read_document(text)

    def _settings(self, changed: Object | None = None) -> dict[str, str]:
        """Returns the settings of both ConfigMaps; `yunikorn-configs` overrides the defaults."""
        merged: dict[str, str] = {}
        for name in (DEFAULTS_NAME, CONFIGS_NAME):
            data = self.store.get("configmaps", NAMESPACE, name)
            if changed is not None and changed["metadata"]["name"] == name:
                data = changed
            if data is None:
                continue
            merged |= data.get("data") or {}
        return merged

    def _text_of(self, settings: dict[str, str]) -> str:
        return settings.get("queues.yaml") or _BUILT_IN

    # --- asking -----------------------------------------------------------------------------

    @property
    def checksum(self) -> str:
        """Returns the text's checksum for `GET /ws/v1/config`: SHA-256, upper-case hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest().upper()

    @property
    def is_built_in(self) -> bool:
        """Returns whether no document exists. Then each namespace has a queue of its name."""
        return self.text == _BUILT_IN

    @property
    def packs_nodes(self) -> bool:
        return _text(_map(self.partition, "nodesortpolicy"), "type") == "binpacking"

    @property
    def counts_sidecars_twice(self) -> bool:
        """Returns whether this release counts a sidecar twice (YUNIKORN-3206, fixed in 1.9)."""
        major, minor = self.version.split(".")[:2]
        return (1, 6) <= (int(major), int(minor)) <= (1, 8)

    def deny_invalid(self, changed: Object, old: Object | None) -> None:
        """Acts as the validating webhook for ConfigMaps: raises 400 with the scheduler's reason."""
        meta = changed["metadata"]
        is_there = meta.get("namespace") == NAMESPACE
        if not (self.has_webhook and is_there and meta["name"] in (CONFIGS_NAME, DEFAULTS_NAME)):
            return
        reason = self.refusal(self._text_of(self._settings(changed)))
        if reason:
            raise ApiError(
                400,
                'admission webhook "admission-webhook.yunikorn.validate-conf" denied the request: '
                f"{reason}",
                reason="BadRequest",
            )

    def refusal(self, text: str) -> str:
        """Returns why `/ws/v1/validate-conf` refuses the document; empty if it accepts it."""
        try:
            self._read(text)
        except ConfigRefused as refused:
            return str(refused)
        return ""


# --- reading ------------------------------------------------------------------------------------


def read_document(text: str) -> tuple[Fields, dict[str, ConfiguredQueue]]:
    """Returns the partition `default` and its queues by path; both are empty if the document has
    none. Raises ConfigRefused."""
    try:
        documents = yaml.load_all(text.encode("utf-8", "surrogateescape"), Loader=_LOADER)
        document = next(documents, None)  # YuniKorn reads the first
        if document and not isinstance(document, dict):
            raise ConfigRefused("yaml: unmarshal errors: it is not a mapping")
        for part in _list(document or {}, "partitions"):
            if _text(part, "name").lower() in ("", "default"):
                return part, {queue.path: queue for queue in _queues(_root_of(part), None)}
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise ConfigRefused(f"yaml: {' '.join(str(error).split())}") from error
    except AmountError as error:
        raise ConfigRefused(str(error)) from error
    return {}, {}


def _root_of(partition: Fields) -> Fields:
    """Returns the root queue of a partition, or a new one above its queues."""
    tops = _list(partition, "queues")
    is_written = len(tops) == 1 and _text(tops[0], "name").lower() == ROOT
    return tops[0] if is_written else {"name": ROOT, "queues": tops}


def _queues(fields: Fields, parent: str | None) -> list[ConfiguredQueue]:
    """Returns a queue and all queues below it, by path. A queue named root has no limits."""
    name = _text(fields, "name").lower()
    path = name if parent is None else f"{parent}.{name}"
    children = _list(fields, "queues")
    is_leaf = not (children or parent is None or _is_true(fields, "parent"))
    limits = {} if name == ROOT else _map(fields, "resources")
    own = ConfiguredQueue(
        path=path,
        is_leaf=is_leaf,
        max=_in_force(_map(limits, "max")),
        guaranteed=_in_force(_map(limits, "guaranteed")),
    )
    return [own, *(queue for child in children for queue in _queues(child, path))]


def _in_force(texts: Fields) -> dict[str, int]:
    """Returns the amounts of a limit; empty if no amount is above 0 (since 1.5.0)."""
    amounts = configured_amounts(texts)
    return amounts if any(amounts.values()) else {}


def _text(fields: Fields, name: str) -> str:
    node = fields.get(name)
    return node if isinstance(node, str) else ""


def _is_true(fields: Fields, name: str) -> bool:
    return _text(fields, name).lower() in ("true", "yes", "on", "y")


def _map(fields: Fields, name: str) -> Fields:
    node = fields.get(name)
    return node if isinstance(node, dict) else {}


def _list(fields: Fields, name: str) -> list[Fields]:
    node = fields.get(name)
    return [entry for entry in node if isinstance(entry, dict)] if isinstance(node, list) else []
