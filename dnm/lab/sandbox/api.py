"""The HTTP routes of the Kubernetes API: discovery, objects, their subresources, access reviews."""

from __future__ import annotations

from typing import NamedTuple

from dnm.lab.sandbox import access, kinds
from dnm.lab.sandbox.access import AccessRules, Attempt
from dnm.lab.sandbox.admission import Admission
from dnm.lab.sandbox.deletion import Deletion
from dnm.lab.sandbox.field_owners import Manager, track_change
from dnm.lab.sandbox.http_values import Request, ServerAnswer, is_asked_for, json_answer
from dnm.lab.sandbox.kinds import Kind
from dnm.lab.sandbox.lists import EVENTS, Lists, document, event_to_core
from dnm.lab.sandbox.patches import apply_patch
from dnm.lab.sandbox.store import ApiError, Object, Objects

GIT_VERSION = "v1.30.0"


class Target(NamedTuple):
    """The object that a path names. `name` is empty if the path names a collection."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> str:
        plural = self.kind.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


class Api:
    """The handler of requests to the Kubernetes API. Callers hold the store's lock."""

    def __init__(self, store: Objects, access: AccessRules, admission: Admission) -> None:
        self.store = store
        self.access = access
        self.admission = admission
        self.lists = Lists(store)
        self.deletion = Deletion(store)

    def handle(self, request: Request) -> ServerAnswer:
        """Returns the answer to a request. Raises ApiError for an unsuccessful one."""
        self.access.authenticate(request.headers)
        discovered = _discovery(request)
        if discovered is not None:
            return discovered
        if request.path.endswith(f"/authorization.k8s.io/v1/{kinds.REVIEWS}"):
            return self._review(request)
        target = find_target(request.path)
        attempt = attempt_of(request, target)
        self._authorize(request, target, attempt)
        if attempt.verb in ("list", "get", "watch"):
            return self._read(request, target, attempt.verb)
        _require_json(request)
        if target.subresource == "eviction":
            return self._evict(request, target)
        if target.subresource not in ("", "status"):
            raise ApiError(404, "the server could not find the requested resource")
        if attempt.verb == "create":
            return self._create(target, _object(request), request)
        if attempt.verb in ("update", "patch"):
            return self._update(request, target)
        done = self.deletion.delete(target.kind, target.namespace, target.name, request)
        return json_answer(done)

    def _authorize(self, request: Request, target: Target, attempt: Attempt) -> None:
        node = access.node_of(request.headers)
        if not node:
            self.access.require(attempt)
            return
        access.authorize(node, attempt)
        if attempt.verb not in ("list", "get", "watch"):
            old = self.store.get(target.kind.plural, target.namespace, target.name)
            changed = self._changed(request, target, old)
            access.admit(node, attempt, changed or {}, old)

    def _changed(self, request: Request, target: Target, old: Object | None) -> Object | None:
        """Returns the object as the request would store it; None if it stores no object."""
        if request.method == "PATCH" and old is not None:
            return apply_patch(_content_type(request), document(target.kind, old), request.json())
        return _object(request) if request.method in ("POST", "PUT") else None

    # --- reading ----------------------------------------------------------------------------

    def _read(self, request: Request, target: Target, verb: str) -> ServerAnswer:
        kind = target.kind
        if verb == "watch":
            return self.lists.watch(kind, target.namespace, request.query)
        if verb == "list":
            return self.lists.page(kind, target.namespace, request.query)
        entry = self.store.require(kind.plural, target.namespace, target.name)
        return json_answer(document(kind, entry.data))

    # --- writing ----------------------------------------------------------------------------

    def _create(self, target: Target, manifest: Object, request: Request) -> ServerAnswer:
        kind = target.kind
        named = manifest.get("kind", kind.name)
        if named != kind.name or manifest.get("apiVersion", kind.api_version) != kind.api_version:
            version = manifest.get("apiVersion")
            raise ApiError(400, f"{named} in version {version} cannot be handled as a {kind.name}")
        meta = manifest.setdefault("metadata", {})
        if kind.namespaced:
            if meta.setdefault("namespace", target.namespace) != target.namespace:
                raise ApiError(400, "the namespace of the provided object does not match the "
                               "namespace sent on the request")  # fmt: skip
        else:
            meta.pop("namespace", None)
        if kind.group == EVENTS:
            manifest = event_to_core(manifest)
        self.admission.admit_creation(kind, manifest)
        manifest = self._tracked(request, target, {}, manifest)
        created = self.store.create(kind.plural, manifest, dry_run=_is_dry_run(request))
        return json_answer(document(kind, created), 201)

    def _update(self, request: Request, target: Target) -> ServerAnswer:
        kind = target.kind
        entry = self.store.require(kind.plural, target.namespace, target.name)
        if request.method == "PUT":
            changed = _object(request)
        else:
            changed = self._changed(request, target, entry.data) or {}
        changed.setdefault("metadata", {}).setdefault("name", target.name)
        if kind.namespaced:
            changed["metadata"].setdefault("namespace", target.namespace)
        old = entry.data
        if target.subresource == "status":
            sent = changed["metadata"].get("resourceVersion")
            status = changed.get("status") or {}
            metadata = changed["metadata"]
            changed = {**entry.copy(), "status": status}
            if kind.plural == "nodes":  # the server also takes its annotations (strategy.go)
                changed["metadata"] = {**changed["metadata"], **_carried(metadata)}
            changed["metadata"]["resourceVersion"] = sent
        elif kind.has_status:
            changed.pop("status", None)
            if "status" in old:
                changed["status"] = entry.copy()["status"]
        self.store.check_version(kind, old, changed["metadata"].get("resourceVersion"),
                                 changed["metadata"].get("uid"))  # fmt: skip
        self.admission.admit_update(kind, changed, old)
        changed = self._tracked(request, target, old, changed)
        updated = self.store.update(kind.plural, changed, dry_run=_is_dry_run(request))
        return json_answer(document(kind, updated))

    def _tracked(self, request: Request, target: Target, old: Object, changed: Object) -> Object:
        agent = request.headers.get("user-agent", "").partition("/")[0]
        owner = Manager(request.query.get("fieldManager", agent), "Update", target.subresource)
        live = document(target.kind, old) if old else {}
        return track_change(live, changed, owner, self.store.clock.stamp())

    def _evict(self, request: Request, target: Target) -> ServerAnswer:
        eviction = _object(request)
        self.deletion.evict(target.namespace, target.name, eviction, _is_dry_run(request))
        return json_answer({"kind": "Status", "apiVersion": "v1", "metadata": {},
                            "status": "Success", "code": 201}, 201)  # fmt: skip

    def _review(self, request: Request) -> ServerAnswer:
        review = _object(request)
        asked = (review.get("spec") or {}).get("resourceAttributes") or {}
        subresource = asked.get("subresource")
        resource = asked.get("resource", "") + (f"/{subresource}" if subresource else "")
        attempt = Attempt(asked.get("verb", ""), asked.get("group", ""), resource,
                          asked.get("namespace", ""), asked.get("name", ""))  # fmt: skip
        allowed = self.access.allows(attempt)
        review |= {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
                   "status": {"allowed": allowed}}  # fmt: skip
        return json_answer(review, 201)


