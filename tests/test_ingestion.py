"""Ingestion of good input: formats, clocks, versions, repetition, interruption (decisions 5 and 6)."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from oracle_dagster.ingestion import IngestStoppedError, Kind, Progress, Reason, ingest
from oracle_dagster.storage.database import Database
from tests.ingestion_inputs import (
    NOW,
    Line,
    Row,
    document,
    edge,
    empty,
    event,
    exposure,
    impact,
    jsonl,
    migrated_database,
    new_database,
    rows,
    stored,
    uid,
)
from tests.worlds import documents, write_world

# What differs between two databases that hold the same.
INCIDENTAL = ("xid", "superseded_xid", "created_at")


@pytest.fixture(scope="module")
def template(embedded_home: Path) -> Iterator[str]:
    """A migrated database to copy."""
    with migrated_database(embedded_home) as name:
        yield name


@pytest.fixture(scope="module")
def shared(embedded_home: Path, template: str) -> Iterator[tuple[str, Database]]:
    """One database for the tests of this file, which empty it first."""
    with new_database(embedded_home, template) as url:
        opened = Database(url)
        yield url, opened
        opened.close()


@pytest.fixture
def url(shared: tuple[str, Database]) -> str:
    """A database with empty tables."""
    empty(shared[0])
    return shared[0]


@pytest.fixture
def database(shared: tuple[str, Database], url: str) -> Database:
    """The same, ready for use."""
    return shared[1]


def test_a_folder_is_loaded_whole_and_loading_it_twice_changes_nothing(
    database: Database, url: str, tmp_path: Path
) -> None:
    """Decisions 6: the second load finds every record unchanged and leaves every row as it was."""
    entities = write_world(tmp_path / "in", entities=6, count=60, bar_days=20)
    seen: list[Progress] = []
    report = ingest(database, tmp_path / "in", now=NOW, known_at="published", progress=seen.append)
    lines = len((tmp_path / "in" / "market_data.csv").read_text().splitlines()) - 1
    assert report.counts[Kind.DOCUMENTS].inserted == 60
    assert report.counts[Kind.MARKET_DATA].inserted == lines
    assert set(report.counts) == set(Kind)
    assert report.total.read == report.total.inserted
    assert report.affected_entities == set(entities)
    assert {Path(p.file).name: p.position == p.size for p in seen} == dict.fromkeys(
        (Path(f).name for f in report.files), True
    )
    before = stored(url)
    again = ingest(database, tmp_path / "in", now=NOW + timedelta(days=1), revise=True)
    assert again.total.unchanged == again.total.read == report.total.read
    assert again.affected_entities == set()
    assert again.warnings == []
    assert stored(url) == before


def test_what_a_document_says_is_stored_as_decided(database: Database, url: str, tmp_path: Path) -> None:
    """Decisions 1 and 6: numeric sentiment overrides the label, labels count +1, -1, 0, names get a row."""
    record = document(
        "all",
        known_at="2026-03-10T09:00:00+02:00",
        credibility=0,
        novelty=1,
        title="Title, | and\n…",
        url="https://example.org",
        story_id="story",
        extraction={"status": "ok", "confidence": 1},
        impacts=[
            impact("Zeta", sentiment="mixed", catalyst_type="legal", risks=["b", "a", 'ü"']),
            impact("Alpha", sentiment="positive", sentiment_value=-0.25),
            impact("Beta", sentiment="negative", impact_score=0),
            impact("Gamma", sentiment=None, sentiment_value=1),
        ],
        entities=["Alpha", "Omega", "Omega"],
    )
    failed = document("failed", extraction={"status": "failed"}, impacts=None, entities=["Ünï/(1)"])
    bare = document("bare", impacts=None, source_type=None)
    report = ingest(database, jsonl(tmp_path / "documents.jsonl", [record, failed, bare]), now=NOW)
    assert report.total.inserted == 3
    assert report.affected_entities == {"Alpha", "Beta", "Gamma", "Zeta", "Omega", "Ünï/(1)"}
    impacts = rows(
        url, "SELECT * FROM document_impact_records WHERE document_id = %s ORDER BY entity_id", uid("all")
    )
    columns = (
        "entity_id",
        "has_impact",
        "sentiment_label",
        "sentiment",
        "impact_score",
        "catalyst_type",
        "risk_flags",
    )
    assert [tuple(row[c] for c in columns) for row in impacts] == [
        ("Alpha", True, "positive", -0.25, 0.5, None, []),
        ("Beta", True, "negative", -1.0, 0.0, None, []),
        ("Gamma", True, None, 1.0, 0.5, None, []),
        ("Omega", False, None, None, None, None, []),
        ("Zeta", True, "mixed", 0.0, 0.5, "legal", ["b", "a", 'ü"']),
    ]
    (shown,) = rows(url, "SELECT * FROM documents WHERE id = %s", uid("all"))
    assert (shown["title"], shown["url"], shown["story_id"]) == (
        "Title, | and\n…",
        "https://example.org",
        "story",
    )
    assert (shown["status"], shown["version"], shown["source_type"]) == ("extracted", 1, "news")
    (read,) = rows(url, "SELECT * FROM document_intelligence WHERE document_id = %s", uid("all"))
    assert (read["extraction_confidence"], read["credibility"], read["novelty"]) == (1.0, 0.0, 1.0)
    assert read["known_at"] == datetime(2026, 3, 10, 7, tzinfo=UTC)
    assert not read["failed"]
    assert not read["retracted"]
    (shown,) = rows(url, "SELECT * FROM documents WHERE id = %s", uid("failed"))
    assert shown["status"] == "failed"
    (read,) = rows(url, "SELECT * FROM document_intelligence WHERE document_id = %s", uid("failed"))
    assert (read["failed"], read["extraction_confidence"]) == (True, None)
    (named,) = rows(url, "SELECT * FROM document_impact_records WHERE document_id = %s", uid("failed"))
    assert (named["entity_id"], named["has_impact"]) == ("Ünï/(1)", False)


def test_the_other_kinds_are_stored_with_their_values(database: Database, url: str, tmp_path: Path) -> None:
    """Every field of a record is in its table; lists of items have no order."""
    jsonl(tmp_path / "global_events.jsonl", [event("e", supply=["b", "a"], title="T", event_type="strike")])
    jsonl(tmp_path / "exposures.jsonl", [exposure("X", commodity={"oil": 1})])
    jsonl(tmp_path / "relationships.jsonl", [edge("X", "Y", historical_correlation=-1)])
    (tmp_path / "market_data.csv").write_text("entity_id,date,close,volume\nX,2026-03-01,1.25,7\n")
    assert ingest(database, tmp_path, now=NOW).total.inserted == 4
    (row,) = rows(url, "SELECT * FROM macro_events")
    assert (row["geo"], row["supply"], row["commodity"], row["sector"]) == (["us"], ["a", "b"], [], [])
    assert (row["direction"], row["severity"], row["estimated_duration"]) == (
        "negative",
        "high",
        "short_term",
    )
    assert (row["title"], row["event_type"], row["occurred_at"].isoformat()) == (
        "T",
        "strike",
        "2026-03-01T00:00:00+00:00",
    )
    (row,) = rows(url, "SELECT * FROM exposure_profiles")
    assert (row["geo"], row["supply"], row["commodity"], row["sector"]) == ({"us": 0.5}, {}, {"oil": 1.0}, {})
    (row,) = rows(url, "SELECT * FROM competitive_edges")
    assert (row["source_entity"], row["target_entity"], row["relation_type"]) == ("X", "Y", "competitor")
    assert row["historical_correlation"] == -1.0
    (row,) = rows(url, "SELECT * FROM market_bars")
    assert (row["entity_id"], row["day"].isoformat(), row["close"], row["volume"]) == (
        "X",
        "2026-03-01",
        1.25,
        7.0,
    )


def _parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path)


def test_gzip_and_parquet_hold_the_same_records(embedded_home: Path, template: str, tmp_path: Path) -> None:
    """Decisions 6: each file also as .gz, and Parquet with the same columns, nested ones included."""
    plain, packed, columnar = (tmp_path / name for name in ("plain", "packed", "columnar"))
    write_world(plain, entities=4, count=30, bar_days=10)
    packed.mkdir()
    columnar.mkdir()
    for path in plain.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        target = columnar / f"{path.stem}.parquet"
        if path.suffix == ".csv":
            cells = [line.split(",") for line in path.read_text().splitlines()]
            values = dict(zip(cells[0], zip(*cells[1:], strict=True), strict=True))
            _parquet(
                target,
                pa.table(
                    {
                        "entity_id": values["entity_id"],
                        "date": pa.array(values["date"]).cast(pa.date32()),
                        "close": pa.array(values["close"]).cast(pa.float64()),
                        "volume": pa.array(values["volume"]).cast(pa.int64()),
                    }
                ),
            )
            continue
        records: list[Row] = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            for field in {"published_at", "known_at", "occurred_at"} & set(record):
                record[field] = datetime.fromisoformat(record[field])
        _parquet(target, pa.Table.from_pylist(records, _unified(records)))
    contents = []
    for folder in (plain, packed, columnar):
        with new_database(embedded_home, template) as url:
            database = Database(url)
            report = ingest(database, folder, now=NOW, known_at="published")
            assert (report.total.rejected, set(report.counts)) == (0, set(Kind))
            contents.append(stored(url, without=INCIDENTAL))
            database.close()
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]["documents"]) == 30


def _unified(records: list[Row]) -> pa.Schema:
    names = list(dict.fromkeys(name for record in records for name in record))
    return pa.schema({name: pa.infer_type([r.get(name) for r in records]) for name in names})


def test_a_parquet_file_with_naive_times_or_other_columns_is_refused(
    database: Database, tmp_path: Path
) -> None:
    """The rules do not depend on the format."""
    naive = document() | {"published_at": datetime(2026, 3, 10)}  # noqa: DTZ001 - that is the point
    _parquet(tmp_path / "documents.parquet", pa.Table.from_pylist([naive]))
    (refused,) = ingest(database, tmp_path, now=NOW).rejections
    assert (refused.reason, refused.line, refused.field) == (Reason.NAIVE_TIMESTAMP, 1, "published_at")
    _parquet(tmp_path / "documents.parquet", pa.Table.from_pylist([document(x=1)]))
    (refused,) = ingest(database, tmp_path, now=NOW).rejections
    assert refused.reason is Reason.WRONG_COLUMNS
    assert "unknown column x" in refused.message


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Kind.DOCUMENTS, json.dumps(document())),
        (Kind.GLOBAL_EVENTS, json.dumps(event())),
        (Kind.EXPOSURES, json.dumps(exposure())),
        (Kind.RELATIONSHIPS, json.dumps(edge())),
        (Kind.MARKET_DATA, "entity_id,date,close\nX,2026-03-01,1"),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_a_file_of_any_name_is_recognised_by_its_content(
    kind: Kind, line: str, pack: bool, database: Database, tmp_path: Path
) -> None:
    """Decisions 6: PATH is a file or a folder; a file need not have the folder's names."""
    path = tmp_path / "delivery of 10 March.dat"
    path.write_bytes(gzip.compress(line.encode()) if pack else line.encode())
    assert ingest(database, path, now=NOW).counts[kind].inserted == 1


