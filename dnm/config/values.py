"""One configuration value at a time: text -> value. Pure; every refusal is a ValueError whose
sentence says what is wrong and what would be right.

Names are held to the alphabet of whoever reads them in the end, because they reach command lines,
API paths and annotations: RFC 1123 and the label grammar for Kubernetes, Slurm's for its own, and
`^[a-zA-Z0-9_:#/@-]{1,64}$` for a YuniKorn queue (configvalidator.go, 1.6 to 1.9).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from urllib.parse import urlsplit

from dnm.calendar.windows import zone_named
from dnm.model.config import Floor, Taint, fill_namespace
from dnm.model.errors import DnmError
from dnm.model.hostlist import expand_hostlist
from dnm.model.quantity import parse_kubernetes, parse_span, parse_yunikorn

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_SLURM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SLURM_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=/@+-]{0,127}")
_NODE_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61})")
_QUEUE_NAME = re.compile(r"[a-z0-9_:#/@-]{1,64}")
_URL = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?(/[A-Za-z0-9._~/-]*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+ -]{0,254}[$]?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


def suggest(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the closest known word, or nothing."""
    import difflib  # 5 ms that only a wrong file has to pay

    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word[:100].lower(), folded, n=1, cutoff=0.6)
    return f", did you mean '{folded[close[0]]}'?" if close else ""


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A parser of decimal integers from `least` to `most`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise ValueError(f"is not a whole number; write one from {least} to {most}")
        if not least <= int(text) <= most:
            raise ValueError(f"is out of range; write a number from {least} to {most}")
        return int(text)

    return parse


def seconds(least: float, most: int) -> Callable[[str], timedelta]:
    """A parser of durations: seconds, with a fraction where somebody likes one, or 90m, 2h, 1d."""

    def parse(text: str) -> timedelta:
        span = parse_span(text, "s")
        if span is None:
            raise ValueError(
                f"is no duration; write seconds from {least:g} to {most}, or e.g. 90m, 2h, 1d"
            )
        if not least <= span.total_seconds() <= most:
            raise ValueError(f"is out of range; write seconds from {least:g} to {most}")
        return span

    return parse


def minutes(least: int, most: int) -> Callable[[str], timedelta]:
    """A parser of durations in whole minutes."""

    def parse(text: str) -> timedelta:
        return timedelta(minutes=whole_number(least, most)(text))

    return parse


def hours(least: int, most: int) -> Callable[[str], timedelta]:
    """A parser of durations in whole hours."""

    def parse(text: str) -> timedelta:
        return timedelta(hours=whole_number(least, most)(text))

    return parse


def amount(least: int, most: int) -> Callable[[str], float]:
    """A parser of numbers from `least` to `most`, with a fraction where somebody likes one."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text):
            raise ValueError(f"is no number; write one from {least} to {most}")
        if not least <= float(text) <= most:
            raise ValueError(f"is out of range; write a number from {least} to {most}")
        return float(text)

    return parse


def days(least: int, most: int) -> Callable[[str], timedelta]:
    """A parser of durations in whole days, with or without the d."""

    def parse(text: str) -> timedelta:
        return timedelta(days=whole_number(least, most)(text.removesuffix("d")))

    return parse


def share(text: str) -> float:
    """More than 0, at most 1."""
    _refuse_percentage(text)
    if not re.fullmatch(r"[0-9]{0,3}(\.[0-9]{1,9})?", text) or not text:
        raise ValueError("is not a share; write a number above 0 and up to 1, e.g. 0.95")
    if not 0 < float(text) <= 1:
        raise ValueError("is out of range; write a number above 0 and up to 1, e.g. 0.95")
    return float(text)


def _refuse_percentage(text: str) -> None:
    if percent := re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,7})?) ?%{1,2}", text):
        raise ValueError(f"is a percentage; write {float(percent[1]) / 100:g}")


def floor(text: str) -> Floor:
    """A number of nodes, or a percentage of them."""
    if re.fullmatch(r"[0-9]{1,6}", text):
        return Floor(nodes=int(text))
    percent = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%{1,2}", text)
    if percent is None or float(percent[1]) > 100:
        raise ValueError("is no floor; write a number of nodes, e.g. 10, or a percentage, e.g. 5%")
    return Floor(percent=float(percent[1]))


def partition_name(text: str) -> str:
    """A partition's name, as slurm.conf may have it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", text):
        raise ValueError("is no name of a partition; write it as in slurm.conf")
    return text


