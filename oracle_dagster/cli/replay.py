"""``oracle replay``: the pipeline over history, and how good its decisions were."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_core.enums import Window
from oracle_dagster.cli.common import (
    CommandError,
    HomeOption,
    JsonOption,
    assignments,
    connected,
    console,
    existing_home,
    folding_table,
    instant,
    note,
    print_json,
    progress,
)
from oracle_dagster.cli.plan import settings_of

if TYPE_CHECKING:
    from oracle_dagster.storage.database import Database
    from oracle_dagster.storage.replays import Configuration

ACTIVE = "active"
CHANGED = "changed"
_EVERY = re.compile(r"(\d+)(h|d|w)")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def every(text: str) -> timedelta:
    """Read a distance of time such as 12h, 1d or 2w.

    Raises:
        typer.BadParameter: not a whole number of hours, days or weeks above 0.
    """
    found = _EVERY.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a distance of time; write it like 12h, 1d or 1w")
    return int(found[1]) * _UNITS[found[2]]


def replay(
    first: Annotated[
        datetime,
        typer.Option(
            "--from", parser=instant, metavar="TIME", help="The first moment: ISO 8601 with an offset."
        ),
    ],
    last: Annotated[
        datetime,
        typer.Option("--to", parser=instant, metavar="TIME", help="The last moment, included."),
    ],
    step: Annotated[
        timedelta,
        typer.Option("--every", parser=every, metavar="SPAN", help="From cycle to cycle: 12h, 1d, 1w."),
    ] = "1d",  # type: ignore[assignment] # the parser reads it
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=FILE",
            help="A configuration to compare: settings on top of the active one from a TOML or JSON file, or "
            "the number of a stored version. May be repeated.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help=f"The same from the command line, under the name '{CHANGED}'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    without_active: Annotated[
        bool, typer.Option("--without-active", help="Leave the active configuration out.")
    ] = False,
    window: Annotated[
        list[Window] | None,
        typer.Option(
            "--window",
            metavar="WINDOW",
            help="Only these windows (intraday, 1d, 7d, 30d, 90d); may be repeated.",
            show_default=False,
        ),
    ] = None,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            "--entity", metavar="ID", help="Only these entities; may be repeated.", show_default=False
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write the report with pictures to this file, which stands alone.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=1,
            help="How many work at once; by default as many as there are cores.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Decide history again, each cycle with the knowledge of its day, and say how good it was.

    Configurations run side by side over what is stored now and was known by each moment; the active one is
    always among them. Results go to tables of their own. A killed replay goes on with the same command, and a
    finished one is only reported again. Judged against the return of the seven days after each cycle, where
    these are settled.
    """
    from oracle_dagster.replaying import engine, page
    from oracle_dagster.replaying.report import report
    from oracle_dagster.storage import migrate
    from oracle_dagster.storage.database import Database

    request = engine.Request(
        first,
        last,
        step,
        tuple(w.value for w in Window if w in window) if window else tuple(w.value for w in Window),
        tuple(entity) if entity else None,
    )
    with connected(existing_home(home)) as connections:
        database = Database(connections.domain_url)
        try:
            migrate.check(database)
            chosen = _configurations(database, config or [], settings or [], without_active=without_active)
            with progress("replaying") as advance:
                try:
                    done = engine.replay(
                        database,
                        request,
                        chosen,
                        url=connections.domain_url,
                        processes=processes or os.cpu_count() or 1,
                        on_progress=lambda done, total: advance(
                            done, total, f"replaying: {done:,} of {total:,} cycles"
                        ),
                    )
                except ValueError as error:
                    raise CommandError(str(error)) from None
            with progress("judging"):
                found = report(database, request, done)
        finally:
            database.close()
    if html is not None:
        html.write_text(page.document(found), encoding="utf-8")
        note(f"wrote {html}")
    if as_json:
        print_json(found)
    else:
        _print(found)


def _configurations(
    database: Database, named: list[str], settings: list[str], *, without_active: bool
) -> list[Configuration]:
    from oracle_dagster.storage import configuration
    from oracle_dagster.storage.replays import Configuration

    active = configuration.active(database).config
    chosen = [] if without_active else [Configuration(ACTIVE, active)]
    for text in named:
        name, separator, source = text.partition("=")
        if separator == "" or name.strip() == "" or source == "":
            raise typer.BadParameter(f"{text!r} is not NAME=FILE; write it like bold=bold.toml or old=3")
        if source.isdecimal():
            chosen.append(Configuration(name.strip(), configuration.get(database, int(source)).config))
        else:
            wanted = settings_of(Path(source))
            chosen.append(Configuration(name.strip(), active.with_settings(wanted)))
    if settings:
        chosen.append(Configuration(CHANGED, active.with_settings(assignments(settings))))
    names = [each.name for each in chosen]
    if not names or len(set(names)) < len(names):
        raise typer.BadParameter(
            f"name at least one configuration, and each differently: {', '.join(names) or 'there is none'}"
        )
    return chosen


def _print(found: dict[str, Any]) -> None:
    from oracle_dagster.replaying import page

    for text in page.summary(found):
        print(f"{text}.")
    for configuration in found["configurations"]:
        table = folding_table(*page.QUALITY)
        table.title = configuration["name"]
        table.title_justify = "left"
        for column in table.columns[2:]:
            column.justify = "right"
        for row in page.quality_rows(configuration):
            table.add_row(*row)
        console().print(table)
