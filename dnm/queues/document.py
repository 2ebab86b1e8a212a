"""The queue document: where YuniKorn takes it from, what it says, and how its numbers are changed.

An edit replaces the characters of single limits and nothing else; what could not be changed alone
(an aliased value, a second YAML document, a queue that only looks like root) is refused with its
line. No function here knows what is lent: `ledger.py` decides, this file reads and writes.
"""

from __future__ import annotations

import base64
import gc
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from dnm.model.cluster import ConfigMap, QueueLimits
from dnm.model.errors import QueueError
from dnm.model.quantity import QuantityError, parse_yunikorn
from dnm.model.value import Resources, Value
from dnm.queues.decode import Violation
from dnm.queues.schema import Partition, Quantity, Queue, Scheduler, decode
from dnm.queues.validation import amounts_of, is_default, root_of, validate, walk
from dnm.queues.yaml_nodes import Node, YamlError, compose, digits_of

LEDGER_ANNOTATION = "dynamic-node-manager/ledger"
DEFAULTS_NAME = "yunikorn-defaults"
KINDS = ("max", "guaranteed")

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


# --- where it is -----------------------------------------------------------------------------


_UNPACKED_LIMIT = 64 * 1024 * 1024  # bytes; a ConfigMap holds one MiB, packed


class SourceDocument(Value):
    """The text that YuniKorn reads, and the ConfigMap and key it stands in (None: built in).

    `refusal`: why dnm must not edit it there, with the next step; empty: it may.
    """

    text: str
    config_map: ConfigMap | None = None
    key: str = ""
    is_gzip: bool = False
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    is_hot_refreshed: bool = True

    @property
    def ledger_text(self) -> str:
        return self.config_map.annotations.get(LEDGER_ANNOTATION, "") if self.config_map else ""


def resolve_document(
    configs: ConfigMap | None,
    defaults: ConfigMap | None,
    asked: tuple[str, str] = ("yunikorn", "yunikorn-configs"),
) -> SourceDocument:
    """What YuniKorn puts together from `yunikorn-configs` and `yunikorn-defaults`: key by key, the
    former first, `binaryData` before `data`, the key after `service.policyGroup`. `asked`: where
    the former was looked for.

    Raises QueueError for a compressed document that can't be unpacked: YuniKorn would then silently
    fall back on another one.
    """
    maps = [found for found in (configs, defaults) if found is not None]
    missing = "" if configs else _no_config_map(*asked)
    settings = {key: text for found in reversed(maps) for key, text in found.data.items()}
    group = settings.get("service.policyGroup", "").strip() or "queues"
    is_hot = settings.get("service.enableConfigHotRefresh", "").strip() not in _FALSE
    warnings = () if is_hot else (_no_hot_refresh(),)
    for found in maps:
        place = _find(found, f"{group}.yaml")
        if place is None:
            continue
        key, text, is_gzip = place
        return SourceDocument(
            text=text or _BUILT_IN,
            config_map=found,
            key=key,
            is_gzip=is_gzip,
            refusal=missing + _why_not_there(found, key, text, found is configs),
            warnings=warnings,
            is_hot_refreshed=is_hot,
        )
    where = " or ".join(f"{found.namespace}/{found.name}" for found in maps) or "the cluster"
    return SourceDocument(
        text=_BUILT_IN,
        refusal=f"{missing}there is no {group}.yaml in {where}: YuniKorn uses its built-in queues, "
        f"which have no limits; write a {group}.yaml into the ConfigMap first",
        warnings=warnings,
        is_hot_refreshed=is_hot,
    )


def _no_config_map(namespace: str, name: str) -> str:
    return (
        f"there is no ConfigMap {namespace}/{name} (yunikorn_cm_namespace, yunikorn_cm_name): "
        "correct the name; if YuniKorn really has none, "
    )


def _no_hot_refresh() -> str:
    return (
        "service.enableConfigHotRefresh is false: YuniKorn reads changed queues only when it "
        "starts; set it to true and restart the scheduler"
    )


def _find(config_map: ConfigMap, key: str) -> tuple[str, str, bool] | None:
    for packed_key, packed in config_map.binary_data.items():
        if packed_key.lower() == f"{key}.gz".lower() and packed_key.startswith(key):
            return packed_key, _unpack(config_map, packed_key, packed), True
    text = config_map.data.get(key)
    return None if text is None else (key, text, False)


def _unpack(config_map: ConfigMap, key: str, packed: str) -> str:
    try:
        content = base64.b64decode(packed, validate=True)
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            text = file.read(_UNPACKED_LIMIT + 1)
        if len(text) > _UNPACKED_LIMIT:
            raise ValueError(f"it unpacks to more than {_UNPACKED_LIMIT} bytes")
        return text.decode()
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise QueueError(
            f"binaryData {key} of ConfigMap {config_map.namespace}/{config_map.name} is no gzip of "
            f"UTF-8 text ({error}); YuniKorn ignores it and uses another document: write it anew"
        ) from error


