"""Blocks of lines to columns ready for the tables: recognise good records in bulk, judge the others singly.

Arrow parses a block at once and the rules are checked on columns. That check may doubt a good record but
never passes a bad one; whatever it doubts is judged by the models, which alone decide and explain. Nothing
here talks to the database.
"""

from __future__ import annotations

import binascii
import csv
import functools
import hashlib
import io
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json

from oracle_core.enums import Sentiment
from oracle_core.inputs import DIMENSIONS, US_PER_DAY
from oracle_dagster.ingestion.formats import Block, Misread, Source
from oracle_dagster.ingestion.models import (
    EARLIEST,
    LATEST,
    UUID_PATTERN,
    EventRecord,
    ExposureRecord,
    ExtractionStatus,
    Fault,
    Kind,
    Reason,
    Record,
    RelationshipRecord,
    entity_id_problem,
    fault,
    judge_fields,
    judge_json,
    label_problem,
    storable_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    Bool = NDArray[np.bool_]
    Int = NDArray[np.int64]
    Float = NDArray[np.float64]
    Columns = tuple[str, ...] | None

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNKNOWN_US: Final = int(np.iinfo(np.int64).min)  # "the record has no known_at of its own"
TIMESTAMP: Final = pa.timestamp("us", "UTC")
UUID: Final = pa.binary(16)  # as PostgreSQL's binary COPY reads it
JSONB_VERSION: Final = b"\x01"  # first byte of a jsonb value in binary COPY
_TIMESTAMP_PATTERN: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$"
_DAY_PATTERN: Final = r"^\d{4}-\d\d-\d\d$"
_NUMBER: Final = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE | re.ASCII
)
_SIGNS: Final = {
    Sentiment.POSITIVE: 1.0,
    Sentiment.NEGATIVE: -1.0,
    Sentiment.NEUTRAL: 0.0,
    Sentiment.MIXED: 0.0,
}


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970-01-01T00:00Z."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_EARLIEST_US: Final = micros(EARLIEST)
_LATEST_US: Final = micros(LATEST)


@dataclass(slots=True)
class Batch:
    """Valid records of one block as columns, and what was refused.

    ``rows`` holds one row per record with the columns of its versioned table (without the version columns);
    ``impacts`` one row per (document, entity), ``record`` being the row of its document. ``primary_us`` is
    the earliest time a record can have been known, ``own_us`` its own ``known_at`` or ``UNKNOWN_US``. Records
    with equal ``keys`` are versions of one thing, and equal where ``contents`` are.
    """

    source: Source
    lines: list[bytes]
    numbers: list[int]
    rows: pa.Table
    primary_us: Int
    own_us: Int
    keys: list[Hashable]
    contents: list[Hashable]
    impacts: pa.Table | None = None
    columns: Columns = None
    misread: list[Misread] = field(default_factory=list)
    read: int = 0
    position: int = 0

    def __len__(self) -> int:
        """Number of valid records."""
        return len(self.lines)


def columns_of(block: Block) -> Batch:
    """Validate a block; each refused line becomes a :class:`Misread` that keeps its original text."""
    kind = block.source.kind
    misread = list(block.misread)
    lines, numbers = block.lines, block.numbers
    if kind in _SINGLY:
        records = []
        lines, numbers = [], []
        for line, number in zip(block.lines, block.numbers, strict=True):
            verdict = judge(kind, line, block.columns)
            if isinstance(verdict, Fault):
                misread.append(Misread(number, original(line, block.columns), verdict))
            else:
                lines.append(line)
                numbers.append(number)
                records.append(verdict)
        batch = _SINGLY[kind](block.source, lines, numbers, records)
    else:
        parse, doubt, build = _IN_BULK[kind]
        table = parse(lines, block.columns)
        doubtful = np.ones(len(lines), np.bool_) if table is None else doubt(table)
        if doubtful.any():
            lines, numbers, canonical = [], [], []
            for line, number, judge_it in zip(block.lines, block.numbers, doubtful.tolist(), strict=True):
                judged = judge(kind, line, block.columns) if judge_it else None
                if isinstance(judged, Fault):
                    misread.append(Misread(number, original(line, block.columns), judged))
                    continue
                lines.append(line)
                numbers.append(number)
                canonical.append(line if judged is None else _canonical(judged, block.columns))
            table = parse(canonical, block.columns)
        if table is None:  # pragma: no cover - canonical lines are what the parser is made for
            raise AssertionError(f"{block.source.name}: records judged valid cannot be parsed")
        batch = build(block.source, lines, numbers, table)
    batch.columns, batch.misread, batch.position = block.columns, misread, block.position
    batch.read = len(block.lines) + len(block.misread)
    return batch


