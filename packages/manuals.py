"""The text of the manual pages. help2man makes a command's page from its help, with examples from
the documentation, the README's exit codes, and files. The configuration has a page of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packages.reference import GROUPS, HEAD, default_of

ROOT = Path(__file__).parent.parent
MOST_EXAMPLES = 5
FILES = (
    ("/etc/dynamic-node/dynamic_node_config.ini", "the configuration, dynamic_node_config.ini(5)"),
    ("/etc/dynamic-node/namespace_queue_paths.json", "which namespace uses which queue"),
    ("/var/lib/dynamic-node/", "the record of what is lent, its lock, the history"),
    ("/usr/share/dnm/docs/", "the pages; production.md is the first one"),
)


def included(words: tuple[str, ...], summary: str) -> str:
    """Returns the sections that help2man adds to the page of a command."""
    examples = examples_of(words)
    shown = "".join(
        f".PP\n{_plain(why)}\n.PP\n.RS\n{_plain(line)}\n.RE\n" for line, why in examples
    )
    codes = "".join(f".TP\n{_plain(code)}\n{_plain(what)}\n" for code, what in exit_codes())
    files = "".join(f".TP\n.I {_plain(path)}\n{_plain(what)}\n" for path, what in FILES)
    return (
        f"[NAME]\n{'-'.join(words)} \\- {summary}\n\n"
        + (f"[EXAMPLES]\n{shown}\n" if examples else "")
        + f"[EXIT STATUS]\n{codes}\n[FILES]\n{files}\n"
        "[SEE ALSO]\n.BR dnm (8),\n.BR node-convert (8),\n.BR dynamic_node_config.ini (5)\n"
    )


def examples_of(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns (command line, its comment) of examples in the documentation, which the tests run."""
    found: dict[str, str] = {}
    pages = [page.read_text() for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]]
    blocks = [
        item for page in pages for item in re.findall(r"^```sh\n(.*?)^```", page, re.S | re.M)
    ]
    inline = [item for page in pages for item in re.findall(r"(?<!`)`(dnm [^`\n]+)`(?!`)", page)]
    # A verb that is only named is no example of it.
    inline = [
        item for item in inline if len(item.split()) > len(words) and "-" not in item.split()[-1]
    ]
    for line in [*(line for block in blocks for line in block.splitlines()), *inline]:
        command, _, why = line.partition("  #")
        is_complete = not re.search(r"[][|…]|\b[A-Z]{2,}\b", command)
        if is_complete and command.split()[: len(words)] == list(words):
            found.setdefault(command.strip(), why.strip())
    return list(found.items())[:MOST_EXAMPLES]


def exit_codes() -> list[tuple[str, str]]:
    """Returns the pairs of exit code and meaning in the README."""
    text = (ROOT / "README.md").read_text()
    (told,) = re.findall(r"\*\*Exit codes\.\*\* (.*?)\.?\n\n", text, re.S)
    parts = [part.split(None, 1) for part in " ".join(told.split()).split("; ")]
    return [(code, meaning) for code, meaning in parts]


def configuration_page(version: str) -> str:
    """Returns the page dynamic_node_config.ini(5), with the texts of docs/configuration.md."""
    files = "".join(f".TP\n.I {_plain(path)}\n{_plain(what)}\n" for path, what in FILES)
    about = "".join(f".PP\n{_text(part)}\n" for part in "\n".join(HEAD).split("\n\n"))
    return (
        f'.TH DYNAMIC_NODE_CONFIG.INI 5 "" "dnm {version}" "Dynamic Node Manager"\n'
        ".SH NAME\ndynamic_node_config.ini \\- the configuration of dnm\n"
        f".SH DESCRIPTION\n{about}{''.join(_groups())}"
        ".SH EXAMPLES\n.nf\n[settings]\nmonitored_namespaces = dev\n.fi\n"
        f".SH FILES\n{files}.SH SEE ALSO\n.BR dnm (8),\n.BR dnm-check (8)\n"
    )


def _groups() -> Iterator[str]:
    for group in GROUPS:
        yield f".SS {_plain(group.title)}\n.B {_plain(group.section)}\n{_text(group.about)}\n"
        for row in group.rows:
            default = _plain(default_of(group.section, row.key))
            yield f".TP\n\\fB{_plain(row.key)}\\fR = {default}\n{_text(row.about)}.\n"
            yield f"When to change it: {_text(row.change)}.\n"


def _text(markdown: str) -> str:
    """Returns Markdown as text for troff, without links and quotes, in one line."""
    words = " ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", markdown).replace("`", "").split())
    return _plain(words)


def _plain(text: str) -> str:
    """Returns the text with escapes, so that troff prints it as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{text}" if text[:1] in (".", "'") else text
