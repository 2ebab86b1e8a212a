"""What one run of the command enters, counted: `python -m tests.entered VERB ...`.

A file is entered when one of its functions is called; its whole length counts, for that is what a
reader opens. Printed as JSON after the verb has ended: file -> its functions, and which modules of
dnm were imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parent.parent


def main() -> None:
    codes: set[CodeType] = set()

    def listen(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(listen)
    try:
        from dnm.cli.__main__ import main as run_verb

        run_verb()
    finally:
        sys.setprofile(None)
        modules = sorted(name for name in sys.modules if name.startswith("dnm."))
        sys.__stdout__.write(json.dumps({"entered": _by_file(codes), "imported": modules}) + "\n")


def _by_file(codes: set[CodeType]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for code in codes:
        path = Path(code.co_filename)
        if code.co_name != "<module>" and path.is_relative_to(ROOT / "dnm"):
            found.setdefault(str(path.relative_to(ROOT)), []).append(code.co_qualname)
    return {name: sorted(found[name]) for name in sorted(found)}


if __name__ == "__main__":
    main()
