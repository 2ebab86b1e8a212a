"""A node's state in Slurm's notation, e.g. `IDLE+DRAIN`, parsed into a base state and flags.

Pure. The grammar is the same from Slurm 20.11 to 26.05, in scontrol, sinfo and a converter's
list."""

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
"""The state of a machine that is removed from Slurm now. Only the list of bridge-convert has it,
never Slurm."""
_SUFFIXES = {  # of 20.11: its scontrol has no flags for them
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
_WORDS = {  # texts of 20.11 for a base with a flag; None: the base is hidden
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "RESERVED": (None, "RESERVED"),
    "MAINT": (None, "MAINTENANCE"),
    "REBOOT": ("DOWN", "REBOOT"),
}
_FLAG_WORDS = {"MAINT": "MAINTENANCE", "DRAINING": "DRAIN", "DRAINED": "DRAIN", "FAILING": "FAIL"}


class NodeState(Value, frozen=True):
    """A parsed state of a Slurm node: a base such as IDLE (empty if 20.11 hides it), and flags."""

    base: str
    flags: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        return "+".join((self.base or "UNKNOWN", *sorted(self.flags)))

    @property
    def has_work(self) -> bool:
        """Returns whether the state shows a job. Slurm up to 22.05 hides suspended jobs."""
        return self.base in ("ALLOCATED", "MIXED") or "COMPLETING" in self.flags

    @property
    def is_understood(self) -> bool:
        return self.base in BASES and self.flags <= FLAGS


def parse_state(text: str, cpus_allocated: int | None = None) -> NodeState:
    """Parses a node's state such as `IDLE+DRAIN` or 20.11's `IDLE*+DRAIN`; keeps unknown flags.

    If RESERVED or MAINT hides the base, `cpus_allocated` decides it (None: the base is empty)."""
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
    """Returns whether Slurm runs jobs on the node or may start some, or None if that is unknown.

    A draining node with a job is in service; a drained, failed or down one is not. A node that does
    not answer is unknown until Slurm marks it down."""
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
