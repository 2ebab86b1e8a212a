"""What node-convert is told: defaults < `[node_convert]` of dnm's ini < environment < options.

The environment names are those of the site's existing script; here every key has one, its own name
in capitals. `[settings]` and `[node_type:NAME]` of the same file give what both programs need to
know alike. All problems are reported at once, each with its key, its value and what would be right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from dnm.config import values
from dnm.config.files import Sections, expand_path, read_ini, shown
from dnm.config.load import DEFAULT_PATH
from dnm.convert.select import Rules
from dnm.model.config import NodeType, Taint
from dnm.model.errors import ConfigError
from dnm.model.hostlist import expand_hostlist
from dnm.model.value import Value

_YEAR = 31_536_000  # seconds


class Settings(Value, frozen=True):
    """Every default stands here. Names in capitals are the names in the environment."""

    config_path: Path | None = None  # None: there is no file, and none was named
    instance: str = "prod"
    kubeconfig_path: Path | None = None
    node_types: Mapping[str, NodeType] = {}
    res_name: str = "k8s"
    min_idle_seconds: timedelta = timedelta(seconds=600)
    res_lookahead_seconds: timedelta = timedelta(seconds=86400)
    protect_largest_pending: bool = False
    mark_reason: str = "batch node selected for k8s conversion"
    order_file: Path | None = None
    node_search_domain: str = ""
    preempt_enabled: bool = False
    preempt_user: str = ""
    preempt_account: str = ""
    preempt_mode: str = "requeue"  # requeue | cancel
    preempt_grace_seconds: timedelta = timedelta(seconds=60)
    preempt_max_runtime_seconds: timedelta = timedelta(0)
    preempt_drain_timeout: timedelta = timedelta(seconds=300)
    state_dir: Path = Path("/etc/dynamic-node/node-convert")
    hooks_dir: Path = Path("/etc/dynamic-node/hooks")
    pass_environment: tuple[str, ...] = ("PASSWORD",)
    parallel: int = 8
    roll_back: bool = True
    poll_seconds: timedelta = timedelta(seconds=2)
    command_timeout_seconds: timedelta = timedelta(seconds=30)
    slurm_patience_seconds: timedelta = timedelta(seconds=120)
    verify_seconds: timedelta = timedelta(seconds=6)
    reach_timeout_seconds: timedelta = timedelta(seconds=30)
    prepare_timeout_seconds: timedelta = timedelta(seconds=900)
    join_timeout_seconds: timedelta = timedelta(seconds=900)
    ready_timeout_seconds: timedelta = timedelta(seconds=900)
    drain_timeout_seconds: timedelta = timedelta(seconds=600)
    reset_timeout_seconds: timedelta = timedelta(seconds=600)
    boot_timeout_seconds: timedelta = timedelta(seconds=1800)
    health_timeout_seconds: timedelta = timedelta(seconds=600)
    return_timeout_seconds: timedelta = timedelta(seconds=120)
    allow_preempt: bool = False  # from here on: options of one call
    force: bool = False

    def labels(self, node_type: str, namespace: str) -> dict[str, str]:
        """What a node lent to the namespace carries: `<NS>=true` and its type's labels."""
        found = {namespace: "true"} if namespace else {}
        if node_type in self.node_types:
            for key, text in self.node_types[node_type].labels.items():
                found[key.replace(values.NAMESPACE, namespace)] = text.replace(
                    values.NAMESPACE, namespace
                )
        return found

    def taints(self, node_type: str, namespace: str) -> tuple[Taint, ...]:
        found = self.node_types[node_type].taints if node_type in self.node_types else ()
        return tuple(
            Taint(
                key=taint.key.replace(values.NAMESPACE, namespace),
                value=taint.value.replace(values.NAMESPACE, namespace),
                effect=taint.effect,
            )
            for taint in found
        )

    def prefix(self, node_type: str) -> str:
        """Of the names of the type's nodes; digits follow."""
        if node_type in self.node_types:
            return self.node_types[node_type].name_prefix or node_type
        return node_type

    def type_of(self, node: str) -> str:
        """By the prefixes; where the configuration has no types, the letters before the number."""
        for name in self.node_types:
            prefix = self.prefix(name)
            if node.startswith(prefix) and node[len(prefix) :].isdecimal():
                return name
        return "" if self.node_types else node.rstrip("0123456789")

    def rules(self) -> Rules:
        """For the judgement of nodes. Raises ConfigError where the site's order can't be read."""
        return Rules(
            reservation=self.res_name,
            min_idle=self.min_idle_seconds,
            lookahead=self.res_lookahead_seconds,
            protect_largest_pending=self.protect_largest_pending,
            preempt_user=self.preempt_user,
            preempt_account=self.preempt_account,
            preempt_max_runtime=self.preempt_max_runtime_seconds,
            order=_read_order(self.order_file) if self.order_file else {},
        )


