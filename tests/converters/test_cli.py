"""Tests of node-convert's command line: usage, --list, dry runs, refusals. Slurm's answers are
recorded text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from dnm.converter.node_list import parse_list
from dnm.converters.cli import main
from dnm.converters.journal import JournalStore, StageLine, StageMark
from dnm.converters.settings import load_settings
from dnm.plan.facts import has_stopped
from tests.converters.played import a_journal
from tests.processes import node_convert

SAMPLE = Path(__file__).parents[1] / "data" / "slurm" / "22.05" / "states1"
RESERVE_CALL = "--reserve x --node-type a --num-nodes 1 --from 2026-12-01T09:00:00Z"
SCONTROL = f"""\
case "$*" in
ping) echo "Slurmctld(primary) at x is UP" ;;
*show*config*) echo "AccountingStorageType   = accounting_storage/${{DBD-none}}" ;;
*show*reservation*) cat '{SAMPLE}/resv.txt' ;;
*show*nodes*) sed 's/LastBusyTime=[^ ]*/LastBusyTime=1795100000/' '{SAMPLE}/nodes.txt'
  echo 'NodeName=a005 CPUAlloc=0 AllocMem=0 State=IDLE Partitions=main LastBusyTime=1795100000' ;;
*show*node*) echo 'NodeName=a005 CPUAlloc=0 AllocMem=0 State=IDLE Partitions=main' ;;
*) echo "$*" >>'@CALLS@'; echo 'slurm_update error: Access/permission denied' >&2; exit 1 ;;
esac
"""


class Host:
    """A host with Slurm commands that print recorded text, with hooks and a configuration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.calls = directory / "calls"
        self.write("bin/scontrol", SCONTROL.replace("@CALLS@", str(self.calls)))
        self.write("bin/squeue", "")
        self.write("hooks/join", "exit 0")
        self.write("hooks/reset", "exit 0")
        self.config = directory / "dnm.ini"
        self.config.write_text(
            f"[settings]\nstate_dir = {directory}/state\n[node_convert]\n"
            f"hooks_dir = {directory}/hooks\n"
        )

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    @property
    def store(self) -> JournalStore:
        return JournalStore(load_settings({}, {}, self.config).state_dir)

    def begin(self, node: str, stage: str, **fields: object) -> None:
        """Writes the journal of a lend that has begun this stage."""
        line = StageLine(stage=stage, mark=StageMark.BEGUN, at=datetime.now(UTC))
        self.store.save(a_journal(node, node_type="a", lines=(line,), **fields))

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        settings = {"PATH": path, "DNM_CONFIG": str(self.config), **environ}
        return subprocess.CompletedProcess(arguments, *node_convert(arguments, settings).wait())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_untrusted_text_is_printed_without_control_characters(host: Host) -> None:
    host.write("bin/scontrol", "printf 'lost\\033]0;owned\\a\\033[2J' >&2; exit 1")
    answer = host.run("--list")
    assert answer.returncode and "lost?]0;owned??[2J" in answer.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "", "--set", "--set both", "--set k8s", "--set k8s --node-type a",
        "--set k8s --num-nodes 2", "--set batch --node-name a --node-type a --num-nodes 1",
        "--set k8s --node-type a --num-nodes 0", "--set k8s --node-type a --num-nodes x",
        "--set k8s --node-name A_1;x", "--set k8s --node-name -x", "--list --set k8s",
        "--set k8s --node-name a1 --namespace Dev", "--list --resume", "--nosuch", "--lis",
        "--set k8s --node-type a;b --num-nodes 1", "--list --output xml",
        "--list --exclude a1", "--set batch --node-name a1 --exclude a2",
        "--set k8s --node-name a1 --exclude a1",
        "--set k8s --node-type a --num-nodes 1 --exclude a[",
        "--reserve x", "--reserve x --unreserve x", "--unreserve x --dry-run",
        "--unreserve x --node-name a1",
        "--set k8s --node-name a1 --account a/b", "--set k8s --node-name a1 --account ,x",
        f"{RESERVE_CALL} --until 0001-01-01T00:00:00+14:00",
        f"{RESERVE_CALL} --until 2026-12-01T17:00:00",
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_code_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert "node-convert: error:" in capsys.readouterr().err


@pytest.mark.parametrize("storage", ["none", "slurmdbd"])
def test_list_offers_charging_if_slurm_has_slurmdbd(host: Host, storage: str) -> None:
    host.write("bin/scontrol", SCONTROL.replace("${DBD-none}", storage))
    listed = host.run("--list", "--output", "json")
    offered = msgspec.json.decode(listed.stdout)["options"]
    assert ("--account" in offered) is (storage == "slurmdbd")


