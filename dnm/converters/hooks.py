"""Hooks: executables of the site in the hooks directory, called with the node's name.

A hook must be repeatable: it can be ended at any point and is then run again. It gets facts about
the conversion in an environment of its own. Secrets come by variables in `pass_environment` or by
the hook's files, never on a command line; dnm blacks them out in its output. A hook runs in a
session of its own. If its time is up, it is ended with its children. The journal records its
process before it begins, so that a later call finds it.

The kubelet's configuration file for a lent node is written beside the journals, and a hook gets its
path. Equal settings give equal bytes. A node has no file if its type has no kubelet settings."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from dnm.converter.ending import end_by_signals
from dnm.converter.processes import is_alive, process_of
from dnm.converters.journal import Direction, Journal
from dnm.converters.settings import Settings
from dnm.host.fault_points import fault_point
from dnm.host.trust import check_trust, replace_file
from dnm.model.blackout import SafeLines, Secrets
from dnm.model.errors import ConverterError
from dnm.model.lent_state import ConverterProcess

# The child waits for a byte before it becomes the hook, or ends. `-I` keeps it fast.
_GATE = "import os,sys; os.read(0,1) or sys.exit(1); os.execv(sys.argv[1], sys.argv[1:])"
_LONGEST_LINE = 4096
_LAST_LINES = 3
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HookFailed(ConverterError):
    """The error if a hook fails or exceeds its time-out."""


def find_hook(settings: Settings, name: str, is_required: bool = False) -> Path | None:
    """Returns the hook's path; None if the site has no such hook. Raises ConverterError if the hook
    is unusable, or missing although it is required."""
    path = settings.hooks_dir / name
    try:
        check_trust(path, ConverterError)
    except FileNotFoundError:
        if any(parent.is_symlink() and not parent.exists() for parent in (path, *path.parents)):
            raise ConverterError(f"the hook {path} is behind a broken link: fix it") from None
        if not is_required:
            return None
        raise ConverterError(
            f"the hook {path} is missing: node-convert needs it for this stage; write it "
            "(examples are in etc/hooks/), or correct hooks_dir"
        ) from None
    except OSError as error:
        raise ConverterError(f"the hook {path} can't be read ({error.strerror})") from error
    if not path.is_file() or not os.access(path, os.X_OK):
        raise ConverterError(f"the hook {path} is not executable: run 'chmod +x {path}'")
    return path


def hook_environment(
    settings: Settings, facts: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Returns all environment variables of a hook; etc/hooks/README explains each."""
    environment = {
        "PATH": ":".join(filter(None, (environ.get("PATH", ""), _PATH))),
        "HOME": environ.get("HOME", "/"),
        "LC_ALL": "C",
        "DNM_INSTANCE": settings.instance,
        "NODE_SEARCH_DOMAIN": settings.node_search_domain,
        **facts,
    }
    for name in ("SLURM_CONF", "KUBECONFIG", *settings.pass_environment):
        if environ.get(name):
            environment[name] = environ[name]
    if settings.kubeconfig_path is not None:
        environment["KUBECONFIG"] = str(settings.kubeconfig_path)
    if settings.config_path is not None:
        environment["DNM_CONFIG"] = str(settings.config_path)
    return environment


