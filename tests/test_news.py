"""What new inputs ask for, as pure functions: when to act, who is affected, what is remembered."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_core.config import OracleConfig
from oracle_dagster import news
from oracle_dagster.news import EVENT, LINKS, SPREADS, STAYS, Arrival, Cursor, CursorError, Debounce, Horizon

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
PATIENT = Debounce(timedelta(seconds=10), timedelta(seconds=60))
PATH = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
HEURISTIC = OracleConfig()
PROBABILISTIC = HEURISTIC.model_copy(
    update={"flags": HEURISTIC.flags.model_copy(update={"probabilistic_scoring_enabled": True})}
)


def at(seconds: float, xid: int = 100) -> Horizon:
    """A horizon some seconds after noon."""
    return Horizon(xid, NOON + timedelta(seconds=seconds), 1)


def without_competition(config: OracleConfig) -> OracleConfig:
    return config.model_copy(update={"flags": config.flags.model_copy(update={"competitive_enabled": False})})


# ------------------------------------------------------------------------------------------ when to act


def test_without_a_quiet_time_news_is_acted_on_at_once() -> None:
    act, _ = news.look(Cursor(), at(0), fresh=True, debounce=Debounce())
    assert act


def test_a_burst_is_acted_on_when_it_has_been_quiet_long_enough() -> None:
    """One run for a burst instead of one per tick."""
    act, cursor = news.look(Cursor(50, 50, None, None, 1, ""), at(0), fresh=True, debounce=PATIENT)
    assert not act
    act, cursor = news.look(cursor, at(8, 101), fresh=True, debounce=PATIENT)
    assert not act, "more arrived meanwhile, so the quiet time begins anew"
    act, cursor = news.look(cursor, at(17, 102), fresh=False, debounce=PATIENT)
    assert not act, "9 of 10 quiet seconds"
    act, cursor = news.look(cursor, at(18, 103), fresh=False, debounce=PATIENT)
    assert act
    assert cursor.xid == 50, "everything since the first of the burst is handled together"


def test_a_burst_that_never_ends_is_acted_on_after_the_longest_wait() -> None:
    cursor = Cursor(50, 50, None, None, 1, "")
    acted = []
    for second in range(0, 61, 5):
        act, cursor = news.look(cursor, at(second, 100 + second), fresh=True, debounce=PATIENT)
        acted.append(act)
    assert acted == [False] * 12 + [True]


def test_waiting_survives_a_restart_because_it_is_in_the_cursor() -> None:
    _, cursor = news.look(Cursor(50, 50, None, None, 1, ""), at(0), fresh=True, debounce=PATIENT)
    act, _ = news.look(Cursor.parse(cursor.text()), at(10), fresh=False, debounce=PATIENT)
    assert act


def test_a_clock_that_was_set_back_does_not_make_news_wait_for_it() -> None:
    _, cursor = news.look(Cursor(50, 50, None, None, 1, ""), at(1000), fresh=True, debounce=PATIENT)
    act, cursor = news.look(cursor, at(0), fresh=False, debounce=PATIENT)
    act, cursor = news.look(cursor, at(10), fresh=False, debounce=PATIENT)
    assert act


def test_where_nothing_is_new_the_cursor_goes_along_with_the_horizon() -> None:
    """So the next look starts there, however much lies before it."""
    act, cursor = news.look(Cursor(50, 50, None, None, 1, ""), at(0, 99), fresh=False, debounce=PATIENT)
    assert (act, cursor.xid, cursor.seen, cursor.since) == (False, 99, 99, None)


@pytest.mark.parametrize("change", [{"config_version": 2}, {"accuracy": "2026-03-09T23:50:00+00:00|1"}])
def test_a_changed_configuration_or_accuracy_is_news_too(change: dict[str, object]) -> None:
    before = Cursor(50, 50, None, None, 1, "")
    act, _ = news.look(before, replace(at(0, 50), **change), fresh=False, debounce=Debounce())  # type: ignore[arg-type]
    assert act
    act, _ = news.look(Cursor(), replace(at(0, 50), **change), fresh=False, debounce=Debounce())  # type: ignore[arg-type]
    assert not act, "at the beginning there is nothing that it changed from"


def test_what_becomes_known_later_is_acted_on_then() -> None:
    """A row may say that it is known from a moment to come; nobody writes a row again then."""
    soon = NOON + timedelta(minutes=5)
    found = [Arrival(SPREADS, "a", soon, 60, soon), Arrival(EVENT, "e:1", NOON + timedelta(hours=1))]
    cursor = news.handled(Cursor(50, 50), at(0, 70), news.put_off(Cursor(50, 50), found))
    cursor = Cursor.parse(cursor.text())
    assert cursor.due(NOON + timedelta(minutes=4)) == set()
    act, kept = news.look(cursor, at(240, 70), fresh=False, debounce=Debounce())
    assert not act
    assert set(kept.later) == {"spreads:a", "event:e:1"}
    act, kept = news.look(kept, at(300, 70), fresh=False, debounce=Debounce())
    assert act
    assert kept.due(soon) == {(SPREADS, "a")}
    after = news.handled(kept, at(300, 70), news.put_off(kept, []))
    assert set(after.later) == {"event:e:1"}
    assert news.run_key(kept, after, "news") != news.run_key(cursor, kept, "news"), (
        "no transaction in between"
    )


def test_of_one_name_a_bounded_number_of_later_moments_is_kept_the_last_among_them() -> None:
    found = [Arrival(SPREADS, "a", NOON + timedelta(hours=n)) for n in range(1000)]
    (moments,) = news.put_off(Cursor(), found).values()
    assert len(moments) == 50
    assert moments[-1] == NOON + timedelta(hours=999)


# ------------------------------------------------------------------------------------------ who is affected


@pytest.mark.parametrize(
    ("config", "distance", "reached"),
    [
        (HEURISTIC, 1, {"a", "b"}),
        (PROBABILISTIC, 3, {"a", "b", "c", "d"}),
        (without_competition(HEURISTIC), 0, {"a"}),
        (without_competition(PROBABILISTIC), 0, {"a"}),
    ],
)
def test_news_of_an_entity_reaches_as_far_as_the_mode_propagates_r189_g33(
    config: OracleConfig, distance: int, reached: set[str]
) -> None:
    assert news.reach(config) == distance
    assert news.affected([(SPREADS, "a")], [], PATH, distance) == reached


def test_edges_carry_news_both_ways() -> None:
    assert news.affected([(SPREADS, "e")], [], PATH, 1) == {"d", "e"}


def test_an_exposure_and_an_event_stay_where_they_are() -> None:
    """The macro layer of an entity is not passed on to its neighbours."""
    assert news.affected([(STAYS, "a"), (EVENT, "x:1")], ["c"], PATH, 3) == {"a", "c"}


def test_a_new_edge_is_the_first_step_itself() -> None:
    """Edge c-d: at distance 3 from b by way of it lie d and e, and at the other side c, b and a."""
    assert news.affected([(LINKS, "c"), (LINKS, "d")], [], PATH, 1) == {"c", "d"}
    assert news.affected([(LINKS, "c"), (LINKS, "d")], [], PATH, 2) == {"b", "c", "d", "e"}
    assert news.affected([(LINKS, "c"), (LINKS, "d")], [], PATH, 3) == {"a", "b", "c", "d", "e"}
    assert news.affected([(LINKS, "c")], [], PATH, 0) == {"c"}


NAMES = st.sampled_from("abcdefgh")


@given(
    st.sets(st.tuples(st.sampled_from([SPREADS, LINKS, STAYS]), NAMES), max_size=4),
    st.lists(st.tuples(NAMES, NAMES).filter(lambda edge: edge[0] != edge[1]), max_size=12),
    st.integers(0, 3),
)
def test_who_is_affected_is_what_walking_edge_by_edge_finds(
    named: set[tuple[str, str]], edges: list[tuple[str, str]], distance: int
) -> None:
    expected = {name for _, name in named}
    for kind, name in named:
        steps = {SPREADS: distance, LINKS: distance - 1, STAYS: 0}[kind]
        here = {name}
        for _ in range(max(0, steps)):
            here |= {b for a, b in [*edges, *(e[::-1] for e in edges)] if a in here}
        expected |= here
    assert news.affected(named, [], edges, distance) == expected


def test_accuracy_counts_in_the_probabilistic_mode_only_and_with_enough_outcomes_r163_r168() -> None:
    ratio, samples = np.array([0.9, 0.9]), np.array([10, 9])
    assert news.counted_factors(ratio, samples, PROBABILISTIC).tolist() == [1.4, 1.0]
    assert news.counted_factors(ratio, samples, HEURISTIC).tolist() == [1.0, 1.0]


# ------------------------------------------------------------------------------------------ the cursor


@given(
    st.builds(
        Cursor,
        st.integers(0, 2**60),
        st.integers(0, 2**60),
        st.none() | st.datetimes(timezones=st.just(UTC)),
        st.none() | st.datetimes(timezones=st.just(UTC)),
        st.none() | st.integers(1, 9),
        st.none() | st.just("2026-03-09T23:50:00+00:00|1"),
        st.dictionaries(
            st.text(min_size=1).map("spreads:".__add__),
            st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1, max_size=3).map(tuple),
            max_size=3,
        ),
    )
)
def test_a_cursor_is_read_as_it_was_written(cursor: Cursor) -> None:
    assert Cursor.parse(cursor.text()) == cursor


@pytest.mark.parametrize("text", [None, "", "  "])
def test_no_cursor_is_the_beginning(text: str | None) -> None:
    assert Cursor.parse(text) == Cursor()


@pytest.mark.parametrize(
    "text", ["7", "{}", '{"xid": "x", "seen": 1}', '{"xid": 1, "seen": 1, "x": 1}', "nonsense"]
)
def test_a_damaged_cursor_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(CursorError, match="Set it to the empty text"):
        Cursor.parse(text)


def test_the_batch_of_a_tick_is_named_by_where_it_began_and_ended() -> None:
    before, after = Cursor(50, 50, None, None, 1, ""), Cursor(70, 70, None, None, 1, "")
    waited = Cursor(50, 65, NOON, NOON, 1, "")
    assert news.batch_id(before, after, "news") == news.batch_id(waited, after, "news")
    others = {
        news.batch_id(before, after, "configuration"),
        news.batch_id(before, replace(after, xid=71), "news"),
        news.batch_id(before, replace(after, config_version=2), "news"),
    }
    assert len(others | {news.batch_id(before, after, "news")}) == 4
