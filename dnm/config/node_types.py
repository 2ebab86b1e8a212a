"""The parsing of a section [node_type:NAME], which describes nodes of one type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dnm.config import names, values
from dnm.config.files import Sections
from dnm.config.keys import KUBELET_KEYS, NODE_TYPE_KEYS, RESOURCE
from dnm.config.problems import shown
from dnm.config.sections import fields_of, parse_section, pick
from dnm.model.kubelet import KubeletSettings
from dnm.model.node_type import NodeType
from dnm.model.printable import printable


def read_node_type(
    name: str, section: str, sections: Sections, usual: Mapping[str, int], problems: list[str]
) -> NodeType:
    """Returns the node type of a section. `usual` is its size if the section sets none."""
    try:
        names.node_type_name(name)
    except ValueError as error:
        problems.append(f"[{shown(section)}]: {printable(str(error))}")
    resources = {key: values.quantity(key) for key in sections[section] if RESOURCE.fullmatch(key)}
    keys = {
        **NODE_TYPE_KEYS,
        **KUBELET_KEYS,
        **{key.lower(): ("", parse) for key, parse in resources.items()},
    }
    parsed = parse_section(section, sections[section], keys, problems)
    size = {
        "cpu": pick(parsed, "cpu", usual["cpu"]),
        "memory": pick(parsed, "memory", usual["memory"]),
    }
    kubelet = kubelet_settings(parsed)
    size |= {key: parsed[key.lower()] for key in resources if parsed.get(key.lower())}
    if kubelet is not None:
        kubelet = _with_huge_pages(kubelet, size)
    return NodeType(name=name, size=size, kubelet=kubelet, **fields_of(parsed, NODE_TYPE_KEYS))


def kubelet_settings(parsed: Mapping[str, Any]) -> KubeletSettings | None:
    """Returns the kubelet settings of a section, or None if it has none."""
    fields = fields_of(parsed, KUBELET_KEYS)
    return KubeletSettings(**fields) if fields else None


def _with_huge_pages(kubelet: KubeletSettings, size: Mapping[str, int]) -> KubeletSettings:
    """Returns the kubelet settings with the huge pages that are in the size of the node type."""
    pages = {"hugepages_2mi": size.get("hugepages-2Mi"), "hugepages_1gi": size.get("hugepages-1Gi")}
    return replace(kubelet, **pages)
