"""How the largest table could be laid out: bytes per signal, and times against the present layout.

Run with ``python -m benchmarks.layout``; its table is in docs/layout.md. The rows are those of one cycle.
Every layout is written from the same Arrow table and read back as one, for a tenth of the entities (as a run
of later stages does) and for all of them. Sizes hold indexes and TOAST after VACUUM FULL.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import worlds
from benchmarks.cycle import whole_cycle
from oracle_core.enums import Window
from oracle_dagster.storage.database import Database

ROW = "rows_by_signal"
PARTITIONED = "rows_by_window"
ARRAYS = "arrays_by_key"
PARQUET = "Parquet beside the database"
NAMES = {
    ROW: "row per signal (present)",
    PARTITIONED: "row per signal, partitioned by window",
    ARRAYS: "arrays per entity and window",
    PARQUET: "Parquet beside the database",
}


@dataclass
class Layout:
    """What was found of one layout."""

    bytes: float = 0.0
    writes: list[float] = field(default_factory=list)
    parts: list[float] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)


def columns_of(url: str) -> list[tuple[str, str]]:
    """Name and type of every column of the present table."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT column_name, udt_name FROM information_schema.columns WHERE table_name = "
            "'weighted_signals' AND table_schema = 'public' ORDER BY ordinal_position"
        ).fetchall()


def create(url: str, columns: list[tuple[str, str]]) -> None:
    """The three tables; each finds the signals of an entity by its primary key."""
    inner = [(name, kind) for name, kind in columns if name not in {"entity_id", "window"}]
    lists = ", ".join(f'"{name}" {"jsonb" if kind == "jsonb" else f"{kind}[]"}' for name, kind in inner)
    with psycopg.connect(url, autocommit=True) as connection:
        for name in (ROW, PARTITIONED, ARRAYS):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute(f"CREATE TABLE {ROW} (LIKE weighted_signals INCLUDING ALL)")
        connection.execute(
            f"CREATE TABLE {PARTITIONED} (LIKE weighted_signals INCLUDING DEFAULTS INCLUDING CONSTRAINTS, "
            'PRIMARY KEY (entity_id, "window", signal_id)) PARTITION BY LIST ("window")'
        )
        for window in Window:
            connection.execute(
                f"CREATE TABLE {PARTITIONED}_{window.value} PARTITION OF {PARTITIONED} "
                f"FOR VALUES IN ('{window.value}')"
            )
        connection.execute(
            f'CREATE TABLE {ARRAYS} (entity_id text, "window" text, {lists}, '
            'PRIMARY KEY (entity_id, "window"))'
        )


def measure(documents: int, entities: int, rounds: int) -> dict[str, Layout]:
    """Every layout in turn."""
    found = {name: Layout() for name in NAMES}
    with (
        tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder,
        worlds.server() as embedded,
        worlds.database(embedded, "layouts", entities=entities, documents=documents) as database,
    ):
        whole_cycle(database)
        url = embedded.url("layouts")
        columns = columns_of(url)
        create(url, columns)
        rows = database.run(lambda bulk: bulk.arrow(f"SELECT {_wire(columns)} FROM weighted_signals"))
        names = sorted(set(rows.column("entity_id").to_pylist()))
        some = names[:: max(1, len(names) // max(1, len(names) // 10))]
        file = Path(folder) / "signals.parquet"
        inner = [name for name, _ in columns if name not in {"entity_id", "window"}]
        writers: dict[str, Callable[[], object]] = {
            ROW: lambda: append(database, ROW, rows),
            PARTITIONED: lambda: append(database, PARTITIONED, rows),
            ARRAYS: lambda: gather(database, columns, rows),
            PARQUET: lambda: pq.write_table(rows.sort_by("entity_id"), file, compression="zstd"),
        }
        listed = ", ".join(
            f'jsonb_array_elements("{n}") AS "{n}"'
            if dict(columns)[n] == "jsonb"
            else f'unnest("{n}") AS "{n}"'
            for n in inner
        )
        queries = {
            ROW: f"SELECT * FROM {ROW}",
            PARTITIONED: f"SELECT * FROM {PARTITIONED}",
            ARRAYS: f'SELECT entity_id, "window", {listed} FROM {ARRAYS}',
        }
        for number in range(rounds):
            for name in list(NAMES) if number % 2 == 0 else list(reversed(NAMES)):
                layout = found[name]
                if name != PARQUET:
                    with psycopg.connect(url, autocommit=True) as connection:
                        connection.execute(f"TRUNCATE {name}")
                        connection.execute("CHECKPOINT")
                layout.writes.append(_timed(writers[name]))
                if name == PARQUET:
                    layout.parts.append(
                        _timed(lambda: pq.read_table(file, filters=[("entity_id", "in", some)]))
                    )
                    layout.wholes.append(_timed(lambda: pq.read_table(file)))
                    layout.bytes = file.stat().st_size / rows.num_rows
                    continue
                query = queries[name]
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(f"VACUUM ANALYZE {name}")
                part = f"{query} WHERE entity_id = ANY($1::text[])"
                layout.parts.append(_timed(lambda part=part: read(database, part, (some,))))  # type: ignore[misc]
                layout.wholes.append(_timed(lambda query=query: read(database, query, ())))  # type: ignore[misc]
        with psycopg.connect(url, autocommit=True) as connection:
            for name in (ROW, PARTITIONED, ARRAYS):
                connection.execute(f"VACUUM FULL {name}")
                size = connection.execute(
                    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
                    "WHERE relkind = 'r' AND starts_with(relname, %s)",
                    (name,),
                ).fetchall()[0][0]
                found[name].bytes = float(size) / rows.num_rows
    return found


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _wire(columns: list[tuple[str, str]]) -> str:
    return ", ".join(
        f'jsonb_send("{name}") AS "{name}"' if kind == "jsonb" else f'"{name}"' for name, kind in columns
    )


def append(database: Database, table: str, rows: pa.Table) -> None:
    """Copy the rows."""
    with database.bulk() as bulk:
        bulk.append(table, rows)


def gather(database: Database, columns: list[tuple[str, str]], rows: pa.Table) -> None:
    """Stage the rows and gather them into arrays by one statement, as the writers of the product do."""
    inner = [(name, kind) for name, kind in columns if name not in {"entity_id", "window"}]
    gathered = ", ".join(
        f'jsonb_agg("{name}"::text::jsonb)' if kind == "jsonb" else f'array_agg("{name}")'
        for name, kind in inner
    )
    text = rows
    for name, kind in columns:
        if kind == "jsonb":
            place = rows.schema.get_field_index(name)
            plain = pa.array([value.as_py()[1:].decode() for value in rows.column(name)])
            text = text.set_column(place, name, plain)
    with database.bulk() as bulk:
        bulk.stage("gathered", text)
        bulk.execute(
            f'INSERT INTO {ARRAYS} SELECT entity_id, "window", {gathered} FROM gathered GROUP BY 1, 2'
        )


def read(database: Database, sql: str, params: tuple[object, ...]) -> None:
    """Fetch the rows as Arrow."""
    database.run(lambda bulk: bulk.arrow(sql, params))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--entities", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found = measure(**vars(arguments))
    print("| layout | bytes per signal | writing | reading a tenth | reading all |")
    print("|---|---:|---:|---:|---:|")
    base = found[ROW]
    for name, one in found.items():
        ratios = [
            median(a / b for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in (
                (one.writes, base.writes), (one.parts, base.parts), (one.wholes, base.wholes)
            )
        ]  # fmt: skip
        print(f"| {NAMES[name]} | {one.bytes:.0f} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")


if __name__ == "__main__":
    main()
