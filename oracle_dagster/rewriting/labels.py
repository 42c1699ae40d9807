"""Every entity id, catalyst and risk that the database knows, to tell which of them an answer mentions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from oracle_core.rewrite import KnownLabels

if TYPE_CHECKING:
    from oracle_dagster.storage.database import Database

# Leads an index on the entity, so that each id costs one look-up however many rows it has.
_ENTITIES: Final = """
    WITH RECURSIVE ids AS (
        (SELECT {column} AS id FROM {table} ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT {column} FROM {table} WHERE {column} > ids.id ORDER BY 1 LIMIT 1) FROM ids
        WHERE ids.id IS NOT NULL
    ) SELECT id FROM ids WHERE id IS NOT NULL"""
_PLACES: Final = (
    ("document_impact_records", "entity_id"),
    ("market_bars", "entity_id"),
    ("exposure_profiles", "entity_id"),
    ("competitive_edges", "source_entity"),
    ("competitive_edges", "target_entity"),
    ("entity_names", "name"),
)
_CATALYSTS: Final = (
    "SELECT DISTINCT catalyst_type FROM document_impact_records WHERE catalyst_type IS NOT NULL"
)
_RISKS: Final = """
    SELECT DISTINCT jsonb_array_elements_text(risk_flags) FROM document_impact_records
    WHERE risk_flags <> '[]'::jsonb"""


def known_labels(database: Database) -> KnownLabels:
    """The labels of every document, bar, exposure, edge and renaming, of whatever version.

    Raises:
        StorageError: they cannot be read.

    """
    queries = [_ENTITIES.format(table=table, column=column) for table, column in _PLACES]
    with database.begin() as connection:
        found = {
            label
            for query in (*queries, _CATALYSTS, _RISKS)
            for label in connection.execute(sa.text(query)).scalars()
        }
    return KnownLabels(found)
