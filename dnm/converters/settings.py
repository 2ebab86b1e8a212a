"""The settings of node-convert. The last wins: defaults, `[node_convert]`, environment, options.

The environment has a variable for each key, its name in capitals, as the predecessor's script has.
The program and dnm share `[settings]` and `[node_type:NAME]`. All problems are reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from dnm.config import names, values
from dnm.config.files import Sections, read_ini
from dnm.config.keys import KUBELET_KEYS, NODE_CONVERT_KEYS, NODE_TYPE_KEYS, SETTINGS, YEAR, Keys
from dnm.config.load import find_config_path
from dnm.config.node_types import kubelet_settings
from dnm.config.problems import list_problems, shown
from dnm.config.sections import (
    fields_of,
    named_sections,
    parse_section,
    resolve_paths,
    select_entries,
    state_folder,
)
from dnm.model.close_look import CLOSED
from dnm.model.config import PASSED_BY_DEFAULT
from dnm.model.errors import ConfigError
from dnm.model.node_type import NodeType, Taint
from dnm.model.value import Value


class Machines(Enum):
    """The kinds of nodes that converters move; the value is the converter's name."""

    OWN = "node-convert"
    PODS = "nodeset-convert"
    BRIDGED = "bridge-convert"


class Settings(Value, frozen=True):
    """The settings of a call, with all defaults. Names in capitals are environment variables."""

    config_path: Path | None = None  # None: there is no file, and none was named
    instance: str = "prod"
    kubeconfig_path: Path | None = None
    node_types: Mapping[str, NodeType] = {}
    slurmrestd_url: str = ""  # empty: Slurm's commands on this host
    slurmrestd_token_file: Path | None = None
    res_name: str = "k8s"
    min_idle_seconds: timedelta = timedelta(seconds=600)
    res_lookahead_seconds: timedelta = timedelta(seconds=86400)
    protect_largest_pending: bool = False
    mark_reason: str = "batch node selected for k8s conversion"
    node_search_domain: str = ""
    preempt_user: str = ""
    preempt_account: str = ""
    preempt_mode: str = "requeue"  # requeue | cancel
    preempt_grace_seconds: timedelta = timedelta(seconds=60)
    preempt_max_runtime_seconds: timedelta = timedelta(0)
    state_dir: Path = Path("/etc/dynamic-node/node-convert")
    hooks_dir: Path = Path("/etc/dynamic-node/hooks")
    nodeset_label: tuple[str, str] | None = None  # a NodeSet runs slurmd where it is
    pass_environment: tuple[str, ...] = PASSED_BY_DEFAULT
    parallel: int = 8
    poll_seconds: timedelta = timedelta(seconds=2)
    verify_seconds: timedelta = timedelta(seconds=6)
    stage_timeout_seconds: timedelta = timedelta(seconds=900)  # of each stage but these two
    drain_timeout_seconds: timedelta = timedelta(seconds=600)
    boot_timeout_seconds: timedelta = timedelta(seconds=1800)
    allow_preempt: bool = False  # from here on: options of one call
    force: bool = False
    leave_drained: str = ""  # why a returned node is faulty
    account: str = ""  # the Slurm account to charge; empty: none
    request: str = ""  # dnm's request that the call is for
    wake: Path | None = None  # written when a node's conversion has ended
    machines: Machines = Machines.OWN  # the kind that the program moves

    def labels(self, node_type: str, namespace: str) -> dict[str, str]:
        """Returns the labels of a node lent to a namespace NS: `NS=true` and its type's labels."""
        labels = {namespace: "true"} if namespace else {}
        declared = self.node_types.get(node_type)
        return {**labels, **declared.labels_for(namespace)} if declared else labels

    def taints(self, node_type: str, namespace: str) -> tuple[Taint, ...]:
        """Returns the type's taints, and one that keeps pods off until readiness checks pass.
        Without a namespace, taints with the namespace as key are left out."""
        declared = self.node_types.get(node_type)
        opens = (CLOSED,) if declared and declared.readiness_checks else ()
        own = declared.taints_for(namespace) if declared else ()
        return (*(taint for taint in own if taint.key), *opens)

    def is_of_type(self, node: str, node_type: str) -> bool:
        """Returns whether the node's name is the type's prefix followed only by digits."""
        declared = self.node_types.get(node_type)
        prefix = (declared and declared.name_prefix) or node_type
        return node.startswith(prefix) and node[len(prefix) :].isdecimal()

    def type_of(self, node: str) -> str:
        """Returns the node's type by the configured prefixes, or an empty text if none fits.
        Without configured types, returns the letters before the node's number."""
        if not self.node_types:
            return node.rstrip("0123456789")
        return next((name for name in self.node_types if self.is_of_type(node, name)), "")


def _stage_timeouts(text: str) -> dict[str, timedelta]:
    """Returns time-outs of stages, longer than the defaults if a conversion may last longer."""
    longest, usual = SETTINGS["convert_timeout_seconds"][1](text), Settings()
    return {
        "stage_timeout_seconds": max(longest / 2, usual.stage_timeout_seconds),
        "drain_timeout_seconds": max(longest / 3, usual.drain_timeout_seconds),
        "boot_timeout_seconds": max(longest, usual.boot_timeout_seconds),
    }


