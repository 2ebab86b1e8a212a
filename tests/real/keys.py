"""Certificates, keys and kubeconfigs of the real cluster, made by openssl. They are valid from
yesterday, for hosts with a slow clock, until tomorrow."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.real.clocks import shifted

DAYS = "2"
YESTERDAY = -24 * 60 * 60  # seconds from now
ADMINS = "system:masters"
# file name -> subject of its client certificate
CLIENTS = {
    "admin": f"/O={ADMINS}/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "yunikorn": f"/O={ADMINS}/CN=yunikorn",
    "kwok": f"/O={ADMINS}/CN=kwok",
    "kueue": f"/O={ADMINS}/CN=kueue",
}


def openssl(*arguments: str) -> None:
    environment = {**os.environ, **shifted(YESTERDAY)}
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, env=environment)


def make_keys(directory: Path, addresses: list[str], server: str) -> None:
    """Writes ca, apiserver and client certificates, sa.key and sa.pub, and NAME.kubeconfig."""
    directory.mkdir(mode=0o700)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        "req", "-x509", *key, "-days", DAYS, "-subj", "/CN=rig", "-keyout", f"{directory}/ca.key",
        "-out", f"{directory}/ca.crt",
    )  # fmt: skip
    openssl("genrsa", "-out", f"{directory}/sa.key", "2048")
    openssl("rsa", "-in", f"{directory}/sa.key", "-pubout", "-out", f"{directory}/sa.pub")
    names = [
        "DNS:localhost",
        "DNS:kubernetes.default.svc",
        *(f"IP:{address}" for address in addresses),
    ]
    extension = f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n"
    make_certificate(directory, "apiserver", "/CN=kube-apiserver", extension)
    for name, subject in CLIENTS.items():
        make_certificate(directory, name, subject, "extendedKeyUsage=clientAuth\n")
        write_kubeconfig(directory, name, server)


def make_certificate(directory: Path, name: str, subject: str, extension: str) -> None:
    base, extensions = directory / name, directory / f"{name}.ext"
    extensions.write_text(extension)
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject,
        "-keyout", f"{base}.key", "-out", f"{base}.csr",
    )  # fmt: skip
    openssl(
        "x509", "-req", "-in", f"{base}.csr", "-CA", f"{directory}/ca.crt",
        "-CAkey", f"{directory}/ca.key", "-CAcreateserial", "-days", DAYS, "-out", f"{base}.crt",
        "-extfile", str(extensions),
    )  # fmt: skip


def write_kubeconfig(directory: Path, name: str, server: str) -> None:
    """Writes a kubeconfig as JSON, which is YAML too: kubectl, client-go and dnm read it."""
    base = directory / name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rig",
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": name}}],
        "clusters": [
            {
                "name": "rig",
                "cluster": {"server": server, "certificate-authority": f"{directory}/ca.crt"},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {"client-certificate": f"{base}.crt", "client-key": f"{base}.key"},
            }
        ],
    }
    path = directory / f"{name}.kubeconfig"
    path.write_text(json.dumps(document, indent=1))
    path.chmod(0o600)