# --------------------------------------------------------------------------------------------- two clocks


def _known(url: str) -> dict[str, str]:
    """known_at of the only row of each table."""
    tables = (
        "document_intelligence",
        "market_bars",
        "macro_events",
        "exposure_profiles",
        "competitive_edges",
    )
    return {table: rows(url, f"SELECT known_at FROM {table}")[0]["known_at"].isoformat() for table in tables}


def _one_of_each(folder: Path, **known: str) -> Path:
    jsonl(folder / "documents.jsonl", [document(**known)])
    jsonl(folder / "global_events.jsonl", [event(**known)])
    jsonl(folder / "exposures.jsonl", [exposure(**known)])
    jsonl(folder / "relationships.jsonl", [edge(**known)])
    (folder / "market_data.csv").write_text(
        f"entity_id,date,close,known_at\nX,2026-03-08,1,{known.get('known_at', '')}\n"
    )
    return folder


def test_a_record_without_known_at_is_known_from_its_ingestion(
    database: Database, url: str, tmp_path: Path
) -> None:
    """Decisions 5: the moment of ingestion, and a warning where that is late."""
    report = ingest(database, _one_of_each(tmp_path), now=NOW)
    assert set(_known(url).values()) == {"2026-03-10T12:00:00+00:00"}
    old = [warning for warning in report.warnings if "--known-at published" in warning]
    assert len(old) == 2  # the bar and the event; the document is six hours old
    assert "1 bars more than a day old become known only now" in " ".join(old)


