"""Why two cycles differ: the parts add up, no order bends them, and a lone cause gets everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from oracle_core.attribution import shapley
from oracle_core.causes import Cause, Difference, Moment, difference
from oracle_core.config import OracleConfig
from oracle_core.cycle import assemble_trends, score_signals
from oracle_core.enums import PipelineMode, Window
from oracle_core.inputs import US_PER_HOUR, Float, Keys
from tests.strategies import AS_OF_US, Bar, Document, Edge, Event, Exposure, World
from tests.test_influence import CONFIGS, MODES, WINDOWS

EARLIER_US = AS_OF_US - 30 * US_PER_HOUR
WINDOW = Window.SEVEN_DAYS

BASE = World(
    documents=tuple(
        Document(
            f"d{n}",
            "a",
            age_hours=40.0 + 20.0 * n,
            sentiment=(1.0, -1.0, 0.6)[n % 3],
            impact=(0.9, 0.4)[n % 2],
            confidence=0.5 + 0.05 * n,
            credibility=0.4 + 0.06 * n,
            catalyst=("legal", None)[n % 2],
            source=f"s{n % 3}",
        )
        for n in range(8)
    ),
    bars=tuple(Bar("a", day, 100.0 + (day * 7) % 11) for day in range(4, 60)),
    exposures=(Exposure("a", "geo", "us", 0.5),),
    accuracy=(("s0", 0.9, 20),),
)


def moment(world: World, as_of_us: int, config: OracleConfig) -> Moment:
    """What a cycle at that moment has read."""
    return Moment(as_of_us, config, world.inputs().known_at(as_of_us))


def compared(
    before: World,
    after: World,
    config: OracleConfig,
    *,
    since: int = EARLIER_US,
    later_config: OracleConfig | None = None,
) -> Difference:
    return difference(
        "a", WINDOW, moment(before, since, config), moment(after, AS_OF_US, later_config or config)
    )


def measures(differs: Difference, happened: frozenset[Cause]) -> Float:
    rows = differs.trend(happened)
    return np.array([rows.average[0], rows.confidence[0]])


def parts(differs: Difference) -> dict[Cause, Float]:
    def value(happened: tuple[bool, ...]) -> Float:
        chosen = zip(differs.causes, happened, strict=True)
        return measures(differs, frozenset(cause for cause, there in chosen if there))

    return dict(zip(differs.causes, shapley(value, len(differs.causes)), strict=True))


def own_cycle(world: World, as_of_us: int, config: OracleConfig) -> Float:
    """Average and confidence of the cycle by the stages themselves."""
    inputs = world.inputs()
    key = Keys(np.array([world.names().index("a")]), np.array([WINDOWS.index(WINDOW)]))
    rows = assemble_trends(score_signals(inputs, key, as_of_us, config), inputs, as_of_us, config).rows
    return np.array([rows.average[0], rows.confidence[0]])


# --------------------------------------------------------------------------------------- the value alone


def by_orders(value: Callable[[tuple[bool, ...]], Float], causes: int) -> Float:
    """Shapley's value by its definition: the mean over all orders."""
    total = np.zeros((causes, len(value((False,) * causes))))
    orders = list(permutations(range(causes)))
    for order in orders:
        happened = [False] * causes
        for cause in order:
            before = value(tuple(happened))
            happened[cause] = True
            total[cause] += value(tuple(happened)) - before
    return total / len(orders)


@pytest.mark.parametrize("causes", [1, 2, 3, 5])
def test_the_parts_are_the_means_over_all_orders_and_add_up(causes: int) -> None:
    rng = random.Random(causes)
    values: dict[tuple[bool, ...], Float] = {}

    def value(happened: tuple[bool, ...]) -> Float:
        return values.setdefault(happened, np.array([rng.random(), rng.random()]))

    found = shapley(value, causes)
    assert found == pytest.approx(by_orders(value, causes), abs=1e-14)
    assert found.sum(axis=0) == pytest.approx(value((True,) * causes) - value((False,) * causes), abs=1e-14)


def test_a_cause_without_effect_gets_exactly_nothing_and_equal_ones_the_same() -> None:
    found = shapley(lambda h: np.array([0.1 * (h[0] or h[2])]), 3)
    assert found[1, 0] == 0.0
    assert found[0, 0] == found[2, 0] == pytest.approx(0.05)
    assert shapley(lambda _h: np.array([1.0, 2.0]), 0).shape == (0, 2)


