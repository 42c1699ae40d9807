"""Which keys get other rows under another configuration: every column that a stage writes is compared.

Whole columns at a time and without making the rows, because a plan looks at every key there is and may cost
only a part of what computing them costs. Floats are equal where they are bit for bit; NaN equals NaN.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle_core.inputs import Ragged
from oracle_core.risk import citation_weights
from oracle_dagster.storage.identity import is_document_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from oracle_core.frames import EvidenceRows, SignalRows
    from oracle_core.inputs import Bool, Int, Strings
    from oracle_dagster.pipeline import Part
    from oracle_dagster.storage.cycles import Key

_LISTS = ("supporting", "opposing", "disagreements", "dominant_catalysts", "material_risks")


def changed_keys(one: Sequence[Part], other: Sequence[Part]) -> Iterator[tuple[str, Key]]:
    """The stage and key of every row (or group of rows) that differs; keys of both sides only.

    Args:
        one: what one configuration makes of a block.
        other: what another makes of the same keys; it may fall into other parts.

    """
    places = {key: (part, at) for part in one for at, key in enumerate(part.keys)}
    for part in other:
        shared: dict[int, tuple[Part, list[int], list[int]]] = {}
        for at, key in enumerate(part.keys):
            found = places.get(key)
            if found is not None:
                partner, place = found
                pairs = shared.setdefault(id(partner), (partner, [], []))
                pairs[1].append(place)
                pairs[2].append(at)
        for partner, before, after in shared.values():
            a, b = np.array(before, np.int64), np.array(after, np.int64)
            for stage, differs in _STAGES.items():
                for at in np.flatnonzero(differs(partner, part, a, b)).tolist():
                    yield stage, part.keys[int(b[at])]


def _none(rows: Int) -> Bool:
    return np.zeros(len(rows), np.bool_)


def _unequal(one: Any, other: Any) -> Bool:  # noqa: ANN401 - arrays of any one type
    found = one != other
    if one.dtype == np.float64:
        found &= ~(np.isnan(one) & np.isnan(other))
    return found.any(axis=1) if found.ndim > 1 else found  # type: ignore[no-any-return]


def _columns(one: Any, other: Any, a: Int, b: Int) -> Bool:  # noqa: ANN401 - the rows of a frame
    """Of two frames with a row per key, which pairs of rows differ."""
    found = _none(a)
    for field in fields(one):
        found |= _unequal(getattr(one, field.name)[a], getattr(other, field.name)[b])
    return found


def _objects(one: Sequence[Any], other: Sequence[Any], a: Int, b: Int) -> Bool:
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return np.array([one[i] != other[j] for i, j in pairs], np.bool_)


# --------------------------------------------------------------------------------------------- groups


def _grouped(
    one: SignalRows | EvidenceRows,
    other: SignalRows | EvidenceRows,
    a: Int,
    b: Int,
    named: Mapping[str, tuple[Strings, Strings]],
) -> Bool:
    """Of two frames with a group of rows per key, in the order of the keys, which pairs of groups differ.

    ``named`` holds the tables of the columns that are codes; other codes mean the same on both sides.
    """
    starts_a, starts_b = (np.searchsorted(rows.key, keys) for rows, keys in ((one, a), (other, b)))
    counts_a, counts_b = (
        np.searchsorted(rows.key, keys, side="right") - starts
        for rows, keys, starts in ((one, a, starts_a), (other, b, starts_b))
    )
    found: Bool = counts_a != counts_b
    counts = np.where(found, 0, counts_a)
    owner = np.repeat(np.arange(len(a)), counts)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    at, to = starts_a[owner] + inside, starts_b[owner] + inside
    differs = np.zeros(len(owner), np.bool_)
    for field in fields(one):
        if field.name == "key":
            continue
        left, right = getattr(one, field.name), getattr(other, field.name)
        tables = named.get(field.name)
        if isinstance(left, Ragged):
            differs |= _lists(left, right, at, to, tables)
        elif tables is None:
            differs |= _unequal(left[at], right[to])
        else:
            differs |= left[at] != _translated(right, tables)[to]
    found |= np.bincount(owner[differs], minlength=len(a)) > 0
    return found


def _translated(codes: Int, tables: tuple[Strings, Strings]) -> Int:
    """Codes of the second table as codes of the first; what that lacks becomes a code of its own."""
    mine, theirs = tables
    if mine is theirs or (len(mine) == len(theirs) and bool((mine == theirs).all())):
        return codes
    place = {name: code for code, name in enumerate(mine.tolist())}
    meaning = np.array([place.get(name, -2) for name in theirs.tolist()], np.int64)
    return np.where(codes >= 0, meaning[codes], codes) if len(meaning) else codes


def _lists(left: Ragged, right: Ragged, at: Int, to: Int, tables: tuple[Strings, Strings] | None) -> Bool:
    one, other = left[at], right[to]
    codes = other.codes if tables is None else _translated(other.codes, tables)
    lengths: Int = one.lengths()
    found: Bool = lengths != other.lengths()
    if bool(found.any()):  # offsets differ from there on, so each list by itself
        mine = np.split(one.codes, one.offsets[1:-1])
        theirs = np.split(codes, other.offsets[1:-1])
        return np.array([not np.array_equal(x, y) for x, y in zip(mine, theirs, strict=True)], np.bool_)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    found |= np.bincount(owner[one.codes != codes], minlength=len(lengths)) > 0
    return found


# --------------------------------------------------------------------------------------------- stages


def _signals(one: Part, other: Part, a: Int, b: Int) -> Bool:
    left, right = one.signals, other.signals
    if left is None or right is None or left is right:
        return _none(a)
    tables = {
        "signal": (left.ids, right.ids),
        "source": (left.sources, right.sources),
        "source_type": (left.source_types, right.source_types),
        "catalyst": (left.catalysts, right.catalysts),
        "risks": (left.risk_labels, right.risk_labels),
    }
    return _grouped(left.rows, right.rows, a, b, tables) | _unequal(left.skipped[a], right.skipped[b])


def _trends(one: Part, other: Part, a: Int, b: Int) -> Bool:
    left, right = one.trends, other.trends
    if left is None or right is None or left is right:
        return _none(a)
    found = _columns(left.rows, right.rows, a, b)
    for name in _LISTS:
        found |= _objects(getattr(left, name), getattr(right, name), a, b)
    found |= _grouped(left.evidence, right.evidence, a, b, {"signal": (left.ids, right.ids)})
    return found | (one.cycle.config.pipeline_mode is not other.cycle.config.pipeline_mode)


def _projections(one: Part, other: Part, a: Int, b: Int) -> Bool:
    left, right = one.projections, other.projections
    if left is None or right is None or left is right:
        return _none(a)
    found = _columns(left.rows, right.rows, a, b)
    return found | _objects(left.driving_factors, right.driving_factors, a, b)


def _decisions(one: Part, other: Part, a: Int, b: Int) -> Bool:
    left, right = one.decided, other.decided
    if left is None or right is None or one.trends is None or other.trends is None:
        return _none(a)
    found = _objects(one.made, other.made, a, b)  # conditions, sizes, checks and whether it is a duplicate
    found |= _objects(left.thesis, right.thesis, a, b)
    found |= _unequal(left.rows.expected_value[a], right.rows.expected_value[b])
    for name in ("confidence", "p_bull"):
        found |= _unequal(getattr(one.trends.rows, name)[a], getattr(other.trends.rows, name)[b])
    for name in ("supporting", "opposing"):
        found |= _objects(getattr(one.trends, name), getattr(other.trends, name), a, b)
    found |= one.cycle.config.pipeline_mode is not other.cycle.config.pipeline_mode
    return found | _weights(one, other, b)


def _weights(one: Part, other: Part, b: Int) -> Bool:
    """Whose cited documents get another weight, which is of their rank alone."""
    if one.cycle.config.risk.evidence_weight_decay == other.cycle.config.risk.evidence_weight_decay:
        return _none(b)
    assert other.trends is not None  # noqa: S101 - for the type checker
    sides = (other.trends.supporting, other.trends.opposing)
    ranks = np.arange(max((len(ids) for side in sides for ids in side), default=0))
    moved = citation_weights(ranks, one.cycle.config.risk) != citation_weights(ranks, other.cycle.config.risk)
    changed = moved.tolist()
    return np.array(
        [
            any(
                changed[rank] and is_document_id(name) for side in sides for rank, name in enumerate(side[at])
            )
            for at in b.tolist()
        ],
        np.bool_,
    )


_STAGES: dict[str, Callable[[Part, Part, Int, Int], Bool]] = {
    "weighted_signals": _signals,
    "trend_windows": _trends,
    "trend_projections": _projections,
    "recommendations": _decisions,
}
