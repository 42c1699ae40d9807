"""Recompute stored cycles from their inputs and compare every stored field bit for bit.

A rehearsal computes the cycle again; the product's own writers put its frames into temporary tables that
shadow the stored ones; one statement per table compares both as text, which shows floats exactly. So there is
no second description of what a row holds. Nothing stored is touched. No rule and no output format here.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlalchemy as sa

from oracle_core.config import ConfigError
from oracle_core.cycle import CODE_VERSION
from oracle_dagster import pipeline
from oracle_dagster.storage import cycles, decisions, results
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION, SEQUENCES
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.schema import cycle_keys, recommendations, source_accuracy_history
from oracle_dagster.storage.schema import cycles as cycles_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Bulk, Database

    Progress = Callable[[str, int, int], None]

TOLERANCE: Final = 1e-12
"""Relative and absolute, for numbers of a cycle that ran on another machine or with other libraries."""
_MISSING: Final = "no such row"


@dataclass(frozen=True)
class CycleId:
    """Which cycle."""

    as_of: datetime
    config_version: int


@dataclass(frozen=True)
class Difference:
    """A stored field that is not what the rules make of the inputs; a missing row has field ``(row)``."""

    table: str
    entity_id: str
    window: str
    field: str
    stored: object
    recomputed: object


@dataclass
class CycleReport:
    """What verifying (some keys of) a cycle found.

    ``exact`` is false where the cycle ran on another machine or library set, so that numbers were compared to
    ``TOLERANCE``; ``notes`` say so, and whether the rules have changed since. ``rows`` counts what was
    compared, by table; ``failures`` name what could not be computed again.
    """

    cycle: CycleId
    keys: int = 0
    exact: bool = True
    rows: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    failures: list[cycles.Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether everything was computed again and is as stored."""
        return not self.differences and not self.failures


def stored_cycles(database: Database) -> list[CycleId]:
    """Every recorded cycle, oldest first."""
    query = sa.select(cycles_table.c.as_of, cycles_table.c.config_version).order_by(
        cycles_table.c.as_of, cycles_table.c.config_version
    )
    with database.begin() as connection:
        return [CycleId(*row) for row in connection.execute(query)]


def keys_of(database: Database, recommendation_ids: Sequence[str]) -> dict[CycleId, list[Key]]:
    """The cycle and key of every recommendation, oldest cycle first.

    Raises:
        StorageError: there is no such recommendation.

    """
    table = recommendations.c
    query = (
        sa.select(table.id, table.generated_at, table.config_version, table.entity_id, table.time_horizon)
        .where(table.id.in_(recommendation_ids))
        .order_by(table.generated_at, table.config_version)
    )
    with database.begin() as connection:
        found = connection.execute(query).all()
    missing = sorted(set(recommendation_ids) - {str(row.id) for row in found})
    if missing:
        raise StorageError(
            f"there is no recommendation {missing[0]} in the {database.place}. Remedy: take an id from "
            "`oracle export recommendations --format csv`; what was pruned cannot be verified."
        )
    keys: dict[CycleId, list[Key]] = {}
    for row in found:
        keys.setdefault(CycleId(row.generated_at, row.config_version), []).append(
            (row.entity_id, row.time_horizon)
        )
    return keys


def sample(database: Database, count: int, seed: str = "") -> list[str]:
    """Ids of ``count`` recommendations, the same for the same seed and rows."""
    query = sa.select(sa.cast(recommendations.c.id, sa.Text)).order_by(
        sa.func.md5(sa.cast(recommendations.c.id, sa.Text) + seed)
    )
    with database.begin() as connection:
        return list(connection.execute(query.limit(count)).scalars())


