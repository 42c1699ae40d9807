"""Files to blocks of lines: which files an input folder holds, and how each is read in bounded memory.

A line is one record: a JSON object, or a row of a CSV file under its header. Rows of a Parquet file become
JSON lines, so that every format meets the same rules. What a record means does not belong here.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from oracle_dagster.ingestion.models import MODELS, Fault, Kind, Reason, fault, storable_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE_BYTES: Final = 32 * 2**20
MAX_BLOCK_BYTES: Final = 16 * 2**20
BLOCK_RECORDS: Final = 20_000
KEPT_OF_TOO_LONG_BYTES: Final = 64 * 2**10

Format = Literal["jsonl", "csv", "parquet"]
_SUFFIXES: Final[dict[str, Format]] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_STEMS: Final = frozenset(kind.value for kind in Kind)
_BOM: Final = b"\xef\xbb\xbf"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"
_NO_PYTHON_VALUE: Final = (ValueError, OverflowError, LookupError)
KNOWN_NAMES: Final = (
    "documents.jsonl, market_data.csv, global_events.jsonl, exposures.jsonl, relationships.jsonl "
    "(each also .gz, or .parquet instead)"
)


class InputError(ValueError):
    """The path given to ``ingest`` cannot be an input; the message says what would be."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input file: where it is, what its records are, how they are written, and its path as stored."""

    path: Path
    kind: Kind
    format: Format
    name: str


def source_at(path: Path, kind: Kind, written: Format) -> Source:
    """Describe the file at ``path``; its stored name is absolute and free of bytes that cannot be stored."""
    return Source(path, kind, written, storable_bytes(bytes(path.absolute())))


@dataclass(frozen=True, slots=True)
class Misread:
    """A part of a file that was refused; ``text`` is what is kept of it."""

    number: int
    text: str
    fault: Fault

    @property
    def of_file(self) -> bool:
        """Whether the file, not one record of it, could not be read."""
        return self.text == "" or self.fault.field == "header"


@dataclass(slots=True)
class Block:
    """Consecutive lines of one file, without their line ends; ``numbers`` count from 1.

    ``columns`` are the names in the header of a CSV file, None where lines are JSON objects. ``position`` is
    how many bytes of the file were read so far.
    """

    source: Source
    columns: tuple[str, ...] | None = None
    lines: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    misread: list[Misread] = field(default_factory=list)
    position: int = 0


# --------------------------------------------------------------------------------------------- discovery


def discover(path: Path) -> tuple[list[Source], list[str]]:
    """Return the input files at ``path`` (one file, or a folder of them) and warnings about others.

    Raises:
        InputError: nothing is there, or nothing that could be loaded.

    """
    if path.is_dir():
        return _discover_folder(path)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a file or a folder of {KNOWN_NAMES}")
    if not path.is_file():
        raise InputError(f"{path} is neither a file nor a folder; give a file or a folder of {KNOWN_NAMES}")
    named = _by_name(path)
    if named is None:
        named = _by_content(path)
    return [named], []


def _discover_folder(folder: Path) -> tuple[list[Source], list[str]]:
    sources: list[Source] = []
    warnings: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        source = _by_name(path)
        if source is None:
            warnings.append(f"{path} is not loaded: its name is not one of {KNOWN_NAMES}")
        else:
            sources.append(source)
    if not sources:
        raise InputError(f"the folder {folder} holds none of {KNOWN_NAMES}")
    order = list(Kind)
    return sorted(sources, key=lambda source: order.index(source.kind)), warnings


def _by_name(path: Path) -> Source | None:
    name = path.name.removesuffix(".gz")
    for suffix, written in _SUFFIXES.items():
        stem = name.removesuffix(suffix)
        if stem != name and stem in _STEMS:
            kind = Kind(stem)
            if (written == "csv") is (kind is Kind.MARKET_DATA) or written == "parquet":
                return source_at(path, kind, written)
    return None


def _by_content(path: Path) -> Source:
    """Recognise a file of any name by the fields of its first record."""
    help_text = f"name it as one of {KNOWN_NAMES}"
    try:
        with path.open("rb") as raw:
            magic = raw.read(len(_PARQUET))
            raw.seek(0)
            if magic == _PARQUET:
                return _recognised(path, "parquet", set(pq.ParquetFile(raw).schema_arrow.names))
            stream = _unpacked(raw)
            line = b""
            while line.strip(b" \t\r\n") == b"":
                line = stream.readline(MAX_LINE_BYTES)
                if line == b"":
                    raise InputError(f"{path} is empty, so its kind cannot be told; {help_text}")
            return _recognised(path, *_names_in(line))
    except (OSError, EOFError, zlib.error, pa.ArrowException, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}); {help_text}") from error


