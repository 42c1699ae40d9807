"""Runs over the database: repeatable to the bit, split anyhow, one key's failure is no other's."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest

from oracle_core.config import OracleConfig
from oracle_core.frames import SignalFrame, TrendFrame
from oracle_core.inputs import CycleInputs
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, migrate, results
from oracle_dagster.storage.cycles import Key
from oracle_dagster.storage.database import Database, StorageError
from tests.conftest import ExternalPostgres
from tests.storage_rows import (
    AS_OF,
    RESULT_TABLES,
    WINDOWS,
    Document,
    Impact,
    World,
    ago,
    contents,
    insert_documents,
    insert_world,
    make_world,
    retract_document,
    revised,
    rows,
)

PROBABILISTIC = OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True})
WORLD: World = make_world(4, 50)
EMPTIED = tuple(t for t in RESULT_TABLES if t != "cycle_keys")


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, WORLD)
    database = Database(migrated_url)
    yield database
    database.close()


def run(
    database: Database,
    as_of: datetime = AS_OF,
    *,
    keys: list[Key] | None = None,
    stages: tuple[str, ...] = pipeline.STAGES,
    accuracy: bool = True,
    block: int = 500,
    progress: pipeline.Progress | None = None,
    run_id: str = "run",
) -> pipeline.StageReport:
    """One run as the job does it: the sources, then the stages over all keys."""
    cycle = pipeline.open_cycle(database, as_of)
    if accuracy:
        pipeline.update_source_accuracy(database, cycle, run_id=run_id)
    if keys is None:
        keys = [(e, w) for e in pipeline.known_entities(database, cycle) for w in WINDOWS]
    return pipeline.run_stages(
        database, cycle, keys, stages, run_id=run_id, block_entities=block, on_progress=progress
    )


def empty_results(url: str) -> None:
    """Forget every result but the order of the keys, so that a repeat has to write all of it again."""
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(EMPTIED)}")


def newer_input(url: str) -> None:
    """Documents, a revision and a retraction that arrive after a first run, all known long before it."""
    first = next(d for d in WORLD.documents if d.impacts and d.published > ago(days=60))
    other = next(d for d in WORLD.documents if d.impacts and d.published > ago(days=60) and d != first)
    with psycopg.connect(url) as connection:
        insert_documents(
            connection,
            [Document(f"new-{e}", (Impact(e, -1.0, 1.0),), published=ago(hours=1)) for e in WORLD.entities],
        )
        insert_documents(connection, [revised(first, first.published, impacts=())])
        retract_document(connection, other, other.published)


@pytest.mark.parametrize("probabilistic", [False, True])
def test_the_same_as_of_twice_changes_no_row_whatever_arrived_meanwhile(
    database: Database, migrated_url: str, probabilistic: bool
) -> None:
    """Also not what a transaction wrote that was open during the first run (decisions 5)."""
    if probabilistic:
        configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database, ago(days=2))
    with psycopg.connect(migrated_url) as still_open:
        insert_documents(still_open, [Document("open", (Impact(WORLD.entities[0], -1.0, 1.0),))])
        run(database)
        still_open.commit()
    first = contents(migrated_url, *RESULT_TABLES, "cycles")
    run(database)
    assert contents(migrated_url, *RESULT_TABLES, "cycles") == first
    newer_input(migrated_url)
    empty_results(migrated_url)
    run(database, ago(days=2))
    run(database)
    assert contents(migrated_url, *RESULT_TABLES, "cycles") == first
    run(database, AS_OF + timedelta(seconds=1))
    again = contents(migrated_url, "trend_windows")["trend_windows"]
    assert len(set(again) - set(first["trend_windows"])) == len(again)


@pytest.mark.parametrize("probabilistic", [False, True])
def test_the_size_of_blocks_and_the_order_of_keys_do_not_matter_to_the_bit(
    database: Database, migrated_url: str, probabilistic: bool
) -> None:
    if probabilistic:
        configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database, ago(days=1))
    report = run(database)
    first = contents(migrated_url)
    keys = [(k.entity_id, k.window) for k in report.keys["recommendations"]]
    for block in (1, 3):
        empty_results(migrated_url)
        run(database, ago(days=1), block=block)
        run(database, block=block, keys=keys[::-1])
        assert contents(migrated_url) == first
    empty_results(migrated_url)
    run(database, ago(days=1))
    run(database, keys=[])
    for key in keys[:3]:
        run(database, keys=[key], accuracy=False)
    run(database, keys=keys[3:])
    assert contents(migrated_url) == first


def test_a_repeat_takes_momentum_and_duplicates_from_the_cycles_of_its_first_run(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=3))
    run(database)
    own = """SELECT p.*, k.standing_recommendation_id FROM trend_projections p JOIN cycle_keys k
             ON k.as_of = p.computed_at AND k.entity_id = p.entity_id AND k."window" = p."window"
             AND k.config_version = p.config_version WHERE p.computed_at = %s AND p.config_version = %s
             ORDER BY p.id"""
    first = rows(migrated_url, own, AS_OF, 1)
    run(database, ago(days=1))
    run(database)
    assert rows(migrated_url, own, AS_OF, 1) == first
    configuration.activate(
        database, OracleConfig().with_settings({"accuracy.min_samples": 11}), "ada", "other"
    )
    run(database)
    other = rows(migrated_url, own, AS_OF, 2)
    momentum = [[row[13] for row in found] for found in (sorted(first, key=str), sorted(other, key=str))]
    assert sorted(momentum[0]) != sorted(momentum[1]), "the later cycle does count for a first run"


def interrupted(real: Callable[..., object], at: int) -> Callable[..., object]:
    """The function, dying after its work in call number ``at``."""
    calls = itertools.count(1)

    def dying(*args: object, **named: object) -> object:
        done = real(*args, **named)
        if next(calls) == at:
            raise KeyboardInterrupt
        return done

    return dying


def test_a_run_interrupted_anywhere_and_repeated_leaves_what_an_undisturbed_one_leaves(
    database: Database, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(database, ago(days=1))
    run(database)
    undisturbed = contents(migrated_url)
    points = [
        (results, "write_signals"),
        (results, "write_trends"),
        (results, "write_projections"),
        (pipeline.decisions, "write_decisions"),
    ]
    for at, (module, name) in enumerate(points, start=1):
        empty_results(migrated_url)
        run(database, ago(days=1))
        dying = interrupted(getattr(module, name), at)
        with monkeypatch.context() as patch:
            patch.setattr(module, name, dying)
            with pytest.raises(KeyboardInterrupt):
                run(database, block=1)
        assert contents(migrated_url) != undisturbed
        run(database)
        assert contents(migrated_url) == undisturbed, name


def test_two_runs_of_one_cycle_at_once_leave_what_one_leaves(database: Database, migrated_url: str) -> None:
    run(database, ago(days=1))
    run(database)
    one = contents(migrated_url)
    empty_results(migrated_url)
    run(database, ago(days=1))
    others = [Database(migrated_url) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda d: run(d, block=1), others))
    for other in others:
        other.close()
    assert contents(migrated_url) == one


@pytest.mark.postgres15
def test_an_older_server_reached_by_password_gives_the_same_bits(
    database: Database, migrated_url: str, external_postgres: ExternalPostgres
) -> None:
    """No sum, rank or comparison of strings happens in SQL, so the server does not matter."""
    with psycopg.connect(external_postgres.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE pipeline")
    url = external_postgres.url("pipeline")
    other = Database(url)
    migrate.upgrade(other)
    with psycopg.connect(url) as connection:
        insert_world(connection, WORLD)
    tables = [t for t in RESULT_TABLES if t != "cycle_keys"]  # its numbers depend on how often one was taken
    for each in (database, other):
        configuration.activate(each, PROBABILISTIC, "ada", "mode")
        for as_of in (ago(days=1), AS_OF, AS_OF):
            run(each, as_of)
    assert contents(url, *tables) == contents(migrated_url, *tables)
    other.close()
    with pytest.raises(StorageError, match="Remedy: check user and password"):
        pipeline.open_cycle(
            Database(external_postgres.url("pipeline", password="wrong"), patience_seconds=3600.0), AS_OF
        )


# ------------------------------------------------------------------------------- subsets of stages

SUBSETS = [subset for size in (1, 2, 3) for subset in itertools.combinations(pipeline.STAGES, size)]


def test_every_subset_of_stages_after_a_full_run_changes_nothing(
    database: Database, migrated_url: str
) -> None:
    """A stage that runs alone works on what the others stored, to the bit."""
    run(database, ago(days=1))
    full = run(database)
    first = contents(migrated_url)
    for subset in SUBSETS:
        report = run(database, stages=subset, accuracy=False)
        assert report.failures == []
        assert set(report.keys) == set(subset)
        for stage in subset:
            assert report.keys[stage] == full.keys[stage], (subset, stage)
        assert contents(migrated_url) == first, subset


def test_a_stage_alone_takes_the_newest_earlier_results_and_the_same_on_a_repeat(
    database: Database, migrated_url: str
) -> None:
    """Also when the table holds a newer cycle by then: the signals are computed again from the inputs."""
    run(database, ago(days=1))
    trends = ("trend_windows",)
    run(database, stages=trends, accuracy=False)
    query = """SELECT entity_id, "window", trend_strength, confidence, top_supporting_evidence::text
               FROM trend_history WHERE generated_at = %s ORDER BY 1, 2"""
    first = rows(migrated_url, query, AS_OF)
    strengths = rows(migrated_url, query, ago(days=1))
    assert [r[:3] for r in first] == [r[:3] for r in strengths], "made of the signals of the day before"
    run(database, ago(hours=1), stages=("weighted_signals",))
    run(database, AS_OF + timedelta(days=1), stages=("weighted_signals",))
    run(database, stages=trends, accuracy=False)
    assert rows(migrated_url, query, AS_OF) == first
    run(database)
    fresh = rows(migrated_url, query, AS_OF)
    assert fresh != first
    run(database, stages=trends, accuracy=False)
    assert rows(migrated_url, query, AS_OF) == fresh, "its own signals come first once they exist"


@pytest.mark.parametrize("stage", pipeline.STAGES[1:])
def test_a_key_without_earlier_results_fails_and_says_which_stages_to_run(
    database: Database, migrated_url: str, stage: str
) -> None:
    one, other = WORLD.entities[0], WORLD.entities[1]
    run(database, keys=[(one, "7d")])
    report = run(database, keys=[(one, "7d"), (other, "7d")], stages=(stage,), run_id="second")
    assert [(k.entity_id, k.window) for k in report.keys[stage]] == [(one, "7d")]
    (failure,) = report.failures
    assert (failure.stage, failure.entity_id, failure.window) == (stage, other, "7d")
    assert "run these stages too" in failure.message
    found = rows(migrated_url, "SELECT run_id, stage, entity_id, message FROM cycle_failures")
    assert found == [("second", stage, other, failure.message)]


def test_a_decision_alone_keeps_the_mode_its_trend_was_computed_in_c39(
    database: Database, migrated_url: str
) -> None:
    run(database)
    configuration.activate(database, PROBABILISTIC, "ada", "flag")
    later = AS_OF + timedelta(hours=1)
    run(database, later, stages=("recommendations",), accuracy=False)
    query = "SELECT DISTINCT pipeline_mode FROM recommendations WHERE config_version = %s"
    assert rows(migrated_url, query, 2) in ([("heuristic",)], [])
    run(database, AS_OF + timedelta(hours=2))
    run(database, AS_OF + timedelta(hours=3), stages=("recommendations",), accuracy=False)
    checks = """SELECT DISTINCT r.pipeline_mode, e.risk_checks ? 'ev' FROM recommendations r
                JOIN risk_evaluations e ON e.recommendation_id = r.id WHERE r.generated_at >= %s"""
    assert rows(migrated_url, checks, AS_OF + timedelta(hours=2)) == [("probabilistic", True)]


# ---------------------------------------------------------------------------------------- failures


def test_a_key_that_cannot_be_computed_is_recorded_and_the_others_proceed(
    database: Database, migrated_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = WORLD.entities[2]
    real = pipeline.assemble_trends

    def failing(signals: SignalFrame, inputs: CycleInputs, *rest: object) -> TrendFrame:
        if bad in inputs.entities[signals.keys.entity[signals.keys.window == 2]].tolist():
            raise FloatingPointError("no number")
        return real(signals, inputs, *rest)

    run(database, ago(days=1))
    before = rows(migrated_url, """SELECT count(*) FROM trend_windows WHERE "window" = '7d'""")
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "assemble_trends", failing)
        report = run(database)
    assert before == [(4,)]
    failed = [(f.stage, f.entity_id, f.window) for f in report.failures]
    assert failed == [(s, bad, "7d") for s in pipeline.STAGES[1:]]
    assert report.failures[0].message == "FloatingPointError: no number"
    assert "because trend_windows failed" in report.failures[1].message
    assert len(report.keys["weighted_signals"]) == 20
    assert len(report.keys["recommendations"]) == 19
    stored = rows(migrated_url, "SELECT stage, entity_id FROM cycle_failures ORDER BY 1")
    assert stored == sorted((s, bad) for s in pipeline.STAGES[1:])
    assert "cannot be computed" in caplog.text
    failed_rows = contents(migrated_url)
    run(database)
    assert rows(migrated_url, "SELECT FROM cycle_failures") == [], "the repeat of the run succeeded"
    empty_results(migrated_url)
    run(database, ago(days=1))
    run(database)
    assert contents(migrated_url) != failed_rows
    assert len(contents(migrated_url)["trend_projections"]) == 40


def test_a_value_the_tables_refuse_fails_its_key_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pipeline.assemble_trends

    def wrong(signals: SignalFrame, inputs: CycleInputs, *rest: object) -> TrendFrame:
        frame = real(signals, inputs, *rest)
        bad = (inputs.entities[frame.keys.entity] == WORLD.entities[0]) & (frame.keys.window == 0)
        frame.rows.confidence[bad] = np.nan
        frame.rows.strength[(inputs.entities[frame.keys.entity] == WORLD.entities[1])] = 1.5
        return frame

    monkeypatch.setattr(pipeline, "assemble_trends", wrong)
    report = run(database, stages=pipeline.STAGES[:2])
    failed = {(f.entity_id, f.window) for f in report.failures}
    assert failed == {(WORLD.entities[0], "intraday")} | {(WORLD.entities[1], w) for w in WINDOWS}
    assert len(report.keys["trend_windows"]) == 14


def test_an_entity_that_nothing_known_names_fails(database: Database, migrated_url: str) -> None:
    report = run(database, keys=[("nobody", "7d"), (WORLD.entities[0], "7d")])
    assert [(f.stage, f.entity_id) for f in report.failures] == [(s, "nobody") for s in pipeline.STAGES]
    assert "nothing about nobody is known as of 2026-03-10T12:00:00+00:00" in report.failures[0].message
    assert rows(migrated_url, "SELECT entity_id FROM trend_windows") == [(WORLD.entities[0],)]


def test_a_database_that_goes_away_stops_the_run_and_fails_no_key(
    database: Database, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_args: object, **_named: object) -> None:
        raise StorageError("gone", transient=False)

    with monkeypatch.context() as patch:
        patch.setattr(results, "write_projections", gone)
        with pytest.raises(StorageError, match="gone"):
            run(database)
    assert rows(migrated_url, "SELECT FROM cycle_failures") == []


@pytest.mark.parametrize("what", [{"stages": ("trends",)}, {"keys": [("E", "2d")]}])
def test_an_unknown_stage_or_window_is_refused_with_the_known_ones(
    database: Database, what: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"unknown stage or window.*weighted_signals.*90d"):
        run(database, **what)


# ----------------------------------------------------------------------------------------- reports


def test_a_run_tells_progress_and_logs_rows_seconds_and_phases(database: Database, migrated_url: str) -> None:
    told: list[tuple[str, int, int]] = []
    run(database, block=3, progress=lambda *step: told.append(step))
    assert [(done, total) for _, done, total in told] == [(0, 20), (15, 20), (20, 20)]
    logged = rows(
        migrated_url,
        "SELECT stage, keys, rows, seconds > 0, details, as_of, config_version FROM run_log ORDER BY id",
    )
    assert [r[0] for r in logged] == ["source_accuracy", *pipeline.STAGES]
    counts = {r[0]: r[1:3] for r in logged}
    ((signals,),) = rows(migrated_url, "SELECT count(*) FROM weighted_signals")
    assert counts["weighted_signals"] == (20, signals)
    assert counts["trend_windows"] == counts["recommendations"] == (20, 20)
    assert all(r[3] for r in logged)
    assert {"read", "score", "trend", "project", "decide", "write"} <= set(logged[1][4]["phases"])
    assert {r[5:] for r in logged} == {(AS_OF, 1)}


def test_a_data_version_changes_with_the_content_and_not_with_the_cycle(database: Database) -> None:
    first = run(database)
    again = run(database)
    assert again.keys == first.keys
    run(database, AS_OF + timedelta(days=400))
    later = run(database, AS_OF + timedelta(days=430))
    much_later = run(database, AS_OF + timedelta(days=460))
    for stage in pipeline.STAGES:
        if stage == "trend_projections":  # a decaying event changes it for ever
            continue
        versions = [[k.data_version for k in r.keys[stage]] for r in (first, later, much_later)]
        assert versions[0] != versions[1], stage
        assert versions[1] == versions[2], stage


def test_the_metadata_of_a_key_are_plain_values_a_person_reads(database: Database, migrated_url: str) -> None:
    report = run(database)
    numbers = {"weighted_signals": "active_signals", "trend_windows": "strength"}
    numbers |= {"trend_projections": "momentum", "recommendations": "allocation_pct"}
    for stage, found in report.keys.items():
        for key in found:
            assert {"as_of", "config_version", "newest_input_known_at", "sql", numbers[stage]} <= set(
                key.metadata
            )
            for value in key.metadata.values():
                assert value is None or isinstance(value, (bool, int, float, str, datetime, list))
            sql = str(key.metadata["sql"])
            assert len(rows(migrated_url, sql.rstrip(";"))) == key.metadata["written_rows"]


def test_an_entity_with_quotes_in_its_name_is_shown_and_stored_as_it_is(
    database: Database, migrated_url: str
) -> None:
    name = """O'Neill "x"; DROP TABLE trend_windows; --"""
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document("quote", (Impact(name),))])
    report = run(database, keys=[(name, "7d")])
    sql = str(report.keys["trend_windows"][0].metadata["sql"])
    assert len(rows(migrated_url, sql.rstrip(";"))) == 1


