"""The state of a node in Slurm's words, e.g. `IDLE+DRAIN`: parsed once, asked by name.

Pure; one dialect from Slurm 20.11 to 26.05, whoever prints it: scontrol, sinfo, a converter's list.
"""

from __future__ import annotations

from dnm.model.value import Value

BASES = frozenset(("UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "MIXED", "FUTURE", "ERROR"))
POWER_FLAGS = frozenset(
    ("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "POWER_DRAIN")
)
REBOOT_FLAGS = frozenset(("REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"))
FLAGS = (
    POWER_FLAGS
    | REBOOT_FLAGS
    | frozenset(
        (
            "DRAIN", "COMPLETING", "NOT_RESPONDING", "RESERVED", "MAINTENANCE", "PLANNED", "FAIL",
            "REBOOT_CANCEL", "INVALID_REG", "CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "BLOCKED",
            "EXTERNAL",
        )
    )
)  # fmt: skip
ABSENT = "ABSENT"
"""A machine of which Slurm has no record now, since whoever registers it has taken that away: only
bridge-convert's list says so, never Slurm."""
_SUFFIXES = {  # of 20.11, which has no flag of its own for them in scontrol
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_WORDS = {  # words that stand for a base with a flag, or hide the base (None), as 20.11 prints them
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "RESERVED": (None, "RESERVED"),
    "MAINT": (None, "MAINTENANCE"),
    "REBOOT": ("DOWN", "REBOOT"),
}
_FLAG_WORDS = {"MAINT": "MAINTENANCE", "DRAINING": "DRAIN", "DRAINED": "DRAIN", "FAILING": "FAIL"}


class NodeState(Value, frozen=True):
    """`base` is what the node does, empty where 20.11 hides it; `flags` what else is true of it."""

    base: str
    flags: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        return "+".join((self.base or "UNKNOWN", *sorted(self.flags)))

    @property
    def has_work(self) -> bool:
        """Returns whether the state shows work. Slurm 22.05 and before hide a suspended job
        here."""
        return self.base in ("ALLOCATED", "MIXED") or "COMPLETING" in self.flags

    @property
    def is_understood(self) -> bool:
        return self.base in BASES and self.flags <= FLAGS


def parse_state(text: str, cpus_allocated: int | None = None) -> NodeState:
    """`IDLE+DRAIN`, 20.11's `IDLE*+DRAIN` and `RESERVED+DRAIN`; unknown words stay as they are.

    Where RESERVED or MAINT hide the base, `cpus_allocated` tells it; without it the base is empty.
    """
    first, *rest = text.strip().upper().split("+")
    flags = set()
    while first and first[-1] in _SUFFIXES:
        flags.add(_SUFFIXES[first[-1]])
        first = first[:-1]
    base: str | None = first
    if first not in BASES and first in _WORDS:
        base, flag = _WORDS[first]
        flags.add(flag)
        if base is None and cpus_allocated is not None:
            base = "ALLOCATED" if cpus_allocated else "IDLE"
    flags.update(_FLAG_WORDS.get(flag, flag) for flag in rest)
    return NodeState(base=base or "", flags=frozenset(flags))


def in_service_of(state: NodeState) -> bool | None:
    """Whether Slurm has the node: it works on it or may start work on it. None: can't be told.

    A draining node with a job is in service; a drained, failed or down one is not. A node that does
    not answer is neither until Slurm has made up its mind.
    """
    if state.base == ABSENT:
        return False
    if not state.is_understood or state.base in ("UNKNOWN", "FUTURE", "ERROR"):
        return None
    if state.base == "DOWN":
        return None if "COMPLETING" in state.flags else False
    if state.has_work:
        return True
    if state.flags & {"DRAIN", "FAIL"}:
        return False
    return None if state.flags & {"NOT_RESPONDING", "INVALID_REG"} else True
