"""What differs between two cycles of a key, and the world in which only some of it had happened.

Nine causes can be switched: new documents, ageing, what left the window, late or revised documents, market
context, source accuracy, configuration, and world events and relations. With none of them on, the rules give
what the earlier cycle gave, with all of them what the later one gave, bit for bit. In between:

* without ageing, everything keeps the age that it had at the earlier cycle; what is new comes in at the age
  that it has at the later one;
* what left the window stays in it, as old as it can be, until the cause is switched on; then it is out even
  if nothing has aged.

How a difference is shared among causes belongs in ``attribution``. (What the code changed cannot be switched:
old rules are gone. It is what remains between stored and recomputed results.)
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np

from oracle_core.arrays import concatenate, merge_tables
from oracle_core.config import OracleConfig
from oracle_core.enums import Window
from oracle_core.frames import TrendRows
from oracle_core.inputs import (
    US_PER_DAY,
    Bool,
    Columns,
    CycleInputs,
    DocumentRows,
    EventRows,
    Int,
    Keys,
    Ragged,
)
from oracle_core.rules import rules_for
from oracle_core.scoring import score_signals
from oracle_core.trend import measure_trends
from oracle_core.windows import LOOKBACK_US, LOOKBACKS_US, in_window


class Cause(StrEnum):
    """What can make two cycles differ, in the order in which they are shown."""

    NEW_DOCUMENTS = "new_documents"
    AGEING = "ageing"
    LEFT_THE_WINDOW = "left_the_window"
    LATE_OR_REVISED = "late_or_revised"
    MARKET_CONTEXT = "market_context"
    SOURCE_ACCURACY = "source_accuracy"
    EVENTS_AND_RELATIONS = "events_and_relations"
    CONFIGURATION = "configuration"


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """One of the two cycles: when, under what, and what it read (cut at ``as_of_us``)."""

    as_of_us: int
    config: OracleConfig
    inputs: CycleInputs


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Two cycles in one table of codes, with what differs between them.

    ``documents`` are those of both; ``before`` and ``after`` say which rows each cycle has, ``new`` which of
    the later one's had not appeared at the earlier, ``left`` which were inside the window then and no more.
    """

    key: Keys
    earlier: Moment
    later: Moment
    documents: DocumentRows
    before: Bool
    after: Bool
    new: Bool
    left: Bool
    causes: tuple[Cause, ...]

    def trend(self, happened: frozenset[Cause]) -> TrendRows:
        """The trend of the key if only these causes had happened."""
        ageing, left = Cause.AGEING in happened, Cause.LEFT_THE_WINDOW in happened

        def chosen(cause: Cause) -> CycleInputs:
            return (self.later if cause in happened else self.earlier).inputs

        moment = self.later if ageing else self.earlier
        config = (self.later if Cause.CONFIGURATION in happened else self.earlier).config
        world = chosen(Cause.EVENTS_AND_RELATIONS)
        inputs = replace(
            world,
            documents=self._documents(happened),
            bars=chosen(Cause.MARKET_CONTEXT).bars,
            accuracy=chosen(Cause.SOURCE_ACCURACY).accuracy,
            events=self._events(world.events, ageing=ageing, left=left),
        )
        rules = rules_for(config)
        signals = score_signals(inputs, self.key, moment.as_of_us, config, rules)
        return measure_trends(signals, inputs, config, rules)

    def _documents(self, happened: frozenset[Cause]) -> DocumentRows:
        changed = np.where(self.new, Cause.NEW_DOCUMENTS in happened, Cause.LATE_OR_REVISED in happened)
        there = np.where(changed, self.after, self.before)
        times = self._times(
            self.documents.published_us,
            self.new,
            ageing=Cause.AGEING in happened,
            left=Cause.LEFT_THE_WINDOW in happened,
        )
        return replace(self.documents, published_us=times).take(there)

    def _events(self, events: EventRows, *, ageing: bool, left: bool) -> EventRows:
        known = np.isin(events.event, self.earlier.inputs.events.event)
        new = ~known & (events.occurred_us > self.earlier.as_of_us)
        return replace(events, occurred_us=self._times(events.occurred_us, new, ageing=ageing, left=left))

    def _times(self, time_us: Int, new: Bool, *, ageing: bool, left: bool) -> Int:
        """When things happened, so that their age and their place in the window are the ones wanted."""
        start, end = self.earlier.as_of_us, self.later.as_of_us
        lookback = int(LOOKBACKS_US[self.key.window[0]])
        gone = in_window(time_us, start, self.key.window[0]) & ~in_window(time_us, end, self.key.window[0])
        if ageing:
            return time_us if left else np.where(gone, end - lookback + 1, time_us)
        shifted = np.where(new, time_us - (end - start), time_us)
        return np.where(gone, start - lookback, shifted) if left else shifted


