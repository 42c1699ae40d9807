"""How good decisions were, once their outcome is known: hit rate, Brier score, log loss, calibration.

Judges numbers that others computed, against whether the price rose. A share without a case is NaN, never 0.
Sums run in the order of the rows, so the same rows give the same bits. What counts as settled, and where the
rows come from, is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle_core.inputs import Bool, Columns, Float, Int

FORECASTS: tuple[str, ...] = ("confidence", "p_bull", "plain")
"""The probabilities of a rise that are judged: fields of :class:`Judged`."""

SUMS: tuple[str, ...] = (
    "decisions",
    "rises",
    "calls",
    "hits",
    "called_rises",
    "plain_calls",
    "plain_hits",
    *(f"{part}_{name}" for name in FORECASTS for part in ("stated", "squares", "logs")),
)
"""What is summed per day; every measure is made of these, so that days can be drawn again."""

LEAST_PROBABILITY = 1e-6
"""The least probability, and distance from 1, in the log loss; without it one error would be infinite."""

BINS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Judged(Columns):
    """Decisions whose outcome is known: one row each, any order.

    ``day`` counts the cycles from 0. ``rose`` is the outcome. ``call`` and ``plain_call`` say up (+1), down
    (-1) or nothing (0). The other three are probabilities of a rise in [0, 1]; NaN where none was stated.
    """

    day: Int
    rose: Bool
    call: Int
    plain_call: Int
    confidence: Float
    p_bull: Float
    plain: Float


@dataclass(frozen=True, slots=True, eq=False)
class Reliability(Columns):
    """One row per bin of stated probabilities, lowest first: how often what was stated came true.

    ``stated`` is the mean probability of the bin, ``rose`` the share of rises; both NaN in an empty bin.
    """

    low: Float
    high: Float
    count: Int
    stated: Float
    rose: Float


@dataclass(frozen=True, slots=True, eq=False)
class Equity(Columns):
    """One row per cycle: what was put out, as a share of all capital before scaling, and what it earned."""

    gross: Float
    profit: Float
    curve: Float


def signed_probability(call: Int, confidence: Float) -> Float:
    """The probability of a rise that a direction with a confidence states: ``(1 + call * confidence) / 2``.

    Full confidence in a rise is 1, in a fall 0; no direction, or no confidence in one, is one half.

    Args:
        call: +1, 0 or -1.
        confidence: in [0, 1].

    """
    stated: Float = 0.5 + 0.5 * call * confidence
    return stated


def average_probability(average: Float) -> Float:
    """The same of an average sentiment: ``(1 + average) / 2``, clamped to [0, 1]; NaN stays NaN."""
    stated: Float = np.clip(0.5 + 0.5 * average, 0.0, 1.0)
    return stated


def squared_error(stated: Float, rose: Bool) -> Float:
    """The Brier score of each row: 0 for certainty that was right, 1 for certainty that was wrong."""
    return np.square(np.where(rose, 1.0 - stated, stated))


def surprise(stated: Float, rose: Bool) -> Float:
    """The log loss of each row in nats; see ``LEAST_PROBABILITY``."""
    right = np.where(rose, stated, 1.0 - stated)
    loss: Float = -np.log(np.clip(right, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY))
    return loss


def day_sums(judged: Judged, days: int) -> Float:
    """The sums of each day.

    Args:
        judged: the decisions.
        days: number of cycles, those without a decision included.

    Returns:
        ``days`` rows, one column per name in ``SUMS``.

    """
    rose, call, plain = judged.rose, judged.call, judged.plain_call
    way = np.where(rose, 1, -1)
    columns = [
        np.ones(len(rose)),
        rose,
        call != 0,
        call == way,
        (call != 0) & rose,
        plain != 0,
        plain == way,
    ]
    for name in FORECASTS:
        stated = getattr(judged, name)
        there = ~np.isnan(stated)
        columns += [
            there,
            np.where(there, squared_error(stated, rose), 0.0),
            np.where(there, surprise(stated, rose), 0.0),
        ]
    return _by_day(judged.day, np.column_stack(columns).astype(np.float64), days)


def _by_day(day: Int, values: Float, days: int) -> Float:
    return np.column_stack([np.bincount(day, weights=column, minlength=days) for column in values.T])


def measures(sums: Float) -> dict[str, Float]:
    """Every measure from sums over any days.

    The base rate is that of the very same decisions, known only afterwards, so no constant does better:
    ``brier_base`` and ``log_loss_base`` are those of always stating it, ``hit_rate_base`` is that of always
    calling the more frequent side, over the decisions with a direction; ``skill`` is
    ``1 - brier / brier_base``.

    Args:
        sums: any shape, the last axis as in ``SUMS``.

    Returns:
        Arrays of that shape without its last axis; NaN where there is nothing to divide by.

    """
    s = {name: sums[..., at] for at, name in enumerate(SUMS)}
    base = share(s["rises"], s["decisions"])
    called = share(s["called_rises"], s["calls"])
    found = {
        "decisions": s["decisions"],
        "base_rate": base,
        "calls": s["calls"],
        "hit_rate": share(s["hits"], s["calls"]),
        "hit_rate_base": np.maximum(called, 1.0 - called),
        "hit_rate_plain": share(s["plain_hits"], s["plain_calls"]),
        "brier_base": base * (1.0 - base),
        "log_loss_base": _entropy(base),
    }
    for name in FORECASTS:
        found[f"brier_{name}"] = share(s[f"squares_{name}"], s[f"stated_{name}"])
        found[f"log_loss_{name}"] = share(s[f"logs_{name}"], s[f"stated_{name}"])
        found[f"skill_{name}"] = 1.0 - share(found[f"brier_{name}"], found["brier_base"])
    found["hit_rate_minus_base"] = found["hit_rate"] - found["hit_rate_base"]
    found["hit_rate_minus_plain"] = found["hit_rate"] - found["hit_rate_plain"]
    for name in ("confidence", "p_bull"):
        for other in ("base", "plain"):
            found[f"brier_{name}_minus_{other}"] = found[f"brier_{name}"] - found[f"brier_{other}"]
    return found


def share(part: Float, whole: Float) -> Float:
    """``part / whole``, NaN where there is no whole."""
    return np.where(whole == 0.0, np.nan, part / np.where(whole == 0.0, 1.0, whole))


def _entropy(share: Float) -> Float:
    """Expected log loss of always stating the true share; 0 where it is 0 or 1."""
    result = np.zeros(np.shape(share))
    for side in (share, 1.0 - share):
        result -= np.where(side == 0.0, 0.0, side * np.log(np.where(side == 0.0, 1.0, side)))
    return result


def draws(units: int, count: int, seed: int) -> Int:
    """How often each unit is drawn when ``units`` are drawn with replacement, ``count`` times.

    Returns:
        ``count`` rows of ``units`` columns, each row adding up to ``units``; the same for the same seed.

    """
    return np.random.default_rng(seed).multinomial(units, np.full(units, 1.0 / units), size=count)


def resampled(sums: Float, days_per_unit: int, count: int, seed: int) -> Float:
    """The totals of ``count`` histories made of whole days drawn with replacement.

    What was decided on a day shares its market, so a day stays together; with several days per unit,
    neighbouring ones do too.

    Args:
        sums: one row per day.
        days_per_unit: days that stay together, from the first on; the last unit may be shorter.
        count: histories.
        seed: of the generator.

    Returns:
        ``count`` rows with the columns of ``sums``.

    """
    units = np.add.reduceat(sums, np.arange(0, len(sums), days_per_unit), axis=0)
    drawn = draws(len(units), count, seed)
    totals = np.zeros((count, *sums.shape[1:]))
    for at, unit in enumerate(units):  # one by one: a matrix product may add in another order elsewhere
        totals += drawn[:, at].reshape(-1, *([1] * unit.ndim)) * unit
    return totals


def interval(values: Float, level: float) -> tuple[float, float]:
    """The central interval that holds ``level`` of the values that exist; NaN twice without any."""
    there = values[~np.isnan(values)]
    if len(there) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(there, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def bin_of(stated: Float) -> Int:
    """The bin of each probability: ten of equal width, a bound belongs to the upper one, 1 to the last."""
    edges = np.arange(1, BINS) / BINS
    return np.searchsorted(edges, stated, side="right").astype(np.int64)


def bin_sums(day: Int, stated: Float, rose: Bool, days: int) -> Float:
    """Per day and bin: number of decisions, sum of their probabilities, number of rises.

    Returns:
        Shape (days, bins, 3); rows with NaN are left out.

    """
    there = ~np.isnan(stated)
    place = day[there] * BINS + bin_of(stated[there])
    values = np.column_stack((np.ones(len(place)), stated[there], rose[there].astype(np.float64)))
    return _by_day(place, values, days * BINS).reshape(days, BINS, 3)


def reliability(sums: Float) -> Reliability:
    """The reliability diagram.

    Args:
        sums: shape (bins, 3): :func:`bin_sums`, added up over the days.

    """
    count, stated, rose = sums.T
    low = np.arange(BINS) / BINS
    return Reliability(
        low=low,
        high=(np.arange(BINS) + 1) / BINS,
        count=count.astype(np.int64),
        stated=share(stated, count),
        rose=share(rose, count),
    )


def calibration_error(rows: Reliability) -> float:
    """Mean distance between what was stated and what came true, weighted by decisions; NaN without any."""
    filled = rows.count > 0
    if not filled.any():
        return float("nan")
    distance = np.abs(rows.stated[filled] - rows.rose[filled])
    return float(np.sum(rows.count[filled] * distance) / np.sum(rows.count))


def flips(key: Int, day: Int, state: Int, days: int) -> tuple[Int, Int]:
    """How many keys were looked at on the day before too, and how many of these changed their state.

    Args:
        key: codes, any order; at most one row per key and day.
        day: numbers of the cycles.
        state: what is compared.
        days: number of cycles.

    Returns:
        Two counts per day.

    """
    order = np.lexsort((day, key))
    key, day, state = key[order], day[order], state[order]
    follows = (key[1:] == key[:-1]) & (day[1:] == day[:-1] + 1)
    changed = follows & (state[1:] != state[:-1])
    return (
        np.bincount(day[1:][follows], minlength=days),
        np.bincount(day[1:][changed], minlength=days),
    )


def equity(day: Int, weight: Float, result: Float, days: int, books: float) -> Equity:
    """What the sized decisions would have earned, without costs and without reinvesting.

    Capital is split evenly over the ``books`` that are open at a time. The decisions of a day fill one of
    them; if their sizes exceed it, all are scaled down alike. A decision is held to its outcome.

    Args:
        day: numbers of the cycles.
        weight: sizes as shares of a book; negative for a position against the entity.
        result: returns, finite.
        days: number of cycles.
        books: length of a position over the time between cycles, at least 1.

    """
    gross: Float = np.bincount(day, weights=np.abs(weight), minlength=days).astype(np.float64)
    earned = np.bincount(day, weights=weight * result, minlength=days)
    profit = earned / np.maximum(gross, 1.0) / books
    return Equity(gross, profit, np.cumsum(profit))


def drawdown(curve: Float) -> float:
    """The deepest fall of a curve that begins at 0 below its highest point so far; 0 where it never falls."""
    whole = np.append(0.0, curve)
    return float(np.max(np.maximum.accumulate(whole) - whole))


def leading(group: Int, kind: Int, weight: Float, groups: int, kinds: int) -> Int:
    """The kind with the largest weight in each group, of several the lowest; -1 where nothing weighs.

    Args:
        group: codes.
        kind: codes, -1 for none, which is not counted.
        weight: at least 0.
        groups: number of groups.
        kinds: number of kinds.

    """
    if kinds == 0:
        return np.full(groups, -1)
    counted = kind >= 0
    place = group[counted] * kinds + kind[counted]
    total = np.bincount(place, weights=weight[counted], minlength=groups * kinds).reshape(groups, kinds)
    return np.where(total.max(axis=1) > 0.0, total.argmax(axis=1), -1)


def group_means(group: Int, values: Float, groups: int) -> Float:
    """The mean of each group; NaN for an empty one."""
    count = np.bincount(group, minlength=groups).astype(np.float64)
    total = np.bincount(group, weights=values, minlength=groups).astype(np.float64)
    return share(total, count)
