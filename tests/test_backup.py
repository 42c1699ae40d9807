"""Backup and restore on real servers: everything goes on where it stood, or nothing is left of it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.test_utils import create_run_for_test

from oracle_dagster import tick
from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.home import (
    DAGSTER_DATABASE_VARIABLE,
    DATABASE_VARIABLE,
    STORAGE_VARIABLE,
    Connections,
    Home,
)
from oracle_dagster.housekeeping import restore as restoring
from oracle_dagster.housekeeping import server_tools
from oracle_dagster.housekeeping.backup import (
    DAGSTER,
    DOMAIN,
    MANIFEST,
    BackupError,
    Manifest,
    backup,
    digest,
)
from oracle_dagster.housekeeping.restore import RestoreError, restore
from oracle_dagster.housekeeping.server_tools import ToolError, Tools
from oracle_dagster.news import Debounce
from oracle_dagster.sensors import SENSOR
from oracle_dagster.storage import seals
from oracle_dagster.storage.database import Database
from oracle_dagster.verification import recompute
from tests.chain_runs import fresh_database
from tests.conftest import ExternalPostgres
from tests.services import settle
from tests.storage_rows import (
    RESULT_TABLES,
    Document,
    Impact,
    ago,
    contents,
    insert_documents,
    insert_world,
)
from tests.test_pipeline import WORLD, empty_results, run

KEPT = (*RESULT_TABLES, "cycles", "documents", "document_intelligence", "cycle_seals", "cycle_seal_parts")
LATE, NEW = "arrives while the backup is taken", "arrives after the restore"


@dataclass(frozen=True)
class Saved:
    """A backup, and what the databases were like when it was taken."""

    folder: Path
    manifest: Manifest
    tables: dict[str, list[str]]
    running: str
    order: list[str]


def instance_of(url: str, folder: Path) -> dg.DagsterInstance:
    """The orchestrator on a database."""
    folder.mkdir(exist_ok=True)
    address = "postgresql+psycopg2" + url.removeprefix("postgresql").removeprefix("+psycopg2")
    (folder / "dagster.yaml").write_text(json.dumps({"storage": {"postgres": {"postgres_url": address}}}))
    return dg.DagsterInstance.from_config(str(folder))


def sensor_state(instance: dg.DagsterInstance) -> InstigatorState:
    (state,) = instance.all_instigator_state()
    return state


def document(name: str, entity: str) -> Document:
    return Document(name, (Impact(entity),), published=ago(hours=2))


@pytest.fixture(scope="module")
def saved(
    embedded_home: Path,
    migrated_template: str,
    dagster_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Saved]:
    """The backup of two cycles, a sensor with its cursor, a run and a tick under way, and a late document."""
    folder = tmp_path_factory.mktemp("backup")
    real = server_tools.run
    order: list[str] = []
    databases = fresh_database(embedded_home, "source", migrated_template)
    storages = fresh_database(embedded_home, "storage", dagster_template)
    for url, dagster_url in zip(databases, storages, strict=True):
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
        database = Database(url)
        run(database, ago(days=2))
        run(database)
        origin = RemoteInstigatorOrigin(
            RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("oracle"), "__repository__"), SENSOR
        )
        with instance_of(dagster_url, folder / "instance") as instance:
            instance.add_instigator_state(
                InstigatorState(
                    origin,
                    InstigatorType.SENSOR,
                    InstigatorStatus.RUNNING,
                    SensorInstigatorData(cursor=tick.start(database)),
                )
            )
            state = sensor_state(instance)
            instance.create_tick(
                TickData(
                    instigator_origin_id=state.instigator_origin_id,
                    instigator_name=SENSOR,
                    instigator_type=InstigatorType.SENSOR,
                    status=TickStatus.STARTED,
                    timestamp=1.0,
                    selector_id=state.selector_id,
                )
            )
            running = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED).run_id

        def watched(tools: Tools, program: str, of: str, arguments: Sequence[str], **rest: Any) -> None:  # noqa: ANN401
            real(tools, program, of, arguments, **rest)
            order.append(DOMAIN if of == url else DAGSTER)  # noqa: B023 - called within this round
            if len(order) == 1:
                with psycopg.connect(url) as connection:  # noqa: B023
                    insert_documents(connection, [document(LATE, WORLD.entities[1])])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server_tools, "run", watched)
            manifest = backup(Connections(url, dagster_url), folder / "saved")
        tables = contents(url, *KEPT)
        database.close()
        yield Saved(folder / "saved", manifest, tables, running, order)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_PG_LINGER_SECONDS", "0")
    monkeypatch.setattr(restoring, "IN_USE_SECONDS", 0.2)


def altered(saved: Saved, folder: Path, change: Callable[[Manifest], Manifest]) -> Path:
    """A copy of the backup with another manifest."""
    shutil.copytree(saved.folder, folder)
    manifest = change(Manifest.read(folder))
    (folder / MANIFEST).write_text(manifest.text())
    return folder


def with_rows(manifest: Manifest, table: str) -> Manifest:
    """The manifest with one row more of a table of the domain than was saved."""
    dump = manifest.databases[DOMAIN]
    rows = {**dump.rows, table: dump.rows[table] + 1}
    return replace(manifest, databases={**manifest.databases, DOMAIN: replace(dump, rows=rows)})


def test_everything_goes_on_where_it_stood(saved: Saved, tmp_path: Path) -> None:
    """One restore, looked at from all sides: starting a server is what takes the time."""
    home = Home(tmp_path / "home")
    home.pg_dir.mkdir(parents=True)
    (home.pg_dir / "what was there").touch()
    with pytest.raises(RestoreError, match=r"holds databases already.*--replace"):
        restore(home, saved.folder)
    done = restore(home, saved.folder, replace=True)
    assert done.replaced is not None
    assert (done.replaced / "what was there").exists()
    assert not (home.path / "restoring").exists()
    with home.connect() as connections:
        with pytest.raises(RestoreError, match="are in use"):
            restore(home, saved.folder, replace=True)
        url = connections.domain_url
        database = Database(url)
        # No id was rewritten, and the server counts from above all of them.
        assert contents(url, *KEPT) == saved.tables
        assert database.transaction() >= saved.manifest.next_transaction_id
        assert seals.check(database).sound
        for cycle in recompute.stored_cycles(database):
            assert recompute.verify_cycle(database, cycle).differences == []
        empty_results(url)
        run(database, ago(days=2))
        run(database)
        assert contents(url) == {table: saved.tables[table] for table in RESULT_TABLES}
        # What was under way is ended, so that it is done again.
        assert done.interrupted_runs == [saved.running]
        assert done.resumed_ticks == 1
        with instance_of(connections.dagster_libpq_url, tmp_path / "instance") as instance:
            ended = instance.get_run_by_id(saved.running)
            assert ended is not None
            assert ended.status is dg.DagsterRunStatus.FAILURE
            state = sensor_state(instance)
            (one,) = instance.get_ticks(state.instigator_origin_id, state.selector_id)
            assert one.status is TickStatus.FAILURE
        # The sensor finds what its cursor had not seen, once, and what arrives now.
        assert isinstance(state.instigator_data, SensorInstigatorData)
        settle(url)
        found = tick.look(database, state.instigator_data.cursor, Debounce())
        (request,) = found.requests
        assert WORLD.entities[1] in request.entities
        with psycopg.connect(url) as connection:
            insert_documents(connection, [document(NEW, WORLD.entities[0])])
        settle(url)
        again = tick.look(database, found.cursor, Debounce())
        assert WORLD.entities[0] in {e for r in again.requests for e in r.entities}
        assert tick.look(database, again.cursor, Debounce()).requests == ()
        database.close()


def test_the_domain_is_never_older_than_what_the_orchestrator_says_of_it(saved: Saved) -> None:
    assert saved.order == [DAGSTER, DOMAIN]
    assert saved.manifest.databases[DOMAIN].rows["public.documents"] == len(WORLD.documents) + 1


def test_the_manifest_says_what_is_in_the_backup(saved: Saved) -> None:
    read = Manifest.read(saved.folder)
    assert read == saved.manifest
    for dump in read.databases.values():
        assert dump.sha256 == digest(saved.folder / dump.file)
        assert dump.bytes == (saved.folder / dump.file).stat().st_size
        assert dump.revision is not None
    assert read.links == read.databases[DOMAIN].rows["public.cycle_seals"] > 0
    assert sorted(p.name for p in saved.folder.iterdir()) == ["dagster.dump", "domain.dump", MANIFEST]
    assert saved.folder.stat().st_mode & 0o077 == 0, "others may read a backup"
    assert not list(saved.folder.parent.glob("*.partial"))


def cut_off(folder: Path) -> None:
    with (folder / "domain.dump").open("r+b") as file:
        file.truncate(100)


def flipped(folder: Path) -> None:
    content = bytearray((folder / "dagster.dump").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "dagster.dump").write_bytes(content)


def no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def newer_tables(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(re.sub(r'"revision": "0\d+"', '"revision": "9999"', text))


def other_format(folder: Path) -> None:
    (folder / MANIFEST).write_text('{"format": 2}')


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut_off, "domain database is missing or cut off"),
        (flipped, "dagster.dump is not what was written"),
        (no_manifest, "is no backup"),
        (newer_tables, "revision 9999, which this version does not know"),
        (other_format, "has the format 2"),
    ],
)
def test_a_damaged_backup_is_refused_before_anything_is_made(
    saved: Saved, tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved.folder, folder)
    damage(folder)
    with pytest.raises((BackupError, RestoreError), match=said):
        restore(Home(tmp_path / "home"), folder)
    assert not (tmp_path / "home").exists()


def test_a_failed_restore_leaves_nothing_that_looks_good(saved: Saved, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.pg_dir.mkdir(parents=True)
    wrong = altered(saved, tmp_path / "copy", lambda m: with_rows(m, "public.cycles"))
    with pytest.raises(RestoreError, match=r"not restored whole: public.cycles has 2 rows instead of 3"):
        restore(home, wrong, replace=True)
    assert [p.name for p in home.path.iterdir()] == ["pg"], "the former databases stay where they were"
    assert list(home.pg_dir.iterdir()) in ([], [home.pg_dir / "users.lock"])


def test_a_backup_is_never_overwritten_and_a_failed_one_leaves_nothing(
    tmp_path: Path, migrated_url: str, dagster_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(
        migrated_url, "postgresql" + dagster_database_url.removeprefix("postgresql+psycopg2")
    )
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    (tmp_path / "there.tar").touch()
    for name in ("there", "there.tar"):
        with pytest.raises(BackupError, match="exists already"):
            backup(connections, tmp_path / name)

    def full(*_: object, **__: object) -> None:
        raise ToolError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(server_tools, "run", full)
        with pytest.raises(ToolError):
            backup(connections, tmp_path / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["there", "there.tar"]


def test_the_tool_that_fits_is_chosen_and_its_absence_told() -> None:
    tools = [Tools(Path("/old"), 15), Tools(Path("/new"), 18)]
    assert [server_tools.for_dump(server, tools).major for server in (15, 16, 18)] == [15, 18, 18]
    assert [server_tools.for_restore(server, 15, tools).major for server in (15, 17, 18, 19)] == [
        15,
        15,
        18,
        18,
    ]
    with pytest.raises(ToolError, match=r"no pg_dump of that version.*there is 15, 18.*postgresql-client-19"):
        server_tools.for_dump(19, tools)
    with pytest.raises(ToolError, match=r"needs a pg_restore between.*there is 15, 18"):
        server_tools.for_restore(17, 16, tools)
    with pytest.raises(ToolError, match=r"written by pg_dump 18 and cannot be loaded into PostgreSQL 15"):
        server_tools.for_restore(15, 18, tools)


@pytest.fixture
def external(external_postgres: ExternalPostgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two empty databases of an external server, which the environment names."""
    urls = [external_postgres.url(name) for name in ("restored", "restored_dagster")]
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        for url in urls:
            connection.execute(f"CREATE DATABASE {url.rpartition('/')[2]}")
    monkeypatch.setenv(DATABASE_VARIABLE, urls[0])
    monkeypatch.delenv(DAGSTER_DATABASE_VARIABLE, raising=False)
    yield urls
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        for url in urls:
            connection.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


