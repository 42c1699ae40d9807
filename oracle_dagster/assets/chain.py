"""The chain from signals to recommendations: four assets, one step, one pass over the run's keys.

The step resolves its keys, lets the pipeline compute them and reports what was done, one materialisation per
key. No arithmetic, no SQL and no clock here. Why one step: a run's partitions are a rectangle of the two
dimensions, so a scattered set of keys would become thousands of runs; here it is the configuration of one.
"""

# No `from __future__ import annotations`: the orchestrator reads the parameters' classes, not their names.

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import dagster as dg
from pydantic import Field

from oracle_core.cycle import STAGE_VERSIONS
from oracle_core.enums import Window
from oracle_dagster import checks, entity_range, memory, notices, pipeline, reporting
from oracle_dagster.assets.configuration import groups_reaching
from oracle_dagster.assets.source_accuracy import ensure_source_accuracy
from oracle_dagster.partitions import KEYS, KeyChoice, choose_keys, register_entities
from oracle_dagster.resources import CycleSettings, OracleDatabase, outlasting_outages
from oracle_dagster.shards import Shard
from oracle_dagster.storage import cycles, entities
from oracle_dagster.storage.database import Database

STEP: Final = "decision_chain"

GRAINS: Final = {
    "weighted_signals": "One row per signal of an entity in a window, with every factor of its weight.",
    "trend_windows": "One row per entity and window: direction, strength, confidence and contradiction.",
    "trend_projections": "One row per entity, window and cycle: where the trend is heading.",
    "recommendations": "One row per changed decision of an entity and window: action, mode, size and thesis.",
}

# What each asset is computed from, beside the configuration. Unpartitioned first.
_WHOLE: Final = {
    "weighted_signals": ("source_accuracy", "macro_events"),
    "trend_windows": (),
    "trend_projections": ("macro_events",),
    "recommendations": (),
}
_BY_PARTITION: Final = {
    "weighted_signals": ("documents", "market_bars", "exposure_profiles", "competitive_edges"),
    "trend_windows": ("weighted_signals", "market_bars"),
    "trend_projections": ("trend_windows", "market_bars", "exposure_profiles"),
    "recommendations": ("trend_windows", "trend_projections", "documents", "market_bars"),
}


class KeySet(dg.Config):
    """Which partitions a run computes; without any of these its partition or range, else all known ones."""

    batch_id: str | None = Field(
        default=None,
        description="Batch in the table run_batches to take the keys from; wins over all others.",
    )
    keys: list[str] = Field(default=[], description="Keys as entity|window, any scattered set.")
    entities: list[str] = Field(
        default=[], description="Entities, any scattered set: each in every window, or in those of `windows`."
    )
    windows: list[str] = Field(
        default=[],
        description="Windows of `entities`, all five where empty; alone: of every known entity.",
    )
    shard: int = Field(
        default=0, description="Which of `shards` parts of all these the run takes, by entity; from 0."
    )
    shards: int = Field(default=1, description="How many runs share all these, by entity.")
    accuracy_first: bool = Field(
        default=False,
        description="Measure the sources as of the cycle first, unless another part of it already has.",
    )
    only_changes: bool = Field(
        default=False,
        description="Report a key only if its decision changed, the others in one observation per asset.",
    )

    def inline(self, known: Sequence[str]) -> list[str]:
        """The keys that are written out, in full, as entities, or as windows of every known entity."""
        windows = self.windows or [window.value for window in Window]
        alone = bool(self.windows) and not self.entities and not self.keys
        entities = known if alone else self.entities
        return [*self.keys, *(f"{entity}|{window}" for entity in entities for window in windows)]


def lineage(asset: str) -> reporting.Lineage:
    """Everything that an asset of the chain is computed from."""
    settings = tuple(group.name for group in groups_reaching(asset))
    return reporting.Lineage(STAGE_VERSIONS[asset], settings, _WHOLE[asset], _BY_PARTITION[asset])


def _specs() -> list[dg.AssetSpec]:
    return [
        dg.AssetSpec(
            name,
            group_name="decisions",
            description=GRAINS[name],
            deps=[*lineage(name).settings, *lineage(name).whole],
            partitions_def=KEYS,
            code_version=STAGE_VERSIONS[name],
            skippable=True,  # the step reports its partitions itself and returns nothing
            kinds={"postgres", "numpy"},
            metadata={"dagster/table_name": name},
        )
        for name in pipeline.STAGES
    ]


