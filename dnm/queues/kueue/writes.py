"""The writes of Cohorts, and of ClusterQueues that hold lent quota, each on its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from dnm.model.errors import KubeConflict, KubeError
from dnm.model.kueue import FLAVOR, KUEUE_API, LEDGER, MANAGER
from dnm.model.quantity import format_amount
from dnm.model.queue_edit import QueueOutcome
from dnm.queues.each import try_each
from dnm.queues.kueue import edit as edits
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import encode_ledger
from dnm.queues.system import KueueObjects

_TRIES = 5  # if other clients write at the same time
_LONGEST_FAILURE = 20.0  # seconds after which a failed write ends a try
_LONGEST_EXCLUSION = 60.0  # seconds: two requests that are not answered
_EXCLUSION = "dynamic-node-manager/fence"
"""An annotation that decides nothing, but a write of it gives a Cohort another version."""
_CONFLICTS = (
    f"cannot write the lent quota: other clients changed it {_TRIES} times in a row. The next run "
    "tries again"
)
_LATER = "cannot write all lent quota, because a write took too long. The next run tries again"


def exclude_earlier_writes(
    objects: KueueObjects, facts: KueueFacts, text: str, before_write: Callable[[], None]
) -> dict[str, str]:
    """Gives each Cohort another version. Creates a missing Cohort, because an earlier run may be
    about to do so. Returns queue -> why that failed."""

    def exclude(item: edits.PlannedCohort) -> None:
        before_write()
        _exclude(objects, item, text)

    return try_each(_list_written(facts), exclude, _LONGEST_EXCLUSION)


def _list_written(facts: KueueFacts) -> list[tuple[str, edits.PlannedCohort]]:
    """Returns each Cohort, and each CapacityProvider that exists, with the path of its queue."""
    return [
        (item.path, item)
        for item in edits.current_cohorts(facts)
        if item.cohort.version or not item.queue.is_provided
    ]


def _exclude(objects: KueueObjects, item: edits.PlannedCohort, text: str) -> None:
    if not item.cohort.version:
        with suppress(KubeConflict):  # it exists since
            return objects.create_object(_empty_cohort(item.cohort.name))
    objects.change_object(*_object_of(item), {"metadata": {"annotations": {_EXCLUSION: text}}})


def _object_of(item: edits.PlannedCohort) -> tuple[str, str]:
    """Returns kind and name of the object that has the lent quota."""
    kind, _, name = item.cohort.name.rpartition(" ")
    return kind or "Cohort", name


def write_cohorts(
    objects: KueueObjects,
    plan: Callable[[bool], edits.KueueEdit],
    before_write: Callable[[], None],
) -> QueueOutcome:
    """Writes each Cohort on its own. Every number is absolute, so that the next run continues after
    a kill in between. `plan` reads the facts, with the Workloads if they matter. After an error
    the outcome has the Cohorts that were written. Raises KubeError if none can be read."""
    failed: dict[str, KubeError] = {}  # by queue; perhaps only the answer was lost
    give_up = time.monotonic() + _LONGEST_FAILURE
    first = edit = plan(True)
    for left in reversed(range(_TRIES + 1)):
        changed = {item.path: item for item in edit.planned if item.is_changed}
        due = [item for path, item in changed.items() if path not in failed]
        if not (due and left):
            break
        done: set[str] = set()
        for item in due:
            try:
                before_write()
                _write(objects, item)
                done |= {item.path} if item.cohort.version else set()
            except KubeConflict:
                continue  # the next try reads it again
            except KubeError as error:
                failed[item.path] = error
            if item.path in failed and time.monotonic() > give_up:
                break
        try:
            edit = plan(_has_parent(first))
        except KubeError as error:
            lost = {path: str(failed.get(path, error)) for path in changed.keys() - done}
            return _outcome(first, edit, failed, lost)
    usual = _LATER if failed and time.monotonic() > give_up else _CONFLICTS
    errors = {path: str(failed.get(path, usual)) for path in changed}
    return _outcome(first, edit, failed, errors)


def _empty_cohort(name: str) -> dict[str, object]:
    return {"apiVersion": KUEUE_API, "kind": "Cohort", "metadata": {"name": name}, "spec": {}}


def try_writes(objects: KueueObjects, facts: KueueFacts) -> dict[str, str]:
    """Returns queue path -> why the API server, or a webhook of Kueue, would refuse a write, by dry
    runs."""
    write = partial(_write, objects, dry_run=True)
    return try_each(_list_written(facts), write, _LONGEST_FAILURE)


def _write(objects: KueueObjects, item: edits.PlannedCohort, dry_run: bool = False) -> None:
    """Writes a Cohort or ClusterQueue under the version that was read. Creates a missing Cohort
    empty for the next try: an apply without a version could replace another instance's Cohort."""
    if item.queue.is_provided:
        from dnm.queues.kueue.provider import status_of  # of a site with CapacityProviders

        if dry_run:  # `exclude_earlier_writes` changes the annotations
            objects.change_object(*_object_of(item), {"metadata": {}}, "?dryRun=All")
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        objects.apply_object(status_of(item, stamp), MANAGER, dry_run)
    elif item.queue.held:
        from dnm.queues.kueue.in_queue import patch_of  # of a site without Cohorts

        query = f"?fieldManager={MANAGER}{'&dryRun=All' * dry_run}"
        objects.change_object("ClusterQueue", item.queue.name, patch_of(item), query)
    elif item.cohort.version or dry_run:
        objects.apply_object(manifest_of(item), MANAGER, dry_run)
    else:
        objects.create_object(_empty_cohort(item.cohort.name))


def manifest_of(item: edits.PlannedCohort) -> dict[str, Any]:
    """Returns the Cohort to apply. The API server refuses it if the Cohort has changed."""
    lending = {"lendingLimit": "0"} if item.cohort.parent else {}
    rows = [
        {"name": name, "nominalQuota": format_amount(name, amount), **lending}
        for name, amount in item.quota.items()
    ]
    metadata: dict[str, Any] = {"name": item.cohort.name}
    if item.cohort.version:
        metadata["resourceVersion"] = item.cohort.version
    if text := encode_ledger(item.ledger):
        metadata["annotations"] = {LEDGER: text}
    flavors = [{"name": FLAVOR, "resources": rows}]
    groups = [{"coveredResources": list(item.quota), "flavors": flavors}]
    return {"apiVersion": KUEUE_API, "kind": "Cohort", "metadata": metadata,
            "spec": {"resourceGroups": groups}}  # fmt: skip


def _has_parent(edit: edits.KueueEdit) -> bool:
    return any(item.cohort.parent for item in edit.planned)


def _outcome(
    first: edits.KueueEdit,
    edit: edits.KueueEdit,
    failed: Mapping[str, KubeError],
    unwritten: Mapping[str, str],
) -> QueueOutcome:
    written = [item for item in first.planned if item.is_changed and item.path not in unwritten]
    return QueueOutcome(
        edit=replace(edit, changes=tuple(change for item in written for change in item.changes)),
        is_written=bool(written),
        is_confirmed=all(item.is_in_force for item in edit.planned) if written else None,
        failed=unwritten,
        notes=tuple(
            f"a write took effect although its answer was lost: {error}"
            for path, error in failed.items()
            if path not in unwritten
        ),
    )
