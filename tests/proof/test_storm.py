"""A short version of `make storm`, played at night; by day test_machine.py injects faults."""

from __future__ import annotations

from tests.night import night
from tests.proof.harness import note_figures
from tests.proof.storm.__main__ import play_storm

SEED, RUNS = 4, 5


@night
def test_short_storm_violates_no_invariant() -> None:
    counts, broken, _ = play_storm(SEED, RUNS, at_once=1, episode_runs=RUNS)
    assert not broken, "\n\n".join(broken)
    assert counts["runs"] > RUNS
    note_figures(f"storm, seed {SEED}", runs=counts["runs"], blows=sum(
        count for name, count in counts.items() if name.startswith("blow ")
    ))  # fmt: skip
