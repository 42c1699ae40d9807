"""Write signals, trends and projections, and read them back as the same frames, bit for bit.

A writer replaces a slice (the keys staged as ``slice_keys``) inside the caller's transaction and under the
locks of its entities. Current tables keep the newest ``as_of``; history and projections keep every cycle.
Rows are built as columns, staged by Arrow and merged by one statement each; no rule of the core lives here.

What has no column of its own goes into ``market_context -> 'basis'``, so that a later stage can run alone.
Recommendations are in ``decisions.py``.
"""

# ruff: noqa: S608 - only constants of this package are put into statements

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oracle_core.enums import EvidenceRole, MarketRegime, PipelineMode, SignalLayer, TrendDirection, Window
from oracle_core.frames import (
    EvidenceRows,
    ProjectionFrame,
    ProjectionRows,
    SignalFrame,
    SignalRows,
    TrendFrame,
    TrendRows,
)
from oracle_core.inputs import HistoryRows, Keys
from oracle_core.projection import signed_strength
from oracle_dagster.storage import columns
from oracle_dagster.storage.cycles import AS_OF, CONFIG_VERSION, SEQUENCES, Cycle, Key, number_keys
from oracle_dagster.storage.database import StorageError
from oracle_dagster.storage.history import ask_history
from oracle_dagster.storage.identity import row_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oracle_core.inputs import Int
    from oracle_dagster.storage.database import Bulk

_log = logging.getLogger(__name__)

WINDOWS: Final = tuple(w.value for w in Window)
_LAYERS: Final = columns.members(SignalLayer)
_DIRECTIONS: Final = columns.members(TrendDirection)
_ROLES: Final = columns.members(EvidenceRole)
_REGIMES: Final = tuple(r.value for r in MarketRegime)


def key_rows(keys: Sequence[Key], place: Mapping[str, int]) -> Keys:
    """The keys as codes: the entity's code by ``place``, and the window's."""
    window = {name: code for code, name in enumerate(WINDOWS)}
    return Keys(
        np.array([place[e] for e, _ in keys], np.int64), np.array([window[w] for _, w in keys], np.int64)
    )


def _own(stage: str) -> str:
    """Joins the staged keys ``k`` to their own numbers in this cycle, if they have any."""
    return f"""
        LEFT JOIN cycle_keys own ON own.entity_id = k.entity_id AND own."window" = k."window"
          AND own.as_of = {AS_OF} AND own.config_version = {CONFIG_VERSION}
          AND own.{SEQUENCES[stage]} IS NOT NULL"""


def _earlier(upstream: str, stage: str) -> str:
    """What a stage may take from: its own cycle first, else what was there before its own first writing."""
    return f"""(
        (c.as_of = {AS_OF} AND c.config_version = {CONFIG_VERSION})
        OR own.{SEQUENCES[stage]} IS NULL OR c.{SEQUENCES[upstream]} < own.{SEQUENCES[stage]})"""


_NEWEST_FIRST: Final = f"c.as_of DESC, (c.config_version = {CONFIG_VERSION}) DESC, c.config_version DESC"
_SAME_KEY: Final = 'c.entity_id = k.entity_id AND c."window" = k."window"'

# ------------------------------------------------------------------------------------------- signals

_SIGNAL_FLOATS: Final = (
    ("sentiment_value", "sentiment"),
    ("impact_score", "impact"),
    ("extraction_confidence", "extraction_confidence"),
    ("recency", "recency"),
    ("credibility", "credibility"),
    ("novelty_bonus", "novelty_bonus"),
    ("confidence_gate", "confidence_gate"),
    ("market_ctx_multiplier", "market_ctx_multiplier"),
    ("sigmoid_gate", "sigmoid_gate"),
    ("info_gain_factor", "info_gain_factor"),
    ("source_accuracy_factor", "source_accuracy_factor"),
    ("regime_multiplier", "regime_multiplier"),
    ("adaptive_half_life_hours", "adaptive_half_life_hours"),
    ("layer_weight", "layer_weight"),
    ("combined", "combined"),
)
_SIGNAL_COLUMNS: Final = (
    "signal_id",
    "layer",
    "source_id",
    "source_type",
    "catalyst_type",
    "published_at",
    *(name for name, _ in _SIGNAL_FLOATS),
)


