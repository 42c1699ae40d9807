"""The chain of hashes over cycles: what was written stays as it was written, or is found and named.

At its end a run seals what it wrote, and whatever inputs and configurations have settled since the seal
before. A seal is one link: for every table the keys that it covers and a hash per key (its *leaf*), a root
hash per table, and the hash of the link before. Of several seals of a key the newest counts. A seal is made
of what is stored, so it can be made later, of a run that was killed before it could.

Columns that change in lawful operation are no part of a leaf: which configuration is active, which later
version replaces an input (sealed by itself, once it has happened). Current tables (``weighted_signals``,
``trend_windows``, ``trend_evidence``) are replaced by every cycle and are covered by recomputation.

What the chain cannot see is a change by somebody who rewrites it to its end: note ``hash`` of the newest seal
elsewhere. No rule belongs here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlalchemy as sa

from oracle_dagster.storage import cycles
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION, SEQUENCES
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.schema import cycle_keys, cycle_seal_parts, cycle_seals, unsealed_runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Bulk, Database

_log = logging.getLogger(__name__)

GENESIS: Final = "0" * 64
"""What the first seal names as the hash before it."""
LEAF_BYTES: Final = 16
ABSENT: Final = b"\0" * LEAF_BYTES
"""The leaf of a key that has no row any more, lawfully."""
_LOCK_CHAIN: Final = 7_105_005  # advisory lock classes, beside those of cycles.py
_LOCK_RUN: Final = 7_105_006
_CHUNK_KEYS: Final = 100_000
_CYCLES_AT_ONCE: Final = 64
_WHOLE: Final = ""
ACCURACY_STAGE: Final = "source_accuracy"
_DELETED: Final = "the row was deleted"
_ADDED: Final = "the row was added behind the back of the chain"
# The text of times and floats depends on these settings of a session.
_FORMATS: Final = (
    "SELECT set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true), "
    "set_config('extra_float_digits', '1', true)"
)

Leaves = dict[str, bytes]
"""Leaf by key."""
CycleKey = tuple[datetime, int]


def _leaf(row: str) -> str:
    return f"substr(sha256(convert_to({row}, 'UTF8')), 1, {LEAF_BYTES})"


def _row(columns: Iterable[str], table: str = "t") -> str:
    return f"ROW({', '.join(f'{table}.{column}' for column in columns)})::text"


# ------------------------------------------------------------------------------------- what is covered


@dataclass(frozen=True)
class _Result:
    """Rows of a cycle: where they are, whose they are, what is hashed; ``stage`` writes them."""

    name: str
    stage: str
    source: str
    row: str
    entity: str = "t.entity_id"
    window: str = 't."window"'
    as_of: str = "t.as_of"
    config_version: str = "t.config_version"
    where: str = "true"
    grouped: bool = False
    by_key: bool = True

    @property
    def key(self) -> str:
        return f"{self.entity} || '|' || {self.window}" if self.by_key else self.entity


TREND_HISTORY: Final = (
    "id", "entity_type", "entity_id", '"window"', "trend_direction", "trend_strength", "confidence",
    "contradiction_score", "disagreement_details", "top_supporting_evidence", "top_opposing_evidence",
    "dominant_catalysts", "material_risks", "market_context", "generated_at", "config_version",
)  # fmt: skip
TREND_PROJECTIONS: Final = (
    "id", "trend_window_id", "entity_id", '"window"', "projected_direction", "projected_strength",
    "projected_confidence", "projection_horizon", "driving_factors", "macro_contribution_pct",
    "diverges_from_current", "low_confidence", "momentum", "blended", "macro_signed", "macro_weight",
    "has_macro_events", "computed_at", "config_version",
)  # fmt: skip
RECOMMENDATIONS: Final = (
    "id", "entity_id", "action", "mode", "confidence", "time_horizon", "thesis", "invalidation_conditions",
    "allocation_pct", "max_loss_pct", "model_metadata", "risk_classification", "pipeline_mode",
    "expected_value", "p_bull", "generated_at", "config_version",
)  # fmt: skip
RISK_EVALUATIONS: Final = (
    "id", "recommendation_id", "eligible", "allowed_mode", "rejection_reasons", "risk_checks", "created_at",
)  # fmt: skip
CITATIONS: Final = ("recommendation_id", "document_id", "evidence_type", "weight")
SOURCE_ACCURACY: Final = ("as_of", "config_version", "source_id", "accuracy_ratio", "sample_count")
CYCLE: Final = (
    "as_of", "config_version", "snapshot", "pipeline_mode", "config_hash", "code_version", "library_set",
    "first_run_at",
)  # fmt: skip
CYCLE_ACCURACY: Final = ("accuracy_as_of", "accuracy_config_version")
CONFIGURATION: Final = ("version", "id", "config", "changed_by", "reason", "updated_at")

_OWNED: Final = " JOIN recommendations o ON o.id = t.recommendation_id"


def _of_recommendation(name: str, row: str, *, grouped: bool = False) -> _Result:
    return _Result(
        name,
        "recommendations",
        f"{name} t{_OWNED}",
        row,
        entity="o.entity_id",
        window="o.time_horizon",
        as_of="o.generated_at",
        config_version="o.config_version",
        grouped=grouped,
    )


def _numbers(stage: str, *beside: str) -> _Result:
    column = SEQUENCES[stage]
    return _Result(
        f"cycle_keys.{column}",
        stage,
        "cycle_keys t",
        _row((column, *beside)),
        where=f"t.{column} IS NOT NULL",
    )


_RESULTS: Final = (
    _Result("cycles", "", "cycles t", _row(CYCLE), entity="'cycle'", by_key=False),
    _Result(
        "cycles.accuracy",
        "",
        "cycles t",
        _row(CYCLE_ACCURACY),
        entity="'cycle'",
        where="t.accuracy_config_version IS NOT NULL",
        by_key=False,
    ),
    _Result(
        "source_accuracy_history",
        ACCURACY_STAGE,
        "source_accuracy_history t",
        _row(SOURCE_ACCURACY),
        entity="t.source_id",
        by_key=False,
    ),
    _numbers("weighted_signals", "signals_skipped"),
    _numbers("trend_windows"),
    _Result("trend_history", "trend_windows", "trend_history t", _row(TREND_HISTORY), as_of="t.generated_at"),
    _numbers("trend_projections"),
    _Result(
        "trend_projections",
        "trend_projections",
        "trend_projections t",
        _row(TREND_PROJECTIONS),
        as_of="t.computed_at",
    ),
    _numbers("recommendations", "standing_recommendation_id"),
    _Result(
        "recommendations",
        "recommendations",
        "recommendations t",
        _row(RECOMMENDATIONS),
        window="t.time_horizon",
        as_of="t.generated_at",
    ),
    _of_recommendation("risk_evaluations", _row(RISK_EVALUATIONS)),
    _of_recommendation(
        "recommendation_evidence",
        f"string_agg({_row(CITATIONS)}, '' ORDER BY t.evidence_type COLLATE \"C\", t.document_id)",
        grouped=True,
    ),
)
Made = Callable[[_Result, str], bool]
_NUMBERS_OF: Final = {stage: f"cycle_keys.{column}" for stage, column in SEQUENCES.items()}


@dataclass(frozen=True)
class _Input:
    """Versioned rows: key and what is hashed; ``versioned`` rows are replaced by later versions."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    source: str = ""
    xid: str = "t.xid"

    @property
    def from_(self) -> str:
        return self.source or f"{self.name} t"

    @property
    def key_text(self) -> str:
        return " || '|' || ".join(f"t.{column}" for column in self.key)


