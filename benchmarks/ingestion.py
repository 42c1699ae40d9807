"""How fast `ingest` is, against the same rows sent to the same tables the same way without validation.

Run with ``python benchmarks/ingestion.py``. Each round measures both, in turn, on emptied tables of a private
embedded server: ``ingest`` from a JSON-lines file, and the bare transport, which is handed the finished
columns in memory and only copies them (ADBC's binary COPY, as many records per transaction).
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import tempfile
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import psutil

from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.ingestion import ingest
from oracle_dagster.ingestion.columns import columns_of
from oracle_dagster.ingestion.formats import BLOCK_RECORDS, discover, read_blocks
from oracle_dagster.ingestion.load import tables_of
from oracle_dagster.storage import migrate
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


class PeakMemory:
    """The largest resident size of this process while the context is open, in MiB."""

    def __enter__(self) -> Self:
        """Start watching."""
        self.mebibytes = 0.0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._done.wait(0.05):
            self.mebibytes = max(self.mebibytes, process.memory_info().rss / 2**20)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="only ingest once and print the peak memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documents.jsonl"
        write_documents(path, arguments.documents)
        with EmbeddedPostgres(Path(folder) / "home").acquire() as lease:
            database = Database(lease.url("oracle"))
            migrate.upgrade(database)
            if arguments.memory:
                measure_memory(database, path, arguments.documents)
            else:
                compare(database, path, arguments.documents, arguments.rounds)
            database.close()
        EmbeddedPostgres(Path(folder) / "home").wait_until_stopped()


def measure_memory(database: Database, path: Path, count: int) -> None:
    """Ingest once and print the peak resident memory."""
    with PeakMemory() as peak:
        report = ingest(database, path, now=NOW, known_at="published")
    assert report.total.inserted == count, report.summary()
    print(f"{count} documents, peak resident memory {peak.mebibytes:.0f} MiB")


def compare(database: Database, path: Path, count: int, rounds: int) -> None:
    """Alternate both ways and print rates and their ratio."""
    blocks = list(finished_blocks(path))
    rates: dict[str, list[float]] = {"ingest": [], "bare transport": []}
    for _ in range(rounds):
        empty(database)
        rates["bare transport"].append(count / bare_transport(database, blocks))
        empty(database)
        started = time.perf_counter()
        report = ingest(database, path, now=NOW, known_at="published")
        rates["ingest"].append(count / (time.perf_counter() - started))
        assert report.total.inserted == count, report.summary()
    print(f"{count} documents, {BLOCK_RECORDS} per transaction, {rounds} rounds in turn")
    for name, values in rates.items():
        each = ", ".join(f"{value:,.0f}" for value in values)
        print(f"{name:15} {median(values):>10,.0f} documents/s   ({each})")
    pairs = [a / b for a, b in zip(rates["ingest"], rates["bare transport"], strict=True)]
    print(f"ratio           {median(pairs):>10.2f}               (at least 0.70 wanted)")


if __name__ == "__main__":
    main()
