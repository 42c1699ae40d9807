"""What a cycle reads: which rows, as which columns, and the same ones on every repeat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import psycopg
import pytest

from oracle_core.config import OracleConfig
from oracle_core.inputs import CycleInputs, Ragged
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, inputs
from oracle_dagster.storage.cycles import Cycle
from oracle_dagster.storage.database import Database
from tests.storage_rows import (
    AS_OF,
    Document,
    Impact,
    ago,
    document_id,
    insert_bars,
    insert_documents,
    insert_edge,
    insert_event,
    insert_exposure,
    retract_document,
    revised,
    rows,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    database = Database(migrated_url)
    yield database
    database.close()


def us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def read(database: Database, *entities: str, cycle: Cycle | None = None) -> CycleInputs:
    cycle = pipeline.open_cycle(database, AS_OF) if cycle is None else cycle
    return database.run(lambda bulk: inputs.read_inputs(bulk, cycle, entities), "REPEATABLE READ")


def read_ids(database: Database, *entities: str, cycle: Cycle | None = None) -> list[str]:
    found = read(database, *entities, cycle=cycle)
    return sorted(found.document_ids[found.documents.document].tolist())


def labels(lists: Ragged, of: np.ndarray[tuple[int], np.dtype[np.object_]], row: int) -> list[str]:
    return list(of[lists.codes[lists.offsets[row] : lists.offsets[row + 1]]])


def test_documents_become_columns_with_nan_and_minus_one_for_what_is_missing(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_documents(
            connection,
            [
                Document(
                    "full",
                    (Impact("E", -0.5, 0.25, "legal", ("b", "a", "b")),),
                    published=ago(hours=2),
                    known=ago(hours=1),
                    credibility=0.5,
                    novelty=0.0,
                    confidence=0.75,
                ),
                Document("bare", (Impact("E", 1.0, 1.0, None),), source_type=None, confidence=None),
                Document("failed", failed=True, names=("E",)),
            ],
        )
    found = read(database, "E")
    row = {found.document_ids[code]: at for at, code in enumerate(found.documents.document.tolist())}
    d, full, bare = found.documents, row[document_id("full")], row[document_id("bare")]
    assert (d.published_us[full], d.known_us[full]) == (us(ago(hours=2)), us(ago(hours=1)))
    assert (d.sentiment[full], d.impact[full], d.credibility[full]) == (-0.5, 0.25, 0.5)
    assert (d.novelty[full], d.extraction_confidence[full]) == (0.0, 0.75)
    assert found.catalysts[d.catalyst[full]] == "legal"
    assert found.source_types[d.source_type[full]] == "news"
    assert found.sources[d.source[full]] == "source-1"
    assert labels(d.risks, found.risk_labels, full) == ["b", "a", "b"]
    assert np.isnan([d.credibility[bare], d.novelty[bare], d.extraction_confidence[bare]]).all()
    assert (d.catalyst[bare], d.source_type[bare]) == (-1, -1)
    assert labels(d.risks, found.risk_labels, bare) == []
    failed = row[document_id("failed")]
    assert d.failed.tolist().count(True) == 1
    assert d.failed[failed]
    assert not d.has_impact[failed]
    assert np.isnan([d.sentiment[failed], d.impact[failed]]).all()


def test_string_tables_are_in_the_order_of_code_points_whatever_the_database_collates(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_documents(
            connection,
            [
                Document(f"d{n}", (Impact("E", catalyst=c, risks=(c,)),), source=c, source_type=c)
                for n, c in enumerate(("b", "A", "ä", "Z", "a", "\U0001f600", "\ufb01"))
            ],
        )
    found = read(database, "E")
    wanted = ["A", "Z", "a", "b", "ä", "\ufb01", "\U0001f600"]
    for table in (found.sources, found.source_types, found.catalysts, found.risk_labels):
        assert table.tolist() == wanted
    assert found.document_ids.tolist() == sorted(found.document_ids)


def test_nothing_stored_gives_empty_columns_of_the_right_kind(database: Database) -> None:
    found = read(database, "E")
    assert found.entities.tolist() == ["E"]
    for part in (found.documents, found.bars, found.events, found.exposures, found.edges, found.accuracy):
        for name in part.__slots__:
            assert len(getattr(part, name)) == 0
    assert found.documents.failed.dtype == np.bool_
    assert found.documents.sentiment.dtype == np.float64
    assert found.bars.day.dtype == np.int64


def test_bars_events_exposures_and_edges_become_columns(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_bars(connection, "E", [100.0, 101.5])
        insert_event(connection, "ev", direction="mixed", items={"geo": ["us", "eu"], "sector": ["tech"]})
        insert_exposure(connection, "E", {"geo": {"eu": 0.1}, "commodity": {"oil": 1.0}})
        insert_edge(connection, "F", "E", -0.25)
    found = read(database, "E")
    assert found.entities.tolist() == ["E", "F"]
    last = (datetime(2026, 3, 9, tzinfo=UTC) - EPOCH).days
    assert found.bars.day.tolist() == [last - 1, last]
    assert found.bars.known_us.tolist() == [last * 86_400_000_000, (last + 1) * 86_400_000_000]
    assert (found.bars.close.tolist(), found.bars.volume.tolist()) == ([100.0, 101.5], [1000.0, 1010.0])
    assert found.event_ids[found.events.event].tolist() == [document_id("ev")]
    e = found.events
    assert (e.sign.tolist(), e.severity.tolist(), e.duration.tolist()) == ([0], [1], [1])
    assert labels(e.geo, found.items, 0) == ["us", "eu"]
    assert labels(e.sector, found.items, 0) == ["tech"]
    x = found.exposures
    shares = zip(x.dimension.tolist(), found.items[x.item].tolist(), x.share.tolist(), strict=True)
    assert sorted(shares) == [(0, "eu", 0.1), (2, "oil", 1.0)]
    assert found.items.tolist() == ["eu", "oil", "tech", "us"]
    assert (found.edges.source.tolist(), found.edges.target.tolist()) == ([1], [0])
    assert found.edges.rho.tolist() == [-0.25]


def test_a_row_counts_from_the_moment_it_was_known_on(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_documents(
            connection,
            [
                Document("in time", (Impact("E"),), published=ago(hours=5), known=AS_OF),
                Document(
                    "late", (Impact("E"),), published=ago(hours=5), known=AS_OF + timedelta(microseconds=1)
                ),
            ],
        )
        insert_bars(connection, "E", [100.0], last=AS_OF.date())
        insert_event(connection, "ev", occurred=AS_OF + timedelta(microseconds=1))
    found = read(database, "E")
    assert found.document_ids.tolist() == [document_id("in time")]
    assert (len(found.bars.day), len(found.events.event)) == (0, 0)


def test_a_revision_and_a_retraction_hold_from_their_own_known_at_only(
    database: Database, migrated_url: str
) -> None:
    first = Document("revised", (Impact("E", 1.0),), published=ago(days=9))
    gone = Document("gone", (Impact("E", 1.0),), published=ago(days=9))
    second = revised(first, ago(days=3), impacts=(Impact("E", -1.0), Impact("F", -1.0)))
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [first, gone, second])
        retract_document(connection, gone, ago(days=2))
    seen = {}
    for days in (4, 3, 2):
        found = read(database, "E", "F", cycle=pipeline.open_cycle(database, ago(days=days)))
        names = found.document_ids[found.documents.document]
        seen[days] = sorted(zip(names, found.documents.sentiment.tolist(), strict=True))
    assert seen[4] == sorted([(gone.id, 1.0), (first.id, 1.0)])
    assert seen[3] == sorted([(gone.id, 1.0), (first.id, -1.0), (first.id, -1.0)])
    assert seen[2] == [(first.id, -1.0), (first.id, -1.0)]


def test_a_transaction_that_commits_late_is_not_seen_by_a_repeat_but_by_another_cycle(
    database: Database, migrated_url: str
) -> None:
    """The first run records which transactions had settled; ids and times cannot tell (decisions 5)."""
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document("settled", (Impact("E"),))])
    with psycopg.connect(migrated_url) as open_one:
        insert_documents(open_one, [Document("open", (Impact("E"),))])
        first = read_ids(database, "E")
        open_one.commit()
    assert read_ids(database, "E") == first == [document_id("settled")]
    later = pipeline.open_cycle(database, AS_OF + timedelta(seconds=1))
    assert read_ids(database, "E", cycle=later) == sorted([document_id("settled"), document_id("open")])


def test_every_kind_of_input_written_late_is_left_out_of_a_repeat(
    database: Database, migrated_url: str
) -> None:
    def write(connection: psycopg.Connection[object], entity: str) -> None:
        insert_bars(connection, entity, [100.0])
        insert_event(connection, entity)
        insert_exposure(connection, entity, {"geo": {"us": 0.5}})
        insert_edge(connection, entity, f"{entity}'")

    def counts() -> list[int]:
        found = read(database, "E", "late")
        return [len(x) for x in (found.bars.day, found.events.event, found.exposures.item, found.edges.rho)]

    with psycopg.connect(migrated_url) as connection:
        write(connection, "E")
    assert counts() == [1, 1, 1, 1]
    with psycopg.connect(migrated_url) as connection:
        write(connection, "late")
    assert counts() == [1, 1, 1, 1]
    cycle = pipeline.open_cycle(database, AS_OF)
    assert pipeline.known_entities(database, cycle) == ["E", "E'"]


def test_a_version_that_withdraws_an_input_is_no_input(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_bars(connection, "E", [100.0])
        insert_event(connection, "ev")
        insert_exposure(connection, "E", {"geo": {"us": 0.5}})
        insert_edge(connection, "E", "F")
        for table in ("market_bars", "macro_events", "exposure_profiles", "competitive_edges"):
            connection.execute(f"UPDATE {table} SET retracted = true")
    found = read(database, "E")
    rows_left = [found.bars.day, found.events.event, found.exposures.item, found.edges.rho]
    assert [len(column) for column in rows_left] == [0, 0, 0, 0]
    assert pipeline.known_entities(database, pipeline.open_cycle(database, AS_OF)) == []


def test_a_revision_written_after_the_first_run_does_not_hide_the_version_it_read(
    database: Database, migrated_url: str
) -> None:
    first = Document("d", (Impact("E", 1.0),), published=ago(days=3))
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [first])
    assert read(database, "E").documents.sentiment.tolist() == [1.0]
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [revised(first, ago(days=1), impacts=(Impact("E", -1.0),))])
    assert read(database, "E").documents.sentiment.tolist() == [1.0]


def test_another_configuration_of_the_same_as_of_reads_the_same_rows(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document("a", (Impact("E"),))])
    pipeline.open_cycle(database, AS_OF)
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document("b", (Impact("E"),))])
    changed = OracleConfig().with_settings({"trend.mixed_threshold": 0.2})
    configuration.activate(database, changed, "ada", "try")
    cycle = pipeline.open_cycle(database, AS_OF)
    assert cycle.config_version == 2
    assert read_ids(database, "E", cycle=cycle) == [document_id("a")]


def test_own_documents_reach_back_as_far_as_patterns_and_neighbours_as_far_as_windows(
    database: Database, migrated_url: str
) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_edge(connection, "E", "N")
        for days in (89, 91, 365, 366):
            insert_documents(
                connection,
                [
                    Document(f"{entity}{days}", (Impact(entity),), published=ago(days=days))
                    for entity in ("E", "N", "stranger")
                ],
            )
    assert read_ids(database, "E") == sorted(map(document_id, ("E89", "E91", "E365", "N89")))


def chain_of(connection: psycopg.Connection[object]) -> None:
    for n, pair in enumerate(("AB", "CB", "CD", "DE")):
        insert_edge(connection, pair[0], pair[1], 0.1 * n)


@pytest.mark.parametrize(
    ("settings", "near"),
    [
        ({}, "AB"),
        ({"flags.probabilistic_scoring_enabled": True}, "ABCD"),
        ({"flags.probabilistic_scoring_enabled": True, "competitive.max_distance": 2}, "ABC"),
        ({"flags.competitive_enabled": False}, "A"),
    ],
)
def test_the_mode_decides_how_far_the_graph_is_read(
    database: Database, migrated_url: str, settings: dict[str, object], near: str
) -> None:
    """Heuristic one edge, probabilistic three; edges count in both directions (decisions 2)."""
    with psycopg.connect(migrated_url) as connection:
        chain_of(connection)
    configuration.activate(database, OracleConfig().with_settings(settings), "ada", "mode")
    found = read(database, "A")
    assert found.entities.tolist() == list(near)
    assert len(found.edges.rho) == max(0, len(near) - 1)


def test_known_entities_are_those_that_anything_known_names(database: Database, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        insert_documents(
            connection,
            [
                Document("old", (Impact("old"),), published=ago(days=4000)),
                Document("failed", failed=True, names=("failed",)),
                Document("future", (Impact("future"),), known=AS_OF + timedelta(days=1)),
                gone := Document("gone", (Impact("gone"),)),
            ],
        )
        retract_document(connection, gone, ago(hours=1))
        insert_bars(connection, "bar", [1.0])
        insert_exposure(connection, "exposure", {})
        insert_edge(connection, "source", "Target")
    cycle = pipeline.open_cycle(database, AS_OF)
    wanted = ["Target", "bar", "exposure", "failed", "old", "source"]
    assert pipeline.known_entities(database, cycle) == wanted
    asked = ["gone", "bar", "nobody", "Target", "future"]
    assert database.run(lambda bulk: inputs.known_entities(bulk, cycle, among=asked)) == ["Target", "bar"]


def test_no_loop_touches_single_documents(database: Database, migrated_url: str) -> None:
    """Calls into Python while reading do not grow with the documents (a slice may hold millions)."""
    import sys

    def calls(name: str) -> int:
        count = 0

        def profile(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event == "call"

        cycle = pipeline.open_cycle(database, AS_OF + timedelta(seconds=len(name)))
        read(database, "E", cycle=cycle)
        sys.setprofile(profile)
        try:
            found = read(database, "E", cycle=cycle)
        finally:
            sys.setprofile(None)
        assert len(found.documents.entity) > 0
        return count

    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document(f"d{n}", (Impact("E", risks=("r",)),)) for n in range(20)])
    few = calls("a")
    with psycopg.connect(migrated_url) as connection:
        insert_documents(connection, [Document(f"e{n}", (Impact("E", risks=("r",)),)) for n in range(200)])
    assert calls("bb") == few


# ------------------------------------------------------------------------------------ source accuracy


def measured(database: Database, as_of: datetime, **sources: float) -> Cycle:
    """Store an accuracy of ten outcomes per source as of a cycle."""
    cycle = pipeline.open_cycle(database, as_of)
    names = sorted(sources)
    ratio, samples = np.array([sources[n] for n in names]), np.full(len(names), 10, np.int64)
    database.run(lambda bulk: inputs.write_accuracy(bulk, cycle, names, ratio, samples))
    return cycle


def ratios(database: Database, cycle: Cycle) -> dict[str, float]:
    names, ratio, _ = inputs.settle_accuracy(database, cycle)
    return dict(zip(names.to_pylist(), ratio.tolist(), strict=True))


def test_a_cycle_uses_the_newest_accuracy_up_to_its_as_of(database: Database) -> None:
    measured(database, ago(days=3), a=0.3)
    measured(database, ago(days=1), a=0.1)
    assert ratios(database, pipeline.open_cycle(database, ago(days=2))) == {"a": 0.3}
    own = measured(database, ago(days=2, hours=-1), a=0.2)
    assert ratios(database, own) == {"a": 0.2}
    assert ratios(database, pipeline.open_cycle(database, ago(days=9))) == {}


def test_a_repeat_uses_the_accuracy_of_its_first_run(database: Database) -> None:
    measured(database, ago(days=3), a=0.3)
    cycle, none = pipeline.open_cycle(database, AS_OF), pipeline.open_cycle(database, ago(days=9))
    assert ratios(database, cycle) == {"a": 0.3}
    assert ratios(database, none) == {}
    measured(database, ago(days=1), a=0.1)
    measured(database, AS_OF, a=0.0)
    measured(database, ago(days=10), a=1.0)
    assert ratios(database, cycle) == {"a": 0.3}
    assert ratios(database, none) == {}


def test_an_older_cycle_leaves_the_current_accuracy_and_a_newer_one_replaces_it(
    database: Database, migrated_url: str
) -> None:
    query = "SELECT source_id, accuracy_ratio, sample_count, last_updated FROM source_accuracy ORDER BY 1"
    measured(database, ago(days=2), a=0.5, gone=0.5)
    measured(database, ago(days=1), a=0.25)
    measured(database, ago(days=3), a=1.0, gone=1.0)
    assert rows(migrated_url, query) == [("a", 0.25, 10, ago(days=1))]
    assert len(rows(migrated_url, "SELECT FROM source_accuracy_history")) == 5


def test_without_the_table_every_source_counts_as_unknown_with_a_warning_r165(
    database: Database, migrated_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    cycle = measured(database, AS_OF, a=0.3)
    with psycopg.connect(migrated_url) as connection:
        connection.execute("DROP TABLE source_accuracy_history")
    assert ratios(database, cycle) == {}
    assert any("accuracy" in r.getMessage() and r.levelname == "WARNING" for r in caplog.records)


def test_accuracy_that_cannot_be_stored_is_an_error_in_the_log_and_the_old_one_stays_r166(
    database: Database, migrated_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    measured(database, ago(days=3), a=0.3)
    with psycopg.connect(migrated_url) as connection:
        connection.execute("DROP TABLE source_accuracy CASCADE")
    cycle = pipeline.open_cycle(database, AS_OF)
    report = pipeline.update_source_accuracy(database, cycle, run_id="r")
    assert "source_accuracy" in str(report.metadata["error"])
    assert [r.levelname for r in caplog.records if "not updated" in r.getMessage()] == ["ERROR"]
    assert ratios(database, cycle) == {"a": 0.3}
    assert json.dumps(report.data_version)
