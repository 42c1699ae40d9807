"""Which model an agent uses: the tables ``ai_agents`` and ``agent_variants``, read through a short cache.

An agent names a provider and a model; of its variants the active one's settings are preferred, and only a
variant has a budget. No call is made here.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from oracle_core.rewrite import PROMPT_VERSION, SCHEMA_VERSION
from oracle_dagster.storage.database import Database, StorageError
from oracle_dagster.storage.schema import agent_variants, ai_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    Clock = Callable[[], datetime]

_log = logging.getLogger(__name__)

REWRITER: Final = "thesis-rewriter"
PROVIDER: Final = "ollama"
CACHE_SECONDS: Final = 60.0
LONGEST_TIMEOUT_SECONDS: Final = 600.0
MOST_RETRIES: Final = 10


class AgentError(StorageError):
    """An agent cannot be set up as asked; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What a call needs to know of an agent, its active variant's settings already preferred."""

    slug: str
    provider: str
    model_name: str
    timeout_s: float
    max_retries: int
    prompt_version: str
    schema_version: str
    variant_id: str | None
    hourly_token_budget: int | None

    def metadata(self) -> dict[str, str]:
        """What ``model_metadata`` says of it (C22)."""
        return {
            "provider": self.provider,
            "model_name": self.model_name,
            "prompt_version": self.prompt_version,
            "schema_version": self.schema_version,
        }


class AgentConfigResolver:
    """Reads agents by slug; an answer, also that there is none, holds for ``cache_seconds`` (R111).

    ``queries`` counts the reads of the database.
    """

    def __init__(self, database: Database, clock: Clock, cache_seconds: float = CACHE_SECONDS) -> None:
        """Remember where to read and what time it is."""
        self._database = database
        self._clock = clock
        self._cache_seconds = cache_seconds
        self._cache: dict[str, tuple[datetime, AgentConfig | None]] = {}
        self._mutex = threading.Lock()
        self.queries = 0

    def resolve(self, slug: str, *, refresh: bool = False) -> AgentConfig | None:
        """The agent of this slug, or None where none is configured or it is switched off.

        Args:
            slug: of the agent.
            refresh: read the database whatever the cache says (R112).

        Raises:
            StorageError: the tables cannot be read.

        Implements: R111.
        """
        with self._mutex:
            now = self._clock()
            cached = self._cache.get(slug)
            if cached is not None and not refresh:
                age = (now - cached[0]).total_seconds()
                if 0.0 <= age < self._cache_seconds:
                    return cached[1]
            self.queries += 1
            found = _usable(_read(self._database, slug))
            self._cache[slug] = (now, found)
            return found


def _read(database: Database, slug: str) -> sa.RowMapping | None:
    variant = (
        sa.select(agent_variants)
        .where(agent_variants.c.agent_id == ai_agents.c.id, agent_variants.c.is_active)
        .order_by(agent_variants.c.id)
        .limit(1)
        .lateral("variant")
    )
    query = (
        sa.select(
            ai_agents.c.slug,
            ai_agents.c.provider,
            sa.func.coalesce(variant.c.model_name, ai_agents.c.model_name).label("model_name"),
            sa.func.coalesce(variant.c.timeout_s, ai_agents.c.timeout_s).label("timeout_s"),
            sa.func.coalesce(variant.c.max_retries, ai_agents.c.max_retries).label("max_retries"),
            ai_agents.c.prompt_version,
            ai_agents.c.schema_version,
            variant.c.id.label("variant_id"),
            variant.c.hourly_token_budget,
        )
        .select_from(ai_agents.outerjoin(variant, sa.true()))
        .where(ai_agents.c.slug == slug, ai_agents.c.active)
    )
    with database.begin() as connection:
        return connection.execute(query).mappings().first()


def _usable(row: sa.RowMapping | None) -> AgentConfig | None:
    if row is None:
        return None
    variant = row["variant_id"]
    config = AgentConfig(**{**row, "variant_id": None if variant is None else str(variant)})
    problems = _problems(config.timeout_s, config.max_retries, config.hourly_token_budget)
    if config.provider != PROVIDER:
        problems.append(f"its provider is not {PROVIDER}")
    if (config.prompt_version, config.schema_version) != (PROMPT_VERSION, SCHEMA_VERSION):
        problems.append(
            f"this version knows prompt_version {PROMPT_VERSION} and schema_version {SCHEMA_VERSION} only"
        )
    if problems:
        _log.warning(
            "the agent %s cannot be used and no thesis is reworded: %s. Remedy: `oracle agents set %s`",
            config.slug,
            "; ".join(problems),
            config.slug,
        )
        return None
    return config


def _problems(timeout_s: float | None, max_retries: int | None, budget: int | None) -> list[str]:
    problems = []
    if timeout_s is not None and not (
        math.isfinite(timeout_s) and 0.0 < timeout_s <= LONGEST_TIMEOUT_SECONDS
    ):
        problems.append(f"timeout_s must lie above 0 and be at most {LONGEST_TIMEOUT_SECONDS:g}")
    if max_retries is not None and not 0 <= max_retries <= MOST_RETRIES:
        problems.append(f"max_retries must lie between 0 and {MOST_RETRIES}")
    if budget is not None and budget < 0:
        problems.append("hourly_token_budget must not be negative")
    return problems


# ------------------------------------------------------------------------------------------- management


