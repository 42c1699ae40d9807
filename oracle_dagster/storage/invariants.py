"""What must hold of the rows that a stage has written, as questions to the tables.

Asked after each stage, so that a key whose rows break one goes no further. Reads the tables, never the arrays
they came from. Bad data is a fault; a database that cannot be read raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from oracle_dagster.storage import cycles
from oracle_dagster.storage.history import ask_history

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oracle_dagster.storage.cycles import Cycle, Key
    from oracle_dagster.storage.database import Bulk, Database

RANGES: Final = "ranges_and_invariants"
EVIDENCE: Final = "evidence_exists"
FUTURE: Final = "nothing_from_the_future"


@dataclass(frozen=True)
class Fault:
    """A key whose rows break a rule, or that could not be computed."""

    key: Key
    reason: str


@dataclass(frozen=True)
class Rule:
    """A question about the written rows; the query returns entity_id, window, reason of those that fail.

    ``AS_OF`` and ``CONFIG_VERSION`` stand for those of the cycle, ``HISTORY`` for that of the trends, ``$1``
    for the least number of documents behind a recommendation that may be executed; the table ``checked``
    holds the keys.
    """

    asset: str
    check: str
    asks: str
    query: str


_SIGNALS = """
    SELECT s.entity_id, s."window", 'signal ' || s.signal_id || ': {what}' AS reason
    FROM pg_temp.checked k
    JOIN weighted_signals s USING (entity_id, "window")
    WHERE s.as_of = AS_OF AND s.config_version = CONFIG_VERSION AND {broken}"""

RULES: Final = (
    Rule(
        "weighted_signals",
        RANGES,
        "Every factor and weight is a number inside its range.",
        _SIGNALS.format(
            what="a factor or weight is outside its range",
            broken="""NOT (
                s.combined >= 0 AND s.combined < 'Infinity' AND s.recency BETWEEN 0 AND 1
                AND s.credibility BETWEEN 0 AND 1 AND s.sentiment_value BETWEEN -1 AND 1
                AND s.impact_score BETWEEN 0 AND 1)""",
        ),
    ),
    Rule(
        "weighted_signals",
        FUTURE,
        "No signal was published after the moment of the cycle.",
        _SIGNALS.format(what="published after as_of", broken="s.published_at > AS_OF"),
    ),
    Rule(
        "trend_windows",
        RANGES,
        "Every computed key has a trend, its numbers are in [0, 1], and no document stands on both sides.",
        """
        SELECT k.entity_id, k."window", CASE
            WHEN t.id IS NULL THEN 'no trend was written'
            WHEN t.top_supporting_evidence ?| ARRAY(
                SELECT jsonb_array_elements_text(t.top_opposing_evidence)
            ) THEN 'a document is on both sides'
            ELSE 'a number is outside [0, 1]' END AS reason
        FROM pg_temp.checked k
        LEFT JOIN LATERAL (  -- a current row may be newer, and a history row may be missing (R59)
            SELECT * FROM HISTORY h
            WHERE h.entity_id = k.entity_id AND h."window" = k."window"
                AND h.generated_at = AS_OF AND h.config_version = CONFIG_VERSION
            UNION ALL
            SELECT * FROM trend_windows w
            WHERE w.entity_id = k.entity_id AND w."window" = k."window"
                AND w.generated_at = AS_OF AND w.config_version = CONFIG_VERSION
            LIMIT 1
        ) AS t ON TRUE
        WHERE (t.id IS NULL AND NOT EXISTS (
                SELECT FROM trend_windows w
                WHERE w.entity_id = k.entity_id AND w."window" = k."window" AND w.generated_at > AS_OF))
            OR NOT (t.trend_strength BETWEEN 0 AND 1 AND t.confidence BETWEEN 0 AND 1
                AND t.contradiction_score BETWEEN 0 AND 1)
            OR t.top_supporting_evidence ?| ARRAY(
                SELECT jsonb_array_elements_text(t.top_opposing_evidence)
            )""",
    ),
    Rule(
        "trend_windows",
        EVIDENCE,
        "Every document that a current trend names is stored with its ranking.",
        """
        SELECT t.entity_id, t."window", 'no ranking is stored for ' || named.id AS reason
        FROM pg_temp.checked k
        JOIN trend_windows t USING (entity_id, "window")
        CROSS JOIN LATERAL (
            SELECT jsonb_array_elements_text(t.top_supporting_evidence || t.top_opposing_evidence)
        ) AS named(id)
        LEFT JOIN trend_evidence e ON e.trend_window_id = t.id AND e.document_id::text = named.id
        WHERE t.generated_at = AS_OF AND t.config_version = CONFIG_VERSION AND e.id IS NULL
            AND split_part(named.id, ':', 1) NOT IN ('macro', 'competitor', 'pattern')""",
    ),
    Rule(
        "trend_windows",
        FUTURE,
        "No evidence was published or known after the moment of the cycle.",
        """
        SELECT t.entity_id, t."window", 'document ' || e.document_id || ' became known after as_of' AS reason
        FROM pg_temp.checked k
        JOIN trend_windows t USING (entity_id, "window")
        JOIN trend_evidence e ON e.trend_window_id = t.id
        WHERE t.generated_at = AS_OF AND t.config_version = CONFIG_VERSION AND NOT EXISTS (
            SELECT FROM document_intelligence d
            WHERE d.document_id = e.document_id AND d.known_at <= AS_OF AND d.published_at <= AS_OF)""",
    ),
    Rule(
        "trend_projections",
        RANGES,
        "Every computed key has a projection whose numbers are inside their ranges.",
        """
        SELECT k.entity_id, k."window", CASE WHEN p.id IS NULL THEN 'no projection was written'
            ELSE 'a number is outside its range' END AS reason
        FROM pg_temp.checked k
        LEFT JOIN trend_projections p ON p.entity_id = k.entity_id AND p."window" = k."window"
            AND p.computed_at = AS_OF AND p.config_version = CONFIG_VERSION
        WHERE p.id IS NULL OR NOT (
            p.projected_strength BETWEEN 0 AND 1 AND p.projected_confidence BETWEEN 0 AND 1
            AND p.momentum > '-Infinity' AND p.momentum < 'Infinity'
            AND p.macro_contribution_pct BETWEEN 0 AND 100.000001)""",  # a quotient rounds
    ),
    Rule(
        "recommendations",
        RANGES,
        "Every computed key has a standing recommendation; what failed a gate is informational only.",
        """
        SELECT k.entity_id, k."window", CASE WHEN r.id IS NULL THEN 'no recommendation stands'
            WHEN e.id IS NULL THEN 'its evaluation is missing'
            WHEN r.mode <> 'informational' THEN 'executable although a gate or the data quality failed'
            ELSE 'a number is outside its range' END AS reason
        FROM pg_temp.checked k
        LEFT JOIN cycle_keys c ON c.entity_id = k.entity_id AND c."window" = k."window"
            AND c.as_of = AS_OF AND c.config_version = CONFIG_VERSION
        LEFT JOIN recommendations r ON r.id = c.standing_recommendation_id
        LEFT JOIN risk_evaluations e ON e.recommendation_id = r.id
        WHERE r.id IS NULL OR e.id IS NULL
            OR NOT (r.confidence BETWEEN 0 AND 1 AND r.allocation_pct BETWEEN 0 AND 1
                AND r.max_loss_pct BETWEEN 0 AND 1)
            OR (r.mode <> 'informational' AND NOT (
                e.eligible AND jsonb_array_length(e.risk_checks -> 'suppression_reasons') = 0))""",
    ),
    Rule(
        "recommendations",
        EVIDENCE,
        "What may be executed cites enough documents, never a single one.",
        """
        SELECT k.entity_id, k."window", r.mode || ' on ' || cited.n || ' cited documents' AS reason
        FROM pg_temp.checked k
        JOIN cycle_keys c ON c.entity_id = k.entity_id AND c."window" = k."window"
            AND c.as_of = AS_OF AND c.config_version = CONFIG_VERSION
        JOIN recommendations r ON r.id = c.standing_recommendation_id
        CROSS JOIN LATERAL (
            SELECT count(DISTINCT e.document_id) AS n FROM recommendation_evidence e
            WHERE e.recommendation_id = r.id) AS cited
        WHERE r.mode <> 'informational' AND cited.n < $1""",
    ),
    Rule(
        "recommendations",
        FUTURE,
        "No cited document was published or known after the moment of the cycle.",
        """
        SELECT k.entity_id, k."window", 'document ' || e.document_id || ' became known after as_of' AS reason
        FROM pg_temp.checked k
        JOIN cycle_keys c ON c.entity_id = k.entity_id AND c."window" = k."window"
            AND c.as_of = AS_OF AND c.config_version = CONFIG_VERSION
        JOIN recommendation_evidence e ON e.recommendation_id = c.standing_recommendation_id
        WHERE NOT EXISTS (
            SELECT FROM document_intelligence d
            WHERE d.document_id = e.document_id AND d.known_at <= AS_OF AND d.published_at <= AS_OF)""",
    ),
)

_ABSENT: Final = ("no trend was written", "no projection was written", "no recommendation stands")

Faults = dict[tuple[str, str], list[Fault]]
"""By (asset, check): one fault per failing key, in the keys' order."""


