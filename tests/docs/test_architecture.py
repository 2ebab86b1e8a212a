"""Tests of docs/architecture.md: the map of the packages is the one that test_layers.py checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from dnm.checks.queue_checks import QueueChecks
from dnm.config.keys import OF_RULES
from dnm.config.values import QUEUE_SYSTEMS
from dnm.model.config import Config, NamespacePolicy
from dnm.model.registry import Registry
from dnm.plan.hooks import Rule
from dnm.plan.rule import TABLE
from dnm.plan.rules.node_hours import RULE
from dnm.queues.system import Queues, QueueSystem
from tests.docs.pages import PAGES, ROOT, quoted, section, table_of
from tests.test_layers import IMPORT_RULES, package_of

PAGE = "docs/architecture.md"


def map_rows() -> dict[str, int]:
    """Returns the line of each package on the map, from the top."""
    (drawing,) = re.findall(r"^```\n(.*?)^```", section(PAGE, "The map"), flags=re.S | re.M)
    results: dict[str, int] = {}
    for number, line in enumerate(drawing.splitlines()):
        for word in re.findall(r"[a-z._]+", line):
            if word in IMPORT_RULES:
                assert word not in results, f"{word} is on the map twice"
                results[word] = number
    return results


def test_package_map_shows_exactly_the_existing_packages() -> None:
    assert map_rows().keys() == IMPORT_RULES.keys()


@pytest.mark.parametrize("package", IMPORT_RULES)
def test_imports_follow_the_package_map(package: str) -> None:
    place = map_rows()
    for name in IMPORT_RULES[package].may:
        assert place[package_of(name)] > place[package], f"{package} imports {name}"


def test_package_table_has_every_package() -> None:
    lines = [quoted(row[0])[0] for row in table_of(PAGE, "Packages")]
    assert sorted(lines) == sorted(IMPORT_RULES)


def test_rule_example_of_the_page_is_complete() -> None:
    """The page names the hooks, the table line, the key and the tests of its example."""
    _, full = section(PAGE, "Adding a rule").split("\n- ", 1)
    output, hooks = full.split("The hooks, as ")
    of_file, of_line, of_key, of_page, of_tests = (quoted(part) for part in output.split("\n- "))
    assert of_file[0] == "dnm/plan/rules/node_hours.py"
    settings = {name for name in Rule.__struct_fields__ if getattr(RULE, name)}
    assert settings == {*of_file} & {*Rule.__struct_fields__}
    assert [reason.name for reason in RULE.reasons] == of_file[1:2]
    assert of_line == ["TABLE", "dnm/plan/rule.py"]
    policy = NamespacePolicy(name="x", queue="root.x", node_types=())
    plain = Config(path=Path("x"), namespaces={"x": policy}, node_types={})
    budget = replace(policy, options={"node_hours_per_week": 1.0})
    is_on = dict(TABLE)["node_hours"]
    assert not is_on(plain, Registry(), None)
    assert is_on(replace(plain, namespaces={"x": budget}), Registry(), None)
    assert "node_hours_per_week" in OF_RULES["namespace"] and of_key[0] == "OF_RULES"
    assert of_page == ["python -m packages.reference > docs/configuration.md"]
    assert "node_hours" in (ROOT / of_tests[0]).read_text(encoding="utf-8")
    assert quoted(hooks)[:2] == ["Rule", "dnm/plan/hooks.py"]
    assert quoted(hooks)[2:] == [*Rule.__struct_fields__]


def test_abandoned_terms_are_in_no_page() -> None:
    abandoned = r"\b(Desk|Survey|Fleet|Supply|Case|Helped)\b"
    for page, text in PAGES.items():
        assert not re.search(abandoned, text), page


def test_page_of_queue_systems_names_every_question_and_existing_files() -> None:
    page = "docs/queue-systems.md"
    for name, protocol in (("QueueSystem", QueueSystem), ("Queues", Queues)):
        (row,) = [row for row in table_of(page, "The questions") if quoted(row[0]) == [name]]
        assert quoted(row[2]) == [item for item in vars(protocol) if not item.startswith("_")]
    (row,) = [row for row in table_of(page, "The questions") if quoted(row[0]) == ["QueueChecks"]]
    asked = [item for item in vars(QueueChecks) if not item.startswith("_")]
    assert quoted(row[2]) == [*QueueChecks.__annotations__, *asked]
    files = [name for row in table_of(page, "The files") for name in quoted(row[0])]
    own = [name for name in files if not (ROOT / name).exists()]
    *needed, optional = own
    assert (needed, optional) == (["system.py", "admin/checks.py"], "admin/explain.py")
    packages = [ROOT / "dnm" / "queues" / system for system in QUEUE_SYSTEMS]
    assert all((package / name).exists() for package in packages for name in needed)
    assert any((package / optional).exists() for package in packages)
