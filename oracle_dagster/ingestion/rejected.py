"""Records that could not be loaded: kept with their original text, listed, tried again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from oracle_dagster.ingestion.report import Rejection
    from oracle_dagster.storage.database import Bulk


def store_rejections(bulk: Bulk, rejections: Sequence[Rejection], now: datetime) -> None:
    """Keep refused records; one that is stored already is only open again."""
    if not rejections:
        return
    columns = ("file", "line", "kind", "field", "value", "reason", "message", "record")
    staged = {name: [getattr(rejection, name) for rejection in rejections] for name in columns}
    staged["record_hash"] = [record_hash(rejection.record) for rejection in rejections]
    types = dict.fromkeys(staged, pa.string()) | {"line": pa.int64()}
    bulk.stage("ingest_rejected", pa.table([pa.array(staged[n], types[n]) for n in staged], list(staged)))
    names = ", ".join(staged)
    bulk.execute(
        f"INSERT INTO rejected_records ({names}, rejected_at) "  # noqa: S608
        f"SELECT DISTINCT ON (file, line, kind, record_hash, reason) {names}, '{now.isoformat()}' "
        "FROM ingest_rejected ON CONFLICT (file, line, kind, record_hash, reason) DO UPDATE SET resolved_at = NULL"
    )


def record_hash(record: str) -> str:
    """Tells apart different records that stood in the same line of a file at different times."""
    return hashlib.blake2b(record.encode(), digest_size=16).hexdigest()
