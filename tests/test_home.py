"""The home: where it is, which databases it leads to, and the orchestrator's configuration on them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from dagster import AssetMaterialization, DagsterInstance
from dagster._core.test_utils import environ
from psycopg import sql

from oracle_dagster.embedded_postgres import EmbeddedPostgresError
from oracle_dagster.home import DatabaseUrlError, ExternalDatabaseError, Home, HomeError
from tests.conftest import ExternalPostgres

# Characters that mean something in a URL, in YAML, in a shell or in a format string.
AWKWARD = "p@ss:w/ö%?#&= \"'$"


def test_the_argument_wins_over_the_environment_and_that_over_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Home.resolve().path == tmp_path / ".oracle"
    monkeypatch.setenv("ORACLE_HOME", "")
    assert Home.resolve().path == tmp_path / ".oracle"
    monkeypatch.setenv("ORACLE_HOME", "named")
    assert Home.resolve().path == tmp_path / "named"
    assert Home.resolve("given").path == tmp_path / "given"
    assert Home.resolve(tmp_path / "given" / ".." / "other").path == tmp_path / "other"
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert Home.resolve("~/x").path == tmp_path / "me" / "x"
    assert list(tmp_path.iterdir()) == []  # nothing is created by asking


def test_folders_of_a_home(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    assert (home.pg_dir, home.dagster_dir, home.logs_dir) == (
        tmp_path / "pg",
        tmp_path / "dagster",
        tmp_path / "logs",
    )


def test_without_a_url_the_embedded_server_holds_both_databases(embedded_home: Path) -> None:
    with Home.resolve(embedded_home).connect() as connections:
        assert connections.embedded
        with psycopg.connect(connections.domain_url) as connection:
            assert connection.info.dbname == "oracle"
        for url, database in ((connections.sqlalchemy_url, "oracle"), (connections.dagster_url, "dagster")):
            engine = sqlalchemy.create_engine(url)
            with engine.connect() as opened:
                assert opened.execute(sqlalchemy.text("SELECT current_database()")).scalar_one() == database
            engine.dispose()
        assert connections.sqlalchemy_url.startswith("postgresql+psycopg://")
        assert connections.dagster_url.startswith("postgresql+psycopg2://")
        assert "oracle-" not in repr(connections)  # addresses can carry passwords and stay out of messages


def test_an_empty_url_means_the_embedded_server(embedded_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", "")
    with Home.resolve(embedded_home).connect() as connections:
        assert connections.embedded


def test_the_embedded_server_outlives_connections_that_nobody_closed(tmp_path: Path) -> None:
    """A command that dropped its `Connections` must not lose its database in the middle."""
    program = (
        "import gc, sys, psycopg\n"
        "from oracle_dagster.home import Home\n"
        "url = Home.resolve(sys.argv[1]).connect().domain_url\n"
        "gc.collect()\n"
        "from oracle_dagster.embedded_postgres import EmbeddedPostgres, _holds\n"
        "print(len(_holds), psycopg.connect(url).execute('SELECT 1').fetchone())\n"
    )
    environment = {**os.environ, "ORACLE_PG_LINGER_SECONDS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "home")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout == "1 (1,)\n"
    Home.resolve(tmp_path / "home").postgres().wait_until_stopped()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://u@h/db", "its scheme is 'mysql'"),
        ("/var/lib/db.sqlite", "does not name a PostgreSQL database"),
        ("sqlite:///db", "its scheme is 'sqlite'"),
        ("postgresql://u:secret@h:5432/", "names no database"),
        ("postgresql://u:secret@h", "names no database"),
        ("postgresql://u:secret@h:5432/db?nonsense=1", "is not a valid URL"),
        ("postgresql://u:secret%ZZ@h/db", "is not a valid URL"),
    ],
)
def test_a_url_that_cannot_be_used_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, complaint: str
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", url)
    with pytest.raises(DatabaseUrlError) as caught:
        Home.resolve(tmp_path / "home").connect()
    message = str(caught.value)
    assert message.startswith("ORACLE_DATABASE_URL ")
    assert complaint in message
    assert "Set ORACLE_DATABASE_URL to postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in message
    assert "secret" not in message
    assert not (tmp_path / "home").exists()


def test_a_url_for_the_orchestrator_alone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", "postgresql://u@h/db")
    with pytest.raises(DatabaseUrlError, match=r"ORACLE_DATABASE_URL is not\. Set both"):
        Home.resolve(tmp_path).connect()


def test_a_server_that_is_down_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/db")
    with pytest.raises(ExternalDatabaseError) as caught:
        Home.resolve(tmp_path).connect()
    assert "Cannot connect to the database 'db' on 127.0.0.1:1 (ORACLE_DATABASE_URL)" in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.fixture
def external_database(external_postgres: ExternalPostgres) -> str:
    """A fresh database on the external server."""
    name = f"domain_{secrets.token_hex(6)}"
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return name


@pytest.mark.postgres15
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_an_external_server_is_used_and_gets_a_second_database(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    external_postgres: ExternalPostgres,
    external_database: str,
    scheme: str,
) -> None:
    url = external_postgres.url(external_database)
    monkeypatch.setenv("ORACLE_DATABASE_URL", scheme + url.removeprefix("postgresql"))
    for _ in range(2):  # the second time the database exists
        connections = Home.resolve(tmp_path / "home").connect()
        assert not connections.embedded
        with psycopg.connect(connections.domain_url) as connection:
            assert connection.info.dbname == external_database
            assert connection.info.server_version // 10_000 == 15
        engine = sqlalchemy.create_engine(connections.dagster_url)
        with engine.connect() as opened:
            name = opened.execute(sqlalchemy.text("SELECT current_database()")).scalar_one()
        engine.dispose()
        assert name == f"{external_database}_dagster"
        connections.close()
    assert not (tmp_path / "home").exists()  # no embedded server beside it


@pytest.mark.postgres15
def test_special_characters_in_names_and_passwords_arrive_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, external_postgres: ExternalPostgres
) -> None:
    from urllib.parse import quote

    name = f"{AWKWARD}{secrets.token_hex(4)}"
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(sql.Identifier(name), AWKWARD)
        )
        connection.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(sql.Identifier(name)))
    user = quote(name, safe="")
    address = f"127.0.0.1:{external_postgres.port}/{user}?application_name=a%20%26%20b"
    monkeypatch.setenv("ORACLE_DATABASE_URL", f"postgresql://{user}:{quote(AWKWARD, safe='')}@{address}")
    connections = Home.resolve(tmp_path).connect()
    with psycopg.connect(connections.domain_url) as connection:
        assert (connection.info.user, connection.info.dbname) == (name, name)
        assert connection.execute("SELECT current_setting('application_name')").fetchone() == ("a & b",)
    for url, database in ((connections.sqlalchemy_url, name), (connections.dagster_url, f"{name}_dagster")):
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as opened:
            assert opened.execute(sqlalchemy.text("SELECT current_database()")).scalar_one() == database
        engine.dispose()


@pytest.mark.postgres15
def test_a_role_that_may_not_create_databases_is_told_what_to_ask_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    external_postgres: ExternalPostgres,
    external_database: str,
) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(sql.Identifier(role)))
    monkeypatch.setenv(
        "ORACLE_DATABASE_URL", external_postgres.url(external_database, user=role, password="x")
    )
    with pytest.raises(ExternalDatabaseError, match="permission denied to create database") as caught:
        Home.resolve(tmp_path).connect()
    assert f'CREATE DATABASE "{external_database}_dagster" OWNER "{role}"' in str(caught.value)
    assert "or set ORACLE_DAGSTER_DATABASE_URL" in str(caught.value)


@pytest.mark.postgres15
def test_the_orchestrators_database_may_be_named_but_not_be_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    external_postgres: ExternalPostgres,
    external_database: str,
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", external_postgres.url(external_database))
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", external_postgres.url(external_database))
    with pytest.raises(DatabaseUrlError, match="needs a database of its own"):
        Home.resolve(tmp_path).connect()
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", external_postgres.url("absent"))
    with pytest.raises(ExternalDatabaseError, match=r'ORACLE_DAGSTER_DATABASE_URL.*"absent" does not exist'):
        Home.resolve(tmp_path).connect()
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", external_postgres.url("postgres"))
    assert "/postgres?" in Home.resolve(tmp_path).connect().dagster_url


@pytest.mark.postgres15
def test_a_server_older_than_15_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    external_postgres: ExternalPostgres,
    external_database: str,
) -> None:
    """There is no older server at hand, so the limit is moved instead."""
    monkeypatch.setattr("oracle_dagster.home.OLDEST_SERVER", 16)
    monkeypatch.setenv("ORACLE_DATABASE_URL", external_postgres.url(external_database))
    with pytest.raises(ExternalDatabaseError, match="is PostgreSQL 15, at least 16 is needed"):
        Home.resolve(tmp_path).connect()


def open_instance(home: Home, environment: dict[str, str]) -> None:
    """Open the orchestrator's instance as its processes do, and write and read an event."""
    home.write_dagster_yaml()
    with environ({**environment}), DagsterInstance.get() as instance:
        assert type(instance.run_storage).__name__ == "PostgresRunStorage"
        assert type(instance.event_log_storage).__name__ == "PostgresEventLogStorage"
        assert type(instance.schedule_storage).__name__ == "PostgresScheduleStorage"
        assert type(instance.run_coordinator).__name__ == "QueuedRunCoordinator"
        assert instance.get_concurrency_config().run_queue_config is not None
        assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 4  # type: ignore[union-attr]
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.get_settings("retention")["schedule"] == {"purge_after_days": 90}
        instance.add_dynamic_partitions("entity", ["Zürich"])
        assert list(instance.get_dynamic_partitions("entity")) == ["Zürich"]
        # The first run event is what fails with the wrong driver (a bound parameter in NOTIFY).
        instance.report_runless_asset_event(AssetMaterialization("an_asset", partition="a"))
        assert instance.get_materialized_partitions(instance.all_asset_keys()[0]) == {"a"}