def test_a_historical_load_dates_records_back(database: Database, url: str, tmp_path: Path) -> None:
    """Decisions 5: --known-at published: publication, D+1 00:00, occurrence, always."""
    report = ingest(database, _one_of_each(tmp_path), now=NOW, known_at="published")
    assert _known(url) == {
        "document_intelligence": "2026-03-10T06:00:00+00:00",
        "market_bars": "2026-03-09T00:00:00+00:00",
        "macro_events": "2026-03-01T00:00:00+00:00",
        "exposure_profiles": "1900-01-01T00:00:00+00:00",
        "competitive_edges": "1900-01-01T00:00:00+00:00",
    }
    assert report.warnings == []


def test_a_record_of_its_own_known_at_keeps_it(database: Database, url: str, tmp_path: Path) -> None:
    """Decisions 5: the record's own known_at wins under both settings."""
    ingest(database, _one_of_each(tmp_path, known_at="2026-03-10T07:00:00Z"), now=NOW, known_at="published")
    assert set(_known(url).values()) == {"2026-03-10T07:00:00+00:00"}


def test_nothing_is_known_before_it_exists(database: Database, url: str, tmp_path: Path) -> None:
    """Decisions 1: a bar of today is known from midnight, a document dated ahead from its date."""
    (tmp_path / "market_data.csv").write_text("entity_id,date,close\nX,2026-03-10,1\n")
    jsonl(tmp_path / "documents.jsonl", [document(published_at="2026-03-11T00:00:00Z")])
    ingest(database, tmp_path, now=NOW)
    assert (
        rows(url, "SELECT known_at FROM market_bars")[0]["known_at"].isoformat()
        == "2026-03-11T00:00:00+00:00"
    )
    (row,) = rows(url, "SELECT known_at FROM document_intelligence")
    assert row["known_at"].isoformat() == "2026-03-11T00:00:00+00:00"
    (tmp_path / "market_data.csv").write_text(
        "entity_id,date,close,known_at\nY,2026-03-10,1,2026-03-10T23:59:59Z\n"
    )
    (refused,) = ingest(database, tmp_path, now=NOW).rejections
    assert refused.reason is Reason.KNOWN_TOO_EARLY
    assert "before the end of its day (UTC) 2026-03-11T00:00:00+00:00" in refused.message