def write_signals(bulk: Bulk, frame: SignalFrame) -> int:
    """Replace the signals of the staged keys, except of those for which a newer cycle is stored.

    Returns:
        Rows in the frame.

    """
    rows = frame.rows
    number_keys(bulk, "weighted_signals")
    bulk.stage("slice_skipped", pa.table({"position": np.arange(len(frame.keys)), "skipped": frame.skipped}))
    bulk.execute(f"""
        UPDATE cycle_keys c SET signals_skipped = s.skipped
        FROM slice_skipped s JOIN slice_keys k USING (position)
        WHERE {_SAME_KEY} AND c.as_of = {AS_OF} AND c.config_version = {CONFIG_VERSION}
          AND c.signals_skipped IS DISTINCT FROM s.skipped""")
    bulk.stage(
        "slice_signals",
        pa.table(
            {
                "position": rows.key,
                "signal_id": columns.named(rows.signal, frame.ids),
                "layer": columns.named(rows.layer, _LAYERS),
                "source_id": columns.named(rows.source, frame.sources),
                "source_type": columns.named(rows.source_type, frame.source_types),
                "catalyst_type": columns.named(rows.catalyst, frame.catalysts),
                "published_at": columns.moments(rows.published_us),
                **{name: columns.nullable(getattr(rows, field)) for name, field in _SIGNAL_FLOATS},
                "risks": columns.named_lists(rows.risks, frame.risk_labels),
            }
        ),
    )
    current = f"""
        SELECT k.position, k.entity_id, k."window" FROM slice_keys k WHERE NOT EXISTS (
            SELECT FROM cycle_keys c WHERE {_SAME_KEY} AND c.as_of > {AS_OF} AND c.signal_seq IS NOT NULL)"""
    bulk.execute(f"""
        DELETE FROM weighted_signals w USING ({current}) k
        WHERE w.entity_id = k.entity_id AND w."window" = k."window" """)
    names = ", ".join(_SIGNAL_COLUMNS)
    bulk.execute(f"""
        INSERT INTO weighted_signals (entity_id, "window", {names}, risk_flags, as_of, config_version)
        SELECT k.entity_id, k."window", {", ".join(f"s.{c}" for c in _SIGNAL_COLUMNS)}, to_jsonb(s.risks),
               {AS_OF}, {CONFIG_VERSION}
        FROM slice_signals s JOIN ({current}) k USING (position)""")
    return len(rows.key)


def upstream_signals(bulk: Bulk) -> pa.Table:
    """Which cycle's signals the staged keys' trends are made of, when the signals are not made in this run.

    Returns:
        position, as_of, config_version, pipeline_mode; ``stored`` is false where ``weighted_signals`` does
        not hold that cycle (a newer one does, or there was no signal), so that it has to be computed again.
        Keys whose signals were never made by then have no row.

    """
    return bulk.arrow(f"""
        SELECT k.position, c.as_of, c.config_version, y.pipeline_mode, EXISTS (
                   SELECT FROM weighted_signals w WHERE w.entity_id = k.entity_id AND w."window" = k."window"
                     AND w.as_of = c.as_of AND w.config_version = c.config_version) AS stored
        FROM slice_keys k {_own("trend_windows")}
        CROSS JOIN LATERAL (
            SELECT c.as_of, c.config_version FROM cycle_keys c
            WHERE {_SAME_KEY} AND c.as_of <= {AS_OF} AND c.signal_seq IS NOT NULL
              AND {_earlier("weighted_signals", "trend_windows")}
            ORDER BY {_NEWEST_FIRST} LIMIT 1) c
        JOIN cycles y ON y.as_of = c.as_of AND y.config_version = c.config_version
        ORDER BY k.position""")


