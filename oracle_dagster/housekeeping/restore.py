"""Load a backup, so that everything goes on where it stood: history, sensor, schedules.

Nothing is renumbered. Cycles, the chain of hashes and the sensor's cursor name transactions by their ids, so
the server that takes the backup must count from above the newest of them. A new embedded server is made so;
an external one that counts lower is refused.

The embedded server is filled and checked in a folder beside its final place and moved there in one step. The
databases of an external server must be empty, and are emptied again if anything fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from oracle_dagster.embedded_postgres import POSTGRES_MAJOR, EmbeddedPostgres, ServerTimeoutError
from oracle_dagster.home import DAGSTER_DATABASE, DATABASE_VARIABLE, DOMAIN_DATABASE, STORAGE_VARIABLE, Home
from oracle_dagster.housekeeping import server_tools
from oracle_dagster.housekeeping.backup import DAGSTER, DOMAIN, Manifest, chain, counts, digest, unpacked
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[[str], None]

IN_USE_SECONDS: Final = 15.0
_UNFINISHED: Final = ("STARTING", "STARTED", "CANCELING")
_OBJECTS: Final = """
    SELECT n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('e', 'i', 'a'))
    ORDER BY c.relkind = 'S'"""
_KINDS: Final = {"v": "VIEW", "m": "MATERIALIZED VIEW", "S": "SEQUENCE", "f": "FOREIGN TABLE"}


class RestoreError(RuntimeError):
    """A backup cannot be restored here; nothing was changed, and the message names the remedy."""


@dataclass
class Restored:
    """What was restored, and what was done to what had been under way when the backup was taken.

    ``replaced`` is where the former databases of the home were moved. ``readers`` are read-only roles to be
    made again, because roles are not in a backup. ``migrated`` are revisions applied to an older backup.
    """

    manifest: Manifest
    replaced: Path | None = None
    interrupted_runs: list[str] = field(default_factory=list)
    resumed_ticks: int = 0
    migrated: list[str] = field(default_factory=list)

    @property
    def readers(self) -> list[str]:
        """The read-only roles to be made again."""
        return self.manifest.readers


def restore(home: Home, source: Path, *, replace: bool = False, say: Say = lambda _: None) -> Restored:
    """Load a backup into a home: its embedded server, or the external one that the environment names.

    Args:
        home: where to.
        source: folder or ``.tar`` file that :func:`oracle_dagster.housekeeping.backup.backup` wrote.
        replace: whether the databases of a home that has some may be moved aside.
        say: told what is being done.

    Raises:
        BackupError: the backup cannot be read.
        RestoreError: it is damaged, or does not fit; or the home is not empty.
        ToolError: the server is older than the backup, or a tool is missing or failed.

    """
    external = os.environ.get(DATABASE_VARIABLE, "") != ""
    if not external:
        _refuse_used(home, replace=replace)
    with unpacked(source, home.path) as folder:
        manifest = Manifest.read(folder)
        say("checking the backup")
        _check(manifest, folder, source)
        if external:
            return _into_external(home, manifest, folder, say)
        return _into_embedded(home, manifest, folder, say)


def _refuse_used(home: Home, *, replace: bool) -> None:
    if home.pg_dir.exists() and not replace:
        raise RestoreError(
            f"The home {home.path} holds databases already. Name a new one with --home, or give --replace, "
            "which moves them aside."
        )
    if home.pg_dir.exists():
        try:
            EmbeddedPostgres(home.path, startup_seconds=IN_USE_SECONDS).wait_until_stopped()
        except ServerTimeoutError:
            raise RestoreError(
                f"The databases of {home.path} are in use. End `oracle dev` and other oracle processes "
                "of this "
                "home, then run this again."
            ) from None


def _check(manifest: Manifest, folder: Path, source: Path) -> None:
    for name in (DAGSTER, DOMAIN):
        dump = manifest.databases.get(name)
        file = folder / ("" if dump is None else dump.file)
        if dump is None or not file.is_file() or file.stat().st_size != dump.bytes:
            raise RestoreError(
                f"The backup {source} is damaged: its file of the {name} database is missing or cut off. Use "
                "another backup."
            )
        if digest(file) != dump.sha256:
            raise RestoreError(
                f"The backup {source} is damaged: {dump.file} is not what was written (its SHA-256 differs). "
                "Use another backup."
            )
    revision = manifest.databases[DOMAIN].revision
    if revision is not None and revision not in migrate.revisions():
        raise RestoreError(
            f"The backup {source} has tables of revision {revision}, which this version does not know. "
            "Restore "
            f"it with the version of oracle that wrote it: {manifest.versions}."
        )


# -------------------------------------------------------------------------------------------- embedded


def _into_embedded(home: Home, manifest: Manifest, folder: Path, say: Say) -> Restored:
    server_tools.for_restore(POSTGRES_MAJOR, manifest.tool_major)
    done = Restored(manifest)
    staging = Home(home.path / "restoring")
    with _staged(staging) as server:
        say("making a new database server")
        server.create(above_transaction=manifest.next_transaction_id)
        with server.acquire() as lease:
            urls = {DAGSTER: lease.url(DAGSTER_DATABASE), DOMAIN: lease.url(DOMAIN_DATABASE)}
            _load(manifest, folder, urls, say)
            _finish(staging, done, urls, say)
        server.wait_until_stopped()
        if home.pg_dir.exists():
            moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            done.replaced = home.path / f"replaced-{moment}" / "pg"
            EmbeddedPostgres(home.path, startup_seconds=IN_USE_SECONDS).take_away(done.replaced)
        server.take_away(home.pg_dir)
    home.write_dagster_yaml()
    return done


@contextlib.contextmanager
def _staged(staging: Home) -> Iterator[EmbeddedPostgres]:
    """A server in a folder that is gone afterwards, whatever happens."""
    server = EmbeddedPostgres(staging.path)
    if staging.path.exists():  # of a restore that was killed; its server stops by itself
        server.wait_until_stopped()
        shutil.rmtree(staging.path)
    try:
        yield server
    finally:
        if staging.pg_dir.exists():
            server.wait_until_stopped()
        shutil.rmtree(staging.path, ignore_errors=True)


# -------------------------------------------------------------------------------------------- external


def _into_external(home: Home, manifest: Manifest, folder: Path, say: Say) -> Restored:
    done = Restored(manifest)
    with home.connect(say) as connections:
        urls = {DAGSTER: connections.dagster_libpq_url, DOMAIN: connections.domain_url}
        for url in urls.values():
            _refuse_filled(url)
        _refuse_behind(urls[DOMAIN], manifest)
        try:
            _load(manifest, folder, urls, say)
            _finish(home, done, urls, say)
        except BaseException:
            say("emptying the databases again")
            for url in urls.values():
                _clear(url)
            raise
    return done


def _refuse_filled(url: str) -> None:
    with psycopg.connect(url) as connection:
        name = connection.info.dbname
        if connection.execute(_OBJECTS).fetchone() is not None:
            raise RestoreError(
                f"The database {name!r} of the external server is not empty, and a restore replaces "
                "none there. "
                f'Empty it (DROP DATABASE "{name}"; CREATE DATABASE "{name}";) or name another with '
                f"{DATABASE_VARIABLE}."
            )


def _refuse_behind(url: str, manifest: Manifest) -> None:
    """An external server must have counted beyond every transaction that the backup names."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    assert row is not None  # noqa: S101 - a query without FROM has a row
    at, wanted = int(row[0]), manifest.next_transaction_id
    if at >= wanted:
        return
    raise RestoreError(
        f"The external server has counted to transaction {at:,}, but the backup names transactions up to "
        f"{wanted:,}: cycles, the chain of hashes and the sensor's cursor would lie in its future. Let its "
        f"administrator advance it: stop the server, run `pg_resetwal --epoch={(wanted >> 32) + 1} -D "
        "DATA` (its "
        "standbys must be made anew), start it. Where that is not possible, use up the missing "
        f"{wanted - at:,} "
        "transactions: DO $$BEGIN FOR i IN 1.."
        f"{wanted - at} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END$$; Or restore into "
        "the embedded "
        f"server (unset {DATABASE_VARIABLE})."
    )


