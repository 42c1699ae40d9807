"""From signals to a trend: average, direction, confidence, catalysts, risks (R8-R16, R30-R40, R181-R184)."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.bayesian import BayesianPosterior, compute_bayesian_posterior
from oracle_core.config import OracleConfig, RegimeConfig, TrendConfig
from oracle_core.contradiction import detect_contradictions
from oracle_core.enums import MarketRegime, PipelineMode, SignalLayer, TrendDirection, Window
from oracle_core.frames import TrendFrame
from oracle_core.records import TrendSummary, WeightedSignal
from oracle_core.regime import RegimeClassification, classify_from_indicators
from oracle_core.rules import HEURISTIC, PROBABILISTIC
from oracle_core.trend import (
    assemble_trend_summary,
    compute_bayesian_trend_confidence,
    compute_trend_confidence,
    derive_probabilistic_direction,
    derive_trend_direction,
    strengths,
    support_of_signals,
    weighted_sentiment_average,
)
from tests.strategies import AS_OF_US, NAN, Bar, Document, World, signal

MIXED, POSITIVE = TrendDirection.MIXED, TrendDirection.POSITIVE
NEGATIVE, NEUTRAL = TrendDirection.NEGATIVE, TrendDirection.NEUTRAL
CONFIG = OracleConfig()
ON = CONFIG.with_settings({"flags.probabilistic_scoring_enabled": True})
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
UNCERTAIN = classify_from_indicators(0.0, None)


def summary(
    signals: list[WeightedSignal],
    mode: PipelineMode = PipelineMode.HEURISTIC,
    **more: Any,  # noqa: ANN401
) -> TrendSummary:
    probabilistic = mode is PipelineMode.PROBABILISTIC
    return assemble_trend_summary(
        signals,
        entity_id="a",
        window=Window.SEVEN_DAYS,
        generated_at=NOW,
        config=ON if probabilistic else CONFIG,
        rules=PROBABILISTIC if probabilistic else HEURISTIC,
        **more,
    )


def agreeing(
    count: int,
    credibility: float = 0.6,
    sentiment: float = -1.0,
    **more: Any,  # noqa: ANN401
) -> list[WeightedSignal]:
    return [signal(f"d{n}", 1.0, sentiment, credibility=credibility, **more) for n in range(count)]


# ------------------------------------------------------------------------------------ heuristic direction


@pytest.mark.parametrize(
    ("average", "contradiction", "expected"),
    [
        (0.20, 0.40, MIXED),
        (-0.20, 0.40, MIXED),
        (0.08, 0.444444, MIXED),
        (0.08, 0.10, NEUTRAL),
        (0.08, 0.100001, MIXED),
        (0.299999, 0.40, MIXED),
        (0.30, 0.40, POSITIVE),
        (-0.30, 0.40, NEGATIVE),
    ],
)
def test_r8_r9_mixed_first(average: float, contradiction: float, expected: TrendDirection) -> None:
    assert derive_trend_direction(average, contradiction) is expected


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        (0.15, POSITIVE),
        (0.149999, NEUTRAL),
        (-0.15, NEGATIVE),
        (-0.149999, NEUTRAL),
        (0.0, NEUTRAL),
        (1.0, POSITIVE),
        (-1.0, NEGATIVE),
    ],
)
def test_r10_r11_r12_thresholds_are_inclusive(average: float, expected: TrendDirection) -> None:
    assert derive_trend_direction(average, 0.05) is expected


def test_r9_r10_r11_thresholds_are_those_of_the_configuration() -> None:
    config = TrendConfig(
        mixed_threshold=0.2, mixed_sentiment_bound=0.5, positive_threshold=0.4, negative_threshold=-0.6
    )
    found = [
        derive_trend_direction(*pair, config)
        for pair in ((0.45, 0.25), (0.45, 0.2), (0.39, 0.2), (-0.59, 0.0), (-0.6, 0.0))
    ]
    assert found == [MIXED, POSITIVE, NEUTRAL, NEUTRAL, NEGATIVE]


def test_r13_five_against_four() -> None:
    """Impact .72 gives the average +.08, contradiction 4/9, so contested, not neutral."""
    signals = [signal(f"p{n}", impact=0.72) for n in range(5)]
    signals += [signal(f"n{n}", sentiment=-1.0, impact=0.72) for n in range(4)]
    found = summary(signals)
    assert weighted_sentiment_average(signals) == pytest.approx(0.08)
    assert found.contradiction_score == pytest.approx(0.444444, abs=1e-6)
    assert found.trend_direction is MIXED


def test_r14_the_four_directions() -> None:
    assert [d.value for d in TrendDirection] == ["positive", "negative", "mixed", "neutral"]


# ---------------------------------------------------------------------------------------------- average


def test_r15_r16_average_and_strength() -> None:
    """Sum w i s over sum w = .82 / 1.7; over sum w i it would be .672131 (G6)."""
    signals = [signal("a", 0.8, 1.0, 0.9), signal("b", 0.5, 1.0, 0.6), signal("c", 0.4, -1.0, 0.5)]
    assert weighted_sentiment_average(signals) == pytest.approx(0.482353, abs=1e-6)
    mirrored = [replace(s, sentiment_value=-s.sentiment_value) for s in signals]
    assert weighted_sentiment_average(mirrored) == pytest.approx(-0.482353, abs=1e-6)
    assert summary(mirrored).trend_strength == pytest.approx(0.482353, abs=1e-6)
    assert summary(mirrored).trend_direction is NEGATIVE


def test_r16_one_signal_averages_its_impact_and_none_averages_0() -> None:
    assert weighted_sentiment_average([signal("a", 0.3, -1.0, 0.63)]) == pytest.approx(-0.63)
    assert weighted_sentiment_average([signal("a", 0.0)]) == 0.0
    assert weighted_sentiment_average([]) == 0.0


def test_r16_rounding_does_not_lead_beyond_1() -> None:
    """Added from the left .7, .2 and .9 are less than their exact sum."""
    for sign in (1.0, -1.0):
        assert (
            weighted_sentiment_average([signal(f"d{n}", w, sign) for n, w in enumerate((0.7, 0.2, 0.9))])
            == sign
        )


def test_r15_a_modified_strength_is_at_most_1() -> None:
    found = strengths(np.array([0.9, -0.9, 0.4, -0.4]), np.array([2.0, 2.0, 1.15, 0.85]))
    assert found == pytest.approx([1.0, 1.0, 0.46, 0.34])


def test_r16_a_neutral_signal_dilutes_the_average() -> None:
    assert weighted_sentiment_average([signal("a", 1.0), signal("b", 3.0, 0.0)]) == 0.25


# ------------------------------------------------------------------------------- heuristic confidence


def test_r30_unique_sources_are_distinct_documents_of_active_signals() -> None:
    """Synthetic ids corroborate nothing (decisions 2)."""
    signals = [
        signal("a"),
        signal("a"),
        signal("b"),
        signal("c", 0.0),
        signal("macro:e", layer=SignalLayer.MACRO),
    ]
    found = support_of_signals(signals)
    assert found.unique_sources.tolist() == [2]


@pytest.mark.parametrize(
    ("count", "factor"),
    [(1, 0.0666667), (2, 0.133333), (4, 0.266667), (11, 0.733333), (12, 0.8), (15, 0.8), (40, 0.8)],
)
def test_r31_count_factor(count: int, factor: float) -> None:
    """C15: it is full at 12, not at 15."""
    config = TrendConfig(
        confidence_count_weight=1.0, confidence_credibility_weight=0.0, confidence_agreement_weight=0.0
    )
    assert compute_trend_confidence(agreeing(count), 0.0, config) == pytest.approx(factor, abs=1e-6)


def test_r32_credibility_is_the_plain_mean_over_active_signals() -> None:
    signals = [signal("a", 9.0, credibility=0.9), signal("b", credibility=0.6), signal("c", credibility=0.3)]
    off = signal("d", 0.0, credibility=0.0)
    assert support_of_signals([*signals, off]).average_credibility[0] == pytest.approx(0.6)
    synthetic = signal("macro:e", credibility=1.0, layer=SignalLayer.MACRO)
    assert support_of_signals([*signals, synthetic]).average_credibility[0] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("positive", "negative", "neutral", "expected"),
    [(8, 2, 0, 0.8), (2, 8, 0, 0.8), (5, 5, 0, 0.5), (0, 0, 4, 0.0), (1, 0, 9, 1.0)],
)
def test_r33_raw_agreement(positive: int, negative: int, neutral: int, expected: float) -> None:
    signals = (
        [signal(f"p{n}") for n in range(positive)]
        + [signal(f"n{n}", sentiment=-1.0) for n in range(negative)]
        + [signal(f"z{n}", sentiment=0.0) for n in range(neutral)]
    )
    assert support_of_signals(signals).agreement[0] == expected


@pytest.mark.parametrize(
    ("count", "dampener"),
    [
        (1, 0.333333),
        (2, 0.528321),
        (3, 0.666667),
        (4, 0.773976),
        (5, 0.861654),
        (6, 0.935785),
        (7, 1.0),
        (30, 1.0),
    ],
)
def test_r34_r35_dampened_agreement(count: int, dampener: float) -> None:
    """Unanimous, so the agreement is the dampener."""
    config = TrendConfig(
        confidence_count_weight=0.0, confidence_credibility_weight=0.0, confidence_agreement_weight=1.0
    )
    assert compute_trend_confidence(agreeing(count), 0.0, config) == pytest.approx(dampener, abs=1e-6)


@pytest.mark.parametrize(("contradiction", "penalty"), [(0.5, 0.2), (0.4, 0.16), (0.0, 0.0)])
def test_r36_contradiction_penalty(contradiction: float, penalty: float) -> None:
    signals = agreeing(10)
    found = compute_trend_confidence(signals, 0.0) - compute_trend_confidence(signals, contradiction)
    assert found == pytest.approx(penalty)


def test_r37_confidence() -> None:
    assert compute_trend_confidence(agreeing(4), 0.0) == pytest.approx(0.569590, abs=1e-6)
    signals = agreeing(8, 0.7, 1.0) + [signal(f"n{n}", sentiment=-1.0, credibility=0.7) for n in range(2)]
    assert compute_trend_confidence(signals, 0.2) == pytest.approx(0.65)
    assert summary(signals).confidence == pytest.approx(0.65)


def test_r37_confidence_is_clamped() -> None:
    assert compute_trend_confidence(agreeing(1, 0.0), 5.0) == 0.0
    assert compute_trend_confidence(agreeing(20), 0.0, TrendConfig(confidence_count_weight=9.0)) == 1.0


def test_r38_no_active_signal_no_confidence() -> None:
    assert compute_trend_confidence([], 0.0) == 0.0
    assert compute_trend_confidence([signal("a", 0.0)], 0.0) == 0.0


def test_g10_all_neutral_signals_have_no_agreement() -> None:
    assert compute_trend_confidence(agreeing(4, sentiment=0.0), 0.0) == pytest.approx(0.26)


@pytest.mark.parametrize(
    ("count", "credibility", "expected"),
    [(1, 0.6, 0.333333), (2, 0.6, 0.431328), (4, 0.6, 0.569590), (6, 0.7, 0.704314)],
)
def test_r39_agreeing_evidence_escalates(count: int, credibility: float, expected: float) -> None:
    found = summary(agreeing(count, credibility))
    assert found.confidence == pytest.approx(expected, abs=1e-6)
    assert found.trend_direction is NEGATIVE


def test_r40_a_dissenting_fifth_document_de_escalates() -> None:
    found = summary([*agreeing(4), signal("fifth", credibility=0.6)])
    assert found.contradiction_score == pytest.approx(0.2)
    assert found.confidence == pytest.approx(0.475729, abs=1e-6)


def test_r148_a_signal_that_is_no_number_changes_nothing() -> None:
    clean = summary(agreeing(3))
    for fault in (
        {"combined": NAN},
        {"sentiment": NAN},
        {"impact": NAN},
        {"credibility": NAN},
        {"recency": NAN},
    ):
        assert summary([*agreeing(3), signal("bad", **fault)]) == clean


# ----------------------------------------------------------------------------------------------- labels


def trends_of(world: World, config: OracleConfig = CONFIG) -> TrendFrame:
    signals = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)
    return cycle.assemble_trends(signals, world.inputs(), AS_OF_US, config)


def test_g11_dominant_catalysts_by_effective_weight_ties_by_name_at_most_five() -> None:
    weights = {"z": 0.9, "y": 0.4, "x": 0.3, "c": 0.25, "b": 0.25, "a": 0.1}
    signals = [signal(name, weight, catalyst_type=name) for name, weight in weights.items()]
    assert summary(signals).dominant_catalysts == ("z", "y", "x", "b", "c")


def test_g11_catalysts_sum_up_directional_signals_only() -> None:
    signals = [
        signal("1", 0.3, catalyst_type="often"),
        signal("2", 0.3, -1.0, catalyst_type="often"),
        signal("3", 0.5, catalyst_type="once"),
        signal("4", 9.0, 0.0, catalyst_type="neutral"),
        signal("5", 9.0, 1.0, 0.0, catalyst_type="no impact"),
        signal("6", 9.0),
    ]
    assert summary(signals).dominant_catalysts == ("often", "once")


def test_g11_ties_are_exact_whatever_the_order_of_the_sum() -> None:
    """.1 + .2 + .3 and .3 + .2 + .1 differ in floats; equal evidence must not be ranked by dust."""
    signals = [signal(f"b{n}", w, catalyst_type="b") for n, w in enumerate((0.1, 0.2, 0.3))]
    signals += [signal(f"a{n}", w, catalyst_type="a") for n, w in enumerate((0.3, 0.2, 0.1))]
    assert summary(signals).dominant_catalysts == ("a", "b")
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1


def test_g11_material_risks_of_all_active_signals() -> None:
    """A neutral document's risk counts; negative ones do not come first (decisions 3)."""
    signals = [
        signal("1", 0.3, -1.0, risks=("litigation",)),
        signal("2", 0.5, 0.0, risks=("supply", "litigation")),
        signal("3", 0.9, 1.0, risks=("debt", "fraud")),
        signal("4", 0.0, 1.0, risks=("inactive",)),
        signal("5", 1.0, 1.0, 0.0, risks=("no impact",)),
    ]
    assert summary(signals).material_risks == ("debt", "fraud", "litigation", "supply")
    assert len(summary([signal("1", risks=tuple("abcdefg"))]).material_risks) == 5


