"""The sensor on a real database: exactly what new inputs touch is computed again, in one run."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from oracle_core.config import OracleConfig
from oracle_dagster import news, tick
from oracle_dagster.as_of import AS_OF_TAG, parse_as_of
from oracle_dagster.definitions import build_defs, defs
from oracle_dagster.jobs import CYCLE_JOB
from oracle_dagster.news import Cursor, Debounce
from oracle_dagster.partitions import BATCH_TAG, RANGE_END_TAG, RANGE_START_TAG
from oracle_dagster.pipeline import STAGES
from oracle_dagster.sensors import SENSOR, AutomationError, build_sensor
from oracle_dagster.storage import arrivals, configuration, cycles, migrate
from oracle_dagster.storage.database import Database
from tests.chain_runs import Chain, FixedDatabase, database_name, fresh_database, keys_of
from tests.services import settle, wait_for
from tests.storage_rows import (
    Document,
    Impact,
    document_id,
    insert_bars,
    insert_documents,
    insert_edge,
    insert_event,
    insert_exposure,
    retract_document,
    revised,
)

LONG_AGO = datetime(2020, 1, 2, tzinfo=UTC)
PATH = ("A", "B", "C", "D", "E")
PROBABILISTIC = {"flags": {"probabilistic_scoring_enabled": True}}


@pytest.fixture(scope="module")
def template_url(embedded_home: Path) -> Iterator[str]:
    """A migrated database with a path of five linked entities, copied for every test."""
    for url in fresh_database(embedded_home, "sensor"):
        database = Database(url)
        migrate.upgrade(database)
        with psycopg.connect(url) as connection:
            insert_documents(connection, [document(f"first-{name}", name) for name in PATH])
            for a, b in itertools.pairwise(PATH):
                insert_edge(connection, a, b)
        database.close()
        yield url


class World:
    """A database and where the sensor is in it."""

    def __init__(self, url: str) -> None:
        """Begin where everything that the database holds was handled."""
        self.url = url
        self.database = Database(url)
        settle(self.url)
        self.cursor: str | None = tick.start(self.database)

    def write(self) -> psycopg.Connection[Any]:
        """One transaction: ``with world.write() as connection``."""
        return psycopg.connect(self.url)

    def look(self, *, settled: bool = True) -> tick.Tick:
        """The next tick."""
        if settled:
            settle(self.url)
        found = tick.look(self.database, self.cursor, Debounce())
        self.cursor = found.cursor
        return found

    def refreshed(self, *, settled: bool = True) -> set[str]:
        """The entities of the run of the next tick."""
        requests = self.look(settled=settled).requests
        assert len(requests) <= 1
        return set(requests[0].entities) if requests else set()

    def configure(self, **changes: Any) -> int:  # noqa: ANN401 - settings by section
        """Activate a changed configuration, without a look."""
        config = configuration.active(self.database).config
        sections = {name: getattr(config, name).model_copy(update=values) for name, values in changes.items()}
        return configuration.activate(
            self.database, config.model_copy(update=sections), "test", "test"
        ).version


@pytest.fixture
def world(template_url: str, embedded_home: Path) -> Iterator[World]:
    for url in fresh_database(embedded_home, "sensor", database_name(template_url)):
        world = World(url)
        yield world
        world.database.close()


def document(name: str, *entities: str, **values: Any) -> Document:  # noqa: ANN401 - fields of a document
    """A document of long ago that names entities."""
    return Document(name, **{"impacts": tuple(map(Impact, entities)), "published": LONG_AGO, **values})


# ---------------------------------------------------------------------------------------- what is noticed


def test_nothing_new_asks_for_nothing_however_often(world: World) -> None:
    assert [world.look().requests for _ in range(3)] == [(), (), ()]


def test_the_first_tick_of_all_takes_everything_stored_once(world: World) -> None:
    world.cursor = None
    assert world.refreshed() == set(PATH)
    assert world.refreshed() == set()


def test_a_plain_insert_refreshes_what_it_names_and_its_neighbours(world: World) -> None:
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    assert world.refreshed() == {"A", "B"}
    assert world.refreshed() == set(), "the same input is not computed twice"


def test_a_document_written_in_three_transactions_is_not_missed(world: World) -> None:
    """A writer without a transaction of its own may be overtaken by a tick between its statements."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        identity = document_id("piecemeal")
        for statement in (
            "INSERT INTO documents (id, source_id, published_at) VALUES (%(id)s, 's', %(at)s)",
            """INSERT INTO document_intelligence (document_id, known_at, source_id, published_at)
               VALUES (%(id)s, %(at)s, 's', %(at)s)""",
        ):
            connection.execute(statement, {"id": identity, "at": LONG_AGO})
            assert world.refreshed() == set()
        connection.execute(
            """INSERT INTO document_impact_records
                   (document_id, entity_id, published_at, sentiment, impact_score)
               VALUES (%s, 'E', %s, 1, 0.5)""",
            (identity, LONG_AGO),
        )
    assert world.refreshed() == {"D", "E"}


