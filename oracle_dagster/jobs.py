"""The jobs. What they run is defined with the assets; when they run, in schedules and sensors.

Configuration of ``aggregation_cycle``, every part of which may be left out::

    resources:
      cycle:
        config:
          as_of: "2016-11-08T00:00:00Z"  # default: the tag oracle/as_of, else when the run was created
          config_version: 3              # default: the active version
    ops:
      decision_chain:
        config:
          entities: ["AAPL", "MSFT"]     # any scattered set, in one run; with `windows: [...]` only those
          keys: ["XOM|7d"]               # the same, key by key; default: the run's partitions, else all
"""

from __future__ import annotations

from typing import Final

import dagster as dg

from oracle_dagster.assets.chain import STEP, decision_chain
from oracle_dagster.assets.leaks import no_look_ahead
from oracle_dagster.assets.source_accuracy import source_accuracy

CYCLE_JOB: Final = "aggregation_cycle"

# In one process: a step per process would cost seconds of start-up each, and the steps depend on each other.
aggregation_cycle: Final = dg.define_asset_job(
    CYCLE_JOB,
    selection=dg.AssetSelection.assets(source_accuracy, decision_chain)
    - dg.AssetSelection.checks(no_look_ahead),
    description="Source accuracy, then signals, trends, projections and recommendations of the run's keys.",
    executor_def=dg.in_process_executor,
)


def cycle_config(
    *, as_of: str | None, config_version: int | None, batch_id: str | None, accuracy_first: bool = False
) -> dict[str, object]:
    """The run configuration of ``aggregation_cycle``; what is None or not wanted is left out."""
    cycle = {"as_of": as_of, "config_version": config_version}
    given = {name: value for name, value in cycle.items() if value is not None}
    config: dict[str, object] = {"resources": {"cycle": {"config": given}}}
    if batch_id is not None:
        first = {"accuracy_first": True} if accuracy_first else {}
        config["ops"] = {STEP: {"config": {"batch_id": batch_id, **first}}}
    return config