_VERSION: Final = ("version", "known_at", "retracted", "xid")
_INPUTS: Final = (
    _Input(
        "document_intelligence",
        ("document_id", "version"),
        (
            "document_id", *_VERSION, "source_id", "source_type", "published_at", "failed",
            "extraction_confidence", "credibility", "novelty", "content_hash",
        ),
    ),
    _Input(
        "document_impact_records",
        ("document_id", "version", "entity_id"),
        (
            "document_id", "version", "entity_type", "entity_id", "published_at", "has_impact",
            "sentiment_label", "sentiment", "impact_score", "catalyst_type", "risk_flags", "xid",
        ),
    ),
    _Input(
        "documents",
        ("id", "version"),
        (
            "id", "source_id", "source_type", "title", "url", "story_id", "published_at", "status", "version",
            "retraction_reason", "created_at",
        ),
        source="documents t JOIN document_intelligence i ON i.document_id = t.id AND i.version = t.version",
        xid="i.xid",
    ),
    _Input(
        "market_bars",
        ("entity_id", "day", "version"),
        ("entity_id", "day", *_VERSION, "close", "volume"),
    ),
    _Input(
        "macro_events",
        ("id", "version"),
        (
            "id", *_VERSION, "event_type", "title", "direction", "severity", "estimated_duration", "geo",
            "supply", "commodity", "sector", "occurred_at",
        ),
    ),
    _Input(
        "exposure_profiles",
        ("entity_id", "version"),
        ("entity_id", *_VERSION, "geo", "supply", "commodity", "sector"),
    ),
    _Input(
        "competitive_edges",
        ("source_entity", "target_entity", "relation_type", "version"),
        ("source_entity", "target_entity", "relation_type", *_VERSION, "historical_correlation"),
    ),
)  # fmt: skip
_REPLACEABLE: Final = tuple(
    _Input(f"{table.name}.superseded", table.key, ("superseded_known_at", "superseded_xid"),
           source=f"{table.name} t", xid="t.superseded_xid")
    for table in _INPUTS
    if "retracted" in table.columns
)  # fmt: skip
_VERSIONED: Final = (*_INPUTS, *_REPLACEABLE)
_CONFIGURATIONS: Final = "risk_configs"
_ORDER: Final = {
    name: at
    for at, name in enumerate((*(t.name for t in _VERSIONED), _CONFIGURATIONS, *(t.name for t in _RESULTS)))
}
_RESULT_NAMES: Final = frozenset(table.name for table in _RESULTS)


