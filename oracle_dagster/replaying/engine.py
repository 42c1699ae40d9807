"""Replay the pipeline over history: every cycle by the product's own code, with the knowledge of its day.

The inputs of a block of entities are read once for the whole span, with all their versions, and cut for each
cycle. Momentum and de-duplication look at the earlier cycles of the same replay, which begins without any;
the accuracy of the sources is that of the outcomes settled by the cycle. Nothing of the live tables is read
or written. No rule here.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for_any
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from oracle_core.calibration import group_means, leading
from oracle_core.config import OracleConfig
from oracle_core.cycle import CODE_VERSION, measure_accuracy
from oracle_core.enums import Action, Mode, RiskLevel, SignalLayer, TrendDirection
from oracle_core.inputs import US_PER_DAY, AccuracyRows, HistoryRows, Keys, StandingRows
from oracle_core.market import forward_returns
from oracle_core.projection import signed_strength
from oracle_core.rules import rules_for
from oracle_dagster.pipeline import BLOCK_ENTITIES, Computed, compute
from oracle_dagster.storage import columns, inputs, replays, results
from oracle_dagster.storage.cycles import Cycle, library_set, microseconds
from oracle_dagster.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from oracle_core.inputs import CycleInputs, Float, Int
    from oracle_dagster.storage.cycles import Key
    from oracle_dagster.storage.database import Bulk
    from oracle_dagster.storage.inputs import Timeline
    from oracle_dagster.storage.replays import Block, Carried, Configuration, Replay

    Progress = Callable[[int, int], None]

HORIZON: Final = timedelta(days=7)
"""How long after a decision its return is taken (decisions 2)."""

CYCLES_PER_WRITE: Final = 16
_FORMAT: Final = 1  # raise it when what is stored of a cycle changes, so that no older replay is gone on with
_ALONE: Final = 20_000  # decisions below which starting further processes takes longer than they save
_POLL_SECONDS: Final = 0.5
_NOT_RECORDED: Final = 0
_ENTITY: Final = list(SignalLayer).index(SignalLayer.ENTITY)
_DIRECTIONS: Final = columns.members(TrendDirection)
_ACTIONS: Final = columns.members(Action)
_MODES: Final = columns.members(Mode)
_RISKS: Final = columns.members(RiskLevel)
_OUTCOMES: Final = pa.array(["settled", "unsettled", "no_prices"], pa.string())
_SETTLED, _UNSETTLED, _NO_PRICES = range(3)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What to replay: cycles from ``first`` to at most ``last``, one after every ``every``."""

    first: datetime
    last: datetime
    every: timedelta
    windows: tuple[str, ...] = results.WINDOWS
    entities: tuple[str, ...] | None = None

    def moments(self) -> list[datetime]:
        """The ``as_of`` of every cycle."""
        count = (self.last - self.first) // self.every + 1
        return [self.first + at * self.every for at in range(count)]

    def stored(self, configurations: Sequence[Configuration]) -> dict[str, Any]:
        """Everything that decides the results, as JSON."""
        return {
            "format": _FORMAT,
            "from": self.first.astimezone(UTC).isoformat(),
            "to": self.last.astimezone(UTC).isoformat(),
            "every_seconds": self.every.total_seconds(),
            "windows": list(self.windows),
            "entities": None if self.entities is None else sorted(set(self.entities)),
            "configurations": [[each.name, each.config.fingerprint()] for each in configurations],
            "code_version": CODE_VERSION,
            "library_set": library_set(),
        }


