"""Ids of result rows: uuid5 of their natural key, so that repeating a cycle writes the same rows."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Final

NAMESPACE: Final = uuid.UUID("6f7261c1-e5d4-5b1a-9c3e-70726f647563")

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def row_id(kind: str, *natural_key: object) -> str:
    """The id of a row; equal to ``uuid.uuid5(NAMESPACE, …)`` of the parts joined by a unit separator."""
    name = "\x1f".join((kind, *map(str, natural_key)))
    digest = hashlib.sha1(NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def is_document_id(signal_id: str) -> bool:
    """Whether an id is a document's, a UUID; ``macro:…``, ``competitor:…``, ``pattern:…`` are not (R61).

    Implements: R61, R124.
    """
    return _UUID.fullmatch(signal_id) is not None
