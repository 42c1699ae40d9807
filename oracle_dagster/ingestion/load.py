"""Load a file or folder into the input tables: block by block, each block in one transaction.

A block's records are compared with what is stored: new, unchanged, in conflict, or (on request) a revision.
Only keys and contents are staged for that; rows that are to be written go straight into their tables by
binary COPY, all tables of a record in the same transaction. One block is written at a time in a database, so
that two loads of one file end like one. What lines mean is decided in ``columns.py`` and ``models.py``.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from oracle_dagster.ingestion.columns import EPOCH, TIMESTAMP, UNKNOWN_US, Batch, columns_of, micros, original
from oracle_dagster.ingestion.formats import BLOCK_RECORDS, Block, Misread, Source, discover, read_blocks
from oracle_dagster.ingestion.models import Fault, Kind, Reason, fault
from oracle_dagster.ingestion.renamed import under_ids
from oracle_dagster.ingestion.report import (
    MAX_REJECTIONS_KEPT,
    Counts,
    IngestReport,
    IngestStoppedError,
    Rejection,
)
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.entities import ids_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from oracle_dagster.storage.database import Bulk, Database

    Int = NDArray[np.int64]

KnownAt = Literal["now", "published"]
OLD_US: Final = 86_400_000_000  # a document a day older than its ingestion deserves a warning
LOCK: Final = 7_105_010  # advisory lock: one block is written at a time


@dataclass(frozen=True, slots=True)
class Target:
    """The versioned table of a kind: columns that name a thing, columns compared, what a thing is called."""

    table: str
    key: tuple[str, ...]
    content: tuple[str, ...]
    noun: str
    field: str


TARGETS: Final[dict[Kind, Target]] = {
    Kind.DOCUMENTS: Target(
        "document_intelligence", ("document_id",), ("content_hash",), "document", "document_id"
    ),
    Kind.MARKET_DATA: Target("market_bars", ("entity_id", "day"), ("close", "volume"), "bar", "date"),
    Kind.GLOBAL_EVENTS: Target(
        "macro_events",
        ("id",),
        (
            "event_type",
            "title",
            "direction",
            "severity",
            "estimated_duration",
            "geo",
            "supply",
            "commodity",
            "sector",
            "occurred_at",
        ),
        "event",
        "event_id",
    ),
    Kind.EXPOSURES: Target(
        "exposure_profiles",
        ("entity_id",),
        ("geo", "supply", "commodity", "sector"),
        "exposure",
        "entity_id",
    ),
    Kind.RELATIONSHIPS: Target(
        "competitive_edges",
        ("source_entity", "target_entity", "relation_type"),
        ("historical_correlation",),
        "edge",
        "source_entity",
    ),
}
_ENTITY_COLUMNS: Final = (
    ("document_impact_records", "entity_id"),
    ("market_bars", "entity_id"),
    ("exposure_profiles", "entity_id"),
    ("competitive_edges", "source_entity"),
    ("competitive_edges", "target_entity"),
)


_RESOLVE_FILE: Final = sa.text(
    "UPDATE rejected_records SET resolved_at = :now "
    "WHERE file = :file AND kind = :kind AND (record = '' OR field = 'header') AND resolved_at IS NULL"
)


@dataclass(frozen=True, slots=True)
class Rules:
    """How an ingest treats time and changed content; ``now`` comes from whoever called it."""

    now: datetime
    known_at: KnownAt = "now"
    revise: bool = False

    def default_known_us(self, primary_us: Int) -> Int:
        """When records without a ``known_at`` of their own count as known."""
        if self.known_at == "published":
            return primary_us
        return np.maximum(primary_us, micros(self.now))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a file is: records committed, bytes read of how many."""

    file: str
    kind: Kind
    records: int
    position: int
    size: int


@dataclass(slots=True)
class Outcome:
    """What one block did."""

    counts: Counts
    refused: list[Misread]
    entities: set[str] = field(default_factory=set)
    keys: list[Hashable] = field(default_factory=list)
    old: int = 0
    still_retracted: int = 0
    backdated: int = 0


