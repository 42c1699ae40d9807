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

import sqlalchemy as sa
from packaging.requirements import Requirement

from oracle_dagster.storage import configuration, migrate, schema
from oracle_dagster.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagster import DagsterInstance

    from oracle_dagster.home import Connections, Home

DISTRIBUTION: Final = "oracle-pipeline"
PYTHONS: Final = ((3, 11), (3, 14))
LOW_DISK_BYTES: Final = 2_000_000_000
FULL_DISK_BYTES: Final = 200_000_000
LONG_TRANSACTION_SECONDS: Final = 300
HEARTBEAT_SECONDS: Final = 300
SHOWN: Final = 5


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


def examine(home: Home, *, say: Callable[[str], None]) -> Iterator[Finding]:
    """Look at everything, in an order in which a failure explains those after it.

    Args:
        home: the home to look at; it is not created.
        say: told what is being waited for.
    """
    yield python()
    yield libraries()
    yield code_location()
    yield writable(home)
    yield disk(home)
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
        for look in (server, tables, active_configuration, applied, rejected, long_transactions):
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


def disk(home: Home) -> Finding:
    """Free space under the home."""
    place = next(p for p in (home.path, *home.path.parents) if p.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free under {home.path}"
    if free < FULL_DISK_BYTES:
        return _broken("disk space", found, "free some space, or move the home to another disk")
    if free < LOW_DISK_BYTES:
        return _notice("disk space", found, "free some space soon; a full disk stops the database")
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


def long_transactions(database: Database) -> Finding:
    """Open writes anywhere on the server, which hold back what counts as settled."""
    with database.begin() as connection:
        rows = connection.execute(
            sa.text(
                "SELECT pid, datname, coalesce(usename, '') AS usename, "
                "extract(epoch FROM now() - xact_start) AS age "
                "FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() "
                "AND xact_start < now() - make_interval(secs => :seconds) ORDER BY xact_start LIMIT 5"
            ),
            {"seconds": LONG_TRANSACTION_SECONDS},
        ).all()
    if not rows:
        return _ok("open transactions", "none is old")
    listed = "; ".join(f"pid {r.pid} of {r.usename} in {r.datname}, {r.age:.0f} s" for r in rows)
    return _notice(
        "open transactions",
        f"old open writes hold back new input: {listed}",
        "let them finish, or end them with SELECT pg_terminate_backend(PID)",
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
    yield _guarded("daemon", lambda: daemon(home, instance))
    yield _guarded("stuck runs", lambda: stuck_runs(instance, connections))
    yield _guarded("partitions", lambda: partitions(database, instance))


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
    if not lost:
        return _ok("stuck runs", "none")
    listed = "; ".join(f"{run.run_id} ({run.status}): {run.reason}" for run in lost[:SHOWN])
    return _broken("stuck runs", f"{len(lost)}: {listed}", "`oracle dev` marks them as failed when it starts")


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
