"""Read what a cycle may see, as columns for the core; no rule and no order of the core lives here.

A row counts if its transaction had settled when the cycle first ran, it was known at ``as_of``, it is not a
retraction, and no later version known by ``as_of`` (and settled then) replaces it. All of it is one SQL
condition, :func:`_visible`, so no reader can forget a part. Strings become codes of sorted tables; the server
never sorts or compares them.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from oracle_core.enums import EventDirection, EventDuration, Severity
from oracle_core.inputs import (
    DIMENSIONS,
    US_PER_DAY,
    AccuracyRows,
    BarRows,
    CycleInputs,
    DocumentRows,
    EdgeRows,
    EventRows,
    ExposureRows,
    Ragged,
)
from oracle_core.rules import rules_for
from oracle_core.windows import LOOKBACK_US
from oracle_dagster.storage import columns
from oracle_dagster.storage.cycles import (
    AS_OF,
    CONFIG_VERSION,
    SNAPSHOT,
    Cycle,
    enter,
    lock_accuracy,
    microseconds,
    moment,
)
from oracle_dagster.storage.database import Bulk, Database, StorageError
from oracle_dagster.storage.identity import row_id
from oracle_dagster.storage.schema import cycles, source_accuracy_history

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from oracle_core.inputs import Bool, Float, Int, Strings

_log = logging.getLogger(__name__)

_SIGN: Final = {EventDirection.POSITIVE: 1, EventDirection.NEGATIVE: -1}
_NO_ACCURACY: Final = 0
_ALWAYS: Final = datetime(1, 1, 1, tzinfo=UTC)
_TIMES: Final = pa.timestamp("us", "UTC")
_NO_EXPOSURES: Final = pa.table(
    {
        "entity_id": pa.array([], pa.string()),
        "dimension": pa.array([], pa.int32()),
        "item": pa.array([], pa.string()),
        "share": pa.array([], pa.float64()),
        "known_at": pa.array([], _TIMES),
        "until": pa.array([], _TIMES),
    }
)


def _visible(row: str) -> str:
    """The condition under which the version ``row`` counts in the cycle of this transaction."""
    return f"""(
        {row}.known_at <= {AS_OF} AND NOT {row}.retracted
        AND pg_visible_in_snapshot({row}.xid, {SNAPSHOT})
        AND ({row}.superseded_known_at IS NULL OR {row}.superseded_known_at > {AS_OF}
             OR {row}.superseded_xid IS NULL
             OR NOT pg_visible_in_snapshot({row}.superseded_xid, {SNAPSHOT})))"""


def _ever(row: str) -> str:
    """The condition under which the version ``row`` counts at some moment up to the cycle's ``as_of``."""
    return f"""({row}.known_at <= {AS_OF} AND NOT {row}.retracted
        AND pg_visible_in_snapshot({row}.xid, {SNAPSHOT}))"""


def _until(row: str) -> str:
    """From when on a later version replaces ``row``; null if none does."""
    return f"""CASE WHEN pg_visible_in_snapshot({row}.superseded_xid, {SNAPSHOT})
        THEN {row}.superseded_known_at END"""


def _listed(more: Sequence[str]) -> str:
    return "".join(f"{column}, " for column in more)


def _impacts(visible: Callable[[str], str], *more: str) -> str:
    return f"""
    SELECT {_listed(more)}r.entity_id, r.document_id::text AS document_id, i.source_id, i.source_type,
           i.published_at, i.known_at, i.credibility, i.novelty, i.extraction_confidence, i.failed,
           r.has_impact, r.sentiment, r.impact_score, r.catalyst_type,
           CASE WHEN r.risk_flags = '[]' THEN NULL
                ELSE ARRAY(SELECT jsonb_array_elements_text(r.risk_flags)) END AS risks
    FROM (SELECT unnest($1::text[]) AS entity_id, $3::timestamptz AS since
          UNION ALL SELECT unnest($2::text[]), $4::timestamptz) AS w
    JOIN document_impact_records r
      ON r.entity_id = w.entity_id AND r.published_at >= w.since AND r.published_at <= {AS_OF}
    JOIN document_intelligence i ON i.document_id = r.document_id AND i.version = r.version
    WHERE pg_visible_in_snapshot(r.xid, {SNAPSHOT}) AND {visible("i")}"""