def test_every_set_is_asked_once() -> None:
    asked: list[tuple[bool, ...]] = []

    def value(happened: tuple[bool, ...]) -> Float:
        asked.append(happened)
        return np.array([float(sum(happened))])

    shapley(value, 4)
    assert len(asked) == len(set(asked)) == 16


# --------------------------------------------------------------------------------- one cause at a time

NEW = Document("new", "a", 2.0, -1.0, 1.0, 0.9, 0.9)
LONE = {
    Cause.NEW_DOCUMENTS: (
        World(entities=("a",), exposures=BASE.exposures),
        World(documents=(NEW,), exposures=BASE.exposures),
    ),
    Cause.AGEING: (BASE, BASE),
    Cause.LATE_OR_REVISED: (
        BASE,
        replace(
            BASE, documents=(*BASE.documents, Document("late", "a", 60.0, -1.0, 1.0, known_late_hours=50.0))
        ),
    ),
    Cause.MARKET_CONTEXT: (
        BASE,
        replace(BASE, bars=(*BASE.bars, Bar("a", 3, 120.0, 9000.0, known_late_hours=60.0))),
    ),
    Cause.SOURCE_ACCURACY: (BASE, replace(BASE, accuracy=(("s0", 0.2, 30), ("s1", 1.0, 10)))),
    Cause.EVENTS_AND_RELATIONS: (
        BASE,
        replace(BASE, events=(Event("e", 30.0, -1, known_late_hours=20.0),)),
    ),
}


@MODES
@pytest.mark.parametrize("cause", [c for c in LONE if c is not Cause.AGEING])
def test_a_change_with_one_cause_is_attributed_to_it_alone(mode: PipelineMode, cause: Cause) -> None:
    """At one moment, so that nothing ages; the later cycle just knows more."""
    before, after = LONE[cause]
    config = CONFIGS[mode]
    differs = difference("a", WINDOW, moment(before, AS_OF_US, config), moment(after, AS_OF_US, config))
    if cause is Cause.NEW_DOCUMENTS:  # at one moment a document that appeared before it is a late one
        assert differs.causes == (Cause.LATE_OR_REVISED,)
        return
    assert differs.causes == (cause,)
    (part,) = parts(differs).values()
    change = own_cycle(after, AS_OF_US, config) - own_cycle(before, AS_OF_US, config)
    assert part.tolist() == change.tolist()
    silent = {
        (Cause.SOURCE_ACCURACY, PipelineMode.HEURISTIC),  # that mode does not look at it
        (Cause.EVENTS_AND_RELATIONS, PipelineMode.PROBABILISTIC),  # an event is a factor on the mass there
    }
    assert change.any() == ((cause, mode) not in silent)


@MODES
def test_ageing_alone_takes_the_whole_change(mode: PipelineMode) -> None:
    """The same documents, all inside the window at both moments."""
    config = CONFIGS[mode]
    young = replace(BASE, documents=BASE.documents[:6], events=(Event("e", 50.0, -1),))
    differs = compared(young, young, config)
    assert differs.causes == (Cause.AGEING,)
    found = parts(differs)[Cause.AGEING]
    change = own_cycle(young, AS_OF_US, config) - own_cycle(young, EARLIER_US, config)
    assert found.tolist() == change.tolist()
    assert change[0] != 0.0


@MODES
def test_new_documents_alone_take_the_whole_change(mode: PipelineMode) -> None:
    """Where there was nothing there is nothing to age."""
    before, after = LONE[Cause.NEW_DOCUMENTS]
    found = parts(compared(before, after, CONFIGS[mode]))
    change = own_cycle(after, AS_OF_US, CONFIGS[mode])
    assert change[0] < 0.0
    assert found[Cause.NEW_DOCUMENTS].tolist() == change.tolist()
    assert [p.tolist() for c, p in found.items() if c is not Cause.NEW_DOCUMENTS] == [[0.0, 0.0]]