def find_faults(database: Database, cycle: Cycle, computed: Mapping[str, Sequence[Key]]) -> Faults:
    """Ask every rule about the rows of a cycle.

    Args:
        database: with the results.
        cycle: whose rows are asked about.
        computed: by asset: the keys that a run has written.

    Returns:
        An entry for every rule of these assets.

    Raises:
        StorageError: the rows cannot be read.

    """
    minimum = cycle.config.eligibility.min_evidence

    def ask(bulk: Bulk) -> Faults:
        found: Faults = {}
        cycles.enter(bulk, cycle)
        for asset, keys in computed.items():
            stage(bulk, keys)
            for rule in RULES:
                if rule.asset == asset:
                    query = rule.query.replace("AS_OF", cycles.AS_OF)
                    query = query.replace("CONFIG_VERSION", cycles.CONFIG_VERSION)
                    rows = _asked(bulk, query, (minimum,) if "$1" in query else ()).to_pylist()
                    first = {(row["entity_id"], row["window"]): row["reason"] for row in reversed(rows)}
                    found[asset, rule.check] = [Fault(key, first[key]) for key in keys if key in first]
        return found

    return database.run(ask)


def _asked(bulk: Bulk, query: str, params: tuple[object, ...]) -> pa.Table:
    if "HISTORY" not in query:
        return bulk.arrow(query, params)
    return ask_history(bulk, lambda history: query.replace("HISTORY", history), params)


def broken(faults: Faults) -> dict[Key, str]:
    """Why a key must not go further, by key; rows that are merely absent break nothing."""
    reasons: dict[Key, str] = {}
    for found in faults.values():
        for fault in found:
            if fault.reason not in _ABSENT:
                reasons.setdefault(fault.key, fault.reason)
    return reasons


def stage(bulk: Bulk, keys: Sequence[Key]) -> None:
    """Stage keys as the temporary table ``checked``."""
    columns = {"entity_id": [entity for entity, _ in keys], "window": [window for _, window in keys]}
    schema = pa.schema([("entity_id", pa.string()), ("window", pa.string())])
    bulk.stage("checked", pa.table(columns, schema=schema))
