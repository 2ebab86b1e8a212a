"""What the last run saw and did."""

from __future__ import annotations

from datetime import datetime

from dnm.model.batch import WaitingJobs
from dnm.model.value import Value


class NodePods(Value, omit_defaults=True):
    """Who holds a lent node: how many pods that count, in all and of the namespaces with the most,
    the first three by age, since when the oldest is there, and how many of DaemonSets and mirrors,
    which hold none."""

    count: int = 0
    namespaces: dict[str, int] = {}
    names: tuple[str, ...] = ()
    oldest: str = ""  # RFC 3339, as the API prints it
    apart: int = 0


class QueueStatus(Value):
    """One queue as the last run saw it, for `dnm status`."""

    limit: dict[str, int]
    baseline: dict[str, int]
    lent: dict[str, int]
    used: dict[str, int]
    pending: dict[str, int]
    pending_pods: int
    verdict: str
    reason: str
    is_judged: bool = True  # False: no run could tell yet what of the limit is lent
    code: str = ""  # of the reason
    is_demand_known: bool = True  # False: its pods could not be read
    waits_since: str = ""  # when the oldest of its pending pods was created
    floor: int = 0  # nodes that its namespaces are to have at least, now
    young_pods: int = 0  # pending too, and not yet for as long as counts


class RunRecord(Value):
    """What the last run saw and did. When it began and ended are the times of the lock file and of
    the state file, so that a run without a change rewrites nothing."""

    exit_code: int = 0
    failed_nodes_alone: bool = False  # its errors are those of nodes that wait for a person
    acted_at: datetime | None = None
    actions: tuple[str, ...] = ()  # of the last run that did something, at `acted_at`
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    queues: dict[str, QueueStatus] = {}
    ledger: str | None = None  # as the run wrote it, in case the annotation is lost; None: unknown
    nodes: dict[str, str] = {}  # lent node -> sentence
    pods: dict[str, NodePods] = {}  # lent node -> who holds it
    pods_seen: int = 0  # an earlier dnm's; nothing rests on it
    attended: tuple[str, ...] = ()  # lent and some other nodes with pods that stay on them
    pods_doubted_since: datetime | None = None  # the list of pods contradicts the record
    succeeded_at: datetime | None = None  # when a run last did, before those that failed since
    waiting_jobs: tuple[WaitingJobs, ...] | None = None  # when last asked; None: nobody says
    batch_nodes: dict[str, int] = {}  # of each type, where a cap is a share of them; when last read

    @property
    def has_succeeded(self) -> bool:
        """Whether it did what it could: a failed node is an error of each run, and stops none."""
        return self.exit_code == 0 or self.failed_nodes_alone


def run_name(began: datetime) -> str:
    """Returns the name of the run, or of the verb, that began then."""
    return f"{began:%Y%m%dT%H%M%S.%fZ}"
