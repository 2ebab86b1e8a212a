"""The parsing of one section of the ini by a table of keys, for every program of dnm.

A problem is a sentence with the section, the key and the text. It is added to `problems`, and
parsing continues, so that the user gets all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dnm.config import values
from dnm.config.files import Sections, expand_path
from dnm.config.keys import MAY_BE_EMPTY, NAMED_SECTIONS, PLAIN_SECTIONS, Keys
from dnm.config.problems import comment_hint, problem, shown, unknown_key
from dnm.config.values import path_text

_REGISTRY = "converted_nodes.json"


def check_section_names(sections: Sections, problems: list[str]) -> None:
    """Adds a problem for each unknown section."""
    if "settings" not in sections:
        problems.append("[settings]: the section is missing; write it with monitored_namespaces")
    for name in sections:
        kind, colon, rest = name.partition(":")
        if name in PLAIN_SECTIONS or (kind in NAMED_SECTIONS and colon and rest.strip()):
            continue
        if kind in NAMED_SECTIONS:
            hint = f"; write [{kind}:NAME]"
        else:
            kinds = NAMED_SECTIONS if colon else PLAIN_SECTIONS[:2]
            close = values.suggest(kind, kinds)  # , did you mean 'node_type'?
            wanted = f"{colon}{shown(rest)}]?"
            hint = close.replace("'?", wanted).replace("'", "[") or (
                "; there are [settings], [namespace:NAME], [node_type:NAME], [event:NAME] and "
                "[node_convert]"
            )
        problems.append(f"[{shown(name)}]: unknown section{hint}")


def named_sections(sections: Sections, kind: str) -> dict[str, str]:
    """Returns NAME -> full name of the section, for the sections `kind:NAME`."""
    named = {}
    for section in sections:
        kind_of_section, colon, name = section.partition(":")
        if kind_of_section == kind and colon and name.strip():
            named[name.strip()] = section
    return named


def parse_section(
    section: str, entries: Mapping[str, str], keys: Keys, problems: list[str]
) -> dict[str, Any]:
    """Returns key -> value for the known keys in the section. The value is None if the text is
    invalid. Keys may be in upper or lower case."""
    parsed: dict[str, Any] = {}
    for written, text in entries.items():
        key = written.lower()
        if key not in keys:
            problems.append(unknown_key(section, written, keys))
            continue
        if key in parsed:
            problems.append(problem(section, written, text, "exists twice; keep one"))
        parsed[key] = None
        if not text and key in MAY_BE_EMPTY:
            parsed[key] = MAY_BE_EMPTY[key]
            continue
        try:
            if not text:
                raise ValueError("is empty; write a value, or leave the key out")
            parsed[key] = keys[key][1](text)
        except ValueError as error:
            problems.append(problem(section, written, text, f"{error}{comment_hint(text)}"))
    return parsed


def select_entries(entries: Mapping[str, str], keys: Keys) -> dict[str, str]:
    """Returns the entries that have a value and one of these keys. A program ignores other keys."""
    return {written: text for written, text in entries.items() if text and written.lower() in keys}


def resolve_paths(
    section: str,
    parsed: dict[str, Any],
    keys: Keys,
    at: tuple[Path, Mapping[str, str]],
    problems: list[str],
) -> None:
    """Replaces the path texts in `parsed` by absolute paths. `at` has the directory for relative
    paths, and the environment for variables."""
    for key, (_, parser) in keys.items():
        if parser is path_text and parsed.get(key) is not None:
            try:
                parsed[key] = expand_path(parsed[key], *at)
            except ValueError as error:
                problems.append(problem(section, key, parsed[key], error))
                parsed[key] = None


def state_folder(
    named: Path,
    begun_in: Path = Path("/etc/dynamic-node"),
    kept_in: Path = Path("/var/lib/dynamic-node"),
) -> Path:
    """Returns the folder of the registry: `named`, or the predecessor's if only that one has a
    registry. So a change of `state_dir` from /etc to /var/lib does not lose lent nodes."""
    if not named.is_relative_to(kept_in):
        return named
    before = begun_in / named.relative_to(kept_in)
    is_there = _is_missing(named / _REGISTRY) and not _is_missing(before / _REGISTRY)
    return before if is_there else named


def _is_missing(path: Path) -> bool:
    """Returns whether a path is missing. A path that dnm cannot examine counts as present."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def fields_of(parsed: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """Returns the fields of the model that the parsed keys set. A key without a value sets none."""
    fields: dict[str, Any] = {}
    for key, (field, _) in keys.items():
        if field and (value := parsed.get(key)) is not None:
            if field == "options":
                value = {**fields.get(field, {}), key: value}
            fields |= value if field == "*" else {field: value}
    return fields


def pick(settings: Mapping[str, Any], key: str, default: Any) -> Any:
    """Returns the value of a key, or the default if the key is missing or has no value."""
    value = settings.get(key)
    return default if value is None else value
