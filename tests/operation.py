"""A home with a small world for tests that operate the real services, and the tables it should end with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import dagster as dg
import psycopg
from psycopg import sql

from oracle_dagster import pipeline
from oracle_dagster.home import Home
from oracle_dagster.launch import orchestrator
from oracle_dagster.partitions import Key, register_entities
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database
from tests.services import wait_for
from tests.storage_rows import World, contents, insert_world

# What a backfill of the chain writes.
RESULTS = (
    "recommendation_evidence",
    "recommendations",
    "risk_evaluations",
    "trend_evidence",
    "trend_history",
    "trend_projections",
    "trend_windows",
    "weighted_signals",
)


@dataclass(frozen=True)
class Operated:
    """A home, its domain database and its orchestrator's storage."""

    home: Home
    url: str
    instance: dg.DagsterInstance


@contextmanager
def operated(folder: Path, world: World) -> Iterator[Operated]:
    """A new home that holds a world, each of its entities with partitions; nothing is computed yet."""
    home = Home.resolve(folder)
    with home.connect() as connections, orchestrator(home, connections) as instance:
        database = Database(connections.domain_url)
        migrate.upgrade(database)
        database.close()
        with psycopg.connect(connections.domain_url) as connection:
            insert_world(connection, world)
        register_entities(instance, world.entities)
        yield Operated(home, connections.domain_url, instance)


def undisturbed(url: str, world: World, *cycles: tuple[datetime, Collection[Key]]) -> dict[str, list[str]]:
    """The result tables after these cycles, one after the other and each in one go, on an empty database."""
    with psycopg.connect(url) as connection:
        insert_world(connection, world)
    database = Database(url)
    for as_of, keys in cycles:
        cycle = pipeline.open_cycle(database, as_of)
        pipeline.run_stages(database, cycle, sorted(keys), pipeline.STAGES, run_id="undisturbed")
    database.close()
    return contents(url, *RESULTS)


def assert_same_tables(url: str, wanted: dict[str, list[str]]) -> None:
    """Nothing is lost, nothing is doubled, every value is the same."""
    found = contents(url, *RESULTS)
    for name in RESULTS:
        assert found[name] == wanted[name], f"{name} differs"
    assert wanted["recommendations"], "an empty comparison proves nothing"


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """Nobody else can read or write the table meanwhile; a server that dies lets go of it."""
    holder = psycopg.connect(url)
    try:
        holder.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table)))
        yield
    finally:
        holder.close()  # which undoes the transaction, and is allowed where the server is gone


def wait_until_blocked(url: str, number: int = 1) -> Sequence[int]:
    """The server's processes that wait for a lock, once there are so many: runs in their middle."""
    query = "SELECT DISTINCT pid FROM pg_locks WHERE NOT granted"

    def look() -> list[int] | None:
        with psycopg.connect(url) as connection:
            found = [int(row[0]) for row in connection.execute(query)]
        return found if len(found) >= number else None

    found = wait_for(f"{number} runs are in their middle", look)
    assert isinstance(found, list)
    return found
