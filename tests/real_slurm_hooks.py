"""Hooks by which a node leaves a test's real Slurm and joins the Kubernetes API of the sandbox.

On one machine they act as the examples in etc/hooks do on real ones: `prepare` stops slurmd, `join`
registers a Node as a kubelet would, `reset` ends that and starts slurmd as a boot does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_HEAD = "#!/bin/sh\nset -eu\n"
_PREPARE = """\
echo "prepare $1" >>'{log}'
if [ -s '{lab}/run/slurmd-'"$1.pid" ]; then
    pid=$(cat '{lab}/run/slurmd-'"$1.pid")
    kill "$pid" 2>/dev/null || :
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
"""
_JOIN = """\
echo "join $1" >>'{log}'
body=$(sed -e "s/@NODE@/$1/g" -e "s/@NAMESPACE@/$DNM_NAMESPACE/g" '{directory}/node.json')
code=$(curl -sS -o /dev/null -w '%{{http_code}}' -H 'Content-Type: application/json' \\
    --data "$body" '{url}/api/v1/nodes')
[ "$code" = 201 ] || [ "$code" = 409 ]
"""
_RESET = """\
echo "reset $1" >>'{log}'
PATH="$PATH:/usr/sbin:/sbin"
pid=$(cat '{lab}/run/slurmd-'"$1.pid" 2>/dev/null) || pid=
if [ -n "$pid" ] && kill "$pid" 2>/dev/null; then
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
# Slurm reports the start of a slurmd in whole seconds; the next start must be a later one.
while [ "$(date +%s)" -le "$(stat -c %Y '{lab}/run/started-'"$1" 2>/dev/null || echo 0)" ]; do
    sleep 0.1
done
slurmd -N "$1"
touch '{lab}/run/started-'"$1"
"""
_NODE = """\
{{"apiVersion": "v1", "kind": "Node",
 "metadata": {{"name": "@NODE@", "labels": {{"kubernetes.io/hostname": "@NODE@"}}}},
 "spec": {{}},
 "status": {{"capacity": {amounts}, "allocatable": {amounts},
  "conditions": [{{"type": "Ready", "status": "True", "reason": "KubeletReady",
    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}}]}}}}
"""


def write_lab_hooks(directory: Path, lab: Path, url: str, allocatable: Mapping[str, str]) -> None:
    """Writes the hooks into `directory`, for the Slurm in `lab` and the API at `url`. The file
    `hooks.log` there gets a line for each call."""
    directory.mkdir(parents=True, exist_ok=True)
    amounts = ", ".join(f'"{key}": "{text}"' for key, text in allocatable.items())
    (directory / "node.json").write_text(_NODE.format(amounts=f"{{{amounts}}}"))
    texts = {"reach": "exit 0\n", "prepare": _PREPARE, "join": _JOIN, "reset": _RESET}
    for name, text in texts.items():
        path = directory / name
        path.write_text(
            _HEAD + text.format(lab=lab, directory=directory, url=url, log=directory / "hooks.log")
        )
        path.chmod(0o755)
