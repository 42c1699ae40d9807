"""Rows of the input tables by plain SQL, for tests below the ingestion; deterministic, no clock.

Whatever a test does not say about a document gets a harmless value, so that a test names what it is about.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)
WINDOWS = ("intraday", "1d", "7d", "30d", "90d")
_NAMESPACE = uuid.UUID("00000000-0000-5000-8000-000000000000")


def ago(**span: float) -> datetime:
    """A time before ``AS_OF``."""
    return AS_OF - timedelta(**span)


@dataclass(frozen=True)
class Impact:
    """What a document says about an entity."""

    entity: str
    sentiment: float = 1.0
    impact: float = 0.8
    catalyst: str | None = "legal"
    risks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """One version of a document; known when published unless it says otherwise."""

    name: str
    impacts: tuple[Impact, ...] = ()
    published: datetime = AS_OF - timedelta(hours=6)
    known: datetime | None = None
    source: str = "source-1"
    source_type: str | None = "news"
    confidence: float | None = 0.9
    credibility: float | None = None
    novelty: float | None = None
    failed: bool = False
    names: tuple[str, ...] = ()
    version: int = 1

    @property
    def id(self) -> str:
        """Its UUID."""
        return document_id(self.name)

    @property
    def known_at(self) -> datetime:
        """When it could first be used."""
        return self.published if self.known is None else self.known


def document_id(name: str) -> str:
    """The UUID of the document of that name."""
    return str(uuid.uuid5(_NAMESPACE, name))


def insert_documents(connection: psycopg.Connection[Any], documents: Iterable[Document]) -> None:
    """Insert versions of documents; a later version replaces the one before from its own ``known_at`` on."""
    for d in documents:
        if d.version == 1:
            connection.execute(
                """INSERT INTO documents (id, source_id, source_type, published_at, status)
                   VALUES (%s,%s,%s,%s,%s)""",
                (d.id, d.source, d.source_type, d.published, "failed" if d.failed else "extracted"),
            )
        else:
            _supersede(connection, d.id, d.version - 1, d.known_at)
        connection.execute(
            """INSERT INTO document_intelligence (document_id, version, known_at, source_id, source_type,
                   published_at, failed, extraction_confidence, credibility, novelty)
               VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)""",
            (
                d.id,
                d.version,
                d.known_at,
                d.source,
                d.source_type,
                d.published,
                d.failed,
                None if d.failed else d.confidence,
                d.credibility,
                d.novelty,
            ),
        )
        for i in d.impacts:
            connection.execute(
                """INSERT INTO document_impact_records (document_id, version, entity_id, published_at,
                       sentiment, impact_score, catalyst_type, risk_flags)
                   VALUES (%s,%s,%s,%s,%s,%s,%s,%s)""",
                (
                    d.id,
                    d.version,
                    i.entity,
                    d.published,
                    i.sentiment,
                    i.impact,
                    i.catalyst,
                    json.dumps(list(i.risks)),
                ),
            )
        for name in d.names:
            connection.execute(
                """INSERT INTO document_impact_records (document_id, version, entity_id, published_at,
                       has_impact) VALUES (%s,%s,%s,%s,false)""",
                (d.id, d.version, name, d.published),
            )


def retract_document(connection: psycopg.Connection[Any], document: Document, known: datetime) -> None:
    """Withdraw a document from ``known`` on: a further version without content."""
    _supersede(connection, document.id, document.version, known)
    connection.execute(
        """INSERT INTO document_intelligence (document_id, version, known_at, retracted, source_id,
               published_at) VALUES (%s,%s,%s,true,%s,%s)""",
        (document.id, document.version + 1, known, document.source, document.published),
    )


def _supersede(connection: psycopg.Connection[Any], identity: str, version: int, known: datetime) -> None:
    connection.execute(
        """UPDATE document_intelligence SET superseded_known_at = %s, superseded_xid = pg_current_xact_id()
           WHERE document_id = %s AND version = %s""",
        (known, identity, version),
    )


def insert_bars(
    connection: psycopg.Connection[Any], entity: str, closes: Sequence[float], *, last: date | None = None
) -> None:
    """Daily bars ending with ``last`` (the day before ``AS_OF``), each known at the end of its day."""
    end = AS_OF.date() - timedelta(days=1) if last is None else last
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO market_bars (entity_id, day, known_at, close, volume) VALUES (%s,%s,%s,%s,%s)",
            [
                (
                    entity,
                    day := end - timedelta(days=len(closes) - 1 - n),
                    datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1),
                    close,
                    1000.0 + 10.0 * (n % 7),
                )
                for n, close in enumerate(closes)
            ],
        )


def insert_event(
    connection: psycopg.Connection[Any],
    name: str,
    *,
    occurred: datetime = AS_OF - timedelta(hours=3),
    direction: str = "negative",
    items: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """A world event of high severity and medium duration, known when it occurred."""
    lists = {"geo": ["us"], "supply": [], "commodity": [], "sector": []} | dict(items or {})
    connection.execute(
        """INSERT INTO macro_events (id, known_at, direction, severity, estimated_duration, geo, supply,
               commodity, sector, occurred_at) VALUES (%s,%s,%s,'high','medium_term',%s,%s,%s,%s,%s)""",
        (document_id(name), occurred, direction, *(json.dumps(list(v)) for v in lists.values()), occurred),
    )


def insert_exposure(
    connection: psycopg.Connection[Any], entity: str, shares: Mapping[str, Mapping[str, float]]
) -> None:
    """An exposure profile, known always."""
    dimensions = ("geo", "supply", "commodity", "sector")
    connection.execute(
        """INSERT INTO exposure_profiles (entity_id, known_at, geo, supply, commodity, sector)
           VALUES (%s,'2000-01-01Z',%s,%s,%s,%s)""",
        (entity, *(json.dumps(dict(shares.get(d, {}))) for d in dimensions)),
    )


def insert_edge(connection: psycopg.Connection[Any], source: str, target: str, rho: float = 0.5) -> None:
    """An edge, known always."""
    connection.execute(
        """INSERT INTO competitive_edges (source_entity, target_entity, known_at, historical_correlation)
           VALUES (%s,%s,'2000-01-01Z',%s)""",
        (source, target, rho),
    )


@dataclass(frozen=True)
class World:
    """A made-up world of every kind of input."""

    entities: tuple[str, ...]
    documents: tuple[Document, ...]
    closes: dict[str, list[float]] = field(default_factory=dict)
    edges: tuple[tuple[str, str, float], ...] = ()


def make_world(entities: int = 6, documents: int = 80, *, seed: int = 5, bars: int = 140) -> World:
    """Documents of the last 200 days over the entities; two thirds of these have bars; a ring of edges."""
    rng = random.Random(seed)
    # Names whose order by code point differs from any language's.
    names = tuple(f"{'ZaÄz'[n % 4]}-{n:02d}" for n in range(entities))
    made = []
    for n in range(documents):
        published = AS_OF - timedelta(days=200.0 * rng.random() ** 3, minutes=1)
        failed = n % 9 == 8
        chosen = rng.sample(names, min(entities, rng.choice((1, 1, 2))))
        made.append(
            Document(
                f"document-{n}",
                impacts=()
                if failed
                else tuple(
                    Impact(
                        entity,
                        rng.choice((1.0, 1.0, -1.0, 0.0)),
                        round(rng.random(), 4),
                        rng.choice(("legal", "performance_report", "rumour", None)),
                        tuple(rng.sample(("litigation", "supply", "Überschuldung"), rng.randrange(3))),
                    )
                    for entity in chosen
                ),
                names=tuple(chosen) if failed else (),
                published=published,
                source=f"source-{rng.randrange(5)}",
                source_type=rng.choice(("news", "filing", "blog", None)),
                confidence=round(rng.uniform(0.2, 1.0), 3),
                credibility=rng.choice((None, round(rng.random(), 3))),
                novelty=rng.choice((None, round(rng.random(), 3))),
                failed=failed,
            )
        )
    closes = {}
    for name in names[: max(1, 2 * entities // 3)]:
        close, series = 100.0, []
        for _ in range(bars):
            close *= 1.0 + rng.gauss(0.0, 0.02)
            series.append(round(close, 4))
        closes[name] = series
    edges = tuple(
        (names[n], names[(n + 1) % entities], round(rng.uniform(-1, 1), 3)) for n in range(entities)
    )
    return World(names, tuple(made), closes, edges if entities > 2 else ())


def insert_world(connection: psycopg.Connection[Any], world: World) -> None:
    """Insert everything in the caller's transaction."""
    insert_documents(connection, world.documents)
    for entity, closes in world.closes.items():
        insert_bars(connection, entity, closes)
    for source, target, rho in world.edges:
        insert_edge(connection, source, target, rho)
    for n, entity in enumerate(world.entities):
        insert_exposure(connection, entity, {"geo": {"us": 0.2 + 0.1 * (n % 5)}, "sector": {"tech": 0.5}})
    insert_event(connection, "event-1")
    insert_event(
        connection, "event-2", occurred=ago(days=12), direction="positive", items={"sector": ["tech"]}
    )


def revised(document: Document, known: datetime, **changes: object) -> Document:
    """The next version of a document."""
    return replace(document, version=document.version + 1, known=known, **changes)


RESULT_TABLES = (
    "cycle_keys",
    "recommendation_evidence",
    "recommendations",
    "risk_evaluations",
    "source_accuracy",
    "source_accuracy_history",
    "trend_evidence",
    "trend_history",
    "trend_projections",
    "trend_windows",
    "weighted_signals",
)


def contents(url: str, *tables: str) -> dict[str, list[str]]:
    """Every row of the result tables (or the given ones) as text, which shows floats exactly."""
    with psycopg.connect(url) as connection:
        return {
            name: sorted(
                row[0]
                for row in connection.execute(
                    sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name))
                )
            )
            for name in tables or RESULT_TABLES
        }


def rows(url: str, query: str, *params: object) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with psycopg.connect(url) as connection:
        return connection.execute(query, params or None).fetchall()  # type: ignore[call-overload]