@pytest.mark.parametrize("what", ["--reserve", "--unreserve"])
def test_empty_reservation_name_is_refused(host: Host, what: str) -> None:
    """A shell variable may be empty by mistake. The converter then changes no node."""
    times = "--from", "2026-12-01T13:00:00Z", "--until", "2026-12-01T17:00:00Z"
    answer = host.run(what, "", "--node-type", "a", "--num-nodes", "1", *times)
    assert answer.returncode == 1
    assert answer.stderr == "node-convert: '' is not an event reservation of prod\n"


def test_table_and_json_of_the_list_agree(host: Host) -> None:
    table = host.run("--list")
    document = host.run("--list", "--output", "json")
    assert table.returncode == document.returncode == 0, table.stderr
    assert table.stdout.split("\n", 1)[0].split() == ["NODE", "STATE", "IDLE", "VERDICT", "REASON"]
    from_table = parse_list(table.stdout.encode())
    from_json = parse_list(document.stdout.encode())
    assert from_table is not None and from_json is not None
    assert list(from_table.nodes) == list(from_json.nodes) and len(from_json.nodes) == 8
    assert from_json.nodes["a005"].verdict == "OK" and next(iter(from_json.nodes)) == "a005"
    assert (
        from_json.nodes["a004"].reason == from_table.nodes["a004"].reason == "reservation dnm_a004"
    )
    assert "Viable now: 1 of 8 node(s)\n" in table.stdout
    reasons = {node["node"]: node["slurm_reason"] for node in json.loads(document.stdout)["nodes"]}
    assert reasons["a005"] is None and reasons["b002"]["since"]
    assert (reasons["b002"]["text"], reasons["b002"]["by"]) == ("bad disk", "root")


def test_list_names_partitions_and_features(host: Host) -> None:
    listed = parse_list(host.run("--list", "--output", "json").stdout.encode())
    assert listed is not None and listed.leaves_out
    document = {name: (row.features, row.reservations) for name, row in listed.nodes.items()}
    assert document["a004"] == (("typea",), ("dnm_a004",))
    assert document["a005"] == ((), ())  # "none" differs from "unknown"


def test_excluded_node_is_not_chosen(host: Host) -> None:
    """Only a005 could be lent, so that a call with `--exclude a005` lends none."""
    lend = ("--set", "k8s", "--node-type", "a", "--num-nodes", "1", "--dry-run")
    assert host.run(*lend, "--exclude", "a[001-004]").returncode == 0
    answer = host.run(*lend, "--exclude", "a[004-005]")
    assert answer.returncode == 1 and "no node can be lent now (a001: " in answer.stderr
    answer = host.run(*lend, "--exclude", "a[001-005]")
    assert answer.returncode == 1 and "that --exclude does not name" in answer.stderr


def test_excluded_node_is_not_resumed(host: Host) -> None:
    host.begin("a003", "claim", namespace="dev")
    lend = ("--set", "k8s", "--node-type", "a", "--num-nodes", "1", "--dry-run")
    first = host.run(*lend, "--namespace", "dev").stdout.split()[0]
    assert first == "a003"
    assert host.run(*lend, "--namespace", "dev", "--exclude", "a003").stdout.split()[0] == "a005"


def test_list_is_limited_to_a_type_or_a_node(host: Host) -> None:
    of_type = parse_list(host.run("--list", "--node-type", "b").stdout.encode())
    assert of_type is not None and sorted(of_type.nodes) == ["b001", "b002"]
    of_name = parse_list(host.run("--list", "--node-name", "a001").stdout.encode())
    assert of_name is not None and sorted(of_name.nodes) == ["a001"]
    nosuch = host.run("--list", "--node-name", "a0")
    assert nosuch.returncode == 1 and "knows no node a0" in nosuch.stderr


def test_unreadable_slurm_is_refused(host: Host) -> None:
    host.write("bin/squeue", "echo 'slurm_load_jobs error: x' >&2; exit 1")
    for arguments in (("--list",), ("--set", "k8s", "--node-name", "a005")):
        answer = host.run(*arguments)
        assert answer.returncode == 1 and "'squeue -a -h" in answer.stderr
        assert answer.stdout == "" and "Traceback" not in answer.stderr
    host.write("bin/squeue", "echo '7|7|RUNNING|x|y|main|1|1|1|(null)|a[001-||1|None'")
    answer = host.run("--list")
    assert answer.returncode == 1 and "can't be read" in answer.stderr
    assert not host.calls.exists()