def _result_query(table: _Result, *, one_cycle: bool) -> str:
    """Leaves of the staged keys of the cycle of this transaction, or of all rows of the staged cycles."""
    source = table.source
    if one_cycle:
        if table.by_key:
            source += f' JOIN slice_keys k ON k.entity_id = {table.entity} AND k."window" = {table.window}'
        here = f"{table.as_of} = {AS_OF} AND {table.config_version} = {CONFIG_VERSION}"
    else:
        here = (
            f"({table.as_of}, {table.config_version}) IN (SELECT as_of, config_version FROM checked_cycles)"
        )
    groups = "GROUP BY 1, 2, 3" if table.grouped else ""
    return f"""
        SELECT {table.as_of} AS as_of, {table.config_version} AS config_version, {table.key} AS key,
               {_leaf(table.row)} AS leaf
        FROM {source} WHERE {here} AND {table.where} {groups}"""


def _input_query(table: _Input, condition: str) -> str:
    return f"""
        SELECT {table.key_text} AS key, {_leaf(_row(table.columns))} AS leaf
        FROM {table.from_} WHERE {condition}"""


def _settled_since(xid: str, before: str | None) -> str:
    """The transactions that had settled by the snapshot $1, and not yet by $2."""
    if before is None:
        return f"pg_visible_in_snapshot({xid}, $1::text::pg_snapshot)"
    return f"""{xid} >= pg_snapshot_xmin($2::text::pg_snapshot)
        AND pg_visible_in_snapshot({xid}, $1::text::pg_snapshot)
        AND NOT pg_visible_in_snapshot({xid}, $2::text::pg_snapshot)"""


def _leaves(table: pa.Table) -> Leaves:
    return dict(zip(table.column("key").to_pylist(), table.column("leaf").to_pylist(), strict=True))


# --------------------------------------------------------------------------------------------- sealing


@contextlib.contextmanager
def sealing(
    database: Database,
    cycle: Cycle,
    keys: Sequence[Key],
    stages: Collection[str],
    *,
    run_id: str,
    first_stages: Mapping[Key, str | None] | None = None,
) -> Iterator[None]:
    """Seal what a run writes inside, and what runs before it left unsealed because they were killed.

    Until then the run stands in ``unsealed_runs``, and a lock of this process says that it lives. If it ends
    by an error it stays there, and the next run seals what it wrote. A seal that cannot be made is logged as
    an error and never fails the run: what it wrote is reported as unsealed until the next one.

    Args:
        database: the domain database.
        cycle: the cycle.
        keys: what the run computes.
        stages: the stages that it writes, ``source_accuracy`` among them or not.
        run_id: for the report.
        first_stages: keys of which only this stage and later ones are written.

    """
    with contextlib.ExitStack() as held:
        number = _announce(database, cycle, run_id, held)
        yield
        try:
            _seal_run(database, cycle, keys, _made_by(stages, first_stages or {}), number)
        except StorageError as error:
            _log.error(
                "the cycle as of %s was computed but not sealed; the next run or `oracle verify --seal` "
                "seals it: %s",
                cycle.as_of.isoformat(),
                error,
            )


def _announce(database: Database, cycle: Cycle, run_id: str, held: contextlib.ExitStack) -> int:
    with database.begin() as connection:
        number = connection.execute(
            unsealed_runs.insert()
            .values(run_id=run_id, as_of=cycle.as_of, config_version=cycle.config_version)
            .returning(unsealed_runs.c.id)
        ).scalar_one()
    with database.errors("use"):
        connection = database.engine.connect()
        connection.detach()  # its lock ends with it, also when this process is killed
        held.callback(connection.close)
        connection.execute(sa.select(sa.func.pg_advisory_lock(_LOCK_RUN, number % 2**31)))
        connection.commit()
    return int(number)


def _made_by(stages: Collection[str], first_stages: Mapping[Key, str | None]) -> Made:
    """Whether a run of these stages has written a row, so that what it says now counts."""
    order = list(SEQUENCES)

    def made(table: _Result, key: str) -> bool:
        if table.stage not in stages:
            return False
        if not table.by_key or not first_stages:
            return True
        entity, _, window = key.rpartition("|")
        first = first_stages.get((entity, window))
        return first is None or order.index(table.stage) >= order.index(first)

    return made


def _nothing(_table: _Result, _key: str) -> bool:
    return False


