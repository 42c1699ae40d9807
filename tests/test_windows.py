"""The five windows and what lies inside them (R1, R2, R4, R7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from oracle_core import cycle
from oracle_core.config import OracleConfig
from oracle_core.enums import Window
from oracle_core.inputs import Keys
from oracle_core.windows import in_window, members, window_start_us
from tests.strategies import AS_OF_US, Document, World

SECONDS = {
    Window.INTRADAY: 43_200,
    Window.ONE_DAY: 86_400,
    Window.SEVEN_DAYS: 604_800,
    Window.THIRTY_DAYS: 2_592_000,
    Window.NINETY_DAYS: 7_776_000,
}


def windows_holding(world: World) -> list[Window]:
    """The windows in which entity ``a`` has a signal."""
    found = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, OracleConfig())
    return [list(Window)[found.keys.window[key]] for key in found.rows.key.tolist()]


@pytest.mark.parametrize(
    ("window", "start"),
    [
        (Window.INTRADAY, "2026-03-10T00:00:00+00:00"),
        (Window.ONE_DAY, "2026-03-09T12:00:00+00:00"),
        (Window.SEVEN_DAYS, "2026-03-03T12:00:00+00:00"),
        (Window.THIRTY_DAYS, "2026-02-08T12:00:00+00:00"),
        (Window.NINETY_DAYS, "2025-12-10T12:00:00+00:00"),
    ],
)
def test_r1_starts_of_the_windows(window: Window, start: str) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    as_of_us = (datetime(2026, 3, 10, 12, tzinfo=UTC) - epoch) // timedelta(microseconds=1)
    found = epoch + timedelta(microseconds=window_start_us(window, as_of_us))
    assert found.isoformat() == start
    assert as_of_us - window_start_us(window, as_of_us) == SECONDS[window] * 1_000_000


@pytest.mark.parametrize("window", list(Window))
def test_r1_a_window_holds_its_end_but_not_its_start(window: Window) -> None:
    """``0 <= age < lookback`` (decisions 1): as_of itself counts, a document from the future never does."""
    code = np.array([list(Window).index(window)])
    lookback_us = SECONDS[window] * 1_000_000
    times = {age: np.array([AS_OF_US - age]) for age in (-1, 0, lookback_us - 1, lookback_us)}
    found = {age: bool(in_window(time, AS_OF_US, code)[0]) for age, time in times.items()}
    assert found == {-1: False, 0: True, lookback_us - 1: True, lookback_us: False}


def test_r2_a_record_of_43201_seconds_is_in_four_of_five_windows() -> None:
    world = World(documents=(Document("d", "a", age_hours=43_201 / 3600),))
    assert windows_holding(world) == list(Window)[1:]


def test_r2_a_record_of_the_future_is_in_no_window() -> None:
    world = World(documents=(Document("d", "a", age_hours=-1 / 3600, known_late_hours=-1.0),))
    assert windows_holding(world) == []


def test_r4_all_five_windows_unless_fewer_are_asked_for() -> None:
    world = World(documents=(Document("d", "a"),))
    assert len(world.keys()) == 5
    chosen = world.keys((Window.ONE_DAY, Window.SEVEN_DAYS))
    trends = cycle.assemble_trends(
        cycle.score_signals(world.inputs(), chosen, AS_OF_US, OracleConfig()),
        world.inputs(),
        AS_OF_US,
        OracleConfig(),
    )
    assert trends.keys.window.tolist() == [1, 2]
    assert len(trends.rows.direction) == 2


def test_r7_a_window_is_not_touched_by_what_only_a_longer_one_holds() -> None:
    """Each window is decided on its own: an old dissent changes 90d, not 1d."""
    recent = Document("recent", "a", age_hours=1.0)
    old = Document("old", "a", age_hours=1000.0, sentiment=-1.0, impact=1.0)

    def strengths(world: World) -> list[float]:
        signals = cycle.score_signals(world.inputs(), world.keys(), AS_OF_US, OracleConfig())
        return cycle.assemble_trends(signals, world.inputs(), AS_OF_US, OracleConfig()).rows.strength.tolist()

    alone, both = strengths(World(documents=(recent,))), strengths(World(documents=(recent, old)))
    assert alone[:4] == both[:4]
    assert alone[4] != both[4]


def test_members_come_in_key_order_and_skip_the_future() -> None:
    """Rows of two entities, newest first; keys in any order, one of them without rows."""
    hour = 3_600_000_000
    entity = np.array([0, 0, 0, 0, 2, 2])
    time_us = AS_OF_US - hour * np.array([-1, 0, 1, 20, 13, 800])
    keys = Keys(np.array([2, 0, 1, 0]), np.array([3, 0, 4, 1]))
    key, row = members(entity, time_us, 3, keys, AS_OF_US)
    pairs = list(zip(key.tolist(), row.tolist(), strict=True))
    assert pairs == [(0, 4), (1, 1), (1, 2), (3, 1), (3, 2), (3, 3)]