# ------------------------------------------------------------------------------------------------ versions


def test_spelling_is_not_content(database: Database, tmp_path: Path) -> None:
    """Another order of fields and impacts, another offset, another way to write a number: the same record."""
    impacts = [impact("A", sentiment="positive"), impact("B", sentiment="mixed")]
    one = document("d", credibility=0.5, novelty=0, impacts=impacts, entities=["C"])
    same = dict(reversed(one.items())) | {
        "document_id": uid("d").upper(),
        "published_at": "2026-03-10T08:00:00.000+02:00",
        "novelty": -0.0,
        "impacts": [
            impact("B", sentiment="mixed", sentiment_value=-0.0),
            impact("A", sentiment="positive", sentiment_value=1.0, risks=[]),
        ],
        "entities": ["C", "A"],
    }
    text = json.dumps(same).replace("0.5", "5e-1")
    jsonl(tmp_path / "documents.jsonl", [one])
    ingest(database, tmp_path, now=NOW)
    jsonl(tmp_path / "documents.jsonl", [text.encode(), f"  {text}\t\r".encode()])
    assert ingest(database, tmp_path, now=NOW).total.unchanged == 2


@pytest.mark.parametrize(
    "change",
    [
        {"source_id": "x"},
        {"source_type": "blog"},
        {"published_at": "2026-03-10T06:00:00.000001Z"},
        {"title": "x"},
        {"url": "x"},
        {"story_id": "x"},
        {"credibility": 0.0},
        {"novelty": 0.0},
        {"entities": ["X"]},
        {"impacts": []},
        {"extraction": {"status": "ok", "confidence": 0.8}},
        {"extraction": {"status": "failed", "confidence": 0.9}},
        {"impacts": [impact("B")]},
        {"impacts": [impact(sentiment="negative")]},
        {"impacts": [impact(impact_score=1)]},
        {"impacts": [impact(sentiment_value=0.5)]},
        {"impacts": [impact(catalyst_type="x")]},
        {"impacts": [impact(risks=["x"])]},
        {"impacts": [impact(), impact("B")]},
        {"known_at": "2026-03-10T11:00:00Z"},
    ],
    ids=str,
)
def test_any_change_of_a_document_is_other_content(
    change: Row, database: Database, url: str, tmp_path: Path
) -> None:
    """Decisions 6: same id, other content is a conflict; with --revise a new version beside the old."""
    jsonl(tmp_path / "documents.jsonl", [document(known_at="2026-03-10T10:00:00Z")])
    ingest(database, tmp_path, now=NOW)
    before = stored(url, without=("superseded_known_at", "superseded_xid"))
    jsonl(tmp_path / "documents.jsonl", [document(known_at="2026-03-10T10:00:00Z") | change])
    (refused,) = ingest(database, tmp_path, now=NOW).rejections
    assert refused.reason is Reason.CONFLICT

    changed = document(known_at="2026-03-10T11:00:00Z") | change
    jsonl(tmp_path / "documents.jsonl", [changed])
    report = ingest(database, tmp_path, now=NOW, revise=True)
    assert (report.total.revised, report.total.inserted) == (1, 0)
    assert "ACME" in report.affected_entities  # named by the old version
    after = stored(url, without=("superseded_known_at", "superseded_xid"))
    assert after["document_intelligence"][0] == before["document_intelligence"][0]
    assert after["document_impact_records"][:1] == before["document_impact_records"]
    old, new = rows(url, "SELECT * FROM document_intelligence ORDER BY version")
    assert (new["version"], new["known_at"].isoformat()) == (2, "2026-03-10T11:00:00+00:00")
    assert (old["superseded_known_at"], old["superseded_xid"]) == (new["known_at"], new["xid"])
    assert new["superseded_xid"] is None
    (shown,) = rows(url, "SELECT * FROM documents")
    assert shown["version"] == 2
    assert shown["source_id"] == changed["source_id"]
    assert ingest(database, tmp_path, now=NOW, revise=True).total.unchanged == 1


