"""Server-side apply for the API of the sandbox, as far as tests need it. managedFields record the
owners of fields (as in kubernetes v1.34)."""

from __future__ import annotations

import json
from typing import Any

from dnm.lab.sandbox.api import Api, Target
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.field_owners import (
    Manager,
    Path,
    _leaves,
    _owned,
    _owners,
    _with_owners,
)
from dnm.lab.sandbox.http_values import Request, ServerAnswer, json_answer
from dnm.lab.sandbox.lists import document
from dnm.lab.sandbox.store import ApiError, Object, copy_of

APPLY = "application/apply-patch+yaml"  # as JSON, which is YAML


class ApplyingApi(Api):
    """The sandbox's API, extended by server-side apply."""

    def _update(self, request: Request, target: Target) -> ServerAnswer:
        if request.headers.get("content-type", "").partition(";")[0].strip() != APPLY:
            return super()._update(request, target)
        kind, manifest, manager = target.kind, request.json(), request.query.get("fieldManager")
        if not manager:
            raise ApiError(400, "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        owner, stamp = Manager(manager, "Apply"), self.store.clock.stamp()
        dry_run = request.query.get("dryRun") == "All"
        entry = self.store.get(kind.plural, target.namespace, target.name)
        version = manifest["metadata"].pop("resourceVersion", None)
        if entry is None and target.subresource:
            raise ApiError(404, f'{kind.plural} "{target.name}" not found')
        if entry is None and version:
            raise ApiError(409, "the object has been modified")
        live = document(kind, entry) if entry else {"metadata": {"name": target.name}}
        if entry:
            self.store.check_version(kind, entry, version, None)
        force = request.query.get("force") == "true"
        changed, conflicts = apply_fields(live, manifest, owner, stamp, force)
        if conflicts:
            raise ApiError(409, f"Apply failed with {len(conflicts)} conflict: {conflicts[0]}")
        if entry:
            updated = self.store.update(kind.plural, changed, dry_run=dry_run)
            return json_answer(document(kind, updated))
        created = self.store.create(kind.plural, changed, dry_run=dry_run)
        return json_answer(document(kind, created), 201)


def with_apply(sandbox: Sandbox) -> None:
    """Makes the API of a sandbox accept server-side apply."""
    sandbox.api = ApplyingApi(sandbox.store, sandbox.access, sandbox.api.admission)


def apply_fields(
    old: Object, applied: Object, owner: Manager, stamp: str, force: bool = False
) -> tuple[Object, list[str]]:
    """Returns the object after an apply, or the conflicts with other field managers. Fields that
    this manager applied before and omits now are removed, unless another manager has them."""
    owners, new, before = _owners(old), _leaves(_owned(applied)), _leaves(_owned(old))
    changed = {path for path, value in new.items() if before.get(path, ...) != value}
    conflicts = sorted(
        f'conflict with "{other.manager}": .{".".join(step[2:] for step in path)}'
        for other, paths in owners.items()
        for path in (paths & changed if other != owner else ())
    )
    if conflicts and not force:
        return old, conflicts
    result = copy_of(old)
    for other in owners.keys() - {owner}:
        owners[other] -= changed
    kept = {path for other in owners.keys() - {owner} for path in owners[other]}
    for path in sorted(owners.get(owner, set()) - new.keys() - kept):  # "." is first
        _remove(result, path)
    for path, value in new.items():
        _set(result, path, value)
    owners[owner] = set(new)
    writer = owner if changed else Manager("", "")
    return _with_owners(result, old, owners, stamp, writer), []


def _set(item: Object, path: Path, value: Any) -> None:
    *steps, last = path
    place: Any = item
    for step, following in zip(steps, path[1:], strict=True):
        if step.startswith("k:"):
            place = _entry(place, step) or _add_entry(place, step)
        else:
            place = place.setdefault(step[2:], [] if following.startswith("k:") else {})
    if last != ".":
        place[last.removeprefix("f:")] = value


def _entry(items: list[Object], step: str) -> Object | None:
    """Returns the item of a list with the merge key of this step."""
    key = json.loads(step.removeprefix("k:"))
    return next((item for item in items if key.items() <= item.items()), None)


def _add_entry(items: list[Object], step: str) -> Object:
    items.append(json.loads(step.removeprefix("k:")))
    return items[-1]


def _remove(item: Object, path: Path) -> None:
    *steps, last = path
    place: Any = item
    outer: Any = None
    for step in steps:
        outer = place
        place = _entry(place, step) if step.startswith("k:") else place.get(step[2:], {})
        if place is None:
            return
    if last == ".":
        outer.remove(place)
    else:
        place.pop(last.removeprefix("f:"), None)
