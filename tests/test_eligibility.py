"""Gates, actions, modes and the expected value (R81-R94, R191-R192)."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_core.config import EligibilityConfig
from oracle_core.eligibility import (
    actions,
    evaluate_eligibility,
    evidence_sides,
    expected_value,
    mean_moves,
    no_expected_value,
)
from oracle_core.enums import Action, EvReason, Mode, RejectionReason, TrendDirection, Window, codes
from oracle_core.inputs import US_PER_DAY, BarRows
from oracle_core.records import EligibilityResult, TrendSummary

AS_OF = datetime(2026, 3, 10, 12, tzinfo=UTC)
P, N, M, O = TrendDirection  # noqa: E741 - positive, negative, mixed, neutral


def trend(  # noqa: PLR0917 - the order in which the rules name them
    direction: TrendDirection = TrendDirection.NEGATIVE,
    strength: float = 0.4,
    confidence: float = 0.8,
    contradiction: float = 0.0,
    supporting: int = 0,
    opposing: int = 6,
    p_bull: float | None = None,
) -> TrendSummary:
    """A trend that passes every gate, unless told."""
    return TrendSummary(
        entity_id="Entity-A",
        window=Window.SEVEN_DAYS,
        trend_direction=direction,
        trend_strength=strength,
        confidence=confidence,
        contradiction_score=contradiction,
        top_supporting_evidence=tuple(f"s{n}" for n in range(supporting)),
        top_opposing_evidence=tuple(f"o{n}" for n in range(opposing)),
        generated_at=AS_OF,
        p_bull=p_bull,
    )


def rejections(summary: TrendSummary) -> tuple[RejectionReason, ...]:
    return evaluate_eligibility(summary).rejection_reasons


# ------------------------------------------------------------------------------------------------- gates


@pytest.mark.parametrize(("confidence", "passes"), [(0.349999, False), (0.35, True)])
def test_r81_confidence_gate(confidence: float, passes: bool) -> None:
    expected = () if passes else (RejectionReason.LOW_CONFIDENCE,)
    assert rejections(trend(confidence=confidence)) == expected


@pytest.mark.parametrize(("strength", "passes"), [(0.0999999, False), (0.10, True)])
def test_r82_strength_gate(strength: float, passes: bool) -> None:
    expected = () if passes else (RejectionReason.LOW_TREND_STRENGTH,)
    assert rejections(trend(strength=strength)) == expected


@pytest.mark.parametrize(("contradiction", "passes"), [(0.600001, False), (0.600000, True)])
def test_r83_contradiction_gate(contradiction: float, passes: bool) -> None:
    """C7: heuristic scores end at .5, so only a hand-made trend or the probabilistic score can fail it."""
    expected = () if passes else (RejectionReason.HIGH_CONTRADICTION,)
    assert rejections(trend(contradiction=contradiction)) == expected


@pytest.mark.parametrize(("supporting", "opposing", "passes"), [(1, 0, False), (0, 1, False), (1, 1, True)])
def test_r84_evidence_gate_counts_both_sides(supporting: int, opposing: int, passes: bool) -> None:
    expected = () if passes else (RejectionReason.INSUFFICIENT_EVIDENCE,)
    assert rejections(trend(supporting=supporting, opposing=opposing)) == expected


@pytest.mark.parametrize(("direction", "passes"), [(O, False), (M, True), (P, True), (N, True)])
def test_r85_direction_gate(direction: TrendDirection, passes: bool) -> None:
    expected = () if passes else (RejectionReason.NEUTRAL_DIRECTION,)
    assert rejections(trend(direction)) == expected


def test_r86_all_failing_gates_are_reported() -> None:
    assert rejections(trend(O, 0.05, 0.1, 0.0, 1, 0)) == (
        RejectionReason.LOW_CONFIDENCE,
        RejectionReason.LOW_TREND_STRENGTH,
        RejectionReason.INSUFFICIENT_EVIDENCE,
        RejectionReason.NEUTRAL_DIRECTION,
    )


def test_r87_a_failed_gate_leaves_the_action_and_makes_it_informational() -> None:
    """Strength .4, negative, confidence .3: DEFER, not eligible, informational."""
    found = evaluate_eligibility(trend(confidence=0.3))
    assert (found.action, found.eligible, found.mode) == (Action.DEFER, False, Mode.INFORMATIONAL)


def test_r87_a_failed_gate_overrules_a_high_mode() -> None:
    """Confidence .9 alone would be production eligible; one document is not."""
    found = evaluate_eligibility(trend(confidence=0.9, opposing=1))
    assert (found.eligible, found.mode) == (False, Mode.INFORMATIONAL)


def test_r94_synthetic_ids_are_no_evidence() -> None:
    """Decisions 2 override G43: no recommendation is ever based on a single document."""
    summary = trend().model_copy(
        update={
            "top_supporting_evidence": ("pattern:Entity-A:performance_report:7d", "macro:e1", "d1"),
            "top_opposing_evidence": ("competitor:B:7d",),
        }
    )
    assert evidence_sides(summary) == (1, 0)
    assert rejections(summary) == (RejectionReason.INSUFFICIENT_EVIDENCE,)


# ----------------------------------------------------------------------------------------------- actions


@pytest.mark.parametrize("direction", [M, O])
def test_r88_mixed_and_neutral_are_observed_whatever_their_strength(direction: TrendDirection) -> None:
    assert evaluate_eligibility(trend(direction, 0.9, 0.9)).action is Action.OBSERVE


@pytest.mark.parametrize(
    ("direction", "strength", "action"),
    [
        (P, 0.25, Action.ACT),
        (N, 0.25, Action.DEFER),
        (P, 0.249999, Action.MONITOR),
        (N, 0.249999, Action.MONITOR),
    ],
)
def test_r89_a_strong_direction_is_followed(
    direction: TrendDirection, strength: float, action: Action
) -> None:
    assert evaluate_eligibility(trend(direction, strength)).action is action


@pytest.mark.parametrize(("confidence", "action"), [(0.5, Action.MONITOR), (0.499999, Action.OBSERVE)])
def test_r90_a_weak_direction_needs_confidence_to_be_monitored(confidence: float, action: Action) -> None:
    assert evaluate_eligibility(trend(P, 0.2, confidence)).action is action


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.sampled_from(list(TrendDirection)))
def test_r89_r90_mirrored_trends_have_mirrored_actions(
    strength: float, confidence: float, direction: TrendDirection
) -> None:
    """Nothing but the direction's sign separates ACT from DEFER."""
    mirror = {P: N, N: P, M: M, O: O}
    flip = {Action.ACT: Action.DEFER, Action.DEFER: Action.ACT}
    order = list(Action)
    found = actions(
        np.array([codes(TrendDirection)[d] for d in (direction, mirror[direction])]),
        np.full(2, strength),
        np.full(2, confidence),
        EligibilityConfig(),
    )
    first, second = (order[code] for code in found.tolist())
    assert second is flip.get(first, first)


