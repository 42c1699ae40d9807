"""The benchmarks measure what they say, here at tiny sizes and without bounds, so that they never rot."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cycle, growth, harness, ingestion, kernel, orchestration, worlds
from oracle_dagster.embedded_postgres import EmbeddedPostgres


def figure(median: float, *, at_most: bool = True) -> harness.Figure:
    """A figure with a bound of 1."""
    return harness.Figure(
        "made up",
        "one",
        "other",
        harness.Spread(median, 0.5, 2.0, 3),
        1.0,
        at_most=at_most,
        sizes="3 rows",
        notes={"milliseconds": 1.5},
    )


def test_sides_are_measured_in_turn_and_a_warming_round_does_not_count() -> None:
    order: list[str] = []
    prepared: list[str] = []
    seconds = harness.alternate(
        {name: lambda name=name: order.append(name) for name in "ab"},  # type: ignore[misc]
        2,
        before=prepared.append,
        warm=True,
    )
    assert order == prepared == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    seconds = {"a": [1.0, 6.0, 4.0], "b": [2.0, 2.0, 2.0]}
    assert harness.ratio(seconds, "a", "b") == harness.Spread(2.0, 0.5, 3.0, 3)
    assert harness.ratio(seconds, "a", "b", 10.0).median == 20.0


@pytest.mark.parametrize(("at_most", "met"), [(True, [True, True, False]), (False, [False, True, True])])
def test_a_bound_is_kept_from_its_own_side(*, at_most: bool, met: list[bool]) -> None:
    assert [figure(value, at_most=at_most).met for value in (0.9, 1.0, 1.1)] == met


def test_the_table_shows_every_figure_and_says_where_a_bound_is_not_kept() -> None:
    table = harness.markdown([figure(1.5), figure(0.25, at_most=False), figure(0.5)], {"cores": 2})
    lines = [line for line in table.splitlines() if line.startswith("| made up")]
    assert lines[0] == "| made up | one | other | 1.5 | 0.5 … 2 (3 rounds) | ≤ 1 | **no** |"
    assert [line.split("|")[7].strip() for line in lines] == ["**no**", "**no**", "yes"]
    assert "3 rows; milliseconds 1.5" in table
    assert "cores 2" in table


def test_figures_survive_json() -> None:
    figures = [figure(1.5), figure(0.5, at_most=False)]
    assert harness.from_json(json.loads(json.dumps(harness.as_json(figures, {})))) == figures


def test_the_kernel_says_the_same_as_a_program_document_by_document() -> None:
    """Polars and DuckDB are compared where they are installed."""
    sizes = kernel.Sizes(documents=1_200, entities=30, rounds=1, sample=30)
    rows = kernel.documents(sizes)
    ours = kernel.global_outputs(kernel.core_side(kernel.inputs_of(rows, 30, 1_200)))
    theirs = kernel.python_outputs(kernel.python_side(kernel.documents_of(rows, 30), 30))
    kernel.require_equal(ours, theirs, "Python")
    assert len(ours.trends["direction"]) == 150
    wrong = ours.evidence | {"rank_score": ours.evidence["rank_score"] + 1e-8}
    with pytest.raises(AssertionError, match=r"Python, evidence\.rank_score"):
        kernel.require_equal(replace(ours, evidence=wrong), theirs, "Python")


def test_the_kernel_in_blocks_of_entities_gives_the_bits_of_one_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = kernel.documents(kernel.Sizes(documents=1_200, entities=30, rounds=1, sample=1))
    read = kernel.inputs_of(rows, 30, 1_200)
    whole = kernel.global_outputs(kernel.core_side(read))
    monkeypatch.setattr(kernel, "BLOCK_ENTITIES", 7)
    parts = kernel.global_outputs(kernel.core_side(read))
    for table in ("signals", "trends", "evidence"):
        for name, column in getattr(whole, table).items():
            np.testing.assert_array_equal(column, getattr(parts, table)[name], err_msg=f"{table}.{name}")


def test_the_benchmark_of_the_kernel_runs() -> None:
    python, polars, duckdb = kernel.figures("tiny")
    assert python.notes["Python ns per document"] == pytest.approx(
        python.ratio.median * python.notes["core ns per document"]
    )
    assert {one.against for one in (polars, duckdb)} == {"Polars", "DuckDB"}


@pytest.fixture
def shared_server(embedded_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the tests in place of one that each benchmark starts for itself."""
    monkeypatch.setattr(worlds, "server", lambda: contextlib.nullcontext(EmbeddedPostgres(embedded_home)))


@pytest.mark.usefixtures("shared_server")
def test_the_floor_of_a_cycle_writes_the_rows_of_the_cycle() -> None:
    """The benchmark compares what is in the tables before it measures."""
    (found,) = cycle.figures("tiny")
    assert found.ratio.rounds == 1
    assert {"read s", "score s", "trend s", "write s"} <= set(found.notes)
    assert "200 documents, 10 entities" in found.sizes


@pytest.mark.usefixtures("shared_server")
def test_the_benchmark_of_growth_runs() -> None:
    time, memory, database_time, database_memory = growth.figures("tiny")
    assert {"500 documents s", "1,000 documents s"} == set(time.notes)
    assert {"100 documents s", "200 documents s"} == set(database_time.notes)
    assert min(memory.ratio.low, database_memory.ratio.low) > 0.0


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    assert growth.exponent((10, 100, 1_000), [0.3, 3.0, 30.0]) == pytest.approx(1.0)
    assert growth.exponent((10, 100, 1_000), [0.5, 50.0, 5_000.0]) == pytest.approx(2.0)


def test_the_floor_of_the_orchestration_reports_what_the_run_reported(
    migrated_url: str, dagster_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORACLE_DATABASE_URL", migrated_url)
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", dagster_database_url.replace("+psycopg2", ""))
    (found,) = orchestration.figures("tiny")
    assert found.measured == "run of the chain over 15 partitions"
    assert found.ratio.median > 0.0


@pytest.mark.usefixtures("shared_server")
def test_the_benchmark_of_the_ingestion_runs() -> None:
    (found,) = ingestion.figures("tiny")
    assert found.ratio.rounds == 1
    assert found.ratio.median > 0.0
