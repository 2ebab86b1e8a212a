"""The end of a command by Ctrl-C, always with a message and exit code 130.

typer handles Ctrl-C only while a command runs. During imports and in finalizers, Python prints a
traceback or ignores it (tests/cli/test_app.py)."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CODE = 130
_UNFINISHED = "; the next run checks for unfinished actions"
LOOKS = frozenset((
    "", "plan", "status", "nodes", "history", "report", "explain", "simulate", "check", "demo",
    "test-load", "node-types", "queues check", "queues show", "event list",
))  # fmt: skip
"""The commands that change nothing at a site, so that nothing is left unfinished."""


def end_interrupted() -> NoReturn:
    """Prints a message and ends the command, since typer would print none. If Ctrl-C interrupts
    `exec`, as in the import of a dataclass, Python kills itself with SIGINT at exit (`Py_RunMain`,
    bpo-1054041), so this function runs the exit handlers itself."""
    code = _print_interrupted()
    atexit._run_exitfuncs()
    with suppress(OSError):
        print(end="", flush=True)
    os._exit(code)


def end_if_interrupted(ignored: UnraisableHookArgs) -> None:
    """Ends the command if Ctrl-C interrupted a finalizer, such as the clean-up after an import.
    Python ignores such an error, so the command would continue as if the user had not pressed
    Ctrl-C."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        os._exit(_print_interrupted())
    sys.__unraisablehook__(ignored)


def _print_interrupted() -> int:
    """Prints that the command was interrupted, and returns the exit code."""
    words, rest = [], iter(sys.argv[1:])
    for word in rest:
        if word in ("--config", "-c"):
            next(rest, None)  # the file name is not a command
        elif not word.startswith("-"):
            words.append(word)
    words = words[:2]
    is_look = "--dry-run" in sys.argv or not LOOKS.isdisjoint(("".join(words[:1]), " ".join(words)))
    print(f"dnm: interrupted{'' if is_look else _UNFINISHED}", file=sys.stderr, flush=True)
    return CODE