def read_signals(bulk: Bulk, keys: Keys) -> SignalFrame:
    """The stored signals of the staged keys, in the frame's order: key, newest first, id.

    Args:
        bulk: the transaction that staged the keys.
        keys: the staged keys as codes, for the frame.

    """
    names = ", ".join(f"s.{c}" for c in _SIGNAL_COLUMNS)
    found = bulk.arrow(f"""
        SELECT k.position, {names}, ARRAY(SELECT jsonb_array_elements_text(s.risk_flags)) AS risks
        FROM slice_keys k
        JOIN weighted_signals s ON s.entity_id = k.entity_id AND s."window" = k."window" """)
    skipped = bulk.arrow(f"""
        SELECT k.position, COALESCE((
            SELECT c.signals_skipped FROM weighted_signals s JOIN cycle_keys c
              ON {_SAME_KEY} AND c.as_of = s.as_of AND c.config_version = s.config_version
            WHERE s.entity_id = k.entity_id AND s."window" = k."window" LIMIT 1), 0) AS skipped
        FROM slice_keys k ORDER BY k.position""")
    ids = columns.table(found.column("signal_id"))
    sources = columns.table(found.column("source_id"))
    source_types = columns.table(found.column("source_type"))
    catalysts = columns.table(found.column("catalyst_type"))
    labels = columns.table(pc.list_flatten(found.column("risks")))
    rows = SignalRows(
        key=columns.ints(found.column("position")),
        signal=columns.codes(found.column("signal_id"), ids),
        layer=columns.codes(found.column("layer"), _LAYERS),
        source=columns.codes(found.column("source_id"), sources),
        source_type=columns.codes(found.column("source_type"), source_types),
        catalyst=columns.codes(found.column("catalyst_type"), catalysts),
        published_us=columns.times(found.column("published_at")),
        **{field: columns.floats(found.column(name)) for name, field in _SIGNAL_FLOATS},
        risks=columns.ragged(found.column("risks"), labels),
    )
    return SignalFrame(
        keys=keys,
        ids=columns.strings(ids),
        sources=columns.strings(sources),
        source_types=columns.strings(source_types),
        catalysts=columns.strings(catalysts),
        risk_labels=columns.strings(labels),
        rows=rows.take(np.lexsort((rows.signal, -rows.published_us, rows.key))),
        skipped=columns.ints(skipped.column("skipped")),
    )


# -------------------------------------------------------------------------------------------- trends

_PROBABILISTIC: Final = (
    "p_bull",
    "alpha",
    "beta",
    "log_likelihood",
    "bayesian_confidence",
    "entropy",
    "regime_volatility_ratio",
    "contradiction_entropy",
    "macro_modifier",
)
_BASIS: Final = (
    "average",
    "evidence_count",
    "supporting_count",
    "opposing_count",
    "unique_sources",
    "average_credibility",
    "agreement",
)
_LAYER_COUNTS: Final = {
    "entity": "entity_signals",
    "macro": "macro_signals",
    "competitive": "competitive_signals",
}
_MARKET: Final = ("volatility", "volume_change_pct", "price_change_pct")
_LISTS: Final = (
    ("disagreement_details", "disagreements"),
    ("top_supporting_evidence", "supporting"),
    ("top_opposing_evidence", "opposing"),
    ("dominant_catalysts", "dominant_catalysts"),
    ("material_risks", "material_risks"),
)
_TREND_FLOATS: Final = (
    ("trend_strength", "strength"),
    ("confidence", "confidence"),
    ("contradiction_score", "contradiction"),
)
_JSON_COLUMNS: Final = (*(name for name, _ in _LISTS), "market_context")
_SCORES: Final = (
    "rank_score",
    "weight_component",
    "impact_component",
    "recency_component",
    "confidence_component",
    "sentiment_value",
)
_TREND_COLUMNS: Final = ("trend_direction", *(name for name, _ in _TREND_FLOATS), *_JSON_COLUMNS)


def market_contexts(rows: TrendRows, mode: PipelineMode) -> list[dict[str, Any]]:
    """The JSON object ``market_context`` of every trend (R186); what is missing is null.

    ``probabilistic`` is there in that mode only.

    Implements: R138, R186.
    """
    values = {f.name: getattr(rows, f.name).tolist() for f in fields(rows)}
    contexts: list[dict[str, Any]] = []
    for at in range(len(rows.direction)):
        context: dict[str, Any] = {name: _number(values[name][at]) for name in _MARKET}
        context["signal_layers"] = {name: values[field][at] for name, field in _LAYER_COUNTS.items()}
        if mode is PipelineMode.PROBABILISTIC:
            regime = values["regime"][at]
            context["probabilistic"] = {
                **{name: _number(values[name][at]) for name in _PROBABILISTIC},
                "regime": _REGIMES[regime] if regime >= 0 else None,
                "pipeline_mode": mode.value,
            }
        context["basis"] = {name: _number(values[name][at]) for name in _BASIS}
        contexts.append(context)
    return contexts