# --- requests ------------------------------------------------------------------------------


def find_target(path: str) -> Target:
    """Returns the target that a path names. Raises 404 if the API does not serve it."""
    steps = [step for step in path.split("/") if step]
    if steps[:1] == ["api"]:
        group, rest = "", steps[1:]
    elif steps[:1] == ["apis"] and len(steps) > 2:
        group, rest = steps[1], steps[2:]
    else:
        raise ApiError(404, "the server could not find the requested resource")
    version, rest = rest[0] if rest else "", rest[1:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = [*rest, "", "", ""][: max(3, len(rest))]
    kind = kinds.kind_at(group, version, plural)
    misplaced = kind is not None and bool(namespace) and not kind.namespaced
    if kind is None or more or misplaced or (kind.namespaced and name and not namespace):
        raise ApiError(404, "the server could not find the requested resource")
    return Target(kind, namespace, name, subresource)


def attempt_of(request: Request, target: Target) -> Attempt:
    """Returns the verb and the target of this request, in the terms of RBAC rules."""
    if request.method in ("GET", "HEAD"):
        verb = "get" if target.name else "list"
        if is_asked_for(request.query, "watch"):
            verb = "watch"
    else:
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(
            request.method, ""
        )
        has_name = bool(target.name)
        is_misplaced = {"create": has_name and not target.subresource, "delete": not has_name}
        if not verb or is_misplaced.get(verb):
            raise ApiError(405, "the server does not allow this method on the requested resource")
    return Attempt(verb, target.kind.group, target.resource, target.namespace, target.name)


def _object(request: Request) -> Object:
    value = request.json()
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be an object")
    return value


def _require_json(request: Request) -> None:
    """Raises 415 if the request's body is protobuf."""
    if _content_type(request) == "application/vnd.kubernetes.protobuf":
        raise ApiError(415, "this server speaks JSON only; use `kubectl create -f` or `apply -f`")


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip()


def _is_dry_run(request: Request) -> bool:
    return request.query.get("dryRun") == "All"


def _carried(metadata: Object) -> Object:
    """Returns an object's labels and annotations, which an update of its status may change too."""
    return {key: metadata.get(key) or {} for key in ("labels", "annotations")}


# --- discovery -----------------------------------------------------------------------------


def _discovery(request: Request) -> ServerAnswer | None:
    path = request.path.rstrip("/")
    if path == "/api":
        return json_answer({"kind": "APIVersions", "versions": ["v1"]})
    if path == "/apis":
        return json_answer(kinds.groups_document())
    if path == "/version":
        major, minor, _ = GIT_VERSION.removeprefix("v").split(".")
        return json_answer({"major": major, "minor": minor, "gitVersion": GIT_VERSION,
                            "platform": "dnm/sandbox"})  # fmt: skip
    if path == "/openapi/v2":
        # No schema for anything: an empty protobuf message, and kubectl checks nothing.
        kind = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        return ServerAnswer(body=b"", content_type=kind)
    if path == "/openapi/v3":
        return json_answer({"paths": {}})
    steps = path.split("/")
    if steps[1:2] == ["api"] and len(steps) == 3:
        return _resources("", steps[2])
    if steps[1:2] == ["apis"] and len(steps) == 4:
        return _resources(steps[2], steps[3])
    if steps[1:2] == ["apis"] and len(steps) == 3:
        groups = [g for g in kinds.groups_document()["groups"] if g["name"] == steps[2]]
        return (
            json_answer({"kind": "APIGroup", "apiVersion": "v1", **groups[0]}) if groups else None
        )
    return None


def _resources(group: str, version: str) -> ServerAnswer:
    document = kinds.resources_document(group, version)
    if document is None:
        raise ApiError(404, "the server could not find the requested resource")
    return json_answer(document)