def test_what_left_the_window_takes_the_whole_change_where_ageing_has_none() -> None:
    """The heuristic average of documents does not move when all of them age alike."""
    documents = (
        Document("stays", "a", 100.0, 1.0, 0.8),
        Document("leaves", "a", 180.0, 1.0, 0.8, credibility=0.5),
    )
    world = World(documents=documents)
    found = parts(compared(world, world, OracleConfig()))
    assert set(found) == {Cause.AGEING, Cause.LEFT_THE_WINDOW}
    change = own_cycle(world, AS_OF_US, OracleConfig()) - own_cycle(world, EARLIER_US, OracleConfig())
    assert change[1] < -0.05
    assert found[Cause.LEFT_THE_WINDOW][1] == pytest.approx(change[1], abs=1e-15)
    assert found[Cause.AGEING][1] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("path", ["trend.confidence_count_weight", "flags.probabilistic_scoring_enabled"])
def test_a_configuration_alone_takes_the_whole_change(path: str) -> None:
    old = OracleConfig()
    new = old.with_settings({path: True if path.startswith("flags") else 0.1})
    differs = difference("a", WINDOW, moment(BASE, AS_OF_US, old), moment(BASE, AS_OF_US, new))
    assert differs.causes == (Cause.CONFIGURATION,)
    change = own_cycle(BASE, AS_OF_US, new) - own_cycle(BASE, AS_OF_US, old)
    assert parts(differs)[Cause.CONFIGURATION].tolist() == change.tolist()
    assert change[1] != 0.0


def test_a_revised_and_a_retracted_document_count_as_revised() -> None:
    revised = replace(BASE, documents=(replace(BASE.documents[0], sentiment=-1.0), *BASE.documents[1:]))
    retracted = replace(BASE, documents=BASE.documents[1:])
    for after in (revised, retracted):
        differs = difference(
            "a", WINDOW, moment(BASE, AS_OF_US, OracleConfig()), moment(after, AS_OF_US, OracleConfig())
        )
        assert differs.causes == (Cause.LATE_OR_REVISED,)
        change = own_cycle(after, AS_OF_US, OracleConfig()) - own_cycle(BASE, AS_OF_US, OracleConfig())
        assert parts(differs)[Cause.LATE_OR_REVISED].tolist() == change.tolist()
    changed_risk = replace(BASE, documents=(replace(BASE.documents[0], risks=("fine",)), *BASE.documents[1:]))
    differs = difference(
        "a", WINDOW, moment(BASE, AS_OF_US, OracleConfig()), moment(changed_risk, AS_OF_US, OracleConfig())
    )
    assert differs.causes == (Cause.LATE_OR_REVISED,)


# --------------------------------------------------------------------------------- everything together

EVERYTHING = replace(
    BASE,
    documents=(
        replace(BASE.documents[0], sentiment=-0.4),
        *BASE.documents[2:],
        NEW,
        Document("new2", "a", 20.0, 1.0, 0.7, source="s1"),
        Document("late", "a", 60.0, -1.0, 1.0, known_late_hours=45.0),
        Document("b-old", "b", 50.0, 1.0, 0.9),
        Document("b-new", "b", 5.0, -1.0, 0.9, catalyst="legal"),
    ),
    bars=(*BASE.bars, Bar("a", 3, 101.0), Bar("a", 2, 99.0), Bar("a", 1, 117.0, 4000.0), Bar("b", 5, 50.0)),
    events=(Event("e", 10.0, -1), Event("old", 80.0, 1), Event("gone", 180.0, -1)),
    edges=(Edge("a", "b", 0.8),),
    accuracy=(("s0", 0.3, 30), ("s1", 0.95, 12)),
)
BEFORE = replace(
    BASE,
    documents=(*BASE.documents, Document("b-old", "b", 50.0, 1.0, 0.9)),
    events=(Event("old", 80.0, 1), Event("gone", 180.0, -1)),
    edges=(Edge("a", "b", -0.5),),
)


@MODES
@pytest.mark.parametrize("later_mode", list(PipelineMode))
def test_with_no_cause_it_is_the_earlier_cycle_with_all_the_later_one_bit_for_bit(
    mode: PipelineMode, later_mode: PipelineMode
) -> None:
    later = CONFIGS[later_mode].with_settings({"trend.confidence_count_weight": 0.2})
    differs = compared(BEFORE, EVERYTHING, CONFIGS[mode], later_config=later)
    assert differs.causes == tuple(Cause)
    assert measures(differs, frozenset()).tolist() == own_cycle(BEFORE, EARLIER_US, CONFIGS[mode]).tolist()
    everything = measures(differs, frozenset(Cause)).tolist()
    assert everything == own_cycle(EVERYTHING, AS_OF_US, later).tolist()
    found = parts(differs)
    total = np.sum(list(found.values()), axis=0)
    expected = own_cycle(EVERYTHING, AS_OF_US, later) - own_cycle(BEFORE, EARLIER_US, CONFIGS[mode])
    assert total == pytest.approx(expected, abs=1e-9)
    assert all(found[cause].any() for cause in (Cause.NEW_DOCUMENTS, Cause.LATE_OR_REVISED, Cause.AGEING))


