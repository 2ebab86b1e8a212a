"""The sending of Events, bounded in number and time, in the form that events.k8s.io/v1 requires:
kubernetes pkg/apis/core/validation/events.go and pkg/apis/core/validation/validation.go, 1.34.

An Event on a Node is in namespace `default`, and its `regarding` has no namespace. `kubectl
describe node` finds it by the Node's uid."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from dnm.host.fault_points import fault_point
from dnm.kube.errors import ApiRefused
from dnm.kube.objects import check_kind
from dnm.kube.requests import ApiRequests, path_of
from dnm.model.cluster import KubeEvent
from dnm.model.errors import KubeError, StoppedError
from dnm.model.printable import count_of

CONTROLLER = "dynamic-node-manager/dnm"
MOST = 20  # in a run; those of nodes are sent first
_LONGEST = 5.0  # seconds for all of them, without the current one
_LONGEST_INSTANCE = 128
_LONGEST_OBJECT = 200  # characters of the object's name, which begins the Event's name of 253


def send_events(
    create: Callable[[KubeEvent], None],
    events: Sequence[KubeEvent],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Sends Events until one is refused or a few seconds are over. Returns a note that counts the
    unsent ones, if any. `create` sends one Event and limits its own time."""
    deadline = clock() + _LONGEST
    sent = 0
    why = f"a run sends {MOST} at most"
    for event in events[:MOST]:
        if clock() > deadline:
            why = f"{_LONGEST:.0f} s were over"
            break
        try:
            create(event)
        except KubeError as error:
            if isinstance(error, ApiRefused) and error.status == 403:
                return ()  # the role decides about Events; `dnm check` reports it
            why = str(error)
            break
        except StoppedError as error:
            why = str(error)
            break
        sent += 1
    if sent == len(events):
        return ()
    return (f"{count_of(len(events) - sent, 'Event')} not sent to Kubernetes: {why}",)


def create_event(api: ApiRequests, event: KubeEvent, instance: str) -> None:
    """Creates an Event by a single request, without a second try. Raises KubeError."""
    namespace = event.namespace or "default"
    path = path_of("events", namespace=namespace, api="/apis/events.k8s.io/v1")
    body = manifest_of(event, instance)
    task = f"create an Event on {event.kind} {event.name}"
    changing = api.changing(task, "create events")
    with changing, fault_point("kube.create_event"):
        answer = api.session.write("POST", path, body, is_throttled=False)
        check_kind(answer.body, "Event")


def manifest_of(event: KubeEvent, instance: str) -> dict[str, Any]:
    """Returns the Event as a JSON object. As in client-go, its name consists of the object's name
    and the time; dnm adds the reason, since two Events may have the same time."""
    moment = event.time.astimezone(UTC)
    microseconds = round(moment.timestamp() * 1e6)
    name = f"{event.name[:_LONGEST_OBJECT].rstrip('.-')}.{event.reason.lower()}.{microseconds:x}"
    regarding = {"apiVersion": "v1", "kind": event.kind, "name": event.name, "uid": event.uid}
    if event.namespace:
        regarding["namespace"] = event.namespace
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.namespace or "default"},
        "eventTime": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z",
        "type": "Warning" if event.is_warning else "Normal",
        "reason": event.reason,
        "action": event.action,
        "note": event.note,
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:_LONGEST_INSTANCE],
        "regarding": regarding,
    }
