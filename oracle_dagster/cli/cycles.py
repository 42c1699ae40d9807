"""``oracle run``: compute a cycle."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_core.enums import Window
from oracle_dagster.cli.common import (
    AsOf,
    CommandError,
    HomeOption,
    JsonOption,
    assignments,
    existing_home,
    iso,
    note,
    opened,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from oracle_dagster.home import Home
    from oracle_dagster.launch import RunOutcome

SHOWN_FAILURES = 5


class Stage(StrEnum):
    """The assets of the chain, in order."""

    WEIGHTED_SIGNALS = "weighted_signals"
    TREND_WINDOWS = "trend_windows"
    TREND_PROJECTIONS = "trend_projections"
    RECOMMENDATIONS = "recommendations"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    as_of: AsOf = None,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            "--entity",
            metavar="ID",
            help="Only this entity, or all from one to another (FIRST...LAST, by name); may be repeated.",
            show_default=False,
        ),
    ] = None,
    window: Annotated[
        list[Window] | None,
        typer.Option("--window", help="Only this window; may be repeated.", show_default=False),
    ] = None,
    stage: Annotated[
        list[Stage] | None,
        typer.Option(
            "--stage",
            help="Only this part of the chain, on what is stored of the parts before it; may be repeated.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Try a setting: the run uses a version of the configuration that is stored but not active.",
            show_default=False,
        ),
    ] = None,
    config_version: Annotated[
        int | None,
        typer.Option(
            "--config-version",
            metavar="N",
            help="A version of the configuration other than the active one.",
            show_default=False,
        ),
    ] = None,
    failed: Annotated[
        str | None,
        typer.Option(
            "--failed", metavar="RUN", help="Repeat exactly what failed in this run.", show_default=False
        ),
    ] = None,
    queue: Annotated[
        bool,
        typer.Option(
            "--queue",
            help="Hand the runs to the daemon's queue, which places them on its workers, and return at once.",
        ),
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Compute a cycle: signals, trends, projections, recommendations.

    Runs the same job that the user interface runs, and is listed there. Without options: every entity and
    window, as of now, under the active configuration. A cycle can be repeated at any time, and gives the same
    result.
    """
    place = existing_home(home)
    version = config_version
    if settings:
        version = _candidate(place, settings, config_version)
    from oracle_dagster.launch import run_cycle

    with progress("computing") as advance:

        def told(phase: str, done: int, total: int) -> None:
            advance(done, total, f"{phase}: {done:,} of {total:,} keys")

        outcome = run_cycle(
            place,
            as_of=as_of,
            entities=entity or None,
            windows=[w.value for w in window] if window else None,
            config_version=version,
            stages=[s.value for s in stage] if stage else None,
            from_failed_run=failed,
            queued=queue,
            progress=told,
        )
    if outcome.note:
        note(outcome.note)
    if as_json:
        print_json(_as_object(outcome))
    else:
        _print(outcome)
    if outcome.status not in {"success", "queued"}:
        raise CommandError(_why(outcome))


def _candidate(home: Home, settings: list[str], base: int | None) -> int:
    """Store the settings as a version that is not active, and return its number."""
    from oracle_dagster.storage import configuration

    wanted = assignments(settings)
    with opened(home.path) as database:
        start = configuration.active(database) if base is None else configuration.get(database, base)
        reason = f"tried by `oracle run` on version {start.version}"
        return configuration.candidate(
            database, start.config.with_settings(wanted), changed_by=getpass.getuser(), reason=reason
        ).version


def _as_object(outcome: RunOutcome) -> dict[str, Any]:
    return {
        "run_id": outcome.run_id,
        "runs": list(outcome.runs) or [outcome.run_id],
        "status": outcome.status,
        "as_of": iso(outcome.as_of),
        "config_version": outcome.config_version,
        "keys": outcome.keys,
        "computed": dict(outcome.computed),
        "failures": [
            {"stage": f.stage, "entity_id": f.entity_id, "window": f.window, "message": f.message}
            for f in outcome.failures
        ],
        "seconds": {name: round(value, 3) for name, value in outcome.seconds.items()},
        "message": outcome.message,
        "note": outcome.note,
    }


def _print(outcome: RunOutcome) -> None:
    print(f"Run {outcome.run_id}: {outcome.status}")
    if len(outcome.runs) > 1:
        print(f"  one of {len(outcome.runs)} runs: " + ", ".join(outcome.runs))
    if outcome.status == "queued":
        print("  `oracle dev` or another daemon of this home takes them up; see the user interface")
    print(
        f"as of {iso(outcome.as_of)}, configuration version {outcome.config_version}, {outcome.keys:,} keys "
        "(entity and window)"
    )
    for name, count in outcome.computed.items():
        print(f"  {name}: {count:,} computed")
    if outcome.seconds:
        print("  seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in outcome.seconds.items()))


def _why(outcome: RunOutcome) -> str:
    if outcome.status == "canceled":
        return f"Run {outcome.run_id} was cancelled; run the same command again to complete it."
    if outcome.failures:
        shown = "; ".join(
            f"{f.entity_id} {f.window} in {f.stage}: {f.message}" for f in outcome.failures[:SHOWN_FAILURES]
        )
        return (
            f"{len(outcome.failures):,} of {outcome.keys:,} keys failed in run {outcome.run_id}: {shown}. "
            f"Mend the cause, then `oracle run --failed {outcome.run_id}` repeats exactly those."
        )
    return f"Run {outcome.run_id} failed: {outcome.message or 'see its log in the user interface'}"
