"""The doctor names what is wrong and what to do: each situation is really made."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import psycopg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteJobOrigin,
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
from dagster._daemon.types import DaemonHeartbeat
from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

from oracle_dagster import doctor, tick
from oracle_dagster.doctor import Verdict
from oracle_dagster.home import Connections, Home
from oracle_dagster.housekeeping.entities import rename
from oracle_dagster.news import Cursor
from oracle_dagster.sensors import AUTOMATION_VARIABLE, SENSOR
from oracle_dagster.storage.database import Database
from oracle_dagster.workers import HOST_TAG, host_name
from tests.chain_runs import fresh_database
from tests.storage_rows import Document, Impact, insert_documents

ORIGIN = RemoteInstigatorOrigin(
    RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("oracle"), "__repository__"), SENSOR
)


@pytest.fixture(scope="module")
def domain_url(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    yield from fresh_database(embedded_home, "examined", migrated_template)


@pytest.fixture(scope="module")
def storage_url(embedded_home: Path, dagster_template: str) -> Iterator[str]:
    yield from fresh_database(embedded_home, "examined", dagster_template)


@pytest.fixture
def there(domain_url: str, storage_url: str) -> Connections:
    """Both databases: one pair for all tests, for copying them takes longer than looking."""
    return Connections(domain_url, storage_url)


@pytest.fixture
def database(domain_url: str) -> Iterator[Database]:
    database = Database(domain_url)
    yield database
    database.close()


@pytest.fixture
def instance(there: Connections, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """The orchestrator on a real database."""
    settings = {"storage": {"postgres": {"postgres_url": there.dagster_url}}}
    (tmp_path / "dagster.yaml").write_text(json.dumps(settings))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def sensor_at(instance: dg.DagsterInstance, cursor: str, status: InstigatorStatus) -> InstigatorState:
    """Let the sensor be at a cursor, switched on or off."""
    state = InstigatorState(ORIGIN, InstigatorType.SENSOR, status, SensorInstigatorData(cursor=cursor))
    there = any(s.instigator_name == SENSOR for s in instance.all_instigator_state())
    (instance.update_instigator_state if there else instance.add_instigator_state)(state)
    return state


def test_a_full_disk_is_told_before_it_stops_the_database(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert doctor.disk(home, low=0, full=0).verdict is Verdict.OK
    low = doctor.disk(home, low=10**18, full=0)
    assert (low.verdict, "oracle prune --older-than" in low.remedy) == (Verdict.NOTICE, True)
    full = doctor.disk(home, low=10**18, full=10**18)
    assert (full.verdict, "move the home to another disk" in full.remedy) == (Verdict.BROKEN, True)


def test_tables_that_were_never_made_or_are_older_are_told_with_the_command(
    database_url: str, database: Database
) -> None:
    assert doctor.tables(database).verdict is Verdict.OK
    with psycopg.connect(database._conninfo) as connection:
        (head,) = connection.execute("SELECT version_num FROM oracle_schema_version").fetchone() or ("",)
        connection.execute("UPDATE oracle_schema_version SET version_num = '0003'")
    never = Database(database_url)
    for each in (never, database):
        found = doctor._guarded("tables", lambda each=each: doctor.tables(each))  # type: ignore[misc]
        assert found.verdict is Verdict.BROKEN
        assert found.remedy == "run `oracle init`"
        assert "missing or older" in found.found
    never.close()
    with psycopg.connect(database._conninfo) as connection:
        connection.execute("UPDATE oracle_schema_version SET version_num = %s", [head])


def test_tables_of_another_orchestrator_are_told(there: Connections) -> None:
    assert doctor.orchestrator_tables(there).verdict is Verdict.OK
    with psycopg.connect(there.dagster_libpq_url) as connection:
        (head,) = connection.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
        connection.execute("UPDATE alembic_version SET version_num = 'of long ago'")
    found = doctor.orchestrator_tables(there)
    assert found.verdict is Verdict.BROKEN
    assert "at revision of long ago" in found.found
    assert "dagster instance migrate" in found.remedy
    with psycopg.connect(there.dagster_libpq_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [head])


def test_a_sensor_that_is_off_or_fails_is_told(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AUTOMATION_VARIABLE, raising=False)
    assert doctor.sensor(instance).verdict is Verdict.OK
    monkeypatch.setenv(AUTOMATION_VARIABLE, "off")
    off = doctor.sensor(instance)
    assert (off.verdict, "ORACLE_AUTOMATION is off" in off.found) == (Verdict.NOTICE, True)
    state = sensor_at(instance, "", InstigatorStatus.STOPPED)
    monkeypatch.delenv(AUTOMATION_VARIABLE)
    off = doctor.sensor(instance)
    assert (off.verdict, off.found[:12]) == (Verdict.NOTICE, "switched off")
    assert "under Automation" in off.remedy
    sensor_at(instance, "", InstigatorStatus.RUNNING)

    def looked(status: TickStatus, moment: float, why: SerializableErrorInfo | None = None) -> None:
        instance.create_tick(
            TickData(
                instigator_origin_id=state.instigator_origin_id,
                instigator_name=SENSOR,
                instigator_type=InstigatorType.SENSOR,
                status=status,
                timestamp=moment,
                selector_id=state.selector_id,
                error=why,
                run_ids=[],
            )
        )

    looked(TickStatus.SUCCESS, 1.0)
    on = doctor.sensor(instance)
    assert (on.verdict, "on, last looked" in on.found) == (Verdict.OK, True)
    why = SerializableErrorInfo("the\ncursor cannot be read", [], "CursorError")
    looked(TickStatus.FAILURE, 2.0, why)
    failed = doctor.sensor(instance)
    assert failed.verdict is Verdict.BROKEN
    assert "failed: the cursor cannot be read" in failed.found


def test_the_transaction_that_holds_the_sensor_back_is_named_and_its_end_frees_it(
    database: Database, there: Connections, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sits in another database of the server, as an open write of the orchestrator would."""
    sensor_at(instance, tick.start(database), InstigatorStatus.RUNNING)
    assert doctor.new_inputs(database, instance).found == "none waits"
    address = f"{there.dagster_libpq_url}&application_name=nightly%20export"
    with contextlib.closing(psycopg.connect(address)) as holder:
        holder.execute("SELECT pg_current_xact_id()")
        with psycopg.connect(database._conninfo) as connection:
            insert_documents(connection, [Document("new", (Impact("A"),))])
        young = doctor.new_inputs(database, instance)
        assert young.verdict is Verdict.OK
        assert "2 rows wait" in young.found
        monkeypatch.setattr(doctor, "LONG_TRANSACTION_SECONDS", 0)
        pid = holder.info.backend_pid
        for found in (doctor.new_inputs(database, instance), doctor.long_transactions(database)):
            for word in (
                f"pid {pid}",
                "nightly export",
                "idle in transaction",
                "open since 20",
                "pg_current_xact_id",
            ):
                assert word in found.found, found
            assert f"SELECT pg_terminate_backend({pid})" in found.remedy
        assert doctor.new_inputs(database, instance).verdict is Verdict.BROKEN
        with psycopg.connect(database._conninfo) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    freed = doctor.new_inputs(database, instance)
    assert (freed.verdict, "the next look takes them up" in freed.found) == (Verdict.OK, True)


