"""`oracle dev` owns what it starts: nothing doubles, nothing is left behind, what dies comes back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.events import EngineEventData

from oracle_dagster import dev, workers
from oracle_dagster.home import Home
from tests.services import service, wait_for


def alive(state: dev.State) -> list[int]:
    """The recorded processes that still live."""
    return [p.pid for p in dev.leftovers(state)]


def graphql(url: str, query: str) -> dict[str, object]:
    answer = httpx.post(f"{url}/graphql", json={"query": query}, timeout=30, trust_env=False)
    found: dict[str, object] = answer.json()
    return found


@contextmanager
def instance_of(home: Home) -> Iterator[DagsterInstance]:
    with home.connect() as connections:
        home.write_dagster_yaml()
        os.environ.update(home.environment(connections))
        try:
            with DagsterInstance.from_config(str(home.dagster_dir)) as instance:
                yield instance
        finally:
            for name in home.environment(connections):
                os.environ.pop(name, None)


def dead_pid() -> int:
    """The id of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def add_run(
    instance: DagsterInstance,
    pid: int | None,
    *,
    status: DagsterRunStatus = DagsterRunStatus.STARTED,
    tags: dict[str, str] | None = None,
) -> str:
    """A run as an orchestrator's process left it."""
    run = instance.add_run(DagsterRun(job_name="aggregation_cycle", status=status, tags=tags or {}))
    if pid is not None:
        instance.report_engine_event("Started process for run", run, EngineEventData.in_process(pid))
    return run.run_id


# ---------------------------------------------------------------------------------- one service's life


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dev") / "a home"


