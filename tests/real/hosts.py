"""Hosts for dnm: network namespaces that reach the API server over a virtual link."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.real.rig import HOST_ADDRESSES, PORT

COUNT = len(HOST_ADDRESSES)


def ip(*arguments: str, inside: str = "") -> None:
    enter = ["nsenter", "-t", inside, "-n"] if inside else []
    subprocess.run([*enter, "ip", *arguments], check=True, capture_output=True)


@contextmanager
def host(number: int) -> Iterator[tuple[list[str], str]]:
    """Yields the prefix that runs a command on a host, and the API server's address from there."""
    server = HOST_ADDRESSES[number]
    own = server.rpartition(".")[0] + ".2"
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    inside = str(holder.pid)
    near, far = f"host{number}", "wire"
    try:
        wait_for_namespace(inside)
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", inside)
        ip("address", "add", f"{server}/24", "dev", near)
        ip("link", "set", near, "up")
        ip("link", "set", "lo", "up", inside=inside)
        ip("address", "add", f"{own}/24", "dev", far, inside=inside)
        ip("link", "set", far, "up", inside=inside)
        yield ["nsenter", "-t", inside, "-n", "--"], f"https://{server}:{PORT}"
    finally:
        holder.kill()
        holder.wait()


def wait_for_namespace(pid: str) -> None:
    """Waits until the namespace exists: `unshare` has then executed `sleep`."""
    while True:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            if file.read().strip() == "sleep":
                return
