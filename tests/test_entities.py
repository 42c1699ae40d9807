"""Retired and renamed entities: nothing that is stored changes, and nothing of its history is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from oracle_dagster import launch, tick
from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.export import NoCycleError, export_table
from oracle_dagster.housekeeping.entities import EntityError, rename, retire, revive
from oracle_dagster.ingestion.load import ingest
from oracle_dagster.news import Debounce
from oracle_dagster.partitions import register_entities
from oracle_dagster.planning.plan import make_plan
from oracle_dagster.storage import configuration, entities, seals
from oracle_dagster.storage.database import Database
from oracle_dagster.verification import recompute
from tests.chain_runs import Chain, database_name, fresh_database, of_range
from tests.command import oracle
from tests.services import settle
from tests.storage_rows import (
    AS_OF,
    RESULT_TABLES,
    Document,
    Impact,
    ago,
    contents,
    insert_documents,
    insert_world,
)
from tests.test_pipeline import WORLD, run

OLD, OTHER = WORLD.entities[0], WORLD.entities[1]
NEW = "Neuer Name"
NOW = datetime(2026, 3, 11, tzinfo=UTC)


@pytest.fixture(scope="module")
def computed(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """The name of a database with two cycles, to be copied."""
    for url in fresh_database(embedded_home, "entities", migrated_template):
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
        database = Database(url)
        run(database, ago(days=2))
        run(database)
        database.close()
        yield database_name(url)


@pytest.fixture
def database(embedded_home: Path, computed: str) -> Iterator[Database]:
    for url in fresh_database(embedded_home, "entities", computed):
        database = Database(url)
        yield database
        database.close()


@pytest.fixture
def url(database: Database) -> str:
    return database._conninfo


def ingested(database: Database, folder: Path, name: str, *records: Mapping[str, object]) -> list[str]:
    """Load records; returns the reasons of those refused."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    report = ingest(database, folder / name, now=NOW)
    return [rejection.reason for rejection in report.rejections]


def news(identity: int, *names: str) -> dict[str, object]:
    return {
        "document_id": f"00000000-0000-4000-8000-{identity:012d}",
        "source_id": "wire",
        "published_at": "2026-03-10T10:00:00Z",
        "extraction": {"status": "ok", "confidence": 0.9},
        "impacts": [
            {"entity_id": name, "sentiment": "positive", "impact_score": 0.25 * (n + 1)}
            for n, name in enumerate(names)
        ],
    }


