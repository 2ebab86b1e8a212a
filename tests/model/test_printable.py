"""Tests that dnm prints foreign text without control characters."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.model.printable import json_text
from tests.docs.pages import ROOT


@pytest.mark.parametrize("indent", [0, 2])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_json_output_keeps_values_and_is_printable(text: str, indent: int) -> None:
    document = {text: [text, "\u202e\u2028\x85\x7f\U000e0001", "Müller"]}
    shown = json_text(document, indent)
    assert json.loads(shown) == document
    assert shown.replace("\n", "").isprintable() and "Müller" in shown
    assert len(shown.splitlines()) == (7 if indent else 1)


def test_each_program_prints_json_with_json_text() -> None:
    printed = re.compile(r"(print|stdout\.write)\(.*json\.encode|json\.encode\(.*decode\(\)")
    paths = [*(ROOT / "dnm" / "cli").rglob("*.py"), *(ROOT / "dnm" / "converters").glob("*.py")]
    lines = [path.name for path in paths if printed.search(path.read_text())]
    assert lines == ["bridge.py"]  # an annotation of a Node, not printed
