"""How fast `ingest` is, against the same rows sent to the same tables the same way without validation.

Each round measures both, in turn, on emptied tables of a private
embedded server: ``ingest`` from a JSON-lines file, and the bare transport, which is handed the finished
columns in memory and only copies them (ADBC's binary COPY, as many records per transaction).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import worlds
from benchmarks.harness import Figure, PeakMemory, Size, alternate, ratio
from oracle_dagster.ingestion import ingest
from oracle_dagster.ingestion.columns import columns_of
from oracle_dagster.ingestion.formats import BLOCK_RECORDS, discover, read_blocks
from oracle_dagster.ingestion.load import tables_of
from oracle_dagster.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = ("document_impact_records", "document_intelligence", "documents")


def write_documents(path: Path, count: int, *, seed: int = 1) -> None:
    """Write ``count`` documents over 500 entities, 1.5 impacts each on average."""
    rng = random.Random(seed)  # noqa: S311 - made-up data
    entities = [f"entity-{n:03d}" for n in range(500)]
    catalysts = ("performance_report", "product_launch", "regulatory", "legal", "rumour")
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            published = NOW - timedelta(days=365) * rng.random()
            document = {
                "document_id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
                "source_id": f"source-{rng.randrange(2_000)}",
                "source_type": rng.choice(("filing", "news", "blog", "social")),
                "published_at": published.isoformat(),
                "credibility": round(rng.random(), 4),
                "novelty": round(rng.random(), 4),
                "extraction": {"status": "ok", "confidence": round(rng.random(), 3)},
                "impacts": [
                    {
                        "entity_id": entity,
                        "sentiment": rng.choice(("positive", "negative", "neutral", "mixed")),
                        "impact_score": round(rng.random(), 4),
                        "catalyst_type": rng.choice(catalysts),
                    }
                    for entity in rng.sample(entities, rng.choice((1, 1, 2, 2)))
                ],
            }
            file.write(json.dumps(document) + "\n")


def finished_blocks(path: Path) -> Iterator[dict[str, Any]]:
    """The same rows as ready columns, a block at a time."""
    (source,), _ = discover(path)
    for block in read_blocks(source):
        batch = columns_of(block)
        every = np.arange(len(batch))
        yield tables_of(batch, every, [1] * len(batch), batch.primary_us.tolist())


def empty(database: Database) -> None:
    """Start from empty tables whose old pages are gone."""
    with database.begin() as connection:
        connection.exec_driver_sql(f"TRUNCATE {', '.join(TABLES)} CASCADE")
    gc.collect()


def bare_transport(database: Database, blocks: list[dict[str, Any]]) -> float:
    """Seconds to copy finished columns, one transaction per block."""
    started = time.perf_counter()
    for tables in blocks:
        with database.bulk() as bulk:
            for name, table in tables.items():
                bulk.append(name, table)
    return time.perf_counter() - started


def main() -> None:
    """Measure the peak memory of one ingestion, and print it."""
    parser = argparse.ArgumentParser(description="The peak resident memory of one ingestion.")
    parser.add_argument("--documents", type=int, default=100_000)
    arguments = parser.parse_args()
    with served(arguments.documents) as (database, path):
        with PeakMemory() as peak:
            report = ingest(database, path, now=NOW, known_at="published")
        assert report.total.inserted == arguments.documents, report.summary()
        print(f"{arguments.documents} documents, peak resident memory {peak.mebibytes:.0f} MiB")


@contextlib.contextmanager
def served(count: int) -> Iterator[tuple[Database, Path]]:
    """A database on a server of its own, and a file with documents."""
    with (
        tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder,
        worlds.server() as embedded,
        worlds.database(embedded, "ingested") as database,
    ):
        path = Path(folder) / "documents.jsonl"
        write_documents(path, count)
        yield database, path


SIZES: dict[Size, tuple[int, int]] = {"tiny": (100, 1), "bench": (30_000, 5), "full": (100_000, 5)}


def figures(size: Size) -> list[Figure]:
    """The rate of ``ingest`` against that of the bare transport, in turn, each on emptied tables."""
    count, rounds = SIZES[size]
    with served(count) as (database, path):
        blocks = list(finished_blocks(path))

        def validated() -> None:
            report = ingest(database, path, now=NOW, known_at="published")
            assert report.total.inserted == count, report.summary()

        seconds = alternate(
            {"bare": lambda: bare_transport(database, blocks), "ingest": validated},
            rounds,
            before=lambda _: empty(database),
        )
    return [
        Figure(
            "ingestion",
            "documents per second of the bare transport",
            "of `ingest`",
            ratio(seconds, "ingest", "bare"),
            1.0 / 0.7,
            at_most=True,
            sizes=f"{count:,} documents, {BLOCK_RECORDS:,} per transaction",
            notes={"ingest documents per second": count / median(seconds["ingest"])},
        )
    ]


if __name__ == "__main__":
    main()
