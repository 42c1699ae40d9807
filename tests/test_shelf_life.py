"""How long a decision holds when nothing new arrives: every change exact, no more claimed than was asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle_core.alternatives import judge
from oracle_core.config import OracleConfig
from oracle_core.enums import PipelineMode, Window
from oracle_core.inputs import US_PER_DAY, US_PER_HOUR, Keys
from oracle_core.rules import rules_for
from oracle_core.shelf_life import changes, turning_points
from oracle_core.whatif import Question, outcome, shelf_life
from tests.strategies import AS_OF_DAY, AS_OF_US, Bar, Document, Event, Exposure, World
from tests.test_influence import CONFIGS, MODES, WINDOWS, asked, mixed_world


def test_every_change_is_found_to_the_microsecond_in_order() -> None:
    steps = (0, 17, 1000, 1001, 5000)
    asked_for: list[int] = []

    def at(moment: int) -> int:
        asked_for.append(moment)
        return sum(moment >= step for step in steps)

    found = list(changes(at, np.array([4000, 10_000, 900, -5, 0]), 0))
    assert [(c.at_us, c.before, c.after) for c in found] == [
        (17, 1, 2),
        (1000, 2, 3),
        (1001, 3, 4),
        (5000, 4, 5),
    ]
    assert min(asked_for) == 0
    assert max(asked_for) == 10_000


def test_a_change_at_the_very_next_microsecond_and_at_the_last_moment_are_found() -> None:
    found = list(changes(lambda m: (m >= 1) + (m >= 50), np.array([50]), 0))
    assert [(c.at_us, c.before, c.after) for c in found] == [(1, 0, 1), (50, 1, 2)]
    assert list(changes(lambda _m: 3, np.array([50]), 0)) == []
    assert list(changes(lambda m: m, np.array([], np.int64), 0)) == []


def test_what_is_undone_between_two_moments_is_seen_only_if_one_of_them_is_asked() -> None:
    """The bound of what is claimed."""
    dip = [(lambda m: 10 <= m < 20)]
    assert list(changes(dip[0], np.array([100]), 0)) == []
    assert [c.at_us for c in changes(dip[0], np.array([15, 100]), 0)] == [10, 20]


def test_the_moments_are_those_at_which_something_leaves_or_settles() -> None:
    world = World(
        documents=(Document("d", "a", 1.0), Document("n", "b", 2.0)),
        bars=(Bar("a", 3, 100.0), Bar("b", 1, 100.0)),
        events=(Event("e", 5.0), Event("later", -3.0, known_late_hours=-10.0)),
    )
    key = Keys(np.array([0]), np.array([WINDOWS.index(Window.ONE_DAY)]))
    far = AS_OF_US + 400 * US_PER_DAY
    found = turning_points(world.inputs(), key, AS_OF_US, far, OracleConfig()).tolist()
    hour, day = US_PER_HOUR, US_PER_DAY
    bar = (AS_OF_DAY - 3) * day
    expected = {
        AS_OF_US + 23 * hour,  # the document leaves the window
        AS_OF_US + 22 * hour,  # the other one
        AS_OF_US + 19 * hour,  # the event
        AS_OF_US + 3 * hour,  # the later event occurs
        AS_OF_US + 27 * hour,  # and leaves
        AS_OF_US - hour + 7 * day,  # what followed the document is settled
        AS_OF_US - hour + 365 * day + 1,  # and too old to learn from
        bar + 8 * day,  # the return that starts after the bar is settled
        bar + 250 * day + 1,  # and too old for the expected value
    }
    assert set(found) == expected | {moment - 1 for moment in expected}
    assert found == sorted(found)
    near = turning_points(world.inputs(), key, AS_OF_US, AS_OF_US + 19 * hour, OracleConfig()).tolist()
    assert near[-1] == AS_OF_US + 19 * hour


@MODES
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("window", [Window.ONE_DAY, Window.SEVEN_DAYS])
def test_just_before_and_just_after_every_stated_moment(
    mode: PipelineMode, seed: int, window: Window
) -> None:
    """Decided alone at both moments, in every case; and the first change of action or mode ends the list."""
    question = asked(mixed_world(seed, 8), "a", window, CONFIGS[mode])
    found = shelf_life(question)
    start = outcome(question.decision(), 0)
    before = start
    assert found["changes"]
    for change in found["changes"]:
        assert change["before"] == before
        for moment, expected in ((change["at_us"] - 1, change["before"]), (change["at_us"], change["after"])):
            judged = judge(question.inputs, question.key, moment, question.config, question.rules)
            assert outcome(judged, 0) == expected
        before = change["after"]
        other = (before["action"], before["mode"]) != (start["action"], start["mode"])
        assert other == (change is found["changes"][-1] and found["ends"])
    assert found["searched_until_us"] > AS_OF_US


def test_a_lone_decision_becomes_stale_after_a_week_and_ends_with_the_window() -> None:
    documents = tuple(Document(f"d{n}", "a", 10.0 + n, 1.0, 0.9, 0.9, 0.9, source=f"s{n}") for n in range(9))
    question = asked(World(documents=documents), "a", Window.THIRTY_DAYS, OracleConfig())
    found = shelf_life(question)
    (change,) = found["changes"]
    assert change["at_us"] == AS_OF_US - 10 * US_PER_HOUR + 168 * US_PER_HOUR + 1
    assert (change["before"]["mode"], change["after"]["mode"]) == ("production_eligible", "informational")
    assert change["after"]["suppression_reasons"] == ["stale_evidence"]
    assert found["ends"] is True
    assert found["searched_until_us"] == change["at_us"]
    assert found["moments_asked"] > 40
    short = shelf_life(question, AS_OF_US + US_PER_DAY)
    assert (short["changes"], short["ends"]) == ([], False)
    assert short["searched_until_us"] == AS_OF_US + US_PER_DAY


def test_the_search_lasts_until_everything_has_left_and_the_evidence_is_stale() -> None:
    config = OracleConfig().with_settings({"suppression.max_evidence_staleness_hours": 300.0})
    calm = World(documents=(Document("d", "a", 1.0, 0.0),))
    for window, until in (
        (Window.ONE_DAY, 300 * US_PER_HOUR + 1),
        (Window.NINETY_DAYS, 90 * US_PER_DAY),
    ):
        found = shelf_life(asked(calm, "a", window, config))
        assert found["ends"] is False
        assert found["searched_until_us"] == AS_OF_US + until


def test_decay_alone_can_change_a_decision_between_two_exits() -> None:
    """An event fades in days, documents of the window 90d in months: the balance tips at no exit."""
    world = World(
        documents=(
            Document("d1", "a", 1.0, 1.0, 0.35, 0.9, 0.9),
            Document("d2", "a", 2.0, 1.0, 0.35, 0.9, 0.9),
        ),
        events=(Event("e", 1.0, -1),),
        exposures=(Exposure("a", "geo", "us", 1.0), Exposure("a", "sector", "us", 1.0)),
    )
    question = asked(world, "a", Window.NINETY_DAYS, OracleConfig())
    found = shelf_life(question)
    first = found["changes"][0]
    moments = turning_points(
        question.inputs, question.key, AS_OF_US, found["searched_until_us"], question.config
    )
    assert first["at_us"] not in moments.tolist()
    assert first["before"] != first["after"]


def test_what_arrives_later_does_not_count() -> None:
    documents = tuple(Document(f"d{n}", "a", 1.0, source=f"s{n}") for n in range(5))
    plain = World(documents=documents)
    coming = replace(plain, documents=(*documents, Document("late", "a", 1.0, -1.0, known_late_hours=5.0)))
    config = OracleConfig()
    expected = shelf_life(asked(plain, "a", Window.SEVEN_DAYS, config))
    assert shelf_life(asked(coming, "a", Window.SEVEN_DAYS, config)) == expected


def test_a_question_is_asked_under_its_own_rules() -> None:
    world = mixed_world(1, 8)
    for config in CONFIGS.values():
        question = asked(world, "a", Window.SEVEN_DAYS, config)
        assert isinstance(question, Question)
        assert question.rules is rules_for(config)