# ------------------------------------------------------------------------------------------------- modes


@pytest.mark.parametrize("summary", [trend(M, 0.9, 0.95), trend(P, 0.2, 0.95)])
def test_r91_observe_and_monitor_are_informational(summary: TrendSummary) -> None:
    found = evaluate_eligibility(summary)
    assert found.action in {Action.OBSERVE, Action.MONITOR}
    assert (found.eligible, found.mode) == (True, Mode.INFORMATIONAL)


@pytest.mark.parametrize(
    ("confidence", "mode"), [(0.499999, Mode.INFORMATIONAL), (0.5, Mode.SIMULATION_ELIGIBLE)]
)
def test_r92_simulation_from_confidence_one_half(confidence: float, mode: Mode) -> None:
    assert evaluate_eligibility(trend(confidence=confidence)).mode is mode


@pytest.mark.parametrize(
    ("confidence", "contradiction", "evidence", "mode"),
    [
        (0.70, 0.25, 5, Mode.PRODUCTION_ELIGIBLE),
        (0.70, 0.250001, 5, Mode.SIMULATION_ELIGIBLE),
        (0.70, 0.25, 4, Mode.SIMULATION_ELIGIBLE),
        (0.699999, 0.25, 5, Mode.SIMULATION_ELIGIBLE),
    ],
)
def test_r93_production_needs_all_three(
    confidence: float, contradiction: float, evidence: int, mode: Mode
) -> None:
    found = evaluate_eligibility(trend(N, 0.4, confidence, contradiction, 0, evidence))
    assert found.mode is mode


# ---------------------------------------------------------------------------------------- expected value


def probabilistic(summary: TrendSummary, r_up: float | None, r_down: float | None) -> EligibilityResult:
    return evaluate_eligibility(summary, r_up=r_up, r_down=r_down, rule=expected_value)


def test_r191_expected_value_of_the_worked_examples() -> None:
    """.6 x .03 - .4 x .02 = .01; the design's .0082 is not what its own formula gives: .02112 (C10)."""
    assert probabilistic(trend(P, p_bull=0.6), 0.03, 0.02).ev == pytest.approx(0.01, abs=1e-12)
    assert probabilistic(trend(P, p_bull=0.72), 0.034, 0.012).ev == pytest.approx(0.02112, abs=1e-12)


