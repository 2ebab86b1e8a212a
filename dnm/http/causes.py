"""The cause of a failed request, found behind urllib3's error."""

from __future__ import annotations

from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from ssl import SSLEOFError

from urllib3.exceptions import HTTPError, PoolError, ProxyError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

CUT = "the connection was cut in the middle of the answer"
NO_ANSWER = "the server closed the connection without an answer"


class NoHttp(ConnectionError):
    """The error for an answer that is not HTTP."""


class ProxyFailed(OSError):
    """The error for a connection that failed at the proxy."""


def cause_of(error: BaseException) -> Exception:
    """Returns the error that made urllib3 raise `error`, such as a refused connection."""
    cause, is_of_proxy = error, False
    while isinstance(cause, HTTPError):
        is_of_proxy |= isinstance(cause, ProxyError)
        cause = cause.__cause__ or cause.__context__ or _without_cause(cause)
    if is_of_proxy and isinstance(cause, OSError):
        return ProxyFailed(cause.strerror or str(cause))
    if isinstance(cause, SSLEOFError | IncompleteRead):
        return ConnectionResetError(CUT)
    if isinstance(cause, RemoteDisconnected):
        return ConnectionResetError(NO_ANSWER)
    if isinstance(cause, HTTPException):
        return NoHttp(f"the answer can't be understood: {cause or type(cause).__name__}")
    return cause if isinstance(cause, OSError | ValueError) else ValueError(str(error))


def _without_cause(error: HTTPError) -> Exception:
    """Returns an error with the same meaning as urllib3's, in words for an administrator, who does
    not know its pools."""
    if isinstance(error, HTTPTimeoutError):
        return TimeoutError("it exceeded its time")
    is_of_pool = isinstance(error, PoolError)
    return ValueError(f"the request failed ({type(error).__name__})" if is_of_pool else str(error))