def test_lists_of_keys_do_not_mix() -> None:
    world = World(
        documents=(
            Document("d1", "a", catalyst="legal", risks=("r1",)),
            Document("d2", "b", catalyst="dividend", risks=("r2",), age_hours=20.0),
        )
    )
    found = trends_of(world)
    assert found.dominant_catalysts == [["legal"]] * 5 + [[]] + [["dividend"]] * 4
    assert found.material_risks == [["r1"]] * 5 + [[]] + [["r2"]] * 4
    assert found.supporting == [["d1"]] * 5 + [[]] + [["d2"]] * 4


# ---------------------------------------------------------------------------------------- probabilistic


def posterior(p_bull: float) -> BayesianPosterior:
    """The posterior of one signal that gives this probability."""
    log_odds = math.log(p_bull / (1.0 - p_bull))
    return compute_bayesian_posterior([signal("a", abs(log_odds), math.copysign(1.0, log_odds))])


def regime(name: MarketRegime) -> RegimeClassification:
    indicators = {
        MarketRegime.PANIC: (-1.0, 1.6),
        MarketRegime.TREND_FOLLOWING: (1.0, 1.0),
        MarketRegime.MEAN_REVERSION: (0.0, 0.9),
        MarketRegime.UNCERTAINTY: (0.0, 1.5),
    }
    found = classify_from_indicators(*indicators[name])
    assert found.regime is name
    return found


