"""Tests of etc/rbac.yaml with the real authorizer: if a verb is missing, dnm names it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import yaml

from tests.real.account import read_roles
from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.rig import Rig
from tests.real.site import PODS, pod

NAME = "dynamic-node-manager"
DOCUMENTS = list(yaml.safe_load_all(read_roles()))
ROLES = [document for document in DOCUMENTS if document["kind"] in ("Role", "ClusterRole")]


def role_path(role: Json) -> str:
    namespace = role["metadata"].get("namespace")
    group = "/apis/rbac.authorization.k8s.io/v1"
    kind = f"{role['kind'].lower()}s/{role['metadata']['name']}"
    return f"{group}/namespaces/{namespace}/{kind}" if namespace else f"{group}/{kind}"


VERBS = [
    (verb, rule["resources"][0], rule.get("resourceNames", [""])[0])
    for role in ROLES
    if role["metadata"]["name"] in (NAME, f"{NAME}-lease")
    for rule in role["rules"]
    for verb in rule["verbs"]
]


def withdraw(rig: Rig, verb: str, resource: str, name: str) -> None:
    """Removes a verb from all roles of dnm's account, of which several may grant it."""
    for role in ROLES:
        less = copy.deepcopy(role)
        for rule in less["rules"]:
            if resource in rule["resources"] and rule.get("resourceNames", [""])[0] == name:
                rule["verbs"] = [item for item in rule["verbs"] if item != verb]
        less["rules"] = [rule for rule in less["rules"] if rule["verbs"]]
        if less != role:
            rig.api.put(role_path(less), less)


@pytest.fixture
def roles_rig(rig: Rig) -> Iterator[Rig]:
    try:
        yield rig
    finally:
        for role in ROLES:
            rig.api.put(role_path(role), role)


def test_account_of_the_readme_passes_the_check(make_site: MakeSite) -> None:
    site = make_site()
    site.dnm("run")
    answer = site.json("check")
    assert answer["ok"], answer
    rows = [check for check in answer["checks"] if check["result"] != "ok"]
    # A machine without a syslog daemon, a converter that lists no claims, the optional role of
    # test-load, and fair sorting.
    expected = (
        "/dev/log",
        "does not report its claims",
        "`dnm test-load` is not allowed",
        "nodesortpolicy is fair",
    )
    assert all(any(text in item["text"] for text in expected) for item in rows), rows


@pytest.mark.parametrize(("verb", "resource", "name"), VERBS)
def test_check_names_a_missing_verb(
    roles_rig: Rig, make_site: MakeSite, verb: str, resource: str, name: str
) -> None:
    withdraw(roles_rig, verb, resource, name)
    site = make_site(relist_minutes=60)
    answer = site.json("check", code=None)
    rows = [check for check in answer["checks"] if check["result"] in ("warning", "failed")]
    assert any(verb in f"{item}" and resource in f"{item}" for item in rows), answer
    assert all(item["remedy"] for item in rows if item["check"] == "permission"), rows


@pytest.mark.parametrize(
    ("verb", "resource", "name"),
    [("list", "nodes", ""), ("list", "pods", ""), ("get", "configmaps", "yunikorn-configs")],
)
def test_run_without_read_permission_lends_nothing_and_names_it(
    roles_rig: Rig, make_site: MakeSite, verb: str, resource: str, name: str
) -> None:
    withdraw(roles_rig, verb, resource, name)
    queue = "root.research.services.dev"
    roles_rig.api.post(PODS, pod("big", queue, "120", "16Gi"))
    site = make_site()
    answer = site.dnm("run", code=1)
    assert resource in answer.stderr and "403" in answer.stderr, answer
    assert not any("--set" in call for call in site.calls)
