"""What arrived in the input tables since a place in the order of ended transactions, and what it touches.

Reads by the indexes on ``xid`` and ``superseded_xid``, so that a look costs as much as there are new rows,
however many there are in all. Which entities to compute again is decided in ``oracle_dagster.news``.
"""

# ruff: noqa: S608 - only constants of this package, whole numbers and parameters are put into statements

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from oracle_core.inputs import DIMENSIONS
from oracle_dagster.news import EVENT, LINKS, SPREADS, STAYS, Arrival, Horizon
from oracle_dagster.storage.schema import WINDOWS, config_applications, run_batches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from oracle_core.config import MacroConfig
    from oracle_dagster.storage.database import Bulk, Database

_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)
_LONGEST_WINDOW: Final = timedelta(days=90)
_ALL_WINDOWS: Final = ", ".join(f"('{window}')" for window in WINDOWS)

# Versioned tables: how the news travels, and what a row names.
_NAMES: Final = (
    ("market_bars", SPREADS, "t.entity_id"),
    ("exposure_profiles", STAYS, "t.entity_id"),
    ("competitive_edges", LINKS, "t.source_entity"),
    ("competitive_edges", LINKS, "t.target_entity"),
    ("macro_events", EVENT, "t.id::text || ':' || t.version::text"),
)
_TABLES: Final = tuple(dict.fromkeys(("document_intelligence", *(table for table, _, _ in _NAMES))))


def _between(column: str, since: int, until: int) -> str:
    # Literals, because with parameters the server would guess how many rows there are.
    return f"{column} >= '{since:d}'::xid8 AND {column} < '{until:d}'::xid8"


@contextlib.contextmanager
def _by_index(bulk: Bulk) -> Iterator[None]:
    """Within, new rows are found by index, also in a table of which the server has no statistics yet."""
    settings = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
    for name in settings:
        bulk.execute(f"SET LOCAL {name} = off")
    yield
    for name in settings:
        bulk.execute(f"SET LOCAL {name} TO DEFAULT")


def horizon(bulk: Bulk, config_version: int) -> Horizon:
    """The settled horizon, the database's time, and the sources' accuracy that a cycle would use now."""
    row = bulk.arrow(
        "SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xid, clock_timestamp() AS moment"
    ).to_pylist()[0]
    moment = row["moment"].astimezone(UTC)
    newest = bulk.arrow(
        """SELECT as_of, config_version FROM source_accuracy_history WHERE as_of <= $1
           ORDER BY as_of DESC, (config_version = $2) DESC, config_version DESC LIMIT 1""",
        (moment, config_version),
    ).to_pylist()
    accuracy = "".join(f"{m['as_of'].astimezone(UTC).isoformat()}|{m['config_version']}" for m in newest)
    return Horizon(int(row["xid"]), moment, config_version, accuracy)


def snapshot(bulk: Bulk) -> str:
    """What this transaction sees, as ``cycles.snapshot`` holds it."""
    return str(bulk.arrow("SELECT pg_current_snapshot()::text AS seen").column("seen")[0].as_py())


def any_between(bulk: Bulk, since: int, until: int) -> bool:
    """Whether a row was written or replaced by a transaction in [since, until)."""
    if since >= until:
        return False
    looks = [f"SELECT FROM document_impact_records WHERE {_between('xid', since, until)}"]
    for table in _TABLES:
        looks += [f"SELECT FROM {table} WHERE {_between(x, since, until)}" for x in ("xid", "superseded_xid")]
    with _by_index(bulk):
        found = bulk.arrow(f"SELECT {' OR '.join(f'EXISTS ({look})' for look in looks)} AS found")
    return bool(found.column("found")[0].as_py())


