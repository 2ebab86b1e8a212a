"""Tests of commands on values; a refusal is a sentence."""

from dnm.verbs.refusal import Refusal


def sentence(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.sentence
