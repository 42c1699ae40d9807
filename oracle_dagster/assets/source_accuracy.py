"""The asset of source accuracy: how often each source's sentiment was followed by the market."""

# No `from __future__ import annotations`: the orchestrator reads the parameters' classes, not their names.

import dagster as dg

from oracle_core.cycle import STAGE_VERSIONS
from oracle_dagster import pipeline
from oracle_dagster.assets.configuration import groups_reaching
from oracle_dagster.reporting import readable
from oracle_dagster.resources import CycleSettings, OracleDatabase, outlasting_outages
from oracle_dagster.storage import cycles, inputs
from oracle_dagster.storage.database import Database


def ensure_source_accuracy(database: Database, cycle: cycles.Cycle, *, run_id: str) -> bool:
    """Measure every source as of the cycle unless that is done: once for all runs that share the cycle.

    Of several runs at once one measures and the others wait. Returns whether this one did.
    """
    with cycles.alone(database, cycle, "source_accuracy"):
        if inputs.accuracy_measured(database, cycle):
            return False
        pipeline.update_source_accuracy(database, cycle, run_id=run_id)
        return True


@dg.asset(
    group_name="decisions",
    deps=["documents", "market_bars", *(group.name for group in groups_reaching("source_accuracy"))],
    code_version=STAGE_VERSIONS["source_accuracy"],
    kinds={"postgres", "numpy"},
    metadata={"dagster/table_name": "source_accuracy"},
)
def source_accuracy(
    context: dg.AssetExecutionContext, database: OracleDatabase, cycle: CycleSettings
) -> dg.MaterializeResult[None]:
    """One row per source: the share of its directional documents that the next seven days confirmed."""
    with outlasting_outages():
        tables = database.open()
        opened = pipeline.open_cycle(tables, cycle.moment(context), config_version=cycle.config_version)
        report = pipeline.update_source_accuracy(tables, opened, run_id=context.run.run_id)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(report.data_version), metadata=readable(report.metadata)
    )
