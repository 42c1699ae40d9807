"""What a worker of the queue serves: the orchestrator's own tasks, on the broker that the environment names.

Needs the extra ``celery``. A run that a worker takes is marked with the machine's name, so that who
watches over that machine can tell when its process is gone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from celery.signals import task_prerun
from dagster import DagsterInstance
from dagster._serdes import unpack_value
from dagster_celery.config import DEFAULT_CONFIG
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_execute_job_task, create_resume_job_task

# Loaded once by the worker, not by the process of every run, which is a copy of it.
from oracle_dagster import definitions  # noqa: F401
from oracle_dagster.home import BROKER_VARIABLE
from oracle_dagster.workers import HOST_TAG, host_name

if TYPE_CHECKING:
    from celery import Celery

WORKER_TAG: Final = "oracle/worker"


def build_app(broker: str) -> Celery:
    """The application of the workers; its results, which tell the daemon how a run fares, go the same way."""
    app: Celery = make_app({"broker": broker, "backend": broker, "config_source": dict(DEFAULT_CONFIG)})  # type: ignore[no-untyped-call]
    # So that a worker holds no second run while it works on one; whoever killed it would delay that one too.
    # A run that is delivered twice is ignored by the orchestrator.
    app.conf.task_acks_late = True
    create_execute_job_task(app)
    create_resume_job_task(app)
    return app


@task_prerun.connect  # type: ignore[untyped-decorator]
def mark_run(task: Any = None, kwargs: dict[str, Any] | None = None, **_: object) -> None:  # noqa: ANN401 - of celery
    """Say on the run which machine and which worker of it has it."""
    packed = (kwargs or {}).get("execute_job_args_packed") or (kwargs or {}).get("resume_job_args_packed")
    if packed is not None:
        arguments: Any = unpack_value(packed)
        with DagsterInstance.get() as instance:
            worker = {WORKER_TAG: str(task.request.hostname)}
            instance.add_run_tags(arguments.run_id, {HOST_TAG: host_name(), **worker})


app: Final = build_app(os.environ.get(BROKER_VARIABLE, ""))
