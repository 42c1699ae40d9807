"""Propagation over the graph and historical patterns (R189, G15, G33, decisions 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.competitive import (
    active_documents,
    attenuated_transfer,
    competitor_signals,
    flat_reach,
    flat_transfer,
    graded_reach,
    patterns,
    relations,
)
from oracle_core.config import CompetitiveConfig, OracleConfig
from oracle_core.enums import SignalLayer, Window
from oracle_core.frames import SignalFrame
from oracle_core.inputs import US_PER_DAY, US_PER_HOUR, Keys
from oracle_core.rules import rules_for
from oracle_core.scoring import valid_documents
from tests.strategies import AS_OF_DAY, AS_OF_US, NAN, Bar, Document, Edge, World

RULES = CompetitiveConfig()
HEURISTIC = OracleConfig()
PROBABILISTIC = HEURISTIC.with_settings({"flags.probabilistic_scoring_enabled": True})
DAY, INTRADAY = list(Window).index(Window.ONE_DAY), 0


def column(*values: float) -> Any:  # noqa: ANN401
    return np.array(values, np.float64)


# ------------------------------------------------------------------------------------------- transfer


@pytest.mark.parametrize(
    ("distance", "expected"), [(0, 0.0), (1, 0.176582), (2, 0.0649609), (3, 0.0238978), (4, 0.0)]
)
def test_r189_attenuated_transfer(distance: int, expected: float) -> None:
    found = attenuated_transfer(column(0.6), column(0.8), np.array([distance]), RULES)[0]
    assert found == pytest.approx(expected, abs=1e-6)


def test_r189_a_negative_correlation_turns_the_signal_and_is_clamped() -> None:
    one = np.array([1])
    assert attenuated_transfer(column(0.6), column(-0.8), one, RULES)[0] == pytest.approx(-0.176582, abs=1e-6)
    for far, edge in ((-7.0, -1.0), (7.0, 1.0)):
        beyond = attenuated_transfer(column(0.6), column(far), one, RULES)[0]
        assert beyond == attenuated_transfer(column(0.6), column(edge), one, RULES)[0]


@pytest.mark.parametrize(("distance", "expected"), [(1, 0.3), (2, 0.0), (3, 0.0)])
def test_g33_flat_transfer_passes_half_to_neighbours_only(distance: int, expected: float) -> None:
    """.6 x .5 x layer weight .2 is the worked .06."""
    found = flat_transfer(column(0.6), column(-0.9), np.array([distance]), RULES)[0]
    assert found == expected
    assert found * RULES.competitive_layer_weight == pytest.approx(0.06 if distance == 1 else 0.0)


def test_reach_of_both_modes() -> None:
    assert (flat_reach(RULES), graded_reach(RULES)) == (1, 3)


# ------------------------------------------------------------------------------------------ distances


def related(
    edges: list[tuple[str, str, float]], reach: int, start: str = "a"
) -> dict[str, tuple[int, float]]:
    """Distance and rho of everything found from one entity."""
    world = World(edges=tuple(Edge(*edge) for edge in edges))
    names = world.names()
    found = relations(world.inputs().edges, np.array([names.index(start)]), reach)
    assert set(found.source.tolist()) <= {names.index(start)}
    rows = zip(found.target.tolist(), found.distance.tolist(), found.rho.tolist(), strict=True)
    return {names[target]: (distance, rho) for target, distance, rho in rows}


CHAIN = [("a", "b", 0.5), ("c", "b", 0.8), ("c", "d", -0.5), ("d", "e", 0.9)]


def test_edges_are_undirected_and_rho_multiplies_along_the_path() -> None:
    found = related(CHAIN, 3)
    assert found == {"b": (1, 0.5), "c": (2, 0.4), "d": (3, -0.2)}
    assert related(CHAIN, 1) == {"b": (1, 0.5)}
    back = related(CHAIN, 3, "e")
    assert {name: found[0] for name, found in back.items()} == {"d": 1, "c": 2, "b": 3}
    assert [back[name][1] for name in "dcb"] == pytest.approx([0.9, -0.45, -0.36])


def test_the_shortest_path_counts_even_where_a_longer_one_correlates_more() -> None:
    found = related([("a", "b", 1.0), ("b", "c", 1.0), ("a", "c", 0.1)], 3)
    assert found == {"b": (1, 1.0), "c": (1, 0.1)}


def test_of_several_shortest_paths_the_largest_magnitude_counts() -> None:
    diamond = [("a", "x", 0.5), ("x", "z", 0.5), ("a", "y", -0.9), ("y", "z", 0.9)]
    assert related(diamond, 3)["z"] == (2, -0.81)
    tie = [("a", "x", -0.5), ("x", "z", 0.5), ("a", "y", 0.5), ("y", "z", 0.5)]
    assert related(tie, 3)["z"] == (2, 0.25)
    assert related([*tie, ("z", "end", -1.0)], 3)["end"] == (3, 0.25)
    assert related([*diamond, ("z", "end", -1.0)], 3)["end"] == (3, 0.81)


def test_a_zero_correlation_is_an_edge_like_any_other() -> None:
    assert related([("a", "b", 0.0), ("b", "c", 0.5)], 2) == {"b": (1, 0.0), "c": (2, 0.0)}


def test_parallel_edges_join_and_self_edges_are_ignored() -> None:
    found = related([("a", "b", 0.3), ("b", "a", -0.6), ("a", "a", 1.0), ("b", "b", 1.0)], 3)
    assert found == {"b": (1, -0.6)}
    assert related([("a", "b", 0.6), ("b", "a", -0.6)], 1) == {"b": (1, 0.6)}


def test_two_neighbours_of_one_entity_keep_their_edges() -> None:
    star = [("a", "x", 0.3), ("b", "x", -0.6), ("c", "x", 0.9)]
    assert related(star, 1) == {"x": (1, 0.3)}
    assert related(star, 1, "b") == {"x": (1, -0.6)}
    assert related(star, 2, "c") == {"x": (1, 0.9), "a": (2, 0.27), "b": (2, -0.54)}


def test_correlations_beyond_1_or_missing_are_clamped_or_0() -> None:
    assert related([("a", "b", 7.0), ("a", "c", -7.0), ("a", "d", NAN)], 1) == {
        "b": (1, 1.0),
        "c": (1, -1.0),
        "d": (1, 0.0),
    }


def test_an_entity_without_edges_has_no_relations() -> None:
    world = World(edges=(Edge("a", "b", 0.5),), entities=("c",))
    assert len(relations(world.inputs().edges, np.array([2]), 3).source) == 0
    assert len(relations(World(entities=("c",)).inputs().edges, np.array([0]), 3).source) == 0


def test_relations_are_sorted_and_found_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distance table is made for a few sources at a time; the cut changes nothing."""
    ring = tuple(Edge(f"n{n:02d}", f"n{(n + 1) % 12:02d}", 0.9 - n / 20) for n in range(12))
    edges = World(edges=ring).inputs().edges
    whole = relations(edges, np.arange(12), 3)
    pairs = list(zip(whole.source.tolist(), whole.target.tolist(), strict=True))
    assert pairs == sorted(pairs)
    assert len(pairs) == 12 * 6
    monkeypatch.setattr("oracle_core.competitive._BLOCK_CELLS", 30)
    parts = relations(edges, np.arange(12), 3)
    assert parts.rho.tobytes() == whole.rho.tobytes()
    assert parts.distance.tolist() == whole.distance.tolist()