def verify_cycle(
    database: Database,
    which: CycleId,
    keys: Sequence[Key] | None = None,
    *,
    on_progress: Progress | None = None,
    block_entities: int = pipeline.BLOCK_ENTITIES,
) -> CycleReport:
    """Recompute a cycle and compare it with what is stored of it.

    Trends, projections, recommendations, evaluations and evidence; signals and current trends where the
    tables still hold this cycle's; the sources' accuracy where it was measured, if all keys are asked for.
    A thesis that a model has worded is not compared, its ``deterministic_thesis`` is.

    Args:
        database: the domain database.
        which: the recorded cycle.
        keys: only these; all that the cycle has computed where None.
        on_progress: called with the phase, the keys done and all keys.
        block_entities: entities computed at a time.

    Raises:
        StorageError: the database cannot be used, or the cycle was never recorded.

    """
    report = CycleReport(which)
    cycle = _opened(database, which, report)
    if cycle is None:
        return report
    for stages, chosen in _by_stages(database, which, keys).items():
        report.keys += len(chosen)
        rehearsal = pipeline.rehearse(
            database, cycle, chosen, stages, on_progress=on_progress, block_entities=block_entities
        )
        for each in rehearsal:
            report.failures += each.report.failures
            for part in each.parts:
                _compare(database, part, stages, report)
    if keys is None:
        _compare_accuracy(database, cycle, report)
    report.differences.sort(key=lambda d: (_ORDER[d.table], d.entity_id, d.window))
    return report


def _opened(database: Database, which: CycleId, report: CycleReport) -> Cycle | None:
    """The cycle, and what differs around it: configuration, code, machine."""
    here = (cycles_table.c.as_of == which.as_of, cycles_table.c.config_version == which.config_version)
    with database.begin() as connection:
        record = connection.execute(sa.select(cycles_table).where(*here)).first()
    try:
        cycle = cycles.read_cycle(database, which.as_of, which.config_version)
    except ConfigError as error:
        stored = None if record is None else record.config_hash
        report.differences.append(Difference("risk_configs", "", "", "config", str(error), stored))
        return None
    assert record is not None  # noqa: S101 - read_cycle has found it
    if cycle.config.fingerprint() != record.config_hash:
        fault = Difference(
            "risk_configs", "", "", "config", cycle.config.fingerprint(), f"{record.config_hash} (recorded)"
        )
        report.differences.append(fault)
    if record.code_version != CODE_VERSION:
        report.notes.append(
            f"computed by code {record.code_version}, recomputed by {CODE_VERSION}: the rules have changed, "
            "so differences are to be expected"
        )
    here_and_now = cycles.library_set()
    if record.library_set != here_and_now:
        report.exact = False
        report.notes.append(
            f"computed on {_listed(record.library_set)}, recomputed on {_listed(here_and_now)}: numbers are "
            f"compared to {TOLERANCE:g}, not bit for bit"
        )
    return cycle


def _listed(libraries: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(libraries.items()))


def _by_stages(
    database: Database, which: CycleId, keys: Sequence[Key] | None
) -> dict[tuple[str, ...], list[Key]]:
    """The keys of the cycle by the stages that were run for them."""
    numbers = [cycle_keys.c[name] for name in SEQUENCES.values()]
    query = sa.select(cycle_keys.c.entity_id, cycle_keys.c.window, *numbers).where(
        cycle_keys.c.as_of == which.as_of, cycle_keys.c.config_version == which.config_version
    )
    if keys is not None:
        query = query.where(cycle_keys.c.entity_id.in_({entity for entity, _ in keys}))
    wanted = None if keys is None else set(keys)
    found: dict[tuple[str, ...], list[Key]] = {}
    with database.begin() as connection:
        for entity, window, *made in connection.execute(query):
            stages = tuple(stage for stage, number in zip(SEQUENCES, made, strict=True) if number is not None)
            if stages and (wanted is None or (entity, window) in wanted):
                found.setdefault(stages, []).append((entity, window))
    return found


# ---------------------------------------------------------------------------------------- comparing rows


@dataclass(frozen=True)
class _Table:
    """How the rows of a table are matched.

    ``stage`` made it; ``key`` is its primary key; ``owner`` gives entity and window of a row as JSON,
    ``either``; ``rows`` are the stored rows of the staged keys in this cycle, with {schema}; ``current`` says
    whether the table holds only the newest cycle of a key.
    """

    name: str
    stage: str
    key: str
    rows: str
    owner: str = "either ->> 'entity_id' AS entity_id, either ->> 'window' AS \"window\""
    current: bool = False