def _why_not_there(config_map: ConfigMap, key: str, text: str, is_own: bool) -> str:
    where = f"{key} of ConfigMap {config_map.namespace}/{config_map.name}"
    if not text:
        return f"{where} is empty, so YuniKorn uses its built-in queues; write the queues into it"
    if not is_own:
        return (
            f"the queues stand only in {where}, which Helm owns and rewrites; copy {key} into "
            "yunikorn-configs, where it takes precedence, and dnm will edit it there"
        )
    if config_map.immutable:
        return (
            f"{where} can't be changed: the ConfigMap is immutable; replace it by one that is not"
        )
    return ""


def with_document(source: SourceDocument, text: str, ledger: str) -> ConfigMap:
    """The ConfigMap with another text and ledger, all else as it is; for a write under the same
    resourceVersion. Packed texts are packed again, with no time in them, under the same key."""
    config_map = source.config_map
    if config_map is None:
        raise QueueError(source.refusal)
    data, binary_data = dict(config_map.data), dict(config_map.binary_data)
    if source.is_gzip and text != source.text:
        packed = gzip.compress(text.encode(), mtime=0)
        binary_data[source.key] = base64.b64encode(packed).decode()
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


# --- what it says ----------------------------------------------------------------------------


class LimitPlace(NamedTuple):
    """One number of the document: a queue's path, `max` or `guaranteed`, the resource's name."""

    queue: str
    kind: str
    resource: str


class QueueDocument:
    """A document that YuniKorn can read (whether it is valid says `check_rules`).

    `queues`: the default partition's, by lower-case path, root included. `places`: every limit of
    them as it is written, root excluded. `refusal`: why no limit at all may be edited.
    """

    def __init__(self, text: str, scheduler: Scheduler, shape: list[object], refusal: str) -> None:
        self.text = text
        self.scheduler = scheduler
        self.shape = shape
        self.refusal = refusal
        self.queues: dict[str, QueueLimits] = {}
        self.places: dict[LimitPlace, Quantity] = {}
        self.tree: dict[str, Queue] = {}
        partition = self.partition
        if partition is not None:
            for path, parent, queue in walk(root_of(partition)):
                self._add(path, parent, queue)

    @property
    def partition(self) -> Partition | None:
        """The partition that Kubernetes uses."""
        return next(filter(is_default, self.scheduler.partitions or []), None)

    def _add(self, path: str, parent: str | None, queue: Queue) -> None:
        self.tree[path] = queue
        maximum, guaranteed = queue.resources.max, queue.resources.guaranteed
        self.queues[path] = QueueLimits(
            path=path,
            parent=parent,
            is_leaf=not queue.queues and not queue.parent and parent is not None,
            max=_unless_zero(amounts_of(maximum)),
            guaranteed=_unless_zero(amounts_of(guaranteed)),
        )
        if parent is not None:
            for kind, quantities in (("max", maximum), ("guaranteed", guaranteed)):
                for resource, quantity in (quantities or {}).items():
                    self.places[LimitPlace(path, kind, resource)] = quantity


def _unless_zero(amounts: Resources) -> Resources:
    return amounts if any(amounts.values()) else {}


def parse_document(text: str) -> QueueDocument:
    """Raises QueueError, with lines, for what YuniKorn itself could not read."""
    document, problems = read_document(text)
    if document is None or problems:
        raise QueueError(f"the queue document can't be read: {_first(problems)}")
    return document


def check_text(text: str) -> tuple[Violation, ...]:
    """All that YuniKorn would refuse in a text, whatever it is; empty: it accepts it."""
    document, problems = read_document(text)
    return problems if document is None or problems else check_rules(document)


def check_rules(document: QueueDocument) -> tuple[Violation, ...]:
    """YuniKorn's rules on the whole tree, of every partition; empty: valid."""
    return validate(document.scheduler)


def read_document(text: str) -> tuple[QueueDocument | None, tuple[Violation, ...]]:
    """The document (None: it is no YAML) and why YuniKorn could not read it (empty: it could)."""
    try:
        with without_collection():
            composed = compose(text)
            scheduler, problems = decode(composed.root)
    except YamlError as error:
        violation = Violation(rule="yaml", queue="", line=error.line, message=str(error))
        return None, (violation,)
    except RecursionError:
        violation = Violation(rule="yaml", queue="", line=1, message="nested too deep")
        return None, (violation,)
    refusal = _why_not_editable(scheduler, composed.has_more_documents)
    return QueueDocument(text, scheduler, composed.shape, refusal), problems


