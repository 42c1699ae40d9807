"""What an ingest did: counts per kind, warnings, what was refused, which entities changed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from oracle_dagster.ingestion.models import Kind, Reason
from oracle_dagster.storage.database import StorageError

MAX_REJECTIONS_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refused record: where it stood, what is wrong, its original text (also in ``rejected_records``)."""

    file: str
    line: int
    kind: Kind
    reason: Reason
    message: str
    record: str
    field: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.file}, line {self.line}: {self.message}"


@dataclass(slots=True)
class Counts:
    """Records of one kind; ``read`` is the sum of the others."""

    read: int = 0
    inserted: int = 0
    unchanged: int = 0
    revised: int = 0
    rejected: int = 0

    def add(self, other: Counts) -> None:
        """Add another block's counts."""
        self.read += other.read
        self.inserted += other.inserted
        self.unchanged += other.unchanged
        self.revised += other.revised
        self.rejected += other.rejected


@dataclass(slots=True)
class IngestReport:
    """The outcome of an ingest, as far as it came.

    ``rejections`` holds the first hundred; all are in ``rejected_records``. ``entities`` names, per kind,
    whose rows changed (events touch none by name).
    """

    counts: dict[Kind, Counts] = field(default_factory=lambda: defaultdict(Counts))
    files: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    entities: dict[Kind, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def total(self) -> Counts:
        """The counts of all kinds together."""
        total = Counts()
        for counts in self.counts.values():
            total.add(counts)
        return total

    @property
    def affected_entities(self) -> set[str]:
        """Every entity of which a row was written."""
        return set().union(*self.entities.values())

    def summary(self) -> str:
        """One sentence per kind."""
        return "; ".join(
            f"{kind.value}: {c.read} read, {c.inserted} new, {c.revised} revised, {c.unchanged} unchanged, "
            f"{c.rejected} rejected"
            for kind, c in sorted(self.counts.items())
        )


class IngestStoppedError(StorageError):
    """The database failed midway; ``report`` tells what is loaded, and a repeat continues from there."""

    def __init__(self, cause: StorageError, report: IngestReport) -> None:
        """Say how far the load came."""
        done = report.summary() or "nothing was loaded"
        super().__init__(
            f"{cause} Loaded up to here: {done}. Nothing is half written; run the same command again and it "
            "continues, as loaded records are recognised.",
            sqlstate=cause.sqlstate,
            transient=cause.transient,
        )
        self.report = report
