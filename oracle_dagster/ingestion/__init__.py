"""Ingestion: files of records become versioned rows of the input tables; bad records are kept aside."""

from __future__ import annotations
