"""What warns: stale inputs, refused records, drift, gaps. And bad partitions go no further."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import numpy as np
import psycopg
import pytest
from scipy import stats

from oracle_dagster import pipeline, reporting, watching
from oracle_dagster.limits import Limits
from oracle_dagster.pipeline import STAGES, KeyReport
from oracle_dagster.storage import cycles, migrate, watch
from oracle_dagster.storage.cycles import Cycle
from oracle_dagster.storage.database import Database
from tests.chain_runs import Chain, Run, database_name, fresh_database, keys_of
from tests.storage_rows import AS_OF, Document, Impact, ago, insert_documents, insert_world, make_world, rows

ENTITIES = sorted(make_world(2, 0).entities)
FIRST, SECOND = ENTITIES
BAD = (FIRST, "7d")
LIMITS = Limits(least_keys=3, fresh_events_hours=48.0)


@pytest.fixture(scope="module")
def template(embedded_home: Path) -> Iterator[str]:
    """The name of a database with a small world, to be copied."""
    for url in fresh_database(embedded_home, "watched"):
        database = Database(url)
        migrate.upgrade(database)
        database.close()
        with psycopg.connect(url) as connection:
            insert_world(connection, make_world(2, 40, bars=60))
        yield database_name(url)


@pytest.fixture
def url(embedded_home: Path, template: str) -> Iterator[str]:
    yield from fresh_database(embedded_home, "watching", template=template)


@pytest.fixture
def chain(url: str) -> Iterator[Chain]:
    with dg.DagsterInstance.ephemeral() as instance:
        chain = Chain(url, instance)
        reporting.report_inputs(instance, chain.database)
        yield chain


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)


def spoil(url: str, table: str, change: str) -> None:
    """From now on the rows of the bad key are written wrongly: SQL stands for a fault in a rule."""
    execute(
        url,
        f"""CREATE FUNCTION spoil_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF NEW.entity_id = '{BAD[0]}' AND NEW."window" = '{BAD[1]}' THEN {change}; END IF;
                RETURN NEW;
            END $$""",
        f"CREATE TRIGGER spoil BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION spoil_{table}()",
    )


def failures(url: str, run: Run) -> dict[str, str]:
    """Stage and message of what a run recorded as failed; the bad key's only."""
    query = 'SELECT entity_id, "window", stage, message FROM cycle_failures WHERE run_id = %s'
    found = rows(url, query, run.id)
    assert {row[:2] for row in found} <= {BAD}
    return {stage: message for _, _, stage, message in found}


@pytest.mark.parametrize(
    ("table", "change", "reason"),
    [
        ("weighted_signals", "NEW.recency := 1.5", "a factor or weight is outside its range"),
        ("trend_history", "NEW.trend_strength := 1.5", "a number is outside [0, 1]"),
    ],
)
def test_a_bad_partition_is_held_back_and_the_good_ones_proceed(
    url: str, chain: Chain, table: str, change: str, reason: str
) -> None:
    asset = "trend_windows" if table == "trend_history" else table
    spoil(url, table, change)
    run = chain.run()
    assert run.success, run.error
    before, after = STAGES[: STAGES.index(asset) + 1], STAGES[STAGES.index(asset) + 1 :]
    assert run.counts() == {**dict.fromkeys(before, 10), **dict.fromkeys(after, 9)}
    found = failures(url, run)
    assert set(found) == {asset, *after}
    assert found[asset].startswith("held back")
    assert reason in found[asset]
    check = run.checks[asset, "ranges_and_invariants"]
    assert not check.passed
    assert check.metadata["failed_keys"].value == 1
    assert reason in str(check.description)
    for later in after:
        failed = run.checks[later, "ranges_and_invariants"]
        assert failed.metadata["failed_keys"].value == 1, "it is missing there, which is said"
        assert "held back" in str(failed.description)
        assert rows(url, f"SELECT count(*) FROM {later} WHERE entity_id = %s", FIRST) == [(4,)], later
    event = chain.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=["|".join(BAD)]), limit=1
    ).records[0]
    assert event.asset_materialization is not None
    assert reason in str(event.asset_materialization.metadata["held_back"].value)


def test_what_is_held_back_stays_so_in_a_run_of_a_later_stage_alone(url: str, chain: Chain) -> None:
    spoil(url, "trend_history", "NEW.confidence := -1")
    assert chain.run().success
    run = chain.run(assets=["recommendations"])
    assert run.counts() == {"recommendations": 9}
    assert (
        "trend_windows or trend_projections as stored breaks a rule" in failures(url, run)["recommendations"]
    )


