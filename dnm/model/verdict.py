"""What is said of a node or a queue in a run: the answer, and the reason as people read it."""

from __future__ import annotations

from enum import Enum

from dnm.model.reason import Why
from dnm.model.value import Value


class Verdict(Enum):
    """The answer for one node or queue in this run."""

    KEEP = "keep"
    WAIT = "wait"
    CONVERT = "convert"
    REVERT = "revert"
    MOVE = "move"
    FAILED = "failed"


VERDICT_WORDS = {"convert": "lend", "revert": "return"}
"""What people read of a verdict, by what documents say of it; others are the word themselves."""
QUEUE_WORDS = {**VERDICT_WORDS, "keep": "nothing"}
"""The same of a queue: it is not the queue that is kept."""


class Objection(Value):
    """Why something that is wanted is not done; without one it may be."""

    reason: Why
    detail: str = ""

    @property
    def sentence(self) -> str:
        """As people read it."""
        return f"{self.reason.text}: {self.detail}" if self.detail else self.reason.text


class NodeVerdict(Objection, kw_only=True):
    """What is decided of a node, and why."""

    node: str
    verdict: Verdict


class QueueVerdict(Objection, kw_only=True):
    """`pods` names pods of several people: the record may have it, an Event on a pod may not."""

    queue: str
    verdict: Verdict
    pods: str = ""

    @property
    def sentence(self) -> str:
        said = "; ".join(filter(None, (self.detail, self.pods)))
        return Objection(reason=self.reason, detail=said).sentence

    @property
    def without_pods(self) -> str:
        """The sentence that names no pod."""
        return super().sentence
