"""Tests of the import rules of the code base: each package of dnm has a rule about what it may
import, also one in an optional package (`lab.sandbox`).

`IMPORT_RULES` has for each package the packages or modules of dnm that it may import, and the
foreign modules that it may not. Imports only for types (under TYPE_CHECKING) count too, because
code with a type of another package depends on that package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import dnm
from dnm.cli.table import TABLE
from tests.trees import nodes_below

PACKAGE = Path(dnm.__file__).parent

PROCESSES = frozenset({"subprocess", "signal", "multiprocessing"})
WIRES = frozenset({"socket", "ssl", "http"})  # only the reader of answers
CLIENTS = frozenset({"kubernetes", "urllib3", "requests"})
NETWORK = WIRES | CLIENTS | {"urllib", "selectors"}
FILES = frozenset({"os", "shutil", "tempfile", "fcntl", "filelock", "pathlib", "io"})
MOMENT = frozenset({"time", "random", "secrets", "threading", "logging"})
SCREEN = frozenset({"typer", "rich", "click", "sys"})
TEXT = frozenset({"configparser", "yaml"})
EVERYTHING = PROCESSES | NETWORK | FILES | MOMENT | SCREEN | TEXT


class Rule(NamedTuple):
    may: frozenset[str]  # packages of dnm, or single modules of them
    not_outside: frozenset[str] = frozenset()
    except_in: Mapping[str, frozenset[str]] = {}  # module -> what only it imports from outside


def _rule(may: str, not_outside: frozenset[str], **except_in: frozenset[str]) -> Rule:
    return Rule(frozenset(may.split()), not_outside, except_in)


INTERFACE = "queues.system queues.namespaces queues.system_of queues.unlimited_namespaces"
COMMANDS = "model host calendar config kube kubelet converter queues demand sizing plan record run"
IMPORT_RULES: dict[str, Rule] = {
    "model": _rule("", EVERYTHING, config=frozenset({"pathlib"})),
    "host": _rule("model", SCREEN - {"sys"} | TEXT | NETWORK - {"selectors"}),
    "calendar": _rule("model", EVERYTHING),
    "config": _rule(
        "model host calendar",
        PROCESSES | NETWORK | MOMENT | SCREEN,
        load=frozenset({"sys"}),  # the location of its own converter
        names=frozenset({"urllib"}),  # parsing an address
    ),
    "http": _rule("model host", PROCESSES | SCREEN | TEXT | WIRES, reader=WIRES, causes=WIRES),
    "kube": _rule(
        "model host http demand.pod_request queues.system queues.pod_reading_of",
        PROCESSES | SCREEN | WIRES | {"configparser"},
    ),
    "converters.slurm": _rule(
        "model host http",
        NETWORK | SCREEN | TEXT,
        rest=frozenset({"urllib"}),  # a name in a path
    ),
    "converter": _rule("model host", NETWORK | (SCREEN - {"sys"}) | TEXT),
    "queues": _rule("model", EVERYTHING, each=frozenset({"time"})),
    "queues.yunikorn": _rule(
        "model host http queues.system",
        EVERYTHING,
        yaml_nodes=frozenset({"yaml"}),
        decode=frozenset({"yaml"}),
        files=frozenset({"pathlib", "yaml"}),
        packed=frozenset({"io"}),
        rest=frozenset({"urllib"}),
        uptake=frozenset({"time"}),
    ),
    "queues.yunikorn.admin": _rule(
        "model host calendar config kube converter queues demand plan record run checks.findings "
        "checks.queue_checks cli.terminal",
        WIRES | CLIENTS,
    ),
    "queues.none": _rule("model queues.namespaces queues.system", EVERYTHING),
    "queues.resource_quota": _rule(
        "model queues.each queues.namespaces queues.system",
        EVERYTHING,
        system=frozenset({"time"}),
        objects=frozenset({"time"}),
    ),
    "queues.resource_quota.admin": _rule(
        "model kube demand checks.findings checks.node_types checks.queue_checks "
        "queues.resource_quota",
        EVERYTHING,
    ),
    "queues.kueue": _rule(
        "model queues.each queues.namespaces queues.system", EVERYTHING, writes=frozenset({"time"})
    ),
    "queues.kueue.admin": _rule(
        "model kube demand checks.findings checks.queue_checks queues.kueue", EVERYTHING
    ),
    "queues.none.admin": _rule(
        "model kube demand checks.findings checks.node_types checks.queue_checks", EVERYTHING
    ),
    "kubelet": _rule("model", EVERYTHING),
    "demand": _rule("model", EVERYTHING),
    "sizing": _rule("model demand kubelet", EVERYTHING),
    "plan": _rule(f"model demand sizing {INTERFACE}", EVERYTHING),
    "plan.rules": _rule(f"model calendar demand kubelet sizing plan {INTERFACE}", EVERYTHING),
    "verbs": _rule("model calendar config.files sizing plan", EVERYTHING),
    "record": _rule(
        "model host",
        EVERYTHING,
        history_file=frozenset({"os", "pathlib"}),
    ),
    "simulate": _rule(
        f"model plan {INTERFACE}",
        EVERYTHING,
        world=frozenset({"random"}),
    ),
    "run": _rule(
        "model host calendar config kube kubelet converter queues demand sizing plan record",
        SCREEN | TEXT | WIRES | CLIENTS,
    ),
    "checks": _rule(
        "model host calendar config kube kubelet converter queues demand sizing plan run "
        "converters.settings converters.sreport",
        WIRES | CLIENTS | SCREEN,
    ),
    "cli.terminal": _rule("model calendar config plan record run verbs", WIRES | CLIENTS),
    "cli.look": _rule(f"{COMMANDS} simulate converters.sreport cli.terminal", WIRES | CLIENTS),
    "cli.manual": _rule(f"{COMMANDS} verbs cli.terminal cli.look cli.act", WIRES | CLIENTS),
    "cli.set_up": _rule(
        f"{COMMANDS} checks converters.settings converters.sreport converters.convert_test "
        "cli.terminal cli.look",
        WIRES | CLIENTS,
    ),
    "cli.act": _rule(f"{COMMANDS} verbs cli.terminal cli.look", WIRES | CLIENTS),
    "cli": _rule(
        f"{COMMANDS} lab.verbs cli.terminal cli.look cli.act cli.manual cli.set_up",
        WIRES | CLIENTS,
    ),
    "converters": _rule(
        "model host config kube kubelet converters.slurm converter demand.constraints",
        TEXT | WIRES | CLIENTS,
    ),
    "lab": _rule("lab.sandbox lab.demo", frozenset({"kubernetes"})),
    "lab.sandbox": _rule("model host converter.processes", frozenset({"kubernetes"})),
    "lab.demo": _rule(
        "model host config lab.sandbox",
        frozenset({"kubernetes"}),
    ),
}


class Import(NamedTuple):
    by: str  # module below dnm, e.g. "run.actuator"
    of: str  # the imported name, e.g. "dnm.kube.session", "os.path"
    line: int


# The one process of this file's tests reads each file once.
pytestmark = pytest.mark.xdist_group("layers")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(nodes_below(tree_of(path)))


@cache
def imports(root: Path) -> tuple[Import, ...]:
    """Returns all imports, also in functions. `from a import b` gives both `a` and `a.b`."""
    return tuple(_read_imports(root))


def _read_imports(root: Path) -> Iterator[Import]:
    for path in sorted(root.rglob("*.py")):
        by = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        if by == "cli.table":  # imports a command when it is used
            yield from (Import(by, f"dnm.{pair.target.replace(':', '.')}", 0)
                        for pair in TABLE.values() if pair.target)  # fmt: skip
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                yield from (Import(by, alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: a relative import"
                base = node.module or ""
                yield from (Import(by, f"{base}.{name.name}", node.lineno) for name in node.names)


def package_of(module: str) -> str:
    """Returns the innermost package with a rule that has this module or name, or empty."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in IMPORT_RULES), "")


