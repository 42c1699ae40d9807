"""``oracle plan`` and ``oracle apply``: change the configuration knowing what it changes."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_dagster.cli.common import (
    AsOf,
    CommandError,
    HomeOption,
    JsonOption,
    assignments,
    console,
    existing_home,
    folding_table,
    iso,
    note,
    opened,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from datetime import datetime

    from oracle_dagster.planning.plan import Plan
    from oracle_dagster.storage.applications import Application

SHOWN_CHANGES = 20

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="A setting; may be repeated.", show_default=False),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Settings from a TOML or JSON file, by section; --set comes on top.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan)
    app.command("apply")(apply)


def plan(
    settings: Settings = None,
    file: File = None,
    as_of: AsOf = None,
    as_json: JsonOption = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write the plan as a page.", show_default=False),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Show what changed settings would decide otherwise, and why; write nothing.

    Both configurations decide every entity and window over the same inputs, as of the same moment. Shown are
    the transitions, every changed decision with the gates and numbers behind it, and what would be rebuilt.
    """
    made = _made(settings, file, as_of, home)
    if html is not None:
        _write_page(html, made)
    if as_json:
        from oracle_dagster.planning.plan import as_object

        print_json(as_object(made))
        return
    _print(made)


def _write_page(file: Path, made: Plan) -> None:
    from oracle_dagster.planning import page
    from oracle_dagster.planning.plan import as_object

    try:
        file.write_text(page.document(as_object(made)), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}. Name another --html.") from None
    note(f"wrote {file}")