def between(bulk: Bulk, since: int, until: int, moment: datetime) -> list[Arrival]:
    """What the rows name that transactions in [since, until) wrote or replaced.

    A document names the entities of its impacts, of the version that came and of the one that went. What is
    known only after ``moment`` is listed with that time.
    """
    if since >= until:
        return []
    documents = "document_intelligence d JOIN document_impact_records r USING (document_id, version)"
    parts = [
        f"SELECT '{SPREADS}', r.entity_id, d.known_at, {x} FROM {documents} WHERE {_between(x, since, until)}"
        for x in ("d.xid", "r.xid")
    ]
    parts.append(
        f"""SELECT '{SPREADS}', r.entity_id, d.superseded_known_at, d.superseded_xid FROM {documents}
            WHERE {_between("d.superseded_xid", since, until)}"""
    )
    for table, kind, name in _NAMES:
        parts += [
            f"SELECT '{kind}', {name}, {known}, {x} FROM {table} t WHERE {_between(x, since, until)}"
            for x, known in (("t.xid", "t.known_at"), ("t.superseded_xid", "t.superseded_known_at"))
        ]
    with _by_index(bulk):
        rows = bulk.arrow(
            f"""SELECT kind, name, CASE WHEN known_at > $1 THEN known_at END AS later,
                       max(xid::text::bigint) AS xid, max(known_at) AS known_at
                FROM ({" UNION ALL ".join(parts)}) AS news(kind, name, known_at, xid) GROUP BY 1, 2, 3""",
            (moment,),
        ).to_pylist()
    return [
        Arrival(row["kind"], row["name"], _utc(row["later"]), int(row["xid"]), _utc(row["known_at"]))
        for row in rows
    ]


def edges_near(
    bulk: Bulk, names: Collection[str], steps: int, *, until: int, moment: datetime
) -> list[tuple[str, str]]:
    """The edges known now at most ``steps`` away from entities.

    One that was just withdrawn need not be walked: its ends are news themselves.
    """
    found: set[tuple[str, str]] = set()
    walked: set[str] = set()
    border = set(names)
    for _ in range(steps):
        if not border:
            break
        walked |= border
        rows = bulk.arrow(
            f"""SELECT e.source_entity AS a, e.target_entity AS b FROM competitive_edges e
                WHERE (e.source_entity = ANY($1::text[]) OR e.target_entity = ANY($1::text[]))
                  AND NOT e.retracted AND e.known_at <= $2 AND e.xid < '{until:d}'::xid8
                  AND (e.superseded_xid IS NULL OR e.superseded_known_at > $2)""",
            (sorted(border), moment),
        )
        edges = set(zip(rows.column("a").to_pylist(), rows.column("b").to_pylist(), strict=True))
        found |= edges
        border = {name for edge in edges for name in edge} - walked
    return sorted(found)


def exposed(bulk: Bulk, events: Collection[str], weights: MacroConfig, moment: datetime) -> list[str]:
    """The entities whose exposure, as known now, shares an item of a counted dimension with an event.

    Args:
        bulk: a transaction.
        events: as :func:`between` names them.
        weights: dimensions of weight 0 do not count.
        moment: of the tick.

    """
    counted = [d for d in DIMENSIONS if getattr(weights, f"w_{d}") > 0.0]
    if not events or not counted:
        return []
    shared = " OR ".join(
        f"""EXISTS (SELECT FROM jsonb_each(x.{d}) AS s
                    WHERE (s.value #>> '{{}}')::float8 > 0 AND jsonb_exists(e.{d}, s.key))"""
        for d in counted
    )
    rows = bulk.arrow(
        f"""SELECT DISTINCT x.entity_id
            FROM unnest($1::text[]) AS n(name)
            JOIN macro_events e
              ON e.id = split_part(n.name, ':', 1)::uuid AND e.version = split_part(n.name, ':', 2)::integer
            JOIN exposure_profiles x ON NOT x.retracted AND x.known_at <= $2
              AND (x.superseded_xid IS NULL OR x.superseded_known_at > $2)
            WHERE {shared}""",
        (sorted(events), moment),
    )
    return sorted(rows.column("entity_id").to_pylist())


def accuracies(bulk: Bulk, before: str, after: str) -> list[tuple[str, float, int, float, int]]:
    """Per source of either measurement: its accuracy and number of outcomes in both, 0 and 0 where absent.

    ``before`` and ``after`` as in :class:`~oracle_dagster.news.Horizon`.
    """
    sides = []
    params: list[object] = []
    for measured in (before, after):
        as_of, _, version = measured.partition("|")
        params += [
            datetime.fromisoformat(as_of) if as_of else datetime(1, 1, 1, tzinfo=UTC),
            int(version or 0),
        ]
        sides.append(
            f"""(SELECT source_id, accuracy_ratio, sample_count FROM source_accuracy_history
                 WHERE as_of = ${len(params) - 1} AND config_version = ${len(params)})"""
        )
    rows = bulk.arrow(
        f"""SELECT source_id, coalesce(a.accuracy_ratio, 0), coalesce(a.sample_count, 0),
                   coalesce(b.accuracy_ratio, 0), coalesce(b.sample_count, 0)
            FROM {sides[0]} AS a FULL JOIN {sides[1]} AS b USING (source_id)""",
        params,
    )
    return list(zip(*(rows.column(n).to_pylist() for n in range(5)), strict=True))


