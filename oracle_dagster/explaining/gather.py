"""One recommendation with everything behind it: the cycle computed again, beside what is stored of it.

No rule, no layout and no write belongs here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from oracle_core.cycle import CODE_VERSION
from oracle_core.explanation import explain
from oracle_core.rules import rules_for
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, cycles
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.identity import row_id
from oracle_dagster.storage.schema import cycle_keys as ck
from oracle_dagster.storage.schema import cycles as recorded_cycles
from oracle_dagster.storage.schema import (
    documents,
    macro_events,
    recommendations,
    risk_evaluations,
    run_log,
    trend_history,
    trend_projections,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from oracle_core.inputs import CycleInputs
    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Database

Object = dict[str, Any]
NEAREST: Final = 4
HISTORY: Final = 200


class NotExplainableError(StorageError):
    """There is no such recommendation; the message says which there are."""


@dataclass(frozen=True)
class Chosen:
    """A key's cycle, and the recommendation that stands in it: its own, or the earlier one it equals."""

    key: Key
    as_of: datetime
    config_version: int
    standing_id: str

    @property
    def own_id(self) -> str:
        """The id of the cycle's own recommendation, stored only where it is no duplicate."""
        return row_id("recommendation", *self.key, cycles.microseconds(self.as_of), self.config_version)


def choose(
    database: Database, key: Key, as_of: datetime | None = None, config_version: int | None = None
) -> Chosen:
    """The cycle of a key that is meant.

    Args:
        database: the domain database.
        key: entity and window.
        as_of: of the cycle; the newest with a recommendation where None.
        config_version: of several cycles of one ``as_of``; the highest where None.

    Raises:
        NotExplainableError: there is none.

    """
    mine = (ck.c.entity_id == key[0]) & (ck.c.window == key[1]) & ck.c.standing_recommendation_id.is_not(None)
    wanted: list[sa.ColumnElement[bool]] = [mine]
    if as_of is not None:
        wanted.append(ck.c.as_of == as_of)
    if config_version is not None:
        wanted.append(ck.c.config_version == config_version)
    query = (
        sa.select(ck.c.as_of, ck.c.config_version, ck.c.standing_recommendation_id)
        .where(*wanted)
        .order_by(ck.c.as_of.desc(), ck.c.config_version.desc())
        .limit(1)
    )
    with database.begin() as connection:
        row = connection.execute(query).first()
        if row is None:
            raise NotExplainableError(_what_there_is(connection, key, as_of, config_version))
    return Chosen(key, row.as_of, row.config_version, str(row.standing_recommendation_id))


def _what_there_is(
    connection: sa.Connection, key: Key, as_of: datetime | None, config_version: int | None
) -> str:
    """Say what is stored instead: other cycles of the key, other windows, entities of a similar name."""
    entity, window = key
    standing = ck.c.standing_recommendation_id.is_not(None)
    under = "" if config_version is None else f" under configuration {config_version}"
    of = "" if as_of is None else f" as of {_iso(as_of)}"
    missing = f"There is no recommendation of {entity} {window}{of}{under}. "
    mine = standing & (ck.c.entity_id == entity)
    there = connection.execute(
        sa.select(ck.c.as_of, ck.c.config_version)
        .where(mine, ck.c.window == window)
        .order_by(ck.c.as_of.desc(), ck.c.config_version.desc())
        .limit(1000)
    ).all()
    if there:
        near = there
        if as_of is not None:
            near = sorted(there, key=lambda row: abs(row.as_of - as_of))
        listed = ", ".join(
            f"{_iso(row.as_of)} (configuration {row.config_version})" for row in near[:NEAREST]
        )
        return (
            f"{missing}There are some as of {listed}: name one with --as-of, or compute it with `oracle run`."
        )
    windows = connection.execute(sa.select(ck.c.window).where(mine).distinct()).scalars().all()
    if windows:
        order = [w for w in ("intraday", "1d", "7d", "30d", "90d") if w in windows]
        return f"{missing}There are some of its windows {', '.join(order)}."
    similar = (
        connection.execute(
            sa.select(ck.c.entity_id)
            .where(standing, ck.c.entity_id.icontains(entity, autoescape=True))
            .distinct()
            .order_by(ck.c.entity_id)
            .limit(NEAREST)
        )
        .scalars()
        .all()
    )
    if similar:
        return f"{missing}Entities of a similar name are {', '.join(similar)}."
    some = connection.execute(
        sa.select(ck.c.entity_id).where(standing).distinct().order_by(ck.c.entity_id).limit(NEAREST)
    )
    names = some.scalars().all()
    if names:
        return f"{missing}Nothing about {entity} was ever decided; there are {', '.join(names)} and others."
    return f"{missing}Nothing was ever decided here: load documents with `oracle ingest`, then `oracle run`."


