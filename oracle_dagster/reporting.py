"""What the orchestrator is told: one materialisation per computed key, new versions of inputs and settings.

The tables are the record; events are their index. Holds the one use of the orchestrator's batched event
path, with the plain one beside it. Decides nothing and computes nothing.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from oracle_dagster import plots, storytelling
from oracle_dagster.as_of import format_as_of
from oracle_dagster.assets.configuration import configuration_versions
from oracle_dagster.input_versions import entity_input_versions, whole_input_versions
from oracle_dagster.partitions import key_text, partition_tags, register_entities

try:
    # Internal, but 22 events per second become about 1,000: they reach the storage in one statement.
    from dagster._core.events import (
        AssetObservationData,
        DagsterEvent,
        DagsterEventBatchMetadata,
        DagsterEventType,
        StepMaterializationData,
    )
    from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID
except ImportError:  # pragma: no cover - the version is pinned; a later one falls back to the plain path
    DagsterEvent = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from oracle_core.config import OracleConfig
    from oracle_dagster.partitions import Key
    from oracle_dagster.pipeline import StageReport
    from oracle_dagster.storage.cycles import Cycle, Failure
    from oracle_dagster.storage.database import Database

DATA_VERSION_TAG: Final = "dagster/data_version"
REPORT_INPUTS_TAG: Final = "oracle/report_inputs"
"""On a batch run launched for new inputs: it first reports how far those of its entities have got."""
NO_VERSION: Final = "INITIAL"  # the orchestrator's word for an asset that never reported one
PLOTTED_KEYS: Final = 50
"""Runs that tell of more keys carry no plots: each adds to the size of an event."""
_TABLE_ROWS: Final = 10
_WHOLE_DIGITS: Final = 1_000
DECISIONS_TAG: Final = "oracle/decisions"
"""On every run that decided: how its decisions moved, so that the list of runs shows it."""
_CLAUSE: Final = re.compile(r"('(?:[^']|'')*')| (FROM|JOIN|WHERE|AND|ORDER BY) ")  # and not within quotes


# -------------------------------------------------------------------------------- what a person reads


def readable(values: Mapping[str, object]) -> dict[str, dg.MetadataValue[Any]]:
    """Metadata of plain and NumPy values; what has no value (None, NaN, infinity) is left out.

    Lists of objects become tables of at most ten rows, ``thesis`` and the plots text with its layout, ``sql``
    code. Numbers keep as many digits as a person reads; the exact ones are in the tables.
    """
    shown: dict[str, dg.MetadataValue[Any]] = {}
    for name, value in values.items():
        entry = _metadata_value(name, value)
        if entry is not None:
            shown[name] = entry
    return shown


def posterior_plot(asset: str, numbers: Mapping[str, object], told: int) -> dict[str, object]:
    """The plot of a trend's posterior, or why there is none; nothing for other assets and without one.

    Args:
        asset: whose materialisation it is for.
        numbers: the metadata of the key, with ``p_bull``, ``alpha``, ``beta`` and ``direction_threshold``.
        told: keys the run tells of.

    """
    match numbers:
        case {
            "alpha": float(alpha),
            "beta": float(beta),
            "p_bull": float(p_bull),
            "direction_threshold": float(threshold),
        } if asset == "trend_windows":
            if told > PLOTTED_KEYS:
                return {"posterior": f"not drawn in runs of more than {PLOTTED_KEYS} keys"}
            drawn = plots.posterior(alpha=alpha, beta=beta, p_bull=p_bull, threshold=threshold)
            return {"posterior": plots.as_markdown(drawn)}
        case _:
            return {}


def _metadata_value(name: str, value: Any) -> dg.MetadataValue[Any] | None:  # noqa: ANN401, C901, PLR0911 - one per type
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()  # NumPy scalars are refused as metadata
    match value:
        case None:
            return None
        case bool():
            return dg.MetadataValue.bool(value)
        case int():
            return dg.MetadataValue.int(value)
        case float():
            return dg.MetadataValue.float(_legible(value)) if math.isfinite(value) else None
        case datetime():
            return dg.MetadataValue.text(format_as_of(value))
        case str():
            if name in {"thesis", "posterior", "history"}:
                return dg.MetadataValue.md(value)
            return (
                dg.MetadataValue.md(f"```sql\n{_folded(value)}\n```")
                if name == "sql"
                else dg.MetadataValue.text(value)
            )
        case list() | tuple() if value and all(isinstance(row, dict) for row in value):
            return _table(value)
        case list() | tuple():
            return dg.MetadataValue.text(", ".join(map(str, value))) if value else None
        case _:
            return dg.MetadataValue.json(value)


def _legible(value: float) -> float:
    """Four significant digits, and never fewer than the whole number has."""
    return float(f"{value:.4g}") if abs(value) < _WHOLE_DIGITS else float(round(value))


def _folded(query: str) -> str:
    """A query with a line per clause: one long line pushes all metadata beyond the page's edge."""
    return _CLAUSE.sub(lambda m: m[1] or f"\n{m[2]} ", query)


