"""`oracle dev` as a user starts it, for the tests that need the real services."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from oracle_dagster import dev

DEADLINE_SECONDS = 150.0


def wait_for(what: str, look: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> object:
    """The first answer that is neither None nor False; fails after a generous deadline."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.2)
    pytest.fail(f"waited {seconds:.0f} s in vain: {what}")


def settle(url: str) -> None:
    """Wait until everything committed so far counts as settled: other tests share the server."""
    with psycopg.connect(url, autocommit=True) as connection:
        (mark,) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or ()
        below = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s"
        wait_for("older transactions end", lambda: connection.execute(below, (mark,)).fetchone() == (True,))


class Service:
    """One `oracle dev` as a user starts it."""

    def __init__(self, home: Path, *arguments: str, automation: bool = False) -> None:
        self.home = home
        self.log = home.parent / f"dev-{time.monotonic_ns()}.txt"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oracle_dagster.cli", "dev", "--home", str(home), *arguments],
                # What runs by itself would add events to those that a test counts.
                env={**os.environ, "ORACLE_AUTOMATION": "on" if automation else "off"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def ready(self) -> str:
        """Its address, once the user interface answers."""
        start = f"ready: http://{dev.HOST}:"

        def look() -> str | None:
            assert self.process.poll() is None, self.printed
            return self.printed.rsplit("ready: ", 1)[1].split()[0] if start in self.printed else None

        return str(wait_for(f"`oracle dev` is ready\n{self.printed}", look))

    def state(self) -> dev.State:
        found = dev.State.read(self.home / "dev" / "state.json")
        assert found is not None
        return found

    def end(self) -> int:
        """End it as `kill` does; the processes are gone when this returns."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=DEADLINE_SECONDS)


@contextmanager
def service(home: Path, *arguments: str, automation: bool = False) -> Iterator[Service]:
    started = Service(home, *arguments, automation=automation)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end()
