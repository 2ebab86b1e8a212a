"""A correct site for tests of `dnm check`, and the findings that it reports there."""

from __future__ import annotations

import os
from pathlib import Path

from dnm.checks.findings import CheckResult, Finding
from dnm.checks.host import find_everything
from dnm.config.load import load_config
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.registry import Registry
from dnm.run.recorded import mark_end
from dnm.run.registry import save_registry

INI = """[settings]
monitored_namespaces = dev
namespace_queue_paths = map.json
kubeconfig_path = sandbox/kubeconfig
state_dir = state
node_convert_path = sandbox/node-convert
"""
QUEUES = """partitions:
  - name: default
    queues:
      - name: root
        queues:
          - name: dev
            resources: {max: {vcore: 80, memory: 320G}}
          - name: parent
            queues:
              - name: leaf
        submitacl: "*"
    nodesortpolicy: {type: binpacking}
"""


class CheckedSite:
    """A directory with a correct site, which a test then breaks."""

    def __init__(self, directory: Path, sandbox: Sandbox) -> None:
        self.directory = directory
        self.sandbox = sandbox
        self.ini = directory / "dnm.ini"
        self.write("dnm.ini", INI)
        self.write("map.json", '{"dev": "root.dev"}')
        self.state = directory / "state"
        self.state.mkdir(mode=0o755)
        sandbox.add_namespace("dev")
        sandbox.add_node("k1")
        sandbox.add_machines(3)
        sandbox.set_queues(QUEUES)
        self.record(Registry())

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(0o644)

    def record(self, registry: Registry) -> None:
        """Stores the registry as if a run had just ended with it."""
        config = load_config(self.ini, {})
        config.began_path.touch(mode=0o600)
        save_registry(config, registry)
        mark_end(config)

    def findings(self) -> list[Finding]:
        return list(find_everything(self.ini, dict(os.environ)))

    def bad(self) -> list[Finding]:
        """Returns the failed checks, except for syslog, which a container may lack, and the two
        clocks, which differ on a busy machine."""
        return [finding for finding in self.findings() if finding.result is not CheckResult.OK
                and finding.check not in ("syslog", "clock")]  # fmt: skip


def add_settings(site: CheckedSite, text: str) -> None:
    site.write("dnm.ini", INI + text)


def results_of(findings: list[Finding], check: str = "permission") -> dict[str, CheckResult]:
    return {finding.text: finding.result for finding in findings if finding.check == check}


def ask_the_scheduler(site: CheckedSite) -> CheckedSite:
    """Adds three pods to the site and sets `yunikorn_url`, so that dnm queries the scheduler."""
    add_settings(site, f"yunikorn_url = {site.sandbox.url}\n")
    site.sandbox.add_pods(3, "dev", queue="root.dev", cpu="4", memory="16G")
    site.sandbox.tick()
    return site


SIDECAR = {
    "name": "proxy",
    "image": "none",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "4", "memory": "8Gi"}},
}
