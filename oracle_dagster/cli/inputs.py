"""``oracle ingest``, ``rejected`` and ``retract``: what goes in, what did not, and what is withdrawn."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oracle_dagster.cli.common import (
    EXIT_REJECTED,
    HomeOption,
    JsonOption,
    connected,
    console,
    folding_table,
    instant,
    iso,
    note,
    opened,
    print_json,
    progress,
    resolve_home,
)

if TYPE_CHECKING:
    from oracle_dagster.home import Connections, Home
    from oracle_dagster.ingestion.load import Progress
    from oracle_dagster.ingestion.report import IngestReport
    from oracle_dagster.storage.database import Database

SHOWN_REJECTIONS = 10


class KnownFrom(StrEnum):
    """When records count as known that do not say it themselves."""

    NOW = "now"
    PUBLISHED = "published"


class KindName(StrEnum):
    """The kinds of records."""

    DOCUMENTS = "documents"
    MARKET_DATA = "market_data"
    GLOBAL_EVENTS = "global_events"
    EXPOSURES = "exposures"
    RELATIONSHIPS = "relationships"


KnownAtOption = Annotated[
    KnownFrom,
    typer.Option(
        "--known-at",
        help="When records became known that do not say it: now, or, for historical loads, when published.",
    ),
]
ReviseOption = Annotated[
    bool,
    typer.Option("--revise", help="Load a record whose id is stored with other content as a new version."),
]
KindOption = Annotated[
    KindName | None, typer.Option("--kind", help="Only records of this kind.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("ingest")(ingest)
    group = typer.Typer(help="Show records that were refused, and load them again.", no_args_is_help=True)
    group.command("list")(list_)
    group.command("retry")(retry)
    app.add_typer(group, name="rejected")
    app.command("retract")(retract)


def ingest(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A file, or a folder of files with known names.")
    ],
    known_at: KnownAtOption = KnownFrom.NOW,
    revise: ReviseOption = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Load documents, prices, events, exposures and edges.

    Files are named documents.jsonl, market_data.csv, global_events.jsonl, exposures.jsonl and
    relationships.jsonl, each also with .gz, or .parquet with the same columns. A bad record is kept aside
    with its reason, the rest loads, and the exit code is 3. Loading the same file twice changes nothing.
    """
    from oracle_dagster.ingestion.load import ingest as load
    from oracle_dagster.storage.database import Database
    from oracle_dagster.storage.migrate import upgrade

    place = resolve_home(home)
    with connected(place) as connections:
        database = Database(connections.domain_url)
        try:
            upgrade(database)
            with progress("loading") as advance:

                def told(at: Progress) -> None:
                    advance(at.position, at.size, f"{Path(at.file).name}: {at.records:,} records")

                report = load(
                    database,
                    path,
                    now=datetime.now(UTC),
                    known_at=known_at.value,
                    revise=revise,
                    progress=told,
                )
                if report.affected_entities or report.total.inserted + report.total.revised > 0:
                    advance(0, None, "telling the orchestrator")
                    _tell_orchestrator(place, connections, database, report)
        finally:
            database.close()
    _show(report, as_json=as_json)
    if report.total.rejected > 0:
        raise typer.Exit(EXIT_REJECTED)


