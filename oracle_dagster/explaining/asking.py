"""What would change a recommendation, and why it differs from an earlier one: asked of the core, with names.

The search and the rules are the core's; here the inputs of recorded cycles are handed to it and what comes
back gets the names of documents and times. Nothing is written.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sqlalchemy as sa

from oracle_core.alternatives import Supposed, with_supposed
from oracle_core.attribution import shapley
from oracle_core.causes import Cause, Difference, Moment, difference
from oracle_core.enums import Window
from oracle_core.rules import rules_for
from oracle_core.whatif import MOST_SUPPOSED, Question, distance, influence, outcome, shelf_life
from oracle_dagster import pipeline
from oracle_dagster.explaining.gather import NotExplainableError, computed_again, stored_rows
from oracle_dagster.storage import configuration, cycles
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.schema import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oracle_core.config import OracleConfig
    from oracle_core.inputs import CycleInputs, Float
    from oracle_dagster.explaining.gather import Chosen
    from oracle_dagster.storage.cycles import Cycle
    from oracle_dagster.storage.database import Database

Object = dict[str, Any]
CODE: Final = "code"
MEASURES: Final = ("average", "confidence")


def question(part: pipeline.Part) -> Question:
    """The decision of a part with one key, to be asked about."""
    if part.trends is None:
        raise ValueError("only what went through all stages can be asked about")
    cycle = part.cycle
    return Question.about(
        part.inputs, part.trends.keys, cycle.as_of_us, cycle.config, rules_for(cycle.config)
    )


def what_if(
    database: Database, part: pipeline.Part, tell: Callable[[str], None] = lambda _what: None
) -> Object:
    """Distance, influence and shelf life of the decision of a part with one key.

    Args:
        database: for the names of documents.
        part: of :func:`oracle_dagster.explaining.gather.computed_again`.
        tell: told what is being asked.

    """
    asked = question(part)
    supposed = Supposed()
    tell("asking how far the thresholds are")
    gates, decision = distance(asked, supposed)
    found: Object = {
        "now": outcome(asked.decision(), 0),
        "distance": {
            "supposed": dataclasses.asdict(supposed),
            "tried": MOST_SUPPOSED,
            "gates": gates,
            "decision": decision,
        },
        "influence": {},
    }
    for by in ("documents", "sources"):
        tell(f"asking which {by} carry it")
        bounds, names, after = influence(asked, by)
        found["influence"][by] = {
            "of": bounds.things,
            "lower": None if bounds.impossible else bounds.lower,
            "upper": bounds.upper,
            "exact": bounds.exact,
            "impossible": bounds.impossible,
            "sets_tried": bounds.tried,
            "example": _documents(database, names) if by == "documents" else [{"id": n} for n in names],
            "becomes": after,
        }
    tell("asking how long it holds")
    life = shelf_life(asked)
    for change in life["changes"]:
        change["at"] = cycles.moment(change.pop("at_us"))
    life["searched_until"] = cycles.moment(life.pop("searched_until_us"))
    found["shelf_life"] = life
    return found


def _documents(database: Database, names: Sequence[str]) -> list[Object]:
    d = documents.c
    query = sa.select(d.id, d.source_id, d.title, d.published_at).where(d.id.in_(list(names)))
    if not names:
        return []
    with database.begin() as connection:
        known = {str(row.id): row for row in connection.execute(query)}
    return [
        {
            "id": name,
            "source_id": known[name].source_id,
            "title": known[name].title,
            "published_at": known[name].published_at,
        }
        for name in names
    ]


def supposing(
    entity: str, sentiment: float, count: int, as_of_us: int, supposed: Supposed
) -> Callable[[CycleInputs], CycleInputs]:
    """A change for :func:`oracle_dagster.pipeline.rehearse` that adds supposed documents about an entity."""

    def change(inputs: CycleInputs) -> CycleInputs:
        code = int(np.flatnonzero(inputs.entities == entity)[0])
        return with_supposed(inputs, code, np.full(count, sentiment), as_of_us, supposed)

    return change


# ------------------------------------------------------------------------------------------------ since


def since(database: Database, chosen: Chosen, earlier: Chosen) -> Object:
    """Why a key's decision differs from that of an earlier cycle, cause by cause.

    Args:
        database: the domain database.
        chosen: the cycle explained.
        earlier: the cycle compared with, not after it.

    Raises:
        NotExplainableError: the cycle to compare with is the same or a later one.
        StorageError: a cycle cannot be computed again.

    """
    if earlier.as_of > chosen.as_of or earlier == chosen:
        raise NotExplainableError(
            f"--since must name another cycle, not after the one explained ({chosen.as_of.isoformat()} under "
            f"configuration {chosen.config_version}), not {earlier.as_of.isoformat()} under "
            f"{earlier.config_version}."
        )
    pair = [cycles.read_cycle(database, each.as_of, each.config_version) for each in (earlier, chosen)]
    widest = max((cycle.config for cycle in pair), key=_reach)
    entity, window = chosen.key
    moments = [
        Moment(cycle.as_of_us, cycle.config, _inputs(database, cycle, widest, chosen.key)) for cycle in pair
    ]
    differs = difference(entity, Window(window), *moments)
    parts = shapley(lambda happened: _measures(differs, happened), len(differs.causes))
    none, everything = (False,) * len(differs.causes), (True,) * len(differs.causes)
    computed = [_measures(differs, happened) for happened in (none, everything)]
    stored = [
        _stored(database, each, before) for each, before in zip((earlier, chosen), computed, strict=True)
    ]
    listed = {
        cause.value: dict(zip(MEASURES, parts[at].tolist(), strict=True))
        for at, cause in enumerate(differs.causes)
    }
    rest = (stored[1] - stored[0]) - (computed[1] - computed[0])
    if bool((rest != 0.0).any()):
        listed[CODE] = dict(zip(MEASURES, rest.tolist(), strict=True))
    again = [computed_again(database, cycle, chosen.key) for cycle in pair]
    return {
        "as_of": earlier.as_of,
        "config_version": earlier.config_version,
        "before": _seen(again[0], stored[0]),
        "after": _seen(again[1], stored[1]),
        "change": dict(zip(MEASURES, (stored[1] - stored[0]).tolist(), strict=True)),
        "parts": listed,
        "documents": _differing(database, differs),
        "settings": {
            path: {"before": old, "after": new}
            for path, (old, new) in configuration.diff(pair[0].config, pair[1].config).items()
        },
    }


def _reach(config: OracleConfig) -> int:
    """How far a configuration looks over the graph."""
    if not config.flags.competitive_enabled:
        return 0
    return rules_for(config).propagation_reach(config.competitive)


def _inputs(database: Database, cycle: Cycle, widest: OracleConfig, key: cycles.Key) -> CycleInputs:
    """What a cycle read, and what it would have read under the configuration that looks farthest."""
    looking = dataclasses.replace(cycle, config=widest)
    (found,) = pipeline.rehearse(database, looking, [key], pipeline.STAGES[:1])
    if not found.parts:
        raise StorageError("; ".join(failure.message for failure in found.report.failures))
    return found.parts[0].inputs


def _measures(differs: Difference, happened: Sequence[bool]) -> Float:
    chosen = zip(differs.causes, happened, strict=True)
    rows = differs.trend(frozenset(cause for cause, there in chosen if there))
    return np.array([float(getattr(rows, name)[0]) for name in MEASURES])


def _stored(database: Database, chosen: Chosen, computed: Float) -> Float:
    """The stored values; the computed ones where the history has lost the cycle."""
    row = stored_rows(database, chosen)["trend"]
    if row is None:
        return computed
    return np.array([row["market_context"]["basis"]["average"], row["confidence"]])


def _seen(part: pipeline.Part, stored: Float) -> Object:
    made = part.made[0]
    return {
        **dict(zip(MEASURES, stored.tolist(), strict=True)),
        "action": made.action,
        "mode": made.mode,
        "suppression_reasons": made.suppression_reasons,
    }


def _differing(database: Database, differs: Difference) -> Object:
    """The documents behind the causes that are about documents, about the key's own entity."""
    own = differs.documents.entity == differs.key.entity[0]
    changed = differs.before != differs.after
    masks = {
        Cause.NEW_DOCUMENTS: own & differs.new,
        Cause.LEFT_THE_WINDOW: own & differs.left,
        Cause.LATE_OR_REVISED: own & changed & ~differs.new,
    }
    ids = differs.later.inputs.document_ids
    return {
        cause.value: _documents(
            database, np.unique(ids[differs.documents.document[mask]].astype(str)).tolist()
        )
        for cause, mask in masks.items()
    }