def difference(entity: str, window: Window, earlier: Moment, later: Moment) -> Difference:
    """Lay two cycles side by side.

    Args:
        entity: the key's entity, known to both.
        window: the key's window.
        earlier: the cycle compared with; both have read what either's configuration reaches.
        later: the cycle explained, not before the other.

    Raises:
        ValueError: the later cycle is the earlier one.

    """
    if later.as_of_us < earlier.as_of_us:
        raise ValueError("the cycle to compare with must not be after the one explained")
    first, second = _aligned(earlier.inputs, later.inputs)
    first, second = _bars_of_both(first, second, earlier.as_of_us)
    code = int(np.searchsorted(first.entities, entity))
    key = Keys(np.array([code]), np.array([list(Window).index(window)]))
    documents, before, after = _together(first, second, earlier, later, code)
    new = after & ~before & (documents.published_us > earlier.as_of_us)
    inside = in_window(documents.published_us, earlier.as_of_us, key.window[0])
    left = inside & ~in_window(documents.published_us, later.as_of_us, key.window[0])
    events = first.events
    went = in_window(events.occurred_us, earlier.as_of_us, key.window[0])
    went &= ~in_window(events.occurred_us, later.as_of_us, key.window[0])
    relations = ("events", "exposures", "edges")
    differs = {
        Cause.NEW_DOCUMENTS: bool(new.any()),
        Cause.AGEING: later.as_of_us > earlier.as_of_us,
        Cause.LEFT_THE_WINDOW: bool(left.any()) or bool(went.any()),
        Cause.LATE_OR_REVISED: bool(((before != after) & ~new).any()),
        Cause.MARKET_CONTEXT: not _same(first.bars, second.bars),
        Cause.SOURCE_ACCURACY: not _same(first.accuracy, second.accuracy),
        Cause.EVENTS_AND_RELATIONS: any(
            not _same(getattr(first, name), getattr(second, name)) for name in relations
        ),
        Cause.CONFIGURATION: earlier.config != later.config,
    }
    return Difference(
        key=key,
        earlier=replace(earlier, inputs=first),
        later=replace(later, inputs=second),
        documents=documents,
        before=before,
        after=after,
        new=new,
        left=left,
        causes=tuple(cause for cause in Cause if differs[cause]),
    )


def _together(
    first: CycleInputs, second: CycleInputs, earlier: Moment, later: Moment, own: int
) -> tuple[DocumentRows, Bool, Bool]:
    """The document rows of both cycles, equal ones once, and which cycle has which."""
    a, b = first.documents, second.documents
    names_a, names_b = _row_names(a), _row_names(b)
    common = set(names_a) & set(names_b)
    only_b = np.array([name not in common for name in names_b], np.bool_)
    rows = concatenate([a, b.take(only_b)])
    before = np.arange(len(rows.entity)) < len(a.entity)
    after = np.append(
        np.array([name in common for name in names_a], np.bool_), np.ones(only_b.sum(), np.bool_)
    )
    # Not gone, but no longer read: too old for the later cycle, or of an entity it does not reach.
    longest = max(LOOKBACK_US.values())
    reach = round(max(m.config.competitive.pattern_lookback_days for m in (earlier, later)) * US_PER_DAY)
    range_us = np.where(rows.entity == own, max(longest, reach), longest)
    unread = before & ~after & (rows.published_us < later.as_of_us - range_us)
    elsewhere = ~np.isin(rows.entity, _present(second, later))
    after |= before & (unread | elsewhere)
    # Not new, but not read before: of an entity that the earlier cycle does not reach.
    unreached = ~np.isin(rows.entity, _present(first, earlier))
    before |= after & unreached & (rows.known_us <= earlier.as_of_us)
    return rows, before, after


