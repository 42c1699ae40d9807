"""Sums, runs and joins on columns, shared by all rules; no rule of the product lives here.

A *grouping* is an int64 array ``offsets`` of length groups + 1: group g is ``offsets[g]:offsets[g + 1]`` of
columns that are sorted by group. No sum depends on which other groups are in the batch; one that may decide a
sign or an existence is exactly rounded (:func:`exact_sums`), so it does not depend on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import fsum
from typing import Any, TypeVar

import numpy as np

from oracle_core.inputs import Bool, Columns, Float, Int, Ragged, Strings

_INT64_MAX = 2**63 - 1

C = TypeVar("C", bound=Columns)


def group_offsets(groups: Int, count: int) -> Int:
    """Offsets of ``count`` groups from sorted (or unsorted: as if sorted) group codes in [0, count)."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=offsets[1:])
    return offsets


def exact_sums(values: Float, offsets: Int) -> Float:
    """Exactly rounded sum of each group; 0 for an empty one. ``values`` must be finite."""
    lengths = np.diff(offsets)
    sums = np.zeros(len(lengths))
    start = offsets[:-1]
    single, double = lengths == 1, lengths == 2  # noqa: PLR2004 - one IEEE addition is exactly rounded
    sums[single] = values[start[single]]
    sums[double] = values[start[double]] + values[start[double] + 1]
    many = np.flatnonzero(lengths > 2)  # noqa: PLR2004
    if len(many) > 0:
        listed = values.tolist()
        bounds = zip(start[many].tolist(), offsets[many + 1].tolist(), strict=True)
        sums[many] = [fsum(listed[a:b]) for a, b in bounds]
    return sums


def exact_means(values: Float, offsets: Int) -> Float:
    """Mean of each group from its exact sum; 0 for an empty group."""
    return divide(exact_sums(values, offsets), np.diff(offsets))


def group_sums(values: Float, groups: Int, count: int) -> Float:
    """Sum of each group, added in the order of the rows.

    For terms of one sign in a fixed order of rows: such a sum cannot turn a sign, and it depends on the rows
    of its own group only.
    """
    # Without rows bincount forgets the weights and counts in integers.
    return np.asarray(np.bincount(groups, weights=values, minlength=count), np.float64)


def group_means(values: Float, offsets: Int) -> Float:
    """Mean of each group from :func:`group_sums`; 0 for an empty group."""
    return divide(group_sums(values, group_codes(offsets), len(offsets) - 1), np.diff(offsets))


def divide(numerator: Float, denominator: Float | Int) -> Float:
    """Quotient, 0 where the denominator is 0."""
    safe = np.where(denominator == 0.0, 1.0, denominator)
    return np.where(denominator == 0.0, 0.0, numerator / safe)


def group_max(values: Float, offsets: Int, empty: float = 0.0) -> Float:
    """Largest value of each group, ``empty`` for an empty one."""
    result = np.full(len(offsets) - 1, empty)
    filled = np.diff(offsets) > 0
    if filled.any():
        result[filled] = np.maximum.reduceat(values, offsets[:-1][filled])
    return result


def group_codes(offsets: Int) -> Int:
    """Group of every row: the inverse of :func:`group_offsets`."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def ranges(starts: Int, lengths: Int) -> tuple[Int, Int]:
    """Unroll ``starts[i] … starts[i] + lengths[i] - 1``.

    Returns:
        For every element the i it comes from, and its value.

    """
    owner = np.repeat(np.arange(len(starts)), lengths)
    first = np.cumsum(lengths) - lengths
    return owner, np.arange(len(owner)) - first[owner] + starts[owner]


def ascending(group: Int, value: Int) -> Int:
    """Order of rows by group, then by value; rows that are equal keep their order."""
    if len(group) == 0:
        return np.zeros(0, np.int64)
    low = int(value.min())
    span = int(value.max()) - low + 1
    if (int(group.max()) + 1) * span > _INT64_MAX:
        return np.lexsort((value, group))
    # Rows mostly come as a few sorted runs, which a stable sort of one column merges in linear time.
    return np.argsort(group * span + (value - low), kind="stable")


def newest_first(group: Int, time_us: Int, code: Int) -> Int:
    """Order of rows by group, then newest first, then by code."""
    order = ascending(group, -time_us)
    same = (np.diff(group[order]) == 0) & (np.diff(time_us[order]) == 0)
    if bool((same & (np.diff(code[order]) < 0)).any()):
        return np.lexsort((code, -time_us, group))
    return order


def bisect(values: Int, low: Int, high: Int, wanted: Int) -> Int:
    """First position in each range ``low:high`` of sorted values above the wanted one, else ``high``."""
    low, high = low.copy(), high.copy()
    while bool((low < high).any()):
        middle = (low + high) // 2
        open_range = low < high
        below = np.zeros_like(open_range)
        below[open_range] = values[middle[open_range]] <= wanted[open_range]
        low = np.where(below, middle + 1, low)
        high = np.where(open_range & ~below, middle, high)
    return low


def runs(*columns: Int) -> tuple[Int, Int]:
    """Find the runs of equal rows in columns that are sorted together.

    Returns:
        The first row of each run, and the offsets of the runs.

    """
    rows = len(columns[0])
    new = np.zeros(rows, np.bool_)
    if rows > 0:
        new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(new)
    return starts, np.append(starts, rows)


def concatenate(parts: Sequence[C]) -> C:
    """Stack column objects of the same type, in order."""
    columns: dict[str, Any] = {}
    for field in fields(parts[0]):  # type: ignore[arg-type]
        values = [getattr(part, field.name) for part in parts]
        columns[field.name] = _stack(values) if isinstance(values[0], Ragged) else np.concatenate(values)
    return type(parts[0])(**columns)


def _stack(parts: Sequence[Ragged]) -> Ragged:
    lengths = np.concatenate([part.lengths() for part in parts])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Ragged(offsets, np.concatenate([part.codes for part in parts]))


def merge_tables(first: Strings, second: Strings) -> tuple[Strings, Int, Int]:
    """Merge two sorted tables of unique strings.

    Returns:
        The merged table, sorted by code point and unique, and the new code of each entry of both tables.

    """
    places = np.searchsorted(first, second)
    known = np.zeros(len(second), np.bool_)
    inside = places < len(first)
    known[inside] = first[places[inside]] == second[inside]
    fresh = places[~known]
    new_first = np.arange(len(first)) + np.searchsorted(fresh, np.arange(len(first)), side="right")
    new_second = np.empty(len(second), np.int64)
    new_second[~known] = fresh + np.arange(len(fresh))
    new_second[known] = new_first[places[known]]
    table = np.empty(len(first) + len(fresh), np.object_)
    table[new_first] = first
    table[new_second] = second
    return table, new_first, new_second


def string_codes(strings: Sequence[str]) -> tuple[Strings, Int]:
    """Sorted table of the distinct strings, and the code of each."""
    table = sorted(set(strings))
    position = {name: code for code, name in enumerate(table)}
    codes = np.array([position[s] for s in strings], np.int64)
    return np.array(table, np.object_), codes


def finite(*columns: Float) -> Bool:
    """Rows that are finite in every column."""
    good = np.isfinite(columns[0])
    for column in columns[1:]:
        good &= np.isfinite(column)
    return good
