"""``oracle explain``: why a recommendation is what it is, and what would change it."""

from __future__ import annotations

from typing import Annotated

import typer

from oracle_core.enums import Window
from oracle_dagster.cli.common import (
    AsOf,
    HomeOption,
    JsonOption,
    console,
    opened,
    print_json,
    progress,
)

SHOWN_SIGNALS = 10


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="The entity's id.")],
    window: Annotated[Window, typer.Argument(metavar="WINDOW", help="intraday, 1d, 7d, 30d or 90d.")],
    as_of: AsOf = None,
    config_version: Annotated[
        int | None,
        typer.Option(
            "--config-version",
            metavar="N",
            help="Of several cycles of one moment, the one under this version of the configuration.",
            show_default=False,
        ),
    ] = None,
    signals: Annotated[
        int, typer.Option("--signals", metavar="N", min=0, help="List this many signals one by one.")
    ] = SHOWN_SIGNALS,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Explain one recommendation, from the decision back to the documents.

    By default the newest cycle of the entity and window; --as-of names another. The cycle is computed again
    from what it read, compared with what it stored, and nothing is written. With --json every number in full.
    """
    from oracle_dagster.explaining import gather

    key = (entity, window.value)
    with opened(home) as database, progress("explaining"):
        chosen = gather.choose(database, key, as_of, config_version)
        page = gather.page(database, chosen)
    if as_json:
        print_json(page)
    else:
        from oracle_dagster.explaining.terminal import print_page

        print_page(console(), page, signals)
