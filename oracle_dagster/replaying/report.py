"""The report of a replay, as JSON: what was decided, how often it changed, and how good it was.

Reads the replay's own tables and has the core judge them; the same rows give the same report. Nothing is
drawn or printed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from oracle_core import calibration
from oracle_core.config import OracleConfig
from oracle_core.enums import Action, Mode, TrendDirection
from oracle_dagster.replaying.engine import HORIZON
from oracle_dagster.storage import replays
from oracle_dagster.storage.configuration import diff
from oracle_dagster.storage.cycles import microseconds
from oracle_dagster.storage.results import WINDOWS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from oracle_core.inputs import Bool, Float, Int
    from oracle_dagster.replaying.engine import Request
    from oracle_dagster.storage.database import Database
    from oracle_dagster.storage.replays import Replay, Stored

Object = dict[str, Any]

SEED: Final = 20140101
DRAWS: Final = 1000
LEVEL: Final = 0.95
COUNTS: Final = ("decisions", "calls")
_ACTIONS: Final = tuple(action.value for action in Action)
_MODES: Final = tuple(mode.value for mode in Mode)
_DIRECTIONS: Final = tuple(direction.value for direction in TrendDirection)
_CALLS: Final = {TrendDirection.POSITIVE: 1, TrendDirection.NEGATIVE: -1}
_OUTCOMES: Final = ("settled", "unsettled", "no_prices")
_LONG, _SHORT = _ACTIONS.index(Action.ACT), _ACTIONS.index(Action.DEFER)
_INFORMATIONAL: Final = _MODES.index(Mode.INFORMATIONAL)

HOW: Final = {
    "outcome": "the close known seven days after the cycle over the close known at it; a rise is a return "
    "above 0. Counted only where the entity's prices reach past the seven days; a return of exactly 0 is "
    "neither right nor wrong and is left out",
    "judged": "decisions with at least one document in the window and such a return",
    "hit_rate": "share of the directions positive and negative that the return confirmed; mixed and neutral "
    "call nothing",
    "confidence": "as a probability of a rise: (1 + confidence) / 2 for a positive direction, "
    "(1 - confidence) / 2 for a negative one, 1/2 for mixed and neutral",
    "p_bull": "the posterior of the probabilistic rules, as it stands",
    "plain": "the unweighted average a of the sentiment of the window's documents, as (1 + a) / 2; it calls "
    "the sign of a",
    "base": "always stating the share of rises of the very same decisions, or calling their more frequent "
    "side: known only afterwards, so no constant does better",
    "brier": "mean squared error of the probability: 0 is perfect, 1/4 is always saying 1/2",
    "log_loss": "in nats; probabilities are kept 1e-6 away from 0 and 1",
    "calibration_error": "distance between the mean probability of a tenth and its share of rises, averaged "
    "over the decisions",
    "intervals": f"{LEVEL:.0%} of {DRAWS:,} histories drawn with replacement from the cycles, all decisions "
    "of a cycle together (by day), and from stretches of seven days (by week), because the returns of "
    "neighbouring days overlap",
    "equity": "decisions above informational: act is held for seven days with its allocation, defer against "
    "the entity; capital is split evenly over the cycles open at a time; where the sizes of a cycle exceed "
    "its part they are scaled down alike; no costs, nothing reinvested. Market: all entities with prices "
    "in equal parts",
}


@dataclass(frozen=True)
class _Decisions:
    """The decisions of one configuration as arrays, by cycle, entity and window."""

    stored: Stored
    day: Int
    entity: Int
    window: Int
    action: Int
    mode: Int
    direction: Int
    source_type: Int
    source_types: list[str]
    result: Float
    judged: Bool
    rows: calibration.Judged


def report(database: Database, request: Request, replay: Replay) -> Object:
    """Judge a finished replay.

    Args:
        database: where it is stored.
        request: what was replayed.
        replay: as stored.

    Returns:
        JSON without the number of the replay or any moment of its run, so that a repeat gives the same text.

    """
    moments = request.moments()
    days_us = np.array([microseconds(each) for each in moments], np.int64)
    per_week = max(1, math.ceil(HORIZON / request.every))
    all_decisions = [
        _decisions(replays.read_decisions(database, replay.number, position), days_us)
        for position in range(len(replay.configurations))
    ]
    entities = {name for d in all_decisions for name in d.stored.names("entity_id")}
    told: Object = {
        "from": _time(moments[0]),
        "to": _time(moments[-1]),
        "every_days": request.every / timedelta(days=1),
        "cycles": len(moments),
        "windows": [window for window in WINDOWS if window in request.windows],
        "entities": len(entities),
        "horizon_days": HORIZON / timedelta(days=1),
        "code_version": replay.request["code_version"],
        "library_set": replay.request["library_set"],
        "how": HOW,
        "bootstrap": {"seed": SEED, "draws": DRAWS, "level": LEVEL, "cycles_per_week": per_week},
        "as_of": [_time(each) for each in moments],
        "configurations": [],
    }
    first: Float | None = None
    for each, decisions in zip(replay.configurations, all_decisions, strict=True):
        sums = calibration.day_sums(decisions.rows, len(moments))
        told["configurations"].append(
            {
                "name": each.name,
                "pipeline_mode": each.config.pipeline_mode.value,
                "config_hash": each.config.fingerprint(),
                "settings": {path: value for path, (_, value) in diff(OracleConfig(), each.config).items()},
                "counts": _counts(decisions),
                "per_day": _per_day(decisions, len(moments)),
                "scores": _scores(decisions, len(moments), per_week),
                "compared_with_first": None if first is None else _measured(sums, per_week, against=first),
                "reliability": _reliability(decisions, len(moments), per_week),
                "equity": _equities(decisions, len(moments), request.every, per_week),
            }
        )
        first = sums if first is None else first
    told["market"] = _market(all_decisions[0], len(moments), request.every, per_week)
    return told


def _decisions(stored: Stored, days_us: Int) -> _Decisions:
    direction = stored.codes("trend_direction", _DIRECTIONS)
    calls = np.array([_CALLS.get(TrendDirection(name), 0) for name in _DIRECTIONS], np.int64)
    result, plain = stored.floats("return_7d"), stored.floats("plain_average")
    day = np.searchsorted(days_us, stored.times("as_of")).astype(np.int64)
    moved = stored.codes("outcome", _OUTCOMES) == 0
    judged = moved & (result != 0.0) & (stored.ints("documents") > 0)
    types = stored.names("source_type")
    call = calls[direction]
    whole = calibration.Judged(
        day=day,
        rose=result > 0.0,
        call=call,
        plain_call=np.sign(np.nan_to_num(plain)).astype(np.int64),
        confidence=calibration.signed_probability(call, stored.floats("confidence")),
        p_bull=stored.floats("p_bull"),
        plain=calibration.average_probability(plain),
    )
    return _Decisions(
        stored=stored,
        day=day,
        entity=stored.codes("entity_id", stored.names("entity_id")),
        window=stored.codes("window", WINDOWS),
        action=stored.codes("action", _ACTIONS),
        mode=stored.codes("mode", _MODES),
        direction=direction,
        source_type=stored.codes("source_type", types),
        source_types=types,
        result=result,
        judged=judged,
        rows=whole.take(judged),
    )


def _counts(d: _Decisions, where: Bool | None = None) -> dict[str, int]:
    """What became of the decisions; the last five and the judged add up to all of them."""
    here = np.ones(len(d.day), np.bool_) if where is None else where
    outcome = d.stored.codes("outcome", _OUTCOMES)
    said = d.stored.ints("documents") > 0
    counts = {
        "decisions": here,
        "judged": here & d.judged,
        "without_documents": here & ~said,
        "unsettled": here & said & (outcome == _OUTCOMES.index("unsettled")),
        "without_prices": here & said & (outcome == _OUTCOMES.index("no_prices")),
        "unchanged_price": here & said & (outcome == 0) & (d.result == 0.0),
    }
    found = {name: int(mask.sum()) for name, mask in counts.items()}
    return found | ({"failed": d.stored.failures} if where is None else {})


def _per_day(d: _Decisions, days: int) -> Object:
    fresh = ~d.stored.bools("duplicate")
    key = d.entity * len(WINDOWS) + d.window
    followed, changed = calibration.flips(key, d.day, d.action * len(_MODES) + d.mode, days)
    _, turned = calibration.flips(key, d.day, d.direction, days)
    by_action = {
        name: np.bincount(d.day[d.action == code], minlength=days).tolist()
        for code, name in enumerate(_ACTIONS)
    }
    pairs = int(followed.sum())
    return {
        "decisions": np.bincount(d.day, minlength=days).tolist(),
        **by_action,
        "new_recommendations": np.bincount(d.day[fresh], minlength=days).tolist(),
        "followed": followed.tolist(),
        "flips": changed.tolist(),
        "direction_flips": turned.tolist(),
        "flip_rate": int(changed.sum()) / pairs if pairs else None,
        "direction_flip_rate": int(turned.sum()) / pairs if pairs else None,
    }


def _scores(d: _Decisions, days: int, per_week: int) -> Object:
    def group(codes: Int, names: Sequence[str]) -> Object:
        found: Object = {}
        for code, name in enumerate(names):
            where = codes == code
            if where.any():
                sums = calibration.day_sums(d.rows.take(where[d.judged]), days)
                found[name] = {
                    "counts": _counts(d, where),
                    "measures": _measured(sums, per_week),
                    "calibration_error": _distances(d.rows.take(where[d.judged])),
                }
        return found

    whole = calibration.day_sums(d.rows, days)
    return {
        "all": {
            "all": {
                "counts": _counts(d),
                "measures": _measured(whole, per_week),
                "calibration_error": _distances(d.rows),
            }
        },
        "window": group(d.window, WINDOWS),
        "action": group(d.action, _ACTIONS),
        "mode": group(d.mode, _MODES),
        "source type": group(d.source_type, d.source_types),
    }


def _measured(sums: Float, per_week: int, against: Float | None = None) -> Object:
    """Every measure with its intervals; with ``against``, how much larger it is than there."""
    wanted = calibration.measures(sums.sum(axis=0))
    drawn = {
        unit: calibration.measures(calibration.resampled(sums, length, DRAWS, SEED))
        for unit, length in (("day", 1), ("week", per_week))
    }
    if against is not None:
        other = calibration.measures(against.sum(axis=0))
        wanted = {name: value - other[name] for name, value in wanted.items()}
        drawn = {
            unit: _less(of, calibration.measures(calibration.resampled(against, length, DRAWS, SEED)))
            for (unit, of), length in zip(drawn.items(), (1, per_week), strict=True)
        }
    found: Object = {}
    for name, value in wanted.items():
        if name in COUNTS:
            found[name] = int(value)
        else:
            found[name] = {"value": _number(float(value))} | {
                unit: _interval(of[name]) for unit, of in drawn.items()
            }
    return found


def _less(one: dict[str, Float], other: dict[str, Float]) -> dict[str, Float]:
    return {name: values - other[name] for name, values in one.items()}


def _reliability(d: _Decisions, days: int, per_week: int) -> Object:
    found: Object = {}
    for name in calibration.FORECASTS:
        stated = getattr(d.rows, name)
        if np.isnan(stated).all():
            continue
        sums = calibration.bin_sums(d.rows.day, stated, d.rows.rose, days)
        rows = calibration.reliability(sums.sum(axis=0))
        drawn = {
            unit: calibration.resampled(sums, length, DRAWS, SEED)
            for unit, length in (("day", 1), ("week", per_week))
        }
        found[name] = {
            "calibration_error": _number(calibration.calibration_error(rows)),
            "bins": [
                {
                    "low": float(rows.low[at]),
                    "high": float(rows.high[at]),
                    "count": int(rows.count[at]),
                    "stated": _number(float(rows.stated[at])),
                    "rose": _number(float(rows.rose[at])),
                    **{
                        unit: _interval(calibration.share(of[:, at, 2], of[:, at, 0]))
                        for unit, of in drawn.items()
                    },
                }
                for at in range(calibration.BINS)
            ],
        }
    return found


def _distances(rows: calibration.Judged) -> dict[str, float | None]:
    """The calibration error of each forecast."""
    found = {}
    for name in calibration.FORECASTS:
        sums = calibration.bin_sums(np.zeros(len(rows.day), np.int64), getattr(rows, name), rows.rose, 1)
        found[name] = _number(calibration.calibration_error(calibration.reliability(sums[0])))
    return found


def _equities(d: _Decisions, days: int, every: timedelta, per_week: int) -> Object:
    sized = d.stored.floats("allocation_pct")
    open_positions = (d.mode != _INFORMATIONAL) & np.isfinite(d.result)
    long, short = d.action == _LONG, d.action == _SHORT
    return {
        "act": _curve(d, open_positions & long, sized, days, every, per_week),
        "act and defer": _curve(
            d, open_positions & (long | short), np.where(short, -sized, sized), days, every, per_week
        ),
    }


def _market(d: _Decisions, days: int, every: timedelta, per_week: int) -> Object:
    """Every entity with a settled return, once a cycle, in equal parts."""
    _, first = np.unique(d.day * (int(d.entity.max(initial=0)) + 1) + d.entity, return_index=True)
    chosen = np.zeros(len(d.day), np.bool_)
    chosen[first] = True
    chosen &= np.isfinite(d.result)
    count = np.bincount(d.day[chosen], minlength=days)
    return _curve(d, chosen, 1.0 / np.maximum(count, 1)[d.day], days, every, per_week)


def _curve(  # noqa: PLR0917 - what a curve is made of
    d: _Decisions, chosen: Bool, weight: Float, days: int, every: timedelta, per_week: int
) -> Object:
    books = max(1.0, HORIZON / every)
    found = calibration.equity(d.day[chosen], weight[chosen], d.result[chosen], days, books)
    by_week = calibration.resampled(found.profit.reshape(-1, 1), per_week, DRAWS, SEED)[:, 0]
    return {
        "positions": int(chosen.sum()),
        "cycles_invested": int(np.count_nonzero(found.gross)),
        "mean_gross": float(found.gross.mean()),
        "largest_gross": float(found.gross.max()),
        "earned": float(found.curve[-1]),
        "earned_week": _interval(by_week),
        "drawdown": calibration.drawdown(found.curve),
        "curve": found.curve.tolist(),
    }


def _interval(values: Float) -> list[float | None]:
    return [_number(bound) for bound in calibration.interval(values, LEVEL)]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _time(when: datetime) -> str:
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