def ingest(
    database: Database,
    path: Path,
    *,
    now: datetime,
    known_at: KnownAt = "now",
    revise: bool = False,
    progress: Callable[[Progress], None] | None = None,
    block_records: int = BLOCK_RECORDS,
) -> IngestReport:
    """Load the file or folder at ``path`` (decisions 6).

    Args:
        database: where to.
        path: one file, or a folder of files with known names.
        now: the moment of ingestion, from which records count as known that do not say otherwise.
        known_at: ``published`` dates such records back to when they appeared, for historical loads.
        revise: a record with a stored id and other content becomes a new version instead of a conflict.
        progress: called after each committed block.
        block_records: records per transaction.

    Returns:
        What happened. Records that were refused are in ``rejected_records`` and counted.

    Raises:
        InputError: ``path`` is nothing that can be loaded.
        IngestStoppedError: the database failed; its report tells how far the load came.

    """
    rules = Rules(now, known_at, revise)
    sources, warnings = discover(path)
    report = IngestReport(warnings=warnings)
    for source in sources:
        report.files.append(source.name)
        try:
            _ingest_file(database, source, rules, report, progress=progress, block_records=block_records)
        except StorageError as error:
            raise IngestStoppedError(error, report) from error
    return report


def _ingest_file(
    database: Database,
    source: Source,
    rules: Rules,
    report: IngestReport,
    *,
    progress: Callable[[Progress], None] | None,
    block_records: int,
) -> None:
    try:
        size = source.path.stat().st_size
    except OSError:  # the reader says what is wrong with it, and the other files load
        size = 0
    # A revision in this file must not be revised again by the same file; eight bytes stand for a key.
    seen: set[int] = set()
    sums = {"old": 0, "still_retracted": 0, "backdated": 0}
    records = 0
    read_whole = True
    for batch in _prepared(read_blocks(source, block_records=block_records)):
        outcome = database.run(functools.partial(_load_and_keep, batch=batch, rules=rules, seen=seen))
        if rules.revise:
            seen.update(map(hash, outcome.keys))
        read_whole &= not any(misread.of_file for misread in batch.misread)
        report.counts[source.kind].add(outcome.counts)
        report.entities[source.kind] |= outcome.entities
        for name in sums:
            sums[name] += getattr(outcome, name)
        room = MAX_REJECTIONS_KEPT - len(report.rejections)
        report.rejections.extend(rejection(source, misread) for misread in outcome.refused[:room])
        records += outcome.counts.read
        if progress is not None:
            progress(Progress(source.name, source.kind, records, batch.position, size))
    if read_whole:
        with database.begin() as connection:
            connection.execute(_RESOLVE_FILE, {"file": source.name, "kind": source.kind, "now": rules.now})
    report.warnings.extend(_warnings(source, rules, records, sums))


def _warnings(source: Source, rules: Rules, records: int, sums: dict[str, int]) -> Iterator[str]:
    noun = TARGETS[source.kind].noun
    if records == 0:
        yield f"{source.path} is empty: nothing to load"
    if sums["old"] > 0:
        yield (
            f"{source.path}: {sums['old']} {noun}s more than a day old become known only now "
            f"({rules.now.isoformat()}), so no cycle with an earlier as_of uses them; for a historical load "
            "use --known-at published in a fresh database"
        )
    if sums["still_retracted"] > 0:
        yield f"{source.path}: {sums['still_retracted']} {noun}s were retracted and stay so"
    if sums["backdated"] > 0:
        yield (
            f"{source.path}: {sums['backdated']} revised {noun}s have no known_at of their own and count as "
            "known since their publication; give known_at to say when the revision was first known"
        )


def _prepared(blocks: Iterator[Block]) -> Iterator[Batch]:
    """Validate the next block while the database writes the one before."""

    def following() -> Batch | None:
        block = next(blocks, None)
        return None if block is None else columns_of(block)

    with ThreadPoolExecutor(1, "ingest-reader") as pool:
        coming = pool.submit(following)
        while (batch := coming.result()) is not None:
            coming = pool.submit(following)
            yield batch


def rejection(source: Source, misread: Misread) -> Rejection:
    """A refused part of a file as it is reported and stored."""
    return Rejection(
        source.name,
        misread.number,
        source.kind,
        misread.fault.reason,
        misread.fault.message,
        misread.text,
        misread.fault.field,
        misread.fault.value,
    )


def _load_and_keep(bulk: Bulk, batch: Batch, rules: Rules, seen: set[int]) -> Outcome:
    outcome = load_batch(bulk, batch, rules, seen)
    _store_rejections(bulk, [rejection(batch.source, misread) for misread in outcome.refused], rules.now)
    return outcome


