"""The probabilistic mode on a real database: whole cycles, and every failure the design lists (R212, R138).

Failures of reading the flag alone (table unreachable, key missing, wrong type) stand in
``test_storage_configuration.py``; those of the accuracy tables alone in ``test_storage_inputs.py``.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
import psycopg
import pytest

from oracle_core.config import OracleConfig
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database
from tests.chain_runs import Chain, fresh_database
from tests.storage_rows import (
    AS_OF,
    RESULT_TABLES,
    WINDOWS,
    Document,
    Impact,
    ago,
    contents,
    insert_bars,
    insert_documents,
    insert_event,
    insert_exposure,
    rows,
)

FLAG: Final = "flags.probabilistic_scoring_enabled"
PROBABILISTIC: Final = OracleConfig().with_settings({FLAG: True})
OLD: Final = ago(days=42)
FEW: Final = ("rising", "without prices", "seen")


def closes(count: int, drift: float, seed: int = 1) -> list[float]:
    """Prices that drift by a share per day, with two percent of noise."""
    rng, price, made = random.Random(seed), 100.0, []
    for _ in range(count):
        price *= 1.0 + drift + rng.gauss(0.0, 0.02)
        made.append(round(price, 4))
    return made


def agreeing(entity: str, sentiment: float = 1.0, catalyst: str | None = "legal") -> list[Document]:
    """Twelve documents of as many sources, all of one mind: enough to act on."""
    return [
        Document(
            f"{entity}-{n}",
            (Impact(entity, sentiment, 0.95, catalyst),),
            published=ago(hours=2 + n),
            source=f"{entity}-source-{n}",
            credibility=0.9,
            confidence=0.95,
        )
        for n in range(12)
    ]


def insert(connection: psycopg.Connection[Any]) -> None:
    """An entity per case. ``seer`` was right ten times by OLD and wrong ten times since."""
    insert_documents(connection, agreeing("rising"))
    insert_bars(connection, "rising", closes(160, 0.006))
    insert_documents(connection, agreeing("against the market", -1.0))
    insert_bars(connection, "against the market", closes(160, 0.006))
    insert_documents(connection, agreeing("without prices"))
    insert_documents(connection, agreeing("99 closes"))
    insert_bars(connection, "99 closes", closes(99, 0.006))
    insert_documents(connection, agreeing("constant"))
    insert_bars(connection, "constant", [100.0] * 160)
    insert_documents(connection, agreeing("unheard of", catalyst="never seen before"))
    insert_bars(connection, "unheard of", closes(160, 0.006))
    insert_documents(connection, agreeing("gaps"))
    for start in range(0, 330, 3):  # two days of three are missing
        insert_bars(connection, "gaps", [100.0 + start], last=ago(days=330 - start).date())
    insert_exposure(connection, "rising", {"geo": {"us": 0.8}})
    insert_event(connection, "storm")
    insert_bars(connection, "seen", [100.0 + n for n in range(160)])
    calls = [(60 - n, 1.0) for n in range(10)] + [(40 - n, -1.0) for n in range(10)]
    insert_documents(
        connection,
        [
            Document(f"call-{days}", (Impact("seen", sign, 0.7),), published=ago(days=days), source="seer")
            for days, sign in [*calls, (0.5, 1.0)]
        ],
    )


@pytest.fixture(scope="module")
def url(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """One database for all tests here; each forgets the results and configurations of the one before."""
    for address in fresh_database(embedded_home, "signals", migrated_template):
        with psycopg.connect(address) as connection:
            insert(connection)
        yield address


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(RESULT_TABLES)}, cycles, cycle_failures, run_log CASCADE")
        connection.execute("DELETE FROM risk_configs WHERE version > 1")
        connection.execute("UPDATE risk_configs SET active = true")
        connection.execute("SELECT setval(pg_get_serial_sequence('risk_configs', 'version'), 1)")
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def switched_on(database: Database) -> Database:
    configuration.activate(database, PROBABILISTIC, "ada", "try the mode")
    return database


def run(
    database: Database,
    as_of: datetime = AS_OF,
    *,
    entities: tuple[str, ...] | None = None,
    config_version: int | None = None,
    accuracy: bool = True,
    progress: pipeline.Progress | None = None,
) -> pipeline.StageReport:
    """One cycle as the job runs it."""
    cycle = pipeline.open_cycle(database, as_of, config_version=config_version)
    if accuracy:
        pipeline.update_source_accuracy(database, cycle, run_id="run")
    chosen = pipeline.known_entities(database, cycle) if entities is None else entities
    report = pipeline.run_stages(
        database,
        cycle,
        [(entity, window) for entity in chosen for window in WINDOWS],
        pipeline.STAGES,
        run_id="run",
        on_progress=progress,
        block_entities=2,
    )
    assert report.failures == []
    return report


def decided(url: str, entity: str, window: str = "1d") -> dict[str, Any]:
    """The recommendation, its evaluation and the probabilistic part of its trend."""
    query = """
        SELECT r.action, r.mode, r.thesis, r.pipeline_mode, r.expected_value, e.eligible, e.risk_checks,
               t.market_context -> 'probabilistic'
        FROM recommendations r JOIN risk_evaluations e ON e.recommendation_id = r.id
        JOIN trend_windows t ON t.entity_id = r.entity_id AND t."window" = r.time_horizon
        WHERE r.entity_id = %s AND r.time_horizon = %s"""
    (found,) = rows(url, query, entity, window)
    names = ("action", "mode", "thesis", "pipeline_mode", "expected_value", "eligible", "checks", "trend")
    return dict(zip(names, found, strict=True))


@contextmanager
def unreachable(url: str, table: str) -> Iterator[None]:
    """The table is away, as after a failed restore."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO away")
        try:
            yield
        finally:
            connection.execute(f"ALTER TABLE away RENAME TO {table}")


