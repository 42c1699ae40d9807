"""The design's 14 correctness properties, each on the domain where it is a theorem.

Several are false as universal statements. Beside each test stand the smallest counterexamples to the wider
claim, as assertions: they are the reason for the domain and would tell if the mathematics changed. Property 4
above all: sigma(L) and alpha / (alpha + beta) agree within .05 only while the whole mass of evidence is at
most .8333, however many signals it is made of; what holds always are the exact invariants at the end.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from oracle_core.bayesian import (
    BayesianPosterior,
    compute_bayesian_posterior,
    compute_entropy,
    confidence,
    evidence_mass,
    posterior,
)
from oracle_core.competitive import attenuated_transfer
from oracle_core.config import (
    CompetitiveConfig,
    EligibilityConfig,
    MacroConfig,
    ProjectionConfig,
    ScoringConfig,
)
from oracle_core.contradiction import disagreement_entropy
from oracle_core.eligibility import expected_value
from oracle_core.inputs import HistoryRows
from oracle_core.macro import conditional_integration, multiplicative_impact
from oracle_core.market import MarketFigures
from oracle_core.projection import ew_momentum
from oracle_core.scoring import adaptive_half_life, info_gain, regime_multiplier, sigmoid_gate
from oracle_core.trend import strengths
from tests.strategies import signal, signals

ENOUGH = settings(max_examples=max(100, settings.default.max_examples))
SCORING = ScoringConfig()
MACRO = MacroConfig()
UNIT = st.floats(0.0, 1.0)
SIGN = st.sampled_from((-1.0, 1.0))


def column(*values: float) -> Any:  # noqa: ANN401
    return np.array(values, np.float64)


def gate(x: float) -> float:
    return float(sigmoid_gate(column(x), SCORING)[0])


def certainty(alpha: float, beta: float) -> float:
    return float(confidence(column(alpha), column(beta))[0])


def mean(found: BayesianPosterior) -> float:
    return found.alpha / (found.alpha + found.beta)


# Feature: signal-math-upgrade, Property 1: Sigmoid Gate Monotonicity
@ENOUGH
@given(x=UNIT, y=UNIT)
@example(x=0.33254712208950377, y=math.nextafter(0.33254712208950377, 1.0))
def test_property_01_sigmoid_gate_monotonicity(x: float, y: float) -> None:
    """R197. A theorem in reals; between neighbouring floats a sigmoid may fall by one last place."""
    low, high = min(x, y), max(x, y)
    assert gate(low) <= gate(high) + 1e-12
    assert gate(0.2) == pytest.approx(0.182426, abs=1e-6)
    assert gate(0.8) == pytest.approx(0.817574, abs=1e-6)


# Feature: signal-math-upgrade, Property 2: Beta Posterior Evidence Accumulation
@ENOUGH
@given(found=signals(max_size=8), weight=st.floats(1e-4, 3.0), sign=SIGN)
def test_property_02_evidence_accumulates(found: list[Any], weight: float, sign: float) -> None:
    """R198. Never less with one signal more; strictly more from a mass of 1e-4 on."""

    def total(evidence: list[Any]) -> float:
        made = compute_bayesian_posterior(evidence)
        return made.alpha + made.beta

    sums = [total(found[:n]) for n in range(len(found) + 1)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(sums))
    assert total([*found, signal("more", weight, sign)]) > total(found)


def test_property_02_fails_strictly_without_mass() -> None:
    empty = compute_bayesian_posterior([])
    for weight in (0.0, 1e-17):
        more = compute_bayesian_posterior([signal("a", weight)])
        assert more.alpha + more.beta == empty.alpha + empty.beta == 2.0


# Feature: signal-math-upgrade, Property 3: Bayesian Confidence Symmetry and Divergence
@ENOUGH
@given(alpha=st.floats(1.0, 100.0), beta=st.floats(1.0, 100.0), other=st.floats(1.0, 100.0))
def test_property_03_confidence_is_symmetric_and_diverges(alpha: float, beta: float, other: float) -> None:
    """R199. In the squared form; 0 exactly where alpha = beta, the same for both orders."""
    assert certainty(alpha, alpha) == 0.0
    assert certainty(alpha, beta) == certainty(beta, alpha)

    def ratio(a: float, b: float) -> float:
        return max(a / b, b / a)

    low, high = sorted((beta, other), key=lambda b: ratio(alpha, b))
    assert certainty(alpha, low) <= certainty(alpha, high) + 1e-12
    assert certainty(2.0, 1.0) == pytest.approx(certainty(200.0, 100.0), abs=1e-15)


def test_property_03_fails_for_the_literal_formula() -> None:
    alpha, beta = 1.0, 1.0000000000000002
    assert 1.0 - 4.0 * alpha * beta / (alpha + beta) ** 2 < 0.0
    with pytest.raises(OverflowError):
        _ = (1e200 + 1.0) ** 2
    assert certainty(alpha, beta) >= 0.0
    assert certainty(1e200, 1.0) == 1.0


# Feature: signal-math-upgrade, Property 4: Bayesian Posterior Round-Trip Consistency
@ENOUGH
@given(sentiments=st.lists(SIGN, min_size=1, max_size=60), mass=st.floats(1e-6, 0.833328))
def test_property_04_round_trip_for_a_mass_up_to_833(sentiments: list[float], mass: float) -> None:
    """R200. Uniform weights; the bound on the whole mass does not depend on the number of signals."""
    weight = mass / len(sentiments)
    found = compute_bayesian_posterior([signal(f"d{n}", weight, s) for n, s in enumerate(sentiments)])
    assert abs(mean(found) - found.p_bull) <= 0.05


@pytest.mark.parametrize(
    ("positive", "negative", "difference"),
    [(1, 0, 0.0643919), (2, 0, 0.130797), (6, 5, 0.192597), (55, 45, 0.450935)],
)
def test_property_04_fails_beyond_that_mass(positive: int, negative: int, difference: float) -> None:
    """One signal of weight 1 already refutes it; the more signals, the closer to .5."""
    evidence = [signal(f"d{n}", 1.0, 1.0 if n < positive else -1.0) for n in range(positive + negative)]
    found = compute_bayesian_posterior(evidence)
    assert abs(mean(found) - found.p_bull) == pytest.approx(difference, abs=1e-6)
    assert difference > 0.05


def test_property_04_holds_at_a_mass_of_8_tenths() -> None:
    found = compute_bayesian_posterior([signal("a", 0.8)])
    assert mean(found) == pytest.approx(0.642857, abs=1e-6)
    assert found.p_bull == pytest.approx(0.689974, abs=1e-6)


# Feature: signal-math-upgrade, Property 5: Adaptive Decay Lower Bound
@ENOUGH
@given(
    base=st.floats(0.01, 1e4),
    impact=UNIT,
    gain=st.floats(1.0, 3.0),
    market=st.floats(1.0, 1.45),
)
def test_property_05_adaptive_decay_is_never_faster(
    base: float, impact: float, gain: float, market: float
) -> None:
    """R201. And never slower than six times the base."""
    found = float(adaptive_half_life(column(base), column(impact), column(gain), column(market), SCORING)[0])
    assert base <= found <= 6.0 * base * (1.0 + 1e-12)


@ENOUGH
@given(impact=st.floats(-5.0, 5.0), gain=st.floats(-5.0, 9.0), market=st.floats(-5.0, 9.0))
def test_property_05_holds_outside_the_documented_inputs_because_each_beta_is_clamped(
    impact: float, gain: float, market: float
) -> None:
    """An unclamped beta_market fed with M_regime would reach 1.67 and break the sixfold bound."""
    found = float(adaptive_half_life(column(24.0), column(impact), column(gain), column(market), SCORING)[0])
    assert 24.0 <= found <= 144.0 + 1e-9


# Feature: signal-math-upgrade, Property 6: Information Gain Monotonicity
@ENOUGH
@given(p=st.floats(0.001, 1.0), q=st.floats(0.001, 1.0))
def test_property_06_rarer_catalysts_weigh_no_less(p: float, q: float) -> None:
    """R202. Not strict: the clamps make neighbours equal."""
    rare, common = info_gain(column(min(p, q), max(p, q)), SCORING)
    assert rare >= common
    assert 1.0 <= common <= 3.0


def test_property_06_is_not_strict_and_needs_rates_up_to_1() -> None:
    clamped = info_gain(column(0.001, 0.0005), SCORING)
    assert clamped[0] == clamped[1] == 3.0
    assert 1.0 - 0.3 * math.log2(1.2) == pytest.approx(0.921090, abs=1e-6)
    assert info_gain(column(1.2), SCORING)[0] == pytest.approx(1.99658, abs=1e-5), (
        "an invalid rate is unknown"
    )


# Feature: signal-math-upgrade, Property 7: Multiplicative Macro Exposure Monotonicity
@ENOUGH
@given(
    overlap=st.lists(UNIT, min_size=4, max_size=4),
    dimension=st.integers(0, 3),
    share=st.floats(1e-6, 1.0),
    severity=st.floats(1e-3, 1.0),
)
def test_property_07_exposure_compounds(
    overlap: list[float], dimension: int, share: float, severity: float
) -> None:
    """R203. For severity >= .001, a share >= 1e-6 and weights below 1."""
    without = [0.0 if k == dimension else value for k, value in enumerate(overlap)]
    with_it = [share if k == dimension else value for k, value in enumerate(overlap)]
    table = np.array([without, with_it])
    less, more = multiplicative_impact(table, column(severity, severity), MACRO)
    assert more > less


def test_property_07_fails_for_vanishing_shares_no_severity_and_saturation() -> None:
    for share in (5e-324, 1e-17):
        assert multiplicative_impact(np.array([[share, 0.0, 0.0, 0.0]]), column(1.0), MACRO)[0] == 0.0
    assert multiplicative_impact(np.array([[0.5, 0.0, 0.0, 0.0]]), column(0.0), MACRO)[0] == 0.0
    full = MacroConfig(w_geo=1.0)
    saturated = multiplicative_impact(
        np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 0.5, 0.0, 0.0]]), column(1.0, 1.0), full
    )
    assert saturated[0] == saturated[1]


# Feature: signal-math-upgrade, Property 8: Shannon Entropy Range and Maximum
@ENOUGH
@given(p_bull=st.floats(0.001, 0.999))
def test_property_08_entropy_range_and_maximum(p_bull: float) -> None:
    """R204. In (0, 1], 1 at one half, the same for both sides."""
    found = compute_entropy(p_bull)
    assert 0.0 < found <= 1.0
    assert found <= compute_entropy(0.5) == 1.0
    assert found == pytest.approx(compute_entropy(1.0 - p_bull), abs=1e-12)


# Feature: signal-math-upgrade, Property 9: Contradiction Entropy Monotonicity
@ENOUGH
@given(f=st.floats(0.001, 0.999), g=st.floats(0.001, 0.999), total=st.floats(0.01, 100.0))
def test_property_09_balanced_disagreement_contradicts_more(f: float, g: float, total: float) -> None:
    """R205. Strictly where the distances to one half differ by 1e-6."""
    assume(abs(abs(f - 0.5) - abs(g - 0.5)) >= 1e-6)
    near, far = sorted((f, g), key=lambda share: abs(share - 0.5))
    positive, negative = column(near, far) * total, column(1.0 - near, 1.0 - far) * total
    closer, farther = disagreement_entropy(positive, negative)
    assert closer > farther


def test_property_09_fails_strictly_between_neighbouring_floats() -> None:
    found = disagreement_entropy(column(0.5, 0.5 + 1e-9), column(0.5, 0.5 - 1e-9))
    assert found[0] == found[1] == 1.0


# Feature: signal-math-upgrade, Property 10: Exponentially Weighted Momentum Direction
@ENOUGH
@given(steps=st.lists(st.integers(1, 400), min_size=1, max_size=14), start=st.integers(-1000, 400))
def test_property_10_rising_strengths_have_positive_momentum(steps: list[int], start: int) -> None:
    """R206. From two strictly rising values on, falling trends that weaken included."""
    values = [(start + sum(steps[:n])) / 1000.0 for n in range(len(steps) + 1)]
    assert momentum(values) > 0.0


def momentum(values: list[float]) -> float:
    """Of signed strengths, oldest first."""
    count = len(values) - 1
    history = HistoryRows(np.zeros(count, np.int64), np.arange(count), np.array(values[:-1]))
    return float(ew_momentum(column(values[-1]), history, column(math.nan), ProjectionConfig())[0])


def test_property_10_fails_for_a_single_value() -> None:
    """No difference yet, so half the signed strength: -.25."""
    assert momentum([-0.5]) == -0.25
    assert momentum([-0.9, -0.8]) == pytest.approx(0.1)


# Feature: signal-math-upgrade, Property 11: Competitive Signal Distance Attenuation
@ENOUGH
@given(
    average=st.floats(1e-6, 1.0),
    rho=st.floats(1e-6, 1.0),
    signs=st.tuples(SIGN, SIGN),
    distance=st.integers(1, 3),
)
def test_property_11_transfer_falls_with_distance(
    average: float, rho: float, signs: tuple[float, float], distance: int
) -> None:
    """R207. In magnitude, for S rho other than 0 and distances 1 to 3."""
    nearer, farther = (
        abs(transferred(average * signs[0], rho * signs[1], d)) for d in (distance, distance + 1)
    )
    assert nearer > farther


def transferred(average: float, rho: float, distance: int) -> float:
    return float(
        attenuated_transfer(column(average), column(rho), np.array([distance]), CompetitiveConfig())[0]
    )


def test_property_11_fails_for_signed_values_zero_and_beyond_the_cut() -> None:
    assert transferred(0.6, -0.5, 1) == pytest.approx(-0.110364, abs=1e-6)
    assert transferred(0.6, -0.5, 2) == pytest.approx(-0.0406007, abs=1e-6), "a larger number"
    assert transferred(0.0, 0.8, 1) == transferred(0.6, 0.0, 1) == 0.0
    assert transferred(0.6, 0.8, 4) == transferred(0.6, 0.8, 5) == 0.0


# Feature: signal-math-upgrade, Property 12: Expected Value Directional Consistency
@ENOUGH
@given(p_bull=st.floats(0.5, 1.0), r_down=st.floats(0.0, 1.0), gap=st.floats(1e-9, 1.0))
def test_property_12_expected_value_follows_probability(p_bull: float, r_down: float, gap: float) -> None:
    """R208. For magnitudes, R_up > R_down >= 0."""
    assert value_of(p_bull, r_down + gap, r_down) > 0.0


def value_of(p_bull: float, r_up: float, r_down: float) -> float:
    found = expected_value(
        p_bull=column(p_bull),
        action=np.array([0]),
        moves=lambda: (column(r_up), column(r_down)),
        config=EligibilityConfig(),
    )
    return float(found.expected_value[0])


def test_property_12_fails_for_returns_that_are_no_magnitudes() -> None:
    assert value_of(1.0, 0.0, -1.0) == 0.0
    assert value_of(0.7, -0.1, -0.2) == pytest.approx(-0.01)
    assert value_of(0.6, 0.03, 0.02) == pytest.approx(0.01)


# Feature: signal-math-upgrade, Property 13: Bayesian Confidence Monotonic with Agreeing Signals
@ENOUGH
@given(weights=st.lists(st.floats(1e-6, 3.0), min_size=1, max_size=12), sign=SIGN)
def test_property_13_agreement_raises_confidence(weights: list[float], sign: float) -> None:
    """R209. For w |s| >= 1e-6 in the squared form."""
    evidence = [signal(f"d{n}", w, sign) for n, w in enumerate(weights)]
    found = [compute_bayesian_posterior(evidence[:n]).bayesian_confidence for n in range(len(evidence) + 1)]
    assert all(later > earlier for earlier, later in pairwise(found))


def test_property_13_fails_without_mass_and_for_the_literal_formula() -> None:
    assert compute_bayesian_posterior([signal("a", 0.0)]).bayesian_confidence == 0.0
    alpha, beta = 1.0 + 1e-8, 1.0
    assert 1.0 - 4.0 * alpha * beta / (alpha + beta) ** 2 == 0.0
    assert certainty(alpha, beta) == pytest.approx(2.5e-17, rel=0.01)
    rising = [compute_bayesian_posterior([signal("a", w)]).bayesian_confidence for w in (0.5, 1.0, 1.5)]
    assert rising == pytest.approx([0.04, 0.111111, 0.183673], abs=1e-6)


# Feature: signal-math-upgrade, Property 14: Numerical Stability Across All Formulas
@ENOUGH
@given(
    confidence_=st.floats(-1e6, 1e6),
    weight=st.floats(0.0, 1e155),
    sentiment=st.floats(-1.0, 1.0),
    other=st.floats(0.0, 1e155),
    overlap=st.lists(UNIT, min_size=4, max_size=4),
    scores=st.tuples(st.floats(allow_infinity=False), st.floats(allow_infinity=False)),
    averages=st.tuples(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0)),
)
@example(-200.0, 1000.0, -1.0, 0.0, [0.0] * 4, (math.nan, 1e308), (0.0, 0.0))
@example(0.5, 1e155, 1.0, 1e155, [1.0] * 4, (-1e308, math.nan), (-1.0, 1.0))
def test_property_14_every_formula_is_finite_and_in_range(  # noqa: PLR0917 - one input per formula
    confidence_: float,
    weight: float,
    sentiment: float,
    other: float,
    overlap: list[float],
    scores: tuple[float, float],
    averages: tuple[float, float],
) -> None:
    """R210. NaN stands for a missing z-score; momentum and expected value have their own tests of range."""
    assert 0.0 <= gate(confidence_) <= 1.0
    found = posterior(
        evidence_mass(column(weight, other), column(sentiment, -sentiment), np.array([0, 0]), 1)
    )
    assert 0.0 <= found.p_bull[0] <= 1.0
    assert 0.0 <= found.entropy[0] <= 1.0
    assert 0.0 <= found.bayesian_confidence[0] <= 1.0
    for shape in (found.alpha[0], found.beta[0]):
        assert shape >= 1.0
        assert math.isfinite(shape)
    assert math.isfinite(found.log_likelihood[0])
    assert 0.0 <= multiplicative_impact(np.array([overlap]), column(1.0), MACRO)[0] <= 0.724375 + 1e-12
    moves = MarketFigures(*(column(v) for v in (math.nan, math.nan, math.nan, *scores)))
    assert 1.0 <= regime_multiplier(moves, SCORING)[0] <= 2.5
    modifier = conditional_integration(
        column(averages[0]), column(averages[1]), np.array([True]), MACRO
    ).modifier
    assert -2.0 <= averages[0] * modifier[0] <= 2.0
    assert 0.0 <= strengths(column(averages[0]), modifier)[0] <= 1.0
    assert math.isfinite(momentum([averages[0], averages[1], averages[0]]))
    assert math.isfinite(value_of(float(found.p_bull[0]), abs(averages[0]), abs(averages[1])))


def test_property_14_fails_for_naive_code() -> None:
    with pytest.raises(OverflowError):
        math.exp(1000.0)
    assert gate(-200.0) == 0.0
    assert math.isnan(1e309 - 1e309)


# ---------------------------------------------------------------------------------- exact invariants


@ENOUGH
@given(found=signals())
def test_log_likelihood_is_alpha_less_beta(found: list[Any]) -> None:
    """L = alpha - beta identically: both are made of the same mass w |s| (G7)."""
    made = compute_bayesian_posterior(found)
    assert made.alpha - made.beta == pytest.approx(made.log_likelihood, abs=1e-12)


@ENOUGH
@given(found=signals())
def test_confidence_is_the_square_of_log_likelihood_over_alpha_plus_beta(found: list[Any]) -> None:
    made = compute_bayesian_posterior(found)
    expected = (made.log_likelihood / (made.alpha + made.beta)) ** 2
    assert made.bayesian_confidence == pytest.approx(expected, abs=1e-12)


@ENOUGH
@given(found=signals())
def test_both_representations_lean_to_the_same_side(found: list[Any]) -> None:
    """sign(P - 1/2) = sign(alpha - beta): the honest form of property 4."""
    made = compute_bayesian_posterior(found)
    if abs(made.log_likelihood) > 1e-12:
        assert np.sign(made.p_bull - 0.5) == np.sign(made.alpha - made.beta) == np.sign(made.log_likelihood)
