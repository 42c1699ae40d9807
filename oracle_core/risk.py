"""Risk classification of a recommendation and the weight of its citations (R118-R120, R123)."""

from __future__ import annotations

import numpy as np

from oracle_core.config import RiskConfig
from oracle_core.enums import RiskLevel
from oracle_core.inputs import Float, Int
from oracle_core.terms import Term, summed

LEVELS: tuple[RiskLevel, ...] = tuple(RiskLevel)


def risk_scores(
    *, contradiction: Float, confidence: Float, evidence: Int, rejections: Int, config: RiskConfig
) -> Float:
    """Sum of the four contributions of every key (R119).

    Args:
        contradiction: in [0, 1].
        confidence: in [0, 1].
        evidence: number of documents.
        rejections: number of failed gates; a failed expected value is none.
        config: weights.

    Returns:
        Values >= 0.

    """
    terms = risk_terms(
        contradiction=contradiction,
        confidence=confidence,
        evidence=evidence,
        rejections=rejections,
        config=config,
    )
    return summed(terms)


def risk_terms(
    *, contradiction: Float, confidence: Float, evidence: Int, rejections: Int, config: RiskConfig
) -> tuple[Term, ...]:
    """The four contributions themselves; arguments as for :func:`risk_scores`.

    Implements: R119.
    """
    thin = np.select(
        (evidence < config.thin_evidence_below, evidence < config.modest_evidence_below),
        (config.thin_evidence_penalty, config.modest_evidence_penalty),
        0.0,
    )
    return (
        Term("contradiction", config.contradiction_weight, contradiction),
        Term("missing_confidence", config.confidence_weight, 1.0 - confidence),
        Term("thin_evidence", 1.0, thin),
        Term("failed_gates", config.rejection_weight, rejections.astype(np.float64)),
    )


def risk_levels(scores: Float, config: RiskConfig) -> Int:
    """Level of every score, as codes of RiskLevel; each cut belongs to the level above it (R120).

    Implements: R120.
    """
    cuts = np.array([config.moderate_from, config.high_from, config.very_high_from])
    return np.searchsorted(cuts, scores, side="right").astype(np.int64)


def citation_weights(position: Int, config: RiskConfig) -> Float:
    """Weight ``1 / (1 + 0.1 * position)`` of a cited document (R123).

    Args:
        position: original rank within its role, from 0; ids that are no documents keep their place, so the
            ranks of documents may have gaps (G30).
        config: the decay.

    Returns:
        Values in (0, 1].

    Implements: R123.

    """
    return 1.0 / (1.0 + config.evidence_weight_decay * position.astype(np.float64))


def classify_risk(
    *,
    contradiction: float,
    confidence: float,
    evidence: int,
    rejections: int,
    config: RiskConfig | None = None,
) -> tuple[RiskLevel, float]:
    """Level and score of one recommendation."""
    c = config or RiskConfig()
    scores = risk_scores(
        contradiction=np.array([contradiction]),
        confidence=np.array([confidence]),
        evidence=np.array([evidence]),
        rejections=np.array([rejections]),
        config=c,
    )
    return LEVELS[int(risk_levels(scores, c)[0])], float(scores[0])