def _names_in(line: bytes) -> tuple[Format, set[str]]:
    text = line.removeprefix(_BOM).decode("utf-8", "replace")
    try:
        first = json.loads(text)
    except (ValueError, RecursionError):
        return "csv", set(next(csv.reader([text]), []))
    return "jsonl", set(first) if isinstance(first, dict) else set()


def _recognised(path: Path, written: Format, names: set[str]) -> Source:
    names = {name.strip() for name in names}
    kind: Kind | None = None
    if "document_id" in names:
        kind = Kind.DOCUMENTS
    elif "event_id" in names:
        kind = Kind.GLOBAL_EVENTS
    elif "source_entity" in names:
        kind = Kind.RELATIONSHIPS
    elif "entity_id" in names and "close" in names:
        kind = Kind.MARKET_DATA
    elif "entity_id" in names and names & {"geo", "supply", "commodity", "sector"}:
        kind = Kind.EXPOSURES
    csv_of_bars = (written == "csv") is (kind is Kind.MARKET_DATA) or written == "parquet"
    if kind is None or not csv_of_bars:
        raise InputError(
            f"{path} has neither a known name nor records of a known kind; name it as one of {KNOWN_NAMES}"
        )
    return source_at(path, kind, written)


# ----------------------------------------------------------------------------------------------- reading


def read_blocks(source: Source, *, block_records: int = BLOCK_RECORDS) -> Iterator[Block]:
    """Yield the file's lines in blocks of at most ``block_records`` lines and about 16 MiB.

    Never raises for what is wrong with the file: a part that cannot be read comes as ``misread``.
    """
    reader = _read_parquet if source.format == "parquet" else _read_lines
    return reader(source, block_records)


def _read_lines(source: Source, block_records: int) -> Iterator[Block]:
    block = Block(source)
    number = 0
    try:
        with source.path.open("rb") as raw:
            stream = _unpacked(raw)
            if stream.peek(2)[:2] in _UTF16:
                block.misread.append(
                    Misread(1, "", fault(Reason.NOT_UTF8, f"{source.path.name} is written in UTF-16"))
                )
                yield block
                return
            size = 0
            for line in _bounded_lines(stream):
                number += 1
                if number == 1 and source.format == "csv":
                    header = _header(source, line)
                    if isinstance(header, Fault):
                        block.misread.append(Misread(1, storable_bytes(line), header))
                        break
                    block.columns = header
                    continue
                if len(line) > MAX_LINE_BYTES:
                    block.misread.append(_too_long(number, line))
                elif line.strip() != b"":
                    block.lines.append(line if source.format == "csv" else line.strip(b" \t"))
                    block.numbers.append(number)
                    size += len(line)
                if len(block.lines) >= block_records or size >= MAX_BLOCK_BYTES:
                    block.position = raw.tell()
                    yield block
                    block, size = Block(source, block.columns), 0
            block.position = raw.tell()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        block.misread.append(Misread(number + 1, "", _truncated(source, number, error)))
    except OSError as error:
        what = f"{source.path.name} cannot be read ({error.strerror or error})"
        block.misread.append(Misread(number + 1, "", fault(Reason.UNREADABLE_FILE, what)))
    yield block


def _unpacked(raw: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    packed = raw.peek(2)[:2] == _GZIP
    return gzip.GzipFile(fileobj=raw) if packed else raw


def _bounded_lines(stream: io.BufferedReader | gzip.GzipFile) -> Iterator[bytes]:
    """Lines without ends and byte-order mark; of one that is too long the first 32 MiB and a byte."""
    first = True
    while (line := stream.readline(MAX_LINE_BYTES + 1)) != b"":
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES + 1)
        if first:
            line, first = line.removeprefix(_BOM), False
        yield line if len(line) > MAX_LINE_BYTES else line.rstrip(b"\r\n")


def _too_long(number: int, line: bytes) -> Misread:
    kept = storable_bytes(line[:KEPT_OF_TOO_LONG_BYTES])
    what = (
        f"the line is longer than 32 MiB (only its first {KEPT_OF_TOO_LONG_BYTES // 2**10} KiB are kept here)"
    )
    return Misread(number, kept, fault(Reason.LINE_TOO_LONG, what))