# ------------------------------------------------------------------------------------------ competitors


def scored(world: World, config: OracleConfig = HEURISTIC) -> SignalFrame:
    return cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, config)


def synthetic(frame: SignalFrame, entity: int, window: int, layer: SignalLayer) -> dict[str, Any]:
    """Rows of a layer of one key by id."""
    key = entity * 5 + window
    rows = frame.rows.take((frame.rows.key == key) & (frame.rows.layer == list(SignalLayer).index(layer)))
    return {frame.ids[code]: rows.take(np.array([i])) for i, code in enumerate(rows.signal.tolist())}


def competitors(frame: SignalFrame, entity: int, window: int = DAY) -> dict[str, Any]:
    return synthetic(frame, entity, window, SignalLayer.COMPETITOR)


def test_a_competitor_signal_sums_up_the_active_documents_of_the_other() -> None:
    """avg_b = (w1 .8 - w2 .4) / (w1 + w2); S = half of it; recency the largest, credibility the mean."""
    world = World(
        documents=(
            Document("d1", "b", age_hours=8.0, impact=0.8, credibility=0.9, confidence=0.6),
            Document("d2", "b", age_hours=16.0, impact=0.4, sentiment=-1.0, credibility=0.3, confidence=0.8),
            Document("off", "b", age_hours=1.0, confidence=0.1, credibility=0.0),
        ),
        edges=(Edge("b", "a", -1.0),),
    )
    found = competitors(scored(world), 0)
    assert found.keys() == {"competitor:b:1d"}
    row = found["competitor:b:1d"]
    average = (0.45 * 0.8 - 0.075 * 0.4) / (0.45 + 0.075)
    assert row.impact[0] == pytest.approx(average / 2)
    assert row.sentiment[0] == 1.0
    assert row.recency[0] == 0.5
    assert row.credibility[0] == pytest.approx(0.6)
    assert row.extraction_confidence[0] == pytest.approx(0.7)
    assert row.combined[0] == pytest.approx(0.5 * 0.6 * 0.2)
    assert row.published_us[0] == AS_OF_US - 8 * US_PER_HOUR
    assert row.catalyst[0] == -1


