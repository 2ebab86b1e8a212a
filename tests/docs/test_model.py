"""Runs the model checker on docs/model, the formal model of several hosts with one registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.night import night

MODEL = Path(__file__).parents[2] / "docs" / "model"


@night
def test_model_has_no_error_and_each_mutant_has_an_error() -> None:
    command = ["sh", str(MODEL / "run.sh"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (MODEL / "README.md").read_text()
    states = [f"{int(number):,}" for number in re.findall(r"(\d+) states, stored", done.stdout)]
    assert len(states) == 2 and all(f"{number} states" in page for number in states), done.stdout
    mutants = re.findall(r"^(MUTANT_\w+): assertion violated", done.stdout, re.MULTILINE)
    assert mutants == re.findall(r"^`(MUTANT_\w+)`", page, re.MULTILINE)