def _bars(visible: Callable[[str], str], *more: str) -> str:
    return f"""
    SELECT {_listed(more)}b.entity_id, b.day, b.known_at, b.close, b.volume
    FROM unnest($1::text[]) AS w(entity_id) JOIN market_bars b ON b.entity_id = w.entity_id
    WHERE {visible("b")}"""


def _events_known(visible: Callable[[str], str], *more: str) -> str:
    return f"""
    SELECT {_listed(more)}e.id::text AS event_id, e.occurred_at, e.known_at, e.direction, e.severity,
           e.estimated_duration,
           {", ".join(f"ARRAY(SELECT jsonb_array_elements_text(e.{d})) AS {d}" for d in DIMENSIONS)}
    FROM macro_events e WHERE {visible("e")}"""


def _exposures(visible: Callable[[str], str], *more: str) -> str:
    return f"""
    SELECT {_listed(more)}e.entity_id, d.dimension, x.key AS item, (x.value #>> '{{}}')::float8 AS share,
           e.known_at
    FROM exposure_profiles e
    CROSS JOIN LATERAL (VALUES {", ".join(f"({n}, e.{d})" for n, d in enumerate(DIMENSIONS))})
      AS d(dimension, shares)
    CROSS JOIN LATERAL jsonb_each(d.shares) AS x
    WHERE e.entity_id = ANY($1::text[]) AND {visible("e")}"""


def _edges_known(visible: Callable[[str], str], *more: str) -> str:
    return f"""
    SELECT {_listed(more)}e.source_entity, e.target_entity, e.historical_correlation AS rho,
           e.known_at
    FROM competitive_edges e WHERE {visible("e")}"""


_IMPACTS: Final = _impacts(_visible)
_BARS: Final = _bars(_visible)
_EVENTS: Final = _events_known(_visible)
_EXPOSURES: Final = _exposures(_visible)
_EDGES: Final = _edges_known(_visible)

# Where a cycle finds entities: table, column, and the condition that a visible row names the entity.
_NAMED: Final = (
    (
        "document_impact_records",
        "entity_id",
        f"""SELECT FROM document_impact_records r
            JOIN document_intelligence i ON i.document_id = r.document_id AND i.version = r.version
            WHERE r.entity_id = n.entity_id AND r.published_at <= {AS_OF}
              AND pg_visible_in_snapshot(r.xid, {SNAPSHOT}) AND {_visible("i")}""",
    ),
    *(
        (table, column, f"SELECT FROM {table} r WHERE r.{column} = n.entity_id AND {_visible('r')}")
        for table, column in (
            ("market_bars", "entity_id"),
            ("exposure_profiles", "entity_id"),
            ("competitive_edges", "source_entity"),
            ("competitive_edges", "target_entity"),
        )
    ),
)


@dataclass(frozen=True)
class Shared:
    """What every slice of a cycle needs: the graph, the events, the sources' accuracy; read once."""

    nodes: pa.Array
    edges: EdgeRows
    event_ids: pa.Array
    events: EventRows
    event_items: pa.Array
    accuracy_sources: pa.Array
    accuracy_ratio: Float
    accuracy_samples: Int


def known_entities(bulk: Bulk, cycle: Cycle, among: Collection[str] | None = None) -> list[str]:
    """Every entity that a known document (failed ones too), bar, exposure or edge names (decisions 2).

    Args:
        bulk: a transaction.
        cycle: the cycle.
        among: look only at these.

    Returns:
        Ids by code point.

    """
    enter(bulk, cycle)
    found: set[str] = set()
    for table, column, names in _NAMED:
        if among is None:
            # Jumps from id to id over the index, for a table has many more rows than entities.
            candidates = f"""
                WITH RECURSIVE n(entity_id) AS (
                    (SELECT {column} FROM {table} ORDER BY {column} LIMIT 1)
                    UNION ALL
                    SELECT (SELECT t.{column} FROM {table} t WHERE t.{column} > n.entity_id
                            ORDER BY t.{column} LIMIT 1)
                    FROM n WHERE n.entity_id IS NOT NULL)
                SELECT n.entity_id FROM n WHERE n.entity_id IS NOT NULL AND EXISTS ({names})"""
            rows = bulk.arrow(candidates)
        else:
            rest = sorted(set(among) - found)
            # Entity by entity up to the first row found; an EXISTS may be joined to all rows of the table.
            rows = bulk.arrow(
                f"""SELECT n.entity_id FROM unnest($1::text[]) AS n(entity_id)
                    CROSS JOIN LATERAL ({names} LIMIT 1) AS found""",
                (rest,),
            )
        found.update(rows.column("entity_id").to_pylist())
    return sorted(found)


