"""What the orchestrator is told: readable metadata, cheap batches, and nothing that did not change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import numpy as np
import psycopg
import pytest
from dagster_postgres.event_log import PostgresEventLogStorage

from oracle_core.config import OracleConfig
from oracle_dagster import reporting
from oracle_dagster.input_versions import entity_input_versions, whole_input_versions
from oracle_dagster.pipeline import STAGES
from oracle_dagster.reporting import readable
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database
from tests.chain_runs import Chain, fresh_database, keys_of
from tests.storage_rows import (
    AS_OF,
    Document,
    Impact,
    ago,
    insert_documents,
    insert_world,
    make_world,
    revised,
    rows,
)

ENTITIES = sorted(make_world(2, 0).entities)
FIRST, SECOND = ENTITIES


def test_metadata_takes_numpy_values_and_leaves_out_what_has_no_value() -> None:
    """dagster.md 12: NumPy integers and booleans are refused as metadata, and NaN is not for a person."""
    shown = readable(
        {
            "count": np.int64(3),
            "flag": np.bool_(True),  # noqa: FBT003 - the value under test
            "strength": np.float64(0.25),
            "zero": 0.0,
            "nothing": None,
            "missing": float("nan"),
            "endless": math.inf,
            "as_of": datetime(2016, 11, 8, tzinfo=UTC),
            "names": ["a", "b"],
            "no_names": [],
            "thesis": "**Up**",
            "sql": "SELECT * FROM t WHERE a = 'x AND ''y AND z' AND b = 1;",
        }
    )
    assert {name: value.value for name, value in shown.items()} == {
        "count": 3,
        "flag": True,
        "strength": 0.25,
        "zero": 0.0,
        "as_of": "2016-11-08T00:00:00Z",
        "names": "a, b",
        "thesis": "**Up**",
        "sql": "```sql\nSELECT *\nFROM t\nWHERE a = 'x AND ''y AND z'\nAND b = 1;\n```",
    }
    assert isinstance(shown["thesis"], dg.MarkdownMetadataValue)


def test_lists_of_objects_become_a_table_of_ten_rows_with_typed_columns() -> None:
    rows = [{"id": f"d{n}", "weight": np.float64(n / 3), "rank": n, "when": AS_OF} for n in range(12)]
    rows[1]["weight"] = float("nan")
    table = readable({"top_evidence": rows})["top_evidence"]
    assert isinstance(table, dg.TableMetadataValue)
    assert len(table.records) == 10
    assert table.records[0].data == {"id": "d0", "weight": 0.0, "rank": 0, "when": "2026-03-10T12:00:00Z"}
    assert table.records[1].data["weight"] is None
    assert table.records[2].data["weight"] == 0.666667, "as many digits as a person reads"
    assert {column.name: column.type for column in table.schema.columns} == {
        "id": "string",
        "weight": "float",
        "rank": "int",
        "when": "string",
    }


def test_unchanged_versions_cost_no_event() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        tell = reporting.report_versions
        assert tell(instance, {"macro_events": "1"}, {"documents": {"A": "1", "B": "1"}}) == 3
        assert tell(instance, {"macro_events": "1"}, {"documents": {"A": "1", "B": "1"}}) == 0
        assert tell(instance, {"macro_events": "2"}, {"documents": {"A": "1", "B": "2"}}) == 2
        assert reporting.report_configuration(instance, OracleConfig()) == 5
        changed = OracleConfig().with_settings({"trend.max_risks": 4})
        assert reporting.report_configuration(instance, changed) == 1


@pytest.fixture(scope="module")
def world_url(embedded_home: Path) -> Iterator[str]:
    """A database with a small world that the tests of this file share."""
    for url in fresh_database(embedded_home, "reporting"):
        migrate.upgrade(Database(url))
        with psycopg.connect(url) as connection:
            insert_world(connection, make_world(2, 40, bars=60))
            connection.execute("UPDATE documents SET title = 'Report ' || id WHERE id::text < '8'")
        yield url


def test_every_new_row_changes_the_version_of_its_entity_alone(embedded_home: Path) -> None:
    for url in fresh_database(embedded_home, "versions"):
        database = Database(url)
        migrate.upgrade(database)
        document = Document("first", (Impact("A"), Impact("B")))
        with psycopg.connect(url) as connection:
            insert_documents(connection, [document, Document("other", (Impact("C"),))])
        assert whole_input_versions(database) == {}
        before = entity_input_versions(database)
        assert set(before["documents"]) == {"A", "B", "C"}
        assert before["market_bars"] == {}
        with psycopg.connect(url) as connection:
            insert_documents(connection, [revised(document, ago(hours=1), impacts=(Impact("A", -1.0),))])
        after = entity_input_versions(database)["documents"]
        changed = {entity for entity in "ABC" if before["documents"][entity] != after[entity]}
        assert changed == {"A", "B"}, "B is no longer named, which concerns it too"
        assert entity_input_versions(database, ["C"])["documents"] == {"C": before["documents"]["C"]}
        with dg.DagsterInstance.ephemeral() as instance:
            assert reporting.report_inputs(instance, database, ["A"]) == 1
            assert list(instance.get_dynamic_partitions("entity")) == ["A"]
            assert reporting.report_inputs(instance, database) == 2
            assert reporting.report_inputs(instance, database) == 0
            assert set(instance.get_dynamic_partitions("entity")) == {"A", "B", "C"}
        database.close()


@pytest.fixture
def postgres_instance(
    dagster_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """The orchestrator's storage as the product has it, with events in batches."""
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")
    monkeypatch.setenv("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS", "1")
    overrides = {
        "storage": {"postgres": {"postgres_url": dagster_database_url}},
        "telemetry": {"enabled": False},
    }
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        yield instance


