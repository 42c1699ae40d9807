"""Run the cycle job from this process, as a run that the user interface shows and can repeat.

The same job on the same orchestrator's storage; only who executes it differs. Nothing is computed here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import dagster as dg
import sqlalchemy as sa

# Internal: the public way to execute in this process forgets the code location and ignores cancelling.
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from dagster._core.execution.plan.objects import ErrorSource, StepFailureData
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from oracle_core.cycle import CODE_VERSION
from oracle_core.enums import Window
from oracle_dagster import entity_range, news, pipeline, reporting, shards
from oracle_dagster.as_of import AS_OF_TAG, format_as_of, parse_as_of
from oracle_dagster.definitions import LOCATION, MODULE, defs
from oracle_dagster.jobs import CYCLE_JOB, cycle_config
from oracle_dagster.partitions import BATCH_TAG, Key, batch_tags, order_keys, register_entities
from oracle_dagster.resources import serving
from oracle_dagster.storage import applications, configuration, cycles, migrate
from oracle_dagster.storage import entities as renamed_or_retired
from oracle_dagster.storage.database import Database
from oracle_dagster.storage.schema import config_applications, cycle_failures, run_log
from oracle_dagster.tick import SOURCE_ACCURACY
from oracle_dagster.workers import HOST_TAG, host_name

if TYPE_CHECKING:
    from oracle_dagster.home import Connections, Home
    from oracle_dagster.planning.plan import Plan

Status = Literal["success", "partial", "failed", "canceled"]
_NAMED: Final = 5
RANGE: Final = "..."
"""Between two entities: all from one to the other; no id may contain it."""
_REPOSITORY: Final = "__repository__"  # the orchestrator's name for the only one of a location


class LaunchError(ValueError):
    """A run that cannot be started as asked; the message names what and the remedy."""


@dataclass(frozen=True)
class RunOutcome:
    """What became of a run.

    ``status`` is ``partial`` where some keys failed and others were computed. ``computed`` counts keys by
    asset, ``failures`` names the others, ``seconds`` are durations by phase, ``message`` says why it failed.
    A cycle that was divided into several runs is told of as one; ``runs`` then names all of them, and
    ``run_id`` is the first that computed entities. ``queued``: they were handed to the daemon. ``note``: what
    whoever operates this should know besides.
    """

    run_id: str
    status: Status | Literal["queued"]
    as_of: datetime
    config_version: int
    keys: int
    computed: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[cycles.Failure] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    message: str = ""
    runs: Sequence[str] = ()
    note: str = ""


@contextlib.contextmanager
def orchestrator(home: Home, connections: Connections) -> Iterator[dg.DagsterInstance]:
    """The orchestrator's storage of a home; meanwhile this process has the environment that goes with it."""
    home.write_dagster_yaml()
    wanted = home.environment(connections)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with dg.DagsterInstance.from_config(str(home.dagster_dir)) as instance:
            yield instance
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_cycle(
    home: Home,
    *,
    as_of: datetime | None = None,
    entities: Collection[str] | None = None,
    windows: Collection[str] | None = None,
    config_version: int | None = None,
    stages: Collection[str] | None = None,
    from_failed_run: str | None = None,
    queued: bool = False,
    progress: reporting.Progress | None = None,
) -> RunOutcome:
    """Compute a cycle in this process and wait for it; Ctrl-C cancels the run.

    A cycle of very many entities is divided into runs (:mod:`oracle_dagster.shards`), one after the other.

    Args:
        home: whose databases are used.
        as_of: the moment to look from, with an offset; the database's present time where None.
        entities: only these, or ranges of them as ``FIRST...LAST``; all that the cycle knows where None.
        windows: only these; all five where None.
        config_version: version of the configuration; the active one where None.
        stages: assets of the chain to compute; all four where None.
        from_failed_run: repeat exactly the keys that failed in this run, as of its moment and under its
            configuration, from the first stage in which one failed; nothing else may be given with it. Of a
            run that died, everything; of a divided cycle, what failed in any of its runs.
        queued: measure the sources here, then hand the runs to the daemon's queue and return at once.
        progress: told (what is done, keys done, keys in all).

    Raises:
        LaunchError: a name is unknown, nothing is known as of then, or the run to repeat had no failures.
        StorageError: the database cannot be used.
        HomeError: the home cannot be used.
        ConfigError: the configuration cannot be used.

    """
    with home.connect() as connections, orchestrator(home, connections) as instance:
        database = Database(connections.domain_url)
        try:
            migrate.check(database)
            if from_failed_run is not None:
                if any(given is not None for given in (as_of, entities, windows, config_version, stages)):
                    raise LaunchError(
                        "A repeat takes its moment, keys, configuration and stages from the failed run; "
                        "leave out --as-of, --entity, --window, --set and --stage."
                    )
                plan = _plan_repeat(instance, database, from_failed_run)
            else:
                plan = _plan(
                    database,
                    as_of=as_of,
                    entities=entities,
                    windows=windows,
                    config_version=config_version,
                    stages=stages,
                )
            with serving(home, database), reporting.listening(progress) as heard:
                work = _queue if queued else _execute
                outcome = work(instance, database, plan, heard)
            crowded = entity_range.too_many(len(instance.get_dynamic_partitions("entity")))
            return outcome if crowded is None else replace(outcome, note=crowded)
        finally:
            database.close()


