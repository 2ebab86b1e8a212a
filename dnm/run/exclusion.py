"""The refusal of a late write of limits by an earlier run, which may be asleep."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from dnm.model.config import Config
from dnm.model.errors import KubeError
from dnm.queues import system_of, unlimited_namespaces
from dnm.run.state import State

if TYPE_CHECKING:
    from dnm.kube.client import KubeClient

log = logging.getLogger("dnm")


def exclude_earlier_writes(config: Config, kube: KubeClient, state: State) -> None:
    """Makes the API server refuse limits that an earlier run has prepared. Where that fails, the
    run skips the actions for these queues, and the next run tries again, because this one does not
    release the Lease. Raises KubeError if it fails for all queues."""
    text, keep = f"{config.instance_id} {state.highest}", partial(state.keep, anew=True)
    queues = {policy.queue for policy in config.namespaces.values()}
    try:
        failed = system_of(config).exclude_earlier_writes(config, kube, text, keep)
    except KubeError as error:
        failed = dict.fromkeys(queues - unlimited_namespaces(config), str(error))
        if queues <= failed.keys():
            raise
    if failed and queues <= failed.keys():
        raise KubeError("; ".join(dict.fromkeys(failed.values())))
    state.unexcluded, state.needs_exclusion = failed, bool(failed)
    for queue, why in failed.items():
        note = f"an earlier run could still write the limits of {queue}, which waits: {why}"
        log.warning("note=%r", note)