def judge(kind: Kind, line: bytes, columns: Columns) -> Record | Fault:
    """Validate one line by the models; ``columns`` names the columns of a CSV line."""
    if columns is None:
        return judge_json(kind, line)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the line is not UTF-8"
        return fault(Reason.NOT_UTF8, what, value=storable_bytes(line))
    if "\x00" in text:
        return fault(Reason.NUL_CHARACTER, "the line contains a NUL character", value=text)
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error as error:
        return fault(
            Reason.WRONG_COLUMNS,
            f"the line is not CSV ({error}; no value may contain a line break)",
            value=text,
        )
    values = rows[0] if rows else []
    if len(values) != len(columns):
        what = f"the line has {len(values)} columns, the header has {len(columns)}"
        return fault(Reason.WRONG_COLUMNS, what, value=text)
    fields: dict[str, object] = {}
    for name, value in zip(columns, values, strict=True):
        if value != "":
            number = name in {"close", "volume"} and _NUMBER.fullmatch(value) is not None
            fields[name] = float(value) if number else value
        elif name == "entity_id":
            fields[name] = value
    return judge_fields(kind, fields)


def original(line: bytes, columns: Columns) -> str:
    """The text kept of a refused line; a CSV line needs its header to be understood later."""
    text = storable_bytes(line)
    return text if columns is None else f"{','.join(columns)}\n{text}"


def _canonical(record: Record, columns: Columns) -> bytes:
    """The one way to write a valid record that the bulk parser is sure to read."""
    if columns is None:
        return record.model_dump_json(exclude_none=True).encode()
    values = record.model_dump(mode="json")
    target = io.StringIO()
    csv.writer(target, lineterminator="").writerow(["" if values[c] is None else values[c] for c in columns])
    return target.getvalue().encode()


# --------------------------------------------------------------------------------------- checks on columns


def _parse_json(schema: pa.Schema, lines: Sequence[bytes]) -> pa.Table | None:
    """Parse one object per line, or None if anything at all is odd.

    Arrow reads a stream of objects, not lines. Rows are lines nevertheless: each line begins with ``{`` and
    ends with ``}``, between which only a new object can start, and the numbers agree.
    """
    if not lines:
        return schema.empty_table()
    data = b"\n".join(lines)
    whole = data.startswith(b"{") and data.endswith(b"}") and data.count(b"}\n{") == len(lines) - 1
    if not whole or b"\\u0000" in data:
        return None
    try:
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        ).combine_chunks()
        table.validate(full=True)  # among others that text is UTF-8
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table if len(table) == len(lines) else None


class _Doubts:
    """Collects which rows are not obviously valid."""

    def __init__(self, rows: int) -> None:
        self.rows: Bool = np.zeros(rows, np.bool_)

    def unless(self, good: Bool | pa.Array, rows: Int | None = None) -> None:
        """Doubt rows where ``good`` is not true; ``rows`` says which row each element belongs to."""
        if isinstance(good, pa.Array):
            good = _true(good)
        if rows is None:
            self.rows |= ~good
        else:
            self.rows[rows[~good]] = True


