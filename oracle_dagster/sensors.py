"""The sensor on new inputs: each tick looks, and launches one run for everything that has to be computed.

Thin: what is new is read in ``oracle_dagster.storage.arrivals``, what it asks for is decided in
``oracle_dagster.news``. The cursor leaves only through the tick's result, which the daemon stores together
with the runs to launch; so a daemon that dies before repeats the tick, and one that dies after resumes it.
"""

# No `from __future__ import annotations`: the orchestrator reads the parameters' classes, not their names.

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import dagster as dg

from oracle_dagster import entity_range, shards, tick
from oracle_dagster.as_of import AS_OF_TAG, format_as_of
from oracle_dagster.jobs import CYCLE_JOB, cycle_config
from oracle_dagster.news import Debounce
from oracle_dagster.partitions import all_keys, batch_tags, register_entities
from oracle_dagster.reporting import REPORT_INPUTS_TAG
from oracle_dagster.resources import OracleDatabase

SENSOR: Final = "new_inputs"
AUTOMATION_VARIABLE: Final = "ORACLE_AUTOMATION"
QUIET_VARIABLE: Final = "ORACLE_SENSOR_QUIET_SECONDS"
LONGEST_VARIABLE: Final = "ORACLE_SENSOR_MAX_WAIT_SECONDS"
INTERVAL_VARIABLE: Final = "ORACLE_SENSOR_INTERVAL_SECONDS"
_DEFAULTS: Final = {QUIET_VARIABLE: 5.0, LONGEST_VARIABLE: 60.0, INTERVAL_VARIABLE: 10.0}


class AutomationError(ValueError):
    """A setting of the automation in the environment cannot be used; the message says which and how."""


def seconds(variable: str) -> float:
    """A number of seconds from the environment, else its default.

    Raises:
        AutomationError: not a number of at least 0.

    """
    text = os.environ.get(variable, "")
    if text == "":
        return _DEFAULTS[variable]
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 <= found < float("inf"):
        raise AutomationError(
            f"{variable} is {text!r}; set it to a number of seconds from 0, or unset it for "
            f"{_DEFAULTS[variable]:g}"
        )
    return found


def automation_on() -> bool:
    """Whether sensor and schedules start switched on; they do unless ``ORACLE_AUTOMATION`` is ``off``.

    Raises:
        AutomationError: it is neither ``on`` nor ``off``.

    """
    text = os.environ.get(AUTOMATION_VARIABLE, "").lower()
    if text not in {"", "on", "off"}:
        raise AutomationError(f"{AUTOMATION_VARIABLE} is {text!r}; set it to on or off")
    return text != "off"


def run_request(request: tick.Request, as_of: str) -> dg.RunRequest:
    """The run of one batch, or of what the parts of a divided batch share."""
    if request.batch_id is None:
        tags: Mapping[str, str] = {shards.CYCLE_TAG: request.group}
    else:
        tags = {
            **batch_tags(request.batch_id, all_keys(request.entities)),
            **shards.tags(request.group, request.shard),
            REPORT_INPUTS_TAG: "true",
        }
    return dg.RunRequest(
        run_key=request.run_key,
        job_name=CYCLE_JOB,
        asset_selection=[dg.AssetKey(name) for name in request.assets],
        run_config=cycle_config(
            as_of=as_of,
            config_version=None,
            batch_id=request.batch_id,
            accuracy_first=request.accuracy_first,
        ),
        tags={**tags, AS_OF_TAG: as_of},
    )


def build_sensor(debounce: Debounce | None = None, *, running: bool | None = None) -> dg.SensorDefinition:
    """The sensor.

    Args:
        debounce: how long news gathers; from the environment where None.
        running: whether it starts switched on; from the environment where None.

    Raises:
        AutomationError: the environment holds a setting that cannot be used.

    """
    waits = (
        Debounce(timedelta(seconds=seconds(QUIET_VARIABLE)), timedelta(seconds=seconds(LONGEST_VARIABLE)))
        if debounce is None
        else debounce
    )
    on = automation_on() if running is None else running

    @dg.sensor(
        name=SENSOR,
        job_name=CYCLE_JOB,
        minimum_interval_seconds=max(1, round(seconds(INTERVAL_VARIABLE))),
        default_status=dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED,
        description="Computes again what new, revised or retracted inputs can change: one run per tick, or "
        "one per part of very many entities.",
    )
    def new_inputs(context: dg.SensorEvaluationContext, database: OracleDatabase) -> dg.SensorResult:
        found = tick.look(database.open(), context.cursor, waits)
        as_of = format_as_of(found.moment)
        for request in found.requests:
            # Before the run, whose range of partitions names one of them; adding what is there does nothing.
            register_entities(context.instance, request.entities)
        if not found.requests:
            return dg.SensorResult(skip_reason=found.message, cursor=found.cursor)
        context.log.info("As of %s: %s", as_of, found.message)
        crowded = entity_range.too_many(len(context.instance.get_dynamic_partitions("entity")))
        if crowded is not None:
            context.log.warning(crowded)
        requests = [run_request(request, as_of) for request in found.requests]
        return dg.SensorResult(run_requests=requests, cursor=found.cursor)

    return new_inputs
