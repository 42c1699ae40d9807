"""``oracle prune``, ``backup``, ``restore``, ``reader``: what keeps an installation in order."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from oracle_dagster.cli.common import (
    DEMO_MARK,
    HomeOption,
    JsonOption,
    connected,
    console,
    existing_home,
    folding_table,
    instant,
    iso,
    note,
    print_json,
    progress,
    resolve_home,
)

_UNITS = {"d": 1, "w": 7}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("prune")(prune)
    app.command("backup")(backup)
    app.command("restore")(restore)
    readers = typer.Typer(help="Read-only roles for exports.", no_args_is_help=True)
    app.add_typer(readers, name="reader")
    readers.command("create")(create_reader)
    readers.command("list")(list_readers)
    readers.command("drop")(drop_reader)


def age(text: str) -> timedelta:
    """Read an age: a number of days (``90d``) or weeks (``12w``), at least one day.

    Raises:
        typer.BadParameter: anything else.
    """
    found = re.fullmatch(r"(\d{1,5})([dw])", text.strip())
    days = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    if days == 0:
        raise typer.BadParameter(f"{text!r} is no age; write it in days or weeks, like 90d or 12w")
    return timedelta(days=days)


def prune(
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            "--older-than",
            parser=age,
            metavar="AGE",
            help="Remove what is older, counted from now: 90d, 12w.",
            show_default=False,
        ),
    ] = None,
    before: Annotated[
        datetime | None,
        typer.Option(
            "--before",
            parser=instant,
            metavar="TIME",
            help="Remove what is older than this moment.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Remove results, logs and orchestrator events beyond a retention.

    Inputs and configurations stay. So does everything that a kept recommendation refers to, the newest cycles
    of every key, and the newest event of every partition. Cycles from the limit on are repeated bit for bit
    as before; earlier ones cannot be repeated any more. Safe to interrupt and to repeat.
    """
    if (older_than is None) == (before is None):
        raise typer.BadParameter("give either --older-than, like 90d, or --before, like 2026-01-01T00:00:00Z")
    from oracle_dagster.housekeeping.prune import prune as remove
    from oracle_dagster.storage import migrate
    from oracle_dagster.storage.database import Database

    with connected(existing_home(home)) as connections, progress("pruning") as advance:
        database = Database(connections.domain_url)
        try:
            migrate.check(database)
            limit = before if before is not None else database.now() - (older_than or timedelta())
            done = remove(
                database,
                connections.dagster_libpq_url,
                limit,
                dry_run=dry_run,
                on_progress=lambda what, at, total: advance(at, total, f"{what}: {at:,} of {total:,}"),
            )
        finally:
            database.close()
    if as_json:
        print_json(
            {
                "before": iso(done.before),
                "dry_run": done.dry_run,
                "rows": dict(done.tables),
                "orchestrator": dict(done.orchestrator),
                "kept_events": done.kept_events,
            }
        )
        return
    print(f"{'Would remove' if dry_run else 'Removed'} what is older than {iso(done.before)}:")
    table = folding_table("table", "rows")
    table.columns[1].justify = "right"
    for name, count in (*done.tables.items(), *done.orchestrator.items()):
        table.add_row(name, f"{count:,}")
    console().print(table)
    print(f"{done.kept_events:,} older events stay, as the newest of their asset and partition.")


# ------------------------------------------------------------------------------------- backup, restore


