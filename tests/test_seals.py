"""The chain of hashes: every altered row is found, the first is named; lawful operation never breaks it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, decisions, schema, seals
from oracle_dagster.storage.database import Database
from tests.storage_rows import (
    AS_OF,
    WINDOWS,
    Document,
    Impact,
    ago,
    contents,
    insert_documents,
    retract_document,
    revised,
    rows,
)
from tests.test_pipeline import WORLD, database, newer_input, run
from tests.test_verify import altered, change, computed

__all__ = ["altered", "computed", "database"]

BOTH = ("cycle_seals", "cycle_seal_parts")
EARLIER = ago(days=2)


def report(database: Database) -> seals.ChainReport:
    return seals.check(database)


def test_every_cycle_is_sealed_with_all_its_rows_inputs_and_settings(altered: Database) -> None:
    found = report(altered)
    assert found.sound
    assert found.complete
    assert found.late == []
    assert found.open_runs == 0
    assert found.start is None
    covered = {
        name: sum(n for (n,) in numbers)
        for name, numbers in {
            name: rows(
                altered._conninfo,
                "SELECT cardinality(row_keys) FROM cycle_seal_parts WHERE table_name=%s",
                name,
            )
            for name in seals._ORDER
        }.items()
    }
    stored = contents(altered._conninfo, *(n for n in covered if n in schema.metadata.tables))
    for name, there in stored.items():
        if name != "recommendation_evidence":  # one hash per recommendation that cites
            assert covered[name] == len(there) > 0, name
    assert covered["recommendation_evidence"] > 0
    assert found.rows == sum(covered.values())


def test_the_same_bits_again_make_no_new_link(database: Database, migrated_url: str) -> None:
    run(database, EARLIER)
    run(database)
    first = contents(migrated_url, *BOTH)
    run(database)
    run(database, EARLIER)
    run(database, keys=[(WORLD.entities[0], "7d")], accuracy=False)
    assert contents(migrated_url, *BOTH) == first


def test_lawful_operation_never_breaks_the_chain(database: Database, migrated_url: str) -> None:
    """Revisions, retractions, other configurations, cycles late or in parts, a row that others replace."""
    run(database)
    newer_input(migrated_url)
    assert report(database).sound
    assert report(database).unsealed_inputs > 0
    configuration.activate(
        database,
        configuration.active(database).config.with_settings({"trend.mixed_threshold": 0.2}),
        "ada",
        "x",
    )
    run(database, AS_OF + timedelta(days=1))
    run(database, EARLIER, stages=("weighted_signals", "trend_windows"))
    run(database, EARLIER, stages=("trend_projections", "recommendations"), accuracy=False)
    run(database, AS_OF)
    document = Document("again", (Impact(WORLD.entities[0]),), published=ago(hours=2))
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [document])
    run(database, AS_OF + timedelta(days=2))
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [revised(document, ago(hours=1), impacts=())])
        connection.execute("UPDATE documents SET version = 2, title = 'x' WHERE id = %s", (document.id,))
    assert report(database).sound
    run(database, AS_OF + timedelta(days=3))
    with psycopg.connect(migrated_url) as connection:
        retract_document(connection, revised(document, ago(hours=1)), AS_OF)
        connection.execute(
            "UPDATE documents SET version = 3, status = 'retracted' WHERE id = %s", (document.id,)
        )
    run(database, AS_OF + timedelta(days=4))
    found = report(database)
    assert found.faults == []
    assert found.complete
    assert found.late == []


_WHEN = AS_OF.isoformat()
ALTERATIONS = (
    ("document_intelligence", "UPDATE document_intelligence SET credibility = 0.31 {one}", False),
    (
        "document_intelligence",
        "UPDATE document_intelligence SET known_at = known_at + interval '1 s' {one}",
        False,
    ),
    ("document_impact_records", "UPDATE document_impact_records SET impact_score = 0.123 {one}", False),
    ("document_impact_records", "DELETE FROM document_impact_records {one}", False),
    ("documents", "UPDATE documents SET title = 'other' {one}", False),
    ("market_bars", "UPDATE market_bars SET close = close + 1e-9 {one}", False),
    ("market_bars", "DELETE FROM market_bars {one}", False),
    ("macro_events", "UPDATE macro_events SET severity = 'low' {one}", False),
    ("exposure_profiles", "UPDATE exposure_profiles SET geo = '{{}}' {one}", False),
    ("competitive_edges", "UPDATE competitive_edges SET historical_correlation = 0.99 {one}", False),
    (
        "market_bars.superseded",
        "UPDATE market_bars SET superseded_known_at = now(), superseded_xid = '4' {one}",
        False,
    ),
    ("risk_configs", "UPDATE risk_configs SET config = config || '{{\"x\": 1}}' {one}", False),
    ("risk_configs", "UPDATE risk_configs SET reason = 'other' {one}", False),
    ("cycles", "UPDATE cycles SET snapshot = '1:1:' {one}", True),
    ("cycles.accuracy", "UPDATE cycles SET accuracy_config_version = 0 {one}", True),
    ("source_accuracy_history", "UPDATE source_accuracy_history SET sample_count = 99 {one}", True),
    ("cycle_keys.signal_seq", "UPDATE cycle_keys SET signals_skipped = 9 {one}", True),
    ("cycle_keys.trend_seq", "UPDATE cycle_keys SET trend_seq = 1000 {one}", True),
    ("trend_history", "UPDATE trend_history SET confidence = 0.123 {one}", True),
    ("trend_projections", "DELETE FROM trend_projections {one}", True),
    ("cycle_keys.decision_seq", "UPDATE cycle_keys SET standing_recommendation_id = NULL {one}", True),
    ("recommendations", "UPDATE recommendations SET thesis = 'Buy.' {one}", True),
    ("recommendations", "UPDATE recommendations SET action = 'act', mode = 'informational' {one}", True),
    ("risk_evaluations", "UPDATE risk_evaluations SET eligible = NOT eligible {one}", True),
    ("recommendation_evidence", "UPDATE recommendation_evidence SET weight = 0.123 {one}", True),
)


def test_every_altered_row_is_found_and_named(altered: Database) -> None:
    """One after the other, each undone again: exactly this row, its table, its key and its cycle."""
    url = altered._conninfo
    for table, statement, of_cycle in ALTERATIONS:
        name = table.split(".")[0]
        one = f"WHERE ctid = (SELECT ctid FROM {name} ORDER BY ctid LIMIT 1)"
        with psycopg.connect(url) as connection:
            connection.execute(f"CREATE TABLE saved AS SELECT * FROM {name}")
            connection.execute("SET session_replication_role = replica")  # no foreign keys
            assert connection.execute(statement.format(one=one)).rowcount == 1
        faults = report(altered).faults
        assert [fault.table for fault in faults] == [table], (statement, faults)
        (fault,) = faults
        assert fault.key != ""
        assert (fault.as_of is not None) == of_cycle
        assert fault.what.startswith(("the row was altered", "the row was deleted", "the row was added"))
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(f"DELETE FROM {name}")
            connection.execute(f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM saved")
            connection.execute("DROP TABLE saved")
    assert report(altered).sound


def test_the_first_altered_row_in_the_order_of_the_chain_is_named_first(altered: Database) -> None:
    change(altered, f"UPDATE recommendations SET thesis = 'x' WHERE generated_at = '{_WHEN}'")
    change(altered, "UPDATE trend_projections SET momentum = 7")
    first = report(altered).faults[0]
    assert (first.table, first.as_of, first.config_version) == ("trend_projections", EARLIER, 1)
    assert first.key == min(f"{e}|{w}" for e in WORLD.entities for w in WINDOWS)


ADDED = (
    """INSERT INTO trend_projections SELECT p.* FROM trend_projections o, LATERAL jsonb_populate_record(
           o, jsonb_build_object('id', gen_random_uuid(), 'momentum', 1)) p LIMIT 1""",
    """INSERT INTO market_bars (entity_id, day, known_at, xid, close)
       VALUES ('x', '2020-01-01', now(), '5', 7)""",
)


@pytest.mark.parametrize("statement", ADDED)
def test_an_added_row_is_found(altered: Database, statement: str) -> None:
    change(altered, statement)
    assert len(report(altered).faults) == 1


def test_a_link_that_is_altered_removed_or_put_in_breaks_the_chain(altered: Database) -> None:
    url = altered._conninfo
    statements = (
        ("UPDATE cycle_seals SET sealed_at = sealed_at - interval '1 day' WHERE number = 2", "altered"),
        ("UPDATE cycle_seals SET parts = '{}' WHERE number = 2", "altered"),
        ("UPDATE cycle_seals SET previous_hash = hash WHERE number = 2", "does not follow"),
        (
            "UPDATE cycle_seal_parts SET leaves = sha256(leaves) WHERE number = 2",
            "hashes",
        ),
        ("UPDATE cycle_seal_parts SET row_keys[1] = 'x' WHERE number = 2", "hashes"),
        ("DELETE FROM cycle_seal_parts WHERE number = 2", "hashes"),
        ("DELETE FROM cycle_seals WHERE number = 2", "missing"),
    )
    for statement, what in statements:
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")
            for name in BOTH:
                connection.execute(f"CREATE TABLE saved_{name} AS SELECT * FROM {name}")
            connection.execute(statement)
        faults = report(altered).faults
        assert faults[0].table == "cycle_seals", (statement, faults[:2])
        assert what in faults[0].what, (statement, faults[0])
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")
            for name in reversed(BOTH):
                connection.execute(f"DELETE FROM {name}")
            for name in BOTH:
                connection.execute(f"INSERT INTO {name} SELECT * FROM saved_{name}")
                connection.execute(f"DROP TABLE saved_{name}")
    assert report(altered).sound


def test_a_rewritten_row_is_not_whitewashed_by_a_run_that_did_not_write_it(altered: Database) -> None:
    """A later run of other stages seals its own rows only; one of the same stage heals the row."""
    change(altered, f"UPDATE trend_history SET confidence = 0.123 WHERE generated_at = '{_WHEN}'")
    run(altered, stages=("trend_projections",), accuracy=False)
    run(altered, AS_OF + timedelta(days=1), stages=("weighted_signals",))
    assert {fault.table for fault in report(altered).faults} == {"trend_history"}
    run(altered, stages=("weighted_signals", "trend_windows"), accuracy=False)
    assert report(altered).sound


def test_changed_rules_seal_what_they_write_anew(altered: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a decision that is a duplicate now and whose row is gone."""
    url, decided = altered._conninfo, decisions.decisions
    ((one,),) = rows(url, "SELECT id::text FROM recommendations WHERE generated_at < %s LIMIT 1", AS_OF)

    def all_the_same(*args: Any) -> list[decisions.Decision]:  # noqa: ANN401 - those of the original
        return [
            dataclasses.replace(made, duplicate=True, recommendation_id=one)
            if made.duplicate is False
            else made
            for made in decided(*args)
        ]

    monkeypatch.setattr(decisions, "decisions", all_the_same)
    before = report(altered).seals
    run(altered, stages=("recommendations",), accuracy=False)
    assert rows(url, "SELECT FROM recommendations WHERE generated_at = %s", AS_OF) == []
    found = report(altered)
    assert found.faults == []
    assert found.seals == before + 1


