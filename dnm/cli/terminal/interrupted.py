"""A Ctrl-C, however it ends the command: a sentence, and exit code 130.

typer hears a Ctrl-C only while a command runs. While modules load, and in finalizers, Python prints
a traceback or goes on (tests/cli/test_app.py).
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CODE = 130
_UNFINISHED = "; the next run finds out what was under way"
LOOKS = frozenset((
    "", "plan", "status", "nodes", "history", "report", "explain", "simulate", "check", "demo",
    "test-load", "node-types", "queues check", "queues show", "event list",
))  # fmt: skip
"""What changes nothing at a site: it leaves nothing unfinished."""


def tell() -> NoReturn:
    """Says it and ends the command. typer makes a wordless exit code of one. Where the interrupt
    came as text was executed, as an import of a dataclass does, Python would die of the signal at
    its very end (`Py_RunMain`, bpo-1054041): so what is to be done at the end is done here."""
    code = _say()
    atexit._run_exitfuncs()
    with suppress(OSError):
        print(end="", flush=True)
    os._exit(code)


def hear(ignored: UnraisableHookArgs) -> None:
    """Ends the command where a finalizer was interrupted, such as one that tidies up after an
    import: nobody catches that, and the verb would go on as if there had been no Ctrl-C."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        os._exit(_say())
    sys.__unraisablehook__(ignored)


def _say() -> int:
    """Returns the exit code."""
    words, rest = [], iter(sys.argv[1:])
    for word in rest:
        if word in ("--config", "-c"):
            next(rest, None)  # its file is no verb
        elif not word.startswith("-"):
            words.append(word)
    words = words[:2]
    is_look = "--dry-run" in sys.argv or not LOOKS.isdisjoint(("".join(words[:1]), " ".join(words)))
    print(f"dnm: interrupted{'' if is_look else _UNFINISHED}", file=sys.stderr, flush=True)
    return CODE
