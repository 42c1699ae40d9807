"""``oracle init`` and ``oracle version``."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

from oracle_dagster.cli.common import HomeOption, JsonOption, connected, print_json, resolve_home

DISTRIBUTION = "oracle-pipeline"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("init")(init)
    app.command("version")(version)


def init(home: HomeOption = None) -> None:
    """Create the home and its tables, or update them.

    Safe to repeat. The tables of an older version are migrated; nothing is lost.
    """
    from oracle_dagster.storage.database import Database
    from oracle_dagster.storage.migrate import upgrade

    place = resolve_home(home)
    with connected(place) as connections:
        database = Database(connections.domain_url)
        applied = upgrade(database)
        database.close()
        place.write_dagster_yaml()
        kind = "its embedded PostgreSQL" if connections.embedded else f"the external {database.place}"
    done = f"migrated to {applied[-1]}" if applied else "up to date"
    print(f"The home {place.path} is ready; the tables in {kind} are {done}.")


def version(as_json: JsonOption = False) -> None:
    """Print the versions of this program and its libraries."""
    from oracle_dagster.embedded_postgres import POSTGRES_MAJOR

    found = {
        "oracle": metadata.version(DISTRIBUTION),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "embedded_postgresql": str(POSTGRES_MAJOR),
        **{name: metadata.version(name) for name in ("dagster", "numpy", "scipy", "pydantic", "pyarrow")},
    }
    if as_json:
        print_json(found)
    else:
        for name, value in found.items():
            print(f"{name} {value}")
