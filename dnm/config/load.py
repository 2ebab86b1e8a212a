"""The ini and the JSON map -> `Config`, or one ConfigError with every problem in it.

A key that nobody knows is an error: a misspelt cap that is silently no cap is how a cluster runs
away. `find_config_path` says which file; what is relative in it is relative to that file.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dnm.config import values
from dnm.config.files import Sections, expand_path, read_ini, read_queue_map, shown
from dnm.config.keys import (
    DEFAULT_NODE_CPU,
    DEFAULT_NODE_MEMORY,
    DEFAULT_NODE_TYPES,
    DEFAULT_QUEUE_MAP,
    MAY_BE_EMPTY,
    NAMED_SECTIONS,
    NAMESPACE_KEYS,
    NODE_TYPE_KEYS,
    PLAIN_SECTIONS,
    RESOURCE,
    SETTINGS,
    Keys,
    path_text,
)
from dnm.model.config import Config, NamespacePolicy, NodeType
from dnm.model.errors import ConfigError
from dnm.model.queue_path import may_edit

DEFAULT_PATH = Path("/etc/dynamic-node/dynamic_node_config.ini")
SITE_CONVERTER = Path("/usr/site/rcac/sbin/node-convert")

_DEFAULTS = Config(path=DEFAULT_PATH, namespaces={}, node_types={})
_MOST_SHOWN = 50  # problems in one answer


def find_config_path(path: Path | None, environ: Mapping[str, str]) -> Path:
    """The option, else $DNM_CONFIG, else the default; relative to the working directory."""
    text = str(path) if path is not None else environ.get("DNM_CONFIG", "").strip()
    try:
        return expand_path(text or str(DEFAULT_PATH), Path.cwd(), environ)
    except ValueError as error:
        raise ConfigError(f"the path of the configuration file, {shown(text)}: {error}") from error


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Reads both files and judges every key. Raises ConfigError, a line for each problem."""
    file = find_config_path(path, environ)
    problems: list[str] = []
    sections = read_ini(file, problems)
    _check_section_names(sections, problems)
    settings = _parse_section("settings", sections, SETTINGS, problems)
    _resolve_paths(settings, file, environ, problems)
    namespaces = _namespaces(sections, settings, problems)
    node_types = _node_types(sections, settings, namespaces, problems)
    fields = {
        field: settings[key]
        for key, (field, _) in SETTINGS.items()
        if field and settings.get(key) is not None
    }
    fields["log_console"] = fields.get("log_console", False) or _is_set(environ, "DNM_LOG_CONSOLE")
    fields["default_request"] = _default_request(settings)
    config = Config(path=file, namespaces=namespaces, node_types=node_types, **fields)
    _check_together(config, settings, problems)
    if problems:
        raise ConfigError(_list_problems(file, problems))
    return config


