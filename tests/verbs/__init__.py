"""What a verb refuses, as its sentence."""

from dnm.verbs.refusal import Refusal


def sentence(answer: object) -> str:
    """Returns it; the refusal names what is refused."""
    assert isinstance(answer, Refusal) and answer.what, answer
    return answer.sentence
