"""Parsers of names, labels and addresses, one value at a time, like `values.py`.

Each value must fit the grammar of the program that reads it last, because it reaches command lines,
API paths and annotations: RFC 1123 and the label grammar of Kubernetes, and Slurm's grammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from dnm.calendar.windows import zone_named
from dnm.config import values
from dnm.config.values import names, some_names, suggest
from dnm.model.errors import DnmError
from dnm.model.hostlist_parser import expand_hostlist
from dnm.model.node_type import Taint, fill_namespace

_DNS_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_VALUE = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_SLURM_WORD = r"[A-Za-z0-9][A-Za-z0-9._:=/@+-]{0,127}"
_URL = r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?"
_ENDS = "with a letter or digit at both ends"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _matching(
    pattern: str, wrong: str, most: int = 10_000, may_be_empty: bool = False
) -> Callable[[str], str]:
    """Returns a parser of texts that match the pattern. `{}` in its error `wrong` is the text."""

    def parse(text: str) -> str:
        is_valid = len(text) <= most and re.fullmatch(pattern, text)
        if not is_valid and (text or not may_be_empty):
            raise ValueError(wrong.format(text))
        return text

    return parse


partition_name = _matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", "is not the name of a partition; write it as in slurm.conf"
)
object_name = _matching(
    _DNS_SUBDOMAIN,
    f"is not the name of a Kubernetes object; RFC 1123 allows a-z, 0-9, '-' and '.', {_ENDS}",
    most=253,
)
# For annotations, labels and Slurm's reason of a drain.
label_value = _matching(
    _LABEL_VALUE,
    f"is not usable as a name; write up to 63 letters, digits, '-', '_' and '.', {_ENDS}",
)
# The key of a converter call: the id of a request, or the name of a node.
request_id = _matching(r"[A-Za-z0-9._-]{1,253}", "is not a request of dnm; leave DNM_REQUEST unset")
# For a reservation, in a command line and a comma-separated list.
slurm_name = _matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    "is not a name that Slurm accepts; write up to 64 letters, digits, '-', '_' and '.', "
    "beginning with a letter or digit",
    may_be_empty=True,
)
account_name = _matching(
    r"[-.\w]*[^\W_][-.\w]*", "is not a name in Slurm; write letters, digits, . _ -", 64, True
)
preempt_mode = _matching(
    "requeue|cancel",
    "is neither requeue nor cancel; write requeue to let the jobs run again",
)
_variable_name = _matching(
    r"[A-Za-z_][A-Za-z0-9_]{0,254}",
    "'{}' is not the name of a variable; write letters, digits and '_', beginning with a letter or "
    "'_', e.g. RACADM_PASS, and no value",
)
# The beginning of the names of its nodes, which are the same in Slurm and in Kubernetes.
node_type_name = _matching(
    _DNS_SUBDOMAIN, f"'{{}}' is not a node type; write a-z, 0-9, '-' and '.', {_ENDS}, e.g. a", 63
)
# For node names, before the digits: RFC 1123, but it may end in '-' or '.'.
node_prefix = _matching(
    r"[a-z0-9]([a-z0-9.-]{0,61})",
    "'{}' is not the beginning of a Kubernetes node name; write a-z, 0-9, '-' and '.', e.g. gpu-",
)


def exclusions(text: str) -> dict[str, object]:
    """Returns the exclusions in the text: the nodes in a host list of Slurm, and the names that
    follow the words `partition`, `feature` and `reservation`."""
    words: dict[str, list[str]] = {"partition": [], "feature": [], "reservation": []}

    def take(match: re.Match[str]) -> str:
        kind, name = match[1], match[2].strip()
        if not re.fullmatch(_SLURM_WORD, name):
            raise ValueError(f"names {name}, which is not a {kind}; write it as Slurm does")
        words[kind].append(name)
        return ""

    rest = re.sub(rf"(?:^|(?<=[,\n]))\s*({'|'.join(words)})\s+([^,\n]+)", take, text)
    nodes = host_list(rest) if rest.strip(" ,\n") else frozenset()
    if nameless := sorted(nodes & words.keys()):  # as a node's name it would exclude nothing
        raise ValueError(f"does not name a {nameless[0]}; write {nameless[0]} NAME")
    return {"exclude_nodes": nodes, **{f"exclude_{kind}s": tuple(dict.fromkeys(entries))
                                       for kind, entries in words.items()}}  # fmt: skip


def host_list(text: str) -> frozenset[str]:
    """Returns the nodes in one or more host lists of Slurm, e.g. `a[001-004], b007`."""
    try:
        nodes = expand_hostlist(re.sub(r"(\s*[,\n]\s*)+", ",", text).strip(","))
    except DnmError as error:
        raise ValueError(f"is not a list of nodes: {error}; write e.g. a[001-004],b007") from error
    if text.strip(" ,\n") and not nodes:
        raise ValueError(
            f"names no node: {text.strip()!r}; leave it empty, or write a[001-004],b007"
        )
    return frozenset(nodes)


def time_zone(text: str) -> str:
    """Returns the text if this host's IANA database has a time zone with that name."""
    zone_named(text)
    return text


def variable_names(text: str) -> tuple[str, ...]:
    """Returns the names of environment variables in the text. They must fit POSIX's grammar."""
    return tuple(map(_variable_name, names(text)))


