"""The schedules: decisions age without news, because evidence decays and outcomes settle.

Each run looks from the time it was scheduled for, so that a late one computes what a punctual one would have.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

import dagster as dg

from oracle_core.enums import Window
from oracle_dagster import shards
from oracle_dagster.as_of import AS_OF_TAG, format_as_of
from oracle_dagster.assets.chain import STEP
from oracle_dagster.jobs import CYCLE_JOB, cycle_config
from oracle_dagster.partitions import RANGE_END_TAG, RANGE_START_TAG, key_text
from oracle_dagster.pipeline import STAGES
from oracle_dagster.sensors import automation_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Cadence:
    """How often some windows are computed without news; with no windows, the accuracy of the sources is."""

    name: str
    cron: str
    windows: tuple[Window, ...]
    describes: str


CADENCES: Final = (
    Cadence(
        "quarter_hourly_cycle",
        "*/15 * * * *",
        (Window.INTRADAY, Window.ONE_DAY),
        "Computes intraday and 1d of every entity every 15 minutes.",
    ),
    Cadence("hourly_cycle", "0 * * * *", (Window.SEVEN_DAYS,), "Computes 7d of every entity every hour."),
    Cadence(
        "daily_cycle",
        "0 0 * * *",
        (Window.THIRTY_DAYS, Window.NINETY_DAYS),
        "Computes 30d and 90d of every entity every day.",
    ),
    # Before midnight, so that no cycle of the same moment can start before or after it by chance.
    Cadence(
        "daily_source_accuracy",
        "50 23 * * *",
        (),
        "Measures every source by the outcomes that have settled, every day.",
    ),
)


def _requests(cadence: Cadence, as_of: str, entities: Sequence[str]) -> list[dg.RunRequest]:
    """One run, or one per part of very many entities; which those are is read by the run, at its moment."""
    parts = shards.shards_of(len(entities)) if cadence.windows else [shards.WHOLE]
    return [_request(cadence, as_of, entities, part) for part in parts]


def _request(cadence: Cadence, as_of: str, entities: Sequence[str], part: shards.Shard) -> dg.RunRequest:
    config = cycle_config(as_of=as_of, config_version=None, batch_id=None)
    tags: Mapping[str, str] = {AS_OF_TAG: as_of}
    assets: tuple[str, ...] = ("source_accuracy",)
    if cadence.windows:
        windows = [window.value for window in cadence.windows]
        shard = {} if part.count == 1 else {"shard": part.number, "shards": part.count}
        config["ops"] = {STEP: {"config": {"windows": windows, "only_changes": True, **shard}}}
        # One key of the run: without any the orchestrator cannot place the run's inputs.
        first = key_text((part.part(sorted(entities))[0], windows[0]))
        group = shards.tags(f"{cadence.name} {as_of}", part)
        tags = {**tags, RANGE_START_TAG: first, RANGE_END_TAG: first, **group}
        assets = STAGES
    run_key = as_of if part.number == 0 else f"{as_of} {part.text}"
    return dg.RunRequest(
        run_key=run_key, asset_selection=[dg.AssetKey(name) for name in assets], run_config=config, tags=tags
    )


def build_schedule(cadence: Cadence, *, running: bool | None = None) -> dg.ScheduleDefinition:
    """The schedule of a cadence, in UTC.

    Args:
        cadence: when and what.
        running: whether it starts switched on; from the environment where None.

    Raises:
        AutomationError: the environment holds a setting that cannot be used.

    """
    on = automation_on() if running is None else running

    @dg.schedule(
        name=cadence.name,
        cron_schedule=cadence.cron,
        job_name=CYCLE_JOB,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED,
        description=cadence.describes,
    )
    def due(
        context: dg.ScheduleEvaluationContext,
    ) -> dg.RunRequest | list[dg.RunRequest] | dg.SkipReason:
        entities = context.instance.get_dynamic_partitions("entity")
        if not entities:
            return dg.SkipReason("No entity has a partition yet; the sensor adds them with the first inputs.")
        as_of = format_as_of(context.scheduled_execution_time.astimezone(UTC))
        requests = _requests(cadence, as_of, entities)
        return requests[0] if len(requests) == 1 else requests

    return due


def build_schedules(*, running: bool | None = None) -> list[dg.ScheduleDefinition]:
    """All of them."""
    return [build_schedule(cadence, running=running) for cadence in CADENCES]
