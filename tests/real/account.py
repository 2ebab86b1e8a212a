"""dnm's own account, made by the commands of etc/README.md as they stand there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.real.namespaces import ETC, REPOSITORY
from tests.real.rig import Rig

README = REPOSITORY / "etc" / "README.md"
KUBECONFIG = ETC / "kubeconfig"


def commands(heading: str) -> str:
    """The shell of the first block below a heading of etc/README.md."""
    _, _, section = README.read_text().partition(f"\n## {heading}\n")
    found = re.search(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert found, f"no commands below '{heading}' in {README}"
    return found[1]


def make_account(rig: Rig) -> Path:
    """The kubeconfig that an administrator gets who follows etc/README.md, up to `dnm check`; in a
    copy of etc/, for the commands leave files where they are and other rigs may start."""
    script = commands("The account")
    assert script.endswith("dnm check\n"), script
    copy = rig.directory / "administrator"
    shutil.copytree(REPOSITORY / "etc", copy)
    rig.shell(f"cd {copy}\n" + script.removesuffix("dnm check\n"))
    return KUBECONFIG