def partition_names(text: str) -> tuple[str, ...]:
    return tuple(map(partition_name, names(text)))


def feature_names(text: str) -> tuple[str, ...]:
    """Features of nodes, as slurm.conf may have them."""
    return _slurm_words(text, "a feature", "slurm.conf")


def reservation_names(text: str) -> tuple[str, ...]:
    return _slurm_words(text, "a reservation", "`scontrol show reservation`")


def _slurm_words(text: str, what: str, where: str) -> tuple[str, ...]:
    found = names(text)
    for name in found:
        if not _SLURM_WORD.fullmatch(name):
            raise ValueError(f"names {name}, which is no name of {what}; write it as in {where}")
    return found


def host_list(text: str) -> frozenset[str]:
    """Nodes by name, in Slurm's host lists: `a[001-004], b007`."""
    try:
        found = expand_hostlist(re.sub(r"\s*[,\n]\s*", ",", text).strip(","))
    except DnmError as error:
        raise ValueError(f"is no list of nodes: {error}; write e.g. a[001-004],b007") from error
    if text.strip(" ,\n") and not found:
        raise ValueError(
            f"names no node: {text.strip()!r}; leave it empty, or write a[001-004],b007"
        )
    return frozenset(found)


def time_zone(text: str) -> str:
    """The name of a time zone, as the IANA has it and this host knows it."""
    zone_named(text)
    return text


