"""Changes of limits by other clients."""

from __future__ import annotations

from dnm.model.value import Value


class LimitNews(Value):
    """A change of limits by another client. `is_reset`: the limits are back at their baselines."""

    queue: str
    text: str
    is_reset: bool = False

    @property
    def note(self) -> str:
        return f"{self.queue}: {self.text}"
