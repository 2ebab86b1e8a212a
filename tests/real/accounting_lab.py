"""A real Slurm with accounting: slurmdbd and MariaDB from Debian's packages, unpacked beside the
installed Slurm. To let hours pass, tests move the entries in its tables back, and slurmdbd rolls
them up when it starts again."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

from tests.real.build import cache
from tests.real_slurm import SlurmLab, _free_ports

PACKAGES = (
    "slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server-core", "mariadb-client-core",
    "libmariadb3", "liburing2", "libaio1",
)  # fmt: skip
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_DATABASE = """\
[mysqld]
datadir={here}/db
socket={here}/db.sock
port={database}
bind-address=127.0.0.1
pid-file={here}/db.pid
lc-messages-dir={root}/usr/share/mysql
character-sets-dir={root}/usr/share/mysql/charsets
innodb_buffer_pool_size=32M
innodb_use_native_aio=0
user=root
plugin-dir={here}/empty
"""
_SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={lab}/run/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StoragePass=x
StorageLoc=acct
PluginDir={here}/plugins
LogFile={here}/slurmdbd.log
PidFile={here}/slurmdbd.pid
"""
_MORE = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={lab}/run/munge.sock
AccountingStorageEnforce=associations
"""


def unpacked() -> Path:
    """Unpacks the packages once and returns the directory."""
    root = cache() / "slurmdbd-bookworm"
    with FileLock(f"{root}.lock"):
        if not root.exists():
            new = root.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=new, check=True)
            for package in new.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, new], check=True)
                package.unlink()
            new.rename(root)
    return root


class AccountingLab(SlurmLab):
    """A real Slurm with its own slurmdbd, and with the Slurm accounts `root` and `accounts`."""

    def __init__(self, directory: Path, nodes: Sequence[str], accounts: Sequence[str]) -> None:
        self.port, self.database = _free_ports(2)
        super().__init__(directory, nodes, _MORE.format(port=self.port, lab=directory))
        self.root, self.here, self.accounts = unpacked(), directory / "books", accounts
        self._slurmdbd: subprocess.Popen[bytes] | None = None
        self._database: subprocess.Popen[bytes] | None = None

    def _own(self) -> dict[str, str]:
        return {**self.environ, "LD_LIBRARY_PATH": str(self.root / _LIBRARIES)}

    def _start_munged(self) -> None:
        """Starts munged, the database and slurmdbd, which slurmctld needs at its start."""
        super()._start_munged()
        for name in ("db/mysql", "empty", "plugins"):
            (self.here / name).mkdir(parents=True)
        for folder in (Path("/") / _LIBRARIES, self.root / _LIBRARIES):
            for plugin in (folder / "slurm-wlm").glob("*.so"):
                (self.here / "plugins" / plugin.name).symlink_to(plugin)
        options = self.here / "my.cnf"
        options.write_text(_DATABASE.format(here=self.here, root=self.root, database=self.database))
        (self.here / "slurmdbd.conf").write_text(
            _SLURMDBD.format(
                here=self.here, lab=self.directory, port=self.port, database=self.database
            )
        )
        (self.here / "slurmdbd.conf").chmod(0o600)
        (self.directory / "slurmdbd.conf").symlink_to(self.here / "slurmdbd.conf")
        share = self.root / "usr/share/mysql"
        tables = b"".join(
            (share / f"mysql_{name}.sql").read_bytes()
            for name in ("system_tables", "performance_tables", "system_tables_data")
        )
        server = [str(self.root / "usr/sbin/mariadbd"), f"--defaults-file={options}"]
        subprocess.run([*server, "--bootstrap"], input=b"use mysql;\n" + tables, env=self._own(),
                       capture_output=True, check=True)  # fmt: skip
        self._database = subprocess.Popen([*server, "--skip-grant-tables"], env=self._own(),
                                          stderr=subprocess.DEVNULL)  # fmt: skip
        self.wait_for((self.here / "db.sock").exists, 60)
        self.start_slurmdbd()
        self.wait_for(lambda: self._succeeds("sacctmgr", "-i", "add", "cluster", "lab"), 60)
        for account in self.accounts:
            self.run("sacctmgr", "-i", "add", "account", account, "cluster=lab")

    def _succeeds(self, *command: str) -> bool:
        return subprocess.run(command, env=self.environ, capture_output=True).returncode == 0

    def start_slurmdbd(self) -> None:
        server = [str(self.root / "usr/sbin/slurmdbd"), "-D"]
        self._slurmdbd = subprocess.Popen(server, env=self._own(), stderr=subprocess.DEVNULL)

    def stop_slurmdbd(self) -> None:
        if self._slurmdbd is not None:
            self._slurmdbd.terminate()
            self._slurmdbd.wait(30)
            self._slurmdbd = None

    def sql(self, text: str) -> list[list[str]]:
        """Runs a query on the accounting database and returns the rows."""
        client = [str(self.root / "usr/bin/mariadb"), "--no-defaults", "-N", "-B",
                  "-S", str(self.here / "db.sock"), "acct", "-e", text]  # fmt: skip
        done = subprocess.run(client, env=self._own(), capture_output=True, text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def has_been(self, hours: int, since: datetime) -> None:
        """Moves entries back by so many hours, as if the states had lasted for that long. On
        return, slurmdbd has rolled them up."""
        time.sleep(6)  # slurmctld sends its queue every few seconds
        self.stop_slurmdbd()
        moment, back = int(since.timestamp()), hours * 3600
        for table in ("lab_event_table", "lab_resv_table"):
            for column in ("time_start", "time_end"):
                self.sql(f"update {table} set {column}={column}-{back} "
                         f"where {column}>0 and {column}<{moment} order by time_start")  # fmt: skip
        self.sql("delete from lab_last_ran_table")
        self.start_slurmdbd()
        begun = moment - back
        hour = datetime.fromtimestamp(begun + 3600, UTC).replace(minute=0, second=0, microsecond=0)
        self.wait_for(lambda: len(self.hours(hour)) >= hours - 1, 60)

    def hours(self, since: datetime) -> list[list[float]]:
        """Returns the CPU-hours down, planned down and idle in each whole hour since then."""
        rows = self.sql("select down_secs, pdown_secs, idle_secs from lab_usage_hour_table where "
                        f"id_tres=1 and time_start>={int(since.timestamp())} "
                        "and mod(time_start, 3600)=0 order by time_start")  # fmt: skip
        return [[int(name) / 3600 for name in row] for row in rows]

    def stop(self) -> None:
        super().stop()
        self.stop_slurmdbd()
        if self._database is not None:
            self._database.terminate()
            self._database.wait(60)