def test_a_revision_refreshes_what_either_version_names(world: World) -> None:
    first = document("first-A", "A")
    with world.write() as connection:
        insert_documents(connection, [revised(first, LONG_AGO, impacts=(Impact("E"),))])
        insert_bars(connection, "A", [1.0], last=LONG_AGO.date())
    assert world.refreshed() == {"A", "B", "D", "E"}


def test_a_retraction_refreshes_what_the_document_named(world: World) -> None:
    with world.write() as connection:
        insert_documents(connection, [document("wrong", "C")])
    assert world.refreshed() == {"B", "C", "D"}
    with world.write() as connection:
        retract_document(connection, document("wrong", "C"), LONG_AGO)
    assert world.refreshed() == {"B", "C", "D"}


def test_a_failed_document_refreshes_what_it_names(world: World) -> None:
    with world.write() as connection:
        insert_documents(connection, [document("failed", failed=True, names=("E",))])
    assert "E" in world.refreshed()


def test_bars_exposures_and_edges_are_news_too(world: World) -> None:
    with world.write() as connection:
        insert_bars(connection, "E", [1.0, 2.0], last=LONG_AGO.date())
    assert world.refreshed() == {"D", "E"}
    with world.write() as connection:
        insert_exposure(connection, "C", {"geo": {"us": 0.5}})
    assert world.refreshed() == {"C"}, "an exposure is not passed on to neighbours"
    with world.write() as connection:
        insert_edge(connection, "A", "E")
    assert world.refreshed() == {"A", "E"}
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    assert world.refreshed() == {"A", "B", "E"}


def test_a_withdrawn_edge_refreshes_what_it_reached(world: World) -> None:
    world.configure(**PROBABILISTIC)
    world.look()
    with world.write() as connection:
        connection.execute(
            """UPDATE competitive_edges SET superseded_known_at = %s, superseded_xid = pg_current_xact_id()
               WHERE source_entity = 'B'""",
            (LONG_AGO,),
        )
    assert world.refreshed() == {"A", "B", "C", "D", "E"}, "A to C, D went over B-C, and so did E to B"
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    assert world.refreshed() == {"A", "B"}, "what was withdrawn carries nothing any more"


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        ({}, {"A", "B"}),
        (PROBABILISTIC, {"A", "B", "C", "D"}),
        ({"flags": {"competitive_enabled": False}}, {"A"}),
    ],
)
def test_how_far_news_goes_is_the_active_modes_propagation_r189(
    world: World, changes: dict[str, Any], reached: set[str]
) -> None:
    if changes:
        world.configure(**changes)
        world.look()
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    assert world.refreshed() == reached


