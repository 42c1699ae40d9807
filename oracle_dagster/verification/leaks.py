"""The leak prober: disturb what a cycle must not know, compute it again, and require the same bits.

A probe works in one transaction that is rolled back: it adds, changes and removes rows that are dated or
known after the cycle, or that arrived after its first run, and computes some keys by the product's own code
inside that transaction. A further probe puts rows of the future into what the core is handed. What differs
from the undisturbed result is a leak. Nothing stays in the database. No rule here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from oracle_core.inputs import CycleInputs
from oracle_dagster import pipeline
from oracle_dagster.storage import cycles, inputs, results
from oracle_dagster.storage.cycles import SEQUENCES, Cycle
from oracle_dagster.storage.database import Database, StorageError
from oracle_dagster.storage.schema import cycle_keys
from oracle_dagster.storage.schema import cycles as cycles_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from oracle_dagster.storage.cycles import Key
    from oracle_dagster.storage.database import Bulk, Isolation

T = TypeVar("T")
Outcome = dict[tuple[str, str, str], str]
"""A hash of the content by stage, entity and window; accuracy and the list of entities stand beside."""

LOCK_TIMEOUT: Final = "10s"
_ALL: Final = ""


@dataclass(frozen=True)
class Leak:
    """A result that changed, the kind of disturbance that changed it, and the seed that repeats it."""

    kind: str
    seed: int
    stage: str
    entity_id: str
    window: str


@dataclass
class LeakReport:
    """What probing found; ``disturbed`` counts rows by kind, so that a probe of nothing is seen."""

    probes: int = 0
    keys: int = 0
    disturbed: Counter[str] = field(default_factory=Counter)
    leaks: list[Leak] = field(default_factory=list)


class _Undo(Exception):  # noqa: N818 - no error: it ends a transaction without a trace
    """Rolls back a probe."""


class Sandbox(Database):
    """A database inside one open transaction: everything sees its uncommitted rows, nothing is committed."""

    def __init__(self, place: str, bulk: Bulk) -> None:
        """Wrap the transaction."""
        self.place = place
        self._bulk = bulk

    def run(self, work: Callable[[Bulk], T], isolation: Isolation = "READ COMMITTED") -> T:
        """Run the work in the transaction; what it fails in is undone."""
        del isolation
        with self._bulk.savepoint("probe"):
            return work(self._bulk)

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A reader of small statements in the same transaction."""
        yield _Reader(self._bulk)  # type: ignore[misc]


class _Reader:
    """As much of a connection as reading takes."""

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk

    def execute(self, query: sa.Select[Any]) -> sa.Result[Any]:
        text = str(query.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}))  # type: ignore[no-untyped-call]
        table = self._bulk.arrow(text)
        names = [column.name for column in query.selected_columns]
        json_columns = {c.name for c in query.selected_columns if isinstance(c.type, sa.JSON)}
        rows = [
            tuple(
                json.loads(row[name]) if name in json_columns and isinstance(row[name], str) else row[name]
                for name in names
            )
            for row in table.to_pylist()
        ]
        return sa.engine.IteratorResult(sa.engine.result.SimpleResultMetaData(names), iter(rows))


class NothingToProbeError(StorageError):
    """No cycle is stored of which the whole chain has computed a key."""


def choose_cycle(database: Database, as_of: datetime | None = None) -> Cycle:
    """The newest cycle of which the whole chain has computed a key, or the newest such of ``as_of``.

    Raises:
        NothingToProbeError: there is none.

    """
    same = (cycle_keys.c.as_of == cycles_table.c.as_of) & (
        cycle_keys.c.config_version == cycles_table.c.config_version
    )
    whole = sa.and_(*(cycle_keys.c[column].is_not(None) for column in SEQUENCES.values()))
    query = (
        sa.select(cycles_table.c.as_of, cycles_table.c.config_version)
        .where(sa.exists().where(same, whole))
        .order_by(cycles_table.c.as_of.desc(), cycles_table.c.config_version.desc())
    )
    if as_of is not None:
        query = query.where(cycles_table.c.as_of == as_of)
    with database.begin() as connection:
        row = connection.execute(query.limit(1)).first()
    if row is None:
        raise NothingToProbeError(
            f"there is no cycle to probe in the {database.place}. Remedy: compute one with `oracle run`."
        )
    return cycles.read_cycle(database, row.as_of, row.config_version)


