"""A program of YuniKorn's own code that checks queue documents (`judge.go`), for each version.

`python -m tests.real.judge` builds it. The cache keeps it beside the servers, under the checksum of
its source."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.real.build import BuildError, cache, checked, go_environment, log_progress

SOURCE = Path(__file__).with_name("judge.go")
_CORE = "github.com/apache/yunikorn-core"
_INTERFACE = "github.com/apache/yunikorn-scheduler-interface"
# version of the scheduler -> of its core, and what the module proxy does not have under the name
# that the core requires
CORES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "1.8.0": ("1.8.0-1", {}),
    "1.9.0": ("1.9.0", {_INTERFACE: "1.9.0"}),
}


def path_of(version: str) -> Path:
    """Returns the path of the program for a version of YuniKorn, built or not."""
    source = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    return cache() / f"yunikorn-judge-{version}-{source}"


def build_judges() -> None:
    """Builds the missing programs. Raises BuildError."""
    cache().mkdir(parents=True, exist_ok=True)
    with FileLock(cache() / ".judge.lock"):
        for version in CORES:
            if not path_of(version).exists():
                _build(version)


def _build(version: str) -> None:
    core, replaces = CORES[version]
    # The checksum database lacks some of them.
    environment = {**go_environment(), "GONOSUMDB": "github.com/apache"}
    log_progress(f"the judge of queue documents, with yunikorn-core {core}")
    with tempfile.TemporaryDirectory(prefix=".judge-", dir=cache()) as name:
        directory = Path(name)
        lines = ["module judge", "go 1.25.0", f"require {_CORE} v{core}"]
        lines += [f"replace {path} => {path} v{new}" for path, new in replaces.items()]
        (directory / "go.mod").write_text("\n".join(lines) + "\n")
        (directory / "main.go").write_bytes(SOURCE.read_bytes())
        checked(["go", "mod", "tidy"], environment, directory)
        checked(["go", "build", "-ldflags", "-s -w", "-o", "judge", "."], environment, directory)
        for old in cache().glob(f"yunikorn-judge-{version}-*"):
            old.unlink()
        os.replace(directory / "judge", path_of(version))


Answer = Mapping[str, Any]


class Judge:
    """A running program, which answers one question after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, text: str) -> Answer:
        """Returns what YuniKorn makes of a document; judge.go describes the fields."""
        return self._answer({"text": text})

    def compiles(self, expression: str) -> bool:
        """Returns whether Go's regexp package accepts a regular expression."""
        return not self._answer({"expression": expression})["load"]

    def _answer(self, question: Mapping[str, str]) -> Answer:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise BuildError(f"the judge has ended over {question}")
        answer: Answer = json.loads(line)
        return answer


@contextmanager
def judge(version: str) -> Iterator[Judge]:
    """Starts the program for a version of YuniKorn. Raises BuildError if it is not built."""
    path = path_of(version)
    if not path.exists():
        raise BuildError(f"{path} is not built: run 'make real'")
    with subprocess.Popen(
        [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            yield Judge(process)
        finally:
            process.kill()


def ask_all(version: str, texts: Iterable[str], at_once: int = 1000) -> Iterator[Answer]:
    """Yields the answers about documents in order. It starts a new process now and then, because
    each start of a scheduler in it leaks memory."""
    remaining = list(texts)
    while remaining:
        some, remaining = remaining[:at_once], remaining[at_once:]
        with judge(version) as result:
            for text in some:
                yield result.ask(text)


if __name__ == "__main__":
    try:
        build_judges()
    except BuildError as error:
        sys.exit(f"real: {error}")
