"""Input records and databases for the tests of ingestion; deterministic, no clock."""

from __future__ import annotations

import contextlib
import json
import secrets
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
Row = dict[str, Any]
Line = Row | bytes


def uid(name: str) -> str:
    """A UUID that stands for ``name``."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def impact(entity: str = "ACME", **changes: object) -> Row:
    """A valid impact."""
    return {"entity_id": entity, "sentiment": "positive", "impact_score": 0.5} | changes


def document(name: str = "d", **changes: object) -> Row:
    """A valid document with one impact; None leaves a field out."""
    record: Row = {
        "document_id": uid(name),
        "source_id": "source-1",
        "source_type": "news",
        "published_at": "2026-03-10T06:00:00+00:00",
        "extraction": {"status": "ok", "confidence": 0.9},
        "impacts": [impact()],
    } | changes
    return {field: value for field, value in record.items() if value is not None}


def event(name: str = "e", **changes: object) -> Row:
    """A valid world event."""
    return {
        "event_id": uid(name),
        "occurred_at": "2026-03-01T00:00:00+00:00",
        "direction": "negative",
        "severity": "high",
        "estimated_duration": "short_term",
        "geo": ["us"],
    } | changes


def exposure(entity: str = "ACME", **changes: object) -> Row:
    """A valid exposure."""
    return {"entity_id": entity, "geo": {"us": 0.5}, "sector": {}} | changes


def edge(source: str = "ACME", target: str = "BETA", **changes: object) -> Row:
    """A valid edge."""
    return {
        "source_entity": source,
        "target_entity": target,
        "relation_type": "competitor",
        "historical_correlation": 0.5,
    } | changes


def jsonl(path: Path, records: Iterable[Line]) -> Path:
    """Write one record per line; bytes are a line as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@contextlib.contextmanager
def new_database(home: Path, template: str = "template0") -> Iterator[str]:
    """The URL of a new database on the shared server, dropped afterwards."""
    server = EmbeddedPostgres(home)
    name = f"ingest_{secrets.token_hex(6)}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    try:
        yield server.url(name)
    finally:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextlib.contextmanager
def migrated_database(home: Path) -> Iterator[str]:
    """The name of a new database with empty tables, to be copied by tests."""
    with new_database(home) as url:
        database = Database(url)
        migrate.upgrade(database)
        database.close()
        with psycopg.connect(url) as connection:
            name = connection.info.dbname
        yield name


def rows(url: str, query: str, *params: object) -> list[Row]:
    """The rows of a query; times in UTC."""
    with psycopg.connect(url, row_factory=dict_row, options="-c timezone=UTC") as connection:
        return connection.execute(query, params).fetchall()


_INPUTS = {
    "documents": "id",
    "document_intelligence": "document_id, version",
    "document_impact_records": "document_id, version, entity_id",
    "market_bars": "entity_id, day, version",
    "macro_events": "id, version",
    "exposure_profiles": "entity_id, version",
    "competitive_edges": "source_entity, target_entity, relation_type, version",
    "rejected_records": "id",
}


def empty(url: str) -> None:
    """Empty the input tables, which takes less than a new database."""
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(_INPUTS)} CASCADE")


def stored(url: str, *, without: Iterable[str] = ()) -> dict[str, list[Row]]:
    """Everything in the input tables, except for the columns in ``without``."""
    left_out = set(without)
    return {
        table: [
            {column: value for column, value in row.items() if column not in left_out}
            for row in rows(url, f"SELECT * FROM {table} ORDER BY {order}")
        ]
        for table, order in _INPUTS.items()
    }
