"""The page of all configuration keys: `python -m packages.reference` prints docs/configuration.md.

Keys and defaults are those of the code; reference.txt has the meaning of each key, and when to
change it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from dnm.config import keys
from dnm.config.events import EVENT_KEYS
from dnm.converters.settings import Settings
from dnm.model.config import Config, NamespacePolicy
from dnm.model.reason import CORE_REASONS
from dnm.plan.explain import list_reasons

DECLARED = {
    "[settings]": keys.SETTINGS,
    "[namespace:NAME]": keys.NAMESPACE_KEYS,
    "[node_type:NAME]": {**keys.NODE_TYPE_KEYS, **keys.KUBELET_KEYS},
    "[event:NAME]": EVENT_KEYS,
    "[node_convert]": keys.NODE_CONVERT_KEYS,
}
_CONFIG = Config(path=Path(), namespaces={}, node_types={})
_POLICY = NamespacePolicy(name="", queue="", node_types=())
_MODELS: dict[str, Any] = {
    "[settings]": _CONFIG,
    "[namespace:NAME]": _POLICY,
    "[node_convert]": Settings(),
}
# Defaults that are no field's.
_OTHER = {
    ("[settings]", "monitored_namespaces"): "must be set",
    ("[settings]", "namespace_queue_paths"): str(keys.DEFAULT_QUEUE_MAP),
    ("[settings]", "reversion_idle_seconds"): "learned",
    ("[settings]", "node_cpu_capacity"): keys.DEFAULT_NODE_CPU,
    ("[settings]", "node_memory_capacity"): keys.DEFAULT_NODE_MEMORY,
    ("[settings]", "default_cpu_request_m"): "1000",
    ("[settings]", "default_mem_request"): "2Gi",
    ("[settings]", "node_type"): ", ".join(keys.DEFAULT_NODE_TYPES),
    ("[settings]", "event_reservations"): "false",
    ("[settings]", "registry"): "file",
    ("[settings]", "node_convert_path"): "the site's, else the shipped one",
    ("[namespace:NAME]", "node_type"): "that of [settings]",
    ("[node_type:NAME]", "cpu"): "node_cpu_capacity",
    ("[node_type:NAME]", "memory"): "node_memory_capacity",
    ("[node_type:NAME]", "name_prefix"): "NAME",
    ("[event:NAME]", "namespace"): "must be set",
    ("[event:NAME]", "from"): "must be set",
    ("[event:NAME]", "until"): "must be set",
    ("[event:NAME]", "zone"): "events_zone",
}
_UNITS = {"seconds": 1, "timeout": 1, "minutes": 60, "hours": 3600, "days": 86_400}


class Row(NamedTuple):
    key: str
    about: str
    change: str  # when to change it


class Group(NamedTuple):
    title: str
    section: str
    about: str
    rows: tuple[Row, ...]


def default_of(section: str, key: str) -> str:
    """Returns the default of a key as a text for the ini, or `none` if it has no default."""
    field = DECLARED[section][key][0]
    value = getattr(_MODELS.get(section), field, None) if field not in ("", "options") else None
    if (section, key) in _OTHER:
        return _OTHER[section, key]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return f"{value.total_seconds() / _UNITS[key.rpartition('_')[2]]:g}"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return "none" if value is None or value in ("", frozenset()) else str(value)


def page() -> Iterator[str]:
    """Yields the lines of docs/configuration.md."""
    yield from (
        "# Every key of the configuration",
        "",
        "<!-- Made by `python -m packages.reference`; packages/reference.txt has the words. -->",
        "",
        *HEAD,
    )
    for group in GROUPS:
        yield from ("", f"## {group.title}", "", f"`{group.section}` {group.about}".strip(), "")
        yield from ("| key | default | meaning | when to change it |", "|---|---|---|---|")
        for row in group.rows:
            default = default_of(group.section, row.key)
            yield f"| `{row.key}` | {default} | {row.about} | {row.change} |"
    yield from ("", "## Reasons of rules", "", "| reason | what would change it |", "|---|---|")
    for reason in list_reasons():
        if reason.change and reason not in CORE_REASONS:
            yield f"| {reason.text} | {reason.change} |"


def _of_rules(group: Group) -> list[Row]:
    declared = keys.OF_RULES.get(re.findall(r"\w+", group.section)[0], {})
    own = ((key, pair) for key, pair in declared.items() if pair.heading == group.title)
    return [Row(key, pair.about, pair.change) for key, pair in own]


def _read(text: str) -> tuple[list[str], list[Group]]:
    """Parses reference.txt. `= title = section = about` begins a group, `key | meaning | when to
    change` is a row. Adds the keys of rules, which the rules themselves describe."""
    head: list[str] = []
    groups: list[Group] = []
    for line in text.splitlines():
        if line.startswith("= "):
            title, section, about = f"{line[2:]} ".split(" = ", 2)
            groups.append(Group(title, section, about.strip(), ()))
        elif groups and line:
            row = Row(*map(str.strip, line.split(" | ")))
            groups[-1] = groups[-1]._replace(rows=(*groups[-1].rows, row))
        else:
            head.append(line)
    return head, [group._replace(rows=(*group.rows, *_of_rules(group))) for group in groups]


HEAD, GROUPS = _read((Path(__file__).parent / "reference.txt").read_text(encoding="utf-8"))


if __name__ == "__main__":
    print("\n".join(page()))
