"""From trends and projections to decisions: one row and its texts per key (R64-R127).

Puts the judgements of suppression, eligibility, sizing, risk and thesis together; each rule lives in the
module of its name. What is stored, and whether a duplicate is, is decided in the storage layer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from oracle_core.config import OracleConfig, RiskConfig
from oracle_core.eligibility import (
    ACTIONS,
    EV_REASONS,
    MODES,
    actions,
    allowed_modes,
    any_of,
    failed_gates,
    mean_moves,
    modes,
)
from oracle_core.enums import Action, MarketRegime, Mode, TrendDirection, Window, codes
from oracle_core.frames import DecisionFrame, DecisionRows, ProjectionFrame, TrendFrame, TrendRows
from oracle_core.inputs import Bool, Columns, CycleInputs, Float, Int, Keys, StandingRows
from oracle_core.records import Recommendation
from oracle_core.risk import LEVELS, risk_levels, risk_scores
from oracle_core.sizing import position_sizes
from oracle_core.suppression import REASONS, Layers, data_quality_scores, quality_rows, suppressions
from oracle_core.thesis import (
    ProbabilisticView,
    ProjectionParts,
    ThesisParts,
    invalidation_conditions,
    thesis_text,
    with_risk_prefix,
)

if TYPE_CHECKING:
    from oracle_core.rules import RuleSet

E = TypeVar("E")

DIRECTIONS: tuple[TrendDirection, ...] = tuple(TrendDirection)
REGIMES: tuple[MarketRegime, ...] = tuple(MarketRegime)
_WINDOWS = tuple(window.value for window in Window)
_INFORMATIONAL = codes(Mode)[Mode.INFORMATIONAL]
_FLOAT_SLACK = 1e-9
"""|0.62 - 0.63| is 0.010000000000000009 in floats and still counts as 0.01 (C21)."""


def decide(
    trends: TrendFrame,
    projections: ProjectionFrame,
    inputs: CycleInputs,
    standing: StandingRows,
    *,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> DecisionFrame:
    """Decide every key.

    Args:
        trends: one row per key.
        projections: of the same keys in the same order.
        inputs: already cut at ``as_of``.
        standing: newest earlier recommendation of the keys.
        as_of_us: the cycle's moment.
        config: the configuration.
        rules: the set of rules of the mode.

    Raises:
        ValueError: projections of other keys.

    Implements: R64, R77, R80, R109.

    """
    keys = trends.keys
    other = projections.keys
    if not (np.array_equal(keys.entity, other.entity) and np.array_equal(keys.window, other.window)):
        msg = "decide needs the projections of exactly the keys of the trends, in their order"
        raise ValueError(msg)
    rows = decision_rows(keys, trends.rows, inputs, standing, as_of_us=as_of_us, config=config, rules=rules)
    entities = [inputs.entities[code] for code in keys.entity.tolist()]
    plain, conditions = _texts(trends, projections, rows, entities, config=config, rules=rules)
    risks = [LEVELS[code] for code in rows.risk.tolist()]
    return DecisionFrame(
        keys=keys,
        rows=rows,
        thesis=[with_risk_prefix(text, risk) for text, risk in zip(plain, risks, strict=True)],
        plain_thesis=plain,
        invalidation_conditions=conditions,
    )


def decision_rows(
    keys: Keys,
    trends: TrendRows,
    inputs: CycleInputs,
    standing: StandingRows,
    *,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> DecisionRows:
    """The decisions of the keys of some trends without their texts; see :func:`decide`."""
    t, c = trends, config.eligibility
    quality = quality_rows(keys, inputs.documents, len(inputs.entities), as_of_us)
    scores = data_quality_scores(quality, as_of_us, config.suppression)
    suppressed_by = suppressions(
        quality,
        scores,
        Layers(t.entity_signals, t.macro_signals, t.competitive_signals),
        as_of_us=as_of_us,
        config=config.suppression,
    )
    rejected = failed_gates(
        direction=t.direction,
        strength=t.strength,
        confidence=t.confidence,
        contradiction=t.contradiction,
        evidence=t.evidence_count,
        config=c,
    )
    action = actions(t.direction, t.strength, t.confidence, c)

    def moves() -> tuple[Float, Float]:
        up, down = mean_moves(inputs.bars, len(inputs.entities), as_of_us, c)
        return up[keys.entity], down[keys.entity]

    edges = rules.expected_value(p_bull=t.p_bull, action=action, moves=moves, config=c)
    allowed = allowed_modes(
        modes(action, t.confidence, t.contradiction, t.evidence_count, c), rejected, edges.failed
    )
    suppressed = any_of(suppressed_by)
    mode = np.where(suppressed, _INFORMATIONAL, allowed)
    allocation, loss = position_sizes(
        strength=t.strength,
        confidence=t.confidence,
        contradiction=t.contradiction,
        evidence=t.evidence_count,
        scale=rules.allocation_scale(t.p_bull),
        config=c,
    )
    risk = risk_scores(
        contradiction=t.contradiction,
        confidence=t.confidence,
        evidence=t.evidence_count,
        rejections=rejected.sum(axis=1),
        config=config.risk,
    )
    return DecisionRows(
        action=action,
        mode=mode,
        allowed_mode=allowed,
        eligible=~any_of(rejected),
        suppressed=suppressed,
        rejected=rejected,
        suppressed_by=suppressed_by,
        ev_failed=edges.failed,
        data_quality_score=scores,
        allocation_pct=allocation,
        max_loss_pct=loss,
        risk_score=risk,
        risk=risk_levels(risk, config.risk),
        expected_value=edges.expected_value,
        r_up=edges.r_up,
        r_down=edges.r_down,
        duplicate=duplicates(action, mode, t.confidence, standing, config.risk),
    )


def duplicates(action: Int, mode: Int, confidence: Float, standing: StandingRows, config: RiskConfig) -> Bool:
    """Whether each key's decision says the same as the one that stands (R127, C20, C21).

    Args:
        action: codes of Action, one per key.
        mode: final modes, codes of Mode.
        confidence: in [0, 1].
        standing: at most one row per key.
        config: how much confidence may change unnoticed.

    Returns:
        False for a key without a standing recommendation.

    Implements: R127.

    """
    key = standing.key
    change = np.abs(confidence[key] - standing.confidence)
    same = (
        (action[key] == standing.action)
        & (mode[key] == standing.mode)
        & (change <= config.dedup_tolerance + _FLOAT_SLACK)
    )
    result = np.zeros(len(action), np.bool_)
    result[key[same]] = True
    return result


def _texts(
    trends: TrendFrame,
    projections: ProjectionFrame,
    rows: DecisionRows,
    entities: list[str],
    *,
    config: OracleConfig,
    rules: RuleSet,
) -> tuple[list[str], list[list[str]]]:
    """Plain thesis and invalidation conditions of every key."""
    t, p = _Listed(trends.rows), _Listed(projections.rows)
    d = _Listed(rows)
    theses, conditions = [], []
    for i, (entity, window) in enumerate(zip(entities, trends.keys.window.tolist(), strict=True)):
        action = ACTIONS[d.action[i]]
        direction, heading = DIRECTIONS[t.direction[i]], DIRECTIONS[p.direction[i]]
        view = None
        if not math.isnan(t.p_bull[i]):
            view = ProbabilisticView(
                p_bull=t.p_bull[i],
                entropy=t.entropy[i],
                regime=REGIMES[t.regime[i]],
                expected_value=None if math.isnan(d.expected_value[i]) else d.expected_value[i],
                action=action,
                ev_reasons=_chosen(EV_REASONS, d.ev_failed[i]),
            )
        shown = None
        if not p.low_confidence[i]:
            shown = ProjectionParts(
                heading, p.strength[i], projections.driving_factors[i], p.diverges_from_current[i]
            )
        parts = ThesisParts(
            entity_id=entity,
            window=_WINDOWS[window],
            direction=direction,
            strength=t.strength[i],
            confidence=t.confidence[i],
            contradiction=t.contradiction[i],
            catalysts=trends.dominant_catalysts[i],
            risks=trends.material_risks[i],
            supporting=t.supporting_count[i],
            opposing=t.opposing_count[i],
            action=action,
            mode=MODES[d.mode[i]],
            suppressed_by=_chosen(REASONS, d.suppressed_by[i]),
            data_quality_score=d.data_quality_score[i],
            projection=shown,
            extra=rules.extra_sentences(view, config),
        )
        theses.append(thesis_text(parts, config.risk))
        diverges_to = heading if p.diverges_from_current[i] else None
        extra = rules.extra_conditions(view, config)
        conditions.append(invalidation_conditions(direction, diverges_to, extra, config))
    return theses, conditions


class _Listed:
    """Columns as lists of plain Python values, made on first use: a text loop reads them faster."""

    def __init__(self, rows: Columns) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> list[Any]:
        values: list[Any] = getattr(self._rows, name).tolist()
        setattr(self, name, values)
        return values


def _chosen(members: tuple[E, ...], flags: list[bool]) -> tuple[E, ...]:
    return tuple(member for member, flag in zip(members, flags, strict=True) if flag)


# ------------------------------------------------------------------------------------------ single forms


def is_duplicate_recommendation(
    previous: Recommendation | None,
    *,
    action: Action,
    mode: Mode,
    confidence: float,
    config: RiskConfig | None = None,
) -> bool:
    """Whether a decision says the same as the standing recommendation of its key (R127).

    Args:
        previous: the newest earlier one of the same entity and horizon; None where there is none.
        action: of the new decision.
        mode: its final mode (C20).
        confidence: in [0, 1].
        config: the tolerance; the default where None.

    """
    if previous is None:
        return False
    standing = StandingRows(
        key=np.zeros(1, np.int64),
        action=np.array([ACTIONS.index(previous.action)]),
        mode=np.array([MODES.index(previous.mode)]),
        confidence=np.array([previous.confidence]),
        recommendation_id=np.array([previous.id], np.object_),
    )
    found = duplicates(
        np.array([ACTIONS.index(action)]),
        np.array([MODES.index(mode)]),
        np.array([confidence]),
        standing,
        config or RiskConfig(),
    )
    return bool(found[0])
