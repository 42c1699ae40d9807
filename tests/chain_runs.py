"""Runs of the chain for tests: the product's definitions on a given database and orchestrator's storage."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from psycopg import sql

from oracle_dagster.definitions import build_defs
from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.home import Home
from oracle_dagster.jobs import CYCLE_JOB
from oracle_dagster.partitions import RANGE_END_TAG, RANGE_START_TAG
from oracle_dagster.pipeline import STAGES
from oracle_dagster.resources import OracleDatabase
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database
from tests.storage_rows import AS_OF, WINDOWS, World, insert_world

WHEN = AS_OF.isoformat()
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_databases: dict[str, Database] = {}


class FixedDatabase(OracleDatabase):
    """The resource, but for a database that the test names."""

    url: str

    def open(self) -> Database:
        """Open it once."""
        return _databases.setdefault(self.url, Database(self.url))


@dataclass(frozen=True)
class Run:
    """What one run left with the orchestrator."""

    id: str
    success: bool
    materialised: Mapping[str, list[str | None]]
    checks: Mapping[tuple[str, str], dg.AssetCheckEvaluation]
    error: str

    def counts(self) -> dict[str, int]:
        """Materialisations by asset of the chain; a key that was reported twice fails here."""
        for asset in STAGES:
            repeated = [key for key, n in Counter(self.materialised.get(asset, [])).items() if n > 1]
            assert not repeated, (asset, repeated)
        return {asset: len(self.materialised[asset]) for asset in STAGES if asset in self.materialised}


class Chain:
    """The product's definitions on one database and one orchestrator's storage."""

    def __init__(self, database_url: str, instance: dg.DagsterInstance) -> None:
        """Assemble the definitions as the product does."""
        self.database = _databases.setdefault(database_url, Database(database_url))
        self.instance = instance
        self.defs = build_defs(resources={"database": FixedDatabase(url=database_url)})
        self.job = self.defs.resolve_job_def(CYCLE_JOB)

    def run(
        self,
        *,
        tags: Mapping[str, str] | None = None,
        assets: Sequence[str] | None = None,
        as_of: str | None = WHEN,
        config_version: int | None = None,
        **keys: Any,  # noqa: ANN401 - of the step's configuration
    ) -> Run:
        """Execute the cycle job in this process; ``keys`` is the configuration of the chain's step."""
        cycle = {"as_of": as_of, "config_version": config_version}
        config: dict[str, Any] = {
            **QUIET,
            "resources": {"cycle": {"config": {k: v for k, v in cycle.items() if v is not None}}},
        }
        if keys:
            config["ops"] = {"decision_chain": {"config": keys}}
        result = self.job.execute_in_process(
            run_config=config,
            instance=self.instance,
            tags=dict(tags or {}),
            asset_selection=None if assets is None else [dg.AssetKey(name) for name in assets],
            raise_on_error=False,
        )
        return self.seen(result.run_id)

    def seen(self, run_id: str) -> Run:
        """What the orchestrator has stored of a run."""
        materialised: dict[str, list[str | None]] = {}
        checks: dict[tuple[str, str], dg.AssetCheckEvaluation] = {}
        error = ""
        for entry in self.instance.all_logs(run_id):
            event = entry.dagster_event
            if event is None:
                continue
            if event.is_step_materialization:
                found = event.step_materialization_data.materialization
                materialised.setdefault(found.asset_key.to_user_string(), []).append(found.partition)
            if event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                data = event.asset_check_evaluation_data
                checks[data.asset_key.to_user_string(), data.check_name] = data
            if event.is_step_failure:
                failure = event.step_failure_data
                told = failure.user_failure_data
                error += f"{'' if told is None else told.description} {failure.error}"
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return Run(run_id, run.is_success, materialised, checks, error)

    def stale(self, asset: str, keys: Sequence[str]) -> list[str]:
        """Those of the keys that the orchestrator calls stale."""
        resolver = CachingStaleStatusResolver(
            self.instance, self.defs.resolve_asset_graph(), LoadingContextForTest(self.instance)
        )
        return [key for key in keys if resolver.get_status(dg.AssetKey(asset), key) is StaleStatus.STALE]

    def tags(self, asset: str, key: str) -> Mapping[str, str]:
        """The tags of the newest materialisation of a key."""
        found = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[key]), limit=1
        )
        materialisation = found.records[0].asset_materialization
        assert materialisation is not None
        return materialisation.tags or {}


def of_range(start: str, end: str) -> dict[str, str]:
    """The tags of a run over a rectangle of partitions."""
    return {RANGE_START_TAG: start, RANGE_END_TAG: end}


def of_key(entity: str, window: str) -> dict[str, str]:
    """The tags that the user interface gives a run of one partition."""
    return {
        "dagster/partition": f"{entity}|{window}",
        "dagster/partition/entity": entity,
        "dagster/partition/window": window,
    }


def keys_of(*entities: str) -> list[str]:
    """Every window of the entities."""
    return [f"{entity}|{window}" for entity in entities for window in WINDOWS]


def fresh_database(home: Path, prefix: str, template: str = "template0") -> Iterator[str]:
    """The URL of a database of its own on the shared server, made from a template and dropped afterwards."""
    server = EmbeddedPostgres(home)
    name = f"{prefix}_{secrets.token_hex(6)}"
    create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
        sql.Identifier(name), sql.Identifier(template)
    )
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(create)
    try:
        yield server.url(name)
    finally:
        opened = _databases.pop(server.url(name), None)
        if opened is not None:
            opened.close()
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(drop)


def with_driver(url: str) -> str:
    """The same URL for the orchestrator's storage, which names its driver."""
    return "postgresql+psycopg2" + url.removeprefix("postgresql")


def database_name(url: str) -> str:
    """The database that a URL names."""
    return psycopg.conninfo.conninfo_to_dict(url)["dbname"]  # type: ignore[return-value]


def home_on(
    folder: Path,
    database_url: str,
    dagster_url: str,
    monkeypatch: pytest.MonkeyPatch,
    world: World | None = None,
) -> Home:
    """A home on two databases of the shared server, with a world put into it if one is given."""
    monkeypatch.setenv("ORACLE_DATABASE_URL", database_url)
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", dagster_url)
    monkeypatch.setenv("ORACLE_HOME", str(folder))
    database = Database(database_url)
    migrate.upgrade(database)
    database.close()
    if world is not None:
        with psycopg.connect(database_url) as connection:
            insert_world(connection, world)
    return Home(folder)