def test_an_event_refreshes_whoever_is_exposed_to_it(world: World) -> None:
    with world.write() as connection:
        insert_exposure(connection, "A", {"geo": {"us": 0.5, "eu": 0.1}})
        insert_exposure(connection, "C", {"geo": {"asia": 0.5}, "sector": {"us": 0.9}})
        insert_exposure(connection, "E", {"geo": {"us": 0.0}, "commodity": {"oil": 0.2}})
    world.look()
    with world.write() as connection:
        insert_event(connection, "storm", occurred=LONG_AGO, items={"geo": ["us", "us"]})
    assert world.refreshed() == {"A"}, "the item must be of the same dimension, the share above 0"
    with world.write() as connection:
        insert_event(connection, "strike", occurred=LONG_AGO, items={"geo": ["mars"], "commodity": ["oil"]})
    assert world.refreshed() == {"E"}
    with world.write() as connection:  # a revision that concerns others refreshes those of both versions
        connection.execute(
            """UPDATE macro_events SET superseded_known_at = %s, superseded_xid = pg_current_xact_id()
               WHERE id = %s""",
            (LONG_AGO, document_id("strike")),
        )
        connection.execute(
            """INSERT INTO macro_events (id, version, known_at, direction, severity, estimated_duration, geo,
                   occurred_at) VALUES (%s, 2, %s, 'negative', 'high', 'long_term', '["asia"]', %s)""",
            (document_id("strike"), LONG_AGO, LONG_AGO),
        )
    assert world.refreshed() == {"C", "E"}
    world.configure(flags={"macro_enabled": False})
    world.look()
    with world.write() as connection:
        insert_event(connection, "flood", occurred=LONG_AGO)
    assert world.refreshed() == set(), "without the macro layer an event changes nothing"


def test_a_row_of_the_future_is_refreshed_when_it_becomes_known(world: World) -> None:
    """Nobody writes it again then; until then it changes nothing."""
    with world.write() as connection:
        (now,) = connection.execute("SELECT now()").fetchone() or ()
        soon = now + timedelta(seconds=2)
        insert_documents(connection, [document("embargoed", "A", known=soon)])
    assert world.refreshed() == set()

    def due() -> tick.Tick | None:
        found = world.look()
        return found if found.requests else None

    found = wait_for("the document becomes known", due, 60.0)
    assert isinstance(found, tick.Tick)
    assert found.moment >= soon
    assert found.requests[0].entities == ("A", "B")
    assert world.refreshed() == set()


def test_an_open_transaction_elsewhere_delays_but_loses_nothing(world: World) -> None:
    """The horizon is that of the whole server, and also of rows that have nothing to do with it."""
    with psycopg.connect(world.url) as other:
        other.execute("SELECT pg_current_xact_id()")
        with world.write() as connection:
            insert_documents(connection, [document("committed", "A")])
        assert world.refreshed(settled=False) == set(), "not before everything older has ended"
        assert world.refreshed(settled=False) == set()
        other.rollback()
    assert world.refreshed() == {"A", "B"}


def test_a_late_commit_is_found_by_the_tick_after(world: World) -> None:
    with psycopg.connect(world.url) as slow:
        insert_documents(slow, [document("slow", "A")])
        with world.write() as connection:
            insert_documents(connection, [document("quick", "E")])
        world.look(settled=False)
        slow.commit()
    assert world.refreshed() == {"A", "B", "D", "E"}


def test_a_tick_repeated_from_the_same_cursor_finds_the_same(world: World) -> None:
    """A daemon that dies before it stored the tick's result begins again from the cursor before."""
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    before = world.cursor
    first = world.look()
    world.cursor = before
    assert [r.entities for r in world.look().requests] == [r.entities for r in first.requests]