@pytest.mark.parametrize("kind", [Kind.GLOBAL_EVENTS, Kind.EXPOSURES, Kind.RELATIONSHIPS, Kind.MARKET_DATA])
def test_every_kind_is_versioned(kind: Kind, database: Database, url: str, tmp_path: Path) -> None:
    """Decisions 5: bars, events, edges and exposures are versioned like documents."""
    cases: dict[Kind, tuple[Line, Line, str]] = {
        Kind.GLOBAL_EVENTS: (event(), event(severity="low"), "macro_events"),
        Kind.EXPOSURES: (exposure(), exposure(geo={"us": 0.25}), "exposure_profiles"),
        Kind.RELATIONSHIPS: (edge(), edge(historical_correlation=0.25), "competitive_edges"),
        Kind.MARKET_DATA: (b"X,2026-03-01,1,2", b"X,2026-03-01,1,", "market_bars"),
    }
    first, second, table = cases[kind]
    bars = kind is Kind.MARKET_DATA
    path = tmp_path / f"{kind}.{'csv' if bars else 'jsonl'}"
    header = [b"entity_id,date,close,volume"] if bars else []
    jsonl(path, [*header, first])
    ingest(database, path, now=NOW)
    jsonl(path, [*header, second])
    later = NOW + timedelta(hours=1)
    assert ingest(database, path, now=later).total.rejected == 1
    assert ingest(database, path, now=later, revise=True).total.revised == 1
    old, new = rows(url, f"SELECT * FROM {table} ORDER BY version")
    assert (old["version"], new["version"], new["known_at"]) == (1, 2, later)
    assert (old["superseded_known_at"], old["superseded_xid"]) == (later, new["xid"])
    assert (new["superseded_known_at"], new["superseded_xid"]) == (None, None)
    assert ingest(database, path, now=later, revise=True).total.unchanged == 1
    # The file from before is recognised, too, and not taken for news.
    jsonl(path, [*header, first])
    assert ingest(database, path, now=later).total.unchanged == 1


