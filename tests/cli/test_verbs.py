"""Only the verb that is named is built; whoever names none sees them all."""

from __future__ import annotations

import pytest
import typer.main

from dnm.cli.app import app, named_app

ALL = typer.main.get_command(app)
VERBS = sorted(ALL.commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", VERBS)
def test_of_a_verb_that_is_named_the_others_are_not_built(verb: str) -> None:
    built = typer.main.get_command(named_app(verb))
    assert list(built.commands) == [verb]  # type: ignore[attr-defined]
    whole = ALL.commands[verb]  # type: ignore[attr-defined]
    alone = built.commands[verb]  # type: ignore[attr-defined]
    assert [one.name for one in alone.params] == [one.name for one in whole.params]
    assert (alone.help, built.params[0].name) == (whole.help, "version")


@pytest.mark.parametrize("word", ["", "--version", "-h", "stat", "queues-show", "run "])
def test_all_are_there_where_none_is_named(word: str) -> None:
    assert named_app(word) is app


def test_all_are_there_for_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DNM_COMPLETE", "complete_bash")
    assert named_app("run") is app
