"""A cycle in one run and in many: the same tables bit for bit, one chain of seals, sources measured once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from oracle_dagster import pipeline, sensors, shards, tick
from oracle_dagster.assets.source_accuracy import ensure_source_accuracy
from oracle_dagster.home import Home
from oracle_dagster.launch import RunOutcome, orchestrator, run_cycle
from oracle_dagster.partitions import all_keys, choose_keys
from oracle_dagster.pipeline import STAGES
from oracle_dagster.schedules import CADENCES, _requests
from oracle_dagster.shards import Shard, ShardError
from oracle_dagster.storage import seals
from oracle_dagster.storage.database import Database
from tests.chain_runs import database_name, fresh_database, home_on, with_driver
from tests.operation import RESULTS
from tests.storage_rows import AS_OF, ago, contents, insert_world, make_world, rows

WORLD = make_world(7, 60, bars=60)
ENTITIES = sorted(WORLD.entities)
MOMENTS = (ago(hours=12), AS_OF)
TABLES = (*RESULTS, "source_accuracy", "source_accuracy_history")


# ------------------------------------------------------------------------------- how a set is divided


def test_a_set_up_to_the_size_of_a_run_stays_one_run() -> None:
    keys = [(name, window) for name in ENTITIES for window in ("1d", "7d")]
    assert shards.split_keys(keys, len(ENTITIES)) == [keys]
    assert shards.split_keys([], 3) == [[]]
    assert shards.shards_of(shards.DEFAULT_SHARD_ENTITIES) == [shards.WHOLE]


@pytest.mark.parametrize("size", range(1, 9))
def test_parts_are_even_contiguous_and_make_up_the_whole(size: int) -> None:
    keys = [(name, window) for name in ENTITIES for window in ("1d", "7d")]
    split = shards.split_keys(keys, size)
    assert [key for part in split for key in part] == keys
    sizes = [len({entity for entity, _ in part}) for part in split]
    assert len(split) == -(-len(ENTITIES) // size)
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    for shard, part in zip(shards.shards_of(len(ENTITIES), size), split, strict=True):
        assert shards.keys_of(keys, shard) == part


def test_the_batch_of_a_part_is_the_same_whenever_the_set_is_divided_again() -> None:
    first = uuid4()
    assert shards.batch_id(first, 0) == first
    assert shards.batch_id(first, 2) == shards.batch_id(first, 2) != shards.batch_id(first, 1)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "¹"])
def test_a_size_that_cannot_be_used_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(shards.SHARD_VARIABLE, text)
    with pytest.raises(ShardError, match=r"ORACLE_SHARD_ENTITIES is .* whole number of entities from 1"):
        shards.shard_entities()


def test_there_is_no_part_beyond_the_last() -> None:
    with pytest.raises(ShardError, match="no part 3 of 3"):
        Shard(3, 3)


def test_a_run_that_names_no_key_takes_its_part_of_what_the_cycle_knows() -> None:
    found = [
        choose_keys(batch=None, inline=[], partitions=None, known=ENTITIES[::-1], shard=Shard(n, 3)).keys
        for n in range(3)
    ]
    assert [key for part in found for key in part] == choose_keys(
        batch=None, inline=[], partitions=None, known=ENTITIES
    ).keys
    assert all(found)


# -------------------------------------------------------------------------- who launches runs, launches parts


def test_a_schedule_launches_one_run_or_one_per_part(monkeypatch: pytest.MonkeyPatch) -> None:
    hourly, daily = CADENCES[1], CADENCES[3]
    (whole,) = _requests(hourly, "2026-03-10T12:00:00Z", ENTITIES)
    assert "shard" not in whole.run_config["ops"]["decision_chain"]["config"]
    assert whole.run_key == "2026-03-10T12:00:00Z"
    assert shards.SHARD_TAG not in whole.tags
    monkeypatch.setenv(shards.SHARD_VARIABLE, "3")
    parts = _requests(hourly, "2026-03-10T12:00:00Z", ENTITIES[::-1])
    configs = [request.run_config["ops"]["decision_chain"]["config"] for request in parts]
    assert [(config["shard"], config["shards"]) for config in configs] == [(0, 3), (1, 3), (2, 3)]
    assert len({request.run_key for request in parts}) == 3
    assert {request.tags["oracle/as_of"] for request in parts} == {"2026-03-10T12:00:00Z"}
    assert len({request.tags[shards.CYCLE_TAG] for request in parts}) == 1
    assert len(_requests(daily, "2026-03-10T23:50:00Z", ENTITIES)) == 1, "the sources are measured once"


def test_a_tick_divides_what_it_found_and_measures_the_sources_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, whole = str(uuid4()), (tick.SOURCE_ACCURACY, *STAGES)
    (one,) = tick._divided("key", batch, ENTITIES, whole)
    assert (one.run_key, one.batch_id, one.assets, one.accuracy_first) == ("key", batch, whole, False)
    monkeypatch.setenv(shards.SHARD_VARIABLE, "3")
    first, *parts = tick._divided("key", batch, ENTITIES, whole)
    assert (first.batch_id, first.entities, first.assets) == (None, (), (tick.SOURCE_ACCURACY,))
    assert [name for part in parts for name in part.entities] == ENTITIES
    assert {part.assets for part in parts} == {STAGES}
    assert len({part.batch_id for part in parts}) == len({part.run_key for part in parts}) == 3
    requests = [sensors.run_request(part, "2026-03-10T12:00:00Z") for part in parts]
    assert [request.tags[shards.SHARD_TAG] for request in requests] == ["1/3", "2/3", "3/3"]
    assert all(r.run_config["ops"]["decision_chain"]["config"]["accuracy_first"] for r in requests)
    assert "ops" not in sensors.run_request(first, "2026-03-10T12:00:00Z").run_config
    assert len(tick._divided("key", batch, ENTITIES, STAGES)) == 3, "nothing to measure"


# -------------------------------------------------------------------------------------- the same results


@pytest.fixture(scope="module")
def world(embedded_home: Path, migrated_template: str) -> Iterator[str]:
    """The name of a database that holds the world, to be copied."""
    for url in fresh_database(embedded_home, "shards", migrated_template):
        with psycopg.connect(url) as connection:
            insert_world(connection, WORLD)
        yield database_name(url)


@contextmanager
def home_with(
    folder: Path, embedded_home: Path, world: str, dagster_template: str, patch: pytest.MonkeyPatch
) -> Iterator[tuple[Home, str]]:
    """A home whose database holds the world, with the database's URL."""
    fresh = contextmanager(fresh_database)
    with (
        fresh(embedded_home, "shards_domain", world) as domain,
        fresh(embedded_home, "shards_dagster", dagster_template) as events,
    ):
        yield home_on(folder / "home", domain, with_driver(events), patch), domain