@functools.lru_cache(maxsize=100_000)
def _good_entity_id(name: str | None) -> bool:
    return name is not None and entity_id_problem(name) is None


@functools.lru_cache(maxsize=100_000)
def _good_label(text: str | None) -> bool:
    return text is not None and label_problem(text) is None


def _each(values: pa.Array, good: Callable[[str | None], bool], *, optional: bool = False) -> Bool:
    """Apply ``good`` to each distinct value; a null is good if ``optional``."""
    encoded = values.dictionary_encode()
    verdicts = np.array([*map(good, encoded.dictionary.to_pylist()), optional], np.bool_)
    codes = encoded.indices.fill_null(len(verdicts) - 1).to_numpy(zero_copy_only=False)
    return cast("Bool", verdicts[codes])


def _within(values: pa.Array, low: float, high: float, *, optional: bool = True) -> Bool:
    numbers = _floats(values)
    inside = (numbers >= low) & (numbers <= high)
    return inside | _nulls(values) if optional else inside & ~_nulls(values)


def _floats(values: pa.Array) -> Float:
    """Null becomes NaN."""
    return cast("Float", values.fill_null(np.nan).to_numpy(zero_copy_only=False))


def _true(values: pa.Array) -> Bool:
    """Null is not true."""
    return cast("Bool", pc.coalesce(values, pa.scalar(value=False)).to_numpy(zero_copy_only=False))


def _nulls(values: pa.Array) -> Bool:
    return cast("Bool", values.is_null().to_numpy(zero_copy_only=False))


def _matches(values: pa.Array, pattern: str) -> pa.Array:
    return pc.match_substring_regex(values, pattern)


def _times(values: pa.Array) -> Int | None:
    """Timestamps as microseconds, ``UNKNOWN_US`` for null; None if one cannot be read."""
    try:
        return _as_us(pc.cast(values, TIMESTAMP))
    except pa.ArrowException:
        return None


def _checked(moments: Int | None) -> Int:
    if moments is None:  # pragma: no cover - only columns without doubts are built
        raise AssertionError("a timestamp passed the checks and cannot be read")
    return moments


def _as_us(times: pa.Array) -> Int:
    return cast("Int", times.cast(pa.int64()).fill_null(UNKNOWN_US).to_numpy(zero_copy_only=False))


def _doubt_time(doubts: _Doubts, values: pa.Array, *, optional: bool) -> Int:
    good = _matches(values, _TIMESTAMP_PATTERN)
    moments = _times(pc.if_else(good, values, None))
    if moments is None:
        doubts.rows[:] = True
        return np.zeros(len(values), np.int64)
    given = moments != UNKNOWN_US
    inside = given & (moments >= _EARLIEST_US) & (moments < _LATEST_US)
    doubts.unless(inside | _nulls(values) if optional else inside)
    return moments


# ------------------------------------------------------------------------------------------------ documents

_DOCUMENT_SCHEMA: Final = pa.schema(
    {
        "document_id": pa.string(),
        "source_id": pa.string(),
        "source_type": pa.string(),
        "published_at": pa.string(),
        "known_at": pa.string(),
        "credibility": pa.float64(),
        "novelty": pa.float64(),
        "extraction": pa.struct({"status": pa.string(), "confidence": pa.float64()}),
        "impacts": pa.list_(
            pa.struct(
                {
                    "entity_id": pa.string(),
                    "sentiment": pa.string(),
                    "sentiment_value": pa.float64(),
                    "impact_score": pa.float64(),
                    "catalyst_type": pa.string(),
                    "risks": pa.list_(pa.string()),
                }
            )
        ),
        "entities": pa.list_(pa.string()),
        "title": pa.string(),
        "url": pa.string(),
        "story_id": pa.string(),
    }
)


def _parse_documents(lines: Sequence[bytes], _columns: Columns) -> pa.Table | None:
    return _parse_json(_DOCUMENT_SCHEMA, lines)


