"""The supervisor behind ``oracle dev``: code server, webserver and daemon as children of one process.

It starts them, restarts what dies, keeps the embedded database running, marks runs whose worker is gone as
failed and ends everything with itself. It computes nothing and knows no asset.

Whatever happens to the supervisor, nothing is left that the next start does not mend: on Linux the kernel
ends the children when it dies (``PR_SET_PDEATHSIG``); elsewhere, and for children of children, the next start
ends what the last one recorded in ``<home>/dev/state.json``. A recorded process is ended only if its id, its
start time and the token in its environment all match.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
import psutil

from oracle_dagster.workers import host_name, lost_runs, report_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from dagster import DagsterInstance

    from oracle_dagster.home import Connections, Home

HOST: Final = "127.0.0.1"
PREFERRED_PORT: Final = 3000
LOCATION: Final = "oracle"
DEFINITIONS: Final = "oracle_dagster.definitions"
TOKEN_VARIABLE: Final = "ORACLE_DEV_TOKEN"  # noqa: S105 - the name of a variable
TICK_SECONDS: Final = 0.5
DATABASE_EVERY_SECONDS: Final = 2.0
RUNS_EVERY_SECONDS: Final = 15.0
CALM_SECONDS: Final = 60.0  # a child that lived this long starts its back-off anew
MAX_BACKOFF_SECONDS: Final = 30.0
STOP_PATIENCE_SECONDS: Final = 6.0
SERVER_PATIENCE_SECONDS: Final = 60.0
START_TIME_TOLERANCE_SECONDS: Final = 1.5  # the boot time behind it may move with the clock
MAX_LOG_BYTES: Final = 10_000_000
MAX_SOCKET_PATH_BYTES: Final = 100

# Runs before the real program in the child: ask the kernel to end it with the supervisor, then become it.
_ATTACH: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
_QUERY: Final = """
{ version
  workspaceOrError { __typename
    ... on PythonError { message }
    ... on Workspace { locationEntries { name loadStatus
      locationOrLoadError { __typename ... on PythonError { message } } } } } }
