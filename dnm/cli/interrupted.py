"""A Ctrl-C, however it ends the command: a sentence, and 130."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

CODE = 130
_UNFINISHED = "the next run finds out what was under way"


def tell(error: BaseException) -> NoReturn:
    """Says it with the words that the interrupt has, where it has any, and ends the command. typer
    makes a wordless exit code of one. Where the interrupt came as text was executed, as an import
    of a dataclass does, Python would die of the signal at its very end (`Py_RunMain`, bpo-1054041):
    so what is to be done at the end is done here."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, KeyboardInterrupt):
        at = at.__cause__ or at.__context__
    _say(*(at.args if at else ()))
    atexit._run_exitfuncs()
    with suppress(OSError):  # a reader that has left
        print(end="", flush=True)  # there may be no stdout
    os._exit(CODE)


def hear(ignored: UnraisableHookArgs) -> None:
    """Ends the command where a finalizer was interrupted, such as one that tidies up after an
    import: nobody catches that, and the verb would go on as if there had been no Ctrl-C."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        _say()
        os._exit(CODE)
    sys.__unraisablehook__(ignored)


@contextmanager
def told_with(rest: str) -> Iterator[None]:
    """A Ctrl-C inside is told with a sentence whose end is `rest`."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(rest) from None


def _say(rest: str = _UNFINISHED) -> None:
    print(f"dnm: interrupted; {rest}", file=sys.stderr, flush=True)
