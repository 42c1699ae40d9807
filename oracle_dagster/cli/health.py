"""``oracle doctor``: is everything as it should be?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from oracle_dagster.cli.common import (
    EXIT_FAILED,
    HomeOption,
    JsonOption,
    console,
    folding_table,
    note,
    print_json,
    resolve_home,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    min_free: Annotated[
        float | None,
        typer.Option(
            "--min-free",
            metavar="GB",
            min=0.0,
            help="Give notice when less disk space than this is free; 2 by default.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Look for faults, and say what to do about each.

    Looks at the installation, the home, the database and the orchestrator. The exit code is 1 if something is
    broken; a notice is no fault.
    """
    from oracle_dagster.cli.common import progress
    from oracle_dagster.doctor import LOW_DISK_BYTES, Verdict, examine

    place = resolve_home(home)
    low = LOW_DISK_BYTES if min_free is None else round(min_free * 1e9)
    findings = []
    with progress("looking") as advance:
        for number, finding in enumerate(examine(place, say=note, low_disk_bytes=low), start=1):
            findings.append(finding)
            advance(number, what=f"looked at {finding.check}")
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        from rich.text import Text

        colours = {Verdict.OK: "green", Verdict.NOTICE: "yellow", Verdict.BROKEN: "bold red"}
        table = folding_table("check", "", "found")
        for f in findings:
            found = Text(f.found if f.remedy == "" else f"{f.found}\n-> {f.remedy}")
            table.add_row(f.check, Text(f.verdict.value, style=colours[f.verdict]), found)
        console().print(table)
    if any(f.verdict is Verdict.BROKEN for f in findings):
        raise typer.Exit(EXIT_FAILED)