def test_what_a_cycle_has_computed_already_is_left_out(world: World) -> None:
    """Who loads documents and runs a cycle at once need not have it computed again."""
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    with dg.DagsterInstance.ephemeral() as instance:
        before = world.cursor
        assert Chain(world.url, instance).run(as_of=world.look().moment.isoformat()).success
    world.cursor = before
    assert world.refreshed() == set()
    world.cursor = None
    assert world.refreshed() == set()
    with world.write() as connection:
        insert_documents(connection, [document("more", "E")])
    world.cursor = None
    assert world.refreshed() == {"A", "B", "C", "D", "E"}, (
        "from the beginning, all of it is one piece of news"
    )


def test_what_was_computed_under_another_configuration_is_not_left_out(world: World) -> None:
    """Somebody who tries settings has not computed what the active ones make of the news."""
    other = OracleConfig.model_validate({"trend": {"max_risks": 4}})
    tried = configuration.candidate(world.database, other, "test", "trial")
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    before = world.cursor
    with dg.DagsterInstance.ephemeral() as instance:
        as_of = world.look().moment.isoformat()
        assert Chain(world.url, instance).run(as_of=as_of, config_version=tried.version).success
    world.cursor = before
    assert world.refreshed() == {"A", "B"}


def test_a_database_restored_from_a_copy_is_noticed(world: World) -> None:
    """Its transactions are numbered anew, so the old place means nothing."""
    world.cursor = Cursor(2**40, 2**40, None, None, 1, "").text()
    assert world.refreshed() == set(PATH)
    assert Cursor.parse(world.cursor).xid < 2**40


# ------------------------------------------------------------------------------ configuration and accuracy


def test_a_changed_gate_refreshes_the_recommendations_of_everybody_and_nothing_above(world: World) -> None:
    world.configure(eligibility={"min_confidence": 0.31})
    (request,) = world.look().requests
    assert request.entities == PATH
    assert request.assets == ("recommendations",)
    assert world.refreshed() == set()


def test_a_changed_half_life_refreshes_the_whole_chain_of_everybody_with_the_news_in_one_run(
    world: World,
) -> None:
    world.configure(scoring={"novelty_weight": 0.11})
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    (request,) = world.look().requests
    assert (request.entities, request.assets) == (PATH, STAGES)


def test_news_and_a_changed_gate_are_one_run_each_and_no_entity_is_in_both(world: World) -> None:
    world.configure(eligibility={"min_confidence": 0.31})
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    chain, gate = world.look().requests
    assert (chain.entities, chain.assets) == (("A", "B"), STAGES)
    assert (gate.entities, gate.assets) == (("C", "D", "E"), ("recommendations",))
    assert chain.run_key != gate.run_key


def test_a_changed_accuracy_setting_measures_the_sources_too(world: World) -> None:
    world.configure(accuracy={"min_samples": 3})
    (request,) = world.look().requests
    assert request.assets == ("source_accuracy", *STAGES)


def test_a_configuration_that_is_being_applied_is_left_to_whoever_applies_it(world: World) -> None:
    candidate = OracleConfig().model_copy(
        update={"eligibility": OracleConfig().eligibility.model_copy(update={"min_confidence": 0.31})}
    )
    arrivals.write_batch(world.database, news.application_batch(2), ["A"])
    assert configuration.activate(world.database, candidate, "test", "apply").version == 2
    assert world.refreshed() == set()


def measure(connection: psycopg.Connection[Any], as_of: datetime, ratio: float) -> None:
    """A measurement in which one of two sources has moved."""
    for source, value in (("moves", ratio), ("stays", 0.5)):
        connection.execute(
            "INSERT INTO source_accuracy_history VALUES (%s, 1, %s, %s, 20)", (as_of, source, value)
        )


