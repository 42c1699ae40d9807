"""One home: the folder with everything that lasts, and the way from it to the two databases.

Knows which PostgreSQL serves the home (the embedded one, or an external one named by ``ORACLE_DATABASE_URL``)
and how the orchestrator is configured on it. Holds no table, no query on domain data and no server process.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oracle_dagster.embedded_postgres import EmbeddedPostgres, Lease

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

HOME_VARIABLE: Final = "ORACLE_HOME"
DATABASE_VARIABLE: Final = "ORACLE_DATABASE_URL"
DAGSTER_DATABASE_VARIABLE: Final = "ORACLE_DAGSTER_DATABASE_URL"
STORAGE_VARIABLE: Final = "ORACLE_DAGSTER_STORAGE_URL"
BROKER_VARIABLE: Final = "ORACLE_CELERY_BROKER"
"""Where runs are queued for workers, on this machine or others; empty: they start beside the daemon."""
DEFAULT_HOME: Final = ".oracle"
OLDEST_SERVER: Final = 15
DOMAIN_DATABASE: Final = "oracle"
DAGSTER_DATABASE: Final = "dagster"

# The address of the storage comes from the environment (`Home.environment`), so no password is written here.
DAGSTER_YAML: Final = """\
# Written by oracle at each start; changes made here are lost.
storage:
  postgres:
    postgres_url:
      env: {storage_variable}
compute_logs:
  module: dagster._core.storage.local_compute_log_manager
  class: LocalComputeLogManager
  config:
    base_dir: {compute_logs}
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
concurrency:
  runs:
    max_concurrent_runs: 4
run_monitoring: # ends runs that hang while starting or being cancelled; `oracle dev` sees dead workers
  enabled: true
  start_timeout_seconds: 300
  cancel_timeout_seconds: 180
run_retries: # a run whose worker died goes on by itself; one that failed says why and waits for a person
  enabled: true
  max_retries: 2
  retry_on_asset_or_op_failure: false
retention:
  schedule: {{purge_after_days: 90}}
  sensor:
    purge_after_days: {{skipped: 7, success: 90, failure: 90, started: 90}}
  auto_materialize:
    purge_after_days: {{skipped: 7, success: 90, failure: 90, started: 90}}
telemetry:
  enabled: false
nux: # no sign-up dialogue in the user interface
  enabled: false
"""

# The address is read from the environment, as it may hold a password. The results go the same way, so that
# the daemon's monitoring learns of tasks that failed.
CELERY_YAML: Final = """\
run_launcher:
  module: dagster_celery.launcher
  class: CeleryRunLauncher
  config:
    broker:
      env: {broker_variable}
    backend:
      env: {broker_variable}