def backup(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A folder that does not exist yet, or a new file ending in .tar."
        ),
    ],
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Save both databases with the server's own tools.

    Everything may go on running meanwhile. The backup appears under its name only when it is complete, with a
    manifest of versions, sizes and checksums. Logs that runs printed are not in it.
    """
    from oracle_dagster.housekeeping.backup import DAGSTER
    from oracle_dagster.housekeeping.backup import backup as save

    place = existing_home(home)
    mark = place.path / DEMO_MARK
    names = {DAGSTER: "the orchestrator's database"}
    with connected(place) as connections, progress("saving") as advance:
        made = save(
            connections,
            target,
            demo=mark.read_text(encoding="utf-8") if mark.exists() else None,
            on_progress=lambda what, at, total: advance(
                min(at, total), total, f"saving {names.get(what, 'the domain database')}"
            ),
        )
    size = sum(dump.bytes for dump in made.databases.values())
    if as_json:
        print_json({"path": str(target), "bytes": size, **_told(made)})
        return
    rows = sum(made.databases[name].rows[table] for name, table in _shown(made))
    print(
        f"Saved both databases to {target}: {size / 1e6:,.1f} MB, {rows:,} rows, the chain of hashes "
        "up to link "
        f"{made.links:,}."
    )


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="PATH", help="The folder or .tar file that `oracle backup` wrote.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Move databases that the home has already aside.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Load a backup into a new home, or into the empty databases of an external server.

    Cycles, the chain of hashes, the sensor's cursor and the schedules continue where they stood. If anything
    fails, nothing is left of it.
    """
    from oracle_dagster.housekeeping.restore import dagster_differs
    from oracle_dagster.housekeeping.restore import restore as load

    place = resolve_home(home)
    with progress("restoring") as advance:
        done = load(place, source, replace=replace, say=lambda text: advance(0, None, text))
    made = done.manifest
    if made.demo is not None:
        (place.path / DEMO_MARK).write_text(made.demo, encoding="utf-8")
    if as_json:
        print_json(
            {
                "home": str(place.path),
                "replaced": None if done.replaced is None else str(done.replaced),
                "interrupted_runs": done.interrupted_runs,
                "resumed_ticks": done.resumed_ticks,
                "migrated": done.migrated,
                **_told(made),
            }
        )
        return
    print(f"Restored the backup of {iso(made.made_at)} into {place.path}. `oracle verify --all` checks it.")
    if done.replaced is not None:
        note(f"the former databases are in {done.replaced.parent}; remove that folder once all is well")
    if done.interrupted_runs:
        note(f"{len(done.interrupted_runs)} runs were under way; they are marked as failed and are repeated")
    if done.readers:
        note(
            "roles are not in a backup; make these again with `oracle reader create`: "
            f"{', '.join(done.readers)}"
        )
    if dagster_differs(made):
        note(f"the backup is of Dagster {made.versions['dagster']}; run `dagster instance migrate`")


def _told(made: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest, whose module is imported late
    return {
        "made_at": iso(made.made_at),
        "versions": made.versions,
        "next_transaction_id": made.next_transaction_id,
        "links": made.links,
        "newest_hash": made.newest_hash,
        "readers": made.readers,
        "rows": {name: made.databases[name].rows for name in made.databases},
    }


def _shown(made: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - as above
    return [(name, table) for name, dump in made.databases.items() for table in dump.rows]


# --------------------------------------------------------------------------------------------- readers

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and _.")]


def create_reader(name: NameArgument, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Make a role that may read every table, also those to come, and write none.

    On an external server it gets a new password, which is printed once and stored nowhere. On the embedded
    server it needs none: name it with `oracle export --reader NAME`. Safe to repeat.
    """
    from oracle_dagster.housekeeping import readers

    with connected(existing_home(home)) as connections:
        url = connections.domain_url
        password = readers.create(url, name, with_password=not connections.embedded)
        address = readers.address(url, name, password)
        embedded = connections.embedded
    if as_json:
        print_json({"name": name, "url": address, "password": password})
        return
    print(f"The role {name} may read every table and write none. Its address:\n{address}")
    note(
        f"use it with `oracle export TABLE --format csv --reader {name}`, or by any program while the "
        "server runs"
        if embedded
        else "the password is stored nowhere; to use it: ORACLE_DATABASE_URL='…' oracle export TABLE "
        "--format csv"
    )


def list_readers(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the read-only roles."""
    import psycopg

    from oracle_dagster.housekeeping.readers import readers

    with connected(existing_home(home)) as connections, psycopg.connect(connections.domain_url) as connection:
        found = readers(connection)
    if as_json:
        print_json(
            [{"name": r.name, "can_log_in": r.can_log_in, "connections": r.connections} for r in found]
        )
        return
    table = folding_table("role", "log in", "connections")
    for reader in found:
        table.add_row(reader.name, "yes" if reader.can_log_in else "no", str(reader.connections))
    console().print(table if found else "There are no read-only roles.")


def drop_reader(name: NameArgument, home: HomeOption = None) -> None:
    """Remove a read-only role."""
    from oracle_dagster.housekeeping import readers

    with connected(existing_home(home)) as connections:
        readers.drop(connections.domain_url, name)
    print(f"The role {name} is gone.")
