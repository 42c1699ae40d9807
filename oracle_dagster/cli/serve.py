"""``oracle dev``: the user interface and the daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from oracle_dagster.cli.common import HomeOption, resolve_home


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dev")(dev)


def dev(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1,
            max=65535,
            help="Port on 127.0.0.1; by default 3000, or a free one.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Serve the user interface and the daemon until Ctrl-C.

    Restarts what dies, the embedded database included, and marks runs whose worker is gone as failed. Only
    this machine can reach it. One per home.
    """
    from oracle_dagster.dev import Supervisor

    Supervisor(resolve_home(home), port=port, say=lambda text: print(f"oracle dev: {text}", flush=True)).run()
