"""What people are shown beside the numbers of a key: its evidence by name, and how its trend went.

A query or two for all keys of a run. Reads only; how it looks is not decided here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from oracle_core.enums import TrendDirection
from oracle_core.projection import signed_strength
from oracle_dagster.storage import columns, cycles
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION
from oracle_dagster.storage.history import ask_history
from oracle_dagster.storage.identity import is_document_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Bulk, Database

_DIRECTIONS: Final = columns.members(TrendDirection)
_MACRO: Final = "macro:"


@dataclass
class History:
    """The newest cycles of one key, oldest first; ``strength`` is signed, in [-1, 1]."""

    moments: list[datetime] = field(default_factory=list)
    strength: list[float] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)


def evidence(database: Database, cycle: Cycle, named: Sequence[tuple[Key, str]]) -> list[dict[str, Any]]:
    """What is stored of the signals that keys name.

    Args:
        database: with inputs and results.
        cycle: whose weights are asked for.
        named: pairs of a key and a signal's id.

    Returns:
        One for each pair, in their order: title, source, source_type, published_at, event, and the weight of
        the signal; None where there is none, as for a signal that a newer cycle replaced.

    """
    ids = [name for _, name in named]
    table = pa.table(
        {
            "n": pa.array(range(len(named)), pa.int64()),
            "entity_id": pa.array([key[0] for key, _ in named], pa.string()),
            "window": pa.array([key[1] for key, _ in named], pa.string()),
            "signal_id": pa.array(ids, pa.string()),
            "document_id": pa.array([name if is_document_id(name) else None for name in ids], pa.string()),
            "event_id": pa.array(
                [name.removeprefix(_MACRO) if name.startswith(_MACRO) else None for name in ids], pa.string()
            ),
        }
    )

    def read(bulk: Bulk) -> list[dict[str, Any]]:
        cycles.enter(bulk, cycle)
        bulk.stage("named_evidence", table)
        found: list[dict[str, Any]] = bulk.arrow(f"""
            SELECT d.title, d.source_id AS source, d.source_type, d.published_at, m.event,
                   s.combined AS weight
            FROM pg_temp.named_evidence e
            LEFT JOIN weighted_signals s ON s.entity_id = e.entity_id AND s."window" = e."window"
              AND s.signal_id = e.signal_id AND s.as_of = {AS_OF} AND s.config_version = {CONFIG_VERSION}
            LEFT JOIN documents d ON d.id = e.document_id::uuid
            LEFT JOIN LATERAL (
                SELECT COALESCE(m.title, m.event_type) AS event FROM macro_events m
                WHERE m.id = e.event_id::uuid AND m.known_at <= {AS_OF} ORDER BY m.version DESC LIMIT 1
            ) AS m ON TRUE
            ORDER BY e.n""").to_pylist()
        return found

    return database.run(read, "REPEATABLE READ") if named else []


def histories(database: Database, cycle: Cycle, keys: Sequence[Key], cycles_back: int) -> list[History]:
    """The newest cycles of each key up to this one, in the order of the keys."""

    def read(bulk: Bulk) -> pa.Table:
        cycles.enter(bulk, cycle)
        cycles.stage_keys(bulk, keys)
        return ask_history(
            bulk,
            lambda history: (
                f"""
            SELECT k.position, h.* FROM slice_keys k CROSS JOIN LATERAL (
                SELECT DISTINCT ON (h.generated_at) h.generated_at, h.trend_direction, h.trend_strength,
                       h.confidence FROM {history} h
                WHERE h.entity_type = 'entity' AND h.entity_id = k.entity_id AND h."window" = k."window"
                  AND (h.generated_at < {AS_OF}
                       OR (h.generated_at = {AS_OF} AND h.config_version = {CONFIG_VERSION}))
                ORDER BY h.generated_at DESC LIMIT {int(cycles_back)}) h
            ORDER BY k.position, h.generated_at"""
            ),
        )

    table = database.run(read, "REPEATABLE READ")
    made = [History() for _ in keys]
    direction = columns.codes(table.column("trend_direction"), _DIRECTIONS)
    signed = signed_strength(direction, columns.floats(table.column("trend_strength")))
    for at, moment, strength, confidence in zip(
        table.column("position").to_pylist(),
        table.column("generated_at").to_pylist(),
        np.asarray(signed).tolist(),
        table.column("confidence").to_pylist(),
        strict=True,
    ):
        made[at].moments.append(moment)
        made[at].strength.append(strength)
        made[at].confidence.append(confidence)
    return made
