"""Sums, runs and joins on columns, shared by all rules; no rule of the product lives here.

A *grouping* is an int64 array ``offsets`` of length groups + 1: group g is ``offsets[g]:offsets[g + 1]`` of
columns that are sorted by group. Every sum over a group is exactly rounded (``math.fsum``), so it depends
neither on the order of the rows nor on which other groups are in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import fsum
from typing import Any, TypeVar

import numpy as np

from oracle_core.inputs import Bool, Columns, Float, Int, Ragged, Strings

C = TypeVar("C", bound=Columns)


def group_offsets(groups: Int, count: int) -> Int:
    """Offsets of ``count`` groups from sorted (or unsorted: as if sorted) group codes in [0, count)."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=offsets[1:])
    return offsets


def exact_sums(values: Float, offsets: Int) -> Float:
    """Exactly rounded sum of each group; 0 for an empty one. ``values`` must be finite."""
    listed = values.tolist()
    bounds = offsets.tolist()
    sums = [fsum(listed[a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    return np.array(sums, np.float64)


def exact_means(values: Float, offsets: Int) -> Float:
    """Mean of each group from its exact sum; 0 for an empty group."""
    return divide(exact_sums(values, offsets), np.diff(offsets).astype(np.float64))


def divide(numerator: Float, denominator: Float) -> Float:
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
    places = np.searchsorted(first, second) if len(first) > 0 else np.zeros(len(second), np.int64)
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
    position = dict(zip(table, range(len(table)), strict=True))
    codes = np.array([position[s] for s in strings], np.int64)
    return np.array(table, np.object_).reshape(len(table)), codes


def finite(*columns: Float) -> Bool:
    """Rows that are finite in every column."""
    good = np.isfinite(columns[0])
    for column in columns[1:]:
        good &= np.isfinite(column)
    return good
