"""A list of weighted signals as the frame of one key: how the single forms reach the array functions.

No rule lives here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from oracle_core.arrays import finite, group_offsets, newest_first, string_codes
from oracle_core.enums import SignalLayer, codes
from oracle_core.frames import SignalFrame, SignalRows
from oracle_core.inputs import EPOCH, Float, Int, Keys, Ragged, Strings
from oracle_core.records import WeightedSignal

_LAYERS = codes(SignalLayer)


def microseconds(moment: datetime | None) -> int:
    """Microseconds since 1970; 0 where no moment is given."""
    return 0 if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


def single_frame(signals: Sequence[WeightedSignal]) -> SignalFrame:
    """The frame of one key (entity 0, window 0) that holds the signals.

    A signal whose weight, sentiment, impact, credibility or recency is not finite is skipped and counted
    (R148); a missing extraction confidence counts as 0, a missing time as the oldest.
    """
    ids, signal = string_codes([s.document_id for s in signals])
    sources, source = _optional_codes([s.source_id for s in signals])
    catalysts, catalyst = _optional_codes([s.catalyst_type for s in signals])
    risk_labels, risk = string_codes([label for s in signals for label in s.risks])
    count = len(signals)
    owner = np.repeat(np.arange(count), [len(s.risks) for s in signals])
    rows = SignalRows(
        key=np.zeros(count, np.int64),
        signal=signal,
        layer=np.array([_LAYERS[s.layer] for s in signals], np.int64),
        source=source,
        source_type=np.full(count, -1),
        catalyst=catalyst,
        published_us=np.array([microseconds(s.published_at) for s in signals], np.int64),
        sentiment=_floats([s.sentiment_value for s in signals]),
        impact=_floats([s.impact_score for s in signals]),
        extraction_confidence=_floats(
            [0.0 if s.extraction_confidence is None else s.extraction_confidence for s in signals]
        ),
        recency=_floats([s.weight.recency for s in signals]),
        credibility=_floats([s.weight.credibility for s in signals]),
        novelty_bonus=_floats([s.weight.novelty_bonus for s in signals]),
        confidence_gate=_floats([s.weight.confidence_gate for s in signals]),
        market_ctx_multiplier=_floats([s.weight.market_ctx_multiplier for s in signals]),
        sigmoid_gate=_floats([s.weight.sigmoid_gate for s in signals]),
        info_gain_factor=_floats([s.weight.info_gain_factor for s in signals]),
        source_accuracy_factor=_floats([s.weight.source_accuracy_factor for s in signals]),
        regime_multiplier=_floats([s.weight.regime_multiplier for s in signals]),
        adaptive_half_life_hours=_floats([s.adaptive_half_life for s in signals]),
        layer_weight=np.ones(count),
        combined=_floats([s.weight.combined for s in signals]),
        risks=Ragged(group_offsets(owner, count), risk),
    )
    good = finite(rows.combined, rows.sentiment, rows.impact, rows.credibility, rows.recency)
    order = newest_first(rows.key, rows.published_us, rows.signal)
    return SignalFrame(
        keys=Keys(np.zeros(1, np.int64), np.zeros(1, np.int64)),
        ids=ids,
        sources=sources,
        source_types=np.array([], np.object_),
        catalysts=catalysts,
        risk_labels=risk_labels,
        rows=rows.take(order[good[order]]),
        skipped=np.array([count - int(good.sum())]),
    )


def _optional_codes(values: Sequence[str | None]) -> tuple[Strings, Int]:
    """Table and codes of strings, -1 for None."""
    table, found = string_codes([value for value in values if value is not None])
    result = np.full(len(values), -1)
    result[[value is not None for value in values]] = found
    return table, result


def _floats(values: Sequence[float | None]) -> Float:
    """Column of numbers, NaN for None."""
    return np.array(values, np.float64)
