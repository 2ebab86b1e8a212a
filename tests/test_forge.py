"""Tests of the files for GitHub and GitLab: both run only .ci/run, and their templates agree."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT

GITHUB = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
GITLAB = yaml.safe_load((ROOT / ".gitlab-ci.yml").read_text(encoding="utf-8"))
PREPARATIONS = ("apt-get update", "apt-get install", "git config --global --add safe.directory")
TEMPLATES = {
    ".github/ISSUE_TEMPLATE/bug.md": ".gitlab/issue_templates/Bug.md",
    ".github/ISSUE_TEMPLATE/proposal.md": ".gitlab/issue_templates/Proposal.md",
    ".github/pull_request_template.md": ".gitlab/merge_request_templates/Default.md",
}


def github_commands() -> list[str]:
    (job,) = GITHUB["jobs"].values()
    lines = [step["run"] for step in job["steps"] if "run" in step]
    return [command for line in lines for command in line.split(" && ")]


def gitlab_commands() -> list[str]:
    return [*GITLAB["run"]["before_script"], *GITLAB["run"]["script"]]


@pytest.mark.parametrize(
    "commands", [github_commands(), gitlab_commands()], ids=["github", "gitlab"]
)
def test_workflow_prepares_the_machine_and_runs_the_script_of_ci(commands: list[str]) -> None:
    *before, last = commands
    assert last == ".ci/run"
    assert all(command.startswith(PREPARATIONS) for command in before)
    assert (ROOT / last).stat().st_mode & 0o111


def test_both_workflows_install_the_same_packages_in_the_same_image() -> None:
    (job,) = GITHUB["jobs"].values()
    assert job["container"]["image"] == GITLAB["run"]["image"]
    packages = [
        {word for command in commands if "install" in command for word in command.split()[2:]}
        for commands in (github_commands(), gitlab_commands())
    ]
    assert packages[0] == packages[1] >= {"git", "make", "python3-venv"}


def test_both_workflows_fetch_the_history_that_the_check_of_commits_reads() -> None:
    (job,) = GITHUB["jobs"].values()
    (checkout,) = (step["with"] for step in job["steps"] if "checkout" in step.get("uses", ""))
    assert checkout["fetch-depth"] == 0 == GITLAB["run"]["variables"]["GIT_DEPTH"]


def test_workflow_uses_foreign_actions_by_their_commit_and_may_only_read() -> None:
    (job,) = GITHUB["jobs"].values()
    uses = [step["uses"] for step in job["steps"] if "uses" in step]
    assert uses and all(re.fullmatch(r"actions/\w+@[0-9a-f]{40}", name) for name in uses)
    assert GITHUB["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("github", "gitlab"), TEMPLATES.items())
def test_templates_of_both_forges_have_the_same_text(github: str, gitlab: str) -> None:
    text = (ROOT / github).read_text(encoding="utf-8")
    if text.startswith("---\n"):
        _, head, text = text.split("---\n", 2)
        assert set(yaml.safe_load(head)) == {"name", "about"}
    assert text.lstrip("\n") == (ROOT / gitlab).read_text(encoding="utf-8")


def test_templates_name_only_existing_files() -> None:
    for name in TEMPLATES.values():
        text = (ROOT / name).read_text(encoding="utf-8")
        for path in re.findall(r"[\w/]+\.(?:md|txt)\b", text):
            assert (ROOT / path).exists(), f"{name}: {path}"


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md"])
def test_missing_licence_is_reported_while_there_is_none(page: str) -> None:
    is_chosen = any(ROOT.glob("LICEN[CS]E*"))
    assert is_chosen != ("No licence has been chosen yet" in PAGES[page])
