"""The chain under the orchestrator: any keys in one run, exactly one event per key, honest failures."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from dagster._core.definitions.automation_tick_evaluation_context import (
    build_run_requests_with_backfill_policies,
)
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from oracle_core.cycle import project_trends
from oracle_core.frames import ProjectionFrame, TrendFrame
from oracle_core.inputs import CycleInputs
from oracle_dagster import pipeline, reporting
from oracle_dagster.as_of import AS_OF_TAG
from oracle_dagster.definitions import build_defs
from oracle_dagster.partitions import batch_tags, register_entities, split_key
from oracle_dagster.pipeline import STAGES
from oracle_dagster.storage import configuration, cycles, invariants, migrate
from oracle_dagster.storage.database import Database
from tests.chain_runs import WHEN, Chain, database_name, fresh_database, keys_of, of_key, of_range
from tests.storage_rows import AS_OF, Document, Impact, ago, insert_documents, insert_world, make_world, rows

SUBSETS = [subset for size in range(1, len(STAGES) + 1) for subset in itertools.combinations(STAGES, size)]
CHECKS = {
    "weighted_signals": {
        "ranges_and_invariants", "nothing_from_the_future", "inputs_are_fresh", "few_records_rejected",
    },
    "trend_windows": {
        "ranges_and_invariants", "evidence_exists", "nothing_from_the_future", "history_has_no_gap",
        "confidence_has_not_drifted", "contradiction_has_not_drifted",
    },
    "trend_projections": {"ranges_and_invariants"},
    "recommendations": {
        "ranges_and_invariants", "evidence_exists", "nothing_from_the_future", "few_suppressed",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def world_url(embedded_home: Path) -> Iterator[str]:
    """A database with a small world; tests of this file share it and only add cycles to it."""
    for url in fresh_database(embedded_home, "chain"):
        migrate.upgrade(Database(url))
        with psycopg.connect(url) as connection:
            insert_world(connection, make_world(2, 40, bars=60))
        yield url


ENTITIES = sorted(make_world(2, 0).entities)
FIRST, SECOND = ENTITIES


@pytest.fixture
def chain(world_url: str) -> Iterator[Chain]:
    """The chain on a fresh orchestrator's storage, after inputs were reported and all keys computed once.

    So every dependency has events: that is where runs without partition tags used to die.
    """
    with dg.DagsterInstance.ephemeral() as instance:
        chain = Chain(world_url, instance)
        reporting.report_inputs(instance, chain.database)
        assert chain.run().success
        yield chain


def test_a_run_without_partitions_takes_every_key_the_cycle_knows(chain: Chain) -> None:
    run = chain.run()
    assert run.success, run.error
    assert run.counts() == dict.fromkeys(STAGES, 10)
    assert sorted(map(str, run.materialised["recommendations"])) == sorted(keys_of(*ENTITIES))
    assert run.materialised["source_accuracy"] == [None], "source accuracy is one unpartitioned asset"


@pytest.mark.parametrize("form", ["batch", "range", "single key", "launchpad"])
def test_every_subset_of_the_chain_runs_in_every_form(chain: Chain, form: str) -> None:
    """Each of the 15 subsets, after earlier runs exist: exact events, none unpartitioned, all checks told.

    The two forms that name their partitions by tags share their code with the others from there on, so that
    the shortest and longest subsets do for them.
    """
    subsets = SUBSETS if form in {"batch", "launchpad"} else (*SUBSETS[:2], *SUBSETS[-2:])
    keys = {
        "batch": [f"{FIRST}|7d", f"{SECOND}|90d"],
        "range": [f"{FIRST}|1d", f"{FIRST}|7d"],
        "single key": [f"{SECOND}|30d"],
        "launchpad": keys_of(*ENTITIES),
    }[form]
    tags = {
        "batch": {},
        "range": of_range(keys[0], keys[-1]),
        "single key": of_key(SECOND, "30d"),
        "launchpad": {},
    }[form]
    given: dict[str, Any] = {}
    if form == "batch":
        batch = str(cycles.create_batch(chain.database, [split_key(key) for key in keys]))
        given, tags = {"batch_id": batch}, dict(batch_tags(batch, [split_key(key) for key in keys]))
    for subset in subsets:
        run = chain.run(tags=tags, assets=subset, **given)
        assert run.success, (subset, run.error)
        assert run.counts() == {asset: len(keys) for asset in STAGES if asset in subset}, subset
        for asset in subset:
            assert sorted(map(str, run.materialised[asset])) == sorted(keys), (subset, asset)
        told = {asset: {check for other, check in run.checks if other == asset} for asset in subset}
        assert told == {asset: CHECKS[asset] for asset in subset}, subset
        assert all(check.passed for check in run.checks.values()), subset


def test_thirty_seven_scattered_entities_of_five_hundred_are_one_run(embedded_home: Path) -> None:
    """A scattered set is no rectangle of partitions, so it travels as a batch: one run, not 37."""
    for url in fresh_database(embedded_home, "scattered"):
        with dg.DagsterInstance.ephemeral() as instance:
            chain = Chain(url, instance)
            migrate.upgrade(chain.database)
            names = [f"E{n:03d}" for n in range(500)]
            with psycopg.connect(url) as connection:
                insert_documents(connection, [Document(f"d-{name}", (Impact(name),)) for name in names])
            reporting.report_inputs(instance, chain.database)
            scattered = names[3::13][:37]
            keys = [(name, "7d") for name in scattered]
            batch = str(cycles.create_batch(chain.database, keys))
            run = chain.run(tags=batch_tags(batch, keys), batch_id=batch)
            assert run.success, run.error
            assert run.counts() == dict.fromkeys(STAGES, 37)
            assert {str(key).split("|")[0] for key in run.materialised["trend_windows"]} == set(scattered)
            with psycopg.connect(url) as connection:
                rows = connection.execute("SELECT DISTINCT entity_id FROM recommendations").fetchall()
            assert {row[0] for row in rows} == set(scattered)
            by_entity = chain.run(entities=scattered[:2], windows=["7d"], keys=[f"{names[0]}|1d"])
            assert sorted(map(str, by_entity.materialised["recommendations"])) == sorted(
                [f"{names[0]}|1d", f"{scattered[0]}|7d", f"{scattered[1]}|7d"]
            )


@pytest.mark.parametrize(
    ("entities", "windows", "runs"),
    [
        ("all 500", "all", 5),
        ("one", "one", 1),
        ("one", "all", 1),
        ("2 neighbours", "all", 2),
        ("3 scattered", "all", 3),
        ("37 scattered", "one", 37),
        ("37 scattered", "all", 185),
    ],
)
def test_the_number_of_runs_a_backfill_makes_is_the_one_the_readme_states(
    entities: str, windows: str, runs: int
) -> None:
    names = [f"E{n:03d}" for n in range(500)]
    chosen = {
        "all 500": names,
        "one": names[7:8],
        "2 neighbours": names[7:9],
        "3 scattered": names[7:12:2],
        "37 scattered": names[3::13][:37],
    }[entities]
    wanted = ["7d"] if windows == "one" else ["intraday", "1d", "7d", "30d", "90d"]
    with dg.DagsterInstance.ephemeral() as instance:
        register_entities(instance, names)
        partitions = [
            AssetKeyPartitionKey(dg.AssetKey(asset), dg.MultiPartitionKey({"entity": name, "window": window}))
            for asset in STAGES
            for name in chosen
            for window in wanted
        ]
        graph = build_defs().resolve_asset_graph()
        with partition_loading_context(dynamic_partitions_store=instance):
            requests = build_run_requests_with_backfill_policies(partitions, graph, instance)
    assert len(requests) == runs


def test_an_unknown_key_fails_by_itself_and_the_others_proceed(chain: Chain) -> None:
    run = chain.run(keys=[f"{FIRST}|7d", "nobody|7d", f"{FIRST}|2d", "no window"])
    assert run.success, "a partly failed run is a success whose checks name the rest"
    assert run.counts() == dict.fromkeys(STAGES, 1)
    for asset in STAGES:
        check = run.checks[asset, "ranges_and_invariants"]
        assert not check.passed
        assert check.metadata["failed_keys"].value == 3
        failing = check.metadata["failing"]
        assert isinstance(failing, dg.TableMetadataValue)
        reasons = {row.data["key"]: row.data["reason"] for row in failing.records}
        assert "no entity 'nobody'" in str(reasons["nobody|7d"])
        assert "no window '2d'" in str(reasons[f"{FIRST}|2d"])
        assert set(reasons) == {"nobody|7d", f"{FIRST}|2d", "no window|"}
    with chain.database.begin() as connection:
        rows = connection.exec_driver_sql(
            'SELECT entity_id, "window" FROM cycle_failures WHERE run_id = %s ORDER BY 1', (run.id,)
        ).all()
    assert {tuple(row) for row in rows} == {("nobody", "7d"), (FIRST, "2d"), ("no window", "")}


def test_a_run_with_nothing_usable_fails_and_says_why(chain: Chain) -> None:
    run = chain.run(keys=["nobody|7d"], assets=STAGES)
    assert not run.success
    assert "No key could be computed. nobody|7d: no entity 'nobody'" in run.error
    assert run.counts() == {}
    early = chain.run(as_of="1999-01-01T00:00:00Z", assets=STAGES)
    assert not early.success
    assert "No entity is known at as_of: load documents with `oracle ingest`" in early.error


def test_a_batch_that_does_not_exist_fails_with_its_id(chain: Chain) -> None:
    batch = str(uuid.uuid4())
    run = chain.run(batch_id=batch, assets=STAGES)
    assert not run.success
    assert batch in run.error


def test_a_key_that_a_rule_cannot_compute_leaves_the_others_standing(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C: honest partial success: its later stages are missing too, and every check says so."""

    def project(trends: TrendFrame, inputs: CycleInputs, *rest: Any) -> ProjectionFrame:  # noqa: ANN401
        if SECOND in inputs.entities[trends.keys.entity]:
            raise ZeroDivisionError("no number")
        return project_trends(trends, inputs, *rest)

    monkeypatch.setattr("oracle_dagster.pipeline.project_trends", project)
    run = chain.run(entities=[FIRST, SECOND], windows=["7d"])
    assert run.success, run.error
    both = sorted([f"{FIRST}|7d", f"{SECOND}|7d"])
    assert sorted(map(str, run.materialised["trend_windows"])) == both
    assert run.materialised["trend_projections"] == [f"{FIRST}|7d"]
    assert run.materialised["recommendations"] == [f"{FIRST}|7d"]
    assert run.checks["trend_windows", "ranges_and_invariants"].passed
    failed = run.checks["trend_projections", "ranges_and_invariants"]
    assert not failed.passed
    assert "no number" in str(failed.description)
    assert not run.checks["recommendations", "ranges_and_invariants"].passed
    alone = chain.run(entities=[SECOND], windows=["7d"])
    assert alone.success, alone.error
    assert alone.checks["trend_windows", "ranges_and_invariants"].passed
    for asset in STAGES[2:]:  # which no key of this run has reached
        check = alone.checks[asset, "ranges_and_invariants"]
        assert (check.passed, check.metadata["failed_keys"].value) == (False, 1)


