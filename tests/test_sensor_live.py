"""The sensor under the real daemon: documents of scattered entities become one run over exactly these.

The small round is part of `test_backfills`, which has the services running already.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import dagster as dg
import psycopg
import pytest
from dagster._core.scheduler.instigation import InstigatorTick

from oracle_dagster.as_of import AS_OF_TAG
from oracle_dagster.home import Home
from oracle_dagster.launch import orchestrator
from oracle_dagster.pipeline import STAGES
from oracle_dagster.planning.jobs import APPLY_JOB, APPLY_STEP
from oracle_dagster.sensors import SENSOR
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database
from tests.chain_runs import keys_of
from tests.services import service, wait_for
from tests.storage_rows import Document, Impact, insert_documents, rows
from tests.test_plan import SETTINGS, outcome_equals, planned
from tests.test_sensor import LONG_AGO
from tests.ui_client import Client


def now(url: str) -> datetime:
    """The database's present time."""
    moment: datetime = rows(url, "SELECT now()")[0][0]
    return moment


def insert_news(url: str, kind: str, names: Sequence[str], *, published: datetime = LONG_AGO) -> float:
    """One document per entity by plain SQL; returns when they were committed."""
    with psycopg.connect(url) as connection:
        insert_documents(
            connection, [Document(f"{kind}-{n}", (Impact(n),), published=published) for n in names]
        )
    return time.time()


def by_the_sensor(instance: dg.DagsterInstance, number: int, seconds: float = 280) -> list[dg.DagsterRun]:
    """The runs it launched, oldest first, once there are so many and all have succeeded."""

    def look() -> list[dg.DagsterRun] | None:
        runs = list(instance.get_runs(dg.RunsFilter(tags={"dagster/sensor_name": SENSOR})))
        assert not any(run.is_failure_or_canceled for run in runs)
        return runs if len(runs) >= number and all(run.is_success for run in runs) else None

    found = wait_for(f"{number} runs of the sensor end", look, seconds)
    assert isinstance(found, list)
    assert len(found) == number
    return sorted(found, key=lambda run: run.tags[AS_OF_TAG])


def assert_refreshed(instance: dg.DagsterInstance, run: dg.DagsterRun, entities: Collection[str]) -> None:
    """The run reported every window of exactly these entities, each once, in every asset of the chain."""
    for asset in STAGES:
        events = instance.fetch_materializations(dg.AssetKey(asset), limit=10_000).records
        told = [str(event.partition_key) for event in events if event.run_id == run.run_id]
        assert sorted(told) == sorted(keys_of(*entities)), asset


def looks_of(instance: dg.DagsterInstance, after: float | None = None) -> Sequence[InstigatorTick]:
    """The ticks of the sensor; none before it is started."""
    states = [s for s in instance.all_instigator_state() if s.instigator_name == SENSOR]
    return [t for s in states for t in instance.get_ticks(s.instigator_origin_id, s.selector_id, after=after)]


def looked(instance: dg.DagsterInstance) -> bool:
    """Whether a look of the sensor has ended."""
    return any(tick.is_completed for tick in looks_of(instance))


def within_two_ticks(instance: dg.DagsterInstance, committed: float, run: dg.DagsterRun) -> None:
    """The first or the second look after the commit launched the run."""
    ticks = looks_of(instance, after=committed - 60)
    (launched,) = [tick for tick in ticks if run.run_id in tick.run_ids]
    looks = [tick for tick in ticks if committed <= tick.timestamp <= launched.timestamp]
    assert len(looks) <= 2


@pytest.mark.acceptance
def test_documents_of_37_scattered_of_500_entities_refresh_exactly_these_in_one_run_within_two_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = [f"N{n:03d}" for n in range(500)]
    some = everybody[3::13][:37]
    monkeypatch.setenv("ORACLE_SENSOR_QUIET_SECONDS", "0")
    monkeypatch.setenv("ORACLE_SENSOR_INTERVAL_SECONDS", "1")
    home = Home.resolve(tmp_path / "home")
    with home.connect() as connections, orchestrator(home, connections) as instance:
        url = connections.domain_url
        migrate.upgrade(Database(url))
        insert_news(url, "base", everybody)
        with service(home.path, automation=True) as dev:
            url_of_the_interface = dev.ready()
            by_the_sensor(instance, 1, 800)
            committed = insert_news(url, "news", some)
            first, second = by_the_sensor(instance, 2)
            assert_refreshed(instance, first, everybody)
            assert_refreshed(instance, second, some)
            within_two_ticks(instance, committed, second)
            print(f"{len(some)} of {len(everybody)} entities: one run over {5 * len(some)} partitions")

            client = Client(url_of_the_interface)
            for settings in SETTINGS:
                moment = now(url)
                plan = planned(url, settings, moment)
                given = [f"{path}={value}" for path, value in settings.items()]
                config = {"set": given, "as_of": moment.isoformat()}
                run_id = client.launch({"ops": {APPLY_STEP: {"config": config}}}, job=APPLY_JOB)
                ended = wait_for("the plan is applied", partial(client.ended, run_id), 600)
                assert ended == "SUCCESS"
                compared = outcome_equals(url, plan)
                assert compared == len(plan.changes)
                print(f"{len(plan.first_stages)} keys rebuilt, {compared} changed decisions as planned")
            by_the_sensor(instance, 2)  # what was applied is not computed once more
