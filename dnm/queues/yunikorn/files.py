"""Queue documents in files: a plain queues.yaml, or manifests that contain the ConfigMap.

Errors in a manifest are reported with the line numbers of the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from dnm.model.cluster import ConfigMap
from dnm.model.errors import QueueError
from dnm.model.value import Value
from dnm.queues.yunikorn.advice import advise
from dnm.queues.yunikorn.decode import RuleViolation
from dnm.queues.yunikorn.source import SourceDocument, resolve_document
from dnm.queues.yunikorn.tree import check_rules, read_tree
from dnm.queues.yunikorn.yaml_nodes import MAPPING, SCALAR, YamlError, YamlNode, compose_all

_LARGEST = 64 * 1024 * 1024  # bytes; a ConfigMap has one MiB, a file may hold many


class DocumentCheck(Value):
    """The result of checking a queue document. `violations`: why dnm can't edit it. `advice`: parts
    that YuniKorn handles unexpectedly. `is_taken`: YuniKorn accepts it (None: not asked)."""

    file: str
    text: str = ""
    is_taken: bool | None = None
    violations: tuple[RuleViolation, ...] = ()
    advice: tuple[RuleViolation, ...] = ()
    queues: int = 0

    @property
    def is_ok(self) -> bool:
        return not self.violations


def judge_file(path: Path) -> list[DocumentCheck]:
    """Checks every queue document in a file. An unreadable file counts as a violation."""
    try:
        with path.open("rb") as file:  # it may be a pipe: `queues check <(kubectl get …)`
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            return [_broken(str(path), "file", 0, f"is larger than {_LARGEST} bytes")]
        text = content.decode()
    except OSError as error:
        return [_broken(str(path), "file", 0, f"can't be read: {error.strerror}")]
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return [_broken(str(path), "yaml", line, "is not UTF-8 text")]
    manifests = list(_config_maps(text))
    if not manifests:
        return [judge_text(str(path), text)]
    judged = []
    for data, config_map in manifests:
        try:
            source = resolve_document(config_map, None)
        except QueueError as error:
            judged.append(_broken(str(path), "gzip", data.line, str(error)))
            continue
        if source.config_map is None:
            why = str(source.refusal)
            advice = RuleViolation(rule="document", line=data.line, message=why)
            judged.append(DocumentCheck(file=str(path), advice=(advice,)))
        else:
            judged.append(_moved(judge_text(str(path), source.text), data, source))
    return judged


def judge_text(file: str, text: str) -> DocumentCheck:
    """Checks a queue document. `file` is its name in reports."""
    tree, problems = read_tree(text)
    if tree is None or problems:
        return DocumentCheck(file=file, text=text, violations=problems)
    violations = check_rules(tree)
    if tree.refusal:
        refused = RuleViolation(rule="document", line=1, message=tree.refusal)
        violations = (*violations, refused)
    return DocumentCheck(
        file=file,
        text=text,
        violations=violations,
        advice=advise(tree),
        queues=len(tree.queues),
    )


def _broken(file: str, rule: str, line: int, message: str) -> DocumentCheck:
    return DocumentCheck(
        file=file, violations=(RuleViolation(rule=rule, line=line, message=message),)
    )


def _config_maps(text: str) -> Iterator[tuple[YamlNode, ConfigMap]]:
    """Yields each ConfigMap in the text of manifests, with the YAML node that defines it."""
    try:
        documents = compose_all(text)
    except YamlError:
        return
    for composed in documents:
        root = composed.root
        if root is None or _text(root, "kind") != "ConfigMap":
            continue
        metadata = _field(root, "metadata")
        yield (
            root,
            ConfigMap(
                namespace=_text(metadata, "namespace") or "yunikorn",
                name=_text(metadata, "name"),
                resource_version="",
                data=_texts(_field(root, "data")),
                binary_data=_texts(_field(root, "binaryData")),
            ),
        )


def _field(node: YamlNode | None, name: str) -> YamlNode | None:
    if node is None or node.kind is not MAPPING:
        return None
    keys, values = node.items[::2], node.items[1::2]
    value = next((v for key, v in zip(keys, values, strict=True) if key.value == name), None)
    return value.target or value if value is not None else None


def _text(node: YamlNode | None, name: str) -> str:
    value = _field(node, name)
    return value.value if value is not None and value.kind is SCALAR else ""


def _texts(node: YamlNode | None) -> dict[str, str]:
    if node is None or node.kind is not MAPPING:
        return {}
    return {key.value: _text(node, key.value) for key in node.items[::2]}


def _moved(judgement: DocumentCheck, manifest: YamlNode, source: SourceDocument) -> DocumentCheck:
    """Returns the check with line numbers of the manifest that contains the document. If the
    document is a YAML block, it begins one line after the `|`."""
    kept = _field(_field(manifest, "binaryData" if source.is_gzip else "data"), source.key)
    if kept is None:
        return judgement
    is_block = kept.style == "|"

    def move(violation: RuleViolation) -> RuleViolation:
        line = kept.line + violation.line if is_block else kept.line
        moved: RuleViolation = msgspec.structs.replace(violation, line=line)
        return moved

    moved: DocumentCheck = msgspec.structs.replace(
        judgement,
        violations=tuple(map(move, judgement.violations)),
        advice=tuple(map(move, judgement.advice)),
    )
    return moved
