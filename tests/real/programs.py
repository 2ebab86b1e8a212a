"""Server processes of the real cluster: each has a log, is awaited, ended and checked for death."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATIENCE = 120.0  # seconds; an idle machine takes ten for all of them
LOOK_EVERY = 2.0
HUNG = 900.0  # seconds; at load 25 installing a package takes more than three minutes


class RigError(Exception):
    """The real cluster did not start, or a server died; the message has the server's output."""


class Patience:
    """A time limit that allows for a slow machine: it is over after `seconds` without a change in
    the result of `look`, or after ten times as long."""

    def __init__(self, seconds: float, look: Callable[[], object]) -> None:
        self.seconds = seconds
        self.look = look
        self.seen: object = None
        self.changed = self.began = self.looked = time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        if now < self.looked + LOOK_EVERY:
            return False
        try:
            seen = self.look()
        except Exception:  # the observed object may be the awaited one
            seen = self.seen
        self.looked = time.monotonic()
        if seen != self.seen:
            self.seen, self.changed = seen, self.looked
        return now > min(self.changed + self.seconds, self.began + 10 * self.seconds)


def end_of(log: Path, lines: int = 25) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


class Server:
    """A server process. Its `start` returns when `is_ready` is true."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.command = list(command)
        self.log = log
        self.is_ready = is_ready
        self.environment = {**os.environ, **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the program. Raises RigError with the end of its log if it dies or hangs."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.environment, start_new_session=True,  # Ctrl-C is for the rig
            )  # fmt: skip
        self.wait_ready()

    def wait_ready(self) -> None:
        assert self.process is not None
        patience = Patience(PATIENCE, lambda: self.log.stat().st_size)
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RigError(
                    f"{self.name} ended with {self.process.returncode}. Its output:\n"
                    f"{end_of(self.log)}"
                )
            if patience.is_over():
                raise RigError(f"{self.name} does not get ready. Its output:\n{end_of(self.log)}")
            time.sleep(0.05)

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, sent: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP to make the server hang."""
        assert self.process is not None
        self.process.send_signal(sent)

    def send_if_up(self, sent: signal.Signals) -> None:
        if self.is_up:
            self.send(sent)

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(sent)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def resident_mb(self) -> int:
        """Returns the resident memory of the server in MiB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) // 1024
