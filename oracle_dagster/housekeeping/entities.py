"""Retire an entity, revive it, rename it: nothing that is stored changes, and everything can be undone."""

from __future__ import annotations

import contextlib
import difflib
from typing import TYPE_CHECKING

import sqlalchemy as sa

from oracle_dagster.ingestion.load import LOCK
from oracle_dagster.ingestion.models import entity_id_problem
from oracle_dagster.storage import entities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oracle_dagster.storage.database import Database


class EntityError(ValueError):
    """An entity cannot be changed as asked; the message names it, the reason and the remedy."""


def retire(database: Database, name: str, *, by: str, reason: str) -> str:
    """Let sensor, schedules, plans and runs of everything leave an entity out from now on.

    Returns:
        Its id.

    Raises:
        EntityError: nothing names it, or it is retired already.

    """
    with _alone(database) as connection:
        entity = _known(connection, name)
        if not entities.write_retirement(connection, entity, by=by, reason=reason):
            raise EntityError(f"{name} is retired already; `oracle entity list` says since when.")
    return entity


def revive(database: Database, name: str, *, by: str) -> str:
    """Take an entity into service again.

    Returns:
        Its id.

    Raises:
        EntityError: it is not retired.

    """
    with _alone(database) as connection:
        entity = entities.id_of(connection, name)
        if not entities.end_retirement(connection, entity, by=by):
            raise EntityError(f"{name} is not retired; `oracle entity list` shows those that are.")
    return entity


def rename(database: Database, old: str, new: str, *, by: str, reason: str) -> str:
    """Give an entity another name, under which its history is reached and inputs are loaded from now on.

    Args:
        database: the domain database.
        old: its id, or any name that it was given before.
        new: the name to be; may be one that it had.
        by: who says so.
        reason: why.

    Returns:
        Its id, which stays.

    Raises:
        EntityError: nothing names ``old``, or ``new`` cannot be a name or is another entity.

    """
    problem = entity_id_problem(new)
    if problem is not None:
        raise EntityError(f"{new!r} cannot be the name of an entity: it {problem}.")
    with _alone(database) as connection:
        entity = _known(connection, old)
        if entities.current_name(connection, entity) == new:
            raise EntityError(f"{old} is called {new} already.")
        other = entities.id_of(connection, new)
        if entity not in (other, new) and (other != new or entities.is_known(connection, new)):
            raise EntityError(
                f"{new} is another entity with inputs or results of its own, and renaming merges none. "
                "Choose "
                "another name; to go on with one of the two, retire the other."
            )
        entities.write_name(connection, entity, new, by=by, reason=reason)
    return entity


@contextlib.contextmanager
def _alone(database: Database) -> Iterator[sa.Connection]:
    """A transaction while no inputs are loaded: a load must not bring a name while it changes."""
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        yield connection


def _known(connection: sa.Connection, name: str) -> str:
    entity = entities.id_of(connection, name)
    if not entities.is_known(connection, entity):
        named = connection.execute(sa.text("SELECT DISTINCT entity_id FROM cycle_keys")).scalars().all()
        near = difflib.get_close_matches(name, list(named), n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise EntityError(f"No input and no result names {name}; names are case-sensitive.{hint}")
    return entity
