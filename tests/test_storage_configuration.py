"""Versions of the configuration in the database, and cycles that cannot read them (R128-R136)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from oracle_core.config import ConfigError, OracleConfig
from oracle_core.enums import PipelineMode
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database, StorageError, UnmigratedError
from tests.storage_rows import AS_OF, rows

DEFAULT = OracleConfig()
PROBABILISTIC = DEFAULT.with_settings({"flags.probabilistic_scoring_enabled": True})


@pytest.fixture
def database(migrated_url: str) -> Iterator[Database]:
    database = Database(migrated_url)
    yield database
    database.close()


def store(database: Database, stored: object) -> None:
    """Overwrite the active row's JSON, as an operator with SQL could."""
    with database.begin() as connection:
        connection.execute(
            sa.text("UPDATE risk_configs SET config = CAST(:c AS jsonb) WHERE active"),
            {"c": json.dumps(stored)},
        )


def test_the_stored_json_holds_the_three_flags_at_the_top_r136(database: Database, migrated_url: str) -> None:
    ((stored,),) = rows(migrated_url, "SELECT config FROM risk_configs")
    flags = {k: stored[k] for k in ("macro_enabled", "competitive_enabled", "probabilistic_scoring_enabled")}
    assert flags == {
        "macro_enabled": True,
        "competitive_enabled": True,
        "probabilistic_scoring_enabled": False,
    }
    assert stored["trend"]["mixed_threshold"] == 0.1


def test_a_change_is_a_new_version_with_its_author_and_reason_and_the_old_one_stays(
    database: Database,
) -> None:
    changed = DEFAULT.with_settings({"trend.mixed_threshold": 0.2})
    made = configuration.activate(database, changed, "ada", "less mixed")
    assert (made.version, made.active, made.changed_by, made.reason) == (2, True, "ada", "less mixed")
    assert configuration.active(database).config == changed
    assert configuration.get(database, 1).config == DEFAULT
    assert [(v.version, v.active) for v in configuration.history(database)] == [(1, False), (2, True)]
    assert configuration.diff(DEFAULT, changed) == {"trend.mixed_threshold": (0.1, 0.2)}


def test_an_unchanged_configuration_makes_no_version(database: Database) -> None:
    assert configuration.activate(database, DEFAULT, "ada", "again").version == 1
    assert len(configuration.history(database)) == 1


def test_going_back_is_a_new_version_too(database: Database) -> None:
    configuration.activate(database, PROBABILISTIC, "ada", "try")
    back = configuration.activate(database, DEFAULT, "ada", "back")
    assert (back.version, back.config) == (3, DEFAULT)


def test_concurrent_changes_end_as_one_after_the_other_with_one_active_version(
    database: Database, migrated_url: str
) -> None:
    changes = [DEFAULT.with_settings({"trend.mixed_threshold": 0.2 + n / 100}) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        versions = pool.map(lambda c: configuration.activate(database, c, "ada", "race").version, changes)
    assert sorted(versions) == [2, 3, 4, 5]
    assert rows(migrated_url, "SELECT version FROM risk_configs WHERE active") == [(5,)]


def test_a_missing_flag_reads_as_heuristic_r133(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    stored = DEFAULT.stored()
    del stored["probabilistic_scoring_enabled"]
    store(database, stored)
    assert configuration.active(database).config.pipeline_mode is PipelineMode.HEURISTIC
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("wrong", ["true", 1, None, [True]])
def test_a_flag_of_another_type_reads_as_heuristic_with_a_warning_r134(
    database: Database, wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    store(database, DEFAULT.stored() | {"probabilistic_scoring_enabled": wrong})
    assert configuration.active(database).config.pipeline_mode is PipelineMode.HEURISTIC
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "probabilistic_scoring_enabled" in warning.getMessage()


def test_a_wrong_type_counts_as_another_configuration_although_python_takes_1_for_true(
    database: Database,
) -> None:
    store(database, PROBABILISTIC.stored() | {"probabilistic_scoring_enabled": 1})
    assert configuration.activate(database, PROBABILISTIC, "ada", "repair").version == 2
    assert configuration.active(database).config == PROBABILISTIC


def test_an_unreachable_table_means_heuristic_for_the_flag_alone_and_a_cycle_fails_r132(
    database: Database,
) -> None:
    configuration.activate(database, PROBABILISTIC, "ada", "on")
    assert configuration.probabilistic_flag(database) is True
    with database.begin() as connection:
        connection.execute(sa.text("DROP TABLE risk_configs CASCADE"))
    assert configuration.probabilistic_flag(database) is False
    with pytest.raises(UnmigratedError, match="oracle init"):
        pipeline.open_cycle(database, AS_OF)


def test_no_active_version_fails_with_the_remedy(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(sa.text("UPDATE risk_configs SET active = false"))
    with pytest.raises(StorageError, match=r"no configuration is active.*oracle init"):
        pipeline.open_cycle(database, AS_OF)


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ([1], "must be a JSON object"),
        ({"trend": {"mixed_threshold": "0.1"}}, "trend.mixed_threshold = '0.1'"),
        ({"trend": {"mixed_treshold": 0.1}}, "trend.mixed_treshold"),
        ({"trend": {"mixed_threshold": 1.5}}, "trend.mixed_threshold = 1.5"),
        ({"eligibility": {"min_confidence": 0.9}}, "min_confidence 0.9 must not be above"),
    ],
)
def test_thresholds_that_cannot_be_used_stop_the_cycle_and_name_version_and_path(
    database: Database, stored: object, told: str
) -> None:
    store(database, stored)
    with pytest.raises(ConfigError, match="configuration version 1") as e:
        pipeline.open_cycle(database, AS_OF)
    assert told in str(e.value)


def test_a_damaged_version_can_be_replaced_and_is_left_out_of_the_history(database: Database) -> None:
    store(database, [1])
    assert configuration.activate(database, PROBABILISTIC, "ada", "repair").version == 2
    assert [v.version for v in configuration.history(database)] == [2]


def test_an_unknown_version_is_refused(database: Database) -> None:
    with pytest.raises(ConfigError, match="no configuration version 7"):
        pipeline.open_cycle(database, AS_OF, config_version=7)


def test_a_cycle_reads_the_configuration_once_and_logs_its_mode_r128_r130(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *a: statements.append(a[2]), named=False)
    with caplog.at_level(logging.INFO):
        pipeline.open_cycle(database, AS_OF)
    assert sum("FROM risk_configs" in s for s in statements) == 1
    (logged,) = [r for r in caplog.records if "heuristic" in r.getMessage()]
    assert logged.levelno == logging.INFO


def test_a_change_during_a_cycle_takes_effect_in_the_next_one_r135(database: Database) -> None:
    cycle = pipeline.open_cycle(database, AS_OF)
    configuration.activate(database, PROBABILISTIC, "ada", "mid-cycle")
    assert cycle.config.pipeline_mode is PipelineMode.HEURISTIC
    assert pipeline.open_cycle(database, AS_OF).config.pipeline_mode is PipelineMode.PROBABILISTIC
    assert pipeline.open_cycle(database, AS_OF, config_version=1).config == DEFAULT
