"""Accuracy of sources from settled outcomes (R163-R168, G20, C36)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.config import AccuracyConfig, OracleConfig
from oracle_core.inputs import US_PER_DAY, US_PER_HOUR
from oracle_core.source_accuracy import (
    SourceAccuracy,
    accuracy_factors,
    factors_by_source,
    outcome,
    updated_accuracy,
)
from tests.strategies import AS_OF_US, NAN, Bar, Document, World

CONFIG = OracleConfig()
THEN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)


def accuracy(ratio: float, samples: int) -> SourceAccuracy:
    return SourceAccuracy("s", ratio, samples, THEN)


@pytest.mark.parametrize(
    ("samples", "ratio", "factor"),
    [(9, 0.9, 1.0), (10, 0.7, 1.2), (10, 0.0, 0.5), (10, 1.0, 1.5), (0, 0.0, 1.0)],
)
def test_r163_factor(samples: int, ratio: float, factor: float) -> None:
    assert accuracy(ratio, samples).accuracy_factor == pytest.approx(factor)


@pytest.mark.parametrize(("ratio", "factor"), [(1.7, 1.5), (-0.2, 0.5), (NAN, 1.0), (float("inf"), 1.5)])
def test_r167_ratios_outside_0_and_1_are_clamped_and_nan_is_neutral(ratio: float, factor: float) -> None:
    assert accuracy(ratio, 50).accuracy_factor == factor


def test_r163_settings() -> None:
    config = AccuracyConfig(min_samples=3, factor_base=0.8)
    found = accuracy_factors(np.array([0.5, 0.5]), np.array([2, 3]), config)
    assert found == pytest.approx([1.0, 1.3])


def test_r164_update_from_realised_outcomes() -> None:
    """7 of 10 and 3 of 4 make 10 of 14."""
    outcomes = [
        ("positive", 0.02),
        ("negative", -0.01),
        ("negative", -0.10),
        ("positive", -0.03),
        ("neutral", 0.1),
    ]
    found = updated_accuracy(accuracy(0.7, 10), outcomes, NOW)
    assert found.accuracy_ratio == pytest.approx(0.714286, abs=1e-6)
    assert (found.sample_count, found.source_id, found.last_updated) == (14, "s", NOW)
    assert found.accuracy_factor == pytest.approx(1.21429, abs=1e-5)


def test_r164_what_has_no_direction_or_no_outcome_is_not_counted() -> None:
    nothing = [("neutral", 0.1), ("mixed", -0.1), ("positive", 0.0), ("negative", NAN)]
    assert updated_accuracy(accuracy(0.7, 10), nothing, NOW) == accuracy(0.7, 10)
    assert updated_accuracy(accuracy(0.7, 10), [], NOW) == accuracy(0.7, 10)


def test_r164_an_update_repairs_a_corrupted_ratio() -> None:
    assert updated_accuracy(accuracy(1.7, 10), [("positive", 0.1)], NOW).accuracy_ratio == 1.0
    assert updated_accuracy(accuracy(-3.0, 9), [("positive", 0.1)], NOW).accuracy_ratio == pytest.approx(0.1)
    fresh = updated_accuracy(accuracy(NAN, 10), [("positive", 0.1), ("positive", -0.1)], NOW)
    assert (fresh.accuracy_ratio, fresh.sample_count) == (0.5, 2)


def test_outcome_signs() -> None:
    said = np.array([1.0, -1.0, 0.3, -0.3, 0.0, NAN, 1.0, 1.0])
    moved = np.array([0.1, -0.1, -0.1, 0.1, 0.1, 0.1, 0.0, NAN])
    assert outcome(said, moved).tolist() == [1.0, 1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0]


def test_r165_a_source_without_a_row_has_factor_1() -> None:
    world = World(documents=(Document("d", "a", source="s1"),), accuracy=(("s2", 0.9, 50),))
    found = factors_by_source(world.inputs().accuracy, 2, AccuracyConfig())
    assert found.tolist() == [1.0, 1.4, 1.0]
    nothing = World(documents=(Document("d", "a"),)).inputs()
    assert factors_by_source(nothing.accuracy, 1, AccuracyConfig()).tolist() == [1.0, 1.0]


def test_r168_the_factor_multiplies_the_credibility_weight() -> None:
    """.7 x 1.2 = .84 in the product; the credibility that is averaged stays .7."""
    document = Document("d", "a", credibility=0.7, source="s1")
    config = CONFIG.with_settings({"flags.probabilistic_scoring_enabled": True})

    def combined(*rows: tuple[str, float, int]) -> float:
        world = World(documents=(document,), accuracy=rows)
        found = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)
        assert found.rows.credibility[0] == 0.7
        return float(found.rows.combined[0])

    assert combined(("s1", 0.7, 10)) == pytest.approx(1.2 * combined())


# -------------------------------------------------------------------------------------------- measuring


def measured(
    world: World, as_of_us: int = AS_OF_US, config: OracleConfig = CONFIG
) -> dict[str, tuple[int, float]]:
    inputs = world.inputs()
    found = cycle.measure_accuracy(inputs, as_of_us, config)
    names = [inputs.sources[code] for code in found.source.tolist()]
    return dict(zip(names, zip(found.samples.tolist(), found.ratio.tolist(), strict=True), strict=True))


BARS = (Bar("a", 30, 100.0), Bar("a", 15, 110.0), Bar("b", 30, 100.0), Bar("b", 15, 90.0))
DOCUMENT = Document("d", "a", age_hours=24.0 * 20, source="s1")


def test_one_observation_per_document_and_entity() -> None:
    """A rose, B fell; a document that calls both positive is right once and wrong once."""
    world = World((DOCUMENT, replace(DOCUMENT, entity="b"), replace(DOCUMENT, id="e", source="s2")), BARS)
    assert measured(world) == {"s1": (2, 0.5), "s2": (1, 1.0)}


@pytest.mark.parametrize(
    "change",
    [
        {"sentiment": 0.0},
        {"sentiment": NAN},
        {"failed": True},
        {"has_impact": False},
        {"age_hours": 24.0 * 40},
        {"age_hours": 24.0 * 5},
        {"age_hours": -24.0},
    ],
)
def test_what_is_no_observation(change: dict[str, float]) -> None:
    assert measured(World((replace(DOCUMENT, **change),), BARS)) == {}


def test_a_gated_or_weightless_document_still_made_a_call() -> None:
    """Only the direction is judged, not how much the document weighed."""
    document = replace(DOCUMENT, confidence=0.0, impact=0.0, credibility=0.0)
    assert measured(World((document,), BARS)) == {"s1": (1, 1.0)}


def test_a_return_of_0_is_no_observation() -> None:
    assert measured(World((DOCUMENT,), (Bar("a", 30, 100.0), Bar("a", 15, 100.0)))) == {}


def test_only_outcomes_settled_by_then_count() -> None:
    """The same inputs, looked at a microsecond earlier, do not know the outcome."""
    world = World((DOCUMENT,), BARS)
    settled_us = DOCUMENT.published_us + 7 * US_PER_DAY
    assert measured(world, settled_us) == {"s1": (1, 1.0)}
    assert measured(world, settled_us - 1) == {}
    late = World((replace(DOCUMENT, known_late_hours=24.0 * 21),), BARS)
    assert measured(late) == {}
    unknown = World((DOCUMENT,), (BARS[0], replace(BARS[1], known_late_hours=500.0)))
    assert measured(unknown) == {}


def test_the_horizon_is_that_of_the_configuration() -> None:
    config = CONFIG.with_settings({"accuracy.horizon_days": 3.0})
    assert measured(World((DOCUMENT,), BARS), config=config) == {}
    near = replace(DOCUMENT, age_hours=24.0 * 16)
    assert measured(World((near,), BARS), config=config) == {"s1": (1, 1.0)}
    assert near.published_us == AS_OF_US - 16 * 24 * US_PER_HOUR
