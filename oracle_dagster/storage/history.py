"""Reading the history of the trends, which may be missing without anything else suffering (R59, C33)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from oracle_dagster.storage.database import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from oracle_dagster.storage.database import Bulk

_log = logging.getLogger(__name__)
_HISTORY: Final = "trend_history"
_NOTHING: Final = "(TABLE trend_windows LIMIT 0)"  # the same columns


def ask_history(bulk: Bulk, query: Callable[[str], str], params: tuple[object, ...] = ()) -> pa.Table:
    """What a query about the history answers; where that cannot be read, as if it were empty.

    Args:
        bulk: the transaction.
        query: the query from what stands after ``FROM``; it must give that an alias.
        params: of the query.

    Raises:
        StorageError: the database was lost, or the query fails for another reason than the history.

    """
    try:
        with bulk.savepoint("history"):
            return bulk.arrow(query(_HISTORY), params)
    except StorageError as error:
        if error.transient:
            raise
        _log.warning("the history of the trends cannot be read, it is taken for empty: %s", error)
        return bulk.arrow(query(_NOTHING), params)
