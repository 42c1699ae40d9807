"""Sums, runs and joins on columns: what every rule stands on (decisions 5: exact sums, batch = single)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_core.arrays import (
    ascending,
    bisect,
    concatenate,
    descending,
    divide,
    exact_means,
    exact_sums,
    finite,
    group_codes,
    group_max,
    group_means,
    group_offsets,
    group_sums,
    merge_tables,
    newest_first,
    ranges,
    runs,
    string_codes,
)
from oracle_core.frames import SignalRows
from oracle_core.inputs import Ragged
from oracle_core.single import single_frame
from tests.strategies import AS_OF_US, NAN, Bar, Document, World, signal

NUMBERS = st.floats(-1e9, 1e9)


def table(*names: str) -> Any:  # noqa: ANN401
    return np.array(names, np.object_).reshape(len(names))


def test_exact_sums_leave_no_dust_whatever_the_order() -> None:
    values = np.array([0.1, 0.2, -0.3, 0.3, -0.2, -0.1, 7.0, 0.1, 0.2, 1e16, 1.0, -1e16])
    offsets = np.array([0, 0, 6, 7, 9, 12])
    assert exact_sums(values, offsets).tolist() == [0.0, 0.0, 7.0, 0.1 + 0.2, 1.0]
    assert exact_sums(np.zeros(0), np.array([0, 0])).tolist() == [0.0]


@given(groups=st.lists(st.lists(NUMBERS, max_size=5), max_size=6))
def test_exact_sums_are_those_of_the_library(groups: list[list[float]]) -> None:
    values = np.array([v for group in groups for v in group], np.float64)
    offsets = np.append(0, np.cumsum([len(group) for group in groups], dtype=np.int64))
    assert exact_sums(values, offsets).tolist() == [math.fsum(group) for group in groups]
    means = [math.fsum(group) / len(group) if group else 0.0 for group in groups]
    assert exact_means(values, offsets).tolist() == means
    assert group_means(values, offsets) == pytest.approx(means, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("spread", [0, 8, 60, 400, 1100])
def test_exact_sums_are_those_of_the_library_whatever_the_sizes_of_the_values(spread: int) -> None:
    """Cancelling pairs, dust below the last bit, values near both ends of the range, groups of any length."""
    rng = np.random.default_rng(spread)
    for longest in (1, 2, 3, 40, 1500):
        lengths = rng.integers(0, longest + 1, 12)
        offsets = np.append(0, np.cumsum(lengths))
        with np.errstate(under="ignore"):
            values = rng.normal(size=offsets[-1]) * 2.0 ** rng.uniform(-spread, min(spread, 900), offsets[-1])
        half = len(values) // 2
        values[:half] = -values[half : 2 * half]
        rng.shuffle(values)
        expected = [math.fsum(values[a:b].tolist()) for a, b in itertools.pairwise(offsets.tolist())]
        assert exact_sums(values, offsets).tolist() == expected


def test_a_sum_does_not_depend_on_the_other_groups_of_the_batch() -> None:
    """The parts are cut by the largest value and the longest group of all; no sum may show it."""
    rng = np.random.default_rng(1)
    group = rng.normal(size=100) * 2.0 ** rng.uniform(-30, 0, 100)
    alone = exact_sums(group, np.array([0, 100]))
    for other in (np.array([1e300]), np.array([1e-300]), np.ones(5000), np.zeros(3), np.full(2, 2.0**60)):
        together = exact_sums(np.append(group, other), np.array([0, 100, 100 + len(other)]))
        assert together[0] == alone[0]
    zeros = exact_sums(
        np.array([-0.0, -0.0, -0.0, -0.0, -0.0, -0.0, 1.0, 2.0, 3.0]), np.array([0, 1, 3, 6, 9])
    )
    assert np.signbit(zeros).tolist() == [True, True, False, False]
    zeros = exact_sums(np.array([-0.0, -0.0, -0.0, -0.0, -0.0, -0.0]), np.array([0, 1, 3, 6]))
    assert np.signbit(zeros).tolist() == [True, True, False]


@pytest.mark.parametrize("groups", [1, 2, 7, 1 << 20, 1 << 40])
@pytest.mark.parametrize("decimals", [0, 1, 3, 17])
def test_an_order_by_group_and_value_is_that_of_a_stable_sort(groups: int, decimals: int) -> None:
    """Equal values keep the order of their rows, and values that differ in the last bit only do not."""
    rng = np.random.default_rng(groups + decimals)
    for rows in (0, 1, 2, 3, 50, 3000):
        group = rng.integers(0, groups, rows)
        value = np.round(rng.normal(size=rows), decimals)
        value[: rows // 3] = np.nextafter(value[: rows // 3], 9.0)
        for scale in (1.0, -1.0, 0.0, 1e-300, 1e250):
            scaled = value * scale
            assert np.array_equal(descending(group, scaled), np.lexsort((-scaled, group)))
        for span in (3, 10**6, 90 * 86_400 * 10**6, 2**62):
            whole = rng.integers(-span, span, rows)
            whole[: rows // 2] = whole[0] if rows > 0 else 0
            assert np.array_equal(ascending(group, whole), np.lexsort((whole, group)))


def test_a_mask_that_keeps_every_row_copies_nothing() -> None:
    rows = single_frame([signal(), signal()]).rows
    assert rows.take(np.array([True, True])) is rows
    assert len(rows.take(np.array([True, False])).key) == 1
    assert len(rows.take(np.array([False, False])).key) == 0


def test_group_sums_add_in_the_order_of_the_rows() -> None:
    values, groups = np.array([0.1, 9.0, 0.2, 0.3]), np.array([1, 0, 1, 1])
    assert group_sums(values, groups, 3).tolist() == [9.0, 0.1 + 0.2 + 0.3, 0.0]


def test_offsets_and_codes_are_inverse() -> None:
    groups = np.array([0, 0, 2, 2, 2])
    assert group_offsets(groups, 4).tolist() == [0, 2, 2, 5, 5]
    assert group_codes(group_offsets(groups, 4)).tolist() == groups.tolist()
    assert group_offsets(np.zeros(0, np.int64), 2).tolist() == [0, 0, 0]


def test_group_max_of_empty_groups() -> None:
    offsets = np.array([0, 0, 2, 2, 3])
    assert group_max(np.array([1.0, 3.0, -2.0]), offsets).tolist() == [0.0, 3.0, 0.0, -2.0]
    assert group_max(np.array([1.0, 3.0, -2.0]), offsets, 9.0).tolist() == [9.0, 3.0, 9.0, -2.0]
    assert group_max(np.zeros(0), np.array([0, 0])).tolist() == [0.0]


def test_ranges_unroll_starts_and_lengths() -> None:
    owner, value = ranges(np.array([5, 0, 9]), np.array([2, 0, 1]))
    assert owner.tolist() == [0, 0, 2]
    assert value.tolist() == [5, 6, 9]


def test_runs_start_where_any_column_changes() -> None:
    first, offsets = runs(np.array([0, 0, 0, 1, 1]), np.array([3, 3, 4, 4, 4]))
    assert first.tolist() == [0, 2, 3]
    assert offsets.tolist() == [0, 2, 3, 5]
    first, offsets = runs(np.zeros(0, np.int64))
    assert (first.tolist(), offsets.tolist()) == ([], [0])
    assert runs(np.array([7]))[0].tolist() == [0]


def test_divide_by_0_is_0() -> None:
    assert divide(np.array([1.0, 3.0, 0.0]), np.array([0.0, 2.0, 0.0])).tolist() == [0.0, 1.5, 0.0]
    with np.errstate(all="raise"):
        assert divide(np.array([3.0, 3.0]), np.array([0.0, 1.0])).tolist() == [0.0, 3.0]


def test_finite_needs_every_column() -> None:
    found = finite(np.array([1.0, NAN, 1.0, 1.0]), np.array([1.0, 1.0, math.inf, 2.0]))
    assert found.tolist() == [True, False, False, True]


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(-1, 10),
)
def test_bisect_finds_the_first_larger_value_of_a_range(
    values: list[int], a: int, b: int, wanted: int
) -> None:
    column = np.array(sorted(values), np.int64)
    low, high = sorted((min(a, len(values)), min(b, len(values))))
    expected = next((n for n in range(low, high) if column[n] > wanted), high)
    found = bisect(column, np.array([low, 0]), np.array([high, 0]), np.array([wanted, wanted]))
    assert found.tolist() == [expected, 0]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from((-5, 0, 7, 2**60)), st.integers(0, 5)), max_size=12)
)
def test_newest_first_orders_by_group_time_and_code(rows: list[tuple[int, int, int]]) -> None:
    """Also where group and time do not fit into one integer."""
    group, time_us, code = (
        (np.array(c, np.int64) for c in zip(*rows, strict=True)) if rows else [np.zeros(0, np.int64)] * 3
    )
    found = [rows[n] for n in newest_first(group, time_us, code).tolist()]
    assert found == sorted(rows, key=lambda row: (row[0], -row[1], row[2]))


def test_ascending_keeps_the_order_of_equals_and_orders_what_does_not_fit_into_one_number() -> None:
    group, value = np.array([1, 0, 1, 0, 1]), np.array([5, 2**62, 5, -(2**62), 4])
    assert ascending(group, value).tolist() == [3, 1, 4, 0, 2]
    small = np.array([1, 0, 1, 0, 1]), np.array([5, 9, 5, 8, 4])
    assert ascending(*small).tolist() == [3, 1, 4, 0, 2]
    assert ascending(np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == []
    many = np.tile([1, 0, 1, 1, 0], 400), np.tile([3, 5], 1000)
    assert ascending(*many).tolist() == np.lexsort(many[::-1]).tolist()
    far = np.array([2**62 + 1, 2**62 - 1])
    assert ascending(np.zeros(2, np.int64), far).tolist() == [1, 0]


@given(st.sets(st.text("abc", max_size=3)), st.sets(st.text("abc", max_size=3)))
def test_merged_tables_are_sorted_unique_and_map_both(first: set[str], second: set[str]) -> None:
    a, b = table(*sorted(first)), table(*sorted(second))
    merged, of_a, of_b = merge_tables(a, b)
    assert merged.tolist() == sorted(first | second)
    assert merged[of_a].tolist() == a.tolist()
    assert merged[of_b].tolist() == b.tolist()


def test_strings_are_ordered_by_code_point() -> None:
    """Upper case before lower, ASCII before the rest, whatever a database's collation says."""
    names, codes = string_codes(["é", "a", "Z", "a"])
    assert names.tolist() == ["Z", "a", "é"]
    assert codes.tolist() == [2, 1, 0, 1]
    assert string_codes([])[0].tolist() == []
    assert string_codes([])[0].dtype == names.dtype == np.object_


