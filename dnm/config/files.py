"""The two configuration files as text: the ini as sections, the JSON map as a dict.

This module checks only the form; `load.py` interprets the keys. A file that is missing, unreadable,
not text, too large or writable by other users raises ConfigError at once, because its content
cannot be trusted. Errors inside the file are added to `problems`, and reading continues."""

from __future__ import annotations

import configparser
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dnm.config.problems import line_start, problem, shown
from dnm.host.fault_points import fault_point
from dnm.host.trust import read_trusted
from dnm.model.errors import ConfigError
from dnm.model.printable import printable

Sections = dict[str, dict[str, str]]
EventSections = dict[str, tuple[dict[str, str], tuple[str, ...]]]
"""The keys of each section, and the errors of its form."""

MOST_EVENTS = 1_000  # of one file; dnm counts more of them but does not parse them
_LARGEST = 4 * 1024 * 1024  # bytes; ten thousand namespaces take one
_LONGEST = 10_000  # characters of one value
_MOST_DUPLICATES = 20  # in one message, since each requires another parse
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
_PERCENTAGE = re.compile(r"(?:[^%]*[0-9.] ?%(?=\s*(?:,|$)))+[^%]*")  # or a list of percentages
HEADER = re.compile(r"\[(.+)\]")  # as the standard library has it
_EVENT = re.compile(r"event\s*(:|$)")
# A line that was intended to begin an event, also indented, cut off or in capitals.
_MEANT = re.compile(r"\s*\[\s*event(?=[\s:\]]|$)\s*:?\s*([^\]]*)", re.IGNORECASE)
_REFERENCE = re.compile(r"%(?:%|\(([^()]*)\)s|)")


def expand_path(text: str, base: Path, environ: Mapping[str, str]) -> Path:
    """Returns the path with `~`, `$NAME` and `${NAME}` replaced. A relative path is below `base`.

    Raises ValueError for an unknown variable or user."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in environ:
            raise ValueError(f"the environment has no variable {name}; write the path out")
        return environ[name]

    path = _VARIABLE.sub(value_of, text)
    if path == "~" or path.startswith("~/"):
        path = environ.get("HOME", "~") + path[1:]
    path = os.path.expanduser(path) if path.startswith("~") else path
    if path.startswith("~") or "\0" in path:
        raise ValueError("has no home directory for '~'; write the path out")
    return Path(os.path.normpath(base / path))


def read_trusted_text(path: Path, kind: str, most: int = _LARGEST) -> str:
    """Returns the file's text without a byte order mark. Raises ConfigError with the next step.

    `kind` names the file in messages."""
    try:
        with fault_point("config.read"):
            content = read_trusted(path, most)
    except FileNotFoundError as error:
        remedy = _REMEDIES.get(kind, "write it, or name another")
        raise ConfigError(f"the {kind} {path} is missing: {remedy}") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"the {kind} {path} can't be read ({why}): fix its permissions or its path"
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"the {kind} {path} is not UTF-8 text (line {line}): save it as UTF-8"
        ) from error
    if "\0" in text:
        raise ConfigError(f"the {kind} {path} has NUL characters: is it the right file?")
    return text


_REMEDIES = {
    "configuration file": "write it (an example is etc/dynamic_node_config.ini), or use --config",
    "queue map": 'write it, e.g. {"dev": "root.services.dev"}, or set namespace_queue_paths',
}


def read_ini(path: Path, problems: list[str]) -> Sections:
    """Returns section -> key -> text, with `%%` and `%(key)s` resolved as in Python's configparser.

    The keys of a section [DEFAULT] apply to [settings] if it lacks them, since [settings] was once
    the only section. Only entire lines can be comments (`#`, `;`), as in configparser. The result
    has no sections [event:NAME]."""
    return read_ini_with_events(path, problems)[0]


def read_ini_with_events(
    path: Path, problems: list[str]
) -> tuple[Sections, list[str], dict[str, list[int]]]:
    """Returns the result of `read_ini`, all lines, and the line numbers of each section
    [event:NAME]. Errors in these sections are not added to `problems`."""
    lines, events = split_events(read_trusted_text(path, "configuration file"))
    of_events = lines_of_events(events)
    raw = parse_lines(["" if n in of_events else line for n, line in enumerate(lines)], problems)
    defaults = raw.pop("DEFAULT", {})
    if "settings" in raw:
        raw["settings"] = {**defaults, **raw["settings"]}
    resolved = {name: resolve_section(name, section, problems) for name, section in raw.items()}
    return resolved, lines, events


def split_events(text: str) -> tuple[list[str], dict[str, list[int]]]:
    """Returns all lines, and the line numbers of each section [event:NAME]. If a section is
    repeated, its numbers include all occurrences."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    by_section: dict[str, list[int]] = {}
    section = ""
    for number, line in enumerate(lines):
        if is_malformed_event(line):
            meant = _MEANT.match(line)
            section = f"event:{meant[1].strip() if meant else ''}"
        elif header := HEADER.match(line):
            section = header[1]
        if _EVENT.match(section):
            by_section.setdefault(section, []).append(number)
    return lines, by_section


