"""dnm's own account, made by the commands of etc/README.md as they stand there."""

from __future__ import annotations

import re
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
    """The kubeconfig that an administrator gets who follows etc/README.md, up to `dnm check`."""
    script = commands("The account")
    assert script.endswith("dnm check\n"), script
    rig.shell(f"cd {REPOSITORY}/etc\n" + script.removesuffix("dnm check\n"))
    return KUBECONFIG
