"""Whatever is killed in the middle of a backfill: it goes on by itself and ends in the undisturbed tables."""

from __future__ import annotations

import os
import random
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psycopg
import pytest

from oracle_dagster import pipeline, resources, workers
from oracle_dagster.as_of import format_as_of
from oracle_dagster.partitions import split_key
from oracle_dagster.pipeline import STAGES
from oracle_dagster.storage.database import StorageError
from tests.chain_runs import Chain
from tests.operation import (
    Operated,
    assert_same_tables,
    locked,
    operated,
    undisturbed,
    wait_until_blocked,
)
from tests.services import Service, service, wait_for
from tests.storage_rows import AS_OF, WINDOWS, insert_world, make_world
from tests.ui_client import Backfill, Client

WORLD = make_world(4, 40, bars=60)
E = WORLD.entities


def finished(client: Client, backfill_id: str) -> Backfill | None:
    """The backfill once it has ended; None while it goes on, or while the server cannot answer."""
    try:
        return client.finished(backfill_id)
    except (httpx.HTTPError, AssertionError):
        return None


def launched(client: Client, as_of: datetime) -> str:
    """A backfill of everything; after a database's death the interface fails once or twice: ask again."""

    def launch() -> str | None:
        try:
            return client.backfill(as_of=format_as_of(as_of), allPartitions=True)
        except (httpx.HTTPError, AssertionError):
            return None

    return str(wait_for("the backfill is launched", launch))


def went_on(client: Client, backfill_id: str, keys: int) -> Backfill:
    """The backfill ended by itself, with every key of every asset, whatever became of single runs."""
    found = wait_for("the backfill ends", lambda: finished(client, backfill_id), 600)
    assert isinstance(found, Backfill)
    assert found.status == "COMPLETED_SUCCESS", found
    assert found.counts == dict.fromkeys(STAGES, (keys, keys, 0))
    return found


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def daemon_of(dev: Service) -> int:
    return next(member.pid for member in dev.state().members if member.name == "daemon")


def working(at: Operated) -> list[int]:
    """The processes that work on runs."""
    runs = at.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    found = [workers._worker_of(at.instance, run) for run in runs]
    return [pid for pid, _ in filter(None, found)]


def kill_database(at: Operated) -> None:
    kill(at.home.postgres().status().pid)


@pytest.mark.timeout(1200)
@pytest.mark.acceptance  # as the backfills: services cost minutes
def test_daemon_worker_and_database_are_killed_in_a_backfill_and_nothing_is_lost_or_doubled(
    tmp_path: Path, migrated_url: str
) -> None:
    """One backfill of two runs, held in their middle: after the signals and before the trends."""
    windows = ("7d", "90d")
    with operated(tmp_path / "home", WORLD) as at, service(at.home.path) as dev:
        client = Client(dev.ready())
        with locked(at.url, "trend_windows"):
            backfill = client.range(
                as_of=format_as_of(AS_OF), start=f"{E[0]}|{windows[0]}", end=f"{E[1]}|{windows[0]}"
            )
            other = client.range(
                as_of=format_as_of(AS_OF), start=f"{E[2]}|{windows[1]}", end=f"{E[3]}|{windows[1]}"
            )
            wait_until_blocked(at.url, 2)
            kill(daemon_of(dev))
            killed = working(at)
            assert len(killed) == 2
            kill(killed[0])
            wait_for("the daemon's death is told", lambda: "the daemon ended by signal 9" in dev.printed)
            kill_database(at)
        wait_for("the database's restart is told", lambda: "database had ended" in dev.printed)
        ended = [*went_on(client, backfill, 2).runs.values(), *went_on(client, other, 2).runs.values()]
        assert set(ended) == {"FAILURE", "SUCCESS"}, "who died is not said to have succeeded"
        keys = {(e, windows[0]) for e in E[:2]} | {(e, windows[1]) for e in E[2:]}
        assert_same_tables(at.url, undisturbed(migrated_url, WORLD, (AS_OF, keys)))


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_kills_at_random_moments_of_backfills_lose_and_double_nothing(
    tmp_path: Path, migrated_url: str
) -> None:
    """Each of daemon, worker, database and the whole of `oracle dev`, three times; a cycle for each kill."""
    rng = random.Random(11)
    rounds = 12
    keys = {(entity, window) for entity in E for window in WINDOWS}
    moments = [AS_OF + timedelta(hours=n) for n in range(rounds)]
    wanted = undisturbed(migrated_url, WORLD, *((moment, keys) for moment in moments))
    landed = 0
    with operated(tmp_path / "home", WORLD) as at:
        dev = Service(at.home.path)
        try:
            client = Client(dev.ready())
            for number, moment in enumerate(moments):
                backfill = launched(client, moment)
                wait_for("a run works", lambda: working(at))
                # The moment only chooses where the kill lands.
                time.sleep(rng.uniform(0.0, 12.0))
                landed += client.finished(backfill) is None
                match number % 4:
                    case 0:
                        kill(daemon_of(dev))
                    case 1:
                        for pid in working(at)[:1]:
                            kill(pid)
                    case 2:
                        kill_database(at)
                    case _:
                        # As by a power cut, and as by Ctrl-C.
                        kill(dev.process.pid) if number % 8 == 3 else dev.end()
                        dev.process.wait()
                        dev = Service(at.home.path)
                        client = Client(dev.ready())
                went_on(client, backfill, len(keys))
        finally:
            if dev.process.poll() is None:
                dev.end()
        assert_same_tables(at.url, wanted)
    print(f"{rounds} kills at random moments ({landed} during the backfill): result tables equal")


@pytest.mark.parametrize(("transient", "attempts"), [(True, 2), (False, 1)])
def test_a_step_outlasts_a_database_that_comes_back_and_no_other_failure(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch, transient: bool, attempts: int
) -> None:
    """Its transactions are repeated for a few seconds by themselves; a restart may take longer."""
    with psycopg.connect(migrated_url) as connection:
        insert_world(connection, WORLD)
    genuine, tried = pipeline.run_stages, []

    def fragile(*given: Any, **named: Any) -> pipeline.StageReport:  # noqa: ANN401
        tried.append(1)
        if len(tried) == 1:
            raise StorageError("the server is away", transient=transient)
        return genuine(*given, **named)

    monkeypatch.setattr(pipeline, "run_stages", fragile)
    monkeypatch.setattr(resources, "OUTAGE_PAUSE_SECONDS", 0.0)
    with dg.DagsterInstance.ephemeral() as instance:
        run = Chain(migrated_url, instance).run(keys=[f"{E[0]}|7d"], assets=STAGES)
    assert (run.success, len(tried)) == (transient, attempts)
    assert ("the server is away" in run.error) is not transient
    if transient:
        assert run.counts() == dict.fromkeys(STAGES, 1)


def test_equal_tables_are_not_equal_by_being_empty(migrated_url: str) -> None:
    wanted = undisturbed(migrated_url, WORLD, (AS_OF, {split_key(f"{E[0]}|7d")}))
    assert_same_tables(migrated_url, wanted)
    with pytest.raises(AssertionError, match="trend_windows differs"):
        assert_same_tables(migrated_url, {**wanted, "trend_windows": wanted["trend_windows"] * 2})
