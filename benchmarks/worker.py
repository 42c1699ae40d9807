"""What one worker computes in a minute, hence how many a number of entities needs.

Run with ``python -m benchmarks.worker``. Runs as a worker has them, in this process: a whole cycle that tells
of every key, then the quarter-hourly cycle as its schedule asks for it, which tells of changes only. The
figures of deploy/README.md come from here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import dagster as dg

from benchmarks.harness import PeakMemory
from benchmarks.worlds import AS_OF, add_documents
from oracle_dagster.as_of import format_as_of
from oracle_dagster.definitions import defs
from oracle_dagster.home import Home
from oracle_dagster.jobs import CYCLE_JOB
from oracle_dagster.launch import orchestrator, run_cycle
from oracle_dagster.schedules import CADENCES, _requests
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

USED = 0.7
"""Share of its time that a worker should be busy: runs have to start, and what is late is made up for."""
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def workers(keys: int, minutes: float, keys_per_minute: float) -> int:
    """How many workers compute so many keys in so many minutes."""
    return math.ceil(keys / (minutes * keys_per_minute * USED))


def measure(folder: Path, *, entities: int, documents: int) -> dict[str, float]:
    """Keys per minute of both kinds of run, and the memory they took, on a new home."""
    os.environ["ORACLE_HOME"] = str(folder)
    home = Home(folder)
    found: dict[str, float] = {"entities": entities, "documents": entities * documents}
    with home.connect() as connections:
        database = Database(connections.domain_url)
        migrate.upgrade(database)
        database.close()
        add_documents(connections.domain_url, entities=entities, documents=entities * documents)
        warm = run_cycle(home, as_of=AS_OF - timedelta(hours=1))
        assert warm.status == "success", warm
        with PeakMemory() as memory:
            began, busy = time.perf_counter(), time.process_time()
            outcome = run_cycle(home, as_of=AS_OF)
            seconds, own = time.perf_counter() - began, time.process_time() - busy
        assert outcome.status == "success", outcome
        found["every_key_per_minute"] = outcome.keys / seconds * 60.0
        found["every_key_per_minute_of_the_workers_own_time"] = outcome.keys / own * 60.0
        found["megabytes_of_a_cycle"] = memory.mebibytes
        with orchestrator(home, connections) as instance:
            known = instance.get_dynamic_partitions("entity")
            (request,) = _requests(CADENCES[0], format_as_of(AS_OF + timedelta(minutes=15)), known)
            began, busy = time.perf_counter(), time.process_time()
            result = defs.resolve_job_def(CYCLE_JOB).execute_in_process(
                run_config={**request.run_config, **QUIET},
                instance=instance,
                tags=dict(request.tags),
                asset_selection=[dg.AssetKey(key) for key in _paths(request)],
            )
            seconds, own = time.perf_counter() - began, time.process_time() - busy
        assert result.success
        keys = len(CADENCES[0].windows) * len(known)
        found["scheduled_keys_per_minute"] = keys / seconds * 60.0
        found["scheduled_keys_per_minute_of_the_workers_own_time"] = keys / own * 60.0
    home.postgres().wait_until_stopped()
    return found


def _paths(request: dg.RunRequest) -> list[list[str]]:
    return [list(key.path) for key in request.asset_selection or ()]


def main() -> None:
    """Measure, and say what the numbers of entities in question need."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entities", type=int, default=2_000)
    parser.add_argument("--documents", type=int, default=20, help="of each entity, in 90 days")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        found = measure(Path(folder), entities=arguments.entities, documents=arguments.documents)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' ')}: {value:,.0f}")
    scheduled, every = found["scheduled_keys_per_minute"], found["every_key_per_minute"]
    print(f"100,000 entities, intraday and 1d every 15 minutes: {workers(200_000, 15, scheduled)} workers")
    print(f"100,000 entities, all five windows every 15 minutes: {workers(500_000, 15, scheduled)} workers")
    print(f"the same, every key reported: {workers(500_000, 15, every)} workers")


if __name__ == "__main__":
    main()
