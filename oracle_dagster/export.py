"""Any table or view of the schema as CSV, JSON lines or Parquet, streamed in the order of its key.

Only reads, and changes no value: floats keep every bit (the shortest text that reads back the same), times
are UTC, JSON stays JSON. Which rows a cycle had is decided here (`as_of`); what the rows mean is not.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import psycopg
from psycopg import sql
from psycopg.types.string import TextLoader

from oracle_dagster.storage import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from psycopg.abc import Buffer

BATCH_ROWS: Final = 10_000
_JSON: Final = (114, 3802)  # object ids of json and jsonb
_TEXT: Final = (25, 1043)  # text and varchar
_FLOAT: Final = (700, 701)

# Where the primary key is a generated id, people look rows up by what the row is about.
ORDER: Final[dict[str, tuple[str, ...]]] = {
    "trend_windows": ("entity_type", "entity_id", "window"),
    "trend_history": ("entity_type", "entity_id", "window", "generated_at", "config_version"),
    "trend_evidence": ("trend_window_id", "role", "rank_position"),
    "trend_projections": ("entity_id", "window", "computed_at", "config_version"),
    "recommendations": ("entity_id", "time_horizon", "generated_at", "config_version"),
    "risk_evaluations": ("recommendation_id",),
    "source_accuracy": ("source_id",),
    "ai_agents": ("slug",),
    "recommendation_evaluations": ("recommendation_id",),
    "actionable_recommendations": ("entity_id", "time_horizon", "generated_at", "config_version"),
    "macro_impacts": ("event_id", "entity_id"),
    "pattern_stats": ("entity_id", "window", "catalyst_type"),
}
_ENTITY_COLUMNS: Final = ("entity_id", "source_entity", "target_entity")
_WITHOUT_ENTITY: Final = ("recommendation_evaluations",)
_AS_OF_COLUMN: Final[dict[str, str]] = {
    "weighted_signals": "as_of",
    "trend_history": "generated_at",
    "trend_projections": "computed_at",
    "recommendations": "generated_at",
    "actionable_recommendations": "generated_at",
    "risk_evaluations": "created_at",
    "recommendation_evaluations": "created_at",
    "source_accuracy_history": "as_of",
    "cycles": "as_of",
    "cycle_keys": "as_of",
    "cycle_failures": "as_of",
    "run_log": "as_of",
    "macro_impacts": "as_of",
    "pattern_stats": "as_of",
}
# Tables whose rows of one cycle are found through another table; columns and order are those of the table.
_AS_OF_QUERY: Final[dict[str, str]] = {
    "trend_windows": """
        SELECT DISTINCT ON (h.entity_type, h.entity_id, h."window") w.id, {history}
        FROM trend_history h JOIN trend_windows w USING (entity_type, entity_id, "window")
        WHERE h.generated_at = {as_of}
        ORDER BY h.entity_type, h.entity_id, h."window", h.config_version DESC""",
    "trend_evidence": """
        SELECT e.* FROM trend_evidence e JOIN trend_windows w ON w.id = e.trend_window_id
        WHERE w.generated_at = {as_of}""",
    "recommendation_evidence": """
        SELECT e.* FROM recommendation_evidence e JOIN recommendations r ON r.id = e.recommendation_id
        WHERE r.generated_at = {as_of}""",
    "source_accuracy": """
        SELECT DISTINCT ON (h.source_id) a.id, h.source_id, h.accuracy_ratio, h.sample_count,
               h.as_of AS last_updated, a.created_at
        FROM source_accuracy_history h JOIN source_accuracy a USING (source_id)
        WHERE h.as_of <= {as_of} ORDER BY h.source_id, h.as_of DESC""",
    "document_impact_records": """
        SELECT i.* FROM document_impact_records i
        JOIN document_intelligence d USING (document_id, version)
        WHERE d.known_at <= {as_of} AND NOT d.retracted
          AND (d.superseded_known_at IS NULL OR d.superseded_known_at > {as_of})""",
}


class ExportError(RuntimeError):
    """An export that cannot be made; the message names place, value and remedy."""


class UnknownTableError(ExportError):
    """No table or view has this name."""

    exit_code = 2  # a wrong argument, not a failure

    def __init__(self, name: str) -> None:
        """List the names there are, the nearest first."""
        names = exportable()
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        super().__init__(f"There is no table or view {name!r}. {hint}There are: {', '.join(names)}.")


class NoCycleError(ExportError):
    """The table has no rows that belong to a moment."""

    exit_code = 2


def exportable() -> list[str]:
    """The names of all tables and views, sorted."""
    return sorted([*schema.metadata.tables, *schema.VIEWS])


def export_table(
    domain_url: str,
    table: str,
    form: str,
    *,
    out: Path | BinaryIO,
    as_of: datetime | None = None,
    entity: str | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> int:
    """Write a table and return the number of rows.

    Memory is bounded by one batch of rows. All rows are of one moment of the database.

    Args:
        domain_url: libpq URL of the database with the tables.
        table: name of a table or view of the schema.
        form: ``csv`` (a header line), ``jsonl`` or ``parquet``.
        out: a path, written beside and put in place when complete, or an open binary stream.
        as_of: only the rows of that cycle; of an input table the versions known then; None for all rows.
        entity: only the rows of the entity with this id or name.
        on_rows: told the number of rows so far.

    Raises:
        UnknownTableError: no such table or view.
        NoCycleError: ``as_of`` or ``entity`` has no meaning for this table.
        ExportError: the database is not initialised, or the file cannot be written.
    """
    if table not in exportable():
        raise UnknownTableError(table)
    query = _rows_of(table, as_of)
    if entity is not None:
        query = _of_entity(table, query, entity)
    try:
        with psycopg.connect(domain_url) as connection, _opened(out) as stream:
            return _stream(connection, table, query, form=form, stream=stream, on_rows=on_rows)
    except psycopg.errors.UndefinedTable:
        raise ExportError(f"The database has no table {table} yet. Run `oracle init` first.") from None


def _rows_of(table: str, as_of: datetime | None) -> sql.Composed:
    """The rows of a table, unordered, in the table's columns."""
    name = sql.Identifier(table)
    if as_of is None:
        return sql.SQL("SELECT * FROM {}").format(name)
    moment = sql.Literal(as_of)
    if table in _AS_OF_COLUMN:
        column = sql.Identifier(_AS_OF_COLUMN[table])
        return sql.SQL("SELECT * FROM {} WHERE {} = {}").format(name, column, moment)
    if table in _AS_OF_QUERY:
        history = sql.SQL(", ").join(
            sql.Identifier("h", c.name) for c in schema.trend_windows.columns if c.name != "id"
        )
        return sql.SQL(_AS_OF_QUERY[table]).format(as_of=moment, history=history)
    if table in schema.metadata.tables and "superseded_known_at" in schema.metadata.tables[table].columns:
        return sql.SQL(
            "SELECT * FROM {} WHERE known_at <= {as_of} AND NOT retracted "
            "AND (superseded_known_at IS NULL OR superseded_known_at > {as_of})"
        ).format(name, as_of=moment)
    raise NoCycleError(
        f"The rows of {table} belong to no moment, so --as-of cannot choose among them. Leave it out."
    )