class HookCall:
    """A started hook: a process that waits for `let_go`, and its output."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        secrets: Secrets,
        log: Callable[[str], None],
    ) -> None:
        """Starts the process, which does nothing until `let_go`. Raises ConverterError."""
        self.command = list(command)
        self.log = log
        self.lines = SafeLines(secrets, _LONGEST_LINE)
        self.last_lines: list[str] = []
        try:
            with fault_point("hook.start"):
                self.child = subprocess.Popen(
                    [sys.executable, "-ISc", _GATE, *self.command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            raise ConverterError(
                f"the hook {self.command[0]} can't be started ({error.strerror})"
            ) from error
        self.process = process_of(self.child.pid) or ConverterProcess(
            pid=self.child.pid, start_ticks=0
        )

    def let_go(self) -> None:
        """Lets the started process become the hook, with an empty standard input."""
        assert self.child.stdin is not None
        with fault_point("hook.let_go"), suppress(BrokenPipeError):
            self.child.stdin.write(b"\n")
            self.child.stdin.close()

    def wait(self, timeout: timedelta, is_hurried: Callable[[], bool]) -> None:
        """Waits until the hook has ended; children that keep its output open do not matter. Ends
        hook and children after the timeout, or if `is_hurried` returns true. Raises HookFailed,
        with the hook's last lines, in these cases and for a non-zero exit code."""
        assert self.child.stdout is not None
        deadline = time.monotonic() + timeout.total_seconds()
        stop = ""
        with selectors.DefaultSelector() as selector:
            os.set_blocking(self.child.stdout.fileno(), False)
            selector.register(self.child.stdout, selectors.EVENT_READ)
            while self.child.poll() is None and not stop:
                self._listen(selector, 0.1)
                if time.monotonic() > deadline:
                    stop = f"did not end within {timeout.total_seconds():g} s and was ended"
                elif is_hurried():
                    stop = "was ended because node-convert got two signals to stop"
            if stop:
                end_session(self.child.pid, lambda: self.child.poll() is not None)
            self._listen(selector, 0)
            self._take_lines(self.lines.end())
        self.child.stdout.close()
        with fault_point("hook.end"):
            code = self.child.wait()
        if stop or code:
            last = f": {' / '.join(self.last_lines)}" if self.last_lines else ""
            raise HookFailed(f"the hook {self.command[0]} {stop or f'failed (exit {code})'}{last}")

    def _listen(self, selector: selectors.BaseSelector, seconds: float) -> None:
        for event, _ in selector.select(seconds) if selector.get_map() else ():
            content = os.read(event.fd, 65536)
            if not content:
                selector.unregister(event.fileobj)
            self._take_lines(self.lines.feed(content))
        if not selector.get_map():
            time.sleep(min(seconds, 0.02))

    def _take_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.last_lines = [*self.last_lines, line][-_LAST_LINES:]
            self.log(line)


def end_session(leader: int, has_ended: Callable[[], bool]) -> None:
    """Sends TERM to a hook and its children, and KILL ten seconds later."""

    def send(sent: signal.Signals) -> None:
        with fault_point("hook.signal"), suppress(ProcessLookupError):
            os.killpg(leader, sent)

    end_by_signals(send, has_ended)


def outlive(process: ConverterProcess, patience: timedelta, log: Callable[[str], None]) -> None:
    """Waits for a hook of an earlier call that still runs, and ends it after `patience`."""
    if not is_alive(process):
        return
    log(f"waits for a hook of an earlier call (process {process.pid})")
    deadline = time.monotonic() + patience.total_seconds()
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.2)
    if is_alive(process):
        end_session(process.pid, lambda: not is_alive(process))


_FILE_VARIABLE = "DNM_KUBELET_CONFIG"
_WITH_FILE = ("prepare", "join")
_FOLDER = "kubelet"  # below state_dir


def check_kubelets(settings: Settings, node_type: str) -> None:
    """Raises ConverterError, before any claim, if kubelets of this node type would not start."""
    of_type = settings.node_types.get(node_type)
    if of_type is None or of_type.kubelet is None:
        return
    from dnm.kubelet.check import lending_error

    if refusal := lending_error(of_type):
        raise ConverterError(f"{refusal}: no node of this type is converted until this is fixed")


def kubelet_facts(settings: Settings, journal: Journal, hook: str) -> Mapping[str, str]:
    """Writes the node's kubelet file and returns the variable with its path for the hook's
    environment. Returns no variable if hook or node type need no file. Raises ConverterError."""
    of_type = settings.node_types.get(journal.node_type)
    has_file = hook in _WITH_FILE and journal.direction is Direction.K8S
    if not has_file or of_type is None or of_type.kubelet is None:
        return {}
    from dnm.kubelet.render import render

    if not (text := render(of_type.kubelet)):
        return {}
    path = settings.state_dir / _FOLDER / f"{journal.node}.yaml"
    try:
        with fault_point("hook.kubelet_file"):
            path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, [text.encode()], "hook.kubelet_file")
    except OSError as error:
        raise ConverterError(
            f"the kubelet's file {path} can't be written ({error.strerror or error}): free space "
            "or fix the permissions, then repeat"
        ) from error
    return {_FILE_VARIABLE: str(path)}
