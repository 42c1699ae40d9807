"""Allocation and loss limit (R95-R100, R196)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_core.config import EligibilityConfig
from oracle_core.records import PositionSizing
from oracle_core.sizing import compute_position_sizing


def sizes(
    confidence: float,
    strength: float,
    contradiction: float = 0.0,
    evidence: int = 5,
    p_bull: float | None = None,
) -> PositionSizing:
    return compute_position_sizing(
        strength=strength,
        confidence=confidence,
        contradiction=contradiction,
        evidence=evidence,
        p_bull=p_bull,
    )


@pytest.mark.parametrize(
    ("confidence", "strength", "allocation"), [(0.6, 0.3, 0.03808), (1.0, 1.0, 0.082), (0.0, 0.0, 0.01)]
)
def test_r95_raw_allocation(confidence: float, strength: float, allocation: float) -> None:
    """C13: 8.2 %, not 10 %, is the most the formula gives."""
    assert sizes(confidence, strength).allocation_pct == pytest.approx(allocation, abs=1e-12)


def test_r96_contradiction_takes_half_of_itself() -> None:
    assert sizes(0.6, 0.3, 0.40).allocation_pct == pytest.approx(0.030464, abs=1e-12)


@pytest.mark.parametrize(
    ("evidence", "allocation"), [(0, 0.015232), (2, 0.015232), (3, 0.022848), (4, 0.022848), (5, 0.030464)]
)
def test_r97_thin_evidence_stacks_with_contradiction(evidence: int, allocation: float) -> None:
    assert sizes(0.6, 0.3, 0.40, evidence).allocation_pct == pytest.approx(allocation, abs=1e-12)


@pytest.mark.parametrize(
    ("confidence", "strength", "contradiction", "evidence", "loss"),
    [(0.6, 0.3, 0.0, 5, 0.008304), (0.6, 0.3, 0.4, 4, 0.0049824), (1.0, 1.0, 0.0, 10, 0.0166)],
)
def test_r98_loss_limit_scales_alike(
    confidence: float, strength: float, contradiction: float, evidence: int, loss: float
) -> None:
    found = sizes(confidence, strength, contradiction, evidence)
    assert found.max_loss_pct == pytest.approx(loss, abs=1e-12)


def test_r99_penalties_may_go_below_the_base() -> None:
    """G27: clamping to [base, max] would undo them; .0089475 stays."""
    assert sizes(0.35, 0.1, 0.5, 2).allocation_pct == pytest.approx(0.0089475, abs=1e-12)


def test_r99_sizes_end_at_their_maximum() -> None:
    eager = EligibilityConfig(confidence_sizing_weight=5.0)
    found = compute_position_sizing(strength=1.0, confidence=1.0, contradiction=0.0, evidence=9, config=eager)
    assert (found.allocation_pct, found.max_loss_pct) == (0.10, 0.02)


@pytest.mark.parametrize(("p_bull", "allocation"), [(0.72, 0.0219341), (0.28, 0.0219341), (None, 0.030464)])
def test_r196_probability_scales_the_allocation(p_bull: float | None, allocation: float) -> None:
    """G28: max(p, 1 - p), the same for both sides; without a probability nothing is scaled."""
    assert sizes(0.6, 0.3, 0.40, 5, p_bull).allocation_pct == pytest.approx(allocation, abs=5e-8)


def test_r196_probability_leaves_the_loss_limit_alone() -> None:
    assert sizes(0.6, 0.3, 0.0, 5, 0.5).max_loss_pct == pytest.approx(0.008304, abs=1e-12)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 20), st.floats(0.0, 1.0))
def test_r100_sizes_stay_in_their_bounds_and_never_grow_with_doubt(
    confidence: float, strength: float, contradiction: float, evidence: int, p_bull: float
) -> None:
    found = sizes(confidence, strength, contradiction, evidence, p_bull)
    certain = sizes(confidence, strength, 0.0, 20)
    assert 0.0 <= found.allocation_pct <= certain.allocation_pct <= 0.10
    assert 0.0 <= found.max_loss_pct <= certain.max_loss_pct <= 0.02
