"""``oracle worker``: take runs from the queue, on any machine that reaches databases and broker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oracle_dagster.cli.common import CommandError, HomeOption, connected, resolve_home

if TYPE_CHECKING:
    from types import FrameType

LOOK_SECONDS = 5.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker")(worker)
    app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
        execute
    )


def worker(
    name: Annotated[
        str, typer.Option("--name", help="Name of this worker; two on one machine need two.")
    ] = "oracle",
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many runs to work on at once.")] = 1,
    home: HomeOption = None,
) -> None:
    """Work on runs from the queue until Ctrl-C; what is being worked on is finished first.

    Needs the extra `celery`, and ORACLE_CELERY_BROKER as the daemon has it. Every run gets a process of its
    own. A run whose process is gone is marked as failed, so that the daemon repeats it.
    """
    from oracle_dagster.home import BROKER_VARIABLE

    if os.environ.get(BROKER_VARIABLE, "") == "":
        raise CommandError(
            f"{BROKER_VARIABLE} is not set. Set it to the queue's address, like redis://127.0.0.1:6379/0, "
            "here and where `oracle dev` or the daemon runs."
        )
    try:
        import celery  # noqa: F401
        import dagster_celery  # noqa: F401
    except ImportError as error:
        raise CommandError(
            f"The package {error.name} is missing. Remedy: pip install 'oracle-pipeline[celery]'."
        ) from None
    from oracle_dagster import workers
    from oracle_dagster.launch import orchestrator

    place = resolve_home(home)
    with connected(place) as connections, orchestrator(place, connections) as instance:
        child = subprocess.Popen(_command(name, runs))

        def end(_number: int, _frame: FrameType | None) -> None:
            child.send_signal(signal.SIGTERM)  # which lets it finish its runs

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        while True:
            try:
                code = child.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            lost = workers.lost_runs(instance, only_local_database=False)
            for run_id in workers.report_lost(instance, lost):
                print(
                    f"oracle worker: the process of run {run_id} is gone; it is marked as failed", flush=True
                )
            if code is not None:
                break
    if code != 0:
        raise CommandError(f"The worker {name} ended with code {code}; its own words stand above.")


def execute(
    command: Annotated[list[str], typer.Argument(help="Program and arguments.", show_default=False)],
    home: HomeOption = None,
) -> None:
    """Run a program of the orchestrator with this home's settings: `oracle exec dagster-daemon run`.

    For services that something else starts and watches, like containers. Options of this command come before
    the program. `oracle dev` needs none of this.
    """
    from oracle_dagster.home import Home

    place: Home = resolve_home(home)
    program = shutil.which(command[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise CommandError(f"There is no program {command[0]!r} beside {sys.executable} or on the PATH.")
    with connected(place) as connections:
        place.write_dagster_yaml()
        environment = {**os.environ, **place.environment(connections)}
        if not connections.embedded:
            os.execve(program, command, environment)  # noqa: S606 - so that signals reach it
        code = subprocess.run([program, *command[1:]], env=environment, check=False).returncode
    raise typer.Exit(code if code >= 0 else 128 - code)


def _command(name: str, runs: int) -> list[str]:
    options = [
        f"--concurrency={runs}",
        "--prefetch-multiplier=1",  # takes no run that another could begin at once
        "--max-tasks-per-child=1",  # gives back all memory, and a limit of it counts for one run
        f"--hostname={name}@%h",
        "--queues=dagster",
        "--loglevel=INFO",
        "--without-gossip",
        "--without-mingle",
    ]
    return [sys.executable, "-m", "celery", "-A", "oracle_dagster.celery_app", "worker", *options]
