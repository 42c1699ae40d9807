"""Late commits lose nothing: 20 writers with random delays, the sensor killed and started again.

The same scenario fails with the cursors one would write first; it is kept so, as proof that it can fail.
"""

from __future__ import annotations

import pytest

from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database
from tests.late_commits import WRITERS, scenario


def prepared(url: str) -> str:
    database = Database(url)
    migrate.upgrade(database)
    database.close()
    return url


def rounds(url: str, number: int, *, seed: int) -> int:
    with scenario(prepared(url), "settled", seed) as made:
        for n in range(number):
            made.round(n, kill=True)
        made.check()
        return len(made.written)


def test_twenty_late_writers_and_a_killed_sensor_miss_nothing_and_repeat_nothing(database_url: str) -> None:
    assert rounds(database_url, 5, seed=1) == 5 * WRITERS * 2


@pytest.mark.acceptance
def test_fifty_times_in_a_row(database_url: str) -> None:
    written = rounds(database_url, 50, seed=2)
    print(f"50 rounds of {WRITERS} writers: {written} documents, none missed, none twice")


@pytest.mark.parametrize("reader", ["id", "created"])
def test_the_scenario_fails_with_a_cursor_over_what_is_taken_before_the_commit(
    database_url: str, reader: str
) -> None:
    """``id > cursor`` and ``created_at > cursor`` lose whoever took its number first and ended last."""
    with scenario(prepared(database_url), reader) as made:
        made.round(0, kill=False)
        with pytest.raises(AssertionError, match=r"missed \d+ of 40: \['0-0-0', '0-0-1'"):
            made.check()
