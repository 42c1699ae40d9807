"""Save both databases of a home with the server's own tools, so that a restore continues where it stood.

The orchestrator's database is saved first and the domain's afterwards: so the domain is never older than what
the orchestrator's events and the sensor's cursor say of it. Each is one snapshot; counts and the newest link
of the chain of hashes are read in the same snapshot as the dump. Transaction ids are part of what is saved:
cycles, the chain of hashes and the sensor's cursor name them, and a restore never renumbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from oracle_dagster.housekeeping import server_tools
from oracle_dagster.storage.migrate import VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oracle_dagster.home import Connections

    Progress = Callable[[str, int, int], None]

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
DOMAIN: Final = "domain"
DAGSTER: Final = "dagster"
TAR: Final = ".tar"
PACKAGE: Final = "oracle-pipeline"
DAGSTER_VERSION_TABLE: Final = "alembic_version"
_CHUNK: Final = 1 << 20
_LOCK_WAIT: Final = "60s"
_USER_TABLES: Final = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_toast%' AND n.nspname NOT LIKE 'pg\\_temp%' ORDER BY 1, 2"""


class BackupError(RuntimeError):
    """A backup cannot be written or read; the message names place, reason and remedy."""


@dataclass(frozen=True)
class Dump:
    """One saved database: its file in the backup, the revision of its tables, and their numbers of rows."""

    file: str
    bytes: int
    sha256: str
    revision: str | None
    rows: dict[str, int]


