"""The readiness checks of a node type, and the progress of a node through them."""

from __future__ import annotations

from datetime import datetime, timedelta

from dnm.model.value import Moment, Value

OPENING_TAINT = "dynamic-node-manager/opening"
"""With NoSchedule, on the Node of a machine that joins, until its type's list holds."""

USUAL_WAIT = timedelta(minutes=15)


class Step(Value):
    """One thing that must hold. `kind`: daemonsets, daemonset, condition, taint, images, image,
    probe. `name`: of what; `status`: that a condition is to have."""

    kind: str
    name: str = ""
    status: str = ""
    within: timedelta = USUAL_WAIT

    @property
    def text(self) -> str:
        """Returns the step as an administrator writes it, without its time."""
        status = f"={self.status}" if self.status else ""
        return f"{self.kind} {self.name}{status}".rstrip()


class Opening(Value):
    """How far a node that joins is. `held`: when a run first saw each step hold, and since when it
    is there (`node`) and ready with its resources (`ready`). `pods`: dnm's own on it, as
    `namespace/name`; `refused`: why one of them may not be started."""

    held: dict[str, Moment] = {}
    is_open: bool = False
    why: str = ""  # what is missing, as the last look found it
    images: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    of_pods: bool = False  # it went back for an image that its queue's pods name

    def took(self, asked: datetime) -> dict[str, int]:
        """Returns the seconds of each stage: until it was there, then until it was ready, then from
        there on for each step."""
        held, found = dict(self.held), {}
        there, ready = held.pop("node", None), held.pop("ready", None)
        if there is not None:
            found["boot"] = there - asked
        if there is not None and ready is not None:
            found["join"] = ready - there
        if ready is not None:
            found |= {step: moment - ready for step, moment in held.items()}
        return {step: max(round(span.total_seconds()), 0) for step, span in found.items()}


class PodOrder(Value):
    """A pod that dnm starts on a node: it pulls `images`, or else is made of the PodTemplate
    `template` of its namespace."""

    namespace: str
    name: str
    images: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    template: str = ""


def full_name(image: str) -> str:
    """Returns an image's name as a Node lists it: docker.io/library/busybox:latest."""
    host, slash, rest = image.partition("/")
    if not slash:
        host, rest = "docker.io", f"library/{image}"
    elif not ("." in host or ":" in host or host == "localhost"):
        host, rest = "docker.io", image
    elif host in ("docker.io", "index.docker.io") and "/" not in rest:
        host, rest = "docker.io", f"library/{rest}"
    is_tagged = "@" in rest or ":" in rest.rpartition("/")[2]
    return f"{host}/{rest}" if is_tagged else f"{host}/{rest}:latest"