def _store_rejections(bulk: Bulk, rejections: list[Rejection], now: datetime) -> None:
    """Keep refused records; one that is stored already is only open again."""
    if not rejections:
        return
    columns = ("file", "line", "kind", "field", "value", "reason", "message", "record")
    staged = {name: [getattr(rejection, name) for rejection in rejections] for name in columns}
    # The hash tells apart different records that stood in the same line at different times.
    staged["record_hash"] = [
        hashlib.blake2b(rejection.record.encode(), digest_size=16).hexdigest() for rejection in rejections
    ]
    types = dict.fromkeys(staged, pa.string()) | {"line": pa.int64()}
    bulk.stage("ingest_rejected", pa.table({name: pa.array(staged[name], types[name]) for name in staged}))
    names = ", ".join(staged)
    bulk.execute(
        f"INSERT INTO rejected_records ({names}, rejected_at) SELECT DISTINCT ON (file, line, kind, "  # noqa: S608
        f"record_hash, reason) {names}, '{now.isoformat()}'::timestamptz FROM ingest_rejected "
        "ON CONFLICT (file, line, kind, record_hash, reason) DO UPDATE SET resolved_at = NULL"
    )


# ---------------------------------------------------------------------------------------------- one block


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored version of a record's thing."""

    version: int
    known_us: int
    retracted: bool
    differs: bool


@dataclass(slots=True)
class _Decisions:
    """What is to be done with the records of a batch."""

    accepted: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    known_us: list[int] = field(default_factory=list)
    revised: list[int] = field(default_factory=list)  # positions within accepted
    refused: list[Misread] = field(default_factory=list)
    keys: list[Hashable] = field(default_factory=list)
    unchanged: int = 0
    still_retracted: int = 0


def lock(bulk: Bulk) -> None:
    """Wait until no other transaction writes input tables; held until the end of this one."""
    bulk.arrow(f"SELECT pg_advisory_xact_lock({LOCK})::text AS held")


def load_batch(bulk: Bulk, batch: Batch, rules: Rules, seen: set[int]) -> Outcome:
    """Write what is new or revised; ``seen`` holds hashes of keys this load has met in earlier blocks."""
    lock(bulk)
    under_ids(batch, ids_by_name(bulk))
    target = TARGETS[batch.source.kind]
    decided = _decide(batch, rules, _stored_versions(bulk, batch, target), seen)
    counts = Counts(
        read=batch.read,
        inserted=len(decided.accepted) - len(decided.revised),
        unchanged=decided.unchanged,
        revised=len(decided.revised),
        rejected=len(batch.misread) + len(decided.refused),
    )
    outcome = Outcome(counts, batch.misread + decided.refused, keys=decided.keys)
    outcome.still_retracted = decided.still_retracted
    if decided.accepted:
        _write(bulk, batch, target, decided, outcome)
        accepted = np.array(decided.accepted)
        own, primary = batch.own_us[accepted], batch.primary_us[accepted]
        if rules.known_at == "now" and batch.source.kind in {
            Kind.DOCUMENTS,
            Kind.GLOBAL_EVENTS,
            Kind.MARKET_DATA,
        }:
            outcome.old = int(((own == UNKNOWN_US) & (primary < micros(rules.now) - OLD_US)).sum())
        if rules.known_at == "published":
            outcome.backdated = int((own[decided.revised] == UNKNOWN_US).sum())
    return outcome


def _stored_versions(bulk: Bulk, batch: Batch, target: Target) -> dict[int, list[_Stored]]:
    """Every stored version of the batch's keys, by position, oldest first."""
    if len(batch) == 0:
        return {}
    staged = (*target.key, *target.content)
    quoted = ", ".join(staged)
    bulk.execute(
        f"CREATE TEMPORARY TABLE ingest_stage ON COMMIT DROP AS SELECT 0 AS position, {quoted} "  # noqa: S608
        f"FROM {target.table} WITH NO DATA"
    )
    positions = pa.array(np.arange(len(batch), dtype=np.int32))
    bulk.append(
        "ingest_stage", batch.rows.select(staged).add_column(0, "position", positions), temporary=True
    )
    # One index look-up per key, whatever the planner believes about a table without statistics: its other
    # plans read the whole table for every block.
    for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"):
        bulk.execute(f"SET LOCAL {setting} = off")
    same_key = " AND ".join(f"t.{name} = s.{name}" for name in target.key)
    differs = " OR ".join(f"t.{name} IS DISTINCT FROM s.{name}" for name in target.content)
    rows = bulk.arrow(
        f"SELECT s.position, t.version, t.known_at, t.retracted, ({differs}) AS differs "  # noqa: S608
        f"FROM ingest_stage s JOIN {target.table} t ON {same_key} "
        "ORDER BY s.position, t.version"
    )
    stored: dict[int, list[_Stored]] = defaultdict(list)
    known = rows["known_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns = [
        rows["position"],
        rows["version"],
        known,
        rows["retracted"],
        rows["differs"],
    ]
    for position, *values in zip(*(column.to_pylist() for column in columns), strict=True):
        stored[position].append(_Stored(*values))
    return stored


