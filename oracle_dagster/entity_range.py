"""Which entities an installation computes, where several share one domain database.

The orchestrator is comfortable up to about 100,000 partitions of an asset. Beyond, several installations,
each with a home and a storage of the orchestrator of its own, divide the entities by ranges of their names
and work on the same domain database. Inputs are read whole by each, so news spreads across ranges, and
results are those of a single installation.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from oracle_core.enums import Window

if TYPE_CHECKING:
    from collections.abc import Iterable

FROM_VARIABLE: Final = "ORACLE_ENTITIES_FROM"
BEFORE_VARIABLE: Final = "ORACLE_ENTITIES_BEFORE"
COMFORTABLE_PARTITIONS: Final = 100_000
"""What the orchestrator's documentation allows for an asset; its pages and its daemon slow down beyond."""


class EntityRangeError(ValueError):
    """The range holds nothing; the message says which settings and how."""


def bounds() -> tuple[str, str | None]:
    """From this name on, and before that one, by code point; an empty setting does not bound.

    Raises:
        EntityRangeError: the end does not come after the start.

    """
    first = os.environ.get(FROM_VARIABLE, "")
    before = os.environ.get(BEFORE_VARIABLE, "") or None
    if before is not None and before <= first:
        raise EntityRangeError(
            f"{FROM_VARIABLE} is {first!r} and {BEFORE_VARIABLE} is {before!r}, so no name lies between; set "
            "the second to a later name, by code point, or unset one of them"
        )
    return first, before


def is_divided() -> bool:
    """Whether this installation leaves entities to others."""
    return bounds() != ("", None)


def own(entities: Iterable[str]) -> list[str]:
    """Those that this installation computes, in the order given.

    Raises:
        EntityRangeError: the range holds nothing.

    """
    first, before = bounds()
    return [name for name in entities if name >= first and (before is None or name < before)]


def too_many(entities: int) -> str | None:
    """What to say where so many entities are more than the orchestrator is comfortable with; else None."""
    partitions = entities * len(Window)
    if partitions <= COMFORTABLE_PARTITIONS:
        return None
    homes = -(-partitions // COMFORTABLE_PARTITIONS)
    return (
        f"{entities:,} entities are {partitions:,} partitions of each asset; Dagster is comfortable up to "
        f"{COMFORTABLE_PARTITIONS:,}. The results are unaffected, but its pages and its daemon slow down. "
        f"Remedy: {homes} code locations by entity range on the same ORACLE_DATABASE_URL, each with a "
        f"home and an ORACLE_DAGSTER_DATABASE_URL of its own, and with {FROM_VARIABLE} and {BEFORE_VARIABLE} "
        "set to its range; see docs/operations.md."
    )