def _of_entity(table: str, query: sql.Composed, entity: str) -> sql.Composed:
    """Of the rows those that name an entity; a later name stands for the id that it was given to."""
    known = schema.metadata.tables.get(table)
    columns = set(_ENTITY_COLUMNS) if known is None else {c.name for c in known.columns}
    named = [
        name for name in _ENTITY_COLUMNS if name in columns and (known is not None or name == "entity_id")
    ]
    if not named or table in _WITHOUT_ENTITY:
        raise NoCycleError(
            f"The rows of {table} name no entity, so --entity cannot choose among them. Leave it out."
        )
    wanted = sql.SQL(
        "coalesce((SELECT n.entity_id FROM entity_names n WHERE n.name = {name} LIMIT 1), {name})"
    ).format(name=sql.Literal(entity))
    conditions = [sql.SQL("t.{} = {}").format(sql.Identifier(name), wanted) for name in named]
    return sql.SQL("SELECT t.* FROM ({}) AS t WHERE {}").format(query, sql.SQL(" OR ").join(conditions))


def _order_of(table: str, columns: Sequence[psycopg.Column]) -> sql.Composed:
    """ORDER BY the natural key, then the primary key; text by code point, whatever the server's collation."""
    known = schema.metadata.tables.get(table)
    names = list(ORDER.get(table, ()))
    names += [c.name for c in known.primary_key.columns if c.name not in names] if known is not None else []
    oids = {c.name: c.type_code for c in columns}
    return sql.SQL(", ").join(
        sql.SQL('{} COLLATE "C"' if oids[n] in _TEXT else "{}").format(sql.Identifier(n)) for n in names
    )


