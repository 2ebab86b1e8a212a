"""The readiness checks that a joining node must pass before pods start on it, and its progress."""

from __future__ import annotations

from datetime import datetime, timedelta

from dnm.model.value import Moment, Value

OPENING_TAINT = "dynamic-node-manager/opening"
"""With NoSchedule, on the Node of a joining machine, until its readiness checks pass."""

USUAL_WAIT = timedelta(minutes=15)


class Check(Value):
    """A readiness check. `kind` is daemonsets, daemonset, condition, taint, images, image or probe.
    `name` is the name of the checked object, `status` the required status of a condition."""

    kind: str
    name: str = ""
    status: str = ""
    within: timedelta = USUAL_WAIT

    @property
    def text(self) -> str:
        """Returns the check as it is written in the ini file, without its time limit."""
        status = f"={self.status}" if self.status else ""
        return f"{self.kind} {self.name}{status}".rstrip()


class Opening(Value):
    """The progress of a joining node through its checks. `held` has, for each
    check, the time of the first run in which it passed. `node` there means that the Node existed,
    `ready` that it was ready. `pods` are those
    that dnm started, as `namespace/name`. `refused` explains why dnm may not start some."""

    held: dict[str, Moment] = {}
    is_open: bool = False
    why: str = ""  # what is missing, from the last run
    images: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    of_pods: bool = False  # it was returned for an image that pods of its queue name

    def took(self, asked: datetime) -> dict[str, int]:
        """Returns the seconds that the Node's boot, its joining and each readiness check took."""
        held, spans = dict(self.held), {}
        there, ready = held.pop("node", None), held.pop("ready", None)
        if there is not None:
            spans["boot"] = there - asked
        if there is not None and ready is not None:
            spans["join"] = ready - there
        if ready is not None:
            spans |= {step: moment - ready for step, moment in held.items()}
        return {step: max(round(span.total_seconds()), 0) for step, span in spans.items()}


class PodOrder(Value):
    """A pod that dnm is to start on a joining node for a check: one that pulls `images`, or a copy
    of the PodTemplate `template` of its namespace."""

    namespace: str
    name: str
    images: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    template: str = ""


def full_name(image: str) -> str:
    """Returns an image name in the form that a Node lists: docker.io/library/busybox:latest."""
    host, slash, rest = image.partition("/")
    if not slash:
        host, rest = "docker.io", f"library/{image}"
    elif not ("." in host or ":" in host or host == "localhost"):
        host, rest = "docker.io", image
    elif host in ("docker.io", "index.docker.io") and "/" not in rest:
        host, rest = "docker.io", f"library/{rest}"
    is_tagged = "@" in rest or ":" in rest.rpartition("/")[2]
    return f"{host}/{rest}" if is_tagged else f"{host}/{rest}:latest"
