"""Records that name an entity by a later name are loaded under its id, which never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oracle_dagster.ingestion.columns import Batch, original
from oracle_dagster.ingestion.formats import Misread
from oracle_dagster.ingestion.models import Kind, Reason, fault

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_EDGE: Final = ("source_entity", "target_entity")
_COLUMNS: Final = {
    Kind.MARKET_DATA: ("entity_id",),
    Kind.EXPOSURES: ("entity_id",),
    Kind.RELATIONSHIPS: _EDGE,
}


def under_ids(batch: Batch, ids: Mapping[str, str]) -> None:
    """Put the id of each entity in place of its name, within the batch.

    An edge between two names of one entity is refused. A document that names an entity twice, by different
    names, keeps what it said first.

    Args:
        batch: validated records.
        ids: by name; empty where nothing was renamed.

    """
    if not ids or len(batch) == 0:
        return
    if batch.impacts is not None:
        batch.impacts = _impacts(batch.impacts, ids)
        return
    named = _COLUMNS.get(batch.source.kind, ())
    if not any(_names_any(batch.rows[column], ids) for column in named):
        return
    for column in named:
        batch.rows = _replaced(batch.rows, column, ids)
    batch.keys = [_key(key, ids, len(named)) for key in batch.keys]
    if named == _EDGE:
        _refuse_loops(batch)


def _names_any(column: pa.ChunkedArray, ids: Mapping[str, str]) -> bool:
    return bool(pc.any(pc.is_in(column, pa.array(list(ids), pa.string()))).as_py())


def _replaced(table: pa.Table, column: str, ids: Mapping[str, str]) -> pa.Table:
    names = table[column].to_pylist()
    values = pa.array([ids.get(name, name) for name in names], pa.string())
    return table.set_column(table.schema.get_field_index(column), column, values)


def _key(key: Hashable, ids: Mapping[str, str], names: int) -> Hashable:
    """The key of a record: its first parts are names of entities."""
    if isinstance(key, tuple):
        parts: tuple[Any, ...] = key
        return (*(ids.get(part, part) for part in parts[:names]), *parts[names:])
    return ids.get(key, key) if isinstance(key, str) else key


def _impacts(impacts: pa.Table, ids: Mapping[str, str]) -> pa.Table:
    if not _names_any(impacts["entity_id"], ids):
        return impacts
    mapped = _replaced(impacts, "entity_id", ids)
    pairs = zip(mapped["record"].to_pylist(), mapped["entity_id"].to_pylist(), strict=True)
    first: dict[tuple[int, str], int] = {}
    says = mapped["has_impact"].to_pylist()
    for at, pair in enumerate(pairs):
        known = first.get(pair)
        if known is None or (says[at] and not says[known]):
            first[pair] = at
    return mapped.take(pa.array(sorted(first.values()), pa.int64()))


def _refuse_loops(batch: Batch) -> None:
    loops = pc.equal(batch.rows["source_entity"], batch.rows["target_entity"]).to_numpy()
    if not loops.any():
        return
    for at in np.flatnonzero(loops).tolist():
        why = fault(
            Reason.SELF_EDGE,
            "both ends are names of one entity, which was renamed",
            field="target_entity",
            value=str(batch.rows["source_entity"][at].as_py()),
        )
        batch.misread.append(Misread(batch.numbers[at], original(batch.lines[at], batch.columns), why))
    kept = np.flatnonzero(~loops)
    batch.rows = batch.rows.take(pa.array(kept))
    batch.primary_us, batch.own_us = batch.primary_us[kept], batch.own_us[kept]
    for name in ("lines", "numbers", "keys", "contents"):
        values = getattr(batch, name)
        setattr(batch, name, [values[at] for at in kept.tolist()])
