"""What assets are given: the way to the domain database, and what a run's configuration says of its cycle.

Connects when first used, so that definitions load anywhere; then says what is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import dagster as dg
import sqlalchemy as sa
from pydantic import Field

from oracle_dagster.as_of import as_of_of_run
from oracle_dagster.home import DATABASE_VARIABLE, HOME_VARIABLE, Home, HomeError
from oracle_dagster.storage.database import Database, StorageError

OUTAGE_ATTEMPTS: Final = 5
OUTAGE_PAUSE_SECONDS: Final = 5.0


class NoDatabaseError(HomeError):
    """This process was told of no database; the message names the three ways to one."""


@contextlib.contextmanager
def outlasting_outages() -> Iterator[None]:
    """Have a step executed again when a database went away: it is back in seconds, a repeat is harmless.

    Also where it was the orchestrator's storage that could not take an event.
    """
    try:
        yield
    except (StorageError, sa.exc.OperationalError, sa.exc.InterfaceError) as error:
        if isinstance(error, StorageError) and not error.transient:
            raise
        raise dg.RetryRequested(max_retries=OUTAGE_ATTEMPTS, seconds_to_wait=OUTAGE_PAUSE_SECONDS) from error


class OracleDatabase(dg.ConfigurableResource["OracleDatabase"]):
    """The domain database of a home: the embedded server, or the one that ``ORACLE_DATABASE_URL`` names."""

    home: str = Field(default="", description="folder of the home; empty: ORACLE_HOME, else ./.oracle")

    def open(self) -> Database:
        """The database, the same object for the whole process.

        Raises:
            NoDatabaseError: there is no home yet and no external server is named.
            HomeError: the server cannot be used; the message says why and what helps.

        """
        home = Home.resolve(None if self.home == "" else self.home)
        key = (str(home.path), os.environ.get(DATABASE_VARIABLE, ""))
        if key not in _opened:
            _opened[key] = _open(home)
        return _opened[key]


# By home and external server: opened once in the life of a process.
_opened: dict[tuple[str, str], Database] = {}


@contextlib.contextmanager
def serving(home: Home, database: Database) -> Iterator[None]:
    """Give this database to every step that runs in this process meanwhile, instead of opening another."""
    key = (str(home.path), os.environ.get(DATABASE_VARIABLE, ""))
    before = _opened.get(key)
    _opened[key] = database
    try:
        yield
    finally:
        if before is None:
            del _opened[key]
        else:
            _opened[key] = before


def _open(home: Home) -> Database:
    if not has_database(home):
        raise NoDatabaseError(
            f"There is no database: the home {home.path} holds none and {DATABASE_VARIABLE} is not set. "
            f"Run `oracle init` to create one there, set {HOME_VARIABLE} to the folder of another home, or "
            f"set {DATABASE_VARIABLE} to a PostgreSQL server."
        )
    # Kept by the cached database for the life of the process, as the embedded server's user.
    return Database(home.connect().domain_url)


def has_database(home: Home) -> bool:
    """Whether a home was initialised, or an external server is named; nothing is started or created."""
    return os.environ.get(DATABASE_VARIABLE, "") != "" or home.pg_dir.exists()


class CycleSettings(dg.ConfigurableResource["CycleSettings"]):
    """Which cycle a run computes, for all its steps; both may be left out."""

    as_of: str | None = Field(
        default=None,
        description="The moment to look from, like 2016-11-08T00:00:00Z. Default: the tag oracle/as_of, else "
        "when the backfill or the first run of these attempts was created.",
    )
    config_version: int | None = Field(
        default=None, description="Version of the configuration in risk_configs. Default: the active one."
    )

    def moment(self, context: dg.AssetExecutionContext) -> datetime:
        """The run's ``as_of``, in UTC."""
        return as_of_of_run(context.instance, context.run, self.as_of)
