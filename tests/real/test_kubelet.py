"""Tests of dnm's rules about kubelet settings with the kubelet's own code of two releases:
thousands of settings for its validation and managers, and recorded ones for a started kubelet."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kubelet.admitting import Question, by_chance, why_dnm_refuses, worked_examples
from tests.kubelet.judging import (
    Machine,
    Said,
    Settings,
    a_machine,
    amount,
    some_settings,
    stricter,
)
from tests.kubelet.test_vectors import ADMITTED, ANSWERS, OWN, VECTORS
from tests.real.build import program
from tests.real.kubelets import HEAD, boot
from tests.real.programs import HUNG
from tests.real.versions import JUDGE, KUBELETS

DRAWN = int(os.environ.get("DNM_KUBELET_DRAWS", "10000"))
SEED = int(os.environ.get("DNM_SEED", "20261119"))
TWO = {
    "memory": 64 * 2**30,
    "numa": [
        {"memory": 32 * 2**30, "cpus": [*range(8 * node, 8 * node + 8)], "hugepages": {}}
        for node in range(2)
    ],
}


def judged(version: str, questions: list[tuple[str, Machine]]) -> list[dict[str, Any]]:
    """Returns what the kubelet's code decides about configuration files on simulated machines."""
    lines = [json.dumps({"config": config, "machine": machine}) for config, machine in questions]
    done = subprocess.run(
        [program("kubelet-judge", f"{version}-{JUDGE}")], input="\n".join(lines) + "\n",
        capture_output=True, text=True, timeout=HUNG, check=True,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(questions)
    return answers


def config_of(vector: dict[str, Any]) -> str:
    return vector["config"] if "config" in vector else Said(vector["settings"]).config


@pytest.mark.parametrize("version", KUBELETS)
def test_ten_thousand_kubelet_settings_are_judged_alike(version: str) -> None:
    draw = random.Random(SEED)
    cases: list[tuple[Settings, Machine, Said]] = []
    while len(cases) < DRAWN:
        machine = a_machine(draw)
        settings = some_settings(draw, machine)
        message = Said(settings)
        if not message.is_form:
            cases.append((settings, machine, message))
    answers = judged(version, [(messages.config, machine) for _, machine, messages in cases])
    counts: Counter[str] = Counter()
    for (settings, machine, message), answer in zip(cases, answers, strict=True):
        refused = bool(answer["stage"])
        assert answer["stage"] not in ("question", "decode"), (settings, answer)
        if message.refuses != refused:
            assert not refused, (settings, machine, answer)
            why = stricter(settings, machine)
            assert why, (settings, machine, message.why)
            counts[f"dnm alone refuses: {why}"] += 1
        elif refused:
            counts[f"both refuse: {answer['stage']}"] += 1
        else:
            counts["both take it, with the same sums"] += 1
            assert message.sides.allocatable == amount(answer["reserved"].get("memory", "0"))
            assert message.allocatable == answer["allocatable"]["memory"]
    print(f"\nkubelet {version}, seed {SEED}, {len(cases)} settings: {dict(counts)}")
    assert counts["both take it, with the same sums"] > DRAWN // 4
    assert counts["both refuse: start"] > DRAWN // 4


@pytest.mark.parametrize("version", KUBELETS)
def test_kubelet_vectors_equal_the_answers_of_the_kubelet_code(version: str) -> None:
    vectors = VECTORS
    answers = judged(version, [(config_of(vector), vector["machine"]) for vector in vectors])
    for vector, answer in zip(vectors, answers, strict=True):
        assert answer["stage"] == vector["stage"], (vector["name"], answer)
        assert answer["reserved"] in (vector["reserved"], None), vector["name"]
        assert answer["allocatable"] in (vector["allocatable"], None), vector["name"]
        if version == KUBELETS[0]:
            assert answer["error"] == vector["error"]


def admitted(questions: list[Question]) -> list[str]:
    """Returns what the kubelet's managers decide about pods: `admitted`, or the refusal."""
    done = subprocess.run(
        [program("kubelet-admits")], input="\n".join(map(json.dumps, questions)) + "\n",
        capture_output=True, text=True, timeout=HUNG, check=True,
    )  # fmt: skip
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def test_admitted_pods_equal_the_answers_of_the_kubelet_managers() -> None:
    """DNM_WRITE_VECTORS=1 in the environment updates the recorded answers."""
    draw = random.Random(5)
    questions = worked_examples() + [by_chance(draw, number) for number in range(60)]
    message = [
        {**entry, "answer": answer}
        for entry, answer in zip(questions, admitted(questions), strict=True)
    ]
    if os.environ.get("DNM_WRITE_VECTORS"):
        ADMITTED.write_text("[\n" + ",\n".join(map(json.dumps, message)) + "\n]\n")
    else:
        assert message == ANSWERS


def test_random_pods_are_admitted_if_dnm_predicts_it() -> None:
    draw = random.Random(SEED)
    questions = [by_chance(draw, number) for number in range(DRAWN // 4)]
    answers = admitted(questions)
    for asked, answer in zip(questions, answers, strict=True):
        assert (not why_dnm_refuses(asked)) == (answer == "admitted"), (asked, answer)
    print(f"\nkubelet {KUBELETS[0]}, seed {SEED}, pods: {dict(Counter(answers))}")


@pytest.mark.parametrize("version", KUBELETS)
def test_kubelet_starts_or_refuses_as_the_vectors_predict(version: str, tmp_path: Path) -> None:
    """Tries all recorded settings on the newer release, every third on the older one."""
    vectors = VECTORS
    started = refused = 0
    for vector in vectors if version == KUBELETS[0] else vectors[::3]:
        went = boot(tmp_path / "kubelet", version, config_of(vector), vector["machine"])
        assert bool(went.error) == bool(vector["stage"]), (vector["name"], went.error)
        refused += bool(went.error)
        started += not went.error
        if went.error:
            # In the log the quotation marks of the text are escaped.
            words = vector["error"].replace('"', "").split("\n")[0][:60]
            assert words in went.log.replace('\\"', "").replace('"', ""), (
                vector["name"],
                went.error,
            )
        elif "settings" in vector and vector["settings"].get("memory_manager_policy") == "Static":
            kept = sum(
                amount(text.rpartition(":")[2].strip())
                for text in vector["settings"]["reserved_memory"].split(",")
            )
            if kept >= 0 and "negative" not in vector["name"]:
                assert sum(went.reserved.values()) == kept, vector["name"]
    print(f"\nkubelet {version}: {started} started, {refused} refused")
    assert started > 20 and refused > 15


@pytest.mark.parametrize("version", KUBELETS)
def test_rendered_drop_in_overrides_the_base_file(version: str, tmp_path: Path) -> None:
    """Values of dnm's drop-in file count, and the base file's eviction threshold stays."""
    vector = next(entry for entry in OWN if entry["name"].startswith("2 "))
    drop_in = Said(vector["settings"]).config
    base = json.dumps({**HEAD, "kubeReserved": {"cpu": "500m", "memory": "1Gi"}})
    went = boot(tmp_path / "kubelet", version, base, TWO, [drop_in])
    assert not went.error, went.error
    assert went.reserved == {"0": 4300 * 2**20, "1": 4300 * 2**20}
    without_threshold = {
        key: text for key, text in vector["settings"].items() if not key.startswith("eviction")
    }
    went = boot(tmp_path / "kubelet", version, base, TWO, [Said(without_threshold).config])
    assert not went.error, went.error
    assert not boot(tmp_path / "kubelet", version, base, TWO).reserved


@pytest.mark.parametrize("version", KUBELETS)
def test_previous_state_file_stops_the_kubelet(version: str, tmp_path: Path) -> None:
    """Shows why the hooks remove the managers' state files, which dnm's messages also name."""
    vector = next(entry for entry in OWN if entry["name"].startswith("2 "))
    before = boot(tmp_path / "kubelet", version, json.dumps(HEAD), TWO)
    left = (tmp_path / "kubelet" / "root" / "memory_manager_state").read_text()
    assert not before.error and json.loads(left)["policyName"] == "None"
    went = boot(tmp_path / "kubelet", version, Said(vector["settings"]).config, TWO, state=left)
    assert "memory_manager_state" in went.log and went.error
