"""The words of a recommendation (R101-R109, R118, R195, G29)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from oracle_core.config import OracleConfig
from oracle_core.eligibility import evaluate_eligibility, expected_value
from oracle_core.enums import (
    Action,
    EvReason,
    MarketRegime,
    Mode,
    RiskLevel,
    SuppressionReason,
    TrendDirection,
    Window,
)
from oracle_core.records import EligibilityResult, SuppressionResult, TrendProjection, TrendSummary
from oracle_core.thesis import (
    ProbabilisticView,
    build_thesis,
    invalidation_conditions,
    no_words,
    probabilistic_conditions,
    probabilistic_sentences,
    two_decimals,
    with_risk_prefix,
)

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)


def trend(**changes: object) -> TrendSummary:
    """The negative 7d trend of the seed, with one supporting and four opposing documents."""
    values: dict[str, Any] = {
        "entity_id": "Entity-A",
        "window": Window.SEVEN_DAYS,
        "trend_direction": TrendDirection.NEGATIVE,
        "trend_strength": 0.348999,
        "confidence": 0.6249,
        "contradiction_score": 0.0,
        "top_supporting_evidence": ("d0",),
        "top_opposing_evidence": ("d1", "d2", "d3", "d4"),
        "generated_at": AS_OF,
    }
    return TrendSummary.model_validate(values | changes)


def projection(**changes: object) -> TrendProjection:
    values: dict[str, Any] = {
        "projected_direction": TrendDirection.NEGATIVE,
        "projected_strength": 0.45,
        "projected_confidence": 0.5,
        "projection_horizon": Window.SEVEN_DAYS,
        "driving_factors": ("f1", "f2", "f3", "f4"),
        "computed_at": AS_OF,
    }
    return TrendProjection.model_validate(values | changes)


def thesis(
    summary: TrendSummary | None = None,
    outlook: TrendProjection | None = None,
    suppression: SuppressionResult | None = None,
) -> str:
    known = summary or trend()
    return build_thesis(known, evaluate_eligibility(known), outlook, suppression)


def test_r102_opening() -> None:
    """Two decimals: .348999 reads 0.35 and .6249 reads 0.62."""
    assert thesis().startswith(
        "Entity-A shows a negative trend over the 7d window with strength 0.35 and confidence 0.62. "
    )


def test_r103_at_most_three_catalysts_and_no_sentence_without_any() -> None:
    named = thesis(trend(dominant_catalysts=("legal", "m_and_a", "dividend", "regulatory", "earnings")))
    assert "Dominant catalysts: legal, m_and_a, dividend." in named
    assert "catalyst" not in thesis()


@pytest.mark.parametrize(("score", "note"), [(0.150000, None), (0.163934, "(contradiction score 0.16)")])
def test_r104_contradiction_note_above_its_threshold(score: float, note: str | None) -> None:
    found = thesis(trend(contradiction_score=score))
    assert ("disagree" in found) is (note is not None)
    assert note is None or note in found


def test_r105_projection_with_its_three_first_factors() -> None:
    found = thesis(outlook=projection())
    assert (
        "Projected direction over the next 7d: negative with strength 0.45, driven by: f1; f2; f3." in found
    )
    assert "diverges" not in found


def test_r105_a_low_confidence_projection_is_not_mentioned() -> None:
    assert thesis(outlook=projection(low_confidence=True)) == thesis()


def test_r105_divergence_is_said_once() -> None:
    """Its driving factor says the same and is left out of the list."""
    factor = "Projected neutral direction diverges from the current negative trend"
    diverging = projection(
        projected_direction=TrendDirection.NEUTRAL, driving_factors=("f1", factor), diverges_from_current=True
    )
    found = thesis(outlook=diverging)
    assert "driven by: f1. The projection diverges from the current negative trend." in found
    assert found.count("diverges") == 1


def test_r105_a_projection_without_factors_names_none() -> None:
    assert "with strength 0.45." in thesis(outlook=projection(driving_factors=()))


def test_r106_at_most_two_risks() -> None:
    assert "Material risks: litigation, liquidity." in thesis(
        trend(material_risks=("litigation", "liquidity", "supply shock"))
    )
    assert "risks" not in thesis()


def test_r107_evidence_of_both_sides() -> None:
    """Documents as stored (C26), synthetic ids not counted."""
    assert "Evidence: 1 supporting and 4 opposing documents." in thesis()
    synthetic = trend(top_supporting_evidence=("pattern:Entity-A:legal:7d",))
    assert "Evidence: 0 supporting and 4 opposing documents." in thesis(synthetic)


def test_r108_action_sentence() -> None:
    assert thesis().endswith("Recommendation: DEFER (simulation eligible).")


def test_r101_order() -> None:
    found = thesis(
        trend(
            dominant_catalysts=("legal",),
            material_risks=("litigation",),
            contradiction_score=0.2,
            confidence=0.7,
        ),
        projection(),
    )
    marks = ["shows a", "catalysts", "disagree", "Projected", "risks", "Evidence", "Recommendation"]
    places = [found.index(mark) for mark in marks]
    assert places == sorted(places)


def test_r77_a_suppressed_thesis_says_informational_and_why_at_the_end() -> None:
    result = SuppressionResult(
        suppressed=True, reasons=(SuppressionReason.STALE_EVIDENCE,), data_quality_score=0.44
    )
    assert thesis(suppression=result).endswith(
        "Recommendation: DEFER (informational). Suppressed for data quality: stale_evidence (score 0.44)."
    )


def test_r65_an_unsuppressed_result_changes_no_word() -> None:
    clean = SuppressionResult(suppressed=False, data_quality_score=0.9)
    assert thesis(suppression=clean) == thesis()


def test_r118_risk_prefix() -> None:
    assert with_risk_prefix("Entity-A shows …", RiskLevel.MODERATE) == "[risk:moderate] Entity-A shows …"
    assert with_risk_prefix("", RiskLevel.VERY_HIGH) == "[risk:very_high] "


# ----------------------------------------------------------------------------------------- probabilistic


def view(**changes: object) -> ProbabilisticView:
    values: dict[str, Any] = {
        "p_bull": 0.72,
        "entropy": 0.855451,
        "regime": MarketRegime.TREND_FOLLOWING,
        "expected_value": 0.02112,
        "action": Action.ACT,
    }
    return ProbabilisticView(**(values | changes))


def test_r195_probabilistic_sentence() -> None:
    assert probabilistic_sentences(view(), OracleConfig()) == [
        "Probabilistic view: P_bull 0.72, entropy 0.86, regime trend_following, expected value +0.0211."
    ]


def test_r195_failed_expected_value_is_explained() -> None:
    low = probabilistic_sentences(view(ev_reasons=(EvReason.LOW_EXPECTED_VALUE,)), OracleConfig())
    assert low[1:] == ["The expected edge of this action does not exceed 0.005."]
    none = probabilistic_sentences(
        view(expected_value=None, ev_reasons=(EvReason.EV_UNAVAILABLE,)), OracleConfig()
    )
    assert none[0].endswith("expected value unavailable.")
    assert none[1:] == ["Too few past returns to judge the expected value of this action."]


def test_r195_the_sentence_stands_between_evidence_and_action() -> None:
    known = trend(p_bull=0.3, entropy=0.88, regime="panic", trend_strength=0.4)
    result = evaluate_eligibility(known, r_up=0.01, r_down=0.03, rule=expected_value)
    found = build_thesis(known, result, words=probabilistic_sentences)
    places = [found.index(mark) for mark in ("Evidence:", "Probabilistic view:", "Recommendation:")]
    assert places == sorted(places)
    assert "regime panic" in found


def test_r195_the_words_get_all_that_was_decided_and_the_settings() -> None:
    """Too low an edge: .72 x .01 - .28 x .03 < .005."""
    known = trend(
        p_bull=0.72, entropy=0.86, regime="panic", trend_direction=TrendDirection.POSITIVE, trend_strength=0.4
    )
    config = OracleConfig().with_settings({"eligibility.ev_threshold": 0.2})
    result = evaluate_eligibility(known, config.eligibility, r_up=0.01, r_down=0.03, rule=expected_value)
    asked: list[tuple[ProbabilisticView | None, OracleConfig]] = []

    def words(view: ProbabilisticView | None, config: OracleConfig) -> list[str]:
        asked.append((view, config))
        return []

    build_thesis(known, result, config=config, words=words)
    low = (EvReason.LOW_EXPECTED_VALUE,)
    assert result.ev is not None
    assert asked == [(ProbabilisticView(0.72, 0.86, MarketRegime.PANIC, result.ev, Action.ACT, low), config)]


@pytest.mark.parametrize("missing", ["p_bull", "entropy", "regime"])
def test_r195_without_the_whole_posterior_there_is_no_probabilistic_sentence(missing: str) -> None:
    known = trend(**({"p_bull": 0.3, "entropy": 0.88, "regime": "panic"} | {missing: None}))
    found = build_thesis(known, evaluate_eligibility(known), words=probabilistic_sentences)
    assert "Probabilistic view" not in found


def test_the_heuristic_rule_adds_no_words() -> None:
    assert no_words(view(), OracleConfig()) == []
    assert probabilistic_sentences(None, OracleConfig()) == []


# ------------------------------------------------------------------------------- invalidation conditions


def test_g29_conditions_of_the_specification() -> None:
    assert invalidation_conditions(TrendDirection.NEGATIVE, None, [], OracleConfig()) == [
        "Trend direction changes from negative",
        "Contradiction score exceeds 0.60",
        "Confidence falls below 0.35",
        "No new evidence for 168 hours",
    ]


def test_g29_divergence_and_expected_value_come_last() -> None:
    extra = probabilistic_conditions(view(), OracleConfig())
    found = invalidation_conditions(TrendDirection.POSITIVE, TrendDirection.NEUTRAL, extra, OracleConfig())
    assert found[4:] == ["Projection diverges: neutral", "Expected value falls to 0.005 or below"]


def test_g29_a_deferral_is_invalidated_by_its_own_edge() -> None:
    """C11 judges it on -EV, so the plain sentence would hold from the start."""
    assert probabilistic_conditions(view(action=Action.DEFER), OracleConfig()) == [
        "Expected value of deferring falls to 0.005 or below"
    ]
    literal = OracleConfig().with_settings({"eligibility.ev_directional": False})
    assert probabilistic_conditions(view(action=Action.DEFER), literal) == [
        "Expected value falls to 0.005 or below"
    ]


def test_g29_conditions_name_the_thresholds_in_force() -> None:
    config = OracleConfig().with_settings(
        {
            "eligibility.min_confidence": 0.375,
            "eligibility.max_contradiction": 0.5,
            "suppression.max_evidence_staleness_hours": 36.5,
        }
    )
    found = invalidation_conditions(TrendDirection.MIXED, None, [], config)
    assert found[1:] == [
        "Contradiction score exceeds 0.50",
        "Confidence falls below 0.375",
        "No new evidence for 36.5 hours",
    ]


@pytest.mark.parametrize(("value", "text"), [(0.6, "0.60"), (0.35, "0.35"), (0.375, "0.375"), (1.0, "1.00")])
def test_a_threshold_is_never_rounded_to_another(value: float, text: str) -> None:
    assert two_decimals(value) == text


def test_r109_the_thesis_is_a_pure_function_of_what_was_decided() -> None:
    result = EligibilityResult(
        eligible=True,
        action=Action.OBSERVE,
        mode=Mode.INFORMATIONAL,
        position_sizing={"allocation_pct": 0.01, "max_loss_pct": 0.003},  # type: ignore[arg-type]
    )
    assert build_thesis(trend(), result) == build_thesis(trend(), result)
    assert build_thesis(trend(), result).endswith("Recommendation: OBSERVE (informational).")