def reachable(shared: Shared, entities: Collection[str], reach: int) -> list[str]:
    """The entities at most ``reach`` edges away from ``entities``, these included, by code point."""
    nodes = shared.nodes.to_numpy(zero_copy_only=False)
    near = np.zeros(len(nodes), np.bool_)
    near[_codes_of(shared.nodes, entities)] = True
    for _ in range(reach):
        wider = near.copy()
        wider[shared.edges.target[near[shared.edges.source]]] = True
        wider[shared.edges.source[near[shared.edges.target]]] = True
        near = wider
    return sorted({*entities, *nodes[near].tolist()})


def _codes_of(table: pa.Array, strings: Collection[str]) -> Int:
    found = columns.codes(pa.array(list(strings), pa.string()), table)
    return found[found >= 0]


Accuracy = tuple[pa.Array, "Float", "Int"]
"""Sources by code point, their ratio and number of samples."""


def accuracy_measured(database: Database, cycle: Cycle) -> bool:
    """Whether the sources were measured as of this very cycle."""
    history = source_accuracy_history
    measured = sa.select(sa.literal(1)).where(
        history.c.as_of == cycle.as_of, history.c.config_version == cycle.config_version
    )
    with database.begin() as connection:
        return bool(connection.execute(sa.select(measured.exists())).scalar_one())


def settle_accuracy(database: Database, cycle: Cycle) -> Accuracy:
    """The accuracy of the sources that this cycle uses, chosen when it first asks and the same ever after.

    The newest measured with an ``as_of`` up to the cycle's; its own where that was measured. Without the
    table there is none, so that every factor is 1 (R165), with a warning.
    """
    return _accuracy_of(database, cycle, settle=True)


def peek_accuracy(database: Database, cycle: Cycle) -> Accuracy:
    """The accuracy that :func:`settle_accuracy` would give, without recording the choice."""
    return _accuracy_of(database, cycle, settle=False)


def _accuracy_of(database: Database, cycle: Cycle, *, settle: bool) -> Accuracy:
    history, own = source_accuracy_history, cycle.config_version
    here = (cycles.c.as_of == cycle.as_of) & (cycles.c.config_version == own)
    chosen_by = sa.select(cycles.c.accuracy_as_of, cycles.c.accuracy_config_version).where(here)
    newest = (
        sa.select(history.c.as_of, history.c.config_version)
        .where(history.c.as_of <= cycle.as_of)
        .order_by(
            history.c.as_of.desc(), (history.c.config_version == own).desc(), history.c.config_version.desc()
        )
        .limit(1)
    )
    settled = cycles.update().where(here, cycles.c.accuracy_config_version.is_(None))
    try:
        with database.begin() as connection:
            chosen = connection.execute(chosen_by.with_for_update() if settle else chosen_by).first()
            if chosen is None or chosen.accuracy_config_version is None:
                found = connection.execute(newest).first()
                chosen_as_of, chosen_config = (None, _NO_ACCURACY) if found is None else tuple(found)
            else:
                chosen_as_of, chosen_config = tuple(chosen)
            if settle:
                connection.execute(
                    settled.values(accuracy_as_of=chosen_as_of, accuracy_config_version=chosen_config)
                )
            rows = connection.execute(
                sa.select(history.c.source_id, history.c.accuracy_ratio, history.c.sample_count).where(
                    history.c.as_of == chosen_as_of, history.c.config_version == chosen_config
                )
            ).all()
    except StorageError as error:
        if error.transient:
            raise
        _log.warning("the accuracy of the sources cannot be read and counts as unknown for all: %s", error)
        rows = []
        if settle:  # a repeat, when the table is back, must give what this cycle gives
            with database.begin() as connection:
                connection.execute(settled.values(accuracy_as_of=None, accuracy_config_version=_NO_ACCURACY))
    rows = sorted(rows, key=lambda row: str(row.source_id))
    return (
        pa.array([row.source_id for row in rows], pa.string()),
        np.array([row.accuracy_ratio for row in rows], np.float64),
        np.array([row.sample_count for row in rows], np.int64),
    )