def is_allowed(pair: Import) -> bool:
    importer = package_of(pair.by)
    if not importer:
        return False
    rule, module = IMPORT_RULES[importer], pair.by.removeprefix(f"{importer}.")
    root, _, rest = pair.of.partition(".")
    if root != "dnm":
        return root not in rule.not_outside - rule.except_in.get(module, frozenset())
    is_below = any(f"{rest}.".startswith(f"{name}.") for name in rule.may)
    return is_below or package_of(rest) in (importer, "")


def trespasses(root: Path) -> list[str]:
    return [f"{pair.by}:{pair.line}: {pair.of}" for pair in imports(root) if not is_allowed(pair)]


def test_every_package_obeys_its_import_rule() -> None:
    assert not [pair for pair in imports(PACKAGE) if not is_allowed(pair)]


def test_exclusion_rules_are_imported_only_by_the_rule_table() -> None:
    """Other code must not depend on single rules: it shows the reason of any rule."""
    assert not [
        pair for pair in imports(PACKAGE) if pair.of.startswith("dnm.plan.rules.exclusions")
    ]


def test_every_package_has_an_import_rule() -> None:
    inits = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*/__init__.py")}
    assert {".".join(path.parts) for path in inits} == set(IMPORT_RULES)
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py"}, "a file in no package"


