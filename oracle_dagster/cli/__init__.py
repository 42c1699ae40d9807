"""The command ``oracle``: one module per group of commands, each thin over the functions that do the work.

Importing this package must stay quick, so no module of it imports the orchestrator, Arrow or a plotting
library at its top; a command imports what it needs when it is called. No computation and no SQL belong here.
"""

from __future__ import annotations

import sys

import typer

from oracle_dagster.cli import (
    agents,
    configuration,
    cycles,
    demonstration,
    entities,
    explain,
    health,
    housekeeping,
    inputs,
    plan,
    replay,
    serve,
    setup,
    tables,
    verify,
    worker,
)
from oracle_dagster.cli.common import EXIT_FAILED, report

EPILOG = (
    "State lives in ORACLE_HOME (default ./.oracle). ORACLE_DATABASE_URL names an external PostgreSQL "
    "instead of the embedded one. ORACLE_DEBUG=1 shows tracebacks. Exit codes: 0 ok, 1 failed, 2 wrong "
    "usage, 3 partly rejected."
)


def build_app() -> typer.Typer:
    """Assemble the command line."""
    app = typer.Typer(
        name="oracle",
        help="Turns what many documents say about many entities into decisions with their evidence.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # plain text: readable in logs, greppable, and quick
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    computing = (inputs, cycles, plan, explain, replay, tables)
    for module in (
        demonstration,
        serve,
        worker,
        setup,
        *computing,
        configuration,
        entities,
        agents,
        health,
        housekeeping,
        verify,
    ):
        module.register(app)
    return app


def main() -> None:
    """Entry of the console script; a failure is one paragraph on stderr and an exit code."""
    try:
        build_app()()
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever it is, it is reported once
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_FAILED)
