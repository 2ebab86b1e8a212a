"""The few lines in which the sandbox's `node-convert` and its server talk: words with a NUL between
them (its process, how many arguments follow, these, its environment), and a line of numbers before
what it shall say.
"""

from __future__ import annotations

from dnm.lab.sandbox.conversion import Result
from dnm.lab.sandbox.http_values import Answer


def read_call(body: bytes) -> tuple[list[str], dict[str, str], int]:
    """Returns arguments, environment and process; raises ValueError for what is no such text."""
    process, count, *words = body.decode("utf-8", "surrogateescape").split("\0")
    arguments, environment = words[: int(count)], words[int(count) :]
    return arguments, dict(pair.split("=", 1) for pair in environment), int(process)


def write_result(result: Result) -> Answer:
    """Exit code, operation (0: none), seconds to wait, whether to hang, bytes of stdout; then
    stdout and stderr."""
    stdout, stderr = result.stdout.encode(), result.stderr.encode()
    head = (
        f"{result.exit_code} {result.operation or 0} {result.wait} {int(result.hang)} "
        f"{len(stdout)}\n"
    )
    return Answer(body=head.encode() + stdout + stderr, content_type="text/plain")