def factors(url: str, window: str = "1d") -> list[float]:
    """The accuracy factors of seer's signals."""
    query = """SELECT source_accuracy_factor FROM weighted_signals
               WHERE entity_id = 'seen' AND layer = 'entity' AND "window" = %s"""
    return [factor for (factor,) in rows(url, query, window)]


# ------------------------------------------------------------------------------------- whole cycles


def test_a_whole_cycle_stores_posterior_regime_and_expected_value_as_json_r212_r138(
    switched_on: Database, url: str
) -> None:
    run(switched_on)
    found = decided(url, "rising")
    trend, checks = found["trend"], found["checks"]
    assert trend["pipeline_mode"] == checks["pipeline_mode"] == found["pipeline_mode"] == "probabilistic"
    assert trend["regime"] == "trend_following"
    assert 0.0 < trend["regime_volatility_ratio"] < 1.2
    assert trend["macro_modifier"] < 1.0, "a bad event takes from a good trend (R188)"
    assert trend["log_likelihood"] == pytest.approx(trend["alpha"] - trend["beta"], abs=1e-12)
    assert checks["p_bull"] == trend["p_bull"] > 0.95
    assert checks["ev_threshold"] == 0.005
    edge = checks["p_bull"] * checks["r_up"] - (1.0 - checks["p_bull"]) * checks["r_down"]
    assert checks["ev"] == found["expected_value"] == pytest.approx(edge, abs=1e-12)
    assert checks["ev_reasons"] == []
    assert (found["action"], found["eligible"]) == ("act", True)
    assert found["mode"] != "informational"
    tables = rows(url, "SELECT count(*) FROM pg_tables WHERE tablename = 'source_accuracy'")
    assert tables == [(1,)], "the design's one new table (R138)"


def test_with_the_flag_off_no_json_has_a_probabilistic_part_r138(database: Database, url: str) -> None:
    run(database)
    found = decided(url, "rising")
    assert found["trend"] is None
    assert found["pipeline_mode"] == "heuristic"
    assert found["expected_value"] is None
    assert not {"ev", "p_bull", "r_up", "r_down", "pipeline_mode", "ev_threshold"} & set(found["checks"])
    assert found["action"] == "act"
    signals = "SELECT DISTINCT source_accuracy_factor, info_gain_factor FROM weighted_signals"
    assert rows(url, signals) == [(1.0, 1.0)]


