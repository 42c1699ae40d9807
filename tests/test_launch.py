"""`oracle run` below the command line: the same job on the same storage, visible and repeatable in the UI."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_graphql.schema import create_schema

from oracle_core.cycle import project_trends
from oracle_core.frames import ProjectionFrame, TrendFrame
from oracle_core.inputs import CycleInputs
from oracle_dagster.home import Home
from oracle_dagster.launch import LaunchError, orchestrator, run_cycle
from oracle_dagster.pipeline import STAGES
from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database
from tests.chain_runs import home_on
from tests.storage_rows import AS_OF, make_world

REPOSITORY = Path(__file__).parents[1]
ENTITIES = sorted(make_world(2, 0).entities)
FIRST, SECOND = ENTITIES


@pytest.fixture
def home(
    tmp_path: Path, migrated_url: str, dagster_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Home:
    """A home on databases of its own of the shared server, with a small world in it."""
    world = make_world(2, 40, bars=60)
    return home_on(tmp_path / "home", migrated_url, dagster_database_url, monkeypatch, world)


@contextmanager
def opened(home: Home) -> Iterator[dg.DagsterInstance]:
    """The orchestrator's storage of a home."""
    with home.connect() as connections, orchestrator(home, connections) as instance:
        yield instance


def rows(home: Home, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query on the domain database."""
    with home.connect() as connections, psycopg.connect(connections.domain_url) as connection:
        return connection.execute(query).fetchall()


def test_a_run_computes_every_key_and_tells_what_it_did(home: Home) -> None:
    told: list[tuple[int, int]] = []
    before = dict(os.environ)
    outcome = run_cycle(home, as_of=AS_OF, progress=lambda _, done, total: told.append((done, total)))
    assert dict(os.environ) == before, "the environment of the process is as it was"
    assert (outcome.status, outcome.keys, outcome.message) == ("success", 10, "")
    assert outcome.computed == dict.fromkeys(STAGES, 10)
    assert (outcome.as_of, outcome.config_version) == (AS_OF, 1)
    assert set(outcome.seconds) >= {"read", "write"}
    assert (told[0], told[-1]) == ((0, 10), (10, 10))
    assert rows(home, "SELECT count(*) FROM trend_windows") == [(10,)]
    assert rows(home, "SELECT count(*) FROM run_batches") == [(10,)]
    with opened(home) as instance:
        assert set(instance.get_dynamic_partitions("entity")) == set(ENTITIES)
        run = instance.get_run_by_id(outcome.run_id)
        assert run is not None
        assert run.is_success
        assert run.tags["oracle/as_of"] == "2026-03-10T12:00:00Z"
        assert run.tags["dagster/asset_partition_range_start"] == f"{FIRST}|intraday"
        assert run.tags["oracle/host"] != ""


def test_entities_windows_stages_and_configuration_can_be_chosen(home: Home) -> None:
    with home.connect() as connections:
        database = Database(connections.domain_url)
        config = configuration.active(database).config.with_settings({"eligibility.min_confidence": 0.36})
        configuration.activate(database, config, "test", "another one")
        database.close()
    outcome = run_cycle(home, as_of=AS_OF, entities=[SECOND], windows=["7d", "1d"], config_version=1)
    assert (outcome.keys, outcome.config_version) == (2, 1)
    again = run_cycle(home, as_of=AS_OF, entities=[SECOND], windows=["7d"], stages=["recommendations"])
    assert again.status == "success", again.message
    assert (again.computed, again.config_version) == ({"recommendations": 1}, 2)
    ranges = [f"{FIRST}...{SECOND}", FIRST]
    both = run_cycle(home, as_of=AS_OF, entities=ranges, windows=["7d"])
    assert (both.status, both.keys) == ("success", 2)
    with opened(home) as instance:
        run = instance.get_run_by_id(again.run_id)
        assert run is not None
        assert run.asset_selection == {dg.AssetKey("recommendations")}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            {"entities": ["nobody"]},
            r"Not known as of 2026-03-10T12:00:00Z: nobody\. Names are case-sensitive",
        ),
        ({"entities": [f"{SECOND}...{FIRST}"]}, r"is no range of known entities: both ends must be known"),
        ({"entities": [f"{FIRST}...nobody"]}, r"nobody' is no range of known entities"),
        ({"windows": ["2d"]}, r"no window '2d'; choose from intraday, 1d, 7d, 30d, 90d"),
        ({"stages": ["thesis"]}, r"no stage 'thesis'; choose from weighted_signals, trend_windows"),
        (
            {"as_of": datetime(1999, 1, 1, tzinfo=UTC)},
            r"No entity is known as of .* Load documents with `oracle ingest PATH`",
        ),
        ({"from_failed_run": "x", "as_of": None}, r"There is no run x in this home"),
        ({"from_failed_run": "x"}, r"A repeat takes its moment, keys, configuration and stages from"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_can(
    home: Home, choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        run_cycle(home, **{"as_of": AS_OF, **choice})


def test_a_repeat_takes_exactly_what_failed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--failed RUN`: the failed keys, from the first failed stage on, as of the same moment."""
    broken = True

    def project(trends: TrendFrame, inputs: CycleInputs, *rest: Any) -> ProjectionFrame:  # noqa: ANN401
        if broken and SECOND in inputs.entities[trends.keys.entity]:
            raise ZeroDivisionError("no number")
        return project_trends(trends, inputs, *rest)

    monkeypatch.setattr("oracle_dagster.pipeline.project_trends", project)
    failed = run_cycle(home, as_of=AS_OF)
    assert failed.status == "partial"
    assert failed.computed == {
        "weighted_signals": 10,
        "trend_windows": 10,
        "trend_projections": 5,
        "recommendations": 5,
    }
    assert {failure.entity_id for failure in failed.failures} == {SECOND}
    assert {failure.stage for failure in failed.failures} == {"trend_projections", "recommendations"}
    broken = False
    repeated = run_cycle(home, from_failed_run=failed.run_id)
    assert repeated.status == "success", repeated.message
    assert repeated.computed == {"trend_projections": 5, "recommendations": 5}
    assert (repeated.as_of, repeated.config_version) == (AS_OF, 1)
    assert rows(home, "SELECT count(*) FROM trend_projections") == [(10,)]
    with opened(home) as instance:
        run = instance.get_run_by_id(repeated.run_id)
        assert run is not None
        assert run.parent_run_id == run.root_run_id == failed.run_id
    with pytest.raises(LaunchError, match="lists no failed key"):
        run_cycle(home, from_failed_run=repeated.run_id)


def test_a_run_that_fails_says_why(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("oracle_dagster.pipeline.run_stages", broken)
    outcome = run_cycle(home, as_of=AS_OF)
    assert outcome.status == "failed"
    assert outcome.message == "RuntimeError: the disk is full"


def test_a_run_is_seen_in_the_user_interface_and_can_be_re_executed_there(home: Home) -> None:
    """Found by the code location of workspace.yaml, with the configuration that repeats it."""
    outcome = run_cycle(home, as_of=AS_OF, entities=[FIRST], windows=["7d"])
    target = WorkspaceFileTarget([str(REPOSITORY / "workspace.yaml")])
    with opened(home) as instance, WorkspaceProcessContext(instance, target) as process:
        context = process.create_request_context()
        schema = create_schema()

        def ask(query: str, **variables: object) -> Any:  # noqa: ANN401 - decoded JSON
            answer = asyncio.run(schema.execute_async(query, context_value=context, variables=variables))
            assert not answer.errors, answer.errors
            return answer.data

        seen = ask(
            "query($job: String!) { pipelineOrError(params: {pipelineName: $job, "
            'repositoryName: "__repository__", repositoryLocationName: "oracle"}) '
            "{ ... on Pipeline { runs { runId } } } }",
            job="aggregation_cycle",
        )
        assert seen["pipelineOrError"]["runs"] == [{"runId": outcome.run_id}]
        again = ask(
            "mutation($p: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $p) { __typename"
            " ... on PythonError { message } ... on LaunchRunSuccess { run { runId parentRunId } } } }",
            p={"parentRunId": outcome.run_id, "strategy": "ALL_STEPS"},
        )["launchRunReexecution"]
        assert again["__typename"] == "LaunchRunSuccess", again
        assert again["run"]["parentRunId"] == outcome.run_id
        queued = instance.get_run_by_id(again["run"]["runId"])
        first = instance.get_run_by_id(outcome.run_id)
        assert queued is not None
        assert first is not None
        assert queued.run_config == first.run_config
        assert queued.tags["oracle/as_of"] == first.tags["oracle/as_of"]


def test_ctrl_c_cancels_the_run_and_leaves_nothing_half_written(home: Home) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from datetime import datetime
        from oracle_dagster import pipeline
        from oracle_dagster.home import Home
        from oracle_dagster.launch import run_cycle

        genuine = pipeline.assemble_trends

        def slow(*given):
            print("working", flush=True)
            time.sleep(600)
            return genuine(*given)

        pipeline.assemble_trends = slow
        outcome = run_cycle(Home.resolve(), as_of=datetime.fromisoformat(sys.argv[1]))
        print(outcome.status, outcome.run_id, flush=True)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, AS_OF.isoformat()],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A background job of a shell ignores SIGINT, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=120)
    status, run_id = printed.split()
    assert (process.returncode, status) == (0, "canceled"), errors
    with opened(home) as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.CANCELED
    assert rows(home, "SELECT count(*) FROM trend_windows") == [(0,)]
    assert run_cycle(home, as_of=AS_OF).status == "success"
