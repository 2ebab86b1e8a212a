"""The fields of a kubeconfig, and what client-go refuses of them (tools/clientcmd: api/v1/types.go,
validation.go).

The rule: what client-go refuses is refused, and so is what is not understood. A text where a truth
value belongs never means "do not verify", and a key that would make dnm somebody else is not passed
over in silence.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    extensions: list[dict[str, Any]] | None = None


class KubeconfigCluster(_Strict, frozen=True, kw_only=True):
    """A cluster, as the file has it."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None


class User(_Strict, frozen=True, kw_only=True):
    """Who dnm is to the cluster, as the file has it."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec_plugin: dict[str, Any] | None = msgspec.field(name="exec", default=None)
    # Known, so that they are refused with a reason of their own.
    as_user: Any = msgspec.field(name="as", default=None)
    as_uid: Any = None
    as_groups: Any = None
    as_user_extra: Any = None
    auth_provider: Any = None


class Context(_Strict, frozen=True, kw_only=True):
    """Which of the users meets which of the clusters."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


def check_cluster(cluster: KubeconfigCluster) -> None:
    """Raises ValueError for what client-go's validateClusterInfo, and its TLS configuration,
    refuse."""
    if not cluster.server:
        raise ValueError("its cluster has no server")
    if not _is_url(cluster.server):
        raise ValueError(f"its cluster has the server {cluster.server!r}: that is no URL")
    has_ca = cluster.certificate_authority or cluster.certificate_authority_data
    if cluster.certificate_authority and cluster.certificate_authority_data:
        raise ValueError(
            "certificate-authority and certificate-authority-data are both given: keep one"
        )
    if cluster.insecure_skip_tls_verify and has_ca:
        raise ValueError(
            "insecure-skip-tls-verify is true and a certificate authority is given: take "
            "insecure-skip-tls-verify away"
        )
    if cluster.proxy_url and urlsplit(cluster.proxy_url).scheme not in ("http", "https"):
        raise ValueError(
            f"proxy-url = {cluster.proxy_url!r}: only http:// and https:// can be used"
        )


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def check_user(user: User) -> None:
    """Raises ValueError for what client-go's validateAuthInfo refuses, and for what dnm does not
    do."""
    impersonation = (user.as_user, user.as_uid, user.as_groups, user.as_user_extra)
    if any(value is not None for value in impersonation):
        raise ValueError(
            "it acts as somebody else (as, as-uid, as-groups): dnm acts as its own account only"
        )
    if user.auth_provider is not None and user.exec_plugin is not None:
        raise ValueError("auth-provider and an exec plug-in are both given: keep the plug-in")
    if user.token and (user.username or user.password):
        raise ValueError("token and username are both given: keep one")
    certificates = bool(user.client_certificate), bool(user.client_certificate_data)
    keys = bool(user.client_key), bool(user.client_key_data)
    if all(certificates) or (any(certificates) and all(keys)):
        raise ValueError(
            "client-certificate or client-key is given as a file and as data: keep one"
        )
    if any(certificates) != any(keys):
        raise ValueError("client-certificate and client-key belong together, and only one is given")