def test_dry_run_shows_stages_and_commands_and_changes_nothing(host: Host) -> None:
    answer = host.run("--set", "k8s", "--node-type", "a", "--num-nodes", "2", "--dry-run")
    assert answer.returncode == 1 and "only 1 of 2" in answer.stderr
    lines = answer.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"a005 {stage}"
        for stage in ("claim", "claim", "verify", "reach", "prepare", "join", "ready")
    ]
    assert "scontrol create reservation ReservationName=k8s-a005 Nodes=a005" in lines[0]
    assert f"{host.directory}/hooks/join a005" in lines[5]
    answer = host.run("--set", "batch", "--node-name", "a004", "-n")
    assert answer.returncode == 0
    assert [line.split(":")[0].split()[1] for line in answer.stdout.splitlines()] == [
        "check", "drain", "reset", "reset", "reset", "delete", "boot", "health", "return", "return",
    ]  # fmt: skip
    assert not host.calls.exists() and not (host.directory / "state").exists()


def test_refused_claim_leaves_nothing_behind(host: Host) -> None:
    """Slurm refuses the reservation. Apart from the file that starts a run, nothing changes."""
    wakeup = host.directory / "wake"
    words = ("--set", "k8s", "--node-type", "a", "--num-nodes", "2", "--output", "json")
    answer = host.run(*words, DNM_WAKE=str(wakeup))
    assert wakeup.exists()
    assert answer.returncode == 1 and "0 of 2 node(s) converted" in answer.stderr
    assert '"result":"skipped"' in answer.stdout and "permission denied" in answer.stdout
    assert host.calls.read_text().count("create reservation") == 1
    assert host.run("--resume").stderr == "nothing to resume\n"


def test_node_with_a_pause_is_lent_only_by_name(host: Host) -> None:
    rests = {"failures": "1", "failed_at": datetime.now(UTC).isoformat()}
    host.store.save(a_journal("a005", facts=rests, is_open=False))
    batch_list = parse_list(host.run("--list").stdout.encode())
    assert batch_list is not None and "its conversion failed" in batch_list.nodes["a005"].reason
    lend = ("--set", "k8s", "--dry-run")
    assert host.run(*lend, "--node-type", "a", "--num-nodes", "1").returncode == 1
    assert host.run(*lend, "--node-name", "a005").returncode == 0


def test_missing_hook_prevents_the_claim(host: Host) -> None:
    (host.directory / "hooks" / "join").unlink()
    answer = host.run("--set", "k8s", "--node-name", "a005")
    message = f"the hook {host.directory}/hooks/join is missing"
    assert answer.returncode == 1 and message in answer.stderr
    assert not host.calls.exists()


def test_empty_journal_stops_only_its_node(host: Host) -> None:
    (host.store.directory / "a001.json").touch(mode=0o600)
    answer = host.run("--set", "k8s", "--node-type", "a", "--num-nodes", "1", "--dry-run")
    assert answer.returncode == 0 and "a005 claim" in answer.stdout
    assert "a001.json can't be read" in answer.stderr
    answer = host.run("--resume")
    assert answer.returncode == 1 and "a001.json can't be read" in answer.stderr


def test_prepared_node_without_reservation_is_not_skipped(host: Host) -> None:
    """The node is half converted, but an administrator replaced its drain and deleted its
    reservation. Once, the converter skipped it with exit code 0 and closed its journal."""
    drained = "State=IDLE+DRAIN Partitions=main Reason=bad fan"
    script = SCONTROL.replace("State=IDLE Partitions=main' ;;", f"{drained}' ;;")
    host.write("bin/scontrol", script.replace("@CALLS@", str(host.calls)))
    host.begin("a005", "prepare")
    answer = host.run("--set", "batch", "--node-name", "a005")
    assert answer.returncode == 1 and "never reset" in answer.stderr, answer.stderr
    assert "reason='dnm:prod'" in answer.stderr
    left = host.store.load("a005")
    assert left is not None and left.is_open and not host.calls.exists()


def test_unreadable_state_directory_is_one_message(host: Host) -> None:
    folder = "a" * 300
    host.config.write_text(f"[settings]\nstate_dir = {host.directory}/{folder}\n")
    answer = host.run("--resume")
    (line,) = answer.stderr.splitlines()
    assert answer.returncode == 1 and line.startswith("node-convert: ") and folder in line