@dataclass(frozen=True)
class Manifest:
    """What a backup holds and what it needs.

    ``next_transaction_id`` is above every transaction id that is stored; ``links`` and ``newest_hash`` are
    the chain of hashes; ``readers`` are the read-only roles, which are the server's and not in the dumps.
    """

    format: int
    made_at: datetime
    versions: dict[str, str]
    server_version: int
    server_major: int
    tool_major: int
    next_transaction_id: int
    links: int
    newest_hash: str | None
    readers: list[str]
    databases: dict[str, Dump]
    demo: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of an unpacked backup.

        Raises:
            BackupError: there is none, or it cannot be understood.

        """
        path = folder / MANIFEST
        try:
            values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BackupError(
                f"{folder} is no backup: {MANIFEST} cannot be read ({error}). Name the folder or the "
                f"{TAR} file "
                "that `oracle backup` wrote."
            ) from None
        if values.get("format") != FORMAT:
            raise BackupError(
                f"The backup {folder} has the format {values.get('format')!r}, this version reads {FORMAT}. "
                "Restore it with the version of oracle that wrote it: see `versions` in its manifest."
            )
        try:
            values["made_at"] = datetime.fromisoformat(values["made_at"])
            values["databases"] = {name: Dump(**dump) for name, dump in values["databases"].items()}
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise BackupError(f"{path} is incomplete ({error}). Take another backup.") from None

    def text(self) -> str:
        """As it is written."""
        return json.dumps(asdict(self), indent=1, default=lambda value: value.isoformat()) + "\n"


def backup(
    connections: Connections, target: Path, *, demo: str | None = None, on_progress: Progress | None = None
) -> Manifest:
    """Save both databases into a new folder, or into one file if the name ends in ``.tar``.

    It appears under its name only when it is complete. Services may run meanwhile.

    Args:
        connections: of the home.
        target: must not exist yet (an empty folder may).
        demo: content of the mark of the demo's home, where there is one.
        on_progress: told what is saved, the bytes written and an upper bound of them.

    Raises:
        BackupError: the target is there already or cannot be written.
        ToolError: no tool fits the server, or it failed.
        psycopg.Error: a database cannot be used.

    """
    packed = target.suffix == TAR
    if target.is_file() or (target.is_dir() and (packed or any(target.iterdir()))):
        raise BackupError(f"{target} exists already. Choose another name; a backup is never overwritten.")
    target = Path(os.path.abspath(target))  # noqa: PTH100 - resolve() would follow links
    work: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        manifest = _save(connections, work, demo, on_progress)
        if packed:
            file = work / "backup.tar"
            with tarfile.open(file, "w") as tar:  # the dumps are compressed already
                for name in (MANIFEST, *(dump.file for dump in manifest.databases.values())):
                    tar.add(work / name, name)
            _sync(file)
            file.rename(target)
        else:
            if target.is_dir():
                target.rmdir()
            work.rename(target)
        _sync(target.parent)
    except OSError as error:
        raise BackupError(
            f"The backup {target} cannot be written: {error.strerror}: {error.filename}. Free some space or "
            "choose another folder."
        ) from error
    finally:
        if work is not None:
            shutil.rmtree(work, ignore_errors=True)
    return manifest


def _save(connections: Connections, work: Path, demo: str | None, on_progress: Progress | None) -> Manifest:
    from oracle_dagster.housekeeping.readers import readers

    urls = {DAGSTER: connections.dagster_libpq_url, DOMAIN: connections.domain_url}
    with psycopg.connect(connections.domain_url) as connection:
        version = connection.info.server_version
        roles = [reader.name for reader in readers(connection)]
    dumps: dict[str, Dump] = {}
    facts: dict[str, Any] = {}
    newest_tool = 0
    for name, url in urls.items():  # in this order: see the head of this file
        with psycopg.connect(url) as connection:
            tools = server_tools.for_dump(connection.info.server_version // 10_000)
            newest_tool = max(newest_tool, tools.major)
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            dumps[name], facts[name] = _dump(connection, tools, url, work / f"{name}.dump", on_progress)
    manifest = Manifest(
        format=FORMAT,
        made_at=datetime.now(UTC),
        versions={n: metadata.version(n) for n in (PACKAGE, "dagster", "dagster-postgres")},
        server_version=version,
        server_major=version // 10_000,
        tool_major=newest_tool,
        next_transaction_id=facts[DOMAIN]["next_transaction_id"],
        links=facts[DOMAIN]["links"],
        newest_hash=facts[DOMAIN]["newest_hash"],
        readers=roles,
        databases=dumps,
        demo=demo,
    )
    path = work / MANIFEST
    path.write_text(manifest.text(), encoding="utf-8")
    _sync(path)
    return manifest


def _dump(
    connection: psycopg.Connection,
    tools: server_tools.Tools,
    url: str,
    file: Path,
    on_progress: Progress | None,
) -> tuple[Dump, dict[str, Any]]:
    row = connection.execute(
        """SELECT pg_export_snapshot(), pg_database_size(current_database()),
                  pg_snapshot_xmax(pg_current_snapshot())::text::bigint"""
    ).fetchone()
    assert row is not None  # noqa: S101 - a query without FROM has a row
    snapshot, size, next_id = row
    name = file.stem

    def tick() -> None:
        if on_progress is not None:
            on_progress(name, file.stat().st_size if file.exists() else 0, size)

    options = ["--format=custom", "--no-owner", "--no-privileges", f"--lock-wait-timeout={_LOCK_WAIT}"]
    server_tools.run(
        tools, "pg_dump", url, [*options, f"--snapshot={snapshot}", f"--file={file}"], on_tick=tick
    )
    rows = counts(connection)
    table = VERSION_TABLE if name == DOMAIN else DAGSTER_VERSION_TABLE
    links, newest = chain(connection) if "public.cycle_seals" in rows else (0, None)
    dump = Dump(file.name, file.stat().st_size, digest(file), revision(connection, table, rows), rows)
    return dump, {"next_transaction_id": next_id, "links": links, "newest_hash": newest}


def counts(connection: psycopg.Connection) -> dict[str, int]:
    """The numbers of rows of every table that is not the server's own, by schema and name."""
    found = {}
    for schema, table in connection.execute(_USER_TABLES).fetchall():
        count = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
        (found[f"{schema}.{table}"],) = connection.execute(count).fetchone() or (0,)
    return found


def chain(connection: psycopg.Connection) -> tuple[int, str | None]:
    """The number of links of the chain of hashes, and the newest hash."""
    row = connection.execute("SELECT number, hash FROM cycle_seals ORDER BY number DESC LIMIT 1").fetchone()
    return (0, None) if row is None else (int(row[0]), str(row[1]))


def revision(connection: psycopg.Connection, table: str, rows: dict[str, int]) -> str | None:
    """The revision that a database's tables are at; None where it has none."""
    if f"public.{table}" not in rows:
        return None
    query = sql.SQL("SELECT version_num FROM {}").format(sql.Identifier(table))
    row = connection.execute(query).fetchone()
    return None if row is None else str(row[0])


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    found = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


@contextlib.contextmanager
def unpacked(source: Path, near: Path) -> Iterator[Path]:
    """The folder of a backup; a ``.tar`` file is unpacked below ``near`` for as long as the block runs.

    Raises:
        BackupError: there is no backup under this name.

    """
    if source.is_dir():
        yield source
        return
    with contextlib.ExitStack() as stack:
        try:
            near.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="unpacked-", dir=near))
            with tarfile.open(source) as tar:
                tar.extractall(folder, filter="data")
        except (tarfile.TarError, OSError) as error:
            raise BackupError(
                f"{source} cannot be read as a backup ({error}). Name the folder or the {TAR} file that "
                "`oracle backup` wrote."
            ) from None
        yield Path(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