def probe(
    database: Database,
    cycle: Cycle,
    *,
    probes: int = 20,
    entities: int = 20,
    seed: int = 0,
    kinds: Sequence[str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> LeakReport:
    """Disturb the future of a cycle ``probes`` times, one kind after the other, and compare its results.

    Args:
        database: the domain database.
        cycle: a recorded one.
        probes: how many disturbances; :data:`KINDS` has the kinds.
        entities: how many entities are computed each time, drawn by the seed.
        seed: of the first probe; each has its own.
        kinds: only these; all where None.
        on_progress: called with the probes done and all of them.

    Raises:
        StorageError: the database cannot be used.

    """
    keys = _keys(database, cycle, entities, seed)
    report = LeakReport(keys=0)
    undisturbed = _within(database, cycle, keys, lambda _bulk: 0, None)[1]
    asked = list(KINDS if kinds is None else kinds)
    for number in range(probes):
        if on_progress is not None:
            on_progress(number, probes)
        kind, own = asked[number % len(asked)], seed + number
        disturb, change = KINDS[kind](cycle, random.Random(own), [entity for entity, _ in keys])  # noqa: S311 - no secret
        rows, found = _within(database, cycle, keys, disturb, change)
        report.disturbed[kind] += rows
        report.probes += 1
        report.keys += len(keys)
        for place in sorted(undisturbed.keys() | found.keys()):
            if undisturbed.get(place) != found.get(place):
                report.leaks.append(Leak(kind, own, *place))
    if on_progress is not None:
        on_progress(probes, probes)
    return report


def _keys(database: Database, cycle: Cycle, entities: int, seed: int) -> list[Key]:
    """Keys that the whole chain has computed, of some entities."""
    whole = " AND ".join(f"{column} IS NOT NULL" for column in SEQUENCES.values())

    def read(bulk: Bulk) -> list[Key]:
        cycles.enter(bulk, cycle)
        found = bulk.arrow(f"""
            SELECT entity_id, "window" FROM cycle_keys
            WHERE as_of = {cycles.AS_OF} AND config_version = {cycles.CONFIG_VERSION} AND {whole}""")
        return list(
            zip(found.column("entity_id").to_pylist(), found.column("window").to_pylist(), strict=True)
        )

    stored = sorted(database.run(read))
    names = sorted({entity for entity, _ in stored})
    chosen = set(random.Random(seed).sample(names, min(entities, len(names))))  # noqa: S311 - no secret
    if not stored:
        raise StorageError(
            f"the cycle of {cycle.as_of.isoformat()} holds no key that the whole chain has computed. Remedy: "
            f"`oracle run --as-of {cycle.as_of.isoformat()}`."
        )
    return [key for key in stored if key[0] in chosen]


def _within(
    database: Database,
    cycle: Cycle,
    keys: Sequence[Key],
    disturb: Callable[[Bulk], int],
    change: Callable[[CycleInputs], CycleInputs] | None,
) -> tuple[int, Outcome]:
    """Disturb, compute, undo."""
    found: tuple[int, Outcome] | None = None
    with contextlib.suppress(_Undo), database.bulk("REPEATABLE READ") as bulk:
        bulk.arrow(f"SELECT set_config('lock_timeout', '{LOCK_TIMEOUT}', true)")
        cycles.enter(bulk, cycle)
        rows = disturb(bulk)
        found = (rows, _outcome(Sandbox(database.place, bulk), cycle, keys, change))
        raise _Undo
    assert found is not None  # noqa: S101 - left by the exception above only
    return found


def _outcome(
    sandbox: Sandbox,
    cycle: Cycle,
    keys: Sequence[Key],
    change: Callable[[CycleInputs], CycleInputs] | None,
) -> Outcome:
    found: Outcome = {}
    # Read again, so that a configuration chosen by date would show.
    again = cycles.read_cycle(sandbox, cycle.as_of, cycle.config_version)
    for each in pipeline.rehearse(
        sandbox, again, keys, pipeline.STAGES, accuracy=inputs.peek_accuracy, change=change
    ):
        for stage, reports in each.report.keys.items():
            # What stands already is no part of a decision's content, but no more may it be of the future.
            found |= {
                (stage, r.entity_id, r.window): f"{r.data_version} {r.metadata.get('equals_standing')}"
                for r in reports
            }
        found |= {(f.stage, f.entity_id, f.window): f.message for f in each.report.failures}
    sources, ratio, samples = pipeline.measure_sources(sandbox, again)
    measured = results.to_json([sources, ratio.tolist(), samples.tolist()])
    found["source_accuracy", _ALL, _ALL] = results.content_hash(measured)
    known = pipeline.known_entities(sandbox, again)
    found["known_entities", _ALL, _ALL] = results.content_hash(results.to_json(known))
    return found


# ------------------------------------------------------------------------------------ disturbances in SQL

# A transaction that every snapshot sees: rows that carry it are hidden by their times alone.
_SEEN: Final = "'3'::xid8"
_NOW: Final = "pg_current_xact_id()"
_LATER: Final = f"{cycles.AS_OF} + interval '1 microsecond'"
_UNSEEN: Final = f"NOT pg_visible_in_snapshot({{row}}.xid, {cycles.SNAPSHOT})"

Disturbance = tuple[Callable[["Bulk"], int], Callable[[CycleInputs], CycleInputs] | None]
_VERSIONED: Final = {
    "market_bars": ("entity_id, day", "close = t.close * 1.5"),
    "macro_events": (
        "id",
        "direction = CASE t.direction WHEN 'positive' THEN 'negative' ELSE 'positive' END",
    ),
    "exposure_profiles": ("entity_id", "geo = t.sector, sector = t.geo"),
    "competitive_edges": (
        "source_entity, target_entity, relation_type",
        "historical_correlation = -t.historical_correlation",
    ),
    "document_intelligence": ("document_id", "credibility = 1 - COALESCE(t.credibility, 0.3)"),
}


def _count(bulk: Bulk, statement: str, params: Sequence[object] = ()) -> int:
    counted = bulk.arrow(f"WITH done AS ({statement} RETURNING 1) SELECT count(*) AS n FROM done", params)
    return int(counted.column("n")[0].as_py())


def _known(late: bool) -> tuple[str, str]:  # noqa: FBT001 - which of the two ways
    """When a row becomes known and what wrote it: too late by time alone, or by arrival alone."""
    return (_LATER, _SEEN) if late else (f"{cycles.AS_OF} - interval '1 day'", _NOW)


def _documents(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """New documents, published before or after, known or arrived after; some name an entity nobody knows."""
    del cycle
    names = [*rng.sample(sorted(set(entities)), min(5, len(set(entities)))), "entity of a leak probe"]
    cases = [(known, late) for late in (True, False) for known in _published(late=late)]

    def disturb(bulk: Bulk) -> int:
        done = 0
        for at, (published, late) in enumerate(cases):
            known, xid = _known(late)
            known = f"greatest({known}, {published})"
            made = """SELECT gen_random_uuid() AS id, n.name FROM unnest($1::text[]) AS n(name),
                      generate_series(1, 3)"""
            bulk.execute("DROP TABLE IF EXISTS pg_temp.probe_documents")
            bulk.execute("""
                CREATE TEMPORARY TABLE probe_documents ON COMMIT DROP AS
                SELECT gen_random_uuid() AS id, ''::text AS name LIMIT 0""")
            _count(bulk, f"INSERT INTO pg_temp.probe_documents {made}", (names,))
            bulk.execute(f"""
                INSERT INTO documents (id, source_id, source_type, published_at)
                SELECT id, 'probe', 'filing', {published} FROM pg_temp.probe_documents""")
            bulk.execute(f"""
                INSERT INTO document_intelligence (document_id, known_at, xid, source_id, source_type,
                    published_at, extraction_confidence, credibility, novelty)
                SELECT id, {known}, {xid}, 'probe', 'filing', {published}, 1, 1, 1
                FROM pg_temp.probe_documents""")
            done += _count(
                bulk,
                f"""INSERT INTO document_impact_records (document_id, entity_id, published_at, sentiment,
                        impact_score, catalyst_type, xid)
                    SELECT id, name, {published}, {(-1) ** at}, 1, 'legal', {xid}
                    FROM pg_temp.probe_documents""",
            )
        return done

    return disturb, None


def _published(*, late: bool) -> tuple[str, ...]:
    before = f"{cycles.AS_OF} - interval '90 minutes'"
    return (before, _LATER, f"{cycles.AS_OF} + interval '3 days'") if late else (before,)


def _revisions(table: str, *, late: bool, retract: bool) -> Callable[..., Disturbance]:
    """Replace or withdraw what the cycle sees, from after it on, or by what arrived after it."""

    def make(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
        del cycle, entities
        key, new = _VERSIONED[table]
        known, xid = _known(late)
        salt = rng.randrange(10**6)

        def disturb(bulk: Bulk) -> int:
            own = [name.strip() for name in key.split(",")]
            named = f"ROW({', '.join(f't.{name}' for name in own)})::text"
            same = " AND ".join(f"t.{name} = r.{name}" for name in own)
            bulk.execute("DROP TABLE IF EXISTS pg_temp.probe_rows")
            bulk.execute(f"""
                CREATE TEMPORARY TABLE probe_rows ON COMMIT DROP AS
                SELECT t.* FROM {table} t WHERE t.ctid IN (
                    SELECT ctid FROM (
                        SELECT t.ctid, count(*) OVER () AS all_of_them, row_number() OVER (
                                   ORDER BY hashtext({named} || '{salt}')) AS place
                        FROM {table} t
                        WHERE t.superseded_xid IS NULL AND NOT t.retracted AND t.known_at <= {cycles.AS_OF}
                          AND pg_visible_in_snapshot(t.xid, {cycles.SNAPSHOT})
                    ) AS seen WHERE place <= greatest(1, all_of_them / 2))""")
            bulk.execute(f"""
                UPDATE {table} t SET superseded_known_at = greatest({known}, t.known_at),
                       superseded_xid = {xid}
                FROM pg_temp.probe_rows r WHERE {same} AND t.version = r.version""")
            bulk.execute(f"""
                UPDATE pg_temp.probe_rows t SET version = version + 1,
                       known_at = greatest({known}, known_at), xid = {xid},
                       retracted = {str(retract).lower()}{"" if retract else ", " + new}""")
            done = _count(bulk, f"INSERT INTO {table} SELECT * FROM pg_temp.probe_rows")
            if table == "document_intelligence" and not retract:
                bulk.execute(f"""
                    INSERT INTO document_impact_records (document_id, version, entity_id, published_at,
                        has_impact, sentiment, impact_score, catalyst_type, xid)
                    SELECT i.document_id, i.version + 1, i.entity_id, i.published_at, i.has_impact,
                           -i.sentiment, 1 - i.impact_score, 'regulatory', {xid}
                    FROM document_impact_records i JOIN pg_temp.probe_rows r
                      ON r.document_id = i.document_id AND r.version = i.version + 1""")
            return done

        return disturb, None

    return make


def _bars(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """Bars of the cycle's day and of later ones, by time; of days without one, by arrival."""
    del cycle
    jump = rng.choice((0.5, 2.0))

    def disturb(bulk: Bulk) -> int:
        done = 0
        for days, late in (("generate_series(0, 20)", True), ("generate_series(-300, -1)", False)):
            known, xid = _known(late)
            known = (
                f"greatest({_LATER}, (d.day + 1)::timestamp AT TIME ZONE 'UTC')"
                if late
                else f"(d.day + 1)::timestamp AT TIME ZONE 'UTC'"  # noqa: F541 - the counterpart
            )
            done += _count(
                bulk,
                f"""INSERT INTO market_bars (entity_id, day, known_at, xid, close, volume)
                    SELECT e.name, d.day, {known}, {xid}, 100 * {jump} + extract(dow FROM d.day), 1e6
                    FROM unnest($1::text[]) AS e(name), LATERAL (
                        SELECT ({cycles.AS_OF} AT TIME ZONE 'UTC')::date + {days} AS day) d
                    ON CONFLICT DO NOTHING""",
                (sorted({*entities, "entity of a leak probe"}),),
            )
        return done

    return disturb, None


def _world(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """New events, exposures and relationships, by time or by arrival."""
    del cycle
    names, salt = sorted(set(entities)), str(rng.random())

    def disturb(bulk: Bulk) -> int:
        done = 0
        for late in (True, False):
            known, xid = _known(late)
            for occurred in (f"{cycles.AS_OF} - interval '2 hours'", *((_LATER,) if late else ())):
                done += _count(
                    bulk,
                    f"""INSERT INTO macro_events (id, known_at, xid, direction, severity, estimated_duration,
                            geo, sector, supply, commodity, occurred_at)
                        SELECT gen_random_uuid(), greatest({known}, {occurred}), {xid}, 'negative',
                               'critical', 'long_term', items.geo, items.sector, items.supply,
                               items.commodity, {occurred}
                        FROM (SELECT {_items("geo")}, {_items("sector")}, {_items("supply")},
                                     {_items("commodity")}) AS items""",
                )
            done += _count(
                bulk,
                f"""INSERT INTO competitive_edges (source_entity, target_entity, relation_type, known_at, xid,
                        historical_correlation)
                    SELECT n.name, o.name, 'probe {late}', {known}, {xid}, 0.9
                    FROM unnest($1::text[]) AS n(name), (
                        SELECT entity_id AS name FROM document_impact_records GROUP BY entity_id
                        ORDER BY hashtext(entity_id || $2::text) LIMIT 10) AS o
                    WHERE n.name <> o.name""",
                (names, salt),
            )
            done += _count(
                bulk,
                f"""INSERT INTO exposure_profiles (entity_id, version, known_at, xid, geo)
                    SELECT name, {90 + late}, {known}, {xid}, '{{"us": 1}}' FROM unnest($1::text[]) AS n(name)
                    """,
                ([*names, "entity of a leak probe"],),
            )
        return done

    return disturb, None


def _items(dimension: str) -> str:
    return f"""COALESCE((SELECT jsonb_agg(DISTINCT x.key) FROM exposure_profiles p,
        LATERAL jsonb_object_keys(p.{dimension}) AS x(key)), '[]') AS {dimension}"""


def _accuracies(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """Accuracies of later cycles, and the current table."""
    del cycle, entities
    ratio = rng.choice((0.0, 1.0))

    def disturb(bulk: Bulk) -> int:
        sources = "(SELECT DISTINCT source_id FROM document_intelligence UNION SELECT 'probe')"
        done = _count(
            bulk,
            f"""INSERT INTO source_accuracy_history (as_of, config_version, source_id, accuracy_ratio,
                    sample_count)
                SELECT w.as_of, {cycles.CONFIG_VERSION} + w.other, s.source_id, {ratio}, 500
                FROM {sources} s, (VALUES ({_LATER}, 0), ({cycles.AS_OF}, 100000),
                    ({cycles.AS_OF} + interval '5 days', 0)) AS w(as_of, other)
                ON CONFLICT DO NOTHING""",
        )
        return done + _count(
            bulk,
            f"""INSERT INTO source_accuracy (source_id, accuracy_ratio, sample_count)
                SELECT source_id, {ratio}, 500 FROM {sources} s
                ON CONFLICT (source_id) DO UPDATE SET accuracy_ratio = excluded.accuracy_ratio,
                    sample_count = excluded.sample_count""",
        )

    return disturb, None


def _results_of_others(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """Trends and decisions of later cycles, of other configurations, and written later of earlier moments."""
    del cycle
    strength = rng.choice((0.2, 0.9))
    names = sorted(set(entities))

    def disturb(bulk: Bulk) -> int:
        when = f"""(VALUES ({cycles.AS_OF} - interval '1 hour', 0), ({cycles.AS_OF}, 100000),
                     ({_LATER}, 0), ({cycles.AS_OF} + interval '2 days', 0)) AS w(as_of, other)"""
        here = f'FROM unnest($1::text[]) AS n(name), unnest($2::text[]) AS o("window"), {when}'
        version = f"{cycles.CONFIG_VERSION} + w.other"
        windows = list(results.WINDOWS)
        bulk.execute(
            f"""INSERT INTO cycles (as_of, config_version, snapshot, pipeline_mode, config_hash,
                    code_version, library_set)
                SELECT w.as_of, {cycles.CONFIG_VERSION}, '1:1:', 'heuristic', '', '', '{{}}' FROM {when}
                WHERE w.other = 0 ON CONFLICT DO NOTHING"""
        )
        done = _count(
            bulk,
            f"""INSERT INTO trend_history (id, entity_id, "window", trend_direction, trend_strength,
                    confidence, contradiction_score, disagreement_details, top_supporting_evidence,
                    top_opposing_evidence, dominant_catalysts, material_risks, market_context, generated_at,
                    config_version)
                SELECT gen_random_uuid(), n.name, o."window", 'negative', {strength}, 0.9, 0, '[]', '[]',
                       '[]', '[]', '[]', '{{}}', w.as_of, {version} {here}""",
            (names, windows),
        )
        bulk.execute("DROP TABLE IF EXISTS pg_temp.probe_decisions")
        bulk.execute("""
            CREATE TEMPORARY TABLE probe_decisions (LIKE recommendations) ON COMMIT DROP""")
        # It would make every decision a duplicate: the same action, mode and confidence.
        _count(
            bulk,
            f"""INSERT INTO pg_temp.probe_decisions
                SELECT gen_random_uuid(), r.entity_id, r.action, r.mode, r.confidence, r.time_horizon,
                       'probe', '[]', 0, 0, '{{}}', 'low', r.pipeline_mode, NULL, NULL, w.as_of, {version}
                FROM cycle_keys c JOIN recommendations r ON r.id = c.standing_recommendation_id, {when}
                WHERE c.as_of = {cycles.AS_OF} AND c.config_version = {cycles.CONFIG_VERSION}
                  AND c.entity_id = ANY($1::text[])""",
            (names,),
        )
        done += _count(bulk, "INSERT INTO recommendations SELECT * FROM pg_temp.probe_decisions")
        return done + _count(
            bulk,
            f"""INSERT INTO cycle_keys (as_of, config_version, entity_id, "window", signal_seq, trend_seq,
                    projection_seq, decision_seq, standing_recommendation_id)
                SELECT p.generated_at, p.config_version, p.entity_id, p.time_horizon, s.n, s.n, s.n, s.n, p.id
                FROM pg_temp.probe_decisions p,
                     (SELECT max(greatest(decision_seq, projection_seq)) + 1000000 AS n FROM cycle_keys) s
                ON CONFLICT (entity_id, "window", as_of, config_version) DO UPDATE
                SET standing_recommendation_id = excluded.standing_recommendation_id
                WHERE cycle_keys.as_of > {cycles.AS_OF}""",
        )

    return disturb, None


def _configurations(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """A version that becomes active now, with other thresholds and the other set of rules."""
    del entities
    flags = cycle.config.flags
    wanted = cycle.config.with_settings(
        {
            "flags.probabilistic_scoring_enabled": not flags.probabilistic_scoring_enabled,
            "scoring.half_life_hours.7d": rng.choice((5.0, 300.0)),
        }
    ).stored()

    def disturb(bulk: Bulk) -> int:
        bulk.execute("UPDATE risk_configs SET active = false WHERE active")
        return _count(
            bulk,
            "INSERT INTO risk_configs (active, config, reason) SELECT true, $1::text::jsonb, 'leak probe'",
            (json.dumps(wanted),),
        )

    return disturb, None


def _future_rows(*, remove: bool) -> Callable[..., Disturbance]:
    """Change or remove what is stored and must not count: rows known later or arrived later."""

    def make(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
        del cycle, entities
        factor = rng.choice((0.5, 3.0))
        hidden = f"(t.known_at > {cycles.AS_OF} OR {_UNSEEN.format(row='t')})"
        impacts = f"""FROM document_intelligence t WHERE i.document_id = t.document_id
                      AND i.version = t.version AND {hidden}"""

        def disturb(bulk: Bulk) -> int:
            if not remove:
                return (
                    _count(bulk, f"UPDATE market_bars t SET close = t.close * {factor} WHERE {hidden}")
                    + _count(bulk, f"UPDATE macro_events t SET severity = 'low' WHERE {hidden}")
                    + _count(
                        bulk, f"UPDATE document_impact_records i SET sentiment = -1 * sentiment {impacts}"
                    )
                )
            done = sum(
                _count(bulk, f"DELETE FROM {table} t WHERE {hidden}")
                for table in ("market_bars", "macro_events", "exposure_profiles", "competitive_edges")
            )
            return done + _count(
                bulk, f"DELETE FROM document_impact_records i {impacts.replace('FROM', 'USING', 1)}"
            )

        return disturb, None

    return make


# -------------------------------------------------------------------------------- disturbances of the core


def _core(cycle: Cycle, rng: random.Random, entities: Sequence[str]) -> Disturbance:
    """Rows known a microsecond after the cycle, among what the core is handed."""
    del entities
    late = cycle.as_of_us + 1
    count = 0

    def change(read: CycleInputs) -> CycleInputs:
        nonlocal count
        generator = np.random.default_rng(rng.randrange(2**32))
        docs, bars, events = read.documents, read.bars, read.events
        rows = generator.permutation(len(docs.entity))
        again = dataclasses.replace(
            docs.take(rows),
            known_us=np.full(len(rows), late),
            sentiment=-docs.sentiment[rows],
            impact=1.0 - docs.impact[rows],
        )
        future = dataclasses.replace(bars, known_us=np.full(len(bars.day), late), close=bars.close * 2.0)
        shifted = dataclasses.replace(events, known_us=np.full(len(events.event), late), sign=-events.sign)
        edges = dataclasses.replace(
            read.edges, known_us=np.full(len(read.edges.rho), late), rho=-read.edges.rho
        )
        shares = dataclasses.replace(
            read.exposures,
            known_us=np.full(len(read.exposures.share), late),
            share=1.0 - read.exposures.share,
        )
        count += sum(len(each.known_us) for each in (again, future, shifted, edges, shares))
        return dataclasses.replace(
            read,
            documents=_joined(docs, again),
            bars=_joined(bars, future),
            events=_joined(events, shifted),
            edges=_joined(read.edges, edges),
            exposures=_joined(read.exposures, shares),
        )

    return (lambda _bulk: 1), change


def _joined(rows: Any, more: Any) -> Any:  # noqa: ANN401 - any of the columns, twice the same
    """The rows of both."""
    values = {}
    for each in dataclasses.fields(rows):
        a, b = getattr(rows, each.name), getattr(more, each.name)
        if isinstance(a, np.ndarray):
            values[each.name] = np.concatenate((a, b))
        else:
            offsets = np.concatenate((a.offsets, a.offsets[-1] + b.offsets[1:]))
            values[each.name] = type(a)(offsets, np.concatenate((a.codes, b.codes)))
    return type(rows)(**values)


KINDS: Final[dict[str, Callable[..., Disturbance]]] = {
    "new documents": _documents,
    "revised documents known later": _revisions("document_intelligence", late=True, retract=False),
    "withdrawn documents, known later": _revisions("document_intelligence", late=True, retract=True),
    "revised documents that arrived later": _revisions("document_intelligence", late=False, retract=False),
    "withdrawn documents that arrived later": _revisions("document_intelligence", late=False, retract=True),
    "new bars": _bars,
    "revised bars known later": _revisions("market_bars", late=True, retract=False),
    "revised bars that arrived later": _revisions("market_bars", late=False, retract=False),
    "new events, exposures and relationships": _world,
    "revised events known later": _revisions("macro_events", late=True, retract=False),
    "withdrawn events that arrived later": _revisions("macro_events", late=False, retract=True),
    "revised exposures known later": _revisions("exposure_profiles", late=True, retract=False),
    "revised exposures that arrived later": _revisions("exposure_profiles", late=False, retract=False),
    "revised relationships known later": _revisions("competitive_edges", late=True, retract=False),
    "withdrawn relationships that arrived later": _revisions("competitive_edges", late=False, retract=True),
    "accuracies of later cycles": _accuracies,
    "results of other cycles": _results_of_others,
    "configurations": _configurations,
    "changed rows of the future": _future_rows(remove=False),
    "removed rows of the future": _future_rows(remove=True),
    "rows of the future handed to the core": _core,
}
"""What can be disturbed; a probe takes one kind, in this order."""
