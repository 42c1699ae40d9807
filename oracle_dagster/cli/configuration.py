"""``oracle config``: look at the settings, change them, and see who changed what."""

from __future__ import annotations

import getpass
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_dagster.cli.common import (
    CommandError,
    HomeOption,
    JsonOption,
    assignments,
    connected,
    console,
    existing_home,
    folding_table,
    iso,
    note,
    opened,
    print_json,
)

if TYPE_CHECKING:
    from oracle_dagster.home import Connections, Home
    from oracle_dagster.storage.configuration import ConfigVersion

VersionOption = Annotated[
    int | None,
    typer.Option("--version", metavar="N", help="A version other than the active one.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Show and change the settings of the rules.", no_args_is_help=True)
    group.command("show")(show)
    group.command("set")(set_)
    group.command("history")(history)
    group.command("diff")(diff)
    app.add_typer(group, name="config")


def show(
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]",
            help="A setting or a section, such as trend or trend.positive_threshold.",
            show_default=False,
        ),
    ] = "",
    version: VersionOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print the settings in force, one path=value per line."""
    from oracle_dagster.storage import configuration

    with opened(home) as database:
        found = configuration.active(database) if version is None else configuration.get(database, version)
    settings = _below(found.config.settings(), path)
    if as_json:
        print_json({**_about(found), "settings": settings})
        return
    for name, value in settings.items():
        print(f"{name}={json.dumps(value, ensure_ascii=False)}")


def set_(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH=VALUE...", help="Settings to change together, such as trend.positive_threshold=0.2."
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the version.")] = "",
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Store and activate a new version with these values.

    Nothing changes if any value is wrong. Cycles that ran keep the version they recorded. In the user
    interface exactly the partitions that the changed settings can reach turn stale.
    """
    from oracle_dagster.storage import configuration
    from oracle_dagster.storage.database import Database

    wanted = assignments(values)
    place = existing_home(home)
    with connected(place) as connections:
        database = Database(connections.domain_url)
        try:
            before = configuration.active(database)
            after = configuration.activate(
                database, before.config.with_settings(wanted), changed_by=getpass.getuser(), reason=reason
            )
        finally:
            database.close()
        changed = configuration.diff(before.config, after.config)
        if changed:
            _tell_orchestrator(place, connections, after)
    if as_json:
        print_json({**_about(after), "changed": _changes(changed)})
        return
    if after.version == before.version:
        print(f"Version {after.version} has these values already; nothing was changed.")
        return
    for path, (old, new) in changed.items():
        print(f"{path}: {json.dumps(old)} -> {json.dumps(new)}")
    print(f"Version {after.version} is active.")


def _tell_orchestrator(home: Home, connections: Connections, version: ConfigVersion) -> None:
    """Report the new versions of settings, so that what depends on them shows as stale."""
    from oracle_dagster.launch import orchestrator
    from oracle_dagster.reporting import report_configuration

    try:
        with orchestrator(home, connections) as instance:
            report_configuration(instance, version.config)
    except Exception as error:  # noqa: BLE001 - the version is active already, so it must not count as failed
        note(
            f"version {version.version} is active, but the orchestrator could not be told, so the user "
            f"interface may not show what is stale: {' '.join(str(error).split())[:300]} The next `oracle "
            "run` tells it."
        )


def history(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List all versions, oldest first, with what each changed."""
    from oracle_dagster.storage import configuration

    with opened(home) as database:
        versions = configuration.history(database)
    rows = []
    for previous, current in zip([None, *versions], versions, strict=False):
        changed = {} if previous is None else configuration.diff(previous.config, current.config)
        rows.append({**_about(current), "changed": _changes(changed)})
    if as_json:
        print_json(rows)
        return
    table = folding_table("version", "active", "when", "who", "reason", "changed from the version before")
    for row in rows:
        changes = "\n".join(
            f"{c['path']}: {json.dumps(c['from'])} -> {json.dumps(c['to'])}" for c in row["changed"]
        )
        active = "yes" if row["active"] else ""
        table.add_row(
            str(row["version"]), active, row["updated_at"], row["changed_by"], row["reason"], changes
        )
    console().print(table)


def diff(
    first: Annotated[
        int | None,
        typer.Argument(metavar="[A]", help="A version; by default 1, the defaults.", show_default=False),
    ] = None,
    second: Annotated[
        int | None,
        typer.Argument(metavar="[B]", help="Another; by default the active one.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Print the settings in which two versions differ."""
    from oracle_dagster.storage import configuration

    with opened(home) as database:
        a = configuration.get(database, 1 if first is None else first)
        b = configuration.active(database) if second is None else configuration.get(database, second)
    changed = configuration.diff(a.config, b.config)
    if as_json:
        print_json({"a": a.version, "b": b.version, "changed": _changes(changed)})
        return
    if not changed:
        print(f"Versions {a.version} and {b.version} have the same settings.")
    for path, (old, new) in changed.items():
        print(f"{path}: {json.dumps(old)} -> {json.dumps(new)}")


def _below(settings: dict[str, Any], path: str) -> dict[str, Any]:
    """The settings at or below a path; all for an empty one."""
    if path == "":
        return settings
    found = {p: v for p, v in settings.items() if p == path or p.startswith(f"{path}.")}
    if not found:
        import difflib

        near = difflib.get_close_matches(
            path, [*settings, *{p.split(".")[0] for p in settings}], n=3, cutoff=0.3
        )
        raise CommandError(
            f"There is no setting or section {path!r}. Nearest: {', '.join(near)}. `oracle config show` "
            "lists all.",
            exit_code=2,
        )
    return found


def _about(version: ConfigVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "active": version.active,
        "updated_at": iso(version.updated_at),
        "changed_by": version.changed_by,
        "reason": version.reason,
        "pipeline_mode": version.config.pipeline_mode.value,
    }


def _changes(changed: dict[str, tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"path": path, "from": old, "to": new} for path, (old, new) in changed.items()]
