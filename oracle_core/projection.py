"""Where a trend is heading: momentum, decaying world events, their blend, and what drives it (R41-R55, R190).

Advisory only: nothing here decides an action (R41). How an event's impact comes about belongs in
:mod:`oracle_core.macro`, how the lists are stored in the storage layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from oracle_core.arrays import exact_sums, group_offsets, ranges
from oracle_core.config import MacroConfig, OracleConfig, ProjectionConfig
from oracle_core.enums import EventDuration, TrendDirection, Window, codes
from oracle_core.frames import ProjectionFrame, ProjectionRows, TrendFrame
from oracle_core.inputs import US_PER_DAY, Bool, Columns, CycleInputs, Float, HistoryRows, Int, Keys
from oracle_core.macro import event_impacts, half_lives_days
from oracle_core.records import TrendProjection, TrendSummary
from oracle_core.windows import LOOKBACKS_US

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet

DIRECTIONS: tuple[TrendDirection, ...] = tuple(TrendDirection)
_CODE = codes(TrendDirection)
_POSITIVE, _NEGATIVE = _CODE[TrendDirection.POSITIVE], _CODE[TrendDirection.NEGATIVE]
_MIXED, _NEUTRAL = _CODE[TrendDirection.MIXED], _CODE[TrendDirection.NEUTRAL]
_PERCENT = 100.0


class MomentumRule(Protocol):
    """Momentum of every key; the two sets of rules differ here (R129)."""

    def __call__(
        self, signed: Float, history: HistoryRows, volatility_pct: Float, config: ProjectionConfig
    ) -> Float:
        """Return one finite momentum per key."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MacroRows(Columns):
    """One row per (key, event with positive impact on the key's entity).

    ``impact`` in (0, 1] already holds the severity; ``age_days`` is the age at ``as_of``; ``sign`` is -1, 0
    or +1 and ``duration`` a code of EventDuration.
    """

    key: Int
    sign: Int
    impact: Float
    duration: Int
    age_days: Float


@dataclass(frozen=True, slots=True, eq=False)
class MacroOutlook(Columns):
    """What events will still weigh at the end of the horizon, one row per key; all >= 0 but ``signed``."""

    favourable: Float
    unfavourable: Float
    direction: Int
    signed: Float
    exists: Bool


def signed_strength(direction: Int, strength: Float) -> Float:
    """Strength with its direction's sign: positive +1, negative -1, mixed and neutral 0 (G42).

    Args:
        direction: codes of TrendDirection.
        strength: same shape, in [0, 1].

    Returns:
        Values in [-1, 1].

    """
    sign = np.zeros(len(DIRECTIONS))
    sign[_POSITIVE], sign[_NEGATIVE] = 1.0, -1.0
    return sign[direction] * strength


def _newest_first(history: HistoryRows, keys: int, depth: int) -> Float:
    """Lay out the ``depth`` newest earlier values per key, newest in column 0, NaN where there are fewer."""
    order = np.lexsort((history.signed_strength, -history.as_of_us, history.key))
    key = history.key[order]
    rank = np.arange(len(key)) - np.searchsorted(key, key)
    kept = rank < depth
    table = np.full((keys, depth), np.nan)
    table[key[kept], rank[kept]] = history.signed_strength[order][kept]
    return table


def simple_momentum(
    signed: Float,
    history: HistoryRows,
    volatility_pct: Float,  # noqa: ARG001 - the same signature in both sets of rules
    config: ProjectionConfig,
) -> Float:
    """Change of the signed strength since the newest earlier cycle (R42), heuristic.

    A key without an earlier cycle gets half its signed strength (R43).

    Args:
        signed: signed strength now, one per key.
        history: earlier cycles, strictly before ``as_of``, any order.
        volatility_pct: not used.
        config: constants.

    Returns:
        Momentum per key, in [-2, 2].

    Implements: R42, R43.

    """
    previous = _newest_first(history, len(signed), 1)[:, 0]
    return np.where(np.isnan(previous), config.fallback_momentum * signed, signed - previous)


