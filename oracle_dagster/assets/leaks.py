"""The check that no result of a cycle depends on its future, as a job of its own.

Apart from the cycle, because it computes keys many times over: ``leak_probe`` runs when somebody asks.
"""

# No `from __future__ import annotations`: the orchestrator reads the parameters' classes, not their names.

import zlib
from typing import Any, Final

import dagster as dg

from oracle_dagster.assets.source_accuracy import source_accuracy
from oracle_dagster.partitions import key_text
from oracle_dagster.resources import OracleDatabase
from oracle_dagster.verification import leaks

PROBES: Final = len(leaks.KINDS)
ENTITIES: Final = 3


# Of the one asset of the cycle that is not partitioned: checks of those that report their partitions
# themselves never run.
@dg.asset_check(
    asset=source_accuracy,
    name="no_look_ahead",
    description="Nothing that became known after the newest cycle changes a result of it.",
)
def no_look_ahead(context: dg.AssetCheckExecutionContext, database: OracleDatabase) -> dg.AssetCheckResult:
    """Disturb the future of the newest cycle in every way, and compare a few entities' results."""
    tables = database.open()
    try:
        cycle = leaks.choose_cycle(tables)
    except leaks.NothingToProbeError as nothing:  # before the first whole cycle nothing can leak
        return dg.AssetCheckResult(passed=True, metadata={"nothing_to_probe": str(nothing)})
    seed = zlib.crc32(context.run.run_id.encode())
    found = leaks.probe(tables, cycle, probes=PROBES, entities=ENTITIES, seed=seed)
    metadata: dict[str, Any] = {
        "probes": found.probes,
        "keys": found.keys,
        "disturbed_rows": sum(found.disturbed.values()),
        "as_of": cycle.as_of.isoformat(),
        "seed": seed,
    }
    if found.leaks:
        metadata["leaks"] = dg.MetadataValue.json(
            [
                {"kind": leak.kind, "stage": leak.stage, "key": key_text((leak.entity_id, leak.window))}
                for leak in found.leaks[:100]
            ]
        )
    return dg.AssetCheckResult(passed=not found.leaks, metadata=metadata)


leak_probe: Final = dg.define_asset_job(
    "leak_probe",
    selection=dg.AssetSelection.checks(no_look_ahead),
    description="Does any result of the newest cycle depend on what became known after it?",
    executor_def=dg.in_process_executor,
)
