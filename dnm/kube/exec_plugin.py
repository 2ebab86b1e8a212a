"""Credential plug-ins of a kubeconfig (client.authentication.k8s.io), run by the official client.

The client waits for ever and does not look whose program it is. So the program is judged first, and
run by `timeout`: one that hangs is ended with all that it started.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from dnm.host.fault_points import fault_point
from dnm.host.trust import check_trust
from dnm.kube.kubeconfig_fields import ExecSettings
from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.errors import KubeError
from dnm.model.printable import printable

_EARLY = timedelta(minutes=2)  # before its end a token is asked for again
_KILLED = "process returned -9"  # what `timeout` and the client make of one that hangs


class _Given(msgspec.Struct, frozen=True, rename="camel"):
    """The status of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None

    def is_due(self) -> bool:
        """Tells whether it ends soon, or has ended."""
        ends = self.expiration_timestamp
        return ends is not None and datetime.now(UTC) + _EARLY > ends.astimezone(UTC)


class ExecPlugin:
    """What a plug-in gives, asked again for a token that ends soon. A relative command with a slash
    is relative to `base`, the folder of its kubeconfig. Raises KubeError."""

    def __init__(self, settings: ExecSettings, base: Path, source: str, timeout: timedelta) -> None:
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
        from kubernetes.config import ConfigException
        from kubernetes.config.exec_provider import ExecProvider
        from kubernetes.config.kube_config import ConfigNode

        settings, seconds = self._settings, self._timeout.total_seconds()
        called = {
            "apiVersion": settings.api_version,
            "command": "timeout",
            "args": ["--signal=KILL", str(seconds), self._program, *(settings.args or ())],
            "env": [{"name": one.name, "value": one.value} for one in settings.env or ()],
            "provideClusterInfo": settings.provide_cluster_info,
        }
        try:
            check_trust(Path(self._program), KubeError)
            with fault_point("kube.plugin_start"):
                provider = ExecProvider(
                    ConfigNode("exec", called), "", ConfigNode("cluster", self._cluster)
                )
                return msgspec.convert(provider.run(), _Given)
        except OSError as error:
            raise self._refusal(f"can't be started: {error.strerror or error}") from error
        except msgspec.ValidationError as error:
            raise self._refusal(f"did not print an ExecCredential: {error}") from error
        except (ConfigException, UnicodeDecodeError) as error:
            if _KILLED in str(error):
                raise self._refusal(
                    "took longer than request_timeout_seconds to give credentials and was ended: "
                    "run it by hand"
                ) from error
            own = [variable.value for variable in settings.env or ()]
            secrets = Secrets([*own, *secrets_by_name(os.environ)])
            said = printable(" ".join(secrets.hide(str(error)).split())[:400])
            raise self._refusal(f"gave nothing: {said}") from error

    def _refusal(self, why: str) -> KubeError:
        hint = f"; {self._settings.install_hint}" if self._settings.install_hint else ""
        return KubeError(f"can't use {self._source}: its plug-in {self._program} {why}{hint}")