def test_the_orchestrator_opens_on_the_embedded_server(
    tmp_path: Path, database_url: str, dagster_database_url: str
) -> None:
    home = Home.resolve(tmp_path / 'it\'s 100 % of $HOME: "Zürich" # 1')
    open_instance(
        home, {"DAGSTER_HOME": str(home.dagster_dir), "ORACLE_DAGSTER_STORAGE_URL": dagster_database_url}
    )
    assert (home.logs_dir / "compute").is_dir()


@pytest.mark.postgres15
def test_the_orchestrator_opens_on_the_external_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    external_postgres: ExternalPostgres,
    external_database: str,
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", external_postgres.url(external_database))
    home = Home.resolve(tmp_path)
    open_instance(home, home.environment())


def test_the_environment_of_a_child_names_home_storage_and_batching(embedded_home: Path) -> None:
    home = Home.resolve(embedded_home)
    with home.connect() as connections:
        assert home.environment(connections) == {
            "ORACLE_HOME": str(embedded_home),
            "ORACLE_DAGSTER_STORAGE_URL": connections.dagster_url,
            "DAGSTER_HOME": str(embedded_home / "dagster"),
            "DAGSTER_EVENT_BATCH_SIZE": "1000",
            "DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS": "1",
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }


def test_the_configuration_holds_no_password_and_is_written_only_when_it_differs(tmp_path: Path) -> None:
    home = Home.resolve(tmp_path)
    path = home.write_dagster_yaml()
    text = path.read_text()
    assert path == tmp_path / "dagster" / "dagster.yaml"
    assert "postgres_url:\n      env: ORACLE_DAGSTER_STORAGE_URL\n" in text
    assert json.dumps(str(tmp_path / "logs" / "compute")) in text
    os.utime(path, ns=(0, 0))
    home.write_dagster_yaml()
    assert path.stat().st_mtime_ns == 0
    path.write_text("telemetry:\n  enabled: true\n")
    home.write_dagster_yaml()
    assert path.read_text() == text
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["dagster.yaml"]


def test_a_home_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = Home.resolve(tmp_path / "file" / "home")
    with pytest.raises(HomeError, match="Set ORACLE_HOME to a folder you may write to"):
        home.write_dagster_yaml()
    with pytest.raises(EmbeddedPostgresError, match="Set ORACLE_HOME to a folder you may write to"):
        home.connect()
