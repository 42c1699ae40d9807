"""The log of model calls, and the budget that is kept with it.

A call is written down before it is made, as a reservation of all the tokens it may take, and settled with
what it took. Reservations of one variant are made one after the other, under a lock on its row, so that
workers at different places cannot overspend together. A reservation that nobody settles expires.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from oracle_dagster.storage.schema import agent_performance_log as log
from oracle_dagster.storage.schema import agent_variants

if TYPE_CHECKING:
    from datetime import datetime

    from oracle_dagster.rewriting.agents import AgentConfig
    from oracle_dagster.storage.database import Database

HOUR: Final = timedelta(hours=1)
ABANDONED: Final = "abandoned"
_SLACK: Final = timedelta(seconds=60)


def reserve(
    database: Database, agent: AgentConfig, *, input_tokens: int, output_tokens: int, now: datetime
) -> int | None:
    """Reserve the tokens of one call (R117).

    Args:
        database: the domain database.
        agent: who calls; without a variant there is no budget.
        input_tokens: estimate of the prompt.
        output_tokens: the most the answer may take.
        now: the moment of the call.

    Returns:
        Id of the call, to settle it; None if what the variant used within the last hour leaves too little.

    Raises:
        StorageError: the log cannot be written.

    Implements: R117.
    """
    variant = None if agent.variant_id is None else uuid.UUID(agent.variant_id)
    own = sa.and_(log.c.agent_slug == agent.slug, log.c.variant_id.is_not_distinct_from(variant))
    with database.begin() as connection:
        if variant is not None:
            budget = connection.execute(
                sa.select(agent_variants.c.hourly_token_budget)
                .where(agent_variants.c.id == variant)
                .with_for_update()
            ).first()
            if budget is None:
                return None  # removed meanwhile
            limit = budget.hourly_token_budget
        else:
            limit = None
        expired = now - 2 * timedelta(seconds=agent.timeout_s) - _SLACK
        # The prompt was most likely sent; the answer nobody saw counts for nothing.
        connection.execute(
            log.update()
            .where(own, log.c.success.is_(None), log.c.created_at < expired)
            .values(success=False, error=ABANDONED, est_output_tokens=0)
        )
        if limit is not None:
            spent = sa.func.coalesce(sa.func.sum(log.c.est_input_tokens + log.c.est_output_tokens), 0)
            used = connection.execute(
                sa.select(spent).where(log.c.variant_id == variant, log.c.created_at > now - HOUR)
            ).scalar_one()
            if used + input_tokens + output_tokens > limit:
                return None
        return int(
            connection.execute(
                log.insert()
                .values(
                    agent_slug=agent.slug,
                    variant_id=variant,
                    est_input_tokens=input_tokens,
                    est_output_tokens=output_tokens,
                    created_at=now,
                )
                .returning(log.c.id)
            ).scalar_one()
        )


def settle(
    database: Database, call: int, *, error: str | None, duration_ms: float, output_tokens: int
) -> None:
    """Write down how a call ended (R116).

    Args:
        database: the domain database.
        call: given by :func:`reserve`.
        error: kind of failure, None if the answer was used.
        duration_ms: how long it took.
        output_tokens: estimate of the answer.

    Raises:
        StorageError: the log cannot be written; the reservation then expires.

    Implements: R116.
    """
    with database.begin() as connection:
        connection.execute(
            log.update()
            .where(log.c.id == call)
            .values(
                success=error is None, error=error, duration_ms=duration_ms, est_output_tokens=output_tokens
            )
        )
