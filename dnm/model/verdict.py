"""The decisions of a run about nodes and queues: a verdict, a reason and its text."""

from __future__ import annotations

from enum import Enum

from dnm.model.reason import Reason, ReasonText
from dnm.model.value import Value


class Verdict(Enum):
    """The decision about one node or queue in this run."""

    KEEP = "keep"
    WAIT = "wait"
    CONVERT = "convert"
    REVERT = "revert"
    MOVE = "move"
    FAILED = "failed"


VERDICT_WORDS = {"convert": "lend", "revert": "return"}
"""The words for people, by the value in documents; other values are their own words."""
QUEUE_WORDS = {**VERDICT_WORDS, "keep": "nothing"}
"""The same for a queue, for which "keep" would be misleading."""


class Objection(Value):
    """The reason why a desired action is not done. Without an objection it may be done."""

    reason: ReasonText
    detail: str = ""
    needs_person: bool = False

    @property
    def sentence(self) -> str:
        """Returns the reason and its detail as one sentence."""
        return f"{self.reason.text}: {self.detail}" if self.detail else self.reason.text


def limits_objection(why: str | None) -> Objection | None:
    """Returns the objection that limits cannot be changed for this reason; None: they can be."""
    return Objection(reason=Reason.QUEUE_UNREADABLE, detail=why) if why else None


class NodeVerdict(Objection, kw_only=True):
    """The decision about a node, and its reason."""

    node: str
    verdict: Verdict


class QueueVerdict(Objection, kw_only=True):
    """The decision about a queue. `pods` names pods of several tenants: the history may contain it,
    an Event on a pod may not."""

    queue: str
    verdict: Verdict
    pods: str = ""

    @property
    def sentence(self) -> str:
        details = "; ".join(filter(None, (self.detail, self.pods)))
        return Objection(reason=self.reason, detail=details).sentence

    @property
    def without_pods(self) -> str:
        """Returns the sentence without the names of pods."""
        return super().sentence
