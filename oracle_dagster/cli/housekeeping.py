"""``oracle prune``, ``backup``, ``restore``, ``reader``: what keeps an installation in order."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from oracle_dagster.cli.common import (
    HomeOption,
    JsonOption,
    connected,
    console,
    existing_home,
    folding_table,
    instant,
    iso,
    print_json,
    progress,
)

_UNITS = {"d": 1, "w": 7}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("prune")(prune)


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
