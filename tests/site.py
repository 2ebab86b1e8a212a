"""A site for tests: a sandbox, and dnm with configuration files for it. dnm runs in the test's
process on the sandbox's clock, or as the real command."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dnm.config.lab import CONVERTER_KEYS, RUN_KEYS
from dnm.config.load import load_config
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.plan import Pass
from dnm.model.registry import Registry
from dnm.run.looking import plan_pass
from dnm.run.registry import load_registry
from dnm.run.runner import run_pass
from tests.processes import PATIENCE, warm_processes

QUEUE = "root.anvil.services.dev"

WORKSHOP_QUEUES = """\
# The site's queues; edited manually, twice a year.
partitions:
  - name: default
    queues:
      - name: anvil
        queues:
          - name: services
            queues:
              - name: notebook
                submitacl: '*'
                resources:
                  guaranteed: {memory: 256G, vcore: 128}
                  max: {memory: 512G, vcore: 256}
              - name: dev   # workshops
                submitacl: '*'
                resources:
                  guaranteed:
                    memory: 32G
                    vcore: 8
                  max:
                    memory: 320G
                    vcore: 80
"""


def ini_text(settings: Mapping[str, object]) -> str:
    """Returns the text of an ini; keys of the sandbox are in [lab], others in [settings]."""
    own = {**RUN_KEYS, **CONVERTER_KEYS}
    lab, lines = (
        "".join(f"{key} = {text}\n" for key, text in settings.items() if (key in own) is is_lab)
        for is_lab in (True, False)
    )
    return f"[lab]\n{lab}[settings]\n{lines}" if lab else f"[settings]\n{lines}"


class Site:
    """A site. Keywords are keys of [settings], and `sections` is further text of the ini."""

    def __init__(
        self, sandbox: Sandbox, directory: Path, *, sections: str = "", **settings: Any
    ) -> None:
        self.sandbox = sandbox
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        values = {
            "kubeconfig_path": sandbox.kubeconfig,
            "monitored_namespaces": "dev",
            "node_convert_path": sandbox.node_convert_path,
            "state_dir": directory / "state",
            "namespace_queue_paths": directory / "queues.json",
            "pending_grace_seconds": 0,
            "global_cooldown_seconds": 0,
            "reversion_idle_seconds": 60,
            "check_interval_seconds": 60,
            **settings,
        }
        if settings.get("queue_system", "yunikorn") not in ("yunikorn", "kueue"):
            del values["namespace_queue_paths"]
        (directory / "state").mkdir(exist_ok=True, mode=0o755)
        self.path = directory / "dnm.ini"
        self.write(self.path, f"{ini_text(values)}{sections}")
        self.write(directory / "queues.json", f'{{"dev": "{QUEUE}"}}\n')

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o644)

    def change(self, **settings: str) -> None:
        """Changes keys of the ini; an empty value removes the key."""
        lines = self.path.read_text().splitlines()
        kept = [line for line in lines if line.split(" = ")[0] not in settings]
        for key, value in settings.items():
            if value:
                at = kept.index("[lab]" if key in RUN_KEYS else "[settings]") + 1
                kept.insert(at, f"{key} = {value}")
        self.write(self.path, "\n".join(kept) + "\n")

    @property
    def config(self) -> Config:
        return load_config(self.path, {})

    @property
    def registry(self) -> Registry:
        return load_registry(self.config, self.now())

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.sandbox.clock.now(), UTC)

    def run(self) -> Pass:
        """Plays one run of dnm in this process, on the sandbox's clock."""
        return run_pass(self.config, dict(os.environ), lambda: False, self.now)

    def plan(self) -> Pass:
        return plan_pass(self.config, dict(os.environ), self.now)

    def run_until_rest(self, every: timedelta = timedelta(minutes=1), most: int = 50) -> int:
        """Plays runs, a minute apart, until one does nothing. Returns the number of runs."""
        for number in range(1, most + 1):
            result = self.run()
            if result.outcome and not result.outcome.actions and not result.plan.registry.requests:
                return number
            self.sandbox.tick(every.total_seconds())
        raise AssertionError(f"not steady after {most} runs: {result.outcome}")

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a dnm command in a forked process with all imports done (warm.py), in real time."""
        environ = {**os.environ, "DNM_CONFIG": str(self.path), **environment}
        job = {"arguments": arguments, "environment": environ, "directory": os.getcwd()}
        (child,) = warm_processes().start(job)
        return subprocess.CompletedProcess(arguments, *child.wait())

    def process(
        self, *arguments: str, seconds: float = PATIENCE, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a dnm command in a new process, as a shell does."""
        return subprocess.run(
            [sys.executable, "-m", "dnm.cli", *arguments],
            env={**os.environ, "DNM_CONFIG": str(self.path), **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def at_a_terminal(self, *words: str, width: int = 80, **environment: str) -> str:
        """Returns the command's output if stdout and stderr are a terminal of this width."""
        own, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, width))
        environ = {**os.environ, "DNM_CONFIG": str(self.path), "TERM": "xterm", **environment}
        environ.pop("COLUMNS", None)
        there = os.ttyname(theirs)
        (child,) = warm_processes().start({
            "arguments": words, "environment": environ, "directory": os.getcwd(),
            "out": there, "err": there,
        })  # fmt: skip
        message, ends = b"", select.poll()
        for descriptor in (own, child.descriptor):
            ends.register(descriptor, select.POLLIN)
        while own in dict(ends.poll()):  # its output comes before its end
            message += read_terminal(own)
        child.wait()
        os.close(theirs)
        while part := read_terminal(own):
            message += part
        os.close(own)
        return message.decode().replace("\r\n", "\n")

    def lent(self) -> list[str]:
        return sorted(self.registry.nodes)

    def pods(self, namespace: str = "dev") -> dict[str, str]:
        """Returns pod -> the node to which it is bound; empty if it is not bound."""
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in self.sandbox.objects("pods", namespace)
        }


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the terminal's other end is closed
        return b""


def set_up_workshop(sandbox: Sandbox, machines: int) -> None:
    """Creates the workshop's queues in the sandbox, and `machines` idle machines."""
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.add_machines(machines)


def a_workshop_site(sandbox: Sandbox, directory: Path) -> Site:
    """Returns a site with twenty pods that wait in a full queue, and four idle machines."""
    sandbox.clock.set(time.time())
    set_up_workshop(sandbox, 4)
    sandbox.add_pods(20, "dev", queue=QUEUE, cpu="4", memory="16G")
    return Site(sandbox, directory / "site", reversion_idle_seconds=1)
