#!/usr/bin/env python3
"""Checks that the subject of each commit is short and starts with a verb in the imperative.

    commit_subjects.py                  checks the commits of HEAD since BASE: CI, `make commits`
    commit_subjects.py --message FILE   checks the message of a new commit: .git-hooks/commit-msg

Merges and reverts keep the subject that git gives them. verbs.txt beside this file has the verbs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BASE = "8ddf770c704251a59a030d951f795a607b5fb132"  # the last commit before this check
MOST_CHARACTERS = 72
VERBS_FILE = Path(__file__).with_name("verbs.txt")
REVERT = re.compile(r'(Revert|Reapply) ".+This reverts commit [0-9a-f]{7}', re.DOTALL)
AUTOSQUASH = re.compile(r"(fixup|squash|amend)! ")
EXAMPLE = "Write for example: Fix the size of a node with two GPUs"


class GitError(Exception):
    """A git command failed. The message holds its reason."""


def run_git(*arguments: str, text: str | None = None) -> str:
    """Returns the output of a git command. Raises GitError."""
    try:
        answer = subprocess.run(
            ["git", *arguments], input=text, capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError as error:
        raise GitError(f"cannot run git: {error.strerror}") from error
    if answer.returncode:
        raise GitError(f"git {arguments[0]}: {answer.stderr.strip()}")
    return answer.stdout


def has_object(name: str) -> bool:
    """Returns whether the repository has a commit of this name, or a file such as MERGE_HEAD."""
    command = ["git", "rev-parse", "--quiet", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, capture_output=True).returncode == 0


# --- the rules -----------------------------------------------------------------------------------


def find_problem(message: str) -> str:
    """Returns the rule that a message breaks and what to write, or an empty string."""
    subject = " ".join(re.split(r"\n\s*\n", message.strip())[0].split())
    if not subject or REVERT.match(message.strip()):
        return "" if subject else f"The subject is empty. {EXAMPLE}"
    if len(subject) > MOST_CHARACTERS:
        return (
            f"The subject has {len(subject)} characters, but at most {MOST_CHARACTERS} are allowed."
            " Shorten it. Put the reason into the body, after an empty line."
        )
    word = re.match(r"([^\W\d_]+(?:['-][^\W\d_]+)*)(?= )", subject)
    if word is None:
        return f"The subject does not start with a verb and a space. {EXAMPLE}"
    verbs = VERBS_FILE.read_text(encoding="utf-8").split()
    first = word[1].lower()
    if first in verbs:
        return ""
    for verb in verbs:
        if first in inflect(verb):
            return f"{word[1]!r} is not in the imperative. Write {verb.capitalize()!r} instead."
    return (
        f"The first word {word[1]!r} is not a known verb in the imperative. {EXAMPLE}\n"
        f"    If it is a verb in its base form, add it to .ci/{VERBS_FILE.name} in this commit."
    )


def inflect(verb: str) -> set[str]:
    """Returns the regular forms of a verb other than its base form."""
    stems = {verb, verb + verb[-1], verb.removesuffix("e"), re.sub("y$", "i", verb)}
    return {stem + end for stem in stems for end in ("s", "es", "ed", "ing")} - {verb}


# --- where messages come from --------------------------------------------------------------------


def check_message(path: Path) -> Iterator[str]:
    """Yields the problem of the commit that git is about to make."""
    message = run_git("stripspace", "--strip-comments", text=path.read_text("utf-8", "replace"))
    if has_object("MERGE_HEAD") or AUTOSQUASH.match(message):
        return
    if problem := find_problem(message):
        yield f"{message.partition(chr(10))[0]}\n    {problem}"


def check_history() -> Iterator[str]:
    """Yields the problem of each commit of HEAD since BASE."""
    commits = ["HEAD"]
    if has_object(BASE):
        commits.append(f"^{BASE}")
    elif run_git("rev-parse", "--is-shallow-repository").strip() != "true":
        print(f"commit {BASE[:8]} is not in this repository: only the last commit is checked")
        commits.append("--max-count=1")
    # In a shallow clone that lacks BASE, every commit is newer than BASE.
    options = ("--no-merges", "--no-show-signature", "--encoding=UTF-8", "-z", "--format=%h%n%B")
    log = run_git("log", *options, *commits)
    for entry in filter(None, log.split("\0")):
        name, _, message = entry.partition("\n")
        if problem := find_problem(message):
            yield f"{name} {message.partition(chr(10))[0]}\n    {problem}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--message", type=Path, metavar="FILE", help="check the message in FILE")
    path = parser.parse_args().message
    if path is None and not (Path(__file__).parents[1] / ".git").exists():
        print("this is not a git checkout: no commit subjects to check")
        return 0
    try:
        problems = list(check_history() if path is None else check_message(path))
    except GitError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"commit subject refused: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