def _list_problems(file: Path, problems: list[str]) -> str:
    found = list(dict.fromkeys(problems))
    count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
    more = [f"and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return "\n  ".join([f"{file}: {count}", *found[:_MOST_SHOWN], *more])


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")


def _problem(section: str, key: str, text: str, why: object) -> str:
    return f"[{shown(section)}] {shown(key)} = {shown(text)}: {why}"


def _check_section_names(sections: Sections, problems: list[str]) -> None:
    if "settings" not in sections:
        problems.append("[settings]: the section is missing; write it with monitored_namespaces")
    for name in sections:
        kind, colon, rest = name.partition(":")
        if name in PLAIN_SECTIONS or (kind in NAMED_SECTIONS and colon and rest.strip()):
            continue
        if kind in NAMED_SECTIONS:
            hint = f"; write [{kind}:NAME]"
        else:
            known = NAMED_SECTIONS if colon else PLAIN_SECTIONS[:2]
            close = values.suggest(kind, known)  # , did you mean 'node_type'?
            wanted = f"{colon}{shown(rest)}]?"
            hint = close.replace("'?", wanted).replace("'", "[") or (
                "; there are [settings], [namespace:NAME], [node_type:NAME] and [node_convert]"
            )
        problems.append(f"[{shown(name)}]: unknown section{hint}")


def _named_sections(sections: Sections, kind: str) -> dict[str, str]:
    """NAME -> the section `kind:NAME` as it is written."""
    named = {}
    for section in sections:
        found, colon, name = section.partition(":")
        if found == kind and colon and name.strip():
            named[name.strip()] = section
    return named


def _parse_section(
    section: str, sections: Sections, keys: Keys, problems: list[str]
) -> dict[str, Any]:
    """Key -> value for the keys that are there, known and right. Keys are known in any case."""
    parsed: dict[str, Any] = {}
    for written, text in sections.get(section, {}).items():
        key = written.lower()
        if key not in keys:
            problems.append(
                _problem(section, written, text, f"unknown key{values.suggest(key, keys)}")
            )
            continue
        if key in parsed:
            problems.append(_problem(section, written, text, "is there twice; keep one"))
        parsed[key] = None
        if not text and key in MAY_BE_EMPTY:
            continue
        try:
            if not text:
                raise ValueError("is empty; write a value, or leave the key out")
            parsed[key] = keys[key][1](text)
        except ValueError as error:
            problems.append(_problem(section, written, text, f"{error}{_comment_hint(text)}"))
    return parsed


def _comment_hint(text: str) -> str:
    """The standard library's ini knows whole-line comments only, which surprises people."""
    is_commented = re.search(r"\s[#;]", text)
    return " (a comment needs a line of its own)" if is_commented else ""


def _resolve_paths(
    settings: dict[str, Any], file: Path, environ: Mapping[str, str], problems: list[str]
) -> None:
    for key, (_, parser) in SETTINGS.items():
        if parser is path_text and settings.get(key) is not None:
            try:
                settings[key] = expand_path(settings[key], file.parent, environ)
            except ValueError as error:
                problems.append(_problem("settings", key, settings[key], error))
                settings[key] = None
    state_dir = settings.get("state_dir") or _DEFAULTS.state_dir
    settings["converted_nodes_path"] = (
        settings.get("converted_nodes_path") or state_dir / _DEFAULTS.converted_nodes_path.name
    )
    settings["node_convert_path"] = settings.get("node_convert_path") or find_converter(environ)


def find_converter(environ: Mapping[str, str]) -> Path:
    """The site's own converter where there is one, else the one that came with dnm."""
    if SITE_CONVERTER.exists():
        return SITE_CONVERTER
    shipped = Path(sys.executable).parent / "node-convert"
    found = shutil.which("node-convert", path=environ.get("PATH", os.defpath))
    return Path(found) if found and not shipped.exists() else shipped


def _default_request(settings: Mapping[str, Any]) -> dict[str, int]:
    request = dict(_DEFAULTS.default_request)
    request["vcore"] = _given(settings, "default_cpu_request_m", request["vcore"])
    request["memory"] = _given(settings, "default_mem_request", request["memory"])
    return request


def _queue_map_path(settings: Mapping[str, Any]) -> Path:
    path: Path = _given(settings, "namespace_queue_paths", DEFAULT_QUEUE_MAP)
    return path


def _given(settings: Mapping[str, Any], key: str, default: Any) -> Any:
    value = settings.get(key)
    return default if value is None else value


def _namespaces(
    sections: Sections, settings: Mapping[str, Any], problems: list[str]
) -> dict[str, NamespacePolicy]:
    """The monitored namespaces, in the order in which they are named."""
    monitored: tuple[str, ...] = settings.get("monitored_namespaces") or ()
    if "settings" in sections and "monitored_namespaces" not in settings:
        problems.append(
            "[settings] monitored_namespaces: is missing; name the namespaces that may "
            "be given nodes, e.g. dev, test"
        )
    queues = _read_queues(settings, problems) if monitored else None
    named = _named_sections(sections, "namespace")
    for name in named.keys() - set(monitored):
        hint = values.suggest(name, monitored) or "; name it in monitored_namespaces"
        problems.append(f"[{shown(named[name])}]: is not a monitored namespace{hint}")
    policies = {}
    for name in monitored:
        fields = _fields(named.get(name, ""), sections, NAMESPACE_KEYS, problems)
        fields.setdefault("node_types", _given(settings, "node_type", DEFAULT_NODE_TYPES))
        if settings.get("reversion_idle_seconds") is not None:
            fields.setdefault("reversion_idle", settings["reversion_idle_seconds"])
        queue = "" if queues is None else _queue_of(name, queues, settings, problems)
        policies[name] = NamespacePolicy(name=name, queue=queue, **fields)
    return policies


def _fields(section: str, sections: Sections, keys: Keys, problems: list[str]) -> dict[str, Any]:
    parsed = _parse_section(section, sections, keys, problems)
    return {
        field: parsed[key]
        for key, (field, _) in keys.items()
        if field and parsed.get(key) is not None
    }


def _read_queues(settings: Mapping[str, Any], problems: list[str]) -> dict[str, str] | None:
    """None where nothing can be said about any namespace."""
    try:
        return read_queue_map(_queue_map_path(settings), problems)
    except ConfigError as error:
        problems.append(str(error))
        return None


def _queue_of(
    namespace: str, queues: Mapping[str, str], settings: Mapping[str, Any], problems: list[str]
) -> str:
    file = _queue_map_path(settings)
    if namespace not in queues:
        hint = values.suggest(namespace, queues) or f'; add "{namespace}": "root.…" there'
        problems.append(
            f"[settings] monitored_namespaces = {namespace}: has no queue in {file}{hint}"
        )
        return ""
    try:
        queue = values.queue_path(queues[namespace])
        if queue == "root":
            raise ValueError("is the whole cluster; name a queue below root")
    except ValueError as error:
        problems.append(f'{file}: "{namespace}": "{shown(queues[namespace])}": {error}')
        return ""
    prefixes = settings.get("allowed_queue_prefixes") or ()
    if not may_edit(queue, prefixes):
        problems.append(
            _problem(
                "settings",
                "allowed_queue_prefixes",
                ", ".join(prefixes),
                f"does not cover {queue} of the namespace {namespace}; allow it "
                f"there or correct it in {file}",
            )
        )
    return queue


def _node_types(
    sections: Sections,
    settings: Mapping[str, Any],
    namespaces: Mapping[str, NamespacePolicy],
    problems: list[str],
) -> dict[str, NodeType]:
    """Those with a section, and those of `node_type` in [settings] without one, by node_*_capacity.

    A type that only a namespace names must have its section: nobody knows its size otherwise.
    """
    cpu = _given(settings, "node_cpu_capacity", values.quantity("vcore")(DEFAULT_NODE_CPU))
    memory = _given(
        settings, "node_memory_capacity", values.quantity("memory")(DEFAULT_NODE_MEMORY)
    )
    usual = {"vcore": cpu, "memory": memory}
    named = _named_sections(sections, "node_type")
    types = {
        name: _node_type(name, section, sections, usual, problems)
        for name, section in named.items()
    }
    for name in _given(settings, "node_type", DEFAULT_NODE_TYPES):
        is_used = any(name in policy.node_types for policy in namespaces.values())
        if name not in types and (is_used or not types):
            types[name] = NodeType(name=name, size=usual)
    for policy in namespaces.values():
        for name in policy.node_types:
            if name not in types:
                hint = values.suggest(name, types) or f"; write a section [node_type:{name}]"
                problems.append(
                    _problem(
                        f"namespace:{policy.name}",
                        "node_type",
                        ", ".join(policy.node_types),
                        f"there is no node type {name}{hint}",
                    )
                )
    _check_prefixes(types, problems)
    return types


def _node_type(
    name: str, section: str, sections: Sections, usual: Mapping[str, int], problems: list[str]
) -> NodeType:
    try:
        values.node_type_name(name)
    except ValueError as error:
        problems.append(f"[{shown(section)}]: {error}")
    resources = {key: values.quantity(key) for key in sections[section] if RESOURCE.fullmatch(key)}
    keys = {**NODE_TYPE_KEYS, **{key.lower(): ("", parse) for key, parse in resources.items()}}
    parsed = _parse_section(section, sections, keys, problems)
    size = {
        "vcore": _given(parsed, "cpu", usual["vcore"]),
        "memory": _given(parsed, "memory", usual["memory"]),
    }
    size |= {key: parsed[key.lower()] for key in resources if parsed.get(key.lower())}
    fields = {
        field: parsed[key]
        for key, (field, _) in NODE_TYPE_KEYS.items()
        if field and parsed.get(key) is not None
    }
    return NodeType(name=name, size=size, **fields)


def _check_prefixes(types: Mapping[str, NodeType], problems: list[str]) -> None:
    """A node's name must tell its type: the prefix and digits, and of one type only."""
    prefixes = {name: node_type.name_prefix or name for name, node_type in types.items()}
    for name, prefix in prefixes.items():
        for other, longer in prefixes.items():
            is_same = longer == prefix and name < other
            if is_same or re.fullmatch(re.escape(prefix) + "[0-9]+", longer):
                problems.append(
                    f"[node_type:{other}] name_prefix = {longer}: a node name such as {longer}001 "
                    f"would also be one of the type {name} (prefix {prefix}); tell them apart"
                )


def _check_together(config: Config, settings: Mapping[str, Any], problems: list[str]) -> None:
    """What no key can be blamed for alone."""
    for policy in config.namespaces.values():
        if policy.max_nodes is not None and policy.min_nodes > policy.max_nodes:
            problems.append(
                _problem(
                    f"namespace:{policy.name}",
                    "min_nodes",
                    str(policy.min_nodes),
                    f"is above max_nodes = {policy.max_nodes}; lower it or raise that",
                )
            )
    least = sum(policy.min_nodes for policy in config.namespaces.values())
    if least > config.max_converted_nodes:
        problems.append(
            _problem(
                "settings",
                "max_converted_nodes",
                str(config.max_converted_nodes),
                f"is below the sum of all min_nodes, {least}; raise it or lower those",
            )
        )
    queue_map = _queue_map_path(settings)
    if config.converted_nodes_path in (config.path, queue_map, config.kubeconfig_path):
        problems.append(
            _problem(
                "settings",
                "converted_nodes_path",
                str(config.converted_nodes_path),
                "is a file that dnm only reads; name one of its own",
            )
        )
    longest = max(config.namespaces, key=len, default="")
    for node_type in config.node_types.values():
        texts = [*node_type.labels.items(), *((t.key, t.value) for t in node_type.taints)]
        for text in (part.replace(values.NAMESPACE, longest) for pair in texts for part in pair):
            if len(text.rpartition("/")[2]) > 63:
                problems.append(
                    f"[node_type:{node_type.name}] labels or taints: {text} is longer "
                    "than 63 characters; shorten it"
                )
