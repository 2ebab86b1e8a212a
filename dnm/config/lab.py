"""The section `[lab]`, for a sandbox or a test: it replaces constants of dnm, for example minutes
by seconds. No site has this section."""

from __future__ import annotations

from typing import Any

from dnm.config import numbers, values
from dnm.config.files import Sections
from dnm.config.keys import Keys
from dnm.config.sections import fields_of, parse_section

# -> Config, and -> the settings of node-convert
RUN_KEYS: Keys = {
    "pending_grace_seconds": ("pending_grace", values.seconds(0, 86_400)),
    "shutdown_grace_seconds": ("shutdown_grace", values.seconds(0, 86_400)),
    "request_timeout_seconds": ("request_timeout", values.seconds(0.1, 3_600)),
    "relist_minutes": ("relist_interval", numbers.span("minutes", 1, 1_440)),
    "watch_from_pods": ("watch_from_pods", numbers.integer(0, 10_000_000)),
    "breaker_strikes": ("breaker_strikes", numbers.integer(1, 1_000)),
    "history_days": ("history_keep", numbers.span("days", 0, 36_500)),
}
CONVERTER_KEYS: Keys = {
    "poll_seconds": ("poll_seconds", values.seconds(0.1, 60)),
    "verify_seconds": ("verify_seconds", values.seconds(0, 600)),
    "stage_timeout_seconds": ("stage_timeout_seconds", values.seconds(1, 86_400)),
    "drain_timeout_seconds": ("drain_timeout_seconds", values.seconds(1, 86_400)),
    "boot_timeout_seconds": ("boot_timeout_seconds", values.seconds(1, 86_400)),
}


def read_lab(sections: Sections, keys: Keys, problems: list[str]) -> dict[str, Any]:
    """Returns the fields that the section `[lab]` sets, among those of `keys`."""
    every = {**RUN_KEYS, **CONVERTER_KEYS}
    return fields_of(parse_section("lab", sections["lab"], every, problems), keys)