# ---------------------------------------------------------------------------------- source accuracy


def test_accuracy_is_the_same_in_blocks_and_at_once(
    database: Database, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = pipeline.open_cycle(database, AS_OF)
    whole = pipeline.update_source_accuracy(database, cycle, run_id="r")
    stored = contents(migrated_url, "source_accuracy", "source_accuracy_history")
    assert int(str(whole.metadata["outcomes"])) > 10
    monkeypatch.setattr(pipeline, "BLOCK_ENTITIES", 1)
    assert pipeline.update_source_accuracy(database, cycle, run_id="r") == whole
    assert contents(migrated_url, "source_accuracy", "source_accuracy_history") == stored


def test_accuracy_looks_at_outcomes_settled_by_as_of_only(database: Database, migrated_url: str) -> None:
    """Bars end the day before AS_OF, so what appeared in the last week is not settled (decisions 4)."""
    day = pipeline.open_cycle(database, ago(days=1))
    pipeline.update_source_accuracy(database, day, run_id="r")
    query = "SELECT sum(sample_count) FROM source_accuracy_history WHERE as_of = %s"
    ((before,),) = rows(migrated_url, query, ago(days=1))
    with psycopg.connect(migrated_url) as connection:
        insert_documents(
            connection,
            [
                Document("settled", (Impact(WORLD.entities[0]),), published=ago(days=10)),
                Document("unsettled", (Impact(WORLD.entities[0]),), published=ago(days=6)),
            ],
        )
    later = pipeline.open_cycle(database, ago(hours=23))
    pipeline.update_source_accuracy(database, later, run_id="r")
    assert rows(migrated_url, query, ago(hours=23)) == [(before + 1,)]


def test_a_cycle_opened_under_other_libraries_says_so(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.open_cycle(database, AS_OF)
    caplog.clear()
    pipeline.open_cycle(database, AS_OF)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    with database.begin() as connection:
        connection.exec_driver_sql("""UPDATE cycles SET library_set = '{"numpy": "1"}'""")
    pipeline.open_cycle(database, AS_OF)
    assert "results may differ" in caplog.text