def test_runs_over_different_keys_at_once_make_one_chain(database: Database, migrated_url: str) -> None:
    pipeline.open_cycle(database, AS_OF)
    keys = [[(entity, w) for w in WINDOWS] for entity in WORLD.entities]
    with ThreadPoolExecutor(len(keys)) as pool:
        list(pool.map(lambda own: run(database, keys=own, accuracy=False, run_id=own[0][0]), keys))
    found = report(database)
    assert found.faults == []
    assert found.complete
    assert found.open_runs == 0
    assert found.late == []
    assert found.seals == len(keys)


_KILLED = """
import os, sys
from oracle_dagster import pipeline
from oracle_dagster.storage import seals
from oracle_dagster.storage.database import Database
from tests.test_pipeline import run
from tests.storage_rows import AS_OF
def stop(*_):
    print("written", flush=True)
    import time
    time.sleep(600)
seals._seal_run = stop
run(Database(sys.argv[1]), accuracy=False, run_id="killed")
"""


def test_a_run_that_is_killed_before_it_seals_is_reported_and_sealed_by_the_next(
    database: Database, migrated_url: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, migrated_url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
        env=os.environ.copy(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    run(database, EARLIER, accuracy=False)  # it lives, so nobody seals for it
    alive = report(database)
    assert (alive.open_runs, alive.late) == (1, [])
    assert set(alive.unsealed) == {(AS_OF, 1)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 60
    lock = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7105006"
    while rows(migrated_url, lock) != [(0,)] and time.monotonic() < end:
        time.sleep(0.05)
    killed = report(database)
    assert killed.sound
    assert killed.unsealed == {(AS_OF, 1): len(WORLD.entities) * len(WINDOWS) + 1}  # and the cycle itself
    run(database, ago(days=1), accuracy=False)
    found = report(database)
    assert found.sound
    assert found.complete
    assert len(found.late) == 1
    assert found.open_runs == 0


def test_what_was_computed_before_there_were_seals_is_sealed_on_request(altered: Database) -> None:
    change(altered, "TRUNCATE cycle_seals, cycle_seal_parts")
    before = report(altered)
    assert before.sound
    assert set(before.unsealed) == {(EARLIER, 1), (AS_OF, 1)}
    assert seals.seal_leftovers(altered) == 3
    after = report(altered)
    assert after.sound
    assert after.complete
    assert after.late == [1, 2, 3]
    assert seals.seal_leftovers(altered) == 0


def test_a_checkpoint_lets_earlier_cycles_and_named_inputs_go(altered: Database) -> None:
    url = altered._conninfo
    old = rows(url, "SELECT document_id || '|' || version FROM document_intelligence ORDER BY 1 LIMIT 2")
    keys = [key for (key,) in old]
    impacts = rows(
        url,
        """SELECT document_id || '|' || version || '|' || entity_id FROM document_impact_records
           WHERE document_id || '|' || version = ANY(%s)""",
        keys,
    )
    released = {
        "document_intelligence": keys,
        "documents": keys,
        "document_impact_records": [key for (key,) in impacts],
    }
    link = seals.checkpoint(altered, AS_OF, released=released)
    assert report(altered).faults[0].what == "the row was removed lawfully and is there again"
    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role = replica")
        for name, time_column in (
            ("trend_history", "generated_at"),
            ("trend_projections", "computed_at"),
            ("recommendations", "generated_at"),
            ("cycle_keys", "as_of"),
            ("cycles", "as_of"),
            ("source_accuracy_history", "as_of"),
        ):
            connection.execute(f"DELETE FROM {name} WHERE {time_column} < %s", (AS_OF,))
        for name, column in (
            ("document_intelligence", "document_id"),
            ("document_impact_records", "document_id"),
            ("documents", "id"),
        ):
            connection.execute(
                f"DELETE FROM {name} WHERE {column}::text = ANY(%s)", ([k.split("|")[0] for k in keys],)
            )
    found = report(altered)
    assert found.faults == []
    assert found.start == AS_OF
    assert found.newest_hash == link
    run(altered, AS_OF + timedelta(days=1))
    assert report(altered).sound
    change(altered, f"DELETE FROM trend_projections WHERE computed_at = '{_WHEN}'")
    assert report(altered).faults[0].as_of == AS_OF
    with pytest.raises(ValueError, match="not a sealed table"):
        seals.checkpoint(altered, AS_OF, released={"nonsense": []})


@pytest.mark.parametrize(
    ("table", "columns", "left_out"),
    [
        (schema.trend_history, seals.TREND_HISTORY, set()),
        (schema.trend_projections, seals.TREND_PROJECTIONS, set()),
        (schema.recommendations, seals.RECOMMENDATIONS, set()),
        (schema.risk_evaluations, seals.RISK_EVALUATIONS, set()),
        (schema.recommendation_evidence, seals.CITATIONS, set()),
        (schema.source_accuracy_history, seals.SOURCE_ACCURACY, set()),
        (schema.risk_configs, seals.CONFIGURATION, {"active"}),
        (schema.cycles, (*seals.CYCLE, *seals.CYCLE_ACCURACY), set()),
        *(
            (schema.metadata.tables[t.name], t.columns, {"superseded_known_at", "superseded_xid"})
            for t in seals._INPUTS
        ),
    ],
)
def test_every_column_is_sealed_or_left_out_on_purpose(
    table: schema.sa.Table, columns: tuple[str, ...], left_out: set[str]
) -> None:
    """A column that is added needs a decision: in a leaf, it would change the hash of every old row."""
    names = {column.name for column in table.columns}
    assert {column.strip('"') for column in columns} == names - left_out