def _table(rows: Sequence[Mapping[str, object]]) -> dg.MetadataValue[Any]:
    columns = list(rows[0])
    records = [
        dg.TableRecord({column: _cell(row.get(column)) for column in columns}) for row in rows[:_TABLE_ROWS]
    ]
    schema = dg.TableSchema([dg.TableColumn(column, _column_type(records, column)) for column in columns])
    return dg.MetadataValue.table(records, schema)


def _cell(value: object) -> str | int | float | bool | None:
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None  # the exact ones are in the tables
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return format_as_of(value) if isinstance(value, datetime) else str(value)


def _column_type(records: Sequence[dg.TableRecord], column: str) -> str:
    kinds = {type(record.data[column]) for record in records} - {type(None)}
    if kinds <= {bool}:
        return "bool"
    if kinds <= {int}:
        return "int"
    return "float" if kinds <= {int, float} else "string"


# -------------------------------------------------------------------------------- computed partitions


def event_position(instance: dg.DagsterInstance) -> int:
    """The newest event of the orchestrator: inputs reported later were not read by what runs now."""
    newest = instance.event_log_storage.get_maximum_record_id()
    return 0 if newest is None else newest


def latest_versions(instance: dg.DagsterInstance, assets: Iterable[str]) -> dict[str, str]:
    """The data version last reported of each unpartitioned asset."""
    versions = dict.fromkeys(assets, NO_VERSION)
    for record in instance.get_asset_records([dg.AssetKey(name) for name in versions]):
        event = record.asset_entry.last_materialization
        materialization = None if event is None else event.asset_materialization
        if materialization is not None and materialization.tags is not None:
            found = materialization.tags.get(DATA_VERSION_TAG, NO_VERSION)
            versions[record.asset_entry.asset_key.to_user_string()] = found
    return versions


def input_tags(versions: Mapping[str, str], position: int) -> dict[str, str]:
    """The tags that say what a result was computed from.

    Args:
        versions: data version by upstream asset; staleness compares that of unpartitioned ones.
        position: the newest event at the time of reading; staleness of partitioned ones looks for later ones.

    """
    tags: dict[str, str] = {}
    for name, version in versions.items():
        tags[f"dagster/input_data_version/{name}"] = version
        tags[f"dagster/input_event_pointer/{name}"] = str(position)
    return tags


def report_partitions(
    context: dg.AssetExecutionContext, materializations: Sequence[dg.AssetMaterialization]
) -> None:
    """Record materialisations of one asset in the running step, in batches where the orchestrator can."""
    emit = _batched(context)
    for position, materialization in enumerate(materializations, start=1):
        emit(materialization, position == len(materializations))


def _batched(context: dg.AssetExecutionContext) -> Callable[[dg.AssetMaterialization, bool], None]:
    step = getattr(context, "get_step_execution_context", None)
    if DagsterEvent is None or step is None:
        return lambda materialization, _: context.log_event(materialization)
    step_context, batch = step(), uuid.uuid4().hex

    def emit(materialization: dg.AssetMaterialization, last: bool) -> None:  # noqa: FBT001 - local
        DagsterEvent.asset_materialization(
            step_context, materialization, DagsterEventBatchMetadata(batch, is_end=last)
        )

    return emit


def materialization(
    asset: str,
    key: Key,
    *,
    data_version: str,
    code_version: str,
    inputs: Mapping[str, str],
    metadata: Mapping[str, dg.MetadataValue[Any]],
) -> dg.AssetMaterialization:
    """One computed partition: its content's version, what it was computed from, and what a person reads.

    Args:
        asset: name of the asset.
        key: the partition.
        data_version: equal exactly where the rows are equal.
        code_version: of the stage.
        inputs: made by :func:`input_tags`.
        metadata: made by :func:`readable`.

    """
    return dg.AssetMaterialization(
        asset,
        partition=key_text(key),
        metadata=metadata,
        tags={
            **partition_tags(key),
            DATA_VERSION_TAG: data_version,
            "dagster/data_version_is_user_provided": "true",
            "dagster/code_version": code_version,
            **inputs,
        },
    )


@dataclass(frozen=True)
class Lineage:
    """What an asset of the chain is computed by and from."""

    code_version: str
    settings: tuple[str, ...]
    whole: tuple[str, ...]
    by_partition: tuple[str, ...]