def ew_momentum(
    signed: Float, history: HistoryRows, volatility_pct: Float, config: ProjectionConfig
) -> Float:
    """Exponentially weighted momentum over the newest cycles, scaled by volatility (R190, G19).

    Probabilistic: the mean of the differences between successive cycles, weighted ``lambda**k`` newest first,
    times ``reference / max(sigma, floor)`` (1 where the volatility is missing), clamped. A key with fewer
    than two cycles gets half its signed strength, not scaled.

    Args:
        signed: signed strength now, one per key.
        history: earlier cycles, strictly before ``as_of``, any order.
        volatility_pct: volatility of the last 20 daily returns in percent; NaN where unknown.
        config: constants.

    Returns:
        Momentum per key.

    Implements: R190.

    """
    earlier = _newest_first(history, len(signed), config.ew_max_differences)
    series = np.column_stack((signed, earlier))
    total = np.zeros(len(signed))
    weights = np.zeros(len(signed))
    weight = 1.0
    for k in range(config.ew_max_differences):
        difference = series[:, k] - series[:, k + 1]
        known = ~np.isnan(difference)
        total += np.where(known, weight * difference, 0.0)
        weights += np.where(known, weight, 0.0)
        weight *= config.ew_lambda
    fallback = weights == 0.0
    mean = total / np.where(fallback, 1.0, weights)
    sigma = np.maximum(volatility_pct / _PERCENT, config.vol_floor)
    scale = np.where(np.isnan(volatility_pct), 1.0, config.vol_reference / sigma)
    scaled = np.clip(mean * scale, -config.momentum_clamp, config.momentum_clamp)
    return np.where(fallback, config.fallback_momentum * signed, scaled)


def macro_outlook(
    rows: MacroRows, horizon_days: Float, config: ProjectionConfig, macro: MacroConfig
) -> MacroOutlook:
    """Decay every event to the end of the horizon and weigh the two sides against each other (R45-R49, G34).

    Remaining impact is ``impact * 2**(-(age + horizon) / half_life)``. An event without a side adds to
    neither but exists. The sums are exact, because they decide the direction.

    Args:
        rows: the events of every key, any order.
        horizon_days: one per key.
        config: majority margin.
        macro: half-lives.

    Returns:
        One row per key; ``signed`` in [-1, 1], 0 unless one side has the majority.

    Implements: R46, R48, R49.

    """
    keys = len(horizon_days)
    age = rows.age_days + horizon_days[rows.key]
    remaining = rows.impact * np.exp2(-age / half_lives_days(rows.duration, macro))
    favourable = _side(rows, remaining, 1, keys)
    unfavourable = _side(rows, remaining, -1, keys)
    positive = favourable > config.majority_margin * unfavourable
    negative = unfavourable > config.majority_margin * favourable
    contested = (favourable > 0.0) & (unfavourable > 0.0)
    direction = np.select((positive, negative, contested), (_POSITIVE, _NEGATIVE, _MIXED), _NEUTRAL)
    difference = np.clip(favourable - unfavourable, -1.0, 1.0)
    return MacroOutlook(
        favourable=favourable,
        unfavourable=unfavourable,
        direction=direction.astype(np.int64),
        signed=np.where(positive | negative, difference, 0.0),
        exists=np.bincount(rows.key, minlength=keys) > 0,
    )


def _side(rows: MacroRows, remaining: Float, sign: int, keys: int) -> Float:
    chosen = np.flatnonzero(rows.sign == sign)
    ordered = chosen[np.argsort(rows.key[chosen], kind="stable")]
    return exact_sums(remaining[ordered], group_offsets(rows.key[ordered], keys))