def _line(text: str) -> str:
    """Of Slurm's Reason, which is one line and is cut off where a bracket opens."""
    if not text.isprintable() or "[" in text or len(text) > 200:
        raise ValueError("is no reason for Slurm; write one line of up to 200 characters without [")
    return text


def _mode(text: str) -> str:
    if text not in ("requeue", "cancel"):
        raise ValueError("is neither requeue nor cancel; write requeue to let the jobs run again")
    return text


def _domain(text: str) -> str:
    return values.object_name(text.strip(".")) if text else ""


def _account(text: str) -> str:
    if text and (len(text) > 64 or not text.replace("-", "").replace("_", "").isalnum()):
        raise ValueError("is not the name of a user or account")
    return text


def _path(text: str) -> str:
    if "\n" in text:
        raise ValueError("runs over several lines; write one path")
    return text


_KEYS: Mapping[str, Callable[[str], Any]] = {
    "res_name": values.slurm_name,
    "min_idle_seconds": values.seconds(0, _YEAR),
    "res_lookahead_seconds": values.seconds(0, _YEAR),
    "protect_largest_pending": values.boolean,
    "mark_reason": _line,
    "order_file": _path,
    "node_search_domain": _domain,
    "preempt_enabled": values.boolean,
    "preempt_user": _account,
    "preempt_account": _account,
    "preempt_mode": _mode,
    "preempt_grace_seconds": values.seconds(0, 86_400),
    "preempt_max_runtime_seconds": values.seconds(0, _YEAR),
    "preempt_drain_timeout": values.seconds(1, 86_400),
    "state_dir": _path,
    "hooks_dir": _path,
    "pass_environment": values.names,
    "parallel": values.whole_number(1, 256),
    "roll_back": values.boolean,
    "poll_seconds": values.seconds(0.1, 60),
    "command_timeout_seconds": values.seconds(1, 600),
    "slurm_patience_seconds": values.seconds(1, 3_600),
    "verify_seconds": values.seconds(0, 600),
    "reach_timeout_seconds": values.seconds(1, 86_400),
    "prepare_timeout_seconds": values.seconds(1, 86_400),
    "join_timeout_seconds": values.seconds(1, 86_400),
    "ready_timeout_seconds": values.seconds(1, 86_400),
    "drain_timeout_seconds": values.seconds(1, 86_400),
    "reset_timeout_seconds": values.seconds(1, 86_400),
    "boot_timeout_seconds": values.seconds(1, 86_400),
    "health_timeout_seconds": values.seconds(1, 86_400),
    "return_timeout_seconds": values.seconds(1, 86_400),
}
_OWN_PATHS = ("order_file", "state_dir", "hooks_dir")
# Too common a name to be taken from the environment for it.
_NOT_IN_ENVIRONMENT = frozenset(("state_dir", "hooks_dir", "parallel", "roll_back", "order_file"))


