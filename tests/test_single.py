"""Lists of weighted signals as the frame of one key, for the single forms."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import numpy as np

from oracle_core.enums import SignalLayer
from oracle_core.single import microseconds, single_frame
from tests.strategies import NAN, signal

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def test_times_are_microseconds_since_1970() -> None:
    assert microseconds(datetime(1970, 1, 1, 0, 0, 1, 3, tzinfo=UTC)) == 1_000_003
    assert isinstance(microseconds(NOW), int)
    assert microseconds(None) == 0


def test_every_field_of_a_signal_becomes_a_column() -> None:
    made = signal(
        "d",
        0.8,
        -0.5,
        0.4,
        recency=0.9,
        credibility=0.6,
        novelty_bonus=1.1,
        market_ctx_multiplier=1.2,
        layer=SignalLayer.MACRO,
        catalyst_type="legal",
        source_id="s",
        published_at=NOW,
        extraction_confidence=0.7,
        adaptive_half_life=5.0,
        risks=("r2", "r1"),
    )
    frame = single_frame([made])
    row = frame.rows
    assert (frame.ids[row.signal[0]], frame.sources[row.source[0]]) == ("d", "s")
    assert frame.catalysts[row.catalyst[0]] == "legal"
    assert [frame.risk_labels[code] for code in row.risks.codes] == ["r2", "r1"]
    assert (row.combined[0], row.sentiment[0], row.impact[0]) == (0.8, -0.5, 0.4)
    assert (row.recency[0], row.credibility[0], row.novelty_bonus[0]) == (0.9, 0.6, 1.1)
    assert (row.market_ctx_multiplier[0], row.extraction_confidence[0]) == (1.2, 0.7)
    assert (row.adaptive_half_life_hours[0], row.published_us[0]) == (5.0, microseconds(NOW))
    assert list(SignalLayer)[row.layer[0]] is SignalLayer.MACRO
    assert (frame.keys.entity.tolist(), frame.keys.window.tolist()) == ([0], [0])


def test_what_is_not_given_is_none_or_0() -> None:
    frame = single_frame([signal("d")])
    row = frame.rows
    assert (row.source[0], row.source_type[0], row.catalyst[0], row.published_us[0]) == (-1, -1, -1, 0)
    assert row.extraction_confidence[0] == 0.0
    assert np.isnan(row.sigmoid_gate[0])
    assert len(frame.source_types) == 0
    assert frame.keys.entity.dtype == frame.keys.window.dtype == np.int64


def test_signals_stand_newest_first_then_by_id_and_what_is_no_number_is_skipped() -> None:
    old = NOW - timedelta(microseconds=1)
    frame = single_frame(
        [
            signal("b", published_at=old),
            signal("a", published_at=old),
            signal("z", published_at=NOW),
            signal("bad", NAN, published_at=NOW),
            signal("x"),
        ]
    )
    assert [frame.ids[code] for code in frame.rows.signal.tolist()] == ["z", "a", "b", "x"]
    assert frame.skipped.tolist() == [1]


def test_an_empty_list_is_a_key_without_signals() -> None:
    frame = single_frame([])
    assert len(frame.rows.key) == 0
    assert frame.skipped.tolist() == [0]
    some = single_frame([signal("d")])
    columns = [field.name for field in fields(frame.rows) if field.name != "risks"]
    for name in columns:
        assert getattr(frame.rows, name).dtype == getattr(some.rows, name).dtype, name
    assert frame.source_types.dtype == some.source_types.dtype == np.object_
