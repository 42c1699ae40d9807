"""The embedded server: who shares it, when it stops, and what it survives (storage in the specification)."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from oracle_dagster import embedded_postgres
from oracle_dagster.embedded_postgres import (
    LINGER_VARIABLE,
    ClusterVersionError,
    DiskFullError,
    EmbeddedPostgres,
    EmbeddedPostgresError,
    HomeNotWritableError,
    ServerAccountError,
    ServerStartError,
    ServerTimeoutError,
    SocketFolderError,
)

REPOSITORY = Path(__file__).resolve().parent.parent
ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="needs root: it is about what root may do")
as_ordinary_user = pytest.mark.skipif(ROOT, reason="runs as an ordinary user only")

# A program that uses the server until its input ends.
USER = """
import sys
from pathlib import Path
from oracle_dagster.embedded_postgres import EmbeddedPostgres
lease = EmbeddedPostgres(Path(sys.argv[1])).acquire()
print(lease.url("oracle"), flush=True)
sys.stdin.read()
"""
# A program that uses the server a few times in a row, each time from nothing.
COMMANDS = """
import sys
import psycopg
from pathlib import Path
from oracle_dagster.embedded_postgres import EmbeddedPostgres
for _ in range(int(sys.argv[2])):
    with EmbeddedPostgres(Path(sys.argv[1])).acquire() as lease:
        with psycopg.connect(lease.url("oracle")) as connection:
            print(connection.execute("SELECT 1").fetchone(), flush=True)
"""
# A program that only says which error it got.
ATTEMPT = """
import sys
from pathlib import Path
from oracle_dagster.embedded_postgres import EmbeddedPostgres
try:
    with EmbeddedPostgres(Path(sys.argv[1])).acquire() as lease:
        print("started")
except Exception as error:
    print(type(error).__name__, error)
"""


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition with a deadline that only a hanging program reaches."""
    Retrying(retry=retry_if_result(lambda met: not met), stop=stop_after_delay(60), wait=wait_fixed(0.02))(
        condition
    )


def start(program: str, home: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start one of the programs above."""
    return subprocess.Popen(
        [sys.executable, "-c", program, str(home), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
    )


@dataclass
class Scene:
    """One home, its server, and the programs a test let loose on it."""

    home: Path
    programs: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def server(self) -> EmbeddedPostgres:
        return EmbeddedPostgres(self.home, startup_seconds=120)

    @property
    def pid(self) -> int | None:
        return self.server.status().pid

    def user(self, **environment: str) -> subprocess.Popen[str]:
        """Start a user and return when it has the server."""
        program = start(USER, self.home, **environment)
        self.programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline().startswith("postgresql://oracle@/oracle?host=")
        return program

    def keeper(self) -> psutil.Process:
        """The keeper, found by its command line."""
        words = ["keep", str(self.server.home)]
        for process in psutil.process_iter():
            try:
                if process.cmdline()[4:6] == words:
                    return process
            except psutil.Error:
                continue
        raise AssertionError("no keeper")

    def clear(self) -> None:
        for program in self.programs:
            program.kill()
            program.communicate()
        self.server.wait_until_stopped()


def sleep_briefly(_seconds: float) -> None:
    """Let ten minutes of patience pass in less than one, and the server still get its time."""
    time.sleep(0.02)


def ended(pid: int) -> bool:
    """Whether a process has ended, collected by its parent or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def leave(program: subprocess.Popen[str]) -> None:
    """Let a user end by itself."""
    program.communicate("")
    assert program.returncode == 0


@pytest.fixture(autouse=True)
def no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LINGER_VARIABLE, "0")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Scene]:
    """A home that does not exist yet."""
    scene = Scene(tmp_path / "home")
    yield scene
    scene.clear()
    shutil.rmtree(scene.home, ignore_errors=True)