def write_accuracy(bulk: Bulk, cycle: Cycle, sources: Sequence[str], ratio: Float, samples: Int) -> None:
    """Store the accuracy of every source as of the cycle, and as the current one unless a newer is stored.

    The cycle uses it from now on, unless it has used an earlier one already.
    """
    enter(bulk, cycle)
    lock_accuracy(bulk)
    bulk.stage(
        "measured",
        pa.table(
            {
                "id": pa.array([row_id("source_accuracy", source) for source in sources], pa.string()),
                "source_id": pa.array(sources, pa.string()),
                "ratio": ratio,
                "samples": samples,
            }
        ),
    )
    bulk.execute(
        f"DELETE FROM source_accuracy_history WHERE as_of = {AS_OF} AND config_version = {CONFIG_VERSION}"
    )
    bulk.execute(f"""
        INSERT INTO source_accuracy_history (as_of, config_version, source_id, accuracy_ratio, sample_count)
        SELECT {AS_OF}, {CONFIG_VERSION}, source_id, ratio, samples FROM measured""")
    newest = f"NOT EXISTS (SELECT FROM source_accuracy_history h WHERE h.as_of > {AS_OF})"
    bulk.execute(f"""
        DELETE FROM source_accuracy a
        WHERE {newest} AND NOT EXISTS (SELECT FROM measured m WHERE m.source_id = a.source_id)""")
    bulk.execute(f"""
        INSERT INTO source_accuracy (id, source_id, accuracy_ratio, sample_count, last_updated, created_at)
        SELECT id::uuid, source_id, ratio, samples, {AS_OF}, {AS_OF} FROM measured WHERE {newest}
        ON CONFLICT (source_id) DO UPDATE SET accuracy_ratio = excluded.accuracy_ratio,
            sample_count = excluded.sample_count, last_updated = excluded.last_updated""")
    bulk.execute(f"""
        UPDATE cycles SET accuracy_as_of = as_of, accuracy_config_version = config_version
        WHERE as_of = {AS_OF} AND config_version = {CONFIG_VERSION} AND accuracy_config_version IS NULL""")


def read_shared(bulk: Bulk, cycle: Cycle, accuracy: tuple[pa.Array, Float, Int] | None = None) -> Shared:
    """Read what every slice of the cycle needs.

    Args:
        bulk: a transaction.
        cycle: the cycle.
        accuracy: made by :func:`settle_accuracy`; none where None.

    """
    enter(bulk, cycle)
    return _shared(bulk.arrow(_EDGES), bulk.arrow(_EVENTS), accuracy)


def _shared(edges: pa.Table, events: pa.Table, accuracy: tuple[pa.Array, Float, Int] | None) -> Shared:
    nodes = columns.table(edges.column("source_entity"), edges.column("target_entity"))
    event_ids = columns.table(events.column("event_id"))
    items = columns.table(*(pc.list_flatten(events.column(d)) for d in DIMENSIONS))
    directions = np.array([_SIGN.get(d, 0) for d in EventDirection], np.int64)
    sources, ratio, samples = (
        (pa.array([], pa.string()), np.zeros(0), np.zeros(0, np.int64)) if accuracy is None else accuracy
    )
    return Shared(
        nodes=nodes,
        edges=EdgeRows(
            source=columns.codes(edges.column("source_entity"), nodes),
            target=columns.codes(edges.column("target_entity"), nodes),
            rho=columns.floats(edges.column("rho")),
            known_us=columns.times(edges.column("known_at")),
        ),
        event_ids=event_ids,
        events=EventRows(
            event=columns.codes(events.column("event_id"), event_ids),
            occurred_us=columns.times(events.column("occurred_at")),
            known_us=columns.times(events.column("known_at")),
            sign=directions[columns.codes(events.column("direction"), columns.members(EventDirection))],
            severity=columns.codes(events.column("severity"), columns.members(Severity)),
            duration=columns.codes(events.column("estimated_duration"), columns.members(EventDuration)),
            geo=columns.ragged(events.column("geo"), items),
            supply=columns.ragged(events.column("supply"), items),
            commodity=columns.ragged(events.column("commodity"), items),
            sector=columns.ragged(events.column("sector"), items),
        ),
        event_items=items,
        accuracy_sources=sources,
        accuracy_ratio=ratio,
        accuracy_samples=samples,
    )


