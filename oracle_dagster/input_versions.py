"""How far the inputs have got: a version per input asset, of each entity where it is partitioned.

A version is the number of stored rows and the newest transaction that wrote or superseded one, so that it
changes with every added, revised or retracted row. Only reads; who is told, and when, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from oracle_dagster.storage.database import Database

# Transaction ids as numbers: PostgreSQL 15 has no max() of its own type for them.
_VERSION: Final = """count(*) || '-' || max(greatest(
    {row}.xid::text::bigint, coalesce({row}.superseded_xid::text::bigint, 0)))"""

_SOURCES: Final = {
    "documents": """
        SELECT i.entity_id, {version} AS version
        FROM document_impact_records i
        JOIN document_intelligence d USING (document_id, version)
        WHERE {wanted} GROUP BY i.entity_id""",
    "market_bars": """
        SELECT i.entity_id, {version} AS version FROM market_bars i WHERE {wanted} GROUP BY i.entity_id""",
    "exposure_profiles": """
        SELECT i.entity_id, {version} AS version
        FROM exposure_profiles i WHERE {wanted} GROUP BY i.entity_id""",
    "competitive_edges": """
        SELECT i.entity_id, {version} AS version
        FROM (
            SELECT source_entity AS entity_id, xid, superseded_xid FROM competitive_edges
            UNION ALL
            SELECT target_entity, xid, superseded_xid FROM competitive_edges
        ) AS i
        WHERE {wanted} GROUP BY i.entity_id""",
}


def entity_input_versions(
    database: Database, entities: Collection[str] | None = None
) -> dict[str, dict[str, str]]:
    """By input asset partitioned by entity: the version of each entity that has rows.

    Args:
        database: the domain database.
        entities: only of these; of all where None.

    Raises:
        StorageError: the tables cannot be read.

    """
    wanted = "TRUE" if entities is None else "i.entity_id = ANY($1)"
    params = () if entities is None else (sorted(entities),)
    found: dict[str, dict[str, str]] = {}
    with database.bulk() as bulk:
        for asset, source in _SOURCES.items():
            version = _VERSION.format(row="d" if asset == "documents" else "i")
            rows = bulk.arrow(source.format(version=version, wanted=wanted), params)
            found[asset] = dict(zip(*(rows.column(i).to_pylist() for i in range(2)), strict=True))
    return found


def whole_input_versions(database: Database) -> dict[str, str]:
    """By unpartitioned input asset: its version; empty tables have none.

    Raises:
        StorageError: the tables cannot be read.

    """
    with database.bulk() as bulk:
        version = _VERSION.format(row="e")
        rows = bulk.arrow(f"SELECT {version} FROM macro_events e HAVING count(*) > 0")  # noqa: S608 - constants
    return {} if rows.num_rows == 0 else {"macro_events": str(rows.column(0)[0])}
