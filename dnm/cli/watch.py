"""`dnm status --watch`: the same again and again, a screen at a time, until Ctrl-C."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO

from dnm.model.errors import DnmError
from dnm.model.printable import printable

_EVERY = 2.0  # seconds, as watch(1)
_HOME, _TO_END_OF_LINE, _TO_END = "\033[H", "\033[K", "\033[J"


class _Screen(StringIO):
    """What is printed into it is folded, and bold, as at the terminal that gets it."""

    def isatty(self) -> bool:
        """Says yes."""
        return True


def watch(show: Callable[[], object]) -> None:
    """Shows it until Ctrl-C. What can't be read now is told in its place, and tried again."""
    with suppress(KeyboardInterrupt):
        sys.stdout.write(_HOME + _TO_END)
        while True:
            screen = _Screen()
            with redirect_stdout(screen):
                try:
                    show()
                except DnmError as error:
                    print(f"error: {printable(str(error))}")
            _draw(screen.getvalue().splitlines())
            time.sleep(_EVERY)
    print()


def _draw(lines: list[str]) -> None:
    """Over what stood there, so that nothing flickers; what has no room is counted."""
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines: `dnm status` has them"]
    text = "".join(f"{line}{_TO_END_OF_LINE}\n" for line in lines)
    sys.stdout.write(_HOME + text + _TO_END)
    sys.stdout.flush()
