"""dnm's own account, made by the unchanged commands of docs/production.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.real.namespaces import ETC, REPOSITORY
from tests.real.rig import Rig

PAGE = REPOSITORY / "docs" / "production.md"
KUBECONFIG = ETC / "kubeconfig"


def commands(heading: str) -> str:
    """Returns the shell code of the first block below a heading of docs/production.md."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    result = re.search(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert result, f"no commands below '{heading}' in {PAGE}"
    return result[1]


def read_roles() -> str:
    """Returns etc/rbac.yaml with the Leases of all instances, since the stories have many."""
    text = (REPOSITORY / "etc" / "rbac.yaml").read_text()
    named = "    resources: [leases]\n    resourceNames: [dnm-prod]\n"
    assert named in text
    return text.replace(named, "    resources: [leases]\n")


def make_account(rig: Rig) -> Path:
    """Follows the page and returns the kubeconfig. It works in a copy of etc/: the commands leave
    files behind, and other rigs may start."""
    script = commands("2. The account")
    copy = rig.directory / "administrator"
    shutil.copytree(REPOSITORY / "etc", copy)
    (copy / "rbac.yaml").write_text(read_roles())
    rig.shell(f"cd {copy}\n" + script)
    return KUBECONFIG
