"""dnm's own account, made by the commands of docs/production.md as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.real.namespaces import ETC, REPOSITORY
from tests.real.rig import Rig

PAGE = REPOSITORY / "docs" / "production.md"
KUBECONFIG = ETC / "kubeconfig"


def commands(heading: str) -> str:
    """The shell of the first block below a heading of docs/production.md."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    result = re.search(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert result, f"no commands below '{heading}' in {PAGE}"
    return result[1]


def read_roles() -> str:
    """Returns etc/rbac.yaml with the Leases of all instances: the stories have many of them."""
    text = (REPOSITORY / "etc" / "rbac.yaml").read_text()
    named = "    resources: [leases]\n    resourceNames: [dnm-prod]\n"
    assert named in text
    return text.replace(named, "    resources: [leases]\n")


def make_account(rig: Rig) -> Path:
    """The kubeconfig that an administrator gets who follows the page; in a
    copy of etc/, for the commands leave files where they are and other rigs may start."""
    script = commands("2. The account")
    copy = rig.directory / "administrator"
    shutil.copytree(REPOSITORY / "etc", copy)
    (copy / "rbac.yaml").write_text(read_roles())
    rig.shell(f"cd {copy}\n" + script)
    return KUBECONFIG