@pytest.mark.parametrize(
    ("p_bull", "expected"),
    [
        (0.7, POSITIVE),
        (0.66, MIXED),
        (0.5, NEUTRAL),
        (0.3, NEGATIVE),
        (0.34, MIXED),
        (0.9, POSITIVE),
        (0.1, NEGATIVE),
    ],
)
def test_r181_direction_from_entropy_then_probability(p_bull: float, expected: TrendDirection) -> None:
    """At .66 the entropy .924818 comes first (C4)."""
    made = posterior(p_bull) if p_bull != 0.5 else BayesianPosterior.PRIOR
    assert derive_probabilistic_direction(made, UNCERTAIN) is expected


def test_r181_balanced_evidence_is_mixed_but_none_is_neutral() -> None:
    balanced = compute_bayesian_posterior([signal("a"), signal("b", sentiment=-1.0)])
    assert derive_probabilistic_direction(balanced, UNCERTAIN) is MIXED
    assert derive_probabilistic_direction(BayesianPosterior.PRIOR, UNCERTAIN) is NEUTRAL


@pytest.mark.parametrize(("p_bull", "expected"), [(0.65, NEUTRAL), (0.35, NEUTRAL), (0.66, POSITIVE)])
def test_r181_thresholds_are_exclusive(p_bull: float, expected: TrendDirection) -> None:
    made = replace(posterior(0.9), p_bull=p_bull, entropy=0.9)
    assert derive_probabilistic_direction(made, UNCERTAIN) is expected
    mixed = replace(made, entropy=0.900001)
    assert derive_probabilistic_direction(mixed, UNCERTAIN) is MIXED


