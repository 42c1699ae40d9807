"""How inputs and results of a cycle have developed, for the checks that warn.

Everything is counted from the cycle's ``as_of`` back and within what it could see, so that a repeat finds the
same. Each function is a query or two for all keys. What is too much is not decided here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np

from oracle_dagster.storage import columns, invariants
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION, SNAPSHOT
from oracle_dagster.storage.history import ask_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oracle_core.inputs import Float, Int
    from oracle_dagster.storage.cycles import Key
    from oracle_dagster.storage.database import Bulk

INPUTS: Final = {"documents": "document_intelligence", "bars": "market_bars", "events": "macro_events"}
_LATEST_ROWS: Final = 1_000
_LEAST_CYCLES: Final = 3


def newest_inputs(bulk: Bulk, limits_hours: dict[str, float], as_of: datetime) -> dict[str, datetime | None]:
    """When the newest input of each kind became known to the cycle; None where none ever did.

    Looks at the rows that were written last, and at all of them only where those are older than the limit:
    the rows of years have no index by ``known_at``.

    Args:
        bulk: a transaction that entered the cycle.
        limits_hours: by kind, of ``INPUTS``.
        as_of: of the cycle.

    """
    found: dict[str, datetime | None] = {}
    for kind, hours in limits_hours.items():
        seen = f"""SELECT known_at FROM {INPUTS[kind]}
            WHERE known_at <= {AS_OF} AND pg_visible_in_snapshot(xid, {SNAPSHOT})"""
        for part in (f"{seen} ORDER BY xid DESC LIMIT {_LATEST_ROWS}", seen):
            newest = (
                bulk.arrow(f"SELECT max(known_at) AS newest FROM ({part}) AS seen")
                .column("newest")[0]
                .as_py()
            )
            found[kind] = newest
            if newest is not None and as_of - newest <= timedelta(hours=hours):
                break
    return found


def rejected_documents(bulk: Bulk) -> tuple[int, int]:
    """Documents that were refused and not mended, and the loaded ones, in the 24 hours before a cycle."""
    span = f"BETWEEN {AS_OF} - interval '24 hours' AND {AS_OF}"
    refused = bulk.arrow(f"""
        SELECT count(*) AS n FROM rejected_records WHERE kind = 'documents' AND rejected_at {span}
          AND (resolved_at IS NULL OR resolved_at > {AS_OF})""")
    number: int = refused.column("n")[0].as_py()
    if number == 0:
        return 0, 0  # the share is 0 of whatever was loaded
    loaded = bulk.arrow(f"SELECT count(*) AS n FROM documents WHERE created_at {span}")
    return number, loaded.column("n")[0].as_py()


def without_history(bulk: Bulk, keys: Sequence[Key]) -> list[Key]:
    """Those of the keys whose trend of this cycle is not in the history (R59)."""
    invariants.stage(bulk, keys)
    found = ask_history(
        bulk,
        lambda history: (
            f"""
        SELECT k.entity_id, k."window" FROM pg_temp.checked k
        JOIN cycle_keys c ON c.entity_id = k.entity_id AND c."window" = k."window" AND c.as_of = {AS_OF}
          AND c.config_version = {CONFIG_VERSION} AND c.trend_seq IS NOT NULL
        WHERE NOT EXISTS (
            SELECT FROM {history} h WHERE h.entity_type = 'entity' AND h.entity_id = k.entity_id
              AND h."window" = k."window" AND h.generated_at = {AS_OF}
              AND h.config_version = {CONFIG_VERSION})"""
        ),
    )
    missing = {(row["entity_id"], row["window"]) for row in found.to_pylist()}
    return [key for key in keys if key in missing]


@dataclass(frozen=True)
class Earlier:
    """Values of the last cycles of some keys: one row per key and cycle.

    ``position``: of the key among those asked about. ``cycles``: how many different moments there are.
    """

    position: Int
    confidence: Float
    contradiction: Float
    cycles: int

    @property
    def enough(self) -> bool:
        """Whether there were cycles enough to be a past to compare with."""
        return self.cycles >= _LEAST_CYCLES


def earlier_trends(bulk: Bulk, keys: Sequence[Key], cycles_back: int) -> Earlier:
    """Confidence and contradiction of the keys in each of their last cycles before this one."""
    invariants.stage(bulk, keys)
    found = ask_history(
        bulk,
        lambda history: (
            f"""
        SELECT k.entity_id, k."window", h.generated_at, h.confidence, h.contradiction_score
        FROM pg_temp.checked k CROSS JOIN LATERAL (
            SELECT generated_at, confidence, contradiction_score FROM {history} h
            WHERE h.entity_type = 'entity' AND h.entity_id = k.entity_id AND h."window" = k."window"
              AND h.generated_at < {AS_OF}
            ORDER BY h.generated_at DESC, h.config_version DESC LIMIT {int(cycles_back)}) h"""
        ),
    )
    place = {key: at for at, key in enumerate(keys)}
    owners = zip(found.column("entity_id").to_pylist(), found.column("window").to_pylist(), strict=True)
    return Earlier(
        np.array([place[key] for key in owners], np.int64),
        columns.floats(found.column("confidence")),
        columns.floats(found.column("contradiction_score")),
        len(found.column("generated_at").unique()),
    )
