"""The command `dnm` as a process: each kind of bad input gives a message and the right exit code,
without a traceback or lost data. Other tests play the daily use by administrators."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.model.registry import Registry
from dnm.run.registry import encode_registry
from tests.converter import programs
from tests.docs.pages import ROOT
from tests.site import QUEUE, WORKSHOP_QUEUES, Site, a_workshop_site


@pytest.fixture
def site(sandbox: Sandbox, tmp_path: Path) -> Site:
    return a_workshop_site(sandbox, tmp_path)


def breaks_queue_path(site: Site) -> None:
    site.write(site.directory / "queues.json", '{"dev": "root.anvil.services.dve"}')


def breaks_document(site: Site) -> None:
    text = WORKSHOP_QUEUES.replace("vcore: 8\n", "vcore: 800\n")

    def change(item: dict[str, dict[str, str]]) -> None:
        item["data"]["queues.yaml"] = text

    site.sandbox.edit("configmaps", "yunikorn-configs", change, "yunikorn")


def script(site: Site, body: str) -> None:
    site.change(node_convert_path=str(programs.script(site.directory, body)))


LIST = '[ "$1" = --list ] && exec {real} "$@"; '


def converter(body: str) -> Callable[[Site], None]:
    """Makes the site's converter: it lists as the sandbox's does, and `body` converts."""
    return lambda site: script(site, LIST.format(real=site.sandbox.node_convert_path) + body)


def make_converter_hang(site: Site) -> None:
    converter("sleep 300")(site)
    site.change(convert_timeout_seconds="1")


def make_no_program(site: Site) -> None:
    script(site, "")
    (site.directory / "node-convert").chmod(0o644)


# Otherwise it searches its parents for a shell, and a timer's run has none.
ANY_SHELL = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


BAD: dict[str, tuple[Callable[[Site], object], int, list[str]]] = {
    "no configuration": (lambda s: s.path.unlink(), 2, ["dnm.ini"]),
    "unknown key": (
        lambda s: s.change(max_converted_node="3"),
        2,
        ["max_converted_node", "did you mean", "max_converted_nodes"],
    ),
    "registry truncated": (
        lambda s: s.write(s.config.converted_nodes_path, '{"version": 1, "no'),
        2,
        ["converted_nodes.json"],
    ),
    "registry empty": (
        lambda s: s.write(s.config.converted_nodes_path, ""),
        2,
        ["the file is empty"],
    ),
    "state directory missing": (
        lambda s: s.change(state_dir="/nonexistent/state"),
        2,
        ["/nonexistent/state"],
    ),
    "API unreachable": (lambda s: s.sandbox.stop(), 1, ["127.0.0.1", "refused"]),
    "kubeconfig missing": (
        lambda s: s.change(kubeconfig_path="/nonexistent/kubeconfig"),
        1,
        ["/nonexistent/kubeconfig"],
    ),
    "API forbids the Lease": (
        lambda s: s.sandbox.access.restrict({("list", "nodes", "*"), ("list", "pods", "*")}),
        1,
        ["Lease", "`dnm check` names what is missing"],
    ),
    "API forbids nodes": (
        lambda s: s.sandbox.access.restrict(
            {("list", "pods", "*"), *((verb, "leases", "*") for verb in ("get", "create", "patch"))}
        ),
        1,
        ["nodes", "list"],
    ),
    "queue path that is not there": (breaks_queue_path, 1, ["dve"]),
    "queue document missing": (
        lambda s: s.sandbox.delete("configmaps", "yunikorn-configs", "yunikorn"),
        2,
        ["queues.yaml"],
    ),
    "queue document invalid": (breaks_document, 2, ["line", "dnm queues check"]),
    "converter missing": (
        lambda s: s.change(node_convert_path="/nonexistent/node-convert"),
        1,
        ["/nonexistent/node-convert"],
    ),
    "converter fails": (
        converter("echo no nodes today >&2; exit 1"),
        1,
        ["exit code 1", "no nodes today"],
    ),
    "converter hangs": (
        make_converter_hang,
        1,
        ["ran out of its time"],
    ),
    "converter is no program": (
        make_no_program,
        1,
        ["node-convert", "chmod +x"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_input_gets_an_error_message_and_loses_nothing(site: Site, name: str) -> None:
    spoil, exit_code, words = BAD[name]
    state = site.directory / "state"
    spoil(site)
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    done = site.command("run")
    message = done.stdout + done.stderr
    assert done.returncode == exit_code, message
    assert "Traceback" not in message
    for word in words:
        assert word in message
    if exit_code == 2 and "document" not in name:
        left = {
            p.name: p.read_bytes() for p in state.iterdir() if p.suffix not in (".lock", ".began")
        }
        assert left == before
    assert not site.sandbox.violations


def test_converter_output_alone_does_not_make_a_node_serve(sandbox: Sandbox, site: Site) -> None:
    sandbox.behave(act=False, exit_code=0, stdout="a001\n")
    assert site.command("run").returncode == 0
    sandbox.tick(5)
    site.command("run")
    # Slurm has a001 in service and Kubernetes has no Node of it, so it was not lent.
    assert "a001" not in [name for name, entry in site.registry.nodes.items()
                          if entry.phase is Phase.SERVING]  # fmt: skip


def test_node_of_a_failing_converter_is_recognized_as_lent(sandbox: Sandbox, site: Site) -> None:
    sandbox.behave(exit_code=1)
    site.command("run")
    sandbox.tick(5)
    site.command("run")
    assert site.registry.nodes["a001"].phase is Phase.SERVING


RAW = "\x1b[31mx"


@pytest.mark.parametrize(
    "words",
    [
        ("history", RAW), ("history", "--kind", RAW), ("history", "--since", RAW),
        ("explain", RAW), ("status", "--config", RAW), ("hold", RAW),
        ("lend", "1", "--namespace", "dev", "--type", RAW), (RAW,),
    ],
)  # fmt: skip
def test_no_command_echoes_control_characters(site: Site, words: tuple[str, ...]) -> None:
    done = site.command(*words)
    assert (done.stdout + done.stderr).replace("\n", "").isprintable()
    assert "Traceback" not in done.stderr


def test_run_removes_the_file_that_triggers_runs(site: Site) -> None:
    """If runs are started by cron and not by the systemd unit, only dnm removes the file."""
    site.command("pause")  # no conversion ends and creates the file again
    site.config.trigger_path.touch()
    for words in (("plan",), ("status",)):
        site.command(*words)
        assert site.config.trigger_path.exists()
    site.command("run")
    assert not site.config.trigger_path.exists()


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_document_output_escapes_unprintable_characters(
    site: Site, tmp_path: Path, output: str
) -> None:
    path = tmp_path / "queues\u202e\u2028\x85\x7f\u200b Müller.yaml"
    path.write_text("partitions: []\n")
    answer = site.command("queues", "check", str(path), "-o", output).stdout
    assert answer.replace("\n", "").isprintable()
    assert yaml.safe_load(answer)[0]["file"] == str(path)


def test_dry_run_and_plan_write_nothing(sandbox: Sandbox, site: Site) -> None:
    sandbox.requests.clear()
    for arguments in (["run", "--dry-run"], ["plan"], ["plan", "--output", "json"]):
        assert site.command(*arguments).returncode == 0
    assert list((site.directory / "state").iterdir()) == []
    assert sandbox.requests.writes() == []
    document = json.loads(site.command("plan", "-o", "json").stdout)
    assert document["schema"] == "dnm.plan/1"
    assert document["queues"][0]["verdict"] == "convert" and document["queues"][0]["reason"]
    assert [action["action"] for action in document["actions"]] == ["StartConversion"]


def test_run_without_changes_prints_nothing(sandbox: Sandbox, site: Site) -> None:
    for _ in range(4):
        site.command("run")
        sandbox.clock.set(time.time())
        sandbox.tick(1)
    done = site.command("run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_plan_reports_unreadable_pods_instead_of_free_capacity(
    sandbox: Sandbox, site: Site
) -> None:
    sandbox.fault("status", path="/pods", code=403)
    done = site.command("plan")
    assert done.returncode == 1 and "need no more nodes" not in done.stdout
    assert f"queue {QUEUE}: wait: its pods could not be read: namespace dev" in done.stdout
    assert "error: the pods of namespace dev could not be read" in done.stdout


def test_back_off_reports_its_cause_and_the_command_that_ends_it(site: Site) -> None:
    converter("echo puppet: catalog failed on a002 >&2; exit 3")(site)
    for _ in range(2):  # the first failure alone causes no back-off
        assert site.command("run").returncode == 1
    why = "the converter ended with exit code 3: puppet: catalog failed on a002"
    for verb in ("status", "plan", "check"):
        (line,) = [
            line
            for line in site.command(verb).stdout.splitlines()
            if why in line and "dnm reset a" in line
        ]
        assert "type a" in line
    assert "after 2 failed attempts to lend:" in site.command("status").stdout
    backoff = json.loads(site.command("status", "-o", "json").stdout)["restrictions"]["backoffs"][
        "a"
    ]
    assert backoff["last_error"] == why


def test_pause_and_forget_take_effect(sandbox: Sandbox, site: Site) -> None:
    assert "paused" in site.command("pause", "--reason", "maintenance").stdout
    assert "maintenance" in site.command("plan").stdout
    message = site.command("status", SUDO_USER="erin").stdout
    assert re.search(
        r"paused by \S+ on \S+ since 20.* UTC until `dnm resume`: maintenance", message
    )
    assert site.command("run").returncode == 0 and not site.registry.requests
    site.command("pause", "--for", "30m", "--reason", "rack 7", "--force")
    pause = json.loads(site.command("status", "-o", "json").stdout)["restrictions"]["pause"]
    assert pause["reason"] == "rack 7" and pause["until"].endswith("Z")
    site.command("resume")
    site.command("run")
    sandbox.tick(1)
    site.command("run")
    refused = site.command("forget", "a002", "--yes")
    assert refused.returncode == 2 and "still in Kubernetes with dnm's mark" in refused.stderr
    sandbox.delete("nodes", "a002")
    assert site.command("forget", "a002", "--yes").returncode == 0
    assert "a002" not in site.registry.nodes
    sandbox.stop()
    unknown = site.command("forget", "a001", "--yes")
    assert unknown.returncode == 1 and "a001" in site.registry.nodes


def test_findings_of_a_run_are_logged(site: Site) -> None:
    breaks_document(site)
    done = site.command("run", "--log-console")
    assert "ERROR error=" in done.stderr and "dnm queues check" in done.stderr


def test_missing_syslog_causes_no_traceback(tmp_path: Path) -> None:
    program = (
        "import logging, socket, sys; from dnm.cli.terminal import logs;"
        "left_over = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); left_over.bind(sys.argv[1]);"
        "left_over.close(); logs._SYSLOG = sys.argv[1]; logs.set_up_logging(False);"
        "logging.getLogger('dnm').info('a line')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_queues_check_reads_documents_in_files(site: Site, tmp_path: Path) -> None:
    bad = tmp_path / "queues.yaml"
    bad.write_text(WORKSHOP_QUEUES.replace("vcore: 8\n", "vcore: 800\n"))
    checked = site.command("queues", "check", str(bad), "--output", "json")
    assert checked.returncode == 1
    (entry,) = json.loads(checked.stdout)
    assert not entry["ok"] and entry["violations"][0]["line"]
    assert site.command("queues", "rebase").returncode == 2


@pytest.mark.parametrize("command", ["plan", "check", "queues check", "queues rebase --as total"])
def test_wrong_config_map_name_is_named(site: Site, command: str) -> None:
    site.change(yunikorn_cm_namespace="yunicorn")
    done = site.command(*command.split())
    message = " ".join((done.stdout + done.stderr).split())
    keys = "correct yunikorn_cm_namespace and yunikorn_cm_name"
    assert f"no ConfigMap yunicorn/yunikorn-configs: {keys}" in message


@pytest.mark.parametrize("is_mute", [False, True], ids=["", "the document out of reach at first"])
def test_ledger_lost_for_certain_needs_an_administrator(
    sandbox: Sandbox, site: Site, is_mute: bool
) -> None:
    site.command("run")
    sandbox.tick(1)
    site.command("run")
    sandbox.edit("configmaps", "yunikorn-configs",
                 lambda item: item["metadata"].pop("annotations"), "yunikorn")  # fmt: skip
    forgetful = Registry(nodes=site.registry.nodes)
    site.config.converted_nodes_path.write_bytes(encode_registry(forgetful))
    text = sandbox.queues_text()
    if is_mute:
        sandbox.fault("status", path="configmaps", code=403)
        assert site.command("run").returncode == 1
        sandbox.faults.clear()
    asked = site.command("run")
    assert asked.returncode == 2 and "dnm queues rebase" in asked.stderr
    assert site.command("explain", "dev").returncode == 2
    again = site.command("run")  # an earlier attempt is no answer, but it is mailed once
    assert (again.returncode, again.stderr) == (2, "")
    assert "dnm queues rebase" in site.command("status").stdout.replace("\n", " ")
    unanswered = site.command("queues", "rebase", "--as", "total")
    assert unanswered.returncode == 1 and "[y/N]" in unanswered.stderr
    assert site.command("run").returncode == 2
    assert site.command("queues", "rebase", "--as", "total", "--yes").returncode == 0
    assert sandbox.queues_text() == text and site.command("run").returncode == 0


def test_version_and_completion_are_printed(site: Site) -> None:
    assert site.command("--version").stdout.startswith("dnm ")
    assert "COMPLETE" in site.command("--show-completion", "bash", **ANY_SHELL).stdout


# Interrupts from sitecustomize: each one sends SIGINT to its own process.
CTRL_C = """\
import atexit, os, signal, sys
def strike():
    os.kill(os.getpid(), signal.SIGINT)
