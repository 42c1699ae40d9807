"""What every benchmark is made of: sides measured in turn, ratios of the same round, one table of figures.

A benchmark is a module of this package with a function ``figures(size)``; :data:`BENCHMARKS` names them. It
never judges seconds, only the ratio of two things measured in the same run, so that another machine, or a
busy one, says the same. Each figure is the median over the rounds, with the lowest and the highest ratio.
"""

from __future__ import annotations

import gc
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal, Self

import psutil

Size = Literal["tiny", "bench", "full"]
BENCHMARKS = ("kernel", "growth", "cycle", "orchestration", "ingestion", "sensor_tick")
"""In the order of the table; more are found by their name among the modules of this package."""


@dataclass(frozen=True)
class Spread:
    """The median of some values, the lowest and the highest, and how many there were."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Figure:
    """One row of the table: ``ratio`` says how many times ``against`` is what was ``measured``.

    ``bound`` is wanted ``at_most``, or else at least. ``notes`` holds what was counted or timed beside it.
    """

    benchmark: str
    measured: str
    against: str
    ratio: Spread
    bound: float
    at_most: bool
    sizes: str
    notes: dict[str, float | int | str] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the median keeps the bound."""
        return self.ratio.median <= self.bound if self.at_most else self.ratio.median >= self.bound


def alternate(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    before: Callable[[str], object] | None = None,
    warm: bool = False,
) -> dict[str, list[float]]:
    """Seconds of every side, measured in turn, round by round.

    Args:
        sides: what to measure, by name.
        rounds: how often.
        before: called with the name before each measurement, outside of it.
        warm: go through one round first that does not count.

    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + warm):
        # Forth and back, so that no side always runs behind the same other.
        for name in list(sides) if number % 2 == 0 else list(reversed(sides)):
            if before is not None:
                before(name)
            gc.collect()
            began = time.perf_counter()
            result = sides[name]()
            spent = time.perf_counter() - began
            del result
            if number >= warm:
                seconds[name].append(spent)
    return seconds


def ratio(seconds: Mapping[str, Sequence[float]], measured: str, against: str, scale: float = 1.0) -> Spread:
    """How many times ``against`` the side ``measured`` takes, round by round, times ``scale``."""
    pairs = zip(seconds[measured], seconds[against], strict=True)
    return Spread.of([scale * one / other for one, other in pairs])


class PeakMemory:
    """The largest resident size of this process while the context is open, in MiB."""

    def __enter__(self) -> Self:
        """Start watching."""
        gc.collect()
        self._process = psutil.Process()
        self.before = self._process.memory_info().rss / 2**20
        self.mebibytes = self.before
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._done.set()
        self._watcher.join()
        self._look()

    @property
    def growth(self) -> float:
        """How much it grew, in MiB."""
        return self.mebibytes - self.before

    def _look(self) -> None:
        self.mebibytes = max(self.mebibytes, self._process.memory_info().rss / 2**20)

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self._look()


def surroundings() -> dict[str, Any]:
    """What the figures were measured on, the load of others included: a ratio bears it, seconds do not."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load": [round(value, 2) for value in psutil.getloadavg()],
    }


def markdown(figures: Iterable[Figure], about: Mapping[str, Any]) -> str:
    """The table as Markdown, with the notes below it."""
    found = list(figures)
    lines = [
        "| benchmark | measured | against | ratio | spread | wanted | met |",
        "|---|---|---|---:|---|---:|---|",
    ]
    for one in found:
        sign = "≤" if one.at_most else "≥"
        spread = f"{one.ratio.low:.3g} … {one.ratio.high:.3g} ({one.ratio.rounds} rounds)"
        met = "yes" if one.met else "**no**"
        lines.append(
            f"| {one.benchmark} | {one.measured} | {one.against} | {one.ratio.median:.3g} | {spread} "
            f"| {sign} {one.bound:g} | {met} |"
        )
    lines.append("")
    for one in found:
        notes = "; ".join(f"{name} {_shown(value)}" for name, value in one.notes.items())
        lines.append(f"* {one.benchmark}, {one.measured}: {one.sizes}{'; ' if notes else ''}{notes}")
    lines += ["", "Measured on " + ", ".join(f"{name} {value}" for name, value in about.items()) + "."]
    return "\n".join(lines) + "\n"


def _shown(value: float | str) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value


def as_json(figures: Iterable[Figure], about: Mapping[str, Any]) -> dict[str, Any]:
    """The same as plain data."""
    return {"surroundings": dict(about), "figures": [asdict(one) | {"met": one.met} for one in figures]}


def from_json(data: Mapping[str, Any]) -> list[Figure]:
    """The figures of :func:`as_json`."""
    listed = [{name: value for name, value in one.items() if name != "met"} for one in data["figures"]]
    return [Figure(**{**one, "ratio": Spread(**one["ratio"])}) for one in listed]
