"""Waits for converters that were started, all at once, and passes on what they print.

One that takes too long is ended with its children; one that is only not ready yet is left at work.
The exit code is reported and never believed: whoever calls looks at the clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from dnm.converter.start import ConverterCall
from dnm.model.errors import StoppedError
from dnm.model.fault_points import waiting
from dnm.model.registry import Ended
from dnm.model.value import Value

LISTEN_EVERY = 0.05  # seconds


class Waits(Value):
    """How long a run listens: a converter has `timeout` and is ended then; after `patience`, or
    `grace` after a signal, it is left at work: half a conversion is worse than a late one."""

    timeout: timedelta
    patience: timedelta
    grace: timedelta


def run_converters(
    calls: Mapping[str, ConverterCall],
    waits: Waits,
    on_line: Callable[[str, str], None],
    should_leave: Callable[[], bool],
) -> dict[str, Ended]:
    """Returns how each has ended, by key, once all have ended, run out of time or been left.

    `on_line` gets the call's key and a printable line.
    """
    now = time.monotonic()
    deadline = now + waits.timeout.total_seconds()
    leave_at = now + waits.patience.total_seconds()
    is_asked_to_leave = False
    ended: dict[str, Ended] = {}
    while True:
        if not is_asked_to_leave and should_leave():
            is_asked_to_leave = True
            leave_at = min(leave_at, time.monotonic() + waits.grace.total_seconds())
        is_leaving = time.monotonic() >= leave_at
        is_late = time.monotonic() >= deadline
        for key, call in calls.items():
            if key not in ended:
                has_ended = call.has_ended()
                call.output.read_new(partial(on_line, key))
                if has_ended or is_leaving or is_late:
                    ended[key] = _end(call, has_ended, is_late, partial(on_line, key))
        if len(ended) == len(calls):
            return ended
        try:
            with waiting():
                time.sleep(LISTEN_EVERY)
        except StoppedError:  # the grace of a signal that came before this began
            leave_at = time.monotonic()


def _end(
    call: ConverterCall, has_ended: bool, is_late: bool, on_line: Callable[[str], None]
) -> Ended:
    if is_late and not has_ended:
        call.end()
    left_running = not call.has_ended()
    call.output.read_new(on_line, is_last=not left_running)
    if left_running:
        call.output.save_position()
    return Ended(
        exit_code=call.child.returncode if has_ended else None,
        names=tuple(call.output.names),
        last_lines=tuple(call.output.last_lines),
        failures=call.output.failures,
        timed_out=is_late and not has_ended,
        left_running=left_running,
    )
