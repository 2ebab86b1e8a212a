"""The operation of an administrator: who gives it, from where, and its effect on the registry. Who
and where are what the host reports, which is no proof."""

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
"""A function of dnm.verbs: of the configuration, the registry, and the words by their names."""

_LONGEST = 200  # characters of what a person says, or his environment


def new_operation(verb: str, name: str = "", reason: str = "", **numbers: str) -> Operation:
    """Returns what the record tells of a verb that this process carries out."""
    given = {key: value for key, value in numbers.items() if value}
    return Operation(
        verb=verb,
        object=printable(name, _LONGEST),
        who=_who_asks(),
        host=_where_from(),
        reason=printable(reason, _LONGEST),
        numbers=given,
    )


def _who_asks() -> str:
    """The login name of the person behind sudo, or of the session, or of the process."""
    name = os.environ.get("SUDO_USER", "")
    if not name:
        try:
            name = os.getlogin()  # of the session: su does not change it
        except OSError:
            try:
                name = pwd.getpwuid(os.getuid()).pw_name
            except KeyError:
                name = f"uid {os.getuid()}"
    return printable(name, _LONGEST)


def _where_from() -> str:
    """The host, and the address from which the person came by ssh where that is known."""
    host = os.uname().nodename
    came_from = os.environ.get("SSH_CONNECTION", "").split(" ")[0]
    return printable(f"{host} from {came_from}" if came_from else host, _LONGEST)


def said_by(operation: Operation) -> str:
    """Returns who and where, as the registry keeps it."""
    return f"{operation.who} on {operation.host}"


class RefusedError(DnmError):
    """The request of an administrator is refused."""

    exit_code = ExitCode.NEEDS_PERSON


def granted(value: T | Refusal) -> T:
    """Returns the value. Raises RefusedError for a refusal."""
    if isinstance(value, Refusal):
        raise RefusedError(value.sentence)
    return value


class Done(NamedTuple):
    """The registry before and after an operation."""

    before: Registry
    after: Registry | Refusal

    @property
    def is_changed(self) -> bool:
        return not isinstance(self.after, Refusal) and self.after != self.before


def say_wait() -> None:
    """Says why nothing happens yet."""
    print("a run is at work: waits for it to end, Ctrl-C gives up", file=sys.stderr, flush=True)


def attempt(config: Config, operation: Operation, verb: Verb, /, **words: object) -> Done:
    """Changes the registry by `verb` under the lock. If that changes anything, the history and the
    log get the operation."""
    done: list[Done] = []

    def change(registry: Registry) -> Registry:
        after = verb(config, registry, **words)
        done[:] = [Done(registry, after)]
        return registry if isinstance(after, Refusal) else after

    if change_registry(config, change, say_wait, operation):
        log_operation(operation, config.instance_id)
    return done[0]


def carry_out(config: Config, operation: Operation, verb: Verb, /, **words: object) -> Done:
    """Does the same. Raises RefusedError."""
    done = attempt(config, operation, verb, **words)
    granted(done.after)
    return done


def rehearse(config: Config, registry: Registry, verb: Verb, *each: Mapping[str, object]) -> None:
    """Applies `verb` with each of these words to the registry as it was read, so that a command is
    refused as a whole, before it writes or waits. Raises RefusedError."""
    for words in each:
        granted(verb(config, registry, **words))


def is_sure(question: str, is_told: bool) -> bool:
    """Asks the administrator, unless `--yes` was given."""
    if is_told:
        return True
    from typer import confirm

    return confirm(question, err=True)
