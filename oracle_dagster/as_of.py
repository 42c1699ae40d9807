"""Which moment a run looks from: given, or when its first attempt or backfill was created. Reads no clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Mapping

AS_OF_TAG: Final = "oracle/as_of"
_BACKFILL_TAG: Final = "dagster/backfill"


class AsOfError(ValueError):
    """A text that is not a moment; the message shows the form that is."""


def parse_as_of(text: str, place: str) -> datetime:
    """Read an ISO 8601 moment with an offset, as UTC.

    Args:
        text: for example ``2016-11-08T00:00:00Z``.
        place: where the text stands, for the message.

    Raises:
        AsOfError: not a moment, or without an offset.

    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise AsOfError(
            f"{place} is {text!r}, which is not a moment with an offset; write it like 2016-11-08T00:00:00Z"
        )
    return moment.astimezone(UTC)


def format_as_of(as_of: datetime) -> str:
    """The moment as it stands in tags and metadata, in UTC."""
    return as_of.astimezone(UTC).isoformat().replace("+00:00", "Z")


def choose_as_of(
    *, configured: str | None, tags: Mapping[str, str], root_tags: Mapping[str, str], created: datetime
) -> datetime:
    """The configuration's moment, else the run's tag, else its root run's, else when that was created.

    Args:
        configured: the field of the run's configuration.
        tags: of the run.
        root_tags: of the run that it retries, directly or not; its own where it retries none.
        created: creation of the backfill, else of the root run; microseconds, UTC.

    Raises:
        AsOfError: the first of them that is given is not a moment.

    """
    if configured is not None:
        return parse_as_of(configured, "as_of in the run's configuration")
    for found in (tags.get(AS_OF_TAG), root_tags.get(AS_OF_TAG)):
        if found is not None:
            return parse_as_of(found, f"The tag {AS_OF_TAG}")
    return created


def as_of_of_run(instance: dg.DagsterInstance, run: dg.DagsterRun, configured: str | None) -> datetime:
    """The moment of a run, written to its tags so that a retry and a person find it.

    Parts of one backfill share the backfill's creation time, retries that of their root run.
    """
    root_id = run.root_run_id if run.root_run_id is not None else run.run_id
    record = instance.get_run_record_by_id(root_id) or instance.get_run_record_by_id(run.run_id)
    if record is None:
        raise RuntimeError(
            f"Run {run.run_id} is not in the orchestrator's storage, so it has no creation time."
        )
    created = record.create_timestamp
    backfill_id = run.tags.get(_BACKFILL_TAG)
    backfill = instance.get_backfill(backfill_id) if backfill_id is not None else None
    if backfill is not None:
        created = datetime.fromtimestamp(backfill.backfill_timestamp, UTC)
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    # The tags as stored: another step of this run may have written them since it started.
    stored = instance.get_run_by_id(run.run_id)
    tags = run.tags if stored is None else stored.tags
    as_of = choose_as_of(
        configured=configured, tags=tags, root_tags=record.dagster_run.tags, created=created.astimezone(UTC)
    )
    if tags.get(AS_OF_TAG) != format_as_of(as_of):
        instance.add_run_tags(run.run_id, {AS_OF_TAG: format_as_of(as_of)})
    return as_of