def empty(urls: list[str]) -> bool:
    there = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return all(psycopg.connect(url).execute(there).fetchone() == (0,) for url in urls)


def test_a_backup_of_a_newer_server_is_refused_by_an_older_one(
    saved: Saved, external: list[str], tmp_path: Path
) -> None:
    far = altered(saved, tmp_path / "copy", lambda m: replace(m, next_transaction_id=1))
    with pytest.raises(ToolError, match=r"written by pg_dump 18 and cannot be loaded into PostgreSQL 15"):
        restore(Home(tmp_path / "home"), far)
    assert empty(external)


def test_a_server_that_is_filled_or_has_not_counted_far_enough_is_refused(
    saved: Saved, migrated_url: str
) -> None:
    with pytest.raises(RestoreError, match=r"is not empty, and a restore replaces none.*DROP DATABASE"):
        restoring._refuse_filled(migrated_url)
    restoring._refuse_behind(migrated_url, replace(saved.manifest, next_transaction_id=1))
    with pytest.raises(RestoreError, match=r"to 30,064,771,072: .*pg_resetwal --epoch=8 -D DATA"):
        restoring._refuse_behind(migrated_url, replace(saved.manifest, next_transaction_id=7 << 32))


@pytest.mark.acceptance
def test_an_external_server_takes_its_own_backup_and_only_with_its_counter_ahead(
    external: list[str], external_postgres: ExternalPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    with home.connect() as connections:
        database = Database(connections.domain_url)
        from oracle_dagster.storage import migrate

        migrate.upgrade(database)
        with psycopg.connect(connections.domain_url) as connection:
            insert_world(connection, WORLD)
        run(database)
        tables = contents(connections.domain_url, *KEPT)
        database.close()
        made = backup(connections, tmp_path / "saved.tar")
    assert made.server_major == made.tool_major == 15
    with pytest.raises(RestoreError, match=r"'restored_dagster' .*is not empty|'restored' .*is not empty"):
        restore(home, tmp_path / "saved.tar")
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE other")
    other = external_postgres.url("other")
    monkeypatch.setenv(DATABASE_VARIABLE, other)
    with psycopg.connect(external_postgres.url("postgres")) as connection:
        (now,) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or (0,)
    folder = tmp_path / "unpacked"
    shutil.unpack_archive(tmp_path / "saved.tar", folder, filter="data")
    behind = Saved(folder, made, {}, "", [])
    ahead = altered(behind, tmp_path / "ahead", lambda m: replace(m, next_transaction_id=now + 2000))
    far = altered(behind, tmp_path / "far", lambda m: replace(m, next_transaction_id=7 << 32))
    with pytest.raises(RestoreError, match=r"pg_resetwal --epoch=8 -D DATA"):
        restore(home, far)
    with pytest.raises(RestoreError, match="use up the missing") as refused:
        restore(home, ahead)
    statement = re.search(r"DO \$\$.*\$\$;", str(refused.value))
    assert statement is not None
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute(statement[0].encode())
    both = [other, f"{other}_dagster"]
    wrong = altered(
        Saved(tmp_path / "ahead", made, {}, "", []),
        tmp_path / "wrong",
        lambda m: with_rows(m, "public.cycles"),
    )
    with pytest.raises(RestoreError, match="not restored whole"):
        restore(home, wrong)
    assert empty(both)
    restore(home, tmp_path / "ahead")
    assert contents(other, *KEPT) == tables
    database = Database(other)
    assert seals.check(database).sound
    database.close()


def test_the_embedded_server_is_not_created_twice(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    (tmp_path / "pg" / "data").mkdir(parents=True)
    (tmp_path / "pg" / "data" / "file").touch()
    with pytest.raises(Exception, match="numbers of its transactions are in use"):
        server.create(above_transaction=1)
    users = os.open(tmp_path / "pg" / "users.lock", os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_SH)
    with pytest.raises(Exception, match="is in use"):
        server.take_away(tmp_path / "elsewhere")
    os.close(users)
    assert STORAGE_VARIABLE not in os.environ
