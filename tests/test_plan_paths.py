"""No setting changes a row whose key the plan does not name: every leaf of the configuration is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
import pytest

from oracle_core.config import ConfigError, OracleConfig
from oracle_dagster import pipeline
from oracle_dagster.planning.plan import make_plan
from oracle_dagster.storage import configuration
from oracle_dagster.storage.cycles import Key
from oracle_dagster.storage.database import Database
from tests.storage_rows import AS_OF, WINDOWS, ago, insert_world, make_world, rows

WORLD = make_world(4, 70, bars=140)
PROBABILISTIC = {"flags.probabilistic_scoring_enabled": True}
# Among them those that reach one written column only; the others are tried in the long tier.
SOME = (
    "competitive.flat_transfer", "trend.rank_impact", "projection.majority_margin",
    "eligibility.base_max_loss_pct",
    "risk.evidence_weight_decay", "risk.dedup_tolerance",
)  # fmt: skip
# By table: whose rows, of which cycle, and every column but ids, moments and the version itself.
_OF_CYCLE = "t.as_of = %(as_of)s AND t.config_version = %(version)s"
_OF_RECOMMENDATION = "o.generated_at = %(as_of)s AND o.config_version = %(version)s"
TABLES = {
    "cycle_keys": ("cycle_keys t", "t", _OF_CYCLE),
    "weighted_signals": ("weighted_signals t", "t", _OF_CYCLE),
    "trend_windows": ("trend_windows t", "t", _OF_CYCLE.replace("t.as_of", "t.generated_at")),
    "trend_history": ("trend_history t", "t", _OF_CYCLE.replace("t.as_of", "t.generated_at")),
    "trend_evidence": (
        "trend_evidence t JOIN trend_windows o ON o.id = t.trend_window_id", "o", _OF_RECOMMENDATION,
    ),
    "trend_projections": ("trend_projections t", "t", _OF_CYCLE.replace("t.as_of", "t.computed_at")),
    "recommendations": ("recommendations t", "t", _OF_CYCLE.replace("t.as_of", "t.generated_at")),
    "risk_evaluations": (
        "risk_evaluations t JOIN recommendations o ON o.id = t.recommendation_id", "o", _OF_RECOMMENDATION,
    ),
    "recommendation_evidence": (
        "recommendation_evidence t JOIN recommendations o ON o.id = t.recommendation_id", "o",
        _OF_RECOMMENDATION,
    ),
}  # fmt: skip
_NOT_COMPARED = (
    "id", "config_version", "recommendation_id", "standing_recommendation_id", "signal_seq", "trend_seq",
    "projection_seq", "decision_seq",
)  # fmt: skip


@dataclass
class Tried:
    """A database with two earlier cycles and that of the base, and what the base has written."""

    database: Database
    url: str
    base: OracleConfig
    written: dict[Key, set[str]]


@pytest.fixture(params=["heuristic", pytest.param("probabilistic", marks=pytest.mark.acceptance)])
def tried(request: pytest.FixtureRequest, migrated_url: str) -> Iterator[Tried]:
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, WORLD)
    database = Database(migrated_url)
    base = configuration.active(database)
    if request.param == "probabilistic":
        candidate = base.config.with_settings(PROBABILISTIC)
        base = configuration.activate(database, candidate, "test", "mode")
    for moment in (ago(days=2), ago(days=1), AS_OF):
        compute(database, moment, base.version)
    yield Tried(database, migrated_url, base.config, written(migrated_url, base.version))
    database.close()


def compute(database: Database, moment: datetime, version: int) -> None:
    """The whole cycle of all keys, as a run computes it."""
    cycle = pipeline.open_cycle(database, moment, config_version=version)
    pipeline.update_source_accuracy(database, cycle, run_id="test")
    keys = [(entity, window) for entity in WORLD.entities for window in WINDOWS]
    report = pipeline.run_stages(database, cycle, keys, pipeline.STAGES, run_id="test")
    assert not report.failures, (version, report.failures[:2])


def written(url: str, version: int) -> dict[Key, set[str]]:
    """Every row that the cycle of a version has written, by key."""
    found: dict[Key, set[str]] = {(e, w): set() for e in WORLD.entities for w in WINDOWS}
    for name, (source, owner, where) in TABLES.items():
        window = "time_horizon" if owner == "o" and "recommendations o" in source else '"window"'
        window = "time_horizon" if name == "recommendations" else window
        query = (
            f"SELECT {owner}.entity_id, {owner}.{window}, (to_jsonb(t) - %(left_out)s::text[])::text "
            f"FROM {source} WHERE {where}"
        )
        with psycopg.connect(url) as connection:
            given = {"as_of": AS_OF, "version": version, "left_out": list(_NOT_COMPARED)}
            for entity, key_window, row in connection.execute(query, given):
                found[entity, key_window].add(f"{name} {row}")
    return found


def nudged(base: OracleConfig, path: str) -> OracleConfig | None:
    """The configuration with this leaf changed a little; None where no other value is allowed."""
    value = base.settings()[path]
    if isinstance(value, bool):
        values: list[Any] = [not value]
    elif isinstance(value, int):
        values = [value + 1, value - 1]
    else:
        values = [0.7 * value, 1.3 * value, 0.95 * value, 1.05 * value, value + 0.01]
    for other in values:
        if other != value:
            try:
                return base.with_settings({path: other})
            except ConfigError:
                continue
    return None


def assert_named(tried: Tried, paths: list[str]) -> int:
    """Plan every change, then compute each, and compare; returns how many changed a row."""
    candidates = {path: config for path in paths if (config := nudged(tried.base, path)) is not None}
    assert set(paths) == set(candidates), "each leaf can be changed"
    # All plans first: what a run of a candidate stores is newer than what they work on.
    plans = {path: make_plan(tried.database, config, as_of=AS_OF) for path, config in candidates.items()}
    effective = 0
    for path, config in candidates.items():
        version = configuration.candidate(tried.database, config, "test", path).version
        compute(tried.database, AS_OF, version)
        now = written(tried.url, version)
        differ = {key for key, before in tried.written.items() if now[key] != before}
        assert differ <= set(plans[path].first_stages), path
        effective += bool(differ)
    return effective


def test_what_a_changed_setting_writes_otherwise_is_in_its_plan(tried: Tried) -> None:
    count = len(rows(tried.url, "SELECT FROM recommendation_evidence"))
    assert count > 0, "an empty comparison proves nothing"
    assert assert_named(tried, list(SOME)) >= len(SOME) // 2


@pytest.mark.acceptance
def test_of_every_single_setting_what_it_writes_otherwise_is_in_its_plan(tried: Tried) -> None:
    paths = list(tried.base.settings())
    effective = assert_named(tried, paths)
    print(f"{len(paths)} settings changed one by one, {effective} of them change rows: all in their plans")
