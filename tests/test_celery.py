"""Runs on the workers of a queue: Redis, the orchestrator's launcher, and workers of which one may die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster_celery.launcher import CeleryRunLauncher

from oracle_dagster import shards, workers
from oracle_dagster.celery_app import WORKER_TAG
from oracle_dagster.home import BROKER_VARIABLE, Home
from oracle_dagster.launch import LaunchError, orchestrator, run_cycle
from oracle_dagster.partitions import all_keys
from oracle_dagster.pipeline import STAGES
from tests.chain_runs import home_on
from tests.model_server import free_port
from tests.operation import assert_same_tables, locked, operated, undisturbed, wait_until_blocked
from tests.services import service, wait_for
from tests.storage_rows import AS_OF, make_world, rows

WORLD = make_world(4, 40, bars=60)
REPOSITORY = Path(__file__).parents[1]
COMMAND = (sys.executable, "-m", "oracle_dagster.cli", "worker")


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A queue of its own on loopback, in memory only; skipped where Redis is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        reason = "redis-server is not on the PATH (Debian: apt-get install redis-server)"
        if "redis" in os.environ.get("ORACLE_REQUIRE", ""):
            pytest.fail(reason)
        print(f"skipped: {reason}")
        pytest.skip(reason)
    port = free_port()
    folder.mkdir()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen([program, *options, "--dir", str(folder)], stdout=subprocess.DEVNULL) as server:
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


class Worker:
    """One `oracle worker` as a user starts it."""

    def __init__(self, home: Home, name: str) -> None:
        self.name = name
        self.log = home.path.parent / f"{name}.txt"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "oracle_dagster.cli",
                    "worker",
                    "--name",
                    name,
                    "--home",
                    str(home.path),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
            )

    def kill(self) -> None:
        """All its processes at once, as when a machine loses its power."""
        tree = psutil.Process(self.process.pid)
        for process in [tree, *tree.children(recursive=True)]:
            process.kill()
        self.process.wait(30)

    def end(self) -> int:
        """As `kill` does: it finishes what it works on."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def worker(home: Home, name: str) -> Iterator[Worker]:
    started = Worker(home, name)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill()


def parts_of(instance: dg.DagsterInstance) -> dict[str, list[dg.DagsterRun]]:
    """The runs of every part, the newest first."""
    found: dict[str, list[dg.DagsterRun]] = {}
    for run in instance.get_runs():
        if shards.SHARD_TAG in run.tags:
            found.setdefault(run.tags[shards.SHARD_TAG], []).append(run)
    return found