def _present(inputs: CycleInputs, moment: Moment) -> Int:
    """Codes, in the common table, of the entities that a cycle read."""
    return np.searchsorted(inputs.entities, moment.inputs.entities)


def _row_names(rows: DocumentRows) -> list[bytes]:
    """One name per row that is equal where every column is."""
    plain = [
        np.ascontiguousarray(getattr(rows, field.name)).astype(np.float64).view(np.int64)
        if getattr(rows, field.name).dtype == np.float64
        else getattr(rows, field.name).astype(np.int64)
        for field in fields(rows)
        if field.name != "risks"
    ]
    table = np.ascontiguousarray(np.column_stack(plain))
    ends = rows.risks.offsets.tolist()
    return [
        table[row].tobytes() + rows.risks.codes[ends[row] : ends[row + 1]].tobytes()
        for row in range(len(table))
    ]


def _bars_of_both(first: CycleInputs, second: CycleInputs, start_us: int) -> tuple[CycleInputs, CycleInputs]:
    """Give each cycle the bars of entities that only the other read, as far as it could have known them."""
    a, b = first.bars, second.bars
    missing_a = b.take(~np.isin(b.entity, a.entity) & (b.known_us <= start_us))
    missing_b = a.take(~np.isin(a.entity, b.entity))
    return (
        replace(first, bars=concatenate([a, missing_a])),
        replace(second, bars=concatenate([b, missing_b])),
    )


def _same(a: Columns, b: Columns) -> bool:
    """Whether two tables hold the same rows, in any order."""
    return sorted(_plain(a)) == sorted(_plain(b))


def _plain(rows: Columns) -> list[tuple[object, ...]]:
    columns: list[list[object]] = []
    for field in fields(rows):  # type: ignore[arg-type]
        values = getattr(rows, field.name)
        if isinstance(values, Ragged):
            ends = values.offsets.tolist()
            codes = values.codes.tolist()
            columns.append([tuple(sorted(codes[a:b])) for a, b in pairwise(ends)])
        else:
            columns.append([repr(value) for value in values.tolist()])
    return list(zip(*columns, strict=True))


_TABLES = {
    "entities": (("documents", "entity"), ("bars", "entity"), ("exposures", "entity")),
    "document_ids": (("documents", "document"),),
    "sources": (("documents", "source"), ("accuracy", "source")),
    "source_types": (("documents", "source_type"),),
    "catalysts": (("documents", "catalyst"),),
    "risk_labels": (("documents", "risks"),),
    "event_ids": (("events", "event"),),
    "items": (
        ("exposures", "item"),
        *(("events", name) for name in ("geo", "supply", "commodity", "sector")),
    ),
}
_EDGE_ENDS = (("edges", "source"), ("edges", "target"))


def _aligned(a: CycleInputs, b: CycleInputs) -> tuple[CycleInputs, CycleInputs]:
    """Both inputs with codes of the same tables, which hold the strings of both."""
    for name, columns in _TABLES.items():
        table, place_a, place_b = merge_tables(getattr(a, name), getattr(b, name))
        wanted = (*columns, *_EDGE_ENDS) if name == "entities" else columns
        a, b = (_moved(inputs, name, table, place, wanted) for inputs, place in ((a, place_a), (b, place_b)))
    return a, b


def _moved(inputs: CycleInputs, name: str, table: Any, place: Int, columns: Any) -> CycleInputs:  # noqa: ANN401
    new = np.append(place, -1)
    changes: dict[str, Any] = {name: table}
    for rows, column in columns:
        part = changes.get(rows, getattr(inputs, rows))
        values = getattr(part, column)
        moved = Ragged(values.offsets, new[values.codes]) if isinstance(values, Ragged) else new[values]
        changes[rows] = replace(part, **{column: moved})
    return replace(inputs, **changes)