def write_trends(bulk: Bulk, cycle: Cycle, keys: Sequence[Key], frame: TrendFrame) -> tuple[int, bool]:
    """Upsert the trends of the staged keys, replace their evidence, and append to the history (R56-R62).

    A newer stored trend stays, with its evidence. A history that cannot be written never blocks the trends
    (R59, C33): that is logged at DEBUG.

    Returns:
        Rows in the frame, and whether the history was written.

    Implements: R56, R57, R58, R59.
    """
    rows = frame.rows
    number_keys(bulk, "trend_windows")
    ids = [trend_id(key) for key in keys]
    contexts = market_contexts(rows, cycle.config.pipeline_mode)
    bulk.stage(
        "slice_trends",
        pa.table(
            {
                "position": np.arange(len(keys)),
                "id": ids,
                "history_id": [_cycle_id("trend_history", cycle, key) for key in keys],
                "trend_direction": columns.named(rows.direction, _DIRECTIONS),
                **{name: columns.nullable(getattr(rows, field)) for name, field in _TREND_FLOATS},
                **{name: [to_json(v) for v in getattr(frame, field)] for name, field in _LISTS},
                "market_context": [to_json(c) for c in contexts],
            }
        ),
    )
    names = ", ".join(_TREND_COLUMNS)
    values = ", ".join(f"t.{c}::jsonb" if c in _JSON_COLUMNS else f"t.{c}" for c in _TREND_COLUMNS)
    changes = ", ".join(f"{c} = excluded.{c}" for c in (*_TREND_COLUMNS, "generated_at", "config_version"))
    bulk.execute(f"""
        INSERT INTO trend_windows (id, entity_type, entity_id, "window", {names}, generated_at,
                                   config_version)
        SELECT t.id::uuid, 'entity', k.entity_id, k."window", {values}, {AS_OF}, {CONFIG_VERSION}
        FROM slice_trends t JOIN slice_keys k USING (position)
        ON CONFLICT (entity_type, entity_id, "window") DO UPDATE SET {changes}
        WHERE excluded.generated_at >= trend_windows.generated_at""")
    _write_evidence(bulk, ids, frame)
    try:
        with bulk.savepoint("history"):
            bulk.execute(f"""
                INSERT INTO trend_history (id, entity_type, entity_id, "window", {names}, generated_at,
                                           config_version)
                SELECT t.history_id::uuid, 'entity', k.entity_id, k."window", {values}, {AS_OF},
                       {CONFIG_VERSION}
                FROM slice_trends t JOIN slice_keys k USING (position)
                ON CONFLICT (id) DO UPDATE SET {changes}""")
    except StorageError as error:
        if error.transient:
            raise
        _log.debug("the history of %d trends was not written: %s", len(keys), error)
        return len(keys), False
    return len(keys), True


def trend_id(key: Key) -> str:
    """The id of a current trend: of its entity and window."""
    return row_id("trend", *key)


def _cycle_id(kind: str, cycle: Cycle, key: Key) -> str:
    return row_id(kind, *key, cycle.as_of_us, cycle.config_version)


def _write_evidence(bulk: Bulk, ids: Sequence[str], frame: TrendFrame) -> None:
    """Replace the evidence of the trends that are current now, documents only (R60, R61).

    Implements: R60.
    """
    rows = frame.evidence.take(frame.evidence.is_document)
    roles = _ROLES.to_pylist()
    owner = rows.key.tolist()
    place = [roles[code] for code in rows.role.tolist()]
    number = rows.position.tolist()
    made = [
        row_id("trend_evidence", ids[k], role, n) for k, role, n in zip(owner, place, number, strict=True)
    ]
    bulk.stage(
        "slice_evidence",
        pa.table(
            {
                "id": pa.array(made, pa.string()),
                "trend_window_id": pa.array([ids[k] for k in owner], pa.string()),
                "document_id": columns.named(rows.signal, frame.ids),
                "role": pa.array(place, pa.string()),
                "rank_position": rows.position,
                **{name: columns.nullable(getattr(rows, name)) for name in _SCORES},
            }
        ),
    )
    current = f"""
        SELECT w.id FROM trend_windows w JOIN slice_trends t ON w.id = t.id::uuid
        WHERE w.generated_at = {AS_OF} AND w.config_version = {CONFIG_VERSION}"""
    names = ", ".join(("role", "rank_position", *_SCORES))
    bulk.execute(f"DELETE FROM trend_evidence e USING ({current}) c WHERE e.trend_window_id = c.id")
    bulk.execute(f"""
        INSERT INTO trend_evidence (id, trend_window_id, document_id, {names})
        SELECT e.id::uuid, c.id, e.document_id::uuid, {names}
        FROM slice_evidence e JOIN ({current}) c ON c.id = e.trend_window_id::uuid""")