def test_a_competitor_signal_is_as_new_as_the_newest_of_many_documents() -> None:
    """Published 1 to 60 hours ago, in no order; the keys of three entities stand in between."""
    ages = [float((n * 37) % 61) for n in range(1, 61)]
    rows = [Document(f"{name}{n:02d}", name, age_hours=age) for name in "bcd" for n, age in enumerate(ages)]
    world = World(documents=tuple(rows), edges=tuple(Edge("a", name, 1.0) for name in "bcd"))
    week = list(Window).index(Window.SEVEN_DAYS)
    found = competitors(scored(world), 0, week)
    newest = {name: AS_OF_US - row.published_us[0] for name, row in found.items()}
    assert newest == {f"competitor:{name}:7d": US_PER_HOUR for name in "bcd"}


def test_active_documents_stand_by_key_and_newest_first_however_many() -> None:
    ages = [float((n * 37) % 61) for n in range(1, 61)]
    rows = [Document(f"{name}{n:02d}", name, age_hours=age) for name in "ab" for n, age in enumerate(ages)]
    world = World(documents=tuple(rows))
    week = list(Window).index(Window.SEVEN_DAYS)
    keys = Keys(np.array([1, 0]), np.array([week, week]))
    layer = active_documents(keys, cycle.score_signals(world.inputs(), keys, AS_OF_US, HEURISTIC).rows)
    assert layer.code.tolist() == [week] * 60 + [5 + week] * 60
    ages_us = (AS_OF_US - layer.published_us).tolist()
    assert ages_us[:60] == ages_us[60:] == [n * US_PER_HOUR for n in range(1, 61)]


def test_the_impact_of_a_competitor_signal_is_at_most_one() -> None:
    world = World(documents=(Document("d", "b"),), edges=(Edge("a", "b", 1.0),))
    keys, inputs = world.keys(), world.inputs()
    layer = active_documents(keys, scored(world).rows)
    strong = replace(
        rules_for(HEURISTIC), propagate=lambda average, _rho, _distance, _config: -30.0 * average
    )
    found, _ = competitor_signals(keys, layer, relations(inputs.edges, keys.entity, 1), HEURISTIC, strong)
    assert set(zip(found.sentiment.tolist(), found.impact.tolist(), strict=True)) == {(-1.0, 1.0)}


