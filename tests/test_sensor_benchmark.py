"""The benchmark of the sensor's tick measures what it says; here at tiny sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import sensor_tick


def test_the_benchmark_runs_at_tiny_sizes(tmp_path: Path) -> None:
    found = sensor_tick.measure(tmp_path, few=50, many=200, new=5, rounds=1)
    assert min(found.few, found.many, found.idle) > 0.0
    assert found.ratio == found.many / found.few


@pytest.mark.acceptance
def test_a_tick_costs_at_most_a_fifth_more_over_a_hundred_times_the_documents(tmp_path: Path) -> None:
    found = sensor_tick.measure(tmp_path, few=10_000, many=1_000_000, new=200, rounds=15)
    print(
        f"tick over 10^4 documents {found.few:.3f} s, over 10^6 {found.many:.3f} s: ratio {found.ratio:.2f}"
    )
    assert found.ratio <= 1.2
