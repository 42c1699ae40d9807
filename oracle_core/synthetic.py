"""Signals that are not documents (macro, competitor, pattern), before they join the frame.

Their weight is recency times credibility times layer weight in both modes (decisions 2): no gate, no
information gain, no accuracy, novelty, market or regime factor. Where they come from is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle_core.frames import SignalRows
from oracle_core.inputs import Columns, Float, Int, Ragged


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticSignals(Columns):
    """One row per (key, signal); ``name`` indexes the names that come with the rows."""

    key: Int
    name: Int
    published_us: Int
    catalyst: Int
    sentiment: Float
    impact: Float
    extraction_confidence: Float
    recency: Float
    credibility: Float
    layer: Int
    layer_weight: Float

    def rows(self, signal: Int, max_combined: float) -> SignalRows:
        """The rows of the signal frame; ``signal`` gives the code of each name."""
        count = len(self.key)
        one, unused, none = np.ones(count), np.full(count, np.nan), np.full(count, -1)
        return SignalRows(
            key=self.key,
            signal=signal[self.name],
            layer=self.layer,
            source=none,
            source_type=none,
            catalyst=self.catalyst,
            published_us=self.published_us,
            sentiment=self.sentiment,
            impact=self.impact,
            extraction_confidence=self.extraction_confidence,
            recency=self.recency,
            credibility=self.credibility,
            novelty_bonus=one,
            confidence_gate=one,
            market_ctx_multiplier=one,
            sigmoid_gate=unused,
            info_gain_factor=one,
            source_accuracy_factor=one,
            regime_multiplier=unused,
            adaptive_half_life_hours=unused,
            layer_weight=self.layer_weight,
            combined=np.minimum(self.recency * self.credibility * self.layer_weight, max_combined),
            risks=Ragged.empty(count),
        )
