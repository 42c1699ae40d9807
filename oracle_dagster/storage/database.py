"""Connections to the domain database: small statements by SQLAlchemy, bulk by Arrow, errors with a remedy.

Bulk transfer goes through ADBC: measured against psycopg's binary COPY it needs no code per row or per type,
it stages a table, upserts from it and rolls back in one transaction, and floats pass bit for bit. It sends
text as text, so columns of type ``jsonb`` and ``uuid`` are staged as text and cast in SQL.

Knows no table: what is read and written stands beside this file.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import adbc_driver_manager
import psycopg
import pyarrow as pa
import sqlalchemy as sa
import tenacity
from adbc_driver_postgresql import dbapi
from psycopg import conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
Isolation = Literal["READ COMMITTED", "REPEATABLE READ"]

APPLICATION_NAME: Final = "oracle"
CONNECT_TIMEOUT_SECONDS: Final = 10
TRANSACTION_ATTEMPTS: Final = 4
IDLE_BULK_CONNECTIONS: Final = 2

_log = logging.getLogger(__name__)

# What an operator can do about it, by SQLSTATE or its class (the first two letters).
_REMEDIES: Final = {
    "28": "check user and password in ORACLE_DATABASE_URL",
    "3D000": "create the database, or correct its name in ORACLE_DATABASE_URL",
    "25006": "the server is read-only (a standby, or default_transaction_read_only is on): "
    "point ORACLE_DATABASE_URL at the primary or switch that off",
    "42501": "grant this user the right to create and write tables in the database",
    "42P01": "the tables are missing: run `oracle init`",
    "42703": "the tables are of another version: run `oracle init`",
    "53100": "free space on the disk of the database, then run this again",
    "53200": "give the database server more memory, or run fewer things at once",
    "53300": "raise max_connections of the server, or run fewer things at once",
    "57014": "the statement was cancelled; run this again",
    "40": "run this again",
    "22": "a stored value cannot be used; see the message",
    "23": "a value breaks a rule of the table; see the message",
}
_DOWN: Final = "check that the server runs (`oracle doctor`) and that ORACLE_DATABASE_URL is right"
# Connecting tells no SQLSTATE (libpq), so these few texts decide that waiting is pointless.
_FINAL_TEXTS: Final = {
    'role "': "28000",
    "does not exist": "3D000",
    "authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
}
# Transient: the same transaction may succeed when repeated.
_TRANSIENT: Final = ("08", "40001", "40P01", "53300", "57P01", "57P02", "57P03")


class StorageError(RuntimeError):
    """The database cannot be used; the message names place, reason and remedy.

    ``sqlstate`` is PostgreSQL's code where there is one, ``transient`` whether waiting may help.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None, transient: bool = False) -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.sqlstate = sqlstate
        self.transient = transient


class DatabaseUnavailableError(StorageError):
    """No connection can be made, or it broke."""


class UnmigratedError(StorageError):
    """The tables are missing or of another version."""


class Bulk:
    """One transaction over Arrow; made by :meth:`Database.bulk` and :meth:`Database.run`."""

    def __init__(self, database: Database, cursor: dbapi.Cursor) -> None:
        """Wrap an open cursor; the caller commits."""
        self._database = database
        self._cursor = cursor
        self._staged: set[str] = set()
        self.broken = False

    def execute(self, sql: str, params: Sequence[object] = ()) -> int:
        """Run one statement without a result; ``$1`` … stand for ``params``.

        Returns:
            The rows it touched, -1 where the driver does not say (always so with parameters).

        """
        with self._statement("write"):
            self._cursor.execute(*_bound(sql, params))
        return int(self._cursor.rowcount)

    def arrow(self, sql: str, params: Sequence[object] = ()) -> pa.Table:
        """Run one query and return its rows as one ``pyarrow.Table`` with one chunk per column.

        A list among ``params`` becomes a PostgreSQL array.
        """
        with self._statement("read"):
            self._cursor.execute(*_bound(sql, params))
            return self._cursor.fetch_arrow_table().combine_chunks()

    def stage(self, name: str, table: pa.Table) -> None:
        """Copy an Arrow table into the temporary table ``name``, which lives until the transaction ends."""
        with self._statement("write"):
            self._cursor.adbc_ingest(
                name, table, mode="replace" if name in self._staged else "create", temporary=True
            )
        self._staged.add(name)

    def append(self, name: str, table: pa.Table, *, temporary: bool = False) -> None:
        """Copy an Arrow table into the existing (temporary) table ``name``; missing columns get defaults.

        Binary values pass as they are, so 16 bytes go into a uuid and a byte 1 before JSON text into a jsonb.
        """
        with self._statement("write"):
            self._cursor.adbc_ingest(name, table, mode="append", temporary=temporary)

    @contextlib.contextmanager
    def savepoint(self, name: str) -> Iterator[None]:
        """Undo only what happens inside if it raises; the error passes on."""
        self.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            self.execute(f"ROLLBACK TO SAVEPOINT {name}")
            self.broken = False
            raise
        self.execute(f"RELEASE SAVEPOINT {name}")

    @contextlib.contextmanager
    def _statement(self, doing: str) -> Iterator[None]:
        """Remember a failure: the server answers the commit of a failed transaction by a silent rollback."""
        before, self.broken = self.broken, True
        with self._database.errors(doing):
            yield
        self.broken = before

    def drop_staged(self) -> None:
        """Drop what was staged, so that the connection can be used again."""
        for name in sorted(self._staged):
            self.execute(f"DROP TABLE IF EXISTS pg_temp.{name}")
        self._staged.clear()