def redirected(host: Host, words: str, how: str) -> tuple[int, str]:
    """Runs the command in a shell; returns its exit code and stderr."""
    path = f"{host.directory}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m dnm.converters.cli {words} {how}', sys.executable],
        env={**os.environ, "PATH": path, "DNM_CONFIG": str(host.config)}, text=True, check=False,
        capture_output=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
        (">/dev/full", 1, "node-convert: [Errno 28] No space left on device\n"),
    ],
)
def test_closed_pipe_does_not_fail_the_list(host: Host, how: str, code: int, said: str) -> None:
    result = redirected(host, "--list", how)
    assert (result[0], result[1][: len(said) or None]) == (code, said)


@pytest.mark.parametrize("how", ["2>/dev/full", "2> >(true)", "> >(true) 2>&1"])
def test_conversion_continues_after_stdout_is_closed(host: Host, how: str) -> None:
    """The ssh connection that started it may be gone. Once, a conversion stopped when it printed
    its first line, with an open journal."""
    words = "--set k8s --node-name a005"
    assert redirected(host, words, f"{how}; exit $?") == (1, "")
    journal = host.store.load("a005")
    assert journal is not None and not journal.is_open and "permission denied" in journal.error


def test_wrong_setting_is_exit_code_2(host: Host) -> None:
    answer = host.run("--list", PREEMPT_MODE="kill")
    assert answer.returncode == 2 and "PREEMPT_MODE=kill" in answer.stderr
    host.config.write_text("[node_convert]\nhook_dir = x\n")
    answer = host.run("--list")
    assert answer.returncode == 2 and "did you mean 'hooks_dir'?" in answer.stderr


def test_reports_why_no_node_can_be_lent(host: Host) -> None:
    answer = host.run("--set", "k8s", "--node-name", "b001")
    assert answer.returncode == 1 and "state flag DRAIN" in answer.stderr
    answer = host.run("--set", "k8s", "--node-type", "x", "--num-nodes", "1")
    assert answer.returncode == 1 and "knows no node of this type" in answer.stderr


def test_list_does_not_import_kubernetes(host: Host) -> None:
    """Each run of dnm may call `--list`, so it must not import slow modules."""
    code = (
        "import sys; from dnm.converters.cli import main\n"
        "try: main(['--list'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith(('kubernetes', 'dnm.kube', 'http.', "
        "'typer', 'rich', 'yaml', 'difflib', 'importlib.metadata'))), file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": f"{host.directory}/bin:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.stderr == "[]\n"


def test_unreadable_journal_is_listed_and_its_node_not_chosen(
    host: Host,
) -> None:
    """Only a005 could be lent. If its journal is an empty file, garbage or a named pipe, it is not
    lent, and the list shows the next step."""
    path = host.store.directory / "a005.json"
    for make in (
        lambda: path.touch(mode=0o600),
        lambda: path.write_bytes(b"\xff{"),
        lambda: os.mkfifo(path, 0o600),
    ):
        path.unlink(missing_ok=True)
        make()
        done = host.run("--list", "--output", "json")
        rows = parse_list(done.stdout.encode())
        assert done.returncode == 0 and rows is not None
        assert rows.nodes["a005"].verdict == "SKIP"
        claim = rows.nodes["a005"].claim
        assert claim is not None and "a005.json can't be read" in claim.error
        assert "remove the file" in claim.error and rows.nodes["a004"].claim is None
        assert "a005.json can't be read" in host.run("--list").stdout
        refused = host.run("--set", "k8s", "--node-type", "a", "--num-nodes", "1")
        assert refused.returncode == 1 and "a005.json can't be read" in refused.stderr
    assert not host.calls.exists()


@pytest.mark.parametrize(
    ("stage", "is_claimed"), [("claim", False), ("prepare", True)], ids=["free", "prepared"]
)
def test_list_reports_claims_and_instances(host: Host, stage: str, is_claimed: bool) -> None:
    """A journal counts as a claim of its node only from the first stage that changes the machine. A
    held lock shows that its converter still runs."""
    host.begin("a005", stage, namespace="dev", request="r1")
    for is_held in (True, False):
        with host.store.lock("a005") if is_held else nullcontext():
            rows = parse_list(host.run("--list", "--output", "json").stdout.encode())
        assert rows is not None
        claim = rows.nodes["a005"].claim
        assert (claim is not None) is is_claimed
        if claim is not None:
            assert (claim.direction, claim.namespace, claim.request) == ("k8s", "dev", "r1")
            assert claim.is_at_work is is_held and has_stopped(claim) is not is_held
    assert ("a005: its conversion for 'dev' was interrupted" in host.run("--list").stdout) is (
        is_claimed
    )
