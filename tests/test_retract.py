"""A withdrawn document no longer counts from a moment on; nothing is deleted (decisions 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from oracle_dagster.ingestion import Reason, RetractionError, ingest, retract
from oracle_dagster.storage.database import Database
from tests.ingestion_inputs import (
    NOW,
    document,
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
def url(shared: tuple[str, Database], tmp_path: Path) -> str:
    """A database with one document on two entities, known from NOW on."""
    empty(shared[0])
    record = document("d", impacts=[impact("B"), impact("A")], entities=["C"], novelty=0.5)
    ingest(shared[1], jsonl(tmp_path / "documents.jsonl", [record]), now=NOW)
    return shared[0]


@pytest.fixture
def database(shared: tuple[str, Database], url: str) -> Database:
    """The same, ready for use."""
    return shared[1]


def test_a_retraction_is_a_new_version_from_its_own_known_at(database: Database, url: str) -> None:
    """Decisions 5: earlier cycles keep the document, later ones do not see it."""
    impacts = stored(url)["document_impact_records"]
    done = retract(database, uid("d"), reason=" published in error", now=LATER)
    assert (done.document_id, done.version, done.known_at, done.changed) == (uid("d"), 2, LATER, True)
    assert done.entities == ("A", "B", "C")
    old, new = rows(url, "SELECT * FROM document_intelligence ORDER BY version")
    assert (old["retracted"], old["superseded_known_at"], old["superseded_xid"]) == (False, LATER, new["xid"])
    assert (new["retracted"], new["known_at"], new["superseded_xid"]) == (True, LATER, None)
    assert (new["novelty"], new["content_hash"]) == (0.5, old["content_hash"])
    assert stored(url)["document_impact_records"] == impacts
    (shown,) = rows(url, "SELECT * FROM documents")
    assert (shown["status"], shown["version"], shown["retraction_reason"]) == (
        "retracted",
        2,
        " published in error",
    )


def test_the_moment_can_be_given_but_not_before_the_document_was_known(database: Database) -> None:
    """A document cannot be withdrawn before it was there."""
    with pytest.raises(RetractionError, match="give a later known_at or leave it out"):
        retract(database, uid("d"), reason="r", now=LATER, known_at=NOW - timedelta(seconds=1))
    done = retract(database, uid("d"), reason="r", now=LATER, known_at=NOW)
    assert done.known_at == NOW


def test_a_document_known_later_than_now_is_retracted_from_then_on(
    database: Database, tmp_path: Path
) -> None:
    """Without a moment of its own a retraction never precedes the document."""
    record = document("ahead", published_at="2026-03-11T00:00:00Z")
    ingest(database, jsonl(tmp_path / "documents.jsonl", [record]), now=NOW)
    assert (
        retract(database, uid("ahead"), reason="r", now=NOW).known_at.isoformat()
        == "2026-03-11T00:00:00+00:00"
    )


def test_retracting_twice_changes_nothing(database: Database, url: str) -> None:
    """A repeated command is no second event."""
    retract(database, uid("d"), reason="first", now=LATER)
    before = stored(url)
    again = retract(database, uid("d").upper(), reason="second", now=LATER + timedelta(hours=1))
    assert (again.changed, again.version, again.known_at) == (False, 2, LATER)
    assert stored(url) == before


@pytest.mark.parametrize(
    ("identity", "reason", "words"),
    [
        ("17", "r", "is not a UUID"),
        (uid("absent"), "r", "there is no document"),
        (uid("d"), "  ", "give one with --reason"),
        (uid("d"), "", "give one with --reason"),
    ],
)
def test_what_cannot_be_retracted_is_a_clear_error(
    identity: str, reason: str, words: str, database: Database, url: str
) -> None:
    """The message says what to do; nothing is written."""
    before = stored(url)
    with pytest.raises(RetractionError, match=words):
        retract(database, identity, reason=reason, now=LATER)
    assert stored(url) == before


def test_loading_the_file_again_does_not_bring_a_document_back(
    database: Database, url: str, tmp_path: Path
) -> None:
    """Loading the same file twice changes nothing, also between which something was withdrawn."""
    retract(database, uid("d"), reason="r", now=LATER)
    before = stored(url)
    for revise in (False, True):
        report = ingest(database, tmp_path / "documents.jsonl", now=LATER, revise=revise)
        assert report.total.unchanged == 1
        assert "1 documents were retracted and stay so" in report.warnings[0]
    assert stored(url) == before


def test_a_revision_brings_a_document_back(database: Database, url: str, tmp_path: Path) -> None:
    """Corrected content is news: refused as a conflict, loaded with --revise."""
    retract(database, uid("d"), reason="r", now=LATER)
    path = jsonl(tmp_path / "documents.jsonl", [document("d")])
    (refused,) = ingest(database, path, now=LATER).rejections
    assert refused.reason is Reason.CONFLICT
    assert "(version 2, retracted, known since" in refused.message
    later = LATER + timedelta(hours=1)
    assert ingest(database, path, now=later, revise=True).total.revised == 1
    (shown,) = rows(url, "SELECT * FROM documents")
    assert (shown["status"], shown["version"], shown["retraction_reason"]) == ("extracted", 3, None)
    _, gone, new = rows(url, "SELECT * FROM document_intelligence ORDER BY version")
    assert (gone["superseded_known_at"], new["known_at"], new["retracted"]) == (later, later, False)
