"""``oracle explain``: why a recommendation is what it is, and what would change it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from oracle_core.enums import Window
from oracle_dagster.cli.common import (
    AsOf,
    HomeOption,
    JsonOption,
    console,
    instant,
    note,
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
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Also find what would change it: how many more documents, which ones carry it, and for how "
            "long it holds. Takes seconds.",
        ),
    ] = False,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            parser=instant,
            metavar="TIME",
            help="Also say why it differs from the cycle of this moment, cause by cause.",
            show_default=False,
        ),
    ] = None,
    since_config_version: Annotated[
        int | None,
        typer.Option(
            "--since-config-version",
            metavar="N",
            help="With --since: of several cycles of that moment, the one under this version.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write the page with charts to this file, which stands alone, instead of printing it.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Explain one recommendation, from the decision back to the documents.

    By default the newest cycle of the entity and window; --as-of names another. The cycle is computed again
    from what it read, compared with what it stored, and nothing is written. With --json every number in full.
    """
    if since is None and since_config_version is not None:
        raise typer.BadParameter("--since-config-version belongs to --since, which names the moment")
    from oracle_dagster.explaining import asking, gather
    from oracle_dagster.storage.entities import resolve

    with opened(home) as database, progress("explaining") as advance:
        key = (resolve(database, [entity])[0], window.value)
        if key[0] != entity:
            note(f"{entity} is the present name of the entity {key[0]}")

        def tell(what: str) -> None:
            advance(0, what=what)

        chosen = gather.choose(database, key, as_of, config_version)
        earlier = None if since is None else gather.choose(database, key, since, since_config_version)
        part = gather.chosen_again(database, chosen)
        page = gather.page(database, chosen, part)
        if what_if:
            page["what_if"] = asking.what_if(database, part, tell)
        if earlier is not None:
            tell("comparing the two cycles")
            page["since"] = asking.since(database, chosen, earlier)
    if html is not None:
        from oracle_dagster.explaining.web import document

        html.write_text(document(page), encoding="utf-8")
        note(f"wrote {html}")
    if as_json:
        print_json(page)
    elif html is None:
        from oracle_dagster.explaining.terminal import print_page

        print_page(console(), page, signals)