def test_only_the_rest_client_imports_http_into_queues() -> None:
    users = {pair.by for pair in imports(PACKAGE) if pair.of.startswith("dnm.http")}
    assert {by for by in users if by.startswith("queues.")} == {"queues.yunikorn.rest"}


PLANTED = [
    pytest.param("model", "from dnm.config import values", id="model-config"),
    pytest.param("calendar", "from dnm.config import values", id="calendar-config"),
    pytest.param("host", "from dnm.run import registry", id="host-run"),
    pytest.param("config", "from dnm.kube.client import KubeClient", id="config-kube"),
    pytest.param("kube", "from dnm.run import registry", id="kube-run"),
    pytest.param("http", "from dnm.kube import session", id="http-kube"),
    pytest.param("http", "import http.client", id="http-another-reader"),
    pytest.param("kube", "import ssl", id="kube-wires"),
    pytest.param("converters.slurm", "import dnm.kube.session", id="slurm-kube"),
    pytest.param("converter", "from dnm.converters.slurm import commands", id="converter-slurm"),
    pytest.param("queues", "from dnm.run import registry", id="queues-run"),
    pytest.param("queues", "from dnm.plan import limits", id="queues-plan"),
    pytest.param("queues", "import http.client", id="queues-network"),
    pytest.param("queues.yunikorn", "from dnm.kube import client", id="yunikorn-kube"),
    pytest.param("queues.yunikorn", "import http.client", id="yunikorn-network"),
    pytest.param("queues.yunikorn.admin", "import http.client", id="yunikorn-admin-wires"),
    pytest.param("queues.none", "from dnm.queues.yunikorn import edit", id="none-yunikorn"),
    pytest.param("queues.resource_quota", "from dnm.kube import client", id="quota-kube"),
    pytest.param("queues.kueue", "from dnm.kube import client", id="kueue-kube"),
    pytest.param("queues.kueue.admin", "from dnm.run import registry", id="kueue-admin-run"),
    pytest.param("queues.resource_quota.admin", "from dnm.run import registry", id="quota-run"),
    pytest.param("queues.none.admin", "from dnm.run import registry", id="none-admin-run"),
    pytest.param("kubelet", "from dnm.config import values", id="kubelet-config"),
    pytest.param(
        "demand", "from dnm.queues.yunikorn.document import QueueDocument", id="demand-queues"
    ),
    pytest.param("sizing", "import time", id="sizing-clock"),
    pytest.param("plan", "from dnm.queues.yunikorn import system", id="plan-system"),
    pytest.param("plan", "from dnm.queues.yunikorn.rest import YunikornClient", id="plan-rest"),
    pytest.param("plan", "from dnm.converters.slurm import text", id="plan-slurm"),
    pytest.param("plan", "import configparser", id="plan-ini"),
    pytest.param("plan", "from dnm.plan.rules import moves", id="plan-a-rule"),
    pytest.param("plan.rules", "from dnm.queues.yunikorn import system", id="rules-system"),
    pytest.param("verbs", "from dnm.run import registry", id="verbs-run"),
    pytest.param("record", "from dnm.plan import planner", id="record-plan"),
    pytest.param("simulate", "from dnm.run import planning", id="simulate-run"),
    pytest.param("simulate", "import time", id="simulate-clock"),
    pytest.param("run", "from dnm.cli import report", id="run-cli"),
    pytest.param("run", "import rich", id="run-screen"),
    pytest.param("checks", "from dnm.cli.terminal import output", id="checks-cli"),
    pytest.param("cli.terminal", "from dnm.cli.look import status", id="terminal-look"),
    pytest.param("cli.look", "from dnm.verbs import lending", id="look-verbs"),
    pytest.param("cli.manual", "from dnm.cli.set_up import check", id="manual-set-up"),
    pytest.param("cli.set_up", "from dnm.verbs import lending", id="set-up-verbs"),
    pytest.param("cli.act", "import http.client", id="act-wires"),
    pytest.param("cli", "from dnm.lab.sandbox.store import Store", id="cli-sandbox"),
    pytest.param("converters", "from dnm.run import snapshot", id="converters-run"),
    pytest.param("lab", "from dnm.run import snapshot", id="lab-run"),
    pytest.param("lab.sandbox", "from dnm.queues.yunikorn import document", id="sandbox-queues"),
    pytest.param("lab.demo", "from dnm.plan.planner import make_plan", id="demo-plan"),
]


