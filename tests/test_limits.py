"""Limits are said and kept: partitions per asset, entities of an installation, memory of a run."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from oracle_dagster import entity_range, memory
from oracle_dagster.entity_range import BEFORE_VARIABLE, FROM_VARIABLE, EntityRangeError
from oracle_dagster.home import Home
from oracle_dagster.launch import LaunchError, apply_plan, orchestrator, run_cycle
from oracle_dagster.memory import MEGABYTE, MEMORY_VARIABLE, Blocks, MemoryLimitError
from oracle_dagster.partitions import register_entities
from tests.chain_runs import fresh_database, home_on, with_driver
from tests.operation import RESULTS
from tests.storage_rows import AS_OF, contents, make_world, rows

WORLD = make_world(4, 40, bars=60)
NAMES = sorted(WORLD.entities)
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def home(
    tmp_path: Path, migrated_url: str, dagster_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Home:
    """A home on databases of its own of the shared server, with a small world in it."""
    return home_on(tmp_path / "home", migrated_url, dagster_database_url, monkeypatch, WORLD)


@pytest.fixture
def fresh(
    embedded_home: Path, migrated_template: str, dagster_template: str
) -> Iterator[Callable[[str], str]]:
    """Makes further databases, of either kind."""
    templates = {"domain": migrated_template, "dagster": dagster_template}
    with ExitStack() as held:

        def make(kind: str) -> str:
            return held.enter_context(
                contextmanager(fresh_database)(embedded_home, f"limits_{kind}", templates[kind])
            )

        yield make


# ---------------------------------------------------------------------------- partitions and installations


def test_up_to_a_hundred_thousand_partitions_nothing_is_said_and_beyond_the_way_out() -> None:
    assert entity_range.too_many(20_000) is None
    said = entity_range.too_many(20_001)
    assert said is not None
    assert said.startswith("20,001 entities are 100,005 partitions of each asset")
    assert "Remedy: 2 code locations by entity range" in said
    assert FROM_VARIABLE in said


def test_two_installations_divide_the_entities_and_leave_what_one_leaves(
    home: Home,
    tmp_path: Path,
    fresh: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two homes, one domain database: each computes its range only, news spreads across it."""
    url = os.environ["ORACLE_DATABASE_URL"]
    middle = NAMES[2]
    monkeypatch.setenv(BEFORE_VARIABLE, middle)
    first = run_cycle(home, as_of=AS_OF)
    assert (first.status, first.keys) == ("success", 10)
    with home.connect() as connections, orchestrator(home, connections) as instance:
        assert set(instance.get_dynamic_partitions("entity")) == set(NAMES[:2])
        assert register_entities(instance, NAMES) == []
    with pytest.raises(LaunchError, match=r"a range of the entities only, and a plan is applied to all"):
        apply_plan(home, None, changed_by="ada", reason="x")  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="Not known as of"):
        run_cycle(home, as_of=AS_OF, entities=[NAMES[3]])
    monkeypatch.delenv(BEFORE_VARIABLE)
    monkeypatch.setenv(FROM_VARIABLE, middle)
    monkeypatch.setenv("ORACLE_DAGSTER_DATABASE_URL", with_driver(fresh("dagster")))
    second = run_cycle(Home(tmp_path / "second"), as_of=AS_OF)
    assert (second.status, second.keys) == ("success", 10)
    found = contents(url, *RESULTS)
    monkeypatch.delenv(FROM_VARIABLE)
    domain = fresh("domain")
    whole = home_on(tmp_path / "whole", domain, with_driver(fresh("dagster")), monkeypatch, WORLD)
    assert run_cycle(whole, as_of=AS_OF).keys == 20
    assert contents(domain, *RESULTS) == found


def test_a_range_that_holds_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FROM_VARIABLE, "M")
    monkeypatch.setenv(BEFORE_VARIABLE, "M")
    with pytest.raises(EntityRangeError, match="no name lies between"):
        entity_range.own(["M"])
    monkeypatch.setenv(BEFORE_VARIABLE, "N")
    assert entity_range.own(["L", "M", "Mz", "N"]) == ["M", "Mz"]


