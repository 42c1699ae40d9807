"""What a trend allows: five gates, the action, the highest mode, the expected value (R81-R94, R191-R192).

Whether the data behind it are good enough is not judged here, see :mod:`oracle_core.suppression`; sizes are
in :mod:`oracle_core.sizing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oracle_core.arrays import exact_means, group_offsets
from oracle_core.config import EligibilityConfig
from oracle_core.enums import (
    Action,
    EvReason,
    Mode,
    RejectionReason,
    SignalLayer,
    TrendDirection,
    codes,
)
from oracle_core.gates import Gate, Relation, failures
from oracle_core.inputs import US_PER_DAY, BarRows, Bool, Columns, Float, Int
from oracle_core.market import forward_returns
from oracle_core.records import EligibilityResult, TrendSummary
from oracle_core.sizing import compute_position_sizing

ACTIONS: tuple[Action, ...] = tuple(Action)
MODES: tuple[Mode, ...] = tuple(Mode)
REJECTIONS: tuple[RejectionReason, ...] = tuple(RejectionReason)
EV_REASONS: tuple[EvReason, ...] = tuple(EvReason)

_DIRECTION, _ACTION, _MODE = codes(TrendDirection), codes(Action), codes(Mode)
_SYNTHETIC = tuple(f"{layer}:" for layer in SignalLayer if layer is not SignalLayer.ENTITY)


def failed_gates(
    *,
    direction: Int,
    strength: Float,
    confidence: Float,
    contradiction: Float,
    evidence: Int,
    config: EligibilityConfig,
) -> Bool:
    """Check the five gates of every key, all of them (R81-R86); each threshold itself passes.

    Args:
        direction: codes of TrendDirection.
        strength: in [0, 1].
        confidence: in [0, 1].
        contradiction: in [0, 1].
        evidence: number of documents cited on both sides.
        config: thresholds.

    Returns:
        One column per member of RejectionReason, true where the gate fails.

    Implements: R86.

    """
    return failures(
        eligibility_gates(
            direction=direction,
            strength=strength,
            confidence=confidence,
            contradiction=contradiction,
            evidence=evidence,
            config=config,
        )
    )


def eligibility_gates(
    *,
    direction: Int,
    strength: Float,
    confidence: Float,
    contradiction: Float,
    evidence: Int,
    config: EligibilityConfig,
) -> tuple[Gate, ...]:
    """The five gates themselves, in the order of RejectionReason; arguments as for :func:`failed_gates`.

    Implements: R81, R82, R83, R84, R85.
    """
    neutral = (direction == _DIRECTION[TrendDirection.NEUTRAL]).astype(np.float64)
    asked = (
        (confidence, Relation.AT_LEAST, config.min_confidence),
        (strength, Relation.AT_LEAST, config.min_trend_strength),
        (contradiction, Relation.AT_MOST, config.max_contradiction),
        (evidence.astype(np.float64), Relation.AT_LEAST, float(config.min_evidence)),
        (neutral, Relation.AT_MOST, 0.0),
    )
    return tuple(Gate(reason.value, *gate) for reason, gate in zip(REJECTIONS, asked, strict=True))


def actions(direction: Int, strength: Float, confidence: Float, config: EligibilityConfig) -> Int:
    """Map every trend to an action, as codes of Action (R88-R90).

    Mixed and neutral are observed whatever their strength; a strong direction is acted on or deferred; a weak
    one is monitored if the confidence suffices, else observed.

    Implements: R88, R89, R90.
    """
    sided = (direction == _DIRECTION[TrendDirection.POSITIVE]) | (
        direction == _DIRECTION[TrendDirection.NEGATIVE]
    )
    acting, monitoring = action_gates(strength, confidence, config)
    strong = sided & acting.holds()
    return np.select(
        (
            strong & (direction == _DIRECTION[TrendDirection.POSITIVE]),
            strong,
            sided & monitoring.holds(),
        ),
        (_ACTION[Action.ACT], _ACTION[Action.DEFER], _ACTION[Action.MONITOR]),
        _ACTION[Action.OBSERVE],
    ).astype(np.int64)


def action_gates(strength: Float, confidence: Float, config: EligibilityConfig) -> tuple[Gate, Gate]:
    """What a direction has to reach to be acted on, and what a weak one to be monitored."""
    return (
        Gate("act_or_defer", strength, Relation.AT_LEAST, config.action_strength_threshold),
        Gate("monitor", confidence, Relation.AT_LEAST, config.hold_confidence_threshold),
    )


def is_actionable(action: Int) -> Bool:
    """Whether an action asks for a commitment: act and defer do."""
    return np.isin(action, (_ACTION[Action.ACT], _ACTION[Action.DEFER]))


def modes(
    action: Int, confidence: Float, contradiction: Float, evidence: Int, config: EligibilityConfig
) -> Int:
    """Highest mode the signal quality allows, as codes of Mode (R91-R93); gates are not looked at.

    Implements: R91, R92, R93.
    """
    simulated, *live = mode_gates(confidence, contradiction, evidence, config)
    simulation = is_actionable(action) & simulated.holds()
    production = is_actionable(action) & ~any_of(failures(tuple(live)))
    return np.select(
        (production, simulation),
        (_MODE[Mode.PRODUCTION_ELIGIBLE], _MODE[Mode.SIMULATION_ELIGIBLE]),
        _MODE[Mode.INFORMATIONAL],
    ).astype(np.int64)


def mode_gates(
    confidence: Float, contradiction: Float, evidence: Int, config: EligibilityConfig
) -> tuple[Gate, Gate, Gate, Gate]:
    """What an act or defer has to reach for simulation (the first gate), and for production (the others)."""
    production = Mode.PRODUCTION_ELIGIBLE.value
    simulated = Mode.SIMULATION_ELIGIBLE.value
    documents = evidence.astype(np.float64)
    return (
        Gate(f"{simulated}:confidence", confidence, Relation.AT_LEAST, config.paper_confidence_threshold),
        Gate(f"{production}:confidence", confidence, Relation.AT_LEAST, config.live_confidence_threshold),
        Gate(f"{production}:contradiction", contradiction, Relation.AT_MOST, config.live_max_contradiction),
        Gate(f"{production}:evidence", documents, Relation.AT_LEAST, float(config.live_min_evidence)),
    )


def any_of(reasons: Bool) -> Bool:
    """Whether any reason holds, per row."""
    result: Bool = np.count_nonzero(reasons, axis=1) > 0
    return result


def allowed_modes(mode: Int, rejected: Bool, ev_failed: Bool) -> Int:
    """Mode after gates and expected value, before suppression: any failure leaves informational (R87).

    Implements: R87.
    """
    return np.where(any_of(rejected) | any_of(ev_failed), _MODE[Mode.INFORMATIONAL], mode)


# -------------------------------------------------------------------------------------- expected value


@dataclass(frozen=True, slots=True, eq=False)
class EdgeRows(Columns):
    """Expected values, one row per key; NaN where unavailable.

    ``edge`` is the expected value as seen by the action; ``failed`` has one column per member of EvReason.
    """

    expected_value: Float
    r_up: Float
    r_down: Float
    edge: Float
    failed: Bool


Moves = Callable[[], tuple[Float, Float]]
"""Gives ``(R_up, R_down)`` per key when asked: fractions >= 0, NaN where there are too few returns."""


class ExpectedValueRule(Protocol):
    """Expected value of every key; the two sets of rules differ here (R129)."""

    def __call__(self, *, p_bull: Float, action: Int, moves: Moves, config: EligibilityConfig) -> EdgeRows:
        """Return one row per key."""
        ...


def no_expected_value(
    *,
    p_bull: Float,
    action: Int,  # noqa: ARG001 - the same signature in both sets of rules
    moves: Moves,  # noqa: ARG001
    config: EligibilityConfig,  # noqa: ARG001
) -> EdgeRows:
    """No expected value and nothing that fails, heuristic."""
    missing = np.full(len(p_bull), np.nan)
    return EdgeRows(missing, missing, missing, missing, np.zeros((len(p_bull), len(EV_REASONS)), np.bool_))


def expected_value(*, p_bull: Float, action: Int, moves: Moves, config: EligibilityConfig) -> EdgeRows:
    """``p * R_up - (1 - p) * R_down`` of every key and its gate (R191, R192, C11), probabilistic.

    The value is given for every action, the gate looks at act and defer only: the edge, +EV for act and -EV
    for defer, must exceed the threshold.

    Args:
        p_bull: in [0, 1].
        action: codes of Action.
        moves: gives the mean rise and fall of every key.
        config: threshold, and whether a deferral is judged on -EV.

    Implements: R191, R192.

    """
    r_up, r_down = moves()
    value = p_bull * r_up - (1.0 - p_bull) * r_down
    gates = edge_gates(value, action, config)
    return EdgeRows(value, r_up, r_down, gates[0].value, failures(gates))


def edge_gates(expected_value: Float, action: Int, config: EligibilityConfig) -> tuple[Gate, Gate]:
    """The gate on the edge, and the one on its being known, in the order of EvReason; acting only."""
    deferred = (action == _ACTION[Action.DEFER]) & config.ev_directional
    edge = np.where(deferred, -expected_value, expected_value)
    known = ~np.isnan(expected_value)
    gated = is_actionable(action)
    low, unavailable = (reason.value for reason in EV_REASONS)
    return (
        Gate(low, edge, Relation.ABOVE, config.ev_threshold, gated & known),
        Gate(unavailable, known.astype(np.float64), Relation.AT_LEAST, 1.0, gated),
    )


def mean_moves(bars: BarRows, entities: int, as_of_us: int, config: EligibilityConfig) -> tuple[Float, Float]:
    """Mean rise and mean fall of every entity over the horizon (G26).

    One forward return per bar, from the moment the bar is complete (the next midnight), for bars of the last
    ``ev_lookback_days`` whose return is settled by ``as_of``.

    Args:
        bars: known at ``as_of``, any order.
        entities: size of the entity table.
        as_of_us: moment by which a return must be settled.
        config: lookback, horizon and the least number of returns, zeros counted.

    Returns:
        ``(R_up, R_down)`` per entity as fractions >= 0; 0 without a move of that side, NaN where there are
        too few returns.

    """
    recent = bars.take(bars.day * US_PER_DAY >= as_of_us - config.ev_lookback_days * US_PER_DAY)
    horizon_us = round(config.ev_horizon_days * US_PER_DAY)
    # All bars are passed on: the close known at a start may be older than the lookback.
    moves = forward_returns(bars, recent.entity, (recent.day + 1) * US_PER_DAY, horizon_us, as_of_us)
    order = np.argsort(recent.entity, kind="stable")
    order = order[np.isfinite(moves[order])]
    entity, moves = recent.entity[order], moves[order]
    enough = np.bincount(entity, minlength=entities) >= config.ev_min_returns
    means = []
    for side in (moves > 0.0, moves < 0.0):
        offsets = group_offsets(entity[side], entities)
        means.append(np.where(enough, exact_means(np.abs(moves[side]), offsets), np.nan))
    return means[0], means[1]


# ------------------------------------------------------------------------------------------ single forms


def evidence_sides(summary: TrendSummary) -> tuple[int, int]:
    """Number of real documents cited on each side; synthetic ids corroborate nothing (decisions 2)."""
    supporting, opposing = (
        sum(not name.startswith(_SYNTHETIC) for name in cited)
        for cited in (summary.top_supporting_evidence, summary.top_opposing_evidence)
    )
    return supporting, opposing


def evidence_count(summary: TrendSummary) -> int:
    """Number of real documents cited on both sides (R94).

    Implements: R94.
    """
    return sum(evidence_sides(summary))


def evaluate_eligibility(
    summary: TrendSummary,
    config: EligibilityConfig | None = None,
    *,
    r_up: float | None = None,
    r_down: float | None = None,
    rule: ExpectedValueRule = no_expected_value,
) -> EligibilityResult:
    """Gates, action, allowed mode and sizes of one trend (R81-R100, R191-R192).

    Args:
        summary: the trend; ``p_bull`` scales the allocation where it is given.
        config: thresholds; the defaults where None.
        r_up: mean rise, see :func:`mean_moves`; None where unavailable.
        r_down: mean fall.
        rule: :func:`no_expected_value` or :func:`expected_value`.

    """
    c = config or EligibilityConfig()
    direction = np.array([_DIRECTION[summary.trend_direction]])
    strength, confidence = np.array([summary.trend_strength]), np.array([summary.confidence])
    contradiction = np.array([summary.contradiction_score])
    count = evidence_count(summary)
    evidence = np.array([count])
    failed = failed_gates(
        direction=direction,
        strength=strength,
        confidence=confidence,
        contradiction=contradiction,
        evidence=evidence,
        config=c,
    )[0]
    action = actions(direction, strength, confidence, c)
    edges = rule(
        p_bull=_optional(summary.p_bull),
        action=action,
        moves=lambda: (_optional(r_up), _optional(r_down)),
        config=c,
    )
    allowed = allowed_modes(
        modes(action, confidence, contradiction, evidence, c), failed[None, :], edges.failed
    )
    return EligibilityResult(
        eligible=not bool(failed.any()),
        action=ACTIONS[int(action[0])],
        mode=MODES[int(allowed[0])],
        rejection_reasons=tuple(r for r, f in zip(REJECTIONS, failed.tolist(), strict=True) if f),
        position_sizing=compute_position_sizing(
            strength=summary.trend_strength,
            confidence=summary.confidence,
            contradiction=summary.contradiction_score,
            evidence=count,
            p_bull=summary.p_bull,
            config=c,
        ),
        ev=_known(edges.expected_value),
        r_up=_known(edges.r_up),
        r_down=_known(edges.r_down),
        ev_edge=_known(edges.edge),
        ev_reasons=tuple(r for r, f in zip(EV_REASONS, edges.failed[0].tolist(), strict=True) if f),
    )


def _optional(value: float | None) -> Float:
    return np.array([np.nan if value is None else value])


def _known(value: Float) -> float | None:
    return None if bool(np.isnan(value[0])) else float(value[0])