def test_r189_probabilistic_competitors_reach_three_steps_and_follow_rho() -> None:
    world = World(
        documents=(Document("d", "d", impact=1.0),),
        edges=(Edge("a", "b", -0.5), Edge("b", "c", 1.0), Edge("c", "d", 1.0), Edge("a", "z", 0.9)),
    )
    frame = scored(world, PROBABILISTIC)
    row = competitors(frame, 0)["competitor:d:1d"]
    assert row.impact[0] == pytest.approx(0.5 * 0.0497871, abs=1e-6)
    assert row.sentiment[0] == -1.0
    assert competitors(frame, 4) == {}, "z is four steps away"
    assert competitors(scored(world), 0) == {}
    assert competitors(scored(world), 2).keys() == {"competitor:d:1d"}


def test_the_windows_of_the_other_count_not_those_of_the_receiver() -> None:
    world = World(documents=(Document("d", "b", age_hours=20.0),), edges=(Edge("a", "b", 0.5),))
    frame = scored(world)
    assert competitors(frame, 0, INTRADAY) == {}
    assert competitors(frame, 0, DAY).keys() == {"competitor:b:1d"}


@pytest.mark.parametrize(
    "documents",
    [
        (Document("d", "b", sentiment=0.0),),
        (Document("d", "b", impact=0.0),),
        (Document("d", "b", confidence=0.1),),
        (),
    ],
)
def test_nothing_passed_on_is_no_signal(documents: tuple[Document, ...]) -> None:
    """Decisions 2: a synthetic signal whose impact is 0 is not created."""
    assert competitors(scored(World(documents, edges=(Edge("a", "b", 0.5),))), 0) == {}


def test_evidence_that_cancels_exactly_passes_nothing_on() -> None:
    """.1 + .2 - .3 is dust in floats, whatever the order; as an exact sum of equal products it is 0."""
    impacts = [(1.0, 0.1), (1.0, 0.2), (-1.0, 0.3), (1.0, 0.3), (-1.0, 0.2), (-1.0, 0.1)]
    documents = tuple(Document(f"d{n}", "b", sentiment=s, impact=i) for n, (s, i) in enumerate(impacts))
    assert competitors(scored(World(documents, edges=(Edge("a", "b", 0.5),))), 0) == {}


def test_only_documents_travel() -> None:
    """Entity b has a signal from c; a gets neither c's through b nor b's synthetic average."""
    world = World(documents=(Document("d", "c"),), edges=(Edge("a", "b", 1.0), Edge("b", "c", 1.0)))
    frame = scored(world)
    assert competitors(frame, 1).keys() == {"competitor:c:1d"}
    assert competitors(frame, 0) == {}


# --------------------------------------------------------------------------------------------- patterns


def history(
    outcomes: list[int],
    *,
    entity: str = "a",
    catalyst: str = "legal",
    sentiment: float = 1.0,
    first_day: int = 300,
    step: int = 20,
) -> tuple[tuple[Document, ...], tuple[Bar, ...]]:
    """One document per outcome, and bars that rise or fall by 10 % in the week after each."""
    documents, bars = [], []
    for n, outcome in enumerate(outcomes):
        day = first_day - step * n
        documents.append(
            Document(
                f"h{n:02d}-{entity}-{catalyst}",
                entity,
                age_hours=24.0 * day,
                sentiment=sentiment,
                catalyst=catalyst,
            )
        )
        bars += [Bar(entity, day + 3, 100.0), Bar(entity, day - 3, 100.0 * (1.0 + 0.1 * outcome))]
    return tuple(documents), tuple(bars)


def repeated(world: World, config: OracleConfig = HEURISTIC, entity: int = 0) -> dict[str, Any]:
    return synthetic(scored(world, config), entity, DAY, SignalLayer.PATTERN)


def with_trigger(outcomes: list[int], *triggers: Document, **more: Any) -> World:  # noqa: ANN401
    documents, bars = history(outcomes, **more)
    return World(documents + triggers, bars, edges=(Edge("a", "b", 0.5), Edge("b", "c", 0.5)))


TRIGGER = Document("now", "a", catalyst="legal")


