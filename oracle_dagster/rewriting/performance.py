"""What the log of model calls says of each variant: success, latency, spend; for comparing variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

if TYPE_CHECKING:
    from oracle_dagster.storage.database import Database

_HOUR: Final = "date_trunc('hour', l.created_at, 'UTC')"
_FIGURES: Final = """
    SELECT {shown} l.agent_slug, l.variant_id::text AS variant_id,
           COALESCE(v.model_name, a.model_name) AS model_name,
           count(*) AS calls,
           count(*) FILTER (WHERE l.success) AS succeeded,
           count(*) FILTER (WHERE NOT l.success) AS failed,
           count(*) FILTER (WHERE l.success)::float8
               / NULLIF(count(*) FILTER (WHERE l.success IS NOT NULL), 0) AS success_rate,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY l.duration_ms) AS p50_ms,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY l.duration_ms) AS p95_ms,
           percentile_cont(0.99) WITHIN GROUP (ORDER BY l.duration_ms) AS p99_ms,
           sum(l.est_input_tokens)::bigint AS est_input_tokens,
           sum(l.est_output_tokens)::bigint AS est_output_tokens
    FROM agent_performance_log l
    LEFT JOIN agent_variants v ON v.id = l.variant_id
    LEFT JOIN ai_agents a ON a.slug = l.agent_slug
    GROUP BY {hour} l.agent_slug, l.variant_id, v.model_name, a.model_name
    ORDER BY {newest} l.agent_slug, l.variant_id"""
HOURLY: Final = _FIGURES.format(shown=f"{_HOUR} AS hour,", hour=f"{_HOUR},", newest=f"{_HOUR} DESC,")
OVERALL: Final = _FIGURES.format(shown="", hour="", newest="")


def hourly(database: Database, hours: int) -> list[dict[str, Any]]:
    """Figures per hour and variant, newest first, of the newest ``hours`` rows.

    Rates are in [0, 1] and times in milliseconds; None where no call has ended.
    """
    with database.begin() as connection:
        rows = connection.execute(sa.text(f"{HOURLY} LIMIT :most"), {"most": hours}).mappings()
        return [dict(row) for row in rows]


def overall(database: Database) -> list[dict[str, Any]]:
    """The same over the whole log, per variant."""
    with database.begin() as connection:
        return [dict(row) for row in connection.execute(sa.text(OVERALL)).mappings()]
