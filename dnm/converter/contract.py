"""What a converter is asked and told: its command lines, the names that may stand in them, its
environment. The contract is that of the sites' existing `node-convert`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path

from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.calendar import Booking
from dnm.model.config import Config
from dnm.model.errors import ConverterError
from dnm.model.value import Value

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# What every program may see, what Slurm's programs read, and the way to the cluster.
_COMMON = (
    "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TMPDIR", "SLURM_CONF",
    "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)  # fmt: skip


REQUEST = "DNM_REQUEST"
"""The variable by which a converter learns the request that a call is for, and may tell in its
list what it has claimed for it."""

WAKE = "DNM_WAKE"
"""The variable by which it learns the file that each end writes, and that starts a run."""

LEAVE_OUT = "--exclude"
"""The option by which a converter that names it in its list is told what not to choose."""

BOOK, UNBOOK = "--book", "--unbook"
"""The options by which a converter that names the first in its list reserves nodes for an event,
and gives them up."""

CHARGE = "--account"
"""The option by which a converter that names it in its list is told whom a lend is charged to; - is
for nobody, but as planned."""

LEAVE_DRAINED = "--leave-drained"
"""The option by which a converter that names it in its list is told why a node is to stay drained
when it is back."""

VARIABLES = (REQUEST, "DNM_INSTANCE", "RES_NAME")
OPTIONS = (
    "--list", "--set", "--node-name", "--node-type", "--num-nodes", "--namespace", LEAVE_OUT,
    "--allow-preempt", BOOK, UNBOOK, "--from", "--until", CHARGE, LEAVE_DRAINED, "--output",
)  # fmt: skip
VALUE = re.compile(r"-|(?!-)[]A-Za-z0-9_.,:[-]+")
"""All that a converter is ever told: deploy/node-convert-by-ssh lets nothing else through."""


def _command(config: Config, *words: str, leave_out: str = "", account: str = "") -> list[str]:
    """The command line; raises ConverterError for what is no word of the contract."""
    words = (*words, LEAVE_OUT, leave_out) if leave_out else words
    words = (*words, CHARGE, account) if account else words
    for word in words:
        if word not in OPTIONS and not VALUE.fullmatch(word):
            raise ConverterError(f"{word!r} is no word that may reach a command line")
    return [str(config.node_convert_path), *words]


def list_program(config: Config) -> Path:
    """Who is asked for the list: the converter, or what is named for one that has none."""
    return config.batch_list_command or config.node_convert_path


def list_command(config: Config, node: str = "") -> list[str]:
    """`--list`, of all nodes or of one; raises ConverterError for an unusable name."""
    command = _command(config, "--list", *(["--node-name", _checked(node)] if node else []))
    return [str(list_program(config)), *command[1:]]


def resume_command(config: Config, node: str, namespace: str, account: str = "") -> list[str]:
    """`--set k8s` for one node, whose conversion was interrupted; raises ConverterError for an
    unusable name."""
    command = _command(
        config, "--set", "k8s", "--node-name", _checked(node), "--namespace", _checked(namespace),
        account=account,
    )  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def book_command(config: Config, booking: Booking) -> list[str]:
    """`--book`; raises ConverterError for an unusable name."""
    times = (f"{one.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for one in (booking.begins, booking.ends))
    begins, ends = times
    return _command(
        config, BOOK, booking.name, "--node-type", _checked(booking.node_type),
        "--num-nodes", str(booking.count), "--from", begins, "--until", ends,
        leave_out=booking.leave_out,
    )  # fmt: skip


def unbook_command(config: Config, name: str, leave_out: str = "") -> list[str]:
    """`--unbook`, but for the nodes of a host list; raises ConverterError for an unusable name."""
    return _command(config, UNBOOK, name, leave_out=leave_out)


def convert_command(
    config: Config,
    node_type: str,
    count: int,
    namespace: str,
    leave_out: str = "",
    account: str = "",
) -> list[str]:
    """`--set k8s` for `count` nodes of a type, none of the host list `leave_out`; raises
    ConverterError for an unusable name."""
    command = _command(
        config, "--set", "k8s", "--node-type", _checked(node_type), "--num-nodes", str(count),
        "--namespace", _checked(namespace), leave_out=leave_out, account=account,
    )  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def return_command(config: Config, node: str, sick: str = "") -> list[str]:
    """`--set batch` for one node, which stays drained where it is `sick`; raises ConverterError for
    an unusable name."""
    more = (LEAVE_DRAINED, sick) if sick else ()
    return _command(config, "--set", "batch", "--node-name", _checked(node), *more)


def _checked(name: str) -> str:
    """Returns a name of RFC 1123: lower case, digits, '-' and '.'; no option and no path."""
    if len(name) > 253 or not NODE_NAME.fullmatch(name):
        raise ConverterError(f"{name!r} is not a name that may reach a command line (RFC 1123)")
    return name


class Environment(Value):
    """What a converter is given by its environment, and which values of it must not be seen."""

    environment: Mapping[str, str]
    secrets: Secrets


def given_to_converter(config: Config, environ: Mapping[str, str]) -> Environment:
    """Returns what a program needs, the cluster and the reservation that dnm means, and what
    `pass_environment` names: nothing else of dnm's own environment, whose secrets are hidden by
    their names all the same."""
    common = (name for name in environ if name in _COMMON or name.startswith("LC_"))
    environment = {name: environ[name] for name in common}
    passed = {
        name: environ[name]
        for name in config.pass_environment
        if name in environ and name not in environment
    }
    environment |= passed
    environment["DNM_CONFIG"] = str(config.path)
    environment["DNM_INSTANCE"] = config.instance_id
    if config.kubeconfig_path is not None:
        environment["KUBECONFIG"] = str(config.kubeconfig_path)
    if config.slurm_reservation_name:
        environment["RES_NAME"] = config.slurm_reservation_name
    hidden = Secrets([*passed.values(), *secrets_by_name(environ)])
    return Environment(environment=environment, secrets=hidden)