def macro_rows(
    inputs: CycleInputs, keys: Keys, as_of_us: int, config: OracleConfig, rules: RuleSet
) -> MacroRows:
    """Every known event with positive impact on a key's entity, whatever its age (decisions 4).

    None with the macro layer off. An event that is known before it occurs has age 0.
    """
    impacts = event_impacts(inputs, np.unique(keys.entity), rules, config)
    first = np.searchsorted(impacts.entity, keys.entity)
    lengths = np.searchsorted(impacts.entity, keys.entity, side="right") - first
    if not config.flags.macro_enabled:
        lengths = np.zeros_like(lengths)
    key, pair = ranges(first, lengths)
    event = impacts.event[pair]
    age_us = np.maximum(as_of_us - inputs.events.occurred_us[event], 0)
    return MacroRows(
        key=key,
        sign=inputs.events.sign[event],
        impact=impacts.impact[pair],
        duration=inputs.events.duration[event],
        age_days=age_us / US_PER_DAY,
    )


def project_trends(
    trends: TrendFrame,
    inputs: CycleInputs,
    history: HistoryRows,
    *,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> ProjectionFrame:
    """Project every trend over its own window (R41, G35).

    Args:
        trends: one row per key.
        inputs: already cut at ``as_of``.
        history: earlier cycles of the keys, strictly before ``as_of``.
        as_of_us: the cycle's moment.
        config: the configuration.
        rules: the set of rules of the mode.

    Implements: R41, R63.

    """
    keys, rows = trends.keys, trends.rows
    outlook = macro_outlook(
        macro_rows(inputs, keys, as_of_us, config, rules),
        LOOKBACKS_US[keys.window] / US_PER_DAY,
        config.projection,
        config.macro,
    )
    signed = signed_strength(rows.direction, rows.strength)
    projected = project(
        direction=rows.direction,
        strength=rows.strength,
        confidence=rows.confidence,
        momentum=rules.momentum(signed, history, rows.volatility, config.projection),
        outlook=outlook,
        config=config,
    )
    names = [window.value for window in Window]
    factors = driving_factors(
        projected,
        outlook,
        direction=rows.direction,
        strength=rows.strength,
        catalysts=trends.dominant_catalysts,
        windows=[names[code] for code in keys.window.tolist()],
        config=config.projection,
    )
    return ProjectionFrame(keys, projected, factors)


def project(
    *,
    direction: Int,
    strength: Float,
    confidence: Float,
    momentum: Float,
    outlook: MacroOutlook,
    config: OracleConfig,
) -> ProjectionRows:
    """Blend momentum and world events into a projection per key (R44, R50, R53-R55, G21, G22, G34).

    Without events, or with the macro layer off, the blend is ``signed strength + 0.5 * momentum`` alone.

    Args:
        direction: codes of TrendDirection, one per key.
        strength: in [0, 1].
        confidence: of the trend, in [0, 1].
        momentum: any finite value.
        outlook: of every key; ignored where nothing exists.
        config: constants and whether the macro layer is on.

    Returns:
        One row per key: strength and confidence in [0, 1], contribution in percent.

    Implements: R44, R50, R53, R54, R55.

    """
    c = config.projection
    enabled = config.flags.macro_enabled
    exists = outlook.exists & enabled
    own = signed_strength(direction, strength) + c.momentum_weight * momentum
    macro_signed = np.where(exists, outlook.signed, 0.0)
    total = np.where(exists, outlook.favourable + outlook.unfavourable, 0.0)
    both = total + np.abs(own)
    share = total / np.where(both > 0.0, both, 1.0)
    macro_weight = np.minimum(c.macro_weight_cap, share)
    blended = (1.0 - macro_weight) * own + macro_weight * macro_signed
    effect = macro_weight * np.abs(macro_signed)
    movement = (1.0 - macro_weight) * np.abs(own) + effect
    contributes = (effect >= c.min_macro_effect) & (movement > 0.0)
    projected = np.select(
        (blended >= c.direction_threshold, blended <= -c.direction_threshold, direction == _MIXED),
        (_POSITIVE, _NEGATIVE, _MIXED),
        _NEUTRAL,
    ).astype(np.int64)
    boosted = c.base_confidence * confidence + np.where(exists, c.macro_boost, 0.0)
    projected_confidence = np.minimum(1.0, boosted * (1.0 if enabled else c.disabled_factor))
    return ProjectionRows(
        direction=projected,
        strength=np.minimum(1.0, np.abs(blended)),
        confidence=projected_confidence,
        momentum=momentum,
        blended=blended,
        macro_signed=macro_signed,
        macro_weight=macro_weight,
        macro_contribution_pct=np.where(
            contributes, _PERCENT * (effect / np.where(contributes, movement, 1.0)), 0.0
        ),
        has_macro_events=exists,
        diverges_from_current=projected != direction,
        low_confidence=projected_confidence < c.low_confidence_threshold,
    )


def driving_factors(
    rows: ProjectionRows,
    outlook: MacroOutlook,
    *,
    direction: Int,
    strength: Float,
    catalysts: Sequence[Sequence[str]],
    windows: Sequence[str],
    config: ProjectionConfig,
) -> list[list[str]]:
    """Say in words what drives each projection (R51-R53): momentum, macro, catalysts, divergence.

    A momentum that would print as 0.000 and a macro part that moves the blend by less than
    ``min_macro_effect`` are no factors, so that dust never appears as one. Without any factor one says that
    the trend continues.

    Args:
        rows: projections, one per key.
        outlook: macro outlook, one per key.
        direction: codes of the current direction.
        strength: current strength.
        catalysts: dominant catalysts per key, most dominant first.
        windows: window names per key, used as the horizon's label.
        config: constants.

    Returns:
        At least one factor per key.

    Implements: R51, R52.

    """
    own = signed_strength(direction, strength) + config.momentum_weight * rows.momentum
    # A contested outlook has no side of its own; what it does is to damp the trend.
    pull = np.where(outlook.direction == _MIXED, np.abs(own), np.abs(rows.macro_signed))
    moved = rows.macro_weight * pull
    listed = rows.has_macro_events & (outlook.direction != _NEUTRAL) & (moved >= config.min_macro_effect)
    return [
        _factors(
            momentum,
            (DIRECTIONS[macro], abs(signed)) if shown else None,
            names[: config.max_catalysts],
            window,
            (DIRECTIONS[now], DIRECTIONS[later]),
        )
        for momentum, macro, signed, shown, names, window, now, later in zip(
            rows.momentum.tolist(),
            outlook.direction.tolist(),
            rows.macro_signed.tolist(),
            listed.tolist(),
            catalysts,
            windows,
            direction.tolist(),
            rows.direction.tolist(),
            strict=True,
        )
    ]


def _factors(
    momentum: float,
    macro: tuple[TrendDirection, float] | None,
    catalysts: Sequence[str],
    window: str,
    directions: tuple[TrendDirection, TrendDirection],
) -> list[str]:
    factors: list[str] = []
    shown = f"{momentum:+.3f}"
    if float(shown) != 0.0:
        factors.append(
            f"{'Positive' if momentum > 0.0 else 'Negative'} momentum ({shown}) in recent trend strength"
        )
    if macro is not None:
        factors.append(f"Macro signals project {macro[0]} impact (strength {macro[1]:.3f}) over {window}")
    factors.extend(f"Upcoming catalyst: {name}" for name in catalysts)
    current, projected = directions
    if not factors:
        factors.append(f"Baseline continuation of the current {current} trend")
    if projected is not current:
        factors.append(divergence_factor(current, projected))
    return factors


def divergence_factor(current: TrendDirection, projected: TrendDirection) -> str:
    """Sentence for a projection that leaves the current direction (R53)."""
    return f"Projected {projected} direction diverges from the current {current} trend"


# ------------------------------------------------------------------------------------------ single forms


@dataclass(frozen=True, slots=True)
class MacroEvent:
    """An event as it concerns one entity: direction, impact (severity included), duration, age in days."""

    direction: TrendDirection
    impact: float
    duration: EventDuration
    age_days: float


@dataclass(frozen=True, slots=True)
class MacroDecay:
    """Outlook of one entity over one horizon."""

    favourable: float
    unfavourable: float
    direction: TrendDirection
    signed: float
    exists: bool


def compute_trend_momentum(
    signed: float,
    earlier: Sequence[float] = (),
    *,
    volatility_pct: float | None = None,
    rule: MomentumRule = simple_momentum,
    config: ProjectionConfig | None = None,
) -> float:
    """Momentum of one trend (R42, R43, R190).

    Args:
        signed: signed strength now.
        earlier: signed strengths of earlier cycles, newest first.
        volatility_pct: None where unknown.
        rule: :func:`simple_momentum` or :func:`ew_momentum`.
        config: constants; the defaults where None.

    """
    history = HistoryRows(np.zeros(len(earlier), np.int64), -np.arange(len(earlier)), np.array(earlier))
    volatility = np.array([np.nan if volatility_pct is None else volatility_pct])
    return float(rule(np.array([signed]), history, volatility, config or ProjectionConfig())[0])


def project_macro_decay(
    events: Sequence[MacroEvent], horizon_days: float, config: OracleConfig | None = None
) -> MacroDecay:
    """Outlook of one entity over one horizon (R45-R49)."""
    outlook = _outlook(events, horizon_days, config or OracleConfig())
    return MacroDecay(
        favourable=float(outlook.favourable[0]),
        unfavourable=float(outlook.unfavourable[0]),
        direction=DIRECTIONS[int(outlook.direction[0])],
        signed=float(outlook.signed[0]),
        exists=bool(outlook.exists[0]),
    )


def _outlook(events: Sequence[MacroEvent], horizon_days: float, config: OracleConfig) -> MacroOutlook:
    sides = {TrendDirection.POSITIVE: 1, TrendDirection.NEGATIVE: -1}
    kept = [e for e in events if e.impact > 0.0]
    durations = codes(EventDuration)
    rows = MacroRows(
        np.zeros(len(kept), np.int64),
        np.array([sides.get(e.direction, 0) for e in kept]),
        np.array([e.impact for e in kept]),
        np.array([durations[e.duration] for e in kept], np.int64),
        np.array([e.age_days for e in kept]),
    )
    return macro_outlook(rows, np.array([horizon_days]), config.projection, config.macro)


def compute_projection(
    summary: TrendSummary,
    momentum: float,
    events: Sequence[MacroEvent] = (),
    *,
    horizon_days: float,
    config: OracleConfig | None = None,
) -> TrendProjection:
    """Projection of one trend; ``computed_at`` is the trend's own time.

    Args:
        summary: the trend.
        momentum: see :func:`compute_trend_momentum`.
        events: every known event that concerns the entity.
        horizon_days: the window's lookback (G35).
        config: constants and the macro toggle; the defaults where None.

    """
    c = config or OracleConfig()
    outlook = _outlook(events, horizon_days, c)
    current = np.array([_CODE[summary.trend_direction]])
    strength = np.array([summary.trend_strength])
    rows = project(
        direction=current,
        strength=strength,
        confidence=np.array([summary.confidence]),
        momentum=np.array([momentum]),
        outlook=outlook,
        config=c,
    )
    factors = driving_factors(
        rows,
        outlook,
        direction=current,
        strength=strength,
        catalysts=[summary.dominant_catalysts],
        windows=[summary.window.value],
        config=c.projection,
    )
    return TrendProjection(
        projected_direction=DIRECTIONS[int(rows.direction[0])],
        projected_strength=float(rows.strength[0]),
        projected_confidence=float(rows.confidence[0]),
        projection_horizon=summary.window,
        driving_factors=tuple(factors[0]),
        macro_contribution_pct=float(rows.macro_contribution_pct[0]),
        diverges_from_current=bool(rows.diverges_from_current[0]),
        low_confidence=bool(rows.low_confidence[0]),
        computed_at=summary.generated_at,
    )