def read_trends(bulk: Bulk, stage: str) -> pa.Table:
    """The trends that ``stage`` works on, of the staged keys, when they are not made in this run.

    The own cycle's, else the newest earlier ones; on a repeat only such that were there before the stage's
    own first writing.

    Returns:
        position, as_of, config_version, pipeline_mode and the columns of a trend; by position. Keys without a
        trend by then have no row. :func:`trend_frame` makes the frame.

    """
    names = ", ".join(f"h.{c}::text" if c in _JSON_COLUMNS else f"h.{c}" for c in _TREND_COLUMNS)

    def query(history: str) -> str:
        stored = " UNION ALL ".join(
            f"SELECT * FROM {t} s WHERE entity_type = 'entity' AND entity_id = k.entity_id "
            'AND "window" = k."window"'
            for t in (history, "trend_windows")
        )
        return f"""
            SELECT k.position, t.*, y.pipeline_mode FROM slice_keys k {_own(stage)}
            CROSS JOIN LATERAL (
                SELECT c.as_of, c.config_version, {names} FROM ({stored}) h JOIN cycle_keys c
                  ON {_SAME_KEY} AND c.as_of = h.generated_at AND c.config_version = h.config_version
                WHERE c.as_of <= {AS_OF} AND c.trend_seq IS NOT NULL AND {_earlier("trend_windows", stage)}
                ORDER BY {_NEWEST_FIRST} LIMIT 1) t
            JOIN cycles y ON y.as_of = t.as_of AND y.config_version = t.config_version
            ORDER BY k.position"""

    return ask_history(bulk, query)


def trend_frame(table: pa.Table, keys: Keys) -> TrendFrame:
    """The frame of what :func:`read_trends` gave, one row per key in the table's order.

    ``evidence`` is empty: no later stage looks at the components of a rank.
    """
    direction = columns.codes(table.column("trend_direction"), _DIRECTIONS)
    contexts = [json.loads(text) for text in table.column("market_context").to_pylist()]
    lists = {field: [json.loads(v) for v in table.column(name).to_pylist()] for name, field in _LISTS}
    basis = [context["basis"] for context in contexts]
    beside = [context.get("probabilistic", {}) for context in contexts]
    layers = [context["signal_layers"] for context in contexts]
    kinds = {f.name: f.type for f in fields(TrendRows)}

    def column(of: Sequence[dict[str, Any]], name: str, field: str) -> Any:  # noqa: ANN401 - ints or floats
        values = [row.get(name) for row in of]
        if kinds[field] == "Int":
            return np.array(values, np.int64)
        return np.array([math.nan if v is None else v for v in values], np.float64)

    regimes = {name: code for code, name in enumerate(_REGIMES)}
    values: dict[str, Any] = {
        **{field: columns.floats(table.column(name)) for name, field in _TREND_FLOATS},
        **{name: column(basis, name, name) for name in _BASIS},
        **{field: column(layers, name, field) for name, field in _LAYER_COUNTS.items()},
        **{name: column(contexts, name, name) for name in _MARKET},
        **{name: column(beside, name, name) for name in _PROBABILISTIC},
    }
    rows = TrendRows(
        direction=direction,
        **values,
        regime=np.array([regimes.get(row.get("regime", ""), -1) for row in beside], np.int64),
    )
    cited = pa.array(
        [i for side in ("supporting", "opposing") for ids in lists[side] for i in ids], pa.string()
    )
    none, numbers = np.zeros(0, np.int64), np.zeros(0)
    return TrendFrame(
        keys=keys,
        rows=rows,
        **lists,
        evidence=EvidenceRows(none, none, none, none, np.zeros(0, np.bool_), *([numbers] * 6)),
        ids=columns.strings(columns.table(cited)),
    )