def _seal_run(database: Database, cycle: Cycle, keys: Sequence[Key], made: Made, number: int) -> None:
    written = _written(database, cycle, keys)
    with _chain(database) as chain:
        if keys:
            chain.inputs()
            chain.configurations()
        else:  # the accuracy of the sources, in whose job the keys follow
            chain.leave_inputs()
        chain.results(cycle.as_of, cycle.config_version, written, made)
        chain.append("run", cycle.as_of, cycle.config_version)
        _leftovers(database, chain, number)
        chain.connection.execute(unsealed_runs.delete().where(unsealed_runs.c.id == number))


def seal_leftovers(database: Database) -> int:
    """Seal what runs have written and not sealed, because they were killed or ran before there were seals.

    Keys that are sealed already keep their seal, also where their rows have changed since.

    Returns:
        The number of seals made.

    """
    with _chain(database) as chain:
        chain.inputs()
        chain.configurations()
        chain.append("late", None, None)
        _leftovers(database, chain, None)
        covered = {(s.as_of, s.config_version) for s in _seals(chain.connection) if s.as_of is not None}
        for as_of, config_version in _unsealed_cycles(chain.connection, covered):
            _late(database, chain, as_of, config_version)
        return chain.made


def _unsealed_cycles(connection: sa.Connection, covered: set[CycleKey]) -> list[CycleKey]:
    """Cycles with keys that no seal covers: all of one without any seal, else what the sizes betray."""
    counts = sa.select(
        cycle_keys.c.as_of,
        cycle_keys.c.config_version,
        *(sa.func.count(cycle_keys.c[column]) for column in SEQUENCES.values()),
    ).group_by(cycle_keys.c.as_of, cycle_keys.c.config_version)
    found = []
    for as_of, config_version, *numbers in connection.execute(counts.order_by(sa.text("1, 2"))):
        if (as_of, config_version) in covered:
            held = _authority(connection, as_of, config_version)
            if [len(held.get(name, {})) for name in _NUMBERS_OF.values()] == numbers:
                continue
        found.append((as_of, config_version))
    return found


def _leftovers(database: Database, chain: _Chain, own: int | None) -> None:
    """Seal the cycles of runs that ended without sealing: nobody holds their lock."""
    dead = []
    query = sa.select(unsealed_runs).order_by(unsealed_runs.c.id)
    for run in chain.connection.execute(query).all():
        lock = sa.select(sa.func.pg_try_advisory_xact_lock(_LOCK_RUN, run.id % 2**31))
        if run.id != own and chain.connection.execute(lock).scalar_one():
            dead.append(run)
    for as_of, config_version in dict.fromkeys((run.as_of, run.config_version) for run in dead):
        _late(database, chain, as_of, config_version)
    for run in dead:
        chain.connection.execute(unsealed_runs.delete().where(unsealed_runs.c.id == run.id))


def _late(database: Database, chain: _Chain, as_of: datetime, config_version: int) -> None:
    _log.warning(
        "the cycle as of %s under configuration %d was written by a run that did not live to seal it; "
        "it is sealed now, as it is now",
        as_of.isoformat(),
        config_version,
    )
    cycle = _bare(as_of, config_version)
    query = sa.select(cycle_keys.c.entity_id, cycle_keys.c.window).where(
        cycle_keys.c.as_of == as_of, cycle_keys.c.config_version == config_version
    )
    keys = [(entity, window) for entity, window in chain.connection.execute(query)]
    chain.results(as_of, config_version, _written(database, cycle, keys), _nothing)
    chain.append("late", as_of, config_version)


@dataclass(frozen=True)
class _Bare:
    """What :func:`oracle_dagster.storage.cycles.enter` needs of a cycle."""

    as_of: datetime
    config_version: int
    snapshot: str = "1:1:"


def _bare(as_of: datetime, config_version: int) -> Cycle:
    return _Bare(as_of, config_version)  # type: ignore[return-value]


def _written(database: Database, cycle: Cycle, keys: Sequence[Key]) -> dict[str, Leaves]:
    """The leaves of these keys as they are stored now, one statement per table."""

    def read(bulk: Bulk) -> dict[str, Leaves]:
        cycles.enter(bulk, cycle)
        bulk.arrow(_FORMATS)
        cycles.stage_keys(bulk, sorted(set(keys)))
        return {
            table.name: _leaves(bulk.arrow(_result_query(table, one_cycle=True)))
            for table in _RESULTS
            if keys or not table.by_key
        }

    return database.run(read)


def _authority(connection: sa.Connection, as_of: datetime, config_version: int) -> dict[str, Leaves]:
    """The newest sealed leaf of every key of a cycle."""
    parts = (
        sa.select(cycle_seal_parts)
        .join(cycle_seals, cycle_seals.c.number == cycle_seal_parts.c.number)
        .where(
            cycle_seals.c.as_of == as_of,
            cycle_seals.c.config_version == config_version,
            cycle_seal_parts.c.table_name.in_(_RESULT_NAMES),
        )
        .order_by(cycle_seal_parts.c.number, cycle_seal_parts.c.table_name, cycle_seal_parts.c.chunk)
    )
    held: dict[str, Leaves] = defaultdict(dict)
    for part in connection.execute(parts):
        held[part.table_name].update(_unpacked(part.row_keys, part.leaves))
    return held


