"""From documents in PostgreSQL to all result tables, against the bare reading and writing of the same rows.

The floor sends the same queries for the inputs and takes their bytes, and copies the final rows of all result
tables, ready in memory as the cycle left them, into the same emptied tables with their keys and indexes, by
the same transport (ADBC's binary COPY), in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import worlds
from benchmarks.harness import Figure, Size, alternate, ratio
from benchmarks.worlds import AS_OF
from oracle_core.enums import Window
from oracle_dagster import pipeline
from oracle_dagster.storage import inputs
from oracle_dagster.storage.schema import metadata

if TYPE_CHECKING:
    import pyarrow as pa

    from oracle_dagster.storage.database import Bulk, Database

SIZES: dict[Size, tuple[int, int, int]] = {
    "tiny": (200, 10, 1),
    "bench": (20_000, 400, 3),
    "full": (500_000, 10_000, 3),
}
"""Documents, entities and rounds."""
BOUND = 1.5
INPUTS = frozenset(
    {
        "documents",
        "document_intelligence",
        "document_impact_records",
        "market_bars",
        "macro_events",
        "exposure_profiles",
        "competitive_edges",
        "rejected_records",
        "risk_configs",
    }
)
_PLAIN = {"uuid": "uuid_send({})", "jsonb": "jsonb_send({})"}


def whole_cycle(database: Database) -> pipeline.StageReport:
    """All stages for every key."""
    cycle = pipeline.open_cycle(database, AS_OF)
    keys = [
        (entity, window.value) for entity in pipeline.known_entities(database, cycle) for window in Window
    ]
    report = pipeline.run_stages(database, cycle, keys, pipeline.STAGES, run_id="benchmark")
    assert not report.failures
    return report


def result_tables(url: str) -> list[str]:
    """Tables with rows that a cycle has written, those that others refer to first."""
    with psycopg.connect(url) as connection:
        return [
            table.name
            for table in metadata.sorted_tables
            if table.name not in INPUTS
            and connection.execute(f'SELECT FROM "{table.name}" LIMIT 1').rowcount > 0
        ]


def empty(url: str, tables: list[str]) -> None:
    """Leave the tables as new, and no dead rows of the last round to be cleaned up in the next."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
        connection.execute("CHECKPOINT")


def rows_of(database: Database, url: str, tables: list[str]) -> dict[str, pa.Table]:
    """The rows as they go over the wire: what has no type in Arrow as its binary form."""
    found = {}
    for table in tables:
        with psycopg.connect(url) as connection:
            columns = connection.execute(
                "SELECT column_name, udt_name FROM information_schema.columns WHERE table_name = %s "
                "AND table_schema = 'public' AND is_generated = 'NEVER' ORDER BY ordinal_position",
                (table,),
            ).fetchall()
        listed = ", ".join(
            f"{_PLAIN.get(kind, '{}').format(_quoted(name))} AS {_quoted(name)}" for name, kind in columns
        )
        found[table] = database.run(lambda bulk, sql=f'SELECT {listed} FROM "{table}"': bulk.arrow(sql))  # type: ignore[misc]
    return found


def _quoted(name: str) -> str:
    return f'"{name}"'


def bare(database: Database, rows: dict[str, pa.Table], read: Callable[[], object]) -> None:
    """Read the bytes, then copy the rows."""
    read()
    with database.bulk() as bulk:
        for name, table in rows.items():
            bulk.append(name, table)


class Recorder:
    """Passes statements on, and remembers them."""

    def __init__(self, bulk: Bulk) -> None:
        """Stand before ``bulk``."""
        self._bulk = bulk
        self.statements: list[tuple[bool, str, Sequence[object]]] = []

    def execute(self, sql: str, params: Sequence[object] = ()) -> int:
        """Pass on a statement without a result."""
        self.statements.append((False, sql, params))
        return self._bulk.execute(sql, params)

    def arrow(self, sql: str, params: Sequence[object] = ()) -> pa.Table:
        """Pass on a query."""
        self.statements.append((True, sql, params))
        return self._bulk.arrow(sql, params)


def reading(database: Database) -> Callable[[], int]:
    """The statements by which a cycle reads its inputs, block by block; their results are only counted."""
    cycle = pipeline.open_cycle(database, AS_OF)
    entities = pipeline.known_entities(database, cycle)
    blocks: list[list[tuple[bool, str, Sequence[object]]]] = []
    for first in range(0, len(entities), pipeline.BLOCK_ENTITIES):
        with database.bulk("REPEATABLE READ") as bulk:
            recorder: Any = Recorder(bulk)
            inputs.read_inputs(recorder, cycle, entities[first : first + pipeline.BLOCK_ENTITIES])
            blocks.append(recorder.statements)

    def read() -> int:
        count = 0
        for statements in blocks:
            with database.bulk("REPEATABLE READ") as bulk:
                for is_query, sql, params in statements:
                    if is_query:
                        count += bulk.arrow(sql, params).num_rows
                    else:
                        bulk.execute(sql, params)
        return count

    return read


def figures(size: Size) -> list[Figure]:
    """The whole cycle against its floor, and where its time goes."""
    documents, entities, rounds = SIZES[size]
    with (
        worlds.server() as embedded,
        worlds.database(embedded, "cycle", entities=entities, documents=documents) as tables,
    ):
        url = embedded.url("cycle")
        report = whole_cycle(tables)
        names = result_tables(url)
        rows = rows_of(tables, url, names)
        before = row_counts(url, names)
        read = reading(tables)
        empty(url, names)
        bare(tables, rows, read)
        assert row_counts(url, names) == before, "the floor does not write what the cycle wrote"
        spent: list[dict[str, float]] = []

        def product() -> None:
            spent.append(whole_cycle(tables).seconds)

        seconds = alternate(
            {"floor": lambda: bare(tables, rows, read), "cycle": product},
            rounds,
            before=lambda _: empty(url, names),
        )
    signals = rows["weighted_signals"].num_rows
    phases = {f"{name} s": median([one.get(name, 0.0) for one in spent]) for name in spent[0]}
    return [
        Figure(
            "cycle",
            "documents in PostgreSQL to all result tables",
            "reading the same bytes and copying the same rows",
            ratio(seconds, "cycle", "floor"),
            BOUND,
            at_most=True,
            sizes=f"{documents:,} documents, {entities:,} entities, {signals:,} weighted signals, "
            f"{sum(table.num_rows for table in rows.values()):,} rows in {len(rows)} tables",
            notes={
                "cycle s": median(seconds["cycle"]),
                "keys per minute": 60.0 * len(report.keys["recommendations"]) / median(seconds["cycle"]),
                **phases,
            },
        )
    ]


def row_counts(url: str, tables: list[str]) -> dict[str, int]:
    """Rows of every table."""
    with psycopg.connect(url) as connection:
        return {
            table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchall()[0][0] for table in tables
        }
