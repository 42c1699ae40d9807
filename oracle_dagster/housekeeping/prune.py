"""Remove history beyond a retention: results, logs, and the orchestrator's events.

Inputs and configurations stay for ever. Of the results everything of the cycles from the limit on stays, and
of every key beside that whatever such a cycle refers to: the recommendation that stands with all rows of its
cycle, and the newest earlier cycles of each stage, from which a repeat takes its momentum, its predecessor
and its upstream rows. So every cycle from the limit on is repeated bit for bit after pruning; of earlier
cycles what is left can be read, but they cannot be repeated. A key whose cycles were written in another order
than they look from keeps everything.

The orchestrator's events are only an index of the tables: the newest of every asset and partition stays, so
that what is stale and what is materialised does not change; older events go, and runs with none left.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import psycopg
import sqlalchemy as sa

from oracle_dagster.storage import configuration, cycles, seals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from oracle_dagster.storage.database import Bulk, Database

    Progress = Callable[[str, int, int], None]

ENTITIES_AT_ONCE: Final = 500
EVENTS_AT_ONCE: Final = 50_000
_SEQUENCES: Final = tuple(cycles.SEQUENCES.values())
# Results by key and cycle: table, its window, its moment. Those that refer to others first.
_RESULTS: Final = (
    ("recommendations", "time_horizon", "generated_at"),
    ("trend_projections", '"window"', "computed_at"),
    ("trend_history", '"window"', "generated_at"),
    ("cycle_keys", '"window"', "as_of"),
)
_FINISHED: Final = ("SUCCESS", "FAILURE", "CANCELED")
# The events by which the orchestrator knows what is materialised and what is stale.
_ASSET_EVENTS: Final = ("ASSET_MATERIALIZATION", "ASSET_OBSERVATION")


@dataclass
class Pruned:
    """What went, or would go: rows by table; ``kept_events`` were old but the newest of their partition."""

    before: datetime
    dry_run: bool
    tables: Counter[str] = field(default_factory=Counter)
    orchestrator: Counter[str] = field(default_factory=Counter)
    kept_events: int = 0


class _Rehearsed(Exception):  # noqa: N818 - no error: it only ends a transaction without a trace
    """Rolls back what a dry run has counted."""


def prune(
    database: Database,
    dagster_url: str,
    before: datetime,
    *,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> Pruned:
    """Remove what is older than ``before``; safe to interrupt and to repeat.

    Args:
        database: the domain database.
        dagster_url: libpq address of the orchestrator's.
        before: results of cycles that look from earlier, and logs and events written earlier, may go.
        dry_run: count only.
        on_progress: told what is done, and how far.

    Raises:
        StorageError: the domain database cannot be used.
        psycopg.Error: the orchestrator's cannot.

    """
    done = Pruned(before, dry_run)
    if not dry_run:
        seals.checkpoint(database, before)  # from here on the chain of hashes knows that rows go lawfully
    _prune_results(database, done, on_progress)
    _prune_events(dagster_url, done, on_progress)
    return done


# --------------------------------------------------------------------------------------------- results


def _prune_results(database: Database, done: Pruned, on_progress: Progress | None) -> None:
    depth = max(
        (version.config.projection.ew_max_differences + 1 for version in configuration.history(database)),
        default=1,
    )
    with database.begin() as connection:
        entities = (
            connection.execute(
                sa.text("SELECT DISTINCT entity_id FROM cycle_keys WHERE as_of < :before ORDER BY entity_id"),
                {"before": done.before},
            )
            .scalars()
            .all()
        )
    blocks = [list(entities[at : at + ENTITIES_AT_ONCE]) for at in range(0, len(entities), ENTITIES_AT_ONCE)]
    if done.dry_run:  # in one transaction, for what several keys share depends on every key
        with contextlib.suppress(_Rehearsed):
            database.run(lambda bulk: _rehearse(bulk, blocks, depth, done))
        return
    for number, block in enumerate(blocks):
        if on_progress is not None:
            on_progress("results", number * ENTITIES_AT_ONCE, len(entities))
        done.tables += database.run(partial(_results, block=block, before=done.before, depth=depth))
    done.tables += database.run(partial(_shared, before=done.before))


def _rehearse(bulk: Bulk, blocks: Sequence[list[str]], depth: int, done: Pruned) -> None:
    done.tables.clear()  # the transaction may be tried again
    for block in blocks:
        done.tables += _results(bulk, block, done.before, depth)
    done.tables += _shared(bulk, done.before)
    raise _Rehearsed


def _results(bulk: Bulk, block: list[str], before: datetime, depth: int) -> Counter[str]:
    """Remove the old results of some entities, under their locks."""
    cycles.lock_entities(bulk, block)
    _keep(bulk, block, before, depth)
    counted = Counter(
        {
            table: _removed(
                bulk,
                f"""DELETE FROM {table} t WHERE t.entity_id = ANY($1::text[]) AND t.{as_of} < $2
                    AND NOT EXISTS (SELECT FROM pg_temp.kept k WHERE k.entity_id = t.entity_id
                      AND k."window" = t.{window} AND k.as_of = t.{as_of}
                      AND k.config_version = t.config_version)""",
                (block, before),
            )
            for table, window, as_of in _RESULTS
        }
    )
    bulk.execute("DROP TABLE pg_temp.kept")
    return counted


def _keep(bulk: Bulk, block: list[str], before: datetime, depth: int) -> None:
    """Fill ``kept`` with the keys and cycles that stay."""
    newest = " OR ".join(f"newest_{column} <= {depth}" for column in _SEQUENCES)
    ranks = ", ".join(
        f"""CASE WHEN {column} IS NOT NULL THEN dense_rank() OVER (
              PARTITION BY entity_id, "window", {column} IS NULL ORDER BY as_of DESC) END
            AS newest_{column}"""
        for column in _SEQUENCES
    )
    listed = ", ".join(_SEQUENCES)
    bulk.execute(
        """CREATE TEMPORARY TABLE kept (entity_id text NOT NULL, "window" text NOT NULL,
             as_of timestamptz NOT NULL, config_version integer NOT NULL, standing uuid)"""
    )
    bulk.execute(
        f"""
        INSERT INTO pg_temp.kept
        WITH own AS (SELECT * FROM cycle_keys WHERE entity_id = ANY($1::text[])),
        later AS (SELECT entity_id, "window", min(least({listed})) AS first_written FROM own
                  WHERE as_of >= $2 GROUP BY 1, 2),
        disordered AS (SELECT DISTINCT o.entity_id, o."window" FROM own o JOIN later l
                         ON l.entity_id = o.entity_id AND l."window" = o."window"
                       WHERE o.as_of < $2 AND greatest({", ".join("o." + c for c in _SEQUENCES)})
                             > l.first_written),
        earlier AS (SELECT own.*, {ranks} FROM own WHERE as_of < $2)
        SELECT entity_id, "window", as_of, config_version, standing_recommendation_id FROM own
        WHERE as_of >= $2
        UNION ALL
        SELECT e.entity_id, e."window", e.as_of, e.config_version, e.standing_recommendation_id
        FROM earlier e LEFT JOIN disordered d ON d.entity_id = e.entity_id AND d."window" = e."window"
        WHERE d.entity_id IS NOT NULL OR {newest}""",
        (block, before),
    )
    bulk.execute("""
        INSERT INTO pg_temp.kept (entity_id, "window", as_of, config_version)
        SELECT r.entity_id, r.time_horizon, r.generated_at, r.config_version FROM recommendations r
        WHERE r.id IN (SELECT standing FROM pg_temp.kept)""")


def _removed(bulk: Bulk, statement: str, params: Sequence[object]) -> int:
    counted = bulk.arrow(f"WITH gone AS ({statement} RETURNING 1) SELECT count(*) AS n FROM gone", params)
    return int(counted.column("n")[0].as_py())


# ----------------------------------------------------------------------------- what several keys share

# In this order: a cycle stays while a key does, an accuracy while a cycle uses it, a log with its cycle.
_SHARED: Final = {
    "cycles": """DELETE FROM cycles c WHERE c.as_of < $1
        AND NOT EXISTS (SELECT FROM cycle_keys k WHERE k.as_of = c.as_of
                          AND k.config_version = c.config_version)""",
    "source_accuracy_history": """DELETE FROM source_accuracy_history h WHERE h.as_of < $1
        AND h.as_of < (SELECT max(as_of) FROM source_accuracy_history WHERE as_of <= $1)
        AND NOT EXISTS (SELECT FROM cycles c WHERE c.accuracy_as_of = h.as_of
                          AND c.accuracy_config_version = h.config_version)""",
    "run_log": """DELETE FROM run_log l WHERE l.logged_at < $1
        AND NOT EXISTS (SELECT FROM cycles c WHERE c.as_of = l.as_of
                          AND c.config_version = l.config_version)""",
    "cycle_failures": "DELETE FROM cycle_failures WHERE failed_at < $1",
    "run_batches": """DELETE FROM run_batches b WHERE b.created_at < $1
        AND NOT EXISTS (SELECT FROM config_applications a WHERE a.batch_id = b.batch_id)""",
    "agent_performance_log": "DELETE FROM agent_performance_log WHERE created_at < $1",
}


def _shared(bulk: Bulk, before: datetime) -> Counter[str]:
    return Counter({table: _removed(bulk, statement, (before,)) for table, statement in _SHARED.items()})


# ------------------------------------------------------------------------------------------ orchestrator


def _prune_events(dagster_url: str, done: Pruned, on_progress: Progress | None) -> None:
    """Remove old events of finished runs, in bounded transactions; then runs of which none is left."""
    with psycopg.connect(dagster_url, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")  # the orchestrator keeps times without an offset, in UTC
        connection.execute(
            """CREATE TEMPORARY TABLE newest AS
               SELECT max(id) AS id FROM event_logs WHERE dagster_event_type = ANY(%s)
               GROUP BY asset_key, partition, dagster_event_type""",
            [list(_ASSET_EVENTS)],
        )
        connection.execute("ALTER TABLE newest ADD PRIMARY KEY (id)")
        connection.execute(
            """CREATE TEMPORARY TABLE going AS
               SELECT e.id FROM event_logs e LEFT JOIN runs r ON r.run_id = e.run_id
               WHERE e.timestamp < %s::timestamptz::timestamp AND (r.run_id IS NULL OR r.status = ANY(%s))
                 AND NOT EXISTS (SELECT FROM newest n WHERE n.id = e.id)""",
            [done.before, list(_FINISHED)],
        )
        connection.execute("ALTER TABLE going ADD PRIMARY KEY (id)")
        total = _number(connection, "SELECT count(*) FROM going")
        done.kept_events = _number(
            connection,
            """SELECT count(*) FROM newest JOIN event_logs e USING (id)
               WHERE e.timestamp < %s::timestamptz::timestamp""",
            [done.before],
        )
        if done.dry_run:
            done.orchestrator["event_logs"] = total
            return
        while True:
            if on_progress is not None:
                on_progress("events", done.orchestrator["event_logs"], total)
            with connection.transaction():
                gone = _number(
                    connection,
                    """WITH part AS (DELETE FROM going WHERE id IN (SELECT id FROM going ORDER BY id LIMIT %s)
                                     RETURNING id),
                            tags AS (DELETE FROM asset_event_tags t USING part WHERE t.event_id = part.id),
                            events AS (DELETE FROM event_logs e USING part WHERE e.id = part.id RETURNING 1)
                       SELECT count(*) FROM events""",
                    [EVENTS_AT_ONCE],
                )
            if gone == 0:
                break
            done.orchestrator["event_logs"] += gone
        done.orchestrator["asset_check_executions"] = _number(
            connection,
            """WITH gone AS (
                 DELETE FROM asset_check_executions c WHERE c.create_timestamp < %s::timestamptz::timestamp
                   AND EXISTS (SELECT FROM asset_check_executions later
                               WHERE later.asset_key = c.asset_key AND later.check_name = c.check_name
                                 AND later.partition IS NOT DISTINCT FROM c.partition AND later.id > c.id)
                 RETURNING 1) SELECT count(*) FROM gone""",
            [done.before],
        )
        # The tags of a run go with it (ON DELETE CASCADE).
        done.orchestrator["runs"] = _number(
            connection,
            """WITH gone AS (
                 DELETE FROM runs r WHERE r.status = ANY(%s)
                   AND r.update_timestamp < %s::timestamptz::timestamp
                   AND NOT EXISTS (SELECT FROM event_logs e WHERE e.run_id = r.run_id)
                   AND NOT EXISTS (SELECT FROM asset_check_executions c WHERE c.run_id = r.run_id)
                 RETURNING 1) SELECT count(*) FROM gone""",
            [list(_FINISHED), done.before],
        )


def _number(connection: psycopg.Connection, query: str, params: Sequence[object] = ()) -> int:
    row = connection.execute(query, params).fetchone()
    return int(row[0]) if row is not None else 0
