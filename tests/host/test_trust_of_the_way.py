"""Tests that dnm trusts a file only if root or its own user owns every part of the path to it."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dnm.host.trust import check_trust
from dnm.model.errors import ConfigError, ConverterError

SOMEBODY = 65534

WAYS = [
    pytest.param(lambda top: None, "", id="as it should be"),
    pytest.param(lambda top: (top / "a").chmod(0o777), "directory .*/a on the path", id="world"),
    pytest.param(lambda top: (top / "a").chmod(0o770), "group id", id="group"),
    pytest.param(lambda top: (top / "a").chmod(0o1777), "", id="sticky"),
    pytest.param(lambda top: (top / "a/b").chmod(0o777), "directory .*/b on the path", id="parent"),
    pytest.param(
        lambda top: os.chown(top / "a", SOMEBODY, 0), "belongs to user id 65534", id="another's"
    ),
    pytest.param(lambda top: (top / "a/b/file").chmod(0o666), "file .*written by", id="the file"),
]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True, mode=0o755)
    (tmp_path / "a" / "b" / "file").write_text("x")
    return tmp_path


@pytest.mark.parametrize(("spoil", "why"), WAYS)
def test_each_directory_of_a_path_is_checked(
    top: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(top)
    file = top / "a" / "b" / "file"
    if not why:
        check_trust(file)
        return
    with pytest.raises(ConfigError, match=why) as refusal:
        check_trust(file)
    assert "run 'ch" in str(refusal.value)


def test_target_directories_of_a_link_are_checked(top: Path) -> None:
    (top / "clean").mkdir()
    link = top / "clean" / "link"
    link.symlink_to("../a/b/file")
    check_trust(link)
    (top / "a").chmod(0o777)
    with pytest.raises(
        ConfigError, match=r"/a on the path to .*/link can be written by every user"
    ):
        check_trust(link)


def test_link_of_another_owner_is_not_followed(top: Path) -> None:
    shared = top / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    link.symlink_to(top / "a" / "b" / "file")
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(ConfigError, match=r"the link .*/link on the path .* user id 65534"):
        check_trust(link)


def test_circular_links_are_a_system_error(top: Path) -> None:
    (top / "one").symlink_to("two")
    (top / "two").symlink_to("one")
    with pytest.raises(OSError):
        check_trust(top / "one" / "x")


def test_swapped_directory_between_check_and_use_is_detected(top: Path) -> None:
    """Another user swaps directories as fast as possible. At any moment dnm sees a directory of
    that user on the path, because the swapped ones are in a writable directory."""
    open_to_all = top / "open"
    open_to_all.mkdir()
    (open_to_all / "tools").mkdir()
    (open_to_all / "tools" / "node-convert").write_text("ours")
    (open_to_all / "his").mkdir()
    (open_to_all / "his" / "node-convert").write_text("his")
    os.chmod(open_to_all, 0o777)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(open_to_all / "tools", open_to_all / "kept")
            os.rename(open_to_all / "his", open_to_all / "tools")
            os.rename(open_to_all / "tools", open_to_all / "his")
            os.rename(open_to_all / "kept", open_to_all / "tools")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            with pytest.raises((ConverterError, FileNotFoundError)):
                check_trust(open_to_all / "tools" / "node-convert", ConverterError)
    finally:
        stop.set()
        thread.join()


def test_system_paths_of_this_machine_are_trusted() -> None:
    """If dnm distrusted /usr or /etc, no package could install files there."""
    for place in ("/etc", "/usr/sbin", "/var/lib"):
        if stat.S_ISDIR(os.stat(place).st_mode):
            check_trust(Path(place))
