"""Ingestion: files of records become versioned rows of the input tables; bad records are kept aside."""

from __future__ import annotations

from oracle_dagster.ingestion.formats import InputError
from oracle_dagster.ingestion.load import Progress, ingest
from oracle_dagster.ingestion.models import Kind, Reason
from oracle_dagster.ingestion.rejected import RetryReport, StoredRejection, list_rejected, retry_rejected
from oracle_dagster.ingestion.report import Counts, IngestReport, IngestStoppedError, Rejection
from oracle_dagster.ingestion.retract import Retraction, RetractionError, retract

__all__ = [
    "Counts",
    "IngestReport",
    "IngestStoppedError",
    "InputError",
    "Kind",
    "Progress",
    "Reason",
    "Rejection",
    "Retraction",
    "RetractionError",
    "RetryReport",
    "StoredRejection",
    "ingest",
    "list_rejected",
    "retract",
    "retry_rejected",
]
