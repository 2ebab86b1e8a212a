"""How a run came to know the cluster's pods and nodes."""

from __future__ import annotations

from dnm.model.value import Value


class Reading(Value):
    """`way`: `list` or `changes`; `reason`: why it was the list (`kube/watch_log.py` has them all).
    `compared`: what the comparison of a list with what was kept has shown, if there was one:
    `equal`, `different` or `unproved`. `trouble`: a sentence for a person."""

    way: str = "list"
    reason: str = ""
    sentence: str = ""  # the reason in words
    changes: int = 0
    waited: float = 0.0  # seconds for the server to say that this was all
    compared: str = ""
    trouble: str = ""
