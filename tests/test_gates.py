"""Thresholds and sums as objects: what an explanation reads off a rule is what the rule asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle_core.bayesian import Mass, posterior
from oracle_core.config import EligibilityConfig, RegimeConfig, RiskConfig, SuppressionConfig, TrendConfig
from oracle_core.eligibility import action_gates, edge_gates, eligibility_gates, mode_gates
from oracle_core.enums import Action, TrendDirection, codes
from oracle_core.frames import QualityRows
from oracle_core.gates import Gate, Relation, failures
from oracle_core.inputs import US_PER_HOUR
from oracle_core.regime import classify
from oracle_core.risk import risk_terms
from oracle_core.rules import HEURISTIC, PROBABILISTIC
from oracle_core.sizing import size_chains
from oracle_core.suppression import NO_TIME, Layers, data_quality_terms, quality_gates
from oracle_core.terms import Term, summed
from oracle_core.trend import Standing, Support

NAN = float("nan")


def column(*values: float) -> Any:  # noqa: ANN401
    return np.array(values, np.float64)


def whole(*values: int) -> Any:  # noqa: ANN401
    return np.array(values, np.int64)


def asked(gates: tuple[Gate, ...]) -> list[tuple[str, float, str, float, bool | None]]:
    """Gates of one key in plain values."""
    return [
        (
            gate.name,
            float(gate.value[0]),
            gate.relation.value,
            float(np.broadcast_to(gate.threshold, 1)[0]),
            None if gate.applies is None else bool(gate.applies[0]),
        )
        for gate in gates
    ]


def added(terms: tuple[Term, ...]) -> list[tuple[str, float, float]]:
    """Terms of one key in plain values."""
    return [
        (term.name, pytest.approx(float(np.broadcast_to(term.weight, 1)[0])), pytest.approx(term.quantity[0]))
        for term in terms
    ]


@pytest.mark.parametrize(
    ("relation", "holds", "margins"),
    [
        (Relation.AT_LEAST, [False, True, True, False], [-0.25, 0.0, 0.25]),
        (Relation.AT_MOST, [True, True, False, False], [0.25, 0.0, -0.25]),
        (Relation.ABOVE, [False, False, True, False], [-0.25, 0.0, 0.25]),
        (Relation.BELOW, [True, False, False, False], [0.25, 0.0, -0.25]),
    ],
)
def test_a_gate_compares_and_measures_on_the_side_that_holds(
    relation: Relation, holds: list[bool], margins: list[float]
) -> None:
    gate = Gate("g", column(0.25, 0.5, 0.75, NAN), relation, 0.5)
    assert gate.holds().tolist() == holds
    assert gate.failed().tolist() == [not held for held in holds]
    assert gate.margin().tolist()[:3] == margins


def test_a_gate_that_is_not_asked_does_not_fail() -> None:
    gate = Gate("g", column(0.0, 0.0), Relation.ABOVE, 1.0, np.array([True, False]))
    assert gate.failed().tolist() == [True, False]
    assert failures((gate, Gate("h", column(2.0, 0.0), Relation.ABOVE, 1.0))).tolist() == [
        [True, False],
        [False, True],
    ]


def test_a_sum_adds_weight_times_quantity_in_the_order_of_the_terms() -> None:
    terms = (Term("a", 2.0, column(1.0, 3.0)), Term("b", column(-1.0, 1.0), column(0.5, 0.5)))
    assert [term.value().tolist() for term in terms] == [[2.0, 6.0], [-0.5, 0.5]]
    assert summed(terms).tolist() == [1.5, 6.5]


def test_r81_to_r85_the_gates_of_eligibility() -> None:
    neutral = codes(TrendDirection)[TrendDirection.NEUTRAL]
    found = eligibility_gates(
        direction=whole(neutral),
        strength=column(0.2),
        confidence=column(0.6),
        contradiction=column(0.1),
        evidence=whole(4),
        config=EligibilityConfig(),
    )
    assert asked(found) == [
        ("low_confidence", 0.6, ">=", 0.35, None),
        ("low_trend_strength", 0.2, ">=", 0.1, None),
        ("high_contradiction", 0.1, "<=", 0.6, None),
        ("insufficient_evidence", 4.0, ">=", 2.0, None),
        ("neutral_direction", 1.0, "<=", 0.0, None),
    ]


def test_r89_to_r93_the_gates_of_actions_and_modes() -> None:
    c = EligibilityConfig()
    assert asked(action_gates(column(0.2), column(0.6), c)) == [
        ("act_or_defer", 0.2, ">=", 0.25, None),
        ("monitor", 0.6, ">=", 0.5, None),
    ]
    assert asked(mode_gates(column(0.6), column(0.1), whole(4), c)) == [
        ("simulation_eligible:confidence", 0.6, ">=", 0.5, None),
        ("production_eligible:confidence", 0.6, ">=", 0.7, None),
        ("production_eligible:contradiction", 0.1, "<=", 0.25, None),
        ("production_eligible:evidence", 4.0, ">=", 5.0, None),
    ]


def test_r192_the_gates_of_the_expected_value() -> None:
    defer, observe = codes(Action)[Action.DEFER], codes(Action)[Action.OBSERVE]
    c = EligibilityConfig()
    assert asked(edge_gates(column(-0.02), whole(defer), c)) == [
        ("low_expected_value", 0.02, ">", 0.005, True),
        ("ev_unavailable", 1.0, ">=", 1.0, True),
    ]
    low, unavailable = asked(edge_gates(column(NAN), whole(defer), c))
    assert low[4] is False
    assert unavailable == ("ev_unavailable", 0.0, ">=", 1.0, True)
    assert [gate[4] for gate in asked(edge_gates(column(0.5), whole(observe), c))] == [False, False]


def quality(**changes: Any) -> QualityRows:  # noqa: ANN401
    values = {
        "total": whole(4),
        "valid": whole(3),
        "failed": whole(1),
        "average_extraction_confidence": column(0.6),
        "newest_us": whole(0),
        "source_types": whole(2),
    }
    return QualityRows(**(values | changes))


def test_r69_to_r79_the_gates_of_suppression() -> None:
    layers = Layers(whole(0), whole(0), whole(1))
    found = quality_gates(
        quality(), column(0.5), layers, as_of_us=24 * US_PER_HOUR, config=SuppressionConfig()
    )
    assert asked(found) == [
        ("low_extraction_confidence", 0.6, ">=", 0.4, True),
        ("stale_evidence", 24.0 * US_PER_HOUR, "<=", 168.0 * US_PER_HOUR, True),
        ("low_source_diversity", 2.0, ">=", 1.0, True),
        ("high_extraction_failure_rate", 0.25, "<=", 0.5, None),
        ("insufficient_valid_documents", 3.0, ">=", 2.0, None),
        ("low_data_quality", 0.5, ">=", 0.3, True),
        ("macro_only", 0.0, ">=", 1.0, False),
        ("pattern_only", 0.0, ">=", 1.0, True),
    ]
    none = quality(total=whole(0), valid=whole(0), failed=whole(0), newest_us=whole(NO_TIME))
    macro = Layers(whole(0), whole(1), whole(1))
    empty = asked(quality_gates(none, column(0.0), macro, as_of_us=0, config=SuppressionConfig()))
    assert [gate[4] for gate in empty] == [False, False, False, None, None, True, True, False]
    assert (empty[1][1], empty[3][1]) == (np.inf, 0.0)


def test_r76_the_terms_of_the_data_quality() -> None:
    found = data_quality_terms(quality(), 84 * US_PER_HOUR, SuppressionConfig())
    assert added(found) == [("confidence", 0.4, 0.75), ("freshness", 0.3, 0.5), ("coverage", 0.3, 0.225)]


def test_r119_the_terms_of_the_risk() -> None:
    found = risk_terms(
        contradiction=column(0.4),
        confidence=column(0.55),
        evidence=whole(2),
        rejections=whole(3),
        config=RiskConfig(),
    )
    assert [(name, value) for name, _, value in added(found)] == [
        ("contradiction", 0.4),
        ("missing_confidence", 0.45),
        ("thin_evidence", 1.0),
        ("failed_gates", 3.0),
    ]


def standing() -> Standing:
    return Standing(
        average=column(-0.3),
        contradiction=column(0.2),
        support=Support(whole(6), column(0.7), column(0.9)),
        posterior=posterior(Mass(column(2.0), column(0.5))),
        regimes=classify(column(1.0), column(0.5), RegimeConfig()),
    )


def test_r8_to_r14_the_questions_of_the_heuristic_direction() -> None:
    assert asked(HEURISTIC.direction_bounds(standing(), TrendConfig())) == [
        ("not_mixed:contradiction", 0.2, "<=", 0.1, None),
        ("not_mixed:average", 0.3, ">=", 0.3, None),
        ("positive", -0.3, ">=", 0.15, None),
        ("negative", -0.3, "<=", -0.15, None),
    ]


def test_r181_the_questions_of_the_probabilistic_direction() -> None:
    found = asked(PROBABILISTIC.direction_bounds(standing(), TrendConfig()))
    assert [(name, relation) for name, _, relation, _, _ in found] == [
        ("any_evidence", ">"),
        ("not_mixed:entropy", "<="),
        ("positive", ">"),
        ("negative", "<"),
    ]
    assert [value for _, value, *_ in found] == pytest.approx([2.5, 0.685355, 0.817574, 0.817574], abs=1e-5)
    assert [threshold for *_, threshold, _ in found] == pytest.approx([0.0, 0.9, 0.65, 0.35])


def test_r37_the_terms_of_the_heuristic_confidence() -> None:
    assert added(HEURISTIC.confidence_terms(standing(), TrendConfig())) == [
        ("sources", 0.3, 0.4),
        ("credibility", 0.3, 0.7),
        ("agreement", 0.4, 0.9 * np.log2(7.0) / 3.0),
        ("contradiction", -0.4, 0.2),
    ]


def test_r184_the_terms_of_the_probabilistic_confidence() -> None:
    assert added(PROBABILISTIC.confidence_terms(standing(), TrendConfig())) == [
        ("posterior", 1.0, (1.5 / 4.5) ** 2),
        ("contradiction", -0.4, 0.2),
    ]


def test_r95_to_r98_the_factors_of_both_sizes() -> None:
    """Confidence .5, strength .4, contradiction .2, four documents, scale .8: every factor."""
    allocation, loss = size_chains(
        strength=column(0.4),
        confidence=column(0.5),
        contradiction=column(0.2),
        evidence=whole(4),
        scale=column(0.8),
        config=EligibilityConfig(),
    )
    shared = {"confidence_factor": 0.4, "strength_factor": 0.7, "contradiction_factor": 0.9}
    for chain, own in (
        (allocation, {"base": 0.01, "span": 0.09, "most": 0.10, "scale": 0.8}),
        (loss, {"base": 0.003, "span": 0.017, "most": 0.02, "scale": 1.0}),
    ):
        known = {name: float(getattr(chain, name)[0]) for name in (*shared, *own)}
        assert known == pytest.approx(shared | own)
        raw = chain.base + chain.confidence_factor * chain.strength_factor * chain.span
        factors = chain.contradiction_factor * chain.evidence_factor * chain.scale
        assert chain.size == pytest.approx(raw * factors)