@pytest.fixture(scope="session")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose server has run and was stopped: initdb takes a second, starting again a tenth of it."""
    scene = Scene(tmp_path_factory.mktemp("used") / "home")
    user = scene.user(**{LINGER_VARIABLE: "0"})
    with psycopg.connect(scene.server.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # no test pulls the plug
    leave(user)
    scene.server.wait_until_stopped()
    return scene.home


@pytest.fixture
def scene(used_home: Path) -> Iterator[Scene]:
    """A home with a data folder and no running server, shared by the tests that leave it like this."""
    scene = Scene(used_home)
    scene.server.log.write_bytes(b"")
    yield scene
    scene.clear()


@pytest.fixture
def own(empty: Scene, used_home: Path) -> Scene:
    """The same as a copy, for tests that change it."""
    shutil.copytree(used_home, empty.home, ignore=shutil.ignore_patterns("data", "socket_dir"))
    (empty.home / "pg").chmod((used_home / "pg").stat().st_mode & 0o777)
    subprocess.run(["cp", "-a", used_home / "pg" / "data", empty.home / "pg" / "data"], check=True)
    return empty


def test_both_databases_exist_after_the_first_start_in_utf8_and_the_c_locale(embedded_home: Path) -> None:
    """Sorting by a machine's language would make results differ between machines."""
    with psycopg.connect(EmbeddedPostgres(embedded_home).url("postgres")) as connection:
        found = connection.execute(
            "SELECT datname, pg_encoding_to_char(encoding), datcollate, datctype FROM pg_database"
            " WHERE datname IN ('oracle', 'dagster') ORDER BY datname"
        ).fetchall()
        assert connection.info.server_version // 10_000 == 18
        assert connection.info.user == "oracle"
    assert found == [("dagster", "UTF8", "C", "C"), ("oracle", "UTF8", "C", "C")]


def test_the_server_listens_on_a_private_socket_and_on_no_network_address(embedded_home: Path) -> None:
    status = EmbeddedPostgres(embedded_home).status()
    assert status.state == "running"
    assert status.pid is not None
    assert status.socket_dir is not None
    assert status.socket_dir.lstat().st_mode & 0o777 == 0o700
    assert (status.socket_dir / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700
    assert len(os.fsencode(status.socket_dir / ".s.PGSQL.5432.lock")) <= 100
    assert psutil.Process(status.pid).net_connections(kind="inet") == []


def test_one_address_serves_psycopg_psycopg2_sqlalchemy_and_arrow(database_url: str) -> None:
    import adbc_driver_postgresql.dbapi
    import sqlalchemy

    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for driver in ("psycopg", "psycopg2"):
        engine = sqlalchemy.create_engine(f"postgresql+{driver}" + database_url.removeprefix("postgresql"))
        with engine.connect() as alchemy:
            assert alchemy.execute(sqlalchemy.text("SELECT 1")).scalar_one() == 1
        engine.dispose()
    with adbc_driver_postgresql.dbapi.connect(database_url) as arrow, arrow.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)