def boolean(text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("is neither true nor false; write true or false")


def booked_ahead(text: str) -> timedelta:
    """So many days ahead; `true`: seven, `false` or 0: not at all."""
    if text.lower() in _FALSE or text == "0":
        return timedelta()
    try:
        return timedelta(days=7) if text.lower() in TRUE else days(2, 365)(text)
    except ValueError as error:
        raise ValueError("is no number of days; write true for seven, or 2 to 365") from error


def quantity(resource: str) -> Callable[[str], int]:
    """A parser of positive amounts, in Kubernetes' or YuniKorn's grammar and model.py's units."""

    def parse(text: str) -> int:
        for grammar in (parse_kubernetes, parse_yunikorn):
            try:
                amount = grammar(resource, text)
            except (ValueError, DnmError):
                continue
            if amount > 0:
                return amount
            raise ValueError("is not more than nothing; write how much there is")
        example = {"vcore": "128 or 127500m", "memory": "256G or 251Gi"}.get(resource, "4")
        raise ValueError(f"is not a quantity; write e.g. {example}")

    return parse


def names(text: str) -> tuple[str, ...]:
    """A list split at commas and line ends; empty entries fall out, repeated ones are refused."""
    entries = tuple(entry.strip() for entry in re.split(r"[,\n]", text) if entry.strip())
    seen: set[str] = set()
    for entry in entries:
        if entry in seen:
            raise ValueError(f"names {entry} more than once; name it once")
        seen.add(entry)
    return entries


def variable_names(text: str) -> tuple[str, ...]:
    """Of the environment, as POSIX names them."""
    found = names(text)
    for name in found:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(
                f"'{name}' is not the name of a variable; write letters, digits and '_', "
                "beginning with a letter or '_', e.g. RACADM_PASS, and no value"
            )
    return found


def group_name(text: str) -> str:
    """Of a group of this host; whether there is one of this name is looked up later."""
    if not _GROUP.fullmatch(text):
        raise ValueError("is not the name of a group; write e.g. hpcadmin")
    return text


def namespace(text: str) -> str:
    if not _DNS_LABEL.fullmatch(text):
        raise ValueError(
            f"'{text}' is not a namespace name; RFC 1123 allows up to 63 of a-z, 0-9 and '-', "
            "with a letter or digit at both ends"
        )
    return text


def state_place(text: str) -> str:
    if text not in ("file", "kubernetes"):
        raise ValueError("is no place for the registry; write file or kubernetes")
    return text


def namespaces(text: str) -> tuple[str, ...]:
    found = names(text)
    if not found:
        raise ValueError("is empty; name the namespaces that may be given nodes, e.g. dev, test")
    _want_commas(found)
    return tuple(namespace(name) for name in found)


def object_name(text: str) -> str:
    """The name of a Kubernetes object, e.g. a ConfigMap."""
    if len(text) > 253 or not _DNS_SUBDOMAIN.fullmatch(text):
        raise ValueError(
            "is not the name of a Kubernetes object; RFC 1123 allows a-z, 0-9, '-' and '.', "
            "with a letter or digit at both ends"
        )
    return text


def label_value(text: str) -> str:
    """What stands in annotations and labels and in Slurm's reason of a drain."""
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueError(
            "is not usable as a name; write up to 63 letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
    return text


def label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    is_prefix = len(prefix) <= 253 and bool(_DNS_SUBDOMAIN.fullmatch(prefix))
    if not _LABEL_VALUE.fullmatch(name) or (slash and not is_prefix):
        raise ValueError(f"'{text}' is not a label key; write e.g. example.org/name")
    return text


def request_id(text: str) -> str:
    """What dnm calls a call of its converter: the id of a request, or the name of a node."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text):
        raise ValueError("is no request of dnm's; leave DNM_REQUEST unset")
    return text


def slurm_name(text: str) -> str:
    """Of a reservation: it reaches a command line and a comma-separated list."""
    if text and not _SLURM_NAME.fullmatch(text):
        raise ValueError(
            "is not a name that Slurm takes; write up to 64 letters, digits, '-', '_' and '.', "
            "beginning with a letter or digit"
        )
    return text


def charged_account(text: str) -> str:
    """Of Slurm's accounts, which it writes in lower case; or - for none."""
    return text if text == "-" else slurm_name(text).lower()


def slurm_reason(text: str) -> str:
    """One line: Slurm's Reason is cut off where a bracket opens."""
    if not text.isprintable() or "[" in text or len(text) > 200:
        raise ValueError("is no reason for Slurm; write one line of up to 200 characters without [")
    return text


def account_name(text: str) -> str:
    """Of a user or an account of Slurm."""
    if text and (len(text) > 64 or not text.replace("-", "").replace("_", "").isalnum()):
        raise ValueError("is not the name of a user or account")
    return text


def preempt_mode(text: str) -> str:
    if text not in ("requeue", "cancel"):
        raise ValueError("is neither requeue nor cancel; write requeue to let the jobs run again")
    return text


def slurmrestd_url(text: str) -> str:
    """Without a name and password in it: it is logged."""
    is_socket = text.startswith("unix:/") and len(text) > len("unix:/")
    if text and not is_socket and not (_URL.fullmatch(text) and _has_usable_host(text)):
        raise ValueError(
            "is not the address of slurmrestd; write e.g. http://127.0.0.1:6820 or "
            "unix:/run/slurmrestd/slurmrestd.sock, without user name, password or query"
        )
    if text.startswith("http://") and not _HTTP_HERE.match(text):
        raise ValueError(
            "would send the token over the network as it is; write https://… where slurmrestd "
            "stands behind TLS, or let it listen on this host"
        )
    return text.rstrip("/")


_HTTP_HERE = re.compile(r"http://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)")


def search_domain(text: str) -> str:
    """Of the nodes' names in DNS, without dots at its ends."""
    return object_name(text.strip(".")) if text else ""


def node_type_name(text: str) -> str:
    """It begins the names of its nodes, which are the same in Slurm and in Kubernetes."""
    if len(text) > 63 or not _DNS_SUBDOMAIN.fullmatch(text):
        raise ValueError(
            f"'{text}' is not a node type; write a-z, 0-9, '-' and '.', "
            "with a letter or digit at both ends, e.g. a"
        )
    return text


def node_type_names(text: str) -> tuple[str, ...]:
    """In order of preference."""
    found = names(text)
    if not found:
        raise ValueError("is empty; name a node type, e.g. a")
    _want_commas(found)
    return tuple(node_type_name(name) for name in found)


def _want_commas(entries: tuple[str, ...]) -> None:
    if any(len(entry.split()) > 1 for entry in entries):
        words = [word for entry in entries for word in entry.split()]
        raise ValueError(f"has names without a comma between them; write {', '.join(words)}")


def node_prefix(text: str) -> str:
    """Of node names, followed by digits: RFC 1123, but it may end in '-' or '.'."""
    if not _NODE_PREFIX.fullmatch(text):
        raise ValueError(
            f"'{text}' is not the beginning of a Kubernetes node name; "
            "write a-z, 0-9, '-' and '.', e.g. gpu-"
        )
    return text


def queue_path(text: str) -> str:
    """Lower case, from root: YuniKorn itself folds the case, and a path may leave root out."""
    path = text.strip().lower()
    path = path if path == "root" or path.startswith("root.") else f"root.{path}"
    for name in path.split("."):
        if not _QUEUE_NAME.fullmatch(name):
            raise ValueError(
                f"'{text}' is not a queue path; write names of up to 64 letters, digits and "
                "_:#/@- with dots between them, e.g. root.services.dev"
            )
    return path


def queue_prefixes(text: str) -> tuple[str, ...]:
    return tuple(queue_path(name) for name in names(text))


def url(text: str) -> str:
    """Without a name and password in it: it is logged."""
    if text and not (_URL.fullmatch(text) and _has_usable_host(text)):
        raise ValueError(
            "is not the address of YuniKorn's REST service; write e.g. "
            "http://yunikorn-service.yunikorn:9080, without user name, password or query"
        )
    return text.rstrip("/")


def _has_usable_host(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.port != 0 and bool(parts.hostname)
    except ValueError:
        return False


def labels(text: str) -> dict[str, str]:
    """`key=value, key=value`; `{namespace}` may stand in both."""
    found: dict[str, str] = {}
    for entry in names(text):
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not equals:
            raise ValueError(f"'{entry}' is not a label; write key=value, key=value")
        if key in found:
            raise ValueError(f"gives the label {key} two values; give it one")
        _check_template(key, value)
        found[key] = value
    return found


def one_label(text: str) -> tuple[str, str]:
    """`key=value`."""
    if len(found := labels(text)) != 1 or "{" in text:
        raise ValueError("is not one label; write key=value")
    return next(iter(found.items()))


def taints(text: str) -> tuple[Taint, ...]:
    """`key=value:NoSchedule, key:NoExecute`; `{namespace}` may stand in key and value."""
    found: list[Taint] = []
    for entry in names(text):
        pair, colon, effect = (part.strip() for part in entry.rpartition(":"))
        if not colon or effect not in _EFFECTS:
            hint = suggest(effect, _EFFECTS) if colon else ""
            raise ValueError(
                f"'{entry}' is not a taint{hint or ';'} write key=value:EFFECT "
                f"with EFFECT one of {', '.join(_EFFECTS)}"
            )
        key, _, value = (part.strip() for part in pair.partition("="))
        if any((taint.key, taint.effect) == (key, effect) for taint in found):
            raise ValueError(f"gives the taint {key} twice with the effect {effect}; give it once")
        _check_template(key, value)
        found.append(Taint(key=key, value=value, effect=effect))
    return tuple(found)


def _check_template(key: str, value: str) -> None:
    """A namespace is a valid name at any place of a key or a value, so a short one stands in."""
    label_key(fill_namespace(key, "x"))
    if value and not _LABEL_VALUE.fullmatch(fill_namespace(value, "x")):
        raise ValueError(
            f"'{value}' is not a label value; write up to 63 letters, digits, '-', '_' and '.', "
            "with a letter or digit at both ends"
        )
