"""The loading of the ini and the JSON map into `Config`, or one ConfigError with all problems.

An unknown key is an error: if a cap were misspelt, nothing would limit lending. Paths in the ini
are relative to the folder of the file that `find_config_path` returns. At the end, dnm checks for
names that collide and caps that contradict each other."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dnm.config import values
from dnm.config.cluster_queues import find_cluster_queue
from dnm.config.events import parse_sections, read_events, with_events
from dnm.config.files import Sections, expand_path, read_ini_with_events, read_queue_map
from dnm.config.keys import (
    DEFAULT_NODE_CPU,
    DEFAULT_NODE_MEMORY,
    DEFAULT_NODE_TYPES,
    DEFAULT_QUEUE_MAP,
    NAMESPACE_KEYS,
    SETTINGS,
)
from dnm.config.node_types import read_node_type
from dnm.config.problems import list_problems, problem, shown
from dnm.config.sections import (
    check_section_names,
    fields_of,
    named_sections,
    parse_section,
    pick,
    resolve_paths,
    state_folder,
)
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import ConfigError
from dnm.model.node_type import NodeType, fill_namespace

DEFAULT_PATH = Path("/etc/dynamic-node/dynamic_node_config.ini")
SITE_CONVERTER = Path("/usr/site/rcac/sbin/node-convert")

_DEFAULTS = Config(path=DEFAULT_PATH, namespaces={}, node_types={})
_USUAL_QUEUE_SYSTEM = "yunikorn"  # a queue system is never guessed: see docs/none.md
_WITHOUT_YUNIKORN = "if the cluster has no YuniKorn, write queue_system = none in [settings]"
_TWO_SYSTEMS = "queue_system: yunikorn, kueue, resource_quota need a dnm (instance_id) each"
_FEWEST_RETURNS = 4  # nodes in one run, even if a run may lend fewer


def find_config_path(path: Path | None, environ: Mapping[str, str]) -> Path:
    """Returns the path of the configuration: the option, else $DNM_CONFIG, else the default,
    relative to the working directory. Raises ConfigError."""
    text = str(path) if path is not None else environ.get("DNM_CONFIG", "").strip()
    try:
        return expand_path(text or str(DEFAULT_PATH), Path.cwd(), environ)
    except ValueError as error:
        raise ConfigError(f"the path of the configuration file, {shown(text)}: {error}") from error


def load_config(
    path: Path | None, environ: Mapping[str, str], changes: Mapping[str, str] | None = None
) -> Config:
    """Returns the configuration from both files after all checks. `changes` replace keys of
    [settings]. Raises ConfigError with a line for each problem."""
    file = find_config_path(path, environ)
    problems: list[str] = []
    sections, lines, of_events = read_ini_with_events(file, problems)
    events = parse_sections(lines, of_events) if of_events else {}
    check_section_names(sections, problems)
    entries = {**sections.get("settings", {}), **(changes or {})}
    settings = parse_section("settings", entries, SETTINGS, problems)
    resolve_paths("settings", settings, SETTINGS, (file.parent, environ), problems)
    namespaces = _namespaces(sections, settings, problems)
    node_types = parse_node_types(sections, settings, namespaces, problems)
    fields = fields_of(settings, SETTINGS) | _by_default(settings, environ)
    if "lab" in sections:
        from dnm.config import lab  # only the sandbox and tests have it

        fields |= lab.read_lab(sections, lab.RUN_KEYS, problems)
    zone = fields.get("events_zone", _DEFAULTS.events_zone)
    config = Config(path=file, namespaces=namespaces, node_types=node_types, **fields)
    check_together(config, pick(settings, "namespace_queue_paths", DEFAULT_QUEUE_MAP), problems)
    if events:
        config = with_events(config, read_events(events, zone, ""))
    if problems:
        raise ConfigError(list_problems(str(file), problems))
    return config


def _by_default(settings: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of Config with a default that depends on several keys or on the host."""
    state_dir = state_folder(settings.get("state_dir") or _DEFAULTS.state_dir)
    lent = pick(settings, "max_conversions_per_run", _DEFAULTS.max_conversions_per_run)
    request = _DEFAULTS.default_request
    return {
        "state_dir": state_dir,
        "converted_nodes_path": state_dir / _DEFAULTS.converted_nodes_path.name,
        "node_convert_path": settings.get("node_convert_path") or find_converter(environ),
        "max_reversions_per_run": max(_FEWEST_RETURNS, lent),
        "default_request": {
            "cpu": pick(settings, "default_cpu_request_m", request["cpu"]),
            "memory": pick(settings, "default_mem_request", request["memory"]),
        },
    }


