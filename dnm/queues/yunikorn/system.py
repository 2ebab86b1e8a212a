"""YuniKorn as a queue system: limits and ledger in a ConfigMap, and the scheduler's REST API."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from dnm.model.cluster import ConfigMap, QueueFacts, QueueLimits, SchedulerView
from dnm.model.config import Config
from dnm.model.errors import KubeConflict, KubeError, QueueError
from dnm.model.queue_edit import Projection, QueueEdit, QueueNumbers, QueueWants
from dnm.model.value import Resources, Unreadable, Value
from dnm.model.verdict import Objection
from dnm.queues.system import ConfigMaps
from dnm.queues.yunikorn import edit as edits
from dnm.queues.yunikorn.document import (
    QueueDocument,
    is_settled,
    numbers_now,
    read_document,
    settled_edit,
)
from dnm.queues.yunikorn.document_edit import DocumentEdit, DocumentOutcome
from dnm.queues.yunikorn.errors import YunikornError
from dnm.queues.yunikorn.ledger import decode_ledger
from dnm.queues.yunikorn.pods import YunikornPods
from dnm.queues.yunikorn.quantities import (
    kubernetes_edit,
    kubernetes_limits,
    kubernetes_numbers,
    yunikorn_amounts,
    yunikorn_wants,
)
from dnm.queues.yunikorn.source import (
    LEDGER_ANNOTATION,
    SourceDocument,
    read_config_maps,
    read_source,
    resolve_document,
    with_document,
)

if TYPE_CHECKING:
    from dnm.queues.yunikorn.rest import YunikornClient


class YunikornFacts(QueueFacts):
    """The ConfigMap with the queue document, and the one with YuniKorn's defaults. None: the
    ConfigMap does not exist, or could not be read; `unread` then has the error."""

    maps: tuple[ConfigMap | None, ConfigMap | None] = (None, None)


class DocumentProjection(Projection):
    """A draft of an edit, with Kubernetes' names of resources. `own`: the same with YuniKorn's."""

    edit: DocumentEdit
    own: edits.ProjectedEdit | None


class DocumentQueues(Value):
    """The queues of a queue document, with Kubernetes' (`limits`) and YuniKorn's resource names."""

    document: QueueDocument
    limits: Mapping[str, QueueLimits]

    @property
    def lenders(self) -> Mapping[str, str] | None:
        return self.document.lenders

    @property
    def is_missing(self) -> bool:
        return self.document.is_built_in

    def is_counted(self, node: str, queue: str, instance_id: str) -> bool:
        return self.document.is_counted(node, instance_id)

    def numbers_of(self, instance_id: str) -> Mapping[str, QueueNumbers]:
        numbers = {} if self.document.ledger_problem else numbers_now(self.document, instance_id)
        return kubernetes_numbers(numbers)

    def project(self, wants: QueueWants) -> DocumentProjection:
        named = yunikorn_wants(wants)
        is_same = is_settled(self.document, named)
        own = None if is_same else edits.compute_edit(self.document, named)
        edit = own.edit if own else settled_edit(self.document, named)
        return DocumentProjection(wants=wants, edit=kubernetes_edit(edit), own=own)

    def plan(self, wants: QueueWants, projected: Projection | None) -> DocumentEdit:
        if not (isinstance(projected, DocumentProjection) and projected.wants == wants):
            projected = self.project(wants)
        if projected.own is None or projected.own.text is None:
            return projected.edit
        return kubernetes_edit(edits.prove(self.document, projected.own))

    def shrink_objection(self, projected: Projection) -> Objection | None:
        if not (projected.edit.refusal and isinstance(projected, DocumentProjection)):
            return None
        return edits.shrink_refusal(self.document, projected.own or projected)

    def growth_objection(
        self, wants: QueueWants, queue: str, sizes: Sequence[Resources]
    ) -> Objection | None:
        more = [yunikorn_amounts(size) for size in sizes]
        return edits.why_no_growth(self.document, yunikorn_wants(wants), queue, more)

    def show_difference(self, edit: QueueEdit) -> str:
        if not isinstance(edit, DocumentEdit):
            return ""
        texts = (self.document.source.text, edit.text)
        old, new = (text.splitlines(keepends=True) for text in texts)
        return "".join(difflib.unified_diff(old, new, "queues.yaml", "queues.yaml (planned)"))


class Yunikorn:
    """The queue system of Apache YuniKorn 1.6 to 1.9."""

    def pod_reading(self, config: Config) -> YunikornPods:
        return YunikornPods(config.yunikorn_queue_annotation)

    def collect(self, config: Config, kube: ConfigMaps) -> YunikornFacts:
        view = _read_view(config)
        try:
            maps = read_config_maps(kube.read_config_map, config.queue_document)
        except KubeError as error:
            subject = f"ConfigMap {'/'.join(config.queue_document)}"
            return YunikornFacts(unread=Unreadable(subject=subject, error=str(error)), view=view)
        return YunikornFacts(maps=maps, view=view)

    def read_queues(self, config: Config, facts: QueueFacts) -> DocumentQueues:
        document = read_document(source_of(config, facts))
        return DocumentQueues(document=document, limits=kubernetes_limits(document.limits))

    def names_instance(self, facts: QueueFacts, instance_id: str) -> bool:
        configs = facts.maps[0] if isinstance(facts, YunikornFacts) else None
        with suppress(QueueError):  # which the plan reports
            text = configs.annotations.get(LEDGER_ANNOTATION, "") if configs else ""
            return instance_id in decode_ledger(text).sections
        return False

    def exclude_earlier_writes(
        self, config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
    ) -> Mapping[str, str]:
        from dnm.queues.yunikorn.exclusion import exclude_earlier_writes  # after a killed run

        return exclude_earlier_writes(config, kube, text, before_write)

    def write(
        self,
        config: Config,
        kube: ConfigMaps,
        wants: QueueWants,
        planned: QueueEdit | None,
        before_write: Callable[[], None],
    ) -> DocumentOutcome:
        from dnm.queues.yunikorn.rest import YunikornClient  # most runs edit nothing

        def plan(source: SourceDocument) -> DocumentEdit:
            before_write()
            own = planned if isinstance(planned, DocumentEdit) else None
            return plan_source(source, wants, own)

        client = YunikornClient(config.yunikorn_url) if config.yunikorn_url else None
        return apply_queue_edit(kube, config.queue_document, plan, client)


# Each update changes text and ledger, under the resourceVersion that the plan used. Every number is
# absolute. After a lost answer dnm reads the object. No step relies on an earlier call having
# returned; each call reads the current state.
_TRIES = 5  # if other clients write at the same time
_UPTAKE = timedelta(seconds=30)  # YuniKorn reloads a changed ConfigMap within a second


def apply_queue_edit(
    kube: ConfigMaps,
    place: tuple[str, str],
    plan: Callable[[SourceDocument], DocumentEdit],
    yunikorn: YunikornClient | None = None,
    uptake: timedelta = _UPTAKE,
) -> DocumentOutcome:
    """Reads the document in the ConfigMap `place` (namespace and name), calls `plan` with it and
    writes the resulting edit. Repeats this if another client has changed the ConfigMap meanwhile.

    Raises QueueError if the plan or YuniKorn refuses, or if YuniKorn does not reload the document
    in time (dnm restores the old one). Raises KubeError if the ConfigMap can't be read or written.
    """
    for _ in range(_TRIES):
        source = read_source(kube, place)
        edit = plan(source)
        if edit.refusal:
            raise QueueError(edit.refusal)
        if not edit.is_changed:
            return DocumentOutcome(edit=edit)
        has_new_text = edit.text != source.text
        notes: tuple[str, ...] = ()
        if yunikorn and has_new_text:
            from dnm.queues.yunikorn.uptake import confirm, validate  # few sites set `yunikorn_url`

            notes = validate(yunikorn, edit)
        try:
            kube.write_config_map(with_document(source, edit.text, edit.ledger))
        except KubeConflict:
            continue
        except KubeError as error:
            from dnm.queues.yunikorn.uptake import is_in_place

            if not is_in_place(kube, place, edit):
                raise
            notes = (*notes, f"the write took effect although its answer was lost: {error}")
        outcome = DocumentOutcome(edit=edit, is_written=True, notes=notes)
        if yunikorn is None or not has_new_text:
            return outcome
        return confirm(kube, place, yunikorn, (source, outcome), uptake)
    raise KubeConflict(
        f"cannot write ConfigMap {'/'.join(place)}: other clients changed it {_TRIES} times in a "
        "row. The next run tries again"
    )


def plan_source(
    source: SourceDocument, wants: QueueWants, planned: DocumentEdit | None = None
) -> DocumentEdit:
    """Returns the edit as `edit_source` does, with Kubernetes' names of resources."""
    edit = edits.edit_source(source, yunikorn_wants(wants), planned)
    return edit if edit is planned else kubernetes_edit(edit)


def source_of(config: Config, facts: QueueFacts) -> SourceDocument:
    """Returns the queue document that a run has read. Raises QueueError if its gzip is invalid."""
    maps = facts.maps if isinstance(facts, YunikornFacts) else (None, None)
    return resolve_document(*maps, config.queue_document)


def _read_view(config: Config) -> SchedulerView | Unreadable | None:
    if not config.yunikorn_url:
        return None
    from dnm.queues.yunikorn.rest import YunikornClient  # only if the site configured its scheduler

    try:
        return YunikornClient(config.yunikorn_url).read_view()
    except YunikornError as error:
        return Unreadable(subject=f"YuniKorn at {config.yunikorn_url}", error=str(error))


SYSTEM = Yunikorn()
