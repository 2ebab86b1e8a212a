"""`dnm check --deep`: what is kept of the cluster from run to run, against full lists read now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from shlex import quote

from dnm.cli.findings import Finding, doubtful, fine, skipped, wrong
from dnm.kube.client import KubeClient
from dnm.kube.reflector import Reflector
from dnm.model.config import Config
from dnm.model.value import Unreadable

_CHECK = "what is kept"


def check_kept(config: Config, now: datetime) -> Iterator[Finding]:
    """It is brought to the moment of the lists by a watch, as a run does every relist_minutes."""
    reflector = Reflector(config, now, is_due=True)
    with closing(KubeClient.connect(config, reflector)) as kube:
        nodes, pods = kube.read_nodes(), kube.read_pods(())
        for one in (nodes, pods):
            if isinstance(one, Unreadable):
                yield wrong(_CHECK, one.error)
                return
        reading = reflector.compare(kube.requests.access)
    path = quote(str(config.store_path))
    if reading.trouble:
        yield wrong(
            _CHECK,
            reading.trouble,
            f"set relist_minutes = 0 and tell who runs the API server; then remove {path}",
        )
    elif reading.compared == "unproved":
        yield doubtful(_CHECK, f"it could not be compared: {reading.sentence}", "try it again")
    elif reading.compared:
        yield fine(_CHECK, f"{path} equals the full lists")
    else:
        yield skipped(_CHECK, f"there is nothing to compare ({reading.reason}): {reading.sentence}")