@pytest.mark.parametrize(
    ("outcomes", "impact", "sentiment"),
    [
        ([1, 1, 1], 1.0, 1.0),
        ([-1, -1, -1], 1.0, -1.0),
        ([1, 1, -1], 1 / 3, 1.0),
        ([1, -1, -1], 1 / 3, -1.0),
        ([1, 1, 1, -1], 0.5, 1.0),
    ],
)
def test_a_pattern_says_whether_the_market_followed(
    outcomes: list[int], impact: float, sentiment: float
) -> None:
    found = repeated(with_trigger(outcomes, TRIGGER))
    assert found.keys() == {"pattern:a:legal:1d"}
    row = found["pattern:a:legal:1d"]
    assert row.impact[0] == impact
    assert row.sentiment[0] == sentiment
    assert (row.recency[0], row.credibility[0], row.extraction_confidence[0]) == (1.0, 0.5, 0.5)
    assert row.combined[0] == pytest.approx(0.1)
    assert row.published_us[0] == AS_OF_US
    assert repeated(with_trigger(outcomes, TRIGGER), PROBABILISTIC)["pattern:a:legal:1d"].impact[0] == impact


@pytest.mark.parametrize("outcomes", [[1, 1], [1, 1, -1, -1], []])
def test_too_few_days_or_an_even_history_are_no_pattern(outcomes: list[int]) -> None:
    assert repeated(with_trigger(outcomes, TRIGGER)) == {}


def test_days_that_average_nothing_are_dropped_before_they_are_counted() -> None:
    """Two opposite documents of one day cancel exactly; a return of 0 is no outcome."""
    documents, bars = history([1, 1, 1, 1])
    against = replace(documents[0], id="against", sentiment=-0.2)
    world = World((*documents, against, TRIGGER), bars)
    assert repeated(world)["pattern:a:legal:1d"].impact[0] == 1.0
    assert repeated(World((*documents[:3], against, TRIGGER), bars)) == {}
    documents, bars = history([1, 1, 0])
    assert repeated(World((*documents, TRIGGER), bars)) == {}


def test_copies_of_a_story_on_one_day_count_once() -> None:
    documents, bars = history([1, -1, -1])
    copies = tuple(replace(documents[0], id=f"copy{n}") for n in range(9))
    row = repeated(World((*documents, *copies, TRIGGER), bars))["pattern:a:legal:1d"]
    assert (row.impact[0], row.sentiment[0]) == (1 / 3, -1.0)


def test_the_outcome_is_the_return_in_the_direction_of_the_document() -> None:
    """Negative news and a falling price: the market followed; a negative trigger then says negative."""
    fell = with_trigger([-1, -1, -1], replace(TRIGGER, sentiment=-0.5), sentiment=-1.0)
    assert repeated(fell)["pattern:a:legal:1d"].sentiment[0] == -1.0
    rose = with_trigger([1, 1, 1], replace(TRIGGER, sentiment=-0.5), sentiment=-1.0)
    assert repeated(rose)["pattern:a:legal:1d"].sentiment[0] == 1.0


@pytest.mark.parametrize(
    ("trigger", "found"),
    [
        (replace(TRIGGER, catalyst="rumour"), False),
        (replace(TRIGGER, catalyst=None), False),
        (replace(TRIGGER, sentiment=0.0), False),
        (replace(TRIGGER, impact=0.0), False),
        (replace(TRIGGER, confidence=0.1), False),
        (replace(TRIGGER, age_hours=30.0), False),
        (replace(TRIGGER, entity="b"), True),
        (replace(TRIGGER, entity="c"), False),
    ],
)
def test_the_trigger_is_an_active_document_of_the_catalyst_here_or_next_door(
    trigger: Document, *, found: bool
) -> None:
    for config in (HEURISTIC, PROBABILISTIC):
        if trigger.confidence == 0.1 and config is PROBABILISTIC:
            continue  # no gate there (C2)
        assert (repeated(with_trigger([1, 1, 1], trigger), config) != {}) is found


