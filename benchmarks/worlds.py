"""Made-up documents inside the database, in bulk and the same in every run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)

# One document with one impact per number, evenly over 90 days; values from a hash of the number.
_DOCUMENTS = """
    WITH numbered AS MATERIALIZED (
        SELECT n, md5(n::text)::uuid AS id,
               ('x' || substr(md5('h' || n), 1, 7))::bit(28)::bigint AS h,
               %(as_of)s::timestamptz - (1 + (n * 7919) %% 129599) * interval '1 minute' AS at
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n),
    d AS (
        INSERT INTO documents (id, source_id, source_type, published_at)
        SELECT id, 'source-' || h %% 2000, (ARRAY['news', 'filing', 'blog', 'social'])[1 + h %% 4], at
        FROM numbered),
    i AS (
        INSERT INTO document_intelligence (document_id, known_at, source_id, source_type, published_at,
            extraction_confidence, credibility, novelty)
        SELECT id, at, 'source-' || h %% 2000, (ARRAY['news', 'filing', 'blog', 'social'])[1 + h %% 4], at,
               (h %% 1009) / 1009.0, CASE WHEN h %% 2 = 0 THEN (h %% 997) / 997.0 END, (h %% 991) / 991.0
        FROM numbered)
    INSERT INTO document_impact_records
        (document_id, entity_id, published_at, sentiment, impact_score, catalyst_type)
    SELECT id, 'entity-' || lpad((n %% %(entities)s)::text, 6, '0'), at,
           (ARRAY[1, 1, -1, -1, 0])[1 + h %% 5], (h %% 983) / 983.0,
           (ARRAY['legal', 'regulatory', 'product_launch', 'rumour', NULL])[1 + h %% 5]
    FROM numbered"""


def add_documents(url: str, *, entities: int, documents: int, chunk: int = 50_000) -> None:
    """Insert the documents, at most ``chunk`` in a transaction, known when they were published."""
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(0, documents, chunk):
            bounds = {"first": first, "last": min(first + chunk, documents) - 1}
            connection.execute(_DOCUMENTS, {**bounds, "entities": entities, "as_of": AS_OF})
        connection.execute("VACUUM ANALYZE")


@contextlib.contextmanager
def server() -> Iterator[EmbeddedPostgres]:
    """A private embedded server, stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        embedded = EmbeddedPostgres(Path(folder))
        with embedded.acquire():
            yield embedded
        embedded.wait_until_stopped()


@contextlib.contextmanager
def database(
    embedded: EmbeddedPostgres, name: str, *, entities: int = 1, documents: int = 0
) -> Iterator[Database]:
    """A new database with these documents, dropped at the end."""
    with psycopg.connect(embedded.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    found = Database(embedded.url(name))
    try:
        migrate.upgrade(found)
        add_documents(embedded.url(name), entities=entities, documents=documents)
        yield found
    finally:
        found.close()
        with psycopg.connect(embedded.url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
