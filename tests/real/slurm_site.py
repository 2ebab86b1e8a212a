"""Sites with a real Slurm as batch side, and a converter that dnm ships."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.real.account import KUBECONFIG
from tests.real.converter import AMOUNTS
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import Answer, Site
from tests.real_slurm import SlurmLab
from tests.real_slurm_hooks import write_lab_hooks

JOIN = """\
#!{python}
import os, sys
sys.path.insert(0, {repository!r})
from pathlib import Path
from typing import Any
from tests.real.converter import join
from tests.real.http_api import Api
with open({log!r}, "a") as log:
    log.write("join " + sys.argv[1] + "\\n")
taints = (taint.rpartition(":")[0] for taint in os.environ["DNM_TAINTS"].split(",") if taint)
join(
    Api({url!r}, Path({keys!r})), sys.argv[1], os.environ.get("DNM_NAMESPACE", ""),
    dress=dict(taint.split("=") for taint in taints),
)
"""
SECTION = """
[node_type:a]
memory = 256Gi
{node_type}

[node_convert]
hooks_dir = {hooks}
min_idle_seconds = 0
{more}
"""


class _OnSlurm(Site):
    """A site on a real Slurm. Its converter is `program`, which dnm ships."""

    lab: SlurmLab
    program: Path | str

    @property
    def environment(self) -> dict[str, str]:
        own, theirs = super().environment, self.lab.environ
        programs = [str(self.lab.programs)] if self.lab.programs else []
        path = ":".join([*programs, own["PATH"]])
        return {**own, "SLURM_CONF": theirs["SLURM_CONF"], "PATH": path}

    def convert(self, *arguments: str) -> Answer:
        """Calls the converter as an administrator does."""
        return subprocess.run(
            [self.program, *arguments], env=self.environment, cwd=self.directory,
            capture_output=True, text=True, timeout=400,
        )  # fmt: skip


class SlurmSite(_OnSlurm):
    """A site with the hooks of tests; `join` registers the Node with the real API server."""

    program = "node-convert"

    def __init__(
        self, rig: Rig, directory: Path, kubeconfig: Path, lab: SlurmLab, *, more: str = "",
        node_type: str = "", **settings: Any,
    ) -> None:  # fmt: skip
        self.lab = lab
        self.hooks = directory / "hooks"
        super().__init__(
            rig, directory, kubeconfig,
            sections=SECTION.format(hooks=self.hooks, more=more, node_type=node_type),
            node_convert_path=None,
            **{"verify_seconds": 0.5, "poll_seconds": 0.2, "boot_timeout_seconds": 120,
               "stage_timeout_seconds": 120, **settings},
        )  # fmt: skip
        write_lab_hooks(self.hooks, lab.directory, "http://unused", AMOUNTS)
        join = self.hooks / "join"
        join.write_text(
            JOIN.format(
                python=sys.executable, repository=str(REPOSITORY),
                log=str(self.hooks / "hooks.log"), url=rig.api.url, keys=str(rig.keys),
            )
        )  # fmt: skip

    @property
    def hook_calls(self) -> list[str]:
        log = self.hooks / "hooks.log"
        return log.read_text().splitlines() if log.exists() else []

    def has_returned_nodes(self) -> bool:
        return not self.lent

    def assert_slurm_is_clean(self) -> None:
        """Checks that Slurm has no reservation, no drain and no mark of dnm."""
        assert not self.lab.client.read_reservations()
        for node in self.lab.read_nodes():
            assert not node.state.flags & {"DRAIN", "NOT_RESPONDING"}, node
            assert not (node.comment or node.extra or node.reason), node


STANDING = """
[node_type:a]
memory = 256Gi

[node_convert]
min_idle_seconds = 0
{more}
"""


class StandingSite(_OnSlurm):
    """A site of machines that always have a Node, with a shipped converter for them."""

    def __init__(
        self, rig: Rig, directory: Path, lab: SlurmLab, program: str, *, more: str = "",
        **settings: Any,
    ) -> None:  # fmt: skip
        self.lab = lab
        self.program = Path(sys.executable).parent / program
        super().__init__(
            rig, directory, KUBECONFIG, sections=STANDING.format(more=more),
            node_convert_path=self.program,
            **{"verify_seconds": 0.5, "poll_seconds": 0.5, "drain_timeout_seconds": 180,
               "boot_timeout_seconds": 180, "stage_timeout_seconds": 60, **settings},
        )  # fmt: skip
