"""What is wrong with an installation and its home, each finding with its remedy.

Looks only; mends nothing.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import sqlalchemy as sa
from packaging.requirements import Requirement

from oracle_dagster.storage import configuration, migrate, schema
from oracle_dagster.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import LiteralString

    from dagster import DagsterInstance

    from oracle_dagster.home import Connections, Home

DISTRIBUTION: Final = "oracle-pipeline"
PYTHONS: Final = ((3, 11), (3, 14))
LOW_DISK_BYTES: Final = 2_000_000_000
FULL_DISK_BYTES: Final = 200_000_000
LONG_TRANSACTION_SECONDS: Final = 300
HEARTBEAT_SECONDS: Final = 300
QUEUE_SECONDS: Final = 600
EVENT_BYTES_PER_DAY: Final = 1_000_000_000
DAYS_OF_ROOM: Final = 14
SHOWN: Final = 5
SHOWN_CHARACTERS: Final = 80
COUNTED_ROWS: Final = 10_000
_INPUTS: Final = (
    schema.document_intelligence,
    schema.document_impact_records,
    schema.market_bars,
    schema.macro_events,
    schema.exposure_profiles,
    schema.competitive_edges,
)
# Whatever has a transaction id keeps everything begun after it from counting as settled, in any database.
_WRITERS: Final = """
    SELECT a.backend_xid::text::bigint AS xid, a.pid, a.datname, coalesce(a.usename, '') AS usename,
           coalesce(nullif(a.application_name, ''), 'no name') AS application, a.state, a.xact_start AS began,
           coalesce(a.query, '') AS query, '' AS prepared
    FROM pg_stat_activity a
    WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid()
    UNION ALL
    SELECT p.transaction::text::bigint, NULL, p.database, p.owner, 'no process', 'prepared', p.prepared,
           '', p.gid
    FROM pg_prepared_xacts p
    ORDER BY began, xid"""


class Verdict(StrEnum):
    """How bad a finding is; only ``broken`` makes the command fail."""

    OK = "ok"
    NOTICE = "notice"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def _ok(check: str, found: str) -> Finding:
    return Finding(check, Verdict.OK, found)


def _notice(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, Verdict.NOTICE, found, remedy)


def _broken(check: str, found: str, remedy: str) -> Finding:
    return Finding(check, Verdict.BROKEN, found, remedy)


def examine(
    home: Home, *, say: Callable[[str], None], low_disk_bytes: int = LOW_DISK_BYTES
) -> Iterator[Finding]:
    """Look at everything, in an order in which a failure explains those after it.

    Args:
        home: the home to look at; it is not created.
        say: told what is being waited for.
        low_disk_bytes: from how little free space on a notice is given.
    """
    yield python()
    yield libraries()
    yield code_location()
    yield writable(home)
    yield disk(home, low_disk_bytes)
    with contextlib.ExitStack() as stack:
        try:
            connections = stack.enter_context(home.connect(say)) if _has_database(home) else None
        except Exception as error:  # noqa: BLE001 - the failure is the finding
            yield _from_error("database", error)
            return
        if connections is None:
            yield _broken("database", f"the home {home.path} has none yet", "run `oracle init`")
            return
        database = Database(connections.domain_url)
        stack.callback(database.close)
        looks = (server, tables, active_configuration, applied, rejected, names, long_transactions)
        for look in looks:
            yield _guarded(look.__name__.replace("_", " "), functools.partial(look, database))
        yield from _orchestrator(home, connections, database, stack)


def _has_database(home: Home) -> bool:
    import os

    from oracle_dagster.home import DATABASE_VARIABLE

    return os.environ.get(DATABASE_VARIABLE, "") != "" or home.pg_dir.exists()


def _guarded(check: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - whatever goes wrong while looking is what is wrong
        return _from_error(check, error)


def _from_error(check: str, error: BaseException) -> Finding:
    """The error as a finding; its remedy, where it names one, apart."""
    found, _, remedy = _one_line(error).partition(" Remedy: ")
    return _broken(check, found, remedy.rstrip(".") or "see the message")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__


# ---------------------------------------------------------------------------------------- installation


def python() -> Finding:
    """The interpreter's version."""
    have = sys.version_info[:2]
    found = f"Python {'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"
    if PYTHONS[0] <= have <= PYTHONS[1]:
        return _ok("python", found)
    return _broken("python", found, "use Python 3.11 to 3.14: `make venv PYTHON=/path/to/python3.13`")


