"""Where a server is and how to prove who asks: an `Access`, loaded once a run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one server. Empty means not given."""

    server: str  # URL, without a slash at its end
    source: str  # what it was read from, for messages
    authorization: Callable[[], str]  # value of the header, refreshed when it is due
    ca_pem: bytes = b""
    cert_pem: bytes = b""
    key_pem: bytes = b""
    verify: bool = True
    server_name: str = ""  # expected in the certificate, where it is not the host
    proxy: str = ""
    no_proxy: str = ""

    def __repr__(self) -> str:
        """Without keys, tokens and a proxy's password: it may end in a log."""
        return f"Access({self.server!r}, {self.source!r})"
