"""``oracle export``: any table or view as CSV, JSON lines or Parquet."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from oracle_dagster.cli.common import AsOf, HomeOption, connected, existing_home, note, progress


class Format(StrEnum):
    """The forms a table can be exported in."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A table or view; an unknown name prints the list of all.")
    ],
    form: Annotated[Format, typer.Option("--format", help="The form of the output.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write here instead of stdout; an existing file is replaced once the export is complete.",
            show_default=False,
        ),
    ] = None,
    as_of: AsOf = None,
    entity: Annotated[
        str | None,
        typer.Option(
            "--entity", metavar="ID", help="Only the rows of this entity, by id or name.", show_default=False
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            "--reader",
            metavar="NAME",
            help="Read as this role of the embedded server, made by `oracle reader create`.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Print a table as CSV, JSON lines or Parquet.

    Exactly the table's columns, in their order; rows in the order of their key.

    JSON columns are JSON values in jsonl and JSON text in csv and parquet; times are ISO 8601 in UTC; numbers
    are exact. With --as-of: of a result table the rows of that cycle, of an input table what was known then.
    """
    from oracle_dagster.export import UnknownTableError, export_table, exportable
    from oracle_dagster.housekeeping.readers import address

    if table not in exportable():  # before any server is started
        raise UnknownTableError(table)
    if form is Format.PARQUET and out is None and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is binary; name a file with --out")
    domain_only = connected(existing_home(home), orchestrator=False)
    with domain_only as connections, progress(f"exporting {table}") as advance:
        if reader is not None and not connections.embedded:
            raise typer.BadParameter(
                "--reader is for the embedded server; set ORACLE_DATABASE_URL to the address of the reader"
            )
        rows = export_table(
            connections.domain_url if reader is None else address(connections.domain_url, reader, None),
            table,
            form.value,
            out=out if out is not None else sys.stdout.buffer,
            as_of=as_of,
            entity=entity,
            on_rows=lambda done: advance(done, what=f"exporting {table}: {done:,} rows"),
        )
    if out is not None:
        note(f"wrote {rows:,} rows of {table} to {out}")
