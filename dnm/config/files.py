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
from collections.abc import Mapping, Sequence
from pathlib import Path

from dnm.config.problems import line_start, problem, shown
from dnm.host.fault_points import fault_point
from dnm.host.trust import read_trusted
from dnm.model.errors import ConfigError
from dnm.model.printable import printable

Sections = dict[str, dict[str, str]]
EventSections = dict[str, tuple[dict[str, str], tuple[str, ...]]]
"""Section -> its keys, and what is wrong with its form."""

MOST_EVENTS = 1_000  # of one file; more are counted, not parsed
_LARGEST = 4 * 1024 * 1024  # bytes; ten thousand namespaces take one
_LONGEST = 10_000  # characters of one value
_MOST_DUPLICATES = 20  # named at once: each costs a parse
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
_PERCENTAGE = re.compile(r"(?:[^%]*[0-9.] ?%(?=\s*(?:,|$)))+[^%]*")  # or a list with such
HEADER = re.compile(r"\[(.+)\]")  # as the standard library has it
_EVENT = re.compile(r"event\s*(:|$)")
# A line that was meant to begin an event: one that is indented, cut off or in capitals too.
_MEANT = re.compile(r"\s*\[\s*event(?=[\s:\]]|$)\s*:?\s*([^\]]*)", re.IGNORECASE)
_REFERENCE = re.compile(r"%(?:%|\(([^()]*)\)s|)")


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


def read_trusted_text(path: Path, what: str, most: int = _LARGEST) -> str:
    """The file's text, without a byte order mark; ConfigError says what to do otherwise.

    `what` names the file in them."""
    try:
        with fault_point("config.read"):
            content = read_trusted(path, most)
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
        return "write it (an example is etc/dynamic_node_config.ini) or name another"
    if what == "queue map":
        return 'write it, e.g. {"dev": "root.services.dev"}, or set namespace_queue_paths'
    return "write it, or name another"


def read_ini(path: Path, problems: list[str]) -> Sections:
    """Section -> key -> text, with `%%` and `%(key)s` resolved as the standard library does.

    The keys of a section [DEFAULT] fill gaps of [settings], the one section that always was.
    Only whole lines can be comments (`#`, `;`), also as the standard library has it. Sections
    [event:NAME] are left out.
    """
    return read_ini_with_events(path, problems)[0]


def read_ini_with_events(
    path: Path, problems: list[str]
) -> tuple[Sections, list[str], dict[str, list[int]]]:
    """The same, and all lines, with the numbers of those of each section [event:NAME]: what is
    wrong in these is no problem of the file."""
    lines, events = split_events(read_trusted_text(path, "configuration file"))
    of_events = lines_of_events(events)
    raw = parse_lines(["" if n in of_events else line for n, line in enumerate(lines)], problems)
    defaults = raw.pop("DEFAULT", {})
    if "settings" in raw:
        raw["settings"] = {**defaults, **raw["settings"]}
    found = {name: resolve_section(name, section, problems) for name, section in raw.items()}
    return found, lines, events


def split_events(text: str) -> tuple[list[str], dict[str, list[int]]]:
    """Returns the lines, and the numbers of those of each section [event:NAME]; of one that is
    there twice, both."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: dict[str, list[int]] = {}
    section = ""
    for number, line in enumerate(lines):
        if is_meant_only(line):
            meant = _MEANT.match(line)
            section = f"event:{meant[1].strip() if meant else ''}"
        elif header := HEADER.match(line):
            section = header[1]
        if _EVENT.match(section):
            found.setdefault(section, []).append(number)
    return lines, found


def lines_of_events(sections: Mapping[str, list[int]]) -> set[int]:
    """Returns the numbers of all their lines."""
    return {number for numbers in sections.values() for number in numbers}


def is_meant_only(line: str) -> bool:
    """Says whether a line was meant to begin an event and does not: what follows it is then of no
    other section, whose keys would make the whole file one that can't be read."""
    header = HEADER.match(line)
    is_one = header is not None and _EVENT.match(header[1]) is not None
    return not is_one and _MEANT.match(line) is not None


def parse_lines(
    lines: list[str],
    problems: list[str],
    numbers: Sequence[int] | None = None,
    tries: int = _MOST_DUPLICATES,
) -> Sections:
    """Returns the sections as they are written; `numbers`: which lines of the file these are."""
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
    """Parses, and after each duplicate once more with that one renamed, so that all are found."""
    for attempt in range(tries):
        parser.clear()
        try:
            parser.read_string("\n".join(lines))
            return
        except configparser.DuplicateSectionError as error:
            place = error.lineno or 1
            problems.append(
                f"line {numbers[place - 1] + 1}: section [{shown(error.section)}] is there "
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
            problems.append(f"is no ini file: {printable(str(error), 200)}")
            parser.clear()
            return
    parser.clear()  # half parsed


def resolve_section(name: str, section: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Returns the section with its references filled in."""
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
    """One level deep and bounded: a value that refers to itself must not fill the memory."""
    if _PERCENTAGE.fullmatch(text):  # refers to nothing: who reads the key says what is right
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