@pytest.mark.parametrize(
    ("asset", "check", "damage"),
    [
        ("weighted_signals", "ranges_and_invariants", "UPDATE weighted_signals SET recency = 1.5"),
        ("weighted_signals", "ranges_and_invariants", "UPDATE weighted_signals SET combined = 'NaN'"),
        (
            "weighted_signals",
            "nothing_from_the_future",
            "UPDATE weighted_signals SET published_at = as_of + interval '1 second'",
        ),
        ("trend_windows", "ranges_and_invariants", "UPDATE trend_history SET trend_strength = 1.5"),
        (
            "trend_windows",
            "ranges_and_invariants",
            "DELETE FROM trend_history; UPDATE trend_windows SET config_version = 99",
        ),
        (
            "trend_windows",
            "ranges_and_invariants",
            """UPDATE trend_history
            SET top_opposing_evidence = '["x"]', top_supporting_evidence = '["x"]'""",
        ),
        ("trend_windows", "evidence_exists", "DELETE FROM trend_evidence"),
        (
            "trend_windows",
            "nothing_from_the_future",
            "UPDATE document_intelligence SET known_at = '2030-01-01Z'",
        ),
        ("trend_projections", "ranges_and_invariants", "UPDATE trend_projections SET momentum = 'Infinity'"),
        ("trend_projections", "ranges_and_invariants", "DELETE FROM trend_projections"),
        (
            "recommendations",
            "ranges_and_invariants",
            """UPDATE recommendations SET mode = 'production_eligible';
            UPDATE risk_evaluations SET eligible = false""",
        ),
        (
            "recommendations",
            "ranges_and_invariants",
            "UPDATE cycle_keys SET standing_recommendation_id = NULL",
        ),
        ("recommendations", "ranges_and_invariants", "DELETE FROM risk_evaluations"),
        (
            "recommendations",
            "evidence_exists",
            "UPDATE recommendations SET mode = 'simulation_eligible'; DELETE FROM recommendation_evidence",
        ),
        (
            "recommendations",
            "nothing_from_the_future",
            "UPDATE document_intelligence SET published_at = '2030-01-01Z', known_at = '2030-01-01Z'",
        ),
    ],
)
def test_every_check_turns_red_on_damaged_rows(
    damaged: tuple[str, cycles.Cycle], asset: str, check: str, damage: str
) -> None:
    """A check never seen red proves nothing; each finds its own kind of damage and names the keys."""
    url, cycle = damaged
    database = Database(url)
    keys = [(FIRST, window) for window in ("7d", "30d", "90d")]
    before = invariants.find_faults(database, cycle, {asset: keys})
    assert before[asset, check] == []
    with psycopg.connect(url) as connection:
        connection.execute(damage)
    after = invariants.find_faults(database, cycle, {asset: keys})
    assert {fault.key for fault in after[asset, check]} <= set(keys)
    assert after[asset, check] != []
    database.close()