@contextmanager
def without_collection() -> Iterator[None]:
    """A document is many small objects that all stay: to look for garbage among them while they
    are made would be a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _first(problems: Sequence[Violation], most: int = 3) -> str:
    shown = "; ".join(f"line {found.line}: {found.message}" for found in problems[:most])
    return f"{shown}; and {len(problems) - most} more" if len(problems) > most else shown


def _why_not_editable(scheduler: Scheduler, has_more_documents: bool) -> str:
    if has_more_documents:
        return (
            "the text holds several YAML documents (`---`), of which YuniKorn reads only the "
            "first; remove the others"
        )
    partition = next(filter(is_default, scheduler.partitions or []), None)
    if partition is None:
        return "the document has no partition `default`, the only one that Kubernetes uses"
    for queue in partition.queues or []:
        name = queue.name
        if name.lower() == "root" and len(partition.queues or []) > 1:
            return _false_root("root.root", queue)
        if name != "root" and name.lower() == "root":
            return f"line {queue.line}: YuniKorn can't start with a root written {name!r}"
    for path, parent, queue in walk(root_of(partition)):
        if parent is not None and queue.name.lower() == "root":
            return _false_root(path, queue)
    return ""


def _false_root(path: str, queue: Queue) -> str:
    return (
        f"line {queue.line}: {path} is named like root, so YuniKorn ignores its limits at run "
        "time; rename it"
    )


# --- how it is changed -----------------------------------------------------------------------


def why_not_changeable(document: QueueDocument, place: LimitPlace) -> str:
    """Why this one number can't be changed alone; empty: it can."""
    quantity = document.places[place]
    where = f"line {quantity.node.line}: {place.kind} {place.resource} of {place.queue}"
    if quantity.is_shared:
        return f"{where} is used elsewhere by an alias (`*`, `<<`); write it out in both places"
    if digits_of(document.text, quantity.node) is None:
        return f"{where} is written with escapes or over several lines; write it plainly"
    return ""


def replace_limits(document: QueueDocument, texts: Mapping[LimitPlace, str]) -> QueueDocument:
    """The document with other numbers at these places and every other character as it was.

    Raises QueueError where a number can't be changed alone, or where the result, read again, is not
    the same document but for these numbers.
    """
    if document.refusal:
        raise QueueError(f"the queue document can't be edited: {document.refusal}")
    nodes: list[tuple[Node, str]] = []
    for place, text in texts.items():
        problem = why_not_changeable(document, place)
        if problem:
            raise QueueError(f"the queue document can't be edited: {problem}")
        nodes.append((document.places[place].node, text))
    edited = "".join(_spliced(document.text, nodes))
    expected = list(document.shape)
    for node, text in nodes:
        expected[node.place] = _like_scalar(str(expected[node.place]), text)
    result, problems = read_document(edited)
    if result is None or problems or result.shape != expected:
        raise QueueError(
            "the edited queue document would not read as it should: nothing is changed"
        )
    return result


def _spliced(text: str, nodes: list[tuple[Node, str]]) -> Iterator[str]:
    done = 0
    for node, new in sorted(nodes, key=lambda pair: pair[0].start):
        span = digits_of(text, node)
        assert span is not None
        start, end = span
        yield text[done:start]
        yield new if node.style not in ("|", ">") else new.strip()
        done = end
    yield text[done:]


def _like_scalar(before: str, text: str) -> str:
    """A block scalar keeps the line end behind its number."""
    core = before.strip()
    return before.replace(core, text.strip()) if before != core else text


# --- what it should not say ------------------------------------------------------------------


def advise(document: QueueDocument) -> tuple[Violation, ...]:
    """What YuniKorn accepts and then does something surprising with; never part of the verdict."""
    found: list[Violation] = []

    def advice(rule: str, queue: str, line: int, message: str) -> None:
        found.append(Violation(rule=rule, queue=queue, line=line, message=message))

    if document.refusal:
        advice("document", "", 1, document.refusal)
    if not document.scheduler.partitions:
        advice(
            "partition", "", 1, "without partitions YuniKorn fails every application: never apply"
        )
    for path, queue in document.tree.items():
        for kind, quantities in (
            ("max", queue.resources.max),
            ("guaranteed", queue.resources.guaranteed),
        ):
            amounts = amounts_of(quantities)
            line = queue.resources.line or queue.line
            if amounts and not any(amounts.values()):
                meaning = "no limit at all" if kind == "max" else "no guarantee"
                advice(
                    "zero", path, line, f"{path}: {kind} is zero throughout: that means {meaning}"
                )
            for name in ("cpu", "CPU", "vCore", "VCore", "Memory"):
                if name in amounts:
                    right = "memory" if name == "Memory" else "vcore"
                    message = f"{path}: no pod asks for {name!r}; YuniKorn's name is {right!r}"
                    advice("resource", path, line, message)
        _advise_template(path, queue, advice)
    return tuple(sorted(found, key=lambda violation: violation.line))


def _advise_template(path: str, queue: Queue, advice: object) -> None:
    template = queue.childtemplate
    assert callable(advice)
    for quantities in (template.resources.max, template.resources.guaranteed):
        for resource, quantity in (quantities or {}).items():
            try:
                parse_yunikorn(resource, quantity.text)
            except QuantityError as error:
                message = (
                    f"{path}: childtemplate {resource} {quantity.text!r}: {error}; reloads fail"
                )
                advice("template", path, quantity.node.line, message)
