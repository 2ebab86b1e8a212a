"""The errors of the Kubernetes API, each as a sentence with the next step.

Before dnm prints texts from the cluster, it cuts them and removes control characters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import msgspec

from dnm.http.causes import NoHttp
from dnm.kube.access import Access
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.printable import printable
from dnm.model.quantity import QuantityError

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds between two attempts


class ApiRefused(KubeError):
    """A refusal by the API server: the HTTP status, and reason and message of its `Status`."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason})".replace(" )", ")"))
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after  # seconds that the server requests to wait, bounded


class ListTooLarge(KubeError):
    """The error for a LIST that exceeds the time or the page size that dnm allows."""


class LostAnswer(KubeError):
    """The error for a write without an answer, so that its outcome is unknown."""


def clean(text: str, limit: int = 600) -> str:
    """Returns a text from the cluster as one printable line of at most `limit` characters."""
    return printable(" ".join(text[: 4 * limit].split()), limit)


def describe(error: BaseException) -> str:
    """Returns why a connection failed or an answer is invalid, as the end of a sentence."""
    if isinstance(error, TimeoutError):
        return "no complete answer in its time"
    if isinstance(error, NoHttp):
        return clean(str(error))
    if isinstance(error, OSError):
        detail = getattr(error, "verify_message", "") or error.strerror or str(error)
        return clean(detail) or type(error).__name__
    return f"the answer can't be understood: {clean(str(error)) or type(error).__name__}"


@contextmanager
def asking(access: Access, task: str, rule: str, is_write: bool = False) -> Iterator[None]:
    """Turns every failure into a KubeError, which begins "can't `task`". After a 403 it names
    `rule`, the missing permission. Raises KubeConflict for 409 and ApiRefused for statuses that a
    caller may distinguish."""
    try:
        yield
    except ApiRefused as error:
        raise _explain_refusal(access, task, rule, error) from error
    except LostAnswer as error:
        raise KubeError(_unknown_outcome(task, str(error))) from error
    except ListTooLarge as error:
        raise ListTooLarge(f"can't {task}: {error}") from error
    except KubeError:
        raise
    except OSError as error:  # first: a refused certificate is a ValueError too
        from dnm.kube.next_step import next_step

        sentence = f"can't {task}: {access.server}: {describe(error)}: {next_step(access, error)}"
        raise KubeError(sentence) from error
    except (msgspec.MsgspecError, QuantityError, ValueError, RecursionError) as error:
        detail = describe(error)
        sentence = _unknown_outcome(task, detail) if is_write else f"can't {task}: {detail}"
        raise KubeError(sentence) from error


def _unknown_outcome(task: str, detail: str) -> str:
    return f"it is not known whether dnm could {task}: {detail}: check it before a second try"


def _explain_refusal(access: Access, task: str, rule: str, error: ApiRefused) -> KubeError:
    sentence = f"can't {task}: {error}"
    if error.status == 409:
        return KubeConflict(f"{sentence}: another client wrote in between, read it again")
    from dnm.kube.next_step import step_after_refusal

    refusal = ApiRefused(error.status, error.reason, error.message)
    refusal.args = (f"{sentence}{step_after_refusal(access, error.status, rule)}",)
    return refusal


def repeat_on_conflict(
    attempt: Callable[[], T],
    timeout: timedelta,
    pause: Callable[[timedelta], object] = lambda length: time.sleep(length.total_seconds()),
) -> T:
    """Calls `attempt`, which reads and changes an object, again each time that another client
    writes the object in between. Kubelets and operators write Nodes at any time. Raises
    KubeConflict if the last attempt within `timeout` fails too."""
    deadline = time.monotonic() + timeout.total_seconds()
    length = _FIRST_PAUSE
    while True:
        try:
            return attempt()
        except KubeConflict:
            if time.monotonic() > deadline:
                raise
        pause(timedelta(seconds=length))
        length = min(1.6 * length, _LONGEST_PAUSE)
