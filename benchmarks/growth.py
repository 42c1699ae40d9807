"""How time and memory grow with the number of signals: an exponent of 1 is linear.

In memory, the core works through blocks of entities as the product does, ever more of them with as many
documents each; a block's documents are made when it is its turn, outside of the measured time. Through the
database, whole cycles are computed. Each exponent is the slope of a straight line through the logarithms of
sizes and of median seconds, after the seconds of a cycle of no documents were taken off where there is one.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks import kernel, worlds
from benchmarks.cycle import empty, result_tables, whole_cycle
from benchmarks.harness import Figure, PeakMemory, Size, Spread, alternate

PER_ENTITY = 100
EXPONENT = 1.05
MEMORY = 1.25
"""Largest share by which the peak may grow over tenfold the data; the rest is noise of the allocator."""


@dataclass(frozen=True)
class Sizes:
    """Documents in memory and in the database, and rounds of each."""

    memory: tuple[int, ...]
    database: tuple[int, ...]
    rounds: int


SIZES: dict[Size, Sizes] = {
    "tiny": Sizes((500, 1_000), (100, 200), 1),
    "bench": Sizes((10_000, 100_000, 1_000_000), (3_000, 12_000, 48_000), 2),
    "full": Sizes((10_000, 100_000, 1_000_000, 10_000_000), (10_000, 100_000, 1_000_000), 3),
}


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Slope of the straight line through both logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return float(slope)


def in_memory(documents: int) -> float:
    """Seconds of the core over blocks of entities, one at a time."""
    spent = 0.0
    block = min(documents, kernel.BLOCK_ENTITIES * PER_ENTITY)
    for number in range(max(1, documents // block)):
        sizes = kernel.Sizes(block, max(1, block // PER_ENTITY), rounds=1, sample=1)
        read = kernel.inputs_of(kernel.documents(sizes, seed=number), sizes.entities, sizes.documents)
        began = time.perf_counter()
        kernel.core(read)
        spent += time.perf_counter() - began
    return spent


def core_figures(sizes: tuple[int, ...], rounds: int) -> list[Figure]:
    """The core alone."""
    in_memory(sizes[0])
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    peaks: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            with PeakMemory() as peak:
                seconds[size].append(in_memory(size))
            peaks[size].append(peak.mebibytes)
    slopes = [exponent(sizes, [seconds[size][n] for size in sizes]) for n in range(rounds)]
    grown = [peaks[sizes[-1]][n] / peaks[sizes[-2]][n] for n in range(rounds)]
    return _figures("core in blocks", sizes, seconds=seconds, slopes=slopes, grown=grown, peaks=peaks)


def database_figures(sizes: tuple[int, ...], rounds: int) -> list[Figure]:
    """Whole cycles."""
    with worlds.server() as embedded, contextlib.ExitStack() as stack:
        tables = {}
        for size in sizes:
            entities = max(1, size // PER_ENTITY)
            name = f"documents_{size}"
            tables[size] = stack.enter_context(
                worlds.database(embedded, name, entities=entities, documents=size)
            )
        names: dict[int, list[str]] = {}
        for size, one in tables.items():
            whole_cycle(one)
            names[size] = result_tables(embedded.url(f"documents_{size}"))
        peaks: dict[int, list[float]] = {size: [] for size in sizes}

        def run(size: int) -> None:
            with PeakMemory() as peak:
                whole_cycle(tables[size])
            peaks[size].append(peak.mebibytes)

        seconds = alternate(
            {str(size): (lambda size=size: run(size)) for size in sizes},  # type: ignore[misc]
            rounds,
            before=lambda name: empty(embedded.url(f"documents_{name}"), names[int(name)]),
        )
    by_size = {size: seconds[str(size)] for size in sizes}
    slopes = [exponent(sizes, [by_size[size][n] for size in sizes]) for n in range(rounds)]
    grown = [max(peaks[sizes[-1]]) / max(peaks[sizes[-2]])]
    return _figures("whole cycle", sizes, seconds=by_size, slopes=slopes, grown=grown, peaks=peaks)


def _figures(
    what: str,
    sizes: tuple[int, ...],
    *,
    seconds: dict[int, list[float]],
    slopes: list[float],
    grown: list[float],
    peaks: dict[int, list[float]],
) -> list[Figure]:
    listed = ", ".join(f"{size:,}" for size in sizes)
    times = {f"{size:,} documents s": median(spent) for size, spent in seconds.items()}
    memory = {f"{size:,} documents peak MiB": max(found) for size, found in peaks.items()}
    text = f"{listed} documents, {PER_ENTITY} per entity"
    return [
        Figure(
            "growth",
            f"exponent of the time, {what}",
            "linear",
            Spread.of(slopes),
            EXPONENT,
            at_most=True,
            sizes=text,
            notes={**times},
        ),
        Figure(
            "growth",
            f"peak memory at {sizes[-1]:,} documents, {what}",
            f"at {sizes[-2]:,}",
            Spread.of(grown),
            MEMORY,
            at_most=True,
            sizes=text,
            notes={**memory},
        ),
    ]


def figures(size: Size) -> list[Figure]:
    """Exponents and memory, of the core and of whole cycles."""
    sizes = SIZES[size]
    return [
        *core_figures(sizes.memory, sizes.rounds),
        *database_figures(sizes.database, sizes.rounds),
    ]
