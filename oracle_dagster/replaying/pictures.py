"""The pictures of a replay's report as SVG: reliability, equity, decisions per day.

Drawn from the report's JSON; the same report gives the same bytes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from oracle_dagster.explaining.charts import DOWN, INK, QUIET, STYLE, UP, bare, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Object = dict[str, Any]

GREEN: Final = "#4f9d69"
LABELS: Final = {
    "confidence": "confidence with its direction",
    "p_bull": "p_bull",
    "plain": "plain average",
}
_COLOURS: Final = {"confidence": UP, "p_bull": DOWN, "plain": QUIET}
_LINES: Final = (UP, DOWN, GREEN, "#8e5ea8", "#c9a227")
_ACTIONS: Final = {"act": UP, "defer": DOWN, "monitor": "#c9a227", "observe": "#dde1e7"}


def reliability(configuration: Object) -> str:
    """What was stated against what came true; dots as large as their share of the decisions."""
    forecasts = configuration["reliability"]
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(8.6, 5.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.4, 1.0))
        upper.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="calibrated")
        base = configuration["scores"]["all"]["all"]["measures"]["base_rate"]["value"]
        if base is not None:
            dots, name = (0, (1, 2)), f"base rate {base:.3f}"
            upper.axhline(base, color=GREEN, linewidth=1.1, linestyle=dots, label=name)
        for at, (name, told) in enumerate(forecasts.items()):
            filled = [row for row in told["bins"] if row["count"] > 0]
            total = sum(row["count"] for row in filled)
            colour = _COLOURS[name]
            x = [row["stated"] for row in filled]
            y = [row["rose"] for row in filled]
            for row in filled:
                if row["day"][0] is not None:
                    upper.plot([row["stated"]] * 2, row["day"], color=colour, linewidth=1.0, alpha=0.6)
            upper.plot(x, y, color=colour, linewidth=1.2, label=_named(name, told))
            areas = [14.0 + 220.0 * row["count"] / total for row in filled]
            upper.scatter(x, y, s=areas, color=colour, alpha=0.75, linewidths=0.0, zorder=3)
            width = 0.09 / max(1, len(forecasts))
            lower.bar(
                [row["low"] + 0.005 + (at + 0.5) * width for row in told["bins"]],
                [row["count"] / total if total > 0 else 0.0 for row in told["bins"]],
                width=width,
                color=colour,
            )
        upper.set_xlim(0.0, 1.0)
        upper.set_ylim(0.0, 1.0)
        upper.set_ylabel("share of rises")
        lower.set_ylabel("share of decisions")
        lower.set_xlabel("stated probability of a rise")
        upper.legend(loc="upper left", frameon=False, fontsize=8.5)
        for axes in (upper, lower):
            axes.grid(axis="y", color="#eef0f3", linewidth=0.8)
            axes.set_axisbelow(True)
            bare(axes)
        return svg(figure)


def _named(name: str, told: Object) -> str:
    error = told["calibration_error"]
    return LABELS[name] if error is None else f"{LABELS[name]}, mean distance {error:.3f}"


def equity(report: Object) -> str:
    """What the sized decisions would have earned by the time of their outcome, in percent of capital."""
    times = _times(report, timedelta(days=report["horizon_days"]))
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(8.6, 3.9), layout="constrained")
        axes = figure.add_subplot()
        _line(axes, times, report["market"], "market, equal parts", color=QUIET, width=1.0)
        for configuration, colour in zip(report["configurations"], _cycle(report), strict=True):
            for (name, told), line in zip(configuration["equity"].items(), ("-", (0, (4, 2))), strict=True):
                _line(axes, times, told, f"{configuration['name']}: {name}", color=colour, line=line)
        axes.axhline(0.0, color="#c8ccd2", linewidth=0.8)
        axes.set_ylabel("earned, % of capital")
        axes.grid(axis="y", color="#eef0f3", linewidth=0.8)
        _dates(axes)
        bare(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=3, frameon=False, fontsize=8.5)
        return svg(figure)


def _cycle(report: Object) -> list[str]:
    return [_LINES[at % len(_LINES)] for at in range(len(report["configurations"]))]


def _line(
    axes: Axes,
    times: Any,  # noqa: ANN401 - the library's types know no times
    told: Object,
    name: str,
    *,
    color: str,
    width: float = 1.5,
    line: Any = "-",  # noqa: ANN401 - the library's ways to name a line
) -> None:
    values = [100.0 * value for value in told["curve"]]
    axes.plot(times, values, color=color, linewidth=width, linestyle=line, label=name)


def decisions(report: Object, configuration: Object) -> str:
    """What was decided in each cycle, and how many keys decided otherwise than the cycle before."""
    times = _times(report, timedelta(0))
    told = configuration["per_day"]
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(8.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.stackplot(
            times,
            [told[name] for name in _ACTIONS],
            labels=list(_ACTIONS),
            colors=list(_ACTIONS.values()),
            linewidth=0.0,
        )
        axes.plot(times, told["flips"], color=INK, linewidth=1.0, label="changed action or mode")
        axes.set_ylabel("keys")
        _dates(axes)
        bare(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=5, frameon=False, fontsize=8.5)
        return svg(figure)


def _times(report: Object, later: timedelta) -> Any:  # noqa: ANN401 - see above
    return [datetime.fromisoformat(text) + later for text in report["as_of"]]


def _dates(axes: Axes) -> None:
    dates: Any = AutoDateLocator
    locator = dates(maxticks=9)
    axes.xaxis.set_major_locator(locator)
    formatter: Any = ConciseDateFormatter
    axes.xaxis.set_major_formatter(formatter(locator))
    axes.margins(x=0.01)
