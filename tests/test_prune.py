"""Pruning: what a kept cycle refers to stays, so it repeats bit for bit; the orchestrator loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from oracle_dagster import reporting
from oracle_dagster.housekeeping.prune import Pruned, prune
from oracle_dagster.pipeline import STAGES
from oracle_dagster.storage import configuration, migrate, seals
from oracle_dagster.storage.database import Database
from tests.chain_runs import Chain, database_name, fresh_database, keys_of, of_key
from tests.storage_rows import (
    RESULT_TABLES,
    Document,
    Impact,
    ago,
    contents,
    insert_documents,
    insert_world,
    make_world,
    rows,
)
from tests.test_pipeline import PROBABILISTIC, WORLD, run

LIMIT = ago(days=3)
KEPT_DAYS = (2.0, 1.0, 0.0)
RESULTS = (("recommendations", "generated_at"), ("trend_history", "generated_at"), ("cycle_keys", "as_of"))
EVERYTHING = (*RESULT_TABLES, "cycles", "run_log", "cycle_failures", "run_batches", "cycle_seals")


@pytest.fixture
def storage(dagster_database_url: str, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """The orchestrator on a real database."""
    settings = {"storage": {"postgres": {"postgres_url": dagster_database_url}}}
    (tmp_path / "dagster.yaml").write_text(json.dumps(settings))
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def plain(url: str) -> str:
    return "postgresql" + url.removeprefix("postgresql+psycopg2")


def pruned(database: Database, url: str, before: datetime = LIMIT, *, dry_run: bool = False) -> Pruned:
    return prune(database, plain(url), before, dry_run=dry_run)


# Of forty days and more; the newest three within the retention.
DAYS = (80, 70, 60, 50, 45, 40, 35, 30, 25, 20, 16, 14, 12, 10, 8, 6, 4, *KEPT_DAYS)


@pytest.fixture(scope="module", params=[False, True], ids=["heuristic", "probabilistic"])
def template(request: pytest.FixtureRequest, embedded_home: Path) -> Iterator[str]:
    """The name of a database with many cycles."""
    for url in fresh_database(embedded_home, "prune"):
        database = Database(url)
        migrate.upgrade(database)
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
        if request.param:
            configuration.activate(database, PROBABILISTIC, "ada", "mode")
        keys = [(entity, window) for entity in WORLD.entities[:3] for window in ("7d", "30d")]
        for days in DAYS:
            run(database, ago(days=days), keys=keys, run_id=f"run-{days:g}")
        database.close()
        yield database_name(url)


@pytest.fixture
def cycles_url(embedded_home: Path, template: str) -> Iterator[str]:
    yield from fresh_database(embedded_home, "pruned", template)


@pytest.fixture
def database(cycles_url: str) -> Iterator[Database]:
    database = Database(cycles_url)
    yield database
    database.close()


def test_every_cycle_from_the_limit_on_is_repeated_bit_for_bit_after_pruning(
    database: Database, cycles_url: str, storage: dg.DagsterInstance, dagster_database_url: str
) -> None:
    """Momentum, upstream rows, predecessors and accuracy of a repeat are what they were (decisions 5)."""
    assert storage.get_runs_count() == 0
    before = contents(cycles_url, *EVERYTHING)
    counted = pruned(database, dagster_database_url, dry_run=True)
    assert contents(cycles_url, *EVERYTHING) == before
    done = pruned(database, dagster_database_url)
    assert done.tables == counted.tables
    assert done.tables["cycle_keys"] > 0
    after = contents(cycles_url)
    for table in ("trend_windows", "weighted_signals", "trend_evidence", "source_accuracy"):
        assert after[table] == before[table], table
    for table, as_of in RESULTS:
        assert len(after[table]) == len(before[table]) - done.tables[table], table
        kept = f"SELECT count(*) FROM {table} WHERE {as_of} >= %s"
        assert rows(cycles_url, kept, LIMIT) != [(0,)] or table == "recommendations"
    with psycopg.connect(cycles_url) as connection:
        for table, as_of in (("trend_history", "generated_at"), ("trend_projections", "computed_at")):
            connection.execute(f"DELETE FROM {table} WHERE {as_of} >= %s", [LIMIT])
        connection.execute("DELETE FROM recommendations WHERE generated_at >= %s", [LIMIT])
    keys = [(entity, window) for entity in WORLD.entities[:3] for window in ("7d", "30d")]
    for days in KEPT_DAYS:
        run(database, ago(days=days), keys=keys, accuracy=False)
    assert contents(cycles_url) == after
    again = pruned(database, dagster_database_url)
    assert sum(again.tables.values()) == 0


def test_a_standing_recommendation_keeps_the_rows_of_its_cycle(
    database: Database, cycles_url: str, dagster_database_url: str, storage: dg.DagsterInstance
) -> None:
    assert storage.get_runs_count() == 0
    standing = """SELECT DISTINCT r.id, r.generated_at FROM cycle_keys c
                  JOIN recommendations r ON r.id = c.standing_recommendation_id WHERE c.as_of >= %s"""
    wanted = rows(cycles_url, standing, LIMIT)
    assert any(generated < LIMIT for _, generated in wanted), "no decision stands from before the limit"
    pruned(database, dagster_database_url)
    assert sorted(rows(cycles_url, standing, LIMIT)) == sorted(wanted)
    lonely = """SELECT count(*) FROM recommendations r WHERE NOT EXISTS (
                  SELECT FROM trend_history h JOIN cycles c ON c.as_of = h.generated_at
                    AND c.config_version = h.config_version
                  WHERE h.entity_id = r.entity_id AND h."window" = r.time_horizon
                    AND h.generated_at = r.generated_at)
                OR NOT EXISTS (SELECT FROM risk_evaluations e WHERE e.recommendation_id = r.id)"""
    assert rows(cycles_url, lonely) == [(0,)]


def test_a_key_whose_cycles_were_written_in_another_order_keeps_everything(
    database: Database, cycles_url: str, dagster_database_url: str, storage: dg.DagsterInstance
) -> None:
    """A late backfill of an old day is no predecessor of what was written before it."""
    assert storage.get_runs_count() == 0
    first, *others = WORLD.entities[:3]
    run(database, ago(days=5), keys=[(first, "7d")])
    pruned(database, dagster_database_url)
    number = "SELECT count(*) FROM trend_history WHERE entity_id = %s AND \"window\" = '7d'"
    assert rows(cycles_url, number, first) == [(len(DAYS) + 1,)]
    for other in others:
        assert rows(cycles_url, number, other) < [(len(DAYS),)]


def test_the_chain_of_hashes_stays_sound_and_says_where_it_starts(
    database: Database, dagster_database_url: str, storage: dg.DagsterInstance
) -> None:
    assert storage.get_runs_count() == 0
    assert seals.check(database).sound
    pruned(database, dagster_database_url)
    report = seals.check(database)
    assert report.sound
    assert report.start == LIMIT


def test_logs_go_with_their_cycles(
    database: Database, cycles_url: str, dagster_database_url: str, storage: dg.DagsterInstance
) -> None:
    assert storage.get_runs_count() == 0
    with psycopg.connect(cycles_url) as connection:
        for table, column in (("run_log", "logged_at"), ("cycle_failures", "failed_at")):
            connection.execute(f"UPDATE {table} SET {column} = %s", [ago(days=50)])
        connection.execute(
            "INSERT INTO run_batches VALUES (gen_random_uuid(), 'A', '7d', %s)", [ago(days=50)]
        )
        connection.execute(
            "INSERT INTO agent_performance_log (agent_slug, created_at) VALUES ('x', %s)", [ago(days=50)]
        )
    done = pruned(database, dagster_database_url)
    assert done.tables["run_batches"] == 1
    assert done.tables["agent_performance_log"] == 1
    kept = """SELECT count(*) FROM run_log l WHERE NOT EXISTS (
                SELECT FROM cycles c WHERE c.as_of = l.as_of AND c.config_version = l.config_version)"""
    assert rows(cycles_url, kept) == [(0,)]
    assert rows(cycles_url, "SELECT count(*) FROM run_log") != [(0,)]


def test_after_pruning_its_events_the_orchestrator_knows_what_it_knew(
    migrated_url: str, dagster_database_url: str, storage: dg.DagsterInstance
) -> None:
    """What is materialised, what is stale, which versions: and runs go on as before."""
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, make_world(2, 30, bars=60))
    first, second = sorted(make_world(2, 0).entities)
    chain = Chain(migrated_url, storage)
    reporting.report_inputs(storage, chain.database)
    for _ in range(2):
        assert chain.run().success
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document("news", (Impact(first),), published=ago(hours=2))])
    reporting.report_inputs(storage, chain.database)

    def known() -> dict[str, object]:
        keys = keys_of(first, second)
        return {
            "stale": {asset: chain.stale(asset, keys) for asset in STAGES},
            "materialised": {
                asset: sorted(storage.get_materialized_partitions(dg.AssetKey(asset))) for asset in STAGES
            },
            "versions": {asset: dict(chain.tags(asset, keys[0])) for asset in STAGES},
            "checks": {
                key: (record.run_id, record.status)
                for key, record in storage.event_log_storage.get_latest_asset_check_execution_by_key(
                    sorted(chain.defs.resolve_asset_graph().asset_check_keys)
                ).items()
            },
        }

    before = known()
    assert before["stale"] != {asset: [] for asset in STAGES}
    events = rows(plain(dagster_database_url), "SELECT count(*) FROM event_logs")[0][0]
    later = datetime.now(UTC) + timedelta(days=1)
    counted = prune(chain.database, plain(dagster_database_url), later, dry_run=True)
    assert rows(plain(dagster_database_url), "SELECT count(*) FROM event_logs") == [(events,)]
    done = prune(chain.database, plain(dagster_database_url), later)
    left = rows(plain(dagster_database_url), "SELECT count(*) FROM event_logs")[0][0]
    assert done.orchestrator["event_logs"] == counted.orchestrator["event_logs"] == events - left
    assert 0 < left < events / 2
    assert done.orchestrator["runs"] == 1, "of the first run no event is left; the second has the newest ones"
    assert known() == before
    assert chain.run(tags=of_key(first, "7d")).success
    assert chain.stale("recommendations", [f"{first}|7d"]) == []
    assert chain.stale("recommendations", [f"{first}|30d"]) == [f"{first}|30d"]
