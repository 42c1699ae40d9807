"""The demo: the polls of the 2016 presidential election of the United States, decided on its eve.

Works in a home of its own with an embedded server of its own, so that no other table is ever touched. Loads,
runs and compares; computes no rule. What is printed is laid out by the command.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from oracle_dagster.home import Home
from oracle_dagster.ingestion.load import ingest
from oracle_dagster.launch import orchestrator, run_cycle
from oracle_dagster.reporting import report_inputs
from oracle_dagster.rewriting.agents import REWRITER, Settings, configure
from oracle_dagster.storage.database import Database
from oracle_dagster.storage.migrate import upgrade
from oracle_dagster.storage.schema import cycle_keys, recommendations, risk_evaluations, trend_history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oracle_dagster.launch import RunOutcome

AS_OF: Final = datetime(2016, 11, 8, tzinfo=UTC)
WINDOW: Final = "30d"
FOLDER: Final = "polls2016"


class DemoError(RuntimeError):
    """The demo did not come to its end; the message says why."""


@dataclass(frozen=True)
class Row:
    """The trend and the recommendation of one entity in the window shown."""

    entity_id: str
    average: float
    direction: str
    strength: float
    confidence: float
    contradiction: float
    action: str
    mode: str
    thesis: str


@dataclass(frozen=True)
class Score:
    """How often the sign of the average named the winner; ``misses`` are (entity, direction of its trend)."""

    right: int
    of: int
    misses: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Reworded:
    """How many of the theses that a model may reword it did, and one of them beside its own words."""

    model: str
    used: int
    of: int
    example: tuple[str, str] | None


@dataclass(frozen=True)
class Demo:
    """Everything that the command prints."""

    home: Home
    outcome: RunOutcome
    documents: int
    rows: Sequence[Row]
    score: Score
    seconds: Mapping[str, float]
    reworded: Reworded | None

    def tally(self) -> dict[str, dict[str, int]]:
        """How many rows there are of each action, and of each mode in it, the most frequent first."""
        actions = Counter(row.action for row in self.rows).most_common()
        return {
            action: dict(Counter(row.mode for row in self.rows if row.action == action).most_common())
            for action, _ in actions
        }


def demo_home(base: Home, mark: str) -> Home:
    """The demo's home below another home, or that home itself where it is one already; marked as such.

    Args:
        base: the user's home, which is not touched but for the folder ``demo``.
        mark: name of the file that tells every command to use the embedded server there.
    """
    home = base if (base.path / mark).exists() else Home(base.path / "demo")
    home.path.mkdir(parents=True, exist_ok=True)
    about = {"data": FOLDER, "as_of": AS_OF.isoformat(), "database": "embedded, always"}
    (home.path / mark).write_text(json.dumps(about) + "\n", encoding="utf-8")
    return home


def certified_margins() -> dict[str, float]:
    """The certified margin of each state and DC, Clinton minus Trump, in percentage points."""
    text = (resources.files("oracle_dagster") / "data" / FOLDER / "results.json").read_text(encoding="utf-8")
    found: dict[str, float] = json.loads(text)
    return found


def run(
    home: Home,
    say: Callable[[str], None],
    on_keys: Callable[[str, int, int], None],
    thesis_model: str | None = None,
) -> Demo:
    """Load the polls, compute the cycle, and read what came out. Repeating it changes nothing.

    Args:
        home: of the demo.
        say: told what is being done.
        on_keys: told what is done with the keys, with how many it is, and of how many.
        thesis_model: rewords the theses that this model has not reworded yet; nobody does where None.

    Raises:
        DemoError: the cycle did not succeed.
    """
    seconds: dict[str, float] = {}
    started = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal started
        now = time.perf_counter()
        seconds[name] = now - started
        started = now

    say("starting the embedded PostgreSQL")
    with home.connect(say) as connections:
        database = Database(connections.domain_url)
        try:
            upgrade(database)
            lap("start the database")
            say("loading 4,208 polls")
            source = resources.files("oracle_dagster") / "data" / FOLDER / "documents.jsonl.gz"
            with resources.as_file(source) as path:
                report = ingest(database, path, now=datetime.now(UTC), known_at="published")
            if report.affected_entities:
                with orchestrator(home, connections) as instance:
                    report_inputs(instance, database, sorted(report.affected_entities))
            lap("load the polls")
            if thesis_model is not None:
                _prepare_rewording(database, thesis_model)
            say("computing the cycle")
            outcome = run_cycle(home, as_of=AS_OF, progress=on_keys)
            if outcome.status != "success":
                raise DemoError(
                    f"the cycle ended as {outcome.status}: {outcome.message or outcome.failures[:3]}. Run "
                    f"the demo again; if it fails the same way, remove {home.path} first."
                )
            lap("compute the cycle")
            rows = _rows(database, outcome)
            reworded = None if thesis_model is None else _reworded(database, thesis_model)
        finally:
            database.close()
    return Demo(home, outcome, report.total.read, rows, score(rows, certified_margins()), seconds, reworded)


def _prepare_rewording(database: Database, model: str) -> None:
    """Set up the agent, and forget the words of the demo's cycle that this model did not find.

    A repeated cycle keeps the words it stored, which is right everywhere but here, where a model is tried.
    """
    configure(database, REWRITER, Settings(model_name=model))
    said = recommendations.c.model_metadata
    with database.begin() as connection:
        connection.execute(
            recommendations.delete().where(
                recommendations.c.generated_at == AS_OF,
                sa.not_(said["llm_used"].as_boolean()) | (said["model_name"].as_string() != model),
            )
        )


def _reworded(database: Database, model: str) -> Reworded:
    e, r = risk_evaluations.c, recommendations.c
    query = (
        sa.select(
            r.thesis,
            r.model_metadata["deterministic_thesis"].as_string().label("own"),
            r.model_metadata["llm_used"].as_boolean().label("used"),
        )
        .join_from(recommendations, risk_evaluations, e.recommendation_id == r.id)
        .where(
            r.generated_at == AS_OF,
            e.eligible,
            sa.func.jsonb_array_length(e.risk_checks["suppression_reasons"]) == 0,
        )
        .order_by((r.time_horizon == WINDOW).desc(), r.entity_id)
    )
    with database.begin() as connection:
        found = connection.execute(query).all()
    used = [(row.own, row.thesis) for row in found if row.used]
    return Reworded(model, len(used), len(found), used[0] if used else None)


def _rows(database: Database, outcome: RunOutcome) -> list[Row]:
    t, k, r = trend_history.c, cycle_keys.c, recommendations.c
    query = (
        sa.select(
            t.entity_id,
            t.market_context["basis"]["average"].as_float().label("average"),
            t.trend_direction,
            t.trend_strength,
            t.confidence,
            t.contradiction_score,
            r.action,
            r.mode,
            r.thesis,
        )
        .join_from(
            trend_history,
            cycle_keys,
            (k.entity_id == t.entity_id)
            & (k.window == t.window)
            & (k.as_of == t.generated_at)
            & (k.config_version == t.config_version),
        )
        .join(recommendations, r.id == k.standing_recommendation_id)
        .where(
            (t.generated_at == outcome.as_of)
            & (t.config_version == outcome.config_version)
            & (t.window == WINDOW)
        )
    )
    with database.begin() as connection:
        found = [Row(*row) for row in connection.execute(query)]
    return sorted(found, key=lambda row: (-row.average, row.entity_id))


def score(rows: Sequence[Row], margins: Mapping[str, float]) -> Score:
    """Compare the sign of each average with that of the certified margin; an average of 0 names nobody."""
    judged = [row for row in rows if row.entity_id in margins]
    misses = [(r.entity_id, r.direction) for r in judged if r.average * margins[r.entity_id] <= 0]
    return Score(len(judged) - len(misses), len(judged), sorted(misses))