def _decide(batch: Batch, rules: Rules, stored: dict[int, list[_Stored]], seen: set[int]) -> _Decisions:
    decided = _Decisions()
    default_us = rules.default_known_us(batch.primary_us).tolist()
    own_us = batch.own_us.tolist()
    taken: dict[Hashable, int] = {}
    for i, key in enumerate(batch.keys):
        own = own_us[i]
        versions = stored.get(i)
        earlier = taken.get(key)
        if versions is not None and _is_stored(versions, own, rules):
            decided.unchanged += 1
            decided.still_retracted += versions[-1].retracted
            decided.keys.append(key)
            taken.setdefault(key, i)
            continue
        if (
            earlier is not None
            and batch.contents[earlier] == batch.contents[i]
            and own in {UNKNOWN_US, own_us[earlier]}
        ):
            decided.unchanged += 1
            continue
        refusal = None
        if earlier is not None:
            refusal = _conflict(batch, i, f"stands in line {batch.numbers[earlier]} with other content")
        elif versions is not None and not rules.revise:
            refusal = _conflict(batch, i, f"is stored with other content {_since(versions[-1])}")
        elif versions is not None and hash(key) in seen:
            refusal = _conflict(batch, i, "stands earlier in this file with other content")
        elif versions is not None and UNKNOWN_US < own < versions[-1].known_us:
            refusal = fault(
                Reason.KNOWN_TOO_EARLY,
                f"known_at of this revision is before that of what it revises {_since(versions[-1])}",
                field="known_at",
                value=(EPOCH + timedelta(microseconds=own)).isoformat(),
            )
        if refusal is not None:
            text = original(batch.lines[i], batch.columns)
            decided.refused.append(Misread(batch.numbers[i], text, refusal))
            continue
        taken[key] = i
        decided.keys.append(key)
        known = default_us[i] if own == UNKNOWN_US else own
        if versions is not None:
            decided.revised.append(len(decided.accepted))
            known = max(known, versions[-1].known_us)
        decided.accepted.append(i)
        decided.versions.append(1 if versions is None else versions[-1].version + 1)
        decided.known_us.append(known)
    return decided


def _is_stored(versions: list[_Stored], own_us: int, rules: Rules) -> bool:
    """Whether a version says the same. An older one counts too, except where a revision may restore it."""
    restores = rules.revise and own_us == UNKNOWN_US
    return any(
        not version.differs and own_us in {UNKNOWN_US, version.known_us}
        for version in (versions[-1:] if restores else versions)
    )


def _since(stored: _Stored) -> str:
    known = (EPOCH + timedelta(microseconds=stored.known_us)).isoformat()
    return f"(version {stored.version}{', retracted' if stored.retracted else ''}, known since {known})"


def _conflict(batch: Batch, i: int, what: str) -> Fault:
    target = TARGETS[batch.source.kind]
    key = batch.keys[i]
    if batch.source.kind is Kind.MARKET_DATA:
        entity, day = cast("tuple[str, int]", key)
        name = f"{entity} {(EPOCH + timedelta(days=day)).date().isoformat()}"
    elif isinstance(key, bytes):
        name = str(UUID(bytes=key))
    else:
        name = " – ".join(key) if isinstance(key, tuple) else str(key)
    return fault(Reason.CONFLICT, f"the {target.noun} {name} {what}", field=target.field, value=name)


_DOCUMENT_COLUMNS: Final = (
    "source_id",
    "source_type",
    "title",
    "url",
    "story_id",
    "published_at",
    "version",
)
_INTELLIGENCE_COLUMNS: Final = (
    "document_id",
    "source_id",
    "source_type",
    "published_at",
    "failed",
    "extraction_confidence",
    "credibility",
    "novelty",
    "content_hash",
    "version",
    "known_at",
)


