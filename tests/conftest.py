"""Fixtures every test may use: the shared embedded server, fresh databases on it, an external PostgreSQL 15.

Helpers that are not fixtures, and fixtures of one test file, do not belong here.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from dagster_postgres import DagsterPostgresStorage
from psycopg import sql

from oracle_dagster.embedded_postgres import LINGER_VARIABLE, EmbeddedPostgres, Lease
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

# Nothing of the developer's own set-up may steer a test, above all not towards a real database.
for _name in [name for name in os.environ if name.startswith(("PG", "DAGSTER_"))]:
    del os.environ[_name]
for _name in (
    "ORACLE_HOME",
    "ORACLE_DATABASE_URL",
    "ORACLE_DAGSTER_DATABASE_URL",
    "ORACLE_DAGSTER_STORAGE_URL",
    "ORACLE_WEBHOOK_URL",
):
    os.environ.pop(_name, None)
# Nor may the width of the terminal, or the length of a temporary path, decide where a table is cut.
os.environ["COLUMNS"] = "240"

# Nor may signals that the starter of the tests ignores: programs inherit that, and could not be ended.
for _number in (signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

POSTGRES15 = Path("/usr/lib/postgresql/15/bin")


def _shared_home(config: pytest.Config) -> Path:
    """One home for all workers of this test run; a worker's own folder lies inside the run's."""
    base: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return (base.parent if hasattr(config, "workerinput") else base) / "shared-home"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no process behind: the last worker is gone, so the keeper stops the server; wait for that."""
    config = session.config
    if not hasattr(config, "workerinput") and getattr(config, "_tmp_path_factory", None) is not None:
        home = _shared_home(config)
        if home.exists():
            EmbeddedPostgres(home, startup_seconds=60).wait_until_stopped()


@pytest.fixture(scope="session")
def embedded_home(pytestconfig: pytest.Config) -> Iterator[Path]:
    """A home whose embedded server runs for the whole test run and is shared by all workers."""
    with _embedded_lease(pytestconfig) as lease:
        with psycopg.connect(lease.url("postgres"), autocommit=True) as connection:
            for name in ("fsync", "full_page_writes", "synchronous_commit"):  # no test pulls the plug
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(name)))
            connection.execute("SELECT pg_reload_conf()")
        yield _shared_home(pytestconfig)


def _embedded_lease(config: pytest.Config) -> Lease:
    home = _shared_home(config)
    before = os.environ.get(LINGER_VARIABLE)
    os.environ[LINGER_VARIABLE] = "0"
    try:
        return EmbeddedPostgres(home).acquire()
    finally:
        del os.environ[LINGER_VARIABLE]
        if before is not None:
            os.environ[LINGER_VARIABLE] = before


def _fresh_database(home: Path, prefix: str, template: str = "template0") -> Iterator[str]:
    server = EmbeddedPostgres(home)
    name = f"{prefix}_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
        sql.Identifier(name), sql.Identifier(template)
    )
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(create)
    try:
        yield server.url(name)
    finally:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(drop)


@pytest.fixture
def database_url(embedded_home: Path) -> Iterator[str]:
    """The libpq URL of a fresh, empty database, dropped afterwards."""
    yield from _fresh_database(embedded_home, "domain")


@pytest.fixture(scope="session")
def migrated_template(embedded_home: Path) -> Iterator[str]:
    """The name of a database with all tables and the default configuration, to be copied."""
    for url in _fresh_database(embedded_home, "template"):
        database = Database(url)
        migrate.upgrade(database)
        database.close()
        yield url.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def migrated_url(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """The libpq URL of a database as `oracle init` makes it, dropped afterwards; quicker than making one."""
    yield from _fresh_database(embedded_home, "domain", migrated_template)


@pytest.fixture(scope="session")
def dagster_template(embedded_home: Path) -> Iterator[str]:
    """The name of a database with the orchestrator's tables, to be copied."""
    for url in _fresh_database(embedded_home, "dagster_template"):
        # Creates its tables when it is made, and keeps no connection.
        DagsterPostgresStorage("postgresql+psycopg2" + url.removeprefix("postgresql"))
        yield url.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def dagster_database_url(embedded_home: Path, dagster_template: str) -> Iterator[str]:
    """The URL of a storage for the orchestrator, with the driver it needs, dropped afterwards."""
    for url in _fresh_database(embedded_home, "dagster", dagster_template):
        yield "postgresql+psycopg2" + url.removeprefix("postgresql")


@dataclass(frozen=True)
class ExternalPostgres:
    """An ordinary server reached by TCP and password, as an organisation would provide it."""

    port: int
    user: str
    password: str

    def url(self, database: str, *, user: str | None = None, password: str | None = None) -> str:
        """The libpq URL of a database of this server; user and password must need no encoding."""
        account = f"{user or self.user}:{password or self.password}"
        return f"postgresql://{account}@127.0.0.1:{self.port}/{database}"


@pytest.fixture(scope="session")
def external_postgres() -> Iterator[ExternalPostgres]:
    """Debian's PostgreSQL 15 as a private server on loopback; skipped where it is not installed."""
    if not (POSTGRES15 / "postgres").exists():
        reason = f"PostgreSQL 15 is not in {POSTGRES15} (Debian: apt-get install postgresql-15)"
        if "postgres15" in os.environ.get("ORACLE_REQUIRE", ""):
            pytest.fail(reason)
        pytest.skip(reason)
    # Not below tmp_path: the account that runs the server may not pass through root's private folders.
    folder = Path(tempfile.mkdtemp(prefix="oracle-pg15-"))
    account = None
    if os.geteuid() == 0:
        account = next(name for name in ("postgres", "nobody") if _account_exists(name))
        os.chown(folder, pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
    try:
        yield from _run_external(folder, account)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _run_external(folder: Path, account: str | None) -> Iterator[ExternalPostgres]:
    groups: list[int] | None = None if account is None else []
    group = None if account is None else pwd.getpwnam(account).pw_gid

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        log = folder / "output"
        with log.open("w") as output:  # a pipe would stay open as long as the server runs
            done = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd="/",
                env={"LC_ALL": "C", "PATH": os.defpath},
                user=account,
                group=group,
                extra_groups=groups,
                check=False,
            )
        return subprocess.CompletedProcess(command, done.returncode, log.read_text())

    password = secrets.token_hex(8)
    (folder / "password").write_text(password)
    (folder / "password").chmod(0o644)  # inside a folder that is closed to others
    data = str(folder / "data")
    initdb = [str(POSTGRES15 / "initdb"), "-D", data, "-U", "admin", "--pwfile", str(folder / "password")]
    done = run(*initdb, "--auth=scram-sha-256", "--locale=C", "--encoding=UTF8", "--no-sync")
    assert done.returncode == 0, done.stdout
    control = [str(POSTGRES15 / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log")]
    for attempt in range(3):  # another process may take the free port first
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off"
        done = run(*control, "-o", options, "start")
        if done.returncode == 0:
            break
        assert attempt < 2, done.stdout + (folder / "log").read_text()
    try:
        yield ExternalPostgres(port, "admin", password)
    finally:
        done = run(*control, "-m", "immediate", "stop")
        assert done.returncode == 0, done.stdout
