"""What a converter is asked and told: its command lines, the names that may stand in them, its
environment. The contract is that of the sites' existing `node-convert`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dnm.model.config import Config
from dnm.model.errors import ConverterError

NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Names of variables: API_KEY and RACADM_PASS, and not KEYBOARD or PASSENGERS.
_SECRET = re.compile(r".*(PASSWORD|PASSWD|SECRET|TOKEN)|(.*_)?(PASS|CREDENTIAL|KEY)S?(_|$)")


def list_command(config: Config, node: str = "") -> list[str]:
    """`--list`, of all nodes or of one; raises ConverterError for an unusable name."""
    chosen = ["--node-name", _checked(node)] if node else []
    return [str(config.node_convert_path), "--list", *chosen]


REQUEST = "DNM_REQUEST"
"""The variable by which a converter learns the request that a call is for, and may tell in its
list what it has claimed for it."""


def resume_command(config: Config, node: str, namespace: str) -> list[str]:
    """`--set k8s` for one node, whose conversion was interrupted; raises ConverterError for an
    unusable name."""
    command = [
        str(config.node_convert_path), "--set", "k8s", "--node-name", _checked(node),
        "--namespace", _checked(namespace),
    ]  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def convert_command(config: Config, node_type: str, count: int, namespace: str) -> list[str]:
    """`--set k8s` for `count` nodes of a type; raises ConverterError for an unusable name."""
    command = [
        str(config.node_convert_path), "--set", "k8s", "--node-type", _checked(node_type),
        "--num-nodes", str(count), "--namespace", _checked(namespace),
    ]  # fmt: skip
    return [*command, "--allow-preempt"] if config.allow_preempt else command


def return_command(config: Config, node: str) -> list[str]:
    """`--set batch` for one node; raises ConverterError for an unusable name."""
    return [str(config.node_convert_path), "--set", "batch", "--node-name", _checked(node)]


def _checked(name: str) -> str:
    """Returns a name of RFC 1123: lower case, digits, '-' and '.'; no option and no path."""
    if len(name) > 253 or not NODE_NAME.fullmatch(name):
        raise ConverterError(f"{name!r} is not a name that may reach a command line (RFC 1123)")
    return name


def converter_environment(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns what the site has set, with the cluster and the reservation that dnm means."""
    environment = dict(environ)
    environment["DNM_CONFIG"] = str(config.path)
    environment["DNM_INSTANCE"] = config.instance_id
    if config.kubeconfig_path is not None:
        environment["KUBECONFIG"] = str(config.kubeconfig_path)
    if config.slurm_reservation_name:
        environment["RES_NAME"] = config.slurm_reservation_name
    return environment


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Returns the values that must not stand in a log, by the names of their variables; of a value
    of several lines each of them, since what is printed is read by lines."""
    values = [value for name, value in environment.items() if _SECRET.match(name.upper())]
    lines = [line.strip() for value in values for line in value.splitlines()]
    return list(dict.fromkeys(filter(None, (*values, *lines))))