def test_the_trigger_sums_up_neighbours_unscaled_and_decides_by_its_exact_sign() -> None:
    """Two quarters against a half: exactly 0, so no signal; a little more decides."""
    weak, strong = (replace(TRIGGER, entity="b", id=f"b{n}", impact=0.25) for n in range(2))
    against = replace(TRIGGER, sentiment=-1.0, impact=0.5, entity="b", id="b2")
    assert repeated(with_trigger([1, 1, 1], weak, strong, against)) == {}
    more = replace(strong, impact=0.26)
    row = repeated(with_trigger([1, 1, 1], weak, more, against))["pattern:a:legal:1d"]
    assert row.sentiment[0] == 1.0
    less = replace(strong, impact=0.24)
    row = repeated(with_trigger([1, 1, 1], weak, less, against))["pattern:a:legal:1d"]
    assert row.sentiment[0] == -1.0


def test_the_trigger_is_exact_where_floats_leave_dust() -> None:
    impacts = [(1.0, 0.1), (1.0, 0.2), (-1.0, 0.3), (1.0, 0.3), (-1.0, 0.2), (-1.0, 0.1)]
    triggers = [
        replace(TRIGGER, id=f"t{n}", entity="b" if i == 0.2 else "a", sentiment=s, impact=i)
        for n, (s, i) in enumerate(impacts)
    ]
    assert repeated(with_trigger([1, 1, 1], *triggers)) == {}


def test_only_the_own_history_counts() -> None:
    documents, bars = history([1, 1, 1], entity="b")
    world = World((*documents, TRIGGER), bars, edges=(Edge("a", "b", 1.0),))
    assert repeated(world) == {}
    assert repeated(world, entity=1).keys() == {"pattern:b:legal:1d"}


def test_catalysts_keep_apart_and_each_gives_a_signal() -> None:
    legal, bars = history([1, 1, 1])
    rumour, more_bars = history([-1, -1, -1], catalyst="rumour", first_day=200)
    world = World(
        (*legal, *rumour, TRIGGER, replace(TRIGGER, id="now2", catalyst="rumour")), bars + more_bars
    )
    found = repeated(world)
    assert {name: row.sentiment[0] for name, row in found.items()} == {
        "pattern:a:legal:1d": 1.0,
        "pattern:a:rumour:1d": -1.0,
    }
    tables = scored(world)
    assert [tables.catalysts[row.catalyst[0]] for row in found.values()] == ["legal", "rumour"]


def test_histories_of_neighbouring_entities_catalysts_and_days_do_not_mix() -> None:
    """The same catalyst and days at two entities, two catalysts on the same days."""
    own, bars = history([1, 1, 1])
    other, more = history([-1, -1, -1], entity="b")
    rumours = tuple(replace(d, id=f"r{d.id}", catalyst="rumour", sentiment=-1.0) for d in own)
    triggers = (TRIGGER, replace(TRIGGER, id="n2", entity="b"), replace(TRIGGER, id="n3", catalyst="rumour"))
    world = World((*own, *other, *rumours, *triggers), bars + more)
    frame = scored(world)
    found = [synthetic(frame, entity, DAY, SignalLayer.PATTERN) for entity in (0, 1)]
    signs = [{name: (row.sentiment[0], row.impact[0]) for name, row in one.items()} for one in found]
    assert signs == [
        {"pattern:a:legal:1d": (1.0, 1.0), "pattern:a:rumour:1d": (-1.0, 1.0)},
        {"pattern:b:legal:1d": (-1.0, 1.0)},
    ]


def test_a_day_belongs_to_one_entity_and_one_catalyst() -> None:
    """On one day a says legal, then rumour, and b rumour: three histories of one day, up, down and down."""
    base = Document("h", "a", age_hours=24.0 * 100, catalyst="legal")
    documents = (
        base,
        replace(base, id="r", catalyst="rumour", sentiment=-1.0),
        replace(base, id="b", entity="b", catalyst="rumour", sentiment=-1.0),
    )
    bars = tuple(Bar(name, day, close) for name in "ab" for day, close in ((120, 100.0), (95, 110.0)))
    inputs = World(documents, bars).inputs()
    found = patterns(
        inputs,
        valid_documents(inputs.documents),
        np.array([0, 1]),
        AS_OF_US,
        CompetitiveConfig(pattern_min_days=1),
    )
    rows = zip(
        found.entity.tolist(),
        found.catalyst.tolist(),
        found.days.tolist(),
        found.positive_days.tolist(),
        strict=True,
    )
    assert list(rows) == [(0, 0, 1, 1), (0, 1, 1, 0), (1, 1, 1, 0)]


