"""The auth-provider of a kubeconfig that kubectl has left: OIDC, whose token the client reads.

A token that has ended is not renewed here: the client would do it without a limit of time, would
not verify whom it asks where no authority is named, and would use up the kubeconfig's own refresh
token.
"""

from __future__ import annotations

import base64
import json
import time
from typing import Any

_SKEW = 300  # seconds before its end the client takes a token for over


def object_to_provider(provider: Any) -> str:
    """Returns why it can't be used; empty: it can."""
    config = provider.get("config") if isinstance(provider, dict) else None
    if not isinstance(config, dict) or provider.get("name") != "oidc":
        return "it has an auth-provider that kubectl gave up in 1.26: use an exec plug-in"
    try:
        _, claims, _ = config["id-token"].split(".")
        ends = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        is_over = float(ends) - _SKEW < time.time()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return "its auth-provider oidc has no id-token that tells when it ends: use an exec plug-in"
    if is_over:
        return (
            "the id-token of its auth-provider oidc has ended, or ends within five minutes: renew "
            "it by kubectl, or use an exec plug-in, which dnm asks by itself"
        )
    return ""