def list_(
    kind: KindOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those that were loaded since.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List refused records with place, value and reason."""
    from oracle_dagster.ingestion.models import Kind
    from oracle_dagster.ingestion.rejected import list_rejected

    with opened(home) as database:
        found = list_rejected(
            database,
            include_resolved=everything,
            kind=None if kind is None else Kind(kind.value),
            limit=limit,
        )
    if as_json:
        print_json(
            [
                {
                    "id": row.id,
                    "file": row.rejection.file,
                    "line": row.rejection.line,
                    "kind": row.rejection.kind.value,
                    "field": row.rejection.field,
                    "value": row.rejection.value,
                    "reason": row.rejection.reason.value,
                    "message": row.rejection.message,
                    "record": row.rejection.record,
                    "rejected_at": row.rejected_at,
                    "resolved_at": row.resolved_at,
                }
                for row in found
            ]
        )
        return
    if not found:
        print("No record waits.")
        return
    from rich.text import Text

    table = folding_table("id", "file", "line", "reason", "message")
    for row in found:
        r = row.rejection
        table.add_row(str(row.id), Text(r.file), str(r.line), r.reason.value, Text(r.message))
    console().print(table)


def retry(
    ids: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[ID]...", help="Only these, as `oracle rejected list` numbers them.", show_default=False
        ),
    ] = None,
    kind: KindOption = None,
    known_at: KnownAtOption = KnownFrom.NOW,
    revise: ReviseOption = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Judge refused records again, and load those that are valid now.

    Helps after a conflict (with --revise) or a change of this program. A corrected file is simply ingested.
    """
    from oracle_dagster.ingestion.models import Kind
    from oracle_dagster.ingestion.rejected import retry_rejected
    from oracle_dagster.storage.database import Database

    place = resolve_home(home)
    with connected(place) as connections, progress("loading refused records"):
        database = Database(connections.domain_url)
        try:
            report = retry_rejected(
                database,
                now=datetime.now(UTC),
                known_at=known_at.value,
                revise=revise,
                ids=ids or None,
                kind=None if kind is None else Kind(kind.value),
            )
            if report.resolved > 0:
                _tell_orchestrator(place, connections, database, report.ingest)
        finally:
            database.close()
    if as_json:
        print_json({"resolved": report.resolved, "remaining": report.remaining, "skipped": report.skipped})
    else:
        print(f"{report.resolved} loaded, {report.remaining} still refused.")
        if report.skipped > 0:
            print(f"{report.skipped} are not kept whole: correct their files and run `oracle ingest` again.")
    if report.remaining + report.skipped > 0:
        raise typer.Exit(EXIT_REJECTED)


def retract(
    document_id: Annotated[str, typer.Argument(metavar="DOC_ID", help="The document's id, a UUID.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the document.")],
    known_at: Annotated[
        datetime | None,
        typer.Option(
            "--known-at",
            parser=instant,
            metavar="TIME",
            help="From when on it does not count; by default now.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Withdraw a document from a moment on.

    Cycles that look from an earlier moment still use it. Nothing is deleted.
    """
    from oracle_dagster.ingestion.retract import retract as withdraw
    from oracle_dagster.storage.database import Database

    place = resolve_home(home)
    with connected(place) as connections:
        database = Database(connections.domain_url)
        try:
            done = withdraw(database, document_id, reason=reason, now=datetime.now(UTC), known_at=known_at)
            if done.changed:
                _tell_orchestrator(place, connections, database, done.entities)
        finally:
            database.close()
    if as_json:
        print_json(
            {
                "document_id": done.document_id,
                "version": done.version,
                "known_at": done.known_at,
                "entities": list(done.entities),
                "changed": done.changed,
            }
        )
    elif done.changed:
        print(
            f"Document {done.document_id} does not count from {iso(done.known_at)} on "
            f"(version {done.version}; entities: {', '.join(done.entities)})."
        )
    else:
        print(f"Document {done.document_id} was withdrawn before, from {iso(done.known_at)} on.")


def _tell_orchestrator(
    home: Home, connections: Connections, database: Database, changed: IngestReport | tuple[str, ...]
) -> None:
    """Report new input versions, so that what depends on them shows as stale; the data is safe already."""
    from oracle_dagster.launch import orchestrator
    from oracle_dagster.reporting import report_inputs

    entities = changed if isinstance(changed, tuple) else changed.affected_entities
    try:
        with orchestrator(home, connections) as instance:
            report_inputs(instance, database, sorted(entities))
    except Exception as error:  # noqa: BLE001 - the load itself is complete, so it must not count as failed
        note(
            "the records are loaded, but the orchestrator could not be told, so the user interface may not "
            f"show what is stale: {' '.join(str(error).split())[:300]} The next `oracle run` tells it."
        )


def _show(report: IngestReport, *, as_json: bool) -> None:
    names = ("read", "inserted", "revised", "unchanged", "rejected")
    if as_json:
        counts: dict[str, Any] = {
            kind.value: {name: getattr(c, name) for name in names}
            for kind, c in sorted(report.counts.items())
        }
        print_json(
            {
                "counts": counts,
                "total": {name: getattr(report.total, name) for name in names},
                "entities": len(report.affected_entities),
                "warnings": report.warnings,
                "rejections": [str(r) for r in report.rejections],
            }
        )
        return
    for warning in report.warnings:
        note(f"warning: {warning}")
    table = folding_table("records", *("new" if name == "inserted" else name for name in names))
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, c in sorted(report.counts.items()):
        table.add_row(kind.value, *(f"{getattr(c, name):,}" for name in names))
    console().print(table)
    for rejection in report.rejections[:SHOWN_REJECTIONS]:
        note(str(rejection))
    rejected = report.total.rejected
    if rejected > 0:
        more = (
            f" {rejected - SHOWN_REJECTIONS:,} more are not shown here."
            if rejected > SHOWN_REJECTIONS
            else ""
        )
        note(
            f"{rejected:,} of {report.total.read:,} records were refused.{more} `oracle rejected list` shows "
            "all."
        )
