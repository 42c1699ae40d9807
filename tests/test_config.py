"""Configuration: every constant a field, refused unless whole (R128, R132-R136, R155)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from oracle_core.config import ConfigError, OracleConfig, parse_stored
from oracle_core.enums import PipelineMode

DEFAULT = OracleConfig()

CONSTANTS = {
    "flags.macro_enabled": True,
    "flags.competitive_enabled": True,
    "flags.probabilistic_scoring_enabled": False,
    "scoring.half_life_hours.intraday": 4.0,
    "scoring.half_life_hours.1d": 8.0,
    "scoring.half_life_hours.7d": 56.0,
    "scoring.half_life_hours.30d": 240.0,
    "scoring.half_life_hours.90d": 720.0,
    "scoring.entity_layer_weight": 1.0,
    "macro.macro_layer_weight": 0.3,
    "competitive.competitive_layer_weight": 0.2,
    "scoring.credibility_by_source_type.filing": 0.95,
    "scoring.credibility_by_source_type.transcript": 0.90,
    "scoring.credibility_by_source_type.research": 0.80,
    "scoring.credibility_by_source_type.news": 0.70,
    "scoring.credibility_by_source_type.poll": 0.70,
    "scoring.credibility_by_source_type.press_release": 0.60,
    "scoring.credibility_by_source_type.blog": 0.45,
    "scoring.credibility_by_source_type.social": 0.40,
    "scoring.default_credibility": 0.50,
    "scoring.novelty_weight": 0.25,
    "scoring.binary_gate_threshold": 0.30,
    "scoring.volatility_scale_pct": 3.0,
    "scoring.volume_scale_pct": 100.0,
    "scoring.price_scale_pct": 5.0,
    "scoring.market_term_weight": 0.15,
    "scoring.max_combined": 100.0,
    "scoring.sigmoid_steepness": 5.0,
    "scoring.sigmoid_midpoint": 0.5,
    "scoring.info_gain_lambda": 0.3,
    "scoring.info_gain_max": 3.0,
    "scoring.default_base_rate": 0.1,
    "scoring.event_type_base_rates.earnings": 0.25,
    "scoring.event_type_base_rates.product_launch": 0.10,
    "scoring.event_type_base_rates.regulatory": 0.08,
    "scoring.event_type_base_rates.legal": 0.05,
    "scoring.event_type_base_rates.m_and_a": 0.03,
    "scoring.event_type_base_rates.management_change": 0.06,
    "scoring.event_type_base_rates.partnership": 0.12,
    "scoring.event_type_base_rates.market_expansion": 0.09,
    "scoring.event_type_base_rates.restructuring": 0.04,
    "scoring.event_type_base_rates.dividend": 0.15,
    "scoring.adaptive_decay_impact_scale": 1.0,
    "scoring.adaptive_decay_surprise_scale": 1.0,
    "scoring.adaptive_decay_market_scale": 0.5,
    "scoring.regime_return_weight": 0.15,
    "scoring.regime_volume_weight": 0.10,
    "scoring.regime_multiplier_max": 2.5,
    "macro.w_geo": 0.30,
    "macro.w_supply": 0.30,
    "macro.w_commodity": 0.25,
    "macro.w_sector": 0.25,
    "macro.severity_weights.critical": 1.0,
    "macro.severity_weights.high": 0.75,
    "macro.severity_weights.moderate": 0.5,
    "macro.severity_weights.low": 0.25,
    "macro.half_life_days.short_term": 1.0,
    "macro.half_life_days.medium_term": 7.0,
    "macro.half_life_days.long_term": 30.0,
    "macro.modifier_weight": 0.3,
    "competitive.flat_transfer": 0.5,
    "competitive.max_distance": 3,
    "competitive.distance_decay": 1.0,
    "competitive.pattern_lookback_days": 365.0,
    "competitive.pattern_settle_days": 7.0,
    "competitive.pattern_min_days": 3,
    "competitive.pattern_credibility": 0.5,
    "competitive.pattern_confidence": 0.5,
    "trend.mixed_threshold": 0.10,
    "trend.mixed_sentiment_bound": 0.30,
    "trend.positive_threshold": 0.15,
    "trend.negative_threshold": -0.15,
    "trend.max_evidence_refs": 10,
    "trend.rank_weight": 0.4,
    "trend.rank_impact": 0.3,
    "trend.rank_recency": 0.2,
    "trend.rank_confidence": 0.1,
    "trend.confidence_count_divisor": 15.0,
    "trend.confidence_count_cap": 0.8,
    "trend.confidence_count_weight": 0.3,
    "trend.confidence_credibility_weight": 0.3,
    "trend.confidence_agreement_weight": 0.4,
    "trend.confidence_dampener_base": 8.0,
    "trend.confidence_contradiction_penalty": 0.4,
    "trend.max_catalysts": 5,
    "trend.max_risks": 5,
    "trend.entropy_mixed_threshold": 0.9,
    "regime.ema_short_period": 20,
    "regime.ema_long_period": 100,
    "regime.vol_short_period": 20,
    "regime.vol_long_period": 100,
    "regime.panic_vol_ratio": 1.5,
    "regime.trend_vol_ratio": 1.2,
    "regime.mean_reversion_vol_ratio": 1.0,
    "regime.default_threshold": 0.15,
    "regime.panic_threshold": 0.10,
    "regime.mean_reversion_threshold": 0.20,
    "regime.uncertainty_contradiction_multiplier": 0.6,
    "regime.default_contradiction_multiplier": 0.4,
    "regime.flat_tolerance": 0.005,
    "projection.momentum_weight": 0.5,
    "projection.fallback_momentum": 0.5,
    "projection.direction_threshold": 0.15,
    "projection.macro_weight_cap": 0.4,
    "projection.majority_margin": 1.2,
    "projection.base_confidence": 0.8,
    "projection.macro_boost": 0.05,
    "projection.disabled_factor": 0.9,
    "projection.low_confidence_threshold": 0.3,
    "projection.max_catalysts": 3,
    "projection.min_macro_effect": 0.001,
    "projection.ew_lambda": 0.7,
    "projection.ew_max_differences": 10,
    "projection.vol_floor": 0.01,
    "projection.vol_reference": 0.01,
    "projection.momentum_clamp": 2.0,
    "suppression.min_avg_extraction_confidence": 0.40,
    "suppression.max_evidence_staleness_hours": 168.0,
    "suppression.min_source_types": 1,
    "suppression.max_extraction_failure_rate": 0.50,
    "suppression.min_valid_documents": 2,
    "suppression.min_data_quality_score": 0.30,
    "suppression.confidence_weight": 0.4,
    "suppression.freshness_weight": 0.3,
    "suppression.coverage_weight": 0.3,
    "suppression.confidence_baseline": 0.8,
    "suppression.count_saturation": 10.0,
    "eligibility.min_confidence": 0.35,
    "eligibility.min_trend_strength": 0.10,
    "eligibility.max_contradiction": 0.60,
    "eligibility.min_evidence": 2,
    "eligibility.action_strength_threshold": 0.25,
    "eligibility.hold_confidence_threshold": 0.50,
    "eligibility.paper_confidence_threshold": 0.50,
    "eligibility.live_confidence_threshold": 0.70,
    "eligibility.live_max_contradiction": 0.25,
    "eligibility.live_min_evidence": 5,
    "eligibility.base_allocation_pct": 0.01,
    "eligibility.max_allocation_pct": 0.10,
    "eligibility.base_max_loss_pct": 0.003,
    "eligibility.max_max_loss_pct": 0.02,
    "eligibility.confidence_sizing_weight": 0.8,
    "eligibility.strength_sizing_floor": 0.5,
    "eligibility.contradiction_sizing_penalty": 0.5,
    "eligibility.thin_evidence_below": 3,
    "eligibility.thin_evidence_factor": 0.5,
    "eligibility.modest_evidence_below": 5,
    "eligibility.modest_evidence_factor": 0.75,
    "eligibility.ev_threshold": 0.005,
    "eligibility.ev_directional": True,
    "eligibility.ev_lookback_days": 250.0,
    "eligibility.ev_horizon_days": 7.0,
    "eligibility.ev_min_returns": 20,
    "risk.contradiction_weight": 2.0,
    "risk.confidence_weight": 1.5,
    "risk.thin_evidence_penalty": 1.0,
    "risk.modest_evidence_penalty": 0.5,
    "risk.thin_evidence_below": 3,
    "risk.modest_evidence_below": 5,
    "risk.rejection_weight": 0.5,
    "risk.very_high_from": 3.0,
    "risk.high_from": 2.0,
    "risk.moderate_from": 1.0,
    "risk.evidence_weight_decay": 0.1,
    "risk.dedup_tolerance": 0.01,
    "risk.thesis_max_catalysts": 3,
    "risk.thesis_max_risks": 2,
    "risk.thesis_max_factors": 3,
    "risk.thesis_contradiction_note": 0.15,
    "accuracy.min_samples": 10,
    "accuracy.factor_base": 0.5,
    "accuracy.horizon_days": 7.0,
}


@pytest.mark.parametrize("path", list(CONSTANTS))
def test_every_constant_has_the_value_of_the_specification(path: str) -> None:
    """R155 and part 4; a mutated default changes results nobody asked for."""
    assert DEFAULT.settings()[path] == CONSTANTS[path]


def test_no_constant_lacks_a_value_above() -> None:
    """A new setting is added here with its source."""
    missing = set(DEFAULT.settings()) - set(CONSTANTS) - {"scoring.volatility_period_days"}
    assert missing == set()
    assert DEFAULT.settings()["scoring.volatility_period_days"] == 20


# ---------------------------------------------------------------------------------------------- setting


def test_a_setting_changes_its_field_and_nothing_else() -> None:
    changed = DEFAULT.with_settings({"trend.mixed_threshold": 0.2, "scoring.half_life_hours.7d": 48.0})
    differing = {k for k, v in changed.settings().items() if v != DEFAULT.settings()[k]}
    assert differing == {"trend.mixed_threshold", "scoring.half_life_hours.7d"}
    assert DEFAULT.trend.mixed_threshold == 0.10


@pytest.mark.parametrize(
    "path", ["trend.mixd_threshold", "mixed_threshold", "trend", "trend.mixed_threshold.7d", "nowhere.x", ""]
)
def test_an_unknown_path_is_refused_and_near_ones_are_named(path: str) -> None:
    with pytest.raises(ConfigError, match="unknown configuration path") as caught:
        DEFAULT.with_settings({path: 0.1})
    assert "nearest: " in str(caught.value)


def test_the_nearest_path_is_the_meant_one() -> None:
    with pytest.raises(ConfigError, match=r"nearest: trend\.mixed_threshold"):
        DEFAULT.with_settings({"trend.threshold_mixed": 0.1})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("trend.mixed_threshold", "0.2"),
        ("trend.mixed_threshold", True),
        ("trend.mixed_threshold", None),
        ("trend.mixed_threshold", {}),
        ("trend.max_evidence_refs", 2.5),
        ("flags.macro_enabled", 1),
        ("flags.macro_enabled", "true"),
        ("eligibility.ev_directional", 0),
        ("trend.mixed_threshold", 1.1),
        ("trend.mixed_threshold", -0.1),
        ("trend.max_evidence_refs", 0),
        ("scoring.half_life_hours.7d", 0.0),
        ("projection.majority_margin", 0.9),
    ],
)
def test_a_wrong_type_or_range_is_refused_with_path_and_value(path: str, value: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError) as caught:
        DEFAULT.with_settings({path: value})
    assert path in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_refused_everywhere(value: float) -> None:
    for path, default in DEFAULT.settings().items():
        if isinstance(default, float):
            with pytest.raises(ConfigError):
                DEFAULT.with_settings({path: value})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"trend.positive_threshold": 0.0, "trend.negative_threshold": 0.0}, "negative_threshold"),
        ({"eligibility.min_confidence": 0.71}, "min_confidence"),
        ({"eligibility.paper_confidence_threshold": 0.71}, "paper_confidence_threshold"),
        ({"eligibility.live_max_contradiction": 0.61}, "live_max_contradiction"),
        ({"eligibility.base_allocation_pct": 0.11}, "base_allocation_pct"),
        ({"eligibility.base_max_loss_pct": 0.021}, "base_max_loss_pct"),
        ({"eligibility.min_evidence": 6}, "min_evidence"),
        ({"eligibility.min_trend_strength": 0.26}, "min_trend_strength"),
        ({"eligibility.thin_evidence_below": 6}, "thin_evidence_below"),
        ({"risk.moderate_from": 2.5}, "moderate_from"),
        ({"risk.high_from": 3.5}, "high_from"),
        ({"regime.ema_short_period": 100}, "ema_short_period"),
        ({"regime.vol_short_period": 101}, "vol_short_period"),
        (
            {"macro.w_geo": 0.0, "macro.w_supply": 0.0, "macro.w_commodity": 0.0, "macro.w_sector": 0.0},
            "w_geo",
        ),
    ],
)
def test_thresholds_in_the_wrong_order_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        DEFAULT.with_settings(settings)


def test_thresholds_are_judged_together() -> None:
    """Each alone would be out of order; both at once are fine."""
    changed = DEFAULT.with_settings(
        {"eligibility.min_confidence": 0.8, "eligibility.live_confidence_threshold": 0.9}
    )
    assert changed.eligibility.min_confidence == 0.8


def test_the_open_mappings_take_new_keys() -> None:
    changed = DEFAULT.with_settings(
        {"scoring.credibility_by_source_type.wire": 0.65, "scoring.event_type_base_rates.strike": 0.07}
    )
    assert changed.scoring.credibility_by_source_type["wire"] == 0.65
    assert changed.scoring.event_type_base_rates["strike"] == 0.07
    with pytest.raises(ConfigError, match="unknown configuration path"):
        DEFAULT.with_settings({"macro.severity_weights.extreme": 1.0})


def test_every_window_needs_a_half_life() -> None:
    stored = DEFAULT.stored()
    del stored["scoring"]["half_life_hours"]["7d"]
    with pytest.raises(ConfigError, match="7d"):
        parse_stored(stored)


def test_the_configuration_is_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        DEFAULT.trend.mixed_threshold = 0.5  # type: ignore[misc]


# --------------------------------------------------------------------------------------------- stored form


def test_r136_the_flags_stand_at_the_top_of_the_stored_form() -> None:
    stored = json.loads(json.dumps(DEFAULT.stored()))
    assert stored["macro_enabled"] is True
    assert stored["competitive_enabled"] is True
    assert stored["probabilistic_scoring_enabled"] is False
    assert "flags" not in stored
    assert stored["trend"]["mixed_threshold"] == 0.10


def test_the_stored_form_reads_back_to_the_same_configuration() -> None:
    changed = DEFAULT.with_settings(
        {"flags.probabilistic_scoring_enabled": True, "flags.macro_enabled": False, "trend.max_risks": 7}
    )
    assert parse_stored(json.loads(json.dumps(changed.stored()))) == (changed, [])


def test_r136_the_seeds_three_keys_alone_are_a_configuration() -> None:
    stored = {"macro_enabled": True, "competitive_enabled": True, "probabilistic_scoring_enabled": False}
    assert parse_stored(stored) == (DEFAULT, [])


def test_r128_the_flag_chooses_the_mode() -> None:
    on, warnings = parse_stored({"probabilistic_scoring_enabled": True})
    assert (on.pipeline_mode, warnings) == (PipelineMode.PROBABILISTIC, [])
    assert DEFAULT.pipeline_mode is PipelineMode.HEURISTIC


def test_r133_a_missing_flag_is_false_without_a_warning() -> None:
    found, warnings = parse_stored({})
    assert (found.pipeline_mode, warnings) == (PipelineMode.HEURISTIC, [])


@pytest.mark.parametrize("value", ["true", 1, None, [], {}])
def test_r134_a_flag_of_a_wrong_type_is_false_with_a_warning(value: Any) -> None:  # noqa: ANN401
    """Only JSON booleans are accepted: the string, the number and null of the specification are not."""
    found, warnings = parse_stored({"probabilistic_scoring_enabled": value})
    assert found.pipeline_mode is PipelineMode.HEURISTIC
    assert len(warnings) == 1
    assert repr(value) in warnings[0]
    assert "oracle config set" in warnings[0]


def test_r132_only_the_flag_is_forgiven() -> None:
    """A run that cannot read its thresholds must fail, not guess them."""
    for stored in ({"macro_enabled": "yes"}, {"trend": {"mixed_threshold": "x"}}, {"unknown": 1}):
        with pytest.raises(ConfigError):
            parse_stored(stored)


@pytest.mark.parametrize("stored", [None, [], "{}", 3])
def test_a_stored_form_that_is_no_object_is_refused(stored: object) -> None:
    with pytest.raises(ConfigError, match="must be a JSON object"):
        parse_stored(stored)


# ---------------------------------------------------------------------------------------- fingerprints


def test_a_fingerprint_follows_the_named_sections_only() -> None:
    changed = DEFAULT.with_settings({"risk.high_from": 2.1})
    assert changed.fingerprint() != DEFAULT.fingerprint()
    assert changed.fingerprint("risk") != DEFAULT.fingerprint("risk")
    assert changed.fingerprint("trend", "scoring") == DEFAULT.fingerprint("trend", "scoring")
    assert OracleConfig().fingerprint() == DEFAULT.fingerprint()