def test_a_revision_is_never_known_before_what_it_revises(
    database: Database, url: str, tmp_path: Path
) -> None:
    """Decisions 5: a revision is known from its own known_at; two versions must never hold at once."""
    jsonl(tmp_path / "documents.jsonl", [document(known_at="2026-03-10T10:00:00Z")])
    ingest(database, tmp_path, now=NOW)
    jsonl(tmp_path / "documents.jsonl", [document(novelty=1, known_at="2026-03-10T09:00:00Z")])
    (refused,) = ingest(database, tmp_path, now=NOW, revise=True).rejections
    assert (refused.reason, refused.field) == (Reason.KNOWN_TOO_EARLY, "known_at")
    assert "(version 1, known since 2026-03-10T10:00:00+00:00)" in refused.message
    jsonl(tmp_path / "documents.jsonl", [document(novelty=1)])
    report = ingest(database, tmp_path, now=NOW, revise=True, known_at="published")
    assert report.total.revised == 1
    assert "give known_at to say when the revision was first known" in report.warnings[0]
    _, new = rows(url, "SELECT known_at FROM document_intelligence ORDER BY version")
    assert new["known_at"].isoformat() == "2026-03-10T10:00:00+00:00"


@pytest.mark.parametrize("block_records", [1, 100])
@pytest.mark.parametrize("first_is_stored", [False, True])
def test_one_file_revises_a_record_once(
    first_is_stored: bool, block_records: int, database: Database, url: str, tmp_path: Path
) -> None:
    """Two different records of one id in one file: the second is a conflict, whatever block it is in."""
    path = tmp_path / "documents.jsonl"
    jsonl(path, [document() if first_is_stored else document(novelty=0.1)])
    ingest(database, path, now=NOW)
    jsonl(path, [document(), document(novelty=0.2), document(), document("other")])
    report = ingest(database, path, now=NOW, revise=True, block_records=block_records)
    assert (report.total.inserted, report.total.revised) == (1, 0 if first_is_stored else 1)
    assert (report.total.unchanged, report.total.rejected) == (2 if first_is_stored else 1, 1)
    assert (report.rejections[0].reason, report.rejections[0].line) == (Reason.CONFLICT, 2)


def test_a_revision_may_restore_what_was_there_before(database: Database, url: str, tmp_path: Path) -> None:
    """A correction that is taken back is a third version, not a repetition of the first."""
    path = tmp_path / "documents.jsonl"
    for hour, record in enumerate((document(), document(novelty=1), document())):
        jsonl(path, [record])
        ingest(database, path, now=NOW + timedelta(hours=hour), revise=True)
    versions = rows(
        url, "SELECT novelty, known_at, superseded_known_at FROM document_intelligence ORDER BY version"
    )
    assert [row["novelty"] for row in versions] == [None, 1.0, None]
    assert all(a["superseded_known_at"] == b["known_at"] for a, b in pairwise(versions))


# ------------------------------------------------------------------------------- memory, crowds, accidents


def test_memory_does_not_grow_with_the_file(database: Database, tmp_path: Path) -> None:
    """Issue: 1,000,000 documents under 1 GB. Here small blocks, and three times the documents."""
    peaks = []
    for count in (2_000, 6_000):
        path = jsonl(tmp_path / "documents.jsonl", documents(["A", "B", "C"], count, seed=count))
        pool = pa.system_memory_pool()
        before = pool.bytes_allocated()
        tracemalloc.start()
        largest = 0

        def watch(_: Progress, pool: pa.MemoryPool = pool, before: int = before) -> None:
            nonlocal largest
            largest = max(largest, pa.total_allocated_bytes() + pool.bytes_allocated() - before)

        report = ingest(database, path, now=NOW, block_records=500, progress=watch)
        peaks.append(tracemalloc.get_traced_memory()[1] + largest)
        tracemalloc.stop()
        assert report.total.inserted == count
    assert peaks[1] < 1.25 * peaks[0]