def read_inputs(
    bulk: Bulk,
    cycle: Cycle,
    entities: Sequence[str],
    shared: Shared | None = None,
    *,
    neighbours: bool = True,
) -> CycleInputs:
    """Read everything that the results of these entities may depend on.

    Their documents as far back as windows and patterns look, and all their bars and exposures; of the
    entities within the mode's reach the documents of the windows and all bars; every event; the edges.

    Args:
        bulk: a transaction, REPEATABLE READ for several reads of one state.
        cycle: the cycle.
        entities: the requested ones, known or not; every one gets a code.
        shared: what :func:`read_shared` gave for this cycle; read here where None.
        neighbours: whether to read what is within reach; only signals are made of that.

    """
    shared = read_shared(bulk, cycle) if shared is None else shared
    enter(bulk, cycle)
    wanted = neighbours and cycle.config.flags.competitive_enabled
    reach = rules_for(cycle.config).propagation_reach(cycle.config.competitive) if wanted else 0
    near = reachable(shared, entities, reach)
    longest_us = max(LOOKBACK_US.values())
    patterns_us = round(cycle.config.competitive.pattern_lookback_days * US_PER_DAY)
    impacts = bulk.arrow(
        _IMPACTS,
        (
            sorted(set(entities)),
            sorted(set(near) - set(entities)),
            moment(cycle.as_of_us - max(longest_us, patterns_us)),
            moment(cycle.as_of_us - longest_us),
        ),
    )
    exposures = bulk.arrow(_EXPOSURES, (sorted(set(entities)),))
    return _columns(pa.array(near, pa.string()), impacts, bulk.arrow(_BARS, (near,)), exposures, shared)


def accuracy_slices(bulk: Bulk, cycle: Cycle, entities: Sequence[str], size: int) -> Iterator[CycleInputs]:
    """All documents and bars, ``size`` entities at a time: an outcome needs nothing of another entity."""
    enter(bulk, cycle)
    nothing = Shared(*_no_shared())
    for first in range(0, len(entities), size):
        part = sorted(entities[first : first + size])
        impacts = bulk.arrow(_IMPACTS, (part, [], _ALWAYS, _ALWAYS))
        yield _columns(
            pa.array(part, pa.string()), impacts, bulk.arrow(_BARS, (part,)), _NO_EXPOSURES, nothing
        )


def _columns(
    entities: pa.Array, impacts: pa.Table, bars: pa.Table, exposures: pa.Table, shared: Shared
) -> CycleInputs:
    documents = columns.table(impacts.column("document_id"))
    sources = columns.table(impacts.column("source_id"))
    source_types = columns.table(impacts.column("source_type"))
    catalysts = columns.table(impacts.column("catalyst_type"))
    risks = columns.table(pc.list_flatten(impacts.column("risks")))
    items = columns.table(shared.event_items, exposures.column("item"))
    return CycleInputs(
        entities=columns.strings(entities),
        document_ids=columns.strings(documents),
        sources=columns.strings(sources),
        source_types=columns.strings(source_types),
        catalysts=columns.strings(catalysts),
        risk_labels=columns.strings(risks),
        event_ids=columns.strings(shared.event_ids),
        items=columns.strings(items),
        documents=DocumentRows(
            entity=columns.codes(impacts.column("entity_id"), entities),
            document=columns.codes(impacts.column("document_id"), documents),
            source=columns.codes(impacts.column("source_id"), sources),
            source_type=columns.codes(impacts.column("source_type"), source_types),
            published_us=columns.times(impacts.column("published_at")),
            known_us=columns.times(impacts.column("known_at")),
            credibility=columns.floats(impacts.column("credibility")),
            novelty=columns.floats(impacts.column("novelty")),
            extraction_confidence=columns.floats(impacts.column("extraction_confidence")),
            failed=columns.bools(impacts.column("failed")),
            has_impact=columns.bools(impacts.column("has_impact")),
            sentiment=columns.floats(impacts.column("sentiment")),
            impact=columns.floats(impacts.column("impact_score")),
            catalyst=columns.codes(impacts.column("catalyst_type"), catalysts),
            risks=columns.ragged(impacts.column("risks"), risks),
        ),
        bars=BarRows(
            entity=columns.codes(bars.column("entity_id"), entities),
            day=columns.ints(bars.column("day").cast(pa.int32())),
            known_us=columns.times(bars.column("known_at")),
            close=columns.floats(bars.column("close")),
            volume=columns.floats(bars.column("volume")),
        ),
        events=_events(shared, items),
        exposures=ExposureRows(
            entity=columns.codes(exposures.column("entity_id"), entities),
            dimension=columns.ints(exposures.column("dimension")),
            item=columns.codes(exposures.column("item"), items),
            share=columns.floats(exposures.column("share")),
            known_us=columns.times(exposures.column("known_at")),
        ),
        edges=_edges(shared, entities),
        accuracy=_accuracy(shared, sources),
    )


