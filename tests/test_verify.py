"""What is stored is what the rules make of what was read: recomputed bit for bit, every difference named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from oracle_core import cycle as core
from oracle_core import receipt
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, cycles
from oracle_dagster.storage.database import Database, StorageError
from oracle_dagster.verification import recompute
from oracle_dagster.verification.recompute import CycleId, verify_cycle
from tests.chain_runs import database_name, fresh_database
from tests.command import oracle
from tests.storage_rows import AS_OF, RESULT_TABLES, WINDOWS, ago, contents, insert_world, rows
from tests.test_pipeline import PROBABILISTIC, WORLD, database, newer_input, run

__all__ = ["database"]

ENTITY = WORLD.entities[0]


def only(database: Database, when: object = AS_OF, config_version: int = 1) -> recompute.CycleReport:
    assert isinstance(when, type(AS_OF))
    return verify_cycle(database, CycleId(when, config_version))


@pytest.fixture(scope="module")
def computed(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """The name of a database with two cycles, to be copied and altered."""
    for url in fresh_database(embedded_home, "computed", migrated_template):
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
        database = Database(url)
        run(database, ago(days=2))
        run(database)
        database.close()
        yield database_name(url)


@pytest.fixture
def altered(embedded_home: Path, computed: str) -> Iterator[Database]:
    for url in fresh_database(embedded_home, "altered", computed):
        database = Database(url)
        yield database
        database.close()


def change(database: Database, statement: str) -> int:
    with psycopg.connect(database._conninfo) as connection:
        return connection.execute(statement).rowcount  # type: ignore[arg-type]


@pytest.mark.parametrize("probabilistic", [False, True])
def test_every_cycle_is_recomputed_bit_for_bit_and_nothing_is_written(
    database: Database, migrated_url: str, probabilistic: bool
) -> None:
    """Whatever arrived or was run since; rows that a later cycle has replaced are not missed."""
    if probabilistic:
        configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database, ago(days=2))
    run(database)
    newer_input(migrated_url)
    run(database, AS_OF + timedelta(days=1))
    version = configuration.active(database).version
    before = contents(migrated_url, *RESULT_TABLES, "cycles", "run_log")
    found = [verify_cycle(database, which, block_entities=3) for which in recompute.stored_cycles(database)]
    assert [report.cycle.as_of for report in found] == [ago(days=2), AS_OF, AS_OF + timedelta(days=1)]
    assert {report.cycle.config_version for report in found} == {version}
    for report in found:
        assert report.differences == []
        assert report.failures == []
        assert report.notes == []
        assert report.keys == len(WORLD.entities) * len(WINDOWS)
    assert found[-1].rows["weighted_signals"] == len(before["weighted_signals"])
    assert sum(r.rows["recommendations"] for r in found) == len(before["recommendations"])
    assert sum(r.rows["recommendation_evidence"] for r in found) == len(before["recommendation_evidence"])
    assert contents(migrated_url, *RESULT_TABLES, "cycles", "run_log") == before


ALTERATIONS = (
    ("weighted_signals", "combined", "UPDATE weighted_signals SET combined = combined + 1e-15 * {one}"),
    ("weighted_signals", "risk_flags", "UPDATE weighted_signals SET risk_flags = '[\"x\"]' {one}"),
    ("weighted_signals", "(row)", "DELETE FROM weighted_signals {one}"),
    ("trend_windows", "confidence", "UPDATE trend_windows SET confidence = 0.123 {one}"),
    (
        "trend_history",
        "market_context.basis.average",
        (
            "UPDATE trend_history SET market_context = "
            "jsonb_set(market_context, '{{basis,average}}', '0.5') {one}"
        ),
    ),
    ("trend_evidence", "rank_score", "UPDATE trend_evidence SET rank_score = 2 {one}"),
    ("trend_evidence", "(row)", "DELETE FROM trend_evidence {one}"),
    ("trend_projections", "momentum", "UPDATE trend_projections SET momentum = momentum + 0.25 {one}"),
    ("trend_projections", "(row)", "DELETE FROM trend_projections {one}"),
    ("recommendations", "allocation_pct", "UPDATE recommendations SET allocation_pct = 0.99 {one}"),
    ("recommendations", "thesis", "UPDATE recommendations SET thesis = 'Buy.' {one}"),
    (
        "recommendations",
        "model_metadata.deterministic_thesis",
        (
            "UPDATE recommendations SET model_metadata = "
            "jsonb_set(model_metadata, '{{deterministic_thesis}}', '\"Buy.\"') {one}"
        ),
    ),
    ("risk_evaluations", "eligible", "UPDATE risk_evaluations SET eligible = NOT eligible {one}"),
    (
        "risk_evaluations",
        "risk_checks.data_quality_score",
        (
            "UPDATE risk_evaluations SET risk_checks = "
            "jsonb_set(risk_checks, '{{data_quality_score}}', '7') {one}"
        ),
    ),
    ("recommendation_evidence", "weight", "UPDATE recommendation_evidence SET weight = 0.5 {one}"),
    ("recommendation_evidence", "(row)", "DELETE FROM recommendation_evidence {one}"),
    ("cycle_keys", "signals_skipped", "UPDATE cycle_keys SET signals_skipped = 7 {one}"),
    (
        "source_accuracy_history",
        "accuracy_ratio",
        "UPDATE source_accuracy_history SET accuracy_ratio = 0.75 + sample_count {one}",
    ),
)
_TIMES = {
    "weighted_signals": "as_of",
    "trend_windows": "generated_at",
    "trend_history": "generated_at",
    "trend_projections": "computed_at",
    "recommendations": "generated_at",
    "risk_evaluations": "created_at",
    "cycle_keys": "as_of",
    "source_accuracy_history": "as_of",
}


@pytest.mark.parametrize(("table", "field", "statement"), ALTERATIONS)
def test_a_single_altered_field_is_named_with_both_values(
    altered: Database, table: str, field: str, statement: str
) -> None:
    when = f" WHERE {_TIMES[table]} = '{AS_OF.isoformat()}'" if table in _TIMES else ""
    if table == "recommendation_evidence":
        when = f""" WHERE recommendation_id IN (
            SELECT id FROM recommendations WHERE generated_at = '{AS_OF.isoformat()}')"""
    one = f"WHERE ctid = (SELECT ctid FROM {table}{when} ORDER BY ctid DESC LIMIT 1)"
    if "1e-15 *" in statement:
        statement = statement.replace("1e-15 * {one}", "0 {one}").replace(
            "combined + 0", "combined * (1 + 4e-16)"
        )
    assert change(altered, statement.format(one=one)) == 1
    report = only(altered)
    assert [(d.table, d.field) for d in report.differences] == [(table, field)]
    (difference,) = report.differences
    assert difference.entity_id in WORLD.entities or table == "source_accuracy_history"
    assert difference.stored != difference.recomputed
    assert not report.sound
    if table != "trend_history":  # an earlier trend is the history of a later one
        assert only(altered, ago(days=2)).differences == []


def test_an_added_row_is_named(altered: Database) -> None:
    change(
        altered,
        f"""INSERT INTO recommendation_evidence
            SELECT r.id, d.id, 'opposing', 0.5 FROM recommendations r, documents d
            WHERE r.generated_at = '{AS_OF.isoformat()}' AND NOT EXISTS (
                SELECT FROM recommendation_evidence e
                WHERE e.recommendation_id = r.id AND e.document_id = d.id)
            LIMIT 1""",
    )
    (difference,) = only(altered).differences
    assert (difference.table, difference.field) == ("recommendation_evidence", "(row)")
    assert difference.recomputed == "no such row"


def test_altered_inputs_and_settings_are_seen_by_what_follows_from_them(altered: Database) -> None:
    change(altered, "UPDATE document_impact_records SET impact_score = 0.77 WHERE has_impact")
    assert {d.table for d in only(altered).differences} >= {"weighted_signals", "trend_history"}
    change(
        altered, "UPDATE risk_configs SET config = jsonb_set(config, '{trend,positive_threshold}', '0.01')"
    )
    first = only(altered).differences[0]
    assert (first.table, first.field) == ("risk_configs", "config")


def test_a_configuration_that_can_no_longer_be_read_is_a_difference(altered: Database) -> None:
    change(altered, "UPDATE risk_configs SET config = config || '{\"nonsense\": 1}'")
    (difference,) = only(altered).differences
    assert difference.table == "risk_configs"
    assert "nonsense" in str(difference.stored)


def test_the_words_of_a_model_are_not_compared_but_the_thesis_they_replaced_is(altered: Database) -> None:
    worded = """UPDATE recommendations SET thesis = 'Other words.', model_metadata = model_metadata ||
                '{"llm_used": true, "model_name": "m"}'"""
    change(altered, worded)
    assert only(altered).differences == []
    change(
        altered,
        'UPDATE recommendations SET model_metadata = model_metadata || \'{"deterministic_thesis": "x"}\'',
    )
    assert {d.field for d in only(altered).differences} == {"model_metadata.deterministic_thesis"}


def test_on_another_library_set_numbers_are_compared_to_the_tolerance_and_it_says_so(
    altered: Database,
) -> None:
    change(altered, 'UPDATE cycles SET library_set = library_set || \'{"numpy": "1.0"}\'')
    change(altered, "UPDATE weighted_signals SET combined = combined * (1 + 4e-16)")
    report = only(altered)
    assert report.differences == []
    assert not report.exact
    assert "compared to 1e-12" in report.notes[0]
    change(altered, "UPDATE weighted_signals SET combined = combined * (1 + 1e-11)")
    assert {d.field for d in only(altered).differences} == {"combined"}


def test_another_code_version_is_said(altered: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "CODE_VERSION", core.CODE_VERSION + ".9")
    assert "the rules have changed" in only(altered).notes[0]


def test_single_recommendations_and_samples_are_verified_alone(altered: Database) -> None:
    ids = recompute.sample(altered, 7)
    assert ids == recompute.sample(altered, 7)
    assert len(set(ids)) == 7
    assert ids != recompute.sample(altered, 7, seed="other")
    wanted = recompute.keys_of(altered, ids)
    assert sum(len(keys) for keys in wanted.values()) == 7
    for which, keys in wanted.items():
        report = verify_cycle(altered, which, keys)
        assert report.sound
        assert report.keys == len(keys)
    with pytest.raises(StorageError, match="there is no recommendation"):
        recompute.keys_of(altered, ["00000000-0000-4000-8000-000000000000"])


def test_a_cycle_of_which_only_some_stages_ran_is_verified_as_far_as_it_went(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=2))
    run(database, stages=("recommendations",), accuracy=False)
    run(database, ago(days=1), stages=("weighted_signals", "trend_windows"), keys=[(ENTITY, "7d")])
    late = only(database)
    assert late.sound
    assert "trend_history" not in late.rows
    assert late.rows["recommendations"] == len(
        rows(migrated_url, "SELECT FROM recommendations WHERE generated_at = %s", AS_OF)
    )
    early = only(database, ago(days=1))
    assert early.sound
    assert early.keys == 1
    assert early.rows["trend_history"] == 1


def test_a_key_that_can_no_longer_be_computed_is_a_failure(altered: Database) -> None:
    change(altered, "DELETE FROM document_impact_records")
    change(altered, f"DELETE FROM market_bars WHERE entity_id = '{WORLD.entities[-1]}'")
    change(altered, f"DELETE FROM exposure_profiles WHERE entity_id = '{WORLD.entities[-1]}'")
    change(altered, "DELETE FROM competitive_edges")
    report = only(altered)
    assert {failure.entity_id for failure in report.failures} == {WORLD.entities[-1]}
    assert not report.sound


def test_a_cycle_that_never_ran_cannot_be_verified(altered: Database) -> None:
    with pytest.raises(StorageError, match="no cycle of"):
        verify_cycle(altered, CycleId(AS_OF + timedelta(days=9), 1))
    assert tuple(cycles.SEQUENCES) == pipeline.STAGES


# -------------------------------------------------------------------------------------------- the commands


def url_of(database: Database) -> str:
    """The address as a person would write it."""
    parts = conninfo_to_dict(database._conninfo)
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"


def test_the_commands_say_what_they_found_and_exit_with_1(
    altered: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", url_of(altered))
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path))
    done = oracle("verify", "--sample", "5", "--json")
    assert done.code == 0, done.err
    assert done.json["sound"] is True
    assert sum(cycle["keys"] for cycle in done.json["cycles"]) == 5
    assert done.json["chain"]["faults"] == []
    whole = oracle("verify", "--all")
    assert whole.code == 0
    assert f"Recomputed: {2 * len(WORLD.entities) * len(WINDOWS)} decisions of 2 cycles" in whole.out
    (one,) = recompute.sample(altered, 1)
    file = tmp_path / "receipt.json"
    assert oracle("receipt", one, "--out", str(file)).code == 0
    assert receipt.report(json.loads(file.read_text()))[1]
    assert json.loads(oracle("receipt", one).out)["key"]["recommendation_id"] == one
    leaks = oracle("leaks", "--probes", "1", "--entities", "1", "--json")
    assert (leaks.code, leaks.json["leaks"]) == (0, [])
    assert "No result changes." in oracle("leaks", "--probes", "1", "--entities", "1").out

    change(altered, f"UPDATE recommendations SET allocation_pct = 0.99 WHERE id = '{one}'")
    broken = oracle("verify", one)
    assert broken.code == 1
    assert "FAULT at link" in broken.out
    assert "recommendations" in broken.out
    assert "allocation_pct is 0.99, recomputed" in broken.out
    assert "The first altered in the order of the chain is recommendations" in broken.err
    assert oracle("verify", one, "--json").json["sound"] is False
    assert oracle("receipt", one).code == 1
    assert oracle("verify", "00000000-0000-4000-8000-000000000000").code == 1

    change(altered, "TRUNCATE cycle_seals, cycle_seal_parts")
    assert "NOT SEALED" in oracle("verify", "--sample", "0").out
    assert "made later than the rows" in oracle("verify", "--sample", "0", "--seal").out