@dg.multi_asset(
    name=STEP,
    specs=_specs(),
    check_specs=checks.specs(),
    can_subset=True,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def _chain(
    context: dg.AssetExecutionContext, config: KeySet, database: OracleDatabase, cycle: CycleSettings
) -> Iterator[Any]:
    """Compute the selected assets of the run's keys in one pass, write them, and report each key."""
    with outlasting_outages():
        _compute(context, config, database.open(), cycle)
    yield from ()


def _compute(
    context: dg.AssetExecutionContext, config: KeySet, tables: Database, cycle: CycleSettings
) -> None:
    stages = [name for name in pipeline.STAGES if dg.AssetKey(name) in context.selected_asset_keys]
    if reporting.REPORT_INPUTS_TAG in context.run.tags and config.batch_id is not None:
        batch = cycles.batch_keys(tables, uuid.UUID(config.batch_id))
        reporting.report_inputs(context.instance, tables, {entity for entity, _ in batch})
    position = reporting.event_position(context.instance)
    opened = pipeline.open_cycle(tables, cycle.moment(context), config_version=cycle.config_version)
    chosen = _choose(context, config, tables, opened)
    if config.accuracy_first:
        ensure_source_accuracy(tables, opened, run_id=context.run.run_id)
    register_entities(context.instance, (entity for entity, _ in chosen.keys))
    batch_id = None if config.batch_id is None else uuid.UUID(config.batch_id)
    with memory.limited(pipeline.BLOCK_ENTITIES) as blocks:
        report = pipeline.run_stages(
            tables,
            opened,
            chosen.keys,
            stages,
            run_id=context.run.run_id,
            first_stages=None if batch_id is None else cycles.batch_stages(tables, batch_id),
            on_progress=reporting.progress(),
            block_entities=blocks.next,
        )
    origins = {name: lineage(name) for name in stages}
    computed = reporting.report_chain(
        context, opened, report, origins, position, database=tables, only_changes=config.only_changes
    )
    cycles.log_stage(
        tables,
        context.run.run_id,
        "report",
        opened,
        keys=len(chosen.keys),
        rows=sum(map(len, computed.values())),
        seconds=report.seconds["report"],
        details={"phases": report.seconds},
    )
    failures = [*report.failures, *_refuse(context, tables, opened, chosen, stages)]
    checks.report(context, tables, opened, report, failures)
    if "recommendations" in stages:
        decided = [key for key in computed["recommendations"] if key not in report.held_back]
        notices.tell(tables, opened, decided, run_id=context.run.run_id, log=context.log)
    reporting.require_something(computed, failures)


def _choose(
    context: dg.AssetExecutionContext, config: KeySet, tables: Database, opened: cycles.Cycle
) -> KeyChoice:
    placed = context.has_partition_key or context.has_partition_key_range
    known = entity_range.own(pipeline.known_entities(tables, opened))
    # The tags of a batch name one of its keys only, so they are not looked at.
    if config.windows and not config.entities and not config.keys:  # as the schedules ask
        known = entities.in_service(tables, known)
    inline = config.inline(known)
    given = config.batch_id is not None or len(inline) > 0 or len(config.windows) > 0
    return choose_keys(
        batch=None if config.batch_id is None else cycles.batch_keys(tables, uuid.UUID(config.batch_id)),
        inline=inline,
        partitions=[str(key) for key in context.partition_keys] if placed and not given else None,
        known=known,
        shard=Shard(config.shard, config.shards),
    )


def _refuse(
    context: dg.AssetExecutionContext,
    tables: Database,
    opened: cycles.Cycle,
    chosen: KeyChoice,
    stages: list[str],
) -> list[cycles.Failure]:
    """Record the requested keys that do not exist as failed in the first stage of the run."""
    if not chosen.unknown:
        return []
    found = [cycles.Failure(stages[0], key.entity_id, key.window, key.reason) for key in chosen.unknown]
    keys = [(key.entity_id, key.window) for key in chosen.unknown]
    cycles.record_failures(tables, context.run.run_id, opened, stages=stages, keys=keys, failures=found)
    return found


# The partitioned inputs join the graph after the step is made, so that they are edges of lineage and of
# staleness but no inputs of the step: with those, the orchestrator refuses a run without partition tags.
decision_chain: Final = _chain.map_asset_specs(
    lambda spec: spec.merge_attributes(deps=lineage(spec.key.to_user_string()).by_partition)
)
