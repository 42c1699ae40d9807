"""Small plots for a materialisation's metadata: the posterior of a trend, and its history.

Drawn with characters, because the user interface removes pictures that Markdown carries in itself: its
renderer (react-markdown) drops the source of an image unless that is an http(s) address. So it also reads the
same in a terminal, and an event stays small. Draws numbers that others computed; no rule, no database.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scipy.special import xlog1py, xlogy

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS: Final = 61
ROWS: Final = 6
MAX_BYTES: Final = 2_000
"""Upper bound of one plot in UTF-8, so that events stay small."""

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_STEPS: Final = len(_LEVELS) - 1
_THRESHOLD: Final = "┊"
_LEAST_MARGIN: Final = 2
HISTORY_CYCLES: Final = 36
"""Columns of a history at most: one per cycle. A wider plot pushes all metadata beyond the page's edge."""
_HALF_ROWS: Final = 2


def posterior(*, alpha: float, beta: float, p_bull: float, threshold: float) -> str:
    """Draw the Beta density of the evidence over the regions of the three directions.

    The horizontal axis is the bullish share from 0 to 1; dotted lines stand at ``1/2 - threshold`` (negative
    below it) and ``1/2 + threshold`` (positive above it), an arrow at ``p_bull``. The density is scaled to
    its highest point: its place and width say something, its height nothing.

    Args:
        alpha: of the Beta distribution, at least 1.
        beta: of the Beta distribution, at least 1.
        p_bull: in [0, 1].
        threshold: distance from 1/2 at which a direction begins, in [0, 1/2].

    Returns:
        Lines of equal meaning in every monospaced font, at most ``MAX_BYTES``.

    Raises:
        ValueError: a number is missing or outside its range.

    """
    usable = all(map(math.isfinite, (alpha, beta, p_bull, threshold)))
    if not (usable and min(alpha, beta) >= 1.0 and 0.0 <= p_bull <= 1.0 and 0.0 <= 2.0 * threshold <= 1.0):
        raise ValueError(
            f"no posterior: alpha {alpha}, beta {beta}, p_bull {p_bull}, threshold {threshold}; alpha and "
            "beta must be at least 1, p_bull in [0, 1], the threshold in [0, 1/2]"
        )
    low, high = _column(0.5 - threshold), _column(0.5 + threshold)
    filled = [round(height * ROWS * _STEPS) for height in _heights(alpha, beta)]
    lines = []
    for row in reversed(range(ROWS)):
        cells = [_LEVELS[min(max(level - row * _STEPS, 0), _STEPS)] for level in filled]
        for at in (low, high):
            cells[at] = _THRESHOLD if cells[at] == " " else cells[at]
        lines.append("".join(cells))
    marks = ["─"] * COLUMNS
    marks[low] = marks[high] = "┴"
    marks[_column(p_bull)] = "▲"
    lines.append("".join(marks))
    scale = [" "] * COLUMNS
    for text, at in (
        ("0", 0),
        ("1", COLUMNS - 1),
        ("½", COLUMNS // 2),
        (f"{0.5 - threshold:.2f}", low),
        (f"{0.5 + threshold:.2f}", high),
    ):
        _put(scale, text, at)
    lines.append("".join(scale))
    names = [" "] * COLUMNS
    for text, start, end in (("negative", 0, low), ("neutral", low, high), ("positive", high, COLUMNS - 1)):
        if end - start >= len(text) + _LEAST_MARGIN:
            _put(names, text, (start + end) // 2)
    lines.extend(("".join(names), f"▲ P_bull {p_bull:.3f}   evidence Beta(α {alpha:.4g}, β {beta:.4g})"))
    return "\n".join(line.rstrip() for line in lines)


def history(*, strength: Sequence[float], confidence: Sequence[float], began: str, ended: str) -> str:
    """Draw how a trend went from cycle to cycle: one column per cycle, the newest on the right.

    Bars above the line are bullish and below it bearish; a full bar is a strength of 1. Under them the
    confidence. Cycles stand side by side however far apart they were.

    Args:
        strength: signed, in [-1, 1], oldest first; of more than ``HISTORY_CYCLES`` the newest are drawn.
        confidence: in [0, 1], of the same cycles.
        began: when the oldest drawn cycle looked from, as text.
        ended: when the newest did.

    Returns:
        Lines of equal meaning in every monospaced font, at most ``MAX_BYTES``.

    Raises:
        ValueError: there is no cycle, or the two are not of the same length.

    """
    if len(strength) == 0 or len(strength) != len(confidence):
        raise ValueError(f"no history of {len(strength)} strengths and {len(confidence)} confidences")
    strength, confidence = strength[-HISTORY_CYCLES:], confidence[-HISTORY_CYCLES:]
    halves = [_halves(value) for value in strength]
    lines = []
    for row in reversed(range(_HALF_ROWS)):
        label = "+1 " if row == _HALF_ROWS - 1 else "   "
        lines.append(label + "".join(" ▄█"[min(max(level - 2 * row, 0), 2)] for level in halves))
    lines.append(" 0 " + "─" * len(halves))
    for row in range(_HALF_ROWS):
        label = "-1 " if row == _HALF_ROWS - 1 else "   "
        lines.append(label + "".join(" ▀█"[min(max(-level - 2 * row, 0), 2)] for level in halves))
    levels = "".join(_LEVELS[max(1, round(_unit(value) * _STEPS))] for value in confidence)
    lines.append(f"   {levels} confidence")
    cycles = "1 cycle" if len(halves) == 1 else f"{len(halves)} cycles"
    spans = ended if began == ended else f"{began} to {ended}"
    lines.extend((f"strength {strength[-1]:+.3f}, confidence {confidence[-1]:.3f}", f"{cycles}, {spans}"))
    return "\n".join(line.rstrip() for line in lines)


def _halves(value: float) -> int:
    """Half rows of a bar; what is not zero is at least one high, so that a direction can be seen."""
    size = math.ceil(abs(_unit(abs(value))) * 2 * _HALF_ROWS - 0.5)
    return 0 if value == 0.0 else int(math.copysign(max(size, 1), value))


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


def as_markdown(plot: str) -> str:
    """The plot as a block of code, which keeps its columns."""
    return f"```text\n{plot}\n```"


def _column(share: float) -> int:
    return min(int(share * COLUMNS), COLUMNS - 1)


def _heights(alpha: float, beta: float) -> list[float]:
    """The greatest density within each column, scaled to [0, 1]; so that no peak is too narrow to be seen."""
    bull, bear = alpha - 1.0, beta - 1.0
    peak = bull / (bull + bear) if bull + bear > 0.0 else 0.5
    nearest = [min(max(peak, at / COLUMNS), (at + 1) / COLUMNS) for at in range(COLUMNS)]
    logarithms = [float(xlogy(bull, x) + xlog1py(bear, -x)) for x in nearest]
    greatest = max(logarithms)
    return [math.exp(logarithm - greatest) for logarithm in logarithms]


def _put(cells: list[str], text: str, middle: int) -> None:
    """Write the text around the middle, inside the line, unless that would touch another."""
    start = min(max(middle - len(text) // 2, 0), len(cells) - len(text))
    if all(cell == " " for cell in cells[max(start - 1, 0) : start + len(text) + 1]):
        cells[start : start + len(text)] = text
