"""What the orchestrator loads: assets, job and resources, put together in one place.

Loads anywhere: no database is needed or touched until a step runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import dagster as dg

from oracle_dagster.assets.agents import agent_performance_log
from oracle_dagster.assets.chain import decision_chain
from oracle_dagster.assets.configuration import configuration_assets
from oracle_dagster.assets.inputs import input_assets
from oracle_dagster.assets.leaks import leak_probe, no_look_ahead
from oracle_dagster.assets.source_accuracy import source_accuracy
from oracle_dagster.jobs import aggregation_cycle
from oracle_dagster.planning.jobs import apply_configuration, plan_configuration
from oracle_dagster.resources import CycleSettings, OracleDatabase
from oracle_dagster.schedules import build_schedules
from oracle_dagster.sensors import build_sensor

LOCATION: Final = "oracle"
"""Name of the code location, the same in workspace.yaml and wherever the services name it."""
MODULE: Final = "oracle_dagster.definitions"
"""What the code location loads."""


def build_defs(
    *,
    resources: Mapping[str, object] | None = None,
    sensors: Sequence[dg.SensorDefinition] = (),
    schedules: Sequence[dg.ScheduleDefinition] = (),
) -> dg.Definitions:
    """Assemble the definitions; the product and its tests both use this.

    Args:
        resources: replace those of the same name (``database``, ``cycle``).
        sensors: in addition.
        schedules: in addition.

    """
    return dg.Definitions(
        assets=[*input_assets, *configuration_assets, source_accuracy, decision_chain, agent_performance_log],
        asset_checks=[no_look_ahead],
        jobs=[aggregation_cycle, plan_configuration, apply_configuration, leak_probe],
        sensors=list(sensors),
        schedules=list(schedules),
        resources={"database": OracleDatabase(), "cycle": CycleSettings(), **(resources or {})},
        executor=dg.in_process_executor,
    )


defs = build_defs(sensors=[build_sensor()], schedules=build_schedules())