class Finalized:
    def __del__(self):
        strike()
def at(event, word, deed):
    def hook(seen, given):
        if seen == event and str(given[0]).endswith(word) and not struck:
            struck.append(word)
            deed()
    struck = []
    sys.addaudithook(hook)
"""
STOPPED = (130, "dnm: interrupted\n")
UNFINISHED = (130, "dnm: interrupted; the next run checks for unfinished actions\n")
MOMENTS = {
    "while the command loads": ("at('import', 'typer', strike)", STOPPED),
    "while an import executes text": ("at('import', 'typer', lambda: exec('strike()'))", STOPPED),
    "while the verb looks": ("at('open', '.ini', strike)", STOPPED),
    "in a finalizer, which no code catches": ("at('import', 'typer', Finalized)", STOPPED),
    "when the verb is done": ("atexit.register(strike)", (0, "")),
}


COMMANDS = {
    "dnm": [str(Path(sys.executable).with_name("dnm"))],
    "python -m dnm.cli": [sys.executable, "-m", "dnm.cli"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_is_reported_in_a_sentence_at_any_moment(
    site: Site, tmp_path: Path, moment: str, command: str
) -> None:
    when, expected = MOMENTS[moment]
    (tmp_path / "sitecustomize.py").write_text(CTRL_C + when)
    done = subprocess.run(
        [*COMMANDS[command], "status"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "DNM_CONFIG": str(site.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == expected


WORDS = {
    "plan": STOPPED,
    "queues show": STOPPED,
    "simulate": STOPPED,
    "run": UNFINISHED,
    "run --dry-run": STOPPED,
    "hold plan": UNFINISHED,
    "queues rebase --as total": UNFINISHED,
}


@pytest.mark.parametrize("words", WORDS)
def test_ctrl_c_names_unfinished_work_if_the_command_changes_anything(
    tmp_path: Path, words: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CTRL_C + MOMENTS["while the command loads"][0])
    done = subprocess.run(
        [*COMMANDS["dnm"], *words.split()],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == WORDS[words]


def test_ctrl_c_is_reported_if_stdout_is_closed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CTRL_C + MOMENTS["while the verb looks"][0])
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" status >&-', "sh", *COMMANDS["dnm"]],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "DNM_CONFIG": str(site.path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == STOPPED


def test_status_and_help_load_no_slow_modules(tmp_path: Path) -> None:
    """Counts modules instead of seconds, because their number does not depend on the machine."""
    program = (
        "import sys; sys.argv = ['dnm', 'status', '--help'];"
        "from dnm.cli.app import main\ntry: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('kubernetes', 'yaml', 'hypothesis', 'filelock', 'rich.table',"
        " 'pydantic', 'logging.handlers', 'http.client', 'dnm.kube') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_history_shows_half_and_end_of_a_pause_in_local_time(
    site: Site,
) -> None:
    assert (
        site.command("pause", "--lending", "--for", "60m", "--reason", "firmware").returncode == 0
    )
    assert site.command("exclude", "a002", "--for", "2h").returncode == 0
    assert site.command("resume").returncode == 0
    lines = site.command("history").stdout.splitlines()
    pause, why, *_, resumed = lines
    assert " verb pause by " in pause and " verb resume by " in resumed
    assert re.fullmatch(r"    firmware; only lending; until [-0-9]+ [0-9:]{8} UTC.*", why), why
    assert not [line for line in lines if re.search(r"[0-9]\.[0-9]{3}|[0-9]T[0-9]", line)]


def test_unnamed_pods_are_counted(site: Site) -> None:
    """dnm names only ten of twenty pods in a message, so the others appear as a number."""
    assert site.command("run").returncode == 0
    answers = (site.command("history").stdout, site.command("explain", QUEUE, "--wide").stdout)
    assert all(re.search(r"pods .*dev/[^ ]+ and 10 more", answer) for answer in answers), answers
