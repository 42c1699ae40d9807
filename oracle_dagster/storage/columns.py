"""Between Arrow's columns, which the database speaks, and the core's arrays: codes, missing values, lists.

Null in a float column is NaN, null in a string column is code -1, times are microseconds since 1970.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oracle_core.inputs import Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum

    from oracle_core.inputs import Bool, Float, Int, Strings


def table(*of: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The distinct strings of the columns by code point (bytewise in UTF-8), without null."""
    chunks: list[pa.Array] = []
    for column in of:
        chunks += column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    distinct = pc.drop_null(pc.unique(pa.chunked_array(chunks, pa.string())))
    return distinct.take(pc.sort_indices(distinct))


def members(enum: type[StrEnum]) -> pa.Array:
    """The values of an enum in the order of their codes."""
    return pa.array([str(member) for member in enum], pa.string())


def codes(column: pa.ChunkedArray | pa.Array, of: pa.Array) -> Int:
    """Position of every string in the table ``of``, -1 for null and for one that is not there."""
    return ints(pc.fill_null(pc.index_in(column, value_set=of, skip_nulls=True), -1))


def ragged(column: pa.ChunkedArray, of: pa.Array) -> Ragged:
    """Lists of strings as lists of positions in the table ``of``; null is an empty list."""
    lengths = ints(pc.fill_null(pc.list_value_length(column), 0))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Ragged(offsets, codes(pc.list_flatten(column), of))


def ints(column: pa.ChunkedArray | pa.Array) -> Int:
    """Integers without null."""
    return np.asarray(column, np.int64)


def times(column: pa.ChunkedArray) -> Int:
    """Times without null, as microseconds."""
    return ints(column.cast(pa.int64()))


def floats(column: pa.ChunkedArray) -> Float:
    """Floats, NaN for null."""
    return np.array(column.to_numpy(), np.float64)


def bools(column: pa.ChunkedArray) -> Bool:
    """Booleans without null."""
    return np.array(column.to_numpy(), np.bool_)


def strings(column: pa.ChunkedArray | pa.Array) -> Strings:
    """Strings as Python objects."""
    values = np.empty(len(column), np.object_)
    values[:] = column.to_pylist()
    return values


def named(code: Int, of: pa.Array | Strings | Sequence[str]) -> pa.Array:
    """The string of every code, null for -1."""
    names = of if isinstance(of, pa.Array) else pa.array(list(of), pa.string())
    return names.take(pa.array(code, pa.int64(), mask=code < 0))


def named_lists(lists: Ragged, of: Strings) -> pa.Array:
    """The strings of every list."""
    return pa.ListArray.from_arrays(pa.array(lists.offsets, pa.int32()), named(lists.codes, of))


def nullable(values: Float) -> pa.Array:
    """Floats with null for NaN."""
    return pa.array(values, pa.float64(), from_pandas=True)


def moments(us: Int) -> pa.Array:
    """Times from microseconds."""
    return pa.array(us, pa.int64()).cast(pa.timestamp("us", "UTC"))