def test_a_day_is_averaged_by_size_not_by_count() -> None:
    """At noon a late bar lifts the starting close from 100 to 109: up 10 % for the first, .9 % after."""
    bars = (Bar("a", 102, 100.0), Bar("a", 101, 109.0, known_late_hours=12.0), Bar("a", 96, 110.0))
    first = Document("m", "a", age_hours=24.0 * 100 + 6.0, catalyst="legal")
    against = [replace(first, id=f"x{n}", sentiment=-1.0, age_hours=24.0 * 100 - 6.0) for n in range(2)]
    assert known_history(first, *against, bars=bars) == [(1, 1)]
    assert known_history(*against, bars=bars) == [(1, 0)]


def known_history(*documents: Document, bars: tuple[Bar, ...]) -> list[tuple[int, int]]:
    """Days with an outcome and positive ones per catalyst, the least number of days set to 1."""
    inputs = World(documents, bars).inputs()
    config = CompetitiveConfig(pattern_min_days=1)
    found = patterns(inputs, valid_documents(inputs.documents), np.array([0]), AS_OF_US, config)
    return list(zip(found.days.tolist(), found.positive_days.tolist(), strict=True))


def days_known(*documents: Document, bars: tuple[Bar, ...]) -> list[int]:
    return [days for days, _ in known_history(*documents, bars=bars)]


@pytest.mark.parametrize(
    ("age_us", "counted"),
    [
        (365 * US_PER_DAY, True),
        (365 * US_PER_DAY + 1, False),
        (7 * US_PER_DAY, True),
        (7 * US_PER_DAY - 1, False),
    ],
)
def test_history_reaches_from_365_to_7_days_both_included(age_us: int, *, counted: bool) -> None:
    document = Document("h", "a", age_hours=age_us / US_PER_HOUR, catalyst="legal")
    assert document.published_us == AS_OF_US - age_us
    bars = (Bar("a", 400, 90.0), Bar("a", 360, 100.0), Bar("a", 9, 110.0), Bar("a", 5, 120.0))
    assert days_known(document, bars=bars) == ([1] if counted else [])


def test_outcomes_are_grouped_by_the_utc_day_of_publication() -> None:
    """23:59 and 00:01 are two days although two minutes apart; AS_OF is at noon."""
    bars = (Bar("a", 120, 100.0), Bar("a", 95, 110.0))
    evening = Document("e", "a", age_hours=24.0 * 100 + 12.0 + 1 / 60, catalyst="legal")
    morning = Document("m", "a", age_hours=24.0 * 100 + 12.0 - 1 / 60, catalyst="legal")
    noon = Document("n", "a", age_hours=24.0 * 100, catalyst="legal")
    assert days_known(evening, morning, noon, bars=bars) == [2]
    assert (AS_OF_US - morning.published_us) // US_PER_DAY == 100
    assert morning.published_us // US_PER_DAY == AS_OF_DAY - 100


def test_failed_neutral_and_unsettled_documents_are_no_history() -> None:
    base = Document("h", "a", age_hours=24.0 * 100, catalyst="legal")
    bars = (Bar("a", 120, 100.0), Bar("a", 95, 110.0))
    assert days_known(base, bars=bars) == [1]
    assert days_known(replace(base, failed=True), bars=bars) == []
    assert days_known(replace(base, has_impact=False), bars=bars) == []
    assert days_known(replace(base, sentiment=0.0), bars=bars) == []
    assert days_known(replace(base, catalyst=None), bars=bars) == []
    assert days_known(base, bars=bars[:1]) == []
    assert days_known(base, bars=(Bar("a", 120, 100.0), Bar("a", 95, 100.0))) == []