def test_r192_a_sufficient_edge_changes_nothing() -> None:
    found = probabilistic(trend(P, p_bull=0.6), 0.03, 0.02)
    assert (found.mode, found.ev_reasons) == (Mode.PRODUCTION_ELIGIBLE, ())


def test_r192_exactly_the_threshold_fails() -> None:
    """One sided p = 1: EV = R_up exactly."""
    at = probabilistic(trend(P, p_bull=1.0), 0.005, 0.02)
    above = probabilistic(trend(P, p_bull=1.0), 0.0050001, 0.02)
    assert (at.mode, at.ev_reasons) == (Mode.INFORMATIONAL, (EvReason.LOW_EXPECTED_VALUE,))
    assert (above.mode, above.ev_reasons) == (Mode.PRODUCTION_ELIGIBLE, ())


def test_r192_a_failed_edge_is_no_rejection() -> None:
    found = probabilistic(trend(P, p_bull=0.5), 0.01, 0.01)
    assert (found.eligible, found.rejection_reasons, found.mode) == (True, (), Mode.INFORMATIONAL)


def test_c11_a_deferral_is_judged_on_the_fall_it_avoids() -> None:
    """P .28, R .012/.034: EV -.02112 is stored raw, the edge is +.02112."""
    found = probabilistic(trend(N, p_bull=0.28), 0.012, 0.034)
    assert found.ev == pytest.approx(-0.02112, abs=1e-12)
    assert found.ev_edge == pytest.approx(0.02112, abs=1e-12)
    assert found.mode is Mode.PRODUCTION_ELIGIBLE


def test_c11_the_literal_rule_is_a_setting() -> None:
    literal = EligibilityConfig(ev_directional=False)
    found = evaluate_eligibility(
        trend(N, p_bull=0.28), literal, r_up=0.012, r_down=0.034, rule=expected_value
    )
    assert found.ev_edge == pytest.approx(-0.02112, abs=1e-12)
    assert found.ev_reasons == (EvReason.LOW_EXPECTED_VALUE,)


def test_g26_without_returns_an_action_is_informational() -> None:
    found = probabilistic(trend(P, p_bull=0.9), None, None)
    assert (found.ev, found.r_up, found.r_down) == (None, None, None)
    assert (found.mode, found.ev_reasons) == (Mode.INFORMATIONAL, (EvReason.EV_UNAVAILABLE,))


@pytest.mark.parametrize("summary", [trend(M, p_bull=0.5), trend(P, 0.2, p_bull=0.5)])
def test_r192_only_act_and_defer_are_gated_but_the_value_is_stored(summary: TrendSummary) -> None:
    found = probabilistic(summary, 0.01, 0.01)
    assert (found.ev, found.ev_reasons) == (0.0, ())
    assert probabilistic(summary, None, None).ev_reasons == ()


def test_g28_sizes_follow_the_settings_and_the_probability() -> None:
    """(.02 + .8 x .5 x .5 x .06) times max(p, 1 - p)."""
    config = EligibilityConfig(base_allocation_pct=0.02, max_allocation_pct=0.08)
    found = evaluate_eligibility(trend(strength=0.0, confidence=0.5, p_bull=0.75), config).position_sizing
    assert found.allocation_pct == pytest.approx((0.02 + 0.4 * 0.5 * 0.06) * 0.75, abs=1e-12)
    plain = evaluate_eligibility(trend(strength=0.0, confidence=0.5), config).position_sizing
    assert plain.allocation_pct == pytest.approx(0.02 + 0.4 * 0.5 * 0.06, abs=1e-12)


def test_r191_the_result_carries_the_moves_it_was_made_of() -> None:
    found = probabilistic(trend(P, p_bull=0.6), 0.03, 0.01)
    assert (found.r_up, found.r_down) == (0.03, 0.01)


def test_r191_the_threshold_of_the_settings_in_force_is_asked() -> None:
    """.6 x .03 - .4 x .01 = .014 passes .005, not .02."""
    known = trend(P, p_bull=0.6)
    strict = EligibilityConfig(ev_threshold=0.02)
    assert probabilistic(known, 0.03, 0.01).ev_reasons == ()
    found = evaluate_eligibility(known, strict, r_up=0.03, r_down=0.01, rule=expected_value)
    assert found.ev_reasons == (EvReason.LOW_EXPECTED_VALUE,)


