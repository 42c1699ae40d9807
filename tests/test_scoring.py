"""Weights of documents in both modes, and the merged list of signals (R3, R5, R6, R170-R180, G1-G5)."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from oracle_core import cycle, scoring
from oracle_core.competitive import Relations
from oracle_core.config import OracleConfig, ScoringConfig
from oracle_core.enums import PipelineMode, SignalLayer, Window
from oracle_core.frames import SignalFrame
from oracle_core.inputs import AccuracyRows, Keys
from oracle_core.market import MarketFigures
from oracle_core.records import SignalWeight
from oracle_core.rules import HEURISTIC, PROBABILISTIC, rules_for
from oracle_core.scoring import (
    binary_gate,
    compute_signal_weight,
    credibilities,
    layered,
    market_ctx_multiplier,
    novelty_bonus,
    recency,
    regime_multiplier,
)
from oracle_core.source_accuracy import SourceAccuracy
from tests.strategies import AS_OF_US, NAN, Bar, Document, Edge, Event, Exposure, World

CONFIG = OracleConfig()
SCORING = ScoringConfig()


def column(*values: float) -> Any:  # noqa: ANN401
    return np.array(values, np.float64)


def market(
    *,
    volatility: float = NAN,
    volume: float = NAN,
    price: float = NAN,
    return_z: float = NAN,
    volume_z: float = NAN,
) -> MarketFigures:
    return MarketFigures(
        column(volatility), column(volume), column(price), column(return_z), column(volume_z)
    )


def weight(**more: Any) -> SignalWeight:  # noqa: ANN401
    given = {
        "age_hours": 0.0,
        "window": Window.INTRADAY,
        "impact_score": 0.5,
        "extraction_confidence": 1.0,
        "credibility": 1.0,
        "rules": HEURISTIC,
        "config": CONFIG,
    }
    return compute_signal_weight(**(given | more))


def scored(world: World, mode: PipelineMode = PipelineMode.HEURISTIC, **settings: object) -> SignalFrame:
    flag = {"flags.probabilistic_scoring_enabled": mode is PipelineMode.PROBABILISTIC}
    config = CONFIG.with_settings(flag | settings)
    return cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)


def of_key(frame: SignalFrame, key: int) -> list[str]:
    """Ids of a key's signals, in order."""
    return [frame.ids[code] for code in frame.rows.signal[frame.rows.key == key].tolist()]


# --------------------------------------------------------------------------------------------- factors


@pytest.mark.parametrize(
    ("age", "half_life", "expected"),
    [
        (24.0, 24.0, 0.5),
        (0.0, 24.0, 1.0),
        (-5.0, 24.0, 1.0),
        (36.0, 24.0, 0.353553390593),
        (36.0, 77.1227, 0.723573),
        (72.0, 24.0, 0.125),
    ],
)
def test_g1_recency_halves_per_half_life(age: float, half_life: float, expected: float) -> None:
    assert recency(column(age), column(half_life))[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("window", "hours"),
    [
        (Window.INTRADAY, 4.0),
        (Window.ONE_DAY, 8.0),
        (Window.SEVEN_DAYS, 56.0),
        (Window.THIRTY_DAYS, 240.0),
        (Window.NINETY_DAYS, 720.0),
    ],
)
def test_g1_base_half_life_is_a_third_of_the_lookback(window: Window, hours: float) -> None:
    assert weight(window=window, age_hours=hours).recency == 0.5


@pytest.mark.parametrize(
    ("source_type", "expected"),
    [
        ("filing", 0.95),
        ("transcript", 0.90),
        ("research", 0.80),
        ("news", 0.70),
        ("poll", 0.70),
        ("press_release", 0.60),
        ("blog", 0.45),
        ("social", 0.40),
        ("telegram", 0.50),
        (None, 0.50),
    ],
)
def test_g2_credibility_by_source_type_where_the_document_states_none(
    source_type: str | None, expected: float
) -> None:
    assert weight(credibility=None, source_type=source_type).credibility == expected
    assert weight(credibility=0.33, source_type=source_type).credibility == 0.33