@pytest.mark.parametrize("in_function", [False, True], ids=["top", "in-a-function"])
@pytest.mark.parametrize(("package", "line"), PLANTED)
def test_forbidden_import_is_detected(
    tmp_path: Path, package: str, line: str, in_function: bool
) -> None:
    root = tmp_path / "dnm"
    folder = root / package.replace(".", "/")
    folder.mkdir(parents=True)
    planted = f"def f():\n    {line}\n" if in_function else f"{line}\n"
    (folder / "planted.py").write_text(planted)
    assert [text for text in trespasses(root) if text.startswith(f"{package}.planted:")]


def test_each_package_has_a_planted_import() -> None:
    assert {param.values[0] for param in PLANTED} == set(IMPORT_RULES)


# --- circles ---------------------------------------------------------------------------------

CIRCLES: dict[frozenset[str], str] = {}  # modules of one package that need each other -> why


def _graph(of: str = "") -> dict[str, set[str]]:
    """Returns module -> imported modules of a package, or package -> packages if `of` is empty."""
    modules = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for pair in imports(PACKAGE):
        if not pair.of.startswith("dnm."):
            continue
        parts = pair.of.split(".")[1:]
        names = (".".join(parts[:length]) for length in (3, 2, 1))
        target = next((name for name in names if name in modules), "")
        if of:
            graph.setdefault(pair.by, set()).add(target)
        else:
            graph.setdefault(package_of(pair.by), set()).add(package_of(".".join(parts)))
    return graph


