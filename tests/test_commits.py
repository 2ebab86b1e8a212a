"""Tests of the checks of commits: the rules about the subject, the git hook and the step of CI in
real repositories, and pre-commit's configuration."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT

SCRIPT = ROOT / ".ci" / "commit_subjects.py"
RULES = runpy.run_path(str(SCRIPT))
LONG = "Fix " + "x" * 69
REVERT = f'Revert "{LONG}"\n\nThis reverts commit 8ddf770ca9ae0a5c.\n'
IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "test"), ("EMAIL", "test@localhost"))
}
ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", **IDENTITY}


@pytest.mark.parametrize("message", [
    "Fix the size of a node", "fix the size of a node", "Fix " + "x" * 68, "Fix " + "ü" * 68,
    "Re-read the Node after a conflict", "Don't drain a busy node", "Unfence a node that serves",
    "Create the validation load with dnm test-load\n\nA body " + "x" * 200, REVERT,
    REVERT.replace("Revert", "Reapply"), "\n\nFix the size\n \nbody", "Fix the size\r\n\r\n" + LONG,
])  # fmt: skip
def test_short_subject_that_starts_with_a_verb_is_accepted(message: str) -> None:
    assert RULES["find_problem"](message) == ""


@pytest.mark.parametrize(("message", "words"), [
    (LONG, "73 characters"),
    ("Fix the size\n" + "x" * 60, "73 characters"),
    ("Fixes the size", "Write 'Fix'"), ("Fixed the size", "Write 'Fix'"),
    ("Removing a key", "Write 'Remove'"), ("Retries the patch", "Write 'Retry'"),
    ("Stopped a run", "Write 'Stop'"), ("Does nothing", "Write 'Do'"),
    ("A pod's reference is believed", "'A' is not a known verb"),
    ("Whose idle node goes is one table", "'Whose' is not a known verb"),
    ("fix: the size", "start with a verb and a space"),
    ("[fix] the size", "start with a verb and a space"),
    ("Fix", "start with a verb and a space"),
    (f'Revert "{LONG}"', "characters"),  # without the line that git writes
    ("fixup! Fix the size", "start with a verb and a space"),
    (" \n", "The subject is empty"),
])  # fmt: skip
def test_other_subject_is_refused_with_a_suggestion(message: str, words: str) -> None:
    assert words in RULES["find_problem"](message)


# --- the hook and the step of CI -----------------------------------------------------------------


def git(where: Path, *arguments: str, code: int = 0) -> str:
    answer = subprocess.run(
        ["git", *arguments], cwd=where, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert answer.returncode == code, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def commit(where: Path, message: str, code: int = 0) -> str:
    return git(where, "commit", "--allow-empty", "--message", message, code=code)


def add_a_file(where: Path, message: str) -> None:
    (where / "file").write_text("1")
    git(where, "add", "file")
    commit(where, message)


def check(where: Path, code: int = 0) -> str:
    """Runs CI's check of commit subjects in a checkout. Returns its output."""
    answer = subprocess.run(
        [sys.executable, ".ci/commit_subjects.py"],
        cwd=where, env=ENVIRONMENT, capture_output=True, text=True,
    )  # fmt: skip
    assert answer.returncode == code, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Builds a repository: its base commit has an invalid subject; later ones are checked."""
    where = tmp_path / "repository"
    where.mkdir()
    git(where, "init", "--initial-branch=main")
    commit(where, "Whose idle node goes is one table")
    base = git(where, "rev-parse", "HEAD").strip()
    for folder in (".ci", ".git-hooks"):
        shutil.copytree(ROOT / folder, where / folder)
    script = where / ".ci" / "commit_subjects.py"
    script.write_text(script.read_text().replace(RULES["BASE"], base))
    git(where, "add", ".")
    commit(where, "Add the check of subjects")
    return where


def test_hook_refuses_a_long_subject(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", ".git-hooks")
    assert "73 characters" in commit(repository, LONG, code=1)
    assert "Write 'Fix'" in commit(repository, "Fixed the size", code=1)
    commit(repository, "Fix the size\n\n# a comment")
    assert git(repository, "log", "-1", "--format=%s").strip() == "Fix the size"


def test_hook_accepts_the_subjects_that_git_writes(repository: Path) -> None:
    git(repository, "config", "core.hooksPath", ".git-hooks")
    branch = "a-branch-" + "x" * 70
    git(repository, "checkout", "-b", branch)
    add_a_file(repository, "Fix " + "x" * 68)
    git(repository, "revert", "--no-edit", "HEAD")
    commit(repository, "fixup! Fix " + "x" * 68)
    git(repository, "checkout", "main")
    git(repository, "merge", "--no-ff", "--no-edit", branch)
    assert len(git(repository, "log", "-1", "--format=%s").strip()) > 72


def test_ci_checks_the_commits_since_its_base(repository: Path) -> None:
    assert check(repository) == ""
    commit(repository, LONG)
    name = git(repository, "rev-parse", "--short", "HEAD").strip()
    assert f"{name} {LONG}" in check(repository, code=1)
    commit(repository, "Count nodes")
    assert name in check(repository, code=1)  # not only the last one


def test_ci_accepts_merges_and_reverts(repository: Path) -> None:
    git(repository, "checkout", "-b", "a-branch-" + "x" * 70)
    add_a_file(repository, "Fix " + "x" * 68)
    git(repository, "revert", "--no-edit", "HEAD")
    git(repository, "checkout", "main")
    git(repository, "merge", "--no-ff", "--no-edit", "a-branch-" + "x" * 70)
    assert len(git(repository, "log", "-1", "--format=%s").strip()) > 72
    assert check(repository) == ""


@pytest.mark.parametrize(("depth", "code"), [(1, 0), (2, 1), (3, 1), (9, 1)])
def test_shallow_clone_is_checked_as_far_as_possible(
    repository: Path, tmp_path: Path, depth: int, code: int
) -> None:
    commit(repository, LONG)
    commit(repository, "Count nodes")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", f"--depth={depth}", f"file://{repository}", str(clone))
    assert (LONG in check(clone, code=code)) == bool(code)


def test_clone_with_another_history_is_checked_at_its_last_commit(repository: Path) -> None:
    script = repository / ".ci" / "commit_subjects.py"
    shutil.copy(SCRIPT, script)  # its base is not in this repository
    assert "only the last commit" in check(repository)
    commit(repository, LONG)
    assert LONG in check(repository, code=1)


def test_directory_without_a_repository_has_nothing_to_check(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    assert "not a git checkout" in check(tmp_path)


def test_repository_that_git_refuses_is_a_failure(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert "git" in check(tmp_path, code=1)


def test_contributing_explains_how_to_enable_hook_and_ci() -> None:
    assert "make commits\n" in (ROOT / ".ci" / "run").read_text()
    assert "\ncommits:\n\t@$(PYTHON) .ci/commit_subjects.py\n" in (ROOT / "Makefile").read_text()
    assert "git config core.hooksPath .git-hooks" in PAGES["CONTRIBUTING.md"]
    assert os.access(ROOT / ".git-hooks" / "commit-msg", os.X_OK)


def test_pre_commit_has_the_checks_of_make_lint() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"  # nothing is fetched
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    recipe = re.search(r"^lint: .*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe
    checks = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    stages = {hook["entry"]: hook.get("stages", ["pre-commit"]) for hook in local["hooks"]}
    assert [entry for entry, of in stages.items() if of == ["pre-commit"]] == checks
    assert [entry for entry, of in stages.items() if of == ["commit-msg"]] == [
        ".git-hooks/commit-msg"
    ]
