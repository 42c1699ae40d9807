"""What bad input gets: a reason, a place and a remedy; the record beside it is loaded (issue: bad input)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_dagster.ingestion import InputError, Kind, Reason, ingest, list_rejected
from oracle_dagster.ingestion import formats as formats_module
from oracle_dagster.ingestion.columns import columns_of
from oracle_dagster.ingestion.formats import Block, source_at
from oracle_dagster.ingestion.models import Fault, judge_json
from oracle_dagster.storage.database import Database
from tests.ingestion_inputs import (
    NOW,
    Line,
    document,
    edge,
    event,
    exposure,
    impact,
    jsonl,
    migrated_database,
    new_database,
    rows,
    uid,
)


@pytest.fixture(scope="module")
def url(embedded_home: Path) -> Iterator[str]:
    """One database for all cases; each uses ids of its own."""
    with migrated_database(embedded_home) as template, new_database(embedded_home, template) as name:
        yield name


@pytest.fixture(scope="module")
def database(url: str) -> Iterator[Database]:
    """Ready for use."""
    opened = Database(url)
    yield opened
    opened.close()


@dataclass(frozen=True)
class Case:
    """A bad record: the line, and what must be said about it."""

    name: str
    line: Line
    reason: Reason
    field: str | None
    remedy: str
    kind: Kind = Kind.DOCUMENTS


def _doc(name: str, reason: Reason, field: str | None, remedy: str, **changes: object) -> Case:
    return Case(name, document(name, **changes), reason, field, remedy)


def _impact(name: str, reason: Reason, field: str, remedy: str, **changes: object) -> Case:
    return _doc(name, reason, f"impacts[0].{field}", remedy, impacts=[impact() | changes])


def _entity(name: str, entity: str) -> Case:
    return _impact(name, Reason.BAD_ENTITY_ID, "entity_id", "1 to 200 characters", entity_id=entity)


_TEXT = json.dumps(document("text"))
CASES = [
    Case("broken JSON", b'{"document_id": "', Reason.BROKEN_JSON, None, "one complete JSON object per line"),
    Case("two objects in a line", b"{} {}", Reason.BROKEN_JSON, None, "one complete JSON object per line"),
    Case("a JSON array", b"[]", Reason.WRONG_TYPE, None, "give a value of that type"),
    Case("not UTF-8", b'{"document_id": "\xff"}', Reason.NOT_UTF8, None, "save the file as UTF-8"),
    Case("a NUL byte", _TEXT.encode()[:-1] + b"\x00}", Reason.NUL_CHARACTER, None, "remove the NUL"),
    Case(
        "a field twice",
        (_TEXT[:-1] + ', "title": "a", "title": "b"}').encode(),
        Reason.DUPLICATE_FIELD,
        "title",
        "keep one",
    ),
    _doc("unknown field", Reason.UNKNOWN_FIELD, "sentimant", "correct its name", sentimant=1),
    _impact("unknown field below", Reason.UNKNOWN_FIELD, "weight", "correct its name", weight=1),
    _doc("missing field", Reason.MISSING_FIELD, "source_id", "add the field", source_id=None),
    _doc("no extraction", Reason.MISSING_FIELD, "extraction", "add the field", extraction=None),
    _doc(
        "no confidence",
        Reason.MISSING_FIELD,
        "extraction.confidence",
        "add the field",
        extraction={"status": "ok"},
    ),
    _impact("no sentiment", Reason.MISSING_FIELD, "sentiment", "add the field", sentiment=None),
    _impact("wrong type", Reason.WRONG_TYPE, "impact_score", "of that type", impact_score="high"),
    _impact("a number as text", Reason.WRONG_TYPE, "impact_score", "of that type", impact_score="0.5"),
    _impact("true for a number", Reason.WRONG_TYPE, "impact_score", "of that type", impact_score=True),
    _doc("impacts not a list", Reason.WRONG_TYPE, "impacts", "of that type", impacts={"entity_id": "A"}),
    _impact("NaN", Reason.NOT_FINITE, "impact_score", "a finite number", impact_score=float("nan")),
    _impact("inf", Reason.NOT_FINITE, "impact_score", "a finite number", impact_score=float("inf")),
    _impact("-inf", Reason.NOT_FINITE, "sentiment_value", "a finite number", sentiment_value=float("-inf")),
    Case(
        "1e999",
        json.dumps(document("1e999")).replace("0.5", "1e999").encode(),
        Reason.NOT_FINITE,
        "impacts[0].impact_score",
        "a finite number",
    ),
    _impact("sentiment 1.5", Reason.OUT_OF_RANGE, "sentiment_value", "not clamped", sentiment_value=1.5),
    _impact("impact above 1", Reason.OUT_OF_RANGE, "impact_score", "not clamped", impact_score=1.0000001),
    _impact("impact below 0", Reason.OUT_OF_RANGE, "impact_score", "not clamped", impact_score=-0.1),
    _doc("credibility 2", Reason.OUT_OF_RANGE, "credibility", "not clamped", credibility=2),
    _doc("novelty -1", Reason.OUT_OF_RANGE, "novelty", "not clamped", novelty=-1),
    _doc(
        "confidence 1.1",
        Reason.OUT_OF_RANGE,
        "extraction.confidence",
        "not clamped",
        extraction={"status": "ok", "confidence": 1.1},
    ),
    _impact("unknown sentiment", Reason.UNKNOWN_VALUE, "sentiment", "listed values", sentiment="great"),
    _doc(
        "unknown status",
        Reason.UNKNOWN_VALUE,
        "extraction.status",
        "listed values",
        extraction={"status": "perhaps", "confidence": 1},
    ),
    _doc("naive time", Reason.NAIVE_TIMESTAMP, "published_at", "offset", published_at="2026-03-01T00:00:00"),
    _doc(
        "year 10000",
        Reason.BAD_TIMESTAMP,
        "published_at",
        "1900 to 9999",
        published_at="10000-01-01T00:00:00Z",
    ),
    _doc(
        "year 1850", Reason.BAD_TIMESTAMP, "published_at", "1900 to 9999", published_at="1850-01-01T00:00:00Z"
    ),
    _doc(
        "month 13", Reason.BAD_TIMESTAMP, "published_at", "2016-11-08T", published_at="2026-13-01T00:00:00Z"
    ),
    _doc("a day only", Reason.BAD_TIMESTAMP, "published_at", "2016-11-08T", published_at="2026-03-01"),
    _doc("time as number", Reason.WRONG_TYPE, "published_at", "of that type", published_at=1772000000),
    _doc(
        "known before published",
        Reason.KNOWN_TOO_EARLY,
        "known_at",
        "leave it out",
        known_at="2026-03-10T05:59:59Z",
    ),
    _doc("id is no UUID", Reason.BAD_UUID, "document_id", "give a UUID", document_id="17"),
    _doc("empty source", Reason.EMPTY_VALUE, "source_id", "give a value", source_id=" "),
    _doc("long source", Reason.TOO_LONG, "source_id", "shorten it to 200", source_id="x" * 201),
    _doc(
        "control character", Reason.CONTROL_CHARACTER, "source_type", "remove the control", source_type="a\tb"
    ),
    _doc("NUL in a title", Reason.NUL_CHARACTER, "title", "PostgreSQL cannot store it", title="a\x00b"),
    _impact("empty risk", Reason.EMPTY_VALUE, "risks[1]", "give a value", risks=["legal", ""]),
    _doc(
        "two impacts on one entity",
        Reason.DUPLICATE_ENTITY,
        "impacts[1].entity_id",
        "merge the two",
        impacts=[impact(), impact(sentiment="negative")],
    ),
    _entity("entity with |", "A|B"),
    _entity("entity with ,", "A,B"),
    _entity("entity with [", "A[1"),
    _entity("entity with ]", "A]"),
    _entity("entity with ...", "A...B"),
    _entity("entity with newline", "A\nB"),
    _entity("entity with NUL", "A\x00B"),
    _entity("empty entity", ""),
    _entity("entity of 300 characters", "x" * 300),
    _entity("entity with leading space", " A"),
    _entity("entity with trailing space", "A\u00a0"),
    _entity("entity not NFC", "e\u0301"),
    _doc("bad name in entities", Reason.BAD_ENTITY_ID, "entities[1]", "200 characters", entities=["A", "B|"]),
    Case(
        "unknown severity",
        event("s", severity="huge"),
        Reason.UNKNOWN_VALUE,
        "severity",
        "listed values",
        Kind.GLOBAL_EVENTS,
    ),
    Case(
        "event id is no UUID",
        event("s", event_id="x"),
        Reason.BAD_UUID,
        "event_id",
        "give a UUID",
        Kind.GLOBAL_EVENTS,
    ),
    Case(
        "event known too early",
        event("s", known_at="2026-02-01T00:00:00Z"),
        Reason.KNOWN_TOO_EARLY,
        "known_at",
        "leave it out",
        Kind.GLOBAL_EVENTS,
    ),
    Case(
        "item twice",
        event("s", geo=["us", "us"]),
        Reason.DUPLICATE_ITEM,
        "geo",
        "each item once",
        Kind.GLOBAL_EVENTS,
    ),
    Case(
        "share above 1",
        exposure("X", geo={"us": 1.5}),
        Reason.OUT_OF_RANGE,
        "geo.us",
        "not clamped",
        Kind.EXPOSURES,
    ),
    Case(
        "correlation 2",
        edge("X", "Y", historical_correlation=2),
        Reason.OUT_OF_RANGE,
        "historical_correlation",
        "not clamped",
        Kind.RELATIONSHIPS,
    ),
    Case(
        "self-edge",
        edge("X", "X"),
        Reason.SELF_EDGE,
        "target_entity",
        "two different entities",
        Kind.RELATIONSHIPS,
    ),
    Case("price 0", b"X,2026-03-01,0,1", Reason.OUT_OF_RANGE, "close", "not clamped", Kind.MARKET_DATA),
    Case("price -1", b"X,2026-03-01,-1,1", Reason.OUT_OF_RANGE, "close", "not clamped", Kind.MARKET_DATA),
    Case("price NaN", b"X,2026-03-01,NaN,1", Reason.NOT_FINITE, "close", "a finite number", Kind.MARKET_DATA),
    Case("price inf", b"X,2026-03-01,inf,1", Reason.NOT_FINITE, "close", "a finite number", Kind.MARKET_DATA),
    Case(
        "price with comma",
        b'X,2026-03-01,"1,5",1',
        Reason.WRONG_TYPE,
        "close",
        "of that type",
        Kind.MARKET_DATA,
    ),
    Case("no price", b"X,2026-03-01,,1", Reason.MISSING_FIELD, "close", "add the field", Kind.MARKET_DATA),
    Case("volume -1", b"X,2026-03-01,1,-1", Reason.OUT_OF_RANGE, "volume", "not clamped", Kind.MARKET_DATA),
    Case(
        "day 30 February", b"X,2026-02-30,1,1", Reason.BAD_TIMESTAMP, "date", "2016-11-08", Kind.MARKET_DATA
    ),
    Case("too many columns", b"X,2026-03-01,1,1,9", Reason.WRONG_COLUMNS, None, "header", Kind.MARKET_DATA),
    Case("line break in quotes", b'"X', Reason.WRONG_COLUMNS, None, "header", Kind.MARKET_DATA),
    Case(
        "bar with bad entity",
        b"X|Y,2026-03-01,1,1",
        Reason.BAD_ENTITY_ID,
        "entity_id",
        "200 characters",
        Kind.MARKET_DATA,
    ),
    Case(
        "bar without entity",
        b",2026-03-01,1,1",
        Reason.BAD_ENTITY_ID,
        "entity_id",
        "200 characters",
        Kind.MARKET_DATA,
    ),
    Case(
        "bar not UTF-8",
        b"\xff,2026-03-01,1,1",
        Reason.NOT_UTF8,
        None,
        "save the file as UTF-8",
        Kind.MARKET_DATA,
    ),
    Case(
        "bar with NUL",
        b"X\x00,2026-03-01,1,1",
        Reason.NUL_CHARACTER,
        None,
        "remove the NUL",
        Kind.MARKET_DATA,
    ),
]

_GOOD: dict[Kind, Callable[[str], Line]] = {
    Kind.DOCUMENTS: lambda name: document(f"good {name}"),
    Kind.GLOBAL_EVENTS: lambda name: event(f"good {name}"),
    Kind.EXPOSURES: lambda name: exposure(f"good {name}"),
    Kind.RELATIONSHIPS: lambda name: edge(f"good {name}", "other"),
    Kind.MARKET_DATA: lambda name: f"good {name},2026-03-01,1.5,100".encode(),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_record_is_kept_with_its_reason_and_its_neighbours_are_loaded(
    case: Case, database: Database, url: str, tmp_path: Path
) -> None:
    """Decisions 6: file, line, field, value, reason, remedy and original text are kept; the rest loads."""
    good = [_GOOD[case.kind](f"{CASES.index(case)} {n}") for n in (1, 2)]
    if case.kind is Kind.MARKET_DATA:
        lines: list[Line] = [b"entity_id,date,close,volume", good[0], case.line, good[1]]
        path, bad_line, kept = jsonl(tmp_path / "market_data.csv", lines), 3, "entity_id,date,close,volume\n"
    else:
        path, bad_line, kept = jsonl(tmp_path / f"{case.kind}.jsonl", [good[0], case.line, good[1]]), 2, ""
    raw = case.line if isinstance(case.line, bytes) else json.dumps(case.line).encode()

    report = ingest(database, path, now=NOW)

    counts = report.counts[case.kind]
    assert (counts.read, counts.inserted, counts.rejected) == (3, 2, 1)
    (refused,) = report.rejections
    assert (refused.reason, refused.field, refused.line) == (case.reason, case.field, bad_line)
    assert case.remedy in refused.message
    assert str(refused).startswith(f"{path}, line {bad_line}: ")
    (row,) = rows(url, "SELECT * FROM rejected_records WHERE file = %s", str(path))
    assert (row["line"], row["kind"], row["reason"]) == (bad_line, case.kind, case.reason)
    assert (row["field"], row["message"]) == (case.field, refused.message)
    assert row["record"] == kept + raw.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")


def test_the_value_is_shown_as_it_was_given(database: Database, tmp_path: Path) -> None:
    """A person must recognise what is wrong without opening the file."""
    path = jsonl(tmp_path / "documents.jsonl", [document("shown", impacts=[impact(impact_score=1.5)])])
    (refused,) = ingest(database, path, now=NOW).rejections
    assert refused.value == "1.5"
    assert refused.message == (
        "impacts[0].impact_score (1.5) should be less than or equal to 1: "
        "correct the value; values from outside are refused, not clamped"
    )


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (document("twice"), document("twice", source_id="other"), Kind.DOCUMENTS),
        (event("twice"), event("twice", severity="low"), Kind.GLOBAL_EVENTS),
        (exposure("twice"), exposure("twice", geo={"us": 0.75}), Kind.EXPOSURES),
        (edge("twice"), edge("twice", historical_correlation=0.25), Kind.RELATIONSHIPS),
        (b"twice,2026-03-01,1.5,", b"twice,2026-03-01,2.5,", Kind.MARKET_DATA),
    ],
    ids=[*Kind],
)
def test_an_id_twice_in_a_file_is_unchanged_if_equal_and_a_conflict_if_not(
    first: Line, second: Line, kind: Kind, database: Database, tmp_path: Path
) -> None:
    """Decisions 6: the first stands, an equal one changes nothing, another one is refused as conflict."""
    header = [b"entity_id,date,close,volume"] if kind is Kind.MARKET_DATA else []
    suffix = "csv" if header else "jsonl"
    path = jsonl(tmp_path / f"{kind}.{suffix}", [*header, first, first, second])
    report = ingest(database, path, now=NOW)
    counts = report.counts[kind]
    assert (counts.inserted, counts.unchanged, counts.rejected) == (1, 1, 1)
    (refused,) = report.rejections
    assert (refused.reason, refused.line) == (Reason.CONFLICT, 3 + len(header))
    assert f"stands in line {1 + len(header)} with other content" in refused.message
    assert "--revise" in refused.message

    other = jsonl(tmp_path / f"again-{kind}.{suffix}", [*header, second])
    (refused,) = ingest(database, other, now=NOW).rejections
    assert refused.reason is Reason.CONFLICT
    assert "is stored with other content (version 1, known since" in refused.message


def test_a_truncated_gzip_file_loads_up_to_the_break_and_says_so(database: Database, tmp_path: Path) -> None:
    """Nothing is lost, nothing is half a record, and the complete file settles the matter."""
    # Titles that do not compress, so that the cut falls among the records.
    records = [document(f"truncated {n}", title=uid(f"a{n}") + uid(f"b{n}")) for n in range(500)]
    whole = gzip.compress(jsonl(tmp_path / "plain", records).read_bytes())
    path = tmp_path / "documents.jsonl.gz"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    report = ingest(database, path, now=NOW)
    loaded = report.total.inserted
    assert 100 < loaded < 500
    (refused,) = report.rejections
    assert (refused.reason, refused.line) == (Reason.TRUNCATED_FILE, loaded + 1)
    assert "load the complete file again" in refused.message

    path.write_bytes(whole)
    report = ingest(database, path, now=NOW)
    assert (report.total.unchanged, report.total.inserted, report.total.rejected) == (loaded, 500 - loaded, 0)
    assert not [r for r in list_rejected(database) if r.rejection.file == str(path)]


def test_a_broken_or_falsely_named_file_is_reported_and_the_others_load(
    database: Database, tmp_path: Path
) -> None:
    """A folder is loaded as far as it can be read: no one file stops the rest."""
    (tmp_path / "exposures.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "relationships.jsonl").mkdir()
    (tmp_path / "global_events.jsonl").write_bytes("{}".encode("utf-16"))
    jsonl(tmp_path / "documents.jsonl", [document("beside broken files")])
    report = ingest(database, tmp_path, now=NOW)
    assert report.counts[Kind.DOCUMENTS].inserted == 1
    reasons = {refused.kind: refused.reason for refused in report.rejections}
    assert reasons == {
        Kind.EXPOSURES: Reason.UNREADABLE_FILE,
        Kind.RELATIONSHIPS: Reason.UNREADABLE_FILE,
        Kind.GLOBAL_EVENTS: Reason.NOT_UTF8,
    }


@pytest.mark.parametrize(
    ("header", "reason", "words"),
    [
        (b"entity_id;date;close;volume", Reason.WRONG_SEPARATOR, "separate the columns by ','"),
        (b"entity_id\tdate\tclose", Reason.WRONG_SEPARATOR, "separated by a tab"),
        (b"entity_id,date,volume", Reason.WRONG_COLUMNS, "has no column close"),
        (b"entity_id,date,close,price", Reason.WRONG_COLUMNS, "unknown column price"),
        (b"entity_id,date,close,close", Reason.WRONG_COLUMNS, "names a column twice"),
    ],
)
def test_a_csv_file_with_another_header_is_refused_as_a_whole(
    header: bytes, reason: Reason, words: str, database: Database, tmp_path: Path
) -> None:
    """One clear message, not one per line; a corrected file settles it."""
    path = jsonl(tmp_path / "market_data.csv", [header, b"A;2026-03-01;1,5;3", b"A;2026-03-02;1,5;3"])
    (refused,) = ingest(database, path, now=NOW).rejections
    assert (refused.reason, refused.line, refused.field) == (reason, 1, "header")
    assert words in refused.message
    jsonl(path, [b"entity_id,date,close"])
    ingest(database, path, now=NOW)
    assert not [r for r in list_rejected(database) if r.rejection.file == str(path)]


def test_a_csv_file_may_begin_with_a_byte_order_mark_and_order_its_columns_freely(
    database: Database, url: str, tmp_path: Path
) -> None:
    """Spreadsheets write such files."""
    path = tmp_path / "market_data.csv"
    path.write_bytes(
        b'\xef\xbb\xbfclose,entity_id,date\r\n1e2,"Q ""x""",2026-03-01\r\n\r\n7.5,bom,2026-03-02\r\n'
    )
    assert ingest(database, path, now=NOW).total.inserted == 2
    found = rows(
        url, "SELECT entity_id, close, volume FROM market_bars WHERE entity_id IN ('bom', 'Q \"x\"')"
    )
    assert sorted((row["entity_id"], row["close"], row["volume"]) for row in found) == [
        ('Q "x"', 100.0, None),
        ("bom", 7.5, None),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("documents.jsonl", b""),
        ("documents.jsonl", b"\n \n"),
        ("market_data.csv", b"entity_id,date,close\n"),
        ("market_data.csv", b""),
    ],
)
def test_an_empty_file_is_a_message_not_an_error(
    name: str, content: bytes, database: Database, tmp_path: Path
) -> None:
    """A daily delivery may hold nothing."""
    (tmp_path / name).write_bytes(content)
    report = ingest(database, tmp_path / name, now=NOW)
    assert report.warnings == [f"{tmp_path / name} is empty: nothing to load"]
    assert report.total.rejected == 0


