"""Runs of dnm that are killed at a write."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.real.programs import HUNG
from tests.real.proxy import Seen, proxied
from tests.real.site import Site

Kind = tuple[str, str]  # of a write: method, name of the object


def killed_run(
    site: Site, kubeconfig: Path, directory: Path, when: str, seen_before: set[Kind]
) -> None:
    """Plays a run of the site through a proxy, which kills it at its first write of a new kind,
    `before` or `after` the API server gets the write."""
    with proxied(site.rig, kubeconfig, directory) as proxy:
        site.use_kubeconfig(proxy.kubeconfig)
        process: list[subprocess.Popen[str]] = []
        struck: list[Kind] = []

        def strike(seen: Seen) -> None:
            kind = (seen.method, seen.path.rpartition("/")[2])
            if seen.is_write and not struck and kind not in seen_before:
                struck.append(kind)
                process[0].send_signal(signal.SIGKILL)
                process[0].wait()

        setattr(proxy, when, strike)
        process.append(site.start("run"))
        process[0].communicate(timeout=HUNG)
        seen_before |= set(struck)
    site.use_kubeconfig(kubeconfig)