_OF_KEYS: Final = 'JOIN slice_keys k ON k.entity_id = r.entity_id AND k."window" = r."window"'
_OF_RECOMMENDATIONS: Final = """
    JOIN {schema}.recommendations o ON o.id = r.recommendation_id
    JOIN slice_keys k ON k.entity_id = o.entity_id AND k."window" = o.time_horizon"""


def _at(time: str, row: str = "r") -> str:
    return f"WHERE {row}.{time} = {AS_OF} AND {row}.config_version = {CONFIG_VERSION}"


def _owned(table: str, column: str) -> str:
    return ", ".join(
        f"(SELECT w.{name} FROM {table} w WHERE w.id::text = either ->> '{column}') AS {name}"
        for name in ("entity_id", '"window"')
    )


_TABLES: Final = (
    _Table(
        "weighted_signals",
        "weighted_signals",
        'entity_id, "window", signal_id',
        f"SELECT r.* FROM {{schema}}.weighted_signals r {_OF_KEYS} {_at('as_of')}",
        current=True,
    ),
    _Table(
        "trend_windows",
        "trend_windows",
        "id",
        f"SELECT r.* FROM {{schema}}.trend_windows r {_OF_KEYS} {_at('generated_at')}",
        current=True,
    ),
    _Table(
        "trend_history",
        "trend_windows",
        "id",
        f"SELECT r.* FROM {{schema}}.trend_history r {_OF_KEYS} {_at('generated_at')}",
    ),
    _Table(
        "trend_evidence",
        "trend_windows",
        "id",
        f"""SELECT r.* FROM {{schema}}.trend_evidence r
            JOIN {{schema}}.trend_windows o ON o.id = r.trend_window_id
            JOIN slice_keys k ON k.entity_id = o.entity_id AND k."window" = o."window"
            {_at("generated_at", "o")}""",
        owner=_owned("pg_temp.trend_windows", "trend_window_id"),
        current=True,
    ),
    _Table(
        "trend_projections",
        "trend_projections",
        "id",
        f"SELECT r.* FROM {{schema}}.trend_projections r {_OF_KEYS} {_at('computed_at')}",
    ),
    _Table(
        "recommendations",
        "recommendations",
        "id",
        f"""SELECT r.* FROM {{schema}}.recommendations r
            JOIN slice_keys k ON k.entity_id = r.entity_id AND k."window" = r.time_horizon
            {_at("generated_at")}""",
        owner="either ->> 'entity_id' AS entity_id, either ->> 'time_horizon' AS \"window\"",
    ),
    _Table(
        "risk_evaluations",
        "recommendations",
        "id",
        f"SELECT r.* FROM {{schema}}.risk_evaluations r {_OF_RECOMMENDATIONS} {_at('generated_at', 'o')}",
        owner=_owned("owners", "recommendation_id"),
    ),
    _Table(
        "recommendation_evidence",
        "recommendations",
        "recommendation_id, document_id, evidence_type",
        f"""SELECT r.* FROM {{schema}}.recommendation_evidence r {_OF_RECOMMENDATIONS}
            {_at("generated_at", "o")}""",
        owner=_owned("owners", "recommendation_id"),
    ),
)
_ORDER: Final = {
    name: at
    for at, name in enumerate(
        ("risk_configs", "source_accuracy_history", "cycle_keys", *(table.name for table in _TABLES))
    )
}


def _compare(database: Database, part: pipeline.Part, stages: Sequence[str], report: CycleReport) -> None:
    """Write the part into shadows of the tables and compare these with the tables."""
    if not part.keys:
        return

    def transaction(bulk: Bulk) -> list[tuple[str, int, pa.Table]]:
        cycles.enter(bulk, part.cycle)
        schema = _shadow(bulk)
        cycles.stage_keys(bulk, part.keys)
        _write(bulk, part, stages)
        bulk.execute(f"""
            CREATE TEMPORARY TABLE owners ON COMMIT DROP AS
            SELECT id, entity_id, time_horizon AS "window" FROM pg_temp.recommendations
            UNION SELECT r.id, r.entity_id, r.time_horizon FROM {schema}.recommendations r
                  JOIN slice_keys k ON k.entity_id = r.entity_id AND k."window" = r.time_horizon
                  {_at("generated_at")}""")
        found = [("cycle_keys", 0, bulk.arrow(_keys_query(schema)))]
        found += [
            (table.name, _count(bulk, table), bulk.arrow(_query(table, schema)))
            for table in _TABLES
            if table.stage in stages
        ]
        return found

    # Repeatable read: a run that replaces current rows meanwhile must not be taken for a difference.
    for name, rows, table in database.run(transaction, "REPEATABLE READ"):
        report.rows[name] = report.rows.get(name, 0) + rows
        for row in table.to_pylist():
            report.differences += _differences(name, row, exact=report.exact)


