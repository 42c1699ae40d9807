"""What planning a change of the configuration costs, against the backfill that the plan describes.

A private embedded server holds a made-up world whose cycle is
current. For each kind of change every round plans it and applies it, in turn, so that both see the same
machine: the backfill is what ``oracle apply`` starts, the orchestrator's run with its events and all writes.
The ratio of the medians should be at most a tenth.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import psycopg

from benchmarks.harness import Figure, Size, Spread
from oracle_dagster.home import Home
from oracle_dagster.launch import apply_plan, run_cycle
from oracle_dagster.planning.plan import make_plan
from oracle_dagster.storage import configuration, migrate
from oracle_dagster.storage.database import Database

if TYPE_CHECKING:
    from oracle_dagster.planning.plan import Plan

LARGEST_RATIO = 0.1
AS_OF = "2026-03-10T12:00:00+00:00"
# Every one reaches every key, by one stage or by all, and never twice in the same way.
# By the first asset that they reach: a setting of nearly every key, with a value for each round.
CHANGES: dict[str, tuple[str, float]] = {
    "recommendations": ("eligibility.base_allocation_pct", 0.011),
    "trend_projections": ("projection.base_confidence", 0.79),
    "trend_windows": ("trend.confidence_count_weight", 0.29),
    "weighted_signals": ("scoring.entity_layer_weight", 1.01),
}
_STEP = 0.0005

# Values from a hash of the number, so that the world is the same in every run.
_WORLD = """
    WITH numbered AS MATERIALIZED (
        SELECT n, md5(n::text)::uuid AS id,
               ('x' || substr(md5('h' || n), 1, 7))::bit(28)::bigint AS h,
               %(as_of)s::timestamptz - (5 + (n * 7919) %% %(minutes)s) * interval '1 minute' AS at
        FROM generate_series(1, %(documents)s::bigint) AS n),
    d AS (
        INSERT INTO documents (id, source_id, source_type, published_at)
        SELECT id, 'source-' || h %% 200, (ARRAY['news', 'filing', 'blog'])[1 + h %% 3], at FROM numbered),
    i AS (
        INSERT INTO document_intelligence
            (document_id, known_at, source_id, source_type, published_at, extraction_confidence)
        SELECT id, at, 'source-' || h %% 200, (ARRAY['news', 'filing', 'blog'])[1 + h %% 3], at,
               0.4 + (h %% 61) / 100.0 FROM numbered)
    INSERT INTO document_impact_records
        (document_id, entity_id, published_at, sentiment, impact_score, catalyst_type)
    SELECT id, 'entity-' || n %% %(entities)s, at, (ARRAY[1, 1, 1, -1, 0])[1 + h %% 5], (h %% 101) / 100.0,
           (ARRAY['legal', 'performance_report', 'regulatory'])[1 + h %% 3]
    FROM numbered"""
_BARS = """
    INSERT INTO market_bars (entity_id, day, known_at, close, volume)
    SELECT 'entity-' || e, (%(as_of)s::timestamptz)::date - b,
           %(as_of)s::timestamptz - (b - 1) * interval '1 day',
           100 + 10 * sin(0.13 * b + e), 1000 + (e * 31 + b * 17) %% 500
    FROM generate_series(0, %(entities)s - 1) AS e, generate_series(1, 120) AS b"""


@dataclass
class Measured:
    """Seconds of plans and of the backfills that they describe, and how many keys these had."""

    plans: list[float] = field(default_factory=list)
    backfills: list[float] = field(default_factory=list)
    keys: int = 0


def fill(url: str, *, entities: int, documents: int) -> None:
    """Make the tables and the world."""
    database = Database(url)
    migrate.upgrade(database)
    database.close()
    sizes = {
        "as_of": AS_OF, "entities": entities, "documents": entities * documents, "minutes": 60 * 24 * 80,
    }  # fmt: skip
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_WORLD, sizes)
        connection.execute(_BARS, sizes)
        connection.execute("VACUUM ANALYZE")


def measure(folder: Path, *, entities: int, documents: int, rounds: int) -> dict[str, Measured]:
    """Fill a home, compute its cycle, then plan and apply in turn."""
    os.environ["ORACLE_HOME"] = str(folder)
    home = Home(folder)
    found = {name: Measured() for name in CHANGES}
    with home.connect() as connections:
        fill(connections.domain_url, entities=entities, documents=documents)
        database = Database(connections.domain_url)
        moment = datetime.fromisoformat(AS_OF)
        assert run_cycle(home, as_of=moment).status == "success"
        for number in range(rounds + 1):
            for name, (path, value) in CHANGES.items():
                setting = {path: round(value + number * _STEP, 6)}
                candidate = configuration.active(database).config.with_settings(setting)
                gc.collect()
                began = time.perf_counter()
                plan = make_plan(database, candidate, as_of=moment)
                planned = time.perf_counter() - began
                gc.collect()
                spent = _apply(home, plan)
                if number > 0:  # the first round warms connections and caches
                    found[name].plans.append(planned)
                    found[name].backfills.append(spent)
                    found[name].keys = len(plan.first_stages)
        database.close()
    return found


def _apply(home: Home, plan: Plan) -> float:
    began = time.perf_counter()
    outcome = apply_plan(home, plan, changed_by="benchmark", reason="measure")
    spent = time.perf_counter() - began
    assert outcome is not None
    assert outcome.status == "success", outcome.message
    return spent


SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"entities": 3, "documents": 20, "rounds": 1},
    "bench": {"entities": 200, "documents": 60, "rounds": 3},
    "full": {"entities": 1_000, "documents": 100, "rounds": 5},
}


def figures(size: Size) -> list[Figure]:
    """A plan against its backfill, by the first asset that the changed setting reaches."""
    sizes = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        measured = measure(Path(folder) / "home", **sizes)
    return [
        Figure(
            "plan",
            f"plan of a setting from {asset} on",
            "the backfill that it describes",
            Spread.of([a / b for a, b in zip(found.plans, found.backfills, strict=True)]),
            LARGEST_RATIO,
            at_most=True,
            sizes=f"{sizes['entities']:,} entities, {sizes['documents']} documents each",
            notes={
                "keys of the backfill": found.keys,
                "plan, ms": 1e3 * median(found.plans),
                "backfill, ms": 1e3 * median(found.backfills),
            },
        )
        for asset, found in measured.items()
    ]
