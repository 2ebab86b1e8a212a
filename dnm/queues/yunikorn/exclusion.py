"""A guard against a suspended run that could still write the queue document."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from dnm.model.config import Config
from dnm.model.errors import KubeConflict
from dnm.queues.system import ConfigMaps

_TRIES = 5  # against other clients that write at the same time
_EXCLUSION = "dynamic-node-manager/fence"
"""An annotation of the queue document. It decides nothing, but a write of it gives the document
another version, so that the API server refuses a write which an earlier run has prepared."""


def exclude_earlier_writes(
    config: Config, kube: ConfigMaps, text: str, before_write: Callable[[], None]
) -> Mapping[str, str]:
    """Gives the queue document another version, so that the API server refuses a write that an
    earlier run prepared. Returns no queue, since all have one document. Raises KubeError."""
    for _ in range(_TRIES):
        queues = kube.read_config_map(*config.queue_document)
        if queues is None or queues.immutable:
            return {}  # no run can change a limit
        before_write()
        try:
            kube.write_config_map(
                replace(queues, annotations={**queues.annotations, _EXCLUSION: text})
            )
            return {}
        except KubeConflict:
            continue
    raise KubeConflict(
        f"other clients changed the queue document {_TRIES} times in a row while dnm wanted to "
        "exclude writes of an earlier run; the next run tries again"
    )
