"""A run of the whole chain against a step that does nothing but report the same materialisations.

The floor is an ordinary run of a `multi_asset` with the same four partitioned assets on the same instance.
Its step reports the very materialisations that the product's run reported, with tags and metadata, in the
same batches. What the product adds is everything else: choosing keys, reading, computing, writing, checks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator

from benchmarks.harness import Figure, Size, alternate, ratio
from benchmarks.worlds import AS_OF, add_documents
from oracle_core.enums import Window
from oracle_dagster import pipeline, reporting
from oracle_dagster.home import Home
from oracle_dagster.launch import orchestrator, run_cycle
from oracle_dagster.partitions import KEYS
from oracle_dagster.storage import migrate
from oracle_dagster.storage.database import Database

SIZES: dict[Size, tuple[tuple[int, int], ...]] = {
    "tiny": ((3, 1),),
    "bench": ((400, 3),),
    "full": ((2_000, 3), (10_000, 1)),
}
"""Entities, each with five partitions, and rounds; with little to compute, as this is about reporting."""
DOCUMENTS = 2
BOUND = 1.25


def floor_job(told: list[list[dg.AssetMaterialization]]) -> dg.JobDefinition:
    """One step over the four assets that reports what it is given."""
    specs = [dg.AssetSpec(name, partitions_def=KEYS, skippable=True) for name in pipeline.STAGES]

    @dg.multi_asset(name="floor", specs=specs)
    def report(context) -> Iterator[Any]:  # type: ignore[no-untyped-def] # noqa: ANN001 - checked by name
        for materializations in told:
            reporting.report_partitions(context, materializations)
        yield from ()

    jobs = [dg.define_asset_job("floor", selection=[report])]
    defs = dg.Definitions(assets=[report], jobs=jobs, executor=dg.in_process_executor)
    return defs.resolve_job_def("floor")


def run_floor(instance: dg.DagsterInstance, job: dg.JobDefinition) -> None:
    """Execute it as the product executes its own run: in this process, without output."""
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    run = instance.create_run_for_job(job, run_config=quiet)
    for event in execute_run_iterator(InMemoryJob(job), run, instance):
        assert not event.is_failure, event


def measure(entities: int, rounds: int) -> Figure:
    """Alternate the product's run and the floor's."""
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as folder:
        home = Home(Path(folder))
        with home.connect() as connections, orchestrator(home, connections) as instance:
            database = Database(connections.domain_url)
            migrate.upgrade(database)
            database.close()
            add_documents(connections.domain_url, entities=entities, documents=DOCUMENTS * entities)
            told: list[list[dg.AssetMaterialization]] = []
            report = reporting.report_partitions

            def listen(context: Any, materializations: Any) -> None:  # noqa: ANN401 - passed on as they are
                told.append(list(materializations))
                report(context, materializations)

            moments = iter(range(1_000_000))
            phases: list[dict[str, float]] = []

            def product() -> None:
                outcome = run_cycle(home, as_of=AS_OF + timedelta(minutes=next(moments)))
                assert outcome.status == "success", outcome.message
                phases.append(outcome.seconds)

            # Also makes the partitions, as the first run of all does.
            with mock.patch.object(reporting, "report_partitions", listen):
                product()
            told = [some for some in told if some[0].asset_key.to_user_string() in pipeline.STAGES]
            partitions = entities * len(Window)
            assert sum(map(len, told)) == partitions * len(pipeline.STAGES)
            phases.clear()
            job = floor_job(told)
            seconds = alternate({"floor": lambda: run_floor(instance, job), "run": product}, rounds)
        if connections.embedded:
            home.postgres().wait_until_stopped()
    shown = {f"{name} s": median([one.get(name, 0.0) for one in phases]) for name in phases[0]}
    return Figure(
        "orchestration",
        f"run of the chain over {partitions:,} partitions",
        "a step that reports the same materialisations",
        ratio(seconds, "run", "floor"),
        BOUND,
        at_most=True,
        sizes=f"{partitions:,} partitions, {len(pipeline.STAGES)} assets, {DOCUMENTS} documents per entity",
        notes={"run s": median(seconds["run"]), "floor s": median(seconds["floor"]), **shown},
    )


def figures(size: Size) -> list[Figure]:
    """The run against its floor, by number of partitions."""
    before = dict(os.environ)
    try:
        return [measure(entities, rounds) for entities, rounds in SIZES[size]]
    finally:
        os.environ.clear()
        os.environ.update(before)
