"""A node's state in Slurm on its Node: conditions of slurm-operator's names, and an annotation.

One strategic merge patch of `nodes/status` sets all that is wanted and deletes every other
condition of these names, so that it may be repeated; a kubelet leaves conditions alone that it does
not know.
The server takes annotations with a status (kubernetes pkg/registry/core/node/strategy.go, 1.34).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dnm.host.fault_points import fault_point
from dnm.kube.nodes import SHOWN
from dnm.kube.objects import path_of
from dnm.kube.requests import ApiRequests
from dnm.model.plan import ShowState
from dnm.model.slurm_state import ALL_CONDITIONS, CONDITION

_STRATEGIC = "application/strategic-merge-patch+json"
_TOLD = "ToldBySlurm"


def show_state(requests: ApiRequests, show: ShowState, now: datetime) -> bool:
    """Patches the Node's status; False: there is no such Node any more. Raises KubeError."""
    path = path_of("nodes", show.node) + "/status"
    what = f"show on node {show.node} how Slurm has it"
    body = make_patch(show, now)

    def change() -> bool:
        with requests.changing(what, "patch nodes/status"), fault_point("kube.show_state"):
            return requests.change("PATCH", path, body, ("Node",), _STRATEGIC)

    return requests.change_node(change)


def make_patch(show: ShowState, now: datetime) -> dict[str, Any]:
    """Returns the patch. The time of a condition that stands already is not touched."""
    states = show.wanted.states if show.wanted else ()
    moment = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    conditions: list[dict[str, str]] = []
    for state in states:
        condition = {
            "type": f"{CONDITION}{state}",
            "status": "True",
            "reason": (show.drain_reason if state == "Drain" else "") or _TOLD,
            "message": show.message,
            "lastHeartbeatTime": moment,
        }
        if state not in show.standing:
            condition["lastTransitionTime"] = moment
        conditions.append(condition)
    others = sorted((ALL_CONDITIONS | set(show.standing)) - set(states))
    conditions += [{"type": f"{CONDITION}{state}", "$patch": "delete"} for state in others]
    annotations = {SHOWN: show.wanted.text if show.wanted else None}
    return {"metadata": {"annotations": annotations}, "status": {"conditions": conditions}}
