"""An episode: runs with faults, then runs without faults, with pods and then without. It is a
process; the last line of its output is its result as JSON."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dnm.lab.sandbox.clock import Timing
from tests.proof.storm import blows_inside, processes
from tests.proof.storm.blows import choose
from tests.proof.storm.judge import judge_always, judge_end, judge_limits, judge_run
from tests.proof.storm.world import DEV, LAB, PERMANENT, SIZES, Ended, Strike, World

STRUCK_SHARE = 0.35  # of the runs get a signal
CALM_RUNS = 90  # at most, to settle
ADVICE_AFTER = 15  # quiet runs: then an administrator follows the advice of `dnm status`
_PAUSE = 0.15  # seconds between two runs
_CALM_PAUSE = 0.4


class Broken(Exception):
    """A violation that ends the episode."""


class Episode:
    """An episode of runs with faults, which its `number` and the seed select."""

    def __init__(self, world: World, seed: int, number: int) -> None:
        self.world, self.seed, self.number = world, seed, number
        self.counts: Counter[str] = Counter()
        self.longest = 0.0
        self.last_output = ""  # the output of the last run

    def play(self, runs: int) -> None:
        for run in range(runs):
            rng = random.Random(f"{self.seed}/{self.number}/{run}")
            self.world.host = random.Random(f"{run}/{self.seed}").choice(self.world.hosts)
            self.world.log_line(f"--- {run}")
            self._prepare(rng)
            for blow in choose(rng):
                done = blow.strike(self.world, random.Random(rng.random()))
                self.world.log_line(f"  {blow.name}: {done}")
                self.counts[f"blow {blow.name}"] += 1
            self._run(rng)
            time.sleep(_PAUSE)
        self.world.log_line("--- calm")
        self._stop_disturbances()
        self._settle_with_demand()
        self._settle()

    def _prepare(self, rng: random.Random) -> None:
        """Prepares a run: usually ends the faults of the previous run, and repairs files."""
        world = self.world
        share, seconds = rng.random(), rng.choice((0.1, 0.15, 0.4))
        if share < 0.7:
            world.sandbox.faults.clear()
        if share < 0.3:
            with world.sandbox.lock:
                world.sandbox.conversion.behaviours.clear()
            world.sandbox.timing.convert = world.sandbox.timing.revert = seconds
        if share < 0.5:
            self._put_files_right()
            self._take_over()

    def _take_over(self) -> None:
        """Runs the command that the last run requested from an administrator: `dnm takeover` after
        an older registry was restored, or `dnm resume` after it was lost."""
        for words in (("takeover", "--yes"), ("resume",)):
            if f"`dnm {words[0]}`" in self.last_output:
                self.counts["advice followed"] += 1
                self.world.verbs.append(self.world.run(*words))
                return

    def _put_files_right(self) -> None:
        world = self.world
        for _ in self._on_each_host():
            world.write(world.config, world.right_config)
        if world.repair is not None:
            world.repair()
            world.repair = None

    def _on_each_host(self) -> Iterator[int]:
        """Makes each host in turn the one that runs commands, the current one last."""
        host = self.world.host
        for each in (*(one for one in self.world.hosts if one != host), host):
            self.world.host = each
            yield each

    def _run(self, rng: random.Random) -> None:
        strike = Strike.draw(rng)
        several = len(self.world.hosts) > 1
        together = rng.random() < (0.5 if several else 0.08)
        if rng.random() >= STRUCK_SHARE:
            self._judge(self.world.run())
            return
        self.counts[f"strike {strike.action}"] += 1
        self.world.log_line(f"  {strike}")
        other = None
        if together:
            host, self.world.host = self.world.host, self.world.hosts[self.world.host - 1]
            other, self.world.host = self.world.start("run"), host
        self._judge(self.world.run(strike=strike))
        if other is not None:
            out, err = other.communicate(timeout=300)
            self.counts["runs"] += 1
            self._judge(Ended(("run",), other.returncode, 0.0, out.decode(errors="replace"),
                              err.decode(errors="replace"), strike.has_struck))  # fmt: skip

    def _judge(self, ended: Ended, is_calm: bool = False) -> None:
        message = " ".join((ended.out + ended.err).split())
        if message or ended.code != 2:  # a run does not repeat a lasting error
            self.last_output = message
        self.counts["runs"] += 1
        self.counts[f"exit {ended.code}"] += 1
        self.counts["calm runs"] += is_calm
        done = re.findall(r"\b(requested|lent|fenced|returning|returned|limit)\b", ended.out)
        self.counts.update(f"action {word}" for word in done)
        self.longest = max(self.longest, ended.seconds)
        problems = list(judge_run(ended))
        for verb in self.world.verbs:
            problems += judge_run(verb)
            self.counts["verbs"] += 1
        self.world.verbs.clear()
        problems += judge_always(self.world)
        if problems:
            raise Broken("\n".join(problems))

    # --- calm ------------------------------------------------------------------------------------

    def _stop_disturbances(self) -> None:
        """Ends all faults and undoes the administrator's changes. Repairs also what dnm cannot: a
        kubelet's false report about itself, and a converter that never ends."""
        world, sandbox = self.world, self.world.sandbox
        sandbox.faults.clear()
        with sandbox.lock:
            sandbox.conversion.behaviours.clear()
            sandbox.timing.convert = sandbox.timing.revert = Timing().convert + 0.1
            for undo in world.undo:
                undo()
            for number in list(sandbox.batch.jobs):
                sandbox.batch.finish_job(number)
        self._put_files_right()
        for name in world.node_names():
            self._heal_kubelet(name)
        world.uncordon_unfenced_nodes()
        for pod in world.tenant_pods():
            sandbox.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
        for _ in self._on_each_host():  # the Lease of another host may still be good
            world.run("resume")
            for name in world.read_registry().get("held", ()):
                world.run("unhold", name)

    def _heal_kubelet(self, name: str) -> None:
        def change(node: Any) -> None:
            cores, memory = SIZES.get(name[0], (8, 32))
            amounts = {"cpu": str(cores), "memory": f"{memory}G", "pods": "110"}
            node["status"]["allocatable"] = node["status"]["capacity"] = amounts
            if name in PERMANENT:
                notes = node["metadata"].get("annotations") or {}
                for key in [key for key in notes if key.startswith(blows_inside.MARK)]:
                    del notes[key]

        world = self.world
        world.sandbox.edit("nodes", name, change)
        world.sandbox.set_ready(name, True)

    def _settle_with_demand(self) -> None:
        """Adds pods that need two nodes, and runs dnm until they run and the limits are right."""
        world = self.world
        world.wait_for_converters()
        # A child of a converter that was killed from outside belongs to its site, and stays.
        processes.kill(
            descendant for descendant in processes.descendants() if descendant.role == "hook"
        )
        for _ in self._on_each_host():
            for name in ("a", "b", DEV, LAB):
                self._judge(world.run("reset", name), is_calm=True)
        names = world.sandbox.add_pods(
            2, "dev", queue=DEV, cpu="100", memory="200G", name="workshop"
        )

        def is_served() -> bool:
            pods = {pod["metadata"]["name"]: pod for pod in world.sandbox.objects("pods", "dev")}
            return all(pods[name]["status"].get("phase") == "Running" for name in names)

        self._run_until(is_served, "the pods of a workshop run")
        self._run_until(lambda: not list(judge_limits(world)), "the limits are right",
                        lambda: "\n".join(judge_limits(world)))  # fmt: skip
        world.sandbox.finish_pods(names, "dev")

    def _settle(self) -> None:
        world = self.world
        self._run_until(lambda: not list(judge_end(world)), "everything is where it was",
                        lambda: "\n".join(judge_end(world)))  # fmt: skip
        processes.kill(
            descendant for descendant in processes.descendants() if descendant.role == "hook"
        )
        world.wait_for_converters()
        if len(world.hosts) > 1:  # the end of the last conversions is written to the API server
            for _ in self._on_each_host():
                self._judge(world.run(), is_calm=True)
        world.sandbox.requests.clear()
        for _ in range(2):
            for _ in self._on_each_host():
                self._judge(world.run(), is_calm=True)
        if writes := world.sandbox.requests.writes():
            raise Broken(f"a run in steady state writes: {writes}")
        if left := processes.descendants():
            raise Broken(f"processes are left: {left}")

    def _follow_advice(self) -> None:
        """Runs the commands between backquotes in the messages for an administrator."""
        world = self.world
        output = " ".join(world.run("status").out.split())
        for words in sorted(set(re.findall(r"`dnm (reset [^`]+)`", output))):
            self.counts["advice followed"] += 1
            self._judge(world.run(*words.split()), is_calm=True)
        if (
            "`dnm queues rebase" in output
        ):  # an administrator with the site's own document can decide
            self.counts["advice followed"] += 1
            world.sandbox.set_queues(world.queues)
            answer = world.run("queues", "rebase", "--as", "baseline", "--yes")
            self._judge(answer, is_calm=True)

    def _run_until(self, is_so: Any, condition: str, why: Any = lambda: "") -> None:
        for number in range(1, CALM_RUNS + 1):
            if is_so():
                return
            self.world.host = number % len(self.world.hosts)
            self._judge(self.world.run(), is_calm=True)
            self._take_over()
            if number % ADVICE_AFTER == 0:
                self._follow_advice()
            time.sleep(_CALM_PAUSE)
        raise Broken(f"after {CALM_RUNS} quiet runs it is not so that {condition}:\n{why()}\n"
                     f"{self.world.run('status').out}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.proof.storm.episode")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    processes.adopt_orphans()
    directory = Path(tempfile.mkdtemp(prefix="dnm-storm-"))
    directory.chmod(0o755)
    world = World(directory, options.hosts)
    episode = Episode(world, options.seed, options.number)
    begun, broken = time.monotonic(), ""
    try:
        episode.play(options.runs)
    except Broken as error:
        broken = str(error)
    except Exception:  # an error of the storm itself: reported like any other
        broken = traceback.format_exc()
    finally:
        if options.log is not None:
            options.log.write_text("\n".join([*world.log, "", broken, ""]))
        world.close()
    print(json.dumps({
        "number": options.number, "broken": broken, "counts": episode.counts,
        "longest": round(episode.longest, 2), "seconds": round(time.monotonic() - begun, 1),
    }))  # fmt: skip
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
