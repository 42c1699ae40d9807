"""One decision taken apart: every number beside the numbers it is made of, as an object for JSON.

Nothing is computed by a formula of its own: factors, terms and gates come from the modules of the rules, and
what is put together here are quotients and signs of what these hand out. NaN and infinities become None.
What people read is laid out elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from oracle_core.arrays import exact_sums, group_sums
from oracle_core.bayesian import evidence_amounts
from oracle_core.config import OracleConfig
from oracle_core.contradiction import participants, side_weights
from oracle_core.decision import DIRECTIONS, REGIMES
from oracle_core.eligibility import (
    ACTIONS,
    EV_REASONS,
    MODES,
    REJECTIONS,
    action_gates,
    edge_gates,
    eligibility_gates,
    mode_gates,
)
from oracle_core.enums import SignalLayer, codes
from oracle_core.frames import (
    DecisionFrame,
    DecisionRows,
    ProjectionFrame,
    QualityRows,
    SignalFrame,
    TrendFrame,
    TrendRows,
)
from oracle_core.gates import Gate
from oracle_core.inputs import US_PER_HOUR, Columns, CycleInputs, Keys, Strings
from oracle_core.projection import signed_strength
from oracle_core.regime import direction_thresholds
from oracle_core.risk import LEVELS, risk_terms
from oracle_core.rules import RuleSet
from oracle_core.sizing import SizeChain, size_chains
from oracle_core.suppression import (
    NO_TIME,
    REASONS,
    Layers,
    data_quality_scores,
    data_quality_terms,
    quality_gates,
    quality_rows,
)
from oracle_core.terms import Term
from oracle_core.trend import agreement_dampener, merged, standing_of

LAYERS: tuple[SignalLayer, ...] = tuple(SignalLayer)
Object = dict[str, Any]
_ENTITY = codes(SignalLayer)[SignalLayer.ENTITY]

INACTIVE = "its weight is 0"
ACTS_AS_FACTOR = "it acts on the weight of the documents as the macro modifier"


def explain(
    *,
    signals: SignalFrame,
    trends: TrendFrame,
    projections: ProjectionFrame,
    decided: DecisionFrame,
    inputs: CycleInputs,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> Object:
    """Take the decision of one key apart.

    Args:
        signals: the signals of the key, and of no other.
        trends: its trend.
        projections: its projection.
        decided: its decision.
        inputs: what these were made from.
        as_of_us: the cycle's moment.
        config: the configuration.
        rules: the set of rules of the mode.

    Returns:
        ``decision``, ``direction``, ``confidence``, ``sizing``, ``risk``, ``data_quality``, ``gates``,
        ``signals``, ``layers``, ``projection`` and, in probabilistic mode, ``posterior``.

    Raises:
        ValueError: the frames hold another number of keys than one.

    """
    if len(signals.keys) != 1:
        raise ValueError(f"one decision is taken apart at a time, not {len(signals.keys)}")
    listed, sums = _signals(signals, trends, config, rules)
    quality = quality_of(trends.keys, inputs, as_of_us)
    found = {
        "decision": _decision(trends, decided),
        "direction": _direction(trends, sums),
        "confidence": _confidence(trends, config, rules),
        "sizing": _sizing(trends, config, rules),
        "risk": _risk(trends, decided, config),
        "data_quality": _quality(quality, decided, as_of_us, config),
        "gates": gates(trends.rows, decided.rows, quality, as_of_us, config, rules),
        "signals": listed,
        "layers": _layers(listed),
        "projection": _projection(trends, projections, config),
    }
    if not math.isnan(float(trends.rows.p_bull[0])):
        found["posterior"] = _posterior(trends, config)
    return found


def quality_of(keys: Keys, inputs: CycleInputs, as_of_us: int) -> QualityRows:
    """The documents behind every key, of what is known at ``as_of_us``."""
    return quality_rows(keys, inputs.known_at(as_of_us).documents, len(inputs.entities), as_of_us)


def number(value: float) -> float | None:
    """The value as JSON can carry it; 0 for -0."""
    return float(value) + 0.0 if math.isfinite(value) else None


def row_of(rows: Columns, position: int, *names: str) -> Object:
    """Some columns of one row, NaN and infinities as None."""
    values = {name: getattr(rows, name)[position].item() for name in names}
    return {name: number(v) if isinstance(v, float) else v for name, v in values.items()}


def _decision(trends: TrendFrame, decided: DecisionFrame) -> Object:
    rows = decided.rows
    return {
        "action": ACTIONS[int(rows.action[0])].value,
        "mode": MODES[int(rows.mode[0])].value,
        "allowed_mode": MODES[int(rows.allowed_mode[0])].value,
        **row_of(rows, 0, "eligible", "suppressed"),
        "rejection_reasons": _chosen(REJECTIONS, rows.rejected[0].tolist()),
        "suppression_reasons": _chosen(REASONS, rows.suppressed_by[0].tolist()),
        "ev_reasons": _chosen(EV_REASONS, rows.ev_failed[0].tolist()),
        **row_of(trends.rows, 0, "confidence", "strength", "contradiction", "evidence_count"),
        **row_of(rows, 0, "allocation_pct", "max_loss_pct", "expected_value", "r_up", "r_down"),
        "risk": LEVELS[int(rows.risk[0])].value,
        "thesis": decided.thesis[0],
        "invalidation_conditions": decided.invalidation_conditions[0],
    }


def _chosen(members: Sequence[Any], flags: Sequence[bool]) -> list[str]:
    return [member.value for member, flag in zip(members, flags, strict=True) if flag]


# ------------------------------------------------------------------------------------------------ gates


def gates(  # noqa: PLR0917 - in the order in which the stages hand them on
    trends: TrendRows,
    decided: DecisionRows,
    quality: QualityRows,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> list[Object]:
    """Every threshold that decided: value, relation, threshold, margin, whether asked and whether it holds.

    ``part`` says what the gate is for: direction, eligibility, action, mode, expected_value, suppression. A
    margin is positive on the side that holds. The age of the newest document is in hours.
    """
    return [
        shown_gate(part, gate) for part, gate in every_gate(trends, decided, quality, as_of_us, config, rules)
    ]


def shown_gate(part: str, gate: Gate) -> Object:
    """The first row of a gate, as an object for JSON."""
    return {
        "part": part,
        "gate": gate.name,
        "value": number(_hours(gate, float(gate.value[0]))),
        "relation": gate.relation.value,
        "threshold": _hours(gate, float(np.broadcast_to(gate.threshold, len(gate.value))[0])),
        "margin": number(_hours(gate, float(gate.margin()[0]))),
        "asked": True if gate.applies is None else bool(gate.applies[0]),
        "holds": bool(gate.holds()[0]),
    }


def _hours(gate: Gate, value: float) -> float:
    return value / US_PER_HOUR if gate.name == REASONS[1].value else value


def every_gate(  # noqa: PLR0917 - in the order in which the stages hand them on
    trends: TrendRows,
    decided: DecisionRows,
    quality: QualityRows,
    as_of_us: int,
    config: OracleConfig,
    rules: RuleSet,
) -> list[tuple[str, Gate]]:
    """The gates of every part, one row per key."""
    t, c = trends, config.eligibility
    layers = Layers(t.entity_signals, t.macro_signals, t.competitive_signals)
    scores = data_quality_scores(quality, as_of_us, config.suppression)
    bounds = rules.direction_bounds(standing_of(t, config), config.trend)
    edges = () if bool(np.isnan(t.p_bull).all()) else edge_gates(decided.expected_value, decided.action, c)
    asked = eligibility_gates(
        direction=t.direction,
        strength=t.strength,
        confidence=t.confidence,
        contradiction=t.contradiction,
        evidence=t.evidence_count,
        config=c,
    )
    parts: tuple[tuple[str, tuple[Gate, ...]], ...] = (
        ("direction", bounds),
        ("eligibility", asked),
        ("action", action_gates(t.strength, t.confidence, c)),
        ("mode", mode_gates(t.confidence, t.contradiction, t.evidence_count, c)),
        ("expected_value", edges),
        (
            "suppression",
            quality_gates(quality, scores, layers, as_of_us=as_of_us, config=config.suppression),
        ),
    )
    return [(part, gate) for part, members in parts for gate in members]


# ---------------------------------------------------------------------------------------------- signals


def _signals(
    signals: SignalFrame, trends: TrendFrame, config: OracleConfig, rules: RuleSet
) -> tuple[list[Object], Object]:
    """Every signal with its factors, largest contribution first, and what they add up to."""
    rows = signals.rows
    counted, modifier, _ = merged(signals, config, rules)
    total = float(group_sums(counted.combined, counted.key, 1)[0])
    effective = counted.combined * counted.impact
    share = effective * counted.sentiment
    scaled = np.where(counted.layer == _ENTITY, effective * modifier[counted.key], effective)
    mass = evidence_amounts(scaled, counted.sentiment).tolist()
    inside = dict(zip(counted.row.tolist(), range(len(counted.row)), strict=True))
    probabilistic = not math.isnan(float(trends.rows.p_bull[0]))
    listed = [_signal(signals, row, rules) for row in range(len(rows.key))]
    for row, item in enumerate(listed):
        place = inside.get(row)
        item["counted"] = place is not None
        item["why_not"] = None
        if place is None:
            item["why_not"] = ACTS_AS_FACTOR if item["weight"] > 0.0 else INACTIVE
        item["contribution"] = 0.0 if place is None else float(share[place]) / total
        if probabilistic:
            item["mass"] = 0.0 if place is None else mass[place]
    listed.sort(key=lambda item: -abs(item["contribution"]))
    positive, negative = side_weights(
        participants(counted.key, counted.signal, counted.catalyst, counted.sentiment, effective), 1
    )
    return listed, {
        "total_weight": total,
        "weighted_sum": float(exact_sums(share, np.array([0, len(share)]))[0]),
        "positive_weight": float(positive[0]),
        "negative_weight": float(negative[0]),
        "macro_modifier": float(modifier[0]),
        "max_weight": config.scoring.max_combined,
        "signals": len(listed),
        "counted": len(inside),
        "skipped": int(signals.skipped[0]),
    }


def _signal(signals: SignalFrame, row: int, rules: RuleSet) -> Object:
    rows = signals.rows
    factors = {name: float(getattr(rows, name)[row]) for name in rules.weight_factors}
    risks = rows.risks.codes[rows.risks.offsets[row] : rows.risks.offsets[row + 1]]
    return {
        "id": signals.ids[rows.signal[row]],
        "layer": LAYERS[int(rows.layer[row])].value,
        "source_id": _name(signals.sources, int(rows.source[row])),
        "source_type": _name(signals.source_types, int(rows.source_type[row])),
        "catalyst_type": _name(signals.catalysts, int(rows.catalyst[row])),
        "risks": [signals.risk_labels[code] for code in risks.tolist()],
        "published_us": int(rows.published_us[row]),
        **row_of(rows, row, "extraction_confidence", "adaptive_half_life_hours"),
        "factors": {name: value for name, value in factors.items() if not math.isnan(value)},
        "weight": float(rows.combined[row]),
        **row_of(rows, row, "impact", "sentiment"),
    }


def _name(table: Strings, code: int) -> str | None:
    return str(table[code]) if code >= 0 else None


def _layers(listed: Sequence[Object]) -> list[Object]:
    """What each layer adds: its signals, those that count, their weight and their share of the average."""
    found = []
    for layer in LAYERS:
        mine = [item for item in listed if item["layer"] == layer.value]
        counted = [item for item in mine if item["counted"]]
        found.append(
            {
                "layer": layer.value,
                "signals": len(mine),
                "counted": len(counted),
                "weight": math.fsum(item["weight"] for item in counted),
                "contribution": math.fsum(item["contribution"] for item in counted),
            }
        )
    return found


# ------------------------------------------------------------------------------------------------ trend


def _direction(trends: TrendFrame, sums: Object) -> Object:
    return {
        "direction": DIRECTIONS[int(trends.rows.direction[0])].value,
        **row_of(trends.rows, 0, "average", "strength", "contradiction"),
        **sums,
        "supporting": trends.supporting[0],
        "opposing": trends.opposing[0],
        "disagreements": trends.disagreements[0],
        "dominant_catalysts": trends.dominant_catalysts[0],
        "material_risks": trends.material_risks[0],
        **row_of(trends.rows, 0, "volatility", "volume_change_pct", "price_change_pct"),
    }


def _posterior(trends: TrendFrame, config: OracleConfig) -> Object:
    rows = trends.rows
    regime = int(rows.regime[0])
    return {
        **row_of(rows, 0, "p_bull", "alpha", "beta", "log_likelihood", "bayesian_confidence", "entropy"),
        "regime": REGIMES[regime].value,
        "direction_threshold": float(direction_thresholds(config.regime)[regime]),
        **row_of(rows, 0, "regime_volatility_ratio", "contradiction_entropy"),
    }


def _confidence(trends: TrendFrame, config: OracleConfig, rules: RuleSet) -> Object:
    rows = trends.rows
    standing = standing_of(rows, config)
    damped = agreement_dampener(rows.unique_sources, config.trend)
    return {
        "value": float(rows.confidence[0]),
        "terms": _terms(rules.confidence_terms(standing, config.trend)),
        **row_of(rows, 0, "unique_sources", "average_credibility", "agreement"),
        "agreement_dampener": float(damped[0]),
    }


def _terms(terms: Sequence[Term]) -> list[Object]:
    return [
        {
            "term": term.name,
            "weight": float(np.broadcast_to(term.weight, 1)[0]) + 0.0,
            "quantity": float(term.quantity[0]),
            "value": float(term.value()[0]) + 0.0,
        }
        for term in terms
    ]


def _projection(trends: TrendFrame, projections: ProjectionFrame, config: OracleConfig) -> Object:
    rows = projections.rows
    return {
        "direction": DIRECTIONS[int(rows.direction[0])].value,
        "signed_strength": float(signed_strength(trends.rows.direction, trends.rows.strength)[0]),
        "momentum_weight": config.projection.momentum_weight,
        **row_of(rows, 0, "momentum", "macro_signed", "macro_weight", "blended", "strength", "confidence"),
        **row_of(rows, 0, "macro_contribution_pct", "diverges_from_current", "low_confidence"),
        "driving_factors": projections.driving_factors[0],
    }


# --------------------------------------------------------------------------------------------- decision


def _sizing(trends: TrendFrame, config: OracleConfig, rules: RuleSet) -> Object:
    """Both sizes as chains: base + confidence × strength × span, × contradiction × evidence × scale."""
    rows = trends.rows
    chains = size_chains(
        strength=rows.strength,
        confidence=rows.confidence,
        contradiction=rows.contradiction,
        evidence=rows.evidence_count,
        scale=rules.allocation_scale(rows.p_bull),
        config=config.eligibility,
    )
    names = [field.name for field in fields(SizeChain)]
    return {
        name: row_of(chain, 0, *names)
        for name, chain in zip(("allocation_pct", "max_loss_pct"), chains, strict=True)
    }


def _risk(trends: TrendFrame, decided: DecisionFrame, config: OracleConfig) -> Object:
    rows = trends.rows
    terms = risk_terms(
        contradiction=rows.contradiction,
        confidence=rows.confidence,
        evidence=rows.evidence_count,
        rejections=decided.rows.rejected.sum(axis=1),
        config=config.risk,
    )
    return {
        "level": LEVELS[int(decided.rows.risk[0])].value,
        "score": float(decided.rows.risk_score[0]),
        "terms": _terms(terms),
    }


def _quality(quality: QualityRows, decided: DecisionFrame, as_of_us: int, config: OracleConfig) -> Object:
    newest = int(quality.newest_us[0])
    return {
        "score": float(decided.rows.data_quality_score[0]),
        "terms": _terms(data_quality_terms(quality, as_of_us, config.suppression)),
        **row_of(quality, 0, "total", "valid", "failed", "source_types", "average_extraction_confidence"),
        "newest_us": None if newest == NO_TIME else newest,
    }