def apply_plan(
    home: Home, plan: Plan, *, changed_by: str, reason: str, progress: reporting.Progress | None = None
) -> RunOutcome | None:
    """Make a planned configuration the active one and rebuild exactly what the plan names, in one run.

    The version becomes active together with its cycle and the set to rebuild; the run looks from the plan's
    moment and reads what the plan read, so that it ends in what was planned.

    Returns:
        What became of the run; None where nothing has to be rebuilt.

    Raises:
        LaunchError: another version became active since, or the plan changes nothing.
        StorageError: the database cannot be used.
        HomeError: the home cannot be used.

    """
    with _working(home) as (instance, database):
        return apply_within(instance, database, plan, changed_by=changed_by, reason=reason, progress=progress)


def apply_within(
    instance: dg.DagsterInstance,
    database: Database,
    plan: Plan,
    *,
    changed_by: str,
    reason: str,
    progress: reporting.Progress | None = None,
) -> RunOutcome | None:
    """:func:`apply_plan` for who has the databases of a home at hand, such as a job of the user interface."""
    if entity_range.is_divided():
        raise LaunchError(
            "This home computes a range of the entities only, and a plan is applied to all of them. Activate "
            "the settings with `oracle config set`; the sensor of each home then computes its own range."
        )
    if not plan.settings:
        raise LaunchError("The plan changes no setting, so there is nothing to apply.")
    version, batch = _activate(database, plan, changed_by, reason)
    reporting.report_configuration(instance, plan.candidate)
    if not plan.first_stages:
        applications.finish(database, version)
        return None
    cycle = pipeline.open_cycle(database, plan.as_of, config_version=version)
    run = _Plan(cycle, order_keys(plan.first_stages), plan.stages, active=True, batch=uuid.UUID(batch))
    return _rebuild(instance, database, run, version, progress)


def finish_applications(home: Home, *, progress: reporting.Progress | None = None) -> list[RunOutcome]:
    """Bring to their end the applications of plans that were killed after the version had become active.

    Repeating what was computed already changes nothing, so all of it is run again: the same keys from the
    same stage on, as of the same moment, under the configuration that is active now.

    Returns:
        What became of each run, oldest application first; empty where all had ended.

    Raises:
        StorageError: the database cannot be used, or does not know any more what was to be rebuilt.
        HomeError: the home cannot be used.

    """
    with _working(home) as (instance, database):
        return finish_within(instance, database, progress=progress)