class _AsText(TextLoader):
    """Hand a JSON value or a UUID over as the text the server sent."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


def _stream(
    connection: psycopg.Connection,
    table: str,
    query: sql.Composed,
    *,
    form: str,
    stream: BinaryIO,
    on_rows: Callable[[int], None] | None,
) -> int:
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    connection.execute("SET TIME ZONE 'UTC'")
    for name in ("json", "jsonb", "uuid", "xid8"):
        info = connection.adapters.types.get(name)
        connection.adapters.register_loader(info.oid if info is not None else name, _AsText)
    probe = connection.execute(sql.SQL("SELECT * FROM ({}) AS t LIMIT 0").format(query))
    columns = list(probe.description or ())
    ordered = sql.SQL("SELECT * FROM ({}) AS t ORDER BY {}").format(query, _order_of(table, columns))
    write = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}[form]
    rows = 0
    with connection.cursor(name="export") as cursor:
        cursor.itersize = BATCH_ROWS
        cursor.execute(ordered)

        def batches() -> Iterator[list[tuple[Any, ...]]]:
            nonlocal rows
            while batch := cursor.fetchmany(BATCH_ROWS):
                yield batch
                rows += len(batch)
                if on_rows is not None:
                    on_rows(rows)

        write(columns, batches(), stream)
    stream.flush()
    return rows


def _iso(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _csv(
    columns: Sequence[psycopg.Column], batches: Iterable[list[tuple[Any, ...]]], stream: BinaryIO
) -> None:
    """A header, then one line per row; NULL is empty, booleans are true and false."""

    def cell(value: object) -> object:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return repr(value)
        return _iso(value) if isinstance(value, datetime) else value

    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([c.name for c in columns])
        for batch in batches:
            writer.writerows([cell(v) for v in row] for row in batch)
        text.flush()
    finally:
        text.detach()


def _jsonl(
    columns: Sequence[psycopg.Column], batches: Iterable[list[tuple[Any, ...]]], stream: BinaryIO
) -> None:
    """One object per line; JSON columns are embedded as the server holds them."""
    encode = json.JSONEncoder(ensure_ascii=False, default=_plain).encode

    def verbatim(value: str | None) -> str:
        return "null" if value is None else value

    heads = [f"{encode(c.name)}: " for c in columns]
    shapes = [verbatim if c.type_code in _JSON else encode for c in columns]
    for batch in batches:
        lines = (
            "{" + ", ".join(h + s(v) for h, s, v in zip(heads, shapes, row, strict=True)) + "}\n"
            for row in batch
        )
        stream.write("".join(lines).encode())


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return _iso(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _parquet(
    columns: Sequence[psycopg.Column], batches: Iterable[list[tuple[Any, ...]]], stream: BinaryIO
) -> None:
    """One row group per batch; UUID and JSON columns are strings, times are microseconds in UTC."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        16: pa.bool_(),
        20: pa.int64(),
        23: pa.int32(),
        1082: pa.date32(),
        1184: pa.timestamp("us", tz="UTC"),
        **dict.fromkeys(_FLOAT, pa.float64()),
    }
    layout = pa.schema([(c.name, types.get(c.type_code, pa.string())) for c in columns])
    with pq.ParquetWriter(stream, layout) as writer:
        for batch in batches:
            arrays = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*batch, strict=True), layout, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=layout))


@contextlib.contextmanager
def _opened(out: Path | BinaryIO) -> Iterator[BinaryIO]:
    """The stream itself, or a file that appears under its name only when it is complete."""
    if not isinstance(out, Path):
        yield out
        return
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(out)
    except OSError as error:
        raise ExportError(
            f"Cannot write {out}: {error.strerror}. Choose another file with --out, or free some space."
        ) from error
    finally:
        part.unlink(missing_ok=True)