def test_batched_and_plain_events_are_the_same_and_batches_take_few_statements(
    world_url: str, postgres_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dagster.md 4: the batched path is internal to the orchestrator, so the plain one must stay equal."""
    chain = Chain(world_url, postgres_instance)
    reporting.report_inputs(postgres_instance, chain.database)
    batches: list[int] = []
    genuine = PostgresEventLogStorage.store_event_batch

    def counted(self: PostgresEventLogStorage, events: list[object]) -> None:
        batches.append(len(events))
        genuine(self, events)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresEventLogStorage, "store_event_batch", counted)
    batched = chain.run()
    assert batched.success, batched.error
    assert batched.counts() == dict.fromkeys(STAGES, 10)
    assert batches.count(10) == len(STAGES), "one batch per asset"
    first = _told(chain)
    monkeypatch.setattr(reporting, "DagsterEvent", None)
    batches.clear()
    plain = chain.run()
    assert plain.counts() == batched.counts()
    assert 10 not in batches
    assert _told(chain) == first
    assert all(chain.stale(asset, keys_of(FIRST)) == [] for asset in STAGES)


def _told(chain: Chain) -> dict[tuple[str, str], dict[str, str]]:
    """The tags of every newest event, without the positions in the orchestrator's log."""
    return {
        (asset, key): {
            name: value
            for name, value in chain.tags(asset, key).items()
            if "input_event_pointer" not in name and not value.startswith("event ")
        }
        for asset in STAGES
        for key in keys_of(*ENTITIES)
    }


def test_a_materialisation_shows_what_a_person_looks_at(
    world_url: str, postgres_instance: dg.DagsterInstance
) -> None:
    chain = Chain(world_url, postgres_instance)
    run = chain.run(keys=[f"{FIRST}|90d"])
    assert run.success, run.error
    shown = {}
    for asset in (*STAGES, "source_accuracy"):
        found = postgres_instance.fetch_materializations(dg.AssetKey(asset), limit=1).records[0]
        assert found.asset_materialization is not None
        shown[asset] = found.asset_materialization.metadata
        assert shown[asset]["as_of"].value == "2026-03-10T12:00:00Z"
        assert shown[asset]["config_version"].value == 1
        assert "SELECT *\nFROM" in str(shown[asset]["sql"].value)
    for name in ("direction", "strength", "confidence", "contradiction", "top_evidence"):
        assert name in shown["trend_windows"], name
    for name in ("action", "mode", "allocation_pct", "max_loss_pct", "thesis", "top_evidence", "eligible"):
        assert name in shown["recommendations"], name
    assert isinstance(shown["recommendations"]["thesis"], dg.MarkdownMetadataValue)
    for asset in STAGES:
        assert "written_rows" in shown[asset]
        assert "newest_input_known_at" in shown[asset]
    for asset in ("trend_windows", "recommendations"):
        evidence = shown[asset]["top_evidence"]
        assert isinstance(evidence, dg.TableMetadataValue)
        told = [record.data for record in evidence.records]
        columns = ["evidence", "published", "role", "weight"]
        assert [column.name for column in evidence.schema.columns] == columns
        assert {row["role"] for row in told} <= {"supporting", "opposing"}
        titled = [row for row in told if str(row["evidence"]).startswith("Report ")]
        assert titled, "a document is named by its title"
        for row in titled:
            stored = rows(
                world_url,
                """SELECT d.source_id, d.source_type, d.published_at, s.combined
                   FROM documents d JOIN weighted_signals s ON s.signal_id = d.id::text
                   WHERE d.title = %s AND s.entity_id = %s AND s."window" = '90d'""",
                str(row["evidence"]).partition(" (")[0],
                FIRST,
            )
            ((source, kind, published, weight),) = stored
            origin = source if kind is None else f"{source}, {kind}"
            assert str(row["evidence"]).endswith(f" ({origin})")
            assert row["published"] == f"{published.astimezone(UTC):%Y-%m-%d %H:%M}"
            assert row["weight"] == float(f"{weight:.3g}"), "as many digits as a person reads"
    history = shown["recommendations"]["history"]
    assert isinstance(history, dg.MarkdownMetadataValue)
    assert "2026-03-10 12:00" in str(history.value)


def test_a_number_has_the_digits_that_a_person_reads() -> None:
    numbers = {"a": 0.123456789, "b": -12.3456789, "c": 123456.789, "d": 1e-9 / 3, "e": 0.1 + 0.2}
    shown = {name: value.value for name, value in readable(numbers).items()}
    assert shown == {"a": 0.1235, "b": -12.35, "c": 123457.0, "d": 3.333e-10, "e": 0.3}


def test_runs_say_how_decisions_moved_and_a_webhook_that_nobody_answers_fails_none(
    world_url: str, postgres_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_WEBHOOK_URL", "http://127.0.0.1:9/nobody-listens-on-the-port-to-discard")
    monkeypatch.setenv("ORACLE_WEBHOOK_ATTEMPTS", "1")
    monkeypatch.setenv("ORACLE_NOTICE_CYCLES", "1")
    chain = Chain(world_url, postgres_instance)
    keys = [f"{SECOND}|90d", f"{SECOND}|30d"]
    assert chain.run(keys=keys, as_of=ago(hours=-1).isoformat()).success
    with psycopg.connect(world_url) as connection:
        connection.execute(
            """UPDATE recommendations SET action = 'act', mode = 'informational'
               WHERE entity_id = %s AND time_horizon = '90d'""",
            (SECOND,),
        )
    run = chain.run(keys=keys, as_of=ago(hours=-2).isoformat())
    assert run.success, run.error
    seen = postgres_instance.get_run_by_id(run.id)
    assert seen is not None
    assert seen.tags["oracle/decisions"] == "1 de-escalated, 1 unchanged"
    observed = postgres_instance.fetch_observations(dg.AssetKey("recommendations"), limit=1).records[0]
    assert observed.asset_observation is not None
    assert observed.asset_observation.metadata["summary"].value == "1 de-escalated, 1 unchanged"
    table = observed.asset_observation.metadata["transitions"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["before"] for record in table.records] == ["act / informational"]
    message = "SELECT status, attempts, changes, error FROM notices WHERE run_id = %s"
    assert rows(world_url, message, run.id) == [
        ("failed", 1, 1, "127.0.0.1 cannot be reached (ConnectError)")
    ]
