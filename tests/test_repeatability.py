"""A cycle repeated, killed or run late ends in exactly the tables of an undisturbed one (decisions 5)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from oracle_dagster.embedded_postgres import EmbeddedPostgres
from oracle_dagster.home import Home
from oracle_dagster.storage import schema
from tests import worlds
from tests.command import oracle

RESULTS = (
    "weighted_signals",
    "trend_windows",
    "trend_history",
    "trend_evidence",
    "trend_projections",
    "recommendations",
    "recommendation_evidence",
    "risk_evaluations",
    "source_accuracy",
    "source_accuracy_history",
)
# What the database itself gives a source when it is first seen is no result of a cycle.
DATABASE_COLUMNS = {"source_accuracy": {"id", "created_at"}}


class Product:
    """The command line on a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {k: v for k, v in os.environ.items() if k not in {"ORACLE_DATABASE_URL", "DAGSTER_HOME"}}
        self.env |= {"ORACLE_HOME": str(home), "PYTHONHASHSEED": "random"}

    def command(self, *arguments: str) -> list[str]:
        """The process to start for ``oracle ARGUMENTS``."""
        return [sys.executable, "-m", "oracle_dagster.cli", *arguments]

    def run(self, *arguments: str, ok: tuple[int, ...] = (0,)) -> str:
        """Run to the end in this process, which has imported everything, and return what it printed."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORACLE_HOME", str(self.home))
            done = oracle(*arguments)
        assert done.code in ok, f"oracle {arguments} exited {done.code}\n{done.out}\n{done.err}"
        return done.out

    @contextmanager
    def engine(self) -> Iterator[sa.Engine]:
        """A connection to the home's database."""
        connections = Home.resolve(self.home).connect()
        engine = sa.create_engine(connections.sqlalchemy_url, poolclass=sa.NullPool)
        try:
            yield engine
        finally:
            engine.dispose()
            connections.close()

    def tables(self) -> dict[str, list[str]]:
        """Every result table as sorted text, without the columns that the database itself fills."""
        found: dict[str, list[str]] = {}
        with self.engine() as engine, engine.connect() as connection:
            for name in RESULTS:
                table = schema.metadata.tables[name]
                columns = [c for c in table.columns if c.name not in DATABASE_COLUMNS.get(name, set())]
                rows = connection.execute(sa.select(*columns)).all()
                found[name] = sorted(repr(tuple(row)) for row in rows)
        return found


def prepared(folder: Path) -> Product:
    """A new home with a made-up world loaded as if it had been known at publication, its server at rest."""
    world = folder / "world"
    worlds.write_world(world)
    product = Product(folder / "prepared")
    product.run("init")
    product.run("ingest", str(world), "--known-at", "published")
    return product


def copied(product: Product, name: str) -> Product:
    """The same home under another name: loading once and copying takes less than loading again."""
    EmbeddedPostgres(product.home).wait_until_stopped()
    copy = product.home.parent / name
    subprocess.run(["cp", "-a", str(product.home), str(copy)], check=True)
    return Product(copy)


AS_OF = worlds.AS_OF.isoformat()


def assert_same_tables(found: dict[str, list[str]], wanted: dict[str, list[str]]) -> None:
    for name in RESULTS:
        assert found[name] == wanted[name], f"{name} differs"
    assert wanted["recommendations"], "an empty comparison proves nothing"


def kill_and_repeat(folder: Path, times: int) -> None:
    loaded = prepared(folder)
    undisturbed = copied(loaded, "undisturbed")
    started = time.monotonic()
    subprocess.run(undisturbed.command("run", "--as-of", AS_OF), env=undisturbed.env, check=True)
    length = time.monotonic() - started
    wanted = undisturbed.tables()
    rng = random.Random(20)
    landed = 0
    for attempt in range(times):
        killed = copied(loaded, f"killed-{attempt}")
        process = subprocess.Popen(
            killed.command("run", "--as-of", AS_OF),
            env=killed.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # The moment only chooses where the kill lands; no assertion depends on how long anything takes.
        time.sleep(length * rng.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        landed += process.wait() == -signal.SIGKILL
        killed.run("run", "--as-of", AS_OF)
        assert_same_tables(killed.tables(), wanted)
    assert times == 1 or landed, "no kill met a run at work"
    print(f"killed {times} runs at random moments ({landed} while running): result tables equal")


def test_a_killed_run_repeated_leaves_the_tables_of_an_undisturbed_one(tmp_path: Path) -> None:
    kill_and_repeat(tmp_path, 1)


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_twenty_killed_runs_repeated_leave_the_tables_of_an_undisturbed_one(tmp_path: Path) -> None:
    kill_and_repeat(tmp_path, 20)


@pytest.mark.parametrize(
    "told", [pytest.param(False, id="short"), pytest.param(True, id="told", marks=pytest.mark.acceptance)]
)
def test_the_same_as_of_twice_changes_no_row_and_late_input_changes_nothing(
    tmp_path: Path, told: bool
) -> None:
    """The first result stands bit for bit: after a repeat, after newer documents, after a late commit."""
    product = prepared(tmp_path)
    entity = "entity-000"
    with product.engine() as engine:
        late = engine.connect()
        transaction = late.begin()
        document = "00000000-0000-4000-8000-000000000001"
        published = worlds.AS_OF - timedelta(hours=1)
        late.execute(
            sa.insert(schema.documents).values(
                id=document, source_id="late", source_type="news", published_at=published
            )
        )
        late.execute(
            sa.insert(schema.document_intelligence).values(
                document_id=document,
                version=1,
                known_at=published,
                source_id="late",
                source_type="news",
                published_at=published,
                extraction_confidence=0.9,
                credibility=0.9,
            )
        )
        late.execute(
            sa.insert(schema.document_impact_records).values(
                document_id=document,
                version=1,
                entity_id=entity,
                published_at=published,
                sentiment=1.0,
                sentiment_label="positive",
                impact_score=1.0,
                catalyst_type="legal",
            )
        )
        product.run("run", "--as-of", AS_OF)
        first = product.tables()
        product.run("run", "--as-of", AS_OF)
        assert_same_tables(product.tables(), first)

        transaction.commit()
        late.close()
        newer = tmp_path / "newer" / "documents.jsonl"
        newer.parent.mkdir()
        worlds.write_jsonl(newer, worlds.documents([entity, "entity-001"], 40, seed=77))
        product.run("ingest", str(newer), "--known-at", "published")
        product.run("run", "--as-of", AS_OF)
        assert_same_tables(product.tables(), first)

        # The late documents are not lost: a cycle that starts now counts them.
        later = (worlds.AS_OF + timedelta(seconds=1)).isoformat()
        product.run("run", "--as-of", later)
        with engine.connect() as connection:
            seen = connection.execute(
                sa.select(sa.func.count())
                .select_from(schema.weighted_signals)
                .where(schema.weighted_signals.c.signal_id == document)
            ).scalar_one()
        assert seen == 5, "the late document lies in all five windows of the next cycle"
    if told:
        rows = sum(map(len, first.values()))
        print(f"{rows} rows: equal after a repeat, and after late and newer documents")
