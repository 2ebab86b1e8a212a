"""A directory with everything that `dnm` needs to run against the static server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.cluster import NAMESPACES

# Answers `--list` with a few free batch nodes, without starting an interpreter.
_CONVERTER = """#!/bin/sh
printf 'NODE STATE IDLE VERDICT REASON\\n'
for node in a000 a001 a002 a003; do printf '%s IDLE 3600 OK\\n' "$node"; done
"""


def write_kubeconfig(path: Path, server: str) -> None:
    """Writes a plain kubeconfig with a token."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": {"server": server}}],
        "users": [{"name": "bench", "user": {"token": "no-secret"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
    path.write_text(json.dumps(document))
    path.chmod(0o600)


def write_site(directory: Path, server: str, more: str = "", lab: str = "") -> Path:
    """Writes a site's files and returns the path of its configuration. State, lock and converter
    are beside it. `more` and `lab` are further lines of [settings] and of [lab]."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    kubeconfig = directory / "kubeconfig"
    write_kubeconfig(kubeconfig, server)
    converter = directory / "node-convert"
    converter.write_text(_CONVERTER)
    converter.chmod(0o755)
    queues = {namespace: f"root.site.{namespace}" for namespace in NAMESPACES}
    queue_map = directory / "queues.json"
    queue_map.write_text(json.dumps(queues))
    config = directory / "dnm.ini"
    config.write_text(
        f"[lab]\npending_grace_seconds = 0\n{lab}[settings]\n"
        f"kubeconfig_path = {kubeconfig}\n"
        f"monitored_namespaces = {', '.join(NAMESPACES)}\n"
        f"namespace_queue_paths = {queue_map}\n"
        f"state_dir = {directory}\n"
        f"node_convert_path = {converter}\n"
        f"{more}"
    )
    for path in (queue_map, config):
        path.chmod(0o600)
    return config
