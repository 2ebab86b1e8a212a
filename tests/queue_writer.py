"""A process that makes one queue edit, which a test can kill between any two steps. warm.py runs
`queue-writer KUBECONFIG URL INSTANCE NODES`: YuniKorn's URL or an empty one, NODES as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from dnm.kube.client import KubeClient
from dnm.model.config import Config
from dnm.model.queue_edit import QueueOutcome, QueueWants
from dnm.model.value import Resources
from dnm.queues.yunikorn.edit import edit_source
from dnm.queues.yunikorn.rest import YunikornClient
from dnm.queues.yunikorn.source import DEFAULT_PLACE
from dnm.queues.yunikorn.system import apply_queue_edit

NAMESPACE = "yunikorn"


def write(
    kubeconfig: Path,
    yunikorn: YunikornClient | None,
    instance: str,
    nodes: Mapping[str, Mapping[str, Resources]],
    uptake: timedelta = timedelta(seconds=10),
    remembered: str | None = "",
) -> QueueOutcome:
    """Reads, edits and writes the queue document for these nodes, by dnm's Kubernetes client."""
    config = Config(path=Path("x"), namespaces={}, node_types={}, kubeconfig_path=kubeconfig)
    kube = KubeClient.connect(config)
    wants = QueueWants(instance_id=instance, nodes=nodes, remembered=remembered)
    try:
        return apply_queue_edit(
            kube, DEFAULT_PLACE, lambda source: edit_source(source, wants), yunikorn, uptake
        )
    finally:
        kube.close()


def main() -> None:
    scheduler = YunikornClient(sys.argv[2]) if sys.argv[2] else None
    print(write(Path(sys.argv[1]), scheduler, sys.argv[3], json.loads(sys.argv[4])).is_written)
