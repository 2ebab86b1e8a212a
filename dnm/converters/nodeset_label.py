"""The label by which the site's NodeSet chooses Nodes, as the settings name it."""

from __future__ import annotations

from dnm.converters.conversion import NodeConversion
from dnm.converters.settings import Settings
from dnm.model.cluster import Node
from dnm.model.errors import ConfigError


def label_of(settings: Settings) -> tuple[str, str]:
    """Returns the label by which the NodeSet chooses Nodes. Raises ConfigError where none is
    set."""
    if settings.nodeset_label is None:
        raise ConfigError(
            "[node_convert] nodeset_label is missing: write the label of the NodeSet's "
            "nodeSelector that brings slurmd to a node, e.g. nodeset_label = slurm=yes"
        )
    return settings.nodeset_label


def is_label_on(conversion: NodeConversion, node: Node) -> bool:
    """Returns whether the Node has it: slurmd is there, or comes."""
    key, value = label_of(conversion.settings)
    return node.labels.get(key) == value