def _iso(time: datetime) -> str:
    return cycles.moment(cycles.microseconds(time)).isoformat().replace("+00:00", "Z")


# --------------------------------------------------------------------------------------- computed again


def computed_again(
    database: Database, cycle: Cycle, key: Key, change: Callable[[CycleInputs], CycleInputs] | None = None
) -> pipeline.Part:
    """Every frame of one key of a cycle.

    Raises:
        StorageError: it cannot be computed; the message gives the reason.

    """
    found = list(pipeline.rehearse(database, cycle, [key], pipeline.STAGES, change=change))
    parts = [part for each in found for part in each.parts if part.decided is not None]
    if not parts:
        reasons = "; ".join(failure.message for each in found for failure in each.report.failures)
        raise StorageError(f"{key[0]} {key[1]} as of {_iso(cycle.as_of)} cannot be computed again: {reasons}")
    return parts[0]


def chosen_again(database: Database, chosen: Chosen) -> pipeline.Part:
    """The recorded cycle of a choice, computed again."""
    cycle = cycles.read_cycle(database, chosen.as_of, chosen.config_version)
    return computed_again(database, cycle, chosen.key)


def taken_apart(part: pipeline.Part) -> Object:
    """The decision of a part with one key, taken apart."""
    if part.signals is None or part.trends is None or part.projections is None or part.decided is None:
        raise ValueError("only what went through all stages can be taken apart")
    return explain(
        signals=part.signals,
        trends=part.trends,
        projections=part.projections,
        decided=part.decided,
        inputs=part.inputs,
        as_of_us=part.cycle.as_of_us,
        config=part.cycle.config,
        rules=rules_for(part.cycle.config),
    )


# --------------------------------------------------------------------------------------------- the page


def page(database: Database, chosen: Chosen, part: pipeline.Part | None = None) -> Object:
    """Everything about one recommendation, as an object for JSON.

    Args:
        database: the domain database.
        chosen: which cycle of which key.
        part: the cycle computed again, where that is done already.

    ``differences`` lists every stored number that the recorded inputs no longer give (none, unless rows were
    altered, a stage ran alone on an earlier one's result, or rules or libraries changed).
    """
    part = chosen_again(database, chosen) if part is None else part
    cycle = part.cycle
    found = taken_apart(part)
    _name_signals(database, found["signals"])
    stored = stored_rows(database, chosen)
    made = part.made[0]
    origin = _origin(database, chosen)
    return {
        "entity_id": chosen.key[0],
        "window": chosen.key[1],
        "as_of": chosen.as_of,
        "pipeline_mode": cycle.config.pipeline_mode.value,
        "recommendation_id": chosen.standing_id,
        "duplicate_of": _standing(database, chosen),
        **found,
        "origin": origin,
        "history": history(database, chosen),
        "events": _events(database, found["signals"], chosen.as_of),
        "differences": _differences(
            found, stored, made.risk_checks, duplicate=chosen.standing_id != chosen.own_id
        ),
    }


