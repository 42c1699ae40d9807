"""Disagreement inside the evidence, in both modes (R17-R24, R183)."""

from __future__ import annotations

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.config import OracleConfig
from oracle_core.contradiction import (
    catalyst_entries,
    detect_contradictions,
    disagreement_entropy,
    minority_share,
)
from oracle_core.enums import SignalLayer, Window
from oracle_core.records import WeightedSignal
from tests.strategies import AS_OF_US, NAN, Document, World, signal


def sides(positive: list[float], negative: list[float]) -> list[WeightedSignal]:
    """Signals of these effective weights."""
    return [signal(f"p{n}", w) for n, w in enumerate(positive)] + [
        signal(f"n{n}", w, -1.0) for n, w in enumerate(negative)
    ]


def score(positive: float, negative: float) -> float:
    return float(minority_share(np.array([positive]), np.array([negative]))[0])


def entropy_score(positive: float, negative: float) -> float:
    return float(disagreement_entropy(np.array([positive]), np.array([negative]))[0])


def test_r17_a_score_and_one_detail_per_dimension() -> None:
    found = detect_contradictions(
        [
            signal("a", 0.6, 1.0, catalyst_type="regulatory"),
            signal("b", 0.3, -1.0, catalyst_type="regulatory"),
            signal("c", 0.1, 1.0, catalyst_type="legal"),
        ]
    )
    assert found.score == pytest.approx(0.3)
    assert [d.dimension for d in found.disagreements] == ["sentiment", "catalyst:regulatory"]


def test_r18_effective_weight_is_combined_times_impact_and_only_positive_ones_take_part() -> None:
    found = detect_contradictions(
        [
            signal("a", 0.8, 1.0, 0.9),
            signal("b", 0.8, -1.0, 0.45),
            signal("no impact", 5.0, -1.0, 0.0),
            signal("no weight", 0.0, -1.0, 1.0),
            signal("neutral", 5.0, 0.0, 1.0),
        ]
    )
    assert found.disagreements[0].positive_weights == pytest.approx((0.72,))
    assert found.disagreements[0].negative_document_ids == ("b",)
    assert found.score == pytest.approx(1 / 3)
    [entry] = catalyst_entries([signal("a", 0.8, 1.0, 0.9, catalyst_type="legal"), signal("b")])
    assert entry.effective_weight == pytest.approx(0.72)
    assert (entry.document_id, entry.catalyst_type, entry.sentiment_value) == ("a", "legal", 1.0)


def test_r18_a_weak_sentiment_counts_with_its_whole_effective_weight() -> None:
    """The side is decided by the sign; only the posterior's mass is weighed by the size."""
    assert detect_contradictions([signal("a", 1.0, 0.1), signal("b", 1.0, -1.0)]).score == 0.5


def test_r19_a_detail_needs_both_sides_and_lists_documents_and_weights() -> None:
    assert detect_contradictions(sides([1.0, 1.0, 1.0], [])).disagreements == ()
    assert detect_contradictions(sides([], [1.0, 1.0])).disagreements == ()
    [detail] = detect_contradictions(sides([0.4, 0.2], [0.3])).disagreements
    assert detail.dimension == "sentiment"
    assert detail.positive_document_ids == ("p0", "p1")
    assert detail.positive_weights == (0.4, 0.2)
    assert detail.negative_document_ids == ("n0",)
    assert detail.negative_weights == (0.3,)


def test_r20_wording() -> None:
    [detail] = detect_contradictions(sides([0.3, 0.2, 0.12], [0.2, 0.18])).disagreements
    assert (
        detail.description == "Sentiment split: 3 positive vs 2 negative signals (minority weight ratio 38%)"
    )


def test_r21_one_detail_per_catalyst_with_both_sides_by_name() -> None:
    found = detect_contradictions(
        [
            signal("a", 1.0, 1.0, catalyst_type="regulatory"),
            signal("b", 1.0, -1.0, catalyst_type="regulatory"),
            signal("c", 1.0, 1.0, catalyst_type="legal"),
            signal("d", 1.0, 1.0, catalyst_type="dividend"),
            signal("e", 3.0, -1.0, catalyst_type="dividend"),
            signal("f", 1.0, -1.0),
        ]
    )
    assert [d.dimension for d in found.disagreements] == [
        "sentiment",
        "catalyst:dividend",
        "catalyst:regulatory",
    ]
    dividend = found.disagreements[1]
    assert (dividend.positive_document_ids, dividend.negative_document_ids) == (("d",), ("e",))
    assert dividend.description == (
        "Catalyst dividend split: 1 positive vs 1 negative signals (minority weight ratio 25%)"
    )