def report_chain(
    context: dg.AssetExecutionContext,
    cycle: Cycle,
    report: StageReport,
    lineage: Mapping[str, Lineage],
    position: int,
    *,
    database: Database,
    only_changes: bool = False,
) -> dict[str, list[Key]]:
    """Record what a run of the chain has computed: one materialisation per asset and key.

    Args:
        context: of the running step.
        cycle: that was computed.
        report: of the pipeline.
        lineage: by computed asset, in the chain's order.
        position: :func:`event_position` from before the inputs were read.
        database: with what people are shown beside the report.
        only_changes: tell of a key only if its decision changed, of the others in one observation per asset.

    Returns:
        By asset: the keys that were computed, told of or not.

    """
    instance, settings = context.instance, configuration_versions(cycle.config)
    latest = latest_versions(instance, [*settings, *(name for o in lineage.values() for name in o.whole)])
    # Where a setting never reported a version, its asset has none to compare a partition with.
    report_versions(instance, {n: version for n, version in settings.items() if latest[n] == NO_VERSION})
    written: dict[str, dict[Key, str]] = {}
    positions: dict[str, int] = {}
    unchanged = _unchanged(report) if only_changes else set()
    for asset, origin in lineage.items():
        began = time.perf_counter()
        profile = {"run_profile": profiled(report.seconds)}
        common = input_tags({name: latest[name] for name in origin.whole}, position)
        common |= input_tags({name: settings[name] for name in origin.settings}, position)
        events = []
        told = [each for each in report.keys[asset] if (each.entity_id, each.window) not in unchanged]
        beside = storytelling.told(database, cycle, asset, told)
        for key_report, metadata in zip(told, beside, strict=True):
            key = (key_report.entity_id, key_report.window)
            inputs = dict(common)
            for name in origin.by_partition:
                version = written.get(name, {}).get(key, f"event {position}")
                inputs |= input_tags({name: version}, positions.get(name, position))
            events.append(
                materialization(
                    asset,
                    key,
                    data_version=key_report.data_version,
                    code_version=origin.code_version,
                    inputs=inputs,
                    metadata=readable(
                        {
                            **posterior_plot(asset, key_report.metadata, len(told)),
                            **metadata,
                            **profile,
                        }
                    ),
                )
            )
        report_partitions(context, events)
        about: dict[str, object] = {}
        if len(events) < len(report.keys[asset]):
            untold = len(report.keys[asset]) - len(events)
            about = {"unchanged": untold, "changed": len(events)}
        if asset == "recommendations":
            keys = [(each.entity_id, each.window) for each in report.keys[asset]]
            about = {**storytelling.moves(database, cycle, keys), **about}
            if "summary" in about:
                instance.add_run_tags(context.run.run_id, {DECISIONS_TAG: str(about["summary"])})
                context.log.info("Decisions: %s", about["summary"])
        if about:
            shown = readable({**about, "as_of": cycle.as_of})
            context.log_event(dg.AssetObservation(asset, metadata=shown))
        written[asset] = {(found.entity_id, found.window): found.data_version for found in report.keys[asset]}
        positions[asset] = event_position(instance)
        report.seconds["report"] = report.seconds.get("report", 0.0) + time.perf_counter() - began
    counts = ", ".join(f"{len(keys)} {asset}" for asset, keys in written.items())
    context.log.info(
        "As of %s, configuration %d: %s (%s)",
        format_as_of(cycle.as_of),
        cycle.config_version,
        counts,
        profiled(report.seconds),
    )
    listener = _listener.get()
    if listener is not None:
        listener.computed |= {asset: len(keys) for asset, keys in written.items()}
        listener.seconds |= report.seconds
    return {asset: list(keys) for asset, keys in written.items()}


def profiled(seconds: Mapping[str, float]) -> str:
    """Where the time of a run went, in the order in which its phases began.

    >>> profiled({"read": 0.5, "score": 0.25})
    'read 0.50 s, score 0.25 s'
    """
    return ", ".join(f"{name} {spent:.2f} s" for name, spent in seconds.items())


def _unchanged(report: StageReport) -> set[Key]:
    """The keys whose decision equals the one that stood before; none where nothing was decided."""
    return {
        (decided.entity_id, decided.window)
        for decided in report.keys.get("recommendations", [])
        if decided.metadata.get("equals_standing") is not None
        and (decided.entity_id, decided.window) not in report.held_back
    }


def require_something(computed: Mapping[str, Sequence[Key]], failures: Sequence[Failure]) -> None:
    """Fail the step where nothing could be used; a partly failed run succeeds and its checks name the rest.

    Raises:
        dg.Failure: no key was computed.

    """
    if any(computed.values()):
        return
    why = (
        f"No key could be computed. {failures[0].entity_id}|{failures[0].window}: {failures[0].message}"
        if failures
        else "No entity is known at as_of: load documents with `oracle ingest`, or choose a later moment."
    )
    raise dg.Failure(why, metadata={"failed_keys": len(failures)}, allow_retries=False)