@pytest.mark.parametrize(("changes", "reached"), [(PROBABILISTIC, {"A", "B", "C", "D"}), ({}, set())])
def test_a_source_whose_accuracy_moved_refreshes_whom_it_writes_about_r168(
    world: World, changes: dict[str, Any], reached: set[str]
) -> None:
    """In the heuristic mode accuracy is no factor, so nothing changes there."""
    if changes:
        world.configure(**changes)
    with world.write() as connection:
        (now,) = connection.execute("SELECT now()").fetchone() or ()
        recent = now - timedelta(days=30)
        insert_documents(
            connection,
            [
                document("m", "A", published=recent, source="moves"),
                document("s", "E", published=recent, source="stays"),
                document("old", "E", published=now - timedelta(days=91), source="moves"),
            ],
        )
        measure(connection, now - timedelta(days=2), 0.5)
    world.look()
    with world.write() as connection:
        measure(connection, now - timedelta(days=1), 0.9)
    assert world.refreshed() == reached
    assert world.refreshed() == set()
    with world.write() as connection:
        measure(connection, now - timedelta(hours=1), 0.9)
    assert world.refreshed() == set(), "measured again, unchanged"


# ------------------------------------------------------------------------------------ under the orchestrator


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def evaluate(world: World, instance: dg.DagsterInstance) -> dg.SensorResult:
    """One evaluation of the product's sensor, whose cursor is stored as the daemon does."""
    settle(world.url)
    context = dg.build_sensor_context(
        instance=instance, cursor=world.cursor, resources={"database": FixedDatabase(url=world.url)}
    )
    result = build_sensor(Debounce())(context)
    assert isinstance(result, dg.SensorResult)
    world.cursor = result.cursor
    return result


def test_thirty_seven_scattered_of_five_hundred_are_one_run_over_exactly_them(
    world: World, instance: dg.DagsterInstance
) -> None:
    names = [f"N{n:03d}" for n in range(500)]
    with world.write() as connection:
        insert_documents(connection, [document(f"base-{name}", name) for name in names])
    evaluate(world, instance)
    assert set(names) <= set(instance.get_dynamic_partitions("entity"))
    scattered = names[3::13][:37]
    with world.write() as connection:
        insert_documents(connection, [document(f"news-{name}", name) for name in scattered])
    (request,) = evaluate(world, instance).run_requests or ()
    keys = cycles.batch_keys(world.database, uuid.UUID(request.tags[BATCH_TAG]))
    assert [f"{e}|{w}" for e, w in keys] == sorted(keys_of(*scattered))
    assert request.job_name == CYCLE_JOB
    assert request.tags[RANGE_START_TAG] == request.tags[RANGE_END_TAG] == f"{scattered[0]}|intraday"
    as_of = parse_as_of(request.tags[AS_OF_TAG], "the tag")
    assert request.run_config["resources"]["cycle"]["config"] == {"as_of": request.tags[AS_OF_TAG]}
    chain = Chain(world.url, instance)
    result = chain.job.execute_in_process(
        run_config=dict(request.run_config),
        instance=instance,
        tags=dict(request.tags),
        asset_selection=list(request.asset_selection or ()),
    )
    run = chain.seen(result.run_id)
    assert run.counts() == dict.fromkeys(STAGES, 185)
    assert set(map(str, run.materialised["recommendations"])) == set(keys_of(*scattered))
    assert {asset for asset, _ in run.checks} == set(STAGES), "the checks of the chain run with it"
    with world.write() as connection:
        moments = connection.execute("SELECT DISTINCT generated_at FROM trend_windows").fetchall()
    assert moments == [(as_of,)], "everything looks from the moment of the tick"
    assert not evaluate(world, instance).run_requests


def test_a_new_entity_has_its_partition_in_the_same_tick(world: World, instance: dg.DagsterInstance) -> None:
    with world.write() as connection:
        insert_documents(connection, [document("news", "Neuling")])
    (request,) = evaluate(world, instance).run_requests or ()
    assert instance.get_dynamic_partitions("entity") == ["Neuling"]
    assert request.tags[RANGE_START_TAG] == "Neuling|intraday"


