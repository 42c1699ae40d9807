"""Withdraw a document: from a moment on it no longer counts, though every earlier cycle keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import sqlalchemy as sa

from oracle_dagster.ingestion.load import LOCK
from oracle_dagster.storage.schema import document_impact_records, document_intelligence, documents

if TYPE_CHECKING:
    from datetime import datetime

    from oracle_dagster.storage.database import Database

_COPIED: Final = (
    "document_id",
    "source_id",
    "source_type",
    "published_at",
    "failed",
    "extraction_confidence",
    "credibility",
    "novelty",
    "content_hash",
)


class RetractionError(ValueError):
    """The document cannot be withdrawn like this; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Retraction:
    """A withdrawn document: the version that says so, from when on, whom it named.

    ``changed`` is false if it had been withdrawn before; then the earlier retraction stands.
    """

    document_id: str
    version: int
    known_at: datetime
    entities: tuple[str, ...]
    changed: bool


def retract(
    database: Database, document_id: str, *, reason: str, now: datetime, known_at: datetime | None = None
) -> Retraction:
    """Withdraw a document from ``known_at`` on (``now`` if None); a new version says so, nothing is deleted.

    Raises:
        RetractionError: no such document, no reason, or ``known_at`` before the document was known.

    """
    try:
        identity = UUID(document_id)
    except ValueError:
        raise RetractionError(
            f"{document_id!r} is not a UUID; give the document_id of the document"
        ) from None
    if reason.strip() == "" or "\x00" in reason:
        raise RetractionError("a retraction needs a reason; give one with --reason")
    table = document_intelligence.c
    with database.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        current = connection.execute(
            sa.select(document_intelligence).where(
                table.document_id == identity, table.superseded_xid.is_(None)
            )
        ).one_or_none()
        if current is None:
            raise RetractionError(f"there is no document {identity}; `oracle export documents` lists them")
        if current.retracted:
            known = current.known_at.astimezone(UTC)
            return Retraction(str(identity), current.version, known, (), changed=False)
        if known_at is not None and known_at < current.known_at:
            raise RetractionError(
                f"known_at {known_at.isoformat()} is before {current.known_at.isoformat()}, when document "
                f"{identity} became known; give a later known_at or leave it out"
            )
        moment = (max(now, current.known_at) if known_at is None else known_at).astimezone(UTC)
        _write(connection, current, moment, reason)
        entities = connection.execute(
            sa.select(document_impact_records.c.entity_id)
            .where(
                document_impact_records.c.document_id == identity,
                document_impact_records.c.version == current.version,
            )
            .order_by(document_impact_records.c.entity_id)
        ).scalars()
        return Retraction(str(identity), current.version + 1, moment, tuple(entities), changed=True)


def _write(connection: sa.Connection, current: sa.Row[Any], moment: datetime, reason: str) -> None:
    table = document_intelligence.c
    version = current.version + 1
    connection.execute(
        sa.update(document_intelligence)
        .where(table.document_id == current.document_id, table.version == current.version)
        .values(superseded_known_at=moment, superseded_xid=sa.func.pg_current_xact_id())
    )
    copied = {name: current._mapping[name] for name in _COPIED}  # noqa: SLF001 - the public name of a row's dict
    connection.execute(
        sa.insert(document_intelligence).values(**copied, version=version, known_at=moment, retracted=True)
    )
    connection.execute(
        sa.update(documents)
        .where(documents.c.id == current.document_id)
        .values(status="retracted", version=version, retraction_reason=reason)
    )