def apply(
    settings: Settings = None,
    file: File = None,
    as_of: AsOf = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for the history of the configuration.")
    ] = "oracle apply",
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Plan, ask, make the settings the active configuration, and rebuild exactly what the plan names.

    What an earlier apply left undone, because it was killed, is done first; without settings, only that.
    """
    finished = _finish(home, yes=yes, as_json=as_json)
    if finished and not settings and file is None:
        if as_json:
            print_json({"applied": True, "finished": finished})
        return
    made = _made(settings, file, as_of, home)
    if not as_json:
        _print(made)
    if not made.settings:
        if as_json:
            nothing = {"applied": False, "reason": "no setting changes"}
            print_json({"applied": True, "finished": finished} if finished else nothing)
        return
    _ask("Apply this?", yes=yes)
    from oracle_dagster.launch import apply_plan

    place = existing_home(home)
    with progress("rebuilding") as advance:
        outcome = apply_plan(
            place,
            made,
            changed_by=getpass.getuser(),
            reason=reason,
            progress=lambda what, done, total: advance(done, total, f"{what}: {done:,} of {total:,} keys"),
        )
    run = None if outcome is None else outcome.run_id
    status = "success" if outcome is None else outcome.status
    if as_json:
        done = {"applied": True, "run_id": run, "status": status, "as_of": iso(made.as_of)}
        print_json(done | ({"finished": finished} if finished else {}))
    else:
        print(
            "Applied; nothing had to be rebuilt."
            if outcome is None
            else f"Applied; run {run} rebuilt {outcome.keys:,} keys: {status}"
        )
    if status != "success":
        raise CommandError(
            f"The configuration is active, but its run {run} ended as {status}. `oracle run --failed {run}` "
            f"repeats what failed; `oracle run --as-of {iso(made.as_of)}` computes everything."
        )


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("Nobody can be asked here; look at the plan, then repeat with --yes.")
    if not typer.confirm(question):
        raise CommandError("Nothing was changed.")


def _finish(home: Path | None, *, yes: bool, as_json: bool) -> list[dict[str, Any]]:
    """Bring earlier applications to their end, which whoever asks for another one wants too."""
    from oracle_dagster.storage import applications, migrate

    with opened(home) as database:
        migrate.check(database)
        waiting = applications.unfinished(database)
    if not waiting:
        return []
    note(_unfinished(waiting))
    _ask("Finish it first?", yes=yes)
    from oracle_dagster.launch import finish_applications

    with progress("finishing") as advance:
        outcomes = finish_applications(
            existing_home(home),
            progress=lambda what, done, total: advance(done, total, f"{what}: {done:,} of {total:,} keys"),
        )
    told = [
        {"run_id": one.run_id, "status": one.status, "as_of": iso(one.as_of), "keys": one.keys}
        for one in outcomes
    ]
    for one in told:
        if not as_json:
            print(f"Finished; run {one['run_id']} rebuilt {one['keys']:,} keys: {one['status']}")
        if one["status"] != "success":
            raise CommandError(
                f"Run {one['run_id']} ended as {one['status']}. `oracle run --failed {one['run_id']}` "
                f"repeats what failed; `oracle run --as-of {one['as_of']}` computes everything."
            )
    return told


def _unfinished(waiting: list[Application]) -> str:
    listed = ", ".join(
        f"version {one.config_version} ({one.keys:,} keys as of {iso(one.as_of)})" for one in waiting
    )
    return f"An earlier apply has made a configuration active, but its run did not end: {listed}."


def _made(settings: list[str] | None, file: Path | None, as_of: datetime | None, home: Path | None) -> Plan:
    from oracle_dagster.planning.plan import make_plan
    from oracle_dagster.storage import applications, configuration, migrate

    wanted = {**settings_of(file), **assignments(settings or [])}
    if not wanted:
        raise typer.BadParameter("name what to change: --set eligibility.min_confidence=0.45, or --file FILE")
    with opened(home) as database, progress("planning") as advance:
        migrate.check(database)
        waiting = applications.unfinished(database)
        if waiting:
            note(
                f"{_unfinished(waiting)} `oracle apply --yes` finishes it; until then, plans see half of it."
            )
        candidate = configuration.active(database).config.with_settings(wanted)
        return make_plan(
            database,
            candidate,
            as_of=as_of,
            on_progress=lambda what, done, total: advance(done, total, f"{what}: {done:,} of {total:,} keys"),
        )


def settings_of(file: Path | None) -> dict[str, Any]:
    """The settings of a TOML or JSON file, by path; none without a file."""
    if file is None:
        return {}
    from oracle_dagster.planning import settings

    try:
        return settings.document(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read as settings: {error}. Write TOML or JSON.") from None


def _print(made: Plan) -> None:
    if not made.settings:
        print("No setting changes: the plan is empty.")
        return
    print(f"As of {iso(made.as_of)}, on configuration version {made.base_version}:")
    for path, (before, after) in made.settings.items():
        print(f"  {path}: {json.dumps(before)} -> {json.dumps(after)}")
    table = folding_table("before", "after", "keys")
    table.columns[2].justify = "right"
    for (before, after), count in sorted(made.transitions.items()):
        same = before == after
        table.add_row(" ".join(before), "unchanged" if same else " ".join(after), f"{count:,}")
    if made.transitions:
        console().print(table)
    print(f"{len(made.changes):,} decisions change" + (":" if made.changes else "."))
    flips = sorted(made.changes, key=lambda change: change.before.what == change.after.what)
    for change in flips[:SHOWN_CHANGES]:
        one, other = change.before, change.after
        what = (
            " ".join(one.what)
            if one.what == other.what
            else f"{' '.join(one.what)} -> {' '.join(other.what)}"
        )
        size = (
            f", allocation {one.allocation_pct:.4g} -> {other.allocation_pct:.4g}"
            if one.allocation_pct != other.allocation_pct
            else ""
        )
        risk = (
            f", risk {one.risk_classification} -> {other.risk_classification}"
            if one.risk_classification != other.risk_classification
            else ""
        )
        print(f"  {change.key[0]} {change.key[1]}: {what}{size}{risk}")
        for reason in change.because:
            print(f"      {reason}")
    if len(made.changes) > SHOWN_CHANGES:
        print(f"  and {len(made.changes) - SHOWN_CHANGES:,} more (--json lists them all)")
    listed = ", ".join(f"{asset} {len(keys):,}" for asset, keys in made.rebuild.items())
    print(f"To rebuild: {listed or 'nothing'}")
    for failure in made.failures[:SHOWN_CHANGES]:
        note(f"{failure.entity_id} {failure.window} cannot be planned: {failure.message}")
