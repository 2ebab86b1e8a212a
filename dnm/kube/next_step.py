"""The next step for an administrator if the API server cannot be reached, or refuses a request."""

from __future__ import annotations

from dnm.http.causes import ProxyFailed
from dnm.kube.access import Access

_OUT_OF_DATE, _OF_ANOTHER_NAME = (9, 10), (62, 64)  # of x509_vfy.h


def next_step(access: Access, error: OSError) -> str:
    """Returns, by the cause, what to do about a failed connection, as the end of a sentence."""
    if isinstance(error, ProxyFailed):
        return f"check proxy-url of {access.source}, HTTPS_PROXY and NO_PROXY"
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
        return f"the server does not use TLS there: correct server in {access.source}"
    refused = getattr(error, "verify_code", 0)
    if refused in _OUT_OF_DATE:
        return "renew the server's certificate, or set this host's clock"
    if refused in _OF_ANOTHER_NAME:
        return f"set server or tls-server-name in {access.source} to a name of the certificate"
    if refused:
        return f"add the certificate-authority of this server to {access.source}"
    return f"check that the server in {access.source} is the right one, and that it is up"


def step_after_refusal(access: Access, status: int, rule: str) -> str:
    """Returns, by the HTTP status, what to do about a refusal, as the end of a sentence, or an
    empty text. `rule` is the permission that the request needs."""
    if status == 401:
        return f": renew the credentials of {access.source}"
    if status == 403:
        return f": give the account of {access.source} the permission to {rule}"
    if status == 429:
        return ": wait until the API server has less load"
    return ": see the log of the API server, then try again" if status >= 500 else ""
