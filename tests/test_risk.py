"""Risk score, classes and citation weights (R119, R120, R123)."""

from __future__ import annotations

import numpy as np
import pytest

from oracle_core.config import RiskConfig
from oracle_core.enums import RiskLevel
from oracle_core.risk import citation_weights, classify_risk, risk_levels


@pytest.mark.parametrize(
    ("contradiction", "confidence", "evidence", "rejections", "score", "level"),
    [
        (0.4, 0.55, 4, 0, 1.975, RiskLevel.MODERATE),
        (0.4, 0.55, 2, 0, 2.475, RiskLevel.HIGH),
        (0.2, 0.62, 4, 0, 1.47, RiskLevel.MODERATE),
        (0.0, 0.2, 1, 3, 3.7, RiskLevel.VERY_HIGH),
        (0.0, 1.0, 5, 0, 0.0, RiskLevel.LOW),
        (0.0, 1.0, 3, 0, 0.5, RiskLevel.LOW),
    ],
)
def test_r119_score_of_the_worked_examples(  # noqa: PLR0917 - one argument per column
    contradiction: float, confidence: float, evidence: int, rejections: int, score: float, level: RiskLevel
) -> None:
    found_level, found = classify_risk(
        contradiction=contradiction, confidence=confidence, evidence=evidence, rejections=rejections
    )
    assert found == pytest.approx(score, abs=1e-12)
    assert found_level is level


@pytest.mark.parametrize(
    ("score", "level"),
    [
        (0.999999, RiskLevel.LOW),
        (1.0, RiskLevel.MODERATE),
        (1.999999, RiskLevel.MODERATE),
        (2.0, RiskLevel.HIGH),
        (2.999999, RiskLevel.HIGH),
        (3.0, RiskLevel.VERY_HIGH),
        (9.0, RiskLevel.VERY_HIGH),
    ],
)
def test_r120_every_cut_belongs_to_the_level_above(score: float, level: RiskLevel) -> None:
    assert list(RiskLevel)[risk_levels(np.array([score]), RiskConfig())[0]] is level


def test_c24_an_eligible_heuristic_trend_is_never_of_very_high_risk() -> None:
    """Worst case: contradiction .5, confidence .35, two documents: 2.975."""
    level, score = classify_risk(contradiction=0.5, confidence=0.35, evidence=2, rejections=0)
    assert (level, score) == (RiskLevel.HIGH, pytest.approx(2.975))


def test_r123_citation_weight_decays_with_rank() -> None:
    found = citation_weights(np.arange(10), RiskConfig())
    assert found[:4] == pytest.approx([1.0, 0.909091, 0.833333, 0.769231], abs=5e-7)
    assert found[9] == pytest.approx(0.526316, abs=5e-7)


def test_r124_a_filtered_id_keeps_its_rank() -> None:
    """G30: ranks 0 and 2 of uuid1, pattern, uuid2 weigh 1 and .833333; the gap stays."""
    assert citation_weights(np.array([0, 2]), RiskConfig()) == pytest.approx([1.0, 0.833333], abs=5e-7)
