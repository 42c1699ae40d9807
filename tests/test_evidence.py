"""Order of the evidence (R25-R29, G9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from oracle_core import cycle
from oracle_core.config import OracleConfig, TrendConfig
from oracle_core.enums import EvidenceRole
from oracle_core.evidence import rank_evidence, rank_evidence_detailed
from tests.strategies import AS_OF_US, Document, Edge, Event, Exposure, World, signal

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def test_r25_positive_supports_negative_opposes_neutral_does_neither() -> None:
    found = rank_evidence(
        [
            signal("a", sentiment=1.0),
            signal("b", sentiment=-1.0),
            signal("c", sentiment=0.0),
            signal("d", sentiment=0.2),
        ]
    )
    assert found == (["a", "d"], ["b"])


def test_r25_a_signal_without_impact_or_weight_is_no_evidence() -> None:
    """Decisions 3: it stays active in average and confidence, but it is ranked on neither side."""
    found = rank_evidence([signal("a", impact=0.0), signal("b", combined=0.0), signal("c", impact=1e-9)])
    assert found == (["c"], [])


def test_r26_composite_score() -> None:
    """.4 x .8 + .3 x .9 + .2 x .5 + .1 x .7 = .76; the weight is relative to the largest active one."""
    largest = signal("neutral", combined=2.0, sentiment=0.0)
    asked = signal("a", combined=1.6, impact=0.9, recency=0.5, extraction_confidence=0.7)
    [found], opposing = rank_evidence_detailed([largest, asked])
    assert found.rank_score == pytest.approx(0.76)
    assert opposing == []


@pytest.mark.parametrize("field", ["combined", "impact", "recency", "extraction_confidence"])
def test_r26_more_of_anything_ranks_higher(field: str) -> None:
    low = {"combined": 0.5, "impact": 0.5, "recency": 0.5, "extraction_confidence": 0.5}
    found = rank_evidence([signal("a", **low), signal("b", **(low | {field: 0.6}))])
    assert found[0] == ["b", "a"]


def test_r26_a_set_of_light_signals_is_ranked_like_one_of_heavy_ones() -> None:
    [light], _ = rank_evidence_detailed([signal("a", 0.01)])
    assert light.weight_component == 0.4
    assert rank_evidence([]) == ([], [])


def test_r27_at_most_ten_per_side() -> None:
    many = [signal(f"p{n:02d}", impact=(n + 1) / 14) for n in range(14)]
    few = [signal(f"n{n}", sentiment=-1.0) for n in range(3)]
    supporting, opposing = rank_evidence(many + few)
    assert supporting == [f"p{n:02d}" for n in range(13, 3, -1)]
    assert len(opposing) == 3
    assert rank_evidence(many, TrendConfig(max_evidence_refs=2))[0] == ["p13", "p12"]


def test_r28_components_add_up_to_the_score() -> None:
    _, [found] = rank_evidence_detailed(
        [signal("a", 0.5, -0.6, 0.9, recency=0.25, extraction_confidence=0.75), signal("b", 1.0, 0.0)]
    )
    assert found.role is EvidenceRole.OPPOSING
    assert found.weight_component == pytest.approx(0.2)
    assert found.impact_component == pytest.approx(0.27)
    assert found.recency_component == pytest.approx(0.05)
    assert found.confidence_component == pytest.approx(0.075)
    assert found.rank_score == pytest.approx(0.595)
    assert found.sentiment_value == -0.6


def test_g9_ties_go_to_the_newer_document_then_to_the_id() -> None:
    old, new = NOW - timedelta(hours=2), NOW - timedelta(hours=1)
    found = rank_evidence(
        [
            signal("b", published_at=old),
            signal("z", published_at=new),
            signal("a", published_at=old),
            signal("Z", published_at=old),
        ]
    )
    assert found[0] == ["z", "Z", "a", "b"]


def test_r29_lists_and_details_of_a_trend_agree_and_documents_are_told_from_synthetic_ids() -> None:
    world = World(
        documents=(
            Document("d1", "a", catalyst="legal"),
            Document("d2", "a", sentiment=-1.0),
            Document("d4", "a", age_hours=3.0),
            Document("d3", "b"),
        ),
        events=(Event("e"),),
        exposures=(Exposure("a", "geo", "us", 1.0),),
        edges=(Edge("a", "b", 1.0),),
    )
    config = OracleConfig()
    signals = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)
    trends = cycle.assemble_trends(signals, world.inputs(), AS_OF_US, config)
    rows = trends.evidence.take(trends.evidence.key == 0)
    listed = [trends.ids[code] for code in rows.signal.tolist()]
    assert listed == trends.supporting[0] + trends.opposing[0]
    assert set(trends.supporting[0]) == {"d1", "d4", "macro:e", "competitor:b:intraday"}
    assert trends.opposing[0] == ["d2"]
    assert rows.position.tolist() == [0, 1, 2, 3, 0]
    assert rows.role.tolist() == [0, 0, 0, 0, 1]
    assert [name in {"d1", "d2", "d4"} for name in listed] == rows.is_document.tolist()
    assert trends.rows.supporting_count[0] == 2
    assert trends.rows.opposing_count[0] == 1
    assert trends.rows.evidence_count[0] == 3