def test_the_others_are_the_same_as_if_nobody_had_been_held_back(
    url: str, embedded_home: Path, template: str
) -> None:
    keys = [(entity, window) for entity in ENTITIES for window in ("7d", "30d")]
    database = Database(url)
    whole = pipeline.run_stages(database, pipeline.open_cycle(database, AS_OF), keys, STAGES, run_id="whole")
    database.close()
    for other in fresh_database(embedded_home, "spoiled", template=template):
        spoil(other, "trend_projections", "NEW.momentum := 'Infinity'")
        spoiled = Database(other)
        cycle = pipeline.open_cycle(spoiled, AS_OF)
        report = pipeline.run_stages(spoiled, cycle, keys, STAGES, run_id="spoiled")
        assert report.held_back == {BAD}
        for stage in STAGES:
            versions = {(r.entity_id, r.window): r.data_version for r in report.keys[stage]}
            expected = {(r.entity_id, r.window): r.data_version for r in whole.keys[stage]}
            assert {k: v for k, v in versions.items() if k != BAD} == {
                k: v for k, v in expected.items() if k != BAD
            }
        spoiled.close()


def test_a_recommendation_that_breaks_a_rule_is_recorded_as_failed(url: str, chain: Chain) -> None:
    execute(
        url,
        """CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN NEW.eligible := false; NEW.allowed_mode := 'informational'; RETURN NEW; END $$""",
        "CREATE TRIGGER spoil BEFORE INSERT ON risk_evaluations FOR EACH ROW EXECUTE FUNCTION spoil()",
        f"""CREATE FUNCTION spoil_mode() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.entity_id = '{BAD[0]}' AND NEW.time_horizon = '{BAD[1]}' THEN
            NEW.mode := 'simulation_eligible'; ELSE NEW.mode := 'informational'; END IF;
            RETURN NEW; END $$""",
        "CREATE TRIGGER spoil BEFORE INSERT ON recommendations FOR EACH ROW EXECUTE FUNCTION spoil_mode()",
    )
    run = chain.run()
    assert run.counts() == dict.fromkeys(STAGES, 10)
    assert "executable although a gate or the data quality failed" in failures(url, run)["recommendations"]


def watched(url: str, as_of_hours: float = 0.0, limits: Limits = LIMITS) -> dict[str, watching.Watched]:
    """The warnings about signals of a cycle that many hours after the usual one."""
    database = Database(url)
    cycle = cycles.open_cycle(database, AS_OF + timedelta(hours=as_of_hours), code_version="1")
    reports = {"weighted_signals": [KeyReport(*BAD, "", {})]}
    found = watching.watch_cycle(database, cycle, reports, limits)
    database.close()
    return {check: answer for (_, check), answer in found.items()}


def test_inputs_age_relative_to_the_cycle_and_only_by_what_it_could_see(migrated_url: str) -> None:
    assert watched(migrated_url)["inputs_are_fresh"].why.startswith("nothing to judge")
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document("old", (Impact("A"),), published=ago(hours=30))])
        insert_documents(connection, [Document("new", (Impact("A"),), published=ago(hours=3))])
    # The first cycle of this moment has settled what every repeat sees: before any document.
    assert watched(migrated_url)["inputs_are_fresh"].why.startswith("nothing to judge")
    fresh = watched(migrated_url, 1.0)["inputs_are_fresh"]
    assert fresh.passed
    assert fresh.shown["documents_age_hours"] == 4.0
    assert "newest_bars" not in fresh.shown, "what was never loaded is not judged"
    assert watched(migrated_url, 21.0)["inputs_are_fresh"].passed, "24 hours are not more than the limit"
    late = watched(migrated_url, 22.0)["inputs_are_fresh"]
    assert not late.passed
    assert late.why == "the newest of the documents became known 25.0 h before as_of, limit 24 h"
    assert not watched(migrated_url, -4.0, Limits(fresh_documents_hours=20.0))["inputs_are_fresh"].passed
    assert watched(migrated_url, 900.0, Limits(fresh_documents_hours=0.0))["inputs_are_fresh"].passed, "off"


def test_refused_documents_of_the_last_day_are_counted_until_they_are_mended(migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document(f"d{n}", (Impact("A"),)) for n in range(15)])
        connection.execute("UPDATE documents SET created_at = %s", (ago(hours=2),))
        connection.cursor().executemany(
            """INSERT INTO rejected_records (file, line, kind, reason, message, record, record_hash,
                   rejected_at) VALUES ('f', %s, 'documents', 'x', 'x', '', %s, %s)""",
            [(n, str(n), ago(hours=1)) for n in range(5)],
        )
    found = watched(migrated_url)["few_records_rejected"]
    assert not found.passed
    assert found.shown == {"rejected": 5, "share": 0.25, "limit": 0.05}
    assert watched(migrated_url, limits=Limits(max_rejected_share=0.25))["few_records_rejected"].passed
    assert watched(migrated_url, 30.0)["few_records_rejected"].passed, "it was more than a day before"
    execute(migrated_url, "UPDATE rejected_records SET resolved_at = rejected_at")
    assert watched(migrated_url)["few_records_rejected"].passed