def _unpacked(keys: Sequence[str], leaves: bytes) -> Iterator[tuple[str, bytes]]:
    for at, key in enumerate(keys):
        yield key, leaves[at * LEAF_BYTES : (at + 1) * LEAF_BYTES]


class _Chain:
    """An open link: parts are gathered, then appended; everything under the lock of the chain."""

    def __init__(self, database: Database, connection: sa.Connection) -> None:
        self._database = database
        self.connection = connection
        self.made = 0
        self._parts: dict[str, Leaves] = {}
        newest = sa.select(cycle_seals).order_by(cycle_seals.c.number.desc()).limit(1)
        last = connection.execute(newest).first()
        self._number = 0 if last is None else last.number
        self._hash = GENESIS if last is None else last.hash
        self._before = None if last is None else last.snapshot
        self.snapshot: str = connection.execute(
            sa.select(sa.cast(sa.func.pg_current_snapshot(), sa.Text))
        ).scalar_one()

    def inputs(self) -> None:
        """Cover the input rows that have settled since the last seal."""
        params = (self.snapshot,) if self._before is None else (self.snapshot, self._before)

        def read(bulk: Bulk) -> dict[str, Leaves]:
            bulk.arrow(_FORMATS)
            return {
                table.name: _leaves(
                    bulk.arrow(_input_query(table, _settled_since(table.xid, self._before)), params)
                )
                for table in _VERSIONED
            }

        self._add(self._database.run(read))

    def leave_inputs(self) -> None:
        """Leave the inputs that have settled since the last seal to the next one."""
        if self._before is None:
            self.inputs()
        else:
            self.snapshot = self._before

    def configurations(self) -> None:
        """Cover the versions of the configuration that no seal covers."""
        query = sa.select(cycle_seal_parts.c.row_keys).where(cycle_seal_parts.c.table_name == _CONFIGURATIONS)
        covered = {key for (keys,) in self.connection.execute(query) for key in keys}
        stored = self._database.run(_read_configurations)
        self._add({_CONFIGURATIONS: {k: leaf for k, leaf in stored.items() if k not in covered}})

    def results(
        self,
        as_of: datetime,
        config_version: int,
        written: Mapping[str, Leaves],
        made: Made,
    ) -> None:
        """Cover rows of a cycle that no seal covers, and those that this run has written anew."""
        held = _authority(self.connection, as_of, config_version)
        for table in _RESULTS:
            before, now = held.get(table.name, {}), written.get(table.name, {})
            new = {
                key: leaf
                for key, leaf in now.items()
                if key not in before or (before[key] != leaf and made(table, key))
            }
            if before and table.by_key:  # a decision that has become a duplicate has no row any more
                asked = written.get(_NUMBERS_OF[table.stage], {})
                new |= {
                    key: ABSENT
                    for key in asked
                    if key in before and key not in now and before[key] != ABSENT and made(table, key)
                }
            self._add({table.name: new})

    def release(self, released: Mapping[str, Collection[str]]) -> None:
        """Say that these keys have no row any more, nor a later version that replaces them."""
        for name, keys in released.items():
            gone = dict.fromkeys(keys, ABSENT)
            beside = f"{name}.superseded"
            self._add({name: gone, beside: gone} if beside in _ORDER else {name: gone})

    def _add(self, parts: Mapping[str, Leaves]) -> None:
        self._parts |= {name: leaves for name, leaves in parts.items() if leaves}

    def append(
        self,
        kind: str,
        as_of: datetime | None,
        config_version: int | None,
        *,
        before: datetime | None = None,
    ) -> str | None:
        """Add the link, unless it would cover nothing; return its hash."""
        parts, self._parts = self._parts, {}
        if not parts and kind != "checkpoint":
            return None
        ordered = {name: sorted(parts[name]) for name in sorted(parts, key=_ORDER.__getitem__)}
        packed = {name: b"".join(parts[name][key] for key in keys) for name, keys in ordered.items()}
        now = self.connection.execute(sa.select(sa.func.now())).scalar_one()
        values: dict[str, Any] = {
            "number": self._number + 1,
            "kind": kind,
            "as_of": as_of,
            "config_version": config_version,
            "before": before,
            "snapshot": self.snapshot,
            "parts": {
                name: {"rows": len(keys), "root": _root(keys, packed[name])} for name, keys in ordered.items()
            },
            "sealed_at": now,
            "previous_hash": self._hash,
        }
        values["hash"] = _hash(values)
        self.connection.execute(cycle_seals.insert().values(**values))
        for name, keys in ordered.items():
            chunks = range(0, len(keys), _CHUNK_KEYS)
            self.connection.execute(
                cycle_seal_parts.insert(),
                [
                    {
                        "number": values["number"],
                        "table_name": name,
                        "chunk": at,
                        "row_keys": keys[first : first + _CHUNK_KEYS],
                        "leaves": packed[name][first * LEAF_BYTES : (first + _CHUNK_KEYS) * LEAF_BYTES],
                    }
                    for at, first in enumerate(chunks)
                ],
            )
        self._number, self._hash, self._before = values["number"], values["hash"], self.snapshot
        self.made += 1
        return str(self._hash)