def _standing(database: Database, chosen: Chosen) -> Object | None:
    """The earlier recommendation that this cycle's decision repeats, None where it is its own."""
    if chosen.standing_id == chosen.own_id:
        return None
    columns = (
        recommendations.c.action,
        recommendations.c.mode,
        recommendations.c.confidence,
        recommendations.c.generated_at,
        recommendations.c.config_version,
    )
    with database.begin() as connection:
        row = connection.execute(sa.select(*columns).where(recommendations.c.id == chosen.standing_id)).one()
    return {"id": chosen.standing_id, **row._mapping}  # noqa: SLF001 - the public name of a row as a mapping


def stored_rows(database: Database, chosen: Chosen) -> Object:
    """The stored trend, projection, recommendation and evaluation of the cycle; None where there is none."""
    entity, window = chosen.key
    own = sa.select(recommendations).where(recommendations.c.id == chosen.own_id)
    trend = sa.select(trend_history).where(
        trend_history.c.entity_id == entity,
        trend_history.c.window == window,
        trend_history.c.generated_at == chosen.as_of,
        trend_history.c.config_version == chosen.config_version,
    )
    projection = sa.select(trend_projections).where(
        trend_projections.c.entity_id == entity,
        trend_projections.c.window == window,
        trend_projections.c.computed_at == chosen.as_of,
        trend_projections.c.config_version == chosen.config_version,
    )
    evaluation = sa.select(risk_evaluations).where(risk_evaluations.c.recommendation_id == chosen.own_id)
    queries = {
        "recommendation": own,
        "trend": trend,
        "projection": projection,
        "evaluation": evaluation,
    }
    with database.begin() as connection:
        rows = {name: connection.execute(query).mappings().first() for name, query in queries.items()}
    return {name: None if row is None else dict(row) for name, row in rows.items()}


def _differences(found: Object, stored: Object, checks: Object, *, duplicate: bool) -> list[Object]:
    """Every stored value that is not what was computed again."""
    decision, direction, projection = found["decision"], found["direction"], found["projection"]
    pairs: list[tuple[str, Any, Any]] = []

    def compare(table: str, computed: Object) -> None:
        row = stored[table]
        if row is None:
            pairs.append((table, "no row", "a row"))
            return
        pairs.extend((f"{table}.{name}", row[name], value) for name, value in computed.items())

    compare(
        "trend",
        {
            "trend_direction": direction["direction"],
            "trend_strength": direction["strength"],
            "confidence": decision["confidence"],
            "contradiction_score": direction["contradiction"],
            "top_supporting_evidence": direction["supporting"],
            "top_opposing_evidence": direction["opposing"],
            "dominant_catalysts": direction["dominant_catalysts"],
            "material_risks": direction["material_risks"],
            "disagreement_details": direction["disagreements"],
        },
    )
    if stored["trend"] is not None:
        basis = stored["trend"]["market_context"].get("basis", {})
        pairs.append(("trend.average", basis.get("average"), direction["average"]))
        beside = stored["trend"]["market_context"].get("probabilistic", {})
        posterior = found.get("posterior", {})
        pairs.extend(
            (f"trend.{name}", beside.get(name), posterior.get(name))
            for name in ("p_bull", "alpha", "beta", "entropy", "regime")
        )
    compare(
        "projection",
        {
            "projected_direction": projection["direction"],
            "projected_strength": projection["strength"],
            "projected_confidence": projection["confidence"],
            "momentum": projection["momentum"],
            "blended": projection["blended"],
        },
    )
    if not duplicate:
        compare(
            "recommendation",
            {
                **{name: decision[name] for name in ("action", "mode", "confidence", "allocation_pct")},
                **{name: decision[name] for name in ("max_loss_pct", "expected_value")},
                "risk_classification": decision["risk"],
                "invalidation_conditions": decision["invalidation_conditions"],
            },
        )
        compare(
            "evaluation",
            {
                **{name: decision[name] for name in ("eligible", "allowed_mode", "rejection_reasons")},
                "risk_checks": checks,
            },
        )
    return [{"what": what, "stored": before, "computed": now} for what, before, now in pairs if before != now]