def _doubtful_documents(table: pa.Table) -> Bool:
    column = _column_reader(table)
    doubts = _Doubts(len(table))
    doubts.unless(_matches(column("document_id"), UUID_PATTERN))
    doubts.unless(_each(column("source_id"), _good_label))
    doubts.unless(_each(column("source_type"), _good_label, optional=True))
    published = _doubt_time(doubts, column("published_at"), optional=False)
    known = _doubt_time(doubts, column("known_at"), optional=True)
    doubts.unless((known == UNKNOWN_US) | (known >= published))
    doubts.unless(_within(column("credibility"), 0, 1))
    doubts.unless(_within(column("novelty"), 0, 1))
    status, confidence = (pc.struct_field(column("extraction"), i) for i in (0, 1))
    failed = _true(pc.equal(status, ExtractionStatus.FAILED))
    doubts.unless(failed | (_each(status, lambda text: text == ExtractionStatus.OK) & ~_nulls(confidence)))
    doubts.unless(_within(confidence, 0, 1))
    _doubt_impacts(doubts, column("impacts"))
    entities = column("entities")
    doubts.unless(_each(entities.flatten(), _good_entity_id), _parents(entities))
    return doubts.rows


def _doubt_impacts(doubts: _Doubts, impacts: pa.Array) -> None:
    rows, impact = _parents(impacts), impacts.flatten()
    if len(impact) == 0:
        return
    name, label, value, score, catalyst, risks = (pc.struct_field(impact, i) for i in range(6))
    doubts.unless(~_nulls(impact), rows)
    doubts.unless(_each(name, _good_entity_id), rows)
    doubts.unless(_each(label, lambda text: text in _SIGNS, optional=True), rows)
    doubts.unless(_within(value, -1, 1), rows)
    doubts.unless(~(_nulls(label) & _nulls(value)), rows)
    doubts.unless(_within(score, 0, 1, optional=False), rows)
    doubts.unless(_each(catalyst, _good_label, optional=True), rows)
    doubts.unless(_each(risks.flatten(), _good_label), rows[_parents(risks)])
    codes = name.dictionary_encode().indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = np.sort(rows * len(impact) + codes)
    doubts.rows[pairs[1:][pairs[1:] == pairs[:-1]] // len(impact)] = True


def _build_documents(source: Source, lines: list[bytes], numbers: list[int], table: pa.Table) -> Batch:
    column = _column_reader(table)
    published, own = (_checked(_times(column(name))) for name in ("published_at", "known_at"))
    status, confidence = (pc.struct_field(column("extraction"), i) for i in (0, 1))
    failed = pc.equal(status, ExtractionStatus.FAILED)
    impacts, impact_numbers = _impact_rows(column("impacts"), column("entities"))
    ids = _uuids(column("document_id"))
    scores = {name: column(name) for name in ("credibility", "novelty")} | {"confidence": confidence}
    fixed = np.stack(
        [
            published.view(np.float64),
            failed.cast(pa.float64()).to_numpy(zero_copy_only=False),
            *(_floats(values) + 0.0 for values in scores.values()),  # + 0.0 turns -0.0 into 0.0
        ],
        axis=1,
    )
    texts = _joined([column(name) for name in ("source_id", "source_type", "title", "url", "story_id")])
    hashes = _hashes(fixed, texts, impacts, impact_numbers)
    rows = pa.table(
        {
            "document_id": ids,
            "source_id": column("source_id"),
            "source_type": column("source_type"),
            "title": column("title"),
            "url": column("url"),
            "story_id": column("story_id"),
            "published_at": pa.array(published, TIMESTAMP),
            "failed": failed,
            "extraction_confidence": confidence,
            "credibility": scores["credibility"],
            "novelty": scores["novelty"],
            "content_hash": pa.array(hashes, pa.string()),
        }
    )
    keys = cast("list[Hashable]", ids.to_pylist())
    return Batch(source, lines, numbers, rows, published, own, keys, cast("list[Hashable]", hashes), impacts)


def _impact_rows(impacts: pa.Array, entities: pa.Array) -> tuple[pa.Table, Float]:
    """Rows per (document, entity) sorted by both, and their numbers for hashing.

    A document that merely names an entity gets a row without an impact, unless it also has one on it.
    """
    impact = impacts.flatten()
    name, label, value, score, catalyst, risks = (pc.struct_field(impact, i) for i in range(6))
    names = pa.concat_arrays([name, entities.flatten()]).dictionary_encode()
    rank = np.empty(len(names.dictionary), np.int64)
    rank[pc.sort_indices(names.dictionary).to_numpy()] = np.arange(len(rank))
    record = np.concatenate([_parents(impacts), _parents(entities)])
    pairs = record * max(1, len(rank)) + rank[names.indices.to_numpy()]
    # The first of equal pairs is kept, and impacts come before names.
    order = np.unique(pairs, return_index=True)[1]
    has_impact = order < len(impact)
    rows = pa.array(np.where(has_impact, order, 0), mask=~has_impact)  # null: a name without an impact
    values = pc.coalesce(value, _signs(label))
    table = pa.table(
        {
            "record": record[order],
            "entity_id": names.take(pa.array(order)).cast(pa.string()),
            "has_impact": has_impact,
            "sentiment_label": label.take(rows),
            "sentiment": values.take(rows),
            "impact_score": score.take(rows),
            "catalyst_type": catalyst.take(rows),
            "risk_flags": pa.array(_json_lists(risks.take(rows)), pa.binary()),
        }
    )
    numbers = np.stack(
        [_floats(table[c].combine_chunks()) + 0.0 for c in ("sentiment", "impact_score")], axis=1
    )
    return table, numbers


def _signs(label: pa.Array) -> pa.Array:
    encoded = label.dictionary_encode()
    signs = pa.array([_SIGNS[Sentiment(text)] for text in encoded.dictionary.to_pylist()], pa.float64())
    return signs.take(encoded.indices)


def _json_lists(lists: pa.Array) -> list[bytes]:
    if len(lists.flatten()) == 0:
        return [jsonb([])] * len(lists)
    return [_json_list(tuple(items or ())) for items in lists.to_pylist()]


@functools.lru_cache(maxsize=10_000)
def _json_list(items: tuple[str, ...]) -> bytes:
    return jsonb(list(items))


def jsonb(value: object) -> bytes:
    """A value as PostgreSQL's binary COPY wants a jsonb."""
    return JSONB_VERSION + json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def _joined(columns: list[pa.Array]) -> list[str]:
    """One text per row that differs where any column differs; no column can hold NUL."""
    joined = pc.binary_join_element_wise(*columns, "\x00", null_handling="replace", null_replacement="\x00n")
    return cast("list[str]", joined.to_pylist())


def _hashes(fixed: Float, texts: list[str], impacts: pa.Table, numbers: Float) -> list[str]:
    """A hash per document over everything stored of it, independent of spelling and order in the file."""
    bounds = np.searchsorted(impacts["record"].to_numpy(), np.arange(len(texts) + 1)).tolist()
    rows = _joined(
        [
            impacts["entity_id"].combine_chunks(),
            impacts["sentiment_label"].combine_chunks(),
            impacts["catalyst_type"].combine_chunks(),
            impacts["risk_flags"].combine_chunks().cast(pa.string()),
        ]
    )
    # NaN stands for "none" and has one bit pattern here: every one comes from the same fill value.
    own, width = fixed.tobytes(), fixed.shape[1] * 8
    parts, part = numbers.tobytes(), numbers.shape[1] * 8
    hashes = []
    for i, text in enumerate(texts):
        first, last = bounds[i], bounds[i + 1]
        joined = "\x00\x00".join((text, *rows[first:last])).encode()
        content = b"".join((own[i * width : (i + 1) * width], parts[first * part : last * part], joined))
        hashes.append(hashlib.blake2b(content, digest_size=16).hexdigest())
    return hashes


def _parents(lists: pa.Array) -> Int:
    return cast("Int", pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64))