def test_r21_synthetic_signals_take_part() -> None:
    """Decisions 2: macro, competitor and pattern ids may appear in the contradiction."""
    pattern = signal("pattern:a:legal:7d", 1.0, -1.0, layer=SignalLayer.PATTERN, catalyst_type="legal")
    found = detect_contradictions([signal("a", 1.0, 1.0, catalyst_type="legal"), pattern])
    assert found.disagreements[1].negative_document_ids == ("pattern:a:legal:7d",)


@pytest.mark.parametrize(
    ("positive", "negative", "expected"), [(1.02, 0.2, 0.163934), (0.2, 1.02, 0.163934), (0.4, 0.6, 0.4)]
)
def test_r22_minority_share(positive: float, negative: float, expected: float) -> None:
    assert score(positive, negative) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("positive", "negative", "expected"), [(0.7, 0.7, 0.5), (1.3, 0.0, 0.0), (0.0, 1.3, 0.0), (0.0, 0.0, 0.0)]
)
def test_r23_range(positive: float, negative: float, expected: float) -> None:
    assert score(positive, negative) == expected


def test_r23_an_empty_list_has_no_contradiction() -> None:
    found = detect_contradictions([])
    assert (found.score, found.disagreements) == (0.0, ())


def test_r24_four_against_one() -> None:
    """Penalty .2 x .4 = .08; with the entropy the same evidence scores .721928."""
    evidence = sides([1.0], [1.0] * 4)
    assert detect_contradictions(evidence).score == pytest.approx(0.2)
    assert detect_contradictions(evidence).score * 0.4 == pytest.approx(0.08)
    assert detect_contradictions(evidence, disagreement_entropy).score == pytest.approx(0.721928, abs=1e-6)


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [
        (1.02, 0.2, 0.643639),
        (0.2, 1.02, 0.643639),
        (0.7, 0.7, 1.0),
        (1.3, 0.0, 0.0),
        (0.0, 1.3, 0.0),
        (0.0, 0.0, 0.0),
    ],
)
def test_r183_disagreement_entropy(positive: float, negative: float, expected: float) -> None:
    assert entropy_score(positive, negative) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("threshold", "share"), [(0.10, 0.0129869), (0.15, 0.0215396), (0.25, 0.0416927), (0.60, 0.146102)]
)
def test_c7_minority_shares_behind_the_thresholds(threshold: float, share: float) -> None:
    """The same thresholds are far stricter on the entropy than on the share."""
    assert entropy_score(1.0 - share, share) == pytest.approx(threshold, abs=1e-5)


@pytest.mark.parametrize("fault", [{"combined": NAN}, {"sentiment": NAN}, {"impact": float("inf")}])
def test_r148_signals_that_are_no_numbers_are_left_out(fault: dict[str, float]) -> None:
    found = detect_contradictions([*sides([0.4], [0.6]), signal("bad", **fault)])
    assert found.score == pytest.approx(0.4)


def test_the_disagreements_of_neighbouring_keys_do_not_run_into_each_other() -> None:
    """Entity a agrees with itself and so does c; b does not."""
    world = World(
        documents=(
            Document("a1", "a", catalyst="legal"),
            Document("b1", "b", catalyst="legal", sentiment=-1.0),
            Document("b2", "b", catalyst="legal", age_hours=2.0),
            Document("c1", "c", catalyst="legal"),
        )
    )
    config = OracleConfig()
    signals = cycle.score_signals(world.inputs(), world.keys((Window.SEVEN_DAYS,)), AS_OF_US, config)
    found = cycle.assemble_trends(signals, world.inputs(), AS_OF_US, config).disagreements
    assert [len(details) for details in found] == [0, 2, 0]
    sentiment, legal = found[1]
    assert sentiment["dimension"] == "sentiment"
    assert sentiment["positive"]["document_ids"] == ["b2"]
    assert sentiment["negative"]["document_ids"] == ["b1"]
    assert legal["dimension"] == "catalyst:legal"
    assert legal["positive"]["weights"] == sentiment["positive"]["weights"]
