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
    """What to show of each key instead of, or beside, what the pipeline reported.

    Args:
        database: with inputs and results.
        cycle: that was computed.
        asset: whose materialisations they are for.
        reports: the keys that are told of.

    Returns:
        Metadata by key, in their order.

    """
    if asset not in _SHOWN_IN or not reports:
        return [{} for _ in reports]
    made = _named(database, cycle, reports)
    if asset == "recommendations":
        if len(reports) > DRAWN_KEYS:
            why = f"not drawn in runs of more than {DRAWN_KEYS:,} keys"
            return [{**each, HISTORY: why} for each in made]
        keys = [(each.entity_id, each.window) for each in reports]
        gone = shown.histories(database, cycle, keys, plots.HISTORY_CYCLES)
        made = [{**each, **_drawn(history)} for each, history in zip(made, gone, strict=True)]
    return made


def _named(database: Database, cycle: Cycle, reports: Sequence[KeyReport]) -> list[dict[str, object]]:
    rows: list[Any] = [each.metadata.get(EVIDENCE) or [] for each in reports]
    named = [
        ((each.entity_id, each.window), row["id"])
        for each, of_key in zip(reports, rows, strict=True)
        for row in of_key
    ]
    found = iter(shown.evidence(database, cycle, named))
    return [{EVIDENCE: [_row(row, next(found)) for row in of_key]} for of_key in rows]


def _row(row: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, object]:
    """One line of the table of evidence, widest first."""
    kinds = (
        found["source"],
        None if found["source_type"] is None else found["source_type"].replace("_", " "),
    )
    return {
        "evidence": found["title"] or _name(row["id"], found["event"]),
        "source": ", ".join(kind for kind in kinds if kind is not None) or None,
        "published": None if found["published_at"] is None else minute(found["published_at"]),
        "role": row["side"],
        "weight": _short(found["weight"]),
        "sentiment": _short(found["sentiment"]),
        "impact": _short(found["impact"]),
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


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _drawn(history: shown.History) -> dict[str, object]:
    if not history.moments:  # the history could not be written (R59)
        return {}
    began = history.moments[-plots.HISTORY_CYCLES :][0]
    drawn = plots.history(
        strength=history.strength,
        confidence=history.confidence,
        began=minute(began),
        ended=minute(history.moments[-1]),
    )
    return {HISTORY: plots.as_markdown(drawn)}


def moves(database: Database, cycle: Cycle, keys: Sequence[Key]) -> dict[str, object]:
    """How the decisions of a run moved against what stood before: a line, and a table."""
    found = [(before, after) for _, before, after in notices.moves(database, cycle, keys)] if keys else []
    if not found:
        return {}
    return {"summary": transitions.summary(found), "transitions": transitions.table(found)}