def test_the_run_reports_the_inputs_it_computes_with_so_that_nothing_of_it_is_stale(
    world: World, instance: dg.DagsterInstance
) -> None:
    chain = Chain(world.url, instance)
    assert chain.run(as_of=None).success
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    (request,) = evaluate(world, instance).run_requests or ()
    chain.job.execute_in_process(
        run_config=dict(request.run_config),
        instance=instance,
        tags=dict(request.tags),
        asset_selection=list(request.asset_selection or ()),
    )
    observed = instance.fetch_observations(dg.AssetKey("documents"), limit=10).records
    assert sorted(str(record.partition_key) for record in observed) == ["A", "B"]
    assert chain.stale("weighted_signals", keys_of("A", "B")) == []


def test_a_quiet_tick_says_why_it_launches_nothing_and_keeps_its_cursor(
    world: World, instance: dg.DagsterInstance
) -> None:
    before = world.cursor
    result = evaluate(world, instance)
    assert result.skip_reason is not None
    assert result.skip_reason.skip_message == "nothing new"
    assert result.cursor is not None
    assert Cursor.parse(result.cursor).xid >= Cursor.parse(before).xid


def test_the_orchestrator_accepts_the_tick_and_resolves_its_runs(world: World, tmp_path: Path) -> None:
    """Through the same door as the daemon: definitions, partitions and the job's configuration fit."""
    from dagster._core.definitions.sensor_definition import SensorEvaluationContext

    with world.write() as connection:
        insert_documents(connection, [document("news", "A", "Neuling")])
    made = build_defs(
        sensors=[build_sensor(Debounce())], resources={"database": FixedDatabase(url=world.url)}
    )
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        settle(world.url)
        repository = made.get_repository_def()
        context = SensorEvaluationContext(
            instance_ref=instance.get_ref(),
            last_tick_completion_time=None,
            last_run_key=None,
            cursor=world.cursor,
            repository_name=None,
            repository_def=repository,
            resources=made.resources,
        )
        data = repository.get_sensor_def(SENSOR).evaluate_tick(context)
        (request,) = data.run_requests or ()
        assert {key.to_user_string() for key in request.asset_selection or ()} == set(STAGES)
        assert data.cursor is not None
        assert data.cursor != world.cursor


def test_automation_is_on_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = defs.resolve_sensor_def(SENSOR)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    monkeypatch.setenv("ORACLE_AUTOMATION", "off")
    assert build_sensor().default_status is dg.DefaultSensorStatus.STOPPED
    monkeypatch.setenv("ORACLE_AUTOMATION", "maybe")
    with pytest.raises(AutomationError, match="set it to on or off"):
        build_sensor()


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_wrong_waiting_time_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ORACLE_SENSOR_QUIET_SECONDS", text)
    with pytest.raises(AutomationError, match=r"ORACLE_SENSOR_QUIET_SECONDS is .* number of seconds"):
        build_sensor()


def test_the_waiting_times_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, world: World, instance: dg.DagsterInstance
) -> None:
    monkeypatch.setenv("ORACLE_SENSOR_QUIET_SECONDS", "3600")
    monkeypatch.setenv("ORACLE_SENSOR_MAX_WAIT_SECONDS", "7200")
    with world.write() as connection:
        insert_documents(connection, [document("news", "A")])
    settle(world.url)
    context = dg.build_sensor_context(
        instance=instance, cursor=world.cursor, resources={"database": FixedDatabase(url=world.url)}
    )
    waiting = build_sensor()(context)
    assert isinstance(waiting, dg.SensorResult)
    assert waiting.skip_reason is not None
    assert "waiting for more" in str(waiting.skip_reason.skip_message)
    monkeypatch.setenv("ORACLE_SENSOR_QUIET_SECONDS", "0")
    world.cursor = waiting.cursor
    context = dg.build_sensor_context(
        instance=instance, cursor=world.cursor, resources={"database": FixedDatabase(url=world.url)}
    )
    acted = build_sensor()(context)
    assert isinstance(acted, dg.SensorResult)
    assert len(acted.run_requests or ()) == 1
