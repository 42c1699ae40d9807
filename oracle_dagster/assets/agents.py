"""The asset of the log of model calls: variants can be compared where everything else is looked at."""

# No `from __future__ import annotations`: the orchestrator reads the parameters' classes, not their names.

from datetime import datetime
from typing import Final

import dagster as dg

from oracle_dagster.reporting import readable
from oracle_dagster.resources import OracleDatabase
from oracle_dagster.rewriting import performance

ROWS: Final = 200
SQL: Final = "SELECT * FROM agent_performance_log ORDER BY id DESC;"


@dg.asset(group_name="agents", kinds={"postgres"}, metadata={"dagster/table_name": "agent_performance_log"})
def agent_performance_log(database: OracleDatabase) -> dg.MaterializeResult[None]:
    """One row per call of a model; shows success, latency and spend per hour and variant, newest first."""
    hours = performance.hourly(database.open(), ROWS)
    totals = {
        name: sum(row[name] for row in hours)
        for name in ("calls", "succeeded", "failed", "est_input_tokens", "est_output_tokens")
    }
    metadata = readable({**totals, "sql": SQL})
    if len(hours) > 0:
        records = [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in hours]
        metadata["by_hour_and_variant"] = dg.MetadataValue.table(records)
    return dg.MaterializeResult(metadata=metadata)


def _cell(value: object) -> str | int | float | None:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else None
