"""What a cycle is and was: its record, the order of its keys, locks, failures, run log.

A cycle is an ``as_of`` under one configuration version. Its record holds the settled transactions its first
run saw; every repeat reads up to there. ``cycle_keys`` holds a number per key and stage, taken once, at first
writing, under the key's lock; so a repeat can tell which earlier cycles were there before it. No rule and no
result belongs here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import contextlib
import json
import logging
import platform
import uuid
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlalchemy as sa

from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Bulk, Database, StorageError
from oracle_dagster.storage.schema import cycle_failures, cycles, run_batches, run_log

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from oracle_core.config import OracleConfig
    from oracle_dagster.storage.configuration import ConfigVersion

_log = logging.getLogger(__name__)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LIBRARIES: Final = ("numpy", "scipy")
SEQUENCES: Final = {
    "weighted_signals": "signal_seq",
    "trend_windows": "trend_seq",
    "trend_projections": "projection_seq",
    "recommendations": "decision_seq",
}
# Entities share a fixed number of locks, so that a large slice cannot exhaust the server's lock table.
LOCK_BUCKETS: Final = 256
_LOCK_CYCLES: Final = 7_105_002  # advisory lock classes; arbitrary, but distinct
_LOCK_ENTITIES: Final = 7_105_003
_LOCK_ACCURACY: Final = 7_105_004
_LOCK_ALONE: Final = 7_105_011  # 5 to 10 belong to other modules

_SETTLED: Final = sa.cast(sa.func.pg_current_snapshot(), sa.Text)

Key = tuple[str, str]


@dataclass(frozen=True)
class Cycle:
    """One ``as_of`` under one configuration; ``snapshot`` is what it may read (``pg_snapshot`` as text)."""

    as_of: datetime
    config: OracleConfig
    config_version: int
    snapshot: str

    @property
    def as_of_us(self) -> int:
        """``as_of`` in microseconds since 1970."""
        return microseconds(self.as_of)


@dataclass(frozen=True)
class Failure:
    """A key that a stage could not compute, and why."""

    stage: str
    entity_id: str
    window: str
    message: str


def microseconds(time: datetime) -> int:
    """Whole microseconds since 1970, exactly.

    Raises:
        ValueError: ``time`` has no offset.

    """
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no offset; write it like 2016-11-08T00:00:00Z")
    return (time - EPOCH) // timedelta(microseconds=1)


def moment(us: int) -> datetime:
    """The moment that many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=us)


def open_cycle(
    database: Database, as_of: datetime, *, code_version: str, config_version: int | None = None
) -> Cycle:
    """Begin or repeat a cycle.

    Its first run records what was settled then, for every later run of the same ``as_of``, also under another
    configuration. Two first runs at once end as one after the other.

    Args:
        database: the domain database.
        as_of: the moment looked from, with an offset.
        code_version: version of the rules, recorded by the first run.
        config_version: the configuration, the active one where None; read once (R128).

    Raises:
        ConfigError: no such version, or its values cannot be used.
        StorageError: the database cannot be used.

    Implements: R135.
    """
    microseconds(as_of)  # refuses a moment without an offset
    chosen = (
        configuration.active(database)
        if config_version is None
        else configuration.get(database, config_version)
    )
    with database.begin() as connection:
        own = record_cycle(connection, as_of, chosen, code_version=code_version)
    if (own.code_version, own.library_set) != (code_version, library_set()):
        _log.warning(
            "the cycle of %s was first run by code %s on %s, now it is code %s on %s: results may differ, "
            "in their last digits or by changed rules",
            as_of.isoformat(),
            own.code_version,
            own.library_set,
            code_version,
            library_set(),
        )
    return Cycle(as_of.astimezone(UTC), chosen.config, chosen.version, own.snapshot)


def record_cycle(
    connection: sa.Connection,
    as_of: datetime,
    version: ConfigVersion,
    *,
    code_version: str,
    snapshot: str | None = None,
) -> sa.Row[Any]:
    """Record the cycle of ``as_of`` under a version of the configuration, unless it is recorded already.

    Args:
        connection: a transaction.
        as_of: the moment looked from, with an offset.
        version: the configuration.
        code_version: version of the rules.
        snapshot: what the cycle may read, if it is the first of this ``as_of``; what is settled now where
            None.

    Returns:
        The row of ``cycles``, whose snapshot is that of the first cycle of this ``as_of``.

    """
    lock = sa.func.pg_advisory_xact_lock(_LOCK_CYCLES, _bucket(str(microseconds(as_of)), 2**31))
    connection.execute(sa.select(lock))
    recorded = connection.execute(sa.select(cycles).where(cycles.c.as_of == as_of)).all()
    own = next((row for row in recorded if row.config_version == version.version), None)
    if own is not None:
        return own
    first = _SETTLED if snapshot is None else snapshot
    return connection.execute(
        cycles.insert()
        .values(
            as_of=as_of,
            config_version=version.version,
            snapshot=recorded[0].snapshot if recorded else first,
            pipeline_mode=version.config.pipeline_mode.value,
            config_hash=version.config.fingerprint(),
            code_version=code_version,
            library_set=library_set(),
        )
        .returning(cycles)
    ).one()