@pytest.mark.parametrize(
    ("name", "p_bull", "expected"),
    [
        (MarketRegime.MEAN_REVERSION, 0.69, NEUTRAL),
        (MarketRegime.MEAN_REVERSION, 0.71, POSITIVE),
        (MarketRegime.MEAN_REVERSION, 0.31, NEUTRAL),
        (MarketRegime.MEAN_REVERSION, 0.29, NEGATIVE),
        (MarketRegime.UNCERTAINTY, 0.69, POSITIVE),
        (MarketRegime.PANIC, 0.69, POSITIVE),
    ],
)
def test_r182_thresholds_follow_the_regime(
    name: MarketRegime, p_bull: float, expected: TrendDirection
) -> None:
    assert derive_probabilistic_direction(posterior(p_bull), regime(name)) is expected


@pytest.mark.parametrize(("p_bull", "expected"), [(0.601, POSITIVE), (0.6, NEUTRAL), (0.399, NEGATIVE)])
def test_r182_a_panic_starts_at_a_tenth_where_entropy_lets_it(
    p_bull: float, expected: TrendDirection
) -> None:
    """With the default entropy bound the panic threshold has no effect (C4)."""
    free = TrendConfig(entropy_mixed_threshold=1.0)
    assert derive_probabilistic_direction(posterior(p_bull), regime(MarketRegime.PANIC), free) is expected