def registry_place(text: str) -> dict[str, str]:
    """Returns the place of the registry: `file`, or `kubernetes` with its namespace."""
    place, _, namespace = text.partition(" ")
    if place not in ("file", "kubernetes") or (namespace and place == "file"):
        raise ValueError("is not a place for the registry; write file, or kubernetes NAMESPACE")
    if not namespace:
        return {"registry_storage": place}
    return {"registry_storage": place, "registry_namespace": values.namespace(namespace.strip())}


def label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    is_prefix = len(prefix) <= 253 and bool(re.fullmatch(_DNS_SUBDOMAIN, prefix))
    if not re.fullmatch(_LABEL_VALUE, name) or (slash and not is_prefix):
        raise ValueError(f"'{text}' is not a label key; write e.g. example.org/name")
    return text


def charged_account(text: str) -> str:
    """Returns the name of a Slurm account in lower case, as Slurm writes it, or `-` for none."""
    return text if text == "-" else slurm_name(text).lower()


def slurm_reason(text: str) -> str:
    """Returns the text if it is one line without `[`, at which Slurm cuts a Reason."""
    if not text.isprintable() or "[" in text or len(text) > 200:
        raise ValueError("is not a reason; write one line of up to 200 characters without [")
    return text


def preemption(text: str) -> dict[str, bool]:
    """Returns whether jobs may be preempted, from `false`, `true`, or `USER/ACCOUNT`."""
    return {"allow_preempt": bool(preempted_jobs(text)) or values.boolean(text)}


def preempted_jobs(text: str) -> dict[str, str]:
    """Returns the user and account in `USER/ACCOUNT`; their jobs may be preempted."""
    user, slash, account = text.partition("/")
    if not slash:
        values.boolean(text)
        return {}
    if not (user and account):
        raise ValueError("is not a user with an account; write false or USER/ACCOUNT")
    return {"preempt_user": account_name(user), "preempt_account": account_name(account)}


def slurmrestd_url(text: str) -> str:
    """Returns the address of slurmrestd. Refuses a name or password in it, since it is logged."""
    if not (text.startswith("unix:/") and len(text) > len("unix:/")):
        here = "http://127.0.0.1:6820 or unix:/run/slurmrestd/slurmrestd.sock"
        _check_address(text, "slurmrestd", here)
    if text.startswith("http://") and not re.match(_HTTP_HERE, text):
        raise ValueError(
            "would send the token unencrypted over the network; write https://… if slurmrestd "
            "is behind TLS, or let it listen on this host"
        )
    return text.rstrip("/")


_HTTP_HERE = r"http://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)"


def search_domain(text: str) -> str:
    """Returns the DNS domain of the nodes, without dots at the ends of the text."""
    return object_name(text.strip(".")) if text else ""


def node_type_names(text: str) -> tuple[str, ...]:
    """Returns the node types in the text, the preferred type first."""
    return tuple(map(node_type_name, some_names(text, "a node type, e.g. a")))


def address(of: str, example: str) -> Callable[[str], str]:
    """Returns a parser of the address of a service. It refuses a name or password in the address,
    since that is logged."""

    def parse(text: str) -> str:
        _check_address(text, of, example)
        return text.rstrip("/")

    return parse


def _check_address(text: str, of: str, example: str) -> None:
    if text and not (re.fullmatch(_URL, text) and _has_usable_host(text)):
        raise ValueError(
            f"is not the address of {of}; write e.g. {example}, without user name, password or "
            "query"
        )


def _has_usable_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.port != 0 and bool(parts.hostname)
    except ValueError:
        return False


def labels(text: str) -> dict[str, str]:
    """Returns the labels in `key=value, key=value`. Keys and values may contain `{namespace}`."""
    by_key: dict[str, str] = {}
    for entry in names(text):
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not equals:
            raise ValueError(f"'{entry}' is not a label; write key=value, key=value")
        if key in by_key:
            raise ValueError(f"gives the label {key} two values; give it one")
        _check_template(key, value)
        by_key[key] = value
    return by_key


def single_label(text: str) -> tuple[str, str]:
    """Returns the key and the value of the only label in the text, `key=value`."""
    if len(parsed := labels(text)) != 1 or "{" in text:
        raise ValueError("is not one label; write key=value")
    return next(iter(parsed.items()))


def taints(text: str) -> tuple[Taint, ...]:
    """Returns the taints in e.g. `a=b:NoSchedule, c:NoExecute`. They may contain `{namespace}`."""
    parsed: list[Taint] = []
    for entry in names(text):
        pair, colon, effect = (part.strip() for part in entry.rpartition(":"))
        if not colon or effect not in _EFFECTS:
            hint = suggest(effect, _EFFECTS) if colon else ""
            raise ValueError(
                f"'{entry}' is not a taint{hint or ';'} write key=value:EFFECT "
                f"with EFFECT one of {', '.join(_EFFECTS)}"
            )
        key, _, value = (part.strip() for part in pair.partition("="))
        if any((taint.key, taint.effect) == (key, effect) for taint in parsed):
            raise ValueError(f"gives the taint {key} twice with the effect {effect}; give it once")
        _check_template(key, value)
        parsed.append(Taint(key=key, value=value, effect=effect))
    return tuple(parsed)


def _check_template(key: str, value: str) -> None:
    """Checks key and value, with namespace `x`, since any namespace's name is valid there."""
    label_key(fill_namespace(key, "x"))
    if value and not re.fullmatch(_LABEL_VALUE, fill_namespace(value, "x")):
        write = f"write up to 63 letters, digits, '-', '_' and '.', {_ENDS}"
        raise ValueError(f"'{value}' is not a label value; {write}")