def _bound(sql: str, params: Sequence[object]) -> tuple[str, pa.RecordBatch | None]:
    """Statement and parameters as one typed Arrow row.

    An empty Python list has no type of its own and counts as texts. A time is sent as text and cast: for a
    parameter of that type the driver would commit the transaction.
    """
    if not params:
        return sql, None
    columns = []
    for number, value in enumerate(params, start=1):
        if isinstance(value, datetime):
            sql = re.sub(rf"\${number}(?!\d)", f"(${number}::text::timestamptz)", sql)
            columns.append(pa.array([value.isoformat()]))
        elif isinstance(value, list) and _texts(value):
            columns.append(pa.array([value], pa.list_(pa.string())))
        else:
            columns.append(pa.array([value]))
    return sql, pa.record_batch(columns, names=[str(i) for i in range(len(columns))])


def _texts(values: list[object]) -> bool:
    return all(isinstance(v, str) for v in values)


class Database:
    """The domain database behind a libpq URL (or key/value text); connects when first used."""

    def __init__(self, url: str, *, patience_seconds: float = 10.0) -> None:
        """Remember where the database is.

        Args:
            url: ``postgresql://…``; a driver in the scheme (``postgresql+psycopg://``) is ignored.
            patience_seconds: how long connecting is tried again while the server is away or starting.

        Raises:
            StorageError: the URL cannot be read. The message never shows it: it may hold a password.

        """
        scheme, separator, rest = url.partition("://")
        plain = (
            f"postgresql://{rest}" if separator and scheme.startswith(("postgresql+", "postgres+")) else url
        )
        try:
            parts = conninfo.conninfo_to_dict(plain)
        except psycopg.ProgrammingError:
            raise StorageError(
                "ORACLE_DATABASE_URL is not a PostgreSQL URL; write it like "
                "postgresql://user:password@host:5432/database"
            ) from None
        parts.setdefault("application_name", APPLICATION_NAME)
        parts.setdefault("connect_timeout", str(CONNECT_TIMEOUT_SECONDS))
        self._password = str(parts.get("password", ""))
        self._conninfo = conninfo.make_conninfo("", **parts)
        host = parts.get("host") or parts.get("hostaddr") or "the default socket"
        port = f":{parts['port']}" if parts.get("port") and not str(host).startswith("/") else ""
        self.place = (
            f"database {parts.get('dbname') or parts.get('user') or 'of the default user'!r} at {host}{port}"
        )
        self._patience_seconds = patience_seconds
        self._idle: list[dbapi.Connection] = []
        self._mutex = threading.Lock()

    @functools.cached_property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine on psycopg 3, with a small pool that notices a restarted server."""
        return sa.create_engine(
            "postgresql+psycopg://", creator=self._connect, pool_size=2, max_overflow=6, pool_pre_ping=True
        )

    def now(self) -> datetime:
        """The database's present time, by which ingested records become known."""
        with self.begin() as connection:
            moment: datetime = connection.execute(sa.select(sa.func.now())).scalar_one()
        return moment.astimezone(UTC)

    def transaction(self) -> int:
        """The id of a transaction of now: above every id given out before."""
        with self.begin() as connection:
            return int(
                connection.execute(sa.select(sa.cast(sa.func.pg_current_xact_id(), sa.Text))).scalar_one()
            )

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """One transaction of small statements; errors become :class:`StorageError`."""
        with self.errors("use"), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def bulk(self, isolation: Isolation = "READ COMMITTED") -> Iterator[Bulk]:
        """One bulk transaction: commits at the end, rolls back if anything raises."""
        connection = self._checkout()
        clean = False
        try:
            with self.errors("use"):
                cursor = connection.cursor()
            bulk = Bulk(self, cursor)
            bulk.execute(f"BEGIN ISOLATION LEVEL {isolation}")
            yield bulk
            if bulk.broken:
                raise StorageError(
                    f"a statement on the {self.place} failed and was not undone by a savepoint"
                )
            bulk.drop_staged()
            bulk.execute("COMMIT")
            with self.errors("use"):
                cursor.close()
            clean = True
        finally:
            self._checkin(connection, clean=clean)

    def run(self, work: Callable[[Bulk], T], isolation: Isolation = "READ COMMITTED") -> T:
        """Run ``work`` in one bulk transaction, again if that fails for a passing reason.

        A connection may break while the commit is under way, and it stays unknown whether it took place; so
        ``work`` must be idempotent.
        """
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            stop=tenacity.stop_after_attempt(TRANSACTION_ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
            before_sleep=tenacity.before_sleep_log(_log, logging.INFO),
            reraise=True,
        ):
            with attempt, self.bulk(isolation) as bulk:
                return work(bulk)
        raise AssertionError  # pragma: no cover - reraise leaves no other way out

    def close(self) -> None:
        """Close every connection; the database can be used again afterwards."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            _close(connection)
        if "engine" in self.__dict__:
            self.engine.dispose()

    @contextlib.contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn any driver's error into a :class:`StorageError` that says place, reason and remedy."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise self._explained(doing, error.orig or error) from error
        except (psycopg.Error, adbc_driver_manager.Error) as error:
            raise self._explained(doing, error) from error

    def _explained(self, doing: str, error: BaseException) -> StorageError:
        code = getattr(error, "sqlstate", None)
        code = code if isinstance(code, str) and code != "" else None
        reason = " ".join(str(error).split("\n\nQuery was:")[0].split("\n[SQL:")[0].split())
        if self._password != "":
            reason = reason.replace(self._password, "***")
        down = code is None and isinstance(
            error, (psycopg.OperationalError, adbc_driver_manager.OperationalError)
        )
        if down:
            code = next((c for text, c in _FINAL_TEXTS.items() if text in reason), None)
        gone = down or (code or "").startswith(("08", "57P"))
        remedy = _REMEDIES.get(
            code or "", _REMEDIES.get((code or "")[:2], _DOWN if gone else "see the message")
        )
        transient = down if code is None else code.startswith(_TRANSIENT)
        kind = DatabaseUnavailableError if gone else StorageError
        if code == "42P01":
            kind = UnmigratedError
        return kind(
            f"cannot {doing} the {self.place}: {reason.rstrip('.? ')}. Remedy: {remedy}.",
            sqlstate=code,
            transient=transient,
        )

    def _patiently(self, connect: Callable[[], T]) -> T:
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            stop=tenacity.stop_after_delay(self._patience_seconds),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        ):
            with attempt, self.errors("connect to"):
                return connect()
        raise AssertionError  # pragma: no cover - reraise leaves no other way out

    def _connect(self) -> psycopg.Connection[Any]:
        return self._patiently(lambda: psycopg.connect(self._conninfo))

    def _checkout(self) -> dbapi.Connection:
        while True:
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                # The driver's own transactions refuse every statement after an error, so also the return to
                # a savepoint; ours are begun and ended by statements.
                return self._patiently(lambda: dbapi.connect(self._conninfo, autocommit=True))
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1 AS alive")
                    cursor.fetchall()
            except adbc_driver_manager.Error:  # the server was restarted meanwhile
                _close(connection)
            else:
                return connection

    def _checkin(self, connection: dbapi.Connection, *, clean: bool) -> None:
        with self._mutex:
            keep = clean and len(self._idle) < IDLE_BULK_CONNECTIONS
            if keep:
                self._idle.append(connection)
        if not keep:
            _close(connection)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, StorageError) and error.transient


def _close(connection: dbapi.Connection) -> None:
    with contextlib.suppress(adbc_driver_manager.Error):
        connection.close()