def snapshot_at(database: Database, as_of: datetime) -> tuple[str, frozenset[int]]:
    """What a cycle of ``as_of`` would read now, and the configuration versions it was recorded under."""
    with database.begin() as connection:
        recorded = connection.execute(sa.select(cycles).where(cycles.c.as_of == as_of)).all()
        now: str = connection.execute(sa.select(_SETTLED)).scalar_one()
    versions = frozenset(row.config_version for row in recorded)
    return (recorded[0].snapshot if recorded else now), versions


def read_cycle(database: Database, as_of: datetime, config_version: int) -> Cycle:
    """The recorded cycle.

    Raises:
        StorageError: no run has recorded it.

    """
    with database.begin() as connection:
        row = connection.execute(
            sa.select(cycles).where(cycles.c.as_of == as_of, cycles.c.config_version == config_version)
        ).first()
    if row is None:
        raise StorageError(
            f"no cycle of {as_of.isoformat()} under configuration {config_version} was ever run in the "
            f"{database.place}. Remedy: `oracle run --as-of {as_of.isoformat()}`."
        )
    config = configuration.get(database, config_version).config
    return Cycle(as_of.astimezone(UTC), config, config_version, row.snapshot)


def library_set() -> dict[str, str]:
    """What beside the code decides the last bits of a result: interpreter, machine, numeric libraries."""
    versions = {name: metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), "machine": platform.machine(), **versions}


def enter(bulk: Bulk, cycle: Cycle) -> None:
    """Set what the statements of this transaction take from the cycle (``AS_OF`` and the two below)."""
    bulk.arrow(
        "SELECT set_config('oracle.as_of', $1::text, true), set_config('oracle.snapshot', $2::text, true), "
        "set_config('oracle.config_version', $3::text, true)",
        (cycle.as_of.isoformat(), cycle.snapshot, str(cycle.config_version)),
    )


# Sub-selects, so that the server evaluates them once per statement and not per row.
AS_OF: Final = "(SELECT current_setting('oracle.as_of')::timestamptz)"
SNAPSHOT: Final = "(SELECT current_setting('oracle.snapshot')::pg_snapshot)"
CONFIG_VERSION: Final = "(SELECT current_setting('oracle.config_version')::integer)"


def lock_entities(bulk: Bulk, entities: Collection[str]) -> None:
    """Wait for and hold the locks of these entities until the transaction ends.

    Always in the same order, so that two runs cannot wait for each other. Only in a READ COMMITTED
    transaction, where the next statement sees what the previous holder committed.
    """
    buckets = sorted({_bucket(entity, LOCK_BUCKETS) for entity in entities})
    bulk.arrow(
        f"SELECT pg_advisory_xact_lock({_LOCK_ENTITIES}, b::integer)::text FROM unnest($1::text[]) AS b",
        ([str(b) for b in buckets],),
    )


def lock_accuracy(bulk: Bulk) -> None:
    """Wait for and hold the lock of the source accuracy until the transaction ends."""
    bulk.arrow(f"SELECT pg_advisory_xact_lock({_LOCK_ACCURACY}, 0)::text AS held")


@contextlib.contextmanager
def alone(database: Database, cycle: Cycle, work: str) -> Iterator[None]:
    """Wait until nobody else does this work for the cycle, and keep others waiting inside.

    Held by a connection of its own, so that it ends with this process however that ends.
    """
    place = _bucket(f"{work} {cycle.as_of_us} {cycle.config_version}", 2**31)
    with database.errors("use"), database.engine.connect() as connection:
        connection.detach()
        connection.execute(sa.select(sa.func.pg_advisory_lock(_LOCK_ALONE, place)))
        connection.commit()
        yield


def _bucket(text: str, buckets: int) -> int:
    return zlib.crc32(text.encode()) % buckets


