"""Tests that dnm's JSON output equals the examples on its page, except for times, ids and paths."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from dnm.lab.sandbox.cluster import Sandbox
from tests.converters.test_cli import Host
from tests.docs.pages import PAGES, ROOT, quoted, rows
from tests.site import QUEUE, Site

PAGE = "docs/json.md"
QUEUES = """\
partitions:
  - name: default
    queues:
      - name: anvil
        submitacl: "*"
        queues:
          - name: services
            queues:
              - name: dev
                resources:
                  max: {memory: 320G, vcore: 80}
"""
LINKED = {quoted(row[1])[0]: row for row in rows(PAGES[PAGE])}
TABLE = {schema: [row[0], schema, row[2]] for schema, row in LINKED.items()}
EXAMPLES: dict[str, Any] = {
    schema: json.loads((ROOT / "docs" / row[1].partition("(")[2][:-1]).read_text(encoding="utf-8"))
    for schema, row in LINKED.items()
}

pytestmark = pytest.mark.xdist_group("json")  # one worker builds the fixture once


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns the JSON that each command of the page's table prints while one node is lent."""
    directory = tmp_path_factory.mktemp("json")
    sandbox = Sandbox(directory / "sandbox").start()
    sandbox.set_queues(QUEUES)
    sandbox.add_machines(2)
    sandbox.add_pods(12, "dev", queue=QUEUE, cpu="4", memory="16G")
    site = Site(sandbox, directory / "site")
    site.run()
    sandbox.tick(1)
    results = {}
    (directory / "queues.yaml").write_text(QUEUES.replace("vcore: 80", "vcore: many"))
    (course,) = re.findall(r"^```json\n(.*?)^```", PAGES["docs/simulate.md"], flags=re.S | re.M)
    (directory / "course.json").write_text(course)
    for schema, (command, *_) in sorted(TABLE.items(), key=_when):
        if command.startswith("`dnm "):
            sandbox.tick(max(0, time.time() - sandbox.clock.now()))  # else check sees a wrong clock
            if "event" in command:
                span = ("--from", "2026-03-02 12:00", "--until", "13:00", "--weekly", "Mon")
                needs = ("--pods", "75", "--cpu", "4", "--memory", "16G")
                site.command("event", "add", "stars", "--namespace", "dev", *span, *needs)
            words = re.sub(r"queues\.yaml|course\.json", rf"{directory}/\g<0>", command.strip("`"))
            text = site.command(*words.split()[1:]).stdout.replace(f"{directory}/", "")
            results[schema] = json.loads(text)
    sandbox.stop()
    host = Host(directory)
    convert = ("--set", "k8s", "--node-name", "a005", "--namespace", "dev")
    for schema, arguments in (("list", ("--list",)), ("result", convert)):
        done = host.run(*arguments, "--output", "json")
        results[f"node-convert.{schema}/1"] = json.loads(done.stdout)
    return results


def _when(entry: tuple[str, list[str]]) -> int:
    """Returns a sort key: the plan is made before the run that joins the node."""
    order = ("dnm.plan/1", "dnm.run/1", "", "dnm.verb/1")
    return order.index(entry[0] if entry[0] in order else "")


def shortened(value: Any) -> Any:
    """Shortens JSON as the page does: one object of each list; invented times, ids and paths."""
    if isinstance(value, dict):
        return {key: _made_up(key, shortened(item)) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in (value[-1:] if value and _is_object(value) else value)]
    if isinstance(value, str):
        value = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-03-02T12:00:00Z", value)
        value = re.sub(r"\d{8}T\d{6}\.\d+Z", "20260302T120000.000000Z", value)
        return re.sub(r"\d{8}T\d{12,}-1", "20260302T120000000000-1", value)
    return value


_OF_A_CLOCK = ("lent_node_minutes", "known_node_minutes", "pods_saved_minutes")


def _is_object(value: list[Any]) -> bool:
    return isinstance(value[0], dict)


def _made_up(key: str, value: Any) -> Any:
    if key.endswith(("seconds", "hours", *_OF_A_CLOCK)) and isinstance(value, int | float):
        return 3
    if key == "state" and value in ("keeps", "lends", "in force"):
        return "ahead"
    if key in ("requester", "host") and value:
        return {"requester": "alice", "host": "login1"}[key]
    if key == "local":
        return "Mon 2026-03-02 12:00 UTC to 13:00"
    if key == "week":
        return "2026-W10"
    if key in ("error", "name") and isinstance(value, str):
        return re.sub(r"load-[0-9a-f]{8}", "load-1a2b3c4d", value)
    return value


@pytest.mark.parametrize("schema", TABLE)
def test_json_documents_are_as_the_page_shows_them(schema: str, documents: dict[str, Any]) -> None:
    message = shortened(documents[schema])
    assert message == EXAMPLES[schema], json.dumps(message, indent=2, ensure_ascii=False)


@pytest.mark.parametrize("schema", TABLE)
def test_json_table_names_only_existing_fields(schema: str) -> None:
    shown = EXAMPLES[schema]
    keys = set(re.findall(r'"([\w]+)":', json.dumps(shown)))
    named = re.findall(r"`(\w+)`", TABLE[schema][2])
    assert named and set(named) <= keys


def test_every_schema_of_the_code_is_on_the_page() -> None:
    package = Path(__file__).parents[2] / "dnm"
    files = [path for path in package.rglob("*.py") if "sandbox" not in path.parts]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    read = {"dnm.workload/1"}  # formats that dnm reads are on the page of their command
    assert set(re.findall(r'"((?:dnm|node-convert)\.[a-z.-]+/\d)"', text)) - read == set(TABLE)