def test_g2_stated_credibility_is_clamped() -> None:
    types = np.array([], np.object_)
    found = credibilities(column(1.7, -0.2, NAN), np.array([-1, -1, -1]), types, SCORING)
    assert found.tolist() == [1.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("novelty", "expected"), [(0.4, 1.1), (0.0, 1.0), (1.0, 1.25), (NAN, 1.0), (7.0, 1.25), (-1.0, 1.0)]
)
def test_g3_novelty_bonus(novelty: float, expected: float) -> None:
    assert novelty_bonus(column(novelty), SCORING)[0] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("confidence", "expected"), [(0.299999, 0.0), (0.30, 1.0), (1.0, 1.0), (0.0, 0.0)])
def test_g4_binary_gate(confidence: float, expected: float) -> None:
    assert binary_gate(column(confidence), SCORING)[0] == expected


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"volatility": 1.23, "volume": 45.2, "price": -2.1}, 1.19230),
        ({}, 1.0),
        ({"volatility": 3.0, "volume": 100.0, "price": 5.0}, 1.45),
        ({"volatility": 90.0, "volume": -900.0, "price": -90.0}, 1.45),
        ({"volatility": 1.5}, 1.075),
        ({"volume": -50.0}, 1.075),
        ({"price": -2.5}, 1.075),
    ],
)
def test_g5_market_context(figures: dict[str, float], expected: float) -> None:
    """Three clamped terms of .15 each; a missing one is 0, so the range is [1, 1.45]."""
    assert market_ctx_multiplier(market(**figures), SCORING)[0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("return_z", "volume_z", "expected"),
    [(17 / 9, 2.25, 1.50833), (12.0, 3.0, 2.5), (0.0, 0.0, 1.0), (-2.0, -1.0, 1.4), (2.0, NAN, 1.3)],
)
def test_r175_regime_multiplier(return_z: float, volume_z: float, expected: float) -> None:
    found = regime_multiplier(market(return_z=return_z, volume_z=volume_z), SCORING)
    assert found[0] == pytest.approx(expected, abs=1e-5)


def test_r176_without_a_return_score_the_multiplier_is_1_whatever_the_volume() -> None:
    """Sigma of returns 0 or fewer than 21 returns give no z-score (decisions 1)."""
    assert regime_multiplier(market(volume_z=9.0), SCORING)[0] == 1.0


def test_r177_the_regime_multiplier_replaces_the_market_context() -> None:
    moves = market(volatility=3.0, return_z=2.0, volume_z=0.0)
    heuristic = weight(market=moves)
    probabilistic = weight(market=moves, rules=PROBABILISTIC)
    assert (heuristic.market_ctx_multiplier, heuristic.regime_multiplier) == (1.15, None)
    assert (probabilistic.market_ctx_multiplier, probabilistic.regime_multiplier) == (1.0, 1.3)


# --------------------------------------------------------------------------------------------- products


def test_r6_weight_of_a_document() -> None:
    """.5 recency, .7 credibility, 1.1 novelty, gate 1, market context 1.1923."""
    found = weight(
        age_hours=4.0,
        credibility=0.7,
        novelty=0.4,
        market=market(volatility=1.23, volume=45.2, price=-2.1),
    )
    assert found.combined == pytest.approx(0.4590355, abs=1e-12)
    assert found.recency == 0.5
    assert found.novelty_bonus == pytest.approx(1.1)
    assert found.confidence_gate == 1.0
    assert found.market_ctx_multiplier == pytest.approx(1.1923)
    assert (found.sigmoid_gate, found.info_gain_factor, found.source_accuracy_factor) == (None, 1.0, 1.0)


