"""The ClusterQueue of a namespace that uses Kueue (`queue_system = kueue`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dnm.config.files import read_queue_map
from dnm.config.problems import shown
from dnm.model.errors import ConfigError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def find_cluster_queue(namespace: str, settings: Mapping[str, Any], problems: list[str]) -> str:
    """Returns the ClusterQueue that the queue map has for a namespace, or else the namespace's own
    name. Each run replaces that by the ClusterQueue of the namespace's LocalQueues."""
    file = settings.get("namespace_queue_paths")
    try:
        queues = read_queue_map(file, problems) if file is not None else {}
    except ConfigError as error:
        problems.append(str(error))
        return ""
    name = queues.get(namespace, namespace)
    if _NAME.fullmatch(name) and name != "root":
        return name
    problems.append(
        f'{file}: "{namespace}": "{shown(name)}": is not a ClusterQueue that dnm can serve; write '
        "a name of letters, digits and -, without dots, and not root"
    )
    return ""
