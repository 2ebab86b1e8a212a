"""The two configuration files as text: the ini -> sections, the JSON map -> dict.

Nothing is judged here but the form; what the keys mean is config.py's. A file that is missing,
unreadable, no text, too large or writable by others raises ConfigError at once, since nothing in it
could be believed. What is wrong inside is added to `problems`, and reading goes on.
"""

from __future__ import annotations

import configparser
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from dnm.model.errors import ConfigError
from dnm.model.fault_points import fault_point
from dnm.model.printable import printable
from dnm.model.trust import read_trusted

Sections = dict[str, dict[str, str]]

_LARGEST = 4 * 1024 * 1024  # bytes; ten thousand namespaces take one
_LONGEST = 10_000  # characters of one value
_MOST_DUPLICATES = 20  # named at once: each costs a parse
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
_PERCENTAGE = re.compile(r"[0-9.]+ ?%")
_REFERENCE = re.compile(r"%(?:%|\(([^()]*)\)s|)")


def shown(text: str) -> str:
    """What stands in a file, as a message quotes it: printable, at most 80 characters."""
    return printable(text, 80)


def expand_path(text: str, base: Path, environ: Mapping[str, str]) -> Path:
    """`~`, `$NAME` and `${NAME}` replaced; what is then still relative is relative to `base`.

    Raises ValueError for a variable or a user that there is not.
    """

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


def read_trusted_text(path: Path, what: str) -> str:
    """The file's text, without a byte order mark; ConfigError says what to do otherwise.

    `what` names the file in them."""
    try:
        with fault_point("config.read"):
            content = read_trusted(path, _LARGEST)
    except FileNotFoundError as error:
        raise ConfigError(f"the {what} {path} is missing: {_remedy(what)}") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"the {what} {path} can't be read ({why}): mend its permissions or its path"
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"the {what} {path} is not UTF-8 text (line {line}): save it as UTF-8"
        ) from error
    if "\0" in text:
        raise ConfigError(f"the {what} {path} holds NUL characters: is it another file?")
    return text


def _remedy(what: str) -> str:
    if what == "configuration file":
        return "write it (an example with every key is etc/dynamic_node_config.ini) or name another"
    return 'write it, e.g. {"dev": "root.services.dev"}, or set namespace_queue_paths'


def read_ini(path: Path, problems: list[str]) -> Sections:
    """Section -> key -> text, with `%%` and `%(key)s` resolved as the standard library does.

    The keys of a section [DEFAULT] fill gaps of [settings], the one section that always was.
    Only whole lines can be comments (`#`, `;`), also as the standard library has it.
    """
    parser = configparser.RawConfigParser(default_section="\0")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    text = read_trusted_text(path, "configuration file")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    _parse(parser, lines, problems)
    raw = {name: dict(parser.items(name)) for name in parser.sections() if "\0" not in name}
    defaults = raw.pop("DEFAULT", {})
    if "settings" in raw:
        raw["settings"] = {**defaults, **raw["settings"]}
    return {name: _resolve(name, section, problems) for name, section in raw.items()}


def _parse(parser: configparser.RawConfigParser, lines: list[str], problems: list[str]) -> None:
    """Parses, and after each duplicate once more with that one renamed, so that all are found."""
    for attempt in range(_MOST_DUPLICATES):
        parser.clear()
        try:
            parser.read_string("\n".join(lines))
            return
        except configparser.DuplicateSectionError as error:
            problems.append(
                f"line {error.lineno}: section [{shown(error.section)}] is there "
                "twice; merge the two"
            )
            lines[(error.lineno or 1) - 1] = f"[\0{attempt}]"
        except configparser.DuplicateOptionError as error:
            problems.append(
                f"line {error.lineno}: the key {shown(error.option)} is twice "
                "in its section; keep one"
            )
            lines[(error.lineno or 1) - 1] = f"\0{attempt} ="
        except configparser.MissingSectionHeaderError as error:
            problems.append(
                f"line {error.lineno}: '{shown(error.line.strip())}' stands before "
                "the first section; write [settings] above it"
            )
            return
        except configparser.ParsingError as error:
            problems.extend(
                f"line {number}: {shown(str(line))} is neither a section, nor key = value, "
                "nor a comment"
                for number, line in error.errors
            )
            return
        except (configparser.Error, ValueError, AttributeError) as error:
            problems.append(f"is no ini file: {printable(str(error), 200)}")
            parser.clear()
            return


def _resolve(name: str, section: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    resolved = {}
    for key, text in section.items():
        if key.startswith("\0"):
            continue
        try:
            resolved[key] = _check_text(_fill_references(text, section))
        except ValueError as error:
            problems.append(f"[{shown(name)}] {shown(key)} = {shown(text)}: {error}")
    return resolved


def _fill_references(text: str, section: Mapping[str, str]) -> str:
    """One level deep and bounded: a value that refers to itself must not fill the memory."""
    if _PERCENTAGE.fullmatch(text):  # refers to nothing: who reads the key says what is right
        return text
    folded = {key.lower(): value for key, value in section.items()}
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
    """Namespace -> queue path as it is written; wrong entries are left out and named.

    Raises ConfigError where there is no map at all.
    """
    text = read_trusted_text(path, "queue map")
    repeated: list[str] = []

    def collect(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                repeated.append(key)
            found[key] = value
        return found

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
        raise ConfigError(f"{path}: is JSON but no map; write {shape}")
    for key in dict.fromkeys(repeated):
        problems.append(f"{path}: has '{shown(key)}' more than once; keep one")
    found = {}
    for key, value in document.items():
        if isinstance(value, str):
            found[key] = value
        else:
            problems.append(
                f"{path}: the queue of '{shown(key)}' is not a string; "
                'write e.g. "root.services.dev"'
            )
    return found