def find_converter(environ: Mapping[str, str]) -> Path:
    """Returns the path of the site's own converter if it exists, else that of dnm's own."""
    if os.path.exists(SITE_CONVERTER):
        return SITE_CONVERTER
    shipped = Path(sys.executable).parent / "node-convert"
    installed = shutil.which("node-convert", path=environ.get("PATH", os.defpath))
    return Path(installed) if installed and not shipped.exists() else shipped


def _namespaces(
    sections: Sections, settings: Mapping[str, Any], problems: list[str]
) -> dict[str, NamespacePolicy]:
    """Returns the monitored namespaces in the configured order."""
    monitored: tuple[str, ...] = settings.get("monitored_namespaces") or ()
    if "settings" in sections and "monitored_namespaces" not in settings:
        problems.append(
            "[settings] monitored_namespaces: is missing; name the namespaces that may "
            "receive nodes, e.g. dev, test"
        )
    named = named_sections(sections, "namespace")
    for name in named.keys() - set(monitored):
        hint = values.suggest(name, monitored) or "; name it in monitored_namespaces"
        problems.append(f"[{shown(named[name])}]: is not a monitored namespace{hint}")
    policies = {}
    queues, is_map_read = None, False
    usual = pick(settings, "queue_system", _USUAL_QUEUE_SYSTEM)
    for name in monitored:
        section = named.get(name, "")
        own = parse_section(section, sections.get(section, {}), NAMESPACE_KEYS, problems)
        if own.get("queue_system", settings.get("queue_system", "")) is None:
            continue  # misspelt
        fields = fields_of(own, NAMESPACE_KEYS)
        system = fields.setdefault("queue_system", usual)
        if system == "yunikorn" and not is_map_read:
            queues, is_map_read = _read_queues(settings, problems), True
        fields.setdefault("node_types", pick(settings, "node_type", DEFAULT_NODE_TYPES))
        if settings.get("reversion_idle_seconds") is not None:
            fields.setdefault("reversion_idle", settings["reversion_idle_seconds"])
        if system == "kueue":
            queue = find_cluster_queue(name, settings, problems)
        elif system != "yunikorn":
            queue = _queue_named_after(name, system, problems)
        else:
            queue = "" if queues is None else _queue_of(name, queues, settings, problems)
        policies[name] = NamespacePolicy(name=name, queue=queue, **fields)
    if len(policies) < len(monitored):  # what else is wrong depends on the queue system
        return policies
    systems = {policy.queue_system for policy in policies.values()}
    if len(systems - {"none"}) > 1:
        problems.append(_TWO_SYSTEMS)
    unused: tuple[str, ...] = () if "yunikorn" in systems else ("yunikorn_",)
    unused += () if systems & {"yunikorn", "kueue"} else ("namespace_queue_paths",)
    for key in (key for key in settings if systems and key.startswith(unused) and settings[key]):
        why = f"has no effect with queue_system = {', '.join(sorted(systems))}; remove the key"
        problems.append(problem("settings", key, str(settings[key]), why))
    return policies


def _read_queues(settings: Mapping[str, Any], problems: list[str]) -> dict[str, str] | None:
    """Returns the queue map, or None if it is unreadable."""
    file = pick(settings, "namespace_queue_paths", DEFAULT_QUEUE_MAP)
    try:
        return read_queue_map(file, problems)
    except ConfigError as error:
        is_asked = settings.get("queue_system") or settings.get("namespace_queue_paths")
        hint = "" if is_asked or file.exists() else "; " + _WITHOUT_YUNIKORN
        problems.append(f"{error}{hint}")
        return None


def _queue_named_after(namespace: str, system: str, problems: list[str]) -> str:
    """Returns the queue of a namespace outside YuniKorn and Kueue: the namespace itself."""
    if namespace == "root":  # which would be the top of YuniKorn's queues
        problems.append(
            "[settings] monitored_namespaces = root: dnm cannot lend nodes to a namespace of this "
            f"name with queue_system = {system}; give it another name"
        )
    return namespace


def _queue_of(
    namespace: str, queues: Mapping[str, str], settings: Mapping[str, Any], problems: list[str]
) -> str:
    file = pick(settings, "namespace_queue_paths", DEFAULT_QUEUE_MAP)
    if namespace not in queues:
        hint = values.suggest(namespace, queues) or f'; add "{namespace}": "root.…" there'
        problems.append(
            f"[settings] monitored_namespaces = {namespace}: has no queue in {file}{hint}"
        )
        return ""
    try:
        queue = values.queue_path(queues[namespace])
        if queue == "root":
            raise ValueError("is the entire cluster; name a queue below root")
    except ValueError as error:
        problems.append(f'{file}: "{namespace}": "{shown(queues[namespace])}": {error}')
        return ""
    return queue