def finish_within(
    instance: dg.DagsterInstance, database: Database, *, progress: reporting.Progress | None = None
) -> list[RunOutcome]:
    """:func:`finish_applications` for who has the databases of a home at hand."""
    outcomes = []
    for application in applications.unfinished(database):
        wanted = applications.first_stages(database, application)
        if not wanted:
            reporting.report_configuration(instance, configuration.active(database).config)
            applications.finish(database, application.config_version)
            continue
        cycle = pipeline.open_cycle(database, application.as_of)
        first = min(pipeline.STAGES.index(stage or pipeline.STAGES[0]) for stage in wanted.values())
        run = _Plan(cycle, order_keys(wanted), pipeline.STAGES[first:], active=True)
        outcomes.append(_rebuild(instance, database, run, application.config_version, progress))
    return outcomes


def _rebuild(
    instance: dg.DagsterInstance,
    database: Database,
    run: _Plan,
    applied_version: int,
    progress: reporting.Progress | None,
) -> RunOutcome:
    with reporting.listening(progress) as heard:
        outcome = _execute(instance, database, run, heard)
    if outcome.status in ("success", "partial"):  # keys that failed are repeated by themselves
        applications.finish(database, applied_version)
    return outcome


@contextlib.contextmanager
def _working(home: Home) -> Iterator[tuple[dg.DagsterInstance, Database]]:
    """The orchestrator's storage and the domain database of a home, for runs in this process."""
    with home.connect() as connections, orchestrator(home, connections) as instance:
        database = Database(connections.domain_url)
        try:
            migrate.check(database)
            with serving(home, database):
                yield instance, database
        finally:
            database.close()


def _activate(database: Database, plan: Plan, changed_by: str, reason: str) -> tuple[int, str]:
    """Activate the candidate and record its cycle and what to rebuild, all or nothing."""
    with database.begin() as connection:
        active = configuration.lock(connection)
        if active != plan.base_version:
            raise LaunchError(
                f"The plan starts from configuration version {plan.base_version}, but version {active} is "
                "active now. Plan again."
            )
        version = configuration.activate_within(connection, plan.candidate, changed_by, reason)
        recorded = cycles.record_cycle(
            connection, plan.as_of, version, code_version=CODE_VERSION, snapshot=plan.snapshot
        )
        if recorded.snapshot != plan.snapshot:
            raise LaunchError(
                f"Another run has recorded a cycle of {format_as_of(plan.as_of)} since the plan was made; "
                "it read other inputs. Plan again."
            )
        batch = news.application_batch(version.version)
        for part in _parts(order_keys(plan.first_stages), uuid.UUID(batch)):
            first_stages = {key: plan.first_stages[key] for key in part.keys}
            cycles.write_batch(connection, uuid.UUID(part.batch), first_stages)
        connection.execute(
            config_applications.insert().values(
                config_version=version.version,
                batch_id=batch,
                as_of=plan.as_of,
                keys=len(plan.first_stages),
            )
        )
    return version.version, batch


@dataclass(frozen=True)
class _Plan:
    """Everything that decides a run."""

    cycle: cycles.Cycle
    keys: Sequence[Key]
    stages: tuple[str, ...]
    active: bool
    parent: dg.DagsterRun | None = None
    batch: uuid.UUID | None = None
    """Of its first part, where the batches are recorded already."""


@dataclass(frozen=True)
class _Part:
    """What one run computes."""

    batch: str
    keys: Sequence[Key]
    shard: shards.Shard
    group: str


def _parts(keys: Sequence[Key], batch: uuid.UUID) -> list[_Part]:
    """The runs that the keys are divided into."""
    split = shards.split_keys(keys)
    return [
        _Part(str(shards.batch_id(batch, number)), part, shards.Shard(number, len(split)), str(batch))
        for number, part in enumerate(split)
    ]


