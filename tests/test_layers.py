"""The shape of the code, read from its imports: a pure core, and edges that few reach."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import dnm

PACKAGE = Path(dnm.__file__).parent

PURE = (
    "adoption", "brakes", "constraints", "conversions", "demand", "draft", "errors", "fleet",
    "gang", "handout", "hostlist", "ledger", "ledger_compare", "ledger_text", "lifecycle",
    "limits", "model", "pending", "placement", "planner", "quantity", "queue_decode", "quota",
    "queue_advice", "queue_placement", "queue_rules", "queue_schema", "queue_yaml", "queues",
    "release", "request", "reversions", "sizing", "sizing_text", "slurm_text", "survey",
)  # fmt: skip
OUTSIDE = {
    "os", "subprocess", "socket", "http", "urllib", "time", "logging", "signal", "threading",
    "selectors", "shutil", "tempfile", "filelock", "kubernetes", "typer", "rich", "random",
    "secrets", "fcntl",
}  # fmt: skip
EDGES_OF = {  # what each part may reach of dnm's own edges; absent: none of them
    "kube": {"snapshot", "runner", "check", "check_cluster", "testload", "admin", "convert"},
    "slurm": {"convert"},
    "yunikorn": {
        "snapshot", "actuator", "queue_write", "queue_verbs", "check_cluster", "admin",
    },
    "converter": {
        "snapshot", "actuator", "runner", "report", "check", "check_cluster", "convert",
        "sandbox",
    },
}  # fmt: skip


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module a file imports, in functions too; those under TYPE_CHECKING left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("name", PURE)
def test_the_core_touches_nothing(name: str) -> None:
    path = PACKAGE / f"{name}.py"
    roots = {module.split(".")[0] for module in imports(path)}
    assert not roots & OUTSIDE
    own = {m.split(".")[1] for m in imports(path) if m.startswith("dnm.")}
    pure_or_values = {*PURE, "config_values", "printable"}
    assert own <= pure_or_values, own - pure_or_values


@pytest.mark.parametrize("name", PURE)
def test_the_core_has_no_clock(name: str) -> None:
    tree = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not {call for call in called if call.endswith((".now", ".today", ".utcnow"))}
    assert "open" not in called and "print" not in called


@pytest.mark.parametrize("edge", EDGES_OF)
def test_an_edge_is_only_reached_by_its_consumers(edge: str) -> None:
    """The kube_* files and slurm.py's own are one edge each."""
    users = {
        part_of(path)
        for path in FILES
        if any(module == f"dnm.{edge}" for module in imports(path))
        and not part_of(path).startswith(edge)
    }
    assert users <= EDGES_OF[edge], users - EDGES_OF[edge]


def test_the_sandbox_is_nothing_that_dnm_knows() -> None:
    """dnm meets it over HTTP alone; only the verbs that start it import it."""
    users = {
        part_of(path)
        for path in FILES
        if any(module.startswith("dnm.sandbox") for module in imports(path))
    }
    assert users <= {"sandbox", "cli", "demo", "demo_slurm", "demo_view"}, users


def test_nobody_swallows_what_he_does_not_know() -> None:
    """Catching everything is for tidying up: it ends in a raise. The sandbox is no part of a run:
    its time must go on whatever a test does to it."""
    for path in FILES:
        if part_of(path) == "sandbox":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            assert node.type is not None, f"bare except in {path}"
            if ast.unparse(node.type) in ("BaseException", "Exception"):
                last = node.body[-1]
                passes_on = "append(error)" in ast.unparse(last)  # raised by another thread
                assert isinstance(last, ast.Raise) or passes_on, f"{path}:{node.lineno}"


def test_every_module_opens_with_its_rule() -> None:
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body:
            assert ast.get_docstring(tree), path


def test_there_is_never_a_shell() -> None:
    """What reaches a command line is a list of checked words."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            assert called not in ("os.system", "os.popen", "subprocess.getoutput"), path
            assert not any(word.arg == "shell" for word in node.keywords), f"{path}:{node.lineno}"