def take_trends(frame: TrendFrame, rows: Int) -> TrendFrame:
    """The frame of some of its keys, without ``evidence`` (as :func:`trend_frame`)."""
    lists: dict[str, Any] = {
        field: [getattr(frame, field)[at] for at in rows.tolist()] for _, field in _LISTS
    }
    return replace(
        frame,
        keys=Keys(frame.keys.entity[rows], frame.keys.window[rows]),
        rows=frame.rows.take(rows),
        **lists,
        evidence=frame.evidence.take(np.zeros(0, np.int64)),
    )


def read_history(bulk: Bulk, cycle: Cycle) -> HistoryRows:
    """Signed strengths of the staged keys in earlier cycles, for the momentum (R42, R63, C34, G19).

    Only smaller ``as_of``; on a repeat only such that were there before the projection's own first writing.
    Of several configurations of one ``as_of`` the latest. Without a history table there is none, with a
    warning.
    """
    depth = cycle.config.projection.ew_max_differences + 1
    found = ask_history(
        bulk,
        lambda history: (
            f"""
        SELECT k.position, t.generated_at, t.trend_direction, t.trend_strength
        FROM slice_keys k {_own("trend_projections")}
        CROSS JOIN LATERAL (
            SELECT DISTINCT ON (h.generated_at) h.generated_at, h.trend_direction, h.trend_strength
            FROM {history} h JOIN cycle_keys c
              ON {_SAME_KEY} AND c.as_of = h.generated_at AND c.config_version = h.config_version
            WHERE h.entity_type = 'entity' AND h.entity_id = k.entity_id AND h."window" = k."window"
              AND h.generated_at < {AS_OF}
              AND (own.projection_seq IS NULL OR c.trend_seq < own.projection_seq)
            ORDER BY h.generated_at DESC, h.config_version DESC LIMIT {depth}) t"""
        ),
    )
    return HistoryRows(
        key=columns.ints(found.column("position")),
        as_of_us=columns.times(found.column("generated_at")),
        signed_strength=signed_strength(
            columns.codes(found.column("trend_direction"), _DIRECTIONS),
            columns.floats(found.column("trend_strength")),
        ),
    )


# --------------------------------------------------------------------------------------- projections

_PROJECTION_COLUMNS: Final = (
    ("projected_strength", "strength"),
    ("projected_confidence", "confidence"),
    ("macro_contribution_pct", "macro_contribution_pct"),
    ("momentum", "momentum"),
    ("blended", "blended"),
    ("macro_signed", "macro_signed"),
    ("macro_weight", "macro_weight"),
)
_PROJECTION_FLAGS: Final = ("has_macro_events", "diverges_from_current", "low_confidence")


def write_projections(bulk: Bulk, cycle: Cycle, keys: Sequence[Key], frame: ProjectionFrame) -> int:
    """Add the projections of the staged keys; every cycle's are kept (R62).

    Returns:
        Rows in the frame.

    Implements: R62.
    """
    rows = frame.rows
    number_keys(bulk, "trend_projections")
    bulk.stage(
        "slice_projections",
        pa.table(
            {
                "position": np.arange(len(keys)),
                "id": [_cycle_id("projection", cycle, key) for key in keys],
                "trend_window_id": [trend_id(key) for key in keys],
                "projected_direction": columns.named(rows.direction, _DIRECTIONS),
                **{name: columns.nullable(getattr(rows, field)) for name, field in _PROJECTION_COLUMNS},
                **{name: getattr(rows, name) for name in _PROJECTION_FLAGS},
                "driving_factors": [to_json(f) for f in frame.driving_factors],
            }
        ),
    )
    plain = ("projected_direction", *(name for name, _ in _PROJECTION_COLUMNS), *_PROJECTION_FLAGS)
    names = ", ".join(plain)
    changed = (*plain, "driving_factors", "computed_at", "config_version")
    bulk.execute(f"""
        INSERT INTO trend_projections (id, trend_window_id, entity_id, "window", projection_horizon, {names},
                                       driving_factors, computed_at, config_version)
        SELECT p.id::uuid, p.trend_window_id::uuid, k.entity_id, k."window", k."window", {names},
               p.driving_factors::jsonb, {AS_OF}, {CONFIG_VERSION}
        FROM slice_projections p JOIN slice_keys k USING (position)
        ON CONFLICT (id) DO UPDATE SET {", ".join(f"{c} = excluded.{c}" for c in changed)}""")
    return len(keys)