def stage_keys(bulk: Bulk, keys: Sequence[Key]) -> None:
    """Stage the keys of a slice, with their position, as the temporary table ``slice_keys``."""
    table = pa.table(
        {
            "position": pa.array(range(len(keys)), pa.int64()),
            "entity_id": pa.array([k[0] for k in keys], pa.string()),
            "window": pa.array([k[1] for k in keys], pa.string()),
        }
    )
    bulk.stage("slice_keys", table)


def number_keys(bulk: Bulk, stage: str) -> None:
    """Give the staged keys the number of their first writing by ``stage``, once and for all.

    Under the locks of their entities; one number for the whole slice.
    """
    column = SEQUENCES[stage]
    bulk.execute(f"""
        INSERT INTO cycle_keys (as_of, config_version, entity_id, "window", {column})
        SELECT {AS_OF}, {CONFIG_VERSION}, entity_id, "window", (SELECT nextval('cycle_sequence'))
        FROM slice_keys
        ON CONFLICT (entity_id, "window", as_of, config_version)
        DO UPDATE SET {column} = excluded.{column} WHERE cycle_keys.{column} IS NULL""")


def record_failures(  # noqa: PLR0917 - what, of whom, over what, in that order
    database: Database,
    run_id: str,
    cycle: Cycle,
    stages: Collection[str],
    keys: Sequence[Key],
    failures: Sequence[Failure],
) -> None:
    """Replace what this run recorded as failed for these stages and keys."""
    rows = [
        {
            "run_id": run_id,
            "stage": f.stage,
            "entity_id": f.entity_id,
            "window": f.window,
            "as_of": cycle.as_of,
            "message": f.message,
        }
        for f in failures
    ]
    wanted = sa.tuple_(cycle_failures.c.entity_id, cycle_failures.c.window)
    with database.begin() as connection:
        old = sa.select(cycle_failures.c.entity_id, cycle_failures.c.window).where(
            cycle_failures.c.run_id == run_id
        )
        stale = sorted({tuple(row) for row in connection.execute(old)} & set(keys))
        if stale:
            connection.execute(
                cycle_failures.delete().where(
                    cycle_failures.c.run_id == run_id, cycle_failures.c.stage.in_(stages), wanted.in_(stale)
                )
            )
        if rows:
            connection.execute(cycle_failures.insert(), rows)


def log_stage(
    database: Database,
    run_id: str,
    stage: str,
    cycle: Cycle | None,
    *,
    keys: int,
    rows: int,
    seconds: float,
    details: Mapping[str, object],
) -> None:
    """Write one line of the run log."""
    with database.begin() as connection:
        connection.execute(
            run_log.insert().values(
                run_id=run_id,
                stage=stage,
                as_of=None if cycle is None else cycle.as_of,
                config_version=None if cycle is None else cycle.config_version,
                keys=keys,
                rows=rows,
                seconds=seconds,
                details=json.loads(json.dumps(details, allow_nan=False)),
            )
        )


def create_batch(database: Database, keys: Sequence[Key]) -> uuid.UUID:
    """Record the key set of a batch run and return its id (a set too large for a run's own configuration)."""
    batch_id = uuid.uuid4()
    if len(keys) == 0:
        raise ValueError("a batch needs at least one key")
    with database.begin() as connection:
        write_batch(connection, batch_id, dict.fromkeys(keys))
    return batch_id


def write_batch(
    connection: sa.Connection, batch_id: uuid.UUID, first_stages: Mapping[Key, str | None]
) -> None:
    """Record the keys of a batch, each with its first stage: None for the whole chain."""
    rows = [
        {"batch_id": batch_id, "entity_id": entity, "window": window, "first_stage": first}
        for (entity, window), first in first_stages.items()
    ]
    if rows:
        connection.execute(run_batches.insert(), rows)


def batch_keys(database: Database, batch_id: uuid.UUID) -> list[Key]:
    """The keys of a batch, by entity and window.

    Raises:
        StorageError: there is no such batch.

    """
    return list(batch_stages(database, batch_id))


def batch_stages(database: Database, batch_id: uuid.UUID) -> dict[Key, str | None]:
    """The keys of a batch, by entity and window, with the first stage of each; None for the whole chain.

    Raises:
        StorageError: there is no such batch.

    """
    query = sa.select(run_batches.c.entity_id, run_batches.c.window, run_batches.c.first_stage).where(
        run_batches.c.batch_id == batch_id
    )
    with database.begin() as connection:
        found = sorted(((row.entity_id, row.window), row.first_stage) for row in connection.execute(query))
    if not found:
        raise StorageError(
            f"there is no batch {batch_id} in the {database.place}. Remedy: launch the run again."
        )
    return dict(found)