def test_without_an_expected_value_the_flags_are_still_flags() -> None:
    rows = no_expected_value(
        p_bull=np.full(2, 0.5),
        action=np.zeros(2, np.int64),
        moves=lambda: (np.zeros(2), np.zeros(2)),
        config=EligibilityConfig(),
    )
    assert (rows.failed.dtype, rows.failed.tolist()) == (np.bool_, [[False, False], [False, False]])


def test_the_heuristic_rule_has_no_expected_value() -> None:
    found = evaluate_eligibility(trend(P), r_up=0.0, r_down=0.5)
    assert (found.ev, found.ev_edge, found.ev_reasons) == (None, None, ())


@given(st.floats(0.5, 1.0), st.floats(0.0, 1.0), st.floats(1e-6, 1.0))
def test_r208_expected_value_follows_probability(p_bull: float, r_down: float, more: float) -> None:
    """Property 12 on its domain: R_up > R_down >= 0, p >= 1/2."""
    found = probabilistic(trend(P, p_bull=p_bull), r_down + more, r_down)
    assert found.ev is not None
    assert found.ev > 0.0


# ------------------------------------------------------------------------------------- R_up and R_down

DAY = 20_000
AS_OF_US = DAY * US_PER_DAY


def bars(closes: list[float], *, last_day: int = DAY - 1, entity: int = 0) -> BarRows:
    """Daily bars without gaps up to ``last_day``, each known at the next midnight."""
    day = np.arange(last_day - len(closes) + 1, last_day + 1)
    count = len(closes)
    return BarRows(np.full(count, entity), day, (day + 1) * US_PER_DAY, np.array(closes), np.ones(count))


def moves(
    rows: BarRows, config: EligibilityConfig | None = None, as_of_us: int = AS_OF_US
) -> tuple[float, float]:
    up, down = mean_moves(rows, 1, as_of_us, config or EligibilityConfig())
    return float(up[0]), float(down[0])


def test_g26_means_of_the_worked_example() -> None:
    """Returns .01, .03, .05, -.02, -.01 over seven equal days before: .03 up and .015 down."""
    closes = [100.0] * 7 + [101.0, 103.0, 105.0, 98.0, 99.0]
    assert moves(bars(closes), EligibilityConfig(ev_min_returns=5)) == pytest.approx((0.03, 0.015), abs=1e-12)


def test_g26_twenty_returns_are_needed_and_zeros_count() -> None:
    """27 bars settle 20 returns; of 26 only 19 are."""
    assert moves(bars([100.0] * 27)) == (0.0, 0.0)
    assert np.isnan(moves(bars([100.0] * 26))).all()


def test_g26_a_return_of_zero_is_on_neither_side() -> None:
    """Five returns over seven days: 0, 0, .1, .1, -.2; each mean is over its own side."""
    closes = [100.0] * 9 + [110.0, 110.0, 80.0]
    found = moves(bars(closes), EligibilityConfig(ev_min_returns=5))
    assert found == pytest.approx((0.1, 0.2), abs=1e-12)


def test_g26_a_side_without_moves_is_zero() -> None:
    up, down = moves(bars([100.0 * 1.01**n for n in range(40)]))
    assert up == pytest.approx(1.01**7 - 1.0, abs=1e-12)
    assert down == 0.0


def test_g26_a_return_counts_when_it_is_settled_by_as_of() -> None:
    """The 20th return of 27 bars settles exactly at as_of; a microsecond earlier it is not there."""
    rows = bars([100.0] * 27)
    assert moves(rows, as_of_us=AS_OF_US) == (0.0, 0.0)
    assert np.isnan(moves(rows, as_of_us=AS_OF_US - 1)).all()


def test_g26_only_bars_of_the_last_250_days_start_a_return() -> None:
    """A crash before the lookback is forgotten; the bar dated exactly 250 days back still starts one."""
    crash = [100.0] * 8 + [50.0] * 250
    assert moves(bars(crash)) == (0.0, 0.0)
    later = [100.0] * 9 + [50.0] * 249
    assert moves(bars(later))[1] == 0.5


def test_g26_entities_do_not_mix_and_row_order_is_irrelevant() -> None:
    rising, falling = bars([100.0 + n for n in range(40)]), bars([200.0 - n for n in range(40)], entity=1)
    both = BarRows(
        *(
            np.concatenate((getattr(falling, name), getattr(rising, name)))[::-1]
            for name in ("entity", "day", "known_us", "close", "volume")
        )
    )
    up, down = mean_moves(both, 3, AS_OF_US, EligibilityConfig())
    assert (up[0] > 0.0, down[0], up[1], down[1] > 0.0) == (True, 0.0, 0.0, True)
    assert np.isnan([up[2], down[2]]).all()
