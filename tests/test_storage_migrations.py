"""The tables of a migrated database are the ones that schema.py describes, and init is safe to repeat."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from oracle_core.config import OracleConfig
from oracle_dagster.storage import configuration, migrate
from oracle_dagster.storage.database import Database, UnmigratedError
from oracle_dagster.storage.schema import VIEWS, metadata
from tests.storage_rows import rows

REVISIONS = [f"{number:04d}" for number in range(1, 7)]

CATALOGUE = {
    "columns": """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                      a.attidentity, pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
                  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
                  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
                  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')""",
    "constraints": """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
                      WHERE connamespace = 'public'::regnamespace""",
    "indexes": "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "comments": """SELECT relname, obj_description(oid, 'pg_class') FROM pg_class
                   WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    "sequences": "SELECT sequencename, increment_by FROM pg_sequences WHERE schemaname = 'public'",
}


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")
def test_autogenerate_finds_no_difference_between_schema_and_migrated_database(database: Database) -> None:
    migrate.upgrade(database)
    with database.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_server_default": True}
        )
        assert compare_metadata(context, metadata) == []


def test_checks_views_indexes_comments_and_defaults_are_those_of_the_schema_too(
    database: Database, database_url: str
) -> None:
    """Autogenerate looks at neither views nor expressions of checks, so the catalogue is compared as well."""
    with database.begin() as connection:
        metadata.create_all(connection)
        for name, body in VIEWS.items():
            connection.execute(sa.text(f"CREATE VIEW {name} AS {body}"))
    wanted = {name: sorted(map(repr, rows(database_url, query))) for name, query in CATALOGUE.items()}
    with database.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    migrate.upgrade(database)
    with database.begin() as connection:
        connection.execute(sa.text(f"DROP TABLE {migrate.VERSION_TABLE}"))
    for name, query in CATALOGUE.items():
        assert sorted(map(repr, rows(database_url, query))) == wanted[name], name


def test_init_inserts_the_default_configuration_as_version_1_and_repeats_without_effect(
    database: Database,
) -> None:
    assert migrate.upgrade(database) == REVISIONS
    assert migrate.upgrade(database) == []
    (only,) = configuration.history(database)
    assert (only.version, only.active, only.config) == (1, True, OracleConfig())


def test_four_first_inits_at_once_make_one_set_of_tables_and_one_configuration(
    database: Database, database_url: str
) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = sorted(pool.map(lambda _: migrate.upgrade(Database(database_url)), range(4)))
    assert applied == [[], [], [], REVISIONS]
    assert rows(database_url, "SELECT version, active FROM risk_configs") == [(1, True)]


def test_a_database_without_tables_is_refused_with_the_command_that_makes_them(database: Database) -> None:
    with pytest.raises(UnmigratedError, match=r"database 'domain_\w+' at .*oracle init"):
        migrate.check(database)
    migrate.upgrade(database)
    migrate.check(database)


def test_tables_of_a_newer_version_are_refused_and_left_alone(database: Database, database_url: str) -> None:
    migrate.upgrade(database)
    with database.begin() as connection:
        connection.execute(sa.text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
    for act in (migrate.check, migrate.upgrade):
        with pytest.raises(UnmigratedError, match=r"9999.*newer version"):
            act(database)
    assert rows(database_url, f"SELECT version_num FROM {migrate.VERSION_TABLE}") == [("9999",)]


def test_every_table_says_what_a_row_is(database: Database, database_url: str) -> None:
    migrate.upgrade(database)
    comments = dict(rows(database_url, CATALOGUE["comments"]))
    del comments[migrate.VERSION_TABLE]
    assert set(comments) == set(metadata.tables)
    assert all(comment.startswith("One row per ") for comment in comments.values())


def test_the_window_column_keeps_the_seeds_name_quoted_and_source_accuracy_the_seeds_ddl_c32_c18_r169(
    database: Database, database_url: str
) -> None:
    migrate.upgrade(database)
    assert rows(database_url, 'SELECT "window" FROM trend_windows') == []
    found = rows(
        database_url,
        """SELECT column_name, data_type, character_maximum_length, column_default
           FROM information_schema.columns WHERE table_name = 'source_accuracy' ORDER BY ordinal_position""",
    )
    assert found == [
        ("id", "uuid", None, "gen_random_uuid()"),
        ("source_id", "character varying", 200, None),
        ("accuracy_ratio", "double precision", None, "'0.5'::double precision"),
        ("sample_count", "integer", None, "0"),
        ("last_updated", "timestamp with time zone", None, "now()"),
        ("created_at", "timestamp with time zone", None, "now()"),
    ]
    assert rows(database_url, "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'idx_source%'") == [
        ("idx_source_accuracy_source",)
    ]
