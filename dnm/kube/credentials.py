"""Credential plug-ins (client.authentication.k8s.io) and OIDC, which few kubeconfigs have.

The official client waits for a plug-in without a limit, reads all that it prints, and goes on
without credentials if it fails. It does not check who can write the program
(`tests/kube/test_clients_own.py`). dnm checks that first and runs the program within bounds: one
that hangs, or prints without an end, is ended with all processes that it started.
"""

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
from dnm.host.trust import check_trust
from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.errors import KubeError
from dnm.model.printable import printable
from dnm.model.value import Moment

_EARLY = timedelta(minutes=2)  # before its end a token is asked for again
_CONFIG = "client.authentication.k8s.io/exec"  # the extension of a cluster that is its plug-in's
_LARGEST = 1 << 20  # bytes; a token and a chain of certificates have some thousand
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_SKEW = 300  # seconds before its end the client takes an id-token for over


class _Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: str = ""


class _ExecSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The `exec` of a user, as the kubeconfig has it."""

    command: str = ""
    api_version: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: Literal["", "Never", "IfAvailable", "Always"] = ""

    def check(self) -> None:
        """Raises ValueError for what client-go refuses, and for what can't be done from cron."""
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


class _Given(msgspec.Struct, frozen=True, rename="camel"):
    """The status of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Moment | None = None

    def is_due(self) -> bool:
        """Tells whether it ends soon, or has ended."""
        ends = self.expiration_timestamp
        return ends is not None and datetime.now(UTC) + _EARLY > ends


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    """What it prints."""

    api_version: str
    kind: Literal["ExecCredential"]
    status: _Given


_decode = msgspec.json.Decoder(_Credential).decode


class ExecPlugin:
    """What a plug-in gives, asked again for a token that ends soon. A relative command with a slash
    is relative to `base`, the folder of its kubeconfig. Raises KubeError."""

    def __init__(
        self, given: Mapping[str, Any], base: Path, source: str, timeout: timedelta
    ) -> None:
        """`given`: the `exec` of a user. Raises ValueError."""
        try:
            settings = msgspec.convert(given, _ExecSettings)
        except msgspec.ValidationError as error:
            raise ValueError(f"its exec plug-in: {error}") from error
        settings.check()
        command = settings.command
        found = str(base / command) if "/" in command else shutil.which(command) or command
        self._program, self._settings = found, settings
        self._source, self._timeout = source, timeout
        self._cluster: dict[str, Any] = {}
        self._known = _Given()

    def ask(self, cluster: Mapping[str, Any], authority: bytes) -> dict[str, bytes]:
        """Asks it first; returns the certificate and key that it gives, by a kubeconfig's words."""
        known = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        self._cluster = {key: cluster[key] for key in known if cluster.get(key)}
        if authority:
            self._cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
        for extension in cluster.get("extensions") or ():
            if extension.get("name") == _CONFIG:
                self._cluster["config"] = extension.get("extension")
        given = self._known = self._run()
        certificate, key = given.client_certificate_data, given.client_key_data
        if bool(certificate) != bool(key) or not (given.token or certificate):
            raise self._refusal("gave neither a token nor a certificate with its key")
        if not certificate:
            return {}
        return {"client-certificate": certificate.encode(), "client-key": key.encode()}

    def token(self) -> str:
        """The token that holds now; empty where it gives a certificate."""
        if self._known.is_due():
            self._known = self._run()
        return self._known.token

    def _run(self) -> _Given:
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
                "took longer than a request may to give credentials and was ended: run it by hand"
            ) from error
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise self._refusal(
                    f"printed more than {_LARGEST} bytes and was ended: run it by hand"
                ) from error
            raise self._refusal(f"can't be started: {error.strerror or error}") from error
        if done.returncode:
            secrets = Secrets([*own.values(), *secrets_by_name(os.environ)])
            text = secrets.hide(done.stderr.decode(errors="replace"))
            said = printable(" ".join(text.split())[:400])
            raise self._refusal(f"gave nothing, exit code {done.returncode}: {said}")
        return self._read(done.stdout)

    def _request(self) -> str:
        """What it is told of who asks: never a terminal, for there may be none."""
        spec: dict[str, Any] = {"interactive": False}
        if self._settings.provide_cluster_info:
            spec["cluster"] = self._cluster
        version = self._settings.api_version
        return json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})

    def _read(self, printed: bytes) -> _Given:
        try:
            given = _decode(printed)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            why = printable(str(error), 200)
            raise self._refusal(f"did not print an ExecCredential: {why}") from error
        if given.api_version != self._settings.api_version:
            raise self._refusal(
                f"printed an ExecCredential of {printable(given.api_version, 60)}, and the "
                f"kubeconfig says {self._settings.api_version}"
            )
        return given.status

    def _refusal(self, why: str) -> KubeError:
        hint = f"; {self._settings.install_hint}" if self._settings.install_hint else ""
        return KubeError(f"can't use {self._source}: its plug-in {self._program} {why}{hint}")


def check_provider(provider: Any) -> None:
    """Raises ValueError where an auth-provider can't be used: OIDC can, whose token the client
    reads. One that has ended is not renewed here: the client would do it without a limit of time,
    would not verify whom it asks where no authority is named, and would use up the kubeconfig's own
    refresh token."""
    config = provider.get("config") if isinstance(provider, dict) else None
    if not isinstance(config, dict) or provider.get("name") != "oidc":
        raise ValueError(
            "it has an auth-provider that kubectl gave up in 1.26: use an exec plug-in"
        )
    try:
        _, claims, _ = config["id-token"].split(".")
        ends = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        is_over = float(ends) - _SKEW < time.time()
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            "its auth-provider oidc has no id-token that tells when it ends: use an exec plug-in"
        ) from error
    if is_over:
        raise ValueError(
            "the id-token of its auth-provider oidc has ended, or ends within five minutes: renew "
            "it by kubectl, or use an exec plug-in, which dnm asks by itself"
        )
