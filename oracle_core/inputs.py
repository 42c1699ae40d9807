"""What one cycle reads, as columns: documents, bars, events, exposures, edges, accuracy, history.

Plain containers of NumPy arrays; no rule lives here except the cut at ``as_of``
(:meth:`CycleInputs.known_at`). Times are microseconds since 1970-01-01T00:00Z in int64 (``*_us``), days are
whole days since 1970-01-01 (``day``). NaN in a float column means "missing", -1 in a code column "none".
String tables (``entities``, ``document_ids`` …) are sorted by code point and unique, so that comparing codes
compares the strings.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Strings = NDArray[np.object_]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
US_PER_HOUR = 3_600_000_000
US_PER_DAY = 24 * US_PER_HOUR


class Columns:
    """Row selection for frozen dataclasses whose fields are columns of equal length (or :class:`Ragged`)."""

    __slots__ = ()

    def take(self, rows: Int | Bool) -> Self:
        """Return the rows at ``rows`` (indices or mask), every column alike.

        A mask that keeps every row gives the same object: columns are never written to.
        """
        if rows.dtype == np.bool_:
            if bool(rows.all()):
                return self
            rows = np.flatnonzero(rows)  # once, and not for every column
        # `take` is what `[rows]` is, for a quarter less; a list per row has its own way.
        columns = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        changes = {
            name: column.take(rows, axis=0) if isinstance(column, np.ndarray) else column[rows]
            for name, column in columns.items()
        }
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A list of codes per row: row i holds ``codes[offsets[i]:offsets[i + 1]]``."""

    offsets: Int
    codes: Int

    @classmethod
    def empty(cls, rows: int) -> Ragged:
        """``rows`` empty lists."""
        return cls(np.zeros(rows + 1, np.int64), np.zeros(0, np.int64))

    def lengths(self) -> Int:
        """Number of codes per row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def __getitem__(self, rows: Int | Bool) -> Ragged:
        """Select rows."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        lengths = self.lengths()[index]
        offsets = np.zeros(len(index) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        source = np.repeat(self.offsets[index] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(offsets, self.codes[source])


@dataclass(frozen=True, slots=True, eq=False)
class DocumentRows(Columns):
    """One row per (document, entity): an impact, or the mere naming of an entity (``has_impact`` false)."""

    entity: Int
    document: Int
    source: Int
    source_type: Int
    published_us: Int
    known_us: Int
    credibility: Float
    novelty: Float
    extraction_confidence: Float
    failed: Bool
    has_impact: Bool
    sentiment: Float
    impact: Float
    catalyst: Int
    risks: Ragged


@dataclass(frozen=True, slots=True, eq=False)
class BarRows(Columns):
    """Daily bars: one row per (entity, day), any order. ``volume`` may be NaN."""

    entity: Int
    day: Int
    known_us: Int
    close: Float
    volume: Float


@dataclass(frozen=True, slots=True, eq=False)
class EventRows(Columns):
    """World events. ``sign`` is the direction as -1, 0, +1; severity and duration are enum codes."""

    event: Int
    occurred_us: Int
    known_us: Int
    sign: Int
    severity: Int
    duration: Int
    geo: Ragged
    supply: Ragged
    commodity: Ragged
    sector: Ragged


@dataclass(frozen=True, slots=True, eq=False)
class ExposureRows(Columns):
    """Shares of an entity in the items of a dimension: one row per (entity, dimension, item)."""

    entity: Int
    dimension: Int
    item: Int
    share: Float
    known_us: Int


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRows(Columns):
    """Undirected edges between entities. ``rho`` is the historical correlation in [-1, 1]."""

    source: Int
    target: Int
    rho: Float
    known_us: Int


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyRows(Columns):
    """Accuracy per source as settled by ``as_of`` (R163); at most one row per source."""

    source: Int
    ratio: Float
    samples: Int


@dataclass(frozen=True, slots=True, eq=False)
class CycleInputs:
    """Everything a cycle may look at.

    ``entities`` holds the requested entities and those that can reach them over the graph; documents and bars
    of the latter are needed too. ``items`` is the common table of the four exposure dimensions, in the order
    of ``DIMENSIONS``.
    """

    entities: Strings
    document_ids: Strings
    sources: Strings
    source_types: Strings
    catalysts: Strings
    risk_labels: Strings
    event_ids: Strings
    items: Strings
    documents: DocumentRows
    bars: BarRows
    events: EventRows
    exposures: ExposureRows
    edges: EdgeRows
    accuracy: AccuracyRows

    def known_at(self, as_of_us: int) -> CycleInputs:
        """Drop every row first known after ``as_of_us``; the one place of that cut."""
        cut: dict[str, Any] = {}
        for name in ("documents", "bars", "events", "exposures", "edges"):
            rows = getattr(self, name)
            cut[name] = rows.take(rows.known_us <= as_of_us)
        return replace(self, **cut)


DIMENSIONS: tuple[str, ...] = ("geo", "supply", "commodity", "sector")


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The (entity, window) pairs of a cycle; ``entity`` indexes ``CycleInputs.entities``."""

    entity: Int
    window: Int

    def __len__(self) -> int:
        """Number of keys."""
        return len(self.entity)


@dataclass(frozen=True, slots=True, eq=False)
class HistoryRows(Columns):
    """Earlier cycles of a key (strictly before ``as_of``): one row per (key, cycle), any order."""

    key: Int
    as_of_us: Int
    signed_strength: Float


@dataclass(frozen=True, slots=True, eq=False)
class StandingRows(Columns):
    """The newest earlier recommendation per key; at most one row per key. Codes of Action and Mode."""

    key: Int
    action: Int
    mode: Int
    confidence: Float
    recommendation_id: Strings