def parse_node_types(
    sections: Sections,
    settings: Mapping[str, Any],
    namespaces: Mapping[str, NamespacePolicy],
    problems: list[str],
) -> dict[str, NodeType]:
    """Returns the types that have a section, and types that only the key `node_type` names, which
    have the default size. A type that only a namespace names must have a section, because its size
    is unknown otherwise."""
    cpu = pick(settings, "node_cpu_capacity", values.quantity("cpu")(DEFAULT_NODE_CPU))
    memory = pick(settings, "node_memory_capacity", values.quantity("memory")(DEFAULT_NODE_MEMORY))
    usual = {"cpu": cpu, "memory": memory}
    named = named_sections(sections, "node_type")
    types = {
        name: read_node_type(name, section, sections, usual, problems)
        for name, section in named.items()
    }
    for name in pick(settings, "node_type", DEFAULT_NODE_TYPES):
        is_used = any(name in policy.node_types for policy in namespaces.values())
        if name not in types and (is_used or not types):
            if named and settings.get("node_type") is None:  # the default type is not configured
                example = shown(", ".join(named))
                problems.append(f"[settings] node_type: is missing; name what to lend: {example}")
                break
            types[name] = NodeType(name=name, size=usual)
    for policy in namespaces.values():
        for name in policy.node_types:
            if name not in types:
                hint = values.suggest(name, types) or f"; write a section [node_type:{name}]"
                section, given = f"namespace:{policy.name}", ", ".join(policy.node_types)
                why = f"there is no node type {name}{hint}"
                problems.append(problem(section, "node_type", given, why))
    check_prefixes(types, problems)
    return types


def check_prefixes(types: Mapping[str, NodeType], problems: list[str]) -> None:
    """Adds a problem if a node's name (a prefix and digits) could belong to two types."""
    prefixes = {name: node_type.name_prefix or name for name, node_type in types.items()}
    for name, prefix in prefixes.items():
        for other, longer in prefixes.items():
            is_same = longer == prefix and name < other
            if is_same or re.fullmatch(re.escape(prefix) + "[0-9]+", longer):
                problems.append(
                    f"[node_type:{other}] name_prefix = {longer}: a node name such as {longer}001 "
                    f"would also be one of the type {name} (prefix {prefix}); change one prefix"
                )


def check_together(config: Config, queue_map: Path, problems: list[str]) -> None:
    """Adds a problem for each contradiction between keys. `queue_map`: path of the queue map."""
    _check_caps(config, problems)
    for name in config.type_floors.keys() - config.node_types.keys():
        why = f"there is no node type {name}; write partition {name} if that is one"
        problems.append(problem("settings", "batch_floor", f"{name}: …", why))
    if config.converted_nodes_path in (config.path, queue_map, config.kubeconfig_path):
        why = "is a file that dnm only reads; name another one"
        path = str(config.converted_nodes_path)
        problems.append(problem("settings", "state_dir", path, why))
    _check_label_lengths(config, problems)


def _check_caps(config: Config, problems: list[str]) -> None:
    for policy in config.namespaces.values():
        if isinstance(policy.max_nodes, int) and policy.min_nodes > policy.max_nodes:
            why = f"is above max_nodes = {policy.max_nodes}; lower it, or raise max_nodes"
            section = f"namespace:{policy.name}"
            problems.append(problem(section, "min_nodes", str(policy.min_nodes), why))
    least = sum(policy.min_nodes for policy in config.namespaces.values())
    if isinstance(most := config.max_converted_nodes, int) and least > most:
        why = f"is below the sum of all min_nodes, {least}; raise it, or lower one of those"
        problems.append(problem("settings", "max_converted_nodes", str(most), why))


def _check_label_lengths(config: Config, problems: list[str]) -> None:
    """Adds a problem for labels that a namespace makes longer than Kubernetes' 63 characters."""
    longest = max(config.namespaces, key=len, default="")
    for node_type in config.node_types.values():
        texts = [*node_type.labels.items(), *((t.key, t.value) for t in node_type.taints)]
        for text in (fill_namespace(part, longest) for pair in texts for part in pair):
            if len(text.rpartition("/")[2]) > 63:
                problems.append(
                    f"[node_type:{node_type.name}] labels or taints: {text} is longer "
                    "than 63 characters; shorten it"
                )


def is_console_log_asked(environ: Mapping[str, str]) -> bool:
    """Returns whether $DNM_LOG_CONSOLE requests the log on stderr, as --log-console does."""
    return environ.get("DNM_LOG_CONSOLE", "").strip().lower() in ("1", "true", "yes", "on")
