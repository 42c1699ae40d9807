"""Decisions put together: suppression, eligibility, sizes, risk, words and duplicates (R64-R127)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.config import OracleConfig, RiskConfig
from oracle_core.decision import duplicates, is_duplicate_recommendation
from oracle_core.enums import (
    Action,
    EvReason,
    MarketRegime,
    Mode,
    RejectionReason,
    RiskLevel,
    SuppressionReason,
    TrendDirection,
    Window,
    codes,
)
from oracle_core.frames import (
    DecisionFrame,
    EvidenceRows,
    ProjectionFrame,
    TrendFrame,
    TrendRows,
)
from oracle_core.inputs import US_PER_DAY, HistoryRows, Keys, StandingRows
from oracle_core.records import PositionSizing, Recommendation
from tests.strategies import AS_OF_US, Bar, Document, World, no_history, no_standing

HEURISTIC = OracleConfig()
PROBABILISTIC = HEURISTIC.with_settings({"flags.probabilistic_scoring_enabled": True})
NAN = float("nan")
WEEK = list(Window).index(Window.SEVEN_DAYS)


def trends(*rows: dict[str, Any]) -> TrendFrame:
    """Hand-made 7d trends, one per entity in order; a row names what differs from a strong negative trend."""
    defaults: dict[str, Any] = {
        "direction": TrendDirection.NEGATIVE,
        "strength": 0.4,
        "average": -0.4,
        "confidence": 0.62,
        "contradiction": 0.0,
        "evidence_count": 6,
        "supporting_count": 0,
        "opposing_count": 6,
        "entity_signals": 6,
        "macro_signals": 0,
        "competitive_signals": 0,
        "unique_sources": 6,
        "average_credibility": 0.6,
        "agreement": 1.0,
        "regime": -1,
    }
    numbers = [f for f in TrendRows.__dataclass_fields__ if f not in defaults]
    filled = [dict.fromkeys(numbers, NAN) | defaults | row for row in rows]
    integers = {name for name in defaults if name.endswith(("count", "signals", "sources"))} | {
        "direction",
        "regime",
    }
    columns = {
        name: np.array(
            [codes(TrendDirection)[r[name]] if name == "direction" else r[name] for r in filled],
            np.int64 if name in integers else np.float64,
        )
        for name in TrendRows.__dataclass_fields__
    }
    count = len(rows)
    whole, real = np.zeros(0, np.int64), np.zeros(0)
    return TrendFrame(
        keys=Keys(np.arange(count), np.full(count, WEEK)),
        rows=TrendRows(**columns),
        supporting=[[] for _ in rows],
        opposing=[[] for _ in rows],
        disagreements=[[] for _ in rows],
        dominant_catalysts=[["legal"] for _ in rows],
        material_risks=[[] for _ in rows],
        evidence=EvidenceRows(
            whole, whole, whole, whole, np.zeros(0, np.bool_), real, real, real, real, real, real
        ),
        ids=np.zeros(0, np.object_),
    )


def world(entities: int, *, documents: int = 6, bars: tuple[Bar, ...] = ()) -> World:
    """Entities e0, e1, … with so many good, fresh documents each."""
    names = tuple(f"e{n}" for n in range(entities))
    rows = tuple(Document(f"{name}-d{n}", name, confidence=0.8) for name in names for n in range(documents))
    return World(documents=rows, bars=bars, entities=names)


def decided(
    frame: TrendFrame,
    known: World | None = None,
    config: OracleConfig = HEURISTIC,
    standing: StandingRows | None = None,
) -> DecisionFrame:
    inputs = (known or world(len(frame.keys))).inputs()
    projections = cycle.project_trends(frame, inputs, no_history(), AS_OF_US, config)
    return cycle.decide(frame, projections, inputs, standing or no_standing(), AS_OF_US, config)


def action(frame: DecisionFrame, i: int = 0) -> Action:
    return list(Action)[frame.rows.action[i]]


def mode(frame: DecisionFrame, i: int = 0) -> Mode:
    return list(Mode)[frame.rows.mode[i]]


def allowed(frame: DecisionFrame, i: int = 0) -> Mode:
    return list(Mode)[frame.rows.allowed_mode[i]]


def suppressed_by(frame: DecisionFrame, i: int = 0) -> list[SuppressionReason]:
    return [r for r, f in zip(SuppressionReason, frame.rows.suppressed_by[i], strict=True) if f]


def test_r64_a_good_trend_becomes_an_eligible_recommendation() -> None:
    found = decided(trends({"confidence": 0.9}))
    assert (action(found), mode(found)) == (Action.DEFER, Mode.PRODUCTION_ELIGIBLE)
    assert (bool(found.rows.eligible[0]), bool(found.rows.suppressed[0])) == (True, False)
    assert found.thesis[0] == f"[risk:low] {found.plain_thesis[0]}"
    assert "Recommendation: DEFER (production eligible)." in found.plain_thesis[0]


def test_r65_trends_that_differ_in_nothing_are_decided_alike() -> None:
    found = decided(trends({}, {}))
    assert found.plain_thesis[0].replace("e0", "e1") == found.plain_thesis[1]
    assert found.rows.risk_score[0] == found.rows.risk_score[1]


def test_r41_a_projection_never_changes_action_or_mode() -> None:
    """Two runs that differ only in the projection: same action, mode, sizes and risk."""
    frame, inputs = trends({}), world(1).inputs()
    calm = cycle.project_trends(frame, inputs, no_history(), AS_OF_US, HEURISTIC)
    turned = ProjectionFrame(
        calm.keys,
        type(calm.rows)(
            **{name: getattr(calm.rows, name) for name in calm.rows.__dataclass_fields__}
            | {"direction": np.array([0]), "diverges_from_current": np.array([True])}
        ),
        calm.driving_factors,
    )
    first = cycle.decide(frame, calm, inputs, no_standing(), AS_OF_US, HEURISTIC)
    second = cycle.decide(frame, turned, inputs, no_standing(), AS_OF_US, HEURISTIC)
    for name in ("action", "mode", "allocation_pct", "risk_score"):
        assert getattr(first.rows, name).tolist() == getattr(second.rows, name).tolist()
    assert first.invalidation_conditions != second.invalidation_conditions
    assert second.invalidation_conditions[0][-1] == "Projection diverges: positive"


def test_r87_every_rule_is_still_computed_for_a_rejected_trend() -> None:
    """C8: a failed gate writes an informational recommendation; sizes stand for the trace."""
    found = decided(trends({"confidence": 0.3}))
    assert (action(found), mode(found), allowed(found)) == (
        Action.DEFER,
        Mode.INFORMATIONAL,
        Mode.INFORMATIONAL,
    )
    reasons = [r for r, f in zip(RejectionReason, found.rows.rejected[0], strict=True) if f]
    assert reasons == [RejectionReason.LOW_CONFIDENCE]
    assert not found.rows.eligible[0]
    assert found.rows.allocation_pct[0] == pytest.approx(0.01 + 0.24 * 0.7 * 0.09, abs=1e-12)


def test_r77_suppression_forces_informational_but_leaves_eligibility() -> None:
    """C23: both are always judged; the allowed mode still says what the trend alone would have got."""
    found = decided(trends({"confidence": 0.9}), world(1, documents=1))
    assert suppressed_by(found) == [SuppressionReason.INSUFFICIENT_VALID_DOCUMENTS]
    assert (bool(found.rows.eligible[0]), bool(found.rows.suppressed[0])) == (True, True)
    assert (allowed(found), mode(found)) == (Mode.PRODUCTION_ELIGIBLE, Mode.INFORMATIONAL)
    assert "insufficient_valid_documents" in found.thesis[0]
    assert "DEFER (informational)" in found.thesis[0]


def test_r78_r79_r80_safety_checks_suppress_too() -> None:
    found = decided(
        trends(
            {"entity_signals": 0, "macro_signals": 2, "competitive_signals": 1},
            {"entity_signals": 0, "competitive_signals": 3},
            {"entity_signals": 1, "macro_signals": 2, "competitive_signals": 3},
        )
    )
    assert [suppressed_by(found, i) for i in range(3)] == [
        [SuppressionReason.MACRO_ONLY],
        [SuppressionReason.PATTERN_ONLY],
        [],
    ]
    assert found.rows.suppressed.tolist() == [True, True, False]
    assert "macro-only" in found.thesis[0]
    assert "not for automated execution" in found.thesis[1]


def test_quality_looks_at_all_documents_not_at_the_ten_cited() -> None:
    """Decisions 4: twelve failed documents beside ten good ones fail the rate, whatever is cited."""
    failed = tuple(Document(f"f{n}", "e0", failed=True, has_impact=False) for n in range(12))
    known = world(1, documents=10)
    found = decided(trends({}), World(documents=known.documents + failed, entities=known.entities))
    assert suppressed_by(found) == [SuppressionReason.HIGH_EXTRACTION_FAILURE_RATE]
    assert found.rows.data_quality_score[0] == pytest.approx(
        0.4 + 0.3 * (1.0 - 1.0 / 168.0) + 0.3 * 10.0 / 22.0, abs=1e-12
    )


def test_r119_risk_counts_rejections_only() -> None:
    """Two rejections add 1.0; suppression and a failed expected value add nothing."""
    row = {"confidence": 0.3, "strength": 0.05, "contradiction": 0.4, "evidence_count": 4}
    found = decided(trends(row))
    assert found.rows.risk_score[0] == pytest.approx(0.8 + 1.05 + 0.5 + 1.0, abs=1e-12)
    assert list(RiskLevel)[found.rows.risk[0]] is RiskLevel.VERY_HIGH
    suppressed = decided(trends(row), world(1, documents=1))
    assert suppressed.rows.risk_score[0] == found.rows.risk_score[0]


def test_r118_the_prefix_carries_the_level_of_the_row() -> None:
    found = decided(trends({"confidence": 0.9}, {"confidence": 0.36, "evidence_count": 2}))
    assert [text.split("]")[0] for text in found.thesis] == ["[risk:low", "[risk:moderate"]


# ----------------------------------------------------------------------------------------- probabilistic


def rising(entity: str, days: int = 60, daily: float = 0.01) -> tuple[Bar, ...]:
    return tuple(Bar(entity, back, 100.0 * (1.0 + daily) ** (days - back)) for back in range(1, days + 1))


def likely(p_bull: float, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    uncertain = list(MarketRegime).index(MarketRegime.UNCERTAINTY)
    direction = TrendDirection.POSITIVE if p_bull > 0.5 else TrendDirection.NEGATIVE
    row = {"p_bull": p_bull, "entropy": 0.7, "regime": uncertain, "direction": direction, "confidence": 0.9}
    return row | changes


def ev_reasons(frame: DecisionFrame, i: int = 0) -> list[EvReason]:
    return [r for r, f in zip(EvReason, frame.rows.ev_failed[i], strict=True) if f]


def test_r191_r192_expected_value_from_the_entity_s_own_bars() -> None:
    """All 7-day returns are 1.01^7 - 1: an act at p .8 has EV .8 x that, a deferral loses it."""
    known = world(2, bars=(*rising("e0"), *rising("e1")))
    found = decided(trends(likely(0.8), likely(0.2)), known, PROBABILISTIC)
    move = 1.01**7 - 1.0
    assert found.rows.expected_value == pytest.approx([0.8 * move, 0.2 * move], abs=1e-12)
    assert found.rows.r_up == pytest.approx([move, move], abs=1e-12)
    assert found.rows.r_down.tolist() == [0.0, 0.0]
    assert [action(found, 0), action(found, 1)] == [Action.ACT, Action.DEFER]
    assert [mode(found, 0), mode(found, 1)] == [Mode.PRODUCTION_ELIGIBLE, Mode.INFORMATIONAL]
    assert [ev_reasons(found, 0), ev_reasons(found, 1)] == [[], [EvReason.LOW_EXPECTED_VALUE]]
    assert found.rows.eligible.tolist() == [True, True]
    assert found.rows.risk_score[0] == found.rows.risk_score[1]


def test_r192_without_bars_an_action_is_informational_and_an_observation_untouched() -> None:
    observed = likely(0.5, direction=TrendDirection.MIXED)
    found = decided(trends(likely(0.8), observed), None, PROBABILISTIC)
    assert np.isnan(found.rows.expected_value).all()
    assert [ev_reasons(found, 0), ev_reasons(found, 1)] == [[EvReason.EV_UNAVAILABLE], []]
    assert mode(found, 0) is Mode.INFORMATIONAL
    assert "Too few past returns" in found.thesis[0]


def test_r196_probability_scales_the_allocation_of_the_row() -> None:
    sure = decided(trends(likely(0.72)), None, PROBABILISTIC)
    plain = decided(trends({"direction": TrendDirection.POSITIVE, "confidence": 0.9}))
    assert sure.rows.allocation_pct[0] == pytest.approx(0.72 * plain.rows.allocation_pct[0], abs=1e-12)
    assert sure.rows.max_loss_pct[0] == plain.rows.max_loss_pct[0]


def test_r195_probabilistic_words_and_conditions() -> None:
    found = decided(trends(likely(0.8)), world(1, bars=rising("e0")), PROBABILISTIC)
    assert (
        "Probabilistic view: P_bull 0.80, entropy 0.70, regime uncertainty, expected value" in found.thesis[0]
    )
    assert found.invalidation_conditions[0][-1] == "Expected value falls to 0.005 or below"


THESES = [
    (
        "[risk:low] e0 shows a negative trend over the 7d window with strength 0.40 and confidence 0.90. "
        "Dominant catalysts: legal. "
        "Projected direction over the next 7d: negative with strength 0.50, "
        "driven by: Negative momentum (-0.200) in recent trend strength; Upcoming catalyst: legal. "
        "Evidence: 2 supporting and 5 opposing documents. "
        "Probabilistic view: P_bull 0.20, entropy 0.70, regime uncertainty, expected value +0.0144. "
        "The expected edge of this action does not exceed 0.005. Recommendation: DEFER (informational). "
        "Suppressed for data quality: insufficient_valid_documents (score 0.73)."
    ),
    (
        "[risk:low] e1 shows a positive trend over the 7d window with strength 0.40 and confidence 0.90. "
        "Dominant catalysts: legal. "
        "Projected direction over the next 7d: neutral with strength 0.10, "
        "driven by: Negative momentum (-0.600) in recent trend strength; Upcoming catalyst: legal. "
        "The projection diverges from the current positive trend. "
        "Evidence: 7 supporting and 1 opposing documents. "
        "Probabilistic view: P_bull 0.80, entropy 0.70, regime uncertainty, expected value unavailable. "
        "Too few past returns to judge the expected value of this action. "
        "Recommendation: ACT (informational). "
        "Suppressed for data quality: insufficient_valid_documents (score 0.73)."
    ),
]
CONDITIONS = [
    [
        "Trend direction changes from negative",
        "Contradiction score exceeds 0.60",
        "Confidence falls below 0.35",
        "No new evidence for 168 hours",
        "Expected value of deferring falls to 0.005 or below",
    ],
    [
        "Trend direction changes from positive",
        "Contradiction score exceeds 0.60",
        "Confidence falls below 0.35",
        "No new evidence for 168 hours",
        "Projection diverges: neutral",
        "Expected value falls to 0.005 or below",
    ],
]


def test_r101_g29_every_word_of_a_probabilistic_decision() -> None:
    """A deferral of an entity that rises and an action on one whose momentum diverges, each in full."""
    frame = trends(
        likely(0.2, direction=TrendDirection.NEGATIVE, supporting_count=2, opposing_count=5),
        likely(0.8, supporting_count=7, opposing_count=1),
    )
    history = HistoryRows(np.array([1]), np.array([AS_OF_US - US_PER_DAY]), np.array([1.0]))
    inputs = world(2, documents=1, bars=rising("e0")).inputs()
    projections = cycle.project_trends(frame, inputs, history, AS_OF_US, PROBABILISTIC)
    found = cycle.decide(frame, projections, inputs, no_standing(), AS_OF_US, PROBABILISTIC)
    assert found.thesis == THESES
    assert found.invalidation_conditions == CONDITIONS


def test_r195_without_a_probability_there_is_no_probabilistic_sentence() -> None:
    found = decided(trends({}), None, PROBABILISTIC)
    assert "Probabilistic view" not in found.thesis[0]
    assert found.invalidation_conditions[0][-1] == "Expected value falls to 0.005 or below"


def test_the_heuristic_mode_neither_computes_nor_mentions_an_expected_value() -> None:
    found = decided(trends({"direction": TrendDirection.POSITIVE}), world(1, bars=rising("e0")))
    assert np.isnan(found.rows.expected_value).all()
    assert not found.rows.ev_failed.any()
    assert "xpected value" not in found.thesis[0] + " ".join(found.invalidation_conditions[0])


# -------------------------------------------------------------------------------------------- duplicates

SIMULATED = codes(Mode)[Mode.SIMULATION_ELIGIBLE]
DEFER, ACT = codes(Action)[Action.DEFER], codes(Action)[Action.ACT]


@pytest.mark.parametrize(
    ("action_code", "mode_code", "confidence", "same"),
    [
        (DEFER, SIMULATED, 0.625, True),
        (DEFER, SIMULATED, 0.64, False),
        (DEFER, SIMULATED, 0.63, True),  # the float difference is 0.010000000000000009 (C21)
        (DEFER, SIMULATED, 0.61, True),
        (DEFER, SIMULATED, 0.6099, False),
        (ACT, SIMULATED, 0.62, False),
        (DEFER, SIMULATED + 1, 0.62, False),
    ],
)
def test_r127_a_decision_that_says_the_same_is_a_duplicate(
    action_code: int, mode_code: int, confidence: float, same: bool
) -> None:
    standing = StandingRows(
        np.array([0]), np.array([DEFER]), np.array([SIMULATED]), np.array([0.62]), np.array(["r"], object)
    )
    found = duplicates(
        np.array([action_code]), np.array([mode_code]), np.array([confidence]), standing, RiskConfig()
    )
    assert found.tolist() == [same]


def test_c21_the_slack_for_floats_itself_still_counts_as_unchanged() -> None:
    standing = StandingRows(
        np.array([0]), np.array([DEFER]), np.array([SIMULATED]), np.array([0.0]), np.array(["r"], object)
    )
    one = np.array([DEFER]), np.array([SIMULATED])
    strict = RiskConfig(dedup_tolerance=0.0)
    assert duplicates(*one, np.array([1e-9]), standing, strict).tolist() == [True]
    assert duplicates(*one, np.array([2e-9]), standing, strict).tolist() == [False]


def test_r127_only_the_own_key_counts() -> None:
    """The standing row of key 2 says nothing about keys 0 and 1, and neither has one."""
    standing = StandingRows(
        np.array([2]), np.array([DEFER]), np.array([SIMULATED]), np.array([0.62]), np.array(["r"], object)
    )
    three = np.full(3, DEFER), np.full(3, SIMULATED), np.full(3, 0.62)
    found = duplicates(*three, standing, RiskConfig())
    assert found.tolist() == [False, False, True]
    assert found.dtype == np.bool_


def test_c20_duplicates_compare_the_final_mode() -> None:
    """A suppressed trend stands as informational; comparing its allowed mode would write it every cycle."""
    frame, known = trends({"confidence": 0.9}), world(1, documents=1)
    standing = StandingRows(
        np.array([0]), np.array([DEFER]), np.array([0]), np.array([0.9]), np.array(["r"], object)
    )
    found = decided(frame, known, HEURISTIC, standing)
    assert allowed(found) is Mode.PRODUCTION_ELIGIBLE
    assert found.rows.duplicate.tolist() == [True]


def test_r127_single_form() -> None:
    previous = Recommendation(
        id="r",
        entity_id="Entity-A",
        action=Action.DEFER,
        mode=Mode.SIMULATION_ELIGIBLE,
        confidence=0.62,
        time_horizon=Window.SEVEN_DAYS,
        thesis="",
        position_sizing=PositionSizing(allocation_pct=0.01, max_loss_pct=0.003),
        risk_classification=RiskLevel.MODERATE,
        generated_at=datetime(2026, 3, 10, tzinfo=UTC),
    )

    def same(confidence: float, final: Mode = Mode.SIMULATION_ELIGIBLE) -> bool:
        return is_duplicate_recommendation(previous, action=Action.DEFER, mode=final, confidence=confidence)

    assert same(0.625)
    assert not same(0.64)
    assert not same(0.62, Mode.INFORMATIONAL)
    assert not is_duplicate_recommendation(
        None, action=Action.DEFER, mode=Mode.SIMULATION_ELIGIBLE, confidence=0.62
    )


def test_decide_refuses_projections_of_other_keys() -> None:
    frame, inputs = trends({}, {}), world(2).inputs()
    other = cycle.project_trends(trends({}), inputs, no_history(), AS_OF_US, HEURISTIC)
    whole = "^decide needs the projections of exactly the keys of the trends, in their order$"
    with pytest.raises(ValueError, match=whole):
        cycle.decide(frame, other, inputs, no_standing(), AS_OF_US, HEURISTIC)
    same = cycle.project_trends(frame, inputs, no_history(), AS_OF_US, HEURISTIC)
    for keys in (
        Keys(same.keys.entity, same.keys.window + 1),
        Keys(same.keys.entity[::-1], same.keys.window),
    ):
        with pytest.raises(ValueError, match=whole):
            cycle.decide(frame, replace(same, keys=keys), inputs, no_standing(), AS_OF_US, HEURISTIC)