def _shadow(bulk: Bulk) -> str:
    """Make empty temporary tables of the same names, which hide the stored ones; return these' schema."""
    (schema,) = bulk.arrow("SELECT quote_ident(current_schema()) AS name").column("name").to_pylist()
    for name in ("cycle_keys", *(table.name for table in _TABLES)):
        bulk.execute(
            f"CREATE TEMPORARY TABLE {name} (LIKE {schema}.{name} INCLUDING DEFAULTS INCLUDING INDEXES) "
            "ON COMMIT DROP"
        )
    bulk.execute("CREATE TEMPORARY SEQUENCE cycle_sequence OWNED BY pg_temp.cycle_keys.signal_seq")
    return str(schema)


def _write(bulk: Bulk, part: pipeline.Part, stages: Sequence[str]) -> None:
    if "weighted_signals" in stages and part.signals is not None:
        results.write_signals(bulk, part.signals)
    if "trend_windows" in stages and part.trends is not None:
        results.write_trends(bulk, part.cycle, part.keys, part.trends)
    if "trend_projections" in stages and part.projections is not None:
        results.write_projections(bulk, part.cycle, part.keys, part.projections)
    if "recommendations" in stages and part.trends is not None and part.decided is not None:
        decisions.write_decisions(
            bulk, part.cycle, part.keys, frame=part.decided, trends=part.trends, made=part.made
        )


def _count(bulk: Bulk, table: _Table) -> int:
    (rows,) = bulk.arrow(f"SELECT count(*) AS n FROM pg_temp.{table.name}").column("n").to_pylist()
    return int(rows)


def _query(table: _Table, schema: str) -> str:
    held = "true"
    if table.current:
        sequence = SEQUENCES[table.stage]
        # A later cycle, or another configuration of the same moment, may have replaced this one's rows.
        held = f"""(d.r_row IS NOT NULL OR NOT EXISTS (
            SELECT FROM {schema}.cycle_keys c
            WHERE c.entity_id = d.entity_id AND c."window" = d."window" AND c.{sequence} IS NOT NULL
              AND c.as_of >= {AS_OF} AND (c.as_of, c.config_version) <> ({AS_OF}, {CONFIG_VERSION})))"""
    return f"""
        WITH stored AS MATERIALIZED ({table.rows.format(schema=schema)}),
        differing AS MATERIALIZED (
            SELECT to_jsonb(s) AS s_row, to_jsonb(o) AS r_row, COALESCE(to_jsonb(s), to_jsonb(o)) AS either
            FROM pg_temp.{table.name} s FULL JOIN stored o USING ({table.key})
            WHERE s::text IS DISTINCT FROM o::text),
        d AS (SELECT s_row, r_row, {table.owner} FROM differing)
        SELECT d.entity_id, d."window", d.s_row::text AS recomputed, d.r_row::text AS stored
        FROM d WHERE {held}"""


def _keys_query(schema: str) -> str:
    """What the record of the keys says of skipped signals and of the recommendation that stands."""
    return f"""
        SELECT entity_id, "window",
               jsonb_build_object('signals_skipped', s.signals_skipped,
                                  'standing_recommendation_id', s.standing_recommendation_id)::text
                 AS recomputed,
               jsonb_build_object(
                   'signals_skipped', CASE WHEN o.signal_seq IS NOT NULL THEN o.signals_skipped END,
                   'standing_recommendation_id',
                   CASE WHEN o.decision_seq IS NOT NULL THEN o.standing_recommendation_id END)::text AS stored
        FROM pg_temp.cycle_keys s
        JOIN {schema}.cycle_keys o USING (entity_id, "window", as_of, config_version)
        WHERE (s.signals_skipped, s.standing_recommendation_id) IS DISTINCT FROM
              (CASE WHEN o.signal_seq IS NOT NULL THEN o.signals_skipped END,
               CASE WHEN o.decision_seq IS NOT NULL THEN o.standing_recommendation_id END)"""


