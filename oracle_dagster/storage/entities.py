"""Entities that were renamed or retired: what their rows say, and recording it.

An entity's id is its identity. Rows, partitions, seals and receipts name it, so a renaming changes none of
them: it adds a name under which the same id is reached from then on. Whoever reads or loads by name asks here
for the id. A retirement only says that nothing is to be computed by itself; every row stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from oracle_dagster.storage.schema import (
    competitive_edges,
    cycle_keys,
    document_impact_records,
    entity_names,
    entity_retirements,
    exposure_profiles,
    market_bars,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from oracle_dagster.storage.database import Bulk, Database

_NAMING: Final = (
    document_impact_records.c.entity_id,
    market_bars.c.entity_id,
    exposure_profiles.c.entity_id,
    competitive_edges.c.source_entity,
    competitive_edges.c.target_entity,
    cycle_keys.c.entity_id,
)


@dataclass(frozen=True)
class Entity:
    """An entity that was renamed or retired: its id, every name it got with the moment, oldest first."""

    entity_id: str
    names: tuple[tuple[str, datetime], ...] = ()
    retired_at: datetime | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Its present name."""
        return self.names[-1][0] if self.names else self.entity_id


def ids_by_name(bulk: Bulk) -> dict[str, str]:
    """The id that each name stands for, which an entity was ever given."""
    rows = bulk.arrow("SELECT DISTINCT name, entity_id FROM entity_names WHERE name <> entity_id")
    return dict(zip(rows.column("name").to_pylist(), rows.column("entity_id").to_pylist(), strict=True))


def resolve(database: Database, names: Iterable[str]) -> list[str]:
    """The ids that names stand for, in their order; a name that is none stands for itself."""
    known = database.run(ids_by_name)
    return [known.get(name, name) for name in names]


def retired(database: Database) -> frozenset[str]:
    """The entities that are retired now."""
    query = sa.select(entity_retirements.c.entity_id).where(entity_retirements.c.revived_at.is_(None))
    with database.begin() as connection:
        return frozenset(connection.execute(query).scalars())


def in_service(database: Database, entities: Collection[str]) -> list[str]:
    """Those of the entities that are not retired, in their order."""
    gone = retired(database)
    return [entity for entity in entities if entity not in gone]


def listed(database: Database) -> list[Entity]:
    """Every entity that was renamed or is retired, by id."""
    names, gone = entity_names.c, entity_retirements.c
    with database.begin() as connection:
        renamed = connection.execute(
            sa.select(names.entity_id, names.name, names.renamed_at).order_by(names.number)
        ).all()
        retirements = connection.execute(
            sa.select(gone.entity_id, gone.retired_at, gone.reason).where(gone.revived_at.is_(None))
        ).all()
    given: dict[str, list[tuple[str, datetime]]] = {}
    for entity, name, moment in renamed:
        given.setdefault(entity, []).append((name, moment.astimezone(UTC)))
    standing = {entity: (moment.astimezone(UTC), reason) for entity, moment, reason in retirements}
    return [
        Entity(entity, tuple(given.get(entity, ())), *standing.get(entity, (None, "")))
        for entity in sorted({*given, *standing})
    ]


def is_known(connection: sa.Connection, entity: str) -> bool:
    """Whether any input or result names this id."""
    return bool(
        connection.execute(
            sa.select(sa.or_(*(sa.exists(sa.select(sa.literal(1)).where(c == entity)) for c in _NAMING)))
        ).scalar_one()
    )


def id_of(connection: sa.Connection, name: str) -> str:
    """The id that a name stands for, within a transaction."""
    found = connection.execute(
        sa.select(entity_names.c.entity_id).where(entity_names.c.name == name).limit(1)
    ).scalar_one_or_none()
    return name if found is None else str(found)


def current_name(connection: sa.Connection, entity: str) -> str:
    """The newest name of an id, within a transaction."""
    found = connection.execute(
        sa.select(entity_names.c.name)
        .where(entity_names.c.entity_id == entity)
        .order_by(entity_names.c.number.desc())
        .limit(1)
    ).scalar_one_or_none()
    return entity if found is None else str(found)


def write_name(connection: sa.Connection, entity: str, name: str, *, by: str, reason: str) -> None:
    """Record a new name of an id."""
    connection.execute(
        entity_names.insert().values(entity_id=entity, name=name, renamed_by=by, reason=reason)
    )


def write_retirement(connection: sa.Connection, entity: str, *, by: str, reason: str) -> bool:
    """Record that an id is retired; False if it was."""
    standing = entity_retirements.c.entity_id == entity, entity_retirements.c.revived_at.is_(None)
    if connection.execute(sa.select(sa.literal(1)).where(*standing)).first() is not None:
        return False
    connection.execute(entity_retirements.insert().values(entity_id=entity, retired_by=by, reason=reason))
    return True


def end_retirement(connection: sa.Connection, entity: str, *, by: str) -> bool:
    """Record that an id is in service again; False if it was."""
    done = connection.execute(
        entity_retirements.update()
        .where(entity_retirements.c.entity_id == entity, entity_retirements.c.revived_at.is_(None))
        .values(revived_at=sa.func.now(), revived_by=by)
    )
    return done.rowcount > 0


def rows_under_other_names(database: Database) -> dict[str, str]:
    """Names that stand for an id, but under which somebody wrote inputs nevertheless; with that id."""
    with database.begin() as connection:
        named = connection.execute(
            sa.select(entity_names.c.name, entity_names.c.entity_id)
            .where(entity_names.c.name != entity_names.c.entity_id)
            .distinct()
        ).all()
        return {name: entity for name, entity in named if is_known(connection, name)}
