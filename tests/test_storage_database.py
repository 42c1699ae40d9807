"""Connections: what an operator reads when one fails, undoing and repeating, floats that survive."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
import sqlalchemy as sa

from oracle_dagster.storage.database import Bulk, Database, DatabaseUnavailableError, StorageError
from tests.storage_rows import rows


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, patience_seconds=1.0)
    yield database
    database.close()


@pytest.mark.parametrize("how", ["begin", "bulk"])
def test_a_server_that_is_down_is_named_with_a_remedy_and_without_the_password(how: str) -> None:
    database = Database("postgresql://me:geheim@127.0.0.1:1/polls", patience_seconds=0.2)
    with (
        pytest.raises(
            DatabaseUnavailableError, match=r"database 'polls' at 127.0.0.1:1.*Remedy: .*oracle doctor"
        ) as e,
        getattr(database, how)(),
    ):
        pass
    assert "geheim" not in str(e.value)
    assert e.value.transient


@pytest.mark.parametrize("how", ["begin", "bulk"])
def test_a_database_that_does_not_exist_fails_at_once_with_the_remedy(database_url: str, how: str) -> None:
    elsewhere = Database(database_url.replace("/domain_", "/absent_"), patience_seconds=3600.0)
    with (
        pytest.raises(StorageError, match=r"database 'absent_\w+'.*Remedy: create the database") as e,
        getattr(elsewhere, how)(),
    ):
        pass
    assert not e.value.transient


@pytest.mark.parametrize("url", ["foo bar geheim", "postgresql://me:geheim@host/x?nonsense=geheim"])
def test_an_address_that_cannot_be_read_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(StorageError, match="ORACLE_DATABASE_URL is not a PostgreSQL URL") as e:
        Database(url)
    assert "geheim" not in str(e.value)


def test_a_driver_in_the_scheme_is_ignored(database_url: str) -> None:
    url = database_url.replace("postgresql://", "postgresql+psycopg2://")
    with Database(url).begin() as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1


def test_a_read_only_database_says_so(database: Database, database_url: str) -> None:
    with database.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (a int)"))
        name = connection.execute(sa.text("SELECT current_database()")).scalar_one()
        connection.execute(sa.text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    fresh = Database(database_url)
    with pytest.raises(StorageError, match=r"read-only.*primary"), fresh.bulk() as bulk:
        bulk.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(StorageError, match=r"read-only.*primary"), fresh.begin() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("53100", "free space on the disk"), ("53300", "max_connections"), ("42501", "grant")],
)
def test_a_full_disk_too_many_connections_and_missing_rights_say_what_to_do(
    database: Database, code: str, remedy: str
) -> None:
    """The server's own error code decides; raised here by the server itself."""
    raises = f"DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{code}'; END $$"
    with pytest.raises(StorageError, match=remedy) as e, database.bulk() as bulk:
        bulk.execute(raises)
    assert e.value.sqlstate == code
    with pytest.raises(StorageError, match=remedy), database.begin() as connection:
        connection.execute(sa.text(raises))


def test_a_bulk_transaction_is_all_or_nothing(database: Database, database_url: str) -> None:
    with database.bulk() as bulk:
        bulk.execute("CREATE TABLE t (a bigint)")
        bulk.stage("new_rows", pa.table({"a": [1, 2]}))
        assert bulk.execute("INSERT INTO t SELECT a FROM new_rows") == 2
    with pytest.raises(StorageError), database.bulk() as bulk:
        bulk.execute("INSERT INTO t SELECT 3 / (a - 1) FROM t ORDER BY a DESC")
    assert rows(database_url, "SELECT a FROM t ORDER BY a") == [(1,), (2,)]


def test_staged_tables_are_gone_when_the_connection_is_used_again(database: Database) -> None:
    for _ in range(2):
        with database.bulk() as bulk:
            bulk.stage("new_rows", pa.table({"a": [1]}))
            bulk.stage("new_rows", pa.table({"a": [1, 2]}))
            assert bulk.arrow("SELECT count(*) AS n FROM new_rows").to_pylist() == [{"n": 2}]


def test_a_savepoint_undoes_only_what_is_inside(database: Database, database_url: str) -> None:
    """C33: after an error the transaction can go on from the savepoint, and only from there."""
    with database.bulk() as bulk:
        bulk.execute("CREATE TABLE t (a int PRIMARY KEY)")
        bulk.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(StorageError, match="duplicate key"):
            insert_inside(bulk, 2, 1)
        bulk.execute("INSERT INTO t VALUES (3)")
        with bulk.savepoint("inside"):
            bulk.execute("INSERT INTO t VALUES (4)")
    assert rows(database_url, "SELECT a FROM t ORDER BY a") == [(1,), (3,), (4,)]