@pytest.fixture
def home(
    tmp_path: Path, migrated_url: str, dagster_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Home:
    """A home on databases of its own of the shared server, with a small world in it."""
    monkeypatch.setenv(shards.SHARD_VARIABLE, "2")
    return home_on(tmp_path / "home", migrated_url, dagster_database_url, monkeypatch, WORLD)


def test_a_home_with_a_broker_launches_through_it_and_writes_down_no_password(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BROKER_VARIABLE, "redis://:hidden@127.0.0.1:1/0")
    assert "hidden" not in home.write_dagster_yaml().read_text()
    with home.connect() as connections, orchestrator(home, connections) as instance:
        launcher = instance.run_launcher
        assert isinstance(launcher, CeleryRunLauncher)
        assert launcher.broker == launcher.backend == "redis://:hidden@127.0.0.1:1/0"
        assert launcher.default_queue == "dagster"
    monkeypatch.delenv(BROKER_VARIABLE)
    assert "run_launcher" not in home.write_dagster_yaml().read_text()


def test_queued_parts_wait_for_a_worker_and_a_dead_one_is_repeated_by_its_run(home: Home) -> None:
    """The sources are measured before; `oracle run --failed` then takes what is missing, wherever it ran."""
    outcome = run_cycle(home, as_of=AS_OF, queued=True)
    assert (outcome.status, outcome.keys, len(outcome.runs)) == ("queued", 20, 3)
    with home.connect() as connections, orchestrator(home, connections) as instance:
        measured, *queued = (instance.get_run_by_id(run_id) for run_id in outcome.runs)
        assert measured is not None
        assert measured.is_success
        for run in queued:
            assert run is not None
            assert run.status is dg.DagsterRunStatus.QUEUED
            assert run.job_code_origin is not None
            assert workers.HOST_TAG not in run.tags, "nobody knows yet where it will run"
            assert "dagster/max_retries" not in run.tags, "the daemon may repeat it"
        with pytest.raises(LaunchError, match="lists no failed key"):
            run_cycle(home, from_failed_run=outcome.run_id)
        dead = queued[1]
        assert dead is not None
        instance.report_run_failed(dead, "its worker is gone")
    repeated = run_cycle(home, from_failed_run=outcome.run_id)
    assert (repeated.status, repeated.keys) == ("success", 10)
    names = sorted(WORLD.entities)[2:]
    found = rows(os.environ["ORACLE_DATABASE_URL"], "SELECT DISTINCT entity_id FROM recommendations")
    assert sorted(name for (name,) in found) == names


def test_a_worker_takes_parts_from_the_queue_and_says_who_it_was(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the daemon: the launcher is asked directly, as the daemon would."""
    with redis_server(tmp_path / "redis") as broker:
        monkeypatch.setenv(BROKER_VARIABLE, broker)
        outcome = run_cycle(home, as_of=AS_OF, queued=True)
        with (
            worker(home, "first") as first,
            home.connect() as connections,
            orchestrator(home, connections) as instance,
        ):
            for run_id in outcome.runs[1:]:
                instance.launch_run(run_id, None)  # type: ignore[arg-type]  # the launcher looks at no workspace
            wait_for(
                f"the worker computes both parts; it said {first.log.read_text()}",
                lambda: all(part[0].is_finished for part in parts_of(instance).values()),
                300,
            )
            for part in parts_of(instance).values():
                assert part[0].is_success
                assert part[0].tags[WORKER_TAG].startswith("first@")
                assert part[0].tags[workers.HOST_TAG] == workers.host_name()
            assert first.end() == 0
    assert rows(os.environ["ORACLE_DATABASE_URL"], "SELECT count(*) FROM recommendations") == [(20,)]


@pytest.mark.acceptance
@pytest.mark.timeout(1200)
def test_one_of_two_workers_dies_in_the_middle_and_nothing_is_lost(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All as a user has it: daemon, queue, two workers on one machine, four parts of one entity each."""
    monkeypatch.setenv(shards.SHARD_VARIABLE, "1")
    with redis_server(tmp_path / "redis") as broker:
        monkeypatch.setenv(BROKER_VARIABLE, broker)
        with (
            operated(tmp_path / "home", WORLD) as at,
            service(at.home.path) as dev,
            worker(at.home, "first") as first,
            worker(at.home, "second") as second,
        ):
            dev.ready()
            outcome = run_cycle(at.home, as_of=AS_OF, queued=True)
            assert (outcome.status, len(outcome.runs)) == ("queued", 5)
            with locked(at.url, "trend_windows"):
                wait_until_blocked(at.url, 2)
                started = at.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
                owners = {run.tags[WORKER_TAG].partition("@")[0] for run in started}
                assert owners == {"first", "second"}, "each worker has taken a part"
                (killed,) = (run for run in started if run.tags[WORKER_TAG].startswith("first@"))
                first.kill()

            def all_done() -> bool:
                parts = parts_of(at.instance)
                return len(parts) == 4 and all(runs[0].is_success for runs in parts.values())

            wait_for("every part is computed in the end", all_done, 600)
            parts = parts_of(at.instance)
            died = at.instance.get_run_by_id(killed.run_id)
            assert died is not None
            assert died.status is dg.DagsterRunStatus.FAILURE, "who died is not said to have succeeded"
            assert len(parts[killed.tags[shards.SHARD_TAG]]) == 2, "and is repeated once"
            assert {runs[0].tags[WORKER_TAG].partition("@")[0] for runs in parts.values()} == {"second"}
            keys = all_keys(WORLD.entities)
            assert_same_tables(at.url, undisturbed(migrated_url, WORLD, (AS_OF, keys)))
            log = "SELECT count(DISTINCT run_id) FROM run_log WHERE stage = %s"
            assert rows(at.url, log, STAGES[-1]) == [(4,)]
            assert second.end() == 0
            print(f"4 parts on 2 workers, 1 killed: {sum(map(len, parts.values()))} runs, the same tables")