def _in_a_circle(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for name in graph.get(todo.pop(), set()) - seen:
                seen.add(name)
                todo.append(name)
        return seen

    beyond = {name: reached(name) for name in graph}
    groups = {
        frozenset({name, *(other for other in beyond[name] if name in beyond.get(other, set()))})
        for name in graph
        if name in beyond[name]
    }
    return sorted(groups, key=sorted)


def test_no_two_packages_import_each_other() -> None:
    graph = {name: other - {name} for name, other in _graph().items()}
    assert not _in_a_circle(graph)


def test_modules_that_import_each_other_have_a_reason() -> None:
    assert set(_in_a_circle(_graph(of="modules"))) == set(CIRCLES)


# --- the core, and habits --------------------------------------------------------------------

CORE = ("calendar", "demand", "sizing", "plan", "plan/rules", "verbs", "queues", "queues/yunikorn")
FILES_OF_DNM = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("package", CORE)
def test_core_reads_no_clock(package: str) -> None:
    for path in sorted((PACKAGE / package).glob("*.py")):
        called = {ast.unparse(node.func) for node in nodes_of(path) if isinstance(node, ast.Call)}
        clocks = {call for call in called if call.endswith((".now", ".today", ".utcnow"))}
        assert not clocks, (path, clocks)
        assert not called & {"open", "print"}, path


def test_unknown_exceptions_are_not_swallowed() -> None:
    """Code that catches every exception is for cleanup and raises it again. Only the sandbox may
    continue, because its clock must go on after any failure in a test."""
    for path in FILES_OF_DNM:
        if path.is_relative_to(PACKAGE / "lab" / "sandbox"):
            continue
        for node in nodes_of(path):
            if not isinstance(node, ast.ExceptHandler):
                continue
            assert node.type is not None, f"bare except in {path}"
            if ast.unparse(node.type) in ("BaseException", "Exception"):
                last = node.body[-1]
                passes_on = "append(error)" in ast.unparse(last)  # raised by another thread
                assert isinstance(last, ast.Raise) or passes_on, f"{path}:{node.lineno}"


def test_every_module_has_a_docstring() -> None:
    for path in FILES_OF_DNM:
        if path != PACKAGE / "__init__.py":
            assert ast.get_docstring(tree_of(path)), path


def _shown_importer(package: str) -> str:
    """Returns the name of a package in the message; all queue systems are shown as `queues`."""
    is_queue_system = package.startswith("queues.") and not package.endswith(".admin")
    return "queues" if is_queue_system else package.rpartition(".")[2]


def _is_of_commands(package: str) -> bool:
    return package == "checks" or package.startswith("cli.") or package.endswith(".admin")


@pytest.mark.parametrize("package", IMPORT_RULES)
def test_every_package_docstring_names_its_importers(package: str) -> None:
    place = PACKAGE / package.replace(".", "/")
    rule = ast.get_docstring(tree_of(place / "__init__.py")) or ""
    assert len(rule.splitlines()) <= 5
    words = set(re.findall(r"[a-z_]+", rule))
    importers = {package_of(pair.by) for pair in imports(PACKAGE)
                 if pair.of.startswith("dnm.") and package_of(pair.of[4:]) == package}  # fmt: skip
    if not package.startswith("cli"):
        # The packages of commands and of checks are one importer.
        of_commands = {name for name in importers if _is_of_commands(name)}
        importers = importers - of_commands | ({"cli"} if of_commands - {package} else set())
    importers = {_shown_importer(name) for name in importers - {package}} - {package}
    assert "Every package may import it" in rule or importers <= words, importers - words
    assert importers or "No package imports it" in rule
    allowed = {package_of(name).rpartition(".")[2] for name in IMPORT_RULES[package].may}
    assert "imports all but" in rule or allowed <= words, allowed - words


def test_no_shell_is_started() -> None:
    """dnm passes a list of words to a program, never a text to a shell."""
    for path in FILES_OF_DNM:
        for node in nodes_of(path):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            assert called not in ("os.system", "os.popen", "subprocess.getoutput"), path
            assert not any(word.arg == "shell" for word in node.keywords), f"{path}:{node.lineno}"


# --- one queue system -------------------------------------------------------------------------

NAMES_YUNIKORN = 5  # files: keys of the predecessor, their parsers, the table of commands


def test_few_files_outside_its_package_name_yunikorn() -> None:
    """Only YuniKorn's own package, and the sandbox, which plays YuniKorn, may do so freely."""
    own = {PACKAGE / "queues" / "yunikorn", PACKAGE / "lab"}
    files = [path for path in PACKAGE.rglob("*.py") if not own & {*path.parents}]
    texts = {str(path): path.read_text("utf-8").lower() for path in files}
    assert sum("yunikorn" in text for text in texts.values()) <= NAMES_YUNIKORN


def test_no_module_outside_queues_selects_namespaces_by_a_queue_system() -> None:
    """The functions of `dnm.queues` do, so that other modules need not know any queue system."""
    own = {PACKAGE / "queues", PACKAGE / "model"}  # `Config` finds the configured system
    files = [path for path in FILES_OF_DNM if not own & {*path.parents}]
    assert not [path for path in files if 'namespaces_with("' in path.read_text("utf-8")]


def test_no_module_outside_queues_imports_a_queue_system() -> None:
    """The table of commands imports YuniKorn's commands by their names at run time."""
    packages = tuple(f"dnm.{name}." for name in IMPORT_RULES if name.startswith("queues."))
    pairs = [pair for pair in imports(PACKAGE) if pair.of.startswith(packages)]
    assert {pair.by for pair in pairs if not pair.by.startswith("queues")} == {"cli.table"}
