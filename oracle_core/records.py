"""One object at a time: the records a person or a test handles; nothing here computes.

The seeds' objects with the seeds' fields, in the seeds' order where they are built by position. Frozen, and
the pydantic ones forbid unknown fields and refuse NaN and infinities. The batch path works on the columns of
:mod:`oracle_core.frames` instead; a rule that takes a record calls the same array function on one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from oracle_core.enums import (
    Action,
    EvidenceRole,
    EvReason,
    Mode,
    PipelineMode,
    RejectionReason,
    RiskLevel,
    SignalLayer,
    SuppressionReason,
    TrendDirection,
    Window,
)

Unit = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]
Texts = tuple[str, ...]


class Record(BaseModel):
    """Base of the pydantic records: immutable, no unknown field, no NaN or infinity."""

    # The seeds name fields model_*, a prefix pydantic otherwise keeps for itself.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


# ---------------------------------------------------------------------------------------------- signals


@dataclass(frozen=True, slots=True)
class SignalWeight:
    """Factors of a signal's weight and their product ``combined`` in [0, 100] (R178, G5).

    Implements: R6, R178.
    """

    recency: float
    credibility: float
    novelty_bonus: float
    confidence_gate: float
    market_ctx_multiplier: float
    combined: float
    sigmoid_gate: float | None = None
    info_gain_factor: float = 1.0
    source_accuracy_factor: float = 1.0
    regime_multiplier: float | None = None


@dataclass(frozen=True, slots=True)
class WeightedSignal:
    """A document reference with its weight (R6, R179); the fields from ``layer`` on are not the seeds'.

    ``adaptive_half_life`` is in hours, ``sentiment_value`` in [-1, 1], ``impact_score`` in [0, 1].

    Implements: R179.
    """

    document_id: str
    weight: SignalWeight
    sentiment_value: float
    impact_score: float
    info_gain_factor: float = 1.0
    source_accuracy_factor: float = 1.0
    adaptive_half_life: float | None = None
    layer: SignalLayer = SignalLayer.ENTITY
    catalyst_type: str | None = None
    published_at: datetime | None = None
    extraction_confidence: float | None = None
    source_id: str | None = None
    risks: Texts = ()


class CatalystEntry(Record):
    """One signal inside a catalyst group (R21)."""

    document_id: str
    catalyst_type: str
    sentiment_value: float
    effective_weight: float


class DisagreementDetail(Record):
    """Both sides of one disagreement; ``dimension`` is ``sentiment`` or ``catalyst:<type>`` (R19-R21)."""

    dimension: str
    description: str
    positive_document_ids: Texts = ()
    positive_weights: tuple[float, ...] = ()
    negative_document_ids: Texts = ()
    negative_weights: tuple[float, ...] = ()


class ContradictionResult(Record):
    """Contradiction score with the disagreements behind it (R17)."""

    score: Unit
    disagreements: tuple[DisagreementDetail, ...] = ()


class RankedEvidence(Record):
    """A ranked piece of evidence with the parts of its score (R28)."""

    document_id: str
    role: EvidenceRole
    rank_score: float
    weight_component: float
    impact_component: float
    recency_component: float
    confidence_component: float
    sentiment_value: float


# ----------------------------------------------------------------------------------------------- trends


class TrendSummary(Record):
    """The trend of one entity in one window (R185).

    The fields from ``p_bull`` to ``regime`` are None in heuristic mode.

    Implements: R185.
    """

    entity_type: str = "entity"
    entity_id: str
    window: Window
    trend_direction: TrendDirection
    trend_strength: Unit
    confidence: Unit
    contradiction_score: Unit
    disagreement_details: tuple[dict[str, Any], ...] = ()
    top_supporting_evidence: Texts = ()
    top_opposing_evidence: Texts = ()
    dominant_catalysts: Texts = ()
    material_risks: Texts = ()
    market_context: dict[str, Any] = Field(default_factory=dict)
    generated_at: datetime
    p_bull: Unit | None = None
    alpha: Annotated[float, Field(ge=1.0)] | None = None
    beta_param: Annotated[float, Field(ge=1.0)] | None = None
    bayesian_confidence: Unit | None = None
    entropy: Unit | None = None
    regime: str | None = None
    pipeline_mode: PipelineMode = PipelineMode.HEURISTIC


class TrendProjection(Record):
    """Where a trend is heading (R41-R55); ``macro_contribution_pct`` is in percent, 0 to 100."""

    projected_direction: TrendDirection
    projected_strength: Unit
    projected_confidence: Unit
    projection_horizon: Window
    driving_factors: Texts = ()
    macro_contribution_pct: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    diverges_from_current: bool = False
    low_confidence: bool = False
    computed_at: datetime


# -------------------------------------------------------------------------------------- recommendations


class DataQualityContext(Record):
    """Documents behind a trend (R68); the average and the newest time are None without a valid document."""

    total_documents: Count
    valid_documents: Count
    failed_documents: Count
    avg_extraction_confidence: Unit | None
    newest_document_at: datetime | None
    distinct_source_types: Count


class SuppressionResult(Record):
    """Whether the data may be acted on (R77)."""

    suppressed: bool
    reasons: tuple[SuppressionReason, ...] = ()
    data_quality_score: float


class PositionSizing(Record):
    """Sizes as shares of 1 (R100).

    Implements: R100.
    """

    allocation_pct: Unit
    max_loss_pct: Unit


class EligibilityResult(Record):
    """Outcome of the gates (R81-R100, R191-R192).

    ``mode`` is the allowed one, before suppression. ``ev_edge`` is the expected value as seen by the action;
    the EV fields are None in heuristic mode and where the expected value is unavailable.
    """

    eligible: bool
    action: Action
    mode: Mode
    rejection_reasons: tuple[RejectionReason, ...] = ()
    position_sizing: PositionSizing
    ev: float | None = None
    r_up: float | None = None
    r_down: float | None = None
    ev_edge: float | None = None
    ev_reasons: tuple[EvReason, ...] = ()


class Recommendation(Record):
    """What should be done about one entity over one horizon (R66, R194).

    Implements: R66, R194.
    """

    id: str
    entity_id: str
    action: Action
    mode: Mode
    confidence: Unit
    time_horizon: Window
    thesis: str
    invalidation_conditions: Texts = ()
    position_sizing: PositionSizing
    supporting_document_ids: Texts = ()
    opposing_document_ids: Texts = ()
    model_metadata: dict[str, Any] = Field(default_factory=dict)
    risk_classification: RiskLevel
    generated_at: datetime
    expected_value: float | None = None
    p_bull: Unit | None = None
    pipeline_mode: PipelineMode = PipelineMode.HEURISTIC


class AgentConfig(Record):
    """Settings of an agent as resolved from its active variant (R111, G31)."""

    slug: str
    provider: str = "ollama"
    model_name: str
    timeout_s: Annotated[float, Field(gt=0.0)] = 30.0
    max_retries: Count = 1
    prompt_version: str = "1"
    schema_version: str = "1"
    variant_id: str | None = None
    hourly_token_budget: Count | None = None
