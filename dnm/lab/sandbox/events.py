"""Events: stored once, in core's form, and served in two groups. What the server demands of one in
events.k8s.io/v1 is from kubernetes pkg/apis/core/validation/events.go (1.34)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dnm.lab.sandbox.store import ApiError, Object

_NAMES = {"regarding": "involvedObject", "note": "message", "reportingController":
          "reportingComponent", "deprecatedFirstTimestamp": "firstTimestamp",
          "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
          "deprecatedSource": "source"}  # fmt: skip
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_QUALIFIED = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
GROUP = "events.k8s.io"


def to_core(manifest: Object) -> Object:
    """Returns the Event as it is stored; raises 422 for what a server refuses."""
    wrong = list(_violations(manifest))
    if wrong:
        name = manifest.get("metadata", {}).get("name", "")
        raise ApiError(422, f'Event.events.k8s.io "{name}" is invalid: {"; ".join(wrong)}')
    return {_NAMES.get(field, field): value for field, value in manifest.items()}


def from_core(data: Object) -> Object:
    """Returns it as events.k8s.io/v1 shows it."""
    back = {core: field for field, core in _NAMES.items()}
    return {back.get(field, field): value for field, value in data.items()}


def _violations(event: Object) -> Iterator[str]:
    regarding = event.get("regarding") or {}
    namespace = event["metadata"].get("namespace", "")
    if regarding.get("namespace", "") != namespace and not (
        not regarding.get("namespace") and namespace in ("default", "kube-system")
    ):
        yield "involvedObject.namespace: Invalid value: does not match event.namespace"
    if not _MICRO_TIME.fullmatch(event.get("eventTime") or ""):
        yield "eventTime: Required value"
    if event.get("type") not in ("Normal", "Warning"):
        yield f"type: Invalid value: {event.get('type')!r}"
    if not _QUALIFIED.fullmatch(event.get("reportingController") or ""):
        yield "reportingController: Invalid value"
    for field in ("reportingInstance", "action", "reason"):
        if not 0 < len((event.get(field) or "").encode()) <= 128:
            yield f"{field}: can have at most 128 characters"
    if len((event.get("note") or "").encode()) > 1024:
        yield "message: can have at most 1024 characters"
    yield from (f"{f}: needs to be unset" for f in _NAMES if f.startswith("dep") and event.get(f))
