"""A comparison of the answers of slurmrestd and of Slurm's commands at the same time, of which
samples are kept.

dnm has a parser for each of these interfaces, so each verifies the other. `python -m
tests.rest_samples SUITE...` keeps an entry for each observed state, from slurmrestd of a Debian
suite, with the lines of the commands."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dnm.converters.slurm import rest_body as rest
from dnm.converters.slurm import text
from dnm.converters.slurm.rest import SlurmRestClient
from dnm.converters.slurm.rest_body import NEWEST, OLDEST, choose_version
from dnm.model.errors import SlurmError
from tests.real_slurm import SlurmLab
from tests.slurm_states import play, states_lab
from tests.slurmrestd import slurmrestd

SAMPLES = Path(__file__).parent / "data" / "slurm_rest"
FORMAT = text.JOB_FORMAT
Values = dict[str, Any]


class Answers(NamedTuple):
    """The values that dnm has parsed from one of the interfaces, by name."""

    nodes: Mapping[str, text.SlurmNode]
    jobs: Mapping[str, text.SlurmJob]
    records: Mapping[str, text.JobRecord]
    reservations: Mapping[str, text.Reservation]


def lines_of(lab: SlurmLab) -> dict[str, list[str]]:
    """Returns kind of object -> output lines of the Slurm command for it."""
    ask = lab.client.ask
    return {
        "nodes": ask("scontrol", "-a", "-o", "show", "nodes").splitlines(),
        "jobs": ask("squeue", "-a", "-h", "--noconvert", "-o", FORMAT).splitlines(),
        "records": ask("scontrol", "-a", "-o", "show", "jobs").splitlines(),
        "reservations": ask("scontrol", "-a", "-o", "show", "reservation").splitlines(),
    }


def by_text(lines: Mapping[str, list[str]]) -> Answers:
    nodes = text.parse_nodes("\n".join(lines["nodes"]))
    jobs = text.parse_jobs("\n".join(lines["jobs"]))
    records = {
        line.split(" ", 1)[0].removeprefix("JobId="): text.parse_job_record(line)
        for line in lines["records"]
        if "JobId=" in line
    }
    reservations = text.parse_reservations("\n".join(lines["reservations"]))
    return Answers(
        {node.name: node for node in nodes},
        {job.id: job for job in jobs},
        records,
        {reservation.name: reservation for reservation in reservations},
    )


def by_rest(client: SlurmRestClient) -> tuple[Answers, dict[str, bytes]]:
    """Reads slurmrestd. Returns the parsed values, and the answers as bytes."""
    raw = {kind: client._read(kind) for kind in ("nodes", "jobs", "reservations")}
    records = {
        str(job["job_id"]): rest.parse_job_record(json.dumps({"jobs": [job]}).encode())
        for job in json.loads(raw["jobs"])["jobs"]
    }
    return Answers(
        {node.name: node for node in rest.parse_nodes(raw["nodes"])},
        {job.id: job for job in rest.parse_jobs(raw["jobs"])},
        records,
        {
            reservation.name: reservation
            for reservation in rest.parse_reservations(raw["reservations"])
        },
    ), raw


def assert_same(before: Answers, observed: Answers, after: Answers, version: str) -> Counter[str]:
    """Asserts that slurmrestd's values equal those of the commands, unless these changed."""
    compared: Counter[str] = Counter()
    for kind in Answers._fields:
        first, message, last = (getattr(pair, kind) for pair in (before, observed, after))
        if first.keys() == last.keys():
            assert message.keys() == first.keys(), kind
        for name, value in first.items():
            if last.get(name) != value or name not in message:
                continue
            result = message[name]
            if kind == "jobs" and version == "v0.0.38":  # this version lacks it
                result = msgspec.structs.replace(result, planned_nodes=value.planned_nodes)
            assert result == value, (version, kind, name, result, value)
            compared[kind] += 1
    return compared


