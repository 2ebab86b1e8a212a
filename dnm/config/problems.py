"""Sentences about errors in a configuration. A correct file does not need this module."""

from __future__ import annotations

import re
from collections.abc import Collection

from dnm.model.printable import printable

_MOST_SHOWN = 50  # problems in one answer
_CONTINUED = re.compile(r"\n(\S+?)\s*([=:])")
_CREDENTIALS = re.compile(r"//[^/\s]*@")


def shown(text: str) -> str:
    """Returns a text from a file in the form for messages: printable, at most 80 characters,
    without the user and password of a URL."""
    return printable(_CREDENTIALS.sub("//…@", text), 80)


def line_start(line: str) -> str:
    """Returns the part of a line that a message may show: a key without its value, or the first
    word. The rest may be a secret."""
    return shown(re.split(r"[=:\s]", line.strip(), maxsplit=1)[0])


def list_problems(where: str, problems: list[str]) -> str:
    """Returns one message: the number of problems, and each problem once on its own line."""
    unique = list(dict.fromkeys(problems))
    count = "1 problem" if len(unique) == 1 else f"{len(unique)} problems"
    more = [f"and {len(unique) - _MOST_SHOWN} more"] if len(unique) > _MOST_SHOWN else []
    return "\n  ".join([f"{where}: {count}", *unique[:_MOST_SHOWN], *more])


def problem(section: str, key: str, text: str, why: object, has_value: bool = True) -> str:
    """Returns the message about one key, with or without its value. An indented line continues the
    value; if it looks like another key, the message is about that line."""
    from dnm.config.keys import BY_KIND

    all_keys = {key for keys in BY_KIND.values() for key in keys}
    for line in _CONTINUED.finditer(text):
        if "=" in text[: line.start()]:
            break  # a list of pairs, which may have names of keys
        if line[2] == "=" or line[1].lower() in all_keys:
            text = text[: line.start()]
            why = (
                f"the line '{shown(line[1])} {line[2]} …' below begins with a blank, so it "
                f"continues '{shown(key)}'; remove the blank"
            )
            break
    value = f" = {shown(text)}" if has_value else ""
    return f"[{shown(section)}] {shown(key)}{value}: {why}"


def unknown_key(section: str, key: str, keys: Collection[str]) -> str:
    """Returns the message about an unknown key, without its value, which may be a secret."""
    return f"[{shown(section)}] {shown(key)}: unknown key{key_hint(key.lower(), keys)}"


def comment_hint(text: str) -> str:
    """Returns a hint if the text may contain a comment: in an ini file, a comment needs a line of
    its own."""
    is_commented = re.search(r"\s[#;]", text)
    return " (a comment needs a line of its own)" if is_commented else ""


def key_hint(key: str, keys: Collection[str]) -> str:
    """Returns a hint about an unknown key: the sections that have it, or a similar key."""
    from dnm.config.keys import BY_KIND, ELSEWHERE, NAMED_SECTIONS, RESOURCE
    from dnm.config.values import suggest

    kinds = [kind for kind, keys_of_kind in BY_KIND.items() if key in keys_of_kind]
    kinds += ["node_type"] if RESOURCE.fullmatch(key) else []
    places = [f"[{kind}:NAME]" if kind in NAMED_SECTIONS else f"[{kind}]" for kind in kinds]
    there = f"; write it in {' or '.join(places)}" if places else ""
    return ELSEWHERE.get(key.partition("/")[0]) or there or suggest(key, keys)
