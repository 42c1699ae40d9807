"""Bayesian accumulation: mass of evidence, posterior, entropy (R139-R150).

:func:`evidence_mass` is the only place that says how much a set of signals adds to L, alpha and beta; all
else takes the mass as given. Directions and confidences of trends belong in ``trend``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import entr, expit

from oracle_core.arrays import group_sums
from oracle_core.inputs import Columns, Float, Int
from oracle_core.records import WeightedSignal


@dataclass(frozen=True, slots=True, eq=False)
class Mass(Columns):
    """Mass of the evidence for and against, one row per group; both at least 0."""

    bull: Float
    bear: Float


@dataclass(frozen=True, slots=True, eq=False)
class Posterior(Columns):
    """Posterior of every group; NaN in the mode that has none. ``mass`` is the evidence of both sides."""

    mass: Float
    p_bull: Float
    alpha: Float
    beta: Float
    log_likelihood: Float
    bayesian_confidence: Float
    entropy: Float


@dataclass(frozen=True)
class BayesianPosterior:
    """Posterior of one set of signals.

    ``p_bull``, ``bayesian_confidence`` and ``entropy`` lie in [0, 1]; ``alpha`` and ``beta`` are at least 1;
    ``signal_count`` leaves out what was skipped for NaN. ``PRIOR`` is the posterior of no evidence (C19).

    Implements: R145, R146.
    """

    p_bull: float
    alpha: float
    beta: float
    log_likelihood: float
    bayesian_confidence: float
    entropy: float
    signal_count: int

    PRIOR: ClassVar[BayesianPosterior]


BayesianPosterior.PRIOR = BayesianPosterior(
    p_bull=0.5,
    alpha=1.0,
    beta=1.0,
    log_likelihood=0.0,
    bayesian_confidence=0.0,
    entropy=1.0,
    signal_count=0,
)


def evidence_mass(weight: Float, sentiment: Float, groups: Int, count: int) -> Mass:
    """Sum of ``w * |s|`` on either side: how much a set of signals counts as evidence (G7).

    Args:
        weight: effective weight of each signal (combined weight times impact), finite and at least 0.
        sentiment: in [-1, 1].
        groups: group of each signal.
        count: number of groups.

    """
    amount = evidence_amounts(weight, sentiment)
    return Mass(
        bull=group_sums(np.maximum(amount, 0.0), groups, count),
        bear=group_sums(np.maximum(-amount, 0.0), groups, count),
    )


def evidence_amounts(weight: Float, sentiment: Float) -> Float:
    """What each signal adds to the evidence, positive for and negative against; see :func:`evidence_mass`."""
    return weight * sentiment


def posterior(mass: Mass) -> Posterior:
    """Posterior of a mass of evidence.

    ``L = W_bull - W_bear``, ``p = sigma(L)``, ``alpha = 1 + W_bull``, ``beta = 1 + W_bear``,
    ``C = ((alpha - beta) / (alpha + beta))^2`` (the form that cannot overflow, C6) and the entropy of p.

    Implements: R139, R140, R141, R142, R147, R149.
    """
    log_likelihood = mass.bull - mass.bear
    alpha, beta = 1.0 + mass.bull, 1.0 + mass.bear
    p_bull = np.asarray(expit(log_likelihood))
    return Posterior(
        mass=mass.bull + mass.bear,
        p_bull=p_bull,
        alpha=alpha,
        beta=beta,
        log_likelihood=log_likelihood,
        bayesian_confidence=confidence(alpha, beta),
        entropy=entropy(p_bull),
    )


def no_posterior(mass: Mass) -> Posterior:
    """The heuristic mode has no posterior: NaN everywhere."""
    unused = np.full(len(mass.bull), np.nan)
    return Posterior(unused, unused, unused, unused, unused, unused, unused)


def confidence(alpha: Float, beta: Float) -> Float:
    """``((alpha - beta) / (alpha + beta))^2`` in [0, 1]: concentration, not volume (C6)."""
    return ((alpha - beta) / (alpha + beta)) ** 2


def entropy(share: Float) -> Float:
    """Shannon entropy in bits of a two-sided split, in [0, 1]; 0 at and beyond both ends.

    Implements: R143.
    """
    inside = np.clip(share, 0.0, 1.0)
    bits: Float = (entr(inside) + entr(1.0 - inside)) / np.log(2.0)
    return np.minimum(1.0, bits)


def compute_entropy(p_bull: float) -> float:
    """Entropy of one probability; see :func:`entropy`.

    >>> compute_entropy(0.5)
    1.0
    >>> compute_entropy(1.0)
    0.0
    """
    return float(entropy(np.array([p_bull]))[0])


def compute_bayesian_posterior(signals: Sequence[WeightedSignal]) -> BayesianPosterior:
    """Posterior of a list of signals; the prior for an empty one.

    A signal whose weight, impact or sentiment is not finite is skipped and not counted.

    Implements: R144, R148.
    """
    rows = [(s.weight.combined, s.impact_score, s.sentiment_value) for s in signals]
    columns = np.array(rows).reshape(len(rows), 3)
    columns = columns[np.isfinite(columns).all(axis=1)]
    if len(columns) == 0:
        return BayesianPosterior.PRIOR
    mass = evidence_mass(columns[:, 0] * columns[:, 1], columns[:, 2], np.zeros(len(columns), np.int64), 1)
    found = posterior(mass)
    return BayesianPosterior(
        p_bull=float(found.p_bull[0]),
        alpha=float(found.alpha[0]),
        beta=float(found.beta[0]),
        log_likelihood=float(found.log_likelihood[0]),
        bayesian_confidence=float(found.bayesian_confidence[0]),
        entropy=float(found.entropy[0]),
        signal_count=len(columns),
    )
