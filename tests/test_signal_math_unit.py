"""The design's table of examples, row by row (R170-R174, R211)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.bayesian import BayesianPosterior, compute_bayesian_posterior
from oracle_core.competitive import attenuated_transfer
from oracle_core.config import CompetitiveConfig, EligibilityConfig, MacroConfig, OracleConfig, ScoringConfig
from oracle_core.eligibility import expected_value
from oracle_core.enums import Action, EvReason, MarketRegime, PipelineMode, TrendDirection
from oracle_core.macro import multiplicative_impact
from oracle_core.projection import compute_trend_momentum, ew_momentum
from oracle_core.regime import classify_from_indicators
from oracle_core.rules import HEURISTIC, PROBABILISTIC, rules_for
from oracle_core.scoring import BASE_RATE_ALIASES, adaptive_half_life, base_rate, info_gain, sigmoid_gate
from oracle_core.source_accuracy import SourceAccuracy
from oracle_core.trend import derive_probabilistic_direction
from tests.strategies import AS_OF_US, Document, Event, Exposure, World, signal

SCORING = ScoringConfig()


def column(*values: float) -> Any:  # noqa: ANN401
    return np.array(values, np.float64)


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [
        (0.0, 0.0758582),
        (0.2, 0.182426),
        (0.3, 0.268941),
        (0.5, 0.5),
        (0.65, 0.679179),
        (0.8, 0.817574),
        (1.0, 0.924142),
    ],
)
def test_r170_sigmoid_gate(confidence: float, expected: float) -> None:
    assert sigmoid_gate(column(confidence), SCORING)[0] == pytest.approx(expected, abs=1e-6)


def test_c2_the_designs_gate_examples_need_twice_the_steepness() -> None:
    """Below .05 at x = .2 and above .95 at x = .8: true at k = 10, not at the named default of 5."""
    steep = ScoringConfig(sigmoid_steepness=10.0)
    low, high = sigmoid_gate(column(0.2, 0.8), steep)
    assert low == pytest.approx(0.0474259, abs=1e-6)
    assert high == pytest.approx(0.952574, abs=1e-6)
    assert low < 0.05
    assert high > 0.95
    assert sigmoid_gate(column(0.2), SCORING)[0] > 0.05


def test_uninformative_prior() -> None:
    """R211, second row of the table."""
    found = compute_bayesian_posterior([])
    assert (found.p_bull, found.alpha, found.beta, found.bayesian_confidence) == (0.5, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("catalyst", "factor"),
    [
        ("earnings", 1.60000),
        ("product_launch", 1.99658),
        ("regulatory", 2.09316),
        ("legal", 2.29658),
        ("m_and_a", 2.51767),
        ("management_change", 2.21767),
        ("partnership", 1.91767),
        ("market_expansion", 2.04218),
        ("restructuring", 2.39316),
        ("dividend", 1.82109),
        ("performance_report", 1.60000),
        ("unheard of", 1.99658),
        (None, 1.99658),
    ],
)
def test_r171_information_gain_of_every_catalyst(catalyst: str | None, factor: float) -> None:
    """C25: performance_report is looked up as earnings."""
    rate = base_rate(catalyst, SCORING)
    assert info_gain(column(rate), SCORING)[0] == pytest.approx(factor, abs=1e-5)


def test_r172_an_unknown_or_invalid_rate_is_the_default() -> None:
    assert base_rate("unheard of", SCORING) == base_rate(None, SCORING) == 0.1
    for rate in (0.0, -1.0, 1.5, float("nan")):
        assert info_gain(column(rate), SCORING)[0] == pytest.approx(1.99658, abs=1e-5)
    own = ScoringConfig(event_type_base_rates={"legal": 0.5}, default_base_rate=0.2)
    assert [base_rate(name, own) for name in ("legal", "earnings", None)] == [0.5, 0.2, 0.2]
    assert BASE_RATE_ALIASES == {"performance_report": "earnings"}


def test_r173_clamp_of_the_information_gain() -> None:
    """Unclamped a rate of .001 gives 3.98974; the table's rarest gives 2.51767 (C12)."""
    assert info_gain(column(0.001), SCORING)[0] == 3.0
    assert info_gain(column(0.001), ScoringConfig(info_gain_max=9.0))[0] == pytest.approx(3.98974, abs=1e-5)
    assert info_gain(column(1.0), SCORING)[0] == 1.0
    assert info_gain(column(0.00984313), SCORING)[0] == pytest.approx(3.0, abs=1e-6)


@pytest.mark.parametrize(("samples", "factor"), [(9, 1.0), (10, 1.4)])
def test_source_accuracy_threshold(samples: int, factor: float) -> None:
    found = SourceAccuracy("s", 0.9, samples, datetime(2026, 1, 1, tzinfo=UTC))
    assert found.accuracy_factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("impact", "gain", "market", "expected"),
    [
        (0.0, 1.0, 1.0, 24.0),
        (1.0, 3.0, 1.45, 144.0),
        (0.7, 2.0931568569, 1.2, 77.1227),
        (1.0, 1.0, 1.0, 48.0),
        (0.0, 3.0, 1.0, 48.0),
        (0.0, 1.0, 1.45, 36.0),
        (1.0, 2.51767, 1.45, 126.636),
    ],
)
def test_r174_adaptive_half_life(impact: float, gain: float, market: float, expected: float) -> None:
    """From the base to six times the base; 5.2765 times with the catalysts of the table (C12)."""
    found = adaptive_half_life(column(24.0), column(impact), column(gain), column(market), SCORING)
    assert found[0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("trend", "ratio", "expected"),
    [
        (-1, 1.6, MarketRegime.PANIC),
        (1, 1.19, MarketRegime.TREND_FOLLOWING),
        (0, 0.99, MarketRegime.MEAN_REVERSION),
        (0, 1.0, MarketRegime.UNCERTAINTY),
    ],
)
def test_regime_classification(trend: int, ratio: float, expected: MarketRegime) -> None:
    assert classify_from_indicators(trend, ratio).regime is expected


