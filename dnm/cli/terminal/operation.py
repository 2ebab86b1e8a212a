"""The operation of an administrator: a command that changes the registry, with its user and host.

The system reports user and host; dnm cannot verify them."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from dnm.cli.terminal.logs import log_operation
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.history import Operation
from dnm.model.printable import printable
from dnm.model.registry import Registry
from dnm.run.verbs import change_registry
from dnm.verbs.refusal import Refusal

T = TypeVar("T")
Verb: TypeAlias = Callable[..., Registry | Refusal]
"""A function of dnm.verbs: its arguments are configuration, registry, and the command's values."""

_LONGEST = 200  # characters of a value from the command line or the environment


def new_operation(verb: str, name: str = "", reason: str = "", **numbers: str) -> Operation:
    """Returns the description of this command for the history, with the user and the host."""
    return Operation(
        verb=verb,
        object=printable(name, _LONGEST),
        requester=_login_name(),
        host=_host_and_origin(),
        reason=printable(reason, _LONGEST),
        numbers={key: value for key, value in numbers.items() if value},
    )


def _login_name() -> str:
    """Returns the user who called sudo, else the session's login user, else the process's user."""
    name = os.environ.get("SUDO_USER", "")
    if not name:
        try:
            name = os.getlogin()  # the session's user, which su does not change
        except OSError:
            try:
                name = pwd.getpwuid(os.getuid()).pw_name
            except KeyError:
                name = f"uid {os.getuid()}"
    return printable(name, _LONGEST)


def _host_and_origin() -> str:
    """Returns the name of the host, with the address of the ssh client if there is one."""
    host = os.uname().nodename
    address = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return printable(f"{host} from {address}" if address else host, _LONGEST)


def author_of(operation: Operation) -> str:
    """Returns `USER on HOST`, the form in which the registry names who did something."""
    return f"{operation.requester} on {operation.host}"


class RefusedError(DnmError):
    """The error for a command that dnm refuses; nothing was changed."""

    exit_code = ExitCode.NEEDS_PERSON


def granted(value: T | Refusal) -> T:
    """Returns the result of a function of `dnm.verbs`. If it is a Refusal, raises RefusedError."""
    if isinstance(value, Refusal):
        raise RefusedError(value.sentence)
    return value


class Done(NamedTuple):
    """The result of an operation: the registry before it, and after it or why dnm refused it."""

    before: Registry
    after: Registry | Refusal

    @property
    def is_changed(self) -> bool:
        return not isinstance(self.after, Refusal) and self.after != self.before


def print_wait() -> None:
    """Prints the reason why the command waits."""
    print("waiting for the current run to end; Ctrl-C gives up", file=sys.stderr, flush=True)


def attempt(config: Config, operation: Operation, verb: Verb, /, **words: object) -> Done:
    """Calls `verb`, a function of `dnm.verbs`, with the registry under the lock, and saves its
    result. If the registry changes, records the operation in the history and the log."""
    done: list[Done] = []

    def change(registry: Registry) -> Registry:
        after = verb(config, registry, **words)
        done[:] = [Done(registry, after)]
        return registry if isinstance(after, Refusal) else after

    if change_registry(config, change, print_wait, operation):
        log_operation(operation, config.instance_id)
    return done[0]


def carry_out(config: Config, operation: Operation, verb: Verb, /, **words: object) -> Done:
    """Executes an operation as `attempt` does. Raises RefusedError if `verb` returns a Refusal."""
    done = attempt(config, operation, verb, **words)
    granted(done.after)
    return done


def rehearse(config: Config, registry: Registry, verb: Verb, *each: Mapping[str, object]) -> None:
    """Calls `verb` with each set of values, without saving. If one is refused, raises RefusedError,
    so that a command for several nodes changes none of them and does not wait for the lock."""
    for words in each:
        granted(verb(config, registry, **words))


def is_sure(question: str, is_confirmed: bool) -> bool:
    """Returns whether the administrator confirms the question, now or by `--yes`."""
    if is_confirmed:
        return True
    from typer import confirm

    return confirm(question, err=True)
