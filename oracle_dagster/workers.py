"""Which runs have lost the process that worked on them, and marking those as failed.

The orchestrator's own monitoring cannot see this for runs on the same machine: a worker that is killed
leaves its run "started" for ever. Judged is only a run whose worker was on this machine; nothing here ends a
process.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagster import DagsterInstance, DagsterRun, RunRecord

HOST_TAG: Final = "oracle/host"
CLOCK_TOLERANCE_SECONDS: Final = 2.0
_GRPC_TAG: Final = "dagster/grpc_info"


@dataclass(frozen=True)
class LostRun:
    """A run that nobody works on any more, and how that is known."""

    run_id: str
    job_name: str
    status: str
    reason: str


def host_name() -> str:
    """The name under which this machine's workers are recorded."""
    return socket.gethostname()


def lost_runs(
    instance: DagsterInstance,
    *,
    only_local_database: bool,
    code_server_started: Callable[[str], float | None] = lambda _: None,
) -> list[LostRun]:
    """The unfinished runs whose worker is gone.

    Args:
        instance: the orchestrator's storage.
        only_local_database: whether the database is this home's own server, so all runs are of this machine.
        code_server_started: for the socket of a code server, when its present process started (seconds
            since 1970), None where unknown; a run that was starting before that is lost.
    """
    from dagster import DagsterRunStatus, RunsFilter

    unfinished = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    found = []
    for record in instance.get_run_records(RunsFilter(statuses=unfinished)):
        reason = _lost(instance, record, only_local_database, code_server_started)
        if reason is not None:
            run = record.dagster_run
            found.append(LostRun(run.run_id, run.job_name, run.status.value, reason))
    return found


def report_lost(instance: DagsterInstance, lost: list[LostRun]) -> list[str]:
    """Mark lost runs as failed (as canceled where that was asked for) and return their ids.

    A run that ended meanwhile stays as it is.
    """
    from dagster import DagsterRunStatus

    marked = []
    for item in lost:
        run = instance.get_run_by_id(item.run_id)
        if run is None or run.is_finished:
            continue
        message = f"{item.reason} Re-execute the run, or run `oracle run --failed {item.run_id}`."
        if run.status is DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, message)
        else:
            instance.report_run_failed(run, message)
        marked.append(item.run_id)
    return marked


def _lost(  # noqa: PLR0911 - one answer per kind of evidence
    instance: DagsterInstance,
    record: RunRecord,
    only_local_database: bool,  # noqa: FBT001
    code_server_started: Callable[[str], float | None],
) -> str | None:
    run = record.dagster_run
    server_socket = _socket_of(run)
    host = run.tags.get(HOST_TAG)
    here = host == host_name() if host is not None else only_local_database or _is_here(server_socket)
    if not here:
        return None
    worker = _worker_of(instance, run)
    if worker is not None:
        pid, seen_at = worker
        return None if _lives(pid, seen_at) else f"The process {pid} that worked on this run is gone."
    if server_socket is None:
        return None  # just created; the start time-out of the orchestrator's monitoring covers it
    started = code_server_started(server_socket)
    if started is None:
        if Path(server_socket).exists():
            return None
        return "The code server that was starting this run is gone."
    if record.update_timestamp.timestamp() < started:
        return "The code server ended while it was starting this run."
    return None


def _socket_of(run: DagsterRun) -> str | None:
    """The socket of the code server that launched the run."""
    try:
        info = json.loads(run.tags.get(_GRPC_TAG, "{}"))
    except json.JSONDecodeError:
        return None
    found = info.get("socket") if isinstance(info, dict) else None
    return found if isinstance(found, str) else None


def _is_here(server_socket: str | None) -> bool:
    """Whether the socket was made on this machine: `oracle dev` puts the host's name into its folder."""
    return server_socket is not None and f"-{host_name()}-" in Path(server_socket).parent.name


def _worker_of(instance: DagsterInstance, run: DagsterRun) -> tuple[int, float] | None:
    """The process that executes the run and when it said so: the first event that carries a process id."""
    from dagster import DagsterEventType

    found = instance.get_records_for_run(
        run.run_id, of_type=DagsterEventType.ENGINE_EVENT, limit=20, ascending=True
    )
    for record in found.records:
        event = record.event_log_entry.dagster_event
        if event is None or event.event_type is not DagsterEventType.ENGINE_EVENT:
            continue
        pid = event.engine_event_data.metadata.get("pid")
        if pid is not None and str(pid.value).isdigit():
            return int(str(pid.value)), record.event_log_entry.timestamp
    return None


def _lives(pid: int, seen_at: float) -> bool:
    """Whether the process of then still works: it is there, no zombie, and not a later one of that number."""
    try:
        process = psutil.Process(pid)
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and process.create_time() <= seen_at + CLOCK_TOLERANCE_SECONDS
        )
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