@pytest.mark.parametrize(("indicators", "threshold"), [((-1, 1.6), 0.10), ((0, 0.9), 0.20), ((1, 1.0), 0.15)])
def test_regime_thresholds(indicators: tuple[int, float], threshold: float) -> None:
    assert classify_from_indicators(*indicators).bullish_threshold == threshold


@pytest.mark.parametrize(
    ("weight", "sentiment", "expected"),
    [
        (1.0, 1.0, TrendDirection.POSITIVE),
        (1.0, -1.0, TrendDirection.NEGATIVE),
        (0.5, 1.0, TrendDirection.MIXED),
        (1.0, 0.0, TrendDirection.NEUTRAL),
    ],
)
def test_entropy_direction(weight: float, sentiment: float, expected: TrendDirection) -> None:
    """L = 1 gives p = .731; L = .5 gives p = .622, whose entropy .956 is above .9."""
    found = compute_bayesian_posterior([signal("a", weight, sentiment)])
    assert derive_probabilistic_direction(found, classify_from_indicators(0.0, None)) is expected


def test_zero_overlap_is_zero_impact_and_full_overlap_724() -> None:
    table = np.array([[0.0] * 4, [1.0] * 4])
    found = multiplicative_impact(table, column(0.8, 0.8), MacroConfig())
    assert found[0] == 0.0
    assert found[1] == pytest.approx(0.8 * 0.724, abs=5e-4)


def test_macro_fallbacks() -> None:
    """Only macro: additive; only documents: no modifier."""
    config = OracleConfig().with_settings({"flags.probabilistic_scoring_enabled": True})
    events, exposures = (Event("e"),), (Exposure("a", "geo", "us", 1.0),)

    def trend(world: World) -> Any:  # noqa: ANN401
        frame = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)
        return cycle.assemble_trends(frame, world.inputs(), AS_OF_US, config)

    only_macro = trend(World(events=events, exposures=exposures))
    assert only_macro.supporting[0] == ["macro:e"]
    assert only_macro.rows.macro_modifier[0] == 1.0
    only_documents = trend(World((Document("d", "a"),)))
    assert only_documents.rows.macro_modifier[0] == 1.0
    both = trend(World((Document("d", "a"),), events=events, exposures=exposures))
    assert both.rows.macro_modifier[0] > 1.0


@pytest.mark.parametrize(("distance", "passes"), [(1, True), (3, True), (4, False), (0, False)])
def test_graph_distance_cut(distance: int, *, passes: bool) -> None:
    found = attenuated_transfer(column(0.6), column(0.8), np.array([distance]), CompetitiveConfig())
    assert bool(found[0] != 0.0) is passes


def test_momentum_falls_back_without_an_earlier_cycle() -> None:
    assert compute_trend_momentum(-0.4, rule=ew_momentum) == pytest.approx(-0.2)
    assert compute_trend_momentum(-0.4, [-0.3], rule=ew_momentum) == pytest.approx(-0.1)


@pytest.mark.parametrize(("value", "passes"), [(0.0100, True), (0.0051, True), (0.005, False), (-0.1, False)])
def test_expected_value_threshold(value: float, *, passes: bool) -> None:
    found = expected_value(
        p_bull=column(1.0),
        action=np.array([list(Action).index(Action.ACT)]),
        moves=lambda: (column(value), column(0.0)),
        config=EligibilityConfig(),
    )
    low = list(EvReason).index(EvReason.LOW_EXPECTED_VALUE)
    assert bool(found.failed[0, low]) is not passes


@pytest.mark.parametrize(
    "name", ["pbt_signal_math", "signal_math_unit", "bayesian", "regime", "source_accuracy"]
)
def test_r213_the_test_files_have_the_designs_names(name: str) -> None:
    """Who knows the design finds the tests."""
    assert Path(__file__).with_name(f"test_{name}.py").is_file()


def test_the_flag_chooses_the_set_of_rules() -> None:
    off = OracleConfig()
    on = off.with_settings({"flags.probabilistic_scoring_enabled": True})
    assert (rules_for(off), rules_for(on)) == (HEURISTIC, PROBABILISTIC)
    assert (HEURISTIC.mode, PROBABILISTIC.mode) == tuple(PipelineMode)


def test_r129_every_rule_of_the_two_sets_differs() -> None:
    """A field with the same function in both modes would not need to be in the set."""
    same = [
        name
        for name in HEURISTIC.__dataclass_fields__
        if getattr(HEURISTIC, name) is getattr(PROBABILISTIC, name)
    ]
    assert same == []


def test_r131_heuristic_numbers_with_the_flag_off() -> None:
    """No trace of the other mode: no posterior, no regime, weight .5 x .7 x 1.1."""
    world = World((Document("d", "a", age_hours=4.0, credibility=0.7, novelty=0.4),))
    config = OracleConfig()
    frame = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)
    assert frame.rows.combined[0] == pytest.approx(0.385)
    assert np.isnan(frame.rows.sigmoid_gate).all()
    rows = cycle.assemble_trends(frame, world.inputs(), AS_OF_US, config).rows
    for name in ("p_bull", "alpha", "beta", "log_likelihood", "bayesian_confidence", "entropy"):
        assert np.isnan(getattr(rows, name)).all(), name
    for name in ("regime_volatility_ratio", "contradiction_entropy", "macro_modifier"):
        assert np.isnan(getattr(rows, name)).all(), name
    assert set(rows.regime.tolist()) == {-1}
    assert BayesianPosterior.PRIOR.signal_count == 0