def test_a_foreign_port_in_the_environment_does_not_lead_astray(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGHOST", "/nowhere")
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("how", [None, signal.SIGTERM, signal.SIGKILL])
def test_the_server_stays_for_the_other_user_and_stops_after_the_last(
    scene: Scene, how: signal.Signals | None
) -> None:
    """However a user ends, the kernel frees its lock; a list of process ids would keep the dead."""
    one, other = scene.user(), scene.user()
    pid = scene.pid
    assert pid is not None
    for user, last in ((one, False), (other, True)):
        if how is None:
            leave(user)
        else:
            user.send_signal(how)
            user.wait()
        if not last:
            with psycopg.connect(scene.server.url("oracle")) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            assert scene.pid == pid
    scene.server.wait_until_stopped()
    until(lambda: ended(pid))
    assert scene.server.status().state == "stopped"
    assert not scene.server.socket_dir.exists()
    assert "database system is shut down" in scene.server.log.read_text()  # in order, not killed


def test_leases_of_one_process_share_one_lock_and_the_last_one_frees_it(scene: Scene) -> None:
    first, second = scene.server.acquire(), scene.server.acquire()
    first.close()
    first.close()  # closing twice takes nothing from the other
    with psycopg.connect(second.url("oracle")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert scene.server.status().state == "running"
    second.close()
    scene.server.wait_until_stopped()
    with pytest.raises(EmbeddedPostgresError, match="has no lease"):
        scene.server.ensure_running()


def test_a_command_that_follows_soon_joins_the_lingering_server(scene: Scene) -> None:
    leave(scene.user(**{LINGER_VARIABLE: "600"}))
    pid = scene.pid
    leave(scene.user())
    assert scene.pid == pid
    assert pid is not None
    # The keeper would wait ten minutes; the next user brings one that does not.
    scene.keeper().kill()
    leave(scene.user())
    scene.server.wait_until_stopped()


def test_the_next_user_replaces_a_killed_keeper(scene: Scene) -> None:
    one = scene.user()
    pid = scene.pid
    scene.keeper().kill()
    until(lambda: not scene.server.status().keeper)
    other = scene.user()
    assert scene.server.status().keeper
    assert scene.pid == pid
    leave(one)
    leave(other)
    scene.server.wait_until_stopped()


def test_a_newcomer_waits_for_a_stopping_server_and_starts_it_anew(scene: Scene) -> None:
    """The keeper holds the users' lock exclusively while it stops the server; the test plays the keeper."""
    lock = os.open(scene.home / "pg" / "users.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    newcomer = start(USER, scene.home)
    scene.programs.append(newcomer)
    watched = psutil.Process(newcomer.pid)
    until(lambda: any(file.path.endswith("users.lock") for file in watched.open_files()))
    assert scene.server.status().state == "stopped"
    os.close(lock)
    assert newcomer.stdout is not None
    assert newcomer.stdout.readline().startswith("postgresql://")
    assert scene.server.status().state == "running"


def test_commands_that_start_and_stop_the_server_in_turn_never_meet_a_dying_one(scene: Scene) -> None:
    programs = [start(COMMANDS, scene.home, "4") for _ in range(3)]
    for program in programs:
        assert program.communicate()[0] == "(1,)\n" * 4
    scene.server.wait_until_stopped()


def test_four_first_starts_at_once_share_one_server(empty: Scene) -> None:
    programs = [start(USER, empty.home) for _ in range(4)]
    empty.programs += programs
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == f"{empty.server.url('oracle')}\n"
    text = empty.server.log.read_text()
    assert text.count("starting PostgreSQL 18") == 1
    assert text.count("creating configuration files ... ok") == 1


def test_a_killed_first_start_leaves_nothing_that_stops_the_next(empty: Scene) -> None:
    program = start(USER, empty.home)
    until(lambda: list((empty.home / "pg").glob("initdb-*/base")))
    program.kill()
    program.communicate()
    with empty.server.acquire() as lease, psycopg.connect(lease.url("dagster")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert list((empty.home / "pg").glob("initdb-*")) == []


def test_a_killed_server_is_started_again_with_its_data(scene: Scene) -> None:
    with scene.server.acquire() as lease:
        with psycopg.connect(lease.url("oracle")) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
        for again in (lease.ensure_running, lambda: scene.server.acquire().close()):
            pid = scene.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            again()
            assert scene.pid not in (None, pid)
            with psycopg.connect(lease.url("oracle")) as connection:
                assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_server_processes_that_outlive_their_postmaster_do_not_block_the_next_start(scene: Scene) -> None:
    """A backend stopped in the middle (here by SIGSTOP) keeps the shared memory of the dead server."""
    with scene.server.acquire() as lease:
        connection = psycopg.connect(lease.url("oracle"))
        backend, pid = connection.info.backend_pid, scene.pid
        assert pid is not None
        os.kill(backend, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        # The patience is counted in the seconds it meant to sleep, so sleeping less makes it pass quickly.
        EmbeddedPostgres(scene.home, sleep=sleep_briefly).ensure_running()
        assert scene.pid not in (None, pid)
        connection.close()


def test_a_recovery_that_takes_longer_than_a_minute_is_waited_for(scene: Scene) -> None:
    slept, said = 0.0, list[str]()

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        time.sleep(0.005)

    def ping(folder: Path) -> bool:  # the server accepts connections after two minutes only
        return slept > 120 and embedded_postgres.ping(folder)

    with EmbeddedPostgres(
        scene.home, progress=said.append, startup_seconds=3000, ping=ping, sleep=sleep
    ).acquire() as lease:
        assert slept > 120
        with psycopg.connect(lease.url("oracle")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    waits = [line for line in said if line.startswith("Waiting for the PostgreSQL server")]
    assert len(waits) >= 12
    assert "LOG:" in waits[-1]  # with the last thing the server said


def test_waiting_ends_at_the_limit_with_the_remedy(scene: Scene) -> None:
    server = EmbeddedPostgres(
        scene.home, startup_seconds=30, ping=lambda _folder: False, sleep=lambda _seconds: None
    )
    with pytest.raises(ServerTimeoutError, match=r"Waited 30 s for .*ORACLE_PG_STARTUP_SECONDS") as caught:
        server.acquire()
    assert str(scene.server.data_dir) in str(caught.value)


@pytest.mark.parametrize(
    "content", [None, b"", b"not a number\n", b"-5\n"], ids=["stranger", "empty", "text", "minus"]
)
def test_stale_files_of_a_server_long_gone_do_not_block_the_start(
    scene: Scene, content: bytes | None
) -> None:
    """The recorded process id may belong to somebody else by now: here, to a sleep of the same account."""
    stranger = scene.server._account(scene.server.data_dir).popen(["sleep", "600"], output=subprocess.DEVNULL)
    stale = content
    if stale is None:
        stale = f"{stranger.pid}\n{scene.server.data_dir}\n1\n5432\n\n\n\nready\n".encode()
    try:
        start_over_stale_files(scene, stale)
        assert stranger.poll() is None  # and it was left alone
    finally:
        stranger.kill()
        stranger.wait()


def start_over_stale_files(scene: Scene, stale: bytes) -> None:
    """Start the server over a stale process file, then over all stale files at once."""
    (scene.server.data_dir / "postmaster.pid").write_bytes(stale)
    with scene.server.acquire() as lease:
        folder = lease.socket_dir
    scene.server.wait_until_stopped()
    folder.mkdir(mode=0o700)
    owner = scene.server.data_dir.stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    (folder / ".s.PGSQL.5432").touch()
    (folder / ".s.PGSQL.5432.lock").write_bytes(stale)
    (scene.server.data_dir / "postmaster.pid").write_bytes(stale)
    with scene.server.acquire() as lease, psycopg.connect(lease.url("oracle")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_started_by_other_means_is_left_alone(scene: Scene) -> None:
    with scene.server.acquire():  # prepares the socket folder
        pass
    scene.server.wait_until_stopped()
    run_as = scene.server._account(scene.server.data_dir)
    folder = scene.server._prepare_socket_dir(run_as)
    run_as = scene.server._able(run_as, scene.server.data_dir, folder)
    command = [str(embedded_postgres.postgres_bin() / "postgres"), "-D", str(scene.server.data_dir)]
    command += ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}"]
    foreign = run_as.popen(command, output=subprocess.DEVNULL)
    until(lambda: scene.pid == foreign.pid)
    try:
        with pytest.raises(ServerStartError, match=rf"by other means \(process {foreign.pid}\).*kill -INT"):
            scene.server.acquire()
        assert foreign.poll() is None
    finally:
        foreign.send_signal(signal.SIGINT)
        foreign.wait()


# For a small machine and safe writes.
SETTINGS = {
    "lc_messages": "C",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "fsync": "on",
    "synchronous_commit": "on",
    "jit": "off",
    "TimeZone": "UTC",
}


@pytest.mark.parametrize(
    "name", ["it's 100 % of $HOME in Zürich", "long-" + "x" * 195], ids=["special", "200 characters"]
)
def test_any_path_and_any_language_setting_will_do(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path / name)
    scene.user(LANG="xx_YY.UTF-8", LC_ALL="xx_YY.UTF-8", LC_MESSAGES="xx_YY.UTF-8")
    try:
        with psycopg.connect(scene.server.url("oracle")) as connection:
            found = {
                name: connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in SETTINGS
            }
        assert found == {name: (value,) for name, value in SETTINGS.items()}
    finally:
        scene.clear()
    shutil.rmtree(scene.home)


def test_a_data_folder_of_another_major_version_is_refused_with_the_way_out(own: Scene) -> None:
    (own.server.data_dir / "PG_VERSION").write_text("17\n")
    with pytest.raises(ClusterVersionError) as caught:
        own.server.acquire()
    message = str(caught.value)
    assert f"The data folder {own.server.data_dir} was written by PostgreSQL 17" in message
    assert "brings PostgreSQL 18" in message
    assert "pg_dump" in message
    assert "move the folder away and ingest again" in message
    assert (own.server.data_dir / "PG_VERSION").read_text() == "17\n"  # untouched


def test_a_folder_that_is_no_data_folder_is_refused(empty: Scene) -> None:
    (empty.server.data_dir).mkdir(parents=True)
    (empty.server.data_dir / "holiday.jpg").touch()
    with pytest.raises(EmbeddedPostgresError, match="is not a PostgreSQL data folder"):
        empty.server.acquire()


def test_a_server_that_does_not_start_shows_the_end_of_its_log(own: Scene) -> None:
    with (own.server.data_dir / "postgresql.conf").open("a") as settings:
        settings.write("shared_buffers = lots\n")
    with pytest.raises(
        ServerStartError, match='invalid value for parameter "shared_buffers": "lots"'
    ) as caught:
        own.server.acquire()
    assert str(own.server.log) in str(caught.value)


def test_a_home_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeNotWritableError, match=r"file/home cannot be used by .*Set ORACLE_HOME"):
        EmbeddedPostgres(tmp_path / "file" / "home").acquire()


def in_own_mounts(script: str, *arguments: str) -> str:
    """Run a shell script in which mounting concerns nobody else, and return what it printed."""
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0
    ):
        pytest.skip("mounting in a namespace of one's own is not allowed here (unshare -m)")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", script, "sh", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    return done.stdout


@as_root
@pytest.mark.parametrize("megabytes", [20, 38, 40])
def test_a_full_disk_is_named_with_the_remedy(tmp_path: Path, megabytes: int) -> None:
    """20 MB do not hold the data folder, 38 and 40 MB hold it but not the databases made in it."""
    (tmp_path / "home").mkdir()
    mount = f'mount -t tmpfs -o size={megabytes}m tmpfs "$1"; "$2" -c "$3" "$1"'
    printed = in_own_mounts(mount, str(tmp_path / "home"), sys.executable, ATTEMPT)
    assert printed.startswith(DiskFullError.__name__), printed
    assert f"The disk under {tmp_path / 'home'} is full" in printed
    assert "set ORACLE_HOME to a folder on another disk" in printed


@as_root
def test_a_read_only_disk_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    mount = 'mount -t tmpfs -o ro tmpfs "$1"; "$2" -c "$3" "$1"'
    printed = in_own_mounts(mount, str(tmp_path / "home"), sys.executable, ATTEMPT)
    assert printed.startswith(f"{HomeNotWritableError.__name__} The home {tmp_path / 'home'} cannot be used")
    assert "Read-only file system" in printed


@as_root
def test_the_server_starts_without_usable_shared_memory_files(scene: Scene) -> None:
    """Some containers and sandboxes restrict /dev/shm."""
    mount = 'mount -t tmpfs -o ro tmpfs /dev/shm; "$2" -c "$3" "$1" 1'
    assert in_own_mounts(mount, str(scene.home), sys.executable, COMMANDS) == "(1,)\n"
    scene.server.wait_until_stopped()
    assert scene.server.log.read_text().count("could not open shared memory segment") == 1


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_a_socket_folder_prepared_by_somebody_else_is_refused(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """/tmp is everybody's: whoever owns the folder could put a false server there."""
    with scene.server.acquire() as lease:
        folder = lease.socket_dir
    scene.server.wait_until_stopped()
    if kind == "link":
        folder.symlink_to(tmp_path)
    elif kind == "open":
        folder.mkdir()
        folder.chmod(0o777)
        owner = scene.server.data_dir.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
    else:
        folder.touch(mode=0o700)
    try:
        with pytest.raises(SocketFolderError, match=r"must be a folder .* with mode 700"):
            scene.server.acquire()
    finally:
        folder.rmdir() if kind == "open" else folder.unlink()


@as_root
def test_a_socket_folder_of_another_account_is_refused(scene: Scene) -> None:
    with scene.server.acquire() as lease:
        folder = lease.socket_dir
    scene.server.wait_until_stopped()
    folder.mkdir(mode=0o700)
    os.chown(folder, 4711, 4711)
    try:
        with pytest.raises(SocketFolderError, match="of uid 4711"):
            scene.server.acquire()
    finally:
        folder.rmdir()


def test_a_long_temporary_folder_is_avoided(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scene.home / "pg" / "socket_dir").unlink()  # else the recorded folder is taken again
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(deep))
    with scene.server.acquire() as lease:
        assert len(os.fsencode(lease.socket_dir / ".s.PGSQL.5432.lock")) <= 100


def test_a_deleted_socket_is_told_from_a_server_that_starts(scene: Scene) -> None:
    user = scene.user()
    (scene.server.socket_dir / ".s.PGSQL.5432").unlink()
    with pytest.raises(SocketFolderError, match=r"its socket in .* was deleted"):
        EmbeddedPostgres(scene.home, sleep=sleep_briefly).acquire()
    leave(user)
    scene.server.wait_until_stopped()


def test_a_home_made_anew_while_the_old_one_is_held_gets_its_own_server(own: Scene) -> None:
    with own.server.acquire():
        old = own.pid
        own.home.rename(own.home.with_name("moved away"))
        with own.server.acquire() as lease, psycopg.connect(lease.url("dagster")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert own.pid not in (None, old)
    assert old is not None
    os.kill(old, signal.SIGINT)  # its keeper cannot find it any more; PostgreSQL itself ends within a minute
    until(lambda: ended(old))
    shutil.rmtree(own.home.with_name("moved away"))


def test_a_large_log_is_put_aside_at_the_next_start(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_postgres, "MAX_LOG_BYTES", 10)
    scene.server.log.write_text("more than ten bytes\n")
    scene.server.acquire().close()
    assert scene.server.log.with_suffix(".log.1").read_text().startswith("more than ten bytes\n")
    assert "starting PostgreSQL 18" in scene.server.log.read_text()


def test_looking_at_a_home_without_a_server_creates_nothing(tmp_path: Path) -> None:
    status = EmbeddedPostgres(tmp_path / "nothing").status()
    assert (status.state, status.pid, status.socket_dir, status.keeper) == ("absent", None, None, False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EmbeddedPostgresError, match="was never started"):
        EmbeddedPostgres(tmp_path / "nothing").url("oracle")


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_a_wrong_grace_period_is_named(empty: Scene, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(LINGER_VARIABLE, value)
    with pytest.raises(EmbeddedPostgresError, match=f"ORACLE_PG_LINGER_SECONDS is '{value}'"):
        empty.server.acquire()


@as_root
def test_as_root_the_server_runs_as_an_unprivileged_account(embedded_home: Path) -> None:
    status = EmbeddedPostgres(embedded_home).status()
    assert status.pid is not None
    account = psutil.Process(status.pid).username()
    assert account in ("postgres", "nobody")
    assert status.data_dir.owner() == account
    assert status.socket_dir is not None
    assert status.socket_dir.owner() == account


@as_root
def test_as_root_a_home_in_a_closed_folder_works_by_one_capability(scene: Scene) -> None:
    """/root is closed to others; the server's account gets the right to pass and read, no more."""
    scene.home.parent.chmod(0o700)
    with scene.server.acquire():
        capabilities = Path(f"/proc/{scene.pid}/status").read_text()
    assert "CapEff:\t0000000000000004\n" in capabilities  # CAP_DAC_READ_SEARCH alone


@as_root
def test_as_root_a_closed_folder_without_setpriv_is_named_with_the_remedy(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.home.parent.chmod(0o700)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ServerAccountError, match=r"cannot reach .*chmod o\+x, or install setpriv") as caught:
        scene.server.acquire()
    assert str(scene.server.data_dir) in str(caught.value)


@as_root
def test_as_root_a_data_folder_of_root_is_refused_with_the_remedy(own: Scene) -> None:
    os.chown(own.server.data_dir, 0, 0)
    with pytest.raises(ServerAccountError, match=r"belongs to root.*chown -R"):
        own.server.acquire()


@pytest.fixture
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """A folder of the account ``nobody`` and the words that run a command as it."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("needs setpriv (package util-linux) to become an ordinary user")
    account = pwd.getpwnam("nobody")
    folder = Path("/tmp") / f"oracle-ordinary-{os.getpid()}"
    folder.mkdir(mode=0o755)
    os.chown(folder, account.pw_uid, account.pw_gid)
    words = [setpriv, f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    probe = [*words, "sh", "-c", f'"$0" -c "import {embedded_postgres.__name__}"', sys.executable]
    if subprocess.run(probe, check=False, capture_output=True, cwd=REPOSITORY).returncode != 0:
        # Python or the clone lies below a folder closed to others: this user may read there, nothing else.
        words += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    yield folder, words
    shutil.rmtree(folder)


def attempt(words: list[str], home: Path) -> str:
    done = subprocess.run(
        [*words, sys.executable, "-c", ATTEMPT, str(home)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.stdout


@as_root
def test_an_ordinary_user_runs_the_server_under_the_own_account(ordinary: tuple[Path, list[str]]) -> None:
    folder, words = ordinary
    assert attempt(words, folder / "home") == "started\n"
    server = EmbeddedPostgres(folder / "home")
    server.wait_until_stopped()
    assert server.data_dir.owner() == "nobody"
    # Root joins in without taking the home away from its owner.
    with server.acquire():
        pid = server.status().pid
        assert pid is not None
        assert psutil.Process(pid).username() == "nobody"
    server.wait_until_stopped()
    assert attempt(words, folder / "home") == "started\n"
    server.wait_until_stopped()


@as_root
def test_an_ordinary_user_is_told_about_a_home_of_somebody_else(ordinary: tuple[Path, list[str]]) -> None:
    folder, words = ordinary
    folder.chmod(0o555)
    os.chown(folder, 0, 0)
    printed = attempt(words, folder / "home")
    assert printed.startswith(
        f"{HomeNotWritableError.__name__} The home {folder / 'home'} cannot be used by nobody"
    )
    assert "Set ORACLE_HOME to a folder you may write to" in printed


@as_ordinary_user
def test_the_server_runs_under_the_own_account(embedded_home: Path) -> None:
    status = EmbeddedPostgres(embedded_home).status()
    assert status.pid is not None
    assert psutil.Process(status.pid).uids().real == os.getuid()