def test_r150_all_neutral_signals_are_neutral_without_contradiction() -> None:
    """C5: p = 1/2 has entropy 1, which would read as mixed."""
    found = summary(agreeing(4, sentiment=0.0), PipelineMode.PROBABILISTIC)
    assert found.trend_direction is NEUTRAL
    assert found.contradiction_score == 0.0
    assert (found.p_bull, found.entropy, found.bayesian_confidence) == (0.5, 1.0, 0.0)


def test_r181_evidence_too_small_for_floats_is_still_evidence() -> None:
    """1 + 1e-20 is 1, but something was said: contested, not silent."""
    found = summary([signal("a", 1e-20)], PipelineMode.PROBABILISTIC)
    assert (found.alpha, found.trend_direction) == (1.0, MIXED)


def test_r184_confidence_of_the_posterior_less_the_regimes_penalty() -> None:
    """Mass 9 against 1: C = .444444, entropy .468996; .4 of it taken off, .6 under uncertainty."""
    signals = [signal("a", 9.0), signal("b", 1.0, -1.0)]
    found = compute_bayesian_posterior(signals)
    contradiction = detect_contradictions(signals, PROBABILISTIC.contradiction_score).score
    assert contradiction == pytest.approx(0.468996, abs=1e-6)
    trending = compute_bayesian_trend_confidence(found, contradiction, regime(MarketRegime.TREND_FOLLOWING))
    assert trending == pytest.approx(0.256846, abs=1e-6)
    assert compute_bayesian_trend_confidence(found, contradiction, UNCERTAIN) == pytest.approx(
        0.444444 - 0.6 * 0.468996, abs=1e-6
    )


def test_r184_unanimous_evidence_keeps_the_whole_confidence_and_the_result_is_clamped() -> None:
    found = compute_bayesian_posterior([signal("a", 2.7), signal("b", 0.2)])
    assert compute_bayesian_trend_confidence(found, 0.0, UNCERTAIN) == found.bayesian_confidence
    assert compute_bayesian_trend_confidence(found, 1.0, UNCERTAIN) == 0.0


def test_r185_the_optional_fields_are_there_in_one_mode_only() -> None:
    signals = agreeing(3)
    plain, other = summary(signals), summary(signals, PipelineMode.PROBABILISTIC)
    assert (plain.p_bull, plain.alpha, plain.beta_param, plain.entropy, plain.regime) == (None,) * 5
    assert (plain.pipeline_mode, other.pipeline_mode) == tuple(PipelineMode)
    assert other.p_bull == pytest.approx(1.0 / (1.0 + math.exp(3.0)))
    assert (other.alpha, other.beta_param, other.regime) == (1.0, 4.0, "uncertainty")
    assert other.trend_strength == plain.trend_strength == 1.0, "C42: strength is the average in both modes"


