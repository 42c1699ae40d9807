"""The command `explain`: the stored decision with everything behind it, every number derivable again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oracle_dagster.cli.common import _jsonable
from oracle_dagster.explaining import gather, terminal
from oracle_dagster.storage import configuration
from oracle_dagster.storage.database import Database
from tests import explained
from tests.command import oracle
from tests.storage_rows import AS_OF, RESULT_TABLES, WINDOWS, ago, contents, rows
from tests.test_pipeline import PROBABILISTIC, WORLD, database, run

__all__ = ["database"]

EVERYTHING = (*RESULT_TABLES, "cycles", "run_log", "cycle_failures", "risk_configs")


def explained_page(database: Database, entity: str, window: str, as_of: datetime | None = None) -> Any:  # noqa: ANN401
    """The page as `--json` prints it."""
    found = gather.page(database, gather.choose(database, (entity, window), as_of))
    return json.loads(json.dumps(found, default=_jsonable, allow_nan=False))


@pytest.fixture
def decided(database: Database, mode: str) -> Iterator[Database]:
    """Two cycles of the world, two days apart."""
    if mode == "probabilistic":
        configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database, ago(days=2))
    run(database)
    return database


@pytest.mark.parametrize("mode", ["heuristic", "probabilistic"])
def test_the_page_of_every_key_is_the_stored_decision_and_adds_up(
    decided: Database, mode: str, migrated_url: str
) -> None:
    """Of every entity and window; and explaining writes nothing."""
    before = contents(migrated_url, *EVERYTHING)
    stored = {
        (entity, window): values
        for entity, window, *values in rows(
            migrated_url,
            """SELECT k.entity_id, k."window", r.action, r.mode, r.confidence, r.allocation_pct, r.id::text
               FROM cycle_keys k JOIN recommendations r ON r.id = k.standing_recommendation_id
               WHERE k.as_of = %s""",
            AS_OF,
        )
    }
    trends = {
        (entity, window): values
        for entity, window, *values in rows(
            migrated_url,
            """SELECT entity_id, "window", trend_direction, trend_strength, confidence, contradiction_score
               FROM trend_windows""",
        )
    }
    weights: dict[tuple[str, str], dict[str, float]] = {}
    for entity, window, name, weight in rows(
        migrated_url, 'SELECT entity_id, "window", signal_id, combined FROM weighted_signals'
    ):
        weights.setdefault((entity, window), {})[name] = weight
    seen = set()
    for entity in WORLD.entities:
        for window in WINDOWS:
            page = explained_page(decided, entity, window)
            explained.check(page, mode)
            assert page["differences"] == []
            assert page["pipeline_mode"] == mode
            action, execution, confidence, allocation, identity = stored[entity, window]
            assert page["recommendation_id"] == identity
            decision = page["decision"]
            assert (decision["action"], decision["mode"]) == (action, execution)
            if page["duplicate_of"] is None:
                assert (decision["confidence"], decision["allocation_pct"]) == (confidence, allocation)
            seen.add((decision["action"], page["duplicate_of"] is None))
            direction = page["direction"]
            assert trends[entity, window] == [
                direction["direction"],
                direction["strength"],
                decision["confidence"],
                direction["contradiction"],
            ]
            assert {s["id"]: s["weight"] for s in page["signals"]} == weights.get((entity, window), {})
    assert len(seen) >= 3, "the world must hold different decisions, new ones and repeated ones"
    assert contents(migrated_url, *EVERYTHING) == before


@pytest.mark.parametrize("mode", ["heuristic"])
def test_an_earlier_cycle_is_explained_as_it_was(decided: Database, mode: str) -> None:
    for entity in WORLD.entities[:2]:
        page = explained_page(decided, entity, "30d", ago(days=2))
        assert page["as_of"] == "2026-03-08T12:00:00Z"
        assert page["differences"] == []
        explained.check(page, mode)
        assert [h["as_of"] for h in page["history"]] == ["2026-03-08T12:00:00Z"]
        later = explained_page(decided, entity, "30d")
        assert [h["as_of"] for h in later["history"]] == ["2026-03-08T12:00:00Z", "2026-03-10T12:00:00Z"]
        assert later["history"][1]["average"] == later["direction"]["average"]


@pytest.mark.parametrize("mode", ["heuristic"])
def test_a_repeated_decision_says_whose_it_is_and_shows_its_own_numbers(decided: Database, mode: str) -> None:
    run(decided, AS_OF + timedelta(minutes=1))
    keys = [(e, w) for e in WORLD.entities for w in WINDOWS]
    found = [p for p in (explained_page(decided, *key) for key in keys) if p["duplicate_of"] is not None]
    assert found
    for page in found:
        assert page["duplicate_of"]["id"] == page["recommendation_id"]
        assert page["duplicate_of"]["generated_at"] == "2026-03-10T12:00:00Z"
        assert page["as_of"] == "2026-03-10T12:01:00Z"
        assert page["differences"] == []
        explained.check(page, mode)
    key = (found[0]["entity_id"], found[0]["window"])
    shown = text(decided, *key)
    assert "repeats recommendation" in shown
    assert "of 2026-03-10T12:00:00Z (confidence then" in shown


def text(database: Database, entity: str, window: str, *, signals: int = 10, width: int = 200) -> str:
    """The page as it is printed."""
    import io

    from rich.console import Console

    found = gather.page(database, gather.choose(database, (entity, window)))
    out = io.StringIO()
    terminal.print_page(Console(file=out, width=width, highlight=False), found, signals)
    return out.getvalue()


@pytest.mark.parametrize("mode", ["probabilistic"])
def test_the_printed_page_shows_every_section_and_where_it_comes_from(decided: Database, mode: str) -> None:
    entity = WORLD.entities[0]
    shown = text(decided, entity, "90d", signals=3)
    for title in (
        "Gates",
        "Direction and contradiction",
        "Confidence",
        "Size",
        "Risk and data quality",
        "Signals by contribution",
        "Layers",
        "Projection (advisory)",
        "Where it comes from",
    ):
        assert f"\n{title}\n" in shown
    assert "configuration 2 (active; by ada: mode), probabilistic mode" in shown
    assert "code 1.1.1.1.1; " in shown
    assert "run run" in shown
    assert "P_bull" in shown
    assert "expected value" in shown
    assert "further signals (--signals " in shown
    assert "repeats recommendation" in shown or "Recommendation " in shown


@pytest.mark.parametrize("mode", ["heuristic"])
def test_what_was_altered_is_said_with_both_values(decided: Database, mode: str, migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            "UPDATE trend_history SET trend_strength = 0.125 WHERE entity_id = %s AND \"window\" = '30d'",
            (WORLD.entities[0],),
        )
    page = explained_page(decided, WORLD.entities[0], "30d")
    (difference,) = (d for d in page["differences"] if d["what"] == "trend.trend_strength")
    assert difference["stored"] == 0.125
    assert difference["computed"] == page["direction"]["strength"] != 0.125
    assert "CAUTION" in text(decided, WORLD.entities[0], "30d")
    assert "trend.trend_strength (0.125 stored" in text(decided, WORLD.entities[0], "30d", width=2000)


@pytest.mark.parametrize("mode", ["heuristic"])
def test_a_wrong_name_says_what_there_is(decided: Database, mode: str) -> None:
    def refused(entity: str, window: str, as_of: datetime | None = None, version: int | None = None) -> str:
        with pytest.raises(gather.NotExplainableError) as error:
            gather.choose(decided, (entity, window), as_of, version)
        return str(error.value)

    entity = WORLD.entities[0]
    there = "as of 2026-03-10T12:00:00Z (configuration 1), 2026-03-08T12:00:00Z (configuration 1)"
    wrong = refused(entity, "30d", AS_OF + timedelta(hours=1))
    assert (
        f"There is no recommendation of {entity} 30d as of 2026-03-10T13:00:00Z. There are some {there}"
        in wrong
    )
    assert "configuration 7" in refused(entity, "30d", version=7)
    assert refused(entity.lower()[:2], "30d").endswith("Entities of a similar name are Z-00, z-03.")
    assert "Nothing about nobody was ever decided; there are" in refused("nobody", "30d")
    assert f"There are some of its windows {', '.join(WINDOWS)}" in refused(entity, "3d")


def test_an_empty_home_says_what_to_do(database: Database) -> None:
    with pytest.raises(
        gather.NotExplainableError, match="load documents with `oracle ingest`, then `oracle run`"
    ):
        gather.choose(database, ("a", "30d"))


def test_of_several_configurations_the_one_named_is_explained(database: Database) -> None:
    run(database)
    configuration.activate(database, PROBABILISTIC, "ada", "mode")
    run(database)
    key = (WORLD.entities[0], "30d")
    newest = gather.choose(database, key)
    assert (newest.as_of, newest.config_version) == (AS_OF, 2)
    for version, mode in ((1, "heuristic"), (2, "probabilistic")):
        page = gather.page(database, gather.choose(database, key, AS_OF, version))
        assert page["pipeline_mode"] == mode
        assert page["origin"]["config_version"] == version
        explained.check(page, mode)


def test_a_stage_that_ran_alone_on_an_older_result_is_said(database: Database) -> None:
    """Its decision is not what the inputs of its own cycle give, and nobody should read it so."""
    run(database, ago(days=2))
    keys = [(WORLD.entities[0], "30d")]
    later = AS_OF + timedelta(days=20)
    run(database, later, keys=keys, stages=("recommendations",))
    page = explained_page(database, *keys[0])
    assert page["as_of"].startswith(later.astimezone(UTC).isoformat()[:10])
    assert page["differences"]


# ------------------------------------------------------------------------------------------ the command


def test_the_command_prints_the_page_its_json_and_its_errors(
    database: Database, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(database, ago(days=2))
    run(database)
    monkeypatch.setenv("ORACLE_DATABASE_URL", migrated_url)
    monkeypatch.setenv("ORACLE_HOME", str(tmp_path / "home"))
    entity = WORLD.entities[0]
    shown = oracle("explain", entity, "90d", "--signals", "2")
    assert shown.code == 0, shown.err
    assert shown.out.startswith(f"{entity} 90d as of 2026-03-10T12:00:00Z\n")
    since = "2026-03-08T12:00:00Z"
    full = oracle("explain", entity, "90d", "--what-if", "--since", since, "--json")
    assert full.code == 0, full.err
    assert full.json["since"]["as_of"] == since
    assert set(full.json["what_if"]) == {"now", "distance", "influence", "shelf_life"}
    explained.check(full.json, "heuristic")
    earlier = oracle("explain", entity, "90d", "--as-of", since, "--json")
    assert earlier.json["as_of"] == since
    assert "what_if" not in earlier.json
    written = oracle("explain", entity, "90d", "--html", str(tmp_path / "page.html"))
    assert (written.code, written.out) == (0, "")
    assert f"wrote {tmp_path / 'page.html'}" in written.err
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    for arguments, code, said in (
        (("nobody", "90d"), 1, "Nothing about nobody was ever decided"),
        ((entity, "90d", "--as-of", "2026-03-09T00:00:00Z"), 1, "There are some as of 2026-03-08T12:00:00Z"),
        (
            (entity, "90d", "--as-of", since, "--since", "2026-03-10T12:00:00Z"),
            1,
            "--since must name another",
        ),
        ((entity, "90d", "--since-config-version", "1"), 2, "--since-config-version belongs to --since"),
        ((entity, "3d"), 2, "'3d' is not one of"),
        ((entity, "90d", "--as-of", "2026-03-10"), 2, "has no offset"),
    ):
        refused = oracle("explain", *arguments)
        assert refused.code == code, refused.err
        assert said in " ".join(refused.err.replace("│", " ").split())
        assert "Traceback" not in refused.err
