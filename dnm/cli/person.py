"""Who gives a verb, and where: for the record. It is what the host says, not a proof."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping

from dnm.model.history import Deed
from dnm.model.printable import printable

_LONGEST = 200  # characters of what a person says, or his environment


def a_deed(verb: str, name: str = "", reason: str = "", **numbers: str) -> Deed:
    """Returns what the record tells of a verb that this process carries out."""
    given = {key: value for key, value in numbers.items() if value}
    return Deed(
        verb=verb,
        object=printable(name, _LONGEST),
        who=who_asks(os.environ),
        host=where_from(os.environ),
        reason=printable(reason, _LONGEST),
        numbers=given,
    )


def who_asks(environ: Mapping[str, str]) -> str:
    """Returns the login name of the person behind sudo, or of the session, or of the process."""
    name = environ.get("SUDO_USER", "")
    if not name:
        try:
            name = os.getlogin()  # of the session: su does not change it
        except OSError:
            try:
                name = pwd.getpwuid(os.getuid()).pw_name
            except KeyError:
                name = f"uid {os.getuid()}"
    return printable(name, _LONGEST)


def where_from(environ: Mapping[str, str]) -> str:
    """Returns the host, and the address from which the person came by ssh where that is known."""
    host = socket.gethostname()
    came_from = environ.get("SSH_CONNECTION", "").split(" ")[0]
    return printable(f"{host} from {came_from}" if came_from else host, _LONGEST)
