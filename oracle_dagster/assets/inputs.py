"""The inputs as assets: tables that other programs fill. Nothing here computes or loads."""

from __future__ import annotations

from typing import Final

import dagster as dg

from oracle_dagster.partitions import ENTITIES

_PER_ENTITY: Final = {
    "documents": "One row per document that names the entity, with its impacts.",
    "market_bars": "One row per daily bar of the entity.",
    "exposure_profiles": "One row per entity: its shares in regions, supplies, commodities and sectors.",
    "competitive_edges": "One row per relationship of the entity with another.",
}

ENTITY_INPUTS: Final = tuple(_PER_ENTITY)

input_assets: Final = [
    *(
        dg.AssetSpec(
            name,
            group_name="inputs",
            partitions_def=ENTITIES,
            description=f"{grain} Data version: number of rows and last transaction.",
            kinds={"postgres"},
            metadata={"dagster/table_name": "document_impact_records" if name == "documents" else name},
        )
        for name, grain in _PER_ENTITY.items()
    ),
    dg.AssetSpec(
        "macro_events",
        group_name="inputs",
        description="One row per world event. Data version: number of rows and last transaction.",
        kinds={"postgres"},
        metadata={"dagster/table_name": "macro_events"},
    ),
]
