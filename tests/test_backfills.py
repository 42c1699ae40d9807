"""Backfills, partial failure, cancelling and news under the real user interface and daemon."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import psycopg
import pytest

from oracle_dagster.as_of import AS_OF_TAG, format_as_of
from oracle_dagster.launch import run_cycle
from oracle_dagster.partitions import Key, split_key
from oracle_dagster.pipeline import STAGES
from oracle_dagster.sensors import SENSOR
from tests.chain_runs import Chain
from tests.operation import (
    Operated,
    assert_same_tables,
    locked,
    operated,
    undisturbed,
    wait_until_blocked,
)
from tests.services import service, wait_for
from tests.storage_rows import AS_OF, WINDOWS, make_world, rows
from tests.test_sensor_live import (
    assert_refreshed,
    by_the_sensor,
    insert_news,
    looked,
    now,
    within_two_ticks,
)
from tests.ui_client import Backfill, Client

WORLD = make_world(6, 60, bars=60)
E = WORLD.entities
WHEN = format_as_of(AS_OF)
RANGE = [f"{entity}|7d" for entity in E[:2]]
# One key of the range, so that two runs work on it at once, and one that the table refuses.
SCATTERED = [f"{E[0]}|7d", f"{E[3]}|30d"]
EVERYTHING = [f"{entity}|{window}" for entity in E for window in WINDOWS]
REFUSE = f"ALTER TABLE trend_projections ADD CONSTRAINT refused CHECK (entity_id <> '{E[3]}')"


def ended(client: Client, backfill_id: str) -> Backfill:
    """How a backfill ended; the daemon looks every 30 seconds."""
    found = wait_for("the backfill ends", lambda: client.finished(backfill_id), 400)
    assert isinstance(found, Backfill)
    return found


def keys_of_the_run(chain: Chain, run_id: str, asset: str) -> set[str | None]:
    """The partitions of an asset that a run reported, each once."""
    run = chain.seen(run_id)
    run.counts()
    return set(run.materialised.get(asset, []))


def cancel_and_continue(at: Operated, client: Client, chain: Chain, key: str) -> None:
    """A run is cancelled in its middle, and re-executed from failure as of the same moment."""
    entity, window = split_key(key)
    config = {
        "ops": {"decision_chain": {"config": {"entities": [entity], "windows": [window]}}},
        "resources": {"cycle": {"config": {"as_of": WHEN}}},
    }
    with locked(at.url, "trend_windows"):
        run_id = client.launch(config)
        wait_until_blocked(at.url)
        client.terminate(run_id)
        # Though it waits for the database: the lock is still held.
        assert wait_for("the run is cancelled", lambda: client.ended(run_id)) == "CANCELED"
    assert chain.seen(run_id).counts() == {}
    assert rows(at.url, "SELECT FROM trend_windows WHERE entity_id = %s", entity) == []
    again = client.execute_again(run_id)
    assert wait_for("the re-execution ends", lambda: client.ended(again)) == "SUCCESS"
    assert keys_of_the_run(chain, again, "recommendations") == {key}
    assert "source_accuracy" not in chain.seen(again).materialised, "what had succeeded is not repeated"
    run = at.instance.get_run_by_id(again)
    assert run is not None
    assert (run.parent_run_id, run.tags[AS_OF_TAG]) == (run_id, WHEN)


def assert_honest(at: Operated, chain: Chain, backfill: Backfill) -> str:
    """One of two scattered keys failed in the third stage: everybody says so, and the other stands."""
    failed = SCATTERED[1]
    assert backfill.status == "COMPLETED_FAILED"
    assert backfill.counts == {
        "weighted_signals": (2, 2, 0),
        "trend_windows": (2, 2, 0),
        "trend_projections": (2, 1, 1),
        "recommendations": (2, 1, 1),
    }
    query = 'SELECT DISTINCT run_id, stage, entity_id, "window" FROM cycle_failures'
    found = rows(at.url, query)
    assert {row[1:] for row in found} == {
        ("trend_projections", *split_key(failed)),
        ("recommendations", *split_key(failed)),
    }
    (run_id,) = {str(row[0]) for row in found}
    assert run_id in backfill.runs
    for asset in STAGES:
        check = chain.seen(run_id).checks[asset, "ranges_and_invariants"]
        assert check.passed is (asset in STAGES[:2])
        if not check.passed:
            table = check.metadata["failing"]
            assert isinstance(table, dg.TableMetadataValue)
            assert [row.data["key"] for row in table.records] == [failed]
    return run_id


@pytest.mark.timeout(1800)
# Services and their workers cost minutes of processor time, so that both rounds belong to the long tier.
@pytest.mark.acceptance
@pytest.mark.parametrize("full", [False, True])
def test_backfills_fail_honestly_are_cancelled_and_repeated_and_news_are_refreshed(
    tmp_path: Path,
    migrated_url: str,
    monkeypatch: pytest.MonkeyPatch,
    full: bool,
) -> None:
    """One service through a week of operation, since each start and each backfill costs so much.

    In full also a single key and everything, by backfill.
    """
    monkeypatch.setenv("ORACLE_SENSOR_QUIET_SECONDS", "0")
    monkeypatch.setenv("ORACLE_SENSOR_INTERVAL_SECONDS", "1")
    with operated(tmp_path / "home", WORLD) as at, service(at.home.path) as dev:
        chain = Chain(at.url, at.instance)
        with psycopg.connect(at.url) as connection:
            connection.execute(REFUSE)
        client = Client(dev.ready())
        of_range = client.range(as_of=WHEN, start=RANGE[0], end=RANGE[-1])
        scattered = client.backfill(as_of=WHEN, partitionNames=SCATTERED)
        computed = {*RANGE, *SCATTERED}

        # While the daemon works on these.
        cancelled = f"{E[5]}|1d"
        cancel_and_continue(at, client, chain, cancelled)
        computed.add(cancelled)

        backfill = ended(client, of_range)
        assert backfill.status == "COMPLETED_SUCCESS"
        assert backfill.counts == dict.fromkeys(STAGES, (2, 2, 0))
        assert len(backfill.runs) == 1
        failed_run = assert_honest(at, chain, ended(client, scattered))

        with psycopg.connect(at.url) as connection:
            connection.execute("ALTER TABLE trend_projections DROP CONSTRAINT refused")
        repeated = run_cycle(at.home, from_failed_run=failed_run)
        assert (repeated.status, repeated.keys) == ("success", 1), repeated.message
        assert repeated.computed == {"trend_projections": 1, "recommendations": 1}
        for asset in STAGES[2:]:
            assert keys_of_the_run(chain, repeated.run_id, asset) == {SCATTERED[1]}
        if full:
            single = client.backfill(as_of=WHEN, partitionNames=[f"{E[4]}|90d"])
            everything = client.backfill(as_of=WHEN, allPartitions=True)
            assert ended(client, single).counts == dict.fromkeys(STAGES, (1, 1, 0))
            of_all = ended(client, everything)
            assert (of_all.status, len(of_all.runs)) == ("COMPLETED_SUCCESS", len(WINDOWS))
            assert of_all.counts == dict.fromkeys(STAGES, (30, 30, 0))
            computed = set(EVERYTHING)
        keys: set[Key] = {split_key(key) for key in computed}
        assert_same_tables(at.url, undisturbed(migrated_url, WORLD, (AS_OF, keys)))
        print(f"{len(keys)} keys by backfills, repeat and re-execution: result tables equal")

        client.start_sensor(SENSOR)
        left_over = 0 if full else 1  # where everything was computed, nothing is evaluated twice
        wait_for("the first look", lambda: looked(at.instance), 280)
        by_the_sensor(at.instance, left_over)
        committed = insert_news(at.url, "news", [E[0]], published=now(at.url))
        *first, second = by_the_sensor(at.instance, left_over + 1)
        for run in first:
            assert_refreshed(at.instance, run, E)
        assert_refreshed(at.instance, second, (E[5], E[0], E[1]))  # with its two neighbours in the ring
        within_two_ticks(at.instance, committed, second)