def replay(
    database: Database,
    request: Request,
    configurations: Sequence[Configuration],
    *,
    url: str | None = None,
    processes: int = 1,
    on_progress: Progress | None = None,
    block_entities: int = BLOCK_ENTITIES,
) -> Replay:
    """Replay, or go on with the unfinished replay of the same request.

    Args:
        database: the domain database.
        request: what to replay.
        configurations: side by side, each under its own name.
        url: of the same database, for further processes.
        processes: at most so many work at once; 1 works in this one.
        on_progress: called with the cycles done and all cycles, over configurations and blocks.
        block_entities: entities worked on at a time.

    Returns:
        The finished replay.

    Raises:
        ValueError: no cycle or no window is asked for, or two configurations have one name.
        StorageError: the database cannot be used; repeating the command goes on.

    """
    moments = _checked(request, configurations)
    snapshot = replays.settled(database)
    entities = _entities(database, request, snapshot)
    decisions = len(entities) * len(request.windows) * len(moments) * len(configurations)
    at_once = 1 if url is None or decisions < _ALONE else max(1, processes)
    parts = -(-at_once // len(configurations))  # so that every process has something to do
    size = min(block_entities, -(-len(entities) // parts))
    blocks = [entities[at : at + size] for at in range(0, len(entities), size)]
    asked = request.stored(configurations)
    begun = replays.begin(database, asked, configurations, blocks, snapshot=snapshot)
    told = _Told(on_progress, len(begun.blocks) * len(moments))
    told(sum(block.cycles_done for block in begun.blocks))
    waiting = [block for block in begun.blocks if block.cycles_done < len(moments)]
    if at_once == 1 or len(waiting) == 1:
        for block in waiting:
            _work(database, request, begun, block, told)
    elif waiting:
        _share_out(database, str(url), request, begun, waiting, at_once, told)
    replays.finish(database, begun.number)
    return replays.read(database, begun.number)


def _checked(request: Request, configurations: Sequence[Configuration]) -> list[datetime]:
    if request.every <= timedelta(0) or request.last < request.first:
        raise ValueError("a replay goes forward: --to is not before --from, and --every is more than nothing")
    names = [each.name for each in configurations]
    if not names or len(set(names)) < len(names):
        raise ValueError("a replay needs at least one configuration, each with a name of its own")
    unknown = sorted(set(request.windows) - set(results.WINDOWS))
    if unknown or not request.windows:
        raise ValueError(f"unknown window {', '.join(unknown)}; there are {', '.join(results.WINDOWS)}")
    return request.moments()


def _entities(database: Database, request: Request, snapshot: str) -> list[str]:
    """The entities known in some cycle, by code point; of those asked for, if any were."""
    cycle = Cycle(request.last, OracleConfig(), _NOT_RECORDED, snapshot)
    spans = database.run(lambda bulk: inputs.read_spans(bulk, cycle))
    known = set(spans.entity[spans.until_us > microseconds(request.first)].tolist())
    wanted = known if request.entities is None else set(request.entities)
    if not wanted or not wanted <= known:
        which = ", ".join(sorted(wanted - known)[:5]) or "any entity"
        raise ValueError(
            f"nothing about {which} is known up to {request.last.isoformat()}; `oracle ingest` loads inputs, "
            "historical ones with --known-at published"
        )
    return sorted(wanted)


class _Told:
    """Passes on how many cycles are done, of all."""

    def __init__(self, on_progress: Progress | None, whole: int) -> None:
        self._on_progress = on_progress
        self._whole = whole
        self._done = 0

    def __call__(self, more: int) -> None:
        self._done += more
        if self._on_progress is not None:
            self._on_progress(self._done, self._whole)

    @property
    def done(self) -> int:
        return self._done


# --------------------------------------------------------------------------------------------- processes


def _share_out(  # noqa: PLR0917 - what every process needs
    database: Database,
    url: str,
    request: Request,
    begun: Replay,
    waiting: Sequence[Block],
    processes: int,
    told: _Told,
) -> None:
    """Work on the blocks in further processes; what they have stored says how far they are."""
    with ProcessPoolExecutor(
        min(processes, len(waiting)), mp_context=get_context("spawn"), initializer=_end_with_parent
    ) as pool:
        pending: set[Future[None]] = {
            pool.submit(_work_apart, url, request, begun, block) for block in waiting
        }
        try:
            while pending:
                finished, pending = wait(pending, timeout=_POLL_SECONDS)
                for each in finished:
                    each.result()
                told(replays.cycles_done(database, begun.number) - told.done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _work_apart(url: str, request: Request, begun: Replay, block: Block) -> None:
    """Replay a block in this process."""
    database = Database(url)
    try:
        _work(database, request, begun, block, lambda _more: None)
    finally:
        database.close()


def _end_with_parent() -> None:
    """End this process as soon as the one that started it is gone: nobody else would."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_outlived, args=(parent.sentinel,), daemon=True).start()


def _outlived(sentinel: int) -> None:
    wait_for_any([sentinel])
    os._exit(1)  # whatever it is doing: an unfinished write is rolled back, and repeating the command goes on


# ------------------------------------------------------------------------------------------------ blocks


def _work(
    database: Database, request: Request, begun: Replay, block: Block, told: Callable[[int], None]
) -> None:
    """Replay the cycles of a block that are not stored yet."""
    moments = request.moments()
    config = begun.configurations[block.position].config
    last = Cycle(request.last, config, _NOT_RECORDED, begun.snapshot)
    runner = database.run(lambda bulk: _Block.read(bulk, request, begun, block, last), "REPEATABLE READ")
    done = block.cycles_done
    while done < len(moments):
        chunk = moments[done : done + CYCLES_PER_WRITE]
        found = [runner.cycle(as_of) for as_of in chunk]
        tables = [table for decided, _ in found for table in decided]
        decided = pa.concat_tables(tables) if tables else pa.table({})
        failed = _failures([failure for _, failures in found for failure in failures])
        write = partial(
            replays.write_cycles,
            replay=begun,
            block=block,
            done=(done, done + len(chunk)),
            decided=decided,
            failed=failed,
        )
        database.run(write)
        done += len(chunk)
        told(len(chunk))


def _failures(rows: Sequence[tuple[datetime, str, str, str]]) -> pa.Table:
    return pa.table(
        {
            "as_of": pa.array([row[0] for row in rows], pa.timestamp("us", "UTC")),
            "entity_id": pa.array([row[1] for row in rows], pa.string()),
            "window": pa.array([row[2] for row in rows], pa.string()),
            "message": pa.array([row[3] for row in rows], pa.string()),
        }
    )


class _Block:
    """A block under way: what was read for it, and what its cycles carry on to the next."""

    def __init__(
        self,
        *,
        keys: Sequence[Key],
        config: OracleConfig,
        timeline: Timeline,
        spans: inputs.Spans,
        sources: _Sources | None,
        carried: Carried,
    ) -> None:
        self._keys = keys
        self._config = config
        self._timeline = timeline
        self._spans = spans
        self._sources = sources
        self._carried = carried
        code = {entity: at for at, entity in enumerate(timeline.rows.entities.tolist())}
        self._coded = results.key_rows(keys, code)
        self._names = columns.named(self._coded.entity, timeline.rows.entities)
        bars = timeline.rows.bars
        self._settled_bars = bars.take(timeline.until["bars"] == inputs.NEVER)
        self._last_bar_us = np.full(len(code), -1, np.int64)
        np.maximum.at(self._last_bar_us, self._settled_bars.entity, self._settled_bars.known_us)

    @classmethod
    def read(cls, bulk: Bulk, request: Request, begun: Replay, block: Block, last: Cycle) -> _Block:
        """Read everything the block needs, for its cycles from the first one that is not stored."""
        keys: list[Key] = [
            (entity, window)
            for entity in block.entities
            for window in results.WINDOWS
            if window in request.windows
        ]
        place = {key: at for at, key in enumerate(keys)}
        depth = last.config.projection.ew_max_differences + 1
        # Only where the rules look at it: it takes every document there ever was.
        measured = "source_accuracy_factor" in rules_for(last.config).weight_factors
        timeline = inputs.read_timeline(bulk, last, request.first, block.entities)
        sources = _Sources(inputs.read_outcomes(bulk, last), timeline, last.config) if measured else None
        return cls(
            keys=keys,
            config=last.config,
            timeline=timeline,
            spans=inputs.read_spans(bulk, last),
            sources=sources,
            carried=replays.read_carried(bulk, begun, block, place, depth),
        )

    def cycle(self, as_of: datetime) -> tuple[list[pa.Table], list[tuple[datetime, str, str, str]]]:
        """Compute a cycle; the rows of its decisions, and the keys that could not be computed."""
        as_of_us = microseconds(as_of)
        known = set(self._spans.at(as_of_us))
        rows = np.array([at for at, (entity, _) in enumerate(self._keys) if entity in known], np.int64)
        accuracy = None if self._sources is None else self._sources.at(as_of_us)
        read = self._timeline.at(as_of_us, accuracy)
        failed: list[tuple[datetime, str, str, str]] = []
        tables = [
            self._rows(part, computed, as_of_us)
            for part, computed in self._computed(read, rows, as_of, failed)
        ]
        return tables, failed

    def _computed(
        self,
        read: CycleInputs,
        rows: Int,
        as_of: datetime,
        failed: list[tuple[datetime, str, str, str]],
    ) -> list[tuple[Int, Computed]]:
        """Compute keys; if that fails, their halves, until the keys at fault stand alone, as a run does."""
        if len(rows) == 0:
            return []
        as_of_us = microseconds(as_of)
        try:
            computed = compute(
                read,
                Keys(self._coded.entity[rows], self._coded.window[rows]),
                as_of_us,
                self._config,
                history=self._history(rows),
                standing=self._standing(rows),
            )
        except Exception as error:  # noqa: BLE001 - whatever a rule raises on a key's data, other keys go on
            if len(rows) == 1:
                key = self._keys[int(rows[0])]
                _log.exception("%s|%s cannot be replayed as of %s", *key, as_of.isoformat())
                failed.append((as_of, *key, f"{type(error).__name__}: {error}"))
                return []
            computed = None
        if computed is None:
            middle = len(rows) // 2
            first = self._computed(read, rows[:middle], as_of, failed)
            return first + self._computed(read, rows[middle:], as_of, failed)
        self._carry(rows, computed, as_of_us)
        return [(rows, computed)]

    def _history(self, rows: Int) -> HistoryRows:
        as_of_us, signed = self._carried.as_of_us[rows], self._carried.signed[rows]
        key, column = np.nonzero(as_of_us >= 0)
        return HistoryRows(key, as_of_us[key, column], signed[key, column])

    def _standing(self, rows: Int) -> StandingRows:
        there = np.flatnonzero(self._carried.action[rows] >= 0)
        at = rows[there]
        return StandingRows(
            key=there,
            action=self._carried.action[at],
            mode=self._carried.mode[at],
            confidence=self._carried.confidence[at],
            recommendation_id=np.full(len(at), "", np.object_),
        )

    def _carry(self, rows: Int, computed: Computed, as_of_us: int) -> None:
        carried, trends, decided = self._carried, computed.trends.rows, computed.decided.rows
        carried.as_of_us[rows, 1:] = carried.as_of_us[rows, :-1]
        carried.signed[rows, 1:] = carried.signed[rows, :-1]
        carried.as_of_us[rows, 0] = as_of_us
        carried.signed[rows, 0] = signed_strength(trends.direction, trends.strength)
        fresh = ~decided.duplicate
        carried.action[rows[fresh]] = decided.action[fresh]
        carried.mode[rows[fresh]] = decided.mode[fresh]
        carried.confidence[rows[fresh]] = trends.confidence[fresh]

    def _rows(self, rows: Int, computed: Computed, as_of_us: int) -> pa.Table:
        signals, trends = computed.signals.rows, computed.trends.rows
        projected, decided = computed.projections.rows, computed.decided.rows
        own = signals.take(signals.layer == _ENTITY)
        count = len(rows)
        types = computed.signals.source_types
        result, outcome = self._outcomes(self._coded.entity[rows], as_of_us)
        names = results.WINDOWS
        return pa.table(
            {
                "as_of": columns.moments(np.full(count, as_of_us)),
                "entity_id": self._names.take(pa.array(rows)),
                "window": columns.named(self._coded.window[rows], names),
                "documents": pa.array(np.bincount(own.key, minlength=count), pa.int32()),
                "plain_average": columns.nullable(group_means(own.key, own.sentiment, count)),
                "source_type": columns.named(
                    leading(own.key, own.source_type, own.combined, count, len(types)), types
                ),
                "trend_direction": columns.named(trends.direction, _DIRECTIONS),
                "trend_strength": trends.strength,
                "average": trends.average,
                "confidence": trends.confidence,
                "contradiction_score": trends.contradiction,
                "evidence_count": pa.array(trends.evidence_count, pa.int32()),
                "p_bull": columns.nullable(trends.p_bull),
                "projected_direction": columns.named(projected.direction, _DIRECTIONS),
                "projected_strength": projected.strength,
                "action": columns.named(decided.action, _ACTIONS),
                "mode": columns.named(decided.mode, _MODES),
                "eligible": decided.eligible,
                "suppressed": decided.suppressed,
                "duplicate": decided.duplicate,
                "allocation_pct": decided.allocation_pct,
                "max_loss_pct": decided.max_loss_pct,
                "risk_classification": columns.named(decided.risk, _RISKS),
                "expected_value": columns.nullable(decided.expected_value),
                "outcome": columns.named(outcome, _OUTCOMES),
                "return_7d": columns.nullable(result),
            }
        )

    def _outcomes(self, entity: Int, as_of_us: int) -> tuple[Float, Int]:
        """What followed, by the prices as they are known today, and whether that is settled.

        An entity whose prices end before the horizon does is unsettled, not flat.
        """
        horizon_us = round(HORIZON.total_seconds() * 1_000_000)
        last = self._last_bar_us[entity]
        start = np.full(len(entity), as_of_us)
        result = forward_returns(self._settled_bars, entity, start, horizon_us, as_of_us + horizon_us)
        settled = last >= as_of_us + horizon_us
        result = np.where(settled, result, np.nan)
        open_ended = np.where(last < 0, _NO_PRICES, _UNSETTLED)
        return result, np.where(settled, np.where(np.isnan(result), _NO_PRICES, _SETTLED), open_ended)


class _Sources:
    """The accuracy of the sources in one cycle after the other.

    An outcome never changes once it is settled, unless a document or a bar is replaced; so each cycle adds
    those that settled since the one before, and counts anew only after a replacement.
    """

    def __init__(self, everything: Timeline, timeline: Timeline, config: OracleConfig) -> None:
        self._everything = everything
        self._config = config
        rows = everything.rows
        horizon_us = round(config.accuracy.horizon_days * US_PER_DAY)
        self._due_us = np.maximum(rows.documents.published_us + horizon_us, rows.documents.known_us)
        ends = [everything.until["documents"], everything.until["bars"]]
        self._replaced_us = np.unique(np.concatenate(ends))
        self._right = np.zeros(len(rows.sources), np.int64)
        self._samples = np.zeros(len(rows.sources), np.int64)
        self._before_us: int | None = None
        code = {source: at for at, source in enumerate(timeline.rows.sources.tolist())}
        self._place = np.array([code.get(source, -1) for source in rows.sources.tolist()], np.int64)

    def at(self, as_of_us: int) -> AccuracyRows:
        """The accuracy settled by that moment, of the sources of the block; moments go forward."""
        read = self._everything.at(as_of_us)
        settled = self._due_us <= as_of_us
        before = self._before_us
        replaced = before is None or bool(
            ((self._replaced_us > before) & (self._replaced_us <= as_of_us)).any()
        )
        if before is None or replaced:
            self._right[:] = 0
            self._samples[:] = 0
        else:
            settled &= self._due_us > before
        settled &= as_of_us < self._everything.until["documents"]
        fresh = replace(read, documents=self._everything.rows.documents.take(settled))
        found = measure_accuracy(fresh, as_of_us, self._config)
        self._right[found.source] += np.rint(found.ratio * found.samples).astype(np.int64)
        self._samples[found.source] += found.samples
        self._before_us = as_of_us
        there = np.flatnonzero((self._samples > 0) & (self._place >= 0))
        ratio = self._right[there] / self._samples[there]
        return AccuracyRows(self._place[there], ratio, self._samples[there])
