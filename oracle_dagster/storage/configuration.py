"""The versions of the configuration in ``risk_configs``: which is active, who changed what, and why.

A version is never changed or removed; only ``active`` moves. What the settings mean stands in
``oracle_core.config``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from oracle_core.config import ConfigError, OracleConfig, parse_stored
from oracle_dagster.storage.database import Database, StorageError
from oracle_dagster.storage.schema import risk_configs

if TYPE_CHECKING:
    from datetime import datetime

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConfigVersion:
    """One row of ``risk_configs``, read and validated."""

    version: int
    active: bool
    config: OracleConfig
    changed_by: str
    reason: str
    updated_at: datetime


def active(database: Database) -> ConfigVersion:
    """Read the version in force (R128), in one statement; the newest, should several claim to be.

    Only its probabilistic flag is forgiving: missing is false, a wrong type too, with a warning (R133, R134).

    Raises:
        ConfigError: its values cannot be used, so no cycle can run.
        StorageError: the table cannot be read, or no version is active.

    Implements: R128.
    """
    with database.begin() as connection:
        row = connection.execute(_select().where(risk_configs.c.active).limit(1)).first()
    if row is None:
        raise StorageError(
            f"no configuration is active in the {database.place}. Remedy: run `oracle init`, or activate one "
            "with `oracle config set`."
        )
    return _read(row)


def get(database: Database, version: int) -> ConfigVersion:
    """Read one version.

    Raises:
        ConfigError: there is none of that number, or its values cannot be used.
        StorageError: the table cannot be read.

    """
    with database.begin() as connection:
        row = connection.execute(_select().where(risk_configs.c.version == version)).first()
    if row is None:
        raise ConfigError(f"there is no configuration version {version}; `oracle config history` lists them")
    return _read(row)


def probabilistic_flag(database: Database) -> bool:
    """The active version's choice of rules; false where it cannot be read (R132-R134).

    For showing the mode. A cycle uses :func:`active`, which fails where thresholds cannot be read.

    Implements: R132.
    """
    try:
        return active(database).config.flags.probabilistic_scoring_enabled
    except (StorageError, ConfigError) as error:
        _log.warning("the pipeline mode cannot be read and counts as heuristic: %s", error)
        return False


def activate(database: Database, config: OracleConfig, changed_by: str, reason: str) -> ConfigVersion:
    """Make ``config`` the version in force, as a new version unless it already is.

    Concurrent calls end as one after the other, and exactly one version is active at any time.
    """
    with database.begin() as connection:
        return activate_within(connection, config, changed_by, reason)


def activate_within(
    connection: sa.Connection, config: OracleConfig, changed_by: str, reason: str
) -> ConfigVersion:
    """The same inside a transaction, together with whatever else has to happen at that moment."""
    lock(connection)
    row = connection.execute(_select().where(risk_configs.c.active).limit(1)).first()
    if row is not None and _text(row.config) == _text(config.stored()):
        return _read(row)
    connection.execute(risk_configs.update().where(risk_configs.c.active).values(active=False))
    row = connection.execute(
        risk_configs.insert()
        .values(active=True, config=config.stored(), changed_by=changed_by, reason=reason)
        .returning(risk_configs)
    ).one()
    return _read(row)


def lock(connection: sa.Connection) -> int | None:
    """Keep every other change of the configuration out until the transaction ends.

    Returns:
        The version in force, None without one.

    """
    connection.execute(sa.text("LOCK TABLE risk_configs IN SHARE ROW EXCLUSIVE MODE"))
    query = sa.select(risk_configs.c.version).where(risk_configs.c.active)
    version: int | None = connection.execute(query).scalar()
    return version


def candidate(database: Database, config: OracleConfig, changed_by: str, reason: str) -> ConfigVersion:
    """Store ``config`` as a version that is not active; where a version has these values, return that one."""
    with database.begin() as connection:
        connection.execute(sa.text("LOCK TABLE risk_configs IN SHARE ROW EXCLUSIVE MODE"))
        for row in connection.execute(_select()):
            if _text(row.config) == _text(config.stored()):
                return _read(row)
        row = connection.execute(
            risk_configs.insert()
            .values(active=False, config=config.stored(), changed_by=changed_by, reason=reason)
            .returning(risk_configs)
        ).one()
    return _read(row)


def history(database: Database) -> list[ConfigVersion]:
    """Every version whose values can be used, oldest first; a damaged one is logged and left out."""
    with database.begin() as connection:
        rows = connection.execute(_select()).all()
    versions = []
    for row in reversed(rows):
        try:
            versions.append(_read(row))
        except ConfigError as error:
            _log.warning("configuration version %d is left out: %s", row.version, error)
    return versions


def diff(a: OracleConfig, b: OracleConfig) -> dict[str, tuple[Any, Any]]:
    """``{path: (value in a, value in b)}`` of the settings that differ; None where one lacks the path."""
    old, new = a.settings(), b.settings()
    return {
        path: (old.get(path), new.get(path))
        for path in [*old, *(p for p in new if p not in old)]
        if path not in old or path not in new or old[path] != new[path]
    }


def insert_default(connection: sa.Connection) -> None:
    """Insert the default configuration as version 1, active, where there is no version yet."""
    if connection.execute(sa.select(sa.func.count()).select_from(risk_configs)).scalar_one() == 0:
        connection.execute(
            risk_configs.insert().values(
                active=True, config=OracleConfig().stored(), changed_by="oracle init", reason="defaults"
            )
        )


def _text(stored: object) -> str:
    # As text, because Python takes 1 for true, which the flags do not.
    return json.dumps(stored, sort_keys=True)


def _select() -> sa.Select[Any]:
    return sa.select(risk_configs).order_by(risk_configs.c.version.desc())


def _read(row: sa.Row[Any]) -> ConfigVersion:
    try:
        config, warnings = parse_stored(row.config)
    except ConfigError as error:
        raise ConfigError(
            f"configuration version {row.version} (risk_configs.config) cannot be used: {error}; "
            "activate a usable one with `oracle config set`"
        ) from None
    for warning in warnings:
        _log.warning("%s", warning)
    return ConfigVersion(row.version, row.active, config, row.changed_by, row.reason, row.updated_at)
