"""Starts a converter and its keeper, in a session of their own, so that they outlive a run.

There is never a shell. The process stands in `<key>.process` from its first moment, in the end its
exit code in `<key>.exit`: also where dnm is killed in between.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from dnm.converter.contract import secrets_of
from dnm.converter.output import FILES, ConverterOutput, file_of, open_file
from dnm.converter.processes import process_of
from dnm.model.errors import ConverterError
from dnm.model.fault_points import fault_point
from dnm.model.registry import ConverterProcess
from dnm.model.trust import check_trust

TERM_GRACE = 10.0  # seconds from TERM to KILL
_OWN = os.O_RDWR | os.O_CREAT | os.O_APPEND

# Starts the converter and waits for it, also after the run has ended: its exit code is in the file
# then. TERM is left to the converter, which has every signal as it comes by default.
_KEEPER = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path, command = sys.argv[1], sys.argv[2:]
plain = [signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ]
try:
    child = os.posix_spawn(command[0], command, os.environ, setsigdef=plain)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
except OSError as error:
    print("it can't be started:", error.strerror, file=sys.stderr)
    code = 127
with open(path + ".new", "w") as file:
    file.write(str(code))
os.rename(path + ".new", path)
sys.exit(code if code >= 0 else 128 - code)
"""


def _note_process(descriptor: int) -> None:
    """In the new process, before it becomes the converter: from its first moment it can be found,
    also if dnm is killed in this one."""
    process = process_of(os.getpid())
    if process is not None:
        os.write(descriptor, msgspec.json.encode(process))


class ConverterCall:
    """A converter that this run has started; `listen.py` waits for it."""

    def __init__(
        self, key: str, command: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        """Starts it; raises ConverterError when the program is missing or not executable."""
        try:
            check_trust(Path(command[0]), ConverterError)
            if not os.access(command[0], os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with fault_point("converter.output"):
                directory.mkdir(mode=0o700, exist_ok=True)
                for end in FILES:
                    file_of(directory / key, end).unlink(missing_ok=True)
                self.output = ConverterOutput(directory / key, secrets_of(environment), _OWN)
                note = open_file(file_of(directory / key, "process"), _OWN)
                exit_file = file_of(directory / key, "exit")
            with fault_point("converter.start"):
                self.child = subprocess.Popen(
                    [sys.executable, "-ISc", _KEEPER, str(exit_file), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=self.output.tails[0].file,
                    stderr=self.output.tails[1].file,
                    env=dict(environment),
                    start_new_session=True,
                    preexec_fn=partial(_note_process, note.fileno()),
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConverterError(
                f"the converter {command[0]} can't be started "
                f"({getattr(error, 'strerror', '') or error}): "
                "set node_convert_path to an executable file"
            ) from error
        self.process = process_of(self.child.pid) or ConverterProcess(
            pid=self.child.pid, start_ticks=0
        )

    def end(self) -> None:
        """TERM for it and its children, KILL some seconds later. One that can't be ended is left:
        the next run sees that it is still at work."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError), fault_point("converter.signal"):
                os.killpg(self.child.pid, sent)
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=TERM_GRACE)
