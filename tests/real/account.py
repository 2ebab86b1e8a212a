"""dnm's own account on the real cluster, made by the unchanged commands of docs/production.md, or
with the roles of a site without YuniKorn."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.real.namespaces import ETC, REPOSITORY
from tests.real.rig import Rig

PAGE = REPOSITORY / "docs" / "production.md"
KUBECONFIG = ETC / "kubeconfig"
KUBECONFIG_WITHOUT_YUNIKORN = ETC / "none.kubeconfig"
# Two lines of the page, and the comment of each: what a site without YuniKorn writes instead.
CHOICES = {
    r"kubectl apply -f rbac.yaml +# without YuniKorn: (.*)": r"\1",
    r"namespace=yunikorn +# without YuniKorn: (.*)": r"namespace=\1",
}


def commands(heading: str) -> str:
    """Returns the shell code of the first block below a heading of docs/production.md."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    result = re.search(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert result, f"no commands below '{heading}' in {PAGE}"
    return result[1]


def read_roles() -> str:
    """Returns etc/rbac.yaml, changed to permit the Leases of all instances that tests use."""
    text = (REPOSITORY / "etc" / "rbac.yaml").read_text()
    named = "    resources: [leases]\n    resourceNames: [dnm-prod]\n"
    assert named in text
    return text.replace(named, "    resources: [leases]\n")


def make_account(rig: Rig) -> Path:
    """Runs the page's commands and returns the account's kubeconfig. They run in a copy of etc/,
    because they leave files behind and other clusters may start."""
    script = commands("2. The account")
    copy = rig.directory / "administrator"
    shutil.copytree(REPOSITORY / "etc", copy)
    (copy / "rbac.yaml").write_text(read_roles())
    rig.shell(f"cd {copy}\n" + script)
    return KUBECONFIG


def make_account_without_yunikorn(rig: Rig) -> Path:
    """Runs the page's commands for a site without YuniKorn; returns the account's kubeconfig. They
    run in a copy too: in etc/ itself, another cluster's commands replaced `ca.crt` in between. The
    bindings of both accounts have the same names, so `restore_account` must follow."""
    script = commands("2. The account")
    for line, instead in CHOICES.items():
        script, count = re.subn(line, instead, script)
        assert count == 1, line
    script = script.replace(str(KUBECONFIG), str(KUBECONFIG_WITHOUT_YUNIKORN))
    copy = rig.directory / "without-yunikorn"
    for name in ("etc", "deploy"):  # deploy/none refers to etc/
        shutil.copytree(REPOSITORY / name, copy / name, dirs_exist_ok=True)
    message = rig.shell(f"cd {copy}/etc\n" + script)
    assert "serviceaccount/dynamic-node-manager " in message, message
    return KUBECONFIG_WITHOUT_YUNIKORN


def restore_account(rig: Rig) -> None:
    """Binds the roles to the account for sites with YuniKorn again."""
    rig.shell(f"kubectl apply -f {rig.directory}/administrator/rbac.yaml")
