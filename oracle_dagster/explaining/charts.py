"""The pictures of an explanation as SVG: what adds up to the average, how it came about, why it changed.

Drawn from the numbers of the page; the same page gives the same bytes.
"""

from __future__ import annotations

import io
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from oracle_dagster.explaining.terminal import cause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

Object = dict[str, Any]

UP: Final = "#2a6fb0"
DOWN: Final = "#c0562b"
QUIET: Final = "#8a8f98"
INK: Final = "#1d2430"
BARS: Final = 16
_EVENT_LABELS: Final = 8
STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "oracle",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#c8ccd2",
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def svg(figure: Figure) -> str:
    """The figure as text; the same figure gives the same bytes."""
    out = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)  # the library has no types for it
    canvas.print_svg(out, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def bare(axes: Axes) -> None:
    """Only what is needed to read the values: no frame, no ticks."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)


def waterfall(page: Object) -> str:
    """Every contribution beside the one before, until they end at the average."""
    counted = [s for s in page["signals"] if s["counted"] and s["contribution"] != 0.0]
    shown, rest = counted[:BARS], counted[BARS:]
    steps = [(_signal(s), s["contribution"]) for s in shown]
    if rest:
        steps.append((f"{len(rest)} further signals", sum(s["contribution"] for s in rest)))
    return _steps(steps, 0.0, page["direction"]["average"], "average", _limits(page))


def _limits(page: Object) -> list[float]:
    """The thresholds of the average, in the mode that has any."""
    if page["pipeline_mode"] != "heuristic":
        return []
    wanted = {("direction", "positive"), ("direction", "negative")}
    return [g["threshold"] for g in page["gates"] if (g["part"], g["gate"]) in wanted]


def _signal(signal: Object) -> str:
    if signal["layer"] != "entity":
        return _cut(signal["id"])
    name = signal["title"] or signal["source_id"] or signal["id"]
    return f"{_cut(name)}, {signal['published_at']:%d %b}"


def _cut(text: str, most: int = 42) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def attribution(since: Object, measure: str) -> str:
    """From the earlier value over the causes to the later one."""
    steps = [(cause(name), part[measure]) for name, part in since["parts"].items()]
    before, after = since["before"][measure], since["after"][measure]
    return _steps(steps, before, after, f"{measure} now", [], first=f"{measure} then")


def _steps(  # noqa: PLR0917 - start, way, end
    steps: Sequence[tuple[str, float]],
    start: float,
    end: float,
    last: str,
    limits: Sequence[float],
    first: str | None = None,
) -> str:
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        rows = len(steps) + 1 + (first is not None)
        figure = Figure(figsize=(8.6, 0.62 + 0.27 * rows), layout="constrained")
        axes = figure.add_subplot()
        labels, at, values = [], start, []
        if first is not None:
            axes.barh(0, start, color=QUIET, height=0.66)
            labels.append(first)
            values.append(f"{start:.4f}")
        for name, step in steps:
            row = len(labels)
            axes.barh(row, step, left=at, color=UP if step >= 0.0 else DOWN, height=0.66)
            axes.plot([at + step, at + step], [row - 0.33, row + 1.33], color=QUIET, linewidth=0.6)
            labels.append(name)
            values.append(f"{step:+.4f}")
            at += step
        axes.barh(len(labels), end, color=INK, height=0.66)
        labels.append(last)
        values.append(f"{end:.4f}")
        for limit in limits:
            axes.axvline(limit, color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.axvline(0.0, color="#c8ccd2", linewidth=0.8)
        axes.set_yticks(range(len(labels)), labels, parse_math=False)
        axes.invert_yaxis()
        right = axes.secondary_yaxis("right")
        right.set_yticks(range(len(values)), values)
        right.spines["right"].set_visible(False)
        right.tick_params(length=0)
        bare(axes)
        axes.margins(x=0.03)
        if first is not None:  # the way matters, not how far it is from 0
            way = list(accumulate((step for _, step in steps), initial=start))
            low, high = min(way), max(way)
            room = max(high - low, 1e-6)
            axes.set_xlim(low - 0.25 * room, high + 0.05 * room)
        return svg(figure)


def history(page: Object) -> str:
    """What was said (dots, as large as their weight), what it averaged in each cycle, what happened."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(8.6, 3.5), layout="constrained")
        axes = figure.add_subplot()
        counted = [s for s in page["signals"] if s["counted"]]
        heaviest = max((s["weight"] for s in counted), default=1.0)
        axes.scatter(
            [s["published_at"] for s in counted],
            [s["impact"] * s["sentiment"] for s in counted],
            s=[6.0 + 90.0 * s["weight"] / heaviest for s in counted],
            c=[UP if s["sentiment"] > 0.0 else DOWN if s["sentiment"] < 0.0 else QUIET for s in counted],
            alpha=0.55,
            linewidths=0.0,
            label="impact × sentiment of a signal (area: weight)",
        )
        cycles = page["history"]
        times = [c["as_of"] for c in cycles]
        axes.plot(times, [c["average"] for c in cycles], color=INK, marker="o", markersize=4, label="average")
        axes.plot(
            times,
            [c["confidence"] for c in cycles],
            color="#4f9d69",
            marker="s",
            markersize=3.5,
            linestyle=(0, (4, 2)),
            label="confidence",
        )
        start = min([s["published_at"] for s in counted] + times[-1:])
        span = max(page["as_of"] - start, timedelta(hours=1))
        axes.set_xlim(start - 0.03 * span, page["as_of"] + 0.05 * span)
        last = None
        for c in cycles:
            if c["action"] != last and c["as_of"] >= start:
                axes.annotate(
                    f"{c['action']}\n{str(c['mode']).removesuffix('_eligible')}",
                    (c["as_of"], 1.06),
                    ha="center",
                    va="bottom",
                    fontsize=8,
                    annotation_clip=False,
                )
                axes.axvline(c["as_of"], color=QUIET, linewidth=0.6, linestyle=(0, (1, 2)))
            last = c["action"]
        for at, event in enumerate(page["events"]):
            colour = {"positive": UP, "negative": DOWN}.get(event["direction"], QUIET)
            axes.axvline(event["occurred_at"], color=colour, linewidth=1.1)
            if at < _EVENT_LABELS:
                name = event["title"] or event["event_type"] or event["id"][:8]
                axes.text(
                    event["occurred_at"],
                    -1.02 + 0.16 * (at % 4),
                    f" {_cut(name, 24)}",
                    fontsize=8,
                    color=colour,
                    parse_math=False,
                )
        axes.axhline(0.0, color="#c8ccd2", linewidth=0.8)
        for limit in _limits(page):
            axes.axhline(limit, color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_ylim(-1.08, 1.08)
        dates: Any = AutoDateLocator
        locator = dates(maxticks=8)
        axes.xaxis.set_major_locator(locator)
        formatter: Any = ConciseDateFormatter
        axes.xaxis.set_major_formatter(formatter(locator))
        bare(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False, fontsize=8.5)
        return svg(figure)
