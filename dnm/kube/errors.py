"""What can go wrong at the Kubernetes API, each as one sentence that names the next step.

Texts of the cluster are cut and stripped of control characters before they are told to anybody.
"""

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
NO_DRY_RUN = "does not support dry run"  # of a webhook that declares side effects


class ApiRefused(KubeError):
    """The server answered with an error: the status of HTTP, reason and message of its `Status`."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason})".replace(" )", ")"))
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after  # seconds the server asks to wait, bounded


class ListTooLarge(KubeError):
    """A LIST that can't be read in the time, or in pages of the size, that dnm allows."""


class LostAnswer(KubeError):
    """A write was sent and its outcome is not known."""


def clean(text: str, limit: int = 600) -> str:
    """One printable line of a text that came from the cluster, its spaces drawn together, cut at
    `limit` characters."""
    return printable(" ".join(text[: 4 * limit].split()), limit)


def describe(error: BaseException) -> str:
    """What went wrong on the way, as the end of a sentence."""
    if isinstance(error, TimeoutError):
        return "no complete answer in its time"
    if isinstance(error, NoHttp):
        return clean(str(error))
    if isinstance(error, OSError):
        detail = getattr(error, "verify_message", "") or error.strerror or str(error)
        return clean(detail) or type(error).__name__
    return f"the answer can't be understood: {clean(str(error)) or type(error).__name__}"


@contextmanager
def asking(access: Access, what: str, rule: str, is_write: bool = False) -> Iterator[None]:
    """Turns every failure into a KubeError. `what` completes "can't", `rule` "permission to".

    Raises KubeConflict on 409, ApiRefused for the statuses that a caller may want to tell apart.
    """
    try:
        yield
    except ApiRefused as error:
        raise _explain_refusal(access, what, rule, error) from error
    except LostAnswer as error:
        raise KubeError(_unknown_outcome(what, str(error))) from error
    except ListTooLarge as error:
        raise ListTooLarge(f"can't {what}: {error}") from error
    except KubeError:
        raise
    except OSError as error:  # first: a refused certificate is a ValueError too
        from dnm.kube.next_step import next_step

        said = f"can't {what}: {access.server}: {describe(error)}: {next_step(access, error)}"
        raise KubeError(said) from error
    except (msgspec.MsgspecError, QuantityError, ValueError, RecursionError) as error:
        detail = describe(error)
        said = _unknown_outcome(what, detail) if is_write else f"can't {what}: {detail}"
        raise KubeError(said) from error


def _unknown_outcome(what: str, detail: str) -> str:
    return f"it is not known whether dnm could {what}: {detail}: look there before a second try"


def _explain_refusal(access: Access, what: str, rule: str, error: ApiRefused) -> KubeError:
    sentence = f"can't {what}: {error}"
    if error.status == 409:
        return KubeConflict(f"{sentence}: somebody wrote in between, read it again")
    if error.status == 401:
        sentence += f": renew the credentials of {access.source}"
    elif error.status == 403:
        sentence += f": give the account of {access.source} the permission to {rule}"
    refusal = ApiRefused(error.status, error.reason, error.message)
    refusal.args = (sentence,)
    return refusal


def repeat_on_conflict(
    attempt: Callable[[], T],
    timeout: timedelta,
    pause: Callable[[timedelta], object] = lambda length: time.sleep(length.total_seconds()),
) -> T:
    """Repeats an attempt that reads an object and changes it, while another client writes that
    object in between. Kubelets and operators write Nodes at any time. Raises KubeConflict if the
    last attempt within `timeout` meets one too."""
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