def test_r180_weight_of_a_document_probabilistic() -> None:
    """.5 recency, .7 credibility, 1.2 accuracy, 1.1 novelty, sigmoid(.65), regulatory, multiplier 1.51."""
    found = weight(
        age_hours=6.186313713864835,  # the adaptive half-life of a regulatory document without impact
        impact_score=0.0,
        credibility=0.7,
        novelty=0.4,
        extraction_confidence=0.65,
        catalyst_type="regulatory",
        source_accuracy=SourceAccuracy("s", 0.7, 10, datetime(2026, 1, 1, tzinfo=UTC)),
        market=market(return_z=2.0, volume_z=2.1),
        rules=PROBABILISTIC,
    )
    assert found.recency == pytest.approx(0.5, abs=1e-12)
    assert found.source_accuracy_factor == pytest.approx(1.2)
    assert found.sigmoid_gate == pytest.approx(0.679179, abs=1e-6)
    assert found.info_gain_factor == pytest.approx(2.09316, abs=1e-5)
    assert found.regime_multiplier == pytest.approx(1.51)
    assert found.combined == pytest.approx(0.991756, abs=1e-6)
    assert found.confidence_gate == 1.0


@pytest.mark.parametrize(("layer_weight", "expected"), [(1.0, 0.459036), (0.3, 0.137711), (0.2, 0.0918071)])
def test_r5_layer_weights(layer_weight: float, expected: float) -> None:
    assert layered(column(0.4590355), layer_weight, SCORING)[0] == pytest.approx(expected, abs=1e-6)


def test_g5_combined_is_clamped_but_nan_stays_visible() -> None:
    found = layered(column(1e9, NAN, 0.0), 1.0, SCORING)
    assert found[[0, 2]].tolist() == [100.0, 0.0]
    assert np.isnan(found[1])


def test_c2_no_probabilistic_weight_is_ever_switched_off() -> None:
    """The sigmoid never reaches 0, so a document of confidence 0 stays active in that mode."""
    assert weight(extraction_confidence=0.0).combined == 0.0
    assert weight(extraction_confidence=0.0, rules=PROBABILISTIC).combined > 0.0


def test_r131_with_the_flag_off_no_probabilistic_setting_changes_a_bit() -> None:
    changed = CONFIG.with_settings(
        {
            "scoring.sigmoid_steepness": 10.0,
            "scoring.info_gain_lambda": 2.0,
            "scoring.regime_return_weight": 0.9,
            "scoring.adaptive_decay_impact_scale": 0.1,
            "macro.modifier_weight": 0.9,
            "competitive.max_distance": 1,
            "regime.panic_vol_ratio": 9.0,
            "trend.entropy_mixed_threshold": 0.1,
        }
    )
    world = a_world()
    keys, inputs = world.keys(), world.inputs()
    for config in (CONFIG, changed):
        assert rules_for(config) is HEURISTIC
    plain = cycle.score_signals(inputs, keys, AS_OF_US, CONFIG)
    other = cycle.score_signals(inputs, keys, AS_OF_US, changed)
    assert plain.rows.combined.tobytes() == other.rows.combined.tobytes()
    first = cycle.assemble_trends(plain, inputs, AS_OF_US, CONFIG)
    second = cycle.assemble_trends(other, inputs, AS_OF_US, changed)
    assert first.rows.strength.tobytes() == second.rows.strength.tobytes()
    assert first.rows.confidence.tobytes() == second.rows.confidence.tobytes()


# ------------------------------------------------------------------------------------------- the frame


def a_world() -> World:
    """Entity ``a``: three documents, two events, one neighbour with a document."""
    return World(
        documents=(
            Document("d1", "a", age_hours=1.0, catalyst="legal"),
            Document("d2", "a", age_hours=2.0),
            Document("d3", "a", age_hours=3.0),
            Document("d4", "b", age_hours=1.5, sentiment=-1.0),
        ),
        events=(Event("e1", age_hours=5.0), Event("e2", age_hours=6.0)),
        exposures=(Exposure("a", "geo", "us", 0.8),),
        edges=(Edge("a", "b", 0.5),),
    )


@pytest.mark.parametrize(
    ("macro", "competitive", "count"),
    [(False, False, 3), (True, False, 5), (True, True, 6), (False, True, 4)],
)
def test_r3_enabled_layers_are_merged(*, macro: bool, competitive: bool, count: int) -> None:
    frame = scored(a_world(), **{"flags.macro_enabled": macro, "flags.competitive_enabled": competitive})
    assert len(of_key(frame, 0)) == count


