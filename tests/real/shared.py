"""Hosts that share one registry on a real API server, while pods arrive and end.

A host here has a name, a state directory and, in some tests, a wrong clock of its own; all use one
converter. The converter's own record, the API server and the scheduler show what they did."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.processes import state_of
from tests.real.clocks import shifted
from tests.real.cluster import QUEUES, SECRET
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.site import DEV, PODS, Answer, Site, add_pods, edit_file, with_nodes

LEASE_SECONDS = 16  # eight times the limit of a request, with SHORT
SHORT = 2
SETTINGS = {"instance_id": "prod", "registry": "kubernetes"}


def make_hosts(
    make_site: MakeSite, names: Sequence[str], clocks: Mapping[str, int] | None = None,
    **settings: object,
) -> list[Site]:  # fmt: skip
    """Makes the hosts. `clocks` has by how many seconds the clock of a host is wrong."""
    sites = [make_site(name, **{**SETTINGS, **settings}) for name in names]
    converter = f"{sites[0].directory}/node-convert"
    for name, site in zip(names, sites, strict=True):
        edit_file(site.config, f"{site.directory}/node-convert", converter)
        start = 'exec dnm "$@"'
        if off := (clocks or {}).get(name):
            variables = " ".join(f"{name}={value}" for name, value in shifted(off).items())
            start = f"export {variables}; {start}"
        site.command = ["unshare", "--uts", "sh", "-c", f"hostname {name}; {start}", "dnm"]
    return sites


def follow(site: Site) -> Answer:
    """Plays runs of a host until one acts, after the other host's Lease has expired."""
    for _ in range(6):
        answer = site.dnm("run", code=None)
        if answer.returncode == 0:
            return answer
        assert answer.returncode in (1, 75), answer
        time.sleep(LEASE_SECONDS + 0.2 if answer.returncode == 75 else 1)
    raise AssertionError(f"no host took over: {answer}")


class Demand:
    """Pods that need some nodes until they run; then none, until all nodes are returned."""

    def __init__(self, rig: Rig, sites: Sequence[Site], nodes: int) -> None:
        self.rig, self.sites, self.nodes = rig, sites, nodes
        self.acting = sites[0]  # its registry records what is lent
        self.pods = 4 + 8 * nodes
        self.stories = 0
        self.is_wanted = False

    def move_on(self, begins_anew: bool = True) -> None:
        if self.is_wanted and self.is_served:
            self.rig.api.ask("DELETE", PODS)
            self.is_wanted = False
        elif begins_anew and not self.is_wanted and self.is_back:
            add_pods(self.rig, self.pods, "16", "8Gi")
            self.stories, self.is_wanted = self.stories + 1, True

    @property
    def is_served(self) -> bool:
        return self.rig.running("dev") == self.pods and self.away == self.nodes

    @property
    def is_back(self) -> bool:
        if self.away or self.rig.queues_text() != QUEUES or self.rig.has_ledger():
            return False
        return not self.rig.pods("dev") and self.limit == with_nodes(0) and not self.acting.lent

    @property
    def away(self) -> int:
        """Returns the number of machines outside of Slurm, by the converter's own files."""
        places = self.sites[0].machines.places().values()
        return sum(place != "batch" for place in places)

    @property
    def limit(self) -> Json:
        return dict(self.rig.queue(DEV)["maxResource"])

    def check(self) -> None:
        """Checks what must hold at any moment, such as the cap."""
        assert self.away <= self.nodes
        assert self.limit in [with_nodes(count) for count in range(self.nodes + 1)]
        assert len(self.rig.nodes()) <= 2 + self.nodes

    def calls(self, *words: str) -> int:
        return sum(all(word in call for word in words) for call in self.sites[0].calls)

    @property
    def version(self) -> str:
        """Returns the version of the registry's object, which changes when a host begins to act."""
        return str(self.rig.api.get(SECRET)["metadata"]["resourceVersion"])

    def settle(self) -> None:
        """Waits until all running converters have ended, of whichever host."""
        until = time.monotonic() + 60
        while any(is_at_work(note) for site in self.sites for note in notes_of(site)):
            assert time.monotonic() < until, "a converter does not end"
            time.sleep(0.1)

    @property
    def cluster(self) -> dict[str, Any]:
        """Returns everything that only the acting host may change, for comparison."""
        self.settle()
        secret, maps = self.rig.api.get(SECRET), self.rig.api.get(self.rig.config_map)
        nodes = self.rig.api.get("/api/v1/nodes")["items"]
        return {
            "registry": (secret["metadata"]["annotations"], secret["data"]),
            "queues": (maps["metadata"].get("annotations"), maps["data"]),
            "nodes": {
                node["metadata"]["name"]: (
                    node["spec"].get("unschedulable"), node["metadata"].get("annotations")
                )
                for node in nodes
            },
            "calls": [call for call in self.sites[0].calls if "--set" in call],
            "machines": self.sites[0].machines.places(),
        }  # fmt: skip


def notes_of(site: Site) -> list[Path]:
    """Returns the files in which a host records the processes of its converters."""
    directory = site.directory / "state" / "converter"
    return [*directory.glob("*.process"), *directory.glob("*.converter")]


def is_at_work(note: Path) -> bool:
    """Returns whether a process runs, and is not an ended one that its suspended parent keeps."""
    text = note.read_text()
    return bool(text) and state_of(json.loads(text)["pid"]) not in "ZX"


def resume_process(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Resumes a suspended process and waits for it. Returns its exit code and its output."""
    process.send_signal(signal.SIGCONT)
    message, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors, errors
    return process.returncode, message + errors