"""


class DevError(RuntimeError):
    """The supervisor cannot start; the message names place, value and remedy."""


class _Interrupted(BaseException):
    """A signal arrived while something was waited for."""


@dataclass
class Child:
    """One supervised program and its present process."""

    name: str
    command: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    failures: int = 0
    start_at: float = 0.0

    @property
    def pid(self) -> int | None:
        """Id of the present process, which is also that of its process group."""
        return None if self.process is None else self.process.pid


@dataclass(frozen=True)
class Known:
    """A process as recorded: what must match before it may be ended."""

    pid: int
    create_time: float
    name: str

    def stored(self) -> dict[str, Any]:
        """As in the state file."""
        return {"pid": self.pid, "create_time": self.create_time, "name": self.name}


@dataclass
class State:
    """What a supervisor leaves for its successor, written whenever it changes."""

    path: Path
    pid: int = 0
    token: str = ""
    url: str = ""
    socket_dir: str = ""
    groups: list[int] = field(default_factory=list)
    members: list[Known] = field(default_factory=list)

    def write(self) -> None:
        """Replace the file in one step."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(
            json.dumps(
                {
                    "pid": self.pid,
                    "token": self.token,
                    "url": self.url,
                    "socket_dir": self.socket_dir,
                    "groups": self.groups,
                    "members": [m.stored() for m in self.members],
                },
                indent=1,
            ),
            encoding="utf-8",
        )
        fresh.replace(self.path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The state of the last supervisor; None where there is none or it cannot be read."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            members = [
                Known(int(m["pid"]), float(m["create_time"]), str(m["name"])) for m in found["members"]
            ]
            groups = [int(g) for g in found["groups"]]
            return cls(
                path,
                pid=int(found["pid"]),
                token=str(found["token"]),
                url=str(found["url"]),
                socket_dir=str(found["socket_dir"]),
                groups=groups,
                members=members,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


# ------------------------------------------------------------------------------------------- processes


def _token_of(process: psutil.Process) -> str | None:
    """The supervisor's token in a process's environment; empty where it has none, None where unreadable."""
    try:
        return str(process.environ().get(TOKEN_VARIABLE, ""))
    except (psutil.AccessDenied, OSError):
        return None


def leftovers(state: State) -> list[psutil.Process]:
    """The processes of an earlier supervisor that still live.

    A process counts if it was recorded (id and start time) or belongs to a recorded process group, and in
    either case carries the token of that supervisor. Any other is not touched, whatever its id.
    """
    recorded = {m.pid: m.create_time for m in state.members}
    found = []
    for process in psutil.process_iter():
        try:
            then = recorded.get(process.pid)
            same = then is not None and abs(process.create_time() - then) <= START_TIME_TOLERANCE_SECONDS
            if not same and os.getpgid(process.pid) not in state.groups:
                continue
            if process.status() != psutil.STATUS_ZOMBIE and _token_of(process) == state.token != "":
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def end_processes(processes: list[psutil.Process], patience_seconds: float) -> list[psutil.Process]:
    """Ask processes to end, then make them; return those that are still there (none, normally)."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience_seconds)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    _, alive = psutil.wait_procs(alive, timeout=patience_seconds)
    return alive


def clean_up(state_path: Path, say: Callable[[str], None]) -> None:
    """End what a supervisor that was killed left behind. The caller holds the home's lock."""
    state = State.read(state_path)
    if state is None:
        return
    left = leftovers(state)
    if left:
        say(f"ending {len(left)} processes that an earlier `oracle dev` of this home left behind")
        if stubborn := end_processes(left, STOP_PATIENCE_SECONDS):
            raise DevError(
                f"The processes {', '.join(str(p.pid) for p in stubborn)} of an earlier `oracle dev` do not "
                "end. End them by hand (kill -9), then start again."
            )
    folder = Path(state.socket_dir)
    if state.socket_dir != "" and folder.name.startswith("oracle-dev-"):
        shutil.rmtree(folder, ignore_errors=True)
    state_path.unlink(missing_ok=True)


def running(home: Home) -> str | None:
    """The address of the user interface of the supervisor that has this home; None where there is none."""
    folder = home.path / "dev"
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        state = State.read(folder / "state.json")
        return None if state is None else state.url
    except OSError:
        return None
    return None


# ------------------------------------------------------------------------------------------------ ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _taken(port: int) -> DevError:
    return DevError(
        f"Port {port} on {HOST} is taken by another program. Choose another with --port, or leave --port out "
        "to get a free one."
    )


def choose_port(wanted: int | None) -> int:
    """The wanted port, else 3000 where it is free, else any free one.

    Raises:
        DevError: the wanted port is taken.
    """
    if wanted is not None:
        if not _is_free(wanted):
            raise _taken(wanted)
        return wanted
    if _is_free(PREFERRED_PORT):
        return PREFERRED_PORT
    return _any_port()


def claim_port(wanted: int | None) -> tuple[int, socket.socket]:
    """A port as `choose_port`, and the claim to it, which the caller keeps open.

    The user interface takes the port only seconds later, and another supervisor that starts meanwhile must
    not choose the same: the claim is the UDP port of that number.

    Raises:
        DevError: the wanted port is taken or claimed.
    """
    port = choose_port(wanted)
    while True:
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((HOST, port))
        except OSError:
            claim.close()
            if wanted is not None:
                raise _taken(wanted) from None
            port = _any_port()
        else:
            return port, claim


# ------------------------------------------------------------------------------------------- supervisor


class Supervisor:
    """The children of one home; use `run`."""

    def __init__(self, home: Home, *, port: int | None, say: Callable[[str], None]) -> None:
        """Name what is supervised; nothing is started before `run`.

        Args:
            home: whose code location, database and user interface are served.
            port: of the user interface on 127.0.0.1; None for 3000 or any free one.
            say: told each event in one line.
        """
        self.home = home
        self.folder = home.path / "dev"
        self._say = say
        self._wanted_port = port
        self._children: list[Child] = []
        self._state = State(self.folder / "state.json")
        self._stop_signals = 0
        self._blocking = False
        self._announced = False
        self._instance: DagsterInstance | None = None
        self._database_trouble = ""
        self._database_pid: int | None = None
        self._runs_trouble = ""

    def run(self) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP.

        Raises:
            DevError: another supervisor has this home, or the port is taken.
            HomeError, EmbeddedPostgresError: the home or its database cannot be used.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # What goes wrong is told once, in a line; the libraries would warn at every attempt, in five.
        logging.getLogger().addHandler(logging.NullHandler())
        with self._lock(), self._signals() as wake:
            clean_up(self._state.path, self._say)
            port, claim = claim_port(self._wanted_port)
            with (
                claim,
                contextlib.suppress(_Interrupted),
                self._interruptible(),
                self.home.connect(self._say) as opened,
            ):
                self._prepare(opened)
                self._blocking = False
                self._serve(opened, port, wake)

    # ------------------------------------------------------------------ set-up

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the home for one supervisor; the kernel releases it however this process ends."""
        with (self.folder / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = State.read(self._state.path)
                where = f" as process {other.pid}, at {other.url}" if other is not None else ""
                raise DevError(
                    f"`oracle dev` already runs for the home {self.home.path}{where}. Use that one, end it "
                    "with Ctrl-C, or name another home with --home."
                ) from None
            yield

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Count stop signals; yields a descriptor that becomes readable with each signal."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)

        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stop_signals += 1
            if self._blocking:
                self._blocking = False
                raise _Interrupted

        old_wake = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        old = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield reader
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_wake)
            os.close(reader)
            os.close(writer)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Within, a stop signal breaks off what is waited for."""
        self._blocking = True
        try:
            if self._stop_signals > 0:
                raise _Interrupted
            yield
        finally:
            self._blocking = False

    def _prepare(self, connections: Connections) -> None:
        """Bring the tables up to date and write the orchestrator's configuration."""
        from oracle_dagster.storage.database import Database
        from oracle_dagster.storage.migrate import upgrade

        database = Database(connections.domain_url)
        upgrade(database)
        database.close()
        if connections.embedded:
            self._database_pid = self.home.postgres().status().pid
        self.home.write_dagster_yaml()
        os.environ.update(self.home.environment(connections))

    def _socket_dir(self) -> Path:
        """A new private folder for the code server's socket, short enough for a socket's address."""
        prefix = f"oracle-dev-{host_name()}-"
        for base in (None, "/tmp"):  # noqa: S108 - mkdtemp makes a private folder in it
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            if len(os.fsencode(folder / "code.sock")) <= MAX_SOCKET_PATH_BYTES:
                return folder
            folder.rmdir()
        raise DevError(
            "The folder for temporary files and the host's name make an address too long for a socket "
            f"({prefix}). Set TMPDIR to a shorter folder."
        )

    def _define(self, port: int) -> Path:
        """Name the three programs; returns the code server's socket."""
        folder = self._socket_dir()
        code_socket = folder / "code.sock"
        workspace = self.folder / "workspace.yaml"
        workspace.write_text(
            "# Written by `oracle dev` at each start.\n"
            f"load_from:\n  - grpc_server:\n      socket: {json.dumps(str(code_socket))}\n"
            f"      location_name: {LOCATION}\n",
            encoding="utf-8",
        )
        logs = self.home.logs_dir
        logs.mkdir(parents=True, exist_ok=True)
        place = ("-w", str(workspace))
        code: tuple[str, ...] = (
            "code-server",
            "start",
            "-m",
            DEFINITIONS,
            "-a",
            "defs",
            "-d",
            str(self.folder),
        )
        code += ("--location-name", LOCATION, "--socket", str(code_socket), "--log-level", "warning")
        self._children = [
            Child("code server", ("dagster", *code), logs / "code-server.log"),
            Child(
                "webserver",
                ("dagster_webserver", "-h", HOST, "-p", str(port), *place),
                logs / "webserver.log",
            ),
            Child("daemon", ("dagster._daemon", "run", *place), logs / "daemon.log"),
        ]
        self._state.pid = os.getpid()
        self._state.token = secrets.token_hex(16)
        self._state.url = f"http://{HOST}:{port}"
        self._state.socket_dir = str(folder)
        self._state.write()
        return code_socket

    # ------------------------------------------------------------------ life

    def _serve(self, connections: Connections, port: int, wake: int) -> None:
        code_socket = self._define(port)
        self._say(f"starting the user interface on {self._state.url} (logs in {self.home.logs_dir})")
        try:
            self._start(self._children[0])
            self._mark_lost_runs(connections)  # while the code server loads
            self._loop(connections, code_socket, wake)
        finally:
            self._blocking = False
            self._end_children()
            self._mark_lost_runs(connections, servers_ended=True)
            if self._instance is not None:
                self._instance.dispose()
            shutil.rmtree(code_socket.parent, ignore_errors=True)
            self._state.path.unlink(missing_ok=True)

    def _loop(self, connections: Connections, code_socket: Path, wake: int) -> None:
        patience_ends = time.monotonic() + SERVER_PATIENCE_SECONDS
        database_at = time.monotonic() + DATABASE_EVERY_SECONDS
        runs_at = time.monotonic() + RUNS_EVERY_SECONDS
        waiting_for_code = True
        while self._stop_signals == 0:
            now = time.monotonic()
            if waiting_for_code and (_answers(code_socket) or now > patience_ends):
                waiting_for_code = False
                for child in self._children[1:]:
                    self._start(child)
            for child in self._children[: 1 if waiting_for_code else None]:
                self._look_after(child)
            self._record_members()
            if not self._announced and not waiting_for_code:
                self._announce()
            if now >= database_at:
                database_at = now + DATABASE_EVERY_SECONDS
                self._look_after_database(connections)
            if now >= runs_at:
                runs_at = now + RUNS_EVERY_SECONDS
                self._mark_lost_runs(connections)
            select.select([wake], [], [], TICK_SECONDS)

    def _start(self, child: Child) -> None:
        """Start a program in a process group of its own, attached to this process."""
        if child.log.exists() and child.log.stat().st_size > MAX_LOG_BYTES:
            child.log.replace(child.log.with_suffix(".log.1"))
        environment = {
            **os.environ,
            TOKEN_VARIABLE: self._state.token,
            "PYTHONUNBUFFERED": "1",
        }
        # The orchestrator drops the first place it may import from; only without this it is the folder below.
        environment.pop("PYTHONSAFEPATH", None)
        attach = (sys.executable, "-I", "-S", "-c", _ATTACH, str(os.getpid()))
        with child.log.open("ab") as log:
            child.process = subprocess.Popen(
                [*attach, sys.executable, "-m", *child.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,  # not the user's: a file there named like a library would be imported
                env=environment,
                start_new_session=True,
            )
        child.started_at = time.time()
        child.start_at = 0.0
        self._state.groups = sorted({*self._state.groups, child.process.pid})
        self._record_members(force=True)

    def _look_after(self, child: Child) -> None:
        """Notice a death, and start the program again after a pause that doubles."""
        now = time.monotonic()
        if child.process is not None and child.process.poll() is not None:
            code, lived = child.process.returncode, time.time() - child.started_at
            self._end_group(child)  # what a dead program started must not work on unsupervised
            child.process = None
            child.failures = 1 if lived >= CALM_SECONDS else child.failures + 1
            pause = min(MAX_BACKOFF_SECONDS, 2.0 ** (child.failures - 1))
            child.start_at = now + pause
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            self._say(f"the {child.name} ended {how} after {lived:.0f} s; starting it again in {pause:.0f} s")
            for line in _tail(child.log):
                self._say(f"  {child.log.name}: {line}")
        elif child.process is None and now >= child.start_at:
            self._start(child)

    def _end_group(self, child: Child) -> None:
        pid = child.pid
        if pid is not None and (left := self._group({pid})):
            end_processes(left, STOP_PATIENCE_SECONDS)

    def _group(self, groups: set[int]) -> list[psutil.Process]:
        """The living members of process groups that this supervisor made."""
        found = []
        for pid in psutil.pids():
            try:
                if os.getpgid(pid) in groups:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
            except (OSError, psutil.Error):
                continue
        return found

    def _record_members(self, *, force: bool = False) -> None:
        """Write down every process of the children's groups, for a successor."""
        alive = {c.pid for c in self._children if c.pid is not None}
        known = {(m.pid, m.name): m for m in self._state.members}
        members = []
        for process in self._group(alive):
            with contextlib.suppress(psutil.Error, OSError):  # it may have ended since it was found
                group = os.getpgid(process.pid)
                name = next(c.name for c in self._children if c.pid == group)
                members.append(
                    known.get((process.pid, name)) or Known(process.pid, process.create_time(), name)
                )
        if force or {m.pid for m in members} != {m.pid for m in self._state.members}:
            self._state.members = members
            self._state.groups = sorted(alive)
            self._state.write()

    def _end_children(self) -> None:
        """Ask every group to end, then make it; a second signal makes it at once."""
        groups = {c.pid for c in self._children if c.pid is not None}
        patience_ends = time.monotonic() + STOP_PATIENCE_SECONDS
        asked = self._stop_signals
        if groups:
            self._say("ending")
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGTERM)
        while (
            time.monotonic() < patience_ends and self._stop_signals <= max(asked, 1) and self._alive(groups)
        ):
            time.sleep(0.05)
        for process in self._group(groups):
            with contextlib.suppress(psutil.Error):
                process.kill()
        while self._alive(groups) and time.monotonic() < patience_ends + STOP_PATIENCE_SECONDS:
            time.sleep(0.05)

    def _alive(self, groups: set[int]) -> bool:
        for child in self._children:
            if child.process is not None:
                child.process.poll()  # collects the dead
        return len(self._group(groups)) > 0

    # ------------------------------------------------------------------ what is told and mended

    def _announce(self) -> None:
        """Say the address once the user interface answers, and what is wrong with the definitions."""
        try:
            answer = httpx.post(
                f"{self._state.url}/graphql", json={"query": _QUERY}, timeout=5.0, trust_env=False
            )
            found = answer.json()["data"]["workspaceOrError"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return
        entries = found.get("locationEntries", [])
        if any(e["loadStatus"] == "LOADING" for e in entries):
            return
        self._announced = True
        for problem in [found, *(e.get("locationOrLoadError") or {} for e in entries)]:
            if problem.get("__typename") == "PythonError":
                self._say(f"the definitions do not load: {problem['message'].strip().splitlines()[-1]}")
        self._say(f"ready: {self._state.url} (Ctrl-C ends it)")

    def _look_after_database(self, connections: Connections) -> None:
        if connections.lease is None:
            return
        try:
            with self._interruptible():
                connections.lease.ensure_running()
        except Exception as error:  # noqa: BLE001 - whatever it is, trying again is right; it is told once
            trouble = " ".join(str(error).split())
            if trouble != self._database_trouble:
                self._say(f"the database does not run: {trouble}")
            self._database_trouble = trouble
            return
        pid = self.home.postgres().status().pid
        if self._database_trouble != "" or self._database_pid not in (None, pid):
            self._say("the database had ended and was started again")
        self._database_trouble, self._database_pid = "", pid

    def _mark_lost_runs(self, connections: Connections, *, servers_ended: bool = False) -> None:
        def started(path: str) -> float | None:
            if path != str(Path(self._state.socket_dir) / "code.sock"):
                return None
            return time.time() if servers_ended else self._children[0].started_at

        try:
            if self._instance is None:
                from dagster import DagsterInstance

                self._instance = DagsterInstance.from_config(str(self.home.dagster_dir))
            lost = lost_runs(
                self._instance, only_local_database=connections.embedded, code_server_started=started
            )
            for run_id in report_lost(self._instance, lost):
                self._say(f"run {run_id} has lost its worker and is marked as failed")
            self._runs_trouble = ""
        except Exception as error:  # noqa: BLE001 - the database may be away for a moment; it is told once
            trouble = type(error).__name__
            if trouble != self._runs_trouble:
                self._say(f"cannot look for runs that lost their worker: {trouble}: {str(error)[:200]}")
            self._runs_trouble = trouble


def _answers(path: Path) -> bool:
    """Whether something accepts connections on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _tail(log: Path, lines: int = 5) -> list[str]:
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 4_000))
            text = stream.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip() != ""][-lines:]