def test_an_empty_list_of_lists_has_its_rows_and_no_codes() -> None:
    found = Ragged.empty(3)
    assert (len(found), found.lengths().tolist(), found.codes.tolist()) == (3, [0, 0, 0], [])


def test_what_is_known_already_is_not_copied() -> None:
    inputs = World(documents=(Document("d", "a"),), bars=(Bar("a", 1, 9.0),)).inputs()
    cut = inputs.known_at(AS_OF_US)
    assert cut.documents is inputs.documents
    assert cut.bars is inputs.bars
    assert len(inputs.known_at(0).documents.entity) == 0


def test_concatenate_of_one_part_is_that_part() -> None:
    rows = single_frame([signal("a", risks=("x", "y"))]).rows
    assert concatenate([rows]).risks.codes.tolist() == [0, 1]


def test_concatenate_stacks_columns_and_lists() -> None:
    one = single_frame([signal("a", risks=("x", "y"))]).rows
    two = single_frame([signal("b", 0.5), signal("c", risks=("z",))]).rows
    found = concatenate([one, two])
    assert isinstance(found, SignalRows)
    assert found.combined.tolist() == [1.0, 0.5, 1.0]
    assert found.risks.offsets.tolist() == [0, 2, 2, 3]
    assert found.risks.codes.tolist() == [0, 1, 0]
    assert isinstance(found.risks, Ragged)