def entities_of_sources(bulk: Bulk, sources: Sequence[str], moment: datetime) -> list[str]:
    """The entities that documents of these sources name which a window may still hold."""
    rows = bulk.arrow(
        """SELECT DISTINCT r.entity_id FROM document_intelligence d
           JOIN document_impact_records r USING (document_id, version)
           WHERE d.source_id = ANY($1::text[]) AND d.published_at >= $2 AND NOT d.retracted""",
        (sorted(sources), moment - _LONGEST_WINDOW),
    )
    return sorted(rows.column("entity_id").to_pylist())


def undecided(
    bulk: Bulk,
    entities: Collection[str],
    *,
    config_version: int,
    xid: int = 0,
    known_at: datetime | None = None,
    accuracy: str = "",
) -> list[str]:
    """Leave out the entities that a cycle decided which could see all of the news, and the retired ones.

    Decided means in every window.

    Args:
        bulk: a transaction.
        entities: those asked about.
        config_version: of the cycle.
        xid: newest transaction of the news; must have ended before the cycle first read.
        known_at: newest moment of knowing; the cycle must look from then or later.
        accuracy: measurement of the sources that the cycle must have used, or a newer one.

    """
    measured_as_of, _, measured_version = accuracy.partition("|")
    measured = datetime.fromisoformat(measured_as_of) if measured_as_of else _NEVER
    rows = bulk.arrow(
        f"""SELECT n.entity_id FROM unnest($1::text[]) AS n(entity_id)
            WHERE NOT EXISTS (
                SELECT FROM entity_retirements r
                WHERE r.entity_id = n.entity_id AND r.revived_at IS NULL)
            AND EXISTS (
                SELECT FROM (VALUES {_ALL_WINDOWS}) AS w("window")
                WHERE NOT EXISTS (
                    SELECT FROM (
                        SELECT k.as_of, k.config_version FROM cycle_keys k
                        WHERE k.entity_id = n.entity_id AND k."window" = w."window"
                          AND k.decision_seq IS NOT NULL
                        ORDER BY k.as_of DESC, k.decision_seq DESC LIMIT 1) AS newest
                    JOIN cycles c USING (as_of, config_version)
                    WHERE c.config_version = $2 AND c.as_of >= $3
                      AND pg_snapshot_xmin(c.snapshot::pg_snapshot) > '{xid:d}'::xid8
                      AND ($5::integer = 0 OR c.accuracy_as_of > $4
                           OR (c.accuracy_as_of = $4 AND c.accuracy_config_version = $5::integer))))""",
        (
            sorted(entities),
            config_version,
            _NEVER if known_at is None else known_at,
            measured,
            int(measured_version or 0),
        ),
    )
    return rows.column("entity_id").to_pylist()  # type: ignore[no-any-return]


def write_batch(database: Database, batch_id: str, entities: Collection[str]) -> None:
    """Record every window of these entities as the key set of a batch, in place of what it held before."""

    def write(bulk: Bulk) -> None:
        bulk.execute("DELETE FROM run_batches WHERE batch_id = $1::uuid", (batch_id,))
        bulk.execute(
            f"""INSERT INTO run_batches (batch_id, entity_id, "window")
                SELECT $1::uuid, e.entity_id, w."window"
                FROM unnest($2::text[]) AS e(entity_id) CROSS JOIN (VALUES {_ALL_WINDOWS}) AS w("window")""",
            (batch_id, sorted(entities)),
        )

    database.run(write)


def batch_exists(database: Database, batch_id: str) -> bool:
    """Whether a batch of this id was recorded, be it one without any key: an applied plan may need none."""
    keys = sa.select(sa.literal(1)).where(run_batches.c.batch_id == batch_id)
    applied = sa.select(sa.literal(1)).where(config_applications.c.batch_id == batch_id)
    with database.begin() as connection:
        return bool(connection.execute(sa.select(sa.or_(keys.exists(), applied.exists()))).scalar_one())


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