def test_a_line_that_is_too_long_is_refused_without_being_held(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory stays bounded whatever the file holds; only the beginning of such a line is kept."""
    monkeypatch.setattr(formats_module, "MAX_LINE_BYTES", 100_000)
    long = json.dumps(document("long", title="x" * 1_000_000)).encode()
    path = jsonl(tmp_path / "documents.jsonl", [document("before long"), long, document("after long")])
    report = ingest(database, path, now=NOW)
    assert report.total.inserted == 2
    (refused,) = report.rejections
    assert (refused.reason, refused.line) == (Reason.LINE_TOO_LONG, 2)
    assert "split the record" in refused.message
    assert len(refused.record) == 65_536


@pytest.mark.parametrize("repeated", [False, True])
def test_a_document_with_100000_impacts_is_loaded_or_refused_for_a_reason(
    repeated: bool, database: Database, url: str, tmp_path: Path
) -> None:
    """Its size alone is no fault, and checking it costs no more than its length."""
    name = f"wide {repeated}"
    impacts = [impact(f"wide-{n}") for n in range(100_000 - repeated)]
    impacts += [impact("wide-7")] * repeated
    path = jsonl(tmp_path / "documents.jsonl", [document(name, impacts=impacts), document(f"beside {name}")])
    report = ingest(database, path, now=NOW)
    assert report.total.inserted == (1 if repeated else 2)
    if repeated:
        assert report.rejections[0].field == "impacts[99999].entity_id"
    else:
        (count,) = rows(
            url, "SELECT count(*) AS n FROM document_impact_records WHERE document_id = %s", uid(name)
        )
        assert count["n"] == 100_000


def test_a_path_that_is_no_input_is_an_error_naming_what_would_be(database: Database, tmp_path: Path) -> None:
    """Typing errors must not look like success."""
    for path, words in [
        (tmp_path / "absent", "does not exist"),
        (tmp_path, "holds none of documents.jsonl, market_data.csv"),
        (jsonl(tmp_path / "results.json", [{"A": 1}]), "name it as one of documents.jsonl"),
        (Path("/dev/null"), "neither a file nor a folder"),
    ]:
        with pytest.raises(InputError, match=words):
            ingest(database, path, now=NOW)


def test_other_files_in_a_folder_are_named_in_a_warning(database: Database, tmp_path: Path) -> None:
    """A misspelt file must not be skipped silently."""
    jsonl(tmp_path / "documents.jsonl", [document("with others")])
    jsonl(tmp_path / "document.jsonl", [document("misspelt")])
    (warning,) = ingest(database, tmp_path, now=NOW).warnings
    assert "document.jsonl is not loaded: its name is not one of documents.jsonl" in warning


_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "positive",
            "2026-03-10T06:00:00Z",
            "2026-03-10T06:00:00",
            uid("x"),
            "A|B",
            "",
            " a",
            "1900-01-01T00:00:00Z",
        ]
    ),
    st.lists(st.one_of(st.none(), st.text(max_size=3), st.just(impact())), max_size=3),
    st.dictionaries(
        st.sampled_from(["status", "confidence", "x"]), st.sampled_from(["ok", 0.5, None]), max_size=2
    ),
)
_FIELDS = st.sampled_from(
    [*document("x"), "known_at", "credibility", "novelty", "entities", "title", "url", "x"]
)


@given(
    st.dictionaries(_FIELDS, _ODD, max_size=3),
    st.dictionaries(
        st.sampled_from(["entity_id", "sentiment", "sentiment_value", "impact_score", "risks", "y"]),
        _ODD,
        max_size=2,
    ),
)
def test_the_check_in_bulk_and_the_models_accept_the_same_documents(
    changes: dict[str, Any], impact_changes: dict[str, Any]
) -> None:
    """The models are the rules; the bulk check may only be faster."""
    record = document("y") | {"impacts": [impact() | impact_changes]} | changes
    line = json.dumps(record).encode()
    block = Block(source_at(Path("documents.jsonl"), Kind.DOCUMENTS, "jsonl"), None, [line], [1])
    accepted = not isinstance(judge_json(Kind.DOCUMENTS, line), Fault)
    assert len(columns_of(block)) == accepted


def test_a_parquet_value_that_python_cannot_hold_stops_no_other_row(
    database: Database, tmp_path: Path
) -> None:
    """Decisions 6: a day beyond year 9999; the other rows load, a time finer than a microsecond is cut."""
    days = pa.array([20_500, 3_000_000], pa.int32()).cast(pa.date32())
    bars = {"entity_id": ["A", "B"], "date": days, "close": [1.5, 2.5], "volume": [None, 1.0]}
    pq.write_table(pa.table(bars), tmp_path / "market_data.parquet")
    fine = dict(document("fine"), published_at="2026-03-08T09:00:00Z")
    rows = [{name: value for name, value in fine.items() if name != "published_at"}] * 2
    names = ["00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"]
    table = pa.Table.from_pylist([row | {"document_id": name} for row, name in zip(rows, names, strict=True)])
    moments = pa.array([1_772_960_400_000_000_000, 1_772_960_400_000_000_001], pa.timestamp("ns", "UTC"))
    pq.write_table(table.append_column("published_at", moments), tmp_path / "documents.parquet")
    report = ingest(database, tmp_path, now=NOW)
    assert {kind: count.inserted for kind, count in report.counts.items() if count.read} == {
        Kind.MARKET_DATA: 1,
        Kind.DOCUMENTS: 2,
    }
    (refused,) = report.rejections
    assert (Path(refused.file).name, refused.line, refused.field) == ("market_data.parquet", 2, "date")
    assert refused.value == "10183-09-21"


def test_a_file_of_any_name_whose_first_line_cannot_be_read_is_refused_by_name(
    database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "prices.txt"
    path.write_bytes(b"entity_id,date,close\rA,2026-03-01,1\r")
    with pytest.raises(InputError, match=r"prices\.txt cannot be read \(new-line character"):
        ingest(database, path, now=NOW)


def test_a_header_or_a_name_that_cannot_be_read_stops_no_other_file(
    database: Database, tmp_path: Path
) -> None:
    (tmp_path / "market_data.csv").write_bytes(b"entity_id,date,close\rA,2026-03-01,1\r")
    (tmp_path / "documents.jsonl").symlink_to(tmp_path / "gone.jsonl")
    jsonl(tmp_path / "exposures.jsonl", [exposure("A")])
    report = ingest(database, tmp_path, now=NOW)
    assert report.counts[Kind.EXPOSURES].inserted == 1
    assert {(Path(one.file).name, one.reason) for one in report.rejections} == {
        ("market_data.csv", Reason.WRONG_COLUMNS),
        ("documents.jsonl", Reason.UNREADABLE_FILE),
    }
