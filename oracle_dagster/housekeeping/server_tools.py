"""PostgreSQL's own ``pg_dump`` and ``pg_restore``: which of those installed fits a server, and running them.

A dump is written by the tool of the server's own version where there is one, because what a newer tool writes
cannot be loaded into an older server.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oracle_dagster.embedded_postgres import BinariesMissingError, postgres_bin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLACES: Final = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
_EVERY_SECONDS: Final = 0.2
_SHOWN_LINES: Final = 4


class ToolError(RuntimeError):
    """No tool fits, or it failed; the message names place, reason and remedy."""


@dataclass(frozen=True)
class Tools:
    """A folder with ``pg_dump`` and ``pg_restore`` of one major version."""

    folder: Path
    major: int


@functools.cache
def installed() -> tuple[Tools, ...]:
    """Every version that is found, oldest first: the embedded server's, those of the system and the path."""
    folders: list[Path] = []
    with contextlib.suppress(BinariesMissingError):
        folders.append(postgres_bin())
    for pattern in PLACES:
        folders += sorted(Path("/").glob(pattern.lstrip("/")))
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder != ""]
    found: dict[int, Tools] = {}
    for folder in folders:
        major = _major(folder)
        if major is not None:
            found.setdefault(major, Tools(folder, major))
    return tuple(found[major] for major in sorted(found))


def _major(folder: Path) -> int | None:
    if not ((folder / "pg_dump").is_file() and (folder / "pg_restore").is_file()):
        return None
    try:
        done = subprocess.run(
            [folder / "pg_restore", "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env=_environment({}),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    return None if done.returncode != 0 or version is None else int(version[1])


def for_dump(server_major: int, tools: Sequence[Tools] | None = None) -> Tools:
    """The tools to save a server's databases with: of its own version, else the next newer one.

    Raises:
        ToolError: all are older; such a tool refuses the server.

    """
    fitting = [t for t in _known(tools) if t.major >= server_major]
    if fitting:
        return fitting[0]
    raise ToolError(
        f"The server is PostgreSQL {server_major}, and no pg_dump of that version or a newer one is "
        "installed "
        f"(there is {_listed(_known(tools))}). Install the package postgresql-client-{server_major}, or put "
        "the folder of its programs on the PATH."
    )


def for_restore(server_major: int, dumped_by: int, tools: Sequence[Tools] | None = None) -> Tools:
    """The tools to load a dump into a server with.

    Args:
        server_major: of the server to load into.
        dumped_by: major version of the tool that wrote the dump.
        tools: to choose from; those installed where None.

    Raises:
        ToolError: the server is older than the dump, or no installed tool can do it.

    """
    if dumped_by > server_major:
        raise ToolError(
            f"The backup was written by pg_dump {dumped_by} and cannot be loaded into PostgreSQL "
            f"{server_major}, which does not know all of its statements. Restore it into PostgreSQL "
            f"{dumped_by} or newer, such as the embedded server (unset ORACLE_DATABASE_URL)."
        )
    fitting = [t for t in _known(tools) if dumped_by <= t.major <= server_major]
    if fitting:
        return fitting[-1]
    raise ToolError(
        f"Loading a backup of pg_dump {dumped_by} into PostgreSQL {server_major} needs a pg_restore between "
        f"these versions, and none is installed (there is {_listed(_known(tools))}). Install the package "
        f"postgresql-client-{server_major}, or put the folder of its programs on the PATH."
    )


def _known(tools: Sequence[Tools] | None) -> Sequence[Tools]:
    return installed() if tools is None else tools


def _listed(tools: Sequence[Tools]) -> str:
    return ", ".join(str(t.major) for t in tools) or "none at all"


def run(
    tools: Tools,
    program: str,
    url: str,
    arguments: Sequence[str],
    *,
    on_tick: Callable[[], None] | None = None,
) -> None:
    """Run a tool on a database and wait for it.

    Args:
        tools: from :func:`for_dump` or :func:`for_restore`.
        program: ``pg_dump`` or ``pg_restore``.
        url: libpq address; its password goes by the environment, because anybody can read a command line.
        arguments: without the address.
        on_tick: called several times a second while it works.

    Raises:
        ToolError: it failed; the message ends with what it said.

    """
    parameters = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    password = parameters.pop("password", "")
    parameters.setdefault("application_name", f"oracle {program}")
    command = [str(tools.folder / program), "--no-password", f"--dbname={make_conninfo('', **parameters)}"]
    process = subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment({} if password == "" else {"PGPASSWORD": password}),
        text=True,
        errors="replace",
    )
    try:
        while True:
            try:
                _, said = process.communicate(timeout=_EVERY_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if on_tick is not None:
                    on_tick()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if process.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip() != ""]
        reason = " ".join(" ".join(lines[:_SHOWN_LINES]).split()) or f"exit code {process.returncode}"
        full = "No space left" in said or "could not write" in said
        raise ToolError(
            f"{program} {tools.major} failed on the database {parameters.get('dbname', '')!r}: {reason} "
            + ("Free some space, then run this again." if full else "Mend the cause, then run this again.")
        )


def _environment(more: dict[str, str]) -> dict[str, str]:
    """Nothing of the user's own settings (``PGOPTIONS``, ``PGSERVICE`` …) may steer a tool."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **more}