def reports(suppressed: int, of: int) -> list[KeyReport]:
    reasons = [["stale_evidence"] if n < suppressed else [] for n in range(of)]
    return [KeyReport(f"E{n}", "7d", "", {"suppression_reasons": each}) for n, each in enumerate(reasons)]


def test_too_many_suppressed_recommendations_warn_and_few_keys_are_not_judged() -> None:
    limits = Limits(max_suppressed_share=0.5)
    assert watching.suppressed(reports(10, 20), limits).passed
    found = watching.suppressed(reports(11, 20), limits)
    assert not found.passed
    assert found.keys == [(f"E{n}", "7d") for n in range(11)]
    assert watching.suppressed(reports(19, 19), limits).passed


def earlier(values: np.ndarray[tuple[int, int], np.dtype[np.float64]], cycles_back: int = 5) -> watch.Earlier:
    """The values of that many cycles, each the given one of every key."""
    number = len(values)
    flat = np.tile(values, cycles_back)
    return watch.Earlier(np.tile(np.arange(number), cycles_back), flat, flat, cycles_back)


def test_drift_is_a_distance_of_distributions_that_chance_would_not_give() -> None:
    before = np.linspace(0.2, 0.8, 100)
    past = earlier(before)
    same = watching.drift(before[::-1], past, past.confidence, Limits())
    assert (same.passed, same.shown["drift"]) == (True, 0.0)
    moved = watching.drift(before + 0.3, past, past.confidence, Limits())
    assert not moved.passed
    assert moved.shown["drift"] == pytest.approx(0.5, abs=0.02)
    assert moved.shown["median"] == pytest.approx(0.8)
    reference = stats.ks_2samp(before + 0.3, past.confidence, method="asymp")
    assert moved.shown["drift"] == pytest.approx(reference.statistic, abs=1e-12)
    assert moved.shown["chance"] == pytest.approx(reference.pvalue, rel=0.5)
    assert watching.drift(before + 0.3, past, past.confidence, Limits(max_drift=0.6)).passed
    assert watching.drift(before[:19] + 0.3, earlier(before[:19]), before, Limits()).passed, "too few keys"
    short = earlier(before, 2)
    assert watching.drift(before + 0.3, short, short.confidence, Limits()).passed, "no past to speak of"


def trend_reports(url: str, cycle: Cycle, confidence: float) -> dict[str, list[KeyReport]]:
    metadata = {"confidence": confidence, "contradiction": 0.1}
    return {"trend_windows": [KeyReport(*key.split("|"), "", dict(metadata)) for key in keys_of(*ENTITIES)]}


def test_drift_compares_with_the_last_cycles_of_the_same_keys(url: str) -> None:
    database = Database(url)
    keys = [(entity, window) for entity in ENTITIES for window in ("1d", "7d", "30d")]
    for hours in (4, 3, 2, 1):
        cycle = pipeline.open_cycle(database, ago(hours=hours))
        pipeline.run_stages(database, cycle, keys, STAGES[:2], run_id=f"{hours}")
    cycle = pipeline.open_cycle(database, AS_OF)
    execute(url, "UPDATE trend_history SET confidence = 0.2, contradiction_score = 0.1")
    limits = Limits(least_keys=6, drift_cycles=3)
    now = trend_reports(url, cycle, 0.9)
    found = watching.watch_cycle(database, cycle, now, limits)
    drifted = found["trend_windows", "confidence_has_not_drifted"]
    assert not drifted.passed
    assert (drifted.shown["keys"], drifted.shown["cycles"]) == (6, 3), "keys without a past do not count"
    assert (drifted.shown["median"], drifted.shown["median_before"]) == (0.9, 0.2)
    assert found["trend_windows", "contradiction_has_not_drifted"].passed
    same = watching.watch_cycle(database, cycle, trend_reports(url, cycle, 0.2), limits)
    assert same["trend_windows", "confidence_has_not_drifted"].passed
    database.close()


def test_a_gap_in_the_history_is_counted_and_blocks_nothing_r59(url: str, chain: Chain) -> None:
    execute(
        url,
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END $$""",
        "CREATE TRIGGER refuse BEFORE INSERT ON trend_history FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    run = chain.run()
    assert run.success, run.error
    assert run.counts() == dict.fromkeys(STAGES, 10)
    check = run.checks["trend_windows", "history_has_no_gap"]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["without_history"].value == 10
    listed = check.metadata["look_at"]
    assert isinstance(listed, dg.TableMetadataValue)
    assert len(listed.records) == 10
    execute(url, "DROP TRIGGER refuse ON trend_history")
    assert chain.run().checks["trend_windows", "history_has_no_gap"].passed