def cycles_in_parts(home: Home, size: int, patch: pytest.MonkeyPatch) -> list[RunOutcome]:
    """Cycle after cycle, each in runs of so many entities."""
    patch.setenv(shards.SHARD_VARIABLE, str(size))
    outcomes = [run_cycle(home, as_of=moment) for moment in MOMENTS]
    assert [outcome.status for outcome in outcomes] == ["success"] * len(MOMENTS), outcomes
    return outcomes


@pytest.fixture(scope="module")
def in_one_run(
    tmp_path_factory: pytest.TempPathFactory, embedded_home: Path, world: str, dagster_template: str
) -> dict[str, list[str]]:
    """The tables after the cycles, each in one run."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("one")
        with home_with(folder, embedded_home, world, dagster_template, patch) as (home, url):
            outcomes = cycles_in_parts(home, len(ENTITIES), patch)
            assert not any(outcome.runs for outcome in outcomes), "one run each"
            found = contents(url, *TABLES)
            assert rows(url, "SELECT FROM trend_projections WHERE momentum <> 0"), "none looks back"
            spread = "SELECT FROM weighted_signals WHERE signal_id LIKE 'competitor:%'"
            assert rows(url, spread), "nothing spreads from one entity to another"
            fewer = "SELECT count(*) FROM recommendations HAVING count(*) < %s"
            assert rows(url, fewer, len(MOMENTS) * 5 * len(ENTITIES)), "no decision stands for the next"
    assert all(found.values()), "an empty comparison proves nothing"
    return found


def assert_sealed(url: str) -> None:
    """The chain of seals covers every row, and every row is as it was sealed."""
    database = Database(url)
    report = seals.check(database)
    database.close()
    assert report.sound, report.faults
    assert report.complete, (report.unsealed, report.unsealed_inputs)
    assert report.open_runs == 0


def compare_in_parts(parts: int, home: Home, url: str, wanted: dict[str, list[str]], patch: Any) -> None:  # noqa: ANN401
    """Compute the cycles in so many parts and compare everything."""
    outcomes = cycles_in_parts(home, -(-len(ENTITIES) // parts), patch)
    found = contents(url, *TABLES)
    for name in TABLES:
        assert found[name] == wanted[name], f"{name} differs"
    assert_sealed(url)
    for outcome in outcomes:
        assert outcome.keys == 5 * len(ENTITIES)
        assert outcome.computed == dict.fromkeys(STAGES, 5 * len(ENTITIES))
        assert len(outcome.runs) == parts + 1
    log = "SELECT as_of, stage, count(*) FROM run_log GROUP BY as_of, stage"
    counted = {(as_of, stage): count for as_of, stage, count in rows(url, log)}
    assert counted == {
        (moment, stage): 1 if stage == "source_accuracy" else parts
        for moment in MOMENTS
        for stage in ("source_accuracy", *STAGES, "report")
    }
    with home.connect() as connections, orchestrator(home, connections) as instance:
        runs = [instance.get_run_by_id(run_id) for run_id in outcomes[-1].runs]
        assert all(run is not None and run.is_success for run in runs)
        tags = [run.tags for run in runs if run is not None]
        assert len({tag[shards.CYCLE_TAG] for tag in tags}) == 1
        assert [tag.get(shards.SHARD_TAG) for tag in tags] == [
            None,
            *(f"{n + 1}/{parts}" for n in range(parts)),
        ]


@pytest.fixture
def parts_home(
    tmp_path: Path, embedded_home: Path, world: str, dagster_template: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Home, str]]:
    """A home of its own that holds the world."""
    with home_with(tmp_path, embedded_home, world, dagster_template, monkeypatch) as found:
        yield found


def test_three_parts_leave_what_one_run_leaves(
    parts_home: tuple[Home, str], in_one_run: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_in_parts(3, *parts_home, in_one_run, monkeypatch)


@pytest.mark.acceptance
def test_seven_parts_leave_what_one_run_leaves(
    parts_home: tuple[Home, str], in_one_run: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_in_parts(7, *parts_home, in_one_run, monkeypatch)
    print(f"7 parts, {len(MOMENTS)} cycles of {len(ENTITIES)} entities: the same tables as in one run")


def test_seven_parts_in_any_order_write_what_one_run_writes(
    embedded_home: Path, world: str, in_one_run: dict[str, list[str]]
) -> None:
    """Below the orchestrator, the last part first."""
    for url in fresh_database(embedded_home, "shards_seven", world):
        database = Database(url)
        for moment in MOMENTS:
            cycle = pipeline.open_cycle(database, moment)
            for shard in reversed(shards.shards_of(len(ENTITIES), 1)):
                known = pipeline.known_entities(database, cycle)
                keys = all_keys(shard.part(sorted(known)))
                measured = ensure_source_accuracy(database, cycle, run_id=shard.text)
                assert measured == (shard.number == 6), "the first that comes measures, the others use it"
                pipeline.run_stages(database, cycle, keys, STAGES, run_id=shard.text)
        database.close()
        found = contents(url, *TABLES)
        assert_sealed(url)
        for name in TABLES:
            assert found[name] == in_one_run[name], f"{name} differs"