def libraries() -> Finding:
    """Whether every library is there in a version that is asked for, and in the one that was tested."""
    wrong, pins = [], _pins()
    other = []
    for text in metadata.requires(DISTRIBUTION) or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            have = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name} is missing")
            continue
        pin = pins.get(_canonical(wanted.name))
        if not wanted.specifier.contains(have, prereleases=True):
            wrong.append(f"{wanted.name} {have} (wanted {wanted.specifier})")
        elif pin is not None and have not in pin:
            other.append(f"{wanted.name} {have} (tested {' or '.join(sorted(pin))})")
    if wrong:
        return _broken(
            "libraries", "; ".join(wrong), "install the dependencies again, in a clone with `make venv`"
        )
    if other:
        return _notice("libraries", "; ".join(other), "`make venv` installs the tested versions")
    return _ok("libraries", f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)} and all it needs")


def _pins() -> dict[str, set[str]]:
    """The tested versions by library, where this runs from a clone."""
    file = Path(__file__).resolve().parent.parent / "constraints.txt"
    found: dict[str, set[str]] = {}
    if file.is_file():
        for name, version in re.findall(
            r"^([\w.-]+)==([^\s;]+)", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            found.setdefault(_canonical(name), set()).add(version)
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def code_location() -> Finding:
    """Whether the definitions load."""
    try:
        from dagster import Definitions

        from oracle_dagster.definitions import defs

        Definitions.validate_loadable(defs)
        keys = defs.resolve_asset_graph().get_all_asset_keys()
    except Exception as error:  # noqa: BLE001 - the failure is the finding
        return _broken("code location", _one_line(error), "install the dependencies again (`make venv`)")
    return _ok("code location", f"loads, {len(keys)} assets")


# ------------------------------------------------------------------------------------------------ home


def writable(home: Home) -> Finding:
    """Whether files can be made in the home."""
    try:
        with tempfile.NamedTemporaryFile(dir=home.path):
            return _ok("home", f"{home.path} is writable")
    except FileNotFoundError:
        return _broken(
            "home", f"{home.path} does not exist", "run `oracle init`, or name another with ORACLE_HOME"
        )
    except OSError as error:
        return _broken(
            "home",
            f"{home.path}: {error.strerror}",
            "make it writable for this user, or name another with ORACLE_HOME",
        )


def disk(home: Home, low: int = LOW_DISK_BYTES, full: int = FULL_DISK_BYTES) -> Finding:
    """Free space under the home, against limits in bytes."""
    place = next(p for p in (home.path, *home.path.parents) if p.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free under {home.path}"
    freeing = "`oracle prune --older-than 90d` removes old results and events"
    if free < full:
        remedy = f"free some space, or move the home to another disk; {freeing}"
        return _broken("disk space", f"{found}: full", remedy)
    if free < low:
        return _notice(
            "disk space", found, f"free some space soon: a full disk stops the database; {freeing}"
        )
    return _ok("disk space", found)


# -------------------------------------------------------------------------------------------- database


def server(database: Database) -> Finding:
    """Whether the database answers, and what it is."""
    with database.begin() as connection:
        version = connection.execute(sa.text("SHOW server_version")).scalar_one()
        recovering = connection.execute(sa.text("SELECT pg_is_in_recovery()")).scalar_one()
    if recovering:
        return _broken(
            "server", f"PostgreSQL {version}, read-only", "point ORACLE_DATABASE_URL at the primary server"
        )
    return _ok("server", f"PostgreSQL {version}, {database.place}")


def tables(database: Database) -> Finding:
    """Whether the tables are those of this version."""
    migrate.check(database)
    return _ok("tables", "up to date")


def active_configuration(database: Database) -> Finding:
    """Whether a configuration is active and can be used."""
    found = configuration.active(database)
    return _ok(
        "configuration", f"version {found.version} is active, {found.config.pipeline_mode.value} rules"
    )


def applied(database: Database) -> Finding:
    """Whether every configuration that a plan made active was also computed to its end."""
    from oracle_dagster.storage import applications

    waiting = applications.unfinished(database)
    if not waiting:
        return _ok("applied", "every applied plan was computed to its end")
    listed = "; ".join(
        f"version {one.config_version} as of {one.as_of.isoformat()}, {one.keys:,} keys" for one in waiting
    )
    return _notice(
        "applied",
        f"active, but its run did not end: {listed}",
        "if no `oracle apply` is at work now, `oracle apply --yes` finishes it",
    )


def rejected(database: Database) -> Finding:
    """Records that wait for a correction."""
    records = schema.rejected_records
    with database.begin() as connection:
        waiting = connection.execute(
            sa.select(sa.func.count()).select_from(records).where(records.c.resolved_at.is_(None))
        ).scalar_one()
    if waiting > 0:
        return _notice(
            "rejected records",
            f"{waiting:,} wait",
            "`oracle rejected list` shows why; then `oracle rejected retry`",
        )
    return _ok("rejected records", "none wait")


def names(database: Database) -> Finding:
    """Inputs that were written by hand under a name of an entity instead of its id."""
    from oracle_dagster.storage import entities

    found = entities.rows_under_other_names(database)
    if not found:
        return _ok("names", "no input goes by a later name of an entity")
    listed = ", ".join(f"{name} (id {entity})" for name, entity in sorted(found.items())[:SHOWN])
    return _notice(
        "names",
        f"inputs were written under later names of entities and count as other entities: {listed}",
        "let the writer use the id, or `oracle ingest`, which puts it in place of the name; "
        "`oracle entity list` has both",
    )


def long_transactions(database: Database) -> Finding:
    """Open writes anywhere on the server, which hold back what counts as settled."""
    old = [writer for writer in _writers(database) if writer.age >= LONG_TRANSACTION_SECONDS]
    if not old:
        return _ok("open transactions", "none is old")
    listed = "; ".join(_told(writer) for writer in old[:SHOWN])
    return _notice("open transactions", f"old open writes hold back new input: {listed}", _ending(old[0]))


@dataclass(frozen=True)
class _Writer:
    """A transaction that may write; ``pid`` is None of a prepared one, which then has a name."""

    xid: int
    pid: int | None
    database: str
    user: str
    application: str
    state: str
    began: datetime
    age: float
    query: str
    prepared: str


def _writers(database: Database) -> list[_Writer]:
    """The open transactions of the server that may write, oldest first."""
    with database.begin() as connection:
        moment = connection.execute(sa.text("SELECT clock_timestamp()")).scalar_one()
        rows = connection.execute(sa.text(_WRITERS)).all()
    return [
        _Writer(
            row.xid,
            row.pid,
            row.datname,
            row.usename,
            row.application,
            row.state or "unknown state",
            row.began,
            (moment - row.began).total_seconds(),
            " ".join(row.query.split())[:SHOWN_CHARACTERS],
            row.prepared,
        )
        for row in rows
        if row.began is not None
    ]


def _told(writer: _Writer) -> str:
    since = f"open since {writer.began.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC ({writer.age:.0f} s)"
    where = f"{writer.user} in {writer.database}, {writer.state}"
    if writer.pid is None:
        return f"prepared transaction {writer.prepared!r} of {where}, {since}"
    query = f", last said: {writer.query}" if writer.query != "" else ""
    return f"pid {writer.pid} ({writer.application}) of {where}, {since}{query}"


def _ending(writer: _Writer) -> str:
    if writer.pid is None:
        return f"ROLLBACK PREPARED '{writer.prepared}' or COMMIT PREPARED in {writer.database}"
    return (
        f"let it finish, or end it: SELECT pg_terminate_backend({writer.pid}); nothing that was "
        "committed is lost"
    )


# ---------------------------------------------------------------------------------------- orchestrator


def _orchestrator(
    home: Home, connections: Connections, database: Database, stack: contextlib.ExitStack
) -> Iterator[Finding]:
    import os

    from dagster import DagsterInstance

    try:
        home.write_dagster_yaml()
        os.environ.update(home.environment(connections))
        instance = stack.enter_context(DagsterInstance.from_config(str(home.dagster_dir)))
        runs = instance.get_runs_count()
    except Exception as error:  # noqa: BLE001 - the failure is the finding
        yield _broken(
            "orchestrator storage", _one_line(error), "check the second database, named ..._dagster"
        )
        return
    yield _ok("orchestrator storage", f"reachable, {runs:,} runs")
    yield _guarded("orchestrator tables", lambda: orchestrator_tables(connections))
    yield _guarded("daemon", lambda: daemon(home, instance))
    yield _guarded("sensor", lambda: sensor(instance))
    yield _guarded("new inputs", lambda: new_inputs(database, instance))
    yield _guarded("stuck runs", lambda: stuck_runs(instance, connections))
    yield _guarded("partitions", lambda: partitions(database, instance))
    yield _guarded("growth", lambda: growth(home, connections))


def orchestrator_tables(connections: Connections) -> Finding:
    """Whether the tables of the orchestrator are those of its installed version."""
    import dagster_postgres
    from alembic.script import ScriptDirectory
    from dagster._core.storage.sql import get_alembic_config

    config = get_alembic_config(dagster_postgres.__file__)
    heads = set(ScriptDirectory.from_config(config).get_heads())
    with psycopg.connect(connections.dagster_libpq_url) as connection:
        have = {row[0] for row in connection.execute("SELECT version_num FROM alembic_version").fetchall()}
    if have == heads:
        return _ok("orchestrator tables", "up to date")
    return _broken(
        "orchestrator tables",
        f"at revision {', '.join(sorted(have)) or 'none'}, the installed version wants "
        f"{', '.join(sorted(heads))}",
        "stop `oracle dev`, take `oracle backup`, run `dagster instance migrate` with DAGSTER_HOME of "
        "this home",
    )


def daemon(home: Home, instance: DagsterInstance) -> Finding:
    """Whether the daemons that start schedules, sensors and queued runs are alive."""
    from oracle_dagster.dev import running

    statuses = instance.get_daemon_statuses().values()
    beats = [s.last_heartbeat.timestamp for s in statuses if s.last_heartbeat is not None]
    age = datetime.now(UTC).timestamp() - max(beats) if beats else None
    troubled = sorted(
        s.daemon_type for s in statuses if s.required and s.last_heartbeat is not None and not s.healthy
    )
    url = running(home)
    served = f"`oracle dev` runs at {url}" if url is not None else "`oracle dev` does not run here"
    if age is not None and age <= HEARTBEAT_SECONDS:
        if troubled and url is not None:
            return _broken(
                "daemon",
                f"{served}; without a heartbeat: {', '.join(troubled)}",
                f"see {home.logs_dir}/daemon.log",
            )
        return _ok("daemon", f"{served}; last heartbeat {age:.0f} s ago")
    if url is not None and age is not None:
        return _broken(
            "daemon",
            f"{served}, but its last heartbeat is {age:.0f} s old",
            f"see {home.logs_dir}/daemon.log",
        )
    if url is not None:
        return _notice("daemon", f"{served}, no heartbeat yet", "wait a minute and look again")
    return _notice(
        "daemon", f"{served}: queued runs, schedules and sensors rest", "start it with `oracle dev`"
    )


def stuck_runs(instance: DagsterInstance, connections: Connections) -> Finding:
    """Runs that count as running but have no process."""
    from oracle_dagster.workers import lost_runs

    lost = lost_runs(instance, only_local_database=connections.embedded)
    if lost:
        listed = "; ".join(f"{run.run_id} ({run.status}): {run.reason}" for run in lost[:SHOWN])
        return _broken(
            "stuck runs", f"{len(lost)}: {listed}", "`oracle dev` marks them as failed when it starts"
        )
    return _queued(instance)


def _queued(instance: DagsterInstance) -> Finding:
    from dagster import DagsterRunStatus, RunsFilter

    queued = instance.get_run_records(
        RunsFilter(statuses=[DagsterRunStatus.QUEUED]), limit=COUNTED_ROWS, ascending=True
    )
    if not queued:
        return _ok("stuck runs", "none")
    age = datetime.now(UTC).timestamp() - queued[0].create_timestamp.timestamp()
    found = f"none is lost, {len(queued):,} wait in the queue, the first for {age:.0f} s"
    if age < QUEUE_SECONDS:
        return _ok("stuck runs", found)
    return _notice(
        "stuck runs", found, "start `oracle dev`, whose daemon takes them up, or terminate them under Runs"
    )


def sensor(instance: DagsterInstance) -> Finding:
    """Whether the sensor on new inputs is switched on and its last look went well."""
    from dagster._core.scheduler.instigation import InstigatorStatus, TickStatus

    from oracle_dagster.sensors import AUTOMATION_VARIABLE, SENSOR, automation_on

    remedy = f"switch {SENSOR} on in the user interface under Automation"
    state = next((s for s in instance.all_instigator_state() if s.instigator_name == SENSOR), None)
    if state is None or state.status is InstigatorStatus.DECLARED_IN_CODE:
        if not automation_on():
            return _notice(
                "sensor", f"{AUTOMATION_VARIABLE} is off: new inputs are not computed by themselves", remedy
            )
    elif state.status is InstigatorStatus.STOPPED:
        return _notice("sensor", "switched off: new inputs are not computed by themselves", remedy)
    if state is None:
        return _ok("sensor", "has not looked yet; it does when `oracle dev` runs")
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    if not ticks:
        return _ok("sensor", "on, has not looked yet")
    tick = ticks[0]
    age = datetime.now(UTC).timestamp() - tick.timestamp
    if tick.status is TickStatus.FAILURE:
        why = "" if tick.error is None else " ".join((tick.error.cause or tick.error).message.split())
        return _broken(
            "sensor",
            f"its last look, {age:.0f} s ago, failed: {why[:400]}",
            "mend the cause; the next look finds the same inputs",
        )
    return _ok("sensor", f"on, last looked {age:.0f} s ago")


def new_inputs(database: Database, instance: DagsterInstance) -> Finding:
    """How far the sensor is behind what was written, and which transaction holds it back."""
    from dagster._core.scheduler.instigation import SensorInstigatorData

    from oracle_dagster.news import Cursor
    from oracle_dagster.sensors import SENSOR

    check = "new inputs"
    state = next((s for s in instance.all_instigator_state() if s.instigator_name == SENSOR), None)
    data = None if state is None else state.instigator_data
    text = data.cursor if isinstance(data, SensorInstigatorData) else None
    cursor = Cursor.parse(text)
    since = sa.cast(sa.literal(str(cursor.xid)), schema.Xid8())
    waiting = 0
    with database.begin() as connection:
        (horizon, following) = connection.execute(
            sa.text(
                "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, "
                "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            )
        ).one()
        for table in _INPUTS:
            rows = sa.select(sa.literal(1)).where(table.c.xid >= since).limit(COUNTED_ROWS).subquery()
            waiting += connection.execute(sa.select(sa.func.count()).select_from(rows)).scalar_one()
    if cursor.xid > following:
        return _broken(
            check,
            f"the cursor is at transaction {cursor.xid:,}, but the database only at {following:,}: it "
            "was restored "
            "from a copy that numbers transactions anew",
            "use `oracle restore`, which keeps the numbers; or set the cursor to the empty text in the user "
            "interface: every input then counts as new once",
        )
    if waiting == 0:
        return _ok(check, "none waits")
    many = f"{waiting:,}" if waiting < COUNTED_ROWS else f"{COUNTED_ROWS:,} or more"
    found = f"{many} rows wait, {following - cursor.xid:,} transactions behind"
    holding = next((w for w in _writers(database) if w.xid == horizon % 2**32), None)
    if holding is not None and holding.age >= LONG_TRANSACTION_SECONDS:
        return _broken(check, f"{found}; held back by {_told(holding)}", _ending(holding))
    if text is None:
        return _notice(check, f"{many} rows, and no look yet", "`oracle dev` looks, or `oracle run` computes")
    return _ok(check, f"{found}; the next look takes them up")


def partitions(database: Database, instance: DagsterInstance) -> Finding:
    """Entities in the input tables that the orchestrator has no partitions of."""
    named = [
        sa.select(column.label("entity_id"))
        for column in (
            schema.document_impact_records.c.entity_id,
            schema.market_bars.c.entity_id,
            schema.exposure_profiles.c.entity_id,
            schema.competitive_edges.c.source_entity,
            schema.competitive_edges.c.target_entity,
        )
    ]
    with database.begin() as connection:
        entities = set(connection.execute(sa.union(*named)).scalars())
    missing = sorted(entities - set(instance.get_dynamic_partitions("entity")))
    if not missing:
        return _ok("partitions", f"{len(entities):,} entities, all with partitions")
    shown = ", ".join(missing[:SHOWN]) + (", …" if len(missing) > SHOWN else "")
    return _notice(
        "partitions",
        f"{len(missing):,} of {len(entities):,} entities have none yet: {shown}",
        "`oracle run` makes them",
    )


def growth(home: Home, connections: Connections) -> Finding:
    """Sizes of both databases, and how fast the orchestrator's events grow."""
    check = "growth"
    with psycopg.connect(connections.domain_url) as connection:
        domain = _number(connection, "SELECT pg_database_size(current_database())")
    with psycopg.connect(connections.dagster_libpq_url) as connection:
        dagster = _number(connection, "SELECT pg_database_size(current_database())")
        recent = _number(
            connection,
            "SELECT count(*) FROM event_logs WHERE timestamp >= now() AT TIME ZONE 'UTC' - interval '1 day'",
        )
        events = _number(connection, "SELECT count(*) FROM event_logs") if recent > 0 else 0
        table = _number(connection, "SELECT pg_total_relation_size('event_logs')")
    daily = table * recent // events if events > 0 else 0
    found = (
        f"domain database {_size(domain)}, orchestrator's {_size(dagster)}; {recent:,} events in the "
        "last day, "
        f"about {_size(daily)}"
    )
    pruning = "`oracle prune --older-than 90d` removes old events and results"
    if daily >= EVENT_BYTES_PER_DAY:
        return _notice(check, found, f"{pruning}; run it daily")
    if connections.embedded and daily > 0:
        days = shutil.disk_usage(home.path).free // daily
        if days < DAYS_OF_ROOM:
            return _notice(check, f"{found}, so the disk is full in {days} days", pruning)
    return _ok(check, found)


def _number(connection: psycopg.Connection, query: LiteralString) -> int:
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def _size(number: int) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:  # noqa: PLR2004 - what the units are about
            return f"{number} {unit}"
        number //= 1000
    return f"{number} GB"