def test_a_crowded_home_says_so_after_its_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_range, "COMFORTABLE_PARTITIONS", 15)
    outcome = run_cycle(home, as_of=AS_OF, windows=["7d"])
    assert outcome.note.startswith("4 entities are 20 partitions of each asset")
    assert outcome.status == "success", "it is said, and nothing is refused"


# ------------------------------------------------------------------------------------- memory of a run


@pytest.mark.parametrize("text", ["0", "-5", "2g", "1.5"])
def test_a_limit_that_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)
    with pytest.raises(MemoryLimitError, match=r"ORACLE_RUN_MEMORY_MB is .* whole number of megabytes"):
        memory.limit_bytes()


def test_blocks_shrink_to_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    held, peak = [100 * MEGABYTE], [100 * MEGABYTE]
    monkeypatch.setattr(memory, "held_bytes", lambda: held[0])
    monkeypatch.setattr(memory, "peak_bytes", lambda: peak[0])
    blocks = Blocks(500, 300 * MEGABYTE)
    assert blocks.next() == memory.FIRST_BLOCK
    peak[0] = 200 * MEGABYTE  # 2 MB an entity, and 200 MB are free
    assert blocks.next() == 80
    held[0] = 290 * MEGABYTE
    assert blocks.next() == 4
    held[0] = 299 * MEGABYTE
    with pytest.raises(MemoryLimitError, match=r"is 300 but the process holds 299 MB .* at least 303"):
        blocks.next()
    assert Blocks(500).next() == 500, "without a limit"


def test_the_system_keeps_the_limit_and_lifts_it_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setenv(MEMORY_VARIABLE, str(memory.held_bytes() // MEGABYTE + 50))
    with memory.limited(500):
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
        with pytest.raises(MemoryError):
            bytearray(200 * MEGABYTE)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(bytearray(200 * MEGABYTE)) == 200 * MEGABYTE


def test_a_run_under_a_low_limit_fails_early_and_says_what_would_do(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "20")
    outcome = run_cycle(home, as_of=AS_OF)
    assert outcome.status == "failed"
    assert "ORACLE_RUN_MEMORY_MB is 20 but the process holds" in outcome.message
    assert "Set it to at least" in outcome.message
    assert rows(os.environ["ORACLE_DATABASE_URL"], "SELECT count(*) FROM trend_windows") == [(0,)]


def test_a_block_that_needs_too_much_is_computed_in_halves(home: Home) -> None:
    """In a process of its own with a real limit: four entities together do not fit, two do."""
    program = textwrap.dedent(
        """
        import os
        from datetime import datetime
        import numpy as np
        from oracle_dagster import memory, pipeline
        from oracle_dagster.home import Home
        from oracle_dagster.launch import run_cycle

        genuine, sizes = pipeline.score_signals, []

        def hungry(inputs, keys, *rest):
            number = len(set(keys.entity.tolist()))
            sizes.append(number)
            held = np.ones((number * 100, 1 << 17))  # 100 MB an entity, and every page of it
            return genuine(inputs, keys, *rest)

        pipeline.score_signals = hungry
        os.environ[memory.MEMORY_VARIABLE] = str(memory.held_bytes() // memory.MEGABYTE + 260)
        outcome = run_cycle(Home.resolve(), as_of=datetime.fromisoformat(os.environ["AS_OF"]))
        print(outcome.status, outcome.keys, len(outcome.failures), sizes)
        """
    )
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=REPOSITORY,
        env={**os.environ, "AS_OF": AS_OF.isoformat()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    *said, sizes = found.stdout.split(maxsplit=3)
    assert said == ["success", "20", "0"], (found.stdout, found.stderr[-2000:])
    tried = json.loads(sizes)
    assert tried[0] == 4, "all at once at first"
    assert max(tried[1:]) <= 2, "then in halves"