@MODES
def test_the_order_of_the_rows_does_not_matter(mode: PipelineMode) -> None:
    def shuffled(world: World, seed: int) -> World:
        rng = random.Random(seed)
        changed = {}
        for name in ("documents", "bars", "events", "exposures", "edges", "accuracy"):
            rows = list(getattr(world, name))
            rng.shuffle(rows)
            changed[name] = tuple(rows)
        return replace(world, **changed)

    found = parts(compared(BEFORE, EVERYTHING, CONFIGS[mode]))
    for seed in (1,):
        again = parts(compared(shuffled(BEFORE, seed), shuffled(EVERYTHING, seed + 9), CONFIGS[mode]))
        assert {c: p.tolist() for c, p in again.items()} == {c: p.tolist() for c, p in found.items()}


def test_rows_in_another_order_are_no_difference() -> None:
    turned = replace(
        BEFORE, documents=BEFORE.documents[::-1], bars=BEFORE.bars[::-1], events=BEFORE.events[::-1]
    )
    differs = difference(
        "a", WINDOW, moment(BEFORE, AS_OF_US, OracleConfig()), moment(turned, AS_OF_US, OracleConfig())
    )
    assert differs.causes == ()


def test_what_is_only_too_old_to_be_read_is_not_withdrawn() -> None:
    """The reader goes back a year; what passes that mark has not been retracted."""
    ancient = Document("ancient", "a", age_hours=365 * 24.0 + 10.0, catalyst="legal")
    before = replace(BASE, documents=(*BASE.documents[:6], ancient))
    after = replace(BASE, documents=BASE.documents[:6])
    assert compared(before, after, OracleConfig()).causes == (Cause.AGEING,)


def test_neighbours_that_come_within_reach_are_relations_and_not_late_documents() -> None:
    """Their documents were there before; only the edge is new."""
    neighbour = (
        Document("b1", "b", 50.0, -1.0, 0.9, 0.9, 0.9),
        Document("b2", "b", 60.0, -1.0, 0.9, 0.9, 0.9),
    )
    after = replace(
        BASE,
        documents=BASE.documents[:6] + neighbour,
        edges=(Edge("a", "b", 0.8),),
        bars=(*BASE.bars, Bar("b", 9, 10.0), Bar("b", 8, 11.0)),
    )
    before = replace(BASE, documents=BASE.documents[:6])
    for first, second in ((before, after), (after, before)):
        differs = difference(
            "a", WINDOW, moment(first, AS_OF_US, OracleConfig()), moment(second, AS_OF_US, OracleConfig())
        )
        assert differs.causes == (Cause.EVENTS_AND_RELATIONS,)
        (part,) = parts(differs).values()
        change = own_cycle(second, AS_OF_US, OracleConfig()) - own_cycle(first, AS_OF_US, OracleConfig())
        assert part.tolist() == change.tolist()
        assert change[0] != 0.0


def test_without_ageing_what_is_new_comes_in_as_old_as_it_is() -> None:
    differs = compared(BEFORE, EVERYTHING, OracleConfig())
    fresh = differs.trend(frozenset({Cause.NEW_DOCUMENTS}))
    assert fresh.entity_signals[0] == differs.trend(frozenset()).entity_signals[0] + 2
    kept = differs.trend(frozenset({Cause.AGEING}))
    assert kept.entity_signals[0] == differs.trend(frozenset()).entity_signals[0]
    gone = differs.trend(frozenset({Cause.LEFT_THE_WINDOW}))
    assert gone.entity_signals[0] < kept.entity_signals[0]
    assert gone.macro_signals[0] < kept.macro_signals[0]


def test_the_earlier_cycle_must_not_be_the_later_one() -> None:
    config = OracleConfig()
    with pytest.raises(ValueError, match="must not be after the one explained"):
        difference("a", WINDOW, moment(BASE, AS_OF_US, config), moment(BASE, EARLIER_US, config))