def insert_inside(bulk: Bulk, *values: int) -> None:
    with bulk.savepoint("inside"):
        for value in values:
            bulk.execute(f"INSERT INTO t VALUES ({value})")


def test_a_transaction_with_a_swallowed_error_does_not_pass_as_committed(
    database: Database, database_url: str
) -> None:
    """PostgreSQL answers COMMIT with a silent rollback there."""
    with database.bulk() as bulk:
        bulk.execute("CREATE TABLE t (a int PRIMARY KEY)")
    with pytest.raises(StorageError, match="not undone by a savepoint"):
        swallow_an_error(database)
    assert rows(database_url, "SELECT a FROM t") == []


def swallow_an_error(database: Database) -> None:
    with database.bulk() as bulk:
        bulk.execute("INSERT INTO t VALUES (1)")
        with contextlib.suppress(StorageError):
            bulk.execute("INSERT INTO t VALUES (1)")


def test_parameters_may_be_lists_also_empty_ones(database: Database) -> None:
    with database.bulk() as bulk:
        for names in (["ä", "b,c", '"'], []):
            found = bulk.arrow("SELECT u FROM unnest($1::text[]) AS u", (names,))
            assert found.column("u").to_pylist() == names


def test_a_time_as_parameter_arrives_exactly_and_does_not_end_the_transaction(database: Database) -> None:
    """The driver commits around a parameter of a time type, so none is ever sent as such."""
    time = datetime(2026, 3, 10, 12, 0, 0, 123457, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    with database.bulk() as bulk:
        bulk.execute("CREATE TABLE t (a timestamptz)")
        found = bulk.arrow("SELECT $1::timestamptz AS a, $1 = $2::timestamptz AS same", (time, time))
        bulk.execute("INSERT INTO t VALUES ($1)", (time,))
        assert found.to_pylist() == [{"a": time, "same": True}]
        assert rows_elsewhere(database) == 0, "nothing may be committed yet"
        bulk.execute("SAVEPOINT still_open")


def rows_elsewhere(database: Database) -> int:
    with database.begin() as connection:
        seen = connection.execute(sa.text("SELECT count(*) FROM pg_class WHERE relname = 't'"))
        return int(seen.scalar_one())


def test_floats_pass_both_ways_bit_for_bit(database: Database) -> None:
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, 2.0**-1074, math.nextafter(1.0, 2.0)]
    with database.bulk() as bulk:
        bulk.stage("numbers", pa.table({"n": range(len(values)), "x": values}))
        found = bulk.arrow("SELECT x FROM numbers ORDER BY n").column("x").to_pylist()
    assert [struct.pack("d", v) for v in found] == [struct.pack("d", v) for v in values]


def test_a_transaction_that_loses_its_connection_is_repeated_on_a_new_one(
    database: Database, database_url: str
) -> None:
    attempts = []

    def work(bulk: Bulk) -> int:
        attempts.append(bulk)
        bulk.execute("CREATE TABLE t AS SELECT 7 AS a")
        if len(attempts) == 1:
            bulk.arrow("SELECT pg_terminate_backend(pg_backend_pid())")
        return int(bulk.arrow("SELECT a FROM t").column("a").to_pylist()[0])

    assert database.run(work) == 7
    assert len(attempts) == 2
    assert rows(database_url, "SELECT a FROM t") == [(7,)]


def test_an_error_of_a_value_is_not_repeated(database: Database) -> None:
    attempts = []

    def work(bulk: Bulk) -> None:
        attempts.append(bulk)
        bulk.execute("SELECT 1/0")

    with pytest.raises(StorageError, match="division by zero"):
        database.run(work)
    assert len(attempts) == 1


def test_idle_connections_that_died_meanwhile_are_replaced(database: Database, database_url: str) -> None:
    with database.bulk() as bulk:
        bulk.execute("CREATE TABLE t (a int)")
    with database.begin() as connection:
        connection.execute(sa.text("SELECT 1"))
    rows(
        database_url,
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid()""",
    )
    with database.bulk() as bulk:
        assert bulk.arrow("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 0}]
    with database.begin() as connection:
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1


def test_the_server_sees_who_is_connected(database: Database) -> None:
    with database.bulk() as bulk:
        assert bulk.arrow("SELECT current_setting('application_name') AS n").to_pylist() == [{"n": "oracle"}]