@contextlib.contextmanager
def _chain(database: Database) -> Iterator[_Chain]:
    """The end of the chain, while nobody else appends to it."""
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_CHAIN, 0)))
        yield _Chain(database, connection)


def _read_configurations(bulk: Bulk) -> Leaves:
    bulk.arrow(_FORMATS)
    return _leaves(
        bulk.arrow(
            f"SELECT t.version::text AS key, {_leaf(_row(CONFIGURATION))} AS leaf FROM {_CONFIGURATIONS} t"
        )
    )


def _root(keys: Sequence[str], leaves: bytes) -> str:
    return hashlib.sha256("\n".join(keys).encode() + b"\0" + leaves).hexdigest()


def _hash(seal: Mapping[str, Any]) -> str:
    """The hash of a link: of everything in its row."""
    content = {
        name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
        for name, value in seal.items()
        if name != "hash"
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def checkpoint(
    database: Database, before: datetime, *, released: Mapping[str, Collection[str]] | None = None
) -> str:
    """Append a link which says that rows are about to be removed lawfully; call it just before removing.

    From then on a missing row of a cycle with ``as_of < before`` is no fault. The chain itself stays complete
    from its first link, and a row that is still there must still be as sealed. So a process that is killed
    between this and the removal leaves a sound chain, and what pruning keeps stays protected.

    Args:
        database: the domain database.
        before: results of earlier cycles may go; with an offset.
        released: input rows that may go too, by table (``document_intelligence``, ``market_bars`` …): their
            keys, the columns of the primary key joined by ``|`` with the version last, as in
            ``cycle_seal_parts.row_keys``.

    Returns:
        The hash of the link.

    Raises:
        ValueError: a table that is not sealed.
        StorageError: the database cannot be used.

    """
    unknown = sorted(set(released or {}) - set(_ORDER))
    if unknown:
        raise ValueError(f"{unknown[0]} is not a sealed table; there are {', '.join(_ORDER)}")
    with _chain(database) as chain:
        chain.inputs()
        chain.configurations()
        chain.append("run", None, None)
        chain.release(released or {})
        link = chain.append("checkpoint", None, None, before=before)
    if link is None:  # pragma: no cover - a checkpoint is always appended
        raise AssertionError
    return link


# -------------------------------------------------------------------------------------------- checking


@dataclass(frozen=True, order=True)
class ChainFault:
    """A row that is not as it was sealed, or a broken link; in the order of the chain.

    ``number`` is the seal that covers the row, ``table`` a table or ``cycle_seals`` itself, ``key`` its key
    joined by ``|``; ``as_of`` and ``config_version`` name the cycle, None for inputs and configurations.
    """

    number: int
    order: int
    table: str
    key: str
    what: str
    as_of: datetime | None = field(default=None, compare=False)
    config_version: int | None = field(default=None, compare=False)


@dataclass
class ChainReport:
    """What checking the chain found.

    ``start`` is where all rows must be there: cycles before it were pruned (None: from the first on).
    ``unsealed`` maps cycles to keys that no seal covers yet, ``unsealed_inputs`` counts such input rows;
    ``open_runs`` counts runs under way or killed; ``late`` are seals that were made by a later run.
    """

    seals: int = 0
    newest_hash: str = GENESIS
    start: datetime | None = None
    rows: int = 0
    late: list[int] = field(default_factory=list)
    faults: list[ChainFault] = field(default_factory=list)
    unsealed: dict[CycleKey, int] = field(default_factory=dict)
    unsealed_inputs: int = 0
    open_runs: int = 0

    @property
    def sound(self) -> bool:
        """Whether every sealed row is as it was sealed and every link holds."""
        return not self.faults

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to seal."""
        return not self.unsealed and self.unsealed_inputs == 0


def _seals(connection: sa.Connection) -> list[sa.Row[Any]]:
    return list(connection.execute(sa.select(cycle_seals).order_by(cycle_seals.c.number)))


def check(database: Database, *, on_progress: Callable[[int, int], None] | None = None) -> ChainReport:
    """Check every link and every sealed row.

    Args:
        database: the domain database.
        on_progress: called with the tables and groups of cycles done, and all of them.

    Raises:
        StorageError: the database cannot be used.

    """
    report = ChainReport()
    with database.begin() as connection:
        seals = _seals(connection)
        report.open_runs = connection.execute(
            sa.select(sa.func.count()).select_from(unsealed_runs)
        ).scalar_one()
        pending = set(connection.execute(sa.select(unsealed_runs.c.as_of, unsealed_runs.c.config_version)))
        keyed = sa.select(cycle_keys.c.as_of, cycle_keys.c.config_version).distinct()
        stored = [tuple(row) for row in connection.execute(keyed)]
    report.seals = len(seals)
    report.late = [seal.number for seal in seals if seal.kind == "late"]
    report.start = max((s.before for s in seals if s.before is not None), default=None)
    _check_links(seals, report)
    checked = sorted({*((s.as_of, s.config_version) for s in seals if s.as_of is not None), *stored})
    groups = [checked[at : at + _CYCLES_AT_ONCE] for at in range(0, len(checked), _CYCLES_AT_ONCE)]
    steps = len(_VERSIONED) + 1 + len(groups)
    for done, table in enumerate(_VERSIONED):
        if on_progress is not None:
            on_progress(done, steps)
        _check_inputs(database, table, seals, report)
    _check_configurations(database, seals, report)
    for done, group in enumerate(groups, start=len(_VERSIONED) + 1):
        if on_progress is not None:
            on_progress(done, steps)
        _check_cycles(database, group, seals, report, {tuple(row) for row in pending})
    if on_progress is not None:
        on_progress(steps, steps)
    report.faults.sort()
    return report


def _fault(report: ChainReport, number: int, table: str, key: str, what: str, *cycle: Any) -> None:  # noqa: ANN401
    report.faults.append(ChainFault(number, _ORDER.get(table, -1), table, key, what, *cycle))


def _check_links(seals: Sequence[sa.Row[Any]], report: ChainReport) -> None:
    before, number = GENESIS, 0
    for seal in seals:
        values = dict(seal._mapping)  # noqa: SLF001 - the public name of a row's dict
        cycle = (seal.as_of, seal.config_version)
        if seal.number != number + 1:
            missing = f"link {number + 1} is missing"
            _fault(report, number + 1, "cycle_seals", str(number + 1), missing, *cycle)
        elif seal.previous_hash != before:
            _fault(
                report, seal.number, "cycle_seals", str(seal.number), "does not follow from the link before"
            )
        if _hash(values) != seal.hash:
            _fault(report, seal.number, "cycle_seals", str(seal.number), "the link was altered", *cycle)
        before, number = seal.hash, seal.number
    report.newest_hash = before


Held = dict[str, tuple[bytes, int]]
"""Sealed leaf by key, with the number of the seal."""


def _held(
    database: Database, name: str, seals: Sequence[sa.Row[Any]], report: ChainReport
) -> dict[int, dict[str, bytes]]:
    """The sealed leaves of a table by seal, checked against the roots in the links."""
    chosen = {s.number: s for s in seals if name in s.parts}
    query = (
        sa.select(cycle_seal_parts)
        .where(cycle_seal_parts.c.table_name == name, cycle_seal_parts.c.number.in_(chosen))
        .order_by(cycle_seal_parts.c.number, cycle_seal_parts.c.chunk)
    )
    keys: dict[int, list[str]] = defaultdict(list)
    leaves: dict[int, bytes] = defaultdict(bytes)
    with database.begin() as connection:
        for part in connection.execute(query):
            keys[part.number] += part.row_keys
            leaves[part.number] += part.leaves
    found = {}
    for number, seal in chosen.items():
        if _root(keys[number], leaves[number]) != seal.parts[name]["root"]:
            what = f"the hashes per key of {name} were altered"
            _fault(report, number, "cycle_seals", str(number), what, seal.as_of, seal.config_version)
            continue
        found[number] = dict(_unpacked(keys[number], leaves[number]))
    return found


def _newest(by_seal: Mapping[int, Mapping[str, bytes]]) -> Held:
    held: Held = {}
    for number in sorted(by_seal):
        held.update((key, (leaf, number)) for key, leaf in by_seal[number].items())
    return held


def _differing(held: Held, now: Leaves) -> Iterator[tuple[int, str, str]]:
    """Sealed rows that are gone or changed."""
    for key, (leaf, number) in held.items():
        if leaf == ABSENT:
            if key in now:
                yield number, key, "the row was removed lawfully and is there again"
        elif key not in now:
            yield number, key, _DELETED
        elif now[key] != leaf:
            yield number, key, "the row was altered"


def _check_inputs(
    database: Database, table: _Input, seals: Sequence[sa.Row[Any]], report: ChainReport
) -> None:
    snapshot = seals[-1].snapshot if seals else None

    def read(bulk: Bulk) -> tuple[Leaves, Leaves]:
        bulk.arrow(_FORMATS)
        if snapshot is None:
            return {}, _leaves(bulk.arrow(_input_query(table, f"{table.xid} IS NOT NULL")))
        settled = f"pg_visible_in_snapshot({table.xid}, $1::text::pg_snapshot)"
        return (
            _leaves(bulk.arrow(_input_query(table, settled), (snapshot,))),
            _leaves(bulk.arrow(_input_query(table, f"NOT {settled}"), (snapshot,))),
        )

    settled, later = database.run(read, "REPEATABLE READ")
    held = _newest(_held(database, table.name, seals, report))
    report.rows += len(held)
    if table.name == "documents":
        held = _current_documents(held, {*settled, *later})
    for number, key, what in _differing(held, {**later, **settled}):
        _fault(report, number, table.name, key, what)
    last = seals[-1].number if seals else 0
    for key in settled.keys() - held.keys():
        _fault(report, last, table.name, key, _ADDED)
    report.unsealed_inputs += len(later.keys() - held.keys())


def _current_documents(held: Held, stored: set[str]) -> Held:
    """Sealed rows of ``documents``, of each the newest version, unless a later one has replaced it since."""

    def split(key: str) -> tuple[str, int]:
        name, _, version = key.rpartition("|")
        return name, int(version)

    newest: dict[str, int] = {}
    for key in (*held, *stored):
        name, version = split(key)
        newest[name] = max(newest.get(name, 0), version)
    return {key: value for key, value in held.items() if newest[split(key)[0]] == split(key)[1]}


def _check_configurations(database: Database, seals: Sequence[sa.Row[Any]], report: ChainReport) -> None:
    held = _newest(_held(database, _CONFIGURATIONS, seals, report))
    now = database.run(_read_configurations)
    report.rows += len(held)
    for number, key, what in _differing(held, now):
        _fault(report, number, _CONFIGURATIONS, key, what)
    report.unsealed_inputs += len(now.keys() - held.keys()) if seals else 0


def _check_cycles(
    database: Database,
    group: Sequence[CycleKey],
    seals: Sequence[sa.Row[Any]],
    report: ChainReport,
    pending: set[tuple[Any, ...]],
) -> None:
    wanted = set(group)
    mine = [s for s in seals if (s.as_of, s.config_version) in wanted]
    cycle_of = {s.number: (s.as_of, s.config_version) for s in mine}

    def read(bulk: Bulk) -> dict[str, dict[CycleKey, Leaves]]:
        bulk.arrow(_FORMATS)
        staged = {
            "as_of": pa.array([a for a, _ in group], pa.timestamp("us", "UTC")),
            "config_version": pa.array([c for _, c in group], pa.int32()),
        }
        bulk.stage("checked_cycles", pa.table(staged))
        return {
            table.name: _by_cycle(bulk.arrow(_result_query(table, one_cycle=False))) for table in _RESULTS
        }

    now = database.run(read, "REPEATABLE READ")
    held: dict[str, dict[CycleKey, dict[int, dict[str, bytes]]]] = {}
    for table in _RESULTS:
        held[table.name] = defaultdict(dict)
        for number, leaves in _held(database, table.name, mine, report).items():
            held[table.name][cycle_of[number]][number] = leaves
    for cycle in group:
        covered = {name: _newest(by_cycle.get(cycle, {})) for name, by_cycle in held.items()}
        stored = {name: by_cycle.get(cycle, {}) for name, by_cycle in now.items()}
        pruned = report.start is not None and cycle[0] < report.start
        _check_cycle(cycle, covered, stored, report, pruned=pruned, pending=cycle in pending)


def _check_cycle(
    cycle: CycleKey,
    covered: Mapping[str, Held],
    stored: Mapping[str, Leaves],
    report: ChainReport,
    *,
    pruned: bool,
    pending: bool,
) -> None:
    unsealed: set[str] = set()
    for table in _RESULTS:
        held, now = covered[table.name], stored[table.name]
        report.rows += len(held)
        for number, key, what in _differing(held, now):
            if not (pruned and what == _DELETED):
                _fault(report, number, table.name, key, what, *cycle)
        numbered = covered.get(_NUMBERS_OF.get(table.stage, _WHOLE), {})
        for key in now.keys() - held.keys():
            if table.by_key and key in numbered and not pending:
                _fault(report, numbered[key][1], table.name, key, _ADDED, *cycle)
            else:
                unsealed.add(key)
    if unsealed:
        report.unsealed[cycle] = len(unsealed)


def _by_cycle(table: pa.Table) -> dict[CycleKey, Leaves]:
    found: dict[CycleKey, Leaves] = defaultdict(dict)
    for as_of, config_version, key, leaf in zip(
        *(table.column(name).to_pylist() for name in ("as_of", "config_version", "key", "leaf")), strict=True
    ):
        found[as_of, config_version][key] = leaf
    return found