def test_signals_stand_by_key_newest_first_then_by_id() -> None:
    world = a_world()
    late = replace(world, documents=(*world.documents, replace(world.documents[1], id="d0")))
    frame = scored(late)
    names = ["d1", "competitor:b:1d", "d0", "d2", "d3", "macro:e1", "macro:e2"]
    assert of_key(frame, 1) == names
    assert frame.rows.key.tolist() == sorted(frame.rows.key.tolist())
    layers = [list(SignalLayer)[code] for code in frame.rows.layer[frame.rows.key == 1]]
    assert Counter(layers) == {SignalLayer.ENTITY: 4, SignalLayer.MACRO: 2, SignalLayer.COMPETITOR: 1}


def test_g4_a_gated_document_is_listed_with_weight_0() -> None:
    world = World(documents=(Document("weak", "a", confidence=0.29), Document("good", "a", confidence=0.3)))
    frame = scored(world)
    weights = dict(zip(of_key(frame, 0), frame.rows.combined[frame.rows.key == 0].tolist(), strict=True))
    assert weights["weak"] == 0.0
    assert weights["good"] > 0.0
    assert frame.skipped.tolist() == [0] * 5


@pytest.mark.parametrize(
    "fault",
    [
        {"sentiment": NAN},
        {"impact": float("inf")},
        {"confidence": NAN},
        {"credibility": float("inf")},
        {"novelty": float("-inf")},
    ],
)
def test_r148_nan_or_infinity_anywhere_skips_and_counts_the_signal(fault: dict[str, float]) -> None:
    world = World(documents=(Document("bad", "a", age_hours=20.0, **fault), Document("good", "a")))
    for mode in PipelineMode:
        frame = scored(world, mode)
        assert of_key(frame, 1) == ["good"]
        assert frame.skipped.tolist() == [0, 1, 1, 1, 1]


def test_failed_documents_and_mere_mentions_are_no_signals() -> None:
    world = World(documents=(Document("f", "a", failed=True), Document("m", "a", has_impact=False)))
    frame = scored(world)
    assert len(frame.rows.key) == 0
    assert frame.skipped.tolist() == [0] * 5


def test_a_late_known_document_counts_only_once_known() -> None:
    """Decisions 1: published inside the window is not enough."""
    world = World(documents=(Document("late", "a", age_hours=2.0, known_late_hours=2.0),))
    assert of_key(scored(world), 0) == ["late"]
    later = World(documents=(Document("late", "a", age_hours=2.0, known_late_hours=2.0001),))
    assert of_key(scored(later), 0) == []


def test_signals_of_neighbours_are_not_listed_as_own() -> None:
    world = a_world()
    keys = world.keys((Window.ONE_DAY,))
    alone = type(keys)(keys.entity[:1], keys.window[:1])
    frame = cycle.score_signals(world.inputs(), alone, AS_OF_US, CONFIG)
    assert set(frame.rows.key.tolist()) == {0}
    assert "d4" not in of_key(frame, 0)
    assert "competitor:b:1d" in of_key(frame, 0)


def test_every_needed_key_is_in_scope_once() -> None:
    """Asked for are 0 and 1; 0 is next to 1 and 2: only 2 is added, in the same window."""
    related = Relations(np.array([0, 0]), np.array([1, 2]), np.array([1, 1]), np.ones(2))
    scope = scoring._scope(Keys(np.array([0, 1]), np.array([1, 1])), related, 4)
    assert (scope.entity.tolist(), scope.window.tolist()) == ([0, 1, 2], [1, 1, 1])


