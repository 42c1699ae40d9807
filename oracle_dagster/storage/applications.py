"""What applied plans were to rebuild, and whether they have: an apply may be killed between the two.

A configuration version becomes active together with one row here and the batches of what has to be rebuilt;
the row is marked as finished when the run over them has ended.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

import sqlalchemy as sa

from oracle_dagster.shards import batch_id
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.schema import config_applications, run_batches

if TYPE_CHECKING:
    from datetime import datetime

    from oracle_dagster.storage.cycles import Key
    from oracle_dagster.storage.database import Database


@dataclass(frozen=True)
class Application:
    """One configuration version that a plan made active; ``keys`` counts what it was to rebuild."""

    config_version: int
    batch_id: uuid.UUID
    as_of: datetime
    keys: int


def unfinished(database: Database) -> list[Application]:
    """The applications whose run has not ended (or ended as failed), oldest first."""
    table = config_applications
    query = sa.select(table).where(table.c.finished_at.is_(None)).order_by(table.c.config_version)
    with database.begin() as connection:
        return [
            Application(row.config_version, uuid.UUID(str(row.batch_id)), row.as_of.astimezone(UTC), row.keys)
            for row in connection.execute(query)
        ]


def first_stages(database: Database, application: Application) -> dict[Key, str | None]:
    """What it was to rebuild: the first stage of every key, of all the runs it was divided into.

    Raises:
        StorageError: some of it is no longer there.

    """
    found: dict[Key, str | None] = {}
    table = run_batches
    with database.begin() as connection:
        number = 0
        while len(found) < application.keys:
            part = batch_id(application.batch_id, number)
            query = sa.select(table.c.entity_id, table.c.window, table.c.first_stage)
            rows = connection.execute(query.where(table.c.batch_id == part)).all()
            if not rows:
                raise StorageError(
                    f"of the {application.keys:,} keys that configuration version "
                    f"{application.config_version} was to rebuild only {len(found):,} are still recorded in "
                    f"the {database.place}. Remedy: `oracle run --as-of {application.as_of.isoformat()}`, "
                    "which computes every key."
                )
            found |= {(row.entity_id, row.window): row.first_stage for row in rows}
            number += 1
    return found


def finish(database: Database, config_version: int) -> None:
    """Mark the application of this version as finished."""
    table = config_applications
    with database.begin() as connection:
        connection.execute(
            table.update().where(table.c.config_version == config_version).values(finished_at=sa.func.now())
        )