def test_two_loads_of_one_file_at_once_end_like_one(
    embedded_home: Path, template: str, tmp_path: Path
) -> None:
    """Neither fails, nothing is there twice, and together they inserted each record once."""
    path = jsonl(tmp_path / "documents.jsonl", [*documents(["A", "B"], 120), document(impacts=[impact("|")])])
    reports: list[Any] = []
    with new_database(embedded_home, template) as url, new_database(embedded_home, template) as quiet:

        def load(target: str) -> None:
            database = Database(target)
            reports.append(ingest(database, path, now=NOW, block_records=20))
            database.close()

        threads = [threading.Thread(target=load, args=(url,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(report.total.inserted for report in reports) == 120
        assert sum(report.total.unchanged for report in reports) == 120
        load(quiet)
        assert stored(url, without=(*INCIDENTAL, "id")) == stored(quiet, without=(*INCIDENTAL, "id"))


_CHILD = """
import sys
from datetime import datetime
from pathlib import Path
from oracle_dagster.ingestion import ingest
from oracle_dagster.storage.database import Database

def tell(progress):
    print(progress.records, flush=True)
    if progress.records >= 60:
        sys.stdin.read()

ingest(Database(sys.argv[1]), Path(sys.argv[2]), now=datetime.fromisoformat(sys.argv[3]), block_records=20,
       progress=tell)
"""


def test_a_killed_load_leaves_whole_blocks_and_a_repeat_completes_it(
    embedded_home: Path, template: str, tmp_path: Path
) -> None:
    """All tables of a record are written in one transaction; a repeat recognises what is there."""
    path = jsonl(tmp_path / "documents.jsonl", documents(["A", "B", "C"], 200))
    with new_database(embedded_home, template) as url, new_database(embedded_home, template) as quiet:
        command = [sys.executable, "-c", _CHILD, url, str(path), NOW.isoformat()]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            while child.stdout.readline() != "60\n":
                assert child.poll() is None
            child.send_signal(signal.SIGKILL)
        counts = [
            rows(url, f"SELECT count(*) AS n FROM {table}")[0]["n"]
            for table in ("documents", "document_intelligence")
        ]
        assert counts == [60, 60]
        for target in (url, quiet):
            database = Database(target)
            report = ingest(database, path, now=NOW)
            assert report.total.read == 200
            database.close()
        assert stored(url, without=INCIDENTAL) == stored(quiet, without=INCIDENTAL)


def test_a_full_disk_stops_the_load_between_blocks_and_a_repeat_continues(
    database: Database, url: str, tmp_path: Path
) -> None:
    """The error says why, how far the load came, and what to do; the block that failed left nothing."""
    path = jsonl(tmp_path / "documents.jsonl", documents(["A"], 50))
    with database.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF (SELECT count(*) FROM documents) > 20 THEN "
                "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; "
                "END IF; RETURN NULL; END $$"
            )
        )
        # After all else of the block has been written.
        connection.execute(
            sa.text(
                "CREATE TRIGGER filled AFTER INSERT ON document_impact_records "
                "FOR EACH STATEMENT EXECUTE FUNCTION fill()"
            )
        )
    with pytest.raises(IngestStoppedError) as stopped:
        ingest(database, path, now=NOW, block_records=20)
    assert stopped.value.report.total.inserted == 20
    assert "No space left on device" in str(stopped.value)
    assert "free space on the disk" in str(stopped.value)
    assert "documents: 20 read, 20 new" in str(stopped.value)
    assert {len(stored(url)[table]) for table in ("documents", "document_intelligence")} == {20}
    with database.begin() as connection:
        connection.execute(sa.text("DROP FUNCTION fill CASCADE"))
    report = ingest(database, path, now=NOW)
    assert (report.total.unchanged, report.total.inserted) == (20, 30)


def test_a_read_only_or_absent_database_is_a_clear_error(url: str, tmp_path: Path) -> None:
    """The reason and the remedy, not a driver's trace."""
    path = jsonl(tmp_path / "documents.jsonl", [document()])
    read_only = Database(f"{url}&options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(IngestStoppedError, match="read-only") as stopped:
        ingest(read_only, path, now=NOW)
    assert "nothing was loaded" in str(stopped.value)
    read_only.close()
    absent = Database(f"postgresql://oracle@/x?host={tmp_path}", patience_seconds=0)
    with pytest.raises(IngestStoppedError, match="check that the server runs"):
        ingest(absent, path, now=NOW)
    assert stored(url)["documents"] == []
