"""Every constant of the rules as a field of a frozen configuration object; nothing here computes a result.

``OracleConfig`` is what one cycle runs under. A field is addressed as ``section.field`` (or
``section.field.key`` where the field is a mapping), see :func:`OracleConfig.with_settings`. Units are in the
names. NaN and infinities are refused everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from oracle_core.enums import EventDuration, PipelineMode, Severity, Window

Unit = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of all sections: immutable, no unknown field, no NaN or infinity, no silent type conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


def _windows(values: tuple[float, float, float, float, float]) -> dict[Window, float]:
    return dict(zip(Window, values, strict=True))


class FlagsConfig(Section):
    """Runtime toggles (R128, R136)."""

    macro_enabled: bool = Field(True, description="merge the macro layer")
    competitive_enabled: bool = Field(True, description="merge the competitive layer")
    probabilistic_scoring_enabled: bool = Field(False, description="use the probabilistic set of rules")


class ScoringConfig(Section):
    """Weights of single documents (R170-R180, G1-G5, G12, G32)."""

    half_life_hours: dict[Window, Positive] = Field(
        default_factory=lambda: _windows((4.0, 8.0, 56.0, 240.0, 720.0)),
        description="base half-life of recency per window: a third of the lookback (G1)",
    )
    entity_layer_weight: NonNegative = Field(1.0, description="layer weight of document signals (R5)")
    credibility_by_source_type: dict[str, Unit] = Field(
        default_factory=lambda: {
            "filing": 0.95,
            "transcript": 0.90,
            "research": 0.80,
            "news": 0.70,
            "poll": 0.70,
            "press_release": 0.60,
            "blog": 0.45,
            "social": 0.40,
        },
        description="credibility of a document that states none, by source type",
    )
    default_credibility: Unit = Field(0.50, description="credibility of every other source type")
    novelty_weight: NonNegative = Field(0.25, description="novelty bonus at novelty 1 (G3)")
    binary_gate_threshold: Unit = Field(0.30, description="least extraction confidence (G4)")
    volatility_scale_pct: Positive = Field(3.0, description="volatility that fills its market term (G5)")
    volume_scale_pct: Positive = Field(100.0, description="volume change that fills its market term (G5)")
    price_scale_pct: Positive = Field(5.0, description="price change that fills its market term (G5)")
    market_term_weight: NonNegative = Field(0.15, description="largest share of each market term (G5)")
    max_combined: Positive = Field(100.0, description="upper clamp of the combined weight (G5)")
    volatility_period_days: PositiveCount = Field(20, description="returns behind the volatility")
    sigmoid_steepness: Positive = Field(5.0, description="k of the sigmoid gate (R170)")
    sigmoid_midpoint: Unit = Field(0.5, description="midpoint of the sigmoid gate (R170)")
    info_gain_lambda: NonNegative = Field(0.3, description="lambda of the information gain (R171)")
    info_gain_max: Annotated[float, Field(ge=1.0)] = Field(3.0, description="upper clamp (R171)")
    event_type_base_rates: dict[str, Annotated[float, Field(gt=0.0, le=1.0)]] = Field(
        default_factory=lambda: {
            "earnings": 0.25,
            "product_launch": 0.10,
            "regulatory": 0.08,
            "legal": 0.05,
            "m_and_a": 0.03,
            "management_change": 0.06,
            "partnership": 0.12,
            "market_expansion": 0.09,
            "restructuring": 0.04,
            "dividend": 0.15,
        },
        description="base rate per catalyst; performance_report is looked up as earnings (C25)",
    )
    default_base_rate: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        0.1, description="base rate of an unknown catalyst (R172)"
    )
    adaptive_decay_impact_scale: NonNegative = Field(1.0, description="largest beta_impact (G12)")
    adaptive_decay_surprise_scale: NonNegative = Field(1.0, description="largest beta_surprise (G12)")
    adaptive_decay_market_scale: NonNegative = Field(0.5, description="largest beta_market (G12)")
    regime_return_weight: NonNegative = Field(0.15, description="weight of the return z-score (R175)")
    regime_volume_weight: NonNegative = Field(0.10, description="weight of the volume z-score (R175)")
    regime_multiplier_max: Annotated[float, Field(ge=1.0)] = Field(2.5, description="clamp (R175)")

    @model_validator(mode="after")
    def _all_windows(self) -> Self:
        missing = [w.value for w in Window if w not in self.half_life_hours]
        if missing:
            msg = f"half_life_hours lacks the windows {', '.join(missing)}"
            raise ValueError(msg)
        return self


class MacroConfig(Section):
    """World events (R45-R47, R187-R188, G13, G14, G16)."""

    macro_layer_weight: NonNegative = Field(0.3, description="layer weight of macro signals (R5)")
    w_geo: Unit = Field(0.30, description="weight of the geographic overlap (C14)")
    w_supply: Unit = Field(0.30, description="weight of the supply overlap (C14)")
    w_commodity: Unit = Field(0.25, description="weight of the commodity overlap (C14)")
    w_sector: Unit = Field(0.25, description="weight of the sector overlap (C14)")
    severity_weights: dict[Severity, Unit] = Field(
        default_factory=lambda: {
            Severity.CRITICAL: 1.0,
            Severity.HIGH: 0.75,
            Severity.MODERATE: 0.5,
            Severity.LOW: 0.25,
        },
        description="severity weights (R47)",
    )
    half_life_days: dict[EventDuration, Positive] = Field(
        default_factory=lambda: {
            EventDuration.SHORT_TERM: 1.0,
            EventDuration.MEDIUM_TERM: 7.0,
            EventDuration.LONG_TERM: 30.0,
        },
        description="half-life of an event's impact by its estimated duration (R45)",
    )
    modifier_weight: NonNegative = Field(0.3, description="share of S_macro in the modifier (G16)")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.w_geo + self.w_supply + self.w_commodity + self.w_sector <= 0.0:
            msg = "w_geo, w_supply, w_commodity and w_sector must not all be 0"
            raise ValueError(msg)
        for name, wanted in (("severity_weights", Severity), ("half_life_days", EventDuration)):
            missing = [m.value for m in wanted if m not in getattr(self, name)]
            if missing:
                msg = f"{name} lacks {', '.join(missing)}"
                raise ValueError(msg)
        return self


class CompetitiveConfig(Section):
    """Propagation over the graph of entities and historical patterns (R189, G15, G33)."""

    competitive_layer_weight: NonNegative = Field(0.2, description="layer weight of both (R5)")
    flat_transfer: Unit = Field(0.5, description="share passed on at distance 1, heuristic (G33)")
    max_distance: PositiveCount = Field(3, description="farthest distance, probabilistic (R189)")
    distance_decay: NonNegative = Field(1.0, description="decay per step, probabilistic (G15)")
    pattern_lookback_days: Positive = Field(365.0, description="how far back history is read")
    pattern_settle_days: Positive = Field(7.0, description="horizon of the outcome return")
    pattern_min_days: PositiveCount = Field(3, description="least days with an outcome (G33)")
    pattern_credibility: Unit = Field(0.5, description="credibility of a pattern signal")
    pattern_confidence: Unit = Field(0.5, description="extraction confidence of a pattern signal")


class TrendConfig(Section):
    """Direction, contradiction, evidence and confidence of a trend (R8-R40, R181-R184)."""

    mixed_threshold: Unit = Field(0.10, description="contradiction above which a weak trend is mixed (R9)")
    mixed_sentiment_bound: Unit = Field(0.30, description="average below which it may be mixed (R9)")
    positive_threshold: Unit = Field(0.15, description="least average of a positive trend (R10)")
    negative_threshold: Annotated[float, Field(ge=-1.0, le=0.0)] = Field(
        -0.15, description="greatest average of a negative trend (R11)"
    )
    max_evidence_refs: PositiveCount = Field(10, description="evidence kept per side (R27)")
    rank_weight: NonNegative = Field(0.4, description="share of the weight in the rank score (G9)")
    rank_impact: NonNegative = Field(0.3, description="share of the impact (G9)")
    rank_recency: NonNegative = Field(0.2, description="share of the recency (G9)")
    rank_confidence: NonNegative = Field(0.1, description="share of the confidence (G9)")
    confidence_count_divisor: Positive = Field(15.0, description="sources that would fill it (R31)")
    confidence_count_cap: Unit = Field(0.8, description="largest count factor (R31)")
    confidence_count_weight: NonNegative = Field(0.3, description="weight of the count factor (R37)")
    confidence_credibility_weight: NonNegative = Field(0.3, description="weight of credibility (R37)")
    confidence_agreement_weight: NonNegative = Field(0.4, description="weight of agreement (R37)")
    confidence_dampener_base: Annotated[float, Field(gt=1.0)] = Field(8.0, description="R34")
    confidence_contradiction_penalty: NonNegative = Field(0.4, description="penalty share (R36)")
    max_catalysts: PositiveCount = Field(5, description="dominant catalysts kept (G11)")
    max_risks: PositiveCount = Field(5, description="material risks kept (G11)")
    entropy_mixed_threshold: Unit = Field(0.9, description="entropy above which it is mixed (R181)")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.negative_threshold < self.positive_threshold:
            msg = (
                f"negative_threshold {self.negative_threshold} must be below "
                f"positive_threshold {self.positive_threshold}"
            )
            raise ValueError(msg)
        return self


class RegimeConfig(Section):
    """Market regimes (R152-R162, G18)."""

    ema_short_period: PositiveCount = Field(20, description="bars of the short average (R152)")
    ema_long_period: PositiveCount = Field(100, description="bars of the long average (R152)")
    vol_short_period: PositiveCount = Field(20, description="returns of the short volatility (R153)")
    vol_long_period: PositiveCount = Field(100, description="returns of the long volatility (R153)")
    panic_vol_ratio: NonNegative = Field(1.5, description="ratio above which a fall is panic (G18)")
    trend_vol_ratio: NonNegative = Field(1.2, description="ratio below which it is a trend (G18)")
    mean_reversion_vol_ratio: NonNegative = Field(1.0, description="ratio of mean reversion (G18)")
    default_threshold: Annotated[float, Field(ge=0.0, le=0.5)] = Field(0.15, description="R156")
    panic_threshold: Annotated[float, Field(ge=0.0, le=0.5)] = Field(0.10, description="R156")
    mean_reversion_threshold: Annotated[float, Field(ge=0.0, le=0.5)] = Field(0.20, description="R156")
    uncertainty_contradiction_multiplier: NonNegative = Field(0.6, description="penalty (R157)")
    default_contradiction_multiplier: NonNegative = Field(0.4, description="penalty (R157)")
    flat_tolerance: NonNegative = Field(0.005, description="relative gap that counts as none (G18)")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for short, long in (("ema_short_period", "ema_long_period"), ("vol_short_period", "vol_long_period")):
            if not getattr(self, short) < getattr(self, long):
                msg = f"{short} {getattr(self, short)} must be below {long} {getattr(self, long)}"
                raise ValueError(msg)
        return self


class ProjectionConfig(Section):
    """Projection of a trend (R41-R55, R190, G19, G21, G22, G34)."""

    momentum_weight: NonNegative = Field(0.5, description="share of the momentum (R44)")
    fallback_momentum: NonNegative = Field(0.5, description="share of the strength without history (R43)")
    direction_threshold: Unit = Field(0.15, description="band of no projected direction (G21)")
    macro_weight_cap: Unit = Field(0.4, description="largest macro weight (R50)")
    majority_margin: Annotated[float, Field(ge=1.0)] = Field(1.2, description="majority (R49)")
    base_confidence: Unit = Field(0.8, description="share of the trend's confidence (R55)")
    macro_boost: NonNegative = Field(0.05, description="boost where macro events exist (G22)")
    disabled_factor: Unit = Field(0.9, description="factor where the macro layer is off (G22)")
    low_confidence_threshold: Unit = Field(0.3, description="below it the flag is set (R54)")
    max_catalysts: Count = Field(3, description="catalysts among the driving factors (R51)")
    min_macro_effect: NonNegative = Field(
        0.001, description="macro_weight*|macro_signed| below it contributes 0 percent"
    )
    ew_lambda: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.7, description="decay per cycle (G19)")
    ew_max_differences: PositiveCount = Field(10, description="differences used (G19)")
    vol_floor: Positive = Field(0.01, description="least volatility (R190)")
    vol_reference: Positive = Field(0.01, description="reference volatility (G19)")
    momentum_clamp: Positive = Field(2.0, description="clamp of the scaled momentum")


class SuppressionConfig(Section):
    """Data quality (R67-R77, G23)."""

    min_avg_extraction_confidence: Unit = Field(0.40, description="check 1 (R69)")
    max_evidence_staleness_hours: Positive = Field(168.0, description="check 2 (R70)")
    min_source_types: Count = Field(1, description="check 3 (R72)")
    max_extraction_failure_rate: Unit = Field(0.50, description="check 4 (R73)")
    min_valid_documents: Count = Field(2, description="check 5 (R74)")
    min_data_quality_score: Unit = Field(0.30, description="check 6 (R75)")
    confidence_weight: NonNegative = Field(0.4, description="share of confidence in the score (R76)")
    freshness_weight: NonNegative = Field(0.3, description="share of freshness (R76)")
    coverage_weight: NonNegative = Field(0.3, description="share of coverage (R76)")
    confidence_baseline: Positive = Field(0.8, description="confidence that fills its share (R76)")
    count_saturation: Positive = Field(10.0, description="valid documents that fill coverage (R76)")


class EligibilityConfig(Section):
    """Gates, actions, modes and sizes (R81-R100, R191-R192, G27, G28)."""

    min_confidence: Unit = Field(0.35, description="gate (R81)")
    min_trend_strength: Unit = Field(0.10, description="gate (R82)")
    max_contradiction: Unit = Field(0.60, description="gate (R83)")
    min_evidence: Count = Field(2, description="gate (R84)")
    action_strength_threshold: Unit = Field(0.25, description="act or defer from here (R89)")
    hold_confidence_threshold: Unit = Field(0.50, description="monitor from here (R90)")
    paper_confidence_threshold: Unit = Field(0.50, description="simulation from here (R92)")
    live_confidence_threshold: Unit = Field(0.70, description="production from here (R93)")
    live_max_contradiction: Unit = Field(0.25, description="production up to here (R93)")
    live_min_evidence: Count = Field(5, description="production from here (R93)")
    base_allocation_pct: Unit = Field(0.01, description="least raw allocation, share of 1 (R95)")
    max_allocation_pct: Unit = Field(0.10, description="greatest allocation, share of 1 (R95)")
    base_max_loss_pct: Unit = Field(0.003, description="least raw loss limit, share of 1 (R98)")
    max_max_loss_pct: Unit = Field(0.02, description="greatest loss limit, share of 1 (R98)")
    confidence_sizing_weight: NonNegative = Field(0.8, description="R95")
    strength_sizing_floor: Unit = Field(0.5, description="strength factor at strength 0 (R95)")
    contradiction_sizing_penalty: Unit = Field(0.5, description="R96")
    thin_evidence_below: Count = Field(3, description="fewer documents: thin_evidence_factor (R97)")
    thin_evidence_factor: Unit = Field(0.5, description="R97")
    modest_evidence_below: Count = Field(5, description="fewer: modest_evidence_factor (R97)")
    modest_evidence_factor: Unit = Field(0.75, description="R97")
    ev_threshold: float = Field(0.005, description="least expected edge, exclusive (R192)")
    ev_directional: bool = Field(True, description="gate on -EV for defer (C11)")
    ev_lookback_days: Positive = Field(250.0, description="history of forward returns (G26)")
    ev_horizon_days: Positive = Field(7.0, description="horizon of a forward return (G26)")
    ev_min_returns: PositiveCount = Field(20, description="fewer: ev_unavailable (G26)")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for low, high in (
            ("min_confidence", "live_confidence_threshold"),
            ("paper_confidence_threshold", "live_confidence_threshold"),
            ("live_max_contradiction", "max_contradiction"),
            ("base_allocation_pct", "max_allocation_pct"),
            ("base_max_loss_pct", "max_max_loss_pct"),
            ("min_evidence", "live_min_evidence"),
            ("min_trend_strength", "action_strength_threshold"),
            ("thin_evidence_below", "modest_evidence_below"),
        ):
            if getattr(self, low) > getattr(self, high):
                msg = f"{low} {getattr(self, low)} must not be above {high} {getattr(self, high)}"
                raise ValueError(msg)
        return self


class RiskConfig(Section):
    """Risk classification, thesis, citation weights and de-duplication (R101-R127)."""

    contradiction_weight: NonNegative = Field(2.0, description="R119")
    confidence_weight: NonNegative = Field(1.5, description="R119")
    thin_evidence_penalty: NonNegative = Field(1.0, description="fewer than 3 documents (R119)")
    modest_evidence_penalty: NonNegative = Field(0.5, description="fewer than 5 documents (R119)")
    thin_evidence_below: Count = Field(3, description="R119")
    modest_evidence_below: Count = Field(5, description="R119")
    rejection_weight: NonNegative = Field(0.5, description="per rejection reason (R119)")
    very_high_from: NonNegative = Field(3.0, description="R120")
    high_from: NonNegative = Field(2.0, description="R120")
    moderate_from: NonNegative = Field(1.0, description="R120")
    evidence_weight_decay: NonNegative = Field(0.1, description="decay of a citation per rank (R123)")
    dedup_tolerance: NonNegative = Field(0.01, description="confidence change ignored (R127, C21)")
    thesis_max_catalysts: Count = Field(3, description="catalysts named (R103)")
    thesis_max_risks: Count = Field(2, description="risks named (R106)")
    thesis_max_factors: Count = Field(3, description="driving factors named (R105)")
    thesis_contradiction_note: Unit = Field(0.15, description="note above it (R104)")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.moderate_from <= self.high_from <= self.very_high_from:
            msg = (
                f"moderate_from {self.moderate_from}, high_from {self.high_from} and very_high_from "
                f"{self.very_high_from} must not decrease"
            )
            raise ValueError(msg)
        return self


class AccuracyConfig(Section):
    """Source accuracy learned from outcomes (R163-R168, G20)."""

    min_samples: Count = Field(10, description="fewer outcomes: factor 1 (R163)")
    factor_base: NonNegative = Field(0.5, description="factor at accuracy 0 (R163)")
    horizon_days: Positive = Field(7.0, description="horizon of the outcome return")


OPEN_MAPPINGS: tuple[tuple[str, str], ...] = (
    ("scoring", "credibility_by_source_type"),
    ("scoring", "event_type_base_rates"),
)
"""Mappings that take keys beside the given ones."""


class ConfigError(ValueError):
    """A configuration value that cannot be used; the message names path, value and remedy."""


class OracleConfig(Section):
    """All settings of one cycle."""

    flags: FlagsConfig = Field(default_factory=FlagsConfig)
    scoring: ScoringConfig = Field(default_factory=ScoringConfig)
    macro: MacroConfig = Field(default_factory=MacroConfig)
    competitive: CompetitiveConfig = Field(default_factory=CompetitiveConfig)
    trend: TrendConfig = Field(default_factory=TrendConfig)
    regime: RegimeConfig = Field(default_factory=RegimeConfig)
    projection: ProjectionConfig = Field(default_factory=ProjectionConfig)
    suppression: SuppressionConfig = Field(default_factory=SuppressionConfig)
    eligibility: EligibilityConfig = Field(default_factory=EligibilityConfig)
    risk: RiskConfig = Field(default_factory=RiskConfig)
    accuracy: AccuracyConfig = Field(default_factory=AccuracyConfig)

    @property
    def pipeline_mode(self) -> PipelineMode:
        """The set of rules this configuration chooses."""
        return (
            PipelineMode.PROBABILISTIC if self.flags.probabilistic_scoring_enabled else PipelineMode.HEURISTIC
        )

    def stored(self) -> dict[str, Any]:
        """JSON object of ``risk_configs.config``: the flags at the top level (R136), sections beside them.

        Implements: R136.
        """
        values = self.model_dump(mode="json")
        flags = values.pop("flags")
        return {**flags, **values}

    def settings(self) -> dict[str, Any]:
        """Every leaf as ``{path: value}``, in the order of the models."""
        return dict(_leaves("", self.model_dump(mode="json")))

    def fingerprint(self, *sections: str) -> str:
        """SHA-256 (16 hex digits) of the named sections, of all where none is named."""
        values = self.model_dump(mode="json", include=set(sections) if sections else None)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Return a copy with ``{path: value}`` applied together, then validated as a whole.

        Raises:
            ConfigError: unknown path, wrong type or range, thresholds in the wrong order.

        """
        values = self.model_dump(mode="json")
        known = list(self.settings())
        for path, value in settings.items():
            *parents, leaf = path.split(".", 2)
            node: Any = values
            for part in parents:
                node = node.get(part) if isinstance(node, dict) else None
            open_mapping = tuple(parents) in OPEN_MAPPINGS
            if not isinstance(node, dict) or not parents or (leaf not in node and not open_mapping):
                near = _nearest(path, known)
                msg = f"unknown configuration path {path!r}; nearest: {', '.join(near)}"
                raise ConfigError(msg)
            node[leaf] = value
        return type(self).parse(values)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate the sectioned form.

        Raises:
            ConfigError: with one line per fault: path, value, what is wanted.

        """
        try:
            return cls.model_validate_json(json.dumps(values))
        except ValidationError as error:
            raise ConfigError("; ".join(_fault(e) for e in error.errors())) from None


def parse_stored(stored: object) -> tuple[OracleConfig, list[str]]:
    """Read ``risk_configs.config``.

    Only the probabilistic flag is forgiving: missing or not a JSON boolean reads as false, the latter with a
    warning (R133, R134). Everything else must be right.

    Args:
        stored: the decoded JSON value.

    Returns:
        The configuration and the warnings to log.

    Raises:
        ConfigError: not an object, unknown key, wrong type or range.

    Implements: R133, R134.

    """
    if not isinstance(stored, Mapping):
        msg = f"risk_configs.config must be a JSON object, not {type(stored).__name__}"
        raise ConfigError(msg)
    values = dict(stored)
    warnings: list[str] = []
    flag = values.pop("probabilistic_scoring_enabled", False)
    if not isinstance(flag, bool):
        warnings.append(
            f"risk_configs.config.probabilistic_scoring_enabled is {flag!r}, not true or false: "
            "read as false (heuristic); set it with "
            "`oracle config set flags.probabilistic_scoring_enabled=...`"
        )
        flag = False
    flags = {"probabilistic_scoring_enabled": flag}
    flags |= {k: values.pop(k) for k in ("macro_enabled", "competitive_enabled") if k in values}
    return OracleConfig.parse({**values, "flags": flags}), warnings


def _leaves(prefix: str, node: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in node.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _leaves(f"{path}.", value)
        else:
            yield path, value


def _nearest(path: str, known: list[str]) -> list[str]:
    words = set(path.replace(".", "_").split("_"))
    return sorted(known, key=lambda k: -len(words & set(k.replace(".", "_").split("_"))))[:3]


def _fault(error: Mapping[str, Any]) -> str:
    path = ".".join(str(p) for p in error["loc"]) or "configuration"
    message = str(error["msg"]).removeprefix("Value error, ")
    return (
        f"{path} = {error.get('input')!r}: {message}"
        if error["type"] != "value_error"
        else f"{path}: {message}"
    )


SECTIONS: tuple[str, ...] = tuple(OracleConfig.model_fields)
CONFIG_SCHEMA = TypeAdapter(OracleConfig)
