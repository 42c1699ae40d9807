"""Sums, runs and joins on columns, shared by all rules; no rule of the product lives here.

A *grouping* is an int64 array ``offsets`` of length groups + 1: group g is ``offsets[g]:offsets[g + 1]`` of
columns that are sorted by group. No sum depends on which other groups are in the batch; one that may decide a
sign or an existence is exactly rounded (:func:`exact_sums`), so it does not depend on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import frexp, fsum
from typing import Any, TypeVar

import numpy as np

from oracle_core.inputs import Bool, Columns, Float, Int, Ragged, Strings

_INT64_MAX = 2**63 - 1
_TWO_52 = 2.0**52
# Far from the ends of the range of floating-point numbers, powers of two multiply without a loss.
_TINY, _HUGE = 2.0**-800, 2.0**800

C = TypeVar("C", bound=Columns)


def group_offsets(groups: Int, count: int) -> Int:
    """Offsets of ``count`` groups from sorted (or unsorted: as if sorted) group codes in [0, count)."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=offsets[1:])
    return offsets


def exact_sums(values: Float, offsets: Int) -> Float:
    """Exactly rounded sum of each group; 0 for an empty one. ``values`` must be finite."""
    lengths = np.diff(offsets)
    sums, again = _sums_in_parts(values, offsets, int(lengths.max(initial=0)))
    bounds = zip(offsets[again].tolist(), offsets[again + 1].tolist(), strict=True)
    sums[again] = [fsum(values[a:b].tolist()) for a, b in bounds]
    start = offsets[:-1]
    single, double = lengths == 1, lengths == 2  # noqa: PLR2004 - one IEEE addition is exactly rounded
    sums[single] = values[start[single]]
    sums[double] = values[start[double]] + values[start[double] + 1]
    return sums


def _sums_in_parts(values: Float, offsets: Int, longest: int) -> tuple[Float, Int]:
    """Exactly rounded sums, and the groups whose values differ too much in size for it.

    Two parts of every value are whole numbers of units so coarse that the sum of a part over a group is
    exact; the one addition of both sums then rounds once.
    """
    owner, groups = group_codes(offsets), len(offsets) - 1
    top = float(np.max(np.abs(values), initial=0.0))
    if not _TINY < top < _HUGE:
        return np.zeros(groups), np.unique(owner)
    exponent, bits = frexp(top)[1], 52 - longest.bit_length()
    upper, rest = _split(values, 2.0 ** (exponent - bits))
    lower, rest = _split(rest, 2.0 ** (exponent - 2 * bits))
    sums = group_sums(upper, owner, groups) + group_sums(lower, owner, groups)
    return sums, np.unique(owner[np.flatnonzero(rest)])


def _split(values: Float, unit: float) -> tuple[Float, Float]:
    """The nearest multiple of ``unit``, a power of two, and what is left of each value, both exact."""
    # Adding and taking away a number whose last bit is the unit rounds to it.
    whole = (values + 1.5 * _TWO_52 * unit) - 1.5 * _TWO_52 * unit
    return whole, values - whole


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
    return _order(group * span + (value - low))


def descending(group: Int, value: Float) -> Int:
    """Order of rows by group, then by value, the largest first; rows that are equal keep their order.

    ``value`` must be finite.
    """
    if len(group) == 0:
        return np.zeros(0, np.int64)
    top = float(value.max())
    span = top - float(value.min())
    if not _TINY < span < _HUGE:
        return np.lexsort((-value, group))
    bits = 62 - int(group.max()).bit_length()
    # Cut as integers: as a float the greatest code would round up, into the next group.
    coarse = np.minimum(((top - value) * (2.0**bits / span)).astype(np.int64), (1 << bits) - 1)
    code = (group << bits) + coarse
    order = _order(code)
    return _mended(order, code[order], -value[order])


def _order(code: Int) -> Int:
    """Order of rows by a code that is at least 0; rows that are equal keep their order.

    Sorts the code and the row in one integer, many times quicker than an order is found by comparing rows.
    """
    rows = np.arange(len(code))
    bits = len(code).bit_length()
    lost = max(0, int(code.max()).bit_length() + bits - 63)
    packed = ((code >> lost) << bits) + rows
    packed.sort()
    order = packed & ((1 << bits) - 1)
    return order if lost == 0 else _mended(order, packed >> bits, code[order])


def _mended(order: Int, coarse: Int, fine: Int | Float) -> Int:
    """An order by ``coarse`` with the rows that are equal in it put in that of ``fine`` too."""
    equal = coarse[1:] == coarse[:-1]
    if bool((equal & (fine[1:] < fine[:-1])).any()):
        again = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        order[again] = order[again][np.lexsort((fine[again], coarse[again]))]
    return order


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