Progress = Callable[[str, int, int], None]
"""Told what is being done, how many keys are done, and how many there are."""


@dataclass
class Listener:
    """Who launched a run in this process and hears of it; the orchestrator's own processes have none."""

    progress: Progress | None = None
    computed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def progress() -> Progress | None:
    """Whom the running step tells how far it is."""
    listener = _listener.get()
    return None if listener is None else listener.progress


@contextlib.contextmanager
def listening(progress: Progress | None) -> Iterator[Listener]:
    """Hear of every run that is executed inside."""
    listener = Listener(progress)
    token = _listener.set(listener)
    try:
        yield listener
    finally:
        _listener.reset(token)


# -------------------------------------------------------------------------------- inputs and settings


def report_inputs(
    instance: dg.DagsterInstance, database: Database, entities: Collection[str] | None = None
) -> int:
    """Tell the orchestrator how far the inputs have got, so that exactly what depends on them turns stale.

    To be called after inputs were written. Entities without a partition get one; unchanged inputs cost no
    event, so that calling it again is cheap.

    Args:
        instance: of the orchestrator.
        database: with the inputs.
        entities: those that may have new inputs; all where None.

    Returns:
        How many events were recorded.

    Raises:
        StorageError: the inputs cannot be read.

    """
    by_entity = entity_input_versions(database, entities)
    named = {entity for versions in by_entity.values() for entity in versions}
    register_entities(instance, sorted(named))
    return report_versions(instance, whole_input_versions(database), by_entity)


def report_configuration(instance: dg.DagsterInstance, config: OracleConfig) -> int:
    """Tell the orchestrator which configuration is in force, and return how many groups of it changed.

    To be called after another version was activated: exactly what its changed settings can reach turns stale.
    """
    return report_versions(instance, configuration_versions(config))


def report_versions(
    instance: dg.DagsterInstance,
    versions: Mapping[str, str] | None = None,
    partitions: Mapping[str, Mapping[str, str]] | None = None,
) -> int:
    """Record new data versions of inputs and settings outside any run; unchanged ones cost no event.

    Partitioned ones as observations: of a table that others fill, the orchestrator compares only those.

    Args:
        instance: of the orchestrator.
        versions: data version by unpartitioned asset.
        partitions: by asset partitioned by entity: data version by entity.

    Returns:
        How many events were recorded.

    """
    events: list[dg.AssetMaterialization | dg.AssetObservation] = []
    known = latest_versions(instance, versions or {})
    for name, version in (versions or {}).items():
        if known[name] != version:
            events.append(dg.AssetMaterialization(name, tags={DATA_VERSION_TAG: version}))
    for name, by_entity in (partitions or {}).items():
        if not by_entity:
            continue
        reported = _latest_partition_versions(instance, name, by_entity)
        for entity, version in by_entity.items():
            if reported.get(entity) != version:
                tags = {DATA_VERSION_TAG: version}
                events.append(dg.AssetObservation(name, partition=entity, tags=tags))
    for kind in (dg.AssetMaterialization, dg.AssetObservation):  # one batch holds events of one kind
        _report_outside_runs(instance, [event for event in events if isinstance(event, kind)])
    return len(events)


def _latest_partition_versions(
    instance: dg.DagsterInstance, name: str, entities: Collection[str]
) -> dict[str, str]:
    if DagsterEvent is None:  # pragma: no cover - see above; every version is then reported again
        return {}
    found = instance.event_log_storage.get_latest_tags_by_partition(
        dg.AssetKey(name), DagsterEventType.ASSET_OBSERVATION, [DATA_VERSION_TAG], list(entities)
    )
    return {entity: tags[DATA_VERSION_TAG] for entity, tags in found.items() if DATA_VERSION_TAG in tags}


def _report_outside_runs(
    instance: dg.DagsterInstance, events: Sequence[dg.AssetMaterialization | dg.AssetObservation]
) -> None:
    batch = uuid.uuid4().hex
    for position, event in enumerate(events, start=1):
        if DagsterEvent is None:  # pragma: no cover - see above
            instance.report_runless_asset_event(event)
            continue
        data: AssetObservationData | StepMaterializationData
        if isinstance(event, dg.AssetObservation):
            kind, data = DagsterEventType.ASSET_OBSERVATION, AssetObservationData(event)
        else:
            kind, data = DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(event)
        instance.report_dagster_event(
            DagsterEvent(event_type_value=kind.value, event_specific_data=data, job_name=RUNLESS_JOB_NAME),
            run_id=RUNLESS_RUN_ID,
            batch_metadata=DagsterEventBatchMetadata(batch, is_end=position == len(events)),
        )