def tables_of(batch: Batch, accepted: Int, versions: list[int], known_us: list[int]) -> dict[str, pa.Table]:
    """The rows of accepted records per table, in the order in which foreign keys want them written."""
    rows = batch.rows if len(accepted) == len(batch) else batch.rows.take(pa.array(accepted))
    rows = rows.append_column("version", pa.array(versions, pa.int32()))
    rows = rows.append_column("known_at", pa.array(known_us, pa.int64()).cast(TIMESTAMP))
    if batch.impacts is None:
        return {TARGETS[batch.source.kind].table: rows}
    documents = rows.select(_DOCUMENT_COLUMNS).add_column(0, "id", rows["document_id"])
    documents = documents.append_column("status", pc.if_else(rows["failed"], "failed", "extracted"))
    row_of = np.full(len(batch), -1, np.int64)
    row_of[accepted] = np.arange(len(accepted))
    row = row_of[batch.impacts["record"].to_numpy()]
    impacts = batch.impacts.drop_columns(["record"])
    if len(accepted) < len(batch):
        impacts, row = impacts.filter(pa.array(row >= 0)), row[row >= 0]
    for name in ("document_id", "version", "published_at"):
        impacts = impacts.append_column(name, rows[name].take(pa.array(row)))
    return {
        "documents": documents,
        "document_intelligence": rows.select(_INTELLIGENCE_COLUMNS),
        "document_impact_records": impacts,
    }


def _write(bulk: Bulk, batch: Batch, target: Target, decided: _Decisions, outcome: Outcome) -> None:
    tables = tables_of(batch, np.array(decided.accepted, np.int64), decided.versions, decided.known_us)
    if decided.revised:
        _supersede(bulk, target, decided)
        if "documents" in tables:
            revised = np.zeros(len(decided.accepted), np.bool_)
            revised[decided.revised] = True
            _update_documents(bulk, tables["documents"].filter(pa.array(revised)), outcome)
            tables["documents"] = tables["documents"].filter(pa.array(~revised))
    for name, table in tables.items():
        bulk.append(name, table)
    for name, column in _ENTITY_COLUMNS:
        if name in tables:
            outcome.entities.update(pc.unique(tables[name][column]).to_pylist())


def _supersede(bulk: Bulk, target: Target, decided: _Decisions) -> None:
    """Mark the version before each revision as no longer holding from the revision's ``known_at`` on."""
    revised = decided.revised
    columns = {
        "position": pa.array([decided.accepted[i] for i in revised], pa.int32()),
        "previous": pa.array([decided.versions[i] - 1 for i in revised], pa.int32()),
        "known_at": pa.array([decided.known_us[i] for i in revised], pa.int64()).cast(TIMESTAMP),
    }
    bulk.stage("ingest_revised", pa.table(columns))
    same_key = " AND ".join(f"t.{name} = s.{name}" for name in target.key)
    bulk.execute(
        f"UPDATE {target.table} t SET superseded_known_at = r.known_at, "  # noqa: S608
        "superseded_xid = pg_current_xact_id() FROM ingest_revised r JOIN ingest_stage s USING (position) "
        f"WHERE {same_key} AND t.version = r.previous"
    )


def _update_documents(bulk: Bulk, documents: pa.Table, outcome: Outcome) -> None:
    """Show the newest version in ``documents``, and count entities as affected that the old one named."""
    bulk.execute("CREATE TEMPORARY TABLE ingest_documents (LIKE documents INCLUDING DEFAULTS) ON COMMIT DROP")
    bulk.append("ingest_documents", documents, temporary=True)
    changes = ", ".join(f"{name} = n.{name}" for name in (*_DOCUMENT_COLUMNS, "status"))
    bulk.execute(
        f"UPDATE documents d SET {changes}, retraction_reason = NULL "  # noqa: S608
        "FROM ingest_documents n WHERE d.id = n.id"
    )
    before = bulk.arrow(
        "SELECT DISTINCT i.entity_id FROM ingest_documents n "
        "JOIN document_impact_records i ON i.document_id = n.id AND i.version = n.version - 1"
    )
    outcome.entities.update(before["entity_id"].to_pylist())
