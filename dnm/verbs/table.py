"""The table: verb → what it makes of the registry. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dnm.model.registry import Registry
from dnm.verbs.event import add_event, remove_event
from dnm.verbs.keeping import exclude, hold, pause, reset, resume, take_over, unexclude, unhold
from dnm.verbs.lending import extend, give_back, lend
from dnm.verbs.refusal import Refusal
from dnm.verbs.taking_in import adopt, forget

Verb: TypeAlias = Callable[..., Registry | Refusal]
"""Of the configuration, the registry, and the words by their names."""

VERBS: Mapping[str, Verb] = {
    "lend": lend,
    "extend": extend,
    "return": give_back,
    "hold": hold,
    "unhold": unhold,
    "exclude": exclude,
    "unexclude": unexclude,
    "adopt": adopt,
    "forget": forget,
    "pause": pause,
    "resume": resume,
    "takeover": take_over,
    "reset": reset,
    "event add": add_event,
    "event remove": remove_event,
}