def read_projections(bulk: Bulk) -> pa.Table:
    """The projections that recommendations are made with, of the staged keys; like :func:`read_trends`."""
    names = ", ".join(("projected_direction", *(n for n, _ in _PROJECTION_COLUMNS), *_PROJECTION_FLAGS))
    return bulk.arrow(f"""
        SELECT k.position, p.* FROM slice_keys k {_own("recommendations")}
        CROSS JOIN LATERAL (
            SELECT {names}, p.driving_factors::text AS driving_factors
            FROM trend_projections p JOIN cycle_keys c
              ON {_SAME_KEY} AND c.as_of = p.computed_at AND c.config_version = p.config_version
            WHERE p.entity_id = k.entity_id AND p."window" = k."window" AND p.computed_at <= {AS_OF}
              AND c.projection_seq IS NOT NULL AND {_earlier("trend_projections", "recommendations")}
            ORDER BY {_NEWEST_FIRST} LIMIT 1) p
        ORDER BY k.position""")


def projection_frame(table: pa.Table, keys: Keys) -> ProjectionFrame:
    """The frame of what :func:`read_projections` gave, one row per key in the table's order."""
    values: dict[str, Any] = {
        **{field: columns.floats(table.column(name)) for name, field in _PROJECTION_COLUMNS},
        **{name: columns.bools(table.column(name)) for name in _PROJECTION_FLAGS},
    }
    direction = columns.codes(table.column("projected_direction"), _DIRECTIONS)
    return ProjectionFrame(
        keys=keys,
        rows=ProjectionRows(direction=direction, **values),
        driving_factors=[json.loads(text) for text in table.column("driving_factors").to_pylist()],
    )


# ------------------------------------------------------------------------------------------- versions


def signal_versions(frame: SignalFrame) -> list[str]:
    """A hash per key of its signals' content; equal where the rows are, whatever the cycle."""
    rows = frame.rows
    numbers = np.column_stack([getattr(rows, field) for _, field in _SIGNAL_FLOATS])
    texts = [
        columns.named(code, of).to_pylist()
        for code, of in (
            (rows.signal, frame.ids),
            (rows.source, frame.sources),
            (rows.source_type, frame.source_types),
            (rows.catalyst, frame.catalysts),
        )
    ]
    labels = columns.named(rows.risks.codes, frame.risk_labels).to_pylist()
    ends = np.searchsorted(rows.key, np.arange(len(frame.keys) + 1)).tolist()
    lists, lengths = rows.risks.offsets.tolist(), rows.risks.lengths().tolist()
    found = []
    for a, b in itertools.pairwise(ends):
        content = (
            [column[a:b] for column in texts],
            labels[lists[a] : lists[b]],
            lengths[a:b],
        )
        whole = (
            np.ascontiguousarray(numbers[a:b]).tobytes()
            + rows.layer[a:b].tobytes()
            + rows.published_us[a:b].tobytes()
            + to_json(content).encode()
        )
        found.append(content_hash(whole))
    return found


def trend_versions(frame: TrendFrame, mode: PipelineMode) -> list[str]:
    """A hash per key of its trend's content."""
    rows, contexts = frame.rows, market_contexts(frame.rows, mode)
    values = zip(
        rows.direction.tolist(),
        *(getattr(rows, field).tolist() for _, field in _TREND_FLOATS),
        *(getattr(frame, field) for _, field in _LISTS),
        contexts,
        strict=True,
    )
    return [content_hash(to_json(row)) for row in values]


def projection_versions(frame: ProjectionFrame) -> list[str]:
    """A hash per key of its projection's content."""
    values = zip(
        *(getattr(frame.rows, f.name).tolist() for f in fields(frame.rows)),
        frame.driving_factors,
        strict=True,
    )
    return [content_hash(to_json(row)) for row in values]


_JSON: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False)  # `dumps` makes one for every value


def to_json(value: object) -> str:
    """JSON text; NaN and infinity are an error, never text (C36)."""
    return _JSON.encode(value)


def content_hash(content: str | bytes) -> str:
    """A short hash for data versions."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