def load_settings(
    options: Mapping[str, Any], environ: Mapping[str, str], config: Path | None = None
) -> Settings:
    """`options` are those given on the command line, already values.

    Raises ConfigError (exit 2) that lists every problem; a file that was named must be there.
    """
    problems: list[str] = []
    named = config or (Path(environ["DNM_CONFIG"]) if environ.get("DNM_CONFIG") else None)
    file = named or DEFAULT_PATH
    sections: Sections = {}
    if named is not None or file.exists():
        file = Path(os.path.abspath(file))
        sections = read_ini(file, problems)
    found = _shared(sections, file.parent, environ, problems)
    found |= _parsed(sections.get("node_convert", {}), file.parent, environ, problems)
    found |= _from_environment(environ, problems)
    found |= {key: value for key, value in options.items() if value is not None}
    if problems:
        shown = "\n  ".join(dict.fromkeys(problems))
        raise ConfigError(f"node-convert's settings ({file}) are wrong:\n  {shown}")
    settings = Settings(**found, config_path=file if sections else None)
    if settings.preempt_enabled and not settings.allow_preempt:
        settings = msgspec.structs.replace(settings, allow_preempt=True)
    return settings


def _shared(
    sections: Sections, base: Path, environ: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    """What dnm's own sections say about both programs; dnm judges the rest of them."""
    settings = {key.lower(): text for key, text in sections.get("settings", {}).items()}
    found: dict[str, Any] = {}
    for key, field, parse in (
        ("instance_id", "instance", values.label_value),
        ("slurm_reservation_name", "res_name", values.slurm_name),
        ("state_dir", "state_dir", _path),
        ("kubeconfig_path", "kubeconfig_path", _path),
    ):
        if not settings.get(key):
            continue
        try:
            found[field] = parse(settings[key])
            if parse is _path:
                found[field] = expand_path(settings[key], base, environ)
        except ValueError as error:
            problems.append(f"[settings] {key} = {shown(settings[key])}: {error}")
    if "state_dir" in found:
        found["state_dir"] /= "node-convert"
    found["node_types"] = _node_types(sections, problems)
    return found


def _node_types(sections: Sections, problems: list[str]) -> dict[str, NodeType]:
    """Prefix, labels and taints of each type; its size is dnm's business."""
    types: dict[str, NodeType] = {}
    parsers = {
        "name_prefix": values.node_prefix,
        "labels": values.labels,
        "taints": values.taints,
    }
    for section, keys in sections.items():
        kind, _, name = section.partition(":")
        if kind != "node_type" or not name.strip():
            continue
        fields: dict[str, Any] = {}
        for written, text in keys.items():
            if text and written.lower() in parsers:
                try:
                    fields[written.lower()] = parsers[written.lower()](text)
                except ValueError as error:
                    problems.append(f"[{section}] {written} = {shown(text)}: {error}")
        types[name.strip()] = NodeType(name=name.strip(), size={}, **fields)
    return types


def _parsed(
    section: Mapping[str, str], base: Path, environ: Mapping[str, str], problems: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for written, text in section.items():
        key = written.lower()
        line = f"[node_convert] {shown(written)} = {shown(text)}"
        if key not in _KEYS:
            problems.append(f"{line}: unknown key{values.suggest(key, _KEYS)}")
            continue
        try:
            found[key] = _KEYS[key](text)
            if key in _OWN_PATHS:
                found[key] = expand_path(text, base, environ) if text else None
        except ValueError as error:
            problems.append(f"{line}: {error}")
    return {key: value for key, value in found.items() if value not in (None, "")}


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """A name that is exported but empty counts as not given, as it always has."""
    found: dict[str, Any] = {}
    names = {key.upper(): (key, parse) for key, parse in _KEYS.items()}
    names["DNM_INSTANCE"] = ("instance", values.label_value)
    for name, (key, parse) in names.items():
        text = environ.get(name, "")
        if not text or key in _NOT_IN_ENVIRONMENT:
            continue
        try:
            found[key] = parse(text)
        except ValueError as error:
            problems.append(f"{name}={shown(text)} in the environment: {error}")
    if environ.get("KUBECONFIG"):
        found["kubeconfig_path"] = None  # the client reads it, it may be a list
    return found


def _read_order(path: Path) -> dict[str, int]:
    """Node -> number of its line; a line is a host list, e.g. a rack or a switch."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"order_file {path} can't be read ({error}): name a file with a host list on each line"
        ) from error
    order: dict[str, int] = {}
    for number, line in enumerate(lines):
        text = line.partition("#")[0].strip()
        for name in expand_hostlist(text):
            order.setdefault(name, number)
    return order