def test_a_service_mends_what_breaks_and_leaves_nothing_behind(home: Path) -> None:
    """One service through its whole life, since each start costs seconds.

    A second start is refused, a killed child and a killed database come back, a run that lost its worker is
    marked as failed, a killed supervisor takes its children along, the next start works, SIGTERM ends all.
    """
    with instance_of(Home.resolve(home)) as instance:
        lost = add_run(instance, dead_pid())
    with service(home) as first:
        url = first.ready()
        assert url.startswith("http://127.0.0.1:")
        assert dev.running(Home.resolve(home)) == url
        locations = graphql(url, "{workspaceOrError{... on Workspace{locationEntries{name loadStatus}}}}")
        assert json.dumps(locations).count('"oracle"') == 1
        found = graphql(url, f'{{runOrError(runId:"{lost}"){{... on Run{{status}}}}}}')
        assert found == {"data": {"runOrError": {"status": "FAILURE"}}}

        listening = {
            c.laddr.ip
            for m in first.state().members
            for c in psutil.Process(m.pid).net_connections()
            if c.status == psutil.CONN_LISTEN and c.family in (socket.AF_INET, socket.AF_INET6)
        }
        assert listening == {"127.0.0.1"}

        second = subprocess.run(
            [sys.executable, "-m", "oracle_dagster.cli", "dev", "--home", str(home)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert "already runs" in second.stderr
        assert url in second.stderr
        assert "Traceback" not in second.stderr

        webserver = next(m.pid for m in first.state().members if m.name == "webserver")
        database = Home.resolve(home).postgres().status().pid
        assert database is not None
        os.kill(webserver, signal.SIGKILL)
        os.kill(database, signal.SIGKILL)
        wait_for("the webserver's death is told", lambda: "the webserver ended by signal 9" in first.printed)
        wait_for("the database's restart is told", lambda: "database had ended" in first.printed)

        def answers() -> bool:
            try:
                return "errors" not in graphql(url, "{runsOrError{... on Runs{results{runId}}}}")
            except httpx.HTTPError:
                return False

        wait_for("the user interface answers again", answers)

        state = first.state()
        assert len(state.members) >= 4  # code server (two processes), webserver, daemon
        first.process.kill()
        first.process.wait()
        if sys.platform == "linux":
            wait_for("children end with a killed supervisor", lambda: alive(state) == [])
    with service(home) as next_one:
        next_one.ready()
        wait_for("nothing of the killed one is left", lambda: alive(state) == [])
        state = next_one.state()
        assert next_one.end() == 0
        assert alive(state) == []
        assert not Path(state.socket_dir).exists()
    assert dev.running(Home.resolve(home)) is None


def test_a_taken_port_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        with pytest.raises(dev.DevError, match=rf"Port {port} on 127.0.0.1 is taken.*--port"):
            dev.choose_port(port)
        assert dev.choose_port(None) != port
    assert dev.choose_port(port) == port


def test_two_supervisors_that_start_at_once_choose_different_ports() -> None:
    """The one that came second said it was ready at the address of the first one's home."""
    port, claim = dev.claim_port(None)
    with claim:
        second, other = dev.claim_port(None)
        other.close()
        assert second != port
        with pytest.raises(dev.DevError, match=rf"Port {port} on 127.0.0.1 is taken.*--port"):
            dev.claim_port(port)
    again, claim = dev.claim_port(port)
    claim.close()
    assert again == port


# ---------------------------------------------------------------------------------- leftovers


@contextmanager
def decoy(token: str | None) -> Iterator[psutil.Process]:
    """A process of this test that looks more or less like a child of a supervisor."""
    env = {**os.environ} if token is None else {**os.environ, dev.TOKEN_VARIABLE: token}
    started = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env=env, start_new_session=True
    )
    try:
        process = psutil.Process(started.pid)
        wait_for("the process became Python", lambda: "time.sleep(600)" in " ".join(process.cmdline()))
        yield process
    finally:
        started.kill()
        started.wait()


def state_of(path: Path, *, pid: int, create_time: float, group: int | None = None) -> dev.State:
    return dev.State(
        path,
        pid=1,
        token="mine",
        groups=[] if group is None else [group],
        members=[dev.Known(pid, create_time, "daemon")],
    )


def test_a_leftover_is_ended_when_id_start_time_and_token_match(tmp_path: Path) -> None:
    said: list[str] = []
    with decoy("mine") as process:
        state_of(tmp_path / "state.json", pid=process.pid, create_time=process.create_time()).write()
        dev.clean_up(tmp_path / "state.json", said.append)
        process.wait(timeout=30)
    assert said == ["ending 1 processes that an earlier `oracle dev` of this home left behind"]
    assert not (tmp_path / "state.json").exists()


def test_a_worker_in_a_recorded_group_is_ended_though_it_was_not_recorded_itself(tmp_path: Path) -> None:
    with decoy("mine") as process:
        state_of(tmp_path / "state.json", pid=1, create_time=0.0, group=process.pid).write()
        dev.clean_up(tmp_path / "state.json", lambda _: None)
        process.wait(timeout=30)


@pytest.mark.parametrize(("token", "offset"), [("mine", -100.0), ("other", 0.0), (None, 0.0)])
def test_a_process_that_merely_has_the_id_is_left_alone(
    tmp_path: Path, token: str | None, offset: float
) -> None:
    """Ids are used again: a later process of that number, or one without the token, is somebody else's."""
    with decoy(token) as process:
        state = state_of(tmp_path / "s", pid=process.pid, create_time=process.create_time() + offset)
        assert dev.leftovers(state) == []


def test_a_process_that_ends_while_it_is_looked_at_does_not_end_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = dev.Supervisor(Home(tmp_path), port=None, say=print)
    supervisor.folder.mkdir()
    with decoy(None) as process:
        process.kill()
        process.wait()
    monkeypatch.setattr(supervisor, "_group", lambda _: [process])
    supervisor._record_members(force=True)
    found = dev.State.read(supervisor.folder / "state.json")
    assert found is not None
    assert found.members == []


def test_a_damaged_record_is_no_reason_not_to_start(tmp_path: Path) -> None:
    for text in ("", "{", '{"pid": 1}', "[]"):
        (tmp_path / "state.json").write_text(text)
        assert dev.State.read(tmp_path / "state.json") is None
        dev.clean_up(tmp_path / "state.json", lambda _: None)


# ---------------------------------------------------------------------------------- lost runs


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def lost_ids(instance: DagsterInstance, *, only_local_database: bool = True) -> list[str]:
    return [r.run_id for r in workers.lost_runs(instance, only_local_database=only_local_database)]


def test_a_run_is_lost_when_its_process_is_gone_and_only_then(instance: DagsterInstance) -> None:
    lost = add_run(instance, dead_pid())
    add_run(instance, os.getpid())
    add_run(instance, dead_pid(), status=DagsterRunStatus.SUCCESS)
    assert lost_ids(instance) == [lost]


def test_a_later_process_with_the_same_id_does_not_keep_a_run_alive(instance: DagsterInstance) -> None:
    """The id was used again: the process now of that number started after the run was seen working."""
    run_id = add_run(instance, None)
    assert not workers._lives(os.getpid(), psutil.Process().create_time() - 60)
    assert workers._lives(os.getpid(), time.time())
    assert lost_ids(instance) == []  # nothing is known of its worker yet
    assert run_id


def test_runs_of_other_machines_are_not_judged(instance: DagsterInstance) -> None:
    """With a shared database a process id means something only on the machine of the worker."""
    add_run(instance, dead_pid())
    add_run(instance, dead_pid(), tags={workers.HOST_TAG: "elsewhere"})
    here = add_run(instance, dead_pid(), tags={workers.HOST_TAG: workers.host_name()})
    assert lost_ids(instance, only_local_database=False) == [here]


def test_a_run_that_was_starting_on_a_server_that_is_gone_is_lost(
    instance: DagsterInstance, tmp_path: Path
) -> None:
    tag = {"dagster/grpc_info": json.dumps({"socket": str(tmp_path / "gone.sock")})}
    lost = add_run(instance, None, status=DagsterRunStatus.STARTING, tags=tag)
    assert lost_ids(instance) == [lost]
    (tmp_path / "gone.sock").touch()
    assert lost_ids(instance) == []


def test_lost_runs_end_as_failed_or_as_cancelled_where_that_was_asked_for(instance: DagsterInstance) -> None:
    failed = add_run(instance, dead_pid())
    cancelled = add_run(instance, dead_pid(), status=DagsterRunStatus.CANCELING)
    lost = workers.lost_runs(instance, only_local_database=True)
    assert sorted(workers.report_lost(instance, lost)) == sorted([failed, cancelled])
    ended = {run.run_id: run.status for run in instance.get_runs()}
    assert ended == {failed: DagsterRunStatus.FAILURE, cancelled: DagsterRunStatus.CANCELED}
    assert workers.report_lost(instance, lost) == []  # once is enough
