"""Many writers that commit late, and a sensor in a process of its own that is killed and started again.

``python -m tests.late_commits URL READER`` is the sensor: it looks, and stores the cursor together with what
it launches in one transaction, as the orchestrator's daemon does. READER chooses the cursor: ``settled`` is
the product's; ``id`` and ``created`` are what one would write without thinking of late commits.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from oracle_dagster import tick
from oracle_dagster.news import Debounce
from oracle_dagster.storage import arrivals
from oracle_dagster.storage.database import Database
from tests.services import wait_for
from tests.storage_rows import Document, Impact, insert_documents

WRITERS = 20
PUBLISHED = datetime(2020, 1, 2, tzinfo=UTC)
_STATE = """
    CREATE TABLE sensor_state (cursor text, ticks integer NOT NULL);
    INSERT INTO sensor_state VALUES (NULL, 0);
    CREATE TABLE launched (batch_id uuid PRIMARY KEY, run_key text UNIQUE);
    ALTER TABLE document_intelligence ADD COLUMN arrival bigserial;
    ALTER TABLE document_intelligence ADD COLUMN created timestamptz DEFAULT now()"""


def look(database: Database, reader: str, cursor: str | None) -> tuple[str, list[tuple[str, str]]]:
    """The cursor after a look, and batch id and run key of what it launches."""
    if reader == "settled":
        found = tick.look(database, cursor, Debounce())
        return found.cursor, [(request.batch_id, request.run_key) for request in found.requests]
    column = {"id": "arrival", "created": "created"}[reader]
    kind = {"id": "bigint", "created": "timestamptz"}[reader]
    rows = database.run(
        lambda bulk: bulk.arrow(
            f"""SELECT r.entity_id, d.{column}::text AS place
                FROM document_intelligence d JOIN document_impact_records r USING (document_id, version)
                WHERE $1::text = '' OR d.{column} > nullif($1::text, '')::{kind}
                ORDER BY d.{column}""",
            (cursor or "",),
        )
    ).to_pylist()
    if not rows:
        return cursor or "", []
    after = rows[-1]["place"]
    key = f"{cursor}-{after}"
    batch = str(uuid.uuid5(uuid.NAMESPACE_OID, key))
    arrivals.write_batch(database, batch, {row["entity_id"] for row in rows})
    return after, [(batch, key)]


def sense(url: str, reader: str) -> None:
    """Tick until killed."""
    database = Database(url)
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            (cursor,) = connection.execute("SELECT cursor FROM sensor_state").fetchone() or ()
            after, launches = look(database, reader, cursor)
            with connection.transaction():
                connection.execute("UPDATE sensor_state SET cursor = %s, ticks = ticks + 1", (after,))
                for launch in launches:
                    connection.execute("INSERT INTO launched VALUES (%s, %s) ON CONFLICT DO NOTHING", launch)
            time.sleep(0.01)


@dataclass
class Scenario:
    """A database, the sensor's process, and what was written."""

    url: str
    reader: str
    seed: int
    process: subprocess.Popen[bytes] | None = None
    written: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start the sensor and wait until it ticks."""
        before = self.ticks()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.late_commits", self.url, self.reader],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.wait_ticks(before + 1)

    def kill(self) -> None:
        """End the sensor without a chance to finish anything."""
        assert self.process is not None
        assert self.process.poll() is None, "the sensor ended by itself"
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def ticks(self) -> int:
        """How many ticks have stored their result."""
        return int(self._one("SELECT ticks FROM sensor_state"))

    def wait_ticks(self, wanted: int) -> None:
        """Wait for that many ticks."""
        wait_for(f"tick {wanted} of the sensor", lambda: self.ticks() >= wanted)

    def launches(self) -> Counter[str]:
        """How often each entity was launched."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute(
                """SELECT entity_id, count(DISTINCT batch_id) FROM launched JOIN run_batches USING (batch_id)
                   GROUP BY 1"""
            ).fetchall()
        return Counter(dict(rows))

    def round(self, number: int, *, kill: bool) -> None:
        """All writers write at once, one of them much slower than the others; meanwhile the sensor dies."""
        rng = random.Random(f"{self.seed} {number}")
        begun = threading.Barrier(WRITERS)
        names = [[f"{number}-{writer}-{n}" for n in range(2)] for writer in range(WRITERS)]
        threads = [
            threading.Thread(target=self._write, args=(own, begun, rng.random(), writer == 0))
            for writer, own in enumerate(names)
        ]
        for thread in threads:
            thread.start()
        if kill:
            time.sleep(rng.uniform(0.0, 0.3))
            self.kill()
            time.sleep(rng.uniform(0.0, 0.1))
            self.start()
        for thread in threads:
            thread.join()
        self.written += [name for own in names for name in own]

    def _write(self, names: list[str], begun: threading.Barrier, seed: float, slowest: bool) -> None:
        rng = random.Random(seed)
        with psycopg.connect(self.url) as connection:
            if slowest:  # takes its number, id and time before all the others
                self._insert(connection, names)
            begun.wait()
            if slowest:
                mine = names[0].removesuffix("0-0")  # the round
                seen = f"SELECT count(*) > 0 FROM document_impact_records WHERE entity_id LIKE '{mine}%'"
                wait_for("another writer commits", lambda: self._one(seen))
                self.wait_ticks(self.ticks() + 3)
                connection.commit()
                return
            for name in names:
                time.sleep(rng.uniform(0.0, 0.1))
                self._insert(connection, [name])
                time.sleep(rng.uniform(0.0, 0.1))
                connection.commit()

    def _insert(self, connection: psycopg.Connection[Any], names: list[str]) -> None:
        documents = [Document(name, (Impact(name),), published=PUBLISHED) for name in names]
        insert_documents(connection, documents)

    def _one(self, query: str) -> Any:  # noqa: ANN401 - one value of any type
        with psycopg.connect(self.url) as connection:
            return (connection.execute(query).fetchone() or (None,))[0]

    def check(self) -> None:
        """Nothing missed, nothing twice."""
        # A document that comes last: where the cursor has passed it, whatever is missing is lost for ever.
        with psycopg.connect(self.url) as connection:
            self._insert(connection, ["last"])
        wait_for("the last document is launched", lambda: "last" in self.launches())
        self.wait_ticks(self.ticks() + 2)
        launches = self.launches()
        missed = sorted(set(self.written) - set(launches))
        twice = sorted(name for name, times in launches.items() if times > 1)
        assert not missed, f"missed {len(missed)} of {len(self.written)}: {missed[:5]}"
        assert not twice, f"launched twice: {twice[:5]}"


@contextmanager
def scenario(url: str, reader: str, seed: int = 1) -> Iterator[Scenario]:
    """The tables a scenario needs beside the product's, and a running sensor."""
    with psycopg.connect(url) as connection:
        connection.execute(_STATE)
    made = Scenario(url, reader, seed)
    made.start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()


if __name__ == "__main__":
    sense(sys.argv[1], sys.argv[2])