def _events(shared: Shared, items: pa.Array) -> EventRows:
    """The events with their items as codes of the slice's table."""
    place = columns.codes(shared.event_items, items)
    rows = shared.events
    return EventRows(
        event=rows.event,
        occurred_us=rows.occurred_us,
        known_us=rows.known_us,
        sign=rows.sign,
        severity=rows.severity,
        duration=rows.duration,
        geo=Ragged(rows.geo.offsets, place[rows.geo.codes]),
        supply=Ragged(rows.supply.offsets, place[rows.supply.codes]),
        commodity=Ragged(rows.commodity.offsets, place[rows.commodity.codes]),
        sector=Ragged(rows.sector.offsets, place[rows.sector.codes]),
    )


def _edges(shared: Shared, entities: pa.Array) -> EdgeRows:
    """The edges among the slice's entities: every shortest path within reach runs over these."""
    place = columns.codes(shared.nodes, entities)
    rows = shared.edges
    source, target = place[rows.source], place[rows.target]
    inside = _inside(shared, entities)
    return EdgeRows(source[inside], target[inside], rows.rho[inside], rows.known_us[inside])


def _inside(shared: Shared, entities: pa.Array) -> Bool:
    """Which edges have both ends among the entities."""
    there = columns.codes(shared.nodes, entities) >= 0
    inside: Bool = there[shared.edges.source] & there[shared.edges.target]
    return inside


def _accuracy(shared: Shared, sources: pa.Array) -> AccuracyRows:
    place = columns.codes(shared.accuracy_sources, sources)
    here = place >= 0
    return AccuracyRows(place[here], shared.accuracy_ratio[here], shared.accuracy_samples[here])


def _no_shared() -> tuple[pa.Array, EdgeRows, pa.Array, EventRows, pa.Array, pa.Array, Float, Int]:
    texts, ints, floats = pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0)
    none = Ragged.empty(0)
    events = EventRows(ints, ints, ints, ints, ints, ints, none, none, none, none)
    return texts, EdgeRows(ints, ints, floats, ints), texts, events, texts, texts, floats, ints


# -------------------------------------------------------------------------------- a span of cycles at once

NEVER: Final = np.iinfo(np.int64).max
"""The time, in microseconds, of what never happens: a version that no later one replaces."""

_FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)
_VERSIONED: Final = ("documents", "bars", "events", "exposures", "edges")
_SPANS: Final = (
    "\nUNION ALL ".join(
        f"SELECT {column} AS entity_id, min(r.known_at) AS known_at, {_until('r')} AS until "
        f"FROM {table} r WHERE {_ever('r')} GROUP BY 1, 3"
        for table, column in (
            ("market_bars", "r.entity_id"),
            ("exposure_profiles", "r.entity_id"),
            ("competitive_edges", "r.source_entity"),
            ("competitive_edges", "r.target_entity"),
        )
    )
    + f"""
    UNION ALL SELECT n.entity_id, min(r.known_at), {_until("r")}
    FROM document_impact_records n
    JOIN document_intelligence r ON r.document_id = n.document_id AND r.version = n.version
    WHERE pg_visible_in_snapshot(n.xid, {SNAPSHOT}) AND {_ever("r")} GROUP BY 1, 3"""
)


@dataclass(frozen=True)
class Timeline:
    """Every version of the inputs that some cycle of a span may see, read once.

    ``rows`` holds all versions, without any accuracy; ``until`` names per kind of row the time from which a
    later version replaces it. What a cycle sees is :meth:`at`; nothing else of it may go into a cycle.
    """

    rows: CycleInputs
    until: dict[str, Int]

    def at(self, as_of_us: int, accuracy: AccuracyRows | None = None) -> CycleInputs:
        """What the cycle of that moment sees, with the accuracy of the sources that it uses."""
        cut: dict[str, Any] = {}
        for name in _VERSIONED:
            rows = getattr(self.rows, name)
            cut[name] = rows.take((rows.known_us <= as_of_us) & (as_of_us < self.until[name]))
        return replace(self.rows, **cut, accuracy=self.rows.accuracy if accuracy is None else accuracy)


