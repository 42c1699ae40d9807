"""Records that could not be loaded: listed, and tried again from their kept text."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlalchemy as sa

from oracle_dagster.ingestion.columns import columns_of
from oracle_dagster.ingestion.formats import BLOCK_RECORDS, Block, Misread, Source
from oracle_dagster.ingestion.load import KnownAt, Outcome, Rules, load_batch, rejection
from oracle_dagster.ingestion.models import Kind, Reason
from oracle_dagster.ingestion.report import IngestReport, IngestStoppedError, Rejection
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.schema import rejected_records

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from oracle_dagster.storage.database import Bulk, Database

# What is kept of these is not the record itself: only the file can be loaded again.
NOT_KEPT_WHOLE: Final = (
    Reason.NOT_UTF8,
    Reason.NUL_CHARACTER,
    Reason.LINE_TOO_LONG,
    Reason.TRUNCATED_FILE,
    Reason.UNREADABLE_FILE,
    Reason.WRONG_SEPARATOR,
)


@dataclass(frozen=True, slots=True)
class StoredRejection:
    """A row of ``rejected_records``."""

    id: int
    rejection: Rejection
    rejected_at: datetime
    resolved_at: datetime | None


@dataclass(slots=True)
class RetryReport:
    """What a retry did: records now loaded (``resolved``), still refused, and not retried at all.

    ``skipped`` are those whose original bytes are not kept; they need their file to be loaded again.
    """

    ingest: IngestReport = field(default_factory=IngestReport)
    resolved: int = 0
    remaining: int = 0
    skipped: int = 0


def list_rejected(
    database: Database,
    *,
    include_resolved: bool = False,
    kind: Kind | None = None,
    limit: int | None = None,
) -> list[StoredRejection]:
    """Return refused records, newest load last, those of one file in the order of its lines.

    Args:
        database: where from.
        include_resolved: also those that were loaded since.
        kind: only of this kind.
        limit: at most so many.

    """
    with database.begin() as connection:
        return [_stored(row) for row in connection.execute(_query(include_resolved, kind, None, limit))]


def retry_rejected(
    database: Database,
    *,
    now: datetime,
    known_at: KnownAt = "now",
    revise: bool = False,
    ids: Collection[int] | None = None,
    kind: Kind | None = None,
) -> RetryReport:
    """Judge kept records again and load those that are valid now (after a change of rules, or to revise).

    Args:
        database: where the records are kept and go to.
        now: the moment of the retry; records without ``known_at`` of their own become known then.
        known_at: as for ``ingest``.
        revise: load a record that conflicts with a stored one as its new version.
        ids: only these rows of ``rejected_records``; all open ones if None.
        kind: only records of this kind.

    Raises:
        IngestStoppedError: the database failed; each block is loaded entirely or not at all.

    """
    report = RetryReport()
    rules = Rules(now, known_at, revise)
    try:
        with database.begin() as connection:
            rows = [_stored(row) for row in connection.execute(_query(False, kind, ids, None))]  # noqa: FBT003
        retried = [row for row in rows if _is_whole(row.rejection)]
        report.skipped = len(rows) - len(retried)
        for blocks in _blocks(retried):
            _retry(database, blocks, rules, report)
    except StorageError as error:
        raise IngestStoppedError(error, report.ingest) from error
    return report


def _query(
    include_resolved: bool,  # noqa: FBT001
    kind: Kind | None,
    ids: Collection[int] | None,
    limit: int | None,
) -> sa.Select[Any]:
    table = rejected_records.c
    query = sa.select(rejected_records).order_by(table.rejected_at, table.file, table.line, table.id)
    if not include_resolved:
        query = query.where(table.resolved_at.is_(None))
    if kind is not None:
        query = query.where(table.kind == kind.value)
    if ids is not None:
        query = query.where(table.id.in_(ids))
    return query if limit is None else query.limit(limit)


def _stored(row: sa.Row[Any]) -> StoredRejection:
    refused = Rejection(
        row.file, row.line, Kind(row.kind), Reason(row.reason), row.message, row.record, row.field, row.value
    )
    return StoredRejection(row.id, refused, row.rejected_at, row.resolved_at)


def _is_whole(refused: Rejection) -> bool:
    return refused.reason not in NOT_KEPT_WHOLE and refused.record != "" and refused.field != "header"


@dataclass(slots=True)
class _Retried:
    block: Block
    ids: dict[int, int]  # line -> id


def _blocks(rows: list[StoredRejection]) -> list[_Retried]:
    """Group records that were read alike; in a block each line number occurs once and so names a record."""
    blocks: dict[tuple[str, Kind, str, int], list[_Retried]] = defaultdict(list)
    times: dict[tuple[str, Kind, int], int] = defaultdict(int)
    for row in rows:
        kept = row.rejection
        header, _, line = kept.record.rpartition("\n")
        nth = times[kept.file, kept.kind, kept.line]
        times[kept.file, kept.kind, kept.line] += 1
        group = blocks[kept.file, kept.kind, header, nth]
        if not group or len(group[-1].ids) >= BLOCK_RECORDS:
            columns = tuple(header.split(",")) if header != "" else None
            source = Source(Path(kept.file), kept.kind, "jsonl" if columns is None else "csv", kept.file)
            group.append(_Retried(Block(source, columns), {}))
        block = group[-1].block
        block.lines.append(line.encode())
        block.numbers.append(kept.line)
        group[-1].ids[kept.line] = row.id
    return [block for group in blocks.values() for block in group]


def _retry(database: Database, retried: _Retried, rules: Rules, report: RetryReport) -> None:
    batch = columns_of(retried.block)

    def work(bulk: Bulk) -> Outcome:
        outcome = load_batch(bulk, batch, rules, set())
        _record_outcome(bulk, retried.ids, outcome.refused, rules.now)
        return outcome

    outcome = database.run(work)
    kind = batch.source.kind
    report.ingest.counts[kind].add(outcome.counts)
    report.ingest.entities[kind] |= outcome.entities
    report.ingest.rejections.extend(rejection(batch.source, misread) for misread in outcome.refused)
    report.remaining += len(outcome.refused)
    report.resolved += len(retried.ids) - len(outcome.refused)


def _record_outcome(bulk: Bulk, ids: dict[int, int], refused: list[Misread], now: datetime) -> None:
    """Close what was loaded; of what is still refused, keep the newest reason."""
    faults = {ids[misread.number]: misread.fault for misread in refused}
    every = sorted(ids.values())
    columns: dict[str, pa.Array] = {"id": pa.array(every, pa.int64())}
    for name in ("field", "value", "reason", "message"):
        texts = [getattr(faults[row], name) if row in faults else None for row in every]
        columns[name] = pa.array(texts, pa.string())
    bulk.stage("ingest_retried", pa.table(columns))
    moment = f"'{now.isoformat()}'::timestamptz"
    bulk.execute(
        f"UPDATE rejected_records r SET resolved_at = {moment} FROM ingest_retried t "  # noqa: S608
        "WHERE r.id = t.id AND t.reason IS NULL"
    )
    bulk.execute(
        "UPDATE rejected_records r "
        "SET field = t.field, value = t.value, reason = t.reason, message = t.message "
        "FROM ingest_retried t WHERE r.id = t.id AND t.reason IS NOT NULL AND NOT EXISTS ("
        "SELECT FROM rejected_records o WHERE o.id <> r.id AND o.file = r.file AND o.line = r.line "
        "AND o.kind = r.kind AND o.record_hash = r.record_hash AND o.reason = t.reason)"
    )
