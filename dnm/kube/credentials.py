"""Credentials by plug-ins (client.authentication.k8s.io) and OIDC, which few kubeconfigs have.

The official client waits for a plug-in without a limit, reads all its output, and continues without
credentials if it fails. It does not check who can write the program
(`tests/kube/test_clients_own.py`). dnm checks that first, and runs the program with limits of time
and output. It ends a plug-in that exceeds them, with all processes that the plug-in started."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.programs import TimeoutExpired, run_bounded
from dnm.host.trust import check_trust, read_trusted
from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.errors import KubeError
from dnm.model.printable import printable
from dnm.model.value import Moment

_EARLY = timedelta(minutes=2)  # dnm requests a new token so long before the end of the old one
_CONFIG = "client.authentication.k8s.io/exec"  # the cluster's extension for its plug-in
_LARGEST = 1 << 20  # bytes; a token and a chain of certificates have some thousand
_LARGEST_FILE = 4 << 20  # bytes, as of a kubeconfig
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_SKEW = 300  # seconds before its end, from when the client treats an id-token as expired


class _Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: str = ""


class _ExecSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The section `exec` of a user, as the kubeconfig has it."""

    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["", "Never", "IfAvailable", "Always"] = ""

    def check(self) -> None:
        """Raises ValueError for settings that client-go refuses or that are impossible in cron."""
        if not self.command:
            raise ValueError("its exec plug-in has no command")
        if self.api_version not in _VERSIONS:
            raise ValueError(
                f"apiVersion of its exec plug-in is {self.api_version!r}: one of {_VERSIONS}"
            )
        if self.interactive_mode == "Always":
            raise ValueError(
                "its exec plug-in wants a terminal (interactiveMode: Always); dnm has none"
            )
        if not self.interactive_mode and self.api_version == _VERSIONS[0]:
            raise ValueError("its exec plug-in has no interactiveMode: write Never or IfAvailable")


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of an ExecCredential, which a plug-in prints: the credentials and their end."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Moment | None = None

    def is_due(self) -> bool:
        """Returns whether the credential has expired or expires soon."""
        ends = self.expiration_timestamp
        return ends is not None and datetime.now(UTC) + _EARLY > ends


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    """The ExecCredential that a plug-in prints."""

    api_version: str
    kind: Literal["ExecCredential"]
    status: _ExecStatus


_decode = msgspec.json.Decoder(_Credential).decode