def _plan(
    database: Database,
    *,
    as_of: datetime | None,
    entities: Collection[str] | None,
    windows: Collection[str] | None,
    config_version: int | None,
    stages: Collection[str] | None,
) -> _Plan:
    wanted_stages = _known_names("stage", stages, pipeline.STAGES)
    wanted_windows = _known_names("window", windows, tuple(window.value for window in Window))
    cycle = pipeline.open_cycle(
        database, database.now() if as_of is None else as_of, config_version=config_version
    )
    known = entity_range.own(pipeline.known_entities(database, cycle))
    if len(known) == 0:
        raise LaunchError(
            f"No entity is known as of {format_as_of(cycle.as_of)} in the {database.place}. Load documents "
            "with `oracle ingest PATH` (old ones with --known-at published), or choose a later --as-of."
        )
    if entities is None:
        chosen = renamed_or_retired.in_service(database, known)
        if not chosen:
            raise LaunchError(
                f"Every entity known as of {format_as_of(cycle.as_of)} is retired. `oracle entity "
                "revive ENTITY` "
                "takes one back; one that is named with --entity is computed all the same."
            )
    else:
        chosen = _within(known, renamed_or_retired.resolve(database, entities))
    missing = sorted(set(chosen) - set(known))
    if missing:
        raise LaunchError(
            f"Not known as of {format_as_of(cycle.as_of)}: {_few(missing)}. Names are case-sensitive; there "
            f"are {len(known)}: {_few(sorted(known))}."
        )
    keys = order_keys((entity, window) for entity in chosen for window in wanted_windows)
    return _Plan(cycle, keys, wanted_stages, active=config_version is None)


def _within(known: Sequence[str], given: Collection[str]) -> list[str]:
    """The names, each once; ``FIRST...LAST`` stands for all known from one to the other, by code point."""
    chosen: list[str] = []
    for name in given:
        first, dots, last = name.partition(RANGE)
        found = [entity for entity in known if first <= entity <= last] if dots else [name]
        if not found or (dots and (found[0] != first or found[-1] != last)):
            raise LaunchError(
                f"{name!r} is no range of known entities: both ends must be known, the first one first. "
                f"There are {len(known)}: {_few(known)}."
            )
        chosen += found
    return list(dict.fromkeys(chosen))


def _plan_repeat(instance: dg.DagsterInstance, database: Database, run_id: str) -> _Plan:
    parent = instance.get_run_by_id(run_id)
    if parent is None:
        raise LaunchError(f"There is no run {run_id} in this home; the user interface lists the runs.")
    runs = _siblings(instance, parent)
    ids = [run.run_id for run in runs]
    query = sa.select(cycle_failures).where(cycle_failures.c.run_id.in_(ids))
    log = sa.select(run_log.c.config_version).where(
        run_log.c.run_id.in_(ids), run_log.c.config_version.is_not(None)
    )
    with database.begin() as connection:
        failures = connection.execute(query).all()
        version = connection.execute(log.limit(1)).scalar()
    selected = runs[0].asset_selection
    stages = [stage for stage in pipeline.STAGES if selected is None or dg.AssetKey(stage) in selected]
    told = {failure.run_id for failure in failures}
    died = [run for run in runs if run.is_failure_or_canceled and run.run_id not in told]
    batches = [run.tags[BATCH_TAG] for run in died if BATCH_TAG in run.tags and AS_OF_TAG in run.tags]
    if not failures and not batches:
        raise LaunchError(
            f"Run {run_id} lists no failed key, so there is nothing to repeat key by key. Re-execute it in "
            "the user interface, or start `oracle run` anew."
        )
    if not batches:
        first = min(pipeline.STAGES.index(failure.stage) for failure in failures)
        stages = [stage for stage in stages if pipeline.STAGES.index(stage) >= first]
    as_of = (
        failures[0].as_of
        if failures
        else parse_as_of(parent.tags[AS_OF_TAG], f"the tag {AS_OF_TAG} of run {run_id}")
    )
    given = cast("Any", parent.run_config).get("resources", {}).get("cycle", {}).get("config", {})
    cycle = pipeline.open_cycle(database, as_of, config_version=given.get("config_version", version))
    keys = [(failure.entity_id, failure.window) for failure in failures]
    for batch in batches:
        keys += cycles.batch_keys(database, uuid.UUID(batch))
    return _Plan(cycle, order_keys(keys), tuple(stages), active=False, parent=parent)


