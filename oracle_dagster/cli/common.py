"""What all commands share: the home, exit codes, errors, values on the command line, JSON, progress.

Nothing here knows a table or a rule.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import traceback
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.table import Table

    from oracle_dagster.home import Connections, Home
    from oracle_dagster.storage.database import Database

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_REJECTED: Final = 3
DEBUG_VARIABLE: Final = "ORACLE_DEBUG"
DEMO_MARK: Final = "demo.json"
AUTOMATION_VARIABLE: Final = "ORACLE_AUTOMATION"

HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="FOLDER",
        help="The folder with all state; by default ORACLE_HOME, else ./.oracle.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class CommandError(Exception):
    """A command that cannot go on; the message names place, value and remedy."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        """Keep the message and the exit code of the process."""
        super().__init__(message)
        self.exit_code = exit_code


def report(error: BaseException) -> int:
    """Print an error as one paragraph on stderr and return the exit code; a traceback only in debug mode."""
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error)
        return getattr(error, "exit_code", EXIT_FAILED)
    own = type(error).__module__.startswith("oracle_")
    text = " ".join(str(error).split()) if own else f"{type(error).__name__}: {' '.join(str(error).split())}"
    if not own:
        text += f" (this was not foreseen; {DEBUG_VARIABLE}=1 shows where it happened)"
    print(
        textwrap.fill(f"oracle: {text}", width=110, break_long_words=False, break_on_hyphens=False),
        file=sys.stderr,
    )
    return getattr(error, "exit_code", EXIT_FAILED)


# ------------------------------------------------------------------------------------------------ home


def resolve_home(path: Path | None) -> Home:
    """The home a command works on.

    The home of the demo always uses its own embedded server, so that it can never touch other tables: an
    external server named in the environment is ignored there, and said so. Nothing runs by itself in it
    either: a cycle as of today would replace the trends of 2016 by empty ones.
    """
    from oracle_dagster.home import DAGSTER_DATABASE_VARIABLE, DATABASE_VARIABLE, HOME_VARIABLE, Home

    home = Home.resolve(path)
    os.environ[HOME_VARIABLE] = str(home.path)  # children and libraries see the same home
    if (home.path / DEMO_MARK).exists():
        os.environ.setdefault(AUTOMATION_VARIABLE, "off")
        for variable in (DATABASE_VARIABLE, DAGSTER_DATABASE_VARIABLE):
            if os.environ.pop(variable, "") != "":
                note(f"{home.path} is the demo's home: {variable} is ignored, its embedded server is used.")
    return home


def existing_home(path: Path | None) -> Home:
    """The home of a command that only reads.

    Raises:
        CommandError: nothing was ever stored there.
    """
    from oracle_dagster.home import DATABASE_VARIABLE

    home = resolve_home(path)
    if not home.pg_dir.exists() and os.environ.get(DATABASE_VARIABLE, "") == "":
        raise CommandError(
            f"There is no home at {home.path}. Run `oracle init` first, or name another with --home or "
            "ORACLE_HOME."
        )
    return home


@contextlib.contextmanager
def opened(path: Path | None) -> Iterator[Database]:
    """The domain database of a home that exists."""
    from oracle_dagster.storage.database import Database

    with connected(existing_home(path), orchestrator=False) as connections:
        database = Database(connections.domain_url)
        try:
            yield database
        finally:
            database.close()


@contextlib.contextmanager
def connected(home: Home, *, orchestrator: bool = True) -> Iterator[Connections]:
    """The databases of a home, with word on stderr of what is being waited for.

    ``orchestrator=False`` is for what needs the domain alone (see ``Home.connect``).
    """
    with home.connect(progress=note, orchestrator=orchestrator) as connections:
        yield connections


# ---------------------------------------------------------------------------------------------- values


def instant(text: str) -> datetime:
    """Read a time with an offset, as UTC.

    Raises:
        typer.BadParameter: not ISO 8601, or without an offset.
    """
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time in ISO 8601; write it like 2016-11-08T00:00:00Z"
        ) from None
    if value.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no offset from UTC; write it like {text}Z or {text}+02:00")
    return value.astimezone(UTC)


AsOf = Annotated[
    datetime | None,
    typer.Option(
        "--as-of",
        parser=instant,
        metavar="TIME",
        help="The moment to look from: ISO 8601 with an offset, such as 2016-11-08T00:00:00Z.",
        show_default=False,
    ),
]


def assignments(texts: list[str]) -> dict[str, Any]:
    """Read ``path=value`` arguments; a value is JSON where it parses as JSON, else a string.

    Raises:
        typer.BadParameter: no ``=``, an empty path, or a path given twice.
    """
    from oracle_dagster.planning import settings

    try:
        return settings.assignments(texts)
    except settings.SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def iso(value: datetime) -> str:
    """ISO 8601 in UTC with ``Z``; the fraction only where there is one."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------------------------------------- output


def note(text: str) -> None:
    """One line on stderr, beside the result."""
    print(f"oracle: {text}", file=sys.stderr, flush=True)


def console() -> Console:
    """Where tables are printed: stdout; on a pipe the table is as wide as it needs, never wrapped."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200)


def folding_table(*names: str) -> Table:
    """A table that folds what is too long for its column: nothing that was said is cut off."""
    from rich.table import Column, Table

    return Table(*(Column(name, overflow="fold") for name in names), box=None, pad_edge=False)


def print_json(value: object) -> None:
    """Print JSON to stdout: indented, keys in the given order, times in UTC."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_jsonable) + "\n")


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


class Advance(Protocol):
    """Tell a progress bar how far the work is."""

    def __call__(self, done: float, total: float | None = None, what: str | None = None) -> None:
        """Set the amount done, and where known the whole and what is being done."""


@contextlib.contextmanager
def progress(description: str) -> Iterator[Advance]:
    """A progress bar on stderr while the block runs; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total=None, what=None: None  # noqa: ARG005 - the protocol's names
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=None)

        def advance(done: float, total: float | None = None, what: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield advance
