"""The converter's contract: its command lines, the arguments that may appear in them, and its
environment. It is the contract of the sites' existing `node-convert`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC

from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.calendar import EventReservation
from dnm.model.config import Config
from dnm.model.errors import ConverterError
from dnm.model.value import Value

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Variables for any program, for Slurm's programs, and for the access to the cluster.
_COMMON = (
    "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TMPDIR", "SLURM_CONF",
    "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)  # fmt: skip


REQUEST = "DNM_REQUEST"
"""The variable that gives a converter the request that a call belongs to. Its list may report it
with a claim."""

WAKE = "DNM_WAKE"
"""The variable that names the file which each keeper writes at the end, to start a run."""

LEAVE_OUT = "--exclude"
"""The option that names nodes not to choose. dnm passes it if the converter's list names it."""

RESERVE, UNRESERVE = "--reserve", "--unreserve"
"""The options that reserve nodes for an event, and that delete these reservations. dnm passes them
if the converter's list names the first."""

CHARGE = "--account"
"""The option that names the Slurm account to charge; `-` means none, but planned time. dnm passes
it if the converter's list names it."""

LEAVE_DRAINED = "--leave-drained"
"""The option that gives the reason why a returned node is to stay drained. dnm passes it if the
converter's list names it."""

VARIABLES = (REQUEST, "DNM_INSTANCE", "RES_NAME")
OPTIONS = (
    "--list", "--set", "--node-name", "--node-type", "--num-nodes", "--namespace", LEAVE_OUT,
    "--allow-preempt", RESERVE, UNRESERVE, "--from", "--until", CHARGE, LEAVE_DRAINED, "--output",
)  # fmt: skip
VALUE = re.compile(r"-|(?!-)[]A-Za-z0-9_.,:[-]+")
"""Every argument that dnm passes matches this; deploy/node-convert-by-ssh refuses any other."""


def _command(config: Config, *arguments: str, leave_out: str = "", account: str = "") -> list[str]:
    """Returns a converter's command line. Raises ConverterError for an argument that is invalid."""
    arguments = (*arguments, LEAVE_OUT, leave_out) if leave_out else arguments
    arguments = (*arguments, CHARGE, account) if account else arguments
    for argument in arguments:
        if argument not in OPTIONS and not VALUE.fullmatch(argument):
            raise ConverterError(f"{argument!r} is not an argument of the converter's contract")
    return [str(config.node_convert_path), *arguments]


def list_command(config: Config, node: str = "") -> list[str]:
    """Returns the command that lists one node or all. Raises ConverterError for an invalid name."""
    return _command(config, "--list", *(["--node-name", _checked(node)] if node else []))


def resume_command(config: Config, node: str, namespace: str, account: str = "") -> list[str]:
    """Returns the `--set k8s` command that continues an interrupted conversion of one node. Raises
    ConverterError for an invalid name."""
    command = _command(
        config, "--set", "k8s", "--node-name", _checked(node), "--namespace", _checked(namespace),
        account=account,
    )  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def reserve_command(config: Config, reservation: EventReservation) -> list[str]:
    """Returns the `--reserve` command for an event. Raises ConverterError for an invalid name."""
    span = (reservation.begins, reservation.ends)
    begins, ends = (f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for moment in span)
    return _command(
        config, RESERVE, reservation.name, "--node-type", _checked(reservation.node_type),
        "--num-nodes", str(reservation.count), "--from", begins, "--until", ends,
        leave_out=reservation.leave_out,
    )  # fmt: skip


def unreserve_command(config: Config, name: str, leave_out: str = "") -> list[str]:
    """Returns the `--unreserve` command; `leave_out` nodes stay reserved. Raises ConverterError."""
    return _command(config, UNRESERVE, name, leave_out=leave_out)


def convert_command(
    config: Config,
    node_type: str,
    count: int,
    namespace: str,
    leave_out: str = "",
    account: str = "",
) -> list[str]:
    """Returns the `--set k8s` command for `count` nodes of a type. `leave_out` is a host list of
    nodes that must not be chosen. Raises ConverterError for an invalid name."""
    command = _command(
        config, "--set", "k8s", "--node-type", _checked(node_type), "--num-nodes", str(count),
        "--namespace", _checked(namespace), leave_out=leave_out, account=account,
    )  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def return_command(config: Config, node: str, fault: str = "") -> list[str]:
    """Returns the `--set batch` command for one node. `fault` is the reason why a faulty node stays
    drained. Raises ConverterError for an invalid name."""
    more = (LEAVE_DRAINED, fault) if fault else ()
    return _command(config, "--set", "batch", "--node-name", _checked(node), *more)


def _checked(name: str) -> str:
    """Returns a name as an argument. Raises ConverterError if RFC 1123 forbids it, e.g. a path."""
    if len(name) > 253 or not NODE_NAME.fullmatch(name):
        raise ConverterError(f"{name!r} is not a name that may reach a command line (RFC 1123)")
    return name


class Environment(Value):
    """The environment variables of a converter, and those values that dnm hides in its output."""

    environment: Mapping[str, str]
    secrets: Secrets


def converter_env(config: Config, environ: Mapping[str, str]) -> Environment:
    """Returns a converter's whole environment: common variables, the cluster, the instance, and the
    variables in `pass_environment`. In output, dnm hides the values of `pass_environment` and of
    all its own variables that are named like a secret."""
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
    hidden = Secrets([*passed.values(), *secrets_by_name(environ)])
    return Environment(environment=environment, secrets=hidden)