# The keys of [settings] that this program reads too.
_SHARED = {
    "instance_id": ("instance", SETTINGS["instance_id"][1]),
    "allow_preempt": ("*", names.preempted_jobs),
    "convert_timeout_seconds": ("*", _stage_timeouts),
    **{key: SETTINGS[key] for key in ("state_dir", "kubeconfig_path", "pass_environment")},
}
_OF_TYPE = ("name_prefix", "labels", "taints", "readiness_checks")
_TYPE_KEYS = {key: NODE_TYPE_KEYS[key] for key in _OF_TYPE}
# The variables of the predecessor's node-convert that are no keys.
PREDECESSOR_VARIABLES: Keys = {
    "RES_NAME": ("res_name", names.slurm_name),
    "PROTECT_LARGEST_PENDING": ("protect_largest_pending", values.boolean),
    "NODE_SEARCH_DOMAIN": ("node_search_domain", names.search_domain),
    "PREEMPT_MODE": ("preempt_mode", names.preempt_mode),
    "PREEMPT_MAX_RUNTIME_SECONDS": ("preempt_max_runtime_seconds", values.seconds(0, YEAR)),
    "MARK_REASON": ("mark_reason", names.slurm_reason),
    "PREEMPT_USER": ("preempt_user", names.account_name),
    "PREEMPT_ACCOUNT": ("preempt_account", names.account_name),
    "PREEMPT_GRACE_SECONDS": ("preempt_grace_seconds", values.seconds(0, 86_400)),
}
# These names are too common to be read from the environment.
_NOT_IN_ENVIRONMENT = ("hooks_dir", "slurmrestd_token_file")


def load_settings(
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    config: Path | None = None,
    machines: Machines = Machines.OWN,
) -> Settings:
    """Returns the settings; `options` are those of the command line. Raises ConfigError (exit 2)
    that lists every problem. A file that is named explicitly must exist."""
    problems: list[str] = []
    file = find_config_path(config, environ)
    is_named = config is not None or bool(environ.get("DNM_CONFIG", "").strip())
    sections = read_ini(file, problems) if is_named or file.exists() else {}
    at = (file.parent, environ)
    fields = {"machines": machines, **_shared(sections, at, problems, machines.value)}
    written = sections.get("node_convert", {})
    own = parse_section("node_convert", written, NODE_CONVERT_KEYS, problems)
    resolve_paths("node_convert", own, NODE_CONVERT_KEYS, at, problems)
    fields |= fields_of(own, NODE_CONVERT_KEYS)
    if "lab" in sections:
        from dnm.config import lab

        fields |= lab.read_lab(sections, lab.CONVERTER_KEYS, problems)
    fields |= _from_environment(environ, problems)
    fields |= {key: value for key, value in options.items() if value is not None}
    url = fields.get("slurmrestd_url") or ""
    if url.startswith("http") and not fields.get("slurmrestd_token_file"):
        problems.append(
            f"[node_convert] slurmrestd_url = {url}: slurmrestd_token_file is missing; write a "
            "file with what 'scontrol token' prints (a unix socket needs none)"
        )
    if problems:
        raise ConfigError(list_problems(f"{machines.value}'s settings ({file})", problems))
    return Settings(**fields, config_path=file if sections else None)


def _shared(
    sections: Sections, at: tuple[Path, Mapping[str, str]], problems: list[str], program: str
) -> dict[str, Any]:
    """Returns the keys of `[settings]` and `[node_type:...]` that the converters use too."""
    settings = sections.get("settings", {})
    entries = select_entries(settings, _SHARED)
    if settings.get("pass_environment") == "":  # empty differs from the default
        entries["pass_environment"] = ""
    parsed = parse_section("settings", entries, _SHARED, problems)
    resolve_paths("settings", parsed, _SHARED, at, problems)
    values = fields_of(parsed, _SHARED)
    if "state_dir" in values:
        values["state_dir"] = state_folder(values["state_dir"]) / program
    types: dict[str, NodeType] = {}
    for name, section in named_sections(sections, "node_type").items():
        entries = select_entries(sections[section], keys := {**_TYPE_KEYS, **KUBELET_KEYS})
        parsed = parse_section(section, entries, keys, problems)
        fields = {"kubelet": kubelet_settings(parsed), **fields_of(parsed, _TYPE_KEYS)}
        types[name] = NodeType(name=name, size={}, **fields)
    return {**values, "node_types": types}


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Returns the settings in environment variables; empty means unset, as in the predecessor."""
    fields: dict[str, Any] = {}
    variables = {
        **{key.upper(): entry for key, entry in NODE_CONVERT_KEYS.items()}, **PREDECESSOR_VARIABLES,
        "DNM_INSTANCE": _SHARED["instance_id"],
        "PREEMPT_ENABLED": ("allow_preempt", values.boolean),
        "DNM_REQUEST": ("request", names.request_id),
        "DNM_WAKE": ("wake", Path),
    }  # fmt: skip
    for name, (field, parse) in variables.items():
        text = environ.get(name, "")
        if not text or field in _NOT_IN_ENVIRONMENT:
            continue
        try:
            fields |= parse(text) if field == "*" else {field: parse(text)}
        except ValueError as error:
            problems.append(f"{name}={shown(text)} in the environment: {error}")
    if environ.get("KUBECONFIG"):
        fields["kubeconfig_path"] = None  # the client reads it, and it may be a list
    return fields
