"""The roles of etc/rbac.yaml before the real authorizer: a verb that is missing is named."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import yaml

from tests.real.conftest import MakeSite
from tests.real.http_api import Json
from tests.real.namespaces import REPOSITORY
from tests.real.rig import Rig
from tests.real.site import pod

NAME = "dynamic-node-manager"
DOCUMENTS = list(yaml.safe_load_all((REPOSITORY / "etc" / "rbac.yaml").read_text()))
ROLES = [one for one in DOCUMENTS if one["kind"] in ("Role", "ClusterRole")]
BY_NAME = [one for one in ROLES if one["metadata"]["name"] == NAME]


def role_path(role: Json) -> str:
    namespace = role["metadata"].get("namespace")
    group = "/apis/rbac.authorization.k8s.io/v1"
    kind = f"{role['kind'].lower()}s/{role['metadata']['name']}"
    return f"{group}/namespaces/{namespace}/{kind}" if namespace else f"{group}/{kind}"


def each_verb() -> Iterator[tuple[str, Json]]:
    """What is missing, and the role without it."""
    for role in BY_NAME:
        for number, rule in enumerate(role["rules"]):
            for verb in rule["verbs"]:
                less = copy.deepcopy(role)
                less["rules"][number]["verbs"].remove(verb)
                if not less["rules"][number]["verbs"]:
                    del less["rules"][number]
                yield f"{verb} {rule['resources'][0]} {rule.get('resourceNames', [''])[0]}", less


VERBS = dict(each_verb())


@pytest.fixture
def roles_rig(rig: Rig) -> Iterator[Rig]:
    try:
        yield rig
    finally:
        for role in ROLES:
            rig.api.put(role_path(role), role)


def test_the_account_of_the_readme_passes_the_check(make_site: MakeSite) -> None:
    answer = make_site().json("check")
    assert answer["ok"], answer
    assert {one["result"] for one in answer["checks"]} <= {"ok", "note"}, answer


@pytest.mark.parametrize("missing", VERBS)
def test_a_verb_that_is_missing_is_named_by_the_check(
    roles_rig: Rig, make_site: MakeSite, missing: str
) -> None:
    role = VERBS[missing]
    roles_rig.api.put(role_path(role), role)
    site = make_site()
    answer = site.json("check", code=None)
    told = [one for one in answer["checks"] if one["result"] not in ("ok", "note")]
    verb, resource, _ = missing.split(" ")
    assert any(verb in f"{one}" and resource in f"{one}" for one in told), answer
    assert all(one["remedy"] for one in told), told


@pytest.mark.parametrize(
    "missing", ["list nodes ", "list pods ", "get configmaps yunikorn-configs"]
)
def test_a_run_that_may_not_read_lends_nothing_and_says_what_it_may_not(
    roles_rig: Rig, make_site: MakeSite, missing: str
) -> None:
    role = VERBS[missing]
    roles_rig.api.put(role_path(role), role)
    queue = "root.research.services.dev"
    roles_rig.api.post("/api/v1/namespaces/dev/pods", pod("big", queue, "120", "16Gi"))
    site = make_site()
    answer = site.dnm("run", code=1)
    _, resource, _ = missing.split(" ")
    assert resource in answer.stderr and "403" in answer.stderr, answer
    assert not any("--set" in call for call in site.calls)