@pytest.fixture
def damaged(embedded_home: Path, template: tuple[str, cycles.Cycle]) -> Iterator[tuple[str, cycles.Cycle]]:
    """A copy of a computed world, for one test to damage; without the constraints that would refuse it."""
    for url in fresh_database(embedded_home, "damaged", template=database_name(template[0])):
        yield url, template[1]


@pytest.fixture(scope="module")
def template(embedded_home: Path) -> Iterator[tuple[str, cycles.Cycle]]:
    """A computed world of documents that support decisions, whose tables accept any value."""
    for url in fresh_database(embedded_home, "template"):
        database = Database(url)
        migrate.upgrade(database)
        strong = [
            Document(f"strong-{n}", (Impact(FIRST, 1.0, 0.9),), published=ago(hours=n), source=f"source-{n}")
            for n in range(1, 9)
        ]
        with psycopg.connect(url) as connection:
            insert_world(connection, make_world(2, 40, bars=60))
            insert_documents(connection, strong)
        cycle = pipeline.open_cycle(database, AS_OF)
        keys = [(FIRST, window) for window in ("7d", "30d", "90d")]
        pipeline.run_stages(database, cycle, keys, STAGES, run_id="computed")
        with psycopg.connect(url) as connection:
            constraints = connection.execute(
                "SELECT conrelid::regclass::text, conname FROM pg_constraint "
                "WHERE contype IN ('c', 'f') AND connamespace = 'public'::regnamespace"
            ).fetchall()
            for table, name in constraints:
                connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}" CASCADE')
        database.close()
        yield url, cycle


