"""Tests that every effect of dnm on the outside is at a fault point, and every such point is
tested.

A fault point is a place where tests can kill dnm or make a call fail. A test reads the source:
every call with an effect must be in a `with fault_point(...)`, or in a function that is only called
within one. Effects open a file for writing, replace, remove or sync it, start or signal a process,
talk to a server, or take a lock. In another test, the interpreter reports the effects of a run."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import dnm
from tests.proof import story
from tests.proof.harness import World, note_figures

PACKAGE = Path(dnm.__file__).parent

# Files that contain no step of a run or of a conversion.
NOT_A_RUN = {
    "lab": "the embedded cluster is the outside; the demo has one of its own",
    "host.faults": "the faults themselves",
}
# Effects without a fault point, each with the reason.
EXCUSED = {
    ("cli.look.simulation:_play", ".kill"): "its own processes, which only compute",
}
# Points that the story does not reach, by name or family; the key names the test that does.
WALKED_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "a cluster that has shrunk: kube/test_reflector.py": ("store.remove",),
    "node-convert: every stage killed, converters/test_slurm.py": (
        "convert.", "kube.delete_node", "kube.evict",
    ),
    "node-convert: converters/test_hooks.py": ("hook.",),
    "node-convert: converters/test_journal.py": ("journal.",),
    "with readiness_checks: run/test_opening.py": (
        "kube.look_closely", "kube.start_pod", "kube.drop_pod", "kube.read_template",
    ),
    "read if pinned pods wait: run/test_kubelets.py": ("kube.list_zones",),
    "read if pods with claims, or of groups, wait: run/test_pod_waits.py": (
        "kube.list_devices", "kube.list_pod_groups",
    ),
    "with ResourceQuotas: queues/resource_quota/test_story.py": (
        "kube.list_objects", "kube.patch_object",
    ),
    "a kubeconfig's plug-in: kube/test_access.py": ("kube.plugin_",),
    "registry = kubernetes: test_fault_walk.py": ("kube.read_state", "kube.write_state"),
    "another host is active: run/test_kube_state.py": ("lease.",),
    "for events: converters/test_slurm_reservations.py": ("converter.reserve",),
    "with a calendar: run/test_calendars.py": ("calendar.",),
    "dnm check: cli/test_check.py": ("kube.can_i", "kube.version", "kube.server_time"),
    "dnm check: cli/test_check_slinky.py": ("kube.slinky",),
    "dnm test-load: cli/test_test_load.py": (
        "kube.create_deployment", "kube.list_deployments", "kube.change_deployment",
        "kube.delete_deployment",
    ),
    "nodeset-convert: converters/test_nodeset_side.py": (
        "kube.node_sets", "kube.change_node_set",
    ),
    "bridge-convert: converters/test_bridge_side.py": ("kube.bridged",),
    "once a month, or in history_days: record/test_history_file.py": (
        "history.rotate", "history.drop",
    ),
    "with metrics_file: record/test_metrics.py": ("metrics.",),
    "with queue_system = kueue: queues/test_contract.py": (
        "kube.list_all", "kube.create_object", "kube.apply_object", "kube.change_object",
    ),
    "dnm explain with Kueue: queues/kueue/test_story.py": ("kube.list_workloads",),
    "a file that an administrator left open: run/test_registry.py": ("registry.access",),
    "a converter that hangs, or prints too much: test_degrading.py": (
        "converter.signal", "converter.cut_output",
    ),
}  # fmt: skip

# Fault points whose name is a parameter, by module. The story covers those of recorded.py,
# converters/test_commands.py and test_rest.py those of converters/slurm.
PARAMETERS = {"run.recorded", "converters.slurm.commands", "converters.slurm.rest"}
# The same, each a step of `replace_file`, whose third argument begins the name.
REPLACING = ("write", "fsync", "rename", "fsync_directory")
# Fault points whose removal reveals no effect: reads, waits for the last output of a process, and
# effects that are also within another fault point (a sync, a stage's own steps).
UNMISSED = (
    "config.read", "registry.read", "journal.read", "kube.follow", "kube.read_state",
    "kube.plugin_start", "kube.list_objects",
    "calendar.read",
    "kube.read_lease", "lease.read_seen",
    "converter.end", "hook.end", "hook.let_go", "point + '.fsync'", "convert.",
    "store.read", "history.fsync", "history.rotate", "history.drop",
)  # fmt: skip

_OS = frozenset((
    "replace", "rename", "renames", "link", "symlink", "unlink", "remove", "rmdir", "mkdir",
    "makedirs", "fsync", "fdatasync", "utime", "truncate", "ftruncate", "kill", "killpg", "chmod",
    "chown", "fchmod", "fchown", "mkfifo", "write", "pwrite", "system", "popen", "fork", "execv",
    "execve", "execvp", "posix_spawn", "open", "removedirs", "sendfile", "copy_file_range",
))  # fmt: skip
_MODULES = {
    "os": _OS,
    "subprocess": frozenset(("run", "Popen", "call", "check_call", "check_output")),
    "shutil": frozenset(("rmtree", "copy", "copy2", "copyfile", "copytree", "move", "chown")),
    "socket": frozenset(("create_connection", "socketpair", "create_server")),
    "fcntl": frozenset(("flock", "lockf")),
    "signal": frozenset(("pthread_kill", "pidfd_send_signal", "raise_signal")),
    "tempfile": frozenset(("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory")),
}
# Methods of paths, processes, sockets and HTTP connections, on any object.
_METHODS = frozenset((
    "write_text", "write_bytes", "unlink", "mkdir", "rmdir", "chmod", "symlink_to", "hardlink_to",
    "rename", "send_signal", "terminate", "kill", "sendall", "sendto", "connect_ex", "endheaders",
    "request", "getresponse", "urlopen", "communicate",
))  # fmt: skip
_READING = frozenset(("O_RDONLY", "O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "O_PATH"))


class Function(NamedTuple):
    module: str
    name: str  # with its class

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


class Site(NamedTuple):
    """A place in the source that uses a function or has an effect; the fault points around it."""

    by: Function
    to: str
    line: int
    within: tuple[str, ...]
    on: str = ""  # the last word before the dot


def effect_of(call: ast.Call) -> str:
    """Returns which effect a call has outside of dnm, such as `os.open`, or an empty string."""
    match call.func:
        case ast.Name(id="open"):
            return "open for writing" if _opens_for_writing(call) else ""
        case ast.Attribute(value=ast.Name(id="os"), attr="open"):
            return "" if _flags(call) <= _READING else "os.open"
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _MODULES:
            return f"{module}.{name}" if name in _MODULES[module] else ""
        case ast.Attribute(attr="open") if _opens_for_writing(call):
            return ".open for writing"
        case ast.Attribute(attr="touch"):
            return ".touch"
        case ast.Attribute(value=value, attr="acquire" | "release" as name):
            return f".{name}" if "lock" in ast.unparse(value).lower() else ""
        case ast.Attribute(attr=name) if name in _METHODS:
            return f".{name}"
    return ""


def _opens_for_writing(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
    mode = modes[0] if modes else ast.Constant("r")
    return not (isinstance(mode, ast.Constant) and not set("wax+") & set(str(mode.value)))


def _flags(call: ast.Call) -> set[str]:
    flags = {
        node.attr
        for argument in call.args[1:2]
        for node in ast.walk(argument)
        if isinstance(node, ast.Attribute)
    }
    return flags or {"unknown"}


class Reader(ast.NodeVisitor):
    """A visitor that collects a file's uses of functions, effects and fault points."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.scope: list[str] = []
        self.within: tuple[str, ...] = ()
        self.sites: list[Site] = []
        self.effects: list[Site] = []
        self.points: set[str] = set()
        self.handed: set[str] = set()  # to the one function that replaces files
        self.words: set[tuple[str, str]] = set()  # (class, word for an object of it)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        within, self.within = self.within, ()
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()
        self.within = within

    visit_ClassDef = visit_FunctionDef = _enter

    def _site(self, to: str, line: int, on: str = "") -> Site:
        return Site(Function(self.module, ".".join(self.scope)), to, line, self.within, on)

    def visit_With(self, node: ast.With) -> None:
        before = self.within
        for item in node.items:
            self.visit(item)
            entered = item.context_expr
            call = entered.body if isinstance(entered, ast.IfExp) else entered
            if _is_fault_point(call):
                self.within = (*self.within, _point_of(call))
        for statement in node.body:
            self.visit(statement)
        self.within = before

    def visit_Call(self, node: ast.Call) -> None:
        if _is_fault_point(node):
            self.points.add(_point_of(node))
        elif _last_name(node.func) == "replace_file":
            self.handed |= _points_passed_by(node)
        elif effect := effect_of(node):
            self.effects.append(self._site(effect, node.lineno))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.sites.append(self._site(node.id, node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        on = _last_name(node.value)
        self.sites.append(self._site(node.attr, node.lineno, on))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Call):
            made = _last_name(node.value.func)
            self.words |= {(made, _last_name(target)) for target in node.targets}
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None:
            self.words.add((_last_name(node.annotation), node.arg))
        self.generic_visit(node)


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _last_name(function)
    return "?"


def _is_fault_point(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) == "fault_point" and bool(node.args)


def _points_passed_by(call: ast.Call) -> set[str]:
    subject = ast.literal_eval(call.args[2])
    is_durable = "is_durable" not in {keyword.arg for keyword in call.keywords}
    return {f"{subject}.{step}" for step in REPLACING if is_durable or "fsync" not in step}


def _point_of(node: ast.AST) -> str:
    """Returns the name in a `fault_point(...)`, or the parameter that has the name."""
    assert isinstance(node, ast.Call)
    match node.args[0]:
        case ast.Constant(value=name):
            return str(name)
        case ast.JoinedStr(values=[ast.Constant(value=start), *_]):
            return str(start)
        case other:
            return ast.unparse(other)


@cache
def read_package() -> list[Reader]:
    readers = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if not {module, module.split(".")[0]} & set(NOT_A_RUN):
            reader = Reader(module)
            reader.visit(ast.parse(path.read_text()))
            readers.append(reader)
    return readers


def points_of(readers: list[Reader]) -> set[str]:
    return {point for reader in readers for point in reader.points}


class Uses:
    """The places that use each function. A method's name counts after `self` in its class, or after
    a variable that holds an object of the class. If no variable is known, all uses count."""

    def __init__(self, readers: list[Reader]) -> None:
        self.sites: dict[str, list[Site]] = {}
        self.words: dict[str, set[str]] = {}
        for reader in readers:
            for site in reader.sites:
                self.sites.setdefault(site.to, []).append(site)
            for made, word in reader.words:
                self.words.setdefault(made, set()).add(word)

    def of(self, function: Function) -> list[Site]:
        *classes, name = function.name.split(".")
        sites = self.sites.get(name, [])
        if name == "__init__":
            return self.sites.get(classes[-1], [])
        if not classes or not classes[-1][:1].strip("_").isupper():
            return [
                site for site in sites if not site.on or site.on == function.module.split(".")[-1]
            ]
        words = self.words.get(classes[-1], set())
        own = f"{'.'.join(classes)}."
        return [
            site
            for site in sites
            if (site.on in ("self", "cls") and f"{site.by.name}.".startswith(own))
            or (site.on != "self" and (site.on in words or (not words and site.on)))
        ]

    def is_covered(
        self, site: Site, unseen: str, on_the_way: frozenset[Function] = frozenset()
    ) -> bool:
        """Returns whether a place is within a fault point other than `unseen`, or all uses of its
        function are."""
        if set(site.within) - {unseen} or site.by in on_the_way:
            return True
        sites = self.of(site.by)
        further = on_the_way | {site.by}
        return bool(sites) and all(self.is_covered(use, unseen, further) for use in sites)


def uncovered(readers: list[Reader], *unseen: str) -> dict[str, set[Site]]:
    """Returns fault point -> the effects that would be at no fault point without it."""
    uses = Uses(readers)
    effects = [effect for reader in readers for effect in reader.effects]
    return {
        point: {effect for effect in effects if not uses.is_covered(effect, point)}
        for point in unseen or ("",)
    }


def test_every_effect_in_the_source_has_a_fault_point() -> None:
    readers = read_package()
    results = {(str(effect.by), effect.to): effect.line for effect in uncovered(readers)[""]}
    missing = [f"{by}, line {line}: {to}" for (by, to), line in results.items()]
    excused = [f"{by}, line {results[by, to]}: {to}" for by, to in results.keys() & EXCUSED.keys()]
    problems = sorted(set(missing) - set(excused))
    assert not problems, "put these in a `with fault_point(...)`:\n" + "\n".join(problems)
    assert not EXCUSED.keys() - results.keys(), "an exception that is not needed any more"
    effects = sum(len(reader.effects) for reader in readers)
    note_figures("fault points in the source", effects=effects, points=len(points_of(readers)))


def test_removed_fault_point_is_detected() -> None:
    """Checks the check: if any one fault point is ignored, it finds an uncovered effect."""
    readers = read_package()
    results = uncovered(readers, "", *points_of(readers))
    unmissed = {point for point in points_of(readers) if results[point] == results[""]}
    assert unmissed == set(UNMISSED), unmissed ^ set(UNMISSED)


def test_run_has_no_effect_outside_of_fault_points(world: World) -> None:
    """Plays the story and a killed run, while the interpreter reports writes, processes, signals,
    connections and locks (sys.addaudithook). Each fault point occurs in the story or has a test."""
    story.build(world, watch_from_pods=0, relist_minutes=60)
    listened: dict[str, Any] = {"strays": str(world.strays), "log": str(world.log)}
    world.strays.touch()
    assert world.run(fault="converter.start:after:kill", **listened).was_killed
    world.settle()
    world.tick(story.MINUTE)
    while not story.is_over(world):
        story.play_minute(world, **listened)
    strays = set(world.strays.read_text().splitlines())
    assert not strays, "\n".join(sorted(strays))
    readers = read_package()
    assert {r.module for r in readers if "point" in r.points} == PARAMETERS
    steps = {f"point + '.{step}'" for step in REPLACING}
    assert [r.module for r in readers if r.points & steps] == ["host.trust"]
    named = points_of(readers).union(*(r.handed for r in readers)) - {"point"} - steps
    unwalked = named - set(world.log.read_text().split())
    families = [name for lines in WALKED_ELSEWHERE.values() for name in lines]
    missing = [point for point in unwalked if not point.startswith(tuple(families))]
    assert not missing, f"no test walks {sorted(missing)}"
    unneeded = [family for family in families if not any(p.startswith(family) for p in unwalked)]
    assert not unneeded, f"an exception that is not needed any more: {unneeded}"
