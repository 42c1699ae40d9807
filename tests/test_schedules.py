"""The schedules: which windows are computed when, as of the scheduled moment, and what of it is reported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from oracle_dagster.as_of import AS_OF_TAG
from oracle_dagster.definitions import defs
from oracle_dagster.partitions import register_entities
from oracle_dagster.pipeline import STAGES
from oracle_dagster.schedules import CADENCES, build_schedule
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database
from tests.chain_runs import Chain, Run, fresh_database
from tests.storage_rows import AS_OF, Document, Impact, ago, insert_documents

SCHEDULED = datetime(2026, 3, 10, 12, tzinfo=UTC)
assert SCHEDULED == AS_OF


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """On disk, because a schedule opens it by its address."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


@pytest.fixture
def chain(embedded_home: Path, instance: dg.DagsterInstance) -> Iterator[Chain]:
    """Three entities with old news: nothing about them changes within hours."""
    for url in fresh_database(embedded_home, "schedules"):
        migrate.upgrade(Database(url))
        with psycopg.connect(url) as connection:
            insert_documents(
                connection, [Document(name, (Impact(name),), published=ago(days=300)) for name in "ABC"]
            )
        register_entities(instance, "ABC")
        yield Chain(url, instance)


def due(instance: dg.DagsterInstance, name: str, scheduled: datetime = SCHEDULED) -> Any:  # noqa: ANN401
    """What the schedule asks for, evaluated now, long after it was due."""
    cadence = next(cadence for cadence in CADENCES if cadence.name == name)
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=scheduled)
    return build_schedule(cadence)(context)


def execute(chain: Chain, request: dg.RunRequest) -> Run:
    result = chain.job.execute_in_process(
        run_config=dict(request.run_config),
        instance=chain.instance,
        tags=dict(request.tags),
        asset_selection=list(request.asset_selection or ()),
    )
    return chain.seen(result.run_id)


def write(chain: Chain, documents: list[Document]) -> None:
    with chain.database.begin() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        insert_documents(raw, documents)


def observed(chain: Chain, run_id: str) -> dict[str, dict[str, Any]]:
    """Metadata of the observations of a run by asset; one asset observed twice fails here."""
    found: dict[str, dict[str, Any]] = {}
    for entry in chain.instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION):
        assert entry.dagster_event is not None
        observation = entry.dagster_event.asset_observation_data.asset_observation
        name = observation.asset_key.to_user_string()
        assert name not in found
        assert observation.partition is None
        found[name] = {key: value.value for key, value in observation.metadata.items()}
    return found


def test_every_cadence_has_a_schedule_that_is_on() -> None:
    crons = {
        "quarter_hourly_cycle": "*/15 * * * *",
        "hourly_cycle": "0 * * * *",
        "daily_cycle": "0 0 * * *",
        "daily_source_accuracy": "50 23 * * *",
    }
    repository = defs.get_repository_def()
    found = {schedule.name: schedule for schedule in repository.schedule_defs}
    assert {name: schedule.cron_schedule for name, schedule in found.items()} == crons
    assert {schedule.execution_timezone for schedule in found.values()} == {"UTC"}
    assert {schedule.default_status for schedule in found.values()} == {dg.DefaultScheduleStatus.RUNNING}


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("quarter_hourly_cycle", ("intraday", "1d")),
        ("hourly_cycle", ("7d",)),
        ("daily_cycle", ("30d", "90d")),
    ],
)
def test_a_cycle_computes_its_windows_of_every_entity_as_of_the_scheduled_moment(
    chain: Chain, name: str, windows: tuple[str, ...]
) -> None:
    """Also when it runs late: the clock is not asked."""
    request = due(chain.instance, name)
    assert request.tags[AS_OF_TAG] == "2026-03-10T12:00:00Z"
    assert request.run_config["resources"]["cycle"]["config"] == {"as_of": "2026-03-10T12:00:00Z"}
    run = execute(chain, request)
    assert run.success, run.error
    keys = [f"{entity}|{window}" for entity in "ABC" for window in windows]
    for asset in STAGES:
        assert sorted(map(str, run.materialised[asset])) == sorted(keys), "every first decision is a change"
    assert "source_accuracy" not in run.materialised
    with chain.database.begin() as connection:
        moments = connection.exec_driver_sql("SELECT DISTINCT as_of FROM cycles").scalars().all()
    assert moments == [SCHEDULED]