def test_a_changed_eligibility_threshold_makes_only_recommendations_stale(chain: Chain) -> None:
    """dagster.md 7: every asset depends directly on the settings that can reach it."""
    keys = [f"{FIRST}|7d", f"{SECOND}|30d"]
    config = configuration.active(chain.database).config
    changed = config.with_settings({"eligibility.min_confidence": 0.36})
    assert all(chain.stale(asset, keys) == [] for asset in STAGES)
    reporting.report_configuration(chain.instance, changed)
    assert chain.stale("recommendations", keys) == keys
    assert [asset for asset in STAGES if chain.stale(asset, keys)] == ["recommendations"]
    longer = config.with_settings({"scoring.half_life_hours.7d": 60.0})
    reporting.report_configuration(chain.instance, longer)
    assert [asset for asset in STAGES if chain.stale(asset, keys) == keys] == list(STAGES)
    reporting.report_configuration(chain.instance, config)
    assert all(chain.stale(asset, keys) == [] for asset in STAGES), "the old values are computed already"


def test_a_new_document_makes_only_its_entity_stale(chain: Chain) -> None:
    """Input assets are partitioned by entity: one new document must not make 50,000 partitions stale."""
    keys = [f"{FIRST}|7d", f"{SECOND}|7d"]
    told = reporting.report_versions(chain.instance, {}, {"documents": {FIRST: "1001-5000"}})
    assert told == 1
    assert chain.stale("weighted_signals", keys) == [f"{FIRST}|7d"]
    assert chain.stale("recommendations", keys) == [f"{FIRST}|7d"], "data quality looks at the documents too"
    assert chain.stale("trend_windows", keys) == [], "staleness is one hop: its signals are the same so far"
    assert chain.run(tags=of_key(FIRST, "7d")).success
    assert all(chain.stale(asset, keys) == [] for asset in STAGES)


def test_what_a_partition_was_computed_from_is_on_its_event(chain: Chain) -> None:
    tags = chain.tags("trend_windows", f"{FIRST}|7d")
    signals = chain.tags("weighted_signals", f"{FIRST}|7d")
    assert tags["dagster/input_data_version/weighted_signals"] == signals["dagster/data_version"]
    config = configuration.active(chain.database).config
    assert tags["dagster/input_data_version/trend_config"] == config.fingerprint("trend", "regime")
    assert tags["dagster/code_version"] == "1"
    assert {tags["dagster/partition/entity"], tags["dagster/partition/window"]} == {FIRST, "7d"}
    assert "dagster/input_data_version/decision_config" not in tags


