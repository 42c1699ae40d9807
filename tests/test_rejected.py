"""Refused records are kept, listed and can be tried again (decisions 6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from oracle_dagster.ingestion import Kind, Reason, ingest, list_rejected, models, retry_rejected
from oracle_dagster.storage.database import Database
from tests.ingestion_inputs import (
    NOW,
    document,
    edge,
    empty,
    impact,
    jsonl,
    migrated_database,
    new_database,
    rows,
    stored,
    uid,
)

LATER = NOW + timedelta(hours=1)


@pytest.fixture(scope="module")
def shared(embedded_home: Path) -> Iterator[tuple[str, Database]]:
    """One database for the tests of this file."""
    with migrated_database(embedded_home) as template, new_database(embedded_home, template) as url:
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


def test_rejections_are_listed_by_file_and_line(database: Database, tmp_path: Path) -> None:
    """What is to be corrected stands in the order in which a person goes through the file."""
    jsonl(tmp_path / "documents.jsonl", [document("a", x=1), document("b"), b"{", document("c", novelty=2)])
    jsonl(tmp_path / "relationships.jsonl", [edge("A", "A")])
    ingest(database, tmp_path, now=NOW)
    listed = list_rejected(database)
    assert [(Path(r.rejection.file).name, r.rejection.line, r.rejection.reason) for r in listed] == [
        ("documents.jsonl", 1, Reason.UNKNOWN_FIELD),
        ("documents.jsonl", 3, Reason.BROKEN_JSON),
        ("documents.jsonl", 4, Reason.OUT_OF_RANGE),
        ("relationships.jsonl", 1, Reason.SELF_EDGE),
    ]
    assert {(r.rejected_at, r.resolved_at) for r in listed} == {(NOW, None)}
    assert listed[1].rejection.record == "{"
    assert len(list_rejected(database, kind=Kind.RELATIONSHIPS)) == 1
    assert len(list_rejected(database, limit=2)) == 2


def test_loading_a_bad_file_twice_keeps_each_rejection_once(
    database: Database, url: str, tmp_path: Path
) -> None:
    """Loading the same file twice changes nothing, bad records included."""
    jsonl(tmp_path / "documents.jsonl", [document("a", x=1), document("a", x=1), document("d"), b"{"])
    ingest(database, tmp_path, now=NOW)
    before = stored(url)
    assert ingest(database, tmp_path, now=LATER).total.rejected == 3
    assert stored(url) == before


def test_a_retry_with_revise_settles_conflicts(database: Database, url: str, tmp_path: Path) -> None:
    """The file is not needed for that: the original text was kept."""
    path = jsonl(tmp_path / "documents.jsonl", [document("a")])
    ingest(database, path, now=NOW)
    jsonl(path, [document("a", novelty=1), document("b", novelty=2)])
    ingest(database, path, now=NOW)
    path.unlink()

    report = retry_rejected(database, now=LATER)
    assert (report.resolved, report.remaining, report.skipped) == (0, 2, 0)
    report = retry_rejected(database, now=LATER, revise=True)
    assert (report.resolved, report.remaining, report.skipped) == (1, 1, 0)
    assert report.ingest.counts[Kind.DOCUMENTS].revised == 1
    assert report.ingest.affected_entities == {"ACME"}
    new = rows(url, "SELECT * FROM document_intelligence WHERE document_id = %s AND version = 2", uid("a"))
    assert (new[0]["novelty"], new[0]["known_at"]) == (1.0, LATER)
    (left,) = list_rejected(database)
    assert left.rejection.reason is Reason.OUT_OF_RANGE
    settled = [r for r in list_rejected(database, include_resolved=True) if r.resolved_at is not None]
    assert [(r.rejection.reason, r.resolved_at) for r in settled] == [(Reason.CONFLICT, LATER)]


def test_a_retry_judges_by_the_rules_of_now(
    database: Database, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rules were mended, what they refused wrongly is loaded, a CSV line by its own header too."""
    jsonl(tmp_path / "documents.jsonl", [document("d", impacts=[impact("A|B")]), document("e", x=1)])
    jsonl(tmp_path / "market_data.csv", [b"close,date,entity_id", b"2.5,2026-03-01,A|B"])
    ingest(database, tmp_path, now=NOW)
    assert len(list_rejected(database)) == 3
    monkeypatch.setattr(models, "FORBIDDEN_IN_ENTITY_IDS", ())
    report = retry_rejected(database, now=LATER, known_at="published")
    assert (report.resolved, report.remaining) == (2, 1)
    assert [r.rejection.field for r in list_rejected(database)] == ["x"]
    (bar,) = rows(url, "SELECT entity_id, close, known_at FROM market_bars")
    assert (bar["entity_id"], bar["close"]) == ("A|B", 2.5)
    assert bar["known_at"].isoformat() == "2026-03-02T00:00:00+00:00"


def test_a_record_that_fails_for_another_reason_now_says_the_new_one(
    database: Database, tmp_path: Path
) -> None:
    """A person correcting records needs the reason that holds today."""
    jsonl(tmp_path / "documents.jsonl", [document("a"), document("a", known_at="2026-03-10T07:00:00Z")])
    ingest(database, tmp_path, now=NOW)
    (kept,) = list_rejected(database)
    assert kept.rejection.reason is Reason.CONFLICT
    report = retry_rejected(database, now=LATER, revise=True, ids=[kept.id])
    assert (report.resolved, report.remaining) == (0, 1)
    (kept,) = list_rejected(database)
    assert kept.rejection.reason is Reason.KNOWN_TOO_EARLY
    assert "before that of what it revises" in kept.rejection.message


def test_only_the_named_records_are_retried(database: Database, tmp_path: Path) -> None:
    """One correction at a time is possible."""
    jsonl(tmp_path / "documents.jsonl", [document("a"), document("b")])
    ingest(database, tmp_path, now=NOW)
    jsonl(tmp_path / "documents.jsonl", [document("a", novelty=1), document("b", novelty=1)])
    ingest(database, tmp_path, now=NOW)
    first, second = list_rejected(database)
    assert retry_rejected(database, now=LATER, revise=True, ids=[second.id]).resolved == 1
    assert [r.id for r in list_rejected(database)] == [first.id]
    assert retry_rejected(database, now=LATER, revise=True, kind=Kind.EXPOSURES).resolved == 0


def test_what_is_not_kept_whole_is_not_retried(database: Database, tmp_path: Path) -> None:
    """An escape is not the byte it stands for: a CSV name with a bad byte must not become another name."""
    jsonl(
        tmp_path / "market_data.csv", [b"entity_id,date,close", b"A\xff,2026-03-01,1", b"B\x00,2026-03-01,1"]
    )
    jsonl(tmp_path / "relationships.jsonl", [b"\xff\xfe"])
    ingest(database, tmp_path, now=NOW)
    report = retry_rejected(database, now=LATER)
    assert (report.resolved, report.remaining, report.skipped) == (0, 0, 3)
    assert len(list_rejected(database)) == 3


def test_two_records_that_stood_in_one_line_are_both_retried(database: Database, tmp_path: Path) -> None:
    """A file may be replaced between two loads; neither record is lost or taken for the other."""
    path = tmp_path / "documents.jsonl"
    for name in ("a", "b"):
        jsonl(path, [document(name)])
        ingest(database, path, now=NOW)
    for name in ("a", "b"):
        jsonl(path, [json.dumps(document(name, novelty=1)).encode()])
        ingest(database, path, now=NOW)
    assert [r.rejection.line for r in list_rejected(database)] == [1, 1]
    assert retry_rejected(database, now=LATER, revise=True).resolved == 2