def _truncated(source: Source, number: int, error: Exception) -> Fault:
    return fault(
        Reason.TRUNCATED_FILE,
        f"the compressed data of {source.path.name} ends or breaks after line {number} ({error}), "
        "and the lines up to there were read",
    )


def _header(source: Source, line: bytes) -> tuple[str, ...] | Fault:
    required, known = _columns_of(source.kind)
    text = storable_bytes(line)
    try:
        names = tuple(name.strip() for name in next(csv.reader([text]), []))
    except csv.Error as error:  # lines that end in a carriage return alone, or an endless field
        what = f"the header cannot be read ({error}); lines end in a line feed"
        return fault(Reason.WRONG_COLUMNS, what, field="header", value=text[:KEPT_OF_TOO_LONG_BYTES])
    missing = [name for name in required if name not in names]
    unknown = [name for name in names if name not in known]
    expected = f"expected are {','.join(required)} and, optional, {','.join(sorted(known - set(required)))}"
    if missing and len(names) == 1:
        for separator, called in ((";", "';'"), ("\t", "a tab")):
            if separator in text:
                return fault(
                    Reason.WRONG_SEPARATOR,
                    f"the columns are separated by {called}",
                    field="header",
                    value=text,
                )
    if missing:
        what = f"the header has no column {', '.join(missing)} ({expected})"
    elif unknown:
        what = f"the header has the unknown column {', '.join(unknown)} ({expected})"
    elif len(set(names)) < len(names):
        what = f"the header names a column twice ({expected})"
    else:
        return names
    return fault(Reason.WRONG_COLUMNS, what, field="header", value=text)


def _columns_of(kind: Kind) -> tuple[tuple[str, ...], set[str]]:
    fields = MODELS[kind].model_fields
    return tuple(name for name, info in fields.items() if info.is_required()), set(fields)


def _rows_of(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """The rows as Python values; a value that Python cannot hold (year 10000, nanoseconds) as its text.

    The model refuses the text, naming row, field and value, or cuts the time to microseconds.
    """
    try:
        return batch.to_pylist()  # type: ignore[no-any-return]
    except _NO_PYTHON_VALUE:
        columns = list(zip(batch.schema.names, batch.columns, strict=True))
        return [
            {name: _value_of(column.slice(number, 1)) for name, column in columns}
            for number in range(batch.num_rows)
        ]


def _value_of(one: pa.Array) -> object:
    try:
        return one[0].as_py()
    except _NO_PYTHON_VALUE:
        try:
            return one.cast(pa.string())[0].as_py()
        except (pa.ArrowException, *_NO_PYTHON_VALUE):
            return f"a value of type {one.type} that cannot be read"


def _read_parquet(source: Source, block_records: int) -> Iterator[Block]:
    number = 0
    block = Block(source)
    try:
        with pq.ParquetFile(source.path) as parquet:
            known = _columns_of(source.kind)[1]
            unknown = [name for name in parquet.schema_arrow.names if name not in known]
            if unknown:
                what = f"{source.path.name} has the unknown column {', '.join(unknown)}"
                block.misread.append(
                    Misread(0, "", fault(Reason.WRONG_COLUMNS, what, field="header", value=unknown[0]))
                )
                yield block
                return
            size, held = source.path.stat().st_size, 0
            total = max(1, parquet.metadata.num_rows)
            for batch in parquet.iter_batches(batch_size=min(block_records, 5_000)):
                for row in _rows_of(batch):
                    number += 1
                    line = json.dumps(_plain(row), default=_as_json, ensure_ascii=False).encode(
                        "utf-8", "backslashreplace"
                    )
                    if len(line) > MAX_LINE_BYTES:
                        block.misread.append(_too_long(number, line))
                        continue
                    block.lines.append(line)
                    block.numbers.append(number)
                    held += len(line)
                    if len(block.lines) >= block_records or held >= MAX_BLOCK_BYTES:
                        block.position = size * number // total
                        yield block
                        block, held = Block(source), 0
            block.position = size
    except (pa.ArrowException, OSError) as error:
        what = f"{source.path.name} cannot be read after row {number} ({error})"
        block.misread.append(Misread(number + 1, "", fault(Reason.UNREADABLE_FILE, what)))
    yield block


def _plain(value: object) -> object:
    """Without nulls in records: columns cannot leave a field out. Maps become objects."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {name: _plain(item) for name, item in value}
        return [_plain(item) for item in value]
    return value


def _as_json(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, UUID):
        return str(value)
    return repr(value)
