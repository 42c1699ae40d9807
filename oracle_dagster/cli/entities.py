"""``oracle entity``: retire, revive, rename, list."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from oracle_dagster.cli.common import (
    HomeOption,
    JsonOption,
    console,
    folding_table,
    iso,
    opened,
    print_json,
)

EntityArgument = Annotated[
    str, typer.Argument(metavar="ENTITY", help="The id of an entity, or a name it was given.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the change.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="Retire, revive or rename an entity; its history stays.", no_args_is_help=True)
    app.add_typer(group, name="entity")
    group.command("retire")(retire)
    group.command("revive")(revive)
    group.command("rename")(rename)
    group.command("list")(list_changed)


def retire(entity: EntityArgument, reason: ReasonOption = "", home: HomeOption = None) -> None:
    """Leave an entity out of whatever runs by itself, and of plans and runs of everything.

    Its inputs, results and partitions stay, it still counts as evidence for its neighbours, and it can be
    computed by name. `oracle entity revive` takes it back.
    """
    from oracle_dagster.housekeeping import entities
    from oracle_dagster.storage import migrate

    with opened(home) as database:
        migrate.check(database)
        identity = entities.retire(database, entity, by=getpass.getuser(), reason=reason)
    print(f"{_called(entity, identity)} is retired. `oracle entity revive` takes it back.")


def revive(entity: EntityArgument, home: HomeOption = None) -> None:
    """Take a retired entity back into service."""
    from oracle_dagster.housekeeping import entities
    from oracle_dagster.storage import migrate

    with opened(home) as database:
        migrate.check(database)
        identity = entities.revive(database, entity, by=getpass.getuser())
    print(
        f"{_called(entity, identity)} is in service again. The schedules take it up; "
        f"`oracle run --entity {identity!r}` computes it now."
    )


def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The id of the entity, or a name it was given.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name it gets; no other entity may have it.")],
    reason: ReasonOption = "",
    home: HomeOption = None,
) -> None:
    """Give an entity another name: from now on inputs under it are loaded, and its history is found by it.

    The id stays what it was in every table, partition and receipt, so that nothing sealed changes.
    """
    from oracle_dagster.housekeeping import entities
    from oracle_dagster.storage import migrate

    with opened(home) as database:
        migrate.check(database)
        identity = entities.rename(database, old, new, by=getpass.getuser(), reason=reason)
    print(f"{old} is called {new} from now on; its id stays {identity}.")


def list_changed(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the entities that were renamed or are retired."""
    from oracle_dagster.storage import entities, migrate

    with opened(home) as database:
        migrate.check(database)
        found = entities.listed(database)
    if as_json:
        print_json(
            [
                {
                    "entity_id": e.entity_id,
                    "name": e.name,
                    "names": [{"name": name, "renamed_at": moment} for name, moment in e.names],
                    "retired_at": e.retired_at,
                    "reason": e.reason,
                }
                for e in found
            ]
        )
        return
    if not found:
        print("No entity was renamed or is retired.")
        return
    table = folding_table("id", "name", "renamed", "retired", "reason")
    for e in found:
        renamed = ", ".join(f"{name} at {iso(moment)}" for name, moment in e.names)
        table.add_row(
            e.entity_id, e.name, renamed, "" if e.retired_at is None else iso(e.retired_at), e.reason
        )
    console().print(table)


def _called(name: str, identity: str) -> str:
    return name if name == identity else f"{name} (id {identity})"
