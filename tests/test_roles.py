"""Read-only roles: they read every table, also those to come, and write nothing; exports work with them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from oracle_dagster.home import DAGSTER_DATABASE_VARIABLE, DATABASE_VARIABLE
from oracle_dagster.housekeeping import readers
from oracle_dagster.housekeeping.readers import ReaderError
from oracle_dagster.storage import migrate, schema
from oracle_dagster.storage.database import Database
from tests.chain_runs import fresh_database
from tests.command import oracle
from tests.conftest import ExternalPostgres
from tests.storage_rows import Document, Impact, insert_documents

WRITES = {
    "insert": "INSERT INTO ai_agents (slug, model_name) VALUES ('x', 'y')",
    "update": "UPDATE documents SET source_id = 'other'",
    "delete": "DELETE FROM document_impact_records",
    "truncate": "TRUNCATE cycle_seals",
    "create": "CREATE TABLE mine (x int)",
    "temporary": "CREATE TEMPORARY TABLE mine (x int)",
    "drop": "DROP VIEW pattern_stats",
    "sequence": "SELECT nextval('cycle_sequence')",
    "become": "SET ROLE oracle",
    "grant": "GRANT ALL ON documents TO PUBLIC",
    "lock": "BEGIN; LOCK TABLE documents IN ACCESS EXCLUSIVE MODE",
}


@pytest.fixture(scope="module")
def url(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """A database with one document, for all tests: none of them may change anything."""
    for address in fresh_database(embedded_home, "roles", migrated_template):
        with psycopg.connect(address) as connection:
            insert_documents(connection, [Document("one", (Impact("A"),))])
        yield address


@pytest.fixture
def name(url: str) -> Iterator[str]:
    """A reader; roles are the whole server's, so it has a name of its own."""
    role = f"reader_{secrets.token_hex(4)}"
    assert readers.create(url, role, with_password=False) is None
    yield role
    with psycopg.connect(url) as connection:
        left = [reader.name for reader in readers.readers(connection)]
    if role in left:
        readers.drop(url, role)


@pytest.fixture
def reader_url(url: str, name: str) -> str:
    return readers.address(url, name, None)


def test_a_reader_reads_every_table_and_view_and_those_to_come(url: str, reader_url: str) -> None:
    with psycopg.connect(url) as owner:
        owner.execute("CREATE TABLE of_tomorrow AS SELECT 1 AS x")
        owner.execute("CREATE VIEW view_of_tomorrow AS SELECT * FROM of_tomorrow")
    with psycopg.connect(reader_url) as connection:
        tables = [*schema.metadata.tables, *schema.VIEWS, migrate.VERSION_TABLE]
        for table in (*tables, "of_tomorrow", "view_of_tomorrow"):
            connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        assert connection.execute("SELECT source_id FROM documents").fetchall() == [("source-1",)]


@pytest.mark.parametrize("statement", WRITES.values(), ids=WRITES)
def test_a_reader_can_write_nothing_even_if_it_switches_its_own_guard_off(
    reader_url: str, statement: str
) -> None:
    with psycopg.connect(reader_url, autocommit=True) as connection:
        if "PUBLIC" not in statement:  # which gives only a warning outside of a read-only transaction
            connection.execute("SET default_transaction_read_only = off")
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
            connection.execute(statement.encode())


def test_exports_and_other_reading_commands_work_as_a_reader(
    reader_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second database, which a reader may not create, is not asked for."""
    monkeypatch.setenv(DATABASE_VARIABLE, reader_url)
    monkeypatch.delenv(DAGSTER_DATABASE_VARIABLE, raising=False)
    done = oracle("export", "documents", "--format", "jsonl")
    assert done.code == 0, done.err
    assert [line["source_id"] for line in done.lines] == ["source-1"]
    assert oracle("config", "show", "trend").code == 0
    assert oracle("entity", "list", "--json").json == []
    refused = oracle("export", "documents", "--format", "csv", "--reader", name)
    assert refused.code == 2
    assert "set ORACLE_DATABASE_URL to the address of the reader" in " ".join(refused.err.split())


def test_a_reader_is_listed_completed_and_removed(url: str, name: str) -> None:
    readers.create(url, name, with_password=False)  # again, as after a restore
    with psycopg.connect(url) as connection:
        assert [(r.name, r.can_log_in, r.connections) for r in readers.readers(connection)] == [
            (name, True, readers.CONNECTIONS)
        ]
    readers.drop(url, name)
    with psycopg.connect(url) as connection:
        assert readers.readers(connection) == []
        there = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone()
    assert there is None
    with pytest.raises(ReaderError, match=f"There is no reader '{name}' in this database; there are: none"):
        readers.drop(url, name)


@pytest.mark.parametrize("wrong", ["Reader", "pg_reader", "a-b", "", 'x"; DROP TABLE documents; --'])
def test_a_name_that_would_need_quoting_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(ReaderError, match="cannot name a role"):
        readers.create(url, wrong, with_password=False)


def test_a_role_that_may_do_more_is_not_made_a_reader(url: str) -> None:
    with pytest.raises(ReaderError, match="may do more than read"):
        readers.create(url, "oracle", with_password=False)


def test_an_external_server_gives_the_reader_a_password(
    external_postgres: ExternalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE ROLE reading_owner LOGIN PASSWORD 'secret'")
        connection.execute("CREATE DATABASE reading OWNER reading_owner")
        connection.execute("CREATE DATABASE reading_dagster OWNER reading_owner")
    url = external_postgres.url("reading", user="reading_owner", password="secret")
    database = Database(url)
    migrate.upgrade(database)
    database.close()
    with pytest.raises(ReaderError, match="Let an administrator run CREATE ROLE analyst LOGIN"):
        readers.create(url, "analyst", with_password=True)
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER ROLE reading_owner CREATEROLE")
    monkeypatch.setenv(DATABASE_VARIABLE, url)
    monkeypatch.delenv(DAGSTER_DATABASE_VARIABLE, raising=False)
    made = oracle("reader", "create", "analyst", "--json")
    assert made.code == 0, made.err
    address = made.json["url"]
    assert made.json["password"] in address
    assert [r["name"] for r in oracle("reader", "list", "--json").json] == ["analyst"]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(address.replace(made.json["password"], "guessed"))
    with psycopg.connect(address) as connection, pytest.raises(psycopg.Error, match="read-only transaction"):
        connection.execute("DELETE FROM documents")
    monkeypatch.setenv(DATABASE_VARIABLE, address)
    assert oracle("export", "risk_configs", "--format", "csv").code == 0
    monkeypatch.setenv(DATABASE_VARIABLE, url)
    assert oracle("reader", "drop", "analyst").code == 0
    assert oracle("reader", "list", "--json").json == []