def test_a_late_run_equals_a_punctual_one(chain: Chain) -> None:
    """What became known after the scheduled moment does not reach it."""
    query = "SELECT * FROM recommendations ORDER BY id"
    assert execute(chain, due(chain.instance, "daily_cycle")).success
    with chain.database.begin() as connection:
        punctual = connection.exec_driver_sql(query).all()
        for table in (
            "recommendation_evidence",
            "risk_evaluations",
            "recommendations",
            "cycle_keys",
            "cycles",
        ):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    later = Document("late", (Impact("A"),), published=ago(hours=1), known=SCHEDULED + timedelta(seconds=1))
    write(chain, [later])
    assert execute(chain, due(chain.instance, "daily_cycle")).success
    with chain.database.begin() as connection:
        assert connection.exec_driver_sql(query).all() == punctual


def test_a_cycle_without_news_reports_one_observation_per_asset(chain: Chain) -> None:
    """Every key every quarter of an hour would be gigabytes of events a day that say nothing."""
    assert execute(chain, due(chain.instance, "quarter_hourly_cycle")).success
    quiet = execute(chain, due(chain.instance, "quarter_hourly_cycle", SCHEDULED + timedelta(minutes=15)))
    assert quiet.success, quiet.error
    assert quiet.materialised == {}
    assert {asset for asset, _ in quiet.checks} == set(STAGES), "all are checked, told of or not"
    about = {"unchanged": 6, "changed": 0, "as_of": "2026-03-10T12:15:00Z"}
    decided = {**about, "summary": "6 unchanged"}
    assert observed(chain, quiet.id) == {**dict.fromkeys(STAGES, about), "recommendations": decided}


def test_a_cycle_reports_exactly_the_partitions_whose_decision_changed(chain: Chain) -> None:
    assert execute(chain, due(chain.instance, "quarter_hourly_cycle")).success
    news = [
        Document(f"n{n}", (Impact("B"),), published=SCHEDULED + timedelta(minutes=5), source=f"s{n}")
        for n in range(4)
    ]
    write(chain, news)
    run = execute(chain, due(chain.instance, "quarter_hourly_cycle", SCHEDULED + timedelta(minutes=15)))
    for asset in STAGES:
        assert sorted(map(str, run.materialised[asset])) == ["B|1d", "B|intraday"], asset
    assert {about["unchanged"] for about in observed(chain, run.id).values()} == {4}


def test_source_accuracy_is_measured_daily_by_itself(chain: Chain) -> None:
    request = due(chain.instance, "daily_source_accuracy", datetime(2026, 3, 10, 23, 50, tzinfo=UTC))
    assert request.tags[AS_OF_TAG] == "2026-03-10T23:50:00Z"
    run = execute(chain, request)
    assert run.success, run.error
    assert run.materialised == {"source_accuracy": [None]}


def test_before_the_first_entity_a_schedule_says_why_it_skips(instance: dg.DagsterInstance) -> None:
    skipped = due(instance, "hourly_cycle")
    assert isinstance(skipped, dg.SkipReason)
    assert "No entity has a partition yet" in str(skipped.skip_message)


def test_one_moment_is_launched_once(chain: Chain) -> None:
    """The run key of a schedule is the moment, so a tick repeated after a crash launches nothing twice."""
    assert due(chain.instance, "hourly_cycle").run_key == due(chain.instance, "hourly_cycle").run_key
    next_hour = due(chain.instance, "hourly_cycle", SCHEDULED + timedelta(hours=1))
    assert next_hour.run_key != due(chain.instance, "hourly_cycle").run_key
