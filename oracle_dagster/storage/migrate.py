"""Bring a database to the present tables, and say what is missing when it is not there.

``python -m oracle_dagster.storage.migrate "what changes"`` writes the next revision from ``schema.py``; it
needs ``ORACLE_DATABASE_URL`` of a database at the newest revision. Views and sequences are added by hand.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database, UnmigratedError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION_TABLE: Final = "oracle_schema_version"
_LOCK: Final = 7_105_001  # an arbitrary number: migrations of one database run one after the other


def upgrade(database: Database) -> list[str]:
    """Create or migrate every table and insert the default configuration as version 1 where there is none.

    All in one transaction, so that a failure leaves what was there. Safe to repeat, and from several
    processes at once.

    Returns:
        The revisions applied, oldest first; empty if the database was up to date.

    Raises:
        StorageError: the database cannot be used, or its tables were written by a newer version.

    """
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        before = _revision(connection)
        pending = _pending(database, before)
        if pending:
            command.upgrade(_config(connection), "head")
        configuration.insert_default(connection)
    return pending


def check(database: Database) -> None:
    """Return if the tables are the present ones.

    Raises:
        UnmigratedError: they are missing, older or newer; the message names the remedy.
        StorageError: the database cannot be used.

    """
    with database.begin() as connection:
        pending = _pending(database, _revision(connection))
    if pending:
        raise UnmigratedError(
            f"the tables of the {database.place} are missing or older than this version "
            f"(not applied: {', '.join(pending)}). Remedy: run `oracle init`."
        )


def revisions() -> list[str]:
    """Every revision that this version knows, oldest first."""
    script = ScriptDirectory.from_config(_config(None))
    return [r.revision for r in script.walk_revisions()][::-1]


def _revision(connection: sa.Connection) -> str | None:
    options = {"version_table": VERSION_TABLE}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


def _pending(database: Database, current: str | None) -> list[str]:
    known = revisions()
    if current is not None and current not in known:
        raise UnmigratedError(
            f"the tables of the {database.place} are at revision {current!r}, which this version does not "
            "know: a newer version wrote them. Remedy: install that version or use another database."
        )
    return known[known.index(current) + 1 :] if current is not None else known


def _config(connection: sa.Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", "oracle_dagster.storage:migrations")
    config.attributes["connection"] = connection
    return config


def write_revision(database: Database, message: str) -> None:
    """Write the next revision file from the difference between ``schema.py`` and the database."""
    with database.begin() as connection:
        number = len(list(ScriptDirectory.from_config(_config(None)).walk_revisions())) + 1
        command.revision(_config(connection), message, autogenerate=True, rev_id=f"{number:04d}")


def _main(arguments: Sequence[str]) -> None:
    write_revision(Database(os.environ["ORACLE_DATABASE_URL"]), " ".join(arguments))


if __name__ == "__main__":
    _main(sys.argv[1:])
