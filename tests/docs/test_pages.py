"""Tests that the pages are correct: commands exist, tables are complete, links work."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from dnm.config.load import load_config
from dnm.converters import to_batch, to_k8s
from dnm.converters.settings import PREDECESSOR_VARIABLES
from dnm.demand.gangs import MOST_MEMBERS
from dnm.demand.pending import NotCounted
from dnm.lab.sandbox.client import ask
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import ConfigError, ExitCode
from dnm.model.pod import MOST_RESOURCES, MOST_TASK_GROUPS
from dnm.model.reason import CORE_REASONS
from dnm.record.metrics import TABLE as METRICS
from packages import reference
from packages.reference import DECLARED
from tests.docs.pages import PAGES, ROOT, all_names, names_in, quoted, rows, section, without_code
from tests.processes import warm_processes
from tests.proof.invariants import RULES
from tests.site import QUEUE, Site, set_up_workshop

pytestmark = pytest.mark.xdist_group("pages")  # each command's help is read once

README = PAGES["README.md"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KEYS = {key for keys in DECLARED.values() for key in keys}
BLOCKS = [
    block
    for text in PAGES.values()
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.S | re.M)
]
LINES = [
    line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()
]
INLINE = [code for text in PAGES.values() for code in quoted(text)]
COMMANDS = sorted(
    {code for code in (*INLINE, *LINES) if re.match(r"(dnm|node-convert) [^(]", code)}
)
GROUPS = ("node-types", "queues", "sandbox", "registry", "event")


# --- commands ----------------------------------------------------------------------------------


def words_of(command: str) -> list[str]:
    """Returns a command's words, without placeholders such as NAME and [OPTIONAL]."""
    plain = re.sub(r"\[[^]]*\]|…|\.\.\.", " ", command)
    return [word for word in shlex.split(plain) if word and not word.isupper()]


@cache
def help_of(program: str, *words: str) -> str:
    environment = {"COLUMNS": "200", "PATH": "/usr/bin"}
    job = {"program": program, "arguments": (*words, "--help"), "environment": environment}
    (child,) = warm_processes().start(job)
    done = child.wait()
    assert done.code == 0, f"{words}: {done.err}"
    return done.out


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("dnm ")])
def test_every_command_of_dnm_exists_with_its_options(command: str) -> None:
    _, *words = words_of(command)
    if not words or words[0].startswith("-"):
        verbs: list[str] = []
    else:
        verbs = words[:2] if words[0] in GROUPS else words[:1]
    text = help_of("dnm", *verbs)
    for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", command.replace("[", " ")):
        assert re.search(rf"(?<!\S){re.escape(option)}\b", text), f"{option} in {command}"


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("node-convert ")])
def test_every_option_of_node_convert_exists(command: str) -> None:
    for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", command):
        assert option in help_of("node-convert"), option


def test_every_named_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = [line for line in (*LINES, *INLINE) if line.startswith("make ")]
    assert len(named) > 5
    for target in {word for line in named for word in line.split()[1:]}:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def test_manual_trial_uses_the_commands_that_make_installs() -> None:
    manual = next(block for block in BLOCKS if "dnm sandbox up --workshop" in block)
    assert manual.startswith("export PATH=$PWD/.venv/bin:$PATH\n")
    assert "VENV := .venv\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    before = README.split(manual)[0].split("## Two commands")[1]
    assert set(re.findall(r"`dnm ([^`]+)`", before)) == {"run"}  # a topic, no order


# --- links and names ---------------------------------------------------------------------------