def test_each_row_carries_the_factors_of_its_product() -> None:
    """The audit starts here: recency x credibility x ... x layer weight gives combined, in both modes."""
    world = replace(
        a_world(),
        bars=tuple(Bar("a", n, 100.0 + n % 3, 1000.0 + n) for n in range(1, 130)),
        accuracy=(("source", 0.9, 12),),
    )
    for mode in PipelineMode:
        rows = scored(world, mode).rows
        optional = [np.where(np.isnan(c), 1.0, c) for c in (rows.sigmoid_gate, rows.regime_multiplier)]
        product = (
            rows.recency
            * rows.credibility
            * rows.source_accuracy_factor
            * rows.novelty_bonus
            * rows.confidence_gate
            * optional[0]
            * rows.info_gain_factor
            * rows.market_ctx_multiplier
            * optional[1]
            * rows.layer_weight
        )
        assert rows.combined == pytest.approx(product, rel=1e-14)
        assert (rows.combined > 0.0).all()
        synthetic = rows.layer != list(SignalLayer).index(SignalLayer.ENTITY)
        assert synthetic.any()
        expected = (rows.recency * rows.credibility * rows.layer_weight)[synthetic]
        assert rows.combined[synthetic] == pytest.approx(expected, rel=1e-15)
        documents = rows.take(~synthetic)
        probabilistic = mode is PipelineMode.PROBABILISTIC
        assert bool((documents.source_accuracy_factor == 1.4).all()) is probabilistic
        assert bool(np.isfinite(documents.sigmoid_gate).all()) is probabilistic
        assert bool(np.isfinite(documents.adaptive_half_life_hours).all()) is probabilistic
        assert bool((documents.market_ctx_multiplier > 1.0).any()) is not probabilistic
        assert documents.credibility.tolist() == [0.5] * len(documents.key)


def test_the_information_gain_is_that_of_the_documents_catalyst() -> None:
    world = World(
        documents=(
            Document("d1", "a", catalyst="legal"),
            Document("d2", "a", catalyst="performance_report"),
            Document("d3", "a"),
        )
    )
    frame = scored(world, PipelineMode.PROBABILISTIC)
    found = dict(zip(of_key(frame, 0), frame.rows.info_gain_factor.tolist(), strict=False))
    assert found == pytest.approx({"d1": 2.29658, "d2": 1.6, "d3": 1.99658}, abs=1e-5)


def test_the_frame_carries_the_tables_of_its_codes() -> None:
    world = World(
        documents=(Document("d", "a", source="s1", source_type="blog", catalyst="legal", risks=("r",)),)
    )
    frame = scored(world)
    row = frame.rows.take(np.array([0]))
    assert frame.sources[row.source[0]] == "s1"
    assert frame.source_types[row.source_type[0]] == "blog"
    assert frame.catalysts[row.catalyst[0]] == "legal"
    assert [frame.risk_labels[code] for code in row.risks.codes] == ["r"]


def test_synthetic_signals_have_no_source_and_no_risks() -> None:
    rows = scored(a_world()).rows
    rows = rows.take(rows.layer != list(SignalLayer).index(SignalLayer.ENTITY))
    for name in ("source", "source_type", "catalyst"):
        assert set(getattr(rows, name).tolist()) == {-1}, name
    assert len(rows.risks.codes) == 0
    assert np.isnan(rows.sigmoid_gate).all()


def test_synthetic_weights_are_clamped_like_others() -> None:
    frame = scored(a_world(), **{"scoring.max_combined": 0.05})
    assert set(frame.rows.combined.tolist()) == {0.05}


def test_all_kinds_of_signals_of_one_key_keep_their_names() -> None:
    """Two events, two neighbours and two patterns: names of one kind must not slip to another."""
    days = [24.0 * day for day in (300, 280, 260)]
    past = [
        Document(f"h{n}{c}", "a", age_hours=age, catalyst=c)
        for n, age in enumerate(days)
        for c in ("legal", "rumour")
    ]
    bars = [Bar("a", round(age / 24) + k, 100.0 - k) for age in days for k in (3, -3)]
    world = replace(
        a_world(),
        documents=(*a_world().documents, *past, Document("n", "a", catalyst="rumour"), Document("c", "c")),
        bars=tuple(bars),
        edges=(Edge("a", "b", 0.5), Edge("a", "c", 0.5)),
    )
    frame = scored(world)
    layers = frame.rows.layer[frame.rows.key == 1].tolist()
    found = {
        name: list(SignalLayer)[layer].value for name, layer in zip(of_key(frame, 1), layers, strict=True)
    }
    assert found == {
        **dict.fromkeys(("d1", "d2", "d3", "n"), "entity"),
        **dict.fromkeys(("macro:e1", "macro:e2"), "macro"),
        **dict.fromkeys(("competitor:b:1d", "competitor:c:1d"), "competitor"),
        **dict.fromkeys(("pattern:a:legal:1d", "pattern:a:rumour:1d"), "pattern"),
    }
    config = CONFIG
    trends = cycle.assemble_trends(frame, world.inputs(), AS_OF_US, config)
    assert trends.rows.competitive_signals[1] == 4
    assert trends.rows.macro_signals[1] == 2
    assert trends.rows.entity_signals[1] == 4


