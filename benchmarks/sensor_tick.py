"""Whether a tick of the sensor costs as much as there are new documents, however many there are in all.

Run with ``python -m benchmarks.sensor_tick``. Two databases of one private embedded server hold few and many
documents; each round adds the same number of new ones to both and measures a tick on each, in turn. The ratio
of the medians should be at most 1.2.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psycopg

from benchmarks.harness import Figure, Size, Spread
from oracle_dagster import tick
from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.news import Debounce
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

ENTITIES = 500
LARGEST_RATIO = 1.2

# Documents of 2020, one impact each; ids from a number, so that no round repeats one.
_INSERT = """
    WITH numbered AS MATERIALIZED (
        SELECT n, md5(n::text)::uuid AS id, '2020-01-01Z'::timestamptz + n * interval '1 second' AS at
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n),
    d AS (
        INSERT INTO documents (id, source_id, published_at)
        SELECT id, 'source-' || n %% 2000, at FROM numbered),
    i AS (
        INSERT INTO document_intelligence
            (document_id, known_at, source_id, published_at, extraction_confidence)
        SELECT id, at, 'source-' || n %% 2000, at, 0.9 FROM numbered)
    INSERT INTO document_impact_records (document_id, entity_id, published_at, sentiment, impact_score)
    SELECT id, 'entity-' || n %% %(entities)s, at, 1, 0.5 FROM numbered"""


@dataclass
class Side:
    """One database, how many documents it holds, and where its sensor is."""

    url: str
    documents: int = 0
    cursor: str = ""

    def add(self, count: int, chunk: int = 50_000) -> None:
        """Insert documents, at most ``chunk`` in one transaction."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            while count > 0:
                part = min(count, chunk)
                bounds = {"first": self.documents, "last": self.documents + part - 1, "entities": ENTITIES}
                connection.execute(_INSERT, bounds)
                self.documents += part
                count -= part


@dataclass(frozen=True)
class Measured:
    """Median seconds of a tick over few and over many documents, and of a tick without news over many.

    ``rounds`` holds the ratio of many to few of every round.
    """

    few: float
    many: float
    idle: float
    rounds: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """How much more a tick costs over many."""
        return self.many / self.few


def measure(folder: Path, *, few: int, many: int, new: int, rounds: int) -> Measured:
    """Fill both databases, then measure ticks in turn."""
    with EmbeddedPostgres(folder).acquire() as lease:
        sides = []
        for name, count in (("few", few), ("many", many)):
            with psycopg.connect(lease.url("postgres"), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            side = Side(lease.url(name))
            database = Database(side.url)
            migrate.upgrade(database)
            side.add(count)
            with psycopg.connect(side.url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
            side.cursor = tick.start(database)
            sides.append((side, database))
        seconds: list[list[float]] = [[], [], []]
        for number in range(rounds + 1):
            for place, (side, database) in enumerate(sides):
                side.add(new)
                gc.collect()
                began = time.perf_counter()
                found = tick.look(database, side.cursor, Debounce())
                spent = time.perf_counter() - began
                side.cursor = found.cursor
                (request,) = found.requests
                assert len(request.entities) == min(new, ENTITIES)
                began = time.perf_counter()
                idle = tick.look(database, side.cursor, Debounce())
                rest = time.perf_counter() - began
                assert not idle.requests
                if number > 0:  # the first round warms connections and caches
                    seconds[place].append(spent)
                    seconds[2].extend([rest] if place == 1 else [])
        for _, database in sides:
            database.close()
    few_seconds, many_seconds, _ = seconds
    pairs = zip(many_seconds, few_seconds, strict=True)
    return Measured(*map(median, seconds), rounds=tuple(a / b for a, b in pairs))


SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"few": 50, "many": 200, "new": 5, "rounds": 1},
    "bench": {"few": 10_000, "many": 300_000, "new": 200, "rounds": 9},
    "full": {"few": 10_000, "many": 1_000_000, "new": 200, "rounds": 15},
}


def figures(size: Size) -> list[Figure]:
    """A tick over many documents against one over few."""
    sizes = SIZES[size]
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        found = measure(Path(folder), **sizes)
    return [
        Figure(
            "sensor tick",
            f"tick with {sizes['many']:,} documents stored",
            f"tick with {sizes['few']:,}",
            Spread.of(found.rounds),
            LARGEST_RATIO,
            at_most=True,
            sizes=f"{sizes['new']:,} new documents per tick",
            notes={"tick ms": 1e3 * found.many, "tick without news ms": 1e3 * found.idle},
        )
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=200, help="new documents per tick")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        found = measure(Path(folder), **vars(arguments))
    print(f"tick over {arguments.new} new documents, {arguments.few:,} in all: {1e3 * found.few:.1f} ms")
    print(f"tick over {arguments.new} new documents, {arguments.many:,} in all: {1e3 * found.many:.1f} ms")
    print(f"tick without news, {arguments.many:,} in all: {1e3 * found.idle:.1f} ms")
    print(f"ratio {found.ratio:.2f} (at most {LARGEST_RATIO})")


if __name__ == "__main__":
    main()
