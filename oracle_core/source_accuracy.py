"""How often a source's direction came true, and what that does to its credibility (R163-R168, G20).

Only outcomes settled by the moment looked at count. Reading and writing the table does not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from oracle_core.config import AccuracyConfig, OracleConfig
from oracle_core.enums import Sentiment
from oracle_core.inputs import US_PER_DAY, AccuracyRows, CycleInputs, Float, Int
from oracle_core.market import forward_returns


@dataclass(frozen=True, slots=True)
class SourceAccuracy:
    """Accuracy of one source: share of right directional calls in [0, 1] and how many were counted."""

    source_id: str
    accuracy_ratio: float
    sample_count: int
    last_updated: datetime

    @property
    def accuracy_factor(self) -> float:
        """Factor of the credibility weight in [0.5, 1.5] with the default settings."""
        ratio, samples = np.array([self.accuracy_ratio]), np.array([self.sample_count])
        return float(accuracy_factors(ratio, samples, AccuracyConfig())[0])


def accuracy_factors(ratio: Float, samples: Int, config: AccuracyConfig) -> Float:
    """``base + ratio``, 1 with too few samples or a ratio that is not a number; ratios are clamped to [0, 1].

    Implements: R163, R167.
    """
    factor = config.factor_base + np.clip(ratio, 0.0, 1.0)
    return np.where((samples < config.min_samples) | np.isnan(ratio), 1.0, factor)


def factors_by_source(accuracy: AccuracyRows, sources: int, config: AccuracyConfig) -> Float:
    """Factor of every source code, 1 for a source without a row, and one more 1 for "no source".

    Implements: R165.
    """
    factors = np.ones(sources + 1)
    factors[accuracy.source] = accuracy_factors(accuracy.ratio, accuracy.samples, config)
    return factors


def outcome(sentiment: Float, returns: Float) -> Float:
    """Product of both signs: +1 right, -1 wrong, 0 not counted (no direction, no or zero return)."""
    moved = np.where(np.isfinite(returns), returns, 0.0)
    said = np.where(np.isfinite(sentiment), sentiment, 0.0)
    return np.sign(said) * np.sign(moved)


def measure_accuracy(inputs: CycleInputs, as_of_us: int, config: OracleConfig) -> AccuracyRows:
    """Accuracy of every source with at least one outcome settled by ``as_of_us`` (decisions 4).

    One observation per (document, entity) with directional sentiment and a settled, non-zero return over the
    horizon from its publication. Failed documents do not count.

    Returns:
        One row per source, in source order.

    """
    documents = inputs.documents.take(inputs.documents.has_impact & ~inputs.documents.failed)
    horizon_us = round(config.accuracy.horizon_days * US_PER_DAY)
    returns = forward_returns(inputs.bars, documents.entity, documents.published_us, horizon_us, as_of_us)
    result = outcome(documents.sentiment, returns)
    count = len(inputs.sources)
    right = np.bincount(documents.source[result > 0.0], minlength=count)
    samples = right + np.bincount(documents.source[result < 0.0], minlength=count)
    source = np.flatnonzero(samples > 0)
    return AccuracyRows(source, right[source] / samples[source], samples[source])


def updated_accuracy(
    current: SourceAccuracy, realized_outcomes: Sequence[tuple[Sentiment | str, float]], now: datetime
) -> SourceAccuracy:
    """Add outcomes to a source's accuracy: ``(ratio * n + right) / (n + m)`` (G20).

    Args:
        current: what was known before; a ratio that is not a number counts as no samples.
        realized_outcomes: predicted direction and 7-day return; neutral, mixed, zero and NaN do not count.
        now: the moment of the update, stored with the result.

    Implements: R164.

    """
    directions = [Sentiment(direction) for direction, _ in realized_outcomes]
    said = np.array([(d is Sentiment.POSITIVE) - (d is Sentiment.NEGATIVE) for d in directions])
    result = outcome(said, np.array([moved for _, moved in realized_outcomes]))
    right, counted = int(np.sum(result > 0.0)), int(np.sum(result != 0.0))
    if counted == 0:
        return current
    usable = np.isfinite(current.accuracy_ratio)
    samples = current.sample_count if usable else 0
    before = min(1.0, max(0.0, current.accuracy_ratio)) * samples if usable else 0.0
    total = samples + counted
    return SourceAccuracy(current.source_id, (before + right) / total, total, now)