class ExecPlugin:
    """A credential plug-in of a kubeconfig in the folder `base`, to which a relative command with a
    slash refers. dnm renews the credentials before they end. The methods raise KubeError."""

    def __init__(
        self, exec_entry: Mapping[str, Any], base: Path, source: str, timeout: timedelta
    ) -> None:
        """`exec_entry` is the section `exec` of a user. Raises ValueError if it is invalid."""
        try:
            settings = msgspec.convert(exec_entry, _ExecSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"its exec plug-in: {error}") from error
        settings.check()
        command = settings.command
        program = str(base / command) if "/" in command else shutil.which(command) or command
        self._program, self._settings = program, settings
        self._source, self._timeout = source, timeout
        self._cluster: dict[str, Any] = {}
        self._known = _ExecStatus()

    def ask(self, cluster: Mapping[str, Any], authority: bytes) -> dict[str, bytes]:
        """Runs the plug-in the first time. Returns its client certificate and key under their names
        in a kubeconfig, or an empty dictionary if the plug-in gives a token."""
        server_keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        self._cluster = {key: cluster[key] for key in server_keys if cluster.get(key)}
        if authority:
            self._cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
        for extension in cluster.get("extensions") or ():
            if extension.get("name") == _CONFIG:
                self._cluster["config"] = extension.get("extension")
        status = self._known = self._run()
        certificate, key = status.client_certificate_data, status.client_key_data
        if bool(certificate) != bool(key) or not (status.token or certificate):
            raise self._refusal("gave neither a token nor a certificate with its key")
        if not certificate:
            return {}
        return {"client-certificate": certificate.encode(), "client-key": key.encode()}

    def token(self) -> str:
        """Returns the current token; empty if the plug-in gives a certificate."""
        if self._known.is_due():
            self._known = self._run()
        return self._known.token

    def _run(self) -> _ExecStatus:
        settings = self._settings
        own = {variable.name: variable.value for variable in settings.env or ()}
        try:
            check_trust(Path(self._program), KubeError)
            with fault_point("kube.plugin_start"):
                done = run_bounded(
                    [self._program, *(settings.args or ())],
                    {**os.environ, **own, "KUBERNETES_EXEC_INFO": self._request()},
                    self._timeout.total_seconds(),
                    _LARGEST,
                )
        except TimeoutExpired as error:
            raise self._refusal(
                "took longer than a request may to give credentials and was ended: run it manually"
            ) from error
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise self._refusal(
                    f"printed more than {_LARGEST} bytes and was ended: run it manually"
                ) from error
            raise self._refusal(f"can't be started: {error.strerror or error}") from error
        if done.returncode:
            secrets = Secrets([*own.values(), *secrets_by_name(os.environ)])
            text = secrets.hide(done.stderr.decode(errors="replace"))
            printed = printable(" ".join(text.split())[:400]) or "no message"
            raise self._refusal(f"failed, exit code {done.returncode}: {printed}: run it manually")
        return self._read(done.stdout)

    def _request(self) -> str:
        """Returns KUBERNETES_EXEC_INFO: not interactive, and the cluster if `exec` requests it."""
        spec: dict[str, Any] = {"interactive": False}
        if self._settings.provide_cluster_info:
            spec["cluster"] = self._cluster
        version = self._settings.api_version
        return json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})

    def _read(self, printed: bytes) -> _ExecStatus:
        try:
            credential = _decode(printed)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = printable(str(error), 200)
            raise self._refusal(f"did not print an ExecCredential: {why}") from error
        if credential.api_version != self._settings.api_version:
            raise self._refusal(
                f"printed an ExecCredential of {printable(credential.api_version, 60)}, but the "
                f"kubeconfig has {self._settings.api_version}"
            )
        return credential.status

    def _refusal(self, why: str) -> KubeError:
        hint = f"; {self._settings.install_hint}" if self._settings.install_hint else ""
        return KubeError(f"can't use {self._source}: its plug-in {self._program} {why}{hint}")


def check_provider(provider: Any) -> None:
    """Raises ValueError for an auth-provider that dnm cannot use. OIDC works, because the client
    reads its token. dnm does not let the client renew an expired token. The client would do so
    without a time limit, would not verify the issuer if no authority is named, and would use up the
    kubeconfig's own refresh token."""
    config = provider.get("config") if isinstance(provider, dict) else None
    if not isinstance(config, dict) or provider.get("name") != "oidc":
        raise ValueError(
            "it has an auth-provider that kubectl removed in 1.26: use an exec plug-in"
        )
    try:
        _, claims, _ = config["id-token"].split(".")
        ends = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        is_over = float(ends) - _SKEW < time.time()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            "its auth-provider oidc has no id-token with a time of its end: use an exec plug-in"
        ) from error
    if is_over:
        raise ValueError(
            "the id-token of its auth-provider oidc has ended, or ends within five minutes: renew "
            "it with kubectl, or use an exec plug-in, which dnm runs itself"
        )


def read_token(path: Path, otherwise: str) -> str:
    """Returns the current token in the file, or `otherwise` if the file cannot be read, as
    client-go does (NewBearerAuthWithRefreshRoundTripper). Raises KubeError if both are missing."""
    try:
        return read_trusted(path, _LARGEST_FILE, KubeError).decode("ascii").strip() or otherwise
    except (OSError, ValueError) as error:
        if otherwise:
            return otherwise
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        step = "check that the file exists and that dnm's user may read it"
        raise KubeError(f"can't read the token {path}: {why}: {step}") from error