def _siblings(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[dg.DagsterRun]:
    """The newest run of every part of a divided cycle: a repeat stands for the run it repeats."""
    group = run.tags.get(shards.CYCLE_TAG)
    if group is None:
        return [run]
    newest: dict[str, dg.DagsterRun] = {}
    for other in instance.get_runs(dg.RunsFilter(tags={shards.CYCLE_TAG: group})):  # the newest first
        if shards.SHARD_TAG in other.tags:
            newest.setdefault(other.tags[shards.SHARD_TAG], other)
    return list(newest.values()) or [run]


def _known_names(kind: str, given: Collection[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if given is None:
        return known
    unknown = [name for name in given if name not in known]
    if unknown or len(given) == 0:
        raise LaunchError(
            f"There is no {kind} {', '.join(map(repr, unknown))}; choose from {', '.join(known)}."
        )
    return tuple(name for name in known if name in given)


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _execute(
    instance: dg.DagsterInstance, database: Database, plan: _Plan, heard: reporting.Listener
) -> RunOutcome:
    """Execute a plan in this process: one run, or the accuracy of the sources and then part after part."""
    parts = _prepare(instance, database, plan)
    if len(parts) == 1:
        return _execute_run(instance, database, plan, parts[0], heard)
    measured = _measure_first(instance, database, plan, parts, heard)
    if measured is not None and measured.status != "success":
        return measured
    outcomes: list[RunOutcome] = []
    told = heard.progress
    for part in parts:
        done = sum(outcome.keys for outcome in outcomes)
        heard = reporting.Listener(None if told is None else _offset(told, done, len(plan.keys)))
        with reporting.listening(heard.progress) as heard:
            outcomes.append(_execute_run(instance, database, plan, part, heard))
        if outcomes[-1].status == "canceled":
            break
    return _joined(plan, outcomes, () if measured is None else (measured.run_id,))


def _queue(
    instance: dg.DagsterInstance, database: Database, plan: _Plan, heard: reporting.Listener
) -> RunOutcome:
    """Hand the runs of a plan to the daemon, whose run launcher places them; the sources come first."""
    parts = _prepare(instance, database, plan)
    measured = _measure_first(instance, database, plan, parts, heard)
    if measured is not None and measured.status != "success":
        return measured
    runs = []
    for part in parts:
        run = _create_part(instance, plan, part, here=False)
        # The queue of a home looks at no workspace, and loading one takes longer than all of this.
        instance.run_coordinator.submit_run(SubmitRunContext(run, cast("Any", None)))
        runs.append(run.run_id)
    before = [] if measured is None else [measured.run_id]
    return RunOutcome(
        runs[0],
        "queued",
        plan.cycle.as_of,
        plan.cycle.config_version,
        len(plan.keys),
        runs=[*before, *runs],
    )


def _prepare(instance: dg.DagsterInstance, database: Database, plan: _Plan) -> list[_Part]:
    """Make partitions of new entities, report what the runs read, and record what each is to compute."""
    new = register_entities(instance, dict.fromkeys(entity for entity, _ in plan.keys))
    if new:
        reporting.report_inputs(instance, database, new)
    if plan.active:
        reporting.report_configuration(instance, plan.cycle.config)
    parts = _parts(plan.keys, uuid.uuid4() if plan.batch is None else plan.batch)
    if plan.batch is None:
        with database.begin() as connection:
            for part in parts:
                cycles.write_batch(connection, uuid.UUID(part.batch), dict.fromkeys(part.keys))
    return parts


def _measure_first(
    instance: dg.DagsterInstance,
    database: Database,
    plan: _Plan,
    parts: Sequence[_Part],
    heard: reporting.Listener,
) -> RunOutcome | None:
    """Measure the sources in a run of their own, where the parts need it."""
    if "weighted_signals" not in plan.stages:
        return None
    run = _create_run(
        instance,
        plan,
        config=_config(plan.cycle, None),
        tags={shards.CYCLE_TAG: parts[0].group},
        assets={SOURCE_ACCURACY},
    )
    return _work_and_tell(instance, database, plan, run, heard, keys=0)


def _offset(progress: reporting.Progress, before: int, total: int) -> reporting.Progress:
    """The progress of all parts, from that of one of them."""

    def told(phase: str, done: int, _: int) -> None:
        progress(phase, before + done, total)

    return told


def _joined(plan: _Plan, outcomes: Sequence[RunOutcome], before: Sequence[str]) -> RunOutcome:
    """What became of all parts, as of one run; the gravest status counts."""
    statuses = {outcome.status for outcome in outcomes}
    gravest: Sequence[Status] = ("canceled", "failed", "partial", "success")
    computed: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for outcome in outcomes:
        computed.update(outcome.computed)
        for name, value in outcome.seconds.items():
            seconds[name] += value  # type: ignore[assignment]  # a Counter adds numbers of any kind
    return RunOutcome(
        run_id=outcomes[0].run_id,
        status=next(status for status in gravest if status in statuses),
        as_of=plan.cycle.as_of,
        config_version=plan.cycle.config_version,
        keys=len(plan.keys),
        computed=computed,
        failures=[failure for outcome in outcomes for failure in outcome.failures],
        seconds=seconds,
        message="; ".join(dict.fromkeys(outcome.message for outcome in outcomes if outcome.message)),
        runs=[*before, *(outcome.run_id for outcome in outcomes)],
    )


def _execute_run(
    instance: dg.DagsterInstance, database: Database, plan: _Plan, part: _Part, heard: reporting.Listener
) -> RunOutcome:
    run = _create_part(instance, plan, part)
    return _work_and_tell(instance, database, plan, run, heard, keys=len(part.keys))


def _create_part(
    instance: dg.DagsterInstance, plan: _Plan, part: _Part, *, here: bool = True
) -> dg.DagsterRun:
    """The run of a part; undivided and here, it measures the sources too, as the whole job does."""
    whole = part.shard.count == 1 and here
    assets: set[str] | None = set(plan.stages)
    if whole and "weighted_signals" in plan.stages:
        assets = None if len(plan.stages) == len(pipeline.STAGES) else {*plan.stages, SOURCE_ACCURACY}
    return _create_run(
        instance,
        plan,
        config=_config(plan.cycle, part.batch),
        tags={**batch_tags(part.batch, part.keys), **shards.tags(part.group, part.shard)},
        assets=assets,
        here=here,
    )


def _config(cycle: cycles.Cycle, batch: str | None) -> dict[str, object]:
    return {
        **cycle_config(as_of=format_as_of(cycle.as_of), config_version=cycle.config_version, batch_id=batch),
        # The command line shows the outcome itself; the run's own log is in the user interface.
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
    }


def _create_run(
    instance: dg.DagsterInstance,
    plan: _Plan,
    *,
    config: Mapping[str, object],
    tags: Mapping[str, str],
    assets: Collection[str] | None,
    here: bool = True,
) -> dg.DagsterRun:
    own = {
        HOST_TAG: host_name(),
        "dagster/max_retries": "0",  # whoever typed the command sees that it died
    }
    return instance.create_run_for_job(
        defs.resolve_job_def(CYCLE_JOB),
        run_config=config,
        tags={
            **tags,
            AS_OF_TAG: format_as_of(plan.cycle.as_of),
            **(own if here else {}),
        },
        asset_selection=None if assets is None else {dg.AssetKey(name) for name in assets},
        root_run_id=None if plan.parent is None else plan.parent.root_run_id or plan.parent.run_id,
        parent_run_id=None if plan.parent is None else plan.parent.run_id,
        remote_job_origin=job_origin(),
        job_code_origin=None if here else _code_origin(),
    )


def _code_origin() -> JobPythonOrigin:
    """Where a worker of the queue loads the job from."""
    pointer = ModuleCodePointer(MODULE, "defs")
    return JobPythonOrigin(CYCLE_JOB, RepositoryPythonOrigin(sys.executable, pointer, None, None, None))


def _work_and_tell(
    instance: dg.DagsterInstance,
    database: Database,
    plan: _Plan,
    run: dg.DagsterRun,
    heard: reporting.Listener,
    *,
    keys: int,
) -> RunOutcome:
    message = _work_through(instance, InMemoryJob(defs.resolve_job_def(CYCLE_JOB)), run)
    ended = instance.get_run_by_id(run.run_id)
    return _outcome(database, plan, run if ended is None else ended, heard, message, keys=keys)


def job_origin() -> RemoteJobOrigin:
    """Where the user interface finds the job of a run: the code location and what it loads."""
    target = LoadableTargetOrigin(executable_path=sys.executable, module_name=MODULE, attribute="defs")
    location = ManagedGrpcPythonEnvCodeLocationOrigin(target, LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, _REPOSITORY), CYCLE_JOB)


def _work_through(instance: dg.DagsterInstance, job: InMemoryJob, run: dg.DagsterRun) -> str:
    """Execute the run and return why it failed, empty where it did not."""
    message = ""
    try:
        for event in execute_run_iterator(job, run, instance):
            if event.is_step_failure:
                failure = event.step_failure_data
                if failure.error_source is ErrorSource.INTERRUPT:
                    # Said before the run ends, so that it ends as canceled and not as failed.
                    instance.report_run_canceling(run, "Interrupted at the command line.")
                message = message or _reason(failure)
    except BaseException:
        # Interrupted outside a step, or the storage is gone: leave no run that seems to go on.
        with contextlib.suppress(Exception):
            left = instance.get_run_by_id(run.run_id)
            if left is not None and not left.is_finished:
                instance.report_run_canceled(left, "Interrupted at the command line.")
        raise
    return message


def _reason(failure: StepFailureData) -> str:
    """The innermost message of a failed step, without its stack."""
    if failure.user_failure_data is not None and failure.user_failure_data.description:
        return str(failure.user_failure_data.description)
    error = failure.error
    while error is not None and error.cause is not None:
        error = error.cause
    return "" if error is None else str(error.message).strip()


def _outcome(
    database: Database,
    plan: _Plan,
    run: dg.DagsterRun,
    heard: reporting.Listener,
    message: str,
    *,
    keys: int,
) -> RunOutcome:
    query = sa.select(cycle_failures).where(cycle_failures.c.run_id == run.run_id)
    with database.begin() as connection:
        failures = [
            cycles.Failure(row.stage, row.entity_id, row.window, row.message)
            for row in connection.execute(query)
        ]
    status: Status = "failed"
    if run.status is dg.DagsterRunStatus.SUCCESS:
        status = "partial" if failures else "success"
    elif run.status is dg.DagsterRunStatus.CANCELED:
        status = "canceled"
    return RunOutcome(
        run_id=run.run_id,
        status=status,
        as_of=plan.cycle.as_of,
        config_version=plan.cycle.config_version,
        keys=keys,
        computed=heard.computed,
        failures=failures,
        seconds=heard.seconds,
        message="" if status in ("success", "partial") else message,
    )
