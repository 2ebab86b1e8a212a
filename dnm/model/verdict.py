"""The decisions of a run about nodes and queues, each with a reason and its text."""

from __future__ import annotations

from enum import Enum

from dnm.model.reason import Reason, ReasonText
from dnm.model.value import Value


class Verdict(Enum):
    """The kinds of decision that a run can make about a node or a queue."""

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
    """The reason why dnm does not perform a desired action, or must not."""

    reason: ReasonText
    detail: str = ""
    needs_person: bool = False

    @property
    def sentence(self) -> str:
        """Returns the reason and its details as one sentence."""
        return f"{self.reason.text}: {self.detail}" if self.detail else self.reason.text


def limits_objection(why: str | None) -> Objection | None:
    """Returns the objection that limits cannot be changed because of `why`, or None without it."""
    return Objection(reason=Reason.QUEUE_UNREADABLE, detail=why) if why else None


class NodeVerdict(Objection, kw_only=True):
    """The decision of a run about a lent node, with its reason."""

    node: str
    verdict: Verdict


class QueueVerdict(Objection, kw_only=True):
    """The decision of a run about a queue, with its reason. `pods` may name pods of several
    tenants: the history may contain it, an Event on a pod may not."""

    queue: str
    verdict: Verdict
    pods: str = ""

    @property
    def sentence(self) -> str:
        details = "; ".join(filter(None, (self.detail, self.pods)))
        return Objection(reason=self.reason, detail=details).sentence

    @property
    def without_pods(self) -> str:
        """Returns the reason and its details as one sentence, without the names of pods."""
        return super().sentence