def test_the_market_of_a_trend_is_that_of_its_own_entity() -> None:
    bars = tuple(Bar("b", n, 100.0 * 1.01 ** (-n), 1000.0 + n) for n in range(1, 160))
    world = World(documents=(Document("d", "a"), Document("e", "b")), bars=bars)
    for config in (CONFIG, ON):
        rows = trends_of(world, config).rows
        assert rows.price_change_pct[5:] == pytest.approx(1.0)
        assert all(math.isnan(value) for value in rows.price_change_pct[:5])
        assert all(math.isnan(value) for value in rows.volatility[:5])
        assert rows.volume_change_pct[5] == pytest.approx(100.0 * (1001.0 / 1011.5 - 1.0))
    names = [list(MarketRegime)[code] for code in rows.regime]
    assert names == [MarketRegime.UNCERTAINTY] * 5 + [MarketRegime.TREND_FOLLOWING] * 5
    assert rows.regime_volatility_ratio[5] < 1.2
    assert set(trends_of(world).rows.regime.tolist()) == {-1}


def test_layer_counts_are_of_active_signals() -> None:
    world = World(documents=(Document("d", "a"), Document("off", "a", confidence=0.1)))
    assert trends_of(world).rows.entity_signals.tolist() == [1] * 5
    assert trends_of(world, ON).rows.entity_signals.tolist() == [2] * 5


def test_regime_settings_reach_the_trend() -> None:
    bars = tuple(Bar("a", n, 100.0 * 1.01 ** (-n)) for n in range(1, 160))
    world = World(documents=(Document("d", "a"),), bars=bars)
    never = ON.with_settings({"regime.trend_vol_ratio": 0.0})
    assert RegimeConfig().trend_vol_ratio == 1.2
    assert {list(MarketRegime)[c] for c in trends_of(world, never).rows.regime} == {MarketRegime.UNCERTAINTY}


def test_a_document_of_two_neighbouring_keys_is_a_source_of_both() -> None:
    found = trends_of(World(documents=(Document("d", "a"), Document("d", "b"))))
    assert found.rows.unique_sources.tolist() == [1] * 10
    assert found.keys.entity.tolist() == [0] * 5 + [1] * 5


def test_settings_of_the_market_context_reach_the_trend() -> None:
    """And so does every entity, however many there are."""
    bars = tuple(Bar(f"e{n:02d}", k, 100.0 + k % 3, 1000.0) for n in range(30) for k in range(1, 9))
    world = World(bars=bars)
    assert all(math.isnan(value) for value in trends_of(world).rows.volatility)
    short = CONFIG.with_settings({"scoring.volatility_period_days": 5})
    found = trends_of(world, short).rows.volatility
    assert len(found) == 150
    assert all(value > 0.0 for value in found)


def test_a_summary_carries_everything_of_the_trend() -> None:
    closes = [100.0 * 1.01**n for n in range(120)]
    signals = [
        signal("a", 2.0, catalyst_type="legal", risks=("fraud",)),
        signal("b", 1.0, -1.0, 0.5, catalyst_type="legal"),
    ]
    found = summary(signals, PipelineMode.PROBABILISTIC, closes=closes, volumes=[100.0] * 119 + [150.0])
    assert [detail["dimension"] for detail in found.disagreement_details] == ["sentiment", "catalyst:legal"]
    assert (found.top_supporting_evidence, found.top_opposing_evidence) == (("a",), ("b",))
    assert (found.dominant_catalysts, found.material_risks) == (("legal",), ("fraud",))
    assert found.regime == "trend_following"
    assert found.market_context["volume_change_pct"] == pytest.approx(50.0)
    assert found.market_context["price_change_pct"] == pytest.approx(1.0)
    assert found.market_context["volatility"] == pytest.approx(0.0, abs=1e-9)
    assert (found.entity_id, found.window, found.generated_at) == ("a", Window.SEVEN_DAYS, NOW)
    unknown = summary(signals, closes=closes)
    assert unknown.market_context["volume_change_pct"] is None
    assert unknown.market_context["price_change_pct"] == pytest.approx(1.0)


def test_the_volatility_of_a_single_trend_is_over_the_days_of_the_settings() -> None:
    """Returns 0, .1, 0: their sigma is .1 x sqrt(2) / 3; twenty would not be there."""
    found = assemble_trend_summary(
        [signal("a")],
        entity_id="a",
        window=Window.SEVEN_DAYS,
        generated_at=NOW,
        config=CONFIG.with_settings({"scoring.volatility_period_days": 3}),
        rules=HEURISTIC,
        closes=[100.0, 100.0, 110.0, 110.0],
    )
    assert found.market_context["volatility"] == pytest.approx(4.714045, abs=1e-6)