def test_a_flag_changed_in_the_middle_of_a_cycle_takes_effect_in_the_next_r135(
    switched_on: Database, url: str
) -> None:
    """The run works on blocks of two entities; the change comes after the first of them."""

    def change(_: str, done: int, __: int) -> None:
        if done == 10:
            configuration.activate(switched_on, OracleConfig(), "bob", "roll back")

    run(switched_on, ago(hours=1), entities=FEW, progress=change)
    assert configuration.active(switched_on).version == 3
    decisions = rows(url, "SELECT count(*) FROM cycle_keys WHERE decision_seq IS NOT NULL")
    assert decisions == [(15,)]
    modes = "SELECT DISTINCT pipeline_mode, config_version FROM recommendations WHERE generated_at = %s"
    assert rows(url, modes, ago(hours=1)) == [("probabilistic", 2)]
    run(switched_on)
    assert rows(url, "SELECT pipeline_mode FROM cycles ORDER BY as_of") == [
        ("probabilistic",),
        ("heuristic",),
    ]
    assert rows(url, "SELECT count(*) FROM trend_windows WHERE market_context ? 'probabilistic'") == [(0,)]


def test_on_and_off_again_leaves_the_old_numbers_and_every_cycle_repeats_to_the_bit_r131(
    database: Database, url: str
) -> None:
    run(database, ago(hours=1), entities=FEW)
    numbers = """SELECT entity_id, "window", trend_direction, trend_strength, confidence, market_context::text
                 FROM trend_history WHERE generated_at = %s AND config_version = %s ORDER BY 1, 2"""
    before = rows(url, numbers, ago(hours=1), 1)
    assert len(before) == 15
    configuration.activate(database, PROBABILISTIC, "ada", "on")
    run(database, ago(minutes=30), entities=FEW)
    configuration.activate(database, OracleConfig(), "ada", "off")
    run(database, entities=FEW)
    run(database, ago(hours=1), entities=FEW)
    assert rows(url, numbers, ago(hours=1), 3) == before
    first = contents(url)
    kept = [table for table in RESULT_TABLES if table != "cycle_keys"]  # the order cycles were first run in
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(kept)}")
    for as_of, version in ((ago(hours=1), 1), (ago(minutes=30), 2), (AS_OF, 3), (ago(hours=1), 3)):
        run(database, as_of, entities=FEW, config_version=version)
    assert contents(url) == first


# --------------------------------------------------------------------------------- source accuracy


def test_accuracy_is_measured_stored_and_weighs_the_sources_signals_r212_r168(
    switched_on: Database, url: str
) -> None:
    query = "SELECT accuracy_ratio, sample_count, last_updated FROM source_accuracy WHERE source_id = 'seer'"
    run(switched_on, OLD, entities=("seen",))
    assert rows(url, query) == [(1.0, 10, OLD)]
    assert factors(url, "30d") == [1.5] * 10
    run(switched_on, entities=("seen",))
    assert rows(url, query) == [(0.5, 20, AS_OF)]
    assert factors(url) == [1.0]


def test_an_old_cycle_backfilled_later_uses_the_accuracy_of_its_day(switched_on: Database, url: str) -> None:
    """Whatever the current table holds; and what nobody had measured by then counts as unknown (R164)."""
    history = "SELECT t::text FROM trend_history t WHERE generated_at = %s ORDER BY 1"
    mass = """SELECT (market_context -> 'probabilistic' ->> 'alpha')::float - 1.0 FROM trend_history
              WHERE generated_at = %s AND "window" = '30d'"""
    alone = PROBABILISTIC.with_settings({"flags.competitive_enabled": False})  # documents are all the mass
    configuration.activate(switched_on, alone, "ada", "no patterns")
    run(switched_on, OLD, entities=("seen",))
    on_the_day = rows(url, history, OLD)
    ((weighed,),) = rows(url, mass, OLD)
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(RESULT_TABLES)}, cycles CASCADE")
    run(switched_on, entities=("seen",))
    run(switched_on, OLD, entities=("seen",))
    assert rows(url, history, OLD) == on_the_day
    current = "SELECT accuracy_ratio, sample_count FROM source_accuracy WHERE source_id = 'seer'"
    assert rows(url, current) == [(0.5, 20)], "the older cycle leaves the current accuracy alone"
    unmeasured = OLD - timedelta(minutes=1)
    run(switched_on, unmeasured, entities=("seen",), accuracy=False)
    ((plain,),) = rows(url, mass, unmeasured)
    assert weighed / plain == pytest.approx(1.5, rel=1e-3)


