"""The moment a run looks from: a field, a tag, or when its first attempt was created; never the clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from oracle_dagster.as_of import AS_OF_TAG, AsOfError, choose_as_of, format_as_of, parse_as_of

CREATED = datetime(2026, 3, 10, 12, 0, 0, 123_456, tzinfo=UTC)
TAGGED = {AS_OF_TAG: "2016-11-08T00:00:00Z"}
ROOT = {AS_OF_TAG: "2015-01-01T01:00:00+01:00"}


def test_the_field_wins_then_the_tag_then_the_root_runs_tag_then_its_creation() -> None:
    given = "2020-02-02T00:00:00Z"
    assert choose_as_of(configured=given, tags=TAGGED, root_tags=ROOT, created=CREATED) == datetime(
        2020, 2, 2, tzinfo=UTC
    )
    assert choose_as_of(configured=None, tags=TAGGED, root_tags=ROOT, created=CREATED) == datetime(
        2016, 11, 8, tzinfo=UTC
    )
    assert choose_as_of(configured=None, tags={}, root_tags=ROOT, created=CREATED) == datetime(
        2015, 1, 1, tzinfo=UTC
    )
    assert choose_as_of(configured=None, tags={}, root_tags={}, created=CREATED) == CREATED


def test_microseconds_survive_the_tag() -> None:
    """A retry must look from the very same moment."""
    assert format_as_of(CREATED) == "2026-03-10T12:00:00.123456Z"
    assert parse_as_of(format_as_of(CREATED), "tag") == CREATED


@pytest.mark.parametrize(
    "text", ["2016-11-08", "2016-11-08T00:00:00", "yesterday", "", "2016-13-01T00:00:00Z"]
)
def test_a_moment_without_an_offset_is_refused_with_the_form_that_is_right(text: str) -> None:
    with pytest.raises(AsOfError, match=r"as_of in the run's configuration is .*like 2016-11-08T00:00:00Z"):
        choose_as_of(configured=text, tags={}, root_tags={}, created=CREATED)


def test_a_broken_tag_is_refused_by_its_name() -> None:
    with pytest.raises(AsOfError, match=r"The tag oracle/as_of is 'now'"):
        choose_as_of(configured=None, tags={AS_OF_TAG: "now"}, root_tags={}, created=CREATED)
