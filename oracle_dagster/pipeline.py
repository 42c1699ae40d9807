"""Run the stages of a cycle: read a slice, call the core once per stage, write a slice, say what was done.

Entities are worked on in blocks, so that memory is bounded; a block's result does not depend on which others
share it. Every stage writes its slice in one transaction. Killed at any moment and repeated, a run leaves
what an undisturbed one leaves. A key that cannot be computed, or whose rows break an invariant, is recorded
as failed and goes no further; the others go on.

No rule, no SQL and no orchestrator here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from oracle_core.cycle import (
    CODE_VERSION,
    assemble_trends,
    decide,
    measure_accuracy,
    project_trends,
    score_signals,
)
from oracle_core.enums import EvidenceRole, MarketRegime, PipelineMode, TrendDirection
from oracle_core.regime import direction_thresholds
from oracle_core.rules import rules_for
from oracle_dagster.rewriting import wordings
from oracle_dagster.rewriting.theses import Rewriter
from oracle_dagster.storage import cycles, decisions, inputs, invariants, results, seals
from oracle_dagster.storage.cycles import Cycle, Failure, Key
from oracle_dagster.storage.database import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from oracle_core.config import OracleConfig
    from oracle_core.frames import DecisionFrame, ProjectionFrame, SignalFrame, TrendFrame
    from oracle_core.inputs import CycleInputs, Float, HistoryRows, Int, Keys, StandingRows
    from oracle_dagster.storage.database import Bulk, Database

    Frame = SignalFrame | TrendFrame | ProjectionFrame | DecisionFrame
    F = TypeVar("F", SignalFrame, TrendFrame, ProjectionFrame, DecisionFrame)
    Progress = Callable[[str, int, int], None]
    AccuracySource = Callable[[Database, Cycle], tuple[pa.Array, Float, Int]]
    Change = Callable[[CycleInputs], CycleInputs]

T = TypeVar("T")

STAGES: Final = ("weighted_signals", "trend_windows", "trend_projections", "recommendations")
BLOCK_ENTITIES: Final = 500
_SHOWN: Final = 5
# Errors of the database that come from a value and not from its state: another key may still be written.
_VALUE_ERRORS: Final = ("22", "23")
_UPSTREAM: Final = {
    "weighted_signals": (),
    "trend_windows": ("weighted_signals",),
    "trend_projections": ("trend_windows",),
    "recommendations": ("trend_windows", "trend_projections"),
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeyReport:
    """What a stage did for one key.

    ``data_version`` is equal where the content of the rows is; ``metadata`` is for a person: numbers, texts,
    times, lists of them, None where there is no value, and ``sql``, which shows the rows.
    """

    entity_id: str
    window: str
    data_version: str
    metadata: dict[str, object]


@dataclass
class StageReport:
    """What a run of stages did: computed keys and written rows by stage, failures, seconds by phase.

    ``faults``: what breaks an invariant in the rows of each stage; these keys are among the failures too. A
    rehearsal, which writes nothing, has none.
    """

    keys: dict[str, list[KeyReport]]
    rows: dict[str, int]
    failures: list[Failure]
    seconds: dict[str, float]
    faults: invariants.Faults = field(default_factory=dict)

    @property
    def held_back(self) -> set[Key]:
        """The keys whose rows break an invariant."""
        return set(invariants.broken(self.faults))


@dataclass(frozen=True)
class AccuracyReport:
    """What measuring the sources did; ``rows`` counts the sources with settled outcomes."""

    rows: int
    data_version: str
    metadata: dict[str, object]


def open_cycle(database: Database, as_of: datetime, *, config_version: int | None = None) -> Cycle:
    """Begin or repeat the cycle of ``as_of`` under the active configuration, or the one named.

    Logs the pipeline mode (R130). See :func:`oracle_dagster.storage.cycles.open_cycle`.

    Implements: R130.
    """
    cycle = cycles.open_cycle(database, as_of, code_version=CODE_VERSION, config_version=config_version)
    _log.info(
        "cycle as of %s under configuration %d: pipeline mode %s",
        cycle.as_of.isoformat(),
        cycle.config_version,
        cycle.config.pipeline_mode.value,
    )
    return cycle


def known_entities(database: Database, cycle: Cycle) -> list[str]:
    """Every entity that a document, bar, exposure or edge known to the cycle names, by code point."""
    return database.run(lambda bulk: inputs.known_entities(bulk, cycle), "REPEATABLE READ")


def run_stages(
    database: Database,
    cycle: Cycle,
    keys: Sequence[Key],
    stages: Collection[str],
    *,
    run_id: str,
    first_stages: Mapping[Key, str | None] | None = None,
    on_progress: Progress | None = None,
    block_entities: int | Callable[[], int] = BLOCK_ENTITIES,
) -> StageReport:
    """Compute the stages for the keys and write the results.

    A stage whose predecessor is not among ``stages`` works on what that stored: of this cycle, else the
    newest before it.

    Args:
        database: the domain database.
        cycle: opened by :func:`open_cycle`.
        keys: pairs of entity and window.
        stages: some of ``STAGES``, in any order.
        run_id: for the run log and the failures.
        first_stages: keys of which only this stage and those after it are computed; None is the whole chain.
        on_progress: called with the phase, the keys done and all keys, at the start and after every block.
        block_entities: entities worked on at a time, or what says so before each block.

    Raises:
        ValueError: unknown stage or window.
        StorageError: the database cannot be used; what is written stays, and the run can be repeated.

    """
    chosen, ordered = _asked(keys, stages)
    sealing = seals.sealing(database, cycle, ordered, chosen, run_id=run_id, first_stages=first_stages)
    with sealing, Rewriter(database) as rewriter:
        run = _Run(
            database,
            cycle,
            chosen,
            rewriter=rewriter,
            run_id=run_id,
            on_progress=on_progress,
            first_stages=first_stages,
        )
        for block in _blocks(ordered, on_progress, block_entities):
            run.block(block)
        computed = time.perf_counter()
    sealed = time.perf_counter() - computed
    report = run.report(ordered)
    report.seconds["seal"] = sealed
    _record(database, cycle, run, report, run_id=run_id, keys=ordered)
    return report


@dataclass(frozen=True)
class Rehearsed:
    """What a run of stages would do: its report, and every frame that it would write, by part."""

    report: StageReport
    parts: list[Part]


def rehearse(
    database: Database,
    cycle: Cycle,
    keys: Sequence[Key],
    stages: Collection[str],
    *,
    accuracy: AccuracySource = inputs.peek_accuracy,
    change: Change | None = None,
    on_progress: Progress | None = None,
    block_entities: int = BLOCK_ENTITIES,
    reads: Reads | None = None,
) -> Iterator[Rehearsed]:
    """Compute what :func:`run_stages` would write for the keys, by the same code, and write nothing.

    The cycle need not be recorded, nor its configuration stored. A recorded one reads what it read, so that
    the result is the stored one bit for bit (the words of a model apart: theses are the rules' own).

    Args:
        database: the domain database.
        cycle: of :func:`open_cycle` or :func:`oracle_dagster.storage.cycles.read_cycle`, or made up.
        keys: pairs of entity and window.
        stages: some of ``STAGES``, in any order.
        accuracy: where the accuracy of the sources comes from.
        change: applied to what is read of every block, for asking what would be if.
        on_progress: called with the phase, the keys done and all keys, before and after every block.
        block_entities: entities worked on at a time; what is yielded bounds the memory, not the sum of it.
        reads: given to several rehearsals that are taken in turn, what they read is read once; then the
            report names failures only.

    Yields:
        One result per block of entities.

    Raises:
        ValueError: unknown stage or window.
        StorageError: the database cannot be used.

    """
    chosen, ordered = _asked(keys, stages)
    # The graph and the events, read once for all blocks.
    shared: dict[tuple[int, int], inputs.Shared] = {} if reads is None else reads.shared(cycle.config)
    for block in _blocks(ordered, on_progress, block_entities):
        run = _Run(
            database,
            cycle,
            chosen,
            rewriter=None,
            run_id="",
            on_progress=None,
            writers=_NOWHERE,
            accuracy=accuracy,
            change=change,
            shared=shared,
            reads=reads,
        )
        if reads is not None:
            reads.begin(block)
        run.block(block)
        yield Rehearsed(run.report(block), run.finished)


class Reads:
    """What several rehearsals of one moment and configuration version read alike, of one block at a time."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._block: tuple[Key, ...] = ()
        self._held: dict[object, Any] = {}
        self._shared: dict[str, dict[tuple[int, int], inputs.Shared]] = {}

    def shared(self, config: OracleConfig) -> dict[tuple[int, int], inputs.Shared]:
        """What blocks have in common, which depends on how the sources are judged."""
        return self._shared.setdefault(config.fingerprint("accuracy"), {})

    def begin(self, block: Sequence[Key]) -> None:
        """Forget the block before, unless it is this one."""
        if tuple(block) != self._block:
            self._block, self._held = tuple(block), {}

    def once(self, name: object, read: Callable[[], T]) -> T:
        """What was read under this name; else read it."""
        if name not in self._held:
            self._held[name] = read()
        found: T = self._held[name]
        return found


class Computed(NamedTuple):
    """What the stages made of the keys of one cycle."""

    signals: SignalFrame
    trends: TrendFrame
    projections: ProjectionFrame
    decided: DecisionFrame


def compute(
    read: CycleInputs,
    keys: Keys,
    as_of_us: int,
    config: OracleConfig,
    *,
    history: HistoryRows,
    standing: StandingRows,
) -> Computed:
    """All stages over what was read, as a run computes them, without a database.

    Args:
        read: what the cycle sees, with the accuracy of the sources.
        keys: codes into it.
        as_of_us: the cycle's moment.
        config: the configuration.
        history: signed strengths of earlier cycles, by position of the key.
        standing: the newest earlier recommendation, by position of the key.

    """
    signals = _plain(score_signals(read, keys, as_of_us, config))
    trends = _plain(assemble_trends(signals, read, as_of_us, config))
    projections = _plain(project_trends(trends, read, history, as_of_us, config))
    decided = _plain(decide(trends, projections, read, standing, as_of_us, config))
    return Computed(signals, trends, projections, decided)


def _asked(keys: Sequence[Key], stages: Collection[str]) -> tuple[list[str], list[Key]]:
    """The stages in their order, the keys by entity and window, each once."""
    unknown = sorted(set(stages) - set(STAGES)) + sorted({w for _, w in keys} - set(results.WINDOWS))
    if unknown:
        there_are = ", ".join((*STAGES, *results.WINDOWS))
        raise ValueError(f"unknown stage or window: {', '.join(unknown)}; there are {there_are}")
    order = {window: code for code, window in enumerate(results.WINDOWS)}
    return (
        [stage for stage in STAGES if stage in stages],
        sorted(set(keys), key=lambda key: (key[0], order[key[1]])),
    )


def _blocks(
    ordered: Sequence[Key], on_progress: Progress | None, block_entities: int | Callable[[], int]
) -> Iterator[list[Key]]:
    entities = sorted({entity for entity, _ in ordered})
    by_entity: dict[str, list[Key]] = {entity: [] for entity in entities}
    for key in ordered:
        by_entity[key[0]].append(key)
    done = 0
    rest = entities
    while rest:
        size = block_entities if isinstance(block_entities, int) else block_entities()
        if on_progress is not None:
            on_progress("computing", done, len(ordered))
        block = [key for entity in rest[:size] for key in by_entity[entity]]
        rest = rest[size:]
        yield block
        done += len(block)
    if on_progress is not None:
        on_progress("computing", done, len(ordered))


def _record(
    database: Database, cycle: Cycle, run: _Run, report: StageReport, *, run_id: str, keys: Sequence[Key]
) -> None:
    cycles.record_failures(database, run_id, cycle, stages=run.stages, keys=keys, failures=report.failures)
    failed = Counter(f.stage for f in report.failures)
    for stage in run.stages:
        cycles.log_stage(
            database,
            run_id,
            stage,
            cycle,
            keys=len(report.keys[stage]),
            rows=report.rows[stage],
            seconds=run.clock.seconds[stage],
            details={
                "failed_keys": failed[stage],
                "without_history": len(run.without_history) if stage == "trend_windows" else 0,
                "phases": report.seconds,
            },
        )


def update_source_accuracy(database: Database, cycle: Cycle, *, run_id: str) -> AccuracyReport:
    """Measure every source by the outcomes settled by the cycle's ``as_of``, and store it (R163-R168).

    If it cannot be stored, that is logged as an error and what was stored before stays in use (R166).

    Implements: R166.
    """
    clock = _Clock()
    with clock.phase("source_accuracy"):
        sources, ratio, samples = measure_sources(database, cycle)
        error: str | None = None
        try:
            with seals.sealing(database, cycle, (), (seals.ACCURACY_STAGE,), run_id=run_id):
                database.run(lambda bulk: inputs.write_accuracy(bulk, cycle, sources, ratio, samples))
        except StorageError as fault:
            error = str(fault)
            _log.error("the source accuracy was not updated, the stored one stays in use: %s", fault)
    seconds = clock.seconds["source_accuracy"]
    cycles.log_stage(
        database,
        run_id,
        "source_accuracy",
        cycle,
        keys=0,
        rows=len(sources),
        seconds=seconds,
        details={} if error is None else {"error": error},
    )
    order = np.lexsort((-samples,))[:_SHOWN].tolist()
    content = [sources, ratio.tolist(), samples.tolist()]
    return AccuracyReport(
        rows=len(sources),
        data_version=results.content_hash(results.to_json(content)),
        metadata={
            "sources": len(sources),
            "outcomes": int(samples.sum()),
            "as_of": cycle.as_of,
            "config_version": cycle.config_version,
            "largest_sources": [
                {"source": sources[at], "accuracy": float(ratio[at]), "outcomes": int(samples[at])}
                for at in order
            ],
            "error": error,
            "sql": "SELECT * FROM source_accuracy ORDER BY sample_count DESC;",
        },
    )


def measure_sources(database: Database, cycle: Cycle) -> tuple[list[str], Float, Int]:
    """Accuracy per source by code point. Blocks of entities add up exactly, as they count whole outcomes."""

    def measure(bulk: Bulk) -> dict[str, tuple[int, int]]:
        counted: dict[str, tuple[int, int]] = {}
        entities = inputs.known_entities(bulk, cycle)
        for part in inputs.accuracy_slices(bulk, cycle, entities, BLOCK_ENTITIES):
            rows = measure_accuracy(part, cycle.as_of_us, cycle.config)
            names = part.sources[rows.source].tolist()
            right = np.rint(rows.ratio * rows.samples).astype(np.int64).tolist()
            for name, hits, number in zip(names, right, rows.samples.tolist(), strict=True):
                before = counted.get(name, (0, 0))
                counted[name] = (before[0] + hits, before[1] + number)
        return counted

    counted = database.run(measure, "REPEATABLE READ")
    sources = sorted(counted)
    right = np.array([counted[name][0] for name in sources], np.int64)
    samples = np.array([counted[name][1] for name in sources], np.int64)
    return sources, right / np.maximum(samples, 1), samples


class _Clock:
    """Seconds by name; a phase inside another counts for the inner one only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = 0.0

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside, also if it ends in an error."""
        began, outer, self._inside = time.perf_counter(), self._inside, 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + spent - self._inside
            self._inside = outer + spent


@dataclass(frozen=True)
class Part:
    """Keys that went through the stages together: one configuration, one source of each earlier stage.

    The frames hold one row (or group of rows) per key, in the order of ``keys``; a stage that was not among
    those asked for, and whose result no later one needed, leaves None. ``history`` and ``standing`` are what
    the projections and the decisions were compared with.
    """

    keys: list[Key]
    cycle: Cycle
    inputs: CycleInputs
    signals: SignalFrame | None = None
    trends: TrendFrame | None = None
    history: HistoryRows | None = None
    projections: ProjectionFrame | None = None
    standing: StandingRows | None = None
    decided: DecisionFrame | None = None
    made: Sequence[decisions.Decision] = ()


class _Decided(NamedTuple):
    """A part with its decisions, as they were written."""

    part: Part
    frame: DecisionFrame
    made: list[decisions.Decision]
    theses: list[str]
    written: int


@dataclass(frozen=True)
class _Writers:
    """Where the stages put their rows; without ``locking`` there is no transaction to write in."""

    signals: Callable[..., int]
    trends: Callable[..., tuple[int, bool]]
    projections: Callable[..., int]
    decisions: Callable[..., int]
    locking: bool


def _tables() -> _Writers:
    return _Writers(
        results.write_signals,
        results.write_trends,
        results.write_projections,
        decisions.write_decisions,
        locking=True,
    )


_NOWHERE: Final = _Writers(
    lambda _bulk, frame: len(frame.rows.key),
    lambda _bulk, _cycle, keys, _frame: (len(keys), True),
    lambda _bulk, _cycle, keys, _frame: len(keys),
    lambda *_, made, **__: sum(not decision.duplicate for decision in made),
    locking=False,
)


class _HeldBack(Exception):  # noqa: N818 - a signal, not an error
    """Some keys of a block go no further; the others have to be computed without them."""

    def __init__(self, keys: Collection[Key]) -> None:
        super().__init__()
        self.keys = frozenset(keys)


@dataclass
class _Slice:
    """What was read for a block."""

    inputs: CycleInputs
    newest_known_us: Int
    place: dict[str, int] = field(default_factory=dict)


class _Run:
    """One run over many blocks: what they share, and what they did."""

    def __init__(
        self,
        database: Database,
        cycle: Cycle,
        stages: Sequence[str],
        *,
        rewriter: Rewriter | None,
        run_id: str,
        on_progress: Progress | None,
        writers: _Writers | None = None,
        accuracy: AccuracySource = inputs.settle_accuracy,
        change: Change | None = None,
        first_stages: Mapping[Key, str | None] | None = None,
        shared: dict[tuple[int, int], inputs.Shared] | None = None,
        reads: Reads | None = None,
    ) -> None:
        self.database = database
        self._reads = reads
        self._first_stages = first_stages or {}
        self._rewriter = rewriter
        self._writers = _tables() if writers is None else writers
        self._accuracy = accuracy
        self._change = change
        self.finished: list[Part] = []
        self._run_id = run_id
        self._on_progress = on_progress
        self._words: dict[str, decisions.Wording] = {}
        self._asked: set[str] = set()
        self.cycle = cycle
        self.stages = stages
        self.clock = _Clock()
        self.clock.seconds |= dict.fromkeys(stages, 0.0)
        self.without_history: set[Key] = set()
        # An entry for every rule from the start: also a stage that no key reached gets its evaluations.
        self._faults: dict[tuple[str, str], dict[Key, str]] = {
            (rule.asset, rule.check): {}
            for rule in invariants.RULES
            if self._writers.locking and rule.asset in stages
        }
        self._stage = ""
        self._reports: dict[tuple[str, Key], KeyReport] = {}
        self._rows: dict[tuple[str, Key], int] = {}
        self._failures: dict[tuple[str, Key], str] = {}
        self._shared: dict[tuple[int, int], inputs.Shared] = {} if shared is None else shared
        self._phases = _Clock()

    # ------------------------------------------------------------------------------------- blocks

    def block(self, keys: list[Key]) -> None:
        """Compute a block; if that fails, its halves, until the keys at fault stand alone."""
        try:
            self._compute(keys)
        except _HeldBack as held:
            # Once more without them, which is rare: a result does not depend on who shares the block.
            self.block([key for key in keys if key not in held.keys])
        except Exception as error:  # whatever a rule raises on a key's data, other keys go on
            if isinstance(error, StorageError) and not (error.sqlstate or "").startswith(_VALUE_ERRORS):
                raise
            if len(keys) == 1:
                _log.exception("%s of %s|%s cannot be computed", self._stage, *keys[0])
                self._fail(self._stage, keys[0], f"{type(error).__name__}: {error}")
                return
            middle = len(keys) // 2
            self.block(keys[:middle])
            self.block(keys[middle:])

    def _once(self, name: tuple[object, ...], read: Callable[[], T]) -> T:
        """Read, unless a rehearsal beside this one has; ``name`` says everything that it depends on."""
        return read() if self._reads is None else self._reads.once(name, read)

    def _compute(self, keys: list[Key]) -> None:
        entering = self._entering(keys)
        if not entering:
            return
        self._stage = next(iter(entering))
        read = self._read([key for entered in entering.values() for key in entered])
        work = {
            "weighted_signals": self._signals,
            "trend_windows": self._trends,
            "trend_projections": self._projections,
            "recommendations": self._decisions,
        }
        parts: list[Part] = []
        for stage in self.stages:
            self._stage = stage
            entered = entering.get(stage, [])
            for key in entered:
                if key[0] not in read.place:
                    unknown = f"nothing about {key[0]} is known as of {self.cycle.as_of.isoformat()}"
                    self._fail(stage, key, unknown)
            known = [key for key in entered if key[0] in read.place]
            if known and self._writers.locking:
                self._hold_back_stored(stage, known)
            if known:
                parts.append(Part(known, self.cycle, read.inputs))
            with self.clock.phase(stage):
                parts = [done for part in parts if part.keys for done in work[stage](part, read)]
            if parts and self._writers.locking:
                self._hold_back(stage, [key for part in parts for key in part.keys])
        if not self._writers.locking:  # nothing else keeps the frames
            self.finished += parts

    def _hold_back(self, stage: str, keys: Sequence[Key]) -> None:
        """Look at what a stage has written; keys whose rows break a rule fail there and go no further."""
        with self._phases.phase("check"):
            found = invariants.find_faults(self.database, self.cycle, {stage: keys})
        for name, faults in found.items():
            held = self._faults[name]
            for key in keys:
                held.pop(key, None)
            held |= {fault.key: fault.reason for fault in faults}
        broken = invariants.broken(found)
        for key, reason in broken.items():
            self._reports[stage, key].metadata["held_back"] = reason
            self._fail(stage, key, f"held back, because what was written breaks a rule: {reason}")
        if broken and stage != self.stages[-1]:
            raise _HeldBack(broken)

    def _hold_back_stored(self, stage: str, keys: Sequence[Key]) -> None:
        """The same of what this cycle has stored before, for keys that enter behind it."""
        earlier = _UPSTREAM[stage]
        if not earlier:
            return
        with self._phases.phase("check"):
            found = invariants.find_faults(self.database, self.cycle, dict.fromkeys(earlier, keys))
        broken = invariants.broken(found)
        for key, reason in broken.items():
            what = " or ".join(earlier)
            self._fail(stage, key, f"held back, because {what} as stored breaks a rule: {reason}")
        if broken:
            raise _HeldBack(broken)

    def _entering(self, keys: Sequence[Key]) -> dict[str, list[Key]]:
        """The keys by the first stage of this run that computes them, in the order of the stages."""
        entering: dict[str, list[Key]] = {stage: [] for stage in self.stages}
        for key in keys:
            wanted = self._first_stages.get(key)
            rest = STAGES if wanted is None else STAGES[STAGES.index(wanted) :]
            first = next((stage for stage in self.stages if stage in rest), None)
            if first is not None:
                entering[first].append(key)
        return {stage: entered for stage, entered in entering.items() if entered}

    def _read(self, keys: Sequence[Key]) -> _Slice:
        entities = sorted({entity for entity, _ in keys})
        with self._phases.phase("read"):
            shared = self._share(self.cycle)

            def read(bulk: Bulk) -> tuple[list[str], CycleInputs]:
                known = inputs.known_entities(bulk, self.cycle, among=entities)
                return known, inputs.read_inputs(
                    bulk, self.cycle, known, shared, neighbours="weighted_signals" in self.stages
                )

            name = ("inputs", tuple(entities), id(shared), *_scope(self.cycle.config))
            known, columns = self._once(name, lambda: self.database.run(read, "REPEATABLE READ"))
        if self._change is not None:
            columns = self._change(columns)
        newest = np.full(len(columns.entities), -1, np.int64)
        for rows in (columns.documents, columns.bars):
            np.maximum.at(newest, rows.entity, rows.known_us)
        code = {entity: at for at, entity in enumerate(columns.entities.tolist())}
        return _Slice(columns, newest, {entity: code[entity] for entity in known})

    def _share(self, cycle: Cycle) -> inputs.Shared:
        key = (cycle.as_of_us, cycle.config_version)
        if key not in self._shared:
            accuracy = self._accuracy(self.database, cycle)
            self._shared[key] = self.database.run(
                lambda bulk: inputs.read_shared(bulk, cycle, accuracy), "REPEATABLE READ"
            )
        return self._shared[key]

    def _write(self, part: Part, work: Callable[[Bulk | None], T]) -> T:
        """One transaction on the keys of a part, under the locks of their entities; none in a rehearsal."""
        if not self._writers.locking:
            return work(None)

        def transaction(bulk: Bulk) -> T:
            cycles.enter(bulk, part.cycle)
            cycles.lock_entities(bulk, {entity for entity, _ in part.keys})
            cycles.stage_keys(bulk, part.keys)
            return work(bulk)

        with self._phases.phase("write"):
            return self.database.run(transaction)

    def _look_up(
        self, part: Part, read: Callable[[Bulk], T], bulk: Bulk | None = None, name: tuple[object, ...] = ()
    ) -> T:
        """Read something of the keys of a part, in the transaction that writes them or in one of its own.

        With a name that says what it depends on beside keys and cycle, rehearsals read it once.
        """
        with self._phases.phase("read"):
            if bulk is not None:
                return read(bulk)

            def transaction(bulk: Bulk) -> T:
                cycles.enter(bulk, part.cycle)
                cycles.stage_keys(bulk, part.keys)
                return read(bulk)

            if not name:
                return self.database.run(transaction, "REPEATABLE READ")
            whole = (*name, tuple(part.keys), part.cycle.as_of_us, part.cycle.config_version)
            return self._once(whole, lambda: self.database.run(transaction, "REPEATABLE READ"))

    # ------------------------------------------------------------------------------------- stages

    def _signals(self, part: Part, read: _Slice) -> list[Part]:
        keys = results.key_rows(part.keys, read.place)
        with self._phases.phase("score"):
            frame = _plain(score_signals(read.inputs, keys, part.cycle.as_of_us, part.cycle.config))
        self._write(part, lambda bulk: self._writers.signals(bulk, frame))
        if self._reads is None:
            self._tell_signals(part, read, frame)
        return [dataclasses.replace(part, signals=frame)]

    def _tell_signals(self, part: Part, read: _Slice, frame: SignalFrame) -> None:
        counts = np.bincount(frame.rows.key, minlength=len(part.keys)).tolist()
        active = np.bincount(frame.rows.key[frame.rows.combined > 0.0], minlength=len(part.keys)).tolist()
        skipped = frame.skipped.tolist()
        for at, (key, version) in enumerate(zip(part.keys, results.signal_versions(frame), strict=True)):
            shown = {"rows": counts[at], "active_signals": active[at], "skipped_signals": skipped[at]}
            self._done("weighted_signals", key, read, rows=counts[at], version=version, shown=shown)

    def _trends(self, part: Part, read: _Slice) -> list[Part]:
        done = []
        for each, signals in self._signals_of(part, read):
            config = each.cycle.config
            with self._phases.phase("trend"):
                frame = _plain(assemble_trends(signals, read.inputs, each.cycle.as_of_us, config))
            _, history = self._write(each, partial(self._write_trends, part=each, frame=frame))
            self.without_history |= set() if history else set(each.keys)
            if self._reads is None:
                self._tell_trends(each, read, frame, history=history)
            done.append(dataclasses.replace(each, signals=signals, trends=frame))
        return done

    def _tell_trends(self, part: Part, read: _Slice, frame: TrendFrame, *, history: bool) -> None:
        config = part.cycle.config
        tops = _top_evidence(frame)
        shown = _listed(
            frame.rows,
            "strength",
            "confidence",
            "contradiction",
            "evidence_count",
            "entity_signals",
            "macro_signals",
            "competitive_signals",
        )
        posterior = _posterior(frame, config)
        versions = results.trend_versions(frame, config.pipeline_mode)
        directions = [_DIRECTIONS[code] for code in frame.rows.direction.tolist()]
        for at, (key, version) in enumerate(zip(part.keys, versions, strict=True)):
            first = {"direction": directions[at]}
            rest = {name: values[at] for name, values in shown.items()}
            about = {"pipeline_mode": config.pipeline_mode.value, "history_written": history}
            lists = {
                "dominant_catalysts": frame.dominant_catalysts[at],
                "top_evidence": tops[at],
            }
            told = {**first, **rest, **posterior[at], **lists, **about}
            self._done("trend_windows", key, read, rows=1, version=version, shown=told)

    def _projections(self, part: Part, read: _Slice) -> list[Part]:
        done = []
        for each, trends in self._trends_of(part, read, "trend_projections"):
            history, frame = self._write(each, partial(self._project, part=each, trends=trends, read=read))
            if self._reads is None:
                self._tell_projections(each, read, frame)
            done.append(dataclasses.replace(each, trends=trends, history=history, projections=frame))
        return done

    def _tell_projections(self, part: Part, read: _Slice, frame: ProjectionFrame) -> None:
        shown = _listed(frame.rows, "strength", "confidence", "momentum", "macro_contribution_pct")
        flags = _listed(frame.rows, "diverges_from_current", "low_confidence")
        versions = results.projection_versions(frame)
        directions = [_DIRECTIONS[code] for code in frame.rows.direction.tolist()]
        for at, (key, version) in enumerate(zip(part.keys, versions, strict=True)):
            numbers = {name: values[at] for name, values in {**shown, **flags}.items()}
            texts = {"direction": directions[at], "driving_factors": frame.driving_factors[at]}
            told = {**texts, **numbers}
            self._done("trend_projections", key, read, rows=1, version=version, shown=told)

    def _write_trends(self, bulk: Bulk | None, part: Part, frame: TrendFrame) -> tuple[int, bool]:
        return self._writers.trends(bulk, part.cycle, part.keys, frame)

    def _project(
        self, bulk: Bulk | None, part: Part, trends: TrendFrame, read: _Slice
    ) -> tuple[HistoryRows, ProjectionFrame]:
        """Read the history under the locks, so that what it holds is what a repeat will find."""
        history = self._look_up(
            part,
            lambda bulk: results.read_history(bulk, part.cycle),
            bulk,
            name=("history", part.cycle.config.projection.ew_max_differences),
        )
        with self._phases.phase("project"):
            frame = _plain(
                project_trends(trends, read.inputs, history, part.cycle.as_of_us, part.cycle.config)
            )
        self._writers.projections(bulk, part.cycle, part.keys, frame)
        return history, frame

    def _decisions(self, part: Part, read: _Slice) -> list[Part]:
        done = []
        for each, trends, projections in self._projections_of(part, read):
            found = self._reword(each, trends, projections, read)
            work = partial(
                self._decide, part=each, trends=trends, projections=projections, read=read, found=found
            )
            decided = self._write(each, work)
            if self._reads is None:
                self._tell_decisions(decided, read, trends)
            _log.debug("%d of %d recommendations were new", decided.written, len(each.keys))
            done.append(decided.part)
        return done

    def _tell_decisions(self, decided: _Decided, read: _Slice, trends: TrendFrame) -> None:
        part, frame, made, theses, _ = decided
        shown = _listed(frame.rows, "allocation_pct", "max_loss_pct", "expected_value")
        confidence = trends.rows.confidence.tolist()
        posterior = _posterior(trends, part.cycle.config)
        versions = decisions.decision_versions(frame, trends, made)
        tops = _top_cited(trends)
        for at, (key, version) in enumerate(zip(part.keys, versions, strict=True)):
            decision = made[at]
            first = {"action": decision.action, "mode": decision.mode, "confidence": confidence[at]}
            rest = {
                "pipeline_mode": part.cycle.config.pipeline_mode.value,
                "eligible": decision.eligible,
                "risk": decision.risk,
                "rejection_reasons": decision.rejection_reasons,
                "suppression_reasons": decision.suppression_reasons,
                "thesis": theses[at],
                "top_evidence": tops[at],
                "equals_standing": decision.recommendation_id if decision.duplicate else None,
            }
            numbers = {name: values[at] for name, values in shown.items()}
            rows = 0 if decision.duplicate else 1
            told = {**first, **numbers, **posterior[at], **rest}
            self._done("recommendations", key, read, rows=rows, version=version, shown=told)

    def _decide(
        self,
        bulk: Bulk | None,
        *,
        part: Part,
        trends: TrendFrame,
        projections: ProjectionFrame,
        read: _Slice,
        found: Mapping[str, decisions.Wording],
    ) -> _Decided:
        standing = self._look_up(part, decisions.read_standing, bulk, name=("standing",))
        frame = self._judged(part, trends, projections, read, standing)
        stored = self._look_up(
            part,
            lambda bulk: decisions.read_wordings(bulk, part.cycle, part.keys),
            bulk,
            name=("wordings",),
        )
        made = self._made(part, frame, trends, standing)
        theses, made = wordings.applied(frame, made, stored=stored, found=found)
        worded = dataclasses.replace(frame, thesis=theses)
        written = self._writers.decisions(bulk, part.cycle, part.keys, frame=worded, trends=trends, made=made)
        done = dataclasses.replace(
            part, trends=trends, projections=projections, standing=standing, decided=frame, made=made
        )
        return _Decided(done, frame, made, theses, written)

    def _judged(
        self,
        part: Part,
        trends: TrendFrame,
        projections: ProjectionFrame,
        read: _Slice,
        standing: StandingRows,
    ) -> DecisionFrame:
        with self._phases.phase("decide"):
            config, as_of_us = part.cycle.config, part.cycle.as_of_us
            return _plain(decide(trends, projections, read.inputs, standing, as_of_us, config))

    def _made(
        self, part: Part, frame: DecisionFrame, trends: TrendFrame, standing: StandingRows
    ) -> list[decisions.Decision]:
        with self._phases.phase("decide"):
            return decisions.decisions(part.cycle, part.keys, frame, trends, standing)

    def _reword(
        self, part: Part, trends: TrendFrame, projections: ProjectionFrame, read: _Slice
    ) -> dict[str, decisions.Wording]:
        """The words of a model for the decisions to come, each asked for once.

        Asked before the transaction that writes, because a model may take minutes and the locks must not.
        """
        if self._rewriter is None or not self._rewriter.is_configured():
            return {}

        def look(bulk: Bulk) -> tuple[StandingRows, dict[str, decisions.Wording]]:
            cycles.enter(bulk, part.cycle)
            cycles.stage_keys(bulk, part.keys)
            return decisions.read_standing(bulk), decisions.read_wordings(bulk, part.cycle, part.keys)

        with self._phases.phase("read"):
            standing, stored = self.database.run(look, "REPEATABLE READ")
        frame = self._judged(part, trends, projections, read, standing)
        made = self._made(part, frame, trends, standing)
        same = zip(made, frame.plain_thesis, strict=True)
        settled = self._asked | {
            decision.recommendation_id
            for decision, thesis in same
            if (words := stored.get(decision.recommendation_id)) is not None
            and words.model_metadata.get("deterministic_thesis") == thesis
        }
        asked = wordings.requests(part.keys, frame, trends, made, settled=settled)
        with self._phases.phase("reword"):
            told = None if self._on_progress is None else partial(self._on_progress, "rewording")
            outcomes = self._rewriter.rewrite(asked, run_id=self._run_id, on_progress=told)
        self._asked |= {request.recommendation_id for request in asked}
        self._words |= wordings.wordings(outcomes, made)
        return self._words

    # ------------------------------------------------------------------------- what earlier runs stored

    def _signals_of(self, part: Part, read: _Slice) -> Iterator[tuple[Part, SignalFrame]]:
        """The signals the trends are made of: made in this run, or stored, or computed again."""
        if part.signals is not None:
            yield part, part.signals
            return
        table = self._stored(part, "trend_windows", results.upstream_signals, "signals")
        sources: dict[tuple[str, Any, Any], list[int]] = {}
        for row in table.to_pylist():
            source = (None, None) if row["stored"] else (row["as_of"], row["config_version"])
            sources.setdefault((row["pipeline_mode"], *source), []).append(row["position"])
        for (mode, as_of, config_version), positions in sources.items():
            keys = [part.keys[at] for at in positions]
            each = dataclasses.replace(part, keys=keys, cycle=_under(part.cycle, mode))
            coded = results.key_rows(keys, read.place)
            if as_of is None:
                frame = self._look_up(each, partial(results.read_signals, keys=coded), name=("signals",))
                yield each, frame
            else:
                again = self._once(
                    ("again", as_of, config_version, tuple(keys)),
                    partial(self._again, as_of, config_version, keys),
                )
                yield each, dataclasses.replace(again, keys=coded)

    def _again(self, as_of: datetime, config_version: int, keys: Sequence[Key]) -> SignalFrame:
        """The signals of an earlier cycle, from its inputs: the table holds the newest cycle only."""
        cycle = cycles.read_cycle(self.database, as_of, config_version)
        entities = sorted({entity for entity, _ in keys})
        shared = self._share(cycle)
        with self._phases.phase("read"):
            columns = self.database.run(
                lambda bulk: inputs.read_inputs(bulk, cycle, entities, shared), "REPEATABLE READ"
            )
        place = {entity: at for at, entity in enumerate(columns.entities.tolist())}
        with self._phases.phase("score"):
            return _plain(score_signals(columns, results.key_rows(keys, place), cycle.as_of_us, cycle.config))

    def _trends_of(self, part: Part, read: _Slice, stage: str) -> Iterator[tuple[Part, TrendFrame]]:
        """The trends a stage works on; a stored one keeps the mode it was computed in (C39)."""
        if part.trends is not None:
            yield part, part.trends
            return
        table = self._stored(part, stage, partial(results.read_trends, stage=stage), "trends")
        for mode in PipelineMode:
            rows = table.filter(pa.compute.equal(table.column("pipeline_mode"), mode.value))
            keys = [part.keys[at] for at in rows.column("position").to_pylist()]
            if keys:
                each = dataclasses.replace(part, keys=keys, cycle=_under(part.cycle, mode))
                coded = results.key_rows(keys, read.place)
                name = ("trend_frame", stage, tuple(keys), each.cycle.as_of_us, each.cycle.config_version)
                yield each, self._once(name, partial(results.trend_frame, rows, coded))

    def _projections_of(self, part: Part, read: _Slice) -> Iterator[tuple[Part, TrendFrame, ProjectionFrame]]:
        if part.trends is not None and part.projections is not None:
            yield part, part.trends, part.projections
            return
        table = self._stored(part, "recommendations", results.read_projections, "projections")
        found = table.column("position").to_pylist()
        keys = [part.keys[at] for at in found]
        trends = None if part.trends is None else results.take_trends(part.trends, np.array(found, np.int64))
        rest = dataclasses.replace(part, keys=keys, signals=None, trends=trends)
        row = {key: at for at, key in enumerate(keys)}
        for each, each_trends in self._trends_of(rest, read, "recommendations") if keys else ():
            rows = table.take(pa.array([row[key] for key in each.keys], pa.int64()))
            yield each, each_trends, results.projection_frame(rows, each_trends.keys)

    def _stored(self, part: Part, stage: str, read: Callable[[Bulk], pa.Table], what: str) -> pa.Table:
        """What earlier runs stored for the keys of a part; keys without it fail."""
        table = self._look_up(part, read, name=("stored", what, stage))
        found = set(table.column("position").to_pylist())
        before = ", ".join(STAGES[: STAGES.index(stage)])
        for at, key in enumerate(part.keys):
            if at not in found:
                self._fail(
                    stage,
                    key,
                    f"no result of an earlier stage ({before}) is stored as of "
                    f"{self.cycle.as_of.isoformat()}; run these stages too",
                )
        return table

    # ------------------------------------------------------------------------------------ reporting

    def _done(
        self, stage: str, key: Key, read: _Slice, *, rows: int, version: str, shown: dict[str, object]
    ) -> None:
        newest = int(read.newest_known_us[read.place[key[0]]])
        metadata = {
            **shown,
            "written_rows": rows,
            "as_of": self.cycle.as_of,
            "config_version": self.cycle.config_version,
            "newest_input_known_at": cycles.moment(newest) if newest >= 0 else None,
            "sql": _sql(stage, key),
        }
        self._failures.pop((stage, key), None)
        self._reports[stage, key] = KeyReport(*key, version, metadata)
        self._rows[stage, key] = rows

    def _fail(self, stage: str, key: Key, message: str) -> None:
        """Record a key as failed in a stage, and in the later ones of this run, which cannot follow."""
        self._failures[stage, key] = message
        for later in self.stages[self.stages.index(stage) + 1 :]:
            self._failures[later, key] = f"not computed, because {stage} failed: {message}"

    def report(self, keys: Sequence[Key]) -> StageReport:
        """What was done, by stage in the order of the keys."""
        return StageReport(
            keys={
                stage: [self._reports[stage, key] for key in keys if (stage, key) in self._reports]
                for stage in self.stages
            },
            rows={
                stage: sum(n for (other, _), n in self._rows.items() if other == stage)
                for stage in self.stages
            },
            failures=[
                Failure(stage, *key, self._failures[stage, key])
                for stage in self.stages
                for key in keys
                if (stage, key) in self._failures
            ],
            seconds=dict(self._phases.seconds),
            faults={
                name: [invariants.Fault(key, found[key]) for key in keys if key in found]
                for name, found in self._faults.items()
            },
        )


_DIRECTIONS: Final = tuple(d.value for d in TrendDirection)
_REGIMES: Final = tuple(r.value for r in MarketRegime)
_ROLES: Final = tuple(r.value for r in EvidenceRole)
_TABLE_KEYS: Final = {"recommendations": "time_horizon"}


def _scope(config: OracleConfig) -> tuple[object, ...]:
    """The settings that decide how far inputs are read."""
    competitive = config.competitive
    reach = rules_for(config).propagation_reach(competitive)
    return config.flags.competitive_enabled, reach, competitive.pattern_lookback_days


def _under(cycle: Cycle, mode: str) -> Cycle:
    """The cycle under the set of rules that an earlier stage was computed with (C39)."""
    flags = cycle.config.flags.model_copy(
        update={"probabilistic_scoring_enabled": mode == PipelineMode.PROBABILISTIC}
    )
    return dataclasses.replace(cycle, config=cycle.config.model_copy(update={"flags": flags}))


def _plain(frame: F) -> F:
    """The frame with 0 for -0, which JSON cannot tell apart, so that a stored frame reads the same."""
    changes: dict[str, Any] = {
        f.name: values + 0.0
        for f in dataclasses.fields(frame.rows)
        if isinstance(values := getattr(frame.rows, f.name), np.ndarray) and values.dtype == np.float64
    }
    return dataclasses.replace(frame, rows=dataclasses.replace(frame.rows, **changes))


def _listed(rows: object, *names: str) -> dict[str, list[Any]]:
    """Columns as lists, None for NaN."""
    return {name: pa.array(getattr(rows, name), from_pandas=True).to_pylist() for name in names}


def _posterior(frame: TrendFrame, config: OracleConfig) -> list[dict[str, object]]:
    """What the probabilistic mode says of each key; every value None in the other."""
    shown: dict[str, list[Any]] = dict(_listed(frame.rows, "p_bull", "alpha", "beta", "entropy"))
    codes = frame.rows.regime.tolist()
    thresholds = direction_thresholds(config.regime).tolist()
    shown["regime"] = [None if code < 0 else _REGIMES[code] for code in codes]
    shown["direction_threshold"] = [None if code < 0 else thresholds[code] for code in codes]
    return [{name: values[at] for name, values in shown.items()} for at in range(len(codes))]


def _top_evidence(frame: TrendFrame) -> list[list[dict[str, object]]]:
    """The best few of each side per key, as small tables."""
    rows = frame.evidence.take(frame.evidence.position < _SHOWN)
    tops: list[list[dict[str, object]]] = [[] for _ in range(len(frame.keys))]
    names = frame.ids[rows.signal].tolist()
    for key, role, name, score in zip(
        rows.key.tolist(), rows.role.tolist(), names, rows.rank_score.tolist(), strict=True
    ):
        tops[key].append({"side": _ROLES[role], "id": name, "rank_score": score})
    return tops


def _top_cited(frame: TrendFrame) -> list[list[dict[str, object]]]:
    """The same without scores: the lists of a stored trend have none, and a stage run alone shows no less."""
    sides = zip(frame.supporting, frame.opposing, strict=True)
    return [
        [
            {"side": role, "id": name, "rank": rank}
            for role, names in zip(_ROLES, both, strict=True)
            for rank, name in enumerate(names[:_SHOWN], start=1)
        ]
        for both in sides
    ]


def _sql(stage: str, key: Key) -> str:
    entity, window = (part.replace("'", "''") for part in key)
    column = _TABLE_KEYS.get(stage, '"window"')
    return f"SELECT * FROM {stage} WHERE entity_id = '{entity}' AND {column} = '{window}';"  # noqa: S608 - shown, not run
