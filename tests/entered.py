"""A count of the files of dnm that one command executes: `python -m tests.entered VERB ...`.

A file counts with its whole length if one of its functions is called, since a reader opens the
whole file. At its end, the command prints JSON: file -> functions, and dnm's imported modules."""

from __future__ import annotations

import gc
import inspect
import json
import sys
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parent.parent
PACKAGE = str(ROOT / "dnm")


def main() -> None:
    from dnm.cli.__main__ import main as run_verb

    try:
        with Listening() as events:
            run_verb()
    finally:
        modules = sorted(name for name in sys.modules if name.startswith("dnm."))
        print(json.dumps({"entered": events.by_file(), "imported": modules}))


class Listening:
    """A recorder of the functions of dnm that are called. Code of modules and of class bodies does
    not count."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    def __enter__(self) -> Listening:
        gc.collect()  # collects generators of an earlier test, whose close would be recorded
        document = sys.modules.get("dnm.queues.yunikorn.document")
        if document is not None:
            document.judge_text.cache_clear()  # of texts that this process has read before
        self._before = sys.getprofile()
        sys.setprofile(self._listen)
        return self

    def __exit__(self, *of: object) -> None:
        sys.setprofile(self._before)

    def _listen(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._codes or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if code.co_filename.startswith(PACKAGE) and not _is_importing(frame):
            self._codes.add(code)

    def by_file(self) -> dict[str, list[str]]:
        results: dict[str, list[str]] = {}
        for code in self._codes:
            name = str(Path(code.co_filename).relative_to(ROOT))
            results.setdefault(name, []).append(code.co_qualname)
        return {name: sorted(results[name]) for name in sorted(results)}


def _is_importing(frame: FrameType) -> bool:
    above = frame.f_back
    while above is not None and above.f_code.co_filename != "<frozen importlib._bootstrap>":
        above = above.f_back
    return above is not None


if __name__ == "__main__":
    main()