@cache
def anchors_of(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub generates them."""
    titles = re.findall(r"^#+ (.*)$", without_code(text), flags=re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


LINKS = [
    (page, target)
    for page, text in PAGES.items()
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text))
]


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_every_link_has_a_target(page: str, target: str) -> None:
    if re.match(r"https://", target):
        return
    name, _, anchor = target.partition("#")
    path = ((ROOT / page).parent / name).resolve() if name else ROOT / page
    assert path.exists(), target
    if anchor:
        assert anchor in anchors_of(path.read_text(encoding="utf-8")), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = {"README.md"}, ["README.md"]
    while todo:
        page = todo.pop()
        for source, target in LINKS:
            path = ((ROOT / source).parent / target.partition("#")[0]).resolve()
            name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""
            if source == page and name in PAGES and name not in reached:
                reached.add(name)
                todo.append(name)
    assert reached == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_exists(page: str) -> None:
    named = re.findall(r"(?<![\w/.$-])((?:dnm|tests|etc|cron|docs)/[\w./-]*\w)", PAGES[page])
    for name in named:
        assert (ROOT / name).exists(), name
    for module in re.findall(r"python -m (tests[\w.]*)", PAGES[page]):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


CODE = [
    (page, step, file.strip("`"), quoted(names))
    for page in ("README.md", "docs/architecture.md")
    for step, file, names in (row for row in rows(PAGES[page]) if len(row) == 3)
    if re.fullmatch(r"`dnm/.*\.py`", file)
]


@pytest.mark.parametrize(("page", "step", "file", "names"), CODE)
def test_every_function_is_in_the_named_file(
    page: str, step: str, file: str, names: list[str]
) -> None:
    assert names, step
    for name in names:
        assert name in names_in(file), f"{name} is not defined in {file}: {page}, {step!r}"


def test_pages_contain_code_references() -> None:
    pages = [page for page, *_ in CODE]
    assert pages.count("README.md") >= 8
    assert pages.count("docs/architecture.md") >= 35


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"CHANGELOG.md"}))
def test_every_named_key_and_identifier_exists(page: str) -> None:
    """Checks words_with_underscores: each must be a key of the ini or a name in the code."""
    facts = KEYS | all_names() | json_keys() | {name for name, *_ in METRICS}
    for code in quoted(PAGES[page]):
        key, equals, _ = code.partition(" = ")
        if re.fullmatch(r"[a-z]+[a-z0-9]*(_[a-z0-9]+)+", key):
            assert key in (KEYS if equals else facts), code


def test_configuration_page_equals_the_declarations() -> None:
    """If it fails, run `python -m packages.reference > docs/configuration.md`."""
    assert PAGES["docs/configuration.md"] == "\n".join(reference.page()) + "\n"
    results = [(group.section, row.key) for group in reference.GROUPS for row in group.rows]
    assert len(results) == len(set(results))
    assert set(results) == {(section, key) for section, keys in DECLARED.items() for key in keys}
    assert all(row.about and row.change for group in reference.GROUPS for row in group.rows)


PROMISED = ("cooldown", "breaker", "back-off", "jobs")  # the limits on lending that the page names


def test_help_of_force_equals_the_page_of_commands() -> None:
    """Neither may list waiting jobs, which stop no lend and so need no `--force`."""
    (row,) = (row for row in rows(PAGES["docs/single-nodes.md"]) if row[-1] == "yes")
    help_text = " ".join(help_of("dnm", "lend").split()).partition("--force")[2][:120]
    assert [word in help_text for word in PROMISED] == [word in row[0] for word in PROMISED]
    (about,) = (
        row.about for group in reference.GROUPS for row in group.rows if row.key == "priority"
    )
    assert "jobs" not in about


def json_keys() -> set[str]:
    shown = (path.read_text(encoding="utf-8") for path in ROOT.glob("docs/json/*.json"))
    return set(re.findall(r'"(\w+)":', "".join(shown)))


def test_variables_of_the_predecessor_are_settings() -> None:
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", PAGES["docs/node-convert.md"]))
    assert len(named) > 8
    elsewhere = {"RES_NAME", "PREEMPT_ENABLED", *PREDECESSOR_VARIABLES}
    for name in named - elsewhere:
        assert name.lower() in KEYS, name


# --- tables ------------------------------------------------------------------------------------


def test_every_reason_is_explained() -> None:
    explained = [row[0] for row in rows(section("docs/decisions.md", "What each reason means"))]
    assert explained == [reason.text for reason in CORE_REASONS]


def test_every_reason_not_to_count_a_pod_is_explained() -> None:
    explained = [row[0] for row in rows(section("docs/decisions.md", "Pods that do not count"))]
    assert explained == [why.value for why in NotCounted]


def test_bounds_of_a_gang_are_documented() -> None:
    (output,) = [row[1] for row in rows(section("docs/decisions.md", "Pods that do not count"))
               if row[0] == NotCounted.GANG.value]  # fmt: skip
    bounds = (MOST_MEMBERS, MOST_TASK_GROUPS, MOST_RESOURCES)
    assert [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", output)] == [*bounds]


def test_stages_of_node_convert_are_listed_in_order() -> None:
    text = PAGES["docs/node-convert.md"]
    lines = dict(re.findall(r"^    (batch|Kubernetes) → \w+ +(.*)$", text, flags=re.M))
    assert {direction: line.split(" → ") for direction, line in lines.items()} == {
        "batch": ["select", *(stage.name for stage in to_k8s.STAGES)],
        "Kubernetes": [stage.name for stage in (to_batch.PROGRAM.check, *to_batch.STAGES)],
    }


def test_every_invariant_of_the_proof_is_a_promise() -> None:
    promised = re.findall(r"^\| \*\*(.*?)\.\*\*", PAGES["docs/promises.md"], flags=re.M)
    assert len(promised) == 10
    for rule in RULES:
        lines = {re.sub(r"\W+", "_", name.lower()) for name in promised}
        assert rule.__name__.removesuffix("s") in lines, rule.__name__


def test_each_promise_names_its_tests() -> None:
    promised = rows(section("docs/promises.md", "How each promise is tested"))
    assert len(promised) > 30
    for _, proof, judge in promised:
        assert re.fullmatch(r"`tests/(?!real/)[\w/]+\.py::test_\w+`", proof), proof
        for output in (proof, judge):
            path, _, name = output.strip("`").partition("::")
            if path.startswith("make "):
                continue
            before, is_there, _ = (ROOT / path).read_text("utf-8").partition(f"def {name}(")
            assert is_there, output
            is_nightly = "@night\n" in before.rpartition("\n\n\n")[2]
            assert output != proof or not is_nightly, f"{output} is not played by day"


def test_every_dependency_has_its_reason() -> None:
    explained = [row[0].split()[0] for row in rows(section("README.md", "Dependencies"))]
    wanted = [re.split(r"[<>=~!\[; ]", text)[0] for text in PROJECT["dependencies"]]
    assert sorted(explained) == sorted(wanted)
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("dnm/**/*.py"))
    for name in wanted:
        module = {"pyyaml": "yaml"}.get(name, name)
        assert re.search(rf"^\s*(import|from) {module}\b", source, flags=re.M), name


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200


def test_every_exit_code_is_documented() -> None:
    (reported,) = re.findall(r"\*\*Exit codes\.\*\* (.*?)\n\n", README, flags=re.S)
    assert [int(word) for word in re.findall(r"\b\d+\b", reported)] == [
        int(code) for code in ExitCode
    ]


def test_changelog_has_this_version() -> None:
    heads = re.findall(r"^## (.*)$", PAGES["CHANGELOG.md"], flags=re.M)
    assert heads[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head) for head in heads[1:])
    assert heads[1].startswith(f"[{PROJECT['version']}] - ")
    kinds = set(re.findall(r"^### (.*)$", PAGES["CHANGELOG.md"], flags=re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_each_of_five_critical_properties_names_its_tests() -> None:
    text = section("CONTRIBUTING.md", "Five things that a change must not break")
    things = re.split(r"^\d\. ", text, flags=re.M)[1:]
    assert len(things) == 5
    for thing in things:
        assert re.search(r"`tests/[\w/]+/test_\w+\.py`", thing), thing


# --- what is shown is what one gets ------------------------------------------------------------


def configured(directory: Path, ini: str, queue_map: str) -> Path:
    (directory / "namespace_queue_paths.json").write_text(queue_map)
    path = directory / "dynamic_node_config.ini"
    path.write_text(ini)
    for file in (path, directory / "namespace_queue_paths.json"):
        file.chmod(0o644)
    return path


def test_smallest_configuration_works(tmp_path: Path) -> None:
    text = section("README.md", "Configure")
    (ini,) = re.findall(r"^```ini\n(.*?)^```", text, flags=re.S | re.M)
    (queue_map,) = re.findall(r"^```json\n(.*?)^```", text, flags=re.S | re.M)
    local = f"namespace_queue_paths = {tmp_path}/namespace_queue_paths.json\n"
    config = load_config(configured(tmp_path, ini + local, queue_map), {})
    assert config.queues == ("root.services.dev",)


def test_wrong_configuration_is_answered_as_shown(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```\n(dnm: .*?)^```", section("README.md", "Configure"), re.S | re.M)
    ini = (
        "[settings]\nmax_converted_node = 5\nmonitored_namespaces = test\n"
        f"namespace_queue_paths = {tmp_path}/namespace_queue_paths.json\n"
    )
    path = configured(tmp_path, ini, '{"tset": "root.test"}')
    with pytest.raises(ConfigError) as refusal:
        load_config(path, {})
    message = f"dnm: {refusal.value}\n".replace(str(tmp_path), "/etc/dynamic-node")
    assert re.fullmatch(re.escape(shown).replace("…", ".*?"), message), message


def test_every_documented_fault_is_injected(sandbox: Sandbox) -> None:
    sandbox.add_machines(3)
    sandbox.join_manually("a003", "dev")
    text = section("CONTRIBUTING.md", "The sandbox")
    lines = re.findall(r"^curl (.*)\$URL(/sandbox/.*)$", text, flags=re.M)
    assert len(lines) == 6
    kept = []
    for options, path in lines:
        words = shlex.split(options)
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        method = "DELETE" if "DELETE" in words else "POST" if body else "GET"
        ask(sandbox.url, method, path, body)
        kept.append((len(sandbox.faults._faults), len(sandbox.conversion.behaviours)))
    assert kept == [(1, 0), (0, 0), (0, 1), (0, 0), (0, 0), (0, 0)]


def test_rollback_to_the_predecessor_gives_its_registry(sandbox: Sandbox, tmp_path: Path) -> None:
    set_up_workshop(sandbox, 3)
    sandbox.add_pods(12, "dev", queue=QUEUE, cpu="4", memory="16G")
    site = Site(sandbox, tmp_path / "site")
    site.run()
    sandbox.tick(1)
    site.run()
    line = next(line for line in LINES if line.startswith("python3 -c"))
    program = shlex.split(line.split(" < ")[0])[2]
    text = site.config.converted_nodes_path.read_text()
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    old = json.loads(done.stdout)
    assert old and set(old) == set(site.lent())
    assert set(old["a001"]) == {"namespace", "last_pod_end", "owner"}