@dataclass(frozen=True)
class Spans:
    """When entities were known: one row per entity and version that names it, as half-open spans."""

    entity: Strings
    known_us: Int
    until_us: Int

    def at(self, as_of_us: int) -> list[str]:
        """The entities known at a moment, by code point: what :func:`known_entities` finds there."""
        return sorted(set(self.entity[(self.known_us <= as_of_us) & (as_of_us < self.until_us)].tolist()))


def read_spans(bulk: Bulk, cycle: Cycle) -> Spans:
    """When the entities known to the cycle, or to an earlier one, were known."""
    enter(bulk, cycle)
    found = bulk.arrow(_SPANS)
    return Spans(
        entity=columns.strings(found.column("entity_id").combine_chunks()),
        known_us=columns.times(found.column("known_at")),
        until_us=_ends(found),
    )


def read_timeline(bulk: Bulk, cycle: Cycle, first: datetime, entities: Sequence[str]) -> Timeline:
    """Read what the results of these entities may depend on in any cycle from ``first`` to the given one.

    Reaches as far as :func:`read_inputs` does from the first cycle on; only bars reach beyond the last one,
    because what followed a decision judges it.

    Args:
        bulk: a transaction, REPEATABLE READ for several reads of one state.
        cycle: the last cycle of the span; its configuration says how far neighbours reach.
        first: the earliest ``as_of``.
        entities: the requested ones, known or not; every one gets a code.

    """
    enter(bulk, cycle)
    edges = bulk.arrow(_edges_known(_ever, f"{_until('e')} AS until"))
    events = bulk.arrow(_events_known(_ever, f"{_until('e')} AS until"))
    shared = _shared(edges, events, None)
    reach = 0
    if cycle.config.flags.competitive_enabled:
        reach = rules_for(cycle.config).propagation_reach(cycle.config.competitive)
    near = reachable(shared, entities, reach)
    longest_us = max(LOOKBACK_US.values())
    patterns_us = round(cycle.config.competitive.pattern_lookback_days * US_PER_DAY)
    start_us = microseconds(first)
    exposures = bulk.arrow(_exposures(_ever, f"{_until('e')} AS until"), (sorted(set(entities)),))
    documents = bulk.arrow(
        _impacts(_ever, f"{_until('i')} AS until"),
        (
            sorted(set(entities)),
            sorted(set(near) - set(entities)),
            moment(start_us - max(longest_us, patterns_us)),
            moment(start_us - longest_us),
        ),
    )
    return _timeline(
        bulk, cycle, near, documents, exposures, shared, edges=_ends(edges), events=_ends(events)
    )


def read_outcomes(bulk: Bulk, cycle: Cycle) -> Timeline:
    """Read all documents and bars of every entity: what the accuracy of the sources is measured from."""
    entities = sorted(set(read_spans(bulk, cycle).entity.tolist()))
    documents = bulk.arrow(_impacts(_ever, f"{_until('i')} AS until"), (entities, [], _ALWAYS, _ALWAYS))
    none = np.zeros(0, np.int64)
    shared = Shared(*_no_shared())
    return _timeline(bulk, cycle, entities, documents, _NO_EXPOSURES, shared, edges=none, events=none)


def _timeline(  # noqa: PLR0917 - tables as they are read
    bulk: Bulk,
    cycle: Cycle,
    entities: Sequence[str],
    documents: pa.Table,
    exposures: pa.Table,
    shared: Shared,
    *,
    edges: Int,
    events: Int,
) -> Timeline:
    enter(bulk, replace(cycle, as_of=_FAR))
    bars = bulk.arrow(_bars(_ever, f"{_until('b')} AS until"), (list(entities),))
    table = pa.array(list(entities), pa.string())
    return Timeline(
        _columns(table, documents, bars, exposures, shared),
        {
            "documents": _ends(documents),
            "bars": _ends(bars),
            "exposures": _ends(exposures),
            "edges": edges[_inside(shared, table)],
            "events": events,
        },
    )


def _ends(found: pa.Table) -> Int:
    column = found.column("until").cast(_TIMES).cast(pa.int64())
    return columns.ints(pc.fill_null(column, int(NEVER)))
