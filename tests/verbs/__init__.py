"""Tests of the changes that commands make to registry values, or of their refusals."""

from dnm.verbs.refusal import Refusal


def sentence(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.sentence
