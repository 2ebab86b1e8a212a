"""The words of a person who has never given these verbs: each mistake is a sentence that names the
thing and the next step, and nothing is changed by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dnm.cli.app import main
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import Leaving, Phase
from dnm.model.node_type import NodeType
from dnm.model.orders import Keeping, LendOrder
from dnm.model.registry import Registry
from dnm.run.registry import encode_registry, save_registry
from tests.builders import NOW, QUEUE, SIZE, a_config, a_lent_node

LATER = datetime.now(UTC) + timedelta(hours=9)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    dev = NamespacePolicy(name="dev", queue=QUEUE, node_types=("a",), max_nodes=3)
    types = {name: NodeType(name=name, size=SIZE) for name in ("a", "b")}
    config = a_config(tmp_path, namespaces={"dev": dev}, node_types=types)
    nodes = {
        "a001": a_lent_node(),
        "a002": a_lent_node(Phase.FAILED, error="it burns"),
        "a003": a_lent_node(Phase.RETURNING),
        "a004": a_lent_node(owner="other"),
        "a005": a_lent_node(leaves=Leaving.BY_HAND),
        "a006": a_lent_node(),
    }
    order = LendOrder(id="lend-1", node_type="a", namespace="dev", count=1, since=NOW, until=LATER)
    excluded = {"a008": Keeping(since=NOW, until=LATER)}
    save_registry(config, Registry(nodes=nodes, held=("a006",), orders=(order,), excluded=excluded))
    return config


@pytest.mark.parametrize(
    ("words", "why"),
    [
        # lend
        ("lend 2", "Missing option '--namespace'"),
        ("lend --namespace dev", "say how many nodes, or which: dnm lend 2, or --node a001"),
        ("lend 2 --namespace dve", "namespace 'dve' is not monitored; there are dev"),
        ("lend two --namespace dev", "'two' is not a valid int"),
        ("lend 0 --namespace dev", "0 is not in the range"),
        ("lend -1 --namespace dev", "-1"),
        ("lend 4 --namespace dev", "4 nodes can never be had: max_nodes of namespace dev is 3"),
        ("lend 1 --namespace dev --type b", "nodes of type b are not lent to dev; its types are a"),
        ("lend 1 --namespace dev --node x9", "nodes of no known type are not lent to dev"),
        ("lend 2 --namespace dev --node a009", "2 nodes are asked for, and 1 named"),
        ("lend --namespace dev --node a001", "a001 is lent to dev already: `dnm extend a001`"),
        ("lend --namespace dev --node a008", "a008 is kept out of lending"),
        ("lend --namespace dev --node a[1-", "brackets don't match"),
        ("lend 1 --namespace dev --for 2h --until 17:00", "write --for or --until, not both"),
        ("lend 1 --namespace dev --until 2020-01-01", "2020-01-01 00:00 UTC is over"),
        ("lend 1 --namespace dev --until tomorrow", "write 17:00 or 2026-12-01T17:00"),
        ("lend 1 --namespace dev --for 0h", "write 90m, 2h or 1d, a year at most"),
        # extend
        ("extend a001", "say how long: --for 2h or --until 17:00"),
        ("extend --for 2h", "Missing argument 'NODE...'"),
        (
            "extend a099 --for 2h",
            "'a099' is not a node that this dnm has lent; lent are: a[001-006]",
        ),
        ("extend a005 --for 2h", "a005 is on its way back (serving)"),
        ("extend a001 --until 2020-01-01T09:00", "2020-01-01 09:00 UTC is over"),
        ("extend lend-9 --for 2h", "'lend-9' is not a node that this dnm has lent"),
        ("lend 1 --namespace dev --node a001 --type b", "a001 is not of type b; leave --type out"),
        # return
        ("return", "Missing argument 'NODE...'"),
        ("return a099", "'a099' is not a node that this dnm has lent; lent are: a[001-006]"),
        ("return a004", "'a004' is not a node that this dnm has lent"),
        ("return lend-9", "'lend-9' is not a node that this dnm has lent"),
        ("return a001 a002", "a002 has failed: `dnm reset a002` returns it; it burns"),
        ("return a003", "a003 is on its way back already"),
        ("return a006", "a006 is held: `dnm unhold a006` first"),
        ("return a001 --evict --when-empty", "write --when-empty or --evict, not both"),
        ("return a001 --grace 10m", "it is for --evict; without, pods run on"),
        ("return a001 --evict --grace soon", "write 10m or 2h, a week at most"),
        ("return a001 --evict --grace 8d", "write 10m or 2h, a week at most"),
        ("return a001 --force", "No such option: --force"),
        ("return a001 --evict --yes", "no kubeconfig is found: set kubeconfig_path"),
        # adopt
        ("adopt a050", "Missing option '--namespace'"),
        ("adopt a050 --namespace dve", "namespace 'dve' is not monitored; there are dev"),
        ("adopt b001 --namespace dev", "'b001' is of no type that is lent to dev"),
        ("adopt a001 --namespace dev", "a001 is recorded already: serving"),
        ("adopt a008 --namespace dev", "a008 is kept out of lending"),
        # hold, exclude, and their ends
        ("hold x17", "'x17' is not lent, and no name of a node that could be: these are"),
        ("hold a001 --for 2h --until 17:00", "write --for or --until, not both"),
        ("exclude a050 --until 2020-01-01", "2020-01-01 00:00 UTC is over"),
        ("exclude lend-1", "'lend-1' is not lent, and no name of a node"),
        ("unhold None", "'None' names no node"),
        # pause
        ("pause --until yesterday", "write 17:00 or 2026-12-01T17:00"),
        ("pause --until 2020-01-01", "2020-01-01 00:00 UTC is over"),
        ("pause --until 17:00 --for 2h", "write --for or --until, not both"),
        ("pause --for ever", "write 90m, 2h or 1d, a year at most"),
        ("pause --half lending", "No such option: --half"),
    ],
)
def test_a_mistake_is_a_sentence(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: str, why: str,
) -> None:  # fmt: skip
    before = config.converted_nodes_path.read_bytes()
    monkeypatch.setattr("dnm.config.load.load_config", lambda path, environ: config)
    monkeypatch.setattr("sys.argv", ["dnm", *words.split()])
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert why in said and ended.value.code in (1, 2), said
    assert config.converted_nodes_path.read_bytes() == before


def test_a_registry_that_can_not_be_read_stops_each_verb(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.converted_nodes_path.write_bytes(encode_registry(Registry())[:20])
    monkeypatch.setattr("dnm.config.load.load_config", lambda path, environ: config)
    for words in ("lend 1 --namespace dev", "extend a001 --for 2h", "return a001", "hold a001",
                  "exclude a001", "pause"):  # fmt: skip
        monkeypatch.setattr("sys.argv", ["dnm", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == 2 and str(config.converted_nodes_path) in said, said
