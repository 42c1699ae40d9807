"""What the stages of a cycle produce, as columns; one row per signal, per key or per piece of evidence.

Plain containers: the rules live in the module of their name. A frame can be rebuilt from the tables exactly,
so a later stage may run alone on what an earlier run stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle_core.inputs import Bool, Columns, Float, Int, Keys, Ragged, Strings


@dataclass(frozen=True, slots=True, eq=False)
class SignalRows(Columns):
    """Weighted signals: one row per (key, signal), ordered by key, newest first, then id.

    ``signal`` indexes ``SignalFrame.ids``. Factors that a set of rules does not use hold NaN where the seed's
    field is optional (``sigmoid_gate``, ``regime_multiplier``, ``adaptive_half_life_hours``) and 1 elsewhere.
    A synthetic signal (macro, competitor, pattern) has factor 1 in every column it does not use.
    ``credibility`` is the document's own in [0, 1], without the accuracy factor.
    """

    key: Int
    signal: Int
    layer: Int
    source: Int
    source_type: Int
    catalyst: Int
    published_us: Int
    sentiment: Float
    impact: Float
    extraction_confidence: Float
    recency: Float
    credibility: Float
    novelty_bonus: Float
    confidence_gate: Float
    market_ctx_multiplier: Float
    sigmoid_gate: Float
    info_gain_factor: Float
    source_accuracy_factor: Float
    regime_multiplier: Float
    adaptive_half_life_hours: Float
    layer_weight: Float
    combined: Float
    risks: Ragged


@dataclass(frozen=True, slots=True, eq=False)
class SignalFrame:
    """Signals with their string tables, and the number of rows skipped for NaN or infinity per key."""

    keys: Keys
    ids: Strings
    sources: Strings
    source_types: Strings
    catalysts: Strings
    risk_labels: Strings
    rows: SignalRows
    skipped: Int


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceRows(Columns):
    """Ranked evidence: one row per (key, role, rank), so ordered; ``position`` counts from 0 in a role."""

    key: Int
    role: Int
    position: Int
    signal: Int
    is_document: Bool
    rank_score: Float
    weight_component: Float
    impact_component: Float
    recency_component: Float
    confidence_component: Float
    sentiment_value: Float


@dataclass(frozen=True, slots=True, eq=False)
class MarketContext(Columns):
    """Market figures of an entity known at ``as_of`` (percent); NaN where missing. One row per key."""

    volatility: Float
    volume_change_pct: Float
    price_change_pct: Float


@dataclass(frozen=True, slots=True, eq=False)
class TrendRows(Columns):
    """Trends: one row per key. The probabilistic columns hold NaN (codes -1) in heuristic mode."""

    direction: Int
    strength: Float
    average: Float
    confidence: Float
    contradiction: Float
    evidence_count: Int
    supporting_count: Int
    opposing_count: Int
    entity_signals: Int
    macro_signals: Int
    competitive_signals: Int
    unique_sources: Int
    average_credibility: Float
    agreement: Float
    volatility: Float
    volume_change_pct: Float
    price_change_pct: Float
    p_bull: Float
    alpha: Float
    beta: Float
    log_likelihood: Float
    bayesian_confidence: Float
    entropy: Float
    regime: Int
    regime_volatility_ratio: Float
    contradiction_entropy: Float
    macro_modifier: Float


@dataclass(frozen=True, slots=True, eq=False)
class TrendFrame:
    """Trends with their lists.

    ``supporting`` and ``opposing`` count real documents in ``rows.supporting_count``/``opposing_count``; the
    lists hold ids of synthetic signals too. ``disagreements`` holds the JSON form of R17-R21 per key.
    """

    keys: Keys
    rows: TrendRows
    supporting: list[list[str]]
    opposing: list[list[str]]
    disagreements: list[list[dict[str, Any]]]
    dominant_catalysts: list[list[str]]
    material_risks: list[list[str]]
    evidence: EvidenceRows
    ids: Strings


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionRows(Columns):
    """Projections: one row per key. ``momentum`` as blended in; ``macro_signed`` 0 without macro events."""

    direction: Int
    strength: Float
    confidence: Float
    momentum: Float
    blended: Float
    macro_signed: Float
    macro_weight: Float
    macro_contribution_pct: Float
    has_macro_events: Bool
    diverges_from_current: Bool
    low_confidence: Bool


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionFrame:
    """Projections with their driving factors."""

    keys: Keys
    rows: ProjectionRows
    driving_factors: list[list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class QualityRows(Columns):
    """Documents of the entity in the window, valid and failed: one row per key (R68, decisions 4).

    ``newest_us`` is -1 where no valid document has a time; ``average_extraction_confidence`` NaN without one.
    """

    total: Int
    valid: Int
    failed: Int
    average_extraction_confidence: Float
    newest_us: Int
    source_types: Int


@dataclass(frozen=True, slots=True, eq=False)
class DecisionRows(Columns):
    """Decisions: one row per key, one column per reason in ``rejected``, ``suppressed_by``, ``ev_failed``."""

    action: Int
    mode: Int
    allowed_mode: Int
    eligible: Bool
    suppressed: Bool
    rejected: Bool
    suppressed_by: Bool
    ev_failed: Bool
    data_quality_score: Float
    allocation_pct: Float
    max_loss_pct: Float
    risk_score: Float
    risk: Int
    expected_value: Float
    r_up: Float
    r_down: Float
    duplicate: Bool


@dataclass(frozen=True, slots=True, eq=False)
class DecisionFrame:
    """Decisions with their texts; ``thesis`` carries the risk prefix, ``plain_thesis`` does not (R118)."""

    keys: Keys
    rows: DecisionRows
    thesis: list[str]
    plain_thesis: list[str]
    invalidation_conditions: list[list[str]]
