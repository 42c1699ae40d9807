"""What people read on a materialisation beside its numbers: named evidence, the history, the moves.

Made for all keys of a run at once. Nothing is decided or computed; no orchestrator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oracle_dagster import plots, transitions
from oracle_dagster.storage import notices, shown
from oracle_dagster.storage.identity import is_document_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from oracle_dagster.pipeline import KeyReport
    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Database

EVIDENCE: Final = "top_evidence"
HISTORY: Final = "history"
DRAWN_KEYS: Final = 5_000
"""Runs that tell of more keys carry no histories: each adds to the time and to the size of an event."""
_SHOWN_IN: Final = ("trend_windows", "recommendations")


def told(
    database: Database, cycle: Cycle, asset: str, reports: Sequence[KeyReport]
) -> list[dict[str, object]]:
    """What to show of each key: what the pipeline reported, with what makes it readable.

    Args:
        database: with inputs and results.
        cycle: that was computed.
        asset: whose materialisations they are for.
        reports: the keys that are told of.

    Returns:
        Metadata by key, in their order, and in the order a person reads.

    """
    if asset not in _SHOWN_IN or not reports:
        return [each.metadata for each in reports]
    named = _named(database, cycle, reports)
    drawn: Sequence[str | None] = [None] * len(reports)
    if asset == "recommendations":
        drawn = _drawn(database, cycle, reports)
    return [
        _readable_first(each.metadata, evidence, history)
        for each, evidence, history in zip(reports, named, drawn, strict=True)
    ]


def _readable_first(
    metadata: Mapping[str, object], evidence: Sequence[Mapping[str, object]], history: str | None
) -> dict[str, object]:
    """The same with named evidence, and the history below the thesis."""
    shown: dict[str, object] = {}
    for name, value in metadata.items():
        shown[name] = evidence if name == EVIDENCE else value
        if name == "thesis" and history is not None:
            shown[HISTORY] = history
    return shown


def _named(database: Database, cycle: Cycle, reports: Sequence[KeyReport]) -> list[list[dict[str, object]]]:
    rows: list[Any] = [each.metadata.get(EVIDENCE) or [] for each in reports]
    named = [
        ((each.entity_id, each.window), row["id"])
        for each, of_key in zip(reports, rows, strict=True)
        for row in of_key
    ]
    found = iter(shown.evidence(database, cycle, named))
    return [[_row(row, next(found)) for row in of_key] for of_key in rows]


def _row(row: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, object]:
    """One line of the table of evidence; few columns, or the page cuts them and the thesis off."""
    kind = found["source_type"]
    origin = ", ".join(text for text in (found["source"], kind and kind.replace("_", " ")) if text)
    name = found["title"] or _name(row["id"], found["event"])
    return {
        "evidence": f"{name} ({origin})" if origin else name,
        "published": None if found["published_at"] is None else minute(found["published_at"]),
        "role": row["side"],
        "weight": None if found["weight"] is None else float(f"{found['weight']:.3g}"),
    }


def _name(signal_id: str, event: str | None) -> str:
    """A signal in words; a document without a title by its id, by which it can be looked up."""
    if is_document_id(signal_id):
        return f"document {signal_id}"
    kind, _, rest = signal_id.partition(":")
    if kind == "macro":
        return f"world event: {event or rest}"
    name = rest.rpartition(":")[0]
    return (
        f"news about {name}" if kind == "competitor" else f"what followed before: {name.rpartition(':')[2]}"
    )


def minute(moment: datetime) -> str:
    """A moment for a person, in UTC to the minute."""
    return f"{moment:%Y-%m-%d %H:%M}"


def _drawn(database: Database, cycle: Cycle, reports: Sequence[KeyReport]) -> list[str | None]:
    """The history of each key as a drawing; None where none could be written (R59)."""
    if len(reports) > DRAWN_KEYS:
        return [f"not drawn in runs of more than {DRAWN_KEYS:,} keys"] * len(reports)
    keys = [(each.entity_id, each.window) for each in reports]
    return [
        plots.as_markdown(
            plots.history(
                strength=history.strength,
                confidence=history.confidence,
                began=minute(history.moments[0]),
                ended=minute(history.moments[-1]),
            )
        )
        if history.moments
        else None
        for history in shown.histories(database, cycle, keys, plots.HISTORY_CYCLES)
    ]


def moves(database: Database, cycle: Cycle, keys: Sequence[Key]) -> dict[str, object]:
    """How the decisions of a run moved against what stood before: a line, and a table."""
    found = [(before, after) for _, before, after in notices.moves(database, cycle, keys)] if keys else []
    if not found:
        return {}
    return {"summary": transitions.summary(found), "transitions": transitions.table(found)}