def _uuids(texts: pa.Array) -> pa.Array:
    """Texts of UUIDs as 16 bytes each."""
    digits = "".join(pc.replace_substring(texts, "-", "").to_pylist())
    return pa.FixedSizeBinaryArray.from_buffers(
        UUID, len(texts), [None, pa.py_buffer(binascii.unhexlify(digits))]
    )


def _column_reader(table: pa.Table) -> Callable[[str], pa.Array]:
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    return lambda name: columns[name]


# ----------------------------------------------------------------------------------------------------- bars

_BAR_SCHEMA: Final = pa.schema(
    {
        "entity_id": pa.string(),
        "date": pa.string(),
        "close": pa.float64(),
        "volume": pa.float64(),
        "known_at": pa.string(),
    }
)


def _parse_bars(lines: Sequence[bytes], columns: Columns) -> pa.Table | None:
    if columns is None:
        return _parse_json(_BAR_SCHEMA, lines)
    if not lines:
        return _BAR_SCHEMA.empty_table()
    data = b"\n".join(lines)
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=list(columns)
            ),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
        ).combine_chunks()
        texts = {name: table[name].combine_chunks() for name in table.column_names}
        cells = {name: pc.if_else(pc.equal(text, ""), None, text) for name, text in texts.items()}
        cells["entity_id"] = texts["entity_id"]
        parsed = pa.table(
            [
                cells[f.name].cast(f.type) if f.name in cells else pa.nulls(len(table), f.type)
                for f in _BAR_SCHEMA
            ],
            schema=_BAR_SCHEMA,
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return parsed if len(parsed) == len(lines) else None


def _doubtful_bars(table: pa.Table) -> Bool:
    column = _column_reader(table)
    doubts = _Doubts(len(table))
    doubts.unless(_each(column("entity_id"), _good_entity_id))
    days = _days(pc.if_else(_matches(column("date"), _DAY_PATTERN), column("date"), None))
    if days is None:
        doubts.rows[:] = True
        return doubts.rows
    start = days * US_PER_DAY
    doubts.unless(~_nulls(column("date")) & (days != 0) & (start >= _EARLIEST_US) & (start < _LATEST_US))
    close, volume = _floats(column("close")), _floats(column("volume"))
    doubts.unless((close > 0) & (close < np.inf))
    doubts.unless((volume >= 0) & (volume < np.inf) | _nulls(column("volume")))
    known = _doubt_time(doubts, column("known_at"), optional=True)
    doubts.unless((known == UNKNOWN_US) | (known >= start + US_PER_DAY))
    return doubts.rows


def _days(texts: pa.Array) -> Int | None:
    """Days since 1970-01-01, 0 for null; None if one cannot be read."""
    try:
        days = pc.cast(texts, pa.date32()).cast(pa.int32()).fill_null(0)
    except pa.ArrowException:
        return None
    return cast("Int", days.to_numpy(zero_copy_only=False).astype(np.int64))


def _build_bars(source: Source, lines: list[bytes], numbers: list[int], table: pa.Table) -> Batch:
    column = _column_reader(table)
    days, own = _checked(_days(column("date"))), _checked(_times(column("known_at")))
    rows = pa.table(
        {
            "entity_id": column("entity_id"),
            "day": pa.array(days.astype(np.int32), pa.date32()),
            "close": column("close"),
            "volume": column("volume"),
        }
    )
    keys = list(zip(column("entity_id").to_pylist(), days.tolist(), strict=True))
    contents = list(zip(column("close").to_pylist(), column("volume").to_pylist(), strict=True))
    return Batch(
        source,
        lines,
        numbers,
        rows,
        (days + 1) * US_PER_DAY,
        own,
        cast("list[Hashable]", keys),
        cast("list[Hashable]", contents),
    )


_IN_BULK: Final[
    dict[
        Kind,
        tuple[
            Callable[[Sequence[bytes], Columns], pa.Table | None],
            Callable[[pa.Table], Bool],
            Callable[[Source, list[bytes], list[int], pa.Table], Batch],
        ],
    ]
] = {
    Kind.DOCUMENTS: (_parse_documents, _doubtful_documents, _build_documents),
    Kind.MARKET_DATA: (_parse_bars, _doubtful_bars, _build_bars),
}

# ------------------------------------------------------------------------------------- kinds of few records


def _build_events(source: Source, lines: list[bytes], numbers: list[int], records: list[Any]) -> Batch:
    events: list[EventRecord] = records
    occurred = [micros(event.occurred_at) for event in events]
    texts = {
        name: [getattr(event, name) for event in events]
        for name in ("event_type", "title", "direction", "severity", "estimated_duration")
    }
    items = {name: [jsonb(sorted(getattr(event, name) or ())) for event in events] for name in DIMENSIONS}
    rows = pa.table(
        {"id": _uuids(pa.array([event.event_id for event in events], pa.string()))}
        | {name: pa.array(values, pa.string()) for name, values in texts.items()}
        | {name: pa.array(values, pa.binary()) for name, values in items.items()}
        | {"occurred_at": pa.array(occurred, TIMESTAMP)}
    )
    contents = list(zip(occurred, *texts.values(), *items.values(), strict=True))
    keys = [event.event_id for event in events]
    return _few((source, lines, numbers), rows, events, primary=occurred, keys=keys, contents=contents)


def _build_exposures(source: Source, lines: list[bytes], numbers: list[int], records: list[Any]) -> Batch:
    exposures: list[ExposureRecord] = records
    shares = {
        name: [jsonb(dict(sorted((getattr(exposure, name) or {}).items()))) for exposure in exposures]
        for name in DIMENSIONS
    }
    keys = [exposure.entity_id for exposure in exposures]
    rows = pa.table(
        {"entity_id": pa.array(keys, pa.string())}
        | {name: pa.array(values, pa.binary()) for name, values in shares.items()}
    )
    always = [_EARLIEST_US] * len(exposures)
    contents = list(zip(*shares.values(), strict=True))
    return _few((source, lines, numbers), rows, exposures, primary=always, keys=keys, contents=contents)


def _build_edges(source: Source, lines: list[bytes], numbers: list[int], records: list[Any]) -> Batch:
    edges: list[RelationshipRecord] = records
    rho = [edge.historical_correlation for edge in edges]
    keys = [(edge.source_entity, edge.target_entity, edge.relation_type) for edge in edges]
    names = ("source_entity", "target_entity", "relation_type")
    rows = pa.table(
        {name: pa.array([key[i] for key in keys], pa.string()) for i, name in enumerate(names)}
        | {"historical_correlation": pa.array(rho, pa.float64())}
    )
    always = [_EARLIEST_US] * len(edges)
    return _few((source, lines, numbers), rows, edges, primary=always, keys=keys, contents=rho)


def _few(
    block: tuple[Source, list[bytes], list[int]],
    rows: pa.Table,
    records: Sequence[Any],
    *,
    primary: list[int],
    keys: Sequence[Hashable],
    contents: Sequence[Hashable],
) -> Batch:
    own = [UNKNOWN_US if record.known_at is None else micros(record.known_at) for record in records]
    return Batch(
        *block,
        rows,
        np.array(primary, np.int64),
        np.array(own, np.int64),
        list(keys),
        list(contents),
    )


_SINGLY: Final[dict[Kind, Callable[[Source, list[bytes], list[int], list[Any]], Batch]]] = {
    Kind.GLOBAL_EVENTS: _build_events,
    Kind.EXPOSURES: _build_exposures,
    Kind.RELATIONSHIPS: _build_edges,
}
