"""A small plot for a materialisation's metadata: the posterior of a trend.

Drawn with characters, because the user interface removes pictures that Markdown carries in itself: its
renderer (react-markdown) drops the source of an image unless that is an http(s) address. So it also reads the
same in a terminal, and an event stays small. Draws numbers that others computed; no rule, no database.
"""

from __future__ import annotations

import math
from typing import Final

from scipy.special import xlog1py, xlogy

COLUMNS: Final = 61
ROWS: Final = 6
MAX_BYTES: Final = 2_000
"""Upper bound of one plot in UTF-8, so that events stay small."""

_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_STEPS: Final = len(_LEVELS) - 1
_THRESHOLD: Final = "┊"
_LEAST_MARGIN: Final = 2


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