def test_without_the_accuracy_table_a_cycle_runs_with_factor_1_r165(
    switched_on: Database, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = pipeline.open_cycle(switched_on, OLD - timedelta(hours=1))
    pipeline.update_source_accuracy(switched_on, earlier, run_id="run")
    with unreachable(url, "source_accuracy_history"):
        run(switched_on, OLD, entities=("seen",), accuracy=False)
    assert factors(url, "30d") == [1.0] * 10
    run(switched_on, OLD, entities=("seen",), accuracy=False)
    assert factors(url, "30d") == [1.0] * 10, "a repeat, with the table back, is the same"
    run(switched_on, OLD + timedelta(minutes=1), entities=("seen",), accuracy=False)
    assert factors(url, "30d") == [1.5] * 10
    assert any("accuracy" in r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)


def test_accuracy_that_cannot_be_updated_is_logged_and_the_stale_one_weighs_r166(
    switched_on: Database, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(switched_on, OLD, entities=("seen",))
    later = OLD + timedelta(hours=1)
    with unreachable(url, "source_accuracy"):
        run(switched_on, later, entities=("seen",))
    assert [r.levelname for r in caplog.records if "was not updated" in r.getMessage()] == ["ERROR"]
    assert rows(url, "SELECT DISTINCT generated_at FROM trend_windows") == [(later,)]
    assert factors(url, "30d") == [1.5] * 10


@pytest.mark.parametrize(("ratio", "factor"), [(1.7, 1.5), (-0.2, 0.5), (float("nan"), 1.0)])
def test_a_corrupted_ratio_is_clamped_and_one_that_is_no_number_is_neutral_r167(
    switched_on: Database, url: str, ratio: float, factor: float
) -> None:
    cycle = pipeline.open_cycle(switched_on, AS_OF)
    pipeline.update_source_accuracy(switched_on, cycle, run_id="run")
    with psycopg.connect(url) as connection:
        for table in ("source_accuracy", "source_accuracy_history"):
            connection.execute(
                f"UPDATE {table} SET accuracy_ratio = %s WHERE source_id = 'seer'",
                (ratio,),
            )
    run(switched_on, entities=("seen",), accuracy=False)
    assert factors(url) == [factor]
    text = contents(url, "trend_windows", "recommendations", "risk_evaluations", "trend_projections")
    assert not any("NaN" in row for table in text.values() for row in table)


# ------------------------------------------------------------------------- prices, catalysts, weights

REASONED: Final = {
    "without prices": ("uncertainty", "expected value unavailable", ["ev_unavailable"]),
    "constant": ("uncertainty", "expected value +0.0000", ["low_expected_value"]),
    "99 closes": ("uncertainty", "expected value +0.0", []),
    "unheard of": ("trend_following", "expected value +0.0", []),
}


@pytest.mark.parametrize("entity", REASONED)
def test_missing_short_or_flat_prices_and_unknown_catalysts_give_a_reasoned_recommendation(
    switched_on: Database, url: str, entity: str
) -> None:
    """No error: what was missing is in the thesis and among the checks (R158, R159, R172, G26)."""
    regime, told, reasons = REASONED[entity]
    run(switched_on, entities=(entity,))
    found = decided(url, entity)
    assert found["action"] == "act"
    assert found["trend"]["regime"] == regime
    assert f"regime {regime}, {told}" in found["thesis"]
    assert found["checks"]["ev_reasons"] == reasons
    assert (found["mode"] == "informational") == (reasons != [])
    gains = rows(url, "SELECT DISTINCT info_gain_factor FROM weighted_signals WHERE layer = 'entity'")
    # 1 - 0.3 log2(rate): 0.1, the default, for the unknown catalyst, and 0.05 for a legal one
    assert gains == [(pytest.approx(1.9965784284662088 if entity == "unheard of" else 2.296578428466209),)]


def test_a_deferral_is_judged_by_the_edge_of_its_own_side_c11(switched_on: Database, url: str) -> None:
    """A negative expected value is what a deferral gains by."""
    run(switched_on, entities=("against the market",))
    found = decided(url, "against the market")
    assert found["action"] == "defer"
    assert found["expected_value"] < -0.005
    assert (found["mode"] != "informational", found["checks"]["ev_reasons"]) == (True, [])


def test_prices_with_gaps_are_used_as_far_as_they_go_r160(switched_on: Database, url: str) -> None:
    """110 closes in 330 days: enough for a regime; a calm rise."""
    run(switched_on, entities=("gaps",))
    found = decided(url, "gaps")
    assert found["trend"]["regime"] == "trend_following"
    assert found["checks"]["r_up"] > 0.0
    assert found["checks"]["r_down"] == 0.0


def test_extreme_weights_reach_certainty_without_overflow_r149(database: Database, url: str) -> None:
    extreme = PROBABILISTIC.with_settings({"scoring.entity_layer_weight": 1e300})
    configuration.activate(database, extreme, "ada", "extreme")
    run(database, entities=("rising", "against the market"))
    up, down = decided(url, "rising")["trend"], decided(url, "against the market")["trend"]
    assert (up["p_bull"], up["entropy"]) == (1.0, 0.0)
    assert down["entropy"] == pytest.approx(0.0, abs=1e-12)
    assert up["alpha"] == pytest.approx(1.0 + 12 * 0.95 * 100.0 * up["macro_modifier"])
    assert 0.99 < up["bayesian_confidence"] < 1.0


def test_no_number_that_is_none_reaches_a_result_c36(switched_on: Database, url: str) -> None:
    """Over all the cases above at once; NaN would stand in a row's text."""
    run(switched_on)
    for table, found in contents(url, *(t for t in RESULT_TABLES if t != "cycle_keys")).items():
        assert found, table
        assert not any("NaN" in row or "Infinity" in row for row in found), table


# ---------------------------------------------------------------------------------- what a person sees


def test_materialisations_show_the_posterior_its_plot_the_regime_and_the_mode(
    switched_on: Database, url: str
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        chain = Chain(url, instance)
        assert chain.run(keys=["rising|1d", "without prices|1d"]).success
        shown = {}
        for asset in ("trend_windows", "recommendations"):
            wanted = dg.AssetRecordsFilter(dg.AssetKey(asset), asset_partitions=["rising|1d"])
            (record,) = instance.fetch_materializations(wanted, limit=1).records
            assert record.asset_materialization is not None
            shown[asset] = record.asset_materialization.metadata
    stored = decided(url, "rising")
    for metadata in shown.values():
        for name in ("p_bull", "alpha", "beta", "entropy", "regime", "pipeline_mode"):
            wanted = stored["trend"][name]  # numbers are shown with four digits
            wanted = float(f"{wanted:.4g}") if isinstance(wanted, float) else wanted
            assert metadata[name].value == wanted, name
        assert metadata["direction_threshold"].value == 0.15
    assert shown["recommendations"]["expected_value"].value == float(f"{stored['expected_value']:.4g}")
    assert "posterior" not in shown["recommendations"]
    plot = shown["trend_windows"]["posterior"]
    assert isinstance(plot, dg.MarkdownMetadataValue)
    assert f"▲ P_bull {stored['trend']['p_bull']:.3f}" in str(plot.value)
