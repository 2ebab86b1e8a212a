"""The fields of a kubeconfig, and the checks of client-go (tools/clientcmd: api/v1/types.go,
validation.go).

dnm refuses everything that client-go refuses, and every key that it does not understand, because
such a key may change which server or user it uses. A text where a truth value belongs is an error
and never means "do not verify"."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec


class _Strict(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    extensions: list[dict[str, Any]] | None = None


class KubeconfigCluster(_Strict, frozen=True, kw_only=True):
    """A cluster of a kubeconfig, with the keys that the file may have."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None


class User(_Strict, frozen=True, kw_only=True):
    """A user of a kubeconfig: the credentials, with the keys that the file may have."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec_plugin: dict[str, Any] | None = msgspec.field(name="exec", default=None)
    # These are defined so that each is refused with its own reason.
    as_user: Any = msgspec.field(name="as", default=None)
    as_uid: Any = None
    as_groups: Any = None
    as_user_extra: Any = None
    auth_provider: Any = None


class Context(_Strict, frozen=True, kw_only=True):
    """A context of a kubeconfig: the names of a user and of a cluster."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


def check_cluster(cluster: KubeconfigCluster) -> None:
    """Raises ValueError for what client-go's validateClusterInfo or TLS configuration refuses."""
    server, proxy = cluster.server or "", cluster.proxy_url or ""
    way = urlsplit(proxy).scheme  # a password may follow
    file, data = cluster.certificate_authority, cluster.certificate_authority_data
    _refuse(
        (not server, "its cluster has no server"),
        (not _is_url(server), f"its cluster has the server {server!r}: that is not a URL"),
        (file and data, "certificate-authority and certificate-authority-data are both given: "
         "keep one"),
        (cluster.insecure_skip_tls_verify and (file or data), "insecure-skip-tls-verify is true "
         "and a certificate authority is given: remove insecure-skip-tls-verify"),
        (proxy and way not in ("http", "https"),
         f"proxy-url begins with {way!r}: only http:// and https:// can be used"),
    )  # fmt: skip


def _refuse(*rules: tuple[object, str]) -> None:
    """Raises ValueError for the first broken rule; a rule is (whether it is broken, the error)."""
    for is_broken, why in rules:
        if is_broken:
            raise ValueError(why)


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def check_user(user: User) -> None:
    """Raises ValueError for what client-go's validateAuthInfo refuses or dnm does not support."""
    impersonation = (user.as_user, user.as_uid, user.as_groups, user.as_user_extra)
    certificates = user.client_certificate, user.client_certificate_data
    keys = user.client_key, user.client_key_data
    _refuse(
        (any(value is not None for value in impersonation), "it impersonates a user (as, as-uid, "
         "as-groups): dnm acts as its own account only"),
        (user.auth_provider is not None and user.exec_plugin is not None,
         "auth-provider and an exec plug-in are both given: keep the plug-in"),
        (user.token and (user.username or user.password),
         "token and username are both given: keep one"),
        (all(certificates) or (any(certificates) and all(keys)),
         "client-certificate or client-key is given as a file and as data: keep one"),
        (any(certificates) != any(keys),
         "client-certificate and client-key belong together, and only one is given"),
    )  # fmt: skip