def clients_of(url: str) -> list[SlurmRestClient]:
    """Returns a client for each API version that slurmrestd offers and dnm supports."""
    newest = SlurmRestClient(url)
    body = newest._ask("slurm.read", "GET", "/openapi/v3").body
    clients: list[SlurmRestClient] = []
    for number in range(NEWEST, OLDEST - 1, -1):
        slurm_rest_client = SlurmRestClient(url)
        try:
            slurm_rest_client.offer = choose_version(body, number)
        except SlurmError:
            break
        if not clients or clients[-1].offer != slurm_rest_client.offer:
            clients.append(slurm_rest_client)
    return clients


def compare_all_states(lab: SlurmLab, keep: Keeper | None = None) -> str:
    """Compares both interfaces in all states of Slurm. Returns a line with the counts."""
    compared: Counter[str] = Counter()
    with slurmrestd(lab, "") as url:
        clients = clients_of(url)

        def compare_now() -> None:
            for client in clients:
                lines = lines_of(lab)
                reported, raw = by_rest(client)
                after = by_text(lines_of(lab))
                before = by_text(lines)
                compared.update(assert_same(before, reported, after, client.offer.version))
                if keep is not None and client is clients[0]:
                    keep.add(lines, raw, before, after)

        missing = play(lab, compare_now)
    versions = ", ".join(client.offer.version for client in clients)
    output = ", ".join(f"{count} {kind}" for kind, count in compared.items())
    assert not missing, missing
    return f"slurmrestd {lab.release} ({versions}): {output} as in the commands"


class Keeper:
    """The samples to keep: the first entry with each new state."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.entries: dict[str, list[Any]] = {"nodes": [], "jobs": [], "reservations": []}
        self.lines: dict[str, list[str]] = {
            kind: [] for kind in ("nodes", "jobs", "records", "reservations")
        }

    def add(
        self,
        lines: Mapping[str, list[str]],
        raw: Mapping[str, bytes],
        before: Answers,
        after: Answers,
    ) -> None:
        for kind, key in (("nodes", "name"), ("jobs", "job_id"), ("reservations", "name")):
            for entry in json.loads(raw[kind])[kind]:
                name = str(entry[key])
                where = "records" if kind == "jobs" else kind
                value = getattr(before, where).get(name)
                if value is None or getattr(after, where).get(name) != value:
                    continue
                state = self._state(kind, entry, value)
                if state not in self.known:
                    self.known.add(state)
                    self.entries[kind].append(entry)
                    self._add_lines(kind, name, lines)

    def _state(self, kind: str, entry: Any, value: Any) -> str:
        if kind == "nodes":
            marks = bool(value.reason), bool(value.comment), bool(value.extra)
            return f"{kind} {value.state.text} {marks if value.state.text == 'IDLE' else ''}"
        if kind == "jobs":
            shape = [bool(entry[key]) for key in ("array_task_string", "het_job_id_set")]
            return f"{kind} {value.state} {entry['exit_code']} {shape}"
        return f"{kind} {value.name}"

    def _add_lines(self, kind: str, name: str, lines: Mapping[str, list[str]]) -> None:
        begins = {"nodes": f"NodeName={name} ", "reservations": f"ReservationName={name} "}
        begin = begins.get(kind, f"{name}|")
        self.lines[kind] += [line for line in lines[kind] if line.startswith(begin)]
        if kind == "jobs":
            records = lines["records"]
            self.lines["records"] += [
                record for record in records if record.startswith(f"JobId={name} ")
            ]

    def write(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for kind, entries in self.entries.items():
            rows = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries)
            (directory / f"{kind}.json").write_text(f'{{"errors":[],"{kind}":[\n{rows}\n]}}\n')
        for kind, lines in self.lines.items():
            (directory / f"{kind}.txt").write_text("".join(f"{line}\n" for line in lines))


def main(suites: list[str]) -> None:
    from tests.real.slurm_roots import programs_of

    for suite in suites:
        keeper = Keeper()
        with states_lab(programs_of(suite)) as lab:
            print(compare_all_states(lab, keeper))
            keeper.write(SAMPLES / f"{lab.version[0]}.{lab.version[1]:02}")


if __name__ == "__main__":
    main(sys.argv[1:])