def _clear(url: str) -> None:
    with contextlib.suppress(psycopg.Error), psycopg.connect(url) as connection:
        for schema, name, kind in connection.execute(_OBJECTS).fetchall():
            drop = sql.SQL("DROP {} IF EXISTS {} CASCADE")
            connection.execute(drop.format(sql.SQL(_KINDS.get(kind, "TABLE")), sql.Identifier(schema, name)))


# ------------------------------------------------------------------------------------------------ both


def _load(manifest: Manifest, folder: Path, urls: dict[str, str], say: Say) -> None:
    """Load both databases, and compare them with what the manifest says was saved."""
    for name, url in urls.items():
        dump = manifest.databases[name]
        say(f"loading the {name} database ({dump.bytes / 1e6:,.1f} MB)")
        with psycopg.connect(url) as connection:
            major = connection.info.server_version // 10_000
        tools = server_tools.for_restore(major, manifest.tool_major)
        options = ["--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
        server_tools.run(tools, "pg_restore", url, [*options, str(folder / dump.file)])
        with psycopg.connect(url, autocommit=True) as connection:
            found = counts(connection)
            newest = chain(connection) if name == DOMAIN and "public.cycle_seals" in found else None
            connection.execute("ANALYZE")
        wrong = sorted(t for t in {*found, *dump.rows} if found.get(t) != dump.rows.get(t))
        if wrong:
            table = wrong[0]
            raise RestoreError(
                f"The {name} database was not restored whole: {table} has {found.get(table)} rows instead of "
                f"{dump.rows.get(table)}. Restore again, or use another backup."
            )
        if newest is not None and newest != (manifest.links, manifest.newest_hash):
            raise RestoreError(
                f"The chain of hashes ends at link {newest[0]}, not where it was saved "
                f"({manifest.links}). Use "
                "another backup."
            )


def _finish(home: Home, done: Restored, urls: dict[str, str], say: Say) -> None:
    """Bring the tables to this version, and end what was under way when the backup was taken."""
    database = Database(urls[DOMAIN])
    try:
        done.migrated = migrate.upgrade(database)
        moment = database.transaction()
    finally:
        database.close()
    if moment < done.manifest.next_transaction_id:
        raise RestoreError(
            f"The server counts transactions from {moment:,}, below "
            f"{done.manifest.next_transaction_id:,} that "
            "the backup names. Restore again, into a new home."
        )
    with psycopg.connect(urls[DAGSTER]) as connection:
        runs = _count(connection, "runs", "status = ANY(%s)", list(_UNFINISHED))
        ticks = _count(connection, "job_ticks", "status = %s", "STARTED")
    if runs + ticks > 0:
        say("ending what was under way when the backup was taken")
        _end_interrupted(home, done, urls[DAGSTER])


def _count(connection: psycopg.Connection, table: str, condition: str, value: object) -> int:
    there = connection.execute("SELECT to_regclass(%s)", [f"public.{table}"]).fetchone()
    if there is None or there[0] is None:
        return 0
    query = f"SELECT count(*) FROM {table} WHERE {condition}"  # noqa: S608 - constants of this file
    row = connection.execute(query.encode(), [value]).fetchone()
    return 0 if row is None else int(row[0])


def _end_interrupted(home: Home, done: Restored, dagster_url: str) -> None:
    """Runs whose worker is not here are failed, so that they are repeated; cut-off ticks are taken up again.

    The cursor of a tick is stored before its runs are launched. A tick that was cut off in between is marked
    as failed with its runs still to be requested, for such a one is retried however old it is.
    """
    from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
    from dagster._core.scheduler.instigation import TickStatus
    from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]

    home.write_dagster_yaml()
    before = os.environ.get(STORAGE_VARIABLE)
    os.environ[STORAGE_VARIABLE] = "postgresql+psycopg2" + dagster_url.removeprefix("postgresql")
    why = "The database was restored from a backup that was taken while this was under way."
    try:
        with DagsterInstance.from_config(str(home.dagster_dir)) as instance:
            for run in instance.get_runs(RunsFilter(statuses=[DagsterRunStatus(s) for s in _UNFINISHED])):
                if run.status is DagsterRunStatus.CANCELING:
                    instance.report_run_canceled(run, why)
                else:
                    instance.report_run_failed(run, why)
                done.interrupted_runs.append(run.run_id)
            for state in instance.all_instigator_state():
                for tick in instance.get_ticks(
                    state.instigator_origin_id, state.selector_id, statuses=[TickStatus.STARTED]
                ):
                    error = SerializableErrorInfo(why, [], "RestoredFromBackup")
                    instance.update_tick(tick.with_status(TickStatus.FAILURE, error=error))
                    done.resumed_ticks += 1
    finally:
        if before is None:
            del os.environ[STORAGE_VARIABLE]
        else:
            os.environ[STORAGE_VARIABLE] = before


def dagster_differs(manifest: Manifest) -> bool:
    """Whether another version of the orchestrator wrote its tables."""
    return manifest.versions.get("dagster") != metadata.version("dagster")
