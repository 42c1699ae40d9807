"""World events: impact on an entity, signals, conditional modifier (R45, R47, R187, R188, G13-G16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.config import MacroConfig, OracleConfig
from oracle_core.enums import EventDuration, PipelineMode, Severity, SignalLayer, Window
from oracle_core.frames import SignalFrame, TrendFrame
from oracle_core.inputs import DIMENSIONS, US_PER_HOUR
from oracle_core.macro import (
    additive_integration,
    conditional_integration,
    event_impacts,
    half_lives_days,
    linear_impact,
    multiplicative_impact,
    severity_weights,
)
from oracle_core.rules import HEURISTIC, PROBABILISTIC
from tests.strategies import AS_OF_US, NAN, Document, Event, Exposure, World

MACRO = MacroConfig()
CONFIG = OracleConfig()
ON = CONFIG.with_settings({"flags.probabilistic_scoring_enabled": True})


def column(*values: float) -> Any:  # noqa: ANN401
    return np.array(values, np.float64)


def overlap(*values: float) -> Any:  # noqa: ANN401
    return np.array([values], np.float64)


@pytest.mark.parametrize(
    ("severity", "expected"),
    [(Severity.CRITICAL, 1.0), (Severity.HIGH, 0.75), (Severity.MODERATE, 0.5), (Severity.LOW, 0.25)],
)
def test_r47_severity_weights(severity: Severity, expected: float) -> None:
    assert severity_weights(np.array([list(Severity).index(severity)]), MACRO)[0] == expected


@pytest.mark.parametrize(
    ("duration", "expected"),
    [(EventDuration.SHORT_TERM, 1.0), (EventDuration.MEDIUM_TERM, 7.0), (EventDuration.LONG_TERM, 30.0)],
)
def test_r45_half_lives(duration: EventDuration, expected: float) -> None:
    assert half_lives_days(np.array([list(EventDuration).index(duration)]), MACRO)[0] == expected


@pytest.mark.parametrize(
    ("shares", "severity", "expected"),
    [
        ((0.5, 0.0, 0.2, 1.0), 0.75, 0.306818),
        ((0.0, 0.0, 0.0, 0.0), 1.0, 0.0),
        ((1.0, 1.0, 1.0, 1.0), 0.75, 0.75),
        ((0.0, 1.0, 0.0, 0.0), 1.0, 0.272727),
        ((0.0, 0.0, 1.0, 0.0), 1.0, 0.227273),
    ],
)
def test_g13_linear_impact(shares: tuple[float, ...], severity: float, expected: float) -> None:
    assert linear_impact(overlap(*shares), column(severity), MACRO)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("shares", "severity", "expected"),
    [
        ((0.5, 0.0, 0.2, 1.0), 0.75, 0.295781),
        ((0.0, 0.0, 0.0, 0.0), 1.0, 0.0),
        ((1.0, 1.0, 1.0, 1.0), 1.0, 0.724375),
        ((1.0, 1.0, 1.0, 1.0), 0.5, 0.3621875),
        ((1.0, 0.0, 0.0, 0.0), 1.0, 0.30),
        ((0.0, 1.0, 0.0, 0.0), 1.0, 0.30),
        ((0.0, 0.0, 1.0, 0.0), 1.0, 0.25),
        ((0.0, 0.0, 0.0, 1.0), 1.0, 0.25),
    ],
)
def test_r187_multiplicative_impact(shares: tuple[float, ...], severity: float, expected: float) -> None:
    """C14: the weights .30, .30, .25, .25 give severity x .724375 for full exposure."""
    found = multiplicative_impact(overlap(*shares), column(severity), MACRO)[0]
    assert found == pytest.approx(expected, abs=1e-6)


def test_impacts_use_the_weight_of_each_dimension() -> None:
    own = MacroConfig(w_geo=0.1, w_supply=0.2, w_commodity=0.3, w_sector=0.4)
    full = np.eye(4)
    assert linear_impact(full, np.ones(4), own) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert multiplicative_impact(full, np.ones(4), own) == pytest.approx([0.1, 0.2, 0.3, 0.4])


# -------------------------------------------------------------------------------------------- overlaps


def test_overlaps_keep_their_dimensions() -> None:
    """Geo .5, supply .4, commodity .3, sector .2 of two entities in turn."""
    event = Event("e", severity=Severity.CRITICAL, items=tuple((d, "x") for d in DIMENSIONS))
    shares = dict(zip(DIMENSIONS, (0.5, 0.4, 0.3, 0.2), strict=True))
    world = World(
        events=(event, Event("f", severity=Severity.CRITICAL, items=(("sector", "x"),))),
        exposures=tuple(Exposure(who, d, "x", s) for who in "ba" for d, s in shares.items()),
    )
    found = impacts(world)
    both = (0.3 * 0.5 + 0.3 * 0.4 + 0.25 * 0.3 + 0.25 * 0.2) / 1.1
    assert [found["e", who] for who in "ab"] == pytest.approx([both, both])
    assert [found["f", who] for who in "ab"] == pytest.approx([0.25 * 0.2 / 1.1] * 2)


def impacts(world: World, entities: list[int] | None = None) -> dict[tuple[str, str], float]:
    inputs = world.inputs()
    wanted = np.arange(len(inputs.entities)) if entities is None else np.array(entities)
    found = event_impacts(inputs, wanted, HEURISTIC, CONFIG)
    names = [inputs.event_ids[inputs.events.event[row]] for row in found.event.tolist()]
    who = [inputs.entities[entity] for entity in found.entity.tolist()]
    return dict(zip(zip(names, who, strict=True), found.impact.tolist(), strict=True))


def test_overlap_adds_the_shares_of_an_events_items_up_to_1() -> None:
    """An item named twice counts once; the same item in another dimension is another item."""
    event = Event(
        "e",
        severity=Severity.CRITICAL,
        items=(("geo", "us"), ("geo", "us"), ("geo", "eu"), ("supply", "us"), ("sector", "tech")),
    )
    world = World(
        events=(event,),
        exposures=(
            Exposure("a", "geo", "us", 0.3),
            Exposure("a", "geo", "eu", 0.1),
            Exposure("a", "commodity", "us", 1.0),
            Exposure("b", "geo", "us", 0.9),
            Exposure("b", "geo", "eu", 0.9),
            Exposure("c", "geo", "mars", 1.0),
            Exposure("d", "sector", "tech", 0.0),
            Exposure("e", "sector", "tech", NAN),
        ),
    )
    found = impacts(world)
    assert found.keys() == {("e", "a"), ("e", "b")}
    assert found["e", "a"] == pytest.approx(0.3 * 0.4 / 1.1)
    assert found["e", "b"] == pytest.approx(0.3 * 1.0 / 1.1)


def test_event_impacts_look_at_every_event_whatever_its_age_and_at_wanted_entities_only() -> None:
    world = World(
        events=(Event("old", age_hours=50_000.0), Event("new"), Event("other", items=(("geo", "mars"),))),
        exposures=(Exposure("a", "geo", "us", 0.5), Exposure("b", "geo", "us", 0.4)),
    )
    assert impacts(world, [1]).keys() == {("old", "b"), ("new", "b")}
    assert impacts(World(entities=("a",))) == {}
    assert impacts(World(events=(Event("e"),), entities=("a",))) == {}


def test_event_impacts_are_sorted_by_entity_and_event_and_name_rows_of_the_input() -> None:
    world = World(
        events=(Event("z", severity=Severity.LOW), Event("y", severity=Severity.CRITICAL)),
        exposures=(Exposure("b", "geo", "us", 1.0), Exposure("a", "geo", "us", 0.5)),
    )
    inputs = world.inputs()
    found = event_impacts(inputs, np.array([0, 1]), PROBABILISTIC, ON)
    assert found.entity.tolist() == [0, 0, 1, 1]
    assert found.event.tolist() == [0, 1, 0, 1]
    assert found.impact == pytest.approx(column(0.0375, 0.15, 0.075, 0.3))


# --------------------------------------------------------------------------------------------- signals


def scored(world: World, config: OracleConfig = CONFIG) -> tuple[SignalFrame, TrendFrame]:
    signals = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)
    return signals, cycle.assemble_trends(signals, world.inputs(), AS_OF_US, config)


def macro_rows(frame: SignalFrame, window: Window) -> dict[str, Any]:
    rows = frame.rows.take(
        (frame.rows.key == list(Window).index(window))
        & (frame.rows.layer == list(SignalLayer).index(SignalLayer.MACRO))
    )
    return {frame.ids[code]: rows.take(np.array([i])) for i, code in enumerate(rows.signal.tolist())}


def test_a_macro_signal_per_event_inside_the_window() -> None:
    world = World(
        events=(
            Event("day", age_hours=23.0, sign=-1, duration=EventDuration.SHORT_TERM),
            Event("week", age_hours=24.0, sign=1),
            Event("mixed", age_hours=2.0, sign=0),
            Event("far", age_hours=1.0, items=(("geo", "mars"),)),
        ),
        exposures=(Exposure("a", "geo", "us", 0.5),),
    )
    frame, _ = scored(world)
    found = macro_rows(frame, Window.ONE_DAY)
    assert found.keys() == {"macro:day", "macro:mixed"}
    assert macro_rows(frame, Window.SEVEN_DAYS).keys() == {"macro:day", "macro:week", "macro:mixed"}
    day = found["macro:day"]
    assert day.sentiment[0] == -1.0
    assert day.impact[0] == pytest.approx(0.75 * 0.3 * 0.5 / 1.1)
    assert day.recency[0] == pytest.approx(0.5 ** (23 / 24))
    assert day.combined[0] == pytest.approx(0.3 * 0.5 ** (23 / 24))
    assert day.published_us[0] == AS_OF_US - 23 * US_PER_HOUR
    assert (day.credibility[0], day.extraction_confidence[0], day.catalyst[0]) == (1.0, 1.0, -1)
    assert found["macro:mixed"].sentiment[0] == 0.0


def test_recency_of_a_macro_signal_halves_per_half_life_of_its_duration_in_every_window() -> None:
    event = Event("e", age_hours=7 * 24.0, duration=EventDuration.MEDIUM_TERM)
    world = World(events=(event,), exposures=(Exposure("a", "geo", "us", 0.5),))
    frame, _ = scored(world)
    assert macro_rows(frame, Window.SEVEN_DAYS) == {}
    for window in (Window.THIRTY_DAYS, Window.NINETY_DAYS):
        assert macro_rows(frame, window)["macro:e"].recency[0] == 0.5


# ------------------------------------------------------------------------------------------- modifier


@pytest.mark.parametrize(
    ("entity", "macro", "expected"),
    [(0.4, 0.5, 1.15), (-0.4, 0.5, 0.85), (0.4, -0.5, 0.85), (0.0, 0.5, 1.0), (0.4, 0.0, 1.0)],
)
def test_r188_modifier(entity: float, macro: float, expected: float) -> None:
    """+.4 with +.15 gives .46, -.4 gives -.34 (G16)."""
    found = conditional_integration(column(entity), column(macro), np.array([True]), MACRO)
    assert found.modifier[0] == pytest.approx(expected, abs=1e-15)
    assert found.removed.tolist() == [True]


def test_r188_modifier_is_clamped_and_absent_without_both_layers() -> None:
    strong = MacroConfig(modifier_weight=9.0)
    both = np.array([True, True, False])
    found = conditional_integration(column(0.4, -0.4, 0.4), column(0.5, 0.5, 0.5), both, strong)
    assert found.modifier.tolist() == [2.0, 0.0, 1.0]
    assert found.removed.tolist() == both.tolist()


def test_heuristic_macro_signals_join_the_list() -> None:
    found = additive_integration(column(0.4), column(0.5), np.array([True]), MACRO)
    assert (found.modifier.tolist(), found.removed.tolist()) == ([1.0], [False])


def a_world(*, sign: int = 1, sentiment: float = 1.0) -> World:
    return World(
        documents=(Document("d1", "a", sentiment=sentiment), Document("d2", "a", sentiment=sentiment)),
        events=(Event("e", sign=sign, severity=Severity.CRITICAL),),
        exposures=tuple(Exposure("a", d, i, 1.0) for d, i in (("geo", "us"), ("supply", "x"))),
    )


def test_r188_macro_signals_that_act_through_the_modifier_leave_the_list() -> None:
    """Impact .3, so m = 1 + .3 x .3 = 1.09: strength and L grow by it, contradiction and average do not."""
    for mode, config in ((PipelineMode.HEURISTIC, CONFIG), (PipelineMode.PROBABILISTIC, ON)):
        _, alone = scored(World(documents=a_world().documents, entities=("a",)), config)
        signals, trends = scored(a_world(), config)
        assert any(name.startswith("macro:") for name in signals.ids)
        cited = [name.startswith("macro:") for name in trends.supporting[0]]
        assert trends.rows.macro_signals.tolist() == [1] * 5
        if mode is PipelineMode.HEURISTIC:
            assert any(cited)
            assert trends.rows.average[0] != alone.rows.average[0]
            assert np.isnan(trends.rows.macro_modifier).all()
            continue
        assert not any(cited)
        assert trends.rows.average[0] == alone.rows.average[0]
        assert trends.rows.macro_modifier == pytest.approx(column(*[1.09] * 5))
        assert trends.rows.strength == pytest.approx(alone.rows.strength * 1.09)
        assert trends.rows.log_likelihood == pytest.approx(alone.rows.log_likelihood * 1.09)
        assert trends.rows.confidence[0] > alone.rows.confidence[0]
        assert alone.rows.macro_modifier.tolist() == [1.0] * 5


def test_r188_an_opposing_event_weakens_and_only_macro_is_merged_as_ever() -> None:
    _, opposed = scored(a_world(sign=-1), ON)
    _, bearish = scored(a_world(sentiment=-1.0), ON)
    assert opposed.rows.macro_modifier == pytest.approx(column(*[0.91] * 5))
    assert bearish.rows.macro_modifier == pytest.approx(column(*[0.91] * 5))
    assert opposed.rows.contradiction.tolist() == [0.0] * 5
    world = a_world()
    _, only_macro = scored(World(events=world.events, exposures=world.exposures), ON)
    assert only_macro.rows.macro_modifier.tolist() == [1.0] * 5
    assert only_macro.supporting[0] == ["macro:e"]
    assert only_macro.rows.average == pytest.approx(column(*[0.3] * 5))
    assert only_macro.rows.unique_sources.tolist() == [0] * 5


def test_r188_one_document_and_one_event_are_both_layers() -> None:
    world = a_world()
    _, trends = scored(World(world.documents[:1], events=world.events, exposures=world.exposures), ON)
    assert trends.rows.macro_modifier == pytest.approx(column(*[1.09] * 5))


def test_r188_balanced_documents_are_neither_strengthened_nor_weakened() -> None:
    """S_entity = 0 exactly, whatever the order of .1, .2 and .3: the sign is that of an exact sum."""
    documents = tuple(
        Document(f"d{n}", "a", sentiment=sign, impact=impact, credibility=1.0)
        for n, (sign, impact) in enumerate(
            [(1.0, 0.1), (1.0, 0.2), (-1.0, 0.3), (1.0, 0.3), (-1.0, 0.2), (-1.0, 0.1)]
        )
    )
    world = World(documents, events=a_world().events, exposures=a_world().exposures)
    _, trends = scored(world, ON)
    assert trends.rows.macro_modifier.tolist() == [1.0] * 5
    assert trends.rows.average.tolist() == [0.0] * 5
    assert "macro:e" not in trends.supporting[0]