def test_a_run_says_where_its_time_went_on_every_event_and_in_its_log(chain: Chain, world_url: str) -> None:
    """Reading, scoring, trends, writing, reporting; in no result table, as a repeat writes the same."""
    run = chain.run(keys=[f"{FIRST}|7d"])
    key = dg.AssetKey("recommendations")
    record = chain.instance.fetch_materializations(key, 1).records[0]
    profile = record.asset_materialization.metadata["run_profile"].value  # type: ignore[union-attr]
    told = [phase.split()[0] for phase in str(profile).split(", ")]
    assert [name for name in told if name in {"read", "score", "trend", "write", "seal", "report"}] == [
        "read", "score", "write", "trend", "seal", "report",
    ]  # fmt: skip
    log = "SELECT rows, seconds > 0, details->'phases' FROM run_log WHERE run_id = %s AND stage = 'report'"
    ((told_rows, took_time, phases),) = rows(world_url, log, run.id)
    assert (told_rows, took_time) == (4, True)
    assert {"read", "score", "trend", "write", "seal", "report"} <= set(phases)


def test_an_unchanged_result_keeps_its_data_version(chain: Chain) -> None:
    before = chain.tags("recommendations", f"{FIRST}|7d")["dagster/data_version"]
    assert chain.run(tags=of_key(FIRST, "7d")).success
    assert chain.tags("recommendations", f"{FIRST}|7d")["dagster/data_version"] == before


def test_a_run_looks_from_its_creation_and_writes_that_down(chain: Chain) -> None:
    run = chain.run(as_of=None, tags=of_key(FIRST, "7d"))
    assert run.success, run.error
    record = chain.instance.get_run_record_by_id(run.id)
    assert record is not None
    created = record.create_timestamp.astimezone(UTC)
    stored = datetime.fromisoformat(record.dagster_run.tags[AS_OF_TAG])
    assert stored == created
    retried = chain.job.execute_in_process(
        instance=chain.instance,
        tags={**of_key(FIRST, "7d"), "dagster/root_run_id": run.id, "dagster/parent_run_id": run.id},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    again = chain.instance.get_run_by_id(retried.run_id)
    assert again is not None
    if again.root_run_id == run.id:
        assert again.tags[AS_OF_TAG] == record.dagster_run.tags[AS_OF_TAG], "a retry shares the moment"


def test_the_parts_of_a_backfill_share_its_moment(chain: Chain) -> None:
    moment = datetime(2026, 3, 11, 6, 30, 0, 250_000, tzinfo=UTC)
    chain.instance.add_backfill(
        PartitionBackfill(
            backfill_id="backfill",
            status=BulkActionStatus.REQUESTED,
            from_failure=False,
            tags={},
            backfill_timestamp=moment.timestamp(),
        )
    )
    for window in ("1d", "7d"):
        run = chain.run(as_of=None, tags={**of_key(FIRST, window), "dagster/backfill": "backfill"})
        assert run.success, run.error
        stored = chain.instance.get_run_by_id(run.id)
        assert stored is not None
        assert stored.tags[AS_OF_TAG] == "2026-03-11T06:30:00.250000Z"


def test_the_field_wins_over_the_tag(chain: Chain) -> None:
    tagged = chain.run(as_of=None, tags={**of_key(FIRST, "7d"), AS_OF_TAG: "2026-03-10T09:00:00Z"})
    given = chain.run(as_of=WHEN, tags={**of_key(FIRST, "7d"), AS_OF_TAG: "2026-03-10T09:00:00Z"})
    with chain.database.begin() as connection:
        rows = connection.exec_driver_sql(
            "SELECT run_id, as_of FROM run_log WHERE run_id IN (%s, %s) AND stage = 'recommendations'",
            (tagged.id, given.id),
        ).all()
    assert dict(tuple(row) for row in rows) == {
        tagged.id: datetime(2026, 3, 10, 9, tzinfo=UTC),
        given.id: AS_OF,
    }
    wrong = chain.run(as_of="2026-03-10", tags=of_key(FIRST, "7d"))
    assert not wrong.success
    assert "not a moment with an offset; write it like 2016-11-08T00:00:00Z" in wrong.error
