"""Credential plug-ins of a kubeconfig (client.authentication.k8s.io), run within a limit of time.

The rule: a plug-in that hangs is ended with all that it started; nothing of it outlives the run.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from dnm.host.fault_points import fault_point
from dnm.kube.kubeconfig_fields import ExecSettings
from dnm.model.blackout import Secrets, secrets_by_name
from dnm.model.errors import KubeError
from dnm.model.printable import printable

_LARGEST = 1 << 20  # bytes of its answer that are read
_LARGEST_FILE = 1 << 26  # bytes that it may write into one file, its answer among them
_EARLY = timedelta(minutes=2)  # before its end a token is asked for again


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """All that running it needs. A relative command with a slash is relative to `base`."""

    settings: ExecSettings
    base: Path
    cluster: Mapping[str, Any]
    ca_pem: bytes
    source: str
    timeout: timedelta

    @property
    def program(self) -> str:
        command = self.settings.command
        return str(self.base / command) if "/" in command else command


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What a plug-in gave; `expires` None: never."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: datetime | None = None

    def is_due(self) -> bool:
        """Tells whether it ends soon, or has ended."""
        return self.expires is not None and datetime.now(UTC) + _EARLY > self.expires


class _CredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    kind: Literal["ExecCredential"]
    api_version: str
    status: _CredentialStatus


def run_plugin(plugin: ExecPlugin) -> Credential:
    """Runs it and returns what it gives. Raises KubeError: it can't be started, fails, says
    something else, or takes longer than `timeout`, and is then ended with its children."""
    out, err = (os.memfd_create(name) for name in ("plug-in", "plug-in-errors"))
    try:
        code = _run(plugin, out, err)
        said, told = (os.pread(descriptor, _LARGEST, 0) for descriptor in (out, err))
    finally:
        os.close(out)
        os.close(err)
    if code != 0:
        own = [variable.value for variable in plugin.settings.env or ()]
        secrets = Secrets([*own, *secrets_by_name(os.environ)])
        last = printable(secrets.hide(told.decode(errors="replace").strip())[-300:])
        hint = f"; {plugin.settings.install_hint}" if plugin.settings.install_hint else ""
        raise _refusal(plugin, f"ended with exit code {code}: {last}{hint}")
    try:
        answer = msgspec.json.decode(said, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _refusal(plugin, f"did not print an ExecCredential: {error}") from error
    status = answer.status
    if answer.api_version != plugin.settings.api_version:
        raise _refusal(plugin, f"printed apiVersion {answer.api_version[:80]!r}")
    has_certificate = bool(status.client_certificate_data)
    if has_certificate != bool(status.client_key_data) or not (status.token or has_certificate):
        raise _refusal(plugin, "gave neither a token nor a certificate with its key")
    expires = status.expiration_timestamp
    return Credential(
        token=status.token,
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        expires=expires.astimezone(UTC) if expires is not None else None,
    )


def _run(plugin: ExecPlugin, out: int, err: int) -> int:
    settings = plugin.settings
    command = [plugin.program, *(settings.args or ())]
    try:
        with fault_point("kube.plugin_start"):
            process = subprocess.Popen(
                command,
                env={**os.environ, **_variables(plugin)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
    except OSError as error:
        hint = f"; {settings.install_hint}" if settings.install_hint else ""
        raise _refusal(plugin, f"can't be started: {error.strerror}{hint}") from error
    with suppress(ProcessLookupError):
        limit = (_LARGEST_FILE, _LARGEST_FILE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limit)
    try:
        return process.wait(plugin.timeout.total_seconds())
    except subprocess.TimeoutExpired as error:
        raise KubeError(
            f"{plugin.source}: its plug-in {plugin.program} took longer than "
            "request_timeout_seconds to give credentials and was ended: run it by hand"
        ) from error
    finally:
        if process.returncode is None:
            with suppress(OSError), fault_point("kube.plugin_end"):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _variables(plugin: ExecPlugin) -> dict[str, str]:
    """Its own variables, and what client-go tells a plug-in of the call."""
    settings = plugin.settings
    spec: dict[str, Any] = {"interactive": False}
    if settings.provide_cluster_info:
        known = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        cluster = {key: plugin.cluster[key] for key in known if plugin.cluster.get(key)}
        if plugin.ca_pem:
            import base64

            cluster["certificate-authority-data"] = base64.b64encode(plugin.ca_pem).decode()
        spec["cluster"] = cluster
    info = {"apiVersion": settings.api_version, "kind": "ExecCredential", "spec": spec}
    own = {variable.name: variable.value for variable in settings.env or ()}
    return {**own, "KUBERNETES_EXEC_INFO": json.dumps(info)}


def _refusal(plugin: ExecPlugin, why: str) -> KubeError:
    return KubeError(f"can't use {plugin.source}: its plug-in {plugin.program} {why}")