def _differences(table: str, row: dict[str, Any], *, exact: bool) -> Iterator[Difference]:
    stored = None if row["stored"] is None else json.loads(row["stored"])
    again = None if row["recomputed"] is None else json.loads(row["recomputed"])
    place = (table, row["entity_id"], row["window"])
    if stored is None or again is None:
        there = {"stored": _MISSING} if stored is None else {"stored": _short(stored)}
        there["recomputed"] = _MISSING if again is None else _short(again)
        yield Difference(*place, "(row)", there["stored"], there["recomputed"])
        return
    if table == "recommendations" and _worded(stored["model_metadata"]):
        stored, again = _rules_own(stored), _rules_own(again)
    for name, value in stored.items():
        yield from (Difference(*place, *found) for found in _fields(name, value, again[name], exact=exact))


def _short(row: dict[str, Any]) -> str:
    identity = row.get("id") or row.get("signal_id") or row.get("document_id")
    return f"a row {identity}"


def _worded(model_metadata: dict[str, Any]) -> bool:
    return model_metadata.get("llm_used") is True


def _rules_own(row: dict[str, Any]) -> dict[str, Any]:
    """A recommendation without the words of a model, but with those of the rules that they replaced."""
    rest = {name: value for name, value in row.items() if name not in {"thesis", "model_metadata"}}
    return {
        **rest,
        "model_metadata.deterministic_thesis": row["model_metadata"].get("deterministic_thesis"),
    }


def _fields(name: str, stored: object, again: object, *, exact: bool) -> Iterator[tuple[str, object, object]]:
    """The leaves that differ, by their path."""
    if isinstance(stored, dict) and isinstance(again, dict):
        for key in sorted({*stored, *again}):
            yield from _fields(
                f"{name}.{key}", stored.get(key, _MISSING), again.get(key, _MISSING), exact=exact
            )
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for at, (a, b) in enumerate(zip(stored, again, strict=True)):
            yield from _fields(f"{name}[{at}]", a, b, exact=exact)
    elif not _same(stored, again, exact=exact):
        yield name, stored, again


def _same(stored: object, again: object, *, exact: bool) -> bool:
    if isinstance(stored, bool) or isinstance(again, bool):
        return stored is again
    if isinstance(stored, int | float) and isinstance(again, int | float):
        if exact:
            return stored == again
        return math.isclose(stored, again, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(stored) is type(again) and stored == again


def _compare_accuracy(database: Database, cycle: Cycle, report: CycleReport) -> None:
    """Measure the sources again, where this cycle has measured them."""
    table = source_accuracy_history.c
    query = sa.select(table.source_id, table.accuracy_ratio, table.sample_count).where(
        table.as_of == cycle.as_of, table.config_version == cycle.config_version
    )
    with database.begin() as connection:
        stored = {source: (ratio, samples) for source, ratio, samples in connection.execute(query)}
    if len(stored) == 0:
        return
    sources, ratio, samples = pipeline.measure_sources(database, cycle)
    again = dict(zip(sources, zip(ratio.tolist(), samples.tolist(), strict=True), strict=True))
    report.rows["source_accuracy_history"] = len(again)
    for source in sorted({*stored, *again}):
        pair = (stored.get(source), again.get(source))
        if None in pair:
            gone = [_MISSING if each is None else f"a row {source}" for each in pair]
            report.differences.append(Difference("source_accuracy_history", source, "", "(row)", *gone))
            continue
        for name, a, b in zip(("accuracy_ratio", "sample_count"), *pair, strict=True):  # type: ignore[arg-type]
            if not _same(a, b, exact=report.exact):
                report.differences.append(Difference("source_accuracy_history", source, "", name, a, b))
