"""A rehearsal computes what a run writes, by the same code, and writes nothing."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import numpy as np
import pytest

from oracle_core.inputs import CycleInputs
from oracle_dagster import pipeline
from oracle_dagster.storage import configuration, cycles, inputs
from oracle_dagster.storage.database import Database
from tests.storage_rows import AS_OF, RESULT_TABLES, WINDOWS, ago, contents, rows
from tests.test_pipeline import PROBABILISTIC, database, newer_input, run

__all__ = ["database"]

EVERYTHING = (
    *RESULT_TABLES,
    "cycles",
    "run_log",
    "cycle_failures",
    "risk_configs",
    "source_accuracy_history",
)


def versions(report: pipeline.StageReport) -> dict[str, dict[tuple[str, str], str]]:
    return {
        stage: {(k.entity_id, k.window): k.data_version for k in keys} for stage, keys in report.keys.items()
    }


def rehearsed(
    database: Database, cycle: cycles.Cycle, stages: tuple[str, ...] = pipeline.STAGES, *, block: int = 2
) -> dict[str, dict[tuple[str, str], str]]:
    keys = [(e, w) for e in pipeline.known_entities(database, cycle) for w in WINDOWS]
    found: dict[str, dict[tuple[str, str], str]] = {stage: {} for stage in stages}
    for each in pipeline.rehearse(database, cycle, keys, stages, block_entities=block):
        for stage, of in versions(each.report).items():
            found[stage] |= of
    return found


@pytest.mark.parametrize("probabilistic", [False, True])
def test_a_recorded_cycle_is_computed_again_bit_for_bit_and_nothing_is_written(
    database: Database, migrated_url: str, probabilistic: bool
) -> None:
    """Whatever arrived since, and whatever was run later."""
    if probabilistic:
        configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database, ago(days=2))
    first = versions(run(database))
    newer_input(migrated_url)
    run(database, AS_OF + timedelta(days=1))
    before = contents(migrated_url, *EVERYTHING)
    version = configuration.active(database).version
    cycle = cycles.read_cycle(database, AS_OF, version)
    assert rehearsed(database, cycle) == first
    for stage in pipeline.STAGES[1:]:
        assert rehearsed(database, cycle, (stage,))[stage] == first[stage], stage
    assert contents(migrated_url, *EVERYTHING) == before


def test_a_configuration_that_is_not_stored_gives_what_it_gives_once_stored(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=2))
    run(database)
    before = contents(migrated_url, *EVERYTHING)
    now = cycles.read_cycle(database, AS_OF, configuration.active(database).version)
    wanted = now.config.with_settings({"scoring.half_life_hours.7d": 30.0, "eligibility.min_confidence": 0.2})
    made_up = dataclasses.replace(now, config=wanted, config_version=2**31 - 1)
    expected = rehearsed(database, made_up)
    assert contents(migrated_url, *EVERYTHING) == before
    configuration.activate(database, wanted, "ada", "try")
    assert versions(run(database, accuracy=False)) == expected


def test_every_frame_is_handed_out_with_what_was_read_and_the_inputs_can_be_changed(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=2))
    run(database)
    cycle = cycles.read_cycle(database, AS_OF, 1)
    keys = [(e, "30d") for e in pipeline.known_entities(database, cycle)]

    def silenced(read: CycleInputs) -> CycleInputs:
        none = np.zeros(0, np.int64)
        return dataclasses.replace(read, documents=read.documents.take(none))

    (whole,) = pipeline.rehearse(database, cycle, keys, pipeline.STAGES)
    (empty,) = pipeline.rehearse(database, cycle, keys, pipeline.STAGES, change=silenced)
    for (part,) in (whole.parts, empty.parts):
        assert part.keys == keys
        assert part.signals is not None
        assert part.trends is not None
        assert part.history is not None
        assert part.projections is not None
        assert part.decided is not None
        assert len(part.made) == len(keys)
        assert len(set(part.history.key.tolist())) == len(keys)
    assert whole.parts[0].trends is not None
    assert empty.parts[0].trends is not None
    assert whole.parts[0].trends.rows.entity_signals.sum() > 0
    assert empty.parts[0].trends.rows.entity_signals.sum() == 0
    stored = rows(
        migrated_url, "SELECT trend_strength FROM trend_windows WHERE \"window\" = '30d' ORDER BY entity_id"
    )
    assert [s for (s,) in stored] == whole.parts[0].trends.rows.strength.tolist()


def test_the_accuracy_a_cycle_would_choose_is_looked_up_without_choosing(
    database: Database, migrated_url: str
) -> None:
    run(database, ago(days=2))
    cycle = pipeline.open_cycle(database, AS_OF)
    peeked = inputs.peek_accuracy(database, cycle)
    assert rows(migrated_url, "SELECT accuracy_config_version FROM cycles WHERE as_of = %s", AS_OF) == [
        (None,)
    ]
    settled = inputs.settle_accuracy(database, cycle)
    assert rows(migrated_url, "SELECT accuracy_config_version FROM cycles WHERE as_of = %s", AS_OF) == [(1,)]
    for one, other in zip(peeked, settled, strict=True):
        assert len(one) > 0
        assert list(one) == list(other)