"""


class HomeError(RuntimeError):
    """The home or its databases cannot be used; the message names place, value and remedy."""


class DatabaseUrlError(HomeError):
    """A database URL in the environment is not usable."""


class ExternalDatabaseError(HomeError):
    """The external server cannot be reached, is too old, or refuses what is needed."""


@dataclass(frozen=True)
class Connections:
    """The addresses of both databases; with the embedded server also the right to use it.

    Without `close` the embedded server stays available for the life of the process.
    """

    domain_url: str = field(repr=False)
    dagster_libpq_url: str = field(repr=False)
    lease: Lease | None = field(default=None, repr=False)

    @property
    def embedded(self) -> bool:
        """Whether the home's own server holds the databases."""
        return self.lease is not None

    @property
    def sqlalchemy_url(self) -> str:
        """The domain database for SQLAlchemy with psycopg 3."""
        return "postgresql+psycopg" + self.domain_url.removeprefix("postgresql")

    @property
    def dagster_url(self) -> str:
        """The orchestrator's database; its storage works with psycopg2 only (a bound parameter in NOTIFY)."""
        return "postgresql+psycopg2" + self.dagster_libpq_url.removeprefix("postgresql")

    def close(self) -> None:
        """Give the right to use the embedded server back; closing twice is allowed."""
        if self.lease is not None:
            self.lease.close()

    def __enter__(self) -> Self:
        """Return the connections themselves."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()


@dataclass(frozen=True)
class Home:
    """The folder in which one installation keeps its databases, logs and orchestrator state."""

    path: Path

    @classmethod
    def resolve(cls, path: str | Path | None = None) -> Self:
        """The home named by the argument, else by ``ORACLE_HOME``, else ``./.oracle``; nothing is created.

        An empty ``ORACLE_HOME`` counts as not set. The path is made absolute, symbolic links stay.
        """
        if path is None:
            named = os.environ.get(HOME_VARIABLE)
            path = DEFAULT_HOME if named is None or named == "" else named
        return cls(Path(os.path.abspath(Path(path).expanduser())))  # noqa: PTH100 - resolve() would follow links

    @property
    def pg_dir(self) -> Path:
        """Everything of the embedded server."""
        return self.path / "pg"

    @property
    def dagster_dir(self) -> Path:
        """The orchestrator's home (``DAGSTER_HOME``)."""
        return self.path / "dagster"

    @property
    def logs_dir(self) -> Path:
        """What runs and services print."""
        return self.path / "logs"

    def postgres(self, progress: Callable[[str], None] | None = None) -> EmbeddedPostgres:
        """The embedded server of this home, not started yet."""
        return (
            EmbeddedPostgres(self.path)
            if progress is None
            else EmbeddedPostgres(self.path, progress=progress)
        )

    def connect(
        self, progress: Callable[[str], None] | None = None, *, orchestrator: bool = True
    ) -> Connections:
        """Make sure both databases exist and can be reached, and return their addresses.

        Args:
            progress: told what is being waited for while the embedded server starts or recovers.
            orchestrator: False leaves an external server's second database alone, its address empty; so a
                role that may only read the domain can connect.

        Raises:
            DatabaseUrlError: ``ORACLE_DATABASE_URL`` or ``ORACLE_DAGSTER_DATABASE_URL`` is not usable.
            ExternalDatabaseError: the external server is unreachable, older than 15, or grants too little.
            EmbeddedPostgresError: the embedded server cannot be started.
        """
        domain = _from_environment(DATABASE_VARIABLE)
        dagster = _from_environment(DAGSTER_DATABASE_VARIABLE)
        if domain is not None:
            return _connect_external(domain, dagster) if orchestrator else _connect_domain(domain)
        if dagster is not None:
            raise DatabaseUrlError(
                f"{DAGSTER_DATABASE_VARIABLE} is set but {DATABASE_VARIABLE} is not. Set both to use "
                "your own PostgreSQL, or neither to use the embedded one."
            )
        lease = self.postgres(progress).acquire()
        return Connections(lease.url(DOMAIN_DATABASE), lease.url(DAGSTER_DATABASE), lease)

    def write_dagster_yaml(self) -> Path:
        """Write the orchestrator's configuration where it is missing or different, and return its path.

        Raises:
            HomeError: the home cannot be written.
        """
        target = self.dagster_dir / "dagster.yaml"
        text = DAGSTER_YAML.format(
            storage_variable=STORAGE_VARIABLE,
            # A JSON string is a YAML string, whatever the path contains.
            compute_logs=json.dumps(str(self.logs_dir / "compute"), ensure_ascii=False),
        )
        if os.environ.get(BROKER_VARIABLE, "") != "":
            text += CELERY_YAML.format(broker_variable=BROKER_VARIABLE)
        try:
            self.dagster_dir.mkdir(parents=True, exist_ok=True)
            (self.logs_dir / "compute").mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_text(encoding="utf-8") != text:
                # Replaced in one step: other processes of this home may be reading it.
                fresh = target.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
                fresh.write_text(text, encoding="utf-8")
                fresh.replace(target)
        except OSError as error:
            raise HomeError(
                f"The home {self.path} cannot be written: {error.strerror}: {error.filename}. "
                f"Set {HOME_VARIABLE} to a folder you may write to, or free some space."
            ) from error
        return target

    def environment(self, connections: Connections | None = None) -> dict[str, str]:
        """What a process of the orchestrator needs in its environment, in addition to the inherited one.

        Args:
            connections: of this home, where at hand; else `connect` is called.
        """
        connections = self.connect() if connections is None else connections
        return {
            HOME_VARIABLE: str(self.path),
            STORAGE_VARIABLE: connections.dagster_url,
            "DAGSTER_HOME": str(self.dagster_dir),
            # Without these two a batch reports about 22 partitions per second, with them about 1,000.
            "DAGSTER_EVENT_BATCH_SIZE": "1000",
            "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS": "1",
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }


def _from_environment(variable: str) -> dict[str, str] | None:
    """The parameters of a libpq URL, or None where the variable is unset or empty."""
    url = os.environ.get(variable)
    if url is None or url == "":
        return None
    scheme, separator, rest = url.partition("://")
    scheme = scheme.split("+", 1)[0]  # SQLAlchemy's postgresql+psycopg:// means the same database
    remedy = f"Set {variable} to postgresql://USER:PASSWORD@HOST:PORT/DATABASE (special characters as %XX)."
    if separator == "" or scheme not in ("postgres", "postgresql"):
        raise DatabaseUrlError(
            f"{variable} does not name a PostgreSQL database (its scheme is {scheme!r}). {remedy}"
        )
    try:
        found = conninfo_to_dict(f"postgresql://{rest}")
    except psycopg.Error as error:
        # Without libpq's own words, which may repeat the password.
        raise DatabaseUrlError(f"{variable} is not a valid URL ({type(error).__name__}). {remedy}") from None
    parameters = {name: str(value) for name, value in found.items() if value is not None and value != ""}
    if "dbname" not in parameters:
        raise DatabaseUrlError(f"{variable} names no database. {remedy}")
    return parameters


def address_of(parameters: dict[str, str]) -> str:
    """A libpq URL in which everything is percent-encoded, also for SQLAlchemy's reader."""
    user = quote(parameters.get("user", ""), safe="")
    password = quote(parameters.get("password", ""), safe="")
    account = (f"{user}:{password}@" if password != "" else f"{user}@") if user != "" else ""
    rest = {name: value for name, value in parameters.items() if name not in ("user", "dbname")}
    if user != "":
        rest.pop("password", None)
    query = urlencode(rest, quote_via=quote, safe="")
    address = f"postgresql://{account}/{quote(parameters['dbname'], safe='')}"
    return f"{address}?{query}" if query != "" else address


def _place(parameters: dict[str, str]) -> str:
    """Server and database without the password."""
    host, port = parameters.get("host", "the local server"), parameters.get("port", "5432")
    return f"database {parameters['dbname']!r} on {host}:{port}"


def _open(parameters: dict[str, str], variable: str) -> psycopg.Connection:
    defaults = {"connect_timeout": "10"}
    try:
        return psycopg.connect(make_conninfo(**{**defaults, **parameters}), autocommit=True)
    except psycopg.OperationalError as error:
        raise ExternalDatabaseError(
            f"Cannot connect to the {_place(parameters)} ({variable}): {str(error).strip()}. "
            "Start the server, create the database, or correct the address."
        ) from None


def _connect_domain(domain: dict[str, str]) -> Connections:
    with _open(domain, DATABASE_VARIABLE) as connection:
        _check_version(connection, domain)
    return Connections(address_of(domain), "")


def _connect_external(domain: dict[str, str], dagster: dict[str, str] | None) -> Connections:
    derived = {**domain, "dbname": f"{domain['dbname']}_dagster"}
    with _open(domain, DATABASE_VARIABLE) as connection:
        _check_version(connection, domain)
        if dagster is None:
            _create_database(connection, derived["dbname"], domain)
    if dagster is None:
        dagster = derived
        variable = f"derived from {DATABASE_VARIABLE}"
    else:
        variable = DAGSTER_DATABASE_VARIABLE
    with _open(dagster, variable) as connection:
        _check_version(connection, dagster)
    if address_of(dagster) == address_of(domain):
        raise DatabaseUrlError(
            f"{DAGSTER_DATABASE_VARIABLE} and {DATABASE_VARIABLE} name the same {_place(domain)}. The "
            "orchestrator needs a database of its own, because both keep a migration history under one name."
        )
    return Connections(address_of(domain), address_of(dagster))


def _check_version(connection: psycopg.Connection, parameters: dict[str, str]) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST_SERVER:
        raise ExternalDatabaseError(
            f"The server of {_place(parameters)} is PostgreSQL {version}, at least {OLDEST_SERVER} is "
            "needed. Upgrade it, or use the embedded server."
        )


def _create_database(connection: psycopg.Connection, name: str, parameters: dict[str, str]) -> None:
    if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is not None:
        return
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    try:
        connection.execute(create)
    except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
        return  # another process of ours was faster
    except psycopg.Error as error:
        user = connection.info.user
        raise ExternalDatabaseError(
            f"The orchestrator's database {name!r} is missing beside {_place(parameters)} and the role "
            f"{user!r} cannot create it: {str(error).strip()}. Let an administrator run: "
            f'CREATE DATABASE "{name}" OWNER "{user}"; or set {DAGSTER_DATABASE_VARIABLE}.'
        ) from None
