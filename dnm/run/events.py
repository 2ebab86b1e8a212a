"""Tells Kubernetes what has happened, at the end of a run: bounded in number and in time, and
nothing depends on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dnm.model.errors import KubeError, StoppedError
from dnm.model.event import KubeEvent
from dnm.model.printable import count_of

MOST = 20  # a run; those of nodes go first
_LONGEST = 5.0  # seconds for all of them, beside the one under way


class EventWriter(Protocol):
    """What is needed of the Kubernetes edge; it waits for an answer for a few seconds only."""

    def create_event(self, event: KubeEvent) -> None: ...


def send_events(
    kube: EventWriter, events: Sequence[KubeEvent], clock: Callable[[], float] = time.monotonic
) -> tuple[str, ...]:
    """Sends them until one is refused or the time is over; returns a note of those that were not
    sent."""
    deadline = clock() + _LONGEST
    sent = 0
    why = f"a run sends {MOST} at most"
    for event in events[:MOST]:
        if clock() > deadline:
            why = f"{_LONGEST:.0f} s were over"
            break
        try:
            kube.create_event(event)
        except KubeError as error:
            why = f"{error}; events = false turns them off"
            break
        except StoppedError as error:
            why = str(error)
            break
        sent += 1
    if sent == len(events):
        return ()
    return (f"{count_of(len(events) - sent, 'Event')} not sent to Kubernetes: {why}",)