@dataclass(frozen=True, slots=True)
class Settings:
    """What to change of an agent; None leaves as it is."""

    model_name: str | None = None
    timeout_s: float | None = None
    max_retries: int | None = None
    hourly_token_budget: int | None = None

    def given(self) -> dict[str, object]:
        """The values to change, by column."""
        values = {
            "model_name": self.model_name,
            "timeout_s": self.timeout_s,
            "max_retries": self.max_retries,
            "hourly_token_budget": self.hourly_token_budget,
        }
        return {name: value for name, value in values.items() if value is not None}


NEW_VARIANT: Final = "new"


def configure(database: Database, slug: str, settings: Settings, *, variant: str | None = None) -> str | None:
    """Set up or change an agent and switch it on.

    The values apply to the variant in use; without one to the agent itself, except that a budget needs a
    variant and makes one.

    Args:
        database: the domain database.
        slug: of the agent.
        settings: what to change.
        variant: ``new`` for a further variant, or the id of one (its beginning is enough), which is then the
            active one.

    Returns:
        Id of the active variant, None where there is none.

    Raises:
        AgentError: a value is out of range, a new agent has no model, or there is no such variant.
        StorageError: the tables cannot be written.

    """
    problems = _problems(settings.timeout_s, settings.max_retries, settings.hourly_token_budget)
    if settings.model_name is not None and settings.model_name.strip() == "":
        problems.append("the name of the model is empty")
    if problems:
        raise AgentError(f"the agent {slug!r} cannot be set so: {'; '.join(problems)}.")
    with database.begin() as connection:
        agent_id = _present(connection, slug, settings)
        values = settings.given()
        variants = connection.execute(
            sa.select(agent_variants)
            .where(agent_variants.c.agent_id == agent_id)
            .order_by(agent_variants.c.id)
        ).all()
        chosen = next((row.id for row in variants if row.is_active), None)
        if variant is not None and variant != NEW_VARIANT:
            chosen = _named(slug, variant, [row.id for row in variants])
        if variant == NEW_VARIANT or (chosen is None and "hourly_token_budget" in values):
            # With the model of now, so that its log still says which it was when the agent's changes.
            model = sa.select(ai_agents.c.model_name).where(ai_agents.c.id == agent_id).scalar_subquery()
            chosen = connection.execute(
                agent_variants.insert()
                .values(agent_id=agent_id, model_name=model)
                .returning(agent_variants.c.id)
            ).scalar_one()
        if chosen is None:
            _update(connection, ai_agents, agent_id, values)
            return None
        connection.execute(
            agent_variants.update()
            .where(agent_variants.c.agent_id == agent_id)
            .values(is_active=agent_variants.c.id == chosen)
        )
        _update(connection, agent_variants, chosen, values)
        return str(chosen)


def _present(connection: sa.Connection, slug: str, settings: Settings) -> uuid.UUID:
    """Id of the agent, locked and switched on; made where there is none."""
    found: uuid.UUID | None = connection.execute(
        ai_agents.update().where(ai_agents.c.slug == slug).values(active=True).returning(ai_agents.c.id)
    ).scalar()
    if found is not None:
        return found
    if settings.model_name is None:
        raise AgentError(f"there is no agent {slug!r} yet. Remedy: name its model with --model.")
    made: uuid.UUID = connection.execute(
        ai_agents.insert()
        .values(
            slug=slug,
            provider=PROVIDER,
            model_name=settings.model_name,
            prompt_version=PROMPT_VERSION,
            schema_version=SCHEMA_VERSION,
        )
        .returning(ai_agents.c.id)
    ).scalar_one()
    return made


def _named(slug: str, variant: str, ids: list[uuid.UUID]) -> uuid.UUID:
    found = [each for each in ids if variant != "" and str(each).startswith(variant.lower())]
    if len(found) != 1:
        what = "no variant" if not found else "more than one variant"
        raise AgentError(
            f"{what} of {slug!r} begins with {variant!r}. Remedy: `oracle agents list` shows their ids."
        )
    return found[0]


def _update(
    connection: sa.Connection, table: sa.Table, row_id: uuid.UUID, values: Mapping[str, object]
) -> None:
    if values:
        connection.execute(table.update().where(table.c.id == row_id).values(**values))


def disable(database: Database, slug: str) -> None:
    """Switch an agent off; its variants and its log stay.

    Raises:
        AgentError: there is no such agent.
        StorageError: the tables cannot be written.

    """
    with database.begin() as connection:
        done = connection.execute(ai_agents.update().where(ai_agents.c.slug == slug).values(active=False))
    if done.rowcount == 0:
        raise AgentError(f"there is no agent {slug!r}. Remedy: `oracle agents list` shows which there are.")


def described(database: Database) -> list[dict[str, Any]]:
    """Every agent with its variants, by slug."""
    with database.begin() as connection:
        agents = connection.execute(sa.select(ai_agents).order_by(ai_agents.c.slug)).mappings().all()
        variants = connection.execute(
            sa.select(agent_variants).order_by(agent_variants.c.is_active.desc(), agent_variants.c.id)
        ).mappings()
        by_agent: dict[object, list[dict[str, Any]]] = {agent["id"]: [] for agent in agents}
        for row in variants:
            by_agent[row["agent_id"]].append({name: row[name] for name in row if name != "agent_id"})
    return [{**agent, "variants": by_agent[agent["id"]]} for agent in agents]
