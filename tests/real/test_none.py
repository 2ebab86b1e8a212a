"""Tests of the page docs/none.md, by its own commands and ini."""

from __future__ import annotations

import re
from pathlib import Path

from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import Site
from tests.real.unmanaged import KEY, UNMANAGED, create, places, taint_nodes

PAGE = (REPOSITORY / "docs" / "none.md").read_text()


def block(language: str) -> str:
    """Returns the page's only code block in a language, without indent."""
    (text,) = re.findall(rf"^   ```{language}\n(.*?)^   ```$", PAGE, re.MULTILINE | re.DOTALL)
    return re.sub(r"^   ", "", str(text), flags=re.MULTILINE)


def test_page_leads_from_the_roles_to_a_returned_node(
    plain_rig: Rig, kubeconfig_without_yunikorn: Path, tmp_path: Path
) -> None:
    """Plays the page. Only the paths in the ini are changed: kubeconfig, state and converter."""
    rig = plain_rig
    policies = rig.shell(f"cd {REPOSITORY}/etc\n{block('sh')}")
    assert len(re.findall(r" created$", policies, re.MULTILINE)) == 4, policies
    assert "It prints four lines with `created`." in PAGE

    site = Site(rig, tmp_path / "site", kubeconfig_without_yunikorn, **UNMANAGED)
    taint_nodes(site)
    own = {
        "kubeconfig_path": kubeconfig_without_yunikorn,
        "state_dir": site.directory / "state",
    }
    text = block("ini")
    for key, path in own.items():
        text, count = re.subn(rf"^{key} = .*$", f"{key} = {path}", text, flags=re.MULTILINE)
        assert count == 1, key
    text = text.replace("[settings]\n", f"[settings]\nnode_convert_path = {site.converter}\n")
    site.config.write_text(f"{text}\n[lab]\npending_grace_seconds = 0\n")

    site.dnm("run")
    assert "queue of dev" in site.dnm("check").stdout
    create(rig, "dev", "wide", "100")
    rig.wait_for(lambda: "queue dev: lend" in site.dnm("plan").stdout, "a pod needs a node")
    assert "requested 1 node for dev" in site.dnm("run").stdout
    site.run_until(lambda: rig.running("dev") == 1 and site.lent, "the pod runs")
    (node,) = site.lent
    assert places(rig, "dev") == {node} and node in site.dnm("status").stdout
    assert "pods are running on it" in site.dnm("explain", node).stdout
    rig.remove_pods("dev")
    site.dnm("return", node)
    site.run_until(site.has_returned_nodes, "the node is returned")
    assert rig.nodes() == {"k1", "k2"}


def test_check_refuses_a_node_type_without_taint_or_label(
    plain_rig: Rig, kubeconfig_without_yunikorn: Path, tmp_path: Path
) -> None:
    """The page requires both, with the label key of etc/admission-policy.yaml."""
    assert "It refuses a node type without such a taint or label" in PAGE
    lines = [line for line in block("ini").splitlines() if f"= {KEY}={{namespace}}" in line]
    for number, kept in enumerate(lines):
        site = Site(
            plain_rig, tmp_path / f"site{number}", kubeconfig_without_yunikorn,
            sections=f"[node_type:a]\nmemory = 256Gi\n{kept}\n", **UNMANAGED,
        )  # fmt: skip
        answer = site.json("check", code=None)
        failed = [item["text"] for item in answer["checks"] if item["result"] == "failed"]
        lacking = "label" if kept.startswith("taints") else "taint"
        assert failed and all(f"has no {lacking} for its namespace" in text for text in failed)
    assert len(lines) == 2
