"""Replays: what was asked, how far it is, and what each replayed cycle decided; never the live tables.

A replay is found again by its request, so that the same command goes on where it was killed. A block's cycles
are written in order, together with how many are done. No rule and no result is made here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from oracle_core.config import parse_stored
from oracle_core.enums import Action, Mode, TrendDirection
from oracle_core.projection import signed_strength
from oracle_dagster.storage import columns
from oracle_dagster.storage.database import Bulk, Database, StorageError
from oracle_dagster.storage.results import content_hash
from oracle_dagster.storage.schema import replay_blocks, replay_configs, replays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oracle_core.config import OracleConfig
    from oracle_core.inputs import Bool, Float, Int
    from oracle_dagster.storage.cycles import Key

_LOCK: Final = 7_105_009  # advisory lock class; arbitrary, but distinct
_INPUTS: Final = (
    "document_intelligence",
    "document_impact_records",
    "market_bars",
    "macro_events",
    "exposure_profiles",
    "competitive_edges",
)
_DIRECTIONS: Final = columns.members(TrendDirection)
_ACTIONS: Final = columns.members(Action)
_MODES: Final = columns.members(Mode)
COLUMNS: Final = (
    "as_of",
    "entity_id",
    "window",
    "documents",
    "plain_average",
    "source_type",
    "trend_direction",
    "trend_strength",
    "average",
    "confidence",
    "contradiction_score",
    "evidence_count",
    "p_bull",
    "projected_direction",
    "projected_strength",
    "action",
    "mode",
    "eligible",
    "suppressed",
    "duplicate",
    "allocation_pct",
    "max_loss_pct",
    "risk_classification",
    "expected_value",
    "outcome",
    "return_7d",
)


@dataclass(frozen=True)
class Configuration:
    """A configuration of a replay under a name."""

    name: str
    config: OracleConfig


@dataclass(frozen=True)
class Block:
    """Entities that are replayed together under one configuration, and how many cycles of them are stored."""

    position: int
    number: int
    entities: tuple[str, ...]
    cycles_done: int


@dataclass(frozen=True)
class Replay:
    """A replay as it is stored."""

    number: int
    request: dict[str, Any]
    snapshot: str
    finished: bool
    configurations: tuple[Configuration, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Carried:
    """What a cycle takes from earlier ones of its replay, one row per key of a block.

    ``as_of_us`` and ``signed`` have one column per earlier cycle, newest first; -1 and NaN where there are
    fewer. ``action`` is -1 where nothing stands yet.
    """

    as_of_us: Int
    signed: Float
    action: Int
    mode: Int
    confidence: Float


class OvertakenError(StorageError):
    """Another process has stored cycles of the same block meanwhile."""


def settled(database: Database) -> str:
    """What has settled by now (``pg_snapshot`` as text)."""
    with database.begin() as connection:
        now: str = connection.execute(sa.select(sa.cast(sa.func.pg_current_snapshot(), sa.Text))).scalar_one()
    return now


def begin(
    database: Database,
    request: dict[str, Any],
    configurations: Sequence[Configuration],
    blocks: Sequence[Sequence[str]],
    *,
    snapshot: str,
) -> Replay:
    """Go on with the replay of this request, or begin one.

    An unfinished one goes on with what it read. A finished one is given back if no input has changed since;
    else a new one begins.

    Args:
        database: the domain database.
        request: what decides the results, as JSON.
        configurations: each under its own name.
        blocks: the entities of each block, for a new replay.
        snapshot: what a new one reads, of :func:`settled`.

    """
    asked = content_hash(json.dumps(request, sort_keys=True))
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, 0)))
        row = connection.execute(
            sa.select(replays)
            .where(replays.c.request_hash == asked)
            .order_by(replays.c.number.desc())
            .limit(1)
        ).first()
        if row is None or (row.finished_at is not None and _changed(connection, row.snapshot)):
            row = connection.execute(
                replays.insert()
                .values(request_hash=asked, request=request, snapshot=snapshot)
                .returning(replays)
            ).one()
            connection.execute(
                replay_configs.insert(),
                [
                    {
                        "replay": row.number,
                        "position": position,
                        "name": each.name,
                        "config": each.config.stored(),
                        "config_hash": each.config.fingerprint(),
                        "pipeline_mode": each.config.pipeline_mode.value,
                    }
                    for position, each in enumerate(configurations)
                ],
            )
            made = [
                {"replay": row.number, "position": position, "block": number, "entities": list(entities)}
                for position in range(len(configurations))
                for number, entities in enumerate(blocks)
            ]
            if made:
                connection.execute(replay_blocks.insert(), made)
        return _read(connection, row)


def read(database: Database, number: int) -> Replay:
    """A replay as it stands.

    Raises:
        StorageError: there is none of that number.

    """
    with database.begin() as connection:
        row = connection.execute(sa.select(replays).where(replays.c.number == number)).first()
        if row is None:
            raise StorageError(f"there is no replay {number} in the {database.place}")
        return _read(connection, row)


def _read(connection: sa.Connection, row: sa.Row[Any]) -> Replay:
    configs = connection.execute(
        sa.select(replay_configs)
        .where(replay_configs.c.replay == row.number)
        .order_by(replay_configs.c.position)
    ).all()
    blocks = connection.execute(
        sa.select(replay_blocks)
        .where(replay_blocks.c.replay == row.number)
        .order_by(replay_blocks.c.position, replay_blocks.c.block)
    ).all()
    return Replay(
        number=row.number,
        request=row.request,
        snapshot=row.snapshot,
        finished=row.finished_at is not None,
        configurations=tuple(Configuration(c.name, parse_stored(c.config)[0]) for c in configs),
        blocks=tuple(Block(b.position, b.block, tuple(b.entities), b.cycles_done) for b in blocks),
    )


def _changed(connection: sa.Connection, snapshot: str) -> bool:
    """Whether any version of an input was written or replaced after the snapshot."""
    later = (
        f"SELECT FROM {table} WHERE {column} >= pg_snapshot_xmin(CAST(:snapshot AS pg_snapshot)) "
        f"AND NOT pg_visible_in_snapshot({column}, CAST(:snapshot AS pg_snapshot))"
        for table in _INPUTS
        for column in ("xid", "superseded_xid")
        if (table, column) != ("document_impact_records", "superseded_xid")
    )
    query = " OR ".join(f"EXISTS ({select})" for select in later)
    found: bool = connection.execute(sa.text(f"SELECT {query}"), {"snapshot": snapshot}).scalar_one()
    return found


def cycles_done(database: Database, number: int) -> int:
    """The stored cycles of a replay, over all its blocks."""
    with database.begin() as connection:
        done = connection.execute(
            sa.select(sa.func.sum(replay_blocks.c.cycles_done)).where(replay_blocks.c.replay == number)
        ).scalar_one()
    return int(done or 0)


def finish(database: Database, number: int) -> None:
    """Mark a replay as finished, unless it is."""
    with database.begin() as connection:
        connection.execute(
            replays.update()
            .where(replays.c.number == number, replays.c.finished_at.is_(None))
            .values(finished_at=sa.func.now())
        )


def write_cycles(
    bulk: Bulk, *, replay: Replay, block: Block, done: tuple[int, int], decided: pa.Table, failed: pa.Table
) -> None:
    """Store cycles of a block and that they are done; repeating it changes nothing.

    Args:
        bulk: a transaction.
        replay: whose.
        block: whose.
        done: cycles stored before, and with these.
        decided: ``COLUMNS``.
        failed: as_of, entity_id, window, message.

    Raises:
        OvertakenError: others were stored meanwhile.

    """
    before, after = done
    here = (replay.number, block.position, block.number)
    moved = bulk.arrow(
        """UPDATE replay_blocks SET cycles_done = $5
           WHERE replay = $1 AND position = $2 AND block = $3 AND cycles_done = $4 RETURNING cycles_done""",
        (*here, before, after),
    )
    if moved.num_rows == 0:
        stored = bulk.arrow(
            "SELECT cycles_done FROM replay_blocks WHERE replay = $1 AND position = $2 AND block = $3", here
        ).to_pylist()
        if [row["cycles_done"] for row in stored] == [after]:
            return
        raise OvertakenError(
            f"another process is at the same replay ({replay.number}): it has stored cycles that this one "
            "was about to. Let one of them end, then repeat the command; it goes on from there."
        )
    for name, table in (("replay_decisions", decided), ("replay_failures", failed)):
        if table.num_rows > 0:
            rows = table.num_rows
            own = {
                "replay": pa.array(np.full(rows, replay.number), pa.int32()),
                "position": pa.array(np.full(rows, block.position), pa.int16()),
            }
            bulk.append(
                name,
                pa.table({**own, **{column: table.column(column) for column in table.column_names}}),
            )


def read_carried(bulk: Bulk, replay: Replay, block: Block, place: dict[Key, int], depth: int) -> Carried:
    """What the next cycle of a block takes from those stored; ``place`` numbers its keys."""
    keys = len(place)
    carried = Carried(
        as_of_us=np.full((keys, depth), -1, np.int64),
        signed=np.full((keys, depth), np.nan),
        action=np.full(keys, -1, np.int64),
        mode=np.full(keys, -1, np.int64),
        confidence=np.full(keys, np.nan),
    )
    if block.cycles_done == 0:
        return carried
    here = (replay.number, block.position, list(block.entities))
    mine = "replay = $1 AND position = $2 AND entity_id = ANY($3::text[])"
    newest = bulk.arrow(
        f"""SELECT * FROM (
                SELECT entity_id, "window", as_of, trend_direction, trend_strength,
                       row_number() OVER (PARTITION BY entity_id, "window" ORDER BY as_of DESC) AS rank
                FROM replay_decisions WHERE {mine}) AS d WHERE rank <= {depth}""",
        here,
    )
    at, rank = _places(newest, place), columns.ints(newest.column("rank")) - 1
    carried.as_of_us[at, rank] = columns.times(newest.column("as_of"))
    carried.signed[at, rank] = signed_strength(
        columns.codes(newest.column("trend_direction"), _DIRECTIONS),
        columns.floats(newest.column("trend_strength")),
    )
    standing = bulk.arrow(
        f"""SELECT DISTINCT ON (entity_id, "window") entity_id, "window", action, mode, confidence
            FROM replay_decisions WHERE {mine} AND NOT duplicate
            ORDER BY entity_id, "window", as_of DESC""",
        here,
    )
    at = _places(standing, place)
    carried.action[at] = columns.codes(standing.column("action"), _ACTIONS)
    carried.mode[at] = columns.codes(standing.column("mode"), _MODES)
    carried.confidence[at] = columns.floats(standing.column("confidence"))
    return carried


def _places(found: pa.Table, place: dict[Key, int]) -> Int:
    keys = zip(found.column("entity_id").to_pylist(), found.column("window").to_pylist(), strict=True)
    return np.array([place[key] for key in keys], np.int64)


@dataclass(frozen=True)
class Stored:
    """The decisions of one configuration as columns, by as_of, entity and window; strings as in the table."""

    table: pa.Table
    failures: int

    def floats(self, name: str) -> Float:
        """A column of numbers, NaN where null."""
        return columns.floats(self.table.column(name))

    def ints(self, name: str) -> Int:
        """A column of whole numbers."""
        return columns.ints(self.table.column(name))

    def bools(self, name: str) -> Bool:
        """A column of flags."""
        return columns.bools(self.table.column(name))

    def times(self, name: str) -> Int:
        """A column of times in microseconds."""
        return columns.times(self.table.column(name))

    def codes(self, name: str, of: Sequence[str]) -> Int:
        """A column of strings as positions in ``of``, -1 for null."""
        return columns.codes(self.table.column(name), pa.array(list(of), pa.string()))

    def names(self, name: str) -> list[str]:
        """The distinct strings of a column by code point."""
        found: list[str] = columns.table(self.table.column(name)).to_pylist()
        return found


def read_decisions(database: Database, number: int, position: int) -> Stored:
    """All decisions of a configuration of a replay, in an order that no database decides."""

    def look(bulk: Bulk) -> tuple[pa.Table, int]:
        listed = ", ".join(f'"{column}"' for column in COLUMNS)
        found = bulk.arrow(
            f"SELECT {listed} FROM replay_decisions WHERE replay = $1 AND position = $2", (number, position)
        )
        failed = bulk.arrow(
            "SELECT count(*) AS n FROM replay_failures WHERE replay = $1 AND position = $2",
            (number, position),
        )
        return found, int(failed.column("n")[0].as_py())

    table, failures = database.run(look, "REPEATABLE READ")
    keys = [("as_of", "ascending"), ("entity_id", "ascending"), ("window", "ascending")]
    return Stored(table.sort_by(keys).combine_chunks(), failures)
