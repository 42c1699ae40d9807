"""The records are what the specification lists: frozen, complete and closed."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from oracle_core import records
from oracle_core.enums import PipelineMode, SignalLayer, TrendDirection, Window

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)

FIELDS = {
    "CatalystEntry": "document_id catalyst_type sentiment_value effective_weight",
    "DisagreementDetail": (
        "dimension description positive_document_ids positive_weights negative_document_ids negative_weights"
    ),
    "ContradictionResult": "score disagreements",
    "RankedEvidence": (
        "document_id role rank_score weight_component impact_component recency_component "
        "confidence_component sentiment_value"
    ),
    "TrendSummary": (
        "entity_type entity_id window trend_direction trend_strength confidence contradiction_score "
        "disagreement_details top_supporting_evidence top_opposing_evidence dominant_catalysts "
        "material_risks market_context generated_at p_bull alpha beta_param bayesian_confidence entropy "
        "regime pipeline_mode"
    ),
    "TrendProjection": (
        "projected_direction projected_strength projected_confidence projection_horizon driving_factors "
        "macro_contribution_pct diverges_from_current low_confidence computed_at"
    ),
    "DataQualityContext": (
        "total_documents valid_documents failed_documents avg_extraction_confidence newest_document_at "
        "distinct_source_types"
    ),
    "SuppressionResult": "suppressed reasons data_quality_score",
    "PositionSizing": "allocation_pct max_loss_pct",
    "EligibilityResult": (
        "eligible action mode rejection_reasons position_sizing ev r_up r_down ev_edge ev_reasons"
    ),
    "Recommendation": (
        "id entity_id action mode confidence time_horizon thesis invalidation_conditions position_sizing "
        "supporting_document_ids opposing_document_ids model_metadata risk_classification generated_at "
        "expected_value p_bull pipeline_mode"
    ),
    "AgentConfig": (
        "slug provider model_name timeout_s max_retries prompt_version schema_version variant_id "
        "hourly_token_budget"
    ),
}


def trend(**changes: object) -> records.TrendSummary:
    values: dict[str, object] = {
        "entity_id": "Entity-A",
        "window": Window.ONE_DAY,
        "trend_direction": TrendDirection.MIXED,
        "trend_strength": 0.1,
        "confidence": 0.2,
        "contradiction_score": 0.3,
        "generated_at": AS_OF,
    }
    return records.TrendSummary.model_validate(values | changes)


@pytest.mark.parametrize("name", list(FIELDS))
def test_a_record_has_exactly_the_fields_of_the_data_model(name: str) -> None:
    assert list(getattr(records, name).model_fields) == FIELDS[name].split()


def test_no_record_is_left_out_of_the_list_above() -> None:
    found = {
        name
        for name, value in vars(records).items()
        if isinstance(value, type) and issubclass(value, records.Record) and value is not records.Record
    }
    assert found == set(FIELDS)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        trend(strenght=0.1)


def test_records_are_immutable() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        trend().confidence = 0.9  # type: ignore[misc]
    weight = records.SignalWeight(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        weight.combined = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_a_confidence_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(ValidationError):
        trend(confidence=value)


def test_r185_the_probabilistic_fields_of_a_trend_are_optional() -> None:
    found = trend()
    assert (found.p_bull, found.alpha, found.beta_param) == (None, None, None)
    assert (found.bayesian_confidence, found.entropy, found.regime) == (None, None, None)
    assert found.pipeline_mode is PipelineMode.HEURISTIC
    assert found.entity_type == "entity"


def test_r194_the_probabilistic_fields_of_a_recommendation_are_optional() -> None:
    fields = records.Recommendation.model_fields
    assert (fields["expected_value"].default, fields["p_bull"].default) == (None, None)
    assert fields["pipeline_mode"].default == "heuristic"


def test_r178_a_signal_weight_is_built_by_position_as_in_the_design() -> None:
    found = records.SignalWeight(0.5, 0.7, 1.1, 1.0, 1.1923, 0.4590355)
    assert (found.recency, found.credibility, found.novelty_bonus) == (0.5, 0.7, 1.1)
    assert (found.confidence_gate, found.market_ctx_multiplier, found.combined) == (1.0, 1.1923, 0.4590355)
    assert (found.sigmoid_gate, found.info_gain_factor) == (None, 1.0)
    assert (found.source_accuracy_factor, found.regime_multiplier) == (1.0, None)


def test_r179_a_weighted_signal_is_built_by_position_as_in_the_design() -> None:
    """What came later is optional and stands behind (R137)."""
    weight = records.SignalWeight(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    found = records.WeightedSignal("d1", weight, -1.0, 0.63, 2.0, 1.2, 77.0)
    assert (found.sentiment_value, found.impact_score) == (-1.0, 0.63)
    assert (found.info_gain_factor, found.source_accuracy_factor, found.adaptive_half_life) == (
        2.0,
        1.2,
        77.0,
    )
    plain = records.WeightedSignal("d1", weight, -1.0, 0.63)
    assert (plain.info_gain_factor, plain.source_accuracy_factor, plain.adaptive_half_life) == (
        1.0,
        1.0,
        None,
    )
    assert plain.layer is SignalLayer.ENTITY


def test_r100_sizes_are_shares_of_one() -> None:
    assert records.PositionSizing(allocation_pct=0.1, max_loss_pct=0.02).allocation_pct == 0.1
    with pytest.raises(ValidationError):
        records.PositionSizing(allocation_pct=10.0, max_loss_pct=0.02)


def test_r66_a_record_survives_its_json_form() -> None:
    found = trend(top_supporting_evidence=["a", "b"], market_context={"volatility": 1.23})
    assert records.TrendSummary.model_validate_json(found.model_dump_json()) == found