def _origin(database: Database, chosen: Chosen) -> Object:
    """Which configuration, code and run: from the records of the cycle."""
    version = configuration.get(database, chosen.config_version)
    key = (recorded_cycles.c.as_of == chosen.as_of) & (
        recorded_cycles.c.config_version == chosen.config_version
    )
    runs = (
        sa.select(run_log.c.run_id, sa.func.min(run_log.c.logged_at).label("logged_at"))
        .where(
            run_log.c.as_of == chosen.as_of,
            run_log.c.config_version == chosen.config_version,
            run_log.c.stage == "recommendations",
        )
        .group_by(run_log.c.run_id)
        .order_by(sa.func.min(run_log.c.logged_at))
    )
    with database.begin() as connection:
        cycle = connection.execute(sa.select(recorded_cycles).where(key)).one()
        listed = [{"run_id": row.run_id, "logged_at": row.logged_at} for row in connection.execute(runs)]
    return {
        "config_version": chosen.config_version,
        "config_hash": cycle.config_hash,
        "config_changed_by": version.changed_by,
        "config_reason": version.reason,
        "config_active": version.active,
        "code_version": cycle.code_version,
        "code_version_now": CODE_VERSION,
        "library_set": cycle.library_set,
        "accuracy_as_of": cycle.accuracy_as_of,
        "runs": listed,
    }


def history(database: Database, chosen: Chosen) -> list[Object]:
    """The key's earlier cycles and this one, oldest first: what was found and what was decided."""
    h, r = trend_history, recommendations
    query = (
        sa.select(
            h.c.generated_at.label("as_of"),
            h.c.config_version,
            h.c.trend_direction.label("direction"),
            h.c.trend_strength.label("strength"),
            h.c.confidence,
            h.c.contradiction_score.label("contradiction"),
            h.c.market_context["basis"]["average"].as_float().label("average"),
            r.c.action,
            r.c.mode,
            (r.c.generated_at == h.c.generated_at).label("new"),
        )
        .select_from(
            h.join(
                ck,
                (ck.c.entity_id == h.c.entity_id)
                & (ck.c.window == h.c.window)
                & (ck.c.as_of == h.c.generated_at)
                & (ck.c.config_version == h.c.config_version),
            ).outerjoin(r, r.c.id == ck.c.standing_recommendation_id)
        )
        .where(
            h.c.entity_id == chosen.key[0],
            h.c.window == chosen.key[1],
            (h.c.generated_at < chosen.as_of)
            | ((h.c.generated_at == chosen.as_of) & (h.c.config_version == chosen.config_version)),
        )
        .order_by(h.c.generated_at.desc(), h.c.config_version.desc())
        .limit(HISTORY)
    )
    with database.begin() as connection:
        rows = connection.execute(query).mappings().all()
    return [dict(row) for row in reversed(rows)]


def _name_signals(database: Database, signals: Sequence[Object]) -> None:
    """Add title and address of the documents, where they have any."""
    mine = [item["id"] for item in signals if item["layer"] == "entity"]
    query = sa.select(documents.c.id, documents.c.title, documents.c.url).where(documents.c.id.in_(mine))
    with database.begin() as connection:
        names = {str(row.id): row for row in connection.execute(query)} if mine else {}
    for item in signals:
        row = names.get(item["id"])
        item["title"] = None if row is None else row.title
        item["url"] = None if row is None else row.url
        item["published_at"] = cycles.moment(item.pop("published_us"))


def _events(database: Database, signals: Sequence[Object], as_of: datetime) -> list[Object]:
    """The world events among the signals, with their names, oldest first."""
    mine = [item["id"].removeprefix("macro:") for item in signals if item["layer"] == "macro"]
    if not mine:
        return []
    e = macro_events.c
    query = (
        sa.select(e.id, e.title, e.event_type, e.direction, e.severity, e.occurred_at)
        .where(e.id.in_(mine), e.known_at <= as_of)
        .order_by(e.occurred_at, e.id, e.version)
    )
    with database.begin() as connection:
        newest = {str(row.id): dict(row._mapping) for row in connection.execute(query)}  # noqa: SLF001
    return [{**row, "id": identity} for identity, row in newest.items()]