def test_a_cursor_of_another_server_is_told(database: Database, instance: dg.DagsterInstance) -> None:
    ahead = replace(Cursor.parse(tick.start(database)), xid=1 << 40)
    sensor_at(instance, ahead.text(), InstigatorStatus.RUNNING)
    found = doctor.new_inputs(database, instance)
    assert found.verdict is Verdict.BROKEN
    assert "numbers transactions anew" in found.found
    assert "oracle restore" in found.remedy


def test_runs_without_a_worker_and_a_queue_that_rests_are_told(
    instance: dg.DagsterInstance, there: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.stuck_runs(instance, there).found == "none"
    create_run_for_test(
        instance,
        status=dg.DagsterRunStatus.QUEUED,
        remote_job_origin=RemoteJobOrigin(ORIGIN.repository_origin, "aggregation_cycle"),
    )
    assert doctor.stuck_runs(instance, there).verdict is Verdict.OK
    monkeypatch.setattr(doctor, "QUEUE_SECONDS", 0)
    queued = doctor.stuck_runs(instance, there)
    assert (queued.verdict, "1 wait in the queue" in queued.found) == (Verdict.NOTICE, True)
    assert "oracle dev" in queued.remedy
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    run = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED, tags={HOST_TAG: host_name()})
    data = EngineEventData(metadata={"pid": dg.MetadataValue.text(str(gone.pid))})
    instance.report_engine_event("started", run, data)
    lost = doctor.stuck_runs(instance, there)
    assert lost.verdict is Verdict.BROKEN
    assert f"{run.run_id} (STARTED): The process {gone.pid} that worked on this run is gone." in lost.found


def test_a_daemon_that_is_down_is_told(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    for heartbeat in (None, DaemonHeartbeat(1.0, "SENSOR", "id", [])):
        if heartbeat is not None:
            instance.add_daemon_heartbeat(heartbeat)
        found = doctor.daemon(Home(tmp_path), instance)
        assert found.verdict is Verdict.NOTICE
        assert "schedules and sensors rest" in found.found
        assert found.remedy == "start it with `oracle dev`"


def test_growth_of_the_events_and_sizes_are_told(
    instance: dg.DagsterInstance, there: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = doctor.growth(Home(tmp_path), there)
    assert quiet.verdict is Verdict.OK
    assert "MB, orchestrator's" in quiet.found
    before = int(quiet.found.split("; ")[1].split()[0])
    run = create_run_for_test(instance)
    for number in range(5):
        instance.report_engine_event(f"event {number}", run)
    assert f"{before + 5} events in the last day, about" in doctor.growth(Home(tmp_path), there).found
    monkeypatch.setattr(doctor, "EVENT_BYTES_PER_DAY", 1)
    much = doctor.growth(Home(tmp_path), there)
    assert (much.verdict, "oracle prune" in much.remedy) == (Verdict.NOTICE, True)


def test_inputs_under_a_name_instead_of_the_id_are_told(database: Database) -> None:
    with psycopg.connect(database._conninfo) as connection:
        insert_documents(connection, [Document("old", (Impact("Facebook"),))])
    rename(database, "Facebook", "Meta", by="ada", reason="")
    assert doctor.names(database).verdict is Verdict.OK
    with psycopg.connect(database._conninfo) as connection:
        insert_documents(connection, [Document("newest", (Impact("Meta"),))])
    found = doctor.names(database)
    assert (found.verdict, "Meta (id Facebook)" in found.found) == (Verdict.NOTICE, True)