def test_the_accuracy_factor_of_another_source_is_not_used() -> None:
    world = World(
        documents=(Document("d1", "a", source="s1"), Document("d2", "a", source="s2")),
        accuracy=(("s2", 1.0, 10),),
    )
    frame = scored(world, PipelineMode.PROBABILISTIC)
    factors = dict(zip(of_key(frame, 0), frame.rows.source_accuracy_factor.tolist(), strict=False))
    assert factors == {"d1": 1.0, "d2": 1.5}


# -------------------------------------------------------------------------------- calls do not grow


def crowd(documents: int) -> World:
    """Two neighbours with price history; the same groups whatever the number of documents."""
    made = [
        Document(
            f"{name}{n:04d}",
            name,
            age_hours=(n + 1) * 11.0 / documents if n % 2 == 0 else 200.0 + (n + 1) * 500.0 / documents,
            sentiment=1.0 if n % 3 == 0 else -1.0,
            impact=0.2 + 0.7 * n / documents,
            catalyst=("legal", "rumour")[n // 2 % 2],
            source=f"s{n % 2}",
            risks=("r1",),
        )
        for name in ("a", "b")
        for n in range(documents)
    ]
    bars = [Bar(name, n, 100.0 + (n * n) % 7, 1000.0 + n) for name in ("a", "b") for n in range(1, 200)]
    return World(
        documents=tuple(made),
        bars=tuple(bars),
        events=(Event("e"),),
        exposures=(Exposure("a", "geo", "us", 0.8),),
        edges=(Edge("a", "b", 0.5),),
    )


@pytest.mark.parametrize("mode", list(PipelineMode))
def test_no_python_call_per_signal(mode: PipelineMode) -> None:
    """Ten times the signals in the same groups make the same number of calls, Python's and C's."""
    config = CONFIG.with_settings({"flags.probabilistic_scoring_enabled": mode is PipelineMode.PROBABILISTIC})

    def calls(documents: int) -> tuple[int, int]:
        world = crowd(documents)
        inputs, keys = world.inputs(), world.keys()
        count = 0

        def profile(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event in {"call", "c_call"}

        gc.disable()  # hypothesis hangs calls on the collector, which runs when it likes
        sys.setprofile(profile)
        try:
            signals = cycle.score_signals(inputs, keys, AS_OF_US, config)
            cycle.assemble_trends(signals, inputs, AS_OF_US, config)
            cycle.measure_accuracy(inputs, AS_OF_US, config)
        finally:
            sys.setprofile(None)
            gc.enable()
        return count, len(signals.rows.key)

    for documents in (40, 400):
        calls(documents)  # the first runs import and cache
    # The least of several: a finalizer of an earlier test may run in between, a call per signal stays.
    (few, small), (many, large) = (min(calls(n) for _ in range(3)) for n in (40, 400))
    assert large > 9 * small
    assert many == few


def test_accuracy_rows_of_unknown_order_are_looked_up_by_source() -> None:
    world = World(documents=(Document("d", "a", source="s2"),), accuracy=(("s1", 0.0, 50), ("s2", 1.0, 50)))
    inputs = world.inputs()
    backwards = replace(inputs, accuracy=inputs.accuracy.take(np.array([1, 0])))
    config = CONFIG.with_settings({"flags.probabilistic_scoring_enabled": True})
    frame = cycle.score_signals(backwards, world.keys(), AS_OF_US, config)
    assert set(frame.rows.source_accuracy_factor.tolist()) == {1.5}
    nothing = replace(inputs, accuracy=AccuracyRows(*(np.zeros(0, t) for t in (np.int64, float, np.int64))))
    frame = cycle.score_signals(nothing, world.keys(), AS_OF_US, config)
    assert set(frame.rows.source_accuracy_factor.tolist()) == {1.0}
