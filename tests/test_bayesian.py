"""The Bayesian accumulator (R139-R150)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from oracle_core.bayesian import (
    BayesianPosterior,
    compute_bayesian_posterior,
    compute_entropy,
    confidence,
    evidence_mass,
    no_posterior,
    posterior,
)
from tests.strategies import NAN, signal

THREE = [signal("a", 0.8, 1.0, 0.9), signal("b", 0.5, 1.0, 0.6), signal("c", 0.4, -1.0, 0.5)]


def test_r139_r140_r141_worked_posterior() -> None:
    """Effective weights .72, .30, -.20."""
    found = compute_bayesian_posterior(THREE)
    assert found.log_likelihood == pytest.approx(0.82)
    assert found.p_bull == pytest.approx(0.694236, abs=1e-6)
    assert found.alpha == pytest.approx(2.02)
    assert found.beta == pytest.approx(1.2)


def test_g7_mass_is_weight_times_impact_times_size_of_sentiment() -> None:
    """With impact 1 or sentiment 1 everywhere other readings of the mass would give the same."""
    found = compute_bayesian_posterior([signal("a", 2.0, 0.5, 0.6), signal("b", 1.0, -0.25, 0.8)])
    assert found.alpha == pytest.approx(1.6)
    assert found.beta == pytest.approx(1.2)
    assert found.log_likelihood == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [
        (2.02, 1.2, 0.0648509),
        (3.7, 1.2, 0.260308),
        (2.0, 1.0, 0.111111),
        (200.0, 100.0, 0.111111),
        (7.0, 7.0, 0.0),
    ],
)
def test_r142_confidence_is_concentration_not_volume(alpha: float, beta: float, expected: float) -> None:
    for pair in ((alpha, beta), (beta, alpha)):
        assert confidence(*(np.array([v]) for v in pair))[0] == pytest.approx(expected, abs=1e-6)


def test_r142_the_squared_form_does_not_overflow() -> None:
    """The literal formula overflows from alpha = 1e155 on and gives -2e-16 just above alpha = beta (C6)."""
    assert confidence(np.array([1e200]), np.array([1.0]))[0] == 1.0
    assert confidence(np.array([1e200]), np.array([1e200]))[0] == 0.0
    assert confidence(np.array([1.0]), np.array([1.0000000000000002]))[0] >= 0.0


@pytest.mark.parametrize(
    ("p_bull", "expected"),
    [
        (0.6942363, 0.8882227),
        (0.72, 0.855451),
        (0.8, 0.721928),
        (0.2, 0.721928),
        (0.65, 0.934068),
        (0.5, 1.0),
        (0.0, 0.0),
        (1.0, 0.0),
        (-0.1, 0.0),
        (1.1, 0.0),
    ],
)
def test_r143_entropy(p_bull: float, expected: float) -> None:
    assert compute_entropy(p_bull) == pytest.approx(expected, abs=1e-6)


def test_r143_entropy_at_the_edges_of_floats() -> None:
    assert compute_entropy(5e-324) == pytest.approx(5.3e-321, rel=0.1)
    assert compute_entropy(1.0 - 2.0**-53) == pytest.approx(6.04e-15, rel=0.01)


def test_r144_r148_signals_that_are_no_numbers_are_skipped_and_not_counted() -> None:
    clean = compute_bayesian_posterior(THREE)
    assert clean.signal_count == 3
    for fault in ({"combined": NAN}, {"sentiment": NAN}, {"impact": NAN}, {"combined": math.inf}):
        assert compute_bayesian_posterior([*THREE, signal("bad", **fault)]) == clean


def test_r145_prior() -> None:
    expected = BayesianPosterior(0.5, 1.0, 1.0, 0.0, 0.0, 1.0, 0)
    assert expected == BayesianPosterior.PRIOR
    assert compute_bayesian_posterior([]) == BayesianPosterior.PRIOR
    assert compute_bayesian_posterior([signal("bad", NAN)]) == BayesianPosterior.PRIOR


def test_r146_the_posterior_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BayesianPosterior.PRIOR.p_bull = 0.7  # type: ignore[misc]


def test_r147_alpha_and_beta_start_at_1() -> None:
    found = compute_bayesian_posterior([signal("a", 0.3), signal("z", 0.7, 0.0)])
    assert (found.alpha, found.beta) == (1.3, 1.0)


@pytest.mark.parametrize(("weight", "sentiment", "p_bull"), [(1000.0, 1.0, 1.0), (1000.0, -1.0, 0.0)])
def test_r149_large_weights_do_not_overflow(weight: float, sentiment: float, p_bull: float) -> None:
    """The naive 1 / (1 + exp(1000)) raises OverflowError."""
    found = compute_bayesian_posterior([signal("a", weight, sentiment)])
    assert found.p_bull == pytest.approx(p_bull, abs=1e-300)
    assert found.entropy == pytest.approx(0.0, abs=1e-300)
    huge = compute_bayesian_posterior([signal("a", 1e300), signal("b", 1e300, -1.0)])
    assert (huge.p_bull, huge.bayesian_confidence) == (0.5, 0.0)


def test_groups_do_not_mix_and_an_empty_group_is_the_prior() -> None:
    weight, sentiment = np.array([0.72, 0.30, 0.20, 5.0]), np.array([1.0, 1.0, -1.0, 1.0])
    mass = evidence_mass(weight, sentiment, np.array([0, 0, 0, 2]), 3)
    assert mass.bull == pytest.approx([1.02, 0.0, 5.0])
    assert mass.bear == pytest.approx([0.2, 0.0, 0.0])
    found = posterior(mass)
    assert found.p_bull[1] == 0.5
    assert found.mass == pytest.approx([1.22, 0.0, 5.0])


def test_the_heuristic_mode_has_no_posterior() -> None:
    found = no_posterior(evidence_mass(np.ones(2), np.ones(2), np.array([0, 1]), 2))
    for name in ("mass", "p_bull", "alpha", "beta", "log_likelihood", "bayesian_confidence", "entropy"):
        assert np.isnan(getattr(found, name)).tolist() == [True, True], name


def test_r143_rounding_never_lifts_entropy_above_one() -> None:
    """Close to 1/2 the two halves add up to 1.0000000000000002 in floats."""
    assert compute_entropy(0.49999999483) == 1.0