def lines_of_events(sections: Mapping[str, list[int]]) -> set[int]:
    """Returns the line numbers of all sections [event:NAME]."""
    return {number for numbers in sections.values() for number in numbers}


def is_malformed_event(line: str) -> bool:
    """Returns whether a line resembles the header of an event but is malformed, e.g. has capitals.
    dnm treats the lines below it as an event, since they would make the entire file unreadable."""
    header = HEADER.match(line)
    is_event = header is not None and _EVENT.match(header[1]) is not None
    return not is_event and _MEANT.match(line) is not None


def parse_lines(
    lines: list[str],
    problems: list[str],
    numbers: Sequence[int] | None = None,
    tries: int = _MOST_DUPLICATES,
) -> Sections:
    """Returns section -> key -> text. `numbers` has the number of each line in the file."""
    numbers = range(len(lines)) if numbers is None else numbers
    parser = configparser.RawConfigParser(default_section="\0")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    _parse_into(parser, lines, problems, numbers, tries)
    return {name: dict(parser.items(name)) for name in parser.sections() if "\0" not in name}


def _parse_into(
    parser: configparser.RawConfigParser,
    lines: list[str],
    problems: list[str],
    numbers: Sequence[int],
    tries: int,
) -> None:
    """Parses the lines. Renames a repeated key or section and parses again, so as to find all."""
    for attempt in range(tries):
        parser.clear()
        try:
            parser.read_string("\n".join(lines))
            return
        except configparser.DuplicateSectionError as error:
            place = error.lineno or 1
            problems.append(
                f"line {numbers[place - 1] + 1}: section [{shown(error.section)}] exists "
                "twice; merge the two"
            )
            lines[place - 1] = f"[\0{attempt}]"
        except configparser.DuplicateOptionError as error:
            place = error.lineno or 1
            problems.append(
                f"line {numbers[place - 1] + 1}: the key {shown(error.option)} is twice "
                "in its section; keep one"
            )
            lines[place - 1] = f"\0{attempt} ="
        except configparser.MissingSectionHeaderError as error:
            problems.append(
                f"line {numbers[error.lineno - 1] + 1}: '{line_start(error.line)}' is before the "
                "first section; write [settings] above it"
            )
            return
        except configparser.ParsingError as error:
            problems.extend(
                f"line {numbers[number - 1] + 1}: '{line_start(lines[number - 1])} …' is neither a "
                "section, nor key = value, nor a comment"
                for number, _ in error.errors
            )
            return
        except (configparser.Error, ValueError, AttributeError) as error:
            problems.append(f"is not an ini file: {printable(str(error), 200)}")
            parser.clear()
            return
    parser.clear()  # partly parsed


def resolve_section(name: str, section: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Returns the section with `%%` and `%(key)s` replaced. Errors are added to `problems`."""
    resolved = {}
    folded = {key.lower(): value for key, value in section.items()}
    for key, text in section.items():
        if key.startswith("\0"):
            continue
        try:
            resolved[key] = _check_text(_fill_references(text, folded))
        except ValueError as error:
            # The key may be unknown, and its value a secret.
            problems.append(problem(name, key, text, error, has_value=False))
    return resolved


def _fill_references(text: str, folded: Mapping[str, str]) -> str:
    """Returns the text with `%%` and `%(key)s` replaced, one level deep. Raises ValueError."""
    if _PERCENTAGE.fullmatch(text):  # no reference: the parser of the key checks it
        return text
    length = 0

    def value_of(match: re.Match[str]) -> str:
        nonlocal length
        if match[0] == "%%":
            return "%"
        value = folded.get((match[1] or "").lower())
        if value is None or "%" in value:
            raise ValueError("refers to another key by '%'; write the value out, and '%' as '%%'")
        length += len(value)
        if length > _LONGEST:
            raise ValueError(f"is longer than {_LONGEST} characters")
        return value

    return _REFERENCE.sub(value_of, text)


def _check_text(text: str) -> str:
    if len(text) > _LONGEST:
        raise ValueError(f"is longer than {_LONGEST} characters")
    if any(not char.isprintable() and char not in "\n\t" for char in text):
        raise ValueError("holds a character that can't be shown; write plain text")
    return text.strip()


def read_queue_map(path: Path, problems: list[str]) -> dict[str, str]:
    """Returns namespace -> queue path as in the file. A wrong entry is added to `problems`.

    Raises ConfigError if the file is not a map."""
    text = read_trusted_text(path, "queue map")
    repeated: list[str] = []

    def collect(pairs: list[tuple[str, object]]) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, value in pairs:
            if key in values:
                repeated.append(key)
            values[key] = value
        return values

    shape = '{"namespace": "root.queue"}'
    try:
        document = json.loads(text, object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{path}: is not JSON: {error.msg} ({place}); write {shape}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: is not JSON that can be read: {error}; write {shape}"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is JSON but not a map; write {shape}")
    for key in dict.fromkeys(repeated):
        problems.append(f"{path}: has '{shown(key)}' more than once; keep one")
    queues = {}
    for key, value in document.items():
        if isinstance(value, str):
            queues[key] = value
        else:
            problems.append(
                f"{path}: the queue of '{shown(key)}' is not a string; "
                'write e.g. "root.services.dev"'
            )
    return queues