def test_a_retired_entity_is_left_out_of_whatever_runs_by_itself_until_it_is_revived(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the sensor, the schedules, plans and runs of everything; asked for by name it is computed."""
    before = contents(url)
    settle(url)
    cursor = tick.start(database)
    assert retire(database, OLD, by="ada", reason="merged") == OLD
    with psycopg.connect(url) as connection:
        insert_documents(connection, [Document("late", (Impact(OLD), Impact(OTHER)), published=ago(hours=1))])
    settle(url)
    (request,) = tick.look(database, cursor, Debounce()).requests
    assert OTHER in request.entities
    assert OLD not in request.entities
    cycle = launch._plan(database, as_of=AS_OF, entities=None, windows=None, config_version=None, stages=None)
    assert {entity for entity, _ in cycle.keys} == set(WORLD.entities) - {OLD}
    named = launch._plan(
        database, as_of=AS_OF, entities=[OLD], windows=None, config_version=None, stages=None
    )
    assert {entity for entity, _ in named.keys} == {OLD}
    base = configuration.active(database)
    candidate = base.config.with_settings({"scoring.half_life_hours.7d": 1.0})
    plan = make_plan(database, candidate, as_of=AS_OF)
    planned = {entity for entity, _ in plan.first_stages}
    assert OTHER in planned
    assert OLD not in planned
    assert contents(url) == before, "history changed"
    assert seals.check(database).sound
    with pytest.raises(EntityError, match="is retired already"):
        retire(database, OLD, by="ada", reason="")
    revive(database, OLD, by="ada")
    settle(url)
    (again,) = tick.look(database, cursor, Debounce()).requests
    assert OLD in again.entities
    with pytest.raises(EntityError, match="is not retired"):
        revive(database, OLD, by="ada")
    assert entities.listed(database) == []


def test_the_history_of_a_renamed_entity_is_reached_under_its_new_name(
    database: Database, url: str, embedded_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(url, *RESULT_TABLES, "cycle_seals")
    assert rename(database, OLD, NEW, by="ada", reason="new brand") == OLD
    out = io.BytesIO()
    assert export_table(url, "trend_history", "csv", out=out, entity=NEW) == 10
    assert export_table(url, "competitive_edges", "csv", out=io.BytesIO(), entity=NEW) == 2
    assert export_table(url, "actionable_recommendations", "csv", out=io.BytesIO(), entity="nobody") == 0
    with pytest.raises(NoCycleError, match="name no entity"):
        export_table(url, "documents", "csv", out=io.BytesIO(), entity=NEW)
    # Nothing sealed is touched, and a repeat gives the same bits.
    assert contents(url, *RESULT_TABLES, "cycle_seals") == before
    assert seals.check(database).sound
    for which in recompute.stored_cycles(database):
        assert recompute.verify_cycle(database, which).differences == []
    # The momentum of the next cycle looks back over the renaming, as if there were none.
    named = launch._plan(
        database, as_of=AS_OF, entities=[NEW], windows=["7d"], config_version=None, stages=None
    )
    assert list(named.keys) == [(OLD, "7d")]
    (home,) = [embedded_home]
    monkeypatch.setenv(
        "ORACLE_DATABASE_URL", EmbeddedPostgres(home).url(database_name(url_of(database, home)))
    )
    said = oracle("explain", NEW, "7d", "--json")
    assert said.code == 0, said.err
    assert f"{NEW} is the present name of the entity {OLD}" in said.err
    assert said.json["entity_id"] == OLD
    listed = oracle("entity", "list", "--json").json
    assert [(e["entity_id"], e["name"]) for e in listed] == [(OLD, NEW)]


def url_of(database: Database, home: Path) -> str:
    with psycopg.connect(database._conninfo) as connection:
        return EmbeddedPostgres(home).url(connection.info.dbname)


def test_inputs_under_the_new_name_are_loaded_under_the_id(
    database: Database, url: str, tmp_path: Path
) -> None:
    rename(database, OLD, NEW, by="ada", reason="")
    rename(database, NEW, "Newest", by="ada", reason="")
    assert ingested(database, tmp_path, "documents.jsonl", news(1, NEW, OTHER), news(2, "Newest", OLD)) == []
    stored = psycopg.connect(url).execute(
        """SELECT document_id::text, entity_id, impact_score FROM document_impact_records
           WHERE document_id::text LIKE '00000000-0000-4000-8000-%' ORDER BY 1, 2"""
    )
    found = [(str(identity)[-1], entity, score) for identity, entity, score in stored.fetchall()]
    # Of two statements on one entity, by different names, the first counts.
    assert sorted(found) == sorted([("1", OLD, 0.25), ("1", OTHER, 0.5), ("2", OLD, 0.25)])
    (tmp_path / "market_data.csv").write_text(
        f"entity_id,date,close,volume\nNewest,2026-03-10,5,1\n{OTHER},2026-03-10,6,1\n"
    )
    ingest(database, tmp_path / "market_data.csv", now=NOW)
    again = ingest(database, tmp_path / "market_data.csv", now=NOW)
    assert sum(c.unchanged for c in again.counts.values()) == 2
    edge = {"source_entity": NEW, "relation_type": "partner", "historical_correlation": 0.5}
    loop, good = {**edge, "target_entity": OLD}, {**edge, "target_entity": OTHER}
    assert ingested(database, tmp_path, "relationships.jsonl", loop, good) == ["self_edge"]
    exposure = {"entity_id": "Newest", "geo": {"us": 0.5}, "supply": {}, "commodity": {}, "sector": {}}
    assert ingested(database, tmp_path, "exposures.jsonl", exposure) == ["conflict"], (
        "it has one under its id"
    )
    assert entities.rows_under_other_names(database) == {}
    with psycopg.connect(url) as connection:
        insert_documents(connection, [Document("by hand", (Impact("Newest"),))])
    assert entities.rows_under_other_names(database) == {"Newest": OLD}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (OLD, OTHER, "is another entity with inputs or results of its own"),
        (OLD, "a|b", r"contains '\|'"),
        ("nobody", NEW, "No input and no result names nobody"),
        (OLD, OLD, "is called .* already"),
    ],
)
def test_a_renaming_that_would_mix_two_entities_is_refused(
    database: Database, old: str, new: str, said: str
) -> None:
    with pytest.raises(EntityError, match=said):
        rename(database, old, new, by="ada", reason="")


def test_a_name_belongs_to_one_entity_and_can_be_taken_back(database: Database) -> None:
    rename(database, OLD, NEW, by="ada", reason="")
    with pytest.raises(EntityError, match="is another entity"):
        rename(database, OTHER, NEW, by="ada", reason="")
    rename(database, NEW, OLD, by="ada", reason="back")
    (found,) = entities.listed(database)
    assert found.name == OLD
    assert [name for name, _ in found.names] == [NEW, OLD]
    assert entities.resolve(database, [NEW, OLD, OTHER]) == [OLD, OLD, OTHER]


def test_what_the_schedules_start_computes_no_retired_entity(database: Database, url: str) -> None:
    retire(database, OLD, by="ada", reason="")
    with dg.DagsterInstance.ephemeral() as instance:
        register_entities(instance, WORLD.entities)
        # As a schedule asks: windows alone, and the tag of one key, be it that of a retired entity.
        done = Chain(url, instance).run(tags=of_range(f"{OLD}|7d", f"{OLD}|7d"), windows=["7d"])
    assert done.success, done.error
    expected = {f"{entity}|7d" for entity in WORLD.entities if entity != OLD}
    assert set(done.materialised["recommendations"]) == expected
